/* redlock.c: Redlock over Redis servers, with tokens from the cluster.
 *
 * The servers have wall clocks of their own that run wrong and jump both ways, and they forget
 * their keys when they restart. Clients follow src/redlock's attempt and quorum: they ask all
 * servers, count, keep nothing that is too old, and release everywhere after a failure. A server
 * that has been up for too short a time does not count, unless the seed says that clients were told
 * otherwise. So two clients may believe that they hold the lock at once: the token decides, and no
 * update may be lost.
 *
 * Before its first lock, a client checks the servers with src/redlock's check. In some seeds they
 * are not fit: one is a replica, two are the same, or they evict keys. A client that finds that out
 * does nothing, and the operator repairs it; unless the client was told that eviction does not
 * matter. The data for the check comes at once and not in messages. */
#include <stdlib.h>
#include <string.h>

#include "redlock/fitness.h"
#include "sim.h"

#define MAX_TTL_MS 4000u
#define BUDGET_MS 50u
#define REPAIR_MS 1000u
#define EVICTION_PERCENT 30u /* of the commands that a server gets */

enum red_op { RED_SET, RED_DEL, RED_EXTEND };

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

static void choose_setup(struct sim *s)
{
    struct sim_random r = {s->orders.seed * UINT64_C(0xa0761d6478bd642f) + 3};
    uint64_t dice = sim_draw_below(&r, 100);
    s->redis_setup = dice < 60   ? SIM_REDIS_FIT
                     : dice < 80 ? SIM_REDIS_EVICT
                     : dice < 90 ? SIM_REDIS_REPLICA
                                 : SIM_REDIS_TWICE;
    s->redis_durable = sim_draw_chance(&r, 25);
    s->redis_eviction_allowed = sim_draw_chance(&r, 50);
}

void sim_redis_init(struct sim *s)
{
    choose_setup(s);
    for (unsigned i = 0; i < s->options.redis; i++) {
        struct sim_redis *r = &s->redis[i];
        int64_t ppm = (int64_t)sim_below(s, 4001) - 2000;
        sim_clock_set(s, &r->clock, 1000000 + sim_below(s, 1000000), ppm);
    }
}

bool sim_redlock_is_sound(const struct sim *s)
{
    return s->options.weight[SIM_FAULT_REDIS_JUMP] == 0 &&
           (s->redis_durable || !s->options.redis_lies) && !s->redis_has_evicted;
}

