/* distance.h: the distance between two words, for "did you mean". Pure. */
#ifndef FLI_BASE_DISTANCE_H
#define FLI_BASE_DISTANCE_H

#include "base/base.h"

#define FLI_DISTANCE_WORD_MAX 32u /* bytes of a word */

/* The number of letters to insert, drop or replace, or of neighbours to exchange (Damerau 1964).
 * SIZE_MAX when a word is longer than FLI_DISTANCE_WORD_MAX: it is near to no word. */
size_t fli_distance(const char *a, const char *b);

#endif
