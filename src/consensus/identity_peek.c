/* identity_peek.c: see identity_peek.h. */
#include "consensus/identity_peek.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/folder.h"

#define PATH_SIZE (DATA_DIR_PATH_MAX + 16u)

/* Sets `is_used`: whether a process has the directory open. */
static int check_lock(const char *path, struct directory_summary *ret)
{
    char name[PATH_SIZE];
    (void)snprintf(name, sizeof name, "%s/lock", path);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : FL_ESYSTEM;
    }
    ret->is_used = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return 0;
}

static int on_entry(void *ctx, const char *name)
{
    struct directory_summary *s = ctx;
    s->is_empty = false;
    return 0;
}

/* Sets `exists` and `is_empty`. */
static int check_entries(const char *path, struct directory_summary *ret)
{
    ret->is_empty = true;
    int rv = fli_folder_each(AT_FDCWD, path, on_entry, ret);
    ret->exists = rv != -ENOENT;
    errno = -rv;
    return rv == 0 || rv == -ENOENT ? 0 : FL_ESYSTEM;
}

static int read_identity(const char *path, struct directory_summary *ret)
{
    char name[PATH_SIZE];
    struct record record;
    (void)snprintf(name, sizeof name, "%s/identity", path);
    int rv = record_peek(name, &record);
    ret->has_identity = rv == 0;
    if (rv == 0) {
        ret->identity = record.identity;
    }
    return rv == FL_ENOTFOUND ? 0 : rv;
}

int identity_peek(const char *path, struct directory_summary *ret, char *errmsg, size_t errmsg_size)
{
    memset(ret, 0, sizeof *ret);
    if (strlen(path) >= DATA_DIR_PATH_MAX) {
        snprintf(errmsg, errmsg_size, "the path of the data directory must have 1 to %u bytes",
                 DATA_DIR_PATH_MAX - 1);
        return FL_ESYSTEM;
    }
    int rv = check_entries(path, ret);
    rv = rv != 0 ? rv : check_lock(path, ret);
    rv = rv != 0 ? rv : read_identity(path, ret);
    if (rv == FL_ESYSTEM) {
        snprintf(errmsg, errmsg_size, "cannot read data directory %s: %s", path, strerror(errno));
    } else if (rv == FL_EVERSION) {
        snprintf(errmsg, errmsg_size,
                 "%s/identity was written by another version of fencelock: use that version", path);
    } else if (rv != 0) {
        snprintf(errmsg, errmsg_size, "%s/identity is damaged", path);
    }
    return rv;
}
