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
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
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
#include "log/device_uring.h"

#define STACK_BYTES ((size_t)256 << 10)
#define FILL_BYTES ((size_t)128 << 10) /* of zeros in one write of lane BACKGROUND */
#define LOCK_AGAIN_NS 10000000
#define LOCK_NEW_MS 1000u /* a child after fork() has the file open, too, until it closes all */

enum { EVENT, RING }; /* of struct log_device's descriptors: a lane is done, or the ring's write */

struct log_file {
    int fd;
};

struct files;

/* A thread's lane. From the start of an operation until it is done, `io` is the thread's. */
struct lane {
    struct files *device;
    pthread_t thread;
    bool running;
    sem_t wake;
    struct log_io *io; /* NULL when the thread is woken: it ends */
    int result;
    uint64_t took_ns;
    atomic_bool done;
};

struct files {
    struct log_device base;
    int dir_fd;
    int cancel_fd; /* readable: the operation of lane BACKGROUND must end */
    bool cancelled;
    bool direct; /* O_DIRECT is possible */
    uint8_t *zeros;
    struct log_uring *uring;
    bool uring_broken; /* it has refused a write, and would begin that together with the next */
    struct log_io *uring_io;
    uint64_t uring_since_ns;
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
 * after the process has ended. Reading asks for no more than a shared lock, since NFS grants no
 * other to a file that is open for reading. */
static int lock_fd(int fd, uint32_t wait_ms)
{
    const struct timespec pause = {.tv_nsec = LOCK_AGAIN_NS};
    uint64_t until_ms = fli_clock_ms() + wait_ms;
    int flags = fcntl(fd, F_GETFL);
    int how = flags >= 0 && (flags & O_ACCMODE) == O_RDONLY ? LOCK_SH : LOCK_EX;
    while (flock(fd, how | LOCK_NB) != 0) {
        int error = errno;
        if (error != EWOULDBLOCK || fli_clock_ms() >= until_ms) {
            return -error;
        }
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static int files_lock(struct log_device *d, struct log_file *file, uint32_t wait_ms)
{
    return lock_fd(file->fd, wait_ms);
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

static void files_random(struct log_device *d, void *data, size_t len)
{
    fli_random(data, len);
}

/* --- lane BACKGROUND --- */

static bool is_cancelled(const struct files *f)
{
    struct pollfd p = {.fd = f->cancel_fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

static int fill(struct files *f, int fd, uint64_t size)
{
    if (ftruncate(fd, (off_t)size) != 0) {
        return -errno;
    }
    /* Fails at once when the disk is full. A file system without fallocate() fails at a write. */
    int rv = fallocate(fd, 0, 0, (off_t)size) == 0 || errno == EOPNOTSUPP ? 0 : errno;
    for (uint64_t at = 0; rv == 0 && at < size; at += FILL_BYTES) {
        size_t n = size - at < FILL_BYTES ? (size_t)(size - at) : FILL_BYTES;
        rv = is_cancelled(f) ? ECANCELED : -write_all(fd, f->zeros, n, at, 0);
    }
    if (rv == 0 && fsync(fd) != 0) {
        rv = errno;
    }
    return -rv;
}

static int prepare(struct files *f, struct log_io *io)
{
    struct log_device *d = &f->base;
    char part[LOG_NAME_MAX + 8];
    snprintf(part, sizeof part, "%s.part", io->name);
    int rv = io->from[0] == '\0' ? -ENOENT : files_rename(d, io->from, part, true);
    if (rv == 0) {
        /* The old name must be gone before the content is overwritten. */
        rv = files_sync_dir(d);
    } else if (rv == -ENOENT) {
        rv = 0;
    }
    int fd = rv != 0 ? rv
                     : openat(f->dir_fd, part,
                              O_CREAT | O_RDWR | O_CLOEXEC | (f->direct ? O_DIRECT : 0), 0600);
    if (rv == 0 && fd < 0) {
        rv = -errno;
    }
    struct log_file *file = rv == 0 ? malloc(sizeof *file) : NULL;
    if (rv == 0) {
        rv = file == NULL ? -ENOMEM : lock_fd(fd, LOCK_NEW_MS);
    }
    if (rv == 0) {
        rv = fill(f, fd, io->size);
    }
    if (rv == 0) {
        rv = files_rename(d, part, io->name, false);
    }
    bool named = rv == 0;
    if (named) {
        rv = files_sync_dir(d);
    }
    if (rv == 0) {
        file->fd = fd;
        io->file = file;
        return 0;
    }
    free(file);
    if (fd >= 0) {
        close(fd);
    }
    /* Its space may be needed. A file that keeps its name is what the next attempt uses up. */
    if (files_remove(d, named ? io->name : part) != 0 && named) {
        memcpy(io->from, io->name, sizeof io->from);
    }
    return rv;
}

static int remove_durably(struct files *f, const char *name)
{
    int rv = files_remove(&f->base, name);
    return rv == 0 || rv == -ENOENT ? files_sync_dir(&f->base) : rv;
}

/* Whatever is done with the file meanwhile, it is closed by the thread: a file without a name frees
 * its blocks then. */
static int read_back(struct files *f, struct log_io *io)
{
    struct log_file file = {open_fd(f, io->name, LOG_OPEN_READ | LOG_OPEN_DIRECT)};
    if (file.fd < 0) {
        return file.fd;
    }
    int64_t n = files_read(&f->base, &file, io->into, io->len, io->offset);
    close(file.fd);
    io->len = n < 0 ? io->len : (size_t)n;
    return n < 0 ? (int)n : 0;
}

static int execute(struct files *f, struct log_io *io)
{
    switch (io->type) {
    case LOG_IO_WRITE:
        return write_all(io->file->fd, io->data, io->len, io->offset, RWF_DSYNC);
    case LOG_IO_PREPARE:
        return prepare(f, io);
    case LOG_IO_REMOVE:
        return remove_durably(f, io->name);
    case LOG_IO_READ:
        return read_back(f, io);
    }
    return -EINVAL;
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

/* Waits for the operation's delay. False: it was cancelled. */
static bool pause_first(struct files *f, uint32_t delay_ms)
{
    struct pollfd p = {.fd = f->cancel_fd, .events = POLLIN};
    int n;
    do { /* this thread gets no signals, so none prolongs the pause */
        n = poll(&p, 1, (int)delay_ms);
    } while (n < 0 && errno == EINTR);
    return n == 0;
}

static void *lane_main(void *arg)
{
    struct lane *lane = arg;
    struct files *f = lane->device;
    for (;;) {
        while (sem_wait(&lane->wake) != 0) { /* interrupted */
        }
        struct log_io *io = lane->io;
        if (io == NULL) {
            return NULL;
        }
        bool go = io->delay_ms == 0 || pause_first(f, io->delay_ms);
        uint64_t since = fli_clock_ns();
        lane->result = go ? execute(f, io) : -ECANCELED;
        lane->took_ns = fli_clock_ns() - since;
        atomic_store(&lane->done, true);
        notify(f->base.fds[EVENT]);
    }
}

/* Signals go to the main thread. */
static int start_thread(struct files *f, struct lane *lane)
{
    sigset_t all;
    sigset_t before;
    pthread_attr_t attr;
    int rv = pthread_attr_init(&attr);
    if (rv != 0) {
        return -rv;
    }
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* on failure the stack is only larger
                                                            than needed */
    lane->device = f;
    rv = sem_init(&lane->wake, 0, 0);
    FLI_ASSERT(rv == 0); /* it is of one process, and its value is small */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rv = pthread_create(&lane->thread, &attr, lane_main, lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    lane->running = rv == 0;
    return -rv;
}

static void start_in_thread(struct lane *lane, struct log_io *io)
{
    FLI_ASSERT(lane->running && lane->io == NULL);
    lane->io = io;
    sem_post(&lane->wake);
}

static bool start_in_ring(struct files *f, struct log_io *io)
{
    if (f->uring == NULL || f->uring_broken || io->delay_ms > 0) {
        return false;
    }
    FLI_ASSERT(f->uring_io == NULL && io->type == LOG_IO_WRITE);
    f->uring_since_ns = fli_clock_ns();
    f->uring_broken = log_uring_write(f->uring, io->file->fd, io->data, io->len, io->offset) != 0;
    f->uring_io = f->uring_broken ? NULL : io;
    return !f->uring_broken;
}

static void files_start(struct log_device *d, enum log_lane lane, struct log_io *io)
{
    struct files *f = files_of(d);
    if (f->cancelled) {
        f->cancelled = false;
        clear(f->cancel_fd);
    }
    if (lane != LOG_LANE_WRITE || !start_in_ring(f, io)) {
        start_in_thread(&f->lanes[lane], io);
    }
}

static void files_perform(struct log_device *d, struct log_io *io)
{
    uint64_t since_ns = fli_clock_ns();
    FLI_ASSERT(io->type == LOG_IO_WRITE);
    int result = execute(files_of(d), io);
    io->done(io, result, fli_clock_ns() - since_ns);
}

static void files_cancel(struct log_device *d)
{
    struct files *f = files_of(d);
    f->cancelled = true;
    notify(f->cancel_fd);
}

/* Nothing of it, or a part, was written. After any other error nobody knows, and the log ends or
 * waits by it: a flush that says yes the second time means nothing (docs/adr/0024). */
static bool is_undone(int result, size_t len)
{
    return result >= 0 ? (size_t)result < len
                       : result == -EINTR || result == -EAGAIN || result == -ENOMEM ||
                             result == -EINVAL || result == -EOPNOTSUPP;
}

/* Whether a write of the ring was done. */
static bool poll_uring(struct files *f)
{
    int result = 0;
    if (f->uring == NULL || !log_uring_reap(f->uring, &result)) {
        return false;
    }
    struct log_io *io = f->uring_io;
    f->uring_io = NULL;
    if (is_undone(result, io->len)) {
        start_in_thread(&f->lanes[LOG_LANE_WRITE], io);
    } else {
        io->done(io, result < 0 ? result : 0, fli_clock_ns() - f->uring_since_ns);
    }
    return true;
}

static void poll_lanes(struct files *f)
{
    clear(f->base.fds[EVENT]);
    for (unsigned i = 0; i < LOG_LANES; i++) {
        struct lane *lane = &f->lanes[i];
        if (atomic_exchange(&lane->done, false)) {
            struct log_io *io = lane->io;
            lane->io = NULL;
            io->done(io, lane->result, lane->took_ns);
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
    .random = files_random,
};

/* Opens a file without a name; or with one, removed at once, where the file system has no
 * others. */
static int open_probe(struct files *f, int flags)
{
    static const char name[] = ".probe";
    int fd = openat(f->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
        return fd < 0 ? -errno : fd;
    }
    fd = openat(f->dir_fd, name, O_CREAT | O_RDWR | O_CLOEXEC | flags, 0600);
    int error = -errno;
    (void)unlinkat(f->dir_fd, name, 0);
    return fd < 0 ? error : fd;
}

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

/* Whether O_DIRECT is possible here, and with which block size. */
static int probe_direct(struct files *f)
{
    int fd = open_probe(f, O_DIRECT);
    if (fd == -EINVAL || fd == -EOPNOTSUPP) {
        return 0;
    }
    if (fd < 0) {
        return fd;
    }
    size_t align = alignment_of(fd);
    f->direct = align <= LOG_BLOCK_MAX;
    if (f->direct && align > LOG_BLOCK) {
        f->base.block = align;
    }
    close(fd);
    return 0;
}

static void choose_engine(struct files *f, unsigned engine, int *ret_uring)
{
    const char *way = f->direct ? "" : "; the file system has no direct writes";
    *ret_uring = engine == LOG_ENGINE_THREAD ? 0 : log_uring_create(&f->uring);
    if (f->uring != NULL) {
        f->base.fds[RING] = log_uring_fd(f->uring);
        snprintf(f->engine, sizeof f->engine, "io_uring%s", way);
    } else {
        snprintf(f->engine, sizeof f->engine, "thread: %s%s%s",
                 *ret_uring == 0 ? "asked for" : "io_uring: ",
                 *ret_uring == 0 ? "" : strerror(-*ret_uring), way);
    }
    f->base.engine = f->engine;
}

static int open_all(struct files *f, const char *dir, bool direct)
{
    f->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir_fd < 0) {
        return -errno;
    }
    f->base.fds[EVENT] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    f->cancel_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (f->base.fds[EVENT] < 0 || f->cancel_fd < 0) {
        return -errno;
    }
    f->base.block = LOG_BLOCK;
    return direct ? probe_direct(f) : 0;
}

int log_files_create(const char *dir, unsigned engine, struct log_device **ret, char *errmsg,
                     size_t errmsg_size)
{
    struct files *f = calloc(1, sizeof *f);
    if (f == NULL || (f->zeros = aligned_alloc(LOG_BLOCK_MAX, FILL_BYTES)) == NULL) {
        free(f);
        snprintf(errmsg, errmsg_size, "%s: no memory for the log", dir);
        return FL_ENOMEM;
    }
    memset(f->zeros, 0, FILL_BYTES);
    f->dir_fd = f->cancel_fd = f->base.fds[EVENT] = f->base.fds[RING] = -1;
    f->base.ops = &files_ops;
    f->base.where = f->where;
    snprintf(f->where, sizeof f->where, "%s", dir);
    int rv = open_all(f, dir, (engine & LOG_ENGINE_NO_DIRECT) == 0);
    engine &= ~(unsigned)LOG_ENGINE_NO_DIRECT;
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot use %s for the log: %s", dir, strerror(-rv));
        log_files_destroy(&f->base);
        return FL_EIO;
    }
    int uring = 0;
    f->base.keep_fd = f->dir_fd;
    choose_engine(f, engine, &uring);
    if (engine == LOG_ENGINE_URING && uring != 0) {
        snprintf(errmsg, errmsg_size, "io_uring cannot be used: %s", strerror(-uring));
        log_files_destroy(&f->base);
        return FL_ESYSTEM;
    }
    for (unsigned i = 0; rv == 0 && i < LOG_LANES; i++) {
        rv = start_thread(f, &f->lanes[i]);
    }
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "no thread for the log in %s: %s", dir, strerror(-rv));
        log_files_destroy(&f->base);
        return FL_ESYSTEM;
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
    for (unsigned i = 0; i < LOG_LANES && f->lanes[i].running; i++) {
        FLI_ASSERT(f->lanes[i].io == NULL);
        sem_post(&f->lanes[i].wake);
        pthread_join(f->lanes[i].thread, NULL);
        sem_destroy(&f->lanes[i].wake);
    }
    if (f->uring != NULL) {
        log_uring_destroy(f->uring);
    }
    close_fd(d->fds[EVENT]);
    close_fd(f->cancel_fd);
    close_fd(f->dir_fd);
    free(f->zeros);
    free(f);
}
