/* listing.c: LOCKS, SESSION LIST, SHOW and SESSION SHOW, a few at a time.
 *
 * One page may look at ten thousand records, which takes the leader some milliseconds, and the
 * rendered answer may fill an eighth of a connection's output limit. A client that sent a thousand
 * of them at once would keep the leader from its heartbeats until it is replaced, or would be cut
 * off. So a node has only a few in flight. The others stand in line here, where nothing else waits
 * behind them. A client that reads its answers too slowly is passed over.
 *
 * dispatch_turn() serves the line, never a result. A request that has stood in line too long is
 * answered BUSY, so that every client gets an answer even when each one takes its time. */
#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"
#include "server/dispatch_private.h"

struct listing {
    struct fli_list link;
    struct call *call;
    node_ticket_cb cb;
    uint64_t until_ms;
    size_t len;
    uint8_t command[];
};

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

int listing_submit(struct call *c, const struct machine_command *m, node_ticket_cb cb)
{
    struct dispatch *d = c->dispatch;
    fli_buf_clear(&d->scratch);
    int rc = machine_command_encode(m, &d->scratch);
    if (rc != 0) {
        return rc;
    }
    bool room = d->listings_in_flight < DISPATCH_LISTINGS_MAX && fli_list_empty(&d->listings) &&
                !is_behind(c);
    if (room || d->stopping) {
        return send_now(c, d->scratch.data, d->scratch.len, cb);
    }
    if (d->listings_waiting >= DISPATCH_LISTINGS_WAIT_MAX) {
        return FL_EBUSY;
    }
    struct listing *l = malloc(sizeof *l + d->scratch.len);
    if (l == NULL) {
        return FL_ENOMEM;
    }
    fli_list_init(&l->link);
    l->call = c;
    l->cb = cb;
    l->until_ms = d->config.now_ms(d->config.ctx) + DISPATCH_LISTINGS_WAIT_MS;
    l->len = d->scratch.len;
    memcpy(l->command, d->scratch.data, l->len);
    fli_list_push(&d->listings, &l->link);
    d->listings_waiting++;
    return 0;
}

void listing_done(struct call *c)
{
    if (c->listing) {
        FLI_ASSERT(c->dispatch->listings_in_flight > 0);
        c->dispatch->listings_in_flight--;
        c->listing = false;
    }
}

static struct listing *first(const struct dispatch *d)
{
    struct fli_list *link = fli_list_first(&d->listings);
    return link == NULL ? NULL : FLI_CONTAINER_OF(link, struct listing, link);
}

/* Sends it, or ends it: its client has left, its time is up, or the node refuses it. */
static void serve(struct dispatch *d, struct listing *l, uint64_t now_ms)
{
    struct call *c = l->call;
    fli_list_remove(&l->link);
    d->listings_waiting--;
    int rc = l->until_ms <= now_ms ? FL_EBUSY : 0;
    if (rc == 0 && c->request != NULL) {
        rc = send_now(c, l->command, l->len, l->cb);
    }
    if (c->request != NULL && rc != 0) {
        dispatch_answer_failure(c, rc);
    }
    if (!c->listing) {
        dispatch_call_free(c);
    }
    free(l);
}

void listing_turn(struct dispatch *d)
{
    uint64_t now_ms = d->config.now_ms(d->config.ctx);
    FLI_LIST_FOREACH_SAFE(link, next, &d->listings)
    {
        struct listing *l = FLI_CONTAINER_OF(link, struct listing, link);
        bool over = l->until_ms <= now_ms || d->stopping;
        if (!over && d->listings_in_flight >= DISPATCH_LISTINGS_MAX) {
            return;
        }
        if (over || !is_behind(l->call)) {
            serve(d, l, now_ms);
        }
    }
}

uint64_t listing_next_turn_ms(const struct dispatch *d)
{
    const struct listing *l = first(d);
    if (l == NULL) {
        return UINT64_MAX;
    }
    if (d->listings_in_flight >= DISPATCH_LISTINGS_MAX) {
        return l->until_ms;
    }
    return is_behind(l->call) ? d->config.now_ms(d->config.ctx) + DISPATCH_LISTINGS_POLL_MS : 0;
}
