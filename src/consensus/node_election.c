/* node_election.c: a dead leader is replaced at once, not after an election time of silence.
 *
 * A process that ends has its connections closed by its kernel. That alone says little, since
 * connections break for other reasons. So the stream that raft had to it is opened again; when
 * every address refuses, nobody listens there, and a leader listens as long as it lives. When it
 * has also missed a heartbeat, this node's election timer is made to run out.
 *
 * The others notice at the same moment. If two ask for votes at once, neither gets them, so each
 * waits for its turn, by the order of ids; whoever is asked before its turn yields (raft_guard.h).
 * Later turns are for when the first ones got nowhere. After a few of them raft's own random timer
 * is left to decide.
 *
 * A leader that is alive loses nothing by all this: a follower that cannot reach it but is heard by
 * others asks for pre-votes, is refused, and follows again with the next heartbeat. One that is
 * stopped, or whose host is gone, closes no connection: that takes the election time. */
#include "base/clock.h"
#include "consensus/node_private.h"

#define TURN_MS 20u /* between the turns of two nodes: some votes' round trips */
#define ROUNDS_MAX 10u

/* Its place among those who may take over. */
static unsigned turn_of(const struct node *n)
{
    unsigned before = 0;
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        before += n->peers[i].id < n->id && !n->peers[i].gone;
    }
    return before;
}

/* A random part keeps nodes apart whose turns a slow machine has moved together. */
static uint64_t until_turn_ms(const struct node *n)
{
    uint8_t number;
    fli_random(&number, sizeof number);
    return turn_of(n) * (uint64_t)TURN_MS + number % (TURN_MS / 2);
}

static uint64_t enough_silence_ms(const struct node *n)
{
    return n->heartbeat_ms + n->heartbeat_ms / 2;
}

static void begin(struct node *n, uint64_t leader_id)
{
    uint64_t silent_ms = raft_guard_silence_ms(&n->guard);
    uint64_t enough_ms = enough_silence_ms(n);
    n->gone_id = leader_id;
    n->hurries_left = ROUNDS_MAX;
    n->hurry_term = raft_current_term(&n->raft);
    n->hurry_at_ms = uv_now(n->loop) + until_turn_ms(n);
    n->hurry_at_ms += silent_ms < enough_ms ? enough_ms - silent_ms : 0;
    raft_guard_set_gone(&n->guard, leader_id);
    node_log(n, 3, "node %llu, the leader, does not run any more", (unsigned long long)leader_id);
    node_wake(n);
}

static void end(struct node *n)
{
    n->gone_id = 0;
    raft_guard_set_gone(&n->guard, 0);
}

static void look_at_leader(struct node *n)
{
    struct peer *leader = n->role == NODE_FOLLOWER ? node_peer(n, n->leader_id) : NULL;
    if (n->phase != PHASE_RUN || n->failed) {
        n->gone_id = 0;
    } else if (leader != NULL && leader->gone && n->gone_id != leader->id) {
        begin(n, leader->id);
    }
}

void election_peer_absent(void *ctx, uint64_t peer_id)
{
    struct node *n = ctx;
    struct peer *p = node_peer(n, peer_id);
    if (p != NULL && !p->gone) {
        p->gone = true;
        look_at_leader(n);
    }
}

void election_peer_hung_up(void *ctx, uint64_t peer_id)
{
    struct node *n = ctx;
    const struct member *m = members_find(&n->identity.members, peer_id);
    if (m != NULL && n->raft_live) {
        raft_guard_nudge(&n->guard, peer_id, m->address);
    }
}

void election_peer_back(struct node *n, struct peer *p)
{
    p->gone = false;
    if (n->gone_id == p->id) {
        end(n);
    }
}

void election_turn(struct node *n)
{
    uint64_t now_ms = uv_now(n->loop);
    look_at_leader(n);
    if (n->gone_id == 0 || now_ms < n->hurry_at_ms) {
        return;
    }
    bool replaced = n->role == NODE_LEADER || (n->leader_id != 0 && n->leader_id != n->gone_id);
    if (replaced || n->hurries_left == 0) {
        end(n);
        return;
    }
    if (n->leader_id == n->gone_id && raft_guard_silence_ms(&n->guard) < enough_silence_ms(n)) {
        n->hurry_at_ms = now_ms + enough_silence_ms(n); /* it was heard after all */
        return;
    }
    /* A round is long enough for everybody's turn. When there was a vote in it, its outcome is
     * waited for once more. */
    uint64_t term = raft_current_term(&n->raft);
    n->hurries_left--;
    n->hurry_at_ms = now_ms + n->identity.members.n * (uint64_t)TURN_MS + until_turn_ms(n);
    if (term == n->hurry_term) {
        (void)raft_guard_hurry(&n->guard);
        node_wake(n);
    }
    n->hurry_term = raft_current_term(&n->raft);
}

uint64_t election_next_ms(struct node *n)
{
    uint64_t now_ms = uv_now(n->loop);
    if (n->gone_id == 0) {
        return UINT64_MAX;
    }
    return n->hurry_at_ms <= now_ms ? 0 : n->hurry_at_ms - now_ms;
}
