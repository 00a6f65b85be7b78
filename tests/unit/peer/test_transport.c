/* The peer port: which callers are accepted, which are refused and with which answer, and how a
 * node dials others. Two transports and plain sockets on one loop. */
#include "rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "peer/transport_private.h"

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

/* ---- strangers ---- */

TEST_WITH(test_garbage, set_up, tear_down)
{
    struct rig *r = *state;
    uint8_t bytes[4096];
    int fd = plain_connect(r->ports[1]);
    memset(bytes, 0xa5, sizeof bytes);
    plain_send(fd, bytes, sizeof bytes);
    RUN_UNTIL(r, plain_peek(fd) < 0);
    assert_int_equal(r->b.accepted, 0);
    assert_int_equal(rig_pending(&r->b), 0);
    assert_non_null(strstr(r->b.log, "127.0.0.1"));
    close(fd);
}

/* A handshake of which one bit has changed gets no answer. */
TEST_WITH(test_damaged, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    uint8_t bytes[HANDSHAKE_SIZE];
    handshake_encode(&h, &RIG_FORMATS, bytes);
    for (unsigned bit = 0; bit < 8 * HANDSHAKE_SIZE; bit += 13) {
        int fd = plain_connect(r->ports[1]);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        plain_send(fd, bytes, sizeof bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        RUN_UNTIL(r, plain_peek(fd) != 0);
        assert_true(plain_peek(fd) < 0);
        close(fd);
    }
    assert_int_equal(r->b.accepted + r->b.judged, 0);
}

TEST_WITH(test_hangs_up_half_way, set_up, tear_down)
{
    struct rig *r = *state;
    int fd = plain_connect(r->ports[1]);
    plain_send(fd, "fencelok", 8);
    RUN_UNTIL(r, rig_pending(&r->b) == 1);
    close(fd);
    RUN_UNTIL(r, rig_pending(&r->b) == 0);
}

TEST_WITH(test_silent, set_up, tear_down)
{
    struct rig *r = *state;
    struct transport_config config;
    side_stop(&r->b);
    side_config(r, &r->b, &config);
    side_start(r, &r->b, &config);
    r->b.t->pending_ms = 100;
    int fd = plain_connect(r->ports[1]);
    RUN_UNTIL(r, plain_peek(fd) == -1);
    assert_int_equal(rig_pending(&r->b), 0);
    close(fd);
}

/* Without a descriptor for a connection, the loop goes on, and the connection waits. */
TEST_WITH(test_no_descriptor, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = files.rlim_max};
    int fd = plain_connect(r->ports[1]);
    plain_say(fd, &h);
    alarm(DEADLINE_MS / 1000); /* a loop that never ends its turn ends this program */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    RUN_UNTIL(r, strstr(r->b.log, "cannot be accepted") != NULL);
    for (unsigned i = 0; i < 20; i++) {
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    alarm(0);
    assert_int_equal(r->b.accepted, 0);
    RUN_UNTIL(r, r->b.accepted == 1);
    close(fd);
}

/* When one address has more silent connections than it may, its oldest is closed, and a real peer
 * at that address is heard. */
TEST_WITH(test_many_silent_of_one_address, set_up, tear_down)
{
    struct rig *r = *state;
    int fds[TRANSPORT_PENDING_ADDRESS_MAX + 1];
    struct handshake h = rig_handshake(r);
    int other = plain_connect_from(INADDR_LOOPBACK + 1, r->ports[1]);
    for (unsigned i = 0; i < TRANSPORT_PENDING_ADDRESS_MAX; i++) {
        fds[i] = plain_connect(r->ports[1]);
        RUN_UNTIL(r, rig_pending(&r->b) == i + 2);
    }
    assert_int_equal(plain_peek(fds[0]), 0);
    fds[TRANSPORT_PENDING_ADDRESS_MAX] = plain_connect(r->ports[1]);
    RUN_UNTIL(r, plain_peek(fds[0]) == -1);
    assert_int_equal(rig_pending(&r->b), TRANSPORT_PENDING_ADDRESS_MAX + 1);
    assert_int_equal(plain_peek(fds[1]), 0);
    assert_int_equal(plain_peek(other), 0);
    int fd = plain_connect(r->ports[1]);
    plain_say(fd, &h);
    RUN_UNTIL(r, r->b.accepted == 1);
    assert_int_equal(plain_peek(other), 0);
    close(fd);
    close(other);
    for (unsigned i = 0; i <= TRANSPORT_PENDING_ADDRESS_MAX; i++) {
        close(fds[i]);
    }
}

/* When all addresses together have too many, the oldest of the address with the most is closed. */
TEST_WITH(test_many_silent_of_many_addresses, set_up, tear_down)
{
    struct rig *r = *state;
    int fds[TRANSPORT_PENDING_MAX];
    unsigned n = 0;
    for (uint32_t address = 1; n < TRANSPORT_PENDING_MAX; address++) {
        unsigned of_it = address == 1 ? 1 : address == 2 ? 5 : 2;
        for (unsigned i = 0; i < of_it && n < TRANSPORT_PENDING_MAX; i++) {
            fds[n] = plain_connect_from(INADDR_LOOPBACK + address, r->ports[1]);
            RUN_UNTIL(r, rig_pending(&r->b) == n + 1);
            n++;
        }
    }
    int fd = plain_connect(r->ports[1]);
    RUN_UNTIL(r, plain_peek(fds[1]) == -1);
    assert_int_equal(plain_peek(fds[0]), 0);
    assert_int_equal(rig_pending(&r->b), TRANSPORT_PENDING_MAX);
    struct handshake h = rig_handshake(r);
    plain_say(fd, &h);
    RUN_UNTIL(r, r->b.accepted == 1);
    close(fd);
    for (unsigned i = 0; i < n; i++) {
        close(fds[i]);
    }
}

/* ---- handshakes ---- */

/* A handshake may arrive in pieces of one byte. */
TEST_WITH(test_slow_handshake, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    uint8_t bytes[HANDSHAKE_SIZE];
    int fd = plain_connect(r->ports[1]);
    handshake_encode(&h, &RIG_FORMATS, bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(r->b.accepted, 0);
        plain_send(fd, bytes + i, 1);
        uv_run(&r->loop, UV_RUN_NOWAIT);
    }
    RUN_UNTIL(r, r->b.accepted == 1);
    close(fd);
}

TEST_WITH(test_welcome_answer, set_up, tear_down)
{
    struct rig *r = *state;
    for (unsigned kind = 1; kind <= STREAM_KINDS; kind++) {
        struct handshake h = rig_handshake(r);
        struct handshake answer;
        uint8_t bytes[HANDSHAKE_SIZE];
        int fd = plain_connect(r->ports[1]);
        h.kind = (enum stream_kind)kind;
        plain_say(fd, &h);
        plain_read_answer(r, fd, bytes);
        assert_int_equal(handshake_decode(bytes, &RIG_FORMATS, &answer), 0);
        assert_int_equal(answer.verdict, HANDSHAKE_WELCOME);
        assert_int_equal(answer.kind, kind);
        assert_int_equal(answer.target, 1);
        assert_memory_equal(&answer.from, &r->b.self, sizeof answer.from);
        RUN_UNTIL(r, r->b.accepted == kind);
        assert_int_equal(r->b.streams[kind - 1].kind, kind);
        assert_string_equal(r->b.streams[kind - 1].peer.client_address, "client-1:1");
        close(fd);
    }
}

/* Compares every byte of the answer with what is expected: nothing about node 2 is in it. */
static void expect_refusal(struct rig *r, const struct handshake *h, const uint8_t *asked,
                           enum handshake_verdict verdict, const char *reason)
{
    uint8_t want[HANDSHAKE_SIZE] = {'f', 'e', 'n', 'c', 'e', 'l', 'o', 'k'};
    uint8_t bytes[HANDSHAKE_SIZE];
    unsigned accepted = r->b.accepted;
    int fd = plain_connect(r->ports[1]);
    plain_send(fd, asked, HANDSHAKE_SIZE);
    plain_read_answer(r, fd, bytes);
    fli_put_u16(want + 12, HANDSHAKE_PROTOCOL);
    fli_put_u16(want + 14, RIG_FORMATS.low);
    fli_put_u16(want + 16, RIG_FORMATS.high);
    want[18] = h == NULL ? STREAM_RAFT : (uint8_t)h->kind;
    want[19] = (uint8_t)verdict;
    fli_put_u64(want + 48, h == NULL ? 0 : h->from.node_id);
    fli_put_u16(want + 66, (uint16_t)strlen(reason));
    memcpy(want + 336, reason, strlen(reason));
    fli_put_u32(want + 8, fli_crc32c(0, want + 12, HANDSHAKE_SIZE - 12));
    assert_memory_equal(bytes, want, sizeof want);
    RUN_UNTIL(r, plain_peek(fd) == -1);
    assert_int_equal(r->b.accepted, accepted);
    close(fd);
}

static void refuse(struct rig *r, const struct handshake *h, enum handshake_verdict verdict,
                   const char *reason)
{
    uint8_t asked[HANDSHAKE_SIZE];
    handshake_encode(h, &RIG_FORMATS, asked);
    expect_refusal(r, h, asked, verdict, reason);
}

TEST_WITH(test_refusals, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    h.from.cluster_id = 8;
    refuse(r, &h, HANDSHAKE_OTHER_CLUSTER, "");
    assert_non_null(strstr(r->b.log, "belongs to cluster 0000000000000007"));
    h = rig_handshake(r);
    h.from.members_crc = 43;
    refuse(r, &h, HANDSHAKE_OTHER_MEMBERS, "");
    assert_non_null(strstr(r->b.log, "different members"));
    h = rig_handshake(r);
    h.target = 3;
    h.kind = STREAM_SNAPSHOT;
    refuse(r, &h, HANDSHAKE_STRANGER, "node 3 was called, but this is node 2");
    h = rig_handshake(r);
    h.from.node_id = 4;
    refuse(r, &h, HANDSHAKE_STRANGER, "node 4 is not another member for node 2");
    h = rig_handshake(r);
    h.from.node_id = 2;
    refuse(r, &h, HANDSHAKE_STRANGER, "node 2 is not another member for node 2");
    h = rig_handshake(r);
    h.from.cluster_id = 0;
    r->b.refuse = true;
    refuse(r, &h, HANDSHAKE_OTHER_INCARNATION, "no: node 1");
}

/* Even a caller that is wrong in all ways at once hears only that its cluster or its members
 * differ. */
TEST_WITH(test_a_stranger_learns_no_reason, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    r->b.refuse = true;
    h.from.members_crc = 43;
    h.from.cluster_id = 0;
    h.from.node_id = 4;
    h.target = 3;
    refuse(r, &h, HANDSHAKE_OTHER_MEMBERS, "");
    h.from.members_crc = 42;
    h.from.cluster_id = 9;
    refuse(r, &h, HANDSHAKE_OTHER_CLUSTER, "");
}

TEST_WITH(test_other_version, set_up, tear_down)
{
    /* the protocol, and the lowest and highest format: 3 to 5 are known here */
    const uint8_t foreign[] = {HANDSHAKE_PROTOCOL + 1, 6, 2};
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    for (unsigned i = 0; i < 3; i++) {
        uint8_t bytes[HANDSHAKE_SIZE];
        handshake_encode(&h, &RIG_FORMATS, bytes);
        bytes[12 + 2 * i] = foreign[i];
        fli_put_u32(bytes + 8, fli_crc32c(0, bytes + 12, HANDSHAKE_SIZE - 12));
        expect_refusal(r, NULL, bytes, HANDSHAKE_OTHER_VERSION, "");
        assert_non_null(strstr(r->b.log, "another version"));
    }
}

/* A node that has not learned its cluster yet is no stranger. */
TEST_WITH(test_cluster_not_known, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    int fd = plain_connect(r->ports[1]);
    h.from.cluster_id = 0;
    plain_say(fd, &h);
    RUN_UNTIL(r, r->b.accepted == 1);
    close(fd);
}

/* When a member has one stream of a kind too many, its oldest of that kind is lost; other kinds do
 * not count. */
TEST_WITH(test_replaced, set_up, tear_down)
{
    struct rig *r = *state;
    int fds[TRANSPORT_ACCEPTED_MAX + 3];
    unsigned before = descriptors();
    for (unsigned i = 0; i < TRANSPORT_ACCEPTED_MAX + 3; i++) {
        struct handshake h = rig_handshake(r);
        h.kind = i == 1 ? STREAM_SNAPSHOT : STREAM_RAFT;
        if (i == 2) {
            h.from.node_id = 3;
        }
        fds[i] = plain_connect(r->ports[1]);
        plain_say(fds[i], &h);
        RUN_UNTIL(r, r->b.accepted == i + 1);
    }
    assert_int_equal(r->b.streams[0].lost, 1);
    assert_non_null(strstr(r->b.streams[0].why, "a newer stream"));
    RUN_UNTIL(r, plain_peek(fds[0]) == (ssize_t)HANDSHAKE_SIZE);
    assert_int_equal(descriptors(), before + 2 * (TRANSPORT_ACCEPTED_MAX + 3) - 1);
    for (unsigned i = 1; i < TRANSPORT_ACCEPTED_MAX + 3; i++) {
        assert_int_equal(r->b.streams[i].lost, 0);
    }
    /* One that ended makes room. */
    close(fds[3]);
    RUN_UNTIL(r, r->b.streams[3].lost == 1);
    struct handshake h = rig_handshake(r);
    fds[3] = plain_connect(r->ports[1]);
    plain_say(fds[3], &h);
    RUN_UNTIL(r, r->b.accepted == TRANSPORT_ACCEPTED_MAX + 4);
    assert_int_equal(r->b.streams[4].lost, 0);
    for (unsigned i = 0; i < TRANSPORT_ACCEPTED_MAX + 3; i++) {
        close(fds[i]);
    }
}

/* A stream may be replaced before its owner began to read it. */
TEST_WITH(test_replaced_before_it_started, set_up, tear_down)
{
    struct rig *r = *state;
    int fds[TRANSPORT_ACCEPTED_MAX + 1];
    r->b.unstarted = true;
    for (unsigned i = 0; i <= TRANSPORT_ACCEPTED_MAX; i++) {
        struct handshake h = rig_handshake(r);
        fds[i] = plain_connect(r->ports[1]);
        plain_say(fds[i], &h);
        RUN_UNTIL(r, r->b.accepted == i + 1);
    }
    assert_int_equal(r->b.streams[0].lost, 0);
    held_start(&r->b.streams[0]);
    assert_int_equal(r->b.streams[0].lost, 1);
    assert_non_null(strstr(r->b.streams[0].why, "was replaced"));
    for (unsigned i = 0; i <= TRANSPORT_ACCEPTED_MAX; i++) {
        close(fds[i]);
    }
}

/* ---- calling ---- */

TEST_WITH(test_call, set_up, tear_down)
{
    struct rig *r = *state;
    rig_pair(r, STREAM_RAFT);
    assert_int_equal(r->b.streams[0].peer.node_id, 1);
    assert_int_equal(r->a.verdict, HANDSHAKE_WELCOME);
    assert_int_equal(r->mine.peer.incarnation, 1002);
    assert_int_equal(r->a.answered, 1);
}

static void ignore_dialed(void *ctx, int status, const struct peer_identity *peer, struct stream *s)
{
    (void)ctx;
    (void)status;
    (void)peer;
    stream_close(s);
}

TEST_WITH(test_call_no_member, set_up, tear_down)
{
    struct rig *r = *state;
    assert_int_equal(transport_dial(r->a.t, 1, STREAM_RELAY, ignore_dialed, r), FL_EINVAL);
    assert_int_equal(transport_dial(r->a.t, 4, STREAM_RELAY, ignore_dialed, r), FL_EINVAL);
}

TEST_WITH(test_call_nobody, set_up, tear_down)
{
    struct rig *r = *state;
    rig_dial(r, 3, STREAM_RAFT);
    assert_int_equal(r->status, FL_ENOCONN);
    assert_int_equal(r->a.absent, 1);
    assert_int_equal(r->a.absent_id, 3);
    rig_dial(r, 3, STREAM_RELAY);
    assert_int_equal(r->status, FL_ENOCONN);
    assert_int_equal(r->a.absent, 2);
    assert_non_null(strstr(r->a.log, "node 3"));
    assert_non_null(strstr(r->a.log, r->members.list[2].address));
    assert_int_equal(r->a.logged, 1); /* the same again is not said */
}

TEST_WITH(test_call_refused, set_up, tear_down)
{
    struct rig *r = *state;
    r->b.refuse = true;
    rig_dial(r, 2, STREAM_RAFT);
    assert_int_equal(r->status, FL_EDENIED);
    assert_int_equal(r->a.verdict, HANDSHAKE_OTHER_INCARNATION);
    assert_string_equal(r->a.reason, "no: node 1");
    assert_int_equal(r->b.accepted + r->a.absent, 0);
}

/* When the answer has no reason, the reason is what the verdict means. */
TEST_WITH(test_call_another_cluster, set_up, tear_down)
{
    struct rig *r = *state;
    transport_self(r->b.t)->cluster_id = 8;
    rig_dial(r, 2, STREAM_RAFT);
    assert_int_equal(r->status, FL_EDENIED);
    assert_int_equal(r->a.verdict, HANDSHAKE_OTHER_CLUSTER);
    assert_string_equal(r->a.reason, handshake_verdict_text(HANDSHAKE_OTHER_CLUSTER));
}

/* The caller may refuse the node that answers, too. */
TEST_WITH(test_call_refuses, set_up, tear_down)
{
    struct rig *r = *state;
    r->a.refuse = true;
    rig_dial(r, 2, STREAM_RAFT);
    assert_int_equal(r->status, FL_EDENIED);
    assert_int_equal(r->a.answered, 0);
    RUN_UNTIL(r, r->b.streams[0].lost == 1);
}

/* What a node says of itself changes once it knows its cluster. */
TEST_WITH(test_what_is_told_of_the_cluster, set_up, tear_down)
{
    struct rig *r = *state;
    transport_self(r->a.t)->cluster_id = 0;
    rig_pair(r, STREAM_RELAY);
    assert_int_equal(r->b.peer.cluster_id, 0);
    held_close(&r->mine);
    transport_self(r->a.t)->cluster_id = 7;
    transport_self(r->a.t)->member_index = 99;
    rig_dial(r, 2, STREAM_RELAY);
    RUN_UNTIL(r, r->b.accepted == 2);
    assert_int_equal(r->b.peer.cluster_id, 7);
    assert_int_equal(r->b.peer.member_index, 99);
}

/* An answer that is damaged, for another node, no verdict, cut short, of another version, of
 * another kind. */
TEST(test_call_bad_answers)
{
    uint16_t port;
    char address[64];
    int listener = plain_listener(&port, 8);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct rig *r = rig_open(address);
    for (unsigned i = 0; i < 7; i++) {
        struct handshake h = rig_handshake(r);
        uint8_t bytes[HANDSHAKE_SIZE];
        unsigned before = r->dialed;
        h.from.node_id = i == 6 ? 2 : 3;
        h.target = i == 1 ? 2 : 1;
        h.verdict = i == 2 ? 0 : HANDSHAKE_WELCOME;
        h.kind = i == 5 ? STREAM_RELAY : STREAM_RAFT;
        handshake_encode(&h, &RIG_FORMATS, bytes);
        bytes[13] ^= i == 4; /* of another version */
        fli_put_u32(bytes + 8, fli_crc32c(0, bytes + 12, HANDSHAKE_SIZE - 12));
        if (i == 0) {
            bytes[100] ^= 1;
        }
        assert_int_equal(transport_dial(r->a.t, 3, STREAM_RAFT, ignore_dialed, r), 0);
        int fd = accept(listener, NULL, NULL);
        RUN_UNTIL(r, plain_peek(fd) == (ssize_t)HANDSHAKE_SIZE);
        plain_send(fd, bytes, i == 3 ? HANDSHAKE_SIZE - 1 : HANDSHAKE_SIZE);
        (void)shutdown(fd, SHUT_WR);
        RUN_UNTIL(r, rig_dialing(&r->a) == 0);
        assert_int_equal(r->a.verdict, i == 4 ? HANDSHAKE_OTHER_VERSION : r->a.verdict);
        assert_int_not_equal(r->a.verdict, HANDSHAKE_WELCOME);
        assert_int_equal(r->dialed, before);
        close(fd);
    }
    rig_close(r);
    close(listener);
}

/* Calls to a host that accepts and sends nothing, and to one that does not accept (a full backlog
 * drops the connection). */
TEST(test_call_black_hole)
{
    for (unsigned full = 0; full < 2; full++) {
        uint16_t port;
        char address[64];
        int filler[4] = {-1, -1, -1, -1};
        int listener = plain_listener(&port, full == 1 ? 0 : 8);
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons(port)};
        for (unsigned i = 0; i < 4 && full == 1; i++) {
            filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            (void)connect(filler[i], (struct sockaddr *)&to, sizeof to);
        }
        snprintf(address, sizeof address, "127.0.0.1:%u", port);
        struct rig *r = rig_open(address);
        struct transport_config config;
        side_stop(&r->a);
        side_config(r, &r->a, &config);
        *(full == 1 ? &config.connect_ms : &config.answer_ms) = 150;
        side_start(r, &r->a, &config);
        rig_dial(r, 3, STREAM_RAFT);
        assert_int_equal(r->status, FL_ENOCONN);
        assert_int_equal(r->a.absent, 0); /* nobody said so */
        assert_non_null(strstr(r->a.log, full == 1 ? "no connection in" : "no answer in"));
        rig_close(r);
        for (unsigned i = 0; i < 4 && full == 1; i++) {
            close(filler[i]);
        }
        close(listener);
    }
}

