/* identity.c: the data directory and its identity file.
 *
 * The file is text, so that an operator can read it, in exactly this order, one line each:
 *
 *   fencelock-identity 4       format version
 *   id 2
 *   incarnation 1234           decimal, not 0
 *   cluster 0                  0 until it is known
 *   bootstrapped 1             0 or 1
 *   joins 0                    0 or 1
 *   begun 305419896            checksum of the members and the state that the cluster began with
 *                              (beginning.h), or 0
 *   members 1=a:1,2=b:2        what the directory began with; canonical
 *   founder 1 5678             a line for each of them with its incarnation, once all are known
 *   founder 2 1234
 *   crc 0011aabb               CRC-32C, eight hex digits, of everything before this line
 *
 * A new directory goes through three steps: identity with bootstrapped 0; an empty log, or the
 * first entry of a node alone; identity with bootstrapped 1. A crash in between leaves bootstrapped
 * 0. Such a node has never spoken to another, so whatever is in DIR/log is deleted and made again.
 * With bootstrapped 1 the log must be there. If it is missing, somebody has removed it, and the
 * node refuses to start rather than act as if it had promised nothing. */
#include "consensus/identity.h"

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

#define IDENTITY_VERSION 4u /* no release wrote an earlier version */
#define FILE_PATH_MAX (DATA_DIR_PATH_MAX + 320u)
#define LOCK_WAIT_MS 5000u
#define LOCK_AGAIN_NS 10000000

/* ---- text ---- */

size_t identity_format(const struct identity *id, char out[IDENTITY_TEXT_MAX])
{
    char members[MEMBERS_TEXT_MAX];
    members_format(&id->members, members, sizeof members);
    int n =
        snprintf(out, IDENTITY_TEXT_MAX,
                 "fencelock-identity %u\nid %llu\nincarnation %llu\ncluster %llu\n"
                 "bootstrapped %d\njoins %d\nbegun %lu\nmembers %s\n",
                 IDENTITY_VERSION, (unsigned long long)id->id, (unsigned long long)id->incarnation,
                 (unsigned long long)id->cluster_id, id->bootstrapped ? 1 : 0, id->joins ? 1 : 0,
                 (unsigned long)id->begun_crc, members);
    FLI_ASSERT(n > 0 && (size_t)n < IDENTITY_TEXT_MAX);
    size_t len = (size_t)n;
    for (unsigned i = 0; i < id->n_founders; i++) {
        n = snprintf(out + len, IDENTITY_TEXT_MAX - len, "founder %llu %llu\n",
                     (unsigned long long)id->founders[i].id,
                     (unsigned long long)id->founders[i].incarnation);
        FLI_ASSERT(n > 0 && (size_t)n < IDENTITY_TEXT_MAX - len);
        len += (size_t)n;
    }
    uint32_t crc = fli_crc32c(0, out, len);
    n = snprintf(out + len, IDENTITY_TEXT_MAX - len, "crc %08x\n", crc);
    FLI_ASSERT(n > 0 && (size_t)n < IDENTITY_TEXT_MAX - len);
    return len + (size_t)n;
}

struct lines {
    const char *p;
    const char *end;
    bool bad;
};

/* Reads the value of the next line, which must begin with `key` and a blank. */
static struct fli_slice next_value(struct lines *l, const char *key)
{
    size_t key_len = strlen(key);
    const char *newline = l->bad ? NULL : memchr(l->p, '\n', (size_t)(l->end - l->p));
    if (newline == NULL || (size_t)(newline - l->p) < key_len + 1 ||
        memcmp(l->p, key, key_len) != 0 || l->p[key_len] != ' ') {
        l->bad = true;
        return (struct fli_slice){NULL, 0};
    }
    const char *value = l->p + key_len + 1;
    l->p = newline + 1;
    return (struct fli_slice){(const uint8_t *)value, (size_t)(newline - value)};
}

static uint64_t next_number(struct lines *l, const char *key, uint64_t max)
{
    uint64_t number = 0;
    struct fli_slice v = next_value(l, key);
    if (l->bad || !fli_parse_u64(v.data, v.len, max, &number)) {
        l->bad = true;
        return 0;
    }
    return number;
}

static void parse_members(struct lines *l, struct identity *id)
{
    char text[MEMBERS_TEXT_MAX];
    char canonical[MEMBERS_TEXT_MAX];
    char errmsg[256];
    struct fli_slice v = next_value(l, "members");
    if (l->bad || v.len >= sizeof text) {
        l->bad = true;
        return;
    }
    memcpy(text, v.data, v.len);
    text[v.len] = '\0';
    if (members_parse(text, &id->members, errmsg, sizeof errmsg) != 0) {
        l->bad = true;
        return;
    }
    members_format(&id->members, canonical, sizeof canonical);
    l->bad = strlen(text) != v.len || strcmp(canonical, text) != 0;
}

