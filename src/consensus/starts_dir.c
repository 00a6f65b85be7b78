/* starts_dir.c: DIR/starts. A source file of its own, so that the simulation can replace it. */
#include <stdio.h>

#include "consensus/identity.h"
#include "consensus/starts.h"

#define PATH_SIZE (DATA_DIR_PATH_MAX + 16u)

static const char *path_of(const struct data_dir *d, char path[PATH_SIZE])
{
    (void)snprintf(path, PATH_SIZE, "%s/starts", d->path);
    return path;
}

int starts_open(const struct data_dir *d, struct starts *ret)
{
    char path[PATH_SIZE];
    return starts_read(path_of(d, path), ret);
}

int starts_store(const struct data_dir *d, struct starts *s)
{
    char path[PATH_SIZE];
    return starts_write(path_of(d, path), s);
}
