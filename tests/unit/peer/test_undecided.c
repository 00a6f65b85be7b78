/* Handshakes that wait for a decision of the node, which has to write something first. */
#include "rig.h"

#include <unistd.h>

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

/* The descriptor of one whose handshake waits for a decision. */
static int connect_undecided(struct rig *r)
{
    struct handshake h = rig_handshake(r);
    r->b.undecided = true;
    int fd = plain_connect(r->ports[1]);
    plain_say(fd, &h);
    RUN_UNTIL(r, r->b.judged == 1);
    return fd;
}

TEST_WITH(a_handshake_waits_for_a_decision, set_up, tear_down)
{
    struct rig *r = *state;
    uint8_t bytes[HANDSHAKE_SIZE];
    int fd = connect_undecided(r);
    assert_false(r->b.peer.waited);
    transport_check_again(r->b.t);
    assert_int_equal(r->b.judged, 2);
    assert_true(r->b.peer.waited);
    assert_int_equal(plain_peek(fd), 0);
    assert_int_equal(rig_pending(&r->b), 1);
    r->b.undecided = false;
    transport_check_again(r->b.t);
    plain_read_answer(r, fd, bytes);
    assert_int_equal(bytes[19], HANDSHAKE_WELCOME);
    assert_int_equal(r->b.accepted, 1);
    close(fd);
}

TEST_WITH(a_refusal_may_come_later, set_up, tear_down)
{
    struct rig *r = *state;
    uint8_t bytes[HANDSHAKE_SIZE];
    int fd = connect_undecided(r);
    r->b.undecided = false;
    r->b.refuse = true;
    transport_check_again(r->b.t);
    plain_read_answer(r, fd, bytes);
    assert_int_equal(bytes[19], HANDSHAKE_OTHER_INCARNATION);
    assert_int_equal(rig_pending(&r->b), 0);
    close(fd);
}

/* Whoever hangs up while it waits, or goes on without an answer, is dropped. */
TEST_WITH(who_does_not_wait_is_dropped, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    r->b.undecided = true;
    int gone = plain_connect(r->ports[1]);
    plain_say(gone, &h);
    RUN_UNTIL(r, r->b.judged == 1);
    close(gone);
    RUN_UNTIL(r, rig_pending(&r->b) == 0);
    int hasty = plain_connect(r->ports[1]);
    plain_say(hasty, &h);
    RUN_UNTIL(r, r->b.judged == 2);
    plain_send(hasty, "more", 4);
    RUN_UNTIL(r, rig_pending(&r->b) == 0);
    transport_check_again(r->b.t);
    assert_int_equal(r->b.judged, 2);
    close(hasty);
}

static void note_dialed(void *ctx, int status, const struct peer_identity *peer, struct stream *s)
{
    int *ret = ctx;
    *ret = status == 0 ? 1 : 2;
    stream_close(s);
}

TEST_WITH(a_call_waits_for_a_decision, set_up, tear_down)
{
    struct rig *r = *state;
    int done = 0;
    r->a.undecided = true;
    assert_int_equal(transport_dial(r->a.t, 2, STREAM_RAFT, note_dialed, &done), 0);
    RUN_UNTIL(r, r->a.judged == 1);
    assert_true(r->a.peer.welcomes);
    transport_check_again(r->a.t);
    assert_int_equal(r->a.judged, 2);
    assert_int_equal(done, 0);
    r->a.undecided = false;
    transport_check_again(r->a.t);
    assert_int_equal(done, 1);
    assert_int_equal(r->a.verdict, HANDSHAKE_WELCOME);
}

/* The called node has answered, and may send: that waits too. */
TEST_WITH(a_call_that_waits_is_not_read, set_up, tear_down)
{
    struct rig *r = *state;
    int done = 0;
    r->a.undecided = true;
    assert_int_equal(transport_dial(r->a.t, 2, STREAM_SNAPSHOT, note_dialed, &done), 0);
    RUN_UNTIL(r, r->a.judged == 1 && r->b.accepted == 1);
    assert_int_equal(stream_send(r->b.streams[0].s, 1, NULL, 0), 0);
    stream_flush(r->b.streams[0].s);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(rig_turn(r, rig_deadline(r)));
    }
    r->a.undecided = false;
    transport_check_again(r->a.t);
    assert_int_equal(done, 1);
}

/* It ends with its transport. */
TEST_WITH(a_call_that_waits_is_ended, set_up, tear_down)
{
    struct rig *r = *state;
    static int done;
    done = 0;
    r->a.undecided = true;
    assert_int_equal(transport_dial(r->a.t, 2, STREAM_RAFT, note_dialed, &done), 0);
    RUN_UNTIL(r, r->a.judged == 1);
}
