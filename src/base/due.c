/* due.c: see due.h. */
#include "base/due.h"

static bool is_sooner(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct fli_due *x = FLI_CONTAINER_OF(a, struct fli_due, node);
    const struct fli_due *y = FLI_CONTAINER_OF(b, struct fli_due, node);
    return x->at_ms != y->at_ms ? x->at_ms < y->at_ms : x->seq < y->seq;
}

void fli_dues_init(struct fli_dues *s)
{
    fli_heap_init(&s->heap, is_sooner);
    s->seq = 0;
    s->floor_ms = 0;
}

void fli_dues_fini(struct fli_dues *s)
{
    fli_heap_fini(&s->heap);
}

int fli_due_add(struct fli_dues *s, struct fli_due *d,
                void (*fire)(struct fli_due *d, uint64_t now_ms))
{
    fli_heap_node_init(&d->node);
    d->at_ms = FLI_DUE_NEVER;
    d->seq = ++s->seq;
    d->fire = fire;
    return fli_heap_insert(&s->heap, &d->node);
}

void fli_due_set(struct fli_dues *s, struct fli_due *d, uint64_t at_ms)
{
    FLI_ASSERT(d->node.pos != FLI_HEAP_NONE);
    d->at_ms = at_ms > s->floor_ms ? at_ms : s->floor_ms;
    d->seq = ++s->seq;
    fli_heap_update(&s->heap, &d->node);
}

void fli_due_remove(struct fli_dues *s, struct fli_due *d)
{
    if (d->node.pos != FLI_HEAP_NONE) {
        fli_heap_remove(&s->heap, &d->node);
        fli_heap_node_init(&d->node);
    }
}

uint64_t fli_dues_next(const struct fli_dues *s)
{
    const struct fli_heap_node *first = fli_heap_min(&s->heap);
    return first == NULL ? FLI_DUE_NEVER : FLI_CONTAINER_OF(first, struct fli_due, node)->at_ms;
}

struct fli_due *fli_dues_first(const struct fli_dues *s, uint64_t now_ms)
{
    struct fli_heap_node *first = fli_heap_min(&s->heap);
    struct fli_due *d = first == NULL ? NULL : FLI_CONTAINER_OF(first, struct fli_due, node);
    return d != NULL && d->at_ms <= now_ms ? d : NULL;
}

void fli_dues_run(struct fli_dues *s, uint64_t now_ms)
{
    struct fli_due *d;
    s->floor_ms = now_ms + 1;
    while ((d = fli_dues_first(s, now_ms)) != NULL) {
        fli_due_set(s, d, FLI_DUE_NEVER);
        d->fire(d, now_ms);
    }
    s->floor_ms = 0;
}
