/* replica.c: see replica.h.
 *
 * Who owns an entry's memory. The core keeps only the terms of entries; their bytes pass through
 * it. The entries of a message point into its frame. They come back in the update of the same step,
 * and only then are copied to the log. An entry's `batch` is a token: the core frees it when it
 * drops the message, and this file frees it otherwise. */
#include "consensus/replica_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A node that is behind applies no more than this in a turn, and reads its sockets in between. */
#define APPLY_STEPS (2 * (uint64_t)MACHINE_APPLY_STEPS_MAX)
#define APPLY_ENTRY_STEPS 32u /* of an entry by itself */

/* ---- small things ---- */

void replica_fail(struct replica *r, int error, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (r->failed) {
        return;
    }
    r->failed = true;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->config.fatal(r->config.ctx, error, text);
}

static void must_have(uint64_t position)
{
    if (position == 0) {
        fli_fatal("out of memory for the log");
    }
}

/* ---- configurations ---- */

uint64_t replica_number_of(const struct replica *r, uint64_t incarnation)
{
    const struct configuration_server *server =
        configuration_server(replica_configuration(r), incarnation);
    return server != NULL ? server->id : r->config.number_of(r->config.ctx, incarnation);
}

uint64_t replica_server_of(const struct replica *r, uint64_t id)
{
    const struct configuration_server *server = configuration_find(replica_configuration(r), id);
    return server == NULL ? 0 : server->incarnation;
}

/* ---- applying ---- */

/* Replicas keep the hashes of the same entries, so that each has some of those that another
 * names. */
static void keep_hash(struct replica *r)
{
    unsigned at = (unsigned)(r->applied / REPLICA_HASH_STEP % REPLICA_HASHES);
    if (r->applied % REPLICA_HASH_STEP == 0) {
        r->hashes[at].index = r->applied;
        r->hashes[at].hash = machine_hash(fsm_machine(r->config.fsm));
    }
}

uint64_t replica_hash_index(const struct replica *r)
{
    uint64_t hash;
    uint64_t index = r->applied - r->applied % REPLICA_HASH_STEP;
    return replica_hash_at(r, index, &hash) ? index : 0;
}

bool replica_hash_at(const struct replica *r, uint64_t index, uint64_t *ret)
{
    unsigned at = (unsigned)(index / REPLICA_HASH_STEP % REPLICA_HASHES);
    if (index == 0 || r->hashes[at].index != index) {
        return false;
    }
    *ret = r->hashes[at].hash;
    return true;
}

static void apply_entry(struct replica *r, const struct log_entry *e)
{
    FLI_ASSERT(e->index == r->applied + 1);
    r->applied_steps += APPLY_ENTRY_STEPS;
    if (e->kind == RAFT_COMMAND) {
        if (fsm_apply(r->config.fsm, e->data, e->len) != 0) {
            r->failed = true; /* fatal() was called already */
            return;
        }
        r->applied_steps += machine_spent(fsm_machine(r->config.fsm));
    }
    r->applied = e->index;
    keep_hash(r);
    r->barrier_term = e->kind == RAFT_BARRIER ? e->term : r->barrier_term;
}

static bool has_to_apply(const struct replica *r)
{
    return !r->failed && r->applied < raft_commit_index(&r->raft) && !r->apply_waits;
}

/* The log owns the bytes of an entry; nothing may change it while they are applied. An entry that
 * is not in memory is read by the log's device, and applied when it has arrived. */
static void apply_committed(struct replica *r)
{
    struct log_entry entries[REPLICA_READ_ENTRIES];
    while (has_to_apply(r) && r->applied_steps < APPLY_STEPS) {
        uint64_t left = raft_commit_index(&r->raft) - r->applied;
        unsigned want = left < REPLICA_READ_ENTRIES ? (unsigned)left : REPLICA_READ_ENTRIES;
        unsigned n = 0;
        int rv = log_take_some(r->log, r->applied + 1, REPLICA_READ_BYTES, entries, want, &n);
        r->apply_waits = rv == FL_EBUSY;
        if (rv != 0 && rv != FL_EBUSY) {
            replica_fail(r, rv, "entry %" PRIu64 " of the log cannot be read: %s", r->applied + 1,
                         fl_strerror(rv));
        }
        for (unsigned i = 0; rv == 0 && i < n && !r->failed && r->applied_steps < APPLY_STEPS;
             i++) {
            apply_entry(r, &entries[i]);
        }
    }
}

