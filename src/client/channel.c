/* channel.c: see channel.h. */
#include "client/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"

#define PAUSE_FIRST_MS UINT64_C(10)
#define PAUSE_MAX_MS UINT64_C(500)
#define READS_MAX 64u /* of one channel in a turn, each of up to 16 KiB */
#define EVENTS 64
#define EVENT_MAX ((size_t)64 << 10) /* of one event on the wire; ours have 4 KiB */

static struct fli_engine_node *node_of(struct fli_channel *ch)
{
    return &ch->engine->nodes[ch->node];
}

static struct fl_call *call_in(struct fli_list *at)
{
    return FLI_CONTAINER_OF(at, struct fl_call, in_channel);
}

static bool is_unsent(const struct fl_call *c)
{
    return c->call_state.order.want == FLI_WANT_SEND;
}

static bool is_open(const struct fli_channel *ch)
{
    return ch->link.fd >= 0;
}

/* Whether calls may be one behind the other there. */
static bool is_shared(const struct fli_channel *ch)
{
    return ch->waiter == NULL && ch->listener == NULL && !ch->left;
}

/* Whether a call, or a listener, is there. */
static bool has_calls(const struct fli_channel *ch)
{
    return ch->listener != NULL || !fli_list_empty(&ch->calls) || ch->waiter != NULL;
}

/* Whether it is asked, or is to be asked, whether the node lives. */
static bool has_askers(struct fli_channel *ch)
{
    return is_shared(ch) && !fli_list_empty(&node_of(ch)->askers);
}

static void watch(struct fli_channel *ch, uint32_t events)
{
    uint32_t before = ch->watched_fd == ch->link.fd ? ch->events : 0;
    struct epoll_event event = {.events = events, .data.ptr = ch};
    if (before == events) {
        return;
    }
    int how = before == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    int rc = epoll_ctl(ch->engine->epoll_fd, how, ch->link.fd, &event);
    if (rc != 0 && how == EPOLL_CTL_ADD && errno == EEXIST) {
        /* The link has gone back to its first descriptor. */
        rc = epoll_ctl(ch->engine->epoll_fd, EPOLL_CTL_MOD, ch->link.fd, &event);
    }
    if (rc == 0) { /* else its calls end by their deadlines */
        ch->events = events;
        ch->watched_fd = ch->link.fd;
    }
}

/* As it is when it is connected. Without anything to wait for it is not in the set: that would tell
 * of an end all the time. */
static void watch_connected(struct fli_channel *ch)
{
    watch(ch, (ch->held ? 0 : EPOLLIN) | (ch->full ? EPOLLOUT : 0));
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Nobody may use it any more. The memory stays until the end of the turn, since an event for it may
 * have been taken already. */
static void shut(struct fli_channel *ch)
{
    if (is_open(ch) && ch->events != 0) {
        (void)epoll_ctl(ch->engine->epoll_fd, EPOLL_CTL_DEL, ch->link.fd, NULL);
    }
    fli_link_close(&ch->link);
    fli_due_remove(&ch->engine->dues, &ch->due);
    fli_list_remove(&ch->dirty);
    fli_list_remove(&ch->in);
    fli_list_push(&ch->engine->closed, &ch->in);
}

static void channel_free(struct fli_channel *ch)
{
    fli_list_remove(&ch->in);
    fli_buf_fini(&ch->out);
    free(ch);
}

void fli_channels_free_closed(struct fli_engine *e)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&e->closed)) != NULL) {
        channel_free(FLI_CONTAINER_OF(at, struct fli_channel, in));
    }
}

void fli_channels_close_all(struct fli_engine *e)
{
    for (uint32_t i = 0; i <= e->n_nodes; i++) {
        FLI_LIST_FOREACH_SAFE(at, next, &e->nodes[i].channels)
        {
            shut(FLI_CONTAINER_OF(at, struct fli_channel, in));
        }
    }
    fli_channels_free_closed(e);
}

