/* cleanup.c: the part of dispatch for waits and for clients that leave: parking, events, hang-ups,
 * and cleaning up after clients that are gone.
 *
 * Nothing is submitted from inside an event or a result, since both come while the machine applies
 * a batch. What is to be cleaned up waits in a line that dispatch_turn() works through. So do those
 * whom an event answers: one may answer all requests of a node, and each turn has its share.
 *
 * Nobody waits for what is cleaned up, and clients that leave may leave any amount of it. So it has
 * a budget of its own: DISPATCH_CLEANUP_MAX of it are with the node at a time, behind what clients
 * ask (NODE_SOURCE_CLEANUP), and addresses take turns. */
#include <string.h>

#include "machine/batch.h"
#include "machine/machine.h"
#include "server/dispatch_private.h"

static uint64_t now(const struct dispatch *d)
{
    return d->config.now_ms(d->config.ctx);
}

/* --- cleaning up --- */

/* Of the queues of the line, the one for this call's address. Addresses may share one: what they
 * are numbered by is random. */
static struct fli_queue *queue_of(const struct call *c)
{
    return &c->dispatch->cleanup_of[c->address % DISPATCH_CLEANUP_QUEUES];
}

/* Frees the call unless a client, a wait, or something to be cleaned up keeps it. */
static void settle(struct call *c)
{
    if (c->request == NULL && c->parked.wait == NULL && c->cleanup == CLEANUP_NONE &&
        c->cleanup_sent == CLEANUP_NONE) {
        dispatch_call_free(c);
    }
}

/* Sets what is to be cleaned up after a client that has gone or hung up. The call itself does it,
 * also while it is parked: its ticket has come back, and its connection is charged for it until the
 * client is gone. So clients that leave take no memory. What is under way comes back first. */
static void clean_up(struct call *c, enum call_cleanup what)
{
    c->cleanup = (uint8_t)what;
    c->tries = 0;
    if (c->cleanup_sent != CLEANUP_NONE) {
        return;
    }
    fli_list_remove(&c->link);
    fli_queue_left(queue_of(c));
    if (what != CLEANUP_NONE) {
        fli_queue_push(queue_of(c), &c->link);
    }
}

static void cleanup_grant(struct call *c, uint64_t token)
{
    FLI_ASSERT(c->made_owner && c->request == NULL && c->parked.wait == NULL);
    c->token = token;
    clean_up(c, CLEANUP_GRANT);
}

static void cleanup_again(struct call *c)
{
    struct dispatch *d = c->dispatch;
    if (d->stopping || ++c->tries >= DISPATCH_CLEANUP_TRIES) {
        clean_up(c, CLEANUP_NONE); /* the wait's deadline or the lease's end will clean up */
        settle(c);
        return;
    }
    c->again_ms = now(d) + DISPATCH_CLEANUP_AGAIN_MS;
    fli_list_push(&d->again, &c->link);
}

static void on_cleaned_up(struct node_ticket *t, int status, const struct machine_result *result,
                          struct fli_slice payload)
{
    struct call *c = FLI_CONTAINER_OF(t, struct call, ticket);
    struct dispatch *d = c->dispatch;
    FLI_ASSERT(d->counts.in_flight > 0 && c->cleanup_sent != CLEANUP_NONE && d->cleaning > 0);
    d->counts.in_flight--;
    d->cleaning--;
    bool wanted = c->cleanup == c->cleanup_sent; /* else the wait has ended meanwhile */
    c->cleanup_sent = CLEANUP_NONE;
    if (status != 0 && wanted) {
        cleanup_again(c); /* harmless if it was done: both commands name exactly what they end */
        return;
    }
    d->counts.cleaned_up += status == 0 && result->code == MACHINE_DONE;
    clean_up(c, wanted ? CLEANUP_NONE : c->cleanup);
    settle(c);
}

static void cleanup(struct call *c)
{
    struct machine_command m = {.flags = MACHINE_COMMAND_BY, .user = MACHINE_USER_NODE};
    c->ticket.source = NODE_SOURCE_CLEANUP;
    if (c->cleanup == CLEANUP_WAIT) {
        m.op = MACHINE_OP_CANCEL;
        m.number = c->wait;
        m.number2 = c->times_asked;
    } else {
        FLI_ASSERT(c->cleanup == CLEANUP_GRANT);
        m.op = MACHINE_OP_RELEASE;
        m.name = (struct fli_slice){c->name, c->name_len};
        m.token = c->token;
    }
    c->cleanup_sent = c->cleanup;
    c->dispatch->cleaning++;
    int rc = dispatch_submit(c, &m, on_cleaned_up);
    FLI_ASSERT(rc != FL_EINVAL);
    if (rc != 0) {
        c->dispatch->cleaning--;
        c->cleanup_sent = CLEANUP_NONE;
        cleanup_again(c);
    }
}

