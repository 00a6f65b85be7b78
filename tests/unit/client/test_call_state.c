/* test_call_state.c: the state machine of a call, event by event, with no socket and no clock. */
#include "../../lib/unit.h"

#include "client/call_state.h"

#define START_MS UINT64_C(1000000)
#define TTL_MS UINT64_C(10000)

/* ---- helpers --------------------------------------------------------------------------------- */

static struct fli_call_config base_config(void)
{
    return (struct fli_call_config){.repeat = FLI_REPEAT_WRITE,
                                    .nodes = 3,
                                    .start = 0,
                                    .now_ms = START_MS,
                                    .deadline_ms = START_MS + 5000,
                                    .attempt_ms = 1000,
                                    .seed = 42};
}

static struct fli_call_config acquire_config(uint64_t wait_ms)
{
    struct fli_call_config c = base_config();
    c.ttl_ms = TTL_MS;
    c.confirm = true;
    c.wait_ms = wait_ms;
    c.deadline_ms += wait_ms;
    return c;
}

static void expect_order(const struct fli_call_state *f, enum fli_call_want want, uint32_t node,
                         uint64_t until_ms)
{
    assert_int_equal(f->order.want, want);
    assert_int_equal(f->order.node, node);
    assert_int_equal(f->order.until_ms, until_ms);
}

static void expect_end(const struct fli_call_state *f, int status)
{
    assert_int_equal(f->order.want, FLI_WANT_NOTHING);
    assert_int_equal(f->status, status);
}

/* From an ordered connect to an ordered answer, all at one moment. */
static void reach_answer(struct fli_call_state *f, uint64_t now_ms)
{
    assert_int_equal(f->order.want, FLI_WANT_CONNECT);
    fli_call_state_feed(f, now_ms, FLI_EVENT_CONNECTED, 0);
    assert_int_equal(f->order.want, FLI_WANT_SEND);
    fli_call_state_feed(f, now_ms, FLI_EVENT_SENT, 0);
    assert_int_equal(f->order.want, FLI_WANT_ANSWER);
}

/* Sleeps if that is the order, and gives the time after it. */
static uint64_t wake(struct fli_call_state *f, uint64_t now_ms)
{
    if (f->order.want == FLI_WANT_SLEEP) {
        assert_true(f->order.until_ms > now_ms);
        assert_true(f->order.until_ms <= now_ms + 500);
        now_ms = f->order.until_ms;
        fli_call_state_feed(f, now_ms, FLI_EVENT_WOKE, 0);
    }
    return now_ms;
}

/* ---- outcomes -------------------------------------------------------------------------------- */

TEST(test_yes)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    fli_call_state_init(&f, &c);
    expect_order(&f, FLI_WANT_CONNECT, 0, START_MS + 1000);
    fli_call_state_feed(&f, START_MS + 5, FLI_EVENT_CONNECTED, 0);
    expect_order(&f, FLI_WANT_SEND, 0, START_MS + 1005);
    fli_call_state_feed(&f, START_MS + 6, FLI_EVENT_SENT, 0);
    expect_order(&f, FLI_WANT_ANSWER, 0, START_MS + 1006);
    fli_call_state_feed(&f, START_MS + 7, FLI_EVENT_YES, 0);
    expect_end(&f, 0);
}

TEST(test_no)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_NO, 0);
    expect_end(&f, FL_ENOTHELD);
}

TEST(test_refused_is_final)
{
    static const int codes[] = {FL_ELIMIT, FL_EDEADLOCK, FL_EINVAL, FL_ESTALE, FL_EPROTO};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        struct fli_call_state f;
        struct fli_call_config c = base_config();
        fli_call_state_init(&f, &c);
        reach_answer(&f, START_MS);
        fli_call_state_feed(&f, START_MS, FLI_EVENT_REFUSED, codes[i]);
        expect_end(&f, codes[i]);
    }
}

TEST(test_refusal_after_an_unknown_try_is_uncertain)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_LOST, 0);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_REFUSED, FL_ELIMIT);
    expect_end(&f, FL_EUNCERTAIN);
}

