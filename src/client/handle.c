/* handle.c: see handle.h. */
#include "client/handle.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/url.h"
#include "fencelock/redlock.h"

/* ---- texts ----------------------------------------------------------------------------------- */

/* Of the last call of this thread: to the lock service, and to a storage. */
static _Thread_local char errors[2][1024];
static _Thread_local struct fl_redlock_report last_report;

static bool is_of_store(const fl_client *c)
{
    return !c->engine.learns_leader && c->engine.backend == NULL;
}

int fli_fail(const fl_client *c, int code, const char *fmt, ...)
{
    bool to_store = c != NULL && is_of_store(c);
    va_list args;
    va_start(args, fmt);
    vsnprintf(errors[to_store], sizeof errors[0], fmt, args);
    va_end(args);
    return code;
}

int fli_failed(const fl_client *c, int code)
{
    const char *text = errors[is_of_store(c)];
    return text[0] != '\0' ? code : fli_fail(c, code, "%s", fl_strerror(code));
}

const char *fli_error(bool is_store)
{
    return errors[is_store];
}

const char *fl_client_error(const fl_client *c)
{
    return fli_error(false);
}

const struct fl_redlock_report *fl_redlock_last(const fl_client *c)
{
    return &last_report;
}

static void log_trouble(struct fl_call *call, const char *text);
static void drop_lines(fl_client *c);

/* ---- making and closing ---------------------------------------------------------------------- */

static void init_mutex(fl_client *c)
{
    bool made =
        pthread_mutex_init(&c->mutex, NULL) == 0 && pthread_cond_init(&c->turned, NULL) == 0;
    if (!made) { /* the C library needs no memory for them */
        fli_fatal("a mutex cannot be made");
    }
}

static void init_lists(fl_client *c)
{
    fli_list_init(&c->locks);
    fli_list_init(&c->watches);
    fli_list_init(&c->sessions);
    fli_list_init(&c->notes);
}

static void client_free(fl_client *c)
{
    (void)pthread_mutex_destroy(&c->mutex);
    (void)pthread_cond_destroy(&c->turned);
    free(c);
}

int fli_check_reserved(const fl_client *c, const uint64_t *reserved, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (reserved[i] != 0) {
            return fli_fail(c, FL_EINVAL,
                            "an option is set that this version of the library does not know");
        }
    }
    return 0;
}

static int make(const char *nodes, const struct fl_client_options *o, enum fli_kind kind,
                fl_client **ret, char why[FLI_WHY_SIZE])
{
    fl_client *c = calloc(1, sizeof *c);
    snprintf(why, FLI_WHY_SIZE, "out of memory");
    if (c == NULL) {
        return FL_ENOMEM;
    }
    bool resolves = !o->own_loop && kind != FLI_OF_REDIS;
    int rc = fli_engine_init(&c->engine, nodes, kind, resolves, o, why);
    if (rc != 0) {
        free(c);
        return rc;
    }
    init_mutex(c);
    init_lists(c);
    c->refs = 1;
    c->own_loop = o->own_loop;
    c->on_log = o->on_log;
    c->log_arg = o->log_arg;
    c->stop_fd = -1;
    c->engine.on_trouble = log_trouble;
    *ret = c;
    return 0;
}

int fli_client_make(const char *nodes, const struct fl_client_options *options, enum fli_kind kind,
                    fl_client **ret)
{
    struct fli_url room;
    struct fl_client_options own = {.timeout_ms = 0};
    char why[FLI_WHY_SIZE] = "no addresses are given";
    own = options == NULL ? own : *options;
    *ret = NULL;
    int rc = nodes == NULL ? FL_EINVAL : 0;
    if (rc == 0 && (rc = fli_check_reserved(NULL, own.reserved, 8)) != 0) {
        snprintf(why, sizeof why, "%.300s", errors[0]);
    }
    if (rc == 0 && kind != FLI_OF_REDIS) { /* their log-in is of another kind */
        rc = fli_url_client(&nodes, &own, &room, why, sizeof why);
    }
    rc = rc != 0 ? rc : make(nodes, &own, kind, ret, why);
    fli_url_forget(&room);
    snprintf(errors[kind == FLI_OF_STORE], sizeof errors[0], "%s", rc == 0 ? "" : why);
    return rc;
}

