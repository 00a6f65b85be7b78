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

#include <stdatomic.h>

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

/* An operation. The memory is the caller's, who must not touch it until it is done. */
struct log_io {
    struct log_device *device;
    /* What is to be done, by synchronous calls of the device; NULL: the write below, in lane WRITE.
     * It ends soon when the device says that it is cancelled. */
    int (*work)(struct log_io *io);
    struct log_file *file; /* data at offset of it is durable when that is done */
    const uint8_t *data;   /* aligned to the device's block, as are len and offset */
    size_t len;
    uint64_t offset;
    uint32_t delay_ms; /* how long to wait before it begins */
    /* result: 0, or a negative errno; -ECANCELED after cancel().
     * took_ns: the time since the start, without the delay. */
    void (*done)(struct log_io *io, int result, uint64_t took_ns);
    void *ctx;
    bool busy; /* this and what follows are the caller's */
    uint64_t failures;
    char name[LOG_NAME_MAX + 1], from[LOG_NAME_MAX + 1];
    uint64_t size;
    uint8_t *into;
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
    /* Locks the file, which is open for writing, until it is closed. After at most wait_ms
     * -EWOULDBLOCK. The lock of a process that is killed lasts as long as any write of the file
     * that it has begun. */
    int (*lock)(struct log_device *d, struct log_file *f, uint32_t wait_ms);
    int (*size)(struct log_device *d, struct log_file *f, uint64_t *ret);
    /* Gives it this size, and room on the disk if the file system can do that ahead. */
    int (*allocate)(struct log_device *d, struct log_file *f, uint64_t size);
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
    void (*cancel)(struct log_device *d); /* sets `cancelled`: what waits to begin, never does */
    void (*poll)(struct log_device *d);
    uint64_t (*now_ns)(struct log_device *d); /* monotonic, for statistics only */
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
    atomic_bool cancelled;   /* until a log is opened */
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
    LOG_ENGINE_BEST,          /* io_uring where the kernel lets us, else a thread */
    LOG_ENGINE_THREAD = 1,    /* flags, for tests */
    LOG_ENGINE_NO_DIRECT = 2, /* use the page cache, as on a file system without O_DIRECT */
};

/* Opens an existing directory. 0; FL_EIO; FL_ESYSTEM: no thread can be created; FL_ENOMEM; with a
 * message. `engine` of the result names what is missing (io_uring, O_DIRECT). Create, poll and
 * destroy in one thread, the log's. */
int log_files_create(const char *dir, unsigned engine, struct log_device **ret, char *errmsg,
                     size_t errmsg_size) FLI_MUST_USE;

/* Only when nothing is under way (the log is closed). */
void log_files_destroy(struct log_device *d);

#endif
