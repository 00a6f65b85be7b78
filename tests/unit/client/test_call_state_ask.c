/* test_call_state_ask.c: a call whose answer is late asks another node, and changes over when that
 * node serves. Which calls do not, and which node is next. */
#include "../../lib/unit.h"

#include "client/call_state.h"

#define START_MS UINT64_C(1000000)
#define ASK_MS UINT64_C(100)
#define ATTEMPT_MS UINT64_C(1000)

static struct fli_call_config config_of(uint32_t nodes)
{
    return (struct fli_call_config){.repeat = FLI_REPEAT_WRITE,
                                    .nodes = nodes,
                                    .now_ms = START_MS,
                                    .deadline_ms = START_MS + 60000,
                                    .attempt_ms = ATTEMPT_MS,
                                    .ask_ms = ASK_MS,
                                    .seed = 42};
}

/* From an ordered connect to an ordered answer, all at one moment. */
static void reach_answer(struct fli_call_state *f, uint64_t now_ms)
{
    assert_int_equal(f->order.want, FLI_WANT_CONNECT);
    fli_call_state_feed(f, now_ms, FLI_EVENT_CONNECTED, 0);
    fli_call_state_feed(f, now_ms, FLI_EVENT_SENT, 0);
    assert_int_equal(f->order.want, FLI_WANT_ANSWER);
}

/* Up to the first question, which goes to one of the others when the answer is late. */
static uint32_t reach_ask(struct fli_call_state *f, const struct fli_call_config *c)
{
    fli_call_state_init(f, c);
    reach_answer(f, START_MS);
    assert_int_equal(f->order.until_ms, START_MS + c->ask_ms);
    fli_call_state_feed(f, START_MS + c->ask_ms, FLI_EVENT_SILENT, 0);
    assert_int_equal(f->order.want, FLI_WANT_ASK_OTHER);
    assert_int_equal(f->order.node, c->start);
    assert_true(f->order.other != c->start);
    assert_int_equal(f->order.until_ms, START_MS + 2 * c->ask_ms);
    assert_false(f->unknown);
    return f->order.other;
}

TEST(test_an_answer_that_comes_first_is_the_answer)
{
    struct fli_call_state f;
    const struct fli_call_config c = config_of(3);
    reach_ask(&f, &c);
    fli_call_state_feed(&f, START_MS + 150, FLI_EVENT_YES, 0);
    assert_int_equal(f.order.want, FLI_WANT_NOTHING);
    assert_int_equal(f.status, 0);
    assert_true(f.answered);
    assert_int_equal(f.took_ms, 150);

    reach_ask(&f, &c);
    fli_call_state_feed(&f, START_MS + 120, FLI_EVENT_ALIVE, 0);
    fli_call_state_feed(&f, START_MS + 150, FLI_EVENT_NO, 0);
    assert_int_equal(f.status, FL_ENOTHELD);
}

TEST(test_when_another_serves_the_request_is_repeated_there)
{
    struct fli_call_state f;
    struct fli_call_config c = config_of(3);
    c.ttl_ms = 10000;
    c.confirm = true;
    uint32_t other = reach_ask(&f, &c);
    fli_call_state_feed(&f, START_MS + 101, FLI_EVENT_ALIVE, 0);
    assert_int_equal(f.order.want, FLI_WANT_ASK_OTHER);
    assert_int_equal(f.order.other, other);
    assert_int_equal(f.order.until_ms, START_MS + ATTEMPT_MS);
    fli_call_state_feed(&f, START_MS + 550, FLI_EVENT_SERVES, 0);
    assert_int_equal(f.order.want, FLI_WANT_CONNECT);
    assert_int_equal(f.order.node, other);
    assert_true(f.unknown);
    reach_answer(&f, START_MS + 550);
    fli_call_state_feed(&f, START_MS + 551, FLI_EVENT_YES, 0);
    assert_int_equal(f.status, 0);
    assert_int_equal(f.lease_until_ms, fli_lease_until(START_MS + 550, 10000));
}