/* --- waiting --- */

/* A wait has ended and the call is no longer parked. */
static void end_wait(struct call *c, const struct parked_news *news)
{
    bool granted = news->end == PARKED_GRANTED;
    if (c->made_owner && granted && (c->request == NULL || c->hung_up)) {
        /* The cancel came too late. A client that hung up is told the end of the wait, not a token:
         * it may not be there to read the token, and could not ask for it again. */
        struct parked_news ended = {.end = PARKED_ENDED, .wait = news->wait};
        if (c->request != NULL) {
            dispatch_answer_news(c, &ended);
        }
        cleanup_grant(c, news->token);
        return;
    }
    if (c->request != NULL) {
        dispatch_answer_news(c, news);
    }
    clean_up(c, CLEANUP_NONE); /* there is nothing to cancel any more */
    settle(c);
}

/* This node will not hear of the wait's end; the call is no longer parked. If the client named the
 * owner, the wait goes on, and asking again finds it. */
static void give_up(struct call *c)
{
    if (c->made_owner) {
        clean_up(c, CLEANUP_WAIT);
    }
    if (c->request != NULL) {
        dispatch_answer_failure(c, FL_EUNCERTAIN);
    }
    settle(c);
}

/* The client of a parked call has gone or hung up. Frees the call when nothing keeps it. */
static void leave(struct call *c)
{
    struct dispatch *d = c->dispatch;
    uint64_t times_asked = 0;
    if (parked_is_told(&c->parked)) {
        struct parked_news news = parked_remove(&d->parked, &c->parked);
        end_wait(c, &news);
        return;
    }
    if (parked_leave(&d->parked, &c->parked, &times_asked)) {
        c->times_asked = times_asked;
        clean_up(c, CLEANUP_WAIT);
    }
    if (c->request == NULL && !c->made_owner) {
        (void)parked_remove(&d->parked, &c->parked);
    }
    settle(c);
}

/* The call is not parked any more. */
static void unpark(struct call *c, const struct parked_news *news)
{
    if (news->end == PARKED_WAITING) {
        give_up(c);
    } else {
        end_wait(c, news);
    }
}

void dispatch_park(struct call *c, const struct machine_result *queued)
{
    struct dispatch *d = c->dispatch;
    FLI_ASSERT(c->waits);
    uint64_t deadline_ms = now(d) + c->wait_ms + d->config.slack_ms;
    c->wait = queued->wait;
    c->times_asked = queued->token;
    struct parked_news news =
        parked_add(&d->parked, &c->parked, queued->wait, queued->token, c->since, deadline_ms);
    if (news.end != PARKED_WAITING) {
        end_wait(c, &news);
    } else if (d->stopping || c->restores != d->restores || !parked_has_all(&d->parked, c->since)) {
        /* Its event may have been skipped, and the local log may also be behind the leader. */
        (void)parked_remove(&d->parked, &c->parked);
        give_up(c);
    } else if (c->request == NULL && !c->made_owner && !c->counted && queued->token > 1) {
        /* The client left while this was under way. It has sent the request more than once without
         * numbers, so this node cannot tell which request is the newest: that one may be at another
         * node, although this answer came last. */
        (void)parked_remove(&d->parked, &c->parked);
        dispatch_call_free(c);
    } else if (c->request == NULL || c->hung_up) {
        leave(c);
    }
}

bool dispatch_signal_begin(struct call *c, uint64_t wait_ms)
{
    struct dispatch *d = c->dispatch;
    const struct dispatch_config *config = &d->config;
    void *request = c->request;
    uint64_t address = config->address == NULL ? 0 : config->address(config->ctx, request);
    unsigned all = config->in_flight == NULL ? 0 : config->in_flight(config->ctx, request);
    if (frontdoor_signals_full(&d->signals, address, all)) {
        dispatch_answer_failure(c, FL_EBUSY);
        dispatch_call_free(c);
        return false;
    }
    c->waiter.name = (struct fli_slice){c->name, c->name_len};
    c->waiter.address = address;
    c->waiter.until_ms = now(d) + wait_ms;
    frontdoor_signal_enter(&d->signals, &c->waiter);
    return true;
}

