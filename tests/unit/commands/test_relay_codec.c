/* test_relay_codec.c: the bodies of relay frames, whole, damaged and random. */
#include "../../lib/rng.h"
#include "base/bytes.h"
#include "commands/relay_codec.h"

static uint64_t seed;

static uint64_t next_random(void)
{
    return rng_next(&seed);
}

TEST(test_result_round)
{
    struct machine_result r = {.code = MACHINE_QUEUED,
                               .number = UINT32_MAX,
                               .token = 1,
                               .wait = UINT64_MAX,
                               .deadline_ms = 3,
                               .clock_ms = 4};
    struct relay_answer a;
    uint8_t bytes[RELAY_RESULT_SIZE + 3];
    relay_result_encode(9, 0, &r, bytes);
    memcpy(bytes + RELAY_RESULT_SIZE, "abc", 3);
    assert_int_equal(relay_result_decode((struct fli_slice){bytes, sizeof bytes}, &a), 0);
    assert_int_equal(a.sequence, 9);
    assert_int_equal(a.status, 0);
    assert_memory_equal(&a.result, &r, sizeof r);
    assert_int_equal(a.payload.len, 3);
    relay_result_encode(10, FL_EUNCERTAIN, NULL, bytes);
    assert_int_equal(relay_result_decode((struct fli_slice){bytes, RELAY_RESULT_SIZE}, &a), 0);
    assert_int_equal(a.status, FL_EUNCERTAIN);
    /* A refusal with a payload, a success without a code, one byte short. */
    assert_int_equal(relay_result_decode((struct fli_slice){bytes, RELAY_RESULT_SIZE + 1}, &a),
                     FL_EPROTO);
    fli_put_u32(bytes + 8, 0);
    assert_int_equal(relay_result_decode((struct fli_slice){bytes, RELAY_RESULT_SIZE}, &a),
                     FL_EPROTO);
    relay_result_encode(9, 0, &r, bytes);
    assert_int_equal(relay_result_decode((struct fli_slice){bytes, RELAY_RESULT_SIZE - 1}, &a),
                     FL_EPROTO);
}

/* What a leader refuses with is refused at the follower too. */
TEST(test_result_refused)
{
    uint8_t bytes[RELAY_RESULT_SIZE];
    struct relay_answer a;
    static const int STATUS[] = {FL_ENOLEADER, FL_EBUSY,  FL_EINVAL,
                                 FL_ELIMIT,    FL_ENOMEM, FL_EUNCERTAIN};
    for (size_t i = 0; i < sizeof STATUS / sizeof STATUS[0]; i++) {
        relay_result_encode(9, STATUS[i], NULL, bytes);
        assert_int_equal(relay_result_decode((struct fli_slice){bytes, sizeof bytes}, &a), 0);
        assert_int_equal(a.status, STATUS[i]);
    }
}

/* A status that no leader gives must not be taken for "surely not done". */
TEST(test_result_unknown_status)
{
    uint8_t bytes[RELAY_RESULT_SIZE];
    struct relay_answer a;
    static const uint32_t STATUS[] = {1, 0x7fffffff, 0x80000000, 0xffffffff, 1299, 1201};
    for (size_t i = 0; i < sizeof STATUS / sizeof STATUS[0]; i++) {
        relay_result_encode(9, FL_EBUSY, NULL, bytes);
        fli_put_u32(bytes + 8, STATUS[i]);
        assert_int_equal(relay_result_decode((struct fli_slice){bytes, sizeof bytes}, &a), 0);
        assert_int_equal(a.status, FL_EUNCERTAIN);
    }
}

TEST(test_event_round)
{
    uint8_t name[FL_NAME_MAX];
    uint8_t owner[FL_OWNER_MAX];
    uint8_t bytes[RELAY_EVENT_SIZE];
    struct machine_event back;
    memset(name, 0, sizeof name);
    memset(owner, 0xff, sizeof owner);
    struct machine_event e = {.type = MACHINE_EVENT_GRANTED,
                              .reason = MACHINE_REASON_NONE,
                              .session_explicit = true,
                              .name = {name, sizeof name},
                              .owner = {owner, sizeof owner},
                              .token = 1,
                              .wait = 2,
                              .deadline_ms = 3,
                              .clock_ms = 4};
    assert_int_equal(relay_event_encode(&e, bytes), sizeof bytes);
    assert_int_equal(relay_event_decode((struct fli_slice){bytes, sizeof bytes}, &back), 0);
    assert_int_equal(back.token, 1);
    assert_int_equal(back.wait, 2);
    assert_int_equal(back.deadline_ms, 3);
    assert_int_equal(back.clock_ms, 4);
    assert_true(back.session_explicit);
    assert_int_equal(back.name.len, sizeof name);
    assert_memory_equal(back.owner.data, owner, sizeof owner);
    for (size_t len = 0; len < sizeof bytes; len++) {
        assert_int_equal(relay_event_decode((struct fli_slice){bytes, len}, &back), FL_EPROTO);
    }
    bytes[2] = 2; /* neither true nor false */
    assert_int_equal(relay_event_decode((struct fli_slice){bytes, sizeof bytes}, &back), FL_EPROTO);
}

TEST(test_random_bodies)
{
    for (unsigned i = 0; i < 50000; i++) {
        uint8_t bytes[640];
        size_t len = next_random() % sizeof bytes;
        for (size_t j = 0; j < len; j++) {
            bytes[j] = (uint8_t)(next_random() % 3 == 0 ? next_random() : 0);
        }
        struct fli_slice body = {bytes, len};
        struct relay_answer a;
        struct machine_event e;
        if (relay_result_decode(body, &a) == 0) {
            assert_true(a.payload.len <= len);
        }
        if (relay_event_decode(body, &e) == 0) {
            assert_int_equal(e.name.len + e.owner.len + 37, len);
        }
    }
}

int main(int argc, char **argv)
{
    seed = rng_seed();
    return unit_run(argc, argv, NULL, NULL);
}
