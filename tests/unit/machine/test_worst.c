/* test_worst.c: looks for the batch that takes the most steps.
 *
 * A history is a row of numbers, each the seed of one command or of one step of time. Some are
 * changed at random; what takes no fewer steps in its worst batch is kept (a climb, with the steps
 * as its score). Steps a batch are few here, so that a small state reaches every ceiling. None may
 * be passed, and the search is of use only if it comes near the highest. */
#include "fixture.h"
#include "machine/budget.h"
#include "random_run.h"

#define GENES 300u
#define TRIES 400u
#define COST_MAX 400u

static const struct budget budget = {.due = 60, .commands = 60, .search_min = 5, .search_max = 25};
#define CEILING (60u + 60u + COST_MAX + 2u * MACHINE_STEPS_OVER_MAX)

struct climb {
    uint64_t genes[GENES];
    uint64_t rng;
    uint64_t score;
};

static uint64_t apply(struct random_run *w)
{
    size_t len = fixture_seal(&w->k);
    assert_int_equal(machine_apply(w->k.m, w->k.batch.data, len, NULL), 0);
    return machine_spent(w->k.m);
}

/* The steps of the worst batch of this history. Every tenth gene or so ends a batch. */
static uint64_t play(const uint64_t genes[GENES])
{
    struct random_run w = {.duration_factor = 1, .explicit_percent = 50, .shared_percent = 30};
    uint64_t worst = 0;
    uint64_t cost = 0;
    fixture_init(&w.k);
    w.k.check = false;
    machine_set_event_cb(w.k.m, NULL, NULL);
    machine_set_budget(w.k.m, &budget);
    model_init(&w.model);
    w.multi_lock_percent = 40;
    fixture_start(&w.k);
    for (unsigned i = 0; i < GENES; i++) {
        w.rng = genes[i];
        struct machine_command c = random_any_command(&w);
        if (c.op == MACHINE_OP_RELEASE || c.op == MACHINE_OP_RENEW) {
            c.token = 1 + random_below(&w, machine_last_token(w.k.m) + 1);
        }
        bool full = cost + machine_command_cost(&c) > COST_MAX;
        if (full || random_below(&w, 10) == 0) {
            uint64_t spent = apply(&w);
            assert_in_range(spent, 0, CEILING);
            worst = spent > worst ? spent : worst;
            w.k.clock_ms += random_below(&w, 4) == 0 ? 200 : 1;
            fixture_start(&w.k);
            cost = 0;
        }
        cost += machine_command_cost(&c);
        fixture_add(&w.k, c);
    }
    machine_check(w.k.m);
    fixture_fini(&w.k);
    return worst;
}

static uint64_t climb(uint64_t seed)
{
    struct climb now = {.rng = seed};
    for (unsigned i = 0; i < GENES; i++) {
        now.genes[i] = rng_next(&now.rng);
    }
    now.score = play(now.genes);
    for (unsigned i = 0; i < TRIES; i++) {
        struct climb next = now;
        for (uint64_t n = 1 + rng_below(&next.rng, 12); n > 0; n--) {
            uint64_t at = rng_below(&next.rng, GENES);
            uint64_t from = rng_below(&next.rng, GENES);
            next.genes[at] = rng_below(&next.rng, 2) == 0 ? next.genes[from] : rng_next(&next.rng);
        }
        next.score = play(next.genes);
        now.rng = next.rng;
        now = next.score >= now.score ? next : now;
    }
    return now.score;
}

TEST(test_climb)
{
    uint64_t rng = rng_seed();
    uint64_t best = 0;
    for (uint64_t i = fixture_rounds(5); i > 0; i--) {
        uint64_t score = climb(rng_next(&rng));
        best = score > best ? score : best;
    }
    print_message("worst batch found: %llu steps of %u\n", (unsigned long long)best, CEILING);
    assert_true(best >= COST_MAX);
}
