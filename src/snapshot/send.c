/* send.c: see send.h.
 *
 *   IDLE --start--> OPENING --the file is open--> DIALING --answered--> SENDING
 *     ^                |                           |     |                |
 *     |<---------------'            ENDING <--stop-'     |                |
 *     '-------------------------------'------------------'----------------'
 *
 * However it ends, a worker closes the file, and the sender does not wait for it. ENDING waits for
 * the answer. */
#include "snapshot/send.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/clock.h"

#define PAUSE_MIN_MS 100u
#define PAUSE_MAX_MS 5000u

enum state { STATE_IDLE, STATE_OPENING, STATE_DIALING, STATE_SENDING, STATE_ENDING };

struct snapshot_send {
    struct snapshot_send_config config;
    enum state state;
    struct snapshot_source *source;
    uint64_t index; /* of the snapshot */
    struct stream *stream;
    uint64_t sent, taken;
    uint64_t not_before_ms;
    uint64_t pause_ms;
    uint64_t failures;
};

static void end(struct snapshot_send *s, enum state state)
{
    stream_close(s->stream);
    s->stream = NULL;
    s->state = state;
    snapshot_source_close(s->source);
    s->source = NULL;
}

static void pause_after(struct snapshot_send *s, const char *why)
{
    s->failures++;
    s->pause_ms = s->pause_ms == 0 ? PAUSE_MIN_MS : 2 * s->pause_ms;
    s->pause_ms = s->pause_ms < PAUSE_MAX_MS ? s->pause_ms : PAUSE_MAX_MS;
    s->not_before_ms = fli_clock_ms() + s->pause_ms;
    host_log(s->config.host, 2,
             "the snapshot for node %" PRIu64 " was not sent: %s; next attempt in %" PRIu64 " ms",
             s->config.peer_id, why, s->pause_ms);
}

static void give_up(struct snapshot_send *s, const char *why)
{
    pause_after(s, why);
    end(s, STATE_IDLE);
}

static void cannot_read(struct snapshot_send *s, const struct snapshot_error *error)
{
    bool unusable =
        error->code == FL_ECORRUPT || error->code == FL_EVERSION || error->code == FL_ENOTFOUND;
    give_up(s, error->text);
    if (unusable) {
        s->config.damaged(s->config.ctx, s->index);
    }
}

/* False: there is no piece now, or the transfer is given up. */
static bool next_piece(struct snapshot_send *s, struct fli_slice *ret)
{
    struct snapshot_error error = {0};
    int rv = snapshot_source_next(s->source, SNAPSHOT_SEND_PIECE, ret, &error);
    if (rv != 0 && rv != FL_EBUSY) {
        cannot_read(s, &error);
    }
    FLI_ASSERT(rv != 0 || ret->len > 0); /* it is asked for no more than the file has */
    return rv == 0;
}

/* Sends as many pieces as the window has room for. */
static void send_more(struct snapshot_send *s)
{
    uint64_t size = snapshot_source_size(s->source);
    while (s->sent < size && s->sent - s->taken < SNAPSHOT_WINDOW) {
        uint8_t head[8];
        struct fli_slice parts[2] = {{head, sizeof head}};
        if (!next_piece(s, &parts[1])) {
            break;
        }
        fli_put_u64(head, s->sent);
        int rv = stream_send(s->stream, SNAPSHOT_DATA, parts, 2);
        if (rv == FL_ELIMIT) {
            break; /* continued when some bytes have left */
        }
        if (rv != 0) {
            give_up(s, fl_strerror(rv));
            return;
        }
        s->sent += parts[1].len;
        snapshot_source_take(s->source, parts[1].len);
    }
    if (s->state == STATE_SENDING) {
        stream_flush(s->stream);
    }
}

static void on_done(struct snapshot_send *s, struct fli_slice body)
{
    if (body.len < 4) {
        give_up(s, "an answer that is not understood");
        return;
    }
    uint32_t code = fli_get_u32(body.data);
    if (code != 0) {
        char why[200];
        int len = body.len - 4 < 180 ? (int)(body.len - 4) : 180;
        snprintf(why, sizeof why, "it says: %.*s", len, (const char *)body.data + 4);
        for (char *c = why; *c != '\0'; c++) {
            *c = *c < ' ' || *c > '~' ? '?' : *c;
        }
        give_up(s, why);
        return;
    }
    host_log(s->config.host, 3, "node %" PRIu64 " has the snapshot of entry %" PRIu64,
             s->config.peer_id, s->index);
    s->pause_ms = 0;
    end(s, STATE_IDLE);
}

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct snapshot_send *s = ctx;
    if (type == SNAPSHOT_DONE) {
        on_done(s, body);
        return;
    }
    uint64_t taken = body.len == 8 ? fli_get_u64(body.data) : UINT64_MAX;
    if (type != SNAPSHOT_TAKEN || taken < s->taken || taken > s->sent) {
        give_up(s, "an answer that is not understood");
        return;
    }
    s->taken = taken;
    send_more(s);
}

