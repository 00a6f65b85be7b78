/* test_batch.c: the codec of commands and batches: layout, ranges, damage. */
#include "fixture.h"

static char long_name[FL_NAME_MAX + 2];
static char long_value[FL_VALUE_MAX + 2];

static struct fli_slice part(const char *bytes, size_t len)
{
    return (struct fli_slice){(const uint8_t *)bytes, len};
}

/* One of each op, each with its fields at their largest where that is possible. */
static unsigned samples(struct machine_command out[48])
{
    struct fli_slice name = part(long_name, FL_NAME_MAX);
    struct fli_slice value = part(long_value, FL_VALUE_MAX);
    unsigned n = 0;
    out[n++] = cmd_limits(MACHINE_OP_INIT, UINT64_MAX, MACHINE_LIMITS_DEFAULT);
    out[n++] = cmd_limits(MACHINE_OP_LIMITS, 0, (struct machine_limits){1, 2, 3, 4, UINT32_MAX});
    out[n++] = cmd_number(MACHINE_OP_LIMIT_SET, MACHINE_LIMITS_SETTABLE, UINT32_MAX);
    out[n++] = cmd_number(MACHINE_OP_SETTING_SET, MACHINE_SETTING_ELECTION, 60000);
    out[n++] = cmd_number(MACHINE_OP_SETTING_SET, MACHINE_SETTING_LOG_LEVEL, 0);
    out[n++] = cmd_acquire("a", "b", FL_TTL_MIN_MS);
    out[n] = cmd_wait("a", "b", FL_TTL_MAX_MS, FL_WAIT_MAX_MS);
    out[n].name = name;
    out[n].owner = name;
    out[n++].value = value;
    out[n++] = cmd_acquire_x("a", "b");
    out[n++] = cmd_wait_x("a", "b", 1);
    out[n++] = cmd_number(MACHINE_OP_CANCEL, UINT64_MAX, UINT64_MAX);
    out[n++] = cmd_held(MACHINE_OP_RENEW, "a", FL_TOKEN_MAX, 0);
    out[n++] = cmd_held(MACHINE_OP_RENEW, "a", 1, FL_TTL_MAX_MS);
    out[n++] = cmd_held(MACHINE_OP_RELEASE, "a", 0, 0);
    out[n++] = cmd_name(MACHINE_OP_BREAK, "a");
    out[n++] = cmd_name(MACHINE_OP_TOKEN, "a");
    out[n] = cmd_open("a", FL_TTL_MAX_MS, FL_LOCKDELAY_MAX_MS, "");
    out[n].owner = name;
    out[n++].label = name;
    out[n++] = cmd_owner(MACHINE_OP_SESSION_RENEW, "a");
    out[n++] = cmd_owner(MACHINE_OP_SESSION_CLOSE, "a");
    out[n++] = cmd_number(MACHINE_OP_RAISE, MACHINE_RAISE_STEP_MAX, 0);
    out[n] = cmd_owner(MACHINE_OP_USER_SET, "a");
    out[n].flags = MACHINE_USER_INITIAL;
    out[n++].words = fixture_slice("on ~a* +@see");
    out[n++] = cmd_owner(MACHINE_OP_USER_SET, "a");
    out[n] = cmd_owner(MACHINE_OP_USER_DELETE, "a");
    out[n].flags = MACHINE_COMMAND_BY;
    out[n++].user = MACHINE_USER_NODE;
    out[n++] = (struct machine_command){.op = MACHINE_OP_USERS_SEAL};
    out[n] = cmd_held(MACHINE_OP_RENEW, "a", 1, 0);
    out[n].flags = MACHINE_COMMAND_BY;
    out[n++].address = fixture_slice("123456");
    out[n++] = (struct machine_command){.op = MACHINE_OP_USERS};
    out[n++] = cmd_owner(MACHINE_OP_USER, "a");
    out[n++] = cmd_number(MACHINE_OP_MAY, 16, 0);
    out[n++] = cmd_held(MACHINE_OP_CHECK, "a", 1, 0);
    out[n++] = cmd_name(MACHINE_OP_SHOW, "a");
    out[n] = cmd_name(MACHINE_OP_LOCKS, "h12");
    out[n].value = value;
    out[n++].number = UINT64_MAX;
    out[n++] = cmd_name(MACHINE_OP_LOCKS, "");
    out[n++] = cmd_owner(MACHINE_OP_SESSION_SHOW, "a");
    out[n++] = cmd_owner(MACHINE_OP_SESSION_LIST, "s7");
    return n;
}

