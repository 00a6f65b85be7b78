/* fencelock_cmd_backup.c: `fencelock backup`: the state of a running cluster as a file, and whether
 * a file is one.
 *
 * A backup is written beside its place, synced, read back and verified as a whole, and only then
 * given its name: what has the name can be restored. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/fencelock_common.h"
#include "consensus/backup_file.h"

#define PATH_SIZE 4096u
#define ERROR_SIZE 1024u
#define PREFIX "fencelock-"
#define SUFFIX ".backup"
#define KEPT_MAX 10000u
#define STATUS_MS UINT64_C(2000)

struct target {
    char path[PATH_SIZE], part[PATH_SIZE];
    int fd;
    uint64_t bytes;
    char error[ERROR_SIZE]; /* of the disk; "" for none */
};

/* ---- the file -------------------------------------------------------------------------------- */

static int disk_error(struct target *t, const char *what, const char *path)
{
    (void)snprintf(t->error, sizeof t->error, "cannot %s %.900s: %s", what, path, strerror(errno));
    return FL_EIO;
}

static int write_all(void *arg, const void *data, size_t len)
{
    struct target *t = arg;
    const uint8_t *p = data;
    while (len > 0) {
        ssize_t n = write(t->fd, p, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return disk_error(t, "write", t->part);
        }
        p += n;
        len -= (size_t)n;
        t->bytes += (uint64_t)n;
    }
    return 0;
}

