/* The environment under records of all sizes: random puts, deletes, aborts, failures and openings
 * against a plain array. Every opening runs the whole check of the file, so this is also the test
 * that the check refuses nothing that is sound. */
#include "scratch.h"

#include "fence/env.h"

#define KEYS 120u
#define SIZE_MAX_BYTES ((size_t)1 << 20)

struct model {
    bool has[KEYS];
    size_t len[KEYS];
    uint8_t fill[KEYS];
};

struct fixture {
    struct scratch scratch;
    struct fli_env *env;
    struct model model;
    unsigned seen;
};

static char errmsg[256];

static struct fli_slice key_of(unsigned i, char raw[FLI_ENV_KEY_MAX + 1])
{
    size_t len = (size_t)snprintf(raw, 16, "k%u", i);
    if (i % 3 == 0) { /* the longest keys there may be */
        memset(raw + len, 'x', FLI_ENV_KEY_MAX - len);
        len = FLI_ENV_KEY_MAX;
    }
    return (struct fli_slice){(const uint8_t *)raw, len};
}

static int count_visit(void *ctx, struct fli_slice key, struct fli_slice head)
{
    struct fixture *x = ctx;
    assert_int_equal(key.data[0], 'k');
    if (head.len > 1) {
        assert_int_equal(head.data[0], head.data[1]);
    }
    x->seen++;
    return 0;
}

static void reopen(struct fixture *x)
{
    unsigned want = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        want += x->model.has[i] ? 1 : 0;
    }
    fli_env_close(x->env);
    x->env = NULL;
    x->seen = 0;
    int rc = fli_env_open(x->scratch.data, "test", SIZE_MAX_BYTES, count_visit, x, &x->env, errmsg,
                          sizeof(errmsg));
    if (rc != 0) {
        fail_msg("%d %s", rc, errmsg);
    }
    assert_int_equal(x->seen, want);
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    scratch_init(&x->scratch);
    reopen(x);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    fli_env_close(x->env);
    scratch_fini(&x->scratch);
    free(x);
    return 0;
}

static void check_value(const struct model *m, unsigned i, int rc, struct fli_slice v)
{
    assert_int_equal(rc, m->has[i] ? 0 : FL_ENOTFOUND);
    if (m->has[i]) {
        assert_int_equal(v.len, m->len[i]);
        for (size_t j = 0; j < v.len; j += 97) {
            assert_int_equal(v.data[j], m->fill[i]);
        }
    }
}

static size_t random_size(uint64_t *r)
{
    switch (rng_below(r, 8)) {
    case 0:
        return 0;
    case 1:
        return rng_below(r, 300000); /* pages of its own */
    case 2:
        return 3900 + rng_below(r, 300); /* around one page */
    default:
        return rng_below(r, 200);
    }
}

static int one_op(struct fli_txn *t, struct model *m, uint64_t *r, uint8_t *bytes)
{
    char raw[FLI_ENV_KEY_MAX + 1];
    unsigned i = (unsigned)rng_below(r, KEYS);
    struct fli_slice key = key_of(i, raw);
    struct fli_slice got = {0};
    uint64_t what = rng_below(r, 10);
    if (what < 5) {
        size_t len = random_size(r);
        uint8_t fill = (uint8_t)rng_below(r, 256);
        memset(bytes, fill, len);
        struct fli_slice parts[2] = {{bytes, len / 3}, {bytes + len / 3, len - len / 3}};
        int rc = fli_txn_put(t, key, parts, 2);
        if (rc == 0) {
            m->has[i] = true;
            m->len[i] = len;
            m->fill[i] = fill;
        }
        return rc;
    }
    if (what < 8) {
        int rc = fli_txn_del(t, key);
        assert_true(rc == (m->has[i] ? 0 : FL_ENOTFOUND) || rc == FL_ELIMIT);
        m->has[i] = rc == 0 ? false : m->has[i];
        return rc == FL_ENOTFOUND ? 0 : rc;
    }
    int rc = fli_txn_get(t, key, &got);
    check_value(m, i, rc, got);
    return 0;
}

static void check_all(struct fixture *x, uint8_t *bytes)
{
    char raw[FLI_ENV_KEY_MAX + 1];
    for (unsigned i = 0; i < KEYS; i++) {
        size_t len = 0;
        int rc = fli_env_read(x->env, key_of(i, raw), bytes, 300000, &len);
        check_value(&x->model, i, rc, (struct fli_slice){bytes, len});
    }
}