static bool same_slice(struct fli_slice a, struct fli_slice b)
{
    return fli_bytes_cmp(a.data, a.len, b.data, b.len) == 0;
}

static void assert_same(const struct machine_command *a, const struct machine_command *b)
{
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->n_names, b->n_names);
    assert_int_equal(a->permits, b->permits);
    assert_true(same_slice(a->name, b->name));
    assert_true(same_slice(a->owner, b->owner));
    assert_true(same_slice(a->label, b->label));
    assert_true(same_slice(a->value, b->value));
    assert_true(same_slice(a->words, b->words));
    assert_true(same_slice(a->address, b->address));
    assert_true(a->user == b->user);
    assert_int_equal(a->token, b->token);
    assert_int_equal(a->ttl_ms, b->ttl_ms);
    assert_int_equal(a->wait_ms, b->wait_ms);
    assert_int_equal(a->lockdelay_ms, b->lockdelay_ms);
    assert_int_equal(a->number, b->number);
    assert_int_equal(a->number2, b->number2);
    assert_memory_equal(&a->limits, &b->limits, sizeof a->limits);
}

TEST(test_round_trip)
{
    struct machine_command list[48];
    unsigned n = samples(list);
    struct fli_buf b;
    fli_buf_init(&b, MACHINE_COMMAND_MAX);
    for (unsigned i = 0; i < n; i++) {
        struct machine_command c;
        size_t size = 0;
        fli_buf_clear(&b);
        assert_int_equal(machine_command_check(&list[i]), 0);
        assert_int_equal(machine_command_encode(&list[i], &b), 0);
        assert_int_equal(machine_command_decode(b.data, b.len, &c, &size), 0);
        assert_int_equal(size, b.len);
        assert_same(&list[i], &c);
        struct machine_command again;
        assert_int_equal(machine_command_redecode(b.data, b.len, &again), size);
        assert_same(&list[i], &again);
        for (size_t cut = 0; cut < b.len; cut++) {
            assert_int_equal(machine_command_decode(b.data, cut, &c, &size), FL_ECORRUPT);
        }
    }
    /* A buffer that is too small is left as it was. */
    struct fli_buf tight;
    fli_buf_init(&tight, 8);
    assert_int_equal(machine_command_encode(&list[0], &tight), FL_ELIMIT);
    assert_int_equal(tight.len, 0);
    fli_buf_fini(&tight);
    fli_buf_fini(&b);
}

/* Byte for byte, so that a change of the format cannot go unnoticed. */
TEST(test_golden)
{
    static const uint8_t golden[] = {
        5,   2,   36,  0,             /* ACQUIRE, WAIT, length */
        0,   1,   1,   0,   0,   0,   /* exclusive, 1 name, 1 permit */
        3,   'j', 'o', 'b',           /* name */
        5,   'o', 'w', 'n', 'e', 'r', /* owner */
        232, 3,   0,   0,             /* ttl 1000 */
        244, 1,   0,   0,             /* wait 500 */
        6,   0,   'v', 'a', 'l', 'u', 'e', '!',
    };
    struct machine_command c = cmd_wait("job", "owner", 1000, 500);
    c.value = fixture_slice("value!");
    struct fli_buf b;
    fli_buf_init(&b, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_encode(&c, &b), 0);
    assert_int_equal(b.len, sizeof golden);
    assert_memory_equal(b.data, golden, sizeof golden);
    fli_buf_fini(&b);
}

