/* test_relay.c: a peer that has shaken hands properly and then breaks the rules of the relay. A
 * plain socket plays a follower, with the identity of one that is down. */
#include "../../lib/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "cluster.h"
#include "members/data_dir.h"
#include "node/node_private.h"
#include "commands/relay_codec.h"
#include "machine/batch.h"
#include "machine/snapshot.h"
#include "peer/frame.h"
#include "peer/handshake.h"
#include "../../lib/scratch.h"

#define RELAY_FRAME_MAX ((size_t)96 << 10) /* node_open.c's */

static const struct handshake_formats FORMATS = {.low = 1, .high = 1};

struct fixture {
    struct cluster c;
    unsigned leader;
    unsigned away;
    struct handshake hello; /* of the one that is away */
    int fd;
};

static uint16_t port_of(struct fixture *f, unsigned i)
{
    char host[256];
    uint16_t port;
    assert_int_equal(address_split(f->c.members.list[i].address, host, &port), 0);
    return port;
}

static bool readable(void *ctx)
{
    struct fixture *f = ctx;
    uint8_t byte;
    return recv(f->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN;
}

static void read_all(struct fixture *f, void *out, size_t len)
{
    size_t at = 0;
    while (at < len) {
        cluster_until(&f->c, readable, f, "something can be read");
        ssize_t n = recv(f->fd, (uint8_t *)out + at, len - at, MSG_DONTWAIT);
        assert_true(n > 0);
        at += (size_t)n;
    }
}

static bool is_closed(void *ctx)
{
    struct fixture *f = ctx;
    uint8_t bytes[65536];
    ssize_t n = recv(f->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void call_leader(struct fixture *f)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                               .sin_port = htons(port_of(f, f->leader))};
    uint8_t bytes[HANDSHAKE_SIZE];
    struct handshake answer;
    f->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(f->fd, (struct sockaddr *)&addr, sizeof addr), 0);
    handshake_encode(&f->hello, &FORMATS, bytes);
    assert_int_equal(send(f->fd, bytes, sizeof bytes, MSG_NOSIGNAL), (int)sizeof bytes);
    read_all(f, bytes, sizeof bytes);
    assert_int_equal(handshake_decode(bytes, &FORMATS, &answer), 0);
    assert_int_equal(answer.verdict, HANDSHAKE_WELCOME);
}

static void read_hello(struct fixture *f)
{
    char members[MEMBERS_TEXT_MAX];
    struct record r;
    char *path = scratch_path(f->c.nodes[f->away].dir, "identity");
    assert_int_equal(record_read(path, &r), 0);
    free(path);
    memset(&f->hello, 0, sizeof f->hello);
    f->hello.kind = STREAM_RELAY;
    f->hello.target = f->leader + 1;
    f->hello.from.node_id = r.identity.id;
    f->hello.from.incarnation = r.identity.incarnation;
    f->hello.from.start.number = 1000;
    f->hello.from.term = f->hello.from.last_index = UINT64_MAX;
    f->hello.from.cluster_id = r.identity.cluster_id;
    f->hello.from.members_crc =
        fli_crc32c(0, members, members_format(&f->c.members, members, sizeof members));
}

static int set_up(void **state)
{
    struct fixture *f = test_calloc(1, sizeof *f);
    *state = f;
    cluster_init(&f->c, 3);
    cluster_form(&f->c);
    f->leader = cluster_wait_leader(&f->c);
    f->away = (f->leader + 1) % 3;
    cluster_stop(&f->c, f->away, 0);
    read_hello(f);
    call_leader(f);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    close(f->fd);
    cluster_fini(&f->c);
    test_free(f);
    return 0;
}

static void send_all(struct fixture *f, const void *data, size_t len)
{
    assert_int_equal(send(f->fd, data, len, MSG_NOSIGNAL), (int)len);
}

static void send_frame(struct fixture *f, uint8_t type, const void *body, size_t len)
{
    uint8_t head[FRAME_HEADER_SIZE];
    struct fli_slice part = {body, len};
    frame_header_encode(type, &part, 1, head);
    send_all(f, head, sizeof head);
    if (len > 0) {
        send_all(f, body, len);
    }
}

static size_t read_frame(struct fixture *f, uint8_t *ret_type, uint8_t *body, size_t size)
{
    uint8_t head[FRAME_HEADER_SIZE];
    read_all(f, head, sizeof head);
    size_t len = fli_get_u32(head);
    assert_true(len <= size);
    read_all(f, body, len);
    *ret_type = head[4];
    return len;
}

