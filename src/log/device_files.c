/* device_files.c: a directory of a real file system.
 *
 * Writes of the log bypass the page cache (O_DIRECT) and complete when they are on stable storage
 * (RWF_DSYNC), through an io_uring or a thread that waits for them. Each lane has a thread. That of
 * WRITE also pauses first, which a ring cannot, and it does what the ring has not done wholly: the
 * same bytes may be written to the same place again. It goes on until all is written, or learns the
 * reason. The threads are created with the device, since the process might get no more of them
 * later. An eventfd tells the loop that an operation is done. */
#include "log/device.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/part.h"
#include "base/process.h"
#include "log/device_uring.h"

#define LOCK_AGAIN_NS 10000000

enum { EVENT, RING }; /* of struct log_device's descriptors: a lane is done, or the ring's write */

struct log_file {
    int fd;
};

struct files;

enum { IDLE, BEGUN, DONE, END };

/* A thread's lane. While it is BEGUN, `io` is the thread's. */
struct lane {
    struct files *device;
    pthread_t thread;
    bool running;
    int wake_fd; /* readable: look at the state, or whether the pause is over */
    atomic_int state;
    struct log_io *io;
    int result;
    uint64_t since_ns, took_ns;
};

struct files {
    struct log_device base;
    int dir_fd;
    bool direct; /* O_DIRECT is possible */
    struct log_uring uring;
    bool has_uring;
    bool uring_broken; /* it has refused a write, and would begin that together with the next */
    struct lane lanes[LOG_LANES];
    char where[512];
    char engine[128];
};

static struct files *files_of(struct log_device *d)
{
    return FLI_CONTAINER_OF(d, struct files, base);
}

/* --- synchronous calls --- */

static int files_list(struct log_device *d, fli_folder_cb *each, void *ctx)
{
    return fli_folder_each(files_of(d)->dir_fd, ".", each, ctx);
}

static int open_fd(struct files *f, const char *name, unsigned flags)
{
    int how = O_CLOEXEC | O_NOFOLLOW;
    /* What is no file may have the name of one: opening a FIFO would wait for a writer. */
    how |= (flags & LOG_OPEN_WRITE) != 0 ? O_RDWR : O_RDONLY | O_NONBLOCK;
    how |= (flags & LOG_OPEN_CREATE) != 0 ? O_CREAT | O_EXCL : 0;
    how |= (flags & LOG_OPEN_DIRECT) != 0 && f->direct ? O_DIRECT : 0;
    int fd = openat(f->dir_fd, name, how, 0600);
    return fd < 0 ? -errno : fd;
}

static int files_open(struct log_device *d, const char *name, unsigned flags, struct log_file **ret)
{
    struct log_file *file = malloc(sizeof *file);
    if (file == NULL) {
        return -ENOMEM;
    }
    file->fd = open_fd(files_of(d), name, flags);
    if (file->fd < 0) {
        int error = file->fd;
        free(file);
        return error;
    }
    *ret = file;
    return 0;
}

static void files_close(struct log_device *d, struct log_file *file)
{
    close(file->fd);
    free(file);
}

/* A lock belongs to the open file. A request to io_uring has a reference to that, and keeps it
 * after the process has ended. */
static int files_lock(struct log_device *d, struct log_file *file, uint32_t wait_ms)
{
    const struct timespec pause = {.tv_nsec = LOCK_AGAIN_NS};
    uint64_t until_ms = fli_clock_ms() + wait_ms;
    while (flock(file->fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        if (error != EWOULDBLOCK || fli_clock_ms() >= until_ms) {
            return -error;
        }
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static int files_size(struct log_device *d, struct log_file *file, uint64_t *ret)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0) {
        return -errno;
    }
    *ret = (uint64_t)st.st_size;
    return 0;
}

/* Fails at once when the disk is full; without fallocate(), a write does. */
static int files_allocate(struct log_device *d, struct log_file *file, uint64_t size)
{
    bool good = ftruncate(file->fd, (off_t)size) == 0 &&
                (fallocate(file->fd, 0, 0, (off_t)size) == 0 || errno == EOPNOTSUPP);
    return good ? 0 : -errno;
}

static int64_t files_read(struct log_device *d, struct log_file *file, void *data, size_t len,
                          uint64_t offset)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(file->fd, (uint8_t *)data + got, len - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        got += (size_t)n;
        /* A direct read that ends off a sector has met the file's end, and cannot continue from
         * there. */
        if (n == 0 || (size_t)n % LOG_SECTOR != 0) {
            break;
        }
    }
    return (int64_t)got;
}

