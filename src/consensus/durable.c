/* durable.c: see durable.h. */
#include "consensus/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/write.h"

/* Negative: errno says why. */
static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Closes fd and leaves errno unchanged. */
static int closed(int fd, int rv)
{
    int saved = errno;
    close(fd);
    errno = saved;
    return rv;
}

static int replace(int dir, const char *name, const void *data, size_t len)
{
    FLI_ASSERT(strlen(name) <= DURABLE_NAME_MAX);
    char temp[DURABLE_NAME_MAX + sizeof ".new"];
    snprintf(temp, sizeof temp, "%s.new", name);
    int fd = openat(dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return FL_EIO;
    }
    int rv = fli_write_all(fd, data, len);
    rv = closed(fd, rv == 0 && fsync(fd) != 0 ? FL_EIO : rv);
    if (rv == 0 && (renameat(dir, temp, dir, name) != 0 || fsync(dir) != 0)) {
        rv = FL_EIO;
    }
    return rv;
}

int durable_replace(const char *folder, const char *name, const void *data, size_t len)
{
    int dir = open_folder(folder);
    return dir < 0 ? FL_EIO : closed(dir, replace(dir, name, data, len));
}
