/* watch.c: the events of locks, for the user of a handle; see client.h.
 *
 *   rests      until the next attempt: it has no channel
 *   connects   to one of the nodes, on a channel of its own, which is not ready
 *   asks       has sent LEADER and its subscriptions, and has not all answers
 *   listens    events come
 *
 * What was heard is taken from the channel one event at a time, when it is told. Now and then the
 * node gets another LEADER there, which shows that it is alive and not cut off: a node that knows
 * no leader has no events. All of it is under the handle's mutex. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/channel.h"
#include "client/event.h"
#include "client/handle.h"
#include "wire/resp.h"

#define STEP_MS UINT64_C(2000) /* to connect and to subscribe, at each node */
#define LEADERLESS_MAX 2u
#define PAUSES 20u /* the first pause is so many times shorter than the longest */
#define REQUEST_MAX ((size_t)256 << 10)

struct fl_watch {
    struct fli_list in;
    fl_client *client;
    uint64_t process;      /* that has opened it; in a child it is dead */
    struct fli_wait *wait; /* of who waits for an event */
    struct fli_listener listener;
    struct fli_channel *channel; /* NULL: it rests */
    struct fli_buf request;
    unsigned n_requests;
    struct fli_due due;  /* of what it does now */
    unsigned answers;    /* to LEADER and to the request */
    bool asked;          /* who leads, and nothing was heard since */
    unsigned leaderless; /* answers in a row that it knows no leader */
    uint32_t node;
    uint32_t tried;
    uint64_t quiet_ms;
    uint64_t pause_ms;
    /* to be told, in this order */
    bool interrupted;
    bool begun;
    int status;
    char error[FLI_LINK_ERROR_SIZE + FL_ADDRESS_MAX];
    struct fl_event event;
    struct fli_event_room room;
};

static struct fli_engine *engine_of(const struct fl_watch *w)
{
    return &w->client->engine;
}

static const char *node_text(const struct fl_watch *w)
{
    return fl_client_node(w->client, w->node);
}

static void set_due(struct fl_watch *w, uint64_t at_ms)
{
    fli_due_set(&engine_of(w)->dues, &w->due, at_ms);
    fli_engine_wake_for(engine_of(w), at_ms);
}

static bool listens(const struct fl_watch *w)
{
    return w->channel != NULL && w->answers == 1 + w->n_requests;
}

/* There is something to tell. */
static void tell(struct fl_watch *w)
{
    if (w->wait != NULL) {
        w->wait->over = true;
    }
}

/* ---- a connection ---------------------------------------------------------------------------- */

/* Half of a pause is random, so that not all come at once. */
static uint64_t next_pause_ms(struct fl_watch *w)
{
    uint64_t pause_ms = w->pause_ms;
    if (++w->tried % engine_of(w)->n_nodes != 0) {
        return 0;
    }
    w->pause_ms = pause_ms * 2 < w->quiet_ms ? pause_ms * 2 : w->quiet_ms;
    return pause_ms / 2 + fli_engine_random(engine_of(w), pause_ms / 2 + 1);
}

static void leave(struct fl_watch *w)
{
    if (w->channel != NULL) {
        fli_channel_unlisten(w->channel);
        w->channel = NULL;
    }
}

static void fail(struct fl_watch *w, int status, const char *why)
{
    leave(w);
    w->status = status;
    snprintf(w->error, sizeof w->error, "%.100s: %.140s", node_text(w), why);
    w->node = (w->node + 1) % engine_of(w)->n_nodes;
    w->begun = false;
    w->interrupted = true;
    set_due(w, fli_clock_ms() + next_pause_ms(w));
    tell(w);
}

static void on_opened(struct fli_listener *l, struct fli_channel *ch)
{
    struct fl_watch *w = FLI_CONTAINER_OF(l, struct fl_watch, listener);
    if (fli_channel_put_bytes(ch, &w->request, w->n_requests) != 0) {
        set_due(w, fli_clock_ms()); /* nothing will be heard */
    }
}

static void connect_next(struct fl_watch *w)
{
    struct fli_engine *e = engine_of(w);
    int code = 0;
    uint64_t until_ms = fli_clock_ms() + STEP_MS;
    w->answers = 0;
    w->asked = false;
    w->leaderless = 0;
    set_due(w, until_ms);
    w->channel = fli_channel_open(e, w->node, until_ms, &w->listener, &code);
    if (w->channel == NULL) {
        fail(w, code != 0 ? code : FL_ENOCONN, e->nodes[w->node].error);
    }
}

static void on_ended(struct fli_listener *l, int code, const char *why)
{
    struct fl_watch *w = FLI_CONTAINER_OF(l, struct fl_watch, listener);
    bool telling = listens(w) || code == FL_EDENIED || code == FL_ELIMIT;
    w->channel = NULL;
    fail(w, telling ? code : FL_ENOCONN, why);
}

