/* pending.c: see pending.h. */
#include "store/pending.h"

#include <stdlib.h>

static struct pending *pending_of_link(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct pending, link);
}

void pending_init(struct pending_lists *l)
{
    *l = (struct pending_lists){.queued = 0};
    fli_line_init(&l->line);
    fli_list_init(&l->unchecked);
    fli_shares_init(&l->bytes);
    fli_shares_init(&l->deferred_bytes);
    for (unsigned i = 0; i < PENDING_ADDRESSES; i++) {
        fli_share_init(&l->of[i].bytes, i);
        fli_share_init(&l->of[i].deferred_bytes, i);
        fli_queue_init(&l->of[i].queue, &l->line);
        fli_list_init(&l->of[i].deferred);
        fli_list_init(&l->of[i].unchecked);
    }
}

void pending_fini(struct pending_lists *l)
{
    fli_shares_fini(&l->bytes);
    fli_shares_fini(&l->deferred_bytes);
}

static struct pending_of *of_address(struct pending_lists *l, uint64_t address)
{
    return &l->of[address % PENDING_ADDRESSES];
}

struct pending *pending_new(struct pending_lists *l, size_t size, uint64_t address)
{
    struct pending *p = malloc(size);
    if (p == NULL) {
        return NULL;
    }
    *p = (struct pending){.size = size, .of = of_address(l, address), .place = PENDING_NOWHERE};
    fli_list_init(&p->link);
    fli_list_init(&p->unchecked);
    if (fli_share_take(&l->bytes, &p->of->bytes, size) != 0) {
        free(p);
        return NULL;
    }
    return p;
}

void pending_free(struct pending_lists *l, struct pending *p)
{
    FLI_ASSERT(p->place == PENDING_NOWHERE);
    fli_share_give_back(&l->bytes, &p->of->bytes, p->size);
    store_op_fini(&p->op);
    free(p);
}

/* ---- lists ---- */

static void place(struct pending *p, enum pending_place at)
{
    FLI_ASSERT(p->place == PENDING_NOWHERE);
    p->place = at;
}

void pending_queue(struct pending_lists *l, struct pending *p)
{
    place(p, PENDING_QUEUED);
    fli_queue_push(&p->of->queue, &p->link);
    l->queued++;
}

void pending_check(struct pending_lists *l, struct pending *p)
{
    place(p, PENDING_UNCHECKED);
    fli_list_push(&l->unchecked, &p->link);
    fli_list_push(&p->of->unchecked, &p->unchecked);
    l->unchecked_n++;
    pending_set_conn_state(p, pending_conn_state(p) + CONN_UNCHECKED);
}

struct pending *pending_first_unchecked(const struct pending_lists *l)
{
    struct fli_list *link = fli_list_first(&l->unchecked);
    return link == NULL ? NULL : pending_of_link(link);
}

/* Many small ones cost their sum, and time as well. */
static size_t deferred_size(const struct pending *p)
{
    return p->size > SERVICE_DEFERRED_LEAST ? p->size : SERVICE_DEFERRED_LEAST;
}

static void no_longer_unchecked(struct pending_lists *l, struct pending *p)
{
    fli_list_remove(&p->unchecked);
    l->unchecked_n--;
    if (p->request != NULL) {
        FLI_ASSERT(pending_conn_state(p) >= CONN_UNCHECKED);
        pending_set_conn_state(p, pending_conn_state(p) - CONN_UNCHECKED);
    }
}

static void removed(struct pending_lists *l, struct pending *p)
{
    l->queued -= p->place == PENDING_QUEUED;
    if (p->place == PENDING_UNCHECKED) {
        no_longer_unchecked(l, p);
    }
    if (p->place == PENDING_DEFERRED) {
        fli_share_give_back(&l->deferred_bytes, &p->of->deferred_bytes, deferred_size(p));
        l->deferred_n--;
    }
    p->place = PENDING_NOWHERE;
}

void pending_remove(struct pending_lists *l, struct pending *p)
{
    FLI_ASSERT(p->place != PENDING_NOWHERE);
    fli_list_remove(&p->link);
    fli_queue_left(&p->of->queue);
    removed(l, p);
}

