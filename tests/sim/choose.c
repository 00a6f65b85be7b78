/* choose.c: options that are newer than the first seeds that the tests keep, as choose_more() of
 * faults.c. Each draws from a random number of its own, so that those seeds still give the same
 * runs. */
#include "sim.h"

static uint64_t pick(struct sim_random *r, uint64_t low, uint64_t high)
{
    return low + sim_draw_below(r, high - low + 1);
}

static void choose_dispatch(struct sim *s)
{
    struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 5};
    struct sim_random *r = &random;
    o->slack_ms = sim_draw_chance(r, 50) ? DISPATCH_SLACK_DEFAULT_MS : pick(r, 1000, 5000);
    o->calls_max = sim_draw_chance(r, 90) ? 0 : (size_t)pick(r, 2, 8);
}

/* With the number 946, no seed that the tests keep gets this fault, so they give the same runs. */
static void choose_members(struct sim *s)
{
    struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 946};
    struct sim_random *r = &random;
    o->weight[SIM_FAULT_MEMBER] = sim_draw_chance(r, 30) ? (unsigned)pick(r, 1, 12) : 0;
}

/* 3793 is chosen as 946 in choose_members(). */
static void choose_older(struct sim *s)
{
    struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 3793};
    struct sim_random *r = &random;
    o->weight[SIM_FAULT_OLDER] = sim_draw_chance(r, 25) ? (unsigned)pick(r, 1, 8) : 0;
}

/* One asker for each node. 1478 is chosen as 946 in choose_members(). */
static void choose_askers(struct sim *s)
{
    struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 1478};
    struct sim_random *r = &random;
    o->askers = sim_draw_chance(r, 35) ? o->nodes : 0;
}

/* 1826 is chosen as 946 in choose_members(). */
static void choose_loyalty(struct sim *s)
{
    struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 1826};
    o->loyal_percent = sim_draw_chance(&random, 20) ? (unsigned)pick(&random, 30, 100) : 0;
}

/* 896074 is chosen as 946 in choose_members(). */
static void choose_pipelines(struct sim *s)
{
    struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 896074};
    struct sim_random *r = &random;
    o->weight[SIM_FAULT_PIPELINE] = sim_draw_chance(r, 30) ? (unsigned)pick(r, 1, 12) : 0;
    unsigned late = (unsigned)pick(r, 2, 30);
    o->weight[SIM_FAULT_LATE] = o->weight[SIM_FAULT_PIPELINE] != 0 ? late : 0;
}

/* 282 is chosen as 946 in choose_members(). */
static void choose_starts(struct sim *s)
{
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 282};
    s->options.starts_fail = sim_draw_chance(&random, 15);
}

/* A long run always has snapshots and changes of members. */
static void choose_length(struct sim *s)
{
    struct sim_options *o = &s->options;
    if (s->orders.length == 0) {
        return;
    }
    o->snapshot_entries = o->snapshot_entries == 0 ? 40 : o->snapshot_entries;
    o->weight[SIM_FAULT_MEMBER] =
        o->weight[SIM_FAULT_MEMBER] == 0 ? 3 : o->weight[SIM_FAULT_MEMBER];
    o->think_ms = o->think_ms > 200 ? 200 : o->think_ms;
}

void sim_options_choose_more(struct sim *s)
{
    choose_dispatch(s);
    choose_members(s);
    choose_askers(s);
    choose_older(s);
    choose_loyalty(s);
    choose_pipelines(s);
    choose_starts(s);
    choose_length(s);
}