/* Ends the wait of a BLPOP, and frees the call. */
static void end_signal(struct call *c, bool woken)
{
    struct dispatch *d = c->dispatch;
    if (c->request != NULL) {
        struct fli_buf *b = d->config.sink.reply(c->request);
        int rc = frontdoor_signal_reply(b, c->proto, c->waiter.name, woken);
        dispatch_finish(d, dispatch_call_detach(c), rc);
    }
    dispatch_call_free(c);
}

bool dispatch_signal_asked(struct call *c, const struct machine_result *result)
{
    struct dispatch *d = c->dispatch;
    if (c->waiter.signal == SIGNAL_NONE) {
        return false;
    }
    bool stays = c->request != NULL && !c->hung_up && !d->stopping && c->restores == d->restores;
    enum frontdoor_signal next = frontdoor_signal_asked(&d->signals, &c->waiter, result, stays);
    if (next == SIGNAL_WOKEN || next == SIGNAL_OVER) {
        end_signal(c, next == SIGNAL_WOKEN);
    }
    return next != SIGNAL_NONE;
}

/* The client has hung up or is gone, or the wait is over. False: a query is under way, or this is
 * no BLPOP. */
static bool leave_signal(struct call *c)
{
    bool ends = frontdoor_signal_ends(&c->waiter);
    if (ends) {
        end_signal(c, c->waiter.signal == SIGNAL_WOKEN);
    }
    return ends;
}

static void end_signals(struct dispatch *d, uint64_t now_ms, unsigned max)
{
    struct frontdoor_waiter *w = NULL;
    for (unsigned i = 0; i < max && (w = frontdoor_signals_due(&d->signals, now_ms)) != NULL; i++) {
        (void)leave_signal(FLI_CONTAINER_OF(w, struct call, waiter));
    }
}

void dispatch_orphan_done(struct call *c, int status, const struct machine_result *result)
{
    if (status == 0 && c->made_owner && result->code == MACHINE_GRANTED) {
        cleanup_grant(c, result->token);
        return;
    }
    dispatch_call_free(c);
}

void dispatch_event(struct dispatch *d, const struct machine_event *event)
{
    frontdoor_signals_event(&d->signals, event);
    /* Each part of a multi-lock has an event; the first part's stands for all. */
    if (event->wait == 0 || event->index != 0) {
        return;
    }
    struct parked_news news = {.wait = event->wait, .token = event->token, .reason = event->reason};
    if (event->type == MACHINE_EVENT_GRANTED) {
        news.end = PARKED_GRANTED;
    } else if (event->type == MACHINE_EVENT_WAIT_ENDED) {
        news.end = PARKED_ENDED;
    } else {
        return;
    }
    parked_end(&d->parked, &news);
}

static bool goes_on(void *ctx, uint64_t wait)
{
    return ctx == NULL || machine_is_waiting(ctx, wait);
}

void dispatch_restored(struct dispatch *d)
{
    d->restores++;
    parked_skipped(&d->parked);
    frontdoor_signals_wake_all(&d->signals);
}

/* --- clients that leave --- */

static void note_address(struct call *c)
{
    const struct dispatch_config *config = &c->dispatch->config;
    if (c->request != NULL && config->address != NULL) {
        c->address = config->address(config->ctx, c->request);
    }
}

void dispatch_hangup(struct dispatch *d, struct dispatch_slot *slot)
{
    struct call *c = slot->call;
    if (c == NULL || c->hung_up) {
        return;
    }
    FLI_ASSERT(c->dispatch == d);
    note_address(c);
    c->hung_up = true;
    if (c->parked.wait != NULL) {
        leave(c);
    } else {
        (void)leave_signal(c);
    }
}

void dispatch_cancel(struct dispatch *d, struct dispatch_slot *slot)
{
    struct call *c = slot->call;
    if (c == NULL) {
        return;
    }
    FLI_ASSERT(c->dispatch == d);
    note_address(c);
    (void)dispatch_call_detach(c);
    if (c->parked.wait != NULL) {
        leave(c);
    } else if (!leave_signal(c)) {
        d->counts.orphans++;
    }
}

/* --- time --- */

