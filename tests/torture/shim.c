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
 * sync themselves (O_DSYNC, RWF_DSYNC; also those submitted to an io_uring) are noted as synced
 * ranges. What is written through mmap is not seen; none of our files that matters is.
 * Writes through an io_uring pass no function that could be interposed while they are under way.
 * So a ring is refused (EPERM), and the log writes from a thread; unless SLOT_RING allows it, and
 * then a write is changed when it is submitted: what shall fail has no file any more.
 * Memory is interposed only when built without sanitizers, which do that themselves. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"
#include "shim_stack.h"

#define FDS_MAX 65536
#define DSYNC_FLAGS (O_DSYNC | O_SYNC)
#define BLOCK ((uint64_t)4096)
#define SAVED_MAX ((size_t)16 << 20) /* of one write; more than any of ours */

struct file {
    bool ours, directory, dsync;
    uint64_t ino;
};

_Atomic int64_t *shim_slots; /* NULL: not in use */
static char base_dir[4096];
static size_t base_len;
int shim_undo_fd = -1;
static struct file files[FDS_MAX];
pthread_mutex_t shim_undo_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- what is underneath ---- */

int shim_refuse(int error)
{
    errno = error;
    return -1;
}

int64_t shim_slot(int which)
{
    return shim_slots == NULL ? 0 : atomic_load(&shim_slots[which]);
}

/* fstat() itself is interposed below. */
static int raw_fstat(int fd, struct stat *ret)
{
    return (int)syscall(SYS_fstat, fd, ret);
}

void shim_nap(int64_t us)
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
        shim_undo_fd = (int)syscall(SYS_openat, AT_FDCWD, undo,
                                    O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        /* Unlocked when the last process is gone that could write to it. */
        (void)syscall(SYS_flock, shim_undo_fd, LOCK_SH);
    }
    if (map != MAP_FAILED) {
        shim_slots = map;
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
    (void)syscall(SYS_writev, shim_undo_fd, parts, n > 0 ? 2 : 1);
}

