/* part.c: see part.h. */
#include "base/part.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/write.h"

#define TRIES 100u /* each is lost to another process that came and went */

static int close_with(int fd, int error)
{
    if (fd >= 0) {
        (void)close(fd);
    }
    errno = error;
    return -1;
}

/* Locks what the descriptor has open. EAGAIN: it does not have the name any more. */
static int lock_named(int fd, const char *path)
{
    struct stat mine;
    struct stat named;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return EBUSY; /* any other error: a file system without locks */
    }
    if (fstat(fd, &mine) != 0) {
        return errno;
    }
    bool same =
        lstat(path, &named) == 0 && named.st_ino == mine.st_ino && named.st_dev == mine.st_dev;
    return same ? 0 : EAGAIN;
}

/* Removes what a process has left that is gone. 0 or an errno. NFS locks only what is open for
 * writing. */
static int remove_left(const char *path)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : errno;
    }
    int error = lock_named(fd, path);
    if (error == 0 && unlink(path) != 0 && errno != ENOENT) {
        error = errno;
    }
    (void)close(fd);
    return error == EAGAIN ? 0 : error;
}

int fli_part_open(const char *path)
{
    for (unsigned i = 0; i < TRIES; i++) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST) {
            return -1;
        }
        int error = fd >= 0 ? lock_named(fd, path) : remove_left(path);
        if (fd >= 0 && error == 0) {
            return fd;
        }
        if (error != 0 && error != EAGAIN) {
            return close_with(fd, error);
        }
        (void)close_with(fd, 0);
    }
    errno = EBUSY;
    return -1;
}

/* A file system that cannot do both in one step. */
static int link_new(int at, const char *from, const char *to)
{
    if (linkat(at, from, at, to, 0) != 0) {
        return FL_EIO;
    }
    if (unlinkat(at, from, 0) != 0) {
        int error = errno;
        (void)unlinkat(at, to, 0); /* nothing has happened */
        errno = error;
        return FL_EIO;
    }
    return 0;
}

int fli_rename_new(int at, const char *from, const char *to)
{
    if (renameat2(at, from, at, to, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    return errno == EINVAL || errno == ENOSYS ? link_new(at, from, to) : FL_EIO;
}

int fli_part_publish(const char *part, const char *path, bool replace)
{
    int rc = replace ? rename(part, path) : fli_rename_new(AT_FDCWD, part, path);
    return rc != 0 ? FL_EIO : fli_sync_folder_of(path);
}

/* The name of the file that a path names, which need not exist. A link to nothing is an error. */
static int follow(const char *path, char out[PATH_MAX])
{
    struct stat st;
    if (realpath(path, out) != NULL) {
        return 0;
    }
    if (errno != ENOENT || lstat(path, &st) == 0) {
        return FL_EIO; /* a successful lstat() leaves errno as it was */
    }
    (void)snprintf(out, PATH_MAX, "%s", path);
    return 0;
}

/* Each process that replaces the file at this moment has another name, the first that is free. */
static int open_some(const char *real, char *part, size_t size)
{
    int fd = -1;
    for (unsigned i = 0; i < FLI_REPLACING_MAX && fd < 0; i++) {
        (void)snprintf(part, size, "%s.%u.part", real, i);
        fd = fli_part_open(part);
    }
    return fd;
}

int fli_replace_file(const char *path, const void *data, size_t len)
{
    char real[PATH_MAX];
    char part[PATH_MAX + sizeof ".99.part"];
    if (follow(path, real) != 0) {
        return FL_EIO;
    }
    int fd = open_some(real, part, sizeof part);
    if (fd < 0) {
        return FL_EIO;
    }
    int rc = fli_write_all(fd, data, len);
    rc = rc == 0 && fsync(fd) != 0 ? FL_EIO : rc;
    rc = rc != 0 ? rc : fli_part_publish(part, real, true);
    int error = errno;
    if (rc != 0 && lock_named(fd, part) == 0) { /* once it has its name, the other one is free */
        (void)unlink(part);
    }
    (void)close_with(fd, error);
    return rc;
}
