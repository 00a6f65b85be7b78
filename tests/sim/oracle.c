/* oracle.c: what must hold, whatever happens. Judged after every event, by one who sees all.
 *
 *   1  a token is issued once; each is larger than all that were issued when it was asked for
 *   2  no lock has two holders on the cluster clock
 *   3  tokens that the storage accepts for a lock never go down
 *   4  no accepted write is based on another value than the last one: no update is lost
 *   5  what was applied once at an index of the log, anywhere, is what every node applies there for
 *      ever, across crashes, lost disks and snapshots; nothing answered is missing from it
 *   6  replicas have equal states at equal indexes
 *   7  no lease ends before its time, on any clock that runs as fast as clocks may; and its holder,
 *      on its own clock, has called it lost before
 *   8  who waits is served in the order of coming
 *   9  no limit is passed, and no node keeps more than it may
 *  10  nothing that is said contradicts the log (said_held, said_gone)
 *
 * That everybody gets an answer after the faults have ended is settle()'s, in run.c. */
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

/* Locks are named "L0", "L1", "R4"...; owners are numbers in text, padded to the length clients
 * need. */
static unsigned lock_of(struct sim *s, struct fli_slice name)
{
    SIM_CHECK(s, name.len == 2, "an event of an unknown lock");
    unsigned lock = (unsigned)(name.data[1] - '0');
    SIM_CHECK(s, lock < SIM_ALL_LOCKS, "an event of an unknown lock");
    return lock;
}

static uint64_t owner_of(struct sim *s, struct fli_slice owner)
{
    uint64_t n = 0;
    SIM_CHECK(s, fli_parse_u64(owner.data, owner.len, UINT64_MAX, &n), "an unknown owner");
    return n;
}

void sim_oracle_init(struct sim *s)
{
    s->oracle = (struct sim_oracle){.seq = 1};
    sim_oracle_new_owner(s); /* 0 stands for none */
}

void sim_oracle_fini(struct sim *s)
{
    free(s->oracle.applied);
    free(s->oracle.tokens);
    free(s->oracle.seals);
    free(s->oracle.owner_floor);
}

uint64_t sim_oracle_new_owner(struct sim *s)
{
    struct sim_oracle *o = &s->oracle;
    uint64_t owner = o->owners_len++;
    o->owner_floor = sim_grow(o->owner_floor, &o->owners_cap, o->owners_len, sizeof(uint64_t));
    o->owner_floor[owner] = o->token_max;
    return owner;
}

struct sim_token *sim_oracle_token(struct sim *s, uint64_t token)
{
    struct sim_oracle *o = &s->oracle;
    SIM_CHECK(s, token > 0 && token < 1000000, "token %llu", (unsigned long long)token);
    o->tokens = sim_grow(o->tokens, &o->tokens_cap, token + 1, sizeof *o->tokens);
    return &o->tokens[token];
}

static struct sim_token *issue(struct sim *s, uint64_t token, uint64_t floor)
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
    if (raft_state(&n->node->raft) != RAFT_LEADER) {
        return;
    }
    if (o->seals_len > 0 && o->seals[o->seals_len - 1].term == h.term &&
        o->seals[o->seals_len - 1].sequence >= h.sequence) {
        return;
    }
    o->seals = sim_grow(o->seals, &o->seals_cap, o->seals_len + 1, sizeof *o->seals);
    o->seals[o->seals_len++] = (struct sim_seal){h.term, h.sequence, s->now, n->lost_ms};
}

/* What the fastest clock shows after so much true time. */
static uint64_t fastest(const struct sim *s, uint64_t ms)
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
    SIM_CHECK(s, h.stamp_ms >= o->last_stamp_ms, "the cluster clock goes back from %llu to %llu",
              (unsigned long long)o->last_stamp_ms, (unsigned long long)h.stamp_ms);
    SIM_CHECK(s, seal->at >= o->last_seal.at, "batches are applied in another order than sealed");
    uint64_t time_ms = fastest(s, seal->at - o->last_seal.at);
    if (seal->term == o->last_seal.term) {
        uint64_t lost_ms = seal->lost_ms - o->last_seal.lost_ms;
        time_ms = time_ms > lost_ms ? time_ms - lost_ms : 0;
    }
    SIM_CHECK(s, s->options.jumps || h.stamp_ms - o->last_stamp_ms <= time_ms + 2,
              "the cluster clock runs %llu ms in %llu ms of its leader's time",
              (unsigned long long)(h.stamp_ms - o->last_stamp_ms), (unsigned long long)time_ms);
    SIM_CHECK(s, (h.sequence == 1) == ((h.flags & MACHINE_BATCH_TERM_MARK) != 0),
              "the term mark is not on the first batch of term %llu", (unsigned long long)h.term);
    s->marks->terms += h.sequence == 1;
    o->last_stamp_ms = h.stamp_ms;
    o->last_seal = *seal;
}

