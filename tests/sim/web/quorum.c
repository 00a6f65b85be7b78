/* quorum.c: a client that takes its lock by Redlock, over five simulated Redis servers with wall
 * clocks of their own. The shipping attempt and quorum decide. With tokens, the lock service gives
 * one once a majority of the servers is held. */
#include <stdlib.h>

#include "machine/batch.h"
#include "redlock/quorum.h"
#include "web.h"

#define BUDGET_MS 500u
#define AGAIN_MS 1500u
#define TOKEN_MS 8000u

struct ask {
    struct web_client *w;
    unsigned server;
    bool release;
    uint64_t serial, value, uptime_ms;
    enum fl_redlock_status status;
    unsigned message;
};

static const char *const names[WEB_REDIS] = {"A", "B", "C", "D", "E"};

static uint64_t wall_ms(const struct sim_redis *r)
{
    return (uint64_t)((int64_t)sim_clock_read(web.s, &r->clock) + r->wall_offset);
}

static uint64_t held_by(const struct sim_redis *r)
{
    bool over = r->keys[0].value != 0 && wall_ms(r) >= r->keys[0].expires_at;
    return over ? 0 : r->keys[0].value;
}

uint64_t web_redis_holder(unsigned i, uint64_t *ret_left_ms)
{
    const struct sim_redis *r = &web.s->redis[i];
    uint64_t value = held_by(r);
    *ret_left_ms = value == 0 ? 0 : r->keys[0].expires_at - wall_ms(r);
    for (unsigned k = 0; k < WEB_CLIENTS; k++) {
        if (value != 0 && web.clients[k].c->red_value == value) {
            return k + 1;
        }
    }
    return 0;
}

/* ---- a server ---- */

static void ask_drop(struct sim_event *e)
{
    free(e->p);
}

static void execute(struct ask *q)
{
    struct sim_redis *r = &web.s->redis[q->server];
    uint64_t held = held_by(r);
    q->uptime_ms = web.s->now - r->up_since;
    if (q->release) {
        r->keys[0].value = held == q->value ? 0 : held;
        q->status = held == q->value ? FL_REDLOCK_YES : FL_REDLOCK_NOTOURS;
    } else if (held == 0) {
        r->keys[0].value = q->value;
        r->keys[0].expires_at = wall_ms(r) + WEB_TTL_MS;
        q->status = FL_REDLOCK_YES;
    } else {
        q->status = FL_REDLOCK_HELD;
    }
}

static void answer_deliver(struct sim_event *e);

static void arrive_fire(struct sim *s, struct sim_event *e)
{
    struct ask *q = e->p;
    e->p = NULL;
    e->drop = NULL;
    sim_drop(s, e);
    if ((q->w->cut >> q->server & 1) != 0) {
        web_fate(q->message, "lost");
        free(q);
        return;
    }
    execute(q);
    web_fate(q->message, q->status == FL_REDLOCK_HELD ? "refused" : "accepted");
    uint64_t ms = sim_net_delay(s, SIM_STORE_PLACE, SIM_STORE_PLACE);
    struct sim_event *back = sim_to_client(q->w->c, ms, answer_deliver);
    back->p = q;
    back->drop = ask_drop;
}

static void ask(struct web_client *w, unsigned server, bool release)
{
    uint64_t ms = sim_net_delay(web.s, SIM_STORE_PLACE, SIM_STORE_PLACE);
    struct ask *q = fli_xcalloc(1, sizeof *q);
    *q = (struct ask){.w = w,
                      .server = server,
                      .release = release,
                      .serial = w->c->attempt_serial,
                      .value = w->c->red_value};
    q->message = web_message(web_client_name(w), names[server], ms, release ? "release" : "lock");
    struct sim_event *e = sim_after(web.s, ms, arrive_fire);
    e->p = q;
    e->drop = ask_drop;
}

/* ---- the client ---- */

void web_quorum_release(struct web_client *w)
{
    for (unsigned i = 0; i < WEB_REDIS; i++) {
        ask(w, i, true);
    }
}

static void count(const struct web_client *w, char yes[WEB_REDIS + 1])
{
    unsigned n = 0;
    for (unsigned i = 0; i < WEB_REDIS; i++) {
        if (w->c->attempt.status[i] == FL_REDLOCK_YES) {
            yes[n++] = names[i][0];
        }
    }
    yes[n] = '\0';
}

