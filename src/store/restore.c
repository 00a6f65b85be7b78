/* restore.c: see restore.h. A restore fills DIR.restoring, syncs it and renames it. So DIR is a
 * complete storage with its floor, or does not exist. */
#include "store/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/folder.h"
#include "base/part.h"
#include "base/write.h"
#include "fence/env.h"
#include "fence/mark.h"
#include "store/backup.h"

#define PATH_SIZE 4096u
/* Of one transaction; the smallest storage has room for it. */
#define GROUP_BYTES ((size_t)256 << 10)

struct sentence {
    char *text;
    size_t size;
};

static int FLI_PRINTF(3, 4) fail(const struct sentence *s, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(s->text, s->size, fmt, args);
    va_end(args);
    return code;
}

/* ---- a backup ---- */

static int write_out(void *ctx, const void *data, size_t len)
{
    const int *fd = ctx;
    return fli_write_all(*fd, data, len);
}

/* Opening a directory without a storage would make one: an empty mount point would be backed up. */
static int check_storage(const char *dir, const struct sentence *s)
{
    struct stat st;
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return fail(s, FL_EIO, "cannot open %s: %s", dir, strerror(errno));
    }
    bool claimed = fstatat(dir_fd, "owner", &st, 0) == 0 && st.st_size > 0;
    bool there = claimed || fstatat(dir_fd, "data.mdb", &st, 0) == 0;
    (void)close(dir_fd);
    return there ? 0
                 : fail(s, FL_ENOTFOUND,
                        "%s has no storage in it: is the disk mounted that it is on?", dir);
}

static int check_target(const char *path, char part[PATH_SIZE], const struct sentence *s)
{
    struct stat st;
    if (snprintf(part, PATH_SIZE, "%s.part", path) >= (int)PATH_SIZE) {
        return fail(s, FL_EINVAL, "the path of the file is too long");
    }
    return lstat(path, &st) != 0 ? 0
                                 : fail(s, FL_EEXISTS,
                                        "%s exists, and may be the only good backup: choose "
                                        "another name, or remove it first",
                                        path);
}

/* Fills the file, syncs it and reads it back. */
static int fill_part(struct store *store, const char *part, int fd, struct store_backup_facts *ret,
                     const struct sentence *s)
{
    int rc = store_backup_write(store, write_out, &fd);
    rc = rc == 0 && fsync(fd) != 0 ? FL_EIO : rc;
    if (rc != 0) {
        return fail(s, rc, "cannot write %s: %s", part,
                    rc == FL_EIO ? strerror(errno) : fl_strerror(rc));
    }
    return store_backup_read(part, NULL, NULL, ret, s->text, s->size);
}

static int write_part(struct store *store, const char *part, const char *path,
                      struct store_backup_facts *ret, const struct sentence *s)
{
    int fd = fli_part_open(part);
    if (fd < 0) {
        return fail(s, FL_EIO, "cannot make %s: %s", part,
                    errno == EBUSY ? "another process is writing it" : strerror(errno));
    }
    int rc = fill_part(store, part, fd, ret, s);
    if (rc == 0 && fli_part_publish(part, path, false) != 0) {
        rc = fail(s, FL_EIO, "cannot rename %s to %s: %s", part, path, strerror(errno));
    }
    if (rc != 0) {
        (void)unlink(part);
    }
    (void)close(fd);
    return rc;
}

int store_backup_make(const char *dir, const char *path, struct store_backup_facts *ret,
                      char *errmsg, size_t errmsg_size)
{
    const struct sentence s = {errmsg, errmsg_size};
    char part[PATH_SIZE];
    struct store *store;
    int rc = check_target(path, part, &s);
    rc = rc != 0 ? rc : check_storage(dir, &s);
    rc = rc != 0 ? rc : store_open(dir, STORE_SIZE_MIN, true, &store, errmsg, errmsg_size);
    if (rc != 0) {
        return rc;
    }
    rc = write_part(store, part, path, ret, &s);
    store_close(store);
    return rc;
}

/* ---- a restore ---- */

struct restoring {
    struct fli_env *env;
    struct fli_txn txn;
    bool open;    /* `txn` is */
    size_t bytes; /* in the transaction */
};

static int flush(struct restoring *r)
{
    bool open = r->open;
    r->open = false;
    r->bytes = 0;
    return open ? fli_txn_commit(&r->txn) : 0;
}

static int put(struct restoring *r, struct fli_slice key, struct fli_slice value)
{
    int rc = r->open ? 0 : fli_txn_begin(r->env, &r->txn);
    r->open = r->open || rc == 0;
    rc = rc != 0 ? rc : fli_txn_put(&r->txn, key, &value, 1);
    r->bytes += key.len + value.len;
    return rc == 0 && r->bytes >= GROUP_BYTES ? flush(r) : rc;
}

static int put_record(void *ctx, struct fli_slice key, struct fli_slice value)
{
    return put(ctx, key, value);
}

/* The floor is written last: until then the directory has another name. */
static int put_floor(struct restoring *r, fl_token above)
{
    static const uint8_t name[1] = {FLI_MARK_FLOOR};
    uint8_t floor[FLI_MARK_SIZE];
    fli_put_u64(floor, above + 1);
    int rc = put(r, (struct fli_slice){name, 1}, (struct fli_slice){floor, sizeof floor});
    return rc != 0 ? rc : flush(r);
}

