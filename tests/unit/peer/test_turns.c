/* What other nodes, and strangers, can make one turn of the loop do. */
#include "rig.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "peer/frame.h"
#include "peer/transport_private.h"

#define CONNECTIONS 100u
#define FLOODS TRANSPORT_ACCEPTED_MAX
#define FLOOD_BYTES ((size_t)1 << 20)
#define FRAME_COST_US 50u
#define FRAMES_OF_A_READ (STREAM_READ_SIZE / FRAME_HEADER_SIZE)

static int set_up(void **state)
{
    *state = rig_open(NULL);
    return 0;
}

static int tear_down(void **state)
{
    rig_close(*state);
    return 0;
}

static unsigned seen(const struct side *s)
{
    return rig_pending(s) + rig_turned_away(s);
}

/* A hundred wait to be accepted when the turn begins. The loop must leave them before the last,
 * or it would never leave while others come as fast. */
TEST_WITH(accepting_has_a_share, set_up, tear_down)
{
    struct rig *r = *state;
    int fds[CONNECTIONS];
    unsigned before = 0;
    unsigned most = 0;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        fds[i] = plain_connect(r->ports[1]);
    }
    uint64_t deadline_ms = rig_deadline(r);
    while (before < CONNECTIONS) {
        uv_run(&r->loop, UV_RUN_NOWAIT);
        unsigned now = seen(&r->b);
        most = now - before > most ? now - before : most;
        before = now;
        assert_true(uv_now(&r->loop) < deadline_ms);
    }
    printf("%u connections, at most %u of them in a turn\n", CONNECTIONS, most);
    assert_true(most <= TRANSPORT_ACCEPTS_TURN_MAX);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        close(fds[i]);
    }
    rig_pair(r, STREAM_RELAY);
}

/* ---- a member that is broken, or malicious ---- */

struct costly {
    struct stream *s;
    unsigned frames;
};

/* As if each message took so long to handle. */
static void costly_frame(void *ctx, uint8_t type, struct fli_slice body)
{
    struct costly *c = ctx;
    uint64_t until_ns = fli_clock_ns() + FRAME_COST_US * UINT64_C(1000);
    c->frames++;
    while (fli_clock_ns() < until_ns) {
    }
}

static void costly_lost(void *ctx, const char *why)
{
}

static void costly_start(struct costly *c, struct held_stream *from)
{
    struct stream_callbacks cbs = {.ctx = c, .frame = costly_frame, .lost = costly_lost};
    c->s = from->s;
    from->s = NULL;
    assert_true(stream_start(c->s, &cbs));
}

/* A connection on which node 1 sends, from outside of its transport. */
static int member(struct rig *r, enum stream_kind kind)
{
    struct handshake h = rig_handshake(r);
    uint8_t answer[HANDSHAKE_SIZE];
    h.kind = kind;
    int fd = plain_connect(r->ports[1]);
    plain_say(fd, &h);
    plain_read_answer(r, fd, answer);
    return fd;
}

static void send_frames(int fd, size_t bytes)
{
    uint8_t frames[64 * FRAME_HEADER_SIZE];
    for (size_t at = 0; at < sizeof frames; at += FRAME_HEADER_SIZE) {
        frame_header_encode(1, NULL, 0, frames + at);
    }
    for (size_t sent = 0; sent < bytes; sent += sizeof frames) {
        ssize_t n = send(fd, frames, sizeof frames, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n != (ssize_t)sizeof frames) {
            return; /* the kernel has no room for more */
        }
    }
}

/* Four streams bring as many small messages as they can. A turn works on a part of them, and a
 * message of another stream is among the next. */
TEST_WITH(reading_has_a_share, set_up, tear_down)
{
    struct rig *r = *state;
    struct costly flood[FLOODS] = {0};
    struct costly other = {0};
    int fds[FLOODS + 1];
    r->b.unstarted = true;
    for (unsigned i = 0; i <= FLOODS; i++) {
        fds[i] = member(r, i == FLOODS ? STREAM_RAFT : STREAM_RELAY);
        costly_start(i == FLOODS ? &other : &flood[i], &r->b.streams[i]);
    }
    for (unsigned i = 0; i < FLOODS; i++) {
        send_frames(fds[i], FLOOD_BYTES);
    }
    send_frames(fds[FLOODS], 1);
    unsigned turns = 0;
    unsigned before = 0;
    while (other.frames == 0 || turns < 4) {
        uv_run(&r->loop, UV_RUN_NOWAIT);
        unsigned now = 0;
        for (unsigned i = 0; i < FLOODS; i++) {
            now += flood[i].frames;
        }
        printf("turn %u: %u messages of the flood, %u of the other\n", turns, now - before,
               other.frames);
        assert_true(now - before <= FLOODS * FRAMES_OF_A_READ);
        before = now;
        turns++;
        assert_true(other.frames > 0 || turns < 3);
    }
    for (unsigned i = 0; i <= FLOODS; i++) {
        stream_close(i == FLOODS ? other.s : flood[i].s);
        close(fds[i]);
    }
}

/* What had to wait arrives whole, and in order, when others have been served. It has room in the
 * buffer of the kernel: a receiver that leaves none for `unacked_ms` loses the connection. */
TEST_WITH(nothing_is_lost, set_up, tear_down)
{
    struct rig *r = *state;
    struct costly c = {0};
    unsigned sent = 3000;
    r->b.unstarted = true;
    rig_dial(r, 2, STREAM_RELAY);
    held_start(&r->mine);
    RUN_UNTIL(r, r->b.accepted == 1);
    costly_start(&c, &r->b.streams[0]);
    for (unsigned i = 0; i < sent; i++) {
        assert_int_equal(stream_send(r->mine.s, 1, NULL, 0), 0);
    }
    stream_flush(r->mine.s);
    RUN_UNTIL(r, c.frames == sent);
    stream_close(c.s);
}

/* ---- the rig itself ---- */

/* Its timer is due before libuv looks for events: the turn ends all the same. */
TEST_WITH(a_turn_of_the_rig_ends_though_the_process_stood_still, set_up, tear_down)
{
    struct rig *r = *state;
    uint64_t deadline_ms = rig_deadline(r);
    assert_int_equal(usleep(50000), 0);
    assert_true(rig_turn(r, deadline_ms));
}
