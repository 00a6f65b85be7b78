/* steps.c: what must hold after every step, of all nodes at once; and of what a node says to others
 * and writes to its disk. Nothing here waits for the harm that a mistake does later.
 *
 *   - What one node counts as committed, entries and changes of members, all others do.
 *   - A change of the configuration differs from the committed one before it in one member. It is
 *     made in a term that has begun. Whoever is taken out or moved leaves a majority of the others
 *     connected.
 *   - What a directory knows of starts and members does not go back. */
#include "steps.h"

#include <stdlib.h>
#include <string.h>

#include "members/membership_private.h"
#include "members.h"
#include "net_private.h"
#include "node_clock.h"
#include "promises.h"

#define HEARD_MS 3000u /* a follower says something twice a second */

struct sim_steps {
    uint64_t *terms; /* of committed entries, by index; 0: unknown */
    size_t terms_cap;
    uint64_t committed; /* the most that any node has committed */
    struct sim_read_back read_back[SIM_NODES_MAX];
};

void sim_steps_init(struct sim *s)
{
    s->steps = calloc(1, sizeof *s->steps);
    FLI_ASSERT(s->steps != NULL);
    sim_promises_init(s);
    sim_operations_init();
}

void sim_steps_fini(struct sim *s)
{
    free(s->steps->terms);
    free(s->steps);
    sim_promises_fini(s);
    sim_operations_fini();
}

struct sim_read_back *sim_steps_read_back(const struct sim_node *n)
{
    return &n->sim->steps->read_back[n->index];
}

/* ---- what is committed ---- */

/* One that a node has committed is committed; its log has those before it as well. */
static void note_committed(const struct sim_node *n, uint64_t index)
{
    struct sim_steps *k = n->sim->steps;
    uint64_t first = k->committed < index ? k->committed + 1 : index;
    k->terms = sim_grow(k->terms, &k->terms_cap, index + 1, sizeof *k->terms);
    for (uint64_t i = first; i <= index; i++) {
        uint64_t term = log_term_of(n->node->log, i);
        SIM_CHECK(n->sim, term == 0 || k->terms[i] == 0 || k->terms[i] == term,
                  "node %u counts entry %llu of term %llu as committed, which is of term %llu",
                  n->index + 1, ull(i), ull(term), ull(k->terms[i]));
        k->terms[i] = k->terms[i] == 0 ? term : k->terms[i];
    }
    k->committed = k->committed < index ? index : k->committed;
}

/* A cluster begins with the change at index 1. */
static void check_change_committed(const struct sim_node *n)
{
    const struct sim_steps *k = n->sim->steps;
    uint64_t index = n->raft->configuration_committed_index;
    uint64_t term = index <= 1 ? 0 : log_term_of(n->node->log, index);
    SIM_CHECK(n->sim, index <= 1 || index <= k->committed,
              "node %u counts the change at %llu as committed, and no node has committed it",
              n->index + 1, ull(index));
    SIM_CHECK(n->sim, term == 0 || k->terms[index] == 0 || k->terms[index] == term,
              "node %u counts its change at %llu as committed, where another one is", n->index + 1,
              ull(index));
}

void sim_steps_node(struct sim_node *n)
{
    uint64_t index = raft_commit_index(n->raft);
    if (index != 0) {
        note_committed(n, index);
    }
    check_change_committed(n);
    SIM_CHECK(n->sim, log_durable_index(n->node->log) <= log_last_index(n->node->log),
              "node %u counts entry %llu as on its disk, and its log ends with %llu", n->index + 1,
              ull(log_durable_index(n->node->log)), ull(log_last_index(n->node->log)));
    sim_promises_node(n);
    sim_tables_node(n);
    sim_read_back_node(n);
}

uint64_t sim_steps_term(const struct sim *s, uint64_t index)
{
    return index != 0 && index <= s->steps->committed ? s->steps->terms[index] : 0;
}

/* ---- changes of members ---- */

