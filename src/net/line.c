/* line.c: see line.h. */
#include "net/line.h"

void net_line_init(struct net_line *l)
{
    fli_list_init(&l->fresh);
    fli_list_init(&l->crowded);
    l->fresh_n = 0;
}

void net_queue_init(struct net_queue *q, struct net_line *line)
{
    q->line = line;
    fli_list_init(&q->link);
    fli_list_init(&q->conns);
}

bool net_line_empty(const struct net_line *l)
{
    return fli_list_empty(&l->fresh) && fli_list_empty(&l->crowded);
}

void net_queue_push(struct net_queue *q, struct fli_list *conn)
{
    FLI_ASSERT(fli_list_linked(&q->link) == !fli_list_empty(&q->conns));
    FLI_ASSERT(!fli_list_linked(conn));
    if (fli_list_empty(&q->conns)) {
        fli_list_push(&q->line->fresh, &q->link);
    }
    fli_list_push(&q->conns, conn);
}

void net_queue_left(struct net_queue *q)
{
    if (fli_list_empty(&q->conns)) {
        fli_list_remove(&q->link);
    }
}

static struct fli_list *next_queue(struct net_line *l)
{
    bool fresh =
        !fli_list_empty(&l->fresh) && (l->fresh_n < NET_LINE_FRESH || fli_list_empty(&l->crowded));
    l->fresh_n = fresh ? l->fresh_n + 1 : 0;
    return fli_list_pop(fresh ? &l->fresh : &l->crowded);
}

struct fli_list *net_line_pop(struct net_line *l)
{
    struct fli_list *link = next_queue(l);
    if (link == NULL) {
        return NULL;
    }
    struct net_queue *q = FLI_CONTAINER_OF(link, struct net_queue, link);
    struct fli_list *conn = fli_list_pop(&q->conns);
    FLI_ASSERT(conn != NULL);
    if (!fli_list_empty(&q->conns)) {
        fli_list_push(&l->crowded, &q->link);
    }
    return conn;
}
