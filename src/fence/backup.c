/* backup.c: see backup.h. SQLite copies; what is here are the names of the files. A restore fills
 * DIR.restoring, syncs it and renames it. So DIR is complete, with its floor, or does not exist. */
#include "fence/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/part.h"
#include "base/write.h"

#define PATH_SIZE 4096u

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

/* Copies one commit, however many come meanwhile, and makes it durable, as one file. */
static int copy(const char *from, const char *to, const struct sentence *s)
{
    sqlite3 *source = NULL;
    sqlite3 *target = NULL;
    sqlite3_backup *b = NULL;
    int rc = sqlite3_open_v2(from, &source, SQLITE_OPEN_READWRITE, NULL);
    (void)sqlite3_busy_timeout(source, FLI_DB_BUSY_MS);
    /* Closing would move the WAL into the file and remove it: a backup only reads. */
    (void)sqlite3_db_config(source, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    rc = rc != SQLITE_OK ? rc : sqlite3_open_v2(to, &target, SQLITE_OPEN_READWRITE, NULL);
    if (rc == SQLITE_OK && (b = sqlite3_backup_init(target, "main", source, "main")) == NULL) {
        rc = sqlite3_errcode(target);
    }
    rc = rc != SQLITE_OK ? rc : sqlite3_backup_step(b, -1);
    int end = b == NULL ? SQLITE_OK : sqlite3_backup_finish(b);
    rc = end != SQLITE_OK ? end : rc == SQLITE_DONE ? SQLITE_OK : rc;
    if (rc == SQLITE_OK) { /* without a WAL beside it */
        rc = sqlite3_exec(target, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
    }
    (void)sqlite3_close(target);
    (void)sqlite3_close(source);
    return rc == SQLITE_OK
               ? 0
               : fail(s, FL_EIO, "cannot copy %s to %s: %s", from, to, sqlite3_errstr(rc));
}

/* ---- a backup ---- */

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

int fli_db_backup(const char *dir, const struct fli_db_options *options, const char *path,
                  struct fli_db *ret, char *errmsg, size_t errmsg_size)
{
    const struct sentence s = {errmsg, errmsg_size};
    char part[PATH_SIZE];
    char from[PATH_SIZE];
    struct stat st;
    (void)snprintf(from, sizeof from, "%.4000s/%s", dir, FLI_DB_FILE);
    int rc = check_target(path, part, &s);
    if (rc == 0 && stat(from, &st) != 0) {
        rc = fail(&s, FL_ENOTFOUND,
                  "%s has no storage in it (%s): is the disk mounted that it is on?", dir,
                  strerror(errno));
    }
    int fd = rc != 0 ? -1 : fli_part_open(part);
    if (rc == 0 && fd < 0) {
        rc = fail(&s, FL_EIO, "cannot make %s: %s", part,
                  errno == EBUSY ? "another process is writing it" : strerror(errno));
    }
    if (rc != 0) {
        return rc;
    }
    rc = copy(from, part, &s);
    rc = rc != 0 ? rc : fli_db_verify(part, options, ret, errmsg, errmsg_size);
    if (rc == 0 && fli_part_publish(part, path, false) != 0) {
        rc = fail(&s, FL_EIO, "cannot rename %s to %s: %s", part, path, strerror(errno));
    }
    if (rc != 0) {
        (void)unlink(part);
    }
    (void)close(fd);
    return rc;
}

/* ---- a restore ---- */

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

static int check(const char *path, const char *dir, const struct fli_db_options *options,
                 fl_token above, struct fli_db *ret, const struct sentence *s)
{
    struct stat st;
    int rc = check_empty(dir, s);
    if (rc == 0 && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        rc = fail(s, FL_EINVAL, "%s is no regular file: write the backup to a file first", path);
    }
    rc = rc != 0 ? rc : fli_db_verify(path, options, ret, s->text, s->size);
    if (rc == 0 && (above < ret->highest || above >= FL_TOKEN_MAX)) {
        rc = fail(s, FL_EINVAL,
                  "--above %" PRIu64 " cannot be: the backup has the mark %" PRIu64
                  ", and above are all tokens that were issued up to now; the lock service's "
                  "INFO tells the last one (last_token)",
                  above, ret->highest);
    }
    return rc;
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
    if (fd < 0 && errno != ENOENT) { /* ENOENT: another one has just given it its name */
        return fail(s, FL_EIO, "cannot open %s: %s", part, strerror(errno));
    }
    bool busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    bool same = fstat(fd, &mine) == 0 && lstat(part, &named) == 0 && mine.st_ino == named.st_ino &&
                mine.st_dev == named.st_dev;
    if (busy || !same) {
        (void)(fd < 0 || close(fd) == 0);
        return fail(s, FL_EBUSY, "another restore is filling %s: wait until it is done", part);
    }
    *ret_fd = fd;
    return 0;
}

/* Removes what a killed restore has left. */
static int clear(int fd, const struct sentence *s)
{
    static const char *const names[] = {FLI_DB_FILE, FLI_DB_FILE "-journal", FLI_DB_FILE "-wal",
                                        FLI_DB_FILE "-shm", "owner"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (unlinkat(fd, names[i], 0) != 0 && errno != ENOENT) {
            return fail(s, FL_EIO, "cannot remove %s, which an earlier restore has left: %s",
                        names[i], strerror(errno));
        }
    }
    return 0;
}

/* The copy becomes a storage of its own, with its floor. */
static int fill(const char *path, const char *part, const struct fli_db_options *options,
                fl_token above, const struct sentence *s)
{
    struct fli_db db;
    char to[PATH_SIZE];
    (void)snprintf(to, sizeof to, "%.4060s/%s", part, FLI_DB_FILE);
    int fd = open(to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || close(fd) != 0) {
        return fail(s, FL_EIO, "cannot make %s: %s", to, strerror(errno));
    }
    int rc = copy(path, to, s);
    rc = rc != 0 ? rc : fli_db_open(part, options, &db, s->text, s->size);
    if (rc != 0) {
        return rc;
    }
    rc = fli_db_begin(&db);
    rc = rc != 0 ? rc : fli_db_raise_floor(&db, above + 1);
    rc = rc != 0 ? rc : fli_db_commit(&db);
    fli_db_close(&db);
    return rc == 0 ? 0 : fail(s, rc, "cannot fill %s: %s", part, fl_strerror(rc));
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

int fli_db_restore(const char *path, const char *dir, const struct fli_db_options *options,
                   fl_token above, struct fli_db *ret, char *errmsg, size_t errmsg_size)
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
    int rc = check(path, clean, options, above, ret, &s);
    rc = rc != 0 ? rc : open_part_dir(part, &fd, &s);
    if (rc != 0) {
        return rc;
    }
    rc = clear(fd, &s);
    rc = rc != 0 ? rc : fill(path, part, options, above, &s);
    rc = rc != 0 ? rc : take_place(part, clean, &s);
    (void)close(fd);
    return rc;
}
