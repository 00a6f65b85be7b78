/* data_dir.c: see data_dir.h.
 *
 * A new directory goes through three steps: a record with `bootstrapped` unset; an empty log; the
 * record of the first start, with `bootstrapped` set. A crash in between leaves it unset. Such a
 * node has never spoken to another, so whatever is in DIR/log is deleted and made again. With
 * `bootstrapped` set the log must be there. If it is missing, somebody has removed it, and the node
 * refuses to start rather than act as if it had promised nothing. */
#include "members/data_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/folder.h"
#include "base/write.h"

#define FILE_PATH_MAX (DATA_DIR_PATH_MAX + 320u)
#define LOCK_WAIT_MS 5000u
#define LOCK_AGAIN_NS 10000000

#define REFUSE(code, ...) fli_refuse(errmsg, errmsg_size, code, __VA_ARGS__)

static const char *path_of(const char *dir, const char *name, char path[FILE_PATH_MAX])
{
    (void)snprintf(path, FILE_PATH_MAX, "%s/%s", dir, name);
    return path;
}

int record_store(const struct data_dir *d, struct record *r)
{
    char path[FILE_PATH_MAX];
    return record_write(d->record_fd, path_of(d->path, "identity", path), r);
}

/* ---- directories ---- */

/* It may be there already. What is made is durable: else a power cut could take away the whole
 * directory, with all that was synced in it. 0 or -1 and errno. */
static int make_dir(const char *path)
{
    if (mkdir(path, 0700) == 0) {
        return fli_sync_folder_of(path) == 0 ? 0 : -1;
    }
    int fd = errno == EEXIST ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0 ? 0 : -1;
}

/* mkdir -p */
static int make_dirs(const char *path)
{
    char part[DATA_DIR_PATH_MAX];
    int rv = 0;
    for (size_t i = 1; rv == 0 && path[i - 1] != '\0'; i++) {
        if (path[i] == '/' || path[i] == '\0') {
            (void)snprintf(part, sizeof part, "%.*s", (int)i, path);
            rv = make_dir(part);
        }
    }
    return rv;
}

struct scan {
    const char *path;
    bool clear;       /* every entry that is found is removed */
    bool any, exists; /* the result; a directory that does not exist has no entry */
};

static int scan_one(void *ctx, const char *name)
{
    struct scan *s = ctx;
    char file[FILE_PATH_MAX];
    s->any = true;
    return s->clear && unlink(path_of(s->path, name, file)) != 0 ? -errno : 0;
}

/* 0 or -1 and errno. */
static int scan_dir(struct scan *s)
{
    int rv = fli_folder_each(AT_FDCWD, s->path, scan_one, s);
    errno = -rv;
    s->exists = rv != -ENOENT;
    return rv == 0 || rv == -ENOENT ? 0 : -1;
}

/* ---- the lock ---- */

/* The process that the lock file names, or 0. */
static pid_t owner_of(int fd)
{
    char pid[32] = {0};
    uint64_t number = 0;
    ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
    size_t len = n > 0 ? strcspn(pid, "\n") : 0;
    return len > 0 && fli_parse_u64(pid, len, INT_MAX, &number) ? (pid_t)number : 0;
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
    int fd = open(path_of(path, "lock", file), O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        (void)take_lock(fd);
        close(fd);
    }
}

