/* write.c: see write.h. */
#include "base/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fli_write_all(int fd, const void *data, size_t len)
{
    const uint8_t *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return FL_EIO;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

bool fli_error_passes(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE ||
           error == ENOMEM || error == EAGAIN;
}

int fli_sync_folder_of(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    const char *slash = memrchr(path, '/', len);
    len = slash == NULL ? 0 : (size_t)(slash - path);
    char *folder = slash == NULL ? strdup(".") : strndup(path, len == 0 ? 1 : len);
    int fd = folder == NULL ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 && fsync(fd) == 0 ? 0 : FL_EIO;
    int saved = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    free(folder);
    errno = saved;
    return rc;
}
