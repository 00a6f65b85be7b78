/* engine.c: see engine.h. The state machine of a call (call_state.h) gives orders; this file
 * carries them out as far as that goes without waiting. */
#include "client/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/splitmix.h"
#include "base/timer.h"
#include "client/channel.h"

#define LEARN_EVERY_MS UINT64_C(10000)
#define SHUN_MS UINT64_C(30000)
#define SILENT_MS UINT64_C(10000)

static int init_nodes(struct fli_engine *e, const char *nodes, enum fli_kind kind,
                      char why[FLI_WHY_SIZE])
{
    struct fli_node parsed[FL_NODES_MAX];
    int rc = fli_nodes_parse(nodes, kind == FLI_OF_REDIS, parsed, &e->n_nodes, why, FLI_WHY_SIZE);
    if (rc != 0) {
        return rc;
    }
    if (kind == FLI_OF_STORE && e->n_nodes > 1) {
        snprintf(why, FLI_WHY_SIZE, "a storage has one address");
        return FL_EINVAL;
    }
    for (uint32_t i = 0; i < e->n_nodes; i++) {
        e->nodes[i].place.node = parsed[i];
    }
    snprintf(why, FLI_WHY_SIZE, "none of the hosts can be found");
    return e->resolves ? 0 : fli_engine_resolve(e);
}

static void init_lists(struct fli_engine *e)
{
    fli_list_init(&e->fresh);
    fli_list_init(&e->calls);
    fli_list_init(&e->ended);
    fli_list_init(&e->dirty);
    fli_list_init(&e->closed);
    fli_dues_init(&e->dues);
    for (unsigned i = 0; i <= FL_NODES_MAX; i++) {
        fli_list_init(&e->nodes[i].channels);
        fli_list_init(&e->nodes[i].askers);
    }
}

static bool watch_timer(const struct fli_engine *e)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->timer_fd, &event) == 0;
}

static int take_options(struct fli_engine *e, const struct fl_client_options *o,
                        char why[FLI_WHY_SIZE])
{
    if (!fli_limit_ok(FLI_LIMIT_TIMEOUT, o->timeout_ms, why, FLI_WHY_SIZE) ||
        !fli_limit_ok(FLI_LIMIT_TIMEOUT, o->attempt_ms, why, FLI_WHY_SIZE) ||
        (o->owner.len != 0 && !fli_limit_ok(FLI_LIMIT_OWNER, o->owner.len, why, FLI_WHY_SIZE))) {
        return FL_EINVAL;
    }
    e->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : e->timeout_ms;
    e->attempt_ms = o->attempt_ms != 0 ? o->attempt_ms : e->attempt_ms;
    fli_owner_make(&e->owner);
    if (o->owner.len != 0) {
        memcpy(e->owner.id, o->owner.data, o->owner.len);
        e->owner.len = o->owner.len;
        e->owner_is_given = true;
    }
    return fli_link_security_init(&e->tls, o->tls, o->user, o->password, why, FLI_WHY_SIZE);
}

int fli_engine_init(struct fli_engine *e, const char *nodes, enum fli_kind kind, bool resolves,
                    const struct fl_client_options *options, char why[FLI_WHY_SIZE])
{
    memset(e, 0, sizeof *e);
    e->resolves = resolves;
    e->learns_leader = kind == FLI_OF_CLUSTER;
    init_lists(e);
    fli_random(&e->seed, sizeof e->seed);
    e->timeout_ms = FL_TIMEOUT_DEFAULT_MS;
    e->attempt_ms = FL_ATTEMPT_DEFAULT_MS;
    e->leader = FLI_CALL_NOBODY;
    e->timer_ms = UINT64_MAX;
    int rc = init_nodes(e, nodes, kind, why);
    rc = rc == 0 ? take_options(e, options, why) : rc;
    if (rc != 0) {
        return rc;
    }
    e->process = fli_process();
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    e->timer_fd = fli_timer_open();
    if (e->epoll_fd >= 0 && e->timer_fd >= 0 && watch_timer(e)) {
        return 0;
    }
    (void)close(e->epoll_fd); /* or -1 */
    (void)close(e->timer_fd);
    fli_link_security_fini(&e->tls);
    snprintf(why, FLI_WHY_SIZE, "no descriptors are left");
    return FL_ESYSTEM;
}

