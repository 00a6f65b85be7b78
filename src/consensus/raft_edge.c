/* raft_edge.c: see raft_edge.h. */
#include "consensus/raft_edge.h"

#include <string.h>

static bool leads(const struct raft_edge *e)
{
    return raft_state(e->raft) == RAFT_LEADER;
}

static uint64_t leader_of(const struct raft_edge *e)
{
    raft_id id = 0;
    const char *address;
    raft_leader(e->raft, &id, &address);
    return id;
}

/* ---- silence, and elections out of turn ---- */

static void note_leader(struct raft_edge *e, uint64_t from)
{
    if (raft_state(e->raft) == RAFT_FOLLOWER && leader_of(e) == from && !e->outdated) {
        e->heard_ms = e->now_ms;
    }
}

uint64_t raft_edge_silence_ms(const struct raft_edge *e, uint64_t now_ms)
{
    bool heard = raft_state(e->raft) == RAFT_FOLLOWER && leader_of(e) != 0 && now_ms > e->heard_ms;
    return heard ? now_ms - e->heard_ms : 0;
}

void raft_edge_forget_leader(struct raft_edge *e)
{
    if (raft_state(e->raft) == RAFT_FOLLOWER) {
        raft_free(e->raft->follower_state.current_leader.address);
        e->raft->follower_state.current_leader.address = NULL;
        e->raft->follower_state.current_leader.id = 0;
    }
}

/* A candidate that was not elected in time asks for pre-votes again, and says no more that its
 * leader hands over to it. The core would begin an election of the next term at once. */
static void begin_with_pre_votes(struct raft_edge *e)
{
    struct raft *r = e->raft;
    bool again = raft_state(r) == RAFT_CANDIDATE && e->now_ms >= raft_timeout(r);
    if (again && r->pre_vote && !r->candidate_state.in_pre_vote) {
        r->candidate_state.in_pre_vote = true;
        r->candidate_state.disrupt_leader = false;
    }
}

void raft_edge_timeout(struct raft_edge *e)
{
    struct raft_event event = {.type = RAFT_TIMEOUT};
    begin_with_pre_votes(e);
    e->step(e->ctx, &event);
}

uint64_t raft_edge_timeout_ms(const struct raft_edge *e)
{
    uint64_t at_ms = raft_timeout(e->raft);
    uint64_t all_ms = e->sent_ms + e->heartbeat_ms; /* all heartbeats are due then */
    if (!leads(e) || all_ms <= at_ms) {
        return at_ms;
    }
    return all_ms < at_ms + e->heartbeat_ms ? all_ms : at_ms + e->heartbeat_ms;
}

bool raft_edge_campaign(struct raft_edge *e)
{
    struct raft *r = e->raft;
    if (leads(e)) {
        return false;
    }
    e->campaigns++;
    if (raft_state(r) == RAFT_CANDIDATE) {
        r->candidate_state.randomized_election_timeout = 0;
    } else {
        r->follower_state.randomized_election_timeout = 0;
    }
    raft_edge_timeout(e);
    return raft_state(r) == RAFT_CANDIDATE;
}

static bool is_silent(const struct raft_edge *e)
{
    uint64_t silence_ms = raft_edge_silence_ms(e, e->now_ms);
    uint64_t enough_ms = e->election_ms;
    if (e->leader_gone) {
        enough_ms = e->heartbeat_ms + e->heartbeat_ms / 2;
    }
    return !e->paused && silence_ms != 0 && silence_ms >= enough_ms;
}

static void receive(struct raft_edge *e, struct raft_message *m)
{
    struct raft_event event = {.type = RAFT_RECEIVE};
    event.receive.message = m;
    e->step(e->ctx, &event);
}

/* ---- vote requests ---- */

/* The core gives a vote only as a voter, so a learner is one while this message is handled. */
static void receive_as_voter(struct raft_edge *e, struct raft_message *m)
{
    const struct raft_configuration *c = &e->raft->configuration;
    struct raft_server *servers = c->servers;
    unsigned i = 0;
    while (i < c->n && servers[i].id != e->id) {
        i++;
    }
    bool listed = i < c->n;
    int role = listed ? servers[i].role : RAFT_VOTER;
    if (listed) {
        servers[i].role = RAFT_VOTER;
    }
    receive(e, m);
    if (listed && c->servers == servers) {
        servers[i].role = role;
    }
}