/* The first try may have been done: what the second one is told may be of its doing. */
TEST(test_what_was_left_behind_stays_unknown)
{
    static const struct {
        enum fli_call_event event;
        int code, status;
    } rows[] = {{FLI_EVENT_NO, 0, FL_EUNCERTAIN}, {FLI_EVENT_REFUSED, FL_ELIMIT, FL_EUNCERTAIN}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fli_call_state f;
        struct fli_call_config c = config_of(3);
        c.no_is_uncertain = true;
        reach_ask(&f, &c);
        fli_call_state_feed(&f, START_MS + 101, FLI_EVENT_SERVES, 0);
        reach_answer(&f, START_MS + 101);
        fli_call_state_feed(&f, START_MS + 102, rows[i].event, rows[i].code);
        assert_int_equal(f.status, rows[i].status);
    }
}

TEST(test_a_health_probe_does_not_lengthen_the_attempt)
{
    struct fli_call_state f;
    const struct fli_call_config c = config_of(3);
    uint32_t other = reach_ask(&f, &c);
    fli_call_state_feed(&f, START_MS + 101, FLI_EVENT_ALIVE, 0);
    fli_call_state_feed(&f, START_MS + ATTEMPT_MS, FLI_EVENT_SILENT, 0);
    assert_int_equal(f.order.want, FLI_WANT_CONNECT);
    assert_int_equal(f.order.node, other); /* which is known to be there */
    assert_true(f.unknown);
}

TEST(test_the_others_are_asked_in_turn)
{
    static const enum fli_call_event troubles[] = {FLI_EVENT_SERVES_NOT, FLI_EVENT_SILENT};
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t start = 0; start <= 4; start++) {
            struct fli_call_state f;
            struct fli_call_config c = config_of(4);
            c.start = start; /* 4: a leader that is not in the list */
            uint32_t seen = 1u << reach_ask(&f, &c);
            uint64_t now_ms = START_MS + ASK_MS;
            uint32_t n = start < 4 ? 3 : 4;
            for (uint32_t k = 1; k < n; k++) {
                now_ms += 20;
                fli_call_state_feed(&f, now_ms, troubles[i], 0);
                assert_int_equal(f.order.want, FLI_WANT_ASK_OTHER);
                assert_int_equal(f.order.until_ms, now_ms + ASK_MS);
                seen |= 1u << f.order.other;
            }
            assert_int_equal(seen, 15u & ~(1u << start));
            fli_call_state_feed(&f, now_ms, troubles[i], 0);
            assert_int_equal(f.order.want, FLI_WANT_ANSWER); /* again, and after longer */
            assert_int_equal(f.order.until_ms, now_ms + 2 * ASK_MS);
            assert_false(f.unknown);
        }
    }
}

TEST(test_who_leads_is_asked_first)
{
    for (uint32_t leader = 1; leader <= 3; leader++) {
        struct fli_call_state f;
        const struct fli_call_config c = config_of(3);
        fli_call_state_init(&f, &c);
        reach_answer(&f, START_MS);
        fli_call_state_hint(&f, leader);
        fli_call_state_feed(&f, START_MS + ASK_MS, FLI_EVENT_SILENT, 0);
        assert_int_equal(f.order.want, FLI_WANT_ASK_OTHER);
        assert_int_equal(f.order.other, leader);
    }
}

TEST(test_the_clients_of_one_node_do_not_all_ask_the_same)
{
    unsigned asked[4] = {0};
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct fli_call_state f;
        struct fli_call_config c = config_of(4);
        c.start = 2;
        c.seed = seed;
        asked[reach_ask(&f, &c)]++;
    }
    assert_int_equal(asked[2], 0);
    assert_true(asked[0] > 800 && asked[1] > 800 && asked[3] > 800);
}

