/* worker.c: what each of the two clients does: it takes the lock, reads the value, adds its number,
 * looks at its lease once more, writes the sum and releases. The library's call state, lease and
 * retries are the shipping ones.
 *
 * Between the last look at the lease and the write there is always a moment. A process that is
 * stopped there goes on with its write, however long it was stopped. */
#include "machine/batch.h"
#include "web.h"

#define SETTLE_MS 400u /* from the grant to the read */
#define COMPUTE_MS 2000u
#define READY_MS 800u
#define WAIT_MS 60000u
#define ATTEMPT_MS 4000u
#define ASK_MS 2500u
#define RELEASE_MS 20000u

static struct web_client *worker_of(const struct sim_client *c)
{
    return &web.clients[c->index];
}

const char *web_client_name(const struct web_client *w)
{
    return w->number == 1 ? "client1" : "client2";
}

static uint64_t now_ms(const struct web_client *w)
{
    return sim_client_now(w->c);
}

uint64_t web_lease_left(const struct web_client *w)
{
    uint64_t at = now_ms(w);
    if (!w->c->holding) {
        return 0;
    }
    return w->redlock ? fli_left_ms(w->c->deadline_ms, at)
                      : fli_lease_remaining_ms(&w->c->lease, at);
}

static bool believes(struct web_client *w)
{
    if (!w->c->holding) {
        return false;
    }
    if (!w->redlock) {
        return fli_lease_state(&w->c->lease, now_ms(w)) != FL_HOLD_LOST;
    }
    return web_lease_left(w) > 0;
}

static void turn_to(struct web_client *w, enum web_phase phase, uint64_t ms)
{
    w->phase = phase;
    w->c->next_at = ms == 0 ? SIM_NEVER : now_ms(w) + ms;
    sim_client_alarm(w->c, w->c->next_at);
}

/* Two calls differ in what they ask for and in their time. A client begins with a node that does
 * not lead: the node hands its commands on. */
static struct fli_call_config plan(const struct web_client *w, enum fli_call_repeat repeat,
                                   uint64_t within_ms)
{
    const struct sim_node *leader = sim_leader(web.s);
    unsigned start = w->number % web.s->n;
    if (leader != NULL && leader->index == start) {
        start = (start + 1) % web.s->n;
    }
    return (struct fli_call_config){.repeat = repeat,
                                    .nodes = web.s->n,
                                    .start = start,
                                    .now_ms = now_ms(w),
                                    .deadline_ms = now_ms(w) + within_ms,
                                    .attempt_ms = ATTEMPT_MS,
                                    .ask_ms = ASK_MS,
                                    .seed = web.seed};
}

/* ---- taking and keeping ---- */

void web_worker_has(struct web_client *w)
{
    w->c->holding = true;
    if (w->c->token != 0) {
        web_note("grant", w->number, "Client %u knows that it has the lock, with token %llu.",
                 w->number, (unsigned long long)w->c->token);
    } else {
        web_note("grant", w->number, "Client %u knows that it has the lock. There is no token.",
                 w->number);
    }
    turn_to(w, WEB_HOLDS, SETTLE_MS);
}

static void acquired(struct sim_client *c, struct sim_lane *l, int status)
{
    struct web_client *w = worker_of(c);
    if (status != 0) {
        web_note("none", w->number, "Client %u does not get the lock: %s.", w->number,
                 fl_err_name(status));
        w->outcome = WEB_GAVE_UP;
        turn_to(w, WEB_DONE, 0);
        return;
    }
    struct fli_lease_config config = {.ttl_ms = WEB_TTL_MS,
                                      .lease_until_ms = l->call_state.lease_until_ms};
    fli_lease_init(&c->lease, &config);
    c->token = l->token;
    c->lock = WEB_LOCK;
    c->mask = 1u << WEB_LOCK;
    web_worker_has(w);
}

