/* test_snapshot.c: snapshots: what they carry, that they are canonical, and that no bytes, however
 * damaged, become a machine that is not sound. The model test replaces machines by their snapshots
 * in the middle of random runs. */
#include "fixture.h"

/* A machine with one of everything. */
static void populate(struct fixture *k)
{
    struct machine_limits limits = {10, 20, 30, 40, 50};
    fixture_run(k, cmd_limits(MACHINE_OP_INIT, 77, limits));
    fixture_run(k, cmd_number(MACHINE_OP_NODE_VERSION, 2, 1));
    fixture_run(k, cmd_number(MACHINE_OP_NODE_VERSION, 1, 1));
    fixture_run(k, cmd_open("ann", 5000, 30, "label"));
    fixture_run(k, cmd_open("bob", 6000, 0, ""));
    fixture_run(k, cmd_open("cid", 10, 900, ""));
    struct machine_command c = cmd_acquire_x("A", "ann");
    c.value = fixture_slice("value");
    fixture_run(k, c);
    fixture_run(k, cmd_acquire_x("D", "cid"));
    fixture_run(k, cmd_acquire("B", "ann", 4000));
    fixture_run(k, cmd_wait("A", "dan", 300, 4000));
    fixture_run(k, cmd_wait_x("A", "bob", 4000));
    fixture_run(k, cmd_wait_x("B", "bob", 4000));
    fixture_tick(k, 1500); /* D is delayed */
    fixture_run(k, cmd_wait("D", "eve", 300, 4000));
    fixture_run(k, cmd_name(MACHINE_OP_TOKEN, "x"));
}

static void encode(const struct machine *m, struct fli_buf *out)
{
    fli_buf_init(out, SIZE_MAX);
    assert_int_equal(machine_snapshot_encode(m, out), 0);
}

/* Nodes compare their hashes while programs of two releases run beside each other. Whoever changes
 * how a state is hashed raises MACHINE_HASH_VERSION, and these two with it. */
TEST_WITH(test_hash_has_a_version, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    populate(k);
    assert_int_equal(MACHINE_HASH_VERSION, 2);
    assert_int_equal(machine_hash(k->m), UINT64_C(0xdfa9060d44e0118c));
}

TEST_WITH(test_empty, fixture_setup, fixture_teardown)
{
    struct machine *m = machine_create(FIXTURE_SEED);
    struct machine *copy = NULL;
    struct fli_buf a;
    encode(m, &a);
    assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &copy), 0);
    machine_check(copy);
    assert_int_equal(machine_hash(m), machine_hash(copy));
    machine_destroy(m);
    machine_destroy(copy);
    machine_destroy(NULL);
    fli_buf_fini(&a);
}

TEST_WITH(test_whole_state, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    populate(k);
    struct machine *copy = NULL;
    struct fli_buf a;
    struct fli_buf b;
    encode(k->m, &a);
    assert_int_equal(machine_snapshot_decode(a.data, a.len, (const uint64_t[2]){5, 6}, &copy), 0);
    machine_check(copy);
    encode(copy, &b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    assert_int_equal(machine_hash(k->m), machine_hash(copy));
    assert_int_equal(machine_clock(copy), 1500);
    assert_int_equal(machine_last_token(copy), 4);
    assert_int_equal(machine_cluster_id(copy), 77);
    assert_int_equal(machine_node_find(copy, 2)->version, 1);
    assert_int_equal(machine_get_limits(copy)->session_locks_max, 50);
    struct machine_counts x;
    struct machine_counts y;
    machine_get_counts(k->m, &x);
    machine_get_counts(copy, &y);
    assert_memory_equal(&x, &y, sizeof x);
    machine_destroy(copy);
    fli_buf_fini(&a);
    fli_buf_fini(&b);
}

static uint32_t renewals_of(struct fixture *k, const char *name)
{
    struct machine_lock_view v;
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, name)).code, MACHINE_DONE);
    struct machine_page p = fixture_page(k);
    assert_int_equal(machine_page_next_lock(&p, &v), 1);
    return v.renewals;
}

/* Of an implicit session, and of an explicit one by either command. They are for people: a grant
 * begins with none, the next one does, and so does who gets a snapshot. */
