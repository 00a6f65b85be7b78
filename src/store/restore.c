/* restore.c: see restore.h. A restore fills DIR.restoring, syncs it and renames it. So DIR is a
 * complete storage with its floor, or does not exist. */
#include "store/restore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
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

static int sync_folder_of(const char *path, const struct sentence *s)
{
    char folder[PATH_SIZE];
    const char *slash = strrchr(path, '/');
    int len = slash == NULL ? 0 : (int)(slash - path);
    (void)snprintf(folder, sizeof folder, "%.*s", len, path);
    const char *name = slash == NULL ? "." : len == 0 ? "/" : folder;
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int rc = good ? 0 : fail(s, FL_EIO, "cannot sync %s: %s", name, strerror(errno));
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* ---- a backup ---- */

static int write_out(void *ctx, const void *data, size_t len)
{
    const int *fd = ctx;
    return fli_write_all(*fd, data, len);
}

int store_backup_make(const char *dir, const char *path, struct store_backup_facts *ret,
                      char *errmsg, size_t errmsg_size)
{
    const struct sentence s = {errmsg, errmsg_size};
    char part[PATH_SIZE];
    struct store *store;
    struct stat st;
    struct stat target;
    if (stat(path, &target) == 0 && !S_ISREG(target.st_mode)) {
        return fail(&s, FL_EINVAL, "%s is no file, and would be replaced by one: name a new file",
                    path);
    }
    if (stat(dir, &st) != 0 || snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part) {
        return fail(&s, FL_EIO, "cannot open %s: %s", dir, strerror(errno));
    }
    int rc = store_open(dir, STORE_SIZE_MIN, true, &store, errmsg, errmsg_size);
    if (rc != 0) {
        return rc;
    }
    /* The file contains users' data: only its owner may read it. */
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    rc = fd < 0 ? FL_EIO : store_backup_write(store, write_out, &fd);
    rc = rc == 0 && fsync(fd) != 0 ? FL_EIO : rc;
    if (rc != 0) {
        (void)fail(&s, rc, "cannot write %s: %s", part,
                   rc == FL_EIO ? strerror(errno) : fl_strerror(rc));
    }
    if (fd >= 0) {
        close(fd);
    }
    store_close(store);
    rc = rc != 0 ? rc : store_backup_read(part, NULL, NULL, ret, errmsg, errmsg_size);
    if (rc == 0 && rename(part, path) != 0) {
        rc = fail(&s, FL_EIO, "cannot rename %s: %s", part, strerror(errno));
    }
    if (rc != 0) {
        (void)unlink(part);
    }
    return rc != 0 ? rc : sync_folder_of(path, &s);
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

static bool is_empty(const char *dir)
{
    DIR *d = opendir(dir);
    unsigned n = 0;
    while (d != NULL && readdir(d) != NULL) {
        n++;
    }
    bool gone = d == NULL && errno == ENOENT;
    if (d != NULL) {
        closedir(d);
    }
    return gone || n == 2;
}

/* Removes what a killed restore has left. */
static int clear(const char *part, const struct sentence *s)
{
    static const char *const names[] = {"new/data.mdb", "new/lock.mdb", "new", "data.mdb",
                                        "lock.mdb",     "owner",        ""};
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
    if (!is_empty(dir)) {
        return fail(s, FL_EDENIED,
                    "%s is not empty: a storage is restored into a new directory; move the old one "
                    "out of the way, and keep it until all is well",
                    dir);
    }
    int rc = store_backup_read(path, NULL, NULL, ret, s->text, s->size);
    if (rc == 0 && (above < ret->highest_mark || above >= FL_TOKEN_MAX)) {
        rc = fail(s, FL_EINVAL,
                  "--above %" PRIu64 " cannot be: the backup has the mark %" PRIu64
                  ", and above are all tokens that were issued up to now; the lock service's "
                  "INFO tells the last one (last_token)",
                  above, ret->highest_mark);
    }
    return rc;
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
    int rc = check(path, clean, above, ret, &s);
    rc = rc != 0 ? rc : clear(part, &s);
    rc = rc != 0 ? rc : fill(path, part, size_max, above, ret, &s);
    if (rc == 0 && rename(part, clean) != 0) {
        rc = fail(&s, FL_EIO, "cannot rename %s: %s", part, strerror(errno));
    }
    return rc != 0 ? rc : sync_folder_of(clean, &s);
}