static void set_timer(struct fli_engine *e, uint64_t time_ms)
{
    if (e->timer_ms != time_ms) {
        e->timer_ms = time_ms;
        fli_timer_set(e->timer_fd, time_ms);
    }
}

void fli_engine_wake(struct fli_engine *e)
{
    set_timer(e, 0);
}

void fli_engine_wake_for(struct fli_engine *e, uint64_t time_ms)
{
    if (time_ms < e->timer_ms) {
        set_timer(e, time_ms);
    }
}

uint64_t fli_engine_random(struct fli_engine *e, uint64_t below)
{
    FLI_ASSERT(below > 0);
    return fli_splitmix(&e->seed) % below;
}

/* ---- who leads ------------------------------------------------------------------------------- */

void fli_engine_forget_leader(struct fli_engine *e, uint32_t node)
{
    if (e->leader != node) {
        return;
    }
    if (node == e->n_nodes) {
        e->nodes[node].avoid_until_ms = fli_clock_ms() + SHUN_MS;
    }
    e->leader = FLI_CALL_NOBODY;
    e->learned_ms = 0;
}

static bool is_avoided(const struct fli_engine *e, uint32_t node)
{
    return fli_clock_ms() < e->nodes[node].avoid_until_ms;
}

/* The node with this address. FLI_CALL_NOBODY: the address is of no use. */
static uint32_t node_at(struct fli_engine *e, const char *address, size_t len)
{
    struct fli_engine_node *last = &e->nodes[e->n_nodes];
    for (uint32_t i = 0; i <= e->n_nodes; i++) {
        const char *text = e->nodes[i].place.node.text;
        if (strlen(text) == len && memcmp(text, address, len) == 0) {
            return is_avoided(e, i) ? FLI_CALL_NOBODY : i;
        }
    }
    char errmsg[128];
    struct fli_place place = {.n = 0};
    /* a call that is at the last place would not notice that another node took it */
    if (is_avoided(e, e->n_nodes) || fli_channel_is_in_use(e, e->n_nodes) ||
        fli_node_parse(address, len, &place.node, errmsg, sizeof errmsg) != 0) {
        return FLI_CALL_NOBODY;
    }
    if (!e->resolves) {
        fli_place_resolve(&place, true);
        if (place.n == 0) {
            return FLI_CALL_NOBODY;
        }
    }
    fli_channels_drop(e, e->n_nodes);
    last->place = place;
    last->again_ms = 0;
    last->failures = 0;
    return e->n_nodes;
}

void fli_engine_leader_is(struct fli_channel *ch, const redisReply *reply)
{
    struct fli_engine *e = ch->engine;
    e->leader = FLI_CALL_NOBODY;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        return;
    }
    const redisReply *address = reply->element[1];
    if (address->type == REDIS_REPLY_STRING || address->type == REDIS_REPLY_STATUS) {
        e->leader = node_at(e, address->str, address->len);
    }
    if (e->leader == FLI_CALL_NOBODY) {
        return;
    }
    FLI_LIST_FOREACH(at, &ch->calls)
    {
        struct fl_call *c = FLI_CONTAINER_OF(at, struct fl_call, in_channel);
        fli_call_state_hint(&c->call_state, e->leader);
    }
}

/* The call has left this node because it did not answer. For a while no call begins there, even if
 * another node names it as the leader. */
static void note_silent(struct fli_engine *e, uint32_t node)
{
    e->nodes[node].avoid_until_ms = fli_clock_ms() + SILENT_MS;
    fli_engine_forget_leader(e, node);
    e->nodes[node].place.turn++;
}