/* ---- what is heard --------------------------------------------------------------------------- */

static bool is_text(const redisReply *r, size_t i, const char *text)
{
    return r->type == REDIS_REPLY_ARRAY && i < r->elements &&
           r->element[i]->type == REDIS_REPLY_STRING &&
           (text == NULL || strcmp(r->element[i]->str, text) == 0);
}

/* A Redis takes subscriptions, too, and would never send an event. */
static void take_leader(struct fl_watch *w, const redisReply *r)
{
    int code;
    enum fli_call_event event = fli_call_classify(FLI_CALL_LEADER, r, &code);
    if (event == FLI_EVENT_BROKEN || (event == FLI_EVENT_REFUSED && code == FL_EINVAL)) {
        fail(w, FL_EPROTO, "it answers, but is not a fencelockd");
    }
}

static void take_confirmation(struct fl_watch *w, const redisReply *r)
{
    int code = 0;
    if (r->type == REDIS_REPLY_ERROR) {
        (void)fli_call_classify(FLI_CALL_LEADER, r, &code);
        fail(w, code == FL_EDENIED || code == FL_ELIMIT ? code : FL_EPROTO, r->str);
    } else if (!is_text(r, 0, "subscribe") && !is_text(r, 0, "psubscribe")) {
        fail(w, FL_EPROTO, "its answer makes no sense");
    } else if (listens(w)) {
        w->begun = true;
        set_due(w, fli_clock_ms() + w->quiet_ms);
        tell(w);
    }
}

static void on_answered(struct fli_listener *l, const redisReply *r)
{
    struct fl_watch *w = FLI_CONTAINER_OF(l, struct fl_watch, listener);
    if (w->answers++ == 0) {
        take_leader(w, r);
    } else {
        take_confirmation(w, r);
    }
}

static void on_called(struct fli_listener *l)
{
    tell(FLI_CONTAINER_OF(l, struct fl_watch, listener));
}

static void take_who_leads(struct fl_watch *w, bool knows)
{
    w->pause_ms = w->quiet_ms / PAUSES; /* it has been there for long */
    w->leaderless = knows ? 0 : w->leaderless + 1;
    if (w->leaderless >= LEADERLESS_MAX) {
        fail(w, FL_ENOLEADER, "it knows no leader");
    }
}

/* True: it is an event. */
static bool take_frame(struct fl_watch *w, const redisReply *r)
{
    bool knows_leader = r->type == REDIS_REPLY_ARRAY && r->elements >= 2 &&
                        r->element[0]->type == REDIS_REPLY_INTEGER;
    w->asked = false;
    if (r->type == REDIS_REPLY_ERROR) { /* this client was too slow, for example */
        fail(w, FL_EIO, r->str);
        return false;
    }
    if (knows_leader || r->type == REDIS_REPLY_NIL) {
        take_who_leads(w, knows_leader);
        return false;
    }
    size_t n = is_text(r, 0, "message") ? 3 : is_text(r, 0, "pmessage") ? 4 : 0;
    if (n == 0 || r->elements != n || !is_text(r, n - 2, NULL) || !is_text(r, n - 1, NULL)) {
        fail(w, FL_EPROTO, "what it sends makes no sense");
        return false;
    }
    const redisReply *channel = r->element[n - 2];
    const redisReply *text = r->element[n - 1];
    if (!fli_event_parse((struct fl_bytes){channel->str, channel->len},
                         (struct fl_bytes){text->str, text->len}, &w->room, &w->event)) {
        fail(w, FL_EPROTO, "an event makes no sense");
        return false;
    }
    w->event.node = node_text(w);
    return true;
}

static const struct fl_event *event_of_connection(struct fl_watch *w, enum fl_event_kind kind)
{
    bool interrupted = kind == FL_EVENT_INTERRUPTED;
    snprintf(w->room.text, sizeof w->room.text, "%s", interrupted ? w->error : "");
    w->event = (struct fl_event){.kind = kind,
                                 .status = interrupted ? w->status : 0,
                                 .word = interrupted ? "interrupted" : "listens",
                                 .text = w->room.text,
                                 .node = node_text(w),
                                 .reason = "",
                                 .name = {"", 0},
                                 .owner = {"", 0}};
    return &w->event;
}

