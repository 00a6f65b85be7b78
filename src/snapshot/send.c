/* send.c: see send.h.
 *
 *   start --> a worker opens the file --> the peer is called --> pieces are sent --> DONE
 *
 * However it ends, a worker closes the file, and the sender does not wait for it; but for the
 * answer to a call it does. */
#include "snapshot/send.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/clock.h"

#define PAUSE_MIN_MS 100u
#define PAUSE_MAX_MS 5000u

void snapshot_send_stop(struct snapshot_send *s)
{
    stream_close(s->stream);
    s->stream = NULL;
    snapshot_source_close(s->source);
    s->source = NULL;
}

static void give_up(struct snapshot_send *s, const char *why)
{
    s->failures++;
    s->pause_ms = s->pause_ms == 0 ? PAUSE_MIN_MS : 2 * s->pause_ms;
    s->pause_ms = s->pause_ms < PAUSE_MAX_MS ? s->pause_ms : PAUSE_MAX_MS;
    s->not_before_ms = fli_clock_ms() + s->pause_ms;
    host_log(s->config->host, 2,
             "the snapshot for node %" PRIu64 " was not sent: %s; next attempt in %" PRIu64 " ms",
             s->peer_id, why, s->pause_ms);
    snapshot_send_stop(s);
}

/* 0; FL_EBUSY: there is no piece now; or an error, and the transfer is given up. */
static int next_piece(struct snapshot_send *s, struct fli_slice *ret)
{
    struct snapshot_error error = {0};
    int rv = snapshot_source_next(s->source, SNAPSHOT_SEND_PIECE, ret, &error);
    if (rv != 0 && rv != FL_EBUSY) {
        give_up(s, error.text);
    }
    FLI_ASSERT(rv != 0 || ret->len > 0); /* it is asked for no more than the file has */
    return rv;
}

/* Likewise. */
static int send_piece(struct snapshot_send *s)
{
    uint8_t head[8];
    struct fli_slice parts[2] = {{head, sizeof head}};
    int rv = next_piece(s, &parts[1]);
    if (rv != 0) {
        return rv;
    }
    fli_put_u64(head, s->sent);
    rv = stream_send(s->stream, SNAPSHOT_DATA, parts, 2);
    if (rv == FL_ELIMIT) {
        return FL_EBUSY; /* continued when some bytes have left */
    }
    if (rv != 0) {
        give_up(s, fl_strerror(rv));
        return rv;
    }
    s->sent += parts[1].len;
    snapshot_source_take(s->source, parts[1].len);
    return 0;
}

/* Sends as many pieces as the window has room for. */
static int send_more(struct snapshot_send *s)
{
    int rv = 0;
    while (rv == 0 && s->sent < s->size && s->sent - s->taken < SNAPSHOT_WINDOW) {
        rv = send_piece(s);
    }
    if (s->stream != NULL) {
        stream_flush(s->stream);
    }
    return rv;
}

static void on_done(struct snapshot_send *s, struct fli_slice body)
{
    char why[200];
    int len = body.len < 4 ? 0 : body.len - 4 < 180 ? (int)(body.len - 4) : 180;
    if (body.len < 4) {
        give_up(s, "an answer that is not understood");
    } else if (fli_get_u32(body.data) != 0) {
        snprintf(why, sizeof why, "it says: %.*s", len, (const char *)body.data + 4);
        for (char *c = why; *c != '\0'; c++) {
            *c = *c < ' ' || *c > '~' ? '?' : *c;
        }
        give_up(s, why);
    } else {
        host_log(s->config->host, 3, "node %" PRIu64 " has the snapshot of entry %" PRIu64,
                 s->peer_id, s->index);
        s->pause_ms = 0;
        snapshot_send_stop(s);
    }
}

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct snapshot_send *s = ctx;
    uint64_t taken = body.len == 8 ? fli_get_u64(body.data) : UINT64_MAX;
    if (type == SNAPSHOT_DONE) {
        on_done(s, body);
    } else if (type != SNAPSHOT_TAKEN || taken < s->taken || taken > s->sent) {
        give_up(s, "an answer that is not understood");
    } else {
        s->taken = taken;
    }
}

static void lost_cb(void *ctx, const char *why)
{
    give_up(ctx, why);
}

static void begin(struct snapshot_send *s)
{
    uint8_t head[24];
    struct fli_slice part = {head, sizeof head};
    struct stream_callbacks cbs = {.ctx = s, .frame = frame_cb, .lost = lost_cb};
    s->size = snapshot_source_meta(s->source)->file_size;
    fli_put_u64(head, s->index);
    fli_put_u64(head + 8, snapshot_source_meta(s->source)->term);
    fli_put_u64(head + 16, s->size);
    if (!stream_start(s->stream, &cbs)) {
        return; /* `lost` was called */
    }
    int rv = stream_send(s->stream, SNAPSHOT_BEGIN, &part, 1);
    if (rv != 0) {
        give_up(s, fl_strerror(rv));
        return;
    }
    host_log(s->config->host, 3,
             "the snapshot of entry %" PRIu64 " (%" PRIu64 " bytes) is sent to node %" PRIu64,
             s->index, s->size, s->peer_id);
}

static void dialed_cb(void *ctx, int status, const struct peer_identity *peer,
                      struct stream *stream)
{
    struct snapshot_send *s = ctx;
    FLI_ASSERT(s->dialing && s->stream == NULL);
    s->dialing = false;
    if (s->source == NULL) {
        stream_close(status == 0 ? stream : NULL); /* it was stopped */
    } else if (status != 0) {
        give_up(s, "it cannot be reached");
    } else {
        s->stream = stream;
        begin(s);
    }
}

/* When the file is open. */
static int dial(struct snapshot_send *s)
{
    struct fli_slice first;
    int rv = next_piece(s, &first);
    if (rv != 0) {
        return rv;
    }
    rv = transport_dial(s->config->transport, s->peer_id, STREAM_SNAPSHOT, dialed_cb, s);
    s->dialing = rv == 0;
    if (rv != 0) {
        give_up(s, fl_strerror(rv));
    }
    return 0;
}

void snapshot_send_start(struct snapshot_send *s, const struct snapshot_send_config *config,
                         uint64_t peer_id, uint64_t index)
{
    if (snapshot_send_busy(s) || fli_clock_ms() < s->not_before_ms) {
        return;
    }
    s->config = config;
    s->peer_id = peer_id;
    s->index = index;
    s->sent = 0;
    s->taken = 0;
    s->source = snapshot_source_open(config->host, config->device, index);
    if (s->source == NULL) {
        give_up(s, fl_strerror(FL_ENOMEM));
    }
}

uint64_t snapshot_send_turn(struct snapshot_send *s)
{
    int rv = 0;
    if (s->source == NULL || s->dialing) {
        return 0;
    }
    if (s->stream == NULL) {
        rv = dial(s);
    } else if (fli_clock_since_ms(stream_heard_ms(s->stream)) > SNAPSHOT_SILENCE_MS) {
        give_up(s, "silence");
    } else {
        rv = send_more(s);
    }
    return rv == FL_ECORRUPT || rv == FL_EVERSION || rv == FL_ENOTFOUND ? s->index : 0;
}
