/* buf.c: see buf.h. Every length is compared with the room left below the ceiling before it is
 * added, so no sum can wrap. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_CAP_MIN 64u

void fli_buf_init(struct fli_buf *b, size_t max)
{
    *b = (struct fli_buf){.max = max};
}

void fli_buf_fini(struct fli_buf *b)
{
    if (b == NULL) {
        return;
    }
    free(b->data);
    fli_buf_init(b, b->max);
}

/* The smallest step of the doubling sequence that holds `need`, which is at most max. */
static size_t step_for(size_t from, size_t need, size_t max)
{
    size_t cap = from < BUF_CAP_MIN ? BUF_CAP_MIN : from;
    while (cap < need) {
        if (cap > max / 2) {
            return max;
        }
        cap *= 2;
    }
    return cap < max ? cap : max;
}

int fli_buf_grow(struct fli_buf *b, size_t n)
{
    if (n > b->max - b->len) {
        return FL_ELIMIT;
    }
    size_t cap = step_for(b->cap, b->len + n, b->max);
    FLI_ASSERT(cap >= b->len + n);
    uint8_t *data = realloc(b->data, cap);
    if (data == NULL) {
        return FL_ENOMEM;
    }
    b->data = data;
    b->cap = cap;
    return 0;
}

int fli_buf_append(struct fli_buf *b, const void *data, size_t n)
{
    if (n == 0) {
        return 0;
    }
    int rc = fli_buf_reserve(b, n);
    if (FLI_UNLIKELY(rc != 0)) {
        return rc;
    }
    memcpy(b->data + b->len, data, n);
    b->len += n;
    return 0;
}

int fli_buf_printf(struct fli_buf *b, const char *fmt, ...)
{
    /* vsnprintf() needs one byte more than the text, for the terminator. Short texts go over the
     * stack, so that a buffer filled to its ceiling needs no spare byte. */
    char text[256];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0) {
        return FL_EINVAL;
    }
    size_t len = (size_t)n;
    if (len < sizeof text) {
        return fli_buf_append(b, text, len);
    }
    if (len > b->max - b->len) {
        return FL_ELIMIT;
    }
    char *big = malloc(len + 1);
    if (big == NULL) {
        return FL_ENOMEM;
    }
    va_start(args, fmt);
    n = vsnprintf(big, len + 1, fmt, args);
    va_end(args);
    int rc = n == (int)len ? fli_buf_append(b, big, len) : FL_EINVAL;
    free(big);
    return rc;
}

void fli_buf_consume(struct fli_buf *b, size_t n)
{
    FLI_ASSERT(n <= b->len);
    b->len -= n;
    if (b->len > 0 && n > 0) {
        memmove(b->data, b->data + n, b->len);
    }
}

void fli_buf_clear(struct fli_buf *b)
{
    b->len = 0;
}

void fli_buf_shrink(struct fli_buf *b)
{
    FLI_ASSERT(b->len <= b->cap);
    if (b->len == 0) {
        free(b->data);
        b->data = NULL;
        b->cap = 0;
        return;
    }
    if (b->cap <= BUF_CAP_MIN || b->len > b->cap / 4) {
        return;
    }
    size_t cap = step_for(0, b->len, b->max);
    uint8_t *data = realloc(b->data, cap);
    if (data != NULL) { /* keeping the larger block is no failure */
        b->data = data;
        b->cap = cap;
    }
}
