/* caller.c: see caller.h. */
#include "client/caller.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

void fli_caller_fini(struct fli_caller *k)
{
    fli_engine_fini(&k->engine);
}

int fli_caller_fail(struct fli_caller *k, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(k->error, sizeof k->error, fmt, args);
    va_end(args);
    return code;
}

int fli_caller_check_timeout(struct fli_caller *k, uint64_t timeout_ms)
{
    if (timeout_ms > FL_TIMEOUT_MAX_MS) {
        return fli_caller_fail(k, FL_EINVAL, "a timeout is at most %llu ms",
                               (unsigned long long)FL_TIMEOUT_MAX_MS);
    }
    return 0;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Every node with its last error, as far as there is room. */
static void append_troubles(struct fli_caller *k)
{
    size_t len = strlen(k->error);
    const char *before = ": ";
    for (uint32_t i = 0; i <= k->engine.n_nodes && len < sizeof k->error; i++) {
        if (k->trouble[i][0] != '\0') {
            int n = snprintf(k->error + len, sizeof k->error - len, "%s%s: %s", before,
                             k->engine.nodes[i].place.node.text, k->trouble[i]);
            len += (size_t)n;
            before = "; ";
        }
    }
}

static void explain(struct fli_caller *k, const struct fli_call *call, int status,
                    uint64_t timeout_ms)
{
    unsigned long long ms = timeout_ms;
    switch (status) {
    case FL_ENOTHELD:
        fli_caller_fail(k, 0, "%s", call->no);
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
    default: /* what the server said explains it best */
        fli_caller_fail(k, 0, "%s", fl_strerror(status));
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
static void on_event(void *arg, enum fli_call_want asked, enum fli_call_event event, bool over)
{
    struct fli_caller *k = arg;
    bool useful =
        event == FLI_EVENT_SERVES || (asked == FLI_WANT_PROBE && event == FLI_EVENT_ALIVE);
    if (k->on_trouble == NULL || over) {
        return;
    }
    if (useful) {
        k->without = false;
        k->on_trouble(k->trouble_arg, 0, "");
        return;
    }
    if (!is_trouble(event)) {
        return;
    }
    uint64_t now_ms = fli_clock_ms();
    k->without_ms = k->without ? k->without_ms : now_ms;
    k->without = true;
    fli_caller_fail(k, 0, "no node takes the request");
    append_troubles(k);
    k->on_trouble(k->trouble_arg, now_ms - k->without_ms, k->error);
    k->error[0] = '\0';
}

static void on_node_trouble(void *arg, uint32_t node, const char *text)
{
    struct fli_caller *k = arg;
    snprintf(k->trouble[node], FLI_TROUBLE_SIZE, "%s", text);
}

int fli_caller_init(struct fli_caller *k, const char *nodes)
{
    memset(k, 0, sizeof *k);
    k->stop_fd = -1;
    int rc = fli_engine_init(&k->engine, nodes, true);
    k->engine.watcher = (struct fli_engine_watcher){on_node_trouble, on_event, k};
    return rc;
}

/* How a call ended, as the engine reports it. */
struct outcome {
    bool over;
    struct fli_ended ended;
};

static void on_ended(void *arg, struct fli_ended *ended)
{
    struct outcome *o = arg;
    o->over = true;
    o->ended = *ended;
    ended->reply = NULL;
}

/* A server that takes the request and says nothing makes no event of its own. */
static void tell_of_silence(struct fli_caller *k)
{
    fli_caller_fail(k, 0, k->without ? "no node takes the request" : "no answer yet");
    append_troubles(k);
    k->on_trouble(k->trouble_arg, FLI_SILENCE_MS, k->error);
    k->error[0] = '\0';
}

/* silent_ms: when to tell that nothing has been heard; 0: not. Returns when to tell it now. */
static uint64_t wait_for_events(struct fli_caller *k, uint64_t silent_ms)
{
    struct pollfd p[] = {{.fd = k->engine.epoll_fd, .events = POLLIN},
                         {.fd = k->stop_fd, .events = POLLIN}};
    uint64_t now_ms = fli_clock_ms();
    if (silent_ms != 0 && now_ms >= silent_ms) {
        tell_of_silence(k);
        silent_ms = 0;
    }
    (void)poll(p, 2, silent_ms == 0 ? -1 : (int)(silent_ms - now_ms));
    return silent_ms;
}

static bool is_stopped(const struct fli_caller *k)
{
    struct pollfd p = {.fd = k->stop_fd, .events = POLLIN};
    return k->stop_fd >= 0 && poll(&p, 1, 0) == 1;
}

int fli_caller_own(struct fli_caller *k)
{
    int rc = fli_engine_own(&k->engine);
    return rc == 0 ? 0
                   : fli_caller_fail(k, rc,
                                     "this process was forked, and has no descriptors left for "
                                     "connections of its own");
}

/* Waits until the call has ended. False: it was interrupted. */
static bool wait_for_end(struct fli_caller *k, const struct outcome *o, struct fli_engine_call *op,
                         bool tells)
{
    uint64_t silent_ms = tells ? fli_clock_ms() + FLI_SILENCE_MS : 0;
    for (fli_engine_process(&k->engine); !o->over; fli_engine_process(&k->engine)) {
        if (is_stopped(k)) {
            fli_engine_cancel(op);
            fli_caller_fail(k, 0, "it was interrupted");
            return false;
        }
        silent_ms = wait_for_events(k, silent_ms);
    }
    return true;
}

static int start(struct fli_caller *k, const struct fli_ask *ask,
                 const struct fli_call_times *times, struct outcome *o,
                 struct fli_engine_call **ret)
{
    memset(k->trouble, 0, sizeof k->trouble);
    k->error[0] = '\0';
    k->without = false;
    int rc = fli_caller_own(k);
    if (rc != 0) {
        return rc;
    }
    rc = fli_engine_start(&k->engine, ask, times, on_ended, o, ret);
    return rc == 0 ? 0 : fli_caller_fail(k, rc, "%s", fl_strerror(rc));
}

int fli_caller_run(struct fli_caller *k, const struct fli_call *call, redisReply **ret_reply,
                   uint64_t *ret_lease_ms)
{
    struct outcome o = {.over = false};
    struct fli_engine_call *op;
    uint64_t timeout_ms = call->timeout_ms != 0 ? call->timeout_ms : k->engine.timeout_ms;
    const struct fli_call_times times = {.deadline_ms = fli_clock_ms() + call->wait_ms + timeout_ms,
                                         .wait_ms = call->wait_ms};
    int rc = start(k, &call->ask, &times, &o, &op);
    if (rc != 0) {
        return rc;
    }
    if (!wait_for_end(k, &o, op, k->on_trouble != NULL && call->wait_ms == 0)) {
        return FL_EUNCERTAIN;
    }
    if (o.ended.status != 0) {
        explain(k, call, o.ended.status, timeout_ms);
    }
    if (ret_reply != NULL) {
        *ret_reply = o.ended.reply;
    } else {
        freeReplyObject(o.ended.reply);
    }
    if (ret_lease_ms != NULL) {
        *ret_lease_ms = o.ended.lease_until_ms;
    }
    return o.ended.status;
}

int fli_caller_once(struct fli_caller *k, uint32_t node, const struct fli_ask *ask,
                    uint64_t timeout_ms, redisReply **ret_reply)
{
    struct outcome o = {.over = false};
    struct fli_engine_call *op;
    uint64_t most_ms = timeout_ms != 0 ? timeout_ms : k->engine.timeout_ms;
    const struct fli_call_times times = {
        .deadline_ms = fli_clock_ms() + most_ms, .once = true, .node = node};
    FLI_ASSERT(node < k->engine.n_nodes);
    int rc = start(k, ask, &times, &o, &op);
    if (rc != 0) {
        return rc;
    }
    if (!wait_for_end(k, &o, op, false)) {
        return FL_EUNCERTAIN;
    }
    if (o.ended.status == 0) {
        *ret_reply = o.ended.reply;
        return 0;
    }
    freeReplyObject(o.ended.reply);
    const char *name = k->engine.nodes[node].place.node.text;
    const char *text = k->trouble[node][0] != '\0' ? k->trouble[node] : fl_strerror(o.ended.status);
    return fli_caller_fail(k, o.ended.status, "%s: %s", name, text);
}