TEST(test_a_refusal_by_a_node_alone_does_not_end_a_call_that_insists)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    c.insists = true;
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_REFUSED, FL_ELIMIT);
    assert_int_equal(f.order.want, FLI_WANT_SLEEP);
    uint64_t now_ms = wake(&f, START_MS);
    fli_call_state_feed(&f, now_ms, FLI_EVENT_REFUSED, FL_EINVAL); /* the connection is refused */
    assert_int_equal(f.order.want, FLI_WANT_SLEEP);
    now_ms = wake(&f, now_ms);
    reach_answer(&f, now_ms);
    fli_call_state_feed(&f, now_ms, FLI_EVENT_REFUSED, FL_ENOSESSION);
    expect_end(&f, FL_ENOSESSION);
}

/* ---- which node, when ------------------------------------------------------------------------ */

TEST(test_walks_the_nodes_in_a_circle_and_pauses_after_a_round)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    c.start = 1;
    fli_call_state_init(&f, &c);
    uint64_t now_ms = START_MS;
    static const uint32_t walk[] = {1, 2, 0, 1, 2, 0, 1};
    for (size_t i = 0; i < sizeof walk / sizeof walk[0]; i++) {
        assert_int_equal(f.order.want, FLI_WANT_CONNECT);
        assert_int_equal(f.order.node, walk[i]);
        fli_call_state_feed(&f, now_ms, FLI_EVENT_UNREACHABLE, 0);
        assert_int_equal(f.order.want == FLI_WANT_SLEEP, i % 3 == 2);
        now_ms = wake(&f, now_ms);
    }
}

TEST(test_time_for_an_attempt_doubles_each_round)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    c.nodes = 1;
    c.deadline_ms = START_MS + 1000000;
    fli_call_state_init(&f, &c);
    uint64_t now_ms = START_MS;
    static const uint64_t attempts[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000};
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        expect_order(&f, FLI_WANT_CONNECT, 0, now_ms + attempts[i]);
        fli_call_state_feed(&f, now_ms, FLI_EVENT_UNREACHABLE, 0);
        now_ms = wake(&f, now_ms);
    }
}

TEST(test_each_trouble_moves_on)
{
    static const enum fli_call_event events[] = {FLI_EVENT_NOLEADER, FLI_EVENT_LOST,
                                                 FLI_EVENT_SILENT, FLI_EVENT_BROKEN};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        struct fli_call_state f;
        struct fli_call_config c = base_config();
        fli_call_state_init(&f, &c);
        reach_answer(&f, START_MS);
        fli_call_state_feed(&f, START_MS + 1000, events[i], 0);
        assert_int_equal(f.order.want, FLI_WANT_CONNECT);
        assert_int_equal(f.order.node, 1);
        assert_int_equal(f.unknown, events[i] != FLI_EVENT_NOLEADER);
        reach_answer(&f, START_MS + 1000);
        fli_call_state_feed(&f, START_MS + 1001, FLI_EVENT_YES, 0);
        expect_end(&f, 0);
    }
}

TEST(test_unsent_moves_on_and_is_not_unknown)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    c.repeat = FLI_REPEAT_NEVER;
    fli_call_state_init(&f, &c);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_CONNECTED, 0);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_UNSENT, 0);
    expect_order(&f, FLI_WANT_CONNECT, 1, START_MS + 1000);
    assert_false(f.unknown);
}

TEST(test_busy_pauses_at_once)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_BUSY, 0);
    assert_int_equal(f.order.want, FLI_WANT_SLEEP);
    wake(&f, START_MS);
    assert_int_equal(f.order.want, FLI_WANT_CONNECT);
}

/* Between two attempts at the leader others are asked, and they do not lead. */
TEST(test_busy_is_said_at_the_end_although_others_do_not_lead)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    uint64_t now_ms = START_MS;
    fli_call_state_init(&f, &c);
    for (unsigned i = 0; f.order.want != FLI_WANT_NOTHING; i++, now_ms = wake(&f, now_ms)) {
        reach_answer(&f, now_ms);
        fli_call_state_feed(&f, now_ms, i % 2 == 0 ? FLI_EVENT_BUSY : FLI_EVENT_NOLEADER, 0);
    }
    expect_end(&f, FL_EBUSY);
}

