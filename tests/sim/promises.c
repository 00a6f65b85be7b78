/* promises.c: what nodes promise to each other in Raft's messages, and what is counted of it.
 *
 *   - A directory votes for one candidate in a term, and confirms entries, in all its lives; it has
 *     on its disk what it has promised, when it is started again.
 *   - Two lives that have promised anything are two starts.
 *   - Who leads a term was voted for by a majority of its voters. It counts no more of a follower
 *     than that one has confirmed to it, and never less than before. What it counts as committed a
 *     majority of the voters has confirmed.
 *   - The core and the replica have the same configuration, and what is committed never goes back.
 *     A node that has a change in its log counts all changes before it as committed.
 *   - Whoever is followed is a node. */
#include "promises.h"

#include <stdlib.h>
#include <string.h>

#include "members.h"

struct vote {
    uint64_t incarnation, term, candidate; /* both are servers of the Raft group */
};

/* What one node has confirmed to another in a term, and in the one before: a leader that has not
 * heard of the newer term counts on. */
struct confirmed {
    uint64_t term, index;
    uint64_t former_term, former_index;
};

static uint64_t confirmed_in(const struct confirmed *c, uint64_t term)
{
    return term == c->term ? c->index : term == c->former_term ? c->former_index : 0;
}

/* A life that has promised something. */
struct life {
    uint64_t incarnation, life;
    struct start start;
};

struct sim_promises {
    struct vote *votes;
    size_t votes_cap, votes_len;
    struct life *lives;
    size_t lives_cap, lives_len;
    uint64_t *changes; /* indexes of those that are committed, rising */
    size_t changes_cap, changes_len;
    struct confirmed confirmed[SIM_NODES_MAX][SIM_NODES_MAX]; /* by whom, to whom */
    struct {
        uint64_t incarnation, index, term;       /* the last entry that it has confirmed */
        uint64_t told_by, told_term, told_index; /* of its disk, as that incarnation */
        uint64_t life, commit;
        struct configuration was;        /* in its last turn */
        uint64_t leads;                  /* the last term in which it did */
        uint64_t matched[SIM_NODES_MAX]; /* in that term */
    } nodes[SIM_NODES_MAX];
};

static struct sim_promises *promises_of(const struct sim_node *n)
{
    return n->sim->promises;
}

void sim_promises_init(struct sim *s)
{
    s->promises = fli_xcalloc(1, sizeof *s->promises);
}

void sim_promises_fini(struct sim *s)
{
    free(s->promises->votes);
    free(s->promises->lives);
    free(s->promises->changes);
    free(s->promises);
}

/* ---- what is said ---- */

static void note_life(const struct sim_node *n)
{
    struct sim_promises *k = promises_of(n);
    struct life is = {n->disk.record.identity.incarnation, n->life,
                      n->node->record.own.now.starts.own};
    SIM_CHECK(n->sim, n->disk.record.starts.next.number >= STARTS_RECORDED || n->disk.frozen,
              "node %u speaks, and has not on its disk that its start is recorded", n->index + 1);
    for (size_t i = k->lives_len; i > 0; i--) {
        const struct life *l = &k->lives[i - 1];
        if (l->incarnation == is.incarnation && l->life == is.life) {
            return;
        }
        SIM_CHECK(n->sim, l->incarnation != is.incarnation || !start_is(l->start, is.start),
                  "node %u is in its life %llu the start that it was in its life %llu",
                  n->index + 1, ull(is.life), ull(l->life));
    }
    k->lives = sim_grow(k->lives, &k->lives_cap, k->lives_len + 1, sizeof *k->lives);
    k->lives[k->lives_len++] = is;
}

static void note_vote(const struct sim_node *n, uint64_t term, uint64_t candidate)
{
    struct sim_promises *k = promises_of(n);
    uint64_t incarnation = n->disk.record.identity.incarnation;
    for (size_t i = k->votes_len; i > 0; i--) {
        const struct vote *v = &k->votes[i - 1];
        if (v->incarnation == incarnation && v->term == term) {
            SIM_CHECK(n->sim, v->candidate == candidate,
                      "node %u votes for %llu in term %llu, and has voted for %llu", n->index + 1,
                      ull(candidate), ull(term), ull(v->candidate));
            return;
        }
    }
    k->votes = sim_grow(k->votes, &k->votes_cap, k->votes_len + 1, sizeof *k->votes);
    k->votes[k->votes_len++] = (struct vote){incarnation, term, candidate};
}