TEST_WITH(renewals_are_counted, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("A", "dan", 4000));
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    fixture_run(k, cmd_acquire_x("B", "ann"));
    assert_int_equal(renewals_of(k, "A"), 0);
    assert_int_equal(renewals_of(k, "B"), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "A", 1, 0)).code, MACHINE_DONE);
    }
    assert_int_equal(fixture_run(k, cmd_acquire("A", "dan", 4000)).code, MACHINE_GRANTED);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "B", 2, 0)).code, MACHINE_DONE);
    assert_int_equal(fixture_run(k, cmd_owner(MACHINE_OP_SESSION_RENEW, "ann")).code, MACHINE_DONE);
    assert_int_equal(renewals_of(k, "A"), 4);
    assert_int_equal(renewals_of(k, "B"), 2);
    fixture_reload(k);
    assert_int_equal(renewals_of(k, "A"), 0);
    assert_int_equal(renewals_of(k, "B"), 0);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "A", 1, 0));
    fixture_run(k, cmd_acquire("A", "dan", 4000));
    assert_int_equal(renewals_of(k, "A"), 0);
}

/* The hash depends on everything; here on one detail at a time. */
TEST_WITH(test_hash_notices, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint64_t last = machine_hash(k->m);
    const struct machine_command steps[] = {
        cmd_open("ann", 5000, 30, ""),
        cmd_open("ann", 5000, 30, "x"),
        cmd_open("ann", 5000, 31, "x"),
        cmd_open("ann", 5001, 31, "x"),
        cmd_acquire_x("A", "ann"),
        cmd_wait("A", "dan", 300, 4000),
        cmd_wait("A", "dan", 300, 4000),
        cmd_name(MACHINE_OP_TOKEN, "x"),
        cmd_number(MACHINE_OP_NODE_VERSION, 1, 1),
        cmd_limits(MACHINE_OP_LIMITS, 0, (struct machine_limits){9, 9, 9, 9, 9}),
    };
    for (unsigned i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        fixture_run(k, steps[i]);
        uint64_t hash = machine_hash(k->m);
        assert_true(hash != last);
        last = hash;
    }
    fixture_tick(k, 1001);
    assert_true(machine_hash(k->m) != last);
}

TEST_WITH(test_ceiling, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    populate(k);
    struct fli_buf whole;
    encode(k->m, &whole);
    struct fli_buf out;
    for (size_t max = 3; max < whole.len + 3; max += 31) {
        fli_buf_init(&out, max);
        assert_int_equal(fli_buf_append(&out, "abc", 3), 0);
        assert_int_equal(machine_snapshot_encode(k->m, &out), FL_ELIMIT);
        assert_int_equal(out.len, 3);
        fli_buf_fini(&out);
    }
    fli_buf_init(&out, whole.len + 3);
    assert_int_equal(fli_buf_append(&out, "abc", 3), 0);
    assert_int_equal(machine_snapshot_encode(k->m, &out), 0);
    assert_memory_equal(out.data + 3, whole.data, whole.len);
    fli_buf_fini(&out);
    fli_buf_fini(&whole);
}

static void fix_checksum(uint8_t *p, size_t len)
{
    fli_put_u32(p + len - 4, fli_crc32c(0, p, len - 4));
}

/* 1 when the bytes were taken for a machine, which then is sound and encodes to the same bytes. */
static unsigned try_decode(const uint8_t *bytes, size_t len)
{
    struct machine *m = NULL;
    uint8_t *p = malloc(len + 1); /* at its own place, so that a sanitizer sees reads beyond */
    memcpy(p, bytes, len);
    int rc = machine_snapshot_decode(p, len, FIXTURE_SEED, &m);
    free(p);
    if (rc != 0) {
        assert_true(rc == FL_ECORRUPT || rc == FL_EVERSION);
        assert_null(m);
        return 0;
    }
    machine_check(m);
    struct fli_buf again;
    encode(m, &again);
    assert_int_equal(again.len, len);
    assert_memory_equal(again.data, bytes, len);
    fli_buf_fini(&again);
    machine_destroy(m);
    return 1;
}

TEST_WITH(test_truncated, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    populate(k);
    struct fli_buf a;
    encode(k->m, &a);
    for (size_t len = 0; len < a.len; len++) {
        assert_int_equal(try_decode(a.data, len), 0);
        if (len >= 16) {
            uint8_t *p = malloc(len);
            memcpy(p, a.data, len);
            fix_checksum(p, len);
            assert_int_equal(try_decode(p, len), 0);
            free(p);
        }
    }
    fli_buf_fini(&a);
}

