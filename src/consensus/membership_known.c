/* membership_known.c: what is known of incarnations, and who is let in by it. */
#include "consensus/membership_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct member_state *membership_find(const struct membership *m, uint64_t id)
{
    for (unsigned i = 0; i < m->n; i++) {
        if (m->peers[i].id == id) {
            return (struct member_state *)(uintptr_t)&m->peers[i];
        }
    }
    return NULL;
}

static uint64_t known_of(const struct membership *m, const struct member_state *p)
{
    return m->config.identity->known[p - m->peers];
}

static bool all_known(const struct identity *id)
{
    for (unsigned i = 0; i < id->members.n; i++) {
        if (id->known[i] == 0) {
            return false;
        }
    }
    return true;
}

uint64_t membership_admitted_index(const struct identity *id)
{
    const struct member *self = members_find(&id->members, id->id);
    FLI_ASSERT(self != NULL);
    bool admitted = id->cluster_id != 0 && id->known[self - id->members.list] == id->incarnation;
    return admitted ? id->known_index : 0;
}

/* ---- from the machine to the disk ---- */

/* A member that was forgotten and has joined again as the same incarnation, in one go, finds itself
 * in the machine as before. What it says of itself must be from after that, so each committed
 * change of the configuration dates the same knowledge anew. */
static bool is_dated(const struct membership *m)
{
    uint64_t change = replica_configuration_index(m->replica);
    return replica_configuration_committed(m->replica) &&
           change > m->config.identity->known_index && change <= replica_applied_index(m->replica);
}

/* Whether the machine says anything else than is known. */
static bool any_news(const struct membership *m)
{
    const struct identity *id = m->config.identity;
    struct machine *machine = fsm_machine(m->config.fsm);
    bool news = machine_cluster_id(machine) != id->cluster_id;
    for (unsigned i = 0; i < id->members.n; i++) {
        news = news || machine_incarnation(machine, id->members.list[i].id) != id->known[i];
    }
    return news || !m->known_complete || is_dated(m);
}

/* Copies what the machine says to `id`. True when anything is new. */
static bool learn(const struct membership *m, struct identity *id)
{
    struct machine *machine = fsm_machine(m->config.fsm);
    uint64_t cluster_id = machine_cluster_id(machine);
    bool changed = false;
    if (cluster_id != 0 && cluster_id != id->cluster_id) {
        id->cluster_id = cluster_id;
        changed = true;
    }
    for (unsigned i = 0; i < id->members.n; i++) {
        uint64_t incarnation = machine_incarnation(machine, id->members.list[i].id);
        if (incarnation != id->known[i]) {
            id->known[i] = incarnation;
            changed = true;
        }
    }
    return changed;
}

/* Of a member that was forgotten the next caller counts. Here that may show only when it has joined
 * again, since a log is applied many entries at a time. */
static void note_forgotten(struct membership *m, const struct identity *fresh)
{
    for (unsigned i = 0; i < m->n; i++) {
        struct member_state *p = &m->peers[i];
        uint64_t before = m->config.identity->known[i];
        if (before == 0 || before == fresh->known[i] || p->id == fresh->id) {
            continue;
        }
        p->other_incarnation = false;
        if (fresh->known[i] == 0 || p->incarnation == before) {
            p->incarnation = 0;
        }
    }
}

static bool store(struct membership *m, struct identity *fresh, uint64_t applied)
{
    struct identity *id = m->config.identity;
    if (id->cluster_id != 0 && fresh->cluster_id != id->cluster_id) {
        host_fail(&m->config.host, FL_ECORRUPT,
                  "the log is of another cluster than the data directory");
        return false;
    }
    fresh->known_index = applied;
    if (identity_store(m->config.dir, fresh) != 0) {
        host_fail(&m->config.host, FL_EIO, "the identity file in %s cannot be written",
                  m->config.dir->path);
        return false;
    }
    note_forgotten(m, fresh);
    *id = *fresh;
    transport_set_cluster(m->transport, id->cluster_id, membership_admitted_index(id));
    return true;
}

void membership_sync(struct membership *m)
{
    uint64_t applied = replica_applied_index(m->replica);
    /* While the log is being replayed the machine is behind the file; the file is right. */
    if (applied < m->config.identity->known_index || !any_news(m)) {
        return;
    }
    struct identity fresh = *m->config.identity;
    if ((learn(m, &fresh) || is_dated(m)) && !store(m, &fresh, applied)) {
        return;
    }
    if (!m->known_complete && all_known(m->config.identity)) {
        m->known_complete = true;
        m->config.all_known(m->config.ctx);
    }
}

/* ---- judging callers ---- */