static int sync_folder(struct target *t)
{
    char folder[PATH_SIZE];
    const char *slash = strrchr(t->path, '/');
    int len = slash == NULL ? 0 : (int)(slash - t->path);
    (void)snprintf(folder, sizeof folder, "%.*s", len, t->path);
    const char *name = slash == NULL ? "." : len == 0 ? "/" : folder;
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int rc = good ? 0 : disk_error(t, "sync", name);
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

static int open_part(struct target *t)
{
    (void)snprintf(t->part, sizeof t->part, "%.4000s.part", t->path);
    /* What is inside names locks and users: nobody else reads it. */
    t->fd = open(t->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    t->bytes = 0;
    return t->fd >= 0 ? 0 : disk_error(t, "make", t->part);
}

static int close_part(struct target *t, int rc)
{
    if (rc == 0 && fsync(t->fd) != 0) {
        rc = disk_error(t, "sync", t->part);
    }
    close(t->fd);
    return rc;
}

/* ---- the nodes ------------------------------------------------------------------------------- */

/* The leader has applied all that was answered; a follower may be a little behind. */
static size_t leader_of(fl_client *c)
{
    struct fl_node_status s;
    size_t n = fl_client_nodes(c);
    for (size_t i = 0; i < n; i++) {
        if (fl_node_ask(c, i, STATUS_MS, &s) == 0 && strcmp(s.role, "leader") == 0) {
            return i;
        }
    }
    return 0;
}

/* One node after the other, the leader first, until one gives a whole backup or the disk here
 * fails. */
static int fetch(fl_client *c, const struct cli_args *a, struct target *t)
{
    int rc = FL_ENOCONN;
    uint64_t timeout_ms = cli_has(a, CLI_OPT_TIMEOUT) ? a->number[CLI_OPT_TIMEOUT] : 0;
    size_t n = fl_client_nodes(c);
    size_t first = n > 1 ? leader_of(c) : 0;
    for (size_t i = 0; i < n; i++) {
        rc = open_part(t);
        if (rc != 0) {
            return rc;
        }
        rc = fl_backup(c, (first + i) % n, timeout_ms, write_all, t);
        rc = close_part(t, rc);
        if (rc == 0 || t->error[0] != '\0' || rc == FL_EDENIED) {
            return rc;
        }
    }
    return rc;
}

/* ---- many in a folder ------------------------------------------------------------------------ */

static void name_in_folder(const char *folder, const struct backup_header *h, char out[PATH_SIZE])
{
    char when[32];
    time_t seconds = (time_t)(h->made_ms / 1000);
    struct tm utc;
    (void)gmtime_r(&seconds, &utc);
    (void)strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
    (void)snprintf(out, PATH_SIZE, "%.3000s/" PREFIX "%016" PRIx64 "-%s-%020" PRIu64 SUFFIX, folder,
                   h->cluster_id, when, h->index);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_one(const char *name, const char *start)
{
    size_t len = strlen(name);
    return strncmp(name, start, strlen(start)) == 0 && len > sizeof SUFFIX &&
           strcmp(name + len - (sizeof SUFFIX - 1), SUFFIX) == 0;
}

/* Backups of one cluster, by name, which is by time. */
static size_t list_folder(const char *folder, const char *start, char **names)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL && n < KEPT_MAX;
         e = readdir(dir)) {
        if (is_one(e->d_name, start)) {
            names[n++] = strdup(e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    qsort(names, n, sizeof *names, by_name);
    return n;
}

/* Removes the oldest of this cluster. *ret_removed: how many. */
static int keep_newest(struct target *t, const char *folder, uint64_t cluster_id, uint64_t keep,
                       uint64_t *ret_removed)
{
    static char *names[KEPT_MAX];
    char start[64];
    char path[PATH_SIZE];
    (void)snprintf(start, sizeof start, PREFIX "%016" PRIx64 "-", cluster_id);
    size_t n = list_folder(folder, start, names);
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%.3000s/%.255s", folder, names[i]);
        if (i + keep < n && rc == 0) {
            rc = unlink(path) == 0 ? 0 : disk_error(t, "remove", path);
            *ret_removed += rc == 0;
        }
        free(names[i]);
    }
    return rc;
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void say_when(uint64_t made_ms, char out[64])
{
    time_t seconds = (time_t)(made_ms / 1000);
    struct tm utc;
    (void)gmtime_r(&seconds, &utc);
    (void)strftime(out, 64, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

static void say(const struct cli_args *a, const char *path, const struct backup_header *h,
                const struct machine_counts *counts, uint64_t removed)
{
    struct cli_style style = cli_style_of(a);
    char when[64];
    say_when(h->made_ms, when);
    if (style.json) {
        struct cli_json j;
        cli_json_init(&j, stdout);
        cli_json_object(&j, NULL);
        cli_json_bytes(&j, "file", fl_str(path));
        cli_json_u64(&j, "cluster_id", h->cluster_id);
        cli_json_text(&j, "made", when);
        cli_json_u64(&j, "made_ms", h->made_ms);
        cli_json_u64(&j, "node", h->node_id);
        cli_json_u64(&j, "index", h->index);
        cli_json_u64(&j, "term", h->term);
        cli_json_u64(&j, "last_token", h->last_token);
        cli_json_u64(&j, "locks_held", counts->locks_held);
        cli_json_u64(&j, "sessions", counts->sessions_explicit);
        cli_json_u64(&j, "waits", counts->waits);
        cli_json_u64(&j, "bytes", h->body + BACKUP_HEADER);
        cli_json_u64(&j, "removed", removed);
        cli_json_end_object(&j);
        cli_json_finish(&j);
        return;
    }
    const char *on = cli_colour_on(CLI_BOLD, style.colours);
    const char *off = cli_colour_off(CLI_BOLD, style.colours);
    (void)printf("file        %s", on);
    cli_print_safe(stdout, fl_str(path));
    (void)printf("%s\ncluster     %016" PRIx64 "\nmade        %s by node %" PRIu64
                 "\nindex       %" PRIu64 ", term %" PRIu64 "\nlast token  %" PRIu64
                 "\nholds       %" PRIu64 "\nwaits       %" PRIu64 "\nbytes       %" PRIu64 "\n",
                 off, h->cluster_id, when, h->node_id, h->index, h->term, h->last_token,
                 counts->locks_held, counts->waits, h->body + (uint64_t)BACKUP_HEADER);
    if (removed > 0) {
        (void)printf("removed     %" PRIu64 " older\n", removed);
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

static int inspect(const char *path, struct backup_header *h, struct machine_counts *counts,
                   char error[ERROR_SIZE])
{
    struct machine *m = NULL;
    int rc = backup_file_read(path, h, &m, error, ERROR_SIZE);
    if (rc == 0) {
        machine_get_counts(m, counts);
        machine_destroy(m);
    }
    return rc;
}

static int verify(const struct cli_args *a)
{
    char error[ERROR_SIZE] = "";
    struct backup_header h;
    struct machine_counts counts;
    int rc = inspect(a->arg[0], &h, &counts, error);
    if (rc != 0) {
        (void)cli_fail(a, rc, error, NULL, NULL);
        return CLI_EXIT_NO;
    }
    say(a, a->arg[0], &h, &counts, 0);
    return CLI_EXIT_DONE;
}

/* With --keep the argument is a folder, and the name follows from what is inside. */
static int settle(const struct cli_args *a, struct target *t, struct backup_header *h,
                  struct machine_counts *counts, uint64_t *removed)
{
    int rc = inspect(t->part, h, counts, t->error);
    if (rc != 0) {
        return rc;
    }
    if (cli_has(a, CLI_OPT_KEEP)) {
        name_in_folder(a->arg[0], h, t->path);
    }
    if (rename(t->part, t->path) != 0) {
        return disk_error(t, "rename", t->part);
    }
    rc = sync_folder(t);
    if (rc == 0 && cli_has(a, CLI_OPT_KEEP)) {
        rc = keep_newest(t, a->arg[0], h->cluster_id, a->number[CLI_OPT_KEEP], removed);
    }
    return rc;
}

static int backup(const struct cli_args *a, fl_client *c)
{
    static struct target t;
    struct backup_header h;
    struct machine_counts counts;
    uint64_t removed = 0;
    (void)snprintf(t.path, sizeof t.path, cli_has(a, CLI_OPT_KEEP) ? "%.4000s/new" : "%.4000s",
                   a->arg[0]);
    int rc = fetch(c, a, &t);
    rc = rc != 0 ? rc : settle(a, &t, &h, &counts, &removed);
    if (rc != 0) {
        (void)unlink(t.part);
        int code = cli_fail(a, rc, t.error[0] != '\0' ? t.error : fl_client_error(c), NULL, NULL);
        return t.error[0] != '\0' ? CLI_EXIT_NO : code;
    }
    say(a, t.path, &h, &counts, removed);
    return CLI_EXIT_DONE;
}

int cli_run_backup(const struct cli_args *a)
{
    if (cli_has(a, CLI_OPT_VERIFY)) {
        return verify(a);
    }
    if (cli_has(a, CLI_OPT_KEEP) && a->number[CLI_OPT_KEEP] == 0) {
        cli_complain("--keep must be at least 1: it counts the new one as well");
        return CLI_EXIT_USAGE;
    }
    int code = CLI_EXIT_DONE;
    fl_client *c = cli_client_create(a, &code);
    if (c == NULL) {
        return code;
    }
    code = backup(a, c);
    fl_client_destroy(c);
    return code;
}