/* ---- the results of a step ---- */

void replica_set_hard_state(struct replica *r, uint64_t term, uint64_t vote)
{
    const struct log_hard_state hs = {term, vote};
    r->promised_at = log_set_hard_state(r->log, &hs);
    must_have(r->promised_at);
    r->held_n = 0; /* of an earlier one: Raft tolerates lost messages */
}

static void keep_entries(struct replica *r, const struct raft_update *u)
{
    uint64_t index = u->entries.index;
    if (index <= log_last_index(r->log)) {
        FLI_ASSERT(index > r->applied);
        must_have(log_truncate(r->log, index));
        changes_truncate(&r->edge.changes, index);
    }
    for (unsigned i = 0; i < u->entries.n; i++) {
        const struct raft_entry *e = &u->entries.batch[i];
        const struct log_entry entry = {.index = index + i,
                                        .term = e->term,
                                        .kind = (uint8_t)e->type,
                                        .len = (uint32_t)e->buf.len,
                                        .data = e->buf.base};
        must_have(log_append(r->log, &entry));
        if (e->type == RAFT_CHANGE) {
            struct configuration conf;
            int rv = configuration_decode(e->buf.base, e->buf.len, &conf);
            FLI_ASSERT(rv == 0); /* it was decoded before the core saw it */
            changes_add(&r->edge.changes, entry.index, &conf);
        }
    }
    raft_free(u->entries.batch[0].batch);
}

/* The entries of the event; NULL: it has none. */
static struct raft_entry *entries_of(const struct raft_event *event, unsigned *ret_n)
{
    const struct raft_message *m = event->type == RAFT_RECEIVE ? event->receive.message : NULL;
    bool append = m != NULL && m->type == RAFT_APPEND_ENTRIES;
    *ret_n = event->type == RAFT_SUBMIT ? event->submit.n
             : append                   ? m->append_entries.n_entries
                                        : 0;
    return *ret_n == 0 ? NULL : append ? m->append_entries.entries : event->submit.entries;
}

/* A configuration has the library's encoding while the core reads it, and ours before and after.
 * Only the first entry may be one: see raft_edge_receive(). */
static int step_core(struct replica *r, struct raft_event *event, struct raft_update *ret)
{
    unsigned n;
    struct configuration conf;
    struct raft_entry *first = entries_of(event, &n);
    struct raft_buffer ours = first != NULL ? first->buf : (struct raft_buffer){0};
    bool change = first != NULL && first->type == RAFT_CHANGE;
    void *batch = first != NULL ? raft_malloc(1) : NULL;
    for (unsigned i = 0; i < n; i++) {
        must_have((uintptr_t)batch);
        first[i].batch = batch;
    }
    if (change) {
        int rv = configuration_decode(ours.base, ours.len, &conf);
        FLI_ASSERT(rv == 0); /* it was decoded when it came */
        first->buf = configuration_to_raft_bytes(&conf);
    }
    int rv = raft_edge_step(&r->edge, event, ret);
    if (change) {
        raft_free(first->buf.base);
        first->buf = ours;
    }
    return rv;
}

