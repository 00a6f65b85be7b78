/* device.h: what the log and the snapshot files ask of a disk: one directory of named files.
 *
 * Two implementations: device_files.c (a directory of a real file system) and the simulated one of
 * the tests, which loses, tears, flips and misplaces. Errors are negative errno values throughout.
 *
 * Synchronous calls are for recovery and for snapshots. They use no thread and no ring, so they
 * work in a child after fork(), and from any thread as long as each file is used by one at a time.
 * Operations (struct log_io) are for a running log: at most one of each lane is under way, `done`
 * comes out of log_device_poll() and never out of log_device_start(). */
#ifndef LOG_DEVICE_H
#define LOG_DEVICE_H

#include "base/base.h"

#define LOG_NAME_MAX 63u         /* bytes of a file's name */
#define LOG_SECTOR ((size_t)512) /* what a disk writes wholly or not at all */
#define LOG_BLOCK ((size_t)4096) /* what the log writes at least, and its alignment in memory */
#define LOG_BLOCK_MAX ((size_t)65536)

struct log_device;
struct log_file; /* an open file, of the device's making */

enum log_lane {
    LOG_LANE_WRITE,      /* writes of the log, which clients wait for */
    LOG_LANE_BACKGROUND, /* segments made ready or removed; never delays the other lane */
};

enum log_io_type {
    LOG_IO_WRITE,   /* data at offset of file; durable when done. Lane WRITE. */
    LOG_IO_PREPARE, /* a file `name` of `size` zeros, durable with its name; made from the file
                     * `from` when that is not empty and there. Until it is done the file is called
                     * `name`.part. After an error the same may be started again. Lane BACKGROUND.
                     */
    LOG_IO_REMOVE,  /* the file `name` goes, durably; it may be gone. Lane BACKGROUND. */
};

/* An operation. The caller's memory, untouched by the caller until it is done. */
struct log_io {
    enum log_io_type type;
    struct log_file *file; /* WRITE. PREPARE: on success the new file, open for direct writing */
    const uint8_t *data;   /* WRITE: aligned to the device's block, as are len and offset */
    size_t len;
    uint64_t offset;
    char name[LOG_NAME_MAX + 1]; /* PREPARE, REMOVE */
    char from[LOG_NAME_MAX + 1]; /* PREPARE: "" or a file that is used up by this */
    uint64_t size;               /* PREPARE: bytes */
    uint32_t delay_ms;           /* wait so long first */
    /* result: 0, or a negative errno (a short write is -EIO). -ECANCELED after log_device_cancel.
     * took_ns: since it was started, without the delay. */
    void (*done)(struct log_io *io, int result, uint64_t took_ns);
    void *ctx;
};

enum log_open_flags {
    LOG_OPEN_READ = 0,
    LOG_OPEN_WRITE = 1,  /* for reading and writing */
    LOG_OPEN_CREATE = 2, /* with WRITE: must not exist yet */
    LOG_OPEN_DIRECT = 4, /* past the page cache where that is possible; then memory, offset and
                          * length of everything are multiples of the block */
};

typedef void log_list_cb(void *ctx, const char *name, uint64_t size);

struct log_device_ops {
    int (*list)(struct log_device *d, log_list_cb *each, void *ctx);
    int (*open)(struct log_device *d, const char *name, unsigned flags, struct log_file **ret);
    void (*close)(struct log_device *d, struct log_file *f);
    int (*size)(struct log_device *d, struct log_file *f, uint64_t *ret);
    /* Bytes read, less than len only at the end of the file. */
    int64_t (*read)(struct log_device *d, struct log_file *f, void *data, size_t len,
                    uint64_t offset);
    int (*write)(struct log_device *d, struct log_file *f, const void *data, size_t len,
                 uint64_t offset);                         /* all of it, or an error */
    int (*sync)(struct log_device *d, struct log_file *f); /* data and size; also what another
                                                            * process had written before */
    int (*rename)(struct log_device *d, const char *from, const char *to);
    int (*remove)(struct log_device *d, const char *name);
    int (*sync_dir)(struct log_device *d);
    void (*start)(struct log_device *d, enum log_lane lane, struct log_io *io);
    void (*cancel)(struct log_device *d); /* the one of lane BACKGROUND ends soon, and so does the
                                           * pause before a write; until something is started */
    /* Readable when poll has something to do; -1: there is none. */
    int (*fd)(struct log_device *d, unsigned which);
    void (*poll)(struct log_device *d);
    uint64_t (*now_ns)(struct log_device *d); /* monotonic, for statistics only */
    void (*random)(struct log_device *d, void *data, size_t len);
};

/* What every implementation begins with. */
struct log_device {
    const struct log_device_ops *ops;
    const char *where;  /* the directory, for messages */
    const char *engine; /* "io_uring", or "thread: " and why; for INFO */
    size_t block;       /* LOG_BLOCK or a power of two above it, at most LOG_BLOCK_MAX */
    int keep_fd;        /* what a child of fork() must keep open for synchronous calls; -1: none */
};

/* For the owner's loop: watch the descriptors for reading and call poll when one is readable. */
#define LOG_DEVICE_FDS 2u
static inline int log_device_fd(struct log_device *d, unsigned which)
{
    return d->ops->fd(d, which);
}
static inline void log_device_poll(struct log_device *d)
{
    d->ops->poll(d);
}

/* For callers without a loop: waits until a descriptor is readable, timeout_ms at most (-1: without
 * end), and calls poll. Whether one was; true where there are no descriptors. */
bool log_device_wait(struct log_device *d, int timeout_ms);

/* --- a directory of a real file system (device_files.c, device_uring.c) --- */

enum log_engine {
    LOG_ENGINE_BEST,  /* io_uring where the kernel lets us, else a thread */
    LOG_ENGINE_URING, /* or fail; for tests */
    LOG_ENGINE_THREAD,
    LOG_ENGINE_NO_DIRECT =
        8, /* or'ed: through the page cache, as on a file system without O_DIRECT */
};

/* Opens a directory that exists. 0; FL_EIO; FL_ESYSTEM: no thread can be had, or LOG_ENGINE_URING
 * is forbidden; FL_ENOMEM; with a message. What had to be done without (io_uring, O_DIRECT) is in
 * `engine` of the result. Create, poll and destroy in one thread, which also runs the log. */
int log_files_create(const char *dir, unsigned engine, struct log_device **ret, char *errmsg,
                     size_t errmsg_size) FLI_MUST_USE;

/* With nothing under way (the log is closed). */
void log_files_destroy(struct log_device *d);

#endif