TEST_WITH(test_checksum_and_version, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    populate(k);
    struct fli_buf a;
    struct machine *m = NULL;
    encode(k->m, &a);
    for (size_t bit = 0; bit < a.len * 8; bit++) {
        a.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &m), FL_ECORRUPT);
        a.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    a.data[8]++;
    fix_checksum(a.data, a.len);
    assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &m), FL_EVERSION);
    fli_buf_fini(&a);
}

/* Damage with a right checksum, as from somebody who means it. */
TEST_WITH(test_damaged, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint64_t rng = rng_seed();
    populate(k);
    struct fli_buf a;
    encode(k->m, &a);
    uint8_t *p = malloc(a.len);
    unsigned taken = 0;
    for (uint64_t n = fixture_rounds(60000); n > 0; n--) {
        memcpy(p, a.data, a.len);
        for (uint64_t flips = 1 + rng_below(&rng, 3); flips > 0; flips--) {
            uint8_t *byte = &p[12 + rng_below(&rng, a.len - 16)];
            uint64_t other = *byte ^ UINT64_C(1) << rng_below(&rng, 8);
            *byte = (uint8_t)(rng_below(&rng, 3) == 0 ? rng_next(&rng) : other);
        }
        fix_checksum(p, a.len);
        taken += try_decode(p, a.len);
    }
    assert_true(taken > 0); /* a changed value or count is nobody's business */
    free(p);
    fli_buf_fini(&a);
}

/* Finds `from` in the snapshot, puts `to` (as long) in its place, and expects a refusal. */
static void refuse_with(struct fixture *k, const char *from, const char *to, size_t len)
{
    struct fli_buf a;
    encode(k->m, &a);
    uint8_t *at = memmem(a.data, a.len, from, len);
    assert_non_null(at);
    memcpy(at, to, len);
    fix_checksum(a.data, a.len);
    struct machine *m = NULL;
    assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &m), FL_ECORRUPT);
    fli_buf_fini(&a);
}

/* The lies one would try first. */
TEST_WITH(test_lies, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    fixture_run(k, cmd_open("bob", 5000, 0, ""));
    fixture_run(k, cmd_acquire_x("lock-1", "ann"));
    fixture_run(k, cmd_acquire_x("lock-2", "bob"));
    fixture_run(k, cmd_wait_x("lock-2", "ann", 5000));
    refuse_with(k,
                "\x03"
                "bob"
                "\x00",
                "\x03"
                "ann"
                "\x00",
                5);                                /* a session twice */
    refuse_with(k, "\x06lock-2", "\x06lock-1", 7); /* a lock twice */
    refuse_with(k,
                "lock-2\x01\x03"
                "bob",
                "lock-2\x01\x03"
                "eve",
                11); /* held by nobody */
    refuse_with(k,
                "lock-2\x01\x03"
                "ann",
                "lock-2\x01\x03"
                "eve",
                11); /* awaited by nobody */
    refuse_with(k,
                "lock-2\x01\x03"
                "ann",
                "lock-2\x01\x03"
                "bob",
                11); /* for one's own lock */
    refuse_with(k,
                "lock-2\x01\x03"
                "ann",
                "lock-3\x01\x03"
                "ann",
                11); /* no such lock */
    refuse_with(k,
                "lock-2\x01\x03"
                "ann",
                "lock-2\x02\x03"
                "ann",
                11);                                            /* no such kind */
    static const char token_1[] = "\x01\0\0\0\0\0\0\0\xe8\x03"; /* and since 1000 */
    static const char token_2[] = "\x02\0\0\0\0\0\0\0\xe8\x03";
    refuse_with(k, token_1, token_2, 10); /* a token twice */
    refuse_with(k, token_2, token_1, 10);
    refuse_with(k, token_2, "\x03\0\0\0\0\0\0\0\xe8\x03", 10); /* a token of the future */
    refuse_with(k, token_2, "\x02\0\0\0\0\0\0\0\xe9\x03", 10); /* a grant of the future */
    refuse_with(k, token_1, "\0\0\0\0\0\0\0\0\xe8\x03", 10);
    static const char wait_3[] = "\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"; /* asked for once */
    static const char too_often[] = "\x03\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";
    refuse_with(k, wait_3, too_often, 16);
}

