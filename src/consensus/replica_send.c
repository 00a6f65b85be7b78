/* replica_send.c: messages on their way out.
 *
 * An APPEND leaves in parts, of one message each. What cannot leave at once stays the follower's
 * `left` (raft_edge.h), and follows when it can:
 *
 *   it is not in memory   The log reads it from disk meanwhile (log_take_some()).
 *   it is not its turn    A turn sends REPLICA_REST_BYTES of what is left, to all followers.
 *
 * In its place an APPEND without entries leaves, so that the follower hears its leader whatever the
 * disk does. The core counts the entries as sent and goes on behind them. What it sends next is put
 * behind them, and its heartbeats are sent for the entry in front of them, since a follower would
 * reject them for one that it has not got. */
#include "consensus/replica_private.h"

#include <inttypes.h>

/* What messages promise is on disk: term and vote, and the beginning of the log. */
static bool may_promise(const struct replica *r)
{
    return log_durable(r->log) >= r->promised_at;
}

/* ---- one message ---- */

static void send_body(struct replica *r, uint64_t to)
{
    uint64_t id = replica_number_of(r, to);
    if (id != 0) {
        r->config.send(r->config.ctx, id, &r->body);
    }
}

void replica_send_now(struct replica *r, const struct raft_message *m)
{
    int rv = message_encode(m, &r->body);
    FLI_ASSERT(rv == 0);
    send_body(r, m->server_id);
}

/* Entries that were appended just now leave at once, whoever else catches up: a follower that has
 * what is in front of them takes part in committing them. They are in memory. */
static bool is_fresh(const struct replica *r, const struct raft_edge_peer *p)
{
    return p->left <= REPLICA_FRESH && p->sent + p->left == log_last_index(r->log);
}

/* As many of the entries as one message takes; it may be none. */
static void send_part(struct replica *r, struct raft_edge_peer *p, const struct log_entry *entries,
                      unsigned n)
{
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES, .server_id = p->id};
    bool fresh = is_fresh(r, p);
    unsigned i = 0;
    m.append_entries.term = raft_current_term(&r->raft);
    m.append_entries.prev_log_index = p->sent;
    m.append_entries.prev_log_term = p->sent_term;
    m.append_entries.leader_commit = raft_commit_index(&r->raft);
    int rv = message_encode(&m, &r->body);
    FLI_ASSERT(rv == 0);
    while (i < n && message_add_entry(&r->body, entries[i].term, entries[i].kind,
                                      (struct fli_slice){entries[i].data, entries[i].len})) {
        p->sent_term = entries[i++].term;
    }
    p->sent += i;
    p->left -= i;
    p->sent_ms = r->edge.now_ms;
    r->rest_bytes += fresh ? 0 : r->body.bytes;
    send_body(r, p->id);
}

/* Sends one message of what is left. False: nothing can leave now, or ever. */
static bool send_next(struct replica *r, struct raft_edge_peer *p)
{
    struct log_entry entries[MESSAGE_ENTRIES_MAX];
    unsigned want = p->left < MESSAGE_ENTRIES_MAX ? (unsigned)p->left : MESSAGE_ENTRIES_MAX;
    unsigned n = 0;
    int rv = log_take_some(r->log, p->sent + 1, MESSAGE_BYTES_MAX, entries, want, &n);
    if (rv == FL_EBUSY) {
        p->waits = true;
    } else if (rv == FL_ENOTFOUND) {
        p->left = 0; /* compacted: the follower will need a snapshot */
    } else if (rv != 0) {
        replica_fail(r, rv, "entry %" PRIu64 " of the log cannot be read: %s", p->sent + 1,
                     fl_strerror(rv));
    } else {
        send_part(r, p, entries, n);
    }
    return rv == 0;
}

/* ---- what is left ---- */

static bool may_leave(const struct replica *r, const struct raft_edge_peer *p)
{
    return p->left > 0 && !p->waits && replica_leads(r) && may_promise(r);
}

static bool has_turn(const struct replica *r, const struct raft_edge_peer *p)
{
    return may_leave(r, p) && (r->rest_bytes < REPLICA_REST_BYTES || is_fresh(r, p));
}

static void send_append(struct replica *r, const struct raft_message *m)
{
    struct raft_edge_peer *p = raft_edge_peer(&r->edge, m->server_id);
    uint64_t before = p->sent;
    bool heartbeat = m->append_entries.n_entries == 0;
    while (has_turn(r, p) && send_next(r, p)) {
    }
    /* A heartbeat goes out in any case. Without entries, one in a millisecond is enough. */
    bool due = p->sent == before && (heartbeat || p->sent_ms != r->edge.now_ms);
    if (due && !r->failed && may_promise(r)) {
        send_part(r, p, NULL, 0);
    }
}

bool replica_has_rest(const struct replica *r)
{
    unsigned i = 0;
    while (i < MEMBERS_MAX && !may_leave(r, &r->edge.peers[i])) {
        i++;
    }
    return i < MEMBERS_MAX;
}

/* A message of each follower in turn. Who comes first changes, so that a budget which one message
 * uses up goes round. */
void replica_send_rests(struct replica *r)
{
    unsigned idle = 0;
    while (idle < MEMBERS_MAX) {
        struct raft_edge_peer *p = &r->edge.peers[r->rest_next];
        r->rest_next = (r->rest_next + 1) % MEMBERS_MAX;
        idle = has_turn(r, p) && send_next(r, p) ? 0 : idle + 1;
    }
}

void replica_rests_arrived(struct replica *r)
{
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        r->edge.peers[i].waits = false;
    }
}

/* ---- any message ---- */

/* Only a leader that never asked for a vote, as the only voter, has an APPEND to send before its
 * term is on disk. It sends what is left afterwards. */
void replica_send(struct replica *r, const struct raft_message *m)
{
    if (m->type == RAFT_INSTALL_SNAPSHOT) {
        r->config.snapshot_wanted(r->config.ctx, replica_number_of(r, m->server_id));
    } else if (m->type == RAFT_APPEND_ENTRIES) {
        send_append(r, m);
    } else if (may_promise(r)) {
        replica_send_now(r, m);
    } else if (r->held_n < REPLICA_HELD_MAX) {
        r->held[r->held_n++] = *m;
    }
}

void replica_send_held(struct replica *r)
{
    for (unsigned i = 0; i < r->held_n && may_promise(r); i++) {
        replica_send_now(r, &r->held[i]);
    }
    r->held_n = may_promise(r) ? 0 : r->held_n;
}
