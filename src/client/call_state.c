/* call_state.c: see call_state.h. */
#include "client/call_state.h"

#include "base/splitmix.h"

#define PAUSE_FIRST_MS UINT64_C(10)
#define PAUSE_MAX_MS UINT64_C(500)
#define ATTEMPT_MAX_MS UINT64_C(30000)
#define PROBE_EVERY_MS UINT64_C(2000)
/* An answer is late after four times the usual time, and never before this: a busy node of a local
 * network, or one with a busy disk, has answered by then. */
#define ASK_LEAST_MS UINT64_C(100)
#define ASK_USUAL_TIMES 4u
/* After so many probes that found no leader, the node is taken for cut off: it would never hear of
 * the grant. One such probe is not enough: it may be an election, and a client that leaves then may
 * lose its place in the queue. */
#define LEADERLESS_MAX 2u

#define TROUBLE_UNREACHABLE 1u
#define TROUBLE_NOLEADER 2u
#define TROUBLE_BUSY 4u
#define TROUBLE_SILENT 8u
#define TROUBLE_BROKEN 16u

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t random_below(struct fli_call_state *f, uint64_t n)
{
    FLI_ASSERT(n > 0);
    return fli_splitmix(&f->rng) % n;
}

uint64_t fli_lease_until(uint64_t sent_ms, uint64_t ttl_ms)
{
    uint64_t margin_ms = ttl_ms / 100 + 2;
    FLI_ASSERT(margin_ms < ttl_ms);
    return sent_ms + ttl_ms - margin_ms;
}

/* An earlier attempt, of this call or of one that was given up, may have taken a place in the
 * queue; one more wait, of 1 ms, ends that. A request without a wait leaves it there. */
uint64_t fli_call_state_wait_left(const struct fli_call_state *f, uint64_t now_ms)
{
    uint64_t least_ms = f->wait_end_ms != 0 ? 1 : 0;
    return f->wait_end_ms > now_ms ? f->wait_end_ms - now_ms : least_ms;
}

static void finish(struct fli_call_state *f, int status)
{
    f->order.want = FLI_WANT_NOTHING;
    f->status = status;
}

/* The code for a call that ran out of time. If the request may have been done, that outranks every
 * refusal. */
static int code_of_troubles(const struct fli_call_state *f)
{
    if (f->unknown && f->config.repeat != FLI_REPEAT_READ) {
        return FL_EUNCERTAIN;
    }
    if ((f->troubles & TROUBLE_BUSY) != 0) { /* a follower that was asked in between knew less */
        return FL_EBUSY;
    }
    if ((f->troubles & TROUBLE_NOLEADER) != 0) {
        return FL_ENOLEADER;
    }
    if ((f->troubles & TROUBLE_SILENT) != 0) {
        return FL_ETIMEOUT;
    }
    return (f->troubles & TROUBLE_BROKEN) != 0 ? FL_EPROTO : FL_ENOCONN;
}

static void time_over(struct fli_call_state *f, uint64_t now_ms)
{
    if (f->order.request == FLI_REQUEST_MAIN) {
        finish(f, code_of_troubles(f));
    } else {
        finish(f, f->lease_until_ms > now_ms ? 0 : FL_EUNCERTAIN);
    }
}

static void want_connect(struct fli_call_state *f, uint64_t now_ms, uint32_t node)
{
    if (now_ms >= f->config.deadline_ms) {
        time_over(f, now_ms);
        return;
    }
    FLI_ASSERT(node <= f->config.nodes);
    f->order.want = FLI_WANT_CONNECT;
    f->order.node = node;
    f->order.until_ms = least(f->config.deadline_ms, now_ms + f->attempt_ms);
}

static void want_send(struct fli_call_state *f, uint64_t now_ms)
{
    f->order.want = FLI_WANT_SEND;
    f->order.until_ms = least(f->config.deadline_ms, now_ms + f->attempt_ms);
    f->sent_ms = now_ms;
}

static bool is_waiting(const struct fli_call_state *f)
{
    return f->order.request == FLI_REQUEST_MAIN && f->wait_end_ms > f->sent_ms;
}