/* Numbers that grow by one at a time, so large that the next ones would begin at zero again: the
 * cluster would stop at the next wait, or could not read its own snapshot any more. */
TEST_WITH(test_numbers_near_their_end, fixture_setup, fixture_teardown)
{
    enum { SERIAL_AT = 45 };
    struct fixture *k = *state;
    struct machine *m = NULL;
    struct fli_buf a;
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    encode(k->m, &a);
    assert_int_equal(fli_get_u64(a.data + SERIAL_AT), 1);
    fli_put_u64(a.data + SERIAL_AT, UINT64_MAX);
    fix_checksum(a.data, a.len);
    assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &m), FL_ECORRUPT);
    fli_put_u64(a.data + SERIAL_AT, 1);
    uint8_t *name = memmem(a.data, a.len, "default", 7);
    assert_non_null(name);
    fli_put_u32(name - 6, UINT32_MAX); /* the login, before flags and the length of the name */
    fix_checksum(a.data, a.len);
    assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &m), FL_ECORRUPT);
    fli_buf_fini(&a);
}

/* Only a plan to remove or to replace a node is forced. */
TEST_WITH(test_forced_without_such_a_plan, fixture_setup, fixture_teardown)
{
    enum { NONE_OR_ADD = FL_ECORRUPT, FORCED = 2 };
    static const int want[] = {[MACHINE_PLAN_NONE] = NONE_OR_ADD,
                               [MACHINE_PLAN_ADD] = NONE_OR_ADD,
                               [MACHINE_PLAN_REMOVE] = 0,
                               [MACHINE_PLAN_REPLACE] = 0};
    struct fixture *k = *state;
    struct fli_buf a;
    fixture_run(k, cmd_number(MACHINE_OP_NODE_VERSION, 1, 0x11223344));
    encode(k->m, &a);
    uint8_t *node = memmem(a.data, a.len, "\x44\x33\x22\x11", 4);
    assert_non_null(node);
    uint8_t *plan = node + 4; /* behind its version */
    for (unsigned i = 0; i < 2 * (sizeof want / sizeof want[0]); i++) {
        struct machine *m = NULL;
        plan[0] = (uint8_t)(i / 2);
        plan[1] = i % 2 * FORCED;
        fix_checksum(a.data, a.len);
        assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &m),
                         plan[1] == FORCED ? want[i / 2] : 0);
        if (m != NULL) {
            machine_check(m);
        }
        machine_destroy(m);
    }
    fli_buf_fini(&a);
}

/* Gives the user of this name another number and name, both names of seven letters. */
static void refuse_user(struct fixture *k, const char *name, uint32_t uid, const char *other)
{
    struct fli_buf a;
    encode(k->m, &a);
    uint8_t *at = memmem(a.data, a.len, name, 7);
    assert_non_null(at);
    fli_put_u32(at - 10, uid); /* before login, flags and the length of the name */
    memcpy(at, other, 7);
    fix_checksum(a.data, a.len);
    struct machine *m = NULL;
    assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &m), FL_ECORRUPT);
    fli_buf_fini(&a);
}

TEST_WITH(test_one_default_user, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command c = {.op = MACHINE_OP_USER_SET,
                                .owner = fixture_slice("another"),
                                .words = fixture_slice("on nopass"),
                                .user = MACHINE_USER_NODE,
                                .flags = MACHINE_COMMAND_BY};
    assert_int_equal(fixture_run(k, c).code, MACHINE_DONE);
    refuse_user(k, "another", 0, "default"); /* twice */
    c.op = MACHINE_OP_USER_DELETE;
    c.words = fixture_slice("");
    assert_int_equal(fixture_run(k, c).code, MACHINE_DONE);
    refuse_user(k, "default", 1, "another"); /* missing */
}

/* An implicit session that waits for the lock it holds. */
TEST_WITH(test_holder_does_not_wait, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("lock-1", "ann", 5000));
    fixture_run(k, cmd_wait("lock-1", "bob", 5000, 5000));
    fixture_run(k, cmd_wait("lock-1", "cid", 5000, 5000));
    refuse_with(k, "lock-1\0\003bob", "lock-1\0\003ann", 11);
    refuse_with(k, "lock-1\0\003bob", "lock-1\0\003cid", 11); /* waits twice */
}

