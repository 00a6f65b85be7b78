/* write.h: writing to a file that may take it in pieces. */
#ifndef FLI_BASE_WRITE_H
#define FLI_BASE_WRITE_H

#include "base/base.h"

/* Where the descriptor stands. 0; FL_EIO, errno says why, and some of it may be written. */
int fli_write_all(int fd, const void *data, size_t len) FLI_MUST_USE;

#endif