/* Dials node 3. Returns the connection when the handshake has come on it and node 1 still waits for
 * the answer, which it does not when this process stood still for long: then it is dialed again. */
static int dial_and_keep_waiting(struct rig *r, int listener)
{
    for (uint64_t deadline_ms = rig_deadline(r);;) {
        assert_int_equal(transport_dial(r->a.t, 3, STREAM_RAFT, ignore_dialed, r), 0);
        int fd = accept(listener, NULL, NULL);
        RUN_UNTIL(r, plain_peek(fd) == (ssize_t)HANDSHAKE_SIZE);
        if (rig_dialing(&r->a) > 0) {
            return fd;
        }
        close(fd);
        assert_true(rig_turn(r, deadline_ms));
    }
}

/* The loop was busy for longer than a dial may take, and the answer is there: it is looked at. */
TEST(test_call_in_a_long_turn)
{
    uint16_t port;
    char address[64];
    uint8_t bytes[HANDSHAKE_SIZE];
    int listener = plain_listener(&port, 8);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct rig *r = rig_open(address);
    struct transport_config config;
    struct handshake h = rig_handshake(r);
    side_stop(&r->a);
    side_config(r, &r->a, &config);
    config.answer_ms = 1500;
    side_start(r, &r->a, &config);
    int fd = dial_and_keep_waiting(r, listener);
    h.from.node_id = 3;
    h.target = 1;
    h.verdict = HANDSHAKE_WELCOME;
    handshake_encode(&h, &RIG_FORMATS, bytes);
    plain_send(fd, bytes, sizeof bytes);
    usleep(config.answer_ms * 1000 + 100000);
    RUN_UNTIL(r, r->a.answered == 1);
    assert_int_equal(r->a.verdict, HANDSHAKE_WELCOME);
    rig_close(r);
    close(fd);
    close(listener);
}