/* ---- obeying orders -------------------------------------------------------------------------- */

void fli_call_trouble(struct fl_call *c, const char *text)
{
    const struct fli_engine *e = c->engine;
    snprintf(c->trouble, sizeof c->trouble, "%s: %.300s", e->nodes[c->node].place.node.text, text);
    if (e->on_trouble != NULL) {
        e->on_trouble(c, text);
    }
    if (c->wait != NULL) {
        fli_wait_trouble(c->wait, c->node, text);
    }
}

static bool may_be_held_back(const struct fl_call *c)
{
    return c->call_state.config.wait_ms != 0 && c->call_state.order.request == FLI_REQUEST_MAIN;
}

/* Each of the functions below begins one kind of order. It returns the event with which that has
 * ended already, or FLI_EVENT_NONE. */

static enum fli_call_event begin_connect(struct fl_call *c, int *ret_code)
{
    struct fli_engine *e = c->engine;
    const struct fli_call_order *order = &c->call_state.order;
    bool waiting = may_be_held_back(c);
    struct fli_channel *ch = fli_channel_get(e, order->node, order->until_ms, waiting, ret_code);
    c->node = order->node;
    if (ch == NULL) {
        fli_call_trouble(c, e->nodes[c->node].error);
        return *ret_code != 0 ? FLI_EVENT_REFUSED : FLI_EVENT_UNREACHABLE;
    }
    c->channel = ch;
    ch->waiter = waiting ? c : ch->waiter;
    if (ch->link.ready) {
        return FLI_EVENT_CONNECTED;
    }
    fli_list_push(&ch->calls, &c->in_channel);
    return FLI_EVENT_NONE;
}

static int put(struct fl_call *c)
{
    if (c->call_state.order.request == FLI_REQUEST_CONFIRM) {
        const struct fli_call_request confirm = {.command = FLI_CALL_RENEW,
                                                 .name = c->request.name,
                                                 .token = (fl_token)c->reply->integer,
                                                 .ttl_ms = c->request.ttl_ms};
        return fli_channel_put(c->channel, &confirm, 0);
    }
    uint64_t now_ms = fli_clock_ms();
    if (c->request.command == FLI_CALL_ACQUIRE) {
        c->request.attempt = fli_attempts_next(&c->engine->attempts, c->request.attempt, now_ms);
    }
    return fli_channel_put(c->channel, &c->request,
                           fli_call_state_wait_left(&c->call_state, now_ms));
}

static enum fli_call_event begin_send(struct fl_call *c)
{
    struct fli_engine *e = c->engine;
    struct fli_channel *ch = c->channel;
    uint64_t now_ms = fli_clock_ms();
    if (e->learns_leader && (e->learned_ms == 0 || now_ms - e->learned_ms >= LEARN_EVERY_MS)) {
        fli_channel_put_leader(ch);
    }
    if (put(c) != 0) {
        fli_call_trouble(c, "the request does not fit in memory");
        return FLI_EVENT_UNSENT;
    }
    c->number = ch->asked;
    c->end = ch->queued;
    fli_list_push(&ch->calls, &c->in_channel);
    return FLI_EVENT_NONE;
}

static enum fli_call_event classify(struct fl_call *c, redisReply *reply, int *ret_code)
{
    bool confirming = c->call_state.order.request == FLI_REQUEST_CONFIRM;
    enum fli_call_event event =
        fli_call_classify(confirming ? FLI_CALL_RENEW : c->request.command, reply, ret_code);
    if (reply->type == REDIS_REPLY_ERROR) {
        fli_call_trouble(c, reply->str);
    }
    if (c->request.command == FLI_CALL_LEADER && event == FLI_EVENT_NO &&
        !c->call_state.config.once) {
        event = FLI_EVENT_NOLEADER; /* another node may know one */
    }
    if (event == FLI_EVENT_NOLEADER || event == FLI_EVENT_UNCERTAIN) {
        c->engine->learned_ms = 0;
        c->engine->leader = FLI_CALL_NOBODY;
    }
    if (confirming) {
        freeReplyObject(reply);
    } else {
        uint64_t late = fli_call_late(reply);
        c->request.attempt = late > c->request.attempt ? late : c->request.attempt;
        /* what the leader has said says more than that another node does not lead */
        int unused;
        bool keeps = event == FLI_EVENT_NOLEADER && c->reply != NULL &&
                     fli_call_classify(c->request.command, c->reply, &unused) == FLI_EVENT_BUSY;
        freeReplyObject(keeps ? reply : c->reply);
        c->reply = keeps ? c->reply : reply;
    }
    return event;
}

