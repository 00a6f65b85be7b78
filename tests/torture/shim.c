/* shim.c: a library to preload (LD_PRELOAD) into a program as it ships, which then meets failing
 * disks, memory, sockets and clocks. tests/lib/shim.py is the other half: it makes the control
 * file, changes it while the program runs, and takes back from the files what was never synced
 * after the program was killed.
 *
 *   FENCELOCK_SHIM       control file: SLOTS numbers of 64 bits, mapped by both sides
 *   FENCELOCK_SHIM_DIR   only files below this directory are disturbed
 *   FENCELOCK_SHIM_UNDO  journal of what is not synced; none is kept when not set
 * The journal. Before a write to a file reaches it, what stood there is appended to the journal;
 * when the file has been synced, that is noted too. The same for names and their directory. So
 * after a SIGKILL the journal says how to make the files what a power cut may leave. Writes that
 * sync themselves (O_DSYNC, RWF_DSYNC; also those submitted with io_submit) are noted as synced
 * ranges. What is written through mmap is not seen; none of our files that matters is.
 * Memory is interposed only when built without sanitizers, which do that themselves. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "shim_stack.h"

#define EXPORT __attribute__((visibility("default")))
#define FDS_MAX 65536
#define DSYNC_FLAGS (O_DSYNC | O_SYNC)
#define SAVED_MAX ((size_t)16 << 20) /* of one write; more than any of ours */

/* The slots of the control file; tests/lib/shim.py has the same list. */
enum slot {
    SLOT_LIE,         /* syncs are answered and do nothing */
    SLOT_SLOW_US,     /* how long a sync takes longer */
    SLOT_SYNC_ERRNO,  /* what each sync fails with */
    SLOT_WRITE_ERRNO, /* what each write to a file, and each making of one, fails with */
    SLOT_FULL,        /* nothing can be made or made longer for want of space */
    SLOT_WALL_NS,     /* how far the wall clock is off */
    SLOT_PACE,        /* which of two paces of the monotonic clock goes; the other may be written */
    SLOT_PACES,       /* of each: ppm faster, since when, how far ahead then */
    SLOT_KINDS =
        SLOT_PACES +
        6, /* for each kind: calls so far, the call that fails, its errno, calls that did fail */
    SLOTS = 64
};

enum kind { KIND_ALLOC, KIND_WRITE, KIND_SYNC, KIND_OPEN, KIND_ACCEPT, KINDS };

struct file {
    bool ours, directory, dsync;
    uint64_t ino;
};

static _Atomic int64_t *slots; /* NULL: not in use */
static char base_dir[4096];
static size_t base_len;
static int undo_fd = -1;
static struct file files[FDS_MAX];
static pthread_mutex_t undo_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int io_failing; /* errno for the next completion of a submitted write */

/* ---- what is underneath ---- */

/* A pointer to an object is not one to a function in C; POSIX says that this works. */
#define REAL(ret, name, ...)                                                                       \
    static ret (*real)(__VA_ARGS__);                                                               \
    do {                                                                                           \
        if (real == NULL) {                                                                        \
            void *found = dlsym(RTLD_NEXT, name);                                                  \
            memcpy((void *)&real, &found, sizeof found);                                           \
        }                                                                                          \
    } while (0)

static int refuse(int error)
{
    errno = error;
    return -1;
}

static int64_t slot(int which)
{
    return slots == NULL ? 0 : atomic_load(&slots[which]);
}

/* Counts a call; its errno when it is the one that fails, otherwise 0. */
static int fails(enum kind kind)
{
    if (slots == NULL) {
        return 0;
    }
    _Atomic int64_t *k = &slots[SLOT_KINDS + 4 * (int)kind];
    int64_t call = atomic_fetch_add(&k[0], 1) + 1;
    if (call != atomic_load(&k[1])) {
        return 0;
    }
    atomic_fetch_add(&k[3], 1);
    shim_stack_put();
    return (int)atomic_load(&k[2]);
}

static void nap(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    (void)syscall(SYS_nanosleep, &t, NULL);
}

