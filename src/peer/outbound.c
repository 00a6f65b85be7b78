/* outbound.c: see outbound.h. */
#include "peer/outbound.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define STEADY_MS 1000u /* a stream that lived so long counts as a success */

struct outbound_peer {
    struct outbound *o;
    uint64_t id; /* 0: a free place */
    bool gone;   /* not a member any more; a dial is still under way */
    struct stream *stream;
    bool dialing;
    bool flooded; /* that messages are dropped was logged; reset when nothing waits */
    unsigned pause_ms;
    uint64_t dial_at_ms; /* while neither up nor dialing */
    uint64_t dialed_ms;  /* when the last dial began */
    uint64_t up_since_ms;
    uint64_t sent, dropped, times_up;
};

struct outbound {
    uv_loop_t *loop;
    struct transport *transport;
    bool started, closing;
    bool timer_live;
    uv_timer_t timer; /* of the next dial */
    unsigned dialing_n;
    uint64_t self_id;
    struct members members;
    struct outbound_peer peers[KNOWN_MEMBERS_MAX];
    void (*close_cb)(void *ctx);
    void *close_ctx;
};

static unsigned long long ull(uint64_t v)
{
    return v;
}

static struct outbound_peer *find(const struct outbound *o, uint64_t peer_id)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (o->peers[i].id == peer_id && peer_id != 0 && !o->peers[i].gone) {
            return (struct outbound_peer *)(uintptr_t)&o->peers[i];
        }
    }
    return NULL;
}

static void maybe_closed(struct outbound *o)
{
    if (o->closing && !o->timer_live && o->dialing_n == 0 && o->close_cb != NULL) {
        void (*cb)(void *ctx) = o->close_cb;
        o->close_cb = NULL;
        o->started = false;
        cb(o->close_ctx);
    }
}

/* ---- dialing ---- */

static void dial_due(struct outbound *o);

static void timer_cb(uv_timer_t *timer)
{
    dial_due(timer->data);
}

static void set_timer(struct outbound *o)
{
    uint64_t at_ms = UINT64_MAX;
    uint64_t now_ms = fli_clock_ms();
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct outbound_peer *p = &o->peers[i];
        if (p->id != 0 && p->stream == NULL && !p->dialing && p->dial_at_ms < at_ms) {
            at_ms = p->dial_at_ms;
        }
    }
    if (o->closing) {
        return;
    }
    if (at_ms == UINT64_MAX) {
        uv_timer_stop(&o->timer);
        return;
    }
    int rv = uv_timer_start(&o->timer, timer_cb, at_ms > now_ms ? at_ms - now_ms : 0, 0);
    FLI_ASSERT(rv == 0);
}

static void pause_then_dial(struct outbound_peer *p, unsigned least_ms)
{
    unsigned pause_ms = p->pause_ms > least_ms ? p->pause_ms : least_ms;
    uint64_t soonest_ms = fli_clock_ms() + OUTBOUND_PAUSE_MIN_MS;
    p->dial_at_ms = p->dialed_ms + pause_ms;
    p->dial_at_ms = p->dial_at_ms > soonest_ms ? p->dial_at_ms : soonest_ms;
    p->pause_ms = p->pause_ms * 2 < OUTBOUND_PAUSE_MAX_MS ? p->pause_ms * 2 : OUTBOUND_PAUSE_MAX_MS;
    set_timer(p->o);
}

static void go_down(struct outbound_peer *p, const char *why)
{
    struct outbound *o = p->o;
    struct stream *s = p->stream;
    p->stream = NULL;
    p->flooded = false;
    if (fli_clock_since_ms(p->up_since_ms) >= STEADY_MS) {
        p->pause_ms = OUTBOUND_PAUSE_MIN_MS;
    }
    stream_close(s);
    transport_log(o->transport, 3, "the stream to node %llu ended: %s", ull(p->id), why);
    pause_then_dial(p, 0);
}

static void lost_cb(void *ctx, enum channel_end end, const char *why)
{
    go_down(ctx, why);
}

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    go_down(ctx, "the peer sent on a stream that is not its to send on");
}

static void go_up(struct outbound_peer *p, struct stream *s)
{
    struct outbound *o = p->o;
    struct stream_callbacks cbs = {.ctx = p, .frame = frame_cb, .lost = lost_cb};
    p->stream = s;
    p->up_since_ms = fli_clock_ms();
    p->times_up++;
    transport_log(o->transport, 3, "connected to node %llu", ull(p->id));
    (void)stream_start(s, &cbs);
}

static void enter_missing(struct outbound *o);

static void dialed(void *ctx, int status, const struct peer_identity *peer, struct stream *s)
{
    struct outbound_peer *p = ctx;
    struct outbound *o = p->o;
    FLI_ASSERT(p->dialing && p->stream == NULL && o->dialing_n > 0);
    p->dialing = false;
    o->dialing_n--;
    if (o->closing || p->gone) {
        stream_close(s);
        if (p->gone) {
            memset(p, 0, sizeof *p);
            enter_missing(o);
        }
        maybe_closed(o);
    } else if (status == 0) {
        go_up(p, s);
    } else {
        pause_then_dial(p, status == FL_EDENIED ? OUTBOUND_REFUSED_MS : 0);
    }
}

static void dial(struct outbound_peer *p)
{
    struct outbound *o = p->o;
    p->dialed_ms = fli_clock_ms();
    int rv = transport_dial(o->transport, p->id, STREAM_RAFT, dialed, p);
    if (rv == 0) {
        p->dialing = true;
        o->dialing_n++;
    } else {
        pause_then_dial(p, OUTBOUND_PAUSE_MAX_MS);
    }
}