/* A leader that is silent is given up when a node wants to replace it, or when it asks for votes
 * itself: the follower forgets it, and so the core is loyal to nobody. If it must refuse the other
 * node, since its own log has more, it asks for votes itself. It asks at no other time: if two
 * nodes ask at once, each gets the other's pre-vote, and then neither gets the vote. */
static void receive_vote_request(struct raft_edge *e, struct raft_message *m)
{
    bool yields = is_silent(e);
    if (yields) {
        raft_edge_forget_leader(e);
    }
    e->refused = false;
    receive_as_voter(e, m);
    if (yields && e->refused && m->request_vote.pre_vote) {
        (void)raft_edge_campaign(e);
    }
}

/* ---- messages that no correct peer sends ---- */

/* Every kind of message has its term in one place. */
#define TERM_AT offsetof(struct raft_message, append_entries.term)
_Static_assert(offsetof(struct raft_message, append_entries_result.term) == TERM_AT, "its term");
_Static_assert(offsetof(struct raft_message, request_vote.term) == TERM_AT, "its term");
_Static_assert(offsetof(struct raft_message, request_vote_result.term) == TERM_AT, "its term");
_Static_assert(offsetof(struct raft_message, timeout_now.term) == TERM_AT, "its term");

/* Whether the message gives an entry that is committed here another term. */
static bool contradicts(const struct raft_edge *e, uint64_t index, uint64_t term)
{
    uint64_t ours = index <= raft_edge_committed(e) ? e->term_of(e->ctx, index) : 0;
    return ours != 0 && ours != term;
}

static bool contradicts_the_log(const struct raft_edge *e, const struct raft_append_entries *m)
{
    if (m->term < raft_current_term(e->raft)) {
        return false; /* from an old leader; it is refused for its term */
    }
    bool found = m->prev_log_index != 0 && contradicts(e, m->prev_log_index, m->prev_log_term);
    for (unsigned i = 0; i < m->n_entries && !found; i++) {
        found = contradicts(e, m->prev_log_index + 1 + i, m->entries[i].term);
    }
    return found;
}

static bool impossible(const struct raft_edge *e, const struct raft_message *m)
{
    uint64_t current = raft_current_term(e->raft);
    uint64_t term = m->append_entries.term;
    if (m->server_id == e->id || m->server_id == 0 || term == 0 ||
        (term > current && term - current > RAFT_EDGE_TERM_STEP_MAX)) {
        return true;
    }
    if (m->type == RAFT_APPEND_ENTRIES && leads(e) && term == current) {
        return true; /* two leaders of one term */
    }
    if (m->type == RAFT_REQUEST_VOTE) {
        return m->request_vote.candidate_id != m->server_id;
    }
    return m->type == RAFT_APPEND_ENTRIES && contradicts_the_log(e, &m->append_entries);
}

/* ---- answers of followers ---- */

struct raft_edge_peer *raft_edge_peer(struct raft_edge *e, uint64_t id)
{
    struct raft_edge_peer *place = NULL;
    raft_index match = 0;
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        struct raft_edge_peer *p = &e->peers[i];
        if (p->id == id) {
            return p;
        }
        bool is_free = p->id == 0 || raft_match_index(e->raft, p->id, &match) != 0;
        place = place == NULL && is_free ? p : place;
    }
    FLI_ASSERT(place != NULL); /* a configuration has at most that many, this server included */
    *place = (struct raft_edge_peer){.id = id};
    return place;
}

/* It confirms nothing and rejects nothing. */
static void empty_answer(struct raft_append_entries_result *m)
{
    m->rejected = 0;
    m->last_log_index = 0;
}