int fl_open(const char *nodes, const struct fl_client_options *options, fl_client **ret)
{
    return fli_client_make(nodes, options, FLI_OF_CLUSTER, ret);
}

/* In a child: lets go of what is the parent's. If another thread was at work while the process
 * forked, the lists are left as they were, since they may be half changed; a little memory and a
 * descriptor or two stay with the child then. */
static void forget(fl_client *c)
{
    bool whole = pthread_mutex_trylock(&c->mutex) == 0;
    init_mutex(c);
    if (!whole) {
        init_lists(c);
        fli_engine_abandon(&c->engine);
    }
    c->has_thread = false;
    c->driving = false;
    c->inside = 0;
    c->calling = 0;
    c->jeopardies = c->lost = 0;
    fli_calls_forget(c);
    fli_locks_end(c);
    fli_watches_end(c);
    fli_list_init(&c->notes); /* lines of the parent's log are left */
}

static int own(fl_client *c)
{
    if (!fli_engine_is_inherited(&c->engine)) {
        return 0;
    }
    if (c->closed) {
        init_mutex(c);
        c->engine.process = fli_process();
        return 0;
    }
    forget(c);
    return fli_engine_own(&c->engine);
}

int fli_client_enter(fl_client *c)
{
    if (c == NULL) {
        return fli_fail(c, FL_EINVAL, "there is no client: it was not opened");
    }
    if (own(c) != 0) {
        return fli_fail(c, FL_ESYSTEM,
                        "this process was forked, and has no descriptors left for connections of "
                        "its own");
    }
    (void)pthread_mutex_lock(&c->mutex);
    if (c->closing) {
        (void)pthread_mutex_unlock(&c->mutex);
        return fli_fail(c, FL_EINVAL, "the client is closed");
    }
    return 0;
}

void fli_client_leave(fl_client *c)
{
    (void)pthread_mutex_unlock(&c->mutex);
}

void fli_client_unref(fl_client *c)
{
    FLI_ASSERT(c->refs > 0);
    bool last = --c->refs == 0;
    (void)pthread_mutex_unlock(&c->mutex);
    if (last) {
        client_free(c);
    }
}

static void drive(fl_client *c, uint64_t until_ms);

static bool is_busy(const fl_client *c)
{
    return c->engine.backend != NULL && c->engine.backend->is_busy(&c->engine);
}

/* Gives back what calls that have lost their users may have got, for as long as a call may
 * take. */
static void give_back(fl_client *c)
{
    uint64_t until_ms = fli_clock_ms() + c->engine.timeout_ms;
    while (!c->closing && (fli_calls_are_left(c) || is_busy(c)) && fli_clock_ms() < until_ms) {
        if (c->driving) {
            fli_engine_wake_for(&c->engine, until_ms);
            (void)pthread_cond_wait(&c->turned, &c->mutex);
        } else {
            drive(c, until_ms);
        }
    }
}

void fl_close(fl_client *c)
{
    if (c == NULL) {
        return;
    }
    bool ours = own(c) == 0; /* else its descriptors are the parent's, and stay so */
    (void)pthread_mutex_lock(&c->mutex);
    if (ours) {
        give_back(c);
    }
    c->closing = true;
    if (c->has_thread) {
        fli_engine_wake(&c->engine);
        (void)pthread_cond_broadcast(&c->turned);
        (void)pthread_mutex_unlock(&c->mutex);
        (void)pthread_join(c->thread, NULL);
        (void)pthread_mutex_lock(&c->mutex);
    }
    while (ours && (c->inside > 0 || c->calling > 0)) {
        fli_engine_wake(&c->engine);
        (void)pthread_cond_broadcast(&c->turned);
        (void)pthread_cond_wait(&c->turned, &c->mutex);
    }
    fli_calls_forget(c);
    fli_locks_end(c);
    fli_watches_end(c);
    drop_lines(c);
    fli_engine_fini(&c->engine);
    c->closed = true;
    fli_client_unref(c);
}

struct fl_bytes fl_client_owner(const fl_client *c)
{
    (void)!own((fl_client *)(uintptr_t)c); /* without descriptors, no call begins that could use
                                              the parent's owner */
    return fli_owner_bytes(&c->engine.owner);
}

