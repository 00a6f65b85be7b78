/* Whole nodes: forming, electing, relaying, stopping, coming back. */
#include "../../lib/unit.h"

#include <dirent.h>
#include <unistd.h>

#include "../../lib/break_connections.h"
#include "base/clock.h"
#include "cluster.h"
#include "node/node_private.h"
#include "machine/view.h"
#include "../../lib/scratch.h"

/* ---- one node ---- */

TEST_WITH(test_alone, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    uint64_t first = cluster_acquire(c, 0, "a", "owner-1");
    cluster_stop(c, 0, 1000);
    cluster_start(c, 0);
    cluster_check(c, 0, "a", first, MACHINE_DONE);
    assert_true(cluster_acquire(c, 0, "b", "owner-1") > first);
    struct node_status s;
    node_get_status(c->nodes[0].node, &s);
    assert_int_equal(s.role, NODE_LEADER);
    assert_int_equal(s.leader_id, 1);
    assert_string_equal(s.leader_client_address, "client-1:1");
}

TEST_WITH(test_second_process, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *first = c->nodes[0].node;
    char errmsg[1024];
    c->nodes[0].node = NULL;
    assert_int_equal(cluster_try_start(c, 0, errmsg, sizeof errmsg), FL_EBUSY);
    assert_non_null(strstr(errmsg, c->nodes[0].dir));
    c->nodes[0].node = first;
    cluster_acquire(c, 0, "a", "owner-1");
}

TEST_WITH(test_bad_config, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    char errmsg[1024];
    cluster_init(c, 1);
    c->members.list[0].id = 7;
    assert_int_equal(cluster_try_start(c, 0, errmsg, sizeof errmsg), FL_EINVAL);
    assert_non_null(strstr(errmsg, "node 1 is not among the members"));
}

/* The first file of the log's directory whose name begins with `prefix`; the caller frees it. */
static char *log_file(struct cluster *c, unsigned i, const char *prefix)
{
    char *folder = scratch_path(c->nodes[i].dir, "log");
    DIR *dir = opendir(folder);
    char *found = NULL;
    struct dirent *e;
    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0) {
            char *path = scratch_path(folder, e->d_name);
            if (found == NULL || strcmp(path, found) < 0) {
                free(found);
                found = path;
            } else {
                free(path);
            }
        }
    }
    closedir(dir);
    free(folder);
    assert_non_null(found);
    return found;
}

static void flip(const char *path, long offset)
{
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

/* A log that is not as it was written is refused, with the file's name, and nothing is left behind
 * on the loop. As it was, it is taken again. */
TEST_WITH(test_damaged_log, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    char errmsg[1024];
    uint64_t token = cluster_acquire(c, 0, "a", "owner-1");
    for (unsigned i = 0; i < 20; i++) {
        cluster_acquire(c, 0, (char[]){'b', (char)('a' + i), 0}, "owner-1");
    }
    cluster_stop(c, 0, 1000);
    char *segment = log_file(c, 0, "segment-");
    flip(segment, 4096 + 60); /* of the first entry */
    assert_int_equal(cluster_try_start(c, 0, errmsg, sizeof errmsg), FL_ECORRUPT);
    if (strstr(errmsg, strrchr(segment, '/') + 1) == NULL) {
        fail_msg("%s", errmsg);
    }
    flip(segment, 4096 + 60);
    cluster_start(c, 0);
    cluster_check(c, 0, "a", token, MACHINE_DONE);
    free(segment);
}

/* A node whose log is gone has promised things that it does not know any more. */
TEST_WITH(test_lost_log, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    char errmsg[1024];
    cluster_stop(c, 0, 1000);
    char *folder = scratch_path(c->nodes[0].dir, "log");
    scratch_wipe(folder);
    assert_int_equal(cluster_try_start(c, 0, errmsg, sizeof errmsg), FL_EDENIED);
    assert_non_null(strstr(errmsg, "has lost its log"));
    assert_non_null(strstr(errmsg, "cluster replace 1"));
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(cluster_try_start(c, 0, errmsg, sizeof errmsg), FL_EDENIED);
    free(folder);
}

/* ---- three nodes ---- */

TEST_WITH(test_through_each, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    uint64_t last = 0;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 3; i++) {
            char name[16];
            snprintf(name, sizeof name, "lock-%u-%u", round, i);
            uint64_t token = cluster_acquire(c, i, name, "owner-1");
            assert_true(token > last);
            last = token;
            cluster_check(c, (i + 1) % 3, name, token, MACHINE_DONE);
            cluster_check(c, (i + 2) % 3, name, token + 1, MACHINE_NO);
        }
    }
    cluster_expect_same_hash(c);
}