/* A connection came to nothing, so the next one waits a little, and longer each time. */
static void note_failure(struct fli_channel *ch)
{
    struct fli_engine_node *n = node_of(ch);
    unsigned times = n->failures < 6 ? n->failures : 6;
    uint64_t most_ms = PAUSE_FIRST_MS << times;
    most_ms = most_ms < PAUSE_MAX_MS ? most_ms : PAUSE_MAX_MS;
    n->failures++;
    n->again_ms = fli_clock_ms() + most_ms / 2 + fli_engine_random(ch->engine, most_ms / 2);
    snprintf(n->error, sizeof n->error, "%s", ch->link.error);
}

/* Tells all who ask about this node; the state machine knows which answer is for whom. */
static void tell_askers(struct fli_engine_node *n, enum fli_call_event to_probe,
                        enum fli_call_event to_other, const char *text)
{
    struct fli_list all;
    struct fli_list *at;
    fli_list_init(&all);
    fli_list_splice(&all, &n->askers);
    while ((at = fli_list_pop(&all)) != NULL) {
        struct fl_call *c = FLI_CONTAINER_OF(at, struct fl_call, in_askers);
        bool probes = c->call_state.order.want == FLI_WANT_PROBE;
        enum fli_call_event event = probes ? to_probe : to_other;
        if (event == FLI_EVENT_NONE) {
            fli_list_push(&n->askers, at);
            continue;
        }
        if (event == FLI_EVENT_DEAD || event == FLI_EVENT_LEADERLESS) {
            fli_call_trouble(c, text);
        }
        c->alive = event == FLI_EVENT_ALIVE ? (uint32_t)(n - c->engine->nodes) : FLI_CALL_NOBODY;
        fli_call_feed(c, event, 0);
    }
}

/* All that was there hears of the end. Calls may begin anew meanwhile, on another channel. */
static void end(struct fli_channel *ch, enum fli_call_event of_sent, int code)
{
    struct fli_engine *e = ch->engine;
    struct fli_engine_node *n = node_of(ch);
    enum fli_call_event of_joining = code == FL_EDENIED ? FLI_EVENT_REFUSED : FLI_EVENT_UNREACHABLE;
    struct fli_list calls;
    struct fli_list *at;
    char text[FLI_LINK_ERROR_SIZE];
    snprintf(text, sizeof text, "%s", ch->link.error);
    bool asked = ch->leader != 0 || ch->check != 0 || has_askers(ch);
    fli_list_init(&calls);
    fli_list_splice(&calls, &ch->calls);
    ch->waiter = NULL;
    if (!ch->useful) {
        note_failure(ch);
    }
    fli_engine_forget_leader(e, ch->node);
    n->place.turn++;
    shut(ch);
    while ((at = fli_list_pop(&calls)) != NULL) {
        struct fl_call *c = call_in(at);
        bool joining = c->call_state.order.want == FLI_WANT_CONNECT;
        enum fli_call_event event = joining        ? of_joining
                                    : is_unsent(c) ? FLI_EVENT_UNSENT
                                                   : of_sent;
        c->channel = NULL;
        fli_call_trouble(c, text);
        fli_call_feed(c, event, event == FLI_EVENT_REFUSED ? code : 0);
        /* the answer that makes no sense is the one to the first */
        of_sent = of_sent == FLI_EVENT_BROKEN ? FLI_EVENT_LOST : of_sent;
    }
    if (asked) {
        tell_askers(n, FLI_EVENT_DEAD, FLI_EVENT_SERVES_NOT, text);
    }
}

void fli_channel_unlisten(struct fli_channel *ch)
{
    ch->listener = NULL;
    ch->engine->nodes[ch->node].place.turn++; /* if it was of no use, another address may be */
    shut(ch);
}

static void end_listening(struct fli_channel *ch, int code)
{
    struct fli_listener *l = ch->listener;
    char text[FLI_LINK_ERROR_SIZE];
    snprintf(text, sizeof text, "%s", ch->link.error);
    if (!ch->useful) {
        note_failure(ch);
    }
    fli_channel_unlisten(ch);
    l->ended(l, code, text);
}

