/* backup_job.h: the file of `fencelock backup`. A backup is written to a temporary file in the same
 * folder, synced, read back and verified. Only then it gets its name, so whatever has the name can
 * be restored. */
#ifndef CLI_BACKUP_JOB_H
#define CLI_BACKUP_JOB_H

#include "cli/backup_target.h"
#include "cli/fencelock_common.h"

#define BACKUP_NAME_SIZE 128u

/* The part in which the two differ: the first member of a struct that also has the connection and
 * what was read from the file. */
struct backup_job {
    const struct cli_args *args;
    /* Opens the target, fills it and syncs it. */
    int (*fetch)(struct backup_job *j, struct backup_target *t);
    /* Reads a file, and remembers what it says. 0, or a negative code with the reason in
     * `error`. */
    int (*inspect)(struct backup_job *j, const char *path, char error[BACKUP_ERROR_SIZE]);
    /* The name in a folder: how the names of all backups of this cluster or storage begin, among
     * which the newest are kept; and how this one goes on. */
    void (*name)(const struct backup_job *j, char start[BACKUP_NAME_SIZE],
                 char rest[BACKUP_NAME_SIZE]);
    /* Prints what was made or verified, and how many older backups were removed. */
    void (*report)(const struct backup_job *j, const char *path, uint64_t removed);
    const char *(*connection_error)(const struct backup_job *j);
    /* Names end with a number that grows as long as their beginning stays the same. */
    bool by_index;
};

/* Does what needs no connection: --verify, or a complaint about an argument or the file. True: that
 * was all, and *ret_code is the exit code. */
bool backup_job_without_connection(struct backup_job *j, int *ret_code);

/* Makes the backup. Returns the exit code. */
int backup_job_run(struct backup_job *j);

#endif
