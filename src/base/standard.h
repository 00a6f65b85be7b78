/* standard.h: the descriptors 0, 1 and 2 of a program. */
#ifndef FLI_BASE_STANDARD_H
#define FLI_BASE_STANDARD_H

#include "base/base.h"

/* Opens /dev/null for each of them that is closed, in the wrong direction, so that reading and
 * writing fail as before. Otherwise the next file or connection would get that number, and what
 * is printed would go there. False: not possible. */
bool fli_standard_keep(void) FLI_MUST_USE;

/* Writes out what was printed to stdout. False: not all of it could be written, now or earlier. */
bool fli_standard_flush(void) FLI_MUST_USE;

#endif