/* Writes all of it, with these flags of pwritev2(). */
static int write_all(int fd, const void *data, size_t len, uint64_t offset, int flags)
{
    size_t done = 0;
    while (done < len) {
        struct iovec v = {.iov_base = (void *)((uintptr_t)data + done), .iov_len = len - done};
        ssize_t n = pwritev2(fd, &v, 1, (off_t)(offset + done), flags);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO;
        }
        done += (size_t)n;
    }
    return 0;
}

static int files_write(struct log_device *d, struct log_file *file, const void *data, size_t len,
                       uint64_t offset)
{
    return write_all(file->fd, data, len, offset, 0);
}

static int files_sync(struct log_device *d, struct log_file *file)
{
    return fdatasync(file->fd) != 0 ? -errno : 0;
}

static int files_rename(struct log_device *d, const char *from, const char *to, bool replace)
{
    int dir = files_of(d)->dir_fd;
    int rv = replace ? renameat(dir, from, dir, to) : fli_rename_new(dir, from, to);
    return rv != 0 ? -errno : 0;
}

static int files_remove(struct log_device *d, const char *name)
{
    return unlinkat(files_of(d)->dir_fd, name, 0) != 0 ? -errno : 0;
}

static int files_sync_dir(struct log_device *d)
{
    return fsync(files_of(d)->dir_fd) != 0 ? -errno : 0;
}

static uint64_t files_now_ns(struct log_device *d)
{
    return fli_clock_ns();
}

/* --- threads --- */

