/* install.c: see install.h.
 *
 *   IDLE --BEGIN--> RECEIVING --all pieces--> DECODING --whole--> READY --taken--> IDLE
 *     ^---------------failure--------------------'                  |
 *     ^-------------------------------------------------------------'
 *
 * After a failure it is FAILED until the worker is done, and IDLE then.
 *
 * The worker has one piece of work at a time. While it does, it owns the fields of the work. A
 * stream that ends meanwhile is noticed when the work comes back. The worker also makes the file,
 * and in IDLE it drops what is left of the last one: a half-written file, or a machine. To remove a
 * large file takes a file system seconds. Another snapshot may begin meanwhile: its pieces wait.
 *
 * The bytes are written as they come. Whether they are a snapshot is seen when they are decoded,
 * before the file gets its name. */
#include "snapshot/install.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "snapshot/decode.h"

#define SYNC_BYTES (UINT64_C(4) << 20)
/* Of received bytes: a sender is given up that sends one beyond the window. */
#define WAITING_MAX ((size_t)SNAPSHOT_WINDOW + SNAPSHOT_FRAME_MAX)
#define ALIVE_MS 500u /* between messages that tell the sender that this node is alive */

enum state { STATE_IDLE, STATE_RECEIVING, STATE_DECODING, STATE_READY, STATE_FAILED };

/* A piece of work for the worker, and its result. */
struct work {
    uv_work_t req;
    struct snapshot_install *owner;
    struct snapshot_part part; /* the file */
    bool broken;               /* it is to be dropped first */
    struct fli_buf bytes;      /* to be written */
    bool last;                 /* finish the file and decode it */
    uint64_t index, term;
    uint64_t synced;
    struct snapshot_meta meta;
    struct machine *fresh, *garbage;
    struct snapshot_error error;
};

struct snapshot_install {
    struct snapshot_install_config config;
    enum state state;
    bool working, stopping;
    uint64_t from;
    struct stream *stream;
    uint64_t index, term, size;
    uint64_t received; /* bytes that have come */
    uint64_t taken;    /* bytes that the worker has written */
    uint64_t sent_ms;  /* when SNAPSHOT_TAKEN was sent last */
    uint64_t failures;
    struct fli_buf waiting; /* bytes for the worker */
    struct work work;
};

static const char has_all[] = "this node has all that is in it";

/* ---- the worker ------------------------------------------------------------------------------ */

static int open_file(struct work *w)
{
    w->synced = 0;
    return snapshot_part_open(&w->part, w->owner->config.device, w->index, w->term, &w->error);
}

static int write_bytes(struct work *w)
{
    int rv = w->part.file == NULL ? open_file(w) : 0;
    if (rv == 0 && w->bytes.len > 0) {
        rv = snapshot_part_write(&w->part, w->bytes.data, w->bytes.len, &w->error);
    }
    if (rv == 0 && w->part.len - w->synced >= SYNC_BYTES) {
        w->synced = w->part.len;
        rv = snapshot_part_sync(&w->part, &w->error);
    }
    return rv;
}

static int decode(struct work *w, struct snapshot_reader *reader)
{
    uint64_t seed[2];
    w->meta = *snapshot_reader_meta(reader);
    if (!w->owner->config.is_sound(&w->meta)) {
        return snapshot_reader_refuse(reader, FL_ECORRUPT, "no log can go on behind it", &w->error);
    }
    fli_random(seed, sizeof seed);
    int rv = snapshot_decode(reader, seed, &w->fresh, &w->error);
    w->meta.size = snapshot_reader_meta(reader)->size;
    return rv;
}

/* The file gets its name only when this node can start from it: under that name it is the newest,
 * and this node's own is removed for it. */
static int finish_file(struct work *w)
{
    struct snapshot_reader *reader;
    int rv = snapshot_part_read(&w->part, &reader, &w->error);
    if (rv != 0) {
        return rv;
    }
    rv = decode(w, reader);
    snapshot_reader_close(reader);
    return rv != 0 ? rv : snapshot_part_finish(&w->part, &w->error);
}

static void drop(struct work *w)
{
    machine_destroy(w->garbage);
    w->garbage = NULL;
    if (w->broken) {
        snapshot_part_abort(&w->part);
        w->broken = false;
    }
}

