/* node_settings.c: the settings that an operator made for all nodes (CLUSTER CONFIG). They replace
 * this node's own options as soon as it has applied them, and after each start.
 *
 * An operator may have set only one of election time and heartbeat. Then the node's own value of
 * the other one is adjusted, so that MACHINE_HEARTBEATS_MIN heartbeats fit into an election time
 * whatever its options are.
 *
 * With an election time that is too short for the links between the nodes nobody is elected, and
 * so nobody can set a longer one. A node that finds no leader for LEADERLESS_ELECTIONS of its own
 * election times goes by its own, if that is longer, until the settings change. It may also have
 * been alone for so long, and the setting be fine: so it ends as well when this node follows a
 * leader that goes by the setting. */
#include "node/node_private.h"

#include <string.h>

#include "base/clock.h"

#define LEADERLESS_ELECTIONS 50u

/* The values in force: the cluster's settings where set, else the node's own options. */
static void find_in_force(const struct node_config *options, const struct machine_settings *cluster,
                          struct machine_settings *ret)
{
    ret->election_ms = cluster->election_ms != 0 ? cluster->election_ms : options->election_ms;
    ret->heartbeat_ms = cluster->heartbeat_ms != 0 ? cluster->heartbeat_ms : options->heartbeat_ms;
    ret->hold_ms = cluster->hold_ms != 0 ? cluster->hold_ms : options->hold_ms;
    ret->log_level = cluster->log_level;
    if (ret->election_ms < MACHINE_HEARTBEATS_MIN * ret->heartbeat_ms) {
        if (cluster->election_ms != 0) {
            ret->heartbeat_ms = ret->election_ms / MACHINE_HEARTBEATS_MIN;
        } else {
            ret->election_ms = MACHINE_HEARTBEATS_MIN * ret->heartbeat_ms;
        }
    }
}

/* Whether the cluster's election time may be why no leader is found. */
static bool is_too_short(const struct node *n)
{
    unsigned set_ms = n->settings.cluster.election_ms;
    unsigned own_ms = n->config.election_ms;
    return set_ms != 0 && set_ms < own_ms && n->watch.leader_id == 0 &&
           fli_clock_since_ms(n->watch.led_ms) >= (uint64_t)LEADERLESS_ELECTIONS * own_ms;
}

static bool leader_goes_by_the_setting(const struct node *n)
{
    uint64_t leader = replica_leader(n->replica);
    const struct node_report *r = leader == n->config.id ? NULL : node_report_of(n, leader);
    return r != NULL && !r->own_election;
}

/* Whether the times in force must be found anew. */
static bool has_news(struct node *n, const struct machine_settings *cluster)
{
    struct node_settings *s = &n->settings;
    bool changed = memcmp(cluster, &s->cluster, sizeof s->cluster) != 0;
    if (changed || (s->own_election && leader_goes_by_the_setting(n))) {
        s->cluster = *cluster;
        s->own_election = false;
        return true;
    }
    if (s->own_election || !is_too_short(n)) {
        return false;
    }
    s->own_election = true;
    host_log(&n->host, 2,
             "no leader is found with election_ms=%u of CLUSTER CONFIG: this node goes by its own, "
             "%u, until that is changed or a leader goes by it",
             cluster->election_ms, n->config.election_ms);
    return true;
}

/* Gives the times to the parts. Whether they are new. */
static bool set_times(struct node *n, const struct machine_settings *now)
{
    struct election *e = &n->election;
    bool times = now->election_ms != e->election_ms || now->heartbeat_ms != e->heartbeat_ms;
    bool news = times || now->hold_ms != n->commands.hold_ms;
    if (times) {
        e->election_ms = now->election_ms;
        e->heartbeat_ms = now->heartbeat_ms;
        replica_set_times(n->replica, now->election_ms, now->heartbeat_ms);
        transport_set_times(n->peers.transport, now->election_ms / 2, now->election_ms,
                            NODE_UNACKED_MS(now->election_ms));
    }
    n->commands.hold_ms = now->hold_ms;
    return news;
}

void node_settings_turn(struct node *n)
{
    const struct machine_settings *cluster = machine_get_settings(fsm_machine(n->fsm));
    struct machine_settings now;
    if (!has_news(n, cluster)) {
        return;
    }
    struct machine_settings set = *cluster;
    set.election_ms = n->settings.own_election ? 0 : set.election_ms;
    find_in_force(&n->config, &set, &now);
    if (set_times(n, &now)) {
        host_log(&n->host, 3,
                 "CLUSTER CONFIG: the times of this node are election_ms=%u heartbeat_ms=%u "
                 "hold_ms=%u",
                 now.election_ms, now.heartbeat_ms, now.hold_ms);
    }
    if (n->cbs.settings != NULL) {
        n->cbs.settings(n->cbs.ctx, cluster);
    }
}
