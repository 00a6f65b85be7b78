/* starts_dir.c: DIR/starts. A source file of its own, so that the simulation can replace it. */
#include <fcntl.h>
#include <stdio.h>

#include "consensus/identity.h"
#include "consensus/starts.h"

#define PATH_SIZE (DATA_DIR_PATH_MAX + 16u)

static const char *path_of(const struct data_dir *d, char path[PATH_SIZE])
{
    (void)snprintf(path, PATH_SIZE, "%s/starts", d->path);
    return path;
}

static int keep_open(struct data_dir *d, const char *path)
{
    d->starts_fd = open(path, O_WRONLY | O_CLOEXEC);
    return d->starts_fd < 0 ? FL_ESYSTEM : 0;
}

int starts_open(struct data_dir *d, struct starts *ret)
{
    char path[PATH_SIZE];
    int rv = starts_read(path_of(d, path), ret);
    return rv != 0 ? rv : keep_open(d, path);
}

/* A directory that is being made has no such file yet. */
int starts_store(struct data_dir *d, struct starts *s)
{
    char path[PATH_SIZE];
    if (d->starts_fd >= 0) {
        return starts_write_fd(d->starts_fd, s);
    }
    int rv = starts_write(path_of(d, path), s);
    return rv == 0 && keep_open(d, path) != 0 ? FL_EIO : rv;
}
