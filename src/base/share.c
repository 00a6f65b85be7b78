/* share.c: see share.h. */
#include "base/share.h"

static const struct fli_share *share_of(const struct fli_heap_node *n)
{
    return FLI_CONTAINER_OF((struct fli_heap_node *)(uintptr_t)n, struct fli_share, node);
}

static bool has_more(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct fli_share *x = share_of(a);
    const struct fli_share *y = share_of(b);
    return x->has != y->has ? x->has > y->has : x->id < y->id;
}

void fli_shares_init(struct fli_shares *s)
{
    fli_heap_init(&s->by_most, has_more);
    s->taken = 0;
}

void fli_shares_fini(struct fli_shares *s)
{
    FLI_ASSERT(s->by_most.len == 0 && s->taken == 0);
    fli_heap_fini(&s->by_most);
}

void fli_share_init(struct fli_share *one, uint64_t id)
{
    *one = (struct fli_share){.id = id};
    fli_heap_node_init(&one->node);
}

int fli_share_take(struct fli_shares *s, struct fli_share *one, uint64_t n)
{
    FLI_ASSERT(n > 0 && n <= UINT64_MAX - s->taken);
    one->has += n;
    if (one->has > n) {
        fli_heap_update(&s->by_most, &one->node);
    } else if (fli_heap_insert(&s->by_most, &one->node) != 0) {
        one->has = 0;
        return FL_ENOMEM;
    }
    s->taken += n;
    return 0;
}

void fli_share_give_back(struct fli_shares *s, struct fli_share *one, uint64_t n)
{
    FLI_ASSERT(n > 0 && one->has >= n && s->taken >= n);
    one->has -= n;
    s->taken -= n;
    if (one->has == 0) {
        fli_heap_remove(&s->by_most, &one->node);
    } else {
        fli_heap_update(&s->by_most, &one->node);
    }
}

struct fli_share *fli_shares_most(const struct fli_shares *s)
{
    struct fli_heap_node *n = fli_heap_min(&s->by_most);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct fli_share, node);
}