/* Whether the leader has a stream of that node on which it was heard within the last seconds. */
static bool is_connected(const struct sim_node *leader, uint64_t id)
{
    for (const struct sim_conn *c = leader->sim->conns; c != NULL; c = c->next) {
        const struct sim_end *e = &c->end[1];
        if (c->kind == STREAM_RELAY && e->node == leader && e->life == leader->life &&
            c->end[0].node->index + 1 == id && e->stream != NULL && !e->stream->lost &&
            !e->stream->closed && sim_node_ms(leader) - e->stream->heard_ms <= HEARD_MS) {
            return true;
        }
    }
    return false;
}

unsigned sim_steps_connected(const struct sim_node *leader, const struct configuration *c,
                             uint64_t without, unsigned *ret_voters)
{
    unsigned up = 0;
    *ret_voters = 0;
    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id;
        if (id != without && c->servers[i].role == CONFIGURATION_VOTER) {
            ++*ret_voters;
            up += id == leader->index + 1 || is_connected(leader, id);
        }
    }
    return up;
}

/* How many voters have something of this leader's term on their disks. A stream alone says nothing
 * of a node whose power has just gone. */
static unsigned confirmed(const struct sim_node *leader, const struct configuration *c,
                          uint64_t without)
{
    const struct log *l = leader->node->log;
    uint64_t first = log_last_index(l);
    unsigned have = 0;
    while (log_term_of(l, first) == log_last_term(l) && first > 0) {
        first--;
    }
    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id;
        bool has =
            id == leader->index + 1 || replica_match_index(leader->node->replica, id) > first;
        have += has && id != without && c->servers[i].role == CONFIGURATION_VOTER;
    }
    return have;
}

static void check_leaves(const struct sim_node *leader, uint64_t id, const struct configuration *c)
{
    struct machine_node e = *machine_node_find(fsm_machine(leader->node->fsm), id);
    unsigned voters;
    unsigned up = sim_steps_connected(leader, c, id, &voters);
    SIM_CHECK(leader->sim, machine_node_leaves(&e),
              "node %llu is taken out, and nobody has asked for it", ull(id));
    SIM_CHECK(leader->sim, id != leader->index + 1, "leader %llu takes itself out", ull(id));
    SIM_CHECK(leader->sim, e.forced || up > voters / 2,
              "node %llu is taken out while %u of the %u others are connected", ull(id), up,
              voters);
    up = confirmed(leader, c, id);
    SIM_CHECK(leader->sim, e.forced || up > voters / 2,
              "node %llu is taken out, and %u of the %u others have confirmed anything to leader "
              "%u",
              ull(id), up, voters, leader->index + 1);
}

/* The one that moves is away until it is started at its new address. */
static void check_moves(const struct sim_node *leader, const struct configuration_server *is,
                        const struct configuration *c)
{
    unsigned others;
    unsigned up = sim_steps_connected(leader, c, is->id, &others);
    SIM_CHECK(leader->sim, is->role != CONFIGURATION_VOTER || others == 0 || up > (others + 1) / 2,
              "node %llu moves while %u of the %u others are connected", ull(is->id), up, others);
}

static unsigned compare(const struct sim_node *leader, const struct configuration *was,
                        const struct configuration *is)
{
    unsigned differ = 0;
    for (unsigned i = 0; i < was->n; i++) {
        if (configuration_find(is, was->servers[i].id) == NULL) {
            check_leaves(leader, was->servers[i].id, is);
            differ++;
        }
    }
    for (unsigned i = 0; i < is->n; i++) {
        const struct configuration_server *now = &is->servers[i];
        const struct configuration_server *before = configuration_find(was, now->id);
        bool votes = now->role == CONFIGURATION_VOTER &&
                     (before == NULL || before->role != CONFIGURATION_VOTER);
        bool moves = before != NULL && strcmp(before->address, now->address) != 0;
        if (before == NULL || before->incarnation != now->incarnation) {
            sim_members_check_added(leader, now);
        }
        if (moves) {
            check_moves(leader, now, is);
        }
        differ += before == NULL || votes || moves;
    }
    return differ;
}

/* In its log, or in a snapshot that took the place of it. */
static bool is_on_disk(const struct sim_node *n, uint64_t index)
{
    return index <= log_durable_index(n->node->log) ||
           index <= replica_snapshot_index(n->node->replica);
}

/* Whoever gets a vote has the change that made it a learner on its disk. Otherwise it could give
 * none after a start that finds no more than its disk has. */