TEST(test_after_a_learned_leader_the_list_is_walked)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    c.start = 3; /* not in the list */
    fli_call_state_init(&f, &c);
    expect_order(&f, FLI_WANT_CONNECT, 3, START_MS + 1000);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_UNREACHABLE, 0);
    assert_int_equal(f.order.want, FLI_WANT_CONNECT);
    assert_true(f.order.node < 3);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* Feeds the same trouble until the call ends; nothing may go on past the deadline. */
static int exhaust(const struct fli_call_config *config, enum fli_call_event trouble)
{
    struct fli_call_state f;
    fli_call_state_init(&f, config);
    uint64_t now_ms = config->now_ms;
    for (unsigned steps = 0; f.order.want != FLI_WANT_NOTHING; steps++) {
        assert_true(steps < 100000);
        assert_true(f.order.until_ms <= config->deadline_ms);
        now_ms += 1;
        switch (f.order.want) {
        case FLI_WANT_CONNECT:
            fli_call_state_feed(
                &f, now_ms, trouble == FLI_EVENT_UNREACHABLE ? trouble : FLI_EVENT_CONNECTED, 0);
            break;
        case FLI_WANT_SEND:
            fli_call_state_feed(&f, now_ms, FLI_EVENT_SENT, 0);
            break;
        case FLI_WANT_ANSWER:
            if (trouble == FLI_EVENT_SILENT && f.order.until_ms > now_ms) {
                now_ms = f.order.until_ms;
            }
            fli_call_state_feed(&f, now_ms, trouble, 0);
            break;
        case FLI_WANT_PROBE:
            fli_call_state_feed(&f, now_ms, FLI_EVENT_DEAD, 0);
            break;
        default:
            now_ms = wake(&f, now_ms);
            break;
        }
    }
    return f.status;
}

TEST(test_code_when_time_is_over)
{
    static const struct {
        enum fli_call_event trouble;
        int read, write, never;
    } rows[] = {
        {FLI_EVENT_UNREACHABLE, FL_ENOCONN, FL_ENOCONN, FL_ENOCONN},
        {FLI_EVENT_NOLEADER, FL_ENOLEADER, FL_ENOLEADER, FL_ENOLEADER},
        {FLI_EVENT_BUSY, FL_EBUSY, FL_EBUSY, FL_EBUSY},
        {FLI_EVENT_UNCERTAIN, FL_ENOCONN, FL_EUNCERTAIN, FL_EUNCERTAIN},
        {FLI_EVENT_LOST, FL_ENOCONN, FL_EUNCERTAIN, FL_EUNCERTAIN},
        {FLI_EVENT_SILENT, FL_ETIMEOUT, FL_EUNCERTAIN, FL_EUNCERTAIN},
        {FLI_EVENT_BROKEN, FL_EPROTO, FL_EUNCERTAIN, FL_EUNCERTAIN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint32_t nodes = 1; nodes <= 3; nodes++) {
            struct fli_call_config c = base_config();
            c.nodes = nodes;
            c.repeat = FLI_REPEAT_READ;
            assert_int_equal(exhaust(&c, rows[i].trouble), rows[i].read);
            c.repeat = FLI_REPEAT_WRITE;
            assert_int_equal(exhaust(&c, rows[i].trouble), rows[i].write);
            c.repeat = FLI_REPEAT_NEVER;
            assert_int_equal(exhaust(&c, rows[i].trouble), rows[i].never);
        }
    }
}

TEST(test_a_waiting_call_ends_too)
{
    static const enum fli_call_event troubles[] = {FLI_EVENT_LOST, FLI_EVENT_SILENT,
                                                   FLI_EVENT_UNCERTAIN};
    for (size_t i = 0; i < sizeof troubles / sizeof troubles[0]; i++) {
        struct fli_call_config c = acquire_config(60000);
        assert_int_equal(exhaust(&c, troubles[i]), FL_EUNCERTAIN);
    }
}

TEST(test_deadline_that_has_passed)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    c.deadline_ms = START_MS;
    fli_call_state_init(&f, &c);
    expect_end(&f, FL_ENOCONN);
}

