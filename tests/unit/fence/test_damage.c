/* Damage to the files of a fence directory: whatever is changed, opening either refuses or serves
 * marks that are not lower than they were. It never crashes, and never opens so that later writes
 * destroy something. */
#include "scratch.h"

#include "base/bytes.h"
#include "fence/env.h"
#include "fencelock/fence.h"

#define LOCKS 150u
#define FLIPS 1500u
#define PAGE 4096u

struct fixture {
    struct scratch scratch;
    uint8_t *file; /* the last commit */
    size_t len;
    uint8_t *before; /* the commit before */
    size_t before_len;
};

static size_t lock_name(char name[64], unsigned i)
{
    /* Long names make a tree of several levels out of few marks. */
    return (size_t)snprintf(name, 64, "lock-%03u-abcdefghijklmnopqrstuvwxyz-0123456789", i);
}

static fl_token token_of(unsigned i)
{
    return 1000 + i;
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    char name[64];
    fl_fence *f;
    size_t removed;
    scratch_init(&x->scratch);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < LOCKS; i++) {
            size_t len = lock_name(name, i);
            assert_int_equal(fl_fence_admit(f, name, len, token_of(i) - 1 + round, NULL), 0);
        }
    }
    assert_int_equal(fl_fence_forget(f, 7, 10, &removed), 0);
    fl_fence_close(f);
    x->before = scratch_load(x->scratch.data, "data.mdb", &x->before_len);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    assert_int_equal(fl_fence_admit(f, "last", 4, 5000, NULL), 0);
    fl_fence_close(f);
    x->file = scratch_load(x->scratch.data, "data.mdb", &x->len);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    scratch_fini(&x->scratch);
    free(x->file);
    free(x->before);
    free(x);
    return 0;
}

static void check_marks(fl_fence *f, fl_token last)
{
    char name[64];
    fl_token mark;
    for (unsigned i = 0; i < LOCKS; i++) {
        size_t len = lock_name(name, i);
        assert_int_equal(fl_fence_mark(f, name, len, &mark), 0);
        assert_true(mark >= token_of(i));
    }
    assert_int_equal(fl_fence_mark(f, "last", 4, &mark), 0);
    assert_true(mark >= last);
    assert_int_equal(fl_fence_mark(f, "unknown", 7, &mark), 0);
    assert_true(mark >= 7); /* the floor */
}

/* Puts these bytes in place and opens. True when it was refused. When not, all marks must be there,
 * also after more writes and another opening, which finds pages that were both free and in use. */
static bool refused(struct fixture *x, const uint8_t *bytes, size_t len, fl_token last)
{
    fl_fence *f = NULL;
    scratch_store(x->scratch.data, "data.mdb", bytes, len);
    int rc = fl_fence_open(x->scratch.data, 0, &f);
    if (rc != 0) {
        assert_true(rc == FL_ECORRUPT || rc == FL_EVERSION);
        return true;
    }
    check_marks(f, last);
    for (unsigned i = 0; i < 5; i++) {
        char name[64];
        size_t name_len = lock_name(name, LOCKS + i);
        assert_int_equal(fl_fence_admit(f, name, name_len, token_of(i), NULL), 0);
    }
    fl_fence_close(f);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    check_marks(f, last);
    fl_fence_close(f);
    return false;
}

static void test_undamaged(void **state)
{
    struct fixture *x = *state;
    assert_false(refused(x, x->file, x->len, 5000));
}

static void test_flipped_bits(void **state)
{
    struct fixture *x = *state;
    struct scratch_random random;
    scratch_random_init(&random);
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    unsigned refusals = 0;
    for (unsigned i = 0; i < FLIPS; i++) {
        memcpy(copy, x->file, x->len);
        size_t at = scratch_random(&random, x->len);
        if (i % 3 == 0) { /* headers and offsets of pages, where the structure is */
            at = at / PAGE * PAGE + scratch_random(&random, 170);
        }
        copy[at] ^= (uint8_t)(1u << scratch_random(&random, 8));
        refusals += refused(x, copy, x->len, 5000) ? 1 : 0;
    }
    printf("%u of %u flips refused, the others harmless\n", refusals, FLIPS);
    assert_true(refusals > FLIPS / 20);
    free(copy);
}

