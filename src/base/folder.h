/* folder.h: the names in a directory. Only folder.c calls readdir(): elsewhere it is forgotten that
 * a directory may end with an error, and what is left out is taken for absent. */
#ifndef FLI_BASE_FOLDER_H
#define FLI_BASE_FOLDER_H

#include "base/base.h"

/* 0: go on. Anything else ends the reading. */
typedef int fli_folder_cb(void *ctx, const char *name);

/* Calls `each` with every name but "." and "..", in any order. `path` is relative to the open
 * directory `at`, or to the working directory (AT_FDCWD). 0; what `each` returned when that is not
 * 0; else a negative errno. */
int fli_folder_each(int at, const char *path, fli_folder_cb *each, void *ctx) FLI_MUST_USE;

#endif
