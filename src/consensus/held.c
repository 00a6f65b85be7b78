/* held.c: see held.h. */
#include "consensus/held.h"

#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"

static const struct fli_slice NOTHING = {NULL, 0};

void held_init(struct held_queue *q, size_t bytes_max)
{
    *q = (struct held_queue){.bytes_max = bytes_max};
    backlog_init(&q->waiting);
}

void held_fini(struct held_queue *q)
{
    FLI_ASSERT(q->count == 0);
    backlog_fini(&q->waiting);
}

static bool has_room(struct held_queue *q, const struct node_ticket *t, const void *command,
                     size_t len)
{
    uint8_t op;
    memcpy(&op, command, 1);
    size_t room = q->bytes_max - q->bytes;
    size_t kept = backlog_is_urgent(t, op) ? 0 : BACKLOG_URGENT(q->bytes_max);
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
    fli_heap_node_init(&h->at_due);
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
    return backlog_first(&q->waiting);
}

struct held *held_first_urgent(const struct held_queue *q)
{
    return backlog_first_urgent(&q->waiting);
}

size_t held_sources(const struct held_queue *q)
{
    return q->waiting.sources.len;
}

void held_pass(struct held_queue *q, const struct held *h)
{
    backlog_pass(&q->waiting, h);
}

bool held_has(struct held_queue *q, const struct node_ticket *t)
{
    return backlog_has(&q->waiting, t);
}

void held_take(struct held_queue *q, struct held *h)
{
    backlog_remove(&q->waiting, h);
}

int held_put_back(struct held_queue *q, struct held *h)
{
    return backlog_return(&q->waiting, h);
}

static void move(struct held_queue *q, struct held *h, struct fli_list *to)
{
    held_take(q, h);
    fli_list_push(to, &h->link);
}

void held_answer_all(struct held_queue *q, struct fli_list *list, int status)
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
    while (n < HELD_EXPIRED_MAX && (h = backlog_first_due(&q->waiting)) != NULL &&
           h->due_ms <= now_ms) {
        move(q, h, &due);
        n++;
    }
    /* Callbacks may submit commands, so they run after the walk. */
    held_answer_all(q, &due, FL_ENOLEADER);
    return n == HELD_EXPIRED_MAX;
}

void held_refuse_all(struct held_queue *q, int status)
{
    struct fli_list all;
    struct held *h;
    fli_list_init(&all);
    while ((h = backlog_first(&q->waiting)) != NULL) {
        move(q, h, &all);
    }
    held_answer_all(q, &all, status);
}

void held_return(struct held_queue *q, struct node_ticket *t, const void *command, size_t len)
{
    struct held *h = len > q->bytes_max - q->bytes ? NULL : create(q, t, command, len);
    /* Nothing was done in either case; the client learns it at once this way. */
    if (h == NULL) {
        t->cb(t, FL_EBUSY, NULL, NOTHING);
    } else if (held_put_back(q, h) != 0) {
        held_answer(q, h, FL_EBUSY);
    }
}
