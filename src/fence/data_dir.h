/* data_dir.h: a directory that one process at a time owns, and that records whether its database
 * ever existed, and how far it went.
 *
 * The file `owner` in the directory is locked (flock) while the data directory is open. That keeps
 * out a second process, and a second opening in the same process. Once the database exists, `owner`
 * holds two lines. "fencelock KIND 2", so that
 *   - a directory of another kind or of another version is refused,
 *   - a database that has disappeared is not taken for one that never existed: all marks would be
 *     lost.
 * And "commit NUMBER CHECKSUM", written in place after each commit and not synced: after the end of
 * the process it is the last commit, after a loss of power a commit not long before. */
#ifndef FLI_FENCE_DATA_DIR_H
#define FLI_FENCE_DATA_DIR_H

#include <stdbool.h>

#include "base/base.h"

struct fli_data_dir {
    int dir_fd;
    int owner_fd;
    bool established; /* the lines were written */
    uint64_t noted;   /* the commit that the second line names */
    unsigned note_at; /* its place in the file */
};

/* Creates the directory if it is missing (its parent must exist) and locks it. kind: a short word.
 * 0; FL_EBUSY (another process owns it); FL_EVERSION (another kind or version); FL_ECORRUPT;
 * FL_EIO. errmsg gets a sentence on failure. */
int fli_data_dir_open(const char *dir, const char *kind, struct fli_data_dir *ret, char *errmsg,
                      size_t errmsg_size) FLI_MUST_USE;

/* Writes the lines, durably. */
int fli_data_dir_establish(struct fli_data_dir *d, const char *kind, char *errmsg,
                           size_t errmsg_size) FLI_MUST_USE;

/* Writes the number of a commit that is on disk. A failure leaves an older one, which is true. */
void fli_data_dir_note(struct fli_data_dir *d, uint64_t commit);

void fli_data_dir_close(struct fli_data_dir *d);

#endif