/* ---- the log ---- */

/* Whoever believes to hold what has just expired was told a lease longer than the server's. */
static void sim_oracle_believers(struct sim *s, uint64_t token)
{
    for (unsigned i = 0; i < s->clients_n; i++) {
        const struct sim_client *c = &s->clients[i];
        if (c->role != SIM_WRITER || !c->holding || c->token != token) {
            continue;
        }
        struct fli_hold hold = c->hold;
        SIM_CHECK(s, fli_hold_look(&hold, sim_client_now(c)) == FL_HOLD_LOST,
                  "token %llu expires while client %u may believe in it for %llu ms more",
                  (unsigned long long)token, i,
                  (unsigned long long)fli_hold_remaining_ms(&hold, sim_client_now(c)));
    }
}

static void end_lease(struct sim *s, const struct machine_event *e)
{
    struct sim_oracle *o = &s->oracle;
    unsigned lock = lock_of(s, e->name);
    struct sim_token *t = sim_oracle_token(s, e->token);
    SIM_CHECK(s, t->issued && t->lease, "a lease ends that never began");
    SIM_CHECK(s, t->ended_seq == 0, "token %llu ends twice", (unsigned long long)e->token);
    SIM_CHECK(s, o->holder[lock] == e->token, "lock %u is not held with the token that ends", lock);
    t->ended_seq = o->seq;
    o->holder[lock] = 0;
    if (e->type == MACHINE_EVENT_EXPIRED && !s->options.jumps) {
        SIM_CHECK(s, t->explicit_session || fastest(s, s->now - t->base_at) >= t->ttl_ms,
                  "token %llu expires after %llu of %llu ms", (unsigned long long)e->token,
                  (unsigned long long)(s->now - t->base_at), (unsigned long long)t->ttl_ms);
        sim_oracle_believers(s, e->token);
    }
    s->marks->expired += e->type == MACHINE_EVENT_EXPIRED;
    s->marks->broken += e->type == MACHINE_EVENT_BROKEN;
    s->marks->released += e->type == MACHINE_EVENT_RELEASED;
}

/* Takes a wait out of our copy of its queue; it must be the first one when it is granted. */
static void sim_oracle_unqueue(struct sim *s, unsigned lock, uint64_t wait, bool granted)
{
    struct sim_queue *q = &s->oracle.queue[lock];
    unsigned i = 0;
    while (i < q->n && q->waits[i] != wait) {
        i++;
    }
    SIM_CHECK(s, i < q->n, "a wait ends that never began");
    SIM_CHECK(s, !granted || i == 0, "lock %u is granted to number %u of its queue", lock, i + 1);
    q->n--;
    memmove(q->waits + i, q->waits + i + 1, (q->n - i) * sizeof q->waits[0]);
    s->marks->granted_from_queue += granted;
    s->marks->waits_ended += !granted;
}

static void begin_lease(struct sim_node *n, const struct machine_event *e)
{
    struct sim *s = n->sim;
    struct sim_oracle *o = &s->oracle;
    unsigned lock = lock_of(s, e->name);
    uint64_t owner = owner_of(s, e->owner);
    SIM_CHECK(s, owner < o->owners_len, "granted to an owner who never asked");
    SIM_CHECK(s, o->holder[lock] == 0, "lock %u is granted while it is held", lock);
    SIM_CHECK(s, e->token > o->token_max, "token %llu is granted after %llu",
              (unsigned long long)e->token, (unsigned long long)o->token_max);
    struct sim_token *t = issue(s, e->token, o->owner_floor[owner]);
    t->lease = true;
    t->explicit_session = e->session_explicit;
    t->lock = lock;
    t->owner = owner;
    t->base_at = o->last_seal.at;
    t->ttl_ms = e->deadline_ms - e->clock_ms;
    o->holder[lock] = e->token;
    s->marks->grants++;
    if (e->wait != 0) {
        sim_oracle_unqueue(s, lock, e->wait, true);
    } else {
        SIM_CHECK(s, o->queue[lock].n == 0, "lock %u is granted past its queue", lock);
    }
}