/* ---- driving --------------------------------------------------------------------------------- */

void fli_callback_add(fl_client *c, struct fli_callback *n)
{
    if (!fli_list_linked(&n->in) && !n->under_way) {
        fli_list_push(&c->notes, &n->in);
        fli_engine_wake(&c->engine);
    }
}

bool fli_callback_drop(fl_client *c, struct fli_callback *n)
{
    while (n->under_way) {
        if (pthread_equal(n->thread, pthread_self()) != 0) {
            return false;
        }
        (void)pthread_cond_wait(&c->turned, &c->mutex);
    }
    fli_list_remove(&n->in);
    return true;
}

static void call_back(fl_client *c)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&c->notes)) != NULL) {
        struct fli_callback *n = FLI_CONTAINER_OF(at, struct fli_callback, in);
        n->under_way = true;
        n->thread = pthread_self();
        c->calling++;
        n->deliver(c, n);
        c->calling--;
        (void)pthread_cond_broadcast(&c->turned);
    }
}

/* A line for on_log(), or for on_trouble(). */
struct line {
    struct fli_callback note;
    bool is_trouble;
    uint64_t without_ms;
    char text[];
};

static void deliver_line(fl_client *c, struct fli_callback *n)
{
    struct line *l = FLI_CONTAINER_OF(n, struct line, note);
    fli_trouble_cb on_trouble = c->on_trouble;
    void *trouble_arg = c->trouble_arg;
    (void)pthread_mutex_unlock(&c->mutex);
    if (!l->is_trouble) {
        c->on_log(c->log_arg, l->text);
    } else if (on_trouble != NULL) {
        on_trouble(trouble_arg, l->without_ms, l->text);
    }
    (void)pthread_mutex_lock(&c->mutex);
    free(l);
}

/* NULL: out of memory, and nobody is told. */
static struct line *add_line(fl_client *c, const char *text)
{
    struct line *l = calloc(1, sizeof *l + strlen(text) + 1);
    if (l != NULL) {
        memcpy(l->text, text, strlen(text) + 1);
        l->note.deliver = deliver_line;
        fli_list_init(&l->note.in);
        fli_callback_add(c, &l->note);
    }
    return l;
}

void fli_log(fl_client *c, const char *what, const char *how)
{
    char text[FLI_LOG_LINE_MAX];
    snprintf(text, sizeof text, "%s: %s", what, how);
    if (c->on_log == NULL || strcmp(text, c->logged) == 0) {
        return; /* thousands of calls have the same trouble */
    }
    memcpy(c->logged, text, sizeof text);
    (void)add_line(c, text);
}

static void log_trouble(struct fl_call *call, const char *text)
{
    fl_client *c = FLI_CONTAINER_OF(call->engine, struct fl_client, engine);
    fli_log(c, c->engine.nodes[call->node].place.node.text, text);
}

static void drop_lines(fl_client *c)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&c->notes)) != NULL) { /* nothing else is left there */
        free(FLI_CONTAINER_OF(at, struct line, note.in));
    }
}

/* A turn of the engine, whose descriptor is readable. */
static void turn(fl_client *c)
{
    fli_engine_process(&c->engine);
    c->driving = false;
    (void)pthread_cond_broadcast(&c->turned);
    call_back(c);
}

/* until_ms: ends then at the latest; FLI_DUE_NEVER. */
static void drive(fl_client *c, uint64_t until_ms)
{
    struct pollfd p[] = {{.fd = c->engine.epoll_fd, .events = POLLIN},
                         {.fd = c->stop_fd, .events = POLLIN}};
    uint64_t now_ms = fli_clock_ms();
    int most_ms = until_ms == FLI_DUE_NEVER ? -1 : until_ms > now_ms ? (int)(until_ms - now_ms) : 0;
    c->driving = true;
    (void)pthread_mutex_unlock(&c->mutex);
    (void)poll(p, 2, most_ms);
    (void)pthread_mutex_lock(&c->mutex);
    turn(c);
}

