/* heap.c: see heap.h. Four children a node: half the depth of a binary heap, and the slots of the
 * four share a cache line. */
#include "base/heap.h"

#include <stdlib.h>

#define HEAP_ARITY 4u
#define HEAP_CAP_MIN 16u

void fli_heap_init(struct fli_heap *h, fli_heap_less less)
{
    FLI_ASSERT(less != NULL);
    *h = (struct fli_heap){.less = less};
}

void fli_heap_fini(struct fli_heap *h)
{
    if (h == NULL) {
        return;
    }
    free(h->slots);
    h->slots = NULL;
    h->len = 0;
    h->cap = 0;
}

static void place(struct fli_heap *h, size_t pos, struct fli_heap_node *n)
{
    h->slots[pos] = n;
    n->pos = (uint32_t)pos;
}

/* Moves the hole at pos towards the root until n fits there. Returns n's place. */
static size_t sift_up(struct fli_heap *h, size_t pos, struct fli_heap_node *n)
{
    while (pos > 0) {
        size_t parent = (pos - 1) / HEAP_ARITY;
        if (!h->less(n, h->slots[parent])) {
            break;
        }
        place(h, pos, h->slots[parent]);
        pos = parent;
    }
    place(h, pos, n);
    return pos;
}

static void sift_down(struct fli_heap *h, size_t pos, struct fli_heap_node *n)
{
    while (pos <= (h->len - 1) / HEAP_ARITY) {
        size_t first = pos * HEAP_ARITY + 1;
        if (first >= h->len) {
            break;
        }
        size_t end = h->len - first < HEAP_ARITY ? h->len : first + HEAP_ARITY;
        size_t best = first;
        for (size_t i = first + 1; i < end; i++) {
            if (h->less(h->slots[i], h->slots[best])) {
                best = i;
            }
        }
        if (!h->less(h->slots[best], n)) {
            break;
        }
        place(h, pos, h->slots[best]);
        pos = best;
    }
    place(h, pos, n);
}

int fli_heap_insert(struct fli_heap *h, struct fli_heap_node *n)
{
    FLI_ASSERT(n->pos == FLI_HEAP_NONE);
    if (h->len == h->cap) {
        size_t cap = h->cap == 0 ? HEAP_CAP_MIN : h->cap * 2;
        if (cap > FLI_HEAP_NONE || cap > SIZE_MAX / sizeof(struct fli_heap_node *)) {
            return FL_ENOMEM;
        }
        struct fli_heap_node **slots = realloc(h->slots, cap * sizeof(struct fli_heap_node *));
        if (slots == NULL) {
            return FL_ENOMEM;
        }
        h->slots = slots;
        h->cap = cap;
    }
    h->len++;
    sift_up(h, h->len - 1, n);
    return 0;
}

/* When it is a quarter full, frees half of the memory. Failing to do so is harmless. */
static void shrink(struct fli_heap *h)
{
    if (h->cap <= HEAP_CAP_MIN || h->len > h->cap / 4) {
        return;
    }
    size_t cap = h->cap / 2;
    struct fli_heap_node **slots = realloc(h->slots, cap * sizeof(struct fli_heap_node *));
    if (slots != NULL) {
        h->slots = slots;
        h->cap = cap;
    }
}

void fli_heap_remove(struct fli_heap *h, struct fli_heap_node *n)
{
    size_t pos = n->pos;
    FLI_ASSERT(pos < h->len);
    FLI_ASSERT(h->slots[pos] == n);
    struct fli_heap_node *last = h->slots[--h->len];
    n->pos = FLI_HEAP_NONE;
    if (last != n) {
        if (sift_up(h, pos, last) == pos) {
            sift_down(h, pos, last);
        }
    }
    shrink(h);
}

void fli_heap_update(struct fli_heap *h, struct fli_heap_node *n)
{
    size_t pos = n->pos;
    FLI_ASSERT(pos < h->len);
    FLI_ASSERT(h->slots[pos] == n);
    if (sift_up(h, pos, n) == pos) {
        sift_down(h, pos, n);
    }
}
