/* held.c: see held.h. */
#include "consensus/held.h"

#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"

static const struct fli_slice NOTHING = {NULL, 0};

void held_init(struct held_queue *q, size_t bytes_max)
{
    *q = (struct held_queue){.bytes_max = bytes_max};
    fli_list_init(&q->returned);
    fli_list_init(&q->waiting);
}

struct held *held_create(struct held_queue *q, struct node_ticket *t, const void *command,
                         size_t len)
{
    FLI_ASSERT(len > 0 && len <= MACHINE_COMMAND_MAX);
    if (len > q->bytes_max - q->bytes) {
        return NULL;
    }
    struct held *h = malloc(sizeof *h + len);
    if (h == NULL) {
        return NULL;
    }
    fli_list_init(&h->link);
    h->t = t;
    h->start = 0;
    h->len = (uint32_t)len;
    memcpy(h->data, command, len);
    h->query = MACHINE_OP_IS_QUERY(h->data[0]);
    q->bytes += len;
    q->count++;
    return h;
}

void held_destroy(struct held_queue *q, struct held *h)
{
    FLI_ASSERT(!fli_list_linked(&h->link));
    FLI_ASSERT(q->bytes >= h->len && q->count > 0);
    q->bytes -= h->len;
    q->count--;
    free(h);
}

void held_answer(struct held_queue *q, struct held *h, int status)
{
    struct node_ticket *t = h->t;
    held_destroy(q, h);
    q->uncertain += status == FL_EUNCERTAIN;
    t->cb(t, status, NULL, NOTHING);
}

struct held *held_first(const struct held_queue *q)
{
    struct fli_list *first = fli_list_first(&q->returned);
    if (first == NULL) {
        first = fli_list_first(&q->waiting);
    }
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct held, link);
}

static void expire_list(struct held_queue *q, struct fli_list *list, uint64_t now_ms, bool in_order)
{
    struct fli_list due;
    fli_list_init(&due);
    FLI_LIST_FOREACH_SAFE(pos, tmp, list)
    {
        struct held *h = FLI_CONTAINER_OF(pos, struct held, link);
        if (h->t->deadline_ms <= now_ms) {
            fli_list_remove(pos);
            fli_list_push(&due, pos);
        } else if (in_order) {
            break;
        }
    }
    /* Callbacks may submit, so they come when the walk is over. */
    struct fli_list *pos;
    while ((pos = fli_list_pop(&due)) != NULL) {
        held_answer(q, FLI_CONTAINER_OF(pos, struct held, link), FL_ENOLEADER);
    }
}

void held_expire(struct held_queue *q, uint64_t now_ms)
{
    expire_list(q, &q->returned, now_ms, false);
    expire_list(q, &q->waiting, now_ms, true);
}

void held_refuse_all(struct held_queue *q, int status)
{
    struct fli_list all;
    struct fli_list *pos;
    fli_list_init(&all);
    fli_list_splice(&all, &q->returned);
    fli_list_splice(&all, &q->waiting);
    while ((pos = fli_list_pop(&all)) != NULL) {
        held_answer(q, FLI_CONTAINER_OF(pos, struct held, link), status);
    }
}

void held_give_back(struct held_queue *q, struct node_ticket *t, const void *command, size_t len)
{
    struct held *h = held_create(q, t, command, len);
    if (h == NULL) {
        /* Surely not done either way; this way the client is told at once. */
        t->cb(t, FL_EBUSY, NULL, NOTHING);
        return;
    }
    fli_list_push(&q->returned, &h->link);
}