void replica_step(struct replica *r, struct raft_event *event)
{
    struct raft_update u = {0};
    if (r->failed) {
        return;
    }
    int rv = step_core(r, event, &u);
    if (rv != 0) {
        replica_fail(r, FL_ESYSTEM, "the raft library failed at an event of kind %d: %s",
                     (int)event->type, raft_strerror(rv));
        return;
    }
    if ((u.flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR)) != 0) {
        replica_set_hard_state(r, raft_current_term(&r->raft), raft_voted_for(&r->raft));
    }
    if ((u.flags & (RAFT_UPDATE_ENTRIES)) != 0) {
        keep_entries(r, &u);
    }
    if ((u.flags & (RAFT_UPDATE_MESSAGES)) != 0) {
        for (unsigned i = 0; i < u.messages.n && !r->failed; i++) {
            replica_send(r, &u.messages.batch[i]);
        }
    }
    if ((u.flags & (RAFT_UPDATE_COMMIT_INDEX)) != 0 && !r->failed) {
        raft_edge_tell_changes(&r->edge, raft_commit_index(&r->raft));
    }
}

/* The core tells a follower to take over once, as soon as it has confirmed any entry. A follower
 * that still lacks entries ignores that. So the core hears of a transfer only when the follower has
 * all entries. */
static void hand_over(struct replica *r)
{
    uint64_t id = r->transferee;
    bool leads = replica_leads(r);
    bool ready = leads && id != 0 && replica_match_index(r, id) == replica_last_index(r);
    if (ready || !leads || r->edge.now_ms >= r->transferee_until_ms) {
        r->transferee = 0;
    }
    if (ready) {
        struct raft_event event = {.type = RAFT_TRANSFER};
        event.transfer.server_id = replica_server_of(r, id);
        replica_step(r, &event);
    }
}

/* Answers are given here, not in the midst of an event. */
static void after_event(struct replica *r)
{
    hand_over(r);
    apply_committed(r);
}

/* ---- events ---- */

void replica_set_now(struct replica *r, uint64_t now_ms)
{
    r->edge.now_ms = now_ms > r->edge.now_ms ? now_ms : r->edge.now_ms;
}

/* Below the first entry of a log there are no members, so it says who they are. */
static bool lacks_members(const struct replica *r, const struct raft_append_entries *m)
{
    const struct change *c = &r->edge.changes.list[0];
    uint64_t at = (c->conf.n == 0 ? r->snapshot.index + 1 : c->index) - 1;
    return m->prev_log_index <= at && at - m->prev_log_index < m->n_entries &&
           m->entries[at - m->prev_log_index].type != RAFT_CHANGE;
}

/* 0; FL_EPROTO: no correct peer sends them; FL_EBUSY: the log has no room. */
static int check_entries(const struct replica *r, const struct raft_append_entries *m)
{
    size_t bytes = 2 * 64; /* a new term, and a truncation, may come in front of them */
    bool sound = !lacks_members(r, m);
    for (unsigned i = 0; i < m->n_entries && sound; i++) {
        const struct raft_entry *e = &m->entries[i];
        struct configuration conf;
        bytes += e->buf.len + 64;
        sound = e->type != RAFT_CHANGE ||
                (configuration_decode(e->buf.base, e->buf.len, &conf) == 0 && conf.n > 0);
    }
    bool room = m->n_entries == 0 || bytes <= log_room(r->log);
    return !sound ? FL_EPROTO : !room ? FL_EBUSY : 0;
}

static bool sends_snapshot(const struct replica *r, const struct raft_message *m)
{
    return m->type == RAFT_APPEND_ENTRIES_RESULT && replica_leads(r) &&
           r->config.sends_snapshot(r->config.ctx, replica_number_of(r, m->server_id));
}

int replica_receive(struct replica *r, uint64_t now_ms, uint64_t from, uint8_t type,
                    struct fli_slice body)
{
    struct raft_message m;
    int rv = message_decode(type, body, r->entries, &m);
    if (rv != 0 || r->failed) {
        return rv;
    }
    replica_set_now(r, now_ms);
    m.server_id = from;
    m.server_address = "";
    if (m.type == RAFT_ROUND || m.type == RAFT_ROUND_RESULT) {
        return replica_round_receive(r, &m);
    }
    if (m.type == RAFT_TIMEOUT_NOW && r->unfit) {
        return 0; /* who leads stays, and hears from its timeout that this node did not take over */
    }
    rv = m.type == RAFT_APPEND_ENTRIES ? check_entries(r, &m.append_entries) : 0;
    if (rv == FL_EBUSY) {
        /* The disk is behind: its entries count as lost, and it still tells of the leader. */
        m.append_entries.n_entries = 0;
    } else if (rv != 0) {
        return rv;
    }
    r->edge.sends_snapshot = sends_snapshot(r, &m);
    rv = raft_edge_receive(&r->edge, &m);
    after_event(r);
    return rv;
}