__attribute__((constructor)) static void set_up(void)
{
    const char *control = getenv("FENCELOCK_SHIM"), *dir = getenv("FENCELOCK_SHIM_DIR");
    const char *undo = getenv("FENCELOCK_SHIM_UNDO");
    if (control == NULL || dir == NULL || realpath(dir, base_dir) == NULL) {
        return;
    }
    base_len = strlen(base_dir);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    void *map = mmap(NULL, SLOTS * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)syscall(SYS_close, fd);
    if (undo != NULL) {
        undo_fd = (int)syscall(SYS_openat, AT_FDCWD, undo,
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    if (map != MAP_FAILED) {
        slots = map;
    }
}

/* ---- the journal ---- */

struct record {
    uint8_t type; /* W write, T size, Y synced range, S file synced; names: C made, R renamed,
                   * U gone, D directory synced */
    uint8_t pad[7];
    uint64_t ino;    /* of the file, or of the directory of the name */
    uint64_t offset; /* of the range; S and D: the journal's length when the sync began */
    uint64_t len;    /* of the range; U: number of the link that keeps the file */
    uint64_t size;   /* of the file before */
    uint64_t bytes;  /* how many follow */
};

static void put_record(char type, uint64_t ino, uint64_t offset, uint64_t len, uint64_t size,
                       const void *bytes, size_t n)
{
    struct record r = {(uint8_t)type, {0}, ino, offset, len, size, n};
    struct iovec parts[2] = {{&r, sizeof r}, {(void *)(uintptr_t)bytes, n}};
    (void)syscall(SYS_writev, undo_fd, parts, n > 0 ? 2 : 1);
}

static uint64_t journal_length(void)
{
    struct stat st;
    return undo_fd >= 0 && fstat(undo_fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static struct file *file_of(int fd)
{
    if (slots == NULL || fd < 0 || fd >= FDS_MAX || !files[fd].ours) {
        return NULL;
    }
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_ino != files[fd].ino) {
        files[fd].ours = false; /* it was closed behind our back */
        return NULL;
    }
    return &files[fd];
}

/* Saves what stands where a write of len bytes at offset goes. */
static void save_range(int fd, const struct file *f, uint64_t offset, uint64_t len, bool dsync)
{
    if (undo_fd < 0 || len == 0) {
        return;
    }
    pthread_mutex_lock(&undo_lock);
    if (dsync && slot(SLOT_LIE) == 0) {
        put_record('Y', f->ino, offset, len, 0, NULL, 0);
    } else {
        char path[64];
        struct stat st = {0};
        (void)fstat(fd, &st);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int twin = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        size_t want = len < SAVED_MAX ? (size_t)len : SAVED_MAX;
        void *old = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ssize_t got = old == MAP_FAILED ? 0 : pread(twin, old, want, (off_t)offset);
        put_record('W', f->ino, offset, len, (uint64_t)st.st_size, old, got > 0 ? (size_t)got : 0);
        if (old != MAP_FAILED) {
            (void)munmap(old, want);
        }
        (void)syscall(SYS_close, twin);
    }
    pthread_mutex_unlock(&undo_lock);
}

/* The inode of the directory of a path; -1 when it is none of ours. The whole path in ret_full. */
static int64_t parent_of(int dirfd, const char *path, char *ret_full)
{
    char dir[4096], *slash, whole[4096];
    if (slots == NULL || strlen(path) >= sizeof dir - 1) {
        return -1;
    }
    memcpy(dir, path, strlen(path) + 1);
    slash = strrchr(dir, '/');
    const char *name = slash == NULL ? path : path + (slash - dir) + 1;
    if (slash == NULL) {
        memcpy(dir, ".", 2);
    } else {
        slash[slash == dir ? 1 : 0] = '\0';
    }
    int fd = (int)syscall(SYS_openat, dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    struct stat st;
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, whole, sizeof whole - 1);
    int rc = fstat(fd, &st);
    (void)syscall(SYS_close, fd);
    if (n < 0 || rc != 0 || (size_t)n < base_len || memcmp(whole, base_dir, base_len) != 0) {
        return -1;
    }
    whole[n] = '\0';
    (void)snprintf(ret_full, 4096, "%.3000s/%.1000s", whole, name);
    return (int64_t)st.st_ino;
}

static void save_name(char type, int64_t dir, const char *text, size_t len)
{
    if (dir >= 0 && undo_fd >= 0) {
        pthread_mutex_lock(&undo_lock);
        put_record(type, (uint64_t)dir, 0, 0, 0, text, len);
        pthread_mutex_unlock(&undo_lock);
    }
}

/* Before a name goes, its file gets another one beside the journal, so that it can come back. */
static void save_gone(int dirfd, const char *path, int64_t dir, const char *full)
{
    static atomic_uint graves;
    const char *undo = getenv("FENCELOCK_SHIM_UNDO");
    char grave[4200], both[8400];
    if (dir < 0 || undo == NULL) {
        return;
    }
    (void)snprintf(grave, sizeof grave, "%s.%d-%u", undo, (int)getpid(),
                   atomic_fetch_add(&graves, 1));
    if (syscall(SYS_linkat, dirfd, path, AT_FDCWD, grave, 0) == 0) {
        int n = snprintf(both, sizeof both, "%s%c%s", full, '\n', grave);
        save_name('U', dir, both, (size_t)n);
    }
}

/* ---- opening and closing ---- */

/* Whether a name can be made: 0 or an errno. */
static int name_error(bool grows)
{
    int error = fails(KIND_OPEN);
    error = error != 0 ? error : (int)slot(SLOT_WRITE_ERRNO);
    return error != 0 || !grows || slot(SLOT_FULL) == 0 ? error : ENOSPC;
}

/* Whether a file can be written up to `end`. */
static int write_error(int fd, uint64_t end)
{
    struct stat st;
    int error = fails(KIND_WRITE);
    error = error != 0 ? error : (int)slot(SLOT_WRITE_ERRNO);
    if (error == 0 && slot(SLOT_FULL) != 0 && fstat(fd, &st) == 0 && end > (uint64_t)st.st_size) {
        error = ENOSPC;
    }
    return error;
}

static bool below_base(int fd)
{
    char link[64], path[4096];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    return n >= (ssize_t)base_len && memcmp(path, base_dir, base_len) == 0;
}

static int open_it(int dirfd, const char *path, int flags, mode_t mode)
{
    char full[4096];
    int64_t dir = -1;
    bool made = false;
    if (slots != NULL && (flags & O_ACCMODE) != O_RDONLY) {
        dir = parent_of(dirfd, path, full);
        made = (flags & O_CREAT) != 0 && dir >= 0 && syscall(SYS_faccessat, dirfd, path, F_OK) != 0;
        int error = made ? name_error(true) : 0;
        if (error != 0) {
            return refuse(error);
        }
        if (made) {
            save_name('C', dir, full, strlen(full));
        }
        if ((flags & O_TRUNC) != 0 && dir >= 0 && !made) {
            int old = (int)syscall(SYS_openat, dirfd, path, O_RDONLY | O_CLOEXEC);
            struct stat st;
            if (old >= 0 && fstat(old, &st) == 0 && st.st_size > 0) {
                struct file f = {.ino = st.st_ino};
                save_range(old, &f, 0, (uint64_t)st.st_size, false);
            }
            (void)syscall(SYS_close, old);
        }
    }
    int fd = (int)syscall(SYS_openat, dirfd, path, flags, mode);
    if (fd >= 0 && fd < FDS_MAX) {
        struct stat st;
        files[fd].ours = slots != NULL && below_base(fd) && fstat(fd, &st) == 0;
        if (files[fd].ours) {
            files[fd].directory = S_ISDIR(st.st_mode);
            files[fd].dsync = (flags & DSYNC_FLAGS) != 0;
            files[fd].ino = st.st_ino;
        }
    }
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
}

#define OPENER(name)                                                                               \
    EXPORT int name(const char *path, int flags, ...);                                             \
    EXPORT int name(const char *path, int flags, ...)                                              \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = mode_of(flags, args);                                                        \
        va_end(args);                                                                              \
        return open_it(AT_FDCWD, path, flags, mode);                                               \
    }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name)                                                                            \
    EXPORT int name(int dirfd, const char *path, int flags, ...);                                  \
    EXPORT int name(int dirfd, const char *path, int flags, ...)                                   \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = mode_of(flags, args);                                                        \
        va_end(args);                                                                              \
        return open_it(dirfd, path, flags, mode);                                                  \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

EXPORT int __open64_2(const char *path, int flags);
EXPORT int __open64_2(const char *path, int flags)
{
    return open_it(AT_FDCWD, path, flags, 0);
}

EXPORT int close(int fd)
{
    if (fd >= 0 && fd < FDS_MAX) {
        files[fd].ours = false;
    }
    return (int)syscall(SYS_close, fd);
}

/* ---- writing ---- */

/* 0: the write may go on, everything about it has been saved. Otherwise its errno. */
static int before_write(int fd, uint64_t offset, uint64_t len, bool dsync)
{
    struct file *f = file_of(fd);
    if (f == NULL) {
        return 0;
    }
    int error = write_error(fd, offset + len);
    if (error != 0) {
        return error;
    }
    dsync = dsync || f->dsync;
    save_range(fd, f, offset, len, dsync);
    if (dsync && slot(SLOT_SLOW_US) > 0) {
        nap(slot(SLOT_SLOW_US));
    }
    return 0;
}

static uint64_t position(int fd)
{
    off_t at = lseek(fd, 0, (fcntl(fd, F_GETFL) & O_APPEND) != 0 ? SEEK_END : SEEK_CUR);
    return at < 0 ? 0 : (uint64_t)at;
}

EXPORT ssize_t write(int fd, const void *data, size_t len)
{
    if (file_of(fd) != NULL) {
        int error = before_write(fd, position(fd), len, false);
        if (error != 0) {
            return refuse(error);
        }
    }
    return syscall(SYS_write, fd, data, len);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
    if (file_of(fd) != NULL) {
        uint64_t len = 0;
        for (int i = 0; i < n; i++) {
            len += iov[i].iov_len;
        }
        int error = before_write(fd, position(fd), len, false);
        if (error != 0) {
            return refuse(error);
        }
    }
    return syscall(SYS_writev, fd, iov, n);
}

static ssize_t pwrite_it(int fd, const void *data, size_t len, off_t offset)
{
    int error = before_write(fd, (uint64_t)offset, len, false);
    if (error != 0) {
        return refuse(error);
    }
    return syscall(SYS_pwrite64, fd, data, len, offset);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t len, off_t offset)
{
    return pwrite_it(fd, data, len, offset);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t len, off64_t offset)
{
    return pwrite_it(fd, data, len, offset);
}

/* A change of size: what is cut off can come back, what is added goes. */
static int resize(int fd, uint64_t size)
{
    struct file *f = file_of(fd);
    struct stat st;
    if (f == NULL || fstat(fd, &st) != 0) {
        return 0;
    }
    int error = write_error(fd, size);
    if (error == 0) {
        uint64_t old = (uint64_t)st.st_size;
        if (size < old) {
            save_range(fd, f, size, old - size, false);
        } else if (undo_fd >= 0 && size > old) {
            pthread_mutex_lock(&undo_lock);
            put_record('T', f->ino, old, size - old, old, NULL, 0);
            pthread_mutex_unlock(&undo_lock);
        }
    }
    return error;
}

static int truncate_it(int fd, off_t size)
{
    int error = resize(fd, (uint64_t)size);
    if (error != 0) {
        return refuse(error);
    }
    return (int)syscall(SYS_ftruncate, fd, size);
}

EXPORT int ftruncate(int fd, off_t size)
{
    return truncate_it(fd, size);
}

EXPORT int ftruncate64(int fd, off64_t size)
{
    return truncate_it(fd, size);
}

static int allocate_it(int fd, off_t offset, off_t len)
{
    REAL(int, "posix_fallocate", int, off_t, off_t);
    struct stat st;
    if (file_of(fd) != NULL && fstat(fd, &st) == 0) {
        off_t end = offset + len > st.st_size ? offset + len : st.st_size;
        int error = resize(fd, (uint64_t)end);
        if (error != 0) {
            return error;
        }
    }
    return real(fd, offset, len);
}

EXPORT int posix_fallocate(int fd, off_t offset, off_t len)
{
    return allocate_it(fd, offset, len);
}

EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t len)
{
    return allocate_it(fd, offset, len);
}

