/* order.c: the order of locks, queues and sessions. It keeps an account of who holds, awaits and
 * delays what, and judges each event by it when an entry is applied for the first time. It knows
 * what the owners asked for, and nothing of the machine but its events. The list in oracle.c says
 * what is judged. */
#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"
#include "members.h"

static unsigned lock_of(struct sim *s, struct fli_slice name)
{
    unsigned lock = sim_lock_number(name);
    SIM_CHECK(s, lock < SIM_LOCKS, "an event of an unknown lock");
    return lock;
}

/* The number of an owner that a node generated, for a client that named none. */
static uint64_t made_owner(struct sim *s, struct fli_slice owner)
{
    const struct sim_oracle *o = &s->oracle;
    for (size_t i = o->made_len; i > 0; i--) {
        if (memcmp(o->made[i - 1].text, owner.data, SIM_MADE_LEN) == 0) {
            return o->made[i - 1].owner;
        }
    }
    sim_fail(s, "an event of an owner that no node has generated");
}

bool sim_is_filler(struct fli_slice name)
{
    return name.len == SIM_FILLER_LEN && name.data[0] == 'F';
}

/* Owners are numbers in text, padded to the length clients need. */
uint64_t sim_order_owner(struct sim *s, struct fli_slice owner)
{
    uint64_t n = 0;
    if (owner.len == SIM_MADE_LEN) {
        return made_owner(s, owner);
    }
    SIM_CHECK(s, fli_parse_u64(owner.data, owner.len, UINT64_MAX, &n), "an unknown owner");
    SIM_CHECK(s, n < s->oracle.owners_len, "an event of an owner who never asked");
    return n;
}

static bool in(unsigned mask, unsigned lock)
{
    return (mask >> lock & 1) != 0;
}

static unsigned count(unsigned mask)
{
    return (unsigned)__builtin_popcount(mask);
}

static bool admits(const struct sim_lock *l, uint32_t slots)
{
    return l->holders_n == 0 || (l->slots == slots && l->holders_n < slots);
}

static bool is_delayed(const struct sim *s, const struct sim_lock *l)
{
    return s->oracle.last_timestamp_ms <= l->delayed_until && l->delayed_until != 0;
}

static void note_idle(struct sim *s, struct sim_lock *l)
{
    if (l->holders_n == 0 && l->queue_n == 0) {
        l->idle_seq = s->oracle.seq;
    }
}

static void note_idle_owner(struct sim *s, struct sim_owner *o)
{
    if (o->held == 0 && o->waits == 0) {
        o->idle_seq = s->oracle.seq;
    }
}

/* A multi-lock has one event for each of its locks, one right after the other, about the same grant
 * or wait. */
static void check_parts(struct sim *s, const struct machine_event *e, unsigned lock, unsigned mask)
{
    struct sim_multi *t = &s->oracle.multi;
    if (e->index == 0) {
        *t = (struct sim_multi){.type = e->type, .mask = mask, .left = mask};
        t->token = e->token;
        t->wait = e->wait;
    }
    SIM_CHECK(s,
              t->type == e->type && t->token == e->token && t->wait == e->wait &&
                  t->next == e->index && in(t->left, lock),
              "token %llu, wait %llu: the events of its locks do not belong together",
              (unsigned long long)e->token, (unsigned long long)e->wait);
    t->left &= ~(1u << lock);
    t->next++;
}

/* A session that gets a lock, or a place in its queue, lives and belongs to this user. A grant
 * without a session belongs to the user that asks. */
static void check_session(struct sim *s, const struct machine_event *e, struct sim_owner *o,
                          uint32_t uid)
{
    if (!e->session_explicit) {
        o->uid = uid;
        return;
    }
    SIM_CHECK(s, o->open, "an event of lock L%u for a session that does not live",
              lock_of(s, e->name));
    SIM_CHECK(s, o->uid == uid, "user %u has lock L%u in a session that is user %u's", uid,
              lock_of(s, e->name), o->uid);
}