TEST_WITH(test_show_over_the_relay, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned follower = cluster_other_than(c, cluster_wait_leader(c));
    struct op op;
    struct machine_command cmd = cmd_show("a");
    op_run(c, follower, &cmd, &op);
    assert_int_equal(op.result.code, MACHINE_NOTFOUND);
    cluster_acquire(c, follower, "a", "owner-1");
    op_run(c, follower, &cmd, &op);
    assert_int_equal(op.status, 0);
    struct machine_page page;
    struct machine_lock_view view;
    assert_true(op.payload_len <= sizeof op.payload);
    assert_int_equal(machine_page_open(op.payload, op.payload_len, &page), 0);
    assert_int_equal(machine_page_next_lock(&page, &view), 1);
    assert_int_equal(view.owner.len, strlen("owner-1"));
}

TEST_WITH(test_status_and_members, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    cluster_acquire(c, cluster_other_than(c, leader), "a", "owner-1");
    for (unsigned i = 0; i < 3; i++) {
        struct node_status s;
        struct node_member m[MEMBERS_MAX];
        char expected[32];
        snprintf(expected, sizeof expected, "client-%u:1", leader + 1);
        node_get_status(c->nodes[i].node, &s);
        assert_int_equal(s.leader_id, leader + 1);
        assert_string_equal(s.leader_client_address, expected);
        assert_int_equal(s.role, i == leader ? NODE_LEADER : NODE_FOLLOWER);
        assert_int_equal(node_members(c->nodes[i].node, m, MEMBERS_MAX), 3);
        for (unsigned j = 0; j < 3; j++) {
            assert_int_equal(m[j].id, j + 1);
            assert_string_equal(m[j].peer_address, c->members.list[j].address);
            assert_true(m[j].voter);
            assert_int_equal(m[j].self, i == j);
            assert_int_equal(m[j].leader, j == leader);
            assert_true(m[j].connected || (i != leader && j != leader));
        }
    }
}

/* Role and disk of all, as each node knows it. */
static bool all_reports(void *ctx)
{
    struct cluster *c = ctx;
    unsigned leader = cluster_wait_leader(c);
    for (unsigned i = 0; i < 3; i++) {
        struct node_member m[MEMBERS_MAX];
        assert_int_equal(node_members(c->nodes[i].node, m, MEMBERS_MAX), 3);
        for (unsigned j = 0; j < 3; j++) {
            const struct node_report *r = m[j].report;
            if (r == NULL || r->disk_bytes == 0 || r->applied_index == 0 ||
                r->role != (j == leader ? NODE_LEADER : NODE_FOLLOWER)) {
                return false;
            }
            assert_true(r->disk_free_bytes <= r->disk_bytes && !r->log_waits);
        }
    }
    return true;
}

TEST_WITH(test_each_knows_of_all, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    cluster_acquire(c, cluster_wait_leader(c), "a", "owner-1");
    cluster_until(c, all_reports, c, "reports of all nodes at all nodes");
}

static bool knows_no_leader(void *ctx)
{
    return cluster_leader(ctx) < 0;
}

/* The first two; while they wait for the third, nobody leads. */
static bool have_met(void *ctx)
{
    struct cluster *c = ctx;
    struct node_member m[2][MEMBERS_MAX];
    bool all = true;
    for (unsigned i = 0; i < 2; i++) {
        all = all && node_members(c->nodes[i].node, m[i], MEMBERS_MAX) == 3;
        all = all && m[i][1 - i].connected && !m[i][2].connected;
    }
    return all;
}