static void *run(void *arg)
{
    fl_client *c = arg;
    (void)pthread_mutex_lock(&c->mutex);
    while (!c->closing) {
        if (c->driving) {
            (void)pthread_cond_wait(&c->turned, &c->mutex);
        } else {
            drive(c, FLI_DUE_NEVER);
        }
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return NULL;
}

static int start_thread(fl_client *c)
{
    c->has_thread = fli_thread_start(&c->thread, run, c) == 0;
    return c->has_thread ? 0 : fli_fail(c, FL_ESYSTEM, "no thread can be started");
}

int fli_client_keep(fl_client *c)
{
    if (c->own_loop || c->has_thread) {
        return 0;
    }
    if (c->engine.resolves && fli_engine_resolve(&c->engine) != 0) {
        c->engine.resolves = true;
        return fli_fail(c, FL_ENOCONN, "none of the nodes' hosts can be found");
    }
    return start_thread(c);
}

int fl_fd(const fl_client *c)
{
    (void)!own((fl_client *)(uintptr_t)c);
    return c->engine.epoll_fd;
}

void fl_process(fl_client *c)
{
    if (fli_client_enter(c) != 0) {
        return;
    }
    if (!c->driving) {
        turn(c);
    }
    fli_client_leave(c);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Every node with its last error, as far as there is room. */
static void append_troubles(const struct fli_wait *w)
{
    const struct fli_engine *e = &w->c->engine;
    char *text = errors[is_of_store(w->c)];
    size_t len = strlen(text);
    const char *before = ": ";
    for (uint32_t i = 0; i <= e->n_nodes && len < sizeof errors[0]; i++) {
        if (w->trouble[i][0] != '\0') {
            int n = snprintf(text + len, sizeof errors[0] - len, "%s%s: %s", before,
                             e->nodes[i].place.node.text, w->trouble[i]);
            len += (size_t)n;
            before = "; ";
        }
    }
}

/* What the server said explains other codes best. */
static void explain(const fl_client *c, int status, unsigned long long ms)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {FL_ENOLEADER, "no leader within"},
        {FL_EBUSY, "the servers were too busy for"},
        {FL_ENOCONN, "no node could be reached within"},
        {FL_ETIMEOUT, "no answer within"},
    };
    fli_fail(c, 0, "%s",
             status == FL_EUNCERTAIN
                 ? "the outcome is unknown: it may have been done, or may still be"
                 : fl_strerror(status));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].status == status) {
            fli_fail(c, 0, "%s %llu ms", texts[i].text, ms);
        }
    }
}

void fli_wait_explain(struct fli_wait *w, const struct fli_call_plan *q)
{
    const fl_client *c = w->c;
    struct fl_redlock_report *report = w->outcome->result.report;
    int status = w->outcome->result.status;
    unsigned long long ms = q->timeout_ms != 0 ? q->timeout_ms : c->engine.timeout_ms;
    if (report != NULL) {
        last_report = *report;
        free(report);
        w->outcome->result.report = NULL;
        fli_fail(c, 0, "%s", last_report.text);
    } else if (status != 0 && w->outcome->is_no) {
        fli_fail(c, 0, "%s",
                 q->wait_ms != 0 ? "another owner kept the lock as long as we waited"
                                 : fli_call_no_text(q->request.command));
    } else if (status != 0 && q->once) {
        const char *text = w->trouble[q->node];
        fli_fail(c, 0, "%s: %s", c->engine.nodes[q->node].place.node.text,
                 text[0] != '\0' ? text : fl_strerror(status));
    } else if (status != 0) {
        explain(c, status, ms);
        append_troubles(w);
    }
}

static bool is_trouble(enum fli_call_event event)
{
    static const bool troubles[] = {
        [FLI_EVENT_UNREACHABLE] = true, [FLI_EVENT_UNSENT] = true, [FLI_EVENT_NOLEADER] = true,
        [FLI_EVENT_BUSY] = true,        [FLI_EVENT_LOST] = true,   [FLI_EVENT_UNCERTAIN] = true,
        [FLI_EVENT_BROKEN] = true,      [FLI_EVENT_DEAD] = true,   [FLI_EVENT_LEADERLESS] = true,
    };
    return event < sizeof troubles / sizeof troubles[0] && troubles[event];
}

static void tell(struct fli_wait *w, uint64_t without_ms, const char *text)
{
    fl_client *c = w->c;
    fli_fail(c, 0, "%s", text);
    if (text[0] != '\0') {
        append_troubles(w);
    }
    struct line *l = add_line(c, fli_error(is_of_store(c)));
    if (l != NULL) {
        l->is_trouble = true;
        l->without_ms = without_ms;
    }
    fli_fail(c, 0, "%s", "");
}