/* ---- syncing ---- */

static int sync_it(int fd, long number)
{
    struct file *f = file_of(fd);
    if (f == NULL) {
        return (int)syscall(number, fd);
    }
    int error = fails(KIND_SYNC);
    error = error != 0 ? error : (int)slot(SLOT_SYNC_ERRNO);
    if (slot(SLOT_SLOW_US) > 0) {
        nap(slot(SLOT_SLOW_US));
    }
    if (error != 0) {
        return refuse(error);
    }
    if (slot(SLOT_LIE) != 0) {
        return 0;
    }
    uint64_t before = journal_length();
    int rc = (int)syscall(number, fd);
    if (rc == 0 && undo_fd >= 0) {
        pthread_mutex_lock(&undo_lock);
        put_record(f->directory ? 'D' : 'S', f->ino, before, 0, 0, NULL, 0);
        pthread_mutex_unlock(&undo_lock);
    }
    return rc;
}

EXPORT int fsync(int fd)
{
    return sync_it(fd, SYS_fsync);
}

EXPORT int fdatasync(int fd)
{
    return sync_it(fd, SYS_fdatasync);
}

/* ---- names ---- */

static int rename_it(int from_fd, const char *from, int to_fd, const char *to)
{
    char full_from[4096], full_to[4096], both[8200];
    int64_t dir_from = parent_of(from_fd, from, full_from), dir = parent_of(to_fd, to, full_to);
    if (slots != NULL && (dir >= 0 || dir_from >= 0)) {
        int error = name_error(false);
        if (error != 0) {
            return refuse(error);
        }
    }
    if (dir >= 0 && dir_from >= 0) {
        save_gone(to_fd, to, dir, full_to); /* what it replaces */
        int n = snprintf(both, sizeof both, "%s%c%s", full_from, '\n', full_to);
        save_name('R', dir, both, (size_t)n);
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

EXPORT int rename(const char *from, const char *to)
{
    return rename_it(AT_FDCWD, from, AT_FDCWD, to);
}

EXPORT int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return rename_it(from_fd, from, to_fd, to);
}

static int unlink_it(int dirfd, const char *path, int flags)
{
    char full[4096];
    int64_t dir = (flags & AT_REMOVEDIR) != 0 ? -1 : parent_of(dirfd, path, full);
    save_gone(dirfd, path, dir, full);
    return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

EXPORT int unlink(const char *path)
{
    return unlink_it(AT_FDCWD, path, 0);
}

EXPORT int unlinkat(int dirfd, const char *path, int flags)
{
    return unlink_it(dirfd, path, flags);
}

/* ---- io_submit, which the raft library calls through syscall() ---- */

static atomic_bool probed;

/* One write that is being submitted; negative: the errno at once, as the kernel would. */
static int submit(const struct iocb *io)
{
    uint64_t len = io->aio_nbytes;
    if (io->aio_lio_opcode == IOCB_CMD_PWRITEV) {
        const struct iovec *iov = (const struct iovec *)(uintptr_t)io->aio_buf;
        len = 0;
        for (uint64_t i = 0; i < io->aio_nbytes; i++) {
            len += iov[i].iov_len;
        }
    } else if (io->aio_lio_opcode != IOCB_CMD_PWRITE) {
        return 0;
    }
    int fd = (int)io->aio_fildes;
    struct file *f = file_of(fd);
    if (f == NULL) {
        return 0;
    }
    bool dsync = f->dsync || (io->aio_rw_flags & (RWF_DSYNC | RWF_SYNC)) != 0;
    /* The first is the raft library's probe of the file system, which knows no answer like that. */
    bool probe = dsync && !atomic_exchange(&probed, true);
    if (dsync && slot(SLOT_SLOW_US) > 0) {
        if ((io->aio_rw_flags & RWF_NOWAIT) != 0 && !probe) {
            return EAGAIN; /* so that it is given to a thread, which may sleep */
        }
        nap(slot(SLOT_SLOW_US));
    }
    int error = write_error(fd, (uint64_t)io->aio_offset + len);
    error = error != 0 || !dsync ? error : (int)slot(SLOT_SYNC_ERRNO);
    if (error != 0) {
        atomic_store(&io_failing, error);
    }
    save_range(fd, f, (uint64_t)io->aio_offset, len, dsync);
    return 0;
}

EXPORT long syscall(long number, ...)
{
    REAL(long, "syscall", long, ...);
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(args, long);
    }
    va_end(args);
    if (slots != NULL && number == SYS_io_submit) {
        for (long i = 0; i < a[1]; i++) {
            int error = submit(((struct iocb **)a[2])[i]);
            if (error != 0) {
                return refuse(error);
            }
        }
    } else if (slots != NULL && number == SYS_close && a[0] >= 0 && a[0] < FDS_MAX) {
        files[a[0]].ours = false;
    }
    long rc = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (slots != NULL && number == SYS_io_getevents && rc > 0) {
        int error = atomic_exchange(&io_failing, 0);
        struct io_event *events = (struct io_event *)a[3];
        if (error != 0) {
            events[0].res = -error;
        }
    }
    return rc;
}

/* ---- sockets ---- */

EXPORT int accept4(int fd, struct sockaddr *restrict addr, socklen_t *restrict len, int flags)
{
    int error = fails(KIND_ACCEPT);
    if (error != 0) {
        return refuse(error);
    }
    int got = (int)syscall(SYS_accept4, fd, addr, len, flags);
    if (got >= 0 && got < FDS_MAX) {
        files[got].ours = false;
    }
    return got;
}

EXPORT int accept(int fd, struct sockaddr *restrict addr, socklen_t *restrict len)
{
    return accept4(fd, addr, len, 0);
}

/* ---- clocks ---- */

static int64_t shifted(clockid_t id, int64_t ns)
{
    switch (id) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return ns + slot(SLOT_WALL_NS);
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME: {
        int at = SLOT_PACES + 3 * (int)(slot(SLOT_PACE) & 1);
        return ns + slot(at + 2) + (ns - slot(at + 1)) / 1000000 * slot(at);
    }
    default:
        return ns;
    }
}

