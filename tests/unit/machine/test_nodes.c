/* test_nodes.c: what is to become of nodes, and the version of the cluster. */
#include "fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine/state.h"

static struct machine_command node_command(uint8_t op, uint64_t id, uint64_t flags,
                                           const char *address)
{
    struct machine_command c = cmd_number(op, id, flags);
    c.value = fixture_slice(address);
    return c;
}

static struct machine_node node_of(struct fixture *k, uint64_t id)
{
    return *machine_node_find(k->m, id);
}

#define RUN(command, wanted) assert_int_equal(fixture_run(k, command).code, wanted)

TEST_WITH(test_added, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    RUN(node_command(MACHINE_OP_NODE_ADD, 4, MACHINE_NODE_LEARNER, "h:4"), MACHINE_DONE);
    RUN(node_command(MACHINE_OP_NODE_ADD, 4, 0, "h:5"), MACHINE_EXISTS);
    struct machine_node n = node_of(k, 4);
    assert_int_equal(n.plan, MACHINE_PLAN_ADD);
    assert_true(n.learner);
    assert_string_equal(n.address, "h:4");
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 5, 0), MACHINE_NOTFOUND);
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 4, 0), MACHINE_DONE);
    n = node_of(k, 4);
    assert_int_equal(n.plan, MACHINE_PLAN_NONE);
    assert_string_equal(n.address, "");
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 4, 0), MACHINE_NOTFOUND);
}

/* One is removed step by step, one at a time; it may be that nothing was known of it. */
TEST_WITH(test_removed, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    RUN(node_command(MACHINE_OP_NODE_ADD, 4, MACHINE_NODE_LEARNER, "h:4"), MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_NODE_REMOVE, 4, 0), MACHINE_DONE);
    assert_true(!node_of(k, 4).learner && node_of(k, 4).address[0] == '\0');
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 4, 0), MACHINE_DONE);
    assert_int_equal(node_of(k, 4).id, 0);
    RUN(cmd_number(MACHINE_OP_NODE_REMOVE, 1, 0), MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_NODE_REMOVE, 1, 0), MACHINE_DONE); /* asked twice */
    RUN(node_command(MACHINE_OP_NODE_REPLACE, 1, 0, "h:1"), MACHINE_EXISTS);
    assert_int_equal(node_of(k, 1).id, 1); /* until it is out of the configuration */
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 1, 0), MACHINE_DONE);
    assert_int_equal(node_of(k, 1).id, 0);
    RUN(cmd_number(MACHINE_OP_NODE_REMOVE, 2, 0), MACHINE_DONE);
}

/* One that waits is withdrawn by a later one for another node, and leaves nothing behind. */
TEST_WITH(test_withdrawn, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command replace =
        node_command(MACHINE_OP_NODE_REPLACE, 1, MACHINE_NODE_LEARNER, "h:9");
    replace.flags = MACHINE_NODE_FORCED;
    RUN(replace, MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_NODE_REMOVE, 2, 0), MACHINE_DONE);
    struct machine_node n = node_of(k, 1);
    assert_true(n.id == 1 && n.plan == MACHINE_PLAN_NONE);
    assert_true(!n.learner && !n.forced && n.address[0] == '\0');
    RUN(node_command(MACHINE_OP_NODE_REPLACE, 1, 0, "h:1"), MACHINE_DONE);
    assert_int_equal(node_of(k, 2).plan, MACHINE_PLAN_NONE);
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 1, 0), MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_NODE_REMOVE, 2, 0), MACHINE_DONE);
    assert_int_equal(node_of(k, 1).plan, MACHINE_PLAN_ADD); /* it has left, and comes */
}

/* A plan keeps that it was forced, in a snapshot too, until it is carried out. Asking again may
 * force one that waits. */
TEST_WITH(test_forced, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command force = cmd_number(MACHINE_OP_NODE_REMOVE, 1, 0);
    force.flags = MACHINE_NODE_FORCED;
    RUN(cmd_number(MACHINE_OP_NODE_REMOVE, 1, 0), MACHINE_DONE);
    assert_false(node_of(k, 1).forced);
    RUN(force, MACHINE_DONE);
    assert_true(node_of(k, 1).forced);
    fixture_reload(k);
    assert_true(node_of(k, 1).forced && node_of(k, 1).plan == MACHINE_PLAN_REMOVE);
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 1, 0), MACHINE_DONE);
    struct machine_command replace = node_command(MACHINE_OP_NODE_REPLACE, 1, 0, "h:9");
    replace.flags = MACHINE_NODE_FORCED;
    RUN(replace, MACHINE_DONE);
    assert_true(node_of(k, 1).forced);
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 1, 0), MACHINE_DONE);
    assert_false(node_of(k, 1).forced);
}