/* ---- queues ---- */

static struct sim_wait *find_wait(struct sim *s, unsigned lock, uint64_t wait)
{
    struct sim_lock *l = &s->oracle.locks[lock];
    for (size_t i = 0; i < l->queue_n; i++) {
        if (l->queue[i].id == wait) {
            return &l->queue[i];
        }
    }
    sim_fail(s, "a wait ends that never began");
}

static void unqueue(struct sim *s, unsigned lock, uint64_t wait)
{
    struct sim_lock *l = &s->oracle.locks[lock];
    size_t i = (size_t)(find_wait(s, lock, wait) - l->queue);
    l->queue_n--;
    memmove(l->queue + i, l->queue + i + 1, (l->queue_n - i) * sizeof l->queue[0]);
    note_idle(s, l);
}

/* An owner that waits for several locks holds none of them. */
static void check_holds_none(struct sim *s, unsigned mask, uint64_t owner)
{
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        const struct sim_lock *l = &s->oracle.locks[k];
        for (size_t i = 0; in(mask, k) && i < l->holders_n; i++) {
            SIM_CHECK(s, sim_oracle_token(s, l->holders[i])->owner != owner,
                      "owner %llu waits for a lock that it holds", (unsigned long long)owner);
        }
    }
}

static void begin_wait(struct sim *s, const struct machine_event *e, uint64_t owner,
                       const struct sim_wait *w)
{
    bool contended = false;
    bool one_is_free = false;
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        const struct sim_lock *l = &s->oracle.locks[k];
        if (in(w->mask, k)) {
            bool busy = l->queue_n > 0 || !admits(l, w->slots) || is_delayed(s, l);
            contended = contended || busy;
            one_is_free = one_is_free || !busy;
        }
    }
    SIM_CHECK(s, contended || (s->oracle.breaking & w->mask) != 0,
              "owner %llu has to wait though nobody is in its way", (unsigned long long)owner);
    check_holds_none(s, w->mask, owner);
    struct sim_owner *o = sim_oracle_owner(s, owner);
    check_session(s, e, o, w->uid);
    o->waits++;
    s->marks->together_queued += count(w->mask) > 1;
    s->marks->together_held_back += count(w->mask) > 1 && one_is_free;
}

static void enqueue(struct sim *s, const struct machine_event *e)
{
    unsigned lock = lock_of(s, e->name);
    uint64_t owner = sim_order_owner(s, e->owner);
    struct sim_lock *l = &s->oracle.locks[lock];
    struct sim_wait w = {.id = e->wait, .owner = owner, .uid = s->users.asking.uid};
    if (e->index == 0) {
        struct sim_owner *o = sim_oracle_owner(s, owner);
        w.mask = o->asked[lock].mask;
        w.slots = o->asked[lock].slots;
        SIM_CHECK(s, in(w.mask, lock), "owner %llu waits for lock L%u and never asked for it",
                  (unsigned long long)owner, lock);
        begin_wait(s, e, owner, &w);
    } else {
        w.mask = s->oracle.multi.mask;
        w.slots = 1;
    }
    check_parts(s, e, lock, w.mask);
    SIM_CHECK(s, l->queue_n == 0 || l->queue[l->queue_n - 1].id < e->wait,
              "wait %llu comes behind a later one", (unsigned long long)e->wait);
    l->queue = sim_grow(l->queue, &l->queue_cap, l->queue_n + 1, sizeof l->queue[0]);
    l->queue[l->queue_n++] = w;
}

static void end_wait(struct sim *s, const struct machine_event *e)
{
    unsigned lock = lock_of(s, e->name);
    const struct sim_wait *w = find_wait(s, lock, e->wait);
    struct sim_owner *o = sim_oracle_owner(s, w->owner);
    check_parts(s, e, lock, w->mask);
    if (e->index == 0) {
        o->waits--;
        s->marks->waits_ended++;
        s->marks->waits_denied += e->reason == MACHINE_REASON_DENIED;
        s->marks->waits_died += e->reason == MACHINE_REASON_SESSION;
    }
    unqueue(s, lock, e->wait);
    note_idle_owner(s, o);
}

