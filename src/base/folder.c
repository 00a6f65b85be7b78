/* folder.c: see folder.h. */
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int fli_folder_each(int at, const char *path, fli_folder_cb *each, void *ctx)
{
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        int error = -errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return error;
    }
    int rv = 0;
    const struct dirent *e = NULL;
    while (rv == 0 && ((void)(errno = 0), (e = readdir(dir)) != NULL)) {
        bool self = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        rv = self ? 0 : each(ctx, e->d_name);
    }
    rv = rv != 0 ? rv : -errno;
    (void)closedir(dir);
    return rv;
}
