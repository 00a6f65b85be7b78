/* room.c: see room.h. */
#include "fence/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCK_FILE_BYTES 8192              /* of 126 readers, LMDB's default */
#define SPARE (UINT64_C(4) * 1024 * 1024) /* below this a disk counts as full */

int fli_room_lack(int dir_fd, uint64_t bytes)
{
    struct statvfs vfs;
    struct rlimit limit;
    if (fstatvfs(dir_fd, &vfs) == 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < SPARE) {
        return ENOSPC;
    }
    bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited && bytes + SPARE > limit.rlim_cur ? EFBIG : 0;
}

int fli_room_take_lock_file(const char *dir)
{
    char path[4096];
    if (snprintf(path, sizeof(path), "%s/lock.mdb", dir) >= (int)sizeof(path)) {
        return ENAMETOOLONG;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno;
    }
    int error = posix_fallocate(fd, 0, LOCK_FILE_BYTES);
    (void)close(fd);
    return error;
}
