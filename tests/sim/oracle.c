/* oracle.c: what must hold, whatever happens. Judged after every event, by one who sees all.
 *
 *   1  a token is issued once, and larger than all before; those of a lock grow with its grants
 *   2  answers: what is said of a lock, a token, a session (granted, renewed, given back, held,
 *      gone, in use by another) was so in the log at some moment between question and answer, and
 *      nothing answered but renewals is missing from it. Unknown outcomes stay open for ever
 *   3  storage: the tokens that it accepts for a lock never go down, across its crashes too
 *   4  no accepted write is based on another value than the last one: no update is lost
 *   5  that two hold one lock at a time is not judged by anybody's clock, only by 3 and 4: it is
 *      counted (believed_twice, redlocks_twice). On the cluster clock it is judged, see 11
 *   6  progress: after the faults have ended everybody is answered, every lease ends by itself,
 *      queues empty (settle() in run.c; sim_oracle_end); who may be served is, at once (order.c)
 *   7  no lease, of a lock or a session, ends before its time, on any clock that runs as fast as
 *      clocks may, nor on the cluster clock, where a change of leader begins it anew; and its
 *      holder, on its own clock, has called it lost before
 *   8  replicas have equal states at equal indexes, from the log or from a snapshot; what was
 *      applied once at an index, anywhere, is what every node applies there for ever
 *   9  no token goes back in crashes, lost disks and snapshots, or when locks are freed; restores
 *      of backups and other versions are not simulated
 *
 * So far those of the field; and what the order of the log must be (order.c):
 *
 *  10  who waits is served in the order of coming, whatever was asked for, and only who must waits
 *  11  a lock has one holder, or readers, or as many holders as it has permits; during a lock-delay
 *      it is not granted
 *  12  several locks in one request are granted, awaited and ended as one, or not at all
 *  13  with a session end all its grants and waits, and nothing is granted to one that has ended
 *  14  no limit is passed, none is said to be reached that is not there, and no node keeps more
 *      than it may
 *  15  Redlock on fit servers, whose clocks do not jump, is not held twice (redlock.c)
 *  16  what a client that named no owner has got and cannot know of, since it has left, is taken
 *      back; and nobody is granted it who can send no more
 *  17  what the machine says is what the client reads
 *  18  a node that hears of the end of a wait answers who awaits it there
 *  19  one node at most leads a term
 *  20  each sending of each request is carried out once at most: once, with the very result that
 *      was answered, if there is an answer; never, if its client was told that it was not. A call
 *      that was refused has changed nothing and never will; TOKEN and BREAK are carried out once
 *      at most for a call, however often it is sent; nothing is granted for one that has ended
 *  21  when a cluster is formed, each member has the incarnations of all on disk
 *  22  nothing is granted, renewed, given back, broken, shown or changed for a user who may not,
 *      nor with what is another user's, and nobody who may is refused; who may not any more waits
 *      no longer; no lease lasts for want of a right (rights.c)
 *  23  a node whose disk is an older copy, of a start that all others know to be over, neither
 *      leads nor follows, and is refused (older.c)
 *  24  a lock that one owner takes several times is free after as many releases, and one that is
 *      sent again counts once (reenter.c)
 *  25  what is sent on one connection is carried out in order, and soon (pipeline.c) */
#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"
#include "sim.h"

#define CHECK_EVERY 64u /* of indexes: machine_check() */
#define LOOK_EVERY 32u  /* of turns: limits */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v + UINT64_C(0x9e3779b97f4a7c15) + (h << 6) + (h >> 2);
    return h * UINT64_C(0xff51afd7ed558ccd);
}

static uint64_t mix_bytes(uint64_t h, struct fli_slice b)
{
    for (size_t i = 0; i < b.len; i++) {
        h = mix(h, b.data[i]);
    }
    return mix(h, b.len);
}

void sim_oracle_init(struct sim *s)
{
    s->oracle = (struct sim_oracle){.seq = 1};
    sim_oracle_new_owner(s); /* 0 stands for none */
    sim_rights_init(s);
}

void sim_oracle_fini(struct sim *s)
{
    free(s->oracle.applied);
    free(s->oracle.tokens);
    sim_oracle_forget_sendings(s);
    free(s->oracle.seals);
    free(s->oracle.owners);
    free(s->oracle.made);
    free(s->oracle.leaders);
    sim_order_fini(s);
    sim_rights_fini(s);
}

