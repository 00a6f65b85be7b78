/* One attempt: tables of what the servers say, and random schedules against a naive model that
 * judges from the list of events as a whole. */
#include "rng.h"

#include <string.h>

#include "redlock/attempt.h"
#include "redlock/quorum.h"

/* One letter a server: Y yes, h held, f foreign, n not ours, e error, d down, y young, t twice,
 * r replica, . no answer. */
static enum fl_redlock_status meaning(char c)
{
    switch (c) {
    case 'Y':
        return FL_REDLOCK_YES;
    case 'h':
        return FL_REDLOCK_HELD;
    case 'f':
        return FL_REDLOCK_FOREIGN;
    case 'n':
        return FL_REDLOCK_NOTOURS;
    case 'e':
        return FL_REDLOCK_ERROR;
    case 'd':
        return FL_REDLOCK_DOWN;
    case 'y':
        return FL_REDLOCK_YOUNG;
    case 't':
        return FL_REDLOCK_TWICE;
    case 'r':
        return FL_REDLOCK_REPLICA;
    default:
        assert_int_equal(c, '.');
        return FL_REDLOCK_WAITING;
    }
}

static void play(struct fli_attempt *a, enum fli_attempt_kind kind, const char *words)
{
    uint32_t n = (uint32_t)strlen(words);
    fli_attempt_init(a, kind, n, 1000, 10000, 0);
    for (uint32_t i = 0; i < n; i++) {
        fli_attempt_asked(a, i);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (words[i] != '.') {
            enum fli_verdict v = fli_attempt_answer(a, i, meaning(words[i]), 1010);
            assert_int_equal(v, a->verdict);
        }
    }
}

struct row {
    enum fli_attempt_kind kind;
    const char *words;
    enum fli_verdict verdict; /* before the timer */
    enum fl_redlock_cause cause;
    enum fl_redlock_cause after_timer; /* when the verdict was NONE */
};

#define A FLI_ATTEMPT_ACQUIRE
#define E FLI_ATTEMPT_EXTEND
#define R FLI_ATTEMPT_RELEASE
#define GO FLI_VERDICT_NONE
#define OK FLI_VERDICT_DONE
#define NO FLI_VERDICT_FAILED

