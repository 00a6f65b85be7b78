/* backup_target.h: the file that a backup becomes. It is written beside its place, and gets its
 * name once whoever made it has read it back. */
#ifndef CLI_BACKUP_TARGET_H
#define CLI_BACKUP_TARGET_H

#include "base/base.h"

#define BACKUP_PATH_SIZE 4096u
#define BACKUP_ERROR_SIZE 1024u
#define BACKUP_WHEN_SIZE 64u
#define BACKUP_SUFFIX ".backup"

struct backup_target {
    char path[BACKUP_PATH_SIZE], part[BACKUP_PATH_SIZE];
    int fd;
    uint64_t bytes, synced;
    char error[BACKUP_ERROR_SIZE]; /* of the disk; "" for none */
};

/* Makes this process step back behind the node that may be on the same machine: a backup has time.
 * What is written is synced in small pieces, with rests, for the same reason. */
void backup_step_back(void);

/* Each: 0, or FL_EIO with `error`. close: rc is how the writing ended, which is kept when not 0. */
int backup_target_open(struct backup_target *t) FLI_MUST_USE;
int backup_target_write(void *target, const void *data, size_t len) FLI_MUST_USE; /* a sink */
int backup_target_close(struct backup_target *t, int rc) FLI_MUST_USE;
int backup_target_settle(struct backup_target *t) FLI_MUST_USE; /* the part becomes the path */

/* Of the files in a folder whose names begin with `start`, which are by time, the newest `keep`
 * stay. *ret_removed: how many went. */
int backup_target_keep(struct backup_target *t, const char *folder, const char *start,
                       uint64_t keep, uint64_t *ret_removed) FLI_MUST_USE;

/* The moment in UTC, to be read and as a part of a name. */
void backup_say_when(uint64_t made_ms, char out[BACKUP_WHEN_SIZE]);
void backup_name_when(uint64_t made_ms, char out[BACKUP_WHEN_SIZE]);

#endif
