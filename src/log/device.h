/* device.h: the operations that the log and the snapshot files need of a disk: one directory of
 * named files.
 *
 * Two implementations: device_files.c (a directory of a real file system), and the tests' simulated
 * one, which loses, tears, flips and misplaces data. Errors are negative errno values throughout.
 *
 * Synchronous calls are for recovery and for snapshots. They use no thread and no ring. So they
 * work in a child after fork(), and from any thread as long as each file is used by one thread at a
 * time. Operations (struct log_io) are for a running log. At most one of each lane is under way.
 * `done` is called from poll() or perform(), never from start(). */
#ifndef LOG_DEVICE_H
#define LOG_DEVICE_H

#include "base/folder.h"

#define LOG_NAME_MAX 63u         /* bytes of a file's name */
#define LOG_SECTOR ((size_t)512) /* a disk writes it wholly or not at all */
#define LOG_BLOCK ((size_t)4096) /* the least that the log writes, and its alignment in memory */
#define LOG_BLOCK_MAX ((size_t)65536)

struct log_device;
struct log_file; /* an open file, made by the device */

enum log_lane {
    LOG_LANE_WRITE,      /* writes of the log, which clients wait for */
    LOG_LANE_BACKGROUND, /* makes or removes segments; never delays the other lanes */
    LOG_LANE_READ,       /* reads entries back, for nodes that are behind */
};
#define LOG_LANES 3u

enum log_io_type {
    LOG_IO_WRITE,   /* data at offset of file; durable when done. Lane WRITE. */
    LOG_IO_PREPARE, /* makes the file `name` of `size` zeros, locked, durable with its name; out of
                       the file `from` if that is given and exists. Until it is done the file is
                       called `name`.part. After an error it may be started again, as it is
                       then: `from` is what could not be removed. Lane BACKGROUND. */
    LOG_IO_REMOVE,  /* removes the file `name` durably; it may be absent. Lane BACKGROUND. */
    LOG_IO_READ,    /* opens the file `name`, reads len bytes at offset to `into`, and closes it. On
                       success len is what was read, less only at the end of the file. Lane
                       READ. */
};

/* An operation. The memory is the caller's, who must not touch it until it is done. */
struct log_io {
    enum log_io_type type;
    struct log_file *file; /* WRITE. PREPARE: on success the new file, open for direct writing */
    const uint8_t *data;   /* WRITE: aligned to the device's block, as are len and offset */
    uint8_t *into;         /* READ: likewise */
    size_t len;
    uint64_t offset;
    char name[LOG_NAME_MAX + 1]; /* PREPARE, REMOVE, READ */
    char from[LOG_NAME_MAX + 1]; /* PREPARE: "" or a file that this uses up */
    uint64_t size;               /* PREPARE: bytes */
    uint32_t delay_ms;           /* how long to wait before it begins */
    /* result: 0, or a negative errno; -ECANCELED after cancel().
     * took_ns: the time since the start, without the delay. */
    void (*done)(struct log_io *io, int result, uint64_t took_ns);
    void *ctx;
};

enum log_open_flags {
    LOG_OPEN_READ = 0,
    LOG_OPEN_WRITE = 1,  /* for reading and writing */
    LOG_OPEN_CREATE = 2, /* with WRITE: the file must not exist yet */
    LOG_OPEN_DIRECT = 4, /* bypass the page cache where possible; memory, offset and length must
                            then be multiples of the block */
};