static bool begins_with(const struct lines *l, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(l->end - l->p) > len && memcmp(l->p, word, len) == 0;
}

/* Reads as many lines as there are. */
static void parse_founders(struct lines *l, struct identity *id)
{
    while (!l->bad && begins_with(l, "founder ")) {
        struct fli_slice v = next_value(l, "founder");
        const uint8_t *blank = v.len == 0 ? NULL : memchr(v.data, ' ', v.len);
        struct identity_founder f = {0, 0};
        size_t id_len = blank == NULL ? 0 : (size_t)(blank - v.data);
        l->bad = blank == NULL || id->n_founders == id->members.n ||
                 !fli_parse_u64(v.data, id_len, UINT64_MAX, &f.id) ||
                 !fli_parse_u64(blank + 1, v.len - id_len - 1, UINT64_MAX, &f.incarnation) ||
                 f.id != id->members.list[id->n_founders].id || f.incarnation == 0;
        if (!l->bad) {
            id->founders[id->n_founders++] = f;
        }
    }
}

/* All or none, and each incarnation once. */
static bool founders_fit(const struct identity *id)
{
    bool fit = id->n_founders == 0 || (id->n_founders == id->members.n && id->cluster_id != 0);
    for (unsigned i = 0; i < id->n_founders; i++) {
        for (unsigned k = 0; k < i; k++) {
            fit = fit && id->founders[i].incarnation != id->founders[k].incarnation;
        }
    }
    return fit;
}

int identity_parse(const char *text, size_t len, struct identity *ret)
{
    struct identity id;
    memset(&id, 0, sizeof id);
    struct lines l = {text, text + len, false};
    uint64_t version = next_number(&l, "fencelock-identity", UINT32_MAX);
    if (!l.bad && version != IDENTITY_VERSION) {
        return FL_EVERSION;
    }
    id.id = next_number(&l, "id", UINT64_MAX);
    id.incarnation = next_number(&l, "incarnation", UINT64_MAX);
    id.cluster_id = next_number(&l, "cluster", UINT64_MAX);
    id.bootstrapped = next_number(&l, "bootstrapped", 1) == 1;
    id.joins = next_number(&l, "joins", 1) == 1;
    id.begun_crc = (uint32_t)next_number(&l, "begun", UINT32_MAX);
    parse_members(&l, &id);
    if (!l.bad) {
        parse_founders(&l, &id);
    }
    uint32_t crc = l.bad ? 0 : fli_crc32c(0, text, (size_t)(l.p - text));
    char expected[9];
    snprintf(expected, sizeof expected, "%08x", crc);
    struct fli_slice v = next_value(&l, "crc");
    if (l.bad || l.p != l.end || v.len != 8 || memcmp(v.data, expected, 8) != 0) {
        return FL_ECORRUPT;
    }
    if (id.id == 0 || id.incarnation == 0 || members_find(&id.members, id.id) == NULL ||
        !founders_fit(&id)) {
        return FL_ECORRUPT;
    }
    *ret = id;
    return 0;
}

/* ---- files ---- */

static int sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return FL_EIO;
    }
    int rv = fsync(fd) == 0 ? 0 : FL_EIO;
    int saved = errno;
    close(fd);
    errno = saved;
    return rv;
}

int identity_store(const struct data_dir *d, const struct identity *id)
{
    char path[FILE_PATH_MAX];
    char text[IDENTITY_TEXT_MAX];
    (void)snprintf(path, sizeof path, "%s/identity", d->path);
    return fli_replace_file(path, text, identity_format(id, text));
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
    pid_t owner = owner_of(fd);
    close(fd);
    if (owner > 0) {
        snprintf(errmsg, errmsg_size,
                 "data directory %s is in use by another process (pid %ld): stop that one, or "
                 "give this one a directory of its own",
                 path, (long)owner);
    } else {
        snprintf(errmsg, errmsg_size,
                 "data directory %s is in use by another process: stop that one, or give this one "
                 "a directory of its own",
                 path);
    }
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
    struct data_dir d = {.lock_fd = -1, .starts_fd = -1};
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
    close_one(&d->starts_fd);
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

/* Whether DIR/log has any entry. With `clear`, every entry found is removed. */
static int scan_log(const char *path, bool clear, bool *ret_any)
{
    struct scan s = {.path = path, .clear = clear};
    int rv = fli_folder_each(AT_FDCWD, path, scan_one, &s);
    errno = -rv;
    *ret_any = s.any;
    return rv == 0 || rv == -ENOENT ? 0 : FL_ESYSTEM;
}

/* Reads the text of the file; the length is 0 when there is no file. What is read is durable: the
 * process that wrote it may have been killed before it was. */
static int read_file(const char *path, char out[IDENTITY_TEXT_MAX], size_t *ret_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        *ret_len = 0;
        return errno == ENOENT ? 0 : FL_ESYSTEM;
    }
    size_t len = 0;
    ssize_t n = 1;
    while (n > 0 && len < IDENTITY_TEXT_MAX) {
        n = read(fd, out + len, IDENTITY_TEXT_MAX - len);
        if (n > 0) {
            len += (size_t)n;
        }
    }
    bool good = n == 0 || len == IDENTITY_TEXT_MAX;
    good = good && fsync(fd) == 0 && fli_sync_folder_of(path) == 0;
    int saved = errno;
    close(fd);
    errno = saved;
    if (!good) {
        return FL_ESYSTEM;
    }
    *ret_len = len;
    /* An empty file is not an absent one. */
    return len == 0 ? FL_ECORRUPT : 0;
}

