/* client.c: what clients do.
 *
 * A writer takes a lock, claims it at the storage by reading with its token, thinks, writes what it
 * read plus its own, and again, renews meanwhile, and lets go. It believes what src/client/hold
 * tells it and nothing else, and it may be paused anywhere. A caller does all the rest: sessions,
 * waits, tokens without locks, breaking, asking. Both ask again after an unknown outcome as the
 * flow says, with the same owner. */
#include <string.h>

#include "machine/batch.h"
#include "sim.h"

static uint64_t below(struct sim_client *c, uint64_t n)
{
    return sim_draw_below(&c->random, n);
}

static bool chance(struct sim_client *c, unsigned percent)
{
    return sim_draw_chance(&c->random, percent);
}

/* ---- time ---- */

static void alarm_deliver(struct sim_event *e)
{
    struct sim_client *c = e->client;
    if (e->a == c->alarm_at) {
        c->alarm_at = SIM_NEVER;
    }
    sim_client_act(c);
}

void sim_client_alarm(struct sim_client *c, uint64_t local_ms)
{
    struct sim *s = c->sim;
    if (local_ms == SIM_NEVER) {
        return;
    }
    uint64_t at = sim_clock_when(s, &c->clock, local_ms);
    if (at >= c->alarm_at) {
        return;
    }
    c->alarm_at = at;
    struct sim_event *e = sim_to_client(c, at - s->now, alarm_deliver);
    e->a = at;
}

static void resume_fire(struct sim *s, struct sim_event *e)
{
    struct sim_client *c = e->client;
    struct sim_event *d;
    sim_drop(s, e);
    c->paused = false;
    SIM_TRACE(s, "client %u goes on", c->index);
    while ((d = sim_inbox_pop(&c->deferred)) != NULL) {
        d->deliver(d);
        sim_drop(s, d);
    }
    sim_client_act(c);
}

void sim_client_pause(struct sim_client *c, uint64_t ms)
{
    if (c->paused) {
        return;
    }
    c->paused = true;
    c->sim->marks->client_pauses++;
    struct sim_event *e = sim_after(c->sim, ms, resume_fire);
    e->client = c;
}

static void rest(struct sim_client *c)
{
    c->next_at = sim_client_now(c) + below(c, c->sim->options.think_ms + 1);
    sim_client_alarm(c, c->next_at);
}

/* ---- calls ---- */

static struct fli_slice text(const char *t)
{
    return (struct fli_slice){(const uint8_t *)t, strlen(t)};
}

/* Makes the lane ready for a command about a lock and an owner; the caller adds the rest. */
static struct sim_lane *prepare(struct sim_client *c, unsigned lane, uint8_t op, unsigned lock,
                                uint64_t owner)
{
    struct sim_lane *l = &c->lanes[lane];
    l->lock = lock;
    l->owner_number = owner;
    l->token = 0;
    snprintf(l->name, sizeof l->name, "%c%u", lock < SIM_LOCKS ? 'L' : 'R', lock);
    snprintf(l->owner, sizeof l->owner, "%020llu", (unsigned long long)owner);
    l->command = (struct machine_command){.op = op};
    switch (op) {
    case MACHINE_OP_ACQUIRE:
        l->command.n_names = 1;
        l->command.permits = 1;
        l->command.name = text(l->name);
        l->command.owner = text(l->owner);
        break;
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_SESSION_CLOSE:
        l->command.owner = text(l->owner);
        break;
    default:
        l->command.name = text(l->name);
        break;
    }
    return l;
}

static struct fli_flow_config plain(struct sim_client *c, enum fli_flow_repeat repeat,
                                    uint64_t within_ms)
{
    uint64_t now_ms = sim_client_now(c);
    struct fli_flow_config config = {
        .repeat = repeat, .nodes = c->sim->n, .now_ms = now_ms, .deadline_ms = now_ms + within_ms};
    config.start = (uint32_t)below(c, c->sim->n);
    config.attempt_ms = 200 + below(c, 800);
    config.ask_ms = 20 + below(c, 200);
    config.seed = sim_draw(&c->random);
    return config;
}

/* ---- writers: the lock ---- */

static void forget(struct sim_client *c)
{
    c->holding = false;
    c->token = 0;
    c->asking = false;
    rest(c);
}

