/* oracle.c: what must hold after every step of the simulation.
 *
 * Ground truth is the log: the first node that applies an index tells the oracle what happened
 * there, and every other node must find the same there (hash of the state, digest of the events).
 * Time is a counter that grows with everything that happens, so that "before" and "after" are exact
 * even within one simulated millisecond. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/view.h"
#include "sim.h"

#define CHECK_EVERY 16u /* applied entries between two full checks of a machine's invariants */

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

/* Locks are named "L0", "L1"...; owners are numbers in text, padded to the length clients need. */
static unsigned lock_of(struct sim *s, struct fli_slice name)
{
    SIM_CHECK(s, name.len == 2 && name.data[0] == 'L', "an event of an unknown lock");
    unsigned lock = (unsigned)(name.data[1] - '0');
    SIM_CHECK(s, lock < SIM_LOCKS, "an event of an unknown lock");
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
}

void sim_oracle_fini(struct sim *s)
{
    free(s->oracle.applied);
    free(s->oracle.tokens);
    free(s->oracle.seals);
    free(s->oracle.waits);
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

void sim_oracle_sealed(struct sim_node *node, const void *data, size_t len)
{
    struct sim *s = node->sim;
    struct sim_oracle *o = &s->oracle;
    struct machine_batch_header h;
    int rv = machine_batch_open(data, len, &h);
    SIM_CHECK(s, rv == 0, "a batch that cannot be read is written");
    if (find_seal(s, h.term, h.sequence) != NULL) {
        return;
    }
    o->seals = sim_grow(o->seals, &o->seals_cap, o->seals_len + 1, sizeof *o->seals);
    o->seals[o->seals_len++] = (struct sim_seal){h.term, h.sequence, sim_now(s), node->lost_ms};
}

/* The cluster clock never goes back, never runs faster than time does, and does not count the time
 * in which its leader was stopped. */
void sim_oracle_batch(struct sim_node *node, const void *data, size_t len)
{
    struct sim *s = node->sim;
    struct sim_oracle *o = &s->oracle;
    struct machine_batch_header h;
    int rv = machine_batch_open(data, len, &h);
    SIM_CHECK(s, rv == 0, "a batch that cannot be read is applied");
    const struct sim_seal *seal = find_seal(s, h.term, h.sequence);
    SIM_CHECK(s, seal != NULL, "a batch is applied that nobody wrote");
    SIM_CHECK(s, h.stamp_ms >= o->last_stamp_ms, "the cluster clock goes back from %llu to %llu",
              (unsigned long long)o->last_stamp_ms, (unsigned long long)h.stamp_ms);
    SIM_CHECK(s, seal->at_ms >= o->last_seal.at_ms,
              "batches are applied in another order than sealed");
    uint64_t time_ms = seal->at_ms - o->last_seal.at_ms;
    if (seal->term == o->last_seal.term) {
        time_ms -= seal->lost_ms - o->last_seal.lost_ms;
        s->marks->pauses_survived += seal->lost_ms > o->last_seal.lost_ms;
    }
    SIM_CHECK(s, h.stamp_ms - o->last_stamp_ms <= time_ms,
              "the cluster clock runs %llu ms in %llu ms of its leader's time",
              (unsigned long long)(h.stamp_ms - o->last_stamp_ms), (unsigned long long)time_ms);
    SIM_CHECK(s, (h.sequence == 1) == ((h.flags & MACHINE_BATCH_TERM_MARK) != 0),
              "the term mark is not on the first batch of term %llu", (unsigned long long)h.term);
    o->last_stamp_ms = h.stamp_ms;
    o->last_seal = *seal;
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
    if (e->type == MACHINE_EVENT_EXPIRED) {
        s->marks->expired++;
        SIM_CHECK(s, t->explicit_session || sim_now(s) >= t->base_ms + t->ttl_ms,
                  "token %llu expires after %llu of %llu ms", (unsigned long long)e->token,
                  (unsigned long long)(sim_now(s) - t->base_ms), (unsigned long long)t->ttl_ms);
    }
    s->marks->broken += e->type == MACHINE_EVENT_BROKEN;
    s->marks->released += e->type == MACHINE_EVENT_RELEASED;
}

static void resolve_wait(struct sim *s, uint64_t wait, uint64_t token)
{
    struct sim_oracle *o = &s->oracle;
    o->waits = sim_grow(o->waits, &o->waits_cap, o->waits_len + 1, sizeof *o->waits);
    o->waits[o->waits_len++] = (struct sim_wait){wait, token};
    s->marks->granted_from_queue += token != 0;
    s->marks->waits_ended += token == 0;
    sim_client_wait_ended(s, wait, token);
}

static void begin_lease(struct sim_node *node, const struct machine_event *e)
{
    struct sim *s = node->sim;
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
    t->base_ms = o->last_seal.at_ms;
    t->ttl_ms = e->deadline_ms - e->clock_ms;
    o->holder[lock] = e->token;
    s->marks->grants++;
    if (e->wait != 0) {
        resolve_wait(s, e->wait, e->token);
    }
}

void sim_oracle_event(struct sim_node *node, const struct machine_event *e)
{
    struct sim *s = node->sim;
    SIM_CHECK(s, node->applying != 0, "node %u has an event outside of apply", node->index + 1);
    uint64_t h = mix(node->event_digest, e->type);
    h = mix(mix_bytes(mix_bytes(h, e->name), e->owner), e->token);
    h = mix(mix(mix(h, e->wait), e->deadline_ms), e->clock_ms);
    node->event_digest = mix(h, (uint64_t)e->reason << 1 | e->session_explicit);
    if (!node->first) {
        return;
    }
    s->oracle.seq++;
    switch (e->type) {
    case MACHINE_EVENT_GRANTED:
        begin_lease(node, e);
        break;
    case MACHINE_EVENT_RELEASED:
    case MACHINE_EVENT_EXPIRED:
    case MACHINE_EVENT_BROKEN:
        end_lease(s, e);
        break;
    case MACHINE_EVENT_WAIT_ENDED:
        resolve_wait(s, e->wait, 0);
        break;
    default:
        break;
    }
}

void sim_oracle_applied(struct sim_node *node, raft_index index)
{
    struct sim *s = node->sim;
    struct sim_oracle *o = &s->oracle;
    struct machine *m = fsm_machine(node->fsm);
    uint64_t hash = machine_hash(m);
    o->seq++;
    o->applied = sim_grow(o->applied, &o->applied_cap, index + 1, sizeof *o->applied);
    struct sim_applied *a = &o->applied[index];
    if (node->first) {
        SIM_CHECK(s, a->event_digest == 0, "index %llu is applied first twice", index);
        a->machine_hash = hash;
        a->event_digest = node->event_digest;
        o->max_index = index;
        s->digest = mix(mix(s->digest, hash), node->event_digest);
    }
    SIM_CHECK(s, a->machine_hash == hash, "node %u differs from the others at index %llu",
              node->index + 1, index);
    SIM_CHECK(s, a->event_digest == node->event_digest,
              "node %u saw other events than the others at index %llu", node->index + 1, index);
    if (index % CHECK_EVERY == 0) {
        machine_check(m);
    }
}

void sim_oracle_restored(struct sim_node *node, raft_index index)
{
    struct sim *s = node->sim;
    struct sim_oracle *o = &s->oracle;
    SIM_CHECK(s, index > 0, "a snapshot of nothing");
    /* Entries of raft's own change nothing, so the state is that of the last batch before them. */
    raft_index at = index < o->max_index ? index : o->max_index;
    while (at > 0 && o->applied[at].event_digest == 0) {
        at--;
    }
    machine_check(fsm_machine(node->fsm));
    SIM_CHECK(s, at > 0 && machine_hash(fsm_machine(node->fsm)) == o->applied[at].machine_hash,
              "node %u got a snapshot at index %llu that differs from the log", node->index + 1,
              index);
}

bool sim_oracle_wait(struct sim *s, uint64_t wait, uint64_t *ret_token)
{
    for (size_t i = 0; i < s->oracle.waits_len; i++) {
        if (s->oracle.waits[i].wait == wait) {
            *ret_token = s->oracle.waits[i].token;
            return true;
        }
    }
    return false;
}

/* Answers. */

/* The token was said to be held: it must not have ended before the question was asked. */
static void said_held(struct sim_client *c, uint64_t token)
{
    struct sim_token *t = sim_oracle_token(c->sim, token);
    SIM_CHECK(c->sim, t->issued, "token %llu is held and was never issued",
              (unsigned long long)token);
    SIM_CHECK(c->sim, t->ended_seq == 0 || t->ended_seq > c->start_seq,
              "token %llu is said to be held after it has ended", (unsigned long long)token);
}

static void said_gone(struct sim_client *c, uint64_t token)
{
    struct sim_token *t = sim_oracle_token(c->sim, token);
    SIM_CHECK(c->sim, !t->lease || t->ended_seq != 0, "token %llu is said to be gone and is held",
              (unsigned long long)token);
}

static void answer_acquire(struct sim_client *c, const struct machine_result *r)
{
    struct sim *s = c->sim;
    s->marks->queued += r->code == MACHINE_QUEUED;
    s->marks->deadlocks += r->code == MACHINE_DEADLOCK;
    if (r->code != MACHINE_GRANTED) {
        return;
    }
    struct sim_token *t = sim_oracle_token(s, r->token);
    SIM_CHECK(s, t->issued && t->lease, "a token in an answer that the log does not know");
    SIM_CHECK(s, t->owner == c->owner && t->lock == c->lock,
              "token %llu is given to another than the log says", (unsigned long long)r->token);
    said_held(c, r->token);
}

static void answer_renew(struct sim_client *c, const struct machine_result *r)
{
    struct sim *s = c->sim;
    if (r->code == MACHINE_DONE) {
        struct sim_token *t = sim_oracle_token(s, c->token);
        said_held(c, c->token);
        if (t->base_ms < c->start_ms) {
            t->base_ms = c->start_ms;
        }
        s->marks->renewed++;
        return;
    }
    SIM_CHECK(s, r->code == MACHINE_NO, "RENEW answers %u", r->code);
    said_gone(c, c->token);
    s->marks->renew_refused++;
}

static void answer_release(struct sim_client *c, const struct machine_result *r)
{
    struct sim *s = c->sim;
    said_gone(c, c->token);
    if (r->code == MACHINE_DONE) {
        struct sim_token *t = sim_oracle_token(s, c->token);
        said_held(c, c->token);
        SIM_CHECK(s, t->released_answers++ == 0, "token %llu is released twice",
                  (unsigned long long)c->token);
    }
}

static void answer_show(struct sim_client *c, const struct machine_result *r,
                        struct fli_slice payload)
{
    struct machine_page page;
    struct machine_lock_view view;
    c->sim->marks->shows++;
    if (r->code != MACHINE_DONE) {
        SIM_CHECK(c->sim, r->code == MACHINE_NOTFOUND, "SHOW answers %u", r->code);
        return;
    }
    SIM_CHECK(c->sim, machine_page_open(payload.data, payload.len, &page) == 0,
              "SHOW answers a page that cannot be read");
    SIM_CHECK(c->sim, machine_page_next_lock(&page, &view) == 1, "SHOW answers no lock");
    if (view.state == MACHINE_LOCK_HELD) {
        said_held(c, view.token);
    }
}

void sim_oracle_answer(struct sim_client *c, const struct machine_result *r,
                       struct fli_slice payload)
{
    struct sim *s = c->sim;
    s->oracle.seq++;
    s->digest = mix(mix(s->digest, r->code), r->token);
    switch (c->op) {
    case MACHINE_OP_ACQUIRE:
        answer_acquire(c, r);
        break;
    case MACHINE_OP_RENEW:
        answer_renew(c, r);
        break;
    case MACHINE_OP_RELEASE:
        answer_release(c, r);
        break;
    case MACHINE_OP_TOKEN:
        SIM_CHECK(s, r->code == MACHINE_DONE, "TOKEN answers %u", r->code);
        issue(s, r->token, c->token_floor);
        s->marks->tokens++;
        break;
    case MACHINE_OP_CHECK:
        if (r->code == MACHINE_DONE) {
            said_held(c, c->token);
            s->marks->checks_held++;
        } else {
            said_gone(c, c->token);
            s->marks->checks_gone++;
        }
        break;
    case MACHINE_OP_SHOW:
        answer_show(c, r, payload);
        break;
    case MACHINE_OP_SESSION_OPEN:
        s->marks->sessions += r->code == MACHINE_DONE;
        break;
    default:
        break;
    }
}

void sim_oracle_end(struct sim *s)
{
    uint64_t hash = machine_hash(fsm_machine(s->nodes[0].fsm));
    struct machine_counts counts;
    for (unsigned i = 0; i < s->n; i++) {
        struct machine *m = fsm_machine(s->nodes[i].fsm);
        machine_check(m);
        SIM_CHECK(s, machine_hash(m) == hash, "node %u ends in another state", i + 1);
        machine_get_counts(m, &counts);
        SIM_CHECK(s, counts.sessions == 0 && counts.locks_held == 0 && counts.waits == 0,
                  "%llu sessions, %llu locks and %llu waits outlive their leases",
                  (unsigned long long)counts.sessions, (unsigned long long)counts.locks_held,
                  (unsigned long long)counts.waits);
    }
    for (unsigned l = 0; l < SIM_LOCKS; l++) {
        SIM_CHECK(s, s->oracle.holder[l] == 0, "lock %u is held at the end", l);
    }
}
