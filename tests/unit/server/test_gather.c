/* test_gather.c: one request that becomes several commands: what is told when some of them fail. */
#include "fake.h"

#include <stdio.h>

#include "server/dispatch_private.h"

#define RENEW_EACH "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635"

static struct dispatch_face face;

static int setup(void **state)
{
    assert_int_equal(fake_setup(state), 0);
    assert_int_equal(face_scripts_create(&face.scripts), 0);
    ((struct fake *)*state)->d->config.face = &face;
    return 0;
}

static int teardown(void **state)
{
    face_scripts_destroy(face.scripts);
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
    return ask(f, 2, line);
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