void fli_call_answer(struct fl_call *c, redisReply *reply)
{
    int code = 0;
    enum fli_call_event event = classify(c, reply, &code);
    if (event != FLI_EVENT_BROKEN) {
        fli_call_feed(c, event, code);
        return;
    }
    struct fli_channel *ch = c->channel;
    snprintf(ch->link.error, sizeof ch->link.error, "its answer makes no sense");
    fli_list_insert_before(ch->calls.next, &c->in_channel);
    fli_channel_break(ch, FL_EPROTO);
}

/* Asks a node whether it lives, and another one also whether it serves. */
static enum fli_call_event begin_probe(struct fl_call *c, uint32_t node)
{
    struct fli_engine *e = c->engine;
    bool serves = c->call_state.order.want == FLI_WANT_ASK_OTHER;
    bool alive = false;
    fli_list_push(&e->nodes[node].askers, &c->in_askers);
    if (!fli_channel_ask(e, node, c->call_state.order.until_ms, serves, &alive)) {
        fli_list_remove(&c->in_askers);
        if (!serves) {
            fli_call_trouble(c, e->nodes[node].error);
        }
        return serves ? FLI_EVENT_SERVES_NOT : FLI_EVENT_DEAD;
    }
    if (alive && c->alive != node) {
        c->alive = node;
        return FLI_EVENT_ALIVE;
    }
    return FLI_EVENT_NONE;
}

static enum fli_call_event begin(struct fl_call *c, int *ret_code)
{
    const struct fli_call_order *order = &c->call_state.order;
    *ret_code = 0;
    switch (order->want) {
    case FLI_WANT_CONNECT:
        return begin_connect(c, ret_code);
    case FLI_WANT_SEND:
        return begin_send(c);
    case FLI_WANT_PROBE:
        return begin_probe(c, order->node);
    case FLI_WANT_ASK_OTHER:
        return begin_probe(c, order->other);
    default:
        FLI_ASSERT(order->want == FLI_WANT_ANSWER || order->want == FLI_WANT_SLEEP);
        return FLI_EVENT_NONE;
    }
}

/* Leaves the channel for which the next order has no use. */
static void leave_behind(struct fl_call *c, enum fli_call_event event)
{
    enum fli_call_want want = c->call_state.order.want;
    if (want == FLI_WANT_PROBE || want == FLI_WANT_ANSWER || want == FLI_WANT_ASK_OTHER ||
        want == FLI_WANT_SEND) {
        return;
    }
    bool silent = event == FLI_EVENT_SILENT || event == FLI_EVENT_SERVES;
    if (silent) {
        fli_call_trouble(c, event == FLI_EVENT_SERVES ? "no answer, while others do"
                                                      : "no answer in time");
        note_silent(c->engine, c->node);
    }
    c->alive = FLI_CALL_NOBODY;
    fli_channel_leave(c, silent || event == FLI_EVENT_DEAD || event == FLI_EVENT_UNREACHABLE);
}

static void call_ended(struct fl_call *c)
{
    struct fli_engine *e = c->engine;
    fli_due_set(&e->dues, &c->due, FLI_DUE_NEVER);
    fli_pace_learn(&e->pace, &c->call_state);
    fli_attempts_end(&e->attempts, &c->call_state, c->request.attempt, fli_clock_ms());
    if (c->reply != NULL && !c->call_state.config.once) { /* which says nothing of the others */
        fli_channels_tidy(e, c->node);
    }
    fli_list_remove(&c->queue);
    fli_list_push(&e->ended, &c->queue);
}

