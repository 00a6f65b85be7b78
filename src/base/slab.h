/* slab.h: an allocator for small records of few sizes. It has no overhead per record, and frees
 * memory in large pieces.
 *
 * Sizes are rounded up to multiples of 8 bytes: the size classes. Records of one class share chunks
 * of 64 KiB, and chunks share aligned regions of 2 MiB from the kernel. A freed record is the next
 * to be reused in its chunk. An empty chunk may serve another class. An empty region goes back to
 * the kernel unless it is the only one with room. So unused memory is at most a region, a chunk for
 * each class, and the gaps among records that stayed. From the fifth region on the kernel is asked
 * for huge pages: a fork then copies one page table entry for 2 MiB instead of 512, and fewer
 * address look-ups miss.
 *
 * Records of more than FLI_SLAB_SIZE_MAX bytes come from malloc. Under AddressSanitizer all do, so
 * that it detects a use after free. Out of memory stops the process. Not thread-safe; the struct
 * may be moved. */
#ifndef FLI_SLAB_H
#define FLI_SLAB_H

#include <stdbool.h>

#include "base/base.h"

#define FLI_SLAB_SIZE_MAX 512u
#define FLI_SLAB_CLASSES (FLI_SLAB_SIZE_MAX / 8 + 1)

struct fli_slab_chunk;
struct fli_slab_region;

struct fli_slab {
    struct fli_slab_chunk *partial[FLI_SLAB_CLASSES]; /* by size class: chunks with room */
    struct fli_slab_region *partial_regions;          /* with chunks of no size class */
    uint64_t regions;
    uint64_t used;   /* records in use, including those from malloc */
    bool use_malloc; /* for all records; may be changed while no record is in use */
};

void fli_slab_init(struct fli_slab *s); /* allocates nothing */
void fli_slab_fini(struct fli_slab *s); /* no record may be in use any more; NULL is fine */

/* 8-aligned, not cleared. */
void *fli_slab_alloc(struct fli_slab *s, size_t size);

/* size: the one that was asked for. NULL is fine. */
void fli_slab_free(struct fli_slab *s, void *p, size_t size);

#endif
