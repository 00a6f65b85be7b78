/* fencelock_cmd_backup.c: `fencelock backup`: writes the state of a running cluster to a file, or
 * verifies such a file.
 *
 * A backup is written to a temporary file in the same folder, synced, read back and verified. Only
 * then it gets its name, so whatever has the name can be restored. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/part.h"
#include "base/write.h"
#include "cli/fencelock_common.h"
#include "snapshot/file.h"

#define STATUS_MS UINT64_C(2000)
#define AGAIN_MS UINT64_C(100)
#define ERROR_SIZE 512u
#define PATH_MOST 3000u /* the names of the files in a folder come behind it */
#define PARTS 16u       /* so many may be at work in a folder */
#define NICE_VALUE 10
#define KEPT_MAX 10000u
#define SYNC_BYTES (UINT64_C(1) << 20)
#define PAUSE_MAX_NS UINT64_C(50000000)
#define PATH_SIZE 4096u
#define SUFFIX ".backup"

/* The bytes go to `part`. */
struct target {
    char path[PATH_SIZE], part[PATH_SIZE];
    bool replace; /* what has the name; otherwise it is kept, and an error */
    int fd;       /* -1: none */
    uint64_t bytes, synced;
    char error[1024]; /* why the last step failed; "" while none did */
};

struct backup {
    const struct cli_args *args;
    bool keeps; /* the argument is a folder, and the name says what is in the file */
    struct target target;
    struct snapshot_meta meta;
    uint64_t cluster_id;
    fl_token last_token;
    struct machine_counts counts;
    int code; /* of the error of a node that says most, and the error */
    char error[ERROR_SIZE];
};

/* ---- the temporary file ---------------------------------------------------------------------- */

static int disk_error(struct target *t, const char *what, const char *path)
{
    (void)snprintf(t->error, sizeof t->error, "cannot %s %.900s: %s", what, path, strerror(errno));
    return FL_EIO;
}

/* One sync of the whole file at the end would hold up the log of a node on the same disk. */
static int sync_and_pause(struct target *t)
{
    uint64_t start_ns = fli_clock_ns();
    if (fdatasync(t->fd) != 0) {
        return disk_error(t, "sync", t->part);
    }
    uint64_t pause_ns = fli_clock_ns() - start_ns;
    pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
    struct timespec pause = {.tv_nsec = (long)pause_ns};
    (void)nanosleep(&pause, NULL);
    t->synced = t->bytes;
    return 0;
}

/* A sink. */
static int target_write(void *arg, const void *data, size_t len)
{
    struct target *t = arg;
    if (fli_write_all(t->fd, data, len) != 0) {
        return disk_error(t, "write", t->part);
    }
    t->bytes += len;
    return t->bytes - t->synced < SYNC_BYTES ? 0 : sync_and_pause(t);
}

static int refuse(struct target *t, int code, const char *remedy)
{
    (void)snprintf(t->error, sizeof t->error, "%.800s %s", t->path, remedy);
    return code;
}

/* Whether `path` can be had at all, before anything is fetched. */
static int target_check(struct target *t)
{
    struct stat st;
    if (lstat(t->path, &st) != 0) {
        return 0; /* whatever is wrong with the name, making the file says it */
    }
    if (S_ISDIR(st.st_mode)) {
        return refuse(t, FL_EINVAL, "is a folder: name a file in it, or add --keep N");
    }
    if (!t->replace) {
        return refuse(t, FL_EEXISTS,
                      "exists, and may be the only good backup: choose another name, let --keep N "
                      "FOLDER choose one, or add --replace");
    }
    return S_ISREG(st.st_mode) ? 0 : refuse(t, FL_EINVAL, "is no regular file: choose another");
}

/* This and the next return 0, or a code with the reason in `error`. Makes `part`, or empties it for
 * another try; no other process writes it until fini. */
static int target_open(struct target *t)
{
    t->bytes = 0;
    t->synced = 0;
    if (t->fd >= 0) {
        bool empty = ftruncate(t->fd, 0) == 0 && lseek(t->fd, 0, SEEK_SET) == 0;
        return empty ? 0 : disk_error(t, "empty", t->part);
    }
    t->fd = fli_part_open(t->part);
    if (t->fd < 0 && errno == EBUSY) {
        return refuse(t, FL_EBUSY, "is being written by another process");
    }
    return t->fd >= 0 ? 0 : disk_error(t, "make", t->part);
}