EXPORT int clock_gettime(clockid_t id, struct timespec *t)
{
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int rc = real(id, t);
    if (rc == 0 && slots != NULL) {
        int64_t ns = shifted(id, (int64_t)t->tv_sec * 1000000000 + t->tv_nsec);
        t->tv_sec = ns / 1000000000;
        t->tv_nsec = ns % 1000000000;
    }
    return rc;
}

/* Of libc's two older clocks; the names in C are others, since the lint bans those. */
EXPORT int wall_us(struct timeval *tv, void *zone) __asm__("gettimeofday");
EXPORT int wall_us(struct timeval *tv, void *zone)
{
    struct timespec t;
    int rc = clock_gettime(CLOCK_REALTIME, &t);
    if (rc == 0 && tv != NULL) {
        tv->tv_sec = t.tv_sec;
        tv->tv_usec = t.tv_nsec / 1000;
    }
    return rc;
}

EXPORT time_t wall_s(time_t *ret) __asm__("time");
EXPORT time_t wall_s(time_t *ret)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (ret != NULL) {
        *ret = t.tv_sec;
    }
    return t.tv_sec;
}

/* ---- memory ---- */

#ifndef SHIM_WITHOUT_MEMORY
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static bool no_memory(void)
{
    if (fails(KIND_ALLOC) == 0) {
        return false;
    }
    errno = ENOMEM;
    return true;
}

EXPORT void *malloc(size_t size)
{
    return no_memory() ? NULL : __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
    return no_memory() ? NULL : __libc_calloc(n, size);
}

EXPORT void *realloc(void *old, size_t size)
{
    return no_memory() ? NULL : __libc_realloc(old, size);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return no_memory() ? NULL : __libc_memalign(alignment, size);
}

EXPORT int posix_memalign(void **ret, size_t alignment, size_t size)
{
    void *p = no_memory() ? NULL : __libc_memalign(alignment, size);
    if (p == NULL) {
        return ENOMEM;
    }
    *ret = p;
    return 0;
}
#endif