/* On some machines the name has several addresses: the one that answers is found. */
TEST_WITH(test_call_by_name, set_up, tear_down)
{
    struct rig *r = *state;
    struct transport_config config;
    side_stop(&r->a);
    side_config(r, &r->a, &config);
    snprintf(config.members.list[1].address, MEMBER_ADDRESS_MAX, "localhost:%u", r->ports[1]);
    side_start(r, &r->a, &config);
    rig_pair(r, STREAM_RAFT);
}

/* A label of 64 bytes is no name, which the resolver knows without asking anybody. */
TEST(test_call_bad_name)
{
    struct rig *r = rig_open("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx:1");
    rig_dial(r, 3, STREAM_RAFT);
    assert_int_equal(r->status, FL_ENOCONN);
    assert_int_equal(r->a.absent, 0); /* nobody said so */
    assert_non_null(strstr(r->a.log, "cannot be resolved"));
    rig_close(r);
}

/* An address that cannot even be tried: the answer still comes from the loop. */
TEST(test_call_impossible_address)
{
    struct rig *r = rig_open("255.255.255.255:7");
    rig_dial(r, 3, STREAM_RAFT);
    assert_int_equal(r->status, FL_ENOCONN);
    assert_int_equal(r->a.absent, 0);
    rig_close(r);
}

