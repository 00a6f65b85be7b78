/* lines.h: lines of the text files that people write. A line is taken whole, or refused: a zero
 * byte in it, or more bytes than there is room for, cuts nothing off. */
#ifndef FLI_BASE_LINES_H
#define FLI_BASE_LINES_H

#include <stdio.h>

#include "base/base.h"

/* Reads a line of at most size - 1 bytes, without its line feed and a carriage return before that.
 * 1; 0: the file is over; FL_EINVAL: *ret_why says what is wrong. */
int fli_line_read(FILE *f, char *room, size_t size, size_t *ret_len,
                  const char **ret_why) FLI_MUST_USE;

/* The first line of a file: a password. 0; or FL_EINVAL, why, and an empty room: also for an empty
 * line. */
int fli_line_first(const char *path, char *room, size_t size, char *why,
                   size_t why_size) FLI_MUST_USE;

/* A whole file of at most `size` bytes. 0; or FL_EINVAL, and why. */
int fli_file_read(const char *path, uint8_t *room, size_t size, size_t *ret_len, char *why,
                  size_t why_size) FLI_MUST_USE;

#endif
