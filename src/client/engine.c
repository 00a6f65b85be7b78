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
#include "base/timer.h"
#include "client/watched.h"

#define LEARN_EVERY_MS UINT64_C(10000)
#define SHUN_MS UINT64_C(30000)
#define SILENT_MS UINT64_C(10000)
#define TEXT_SIZE 512u

struct fli_engine_call {
    struct fli_list in; /* the list of calls under way, or of ended ones */
    struct fli_engine *engine;
    struct fli_ask ask;
    struct fli_call_state call_state;
    bool begun;                /* the present order is being carried out */
    unsigned tried;            /* of the addresses of the node that is being connected to */
    uint64_t address_until_ms; /* when the next address is tried; UINT64_MAX: not */
    unsigned owed; /* 1: the answer to LEADER comes first, then the one that is wanted */
    uint32_t link_node;
    struct fli_watched main;
    struct fli_watched probe; /* of WANT_PROBE, or of the health probe */
    struct fli_health_probe health_probe;
    size_t sent;
    struct fli_buf out;
    redisReply *reply;
    fli_ended_cb done;
    void *arg;
    char trouble[TEXT_SIZE];
    char error[TEXT_SIZE + 128];
    struct fl_bytes also[FL_NAMES_MAX - 1];
    char bytes[]; /* the texts of the request */
};

/* ---- places ---------------------------------------------------------------------------------- */

static int init_places(struct fli_engine *e, const char *nodes)
{
    char errmsg[128];
    struct fli_node parsed[FL_NODES_MAX];
    int rc = fli_nodes_parse(nodes, parsed, &e->n_nodes, errmsg, sizeof errmsg);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < e->n_nodes; i++) {
        e->places[i].node = parsed[i];
    }
    return e->blocks ? 0 : fli_engine_resolve(e);
}

int fli_engine_init(struct fli_engine *e, const char *nodes, bool blocks)
{
    memset(e, 0, sizeof *e);
    e->blocks = blocks;
    e->resolves = blocks;
    e->learns_leader = true;
    fli_list_init(&e->ops);
    fli_list_init(&e->ended);
    e->timeout_ms = FL_TIMEOUT_DEFAULT_MS;
    e->attempt_ms = FL_ATTEMPT_DEFAULT_MS;
    e->leader = FLI_CALL_NOBODY;
    e->silent = FLI_CALL_NOBODY;
    e->timer_ms = UINT64_MAX;
    int rc = init_places(e, nodes);
    if (rc != 0) {
        return rc;
    }
    e->process = fli_process();
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    e->timer_fd = fli_timer_open();
    if (e->epoll_fd >= 0 && e->timer_fd >= 0 && fli_engine_watch_timer(e)) {
        return 0;
    }
    (void)close(e->epoll_fd); /* or -1 */
    (void)close(e->timer_fd);
    return FL_ESYSTEM;
}

static void set_timer(struct fli_engine *e, uint64_t time_ms)
{
    e->timer_ms = time_ms;
    fli_timer_set(e->timer_fd, time_ms);
}

void fli_engine_wake_at(struct fli_engine *e, uint64_t time_ms)
{
    if (time_ms < e->timer_ms) {
        set_timer(e, time_ms);
    }
}

/* ---- connections ----------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void watch(struct fli_engine *e, struct fli_watched *w, uint32_t events)
{
    fli_watched_for(w, e->epoll_fd, events);
}

/* A connection without an outstanding answer serves the next call, if it is still fresh then. */
static void keep_idle(struct fli_engine_call *op)
{
    struct fli_engine *e = op->engine;
    if (op->main.link.fd < 0) {
        return;
    }
    if (op->owed != 0 || e->idle.n == FLI_IDLE_MAX ||
        (!e->blocks && !fli_link_is_fresh(&op->main.link))) {
        fli_watched_close(&op->main, op->engine->epoll_fd);
        return;
    }
    if (e->blocks) { /* one call at a time, so one connection is enough */
        fli_idle_drop_all(&e->idle);
    }
    watch(e, &op->main, 0);
    fli_idle_keep(&e->idle, op->link_node, &op->main.link);
}

/* ---- who leads ------------------------------------------------------------------------------- */