/* How many other nodes can be asked about the one whose answer is late. */
static uint32_t others(const struct fli_call_state *f)
{
    return f->order.node < f->config.nodes ? f->config.nodes - 1 : f->config.nodes;
}

/* Whether another node may be asked; only for requests whose answer is due at once. */
static bool may_ask(const struct fli_call_state *f)
{
    return f->ask_ms != 0 && !f->config.once && f->config.repeat != FLI_REPEAT_NEVER &&
           others(f) > 0;
}

/* While the server holds its answer back, probes check the node, so that a hang is noticed long
 * before the wait is over. */
static void want_answer(struct fli_call_state *f, uint64_t now_ms)
{
    f->order.want = FLI_WANT_ANSWER;
    f->order.until_ms = f->answer_ms;
    if (is_waiting(f)) {
        f->order.until_ms = least(f->answer_ms, now_ms + PROBE_EVERY_MS);
    } else if (may_ask(f)) {
        f->order.until_ms = least(f->answer_ms, f->ask_at_ms);
    }
}

static void want_ask(struct fli_call_state *f, uint64_t now_ms, uint32_t other)
{
    FLI_ASSERT(other <= f->config.nodes && other != f->order.node);
    f->order.want = FLI_WANT_ASK_OTHER;
    f->order.other = other;
    f->order.until_ms = least(f->answer_ms, now_ms + f->ask_ms);
}

/* The next node in the circle, never `never`. A node that gave no answer is taken only if there is
 * no other, and `node` itself only if there is not even that. */
static uint32_t node_after(const struct fli_call_state *f, uint32_t node, uint32_t never)
{
    uint32_t nodes = f->config.nodes;
    uint32_t poor = FLI_CALL_NOBODY;
    for (uint32_t i = 1; i <= nodes; i++) {
        uint32_t next = node < nodes ? (node + i) % nodes : i - 1;
        if (next == never) {
            continue;
        }
        if (next != f->silent && next != node) {
            return next;
        }
        poor = poor == FLI_CALL_NOBODY ? next : poor;
    }
    FLI_ASSERT(poor != FLI_CALL_NOBODY);
    return poor;
}

/* The first node to ask: the leader, when it is known; else a random one, so that the clients of a
 * stopped node do not all ask the same node. */
static uint32_t first_other(struct fli_call_state *f)
{
    uint32_t node = f->order.node;
    uint32_t nodes = f->config.nodes;
    if (f->hint != FLI_CALL_NOBODY && f->hint != node) {
        return f->hint;
    }
    uint32_t n = (uint32_t)random_below(f, others(f));
    return node_after(f, (node < nodes ? node + n : n + nodes - 1) % nodes, node);
}

static void sent(struct fli_call_state *f, uint64_t now_ms)
{
    uint64_t overdue_ms = now_ms + f->attempt_ms;
    f->leaderless = 0;
    if (is_waiting(f)) {
        overdue_ms = f->wait_end_ms + f->attempt_ms;
    } else if (f->config.repeat == FLI_REPEAT_NEVER) {
        overdue_ms = f->config.deadline_ms;
    }
    f->answer_ms = least(overdue_ms, f->config.deadline_ms);
    f->ask_at_ms = now_ms + f->ask_ms;
    f->asked = 0;
    want_answer(f, now_ms);
}

static void pause_then_next(struct fli_call_state *f, uint64_t now_ms)
{
    if (f->config.once) {
        time_over(f, now_ms);
        return;
    }
    uint64_t most_ms = PAUSE_FIRST_MS << (f->rounds < 6 ? f->rounds : 6);
    uint64_t pause_ms = 1 + random_below(f, least(most_ms, PAUSE_MAX_MS));
    f->rounds++;
    f->failures = 0;
    f->stayed = false;
    f->silent = FLI_CALL_NOBODY;
    f->attempt_ms = least(f->attempt_ms * 2, ATTEMPT_MAX_MS);
    if (now_ms + pause_ms >= f->config.deadline_ms) {
        time_over(f, now_ms);
        return;
    }
    f->order.want = FLI_WANT_SLEEP;
    f->order.until_ms = now_ms + pause_ms;
}

