/* redlock.c: Redlock over Redis servers, with tokens from the cluster.
 *
 * The servers have wall clocks of their own that run wrong and jump both ways, and forget their
 * keys when they restart. Clients follow src/redlock's attempt and quorum: ask all, count, keep
 * nothing that is too old, release everywhere after a failure; a server that is up for too short a
 * time does not count, unless the seed says that clients were told otherwise. Two may so believe to
 * hold the lock at once: the token decides, and no update may be lost. */
#include <stdlib.h>

#include "redlock/quorum.h"
#include "sim.h"

#define MAX_TTL_MS 4000u
#define BUDGET_MS 50u

enum red_op { RED_SET, RED_DEL };

struct red {
    struct sim_client *client;
    unsigned server, lock;
    enum red_op op;
    uint64_t serial, value, ttl_ms, uptime_ms;
    enum fl_redlock_status status;
};

/* ---- the servers ---- */

static uint64_t wall_ms(struct sim *s, const struct sim_redis *r)
{
    return (uint64_t)((int64_t)sim_clock_read(s, &r->clock) + r->wall_offset);
}

void sim_redis_init(struct sim *s)
{
    for (unsigned i = 0; i < s->options.redis; i++) {
        struct sim_redis *r = &s->redis[i];
        int64_t ppm = (int64_t)sim_below(s, 4001) - 2000;
        sim_clock_set(s, &r->clock, 1000000 + sim_below(s, 1000000), ppm);
    }
}

void sim_redis_restart(struct sim *s, unsigned i, uint64_t ms)
{
    struct sim_redis *r = &s->redis[i];
    r->down_until = s->now + ms;
    r->up_since = r->down_until;
    for (unsigned k = 0; k < SIM_RED_LOCKS; k++) {
        r->keys[k].value = 0;
    }
    s->marks->redis_restarts++;
}

void sim_redis_jump(struct sim *s, unsigned i, int64_t ms)
{
    s->redis[i].wall_offset += ms;
}

static void red_drop(struct sim_event *e)
{
    free(e->p);
}

static void answer_deliver(struct sim_event *e);

static void execute(struct sim *s, struct red *q)
{
    struct sim_redis *r = &s->redis[q->server];
    uint64_t now_ms = wall_ms(s, r);
    uint64_t held = r->keys[q->lock].value;
    if (held != 0 && now_ms >= r->keys[q->lock].expires_at) {
        held = 0;
    }
    q->uptime_ms = s->now - r->up_since;
    if (q->op == RED_DEL) {
        r->keys[q->lock].value = held == q->value ? 0 : held;
        q->status = held == q->value ? FL_REDLOCK_YES : FL_REDLOCK_NOTOURS;
    } else if (held == 0) {
        r->keys[q->lock].value = q->value;
        r->keys[q->lock].expires_at = now_ms + q->ttl_ms;
        q->status = FL_REDLOCK_YES;
    } else {
        q->status = FL_REDLOCK_HELD;
    }
}

static void arrive_fire(struct sim *s, struct sim_event *e)
{
    struct red *q = e->p;
    bool down = s->redis[q->server].down_until > s->now;
    if (down) {
        q->status = FL_REDLOCK_DOWN;
    } else {
        execute(s, q);
    }
    struct sim_event *back = sim_to_client(
        q->client, sim_net_delay(s, SIM_STORE_PLACE, SIM_STORE_PLACE), answer_deliver);
    back->p = q;
    back->drop = red_drop;
    e->p = NULL;
    e->drop = NULL;
    sim_drop(s, e);
}

static void ask(struct sim_client *c, unsigned server, enum red_op op)
{
    struct sim *s = c->sim;
    struct red *q = fli_xcalloc(1, sizeof *q);
    q->client = c;
    q->server = server;
    q->lock = c->lock - SIM_LOCKS;
    q->op = op;
    q->serial = c->attempt_serial;
    q->value = c->red_value;
    q->ttl_ms = c->ttl_ms;
    struct sim_event *e =
        sim_after(s, sim_net_delay(s, SIM_STORE_PLACE, SIM_STORE_PLACE), arrive_fire);
    e->p = q;
    e->drop = red_drop;
}

/* ---- the client ---- */

static void release_all(struct sim_client *c, uint32_t where)
{
    for (unsigned i = 0; i < c->sim->options.redis; i++) {
        if ((where & UINT32_C(1) << i) != 0) {
            ask(c, i, RED_DEL);
        }
    }
}

static void pause_then_again(struct sim_client *c)
{
    uint64_t ms = fli_retry_ms(++c->attempts, 20, 500, sim_draw(&c->random));
    c->next_at = sim_client_now(c) + ms;
    sim_client_alarm(c, c->next_at);
}

static void give_up(struct sim_client *c)
{
    release_all(c, c->attempt.asked);
    c->attempting = false;
    c->issuing = false;
    c->holding = false;
    c->asking = false;
    pause_then_again(c);
}

