/* membership_callers.c: which callers are let in, which start of a node is valid, and when this
 * node may speak (starts.h).
 *
 * A node whose directory went back in time must neither vote nor confirm entries: it may have done
 * so differently before. So each node first asks all others, by its handshakes. It sends no message
 * of Raft before each has answered or had an election time to answer. A node that is refused stops.
 * A node that accepts a caller has compared it with its own knowledge; asking all the others first
 * protects those that have none.
 *
 * The loop waits for no disk. What is learnt counts at once for refusing: it is true. A node is let
 * in, and others are told of its start, when that is on this disk. */
#include "members/membership_private.h"

#include <inttypes.h>

#include "base/clock.h"

#define REFUSE(reason, verdict, ...)                                                               \
    ((enum handshake_verdict)fli_refuse(reason, HANDSHAKE_REASON_MAX, verdict, __VA_ARGS__))

/* ---- who is let in ---- */

/* Whether an incarnation is a member, by the newest configuration or by the newest one that is
 * committed: a removal that is under way may yet be undone. */
static bool is_member(const struct membership *m, uint64_t incarnation)
{
    uint64_t index;
    const struct configuration *c = replica_committed_configuration(m->replica, &index);
    return configuration_server(replica_configuration(m->replica), incarnation) != NULL ||
           (c != NULL && configuration_server(c, incarnation) != NULL);
}

/* A leader that takes commands has each configuration that was committed up to its term, and no
 * other one of an earlier term ever will be. (The proposer may not know yet that it leads no
 * more.) */
static bool has_all(const struct membership *m, const struct peer_identity *told)
{
    return proposer_is_open(m->config.proposer) && replica_role(m->replica) == REPLICA_LEADER &&
           told->term <= replica_term(m->replica);
}

/* Whether somebody names a later configuration than this node has, in which it is a member. */
static bool is_ahead(const struct membership *m, const struct peer_identity *told)
{
    return told->member_index > replica_configuration_index(m->replica) && !has_all(m, told);
}

bool membership_knows_as_much(const struct membership *m, uint64_t told_index)
{
    uint64_t index;
    (void)replica_committed_configuration(m->replica, &index);
    return told_index != 0 && told_index >= index;
}

/* Whether the machine has a plan to add the node, or to do so when the one before has left. */
static bool is_expected(const struct membership *m, uint64_t id)
{
    enum machine_plan plan = machine_node_find(membership_machine(m), id)->plan;
    return plan == MACHINE_PLAN_ADD || plan == MACHINE_PLAN_REPLACE;
}

/* Only the leader takes in a node that is to be added. */
static bool may_join(const struct membership *m, const struct peer_identity *told)
{
    return told->member_index == 0 && proposer_is_open(m->config.proposer) &&
           is_expected(m, told->node_id) &&
           configuration_find(replica_configuration(m->replica), told->node_id) == NULL;
}

/* Whether a node is one of those with which this one, which has no log yet, forms the cluster. Two
 * that tell the same incarnation would make no configuration. */
static bool may_found(const struct membership *m, const struct peer_identity *told)
{
    const struct identity *self = &membership_now(m)->identity;
    const struct member *founder = members_find(&self->members, told->node_id);
    uint64_t met = membership_number_of(m, told->incarnation);
    return membership_founds(m) && founder != NULL && (met == 0 || met == told->node_id) &&
           (!identity_is_founded(self) ||
            self->founders[founder - self->members.list] == told->incarnation);
}

bool membership_is_let_in(const struct membership *m, const struct peer_identity *told)
{
    return is_member(m, told->incarnation) || is_ahead(m, told) || may_join(m, told) ||
           may_found(m, told);
}

static enum handshake_verdict refuse(const struct membership *m, const struct peer_identity *peer,
                                     char reason[HANDSHAKE_REASON_MAX])
{
    uint64_t id = peer->node_id;
    uint64_t index;
    bool there = configuration_find(replica_configuration(m->replica), id) != NULL;
    (void)replica_committed_configuration(m->replica, &index);
    bool final = has_all(m, peer);
    if (peer->member_index != 0 && (peer->member_index <= index || final)) {
        return REFUSE(reason, HANDSHAKE_REMOVED,
                      "node %" PRIu64 " was %s, or what made it a member was lost with a leader: "
                      "this data directory is of no more use",
                      id, there || is_expected(m, id) ? "replaced" : "removed from the cluster");
    }
    if (is_expected(m, id)) {
        return REFUSE(reason, HANDSHAKE_STRANGER,
                      "node %" PRIu64 " is waited for, and its leader has not taken it in yet", id);
    }
    if (there) {
        /* Who does not lead may be behind, and not know that the node was replaced. */
        return REFUSE(reason, final ? HANDSHAKE_OTHER_INCARNATION : HANDSHAKE_STRANGER,
                      "node %" PRIu64 " has lost its data: run fencelock cluster replace %" PRIu64
                      " and start it again",
                      id, id);
    }
    if (membership_founds(m) && members_find(&membership_now(m)->identity.members, id) != NULL) {
        return REFUSE(reason, HANDSHAKE_STRANGER,
                      "node %" PRIu64 " has other data than when the nodes met: replace it if "
                      "there is a leader; if there never was one, begin with empty directories",
                      id);
    }
    return replica_configuration(m->replica)->n == 0
               ? REFUSE(reason, HANDSHAKE_STRANGER, "node %" PRIu64 " is not another member", id)
               : REFUSE(reason, HANDSHAKE_STRANGER,
                        "node %" PRIu64 " is no member: run fencelock cluster add %" PRIu64
                        " HOST:PORT",
                        id, id);
}