/* Whether another incarnation of a member is one that the cluster has taken in since this node last
 * heard. A node that was down while X was forgotten and came back knows X's former incarnation, and
 * would refuse the present one also when that leads, and never hear otherwise.
 *
 * X says at which index of the log the state, as X applied it, has X's present incarnation. What is
 * applied is committed, and all states at one index are the same. If that index is beyond the one
 * that our own knowledge is from, X's is the later word of the same log, and we would say the same
 * had we applied as much. An incarnation that was wiped and not forgotten has applied nothing that
 * names it; one that came before what we know was forgotten at an index below ours, and can only
 * name smaller ones.
 *
 * Votes and commits need no more than that. The removal of X, which came before, was committed by a
 * majority of the others without X. Any majority of voters with X in it, old or new, has one of
 * those in it besides X, so what was acknowledged before the removal is safe whatever X's new
 * incarnation says (membership.h). Nor can it help to elect a second leader of a term that its
 * former incarnation has voted in: it has applied its own JOIN, which is at least of the removal's
 * term. A candidate in that term or an earlier one that lacks these entries has an older log than X
 * and does not get its vote. */
static bool admitted_since(const struct membership *m, uint64_t admitted_index)
{
    return admitted_index > m->config.identity->known_index;
}

/* Whether an incarnation of p counts for this node, by what it says of itself. */
static bool is_member_now(const struct membership *m, const struct member_state *p,
                          uint64_t incarnation, uint64_t admitted_index)
{
    return known_of(m, p) == incarnation || admitted_since(m, admitted_index);
}

/* A member that was forgotten, as far as this node knows, and does not say that it was taken in
 * again, may be let in only by a leader, and only once that has applied all that was committed
 * before it led. To all others it may be an incarnation that came after one which joined again,
 * voted, acknowledged, and was wiped. Before a cluster is formed nobody is known. */
static bool may_join(const struct membership *m, const struct member_state *p)
{
    return known_of(m, p) == 0 &&
           (m->config.identity->cluster_id == 0 || proposer_is_open(m->config.proposer));
}

/* A stream outlives what was known when it was opened: what was let in to join may turn out to be
 * another incarnation than the one that joined. */
bool membership_is_stranger(const struct membership *m, uint64_t id)
{
    const struct member_state *p = membership_find(m, id);
    return p != NULL && id != m->config.identity->id && p->incarnation != 0 &&
           known_of(m, p) != 0 && !is_member_now(m, p, p->incarnation, p->admitted_index);
}

static enum handshake_verdict refuse(struct member_state *p, uint64_t known,
                                     char reason[HANDSHAKE_REASON_MAX])
{
    if (known == 0) {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %" PRIu64 " was forgotten, and its leader has not taken it in again yet",
                 p->id);
        return HANDSHAKE_STRANGER;
    }
    p->other_incarnation = true;
    snprintf(reason, HANDSHAKE_REASON_MAX,
             "node %" PRIu64 " has lost its data: run CLUSTER FORGET %" PRIu64
             " on the leader and start it again",
             p->id, p->id);
    return HANDSHAKE_OTHER_INCARNATION;
}

enum handshake_verdict membership_judge(void *ctx, const struct peer_identity *peer,
                                        char reason[HANDSHAKE_REASON_MAX])
{
    struct membership *m = ctx;
    struct member_state *p = membership_find(m, peer->node_id);
    FLI_ASSERT(p != NULL);
    /* A member that was forgotten a moment ago counts from its next handshake on, which may be this
     * one: that it was must be known before, not at the next beat. */
    if (m->replica != NULL) {
        membership_sync(m);
    }
    uint64_t admitted_index = peer->cluster_id == 0 ? 0 : peer->admitted_index;
    if (!is_member_now(m, p, peer->incarnation, admitted_index) && !may_join(m, p)) {
        return refuse(p, known_of(m, p), reason);
    }
    p->admitted_index = admitted_index;
    p->incarnation = peer->incarnation;
    p->other_incarnation = false;
    m->config.peer_back(m->config.ctx, p->id);
    if (peer->client_address[0] != '\0') {
        membership_set_client_address(m, p->id, peer->client_address);
    }
    return HANDSHAKE_WELCOME;
}

void membership_answered(void *ctx, uint64_t peer_id, enum handshake_verdict verdict,
                         const char *reason)
{
    struct membership *m = ctx;
    struct member_state *p = membership_find(m, peer_id);
    if (p != NULL && (verdict == HANDSHAKE_WELCOME || verdict == HANDSHAKE_OTHER_INCARNATION)) {
        p->verdict = verdict;
        if (verdict != HANDSHAKE_WELCOME) {
            snprintf(m->refused_why, sizeof m->refused_why, "%s", reason);
        }
    }
}

void membership_set_client_address(struct membership *m, uint64_t id, const char *address)
{
    struct member_state *p = membership_find(m, id);
    FLI_ASSERT(p != NULL);
    snprintf(p->client_address, sizeof p->client_address, "%s", address);
}

const char *membership_client_address(const struct membership *m, uint64_t id)
{
    const struct member_state *p = membership_find(m, id);
    return p == NULL || p->client_address[0] == '\0' ? NULL : p->client_address;
}
