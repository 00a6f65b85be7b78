/* test_outbound.c: one RAFT stream to each other member, redialed whenever it ends. */
#include "rig.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer/outbound.h"

struct outbound_fixture {
    struct rig *r;
    struct host host;
    struct outbound two, three; /* to those nodes */
};

static void turn(void *ctx)
{
    struct outbound_fixture *k = ctx;
    outbound_turn(&k->two);
    outbound_turn(&k->three);
}

static void nothing(void *ctx)
{
}

static void fixture_open(struct outbound_fixture *k, const char *third)
{
    memset(k, 0, sizeof *k);
    k->r = rig_open(third);
    k->host.wake = nothing;
    outbound_open(&k->two, &k->host, k->r->a.t, 2);
    outbound_open(&k->three, &k->host, k->r->a.t, 3);
    k->r->turn = turn;
    k->r->turn_ctx = k;
}

static void fixture_close(struct outbound_fixture *k)
{
    outbound_close(&k->two);
    outbound_close(&k->three);
    rig_close(k->r);
}

static int send_text(struct outbound_fixture *k, const char *text)
{
    struct fli_slice part = {(const uint8_t *)text, strlen(text)};
    return outbound_send(&k->two, 8, &part, 1);
}

TEST(test_up)
{
    struct outbound_fixture k;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    assert_int_equal(send_text(&k, "too early"), FL_ENOCONN);
    RUN_UNTIL(r, outbound_is_up(&k.two) && r->b.accepted == 1);
    assert_false(outbound_is_up(&k.three));
    assert_int_equal(send_text(&k, "hello"), 0);
    assert_int_equal(r->b.streams[0].frames, 0);
    outbound_flush(&k.two);
    RUN_UNTIL(r, r->b.streams[0].frames == 1);
    assert_int_equal(r->b.streams[0].type, 8);
    assert_memory_equal(r->b.streams[0].body.data, "hello", 5);
    assert_int_equal(r->b.streams[0].kind, STREAM_RAFT);
    fixture_close(&k);
}

/* The other side ends the stream: that is noticed at once, and the node is dialed again. */
TEST(test_hung_up)
{
    struct outbound_fixture k;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    for (unsigned i = 1; i <= 5; i++) {
        RUN_UNTIL(r, outbound_is_up(&k.two) && r->b.accepted == i);
        held_close(&r->b.streams[i - 1]);
        RUN_UNTIL(r, !outbound_is_up(&k.two));
    }
    RUN_UNTIL(r, outbound_is_up(&k.two));
    fixture_close(&k);
}

/* The other node goes away, and comes back. */
TEST(test_comes_back)
{
    struct outbound_fixture k;
    struct transport_config config;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    RUN_UNTIL(r, outbound_is_up(&k.two) && r->b.accepted == 1);
    side_stop(&r->b);
    RUN_UNTIL(r, !outbound_is_up(&k.two));
    unsigned absent = r->a.absent;
    RUN_UNTIL(r, r->a.absent >= absent + 5);
    r->b.accepted = 0;
    side_config(r, &r->b, &config);
    side_start(r, &r->b, &config);
    RUN_UNTIL(r, outbound_is_up(&k.two) && r->b.accepted == 1);
    fixture_close(&k);
}

TEST(test_refused)
{
    struct outbound_fixture k;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    r->b.refuse = true;
    RUN_UNTIL(r, r->a.answered >= 2);
    assert_false(outbound_is_up(&k.two));
    r->b.refuse = false;
    RUN_UNTIL(r, outbound_is_up(&k.two));
    assert_int_equal(rig_turned_away(&r->b), r->a.answered - 1);
    fixture_close(&k);
}

/* outbound_redial() dials at once, without the rest of the pause. */
TEST(test_redial)
{
    struct outbound_fixture k;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    RUN_UNTIL(r, r->a.absent >= 6); /* of node 3, whose pause has grown */
    for (unsigned i = 0; i < 20; i++) {
        unsigned before = r->a.absent;
        outbound_redial(&k.three);
        RUN_UNTIL(r, r->a.absent > before);
    }
    outbound_redial(&k.two); /* it is up: nothing happens */
    fixture_close(&k);
}

/* A peer reads nothing: messages beyond the queue are dropped, and the log says once how much
 * waits. */
