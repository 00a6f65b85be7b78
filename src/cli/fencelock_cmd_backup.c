/* fencelock_cmd_backup.c: `fencelock backup`: writes the state of a running cluster to a file, or
 * verifies such a file. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/backup_job.h"
#include "consensus/backup_file.h"

#define STATUS_MS UINT64_C(2000)
#define AGAIN_MS UINT64_C(100)
#define ERROR_SIZE 512u

struct cluster_job {
    struct backup_job job; /* first */
    fl_client *client;
    struct backup_header header;
    struct machine_counts counts;
    int code; /* of the error that says most, and the error */
    char error[ERROR_SIZE];
};

static const struct cluster_job *cluster_job(const struct backup_job *j)
{
    return (const struct cluster_job *)j;
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
static void keep_error(struct cluster_job *c, int rc)
{
    if (c->code != FL_ENOLEADER || rc != FL_ENOCONN) {
        c->code = rc;
        (void)snprintf(c->error, sizeof c->error, "%s", fl_client_error(c->client));
    }
}

/* Asks one node after another, the leader first, until one has sent a whole backup or the local
 * disk fails. */
static int fetch_from_any(struct backup_job *j, struct backup_target *t)
{
    struct cluster_job *job = (struct cluster_job *)j;
    fl_client *c = job->client;
    int rc = FL_ENOCONN;
    uint64_t timeout_ms = cli_timeout_ms(j->args);
    job->code = 0;
    size_t n = fl_client_nodes(c);
    size_t first = n > 1 ? leader_of(c) : 0;
    for (size_t i = 0; i < n; i++) {
        rc = backup_target_open(t);
        if (rc != 0) {
            return rc;
        }
        rc = fl_backup(c, (first + i) % n, timeout_ms, backup_target_write, t);
        rc = backup_target_sync(t, rc);
        if (rc != 0) {
            keep_error(job, rc);
        }
        if (rc == 0 || t->error[0] != '\0' || rc == FL_EDENIED) {
            return rc;
        }
    }
    return job->code;
}

/* Nodes that hear no leader will hear one when the election is over. */
static int fetch(struct backup_job *j, struct backup_target *t)
{
    const struct timespec pause = {.tv_nsec = (long)AGAIN_MS * 1000000};
    uint64_t until_ms = fli_clock_ms() + cli_timeout_ms(j->args);
    int rc = fetch_from_any(j, t);
    while (rc == FL_ENOLEADER && fli_clock_ms() + AGAIN_MS < until_ms) {
        (void)nanosleep(&pause, NULL);
        rc = fetch_from_any(j, t);
    }
    return rc;
}

/* ---- its name in a folder -------------------------------------------------------------------- */

static void name(const struct backup_job *j, char start[BACKUP_NAME_SIZE],
                 char rest[BACKUP_NAME_SIZE])
{
    const struct backup_header *h = &cluster_job(j)->header;
    char when[BACKUP_WHEN_SIZE];
    backup_format_file_time(h->made_ms, when);
    (void)snprintf(start, BACKUP_NAME_SIZE, "fencelock-%016" PRIx64 "-", h->cluster_id);
    (void)snprintf(rest, BACKUP_NAME_SIZE, "%s-%020" PRIu64, when, h->index);
}

/* ---- the report ------------------------------------------------------------------------------ */

static void report(const struct backup_job *j, const char *path, uint64_t removed)
{
    const struct backup_header *h = &cluster_job(j)->header;
    const struct machine_counts *counts = &cluster_job(j)->counts;
    struct cli_style style = cli_style_of(j->args);
    char when[BACKUP_WHEN_SIZE];
    backup_format_time(h->made_ms, when);
    if (style.json) {
        struct fli_json json = cli_json_begin();
        fli_json_bytes(&json, "file", fl_str(path));
        fli_json_u64(&json, "cluster_id", h->cluster_id);
        fli_json_text(&json, "made", when);
        fli_json_u64(&json, "made_ms", h->made_ms);
        fli_json_u64(&json, "node", h->node_id);
        fli_json_u64(&json, "index", h->index);
        fli_json_u64(&json, "term", h->term);
        fli_json_u64(&json, "last_token", h->last_token);
        fli_json_u64(&json, "locks_held", counts->locks_held);
        fli_json_u64(&json, "sessions", counts->sessions_explicit);
        fli_json_u64(&json, "waits", counts->waits);
        fli_json_u64(&json, "bytes", h->body + BACKUP_HEADER);
        fli_json_u64(&json, "removed", removed);
        cli_json_print(&json, stdout);
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

static int inspect(struct backup_job *j, const char *path, char error[BACKUP_ERROR_SIZE])
{
    struct cluster_job *c = (struct cluster_job *)j;
    struct machine *m = NULL;
    int rc = backup_file_read(path, &c->header, &m, error, BACKUP_ERROR_SIZE);
    if (rc == 0) {
        machine_get_counts(m, &c->counts);
        machine_destroy(m);
    }
    return rc;
}

static const char *connection_error(const struct backup_job *j)
{
    return cluster_job(j)->error;
}

int cli_run_backup(const struct cli_args *a)
{
    struct cluster_job c = {.job = {a, fetch, inspect, name, report, connection_error, true}};
    int code = CLI_EXIT_DONE;
    if (backup_job_without_connection(&c.job, &code)) {
        return code;
    }
    c.client = cli_client_create(a, &code);
    if (c.client == NULL) {
        return code;
    }
    code = backup_job_run(&c.job);
    fl_close(c.client);
    return code;
}
