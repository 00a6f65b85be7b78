/* pool.c: OpenSSL allocates a buffer of some 17 KiB for each record that it reads or writes and
 * frees it afterwards, so that idle connections keep none. The C library's malloc is slow for that
 * size. So the last few blocks are kept here, in the thread that asked for it. Record after record
 * uses the same block, which stays in the processor's cache. */
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>

#include "tls/tls.h"

#define BLOCK_MIN ((size_t)16 << 10)
#define BLOCK_SIZE ((size_t)18 << 10) /* of a block: what a record needs, and a little more */
#define BLOCK_OVER ((size_t)4 << 10)  /* what malloc may give beyond that */
#define KEEP 4u

static _Thread_local struct {
    void *blocks[KEEP];
    unsigned n;
    bool keeps;
} pool;

static bool is_of_record(size_t size)
{
    return size > BLOCK_MIN && size <= BLOCK_SIZE;
}

static void *take(size_t size, const char *file, int line)
{
    if (!is_of_record(size)) {
        return size == 0 ? NULL : malloc(size);
    }
    return pool.n > 0 ? pool.blocks[--pool.n] : malloc(BLOCK_SIZE);
}

static void give(void *p, const char *file, int line)
{
    size_t size = p == NULL ? 0 : malloc_usable_size(p);
    if (size >= BLOCK_SIZE && size < BLOCK_SIZE + BLOCK_OVER && pool.keeps && pool.n < KEEP) {
        pool.blocks[pool.n++] = p;
    } else {
        free(p);
    }
}

static void *change(void *p, size_t size, const char *file, int line)
{
    return realloc(p, is_of_record(size) ? BLOCK_SIZE : size);
}

void fli_tls_keep_buffers(void)
{
    pool.keeps = CRYPTO_set_mem_functions(take, change, give) == 1;
}