/* Corrects a rejection. False: the core must not see it. */
static bool correct_result(struct raft_edge *e, uint64_t from, struct raft_append_entries_result *m)
{
    raft_index match = 0;
    bool ours = leads(e) && m->term == raft_current_term(e->raft) && m->rejected != 0 &&
                raft_match_index(e->raft, from, &match) == 0;
    if (!ours) {
        return true;
    }
    if (e->sends_snapshot) {
        /* It lacks the entries that the snapshot will bring. The answer still shows that it is
         * alive. */
        empty_answer(m);
        return true;
    }
    /* A follower's confirmed entries are on its disk, and during one leader's term nobody else may
     * remove them. So a rejection at or below the confirmed index is an old one. */
    if (m->rejected <= match) {
        return false;
    }
    m->last_log_index = m->last_log_index < match ? match : m->last_log_index;
    struct raft_edge_peer *p = raft_edge_peer(e, from);
    /* A follower that still lacks the snapshot it was promised rejects entries that follow a newer
     * one. The core asks again if it hears of the former. */
    if (match < p->asked && m->rejected > p->asked) {
        m->rejected = p->asked;
        m->last_log_index = m->last_log_index < p->asked ? m->last_log_index : p->asked - 1;
        p->asked = 0;
    }
    p->sent = p->left = 0; /* it has lost what it was sent */
    return true;
}

/* ---- entries ---- */

/* The core hears that each change is committed before it gets the next one. */
void raft_edge_tell_changes(struct raft_edge *e, uint64_t last)
{
    for (unsigned i = 0; i < e->changes.n; i++) {
        const struct change *c = &e->changes.list[i];
        if (c->index <= e->told || c->index > last) {
            continue;
        }
        struct raft_event event = {.type = RAFT_CONFIGURATION};
        e->told = c->index;
        event.configuration.index = c->index;
        configuration_to_raft(&c->conf, &event.configuration.conf);
        e->step(e->ctx, &event);
    }
}

uint64_t raft_edge_committed(const struct raft_edge *e)
{
    uint64_t index = raft_commit_index(e->raft);
    return e->told > index ? e->told : index;
}

/* The message without its first entries, which are in the log. */
static void deliver(struct raft_edge *e, const struct raft_message *whole, raft_index first,
                    unsigned n)
{
    struct raft_message piece = *whole;
    struct raft_append_entries *m = &piece.append_entries;
    if (first > 0) {
        m->prev_log_index += first;
        m->prev_log_term = e->term_of(e->ctx, m->prev_log_index);
    }
    m->entries += n > 0 ? first : 0;
    m->n_entries = n;
    receive(e, &piece);
}

/* The next change of the configuration at or behind index `from` of the message. */
static unsigned next_change(const struct raft_append_entries *m, unsigned from)
{
    while (from < m->n_entries && m->entries[from].type != RAFT_CHANGE) {
        from++;
    }
    return from;
}

/* Whether the library took the first `n` entries: then it may have those behind them. */
static bool was_taken(const struct raft_edge *e, const struct raft_append_entries *m, unsigned n)
{
    raft_index last = m->prev_log_index + n;
    uint64_t term = n == 0 ? m->prev_log_term : m->entries[n - 1].term;
    return raft_state(e->raft) == RAFT_FOLLOWER && raft_current_term(e->raft) == m->term &&
           raft_last_index(e->raft) >= last && (last == 0 || e->term_of(e->ctx, last) == term);
}

/* The number of its first entries that are committed here. They are in the log of every leader to
 * come, so they need not be compared, and may be compacted. */
static raft_index committed_entries(struct raft_edge *e, const struct raft_append_entries *m)
{
    raft_index commit = raft_commit_index(e->raft);
    if (m->prev_log_index >= commit || m->term < raft_current_term(e->raft) ||
        e->term_of(e->ctx, commit) == 0) {
        return 0;
    }
    return commit - m->prev_log_index;
}

/* A message without news is answered as one without entries. Its sender may not know that this node
 * has them, and repeats it until it gets an answer. */
