/* holder.c: clients that hold locks.
 *
 * A holder takes a lock and claims it at the storage by reading with its token. Then it thinks,
 * writes the value that it read plus its own part, repeats that, renews meanwhile, and releases the
 * lock. With several locks under one token it does so with one after the other. A reader, or the
 * holder of a permit, writes nothing. In a session it takes one lock after the other, and renews
 * the session. It believes only what src/client/lease says, and it may be paused anywhere. After an
 * unknown outcome it asks again as the call state machine says, with the same owner. */
#include "machine/batch.h"
#include "sim.h"

static uint64_t below(struct sim_client *c, uint64_t n)
{
    return sim_client_below(c, n);
}

static bool chance(struct sim_client *c, unsigned percent)
{
    return sim_client_chance(c, percent);
}

/* ---- believing ---- */

static void forget(struct sim_client *c)
{
    c->holding = false;
    c->keeping = false;
    c->token = 0;
    c->asking = false;
    sim_client_rest(c);
}

static void believe(struct sim_client *c, uint64_t lease_until_ms)
{
    struct fli_lease_config config = {.ttl_ms = c->ttl_ms, .lease_until_ms = lease_until_ms};
    config.reserve_ms = chance(c, 85) ? 0 : below(c, c->ttl_ms / 2);
    config.max_hold_ms = chance(c, 85) ? 0 : 1 + below(c, c->ttl_ms * 3);
    fli_lease_init(&c->lease, &config);
}

/* Whether a write of its own under this very token has had no answer. A RELEASE may be refused or
 * lost, and then the next ACQUIRE of the same session is answered with the token of before, as is
 * promised (docs/PROTOCOL.md, "Sending it again"). Its old write may still come, and equal tokens
 * are accepted in any order, so it must not read and write under that token again
 * (docs/FENCING.md, "For the client"): it gives the lock back, and gets another token next time.
 *
 * No lost update of the product's making hides behind this. Nobody judges less: oracle.c still
 * judges every write by what it goes over, whoever sent it and under whichever token: also the old
 * write, if it comes after another holder's claim. Not made are only writes that one client would
 * set beside its own, in an order that no storage can know. And whether an answer may name this
 * token at all is judged when it comes: the log must say that this owner holds it, and did not give
 * it back before (answer_acquire(), said_held()). */
static bool has_unanswered(const struct sim_client *c)
{
    for (unsigned k = 0; k < SIM_ALL_LOCKS; k++) {
        if ((c->mask >> k & 1) != 0 && c->unanswered[k] == c->token) {
            c->sim->marks->unanswered_again++;
            return true;
        }
    }
    return false;
}

/* It has got a lock, or several. */
static void begin_work(struct sim_client *c, const struct sim_lane *l)
{
    struct sim *s = c->sim;
    SIM_CHECK(s, l->token != 0, "client %u holds a lock without a token", c->index);
    c->holding = true;
    c->lock = l->lock;
    c->mask = l->mask;
    c->mask_left = l->mask;
    c->slots = sim_oracle_owner(s, l->owner_number)->asked[l->lock].slots;
    c->token = l->token;
    c->read = false;
    c->spoilt = has_unanswered(c);
    c->asking = false;
    c->writes_left = (unsigned)(1 + below(c, 4));
    SIM_TRACE(s, "client %u holds %s (%x) with token %llu", c->index, l->name, c->mask,
              (unsigned long long)c->token);
    sim_oracle_holds(c);
    c->next_at = sim_client_now(c) + below(c, s->options.think_ms / 4 + 1);
}

/* ---- taking ---- */

static void acquired(struct sim_client *c, struct sim_lane *l, int status)
{
    if (status != 0) {
        SIM_TRACE(c->sim, "client %u does not get %s: %s", c->index, l->name, fl_err_name(status));
        sim_client_rest(c);
        return;
    }
    believe(c, l->call_state.lease_until_ms);
    begin_work(c, l);
    sim_client_act(c);
}

static void acquired_under(struct sim_client *c, struct sim_lane *l, int status)
{
    if (!c->keeping || l->owner_number != c->session) {
        sim_client_act(c); /* the session is over, and with it what was granted */
        return;
    }
    if (status == FL_ENOSESSION) {
        fli_lease_end(&c->lease, FL_LOST_TAKEN);
    } else if (status == 0 && fli_lease_state(&c->lease, sim_client_now(c)) != FL_HOLD_LOST) {
        begin_work(c, l);
    } else {
        sim_client_rest(c);
    }
    sim_client_act(c);
}

