/* backup_target.h: writes the file of a backup. The bytes go to a temporary file in the same
 * folder; the caller reads it back, and only then it gets its name. */
#ifndef CLI_BACKUP_TARGET_H
#define CLI_BACKUP_TARGET_H

#include "base/utc.h"

#define BACKUP_PATH_SIZE 4096u
#define BACKUP_ERROR_SIZE 1024u
#define BACKUP_WHEN_SIZE FLI_UTC_SIZE
#define BACKUP_SUFFIX ".backup"

struct backup_target {
    char path[BACKUP_PATH_SIZE], part[BACKUP_PATH_SIZE];
    bool replace; /* what has the name; otherwise it is kept, and an error */
    int fd;       /* -1: none */
    uint64_t bytes, synced;
    char error[BACKUP_ERROR_SIZE]; /* why the last step failed; "" while none did */
};

/* Lowers the priority of this process, so that it takes no time from a node on the same machine.
 * For the same reason the file is synced in small pieces, with pauses between them. */
void backup_lower_priority(void);

void backup_target_init(struct backup_target *t, bool replace);

/* Whether `path` can be had at all, before anything is fetched. */
int backup_target_check(struct backup_target *t) FLI_MUST_USE;

/* Each returns 0, or a negative code with the reason in `error`. open makes `part`, or empties it
 * for another try; no other process writes it until fini. rc: the result of the writes; sync
 * returns it when it is not 0. */
int backup_target_open(struct backup_target *t) FLI_MUST_USE;
int backup_target_write(void *target, const void *data, size_t len) FLI_MUST_USE; /* a sink */
int backup_target_sync(struct backup_target *t, int rc) FLI_MUST_USE;
int backup_target_rename(struct backup_target *t) FLI_MUST_USE; /* renames part to path */
void backup_target_fini(struct backup_target *t); /* removes part, if it has that name still */

/* Deletes all but the newest `keep` files of the folder whose names begin with `start`. That of
 * `path`, which was just made, is the newest. by_index: the others are sorted by the number at the
 * end of the name, which does not depend on a clock; otherwise by name, that is by time.
 * *ret_removed: how many were deleted. */
int backup_target_keep(struct backup_target *t, const char *folder, const char *start,
                       bool by_index, uint64_t keep, uint64_t *ret_removed) FLI_MUST_USE;

/* A time in UTC: for people, and as a part of a file name. */
void backup_format_time(uint64_t made_ms, char out[BACKUP_WHEN_SIZE]);
void backup_format_file_time(uint64_t made_ms, char out[BACKUP_WHEN_SIZE]);

#endif
