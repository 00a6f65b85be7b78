/* pending.c: see pending.h. */
#include "store/pending.h"

void pending_list_init(struct pending_list *l)
{
    *l = (struct pending_list){.n = 0};
    fli_list_init(&l->list);
}

struct pending *pending_first(const struct pending_list *l)
{
    struct fli_list *first = fli_list_first(&l->list);
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct pending, link);
}

static void insert_before(struct pending_list *l, struct fli_list *at, struct pending *p)
{
    FLI_ASSERT(p->on == NULL);
    fli_list_insert_before(at, &p->link);
    p->on = l;
    l->n++;
    l->bytes += p->size;
}

void pending_push(struct pending_list *l, struct pending *p)
{
    insert_before(l, &l->list, p);
}

void pending_push_front(struct pending_list *l, struct pending *p)
{
    insert_before(l, l->list.next, p);
}

void pending_remove(struct pending *p)
{
    struct pending_list *l = p->on;
    FLI_ASSERT(l != NULL && l->n > 0 && l->bytes >= p->size);
    fli_list_remove(&p->link);
    p->on = NULL;
    l->n--;
    l->bytes -= p->size;
}

uintptr_t pending_conn_state(const struct pending *p)
{
    return p->request == NULL ? 0 : (uintptr_t)net_conn_user(p->request->conn);
}

void pending_set_conn_state(const struct pending *p, uintptr_t state)
{
    if (p->request != NULL) {
        net_conn_set_user(p->request->conn, (void *)state);
    }
}

bool pending_is_deferred(const struct pending *p)
{
    return (pending_conn_state(p) & CONN_DEFERRED) != 0;
}

static bool is_behind(const struct pending *p)
{
    return p->request != NULL && net_conn_output_bytes(p->request->conn) >= SERVICE_DEFER_BYTES;
}

bool pending_must_defer(const struct pending *p)
{
    return pending_is_deferred(p) || (p->op.verb == STORE_GET && is_behind(p));
}

bool pending_may_defer(const struct pending_list *deferred, size_t size)
{
    return deferred->n < SERVICE_DEFERRED_OPS_MAX && deferred->bytes <= SERVICE_DEFERRED_MAX &&
           size <= SERVICE_DEFERRED_MAX - deferred->bytes;
}

/* Nothing is sent in here, so all operations of a connection go on, or none. */
void pending_resume(struct pending_list *deferred, struct pending_list *queue)
{
    struct fli_list *at = queue->list.next;
    FLI_LIST_FOREACH_SAFE(node, next, &deferred->list)
    {
        struct pending *p = FLI_CONTAINER_OF(node, struct pending, link);
        if (!is_behind(p)) {
            pending_set_conn_state(p, pending_conn_state(p) & ~CONN_DEFERRED);
            pending_remove(p);
            insert_before(queue, at, p);
        }
    }
}
