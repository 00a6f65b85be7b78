/* test_gather.c: one request that becomes several commands: how many of them are under way, and
 * what is told when some fail. */
#include "fake.h"

#include <stdio.h>

#include "server/dispatch_private.h"
#include "server/gather.h"

#define RENEW_EACH "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635"

static struct frontdoor_context frontdoor;

static int setup(void **state)
{
    assert_int_equal(fake_setup(state), 0);
    assert_int_equal(frontdoor_scripts_create(&frontdoor.scripts), 0);
    ((struct fake *)*state)->d->config.frontdoor = &frontdoor;
    return 0;
}

static int teardown(void **state)
{
    frontdoor_scripts_destroy(frontdoor.scripts);
    return fake_teardown(state);
}

/* Asks to prolong the locks k0, k1 and so on, of the owners v0, v1 and so on. */
static struct asked *prolong(struct fake *f, unsigned n)
{
    char line[4096];
    int len = snprintf(line, sizeof line, "EVALSHA " RENEW_EACH " %u", n);
    for (unsigned i = 0; i < n; i++) {
        len += snprintf(line + len, sizeof line - (size_t)len, " k%u", i);
    }
    len += snprintf(line + len, sizeof line - (size_t)len, " 10000");
    for (unsigned i = 0; i < n; i++) {
        len += snprintf(line + len, sizeof line - (size_t)len, " v%u", i);
    }
    struct asked *a = ask(f, 2, line);
    dispatch_turn(f->d);
    return a;
}

static void expect_start(const struct asked *a, const char *start)
{
    assert_true(a->answered);
    assert_true(a->reply.len >= strlen(start));
    assert_memory_equal(a->reply.data, start, strlen(start));
}

TEST_WITH(each_part_has_its_result, setup, teardown)
{
    struct fake *f = *state;
    struct asked *a = prolong(f, 3);
    assert_int_equal(f->sent_n, 3);
    assert_memory_equal(f->sent[2].command.name.data, "k2", 2);
    assert_memory_equal(f->sent[2].command.owner.data, "v2", 2);
    assert_int_equal(f->sent[2].command.ttl_ms, 10000);
    result(&f->sent[2], (struct machine_result){.code = MACHINE_DONE});
    result(&f->sent[0], (struct machine_result){.code = MACHINE_NO});
    expect_nothing(a);
    result(&f->sent[1], (struct machine_result){.code = MACHINE_HELD});
    expect(a, "*3\r\n:0\r\n:0\r\n:1\r\n");
}

/* What becomes of two parts, and how the answer to the whole begins. Status 0: the code. */
struct outcomes {
    int status[2];
    uint8_t code[2];
    const char *answer;
};

/* No error word but UNCERTAIN may stand for parts that were done, or may have been. */
TEST(what_is_known_of_all_parts_is_told)
{
    static const struct outcomes rows[] = {
        {{FL_EUNCERTAIN, FL_ENOLEADER}, {0, 0}, "-UNCERTAIN the outcome is unknown"},
        {{FL_ENOLEADER, FL_EUNCERTAIN}, {0, 0}, "-UNCERTAIN the outcome is unknown"},
        {{FL_EUNCERTAIN, FL_EBUSY}, {0, 0}, "-UNCERTAIN the outcome is unknown"},
        {{FL_EUNCERTAIN, 0}, {0, MACHINE_NOPERM}, "-UNCERTAIN the outcome is unknown"},
        {{0, FL_EUNCERTAIN}, {MACHINE_DONE, 0}, "-UNCERTAIN the outcome is unknown"},
        {{0, FL_ENOLEADER}, {MACHINE_DONE, 0}, "-UNCERTAIN some of these locks were prolonged"},
        {{FL_EBUSY, 0}, {0, MACHINE_DONE}, "-UNCERTAIN some of these locks were prolonged"},
        {{0, 0}, {MACHINE_DONE, MACHINE_NOPERM}, "-UNCERTAIN some of these locks were prolonged"},
        {{0, 0}, {MACHINE_NOAUTH, MACHINE_DONE}, "-UNCERTAIN some of these locks were prolonged"},
        /* Surely nothing was done. */
        {{FL_ENOLEADER, FL_ENOLEADER}, {0, 0}, "-NOLEADER "},
        {{FL_ENOLEADER, 0}, {0, MACHINE_HELD}, "-NOLEADER "},
        {{0, FL_EBUSY}, {MACHINE_NO, 0}, "-BUSY "},
        {{0, 0}, {MACHINE_NOPERM, MACHINE_NO}, "-NOPERM "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(setup(state), 0);
        struct fake *f = *state;
        struct asked *a = prolong(f, 2);
        for (unsigned part = 0; part < 2; part++) {
            if (rows[i].status[part] != 0) {
                failure(&f->sent[part], rows[i].status[part]);
            } else {
                result(&f->sent[part], (struct machine_result){.code = rows[i].code[part]});
            }
        }
        expect_start(a, rows[i].answer);
        assert_int_equal(teardown(state), 0);
    }
}

static void done(struct fake *f, unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++) {
        result(&f->sent[i], (struct machine_result){.code = MACHINE_DONE});
    }
}

