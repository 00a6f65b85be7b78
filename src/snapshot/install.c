/* install.c: see install.h.
 *
 *   IDLE --BEGIN--> RECEIVING --all pieces--> DECODING --whole--> READY
 *     ^                 |failure                 |failure           |taken
 *     '---- DROPPING <--'------------------------'------------------'
 *
 * The worker has one piece of work at a time. While it does, it owns the fields of the work. A
 * stream that ends meanwhile is noticed when the work comes back. In RECEIVING it makes the file
 * and writes; in DECODING it finishes the file; in DROPPING it removes what is left: a half-written
 * file, or a machine. To remove a large file takes a file system seconds. A stream that comes
 * meanwhile is not read.
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
#include "snapshot/private.h"

#define SYNC_BYTES (UINT64_C(4) << 20)
/* Of received bytes: a sender is given up that sends one beyond the window. */
#define WAITING_MAX ((size_t)SNAPSHOT_WINDOW + SNAPSHOT_FRAME_MAX)
#define ALIVE_MS 500u /* between messages that tell the sender that this node is alive */

enum state { STATE_IDLE, STATE_RECEIVING, STATE_DECODING, STATE_READY, STATE_DROPPING };

/* A piece of work for the worker, and its result. */
struct work {
    struct host_work work;
    struct snapshot_install *owner;
    enum state state;          /* when it began */
    struct snapshot_part part; /* the file */
    struct fli_buf bytes;      /* to be written */
    uint64_t synced;
    struct snapshot_meta meta;
    struct machine *machine; /* decoded; or to be destroyed */
    struct snapshot_error error;
};