static void check_knows_itself(const struct sim_node *leader, const struct configuration *was,
                               const struct configuration *now, uint64_t index)
{
    for (unsigned i = 0; i < now->n; i++) {
        uint64_t id = now->servers[i].id;
        const struct configuration_server *before = configuration_find(was, id);
        const struct sim_node *n = &leader->sim->nodes[id - 1];
        bool raised = now->servers[i].role == CONFIGURATION_VOTER && before != NULL &&
                      before->role == CONFIGURATION_LEARNER;
        bool lost =
            n->node == NULL || n->disk.record.identity.incarnation != now->servers[i].incarnation;
        SIM_CHECK(leader->sim, !raised || lost || is_on_disk(n, index),
                  "node %llu gets a vote, and has not on disk that it is a member", ull(id));
    }
}

int __real_replica_change(struct replica *r, uint64_t now_ms, const struct configuration *c);
int __wrap_replica_change(struct replica *r, uint64_t now_ms, const struct configuration *c);

int __wrap_replica_change(struct replica *r, uint64_t now_ms, const struct configuration *c)
{
    struct sim_node *n = sim_running->current;
    struct configuration was = *replica_configuration(r);
    uint64_t index = replica_configuration_index(r);
    uint64_t commit = raft_commit_index(n->raft);
    int rv = __real_replica_change(r, now_ms, c);
    if (rv != 0 || n->ghost) {
        return rv;
    }
    uint64_t term = log_term_of(n->node->log, commit);
    SIM_CHECK(n->sim, index <= commit, "a change follows the one at %llu, which is not committed",
              ull(index));
    SIM_CHECK(n->sim, term == 0 || term == replica_term(r),
              "node %u changes members in term %llu, and has committed nothing of it", n->index + 1,
              ull(replica_term(r)));
    check_knows_itself(n, &was, c, index);
    unsigned differ = compare(n, &was, c);
    SIM_CHECK(n->sim, differ == 1, "one change changes %u members", differ);
    return rv;
}

/* Called by the first node that has applied an entry. */
void sim_steps_plans(const struct sim_node *by)
{
    unsigned n;
    const struct machine_node *nodes = machine_nodes(fsm_machine(by->node->fsm), &n);
    const struct configuration *c = replica_configuration(by->node->replica);
    unsigned leave = 0;
    for (unsigned i = 0; i < n; i++) {
        leave += machine_node_leaves(&nodes[i]) && configuration_find(c, nodes[i].id) != NULL;
    }
    SIM_CHECK(by->sim, leave <= 1, "%u members are to leave at once", leave);
}

/* ---- what is said to others ---- */

static void check_said(struct sim_node *n, uint64_t to, uint8_t type, struct fli_slice head)
{
    struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    struct raft_message m;
    bool read = (type == MESSAGE_VOTE_RESULT || type == MESSAGE_APPEND_RESULT ||
                 type == MESSAGE_VOTE || type == MESSAGE_TIMEOUT_NOW) &&
                message_decode(type, head, entries, &m) == 0;
    if (!read) {
        return;
    }
    sim_promises_said(n, to, type, &m);
}

int __real_outbound_send(struct outbound *o, uint8_t type, const struct fli_slice *parts,
                         unsigned n);
int __wrap_outbound_send(struct outbound *o, uint8_t type, const struct fli_slice *parts,
                         unsigned n);

int __wrap_outbound_send(struct outbound *o, uint8_t type, const struct fli_slice *parts,
                         unsigned n)
{
    struct sim_node *node = sim_running->current;
    int rv = __real_outbound_send(o, type, parts, n);
    if (rv == 0 && !node->ghost && !node->cut) {
        check_said(node, o->id, type, parts[0]);
    }
    return rv;
}

/* ---- starts ---- */

/* Of one that is no member nothing need be known. */
static bool is_of_member(const struct sim_node *n, const struct starts_known *k)
{
    const struct replica *r = n->node == NULL ? NULL : n->node->replica;
    return r != NULL && configuration_server(replica_configuration(r), k->incarnation) != NULL;
}