static void lost_cb(void *ctx, const char *why)
{
    give_up(ctx, why);
}

static void begin(struct snapshot_send *s)
{
    uint8_t head[24];
    uint64_t size = snapshot_source_size(s->source);
    struct stream_callbacks cbs = {.ctx = s, .frame = frame_cb, .lost = lost_cb};
    fli_put_u64(head, s->index);
    fli_put_u64(head + 8, snapshot_source_meta(s->source)->term);
    fli_put_u64(head + 16, size);
    struct fli_slice part = {head, sizeof head};
    if (!stream_start(s->stream, &cbs)) {
        return; /* `lost` was called */
    }
    int rv = stream_send(s->stream, SNAPSHOT_BEGIN, &part, 1);
    if (rv != 0) {
        give_up(s, fl_strerror(rv));
        return;
    }
    host_log(s->config.host, 3,
             "the snapshot of entry %" PRIu64 " (%" PRIu64 " bytes) is sent to node %" PRIu64,
             s->index, size, s->config.peer_id);
    send_more(s);
}

static void dialed_cb(void *ctx, int status, const struct peer_identity *peer,
                      struct stream *stream)
{
    struct snapshot_send *s = ctx;
    FLI_ASSERT(s->state == STATE_DIALING || s->state == STATE_ENDING);
    if (s->state == STATE_ENDING) {
        s->stream = status == 0 ? stream : NULL;
        end(s, STATE_IDLE);
    } else if (status != 0) {
        give_up(s, "it cannot be reached");
    } else {
        s->stream = stream;
        s->state = STATE_SENDING;
        begin(s);
    }
}

static void dial(struct snapshot_send *s)
{
    s->state = STATE_DIALING;
    int rv = transport_dial(s->config.transport, s->config.peer_id, STREAM_SNAPSHOT, dialed_cb, s);
    if (rv != 0) {
        give_up(s, fl_strerror(rv));
    }
}

static void ready_cb(void *ctx)
{
    struct snapshot_send *s = ctx;
    if (s->state == STATE_SENDING) {
        send_more(s);
    } else if (s->state == STATE_OPENING && snapshot_source_meta(s->source) != NULL) {
        dial(s);
    } else if (s->state == STATE_OPENING) {
        struct fli_slice none;
        (void)next_piece(s, &none); /* fails, and gives up */
    }
}

void snapshot_send_start(struct snapshot_send *s, uint64_t index)
{
    const struct snapshot_source_config config = {.host = s->config.host,
                                                  .device = s->config.device,
                                                  .index = index,
                                                  .ctx = s,
                                                  .ready = ready_cb};
    if (s->state != STATE_IDLE || fli_clock_ms() < s->not_before_ms) {
        return;
    }
    if (snapshot_source_open(&config, &s->source) != 0) {
        pause_after(s, fl_strerror(FL_ENOMEM));
        return;
    }
    s->index = index;
    s->sent = 0;
    s->taken = 0;
    s->state = STATE_OPENING;
}

bool snapshot_send_busy(const struct snapshot_send *s)
{
    return s->state != STATE_IDLE;
}

uint64_t snapshot_send_index(const struct snapshot_send *s)
{
    return s->source == NULL ? 0 : s->index;
}

void snapshot_send_tick(struct snapshot_send *s)
{
    if (s->state != STATE_SENDING) {
        return;
    }
    if (fli_clock_since_ms(stream_heard_ms(s->stream)) > SNAPSHOT_SILENCE_MS) {
        give_up(s, "silence");
        return;
    }
    send_more(s);
}

void snapshot_send_stop(struct snapshot_send *s)
{
    if (s->state != STATE_IDLE) {
        bool dials = s->state == STATE_DIALING || s->state == STATE_ENDING;
        end(s, dials ? STATE_ENDING : STATE_IDLE);
    }
}

uint64_t snapshot_send_failures(const struct snapshot_send *s)
{
    return s->failures;
}

int snapshot_send_create(const struct snapshot_send_config *config, struct snapshot_send **ret)
{
    struct snapshot_send *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->config = *config;
    *ret = s;
    return 0;
}

void snapshot_send_destroy(struct snapshot_send *s)
{
    FLI_ASSERT(s == NULL || s->state == STATE_IDLE);
    free(s);
}