uint64_t sim_oracle_new_owner(struct sim *s)
{
    struct sim_oracle *o = &s->oracle;
    uint64_t owner = o->owners_len++;
    o->owners = sim_grow(o->owners, &o->owners_cap, o->owners_len, sizeof *o->owners);
    o->owners[owner].token_floor = o->token_max;
    return owner;
}

uint64_t sim_oracle_made_owner(struct sim_node *n, uint64_t of, struct fli_slice text)
{
    struct sim *s = n->sim;
    struct sim_oracle *o = &s->oracle;
    uint64_t owner = sim_oracle_new_owner(s);
    struct sim_owner *made = sim_oracle_owner(s, owner);
    SIM_CHECK(s, text.len == SIM_MADE_LEN, "a node makes an owner of %zu bytes", text.len);
    memcpy(made->asked, sim_oracle_owner(s, of)->asked, sizeof made->asked);
    made->made_by = n;
    made->made_in_life = n->life;
    o->made = sim_grow(o->made, &o->made_cap, o->made_len + 1, sizeof *o->made);
    memcpy(o->made[o->made_len].text, text.data, SIM_MADE_LEN);
    o->made[o->made_len++].owner = owner;
    s->marks->owners_made++;
    return owner;
}

void sim_oracle_over(struct sim_node *n, uint64_t owner, bool known)
{
    struct sim_owner *o = sim_oracle_owner(n->sim, owner);
    o->over_at = n->sim->now;
    o->excused = o->excused || known;
}

struct sim_owner *sim_oracle_owner(struct sim *s, uint64_t owner)
{
    FLI_ASSERT(owner < s->oracle.owners_len);
    return &s->oracle.owners[owner];
}

struct sim_token *sim_oracle_token(struct sim *s, uint64_t token)
{
    struct sim_oracle *o = &s->oracle;
    SIM_CHECK(s, token > 0 && token < 1000000, "token %llu", (unsigned long long)token);
    o->tokens = sim_grow(o->tokens, &o->tokens_cap, token + 1, sizeof *o->tokens);
    return &o->tokens[token];
}

struct sim_token *sim_oracle_issue(struct sim *s, uint64_t token, uint64_t floor)
{
    struct sim_token *t = sim_oracle_token(s, token);
    SIM_CHECK(s, !t->issued, "token %llu is issued twice", (unsigned long long)token);
    SIM_CHECK(s, token > floor, "token %llu was asked for when %llu had been issued already",
              (unsigned long long)token, (unsigned long long)floor);
    t->issued = true;
    if (s->oracle.token_max < token) {
        s->oracle.token_max = token;
    }
    return t;
}

/* ---- stamps ---- */

static const struct sim_seal *find_seal(struct sim *s, uint64_t term, uint64_t sequence)
{
    struct sim_oracle *o = &s->oracle;
    for (size_t i = o->seals_len; i > 0; i--) {
        if (o->seals[i - 1].term == term && o->seals[i - 1].sequence == sequence) {
            return &o->seals[i - 1];
        }
    }
    return NULL;
}

void sim_oracle_sealed(struct sim_node *n, const void *data, size_t len)
{
    struct sim *s = n->sim;
    struct sim_oracle *o = &s->oracle;
    struct machine_batch_header h;
    int rv = machine_batch_open(data, len, &h);
    SIM_CHECK(s, rv == 0, "a batch that cannot be read is written");
    if (o->seals_len > 0 && o->seals[o->seals_len - 1].term == h.term &&
        o->seals[o->seals_len - 1].sequence >= h.sequence) {
        return;
    }
    o->seals = sim_grow(o->seals, &o->seals_cap, o->seals_len + 1, sizeof *o->seals);
    o->seals[o->seals_len++] = (struct sim_seal){h.term, h.sequence, s->now, n->lost_ms};
}

/* What the fastest clock shows after so much true time. */
uint64_t sim_oracle_fastest(const struct sim *s, uint64_t ms)
{
    return ms + ms * (uint64_t)s->options.ppm_max / 1000000 + 2;
}

/* The cluster clock never goes back, never runs faster than time does, and does not count the time
 * in which its leader was stopped. */
