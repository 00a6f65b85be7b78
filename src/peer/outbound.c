/* outbound.c: see outbound.h. */
#include "peer/outbound.h"

#include <inttypes.h>

#include "base/clock.h"

#define STEADY_MS 1000u /* a dial and its stream that lived so long count as a success */

/* ---- dialing ---- */

static bool is_down(const struct outbound *o)
{
    return o->host != NULL && o->stream == NULL && !o->dialing;
}

static void dial_at(struct outbound *o, uint64_t at_ms)
{
    o->dial_at_ms = at_ms;
    o->host->wake(o->host->ctx);
}

static void pause_then_dial(struct outbound *o, unsigned least_ms)
{
    uint64_t soonest_ms = fli_clock_ms() + OUTBOUND_PAUSE_MIN_MS;
    uint64_t at_ms = o->dialed_ms + (o->pause_ms > least_ms ? o->pause_ms : least_ms);
    o->pause_ms = o->pause_ms * 2 < OUTBOUND_PAUSE_MAX_MS ? o->pause_ms * 2 : OUTBOUND_PAUSE_MAX_MS;
    dial_at(o, at_ms > soonest_ms ? at_ms : soonest_ms);
}

static void go_down(void *ctx, const char *why)
{
    struct outbound *o = ctx;
    struct stream *s = o->stream;
    o->stream = NULL;
    o->flooded = false;
    if (fli_clock_since_ms(o->dialed_ms) >= STEADY_MS) {
        o->pause_ms = OUTBOUND_PAUSE_MIN_MS;
    }
    stream_close(s);
    transport_log(o->transport, 3, "the stream to node %" PRIu64 " ended: %s", o->id, why);
    pause_then_dial(o, 0);
}

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    go_down(ctx, "the peer sent on a stream that is not its to send on");
}

static void dialed(void *ctx, int status, const struct peer_identity *peer, struct stream *s)
{
    struct outbound *o = ctx;
    struct stream_callbacks cbs = {.ctx = o, .frame = frame_cb, .lost = go_down};
    FLI_ASSERT(o->dialing && o->stream == NULL);
    o->dialing = false;
    if (o->host == NULL) {
        stream_close(s);
        return;
    }
    if (status != 0) {
        pause_then_dial(o, status == FL_EDENIED ? OUTBOUND_REFUSED_MS : 0);
        return;
    }
    o->stream = s;
    transport_log(o->transport, 3, "connected to node %" PRIu64, o->id);
    (void)stream_start(s, &cbs);
}

void outbound_turn(struct outbound *o)
{
    if (!is_down(o) || fli_clock_ms() < o->dial_at_ms) {
        return;
    }
    o->dialed_ms = fli_clock_ms();
    o->dialing = transport_dial(o->transport, o->id, STREAM_RAFT, dialed, o) == 0;
    if (!o->dialing) {
        pause_then_dial(o, OUTBOUND_PAUSE_MAX_MS);
    }
}

uint64_t outbound_next_ms(const struct outbound *o)
{
    if (!is_down(o)) {
        return UINT64_MAX;
    }
    uint64_t now_ms = fli_clock_ms();
    return o->dial_at_ms > now_ms ? o->dial_at_ms - now_ms : 0;
}

void outbound_redial(struct outbound *o)
{
    if (is_down(o)) {
        o->pause_ms = OUTBOUND_PAUSE_MIN_MS;
        dial_at(o, fli_clock_ms());
    }
}

/* ---- sending ---- */

int outbound_send(struct outbound *o, uint8_t type, const struct fli_slice *parts, unsigned n)
{
    if (o->stream == NULL) {
        return FL_ENOCONN;
    }
    size_t unsent = stream_unsent(o->stream);
    int rv = stream_send(o->stream, type, parts, n);
    o->flooded = o->flooded && unsent > 0;
    if (rv == FL_ELIMIT && !o->flooded) {
        o->flooded = true;
        transport_log(o->transport, 2,
                      "node %" PRIu64
                      " does not take its messages: %zu KiB wait, and more are dropped",
                      o->id, unsent >> 10);
    }
    return rv;
}

void outbound_flush(struct outbound *o)
{
    if (o->stream != NULL) {
        stream_flush(o->stream);
    }
}

/* ---- life ---- */

void outbound_open(struct outbound *o, const struct host *host, struct transport *t, uint64_t id)
{
    *o = (struct outbound){.host = host,
                           .transport = t,
                           .id = id,
                           .pause_ms = OUTBOUND_PAUSE_MIN_MS,
                           .dial_at_ms = fli_clock_ms()};
}

void outbound_close(struct outbound *o)
{
    struct stream *s = o->stream;
    o->host = NULL;
    o->stream = NULL;
    stream_close(s);
}