static void forget_leader(struct fli_engine *e, uint32_t node)
{
    if (e->leader != node) {
        return;
    }
    if (node == e->n_nodes) {
        e->shun_ms = fli_clock_ms() + SHUN_MS;
    }
    e->leader = FLI_CALL_NOBODY;
    e->learned_ms = 0;
}

/* Whether a call is connected to the last place: it would not notice that another node took it. */
static bool is_last_place_in_use(const struct fli_engine *e)
{
    FLI_LIST_FOREACH(at, &e->ops)
    {
        const struct fli_engine_call *op = FLI_CONTAINER_OF(at, struct fli_engine_call, in);
        if ((op->main.link.fd >= 0 && op->link_node == e->n_nodes) ||
            (op->probe.link.fd >= 0 && op->health_probe.node == e->n_nodes)) {
            return true;
        }
    }
    return false;
}

/* The place of this address. FLI_CALL_NOBODY: the address is of no use. */
static uint32_t place_of(struct fli_engine *e, const char *address, size_t len)
{
    for (uint32_t i = 0; i <= e->n_nodes; i++) {
        const char *text = e->places[i].node.text;
        bool shunned = i == e->n_nodes && fli_clock_ms() < e->shun_ms;
        if (strlen(text) == len && memcmp(text, address, len) == 0 && !shunned) {
            return i;
        }
    }
    char errmsg[128];
    struct fli_place place = {.n = 0};
    if (fli_clock_ms() < e->shun_ms || is_last_place_in_use(e) ||
        fli_node_parse(address, len, &place.node, errmsg, sizeof errmsg) != 0) {
        return FLI_CALL_NOBODY;
    }
    if (!e->resolves) {
        fli_place_resolve(&place, true);
        if (place.n == 0) {
            return FLI_CALL_NOBODY;
        }
    }
    fli_idle_drop(&e->idle, e->n_nodes);
    e->places[e->n_nodes] = place;
    return e->n_nodes;
}

static void learn_leader(struct fli_engine_call *op, const redisReply *reply)
{
    struct fli_engine *e = op->engine;
    e->leader = FLI_CALL_NOBODY;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        return;
    }
    const redisReply *address = reply->element[1];
    if (address->type == REDIS_REPLY_STRING || address->type == REDIS_REPLY_STATUS) {
        e->leader = place_of(e, address->str, address->len);
    }
    if (e->leader == e->silent && fli_clock_ms() < e->silent_until_ms) {
        e->leader = FLI_CALL_NOBODY;
    }
    if (e->leader != FLI_CALL_NOBODY) {
        fli_call_state_hint(&op->call_state, e->leader);
    }
}

/* The call has left this node because it did not answer. For a while no call begins there, even if
 * another node names it as the leader. */
static void note_silent(struct fli_engine *e, uint32_t node)
{
    e->silent = node;
    e->silent_until_ms = fli_clock_ms() + SILENT_MS;
}

/* ---- obeying orders -------------------------------------------------------------------------- */

static void note_trouble(struct fli_engine_call *op, const char *text)
{
    const struct fli_engine *e = op->engine;
    snprintf(op->trouble, sizeof op->trouble, "%s: %.300s", e->places[op->link_node].node.text,
             text);
    if (e->watcher.on_trouble != NULL) {
        e->watcher.on_trouble(e->watcher.arg, op->link_node, text);
    }
}

static enum fli_call_event lose(struct fli_engine_call *op, enum fli_call_event event)
{
    note_trouble(op, op->main.link.error);
    forget_leader(op->engine, op->link_node);
    op->engine->places[op->link_node].turn++;
    fli_watched_close(&op->main, op->engine->epoll_fd);
    op->owed = 0;
    return event;
}

static struct fli_place *place_to_connect(struct fli_engine *e, uint32_t node)
{
    struct fli_place *p = &e->places[node];
    if (e->resolves) {
        fli_place_resolve(p, false);
    }
    return p;
}

/* A dead address must leave time for the addresses after it. */
static bool begin_address(struct fli_engine_call *op, const struct fli_place *p)
{
    uint64_t now_ms = fli_clock_ms();
    uint64_t left_ms =
        op->call_state.order.until_ms > now_ms ? op->call_state.order.until_ms - now_ms : 0;
    bool last = op->tried + 1 >= p->n;
    op->address_until_ms = last ? UINT64_MAX : now_ms + left_ms / (p->n - op->tried);
    op->tried++;
    return fli_place_connect(p, &op->main.link, &op->engine->tls);
}

