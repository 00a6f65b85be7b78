/* asker.c: clients that each ask one node, all the time, whatever role that node believes it has:
 * CHECK and SHOW of locks that others take, RENEW of tokens that have ended. So they reach a leader
 * that was cut off or stopped, and was replaced, in time; some of their requests wait in its socket
 * while it is stopped. oracle.c checks the answers like all others. */
#include "machine/batch.h"
#include "sim.h"

#define LATEST 12u /* tokens: of the last ones issued, some are held and some have just ended */

static uint64_t below(struct sim_client *c, uint64_t n)
{
    return sim_client_below(c, n);
}

static void asked(struct sim_client *c, struct sim_lane *l, int status)
{
    c->sim->marks->asked++;
    c->next_at = sim_client_now(c) + below(c, c->sim->options.think_ms / 2 + 10);
    sim_client_alarm(c, c->next_at);
}

/* Some requests have a timeout as long as a node may be stopped. */
static void ask(struct sim_client *c, struct sim_lane *l)
{
    bool query = MACHINE_OP_IS_QUERY(l->command.op);
    uint64_t patience_ms = sim_client_chance(c, 50) ? 20 + below(c, 200) : 500 + below(c, 4000);
    struct fli_call_config config =
        sim_client_plan(c, query ? FLI_REPEAT_READ : FLI_REPEAT_NEVER, patience_ms);
    config.start = c->place;
    config.attempt_ms = patience_ms;
    config.ask_ms = patience_ms;
    l->done = asked;
    sim_lane_start(l, &config);
}

static uint64_t some_token(struct sim_client *c)
{
    uint64_t newest = c->sim->oracle.token_max;
    uint64_t back = below(c, newest < LATEST ? newest : LATEST);
    return newest - back;
}

static void ask_something(struct sim_client *c)
{
    struct sim *s = c->sim;
    uint64_t dice = below(c, 100);
    uint64_t token = s->oracle.token_max == 0 ? 0 : some_token(c);
    const struct sim_token *t = token == 0 ? NULL : sim_oracle_token(s, token);
    bool of_lock = t != NULL && t->lease && t->mask < 1u << SIM_LOCKS;
    uint8_t op = MACHINE_OP_SHOW;
    unsigned lock = of_lock ? t->lock : (unsigned)below(c, SIM_LOCKS);
    if (of_lock && dice < 50) {
        op = MACHINE_OP_CHECK;
    } else if (of_lock && dice < 75 && t->ended_seq != 0) {
        op = MACHINE_OP_RENEW; /* RENEW of a held token would make its lease longer */
    }
    struct sim_lane *l = sim_client_prepare(c, SIM_LANE_MAIN, op, lock, 0);
    l->command.token = op == MACHINE_OP_SHOW ? 0 : token;
    ask(c, l);
}

void sim_asker_act(struct sim_client *c)
{
    if (c->lanes[SIM_LANE_MAIN].active || c->sim->healed) {
        return;
    }
    if (sim_client_now(c) < c->next_at) {
        sim_client_alarm(c, c->next_at);
    } else {
        ask_something(c);
    }
}