struct snapshot_install {
    struct snapshot_install_config config;
    enum state state;
    bool stopping;
    bool installed; /* it is: the snapshots before it are of no use */
    bool reads;     /* the stream was started */
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

static int write_bytes(struct work *w)
{
    int rv = 0;
    if (w->part.file == NULL) {
        const struct snapshot_install *s = w->owner; /* its entry stays while there is a file */
        w->synced = 0;
        rv = snapshot_part_open(&w->part, s->config.device, s->index, s->term, &w->error);
    }
    if (rv == 0 && w->bytes.len > 0) {
        rv = snapshot_part_write(&w->part, w->bytes.data, w->bytes.len, &w->error);
    }
    if (rv == 0 && w->part.len - w->synced >= SYNC_BYTES) {
        w->synced = w->part.len;
        rv = snapshot_part_sync(&w->part, &w->error);
    }
    return rv;
}

/* The file gets its name only when this node can start from it: under that name it is the newest,
 * and this node's own is removed for it. */
static int finish_file(struct work *w)
{
    uint64_t seed[2];
    struct snapshot_reader *reader;
    fli_random(seed, sizeof seed);
    int rv = snapshot_part_read(&w->part, &reader, &w->error);
    rv = rv != 0 ? rv : snapshot_decode(reader, seed, &w->meta, &w->machine, &w->error);
    if (rv == 0 && !w->owner->config.is_sound(&w->meta)) {
        rv = snapshot_fail(&w->error, FL_ECORRUPT, "no log can go on behind it");
    }
    return rv != 0 ? rv : snapshot_part_finish(&w->part, &w->error);
}

static void work_cb(struct host_work *work)
{
    struct work *w = FLI_CONTAINER_OF(work, struct work, work);
    if (w->state == STATE_DROPPING) {
        machine_destroy(w->machine);
        w->machine = NULL;
        if (w->part.file != NULL) {
            snapshot_part_abort(&w->part);
        }
        if (w->owner->installed) {
            (void)!snapshot_clean(w->owner->config.device, w->owner->index, &w->error);
        }
        return;
    }
    int rv = write_bytes(w);
    rv = rv == 0 && w->state == STATE_DECODING ? finish_file(w) : rv;
    fli_buf_fini(&w->bytes);
    FLI_ASSERT(w->error.code == rv);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void go_on(struct snapshot_install *s);

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

/* What is left of it is for the worker. */
static void drop(struct snapshot_install *s)
{
    fli_buf_fini(&s->waiting);
    s->state = STATE_DROPPING;
    go_on(s);
}

/* The sender closes the stream when it has read this. */
static void fail(struct snapshot_install *s, int error, const char *why)
{
    s->failures++;
    s->state = STATE_DROPPING; /* if the stream is lost now, that is all the same */
    host_log(s->config.host, 2, "the snapshot from node %" PRIu64 " is given up: %s", s->from, why);
    send_done(s, error, why);
    drop(s);
}

static void worked_cb(struct host_work *work)
{
    struct work *w = FLI_CONTAINER_OF(work, struct work, work);
    struct snapshot_install *s = w->owner;
    if (w->state == STATE_DROPPING && w->error.code != 0) {
        host_log(s->config.host, 2, "an old snapshot cannot be removed: %s; this is tried again",
                 w->error.text);
    }
    s->installed = s->installed && w->state != STATE_DROPPING;
    if (s->state == STATE_DROPPING) {
        go_on(s);
    } else if (w->error.code != 0) {
        fail(s, w->error.code, w->error.text);
    } else {
        s->taken = w->part.len;
        if (s->state == STATE_DECODING) {
            s->state = STATE_READY;
        } else {
            send_taken(s);
        }
        go_on(s);
    }
}

static void begin_work(struct snapshot_install *s)
{
    struct work *w = &s->work;
    w->state = s->state;
    w->bytes = s->waiting;
    fli_buf_init(&s->waiting, WAITING_MAX);
    memset(&w->error, 0, sizeof w->error);
    host_work(s->config.host, &w->work, work_cb, worked_cb);
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
    host_log(s->config.host, 3,
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
    go_on(s);
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

static void lost_cb(void *ctx, const char *why)
{
    struct snapshot_install *s = ctx;
    hang_up(s);
    if (s->state == STATE_RECEIVING) {
        fail(s, FL_ENOCONN, why);
    }
}

/* Does what is to be done in this state, when the worker rests. */
static void go_on(struct snapshot_install *s)
{
    const struct stream_callbacks cbs = {.ctx = s, .frame = frame_cb, .lost = lost_cb};
    if (s->work.work.busy) {
        return;
    }
    if (s->state == STATE_DROPPING && s->work.part.file == NULL && s->work.machine == NULL &&
        !s->installed) {
        s->state = STATE_IDLE;
    } else if (s->state == STATE_RECEIVING && s->received == s->size) {
        s->state = STATE_DECODING;
    }
    if (s->state == STATE_DROPPING || s->state == STATE_DECODING || s->waiting.len > 0) {
        begin_work(s);
    } else if (s->state == STATE_READY) {
        s->config.ready(s->config.ctx, &s->work.meta, s->work.machine);
    } else if (s->state == STATE_IDLE && s->stream != NULL && !s->reads) {
        s->reads = true;
        (void)stream_start(s->stream, &cbs);
    }
}

void snapshot_install_accept(struct snapshot_install *s, uint64_t from, struct stream *stream)
{
    /* What is said of one that is whole is for its sender: another one would take it for an answer
     * to what it sends. It calls again after a pause. */
    if (s->stopping || s->state == STATE_DECODING || s->state == STATE_READY) {
        stream_close(stream);
        return;
    }
    hang_up(s);
    if (s->state == STATE_RECEIVING) {
        fail(s, FL_EBUSY, "its sender has begun again");
    }
    s->from = from;
    s->stream = stream;
    s->reads = false;
    go_on(s);
}

void snapshot_install_taken(struct snapshot_install *s, int error, struct machine *garbage)
{
    FLI_ASSERT(s->state == STATE_READY && !s->work.work.busy);
    send_done(s, error, error == 0 ? "" : fl_strerror(error));
    s->installed = error == 0;
    s->work.machine = garbage;
    drop(s);
}

/* Whether it is the sender's turn. */
static bool waits_for_piece(const struct snapshot_install *s)
{
    return s->state == STATE_RECEIVING && !s->work.work.busy && s->waiting.len == 0;
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
    bool counts = s->state != STATE_IDLE && s->state != STATE_DROPPING;
    if (s->stream != NULL && counts && must_report(s) &&
        fli_clock_since_ms(s->sent_ms) >= ALIVE_MS) {
        send_taken(s);
    }
    if (s->state == STATE_READY) {
        go_on(s);
    }
}

bool snapshot_install_busy(const struct snapshot_install *s)
{
    return s->state != STATE_IDLE;
}

uint64_t snapshot_install_receives(const struct snapshot_install *s)
{
    return s->state == STATE_RECEIVING ? s->index : 0;
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
    hang_up(s);
    drop(s);
}

void snapshot_install_destroy(struct snapshot_install *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(!s->work.work.busy && s->waiting.len == 0);
    free(s);
}
