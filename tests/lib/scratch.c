#include "scratch.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

char *scratch_make(void)
{
    const char *base = getenv("TMPDIR");
    char *path = scratch_path(base != NULL ? base : "/tmp", "fencelock-test-XXXXXX");
    FLI_ASSERT(mkdtemp(path) != NULL);
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return at->level == 0 ? 0 : remove(path);
}

void scratch_wipe(const char *path)
{
    FLI_ASSERT(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

void scratch_remove(char *path)
{
    scratch_wipe(path);
    FLI_ASSERT(rmdir(path) == 0);
    free(path);
}

char *scratch_path(const char *dir, const char *name)
{
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);
    FLI_ASSERT(path != NULL);
    snprintf(path, size, "%s/%s", dir, name);
    return path;
}

void scratch_write(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FLI_ASSERT(fd >= 0);
    FLI_ASSERT(write(fd, data, len) == (ssize_t)len);
    close(fd);
}

size_t scratch_read(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY);
    FLI_ASSERT(fd >= 0);
    ssize_t n = read(fd, out, size);
    FLI_ASSERT(n >= 0);
    close(fd);
    return (size_t)n;
}

bool scratch_exists(const char *path)
{
    return access(path, F_OK) == 0;
}
