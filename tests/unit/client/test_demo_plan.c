/* What a seed makes happen in `fencelock demo redlock`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/demo.h"

#define SEEDS 2000u

static void check_round(const struct demo_plan *p, const struct demo_round *r)
{
    assert_true(r->fault < DEMO_FAULTS);
    assert_true(r->first < p->writers && r->next < p->writers && r->first != r->next);
    assert_true(r->adds <= 1);
    assert_true(r->loses < DEMO_REDIS && r->away[0] < DEMO_REDIS && r->away[1] < DEMO_REDIS);
    /* Three servers hold the lock as it is taken; one of them and these two make a free quorum. */
    assert_true(r->loses != r->away[0] && r->loses != r->away[1] && r->away[0] != r->away[1]);
    if (r->fault == DEMO_CLOCK) {
        assert_int_equal(r->loses, 0); /* the one that runs under libfaketime */
    }
}

static void test_every_plan_can_be_carried_out(void **state)
{
    (void)state;
    unsigned seen[DEMO_FAULTS][2] = {{0}};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct demo_plan p;
        demo_plan_make(&p, seed, true);
        assert_true(p.seed == seed && p.writers >= 3 && p.writers <= DEMO_WRITERS_MAX);
        assert_true(p.rounds >= 2 && p.rounds <= DEMO_FAULTS);
        unsigned faults = 0;
        for (unsigned i = 0; i < p.rounds; i++) {
            check_round(&p, &p.round[i]);
            assert_int_equal(faults & (1u << p.round[i].fault), 0); /* each one once */
            faults |= 1u << p.round[i].fault;
            seen[p.round[i].fault][p.round[i].late_write_first ? 1 : 0]++;
        }
    }
    for (unsigned i = 0; i < DEMO_FAULTS; i++) {
        assert_true(seen[i][0] > SEEDS / 8 && seen[i][1] > SEEDS / 8);
    }
}

static void test_without_a_clock_that_jumps(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct demo_plan p;
        demo_plan_make(&p, seed, false);
        assert_true(p.rounds >= 2 && p.rounds <= DEMO_FAULTS - 1);
        for (unsigned i = 0; i < p.rounds; i++) {
            check_round(&p, &p.round[i]);
            assert_true(p.round[i].fault != DEMO_CLOCK);
        }
    }
}

static void test_a_seed_is_one_plan(void **state)
{
    (void)state;
    struct demo_plan a;
    struct demo_plan b;
    memset(&a, 0x11, sizeof a);
    memset(&b, 0x22, sizeof b);
    demo_plan_make(&a, 20261121, true);
    demo_plan_make(&b, 20261121, true);
    assert_int_equal(a.rounds, b.rounds);
    for (unsigned i = 0; i < a.rounds; i++) {
        assert_int_equal(a.round[i].fault, b.round[i].fault);
        assert_int_equal(a.round[i].first, b.round[i].first);
        assert_int_equal(a.round[i].next, b.round[i].next);
        assert_int_equal(a.round[i].late_write_first, b.round[i].late_write_first);
        assert_int_equal(a.round[i].loses, b.round[i].loses);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_plan_can_be_carried_out),
        cmocka_unit_test(test_without_a_clock_that_jumps),
        cmocka_unit_test(test_a_seed_is_one_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