/* ---- grants ---- */

/* A grant gets all its locks or none, and overtakes nobody: a wait is granted when it is the first
 * in each of its queues, a new request when these queues are empty. The mode and the permits limit
 * how many hold a lock. */
static void check_turn(struct sim *s, const struct machine_event *e, const struct sim_token *t)
{
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        const struct sim_lock *l = &s->oracle.locks[k];
        if (!in(t->mask, k)) {
            continue;
        }
        SIM_CHECK(s, e->wait != 0 || l->queue_n == 0, "lock L%u is granted past its queue", k);
        SIM_CHECK(s, e->wait == 0 || (l->queue_n > 0 && l->queue[0].id == e->wait),
                  "lock L%u is granted to one who is not the first of its queue", k);
        SIM_CHECK(s, admits(l, t->slots), "lock L%u is granted to %s while %zu hold it%s", k,
                  t->slots == SIM_SHARED ? "one more reader"
                  : t->slots == 1        ? "one alone"
                                         : "one more",
                  l->holders_n,
                  l->slots == SIM_SHARED ? " in shared mode"
                  : l->slots == 1        ? " alone"
                                         : " with permits");
        SIM_CHECK(s, !is_delayed(s, l) || in(s->oracle.breaking, k),
                  "lock L%u is granted at %llu and delayed until %llu", k,
                  (unsigned long long)e->clock_ms, (unsigned long long)l->delayed_until);
    }
}

static void count_grant(struct sim *s, const struct sim_token *t, const struct machine_event *e)
{
    struct sim_marks *m = s->marks;
    size_t others = s->oracle.locks[t->lock].holders_n;
    m->grants++;
    m->granted_from_queue += e->wait != 0;
    m->together += count(t->mask) > 1;
    m->shared += t->slots == SIM_SHARED;
    m->shared_beside += t->slots == SIM_SHARED && others > 0;
    m->permits += t->slots > 1 && t->slots != SIM_SHARED;
    m->permits_used_up += t->slots > 1 && others + 1 == t->slots;
}

static struct sim_token *begin_lease(struct sim *s, const struct machine_event *e, unsigned lock)
{
    struct sim_oracle *oracle = &s->oracle;
    uint64_t owner = sim_order_owner(s, e->owner);
    struct sim_owner *o = sim_oracle_owner(s, owner);
    SIM_CHECK(s, in(o->asked[lock].mask, lock), "lock L%u is granted to one who never asked", lock);
    SIM_CHECK(s, !o->served, "lock L%u is granted for a call that has ended", lock);
    SIM_CHECK(s, e->token > oracle->token_max, "token %llu is granted after %llu",
              (unsigned long long)e->token, (unsigned long long)oracle->token_max);
    struct sim_token *t = sim_oracle_issue(s, e->token, o->token_floor);
    t->lease = true;
    t->explicit_session = e->session_explicit;
    t->lock = lock;
    t->mask = o->asked[lock].mask;
    t->slots = o->asked[lock].slots;
    t->owner = owner;
    t->uid = e->wait != 0 ? find_wait(s, lock, e->wait)->uid : s->users.asking.uid;
    sim_rights_granted(s, t->uid, t->mask, e->token);
    t->base_at = oracle->last_seal.at;
    t->ttl_ms = e->deadline_ms - e->clock_ms;
    t->promised_ms = e->deadline_ms;
    /* The node no longer listens for this grant: it has answered its client UNCERTAIN. */
    o->excused = o->excused || (e->wait != 0 && s->now > o->heard_until);
    check_session(s, e, o, t->uid);
    check_turn(s, e, t);
    count_grant(s, t, e);
    o->held++;
    o->waits -= e->wait != 0;
    return t;
}

