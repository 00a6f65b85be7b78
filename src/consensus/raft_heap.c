/* raft_heap.c: see raft_heap.h. */
#include "consensus/raft_heap.h"

#include <stdlib.h>

#include <raft.h>
#include <uv.h>

#include "base/base.h"

static void *checked(void *p, size_t size)
{
    if (p == NULL && size != 0 && size < RAFT_HEAP_MAX) {
        fli_fatal("out of memory for the raft library or libuv (%zu bytes)", size);
    }
    return p;
}

static void *heap_malloc(void *data, size_t size)
{
    (void)data;
    return size < RAFT_HEAP_MAX ? checked(malloc(size), size) : NULL;
}

static void heap_free(void *data, void *p)
{
    (void)data;
    free(p);
}

static void *heap_calloc(void *data, size_t n, size_t size)
{
    (void)data;
    if (size != 0 && n >= RAFT_HEAP_MAX / size) {
        return NULL;
    }
    return checked(calloc(n, size), n * size);
}

static void *heap_realloc(void *data, void *p, size_t size)
{
    (void)data;
    return size < RAFT_HEAP_MAX ? checked(realloc(p, size), size) : NULL;
}

static void *heap_aligned_alloc(void *data, size_t alignment, size_t size)
{
    (void)data;
    return size < RAFT_HEAP_MAX ? checked(aligned_alloc(alignment, size), size) : NULL;
}

static void *uv_malloc(size_t size)
{
    return heap_malloc(NULL, size);
}

static void *uv_calloc(size_t n, size_t size)
{
    return heap_calloc(NULL, n, size);
}

static void *uv_realloc(void *p, size_t size)
{
    return heap_realloc(NULL, p, size);
}

static void heap_aligned_free(void *data, size_t alignment, void *p)
{
    (void)data;
    (void)alignment;
    free(p);
}

void raft_heap_install(void)
{
    static struct raft_heap heap = {
        .malloc = heap_malloc,
        .free = heap_free,
        .calloc = heap_calloc,
        .realloc = heap_realloc,
        .aligned_alloc = heap_aligned_alloc,
        .aligned_free = heap_aligned_free,
    };
    raft_heap_set(&heap);
    int rv = uv_replace_allocator(uv_malloc, uv_realloc, uv_calloc, free);
    FLI_ASSERT(rv == 0);
}

void raft_heap_clear_stack(void)
{
    volatile char below[8192];
    for (size_t i = 0; i < sizeof below; i++) {
        below[i] = 0;
    }
}