/* Goes on to the next address while there are untried ones. 0; FL_EBUSY; or the error of the last
 * one. */
static int connect_step(struct fli_engine_call *op, struct fli_place *p, bool begun)
{
    for (;;) {
        int rc = begun ? fli_link_finish(&op->main.link) : FL_ENOCONN;
        bool slow = rc == FL_EBUSY && fli_clock_ms() >= op->address_until_ms;
        if (rc == 0 || rc == FL_EDENIED || (rc == FL_EBUSY && !slow)) {
            return rc;
        }
        if (op->tried >= p->n) {
            return FL_ENOCONN;
        }
        fli_watched_close(&op->main, op->engine->epoll_fd);
        op->engine->places[op->link_node].turn++;
        begun = begin_address(op, p);
    }
}

/* Takes over the health probe's connection to a node that serves. */
static bool take_asked(struct fli_engine_call *op, uint32_t node)
{
    if (!fli_health_probe_is_done(&op->health_probe, node)) {
        return false;
    }
    watch(op->engine, &op->probe, 0);
    fli_link_move(&op->main.link, &op->probe.link);
    return true;
}

/* The event for which a busy link waits. */
static uint32_t awaited(const struct fli_link *l)
{
    return l->wants_read ? EPOLLIN : EPOLLOUT;
}

/* Each of the functions below carries out one kind of order. It returns false while it has to
 * wait. */

static bool obey_connect(struct fli_engine_call *op, enum fli_call_event *ret, int *ret_code)
{
    struct fli_engine *e = op->engine;
    uint32_t node = op->call_state.order.node;
    struct fli_place *place = &e->places[node];
    bool begun = true;
    *ret = FLI_EVENT_CONNECTED;
    if (!op->begun) {
        if (op->main.link.fd >= 0 && op->link_node == node && op->owed == 0 &&
            fli_link_is_fresh(&op->main.link)) {
            return true;
        }
        fli_watched_close(&op->main, op->engine->epoll_fd);
        op->owed = 0;
        op->link_node = node;
        if (take_asked(op, node) || fli_idle_take(&op->engine->idle, node, &op->main.link)) {
            return true;
        }
        place = place_to_connect(e, node);
        op->tried = 0;
        begun = begin_address(op, place);
    }
    int rc = connect_step(op, place, begun);
    if (rc == FL_EBUSY) {
        watch(e, &op->main, awaited(&op->main.link));
        return false;
    }
    if (rc != 0) {
        *ret_code = rc == FL_EDENIED ? rc : 0;
        *ret = lose(op, rc == FL_EDENIED ? FLI_EVENT_REFUSED : FLI_EVENT_UNREACHABLE);
    }
    return true;
}

static int encode(struct fli_engine_call *op, bool with_leader)
{
    fli_buf_clear(&op->out);
    const struct fli_ask leader = {.op = FLI_ASK_LEADER};
    int rc = with_leader ? fli_ask_encode(&leader, 0, &op->out) : 0;
    if (rc != 0) {
        return rc;
    }
    if (op->call_state.order.request == FLI_REQUEST_CONFIRM) {
        const struct fli_ask confirm = {.op = FLI_ASK_RENEW,
                                        .name = op->ask.name,
                                        .token = (fl_token)op->reply->integer,
                                        .ttl_ms = op->ask.ttl_ms};
        return fli_ask_encode(&confirm, 0, &op->out);
    }
    uint64_t now_ms = fli_clock_ms();
    if (op->ask.op == FLI_ASK_ACQUIRE) {
        op->ask.attempt = fli_attempts_next(&op->engine->attempts, op->ask.attempt, now_ms);
    }
    return fli_ask_encode(&op->ask, fli_call_state_wait_left(&op->call_state, now_ms), &op->out);
}

