/* log.h: a durable log: entries, the hard state and truncations, in one order on one disk.
 *
 * An append takes effect at once in memory, and goes to disk with the next write, together with
 * everything appended meanwhile. One write is under way at a time. Each append has a position (1,
 * 2, ... in this run of the process). Everything up to the position log_durable() is on disk. The
 * order of positions is the order on disk. So a recovery after a crash finds the effect of all
 * appends up to some position that is not below the last log_durable().
 *
 * Entries are stored in segments: files that are filled with zeros before they are used (format.c
 * has the bytes, segments.c their life, docs/adr/0024 the reasons). When the disk is full and no
 * segment is ready, appends stay in memory until one is; nothing is lost and nothing becomes
 * durable.
 *
 * Memory: cache_bytes, and what is not durable, and one chunk for each who waits for a read, and 24
 * to 48 bytes for each entry in the segments.
 *
 * One thread, the one of log_device_poll(). Callbacks come from log_device_poll() and
 * log_flush_here() only, except `log`, which any call may cause. */
#ifndef LOG_LOG_H
#define LOG_LOG_H

#include "base/base.h"
#include "log/device.h"
#include "metrics/histogram.h"

#define LOG_ENTRY_MAX ((UINT32_C(4) << 20) + 4096) /* bytes of data of one entry */
#define LOG_INDEX_MAX ((UINT64_C(1) << 62) - 1)    /* so that no sum of indexes overflows */
#define LOG_PENDING_MAX ((size_t)16 << 20) /* bytes appended and not yet given to the device */
#define LOG_CHUNK_BYTES ((size_t)1 << 20)  /* of a part of a segment in memory, or one entry */
#define LOG_SEGMENT_DEFAULT (UINT64_C(8) << 20)
#define LOG_SEGMENT_MIN (UINT64_C(16) << 10)
#define LOG_SEGMENT_MAX (UINT64_C(64) << 20) /* recovery reads a segment as a whole */
#define LOG_CACHE_DEFAULT ((size_t)16 << 20)

struct log;

struct log_entry {
    uint64_t index;
    uint64_t term;
    uint8_t kind; /* 1 to 255, opaque to the log */
    uint32_t len;
    const uint8_t *data; /* may be NULL when len is 0 */
};

struct log_hard_state {
    uint64_t term;
    uint64_t vote;
};

