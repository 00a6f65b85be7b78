/* store.c: the storage. It keeps one value and one mark for each lock, checks every token by the
 * shipping rule, changes mark and value together, and never forgets either: a crash loses only
 * operations that it had not taken yet. A write may be held back until the next holder has read,
 * which is the worst moment. Or it is held back for seconds, and arrives at a storage that has
 * restarted meanwhile. */
#include <stdlib.h>

#include "fence/rule.h"
#include "sim.h"

#define RETRANSMIT_MS 40u
#define HELD_BACK_MAX_MS 6000u
#define ANY_LIFE SIM_NEVER /* it arrives even after the storage has restarted */

struct ask {
    struct sim_client *client;
    uint64_t op, token, base, value;
    unsigned lock;
    bool write;
    int status;
};

static struct sim_store_lock *lock_of(struct sim *s, const struct ask *a)
{
    return &s->store.locks[a->lock];
}

static void ask_drop(struct sim_event *e)
{
    free(e->p);
}

/* ---- answers ---- */

static void answer_deliver(struct sim_event *e)
{
    const struct ask *a = e->p;
    struct sim_client *c = e->client;
    if (c->asking && c->store_op == a->op) {
        sim_client_stored(c, a->write, a->status, a->value);
    }
}

static void answer(struct sim *s, struct ask *a)
{
    uint64_t ms = sim_net_delay(s, SIM_STORE_PLACE, SIM_STORE_PLACE);
    struct sim_event *e = sim_to_client(a->client, ms, answer_deliver);
    e->p = a;
    e->drop = ask_drop;
}

/* ---- the storage itself ---- */

static void release_held(struct sim *s, struct sim_store_lock *l);

static void execute(struct sim *s, const struct ask *from)
{
    struct ask *a = fli_xmalloc(sizeof *a);
    *a = *from;
    struct sim_store_lock *l = lock_of(s, a);
    fl_token mark = l->mark;
    bool unfenced = s->orders.sabotage == SIM_SABOTAGE_NO_FENCING || a->token == 0;
    a->status = unfenced ? 0 : fl_fence_judge(l->mark, a->token, &mark);
    FLI_ASSERT(a->status == 0 || a->status == FL_ESTALE);
    if (a->status == 0) {
        sim_oracle_stored(s, a->lock, a->token);
        l->mark = mark;
    }
    s->marks->writes_stale += a->write && a->status != 0;
    if (a->status == 0 && a->write) {
        SIM_TRACE(s, "storage: client %u writes %llu over %llu under lock %u, token %llu",
                  a->client->index, (unsigned long long)a->value, (unsigned long long)l->value,
                  a->lock, (unsigned long long)a->token);
        sim_oracle_written(s, a->client, l->value, a->base);
        l->value = a->value;
        s->marks->writes++;
    } else if (a->status == 0) {
        SIM_TRACE(s, "storage: client %u reads %llu under lock %u, token %llu", a->client->index,
                  (unsigned long long)l->value, a->lock, (unsigned long long)a->token);
        a->value = l->value;
        s->marks->claims++;
    } else {
        SIM_TRACE(s, "storage: client %u is refused under lock %u, token %llu is below %llu",
                  a->client->index, a->lock, (unsigned long long)a->token,
                  (unsigned long long)l->mark);
    }
    bool read = a->status == 0 && !a->write;
    answer(s, a);
    if (read) {
        release_held(s, l);
    }
}

static void arrive_fire(struct sim *s, struct sim_event *e)
{
    const struct ask *a = e->p;
    struct sim_store_lock *l = lock_of(s, a);
    if (l->held == e) {
        l->held = NULL;
    }
    if (sim_net_blocked(s, SIM_STORE_PLACE, SIM_STORE_PLACE)) {
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    if (!s->store.up && e->life == ANY_LIFE) {
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    if (!s->store.up || (e->life != s->store.life && e->life != ANY_LIFE)) {
        sim_drop(s, e); /* the stream has broken */
        return;
    }
    if (s->store.paused) {
        sim_inbox_push(&s->store.deferred, e);
        return;
    }
    execute(s, a);
    sim_drop(s, e);
}

/* The next holder has read: now the previous holder's write arrives. */
static void release_held(struct sim *s, struct sim_store_lock *l)
{
    struct sim_event *e = l->held;
    if (e == NULL) {
        return;
    }
    struct ask *copy = fli_xmalloc(sizeof *copy);
    *copy = *(const struct ask *)e->p;
    l->held = NULL;
    e->life = 0; /* the one that waits comes to nothing */
    struct sim_event *now = sim_after(s, 1 + sim_below(s, 3), arrive_fire);
    now->life = s->store.life;
    now->p = copy;
    now->drop = ask_drop;
}

void sim_store_ask(struct sim_client *c, bool write, uint64_t token, uint64_t base, uint64_t value)
{
    struct sim *s = c->sim;
    struct ask *a = fli_xmalloc(sizeof *a);
    *a = (struct ask){c, c->store_op, token, base, value, c->lock, write, 0};
    struct sim_store_lock *l = lock_of(s, a);
    uint64_t ms = sim_net_delay(s, SIM_STORE_PLACE, SIM_STORE_PLACE);
    bool hold = write && !s->healed && sim_draw_chance(&c->random, s->options.hold_back_percent);
    bool for_a_reader = hold && l->held == NULL && sim_draw_chance(&c->random, 60);
    if (hold) {
        ms = for_a_reader ? HELD_BACK_MAX_MS : sim_draw_below(&c->random, HELD_BACK_MAX_MS);
        s->marks->writes_held_back++;
    }
    struct sim_event *e = sim_after(s, ms, arrive_fire);
    e->p = a;
    e->drop = ask_drop;
    e->life = hold && !for_a_reader ? ANY_LIFE : s->store.life;
    if (for_a_reader) {
        l->held = e;
    }
}

/* ---- faults ---- */

static void up_fire(struct sim *s, struct sim_event *e)
{
    sim_drop(s, e);
    s->store.up = true;
}

void sim_store_crash(struct sim *s, uint64_t ms)
{
    struct sim_event *e;
    if (!s->store.up) {
        return;
    }
    s->store.up = false;
    s->store.life++;
    s->store.paused = false;
    while ((e = sim_inbox_pop(&s->store.deferred)) != NULL) {
        sim_drop(s, e);
    }
    for (unsigned i = 0; i < SIM_ALL_LOCKS; i++) {
        s->store.locks[i].held = NULL;
        if (s->orders.sabotage == SIM_SABOTAGE_FORGET_MARKS) {
            s->store.locks[i].mark = 0;
        }
    }
    s->marks->store_crashes++;
    sim_after(s, ms, up_fire);
}

static void resume_fire(struct sim *s, struct sim_event *e)
{
    struct sim_event *d;
    bool mine = e->life == s->store.life && s->store.paused;
    sim_drop(s, e);
    if (!mine) {
        return;
    }
    s->store.paused = false;
    while ((d = sim_inbox_pop(&s->store.deferred)) != NULL) {
        execute(s, d->p);
        sim_drop(s, d);
    }
}

void sim_store_pause(struct sim *s, uint64_t ms)
{
    if (!s->store.up || s->store.paused) {
        return;
    }
    s->store.paused = true;
    struct sim_event *e = sim_after(s, ms, resume_fire);
    e->life = s->store.life;
}

void sim_store_init(struct sim *s)
{
    s->store.up = true;
    s->store.life = 1;
}
