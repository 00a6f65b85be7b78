/* caller.c: clients that make all other calls: locks of every kind that are not kept, sessions,
 * waits, tokens without locks, breaks, queries. oracle.c checks the answers. */
#include "machine/batch.h"
#include "sim.h"

#define LONG_TTL_MS 15000u /* only clients without an owner ask for it */

static uint64_t below(struct sim_client *c, uint64_t n)
{
    return sim_client_below(c, n);
}

static bool chance(struct sim_client *c, unsigned percent)
{
    return sim_client_chance(c, percent);
}

static void release_at_once(struct sim_client *c, const struct sim_lane *l);

static void called(struct sim_client *c, struct sim_lane *l, int status)
{
    switch (l->command.op) {
    case MACHINE_OP_ACQUIRE:
        if (status == 0) {
            c->last_token = l->token;
            c->last_lock = l->lock;
        }
        if (status == 0 && l->command.ttl_ms >= LONG_TTL_MS) {
            release_at_once(c, l);
            return;
        }
        break;
    case MACHINE_OP_RELEASE:
        if (l->command.token == c->last_token) {
            c->last_token = 0;
        }
        break;
    case MACHINE_OP_RENEW:
        if (status == FL_ENOTHELD && l->command.token == c->last_token) {
            c->last_token = 0;
        }
        break;
    default:
        break;
    }
    if (status == FL_ENOSESSION) {
        c->session = 0;
    }
    sim_client_rest(c);
}

static void call(struct sim_client *c, struct sim_lane *l, enum fli_call_repeat repeat)
{
    struct fli_call_config config =
        sim_client_plan(c, repeat, 1000 + below(c, 4000) + l->command.wait_ms);
    config.wait_ms = l->command.wait_ms;
    config.no_is_uncertain = sim_words_no_is_uncertain(l->command.op);
    l->done = called;
    sim_lane_start(l, &config);
}

/* Releases a lock that would otherwise block others for long. */
static void release_at_once(struct sim_client *c, const struct sim_lane *l)
{
    uint64_t token = l->token;
    struct sim_lane *again = sim_client_prepare(c, SIM_LANE_MAIN, MACHINE_OP_RELEASE, l->lock, 0);
    again->command.token = token;
    call(c, again, FLI_REPEAT_WRITE);
}

/* Requests locks of any kind, in any way; also a semaphore in exclusive mode, which conflicts with
 * other requests. */
static void ask_for_some(struct sim_client *c, struct sim_lane *l)
{
    unsigned dice = (unsigned)below(c, 100);
    unsigned mask = 1u << l->lock;
    uint32_t slots = 1;
    if (l->lock >= SIM_DATA_LOCKS) {
        slots = sim_client_permits(c, l->lock);
    } else if (dice < 20) {
        slots = SIM_SHARED;
    } else if (dice < 40) {
        for (unsigned more = 1 + (unsigned)below(c, 3); more > 0; more--) {
            mask |= 1u << below(c, SIM_LOCKS);
        }
    }
    sim_client_ask_for(l, mask, slots);
}

static void call_acquire(struct sim_client *c)
{
    struct sim *s = c->sim;
    bool in_session = c->session != 0 && chance(c, 70);
    uint64_t owner = in_session ? c->session : sim_oracle_new_owner(s);
    unsigned lock = (unsigned)below(c, SIM_LOCKS);
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, MACHINE_OP_ACQUIRE, lock, owner);
    ask_for_some(c, l);
    if (!in_session) {
        l->command.ttl_ms = SIM_TTL_MIN_MS + below(c, s->options.ttl_max_ms);
    }
    if (chance(c, 60)) {
        l->command.flags |= MACHINE_ACQUIRE_WAIT;
        l->command.wait_ms = 50 + below(c, 2000);
    }
    call(c, l, FLI_REPEAT_WRITE);
}

static void leave_deliver(struct sim_event *e)
{
    struct sim_lane *l = &e->client->lanes[SIM_LANE_MAIN];
    if (l->active && l->call == e->a) {
        sim_lane_leave(l);
    }
}

/* Acts like people at a terminal: without an owner, with a long TTL, and leaving before the answer;
 * or with all requests in a pipe that ends. Nobody can ask again for what such clients get. */
