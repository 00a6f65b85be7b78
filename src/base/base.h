/* base.h: what all layers share: must-use, assertions that stay on, container_of. */
#ifndef FLI_BASE_H
#define FLI_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fencelock/types.h"

#define FLI_MUST_USE FL_MUST_USE
#define FLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define FLI_LIKELY(x) __builtin_expect(!!(x), 1)
#define FLI_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Assertions guard our own invariants, never input, and stay on in release: a lock service that has
 * lost its invariants must stop rather than answer. */
#define FLI_ASSERT(cond)                                                                           \
    do {                                                                                           \
        if (FLI_UNLIKELY(!(cond))) {                                                               \
            fli_assert_fail(#cond, __FILE__, __LINE__, __func__);                                  \
        }                                                                                          \
    } while (0)

_Noreturn void fli_assert_fail(const char *cond, const char *file, int line, const char *func);

/* Stops the process with a message: for failures where only a crash is safe (out of memory while
 * applying, a log that cannot be written). */
_Noreturn void fli_fatal(const char *fmt, ...) FLI_PRINTF(1, 2);

/* Writes a sentence, and returns `code`. */
int fli_refuse(char *errmsg, size_t errmsg_size, int code, const char *fmt, ...) FLI_PRINTF(4, 5);

/* Goes by way of an integer, so that a pointer to const works without a warning: comparison
 * functions get const nodes, and must treat the element as const themselves. */
#define FLI_CONTAINER_OF(ptr, type, member) ((type *)((uintptr_t)(ptr)-offsetof(type, member)))

/* Allocation that cannot fail: aborts instead. For apply and for start-up; never sized by unchecked
 * input. */
void *fli_xmalloc(size_t size);
void *fli_xcalloc(size_t n, size_t size);

/* Maps FLI_REGION_SIZE bytes of zeros, aligned to their size; `huge`: as one page if the kernel
 * can. Out of memory stops the process. */
#define FLI_REGION_SIZE ((size_t)2 << 20)
void *fli_region_map(bool huge);
void fli_region_unmap(void *region);

/* What to do when the limit on open files is reached, as the words say with which the system, or
 * libuv, tells an error. "" when they say something else. */
const char *fli_files_remedy(const char *message);

/* The ending of a word that counts n things. */
static inline const char *fli_s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* A view of bytes with another owner. Not NUL-terminated. data may be NULL only when len is 0. */
struct fli_slice {
    const uint8_t *data;
    size_t len;
};

#endif