static void send_command(struct fixture *f, uint64_t sequence, const struct machine_command *cmd)
{
    struct fli_buf buf;
    uint8_t head[RELAY_COMMAND_HEAD_SIZE] = {0};
    fli_put_u64(head, sequence);
    fli_buf_init(&buf, RELAY_FRAME_MAX);
    assert_int_equal(fli_buf_append(&buf, head, sizeof head), 0);
    assert_int_equal(machine_command_encode(cmd, &buf), 0);
    send_frame(f, RELAY_COMMAND, buf.data, buf.len);
    fli_buf_fini(&buf);
}

static void still_serves(struct fixture *f)
{
    struct op op;
    struct machine_command cmd = cmd_token("t");
    op_run(&f->c, f->leader, &cmd, &op);
    assert_int_equal(op.status, 0);
}

TEST_WITH(test_command, set_up, tear_down)
{
    struct fixture *f = *state;
    struct machine_command cmd = cmd_acquire("a", "owner-1", 600000, 0);
    uint8_t body[256];
    uint8_t type;
    struct relay_answer a;
    send_command(f, UINT64_MAX, &cmd);
    size_t len = read_frame(f, &type, body, sizeof body);
    assert_int_equal(type, RELAY_RESULT);
    assert_int_equal(relay_result_decode((struct fli_slice){body, len}, &a), 0);
    assert_int_equal(a.sequence, UINT64_MAX);
    assert_int_equal(a.status, 0);
    assert_int_equal(a.result.code, MACHINE_GRANTED);
    send_frame(f, RELAY_PING, NULL, 0);
    assert_int_equal(read_frame(f, &type, body, sizeof body), 0);
    assert_int_equal(type, RELAY_PONG);
}

static bool counts(void *ctx)
{
    const struct fixture *f = ctx;
    return relay_has_follower(&f->c.nodes[f->leader].node->relay, f->away + 1);
}

static bool counts_no_more(void *ctx)
{
    return !counts(ctx);
}

/* As one whose power has gone: nothing ends its stream. No change of members counts on it soon
 * afterwards, and what it had on its way stays on its way. */
TEST_WITH(test_one_that_is_silent_is_not_counted_on, set_up, tear_down)
{
    struct fixture *f = *state;
    uint8_t body[256];
    uint8_t type;
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE,
                                 .id = (uint64_t)(3 - f->leader - f->away) + 1};
    struct cluster_count count = {0, 1};
    send_frame(f, RELAY_PING, NULL, 0);
    cluster_until(&f->c, counts, f, "the follower counts");
    cluster_until(&f->c, counts_no_more, f, "the follower counts no more");
    int rv = node_change(f->c.nodes[f->leader].node, &remove, cluster_count_cb, &count);
    assert_true(rv == FL_EDENIED || rv == FL_EBUSY);
    while (!counts(f)) {
        send_frame(f, RELAY_PING, NULL, 0);
        assert_int_equal(read_frame(f, &type, body, sizeof body), 0);
        assert_int_equal(type, RELAY_PONG);
    }
}

/* Its stream still counts when the removal of another is asked for, and taken. It is not carried
 * out: the one without power has confirmed nothing since. */
TEST_WITH(test_a_removal_waits_for_who_confirms_it, set_up, tear_down)
{
    struct fixture *f = *state;
    struct node *n = f->c.nodes[f->leader].node;
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE,
                                 .id = (uint64_t)(3 - f->leader - f->away) + 1};
    struct cluster_count count = {0, 1};
    send_frame(f, RELAY_PING, NULL, 0);
    cluster_until(&f->c, counts, f, "the follower counts");
    assert_int_equal(node_change(n, &remove, cluster_count_cb, &count), 0);
    cluster_until(&f->c, cluster_counted, &count, "the removal is taken");
    assert_int_equal(count.status, 0);
    for (unsigned i = 0; i < 10; i++) {
        send_frame(f, RELAY_PING, NULL, 0);
        cluster_run_ms(&f->c, NODE_TICK_MS);
    }
    assert_non_null(configuration_find(replica_configuration(n->replica), remove.id));
}