static int lock_dir(struct data_dir *d, char *errmsg, size_t errmsg_size)
{
    char path[FILE_PATH_MAX];
    char pid[32] = "";
    d->lock_fd = open(path_of(d->path, "lock", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int error = d->lock_fd < 0 ? errno : take_lock(d->lock_fd);
    if (error == EWOULDBLOCK) {
        pid_t owner = owner_of(d->lock_fd);
        if (owner > 0) {
            snprintf(pid, sizeof pid, " (pid %ld)", (long)owner);
        }
        return REFUSE(FL_EBUSY,
                      "data directory %s is in use by another process%s: stop that one, or give "
                      "this one a directory of its own",
                      d->path, pid);
    }
    if (error != 0) {
        return REFUSE(FL_ESYSTEM, "cannot lock %s: %s", path, strerror(error));
    }
    /* The pid only improves a message: failing to write it is no reason to stop. */
    (void)!(ftruncate(d->lock_fd, 0) == 0 && dprintf(d->lock_fd, "%ld\n", (long)getpid()) > 0);
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
        return REFUSE(FL_EINVAL, "the path of the data directory must have 1 to %zu bytes",
                      sizeof d.path - 1);
    }
    memcpy(d.path, path, len);
    snprintf(d.log_path, sizeof d.log_path, "%s/log", d.path);
    int rv = make_dirs(d.path) == 0
                 ? lock_dir(&d, errmsg, errmsg_size)
                 : REFUSE(FL_ESYSTEM, "cannot make data directory %s: %s", d.path, strerror(errno));
    if (rv != 0) {
        data_dir_close(&d);
        return rv;
    }
    *ret = d;
    return 0;
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

/* ---- the record ---- */

/* An earlier start may have been killed after it had made the directory. The parent of one that an
 * operator has made may be closed to this user. */
static int sync_name(const char *path)
{
    bool cannot = fli_sync_folder_of(path) != 0;
    return cannot && errno != EACCES && errno != EPERM && errno != EROFS && errno != EINVAL ? FL_EIO
                                                                                            : 0;
}

void record_begin(struct record *r, uint64_t id, const struct members *members)
{
    *r = (struct record){.identity = {.id = id, .members = *members}};
    while (r->identity.incarnation == 0) {
        fli_random(&r->identity.incarnation, sizeof r->identity.incarnation);
    }
}

static void begin_with(struct identity *id, const struct members *members, bool joins)
{
    char text[MEMBERS_TEXT_MAX];
    id->members = *members;
    id->joins = joins;
    id->begun_crc = joins ? 0 : fli_crc32c(0, text, members_format(members, text, sizeof text));
}

static int create_record(const struct data_dir *d, const char *path, uint64_t id,
                         const struct members *members, bool joins, struct record *ret,
                         char *errmsg, size_t errmsg_size)
{
    struct scan log = {.path = d->log_path};
    if (scan_dir(&log) != 0) {
        return REFUSE(FL_ESYSTEM, "cannot read %s: %s", d->log_path, strerror(errno));
    }
    if (log.any) {
        return REFUSE(FL_EDENIED,
                      "%s is missing although %s is not empty: put back what was taken away, "
                      "or use an empty directory",
                      path, d->log_path);
    }
    record_begin(ret, id, members);
    begin_with(&ret->identity, members, joins);
    int rv = record_write(-1, path, ret);
    rv = rv != 0 ? rv : sync_name(d->path);
    return rv == 0 ? 0 : REFUSE(rv, "cannot write %s: %s", path, strerror(errno));
}

int identity_refuse_members(const struct data_dir *d, const struct members *found,
                            const struct members *given, char *errmsg, size_t errmsg_size)
{
    char stored[MEMBERS_TEXT_MAX];
    char wanted[MEMBERS_TEXT_MAX];
    members_format(found, stored, sizeof stored);
    members_format(given, wanted, sizeof wanted);
    return REFUSE(FL_EDENIED,
                  "data directory %s belongs to the cluster %.600s, but this node is "
                  "configured for %.600s: start with the former, or with another directory",
                  d->path, stored, wanted);
}

int identity_refuse_id(const char *path, const struct identity *found, uint64_t id, char *errmsg,
                       size_t errmsg_size)
{
    return REFUSE(FL_EDENIED,
                  "data directory %s belongs to node %llu, but this is node %llu: start with "
                  "that id, or with another directory",
                  path, (unsigned long long)found->id, (unsigned long long)id);
}

/* Whether the file agrees with the configuration. Once a cluster is formed, its log says who is a
 * member. Before that, nodes that were configured differently must not form one; but as long as
 * there is no log, nobody has heard of the configuration, and another one takes its place. */
static int check_identity(const struct data_dir *d, const struct identity *found, uint64_t id,
                          const struct members *members, bool joins, char *errmsg,
                          size_t errmsg_size)
{
    if (found->id != id) {
        return identity_refuse_id(d->path, found, id, errmsg, errmsg_size);
    }
    if (!found->bootstrapped || found->cluster_id != 0 || (found->joins && joins)) {
        return 0;
    }
    if (found->joins != joins) {
        return REFUSE(FL_EDENIED,
                      "data directory %s was begun with --%s, and this node is started with "
                      "--%s: start it as before, or with an empty directory",
                      d->path, found->joins ? "join" : "cluster", joins ? "join" : "cluster");
    }
    return members_equal(&found->members, members)
               ? 0
               : identity_refuse_members(d, &found->members, members, errmsg, errmsg_size);
}

int identity_refuse_lost_log(const struct data_dir *d, const struct identity *id, char *errmsg,
                             size_t errmsg_size)
{
    return REFUSE(FL_EDENIED,
                  "%s has lost its log: move %s out of the way, run fencelock cluster replace "
                  "%llu, and start again with an empty directory. An older copy is not safe: "
                  "it has forgotten what it acknowledged",
                  d->log_path, d->path, (unsigned long long)id->id);
}

/* Whether a log that must be there is there, log_open() says. */
static int prepare_log_dir(const struct data_dir *d, const struct identity *id, char *errmsg,
                           size_t errmsg_size)
{
    struct scan log = {.path = d->log_path, .clear = true};
    int rv = id->bootstrapped ? 0 : scan_dir(&log);
    rv = rv != 0 ? rv : make_dir(d->log_path);
    return rv == 0 ? 0 : REFUSE(FL_ESYSTEM, "cannot prepare %s: %s", d->log_path, strerror(errno));
}

static int refuse_unread(const char *dir, const char *path, int rv, char *errmsg,
                         size_t errmsg_size)
{
    if (rv == FL_EVERSION) {
        return fli_refuse(
            errmsg, errmsg_size, rv,
            "%s was written by another version of fencelock (0.1.0, which was never "
            "released, or a newer one): start that version, or use an empty directory",
            path);
    }
    if (rv == FL_ECORRUPT) {
        return REFUSE(rv,
                      "%s is damaged: move %s out of the way, run fencelock cluster replace "
                      "for this node, and start again with an empty directory. An older copy "
                      "is not safe: it has forgotten what it acknowledged",
                      path, dir);
    }
    return REFUSE(rv, "cannot read %s: %s", path, strerror(errno));
}

int record_open(struct data_dir *d, uint64_t id, const struct members *members, bool joins,
                struct record *ret, char *errmsg, size_t errmsg_size)
{
    char path[FILE_PATH_MAX];
    FLI_ASSERT(members_find(members, id) != NULL && d->record_fd < 0);
    int rv = record_read(path_of(d->path, "identity", path), ret);
    if (rv == FL_ENOTFOUND) {
        rv = create_record(d, path, id, members, joins, ret, errmsg, errmsg_size);
    } else if (rv != 0) {
        rv = refuse_unread(d->path, path, rv, errmsg, errmsg_size);
    } else {
        rv = check_identity(d, &ret->identity, id, members, joins, errmsg, errmsg_size);
        if (!ret->identity.bootstrapped) {
            begin_with(&ret->identity, members, joins);
        }
    }
    rv = rv != 0 ? rv : prepare_log_dir(d, &ret->identity, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    d->record_fd = open(path, O_WRONLY | O_CLOEXEC);
    return d->record_fd >= 0 ? 0 : REFUSE(FL_ESYSTEM, "cannot write %s: %s", path, strerror(errno));
}

/* ---- a look at it ---- */

/* Whether a process has the directory open. 0 or -1 and errno. */
static int peek_lock(const char *path, bool *ret_is_used)
{
    char name[FILE_PATH_MAX];
    int fd = open(path_of(path, "lock", name), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : -1;
    }
    *ret_is_used = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return 0;
}

int identity_peek(const char *path, struct directory_summary *ret, char *errmsg, size_t errmsg_size)
{
    char name[FILE_PATH_MAX];
    struct record record;
    struct scan scan = {.path = path};
    memset(ret, 0, sizeof *ret);
    if (strlen(path) >= DATA_DIR_PATH_MAX) {
        return REFUSE(FL_ESYSTEM, "the path of the data directory must have 1 to %u bytes",
                      DATA_DIR_PATH_MAX - 1);
    }
    int rv = scan_dir(&scan);
    ret->exists = scan.exists;
    ret->is_empty = !scan.any; /* as far as it is known */
    if (rv != 0 || peek_lock(path, &ret->is_used) != 0) {
        return REFUSE(FL_ESYSTEM, "cannot read data directory %s: %s", path, strerror(errno));
    }
    rv = record_read(path_of(path, "identity", name), &record);
    ret->has_identity = rv == 0;
    if (rv == 0) {
        ret->identity = record.identity;
    }
    return rv == 0 || rv == FL_ENOTFOUND ? 0 : refuse_unread(path, name, rv, errmsg, errmsg_size);
}