/* A cluster that is slow everywhere is left alone. */
TEST(test_patience_grows_with_each_change)
{
    struct fli_call_state f;
    const struct fli_call_config c = config_of(3);
    reach_ask(&f, &c);
    uint64_t now_ms = START_MS + ASK_MS;
    uint64_t ask_ms = ASK_MS;
    for (unsigned i = 0; i < 3; i++) {
        fli_call_state_feed(&f, now_ms, FLI_EVENT_SERVES, 0);
        ask_ms *= 2;
        reach_answer(&f, now_ms);
        assert_int_equal(f.order.until_ms, now_ms + ask_ms);
        now_ms += ask_ms;
        fli_call_state_feed(&f, now_ms, FLI_EVENT_SILENT, 0);
        assert_int_equal(f.order.want, FLI_WANT_ASK_OTHER);
    }
}

static void expect_no_health_probe(const struct fli_call_config *c, uint64_t until_ms)
{
    struct fli_call_state f;
    fli_call_state_init(&f, c);
    reach_answer(&f, START_MS);
    assert_int_equal(f.order.until_ms, until_ms);
    fli_call_state_feed(&f, until_ms, FLI_EVENT_SILENT, 0);
    assert_int_not_equal(f.order.want, FLI_WANT_ASK_OTHER);
}

TEST(test_when_nobody_is_asked)
{
    struct fli_call_config c = config_of(1); /* there is nobody else */
    expect_no_health_probe(&c, START_MS + ATTEMPT_MS);
    c = config_of(3);
    c.repeat = FLI_REPEAT_NEVER; /* nothing could follow from it */
    expect_no_health_probe(&c, c.deadline_ms);
    c = config_of(3);
    c.wait_ms = 30000; /* the answer is not late, but held */
    expect_no_health_probe(&c, START_MS + 2000);
    c = config_of(3);
    c.ask_ms = 0;
    expect_no_health_probe(&c, START_MS + ATTEMPT_MS);
    c = config_of(3);
    c.ask_ms = ATTEMPT_MS; /* the attempt is over by then */
    expect_no_health_probe(&c, START_MS + ATTEMPT_MS);
}

TEST(test_a_confirmation_changes_over_too)
{
    struct fli_call_state f;
    struct fli_call_config c = config_of(3);
    c.ttl_ms = 10000;
    c.confirm = true;
    c.wait_ms = 30000;
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS + 20000, FLI_EVENT_YES, 0);
    assert_false(f.answered); /* how long a wait took says nothing */
    assert_int_equal(f.order.request, FLI_REQUEST_CONFIRM);
    fli_call_state_feed(&f, START_MS + 20000, FLI_EVENT_SENT, 0);
    fli_call_state_feed(&f, START_MS + 20100, FLI_EVENT_SILENT, 0);
    assert_int_equal(f.order.want, FLI_WANT_ASK_OTHER);
    fli_call_state_feed(&f, START_MS + 20600, FLI_EVENT_SERVES, 0);
    assert_int_equal(f.order.request, FLI_REQUEST_CONFIRM);
    assert_false(f.unknown);
    reach_answer(&f, START_MS + 20600);
    fli_call_state_feed(&f, START_MS + 20601, FLI_EVENT_YES, 0);
    assert_int_equal(f.status, 0);
    assert_int_equal(f.lease_until_ms, fli_lease_until(START_MS + 20600, 10000));
}

/* ---- who is tried next ----------------------------------------------------------------------- */

TEST(test_hint_is_taken_once)
{
    struct fli_call_state f;
    const struct fli_call_config c = config_of(3);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_hint(&f, 2);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_NOLEADER, 0);
    assert_int_equal(f.order.node, 2);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_UNREACHABLE, 0);
    assert_int_equal(f.order.node, 0);
}

TEST(test_hint_at_the_node_that_failed_is_ignored)
{
    struct fli_call_state f;
    const struct fli_call_config c = config_of(3);
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_hint(&f, 0);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_LOST, 0);
    assert_int_equal(f.order.node, 1);
}