/* Framing is intact, the command is not: refused, and the stream lives. */
TEST_WITH(test_malformed_command, set_up, tear_down)
{
    struct fixture *f = *state;
    uint8_t body[256];
    uint8_t type;
    struct relay_answer a;
    for (unsigned i = 0; i < 15; i++) {
        memset(body, (int)(17 * i), sizeof body);
        body[RELAY_COMMAND_HEAD_SIZE] = MACHINE_OP_ACQUIRE;
        send_frame(f, RELAY_COMMAND, body, RELAY_COMMAND_HEAD_SIZE + 1 + 6 * i);
        size_t len = read_frame(f, &type, body, sizeof body);
        assert_int_equal(type, RELAY_RESULT);
        assert_int_equal(relay_result_decode((struct fli_slice){body, len}, &a), 0);
        assert_int_equal(a.status, FL_EINVAL);
    }
    still_serves(f);
}

static void expect_closed(struct fixture *f)
{
    cluster_until(&f->c, is_closed, f, "the stream is closed");
    still_serves(f);
}

/* A header with a length of its own, which is right otherwise. */
static void send_header(struct fixture *f, uint32_t len)
{
    uint8_t head[FRAME_HEADER_SIZE];
    frame_header_encode(RELAY_COMMAND, NULL, 0, head);
    fli_put_u32(head, len);
    fli_put_u32(head + 12, fli_crc32c(0, head, 12));
    send_all(f, head, sizeof head);
}

TEST_WITH(test_length_beyond, set_up, tear_down)
{
    struct fixture *f = *state;
    send_header(f, (uint32_t)RELAY_FRAME_MAX + 1);
    expect_closed(f);
}

/* The longest frame is read whole; no command is that long. */
TEST_WITH(test_length_most, set_up, tear_down)
{
    struct fixture *f = *state;
    static uint8_t body[RELAY_FRAME_MAX];
    uint8_t head[FRAME_HEADER_SIZE];
    struct fli_slice part = {body, sizeof body};
    frame_header_encode(RELAY_COMMAND, &part, 1, head);
    send_all(f, head, sizeof head);
    send_all(f, body, sizeof body - 1);
    still_serves(f);
    assert_false(readable(f));
    send_all(f, body, 1);
    expect_closed(f);
}

TEST_WITH(test_damage, set_up, tear_down)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < 2; i++) {
        uint8_t frame[FRAME_HEADER_SIZE + 16] = {0};
        struct fli_slice part = {frame + FRAME_HEADER_SIZE, 16};
        frame_header_encode(RELAY_COMMAND, &part, 1, frame);
        frame[i == 0 ? 2 : FRAME_HEADER_SIZE + 9] ^= 1; /* the header, the body */
        send_all(f, frame, sizeof frame);
        expect_closed(f);
        close(f->fd);
        call_leader(f);
    }
}

/* What the cluster says of itself is its leader's own: members, limits, the counter of tokens. */
TEST_WITH(test_forbidden_commands, set_up, tear_down)
{
    struct fixture *f = *state;
    struct op before;
    struct op after;
    struct machine_command token = cmd_token("t");
    const struct machine_command FORBIDDEN[] = {
        {.op = MACHINE_OP_INIT, .number = 7, .limits = MACHINE_LIMITS_DEFAULT},
        {.op = MACHINE_OP_LIMITS, .limits = MACHINE_LIMITS_DEFAULT},
        {.op = MACHINE_OP_RAISE, .number = 1000000},
        {.op = MACHINE_OP_NODE_REMOVE, .number = f->leader + 1},
        {.op = MACHINE_OP_NODE_SETTLED, .number = f->leader + 1},
    };
    op_run(&f->c, f->leader, &token, &before);
    for (size_t i = 0; i < sizeof FORBIDDEN / sizeof FORBIDDEN[0]; i++) {
        send_command(f, i, &FORBIDDEN[i]);
        expect_closed(f);
        close(f->fd);
        call_leader(f);
    }
    /* Nor one that nobody knows. */
    static const uint8_t UNKNOWN[] = {0, MACHINE_OP_USERS_SEAL + 1, 127};
    for (size_t i = 0; i < sizeof UNKNOWN; i++) {
        uint8_t body[64] = {[RELAY_COMMAND_HEAD_SIZE] = UNKNOWN[i]};
        send_frame(f, RELAY_COMMAND, body, sizeof body);
        expect_closed(f);
        close(f->fd);
        call_leader(f);
    }
    op_run(&f->c, f->leader, &token, &after);
    assert_true(after.result.token > before.result.token);
    assert_true(after.result.token < before.result.token + 1000); /* still_serves() took some */
    cluster_expect_same_hash(&f->c);
}