static void refused(struct machine_command c)
{
    struct fli_buf b;
    fli_buf_init(&b, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    assert_int_equal(machine_command_encode(&c, &b), FL_EINVAL);
    assert_int_equal(b.len, 0);
    fli_buf_fini(&b);
}

#define REFUSED(command, field, bad)                                                               \
    do {                                                                                           \
        struct machine_command c_ = command;                                                       \
        assert_int_equal(machine_command_check(&c_), 0);                                           \
        c_.field = bad;                                                                            \
        refused(c_);                                                                               \
    } while (0)

TEST(test_ranges)
{
    struct machine_command a = cmd_acquire("a", "b", 1000);
    struct machine_command w = cmd_wait("a", "b", 1000, 5);
    struct machine_command x = cmd_acquire_x("a", "b");
    struct machine_command o = cmd_open("a", 1000, 0, "");
    REFUSED(a, name, part("", 0));
    REFUSED(a, name, part(long_name, FL_NAME_MAX + 1));
    REFUSED(a, owner, part("", 0));
    REFUSED(a, owner, part(long_name, FL_OWNER_MAX + 1));
    REFUSED(a, value, part(long_value, FL_VALUE_MAX + 1));
    REFUSED(a, ttl_ms, 0);
    REFUSED(a, ttl_ms, FL_TTL_MIN_MS - 1);
    REFUSED(a, ttl_ms, FL_TTL_MAX_MS + 1);
    REFUSED(a, wait_ms, 1);
    REFUSED(a, flags, 4);
    REFUSED(a, mode, 2);
    REFUSED(a, n_names, 0);
    REFUSED(a, n_names, 2);
    REFUSED(a, permits, 0);
    REFUSED(w, wait_ms, 0);
    REFUSED(w, wait_ms, FL_WAIT_MAX_MS + 1);
    REFUSED(x, ttl_ms, 1000);
    REFUSED(o, ttl_ms, 0);
    REFUSED(o, ttl_ms, FL_TTL_MAX_MS + 1);
    REFUSED(o, lockdelay_ms, FL_LOCKDELAY_MAX_MS + 1);
    REFUSED(o, label, part(long_name, FL_LABEL_MAX + 1));
    REFUSED(o, flags, 1);
    REFUSED(cmd_held(MACHINE_OP_RENEW, "a", 1, 0), ttl_ms, FL_TTL_MIN_MS - 1);
    REFUSED(cmd_held(MACHINE_OP_RENEW, "a", 1, 0), ttl_ms, FL_TTL_MAX_MS + 1);
    REFUSED(cmd_held(MACHINE_OP_RELEASE, "a", 1, 0), token, FL_TOKEN_MAX + 1);
    REFUSED(cmd_number(MACHINE_OP_RAISE, 1, 0), number, 0);
    REFUSED(cmd_number(MACHINE_OP_RAISE, 1, 0), number, MACHINE_RAISE_STEP_MAX + 1);
    REFUSED(cmd_limits(MACHINE_OP_INIT, 1, MACHINE_LIMITS_DEFAULT), number, 0);
    REFUSED(cmd_limits(MACHINE_OP_LIMITS, 0, MACHINE_LIMITS_DEFAULT), limits.locks_max, 0);
    REFUSED(cmd_limits(MACHINE_OP_LIMITS, 0, MACHINE_LIMITS_DEFAULT), limits.waits_max, 0);
    REFUSED(cmd_name(MACHINE_OP_LOCKS, ""), value, part(long_value, FL_VALUE_MAX + 1));
    REFUSED(cmd_name(MACHINE_OP_LOCKS, "0"), name, fixture_slice("x1"));
    REFUSED(cmd_name(MACHINE_OP_LOCKS, "i1"), name, fixture_slice("h"));
    REFUSED(cmd_name(MACHINE_OP_LOCKS, "i1"), name, fixture_slice("h1x"));
    REFUSED(cmd_name(MACHINE_OP_LOCKS, "i1"), name, part("\0001", 2));
    REFUSED(cmd_owner(MACHINE_OP_SESSION_LIST, "s1"), owner, fixture_slice("h1"));
    REFUSED(cmd_name(MACHINE_OP_BREAK, "a"), op, 0);
    REFUSED(cmd_name(MACHINE_OP_BREAK, "a"), op, 127);
    REFUSED(cmd_name(MACHINE_OP_BREAK, "a"), op, 255);
}

/* Several names, and what a later version may write, which is refused as unknown. */
TEST(test_room_for_later)
{
    struct fli_buf b;
    fli_buf_init(&b, MACHINE_COMMAND_MAX);
    struct machine_command c = cmd_acquire("a", "b", 1000);
    size_t size = 0;
    assert_int_equal(machine_command_encode(&c, &b), 0);
    b.data[0] = 100;
    assert_int_equal(machine_command_decode(b.data, b.len, &c, &size), FL_EVERSION);
    b.data[0] = MACHINE_OP_ACQUIRE;
    b.data[1] = 8;
    assert_int_equal(machine_command_decode(b.data, b.len, &c, &size), FL_EVERSION);
    b.data[1] = 0;
    b.data[4] = 2;
    assert_int_equal(machine_command_decode(b.data, b.len, &c, &size), FL_EVERSION);
    b.data[4] = MACHINE_MODE_SHARED;
    assert_int_equal(machine_command_decode(b.data, b.len, &c, &size), 0);
    /* Three names: "a", "bb", "c". */
    static const uint8_t several[] = {5, 0,   27, 0,   0,   3, 1, 0, 0, 0, 1, 'a', 2, 'b', 'b',
                                      1, 'c', 1,  'o', 232, 3, 0, 0, 0, 0, 0, 0,   0, 0};
    uint8_t bytes[sizeof several];
    memcpy(bytes, several, sizeof several);
    bytes[2] = sizeof several;
    assert_int_equal(machine_command_decode(bytes, sizeof bytes, &c, &size), 0);
    assert_int_equal(c.n_names, 3);
    assert_true(same_slice(c.name, fixture_slice("a")));
    struct fli_slice names[MACHINE_NAMES_MAX];
    assert_int_equal(machine_command_names(&c, names), 3);
    assert_true(same_slice(names[1], fixture_slice("bb")));
    assert_true(same_slice(names[2], fixture_slice("c")));
    bytes[16] = 'a'; /* twice the same name */
    assert_int_equal(machine_command_decode(bytes, sizeof bytes, &c, &size), FL_ECORRUPT);
    bytes[16] = 'c';
    bytes[5] = MACHINE_NAMES_MAX + 1;
    assert_int_equal(machine_command_decode(bytes, sizeof bytes, &c, &size), FL_ECORRUPT);
    bytes[5] = 4;
    assert_int_equal(machine_command_decode(bytes, sizeof bytes, &c, &size), FL_ECORRUPT);
    fli_buf_fini(&b);
}

/* Whatever bytes decode to a command are the bytes that this command encodes to. */
TEST(test_damaged_commands)
{
    uint64_t rng = rng_seed();
    struct machine_command list[48];
    unsigned n = samples(list);
    struct fli_buf b;
    struct fli_buf again;
    fli_buf_init(&b, MACHINE_COMMAND_MAX);
    fli_buf_init(&again, MACHINE_COMMAND_MAX);
    unsigned accepted = 0;
    for (unsigned i = 0; i < 100000; i++) {
        fli_buf_clear(&b);
        assert_int_equal(machine_command_encode(&list[rng_below(&rng, n)], &b), 0);
        /* An exact copy, so that a sanitizer sees the first byte read too far. */
        uint8_t *p = malloc(b.len);
        memcpy(p, b.data, b.len);
        for (uint64_t k = 1 + rng_below(&rng, 3); k > 0; k--) {
            p[rng_below(&rng, rng_below(&rng, 2) == 0 ? b.len : 16) % b.len] ^=
                (uint8_t)(1u << rng_below(&rng, 8));
        }
        struct machine_command c;
        size_t size = 0;
        int rc = machine_command_decode(p, b.len, &c, &size);
        assert_true(rc == 0 || rc == FL_ECORRUPT || rc == FL_EVERSION);
        if (rc == 0 && machine_command_check(&c) == 0) {
            fli_buf_clear(&again);
            assert_int_equal(machine_command_encode(&c, &again), 0);
            assert_int_equal(again.len, size);
            assert_memory_equal(again.data, p, size);
            accepted++;
        }
        free(p);
    }
    assert_true(accepted > 0);
    fli_buf_fini(&b);
    fli_buf_fini(&again);
}

/* The most names of the greatest length, and one more. */
TEST(test_most_names)
{
    static uint8_t bytes[MACHINE_NAMES_MAX + 1][FL_NAME_MAX];
    uint8_t also[MACHINE_ALSO_SIZE];
    size_t len = 0;
    for (unsigned i = 0; i <= MACHINE_NAMES_MAX; i++) {
        memset(bytes[i], 'a' + (int)i, sizeof bytes[i]);
    }
    struct machine_command c = cmd_wait("x", "y", 1000, 1000);
    c.name = (struct fli_slice){bytes[0], FL_NAME_MAX};
    c.owner = (struct fli_slice){bytes[16], FL_OWNER_MAX};
    c.value = part(long_value, FL_VALUE_MAX);
    for (unsigned i = 1; i < MACHINE_NAMES_MAX; i++) {
        len = machine_also_add(also, len, (struct fli_slice){bytes[i], FL_NAME_MAX});
    }
    assert_int_equal(len, sizeof also);
    c.also = (struct fli_slice){also, len};
    c.n_names = MACHINE_NAMES_MAX;
    struct fli_buf b;
    fli_buf_init(&b, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_encode(&c, &b), 0);
    struct machine_command back;
    size_t size = 0;
    assert_int_equal(machine_command_decode(b.data, b.len, &back, &size), 0);
    struct fli_slice names[MACHINE_NAMES_MAX];
    assert_int_equal(machine_command_names(&back, names), MACHINE_NAMES_MAX);
    for (unsigned i = 0; i < MACHINE_NAMES_MAX; i++) {
        assert_true(same_slice(names[i], (struct fli_slice){bytes[i], FL_NAME_MAX}));
    }
    fli_buf_fini(&b);
    c.n_names = MACHINE_NAMES_MAX + 1;
    refused(c);
    c.n_names = MACHINE_NAMES_MAX - 1;
    refused(c);
    c.n_names = MACHINE_NAMES_MAX;
    memset(also + len - FL_NAME_MAX, 'a', FL_NAME_MAX);
    refused(c);
}

TEST(test_batch_header)
{
    struct fixture k;
    fixture_init(&k);
    fixture_start(&k);
    fixture_add(&k, cmd_name(MACHINE_OP_TOKEN, "abcdefg"));
    k.clock_ms = MACHINE_CLOCK_MAX_MS;
    k.flags = MACHINE_BATCH_TERM_MARK;
    size_t len = fixture_seal(&k);
    assert_int_equal(len % 8, 0);
    assert_int_equal(len, 56); /* 40 + 12, padded */
    struct machine_batch_header h;
    assert_int_equal(machine_batch_open(k.batch.data, len, &h), 0);
    assert_int_equal(h.flags, MACHINE_BATCH_TERM_MARK);
    assert_int_equal(h.count, 1);
    assert_int_equal(h.timestamp_ms, MACHINE_CLOCK_MAX_MS);
    assert_int_equal(h.term, 3);
    assert_int_equal(h.sequence, k.sequence);
    assert_int_equal(h.length, 52);
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(machine_batch_open(k.batch.data, cut, &h), FL_ECORRUPT);
    }
    for (size_t bit = 0; bit < len * 8; bit++) {
        k.batch.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(machine_batch_open(k.batch.data, len, &h), FL_ECORRUPT);
        k.batch.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(machine_batch_open(k.batch.data, len, &h), 0);
    fixture_fini(&k);
}

/* Makes the checksum right again after a change on purpose. */
static void fix_checksum(uint8_t *p)
{
    uint32_t length = fli_get_u32(p + 32);
    fli_put_u32(p + 36, 0);
    fli_put_u32(p + 36, fli_crc32c(0, p, length));
}

static void expect_begin(struct fixture *k, size_t len, int expected)
{
    struct machine_cursor cur;
    uint64_t hash = machine_hash(k->m);
    fix_checksum(k->batch.data);
    assert_int_equal(machine_begin(k->m, k->batch.data, len, &cur), expected);
    assert_int_equal(machine_hash(k->m), hash);
}

TEST(test_batch_refused_whole)
{
    struct fixture k;
    fixture_init(&k);
    fixture_start(&k);
    fixture_add(&k, cmd_name(MACHINE_OP_TOKEN, "abcdefg"));
    fixture_add(&k, cmd_name(MACHINE_OP_TOKEN, "abcdefg"));
    size_t len = fixture_seal(&k);
    uint8_t *p = k.batch.data;
    fli_put_u16(p, MACHINE_BATCH_FORMAT + 1);
    expect_begin(&k, len, FL_EVERSION);
    fli_put_u16(p, MACHINE_BATCH_FORMAT);
    fli_put_u16(p + 2, 2);
    expect_begin(&k, len, FL_EVERSION);
    fli_put_u16(p + 2, 0);
    fli_put_u64(p + 8, MACHINE_CLOCK_MAX_MS + 1);
    expect_begin(&k, len, FL_ECORRUPT);
    fli_put_u64(p + 8, 5000);
    fli_put_u32(p + 4, 1);
    expect_begin(&k, len, FL_ECORRUPT);
    fli_put_u32(p + 4, 3);
    expect_begin(&k, len, FL_ECORRUPT);
    fli_put_u32(p + 4, MACHINE_BATCH_COMMANDS_MAX + 1);
    expect_begin(&k, len, FL_ECORRUPT);
    fli_put_u32(p + 4, 2);
    p[MACHINE_BATCH_HEADER_SIZE + 12] = MACHINE_OP_SHOW; /* a query has the same layout */
    expect_begin(&k, len, FL_ECORRUPT);
    p[MACHINE_BATCH_HEADER_SIZE + 12] = 99;
    expect_begin(&k, len, FL_EVERSION);
    p[MACHINE_BATCH_HEADER_SIZE + 12] = MACHINE_OP_TOKEN;
    expect_begin(&k, len + 8, FL_ECORRUPT);
    struct machine_result r[2];
    fix_checksum(p);
    assert_int_equal(machine_apply(k.m, p, len, r), 0);
    assert_int_equal(r[1].token, 2);
    fixture_fini(&k);
}

/* A batch with the largest number of commands, and one more. */
TEST(test_batch_at_its_limit)
{
    struct fixture k;
    fixture_init(&k);
    fixture_start(&k);
    for (uint32_t i = 0; i < MACHINE_BATCH_COMMANDS_MAX; i++) {
        fixture_add(&k, cmd_name(MACHINE_OP_TOKEN, "a"));
    }
    fixture_apply(&k, NULL);
    assert_int_equal(machine_last_token(k.m), MACHINE_BATCH_COMMANDS_MAX);
    fixture_fini(&k);
}

int main(int argc, char **argv)
{
    memset(long_name, 'n', sizeof long_name);
    memset(long_value, 'v', sizeof long_value);
    return unit_run(argc, argv, NULL, NULL);
}
