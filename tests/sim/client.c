/* client.c: what all clients share: their time, making calls, their start and end.
 *
 * Each client prefers other kinds of locks: a lock alone, several together, one in shared mode, a
 * permit of a semaphore, a session with locks in it. */
#include <string.h>

#include "machine/batch.h"
#include "sim.h"

#define VALUE_LEN                                                                                  \
    1000u /* for requests that should fill the memory that a node may use for
                           them */

static const uint8_t value[VALUE_LEN];

uint64_t sim_client_below(struct sim_client *c, uint64_t n)
{
    return sim_draw_below(&c->random, n);
}

bool sim_client_chance(struct sim_client *c, unsigned percent)
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

void sim_client_resume(struct sim_client *c)
{
    struct sim *s = c->sim;
    struct sim_event *d;
    c->paused = false;
    SIM_TRACE(s, "client %u goes on", c->index);
    while ((d = sim_inbox_pop(&c->deferred)) != NULL) {
        d->deliver(d);
        sim_drop(s, d);
    }
    sim_client_act(c);
}

static void resume_fire(struct sim *s, struct sim_event *e)
{
    struct sim_client *c = e->client;
    sim_drop(s, e);
    sim_client_resume(c);
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

void sim_client_rest(struct sim_client *c)
{
    c->next_at = sim_client_now(c) + sim_client_below(c, c->sim->options.think_ms + 1);
    sim_client_alarm(c, c->next_at);
}

/* ---- calls ---- */

static struct fli_slice text(const char *t)
{
    return (struct fli_slice){(const uint8_t *)t, strlen(t)};
}

struct sim_lane *sim_client_prepare(struct sim_client *c, unsigned lane, uint8_t op, unsigned lock,
                                    uint64_t owner)
{
    struct sim_lane *l = &c->lanes[lane];
    l->lock = lock;
    l->mask = 1u << lock;
    l->owner_number = owner;
    l->token = 0;
    l->attempt = 0;
    l->half_close = false;
    sim_lock_name(lock, l->name);
    snprintf(l->owner, sizeof l->owner, "%020llu", (unsigned long long)owner);
    l->command = (struct machine_command){.op = op};
    switch (op) {
    case MACHINE_OP_ACQUIRE:
        l->command.name = text(l->name);
        l->command.owner = text(l->owner);
        break;
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_SESSION_CLOSE:
    case MACHINE_OP_SESSION_SHOW:
        l->command.owner = text(l->owner);
        break;
    default:
        l->command.name = text(l->name);
        break;
    }
    return l;
}

struct sim_lane *sim_client_prepare_session(struct sim_client *c, uint64_t ttl_ms)
{
    c->session = sim_oracle_new_owner(c->sim);
    struct sim_owner *o = sim_oracle_owner(c->sim, c->session);
    o->ttl_ms = ttl_ms;
    o->delay_ms = sim_client_chance(c, 50) ? 0 : sim_client_below(c, 200);
    struct sim_lane *l =
        sim_client_prepare(c, SIM_LANE_MAIN, MACHINE_OP_SESSION_OPEN, 0, c->session);
    l->command.ttl_ms = ttl_ms;
    l->command.lockdelay_ms = o->delay_ms;
    return l;
}

/* The names, the lane's own lock first. */
static void name_all(struct sim_lane *l)
{
    size_t len = 0;
    for (unsigned i = 1; i < SIM_LOCKS; i++) {
        unsigned k = (l->lock + i) % SIM_LOCKS;
        if ((l->mask >> k & 1) != 0) {
            char name[3];
            sim_lock_name(k, name);
            l->also[len++] = 2;
            memcpy(l->also + len, name, 2);
            len += 2;
        }
    }
    l->command.n_names = (uint8_t)__builtin_popcount(l->mask);
    l->command.also = (struct fli_slice){l->also, len};
}

void sim_client_ask_for(struct sim_lane *l, unsigned mask, uint32_t slots)
{
    struct sim *s = l->client->sim;
    struct sim_owner *o = sim_oracle_owner(s, l->owner_number);
    bool in_session = o->ttl_ms != 0;
    FLI_ASSERT((mask >> l->lock & 1) != 0 && l->lock < SIM_LOCKS);
    if (in_session && o->asked[l->lock].mask != 0) {
        mask = o->asked[l->lock].mask;
        slots = o->asked[l->lock].slots;
    }
    for (unsigned k = 0; k < SIM_LOCKS; k++) {
        if (k == l->lock || (!in_session && (mask >> k & 1) != 0)) {
            o->asked[k].mask = mask;
            o->asked[k].slots = slots;
        }
    }
    l->mask = mask;
    l->command.mode = slots == SIM_SHARED ? MACHINE_MODE_SHARED : MACHINE_MODE_EXCLUSIVE;
    l->command.permits = slots == SIM_SHARED ? 1 : slots;
    l->command.flags = in_session ? MACHINE_ACQUIRE_EXPLICIT : 0;
    name_all(l);
    if (s->options.pending_max < NODE_PENDING_MAX) {
        l->command.value = (struct fli_slice){value, sizeof value};
    }
}

struct fli_call_config sim_client_plan(struct sim_client *c, enum fli_call_repeat repeat,
                                       uint64_t within_ms)
{
    uint64_t now_ms = sim_client_now(c);
    struct fli_call_config config = {
        .repeat = repeat, .nodes = c->sim->n, .now_ms = now_ms, .deadline_ms = now_ms + within_ms};
    config.start = (uint32_t)sim_client_below(c, c->sim->n);
    unsigned loyal = c->role == SIM_CALLER ? c->sim->options.loyal_percent : 0;
    if (loyal != 0 && sim_client_chance(c, loyal)) {
        config.nodes = 1;
        config.start = 0;
        c->sim->marks->loyal++;
    }
    config.attempt_ms = 200 + sim_client_below(c, 800);
    config.ask_ms = 20 + sim_client_below(c, 200);
    config.seed = sim_draw(&c->random);
    return config;
}

uint32_t sim_client_permits(struct sim_client *c, unsigned lock)
{
    uint32_t usual = 2 + lock % 2;
    return sim_client_chance(c, 92) ? usual : 1 + (uint32_t)sim_client_below(c, 4);
}

unsigned sim_client_some_of(struct sim_client *c, unsigned mask)
{
    unsigned lock = (unsigned)sim_client_below(c, SIM_ALL_LOCKS);
    while ((mask >> lock & 1) == 0) {
        lock = (lock + 1) % SIM_ALL_LOCKS;
    }
    return lock;
}

/* ---- all of them ---- */

void sim_client_act(struct sim_client *c)
{
    if (c->paused) {
        return;
    }
    c->act(c);
}

/* Chooses its kinds of locks: some clients take only single locks, some take a few of every
 * kind. */
static void choose_taste(struct sim_client *c)
{
    if (sim_client_chance(c, 35)) {
        return;
    }
    c->taste.together = (unsigned)sim_client_below(c, 30);
    c->taste.shared = (unsigned)sim_client_below(c, 25);
    c->taste.permits = (unsigned)sim_client_below(c, 25);
    c->taste.session = (unsigned)sim_client_below(c, 40);
}

void sim_clients_start(struct sim *s)
{
    static void (*const acts[])(struct sim_client *) = {[SIM_WRITER] = sim_holder_act,
                                                        [SIM_CALLER] = sim_caller_act,
                                                        [SIM_REDLOCKER] = sim_redlock_act,
                                                        [SIM_ASKER] = sim_asker_act};
    const struct sim_options *o = &s->options;
    unsigned first_asker = o->writers + o->callers + o->redlockers;
    unsigned all = first_asker + o->askers;
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
                  : i < first_asker             ? SIM_REDLOCKER
                                                : SIM_ASKER;
        c->act = acts[c->role];
        c->place = i < first_asker ? 0 : i - first_asker;
        c->random.state = s->orders.seed * UINT64_C(0x9fb21c651e98df25) + i;
        c->alarm_at = SIM_NEVER;
        uint64_t local_ms = 5000 + sim_client_below(c, 1u << 30);
        int64_t ppm = (int64_t)sim_client_below(c, (uint64_t)o->ppm_max * 2 + 1) - o->ppm_max;
        sim_clock_set(s, &c->clock, local_ms, ppm);
        for (unsigned k = 0; k < SIM_LANES; k++) {
            c->lanes[k].client = c;
            c->lanes[k].number = k;
        }
        choose_taste(c);
        sim_client_rest(c);
    }
}