/* One event may answer all requests that a node has room for. */
static void tell(struct dispatch *d)
{
    struct parked_request *r = NULL;
    struct parked_news news;
    for (unsigned n = 0; n < DISPATCH_TOLD_MAX && (r = parked_take_told(&d->parked, &news)) != NULL;
         n++) {
        end_wait(FLI_CONTAINER_OF(r, struct call, parked), &news);
    }
}

/* A leader that is gone for long, or a snapshot, ends all that waits here at one moment. */
static void end_due_waits(struct dispatch *d, uint64_t now_ms)
{
    struct parked_request *r = NULL;
    struct parked_news news;
    if (!fli_list_empty(&d->parked.unverified)) { /* a node that is closed has no machine to ask */
        parked_verify(&d->parked, DISPATCH_DUE_MAX, goes_on,
                      d->config.node.machine(d->config.node.ctx));
    }
    for (unsigned n = 0;
         n < DISPATCH_DUE_MAX && (r = parked_take_due(&d->parked, now_ms, &news)) != NULL; n++) {
        struct call *c = FLI_CONTAINER_OF(r, struct call, parked);
        d->counts.timeouts += c->request != NULL && news.end == PARKED_WAITING;
        unpark(c, &news);
    }
}

/* Those whose time to be tried again has come stand in line again. */
static void line_up_again(struct dispatch *d, uint64_t now_ms)
{
    struct fli_list *link = NULL;
    for (unsigned n = 0; n < DISPATCH_DUE_MAX && (link = fli_list_first(&d->again)) != NULL; n++) {
        struct call *c = FLI_CONTAINER_OF(link, struct call, link);
        if (c->again_ms > now_ms) {
            return;
        }
        fli_list_remove(link);
        fli_queue_push(queue_of(c), link);
    }
}

static bool may_clean_up(const struct dispatch *d)
{
    return !fli_line_empty(&d->cleanup) && (d->stopping || d->cleaning < DISPATCH_CLEANUP_MAX);
}

static void clean_up_due(struct dispatch *d, uint64_t now_ms)
{
    line_up_again(d, now_ms);
    for (unsigned n = 0; n < DISPATCH_DUE_MAX && may_clean_up(d); n++) {
        cleanup(FLI_CONTAINER_OF(fli_line_pop(&d->cleanup), struct call, link));
    }
}

void dispatch_turn(struct dispatch *d)
{
    uint64_t now_ms = now(d);
    tell(d);
    end_due_waits(d, now_ms);
    listing_turn(d);
    end_signals(d, now_ms, DISPATCH_TOLD_MAX);
    clean_up_due(d, now_ms);
}

uint64_t dispatch_next_turn_ms(const struct dispatch *d)
{
    if (may_clean_up(d)) {
        return 0;
    }
    uint64_t next = parked_next_deadline(&d->parked);
    uint64_t listing = listing_next_turn_ms(d);
    next = listing < next ? listing : next;
    uint64_t signals = frontdoor_signals_next_ms(&d->signals);
    next = signals < next ? signals : next;
    struct fli_list *link = fli_list_first(&d->again);
    if (link != NULL) {
        uint64_t again = FLI_CONTAINER_OF(link, struct call, link)->again_ms;
        next = again < next ? again : next;
    }
    return next;
}

void dispatch_stop(struct dispatch *d)
{
    d->stopping = true;
    frontdoor_signals_wake_all(&d->signals);
    end_signals(d, now(d), SIGNALS_MAX);
    struct parked_request *r = NULL;
    struct parked_news news;
    while ((r = parked_take_any(&d->parked, &news)) != NULL) {
        unpark(FLI_CONTAINER_OF(r, struct call, parked), &news);
    }
    dispatch_turn(d);
}

void dispatch_drop_all(struct dispatch *d)
{
    struct fli_list *link = NULL;
    d->stopping = true;
    struct parked_request *r = NULL;
    struct parked_news news;
    while ((r = parked_take_any(&d->parked, &news)) != NULL) {
        struct call *c = FLI_CONTAINER_OF(r, struct call, parked);
        clean_up(c, CLEANUP_NONE);
        settle(c);
    }
    while ((link = fli_line_pop(&d->cleanup)) != NULL || (link = fli_list_pop(&d->again)) != NULL) {
        dispatch_call_free(FLI_CONTAINER_OF(link, struct call, link));
    }
}