static void sim_oracle_batch(struct sim_node *n, const void *data, size_t len)
{
    struct sim *s = n->sim;
    struct sim_oracle *o = &s->oracle;
    struct machine_batch_header h;
    int rv = machine_batch_open(data, len, &h);
    SIM_CHECK(s, rv == 0, "a batch that cannot be read is applied");
    const struct sim_seal *seal = find_seal(s, h.term, h.sequence);
    SIM_CHECK(s, seal != NULL, "a batch is applied that nobody wrote");
    SIM_CHECK(s, h.timestamp_ms >= o->last_timestamp_ms,
              "the cluster clock goes back from %llu to %llu",
              (unsigned long long)o->last_timestamp_ms, (unsigned long long)h.timestamp_ms);
    SIM_CHECK(s, seal->at >= o->last_seal.at, "batches are applied in another order than sealed");
    uint64_t time_ms = sim_oracle_fastest(s, seal->at - o->last_seal.at);
    if (seal->term == o->last_seal.term) {
        uint64_t lost_ms = seal->lost_ms - o->last_seal.lost_ms;
        time_ms = time_ms > lost_ms ? time_ms - lost_ms : 0;
    }
    SIM_CHECK(s, s->options.jumps || h.timestamp_ms - o->last_timestamp_ms <= time_ms + 2,
              "the cluster clock runs %llu ms in %llu ms of its leader's time",
              (unsigned long long)(h.timestamp_ms - o->last_timestamp_ms),
              (unsigned long long)time_ms);
    SIM_CHECK(s, (h.sequence == 1) == ((h.flags & MACHINE_BATCH_TERM_MARK) != 0),
              "the term mark is not on the first batch of term %llu", (unsigned long long)h.term);
    s->marks->terms += h.sequence == 1;
    o->last_timestamp_ms = h.timestamp_ms;
    o->term_timestamp_ms = h.sequence == 1 ? h.timestamp_ms : o->term_timestamp_ms;
    o->term_at = h.sequence == 1 ? seal->at : o->term_at;
    o->last_seal = *seal;
}

/* ---- the log ---- */

void sim_oracle_event(struct sim_node *n, const struct machine_event *e)
{
    struct sim *s = n->sim;
    SIM_CHECK(s, n->applying != 0, "node %u has an event outside of apply", n->index + 1);
    uint64_t h = mix(mix(n->event_digest, e->type), e->index);
    h = mix(mix_bytes(mix_bytes(h, e->name), e->owner), e->token);
    h = mix(mix(mix(h, e->wait), e->deadline_ms), e->clock_ms);
    n->event_digest = mix(h, (uint64_t)e->reason << 1 | e->session_explicit);
    if (!n->first) {
        return;
    }
    s->oracle.seq++;
    sim_order_event(s, e);
}

static void sim_oracle_applied(struct sim_node *n, raft_index index, uint64_t crc)
{
    struct sim *s = n->sim;
    struct sim_oracle *o = &s->oracle;
    struct machine *m = fsm_machine(n->node->fsm);
    struct sim_applied *a = &o->applied[index];
    uint64_t hash = machine_hash(m);
    o->seq++;
    if (n->first) {
        a->machine_hash = hash;
        a->event_digest = n->event_digest;
        a->crc = crc;
        o->max_index = index;
        s->digest = mix(mix(s->digest, hash), n->event_digest);
    }
    SIM_CHECK(s, a->event_digest != 0, "node %u applies a batch at index %llu, others did not",
              n->index + 1, index);
    SIM_CHECK(s, a->crc == crc,
              "node %u applies another batch at index %llu than was applied there before",
              n->index + 1, index);
    SIM_CHECK(s, a->machine_hash == hash, "node %u differs from the others at index %llu",
              n->index + 1, index);
    SIM_CHECK(s, a->event_digest == n->event_digest,
              "node %u saw other events than the others at index %llu", n->index + 1, index);
    if (index % CHECK_EVERY == 0) {
        machine_check(m);
    }
}

static void sim_oracle_restored(struct sim_node *n, raft_index index)
{
    struct sim *s = n->sim;
    struct sim_oracle *o = &s->oracle;
    SIM_CHECK(s, index > 0, "a snapshot of nothing");
    /* Entries of raft's own change nothing, so the state is that of the last batch before them. */
    raft_index at = index < o->max_index ? index : o->max_index;
    while (at > 0 && o->applied[at].event_digest == 0) {
        at--;
    }
    struct machine *m = fsm_machine(n->node->fsm);
    machine_check(m);
    SIM_CHECK(s, at == 0 || machine_hash(m) == o->applied[at].machine_hash,
              "node %u got a snapshot at index %llu that differs from the log", n->index + 1,
              index);
}