TEST_WITH(few_parts_are_under_way, setup, teardown)
{
    struct fake *f = *state;
    struct asked *a = prolong(f, GATHER_WINDOW);
    assert_int_equal(f->sent_n, GATHER_WINDOW);
    done(f, 0, GATHER_WINDOW);
    assert_true(a->answered);
    f->sent_n = 0;
    a = prolong(f, GATHER_WINDOW + 1);
    assert_int_equal(f->sent_n, GATHER_WINDOW);
    assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
    done(f, 0, 1);
    assert_int_equal(f->sent_n, GATHER_WINDOW); /* not from inside a result */
    assert_int_equal(dispatch_next_turn_ms(f->d), 0);
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, GATHER_WINDOW + 1);
    assert_memory_equal(last_sent(f)->command.name.data, "k16", 3);
    assert_memory_equal(last_sent(f)->command.owner.data, "v16", 3);
    done(f, 1, GATHER_WINDOW + 1);
    expect_start(a, "*17\r\n:1\r\n");
}

TEST_WITH(all_parts_come_in_order, setup, teardown)
{
    struct fake *f = *state;
    struct asked *a = prolong(f, FRONTDOOR_EACH_MAX);
    for (unsigned i = 0; i < FRONTDOOR_EACH_MAX; i++) {
        char name[8];
        int len = snprintf(name, sizeof name, "k%u", i);
        assert_true(f->sent_n > i);
        assert_int_equal(f->sent[i].command.name.len, len);
        assert_memory_equal(f->sent[i].command.name.data, name, (size_t)len);
        done(f, i, i + 1);
        dispatch_turn(f->d);
    }
    expect_start(a, "*120\r\n:1\r\n");
}

TEST_WITH(the_first_that_fails_ends_it, setup, teardown)
{
    struct fake *f = *state;
    struct asked *a = prolong(f, GATHER_WINDOW + 2);
    failure(&f->sent[0], FL_ENOLEADER);
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, GATHER_WINDOW);
    for (unsigned i = 1; i < GATHER_WINDOW; i++) {
        expect_nothing(a);
        failure(&f->sent[i], FL_ENOLEADER);
    }
    expect_start(a, "-NOLEADER ");
}

/* A part that finds no room leaves its lock to another one, which has a place. */
TEST_WITH(a_line_that_is_full_makes_it_slower, setup, teardown)
{
    struct fake *f = *state;
    struct asked *a = prolong(f, GATHER_WINDOW + 1);
    done(f, 0, 1);
    f->submit_rc = FL_EBUSY;
    dispatch_turn(f->d);
    expect_nothing(a);
    f->submit_rc = 0;
    done(f, 1, 2);
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, GATHER_WINDOW + 1);
    done(f, 2, GATHER_WINDOW + 1);
    expect_start(a, "*17\r\n:1\r\n");
    f->submit_rc = FL_EBUSY; /* nothing of it is under way */
    expect_start(prolong(f, 20), "-BUSY ");
}