static uint64_t journal_length(void)
{
    struct stat st;
    return shim_undo_fd >= 0 && raw_fstat(shim_undo_fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static struct file *file_of(int fd)
{
    if (shim_slots == NULL || fd < 0 || fd >= FDS_MAX || !files[fd].ours) {
        return NULL;
    }
    struct stat st;
    if (raw_fstat(fd, &st) != 0 || st.st_ino != files[fd].ino) {
        files[fd].ours = false; /* it was closed behind our back */
        return NULL;
    }
    return &files[fd];
}

/* Saves what stands where a write of len bytes at offset goes. */
static void save_range(int fd, const struct file *f, uint64_t offset, uint64_t len, bool dsync)
{
    if (shim_undo_fd < 0 || len == 0) {
        return;
    }
    pthread_mutex_lock(&shim_undo_lock);
    if (dsync && shim_slot(SLOT_LIE) == 0) {
        put_record('Y', f->ino, offset, len, 0, NULL, 0);
    } else {
        char path[64];
        struct stat st = {0};
        (void)raw_fstat(fd, &st);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int reader = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        size_t want = len < SAVED_MAX ? (size_t)len : SAVED_MAX;
        void *old = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ssize_t got = old == MAP_FAILED ? 0 : pread(reader, old, want, (off_t)offset);
        put_record('W', f->ino, offset, len, (uint64_t)st.st_size, old, got > 0 ? (size_t)got : 0);
        if (old != MAP_FAILED) {
            (void)munmap(old, want);
        }
        (void)syscall(SYS_close, reader);
    }
    pthread_mutex_unlock(&shim_undo_lock);
}

/* The inode of the directory of a path; -1 when it is none of ours. The whole path in ret_full. */
static int64_t parent_of(int dirfd, const char *path, char *ret_full)
{
    char dir[4096], *slash, whole[4096];
    if (shim_slots == NULL || strlen(path) >= sizeof dir - 1) {
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
    int rc = raw_fstat(fd, &st);
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
    if (dir >= 0 && shim_undo_fd >= 0) {
        pthread_mutex_lock(&shim_undo_lock);
        put_record(type, (uint64_t)dir, 0, 0, 0, text, len);
        pthread_mutex_unlock(&shim_undo_lock);
    }
}

/* Before a name goes, its file gets another one beside the journal, so that it can come back. */
static void save_gone(int dirfd, const char *path, int64_t dir, const char *full)
{
    static atomic_uint links;
    const char *undo = getenv("FENCELOCK_SHIM_UNDO");
    char kept[4200], both[8400];
    if (dir < 0 || undo == NULL) {
        return;
    }
    (void)snprintf(kept, sizeof kept, "%s.%d-%u", undo, (int)getpid(), atomic_fetch_add(&links, 1));
    if (syscall(SYS_linkat, dirfd, path, AT_FDCWD, kept, 0) == 0) {
        int n = snprintf(both, sizeof both, "%s%c%s", full, '\n', kept);
        save_name('U', dir, both, (size_t)n);
    }
}

bool shim_is_ours(int fd)
{
    return file_of(fd) != NULL;
}

bool shim_names_ours(int dirfd, const char *path)
{
    char full[4096];
    return parent_of(dirfd, path, full) >= 0;
}

/* ---- opening and closing ---- */

/* Whether a name can be made: 0 or an errno. */
static int name_error(bool grows)
{
    int error = shim_fails(KIND_NAME);
    error = error != 0 ? error : (int)shim_slot(SLOT_WRITE_ERRNO);
    return error != 0 || !grows || shim_slot(SLOT_FULL) == 0 ? error : ENOSPC;
}

/* Whether a file can be written up to `end`. */
static int write_error(int fd, enum kind kind, uint64_t end)
{
    struct stat st;
    int error = shim_fails(kind);
    error = error != 0 ? error : (int)shim_slot(SLOT_WRITE_ERRNO);
    if (error == 0 && shim_slot(SLOT_FULL) != 0 && raw_fstat(fd, &st) == 0 &&
        end > (uint64_t)st.st_size) {
        error = ENOSPC;
    }
    return error;
}

bool shim_is_below(int fd)
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
    if (shim_slots != NULL) {
        dir = parent_of(dirfd, path, full);
        made = (flags & O_CREAT) != 0 && dir >= 0 && syscall(SYS_faccessat, dirfd, path, F_OK) != 0;
        int error = made ? name_error(true) : dir >= 0 ? shim_fails(KIND_OPEN) : 0;
        if (error != 0) {
            return shim_refuse(error);
        }
        if (made) {
            save_name('C', dir, full, strlen(full));
        }
        if ((flags & O_TRUNC) != 0 && dir >= 0 && !made) {
            int old = (int)syscall(SYS_openat, dirfd, path, O_RDONLY | O_CLOEXEC);
            struct stat st;
            if (old >= 0 && raw_fstat(old, &st) == 0 && st.st_size > 0) {
                struct file f = {.ino = st.st_ino};
                save_range(old, &f, 0, (uint64_t)st.st_size, false);
            }
            (void)syscall(SYS_close, old);
        }
    }
    int fd = (int)syscall(SYS_openat, dirfd, path, flags, mode);
    if (fd >= 0 && fd < FDS_MAX) {
        struct stat st;
        files[fd].ours = shim_slots != NULL && shim_is_below(fd) && raw_fstat(fd, &st) == 0;
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

void shim_forget(int fd)
{
    if (fd >= 0 && fd < FDS_MAX) {
        files[fd].ours = false;
    }
}

EXPORT int close(int fd)
{
    shim_forget(fd);
    return fd == shim_undo_fd && fd >= 0 ? 0 : (int)syscall(SYS_close, fd);
}

/* ---- writing ---- */

/* How much of a write is done, when not all of it: whole blocks, for the sake of O_DIRECT. */
static uint64_t part_of(uint64_t len)
{
    return len > BLOCK ? len / 2 / BLOCK * BLOCK : len;
}

static _Thread_local bool kill_after_write; /* of the write under way */

static ssize_t written(ssize_t done)
{
    if (kill_after_write) {
        shim_die();
    }
    return done;
}

/* What becomes of a write. */
struct outcome {
    int error;    /* not 0: nothing is written, or nobody knows how much */
    uint64_t len; /* what is written */
    bool dsync;   /* whether that is synced */
};

/* dsync: this write shall sync itself, wherever it goes. A sync that fails says nothing about the
 * data: it may be there or not. */
static struct outcome plan_write(int fd, uint64_t offset, uint64_t len, bool dsync)
{
    struct file *f = file_of(fd);
    struct outcome outcome = {0, len, dsync};
    if (f == NULL) {
        return outcome;
    }
    outcome.error = write_error(fd, KIND_WRITE, offset + len);
    kill_after_write = outcome.error == KILLED_AFTER;
    outcome.error = kill_after_write ? 0 : outcome.error;
    if (outcome.error == SHORT_WRITE || (outcome.error == 0 && shim_slot(SLOT_SHORT) != 0)) {
        outcome.error = 0;
        outcome.len = part_of(len) == 0 ? BLOCK : part_of(len);
    }
    if (outcome.error != 0) {
        outcome.len = 0;
        return outcome;
    }
    if (dsync) {
        outcome.error = shim_fails(KIND_SYNC);
        outcome.error = outcome.error != 0 ? outcome.error : (int)shim_slot(SLOT_SYNC_ERRNO);
        outcome.dsync = outcome.error == 0 && shim_slot(SLOT_LIE) == 0;
    }
    bool syncs = (dsync && outcome.error == 0) || f->dsync;
    save_range(fd, f, offset, outcome.len, syncs && !kill_after_write);
    return outcome;
}

/* 0: the write may go on, everything about it has been saved. Otherwise its errno. */
static int before_write(int fd, uint64_t offset, uint64_t *len)
{
    struct outcome outcome = plan_write(fd, offset, *len, false);
    struct file *f = file_of(fd);
    if (outcome.error == 0 && f != NULL && f->dsync && shim_slot(SLOT_SLOW_US) > 0) {
        shim_nap(shim_slot(SLOT_SLOW_US));
    }
    *len = outcome.len;
    return outcome.error;
}

static uint64_t position(int fd)
{
    off_t at = lseek(fd, 0, (fcntl(fd, F_GETFL) & O_APPEND) != 0 ? SEEK_END : SEEK_CUR);
    return at < 0 ? 0 : (uint64_t)at;
}

EXPORT ssize_t write(int fd, const void *data, size_t len)
{
    uint64_t n = len;
    if (file_of(fd) != NULL) {
        int error = before_write(fd, position(fd), &n);
        if (error != 0) {
            return shim_refuse(error);
        }
    }
    return written(syscall(SYS_write, fd, data, n));
}

static uint64_t length_of(const struct iovec *iov, int n)
{
    uint64_t len = 0;
    for (int i = 0; i < n; i++) {
        len += iov[i].iov_len;
    }
    return len;
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
    if (file_of(fd) != NULL) {
        uint64_t len = length_of(iov, n);
        int error = before_write(fd, position(fd), &len);
        if (error != 0) {
            return shim_refuse(error);
        }
    }
    return written(syscall(SYS_writev, fd, iov, n));
}

static ssize_t pwrite_it(int fd, const void *data, size_t len, off_t offset)
{
    uint64_t n = len;
    int error = before_write(fd, (uint64_t)offset, &n);
    if (error != 0) {
        return shim_refuse(error);
    }
    return written(syscall(SYS_pwrite64, fd, data, n, offset));
}

/* One buffer at most, as everybody calls it here. */
static ssize_t pwritev2_it(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
    if (file_of(fd) == NULL || n != 1) {
        return syscall(SYS_pwritev2, fd, iov, n, (long)offset, 0L, flags);
    }
    bool dsync = (flags & (RWF_DSYNC | RWF_SYNC)) != 0;
    struct outcome outcome = plan_write(fd, (uint64_t)offset, iov->iov_len, dsync);
    struct iovec part = {iov->iov_base, outcome.len};
    ssize_t done = 0;
    if (dsync && shim_slot(SLOT_SLOW_US) > 0) {
        shim_nap(shim_slot(SLOT_SLOW_US));
    }
    if (outcome.len > 0) {
        done = syscall(SYS_pwritev2, fd, &part, 1, (long)offset, 0L,
                       outcome.dsync ? flags : flags & ~(RWF_DSYNC | RWF_SYNC));
    }
    return outcome.error != 0 ? shim_refuse(outcome.error) : written(done);
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
    return pwritev2_it(fd, iov, n, offset, flags);
}

EXPORT ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t offset, int flags)
{
    return pwritev2_it(fd, iov, n, offset, flags);
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
    if (f == NULL || raw_fstat(fd, &st) != 0) {
        return 0;
    }
    int error = write_error(fd, KIND_SIZE, size);
    if (error == 0) {
        uint64_t old = (uint64_t)st.st_size;
        if (size < old) {
            save_range(fd, f, size, old - size, false);
        } else if (shim_undo_fd >= 0 && size > old) {
            pthread_mutex_lock(&shim_undo_lock);
            put_record('T', f->ino, old, size - old, old, NULL, 0);
            pthread_mutex_unlock(&shim_undo_lock);
        }
    }
    return error;
}

static int truncate_it(int fd, off_t size)
{
    int error = resize(fd, (uint64_t)size);
    if (error != 0) {
        return shim_refuse(error);
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
    if (file_of(fd) != NULL && raw_fstat(fd, &st) == 0) {
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

/* As the file system does it; what has a size and no blocks gets those. */
static int fallocate_it(int fd, int mode, off_t offset, off_t len)
{
    struct stat st;
    if (file_of(fd) != NULL && raw_fstat(fd, &st) == 0) {
        off_t end = offset + len > st.st_size ? offset + len : st.st_size;
        int error = resize(fd, (uint64_t)end);
        if (error == 0 && shim_slot(SLOT_FULL) != 0 && st.st_blocks * 512 < end) {
            error = ENOSPC;
        }
        if (error != 0) {
            return shim_refuse(error);
        }
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, len);
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t len)
{
    return fallocate_it(fd, mode, offset, len);
}

EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t len)
{
    return fallocate_it(fd, mode, offset, len);
}

/* ---- syncing ---- */

static int sync_it(int fd, long number)
{
    struct file *f = file_of(fd);
    if (f == NULL) {
        return (int)syscall(number, fd);
    }
    int error = shim_fails(KIND_SYNC);
    error = error != 0 ? error : (int)shim_slot(SLOT_SYNC_ERRNO);
    if (shim_slot(SLOT_SLOW_US) > 0) {
        shim_nap(shim_slot(SLOT_SLOW_US));
    }
    if (error != 0) {
        return shim_refuse(error);
    }
    if (shim_slot(SLOT_LIE) != 0) {
        return 0;
    }
    uint64_t before = journal_length();
    int rc = (int)syscall(number, fd);
    if (rc == 0 && shim_undo_fd >= 0) {
        pthread_mutex_lock(&shim_undo_lock);
        put_record(f->directory ? 'D' : 'S', f->ino, before, 0, 0, NULL, 0);
        pthread_mutex_unlock(&shim_undo_lock);
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
    if (shim_slots != NULL && (dir >= 0 || dir_from >= 0)) {
        int error = name_error(false);
        if (error != 0) {
            return shim_refuse(error);
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
    int error = dir >= 0 ? name_error(false) : 0;
    if (error != 0) {
        return shim_refuse(error);
    }
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

/* ---- io_uring ---- */

/* With it a submitted write fails. */
#define INVALID_FD (-1)

static void change_entry(struct io_uring_sqe *e)
{
    if (e->opcode != IORING_OP_WRITE || file_of(e->fd) == NULL) {
        return;
    }
    bool dsync = ((unsigned)e->rw_flags & (unsigned)(RWF_DSYNC | RWF_SYNC)) != 0;
    struct outcome outcome = plan_write(e->fd, e->off, e->len, dsync);
    e->len = (uint32_t)outcome.len;
    if (!outcome.dsync) {
        e->rw_flags = (int)((unsigned)e->rw_flags & ~(unsigned)(RWF_DSYNC | RWF_SYNC));
    }
    if (outcome.error != 0) {
        e->fd = INVALID_FD;
    }
}

EXPORT int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    REAL(int, "io_uring_queue_init", unsigned, struct io_uring *, unsigned);
    if (shim_slots != NULL && shim_slot(SLOT_RING) == 0) {
        return -EPERM;
    }
    int error = shim_fails(KIND_RING);
    return error != 0 ? -error : real(entries, ring, flags);
}

EXPORT int io_uring_submit(struct io_uring *ring)
{
    REAL(int, "io_uring_submit", struct io_uring *);
    int error = shim_fails(KIND_RING);
    if (error != 0) {
        return -error;
    }
    struct io_uring_sq *sq = &ring->sq;
    for (unsigned i = sq->sqe_head; shim_slots != NULL && i != sq->sqe_tail; i++) {
        change_entry(&sq->sqes[i & *sq->kring_mask]);
    }
    return real(ring);
}
