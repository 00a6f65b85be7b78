/* caller.c: see caller.h.
 *
 * The leader is learned on the way: LEADER goes in front of a request now and then, in the same
 * packet, and its answer comes in front of the request's. */
#include "client/caller.h"

#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define REQUEST_MAX ((size_t)64 << 20)
#define LEARN_EVERY_MS UINT64_C(10000)
#define SHUN_MS UINT64_C(30000)
#define SILENT_MS UINT64_C(10000)

/* One call in progress. */
struct run {
    struct fli_caller *k;
    const struct fli_call *call;
    struct fli_call_state call_state;
    redisReply *main_reply;    /* to the request itself */
    redisReply *confirm_reply; /* to the renewal behind it */
    uint64_t attempt;          /* number of the ACQUIRE that was sent last; 0: none */
    bool without;              /* a node, since without_ms */
    uint64_t without_ms;
};

int fli_caller_init(struct fli_caller *k, const char *nodes, char *errmsg, size_t errmsg_size)
{
    memset(k, 0, sizeof *k);
    fli_link_init(&k->link);
    fli_link_init(&k->aside);
    fli_health_probe_init(&k->health_probe, &k->aside);
    fli_buf_init(&k->out, REQUEST_MAX);
    k->timeout_ms = FL_TIMEOUT_DEFAULT_MS;
    k->attempt_ms = FL_ATTEMPT_DEFAULT_MS;
    k->leader = FLI_CALL_NOBODY;
    k->silent = FLI_CALL_NOBODY;
    return fli_nodes_parse(nodes, k->nodes, &k->n_nodes, errmsg, errmsg_size);
}

void fli_caller_fini(struct fli_caller *k)
{
    fli_link_close(&k->link);
    fli_link_close(&k->aside);
    fli_link_tls_fini(&k->tls);
    fli_health_probe_fini(&k->health_probe);
    fli_buf_fini(&k->out);
}

int fli_caller_fail(struct fli_caller *k, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(k->error, sizeof k->error, fmt, args);
    va_end(args);
    return code;
}

static void note_trouble(struct fli_caller *k, uint32_t node, const char *text, size_t len)
{
    int shown = len < FLI_TROUBLE_SIZE - 1 ? (int)len : (int)FLI_TROUBLE_SIZE - 1;
    snprintf(k->trouble[node], FLI_TROUBLE_SIZE, "%.*s", shown, text);
}

/* ---- who leads ------------------------------------------------------------------------------- */

static void forget_leader(struct fli_caller *k, uint32_t node)
{
    if (k->leader != node) {
        return;
    }
    if (node == k->n_nodes) {
        k->shun_ms = fli_clock_ms() + SHUN_MS;
    }
    k->leader = FLI_CALL_NOBODY;
    k->learned_ms = 0;
}

/* The place of an address in nodes[]; FLI_CALL_NOBODY when it is of no use. */
static uint32_t place_of(struct fli_caller *k, const char *address, size_t len)
{
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        if (strlen(k->nodes[i].text) == len && memcmp(k->nodes[i].text, address, len) == 0) {
            return i;
        }
    }
    if (fli_clock_ms() < k->shun_ms) {
        return FLI_CALL_NOBODY;
    }
    char errmsg[128];
    struct fli_node node;
    if (fli_node_parse(address, len, &node, errmsg, sizeof errmsg) != 0) {
        return FLI_CALL_NOBODY;
    }
    bool other = strcmp(node.text, k->nodes[k->n_nodes].text) != 0;
    if (other && k->link.fd >= 0 && k->link_node == k->n_nodes) {
        return FLI_CALL_NOBODY; /* that place is in use; next time */
    }
    k->nodes[k->n_nodes] = node;
    return k->n_nodes;
}

static void learn_leader(struct fli_caller *k, const redisReply *reply)
{
    k->leader = FLI_CALL_NOBODY;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        return;
    }
    const redisReply *address = reply->element[1];
    if (address->type == REDIS_REPLY_STRING || address->type == REDIS_REPLY_STATUS) {
        k->leader = place_of(k, address->str, address->len);
    }
    if (k->leader == k->silent && fli_clock_ms() < k->silent_until_ms) {
        k->leader = FLI_CALL_NOBODY; /* nobody's word makes us begin there */
    }
}

/* ---- obeying orders -------------------------------------------------------------------------- */

