/* replica_send.c: messages on their way out.
 *
 * An APPEND leaves in parts, of one message each. What cannot leave at once stays here as the
 * follower's rest, and follows when it can:
 *
 *   it is not in memory   The log reads it from disk meanwhile (log_take_some()).
 *   it is not its turn    A turn sends REPLICA_REST_BYTES of rests, to all followers together.
 *
 * In its place an APPEND without entries leaves, so that the follower hears its leader whatever the
 * disk does. The core counts the entries as sent and goes on behind them. What it sends next is put
 * behind the rest, and its heartbeats are sent for the entry in front of the rest, since a follower
 * would reject them for one that it has not got. When the core begins elsewhere, since a follower
 * has rejected something or gets a snapshot, the rest is dropped: it counts as lost. */
#include "consensus/replica_private.h"

#include <inttypes.h>
#include <string.h>

/* ---- one message ---- */

static void encode_append(struct replica *r, const struct raft_edge_peer *p)
{
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES, .server_id = p->id};
    m.append_entries.term = p->rest.term;
    m.append_entries.prev_log_index = p->rest.prev_index;
    m.append_entries.prev_log_term = p->rest.prev_term;
    m.append_entries.leader_commit = raft_commit_index(&r->raft);
    int rv = message_encode(&m, &r->body);
    FLI_ASSERT(rv == 0);
}

void replica_send_body(struct replica *r, uint64_t to)
{
    uint64_t id = replica_number_of(r, to);
    if (id != 0) {
        r->config.send(r->config.ctx, id, &r->body);
    }
}

static void send_nothing(struct replica *r, struct raft_edge_peer *p)
{
    encode_append(r, p);
    p->rest.sent_ms = r->edge.now_ms;
    replica_send_body(r, p->id);
}

static unsigned add_entries(struct replica *r, const struct log_entry *entries, unsigned n)
{
    unsigned added = 0;
    while (added < n) {
        struct fli_slice data = {entries[added].data, entries[added].len};
        if (!message_add_entry(&r->body, entries[added].term, entries[added].kind, data)) {
            break;
        }
        added++;
    }
    return added;
}

/* Takes entries from the log. False: none can leave now, or ever. */
static bool take(struct replica *r, struct raft_edge_peer *p, struct log_entry *entries,
                 unsigned *ret_n)
{
    unsigned want =
        p->rest.left < MESSAGE_ENTRIES_MAX ? (unsigned)p->rest.left : MESSAGE_ENTRIES_MAX;
    int rv = log_take_some(r->log, p->rest.prev_index + 1, MESSAGE_BYTES_MAX, entries, want, ret_n);
    if (rv == FL_EBUSY) {
        p->rest.waits = true;
    } else if (rv == FL_ENOTFOUND) {
        p->rest.left = 0; /* compacted: the follower will need a snapshot */
    } else if (rv != 0) {
        replica_fail(r, rv, "entry %" PRIu64 " of the log cannot be read: %s",
                     p->rest.prev_index + 1, fl_strerror(rv));
    }
    return rv == 0;
}

/* Sends one message of the rest. Returns whether it could. */
static bool send_part(struct replica *r, struct raft_edge_peer *p)
{
    struct log_entry entries[MESSAGE_ENTRIES_MAX];
    unsigned n = 0;
    if (p->rest.waits || !take(r, p, entries, &n)) {
        return false;
    }
    encode_append(r, p);
    unsigned sent = add_entries(r, entries, n);
    p->rest.sent_ms = r->edge.now_ms;
    p->rest.prev_index += sent;
    p->rest.prev_term = entries[sent - 1].term;
    p->rest.left -= sent;
    r->rest_bytes += r->body.bytes;
    replica_send_body(r, p->id);
    return true;
}

/* ---- rests ---- */

static bool may_leave(const struct replica *r, const struct raft_edge_peer *p)
{
    return p->rest.left > 0 && replica_leads(r) && p->rest.term == raft_current_term(&r->raft);
}

/* Entries that were appended just now leave at once, whoever else catches up: a follower that has
 * what is in front of them takes part in committing them. They are in memory. */
static bool is_fresh(const struct replica *r, const struct raft_edge_peer *p)
{
    return p->rest.left <= REPLICA_FRESH &&
           p->rest.prev_index + p->rest.left == log_last_index(r->log);
}

static void send_fresh(struct replica *r, struct raft_edge_peer *p)
{
    size_t before = r->rest_bytes;
    while (p->rest.left > 0 && send_part(r, p)) {
    }
    r->rest_bytes = before;
}

static bool has_budget(const struct replica *r)
{
    return !r->failed && r->rest_bytes < REPLICA_REST_BYTES;
}

