/* fencelock_cmd_store_backup.c: `fencelock store backup`: all keys and marks of a running storage
 * as a file, and whether a file is one. As in fencelock_cmd_backup.c, what has the name was read
 * back. */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/backup_target.h"
#include "cli/fencelock_common.h"
#include "store/backup_format.h"

#define PREFIX "fencelock-store-"

static void name_in_folder(const char *folder, const struct store_backup_facts *f,
                           char out[BACKUP_PATH_SIZE])
{
    char when[32];
    time_t seconds = (time_t)(f->made_ms / 1000);
    struct tm utc;
    (void)gmtime_r(&seconds, &utc);
    (void)strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
    (void)snprintf(out, BACKUP_PATH_SIZE, "%.3000s/" PREFIX "%s-%020" PRIu64 BACKUP_SUFFIX, folder,
                   when, f->commit);
}

static void say(const struct cli_args *a, const char *path, const struct store_backup_facts *f,
                uint64_t removed)
{
    struct cli_style style = cli_style_of(a);
    char when[64];
    backup_say_when(f->made_ms, when);
    if (style.json) {
        struct cli_json j;
        cli_json_init(&j, stdout);
        cli_json_object(&j, NULL);
        cli_json_bytes(&j, "file", fl_str(path));
        cli_json_text(&j, "made", when);
        cli_json_u64(&j, "made_ms", f->made_ms);
        cli_json_u64(&j, "commit", f->commit);
        cli_json_u64(&j, "keys", f->keys);
        cli_json_u64(&j, "deleted_keys", f->tombstones);
        cli_json_u64(&j, "marks", f->marks);
        cli_json_u64(&j, "highest_mark", f->highest_mark);
        cli_json_u64(&j, "bytes", f->bytes);
        cli_json_u64(&j, "removed", removed);
        cli_json_end_object(&j);
        cli_json_finish(&j);
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

static int verify(const struct cli_args *a)
{
    char error[BACKUP_ERROR_SIZE] = "";
    struct store_backup_facts facts = {0};
    int rc = store_backup_read(a->arg[0], NULL, NULL, &facts, error, sizeof error);
    if (rc != 0) {
        (void)cli_fail(a, rc, error, NULL, NULL);
        return CLI_EXIT_NO;
    }
    say(a, a->arg[0], &facts, 0);
    return CLI_EXIT_DONE;
}

/* With --keep the argument is a folder, and the name follows from what is inside. */
static int settle(const struct cli_args *a, struct backup_target *t, struct store_backup_facts *f,
                  uint64_t *removed)
{
    int rc = store_backup_read(t->part, NULL, NULL, f, t->error, sizeof t->error);
    if (rc != 0) {
        return rc;
    }
    if (cli_has(a, CLI_OPT_KEEP)) {
        name_in_folder(a->arg[0], f, t->path);
    }
    rc = backup_target_settle(t);
    if (rc == 0 && cli_has(a, CLI_OPT_KEEP)) {
        rc = backup_target_keep(t, a->arg[0], PREFIX, a->number[CLI_OPT_KEEP], removed);
    }
    return rc;
}

static int backup(const struct cli_args *a, fl_store *s)
{
    static struct backup_target t;
    struct store_backup_facts facts = {0};
    uint64_t removed = 0;
    (void)snprintf(t.path, sizeof t.path, cli_has(a, CLI_OPT_KEEP) ? "%.4000s/new" : "%.4000s",
                   a->arg[0]);
    int rc = backup_target_open(&t);
    if (rc == 0) {
        rc = backup_target_close(
            &t, fl_store_backup(s, a->number[CLI_OPT_TIMEOUT], backup_target_write, &t));
    }
    rc = rc != 0 ? rc : settle(a, &t, &facts, &removed);
    if (rc != 0) {
        (void)unlink(t.part);
        int code = cli_fail(a, rc, t.error[0] != '\0' ? t.error : fl_store_error(s), NULL, NULL);
        return t.error[0] != '\0' ? CLI_EXIT_NO : code;
    }
    say(a, t.path, &facts, removed);
    return CLI_EXIT_DONE;
}

int cli_run_store_backup(const struct cli_args *a)
{
    if (cli_has(a, CLI_OPT_VERIFY)) {
        return verify(a);
    }
    if (cli_has(a, CLI_OPT_KEEP) && a->number[CLI_OPT_KEEP] == 0) {
        cli_complain("--keep must be at least 1: it counts the new one as well");
        return CLI_EXIT_USAGE;
    }
    int code = CLI_EXIT_DONE;
    fl_store *s = cli_store_create(a, &code);
    if (s == NULL) {
        return code;
    }
    backup_step_back();
    code = backup(a, s);
    fl_store_destroy(s);
    return code;
}