/* NULL: there is nothing to tell at the moment. */
static const struct fl_event *next_event(struct fl_watch *w)
{
    for (;;) {
        redisReply *r;
        if (w->interrupted) {
            w->interrupted = false;
            return event_of_connection(w, FL_EVENT_INTERRUPTED);
        }
        if (w->begun) {
            w->begun = false;
            return event_of_connection(w, FL_EVENT_LISTENS);
        }
        if (!listens(w)) {
            return NULL;
        }
        if (fli_channel_hear(w->channel, &r)) {
            bool is_event = take_frame(w, r);
            freeReplyObject(r);
            if (is_event) {
                return &w->event;
            }
        } else if (!w->interrupted) {
            return NULL;
        }
    }
}

/* ---- is it still there? ---------------------------------------------------------------------- */

static void ask_who_leads(struct fl_watch *w)
{
    static char text[] = "*1\r\n$6\r\nLEADER\r\n";
    const struct fli_buf request = {.data = (uint8_t *)text, .len = sizeof text - 1};
    if (w->channel->held) { /* it is its user who is silent */
        set_due(w, fli_clock_ms() + w->quiet_ms);
        return;
    }
    if (w->asked || fli_channel_put_bytes(w->channel, &request, 0) != 0) {
        fail(w, FL_EIO, "no answer");
        return;
    }
    w->asked = true;
    set_due(w, fli_clock_ms() + w->quiet_ms);
}

static void on_due(struct fli_due *d, uint64_t now_ms)
{
    struct fl_watch *w = FLI_CONTAINER_OF(d, struct fl_watch, due);
    if (w->channel == NULL) {
        connect_next(w);
    } else if (listens(w)) {
        ask_who_leads(w);
    } else if (w->channel->link.ready) {
        fail(w, FL_ETIMEOUT, "no answer");
    } else {
        fail(w, FL_ENOCONN, "cannot connect: no answer in time");
    }
}

/* ---- telling --------------------------------------------------------------------------------- */

static void stop(struct fl_watch *w)
{
    leave(w);
    w->interrupted = w->begun = false;
    fli_due_remove(&engine_of(w)->dues, &w->due);
    fli_list_remove(&w->in);
}

static void watch_free(struct fl_watch *w)
{
    fli_buf_fini(&w->request);
    free(w);
}

static int enter(struct fl_watch *w)
{
    if (w == NULL) {
        return fli_fail(NULL, FL_EINVAL, "there is no watch");
    }
    if (fli_grant_is_inherited(w->process)) {
        return fli_fail(w->client, FL_EINVAL,
                        "the process that forked this one listens, and not this one");
    }
    return fli_client_enter(w->client);
}

static int next(struct fl_watch *w, uint64_t timeout_ms, const struct fl_event **ret)
{
    fl_client *c = w->client;
    struct fli_wait wait;
    if (w->wait != NULL) {
        return fli_fail(c, FL_EBUSY, "another thread waits for the next event");
    }
    fli_wait_init(&wait, c);
    timeout_ms = timeout_ms != 0 ? timeout_ms : c->engine.timeout_ms;
    wait.until_ms = fli_clock_ms() + timeout_ms;
    while ((*ret = next_event(w)) == NULL && fli_clock_ms() < wait.until_ms) {
        wait.over = false;
        w->wait = &wait;
        bool told = fli_wait(c, &wait);
        w->wait = NULL;
        if (!told) {
            return FL_EUNCERTAIN;
        }
    }
    return *ret != NULL ? 0
                        : fli_fail(c, FL_ETIMEOUT, "no event within %llu ms",
                                   (unsigned long long)timeout_ms);
}

int fl_watch_next(fl_watch *watch, uint64_t timeout_ms, const struct fl_event **ret)
{
    int rc = enter(watch);
    if (rc != 0) {
        return rc;
    }
    rc = fli_check(watch->client, FLI_LIMIT_TIMEOUT, timeout_ms);
    rc = rc == 0 ? next(watch, timeout_ms, ret) : rc;
    fli_client_leave(watch->client);
    return rc;
}

const struct fl_event *fl_watch_poll(fl_watch *watch)
{
    if (enter(watch) != 0) {
        return NULL;
    }
    const struct fl_event *e = watch->wait == NULL ? next_event(watch) : NULL;
    fli_client_leave(watch->client);
    return e;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

static int check_words(const fl_client *c, const struct fl_bytes *words, size_t n, size_t most)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = fli_check(c, FLI_LIMIT_WORD, words[i].len);
    }
    return rc != 0 || n <= most
               ? rc
               : fli_fail(c, FL_EINVAL, "one watch has at most %u names and %u patterns",
                          FL_WATCH_NAMES_MAX, FL_WATCH_PATTERNS_MAX);
}