TEST_WITH(test_random, setup, teardown)
{
    struct fixture *x = *state;
    uint64_t random = rng_seed();
    uint8_t *bytes = malloc(300000);
    assert_non_null(bytes);
    unsigned limits = 0;
    for (unsigned round = 0; round < 600; round++) {
        struct fli_txn t;
        struct model next = x->model;
        int rc = fli_txn_begin(x->env, &t);
        assert_int_equal(rc, 0);
        for (uint64_t n = rng_below(&random, 12); n > 0 && rc == 0; n--) {
            rc = one_op(&t, &next, &random, bytes);
        }
        if (rc == 0 && rng_below(&random, 8) != 0) {
            rc = fli_txn_commit(&t);
            if (rc == 0) {
                x->model = next;
            }
        } else {
            assert_int_equal(rc != 0 ? fli_txn_commit(&t) : (fli_txn_abort(&t), 0), rc);
        }
        assert_true(rc == 0 || rc == FL_ELIMIT);
        limits += rc == FL_ELIMIT ? 1 : 0;
        if (rng_below(&random, 6) == 0) {
            reopen(x);
            check_all(x, bytes);
        }
    }
    printf("%u transactions met the limit\n", limits);
    assert_true(limits > 0);
    free(bytes);
}

TEST_WITH(test_next, setup, teardown)
{
    struct fixture *x = *state;
    struct fli_txn t;
    struct fli_slice key;
    struct fli_slice value;
    struct fli_slice none = {(const uint8_t *)"", 0};
    assert_int_equal(fli_txn_begin(x->env, &t), 0);
    assert_int_equal(fli_txn_next(&t, (struct fli_slice){(const uint8_t *)"k", 1}, &key, &value),
                     FL_ENOTFOUND);
    assert_int_equal(fli_txn_put(&t, (struct fli_slice){(const uint8_t *)"kb", 2}, &none, 1), 0);
    assert_int_equal(fli_txn_next(&t, (struct fli_slice){(const uint8_t *)"k", 1}, &key, &value),
                     0);
    assert_int_equal(key.len, 2);
    assert_int_equal(value.len, 0);
    assert_int_equal(fli_txn_next(&t, (struct fli_slice){(const uint8_t *)"kc", 2}, &key, &value),
                     FL_ENOTFOUND);
    fli_txn_abort(&t);
}

static int put_one(struct fli_env *e, unsigned number)
{
    struct fli_txn t;
    char raw[16];
    uint8_t bytes[3000] = {0};
    size_t len = (size_t)snprintf(raw, sizeof(raw), "k%05u", number);
    struct fli_slice part = {bytes, sizeof(bytes)};
    int rc = fli_txn_begin(e, &t);
    assert_int_equal(rc, 0);
    rc = fli_txn_put(&t, (struct fli_slice){(const uint8_t *)raw, len}, &part, 1);
    assert_true(rc == 0 || rc == FL_ELIMIT);
    return fli_txn_commit(&t); /* gives the failure of the put again */
}

/* However full it is, what takes no room of its own fits: LMDB alone would at some degrees of
 * fullness refuse for ever to write the same value again. */
TEST_WITH(test_never_stuck, setup, teardown)
{
    struct fixture *x = *state;
    unsigned full = 0;
    for (unsigned n = 40; n < 70; n++) {
        fli_env_close(x->env);
        scratch_remove(x->scratch.data, 1);
        int rc = fli_env_open(x->scratch.data, "test", FLI_ENV_SIZE_MIN, NULL, NULL, &x->env,
                              errmsg, sizeof(errmsg));
        assert_int_equal(rc, 0);
        for (unsigned i = 0; i < n && rc == 0; i++) {
            rc = put_one(x->env, i);
        }
        assert_true(rc == 0 || rc == FL_ELIMIT);
        full += rc == FL_ELIMIT ? 1 : 0;
        for (unsigned i = 0; i < 6; i++) {
            assert_int_equal(put_one(x->env, i % 3), 0);
        }
    }
    assert_true(full > 0);
    assert_true(full < 30);
}

/* A value that rots while the environment is open is never handed out, and nothing is after it. */
TEST_WITH(test_rot_while_open, setup, teardown)
{
    struct fixture *x = *state;
    struct fli_txn t;
    struct fli_slice key = {(const uint8_t *)"k1", 2};
    uint8_t *bytes = malloc(300000);
    size_t len;
    assert_non_null(bytes);
    memset(bytes, 0x5A, 20000);
    struct fli_slice part = {bytes, 20000};
    assert_int_equal(fli_txn_begin(x->env, &t), 0);
    assert_int_equal(fli_txn_put(&t, key, &part, 1), 0);
    assert_int_equal(fli_txn_commit(&t), 0);
    assert_int_equal(fli_env_read(x->env, key, bytes, 300000, &len), 0);
    char path[400];
    (void)snprintf(path, sizeof(path), "%s/data.mdb", x->scratch.data);
    uint8_t *file = scratch_load(x->scratch.data, "data.mdb", &len);
    size_t at = 0;
    while (at < len && (file[at] != 0x5A || file[at + 1] != 0x5A || file[at + 2] != 0x5A)) {
        at++;
    }
    assert_true(at < len);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "!", 1, (off_t)at + 10000), 1);
    (void)close(fd);
    assert_int_equal(fli_env_read(x->env, key, bytes, 300000, &len), FL_ECORRUPT);
    assert_int_equal(fli_txn_begin(x->env, &t), FL_ECORRUPT);
    free(file);
    free(bytes);
    x->model.has[1] = true;
}