/* ---- between the replica and its parts: the linker puts these in their place ---- */
int __real_fsm_apply(struct fsm *f, const void *entry, size_t len);
int __wrap_fsm_apply(struct fsm *f, const void *entry, size_t len);
int __real_raft_init(struct raft *r, struct raft_io *io, struct raft_fsm *fsm, raft_id id,
                     const char *address);
int __wrap_raft_init(struct raft *r, struct raft_io *io, struct raft_fsm *fsm, raft_id id,
                     const char *address);
int __real_replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len);
int __wrap_replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len);
int __real_replica_install(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                           struct machine *fresh, struct machine **ret_old);
int __wrap_replica_install(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                           struct machine *fresh, struct machine **ret_old);

int __wrap_fsm_apply(struct fsm *f, const void *entry, size_t len)
{
    struct sim_node *n = sim_running->current;
    struct sim_oracle *o = &n->sim->oracle;
    FLI_ASSERT(n->node->fsm == f);
    if (n->ghost) {
        return __real_fsm_apply(f, entry, len);
    }
    uint64_t index = replica_applied_index(n->node->replica) + 1;
    o->applied = sim_grow(o->applied, &o->applied_cap, index + 1, sizeof *o->applied);
    n->applying = index;
    n->first = index > o->max_index;
    n->event_digest = 1;
    if (n->first) {
        sim_oracle_batch(n, entry, len);
        sim_order_begin(n->sim, entry, len);
    }
    uint32_t crc = fli_get_u32((const uint8_t *)entry + 36);
    int rv = __real_fsm_apply(f, entry, len);
    SIM_CHECK(n->sim, rv == 0, "node %u cannot apply index %llu", n->index + 1,
              (unsigned long long)index);
    if (n->first) {
        sim_order_end(n->sim);
    }
    sim_oracle_applied(n, index, crc);
    n->applying = 0;
    return rv;
}

int __wrap_replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len)
{
    struct sim_node *n = sim_running->current;
    int rv = __real_replica_submit(r, now_ms, data, len);
    if (rv == 0 && !n->ghost) {
        sim_oracle_sealed(n, data, len);
    }
    return rv;
}

int __wrap_replica_install(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                           struct machine *fresh, struct machine **ret_old)
{
    struct sim_node *n = sim_running->current;
    sim_snapshot_check_install(n);
    int rv = __real_replica_install(r, now_ms, meta, fresh, ret_old);
    if (rv == 0 && !n->ghost) {
        n->sim->marks->snapshots_installed++;
        n->labelled = meta->index;
        n->labelled_change = meta->conf_index;
        sim_oracle_restored(n, meta->index);
    }
    return rv;
}

int __wrap_raft_init(struct raft *r, struct raft_io *io, struct raft_fsm *fsm, raft_id id,
                     const char *address)
{
    sim_running->current->raft = r;
    return __real_raft_init(r, io, fsm, id, address);
}

/* What the core has noted of the configurations of the log: which is the last one, and whether it
 * is committed. */
static void check_changes(const struct sim_node *n)
{
    const struct raft *r = n->raft;
    uint64_t last = replica_configuration_index(n->node->replica);
    uint64_t noted = r->configuration_uncommitted_index;
    SIM_CHECK(
        n->sim, (noted != 0 ? noted : r->configuration_committed_index) == last,
        "node %u notes %llu as the change that is not committed and %llu as the last that is, "
        "and the last of its log is %llu",
        n->index + 1, (unsigned long long)noted,
        (unsigned long long)r->configuration_committed_index, (unsigned long long)last);
    SIM_CHECK(n->sim, noted == 0 || r->configuration_committed_index < noted,
              "node %u notes %llu both as committed and as not committed", n->index + 1,
              (unsigned long long)noted);
    SIM_CHECK(n->sim, noted == 0 || noted > raft_commit_index(r),
              "node %u notes %llu as the change that is not committed, and has committed all up to "
              "%llu",
              n->index + 1, (unsigned long long)noted, (unsigned long long)raft_commit_index(r));
}

void sim_oracle_watch(struct sim_node *n)
{
    uint64_t index = replica_snapshot_index(n->node->replica);
    if (index != 0) {
        sim_oracle_restored(n, index);
    }
}

