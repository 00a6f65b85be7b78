/* test_lease.c: what a holder may believe (client/lease.h): tables of its states, and random
 * schedules against a server whose leases follow the rule of the lock machine. */
#include "rng.h"

#include "client/call_state.h"
#include "client/lease.h"

#define SENT_MS UINT64_C(1000000)
#define TTL_MS UINT64_C(9000)
#define MARGIN_MS UINT64_C(92) /* of that TTL */

static struct fli_lease lease_of(uint64_t reserve_ms, uint64_t max_hold_ms)
{
    const struct fli_lease_config config = {.ttl_ms = TTL_MS,
                                            .lease_until_ms = fli_lease_until(SENT_MS, TTL_MS),
                                            .reserve_ms = reserve_ms,
                                            .max_hold_ms = max_hold_ms};
    struct fli_lease h;
    fli_lease_init(&h, &config);
    return h;
}

static void renew(struct fli_lease *h, uint64_t sent_ms, uint64_t answered_ms, int status)
{
    assert_true(fli_lease_wants_renewal(h, sent_ms));
    fli_lease_renewal_began(h);
    fli_lease_renewal_ended(h, answered_ms, status,
                            status == 0 ? fli_lease_until(sent_ms, TTL_MS) : 0);
}

static void expect(struct fli_lease *h, uint64_t now_ms, enum fl_hold_state state,
                   enum fl_lost_reason reason)
{
    assert_int_equal(fli_lease_state(h, now_ms), state);
    assert_int_equal(h->reason, reason);
}

TEST(test_states_without_renewal)
{
    struct fli_lease h = lease_of(0, 0);
    expect(&h, SENT_MS, FL_HOLD_SAFE, FL_LOST_NOT);
    assert_int_equal(fli_lease_next_ms(&h), SENT_MS + TTL_MS / 3);
    assert_int_equal(fli_lease_remaining_ms(&h, SENT_MS), TTL_MS - MARGIN_MS);
    assert_false(fli_lease_wants_renewal(&h, SENT_MS + TTL_MS / 3 - 1));
    assert_true(fli_lease_wants_renewal(&h, SENT_MS + TTL_MS / 3));
    fli_lease_renewal_began(&h);
    assert_false(fli_lease_wants_renewal(&h, SENT_MS + TTL_MS / 3));
    assert_int_equal(fli_lease_next_ms(&h), SENT_MS + TTL_MS / 2);
    expect(&h, SENT_MS + TTL_MS / 2 - 1, FL_HOLD_SAFE, FL_LOST_NOT);
    expect(&h, SENT_MS + TTL_MS / 2, FL_HOLD_JEOPARDY, FL_LOST_NOT);
    assert_int_equal(fli_lease_next_ms(&h), SENT_MS + TTL_MS - MARGIN_MS);
    expect(&h, SENT_MS + TTL_MS - MARGIN_MS - 1, FL_HOLD_JEOPARDY, FL_LOST_NOT);
    assert_int_equal(fli_lease_remaining_ms(&h, SENT_MS + TTL_MS - MARGIN_MS - 1), 1);
    expect(&h, SENT_MS + TTL_MS - MARGIN_MS, FL_HOLD_LOST, FL_LOST_DEADLINE);
    assert_int_equal(fli_lease_next_ms(&h), FLI_LEASE_NEVER);
    assert_int_equal(fli_lease_remaining_ms(&h, SENT_MS), 0);
}

TEST(test_a_renewal_starts_the_count_anew)
{
    struct fli_lease h = lease_of(0, 0);
    uint64_t sent_ms = SENT_MS + TTL_MS / 3;
    renew(&h, sent_ms, sent_ms + 5, 0);
    assert_int_equal(fli_lease_next_ms(&h), sent_ms + TTL_MS / 3);
    assert_int_equal(h.deadline_ms, sent_ms + TTL_MS - MARGIN_MS);
    expect(&h, SENT_MS + TTL_MS / 2, FL_HOLD_SAFE, FL_LOST_NOT);
}

