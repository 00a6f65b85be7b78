/* data_dir.c: see data_dir.h.
 *
 * A new directory goes through three steps: a record with `bootstrapped` unset; an empty log, or
 * the first entry of a node alone; the record of the first start, with `bootstrapped` set. A crash
 * in between leaves it unset. Such a node has never spoken to another, so whatever is in DIR/log is
 * deleted and made again. With `bootstrapped` set the log must be there. If it is missing, somebody
 * has removed it, and the node refuses to start rather than act as if it had promised nothing. */
#include "consensus/data_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/folder.h"
#include "base/part.h"
#include "base/write.h"

#define FILE_PATH_MAX (DATA_DIR_PATH_MAX + 320u)
#define LOCK_WAIT_MS 5000u
#define LOCK_AGAIN_NS 10000000

static const char *path_of(const struct data_dir *d, char path[FILE_PATH_MAX])
{
    (void)snprintf(path, FILE_PATH_MAX, "%s/identity", d->path);
    return path;
}

int record_store(const struct data_dir *d, struct record *r)
{
    char path[FILE_PATH_MAX];
    return d->record_fd >= 0 ? record_write_fd(d->record_fd, r) : record_write(path_of(d, path), r);
}

/* mkdir -p, at most as deep as the path is long. What is made is durable: else a power cut could
 * take away the whole directory, with all that was synced in it. */
static int make_dirs(const char *path)
{
    char part[DATA_DIR_PATH_MAX + 8];
    size_t len = strlen(path);
    FLI_ASSERT(len < sizeof part);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        char saved = part[i];
        part[i] = '\0';
        if (mkdir(part, 0700) == 0 ? fli_sync_folder_of(part) != 0 : errno != EEXIST) {
            return FL_ESYSTEM;
        }
        part[i] = saved;
    }
    struct stat st;
    if (stat(path, &st) != 0) {
        return FL_ESYSTEM;
    }
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return FL_ESYSTEM;
    }
    return 0;
}

/* The process that the lock file names, or 0. */
static pid_t owner_of(int fd)
{
    char pid[32] = {0};
    uint64_t number = 0;
    ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
    size_t len = n > 0 ? strcspn(pid, "\n") : 0;
    return len > 0 && fli_parse_u64(pid, len, INT_MAX, &number) ? (pid_t)number : 0;
}

static int refuse_locked(int fd, const char *path, char *errmsg, size_t errmsg_size)
{
    char pid[32] = "";
    pid_t owner = owner_of(fd);
    close(fd);
    if (owner > 0) {
        snprintf(pid, sizeof pid, " (pid %ld)", (long)owner);
    }
    snprintf(errmsg, errmsg_size,
             "data directory %s is in use by another process%s: stop that one, or give this one a "
             "directory of its own",
             path, pid);
    return FL_EBUSY;
}

/* A child that writes a snapshot begins with a copy of its parent's lock and ports. When the parent
 * is killed at that moment, they are taken for some milliseconds more. So a lock whose owner is
 * gone is waited for. The child closes the ports with the lock, or a moment later, for which
 * fli_listen() waits. 0 or an errno. */
static int take_lock(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_AGAIN_NS};
    uint64_t until_ms = fli_clock_ms() + LOCK_WAIT_MS;
    for (;;) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return 0;
        }
        int error = errno;
        pid_t owner = owner_of(fd);
        bool gone = owner > 0 && kill(owner, 0) != 0 && errno == ESRCH;
        if (error != EWOULDBLOCK || !gone || fli_clock_ms() >= until_ms) {
            return error;
        }
        (void)nanosleep(&pause, NULL);
    }
}

void data_dir_await_child(const char *path)
{
    char file[FILE_PATH_MAX];
    int n = snprintf(file, sizeof file, "%s/lock", path);
    int fd = n > 0 && (size_t)n < sizeof file ? open(file, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)take_lock(fd);
        close(fd);
    }
}

static int lock_dir(struct data_dir *d, char *errmsg, size_t errmsg_size)
{
    char path[FILE_PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", d->path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        snprintf(errmsg, errmsg_size, "cannot open %s: %s", path, strerror(errno));
        return FL_ESYSTEM;
    }
    int rv = take_lock(fd);
    if (rv == EWOULDBLOCK) {
        return refuse_locked(fd, d->path, errmsg, errmsg_size);
    }
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot lock %s: %s", path, strerror(rv));
        close(fd);
        return FL_ESYSTEM;
    }
    char pid[32];
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    FLI_ASSERT(n > 0);
    /* The pid only improves a message: failing to write it is no reason to stop. */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, pid, (size_t)n, 0) != n) {
        errno = 0;
    }
    d->lock_fd = fd;
    return 0;
}