static void receive_entries(struct raft_edge *e, const struct raft_message *whole)
{
    const struct raft_append_entries *m = &whole->append_entries;
    raft_index known = committed_entries(e, m);
    unsigned from = known < m->n_entries ? (unsigned)known : m->n_entries;
    unsigned at = next_change(m, from);
    deliver(e, whole, known, at - from);
    while (at < m->n_entries && was_taken(e, m, at)) {
        unsigned end = next_change(m, at + 1);
        /* A leader begins no change before the one in front of it is committed, even if a new
         * leader that sends both does not know it yet. */
        raft_edge_tell_changes(e, m->prev_log_index + at);
        deliver(e, whole, at, end - at);
        at = end;
    }
}

/* ---- the way in and out ---- */

static void receive_any(struct raft_edge *e, struct raft_message *message)
{
    switch (message->type) {
    case RAFT_APPEND_ENTRIES:
        receive_entries(e, message);
        break;
    case RAFT_APPEND_ENTRIES_RESULT:
        if (correct_result(e, message->server_id, &message->append_entries_result)) {
            receive(e, message);
        }
        break;
    case RAFT_REQUEST_VOTE:
        receive_vote_request(e, message);
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        if (raft_state(e->raft) == RAFT_CANDIDATE) {
            receive(e, message);
        }
        break;
    default:
        receive(e, message);
        break;
    }
}

int raft_edge_receive(struct raft_edge *e, struct raft_message *message)
{
    if (impossible(e, message)) {
        return FL_EPROTO;
    }
    e->outdated = message->type == RAFT_APPEND_ENTRIES &&
                  message->append_entries.term < raft_current_term(e->raft);
    receive_any(e, message);
    if (message->type == RAFT_APPEND_ENTRIES) {
        note_leader(e, message->server_id);
    }
    e->outdated = false;
    return 0;
}

static void correct_answer_to_vote(struct raft_edge *e, struct raft_request_vote_result *m)
{
    raft_term term = raft_current_term(e->raft);
    e->refused = !m->vote_granted;
    if (m->pre_vote && !m->vote_granted && m->term < term) {
        m->term = term;
    }
}

/* Only a follower that is probed is sent the same entries again. Then one is enough: the core goes
 * on behind what that one confirms. An APPEND that begins elsewhere than the last one ended drops
 * what waits: it counts as lost. */
static void note_append(struct raft_edge *e, uint64_t to, struct raft_append_entries *m)
{
    struct raft_edge_peer *p = raft_edge_peer(e, to);
    e->sent_ms = e->now_ms;
    if (m->prev_log_index < p->sent && m->n_entries > 1) {
        m->n_entries = 1;
    }
    if (m->prev_log_index != p->sent + p->left) {
        p->sent = m->prev_log_index;
        p->left = 0;
        p->waits = false;
    }
    if (p->left == 0) {
        p->sent_term = m->prev_log_term;
    }
    p->left += m->n_entries;
}

static void correct_sent(struct raft_edge *e, struct raft_message *message)
{
    struct raft_edge_peer *p;
    switch (message->type) {
    case RAFT_APPEND_ENTRIES:
        note_append(e, message->server_id, &message->append_entries);
        break;
    case RAFT_INSTALL_SNAPSHOT:
        p = raft_edge_peer(e, message->server_id);
        p->asked = message->install_snapshot.last_index;
        p->left = 0;
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        correct_answer_to_vote(e, &message->request_vote_result);
        break;
    case RAFT_APPEND_ENTRIES_RESULT:
        if (e->outdated) {
            empty_answer(&message->append_entries_result);
        }
        break;
    default:
        break;
    }
}

int raft_edge_step(struct raft_edge *e, struct raft_event *event, struct raft_update *ret)
{
    event->time = e->now_ms;
    int rv = raft_step(e->raft, event, ret);
    if (rv == 0 && (ret->flags & (RAFT_UPDATE_CURRENT_TERM)) != 0) {
        memset(e->peers, 0, sizeof e->peers);
    }
    bool any = rv == 0 && (ret->flags & (RAFT_UPDATE_MESSAGES)) != 0;
    for (unsigned i = 0; any && i < ret->messages.n; i++) {
        correct_sent(e, &ret->messages.batch[i]);
    }
    return rv;
}
