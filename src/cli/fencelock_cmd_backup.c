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
#include <stdarg.h>
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
#include "cli/node_list.h"
#include "snapshot/file.h"

#define STATUS_MS UINT64_C(2000)
#define AGAIN_MS UINT64_C(100)
#define PATH_MOST 3000u /* the names of the files in a folder come behind it */
#define PARTS 16u       /* so many may be at work in a folder */
#define NICE_VALUE 10
#define KEPT_MAX 10000u
#define SYNC_BYTES (UINT64_C(1) << 20)
#define PAUSE_MAX_NS UINT64_C(50000000)
#define PATH_SIZE 4096u
#define SUFFIX ".backup"

struct backup {
    const struct cli_args *args;
    bool keeps;   /* the argument is a folder, and the name says what is in the file */
    bool replace; /* what has the name; otherwise it is kept, and an error */
    char path[PATH_SIZE], part[PATH_SIZE]; /* the bytes go to `part` */
    int fd;                                /* of `part`; -1: none */
    uint64_t unsynced;
    struct snapshot_meta meta;
    uint64_t cluster_id;
    fl_token last_token;
    struct machine_counts counts;
    char error[1024]; /* of the node that says most */
};

/* ---- the temporary file ---------------------------------------------------------------------- */

static void drop_part(const struct backup *b)
{
    if (b->fd >= 0) { /* it has that name still */
        (void)unlink(b->part);
        (void)close(b->fd);
    }
}

/* What is wrong on this machine ends the process. FL_EINVAL: in the words of the command. */
_Noreturn static void FLI_PRINTF(3, 4)
    refuse(const struct backup *b, int code, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    drop_part(b);
    (void)cli_fail_with(b->args, code, text, NULL);
    cli_end(code == FL_EINVAL ? CLI_EXIT_USAGE : CLI_EXIT_NO);
}

_Noreturn static void disk_error(const struct backup *b, const char *what, const char *path)
{
    refuse(b, FL_EIO, "cannot %s %.900s: %s", what, path, strerror(errno));
}

/* One sync of the whole file at the end would hold up the log of a node on the same disk. */
static void sync_and_pause(struct backup *b)
{
    uint64_t start_ns = fli_clock_ns();
    if (fdatasync(b->fd) != 0) {
        disk_error(b, "sync", b->part);
    }
    uint64_t pause_ns = fli_clock_ns() - start_ns;
    pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
    struct timespec pause = {.tv_nsec = (long)pause_ns};
    (void)nanosleep(&pause, NULL);
    b->unsynced = 0;
}

/* A sink. */
static int write_part(void *arg, const void *data, size_t len)
{
    struct backup *b = arg;
    if (fli_write_all(b->fd, data, len) != 0) {
        disk_error(b, "write", b->part);
    }
    b->unsynced += len;
    if (b->unsynced >= SYNC_BYTES) {
        sync_and_pause(b);
    }
    return 0;
}

/* Whether `path` can be had at all, before anything is fetched. */
static void check_path(const struct backup *b)
{
    struct stat st;
    if (lstat(b->path, &st) != 0) {
        return; /* whatever is wrong with the name, making the file says it */
    }
    if (S_ISDIR(st.st_mode)) {
        refuse(b, FL_EINVAL, "%.800s is a folder: name a file in it, or add --keep N", b->path);
    }
    if (!b->replace) {
        refuse(b, FL_EEXISTS,
               "%.800s exists, and may be the only good backup: choose another name, let "
               "--keep N FOLDER choose one, or add --replace",
               b->path);
    }
    if (!S_ISREG(st.st_mode)) {
        refuse(b, FL_EINVAL, "%.800s is no regular file: choose another", b->path);
    }
}

/* Makes `part`, or empties it for another try; no other process writes it until it is closed. In a
 * folder there may be several, each of another cluster. */
static void open_part(struct backup *b)
{
    b->unsynced = 0;
    if (b->fd >= 0) {
        if (ftruncate(b->fd, 0) != 0 || lseek(b->fd, 0, SEEK_SET) != 0) {
            disk_error(b, "empty", b->part);
        }
        return;
    }
    (void)snprintf(b->path, sizeof b->path, "%.3000s%s", b->args->arg[0], b->keeps ? "/new" : "");
    for (unsigned i = 0; i < (b->keeps ? PARTS : 1u) && b->fd < 0; i++) {
        (void)snprintf(b->part, sizeof b->part, i == 0 ? "%.3005s.part" : "%.3005s%u.part", b->path,
                       i + 1);
        b->fd = fli_part_open(b->part);
        if (b->fd < 0 && errno != EBUSY) {
            disk_error(b, "make", b->part);
        }
    }
    if (b->fd < 0) {
        refuse(b, FL_EBUSY, "%.800s is being written by another process", b->path);
    }
}

