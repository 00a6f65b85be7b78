/* install.c: see install.h.
 *
 *   IDLE --BEGIN--> RECEIVING --all pieces--> DECODING --whole--> READY
 *     ^                 |failure                 |failure           |taken
 *     '---- DROPPING <--'------------------------'------------------'
 *
 * The worker has one piece of work at a time. A stream that ends meanwhile is noticed when the work
 * comes back. In RECEIVING it makes the file and writes; in DECODING it finishes the file; in
 * DROPPING it removes what is left: a half-written file, or a machine and older snapshots. To
 * remove a large file takes a file system seconds.
 *
 * The bytes are written as they come. Whether they are a snapshot is seen when they are decoded,
 * before the file gets its name. */
#include "snapshot/install.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"

#define SYNC_BYTES (UINT64_C(4) << 20)
/* Of received bytes: a sender is given up that sends one beyond the window. */
#define WAITING_MAX ((size_t)SNAPSHOT_WINDOW + SNAPSHOT_FRAME_MAX)
#define ALIVE_MS 500u /* between messages that tell the sender that this node is alive */

static const char has_all[] = "this node has all that is in it";

/* ---- the worker ------------------------------------------------------------------------------ */

static int write_bytes(struct snapshot_install *s)
{
    int rv = 0;
    if (s->part.file == NULL) { /* the loop leaves index and term alone while there is a file */
        s->synced = 0;
        rv = snapshot_part_open(&s->part, s->device, s->index, s->term, &s->error);
    }
    if (rv == 0 && s->bytes.len > 0) {
        rv = snapshot_part_write(&s->part, s->bytes.data, s->bytes.len, &s->error);
    }
    if (rv == 0 && s->part.len - s->synced >= SYNC_BYTES) {
        s->synced = s->part.len;
        rv = snapshot_part_sync(&s->part, &s->error);
    }
    fli_buf_fini(&s->bytes);
    return rv;
}

/* The file gets its name only when this node can start from it: under that name it is the newest,
 * and this node's own is removed for it. */
static int finish_file(struct snapshot_install *s)
{
    uint64_t seed[2];
    struct snapshot_reader *reader;
    fli_random(seed, sizeof seed);
    int rv = snapshot_part_read(&s->part, &reader, &s->error);
    rv = rv != 0 ? rv : snapshot_decode(reader, seed, &s->meta, &s->machine, &s->error);
    if (rv == 0 && !s->is_sound(&s->meta)) {
        rv = snapshot_fail(&s->error, FL_ECORRUPT, "no log can go on behind it");
    }
    return rv != 0 ? rv : snapshot_part_finish(&s->part, &s->error);
}

static int remove_rest(struct snapshot_install *s)
{
    machine_destroy(s->machine);
    s->machine = NULL;
    if (s->part.file != NULL) {
        snapshot_part_abort(&s->part);
    }
    return s->installed ? snapshot_clean(s->device, s->index, &s->error) : 0;
}

static void work_cb(struct host_work *work)
{
    struct snapshot_install *s = FLI_CONTAINER_OF(work, struct snapshot_install, work);
    int rv = s->works_in == INSTALL_DROPPING ? remove_rest(s) : write_bytes(s);
    rv = rv == 0 && s->works_in == INSTALL_DECODING ? finish_file(s) : rv;
    FLI_ASSERT(s->error.code == rv);
}

/* ---- the loop -------------------------------------------------------------------------------- */

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

/* What is left of it is for the worker. If the stream is lost from now on, that is all the same:
 * the sender closes it when it has read this. */
static void drop(struct snapshot_install *s, int error, const char *why)
{
    s->state = INSTALL_DROPPING;
    s->installed = error == 0;
    fli_buf_fini(&s->waiting);
    send_done(s, error, why);
}

static void fail(struct snapshot_install *s, int error, const char *why)
{
    s->failures++;
    host_log(s->host, 2, "the snapshot from node %" PRIu64 " is given up: %s", s->from, why);
    drop(s, error, why);
}

static void go_on(struct snapshot_install *s);

static void on_written(struct snapshot_install *s)
{
    if (s->error.code != 0) {
        fail(s, s->error.code, s->error.text);
        return;
    }
    s->taken = s->part.len;
    if (s->state == INSTALL_DECODING) {
        s->state = INSTALL_READY;
    } else {
        send_taken(s);
    }
}

static void worked_cb(struct host_work *work)
{
    struct snapshot_install *s = FLI_CONTAINER_OF(work, struct snapshot_install, work);
    if (s->works_in == INSTALL_DROPPING) {
        s->state = INSTALL_IDLE;
        if (s->error.code != 0) {
            host_log(s->host, 2, "an old snapshot cannot be removed: %s; this is tried again",
                     s->error.text);
        }
    } else if (s->state != INSTALL_DROPPING) { /* else it was given up meanwhile */
        on_written(s);
    }
    go_on(s);
}