TEST(test_uncertain_is_asked_again_where_it_was_said_once)
{
    struct fli_call_state f;
    struct fli_call_config c = config_of(3);
    c.start = 1;
    fli_call_state_init(&f, &c);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_UNCERTAIN, 0);
    assert_int_equal(f.order.node, 1);
    assert_true(f.unknown);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_UNCERTAIN, 0);
    assert_int_equal(f.order.node, 2);
    reach_answer(&f, START_MS);
    fli_call_state_feed(&f, START_MS, FLI_EVENT_UNCERTAIN, 0);
    assert_int_equal(f.order.node, 0);
}

/* Until a round is over: then it may have come back. */
TEST(test_who_said_nothing_is_passed_over)
{
    struct fli_call_state f;
    const struct fli_call_config c = config_of(3);
    uint32_t other = reach_ask(&f, &c);
    fli_call_state_feed(&f, START_MS + 101, FLI_EVENT_SERVES, 0);
    assert_int_equal(f.order.node, other);
    uint32_t third = 3 - other;
    fli_call_state_feed(&f, START_MS + 102, FLI_EVENT_UNREACHABLE, 0);
    assert_int_equal(f.order.node, third);
    fli_call_state_feed(&f, START_MS + 103, FLI_EVENT_UNREACHABLE, 0);
    assert_int_equal(f.order.node, other);
    fli_call_state_feed(&f, START_MS + 104, FLI_EVENT_UNREACHABLE, 0);
    assert_int_equal(f.order.want, FLI_WANT_SLEEP);
    bool back = false;
    for (unsigned i = 0; i < 3; i++) {
        if (f.order.want == FLI_WANT_SLEEP) {
            fli_call_state_feed(&f, f.order.until_ms, FLI_EVENT_WOKE, 0);
        }
        back = back || f.order.node == 0;
        fli_call_state_feed(&f, START_MS + 800, FLI_EVENT_UNREACHABLE, 0);
    }
    assert_true(back);
}

TEST(test_of_two_nodes_the_silent_one_is_still_the_other)
{
    struct fli_call_state f;
    const struct fli_call_config c = config_of(2);
    reach_ask(&f, &c);
    fli_call_state_feed(&f, START_MS + 101, FLI_EVENT_SERVES, 0);
    assert_int_equal(f.order.node, 1);
    fli_call_state_feed(&f, START_MS + 102, FLI_EVENT_UNREACHABLE, 0);
    assert_int_equal(f.order.node, 0);
}

/* ---- how long is late ------------------------------------------------------------------------ */

static uint64_t learn(struct fli_pace *p, unsigned times, uint64_t took_ms)
{
    for (unsigned i = 0; i < times; i++) {
        struct fli_call_state f;
        const struct fli_call_config c = config_of(3);
        fli_call_state_init(&f, &c);
        reach_answer(&f, START_MS);
        fli_call_state_feed(&f, START_MS + took_ms, FLI_EVENT_YES, 0);
        fli_pace_learn(p, &f);
    }
    return fli_pace_ask_ms(p);
}

TEST(test_late_is_measured_by_what_is_usual)
{
    struct fli_pace p = {0};
    assert_int_equal(fli_pace_ask_ms(&p), 100);
    assert_int_equal(learn(&p, 50, 1), 100);
    assert_in_range(learn(&p, 50, 200), 780, 800);
    assert_int_equal(learn(&p, 50, 1), 100);
    assert_in_range(learn(&p, 1, 600), 100, 320); /* one that was slow is not what is usual */

    /* A call that was not answered at once teaches nothing. */
    struct fli_call_state f;
    const struct fli_call_config c = config_of(1);
    uint64_t before_ms = fli_pace_ask_ms(&p);
    fli_call_state_init(&f, &c);
    f.config.deadline_ms = START_MS + 10;
    fli_call_state_feed(&f, START_MS + 20000, FLI_EVENT_UNREACHABLE, 0);
    assert_int_equal(f.order.want, FLI_WANT_NOTHING);
    fli_pace_learn(&p, &f);
    assert_int_equal(fli_pace_ask_ms(&p), before_ms);
}
