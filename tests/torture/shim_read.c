/* shim_read.c: what the shim does to calls that read: files, what is known of them, directories.
 * See shim.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

/* ---- reading ---- */

#define READ_STEP_US 20000 /* after each step: whether it is to take as long still */

/* The loop of a daemon is in the first thread. */
static void read_slowly(void)
{
    if (shim_slot(SLOT_READ_SLOW_US) > 0) {
        atomic_fetch_add(&shim_slots[SLOT_LOOP_READS], getpid() == (pid_t)syscall(SYS_gettid));
        for (int64_t slept_us = 0; slept_us < shim_slot(SLOT_READ_SLOW_US);) {
            int64_t us = shim_slot(SLOT_READ_SLOW_US) - slept_us;
            us = us < READ_STEP_US ? us : READ_STEP_US;
            shim_nap(us);
            slept_us += us;
        }
    }
}

static ssize_t pread_it(int fd, void *data, size_t len, off_t offset)
{
    bool ours = shim_is_ours(fd);
    int error = ours ? shim_fails(KIND_READ) : 0;
    if (ours) {
        read_slowly();
    }
    return error != 0 ? shim_refuse(error) : syscall(SYS_pread64, fd, data, len, offset);
}

EXPORT ssize_t read(int fd, void *data, size_t len)
{
    int error = shim_is_ours(fd) ? shim_fails(KIND_READ) : 0;
    return error != 0 ? shim_refuse(error) : syscall(SYS_read, fd, data, len);
}

EXPORT ssize_t pread(int fd, void *data, size_t len, off_t offset)
{
    return pread_it(fd, data, len, offset);
}

EXPORT ssize_t pread64(int fd, void *data, size_t len, off64_t offset)
{
    return pread_it(fd, data, len, offset);
}

/* ---- what is there ---- */

/* Of an open file, or of a name when there is one. */
static int stat_error(int fd, const char *path)
{
    bool ours = path == NULL || path[0] == '\0' ? shim_is_ours(fd) : shim_names_ours(fd, path);
    return ours ? shim_fails(KIND_STAT) : 0;
}

static int stat_it(int fd, const char *path, void *ret, int flags)
{
    int error = stat_error(fd, path);
    return error != 0 ? shim_refuse(error) : (int)syscall(SYS_newfstatat, fd, path, ret, flags);
}

static int fstat_it(int fd, void *ret)
{
    int error = stat_error(fd, NULL);
    return error != 0 ? shim_refuse(error) : (int)syscall(SYS_fstat, fd, ret);
}

EXPORT int fstat(int fd, struct stat *ret)
{
    return fstat_it(fd, ret);
}

EXPORT int fstat64(int fd, struct stat64 *ret)
{
    return fstat_it(fd, ret);
}

EXPORT int stat(const char *restrict path, struct stat *restrict ret)
{
    return stat_it(AT_FDCWD, path, ret, 0);
}

EXPORT int stat64(const char *restrict path, struct stat64 *restrict ret)
{
    return stat_it(AT_FDCWD, path, ret, 0);
}

EXPORT int lstat(const char *restrict path, struct stat *restrict ret)
{
    return stat_it(AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW);
}

EXPORT int lstat64(const char *restrict path, struct stat64 *restrict ret)
{
    return stat_it(AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW);
}

EXPORT int fstatat(int fd, const char *restrict path, struct stat *restrict ret, int flags)
{
    return stat_it(fd, path, ret, flags);
}

EXPORT int fstatat64(int fd, const char *restrict path, struct stat64 *restrict ret, int flags)
{
    return stat_it(fd, path, ret, flags);
}

EXPORT int statx(int fd, const char *restrict path, int flags, unsigned mask,
                 struct statx *restrict ret)
{
    int error = stat_error(fd, path);
    return error != 0 ? shim_refuse(error) : (int)syscall(SYS_statx, fd, path, flags, mask, ret);
}

/* ---- directories ---- */

static int list_error(DIR *dir)
{
    return shim_slots != NULL && shim_is_below(dirfd(dir)) ? shim_fails(KIND_LIST) : 0;
}

EXPORT struct dirent *readdir(DIR *dir)
{
    REAL(struct dirent *, "readdir", DIR *);
    int error = list_error(dir);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    return real(dir);
}

EXPORT struct dirent64 *readdir64(DIR *dir)
{
    REAL(struct dirent64 *, "readdir64", DIR *);
    int error = list_error(dir);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    return real(dir);
}

EXPORT DIR *opendir(const char *path)
{
    REAL(DIR *, "opendir", const char *);
    int error = shim_names_ours(AT_FDCWD, path) ? shim_fails(KIND_LIST) : 0;
    if (error != 0) {
        errno = error;
        return NULL;
    }
    return real(path);
}

EXPORT DIR *fdopendir(int fd)
{
    REAL(DIR *, "fdopendir", int);
    int error = shim_is_ours(fd) ? shim_fails(KIND_LIST) : 0;
    if (error != 0) {
        errno = error;
        return NULL;
    }
    return real(fd);
}