static const struct row rows[] = {
    {A, "Y", OK, FL_REDLOCK_NONE, 0},
    {A, "h", NO, FL_REDLOCK_CONTENDED, 0},
    {A, "d", NO, FL_REDLOCK_UNREACHABLE, 0},
    {A, ".", GO, 0, FL_REDLOCK_TOO_SLOW},
    {A, "YY", OK, FL_REDLOCK_NONE, 0},
    {A, "Yh", NO, FL_REDLOCK_CONTENDED, 0}, /* an even split ends (D4) */
    {A, "Y.", GO, 0, FL_REDLOCK_TOO_SLOW},
    {A, "YY.", OK, FL_REDLOCK_NONE, 0}, /* 2 of 3 are a quorum (D11) */
    {A, "YYd", OK, FL_REDLOCK_NONE, 0}, /* a minority that is down does not matter (D3) */
    {A, "Y..", GO, 0, FL_REDLOCK_TOO_SLOW},
    {A, "hh.", NO, FL_REDLOCK_CONTENDED, 0},
    {A, "Yhd", NO, FL_REDLOCK_CONTENDED, 0},
    {A, "hd.", NO, FL_REDLOCK_CONTENDED, 0}, /* it ends before the third one is known */
    {A, "ddh", NO, FL_REDLOCK_UNREACHABLE, 0},
    {A, "ee.", NO, FL_REDLOCK_REFUSED, 0}, /* outage is not contention (D19) */
    {A, "eed", NO, FL_REDLOCK_REFUSED, 0},
    {A, "dd.", NO, FL_REDLOCK_UNREACHABLE, 0},
    {A, "d..", GO, 0, FL_REDLOCK_TOO_SLOW},
    {A, "yyY", NO, FL_REDLOCK_REFUSED, 0},
    {A, "ytY", NO, FL_REDLOCK_REFUSED, 0},
    {A, "ffY", NO, FL_REDLOCK_CONTENDED, 0},
    {A, "YYY..", OK, FL_REDLOCK_NONE, 0},
    {A, "YYdd.", GO, 0, FL_REDLOCK_UNREACHABLE},
    {A, "YYh..", GO, 0, FL_REDLOCK_CONTENDED},
    {A, "YYhh.", GO, 0, FL_REDLOCK_CONTENDED},
    {A, "YYhd.", GO, 0, FL_REDLOCK_CONTENDED},
    {A, "Yhhd.", NO, FL_REDLOCK_CONTENDED, 0},
    {A, "hrt.Y", NO, FL_REDLOCK_CONTENDED, 0},
    {A, "rrt.Y", NO, FL_REDLOCK_REFUSED, 0},
    {E, "YY.", OK, FL_REDLOCK_NONE, 0},
    {E, "nn.", NO, FL_REDLOCK_LOST, 0},
    {E, "fn.", NO, FL_REDLOCK_LOST, 0},
    {E, "nd.", NO, FL_REDLOCK_UNREACHABLE, 0}, /* not certain: it may be tried again */
    {E, "nY.", GO, 0, FL_REDLOCK_TOO_SLOW},
    {E, "nYe", NO, FL_REDLOCK_REFUSED, 0},
    {E, "nnYd.", NO, FL_REDLOCK_UNREACHABLE, 0},
    {E, "nnnYY", NO, FL_REDLOCK_LOST, 0},
    {R, "YY.", OK, FL_REDLOCK_NONE, 0},
    {R, "Yn.", GO, 0, FL_REDLOCK_NONE}, /* two of three are free of it */
    {R, "Y..", GO, 0, FL_REDLOCK_TOO_SLOW},
    {R, "nn.", NO, FL_REDLOCK_LOST, 0},
    {R, "ddd", NO, FL_REDLOCK_UNREACHABLE, 0},
    {R, "YnYd.", GO, 0, FL_REDLOCK_NONE},
};

TEST(test_table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        struct fli_attempt a;
        play(&a, r->kind, r->words);
        if (a.verdict != r->verdict || (r->verdict != GO && a.cause != r->cause)) {
            fail_msg("row %zu \"%s\": verdict %d, cause %d", i, r->words, (int)a.verdict,
                     (int)a.cause);
        }
        if (r->verdict == GO) {
            enum fli_verdict v = fli_attempt_timeout(&a, 1060);
            if (a.cause != r->after_timer || v != (r->after_timer == FL_REDLOCK_NONE ? OK : NO)) {
                fail_msg("row %zu \"%s\": after the timer: cause %d", i, r->words, (int)a.cause);
            }
        }
        bool acquires = r->kind == A && a.verdict == NO;
        assert_int_equal(fli_attempt_to_release(&a), acquires ? a.asked : 0);
    }
}

TEST(test_a_quorum_that_comes_too_late_is_none)
{
    uint64_t deadline = fli_deadline_ms(1000, 10000);
    for (int late = 0; late < 2; late++) {
        struct fli_attempt a;
        fli_attempt_init(&a, A, 3, 1000, 10000, 100);
        for (uint32_t i = 0; i < 3; i++) {
            fli_attempt_asked(&a, i);
        }
        assert_int_equal(fli_attempt_answer(&a, 0, FL_REDLOCK_YES, 1001), GO);
        uint64_t now = deadline - 100 + (uint64_t)late;
        assert_int_equal(fli_attempt_answer(&a, 1, FL_REDLOCK_YES, now), late ? NO : OK);
        assert_int_equal(a.cause, late ? FL_REDLOCK_TOO_SLOW : FL_REDLOCK_NONE);
        assert_int_equal(fli_attempt_to_release(&a), late ? 7 : 0);
    }
}

