/* slab.c: see slab.h.
 *
 * The address of a record gives its chunk and its region, since both are aligned to their size.
 * A chunk begins with its head. In the first chunk of a region, the region's head comes before
 * that. */
#include "base/slab.h"

#include <stdlib.h>

#define CHUNK_SIZE ((size_t)64 << 10)
#define CHUNKS (FLI_REGION_SIZE / CHUNK_SIZE)
#define HEAD_SIZE 64u
/* The first regions are not worth a huge page each: there are too few records to fill 2 MiB. */
#define PLAIN_REGIONS 4u
#define ALL_FREE UINT32_MAX

_Static_assert(CHUNKS == 32, "free_mask has a bit for each chunk");

/* Linked while it has room for records. */
struct fli_slab_chunk {
    struct fli_slab_chunk *next;
    struct fli_slab_chunk *prev;
    void *freed;    /* freed records; each points to the next */
    uint32_t fresh; /* offset of the first record that was never used */
    uint32_t size;  /* of a record */
    uint32_t used;
};

/* Linked while it has chunks that belong to no size class. */
struct fli_slab_region {
    struct fli_slab_region *next;
    struct fli_slab_region *prev;
    uint32_t free_mask;
};
_Static_assert(sizeof(struct fli_slab_chunk) <= HEAD_SIZE, "the head of a chunk has room");
_Static_assert(sizeof(struct fli_slab_region) <= HEAD_SIZE, "the head of a region has room");

#if defined(__SANITIZE_ADDRESS__)
#define USE_MALLOC true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define USE_MALLOC true
#endif
#endif
#ifndef USE_MALLOC
#define USE_MALLOC false
#endif

void fli_slab_init(struct fli_slab *s)
{
    *s = (struct fli_slab){.use_malloc = USE_MALLOC};
}

/* ---- regions --------------------------------------------------------------------------------- */

static void link_region(struct fli_slab *s, struct fli_slab_region *r)
{
    r->prev = NULL;
    r->next = s->partial_regions;
    if (s->partial_regions != NULL) {
        s->partial_regions->prev = r;
    }
    s->partial_regions = r;
}

static void unlink_region(struct fli_slab *s, struct fli_slab_region *r)
{
    if (r->prev == NULL) {
        FLI_ASSERT(s->partial_regions == r);
        s->partial_regions = r->next;
    } else {
        r->prev->next = r->next;
    }
    if (r->next != NULL) {
        r->next->prev = r->prev;
    }
}

static void destroy_region(struct fli_slab *s, struct fli_slab_region *r)
{
    FLI_ASSERT(r->free_mask == ALL_FREE);
    unlink_region(s, r);
    s->regions--;
    fli_region_unmap(r);
}

static struct fli_slab_chunk *take_chunk(struct fli_slab *s)
{
    struct fli_slab_region *r = s->partial_regions;
    if (r == NULL) {
        r = fli_region_map(s->regions >= PLAIN_REGIONS);
        r->free_mask = ALL_FREE;
        s->regions++;
        link_region(s, r);
    }
    unsigned i = (unsigned)__builtin_ctz(r->free_mask);
    r->free_mask &= r->free_mask - 1;
    if (r->free_mask == 0) {
        unlink_region(s, r);
    }
    return (struct fli_slab_chunk *)(void *)((uint8_t *)r + i * CHUNK_SIZE +
                                             (i == 0 ? HEAD_SIZE : 0));
}

