/* write.h: writing to a file that may take it in pieces, and making its name durable. */
#ifndef FLI_BASE_WRITE_H
#define FLI_BASE_WRITE_H

#include "base/base.h"

/* Writes all bytes at the descriptor's position. 0; FL_EIO: errno says why, and a part may be
 * written. */
int fli_write_all(int fd, const void *data, size_t len) FLI_MUST_USE;

/* Whether this errno says only that there is no room, memory or descriptor left at this moment: the
 * same call may well succeed later. */
bool fli_error_passes(int error);

/* The name of a file or directory that was made or renamed is durable only after its folder is
 * synced. 0; FL_EIO: errno says why. */
int fli_sync_folder_of(const char *path) FLI_MUST_USE;

#endif