enum log_level { LOG_LEVEL_ERROR = 1, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_config {
    struct log_device *device;  /* the caller's; outlives the log */
    size_t cache_bytes;         /* 0: LOG_CACHE_DEFAULT. Of what is durable, what was used last */
    uint64_t segment_bytes;     /* 0: LOG_SEGMENT_DEFAULT; MIN to MAX, a multiple of the block */
    bool must_exist;            /* a directory without a segment is FL_ENOTFOUND */
    void *ctx;                  /* each of the callbacks may be NULL */
    void (*durable)(void *ctx); /* something became durable: see log_durable() */
    void (*failed)(void *ctx, int error, const char *message); /* a write failed for good
                                                                  (FL_EIO); at most once; nothing
                                                                  becomes durable any more */
    void (*log)(void *ctx, enum log_level level, const char *message);
    void (*arrived)(void *ctx); /* a read of log_take_some() has ended: ask again */
};

/* Recovers the log in the directory; an empty directory becomes an empty log (last index 0, hard
 * state 0/0), unless it must exist. Synchronous. What it finds is on stable storage when it
 * returns. 0; FL_ECORRUPT with file and byte in the message, and nothing was changed on disk;
 * FL_EVERSION: of another version, FL_ENOTFOUND, likewise; FL_EIO, also when a write that an
 * earlier process began has not ended after half a minute; FL_ENOMEM.
 *
 * The log cannot know whether its oldest or newest segments were removed from outside. So the
 * caller checks that log_first_index() <= index of its snapshot + 1, that the log reaches that far,
 * and that it reaches as far as the caller has noted elsewhere. */
int log_open(const struct log_config *config, struct log **ret, char *errmsg,
             size_t errmsg_size) FLI_MUST_USE;

/* Finishes the write and the read under way, then calls `closed` once, from log_device_poll(), or
 * at once when nothing is under way. What was not flushed is dropped. No other callback comes
 * afterwards. */
void log_close(struct log *l, void (*closed)(void *ctx), void *ctx);

/* Frees a closed log. */
void log_destroy(struct log *l);

/* For callers without a loop: waits until everything appended is on disk (0), or can never be
 * (FL_EIO); and closes and frees a log. */
int log_write_out(struct log *l) FLI_MUST_USE;
void log_end(struct log *l);

/* --- the present state (in memory; perhaps not yet durable) --- */

struct log_hard_state log_get_hard_state(const struct log *l);

/* The first and the last entry; first == last + 1 when there is none. */
uint64_t log_first_index(const struct log *l);
uint64_t log_last_index(const struct log *l);

/* The term of an entry, or of the one before the first (the base, if known); 0: unknown. */
uint64_t log_term_of(const struct log *l, uint64_t index);
uint64_t log_last_term(const struct log *l);
uint8_t log_kind_of(const struct log *l, uint64_t index); /* it must exist */

/* --- appending --- */

/* Each copies its bytes, takes effect at once and returns its position; 0: no memory, or (entries
 * only) LOG_PENDING_MAX is reached, and nothing has happened. They begin no write; log_flush()
 * does. After failed() they still work in memory.
 *
 * An entry's index is log_last_index() + 1 and at most LOG_INDEX_MAX. Its term is not 0 and not
 * below log_last_term(). Its length is at most log_entry_max(). */
FLI_MUST_USE uint64_t log_append(struct log *l, const struct log_entry *e);

/* Removes entries >= index; first <= index <= last + 1. (At last + 1 the record has no effect.) */
FLI_MUST_USE uint64_t log_truncate(struct log *l, uint64_t index);

FLI_MUST_USE uint64_t log_set_hard_state(struct log *l, const struct log_hard_state *hs);

/* After a snapshot at index and term was installed: forgets all entries; the next is index + 1. The
 * hard state stays. */
FLI_MUST_USE uint64_t log_reset(struct log *l, uint64_t index, uint64_t term);

/* The largest entry that fits: LOG_ENTRY_MAX, or less with small segments. */
uint32_t log_entry_max(const struct log *l);

/* Bytes of entries (data and 40 bytes each) that log_append() can take now. */
size_t log_room(const struct log *l);

/* --- becoming durable --- */

/* Begins a write of everything appended. If one is under way, the next begins as soon as that is
 * done. Call it once a turn of the loop, after all appends. */
void log_flush(struct log *l);

/* The same for a caller that has nothing else to do: it waits for the write, unless one took more
 * than 1 ms in the last second, or is under way. True: something became durable, and `durable` was
 * called. */
bool log_flush_here(struct log *l);

/* The number of the last write that is on disk. It counts on over restarts, truncations and
 * installed snapshots, and never goes back: a log with a smaller one has lost its newest part. */
uint64_t log_writes(const struct log *l);

uint64_t log_position(const struct log *l); /* of the last append, 0 before the first */
uint64_t log_durable(const struct log *l);  /* all positions up to this are on disk */

/* The highest entry that is on disk and not truncated since: raft may be told that it is
 * persisted. */
uint64_t log_durable_index(const struct log *l);

/* --- reading --- */

/* Takes entries from index on, from memory or from what was read of their segments, verified: at
 * most n, at most max_bytes of data, but at least one. The data stays valid until the next call of
 * a function that takes a log that is not const, or of log_device_poll(); that of consecutive calls
 * of this one stays valid together. Never waits for the disk.
 *
 * 0; FL_EBUSY: the first entry is not in memory; the device reads, and `arrived` will be called.
 * When others behind the first are not in memory, the call ends there, and they are read meanwhile.
 * FL_ENOTFOUND: the first is not in first to last; FL_ECORRUPT, FL_EIO with a line to `log`;
 * FL_ENOMEM. */
FLI_MUST_USE int log_take_some(struct log *l, uint64_t index, size_t max_bytes,
                               struct log_entry *entries, unsigned n, unsigned *ret_n);

/* The same for callers without a loop: waits for the disk, never FL_EBUSY. Other callbacks may come
 * meanwhile. The data is that of this call only. */
FLI_MUST_USE int log_read_some(struct log *l, uint64_t index, size_t max_bytes,
                               struct log_entry *entries, unsigned n, unsigned *ret_n);

/* --- making room --- */

/* A snapshot at >= index is durable: whole segments without entries above index may be removed.
 * Entries above it stay, and some below. */
void log_compact(struct log *l, uint64_t index);

/* --- for INFO --- */

struct log_stats {
    const char *engine;
    uint64_t writes;      /* writes that were done */
    uint64_t writes_here; /* of these, by log_flush_here() */
    uint64_t write_ns_sum;
    uint64_t write_ns_max;
    uint64_t age_ns;          /* of the write under way or waiting for a segment; 0: none */
    uint64_t read_age_ns;     /* of the read that somebody waits for; 0: nobody does */
    bool waiting_for_segment; /* no segment is ready, or a write found the disk full */
    uint64_t segments;        /* files, including ready ones */
    uint64_t bytes;           /* in these files */
    uint64_t recycled;        /* segments that were reused */
    size_t memory_bytes;      /* parts of segments in memory */
};
void log_get_stats(struct log *l, struct log_stats *ret);

/* Times of writes until they were on disk. */
const struct metrics_histogram *log_write_times(const struct log *l);

#endif