static void report_persisted(struct replica *r)
{
    uint64_t index = log_durable_index(r->log);
    if (index <= r->raft.last_stored || raft_state(&r->raft) == RAFT_CANDIDATE) {
        return;
    }
    struct raft_event event = {.type = RAFT_PERSISTED_ENTRIES};
    event.persisted_entries.index = index;
    replica_step(r, &event);
}

void replica_durable(struct replica *r, uint64_t now_ms)
{
    replica_set_now(r, now_ms);
    if (r->failed) {
        return;
    }
    replica_send_held(r);
    report_persisted(r);
    after_event(r);
}

void replica_arrived(struct replica *r, uint64_t now_ms)
{
    replica_set_now(r, now_ms);
    r->apply_waits = false;
    replica_rests_arrived(r);
    replica_send_rests(r);
    after_event(r);
}

void replica_set_unfit(struct replica *r, bool unfit)
{
    r->unfit = unfit;
}

/* A node that could not serve calls no election. It votes, and a leader goes on, until another can
 * lead in its place. */
static bool has_timer(const struct replica *r)
{
    return !r->unfit || replica_role(r) == REPLICA_LEADER;
}

void replica_turn(struct replica *r, uint64_t now_ms, bool paused)
{
    replica_set_now(r, now_ms);
    r->applied_steps = 0;
    r->rest_bytes = 0;
    replica_send_rests(r);
    replica_round_turn(r);
    r->edge.paused = paused;
    if (!r->failed && !paused && has_timer(r) && r->edge.now_ms >= raft_edge_timeout_ms(&r->edge)) {
        raft_edge_timeout(&r->edge);
    }
    if (!r->failed) {
        report_persisted(r);
    }
    after_event(r);
}

uint64_t replica_next_ms(const struct replica *r, uint64_t now_ms)
{
    if (r->failed) {
        return UINT64_MAX;
    }
    if (has_to_apply(r) || replica_has_rest(r)) {
        return 0;
    }
    uint64_t timer_ms = has_timer(r) ? raft_edge_timeout_ms(&r->edge) : UINT64_MAX;
    uint64_t round_ms = replica_round_due_ms(r);
    uint64_t at_ms = timer_ms < round_ms ? timer_ms : round_ms;
    return at_ms == UINT64_MAX ? UINT64_MAX : at_ms <= now_ms ? 0 : at_ms - now_ms;
}

/* ---- functions of a leader ---- */

static int submit(struct replica *r, uint64_t now_ms, enum raft_entry_type type, const void *data,
                  size_t len)
{
    replica_set_now(r, now_ms);
    if (!replica_leads(r) || replica_transferee(r) != 0) {
        return FL_ENOLEADER;
    }
    if (len + 64 > log_room(r->log)) {
        return FL_EBUSY;
    }
    r->entries[0] = (struct raft_entry){.term = raft_current_term(&r->raft), .type = type};
    r->entries[0].buf = (struct raft_buffer){(void *)(uintptr_t)data, len}; /* which is read only */
    struct raft_event event = {.type = RAFT_SUBMIT};
    event.submit.entries = r->entries;
    event.submit.n = 1;
    replica_step(r, &event);
    return 0;
}

int replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len)
{
    FLI_ASSERT(len > 0 && len <= MESSAGE_ENTRY_MAX);
    return submit(r, now_ms, RAFT_COMMAND, data, len);
}