/* What may have been done is never reported as refused, whatever came after it. */
TEST(test_unknown_outranks_later_refusals_to_serve)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    fli_call_state_init(&f, &c);
    uint64_t now_ms = START_MS;
    reach_answer(&f, now_ms);
    fli_call_state_feed(&f, now_ms, FLI_EVENT_LOST, 0);
    while (f.order.want != FLI_WANT_NOTHING) {
        now_ms = wake(&f, now_ms) + 100;
        if (f.order.want == FLI_WANT_CONNECT) {
            reach_answer(&f, now_ms);
            fli_call_state_feed(&f, now_ms, FLI_EVENT_NOLEADER, 0);
        }
    }
    expect_end(&f, FL_EUNCERTAIN);
}

/* ---- repeating ------------------------------------------------------------------------------- */

TEST(test_never_repeated_after_unknown)
{
    static const enum fli_call_event events[] = {FLI_EVENT_UNCERTAIN, FLI_EVENT_LOST,
                                                 FLI_EVENT_SILENT, FLI_EVENT_BROKEN};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        struct fli_call_state f;
        struct fli_call_config c = base_config();
        c.repeat = FLI_REPEAT_NEVER;
        fli_call_state_init(&f, &c);
        reach_answer(&f, START_MS);
        /* It gets all the time there is, since there is no second try. */
        assert_int_equal(f.order.until_ms, START_MS + 5000);
        fli_call_state_feed(&f, START_MS + 1, events[i], 0);
        expect_end(&f, FL_EUNCERTAIN);
    }
}

TEST(test_never_repeats_what_was_surely_not_done)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config();
    c.repeat = FLI_REPEAT_NEVER;
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_NOLEADER, 0);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_YES, 0);
    expect_end(&f, 0);
}

TEST(test_release_no_after_unknown_is_uncertain)
{
    for (int lost = 0; lost <= 1; lost++) {
        struct fli_call_state f;
        struct fli_call_config c = base_config();
        c.no_is_uncertain = true;
        fli_call_state_init(&f, &c);
        reach_answer(&f, START_MS);
        fli_call_state_feed(&f, START_MS, lost ? FLI_EVENT_LOST : FLI_EVENT_NOLEADER, 0);
        reach_answer(&f, START_MS);
        fli_call_state_feed(&f, START_MS, FLI_EVENT_NO, 0);
        expect_end(&f, lost ? FL_EUNCERTAIN : FL_ENOTHELD);
    }
}

/* ---- leases ---------------------------------------------------------------------------------- */

TEST(test_lease_counts_from_before_the_sending_less_a_margin)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(0);
    fli_call_state_init(&f, &c);
    fli_call_state_feed(&f, START_MS + 10, FLI_EVENT_CONNECTED,
                        0); /* the order to send: counted here */
    fli_call_state_feed(&f, START_MS + 500, FLI_EVENT_SENT, 0);
    fli_call_state_feed(&f, START_MS + 900, FLI_EVENT_YES, 0);
    expect_end(&f, 0);
    assert_int_equal(f.lease_until_ms, START_MS + 10 + TTL_MS - (TTL_MS / 100 + 2));
}

TEST(test_margin_leaves_something_of_the_smallest_ttl)
{
    assert_int_equal(fli_lease_until(100, FL_TTL_MIN_MS), 100 + FL_TTL_MIN_MS - 2);
    assert_int_equal(fli_lease_until(0, FL_TTL_MAX_MS), FL_TTL_MAX_MS - 864002);
}

TEST(test_a_retry_counts_from_its_own_sending)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(0);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS + 1000, FLI_EVENT_SILENT, 0);
    reach_answer(&f, START_MS + 1000);
    fli_call_state_feed(&f, START_MS + 1001, FLI_EVENT_YES, 0);
    expect_end(&f, 0);
    assert_int_equal(f.lease_until_ms, fli_lease_until(START_MS + 1000, TTL_MS));
}

TEST(test_a_grant_out_of_the_queue_is_confirmed)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(60000);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS + 30000, FLI_EVENT_YES, 0);
    assert_int_equal(f.order.want, FLI_WANT_SEND);
    assert_int_equal(f.order.request, FLI_REQUEST_CONFIRM);
    fli_call_state_feed(&f, START_MS + 30000, FLI_EVENT_SENT, 0);
    assert_int_equal(f.order.until_ms, START_MS + 31000);
    fli_call_state_feed(&f, START_MS + 30010, FLI_EVENT_YES, 0);
    expect_end(&f, 0);
    assert_int_equal(f.lease_until_ms, fli_lease_until(START_MS + 30000, TTL_MS));
}