/* Chooses what to take: one data lock, several, one in shared mode, or a permit. */
static struct sim_lane *choose(struct sim_client *c, uint64_t owner)
{
    unsigned lock = (unsigned)below(c, SIM_DATA_LOCKS);
    unsigned dice = (unsigned)below(c, 100);
    unsigned mask = 0;
    uint32_t slots = 1;
    if (dice < c->taste.together) {
        for (unsigned more = 1 + (unsigned)below(c, 2); more > 0; more--) {
            mask |= 1u << below(c, SIM_DATA_LOCKS);
        }
    } else if (dice < c->taste.together + c->taste.shared) {
        slots = SIM_SHARED;
    } else if (dice < c->taste.together + c->taste.shared + c->taste.permits) {
        lock = SIM_DATA_LOCKS + (unsigned)below(c, SIM_LOCKS - SIM_DATA_LOCKS);
        slots = sim_client_permits(c, lock);
    }
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, MACHINE_OP_ACQUIRE, lock, owner);
    sim_client_ask_for(l, mask | 1u << lock, slots);
    return l;
}

static void acquire(struct sim_client *c)
{
    struct sim *s = c->sim;
    struct sim_lane *l = choose(c, c->keeping ? c->session : sim_oracle_new_owner(s));
    uint64_t ttl_ms = c->keeping ? 0 : SIM_TTL_MIN_MS + below(c, s->options.ttl_max_ms);
    uint64_t wait_ms = chance(c, 70) ? 50 + below(c, 3000) : 0;
    l->command.ttl_ms = ttl_ms;
    if (wait_ms != 0) {
        l->command.flags |= MACHINE_ACQUIRE_WAIT;
        l->command.wait_ms = wait_ms;
    }
    struct fli_call_config config = sim_client_plan(c, FLI_REPEAT_WRITE, wait_ms + 4000);
    config.wait_ms = wait_ms;
    if (!c->keeping) {
        c->ttl_ms = ttl_ms;
        config.ttl_ms = ttl_ms;
        config.confirm = true;
    }
    l->done = c->keeping ? acquired_under : acquired;
    SIM_TRACE(s, "client %u asks for %s (%x, %u at a time) for %llu ms, as %s", c->index, l->name,
              l->mask, l->command.mode == MACHINE_MODE_SHARED ? 0 : l->command.permits,
              (unsigned long long)ttl_ms, l->owner);
    sim_lane_start(l, &config);
}

static void opened(struct sim_client *c, struct sim_lane *l, int status)
{
    if (status != 0) {
        sim_client_rest(c);
        return;
    }
    believe(c, l->call_state.lease_until_ms);
    c->keeping = true;
    c->locks_left = (unsigned)(1 + below(c, 4));
    c->next_at = sim_client_now(c);
    SIM_TRACE(c->sim, "client %u has session %s", c->index, l->owner);
    sim_client_act(c);
}

static void open_session(struct sim_client *c)
{
    c->ttl_ms = 2 * SIM_TTL_MIN_MS + below(c, c->sim->options.ttl_max_ms);
    struct sim_lane *l = sim_client_prepare_session(c, c->ttl_ms);
    struct fli_call_config config = sim_client_plan(c, FLI_REPEAT_WRITE, 4000);
    config.ttl_ms = c->ttl_ms;
    l->done = opened;
    sim_lane_start(l, &config);
}

/* ---- keeping ---- */

static void renewed(struct sim_client *c, struct sim_lane *l, int status)
{
    bool of_session = l->command.op == MACHINE_OP_SESSION_RENEW;
    bool mine = of_session ? c->keeping && l->owner_number == c->session
                           : c->holding && !c->keeping && c->token == l->command.token;
    if (mine && c->lease.renewing) {
        uint64_t until_ms = status == 0 ? l->call_state.lease_until_ms : 0;
        fli_lease_renewal_ended(&c->lease, sim_client_now(c), status, until_ms);
    }
    sim_client_act(c);
}

