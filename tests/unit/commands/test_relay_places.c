/* test_relay_places.c: the places that a follower has for leaders. */
#include "../peer/rig.h"

#include <sys/socket.h>
#include <unistd.h>

#include "commands/relay.h"

static void nothing(void *ctx)
{
}

#define LEADERS (KNOWN_MEMBERS_MAX + 1)

static struct peers peers;
static struct members members;

/* Node 1 alone, and the node with this id. */
static void follow(struct rig *r, struct relay *c, uint64_t id, const char *address)
{
    members = (struct members){0};
    assert_true(members_put(&members, 1, r->members.list[0].address));
    assert_true(members_put(&members, id, address));
    transport_set_members(r->a.t, &members);
    relay_leave_strangers(c);
    peers_set_members(&peers, &members);
    relay_follow(c, id);
}

/* More nodes lead and are members no more, while they are called, than there are places. Each call
 * ends with its member, and whoever leads next is called at once. */
TEST(test_a_leader_that_finds_no_place)
{
    struct commands queue;
    struct relay c;
    uint16_t port;
    int fds[LEADERS];
    char silent[64];
    int listener = plain_listener(&port, LEADERS);
    (void)snprintf(silent, sizeof silent, "127.0.0.1:%u", port);
    struct rig *r = rig_open(NULL);
    const struct host host = {.loop = &r->loop, .wake = nothing};
    const struct election election = {.members = &members, .election_ms = RIG_PATIENCE_MS};
    const struct relay_config config = {.peers = &peers, .election = &election, .queue = &queue};
    peers.host = &host;
    peers.transport = r->a.t;
    peers.self_id = 1;
    commands_init(&queue, 1 << 20, 0);
    relay_init(&c, &config);
    for (unsigned i = 0; i < LEADERS; i++) {
        follow(r, &c, 100 + i, silent);
        assert_ptr_equal(peers_find(&peers, 100 + i)->relay_dials, &c);
        fds[i] = accept(listener, NULL, NULL);
        assert_true(fds[i] >= 0);
    }
    follow(r, &c, 2, r->members.list[1].address);
    RUN_UNTIL(r, relay_has_leader(&c, 2));
    for (unsigned i = 0; i < LEADERS; i++) {
        close(fds[i]);
    }
    relay_close(&c, "the end of the test");
    close(listener);
    commands_fini(&queue);
    rig_close(r);
}