static uint32_t next_node(struct fli_call_state *f)
{
    uint32_t failed = f->order.node;
    uint32_t hint = f->hint;
    f->hint = FLI_CALL_NOBODY;
    if (hint != FLI_CALL_NOBODY && hint != failed) {
        return hint;
    }
    if (failed >= f->config.nodes) {
        failed = (uint32_t)random_below(f, f->config.nodes);
    }
    return node_after(f, failed, FLI_CALL_NOBODY);
}

static void try_next(struct fli_call_state *f, uint64_t now_ms)
{
    f->failures++;
    if (f->config.once || f->failures >= f->config.nodes) {
        pause_then_next(f, now_ms);
    } else {
        want_connect(f, now_ms, next_node(f));
    }
}

/* The request has left, and its outcome is unknown. False: the call has ended with that. */
static bool note_unknown(struct fli_call_state *f)
{
    if (f->order.request == FLI_REQUEST_MAIN) {
        f->unknown = true;
        if (f->config.repeat == FLI_REPEAT_NEVER) {
            finish(f, FL_EUNCERTAIN);
            return false;
        }
    }
    return true;
}

static void outcome_unknown(struct fli_call_state *f, uint64_t now_ms)
{
    if (note_unknown(f)) {
        try_next(f, now_ms);
    }
}

static void no_answer_yet(struct fli_call_state *f, uint64_t now_ms)
{
    f->silent = f->order.node;
    outcome_unknown(f, now_ms);
}

/* The node works, and is among the first to know the new leader. */
static void answered_uncertain(struct fli_call_state *f, uint64_t now_ms)
{
    if (!note_unknown(f)) {
        return;
    }
    if (f->stayed || f->config.once) {
        try_next(f, now_ms);
        return;
    }
    f->stayed = true;
    want_connect(f, now_ms, f->order.node);
}

static void answered_yes(struct fli_call_state *f, uint64_t now_ms)
{
    uint64_t ttl_ms = f->config.ttl_ms;
    if (ttl_ms == 0) {
        finish(f, 0);
        return;
    }
    f->lease_until_ms = fli_lease_until(f->sent_ms, ttl_ms);
    bool fresh = f->lease_until_ms >= now_ms + ttl_ms / 2;
    if (!fresh && f->config.confirm && f->order.request == FLI_REQUEST_MAIN) {
        /* The lease began at the grant, but this client can only count from the moment of sending,
         * and the answer was held back. A renewal starts the count anew. */
        f->order.request = FLI_REQUEST_CONFIRM;
        want_send(f, now_ms);
        return;
    }
    finish(f, f->lease_until_ms > now_ms ? 0 : FL_EUNCERTAIN);
}

static void answered_no(struct fli_call_state *f, uint64_t now_ms)
{
    if (f->order.request == FLI_REQUEST_CONFIRM) {
        /* The lock was granted and lost again before the answer came: ask for another grant. */
        f->order.request = FLI_REQUEST_MAIN;
        f->unknown = false;
        try_next(f, now_ms);
        return;
    }
    finish(f, f->unknown && f->config.no_is_uncertain ? FL_EUNCERTAIN : FL_ENOTHELD);
}

/* The cluster has decided about this very attempt, so that no earlier one has an effect any more;
 * or a right is missing, which no other attempt brings. Other refusals may come from a node by
 * itself, for instance when it takes no more connections. */
static bool is_final(int code)
{
    return code == FL_ENOSESSION || code == FL_EDEADLOCK || code == FL_EMISMATCH ||
           code == FL_EDENIED;
}

/* A refusal is about the attempt that was refused, not about an earlier one whose outcome is
 * unknown. And the refusal of a confirmation does not take the grant back. */
static void refused(struct fli_call_state *f, uint64_t now_ms, int code)
{
    if (f->order.request == FLI_REQUEST_CONFIRM) {
        time_over(f, now_ms);
    } else if (f->config.insists && !is_final(code)) {
        f->troubles |= TROUBLE_BUSY;
        pause_then_next(f, now_ms);
    } else if (f->unknown && f->config.repeat != FLI_REPEAT_READ) {
        finish(f, FL_EUNCERTAIN);
    } else {
        finish(f, code);
    }
}