static void acquired(struct sim_client *c, struct sim_lane *l, int status)
{
    struct sim *s = c->sim;
    if (status != 0) {
        SIM_TRACE(s, "client %u does not get %s: %s", c->index, l->name, fl_err_name(status));
        rest(c);
        return;
    }
    SIM_CHECK(s, l->token != 0, "client %u holds a lock without a token", c->index);
    struct fli_hold_config config = {.ttl_ms = c->ttl_ms, .lease_until_ms = l->flow.lease_until_ms};
    fli_hold_init(&c->hold, &config);
    c->holding = true;
    c->lock = l->lock;
    c->token = l->token;
    c->read = false;
    c->spoilt = false;
    c->asking = false;
    c->writes_left = (unsigned)(1 + below(c, 4));
    SIM_TRACE(s, "client %u holds %s with token %llu", c->index, l->name,
              (unsigned long long)c->token);
    c->next_at = sim_client_now(c) + below(c, c->sim->options.think_ms / 4 + 1);
    sim_client_act(c);
}

static void acquire(struct sim_client *c)
{
    struct sim *s = c->sim;
    unsigned lock = (unsigned)below(c, SIM_LOCKS);
    struct sim_lane *l =
        prepare(c, SIM_LANE_MAIN, MACHINE_OP_ACQUIRE, lock, sim_oracle_new_owner(s));
    uint64_t ttl_ms = SIM_TTL_MIN_MS + below(c, s->options.ttl_max_ms);
    uint64_t wait_ms = chance(c, 70) ? 50 + below(c, 3000) : 0;
    c->ttl_ms = ttl_ms;
    l->command.ttl_ms = ttl_ms;
    if (wait_ms != 0) {
        l->command.flags = MACHINE_ACQUIRE_WAIT;
        l->command.wait_ms = wait_ms;
    }
    struct fli_flow_config config = plain(c, FLI_REPEAT_WRITE, wait_ms + 4000);
    config.wait_ms = wait_ms;
    config.ttl_ms = ttl_ms;
    config.confirm = true;
    l->done = acquired;
    SIM_TRACE(s, "client %u asks for %s for %llu ms, as %s", c->index, l->name,
              (unsigned long long)ttl_ms, l->owner);
    sim_lane_start(l, &config);
}

static void renewed(struct sim_client *c, struct sim_lane *l, int status)
{
    if (c->holding && c->token == l->command.token && c->hold.renewing) {
        uint64_t until_ms = status == 0 ? l->flow.lease_until_ms : 0;
        fli_hold_renewal_ended(&c->hold, sim_client_now(c), status, until_ms);
    }
    sim_client_act(c);
}

static void renew(struct sim_client *c)
{
    struct sim_lane *l = prepare(c, SIM_LANE_RENEW, MACHINE_OP_RENEW, c->lock, 0);
    uint64_t now_ms = sim_client_now(c);
    l->command.token = c->token;
    l->command.ttl_ms = c->ttl_ms;
    struct fli_flow_config config = plain(c, FLI_REPEAT_WRITE, c->hold.deadline_ms - now_ms);
    config.ttl_ms = c->ttl_ms;
    config.attempt_ms = c->ttl_ms / 6 + 1;
    l->done = renewed;
    fli_hold_renewal_began(&c->hold);
    sim_lane_start(l, &config);
}

static void released(struct sim_client *c, struct sim_lane *l, int status)
{
    (void)l;
    (void)status;
    rest(c);
}

static void release(struct sim_client *c)
{
    struct sim_lane *l = prepare(c, SIM_LANE_MAIN, MACHINE_OP_RELEASE, c->lock, 0);
    l->command.token = c->token;
    fli_hold_end(&c->hold, FL_LOST_RELEASED);
    forget(c);
    struct fli_flow_config config = plain(c, FLI_REPEAT_WRITE, 3000);
    config.no_is_doubtful = true;
    l->done = released;
    sim_lane_start(l, &config);
}

/* ---- holders: the storage ---- */