int replica_barrier(struct replica *r, uint64_t now_ms)
{
    static const uint8_t nothing[8] = {0};
    return submit(r, now_ms, RAFT_BARRIER, nothing, sizeof nothing);
}

/* Whether an entry of this leader's term is committed. Until then another change may be under way
 * that it has not heard of; the core lets it change the configuration all the same. */
static bool has_begun_its_term(const struct replica *r)
{
    uint64_t commit = raft_commit_index(&r->raft);
    return replica_term_of(r, commit) == raft_current_term(&r->raft);
}

int replica_change(struct replica *r, uint64_t now_ms, const struct configuration *c)
{
    uint8_t bytes[CONFIGURATION_SIZE_MAX];
    size_t len = configuration_encode(c, bytes);
    if (replica_role(r) != REPLICA_LEADER) {
        return FL_ENOLEADER;
    }
    if (!replica_configuration_committed(r) || !has_begun_its_term(r)) {
        return FL_EBUSY;
    }
    return submit(r, now_ms, RAFT_CHANGE, bytes, len);
}

int replica_begin(struct replica *r, uint64_t now_ms, const struct configuration *c)
{
    uint8_t bytes[CONFIGURATION_SIZE_MAX];
    struct log_entry e = {.index = r->snapshot.index + 1,
                          .term = r->snapshot.index == 0 ? 1 : r->snapshot.term,
                          .kind = RAFT_CHANGE,
                          .len = (uint32_t)configuration_encode(c, bytes),
                          .data = bytes};
    FLI_ASSERT(c->n > 0 && replica_configuration(r)->n == 0);
    FLI_ASSERT(replica_last_index(r) == r->snapshot.index);
    replica_set_now(r, now_ms);
    if (replica_term(r) < e.term) {
        replica_set_hard_state(r, e.term, 0);
    }
    uint64_t position = log_append(r->log, &e);
    if (position == 0) {
        return FL_EBUSY;
    }
    replica_restart(r, position);
    return 0;
}

bool replica_has_caught_up(struct replica *r, uint64_t now_ms, uint64_t id)
{
    uint64_t most_ms =
        r->edge.election_ms > REPLICA_CAUGHT_UP_MS ? r->edge.election_ms : REPLICA_CAUGHT_UP_MS;
    replica_set_now(r, now_ms);
    if (r->learner != id || r->edge.now_ms - r->learner_ms >= most_ms) {
        r->learner = id;
        r->learner_ms = r->edge.now_ms;
        r->learner_index = replica_last_index(r);
    }
    uint64_t match = replica_match_index(r, id);
    return match >= r->learner_index && match >= replica_configuration_index(r);
}

int replica_transfer(struct replica *r, uint64_t now_ms, uint64_t id)
{
    replica_set_now(r, now_ms);
    if (!replica_leads(r)) {
        return FL_ENOLEADER;
    }
    const struct configuration_server *server = configuration_find(replica_configuration(r), id);
    if (server == NULL || server->role != CONFIGURATION_VOTER || id == r->config.id) {
        return FL_ENOTFOUND;
    }
    if (replica_transferee(r) != 0) {
        return FL_EBUSY;
    }
    r->transferee = id;
    r->transferee_until_ms = r->edge.now_ms + r->edge.election_ms;
    hand_over(r);
    return 0;
}

uint64_t replica_transferee(const struct replica *r)
{
    raft_id of_core = raft_transferee(&r->raft);
    return r->transferee != 0 ? r->transferee : of_core == 0 ? 0 : replica_number_of(r, of_core);
}

/* ---- elections out of turn ---- */

bool replica_campaign(struct replica *r, uint64_t now_ms)
{
    replica_set_now(r, now_ms);
    return !r->failed && raft_edge_campaign(&r->edge);
}

void replica_set_leader_gone(struct replica *r, bool gone)
{
    r->edge.leader_gone = gone;
}

uint64_t replica_silence_ms(const struct replica *r, uint64_t now_ms)
{
    return raft_edge_silence_ms(&r->edge, now_ms);
}

/* ---- snapshots ---- */