/* A lock that is free, awaited, and given to nobody, although there are tokens. */
TEST_WITH(test_free_lock_is_given, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 100, 257, ""));
    fixture_run(k, cmd_acquire_x("lock-1", "ann"));
    fixture_tick(k, 1101);
    fixture_run(k, cmd_wait("lock-1", "bob", 5000, 5000));
    /* Delayed until 1101 + 257 = 0x54e; without a delay; beyond any delay. */
    const char *delayed = "\x4e\x05\0\0\0\0\0\0\x01\0\0\0\x06lock-1";
    refuse_with(k, delayed, "\0\0\0\0\0\0\0\0\x01\0\0\0\x06lock-1", 19);
    refuse_with(k, delayed, "\0\0\x01\0\0\0\0\0\x01\0\0\0\x06lock-1", 19);
    /* Permits: none; more than there may be; not those of who waits. */
    refuse_with(k, delayed, "\x4e\x05\0\0\0\0\0\0\0\0\0\0\x06lock-1", 19);
    refuse_with(k, delayed, "\x4e\x05\0\0\0\0\0\0\xff\xff\xff\xff\x06lock-1", 19);
    refuse_with(k, delayed, "\x4e\x05\0\0\0\0\0\0\x02\0\0\0\x06lock-1", 19);
}

/* A cycle that no sequence of commands can make. */
TEST_WITH(test_cycle_is_refused, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    fixture_run(k, cmd_open("bob", 5000, 0, ""));
    fixture_run(k, cmd_acquire_x("A", "ann"));
    fixture_run(k, cmd_acquire_x("B", "bob"));
    fixture_run(k, cmd_acquire("C", "cid", 5000));
    fixture_run(k, cmd_wait_x("B", "ann", 5000));
    fixture_run(k, cmd_wait_x("C", "bob", 5000));
    /* The wait of bob now is for A, which ann holds, who waits for bob. */
    refuse_with(k,
                "\x01"
                "C\x01\x03"
                "bob",
                "\x01"
                "A\x01\x03"
                "bob",
                7);
}

static int append_bytes(void *ctx, const void *bytes, size_t len)
{
    return fli_buf_append(ctx, bytes, len);
}

/* What a new cluster inherits: users and limits, and no hold of anybody. */
TEST_WITH(test_heir, fixture_setup, fixture_teardown)
{
    const uint64_t seed[2] = {1, 2};
    struct machine *old = machine_create(seed);
    struct machine *heir = NULL;
    struct machine *same = NULL;
    struct machine_counts counts;
    struct fli_buf bytes;
    struct fli_buf again;
    fli_buf_init(&bytes, SIZE_MAX);
    fli_buf_init(&again, SIZE_MAX);
    assert_int_equal(machine_snapshot_write_heir(old, UINT64_C(1) << 40, append_bytes, &bytes), 0);
    assert_int_equal(machine_snapshot_decode(bytes.data, bytes.len, seed, &heir), 0);
    machine_check(heir);
    machine_get_counts(heir, &counts);
    assert_int_equal(machine_last_token(heir), UINT64_C(1) << 40);
    assert_int_equal(machine_cluster_id(heir), 0);
    assert_int_equal(counts.locks + counts.sessions + counts.waits + counts.work, 0);
    assert_int_equal(machine_clock(heir), machine_clock(old));
    assert_memory_equal(machine_get_limits(heir), machine_get_limits(old),
                        sizeof(struct machine_limits));
    /* Its own heir is the same state: the bytes are canonical. */
    assert_int_equal(machine_snapshot_write_heir(heir, UINT64_C(1) << 40, append_bytes, &again), 0);
    assert_int_equal(again.len, bytes.len);
    assert_memory_equal(again.data, bytes.data, bytes.len);
    assert_int_equal(machine_snapshot_decode(again.data, again.len, seed, &same), 0);
    assert_int_equal(machine_hash(same), machine_hash(heir));
    machine_destroy(same);
    machine_destroy(heir);
    machine_destroy(old);
    fli_buf_fini(&bytes);
    fli_buf_fini(&again);
}
