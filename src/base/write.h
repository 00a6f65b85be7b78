/* write.h: writing to a file that may take it in pieces. */
#ifndef FLI_BASE_WRITE_H
#define FLI_BASE_WRITE_H

#include "base/base.h"

/* Writes all bytes at the descriptor's position. 0; FL_EIO: errno says why, and a part may be
 * written. */
int fli_write_all(int fd, const void *data, size_t len) FLI_MUST_USE;

#endif
