/* scratch.h: a directory for one test, under TMPDIR, and files in it. */
#ifndef TEST_LIB_SCRATCH_H
#define TEST_LIB_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

char *scratch_make(void);            /* malloc'd path of a new directory; aborts on failure */
void scratch_remove(char *path);     /* with everything in it; frees path */
void scratch_wipe(const char *path); /* removes everything in it */
char *scratch_path(const char *dir, const char *name); /* malloc'd DIR/NAME */
void scratch_write(const char *path, const void *data, size_t len);
size_t scratch_read(const char *path, char *out, size_t size);
bool scratch_exists(const char *path);

#endif
