/* backup_job.h: what `fencelock backup` and `fencelock store backup` do alike. A backup is written
 * beside its place, synced, read back and verified as a whole, and only then given its name: what
 * has the name can be restored. */
#ifndef CLI_BACKUP_JOB_H
#define CLI_BACKUP_JOB_H

#include "cli/backup_target.h"
#include "cli/fencelock_common.h"

#define BACKUP_NAME_SIZE 96u

/* The part that differs. It stands first in a struct with the connection and what is in the file.
 */
struct backup_job {
    const struct cli_args *args;
    /* Opens the target, fills it and closes it. */
    int (*fetch)(struct backup_job *j, struct backup_target *t);
    /* Reads a file, and keeps what it says. 0, or a negative code with the reason in `error`. */
    int (*inspect)(struct backup_job *j, const char *path, char error[BACKUP_ERROR_SIZE]);
    /* In a folder: what names begin with of which the newest are kept, and the rest of this one. */
    void (*name)(const struct backup_job *j, char start[BACKUP_NAME_SIZE],
                 char rest[BACKUP_NAME_SIZE]);
    void (*say)(const struct backup_job *j, const char *path, uint64_t removed);
    const char *(*connection_error)(const struct backup_job *j);
};

/* What needs no connection: --verify, or an argument that is wrong. True: that was all, and
 * *ret_code is what the program ends with. */
bool backup_job_without_connection(struct backup_job *j, int *ret_code);

/* Makes the backup. Returns what the program ends with. */
int backup_job_run(struct backup_job *j);

#endif
