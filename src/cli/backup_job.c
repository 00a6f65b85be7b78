/* backup_job.c: see backup_job.h. */
#include "cli/backup_job.h"

#include <signal.h>
#include <string.h>

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

#define PATH_MOST 3000u /* the names of the files in a folder come behind it */
#define PARTS 16u       /* so many may be at work in a folder */

static int usage(struct backup_job *j, const char *text)
{
    return cli_fail(j->args, FL_EINVAL, text, NULL, NULL);
}

bool backup_job_without_connection(struct backup_job *j, int *ret_code)
{
    static struct backup_target t;
    const char *argument = j->args->arg[0];
    if (cli_has(j->args, CLI_OPT_VERIFY)) {
        *ret_code = verify(j);
        return true;
    }
    backup_target_init(&t, cli_has(j->args, CLI_OPT_REPLACE));
    (void)snprintf(t.path, sizeof t.path, "%.*s", (int)PATH_MOST, argument);
    if (strlen(argument) == 0 || strlen(argument) > PATH_MOST) {
        *ret_code = usage(j, "a file's name has 1 to 3000 bytes here");
    } else if (strcmp(argument, "-") == 0) {
        *ret_code = usage(j, "- is no file: a backup is read back before it counts, so it needs "
                             "one; name a file, and send that when the command has ended with 0");
    } else if (keeps(j) && j->args->number[CLI_OPT_KEEP] == 0) {
        *ret_code = usage(j, "--keep must be at least 1: it counts the new one as well");
    } else if (keeps(j) && t.replace) {
        *ret_code = usage(j, "--keep chooses a new name each time: leave --replace out");
    } else {
        int rc = keeps(j) ? 0 : backup_target_check(&t);
        *ret_code = rc == 0 ? CLI_EXIT_DONE : cli_fail(j->args, rc, t.error, NULL, NULL);
    }
    return *ret_code != CLI_EXIT_DONE;
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
                   : backup_target_keep(t, folder, start, j->by_index,
                                        j->args->number[CLI_OPT_KEEP], removed);
}

/* Opens the file to write. In a folder there may be several, each of another cluster. */
static int open_part(struct backup_job *j, struct backup_target *t)
{
    const char *argument = j->args->arg[0];
    int rc = FL_EBUSY;
    for (unsigned i = 0; i < (keeps(j) ? PARTS : 1u) && rc == FL_EBUSY; i++) {
        (void)snprintf(t->path, sizeof t->path, keeps(j) ? "%.3000s/new" : "%.3000s", argument);
        (void)snprintf(t->part, sizeof t->part, i == 0 ? "%.3005s.part" : "%.3005s%u.part", t->path,
                       i + 1);
        rc = backup_target_open(t);
    }
    return rc;
}

int backup_job_run(struct backup_job *j)
{
    static struct backup_target t;
    uint64_t removed = 0;
    /* beyond the limit on file sizes, a write fails and says so */
    (void)signal(SIGXFSZ, SIG_IGN);
    backup_target_init(&t, cli_has(j->args, CLI_OPT_REPLACE) || keeps(j));
    backup_lower_priority();
    int rc = open_part(j, &t);
    if (rc == 0) {
        t.error[0] = '\0';
        rc = j->fetch(j, &t);
    }
    rc = rc != 0 ? rc : give_name(j, &t, &removed);
    int code = CLI_EXIT_DONE;
    if (rc == 0) {
        j->report(j, t.path, removed);
    } else {
        bool is_local = t.error[0] != '\0';
        if (is_local) {
            (void)cli_fail_with(j->args, rc, t.error, NULL, NULL, NULL);
            code = CLI_EXIT_NO;
        } else {
            code = cli_fail(j->args, rc, j->connection_error(j), NULL, NULL);
        }
    }
    backup_target_fini(&t);
    return code;
}
