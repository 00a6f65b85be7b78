/* listing.c: LOCKS, SESSION LIST, SHOW and SESSION SHOW, a few at a time.
 *
 * One page may look at ten thousand records, which takes the leader some milliseconds, and the
 * rendered answer may fill an eighth of a connection's output limit. A client that sent a thousand
 * of them at once would keep the leader from its heartbeats until it is replaced, or would be cut
 * off. So a node has only a few in flight. The others stand in line here, where nothing else waits
 * behind them. Addresses take turns in it, and when it is full, the one with the most in line gives
 * up its last.
 *
 * A client that reads its answers too slowly is passed over. A turn passes over twice as many as a
 * connection may have in flight, so one of them hides nobody of its address. The next turn begins
 * with the oldest again, so the requests of a connection keep their order.
 *
 * dispatch_turn() serves the line, never a result. A request that has stood in line too long is
 * answered BUSY, so that every client gets an answer even when each one takes its time. */
#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"
#include "server/dispatch_private.h"

struct listing {
    struct fli_list link;   /* of its address */
    struct fli_list by_age; /* dispatch->listings_by_age: in the order of deadlines */
    struct listings_of *of;
    struct call *call;
    node_ticket_cb cb;
    uint64_t until_ms;
    size_t len;
    uint8_t command[];
};

void listing_init(struct dispatch *d)
{
    fli_line_init(&d->listings);
    fli_shares_init(&d->listings_shares);
    fli_list_init(&d->listings_by_age);
    for (unsigned i = 0; i < DISPATCH_LISTINGS_QUEUES; i++) {
        fli_queue_init(&d->listings_of[i].queue, &d->listings);
        fli_share_init(&d->listings_of[i].share, i);
    }
}

void listing_fini(struct dispatch *d)
{
    fli_shares_fini(&d->listings_shares);
}

bool listing_is(const struct machine_command *m)
{
    return m->op == MACHINE_OP_LOCKS || m->op == MACHINE_OP_SESSION_LIST ||
           m->op == MACHINE_OP_SHOW || m->op == MACHINE_OP_SESSION_SHOW;
}

static bool is_behind(const struct call *c)
{
    const struct dispatch_sink *sink = &c->dispatch->config.sink;
    return c->request != NULL && sink->behind != NULL && sink->behind(c->request);
}

static int send_now(struct call *c, const void *command, size_t len, node_ticket_cb cb)
{
    struct dispatch *d = c->dispatch;
    int rc = dispatch_submit_bytes(c, command, len, cb);
    c->listing = rc == 0;
    d->listings_in_flight += rc == 0;
    return rc;
}

static struct listing *listing_of(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct listing, link);
}

/* It is in its queue no more. */
static void forget(struct dispatch *d, struct listing *l)
{
    fli_list_remove(&l->by_age);
    fli_share_give_back(&d->listings_shares, &l->of->share, 1);
    free(l);
}

/* Ends it unless it was sent: its client has left, its time is up, or there is no room. */
static void end(struct call *c, int rc)
{
    if (c->request != NULL && rc != 0) {
        dispatch_answer_failure(c, rc);
    }
    if (!c->listing) {
        dispatch_call_free(c);
    }
}

static void give_up(struct dispatch *d, struct listing *l)
{
    struct call *c = l->call;
    fli_list_remove(&l->link);
    fli_queue_left(&l->of->queue);
    forget(d, l);
    end(c, FL_EBUSY);
}

static bool make_room(struct dispatch *d, const struct listings_of *of)
{
    struct fli_share *most = fli_shares_most(&d->listings_shares);
    if (d->listings_shares.taken < DISPATCH_LISTINGS_WAIT_MAX) {
        return true;
    }
    if (most == NULL || most == &of->share) {
        return false;
    }
    struct listings_of *other = FLI_CONTAINER_OF(most, struct listings_of, share);
    give_up(d, listing_of(other->queue.items.prev));
    return true;
}