/* Two of three are not enough the first time, and are from then on. */
TEST_WITH(test_forming_needs_all, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    struct op op;
    struct node_status status;
    struct machine_command cmd = cmd_acquire("a", "owner-1", 600000, 0);
    cluster_init(c, 3);
    c->hold_ms = 300;
    cluster_start(c, 0);
    cluster_start(c, 1);
    cluster_until(c, have_met, c, "the two have met");
    op_run(c, 0, &cmd, &op);
    assert_int_equal(op.status, FL_ENOLEADER);
    op_run(c, 1, &cmd, &op);
    assert_int_equal(op.status, FL_ENOLEADER);
    node_get_status(c->nodes[0].node, &status);
    assert_true(status.founds && status.leader_id == 0);
    assert_int_equal(machine_cluster_id(node_machine(c->nodes[0].node)), 0);
    cluster_start(c, 2);
    cluster_wait_formed(c);
    cluster_stop(c, 0, 0);
    op_run_at_last(c, 1, &cmd, &op);
    assert_int_equal(op.status, 0);
}

TEST_WITH(test_all_restart, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    uint64_t token = cluster_acquire(c, 0, "a", "owner-1");
    for (unsigned i = 0; i < 3; i++) {
        cluster_stop(c, i, 0);
    }
    cluster_start_all(c);
    cluster_check(c, 1, "a", token, MACHINE_DONE);
    assert_true(cluster_acquire(c, 2, "b", "owner-1") > token);
    cluster_expect_same_hash(c);
}

/* The leader goes without a word; what is asked meanwhile is held and answered by the next. */
TEST_WITH(test_held_through_an_election, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    uint64_t token = cluster_acquire(c, leader, "a", "owner-1");
    struct op ops[20];
    unsigned outstanding = 0;
    cluster_stop(c, leader, 0);
    for (unsigned i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "held-%u", i);
        struct machine_command cmd =
            i % 2 == 0 ? cmd_acquire(name, "owner-1", 600000, 0) : cmd_check("a", token);
        unsigned at = (leader + 1 + i % 2) % 3;
        op_init(&ops[i]);
        assert_int_equal(op_submit(c, at, &cmd, &ops[i]), 0);
        outstanding++;
    }
    for (unsigned i = 0; i < 20; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, 0);
        assert_int_equal(ops[i].result.code, i % 2 == 0 ? MACHINE_GRANTED : MACHINE_DONE);
        assert_true(i % 2 == 1 || ops[i].result.token > token);
    }
    cluster_start(c, leader);
    cluster_expect_same_hash(c);
}

TEST_WITH(test_hold_ends, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    struct op op;
    struct machine_command cmd = cmd_acquire("a", "owner-1", 600000, 0);
    cluster_init(c, 3);
    c->hold_ms = 200;
    cluster_start_all(c);
    cluster_wait_formed(c);
    unsigned leader = cluster_wait_leader(c);
    cluster_stop_begin(c, cluster_other_than(c, leader), 0);
    cluster_stop(c, leader, 0);
    cluster_stop(c, cluster_other_than(c, leader), 0);
    unsigned last = (leader + 2) % 3;
    cluster_until(c, knows_no_leader, c, "the last node does not lead");
    op_run(c, last, &cmd, &op);
    assert_int_equal(op.status, FL_ENOLEADER);
    cmd = cmd_check("a", 1);
    op_run(c, last, &cmd, &op);
    assert_int_equal(op.status, FL_ENOLEADER);
}

struct proposed {
    struct node *n;
    uint64_t commands; /* since it started */
};

static uint64_t commands_of(const struct node *n)
{
    return n->proposer.stats.commands;
}

static bool has_proposed(void *ctx)
{
    const struct proposed *p = ctx;
    return commands_of(p->n) > p->commands;
}

static bool follows(void *ctx)
{
    const struct node *n = ctx;
    return replica_role(n->replica) != REPLICA_LEADER;
}

/* The leader is alone and has proposed something since it had so many commands. It gives up within
 * a second, while the others' times are so long that nothing happens before. */
static void depose(struct cluster *c, unsigned leader, uint64_t commands)
{
    struct node *n = c->nodes[leader].node;
    struct proposed p = {n, commands};
    cluster_until(c, has_proposed, &p, "the leader has proposed");
    replica_set_times(n->replica, CLUSTER_ELECTION_MS, n->election.heartbeat_ms);
    cluster_until(c, follows, n, "the leader is deposed");
    replica_set_times(n->replica, n->election.election_ms, n->election.heartbeat_ms);
}

