/* backup_job.c: see backup_job.h. */
#include "cli/backup_job.h"

#include <unistd.h>

static bool keeps(const struct backup_job *j)
{
    return cli_has(j->args, CLI_OPT_KEEP);
}

static int verify(struct backup_job *j)
{
    char error[BACKUP_ERROR_SIZE] = "";
    int rc = j->inspect(j, j->args->arg[0], error);
    if (rc != 0) {
        (void)cli_fail(j->args, rc, error, NULL, NULL);
        return CLI_EXIT_NO;
    }
    j->report(j, j->args->arg[0], 0);
    return CLI_EXIT_DONE;
}

bool backup_job_without_connection(struct backup_job *j, int *ret_code)
{
    if (cli_has(j->args, CLI_OPT_VERIFY)) {
        *ret_code = verify(j);
        return true;
    }
    if (keeps(j) && j->args->number[CLI_OPT_KEEP] == 0) {
        cli_complain("--keep must be at least 1: it counts the new one as well");
        *ret_code = CLI_EXIT_USAGE;
        return true;
    }
    static struct backup_target t;
    (void)snprintf(t.path, sizeof t.path, "%.4000s", j->args->arg[0]);
    if (!keeps(j) && backup_target_check(&t) != 0) {
        *ret_code = cli_fail(j->args, FL_EINVAL, t.error, NULL, NULL);
        return true;
    }
    return false;
}

/* Gives the file its name. With --keep the argument is a folder, and the name says what is in the
 * file. */
static int give_name(struct backup_job *j, struct backup_target *t, uint64_t *removed)
{
    char start[BACKUP_NAME_SIZE];
    char rest[BACKUP_NAME_SIZE];
    const char *folder = j->args->arg[0];
    int rc = j->inspect(j, t->part, t->error);
    if (rc != 0) {
        return rc;
    }
    if (!keeps(j)) {
        return backup_target_rename(t);
    }
    j->name(j, start, rest);
    (void)snprintf(t->path, sizeof t->path, "%.3000s/%s%s" BACKUP_SUFFIX, folder, start, rest);
    rc = backup_target_rename(t);
    return rc != 0 ? rc
                   : backup_target_keep(t, folder, start, j->args->number[CLI_OPT_KEEP], removed);
}

int backup_job_run(struct backup_job *j)
{
    static struct backup_target t;
    uint64_t removed = 0;
    (void)snprintf(t.path, sizeof t.path, keeps(j) ? "%.4000s/new" : "%.4000s", j->args->arg[0]);
    backup_lower_priority();
    int rc = j->fetch(j, &t);
    rc = rc != 0 ? rc : give_name(j, &t, &removed);
    if (rc == 0) {
        j->report(j, t.path, removed);
        return CLI_EXIT_DONE;
    }
    (void)unlink(t.part);
    bool is_local = t.error[0] != '\0';
    int code = cli_fail(j->args, rc, is_local ? t.error : j->connection_error(j), NULL, NULL);
    return is_local ? CLI_EXIT_NO : code;
}