static void enqueue(struct sim *s, const struct machine_event *e)
{
    struct sim_queue *q = &s->oracle.queue[lock_of(s, e->name)];
    FLI_ASSERT(q->n < SIM_QUEUE_MAX);
    q->waits[q->n++] = e->wait;
}

void sim_oracle_event(struct sim_node *n, const struct machine_event *e)
{
    struct sim *s = n->sim;
    SIM_CHECK(s, n->applying != 0, "node %u has an event outside of apply", n->index + 1);
    uint64_t h = mix(n->event_digest, e->type);
    h = mix(mix_bytes(mix_bytes(h, e->name), e->owner), e->token);
    h = mix(mix(mix(h, e->wait), e->deadline_ms), e->clock_ms);
    n->event_digest = mix(h, (uint64_t)e->reason << 1 | e->session_explicit);
    if (!n->first) {
        return;
    }
    s->oracle.seq++;
    switch (e->type) {
    case MACHINE_EVENT_GRANTED:
        begin_lease(n, e);
        break;
    case MACHINE_EVENT_RELEASED:
    case MACHINE_EVENT_EXPIRED:
    case MACHINE_EVENT_BROKEN:
        end_lease(s, e);
        break;
    case MACHINE_EVENT_QUEUED:
        enqueue(s, e);
        break;
    case MACHINE_EVENT_WAIT_ENDED:
        sim_oracle_unqueue(s, lock_of(s, e->name), e->wait, false);
        break;
    default:
        break;
    }
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

/* ---- between raft and the node's own functions ---- */

static struct raft_fsm shipping;

static struct sim_node *applying_node(const struct raft_fsm *fsm)
{
    struct sim_node *n = sim_world->current;
    FLI_ASSERT(n != NULL && fsm == fsm_raft(n->node->fsm));
    return n;
}

static int watch_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct sim_node *n = applying_node(fsm);
    struct sim_oracle *o = &n->sim->oracle;
    if (n->ghost) {
        return shipping.apply(fsm, buf, result);
    }
    raft_index index = raft_last_applied(&n->node->raft) + 1;
    o->applied = sim_grow(o->applied, &o->applied_cap, index + 1, sizeof *o->applied);
    n->applying = index;
    n->first = index > o->max_index;
    n->event_digest = 1;
    if (n->first) {
        sim_oracle_batch(n, buf->base, buf->len);
    }
    int rv = shipping.apply(fsm, buf, result);
    SIM_CHECK(n->sim, rv == 0, "node %u cannot apply index %llu", n->index + 1, index);
    sim_oracle_applied(n, index, fli_get_u32((const uint8_t *)buf->base + 36));
    n->applying = 0;
    return rv;
}

static int watch_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct sim_node *n = applying_node(fsm);
    int rv = shipping.restore(fsm, buf);
    SIM_CHECK(n->sim, rv == 0, "node %u cannot restore a snapshot", n->index + 1);
    if (!n->ghost) {
        sim_oracle_restored(n, raft_commit_index(&n->node->raft));
    }
    return rv;
}

