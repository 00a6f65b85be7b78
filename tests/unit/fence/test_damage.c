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

TEST_WITH(test_undamaged, setup, teardown)
{
    struct fixture *x = *state;
    assert_false(refused(x, x->file, x->len, 5000));
}

TEST_WITH(test_flipped_bits, setup, teardown)
{
    struct fixture *x = *state;
    uint64_t random = rng_seed();
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    unsigned refusals = 0;
    for (unsigned i = 0; i < FLIPS; i++) {
        memcpy(copy, x->file, x->len);
        size_t at = rng_below(&random, x->len);
        if (i % 3 == 0) { /* headers and offsets of pages, where the structure is */
            at = at / PAGE * PAGE + rng_below(&random, 170);
        }
        copy[at] ^= (uint8_t)(1u << rng_below(&random, 8));
        refusals += refused(x, copy, x->len, 5000) ? 1 : 0;
    }
    printf("%u of %u flips refused, the others harmless\n", refusals, FLIPS);
    assert_true(refusals > FLIPS / 20);
    free(copy);
}

/* Every bit of what the meta pages say. */
TEST_WITH(test_flipped_meta, setup, teardown)
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

/* The numbers of the transactions in both meta pages, for some commits in a row: which flip makes
 * an older commit look like the last one depends on the number. */
TEST_WITH(test_flipped_transaction_numbers, setup, teardown)
{
    struct fixture *x = *state;
    for (unsigned turn = 0; turn < 8; turn++) {
        fl_fence *f;
        size_t len;
        scratch_store(x->scratch.data, "data.mdb", x->file, x->len);
        assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
        assert_int_equal(fl_fence_admit(f, "last", 4, 5001 + turn, NULL), 0);
        fl_fence_close(f);
        free(x->file);
        x->file = scratch_load(x->scratch.data, "data.mdb", &x->len);
        uint8_t *copy = scratch_load(x->scratch.data, "data.mdb", &len);
        for (unsigned bit = 0; bit < 128; bit++) {
            size_t at = (bit < 64 ? 0 : PAGE) + 16 + 128 + bit % 64 / 8;
            copy[at] ^= (uint8_t)(1u << (bit % 8));
            assert_true(refused(x, copy, len, 5001 + turn));
            copy[at] ^= (uint8_t)(1u << (bit % 8));
        }
        free(copy);
    }
}

TEST_WITH(test_random_bytes, setup, teardown)
{
    struct fixture *x = *state;
    uint64_t random = rng_seed();
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    for (unsigned i = 0; i < FLIPS / 5; i++) {
        memcpy(copy, x->file, x->len);
        size_t at = rng_below(&random, x->len);
        size_t len = 1 + rng_below(&random, 64);
        for (size_t j = at; j < at + len && j < x->len; j++) {
            copy[j] = (uint8_t)rng_below(&random, 256);
        }
        (void)refused(x, copy, x->len, 5000);
    }
    free(copy);
}

TEST_WITH(test_cut_short, setup, teardown)
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
TEST_WITH(test_lost_page_writes, setup, teardown)
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

/* ---- damage that fits together, one check at a time ---- */

/* Lets raw LMDB loose on the database: removes a mark (or rewrites one as it was), and writes a
 * head that says the right commit when `head` is true. */
static void tamper(struct fixture *x, bool remove, bool head)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    char name[65] = "L";
    uint8_t head_bytes[36];
    uint8_t zero = 0;
    MDB_val key = {.mv_size = 1 + lock_name(name + 1, 7), .mv_data = name};
    MDB_val head_key = {.mv_size = 1, .mv_data = &zero};
    MDB_val value;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_open(env, x->scratch.data, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    assert_int_equal(mdb_get(txn, dbi, &head_key, &value), 0);
    assert_int_equal(value.mv_size, sizeof(head_bytes));
    memcpy(head_bytes, value.mv_data, sizeof(head_bytes));
    fli_put_u64(head_bytes + 8, mdb_txn_id(txn));
    fli_put_u32(head_bytes + 32, fli_crc32c(fli_crc32c(0, &zero, 1), head_bytes, 32));
    assert_int_equal(mdb_get(txn, dbi, &key, &value), 0);
    uint8_t copy[16];
    assert_true(value.mv_size <= sizeof(copy));
    memcpy(copy, value.mv_data, value.mv_size);
    value.mv_data = copy;
    assert_int_equal(remove ? mdb_del(txn, dbi, &key, NULL) : mdb_put(txn, dbi, &key, &value, 0),
                     0);
    if (head) {
        value = (MDB_val){.mv_size = sizeof(head_bytes), .mv_data = head_bytes};
        assert_int_equal(mdb_put(txn, dbi, &head_key, &value, 0), 0);
    }
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

TEST_WITH(test_tampered, setup, teardown)
{
    struct fixture *x = *state;
    fl_fence *f = NULL;
    tamper(x, false, true); /* nothing was really changed: the tampering itself is sound */
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    fl_fence_close(f);
    tamper(x, false, false); /* a commit that is not ours */
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_ECORRUPT);
    scratch_store(x->scratch.data, "data.mdb", x->file, x->len);
    tamper(x, true, true); /* a record that is missing */
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_ECORRUPT);
}