static void feed_answer(struct fli_call_state *f, uint64_t now_ms, enum fli_call_event event,
                        int code);

static void feed_probe(struct fli_call_state *f, uint64_t now_ms, enum fli_call_event event,
                       int code)
{
    if (event != FLI_EVENT_ALIVE && event != FLI_EVENT_LEADERLESS && event != FLI_EVENT_DEAD) {
        feed_answer(f, now_ms, event, code); /* it has come meanwhile, and says more */
        return;
    }
    f->leaderless = event == FLI_EVENT_LEADERLESS ? f->leaderless + 1 : 0;
    if (event == FLI_EVENT_DEAD || f->leaderless == LEADERLESS_MAX) {
        f->leaderless = 0;
        no_answer_yet(f, now_ms);
        return;
    }
    want_answer(f, now_ms);
}

static void silent(struct fli_call_state *f, uint64_t now_ms)
{
    f->troubles |= TROUBLE_SILENT;
    if (now_ms >= f->answer_ms) {
        no_answer_yet(f, now_ms);
    } else if (is_waiting(f)) {
        f->order.want = FLI_WANT_PROBE;
        f->order.until_ms = least(f->answer_ms, now_ms + f->attempt_ms);
    } else if (may_ask(f)) {
        want_ask(f, now_ms, first_other(f));
    } else {
        no_answer_yet(f, now_ms);
    }
}

static void note_took(struct fli_call_state *f, uint64_t now_ms)
{
    f->answered = !is_waiting(f);
    f->took_ms = now_ms - f->sent_ms;
}

static void feed_answer(struct fli_call_state *f, uint64_t now_ms, enum fli_call_event event,
                        int code)
{
    if (event == FLI_EVENT_YES || event == FLI_EVENT_NO || event == FLI_EVENT_REFUSED) {
        note_took(f, now_ms);
    }
    switch (event) {
    case FLI_EVENT_YES:
        answered_yes(f, now_ms);
        return;
    case FLI_EVENT_NO:
        answered_no(f, now_ms);
        return;
    case FLI_EVENT_REFUSED:
        FLI_ASSERT(code < 0);
        refused(f, now_ms, code);
        return;
    case FLI_EVENT_NOLEADER:
        f->troubles |= TROUBLE_NOLEADER;
        try_next(f, now_ms);
        return;
    case FLI_EVENT_BUSY:
        f->troubles |= TROUBLE_BUSY;
        pause_then_next(f, now_ms);
        return;
    case FLI_EVENT_SILENT:
        silent(f, now_ms);
        return;
    case FLI_EVENT_BROKEN:
        f->troubles |= TROUBLE_BROKEN;
        outcome_unknown(f, now_ms);
        return;
    case FLI_EVENT_UNCERTAIN:
        answered_uncertain(f, now_ms);
        return;
    default:
        FLI_ASSERT(event == FLI_EVENT_LOST);
        outcome_unknown(f, now_ms);
        return;
    }
}

/* The other node serves. Whether this one has done the request, or will when it goes on, is
 * unknown. Each change doubles the patience, so that a cluster which is slow everywhere gets no
 * extra load. */
static void change_over(struct fli_call_state *f, uint64_t now_ms)
{
    f->unknown = f->unknown || f->order.request == FLI_REQUEST_MAIN;
    f->silent = f->order.node;
    f->ask_ms = least(f->ask_ms * 2, ATTEMPT_MAX_MS);
    want_connect(f, now_ms, f->order.other);
}

static void ask_next(struct fli_call_state *f, uint64_t now_ms)
{
    f->asked++;
    if (f->asked < others(f)) {
        want_ask(f, now_ms, node_after(f, f->order.other, f->order.node));
        return;
    }
    f->asked = 0;
    f->ask_ms = least(f->ask_ms * 2, ATTEMPT_MAX_MS);
    f->ask_at_ms = now_ms + f->ask_ms;
    want_answer(f, now_ms);
}