TEST(test_queue)
{
    struct outbound_fixture k;
    static uint8_t body[100000];
    struct fli_slice part = {body, sizeof body};
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    r->b.unstarted = true;
    RUN_UNTIL(r, outbound_is_up(&k.two) && r->b.accepted == 1);
    unsigned taken = 0;
    while (outbound_send(&k.two, 1, &part, 1) == 0) {
        outbound_flush(&k.two);
        taken++;
        assert_true(taken < 1000);
    }
    unsigned logged = r->a.logged;
    char text[64];
    size_t unsent = stream_unsent(k.two.stream);
    snprintf(text, sizeof text, "node 2 does not take its messages: %zu KiB", unsent >> 10);
    assert_non_null(strstr(r->a.log, text));
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(outbound_send(&k.two, 1, &part, 1), FL_ELIMIT);
    }
    assert_int_equal(r->a.logged, logged);
    assert_int_equal(stream_unsent(k.two.stream), unsent);
    assert_true(unsent > 0 && unsent <= RIG_LIMITS.out_max);
    held_start(&r->b.streams[0]);
    RUN_UNTIL(r, r->b.streams[0].frames == taken);
    RUN_UNTIL(r, stream_unsent(k.two.stream) == 0);
    assert_int_equal(outbound_send(&k.two, 1, &part, 1), 0);
    assert_int_equal(r->a.answered, 1);
    fixture_close(&k);
}

/* A message may be as large as a frame, and no larger. */
TEST(test_large_message)
{
    struct outbound_fixture k;
    static uint8_t body[(1 << 20) + 1];
    struct fli_slice part = {body, sizeof body};
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    RUN_UNTIL(r, outbound_is_up(&k.two) && r->b.accepted == 1);
    assert_int_equal(outbound_send(&k.two, 1, &part, 1), FL_EINVAL);
    part.len--;
    assert_int_equal(outbound_send(&k.two, 1, &part, 1), 0);
    outbound_flush(&k.two);
    RUN_UNTIL(r, r->b.streams[0].frames == 1);
    assert_int_equal(r->b.streams[0].body.len, 1 << 20);
    fixture_close(&k);
}

/* Only the dialing side may send on a RAFT stream: a peer that sends on it is cut off. */
TEST(test_peer_sends)
{
    struct outbound_fixture k;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    RUN_UNTIL(r, outbound_is_up(&k.two) && r->b.accepted == 1);
    assert_int_equal(stream_send(r->b.streams[0].s, 1, NULL, 0), 0);
    stream_flush(r->b.streams[0].s);
    RUN_UNTIL(r, !outbound_is_up(&k.two));
    RUN_UNTIL(r, outbound_is_up(&k.two));
    fixture_close(&k);
}

/* Node 3 accepts connections and sends nothing: the other streams do not wait for it, and
 * `outbound` can be closed. */
TEST(test_close_while_dialing)
{
    struct outbound_fixture k;
    uint16_t port;
    char address[64];
    int listener = plain_listener(&port, 8);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    fixture_open(&k, address);
    struct rig *r = k.r;
    RUN_UNTIL(r, outbound_is_up(&k.two));
    int fd = accept(listener, NULL, NULL);
    RUN_UNTIL(r, plain_peek(fd) == (ssize_t)HANDSHAKE_SIZE);
    close(fd);
    fixture_close(&k);
    close(listener);
}

static void set_members(struct outbound_fixture *k, struct outbound *o, uint64_t id,
                        const struct members *m)
{
    outbound_close(o);
    transport_set_members(k->r->a.t, m);
    assert_false(o->dialing);
    outbound_open(o, &k->host, k->r->a.t, id);
}

/* More members come and go, while they are called, than a table of peers has places. Each call ends
 * with its member, and the next one is called at once. */
TEST(test_a_member_that_finds_no_place)
{
    struct outbound_fixture k;
    uint16_t port;
    int fds[KNOWN_MEMBERS_MAX + 1];
    char silent[64];
    int listener = plain_listener(&port, KNOWN_MEMBERS_MAX + 1);
    snprintf(silent, sizeof silent, "127.0.0.1:%u", port);
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    RUN_UNTIL(r, outbound_is_up(&k.two));
    for (unsigned i = 0; i <= KNOWN_MEMBERS_MAX; i++) {
        struct members with = r->members;
        with.n = 2;
        assert_true(members_put(&with, 100 + i, silent));
        set_members(&k, &k.three, 100 + i, &with);
        RUN_UNTIL(r, k.three.dialing);
        fds[i] = accept(listener, NULL, NULL);
        assert_true(fds[i] >= 0);
    }
    set_members(&k, &k.three, 3, &r->members);
    unsigned absent = r->a.absent;
    RUN_UNTIL(r, r->a.absent > absent && rig_dialing(&r->a) == 0);
    assert_int_equal(r->a.absent_id, 3);
    for (unsigned i = 0; i <= KNOWN_MEMBERS_MAX; i++) {
        close(fds[i]);
    }
    close(listener);
    fixture_close(&k);
}