void fli_call_end(struct fl_call *c, int status, uint64_t lease_until_ms)
{
    c->call_state.status = status;
    c->call_state.lease_until_ms = lease_until_ms;
    call_ended(c);
}

/* False: the call has ended. */
static bool take(struct fl_call *c, enum fli_call_event event, int code)
{
    enum fli_call_want asked = c->call_state.order.want;
    fli_list_remove(&c->in_askers);
    fli_call_state_feed(&c->call_state, fli_clock_ms(), event, code);
    leave_behind(c, event);
    bool over = c->call_state.order.want == FLI_WANT_NOTHING;
    if (c->wait != NULL) {
        fli_wait_event(c->wait, asked, event, over);
    }
    if (over) {
        call_ended(c);
    }
    return !over;
}

/* Begins orders until one has to wait, or the call has ended. */
static void go_on(struct fl_call *c)
{
    enum fli_call_event event;
    int code;
    while ((event = begin(c, &code)) != FLI_EVENT_NONE) {
        if (!take(c, event, code)) {
            return;
        }
    }
    fli_due_set(&c->engine->dues, &c->due, c->call_state.order.until_ms);
}

void fli_call_feed(struct fl_call *c, enum fli_call_event event, int code)
{
    if (take(c, event, code)) {
        go_on(c);
    }
}