/* A leader that loses its majority knows nothing of what it proposed: UNCERTAIN, but not for a
 * question. */
TEST_WITH(test_leader_alone, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct op write;
    struct op ask;
    struct machine_command w = cmd_acquire("a", "owner-1", 600000, 0);
    struct machine_command q = cmd_check("a", 1);
    cluster_stop(c, (leader + 1) % 3, 0);
    cluster_stop(c, (leader + 2) % 3, 0);
    op_init(&write);
    op_init(&ask);
    uint64_t commands = commands_of(c->nodes[leader].node);
    assert_int_equal(op_submit(c, leader, &w, &write), 0);
    assert_int_equal(op_submit(c, leader, &q, &ask), 0);
    depose(c, leader, commands);
    op_wait(c, &write);
    assert_int_equal(write.status, FL_EUNCERTAIN);
    assert_int_equal(ask.answers, 0);
    cluster_start(c, (leader + 1) % 3);
    op_wait(c, &ask);
    assert_int_equal(ask.status, 0);
}

struct stream_to {
    struct node *n;
    uint64_t leader_id;
};

static bool has_stream(void *ctx)
{
    struct stream_to *s = ctx;
    return relay_has_leader(&s->n->relay, s->leader_id);
}

/* Hands a command to the stream, without a flush: it has not left. */
static void relay_unsent(struct cluster *c, unsigned i, const struct machine_command *cmd,
                         struct op *op)
{
    struct node *n = c->nodes[i].node;
    struct fli_buf buf;
    op_init(op);
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_encode(cmd, &buf), 0);
    /* As node_submit() would, but for the wake. */
    assert_int_equal(op_submit(c, i, cmd, op), 0);
    struct command *m = commands_first(&n->commands, COMMANDS_ALL);
    assert_ptr_equal(m->t, &op->ticket);
    assert_true(relay_send(&n->relay, m));
    fli_buf_fini(&buf);
}

/* The stream to the leader breaks with a write, a question and a write that has not left on it. */
TEST_WITH(test_stream_breaks, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = cluster_other_than(c, leader);
    struct stream_to to = {c->nodes[follower].node, leader + 1};
    struct op sent;
    struct op asked;
    struct op unsent;
    unsigned broken = 0;
    struct machine_command w1 = cmd_acquire("a", "owner-1", 600000, 0);
    struct machine_command q = cmd_check("a", 1);
    struct machine_command w2 = cmd_acquire("b", "owner-1", 600000, 0);
    cluster_until(c, has_stream, &to, "there is a stream to the leader");
    relay_unsent(c, follower, &w1, &sent);
    relay_unsent(c, follower, &q, &asked);
    relay_flush(&to.n->relay);
    relay_unsent(c, follower, &w2, &unsent);
    assert_int_equal(sent.answers + asked.answers + unsent.answers, 0);
    uv_prepare_stop(&to.n->loop.prepare); /* it would flush before the loop looks at the sockets */
    broken += break_connections(&c->loop);
    assert_true(broken > 0);
    op_wait(c, &sent);
    assert_int_equal(sent.status, FL_EUNCERTAIN);
    op_wait(c, &asked);
    assert_int_equal(asked.status, 0);
    op_wait(c, &unsent);
    assert_int_equal(unsent.status, 0);
    assert_int_equal(unsent.result.code, MACHINE_GRANTED);
}

/* Turns until the node has nothing to do at once: on a slow machine its next tick may be due. */
static void come_to_rest(struct cluster *c, const struct node *n)
{
    uint64_t until_ms = fli_clock_ms() + CLUSTER_DEADLINE_MS;
    do {
        uv_run(&c->loop, UV_RUN_NOWAIT);
        assert_true(fli_clock_ms() < until_ms);
    } while (uv_is_active((const uv_handle_t *)&n->loop.idle));
}

/* A command from outside a callback does not wait for the next tick: the loop is told not to wait,
 * and one turn of it proposes. */