static void acquire(struct web_client *w)
{
    w->owner = sim_oracle_new_owner(web.s);
    struct sim_lane *l =
        sim_client_prepare(w->c, SIM_LANE_MAIN, MACHINE_OP_ACQUIRE, WEB_LOCK, w->owner);
    sim_client_ask_for(l, 1u << WEB_LOCK, 1);
    l->command.ttl_ms = WEB_TTL_MS;
    l->command.flags |= MACHINE_ACQUIRE_WAIT;
    l->command.wait_ms = WAIT_MS;
    struct fli_call_config config = plan(w, FLI_REPEAT_WRITE, WAIT_MS + RELEASE_MS);
    config.wait_ms = WAIT_MS;
    config.ttl_ms = WEB_TTL_MS;
    config.confirm = true;
    l->done = acquired;
    sim_lane_start(l, &config);
}

static void renewed(struct sim_client *c, struct sim_lane *l, int status)
{
    if (c->holding && c->lease.renewing) {
        uint64_t until_ms = status == 0 ? l->call_state.lease_until_ms : 0;
        fli_lease_renewal_ended(&c->lease, sim_client_now(c), status, until_ms);
    }
    sim_client_act(c);
}

static void renew(struct web_client *w)
{
    struct sim_client *c = w->c;
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_RENEW, MACHINE_OP_RENEW, WEB_LOCK, 0);
    l->command.token = c->token;
    l->command.ttl_ms = WEB_TTL_MS;
    struct fli_call_config config =
        plan(w, FLI_REPEAT_WRITE, fli_lease_remaining_ms(&c->lease, now_ms(w)));
    config.ttl_ms = WEB_TTL_MS;
    l->done = renewed;
    fli_lease_renewal_began(&c->lease);
    sim_lane_start(l, &config);
}

bool web_worker_begin(struct web_client *w)
{
    if ((w->phase != WEB_IDLE && w->phase != WEB_DONE) || w->c->lanes[SIM_LANE_MAIN].active ||
        w->c->lanes[SIM_LANE_RENEW].active || w->c->paused) {
        return false;
    }
    w->redlock = web.redlock;
    w->outcome = WEB_NONE;
    w->silent = false;
    w->asks_again = false;
    w->c->token = 0;
    w->value = 0;
    web_note("ask", w->number, "Client %u asks for the lock, for %u seconds.", w->number,
             WEB_TTL_MS / 1000);
    turn_to(w, WEB_ASKS, 0);
    if (w->redlock) {
        web_quorum_begin(w);
    } else {
        acquire(w);
    }
    return true;
}

/* ---- letting go ---- */

static void released(struct sim_client *c, struct sim_lane *l, int status)
{
    struct web_client *w = worker_of(c);
    (void)l, (void)status;
    turn_to(w, WEB_DONE, 0);
}

static void let_go(struct web_client *w)
{
    bool had = believes(w);
    w->c->holding = false;
    if (w->redlock) {
        web_quorum_release(w);
        turn_to(w, WEB_DONE, 0);
        return;
    }
    fli_lease_end(&w->c->lease, FL_LOST_RELEASED);
    if (!had) {
        turn_to(w, WEB_DONE, 0);
        return;
    }
    turn_to(w, WEB_RELEASES, 0);
    struct sim_lane *l = sim_client_prepare(w->c, SIM_LANE_MAIN, MACHINE_OP_RELEASE, WEB_LOCK, 0);
    l->command.token = w->c->token;
    struct fli_call_config config = plan(w, FLI_REPEAT_WRITE, RELEASE_MS);
    config.no_is_uncertain = sim_words_no_is_uncertain(l->command.op);
    l->done = released;
    sim_lane_start(l, &config);
}

static void give_up(struct web_client *w)
{
    web_note("over", w->number, "Client %u looks at its lease: it is over. It gives up.",
             w->number);
    w->outcome = WEB_GAVE_UP;
    let_go(w);
}

/* ---- working ---- */

void web_worker_stored(const struct web_op *op)
{
    struct web_client *w = op->w;
    if (op->status != 0) {
        w->outcome = WEB_REFUSED;
        web_note("told", w->number,
                 "Client %u is told STALE: somebody came after it. Its work is not lost: it can "
                 "begin anew.",
                 w->number);
        let_go(w);
    } else if (op->write) {
        w->outcome = WEB_WRITTEN;
        web_note("told", w->number, "Client %u is told that its write was done.", w->number);
        let_go(w);
    } else {
        w->value = op->value;
        w->base = op->base;
        turn_to(w, WEB_COMPUTES, COMPUTE_MS);
    }
}