static void renew(struct sim_client *c)
{
    uint64_t now_ms = sim_client_now(c);
    struct sim_lane *l = NULL;
    if (c->keeping) {
        l = sim_client_prepare(c, SIM_LANE_RENEW, MACHINE_OP_SESSION_RENEW, 0, c->session);
    } else {
        unsigned lock = sim_client_some_of(c, c->mask);
        l = sim_client_prepare(c, SIM_LANE_RENEW, MACHINE_OP_RENEW, lock, 0);
        l->command.token = c->token;
        l->command.ttl_ms = c->ttl_ms;
    }
    struct fli_call_config config =
        sim_client_plan(c, FLI_REPEAT_WRITE, c->lease.deadline_ms - now_ms);
    config.ttl_ms = c->ttl_ms;
    config.attempt_ms = c->ttl_ms / 6 + 1;
    l->done = renewed;
    fli_lease_renewal_began(&c->lease);
    sim_lane_start(l, &config);
}

/* ---- letting go ---- */

static void released(struct sim_client *c, struct sim_lane *l, int status)
{
    bool of_session = l->command.op == MACHINE_OP_SESSION_CLOSE;
    SIM_TRACE(c->sim, "client %u has asked to give %s back: %s", c->index,
              of_session ? "its session" : l->name, fl_err_name(status));
    sim_client_rest(c);
}

static void send_release(struct sim_client *c, uint64_t token)
{
    unsigned lock = sim_client_some_of(c, c->mask);
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, MACHINE_OP_RELEASE, lock, 0);
    l->command.token = token;
    struct fli_call_config config = sim_client_plan(c, FLI_REPEAT_WRITE, 3000);
    config.no_is_uncertain = sim_words_no_is_uncertain(l->command.op);
    l->done = released;
    sim_lane_start(l, &config);
}

/* Sometimes it just stops renewing, and its locks end with their lease. */
static bool abandons(struct sim_client *c)
{
    if (!chance(c, 6)) {
        return false;
    }
    c->sim->marks->abandoned++;
    fli_lease_end(&c->lease, FL_LOST_RELEASED);
    forget(c);
    return true;
}

static void release(struct sim_client *c)
{
    uint64_t token = c->token;
    if (abandons(c)) {
        return;
    }
    if (c->keeping) {
        c->holding = false;
        c->token = 0;
    } else {
        fli_lease_end(&c->lease, FL_LOST_RELEASED);
        forget(c);
    }
    send_release(c, token);
}

static void close_session(struct sim_client *c)
{
    if (abandons(c)) {
        return;
    }
    fli_lease_end(&c->lease, FL_LOST_RELEASED);
    forget(c);
    struct sim_lane *l =
        sim_client_prepare(c, SIM_LANE_MAIN, MACHINE_OP_SESSION_CLOSE, 0, c->session);
    struct fli_call_config config = sim_client_plan(c, FLI_REPEAT_WRITE, 3000);
    config.no_is_uncertain = sim_words_no_is_uncertain(l->command.op);
    l->done = released;
    sim_lane_start(l, &config);
}

/* ---- the storage ---- */

/* Takes the storage's answer, or the lack of one in time (status FL_ETIMEOUT). */
void sim_client_stored(struct sim_client *c, bool write, int status, uint64_t value)
{
    c->asking = false;
    if (status == FL_ETIMEOUT) {
        SIM_TRACE(c->sim, "client %u hears nothing of its %s under lock %u, token %llu", c->index,
                  write ? "write" : "read", c->lock, (unsigned long long)c->token);
    }
    if (status == FL_ESTALE) {
        c->spoilt = true; /* another holder came after us: our lock is over, whatever we
                             believe */
    } else if (status == FL_ETIMEOUT) {
        c->spoilt = c->spoilt || write;
        c->unanswered[c->lock] = write ? c->token : c->unanswered[c->lock];
    } else {
        c->read = true;
        c->value = value;
        c->writes_left -= write && c->writes_left > 0;
    }
    c->next_at = sim_client_now(c) + below(c, c->sim->options.think_ms / 2 + 1);
    sim_client_act(c);
}

