/* test_share.c: who gives up first, against a search through everybody. */
#include "../../lib/rng.h"

#include "base/share.h"

#define SHARERS 50u

static struct fli_share *search(struct fli_share *all)
{
    struct fli_share *most = NULL;
    for (unsigned i = 0; i < SHARERS; i++) {
        bool more = most == NULL || all[i].has > most->has ||
                    (all[i].has == most->has && all[i].id < most->id);
        most = all[i].has > 0 && more ? &all[i] : most;
    }
    return most;
}

TEST(test_against_a_search)
{
    uint64_t rng = rng_seed();
    struct fli_shares s;
    struct fli_share all[SHARERS];
    fli_shares_init(&s);
    assert_null(fli_shares_most(&s));
    for (unsigned i = 0; i < SHARERS; i++) {
        fli_share_init(&all[i], i * 7919 % SHARERS);
    }
    for (unsigned i = 0; i < 20000; i++) {
        struct fli_share *one = &all[rng_below(&rng, SHARERS)];
        if (one->has > 0 && rng_below(&rng, 2) == 0) {
            fli_share_give_back(&s, one, 1 + rng_below(&rng, one->has));
        } else {
            assert_int_equal(fli_share_take(&s, one, 1 + rng_below(&rng, 4)), 0);
        }
        assert_ptr_equal(fli_shares_most(&s), search(all));
    }
    for (unsigned i = 0; i < SHARERS; i++) {
        if (all[i].has > 0) {
            fli_share_give_back(&s, &all[i], all[i].has);
        }
    }
    fli_shares_fini(&s);
}

/* What whoever has the most gives up never leaves anybody else with less than an equal share. */
TEST(test_an_equal_share_stays)
{
    uint64_t rng = rng_seed();
    struct fli_shares s;
    struct fli_share all[4];
    fli_shares_init(&s);
    for (unsigned i = 0; i < 4; i++) {
        fli_share_init(&all[i], i);
    }
    for (unsigned i = 0; i < 25; i++) {
        assert_int_equal(fli_share_take(&s, &all[1], 1), 0);
    }
    for (unsigned i = 0; i < 10000; i++) {
        unsigned flooder = rng_below(&rng, 2) == 0 ? 0 : 2 + (unsigned)rng_below(&rng, 2);
        assert_int_equal(fli_share_take(&s, &all[flooder], 1), 0);
        while (s.taken > 100) {
            fli_share_give_back(&s, fli_shares_most(&s), 1);
        }
        assert_int_equal(all[1].has, 25);
    }
    for (unsigned i = 0; i < 4; i++) {
        if (all[i].has > 0) {
            fli_share_give_back(&s, &all[i], all[i].has);
        }
    }
    fli_shares_fini(&s);
}