TEST(test_a_late_answer_counts_from_its_sending)
{
    struct fli_lease h = lease_of(0, 0);
    uint64_t sent_ms = SENT_MS + TTL_MS / 3;
    fli_lease_renewal_began(&h);
    expect(&h, SENT_MS + TTL_MS / 2, FL_HOLD_JEOPARDY, FL_LOST_NOT);
    fli_lease_renewal_ended(&h, sent_ms + TTL_MS / 2 + 1, 0, fli_lease_until(sent_ms, TTL_MS));
    assert_int_equal(h.deadline_ms, sent_ms + TTL_MS - MARGIN_MS);
    expect(&h, sent_ms + TTL_MS / 2 + 1, FL_HOLD_JEOPARDY, FL_LOST_NOT);
    renew(&h, sent_ms + TTL_MS / 2 + 1, sent_ms + TTL_MS / 2 + 2, 0);
    expect(&h, sent_ms + TTL_MS / 2 + 2, FL_HOLD_SAFE, FL_LOST_NOT);
}

TEST(test_a_failed_renewal_is_jeopardy_and_is_tried_again)
{
    static const int codes[] = {FL_ENOLEADER, FL_ENOCONN, FL_ETIMEOUT, FL_EUNCERTAIN,
                                FL_EBUSY,     FL_EINVAL,  FL_EPROTO,   FL_ENOMEM};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        struct fli_lease h = lease_of(0, 0);
        uint64_t sent_ms = SENT_MS + TTL_MS / 3;
        renew(&h, sent_ms, sent_ms + 10, codes[i]);
        expect(&h, sent_ms + 10, FL_HOLD_JEOPARDY, FL_LOST_NOT);
        assert_int_equal(h.deadline_ms, SENT_MS + TTL_MS - MARGIN_MS);
        uint64_t again_ms = fli_lease_next_ms(&h);
        assert_true(again_ms > sent_ms + 10 && again_ms <= sent_ms + 10 + TTL_MS / 10);
        renew(&h, again_ms, again_ms + 1, 0);
        expect(&h, again_ms + 1, FL_HOLD_SAFE, FL_LOST_NOT);
    }
}

TEST(test_a_refused_renewal_is_lost_at_once)
{
    static const int codes[] = {FL_ENOTHELD, FL_ENOSESSION};
    for (size_t i = 0; i < 2; i++) {
        struct fli_lease h = lease_of(0, 0);
        renew(&h, SENT_MS + TTL_MS / 3, SENT_MS + TTL_MS / 3 + 1, codes[i]);
        expect(&h, SENT_MS + TTL_MS / 3 + 1, FL_HOLD_LOST, FL_LOST_TAKEN);
    }
}

TEST(test_lost_is_for_ever)
{
    struct fli_lease h = lease_of(0, 0);
    uint64_t sent_ms = SENT_MS + TTL_MS / 3;
    fli_lease_renewal_began(&h);
    /* The holder was stopped; the answer, good as it is, is seen after the old deadline. */
    fli_lease_renewal_ended(&h, SENT_MS + TTL_MS, 0, fli_lease_until(sent_ms, TTL_MS));
    expect(&h, SENT_MS + TTL_MS, FL_HOLD_LOST, FL_LOST_DEADLINE);
    expect(&h, SENT_MS, FL_HOLD_LOST, FL_LOST_DEADLINE);
    assert_false(fli_lease_wants_renewal(&h, SENT_MS + TTL_MS));
    fli_lease_end(&h, FL_LOST_RELEASED);
    expect(&h, SENT_MS, FL_HOLD_LOST, FL_LOST_DEADLINE);
}

TEST(test_reserve)
{
    struct fli_lease h = lease_of(1000, 0);
    expect(&h, SENT_MS + TTL_MS - MARGIN_MS - 1001, FL_HOLD_JEOPARDY, FL_LOST_NOT);
    expect(&h, SENT_MS + TTL_MS - MARGIN_MS - 1000, FL_HOLD_LOST, FL_LOST_DEADLINE);
    h = lease_of(1000, 0);
    renew(&h, SENT_MS + 3000, SENT_MS + 3001, 0);
    assert_int_equal(h.deadline_ms, SENT_MS + 3000 + TTL_MS - MARGIN_MS - 1000);
}

TEST(test_max_hold)
{
    struct fli_lease h = lease_of(0, TTL_MS + 1000);
    uint64_t sent_ms = SENT_MS + TTL_MS / 3;
    renew(&h, sent_ms, sent_ms + 1, 0);
    /* The lease is longer than what is left of max_hold: no more renewals, and no jeopardy. */
    assert_int_equal(h.deadline_ms, SENT_MS + TTL_MS + 1000);
    assert_false(fli_lease_wants_renewal(&h, SENT_MS + TTL_MS));
    assert_int_equal(fli_lease_next_ms(&h), SENT_MS + TTL_MS + 1000);
    expect(&h, SENT_MS + TTL_MS + 999, FL_HOLD_SAFE, FL_LOST_NOT);
    expect(&h, SENT_MS + TTL_MS + 1000, FL_HOLD_LOST, FL_LOST_MAX_HOLD);
    h = lease_of(0, 1);
    expect(&h, SENT_MS, FL_HOLD_SAFE, FL_LOST_NOT);
    expect(&h, SENT_MS + 1, FL_HOLD_LOST, FL_LOST_MAX_HOLD);
}