static void note_confirmed(const struct sim_node *n, uint64_t to, uint64_t term, uint64_t index)
{
    struct sim_promises *k = promises_of(n);
    struct confirmed *c = &k->confirmed[n->index][to - 1];
    uint64_t durable = log_durable_index(n->node->log);
    uint64_t snapshot = replica_snapshot_index(n->node->replica);
    uint64_t had = k->nodes[n->index].index;
    SIM_CHECK(n->sim, index <= durable || index <= snapshot,
              "node %u confirms entry %llu, and has %llu on its disk", n->index + 1, ull(index),
              ull(durable));
    if (term > c->term) {
        *c = (struct confirmed){term, index, c->term, c->index};
    } else if (term == c->term && index > c->index) {
        c->index = index;
    }
    uint64_t incarnation = n->disk.record.identity.incarnation;
    bool lasts = k->nodes[n->index].incarnation == incarnation && index < had &&
                 sim_steps_term(n->sim, had) == k->nodes[n->index].term;
    uint64_t of = log_term_of(n->node->log, index);
    if (!lasts && of != 0) {
        k->nodes[n->index].incarnation = incarnation;
        k->nodes[n->index].index = index;
        k->nodes[n->index].term = of;
    }
}

int __real_replica_transfer(struct replica *r, uint64_t now_ms, uint64_t id);
int __wrap_replica_transfer(struct replica *r, uint64_t now_ms, uint64_t id);

/* Whoever is chosen to lead stays a member, by all that is known then. */
int __wrap_replica_transfer(struct replica *r, uint64_t now_ms, uint64_t id)
{
    const struct sim_node *n = sim_running->current;
    SIM_CHECK(n->sim, !machine_node_leaves(machine_node_find(fsm_machine(n->node->fsm), id)),
              "node %u hands leadership to node %llu, which is to leave", n->index + 1, ull(id));
    return __real_replica_transfer(r, now_ms, id);
}

/* And has all entries when it is told to. */
static void check_hands_over(const struct sim_node *n, uint64_t to)
{
    const struct confirmed *said = &promises_of(n)->confirmed[to - 1][n->index];
    SIM_CHECK(n->sim,
              confirmed_in(said, replica_term(n->node->replica)) >= raft_commit_index(n->raft),
              "node %u hands leadership to node %llu, which has confirmed %llu", n->index + 1,
              ull(to), ull(said->index));
}

void sim_promises_said(const struct sim_node *n, uint64_t to, uint8_t type,
                       const struct raft_message *m)
{
    bool votes = type == MESSAGE_VOTE_RESULT && m->request_vote_result.vote_granted &&
                 !m->request_vote_result.pre_vote;
    bool confirms = type == MESSAGE_APPEND_RESULT && m->append_entries_result.rejected == 0 &&
                    m->append_entries_result.last_log_index > 0;
    bool stands = type == MESSAGE_VOTE && !m->request_vote.pre_vote;
    SIM_CHECK(n->sim, n->older.phase != SIM_OLDER_BACK || (!votes && !confirms),
              "node %u %s with an older copy of its disk", n->index + 1,
              votes ? "votes" : "confirms");
    if (votes || confirms || stands) {
        note_life(n);
    }
    if (type == MESSAGE_TIMEOUT_NOW) {
        check_hands_over(n, to);
    }
    if (votes) {
        note_vote(n, m->request_vote_result.term, log_get_hard_state(n->node->log).vote);
    } else if (stands) {
        note_vote(n, m->request_vote.term, n->disk.record.identity.incarnation);
    } else if (confirms) {
        note_confirmed(n, to, m->append_entries_result.term,
                       m->append_entries_result.last_log_index);
    }
}

void sim_promises_told(const struct sim_node *n, uint64_t term, uint64_t index)
{
    struct sim_promises *k = promises_of(n);
    uint64_t incarnation = n->disk.record.identity.incarnation;
    bool same = k->nodes[n->index].told_by == incarnation;
    uint64_t before = same ? k->nodes[n->index].told_term : 0;
    uint64_t had = same ? k->nodes[n->index].told_index : 0;
    k->nodes[n->index].told_by = incarnation;
    k->nodes[n->index].told_term = term > before ? term : before;
    k->nodes[n->index].told_index = index > had ? index : had;
}

/* ---- what is kept ---- */

/* Others refuse who has less than it told. */
static void check_told(const struct sim_node *n, const struct log *l, uint64_t last,
                       const char *how)
{
    const struct sim_promises *k = promises_of(n);
    uint64_t term = log_get_hard_state(l).term;
    SIM_CHECK(n->sim,
              k->nodes[n->index].told_by != n->disk.record.identity.incarnation ||
                  (term >= k->nodes[n->index].told_term && last >= k->nodes[n->index].told_index),
              "node %u had told of term %llu and entry %llu, and %s with %llu and %llu",
              n->index + 1, ull(k->nodes[n->index].told_term), ull(k->nodes[n->index].told_index),
              how, ull(term), ull(last));
}

