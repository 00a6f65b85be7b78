/* distance.c: see distance.h. */
#include "base/distance.h"

#include <string.h>

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t fli_distance(const char *a, const char *b)
{
    size_t a_len = strlen(a);
    size_t b_len = strlen(b);
    /* rows[i % 3]: from the first i letters of a to each prefix of b */
    size_t rows[3][FLI_DISTANCE_WORD_MAX + 1] = {{0}};
    if (a_len > FLI_DISTANCE_WORD_MAX || b_len > FLI_DISTANCE_WORD_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= b_len; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least_of(row[j], above[j] + 1);
            row[j] = least_of(row[j], row[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least_of(row[j], rows[(i + 1) % 3][j - 2] + 1);
            }
        }
    }
    return rows[a_len % 3][b_len];
}
