/* test_outbound.c: one RAFT stream to each other member, redialed whenever it ends. */
#include "rig.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer/outbound.h"

struct outbound_fixture {
    struct rig *r;
    struct outbound *o;
    unsigned closed;
};

static struct outbound_peer_stats stats_of(const struct outbound_fixture *k, uint64_t id)
{
    struct outbound_peer_stats stats;
    outbound_peer_stats(k->o, id, &stats);
    assert_int_equal(stats.up, outbound_is_up(k->o, id));
    return stats;
}

/* How often node 2 was connected, and how often that has ended. */
static unsigned up(const struct outbound_fixture *k)
{
    return (unsigned)stats_of(k, 2).times_up;
}

static unsigned down(const struct outbound_fixture *k)
{
    return up(k) - stats_of(k, 2).up;
}

static void closed_cb(void *ctx)
{
    ((struct outbound_fixture *)ctx)->closed++;
}

static void fixture_open(struct outbound_fixture *k, const char *third)
{
    memset(k, 0, sizeof *k);
    k->r = rig_open(third);
    assert_int_equal(outbound_create(&k->r->loop, k->r->a.t, &k->r->members, 1, &k->o), 0);
    outbound_start(k->o);
}

static void fixture_close(struct outbound_fixture *k)
{
    struct rig *r = k->r;
    outbound_close(k->o, closed_cb, k);
    assert_int_equal(k->closed, 0);
    RUN_UNTIL(r, k->closed == 1);
    outbound_destroy(k->o);
    rig_close(r);
}

static int send_text(struct outbound_fixture *k, uint64_t id, const char *text)
{
    struct fli_slice part = {(const uint8_t *)text, strlen(text)};
    return outbound_send(k->o, id, 8, &part, 1);
}

TEST(test_up)
{
    struct outbound_fixture k;
    struct outbound_peer_stats stats;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    assert_int_equal(send_text(&k, 2, "too early"), FL_ENOCONN);
    assert_int_equal(send_text(&k, 1, "to myself"), FL_EINVAL);
    assert_int_equal(send_text(&k, 4, "to nobody"), FL_EINVAL);
    RUN_UNTIL(r, up(&k) == 1 && r->b.accepted == 1);
    assert_false(outbound_is_up(k.o, 3));
    assert_int_equal(send_text(&k, 2, "hello"), 0);
    assert_int_equal(r->b.streams[0].frames, 0);
    outbound_flush(k.o);
    RUN_UNTIL(r, r->b.streams[0].frames == 1);
    assert_int_equal(r->b.streams[0].type, 8);
    assert_memory_equal(r->b.streams[0].body.data, "hello", 5);
    assert_int_equal(r->b.streams[0].kind, STREAM_RAFT);
    outbound_peer_stats(k.o, 2, &stats);
    assert_true(stats.up && stats.sent == 1 && stats.dropped == 1 && stats.times_up == 1);
    outbound_peer_stats(k.o, 4, &stats);
    assert_true(!stats.up && stats.sent == 0);
    fixture_close(&k);
}

/* The other side ends the stream: that is noticed at once, and the node is dialed again. */
TEST(test_hung_up)
{
    struct outbound_fixture k;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    for (unsigned i = 1; i <= 5; i++) {
        RUN_UNTIL(r, up(&k) == i && r->b.accepted == i);
        held_close(&r->b.streams[i - 1]);
        RUN_UNTIL(r, down(&k) == i);
    }
    RUN_UNTIL(r, up(&k) == 6);
    fixture_close(&k);
}

/* The other node goes away, and comes back. */
TEST(test_comes_back)
{
    struct outbound_fixture k;
    struct transport_config config;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    RUN_UNTIL(r, up(&k) == 1 && r->b.accepted == 1);
    side_stop(&r->b);
    RUN_UNTIL(r, down(&k) == 1);
    unsigned absent = r->a.absent;
    RUN_UNTIL(r, r->a.absent >= absent + 5);
    r->b.accepted = 0;
    side_config(r, &r->b, &config);
    side_start(r, &r->b, &config);
    RUN_UNTIL(r, up(&k) == 2 && r->b.accepted == 1);
    fixture_close(&k);
}

TEST(test_refused)
{
    struct outbound_fixture k;
    struct transport_stats stats;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    r->b.refuse = true;
    RUN_UNTIL(r, r->a.answered >= 2);
    assert_int_equal(up(&k), 0);
    r->b.refuse = false;
    RUN_UNTIL(r, up(&k) == 1);
    transport_stats(r->b.t, &stats);
    assert_int_equal(stats.refused, r->a.answered - 1);
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
        outbound_redial(k.o, 3);
        RUN_UNTIL(r, r->a.absent > before);
    }
    outbound_redial(k.o, 2); /* up, or nobody: nothing happens */
    outbound_redial(k.o, 4);
    fixture_close(&k);
}

