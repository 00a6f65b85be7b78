/* data_dir.h: a directory that one process at a time owns, and that records whether its database
 * ever existed.
 *
 * The file `owner` in the directory is locked (flock) while the data directory is open. That keeps
 * out a second process, and a second opening in the same process; LMDB allows neither. Once the
 * database exists, `owner` also holds one line, "fencelock KIND 1", so that
 *   - a directory of another kind or of a later version is refused,
 *   - a database that has disappeared is not taken for one that never existed: all marks would be
 *     lost. */
#ifndef FLI_FENCE_DATA_DIR_H
#define FLI_FENCE_DATA_DIR_H

#include <stdbool.h>

#include "base/base.h"

struct fli_data_dir {
    int dir_fd;
    int owner_fd;
    bool established; /* the line was written */
};

/* Creates the directory if it is missing (its parent must exist) and locks it. kind: a short word.
 * 0; FL_EBUSY (another process owns it); FL_EVERSION (another kind or version); FL_EIO. errmsg gets
 * a sentence on failure. */
int fli_data_dir_open(const char *dir, const char *kind, struct fli_data_dir *ret, char *errmsg,
                      size_t errmsg_size) FLI_MUST_USE;

/* Writes the line, durably. */
int fli_data_dir_establish(struct fli_data_dir *d, const char *kind, char *errmsg,
                           size_t errmsg_size) FLI_MUST_USE;

void fli_data_dir_close(struct fli_data_dir *d);

#endif