TEST_WITH(who_has_left_sends_no_more, setup, teardown)
{
    struct fake *f = *state;
    struct asked *a = prolong(f, 3 * GATHER_WINDOW);
    done(f, 0, 1);
    dispatch_cancel(f->d, &a->slot);
    dispatch_turn(f->d);
    done(f, 1, GATHER_WINDOW);
    assert_int_equal(f->sent_n, GATHER_WINDOW);
    assert_int_equal(f->d->calls, 0);
    a = prolong(f, 3 * GATHER_WINDOW); /* and once more, to be given up with a part in line */
    dispatch_cancel(f->d, &a->slot);
    done(f, GATHER_WINDOW, 2 * GATHER_WINDOW);
}

TEST_WITH(a_node_that_stops_ends_it, setup, teardown)
{
    struct fake *f = *state;
    struct asked *a = prolong(f, GATHER_WINDOW + 2);
    struct asked *b = prolong(f, 1);
    done(f, 0, 1);
    dispatch_stop(f->d);
    done(f, 1, GATHER_WINDOW);
    expect_start(a, "-UNCERTAIN some of these locks were prolonged and others were not (NOLEADER)");
    done(f, GATHER_WINDOW, GATHER_WINDOW + 1);
    expect(b, "*1\r\n:1\r\n");
}

TEST(parts_need_places)
{
    for (unsigned few = 0; few <= 1; few++) {
        struct fake f;
        fake_start_with(&f, GATHER_WINDOW + 1 - few);
        assert_int_equal(frontdoor_scripts_create(&frontdoor.scripts), 0);
        f.d->config.frontdoor = &frontdoor;
        struct asked *a = prolong(&f, GATHER_WINDOW + 1);
        if (few) {
            expect_start(a, "-BUSY ");
        } else {
            expect_nothing(a);
            for (unsigned i = 0; i < GATHER_WINDOW + 1; i++) {
                done(&f, i, i + 1);
                dispatch_turn(f.d);
            }
            assert_true(a->answered);
        }
        frontdoor_scripts_destroy(frontdoor.scripts);
        fake_end(&f);
    }
}

static unsigned held_n;
static size_t charged;

static void hold(void *ctx, void *request, size_t bytes)
{
    held_n++;
    charged = bytes;
}

static void release(void *ctx, void *request)
{
    held_n--;
}

/* So a client has one of them under way, whatever it has sent. */
TEST_WITH(the_next_requests_of_its_client_wait, setup, teardown)
{
    struct fake *f = *state;
    f->d->config.hold = hold;
    f->d->config.release = release;
    struct asked *a = prolong(f, 2);
    assert_int_equal(held_n, 1);
    assert_in_range(charged, 2 * DISPATCH_CALL_MEMORY + 8, 3 * DISPATCH_CALL_MEMORY);
    done(f, 0, 2);
    assert_true(a->answered);
    assert_int_equal(held_n, 0);
}

static unsigned refusals[2]; /* for want of a login, of a right */

static void refused(void *ctx, void *request, enum fli_command_id id, bool by_right)
{
    assert_int_equal(id, FLI_CMD_EVALSHA);
    refusals[by_right]++;
}

/* For the log of audits and for INFO. */
TEST_WITH(a_refusal_is_told_once_for_the_whole, setup, teardown)
{
    struct fake *f = *state;
    f->d->config.refused = refused;
    memset(refusals, 0, sizeof refusals);
    struct asked *a = prolong(f, 3);
    for (unsigned i = 0; i < 3; i++) {
        result(&f->sent[i], (struct machine_result){.code = MACHINE_NOPERM});
    }
    expect_start(a, "-NOPERM ");
    assert_int_equal(refusals[true], 1);
    a = prolong(f, 2);
    done(f, 3, 4);
    result(&f->sent[4], (struct machine_result){.code = MACHINE_NOAUTH});
    expect_start(a, "-UNCERTAIN ");
    assert_int_equal(refusals[false], 1);
    a = prolong(f, 1);
    result(&f->sent[5], (struct machine_result){.code = MACHINE_LIMIT});
    assert_true(a->answered);
    assert_int_equal(refusals[true] + refusals[false], 2);
}