int replica_conf_of(const struct snapshot_meta *meta, struct configuration *ret)
{
    bool sound = meta->term != 0 && meta->conf_index != 0 && meta->conf_index <= meta->index;
    return sound ? configuration_decode(meta->conf, meta->conf_len, ret) : FL_ECORRUPT;
}

void replica_label(const struct snapshot_meta *meta, struct raft_snapshot_metadata *ret)
{
    struct configuration conf;
    int rv = replica_conf_of(meta, &conf);
    FLI_ASSERT(rv == 0);
    ret->index = meta->index;
    ret->term = meta->term;
    ret->configuration_index = meta->conf_index;
    configuration_to_raft(&conf, &ret->configuration);
}

int replica_snapshot_meta(const struct replica *r, bool again, struct snapshot_meta *ret)
{
    bool on_disk = r->applied <= log_durable_index(r->log);
    bool has_snapshot = r->applied <= r->snapshot.index;
    if (!on_disk || r->applied == 0 || (has_snapshot && !again)) {
        return FL_EBUSY;
    }
    const struct change *c = changes_at(&r->edge.changes, r->applied);
    _Static_assert(CONFIGURATION_SIZE_MAX <= SNAPSHOT_CONF_MAX, "a configuration fits a snapshot");
    memset(ret, 0, sizeof *ret);
    ret->index = r->applied;
    ret->term = replica_term_of(r, r->applied);
    ret->conf_index = c->index;
    ret->conf_len = (uint32_t)configuration_encode(&c->conf, ret->conf);
    FLI_ASSERT(ret->term != 0);
    return 0;
}

void replica_snapshot_taken(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                            uint64_t keep_index)
{
    replica_set_now(r, now_ms);
    if (r->failed || meta->index <= r->snapshot.index) {
        return; /* a leader's snapshot came in between */
    }
    FLI_ASSERT(keep_index <= meta->index);
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    replica_label(meta, &event.snapshot.metadata);
    event.snapshot.trailing = (unsigned)(meta->index - keep_index);
    r->snapshot = *meta;
    replica_step(r, &event);
    log_compact(r->log, keep_index);
    changes_compact(&r->edge.changes, meta->index);
}

bool replica_snapshot_is_sound(const struct snapshot_meta *meta)
{
    struct configuration conf;
    return replica_conf_of(meta, &conf) == 0;
}

/* The core starts anew behind the snapshot, as a node does that finds it on its disk. Then it hears
 * its leader, as before, and answers once the log is on disk. */
int replica_install(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                    struct machine *fresh, struct machine **ret_old)
{
    struct configuration conf;
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    replica_set_now(r, now_ms);
    if (r->failed || meta->index <= r->applied || replica_conf_of(meta, &conf) != 0) {
        return FL_EINVAL;
    }
    if (replica_role(r) != REPLICA_FOLLOWER || replica_leader(r) == 0 ||
        meta->term > replica_term(r)) {
        return FL_EBUSY;
    }
    if (replica_term_of(r, meta->index) == meta->term) {
        return FL_EINVAL; /* the log has all of it */
    }
    raft_leader(&r->raft, &m.server_id, &m.server_address);
    m.server_address = "";
    m.append_entries = (struct raft_append_entries){.term = replica_term(r),
                                                    .prev_log_index = meta->index,
                                                    .prev_log_term = meta->term,
                                                    .leader_commit = meta->index};
    *ret_old = fsm_replace(r->config.fsm, fresh);
    memset(r->hashes, 0, sizeof r->hashes); /* of a state that is gone, right or wrong */
    r->apply_waits = false; /* for an entry that is in the snapshot; its read may last for ever */
    r->snapshot = *meta;
    uint64_t position = log_reset(r->log, meta->index, meta->term);
    must_have(position);
    replica_restart(r, position);
    if (!r->failed) {
        int rv = raft_edge_receive(&r->edge, &m);
        FLI_ASSERT(rv == 0); /* it is from our leader, of our term */
    }
    return 0;
}
