/* fencelock_cmd_run.c: `fencelock run` and `fencelock redlock run`: runs a command while it holds
 * a lock, and no longer.
 *
 * There is one thread, and only one poll() waits: neither a silent network nor a full pipe may
 * delay the end of the command.
 *
 *     sent    ttl/6 to ttl/3: renewal    lost: TERM      KILL   deadline   the server's expiry
 *      |-----------|----------------------|---------------|--------|-------------|
 *                                         ttl/4 before the deadline, ttl/20 before it */
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/child.h"
#include "client/caller.h"
#include "redlock/progress.h"

#define FIRST_MS UINT64_C(300) /* a lock that is free sooner is worth no question */
#define EVERY_MS UINT64_C(1000)
#define PAUSE_MIN_MS UINT64_C(500) /* after a question without an answer */
#define PAUSE_MAX_MS UINT64_C(60000)
#define QUIET_MS UINT64_C(20000)
#define SHOW_TIMEOUT_MS UINT64_C(700)
#define SILENT_ASKS 2u /* which make two seconds: then a person is told */
#define NOTE_SIZE 384u
#define CHECK_AFTER_MS UINT64_C(2000) /* without a Redlock */
#define CHECK_EVERY_MS UINT64_C(100)
#define RELEASE_TIMEOUT_MS UINT64_C(2000)
#define RELEASE_LOST_TIMEOUT_MS UINT64_C(500) /* it will hardly succeed */

/* The queue of the lock. It listens to the events of the lock, asks once who is in the queue
 * (SHOW), and then keeps that list by the events: a thousand waiters ask a thousand times, and not
 * a thousand times a second. Of an owner the last event decides, so those that the answer had
 * counted already do no harm. When events may have been missed it asks again. It looks at events
 * once a second at most: until then they wait at the node. */
struct queue {
    uint64_t next_ms; /* nothing is looked at before; 0: it has passed; CLI_NEVER_MS: never */
    uint64_t pause_ms;
    fl_watch *events;
    bool asks;           /* who is in the queue, next time */
    fl_call showing;     /* that question; 0: none is under way */
    unsigned unanswered; /* of them, in a row */
    struct fli_buf list; /* of numbers of owners, from the first on */
    uint64_t beyond;     /* waiters behind those of the list */
    char shown[96];      /* what was printed of the place */
};

struct runner {
    const struct cli_args *args;
    fl_client *client;
    fl_client *tokens; /* of a Redlock; NULL: it has none */
    struct fl_take options;
    struct cli_child child;
    char note[NOTE_SIZE]; /* who it is, for `show` */
    /* waiting */
    fl_call acquiring; /* 0: none */
    struct queue queue;
    bool is_redlock;   /* there is no queue */
    uint64_t check_ms; /* when to find out why it takes so long */
    /* running */
    fl_lock *lock;
    /* the end */
    bool releasing;
};

static void warn_with_remedy(struct runner *r, int status, const char *before, const char *error)
{
    /* "give it longer with --timeout" is no remedy for a wait that goes on */
    const char *what =
        before[0] != '\0' && status != FL_ENOCONN ? NULL : cli_remedy(r->args, status, error);
    cli_child_say(&r->child, false, "%s%.250s%s%s", before, error, what == NULL ? "" : ". ",
                  what == NULL ? "" : what);
}

/* ---- the place in the queue ------------------------------------------------------------------ */

static size_t count(const struct queue *q)
{
    return q->list.len / sizeof(uint64_t);
}

/* A number that is hardly another owner's: it is for people, who look again. */
static uint64_t number_of(struct fl_bytes owner)
{
    return (uint64_t)owner.len << 32 | fli_crc32c(0, owner.data, owner.len);
}

static size_t find(const struct queue *q, struct fl_bytes owner)
{
    const uint64_t *list = (const void *)q->list.data; /* memory of malloc() */
    size_t i = 0;
    while (i < count(q) && list[i] != number_of(owner)) {
        i++;
    }
    return i;
}

static void append(struct queue *q, struct fl_bytes owner)
{
    uint64_t number = number_of(owner);
    if (q->beyond > 0) {
        q->beyond++;
    } else if (fli_buf_append(&q->list, &number, sizeof number) != 0) {
        fli_fatal("fencelock: out of memory");
    }
}