bool sim_clients_done(struct sim *s)
{
    for (unsigned i = 0; i < s->clients_n; i++) {
        struct sim_client *c = &s->clients[i];
        if (c->paused || c->holding || c->keeping || c->lanes[0].active || c->lanes[1].active ||
            c->attempting) {
            return false;
        }
    }
    return true;
}

/* A client that waits for no answer has set an alarm; without an alarm it would do nothing more. */
void sim_clients_awake(struct sim *s)
{
    for (unsigned i = 0; i < s->clients_n; i++) {
        const struct sim_client *c = &s->clients[i];
        bool busy = c->paused || c->lanes[0].active || c->lanes[1].active || c->attempting;
        SIM_CHECK(s, busy || c->alarm_at != SIM_NEVER, "client %u does nothing any more", i);
    }
}

void sim_clients_describe(struct sim *s, FILE *out)
{
    static const char *const roles[] = {"writer", "caller", "redlock", "asker"};
    static const char *const wants[] = {"connect", "send",  "answer", "probe",
                                        "ask",     "sleep", "nothing"};
    for (unsigned i = 0; i < s->clients_n; i++) {
        struct sim_client *c = &s->clients[i];
        fprintf(out, "  client %u (%s)%s:", i, roles[c->role], c->paused ? " paused" : "");
        if (c->keeping) {
            fprintf(out, " session %llu;", (unsigned long long)c->session);
        }
        if (c->holding) {
            fprintf(out, " holds lock %u with token %llu;", c->lock, (unsigned long long)c->token);
        }
        for (unsigned k = 0; k < SIM_LANES; k++) {
            struct sim_lane *l = &c->lanes[k];
            if (l->active) {
                fprintf(out, " call %u about %s, wants %s of node %u, since %llu ms;",
                        l->command.op, l->name, wants[l->call_state.order.want],
                        l->call_state.order.node + 1, (unsigned long long)(s->now - l->first_at));
            }
        }
        fputc('\n', out);
    }
}