TEST(test_a_fresh_grant_is_not_confirmed)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(60000);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    uint64_t limit_ms = fli_lease_until(START_MS, TTL_MS) - TTL_MS / 2;
    fli_call_state_feed(&f, limit_ms, FLI_EVENT_YES, 0);
    expect_end(&f, 0);

    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, limit_ms + 1, FLI_EVENT_YES, 0);
    assert_int_equal(f.order.request, FLI_REQUEST_CONFIRM);
}

static void reach_confirm(struct fli_call_state *f, uint64_t at_ms)
{
    struct fli_call_config c = acquire_config(60000);
    fli_call_state_init(f, &c);
    reach_answer(f, START_MS);
    fli_call_state_feed(f, at_ms, FLI_EVENT_YES, 0);
    assert_int_equal(f->order.request, FLI_REQUEST_CONFIRM);
    fli_call_state_feed(f, at_ms, FLI_EVENT_SENT, 0);
}

TEST(test_a_confirmation_is_repeated_elsewhere)
{
    struct fli_call_state f;
    reach_confirm(&f, START_MS + 20000);
    fli_call_state_feed(&f, START_MS + 20100, FLI_EVENT_LOST, 0);
    assert_int_equal(f.order.want, FLI_WANT_CONNECT);
    assert_int_equal(f.order.request, FLI_REQUEST_CONFIRM);
    assert_int_equal(f.order.node, 1);
    reach_answer(&f, START_MS + 20200);
    fli_call_state_feed(&f, START_MS + 20300, FLI_EVENT_YES, 0);
    expect_end(&f, 0);
    assert_int_equal(f.lease_until_ms, fli_lease_until(START_MS + 20200, TTL_MS));
}

TEST(test_a_grant_lost_before_its_confirmation_is_asked_for_again)
{
    struct fli_call_state f;
    reach_confirm(&f, START_MS + 20000);
    fli_call_state_feed(&f, START_MS + 20100, FLI_EVENT_NO, 0);
    assert_int_equal(f.order.request, FLI_REQUEST_MAIN);
    uint64_t now_ms = wake(&f, START_MS + 20100);
    assert_int_equal(fli_call_state_wait_left(&f, now_ms), START_MS + 60000 - now_ms);
    reach_answer(&f, now_ms);
    fli_call_state_feed(&f, now_ms, FLI_EVENT_NO, 0);
    expect_end(&f, FL_ENOTHELD);
}

TEST(test_a_confirmation_refused_does_not_take_a_live_grant_back)
{
    struct fli_call_state f;
    reach_confirm(&f, START_MS + 6000); /* believed until about 9.9 s */
    fli_call_state_feed(&f, START_MS + 6100, FLI_EVENT_REFUSED, FL_ELIMIT);
    expect_end(&f, 0);
    assert_int_equal(f.lease_until_ms, fli_lease_until(START_MS, TTL_MS));

    reach_confirm(&f, START_MS + 20000);
    fli_call_state_feed(&f, START_MS + 20100, FLI_EVENT_REFUSED, FL_ELIMIT);
    expect_end(&f, FL_EUNCERTAIN);
}

TEST(test_a_lease_over_before_its_answer_is_not_a_success)
{
    struct fli_call_state f;
    struct fli_call_config c = base_config(); /* a renewal */
    c.ttl_ms = 100;
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, fli_lease_until(START_MS, 100), FLI_EVENT_YES, 0);
    expect_end(&f, FL_EUNCERTAIN);

    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, fli_lease_until(START_MS, 100) - 1, FLI_EVENT_YES, 0);
    expect_end(&f, 0);
}

/* ---- waiting --------------------------------------------------------------------------------- */

