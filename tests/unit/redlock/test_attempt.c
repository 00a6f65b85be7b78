/* One attempt: tables of what the servers say, and random schedules against a naive model that
 * judges from the list of events as a whole. */
#include "rng.h"

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
    int code;
    int after_timer; /* when the verdict was NONE */
};

#define A FLI_ATTEMPT_ACQUIRE
#define E FLI_ATTEMPT_EXTEND
#define R FLI_ATTEMPT_RELEASE
#define GO FLI_VERDICT_NONE
#define OK FLI_VERDICT_DONE
#define NO FLI_VERDICT_FAILED

static const struct row rows[] = {
    {A, "Y", OK, 0, 0},
    {A, "h", NO, FL_ENOTHELD, 0},
    {A, "d", NO, FL_ENOCONN, 0},
    {A, ".", GO, 0, FL_ETIMEOUT},
    {A, "YY", OK, 0, 0},
    {A, "Yh", NO, FL_ENOTHELD, 0}, /* an even split ends (D4) */
    {A, "Y.", GO, 0, FL_ETIMEOUT},
    {A, "YY.", OK, 0, 0}, /* 2 of 3 are a quorum (D11) */
    {A, "YYd", OK, 0, 0}, /* a minority that is down does not matter (D3) */
    {A, "Y..", GO, 0, FL_ETIMEOUT},
    {A, "hh.", NO, FL_ENOTHELD, 0},
    {A, "Yhd", NO, FL_ENOTHELD, 0},
    {A, "hd.", NO, FL_ENOTHELD, 0}, /* it ends before the third one is known */
    {A, "ddh", NO, FL_ENOCONN, 0},
    {A, "ee.", NO, FL_EDENIED, 0}, /* outage is not contention (D19) */
    {A, "eed", NO, FL_EDENIED, 0},
    {A, "dd.", NO, FL_ENOCONN, 0},
    {A, "d..", GO, 0, FL_ETIMEOUT},
    {A, "yyY", NO, FL_EDENIED, 0},
    {A, "ytY", NO, FL_EDENIED, 0},
    {A, "ffY", NO, FL_ENOTHELD, 0},
    {A, "YYY..", OK, 0, 0},
    {A, "YYdd.", GO, 0, FL_ENOCONN},
    {A, "YYh..", GO, 0, FL_ENOTHELD},
    {A, "YYhh.", GO, 0, FL_ENOTHELD},
    {A, "YYhd.", GO, 0, FL_ENOTHELD},
    {A, "Yhhd.", NO, FL_ENOTHELD, 0},
    {A, "hrt.Y", NO, FL_ENOTHELD, 0},
    {A, "rrt.Y", NO, FL_EDENIED, 0},
    {E, "YY.", OK, 0, 0},
    {E, "nn.", NO, FL_ENOTHELD, 0},
    {E, "fn.", NO, FL_ENOTHELD, 0},
    {E, "nd.", NO, FL_ENOCONN, 0}, /* not certain: it may be tried again */
    {E, "nY.", GO, 0, FL_ETIMEOUT},
    {E, "nYe", NO, FL_EDENIED, 0},
    {E, "nnYd.", NO, FL_ENOCONN, 0},
    {E, "nnnYY", NO, FL_ENOTHELD, 0},
    {R, "YY.", OK, 0, 0},
    {R, "Yn.", GO, 0, 0}, /* two of three are free of it */
    {R, "Y..", GO, 0, FL_ETIMEOUT},
    {R, "nn.", NO, FL_ENOTHELD, 0},
    {R, "ddd", NO, FL_ENOCONN, 0},
    {R, "YnYd.", GO, 0, 0},
};

TEST(test_table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        struct fli_attempt a;
        play(&a, r->kind, r->words);
        if (a.verdict != r->verdict || (r->verdict != GO && a.code != r->code)) {
            fail_msg("row %zu \"%s\": verdict %d, code %d", i, r->words, (int)a.verdict, a.code);
        }
        if (r->verdict == GO) {
            enum fli_verdict v = fli_attempt_timeout(&a, 1060);
            if (a.code != r->after_timer || v != (r->after_timer == 0 ? OK : NO)) {
                fail_msg("row %zu \"%s\": after the timer: code %d", i, r->words, a.code);
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
        assert_int_equal(a.code, late ? FL_ETIMEOUT : 0);
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
    assert_int_equal(a.code, FL_ENOTHELD);
    assert_int_equal(fli_attempt_to_release(&a), (1 << FL_REDLOCK_SERVERS_MAX) - 1);
}

/* ---- random schedules ------------------------------------------------------------------------ */

struct event {
    uint32_t server; /* n: the timer */
    enum fl_redlock_status status;
    uint64_t at_ms;
};

struct outcome {
    enum fli_verdict verdict;
    int code;
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
            return (struct outcome){valid ? OK : NO, valid ? 0 : FL_ETIMEOUT};
        }
        if (yes + open > n / 2) {
            continue;
        }
        uint32_t bad = down + error + silent;
        if (n - bad > n / 2) { /* enough servers work */
            return (struct outcome){NO, FL_ENOTHELD};
        }
        int code = FL_ETIMEOUT;
        if (error >= down && error >= silent) {
            code = FL_EDENIED;
        } else if (down >= silent) {
            code = FL_ENOCONN;
        }
        return (struct outcome){NO, code};
    }
    return (struct outcome){GO, 0};
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
        assert_int_equal(a.code, expected.code);
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
