/* glob.h: patterns of LOCKS MATCH and PSUBSCRIBE: `*` any bytes, `?` one byte, `[a-z]` one of
 * a set (`[^...]` one not in it), `\` takes the next byte as it is. Bytes, not characters. A `[`
 * that is never closed and a `\` at the end stand for themselves. Pure. */
#ifndef MACHINE_GLOB_H
#define MACHINE_GLOB_H

#include <stdbool.h>

#include "base/base.h"

/* Adds what it cost to *steps: at most machine_glob_steps_max(). */
bool machine_glob_match(struct fli_slice pattern, struct fli_slice text, uint64_t *steps);

/* The most steps that this pattern may take with a text of this length. Of patterns of at most 255
 * bytes with names of locks at most 8192; of longer ones about the product of both lengths. */
size_t machine_glob_steps_max(struct fli_slice pattern, size_t text_len);

#endif