int data_dir_open(const char *path, struct data_dir *ret, char *errmsg, size_t errmsg_size)
{
    struct data_dir d = {.lock_fd = -1, .record_fd = -1};
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    if (len == 0 || len >= sizeof d.path) {
        snprintf(errmsg, errmsg_size, "the path of the data directory must have 1 to %zu bytes",
                 sizeof d.path - 1);
        return FL_EINVAL;
    }
    memcpy(d.path, path, len);
    snprintf(d.log_path, sizeof d.log_path, "%s/log", d.path);
    int rv = make_dirs(d.path);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot make data directory %s: %s", d.path, strerror(errno));
        return rv;
    }
    rv = lock_dir(&d, errmsg, errmsg_size);
    if (rv == 0) {
        *ret = d;
    }
    return rv;
}

static void close_one(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void data_dir_close(struct data_dir *d)
{
    close_one(&d->record_fd);
    close_one(&d->lock_fd);
}

struct scan {
    const char *path;
    bool clear, any;
};

static int scan_one(void *ctx, const char *name)
{
    struct scan *s = ctx;
    char file[FILE_PATH_MAX];
    s->any = true;
    (void)snprintf(file, sizeof file, "%s/%s", s->path, name);
    return s->clear && unlink(file) != 0 ? -errno : 0;
}

/* Whether DIR/log has any entry. With `clear`, every entry that is found is removed. */
static int scan_log(const char *path, bool clear, bool *ret_any)
{
    struct scan s = {.path = path, .clear = clear};
    int rv = fli_folder_each(AT_FDCWD, path, scan_one, &s);
    errno = -rv;
    *ret_any = s.any;
    return rv == 0 || rv == -ENOENT ? 0 : FL_ESYSTEM;
}

/* An earlier start may have been killed after it had made the directory. The parent of one that an
 * operator has made may be closed to this user. */
static int sync_name(const char *path)
{
    bool cannot = fli_sync_folder_of(path) != 0;
    return cannot && errno != EACCES && errno != EPERM && errno != EROFS && errno != EINVAL ? FL_EIO
                                                                                            : 0;
}

static int create_record(const struct data_dir *d, const char *path, uint64_t id,
                         const struct members *members, bool joins, struct record *ret,
                         char *errmsg, size_t errmsg_size)
{
    char text[MEMBERS_TEXT_MAX];
    struct identity *fresh = &ret->identity;
    bool any = false;
    if (scan_log(d->log_path, false, &any) != 0) {
        snprintf(errmsg, errmsg_size, "cannot read %s: %s", d->log_path, strerror(errno));
        return FL_ESYSTEM;
    }
    if (any) {
        snprintf(errmsg, errmsg_size,
                 "%s is missing although %s is not empty: put back what was taken away, or use an "
                 "empty directory",
                 path, d->log_path);
        return FL_EDENIED;
    }
    memset(ret, 0, sizeof *ret);
    fresh->id = id;
    fresh->members = *members;
    fresh->joins = joins;
    fresh->begun_crc = joins ? 0 : fli_crc32c(0, text, members_format(members, text, sizeof text));
    while (fresh->incarnation == 0) {
        fli_random(&fresh->incarnation, sizeof fresh->incarnation);
    }
    int rv = record_write(path, ret);
    rv = rv != 0 ? rv : sync_name(d->path);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot write %s: %s", path, strerror(errno));
    }
    return rv;
}

int identity_refuse_members(const struct data_dir *d, const struct members *found,
                            const struct members *given, char *errmsg, size_t errmsg_size)
{
    char stored[MEMBERS_TEXT_MAX];
    char wanted[MEMBERS_TEXT_MAX];
    members_format(found, stored, sizeof stored);
    members_format(given, wanted, sizeof wanted);
    snprintf(errmsg, errmsg_size,
             "data directory %s belongs to the cluster %.600s, but this node is configured for "
             "%.600s: start with the former, or with another directory",
             d->path, stored, wanted);
    return FL_EDENIED;
}

/* Whether the file agrees with the configuration. Once a cluster is formed, its log says who is a
 * member. Before that, nodes that were configured differently must not form one. */
static int check_identity(const struct data_dir *d, const struct identity *found, uint64_t id,
                          const struct members *members, bool joins, char *errmsg,
                          size_t errmsg_size)
{
    if (found->id != id) {
        snprintf(errmsg, errmsg_size,
                 "data directory %s belongs to node %llu, but this is node %llu: start with that "
                 "id, or with another directory",
                 d->path, (unsigned long long)found->id, (unsigned long long)id);
        return FL_EDENIED;
    }
    if (found->cluster_id != 0 || (found->joins && joins)) {
        return 0;
    }
    if (found->joins != joins) {
        snprintf(errmsg, errmsg_size,
                 "data directory %s was begun with --%s, and this node is started with --%s: start "
                 "it as before, or with an empty directory",
                 d->path, found->joins ? "join" : "cluster", joins ? "join" : "cluster");
        return FL_EDENIED;
    }
    return members_equal(&found->members, members)
               ? 0
               : identity_refuse_members(d, &found->members, members, errmsg, errmsg_size);
}

