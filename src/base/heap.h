/* heap.h: intrusive 4-ary min-heap over a total order given by the caller.
 *
 * The node records its place, so removal and re-ordering are O(log n) without a search. With a
 * total order (no two elements equal), the sequence of minima does not depend on the heap's
 * history. So expiry is the same on every replica. Not thread-safe. */
#ifndef FLI_HEAP_H
#define FLI_HEAP_H

#include <stdbool.h>

#include "base/base.h"

#define FLI_HEAP_NONE UINT32_MAX

struct fli_heap_node {
    uint32_t pos; /* FLI_HEAP_NONE: in no heap; so a heap has fewer elements than that */
};

typedef bool (*fli_heap_less)(const struct fli_heap_node *a, const struct fli_heap_node *b);

struct fli_heap {
    struct fli_heap_node **slots;
    size_t len;
    size_t cap;
    fli_heap_less less;
};

void fli_heap_init(struct fli_heap *h, fli_heap_less less);
void fli_heap_fini(struct fli_heap *h);
static inline void fli_heap_node_init(struct fli_heap_node *n)
{
    n->pos = FLI_HEAP_NONE;
}
static inline struct fli_heap_node *fli_heap_min(const struct fli_heap *h)
{
    return h->len == 0 ? NULL : h->slots[0];
}
int fli_heap_insert(struct fli_heap *h, struct fli_heap_node *n) FLI_MUST_USE; /* 0 or FL_ENOMEM */
void fli_heap_remove(struct fli_heap *h, struct fli_heap_node *n);
void fli_heap_update(struct fli_heap *h, struct fli_heap_node *n); /* after its key changed */

#endif
