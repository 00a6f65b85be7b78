/* waits.c: see waits.h. */
#include "waits.h"

#include "machine/batch.h"

const struct machine_result queued = {
    .code = MACHINE_QUEUED, .wait = WAIT, .token = 1, .number = 1};

struct asked *ask_and_queue(struct fake *f, const char *line, uint64_t times_asked)
{
    struct asked *a = ask(f, 2, line);
    struct machine_result r = queued;
    r.token = times_asked;
    result(last_sent(f), r);
    return a;
}

uint64_t parked(struct fake *f)
{
    struct info_counts counts;
    dispatch_get_counts(f->d, &counts);
    return counts.parked;
}

void expect_cancel(struct fake *f, unsigned sent_before, uint64_t times_asked)
{
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, sent_before + 1);
    const struct machine_command *c = &last_sent(f)->command;
    assert_int_equal(c->op, MACHINE_OP_CANCEL);
    assert_int_equal(c->number, WAIT);
    assert_int_equal(c->number2, times_asked);
}

void expect_release(struct fake *f, unsigned sent_before, uint64_t token)
{
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, sent_before + 1);
    const struct machine_command *c = &last_sent(f)->command;
    assert_int_equal(c->op, MACHINE_OP_RELEASE);
    assert_int_equal(c->name.len, 1);
    assert_int_equal(c->name.data[0], 'n');
    assert_int_equal(c->token, token);
}

void expect_no_cleanup(struct fake *f, unsigned sent_before)
{
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, sent_before);
}

static void batch_of(struct machine *m, const struct machine_command *c, unsigned n,
                     struct machine_result *results)
{
    struct fli_buf b;
    struct machine_batch_header h = {.count = n};
    fli_buf_init(&b, MACHINE_BATCH_MAX);
    assert_int_equal(fli_buf_reserve(&b, MACHINE_BATCH_HEADER_SIZE + n * MACHINE_COMMAND_MAX), 0);
    b.len = MACHINE_BATCH_HEADER_SIZE;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(machine_command_encode(&c[i], &b), 0);
    }
    h.length = (uint32_t)b.len;
    assert_int_equal(machine_apply(m, b.data, machine_batch_seal(b.data, &h), results), 0);
    fli_buf_fini(&b);
}

struct machine *machine_with_a_wait(void)
{
    const uint64_t seed[2] = {1, 2};
    struct machine *m = machine_create(seed);
    struct machine_command c[2];
    struct machine_result r[2];
    for (unsigned i = 0; i < 2; i++) {
        c[i] = (struct machine_command){.op = MACHINE_OP_ACQUIRE,
                                        .flags = i == 0 ? 0 : MACHINE_ACQUIRE_WAIT,
                                        .mode = MACHINE_MODE_EXCLUSIVE,
                                        .n_names = 1,
                                        .permits = 1,
                                        .name = {(const uint8_t *)"n", 1},
                                        .owner = {(const uint8_t *)(i == 0 ? "a" : "b"), 1},
                                        .ttl_ms = 5000,
                                        .wait_ms = i == 0 ? 0 : 5000};
    }
    batch_of(m, c, 2, r);
    assert_int_equal(r[1].code, MACHINE_QUEUED);
    assert_int_equal(r[1].wait, 1);
    return m;
}
