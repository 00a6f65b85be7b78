/* line.c: see line.h. */
#include "base/line.h"

void fli_line_init(struct fli_line *l)
{
    fli_list_init(&l->fresh);
    fli_list_init(&l->crowded);
    l->fresh_n = 0;
}

void fli_queue_init(struct fli_queue *q, struct fli_line *line)
{
    q->line = line;
    fli_list_init(&q->link);
    fli_list_init(&q->items);
}

bool fli_line_empty(const struct fli_line *l)
{
    return fli_list_empty(&l->fresh) && fli_list_empty(&l->crowded);
}

static void insert(struct fli_queue *q, struct fli_list *at, struct fli_list *item)
{
    FLI_ASSERT(fli_list_linked(&q->link) == !fli_list_empty(&q->items));
    FLI_ASSERT(!fli_list_linked(item));
    if (fli_list_empty(&q->items)) {
        fli_list_push(&q->line->fresh, &q->link);
    }
    fli_list_insert_before(at, item);
}

void fli_queue_push(struct fli_queue *q, struct fli_list *item)
{
    insert(q, &q->items, item);
}

void fli_queue_push_front(struct fli_queue *q, struct fli_list *item)
{
    insert(q, q->items.next, item);
}

void fli_queue_left(struct fli_queue *q)
{
    if (fli_list_empty(&q->items)) {
        fli_list_remove(&q->link);
    }
}

static struct fli_list *next_queue(struct fli_line *l)
{
    bool fresh =
        !fli_list_empty(&l->fresh) && (l->fresh_n < FLI_LINE_FRESH || fli_list_empty(&l->crowded));
    l->fresh_n = fresh ? l->fresh_n + 1 : 0;
    return fli_list_pop(fresh ? &l->fresh : &l->crowded);
}

struct fli_list *fli_line_pop(struct fli_line *l)
{
    struct fli_list *link = next_queue(l);
    if (link == NULL) {
        return NULL;
    }
    struct fli_queue *q = FLI_CONTAINER_OF(link, struct fli_queue, link);
    struct fli_list *item = fli_list_pop(&q->items);
    FLI_ASSERT(item != NULL);
    if (!fli_list_empty(&q->items)) {
        fli_list_push(&l->crowded, &q->link);
    }
    return item;
}