void sim_oracle_watch(struct sim_node *n)
{
    struct raft_fsm *fsm = fsm_raft(n->node->fsm);
    shipping = *fsm;
    fsm->apply = watch_apply;
    fsm->restore = watch_restore;
    if (n->disk.has_snapshot) {
        sim_oracle_restored(n, n->disk.snapshot.index);
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

static void said_gone(struct sim_lane *l, uint64_t token)
{
    struct sim *s = l->client->sim;
    struct sim_token *t = sim_oracle_token(s, token);
    SIM_CHECK(s, !t->lease || t->ended_seq != 0, "token %llu is said to be gone and is held",
              (unsigned long long)token);
}

static void answer_acquire(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    s->marks->deadlocks += r->code == MACHINE_DEADLOCK;
    s->marks->limits += r->code == MACHINE_LIMIT;
    if (r->code != MACHINE_GRANTED) {
        return;
    }
    struct sim_token *t = sim_oracle_token(s, r->token);
    SIM_CHECK(s, t->issued && t->lease, "a token in an answer that the log does not know");
    SIM_CHECK(s, t->owner == l->owner_number && t->lock == l->lock,
              "token %llu is given to another than the log says", (unsigned long long)r->token);
    said_held(l, r->token);
}

static void answer_renew(struct sim_lane *l, uint64_t token, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    if (r->code == MACHINE_DONE) {
        struct sim_token *t = sim_oracle_token(s, token);
        said_held(l, token);
        if (t->base_at < l->start_at) {
            t->base_at = l->start_at;
        }
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

void sim_oracle_answer(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    s->oracle.seq++;
    s->digest = mix(mix(s->digest, r->code), r->token);
    if (l->flow.order.request == FLI_REQUEST_CONFIRM) {
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
        SIM_CHECK(s, r->code == MACHINE_DONE, "TOKEN answers %u", r->code);
        issue(s, r->token, l->token_floor)->lock = l->lock;
        s->marks->tokens++;
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
    case MACHINE_OP_SESSION_OPEN:
        s->marks->sessions += r->code == MACHINE_DONE;
        break;
    default:
        break;
    }
}

/* ---- the storage ---- */

/* Accepted. A read without a token says nothing of itself. */
void sim_oracle_stored(struct sim *s, unsigned lock, uint64_t mark, uint64_t token)
{
    SIM_CHECK(s, token == 0 || token >= mark,
              "the storage accepts token %llu for lock %u after %llu", (unsigned long long)token,
              lock, (unsigned long long)mark);
}

void sim_oracle_written(struct sim *s, const struct sim_client *c, uint64_t current, uint64_t base)
{
    SIM_CHECK(s, current == base,
              "a lost update: client %u with token %llu writes over %llu what it made of %llu",
              c->index, (unsigned long long)c->token, (unsigned long long)current,
              (unsigned long long)base);
}

/* Redlock may be held twice; it is counted, to know that it happened. */
void sim_oracle_redlock(struct sim_client *c)
{
    struct sim *s = c->sim;
    for (unsigned i = 0; i < s->clients_n; i++) {
        const struct sim_client *d = &s->clients[i];
        if (d != c && d->role == SIM_REDLOCKER && d->holding && d->lock == c->lock &&
            sim_client_now(d) < d->deadline_ms) {
            s->marks->redlocks_twice++;
        }
    }
}

/* ---- nodes ---- */

void sim_oracle_node(struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct machine_limits *l = &s->options.limits;
    struct machine_counts c;
    if (s->marks->events % LOOK_EVERY != 0) {
        return;
    }
    machine_get_counts(fsm_machine(n->node->fsm), &c);
    SIM_CHECK(s,
              c.locks <= l->locks_max && c.sessions <= l->sessions_max && c.waits <= l->waits_max,
              "node %u is beyond its limits", n->index + 1);
    SIM_CHECK(s, n->node->held_bytes <= s->options.pending_max,
              "node %u keeps %zu bytes of commands, %zu are allowed", n->index + 1,
              n->node->held_bytes, s->options.pending_max);
    unsigned open = 0;
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *other = &s->nodes[i];
        open += other->power == SIM_UP && proposer_is_open(other->node->proposer);
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
        SIM_CHECK(s, machine_hash(m) == hash, "node %u ends in another state", i + 1);
        SIM_CHECK(s, raft_last_applied(&n->node->raft) >= s->oracle.max_index,
                  "node %u ends at index %llu, and %llu was applied", i + 1,
                  raft_last_applied(&n->node->raft), s->oracle.max_index);
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
    for (unsigned l = 0; l < SIM_ALL_LOCKS; l++) {
        SIM_CHECK(s, s->oracle.holder[l] == 0, "lock %u is held at the end", l);
        SIM_CHECK(s, s->oracle.queue[l].n == 0, "lock %u is awaited at the end", l);
    }
}