void fli_channel_break(struct fli_channel *ch, int rc)
{
    if (ch->listener != NULL) {
        end_listening(ch, rc);
    } else if (rc == FL_EDENIED) { /* nothing that was sent has been looked at */
        end(ch, FLI_EVENT_REFUSED, rc);
    } else {
        end(ch, rc == FL_EPROTO ? FLI_EVENT_BROKEN : FLI_EVENT_LOST, 0);
    }
}

/* The server ignores this connection, and so what was sent on it. */
static void turned_away(struct fli_channel *ch, int code, const char *why)
{
    bool denied = code == FL_EDENIED;
    snprintf(ch->link.error, sizeof ch->link.error, "%.150s", why);
    ch->useful = false;
    if (ch->listener != NULL) {
        end_listening(ch, code);
        return;
    }
    end(ch, denied ? FLI_EVENT_REFUSED : FLI_EVENT_BUSY, denied ? code : 0);
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* A dead address must leave time for the addresses after it. */
static bool begin_address(struct fli_channel *ch)
{
    const struct fli_place *p = &node_of(ch)->place;
    uint64_t now_ms = fli_clock_ms();
    uint64_t left_ms = ch->until_ms > now_ms ? ch->until_ms - now_ms : 0;
    bool last = ch->tried + 1 >= p->n;
    ch->address_until_ms = last ? UINT64_MAX : now_ms + left_ms / (p->n - ch->tried);
    ch->tried++;
    return fli_place_connect(p, &ch->link, &ch->engine->tls);
}

/* Goes on to the next address while there are untried ones. 0; FL_EBUSY; or the error of the last
 * one. */
static int connect_step(struct fli_channel *ch, bool begun)
{
    struct fli_place *p = &node_of(ch)->place;
    for (;;) {
        int rc = begun ? fli_link_finish(&ch->link) : FL_ENOCONN;
        bool slow = rc == FL_EBUSY && fli_clock_ms() >= ch->address_until_ms;
        if (rc == 0 || rc == FL_EDENIED || (rc == FL_EBUSY && !slow)) {
            return rc;
        }
        if (ch->tried >= p->n) {
            return FL_ENOCONN;
        }
        if (is_open(ch) && ch->events != 0) {
            (void)epoll_ctl(ch->engine->epoll_fd, EPOLL_CTL_DEL, ch->link.fd, NULL);
        }
        ch->events = 0;
        fli_link_close(&ch->link);
        p->turn++;
        begun = begin_address(ch);
    }
}

static void put_probes(struct fli_channel *ch);

static void opened(struct fli_channel *ch)
{
    struct fli_list joining;
    struct fli_list *at;
    fli_list_init(&joining);
    fli_list_splice(&joining, &ch->calls);
    fli_due_set(&ch->engine->dues, &ch->due, FLI_DUE_NEVER);
    watch(ch, EPOLLIN);
    if (ch->engine->learns_leader) {
        fli_channel_put_leader(ch);
    }
    if (ch->listener != NULL) {
        ch->listener->opened(ch->listener, ch);
    }
    if (has_askers(ch)) {
        put_probes(ch);
    }
    while ((at = fli_list_pop(&joining)) != NULL) {
        fli_call_feed(call_in(at), FLI_EVENT_CONNECTED, 0);
    }
}

/* 0: it is ready. FL_EBUSY. Another code: it is not, and the reason is in link.error. */
static int go_on(struct fli_channel *ch, bool begun)
{
    int rc = connect_step(ch, begun);
    if (rc == FL_EBUSY) {
        uint64_t again_ms = ch->link.again_ms;
        watch(ch, ch->link.wants_read ? EPOLLIN : EPOLLOUT);
        fli_due_set(&ch->engine->dues, &ch->due,
                    again_ms < ch->address_until_ms ? again_ms : ch->address_until_ms);
    }
    return rc;
}

static void connecting(struct fli_channel *ch)
{
    int rc = go_on(ch, true);
    if (rc == 0) {
        opened(ch);
    } else if (rc != FL_EBUSY) {
        fli_channel_break(ch, rc);
    }
}

static void on_due(struct fli_due *d, uint64_t now_ms)
{
    connecting(FLI_CONTAINER_OF(d, struct fli_channel, due));
}

static struct fli_channel *channel_make(struct fli_engine *e, uint32_t node, uint64_t until_ms)
{
    struct fli_channel *ch = calloc(1, sizeof *ch);
    if (ch == NULL || fli_due_add(&e->dues, &ch->due, on_due) != 0) {
        free(ch);
        return NULL;
    }
    ch->engine = e;
    ch->node = node;
    ch->until_ms = until_ms;
    ch->watched_fd = -1;
    fli_link_init(&ch->link);
    fli_buf_init(&ch->out, FLI_REQUEST_MAX);
    fli_list_init(&ch->in);
    fli_list_init(&ch->dirty);
    fli_list_init(&ch->calls);
    fli_list_push(&e->nodes[node].channels, &ch->in);
    return ch;
}

struct fli_channel *fli_channel_open(struct fli_engine *e, uint32_t node, uint64_t until_ms,
                                     struct fli_listener *l, int *ret_code)
{
    struct fli_engine_node *n = &e->nodes[node];
    *ret_code = 0;
    if (fli_clock_ms() < n->again_ms) {
        return NULL; /* n->error says why the last one came to nothing */
    }
    if (e->resolves) {
        fli_place_resolve(&n->place, false);
    }
    struct fli_channel *ch = channel_make(e, node, until_ms);
    if (ch == NULL) {
        snprintf(n->error, sizeof n->error, "out of memory");
        return NULL;
    }
    ch->listener = l;
    ch->link.bytes_max = l != NULL ? EVENT_MAX : ch->link.bytes_max;
    int rc = go_on(ch, begin_address(ch));
    if (rc == 0) {
        opened(ch);
    } else if (rc != FL_EBUSY) {
        *ret_code = rc == FL_EDENIED ? rc : 0;
        note_failure(ch);
        fli_engine_forget_leader(e, node);
        n->place.turn++;
        shut(ch);
        return NULL;
    }
    return ch;
}

/* Whether a request may go there now. A peer that has closed the connection, or has said something
 * unasked, gets no request, since its outcome would be unknown: what has come was taken at the
 * beginning of the turn, and has ended the channel. */
static bool is_usable(const struct fli_channel *ch, bool waiting)
{
    bool is_busy = !ch->link.ready || ch->asked != ch->answered || has_calls(ch);
    return is_shared(ch) && !(waiting && is_busy);
}

struct fli_channel *fli_channel_get(struct fli_engine *e, uint32_t node, uint64_t until_ms,
                                    bool waiting, int *ret_code)
{
    FLI_LIST_FOREACH(at, &e->nodes[node].channels)
    {
        struct fli_channel *ch = FLI_CONTAINER_OF(at, struct fli_channel, in);
        if (is_usable(ch, waiting)) {
            *ret_code = 0;
            return ch;
        }
    }
    return fli_channel_open(e, node, until_ms, NULL, ret_code);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static bool is_idle(struct fli_channel *ch)
{
    return !has_calls(ch) && !has_askers(ch);
}

void fli_channel_leave(struct fl_call *c, bool silent)
{
    struct fli_channel *ch = c->channel;
    if (ch == NULL) {
        return;
    }
    bool owed = fli_list_linked(&c->in_channel);
    fli_list_remove(&c->in_channel);
    c->channel = NULL;
    bool waits = ch->waiter == c;
    ch->waiter = waits ? NULL : ch->waiter;
    if (!owed) {
        return;
    }
    if (!ch->link.ready && silent) {
        snprintf(ch->link.error, sizeof ch->link.error, "cannot connect: no answer in time");
    }
    bool is_first = c->number == ch->answered + 1; /* so all answers wait for this one */
    bool unheard = silent && ch->link.ready && (is_first || ch->heard_ms <= c->call_state.sent_ms);
    ch->left = ch->left || waits || unheard;
    if (is_idle(ch) && (ch->left || !ch->link.ready)) {
        if (!ch->link.ready && silent) {
            note_failure(ch);
        }
        shut(ch);
    }
}

static void close_idle(struct fli_engine *e, uint32_t node, bool keeps_one)
{
    bool enough = !keeps_one;
    FLI_LIST_FOREACH_SAFE(at, next, &e->nodes[node].channels)
    {
        struct fli_channel *ch = FLI_CONTAINER_OF(at, struct fli_channel, in);
        bool usable = is_shared(ch);
        if (is_idle(ch) && ch->link.ready && (enough || !usable)) {
            shut(ch);
        }
        enough = enough || usable;
    }
}

void fli_channels_drop(struct fli_engine *e, uint32_t node)
{
    close_idle(e, node, false);
}

void fli_channels_tidy(struct fli_engine *e, uint32_t node)
{
    for (uint32_t i = 0; i <= e->n_nodes; i++) {
        close_idle(e, i, i == node);
    }
}

bool fli_channel_is_ready(const struct fli_engine *e, uint32_t node)
{
    FLI_LIST_FOREACH(at, &e->nodes[node].channels)
    {
        const struct fli_channel *ch = FLI_CONTAINER_OF(at, struct fli_channel, in);
        if (ch->link.ready && is_shared(ch)) {
            return true;
        }
    }
    return false;
}

bool fli_channel_is_in_use(const struct fli_engine *e, uint32_t node)
{
    bool used = !fli_list_empty(&e->nodes[node].askers);
    FLI_LIST_FOREACH(at, &e->nodes[node].channels)
    {
        used = used || has_calls(FLI_CONTAINER_OF(at, struct fli_channel, in));
    }
    return used;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void note_put(struct fli_channel *ch, size_t before, unsigned requests)
{
    ch->queued += ch->out.len - before;
    ch->asked += requests;
    if (!fli_list_linked(&ch->dirty)) {
        fli_list_push(&ch->engine->dirty, &ch->dirty);
    }
}

int fli_channel_put(struct fli_channel *ch, const struct fli_call_request *request,
                    uint64_t wait_ms)
{
    size_t before = ch->out.len;
    int rc = fli_call_encode(request, wait_ms, &ch->out);
    if (rc != 0) {
        ch->out.len = before; /* a part of it may have fit */
        return rc;
    }
    note_put(ch, before, 1);
    return 0;
}

int fli_channel_put_bytes(struct fli_channel *ch, const struct fli_buf *requests, unsigned n)
{
    size_t before = ch->out.len;
    int rc = fli_buf_append(&ch->out, requests->data, requests->len);
    if (rc == 0) {
        note_put(ch, before, n);
    }
    return rc;
}

void fli_channel_put_leader(struct fli_channel *ch)
{
    const struct fli_call_request leader = {.command = FLI_CALL_LEADER};
    if (ch->leader == 0 && fli_channel_put(ch, &leader, 0) == 0) {
        ch->leader = ch->asked;
        ch->engine->learned_ms = fli_clock_ms();
    }
}

/* The bytes up to here are with the kernel; their calls stay there, and wait for the answers. */
static void note_sent(struct fli_channel *ch)
{
    struct fli_list *at = &ch->calls;
    while (at->prev != &ch->calls && is_unsent(call_in(at->prev))) {
        at = at->prev;
    }
    for (; at != &ch->calls && call_in(at)->end <= ch->sent; at = at->next) {
        fli_call_feed(call_in(at), FLI_EVENT_SENT, 0);
    }
}

static void read_more(struct fli_channel *ch);

static void flush(struct fli_channel *ch)
{
    size_t before = ch->out_at;
    int rc = fli_link_push(&ch->link, ch->out.data, ch->out.len, &ch->out_at);
    ch->sent += ch->out_at - before;
    ch->begun = ch->out_at > before ? ch->asked : ch->begun;
    ch->full = rc == FL_EBUSY;
    if (ch->out_at == ch->out.len) {
        fli_buf_clear(&ch->out);
        fli_buf_shrink(&ch->out);
        ch->out_at = 0;
    }
    note_sent(ch);
    if (rc != 0 && rc != FL_EBUSY) {
        read_more(ch); /* what came before it broke may say why */
        if (is_open(ch)) {
            fli_channel_break(ch, rc);
        }
        return;
    }
    watch_connected(ch);
}

void fli_channels_flush(struct fli_engine *e)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&e->dirty)) != NULL) {
        struct fli_channel *ch = FLI_CONTAINER_OF(at, struct fli_channel, dirty);
        if (!ch->full) {
            flush(ch);
        }
    }
}