static void drop(struct queue *q, struct fl_bytes owner)
{
    size_t at = find(q, owner) * sizeof(uint64_t);
    if (at < q->list.len) {
        q->list.len -= sizeof(uint64_t);
        memmove(q->list.data + at, q->list.data + at + sizeof(uint64_t), q->list.len - at);
    } else if (q->beyond > 0) {
        q->beyond--;
    }
}

static void show_place(struct runner *r)
{
    struct queue *q = &r->queue;
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    char text[sizeof q->shown];
    size_t place = find(q, r->options.owner);
    snprintf(text, sizeof text, "waiting, place %zu of %" PRIu64, place + 1, count(q) + q->beyond);
    if (r->acquiring == 0 || place == count(q) || strcmp(text, q->shown) == 0 ||
        poll(&p, 1, 0) != 1) {
        return;
    }
    memcpy(q->shown, text, sizeof text);
    if (isatty(STDERR_FILENO) != 1) {
        cli_child_say(&r->child, true, "%s", text);
        return;
    }
    fputs("\r\033[Kfencelock: ", stderr);
    cli_print_safe(stderr, fl_str(r->args->arg[0]));
    fprintf(stderr, ": %s", text);
    r->child.place_line = true;
}

static void ask_later(struct queue *q)
{
    q->showing = 0;
    q->asks = true;
    q->next_ms = fl_now_ms() + q->pause_ms;
    q->pause_ms = q->pause_ms * 2 < PAUSE_MAX_MS ? q->pause_ms * 2 : PAUSE_MAX_MS;
}

/* That nobody answers is printed once each time: a wrong address must not look like a long
 * queue. */
static void on_shown(void *arg, const struct fl_result *result)
{
    struct runner *r = arg;
    struct queue *q = &r->queue;
    fli_buf_clear(&q->list);
    q->beyond = 0;
    if (result->status != 0 && result->status != FL_ENOTFOUND) {
        ask_later(q);
        if (r->acquiring != 0 && ++q->unanswered == SILENT_ASKS) {
            warn_with_remedy(r, result->status,
                             "waiting, but the nodes do not say for what: ", result->error);
        }
        return;
    }
    const struct fl_lock_info *l = result->status == 0 ? result->locks->locks[0] : NULL;
    for (size_t i = 0; l != NULL && i < l->queue_len; i++) {
        append(q, l->queue[i]->owner);
    }
    q->beyond = l != NULL && l->waiters > count(q) ? l->waiters - count(q) : 0;
    q->showing = 0;
    q->unanswered = 0;
    q->next_ms = fl_now_ms() + EVERY_MS;
    show_place(r);
}

/* Whoever cannot listen asks all the same. And when all that were listed are gone, the names of
 * those behind them were never said. */
static void take(struct queue *q, const struct fl_event *e)
{
    if (e->kind == FL_EVENT_QUEUED || e->wait != 0) { /* or it is granted, or has left */
        drop(q, e->owner);
    }
    if (e->kind == FL_EVENT_QUEUED) {
        append(q, e->owner);
    }
    q->asks = q->asks || e->kind == FL_EVENT_LISTENS || e->kind == FL_EVENT_MISSED ||
              e->kind == FL_EVENT_INTERRUPTED || (q->list.len == 0 && q->beyond > 0);
}

static void listen_to_queue(struct runner *r)
{
    struct queue *q = &r->queue;
    struct fl_bytes name = fl_str(r->args->arg[0]);
    const struct fl_watch_options o = {.names = &name, .names_len = 1, .quiet_ms = QUIET_MS};
    const struct fl_event *e;
    q->next_ms = 0;
    if (q->events == NULL && fl_watch_open(r->client, NULL, &o, &q->events) != 0) {
        ask_later(q);
    }
    while (q->events != NULL && (e = fl_watch_poll(q->events)) != NULL) {
        take(q, e);
        q->next_ms = fl_now_ms() + EVERY_MS;
    }
}

/* Until a question is answered no event is fetched: the answer may be older than what comes
 * now. */
static void watch_queue(struct runner *r)
{
    struct queue *q = &r->queue;
    const struct fl_ask show = {
        .what = FL_ASK_SHOW, .name = fl_str(r->args->arg[0]), .timeout_ms = SHOW_TIMEOUT_MS};
    if (q->showing != 0 || fl_now_ms() < q->next_ms) {
        return;
    }
    listen_to_queue(r);
    if (!q->asks) {
        show_place(r);
        return;
    }
    q->asks = false;
    if (fl_ask_start(r->client, &show, on_shown, r, &q->showing) != 0) {
        ask_later(q);
    }
}

