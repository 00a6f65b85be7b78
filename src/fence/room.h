/* room.h: whether a file of a database can grow. */
#ifndef FLI_FENCE_ROOM_H
#define FLI_FENCE_ROOM_H

#include <stdint.h>

/* LMDB reports a write that was cut short for lack of room as a plain input/output error. ENOSPC:
 * the file system of the directory has no room for a few more pages. EFBIG: the process may not
 * make a file so much larger than bytes. 0: neither. */
int fli_room_lack(int dir_fd, uint64_t bytes);

/* LMDB maps its lock file before the disk has room for it, and writing to such a page kills the
 * process (SIGBUS). Makes the file in the directory, if it is missing, and takes its room. 0 or an
 * errno. */
int fli_room_take_lock_file(const char *dir);

#endif