TEST_WITH(test_submit_wakes, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    struct node_status before;
    struct node_status after;
    struct op op;
    struct machine_command cmd = cmd_token("t");
    cluster_wait_caught_up(c);
    come_to_rest(c, n);
    node_get_status(n, &before);
    op_init(&op);
    assert_int_equal(op_submit(c, 0, &cmd, &op), 0);
    assert_true(uv_is_active((uv_handle_t *)&n->loop.idle));
    uv_run(&c->loop, UV_RUN_NOWAIT);
    node_get_status(n, &after);
    assert_int_equal(after.batches, before.batches + 1);
    op_wait(c, &op);
}

/* More than one window of commands through one follower, all at once. */
TEST_WITH(test_many_through_a_follower, cluster_set_up, cluster_tear_down)
{
    enum { COUNT = 16384 + 1000 };
    struct cluster *c = cluster_up(state, 3);
    unsigned follower = cluster_other_than(c, cluster_wait_leader(c));
    struct op *ops = test_calloc(COUNT, sizeof *ops);
    struct machine_command cmd = cmd_token("t");
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(op_submit(c, follower, &cmd, &ops[i]), 0);
    }
    uint64_t last = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, 0);
        assert_true(ops[i].result.token > last);
        last = ops[i].result.token;
    }
    test_free(ops);
}

/* What came while a node did not know whether it still leads goes on when it does. */
TEST_WITH(test_commands_wait_until_leadership_is_verified, cluster_set_up, cluster_tear_down)
{
    enum { COUNT = 10000 };
    struct cluster *c = cluster_up(state, 1);
    struct node *node = c->nodes[0].node;
    struct op *ops = test_calloc(COUNT, sizeof *ops);
    struct machine_command cmd = cmd_token("t");
    cluster_wait_caught_up(c);
    node->loop.unverified_until_ms = UINT64_MAX;
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(op_submit(c, 0, &cmd, &ops[i]), 0);
    }
    uv_run(&c->loop, UV_RUN_NOWAIT);
    uint64_t waiting = node->commands.count; /* one of the cluster's own may be among them */
    assert_true(waiting == COUNT || waiting == COUNT + 1);
    node->loop.unverified_until_ms = 0;
    node_wake(node);
    for (unsigned i = 0; i < COUNT; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, 0);
        assert_true(i == 0 || ops[i].result.token > ops[i - 1].result.token);
    }
    assert_true(node->commands.count <= 1);
    test_free(ops);
}

/* A leader with a long line is deposed: all of it comes back, and is done by the next leader, each
 * client's commands in their order. What was in the log of the old one is uncertain. */
TEST_WITH(test_a_long_line_at_a_former_leader, cluster_set_up, cluster_tear_down)
{
    enum { COUNT = 3 * COMMANDS_EXPIRED_MAX, SOURCES = 5 };
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct op *ops = test_calloc(COUNT, sizeof *ops);
    struct machine_command cmd = cmd_token("t");
    uint64_t last[SOURCES] = {0};
    unsigned uncertain = 0;
    cluster_stop(c, (leader + 1) % 3, 0);
    cluster_stop(c, (leader + 2) % 3, 0);
    uint64_t commands = commands_of(c->nodes[leader].node);
    for (unsigned i = 0; i < COUNT; i++) {
        ops[i].ticket.source = 1 + i % SOURCES;
        assert_int_equal(op_submit(c, leader, &cmd, &ops[i]), 0);
    }
    depose(c, leader, commands);
    op_wait(c, &ops[0]);
    assert_int_equal(ops[0].status, FL_EUNCERTAIN);
    cluster_start(c, (leader + 1) % 3);
    for (unsigned i = 0; i < COUNT; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].answers, 1);
        if (ops[i].status == FL_EUNCERTAIN) {
            uncertain++;
            continue;
        }
        assert_int_equal(ops[i].status, 0);
        assert_true(ops[i].result.token > last[i % SOURCES]);
        last[i % SOURCES] = ops[i].result.token;
    }
    assert_true(uncertain < COUNT - 2 * COMMANDS_EXPIRED_MAX);
    test_free(ops);
}

