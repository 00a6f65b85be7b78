/* entries.h: the index of the log's entries: their terms, and their places on disk. Pure.
 *
 * Indexes run from first to last without a gap. Each entry has a slot of 24 bytes. Its place is
 * known from the moment at which it is appended; a later entry has a later place. */
#ifndef LOG_ENTRIES_H
#define LOG_ENTRIES_H

#include "log/log.h"

struct log_slot {
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
};

/* Forgets all entries, and their memory; the next index is index + 1. */
void log_entries_reset(struct log_entries *t, uint64_t index, uint64_t term);

/* Makes room for one more. 0 or FL_ENOMEM, which changes nothing. */
FLI_MUST_USE int log_entries_reserve(struct log_entries *t);

/* Adds the entry last + 1, for which there is room. */
void log_entries_add(struct log_entries *t, uint64_t term, uint32_t len, uint8_t kind,
                     uint32_t segment, uint64_t offset);

/* Removes entries >= index; first <= index <= last + 1. */
void log_entries_truncate(struct log_entries *t, uint64_t index);

/* Removes entries < index; first <= index <= last + 1. */
void log_entries_drop(struct log_entries *t, uint64_t index);

uint64_t log_entries_term(const struct log_entries *t, uint64_t index); /* 0: unknown */

static inline bool log_entries_has(const struct log_entries *t, uint64_t index)
{
    return index >= t->first && index <= t->last;
}
static inline const struct log_slot *log_entries_slot(const struct log_entries *t, uint64_t index)
{
    FLI_ASSERT(log_entries_has(t, index));
    return &t->slots[index & (t->slots_cap - 1)];
}

#endif