/* Puts the message's entries behind those that the follower has been sent, or begins anew. Returns
 * whether there is a rest in front of them. */
static bool add_to_rest(struct replica *r, struct raft_edge_peer *p,
                        const struct raft_append_entries *a)
{
    uint64_t sent_ms = p->rest.sent_ms;
    bool behind = may_leave(r, p) && p->rest.term == a->term &&
                  a->prev_log_index == p->rest.prev_index + p->rest.left;
    if (behind) {
        p->rest.left += a->n_entries;
        return true;
    }
    memset(&p->rest, 0, sizeof p->rest);
    p->rest.term = a->term;
    p->rest.prev_index = a->prev_log_index;
    p->rest.prev_term = a->prev_log_term;
    p->rest.left = a->n_entries;
    p->rest.sent_ms = sent_ms;
    return false;
}

static void send_append(struct replica *r, const struct raft_message *m)
{
    const struct raft_append_entries *a = &m->append_entries;
    struct raft_edge_peer *p = raft_edge_peer(&r->edge, m->server_id);
    bool behind = add_to_rest(r, p, a);
    uint64_t prev_index = p->rest.prev_index;
    if (!behind && is_fresh(r, p)) {
        send_fresh(r, p);
    }
    while (p->rest.left > 0 && has_budget(r) && send_part(r, p)) {
    }
    if (p->rest.left > 0 && p->rest.left >= a->n_entries) {
        raft_edge_unsent(p);
    }
    /* A heartbeat goes out in any case. Without entries, one in a millisecond is enough. */
    bool sent = p->rest.prev_index != prev_index;
    if (!r->failed && !sent && (a->n_entries == 0 || p->rest.sent_ms != r->edge.now_ms)) {
        send_nothing(r, p);
    }
}

/* Whether some rest could be sent now. */
bool replica_has_rest(const struct replica *r)
{
    unsigned i = 0;
    while (i < MEMBERS_MAX && (!may_leave(r, &r->edge.peers[i]) || r->edge.peers[i].rest.waits)) {
        i++;
    }
    return i < MEMBERS_MAX;
}

/* A message of each follower in turn. Who comes first changes, so that a budget which one message
 * uses up goes round. */
void replica_send_rests(struct replica *r)
{
    bool any = true;
    while (any && has_budget(r)) {
        any = false;
        for (unsigned i = 0; i < MEMBERS_MAX && has_budget(r); i++) {
            struct raft_edge_peer *p = &r->edge.peers[r->rest_next];
            r->rest_next = (r->rest_next + 1) % MEMBERS_MAX;
            any = (may_leave(r, p) && send_part(r, p)) || any;
        }
    }
}

void replica_rests_arrived(struct replica *r)
{
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        r->edge.peers[i].rest.waits = false;
    }
}

/* ---- any message ---- */

static void send_now(struct replica *r, const struct raft_message *m)
{
    if (m->type == RAFT_INSTALL_SNAPSHOT) {
        raft_edge_peer(&r->edge, m->server_id)->rest.left = 0;
        r->config.snapshot_wanted(r->config.ctx, replica_number_of(r, m->server_id));
    } else if (m->type == RAFT_APPEND_ENTRIES) {
        send_append(r, m);
    } else {
        int rv = message_encode(m, &r->body);
        FLI_ASSERT(rv == 0);
        replica_send_body(r, m->server_id);
    }
}

/* Messages that wait for the hard state are dropped when the term changes once more; Raft tolerates
 * lost messages. */
void replica_send(struct replica *r, struct raft_message *m)
{
    raft_edge_send(&r->edge, m);
    if (log_durable(r->log) >= r->hard_state_at) {
        send_now(r, m);
        return;
    }
    if (r->held_term != raft_current_term(&r->raft)) {
        r->held_n = 0;
        r->held_term = raft_current_term(&r->raft);
    }
    if (r->held_n < REPLICA_HELD_MAX) {
        r->held[r->held_n++] = *m;
    }
}

void replica_send_held(struct replica *r)
{
    if (r->held_n == 0 || log_durable(r->log) < r->hard_state_at) {
        return;
    }
    unsigned n = r->held_n;
    r->held_n = 0;
    if (r->held_term != raft_current_term(&r->raft)) {
        return;
    }
    for (unsigned i = 0; i < n && !r->failed; i++) {
        bool of_leader =
            r->held[i].type == RAFT_APPEND_ENTRIES || r->held[i].type == RAFT_INSTALL_SNAPSHOT;
        if (!of_leader || replica_leads(r)) {
            send_now(r, &r->held[i]);
        }
    }
}
