/* part.h: a file that gets its name only when it is whole and on disk. Until then it has another
 * name, and belongs to one process. */
#ifndef FLI_BASE_PART_H
#define FLI_BASE_PART_H

#include "base/base.h"

/* Makes the file, empty and with mode 0600, and locks it. What a killed process has left there is
 * removed first; a symlink is not followed. Returns the descriptor, or -1 and errno: EBUSY means
 * that another process is writing it. The lock lasts until the descriptor is closed. */
int fli_part_open(const char *path) FLI_MUST_USE;

/* Gives the file its name and makes that durable. Without `replace`, a file that has the name stays
 * (EEXIST). 0; FL_EIO: errno says why. */
int fli_part_publish(const char *part, const char *path, bool replace) FLI_MUST_USE;

/* Replaces the file with these bytes and makes that durable. Whoever reads it, also after a power
 * cut, finds the old bytes or the new ones, however many processes replace it; at most
 * FLI_REPLACING_MAX can at one moment (EBUSY). Where the path is a symlink, the file that it names
 * is replaced. The mode is 0600. 0; FL_EIO: errno says why, and the file is the old one or the new
 * one. A killed process leaves PATH.N.part behind, which the next one removes. */
#define FLI_REPLACING_MAX 16u
int fli_replace_file(const char *path, const void *data, size_t len) FLI_MUST_USE;

/* Renames a file of the directory `at` (or AT_FDCWD), unless something has the new name (EEXIST).
 * 0; FL_EIO: errno says why. */
int fli_rename_new(int at, const char *from, const char *to) FLI_MUST_USE;

#endif
