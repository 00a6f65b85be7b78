/* log_private.h: the log's parts, shared by the files of this folder.
 *
 *   log.c       appending, writing, what is durable, closing
 *   recover.c   log_open: what the directory holds
 *   segments.c  segments are prepared, used, and reused or removed
 *   read.c      parts of segments in memory; the device reads what is in none of them
 *   entries.c   which entries there are (pure)
 *   format.c    the bytes (pure)
 *
 * Memory has the log as the disk has it: a chunk is a part of a segment. A record is encoded at its
 * place in a chunk, is written from there, and is read there for as long as the chunk is kept. */
#ifndef LOG_LOG_PRIVATE_H
#define LOG_LOG_PRIVATE_H

#include "log/entries.h"
#include "log/format.h"
#include "log/log.h"

#define LOG_READY 2u                          /* segments that are kept ready */
#define LOG_USED_KEPT 4u                      /* superfluous segments that are kept for reuse */
#define LOG_FIRST_BYTES (UINT64_C(256) << 10) /* of the first segment of an empty directory */
#define LOG_RETRY_MIN_MS 100u
#define LOG_RETRY_MAX_MS 5000u

enum log_chunk_state {
    LOG_CHUNK_WHOLE,  /* what was appended, or recovered */
    LOG_CHUNK_WANTED, /* to be read, or being read */
    LOG_CHUNK_READ,   /* or not, for an error; each entry is verified when it is taken */
};

struct log_chunk {
    struct log_chunk *next;
    uint32_t segment;
    uint64_t offset; /* in the segment */
    size_t len;
    uint8_t *data;   /* aligned to the device's block */
    unsigned writes; /* in it, and not on disk */
    enum log_chunk_state state;
    size_t need; /* up to the end of the entry for which it is read */
    int error;   /* READ */
};

/* A write, from its first record until it is on disk. */
struct log_batch {
    struct log_batch *next;
    struct log_chunk *chunk;
    struct log_write write; /* its place, and what it has so far */
    uint64_t last_position; /* of its last record */
    uint32_t hard_at;       /* where its hard state is; 0: it has none */
};

struct log_segment {
    uint32_t number;
    uint64_t size;
    struct log_file *file; /* of the current one and of ready ones */
};

struct log {
    struct log_config config;
    struct log_device *device;
    size_t block;

    struct log_content now;

    struct metrics_histogram write_times;

    uint64_t position, durable, durable_index;
    uint64_t flush_upto;   /* position up to which a write was requested */
    uint64_t truncated_at; /* of the last truncation or reset */
    uint64_t compact_index;

    struct log_batch *head, *tail; /* to be written, oldest first */
    struct log_io write;           /* of the first of them */
    size_t waiting_bytes;          /* of records in the others */

    uint64_t log_id;
    uint64_t next_number; /* of the next write */
    uint64_t since_ns;    /* when the present write began, or began to wait for a segment */
    bool here;            /* the next write is the calling thread's: log_flush_here() */
    uint64_t slow_ns;     /* when a write was slow; 0: none was */

    /* Oldest first and without a gap: old segments, the current one, ready ones. */
    struct log_segment *segments;
    size_t segments_len, segments_cap;
    uint32_t current;    /* number of the segment being written */
    uint32_t durable_in; /* number of the segment with the last durable write */
    uint64_t offset;     /* in the current segment: the end of the last write that was begun */

    struct log_io background;

    struct log_chunk *chunks; /* the one that was used last first */
    struct log_io read;
    struct log_chunk *reading; /* NULL: no read is under way */
    uint64_t read_since_ns;

    bool waiting; /* for a segment */
    bool failed, closing, closed;
    void (*closed_cb)(void *ctx);
    void *closed_ctx;

    struct log_stats stats;
};

/* log.c */
void log_message(const struct log *l, enum log_level level, const char *fmt, ...) FLI_PRINTF(3, 4);
void log_begin_write(struct log *l); /* if none is under way, something waits and there is room */
void log_start(struct log *l, enum log_lane lane, struct log_io *io);

/* Starts an operation that has failed once more, after a pause that grows. True: it is time to log
 * that again (the 1st, 2nd, 4th, 8th, ...). And what ends that. */
bool log_try_again(struct log *l, enum log_lane lane, struct log_io *io);
void log_works_again(struct log *l, struct log_io *io, const char *what);

static inline uint8_t *log_batch_data(const struct log_batch *b)
{
    return b->chunk->data + (b->write.offset - b->chunk->offset);
}

/* segments.c */
void log_segment_name(uint32_t number, char out[LOG_NAME_MAX + 1]);
bool log_segment_parse(const char *name, uint32_t *ret); /* accepts exactly such names */
FLI_MUST_USE int log_segments_add(struct log *l, const struct log_segment *s);
struct log_segment *log_segment_of(const struct log *l, uint32_t number); /* it must exist */
uint64_t log_segment_size(const struct log *l, uint32_t number);          /* also of one to come */
void log_segment_close(struct log *l, struct log_segment *s);             /* if it is open */
bool log_next_segment(struct log *l); /* the next ready one becomes the current one */
void log_background(struct log *l);   /* begins due work of lane BACKGROUND */
void log_background_done(struct log *l, int result);
/* Makes the file `name` of `size` bytes, locked, durable with its name: `len` bytes of data, and
 * zeros. It is made out of the file `from` if that is given and exists. Until it is done it is
 * called `name`.part. 0: it is open as `file`; or a negative errno. Then it may be called again
 * with io as it is then: `from` is what could not be removed. */
int log_segment_make(struct log_io *io);
/* Removes the file `name`, durably. */
int log_segment_remove(struct log_io *io);

/* read.c */
/* A chunk that has all these bytes of a segment; NULL: none has. */
struct log_chunk *log_chunk_at(const struct log *l, uint32_t segment, uint64_t offset, size_t len);
/* A new one, with memory from aligned_alloc(), which becomes its own; NULL: no memory. */
struct log_chunk *log_chunk_add(struct log *l, uint32_t segment, uint64_t offset, size_t len,
                                uint8_t *data);
/* Frees those that were not used for longest, until the others fit. Those that are to be written or
 * read stay, and `kept`. */
void log_trim(struct log *l, const struct log_chunk *kept);
void log_chunk_drop(struct log *l, struct log_chunk *c);
void log_free_chunks(struct log *l);
void log_read_done(struct log *l, int result);

#endif
