/* membership_starts.c: which start of a node is valid, and when this node may speak (starts.h).
 *
 * A node whose directory went back in time must neither vote nor confirm entries: it may have done
 * so differently before. So each node first asks all others, by its handshakes. It sends no message
 * of Raft before each has answered or had an election time to answer. A node that is refused stops.
 * A node that accepts a caller has compared it with its own knowledge; asking all the others first
 * protects those that have none.
 *
 * What a node told and what a leader had confirmed is compared only with a handshake that was made
 * after all of it: the first one of a start, or one that asks for a stream of Raft's messages,
 * which a node does only when it has none. A handshake that has waited is older than what may be
 * known by now; it was compared when it came.
 *
 * The loop waits for no disk. What is learnt counts at once for refusing: it is true. A node is let
 * in, and others are told of its start, when that is on this disk. */
#include "members/membership_private.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

/* The node ends now, so it may wait. */
void membership_is_refused(struct membership *m)
{
    m->config.starts->next = (struct start){.number = STARTS_REFUSED};
    if (m->config.store(m->config.ctx) != 0) {
        host_fail(&m->config.host, FL_EIO, "the file identity in %s cannot be written",
                  m->config.dir->path);
    }
}

void membership_is_recorded(struct membership *m)
{
    if (m->config.starts->next.number == 0) {
        m->config.starts->next = (struct start){.number = STARTS_RECORDED};
        m->config.save(m->config.ctx);
    }
}

/* ---- checking ---- */

/* In its own term, a leader knows what each follower has on disk. */
static bool is_behind_match(const struct membership *m, const struct peer_identity *peer)
{
    if (replica_role(m->replica) != REPLICA_LEADER) {
        return false;
    }
    uint64_t match = replica_match_index(m->replica, peer->node_id);
    uint64_t term = replica_term(m->replica);
    return match > 0 && (peer->term < term || (peer->term == term && peer->last_index < match));
}

static bool is_behind_record(const struct starts_known *k, const struct peer_identity *peer)
{
    return k != NULL && (peer->term < k->term || peer->last_index < k->index);
}

bool membership_went_back(const struct membership *m, const struct peer_identity *peer,
                          char reason[HANDSHAKE_REASON_MAX])
{
    const struct peer *p = peers_find(m->config.peers, peer->node_id);
    const struct starts_known *k = starts_find(m->config.starts, peer->incarnation);
    bool past = k != NULL && start_is_past(peer->start, k->start);
    /* Of one that has just been taken out nobody knows here any more what came first. */
    bool first = p != NULL && !start_is(p->told.start, peer->start);
    bool less = !peer->waited && (first || peer->asks_raft) &&
                (is_behind_record(k, peer) || is_behind_match(m, peer));
    if (past || less) {
        (void)snprintf(reason, HANDSHAKE_REASON_MAX,
                       "the data directory of node %" PRIu64 " is an older copy: move it away, run "
                       "fencelock cluster replace %" PRIu64 ", and start it with an empty one",
                       peer->node_id, peer->node_id);
    }
    return past || less;
}

/* Whether it is on disk that another node has recorded this start. A start that speaks with others
 * must not be resumed by the next one. */
static bool is_told_recorded(const struct membership *m)
{
    return m->config.kept->starts.next.number == m->config.starts->next.number;
}

/* A start that there is no room for need not be kept. */
static bool is_kept(const struct membership *m, uint64_t incarnation)
{
    const struct starts_known *k = starts_find(m->config.starts, incarnation);
    const struct starts_known *kept = starts_find(&m->config.kept->starts, incarnation);
    return k == NULL || (kept != NULL && start_is(kept->start, k->start));
}

static void note_start(struct membership *m, uint64_t id, uint64_t incarnation, struct start start)
{
    if (starts_find(m->config.starts, incarnation) == NULL) {
        starts_make_room(m->config.starts, replica_configuration(m->replica));
    }
    if (starts_record(m->config.starts, id, incarnation, start)) {
        m->config.save(m->config.ctx);
    }
}

bool membership_record_start(struct membership *m, const struct peer *p,
                             const struct peer_identity *peer)
{
    if (p->told.start.number != 0 && !start_is(p->told.start, peer->start)) {
        membership_hang_up(m, p->id);
    }
    note_start(m, peer->node_id, peer->incarnation, peer->start);
    if (peer->welcomes) {
        membership_is_recorded(m);
    }
    return is_kept(m, peer->incarnation) && (!peer->welcomes || is_told_recorded(m));
}

static const struct starts_known *starts_of(const struct membership *m, const struct starts *s,
                                            uint64_t id)
{
    const struct configuration_server *server =
        configuration_find(replica_configuration(m->replica), id);
    return server == NULL ? NULL : starts_find(s, server->incarnation);
}

uint64_t membership_start_of(const struct membership *m, uint64_t id)
{
    const struct starts_known *k = starts_of(m, &m->config.kept->starts, id);
    return k == NULL ? 0 : k->start.number;
}

uint64_t membership_kept_index_of(const struct membership *m, uint64_t id)
{
    const struct starts_known *k = starts_of(m, m->config.starts, id);
    return k == NULL ? 0 : k->index;
}

/* ---- what others tell ---- */

static void hear_of_self(struct membership *m, struct start sent)
{
    if (start_is_past(m->config.starts->own, sent)) {
        membership_is_refused(m);
        host_fail(&m->config.host, FL_EDENIED,
                  "%s is an older copy, or a second one: start %" PRIu64 " of it is known to "
                  "others; move it away, run fencelock cluster replace %" PRIu64
                  ", and start this node with an empty one",
                  m->config.dir->path, sent.number, m->config.identity->id);
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
    const struct starts_known *k = starts_find(m->config.starts, sent->incarnation);
    if (p != NULL && p->told.incarnation == sent->incarnation && k != NULL &&
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
        if (sent.list[i].incarnation == m->config.identity->incarnation) {
            hear_of_self(m, sent.list[i].start);
        } else {
            hear_of_other(m, &sent.list[i]);
        }
    }
    const struct starts_known *self = &sent.list[0];
    const struct starts_known *k = starts_find(m->config.starts, self->incarnation);
    if (k != NULL && start_is(k->start, self->start)) {
        (void)starts_record_progress(m->config.starts, self->incarnation, sent.term, sent.index);
    }
    return 0;
}

/* ---- when this node may speak ---- */

bool membership_may_speak(struct membership *m)
{
    const struct identity *id = m->config.identity;
    bool all = true;
    if (m->speaks) {
        return true;
    }
    for (unsigned i = 0; i < m->members.n && all; i++) {
        const struct peer *p = peers_find(m->config.peers, m->members.list[i].id);
        all = m->members.list[i].id == id->id || (p != NULL && (p->verdict != 0 || p->gone));
    }
    m->speaks = all || fli_clock_since_ms(m->started_ms) >= m->config.ask_ms;
    return m->speaks;
}
