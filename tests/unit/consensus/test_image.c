/* test_image.c: what the child encodes is the state of the moment in which it was made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "consensus/image.h"

#define LOCKS 5000u

struct rig {
    uv_loop_t loop;
    struct machine *machine;
    struct image *image;
    uint64_t clock_ms;
    unsigned dones, gones;
    int error;
};

static struct rig rig;

static void on_done(void *ctx, int error)
{
    struct rig *r = ctx;
    r->dones++;
    r->error = error;
}

static void on_gone(void *ctx)
{
    struct rig *r = ctx;
    r->gones++;
}

static void acquire(struct rig *r, unsigned number)
{
    struct fli_buf b;
    uint8_t header[MACHINE_BATCH_HEADER_SIZE] = {0};
    char name[64];
    uint8_t value[FL_VALUE_MAX] = {0};
    struct machine_result result;
    snprintf(name, sizeof name, "a-name-of-some-length-%u", number);
    struct fli_slice text = {(const uint8_t *)name, strlen(name)};
    struct machine_command c = {.op = MACHINE_OP_ACQUIRE,
                                .n_names = 1,
                                .permits = 1,
                                .name = text,
                                .owner = text,
                                .value = {value, sizeof value},
                                .ttl_ms = 60000};
    fli_buf_init(&b, 65536);
    assert_int_equal(fli_buf_append(&b, header, sizeof header), 0);
    assert_int_equal(machine_command_encode(&c, &b), 0);
    assert_int_equal(fli_buf_reserve(&b, 8), 0);
    struct machine_batch_header h = {
        .count = 1, .stamp_ms = ++r->clock_ms, .term = 1, .length = (uint32_t)b.len};
    size_t size = machine_batch_seal(b.data, &h);
    assert_int_equal(machine_apply(r->machine, b.data, size, &result), 0);
    assert_int_equal(result.code, MACHINE_GRANTED);
    fli_buf_fini(&b);
}

static int set_up(void **state)
{
    static const uint64_t seed[2] = {1, 2};
    struct rig *r = &rig;
    memset(r, 0, sizeof *r);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    r->machine = machine_create(seed);
    for (unsigned i = 0; i < LOCKS; i++) {
        acquire(r, i);
    }
    *state = r;
    return 0;
}

/* Nothing may be left on the loop. */
static int tear_down(void **state)
{
    struct rig *r = *state;
    machine_destroy(r->machine);
    return uv_loop_close(&r->loop);
}

static void begin(struct rig *r, uint64_t records)
{
    struct image_callbacks cbs = {.ctx = r, .done = on_done, .gone = on_gone};
    assert_int_equal(image_create(&r->loop, r->machine, records, &cbs, &r->image), 0);
}

static void end(struct rig *r)
{
    image_destroy(r->image);
    assert_int_equal(r->gones, 0);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(r->gones, 1);
}

static void what_comes_later_is_not_in_it(void **state)
{
    struct rig *r = *state;
    struct fli_buf now;
    fli_buf_init(&now, SIZE_MAX / 4);
    begin(r, LOCKS);
    assert_int_equal(machine_snapshot_encode(r->machine, &now), 0);
    for (unsigned i = LOCKS; i < 2 * LOCKS; i++) {
        acquire(r, i);
    }
    assert_int_equal(r->dones, 0);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(r->dones, 1);
    assert_int_equal(r->error, 0);
    struct fli_slice bytes = image_bytes(r->image);
    assert_int_equal(bytes.len, now.len);
    assert_memory_equal(bytes.data, now.data, now.len);
    fli_buf_fini(&now);
    end(r);
}

/* Room for no record is room for less than these. */
static void no_result_is_told(void **state)
{
    struct rig *r = *state;
    begin(r, 0);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(r->dones, 1);
    assert_int_equal(r->error, FL_ESYSTEM);
    end(r);
}

static void destroyed_before_it_is_done(void **state)
{
    struct rig *r = *state;
    begin(r, LOCKS);
    end(r);
    assert_int_equal(r->dones, 0);
}

static void too_much_is_refused(void **state)
{
    struct rig *r = *state;
    struct image_callbacks cbs = {.ctx = r, .done = on_done, .gone = on_gone};
    assert_int_equal(image_create(&r->loop, r->machine, UINT64_MAX, &cbs, &r->image), FL_ESYSTEM);
    assert_int_equal(image_create(&r->loop, r->machine, (UINT64_C(1) << 30) + 1, &cbs, &r->image),
                     FL_ESYSTEM);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_comes_later_is_not_in_it),
        TEST(no_result_is_told),
        TEST(destroyed_before_it_is_done),
        TEST(too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
