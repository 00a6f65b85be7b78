/* flow.c: see flow.h. */
#include "client/flow.h"

#define PAUSE_FIRST_MS UINT64_C(10)
#define PAUSE_MAX_MS UINT64_C(500)
#define ATTEMPT_MAX_MS UINT64_C(30000)
#define PROBE_EVERY_MS UINT64_C(2000)
/* A node that has known no leader for so many probes is cut off from the others and would never
 * hear of the grant. One is not enough: that may be an election, and whoever leaves then may lose
 * his place. */
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

/* SplitMix64 (Steele, Lea and Flood 2014): enough for jitter, and the same everywhere. */
static uint64_t random_below(struct fli_flow *f, uint64_t n)
{
    FLI_ASSERT(n > 0);
    f->rng += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = f->rng;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % n;
}

uint64_t fli_lease_until(uint64_t sent_ms, uint64_t ttl_ms)
{
    uint64_t margin_ms = ttl_ms / 100 + 2;
    FLI_ASSERT(margin_ms < ttl_ms);
    return sent_ms + ttl_ms - margin_ms;
}

uint64_t fli_flow_wait_left(const struct fli_flow *f, uint64_t now_ms)
{
    return f->wait_end_ms > now_ms ? f->wait_end_ms - now_ms : 0;
}

static void finish(struct fli_flow *f, int status)
{
    f->order.want = FLI_WANT_NOTHING;
    f->status = status;
}

/* The code for a call that ran out of time. What may have been done outranks every refusal. */
static int code_of_troubles(const struct fli_flow *f)
{
    if (f->unknown && f->config.repeat != FLI_REPEAT_READ) {
        return FL_EUNCERTAIN;
    }
    if ((f->troubles & TROUBLE_NOLEADER) != 0) {
        return FL_ENOLEADER;
    }
    if ((f->troubles & TROUBLE_BUSY) != 0) {
        return FL_EBUSY;
    }
    if ((f->troubles & TROUBLE_SILENT) != 0) {
        return FL_ETIMEOUT;
    }
    return (f->troubles & TROUBLE_BROKEN) != 0 ? FL_EPROTO : FL_ENOCONN;
}

static void time_over(struct fli_flow *f, uint64_t now_ms)
{
    if (f->order.request == FLI_REQUEST_MAIN) {
        finish(f, code_of_troubles(f));
    } else {
        finish(f, f->lease_until_ms > now_ms ? 0 : FL_EUNCERTAIN);
    }
}

static void want_connect(struct fli_flow *f, uint64_t now_ms, uint32_t node)
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

static void want_send(struct fli_flow *f, uint64_t now_ms)
{
    f->order.want = FLI_WANT_SEND;
    f->order.until_ms = least(f->config.deadline_ms, now_ms + f->attempt_ms);
    f->sent_ms = now_ms;
}

static bool is_waiting(const struct fli_flow *f)
{
    return f->order.request == FLI_REQUEST_MAIN && f->wait_end_ms > f->sent_ms;
}

/* A held answer is looked after by probes, so that a node that hangs is noticed long before the
 * wait is over. */
static void want_answer(struct fli_flow *f, uint64_t now_ms)
{
    f->order.want = FLI_WANT_ANSWER;
    f->order.until_ms = is_waiting(f) ? least(f->answer_ms, now_ms + PROBE_EVERY_MS) : f->answer_ms;
}

static void sent(struct fli_flow *f, uint64_t now_ms)
{
    uint64_t overdue_ms = now_ms + f->attempt_ms;
    f->leaderless = 0;
    if (is_waiting(f)) {
        overdue_ms = f->wait_end_ms + f->attempt_ms;
    } else if (f->config.repeat == FLI_REPEAT_NEVER) {
        overdue_ms = f->config.deadline_ms;
    }
    f->answer_ms = least(overdue_ms, f->config.deadline_ms);
    want_answer(f, now_ms);
}

static void pause_then_next(struct fli_flow *f, uint64_t now_ms)
{
    uint64_t most_ms = PAUSE_FIRST_MS << (f->rounds < 6 ? f->rounds : 6);
    uint64_t pause_ms = 1 + random_below(f, least(most_ms, PAUSE_MAX_MS));
    f->rounds++;
    f->failures = 0;
    f->attempt_ms = least(f->attempt_ms * 2, ATTEMPT_MAX_MS);
    if (now_ms + pause_ms >= f->config.deadline_ms) {
        time_over(f, now_ms);
        return;
    }
    f->order.want = FLI_WANT_SLEEP;
    f->order.until_ms = now_ms + pause_ms;
}

static uint32_t next_node(struct fli_flow *f)
{
    uint32_t failed = f->order.node;
    uint32_t hint = f->hint;
    f->hint = FLI_FLOW_NOBODY;
    if (hint != FLI_FLOW_NOBODY && hint != failed) {
        return hint;
    }
    if (failed >= f->config.nodes) {
        return (uint32_t)random_below(f, f->config.nodes);
    }
    return (failed + 1) % f->config.nodes;
}

static void try_next(struct fli_flow *f, uint64_t now_ms)
{
    f->failures++;
    if (f->failures >= f->config.nodes) {
        pause_then_next(f, now_ms);
    } else {
        want_connect(f, now_ms, next_node(f));
    }
}