/* With short segments an entry of the log holds less than the proposer would put into one. */
TEST_WITH(test_a_batch_fits_the_log, cluster_set_up, cluster_tear_down)
{
    enum { COUNT = 64 };
    struct cluster *c = *state;
    cluster_init(c, 1);
    c->log_segment_bytes = LOG_SEGMENT_MIN;
    cluster_start_all(c);
    cluster_wait_formed(c);
    cluster_wait_leader(c);
    uint64_t entry_max = log_entry_max(c->nodes[0].node->log);
    assert_true(entry_max < LOG_SEGMENT_MIN && (uint64_t)COUNT * FL_VALUE_MAX > 2 * entry_max);
    struct op *ops = test_calloc(COUNT, sizeof *ops);
    uint8_t value[FL_VALUE_MAX];
    memset(value, 'v', sizeof value);
    for (unsigned i = 0; i < COUNT; i++) { /* all of them before the loop turns */
        char name[16];
        snprintf(name, sizeof name, "lock-%u", i);
        struct machine_command cmd = cmd_acquire(name, "owner-1", 600000, 0);
        cmd.value = (struct fli_slice){value, sizeof value};
        assert_int_equal(op_submit(c, 0, &cmd, &ops[i]), 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, 0);
        assert_int_equal(ops[i].result.code, MACHINE_GRANTED);
    }
    test_free(ops);
    struct node_status s;
    node_get_status(c->nodes[0].node, &s);
    assert_true(s.batches >= COUNT * FL_VALUE_MAX / entry_max);
    cluster_stop(c, 0, 1000);
    cluster_start(c, 0);
    cluster_check(c, 0, "lock-63", COUNT, MACHINE_DONE);
}

/* What may wait is bounded: the most is taken, one more is refused at once. */
TEST_WITH(test_pending_is_bounded, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    struct fli_buf buf;
    struct machine_command cmd = cmd_release("t", 1);
    cluster_init(c, 3);
    c->hold_ms = 1000;
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_encode(&cmd, &buf), 0);
    unsigned most = MACHINE_COMMAND_MAX / (unsigned)buf.len;
    fli_buf_fini(&buf);
    c->pending_max = MACHINE_COMMAND_MAX;
    cluster_start(c, 0);
    struct op *ops = test_calloc(most + 1, sizeof *ops);
    for (unsigned i = 0; i < most; i++) {
        ops[i].ticket.source = i; /* one alone has but three quarters */
        assert_int_equal(op_submit(c, 0, &cmd, &ops[i]), 0);
    }
    assert_int_equal(op_submit(c, 0, &cmd, &ops[most]), FL_EBUSY);
    for (unsigned i = 0; i < most; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, FL_ENOLEADER);
    }
    assert_int_equal(ops[most].answers, 0);
    assert_int_equal(op_submit(c, 0, &cmd, &ops[0]), 0);
    op_wait(c, &ops[0]);
    test_free(ops);
}

/* ---- handing over ---- */

TEST_WITH(test_transfer, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned target = cluster_other_than(c, leader);
    struct cluster_count count = {0, 1};
    struct node *n = c->nodes[leader].node;
    cluster_acquire(c, leader, "a", "owner-1");
    assert_int_equal(node_transfer(n, 99, cluster_count_cb, &count), FL_ENOTFOUND);
    assert_int_equal(node_transfer(n, leader + 1, cluster_count_cb, &count),
                     0); /* it leads already */
    assert_int_equal(count.calls, 1);
    assert_int_equal(count.status, 0);
    count.calls = 0;
    assert_int_equal(node_transfer(c->nodes[target].node, 0, cluster_count_cb, &count),
                     FL_ENOLEADER);
    assert_int_equal(node_transfer(n, target + 1, cluster_count_cb, &count), 0);
    assert_int_equal(node_transfer(n, target + 1, cluster_count_cb, &count), FL_EBUSY);
    cluster_until(c, cluster_counted, &count, "leadership was handed over");
    assert_int_equal(count.calls, 1);
    assert_int_equal(count.status, 0);
    assert_int_equal(cluster_wait_leader(c), target);
    cluster_acquire(c, leader, "b", "owner-1");
}

/* Under load at every node, the leader stops in order: nothing is uncertain, and no election by
 * timeout is needed. */