TEST(test_smallest_and_largest_ttl)
{
    static const uint64_t ttls[] = {FL_TTL_MIN_MS, FL_TTL_MAX_MS};
    for (size_t i = 0; i < 2; i++) {
        const struct fli_lease_config config = {.ttl_ms = ttls[i],
                                                .lease_until_ms = fli_lease_until(0, ttls[i])};
        struct fli_lease h;
        fli_lease_init(&h, &config);
        assert_int_equal(fli_lease_next_ms(&h), ttls[i] / 3);
        expect(&h, ttls[i] / 2 - 1, FL_HOLD_SAFE, FL_LOST_NOT);
        expect(&h, ttls[i] / 2, FL_HOLD_JEOPARDY, FL_LOST_NOT);
        expect(&h, ttls[i] - ttls[i] / 100 - 2, FL_HOLD_LOST, FL_LOST_DEADLINE);
    }
}

/* ---- random schedules ------------------------------------------------------------------------ */

/* True time is in microseconds. The client's clock has an offset and is slower than true time by up
 * to half a percent, the server's is faster by as much; both show whole milliseconds. */
struct world {
    uint64_t rng;
    uint64_t now_us;
    uint64_t client_offset_ms;
    uint64_t client_slow; /* in 1/10000 */
    uint64_t server_fast; /* in 1/10000 */
    uint64_t ttl_ms;
    uint64_t server_until_ms; /* the lease, by the server's clock: renewal takes the larger one */
    bool server_ended;
    /* one renewal on its way */
    bool asking;
    bool applied;
    uint64_t apply_us, answer_us, sent_ms; /* when; answer 0: never */
    int answer;
};

static uint64_t client_ms(const struct world *w)
{
    return w->client_offset_ms + (w->now_us - w->now_us / 10000 * w->client_slow) / 1000;
}

static uint64_t server_ms(const struct world *w)
{
    return (w->now_us + w->now_us / 10000 * w->server_fast) / 1000;
}

static void server_runs(struct world *w)
{
    if (server_ms(w) >= w->server_until_ms) {
        w->server_ended = true;
    }
    if (!w->asking || w->applied || w->now_us < w->apply_us) {
        return;
    }
    w->applied = true;
    if (w->server_ended) {
        w->answer = FL_ENOTHELD;
        return;
    }
    uint64_t until_ms = server_ms(w) + w->ttl_ms;
    w->server_until_ms = until_ms > w->server_until_ms ? until_ms : w->server_until_ms;
    w->answer = 0;
}

/* Sends a renewal whose request and answer take their time, or get lost. */
static void client_asks(struct world *w, struct fli_lease *h)
{
    uint64_t most_us = w->ttl_ms * 1000;
    fli_lease_renewal_began(h);
    w->asking = true;
    w->applied = false;
    w->sent_ms = client_ms(w);
    w->apply_us = w->now_us + rng_below(&w->rng, rng_below(&w->rng, 3) == 0 ? most_us : 2000);
    w->answer_us =
        rng_below(&w->rng, 4) == 0
            ? 0
            : w->apply_us + rng_below(&w->rng, rng_below(&w->rng, 3) == 0 ? most_us : 2000);
}

static void client_hears(struct world *w, struct fli_lease *h)
{
    uint64_t now_ms = client_ms(w);
    bool gives_up = rng_below(&w->rng, 50) == 0;
    if (w->answer_us != 0 && w->applied && w->now_us >= w->answer_us) {
        w->asking = false;
        fli_lease_renewal_ended(h, now_ms, w->answer,
                                w->answer == 0 ? fli_lease_until(w->sent_ms, w->ttl_ms) : 0);
    } else if (gives_up) {
        w->asking = false; /* the request may still be applied; here it is as if it had not been */
        fli_lease_renewal_ended(h, now_ms, FL_EUNCERTAIN, 0);
    }
}