/* rc: of the writes. */
static int target_sync(struct target *t, int rc)
{
    return rc == 0 && fsync(t->fd) != 0 ? disk_error(t, "sync", t->part) : rc;
}

static int target_rename(struct target *t)
{
    if (fli_part_publish(t->part, t->path, t->replace) != 0) {
        return errno == EEXIST ? target_check(t) : disk_error(t, "rename or sync", t->path);
    }
    (void)close(t->fd); /* `part` is a name that another process may take now */
    t->fd = -1;
    return 0;
}

/* Removes `part`, if it has that name still. */
static void target_fini(struct target *t)
{
    if (t->fd >= 0) {
        (void)unlink(t->part);
        (void)close(t->fd);
        t->fd = -1;
    }
}

/* ---- older backups in the same folder -------------------------------------------------------- */

/* By the number at the end of the name, which has the same number of digits in all. */
static int by_number(const void *a, const void *b)
{
    const char *x = strrchr(*(char *const *)a, '-');
    const char *y = strrchr(*(char *const *)b, '-');
    int order = strcmp(x, y);
    return order != 0 ? order : strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_backup(const char *name, const char *start)
{
    size_t len = strlen(name);
    return strncmp(name, start, strlen(start)) == 0 && len > sizeof SUFFIX &&
           strcmp(name + len - (sizeof SUFFIX - 1), SUFFIX) == 0;
}

/* The backups whose names begin with `start`, without `made`, the one that was just made. */
struct listing {
    const char *start, *made;
    size_t n;
    char *names[KEPT_MAX];
};

static int list_one(void *ctx, const char *name)
{
    struct listing *l = ctx;
    if (!is_backup(name, l->start) || strcmp(name, l->made) == 0 || l->n == KEPT_MAX) {
        return 0;
    }
    l->names[l->n] = strdup(name);
    if (l->names[l->n] == NULL) {
        return -ENOMEM;
    }
    l->n++;
    return 0;
}

/* Deletes all but the newest `keep` files of the folder whose names begin with `start`. That of
 * `path`, which was just made, is the newest; the others are sorted by the number at the end of the
 * name, which does not depend on a clock. *ret_removed: how many were deleted. */
static int target_keep(struct target *t, const char *folder, const char *start, uint64_t keep,
                       uint64_t *ret_removed)
{
    static struct listing l;
    char path[PATH_SIZE];
    FLI_ASSERT(keep > 0);
    l = (struct listing){.start = start, .made = strrchr(t->path, '/') + 1};
    int rv = fli_folder_each(AT_FDCWD, folder, list_one, &l);
    char **names = l.names;
    size_t n = l.n;
    uint64_t surplus = n > keep - 1 ? n - (keep - 1) : 0;
    errno = -rv;
    int rc = rv == 0 ? 0 : disk_error(t, "read the folder", folder);
    qsort(names, n, sizeof *names, by_number);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%.3000s/%.255s", folder, names[i]);
        if (i < surplus && rc == 0) {
            rc = unlink(path) == 0 ? 0 : disk_error(t, "remove the old backup", path);
            *ret_removed += rc == 0;
        }
        free(names[i]);
    }
    return rc;
}

/* ---- the nodes ------------------------------------------------------------------------------- */

/* The leader has applied all that was answered; a follower may be a little behind. */
static size_t leader_of(fl_client *c)
{
    struct fl_node_status s;
    size_t n = fl_client_nodes(c);
    for (size_t i = 0; i < n; i++) {
        if (fl_node_ask(c, i, STATUS_MS, &s, sizeof s) == 0 && strcmp(s.role, "leader") == 0) {
            return i;
        }
    }
    return 0;
}

/* A node that is up and hears no leader explains more than one that is down. */
static void keep_error(struct backup *b, fl_client *c, int rc)
{
    if (b->code != FL_ENOLEADER || rc != FL_ENOCONN) {
        b->code = rc;
        (void)snprintf(b->error, sizeof b->error, "%s", fl_client_error(c));
    }
}

/* Asks one node after another, the leader first, until one has sent a whole backup or the local
 * disk fails. */