static void notify(int event_fd)
{
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(event_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
}

static void clear(int event_fd)
{
    uint64_t count;
    ssize_t n = read(event_fd, &count, sizeof count);
    (void)n; /* it is fine when there was nothing to read */
}

static int perform(struct log_io *io)
{
    return io->work != NULL ? io->work(io)
                            : write_all(io->file->fd, io->data, io->len, io->offset, RWF_DSYNC);
}

/* On the lane's thread. */
static void execute(struct lane *lane)
{
    struct log_io *io = lane->io;
    struct log_device *d = &lane->device->base;
    struct pollfd p = {.fd = lane->wake_fd, .events = POLLIN};
    if (io->delay_ms > 0 && !atomic_load(&d->cancelled)) {
        (void)poll(&p, 1, (int)io->delay_ms);
    }
    uint64_t since = fli_clock_ns();
    bool go = io->delay_ms == 0 || !atomic_load(&d->cancelled);
    lane->result = go ? perform(io) : -ECANCELED;
    lane->took_ns = fli_clock_ns() - since;
}

static void *lane_main(void *arg)
{
    struct lane *lane = arg;
    int state;
    do {
        clear(lane->wake_fd);
        state = atomic_load(&lane->state);
        if (state == BEGUN) {
            execute(lane);
            atomic_store(&lane->state, DONE);
            notify(lane->device->base.fds[EVENT]);
        }
    } while (state != END);
    return NULL;
}

static int start_thread(struct files *f, struct lane *lane)
{
    lane->device = f;
    lane->wake_fd = eventfd(0, EFD_CLOEXEC);
    int rv = lane->wake_fd < 0 ? errno : fli_thread_start(&lane->thread, lane_main, lane);
    lane->running = rv == 0;
    return -rv;
}

static void set_state(struct lane *lane, int state)
{
    atomic_store(&lane->state, state);
    notify(lane->wake_fd);
}

static void files_start(struct log_device *d, enum log_lane lane, struct log_io *io)
{
    struct files *f = files_of(d);
    struct lane *at = &f->lanes[lane];
    FLI_ASSERT(at->running && at->io == NULL && (io->work == NULL) == (lane == LOG_LANE_WRITE));
    at->io = io;
    at->since_ns = fli_clock_ns();
    if (io->work == NULL && io->delay_ms == 0 && f->has_uring && !f->uring_broken) {
        int fd = io->file->fd;
        f->uring_broken = log_uring_write(&f->uring, fd, io->data, io->len, io->offset) != 0;
    }
    if (!f->uring.busy || lane != LOG_LANE_WRITE) {
        set_state(at, BEGUN);
    }
}

static void files_perform(struct log_device *d, struct log_io *io)
{
    uint64_t since_ns = fli_clock_ns();
    int result = perform(io);
    io->done(io, result, fli_clock_ns() - since_ns);
}

static void files_cancel(struct log_device *d)
{
    atomic_store(&d->cancelled, true);
    for (unsigned i = 0; i < LOG_LANES; i++) {
        notify(files_of(d)->lanes[i].wake_fd);
    }
}

/* Nothing of it, or a part, was written. After any other error nobody knows, and the log ends or
 * waits by it: a flush that says yes the second time means nothing (docs/adr/0024). */
static bool is_undone(int result, size_t len)
{
    return result >= 0 ? (size_t)result < len
                       : result == -EINTR || result == -EAGAIN || result == -ENOMEM ||
                             result == -EINVAL || result == -EOPNOTSUPP;
}

static void finish(struct lane *lane, int result, uint64_t took_ns)
{
    struct log_io *io = lane->io;
    lane->io = NULL;
    io->done(io, result, took_ns);
}

/* Whether a write of the ring was done. */
static bool poll_uring(struct files *f)
{
    struct lane *lane = &f->lanes[LOG_LANE_WRITE];
    int result = 0;
    if (!f->has_uring || !log_uring_reap(&f->uring, &result)) {
        return false;
    }
    if (is_undone(result, lane->io->len)) {
        set_state(lane, BEGUN);
    } else {
        finish(lane, result < 0 ? result : 0, fli_clock_ns() - lane->since_ns);
    }
    return true;
}

static void poll_lanes(struct files *f)
{
    clear(f->base.fds[EVENT]);
    for (unsigned i = 0; i < LOG_LANES; i++) {
        struct lane *lane = &f->lanes[i];
        if (atomic_load(&lane->state) == DONE) {
            atomic_store(&lane->state, IDLE);
            finish(lane, lane->result, lane->took_ns);
        }
    }
}

/* While the eventfd is readable, the loop calls again: a ring's write costs no look at it. */
static void files_poll(struct log_device *d)
{
    struct files *f = files_of(d);
    if (!poll_uring(f)) {
        poll_lanes(f);
    }
}

/* --- creating and destroying --- */

static const struct log_device_ops files_ops = {
    .list = files_list,
    .open = files_open,
    .close = files_close,
    .lock = files_lock,
    .size = files_size,
    .allocate = files_allocate,
    .read = files_read,
    .write = files_write,
    .sync = files_sync,
    .rename = files_rename,
    .remove = files_remove,
    .sync_dir = files_sync_dir,
    .start = files_start,
    .perform = files_perform,
    .cancel = files_cancel,
    .poll = files_poll,
    .now_ns = files_now_ns,
};

/* The alignment that direct writes need, if the kernel tells it; else 0. */
static size_t alignment_of(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 &&
        (sx.stx_mask & STATX_DIOALIGN) != 0) {
        return sx.stx_dio_offset_align > sx.stx_dio_mem_align ? sx.stx_dio_offset_align
                                                              : sx.stx_dio_mem_align;
    }
#endif
    return 0;
}