static void one_schedule(uint64_t *seeds, uint64_t *lost, uint64_t *renewed)
{
    static const uint64_t ttls[] = {10, 30, 100, 1000, 10000, 600000};
    struct world w = {.rng = rng_next(seeds), .now_us = UINT64_C(1000000000)};
    w.client_offset_ms = rng_below(&w.rng, UINT64_C(1) << 40);
    w.client_slow = rng_below(&w.rng, 48);
    w.server_fast = rng_below(&w.rng, 48);
    w.ttl_ms = ttls[rng_below(&w.rng, sizeof ttls / sizeof ttls[0])];
    uint64_t sent_ms = client_ms(&w);
    w.now_us += rng_below(&w.rng, w.ttl_ms * 500);
    w.server_until_ms = server_ms(&w) + w.ttl_ms; /* granted */
    w.now_us += rng_below(&w.rng, w.ttl_ms * 500);
    server_runs(&w);
    const struct fli_lease_config config = {
        .ttl_ms = w.ttl_ms,
        .lease_until_ms = fli_lease_until(sent_ms, w.ttl_ms),
        .reserve_ms = rng_below(&w.rng, 2) == 0 ? 0 : rng_below(&w.rng, w.ttl_ms / 2),
        .max_hold_ms = rng_below(&w.rng, 4) == 0 ? 1 + rng_below(&w.rng, w.ttl_ms * 5) : 0,
    };
    struct fli_lease h;
    fli_lease_init(&h, &config);
    enum fl_hold_state before = h.state;
    for (int step = 0; step < 300 && before != FL_HOLD_LOST; step++) {
        enum fl_hold_state now = fli_lease_state(&h, client_ms(&w));
        /* The oracle: while the client believes, nobody else can have been granted the lock. */
        if (now != FL_HOLD_LOST && w.server_ended) {
            fail_msg("believed after the server's lease had ended: ttl %llu, step %d",
                     (unsigned long long)w.ttl_ms, step);
        }
        assert_int_equal(fli_lease_remaining_ms(&h, client_ms(&w)) > 0, now != FL_HOLD_LOST);
        before = now;
        if (w.asking) {
            client_hears(&w, &h);
            *renewed += !w.asking && h.state == FL_HOLD_SAFE;
        } else if (fli_lease_wants_renewal(&h, client_ms(&w))) {
            client_asks(&w, &h);
        }
        /* Mostly a little, sometimes a long stop in which the server goes on. */
        uint64_t step_us = rng_below(&w.rng, 40) == 0 ? w.ttl_ms * 2000 : w.ttl_ms * 20 + 1;
        uint64_t end_us = w.now_us + rng_below(&w.rng, step_us);
        uint64_t apply_us = w.asking && !w.applied && w.apply_us < end_us ? w.apply_us : end_us;
        w.now_us = apply_us > w.now_us ? apply_us : w.now_us;
        server_runs(&w);
        w.now_us = end_us;
        server_runs(&w);
    }
    *lost += before == FL_HOLD_LOST;
}

TEST(test_never_believed_too_long)
{
    uint64_t seeds = rng_seed();
    uint64_t lost = 0;
    uint64_t renewed = 0;
    for (int i = 0; i < 50000; i++) {
        one_schedule(&seeds, &lost, &renewed);
    }
    /* The schedules reach both ends often enough. */
    assert_true(lost > 1000);
    assert_true(renewed > 20000);
}

/* Thousands of leases that began together are not renewed together; none is renewed late. They are
 * gathered: a client has few moments to wake at. */
TEST(test_renewals_are_spread_and_gathered)
{
    enum { LEASES = 2000, TTL = 60000, PARTS = 10, MOMENTS = 24 };
    unsigned at[PARTS] = {0};
    bool taken[TTL] = {false};
    unsigned moments = 0;
    for (uint64_t seed = 1; seed <= LEASES; seed++) {
        struct fli_lease h;
        const struct fli_lease_config config = {
            .ttl_ms = TTL, .lease_until_ms = fli_lease_until(1000, TTL), .seed = seed};
        fli_lease_init(&h, &config);
        uint64_t due_ms = fli_lease_next_ms(&h) - 1000;
        assert_in_range(due_ms, TTL / 6, TTL / 3);
        at[(due_ms - TTL / 6) * PARTS / (TTL / 6 + 1)]++;
        moments += !taken[due_ms];
        taken[due_ms] = true;
    }
    for (unsigned i = 0; i < PARTS; i++) {
        assert_in_range(at[i], LEASES / PARTS / 2, LEASES / PARTS * 2);
    }
    assert_in_range(moments, PARTS, MOMENTS);
}