static void take(struct sim *s, const struct machine_event *e)
{
    unsigned lock = lock_of(s, e->name);
    struct sim_lock *l = &s->oracle.locks[lock];
    struct sim_token *t = e->index == 0 ? begin_lease(s, e, lock) : sim_oracle_token(s, e->token);
    check_parts(s, e, lock, t->mask);
    l->holders = sim_grow(l->holders, &l->holders_cap, l->holders_n + 1, sizeof l->holders[0]);
    l->holders[l->holders_n++] = e->token;
    l->slots = t->slots;
    if (e->wait != 0) {
        unqueue(s, lock, e->wait);
    }
}

/* ---- ends ---- */

/* No client may still believe in a lease that has just expired at the server. */
static void check_no_believer(struct sim *s, uint64_t token, uint64_t session)
{
    for (unsigned i = 0; i < s->clients_n; i++) {
        const struct sim_client *c = &s->clients[i];
        bool has_it = (token != 0 && c->holding && c->token == token) ||
                      (session != 0 && c->keeping && c->session == session);
        if (c->role != SIM_WRITER || !has_it) {
            continue;
        }
        struct fli_lease lease = c->lease;
        SIM_CHECK(s, fli_lease_state(&lease, sim_client_now(c)) == FL_HOLD_LOST,
                  "%s %llu expires while client %u may believe in it for %llu ms more",
                  token != 0 ? "token" : "session",
                  (unsigned long long)(token != 0 ? token : session), i,
                  (unsigned long long)fli_lease_remaining_ms(&lease, sim_client_now(c)));
    }
}

struct lease {
    const char *what;
    uint64_t number, base_at, ttl_ms, promised_ms;
    uint64_t session; /* 0: of a lock alone */
};

/* A lease that has expired ended on no clock before the time that was promised. A new leader's
 * cluster clock may begin before that of the former one, which had not written all its ticks. */
static void check_lease(struct sim *s, const struct machine_event *e, const struct lease *l)
{
    uint64_t passed_ms = s->now - l->base_at;
    uint64_t floor_ms = s->oracle.term_timestamp_ms + l->ttl_ms;
    bool of_this_term = l->base_at >= s->oracle.term_at;
    SIM_CHECK(s, !of_this_term || e->clock_ms > l->promised_ms,
              "%s %llu expires at %llu, promised until %llu", l->what,
              (unsigned long long)l->number, (unsigned long long)e->clock_ms,
              (unsigned long long)l->promised_ms);
    SIM_CHECK(s, e->clock_ms > floor_ms,
              "%s %llu expires at %llu, %llu ms after a change of leader", l->what,
              (unsigned long long)l->number, (unsigned long long)e->clock_ms,
              (unsigned long long)(e->clock_ms - s->oracle.term_timestamp_ms));
    if (s->options.jumps) {
        return;
    }
    SIM_CHECK(s, sim_oracle_fastest(s, passed_ms) >= l->ttl_ms,
              "%s %llu expires after %llu of %llu ms", l->what, (unsigned long long)l->number,
              (unsigned long long)passed_ms, (unsigned long long)l->ttl_ms);
    check_no_believer(s, e->token, l->session);
}

void sim_order_expires(struct sim *s, const struct machine_event *e, uint64_t base_at,
                       uint64_t ttl_ms, uint64_t promised_ms)
{
    struct lease l = {"token", e->token, base_at, ttl_ms, promised_ms, 0};
    check_lease(s, e, &l);
}

static struct lease lease_of_session(const struct sim_owner *o, uint64_t owner)
{
    return (struct lease){"session", owner, o->base_at, o->ttl_ms, o->promised_ms, owner};
}

