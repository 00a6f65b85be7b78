/* test_between.c: commands that come while work is left, over random batches with few steps.
 *
 * The model knows no steps, so here the machine is held against itself: every invariant after every
 * batch, a twin that was fed the same bytes, snapshots in the midst of the work, the steps that
 * each batch takes, and that a grant that was once said to be over is never said to be held again.
 * */
#include "fixture.h"
#include "machine/budget.h"
#include "random_run.h"

#define GRANTS 64u

struct loose {
    struct random_run w;
    struct {
        char name;
        uint64_t token;
        bool over;
    } grants[GRANTS];
    uint64_t n_grants;
    uint64_t n_over, n_behind;
};

static void note(void *ctx, const struct machine_event *e)
{
    struct loose *l = ctx;
    if (e->type == MACHINE_EVENT_GRANTED) {
        uint64_t i = l->n_grants++ % GRANTS;
        l->grants[i].name = (char)e->name.data[0];
        l->grants[i].token = e->token;
        l->grants[i].over = false;
    }
}

static struct machine_command any_loose(struct loose *l)
{
    struct machine_command c = random_any_command(&l->w);
    if (c.op == MACHINE_OP_RELEASE || c.op == MACHINE_OP_RENEW) {
        uint64_t i = random_below(&l->w, GRANTS);
        c.name = l->grants[i].name == 0 ? letter_slice('a') : letter_slice(l->grants[i].name);
        c.token = l->grants[i].token;
    }
    return c;
}

static void ask_all(struct loose *l)
{
    for (unsigned i = 0; i < GRANTS; i++) {
        if (l->grants[i].token == 0) {
            continue;
        }
        struct machine_command q = {.op = MACHINE_OP_CHECK,
                                    .name = letter_slice(l->grants[i].name),
                                    .token = l->grants[i].token};
        bool over = fixture_query(&l->w.k, q).code == MACHINE_NO;
        assert_true(over || !l->grants[i].over);
        l->n_over += over && !l->grants[i].over;
        l->grants[i].over = over;
    }
}

static void step_loosely(struct loose *l, const struct budget *budget)
{
    struct random_run *w = &l->w;
    w->k.clock_ms += random_below(w, 8) == 0 ? 100 : random_below(w, 12);
    w->k.flags = random_below(w, 12) == 0 ? MACHINE_BATCH_TERM_MARK : 0;
    fixture_start(&w->k);
    uint64_t cost = 0;
    for (uint64_t n = random_below(w, 12); n > 0; n--) {
        struct machine_command c = any_loose(l);
        cost += machine_command_cost(&c);
        fixture_add(&w->k, c);
    }
    cost -= w->k.count;
    fixture_give_up(&w->k);
    cost += w->k.count; /* a step each */
    size_t len = fixture_seal(&w->k);
    assert_int_equal(machine_apply(w->k.m, w->k.batch.data, len, NULL), 0);
    assert_int_equal(machine_apply(w->twin, w->k.batch.data, len, NULL), 0);
    assert_in_range(machine_spent(w->k.m), 0,
                    budget->due + budget->commands + cost + 2 * MACHINE_STEPS_OVER_MAX);
    machine_check(w->k.m);
    ask_all(l);
    l->n_behind += machine_has_work(w->k.m);
    if (random_below(w, 10) == 0) {
        fixture_reload(&w->k);
        machine_set_event_cb(w->k.m, note, l);
        machine_set_budget(w->k.m, budget);
    }
    assert_int_equal(machine_hash(w->k.m), machine_hash(w->twin));
}

static void run_loose_world(uint64_t seed, uint64_t steps, uint64_t *over, uint64_t *behind)
{
    struct loose l = {.w = {.rng = seed, .duration_factor = 1}};
    struct random_run *w = &l.w;
    fixture_init(&w->k);
    w->k.check = false;
    machine_set_event_cb(w->k.m, note, &l);
    w->twin = machine_create((const uint64_t[2]){rng_next(&w->rng), rng_next(&w->rng)});
    assert_int_equal(machine_apply(w->twin, w->k.batch.data, MACHINE_BATCH_HEADER_SIZE, NULL), 0);
    w->explicit_percent = (const uint64_t[]){20, 50, 98}[random_below(w, 3)];
    w->shared_percent = (const uint64_t[]){0, 40, 80}[random_below(w, 3)];
    w->semaphores = (const uint64_t[]){0, 1, 3}[random_below(w, 3)];
    w->multi_lock_percent = (const uint64_t[]){0, 25, 70}[random_below(w, 3)];
    model_init(&w->model);
    struct budget budget = {.due = 1 + (uint32_t)random_below(w, 40),
                            .commands = (uint32_t)random_below(w, 40),
                            .search_min = (uint32_t)random_below(w, 10),
                            .search_max = 10 + (uint32_t)random_below(w, 40)};
    machine_set_budget(w->k.m, &budget);
    machine_set_budget(w->twin, &budget);
    for (uint64_t i = 0; i < steps; i++) {
        step_loosely(&l, &budget);
    }
    fixture_drain(&w->k);
    machine_check(w->k.m);
    *over += l.n_over;
    *behind += l.n_behind;
    machine_destroy(w->twin);
    fixture_fini(&w->k);
}

TEST(test_commands_in_between)
{
    uint64_t rng = rng_seed();
    uint64_t over = 0;
    uint64_t behind = 0;
    for (uint64_t i = fixture_rounds(60); i > 0; i--) {
        run_loose_world(rng_next(&rng), 300, &over, &behind);
    }
    print_message("grants that were over: %llu; batches that left work: %llu\n",
                  (unsigned long long)over, (unsigned long long)behind);
    assert_true(over > 0 && behind > 0);
}