static void rename_part(struct backup *b)
{
    if (fli_part_publish(b->part, b->path, b->replace) != 0) {
        int error = errno;
        if (error == EEXIST) {
            check_path(b);
        }
        errno = error; /* what was there may have gone */
        disk_error(b, "rename or sync", b->path);
    }
    (void)close(b->fd); /* `part` is a name that another process may take now */
    b->fd = -1;
}

/* ---- older backups in the same folder -------------------------------------------------------- */

/* By the number at the end of the name, which has the same number of digits in all, and does not
 * depend on a clock. */
static int by_number(const void *a, const void *b)
{
    const char *x = *(char *const *)a;
    const char *y = *(char *const *)b;
    int order = strcmp(strrchr(x, '-'), strrchr(y, '-'));
    return order != 0 ? order : strcmp(x, y);
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
    size_t len = strlen(name);
    bool is_backup = strncmp(name, l->start, strlen(l->start)) == 0 && len > sizeof SUFFIX &&
                     strcmp(name + len - (sizeof SUFFIX - 1), SUFFIX) == 0;
    if (!is_backup || strcmp(name, l->made) == 0 || l->n == KEPT_MAX) {
        return 0;
    }
    l->names[l->n] = strdup(name);
    return l->names[l->n++] != NULL ? 0 : -ENOMEM;
}

/* Deletes all but the newest of the folder, of which --keep says how many stay. Returns how many
 * were deleted. */
static uint64_t remove_older(const struct backup *b, const char *start)
{
    static struct listing l;
    char path[PATH_SIZE];
    l = (struct listing){.start = start, .made = strrchr(b->path, '/') + 1};
    errno = -fli_folder_each(AT_FDCWD, b->args->arg[0], list_one, &l);
    if (errno != 0) {
        disk_error(b, "read the folder", b->args->arg[0]);
    }
    qsort(l.names, l.n, sizeof l.names[0], by_number);
    uint64_t keep = b->args->number[CLI_OPT_KEEP];
    size_t n = l.n >= keep ? l.n - (size_t)keep + 1 : 0; /* the one that was made counts */
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%.3000s/%.255s", b->args->arg[0], l.names[i]);
        if (unlink(path) != 0) {
            disk_error(b, "remove the old backup", path);
        }
    }
    return n;
}

/* ---- the nodes ------------------------------------------------------------------------------- */

/* The leader has applied all that was answered; a follower may be a little behind. */
static size_t leader_of(fl_client *c)
{
    static struct seen_nodes seen;
    see_nodes(c, STATUS_MS, &seen);
    return seen.leader != NULL ? (size_t)(seen.leader - seen.node) : 0;
}

/* Asks one node after another, the leader first, until one has sent a whole backup. A node that is
 * up and hears no leader explains more than one that is down. */