/* A peer reads nothing: messages beyond the queue are dropped, and the log says once how much
 * waits. */
TEST(test_queue)
{
    struct outbound_fixture k;
    static uint8_t body[100000];
    struct fli_slice part = {body, sizeof body};
    struct outbound_peer_stats stats;
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    r->b.unstarted = true;
    RUN_UNTIL(r, up(&k) == 1 && r->b.accepted == 1);
    unsigned taken = 0;
    while (outbound_send(k.o, 2, 1, &part, 1) == 0) {
        outbound_flush(k.o);
        taken++;
        assert_true(taken < 1000);
    }
    unsigned logged = r->a.logged;
    char text[64];
    outbound_peer_stats(k.o, 2, &stats);
    snprintf(text, sizeof text, "node 2 does not take its messages: %zu KiB", stats.unsent >> 10);
    assert_non_null(strstr(r->a.log, text));
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(outbound_send(k.o, 2, 1, &part, 1), FL_ELIMIT);
    }
    assert_int_equal(r->a.logged, logged);
    outbound_peer_stats(k.o, 2, &stats);
    assert_true(stats.dropped >= 11 && stats.sent == taken);
    assert_true(stats.unsent > 0 && stats.unsent <= RIG_LIMITS.out_max);
    held_start(&r->b.streams[0]);
    RUN_UNTIL(r, r->b.streams[0].frames == taken);
    RUN_UNTIL(r, (outbound_peer_stats(k.o, 2, &stats), stats.unsent == 0));
    assert_int_equal(outbound_send(k.o, 2, 1, &part, 1), 0);
    assert_int_equal(down(&k), 0);
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
    RUN_UNTIL(r, up(&k) == 1 && r->b.accepted == 1);
    assert_int_equal(outbound_send(k.o, 2, 1, &part, 1), FL_EINVAL);
    part.len--;
    assert_int_equal(outbound_send(k.o, 2, 1, &part, 1), 0);
    outbound_flush(k.o);
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
    RUN_UNTIL(r, up(&k) == 1 && r->b.accepted == 1);
    assert_int_equal(stream_send(r->b.streams[0].s, 1, NULL, 0), 0);
    stream_flush(r->b.streams[0].s);
    RUN_UNTIL(r, down(&k) == 1);
    RUN_UNTIL(r, up(&k) == 2);
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
    RUN_UNTIL(r, up(&k) == 1);
    int fd = accept(listener, NULL, NULL);
    RUN_UNTIL(r, plain_peek(fd) == (ssize_t)HANDSHAKE_SIZE);
    close(fd);
    fixture_close(&k);
    close(listener);
}

static void set_members(struct outbound_fixture *k, const struct members *m)
{
    transport_set_members(k->r->a.t, m);
    outbound_set_members(k->o, m);
}

/* Calls to former members are under way in all places when a member comes. It is dialed as soon as
 * one of them has ended. */
TEST(test_a_member_that_finds_no_place)
{
    struct outbound_fixture k;
    struct transport_stats stats;
    uint16_t port;
    int fds[KNOWN_MEMBERS_MAX];
    char silent[64];
    int listener = plain_listener(&port, KNOWN_MEMBERS_MAX);
    snprintf(silent, sizeof silent, "127.0.0.1:%u", port);
    fixture_open(&k, NULL);
    struct rig *r = k.r;
    struct members with = {0};
    struct members nobody = {0};
    assert_true(members_put(&nobody, 1, r->members.list[0].address));
    RUN_UNTIL(r, up(&k) == 1);
    set_members(&k, &nobody);
    RUN_UNTIL(r, (transport_stats(r->a.t, &stats), stats.dialing == 0));
    transport_set_times(r->a.t, 600000, 600000, 0);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        with = nobody;
        assert_true(members_put(&with, 100 + i, silent));
        set_members(&k, &with);
        RUN_UNTIL(r, (transport_stats(r->a.t, &stats), stats.dialing == i + 1));
        fds[i] = accept(listener, NULL, NULL);
        assert_true(fds[i] >= 0);
    }
    set_members(&k, &r->members);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        close(fds[i]);
    }
    close(listener);
    RUN_UNTIL(r, up(&k) == 1);
    fixture_close(&k);
}