/* Whether O_DIRECT is possible here, and with which block size: a file tells it. */
static int probe_direct(struct files *f)
{
    static const char name[] = ".probe";
    int fd = openat(f->dir_fd, name, O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_DIRECT, 0600);
    int error = errno;
    (void)unlinkat(f->dir_fd, name, 0);
    if (fd < 0) {
        return error == EINVAL || error == EOPNOTSUPP ? 0 : -error;
    }
    size_t align = alignment_of(fd);
    f->direct = align <= LOG_BLOCK_MAX;
    if (f->direct && align > LOG_BLOCK) {
        f->base.block = align;
    }
    close(fd);
    return 0;
}

static void choose_engine(struct files *f, bool wanted)
{
    const char *way = f->direct ? "" : "; the file system has no direct writes";
    int rv = wanted ? log_uring_init(&f->uring) : 0;
    f->has_uring = wanted && rv == 0;
    if (f->has_uring) {
        f->base.fds[RING] = f->uring.ring.ring_fd;
        snprintf(f->engine, sizeof f->engine, "io_uring%s", way);
    } else {
        snprintf(f->engine, sizeof f->engine, "thread: %s%s%s", wanted ? "io_uring: " : "asked for",
                 wanted ? strerror(-rv) : "", way);
    }
}

static int open_all(struct files *f, const char *dir, bool direct)
{
    f->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir_fd < 0) {
        return -errno;
    }
    f->base.keep_fd = f->dir_fd;
    f->base.fds[EVENT] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (f->base.fds[EVENT] < 0) {
        return -errno;
    }
    return direct ? probe_direct(f) : 0;
}

static int prepare(struct files *f, const char *dir, unsigned engine, char *errmsg,
                   size_t errmsg_size)
{
    int rv = open_all(f, dir, (engine & LOG_ENGINE_NO_DIRECT) == 0);
    if (rv != 0) {
        return fli_refuse(errmsg, errmsg_size, FL_EIO, "cannot use %s for the log: %s", dir,
                          strerror(-rv));
    }
    choose_engine(f, (engine & LOG_ENGINE_THREAD) == 0);
    for (unsigned i = 0; rv == 0 && i < LOG_LANES; i++) {
        rv = start_thread(f, &f->lanes[i]);
    }
    return rv == 0 ? 0
                   : fli_refuse(errmsg, errmsg_size, FL_ESYSTEM, "no thread for the log in %s: %s",
                                dir, strerror(-rv));
}

int log_files_create(const char *dir, unsigned engine, struct log_device **ret, char *errmsg,
                     size_t errmsg_size)
{
    struct files *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return fli_refuse(errmsg, errmsg_size, FL_ENOMEM, "%s: no memory for the log", dir);
    }
    f->base = (struct log_device){.ops = &files_ops,
                                  .where = f->where,
                                  .engine = f->engine,
                                  .block = LOG_BLOCK,
                                  .fds = {-1, -1}};
    f->dir_fd = -1;
    for (unsigned i = 0; i < LOG_LANES; i++) {
        f->lanes[i].wake_fd = -1;
    }
    snprintf(f->where, sizeof f->where, "%s", dir);
    int rv = prepare(f, dir, engine, errmsg, errmsg_size);
    if (rv != 0) {
        log_files_destroy(&f->base);
        return rv;
    }
    *ret = &f->base;
    return 0;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void log_files_destroy(struct log_device *d)
{
    struct files *f = files_of(d);
    for (unsigned i = 0; i < LOG_LANES; i++) {
        struct lane *lane = &f->lanes[i];
        FLI_ASSERT(lane->io == NULL);
        if (lane->running) {
            set_state(lane, END);
            pthread_join(lane->thread, NULL);
        }
        close_fd(lane->wake_fd);
    }
    if (f->has_uring) {
        FLI_ASSERT(!f->uring.busy);
        io_uring_queue_exit(&f->uring.ring);
    }
    close_fd(d->fds[EVENT]);
    close_fd(f->dir_fd);
    free(f);
}