static bool obey_send(struct fli_engine_call *op, enum fli_call_event *ret)
{
    struct fli_engine *e = op->engine;
    uint64_t now_ms = fli_clock_ms();
    if (!op->begun) {
        bool ask_leader =
            e->learns_leader && (e->learned_ms == 0 || now_ms - e->learned_ms >= LEARN_EVERY_MS);
        op->sent = 0;
        if (encode(op, ask_leader) != 0) {
            snprintf(op->main.link.error, sizeof op->main.link.error,
                     "the request does not fit in memory");
            *ret = lose(op, FLI_EVENT_UNSENT);
            return true;
        }
        op->owed = ask_leader ? 1 : 0;
        e->learned_ms = ask_leader ? now_ms : e->learned_ms;
    }
    int rc = fli_link_push(&op->main.link, op->out.data, op->out.len, &op->sent);
    if (rc == FL_EBUSY) {
        watch(e, &op->main, awaited(&op->main.link));
        return false;
    }
    *ret = rc == 0 ? FLI_EVENT_SENT : lose(op, FLI_EVENT_UNSENT);
    return true;
}

static enum fli_call_event classify(struct fli_engine_call *op, redisReply *reply, int *ret_code)
{
    bool confirming = op->call_state.order.request == FLI_REQUEST_CONFIRM;
    enum fli_call_event event =
        fli_ask_classify(confirming ? FLI_ASK_RENEW : op->ask.op, reply, ret_code);
    if (reply->type == REDIS_REPLY_ERROR) {
        note_trouble(op, reply->str);
    }
    if (event == FLI_EVENT_NOLEADER || event == FLI_EVENT_UNCERTAIN) {
        op->engine->learned_ms = 0;
        op->engine->leader = FLI_CALL_NOBODY;
    }
    if (confirming) {
        freeReplyObject(reply);
    } else {
        uint64_t late = fli_ask_late(reply);
        op->ask.attempt = late > op->ask.attempt ? late : op->ask.attempt;
        freeReplyObject(op->reply);
        op->reply = reply;
    }
    if (event == FLI_EVENT_BROKEN) {
        snprintf(op->main.link.error, sizeof op->main.link.error, "its answer makes no sense");
        return lose(op, event);
    }
    return event;
}

static bool obey_answer(struct fli_engine_call *op, enum fli_call_event *ret, int *ret_code)
{
    struct fli_engine *e = op->engine;
    for (;;) {
        redisReply *reply;
        int rc = fli_link_receive(&op->main.link, 0, &reply);
        if (rc == FL_ETIMEOUT) {
            watch(e, &op->main, EPOLLIN);
            return false;
        }
        if (rc == FL_EDENIED) {
            *ret = lose(op, FLI_EVENT_REFUSED);
            *ret_code = rc;
            return true;
        }
        if (rc != 0) {
            *ret = lose(op, rc == FL_EPROTO ? FLI_EVENT_BROKEN : FLI_EVENT_LOST);
            return true;
        }
        if (op->owed == 0) {
            *ret = classify(op, reply, ret_code);
            return true;
        }
        op->owed = 0;
        int turned_away = fli_ask_classify_welcome(reply);
        if (turned_away != 0) {
            snprintf(op->main.link.error, sizeof op->main.link.error, "%.150s", reply->str);
        } else {
            learn_leader(op, reply);
        }
        freeReplyObject(reply);
        if (turned_away != 0) {
            bool denied = turned_away == FL_EDENIED;
            *ret_code = denied ? turned_away : 0;
            *ret = lose(op, denied ? FLI_EVENT_REFUSED : FLI_EVENT_BUSY);
            return true;
        }
    }
}

static enum fli_call_event end_probe(struct fli_engine_call *op, enum fli_call_event event)
{
    if (event == FLI_EVENT_DEAD) {
        snprintf(op->main.link.error, sizeof op->main.link.error, "%s", op->probe.link.error);
        lose(op, event); /* the probe went to the same address */
    } else {
        snprintf(op->main.link.error, sizeof op->main.link.error, "it knows no leader");
    }
    fli_watched_close(&op->probe, op->engine->epoll_fd);
    return event;
}

