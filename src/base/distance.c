/* distance.c: see distance.h. */
#include "base/distance.h"

#include <string.h>

size_t fli_distance(const char *a, const char *b)
{
    size_t a_len = strlen(a);
    size_t b_len = strlen(b);
    size_t row[FLI_DISTANCE_WORD_MAX + 1]; /* from the first i letters of a to each prefix of b */
    if (a_len > FLI_DISTANCE_WORD_MAX || b_len > FLI_DISTANCE_WORD_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= b_len; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_len];
}