static void has(struct web_client *w)
{
    w->c->attempting = false;
    w->c->issuing = false;
    web_worker_has(w);
}

static void again(struct web_client *w)
{
    w->c->attempting = false;
    w->c->issuing = false;
    web_quorum_release(w);
    w->c->next_at = sim_client_now(w->c) + AGAIN_MS;
    sim_client_alarm(w->c, w->c->next_at);
}

static void issued(struct sim_client *c, struct sim_lane *l, int status)
{
    struct web_client *w = &web.clients[c->index];
    if (status != 0 || fli_left_ms(c->deadline_ms, sim_client_now(c)) == 0) {
        again(w);
        return;
    }
    c->token = l->token;
    web_note("token", w->number, "The lock service gives client %u token %llu.", w->number,
             (unsigned long long)c->token);
    has(w);
}

static void ask_for_token(struct web_client *w)
{
    struct sim_client *c = w->c;
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, MACHINE_OP_TOKEN, SIM_LOCKS, 0);
    struct fli_call_config config = {.repeat = FLI_REPEAT_NEVER,
                                     .nodes = web.s->n,
                                     .start = w->number % web.s->n,
                                     .now_ms = sim_client_now(c),
                                     .deadline_ms = sim_client_now(c) + TOKEN_MS,
                                     .attempt_ms = TOKEN_MS,
                                     .seed = web.seed};
    l->done = issued;
    c->issuing = true;
    sim_lane_start(l, &config);
}

static void judged(struct web_client *w, enum fli_verdict verdict)
{
    char yes[WEB_REDIS + 1];
    struct sim_client *c = w->c;
    if (verdict == FLI_VERDICT_NONE || !c->attempting || c->issuing) {
        return;
    }
    count(w, yes);
    if (verdict == FLI_VERDICT_FAILED) {
        web_note("none", w->number, "Client %u gets no majority%s%s. It tries again.", w->number,
                 yes[0] == '\0' ? "" : ", only ", yes);
        again(w);
        return;
    }
    web_note("quorum", w->number, "Client %u has a majority of the Redis servers: %s.", w->number,
             yes);
    c->deadline_ms = fli_deadline_ms(c->attempt.t0_ms, WEB_TTL_MS);
    if (web.check) {
        ask_for_token(w);
    } else {
        has(w);
    }
}

static void answer_deliver(struct sim_event *e)
{
    const struct ask *q = e->p;
    struct sim_client *c = q->w->c;
    uint64_t now_ms = sim_client_now(c);
    enum fl_redlock_status status = q->status;
    if (q->release || !c->attempting || c->issuing || q->serial != c->attempt_serial) {
        return;
    }
    if (status == FL_REDLOCK_YES && web.wait &&
        now_ms < fli_counts_from_ms(now_ms, q->uptime_ms / 1000, WEB_TTL_MS)) {
        status = FL_REDLOCK_YOUNG;
    }
    judged(q->w, fli_attempt_answer(&c->attempt, q->server, status, now_ms));
}

void web_quorum_begin(struct web_client *w)
{
    struct sim_client *c = w->c;
    uint64_t now_ms = sim_client_now(c);
    c->red_value = 1 + sim_draw(&c->random) / 2;
    c->attempt_serial++;
    c->attempting = true;
    c->lock = SIM_LOCKS;
    c->mask = 1u << SIM_LOCKS;
    fli_attempt_init(&c->attempt, FLI_ATTEMPT_ACQUIRE, WEB_REDIS, now_ms, WEB_TTL_MS, 1);
    for (unsigned i = 0; i < WEB_REDIS; i++) {
        fli_attempt_asked(&c->attempt, i);
        ask(w, i, false);
    }
    c->next_at = now_ms + fli_server_budget_ms(WEB_TTL_MS, BUDGET_MS);
    sim_client_alarm(c, c->next_at);
}

void web_quorum_act(struct web_client *w)
{
    struct sim_client *c = w->c;
    uint64_t now_ms = sim_client_now(c);
    if (c->issuing) {
        return;
    }
    if (now_ms < c->next_at) {
        sim_client_alarm(c, c->next_at);
    } else if (c->attempting) {
        judged(w, fli_attempt_timeout(&c->attempt, now_ms));
    } else {
        web_quorum_begin(w);
    }
}