/* ---- probes ---------------------------------------------------------------------------------- */

static bool is_asked_whether_it_serves(const struct fli_engine_node *n)
{
    FLI_LIST_FOREACH(at, &n->askers)
    {
        const struct fl_call *c = FLI_CONTAINER_OF(at, struct fl_call, in_askers);
        if (c->call_state.order.want == FLI_WANT_ASK_OTHER) {
            return true;
        }
    }
    return false;
}

static void put_probes(struct fli_channel *ch)
{
    /* Any lock does: what counts is that an answer comes. */
    const struct fli_call_request check = {
        .command = FLI_CALL_CHECK, .name = fl_str("fencelock"), .token = 1};
    bool asks = ch->leader == 0;
    if (ch->check == 0) {
        fli_channel_put_leader(ch);
        if (is_asked_whether_it_serves(node_of(ch)) && fli_channel_put(ch, &check, 0) == 0) {
            ch->check = ch->asked;
            asks = true;
        }
    }
    ch->asked_ms = asks ? fli_clock_ms() : ch->asked_ms;
}

bool fli_channel_ask(struct fli_engine *e, uint32_t node, uint64_t until_ms, bool serves,
                     bool *ret_alive)
{
    int code;
    struct fli_channel *ch = fli_channel_get(e, node, until_ms, false, &code);
    if (ch == NULL) {
        return false;
    }
    if (ch->link.ready) {
        put_probes(ch);
    }
    *ret_alive = serves && ch->check != 0 && ch->leader == 0;
    return true;
}