/* ---- answers ---- */

/* The token was said to be held: it must not have ended before the question was asked. */
static void said_held(struct sim_lane *l, uint64_t token)
{
    struct sim *s = l->client->sim;
    struct sim_token *t = sim_oracle_token(s, token);
    SIM_CHECK(s, t->issued, "token %llu is held and was never issued", (unsigned long long)token);
    SIM_CHECK(s, t->ended_seq == 0 || t->ended_seq > l->start_seq,
              "token %llu is said to be held after it has ended", (unsigned long long)token);
}

/* A lease has begun anew, and its end was said. What was promised in an earlier term was so by
 * another clock. */
static void said_until(struct sim *s, const struct machine_result *r, uint64_t ttl_ms,
                       uint64_t base_at, uint64_t *promised_ms)
{
    SIM_CHECK(s, r->deadline_ms >= r->clock_ms + ttl_ms,
              "a lease of %llu ms is to end %lld ms after it was renewed",
              (unsigned long long)ttl_ms, (long long)(r->deadline_ms - r->clock_ms));
    bool longer = base_at >= s->oracle.term_at && *promised_ms > r->deadline_ms;
    *promised_ms = longer ? *promised_ms : r->deadline_ms;
}

/* Or it is another user's, which is all the same to this one. */
static void said_gone(struct sim_lane *l, uint64_t token)
{
    struct sim *s = l->client->sim;
    struct sim_token *t = sim_oracle_token(s, token);
    if (l->command.op != MACHINE_OP_CHECK && t->uid != (uint32_t)l->login) {
        return;
    }
    SIM_CHECK(s, !t->lease || t->ended_seq != 0, "token %llu is said to be gone and is held",
              (unsigned long long)token);
}

/* The session was said to live: it must not have ended before the question was asked. */
static void said_open(struct sim_lane *l)
{
    struct sim *s = l->client->sim;
    const struct sim_owner *o = sim_oracle_owner(s, l->owner_number);
    SIM_CHECK(s, o->open || o->ended_seq > l->start_seq,
              "session %llu is said to live after it has ended",
              (unsigned long long)l->owner_number);
}

static void said_closed(struct sim_lane *l)
{
    struct sim *s = l->client->sim;
    const struct sim_owner *o = sim_oracle_owner(s, l->owner_number);
    SIM_CHECK(s, !o->open || o->opened_seq > l->start_seq || o->uid != (uint32_t)l->login,
              "session %llu is said to have ended and lives", (unsigned long long)l->owner_number);
}

static void answer_limit(struct sim *s, const struct machine_result *r)
{
    uint64_t *const marks[] = {[MACHINE_LIMIT_LOCKS] = &s->marks->limit_locks,
                               [MACHINE_LIMIT_SESSIONS] = &s->marks->limit_sessions,
                               [MACHINE_LIMIT_WAITS] = &s->marks->limit_waits,
                               [MACHINE_LIMIT_LOCK_WAITS] = &s->marks->limit_lock_waits,
                               [MACHINE_LIMIT_SESSION_LOCKS] = &s->marks->limit_session_locks};
    bool known = r->number >= MACHINE_LIMIT_LOCKS && r->number <= MACHINE_LIMIT_SESSION_LOCKS;
    SIM_CHECK(s, known && s->options.limits.locks_max != MACHINE_LIMITS_DEFAULT.locks_max,
              "limit %u is said to be reached", r->number);
    ++*marks[r->number];
}

/* Contention, or a wait that is over, which must have lasted. In a session it may have ended with
 * that. */
static void answer_held(struct sim_lane *l)
{
    struct sim *s = l->client->sim;
    SIM_CHECK(s, sim_order_was_busy(l), "lock %s is said to be in use and is not", l->name);
    bool in_session = (l->command.flags & MACHINE_ACQUIRE_EXPLICIT) != 0;
    uint64_t waited_ms = sim_oracle_fastest(s, s->now - l->start_at);
    SIM_CHECK(
        s, in_session || l->robbed || l->half_close || s->options.jumps || waited_ms >= l->wait_ms,
        "a wait of %llu ms for lock %s ends after %llu", (unsigned long long)l->wait_ms, l->name,
        (unsigned long long)(s->now - l->start_at));
}