int identity_refuse_lost_log(const struct data_dir *d, const struct identity *id, char *errmsg,
                             size_t errmsg_size)
{
    snprintf(errmsg, errmsg_size,
             "%s has lost its log: move %s out of the way, run fencelock cluster replace %llu, "
             "and start again with an empty directory. An older copy is not safe: it has "
             "forgotten what it acknowledged",
             d->log_path, d->path, (unsigned long long)id->id);
    return FL_EDENIED;
}

/* Whether a log that must be there is there, log_open() says. */
static int prepare_log_dir(const struct data_dir *d, const struct identity *id, char *errmsg,
                           size_t errmsg_size)
{
    bool any = false;
    int rv = id->bootstrapped ? 0 : scan_log(d->log_path, true, &any);
    bool made = rv == 0 && mkdir(d->log_path, 0700) == 0;
    bool failed = made ? fli_sync_folder_of(d->log_path) != 0 : rv != 0 || errno != EEXIST;
    if (failed) {
        snprintf(errmsg, errmsg_size, "cannot prepare %s: %s", d->log_path, strerror(errno));
    }
    return failed ? FL_ESYSTEM : 0;
}

static int refuse_unread(const char *dir, const char *path, int rv, char *errmsg,
                         size_t errmsg_size)
{
    if (rv == FL_EVERSION) {
        snprintf(errmsg, errmsg_size,
                 "%s was written by another version of fencelock (0.1.0, which was never released, "
                 "or a newer one): start that version, or use an empty directory",
                 path);
    } else if (rv == FL_ECORRUPT) {
        snprintf(errmsg, errmsg_size,
                 "%s is damaged: move %s out of the way, run fencelock cluster replace for this "
                 "node, and start again with an empty directory. An older copy is not safe: it "
                 "has forgotten what it acknowledged",
                 path, dir);
    } else {
        snprintf(errmsg, errmsg_size, "cannot read %s: %s", path, strerror(errno));
    }
    return rv;
}

static int keep_open(struct data_dir *d, const char *path, char *errmsg, size_t errmsg_size)
{
    d->record_fd = open(path, O_WRONLY | O_CLOEXEC);
    if (d->record_fd < 0) {
        snprintf(errmsg, errmsg_size, "cannot write %s: %s", path, strerror(errno));
    }
    return d->record_fd < 0 ? FL_ESYSTEM : 0;
}

int record_open(struct data_dir *d, uint64_t id, const struct members *members, bool joins,
                struct record *ret, char *errmsg, size_t errmsg_size)
{
    char path[FILE_PATH_MAX];
    FLI_ASSERT(members_find(members, id) != NULL && d->record_fd < 0);
    int rv = record_read(path_of(d, path), ret);
    if (rv == FL_ENOTFOUND) {
        rv = create_record(d, path, id, members, joins, ret, errmsg, errmsg_size);
    } else if (rv != 0) {
        rv = refuse_unread(d->path, path, rv, errmsg, errmsg_size);
    } else {
        rv = check_identity(d, &ret->identity, id, members, joins, errmsg, errmsg_size);
    }
    rv = rv != 0 ? rv : prepare_log_dir(d, &ret->identity, errmsg, errmsg_size);
    return rv != 0 ? rv : keep_open(d, path, errmsg, errmsg_size);
}

/* ---- a look at it ---- */

/* Sets `is_used`: whether a process has the directory open. */
static int check_lock(const char *path, struct directory_summary *ret)
{
    char name[FILE_PATH_MAX];
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

static int read_identity(const char *path, struct directory_summary *ret, char *errmsg,
                         size_t errmsg_size)
{
    char name[FILE_PATH_MAX];
    struct record record;
    (void)snprintf(name, sizeof name, "%s/identity", path);
    int rv = record_peek(name, &record);
    ret->has_identity = rv == 0;
    if (rv == 0) {
        ret->identity = record.identity;
    }
    return rv == 0 || rv == FL_ENOTFOUND ? 0 : refuse_unread(path, name, rv, errmsg, errmsg_size);
}

int identity_peek(const char *path, struct directory_summary *ret, char *errmsg, size_t errmsg_size)
{
    memset(ret, 0, sizeof *ret);
    if (strlen(path) >= DATA_DIR_PATH_MAX) {
        snprintf(errmsg, errmsg_size, "the path of the data directory must have 1 to %u bytes",
                 DATA_DIR_PATH_MAX - 1);
        return FL_ESYSTEM;
    }
    if (check_entries(path, ret) != 0 || check_lock(path, ret) != 0) {
        snprintf(errmsg, errmsg_size, "cannot read data directory %s: %s", path, strerror(errno));
        return FL_ESYSTEM;
    }
    return read_identity(path, ret, errmsg, errmsg_size);
}