TEST(test_answers_after_the_end_change_no_verdict)
{
    struct fli_attempt a;
    play(&a, A, "hh.");
    assert_int_equal(fli_attempt_answer(&a, 2, FL_REDLOCK_YES, 1020), NO);
    assert_int_equal(a.status[2], FL_REDLOCK_YES);
    assert_int_equal(fli_attempt_to_release(&a), 7); /* also where the late yes came from */
    assert_int_equal(fli_attempt_answer(&a, 2, FL_REDLOCK_DOWN, 1030), NO);
    assert_int_equal(a.status[2], FL_REDLOCK_YES); /* the first answer stands */
    assert_int_equal(fli_attempt_timeout(&a, 1050), NO);
}

TEST(test_servers_that_were_not_asked_are_not_released)
{
    struct fli_attempt a;
    fli_attempt_init(&a, A, 5, 0, 1000, 0);
    assert_int_equal(fli_attempt_answer(&a, 0, FL_REDLOCK_DOWN, 0), GO);
    assert_int_equal(fli_attempt_answer(&a, 4, FL_REDLOCK_TWICE, 0), GO);
    fli_attempt_asked(&a, 1);
    fli_attempt_asked(&a, 3);
    assert_int_equal(fli_attempt_timeout(&a, 50), NO);
    assert_int_equal(fli_attempt_to_release(&a), 1 << 1 | 1 << 3);
    assert_int_equal(a.status[2], FL_REDLOCK_DOWN);
    assert_int_equal(a.status[1], FL_REDLOCK_SILENT);
}

TEST(test_cancel)
{
    struct fli_attempt a;
    play(&a, A, "Y....");
    fli_attempt_cancel(&a);
    assert_int_equal(a.cause, FL_REDLOCK_CANCELLED);
    assert_int_equal(fli_attempt_to_release(&a), 31);
    play(&a, A, "YYY..");
    fli_attempt_cancel(&a);
    assert_int_equal(a.cause, FL_REDLOCK_NONE);
}

TEST(test_the_most_servers)
{
    char words[FL_REDLOCK_SERVERS_MAX + 1] = "";
    struct fli_attempt a;
    memset(words, 'Y', FL_REDLOCK_SERVERS_MAX);
    play(&a, A, words);
    assert_int_equal(a.verdict, OK);
    assert_int_equal(fli_attempt_yes(&a), FL_REDLOCK_SERVERS_MAX);
    memset(words, 'h', FL_REDLOCK_SERVERS_MAX);
    play(&a, A, words);
    assert_int_equal(a.cause, FL_REDLOCK_CONTENDED);
    assert_int_equal(fli_attempt_to_release(&a), (1 << FL_REDLOCK_SERVERS_MAX) - 1);
}

TEST(test_codes)
{
    assert_int_equal(fli_cause_code(FL_REDLOCK_NONE), 0);
    assert_int_equal(fli_cause_code(FL_REDLOCK_CONTENDED), FL_ENOTHELD);
    assert_int_equal(fli_cause_code(FL_REDLOCK_LOST), FL_ENOTHELD);
    assert_int_equal(fli_cause_code(FL_REDLOCK_UNREACHABLE), FL_ENOCONN);
    assert_int_equal(fli_cause_code(FL_REDLOCK_TOO_SLOW), FL_ETIMEOUT);
    assert_int_equal(fli_cause_code(FL_REDLOCK_REFUSED), FL_EDENIED);
}

/* ---- random schedules ------------------------------------------------------------------------ */

struct event {
    uint32_t server; /* n: the timer */
    enum fl_redlock_status status;
    uint64_t at_ms;
};

struct outcome {
    enum fli_verdict verdict;
    enum fl_redlock_cause cause;
};

/* What an acquire must come to after the first `len` events, from the definitions alone: the first
 * prefix of the events that decides, decides. */