/* The start that is on disk; as high as can be of one that may be forgotten. */
static uint64_t number_on_disk(const struct sim_node *n, const struct starts_known *k)
{
    const struct starts_known *there = starts_find(&n->disk.record.starts, k->incarnation);
    return there != NULL ? there->start.number : is_of_member(n, k) ? 0 : UINT64_MAX;
}

void sim_steps_told(const struct sim_node *n, const struct starts_message *told)
{
    const struct starts *disk = &n->disk.record.starts;
    if (n->ghost || n->disk.frozen) {
        return;
    }
    sim_promises_told(n, told->term, told->index);
    for (unsigned i = 0; i < told->n; i++) {
        const struct starts_known *k = &told->list[i];
        uint64_t number = i == 0 ? disk->own.number : number_on_disk(n, k);
        SIM_CHECK(n->sim, number >= k->start.number,
                  "node %u tells of start %llu of node %llu, and has %llu on its disk",
                  n->index + 1, ull(k->start.number), ull(k->id), ull(number));
    }
}

void sim_steps_let_in(const struct sim_node *by, const struct peer_identity *peer)
{
    const struct starts_known *k = starts_find(&by->disk.record.starts, peer->incarnation);
    SIM_CHECK(by->sim, by->disk.frozen || (k != NULL && k->start.number >= peer->start.number),
              "node %u lets in start %llu of node %llu, and has not noted that on its disk",
              by->index + 1, ull(peer->start.number), ull(peer->node_id));
}

/* Once a directory was refused it stays so; a start that others have recorded too. */
static void check_next(const struct sim_node *n, const struct starts *was, const struct starts *is)
{
    SIM_CHECK(n->sim, was->next.number != STARTS_REFUSED || is->next.number == STARTS_REFUSED,
              "node %u had written that its directory is refused, and writes over it",
              n->index + 1);
    SIM_CHECK(n->sim,
              was->next.number != STARTS_RECORDED || is->next.number >= STARTS_RECORDED ||
                  is->own.number > was->own.number,
              "node %u had written that its start is recorded, and writes over it", n->index + 1);
}

/* One that is known is forgotten only when it is no member. */
static void check_known(const struct sim_node *n, const struct starts_known *was,
                        const struct starts *s)
{
    const struct starts_known *is = starts_find(s, was->incarnation);
    SIM_CHECK(n->sim, is != NULL || !is_of_member(n, was),
              "what node %u has written of node %llu is gone", n->index + 1, ull(was->id));
    SIM_CHECK(n->sim,
              is == NULL || (is->start.number >= was->start.number && is->term >= was->term &&
                             is->index >= was->index),
              "what node %u has written of node %llu goes back", n->index + 1, ull(was->id));
    SIM_CHECK(n->sim,
              is == NULL || is->start.number > was->start.number || start_is(is->start, was->start),
              "node %u takes another start %llu of node %llu for the one that it knew",
              n->index + 1, ull(was->start.number), ull(was->id));
}

/* Once written, it stays: that the log was made, the cluster, and the founders. */
static void check_identity(const struct sim_node *n, const struct identity *is)
{
    const struct identity *was = &n->disk.record.identity;
    SIM_CHECK(n->sim,
              (is->bootstrapped || !was->bootstrapped) &&
                  (was->cluster_id == 0 || is->cluster_id == was->cluster_id) &&
                  (!identity_is_founded(was) ||
                   memcmp(is->founders, was->founders, sizeof was->founders) == 0),
              "what node %u has written of its cluster is undone", n->index + 1);
}

/* A write that is late must not undo a later one. */
void sim_steps_stored(const struct sim_node *n, const struct record *r)
{
    const struct starts *was = &n->disk.record.starts;
    const struct starts *s = &r->starts;
    if (n->disk.record.identity.incarnation != r->identity.incarnation) {
        return;
    }
    SIM_CHECK(n->sim,
              s->own.number >= was->own.number && s->term >= was->term && s->index >= was->index &&
                  r->sequence >= n->disk.record.sequence,
              "what node %u has written of its own start goes back", n->index + 1);
    check_identity(n, &r->identity);
    check_next(n, was, s);
    for (unsigned i = 0; i < was->n; i++) {
        check_known(n, &was->known[i], s);
    }
}
