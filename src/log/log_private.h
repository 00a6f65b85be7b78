/* log_private.h: the log's parts, shared by the files of this folder.
 *
 *   log.c       appending, writing, what is durable, closing
 *   recover.c   log_open: what the directory holds
 *   segments.c  segments are prepared, used, and reused or removed
 *   read.c      entries from memory, or read back by the device
 *   entries.c   which entries there are (pure)
 *   format.c    the bytes (pure)
 *
 * Appends become records in the last of the waiting buffers; each buffer is one write. Usually
 * there are two: one under way and one being filled. */
#ifndef LOG_LOG_PRIVATE_H
#define LOG_LOG_PRIVATE_H

#include "log/entries.h"
#include "log/format.h"
#include "log/log.h"

#define LOG_READY 2u     /* segments that are kept ready */
#define LOG_USED_KEPT 4u /* superfluous segments that are kept for reuse */
/* A buffer takes no more than this, or one record. */
#define LOG_BUFFER_FULL ((size_t)1 << 20)
#define LOG_FIRST_BYTES (UINT64_C(256) << 10) /* of the first segment of an empty directory */
#define LOG_RETRY_MIN_MS 100u
#define LOG_RETRY_MAX_MS 5000u

struct log_buffer {
    struct log_buffer *next;
    uint8_t *data; /* aligned to the device's block; begins with room for the header */
    size_t cap, len;
    uint32_t records, entries;
    uint64_t last_position; /* of its last record */
    struct log_state before, after;
    size_t hard_at; /* offset of the last record when it is a hard state, else 0 */
    /* How the buffer changes entries that an earlier buffer made durable: only those up to `keep`
     * stay; with `reset`, all up to `keep` are in the snapshot. */
    uint64_t keep;
    bool reset;
};

/* Bytes read from disk. */
struct log_chunk {
    struct log_chunk *next;
    uint32_t segment;
    uint64_t offset;
    size_t len;
    uint8_t *data;
    bool used; /* since log_forget_unused() */
};

#define LOG_AHEAD_WANTED 16u

/* What read.c knows. */
struct log_ahead {
    struct log_chunk *chunks; /* the one that was used last first */
    size_t bytes;             /* in them */
    struct log_io io;
    struct log_chunk *arriving;        /* of the read under way; NULL: none is */
    struct log_slot reading;           /* the entry for which it began */
    uint64_t since_ns;                 /* when it began */
    uint64_t wanted[LOG_AHEAD_WANTED]; /* entries to be read next, by index */
    unsigned wanted_n;
    int error; /* of the last read that failed, of the entry at `failed`; 0: none */
    struct log_slot failed;
};

/* Failed attempts of an operation: pauses grow, log lines get fewer. */
struct log_retry {
    uint32_t pause_ms;
    uint64_t failures; /* since the last success */
};

struct log_segment {
    uint32_t number;
    uint64_t size;
};

struct log {
    struct log_config config;
    struct log_device *device;
    size_t block;

    struct log_entries entries;
    struct log_hard_state hard;
    uint32_t chain; /* checksum of the last record appended */

    struct metrics_histogram write_times;

    uint64_t position, durable, durable_index;
    uint64_t flush_upto;   /* position up to which a write was requested */
    uint64_t truncated_at; /* of the last truncation or reset */
    uint64_t compact_index;

    struct log_buffer *head, *tail; /* waiting, oldest first */
    struct log_buffer *under_way;
    struct log_buffer *spare; /* empty, for reuse */
    size_t waiting_bytes;     /* of records in head to tail */

    struct log_io write;
    size_t write_len; /* length on disk of the write under way */
    uint64_t log_id;
    uint64_t next_number; /* of the next write */
    uint64_t since_ns;    /* when the present write began, or began to wait for a segment */

    /* Oldest first and without a gap: old segments, the current one, ready ones. */
    struct log_segment *segments;
    size_t segments_len, segments_cap;
    uint32_t current;      /* number of the segment being written */
    uint32_t durable_in;   /* number of the segment with the last durable write */
    uint64_t offset;       /* of the next write in the current segment */
    struct log_file *file; /* the current segment */
    struct log_file *ready[LOG_READY];
    unsigned ready_len;

    struct log_io background;
    bool background_busy;
    struct log_retry write_retry, background_retry, read_retry;
    struct log_ahead ahead;

    bool waiting; /* for a segment */
    bool failed, closing, closed;
    void (*closed_cb)(void *ctx);
    void *closed_ctx;

    struct log_stats stats;
};

/* log.c */
void log_message(const struct log *l, enum log_level level, const char *fmt, ...) FLI_PRINTF(3, 4);
void log_begin_write(struct log *l); /* if none is under way, something waits and there is room */
void log_check_closed(struct log *l);

/* Starts an operation that has failed once more, after a pause. True: it is time to log that again
 * (the 1st, 2nd, 4th, 8th, ...). And what ends that. */
bool log_try_again(struct log *l, enum log_lane lane, struct log_io *io, struct log_retry *r);
void log_works_again(struct log *l, struct log_retry *r, const char *what);

/* segments.c */
void log_segment_name(uint32_t number, char out[LOG_NAME_MAX + 1]);
bool log_segment_parse(const char *name, uint32_t *ret); /* accepts exactly such names */
FLI_MUST_USE int log_segments_add(struct log *l, uint32_t number, uint64_t size);
struct log_segment *log_segment_of(struct log *l, uint32_t number); /* it must exist */
bool log_next_segment(struct log *l); /* the next ready one becomes the current one */
void log_background(struct log *l);   /* begins due work of lane BACKGROUND */

/* read.c */
void log_read_forget(struct log *l, uint32_t segment); /* which is about to be removed */
void log_read_fini(struct log *l);

#endif
