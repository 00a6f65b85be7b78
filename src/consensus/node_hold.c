/* node_hold.c: commands that wait for a leader, and where they go when there is one.
 *
 * Two lists, both first in, first out: `returned` has what was on its way before and came back,
 * `held` what never was. The former go first, so that the order of one client's commands survives
 * a fail-over as well as it can. Bounded by pending_max bytes, shared with what is in outlets; each
 * command has a deadline from when it was submitted, which counts only while it is on these
 * lists. */
#include <stdlib.h>
#include <string.h>

#include "consensus/node_private.h"
#include "machine/batch.h"

static const struct fli_slice NOTHING = {NULL, 0};

struct held *held_create(struct node *n, struct node_ticket *t, const void *command, size_t len)
{
    FLI_ASSERT(len > 0 && len <= MACHINE_COMMAND_MAX);
    if (n->held_bytes > n->pending_max - len) {
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
    n->held_bytes += len;
    n->held_count++;
    return h;
}

void held_destroy(struct node *n, struct held *h)
{
    FLI_ASSERT(!fli_list_linked(&h->link));
    FLI_ASSERT(n->held_bytes >= h->len && n->held_count > 0);
    n->held_bytes -= h->len;
    n->held_count--;
    free(h);
}

void held_answer(struct node *n, struct held *h, int status)
{
    struct node_ticket *t = h->t;
    held_destroy(n, h);
    if (status == FL_EUNCERTAIN) {
        n->uncertain++;
    }
    t->cb(t, status, NULL, NOTHING);
}

static struct outlet *leader_outlet(struct node *n)
{
    struct peer *leader = n->role == NODE_FOLLOWER ? node_peer(n, n->leader_id) : NULL;
    return leader == NULL ? NULL : leader->outlet;
}

/* Moves one command on. False: it cannot go anywhere now. */
static bool route(struct node *n, struct held *h)
{
    if (h->t->deadline_ms <= uv_now(n->loop)) {
        fli_list_remove(&h->link);
        held_answer(n, h, FL_ENOLEADER);
        return true;
    }
    if (node_can_propose(n)) {
        struct node_ticket *t = h->t;
        int rv = proposer_add(n->proposer, t, h->data, h->len, t->cb);
        if (rv == FL_ENOLEADER || rv == FL_EBUSY || rv == FL_ENOMEM) {
            return false;
        }
        fli_list_remove(&h->link);
        if (rv != 0) {
            held_answer(n, h, rv);
        } else {
            held_destroy(n, h);
        }
        return true;
    }
    struct outlet *o = leader_outlet(n);
    if (o == NULL || !outlet_has_room(o, h)) {
        return false;
    }
    struct fli_list *before = h->link.prev;
    fli_list_remove(&h->link);
    if (!outlet_send(o, h)) {
        fli_list_insert_before(before->next, &h->link);
        return false;
    }
    return true;
}

static struct held *first_held(struct node *n)
{
    struct fli_list *first = fli_list_first(&n->returned);
    if (first == NULL) {
        first = fli_list_first(&n->held);
    }
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct held, link);
}

void hold_route(struct node *n)
{
    struct held *h = first_held(n);
    while (h != NULL && route(n, h)) {
        h = first_held(n);
    }
}

uint64_t hold_next_ms(struct node *n)
{
    struct outlet *o = leader_outlet(n);
    uint64_t now_ms = uv_now(n->loop);
    if (first_held(n) == NULL || o == NULL || o->probe_ms <= now_ms || o->count > 0) {
        return UINT64_MAX;
    }
    return o->probe_ms - now_ms;
}

static void expire_list(struct node *n, struct fli_list *list, bool in_order)
{
    uint64_t now_ms = uv_now(n->loop);
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
        held_answer(n, FLI_CONTAINER_OF(pos, struct held, link), FL_ENOLEADER);
    }
}

void hold_expire(struct node *n)
{
    expire_list(n, &n->returned, false);
    expire_list(n, &n->held, true);
}

void hold_refuse_all(struct node *n, int status)
{
    struct fli_list all;
    struct fli_list *pos;
    fli_list_init(&all);
    fli_list_splice(&all, &n->returned);
    fli_list_splice(&all, &n->held);
    while ((pos = fli_list_pop(&all)) != NULL) {
        held_answer(n, FLI_CONTAINER_OF(pos, struct held, link), status);
    }
}

void hold_give_back(struct node *n, struct node_ticket *t, const void *command, size_t len)
{
    struct held *h = held_create(n, t, command, len);
    if (h == NULL) {
        /* Surely not done either way; this way the client is told at once. */
        t->cb(t, FL_EBUSY, NULL, NOTHING);
        return;
    }
    fli_list_push(&n->returned, &h->link);
    node_wake(n);
}