TEST(test_a_silent_wait_is_probed_and_goes_on)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(60000);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    expect_order(&f, FLI_WANT_ANSWER, 0, START_MS + 2000);
    fli_call_state_feed(&f, START_MS + 2000, FLI_EVENT_SILENT, 0);
    expect_order(&f, FLI_WANT_PROBE, 0, START_MS + 3000);
    fli_call_state_feed(&f, START_MS + 2001, FLI_EVENT_ALIVE, 0);
    expect_order(&f, FLI_WANT_ANSWER, 0, START_MS + 4001);
    assert_false(f.unknown);
    fli_call_state_feed(&f, START_MS + 2500, FLI_EVENT_YES, 0);
    expect_end(&f, 0);
}

TEST(test_an_answer_or_its_loss_while_the_node_is_probed)
{
    struct fli_call_config c = acquire_config(60000);
    for (int lost = 0; lost < 2; lost++) {
        struct fli_call_state f;
        fli_call_state_init(&f, &c);
        reach_answer(&f, START_MS);
        fli_call_state_feed(&f, START_MS + 2000, FLI_EVENT_SILENT, 0);
        assert_int_equal(f.order.want, FLI_WANT_PROBE);
        fli_call_state_feed(&f, START_MS + 2001, lost ? FLI_EVENT_LOST : FLI_EVENT_YES, 0);
        if (lost) {
            expect_order(&f, FLI_WANT_CONNECT, 1, START_MS + 3001);
            assert_true(f.unknown);
        } else {
            expect_end(&f, 0);
        }
    }
}

TEST(test_a_wait_at_a_hung_node_moves_with_the_rest_of_its_wait)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(60000);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS + 2000, FLI_EVENT_SILENT, 0);
    fli_call_state_feed(&f, START_MS + 3000, FLI_EVENT_DEAD, 0);
    assert_int_equal(f.order.want, FLI_WANT_CONNECT);
    assert_int_equal(f.order.node, 1);
    assert_true(f.unknown);
    assert_int_equal(fli_call_state_wait_left(&f, START_MS + 3000), 57000);
}

TEST(test_a_wait_leaves_a_node_that_has_known_no_leader_twice)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(60000);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    static const enum fli_call_event probes[] = {FLI_EVENT_LEADERLESS, FLI_EVENT_ALIVE,
                                                 FLI_EVENT_LEADERLESS};
    uint64_t now_ms = START_MS;
    for (size_t i = 0; i < 3; i++) { /* an election each, but not one that lasts */
        now_ms += 2000;
        fli_call_state_feed(&f, now_ms, FLI_EVENT_SILENT, 0);
        fli_call_state_feed(&f, now_ms, probes[i], 0);
        expect_order(&f, FLI_WANT_ANSWER, 0, now_ms + 2000);
    }
    fli_call_state_feed(&f, now_ms + 2000, FLI_EVENT_SILENT, 0);
    fli_call_state_feed(&f, now_ms + 2000, FLI_EVENT_LEADERLESS, 0);
    assert_int_equal(f.order.want, FLI_WANT_CONNECT);
    assert_int_equal(f.order.node, 1);
    assert_true(f.unknown);
    assert_int_equal(fli_call_state_wait_left(&f, now_ms + 2000), 52000);
}

TEST(test_a_wait_that_is_over_is_asked_for_once_more)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(1);
    fli_call_state_init(&f, &c);
    /* A call that was given up may have a place in the queue, which only a wait ends. */
    assert_int_equal(fli_call_state_wait_left(&f, START_MS + 5), 1);
    c = acquire_config(0);
    fli_call_state_init(&f, &c);
    assert_int_equal(fli_call_state_wait_left(&f, START_MS), 0);
}

TEST(test_a_wait_is_overdue_one_attempt_after_its_end)
{
    struct fli_call_state f;
    struct fli_call_config c = acquire_config(3000);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS + 2000, FLI_EVENT_SILENT, 0);
    fli_call_state_feed(&f, START_MS + 2001, FLI_EVENT_ALIVE, 0);
    expect_order(&f, FLI_WANT_ANSWER, 0, START_MS + 4000);
    fli_call_state_feed(&f, START_MS + 4000, FLI_EVENT_SILENT, 0);
    assert_int_equal(f.order.want, FLI_WANT_CONNECT);
    assert_int_equal(f.order.node, 1);
    /* One more, which ends the place that the first try may have taken. */
    assert_int_equal(fli_call_state_wait_left(&f, START_MS + 4000), 1);
    /* With nothing of the wait left, the answer is due like any other. */
    reach_answer(&f, START_MS + 4000);
    assert_int_equal(f.order.until_ms, START_MS + 5000);
}