static void answer_refused(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    const struct sim_owner *o = sim_oracle_owner(s, l->owner_number);
    switch (r->code) {
    case MACHINE_DEADLOCK:
        SIM_CHECK(s, o->held > 0 || o->waits > 0 || o->idle_seq > l->start_seq,
                  "session %llu holds nothing and is said to be in a deadlock",
                  (unsigned long long)l->owner_number);
        s->marks->deadlocks++;
        break;
    case MACHINE_LIMIT:
        answer_limit(s, r);
        break;
    case MACHINE_NOSESSION:
        said_closed(l);
        s->marks->sessions_lost++;
        break;
    case MACHINE_MISMATCH:
        SIM_CHECK(s, r->number != l->command.permits || l->command.n_names > 1,
                  "lock %s is said to have other permits than %u", l->name, l->command.permits);
        SIM_CHECK(s, sim_order_was_busy(l), "lock %s is said to be in use and is not", l->name);
        s->marks->mismatches++;
        break;
    default:
        sim_fail(s, "ACQUIRE answers %u", r->code);
    }
}

static void answer_acquire(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    if (r->code == MACHINE_HELD) {
        answer_held(l);
        return;
    }
    if (r->code != MACHINE_GRANTED) {
        answer_refused(l, r);
        return;
    }
    struct sim_token *t = sim_oracle_token(s, r->token);
    SIM_CHECK(s, t->issued && t->lease, "a token in an answer that the log does not know");
    SIM_CHECK(s, t->owner == l->owner_number && t->mask == l->mask,
              "token %llu is given to another than the log says", (unsigned long long)r->token);
    said_held(l, r->token);
}

static void answer_renew(struct sim_lane *l, uint64_t token, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    if (r->code == MACHINE_DONE) {
        struct sim_token *t = sim_oracle_token(s, token);
        said_held(l, token);
        said_until(s, r, t->ttl_ms, t->base_at, &t->promised_ms);
        t->base_at = t->base_at < l->start_at ? l->start_at : t->base_at;
        s->marks->renewed++;
        return;
    }
    SIM_CHECK(s, r->code == MACHINE_NO, "RENEW answers %u", r->code);
    said_gone(l, token);
    s->marks->renew_refused++;
}

static void answer_release(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    uint64_t token = l->command.token;
    said_gone(l, token);
    if (r->code == MACHINE_DONE) {
        struct sim_token *t = sim_oracle_token(s, token);
        said_held(l, token);
        SIM_CHECK(s, t->released_answers++ == 0, "token %llu is released twice",
                  (unsigned long long)token);
    }
}

static void answer_session(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    bool done = r->code == MACHINE_DONE;
    if (r->code == MACHINE_LIMIT) {
        answer_limit(s, r);
        return;
    }
    SIM_CHECK(s, done || r->code == MACHINE_NOSESSION || r->code == MACHINE_NOTFOUND,
              "a command about a session answers %u", r->code);
    if (!done) {
        SIM_CHECK(s, l->command.op != MACHINE_OP_SESSION_OPEN, "OPEN answers %u", r->code);
        said_closed(l);
        s->marks->sessions_lost++;
    } else if (l->command.op == MACHINE_OP_SESSION_CLOSE) {
        said_closed(l);
    } else {
        said_open(l);
    }
    if (done &&
        (l->command.op == MACHINE_OP_SESSION_OPEN || l->command.op == MACHINE_OP_SESSION_RENEW)) {
        struct sim_owner *o = sim_oracle_owner(s, l->owner_number);
        bool is_new = o->opened_seq > l->start_seq; /* what was renewed may be the one before */
        if (o->open && (l->command.op == MACHINE_OP_SESSION_OPEN || !is_new)) {
            said_until(s, r, o->ttl_ms, o->base_at, &o->promised_ms);
        }
        o->base_at = o->base_at > l->start_at ? o->base_at : l->start_at;
        s->marks->sessions += l->command.op == MACHINE_OP_SESSION_OPEN;
        s->marks->sessions_renewed += l->command.op == MACHINE_OP_SESSION_RENEW;
    }
}

static void answer_token(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    bool is_break = l->command.op == MACHINE_OP_BREAK;
    if (is_break && r->code == MACHINE_NO) {
        return;
    }
    SIM_CHECK(s, r->code == MACHINE_DONE, "TOKEN or BREAK answers %u", r->code);
    struct sim_token *t = sim_oracle_issue(s, r->token, l->token_floor);
    t->lock = l->lock;
    t->mask = 1u << l->lock;
    s->marks->tokens += !is_break;
}