/* Every bit of what the meta pages say. */
static void test_flipped_meta(void **state)
{
    struct fixture *x = *state;
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    for (size_t at = 0; at < 2 * PAGE; at = at == 151 ? PAGE : at + 1) {
        for (unsigned bit = 0; bit < 8 && at < PAGE + 152; bit++) {
            memcpy(copy, x->file, x->len);
            copy[at] ^= (uint8_t)(1u << bit);
            (void)refused(x, copy, x->len, 5000);
        }
    }
    free(copy);
}

static void test_random_bytes(void **state)
{
    struct fixture *x = *state;
    struct scratch_random random;
    scratch_random_init(&random);
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    for (unsigned i = 0; i < FLIPS / 5; i++) {
        memcpy(copy, x->file, x->len);
        size_t at = scratch_random(&random, x->len);
        size_t len = 1 + scratch_random(&random, 64);
        for (size_t j = at; j < at + len && j < x->len; j++) {
            copy[j] = (uint8_t)scratch_random(&random, 256);
        }
        (void)refused(x, copy, x->len, 5000);
    }
    free(copy);
}

static void test_cut_short(void **state)
{
    struct fixture *x = *state;
    for (size_t len = 0; len < x->len; len += len < 2 * PAGE ? 61 : PAGE / 2) {
        (void)refused(x, x->file, len, 5000);
    }
    assert_true(refused(x, x->file, 0, 5000));
    assert_true(refused(x, x->file, PAGE, 5000));
    assert_true(refused(x, x->file, 3 * PAGE, 5000));
}

/* A disk that says it wrote a page and did not. The meta page is the one exception: without it the
 * file is, to the last bit, that of the commit before. */
static void test_lost_page_writes(void **state)
{
    struct fixture *x = *state;
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    size_t common = x->len < x->before_len ? x->len : x->before_len;
    unsigned changed = 0;
    for (size_t page = 2; page < common / PAGE; page++) {
        if (memcmp(x->file + page * PAGE, x->before + page * PAGE, PAGE) == 0) {
            continue;
        }
        memcpy(copy, x->file, x->len);
        memcpy(copy + page * PAGE, x->before + page * PAGE, PAGE);
        assert_true(refused(x, copy, x->len, 5000));
        changed++;
    }
    assert_true(changed >= 2);
    free(copy);
}

static void test_data_file_missing(void **state)
{
    struct fixture *x = *state;
    char path[400];
    fl_fence *f = NULL;
    (void)snprintf(path, sizeof(path), "%s/data.mdb", x->scratch.data);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_ECORRUPT);
    assert_int_equal(access(path, F_OK), -1); /* and nothing was put in its place */
}

static void test_foreign_directories(void **state)
{
    struct fixture *x = *state;
    fl_fence *f = NULL;
    scratch_store(x->scratch.data, "owner", "fencelock store 1\n", 18);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_EVERSION);
    scratch_store(x->scratch.data, "owner", "fencelock marks 2\n", 18);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_EVERSION);
    scratch_store(x->scratch.data, "owner", "fencelock marks 1\nmore", 22);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_EVERSION);
    /* Torn while it was written for the first time: as if it were not there yet. */
    scratch_store(x->scratch.data, "owner", "fencelock\0\0\0\0", 13);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    check_marks(f, 5000);
    fl_fence_close(f);
    /* A database of another program. */
    scratch_store(x->scratch.data, "owner", "", 0);
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    char text[] = "key";
    MDB_val key = {3, text};
    char path[400];
    (void)snprintf(path, sizeof(path), "%s/data.mdb", x->scratch.data);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_open(env, x->scratch.data, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    assert_int_equal(mdb_put(txn, dbi, &key, &key, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_EVERSION);
    scratch_store(x->scratch.data, "data.mdb", "not a database at all", 21);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_EVERSION);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_undamaged),         TEST(test_flipped_bits),        TEST(test_flipped_meta),
        TEST(test_random_bytes),      TEST(test_cut_short),           TEST(test_lost_page_writes),
        TEST(test_data_file_missing), TEST(test_foreign_directories),
    };
    return cmocka_run_group_tests_name("fence damage", tests, NULL, NULL);
}