static void time_is_over(struct fli_due *d, uint64_t now_ms)
{
    struct fl_call *c = FLI_CONTAINER_OF(d, struct fl_call, due);
    const struct fli_call_order order = c->call_state.order;
    struct fli_engine *e = c->engine;
    switch (order.want) {
    case FLI_WANT_CONNECT:
        fli_call_trouble(c, "cannot connect: no answer in time");
        fli_engine_forget_leader(e, c->node);
        fli_call_feed(c, FLI_EVENT_UNREACHABLE, 0);
        return;
    case FLI_WANT_SEND: /* a part of the request may be with the kernel: the rest must not follow */
        fli_channel_break(c->channel, FL_EIO);
        return;
    case FLI_WANT_ANSWER:
        fli_call_feed(c, FLI_EVENT_SILENT, 0);
        return;
    case FLI_WANT_ASK_OTHER:
        fli_call_feed(c, FLI_EVENT_SILENT, 0);
        fli_channel_ask_over(e, order.other);
        return;
    case FLI_WANT_PROBE:
        fli_call_trouble(c, "no answer to a probe");
        fli_engine_forget_leader(e, c->node);
        fli_call_feed(c, FLI_EVENT_DEAD, 0);
        fli_channel_ask_over(e, order.node);
        return;
    default:
        fli_call_feed(c, FLI_EVENT_WOKE, 0);
        return;
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static uint32_t first_node(struct fli_engine *e, uint64_t seed)
{
    if (e->leader != FLI_CALL_NOBODY) {
        return e->leader;
    }
    for (uint32_t i = 0; i < e->n_nodes; i++) {
        if (fli_channel_is_ready(e, i) && !is_avoided(e, i)) {
            return i; /* which saves a connection */
        }
    }
    uint32_t node = (uint32_t)(seed % e->n_nodes);
    return is_avoided(e, node) ? (node + 1) % e->n_nodes : node;
}

static void init_state(struct fl_call *c, const struct fli_call_times *times)
{
    struct fli_engine *e = c->engine;
    uint64_t seed = fli_splitmix(&e->seed);
    uint64_t ttl_ms = fli_call_lease_ms(&c->request);
    uint64_t attempt_ms = times->attempt_ms != 0 ? times->attempt_ms : e->attempt_ms;
    const struct fli_call_config config = {
        /* of one attempt it is said what became of it, also when it may have been done */
        .repeat = times->once ? FLI_REPEAT_READ : fli_call_may_repeat(c->request.command),
        .no_is_uncertain = fli_call_no_is_uncertain(c->request.command),
        .nodes = e->n_nodes,
        .start = times->once ? times->node : first_node(e, seed),
        .now_ms = fli_clock_ms(),
        .deadline_ms = times->deadline_ms,
        /* A change takes its time (passwords are hashed, a member catches up), and is not sent
         * twice for that. */
        .ask_ms = c->request.command == FLI_CALL_CHANGE ? 0 : fli_pace_ask_ms(&e->pace),
        .attempt_ms = times->once ? FL_TIMEOUT_MAX_MS : attempt_ms,
        .wait_ms = times->wait_ms,
        .ttl_ms = ttl_ms,
        .confirm = c->request.command == FLI_CALL_ACQUIRE && ttl_ms != 0,
        .once = times->once,
        .insists = times->insists,
        .seed = seed,
    };
    fli_call_state_init(&c->call_state, &config);
    c->node = config.start;
    c->alive = FLI_CALL_NOBODY;
}

struct fl_call *fli_call_make(struct fli_engine *e, const struct fli_call_request *request,
                              void *arg)
{
    struct fl_call *call = calloc(1, sizeof *call + fli_call_request_size(request));
    if (call == NULL || fli_due_add(&e->dues, &call->due, time_is_over) != 0) {
        free(call);
        return NULL;
    }
    call->engine = e;
    call->arg = arg;
    fli_call_request_copy(&call->request, request, call->also, call->bytes);
    fli_list_init(&call->queue);
    fli_list_init(&call->in_channel);
    fli_list_init(&call->in_askers);
    fli_list_init(&call->note.in);
    fli_list_push(&e->calls, &call->in);
    return call;
}

/* Its request is not awaited any more. */
static void quit(struct fl_call *c)
{
    if (!c->active) {
        return;
    }
    if (c->op != NULL) {
        c->engine->backend->cancel(c);
    }
    fli_attempts_end(&c->engine->attempts, &c->call_state, c->request.attempt, fli_clock_ms());
    fli_channel_leave(c, false);
    c->active = false;
}

static void forget_answers(struct fl_call *c)
{
    fli_list_remove(&c->in_askers);
    fli_list_remove(&c->queue);
    freeReplyObject(c->reply);
    free(c->report);
    free(c->op);
    c->reply = NULL;
    c->report = NULL;
    c->op = NULL;
    c->trouble[0] = '\0';
}

void fli_call_begin(struct fl_call *call, const struct fli_call_times *times,
                    void (*ended)(struct fl_call *call))
{
    quit(call);
    forget_answers(call);
    call->active = true;
    call->ended = ended;
    call->due.fire = time_is_over;
    call->request.attempt = 0;
    init_state(call, times);
    fli_list_push(&call->engine->fresh, &call->queue);
    fli_engine_wake(call->engine);
}

struct fl_call *fli_engine_start(struct fli_engine *e, const struct fli_call_request *request,
                                 const struct fli_call_times *times,
                                 void (*ended)(struct fl_call *call), void *arg)
{
    struct fl_call *call = fli_call_make(e, request, arg);
    if (call != NULL) {
        fli_call_begin(call, times, ended);
    }
    return call;
}

static void call_free(struct fl_call *c)
{
    forget_answers(c);
    fli_due_remove(&c->engine->dues, &c->due);
    fli_list_remove(&c->in);
    fli_call_forget(c);
    free(c);
}

void fli_call_let_go(struct fl_call *c)
{
    if (!c->active && !fli_list_linked(&c->note.in) && !c->note.under_way) {
        call_free(c);
    }
}

void fli_engine_cancel(struct fl_call *c)
{
    if (c != NULL) {
        quit(c);
        call_free(c);
    }
}

static void call_done(struct fl_call *c)
{
    int status = c->call_state.status;
    const char *trouble = status == FL_ENOTHELD ? "" : c->trouble;
    bool is_number = c->reply != NULL && c->reply->type == REDIS_REPLY_INTEGER;
    bool is_read = fli_list_linked(&c->note.in) || c->note.under_way; /* its user reads the error */
    c->active = false;
    c->token = is_number ? (fl_token)c->reply->integer : c->token;
    if (!is_read) {
        snprintf(c->error, sizeof c->error, "%s%s%s", status != 0 ? fl_strerror(status) : "",
                 status == 0 || trouble[0] == '\0' ? "" : ": ", status != 0 ? trouble : "");
    }
    c->ended(c);
    fli_call_let_go(c);
}

static void begin_fresh(struct fli_engine *e)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&e->fresh)) != NULL) {
        struct fl_call *c = FLI_CONTAINER_OF(at, struct fl_call, queue);
        if (e->backend != NULL) {
            e->backend->begin(c);
        } else if (c->call_state.order.want == FLI_WANT_NOTHING) { /* its time was over at once */
            call_ended(c);
        } else {
            go_on(c);
        }
    }
}