void sim_oracle_answer(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    s->oracle.seq++;
    s->digest = mix(mix(s->digest, r->code), r->token);
    if (sim_rights_answer(l, r)) {
        return;
    }
    if (l->call_state.order.request == FLI_REQUEST_CONFIRM) {
        answer_renew(l, l->token, r);
        return;
    }
    switch (l->command.op) {
    case MACHINE_OP_ACQUIRE:
        answer_acquire(l, r);
        break;
    case MACHINE_OP_RENEW:
        answer_renew(l, l->command.token, r);
        break;
    case MACHINE_OP_RELEASE:
        answer_release(l, r);
        break;
    case MACHINE_OP_TOKEN:
    case MACHINE_OP_BREAK:
        answer_token(l, r);
        break;
    case MACHINE_OP_CHECK:
        if (r->code == MACHINE_DONE) {
            said_held(l, l->command.token);
            s->marks->checks_held++;
        } else {
            said_gone(l, l->command.token);
            s->marks->checks_gone++;
        }
        break;
    case MACHINE_OP_SHOW:
        s->marks->shows++;
        if (r->code == MACHINE_DONE && r->token != 0) {
            said_held(l, r->token);
        }
        break;
    case MACHINE_OP_LOCKS:
        SIM_CHECK(s, r->code == MACHINE_DONE, "LOCKS answers %u", r->code);
        s->marks->listings++;
        break;
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_SESSION_CLOSE:
    case MACHINE_OP_SESSION_SHOW:
        answer_session(l, r);
        break;
    default:
        sim_fail(s, "an answer to command %u, which nobody judges", l->command.op);
    }
}

/* ---- the storage ---- */

/* Accepted. A read without a token says nothing of itself. Where nothing is fenced, it is the lost
 * updates that are to be seen. */
void sim_oracle_stored(struct sim *s, unsigned lock, uint64_t token)
{
    struct sim_lock *l = &s->oracle.locks[lock];
    if (token == 0 || s->orders.sabotage == SIM_SABOTAGE_NO_FENCING) {
        return;
    }
    SIM_CHECK(s, token >= l->mark, "the storage accepts token %llu for lock %u after %llu",
              (unsigned long long)token, lock, (unsigned long long)l->mark);
    l->mark = token;
}

void sim_oracle_written(struct sim *s, const struct sim_client *c, uint64_t current, uint64_t base)
{
    SIM_CHECK(s, current == base,
              "a lost update: client %u with token %llu writes over value %llu, which it has not "
              "seen: it read value %llu",
              c->index, (unsigned long long)c->token, (unsigned long long)current,
              (unsigned long long)base);
}

static bool believes(const struct sim_client *d)
{
    struct fli_lease lease = d->lease;
    uint64_t now_ms = sim_client_now(d);
    return d->holding &&
           (d->role == SIM_REDLOCKER ? now_ms < d->deadline_ms
                                     : fli_lease_state(&lease, now_ms) != FL_HOLD_LOST);
}

/* Two may believe to hold one lock, and it is counted, to know that it happened. Redlock promises
 * that they do not as long as clocks run right and servers are what they say. */
void sim_oracle_holds(const struct sim_client *c)
{
    struct sim *s = c->sim;
    for (unsigned i = 0; i < s->clients_n; i++) {
        const struct sim_client *d = &s->clients[i];
        if (d == c || d->role != c->role || (d->mask & c->mask) == 0 || !believes(d) ||
            (c->slots > 1 && c->slots == d->slots)) {
            continue;
        }
        s->marks->redlocks_twice += c->role == SIM_REDLOCKER;
        s->marks->believed_twice += c->role != SIM_REDLOCKER;
        SIM_CHECK(s, c->role != SIM_REDLOCKER || !sim_redlock_is_sound(s),
                  "clients %u and %u both hold lock R%u by Redlock", i, c->index, c->lock);
    }
}

/* ---- what nobody knows of ---- */