static int stand_in_line(struct call *c, node_ticket_cb cb)
{
    struct dispatch *d = c->dispatch;
    const struct dispatch_config *config = &d->config;
    uint64_t address = config->address == NULL ? 0 : config->address(config->ctx, c->request);
    struct listings_of *of = &d->listings_of[address % DISPATCH_LISTINGS_QUEUES];
    if (!make_room(d, of)) {
        return FL_EBUSY;
    }
    struct listing *l = malloc(sizeof *l + d->scratch.len);
    if (l == NULL || fli_share_take(&d->listings_shares, &of->share, 1) != 0) {
        free(l);
        return FL_ENOMEM;
    }
    fli_list_init(&l->link);
    fli_list_init(&l->by_age);
    l->of = of;
    l->call = c;
    l->cb = cb;
    l->until_ms = config->now_ms(config->ctx) + DISPATCH_LISTINGS_WAIT_MS;
    l->len = d->scratch.len;
    memcpy(l->command, d->scratch.data, l->len);
    fli_queue_push(&of->queue, &l->link);
    fli_list_push(&d->listings_by_age, &l->by_age);
    return 0;
}

int listing_submit(struct call *c, const struct machine_command *m, node_ticket_cb cb)
{
    struct dispatch *d = c->dispatch;
    fli_buf_clear(&d->scratch);
    int rc = machine_command_encode(m, &d->scratch);
    if (rc != 0) {
        return rc;
    }
    bool room = d->listings_in_flight < DISPATCH_LISTINGS_MAX && d->listings_shares.taken == 0 &&
                !is_behind(c);
    if (room || d->stopping) {
        return send_now(c, d->scratch.data, d->scratch.len, cb);
    }
    return stand_in_line(c, cb);
}

void listing_done(struct call *c)
{
    if (c->listing) {
        FLI_ASSERT(c->dispatch->listings_in_flight > 0);
        c->dispatch->listings_in_flight--;
        c->listing = false;
    }
}

static struct listing *oldest(const struct dispatch *d)
{
    struct fli_list *link = fli_list_first(&d->listings_by_age);
    return link == NULL ? NULL : FLI_CONTAINER_OF(link, struct listing, by_age);
}

/* Sends it, unless its client has left or the node refuses it. */
static void serve(struct dispatch *d, struct listing *l)
{
    struct call *c = l->call;
    int rc = c->request == NULL ? 0 : send_now(c, l->command, l->len, l->cb);
    forget(d, l);
    end(c, rc);
}

void listing_turn(struct dispatch *d)
{
    uint64_t now_ms = d->config.now_ms(d->config.ctx);
    struct listing *l = NULL;
    struct fli_list passed;
    struct fli_list *link = NULL;
    unsigned passed_n = 0;
    fli_list_init(&passed);
    while ((l = oldest(d)) != NULL && l->until_ms <= now_ms) {
        give_up(d, l);
    }
    while ((d->stopping || d->listings_in_flight < DISPATCH_LISTINGS_MAX) &&
           passed_n < DISPATCH_LISTINGS_PASSED_MAX && (link = fli_line_pop(&d->listings)) != NULL) {
        if (!d->stopping && is_behind(listing_of(link)->call)) {
            fli_list_push(&passed, link);
            passed_n++;
        } else {
            serve(d, listing_of(link));
        }
    }
    while (!fli_list_empty(&passed)) { /* the last one first: they keep their order */
        link = passed.prev;
        fli_list_remove(link);
        fli_queue_push_front(&listing_of(link)->of->queue, link);
    }
}

static bool one_may_go(const struct dispatch *d)
{
    for (unsigned i = 0; i < DISPATCH_LISTINGS_QUEUES; i++) {
        struct fli_list *link = fli_list_first(&d->listings_of[i].queue.items);
        if (link != NULL && !is_behind(listing_of(link)->call)) {
            return true;
        }
    }
    return false;
}

uint64_t listing_next_turn_ms(const struct dispatch *d)
{
    const struct listing *l = oldest(d);
    if (l == NULL) {
        return UINT64_MAX;
    }
    if (d->listings_in_flight >= DISPATCH_LISTINGS_MAX) {
        return l->until_ms;
    }
    return one_may_go(d) ? 0 : d->config.now_ms(d->config.ctx) + DISPATCH_LISTINGS_POLL_MS;
}