static uint16_t u16_at(const uint8_t *p)
{
    return fli_get_u16(p);
}

/* A separator that is wrong hides records that are all there. */
TEST_WITH(test_separators, setup, teardown)
{
    struct fixture *x = *state;
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    unsigned tried = 0;
    unsigned refusals = 0;
    for (size_t page = 2; page < x->len / PAGE; page++) {
        const uint8_t *p = x->file + page * PAGE;
        if (u16_at(p + 10) != 1) { /* a branch page */
            continue;
        }
        for (unsigned i = 1; i < (u16_at(p + 12) - 16u) / 2; i++) {
            size_t node = u16_at(p + 16 + 2 * i);
            size_t key_len = u16_at(p + node + 6);
            for (unsigned how = 0; how < 2 && key_len > 5; how++) {
                memcpy(copy, x->file, x->len);
                copy[page * PAGE + node + 8 + 5] = how == 0 ? 0x01 : 0xFF;
                refusals += refused(x, copy, x->len, 5000) ? 1 : 0;
                tried++;
            }
        }
    }
    assert_true(tried > 0);
    assert_true(refusals > 0); /* old branch pages are free now, where it does not matter */
    free(copy);
}

/* The number of the page that the tree of free pages begins with. */
static size_t free_root(const struct fixture *x)
{
    unsigned meta =
        fli_get_u64(x->file + 16 + 128) > fli_get_u64(x->file + PAGE + 16 + 128) ? 0 : 1;
    return (size_t)fli_get_u64(x->file + meta * PAGE + 16 + 24 + 40);
}

/* Every bit of the part of the file that no checksum of ours covers: a node that reaches into the
 * next one, or an offset that is wrong, makes LMDB move the wrong bytes at the next write. */
TEST_WITH(test_flipped_free_tree, setup, teardown)
{
    struct fixture *x = *state;
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    size_t page = free_root(x) * PAGE;
    assert_int_equal(u16_at(x->file + page + 10), 2); /* one leaf page */
    size_t lower = u16_at(x->file + page + 12);
    size_t upper = u16_at(x->file + page + 14);
    memcpy(copy, x->file, x->len);
    for (size_t at = 0; at < PAGE; at = at + 1 == lower ? upper : at + 1) {
        for (unsigned bit = 0; bit < 8; bit++) {
            copy[page + at] ^= (uint8_t)(1u << bit);
            (void)refused(x, copy, x->len, 5000);
            copy[page + at] ^= (uint8_t)(1u << bit);
        }
    }
    free(copy);
}

/* A live page on the list of free pages would be overwritten later. */
TEST_WITH(test_free_list, setup, teardown)
{
    struct fixture *x = *state;
    uint8_t *copy = malloc(x->len);
    assert_non_null(copy);
    size_t root = free_root(x);
    const uint8_t *p = x->file + root * PAGE;
    assert_int_equal(u16_at(p + 10), 2); /* one leaf page */
    unsigned tried = 0;
    for (unsigned n = 0; n < (u16_at(p + 12) - 16u) / 2; n++) {
        size_t list = root * PAGE + u16_at(p + 16 + 2 * n) + 16u; /* node and key are 8 each */
        uint64_t count = fli_get_u64(x->file + list);
        for (uint64_t i = 1; i <= count; i++) {
            uint64_t above = i == 1 ? x->len / PAGE : fli_get_u64(x->file + list + 8 * (i - 1));
            uint64_t below = i == count ? 1 : fli_get_u64(x->file + list + 8 * (i + 1));
            uint64_t is = fli_get_u64(x->file + list + 8 * i);
            for (uint64_t other = below + 1; other < above; other++) {
                if (other == is) {
                    continue;
                }
                memcpy(copy, x->file, x->len);
                fli_put_u64(copy + list + 8 * i, other);
                assert_true(refused(x, copy, x->len, 5000));
                tried++;
            }
        }
    }
    assert_true(tried > 5);
    free(copy);
}

TEST_WITH(test_data_file_missing, setup, teardown)
{
    struct fixture *x = *state;
    char path[400];
    fl_fence *f = NULL;
    (void)snprintf(path, sizeof(path), "%s/data.mdb", x->scratch.data);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_ECORRUPT);
    assert_int_equal(access(path, F_OK), -1); /* and nothing was put in its place */
}

TEST_WITH(test_foreign_directories, setup, teardown)
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

int main(int argc, char **argv)
{
    if (sysconf(_SC_PAGESIZE) != PAGE) {
        return 77; /* skipped: the offsets above are those of pages of 4096 bytes */
    }
    return unit_run(argc, argv, NULL, NULL);
}