static enum fli_call_event obey_connect(struct run *r, int *ret_code)
{
    struct fli_caller *k = r->k;
    const struct fli_call_order *order = &r->call_state.order;
    if (k->link.fd >= 0 && k->link_node == order->node && k->owed == 0 &&
        fli_link_is_fresh(&k->link)) {
        return FLI_EVENT_CONNECTED;
    }
    fli_link_close(&k->link);
    k->owed = 0;
    if (fli_health_probe_is_done(&k->health_probe, order->node)) {
        fli_link_move(&k->link, &k->aside);
        k->link_node = order->node;
        return FLI_EVENT_CONNECTED;
    }
    int rc = fli_link_connect(&k->link, &k->tls, &k->nodes[order->node], order->until_ms);
    if (rc != 0) {
        note_trouble(k, order->node, k->link.error, strlen(k->link.error));
        forget_leader(k, order->node);
        *ret_code = rc == FL_EDENIED ? rc : 0;
        return rc == FL_EDENIED ? FLI_EVENT_REFUSED : FLI_EVENT_UNREACHABLE;
    }
    k->link_node = order->node;
    return FLI_EVENT_CONNECTED;
}

static int encode(struct run *r, bool with_leader)
{
    struct fli_caller *k = r->k;
    fli_buf_clear(&k->out);
    int rc = 0;
    if (with_leader) {
        const struct fli_ask leader = {.op = FLI_ASK_LEADER};
        rc = fli_ask_encode(&leader, 0, &k->out);
    }
    if (rc != 0) {
        return rc;
    }
    const struct fli_ask *ask = &r->call->ask;
    if (r->call_state.order.request == FLI_REQUEST_CONFIRM) {
        const struct fli_ask confirm = {.op = FLI_ASK_RENEW,
                                        .name = ask->name,
                                        .token = (fl_token)r->main_reply->integer,
                                        .ttl_ms = ask->ttl_ms};
        return fli_ask_encode(&confirm, 0, &k->out);
    }
    uint64_t now_ms = fli_clock_ms();
    struct fli_ask main = *ask;
    if (ask->op == FLI_ASK_ACQUIRE) {
        r->attempt = fli_attempts_next(&k->attempts, r->attempt, now_ms);
        main.attempt = r->attempt;
    }
    return fli_ask_encode(&main, fli_call_state_wait_left(&r->call_state, now_ms), &k->out);
}

static enum fli_call_event lost_link(struct run *r, enum fli_call_event event)
{
    struct fli_caller *k = r->k;
    note_trouble(k, k->link_node, k->link.error, strlen(k->link.error));
    forget_leader(k, k->link_node);
    fli_link_close(&k->link);
    k->owed = 0;
    return event;
}

static enum fli_call_event obey_send(struct run *r)
{
    struct fli_caller *k = r->k;
    uint64_t now_ms = fli_clock_ms();
    bool ask_leader =
        k->learns_leader && (k->learned_ms == 0 || now_ms - k->learned_ms >= LEARN_EVERY_MS);
    if (encode(r, ask_leader) != 0) {
        snprintf(k->link.error, sizeof k->link.error, "the request does not fit in memory");
        return lost_link(r, FLI_EVENT_UNSENT);
    }
    if (fli_link_send(&k->link, k->out.data, k->out.len, r->call_state.order.until_ms) != 0) {
        return lost_link(r, FLI_EVENT_UNSENT);
    }
    if (ask_leader) {
        k->learned_ms = now_ms;
        k->owed = 1;
    }
    return FLI_EVENT_SENT;
}

static void keep_reply(redisReply **slot, redisReply *reply)
{
    if (*slot != NULL) {
        freeReplyObject(*slot);
    }
    *slot = reply;
}

static enum fli_call_event classify(struct run *r, redisReply *reply, int *ret_code)
{
    struct fli_caller *k = r->k;
    bool confirming = r->call_state.order.request == FLI_REQUEST_CONFIRM;
    enum fli_ask_op op = confirming ? FLI_ASK_RENEW : r->call->ask.op;
    enum fli_call_event event = fli_ask_classify(op, reply, ret_code);
    uint64_t late = confirming ? 0 : fli_ask_late(reply);
    r->attempt = late > r->attempt ? late : r->attempt;
    keep_reply(confirming ? &r->confirm_reply : &r->main_reply, reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        note_trouble(k, r->call_state.order.node, reply->str, reply->len);
    }
    if (event == FLI_EVENT_NOLEADER || event == FLI_EVENT_UNCERTAIN) {
        k->learned_ms = 0;
        k->leader = FLI_CALL_NOBODY;
    }
    if (event == FLI_EVENT_BROKEN) {
        snprintf(k->link.error, sizeof k->link.error, "its answer makes no sense");
        return lost_link(r, event);
    }
    return event;
}