void fli_channel_ask_over(struct fli_engine *e, uint32_t node)
{
    FLI_LIST_FOREACH_SAFE(at, next, &e->nodes[node].channels)
    {
        struct fli_channel *ch = FLI_CONTAINER_OF(at, struct fli_channel, in);
        bool asked = ch->leader != 0 || ch->check != 0;
        ch->left = ch->left || (asked && ch->heard_ms <= ch->asked_ms);
        if (is_idle(ch) && (ch->left || !ch->link.ready)) {
            shut(ch);
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void leader_answered(struct fli_channel *ch, redisReply *reply)
{
    enum fli_call_event event = fli_call_classify_probe(reply);
    bool good = reply->type == REDIS_REPLY_ARRAY || reply->type == REDIS_REPLY_NIL;
    if (ch->engine->learns_leader) {
        fli_engine_leader_is(ch, reply);
    }
    freeReplyObject(reply);
    tell_askers(node_of(ch), event, good ? FLI_EVENT_ALIVE : FLI_EVENT_SERVES_NOT,
                "it knows no leader");
}

static void check_answered(struct fli_channel *ch, redisReply *reply)
{
    int code;
    enum fli_call_event event = fli_call_classify(FLI_CALL_CHECK, reply, &code);
    bool good = event == FLI_EVENT_YES || event == FLI_EVENT_NO;
    ch->check = 0;
    freeReplyObject(reply);
    tell_askers(node_of(ch), FLI_EVENT_NONE, good ? FLI_EVENT_SERVES : FLI_EVENT_SERVES_NOT, "");
}

static void answered(struct fli_channel *ch, redisReply *reply)
{
    uint64_t number = ++ch->answered;
    bool is_leader = number == ch->leader;
    int away = is_leader ? fli_call_classify_welcome(reply) : 0;
    ch->heard_ms = fli_clock_ms();
    ch->leader = is_leader ? 0 : ch->leader;
    if (away != 0) {
        turned_away(ch, away, reply->str);
        freeReplyObject(reply);
        return;
    }
    if (!is_leader && !ch->useful) {
        ch->useful = true;
        node_of(ch)->failures = 0;
    }
    if (ch->listener != NULL) {
        ch->listener->answered(ch->listener, reply);
        freeReplyObject(reply);
        return;
    }
    if (is_leader) {
        leader_answered(ch, reply);
        return;
    }
    if (number == ch->check) {
        check_answered(ch, reply);
        return;
    }
    struct fli_list *at = fli_list_first(&ch->calls);
    if (at == NULL || call_in(at)->number != number) {
        freeReplyObject(reply); /* the call was given up */
        return;
    }
    struct fl_call *c = call_in(at);
    fli_list_remove(at);
    if (is_unsent(c)) { /* the answer did not wait for the end */
        fli_call_feed(c, FLI_EVENT_SENT, 0);
    }
    fli_call_answer(c, reply);
}

/* What comes now was not asked for: it is the listener's to fetch. */
static bool is_told(const struct fli_channel *ch)
{
    bool fetches = ch->listener != NULL && ch->listener->called != NULL;
    return fetches && ch->asked == ch->answered;
}

/* Whether what comes now is no answer, since nothing is owed, or nothing of what is owed has been
 * sent. But the first may be the server's refusal of the connection. */
static bool is_unasked(const struct fli_channel *ch)
{
    return ch->asked == ch->answered || (ch->answered >= ch->begun && ch->answered > 0);
}

/* False: the channel was closed. */
static bool take_answers(struct fli_channel *ch)
{
    redisReply *reply = NULL;
    int n = 0;
    while (!is_told(ch) && (n = fli_link_next(&ch->link, &reply)) == 1 && !is_unasked(ch)) {
        answered(ch, reply);
        if (!is_open(ch)) {
            return false;
        }
    }
    /* a part of it must not become the answer to the next request either */
    bool unasked = !is_told(ch) && is_unasked(ch) && (n == 1 || ch->link.fed != 0);
    if (unasked) {
        bool explains = n == 1 && reply->type == REDIS_REPLY_ERROR;
        snprintf(ch->link.error, sizeof ch->link.error, "%.150s",
                 explains ? reply->str : "it says something unasked");
        freeReplyObject(n == 1 ? reply : NULL);
        fli_channel_break(ch, FL_EIO);
    } else if (n < 0) {
        fli_channel_break(ch, n);
    }
    return !unasked && n >= 0;
}

static void read_more(struct fli_channel *ch)
{
    int more = 1;
    for (unsigned i = 0; i < READS_MAX && more == 1 && (i == 0 || !is_told(ch)); i++) {
        if (!take_answers(ch)) {
            return;
        }
        more = fli_link_read(&ch->link);
    }
    if (more < 0) {
        fli_channel_break(ch, more);
    } else if (take_answers(ch) && is_told(ch)) {
        ch->held = true;
        ch->listener->called(ch->listener);
        if (is_open(ch)) {
            watch_connected(ch); /* or not, as long as it is held */
        }
    }
}

bool fli_channel_hear(struct fli_channel *ch, redisReply **ret)
{
    int n = ch->held ? fli_link_next(&ch->link, ret) : 0;
    if (n < 0) {
        fli_channel_break(ch, n);
    } else if (n == 0) {
        ch->held = false;
        watch_connected(ch);
    }
    ch->heard_ms = fli_clock_ms();
    return n == 1;
}

void fli_channels_take_events(struct fli_engine *e)
{
    struct epoll_event events[EVENTS];
    int n;
    do {
        n = epoll_wait(e->epoll_fd, events, EVENTS, 0);
        for (int i = 0; i < n; i++) {
            struct fli_channel *ch = events[i].data.ptr;
            if (ch == NULL || !is_open(ch)) { /* the timer; or closed meanwhile */
                continue;
            }
            if (!ch->link.ready) {
                connecting(ch);
                continue;
            }
            if ((events[i].events & ~(uint32_t)EPOLLOUT) != 0 && !ch->held) {
                read_more(ch);
            }
            if (is_open(ch) && (events[i].events & EPOLLOUT) != 0) {
                flush(ch);
            }
        }
    } while (n == EVENTS);
}
