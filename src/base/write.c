/* write.c: see write.h. */
#include "base/write.h"

#include <errno.h>
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