/* ---- random calls ---------------------------------------------------------------------------- */

static uint32_t dice(uint64_t *s, uint32_t n)
{
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*s >> 33) % n;
}

/* What the scripted world knows about one random call. */
struct world {
    uint64_t now_ms;
    uint64_t last_send_ms;
    bool is_uncertain; /* some send of it had an unknown outcome */
    enum fli_call_event last;
};

/* Whether the client gives the request up at this event, with its outcome unknown. */
static bool is_given_up(const struct fli_call_state *f, enum fli_call_event event)
{
    enum fli_call_want want = f->order.want;
    switch (event) {
    case FLI_EVENT_LOST:
    case FLI_EVENT_BROKEN:
    case FLI_EVENT_UNCERTAIN:
    case FLI_EVENT_DEAD:
    case FLI_EVENT_SERVES:
        return true;
    case FLI_EVENT_SILENT:
    case FLI_EVENT_LEADERLESS:
        return want != FLI_WANT_PROBE && want != FLI_WANT_ANSWER && want != FLI_WANT_ASK_OTHER;
    default:
        return false;
    }
}

static void random_event(struct fli_call_state *f, struct world *w, uint64_t *s)
{
    static const enum fli_call_event answers[] = {
        FLI_EVENT_YES,  FLI_EVENT_NO,     FLI_EVENT_REFUSED, FLI_EVENT_NOLEADER, FLI_EVENT_BUSY,
        FLI_EVENT_LOST, FLI_EVENT_SILENT, FLI_EVENT_BROKEN,  FLI_EVENT_UNCERTAIN};
    static const enum fli_call_event probed[] = {FLI_EVENT_ALIVE, FLI_EVENT_LEADERLESS,
                                                 FLI_EVENT_DEAD};
    static const enum fli_call_event asked[] = {FLI_EVENT_ALIVE, FLI_EVENT_SERVES,
                                                FLI_EVENT_SERVES_NOT};
    bool main_request = f->order.request == FLI_REQUEST_MAIN;
    switch (f->order.want) {
    case FLI_WANT_CONNECT:
        w->last = dice(s, 3) != 0 ? FLI_EVENT_CONNECTED : FLI_EVENT_UNREACHABLE;
        break;
    case FLI_WANT_SEND:
        w->last_send_ms = w->now_ms;
        w->last = dice(s, 8) != 0 ? FLI_EVENT_SENT : FLI_EVENT_UNSENT;
        break;
    case FLI_WANT_ANSWER:
        w->last = answers[dice(s, sizeof answers / sizeof answers[0])];
        break;
    case FLI_WANT_ASK_OTHER:
        w->last = dice(s, 2) != 0 ? asked[dice(s, sizeof asked / sizeof asked[0])]
                                  : answers[dice(s, sizeof answers / sizeof answers[0])];
        break;
    case FLI_WANT_PROBE:
        w->last = probed[dice(s, sizeof probed / sizeof probed[0])];
        break;
    default:
        w->last = FLI_EVENT_WOKE;
        break;
    }
    bool in_time = w->last != FLI_EVENT_SILENT && w->last != FLI_EVENT_WOKE;
    w->now_ms = in_time ? w->now_ms + dice(s, 50)
                        : (f->order.until_ms > w->now_ms ? f->order.until_ms : w->now_ms);
    fli_call_state_feed(f, w->now_ms, w->last, w->last == FLI_EVENT_REFUSED ? FL_ELIMIT : 0);
    if (main_request && is_given_up(f, w->last)) {
        w->is_uncertain = true;
    }
    if (!main_request && w->last == FLI_EVENT_NO) {
        w->is_uncertain = false;
    }
}