static void note_ended(void *ctx, int status, const struct peer_identity *peer, struct stream *s)
{
    unsigned *ended = ctx;
    assert_int_equal(status, FL_ENOCONN);
    assert_null(s);
    (*ended)++;
}

/* Calls that wait for an answer, for a connection and for the resolver. */
TEST(test_a_call_ends_with_its_member)
{
    uint16_t port;
    char address[64];
    unsigned ended = 0;
    int listener = plain_listener(&port, 8);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct rig *r = rig_open(address);
    struct members all = r->members;
    struct members fewer = r->members;
    fewer.n = 1;
    snprintf(all.list[1].address, MEMBER_ADDRESS_MAX, "localhost:%u", r->ports[1]);
    transport_set_members(r->a.t, &all);
    assert_int_equal(transport_dial(r->a.t, 3, STREAM_RAFT, note_ended, &ended), 0);
    int fd = accept(listener, NULL, NULL);
    RUN_UNTIL(r, plain_peek(fd) == (ssize_t)HANDSHAKE_SIZE);
    assert_int_equal(transport_dial(r->a.t, 3, STREAM_RAFT, note_ended, &ended), 0);
    assert_int_equal(transport_dial(r->a.t, 2, STREAM_RAFT, note_ended, &ended), 0);
    transport_set_members(r->a.t, &all);
    assert_int_equal(ended, 0);
    transport_set_members(r->a.t, &fewer);
    assert_int_equal(ended, 3);
    RUN_UNTIL(r, rig_dialing(&r->a) == 0);
    assert_int_equal(r->a.absent + r->a.answered + r->a.logged, 0);
    assert_int_equal(ended, 3);
    rig_close(r);
    close(fd);
    close(listener);
}