static void end_lease(struct sim *s, const struct machine_event *e, struct sim_token *t)
{
    struct sim_owner *o = sim_oracle_owner(s, t->owner);
    SIM_CHECK(s, t->issued && t->lease, "a lease ends that never began");
    SIM_CHECK(s, t->ended_seq == 0, "token %llu ends twice", (unsigned long long)e->token);
    t->ended_seq = s->oracle.seq;
    o->held--;
    note_idle_owner(s, o);
    bool expired = e->type == MACHINE_EVENT_EXPIRED;
    if (expired) {
        struct lease l = {"token", e->token, t->base_at, t->ttl_ms, t->promised_ms, 0};
        if (t->explicit_session) {
            l = lease_of_session(o, t->owner);
        }
        check_lease(s, e, &l);
    }
    s->marks->expired += expired;
    s->marks->broken += e->type == MACHINE_EVENT_BROKEN;
    s->marks->released += e->type == MACHINE_EVENT_RELEASED;
    s->marks->together_expired += expired && count(t->mask) > 1;
}

/* An expiry begins the lock-delay of the holder's session; a break ends every lock-delay. */
static void delay(struct sim *s, const struct machine_event *e, struct sim_lock *l,
                  const struct sim_token *t)
{
    uint64_t delay_ms = sim_oracle_owner(s, t->owner)->delay_ms;
    if (e->type == MACHINE_EVENT_BROKEN) {
        l->delayed_until = 0;
    } else if (e->type == MACHINE_EVENT_EXPIRED && delay_ms > 0) {
        uint64_t until_ms = e->clock_ms + delay_ms;
        l->delayed_until = until_ms > l->delayed_until ? until_ms : l->delayed_until;
        s->marks->delays++;
    }
}

static void give_back(struct sim *s, const struct machine_event *e)
{
    unsigned lock = lock_of(s, e->name);
    struct sim_lock *l = &s->oracle.locks[lock];
    struct sim_token *t = sim_oracle_token(s, e->token);
    size_t i = 0;
    if (e->index == 0) {
        end_lease(s, e, t);
    }
    check_parts(s, e, lock, t->mask);
    while (i < l->holders_n && l->holders[i] != e->token) {
        i++;
    }
    SIM_CHECK(s, i < l->holders_n, "lock L%u is not held with the token that ends", lock);
    l->holders_n--;
    memmove(l->holders + i, l->holders + i + 1, (l->holders_n - i) * sizeof l->holders[0]);
    delay(s, e, l, t);
    note_idle(s, l);
}

/* ---- sessions ---- */

static void session_opened(struct sim *s, const struct machine_event *e)
{
    struct sim_owner *o = sim_oracle_owner(s, sim_order_owner(s, e->owner));
    SIM_CHECK(s, !o->open && o->ttl_ms != 0, "a session opens that is open, or nobody asked for");
    o->open = true;
    o->uid = s->users.asking.uid;
    o->opened_seq = s->oracle.seq;
    o->base_at = s->oracle.last_seal.at;
    o->promised_ms = e->clock_ms + o->ttl_ms;
}

static void session_ended(struct sim *s, const struct machine_event *e)
{
    uint64_t owner = sim_order_owner(s, e->owner);
    struct sim_owner *o = sim_oracle_owner(s, owner);
    SIM_CHECK(s, o->open, "a session ends that does not live");
    SIM_CHECK(s, o->held == 0 && o->waits == 0, "session %llu leaves %u grants and %u waits behind",
              (unsigned long long)owner, o->held, o->waits);
    o->open = false;
    o->ended_seq = s->oracle.seq;
    bool expired = e->reason == MACHINE_REASON_DEADLINE;
    if (expired) {
        struct lease l = lease_of_session(o, owner);
        check_lease(s, e, &l);
    }
    s->marks->sessions_expired += expired;
}

/* ---- all of them ---- */