static void return_chunk(struct fli_slab *s, const struct fli_slab_chunk *c)
{
    uintptr_t base = (uintptr_t)c & ~(uintptr_t)(FLI_REGION_SIZE - 1);
    struct fli_slab_region *r = (struct fli_slab_region *)base;
    if (r->free_mask == 0) {
        link_region(s, r);
    }
    r->free_mask |= UINT32_C(1) << ((uintptr_t)c - base) / CHUNK_SIZE;
    /* One region with room stays, so that allocating and freeing at a region's edge costs
     * nothing. */
    if (r->free_mask == ALL_FREE && (s->partial_regions != r || r->next != NULL)) {
        destroy_region(s, r);
    }
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static void link_chunk(struct fli_slab_chunk **list, struct fli_slab_chunk *c)
{
    c->prev = NULL;
    c->next = *list;
    if (*list != NULL) {
        (*list)->prev = c;
    }
    *list = c;
}

static void unlink_chunk(struct fli_slab_chunk **list, const struct fli_slab_chunk *c)
{
    if (c->prev == NULL) {
        FLI_ASSERT(*list == c);
        *list = c->next;
    } else {
        c->prev->next = c->next;
    }
    if (c->next != NULL) {
        c->next->prev = c->prev;
    }
}

static uint8_t *chunk_base(const void *p)
{
    return (uint8_t *)((uintptr_t)p & ~(uintptr_t)(CHUNK_SIZE - 1));
}

static bool is_full(const struct fli_slab_chunk *c)
{
    return c->freed == NULL && c->fresh + c->size > CHUNK_SIZE;
}

static struct fli_slab_chunk *open_chunk(struct fli_slab *s, size_t size_class)
{
    struct fli_slab_chunk *c = take_chunk(s);
    size_t head = (size_t)((uint8_t *)c - chunk_base(c));
    *c = (struct fli_slab_chunk){.fresh = (uint32_t)(head + HEAD_SIZE),
                                 .size = (uint32_t)size_class * 8};
    link_chunk(&s->partial[size_class], c);
    return c;
}

/* The head of the chunk in which this record lies. */
static struct fli_slab_chunk *chunk_of(const void *p)
{
    uint8_t *base = chunk_base(p);
    bool first = ((uintptr_t)base & (FLI_REGION_SIZE - 1)) == 0;
    return (struct fli_slab_chunk *)(void *)(base + (first ? HEAD_SIZE : 0));
}

void *fli_slab_alloc(struct fli_slab *s, size_t size)
{
    s->used++;
    if (FLI_UNLIKELY(size > FLI_SLAB_SIZE_MAX || s->use_malloc)) {
        return fli_xmalloc(size);
    }
    size_t size_class = size == 0 ? 1 : (size + 7) / 8;
    struct fli_slab_chunk *c = s->partial[size_class];
    if (FLI_UNLIKELY(c == NULL)) {
        c = open_chunk(s, size_class);
    }
    void *p = c->freed;
    if (p != NULL) {
        c->freed = *(void **)p;
    } else {
        p = chunk_base(c) + c->fresh;
        c->fresh += c->size;
    }
    c->used++;
    if (FLI_UNLIKELY(is_full(c))) {
        unlink_chunk(&s->partial[size_class], c);
    }
    return p;
}

void fli_slab_free(struct fli_slab *s, void *p, size_t size)
{
    if (p == NULL) {
        return;
    }
    FLI_ASSERT(s->used > 0);
    s->used--;
    if (FLI_UNLIKELY(size > FLI_SLAB_SIZE_MAX || s->use_malloc)) {
        free(p);
        return;
    }
    size_t size_class = size == 0 ? 1 : (size + 7) / 8;
    struct fli_slab_chunk *c = chunk_of(p);
    FLI_ASSERT(c->size == size_class * 8 && c->used > 0);
    if (FLI_UNLIKELY(is_full(c))) {
        link_chunk(&s->partial[size_class], c);
    }
    *(void **)p = c->freed;
    c->freed = p;
    c->used--;
    if (c->used == 0) {
        unlink_chunk(&s->partial[size_class], c);
        return_chunk(s, c);
    }
}

void fli_slab_fini(struct fli_slab *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(s->used == 0);
    if (s->partial_regions != NULL) {
        destroy_region(s, s->partial_regions);
    }
    FLI_ASSERT(s->regions == 0 && s->partial_regions == NULL);
}