static void dial_due(struct outbound *o)
{
    uint64_t now_ms = fli_clock_ms();
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct outbound_peer *p = &o->peers[i];
        if (p->id != 0 && p->stream == NULL && !p->dialing && now_ms >= p->dial_at_ms) {
            dial(p);
        }
    }
    set_timer(o);
}

void outbound_redial(struct outbound *o, uint64_t peer_id)
{
    struct outbound_peer *p = find(o, peer_id);
    if (p != NULL && o->started && !o->closing && p->stream == NULL && !p->dialing) {
        p->pause_ms = OUTBOUND_PAUSE_MIN_MS;
        p->dial_at_ms = fli_clock_ms();
        set_timer(o);
    }
}

/* ---- sending ---- */

static int drop(struct outbound_peer *p, int why)
{
    p->dropped++;
    return why;
}

int outbound_send(struct outbound *o, uint64_t peer_id, uint8_t type, const struct fli_slice *parts,
                  unsigned n)
{
    struct outbound_peer *p = find(o, peer_id);
    if (p == NULL) {
        return FL_EINVAL;
    }
    if (p->stream == NULL) {
        return drop(p, FL_ENOCONN);
    }
    size_t unsent = stream_unsent(p->stream);
    p->flooded = p->flooded && unsent > 0;
    int rv = stream_send(p->stream, type, parts, n);
    if (rv == 0) {
        p->sent++;
        return 0;
    }
    if (rv == FL_EINVAL) {
        return rv;
    }
    if (rv == FL_ELIMIT && !p->flooded) {
        p->flooded = true;
        transport_log(o->transport, 2,
                      "node %llu does not take its messages: %zu KiB wait, and more are dropped",
                      ull(p->id), unsent >> 10);
    }
    return drop(p, rv);
}

void outbound_flush(struct outbound *o)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (o->peers[i].stream != NULL) {
            stream_flush(o->peers[i].stream);
        }
    }
}

bool outbound_is_up(const struct outbound *o, uint64_t peer_id)
{
    const struct outbound_peer *p = find(o, peer_id);
    return p != NULL && p->stream != NULL;
}

void outbound_peer_stats(const struct outbound *o, uint64_t peer_id,
                         struct outbound_peer_stats *ret)
{
    const struct outbound_peer *p = find(o, peer_id);
    memset(ret, 0, sizeof *ret);
    if (p != NULL) {
        ret->up = p->stream != NULL;
        ret->unsent = p->stream == NULL ? 0 : stream_unsent(p->stream);
        ret->sent = p->sent;
        ret->dropped = p->dropped;
        ret->times_up = p->times_up;
    }
}

/* ---- members ---- */

static void leave(struct outbound_peer *p)
{
    struct stream *s = p->stream;
    p->stream = NULL;
    if (p->dialing) {
        p->gone = true; /* its place is free when the dial has ended */
    } else {
        memset(p, 0, sizeof *p);
    }
    stream_close(s);
}

static void enter(struct outbound *o, uint64_t id)
{
    unsigned i = 0;
    while (i < KNOWN_MEMBERS_MAX && o->peers[i].id != 0) {
        i++;
    }
    if (i == KNOWN_MEMBERS_MAX) {
        return; /* dials to former members use all places; the end of one makes room */
    }
    struct outbound_peer *p = &o->peers[i];
    p->o = o;
    p->id = id;
    p->pause_ms = OUTBOUND_PAUSE_MIN_MS;
    p->dial_at_ms = fli_clock_ms();
}

/* Every member has a place, unless dials to former members use them all. */
static void enter_missing(struct outbound *o)
{
    for (unsigned i = 0; i < o->members.n; i++) {
        uint64_t id = o->members.list[i].id;
        if (id != o->self_id && find(o, id) == NULL) {
            enter(o, id);
        }
    }
    if (o->started && !o->closing) {
        set_timer(o);
    }
}

void outbound_set_members(struct outbound *o, const struct members *members)
{
    o->members = *members;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct outbound_peer *p = &o->peers[i];
        if (p->id != 0 && !p->gone && members_find(members, p->id) == NULL) {
            leave(p);
        }
    }
    enter_missing(o);
}

/* ---- start and end ---- */

int outbound_create(uv_loop_t *loop, struct transport *t, const struct members *members,
                    uint64_t self_id, struct outbound **ret)
{
    struct outbound *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return FL_ENOMEM;
    }
    o->loop = loop;
    o->transport = t;
    o->self_id = self_id;
    outbound_set_members(o, members);
    *ret = o;
    return 0;
}

void outbound_start(struct outbound *o)
{
    FLI_ASSERT(!o->started);
    int rv = uv_timer_init(o->loop, &o->timer);
    FLI_ASSERT(rv == 0);
    o->timer.data = o;
    o->started = true;
    o->timer_live = true;
    dial_due(o);
}

static void timer_closed(uv_handle_t *handle)
{
    struct outbound *o = handle->data;
    o->timer_live = false;
    maybe_closed(o);
}

void outbound_close(struct outbound *o, void (*cb)(void *ctx), void *ctx)
{
    FLI_ASSERT(o->started && !o->closing);
    o->closing = true;
    o->close_cb = cb;
    o->close_ctx = ctx;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        stream_close(o->peers[i].stream);
        o->peers[i].stream = NULL;
    }
    uv_close((uv_handle_t *)&o->timer, timer_closed);
}

void outbound_destroy(struct outbound *o)
{
    if (o == NULL) {
        return;
    }
    FLI_ASSERT(!o->started);
    free(o);
}
