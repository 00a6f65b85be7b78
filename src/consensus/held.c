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
    backlog_init(&q->waiting);
}

void held_fini(struct held_queue *q)
{
    FLI_ASSERT(q->count == 0 && fli_list_empty(&q->returned));
    backlog_fini(&q->waiting);
}

static bool has_room(struct held_queue *q, const struct node_ticket *t, const void *command,
                     size_t len)
{
    uint8_t op;
    memcpy(&op, command, 1);
    size_t room = q->bytes_max - q->bytes;
    size_t kept = backlog_is_urgent(op) ? 0 : BACKLOG_URGENT(q->bytes_max);
    kept = backlog_has(&q->waiting, t) ? q->bytes_max / 4 : kept;
    return room >= kept && len <= room - kept;
}

/* Creates a held command that is on no list. NULL: no memory. */
static struct held *create(struct held_queue *q, struct node_ticket *t, const void *command,
                           size_t len)
{
    FLI_ASSERT(len > 0 && len <= MACHINE_COMMAND_LARGEST);
    struct held *h = malloc(sizeof *h + len);
    if (h == NULL) {
        return NULL;
    }
    fli_list_init(&h->link);
    fli_list_init(&h->at_source);
    h->source = NULL;
    h->t = t;
    h->start = 0;
    h->len = (uint32_t)len;
    memcpy(h->data, command, len);
    h->query = MACHINE_OP_IS_QUERY(h->data[0]);
    q->bytes += len;
    q->count++;
    return h;
}

int held_add(struct held_queue *q, struct node_ticket *t, const void *command, size_t len)
{
    if (!has_room(q, t, command, len)) {
        return FL_EBUSY;
    }
    struct held *h = create(q, t, command, len);
    if (h == NULL) {
        return FL_ENOMEM;
    }
    int rv = backlog_push(&q->waiting, h);
    if (rv != 0) {
        held_destroy(q, h);
    }
    return rv;
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
    return first != NULL ? FLI_CONTAINER_OF(first, struct held, link) : backlog_first(&q->waiting);
}

struct held *held_first_urgent(const struct held_queue *q)
{
    return fli_list_empty(&q->returned) ? backlog_first_urgent(&q->waiting) : NULL;
}

bool held_has(struct held_queue *q, const struct node_ticket *t)
{
    return !fli_list_empty(&q->returned) || backlog_has(&q->waiting, t);
}

void held_take(struct held_queue *q, struct held *h)
{
    if (h->source != NULL) {
        backlog_remove(&q->waiting, h);
    } else {
        fli_list_remove(&h->link);
    }
}

static void move(struct held_queue *q, struct held *h, struct fli_list *to)
{
    held_take(q, h);
    fli_list_push(to, &h->link);
}

static void answer_all(struct held_queue *q, struct fli_list *list, int status)
{
    struct fli_list *pos;
    while ((pos = fli_list_pop(list)) != NULL) {
        held_answer(q, FLI_CONTAINER_OF(pos, struct held, link), status);
    }
}

bool held_expire(struct held_queue *q, uint64_t now_ms)
{
    struct fli_list due;
    struct held *h;
    unsigned n = 0;
    fli_list_init(&due);
    FLI_LIST_FOREACH_SAFE(pos, tmp, &q->returned)
    {
        h = FLI_CONTAINER_OF(pos, struct held, link);
        if (h->t->deadline_ms <= now_ms) {
            move(q, h, &due);
            n++;
        }
        if (n == HELD_EXPIRED_MAX) {
            break;
        }
    }
    /* Waiting commands came in the order of their deadlines. */
    while (n < HELD_EXPIRED_MAX && (h = backlog_oldest(&q->waiting)) != NULL &&
           h->t->deadline_ms <= now_ms) {
        move(q, h, &due);
        n++;
    }
    /* Callbacks may submit commands, so they run after the walk. */
    answer_all(q, &due, FL_ENOLEADER);
    return n == HELD_EXPIRED_MAX;
}

void held_take_all(struct held_queue *q, struct fli_list *to)
{
    struct held *h;
    fli_list_splice(to, &q->returned);
    while ((h = backlog_oldest(&q->waiting)) != NULL) {
        move(q, h, to);
    }
}

void held_refuse_all(struct held_queue *q, int status)
{
    struct fli_list all;
    fli_list_init(&all);
    held_take_all(q, &all);
    answer_all(q, &all, status);
}

void held_return(struct held_queue *q, struct node_ticket *t, const void *command, size_t len)
{
    struct held *h = len > q->bytes_max - q->bytes ? NULL : create(q, t, command, len);
    if (h == NULL) {
        /* Nothing was done in either case; the client learns it at once this way. */
        t->cb(t, FL_EBUSY, NULL, NOTHING);
        return;
    }
    fli_list_push(&q->returned, &h->link);
}