static bool obey_probe(struct fli_engine_call *op, enum fli_call_event *ret)
{
    struct fli_engine *e = op->engine;
    struct fli_watched *w = &op->probe;
    if (!op->begun) {
        const struct fli_ask who_leads = {.op = FLI_ASK_LEADER};
        watch(e, &op->main, 0); /* the answer is not read before the probe has ended */
        fli_buf_clear(&op->out);
        op->sent = 0;
        if (fli_ask_encode(&who_leads, 0, &op->out) != 0 ||
            !fli_place_connect(place_to_connect(e, op->call_state.order.node), &w->link, &e->tls)) {
            *ret = end_probe(op, FLI_EVENT_DEAD);
            return true;
        }
    }
    int rc = !w->link.ready ? fli_link_finish(&w->link) : 0;
    rc = rc == 0 ? fli_link_push(&w->link, op->out.data, op->out.len, &op->sent) : rc;
    if (rc == FL_EBUSY) {
        watch(e, w, awaited(&w->link));
        return false;
    }
    redisReply *reply;
    rc = rc == 0 ? fli_link_receive(&w->link, 0, &reply) : rc;
    if (rc == FL_ETIMEOUT) {
        watch(e, w, EPOLLIN);
        return false;
    }
    enum fli_call_event event = FLI_EVENT_DEAD;
    if (rc == 0) {
        event = fli_ask_classify_probe(reply);
        freeReplyObject(reply);
    }
    *ret = end_probe(op, event);
    return true;
}

static bool begin_health_probe(struct fli_engine_call *op, uint32_t other)
{
    const struct fli_place *p = place_to_connect(op->engine, other);
    fli_watched_close(&op->probe, op->engine->epoll_fd);
    return fli_health_probe_begin(&op->health_probe, other, p, &op->engine->tls);
}

static bool obey_ask(struct fli_engine_call *op, enum fli_call_event *ret, int *ret_code)
{
    uint32_t other = op->call_state.order.other;
    bool writable;
    if (obey_answer(op, ret, ret_code)) {
        return true;
    }
    bool stands = op->probe.link.fd >= 0 && op->health_probe.node == other;
    if (!stands && !begin_health_probe(op, other)) {
        op->engine->places[other].turn++;
        *ret = FLI_EVENT_SERVES_NOT;
        return true;
    }
    if (fli_health_probe_step(&op->health_probe, ret, &writable)) {
        if (*ret == FLI_EVENT_SERVES_NOT) {
            op->engine->places[other].turn++;
            fli_watched_close(&op->probe, op->engine->epoll_fd);
        }
        return true;
    }
    watch(op->engine, &op->probe, writable ? EPOLLOUT : EPOLLIN);
    return false;
}

static bool obey(struct fli_engine_call *op, enum fli_call_event *ret, int *ret_code)
{
    switch (op->call_state.order.want) {
    case FLI_WANT_CONNECT:
        return obey_connect(op, ret, ret_code);
    case FLI_WANT_SEND:
        return obey_send(op, ret);
    case FLI_WANT_ANSWER:
        return obey_answer(op, ret, ret_code);
    case FLI_WANT_PROBE:
        return obey_probe(op, ret);
    case FLI_WANT_ASK_OTHER:
        return obey_ask(op, ret, ret_code);
    default:
        FLI_ASSERT(op->call_state.order.want == FLI_WANT_SLEEP);
        return false;
    }
}

static enum fli_call_event time_over(struct fli_engine_call *op)
{
    switch (op->call_state.order.want) {
    case FLI_WANT_CONNECT:
        return lose(op, FLI_EVENT_UNREACHABLE);
    case FLI_WANT_SEND:
        return lose(op, FLI_EVENT_UNSENT);
    case FLI_WANT_ANSWER:
    case FLI_WANT_ASK_OTHER:
        snprintf(op->main.link.error, sizeof op->main.link.error, "no answer in time");
        return FLI_EVENT_SILENT;
    case FLI_WANT_PROBE:
        snprintf(op->probe.link.error, sizeof op->probe.link.error, "no answer to a probe");
        return end_probe(op, FLI_EVENT_DEAD);
    default:
        return FLI_EVENT_WOKE;
    }
}

/* Closes the connections that the next order has no use for. */
static void leave_behind(struct fli_engine_call *op, enum fli_call_event event)
{
    enum fli_call_want want = op->call_state.order.want;
    bool waits_on = want == FLI_WANT_PROBE || want == FLI_WANT_ANSWER || want == FLI_WANT_ASK_OTHER;
    if (event == FLI_EVENT_SERVES) {
        snprintf(op->main.link.error, sizeof op->main.link.error, "no answer, while others do");
    }
    bool silent = event == FLI_EVENT_SILENT || event == FLI_EVENT_SERVES;
    if ((silent || event == FLI_EVENT_LEADERLESS) && !waits_on) {
        /* A late answer on this connection must not be taken for the answer to another request. */
        uint32_t node = op->link_node;
        lose(op, event);
        if (silent) {
            note_silent(op->engine, node);
        }
    }
    if (want != FLI_WANT_ASK_OTHER && want != FLI_WANT_CONNECT) {
        fli_watched_close(&op->probe, op->engine->epoll_fd);
    }
}