/* ---- starts ---- */

/* This node's directory is an older copy; it remains one after every restart. The node ends now, so
 * it may wait. */
static void note_refused(struct membership *m)
{
    membership_now(m)->starts.next = (struct start){.number = STARTS_REFUSED};
    if (node_record_store(m->config.record) != 0) {
        host_fail(&m->config.host, FL_EIO, "the file identity in %s cannot be written",
                  m->config.record->dir.path);
    }
}

/* Another node has recorded the start of this one. */
static void note_recorded(struct membership *m)
{
    struct starts *s = &membership_now(m)->starts;
    if (s->next.number == 0) {
        s->next = (struct start){.number = STARTS_RECORDED};
        node_record_save(m->config.record);
    }
}

static void note_start(struct membership *m, uint64_t id, uint64_t incarnation, struct start start)
{
    struct starts *s = &membership_now(m)->starts;
    if (starts_find(s, incarnation) == NULL) {
        starts_make_room(s, replica_configuration(m->replica));
    }
    if (starts_record(s, id, incarnation, start)) {
        node_record_save(m->config.record);
    }
}

/* Of one that has just been taken out nobody knows here any more what came first. In its own term,
 * a leader knows what each follower has on disk. */
static bool went_back(const struct membership *m, const struct peer_identity *peer)
{
    const struct peer *p = peers_find(m->config.peers, peer->node_id);
    bool leads = replica_role(m->replica) == REPLICA_LEADER;
    struct starts_follower follower = {
        .term = replica_term(m->replica),
        .match = leads ? replica_match_index(m->replica, peer->node_id) : 0};
    return starts_went_back(&membership_now(m)->starts, peer,
                            p != NULL && !start_is(p->told.start, peer->start), follower);
}

/* Records the start of a caller. False: it is not on this disk yet; or that its answer has recorded
 * this node's start is not, and a start that speaks with others must not be resumed by the next
 * one. */
static bool record_start(struct membership *m, const struct peer *p,
                         const struct peer_identity *peer)
{
    if (p->told.start.number != 0 && !start_is(p->told.start, peer->start)) {
        membership_hang_up(m, p->id);
    }
    note_start(m, peer->node_id, peer->incarnation, peer->start);
    if (peer->welcomes) {
        note_recorded(m);
    }
    const struct starts *now = &membership_now(m)->starts;
    const struct starts *kept = &membership_kept(m)->starts;
    const struct starts_known *k = starts_find(now, peer->incarnation);
    const struct starts_known *on_disk = starts_find(kept, peer->incarnation);
    return k != NULL && on_disk != NULL && start_is(on_disk->start, k->start) &&
           (!peer->welcomes || kept->next.number == now->next.number);
}

const struct starts_known *membership_known(const struct membership *m, uint64_t id)
{
    static const struct starts_known nothing;
    const struct configuration_server *server =
        configuration_find(replica_configuration(m->replica), id);
    const struct starts_known *k =
        server == NULL ? NULL : starts_find(&membership_kept(m)->starts, server->incarnation);
    return k == NULL ? &nothing : k;
}

static void hear_of_self(struct membership *m, struct start sent)
{
    if (start_is_past(membership_now(m)->starts.own, sent)) {
        note_refused(m);
        host_fail(&m->config.host, FL_EDENIED,
                  "%s is an older copy, or a second one: start %" PRIu64 " of it is known to "
                  "others; move it away, run fencelock cluster replace %" PRIu64
                  ", and start this node with an empty one",
                  m->config.record->dir.path, sent.number, membership_self(m));
    }
}

/* Streams of a start that is over are closed: the next call is refused with the reason. */
static void hear_of_other(struct membership *m, const struct starts_known *sent)
{
    const struct peer *p = peers_find(m->config.peers, sent->id);
    if (configuration_server(replica_configuration(m->replica), sent->incarnation) == NULL) {
        return;
    }
    note_start(m, sent->id, sent->incarnation, sent->start);
    const struct starts_known *k = starts_find(&membership_now(m)->starts, sent->incarnation);
    if (p != NULL && p->told.incarnation == sent->incarnation &&
        start_is_past(p->told.start, k->start)) {
        membership_hang_up(m, sent->id);
    }
}