static int check(const fl_client *c, const char *pattern, const struct fl_watch_options *o)
{
    const struct fl_bytes first = fl_str(pattern != NULL ? pattern : "*");
    size_t patterns = FL_WATCH_PATTERNS_MAX - (pattern != NULL);
    if (c->engine.backend != NULL) {
        return fli_fail(c, FL_EINVAL, "Redis servers tell of no locks: watch those of nodes");
    }
    int rc = fli_check_reserved(c, o->reserved, sizeof o->reserved / sizeof o->reserved[0]);
    rc = rc == 0 ? check_words(c, &first, 1, 1) : rc;
    rc = rc == 0 ? check_words(c, o->names, o->names_len, FL_WATCH_NAMES_MAX) : rc;
    rc = rc == 0 ? check_words(c, o->patterns, o->patterns_len, patterns) : rc;
    if (rc == 0 && pattern == NULL && o->names_len + o->patterns_len == 0) {
        rc = fli_fail(c, FL_EINVAL, "nothing to listen to: give a pattern, or names");
    }
    return rc != 0 ? rc : fli_check(c, FLI_LIMIT_TIMEOUT, o->quiet_ms);
}

static int put_words(struct fl_watch *w, const char *command, const struct fl_bytes *words,
                     size_t n)
{
    static const char prefix[] = "lock:";
    char channel[sizeof prefix - 1 + FL_NAME_MAX];
    int rc = 0;
    memcpy(channel, prefix, sizeof prefix - 1);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        memcpy(channel + sizeof prefix - 1, words[i].data, words[i].len);
        rc = fli_resp_array(&w->request, 2);
        rc = rc == 0 ? fli_resp_text(&w->request, command) : rc;
        rc = rc == 0 ? fli_resp_bulk(&w->request, channel, sizeof prefix - 1 + words[i].len) : rc;
        w->n_requests++;
    }
    return rc;
}

static int put_request(struct fl_watch *w, const char *pattern, const struct fl_watch_options *o)
{
    const struct fl_bytes first = fl_str(pattern != NULL ? pattern : "");
    int rc = put_words(w, "PSUBSCRIBE", &first, pattern != NULL);
    rc = rc == 0 ? put_words(w, "PSUBSCRIBE", o->patterns, o->patterns_len) : rc;
    return rc == 0 ? put_words(w, "SUBSCRIBE", o->names, o->names_len) : rc;
}

static int begin(fl_client *c, const char *pattern, const struct fl_watch_options *o,
                 fl_watch **ret)
{
    struct fl_watch *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return FL_ENOMEM;
    }
    w->client = c;
    w->process = fli_process();
    w->quiet_ms = o->quiet_ms != 0 ? o->quiet_ms : FL_WATCH_QUIET_DEFAULT_MS;
    w->pause_ms = w->quiet_ms / PAUSES;
    w->node = (uint32_t)fli_engine_random(&c->engine, c->engine.n_nodes);
    w->listener = (struct fli_listener){on_opened, on_answered, on_called, on_ended};
    fli_list_init(&w->in);
    fli_buf_init(&w->request, REQUEST_MAX);
    int rc = put_request(w, pattern, o);
    rc = rc == 0 ? fli_due_add(&c->engine.dues, &w->due, on_due) : rc;
    if (rc != 0) {
        watch_free(w);
        return rc;
    }
    set_due(w, fli_clock_ms());
    fli_list_push(&c->watches, &w->in);
    c->refs++;
    *ret = w;
    return 0;
}

int fl_watch_open(fl_client *c, const char *pattern, const struct fl_watch_options *options,
                  fl_watch **ret)
{
    static const struct fl_watch_options defaults;
    const struct fl_watch_options *o = options != NULL ? options : &defaults;
    *ret = NULL;
    int rc = fli_client_enter(c);
    if (rc != 0) {
        return rc;
    }
    rc = check(c, pattern, o);
    rc = rc == 0 ? begin(c, pattern, o, ret) : rc;
    fli_client_leave(c);
    return rc;
}

/* In a child: what the parent is doing with it does not concern this copy. */
static void disown(struct fl_watch *w)
{
    fli_list_init(&w->in);
    fli_heap_node_init(&w->due.node);
    w->channel = NULL;
}

void fl_watch_close(fl_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    fl_client *c = watch->client;
    if (fli_grant_is_inherited(watch->process)) {
        (void)!fl_fd(c); /* makes the handle this process's, if that is possible */
        disown(watch);
    }
    (void)pthread_mutex_lock(&c->mutex);
    stop(watch);
    watch_free(watch);
    fli_client_unref(c);
}

void fli_watches_end(fl_client *c)
{
    struct fli_list *at;
    while ((at = fli_list_first(&c->watches)) != NULL) {
        struct fl_watch *w = FLI_CONTAINER_OF(at, struct fl_watch, in);
        w->channel = NULL; /* they end with the engine, and have no callbacks */
        stop(w);
    }
}
