/* base.c: assertions, the last message of a dying process, allocation that cannot fail, error
 * texts.
 *
 * A message goes out with one write(2) on standard error and from the stack, since the heap may be
 * what is broken. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Noreturn void die(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);
        if (n <= 0) {
            break; /* nobody can be told; stopping matters more than the message */
        }
        text += n;
        len -= (size_t)n;
    }
    abort();
}

/* The length that snprintf() really stored in a buffer of this size. */
static size_t stored(int n, size_t size)
{
    if (n < 0) {
        return 0;
    }
    return (size_t)n < size ? (size_t)n : size - 1;
}

_Noreturn void fli_assert_fail(const char *cond, const char *file, int line, const char *func)
{
    char text[512];
    int n = snprintf(text, sizeof text, "fencelock: assertion failed: %s (%s:%d, %s)\n", cond, file,
                     line, func);
    die(text, stored(n, sizeof text));
}

_Noreturn void fli_fatal(const char *fmt, ...)
{
    char text[1024];
    size_t len = stored(snprintf(text, sizeof text, "fencelock: fatal: "), sizeof text);
    va_list args;
    va_start(args, fmt);
    len += stored(vsnprintf(text + len, sizeof text - len - 1, fmt, args), sizeof text - len - 1);
    va_end(args);
    text[len++] = '\n';
    die(text, len);
}

int fli_refuse(char *errmsg, size_t errmsg_size, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(errmsg, errmsg_size, fmt, args);
    va_end(args);
    return code;
}

void *fli_xmalloc(size_t size)
{
    void *p = malloc(size == 0 ? 1 : size);
    if (FLI_UNLIKELY(p == NULL)) {
        fli_fatal("out of memory (%zu bytes)", size);
    }
    return p;
}

void *fli_xcalloc(size_t n, size_t size)
{
    void *p = n == 0 || size == 0 ? calloc(1, 1) : calloc(n, size);
    if (FLI_UNLIKELY(p == NULL)) {
        fli_fatal("out of memory (%zu times %zu bytes)", n, size);
    }
    return p;
}

/* Maps twice as much, and unmaps what is left over at both ends. */
void *fli_region_map(bool huge)
{
    size_t size = FLI_REGION_SIZE;
    void *map = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        fli_fatal("out of memory (a region of %zu bytes)", size);
    }
    uintptr_t start = (uintptr_t)map;
    uintptr_t region = (start + size - 1) & ~(uintptr_t)(size - 1);
    uintptr_t end = start + 2 * size;
    if (region > start) {
        munmap(map, region - start);
    }
    munmap((void *)(region + size), end - (region + size));
    if (huge) {
        (void)madvise((void *)region, size, MADV_HUGEPAGE);
    }
    return (void *)region;
}

void fli_region_unmap(void *region)
{
    munmap(region, FLI_REGION_SIZE);
}

enum fl_err_class fl_err_class(int code)
{
    switch (code) {
    case FL_OK:
        return FL_CLASS_OK;
#define CLASS_CASE_(name, code_, class, text)                                                      \
    case FL_##name:                                                                                \
        return FL_CLASS_##class;
        FL_ERR_MAP(CLASS_CASE_)
#undef CLASS_CASE_
    default:
        return FL_CLASS_FAULT;
    }
}

const char *fl_version(void)
{
    return FENCELOCK_VERSION;
}

const char *fl_strerror(int code)
{
    switch (code) {
    case FL_OK:
        return "no error";
#define TEXT_CASE_(name, code_, class, text)                                                       \
    case FL_##name:                                                                                \
        return text;
        FL_ERR_MAP(TEXT_CASE_)
#undef TEXT_CASE_
    default:
        return "unknown error";
    }
}

const char *fl_err_name(int code)
{
    switch (code) {
    case FL_OK:
        return "OK";
#define NAME_CASE_(name, code_, class, text)                                                       \
    case FL_##name:                                                                                \
        return #name;
        FL_ERR_MAP(NAME_CASE_)
#undef NAME_CASE_
    default:
        return "?";
    }
}

const char *fli_files_remedy(const char *message)
{
    return strstr(message, "oo many open files") != NULL
               ? "; raise the limit on open files (ulimit -n, LimitNOFILE= of systemd)"
               : "";
}