int membership_receive_starts(struct membership *m, uint64_t from, struct fli_slice body)
{
    struct starts_message sent;
    if (starts_message_decode(body, &sent) != 0 || sent.list[0].id != from) {
        return FL_EPROTO;
    }
    for (unsigned i = 0; i < sent.n; i++) {
        if (sent.list[i].incarnation == membership_now(m)->identity.incarnation) {
            hear_of_self(m, sent.list[i].start);
        } else {
            hear_of_other(m, &sent.list[i]);
        }
    }
    struct starts *s = &membership_now(m)->starts;
    const struct starts_known *self = &sent.list[0];
    const struct starts_known *k = starts_find(s, self->incarnation);
    if (k != NULL && start_is(k->start, self->start)) {
        (void)starts_record_progress(s, self->incarnation, sent.term, sent.index);
    }
    return 0;
}

bool membership_may_speak(struct membership *m)
{
    bool all = true;
    for (unsigned i = 0; i < m->members.n && all && !m->speaks; i++) {
        uint64_t id = m->members.list[i].id;
        const struct peer *p = peers_find(m->config.peers, id);
        all = id == membership_self(m) || (p != NULL && (p->verdict != 0 || p->gone));
    }
    m->speaks =
        m->speaks || all || fli_clock_since_ms(m->started_ms) >= m->config.election->election_ms;
    return m->speaks;
}

/* ---- callers ---- */

/* Lists the node; at the address that it tells, if it knows as much as this one: a node that is
 * being moved may be at its address of before, whatever this log says. False: it is not listed. */
static bool let_in(struct membership *m, struct peer *p, const struct peer_identity *peer)
{
    p->told = *peer;
    m->members_due = true;
    membership_members_turn(m);
    if (members_find(&m->members, peer->node_id) == NULL) {
        return false;
    }
    outbound_redial(&p->outbound);
    election_peer_back(m->config.election, p->id);
    membership_wake(m);
    return true;
}

enum handshake_verdict membership_check_peer(struct membership *m, const struct peer_identity *peer,
                                             char reason[HANDSHAKE_REASON_MAX])
{
    uint64_t id = peer->node_id;
    unsigned version = machine_version(membership_machine(m));
    if (peer->version < version) {
        return REFUSE(reason, HANDSHAKE_OTHER_VERSION,
                      "node %" PRIu64 " knows version %u, and the cluster is at %u: start a newer "
                      "program there",
                      id, peer->version, version);
    }
    if (membership_founds(m) && peer->member_index == 0 && peer->members_crc == 0) {
        return REFUSE(
            reason, HANDSHAKE_STRANGER,
            "node %" PRIu64 " joins, and there is no cluster yet: start it with --cluster", id);
    }
    if (!membership_is_let_in(m, peer)) {
        return refuse(m, peer, reason);
    }
    if (went_back(m, peer)) {
        return REFUSE(reason, HANDSHAKE_WENT_BACK,
                      "the data directory of node %" PRIu64 " is an older copy: move it away, run "
                      "fencelock cluster replace %" PRIu64 ", and start it with an empty one",
                      id, id);
    }
    struct peer *p = peers_place(m->config.peers, id);
    if (p != NULL && !record_start(m, p, peer)) {
        return HANDSHAKE_UNDECIDED;
    }
    return p != NULL && let_in(m, p, peer)
               ? HANDSHAKE_WELCOME
               : REFUSE(reason, HANDSHAKE_STRANGER,
                        "node %" PRIu64 " is not known here yet, and does not say where it is", id);
}

/* A node ends when one that knows better says that it has gone back, was removed, or is wiped:
 * nobody else can tell it otherwise. A wiped one may have been taken in since it asked. One that
 * joins may have been started before its predecessor was replaced, and waits for that. */
void membership_answered(struct membership *m, uint64_t peer_id, enum handshake_verdict verdict,
                         const char *reason)
{
    struct peer *p = peers_find(m->config.peers, peer_id);
    if (p == NULL) {
        return;
    }
    bool wiped = verdict == HANDSHAKE_OTHER_INCARNATION && !membership_now(m)->identity.joins &&
                 replica_member_index(m->replica) == 0;
    p->verdict = verdict;
    if (verdict == HANDSHAKE_WENT_BACK) {
        note_refused(m);
    }
    if (verdict == HANDSHAKE_WENT_BACK || verdict == HANDSHAKE_REMOVED || wiped) {
        host_fail(&m->config.host, FL_EDENIED, "the other members refuse this node: %s", reason);
    }
}