/* How the process ends that checks the machine after its first node got this plan, forced. */
static int status_of_check(struct fixture *k, enum machine_plan plan)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO); /* nobody needs to read of it */
        k->m->nodes[0].plan = plan;
        k->m->nodes[0].forced = true;
        machine_check(k->m);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

TEST_WITH(test_the_check_of_what_is_forced, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, 1, 1), MACHINE_DONE);
    for (enum machine_plan plan = MACHINE_PLAN_NONE; plan <= MACHINE_PLAN_REPLACE; plan++) {
        bool leaves = plan == MACHINE_PLAN_REMOVE || plan == MACHINE_PLAN_REPLACE;
        int status = status_of_check(k, plan);
        assert_true(leaves ? status == 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

/* Another one with its number is waited for once it has left. */
TEST_WITH(test_replaced, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, 1, 1), MACHINE_DONE);
    RUN(node_command(MACHINE_OP_NODE_REPLACE, 1, 0, "h:9"), MACHINE_DONE);
    assert_int_equal(node_of(k, 1).plan, MACHINE_PLAN_REPLACE);
    assert_int_equal(node_of(k, 1).version, 1);
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 1, 0), MACHINE_DONE);
    assert_int_equal(node_of(k, 1).plan, MACHINE_PLAN_ADD);
    assert_int_equal(node_of(k, 1).version, 0);
    assert_string_equal(node_of(k, 1).address, "h:9");
    RUN(cmd_number(MACHINE_OP_NODE_SETTLED, 1, 0), MACHINE_DONE);
    assert_int_equal(node_of(k, 1).plan, MACHINE_PLAN_NONE);
}

TEST_WITH(test_limits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char longest[MACHINE_NODE_ADDRESS_MAX + 2];
    memset(longest, 'a', sizeof longest);
    longest[MACHINE_NODE_ADDRESS_MAX] = '\0';
    RUN(node_command(MACHINE_OP_NODE_ADD, 1, 0, longest), MACHINE_DONE);
    assert_int_equal(strlen(node_of(k, 1).address), MACHINE_NODE_ADDRESS_MAX);
    longest[MACHINE_NODE_ADDRESS_MAX] = 'a';
    longest[MACHINE_NODE_ADDRESS_MAX + 1] = '\0';
    struct machine_command c = node_command(MACHINE_OP_NODE_ADD, 2, 0, longest);
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c = node_command(MACHINE_OP_NODE_ADD, 2, MACHINE_NODE_FLAGS + 1, "h:2");
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    for (uint64_t id = 2; id <= MACHINE_NODES_MAX; id++) {
        RUN(node_command(MACHINE_OP_NODE_ADD, id, 0, "h:1"), MACHINE_DONE);
    }
    RUN(node_command(MACHINE_OP_NODE_ADD, 99, 0, "h:1"), MACHINE_LIMIT);
    RUN(node_command(MACHINE_OP_NODE_REPLACE, 99, 0, "h:1"), MACHINE_LIMIT);
    RUN(cmd_number(MACHINE_OP_NODE_REMOVE, 99, 0), MACHINE_LIMIT);
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, 99, 1), MACHINE_LIMIT);
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, MACHINE_NODES_MAX, 1), MACHINE_DONE);
}

/* Raised by what all know, and only then; a node that steps back holds it up. */
TEST_WITH(test_version, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    assert_int_equal(machine_version(k->m), 1);
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, 2, 1), MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_VERSION_RAISE, 1, 0), MACHINE_EXISTS);
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, 1, 2), MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_VERSION_RAISE, 2, 0), MACHINE_EXISTS);
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, 2, 2), MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, 2, 1), MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_VERSION_RAISE, 2, 0), MACHINE_EXISTS);
    RUN(cmd_number(MACHINE_OP_NODE_VERSION, 2, 3), MACHINE_DONE);
    RUN(cmd_number(MACHINE_OP_VERSION_RAISE, 3, 0), MACHINE_EXISTS);
    RUN(cmd_number(MACHINE_OP_VERSION_RAISE, 2, 0), MACHINE_DONE);
    assert_int_equal(machine_version(k->m), 2);
    RUN(cmd_number(MACHINE_OP_VERSION_RAISE, 1, 0), MACHINE_EXISTS);
}