static int fetch_from_any(struct backup *b, fl_client *c)
{
    size_t n = fl_client_nodes(c);
    size_t first = n > 1 ? leader_of(c) : 0;
    int code = 0;
    int rc = FL_ENOCONN;
    for (size_t i = 0; i < n && rc != 0 && rc != FL_EDENIED; i++) {
        open_part(b);
        rc = fl_backup(c, (first + i) % n, cli_timeout_ms(b->args), write_part, b);
        if (rc != 0 && (code != FL_ENOLEADER || rc != FL_ENOCONN)) {
            code = rc;
            (void)snprintf(b->error, sizeof b->error, "%s", fl_client_error(c));
        }
    }
    if (rc == 0 && fsync(b->fd) != 0) {
        disk_error(b, "sync", b->part);
    }
    return rc == 0 ? 0 : code;
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
static void inspect(struct backup *b, const char *path)
{
    struct machine *m = NULL;
    struct snapshot_error error;
    int rc = snapshot_read_backup(path, &b->meta, &m, &error);
    if (rc != 0) {
        drop_part(b);
        (void)cli_fail_with(b->args, rc, error.text, NULL);
        cli_end(CLI_EXIT_NO);
    }
    b->cluster_id = machine_cluster_id(m);
    b->last_token = machine_last_token(m);
    machine_get_counts(m, &b->counts);
    machine_destroy(m);
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
 * backups of this cluster begin alike, and end with the index. Returns how many were deleted. */
static uint64_t give_name(struct backup *b)
{
    char start[64];
    char when[FLI_UTC_SIZE];
    inspect(b, b->part);
    if (b->keeps) {
        format_time(b->meta.made_ms, true, when);
        (void)snprintf(start, sizeof start, "fencelock-%016" PRIx64 "-", b->cluster_id);
        (void)snprintf(b->path, sizeof b->path, "%.3000s/%s%s-%020" PRIu64 SUFFIX, b->args->arg[0],
                       start, when, b->meta.index);
    }
    rename_part(b);
    return b->keeps ? remove_older(b, start) : 0;
}

/* ---- the report ------------------------------------------------------------------------------ */

static void report(const struct backup *b, const char *path, uint64_t removed)
{
    const struct snapshot_meta *h = &b->meta;
    struct cli_out o = cli_result(b->args);
    struct cli_list f;
    char when[FLI_UTC_SIZE];
    cli_list_one(&f, &o, 12);
    format_time(h->made_ms, false, when);
    cli_list_text(&f, "file", "file", CLI_BOLD, path);
    cli_list_say(&f, "cluster", "%016" PRIx64, b->cluster_id);
    cli_list_count(&f, "cluster_id", b->cluster_id);
    cli_list_say(&f, "made", "%s by node %" PRIu64, when, h->node_id);
    cli_list_text(&f, "made", NULL, CLI_PLAIN, when);
    cli_list_count(&f, "made_ms", h->made_ms);
    cli_list_count(&f, "node", h->node_id);
    cli_list_say(&f, "index", "%" PRIu64 ", term %" PRIu64, h->index, h->term);
    cli_list_count(&f, "index", h->index);
    cli_list_count(&f, "term", h->term);
    cli_list_u64(&f, "last_token", "last token", CLI_PLAIN, b->last_token);
    cli_list_u64(&f, "locks_held", "holds", CLI_PLAIN, b->counts.locks_held);
    cli_list_count(&f, "sessions", b->counts.sessions_explicit);
    cli_list_u64(&f, "waits", "waits", CLI_PLAIN, b->counts.waits);
    cli_list_u64(&f, "bytes", "bytes", CLI_PLAIN, h->file_size);
    cli_list_count(&f, "removed", removed);
    cli_list_say(&f, removed > 0 ? "removed" : NULL, "%" PRIu64 " older", removed);
    cli_out_end(&o);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Whether the file can be made, before any node is asked. */
static void check(struct backup *b)
{
    const char *argument = b->args->arg[0];
    if (strlen(argument) == 0 || strlen(argument) > PATH_MOST) {
        refuse(b, FL_EINVAL, "a file's name has 1 to 3000 bytes here");
    }
    if (strcmp(argument, "-") == 0) {
        refuse(b, FL_EINVAL,
               "- is no file: a backup is read back before it counts, so it needs one; name a "
               "file, and send that when the command has ended with 0");
    }
    if (b->keeps && b->replace) {
        refuse(b, FL_EINVAL, "--keep chooses a new name each time: leave --replace out");
    }
    if (!b->keeps) {
        (void)snprintf(b->path, sizeof b->path, "%s", argument);
        check_path(b);
    }
}

/* Takes no time from a node on the same machine; beyond the limit on file sizes, a write fails and
 * says so. */
static void step_back(void)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    (void)setpriority(PRIO_PROCESS, 0, NICE_VALUE);
}

static int make(struct backup *b)
{
    check(b);
    fl_client *c = cli_client_create(b->args, NULL);
    step_back();
    b->replace = b->replace || b->keeps;
    open_part(b);
    int rc = fetch(b, c);
    if (rc == 0) {
        report(b, b->path, give_name(b));
    } else {
        drop_part(b);
    }
    fl_close(c);
    return rc == 0 ? CLI_EXIT_DONE : cli_fail(b->args, rc, b->error);
}

int cli_run_backup(const struct cli_args *a)
{
    static struct backup b;
    b = (struct backup){.args = a,
                        .keeps = cli_has(a, CLI_OPT_KEEP),
                        .replace = cli_has(a, CLI_OPT_REPLACE),
                        .fd = -1};
    if (!cli_has(a, CLI_OPT_VERIFY)) {
        return make(&b);
    }
    inspect(&b, a->arg[0]);
    report(&b, a->arg[0], 0);
    return CLI_EXIT_DONE;
}