static void work_cb(uv_work_t *req)
{
    struct work *w = FLI_CONTAINER_OF(req, struct work, req);
    drop(w);
    int rv = w->bytes.len > 0 || w->last ? write_bytes(w) : 0;
    rv = rv == 0 && w->last ? finish_file(w) : rv;
    fli_buf_fini(&w->bytes);
    FLI_ASSERT(w->error.code == rv);
    if (rv != 0 && w->part.file != NULL) {
        snapshot_part_abort(&w->part);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void continue_install(struct snapshot_install *s);

static void hang_up(struct snapshot_install *s)
{
    stream_close(s->stream);
    s->stream = NULL;
}

static void send_taken(struct snapshot_install *s)
{
    uint8_t body[8];
    struct fli_slice part = {body, sizeof body};
    if (s->stream == NULL) {
        return;
    }
    s->sent_ms = fli_clock_ms();
    fli_put_u64(body, s->taken);
    if (stream_send(s->stream, SNAPSHOT_TAKEN, &part, 1) == 0) {
        stream_flush(s->stream);
    }
}

/* A sender that cannot be told learns it from the end of the stream, not from a long silence. */
static void send_done(struct snapshot_install *s, int error, const char *text)
{
    uint8_t code[4];
    struct fli_slice parts[2] = {{code, sizeof code}, {(const uint8_t *)text, strlen(text)}};
    if (s->stream == NULL) {
        return;
    }
    fli_put_u32(code, (uint32_t)(error < 0 ? -error : error));
    if (stream_send(s->stream, SNAPSHOT_DONE, parts, 2) == 0) {
        stream_flush(s->stream);
    } else {
        hang_up(s);
    }
}

/* Frees everything that the worker does not own. The sender closes the stream when it has read
 * this. */
static void fail(struct snapshot_install *s, int error, const char *why)
{
    s->failures++;
    host_log(&s->config.host, 2, "the snapshot from node %" PRIu64 " is given up: %s", s->from,
             why);
    send_done(s, error, why);
    fli_buf_fini(&s->waiting);
    s->state = STATE_FAILED;
    continue_install(s);
}

static void worked_cb(uv_work_t *req, int status)
{
    struct work *w = FLI_CONTAINER_OF(req, struct work, req);
    struct snapshot_install *s = w->owner;
    s->working = false;
    if (w->part.file != NULL && w->error.code == 0) {
        s->taken = w->part.len;
    }
    if (w->error.code != 0 && s->state != STATE_FAILED) {
        int error = w->error.code;
        char why[sizeof w->error.text];
        memcpy(why, w->error.text, sizeof why);
        fail(s, error, why);
        return;
    }
    if (s->state == STATE_DECODING && w->fresh != NULL) {
        s->state = STATE_READY;
    } else if (s->state == STATE_RECEIVING) {
        send_taken(s);
    }
    continue_install(s);
}

static void begin_work(struct snapshot_install *s)
{
    struct work *w = &s->work;
    w->bytes = s->waiting;
    fli_buf_init(&s->waiting, WAITING_MAX);
    w->last = s->state == STATE_RECEIVING && s->received == s->size;
    w->index = s->index;
    w->term = s->term;
    if (w->last) {
        s->state = STATE_DECODING;
    }
    memset(&w->error, 0, sizeof w->error);
    s->working = true;
    int rv = uv_queue_work(s->config.host.loop, &w->req, work_cb, worked_cb);
    FLI_ASSERT(rv == 0);
}

/* Returns to IDLE. What is left is for the worker. */
static void reset(struct snapshot_install *s)
{
    struct work *w = &s->work;
    w->broken = w->part.file != NULL;
    if (w->fresh != NULL) {
        w->garbage = w->fresh;
        w->fresh = NULL;
    }
    s->state = STATE_IDLE;
}

static bool has_to_drop(const struct snapshot_install *s)
{
    return s->work.garbage != NULL || s->work.broken;
}

/* Whether the worker has something to do for what is received. */
static bool has_to_write(const struct snapshot_install *s)
{
    return s->state == STATE_RECEIVING && (s->waiting.len > 0 || s->received == s->size);
}

static void continue_install(struct snapshot_install *s)
{
    struct work *w = &s->work;
    if (s->working) {
        return;
    }
    if (s->state == STATE_FAILED || s->stopping) {
        fli_buf_fini(&s->waiting);
        reset(s);
    }
    if (has_to_drop(s)) {
        begin_work(s);
        return;
    }
    if (s->stopping) {
        s->config.idle(s->config.ctx);
    } else if (has_to_write(s)) {
        begin_work(s);
    } else if (s->state == STATE_READY) {
        s->config.ready(s->config.ctx, &w->meta, w->fresh);
    }
}

static void on_begin(struct snapshot_install *s, struct fli_slice body)
{
    if (body.len != 24 || s->state != STATE_IDLE) {
        send_done(s, FL_EBUSY, "another snapshot is being installed");
        return;
    }
    if (fli_get_u64(body.data) <= s->config.applied(s->config.ctx)) {
        send_done(s, FL_EINVAL, has_all);
        return;
    }
    s->index = fli_get_u64(body.data);
    s->term = fli_get_u64(body.data + 8);
    s->size = fli_get_u64(body.data + 16);
    host_log(&s->config.host, 3,
             "a snapshot of entry %" PRIu64 " comes from node %" PRIu64 " (%" PRIu64 " bytes)",
             s->index, s->from, s->size);
    s->received = 0;
    s->taken = 0;
    s->state = STATE_RECEIVING;
}

static void on_data(struct snapshot_install *s, struct fli_slice body)
{
    if (s->state != STATE_RECEIVING) {
        return; /* it belongs to a snapshot that was given up */
    }
    bool fits = body.len > 8 && fli_get_u64(body.data) == s->received &&
                body.len - 8 <= s->size - s->received && s->received - s->taken <= SNAPSHOT_WINDOW;
    if (!fits || fli_buf_append(&s->waiting, body.data + 8, body.len - 8) != 0) {
        fail(s, FL_EPROTO,
             fits ? "out of memory"
                  : "a piece that does not follow the one before, or one too many");
        return;
    }
    s->received += body.len - 8;
    continue_install(s);
}

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct snapshot_install *s = ctx;
    if (type == SNAPSHOT_BEGIN) {
        on_begin(s, body);
    } else if (type == SNAPSHOT_DATA) {
        on_data(s, body);
    }
}

static void lost_cb(void *ctx, enum channel_end how, const char *why)
{
    struct snapshot_install *s = ctx;
    hang_up(s);
    if (s->state == STATE_RECEIVING) {
        fail(s, FL_ENOCONN, why);
    }
}

void snapshot_install_accept(struct snapshot_install *s, uint64_t from, struct stream *stream)
{
    struct stream_callbacks cbs = {.ctx = s, .frame = frame_cb, .lost = lost_cb};
    /* What is said of one that is whole is for its sender: another one would take it for an answer
     * to what it sends. It calls again after a pause. */
    if (s->stopping || s->state == STATE_DECODING || s->state == STATE_READY) {
        stream_close(stream);
        return;
    }
    if (s->stream != NULL) {
        hang_up(s);
    }
    if (s->state == STATE_RECEIVING) {
        fail(s, FL_EBUSY, "its sender has begun again");
    }
    s->from = from;
    s->stream = stream;
    (void)stream_start(stream, &cbs);
}

void snapshot_install_taken(struct snapshot_install *s, int error, struct machine *garbage)
{
    FLI_ASSERT(s->state == STATE_READY && !s->working);
    send_done(s, error, error == 0 ? "" : fl_strerror(error));
    s->work.fresh = NULL;
    s->work.garbage = garbage;
    s->state = STATE_IDLE;
    continue_install(s);
}

/* Whether it is the sender's turn. */
static bool waits_for_piece(const struct snapshot_install *s)
{
    return s->state == STATE_RECEIVING && !s->working && s->waiting.len == 0;
}

/* Whether the sender must be told that this node is alive. It is not told while nothing comes of
 * the next piece. A piece may be lost, with the stream still up: the silence then makes the sender
 * begin again. */
static bool must_report(const struct snapshot_install *s)
{
    return !waits_for_piece(s) || stream_heard_ms(s->stream) > s->sent_ms;
}

/* A sender whose machine is gone, or that never meant to send, would be waited for without end. */
static bool is_silent(const struct snapshot_install *s)
{
    uint64_t since_ms = stream_heard_ms(s->stream);
    since_ms = since_ms > s->sent_ms ? since_ms : s->sent_ms; /* what it has to answer */
    return waits_for_piece(s) && fli_clock_since_ms(since_ms) > SNAPSHOT_SILENCE_MS;
}

static void give_up_in_vain(struct snapshot_install *s)
{
    if (s->config.applied(s->config.ctx) >= s->index) {
        fail(s, FL_EINVAL, has_all);
    } else if (is_silent(s)) {
        hang_up(s);
        fail(s, FL_ENOCONN, "silence");
    }
}

void snapshot_install_tick(struct snapshot_install *s)
{
    if (s->state == STATE_RECEIVING) {
        give_up_in_vain(s);
    }
    /* What was taken of one that was given up means nothing to whoever begins anew. */
    bool counts = s->state != STATE_IDLE && s->state != STATE_FAILED;
    if (s->stream != NULL && counts && must_report(s) &&
        fli_clock_since_ms(s->sent_ms) >= ALIVE_MS) {
        send_taken(s);
    }
    if (s->state == STATE_READY) {
        continue_install(s);
    }
}

bool snapshot_install_busy(const struct snapshot_install *s)
{
    return s->state != STATE_IDLE || s->working;
}

uint64_t snapshot_install_receives(const struct snapshot_install *s)
{
    if (s->state != STATE_RECEIVING && s->state != STATE_FAILED) {
        return 0;
    }
    /* The worker may still remove the file of the one before, which was given up. */
    return s->working && s->work.index < s->index ? s->work.index : s->index;
}

uint64_t snapshot_install_failures(const struct snapshot_install *s)
{
    return s->failures;
}

int snapshot_install_create(const struct snapshot_install_config *config,
                            struct snapshot_install **ret)
{
    struct snapshot_install *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->config = *config;
    fli_buf_init(&s->waiting, WAITING_MAX);
    s->work.owner = s;
    *ret = s;
    return 0;
}

void snapshot_install_stop(struct snapshot_install *s)
{
    FLI_ASSERT(!s->stopping);
    s->stopping = true;
    if (s->stream != NULL) {
        hang_up(s);
    }
    continue_install(s);
}

void snapshot_install_destroy(struct snapshot_install *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(!s->working && s->waiting.len == 0);
    free(s);
}