static int fill(const char *path, const char *part, size_t size_max, fl_token above,
                struct store_backup_facts *ret, const struct sentence *s)
{
    struct store *store;
    int rc = store_open(part, size_max, true, &store, s->text, s->size);
    if (rc != 0) {
        return rc;
    }
    struct restoring r = {.env = store_env(store)};
    s->text[0] = '\0';
    rc = store_backup_read(path, put_record, &r, ret, s->text, s->size);
    rc = rc != 0 ? rc : put_floor(&r, above);
    if (r.open) {
        fli_txn_abort(&r.txn);
    }
    store_close(store);
    if (rc == FL_ELIMIT) {
        return fail(s, rc, "there is no room in %s: raise --size-max, or free some disk", part);
    }
    return rc == 0 || s->text[0] != '\0' ? rc
                                         : fail(s, rc, "cannot fill %s: %s", part, fl_strerror(rc));
}

static int on_name(void *ctx, const char *name)
{
    return 1;
}

/* 0: there is nothing in it, or no such directory. */
static int check_empty(const char *dir, const struct sentence *s)
{
    int rv = fli_folder_each(AT_FDCWD, dir, on_name, NULL);
    if (rv < 0 && rv != -ENOENT) {
        return fail(s, FL_EIO, "cannot read %s: %s", dir, strerror(-rv));
    }
    return rv <= 0 ? 0
                   : fail(s, FL_EDENIED,
                          "%s is not empty: a storage is restored into a new directory; move the "
                          "old one out of the way, and keep it until all is well",
                          dir);
}

/* Makes the directory to fill and locks it, so that no other restore fills or clears it. */
static int open_part_dir(const char *part, int *ret_fd, const struct sentence *s)
{
    struct stat mine;
    struct stat named;
    if (mkdir(part, 0700) != 0 && errno != EEXIST) {
        return fail(s, FL_EIO, "cannot make %s: %s", part, strerror(errno));
    }
    int fd = open(part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return fail(s, FL_EIO, "cannot open %s: %s", part, strerror(errno));
    }
    bool busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    bool same = fstat(fd, &mine) == 0 && lstat(part, &named) == 0 && mine.st_ino == named.st_ino &&
                mine.st_dev == named.st_dev;
    if (busy || !same) {
        (void)close(fd);
        return fail(s, FL_EBUSY, "another restore is filling %s: wait until it is done", part);
    }
    *ret_fd = fd;
    return 0;
}

/* Removes what a killed restore has left. */
static int clear(const char *part, const struct sentence *s)
{
    static const char *const names[] = {"new/data.mdb", "new/lock.mdb", "new",
                                        "data.mdb",     "lock.mdb",     "owner"};
    char path[PATH_SIZE];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%.4000s/%s", part, names[i]);
        if (remove(path) != 0 && errno != ENOENT) {
            return fail(s, FL_EIO, "cannot remove %s, which an earlier restore has left: %s", path,
                        strerror(errno));
        }
    }
    return 0;
}

static int check(const char *path, const char *dir, fl_token above, struct store_backup_facts *ret,
                 const struct sentence *s)
{
    struct stat st;
    int rc = check_empty(dir, s);
    if (rc == 0 && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        rc = fail(s, FL_EINVAL,
                  "%s is no regular file: a restore reads the backup twice, so write it to a file "
                  "first",
                  path);
    }
    rc = rc != 0 ? rc : store_backup_read(path, NULL, NULL, ret, s->text, s->size);
    if (rc == 0 && (above < ret->highest_mark || above >= FL_TOKEN_MAX)) {
        rc = fail(s, FL_EINVAL,
                  "--above %" PRIu64 " cannot be: the backup has the mark %" PRIu64
                  ", and above are all tokens that were issued up to now; the lock service's "
                  "INFO tells the last one (last_token)",
                  above, ret->highest_mark);
    }
    return rc;
}

static int take_place(const char *part, const char *dir, const struct sentence *s)
{
    if (rename(part, dir) != 0) {
        return fail(s, FL_EIO, "cannot rename %s to %s: %s%s", part, dir, strerror(errno),
                    errno == EBUSY || errno == EXDEV || errno == ENOTDIR
                        ? ": name a new directory, no mount point and no symlink"
                        : "");
    }
    return fli_sync_folder_of(dir) == 0
               ? 0
               : fail(s, FL_EIO, "cannot sync the folder of %s: %s", dir, strerror(errno));
}

int store_restore(const char *path, const char *dir, size_t size_max, fl_token above,
                  struct store_backup_facts *ret, char *errmsg, size_t errmsg_size)
{
    const struct sentence s = {errmsg, errmsg_size};
    char part[PATH_SIZE];
    char clean[PATH_SIZE];
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') {
        len--;
    }
    (void)snprintf(clean, sizeof clean, "%.*s", (int)len, dir);
    if (len == 0 || snprintf(part, sizeof part, "%.4000s.restoring", clean) >= 4010) {
        return fail(&s, FL_EINVAL, "the path of the directory is empty, or too long");
    }
    int fd = -1;
    int rc = check(path, clean, above, ret, &s);
    rc = rc != 0 ? rc : open_part_dir(part, &fd, &s);
    if (rc != 0) {
        return rc;
    }
    rc = clear(part, &s);
    rc = rc != 0 ? rc : fill(path, part, size_max, above, ret, &s);
    rc = rc != 0 ? rc : take_place(part, clean, &s);
    (void)close(fd);
    return rc;
}