TEST_WITH(test_stop_in_order, cluster_set_up, cluster_tear_down)
{
    enum { COUNT = 300, DRAIN_MS = 50000 };
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct op *ops = test_calloc(COUNT, sizeof *ops);
    unsigned accepted = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "lock-%u", i);
        struct machine_command cmd = cmd_acquire(name, "owner-1", 600000, 0);
        if (i == COUNT / 2) {
            cluster_stop_begin(c, leader, DRAIN_MS);
        }
        unsigned at = i % 3;
        if (c->nodes[at].stopping || c->nodes[at].node == NULL) {
            at = cluster_other_than(c, leader);
        }
        assert_int_equal(op_submit(c, at, &cmd, &ops[i]), 0);
        accepted++;
        if (i % 10 == 9) {
            uv_run(&c->loop, UV_RUN_NOWAIT);
        }
    }
    for (unsigned i = 0; i < accepted; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, 0);
        assert_int_equal(ops[i].result.code, MACHINE_GRANTED);
    }
    test_free(ops);
    cluster_stop(c, leader, DRAIN_MS);
    /* There was a new leader before the old one was gone. */
    assert_int_not_equal(cluster_leader(c), -1);
    cluster_expect_same_hash(c);
}

TEST_WITH(test_refused_while_stopping, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct op op;
    struct machine_command cmd = cmd_acquire("a", "owner-1", 600000, 0);
    op_init(&op);
    cluster_stop_begin(c, 0, 1000);
    assert_int_equal(op_submit(c, 0, &cmd, &op), FL_ENOLEADER);
    cluster_stop(c, 0, 1000);
    assert_int_equal(op.answers, 0);
}

/* ---- snapshots ---- */

/* The last snapshot that all nodes have which are up. */
static uint64_t snapshot_of_all(const struct cluster *c)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < c->n; i++) {
        struct node_status s;
        if (c->nodes[i].node != NULL) {
            node_get_status(c->nodes[i].node, &s);
            least = s.snapshot_index < least ? s.snapshot_index : least;
        }
    }
    return least;
}

TEST_WITH(test_snapshot_and_catch_up, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    cluster_init(c, 3);
    c->snapshot_bytes = 64 << 10;
    cluster_start_all(c);
    cluster_wait_formed(c);
    unsigned leader = cluster_wait_leader(c);
    unsigned away = cluster_other_than(c, leader);
    uint64_t last = log_last_index(c->nodes[away].node->log);
    cluster_stop(c, away, 0);
    /* One entry each, enough bytes for snapshots and more entries than are kept behind one: until
     * nobody who may lead has those any more that the other node wants next. */
    uint8_t value[FL_VALUE_MAX];
    memset(value, 'v', sizeof value);
    uint64_t until_ms = fli_clock_ms() + CLUSTER_DEADLINE_MS; /* another process writes them */
    uint64_t past = last + c->nodes[leader].node->config.log_kept_entries;
    for (unsigned i = 0; i < 900 || snapshot_of_all(c) <= past; i++) {
        assert_true(fli_clock_ms() < until_ms);
        char name[16];
        struct op op;
        snprintf(name, sizeof name, "lock-%u", i % 50);
        struct machine_command cmd = cmd_acquire(name, "owner-1", 600000, 0);
        cmd.value = (struct fli_slice){value, sizeof value};
        op_run(c, leader, &cmd, &op);
        assert_true(op.status == 0 || op.status == FL_EUNCERTAIN); /* at an election */
    }
    struct node_status s;
    node_get_status(c->nodes[leader].node, &s);
    assert_true(s.snapshots > 0);
    cluster_start(c, away);
    node_get_status(c->nodes[away].node, &s);
    uint64_t restores = s.restores;
    cluster_expect_same_hash(c);
    node_get_status(c->nodes[away].node, &s);
    assert_true(s.restores > restores); /* more than one, when the leader was faster than it */
    for (unsigned i = 0; i < 3; i++) {
        cluster_stop(c, i, 0);
    }
    cluster_start_all(c);
    cluster_wait_leader(c);
    cluster_acquire(c, away, "after", "owner-1");
    cluster_expect_same_hash(c);
}
