/* election.c: see election.h. */
#include "consensus/election.h"

#include <inttypes.h>

#include "base/clock.h"

#define TURN_MS 20u /* between the turns of two nodes: a few round trips of votes */
#define ROUNDS_MAX 10u

/* Another follower may have heard the leader a little later. It refuses its vote until the leader
 * has been silent there for an election time as well. */
#define LATER_MS 10u

#define NOBODY UINT64_MAX /* in place of the leader that is to be replaced: there is none */

void election_init(struct election *e, const struct host *host, struct peers *peers,
                   const struct members *members, uint64_t id, unsigned heartbeat_ms,
                   unsigned election_ms)
{
    *e = (struct election){.host = *host,
                           .peers = peers,
                           .members = members,
                           .id = id,
                           .heartbeat_ms = heartbeat_ms,
                           .election_ms = election_ms};
}

static bool is_gone(const struct election *e, uint64_t id)
{
    const struct peer *p = peers_find(e->peers, id);
    return p != NULL && p->gone;
}

/* This node's place among the members that may take over, and a random part, which separates nodes
 * whose turns a slow machine has pushed together. */
static uint64_t until_turn_ms(const struct election *e)
{
    unsigned before = 0;
    uint8_t number;
    for (unsigned i = 0; i < e->members->n; i++) {
        uint64_t id = e->members->list[i].id;
        before += id < e->id && id != e->gone_id && !is_gone(e, id);
    }
    fli_random(&number, sizeof number);
    return before * (uint64_t)TURN_MS + number % (TURN_MS / 2);
}

/* 0: it follows none, or one that is not a member any more. */
static uint64_t leader_followed(const struct election *e)
{
    uint64_t id = replica_role(e->replica) == REPLICA_FOLLOWER ? replica_leader(e->replica) : 0;
    return id != e->id && members_find(e->members, id) != NULL ? id : 0;
}

/* How long the leader that is followed must be silent until it is replaced. */
static uint64_t enough_silence_ms(const struct election *e, bool gone)
{
    return gone ? e->heartbeat_ms + e->heartbeat_ms / 2 : e->election_ms + LATER_MS;
}

/* How long that is from now on; UINT64_MAX: no other node is followed. */
static uint64_t until_silent_ms(const struct election *e, uint64_t now_ms)
{
    uint64_t leader = leader_followed(e);
    uint64_t silence_ms = replica_silence_ms(e->replica, now_ms);
    uint64_t enough_ms = enough_silence_ms(e, is_gone(e, leader));
    return leader == 0 ? UINT64_MAX : silence_ms >= enough_ms ? 0 : enough_ms - silence_ms;
}

/* Replaces the leader, or NOBODY, at this node's turn. */
static void begin(struct election *e, uint64_t leader_id, uint64_t at_ms)
{
    e->gone_id = leader_id;
    e->rounds_left = ROUNDS_MAX;
    e->campaign_term = replica_term(e->replica);
    e->campaign_at_ms = at_ms + until_turn_ms(e);
}

void election_peer_absent(struct election *e, uint64_t id)
{
    struct peer *p = peers_find(e->peers, id);
    if (p == NULL || p->gone) {
        return;
    }
    p->gone = true;
    if (e->replica != NULL && leader_followed(e) == id) {
        host_log(&e->host, 3, "node %" PRIu64 ", the leader, does not run any more", id);
    }
    e->host.wake(e->host.ctx);
}

void election_peer_back(struct election *e, uint64_t id)
{
    struct peer *p = peers_find(e->peers, id);
    if (p != NULL) {
        p->gone = false;
    }
    if (!e->had_leader || replica_leader(e->replica) != 0) {
        return;
    }
    /* The reason why this node heard no leader may be over: links work again. The library's timer
     * may be far from its end. If there is a leader already, it is heard before a turn comes. */
    if (e->gone_id == NOBODY) {
        e->rounds_left = ROUNDS_MAX;
    } else {
        begin(e, NOBODY, fli_clock_ms() + enough_silence_ms(e, true));
    }
    e->host.wake(e->host.ctx);
}

/* A round lasts long enough for every member's turn. When a vote was held in it, one more round
 * waits for the outcome. */
static void hold_round(struct election *e, uint64_t now_ms)
{
    e->rounds_left--;
    e->campaign_at_ms = now_ms + e->members->n * (uint64_t)TURN_MS + until_turn_ms(e);
    if (replica_term(e->replica) == e->campaign_term) {
        (void)replica_campaign(e->replica, now_ms);
        e->host.wake(e->host.ctx);
    }
    e->campaign_term = replica_term(e->replica);
}

void election_turn(struct election *e, bool running)
{
    uint64_t now_ms = fli_clock_ms();
    uint64_t leader = replica_leader(e->replica);
    bool silent = until_silent_ms(e, now_ms) == 0;
    e->had_leader = e->had_leader || leader != 0;
    replica_set_leader_gone(e->replica, running && is_gone(e, leader));
    if (!running || (leader != 0 && !silent)) {
        e->gone_id = 0; /* also of one that was found gone, if its last messages came late */
    } else if (silent && e->gone_id != leader) {
        begin(e, leader, now_ms);
    } else if (e->gone_id != 0 && now_ms >= e->campaign_at_ms) {
        if (e->rounds_left == 0) {
            e->gone_id = 0;
        } else {
            hold_round(e, now_ms);
        }
    }
}

uint64_t election_next_ms(const struct election *e, bool running)
{
    uint64_t now_ms = fli_clock_ms();
    if (!running) {
        return UINT64_MAX;
    }
    if (e->gone_id == 0) {
        return until_silent_ms(e, now_ms);
    }
    return e->campaign_at_ms <= now_ms ? 0 : e->campaign_at_ms - now_ms;
}