static void feed_ask(struct fli_call_state *f, uint64_t now_ms, enum fli_call_event event, int code)
{
    switch (event) {
    case FLI_EVENT_SERVES:
        change_over(f, now_ms);
        return;
    case FLI_EVENT_ALIVE: /* if this node's time runs out, ask that one next */
        f->order.until_ms = f->answer_ms;
        f->hint = f->order.other;
        return;
    case FLI_EVENT_SERVES_NOT:
        ask_next(f, now_ms);
        return;
    case FLI_EVENT_SILENT:
        if (now_ms < f->answer_ms) {
            ask_next(f, now_ms);
            return;
        }
        break;
    default:
        break;
    }
    feed_answer(f, now_ms, event, code);
}

void fli_pace_learn(struct fli_pace *p, const struct fli_call_state *f)
{
    if (f->answered) {
        p->eighths_ms = p->eighths_ms - p->eighths_ms / 8 + f->took_ms;
    }
}

uint64_t fli_pace_ask_ms(const struct fli_pace *p)
{
    uint64_t late_ms = ASK_USUAL_TIMES * p->eighths_ms / 8;
    return late_ms > ASK_LEAST_MS ? late_ms : ASK_LEAST_MS;
}

void fli_call_state_init(struct fli_call_state *f, const struct fli_call_config *config)
{
    FLI_ASSERT(config->nodes >= 1);
    FLI_ASSERT(config->attempt_ms >= 1);
    FLI_ASSERT(!config->confirm || config->ttl_ms != 0);
    FLI_ASSERT(config->wait_ms == 0 || config->repeat == FLI_REPEAT_WRITE);
    *f = (struct fli_call_state){.config = *config};
    f->hint = FLI_CALL_NOBODY;
    f->silent = FLI_CALL_NOBODY;
    f->rng = config->seed;
    f->attempt_ms = config->attempt_ms;
    f->ask_ms = config->ask_ms;
    f->wait_end_ms = config->wait_ms == 0 ? 0 : config->now_ms + config->wait_ms;
    f->order.request = FLI_REQUEST_MAIN;
    want_connect(f, config->now_ms, config->start);
}

bool fli_call_state_is_out(const struct fli_call_state *f)
{
    enum fli_call_want want = f->order.want;
    bool leaves = want == FLI_WANT_SEND; /* its bytes may leave behind those of other calls */
    bool sent = want == FLI_WANT_ANSWER || want == FLI_WANT_PROBE || want == FLI_WANT_ASK_OTHER;
    return leaves || sent || f->unknown || f->order.request == FLI_REQUEST_CONFIRM;
}

void fli_call_state_hint(struct fli_call_state *f, uint32_t node)
{
    FLI_ASSERT(node <= f->config.nodes);
    f->hint = node;
}

void fli_call_state_feed(struct fli_call_state *f, uint64_t now_ms, enum fli_call_event event,
                         int code)
{
    FLI_ASSERT(event == FLI_EVENT_REFUSED || code == 0);
    switch (f->order.want) {
    case FLI_WANT_CONNECT:
        if (event == FLI_EVENT_CONNECTED) {
            want_send(f, now_ms);
            return;
        }
        if (event == FLI_EVENT_REFUSED) {
            FLI_ASSERT(code < 0);
            refused(f, now_ms, code);
            return;
        }
        FLI_ASSERT(event == FLI_EVENT_UNREACHABLE);
        f->troubles |= TROUBLE_UNREACHABLE;
        try_next(f, now_ms);
        return;
    case FLI_WANT_SEND:
        if (event == FLI_EVENT_SENT) {
            sent(f, now_ms);
            return;
        }
        FLI_ASSERT(event == FLI_EVENT_UNSENT);
        f->troubles |= TROUBLE_UNREACHABLE;
        try_next(f, now_ms);
        return;
    case FLI_WANT_ANSWER:
        feed_answer(f, now_ms, event, code);
        return;
    case FLI_WANT_PROBE:
        feed_probe(f, now_ms, event, code);
        return;
    case FLI_WANT_ASK_OTHER:
        feed_ask(f, now_ms, event, code);
        return;
    default:
        FLI_ASSERT(f->order.want == FLI_WANT_SLEEP);
        FLI_ASSERT(event == FLI_EVENT_WOKE);
        want_connect(f, now_ms, next_node(f));
        return;
    }
}
