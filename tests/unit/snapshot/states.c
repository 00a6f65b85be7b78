/* states.c: see states.h. */
#include "states.h"

#include "../../lib/unit.h"

static void apply(struct machine *m, const struct machine_command *c, uint8_t code)
{
    struct fli_buf b;
    uint8_t header[MACHINE_BATCH_HEADER_SIZE] = {0};
    struct machine_result result;
    fli_buf_init(&b, 65536);
    assert_int_equal(fli_buf_append(&b, header, sizeof header), 0);
    assert_int_equal(machine_command_encode(c, &b), 0);
    assert_int_equal(fli_buf_reserve(&b, 8), 0);
    struct machine_batch_header h = {
        .count = 1, .timestamp_ms = machine_clock(m) + 1, .term = 1, .length = (uint32_t)b.len};
    size_t size = machine_batch_seal(b.data, &h);
    assert_int_equal(machine_apply(m, b.data, size, &result), 0);
    assert_int_equal(result.code, code);
    fli_buf_fini(&b);
}

static void acquire(struct machine *m, unsigned number)
{
    char name[64];
    uint8_t value[FL_VALUE_MAX] = {0};
    snprintf(name, sizeof name, "a-name-of-some-length-%u", number);
    struct fli_slice text = {(const uint8_t *)name, strlen(name)};
    struct machine_command c = {.op = MACHINE_OP_ACQUIRE,
                                .n_names = 1,
                                .permits = 1,
                                .name = text,
                                .owner = text,
                                .value = {value, sizeof value},
                                .ttl_ms = 60000};
    apply(m, &c, MACHINE_GRANTED);
}

void states_add(struct machine *m, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        acquire(m, i);
    }
}

struct machine *states_make(unsigned n)
{
    static const uint64_t seed[2] = {1, 2};
    struct machine *m = machine_create(seed);
    states_add(m, 0, n);
    return m;
}

struct machine *states_make_cluster(uint64_t id, unsigned n)
{
    struct machine *m = states_make(0);
    struct machine_command c = {
        .op = MACHINE_OP_INIT, .number = id, .limits = MACHINE_LIMITS_DEFAULT};
    apply(m, &c, MACHINE_DONE);
    states_add(m, 0, n);
    return m;
}