static void check_end(const struct fli_call_state *f, const struct world *w)
{
    bool is_lease = f->config.ttl_ms != 0;
    if (f->status == 0) {
        /* A call succeeds only after a server's yes. */
        assert_true(w->last == FLI_EVENT_YES || f->order.request == FLI_REQUEST_CONFIRM);
        if (is_lease) {
            assert_true(f->lease_until_ms > w->now_ms);
            assert_true(f->lease_until_ms <= fli_lease_until(w->last_send_ms, f->config.ttl_ms));
        }
        return;
    }
    /* A call with an unknown send ends as unknown, unless its last answer settles the outcome. */
    bool settled = w->last == FLI_EVENT_NO && !f->config.no_is_uncertain;
    if (w->is_uncertain && f->config.repeat != FLI_REPEAT_READ && !settled) {
        assert_int_equal(f->status, FL_EUNCERTAIN);
    }
    if (f->status == FL_ENOTHELD) {
        assert_int_equal(w->last, FLI_EVENT_NO);
    }
}

TEST(test_random_calls)
{
    const char *given = getenv("FENCELOCK_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 20240229;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < 200000; i++) {
        uint64_t s = seed + i;
        struct fli_call_config c =
            dice(&s, 2) != 0 ? acquire_config(dice(&s, 2) * 20000) : base_config();
        c.nodes = 1 + dice(&s, 4);
        c.start = dice(&s, c.nodes + 1);
        c.seed = s;
        c.ask_ms = dice(&s, 3) * 50;
        if (c.ttl_ms == 0) {
            c.repeat = (enum fli_call_repeat)dice(&s, 3);
            c.no_is_uncertain = c.repeat == FLI_REPEAT_WRITE && dice(&s, 2) != 0;
        } else {
            c.ttl_ms = 10 + dice(&s, 20000);
        }
        struct fli_call_state f;
        struct world w = {.now_ms = START_MS};
        fli_call_state_init(&f, &c);
        for (unsigned steps = 0; f.order.want != FLI_WANT_NOTHING; steps++) {
            assert_true(steps < 10000);
            assert_true(f.order.until_ms <= c.deadline_ms);
            assert_true(f.order.node <= c.nodes);
            assert_true(f.order.want != FLI_WANT_ASK_OTHER || f.order.other <= c.nodes);
            assert_true(f.order.want != FLI_WANT_ASK_OTHER || f.order.other != f.order.node);
            random_event(&f, &w, &s);
            if (f.order.want == FLI_WANT_CONNECT && c.repeat == FLI_REPEAT_NEVER) {
                assert_false(w.is_uncertain);
            }
        }
        check_end(&f, &w);
    }
}

/* ---- a hint ---------------------------------------------------------------------------------- */

/* A leader that was named is asked next, once. If it were asked again and again, the third node,
 * which leads, would never be asked. */
TEST(test_a_hint_is_for_one_attempt)
{
    static const enum fli_call_event failures[] = {FLI_EVENT_UNREACHABLE, FLI_EVENT_UNSENT,
                                                   FLI_EVENT_NOLEADER, FLI_EVENT_LOST,
                                                   FLI_EVENT_UNCERTAIN};
    for (size_t kind = 0; kind < sizeof failures / sizeof failures[0]; kind++) {
        for (uint32_t hint = 0; hint < 3; hint++) {
            struct fli_call_state f;
            struct fli_call_config c = base_config();
            unsigned asked = 0; /* in the second and third round, a bit each */
            uint64_t now_ms = START_MS;
            fli_call_state_init(&f, &c);
            fli_call_state_hint(&f, hint);
            for (unsigned attempt = 0; attempt < 15; attempt++) {
                now_ms = wake(&f, now_ms);
                assert_int_equal(f.order.want, FLI_WANT_CONNECT);
                asked |= attempt >= 6 ? 1u << f.order.node : 0;
                if (failures[kind] != FLI_EVENT_UNREACHABLE) {
                    fli_call_state_feed(&f, now_ms, FLI_EVENT_CONNECTED, 0);
                }
                if (failures[kind] != FLI_EVENT_UNREACHABLE && failures[kind] != FLI_EVENT_UNSENT) {
                    fli_call_state_feed(&f, now_ms, FLI_EVENT_SENT, 0);
                }
                fli_call_state_feed(&f, now_ms, failures[kind], 0);
            }
            assert_int_equal(asked, 7);
        }
    }
}