/* Carries out orders until one has to wait. True: the call has ended. */
static bool drive(struct fli_engine_call *op)
{
    while (op->call_state.order.want != FLI_WANT_NOTHING) {
        enum fli_call_event event;
        enum fli_call_want asked = op->call_state.order.want;
        int code = 0;
        if (!obey(op, &event, &code)) {
            op->begun = true;
            if (fli_clock_ms() < op->call_state.order.until_ms) {
                return false;
            }
            event = time_over(op);
        }
        fli_call_state_feed(&op->call_state, fli_clock_ms(), event, code);
        op->begun = false;
        leave_behind(op, event);
        if (op->call_state.order.want == FLI_WANT_SLEEP && op->main.link.fd >= 0) {
            watch(op->engine, &op->main, 0);
        }
        const struct fli_engine_watcher *watcher = &op->engine->watcher;
        if (watcher->on_event != NULL) {
            watcher->on_event(watcher->arg, asked, event,
                              op->call_state.order.want == FLI_WANT_NOTHING);
        }
    }
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct fl_bytes copy_bytes(char **at, struct fl_bytes b)
{
    struct fl_bytes copy = {*at, b.len};
    if (b.len > 0) {
        memcpy(*at, b.data, b.len);
        *at += b.len;
    }
    return copy;
}

static uint32_t first_node(const struct fli_engine *e, uint64_t seed)
{
    if (e->leader != FLI_CALL_NOBODY) {
        return e->leader;
    }
    if (e->blocks && e->idle.n > 0 && e->idle.kept[0].node < e->n_nodes) {
        return e->idle.kept[0].node;
    }
    uint32_t node = (uint32_t)(seed % e->n_nodes);
    bool silent = node == e->silent && fli_clock_ms() < e->silent_until_ms;
    return silent ? (node + 1) % e->n_nodes : node;
}

static void begin(struct fli_engine_call *op, const struct fli_call_times *times)
{
    const struct fli_engine *e = op->engine;
    uint64_t seed;
    fli_random(&seed, sizeof seed);
    uint64_t ttl_ms = fli_ask_lease_ms(&op->ask);
    const struct fli_call_config config = {
        .repeat = fli_ask_repeat(op->ask.op),
        .no_is_uncertain = fli_ask_no_is_uncertain(op->ask.op),
        .nodes = e->n_nodes,
        .start = first_node(e, seed),
        .now_ms = fli_clock_ms(),
        .deadline_ms = times->deadline_ms,
        .ask_ms = fli_pace_ask_ms(&e->pace),
        .attempt_ms = times->attempt_ms != 0 ? times->attempt_ms : e->attempt_ms,
        .wait_ms = times->wait_ms,
        .ttl_ms = ttl_ms,
        .confirm = op->ask.op == FLI_ASK_ACQUIRE && ttl_ms != 0,
        .seed = seed,
    };
    fli_call_state_init(&op->call_state, &config);
}

int fli_engine_start(struct fli_engine *e, const struct fli_ask *ask,
                     const struct fli_call_times *times, fli_ended_cb done, void *arg,
                     struct fli_engine_call **ret)
{
    FLI_ASSERT(ask->also_len < FL_NAMES_MAX);
    size_t also_bytes = 0;
    for (size_t i = 0; i < ask->also_len; i++) {
        also_bytes += ask->also[i].len;
    }
    struct fli_engine_call *op =
        calloc(1, sizeof *op + ask->name.len + ask->owner.len + ask->value.len + also_bytes);
    if (op == NULL) {
        return FL_ENOMEM;
    }
    op->engine = e;
    op->ask = *ask;
    char *at = op->bytes;
    op->ask.name = copy_bytes(&at, ask->name);
    op->ask.owner = copy_bytes(&at, ask->owner);
    op->ask.value = copy_bytes(&at, ask->value);
    for (size_t i = 0; i < ask->also_len; i++) {
        op->also[i] = copy_bytes(&at, ask->also[i]);
    }
    op->ask.also = op->also;
    fli_link_init(&op->main.link);
    fli_link_init(&op->probe.link);
    fli_health_probe_init(&op->health_probe, &op->probe.link);
    fli_buf_init(&op->out, FLI_REQUEST_MAX);
    op->done = done;
    op->arg = arg;
    begin(op, times);
    fli_list_push(&e->ops, &op->in);
    fli_engine_wake_at(e, 0);
    *ret = op;
    return 0;
}

static void op_free(struct fli_engine_call *op)
{
    fli_watched_close(&op->main, op->engine->epoll_fd);
    fli_watched_close(&op->probe, op->engine->epoll_fd);
    fli_health_probe_fini(&op->health_probe);
    fli_buf_fini(&op->out);
    freeReplyObject(op->reply);
    free(op);
}

void fli_engine_cancel(struct fli_engine_call *op)
{
    fli_attempts_cancel(&op->engine->attempts, &op->call_state, op->ask.attempt, fli_clock_ms());
    fli_list_remove(&op->in);
    op_free(op);
}

static void call_done(struct fli_engine_call *op)
{
    struct fli_ended ended = {.status = op->call_state.status,
                              .error = op->error,
                              .reply = op->reply,
                              .lease_until_ms = op->call_state.lease_until_ms};
    if (ended.status != 0) {
        const char *trouble = ended.status == FL_ENOTHELD ? "" : op->trouble;
        snprintf(op->error, sizeof op->error, "%s%s%s", fl_strerror(ended.status),
                 trouble[0] == '\0' ? "" : ": ", trouble);
    }
    op->done(op->arg, &ended);
    op->reply = ended.reply;
    op_free(op);
}

/* When the link of the present order opens another socket. */
static uint64_t again_ms(const struct fli_engine_call *op)
{
    switch (op->call_state.order.want) {
    case FLI_WANT_CONNECT:
        return least(op->main.link.again_ms, op->address_until_ms);
    case FLI_WANT_PROBE:
    case FLI_WANT_ASK_OTHER:
        return op->probe.link.again_ms;
    default:
        return UINT64_MAX;
    }
}

void fli_engine_process(struct fli_engine *e)
{
    uint64_t fired;
    (void)!read(e->timer_fd, &fired, sizeof fired);
    FLI_LIST_FOREACH_SAFE(at, next, &e->ops)
    {
        struct fli_engine_call *op = FLI_CONTAINER_OF(at, struct fli_engine_call, in);
        if (drive(op)) {
            fli_pace_learn(&e->pace, &op->call_state);
            fli_attempts_learn(&e->attempts, &op->call_state, op->ask.attempt, fli_clock_ms());
            keep_idle(op);
            fli_list_remove(&op->in);
            fli_list_push(&e->ended, &op->in);
        }
    }
    /* Computed before callbacks are called, which may begin and cancel calls. */
    uint64_t next_ms = UINT64_MAX / 1000000;
    FLI_LIST_FOREACH(at, &e->ops)
    {
        const struct fli_engine_call *op = FLI_CONTAINER_OF(at, struct fli_engine_call, in);
        next_ms = least(next_ms, least(op->call_state.order.until_ms, again_ms(op)));
    }
    set_timer(e, next_ms);
    struct fli_list *at;
    while ((at = fli_list_pop(&e->ended)) != NULL) {
        call_done(FLI_CONTAINER_OF(at, struct fli_engine_call, in));
    }
}

void fli_engine_drop(struct fli_engine *e)
{
    struct fli_list *at;
    fli_list_splice(&e->ops, &e->ended);
    while ((at = fli_list_pop(&e->ops)) != NULL) {
        op_free(FLI_CONTAINER_OF(at, struct fli_engine_call, in));
    }
    fli_idle_drop_all(&e->idle);
}

void fli_engine_fini(struct fli_engine *e)
{
    if (fli_engine_is_inherited(e)) { /* nothing may be said to it: it is the parent's as well */
        close(e->epoll_fd);
        e->epoll_fd = -1;
    }
    fli_engine_drop(e);
    fli_link_security_fini(&e->tls);
    close(e->timer_fd);
    close(e->epoll_fd);
}
