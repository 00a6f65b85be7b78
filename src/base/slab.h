/* slab.h: small records of few sizes, without malloc's overhead for each, from memory that is given
 * back in large pieces.
 *
 * A size is rounded up to 8 bytes; records of one size lie in chunks of 64 KiB, and the chunks in
 * regions of 2 MiB, aligned, which come from the kernel. A freed record is the next that is given
 * out of its chunk; an empty chunk serves any size, and an empty region goes back unless it is the
 * only one with room. So what is not used is at most a region, a chunk for each size, and what lies
 * among records that stayed. From the fifth region on the kernel is asked for huge pages: a fork
 * then copies one entry for 2 MiB and not 512, and fewer look-ups miss.
 *
 * Records of more than FLI_SLAB_SIZE_MAX bytes come from malloc. Under AddressSanitizer all do, so
 * that it sees who uses a record after its end. Out of memory stops the process. Not thread-safe;
 * the struct may be moved. */
#ifndef FLI_SLAB_H
#define FLI_SLAB_H

#include <stdbool.h>

#include "base/base.h"

#define FLI_SLAB_SIZE_MAX 512u
#define FLI_SLAB_KINDS (FLI_SLAB_SIZE_MAX / 8 + 1)

struct fli_slab_chunk;
struct fli_slab_region;

struct fli_slab {
    struct fli_slab_chunk *open[FLI_SLAB_KINDS]; /* by size / 8: those with room */
    struct fli_slab_region *roomy;               /* with chunks that serve no size now */
    uint64_t regions;
    uint64_t used; /* records that are out, those of malloc as well */
    bool through;  /* everything from malloc; may be changed while nothing is out */
};

void fli_slab_init(struct fli_slab *s); /* allocates nothing */
void fli_slab_fini(struct fli_slab *s); /* when nothing is out any more; NULL is fine */

/* 8-aligned, not cleared. */
void *fli_slab_alloc(struct fli_slab *s, size_t size);

/* With the size it was asked for with. NULL is fine. */
void fli_slab_free(struct fli_slab *s, void *p, size_t size);

#endif