static void call_nameless(struct sim_client *c)
{
    struct sim *s = c->sim;
    unsigned lock = (unsigned)below(c, SIM_LOCKS);
    uint64_t owner = sim_oracle_new_owner(s);
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, MACHINE_OP_ACQUIRE, lock, owner);
    bool impatient = chance(c, 60);
    ask_for_some(c, l);
    l->command.owner = l->command.value = (struct fli_slice){NULL, 0};
    l->command.ttl_ms = impatient ? LONG_TTL_MS + below(c, LONG_TTL_MS / 2)
                                  : SIM_TTL_MIN_MS + below(c, s->options.ttl_max_ms);
    if (chance(c, impatient ? 90 : 60)) {
        l->command.flags |= MACHINE_ACQUIRE_WAIT;
        l->command.wait_ms = impatient ? LONG_TTL_MS : 50 + below(c, 2000);
    }
    l->half_close = !impatient && chance(c, 30);
    uint64_t leaves_after_ms = below(c, 1500);
    call(c, l, FLI_REPEAT_WRITE);
    if (impatient && l->active) {
        sim_to_client(c, leaves_after_ms, leave_deliver)->a = l->call;
    }
}

/* A call about the token that it holds, or about any token ever issued. */
static void call_about_token(struct sim_client *c, uint8_t op)
{
    struct sim *s = c->sim;
    uint64_t token = c->last_token;
    if (token == 0 || chance(c, 15)) {
        if (s->oracle.token_max == 0) {
            sim_client_rest(c);
            return;
        }
        token = 1 + below(c, s->oracle.token_max);
    }
    /* A holder's lease must be its own business, or the oracle could not tell how long it lasts. */
    if (op == MACHINE_OP_RELEASE && token != c->last_token) {
        op = MACHINE_OP_CHECK;
    }
    unsigned mask = sim_oracle_token(s, token)->mask;
    unsigned lock = mask != 0 ? sim_client_some_of(c, mask) : c->last_lock;
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, op, lock, 0);
    l->command.token = token;
    call(c, l, op == MACHINE_OP_CHECK ? FLI_REPEAT_READ : FLI_REPEAT_WRITE);
}

static void call_about_lock(struct sim_client *c, uint8_t op)
{
    unsigned lock = (unsigned)below(c, SIM_LOCKS);
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, op, lock, 0);
    call(c, l, MACHINE_OP_IS_QUERY(op) ? FLI_REPEAT_READ : FLI_REPEAT_NEVER);
}

static void call_about_session(struct sim_client *c, unsigned dice)
{
    uint64_t owner = c->session;
    uint8_t op = MACHINE_OP_SESSION_RENEW;
    if (owner == 0) {
        uint64_t ttl_ms = 200 + below(c, 2000);
        call(c, sim_client_prepare_session(c, ttl_ms), FLI_REPEAT_WRITE);
        return;
    }
    if (dice < 3) {
        op = MACHINE_OP_SESSION_SHOW;
    } else if (dice < 6) {
        op = MACHINE_OP_SESSION_CLOSE;
        c->session = 0;
    }
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, op, 0, owner);
    call(c, l, op == MACHINE_OP_SESSION_SHOW ? FLI_REPEAT_READ : FLI_REPEAT_WRITE);
}

static void call_something(struct sim_client *c)
{
    unsigned dice = (unsigned)below(c, 100);
    if (chance(c, 10)) {
        call_nameless(c);
    } else if (dice < 8) {
        call_about_lock(c, MACHINE_OP_TOKEN);
    } else if (dice < 10) {
        call_about_lock(c, MACHINE_OP_BREAK);
    } else if (dice < 17) {
        call_about_lock(c, chance(c, 60) ? MACHINE_OP_SHOW : MACHINE_OP_LOCKS);
    } else if (dice < 28) {
        call_about_token(c, MACHINE_OP_CHECK);
    } else if (dice < (c->session == 0 ? 38 : 44)) {
        call_about_session(c, dice - 28);
    } else if (c->last_token == 0 || dice < 58 || (c->session != 0 && dice < 68)) {
        call_acquire(c);
    } else if (dice < 78) {
        call_about_token(c, MACHINE_OP_RENEW);
    } else {
        call_about_token(c, MACHINE_OP_RELEASE);
    }
}

void sim_caller_act(struct sim_client *c)
{
    if (c->lanes[SIM_LANE_MAIN].active || c->sim->healed) {
        return;
    }
    if (sim_client_now(c) < c->next_at) {
        sim_client_alarm(c, c->next_at);
    } else {
        call_something(c);
    }
}
