/* fencelock_cmd_store_backup.c: `fencelock store backup`: writes all keys and marks of a running
 * storage to a file, or verifies such a file. */
#include <inttypes.h>
#include <string.h>

#include "cli/backup_job.h"
#include "store/backup_format.h"

struct store_job {
    struct backup_job job; /* first */
    fl_store *store;
    struct store_backup_facts facts;
};

static const struct store_job *store_job(const struct backup_job *j)
{
    return (const struct store_job *)j;
}

static void name(const struct backup_job *j, char start[BACKUP_NAME_SIZE],
                 char rest[BACKUP_NAME_SIZE])
{
    const struct store_backup_facts *f = &store_job(j)->facts;
    char when[BACKUP_WHEN_SIZE];
    backup_format_file_time(f->made_ms, when);
    (void)snprintf(start, BACKUP_NAME_SIZE, "fencelock-store-");
    (void)snprintf(rest, BACKUP_NAME_SIZE, "%s-%020" PRIu64, when, f->commit);
}

static void report(const struct backup_job *j, const char *path, uint64_t removed)
{
    const struct store_backup_facts *f = &store_job(j)->facts;
    struct cli_style style = cli_style_of(j->args);
    char when[BACKUP_WHEN_SIZE];
    backup_format_time(f->made_ms, when);
    if (style.json) {
        struct fli_json json = cli_json_begin();
        fli_json_bytes(&json, "file", fl_str(path));
        fli_json_text(&json, "made", when);
        fli_json_u64(&json, "made_ms", f->made_ms);
        fli_json_u64(&json, "commit", f->commit);
        fli_json_u64(&json, "keys", f->keys);
        fli_json_u64(&json, "deleted_keys", f->tombstones);
        fli_json_u64(&json, "marks", f->marks);
        fli_json_u64(&json, "highest_mark", f->highest_mark);
        fli_json_u64(&json, "bytes", f->bytes);
        fli_json_u64(&json, "removed", removed);
        cli_json_print(&json, stdout);
        return;
    }
    const char *on = cli_colour_on(CLI_BOLD, style.colours);
    const char *off = cli_colour_off(CLI_BOLD, style.colours);
    (void)printf("file          %s", on);
    cli_print_safe(stdout, fl_str(path));
    (void)printf("%s\nmade          %s\ncommit        %" PRIu64 "\nkeys          %" PRIu64
                 "\ndeleted keys  %" PRIu64 "\nmarks         %" PRIu64 "\nhighest mark  %" PRIu64
                 "\nbytes         %" PRIu64 "\n",
                 off, when, f->commit, f->keys, f->tombstones, f->marks, f->highest_mark, f->bytes);
    if (removed > 0) {
        (void)printf("removed       %" PRIu64 " older\n", removed);
    }
}

static int inspect(struct backup_job *j, const char *path, char error[BACKUP_ERROR_SIZE])
{
    struct store_job *s = (struct store_job *)j;
    return store_backup_read(path, NULL, NULL, &s->facts, error, BACKUP_ERROR_SIZE);
}

static int fetch(struct backup_job *j, struct backup_target *t)
{
    fl_store *s = store_job(j)->store;
    int rc = backup_target_open(t);
    if (rc != 0) {
        return rc;
    }
    uint64_t timeout_ms = j->args->number[CLI_OPT_TIMEOUT];
    return backup_target_sync(t, fl_store_backup(s, timeout_ms, backup_target_write, t));
}

static const char *connection_error(const struct backup_job *j)
{
    return fl_store_error(store_job(j)->store);
}

int cli_run_store_backup(const struct cli_args *a)
{
    struct store_job s = {.job = {a, fetch, inspect, name, report, connection_error, false}};
    int code = CLI_EXIT_DONE;
    if (backup_job_without_connection(&s.job, &code)) {
        return code;
    }
    s.store = cli_store_create(a, &code);
    if (s.store == NULL) {
        return code;
    }
    code = backup_job_run(&s.job);
    fl_store_destroy(s.store);
    return code;
}