static int fetch_from_any(struct backup *b, fl_client *c)
{
    struct target *t = &b->target;
    size_t n = fl_client_nodes(c);
    size_t first = n > 1 ? leader_of(c) : 0;
    b->code = 0;
    for (size_t i = 0; i < n; i++) {
        int rc = target_open(t);
        if (rc != 0) {
            return rc;
        }
        rc = fl_backup(c, (first + i) % n, cli_timeout_ms(b->args), target_write, t);
        rc = target_sync(t, rc);
        if (rc != 0) {
            keep_error(b, c, rc);
        }
        if (rc == 0 || t->error[0] != '\0' || rc == FL_EDENIED) {
            return rc;
        }
    }
    return b->code;
}

/* Nodes that hear no leader will hear one when the election is over. */
static int fetch(struct backup *b, fl_client *c)
{
    const struct timespec pause = {.tv_nsec = (long)AGAIN_MS * 1000000};
    uint64_t until_ms = fli_clock_ms() + cli_timeout_ms(b->args);
    int rc = fetch_from_any(b, c);
    while (rc == FL_ENOLEADER && fli_clock_ms() + AGAIN_MS < until_ms) {
        (void)nanosleep(&pause, NULL);
        rc = fetch_from_any(b, c);
    }
    return rc;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Reads a file, and remembers what it says. */
static int inspect(struct backup *b, const char *path)
{
    struct machine *m = NULL;
    struct snapshot_error error;
    int rc = snapshot_read_backup(path, &b->meta, &m, &error);
    if (rc != 0) {
        (void)snprintf(b->target.error, sizeof b->target.error, "%s", error.text);
        return rc;
    }
    b->cluster_id = machine_cluster_id(m);
    b->last_token = machine_last_token(m);
    machine_get_counts(m, &b->counts);
    machine_destroy(m);
    return 0;
}

/* In UTC, to the second: for people; or as a part of a file name. */
static void format_time(uint64_t made_ms, bool for_file, char out[FLI_UTC_SIZE])
{
    size_t n = 0;
    fli_utc(out, made_ms);
    for (const char *p = out; *p != '.'; p++) {
        out[n] = *p;
        n += !for_file || (*p != '-' && *p != ':');
    }
    memcpy(out + n, "Z", 2);
}

/* Gives the file its name, when it is known to be good. Of the names in a folder, those of all
 * backups of this cluster begin alike, and end with the index. */
static int give_name(struct backup *b, uint64_t *removed)
{
    struct target *t = &b->target;
    const char *folder = b->args->arg[0];
    char start[64];
    char when[FLI_UTC_SIZE];
    int rc = inspect(b, t->part);
    if (rc != 0 || !b->keeps) {
        return rc != 0 ? rc : target_rename(t);
    }
    format_time(b->meta.made_ms, true, when);
    (void)snprintf(start, sizeof start, "fencelock-%016" PRIx64 "-", b->cluster_id);
    (void)snprintf(t->path, sizeof t->path, "%.3000s/%s%s-%020" PRIu64 SUFFIX, folder, start, when,
                   b->meta.index);
    rc = target_rename(t);
    return rc != 0 ? rc : target_keep(t, folder, start, b->args->number[CLI_OPT_KEEP], removed);
}

/* Opens the file to write. In a folder there may be several, each of another cluster. */
static int open_part(struct backup *b)
{
    struct target *t = &b->target;
    const char *argument = b->args->arg[0];
    int rc = FL_EBUSY;
    for (unsigned i = 0; i < (b->keeps ? PARTS : 1u) && rc == FL_EBUSY; i++) {
        (void)snprintf(t->path, sizeof t->path, "%.3000s%s", argument, b->keeps ? "/new" : "");
        (void)snprintf(t->part, sizeof t->part, i == 0 ? "%.3005s.part" : "%.3005s%u.part", t->path,
                       i + 1);
        rc = target_open(t);
    }
    return rc;
}

/* ---- the report ------------------------------------------------------------------------------ */

static void report(const struct backup *b, const char *path, uint64_t removed)
{
    const struct snapshot_meta *h = &b->meta;
    struct cli_out o = cli_result(b->args);
    struct cli_list f;
    char when[FLI_UTC_SIZE];
    char text[FLI_UTC_SIZE + 64];
    cli_list_one(&f, &o, 12);
    format_time(h->made_ms, false, when);
    cli_list_text(&f, "file", "file", CLI_BOLD, path);
    (void)snprintf(text, sizeof text, "%016" PRIx64, b->cluster_id);
    cli_list_number(&f, "cluster_id", "cluster", CLI_PLAIN, b->cluster_id, text);
    (void)snprintf(text, sizeof text, "%s by node %" PRIu64, when, h->node_id);
    cli_list_text(&f, "made", NULL, CLI_PLAIN, when);
    cli_list_number(&f, "made_ms", "made", CLI_PLAIN, h->made_ms, text);
    cli_list_count(&f, "node", h->node_id);
    (void)snprintf(text, sizeof text, "%" PRIu64 ", term %" PRIu64, h->index, h->term);
    cli_list_number(&f, "index", "index", CLI_PLAIN, h->index, text);
    cli_list_count(&f, "term", h->term);
    cli_list_u64(&f, "last_token", "last token", CLI_PLAIN, b->last_token);
    cli_list_u64(&f, "locks_held", "holds", CLI_PLAIN, b->counts.locks_held);
    cli_list_count(&f, "sessions", b->counts.sessions_explicit);
    cli_list_u64(&f, "waits", "waits", CLI_PLAIN, b->counts.waits);
    cli_list_u64(&f, "bytes", "bytes", CLI_PLAIN, h->file_size);
    (void)snprintf(text, sizeof text, "%" PRIu64 " older", removed);
    cli_list_number(&f, "removed", removed > 0 ? "removed" : NULL, CLI_PLAIN, removed, text);
    cli_out_end(&o);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int verify(struct backup *b)
{
    int rc = inspect(b, b->args->arg[0]);
    if (rc != 0) {
        (void)cli_fail(b->args, rc, b->target.error);
        return CLI_EXIT_NO;
    }
    report(b, b->args->arg[0], 0);
    return CLI_EXIT_DONE;
}

/* Whether the file can be made, before any node is asked. 0, or the exit code after a sentence. */
static int check(struct backup *b)
{
    struct target *t = &b->target;
    const char *argument = b->args->arg[0];
    const char *wrong = NULL;
    if (strlen(argument) == 0 || strlen(argument) > PATH_MOST) {
        wrong = "a file's name has 1 to 3000 bytes here";
    } else if (strcmp(argument, "-") == 0) {
        wrong = "- is no file: a backup is read back before it counts, so it needs one; name a "
                "file, and send that when the command has ended with 0";
    } else if (b->keeps && t->replace) {
        wrong = "--keep chooses a new name each time: leave --replace out";
    }
    if (wrong != NULL) {
        return cli_fail(b->args, FL_EINVAL, wrong);
    }
    (void)snprintf(t->path, sizeof t->path, "%s", argument);
    int rc = b->keeps ? 0 : target_check(t);
    return rc == 0 ? 0 : cli_fail(b->args, rc, t->error);
}

/* Takes no time from a node on the same machine; beyond the limit on file sizes, a write fails and
 * says so. */
static void step_back(void)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    (void)setpriority(PRIO_PROCESS, 0, NICE_VALUE);
}

static int make(struct backup *b, fl_client *c)
{
    struct target *t = &b->target;
    uint64_t removed = 0;
    int code = CLI_EXIT_DONE;
    step_back();
    t->replace = t->replace || b->keeps;
    int rc = open_part(b);
    if (rc == 0) {
        t->error[0] = '\0';
        rc = fetch(b, c);
    }
    rc = rc != 0 ? rc : give_name(b, &removed);
    if (rc == 0) {
        report(b, t->path, removed);
    } else if (t->error[0] != '\0') { /* it failed here, and at no node */
        (void)cli_fail_with(b->args, rc, t->error, NULL);
        code = CLI_EXIT_NO;
    } else {
        code = cli_fail(b->args, rc, b->error);
    }
    target_fini(t);
    return code;
}

int cli_run_backup(const struct cli_args *a)
{
    static struct backup b;
    b = (struct backup){.args = a,
                        .keeps = cli_has(a, CLI_OPT_KEEP),
                        .target = {.fd = -1, .replace = cli_has(a, CLI_OPT_REPLACE)}};
    if (cli_has(a, CLI_OPT_VERIFY)) {
        return verify(&b);
    }
    int code = check(&b);
    fl_client *c = code == 0 ? cli_client_create(a, &code) : NULL;
    if (c != NULL) {
        code = make(&b, c);
    }
    fl_close(c);
    return code;
}
