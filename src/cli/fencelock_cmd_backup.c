/* fencelock_cmd_backup.c: `fencelock backup`: the state of a running cluster as a file, and whether
 * a file is one.
 *
 * A backup is written beside its place, synced, read back and verified as a whole, and only then
 * given its name: what has the name can be restored. */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/backup_target.h"
#include "cli/fencelock_common.h"
#include "consensus/backup_file.h"

#define PREFIX "fencelock-"
#define STATUS_MS UINT64_C(2000)

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
static int fetch(fl_client *c, const struct cli_args *a, struct backup_target *t)
{
    int rc = FL_ENOCONN;
    uint64_t timeout_ms = cli_has(a, CLI_OPT_TIMEOUT) ? a->number[CLI_OPT_TIMEOUT] : 0;
    size_t n = fl_client_nodes(c);
    size_t first = n > 1 ? leader_of(c) : 0;
    for (size_t i = 0; i < n; i++) {
        rc = backup_target_open(t);
        if (rc != 0) {
            return rc;
        }
        rc = fl_backup(c, (first + i) % n, timeout_ms, backup_target_write, t);
        rc = backup_target_close(t, rc);
        if (rc == 0 || t->error[0] != '\0' || rc == FL_EDENIED) {
            return rc;
        }
    }
    return rc;
}

/* ---- its name in a folder -------------------------------------------------------------------- */

static void name_in_folder(const char *folder, const struct backup_header *h,
                           char out[BACKUP_PATH_SIZE])
{
    char when[32];
    time_t seconds = (time_t)(h->made_ms / 1000);
    struct tm utc;
    (void)gmtime_r(&seconds, &utc);
    (void)strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
    (void)snprintf(out, BACKUP_PATH_SIZE,
                   "%.3000s/" PREFIX "%016" PRIx64 "-%s-%020" PRIu64 BACKUP_SUFFIX, folder,
                   h->cluster_id, when, h->index);
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void say(const struct cli_args *a, const char *path, const struct backup_header *h,
                const struct machine_counts *counts, uint64_t removed)
{
    struct cli_style style = cli_style_of(a);
    char when[64];
    backup_say_when(h->made_ms, when);
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
                   char error[BACKUP_ERROR_SIZE])
{
    struct machine *m = NULL;
    int rc = backup_file_read(path, h, &m, error, BACKUP_ERROR_SIZE);
    if (rc == 0) {
        machine_get_counts(m, counts);
        machine_destroy(m);
    }
    return rc;
}

static int verify(const struct cli_args *a)
{
    char error[BACKUP_ERROR_SIZE] = "";
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
static int settle(const struct cli_args *a, struct backup_target *t, struct backup_header *h,
                  struct machine_counts *counts, uint64_t *removed)
{
    int rc = inspect(t->part, h, counts, t->error);
    if (rc != 0) {
        return rc;
    }
    if (cli_has(a, CLI_OPT_KEEP)) {
        name_in_folder(a->arg[0], h, t->path);
    }
    rc = backup_target_settle(t);
    if (rc == 0 && cli_has(a, CLI_OPT_KEEP)) {
        char start[64]; /* the oldest of this cluster go */
        (void)snprintf(start, sizeof start, PREFIX "%016" PRIx64 "-", h->cluster_id);
        rc = backup_target_keep(t, a->arg[0], start, a->number[CLI_OPT_KEEP], removed);
    }
    return rc;
}

static int backup(const struct cli_args *a, fl_client *c)
{
    static struct backup_target t;
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
    backup_step_back();
    code = backup(a, c);
    fl_client_destroy(c);
    return code;
}