static struct outcome model(const struct event *events, size_t len, uint32_t n, uint64_t ttl,
                            uint64_t least)
{
    for (size_t end = 1; end <= len; end++) {
        uint32_t yes = 0, busy = 0, down = 0, error = 0, silent = 0;
        bool timer = false;
        for (size_t i = 0; i < end; i++) {
            enum fl_redlock_status s = events[i].status;
            timer = timer || events[i].server == n;
            yes += events[i].server < n && s == FL_REDLOCK_YES;
            busy += events[i].server < n && (s == FL_REDLOCK_HELD || s == FL_REDLOCK_FOREIGN);
            down += events[i].server < n && s == FL_REDLOCK_DOWN;
            error += events[i].server < n && s == FL_REDLOCK_ERROR;
        }
        uint32_t open = n - yes - busy - down - error;
        silent = timer ? open : 0;
        open -= silent;
        if (yes > n / 2) {
            int64_t elapsed = (int64_t)events[end - 1].at_ms;
            int64_t left = (int64_t)ttl - elapsed - (int64_t)(ttl / 100) - 2;
            bool valid = left >= (int64_t)(least == 0 ? 1 : least);
            return (struct outcome){valid ? OK : NO, valid ? FL_REDLOCK_NONE : FL_REDLOCK_TOO_SLOW};
        }
        if (yes + open > n / 2) {
            continue;
        }
        uint32_t bad = down + error + silent;
        if (n - bad > n / 2) { /* enough servers work */
            return (struct outcome){NO, FL_REDLOCK_CONTENDED};
        }
        enum fl_redlock_cause cause = FL_REDLOCK_TOO_SLOW;
        if (error >= down && error >= silent) {
            cause = FL_REDLOCK_REFUSED;
        } else if (down >= silent) {
            cause = FL_REDLOCK_UNREACHABLE;
        }
        return (struct outcome){NO, cause};
    }
    return (struct outcome){GO, FL_REDLOCK_NONE};
}

static size_t make_events(uint64_t *rng, struct event *events, uint32_t n)
{
    static const enum fl_redlock_status words[] = {
        FL_REDLOCK_YES,     FL_REDLOCK_YES,  FL_REDLOCK_YES,  FL_REDLOCK_HELD,
        FL_REDLOCK_FOREIGN, FL_REDLOCK_DOWN, FL_REDLOCK_ERROR};
    size_t len = 0;
    uint64_t now = 0;
    uint32_t order[FL_REDLOCK_SERVERS_MAX + 1];
    for (uint32_t i = 0; i <= n; i++) {
        order[i] = i;
    }
    for (uint32_t i = n; i > 0; i--) {
        uint32_t j = (uint32_t)rng_below(rng, i + 1);
        uint32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    uint64_t step = 1 + rng_below(rng, 60);
    for (uint32_t i = 0; i <= n; i++) {
        now += rng_below(rng, step);
        events[len++] = (struct event){order[i], words[rng_below(rng, 7)], now};
    }
    return len;
}

static void play_random(uint64_t *rng)
{
    struct event events[FL_REDLOCK_SERVERS_MAX + 1];
    uint32_t n = 1 + (uint32_t)rng_below(rng, FL_REDLOCK_SERVERS_MAX);
    uint64_t ttl = 10 + rng_below(rng, 200);
    uint64_t least = rng_below(rng, 10);
    uint64_t t0 = rng_below(rng, 100000);
    size_t len = make_events(rng, events, n);
    struct fli_attempt a;
    fli_attempt_init(&a, A, n, t0, ttl, least);
    for (uint32_t i = 0; i < n; i++) {
        fli_attempt_asked(&a, i);
    }
    for (size_t i = 0; i < len; i++) {
        enum fli_verdict got;
        if (events[i].server == n) {
            got = fli_attempt_timeout(&a, t0 + events[i].at_ms);
        } else {
            got = fli_attempt_answer(&a, events[i].server, events[i].status, t0 + events[i].at_ms);
        }
        struct outcome expected = model(events, i + 1, n, ttl, least);
        assert_int_equal(got, expected.verdict);
        assert_int_equal(a.verdict, expected.verdict);
        assert_int_equal(a.cause, expected.cause);
        assert_int_equal(fli_attempt_to_release(&a), got == NO ? a.asked : 0);
    }
    assert_int_not_equal(a.verdict, GO); /* it always ends (D4) */
}

TEST(test_random_schedules_against_the_model)
{
    uint64_t rng = rng_seed();
    for (int i = 0; i < 100000; i++) {
        play_random(&rng);
    }
}