void sim_order_event(struct sim *s, const struct machine_event *e)
{
    SIM_CHECK(s, s->oracle.multi.left == 0 || e->index != 0,
              "an event comes between those of locks that were asked for together");
    if (sim_is_filler(e->name)) {
        return;
    }
    if (sim_reenter_is_of(e->name)) {
        sim_reenter_event(s, e);
        return;
    }
    switch (e->type) {
    case MACHINE_EVENT_GRANTED:
        take(s, e);
        break;
    case MACHINE_EVENT_RELEASED:
    case MACHINE_EVENT_EXPIRED:
    case MACHINE_EVENT_BROKEN:
        give_back(s, e);
        break;
    case MACHINE_EVENT_QUEUED:
        enqueue(s, e);
        break;
    case MACHINE_EVENT_WAIT_ENDED:
        end_wait(s, e);
        break;
    case MACHINE_EVENT_SESSION_OPENED:
        session_opened(s, e);
        break;
    case MACHINE_EVENT_SESSION_ENDED:
        session_ended(s, e);
        break;
    case MACHINE_EVENT_USER_CHANGED:
        break;
    default:
        sim_fail(s, "an event of an unknown type");
    }
}

void sim_order_begin(struct sim *s, const void *batch, size_t len)
{
    struct machine_batch_header h;
    int rv = machine_batch_open(batch, len, &h);
    const uint8_t *p = (const uint8_t *)batch + MACHINE_BATCH_HEADER_SIZE;
    const uint8_t *end = (const uint8_t *)batch + h.length;
    SIM_CHECK(s, rv == 0, "a batch that cannot be read is applied");
    s->oracle.breaking = 0; /* rights.c sets the bits of the locks that this batch may break */
    while (p < end) {
        struct machine_command c;
        size_t size = 0;
        rv = machine_command_decode(p, (size_t)(end - p), &c, &size);
        SIM_CHECK(s, rv == 0, "a command that cannot be read is applied");
        p += size;
    }
}

/* No wait that could be granted is left: the first of this queue is held up by a holder, a delay or
 * an older wait, at one of its locks. */
static void check_served(struct sim *s, unsigned lock)
{
    const struct sim_wait *w = &s->oracle.locks[lock].queue[0];
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        const struct sim_lock *l = &s->oracle.locks[k];
        if (in(w->mask, k) && (l->queue_n == 0 || l->queue[0].id != w->id || !admits(l, w->slots) ||
                               is_delayed(s, l))) {
            return;
        }
    }
    sim_fail(s, "nobody is in the way of wait %llu for lock L%u, and it is not granted",
             (unsigned long long)w->id, lock);
}

void sim_order_end(struct sim *s)
{
    SIM_CHECK(s, s->oracle.multi.left == 0, "locks that were asked for together are torn apart");
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        struct sim_lock *l = &s->oracle.locks[k];
        if (in(s->oracle.breaking, k)) {
            l->delayed_until = 0;
            note_idle(s, l);
        }
        if (l->queue_n > 0) {
            check_served(s, k);
        }
        for (size_t i = 0; s->users.any && i < l->queue_n; i++) {
            sim_rights_waits(s, &l->queue[i]);
        }
    }
    sim_members_look(s->current);
}

bool sim_order_was_busy(const struct sim_lane *l)
{
    const struct sim *s = l->client->sim;
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        const struct sim_lock *lock = &s->oracle.locks[k];
        if (in(l->mask, k) &&
            (lock->holders_n > 0 || lock->queue_n > 0 || lock->idle_seq > l->start_seq ||
             (lock->delayed_until != 0 && lock->delayed_until >= l->start_timestamp))) {
            return true;
        }
    }
    return false;
}

void sim_order_rest(struct sim *s)
{
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        SIM_CHECK(s, s->oracle.locks[k].holders_n == 0, "lock L%u is held at the end", k);
        SIM_CHECK(s, s->oracle.locks[k].queue_n == 0, "lock L%u is awaited at the end", k);
    }
    for (size_t i = 0; i < s->oracle.owners_len; i++) {
        SIM_CHECK(s, !s->oracle.owners[i].open, "session %zu lives at the end", i);
    }
}

void sim_order_fini(struct sim *s)
{
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        free(s->oracle.locks[k].holders);
        free(s->oracle.locks[k].queue);
    }
}