static void leave_queue(struct runner *r)
{
    if (r->queue.showing != 0) {
        fl_call_cancel(r->client, r->queue.showing);
    }
    fl_watch_close(r->queue.events);
    fli_buf_fini(&r->queue.list);
    r->queue = (struct queue){.next_ms = CLI_NEVER_MS};
}

/* A wrong address must not look like a lock that others hold. */
static void check_servers(struct runner *r)
{
    char found[FL_REDLOCK_TEXT_MAX];
    bool ended = fli_redlock_progress(r->client, r->acquiring, found);
    bool says = found[0] != '\0';
    r->check_ms = ended || says ? CLI_NEVER_MS : fl_now_ms() + CHECK_EVERY_MS;
    if (says) {
        cli_child_say(&r->child, true, "waiting, but %.380s", found);
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static void start_command(struct runner *r)
{
    fl_token token;
    if (fl_lock_token(r->lock, &token) != 0) {
        cli_child_say(&r->child, false, "lost before the command could be started");
        r->child.exit_code = CLI_EXIT_RUN_LOST;
        return;
    }
    cli_child_start(&r->child, token, fl_lock_deadline_ms(r->lock));
}

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    struct cli_child *c = &((struct runner *)arg)->child;
    enum fl_lost_reason reason = fl_lock_reason(lock);
    if (state == FL_HOLD_SAFE) {
        cli_child_say(c, true, "renewed again");
    } else if (state == FL_HOLD_JEOPARDY) {
        cli_child_say(c, true, "in jeopardy: the lease cannot be renewed, but has not run out yet");
    } else {
        /* The library calls the lock lost reserve_ms before the end of its lease, which is the
         * deadline. */
        cli_child_stop(c, fl_lock_deadline_ms(lock) + c->reserve_ms, reason == FL_LOST_TAKEN);
        cli_child_say(c, false, "the lock is lost: %s%s", fl_lost_reason_text(reason),
                      c->lost ? "; stopping the command" : "");
    }
}

/* ---- the course ------------------------------------------------------------------------------ */

static int not_acquired(struct runner *r, int status, const char *error)
{
    if (status == FL_ENOTHELD) {
        cli_child_say(&r->child, false, "not acquired: another owner %s",
                      r->options.wait_ms == 0 ? "holds the lock"
                                              : "kept the lock as long as we waited");
    } else {
        warn_with_remedy(r, status, "", error);
    }
    return cli_exit_for(r->args, cli_exit_of(status));
}

static void on_acquired(void *arg, const struct fl_result *result)
{
    struct runner *r = arg;
    r->acquiring = 0;
    r->lock = result->lock;
    if (result->report != NULL) {
        cli_redlock_warn_of_nodes(r->client, result->report);
    }
    if (result->status != 0) {
        r->child.exit_code =
            result->report != NULL
                ? cli_redlock_failed(r->args, r->client, result->report, "acquired", result->status)
                : not_acquired(r, result->status, result->error);
        return;
    }
    if (r->child.place_line) {
        cli_child_say(&r->child, false, "acquired");
    }
    if (r->child.died_of == 0) {
        start_command(r);
    }
}

static void on_released(void *arg, const struct fl_result *result)
{
    struct runner *r = arg;
    r->releasing = false;
    if (result->status != 0 && result->status != FL_ENOTHELD) {
        cli_child_say(&r->child, false, "not given back, it ends with its lease: %s",
                      result->error);
    }
}

/* One turn: waits until something happens, and reacts to it. */
static void turn(struct runner *r)
{
    const struct queue *q = &r->queue;
    uint64_t next_ms = q->next_ms != 0 && q->showing == 0 ? q->next_ms : CLI_NEVER_MS;
    bool checks = r->acquiring != 0 && r->check_ms < next_ms;
    cli_child_turn(&r->child, r->client, checks ? r->check_ms : next_ms);
    if (r->acquiring != 0 && fl_now_ms() >= r->check_ms) {
        check_servers(r);
    }
    if (r->acquiring != 0) {
        watch_queue(r);
    }
}

static void release(struct runner *r)
{
    if (r->lock == NULL) {
        return;
    }
    uint64_t timeout_ms = r->child.lost ? RELEASE_LOST_TIMEOUT_MS : RELEASE_TIMEOUT_MS;
    fl_lock *lock = r->lock;
    r->lock = NULL;
    r->releasing = fl_lock_release_start(lock, timeout_ms, on_released, r) == 0;
    while (r->releasing) {
        turn(r);
    }
}

static void wait_run_and_release(struct runner *r)
{
    while (r->acquiring != 0 && r->child.died_of == 0) {
        turn(r);
    }
    leave_queue(r);
    while (r->child.pid != 0) {
        turn(r);
    }
    if (r->acquiring != 0) {
        fl_call_cancel(r->client, r->acquiring);
    }
    if (r->acquiring != 0 && !r->is_redlock) {
        cli_settle(r->args, &r->child.signals, &r->options, fli_client_last_attempt(r->client));
    }
    r->acquiring = 0;
    release(r);
    if (r->child.place_line) {
        fputc('\n', stderr);
    }
}

/* Describes the holder for `show`, and names it so that each list, log and event says who it is.
 * The command's arguments are left out: they may have secrets in them. */
static void describe_holder(const struct cli_args *a, char note[NOTE_SIZE],
                            char owner[FL_OWNER_MAX + 1])
{
    uint64_t random[2];
    char host[65] = "";
    char buffer[1024];
    struct passwd record;
    struct passwd *user = NULL;
    const char *slash = strrchr(a->rest[0], '/');
    (void)gethostname(host, sizeof host - 1);
    if (getpwuid_r(geteuid(), &record, buffer, sizeof buffer, &user) != 0) {
        user = NULL;
    }
    const char *name = user != NULL ? user->pw_name : "unknown";
    const char *command = slash != NULL && slash[1] != '\0' ? slash + 1 : a->rest[0];
    fli_random(random, sizeof random);
    snprintf(note, NOTE_SIZE, "user=%.64s host=%.64s pid=%ld command=%.128s", name, host,
             (long)getpid(), command);
    snprintf(owner, FL_OWNER_MAX + 1, "%.64s@%.64s/%ld/%.64s/%016" PRIx64 "%016" PRIx64, name, host,
             (long)getpid(), command, random[0], random[1]);
}

/* From taking the lock to the end of this process. */
static int hold(struct runner *r)
{
    r->options.reserve_ms = r->child.reserve_ms;
    r->options.on_change = on_change;
    r->options.arg = r;
    int rc = !cli_child_take_over_signals(&r->child)
                 ? FL_ESYSTEM
                 : fl_lock_take_start(r->client, r->args->arg[0], &r->options, on_acquired, r,
                                      &r->acquiring);
    if (rc == 0) {
        wait_run_and_release(r);
    } else {
        r->child.exit_code = not_acquired(r, rc, fl_strerror(rc));
    }
    leave_queue(r);
    return cli_child_result(&r->child);
}

/* At the nodes. */
static void open_client(struct runner *r)
{
    const struct cli_args *a = r->args;
    char owner[FL_OWNER_MAX + 1];
    describe_holder(a, r->note, owner);
    const struct fl_client_options options = {.owner = fl_str(owner), .own_loop = true};
    r->client = cli_client_create(a, &options);
    r->options.owner = r->options.owner.len > 0 ? r->options.owner : fl_client_owner(r->client);
    r->options.value = cli_has(a, CLI_OPT_VALUE) ? r->options.value : fl_str(r->note);
    if (!cli_has(a, CLI_OPT_QUIET)) { /* else nobody is asked anything but for the lock */
        r->queue.next_ms = fl_now_ms() + FIRST_MS;
    }
}

/* `run`, and that of `redlock`. */
int cli_run_run(const struct cli_args *a)
{
    struct runner r = {
        .args = a,
        .options = cli_take_of(a),
        .is_redlock = cli_is_of_redis(a),
        .queue = {.next_ms = CLI_NEVER_MS, .pause_ms = PAUSE_MIN_MS, .list = {.max = SIZE_MAX / 2}},
        .check_ms = CLI_NEVER_MS};
    cli_child_init(&r.child, a, r.options.ttl_ms);
    if (r.is_redlock) {
        r.check_ms = fl_now_ms() + CHECK_AFTER_MS;
        r.client = cli_redlock_open(a, true, &r.tokens);
    } else {
        open_client(&r);
    }
    int code = hold(&r);
    fl_close(r.client);
    fl_close(r.tokens);
    return code;
}