static void issue(struct sim_client *c)
{
    struct sim_lane *l = &c->lanes[SIM_LANE_MAIN];
    uint64_t now_ms = sim_client_now(c);
    snprintf(l->name, sizeof l->name, "R%u", c->lock);
    l->lock = c->lock;
    l->token = 0;
    l->command =
        (struct machine_command){.op = MACHINE_OP_TOKEN, .name = {(const uint8_t *)l->name, 2}};
    l->done = sim_redlock_issued;
    struct fli_flow_config config = {.repeat = FLI_REPEAT_NEVER,
                                     .nodes = c->sim->n,
                                     .start = (uint32_t)sim_draw_below(&c->random, c->sim->n),
                                     .now_ms = now_ms,
                                     .deadline_ms = c->deadline_ms,
                                     .attempt_ms = 300};
    config.seed = sim_draw(&c->random);
    c->issuing = true;
    sim_lane_start(l, &config);
}

void sim_redlock_issued(struct sim_client *c, struct sim_lane *l, int status)
{
    struct sim *s = c->sim;
    c->issuing = false;
    if (status != 0 || !fli_is_valid(c->attempt.t0_ms, c->ttl_ms, 1, sim_client_now(c))) {
        give_up(c);
        return;
    }
    c->attempting = false;
    c->attempts = 0;
    c->holding = true;
    c->token = l->token;
    c->read = false;
    c->spoilt = false;
    c->asking = false;
    c->writes_left = 1 + (unsigned)sim_draw_below(&c->random, 3);
    c->next_at = sim_client_now(c) + sim_draw_below(&c->random, s->options.think_ms / 4 + 1);
    s->marks->redlocks++;
    SIM_TRACE(s, "client %u holds R%u by Redlock with token %llu", c->index, c->lock,
              (unsigned long long)c->token);
    sim_oracle_redlock(c);
    sim_client_act(c);
}

static void judged(struct sim_client *c, enum fli_verdict verdict)
{
    if (verdict == FLI_VERDICT_NONE || c->issuing || !c->attempting) {
        return;
    }
    if (verdict == FLI_VERDICT_FAILED) {
        c->attempting = false;
        release_all(c, fli_attempt_to_release(&c->attempt));
        pause_then_again(c);
        return;
    }
    c->deadline_ms = fli_deadline_ms(c->attempt.t0_ms, c->ttl_ms);
    issue(c);
}

static void answer_deliver(struct sim_event *e)
{
    struct red *q = e->p;
    struct sim_client *c = e->client;
    uint64_t now_ms = sim_client_now(c);
    if (q->op != RED_SET || !c->attempting || c->issuing || q->serial != c->attempt_serial) {
        return;
    }
    if (q->status == FL_REDLOCK_YES && !c->sim->options.redis_lies &&
        now_ms < fli_counts_from_ms(now_ms, q->uptime_ms / 1000, MAX_TTL_MS)) {
        q->status = FL_REDLOCK_YOUNG;
    }
    judged(c, fli_attempt_answer(&c->attempt, q->server, q->status, now_ms));
}

static void begin(struct sim_client *c)
{
    struct sim *s = c->sim;
    uint64_t now_ms = sim_client_now(c);
    c->lock = SIM_LOCKS + (unsigned)sim_draw_below(&c->random, SIM_RED_LOCKS);
    c->ttl_ms = 500 + sim_draw_below(&c->random, MAX_TTL_MS - 500);
    c->red_value = 1 + sim_draw(&c->random) / 2;
    c->attempt_serial++;
    c->attempting = true;
    fli_attempt_init(&c->attempt, FLI_ATTEMPT_ACQUIRE, s->options.redis, now_ms, c->ttl_ms, 1);
    for (unsigned i = 0; i < s->options.redis; i++) {
        fli_attempt_asked(&c->attempt, i);
        ask(c, i, RED_SET);
    }
    c->next_at = now_ms + fli_server_budget_ms(c->ttl_ms, BUDGET_MS);
    sim_client_alarm(c, c->next_at);
}

static void act_holding(struct sim_client *c)
{
    uint64_t now_ms = sim_client_now(c);
    if (now_ms >= c->deadline_ms) {
        c->sim->marks->holds_lost++;
        give_up(c);
        return;
    }
    if (c->asking && now_ms >= c->store_until) {
        sim_client_stored(c, c->read, FL_ETIMEOUT, 0);
        return;
    }
    if (!c->asking && now_ms >= c->next_at) {
        if (c->spoilt || (c->read && c->writes_left == 0)) {
            give_up(c);
            return;
        }
        sim_client_work(c);
    }
    uint64_t at_ms = c->asking ? c->store_until : c->next_at;
    sim_client_alarm(c, at_ms < c->deadline_ms ? at_ms : c->deadline_ms);
}

void sim_redlock_act(struct sim_client *c)
{
    uint64_t now_ms = sim_client_now(c);
    if (c->holding) {
        act_holding(c);
    } else if (c->issuing) {
        return;
    } else if (now_ms < c->next_at) {
        sim_client_alarm(c, c->next_at);
    } else if (c->attempting) {
        judged(c, fli_attempt_timeout(&c->attempt, now_ms));
    } else if (!c->sim->quiet) {
        begin(c);
    }
}