/* The request has left and nobody knows what became of it. */
static void outcome_unknown(struct fli_flow *f, uint64_t now_ms)
{
    if (f->order.request == FLI_REQUEST_MAIN) {
        f->unknown = true;
        if (f->config.repeat == FLI_REPEAT_NEVER) {
            finish(f, FL_EUNCERTAIN);
            return;
        }
    }
    try_next(f, now_ms);
}

static void answered_yes(struct fli_flow *f, uint64_t now_ms)
{
    uint64_t ttl_ms = f->config.ttl_ms;
    if (ttl_ms == 0) {
        finish(f, 0);
        return;
    }
    f->lease_until_ms = fli_lease_until(f->sent_ms, ttl_ms);
    bool fresh = f->lease_until_ms >= now_ms + ttl_ms / 2;
    if (!fresh && f->config.confirm && f->order.request == FLI_REQUEST_MAIN) {
        /* The lease began at the grant, we can only count from the sending, and the answer was held
         * back. A renewal starts the count anew. */
        f->order.request = FLI_REQUEST_CONFIRM;
        want_send(f, now_ms);
        return;
    }
    finish(f, f->lease_until_ms > now_ms ? 0 : FL_EUNCERTAIN);
}

static void answered_no(struct fli_flow *f, uint64_t now_ms)
{
    if (f->order.request == FLI_REQUEST_CONFIRM) {
        /* Granted and lost again before we heard of it: that grant is over, ask for another. */
        f->order.request = FLI_REQUEST_MAIN;
        f->unknown = false;
        try_next(f, now_ms);
        return;
    }
    finish(f, f->unknown && f->config.no_is_doubtful ? FL_EUNCERTAIN : FL_ENOTHELD);
}

/* A refusal speaks of the try that was refused, not of an earlier one whose outcome is unknown, and
 * the refusal of a confirmation does not take the grant back. */
static void refused(struct fli_flow *f, uint64_t now_ms, int code)
{
    if (f->order.request == FLI_REQUEST_CONFIRM) {
        time_over(f, now_ms);
    } else if (f->unknown && f->config.repeat != FLI_REPEAT_READ) {
        finish(f, FL_EUNCERTAIN);
    } else {
        finish(f, code);
    }
}

static void feed_probe(struct fli_flow *f, uint64_t now_ms, enum fli_flow_event event)
{
    FLI_ASSERT(event == FLI_EVENT_ALIVE || event == FLI_EVENT_LEADERLESS ||
               event == FLI_EVENT_DEAD);
    f->leaderless = event == FLI_EVENT_LEADERLESS ? f->leaderless + 1 : 0;
    if (event == FLI_EVENT_DEAD || f->leaderless == LEADERLESS_MAX) {
        f->leaderless = 0;
        outcome_unknown(f, now_ms);
        return;
    }
    want_answer(f, now_ms);
}

static void feed_answer(struct fli_flow *f, uint64_t now_ms, enum fli_flow_event event, int code)
{
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
        f->troubles |= TROUBLE_SILENT;
        if (is_waiting(f) && now_ms < f->answer_ms) {
            f->order.want = FLI_WANT_PROBE;
            f->order.until_ms = least(f->answer_ms, now_ms + f->attempt_ms);
            return;
        }
        outcome_unknown(f, now_ms);
        return;
    case FLI_EVENT_BROKEN:
        f->troubles |= TROUBLE_BROKEN;
        outcome_unknown(f, now_ms);
        return;
    default:
        FLI_ASSERT(event == FLI_EVENT_LOST || event == FLI_EVENT_UNCERTAIN);
        outcome_unknown(f, now_ms);
        return;
    }
}

void fli_flow_init(struct fli_flow *f, const struct fli_flow_config *config)
{
    FLI_ASSERT(config->nodes >= 1);
    FLI_ASSERT(config->attempt_ms >= 1);
    FLI_ASSERT(!config->confirm || config->ttl_ms != 0);
    FLI_ASSERT(config->wait_ms == 0 || config->repeat == FLI_REPEAT_WRITE);
    *f = (struct fli_flow){.config = *config};
    f->hint = FLI_FLOW_NOBODY;
    f->rng = config->seed;
    f->attempt_ms = config->attempt_ms;
    f->wait_end_ms = config->wait_ms == 0 ? 0 : config->now_ms + config->wait_ms;
    f->order.request = FLI_REQUEST_MAIN;
    want_connect(f, config->now_ms, config->start);
}

void fli_flow_hint(struct fli_flow *f, uint32_t node)
{
    FLI_ASSERT(node <= f->config.nodes);
    f->hint = node;
}

void fli_flow_feed(struct fli_flow *f, uint64_t now_ms, enum fli_flow_event event, int code)
{
    FLI_ASSERT(event == FLI_EVENT_REFUSED || code == 0);
    switch (f->order.want) {
    case FLI_WANT_CONNECT:
        if (event == FLI_EVENT_CONNECTED) {
            want_send(f, now_ms);
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
        feed_probe(f, now_ms, event);
        return;
    default:
        FLI_ASSERT(f->order.want == FLI_WANT_SLEEP);
        FLI_ASSERT(event == FLI_EVENT_WOKE);
        want_connect(f, now_ms, next_node(f));
        return;
    }
}