/* What it had confirmed is there, if it is what was committed at that place. */
static void check_entries(const struct sim_node *n, const struct log *l, uint64_t last)
{
    const struct sim_promises *k = promises_of(n);
    uint64_t index = k->nodes[n->index].index;
    uint64_t term = k->nodes[n->index].term;
    if (k->nodes[n->index].incarnation != n->disk.record.identity.incarnation ||
        sim_steps_term(n->sim, index) != term) {
        return;
    }
    uint64_t is = log_term_of(l, index);
    SIM_CHECK(n->sim, last >= index && (is == 0 || is == term),
              "node %u had confirmed entry %llu of term %llu, and has lost it", n->index + 1,
              ull(index), ull(term));
}

void sim_promises_kept(const struct sim_node *n, const struct log *l, uint64_t last,
                       const char *how)
{
    const struct sim_promises *k = promises_of(n);
    struct log_hard_state hs = log_get_hard_state(l);
    for (size_t i = 0; i < k->votes_len; i++) {
        const struct vote *v = &k->votes[i];
        SIM_CHECK(n->sim,
                  v->incarnation != n->disk.record.identity.incarnation || v->term < hs.term ||
                      (v->term == hs.term && v->candidate == hs.vote),
                  "node %u had voted for %llu in term %llu, and %s with %llu in term %llu",
                  n->index + 1, ull(v->candidate), ull(v->term), how, ull(hs.vote), ull(hs.term));
    }
    check_told(n, l, last, how);
    check_entries(n, l, last);
}

/* An older copy may have any. */
void sim_promises_started(const struct sim_node *n)
{
    struct sim_promises *k = promises_of(n);
    k->nodes[n->index].life = n->life;
    k->nodes[n->index].commit = raft_commit_index(n->raft);
    if (n->older.phase < SIM_OLDER_BACK && n->sim->orders.sabotage == SIM_SABOTAGE_NONE) {
        sim_promises_kept(n, n->node->log, replica_last_index(n->node->replica), "is started");
    }
}

/* ---- what a leader counts ---- */

static bool has_voted(const struct sim_promises *k, uint64_t incarnation, uint64_t term,
                      uint64_t candidate)
{
    for (size_t i = k->votes_len; i > 0; i--) {
        const struct vote *v = &k->votes[i - 1];
        if (v->incarnation == incarnation && v->term == term && v->candidate == candidate) {
            return true;
        }
    }
    return false;
}

static void check_elected(const struct sim_node *n, uint64_t term)
{
    const struct configuration *c = replica_configuration(n->node->replica);
    unsigned votes = 0;
    for (unsigned i = 0; i < c->n; i++) {
        votes += c->servers[i].role == CONFIGURATION_VOTER &&
                 has_voted(promises_of(n), c->servers[i].incarnation, term,
                           n->disk.record.identity.incarnation);
    }
    SIM_CHECK(n->sim, configuration_voters(c) <= 1 || votes > configuration_voters(c) / 2,
              "node %u leads term %llu with %u votes of %u", n->index + 1, ull(term), votes,
              configuration_voters(c));
}

static void check_match(const struct sim_node *n, uint64_t term)
{
    struct sim_promises *k = promises_of(n);
    for (unsigned i = 0; i < n->sim->n; i++) {
        const struct confirmed *c = &k->confirmed[i][n->index];
        uint64_t match = i == n->index ? 0 : replica_match_index(n->node->replica, i + 1);
        uint64_t *was = &k->nodes[n->index].matched[i];
        bool member = configuration_find(replica_configuration(n->node->replica), i + 1) != NULL;
        SIM_CHECK(n->sim, match <= confirmed_in(c, term),
                  "node %u counts entries up to %llu of node %u, which has confirmed %llu",
                  n->index + 1, ull(match), i + 1, ull(confirmed_in(c, term)));
        SIM_CHECK(n->sim, !member || match >= *was || match == 0,
                  "node %u counts entries up to %llu of node %u, after %llu", n->index + 1,
                  ull(match), i + 1, ull(*was));
        *was = member ? match : 0;
    }
}

static bool majority_has(const struct sim_node *n, const struct configuration *c, uint64_t term,
                         uint64_t index)
{
    const struct sim_promises *k = promises_of(n);
    unsigned have = 0;
    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id;
        const struct confirmed *said = &k->confirmed[id - 1][n->index];
        bool has = id == n->index + 1 ? log_durable_index(n->node->log) >= index
                                      : confirmed_in(said, term) >= index;
        have += c->servers[i].role == CONFIGURATION_VOTER && has;
    }
    return have > configuration_voters(c) / 2;
}