static void ask_storage(struct sim_client *c, bool write, uint64_t token, uint64_t value)
{
    c->asking = true;
    c->store_op++;
    c->store_until = sim_client_now(c) + 300 + below(c, 1500);
    sim_store_ask(c, write, token, c->value, value);
    sim_client_alarm(c, c->store_until);
}

/* Takes one step at the storage. The caller knows whether anything is left to do. */
void sim_client_work(struct sim_client *c)
{
    struct sim *s = c->sim;
    if (!c->read) {
        bool claim = s->orders.sabotage != SIM_SABOTAGE_CHECK_WRITES_ONLY;
        ask_storage(c, false, claim ? c->token : 0, 0);
    } else {
        SIM_CHECK(s, c->unanswered[c->lock] != c->token,
                  "client %u writes under lock %u with token %llu after a write without an answer",
                  c->index, c->lock, (unsigned long long)c->token);
        ask_storage(c, true, c->token, ++s->store.writes);
    }
}

/* ---- acting ---- */

/* Whether this was the last step with this lock. If not, and it has others, goes on to the next. */
static bool is_done(struct sim_client *c)
{
    if (c->slots > 1) {
        return c->writes_left == 0;
    }
    if (c->spoilt) {
        return true;
    }
    if (!c->read || c->writes_left > 0) {
        return false;
    }
    c->mask_left &= ~(1u << c->lock);
    if (c->mask_left == 0) {
        return true;
    }
    c->lock = sim_client_some_of(c, c->mask_left);
    c->read = false;
    c->writes_left = (unsigned)(1 + below(c, 2));
    return false;
}

static void step_holding(struct sim_client *c, uint64_t now_ms)
{
    /* In a session, a release is sent on the same lane before the next lock is taken. */
    if (c->asking || now_ms < c->next_at || c->lanes[SIM_LANE_MAIN].active) {
        return;
    }
    if (is_done(c)) {
        release(c);
    } else if (c->slots > 1) {
        c->writes_left--;
        c->next_at = now_ms + below(c, c->sim->options.think_ms / 2 + 1);
    } else {
        sim_client_work(c);
    }
}

static void step_keeping(struct sim_client *c, uint64_t now_ms)
{
    if (c->lanes[SIM_LANE_MAIN].active || now_ms < c->next_at) {
        return;
    }
    if (c->locks_left == 0 || c->sim->healed) {
        close_session(c);
        return;
    }
    c->locks_left--;
    acquire(c);
}

static void act_believing(struct sim_client *c)
{
    uint64_t now_ms = sim_client_now(c);
    if (fli_lease_state(&c->lease, now_ms) == FL_HOLD_LOST) {
        SIM_TRACE(c->sim, "client %u has lost its %s, token %llu", c->index,
                  c->keeping ? "session" : "lock", (unsigned long long)c->token);
        c->sim->marks->holds_lost++;
        forget(c);
        return;
    }
    if (fli_lease_wants_renewal(&c->lease, now_ms) && !c->lanes[SIM_LANE_RENEW].active) {
        renew(c);
    }
    if (c->holding && c->asking && now_ms >= c->store_until) {
        sim_client_stored(c, c->read, FL_ETIMEOUT, 0);
        return;
    }
    if (c->holding) {
        step_holding(c, now_ms);
    } else if (c->keeping) {
        step_keeping(c, now_ms);
    }
    if (!c->holding && !c->keeping) {
        return;
    }
    uint64_t next_ms = fli_lease_next_ms(&c->lease);
    uint64_t at_ms = c->asking ? c->store_until : c->next_at;
    /* Due work that waits for its lane is done when the lane is free: that event calls us again. */
    if (next_ms <= now_ms) {
        next_ms = c->lease.deadline_ms;
    }
    if (at_ms <= now_ms) {
        at_ms = next_ms;
    }
    sim_client_alarm(c, next_ms < at_ms ? next_ms : at_ms);
}

void sim_holder_act(struct sim_client *c)
{
    if (c->holding || c->keeping) {
        act_believing(c);
        return;
    }
    if (c->lanes[SIM_LANE_MAIN].active || c->sim->healed) {
        return;
    }
    if (sim_client_now(c) < c->next_at) {
        sim_client_alarm(c, c->next_at);
        return;
    }
    if (chance(c, c->taste.session)) {
        open_session(c);
    } else {
        acquire(c);
    }
}