/* Whether the node that made it has had the time to take back what it has got. */
static bool should_be_undone(const struct sim *s, uint64_t owner, uint64_t since)
{
    const struct sim_owner *o = &s->oracle.owners[owner];
    const struct sim_node *n = o->made_by;
    uint64_t tries_ms = DISPATCH_CLEANUP_AGAIN_MS * (DISPATCH_CLEANUP_TRIES - 4);
    return n != NULL && o->over_at != 0 && !o->excused && o->made_in_life == n->life &&
           n->power == SIM_UP && owner >= n->unheard_owner && o->over_at + tries_ms > since &&
           o->over_at < since && !s->options.jumps;
}

void sim_oracle_undone(struct sim *s, uint64_t since)
{
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        const struct sim_lock *l = &s->oracle.locks[k];
        for (size_t i = 0; i < l->holders_n; i++) {
            const struct sim_token *t = sim_oracle_token(s, l->holders[i]);
            SIM_CHECK(s, !should_be_undone(s, t->owner, since),
                      "token %llu of lock L%u is not given back, and nobody can know of it",
                      (unsigned long long)l->holders[i], k);
        }
        for (size_t i = 0; i < l->queue_n; i++) {
            SIM_CHECK(s, !should_be_undone(s, l->queue[i].owner, since),
                      "wait %llu for lock L%u is not cancelled, and nobody awaits its end",
                      (unsigned long long)l->queue[i].id, k);
        }
    }
}

/* ---- nodes ---- */

static void check_leader(struct sim_node *n)
{
    struct sim_oracle *o = &n->sim->oracle;
    const struct replica *r = n->node->replica;
    if (replica_role(r) != REPLICA_LEADER) {
        return;
    }
    uint64_t term = replica_term(r);
    o->leaders = sim_grow(o->leaders, &o->leaders_cap, term + 1, sizeof *o->leaders);
    unsigned before = o->leaders[term];
    SIM_CHECK(n->sim, before == 0 || before == n->index + 1, "nodes %u and %u both lead term %llu",
              before, n->index + 1, (unsigned long long)term);
    o->leaders[term] = (uint8_t)(n->index + 1);
}

void sim_oracle_node(struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct machine_limits *l = &s->options.limits;
    struct machine_counts c;
    check_changes(n);
    check_leader(n);
    if (s->marks->events % LOOK_EVERY != 0) {
        return;
    }
    machine_get_counts(fsm_machine(n->node->fsm), &c);
    SIM_CHECK(s,
              c.locks <= l->locks_max && c.sessions <= l->sessions_max && c.waits <= l->waits_max,
              "node %u is beyond its limits", n->index + 1);
    SIM_CHECK(s, n->node->commands.bytes <= s->options.pending_max + MACHINE_COMMAND_MAX,
              "node %u keeps %zu bytes of commands, %zu are allowed", n->index + 1,
              n->node->commands.bytes, s->options.pending_max);
    unsigned open = 0;
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *other = &s->nodes[i];
        open += other->power == SIM_UP && other->node != NULL &&
                proposer_is_open(&other->node->proposer);
    }
    s->marks->stale_leaders += open > 1;
}

void sim_oracle_end(struct sim *s)
{
    uint64_t hash = machine_hash(fsm_machine(s->nodes[0].node->fsm));
    struct machine_counts counts;
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        struct machine *m = fsm_machine(n->node->fsm);
        machine_check(m);
        sim_rights_compare(s, m);
        SIM_CHECK(s, machine_hash(m) == hash, "node %u ends in another state", i + 1);
        SIM_CHECK(s, replica_applied_index(n->node->replica) >= s->oracle.max_index,
                  "node %u ends at index %llu, and %llu was applied", i + 1,
                  (unsigned long long)replica_applied_index(n->node->replica),
                  (unsigned long long)s->oracle.max_index);
        SIM_CHECK(s, machine_last_token(m) >= s->oracle.token_max,
                  "node %u ends with token %llu, and %llu was issued", i + 1,
                  (unsigned long long)machine_last_token(m),
                  (unsigned long long)s->oracle.token_max);
        machine_get_counts(m, &counts);
        SIM_CHECK(s, counts.sessions == 0 && counts.locks_held == 0 && counts.waits == 0,
                  "%llu sessions, %llu locks and %llu waits outlive their leases",
                  (unsigned long long)counts.sessions, (unsigned long long)counts.locks_held,
                  (unsigned long long)counts.waits);
        SIM_CHECK(s, n->tickets == 0, "node %u owes %u answers", i + 1, n->tickets);
    }
    sim_order_rest(s);
    sim_reenter_end(s);
}