void fli_engine_process(struct fli_engine *e)
{
    uint64_t fired;
    (void)!read(e->timer_fd, &fired, sizeof fired);
    e->timer_ms = UINT64_MAX;
    fli_channels_take_events(e); /* what has come in time is not late */
    fli_dues_run(&e->dues, fli_clock_ms());
    begin_fresh(e);
    fli_channels_flush(e);
    fli_channels_free_closed(e);
    set_timer(e, fli_dues_next(&e->dues));
    struct fli_list *at;
    while ((at = fli_list_pop(&e->ended)) != NULL) {
        call_done(FLI_CONTAINER_OF(at, struct fl_call, queue));
    }
}

static void drop(struct fli_engine *e)
{
    struct fli_list *at;
    if (e->backend != NULL) {
        e->backend->drop(e);
    }
    fli_channels_close_all(e);
    while ((at = fli_list_first(&e->calls)) != NULL) {
        call_free(FLI_CONTAINER_OF(at, struct fl_call, in));
    }
}

void fli_engine_abandon(struct fli_engine *e)
{
    init_lists(e);
    if (e->backend != NULL) {
        e->backend->abandon(e);
    }
}

void fli_engine_fini(struct fli_engine *e)
{
    if (fli_engine_is_inherited(e)) { /* nothing may be said to it: it is the parent's as well */
        close(e->epoll_fd);
        e->epoll_fd = -1;
    }
    drop(e);
    if (e->backend != NULL) {
        e->backend->fini(e->backend);
    }
    fli_dues_fini(&e->dues);
    fli_link_security_fini(&e->tls);
    close(e->timer_fd);
    close(e->epoll_fd);
}

/* ---- whose it is ----------------------------------------------------------------------------- */

int fli_engine_resolve(struct fli_engine *e)
{
    unsigned known = 0;
    e->resolves = false;
    for (uint32_t i = 0; i < e->n_nodes; i++) {
        fli_place_resolve(&e->nodes[i].place, false);
        known += e->nodes[i].place.n;
    }
    return known > 0 ? 0 : FL_ENOCONN;
}

bool fli_engine_is_inherited(const struct fli_engine *e)
{
    return e->process != fli_process();
}

int fli_engine_own(struct fli_engine *e)
{
    if (!fli_engine_is_inherited(e)) {
        return 0;
    }
    if (!fli_process_reopen(e->epoll_fd, epoll_create1(EPOLL_CLOEXEC)) ||
        !fli_process_reopen(e->timer_fd, fli_timer_open()) || !watch_timer(e)) {
        return FL_ESYSTEM;
    }
    drop(e);
    e->timer_ms = UINT64_MAX;
    e->attempts = (struct fli_attempts){0};
    fli_owner_make(&e->owner);
    e->owner_is_given = false;
    e->inherited = e->newest;
    int rc = e->backend != NULL ? e->backend->own(e) : 0;
    e->process = rc == 0 ? fli_process() : e->process;
    return rc;
}