/* An earlier start may have been killed after it had made the directory. The parent of one that an
 * operator has made may be closed to this user. */
static int sync_name(const char *path)
{
    bool cannot = fli_sync_folder_of(path) != 0;
    return cannot && errno != EACCES && errno != EPERM && errno != EROFS && errno != EINVAL ? FL_EIO
                                                                                            : 0;
}

static int create_identity(const struct data_dir *d, uint64_t id, const struct members *members,
                           bool joins, struct identity *ret, char *errmsg, size_t errmsg_size)
{
    char text[MEMBERS_TEXT_MAX];
    memset(ret, 0, sizeof *ret);
    ret->id = id;
    ret->members = *members;
    ret->joins = joins;
    ret->begun_crc = joins ? 0 : fli_crc32c(0, text, members_format(members, text, sizeof text));
    while (ret->incarnation == 0) {
        fli_random(&ret->incarnation, sizeof ret->incarnation);
    }
    int rv = identity_store(d, ret);
    rv = rv != 0 ? rv : sync_name(d->path);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot write %s/identity: %s", d->path, strerror(errno));
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

static int prepare_log_dir(const struct data_dir *d, const struct identity *id, char *errmsg,
                           size_t errmsg_size)
{
    bool any = false;
    int rv = scan_log(d->log_path, !id->bootstrapped, &any);
    bool made = rv == 0 && mkdir(d->log_path, 0700) == 0;
    if (rv == 0 && !made && errno != EEXIST) {
        rv = FL_ESYSTEM;
    }
    if (rv == 0 && made && sync_dir(d->path) != 0) {
        rv = FL_ESYSTEM;
    }
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot prepare %s: %s", d->log_path, strerror(errno));
        return rv;
    }
    if (id->bootstrapped && !any) {
        return identity_refuse_lost_log(d, id, errmsg, errmsg_size);
    }
    return 0;
}

static int load_identity(const struct data_dir *d, const char *path, const char *text, size_t len,
                         struct identity *ret, char *errmsg, size_t errmsg_size)
{
    int rv = identity_parse(text, len, ret);
    if (rv == FL_EVERSION) {
        snprintf(errmsg, errmsg_size,
                 "%s was written by another version of fencelock (0.1.0, which was never released, "
                 "or a newer one): start that version, or use an empty directory",
                 path);
    } else if (rv != 0) {
        snprintf(errmsg, errmsg_size,
                 "%s is damaged: move %s out of the way, run fencelock cluster replace for this "
                 "node, and start again with an empty directory. An older copy is not safe: it "
                 "has forgotten what it acknowledged",
                 path, d->path);
    }
    return rv;
}

int identity_open(const struct data_dir *d, uint64_t id, const struct members *members, bool joins,
                  struct identity *ret, char *errmsg, size_t errmsg_size)
{
    char path[FILE_PATH_MAX];
    char text[IDENTITY_TEXT_MAX];
    size_t len = 0;
    struct identity found;
    FLI_ASSERT(members_find(members, id) != NULL);
    snprintf(path, sizeof path, "%s/identity", d->path);
    int rv = read_file(path, text, &len);
    if (rv == FL_ESYSTEM) {
        snprintf(errmsg, errmsg_size, "cannot read %s: %s", path, strerror(errno));
        return rv;
    }
    if (rv == 0 && len == 0) {
        bool any = false;
        if (scan_log(d->log_path, false, &any) != 0) {
            snprintf(errmsg, errmsg_size, "cannot read %s: %s", d->log_path, strerror(errno));
            return FL_ESYSTEM;
        }
        if (any) {
            snprintf(errmsg, errmsg_size,
                     "%s is missing although %s is not empty: put back what was taken away, or "
                     "use an empty directory",
                     path, d->log_path);
            return FL_EDENIED;
        }
        rv = create_identity(d, id, members, joins, &found, errmsg, errmsg_size);
    } else {
        rv = load_identity(d, path, text, len, &found, errmsg, errmsg_size);
        if (rv == 0) {
            rv = check_identity(d, &found, id, members, joins, errmsg, errmsg_size);
        }
    }
    if (rv == 0) {
        rv = prepare_log_dir(d, &found, errmsg, errmsg_size);
    }
    if (rv == 0) {
        *ret = found;
    }
    return rv;
}