/* The storage's word, or none in time (status FL_ETIMEOUT). */
void sim_client_stored(struct sim_client *c, bool write, int status, uint64_t value)
{
    c->asking = false;
    if (status == FL_ESTALE) {
        c->spoilt = true; /* somebody came after us: our lock is over, whatever we believe */
    } else if (status == FL_ETIMEOUT) {
        c->spoilt = c->spoilt || write;
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

/* One step at the storage. Whether there is anything left to do is the caller's to know. */
void sim_client_work(struct sim_client *c)
{
    struct sim *s = c->sim;
    if (!c->read) {
        bool claim = s->orders.sabotage != SIM_SABOTAGE_CHECK_WRITES_ONLY;
        ask_storage(c, false, claim ? c->token : 0, 0);
    } else {
        ask_storage(c, true, c->token, ++s->store.writes);
    }
}

static void act_holding(struct sim_client *c)
{
    uint64_t now_ms = sim_client_now(c);
    if (fli_hold_look(&c->hold, now_ms) == FL_HOLD_LOST) {
        SIM_TRACE(c->sim, "client %u has lost its lock, token %llu", c->index,
                  (unsigned long long)c->token);
        c->sim->marks->holds_lost++;
        forget(c);
        return;
    }
    if (fli_hold_wants_renewal(&c->hold, now_ms) && !c->lanes[SIM_LANE_RENEW].active) {
        renew(c);
        if (!c->holding) {
            return;
        }
    }
    if (c->asking && now_ms >= c->store_until) {
        sim_client_stored(c, c->read, FL_ETIMEOUT, 0);
        return;
    }
    if (!c->asking && now_ms >= c->next_at) {
        if (c->spoilt || (c->read && c->writes_left == 0)) {
            release(c);
            return;
        }
        sim_client_work(c);
    }
    uint64_t next_ms = fli_hold_next_ms(&c->hold);
    uint64_t at_ms = c->asking ? c->store_until : c->next_at;
    /* A renewal that is due waits for the lane; its end makes us act again. */
    if (next_ms <= now_ms) {
        next_ms = c->hold.deadline_ms;
    }
    sim_client_alarm(c, next_ms < at_ms ? next_ms : at_ms);
}

/* ---- callers ---- */

static void called(struct sim_client *c, struct sim_lane *l, int status)
{
    switch (l->command.op) {
    case MACHINE_OP_ACQUIRE:
        if (status == 0) {
            c->last_token = l->token;
            c->last_lock = l->lock;
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
    rest(c);
}

static void call(struct sim_client *c, struct sim_lane *l, enum fli_flow_repeat repeat)
{
    struct fli_flow_config config = plain(c, repeat, 1000 + below(c, 4000) + l->command.wait_ms);
    config.wait_ms = l->command.wait_ms;
    config.no_is_doubtful = l->command.op == MACHINE_OP_RELEASE;
    l->done = called;
    sim_lane_start(l, &config);
}

static void call_acquire(struct sim_client *c)
{
    struct sim *s = c->sim;
    bool in_session = c->session != 0 && chance(c, 70);
    uint64_t owner = in_session ? c->session : sim_oracle_new_owner(s);
    unsigned lock = (unsigned)below(c, SIM_LOCKS);
    struct sim_lane *l = prepare(c, SIM_LANE_MAIN, MACHINE_OP_ACQUIRE, lock, owner);
    if (in_session) {
        l->command.flags = MACHINE_ACQUIRE_EXPLICIT;
    } else {
        l->command.ttl_ms = SIM_TTL_MIN_MS + below(c, s->options.ttl_max_ms);
    }
    if (chance(c, 60)) {
        l->command.flags |= MACHINE_ACQUIRE_WAIT;
        l->command.wait_ms = 50 + below(c, 2000);
    }
    call(c, l, FLI_REPEAT_WRITE);
}

static void call_session(struct sim_client *c)
{
    c->session = sim_oracle_new_owner(c->sim);
    struct sim_lane *l = prepare(c, SIM_LANE_MAIN, MACHINE_OP_SESSION_OPEN, 0, c->session);
    l->command.ttl_ms = 200 + below(c, 2000);
    l->command.lockdelay_ms = chance(c, 50) ? 0 : below(c, 200);
    call(c, l, FLI_REPEAT_WRITE);
}

/* About the token it holds, or about any token there ever was. */
static void call_about_token(struct sim_client *c, uint8_t op)
{
    struct sim *s = c->sim;
    uint64_t token = c->last_token;
    unsigned lock = c->last_lock;
    if (token == 0 || chance(c, 15)) {
        if (s->oracle.token_max == 0) {
            rest(c);
            return;
        }
        token = 1 + below(c, s->oracle.token_max);
        lock = sim_oracle_token(s, token)->lock;
    }
    /* A writer's lease is its own business, or nothing could be said of how long it is. */
    if (op == MACHINE_OP_RELEASE && token != c->last_token) {
        op = MACHINE_OP_CHECK;
    }
    struct sim_lane *l = prepare(c, SIM_LANE_MAIN, op, lock, 0);
    l->command.token = token;
    call(c, l, op == MACHINE_OP_CHECK ? FLI_REPEAT_READ : FLI_REPEAT_WRITE);
}

static void call_something(struct sim_client *c)
{
    unsigned dice = (unsigned)below(c, 100);
    unsigned lock = (unsigned)below(c, SIM_LOCKS);
    if (dice < 8) {
        call(c, prepare(c, SIM_LANE_MAIN, MACHINE_OP_TOKEN, lock, 0), FLI_REPEAT_NEVER);
    } else if (dice < 10) {
        call(c, prepare(c, SIM_LANE_MAIN, MACHINE_OP_BREAK, lock, 0), FLI_REPEAT_NEVER);
    } else if (dice < 17) {
        call(c, prepare(c, SIM_LANE_MAIN, MACHINE_OP_SHOW, lock, 0), FLI_REPEAT_READ);
    } else if (dice < 30) {
        call_about_token(c, MACHINE_OP_CHECK);
    } else if (c->session == 0 && dice < 38) {
        call_session(c);
    } else if (c->session != 0 && dice < 46) {
        struct sim_lane *l = prepare(c, SIM_LANE_MAIN, MACHINE_OP_SESSION_RENEW, 0, c->session);
        call(c, l, FLI_REPEAT_WRITE);
    } else if (c->session != 0 && dice < 50) {
        struct sim_lane *l = prepare(c, SIM_LANE_MAIN, MACHINE_OP_SESSION_CLOSE, 0, c->session);
        c->session = 0;
        call(c, l, FLI_REPEAT_WRITE);
    } else if (c->last_token == 0 || dice < 58 || (c->session != 0 && dice < 68)) {
        call_acquire(c);
    } else if (dice < 78) {
        call_about_token(c, MACHINE_OP_RENEW);
    } else {
        call_about_token(c, MACHINE_OP_RELEASE);
    }
}

/* ---- all of them ---- */

void sim_client_act(struct sim_client *c)
{
    if (c->paused) {
        return;
    }
    if (c->role == SIM_REDLOCKER) {
        sim_redlock_act(c);
        return;
    }
    if (c->holding) {
        act_holding(c);
        return;
    }
    if (c->lanes[SIM_LANE_MAIN].active || c->sim->quiet) {
        return;
    }
    if (sim_client_now(c) < c->next_at) {
        sim_client_alarm(c, c->next_at);
        return;
    }
    if (c->role == SIM_WRITER) {
        acquire(c);
    } else {
        call_something(c);
    }
}

void sim_clients_start(struct sim *s)
{
    const struct sim_options *o = &s->options;
    unsigned all = o->writers + o->callers + o->redlockers;
    s->clients_n = all;
    if (s->orders.clients != 0 && s->orders.clients < all) {
        s->clients_n = s->orders.clients;
    }
    for (unsigned i = 0; i < s->clients_n; i++) {
        struct sim_client *c = &s->clients[i];
        c->sim = s;
        c->index = i;
        c->role = i < o->writers                ? SIM_WRITER
                  : i < o->writers + o->callers ? SIM_CALLER
                                                : SIM_REDLOCKER;
        c->random.state = s->orders.seed * UINT64_C(0x9fb21c651e98df25) + i;
        c->alarm_at = SIM_NEVER;
        uint64_t local_ms = 5000 + below(c, 1u << 30);
        int64_t ppm = (int64_t)below(c, (uint64_t)o->ppm_max * 2 + 1) - o->ppm_max;
        sim_clock_set(s, &c->clock, local_ms, ppm);
        for (unsigned k = 0; k < SIM_LANES; k++) {
            c->lanes[k].client = c;
            c->lanes[k].number = k;
        }
        rest(c);
    }
}

bool sim_clients_done(struct sim *s)
{
    for (unsigned i = 0; i < s->clients_n; i++) {
        struct sim_client *c = &s->clients[i];
        if (c->paused || c->holding || c->lanes[0].active || c->lanes[1].active || c->attempting) {
            return false;
        }
    }
    return true;
}

void sim_clients_describe(struct sim *s, FILE *out)
{
    static const char *const roles[] = {"writer", "caller", "redlock"};
    static const char *const wants[] = {"connect", "send",  "answer", "probe",
                                        "ask",     "sleep", "nothing"};
    for (unsigned i = 0; i < s->clients_n; i++) {
        struct sim_client *c = &s->clients[i];
        fprintf(out, "  client %u (%s)%s:", i, roles[c->role], c->paused ? " paused" : "");
        if (c->holding) {
            fprintf(out, " holds lock %u with token %llu;", c->lock, (unsigned long long)c->token);
        }
        for (unsigned k = 0; k < SIM_LANES; k++) {
            struct sim_lane *l = &c->lanes[k];
            if (l->active) {
                fprintf(out, " call %u about %s, wants %s of node %u, since %llu ms;",
                        l->command.op, l->name, wants[l->flow.order.want], l->flow.order.node + 1,
                        (unsigned long long)(s->now - l->first_at));
            }
        }
        fputc('\n', out);
    }
}