void sim_redis_restart(struct sim *s, unsigned i, uint64_t ms)
{
    struct sim_redis *r = &s->redis[i];
    r->down_until = s->now + ms;
    r->up_since = r->down_until;
    for (unsigned k = 0; k < SIM_RED_LOCKS && !s->redis_durable; k++) {
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

static void evict(struct sim *s, struct sim_redis *r)
{
    if (s->redis_setup == SIM_REDIS_EVICT && sim_below(s, 100) < EVICTION_PERCENT) {
        r->keys[sim_below(s, SIM_RED_LOCKS)].value = 0;
        s->redis_has_evicted = true;
        s->marks->redis_evicted++;
    }
}

/* The server that answers under this address. */
static struct sim_redis *server_of(struct sim *s, unsigned i)
{
    return &s->redis[s->redis_setup == SIM_REDIS_TWICE && i == 1 ? 0 : i];
}

static void execute(struct sim *s, struct red *q)
{
    struct sim_redis *r = server_of(s, q->server);
    evict(s, r);
    uint64_t now_ms = wall_ms(s, r);
    uint64_t held = r->keys[q->lock].value;
    if (held != 0 && now_ms >= r->keys[q->lock].expires_at) {
        held = 0;
    }
    q->uptime_ms = s->now - r->up_since;
    if (s->redis_setup == SIM_REDIS_REPLICA && q->server == 0) {
        q->status = FL_REDLOCK_REPLICA;
    } else if (q->op == RED_DEL) {
        r->keys[q->lock].value = held == q->value ? 0 : held;
        q->status = held == q->value ? FL_REDLOCK_YES : FL_REDLOCK_NOTOURS;
    } else if (q->op == RED_EXTEND) {
        q->status = held == q->value ? FL_REDLOCK_YES : FL_REDLOCK_NOTOURS;
        if (held == q->value) {
            r->keys[q->lock].expires_at = now_ms + q->ttl_ms;
        }
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
    bool down = server_of(s, q->server)->down_until > s->now;
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
    q->ttl_ms = c->attempt.ttl_ms;
    struct sim_event *e =
        sim_after(s, sim_net_delay(s, SIM_STORE_PLACE, SIM_STORE_PLACE), arrive_fire);
    e->p = q;
    e->drop = red_drop;
}

/* ---- the judge ---- */

static void tell(struct sim *s, unsigned i, struct fli_facts *f)
{
    const struct sim_redis *r = server_of(s, i);
    char text[200];
    fli_facts_init(f);
    if (r->down_until > s->now) {
        return;
    }
    uint64_t uptime_s = (s->now - r->up_since) / 1000;
    uint64_t now_ms = 1 + s->now;
    int len = snprintf(text, sizeof text,
                       "# Server\r\nrun_id:%040u\r\nuptime_in_seconds:%llu\r\nrole:%s\r\n"
                       "maxmemory_policy:%s\r\naof_enabled:%u\r\n",
                       (unsigned)(r - s->redis), (unsigned long long)uptime_s,
                       s->redis_setup == SIM_REDIS_REPLICA && i == 0 ? "slave" : "master",
                       s->redis_setup == SIM_REDIS_EVICT ? "allkeys-lru" : "noeviction",
                       s->redis_durable ? 1 : 0);
    FLI_ASSERT(len > 0 && (size_t)len < sizeof text);
    f->heard = true;
    fli_facts_take_info(f, text, (size_t)len);
    memcpy(f->fsync, "always", sizeof "always");
    f->young_ms = fli_counts_from_ms(now_ms, (uint64_t)f->uptime_s, MAX_TTL_MS) - now_ms;
}

/* The verdict of a judge that sees everything; about a server that is down it cannot know. */
static bool is_fit(struct sim *s)
{
    bool first_up = s->redis[0].down_until <= s->now;
    bool all_down = true;
    for (unsigned i = 0; i < s->options.redis; i++) {
        all_down = all_down && s->redis[i].down_until > s->now;
    }
    switch (s->redis_setup) {
    case SIM_REDIS_EVICT:
        return s->redis_eviction_allowed || all_down;
    case SIM_REDIS_REPLICA:
    case SIM_REDIS_TWICE:
        return !first_up;
    default:
        return true;
    }
}

/* True when the client may go on. */
static bool check_servers(struct sim_client *c)
{
    struct sim *s = c->sim;
    struct fli_facts facts[SIM_REDIS_MAX];
    struct fl_redlock_check_report report;
    struct fli_fitness_rules rules = {.eviction_allowed = s->redis_eviction_allowed,
                                      .restarts_are_safe = s->options.redis_lies};
    for (unsigned i = 0; i < s->options.redis; i++) {
        tell(s, i, &facts[i]);
    }
    bool fit = fli_fitness(facts, s->options.redis, &rules, &report);
    SIM_CHECK(s, fit == is_fit(s), "the judge of Redis servers says %s", fit ? "fit" : "unfit");
    c->judged_fit = fit;
    s->marks->redlocks_refused += !fit;
    return fit;
}

/* The operator has learned of it. */
static void repair_fire(struct sim *s, struct sim_event *e)
{
    sim_drop(s, e);
    s->redis_setup = SIM_REDIS_FIT;
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
    c->extending = false;
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
    l->mask = c->mask;
    l->token = 0;
    l->command =
        (struct machine_command){.op = MACHINE_OP_TOKEN, .name = {(const uint8_t *)l->name, 2}};
    l->done = sim_redlock_issued;
    struct fli_call_config config = {.repeat = FLI_REPEAT_NEVER,
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
    c->extends = sim_draw_chance(&c->random, 50);
    if (c->extends) {
        const struct fli_lease_config config = {.ttl_ms = c->ttl_ms,
                                                .lease_until_ms = c->deadline_ms,
                                                .max_hold_ms =
                                                    1 + sim_draw_below(&c->random, 4 * c->ttl_ms)};
        fli_lease_init(&c->lease, &config);
        c->deadline_ms = c->lease.deadline_ms;
    }
    s->marks->redlocks++;
    SIM_TRACE(s, "client %u holds R%u by Redlock with token %llu", c->index, c->lock,
              (unsigned long long)c->token);
    sim_oracle_holds(c);
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

/* ---- keeping it longer ---- */

static void extended(struct sim_client *c, enum fli_verdict verdict)
{
    uint64_t now_ms = sim_client_now(c);
    if (verdict == FLI_VERDICT_NONE) {
        return;
    }
    bool done = verdict == FLI_VERDICT_DONE;
    c->extending = false;
    c->sim->marks->redlocks_extended += done;
    fli_lease_renewal_ended(&c->lease, now_ms, done ? 0 : c->attempt.code,
                            fli_deadline_ms(c->attempt.t0_ms, c->attempt.ttl_ms));
    c->deadline_ms = c->lease.state == FL_HOLD_LOST ? 0 : c->lease.deadline_ms;
    sim_client_act(c);
}

static void extend(struct sim_client *c)
{
    struct sim *s = c->sim;
    uint64_t now_ms = sim_client_now(c);
    fli_lease_renewal_began(&c->lease);
    c->attempt_serial++;
    c->extending = true;
    fli_attempt_init(&c->attempt, FLI_ATTEMPT_EXTEND, s->options.redis, now_ms, c->ttl_ms, 1);
    for (unsigned i = 0; i < s->options.redis; i++) {
        fli_attempt_asked(&c->attempt, i);
        ask(c, i, RED_EXTEND);
    }
    c->extend_until = now_ms + fli_server_budget_ms(c->ttl_ms, BUDGET_MS);
}

/* When the next step for keeping the lock is due. */
static uint64_t renewal(struct sim_client *c, uint64_t now_ms)
{
    if (!c->extends) {
        return SIM_NEVER;
    }
    if (c->extending) {
        return c->extend_until;
    }
    if (fli_lease_state(&c->lease, now_ms) != FL_HOLD_LOST &&
        fli_lease_wants_renewal(&c->lease, now_ms)) {
        extend(c);
        return c->extend_until;
    }
    return fli_lease_next_ms(&c->lease);
}

static void answer_deliver(struct sim_event *e)
{
    struct red *q = e->p;
    struct sim_client *c = e->client;
    uint64_t now_ms = sim_client_now(c);
    bool awaited = q->op == RED_EXTEND ? c->extending : c->attempting && !c->issuing;
    if (q->op == RED_DEL || !awaited || q->serial != c->attempt_serial) {
        return;
    }
    if (q->status == FL_REDLOCK_YES && !c->sim->options.redis_lies &&
        now_ms < fli_counts_from_ms(now_ms, q->uptime_ms / 1000, MAX_TTL_MS)) {
        q->status = FL_REDLOCK_YOUNG;
    }
    enum fli_verdict verdict = fli_attempt_answer(&c->attempt, q->server, q->status, now_ms);
    if (q->op == RED_EXTEND) {
        extended(c, verdict);
    } else {
        judged(c, verdict);
    }
}

static void begin(struct sim_client *c)
{
    struct sim *s = c->sim;
    uint64_t now_ms = sim_client_now(c);
    if (!c->judged_fit && !check_servers(c)) {
        sim_after(s, REPAIR_MS, repair_fire);
        c->next_at = now_ms + REPAIR_MS / 2 + sim_draw_below(&c->random, REPAIR_MS);
        sim_client_alarm(c, c->next_at);
        return;
    }
    c->lock = SIM_LOCKS + (unsigned)sim_draw_below(&c->random, SIM_RED_LOCKS);
    c->mask = 1u << c->lock;
    c->slots = 1;
    c->ttl_ms = 500 + sim_draw_below(&c->random, MAX_TTL_MS - 500);
    c->red_value = 1 + sim_draw(&c->random) / 2;
    c->attempt_serial++;
    c->attempting = true;
    c->extends = false;
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
    if (c->extending && now_ms >= c->extend_until) {
        extended(c, fli_attempt_timeout(&c->attempt, now_ms));
        return;
    }
    if (c->asking && now_ms >= c->store_until) {
        sim_client_stored(c, c->read, FL_ETIMEOUT, 0);
        return;
    }
    uint64_t keep_ms = renewal(c, now_ms);
    if (!c->asking && now_ms >= c->next_at) {
        if (c->spoilt || (c->read && c->writes_left == 0)) {
            give_up(c);
            return;
        }
        sim_client_work(c);
    }
    uint64_t at_ms = c->asking ? c->store_until : c->next_at;
    at_ms = at_ms < keep_ms ? at_ms : keep_ms;
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
    } else if (!c->sim->healed) {
        begin(c);
    }
}