struct log_device_ops {
    /* The names, as fli_folder_each() tells them. After an error the list is not whole, and nothing
     * may be concluded from it. How long a file is, is asked of the open file: a name of which that
     * cannot be learned stays in the list. */
    int (*list)(struct log_device *d, fli_folder_cb *each, void *ctx);
    int (*open)(struct log_device *d, const char *name, unsigned flags, struct log_file **ret);
    void (*close)(struct log_device *d, struct log_file *f);
    /* Locks the file until it is closed: one that is open for writing against all others, one that
     * is open for reading against writers. After at most wait_ms -EWOULDBLOCK. The lock of a
     * process that is killed lasts as long as any write of the file that it has begun. */
    int (*lock)(struct log_device *d, struct log_file *f, uint32_t wait_ms);
    int (*size)(struct log_device *d, struct log_file *f, uint64_t *ret);
    /* Returns the bytes read, fewer than len only at the end of the file. */
    int64_t (*read)(struct log_device *d, struct log_file *f, void *data, size_t len,
                    uint64_t offset);
    int (*write)(struct log_device *d, struct log_file *f, const void *data, size_t len,
                 uint64_t offset);                         /* writes all of it, or fails */
    int (*sync)(struct log_device *d, struct log_file *f); /* data and size, including writes of
                                                              other processes */
    /* Without `replace`, a file that has the name stays: -EEXIST. */
    int (*rename)(struct log_device *d, const char *from, const char *to, bool replace);
    int (*remove)(struct log_device *d, const char *name);
    int (*sync_dir)(struct log_device *d);
    void (*start)(struct log_device *d, enum log_lane lane, struct log_io *io);
    /* A write of lane WRITE, when none is under way: the calling thread does it, without a delay,
     * and calls `done`; or it is begun, as by start(). */
    void (*perform)(struct log_device *d, struct log_io *io);
    void (*cancel)(struct log_device *d); /* the operation of lane BACKGROUND ends soon, and a write
                                             begins without its delay; until the next start */
    void (*poll)(struct log_device *d);
    uint64_t (*now_ns)(struct log_device *d); /* monotonic, for statistics only */
    void (*random)(struct log_device *d, void *data, size_t len);
};

#define LOG_DEVICE_FDS 2u

/* The head of every implementation. */
struct log_device {
    const struct log_device_ops *ops;
    const char *where;  /* the directory, for messages */
    const char *engine; /* "io_uring", or "thread: " and why; for INFO */
    size_t block;       /* LOG_BLOCK or a power of two above it, at most LOG_BLOCK_MAX */
    int keep_fd;        /* the descriptor that a child of fork() must keep for synchronous calls;
                           -1: none */
    int fds[LOG_DEVICE_FDS]; /* readable when poll has something to do; -1: there is none */
};

/* For the owner's loop: when a descriptor is readable. */
static inline void log_device_poll(struct log_device *d)
{
    d->ops->poll(d);
}

/* For callers without a loop: waits until a descriptor is readable, at most timeout_ms (-1: for
 * ever), and calls poll. Returns whether one was readable; true when there are no descriptors. */
bool log_device_wait(struct log_device *d, int timeout_ms);

/* Removes each file whose name is unwanted. 0; or an error, and `name` is that of the file that
 * could not be removed, "" when the directory could not be read. */
int log_device_remove(struct log_device *d, bool (*unwanted)(void *ctx, const char *name),
                      void *ctx, char name[LOG_NAME_MAX + 1]) FLI_MUST_USE;

/* --- a directory of a real file system (device_files.c, device_uring.c) --- */

enum log_engine {
    LOG_ENGINE_BEST,  /* io_uring where the kernel lets us, else a thread */
    LOG_ENGINE_URING, /* io_uring or fail; for tests */
    LOG_ENGINE_THREAD,
    LOG_ENGINE_NO_DIRECT = 8, /* a flag: use the page cache, as on a file system without O_DIRECT */
};

/* Opens an existing directory. 0; FL_EIO; FL_ESYSTEM: no thread can be created, or io_uring is
 * forbidden and LOG_ENGINE_URING was asked for; FL_ENOMEM; with a message. `engine` of the result
 * names what is missing (io_uring, O_DIRECT). Create, poll and destroy in one thread, the log's. */
int log_files_create(const char *dir, unsigned engine, struct log_device **ret, char *errmsg,
                     size_t errmsg_size) FLI_MUST_USE;

/* Only when nothing is under way (the log is closed). */
void log_files_destroy(struct log_device *d);

#endif