TEST_WITH(test_command_beyond, set_up, tear_down)
{
    struct fixture *f = *state;
    uint8_t body[RELAY_COMMAND_HEAD_SIZE + MACHINE_COMMAND_LARGEST + 1] = {
        [RELAY_COMMAND_HEAD_SIZE] = MACHINE_OP_ACQUIRE};
    uint8_t type;
    uint8_t answer[256];
    send_frame(f, RELAY_COMMAND, body, sizeof body - 1);
    (void)read_frame(f, &type, answer, sizeof answer);
    assert_int_equal(type, RELAY_RESULT);
    send_frame(f, RELAY_COMMAND, body, sizeof body);
    expect_closed(f);
}

TEST_WITH(test_types, set_up, tear_down)
{
    struct fixture *f = *state;
    static const uint8_t BAD[] = {0, RELAY_RESULT, 3, RELAY_PUSH, RELAY_PONG, 8, 255};
    for (size_t i = 0; i < sizeof BAD; i++) {
        send_frame(f, BAD[i], "x", 1);
        expect_closed(f);
        close(f->fd);
        call_leader(f);
    }
    send_frame(f, RELAY_COMMAND, "123456789012345", RELAY_COMMAND_HEAD_SIZE - 1);
    expect_closed(f);
}

static bool has_window(void *ctx)
{
    const struct fixture *f = ctx;
    return f->c.nodes[f->leader].node->commands.count == RELAY_WINDOW;
}

/* The leader has as many without an answer as a follower may have. One more ends the stream. */
TEST_WITH(test_window, set_up, tear_down)
{
    struct fixture *f = *state;
    struct node *n = f->c.nodes[f->leader].node;
    struct machine_command cmd = cmd_token("t");
    n->loop.unverified_until_ms = UINT64_MAX; /* it proposes nothing */
    for (unsigned i = 0; i < RELAY_WINDOW; i++) {
        send_command(f, i, &cmd);
        uv_run(&f->c.loop, UV_RUN_NOWAIT);
    }
    cluster_until(&f->c, has_window, f, "the leader has them");
    assert_false(readable(f));
    send_command(f, RELAY_WINDOW, &cmd);
    cluster_until(&f->c, is_closed, f, "the stream is closed");
    n->loop.unverified_until_ms = 0;
    still_serves(f);
}

/* A second stream from the same node replaces the first. */
TEST_WITH(test_called_again, set_up, tear_down)
{
    struct fixture *f = *state;
    int first = f->fd;
    int second;
    call_leader(f);
    second = f->fd;
    f->fd = first;
    expect_closed(f);
    close(first);
    f->fd = second;
    test_command(state);
}

/* What has arrived hides the end of the stream from reading, so writing finds it. */
static bool cannot_write(void *ctx)
{
    struct fixture *f = ctx;
    uint8_t ping[FRAME_HEADER_SIZE];
    frame_header_encode(RELAY_PING, NULL, 0, ping);
    return send(f->fd, ping, sizeof ping, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN;
}

/* Asks for a great deal and reads nothing: the leader gives up at its ceiling. */
TEST_WITH(test_never_reads, set_up, tear_down)
{
    struct fixture *f = *state;
    char owner[FL_OWNER_MAX + 1];
    struct machine_command list = {.op = MACHINE_OP_LOCKS, .number = 1000};
    memset(owner, 'o', FL_OWNER_MAX);
    owner[FL_OWNER_MAX] = '\0';
    for (unsigned i = 0; i < 150; i++) {
        char name[16];
        struct op op;
        snprintf(name, sizeof name, "lock-%u", i);
        struct machine_command cmd = cmd_acquire(name, owner, 600000, 0);
        op_run(&f->c, f->leader, &cmd, &op);
    }
    bool gone = false;
    for (unsigned i = 0; i < 4000 && !gone; i++) {
        uint8_t head[RELAY_COMMAND_HEAD_SIZE] = {0};
        struct fli_buf buf;
        fli_put_u64(head, i);
        fli_buf_init(&buf, 256);
        assert_int_equal(fli_buf_append(&buf, head, sizeof head), 0);
        assert_int_equal(machine_command_encode(&list, &buf), 0);
        uint8_t frame[256];
        struct fli_slice part = {buf.data, buf.len};
        frame_header_encode(RELAY_COMMAND, &part, 1, frame);
        memcpy(frame + FRAME_HEADER_SIZE, buf.data, buf.len);
        gone = send(f->fd, frame, FRAME_HEADER_SIZE + buf.len, MSG_NOSIGNAL) < 0;
        fli_buf_fini(&buf);
        uv_run(&f->c.loop, UV_RUN_NOWAIT);
    }
    if (!gone) {
        cluster_until(&f->c, cannot_write, f, "the stream is given up");
    }
    still_serves(f);
}