struct pending *pending_next(struct pending_lists *l)
{
    struct fli_list *link = fli_line_pop(&l->line);
    if (link == NULL) {
        return NULL;
    }
    removed(l, pending_of_link(link));
    return pending_of_link(link);
}

static int join_deferred(struct pending_lists *l, struct pending *p, struct fli_list *at)
{
    int rc = fli_share_take(&l->deferred_bytes, &p->of->deferred_bytes, deferred_size(p));
    if (rc == 0) {
        l->deferred_n++;
        place(p, PENDING_DEFERRED);
        fli_list_insert_before(at, &p->link);
    }
    return rc;
}

int pending_defer(struct pending_lists *l, struct pending *p)
{
    return join_deferred(l, p, &p->of->deferred);
}

int pending_defer_front(struct pending_lists *l, struct pending *p)
{
    return join_deferred(l, p, p->of->deferred.next);
}

void pending_queue_front(struct pending_lists *l, struct pending *p)
{
    place(p, PENDING_QUEUED);
    fli_queue_push_front(&p->of->queue, &p->link);
    l->queued++;
}

/* ---- who gives up ---- */

bool pending_has_room(const struct pending_lists *l, size_t size)
{
    return size <= SERVICE_PENDING_MAX - l->bytes.taken;
}

bool pending_may_defer(const struct pending_lists *l, const struct pending *p)
{
    return l->deferred_bytes.taken + deferred_size(p) <= SERVICE_DEFERRED_MAX;
}

static struct pending *last_of(const struct fli_list *list)
{
    return fli_list_empty(list) ? NULL : pending_of_link(list->prev);
}

/* What is unchecked came later than what is queued or deferred of its connection. */
static struct pending *last(const struct pending_of *of)
{
    if (!fli_list_empty(&of->unchecked)) {
        return FLI_CONTAINER_OF(of->unchecked.prev, struct pending, unchecked);
    }
    struct pending *p = last_of(&of->deferred);
    return p != NULL ? p : last_of(&of->queue.items);
}

struct pending *pending_any(struct pending_lists *l)
{
    for (unsigned i = 0; i < PENDING_ADDRESSES; i++) {
        if (last(&l->of[i]) != NULL) {
            return last(&l->of[i]);
        }
    }
    return NULL;
}

static struct pending *taken(struct pending_lists *l, struct pending *p)
{
    if (p != NULL) {
        pending_remove(l, p);
    }
    return p;
}

struct pending *pending_give_up(struct pending_lists *l, uint64_t address)
{
    struct fli_share *most = fli_shares_most(&l->bytes);
    if (most == NULL || most == &of_address(l, address)->bytes) {
        return NULL;
    }
    return taken(l, last(FLI_CONTAINER_OF(most, struct pending_of, bytes)));
}

struct pending *pending_give_up_deferred(struct pending_lists *l, const struct pending *p)
{
    struct fli_share *most = fli_shares_most(&l->deferred_bytes);
    if (most == NULL || most == &p->of->deferred_bytes) {
        return NULL;
    }
    const struct pending_of *of = FLI_CONTAINER_OF(most, struct pending_of, deferred_bytes);
    return taken(l, last_of(&of->deferred));
}

/* ---- deferring ---- */

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

/* The last one goes first to the front. Nothing is sent in here, so all operations of a connection
 * go on, or none. */
static void resume(struct pending_lists *l, struct pending_of *of)
{
    for (struct fli_list *link = of->deferred.prev, *before = link->prev; link != &of->deferred;
         link = before, before = link->prev) {
        struct pending *p = pending_of_link(link);
        if (!is_behind(p)) {
            pending_set_conn_state(p, pending_conn_state(p) & ~CONN_DEFERRED);
            pending_remove(l, p);
            pending_queue_front(l, p);
        }
    }
}

void pending_resume(struct pending_lists *l)
{
    for (unsigned i = 0; i < PENDING_ADDRESSES; i++) {
        resume(l, &l->of[i]);
    }
}