/* SILENT: not by until_ms. */
static enum fli_call_event await_answer(struct run *r, uint64_t until_ms, int *ret_code)
{
    struct fli_caller *k = r->k;
    for (;;) {
        redisReply *reply;
        int rc = fli_link_receive(&k->link, until_ms, &reply);
        if (rc == FL_ETIMEOUT) {
            return FLI_EVENT_SILENT;
        }
        if (rc == FL_EDENIED) {
            *ret_code = rc;
            return lost_link(r, FLI_EVENT_REFUSED);
        }
        if (rc != 0) {
            return lost_link(r, rc == FL_EPROTO ? FLI_EVENT_BROKEN : FLI_EVENT_LOST);
        }
        if (k->owed == 0) {
            return classify(r, reply, ret_code);
        }
        k->owed = 0;
        int turned_away = fli_ask_classify_welcome(reply);
        if (turned_away != 0) {
            note_trouble(k, k->link_node, reply->str, reply->len);
            freeReplyObject(reply);
            forget_leader(k, k->link_node);
            fli_link_close(&k->link);
            *ret_code = turned_away == FL_EDENIED ? turned_away : 0;
            return turned_away == FL_EDENIED ? FLI_EVENT_REFUSED : FLI_EVENT_BUSY;
        }
        learn_leader(k, reply);
        freeReplyObject(reply);
        if (k->leader != FLI_CALL_NOBODY) {
            fli_call_state_hint(&r->call_state, k->leader);
        }
    }
}

/* Asks on a link of its own, once. */
static int ask_on(struct fli_caller *k, struct fli_link *l, const struct fli_node *node,
                  const struct fli_ask *ask, uint64_t until_ms, redisReply **ret)
{
    struct fli_buf *out = &k->out;
    fli_buf_clear(out);
    int rc = fli_ask_encode(ask, 0, out);
    if (rc == 0 && l->reader == NULL) {
        rc = fli_link_connect(l, &k->tls, node, until_ms);
    }
    if (rc == 0) {
        rc = fli_link_send(l, out->data, out->len, until_ms);
    }
    if (rc == 0) {
        rc = fli_link_receive(l, until_ms, ret);
    }
    return rc;
}

static int ask_once(struct fli_caller *k, struct fli_link *l, const struct fli_node *node,
                    enum fli_ask_op op, uint64_t until_ms, redisReply **ret)
{
    const struct fli_ask ask = {.op = op};
    return ask_on(k, l, node, &ask, until_ms, ret);
}

static enum fli_call_event obey_probe(struct run *r)
{
    struct fli_caller *k = r->k;
    struct fli_link probe;
    redisReply *reply;
    fli_link_init(&probe);
    int rc = ask_once(k, &probe, &k->nodes[r->call_state.order.node], FLI_ASK_LEADER,
                      r->call_state.order.until_ms, &reply);
    enum fli_call_event event = FLI_EVENT_DEAD;
    if (rc == 0) {
        event = fli_ask_classify_probe(reply);
        freeReplyObject(reply);
        snprintf(k->link.error, sizeof k->link.error, "it knows no leader");
    } else {
        snprintf(k->link.error, sizeof k->link.error, "%s", probe.error);
    }
    fli_link_close(&probe);
    return rc == 0 ? event : lost_link(r, event);
}

/* Looking up a name may take its time; one that is written as numbers takes none. */
static bool begin_health_probe(struct fli_caller *k, uint32_t other)
{
    const struct fli_node *node = &k->nodes[other];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    fli_link_close(&k->aside);
    if (getaddrinfo(node->host, node->port, &hints, &list) != 0) {
        return false;
    }
    bool begun = false;
    for (struct addrinfo *a = list; a != NULL && !begun; a = a->ai_next) {
        begun = fli_health_probe_begin(&k->health_probe, other, &k->tls, node->host, a->ai_addr,
                                       a->ai_addrlen);
    }
    freeaddrinfo(list);
    return begun;
}