static void do_due(struct web_client *w)
{
    uint64_t token = w->c->token;
    switch (w->phase) {
    case WEB_HOLDS:
        turn_to(w, WEB_READS, 0);
        web_storage_send(w, false, web.claim && web.check ? token : 0, 0, 0);
        break;
    case WEB_COMPUTES:
        web_note("look", w->number,
                 "Client %u looks at its lease: %llu.%llu s are left. Next it writes.", w->number,
                 (unsigned long long)(web_lease_left(w) / 1000),
                 (unsigned long long)(web_lease_left(w) % 1000 / 100));
        turn_to(w, WEB_READY, READY_MS);
        break;
    case WEB_READY:
        if (!believes(w)) {
            web_note("late", w->number,
                     "Client %u has looked at its lease before. It does not know that the lease is "
                     "over, and sends its write.",
                     w->number);
        }
        turn_to(w, WEB_WRITES, 0);
        web_storage_send(w, true, token, w->base, w->value + w->adds);
        break;
    default:
        break;
    }
}

/* What a client does only while it holds: keeping the lease. */
static void keep(struct web_client *w)
{
    struct sim_client *c = w->c;
    if (w->redlock || !c->holding) {
        return;
    }
    bool lost = fli_lease_state(&c->lease, now_ms(w)) == FL_HOLD_LOST;
    if (!lost && !w->silent && fli_lease_wants_renewal(&c->lease, now_ms(w)) &&
        !c->lanes[SIM_LANE_RENEW].active) {
        renew(w);
    }
    uint64_t next_ms = fli_lease_next_ms(&c->lease);
    if (!lost && next_ms > now_ms(w)) {
        sim_client_alarm(c, next_ms);
    }
}

void web_worker_act(struct sim_client *c)
{
    struct web_client *w = worker_of(c);
    bool early = w->phase == WEB_HOLDS || w->phase == WEB_COMPUTES;
    if (w->phase == WEB_ASKS && w->redlock) {
        web_quorum_act(w);
        return;
    }
    keep(w);
    if (early && !believes(w)) {
        give_up(w);
    } else if (now_ms(w) >= c->next_at) {
        do_due(w);
    } else {
        sim_client_alarm(c, c->next_at);
    }
}

/* An outcome that became unknown, and the question that is asked again. */
void web_worker_watch(void)
{
    for (unsigned i = 0; i < WEB_CLIENTS; i++) {
        struct web_client *w = &web.clients[i];
        const struct sim_lane *l = &w->c->lanes[SIM_LANE_MAIN];
        if (w->phase == WEB_ASKS && l->active && l->call_state.unknown && !w->asks_again) {
            w->asks_again = true;
            web_note("unknown", w->number,
                     "UNCERTAIN: nobody can tell client %u whether it has the lock. It asks "
                     "again, under the same owner.",
                     w->number);
        }
    }
}

void web_workers_init(void)
{
    struct sim *s = web.s;
    s->clients_n = WEB_CLIENTS;
    for (unsigned i = 0; i < WEB_CLIENTS; i++) {
        struct sim_client *c = &s->clients[i];
        c->sim = s;
        c->index = i;
        c->role = SIM_WRITER;
        c->act = web_worker_act;
        c->random.state = web.seed * UINT64_C(0x9fb21c651e98df25) + i;
        c->alarm_at = SIM_NEVER;
        c->next_at = SIM_NEVER;
        sim_clock_set(s, &c->clock, 5000 + sim_client_below(c, 1u << 20), 0);
        for (unsigned k = 0; k < SIM_LANES; k++) {
            c->lanes[k].client = c;
            c->lanes[k].number = k;
        }
        web.clients[i] = (struct web_client){.c = c, .number = i + 1, .adds = 10 * (i + 1)};
    }
}