static void check_leader(const struct sim_node *n)
{
    struct sim_promises *k = promises_of(n);
    const struct replica *r = n->node->replica;
    uint64_t term = replica_term(r);
    uint64_t commit = raft_commit_index(n->raft);
    if (replica_role(r) != REPLICA_LEADER) {
        return;
    }
    if (k->nodes[n->index].leads != term) {
        k->nodes[n->index].leads = term;
        memset(k->nodes[n->index].matched, 0, sizeof k->nodes[n->index].matched);
        check_elected(n, term);
    }
    check_match(n, term);
    SIM_CHECK(n->sim,
              commit <= k->nodes[n->index].commit || log_term_of(n->node->log, commit) != term ||
                  majority_has(n, replica_configuration(r), term, commit) ||
                  majority_has(n, &k->nodes[n->index].was, term, commit),
              "node %u counts entry %llu as committed, and no majority has confirmed it",
              n->index + 1, ull(commit));
}

/* ---- the core and the replica ---- */

static void check_configuration(const struct sim_node *n)
{
    const struct configuration *c = replica_configuration(n->node->replica);
    const struct raft_configuration *core = &n->raft->configuration;
    bool same = core->n == c->n;
    for (unsigned i = 0; i < c->n && same; i++) {
        int role = c->servers[i].role == CONFIGURATION_VOTER ? RAFT_VOTER : RAFT_STANDBY;
        same = core->servers[i].id == c->servers[i].incarnation && core->servers[i].role == role &&
               strcmp(core->servers[i].address, c->servers[i].address) == 0;
    }
    SIM_CHECK(n->sim, same, "the core of node %u has another configuration than its log",
              n->index + 1);
}

/* Whoever is followed is, or was, a node. */
static void check_follows(const struct sim_node *n)
{
    raft_id id = 0;
    const char *address;
    raft_leader((struct raft *)(uintptr_t)n->raft, &id, &address);
    SIM_CHECK(n->sim, id == 0 || sim_members_is_known(n->sim, id),
              "node %u follows %llu, which is nobody", n->index + 1, ull(id));
}

static void note_change(struct sim_promises *k, uint64_t index)
{
    size_t at = k->changes_len;
    while (at > 0 && k->changes[at - 1] > index) {
        at--;
    }
    if (index == 0 || (at > 0 && k->changes[at - 1] == index)) {
        return;
    }
    k->changes = sim_grow(k->changes, &k->changes_cap, k->changes_len + 1, sizeof *k->changes);
    memmove(k->changes + at + 1, k->changes + at, (k->changes_len - at) * sizeof *k->changes);
    k->changes[at] = index;
    k->changes_len++;
}

/* A leader makes a change when the one before it is committed. */
static void check_changes_before(const struct sim_node *n)
{
    struct sim_promises *k = promises_of(n);
    uint64_t committed = n->raft->configuration_committed_index;
    uint64_t last = n->raft->configuration_uncommitted_index;
    note_change(k, committed);
    size_t at = k->changes_len;
    while (last != 0 && at > 0 && k->changes[at - 1] > committed) {
        uint64_t change = k->changes[--at];
        uint64_t term = log_term_of(n->node->log, change);
        SIM_CHECK(n->sim, change >= last || term == 0 || term != sim_steps_term(n->sim, change),
                  "node %u has the change at %llu, and counts the one before at %llu as not "
                  "committed",
                  n->index + 1, ull(last), ull(change));
    }
}

static void check_commit(const struct sim_node *n)
{
    struct sim_promises *k = promises_of(n);
    uint64_t commit = raft_commit_index(n->raft);
    FLI_ASSERT(k->nodes[n->index].life == n->life);
    SIM_CHECK(n->sim, commit >= k->nodes[n->index].commit,
              "node %u has committed entry %llu after %llu", n->index + 1, ull(commit),
              ull(k->nodes[n->index].commit));
    SIM_CHECK(n->sim, replica_applied_index(n->node->replica) <= commit,
              "node %u has applied entry %llu, and committed %llu", n->index + 1,
              ull(replica_applied_index(n->node->replica)), ull(commit));
    k->nodes[n->index].commit = commit;
}

void sim_promises_node(const struct sim_node *n)
{
    check_leader(n);
    check_follows(n);
    check_commit(n);
    check_configuration(n);
    check_changes_before(n);
    promises_of(n)->nodes[n->index].was = *replica_configuration(n->node->replica);
}