/* Until one of the two connections has something for us, or the order's time is over. */
static void await_either(const struct run *r, bool writable)
{
    const struct fli_caller *k = r->k;
    uint64_t now_ms = fli_clock_ms();
    uint64_t until_ms = r->call_state.order.until_ms;
    until_ms = until_ms < k->aside.again_ms ? until_ms : k->aside.again_ms;
    uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    struct pollfd both[2] = {{.fd = k->link.fd, .events = POLLIN},
                             {.fd = k->aside.fd, .events = writable ? POLLOUT : POLLIN}};
    (void)poll(both, 2, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
}

static enum fli_call_event obey_ask(struct run *r, int *ret_code)
{
    struct fli_caller *k = r->k;
    uint32_t other = r->call_state.order.other;
    bool stands = k->aside.fd >= 0 && k->health_probe.node == other;
    if (!stands && !begin_health_probe(k, other)) {
        fli_link_close(&k->aside);
        return FLI_EVENT_SERVES_NOT;
    }
    for (;;) {
        bool writable = false;
        enum fli_call_event event = await_answer(r, 0, ret_code);
        if (event != FLI_EVENT_SILENT) {
            return event;
        }
        if (fli_health_probe_step(&k->health_probe, &event, &writable)) {
            if (event == FLI_EVENT_SERVES_NOT) {
                fli_link_close(&k->aside);
            }
            return event;
        }
        if (fli_clock_ms() >= r->call_state.order.until_ms) {
            return FLI_EVENT_SILENT;
        }
        await_either(r, writable);
    }
}

static enum fli_call_event obey_sleep(const struct run *r)
{
    for (;;) {
        uint64_t now_ms = fli_clock_ms();
        if (now_ms >= r->call_state.order.until_ms) {
            return FLI_EVENT_WOKE;
        }
        (void)poll(NULL, 0, (int)(r->call_state.order.until_ms - now_ms));
    }
}

static enum fli_call_event obey(struct run *r, int *ret_code)
{
    switch (r->call_state.order.want) {
    case FLI_WANT_CONNECT:
        return obey_connect(r, ret_code);
    case FLI_WANT_SEND:
        return obey_send(r);
    case FLI_WANT_ANSWER:
        return await_answer(r, r->call_state.order.until_ms, ret_code);
    case FLI_WANT_PROBE:
        return obey_probe(r);
    case FLI_WANT_ASK:
        return obey_ask(r, ret_code);
    default:
        FLI_ASSERT(r->call_state.order.want == FLI_WANT_SLEEP);
        return obey_sleep(r);
    }
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Every node with its last trouble, as far as there is room. */
static void append_troubles(struct fli_caller *k)
{
    size_t len = strlen(k->error);
    const char *before = ": ";
    for (uint32_t i = 0; i <= k->n_nodes && len < sizeof k->error; i++) {
        if (k->trouble[i][0] != '\0') {
            int n = snprintf(k->error + len, sizeof k->error - len, "%s%s: %s", before,
                             k->nodes[i].text, k->trouble[i]);
            len += (size_t)n;
            before = "; ";
        }
    }
}

static void explain(struct run *r, uint64_t timeout_ms)
{
    struct fli_caller *k = r->k;
    unsigned long long ms = timeout_ms;
    switch (r->call_state.status) {
    case FL_ENOTHELD:
        fli_caller_fail(k, 0, "%s", r->call->no);
        return;
    case FL_ENOLEADER:
        fli_caller_fail(k, 0, "no leader within %llu ms", ms);
        break;
    case FL_EBUSY:
        fli_caller_fail(k, 0, "the servers were too busy for %llu ms", ms);
        break;
    case FL_ENOCONN:
        fli_caller_fail(k, 0, "no node could be reached within %llu ms", ms);
        break;
    case FL_ETIMEOUT:
        fli_caller_fail(k, 0, "no answer within %llu ms", ms);
        break;
    case FL_EUNCERTAIN:
        fli_caller_fail(k, 0, "the outcome is unknown: it may have been done, or may still be");
        break;
    default: /* what the server said is the best explanation */
        fli_caller_fail(k, 0, "%s", fl_strerror(r->call_state.status));
        break;
    }
    append_troubles(k);
}

static bool is_trouble(enum fli_call_event event)
{
    switch (event) {
    case FLI_EVENT_UNREACHABLE:
    case FLI_EVENT_UNSENT:
    case FLI_EVENT_NOLEADER:
    case FLI_EVENT_BUSY:
    case FLI_EVENT_UNCERTAIN:
    case FLI_EVENT_LOST:
    case FLI_EVENT_BROKEN:
    case FLI_EVENT_LEADERLESS:
    case FLI_EVENT_DEAD:
        return true;
    default:
        return false;
    }
}

/* A wait can be long, and who waits may want to know that it is not for the lock. The end of the
 * call is not told here: its result says why. */
static void tell_trouble(struct run *r, enum fli_call_want asked, enum fli_call_event event)
{
    struct fli_caller *k = r->k;
    bool useful =
        event == FLI_EVENT_SERVES || (asked == FLI_WANT_PROBE && event == FLI_EVENT_ALIVE);
    if (k->on_trouble == NULL || r->call_state.order.want == FLI_WANT_NOTHING) {
        return;
    }
    if (useful) {
        r->without = false;
        k->on_trouble(k->trouble_arg, 0, "");
        return;
    }
    if (!is_trouble(event)) {
        return;
    }
    uint64_t now_ms = fli_clock_ms();
    r->without_ms = r->without ? r->without_ms : now_ms;
    r->without = true;
    fli_caller_fail(k, 0, "no node takes the request");
    append_troubles(k);
    k->on_trouble(k->trouble_arg, now_ms - r->without_ms, k->error);
    k->error[0] = '\0';
}

static uint32_t first_node(const struct fli_caller *k, uint64_t seed)
{
    if (k->leader != FLI_CALL_NOBODY) {
        return k->leader;
    }
    if (k->link.fd >= 0 && k->link_node < k->n_nodes) {
        return k->link_node;
    }
    uint32_t node = (uint32_t)(seed % k->n_nodes);
    bool silent = node == k->silent && fli_clock_ms() < k->silent_until_ms;
    return silent ? (node + 1) % k->n_nodes : node;
}

static void begin(struct run *r, uint64_t timeout_ms)
{
    struct fli_caller *k = r->k;
    const struct fli_call *call = r->call;
    enum fli_ask_op op = call->ask.op;
    uint64_t seed;
    fli_random(&seed, sizeof seed);
    uint64_t now_ms = fli_clock_ms();
    uint64_t ttl_ms = fli_ask_lease_ms(&call->ask);
    const struct fli_call_config config = {
        .repeat = fli_ask_repeat(op),
        .no_is_doubtful = fli_ask_no_is_doubtful(op),
        .nodes = k->n_nodes,
        .start = first_node(k, seed),
        .now_ms = now_ms,
        .deadline_ms = now_ms + call->wait_ms + timeout_ms,
        .attempt_ms = k->attempt_ms,
        .ask_ms = fli_pace_ask_ms(&k->pace),
        .wait_ms = call->wait_ms,
        .ttl_ms = ttl_ms,
        .confirm = op == FLI_ASK_ACQUIRE && ttl_ms != 0,
        .seed = seed,
    };
    for (uint32_t i = 0; i <= k->n_nodes; i++) {
        k->trouble[i][0] = '\0';
    }
    k->error[0] = '\0';
    fli_call_state_init(&r->call_state, &config);
}

/* Closes what the next order has no use for. */
static void leave_behind(struct run *r, enum fli_call_event event)
{
    struct fli_caller *k = r->k;
    enum fli_call_want want = r->call_state.order.want;
    bool waits_on = want == FLI_WANT_PROBE || want == FLI_WANT_ANSWER || want == FLI_WANT_ASK;
    bool silent = event == FLI_EVENT_SILENT || event == FLI_EVENT_SERVES;
    if (event == FLI_EVENT_SERVES) {
        snprintf(k->link.error, sizeof k->link.error, "no answer, while others do");
    }
    if ((silent || event == FLI_EVENT_LEADERLESS) && !waits_on) {
        /* Its late answer must not be taken for the answer to something else. */
        lost_link(r, event);
        k->silent = silent ? k->link_node : k->silent;
        k->silent_until_ms = silent ? fli_clock_ms() + SILENT_MS : k->silent_until_ms;
    }
    if (want != FLI_WANT_ASK && want != FLI_WANT_CONNECT) {
        fli_link_close(&k->aside);
    }
}

int fli_caller_run(struct fli_caller *k, const struct fli_call *call, redisReply **ret_reply,
                   uint64_t *ret_lease_ms)
{
    struct run r = {.k = k, .call = call};
    uint64_t timeout_ms = call->timeout_ms != 0 ? call->timeout_ms : k->timeout_ms;
    begin(&r, timeout_ms);
    while (r.call_state.order.want != FLI_WANT_NOTHING) {
        int code = 0;
        enum fli_call_want asked = r.call_state.order.want;
        enum fli_call_event event = obey(&r, &code);
        fli_call_state_feed(&r.call_state, fli_clock_ms(), event, code);
        leave_behind(&r, event);
        tell_trouble(&r, asked, event);
    }
    fli_pace_learn(&k->pace, &r.call_state);
    fli_attempts_learn(&k->attempts, &r.call_state, r.attempt, fli_clock_ms());
    if (r.call_state.status != 0) {
        explain(&r, timeout_ms);
    }
    if (r.confirm_reply != NULL) {
        freeReplyObject(r.confirm_reply);
    }
    if (ret_reply != NULL) {
        *ret_reply = r.main_reply;
    } else if (r.main_reply != NULL) {
        freeReplyObject(r.main_reply);
    }
    if (ret_lease_ms != NULL) {
        *ret_lease_ms = r.call_state.lease_until_ms;
    }
    return r.call_state.status;
}

static int code_of(enum fli_call_event event, int code)
{
    switch (event) {
    case FLI_EVENT_NO:
        return FL_ENOTHELD;
    case FLI_EVENT_BUSY:
        return FL_EBUSY;
    case FLI_EVENT_NOLEADER:
        return FL_ENOLEADER;
    default:
        return code != 0 ? code : FL_EPROTO;
    }
}

int fli_caller_ask(struct fli_caller *k, struct fli_link *link, uint32_t node,
                   const struct fli_ask *ask, uint64_t timeout_ms, redisReply **ret_reply)
{
    FLI_ASSERT(node < k->n_nodes);
    redisReply *reply = NULL;
    int code = 0;
    uint64_t until_ms = fli_clock_ms() + (timeout_ms != 0 ? timeout_ms : k->timeout_ms);
    k->error[0] = '\0';
    int rc = ask_on(k, link, &k->nodes[node], ask, until_ms, &reply);
    if (rc != 0) {
        fli_caller_fail(k, rc, "%s: %s", k->nodes[node].text, link->error);
        fli_link_close(link);
        return rc == FL_EIO ? FL_ENOCONN : rc;
    }
    enum fli_call_event event = fli_ask_classify(ask->op, reply, &code);
    if (event == FLI_EVENT_YES) {
        *ret_reply = reply;
        return 0;
    }
    fli_caller_fail(k, 0, "%s answered: %s", k->nodes[node].text,
                    reply->type == REDIS_REPLY_ERROR ? reply->str : "nothing of use");
    freeReplyObject(reply);
    return code_of(event, code);
}

int fli_caller_once(struct fli_caller *k, uint32_t node, enum fli_ask_op op, uint64_t timeout_ms,
                    redisReply **ret_reply)
{
    FLI_ASSERT(node < k->n_nodes);
    struct fli_link link;
    redisReply *reply = NULL;
    fli_link_init(&link);
    uint64_t until_ms = fli_clock_ms() + (timeout_ms != 0 ? timeout_ms : k->timeout_ms);
    int rc = ask_once(k, &link, &k->nodes[node], op, until_ms, &reply);
    k->error[0] = '\0';
    if (rc != 0) {
        fli_caller_fail(k, rc, "%s: %s", k->nodes[node].text, link.error);
    }
    fli_link_close(&link);
    if (rc != 0) {
        return rc == FL_EIO ? FL_ENOCONN : rc;
    }
    int code = 0;
    enum fli_call_event event = fli_ask_classify(op, reply, &code);
    if (event == FLI_EVENT_YES) {
        *ret_reply = reply;
        return 0;
    }
    fli_caller_fail(k, 0, "%s answered: %s", k->nodes[node].text,
                    reply->type == REDIS_REPLY_ERROR ? reply->str : "nothing of use");
    freeReplyObject(reply);
    return code != 0 ? code : FL_EPROTO;
}
