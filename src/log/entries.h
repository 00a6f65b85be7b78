/* entries.h: the index of the log's entries: their terms, their places on disk, and the newest
 * entries' data in memory. Pure.
 *
 * Indexes run from first to last without a gap. Each entry has a slot of 32 bytes. The newest
 * entries, and all that are not durable, have their data in memory. */
#ifndef LOG_ENTRIES_H
#define LOG_ENTRIES_H

#include "log/log.h"

#define LOG_UNPLACED UINT32_MAX     /* segment of an entry that no write has taken yet */
#define LOG_CACHE_COST ((size_t)32) /* charged for an entry in memory besides its data */

struct log_slot {
    uint8_t *data; /* NULL: it is not in memory */
    uint64_t term;
    uint32_t segment;
    uint32_t offset; /* of the record in the segment */
    uint32_t len;
    uint8_t kind;
};

struct log_entries {
    uint64_t first; /* first == last + 1: none */
    uint64_t last;
    uint64_t base_term;     /* of first - 1; 0: unknown */
    struct log_slot *slots; /* of index i at i % slots_cap; a power of two */
    size_t slots_cap;
    uint64_t cached;   /* data of cached..last is in memory; last + 1: none is */
    size_t cache_used; /* bytes, LOG_CACHE_COST included */
    size_t cache_max;
};

void log_entries_init(struct log_entries *t, size_t cache_max);
void log_entries_fini(struct log_entries *t);

/* Forgets all entries; the next index is index + 1. */
void log_entries_reset(struct log_entries *t, uint64_t index, uint64_t term);

/* Adds a copy of e, whose index is last + 1. 0 or FL_ENOMEM, which changes nothing. */
FLI_MUST_USE int log_entries_add(struct log_entries *t, const struct log_entry *e);

/* Removes entries >= index; first <= index <= last + 1. */
void log_entries_truncate(struct log_entries *t, uint64_t index);

/* Removes entries < index; first <= index <= last + 1. */
void log_entries_drop(struct log_entries *t, uint64_t index);

/* Drops the data of entries <= durable from memory, oldest first, until the rest fits cache_max. */
void log_entries_evict(struct log_entries *t, uint64_t durable);

uint64_t log_entries_term(const struct log_entries *t, uint64_t index); /* 0: unknown */

static inline bool log_entries_has(const struct log_entries *t, uint64_t index)
{
    return index >= t->first && index <= t->last;
}
static inline struct log_slot *log_entries_slot(const struct log_entries *t, uint64_t index)
{
    FLI_ASSERT(log_entries_has(t, index));
    return &t->slots[index & (t->slots_cap - 1)];
}

#endif