/* Gives the worker what is to be done in this state. */
static void go_on(struct snapshot_install *s)
{
    bool works = s->state == INSTALL_DECODING || s->state == INSTALL_DROPPING;
    if (s->work.busy || (!works && s->waiting.len == 0)) {
        return;
    }
    s->works_in = s->state;
    s->bytes = s->waiting;
    fli_buf_init(&s->waiting, WAITING_MAX);
    memset(&s->error, 0, sizeof s->error);
    host_work(s->host, &s->work, work_cb, worked_cb);
}

static void on_begin(struct snapshot_install *s, struct fli_slice body)
{
    if (body.len != 24 || s->state != INSTALL_IDLE) {
        send_done(s, FL_EBUSY, "another snapshot is being installed");
        return;
    }
    if (fli_get_u64(body.data) <= s->applied) {
        send_done(s, FL_EINVAL, has_all);
        return;
    }
    s->index = fli_get_u64(body.data);
    s->term = fli_get_u64(body.data + 8);
    s->size = fli_get_u64(body.data + 16);
    host_log(s->host, 3,
             "a snapshot of entry %" PRIu64 " comes from node %" PRIu64 " (%" PRIu64 " bytes)",
             s->index, s->from, s->size);
    s->received = 0;
    s->taken = 0;
    s->state = INSTALL_RECEIVING;
    fli_buf_init(&s->waiting, WAITING_MAX);
}

static void on_data(struct snapshot_install *s, struct fli_slice body)
{
    if (s->state != INSTALL_RECEIVING) {
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
    if (s->state == INSTALL_RECEIVING) {
        fail(s, FL_ENOCONN, why);
    }
}

/* What is said of one that has come is for its sender: another one would take it for an answer to
 * what it sends. */
void snapshot_install_accept(struct snapshot_install *s, uint64_t from, struct stream *stream)
{
    const struct stream_callbacks cbs = {.ctx = s, .frame = frame_cb, .lost = lost_cb};
    if (s->state == INSTALL_RECEIVING) {
        hang_up(s);
        fail(s, FL_EBUSY, "its sender has begun again");
    }
    if (s->state != INSTALL_IDLE) {
        stream_close(stream);
        return;
    }
    hang_up(s);
    s->from = from;
    s->stream = stream;
    (void)stream_start(stream, &cbs);
}

void snapshot_install_taken(struct snapshot_install *s, int error, struct machine *garbage)
{
    FLI_ASSERT(s->state == INSTALL_READY && !s->work.busy);
    s->machine = garbage;
    drop(s, error, error == 0 ? "" : fl_strerror(error));
    go_on(s);
}

/* Whether it is the sender's turn. */
static bool waits_for_piece(const struct snapshot_install *s)
{
    return s->state == INSTALL_RECEIVING && !s->work.busy && s->waiting.len == 0 &&
           s->received < s->size;
}

/* Whether the sender must be told that this node is alive. It is not told while nothing comes of
 * the next piece. A piece may be lost, with the stream still up: the silence then makes the sender
 * begin again. */
static bool must_report(const struct snapshot_install *s)
{
    return s->stream != NULL && s->state != INSTALL_IDLE && s->state != INSTALL_DROPPING &&
           (!waits_for_piece(s) || stream_heard_ms(s->stream) > s->sent_ms);
}

/* A sender whose machine is gone, or that never meant to send, would be waited for without end. */
static bool is_silent(const struct snapshot_install *s)
{
    uint64_t since_ms = stream_heard_ms(s->stream);
    since_ms = since_ms > s->sent_ms ? since_ms : s->sent_ms; /* what it has to answer */
    return waits_for_piece(s) && fli_clock_since_ms(since_ms) > SNAPSHOT_SILENCE_MS;
}

static void check_received(struct snapshot_install *s, bool own)
{
    bool whole = s->received == s->size && s->waiting.len == 0 && !s->work.busy;
    if (s->applied >= s->index) {
        fail(s, FL_EINVAL, has_all);
    } else if (is_silent(s)) {
        hang_up(s);
        fail(s, FL_ENOCONN, "silence");
    } else if (whole && !own) {
        s->state = INSTALL_DECODING;
    }
}

bool snapshot_install_turn(struct snapshot_install *s, uint64_t applied, bool own)
{
    s->applied = applied;
    if (s->state == INSTALL_RECEIVING) {
        check_received(s, own);
    }
    if (must_report(s) && fli_clock_since_ms(s->sent_ms) >= ALIVE_MS) {
        send_taken(s);
    }
    go_on(s);
    return s->state == INSTALL_READY;
}

void snapshot_install_stop(struct snapshot_install *s)
{
    hang_up(s);
    if (s->state != INSTALL_IDLE && s->state != INSTALL_DROPPING) {
        drop(s, FL_ENOCONN, "");
        go_on(s);
    }
}
