/* buf.h: a growable byte buffer with a ceiling that is set once, at init.
 *
 * Growth doubles up to the ceiling. The first failure (ceiling or memory) leaves the content
 * unchanged and is returned; nothing is ever half appended. Not thread-safe. */
#ifndef FLI_BUF_H
#define FLI_BUF_H

#include "base/base.h"

struct fli_buf {
    uint8_t *data; /* NULL until the first byte */
    size_t len;
    size_t cap;
    size_t max; /* ceiling in bytes */
};

void fli_buf_init(struct fli_buf *b, size_t max);
void fli_buf_fini(struct fli_buf *b); /* frees; the buffer may be used again as empty */

/* Makes room for n more bytes. 0, FL_ELIMIT beyond the ceiling, FL_ENOMEM. */
int fli_buf_grow(struct fli_buf *b, size_t n) FLI_MUST_USE; /* when there is too little */
static inline FLI_MUST_USE int fli_buf_reserve(struct fli_buf *b, size_t n)
{
    FLI_ASSERT(b->len <= b->cap);
    return FLI_LIKELY(n <= b->cap - b->len) ? 0 : fli_buf_grow(b, n);
}

int fli_buf_append(struct fli_buf *b, const void *data, size_t n) FLI_MUST_USE;
int fli_buf_printf(struct fli_buf *b, const char *fmt, ...) FLI_PRINTF(2, 3) FLI_MUST_USE;

/* Drops the first n bytes (n <= len). Cheap when n == len; otherwise moves the rest down. */
void fli_buf_consume(struct fli_buf *b, size_t n);

void fli_buf_clear(struct fli_buf *b); /* len = 0, keeps the memory */
/* Frees memory that an empty or nearly empty buffer does not need. */
void fli_buf_shrink(struct fli_buf *b);

#endif