/* Streams of all kinds that the node has opened, and no others. */
TEST_WITH(test_hang_up, set_up, tear_down)
{
    struct rig *r = *state;
    int fds[4];
    for (unsigned i = 0; i < 4; i++) {
        struct handshake h = rig_handshake(r);
        h.from.node_id = i == 3 ? 3 : 1;
        h.kind = i == 3 ? STREAM_RAFT : (enum stream_kind)(i + 1);
        fds[i] = plain_connect(r->ports[1]);
        plain_say(fds[i], &h);
        RUN_UNTIL(r, r->b.accepted == i + 1);
    }
    transport_hang_up(r->b.t, 1, "it is to call again");
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(r->b.streams[i].lost, 1);
        assert_string_equal(r->b.streams[i].why, "it is to call again");
    }
    assert_int_equal(r->b.streams[3].lost, 0);
    transport_hang_up(r->b.t, 7, "nobody");
    for (unsigned i = 0; i < 4; i++) {
        close(fds[i]);
    }
}

static int option(int fd, int level, int name)
{
    int value = 0;
    socklen_t len = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

/* Both ends, found among the descriptors of this process. */
TEST_WITH(test_options, set_up, tear_down)
{
    struct rig *r = *state;
    unsigned found = 0;
    rig_pair(r, STREAM_RAFT);
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_storage peer;
        socklen_t len = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0 || peer.ss_family != AF_INET) {
            continue;
        }
        found++;
        assert_true(option(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
        assert_true(option(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
        assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), RIG_PATIENCE_MS);
    }
    assert_int_equal(found, 2);
}

/* ---- closing ---- */

/* Closes while a stranger is connected, one dial waits for its answer and others for the resolver
 * or the connection, and a stream was accepted that nobody has started. */
TEST(test_close_in_the_middle)
{
    uint16_t port;
    char address[64];
    int listener = plain_listener(&port, 8);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct rig *r = rig_open(address);
    struct transport_config config;
    side_stop(&r->a);
    side_config(r, &r->a, &config);
    snprintf(config.members.list[1].address, MEMBER_ADDRESS_MAX, "localhost:%u", r->ports[1]);
    side_start(r, &r->a, &config);
    r->a.unstarted = true;
    int stranger = plain_connect(r->ports[0]);
    int member = plain_connect(r->ports[0]);
    struct handshake h = rig_handshake(r);
    h.from = r->b.self;
    h.target = 1;
    plain_say(member, &h);
    RUN_UNTIL(r, rig_pending(&r->a) == 1 && r->a.accepted == 1);
    assert_int_equal(transport_dial(r->a.t, 3, STREAM_RAFT, ignore_dialed, r), 0);
    int fd = accept(listener, NULL, NULL);
    RUN_UNTIL(r, plain_peek(fd) == (ssize_t)HANDSHAKE_SIZE);
    assert_int_equal(transport_dial(r->a.t, 3, STREAM_RAFT, ignore_dialed, r), 0);
    assert_int_equal(transport_dial(r->a.t, 2, STREAM_RAFT, ignore_dialed, r), 0);
    side_stop(&r->a);
    close(fd);
    close(listener);
    close(stranger);
    close(member);
    rig_close(r);
}

TEST_WITH(test_bind_errors, set_up, tear_down)
{
    struct rig *r = *state;
    struct transport_callbacks cbs = rig_callbacks(&r->a);
    struct transport *t;
    struct transport_config config;
    static const char *const BAD[] = {"",  "host", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                                      ":0"};
    side_config(r, &r->a, &config);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        config.bind_address = BAD[i];
        assert_int_equal(transport_create(&r->loop, &config, &cbs, &t, r->errmsg, sizeof r->errmsg),
                         FL_EINVAL);
    }
    config.bind_address = r->members.list[0].address;
    assert_int_equal(transport_create(&r->loop, &config, &cbs, &t, r->errmsg, sizeof r->errmsg),
                     FL_ESYSTEM);
    assert_non_null(strstr(r->errmsg, strerror(EADDRINUSE)));
    assert_non_null(strstr(r->errmsg, r->members.list[0].address));
    /* Destroyed without having been started. */
    config.bind_address = r->members.list[2].address;
    assert_int_equal(transport_create(&r->loop, &config, &cbs, &t, r->errmsg, sizeof r->errmsg), 0);
    char address[MEMBER_ADDRESS_MAX];
    for (unsigned i = 0; i < 5; i++) {
        static const char *const HOSTS[] = {"127.0.0.1", "node-3", "[::1]", "127.0.0.2",
                                            "127.0.0.1"};
        snprintf(address, sizeof address, "%s:%u", HOSTS[i], r->ports[i < 4 ? 2 : 1]);
        assert_int_equal(transport_is_at(t, address), i < 3);
    }
    assert_int_equal(transport_dial(t, 2, STREAM_RAFT, ignore_dialed, r), FL_ENOCONN);
    transport_destroy(t);
}