/* A wait can be long, and who waits may want to know that it is not for the lock. The end of the
 * call is not told here: its result says why. */
void fli_wait_event(struct fli_wait *w, enum fli_call_want asked, enum fli_call_event event,
                    bool over)
{
    bool useful =
        event == FLI_EVENT_SERVES || (asked == FLI_WANT_PROBE && event == FLI_EVENT_ALIVE);
    if (w->c->on_trouble == NULL || over || (!useful && !is_trouble(event))) {
        return;
    }
    uint64_t now_ms = fli_clock_ms();
    w->without_ms = w->without ? w->without_ms : now_ms;
    w->without = !useful;
    tell(w, useful ? 0 : now_ms - w->without_ms, useful ? "" : "no node takes the request");
}

void fli_wait_trouble(struct fli_wait *w, uint32_t node, const char *text)
{
    snprintf(w->trouble[node], FLI_TROUBLE_SIZE, "%s", text);
}

void fli_wait_init(struct fli_wait *w, fl_client *c)
{
    memset(w, 0, sizeof *w);
    w->c = c;
    w->until_ms = FLI_DUE_NEVER;
    last_report = (struct fl_redlock_report){.servers = 0};
    fli_fail(c, 0, "%s", "");
}

static bool is_stopped(const fl_client *c)
{
    struct pollfd p = {.fd = c->stop_fd, .events = POLLIN};
    return c->stop_fd >= 0 && poll(&p, 1, 0) == 1;
}

static bool is_over(const struct fli_wait *w)
{
    return w->over || fli_clock_ms() >= w->until_ms;
}

bool fli_wait(fl_client *c, struct fli_wait *w)
{
    /* A server that takes the request and says nothing makes no event of its own. */
    bool tells = c->on_trouble != NULL && w->tells;
    uint64_t silent_ms = tells ? fli_clock_ms() + FLI_SILENCE_MS : FLI_DUE_NEVER;
    c->inside++;
    while (!is_over(w) && !c->closing && !is_stopped(c)) {
        uint64_t until_ms = silent_ms < w->until_ms ? silent_ms : w->until_ms;
        if (c->driving) {
            fli_engine_wake_for(&c->engine, until_ms);
            (void)pthread_cond_wait(&c->turned, &c->mutex);
        } else {
            drive(c, until_ms);
        }
        if (!w->over && fli_clock_ms() >= silent_ms) {
            tell(w, FLI_SILENCE_MS, w->without ? "no node takes the request" : "no answer yet");
            silent_ms = FLI_DUE_NEVER;
        }
    }
    c->inside--;
    (void)pthread_cond_broadcast(&c->turned);
    bool over = is_over(w);
    if (!over) {
        fli_fail(c, 0, c->closing ? "the client was closed" : "it was interrupted");
    }
    return over;
}

struct fli_call_times fli_times_of(const fl_client *c, const struct fli_call_plan *q)
{
    uint64_t timeout_ms = q->timeout_ms != 0 ? q->timeout_ms : c->engine.timeout_ms;
    return (struct fli_call_times){.deadline_ms = fli_clock_ms() + q->wait_ms + timeout_ms,
                                   .wait_ms = q->wait_ms,
                                   .once = q->once,
                                   .node = q->node};
}

/* ---- for programs of our own ----------------------------------------------------------------- */

void fli_client_on_trouble(fl_client *c, fli_trouble_cb on_trouble_now, void *arg)
{
    c->on_trouble = on_trouble_now;
    c->trouble_arg = arg;
}

void fli_client_stop_at(fl_client *c, int fd)
{
    c->stop_fd = fd;
}

void fli_client_resolve(fl_client *c)
{
    (void)!fli_engine_resolve(&c->engine); /* a call says which names are not known */
}

uint64_t fli_client_last_attempt(const fl_client *c)
{
    return fli_attempts_last(&c->engine.attempts, fli_clock_ms());
}

void fli_client_begin_above(fl_client *c, uint64_t last)
{
    fli_attempts_uncertain(&c->engine.attempts, last, fli_clock_ms());
}
