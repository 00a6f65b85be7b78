/* glob.h: patterns of LOCKS MATCH and PSUBSCRIBE: `*` any bytes, `?` one byte, `[a-z]` one of
 * a set (`[^...]` one not in it), `\` takes the next byte as it is. Bytes, not characters. A `[`
 * that is never closed and a `\` at the end stand for themselves. Pure. */
#ifndef MACHINE_GLOB_H
#define MACHINE_GLOB_H

#include <stdbool.h>

#include "base/base.h"

/* Adds what it cost to *steps: at most about (pattern.len + 1) * (text.len + 1). */
bool machine_glob_match(struct fli_slice pattern, struct fli_slice text, uint64_t *steps);

#endif
