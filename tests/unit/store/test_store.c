/* The store without its network: each refusal, bindings, tombstones, groups, a full database, and
 * random operations against a naive model with restarts. */
#include "scratch.h"

#include "store/store.h"

struct fixture {
    struct scratch scratch;
    struct store *store;
};

static char errmsg[256];

static void reopen(struct fixture *x, size_t size_max, bool fencing)
{
    store_close(x->store);
    x->store = NULL;
    int rc = store_open(x->scratch.data, size_max, fencing, &x->store, errmsg, sizeof(errmsg));
    if (rc != 0) {
        fail_msg("%d %s", rc, errmsg);
    }
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    scratch_init(&x->scratch);
    reopen(x, STORE_SIZE_DEFAULT, true);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    store_close(x->store);
    scratch_fini(&x->scratch);
    free(x);
    return 0;
}

static struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, s == NULL ? 0 : strlen(s)};
}

/* lock NULL: not fenced. */
static struct store_op make(enum store_verb verb, const char *key, const char *value,
                            const char *lock, fl_token token)
{
    return (struct store_op){.verb = verb,
                             .key = text(key),
                             .value = text(value),
                             .lock = text(lock),
                             .token = token,
                             .fenced = lock != NULL};
}

/* One transaction. Values that are read are kept. */
static void run_all(struct fixture *x, struct store_op *ops, size_t n)
{
    assert_int_equal(store_begin(x->store), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(store_do(x->store, &ops[i]), 0);
        if (ops[i].out.data != NULL) {
            uint8_t *copy = malloc(ops[i].out.len + 1);
            assert_non_null(copy);
            memcpy(copy, ops[i].out.data, ops[i].out.len);
            ops[i].out.data = copy;
        }
    }
    assert_int_equal(store_commit(x->store), 0);
    assert_int_equal(fli_db_checkpoint(&x->store->db), 0);
}

static void op_fini(struct store_op *op)
{
    free((void *)(uintptr_t)op->out.data);
    op->out.data = NULL;
}

static void run(struct fixture *x, struct store_op *op)
{
    run_all(x, op, 1);
}

static int claim(struct fixture *x, const char *lock, fl_token token, fl_token *ret_mark)
{
    struct store_op op = make(STORE_CLAIM, NULL, NULL, lock, token);
    run(x, &op);
    if (ret_mark != NULL) {
        *ret_mark = op.mark;
    }
    return op.result;
}

static int set(struct fixture *x, const char *key, const char *value, const char *lock,
               fl_token token)
{
    struct store_op op = make(STORE_SET, key, value, lock, token);
    run(x, &op);
    return op.result;
}

/* 1: deleted, 0: there was nothing, negative: refused. */
static int del(struct fixture *x, const char *key, const char *lock, fl_token token)
{
    struct store_op op = make(STORE_DEL, key, NULL, lock, token);
    run(x, &op);
    return op.result != 0 ? op.result : op.found ? 1 : 0;
}

static void expect(struct fixture *x, const char *key, const char *lock, fl_token token,
                   const char *value)
{
    struct store_op op = make(STORE_GET, key, NULL, lock, token);
    run(x, &op);
    assert_int_equal(op.result, 0);
    assert_int_equal(op.found, value != NULL);
    if (value != NULL) {
        assert_int_equal(op.out.len, strlen(value));
        assert_memory_equal(op.out.data, value, op.out.len);
    }
    op_fini(&op);
}

static fl_token mark(struct fixture *x, const char *lock)
{
    struct store_op op = make(STORE_MARK, NULL, NULL, lock, 0);
    run(x, &op);
    assert_int_equal(op.result, 0);
    return op.mark;
}

TEST_WITH(test_stale, setup, teardown)
{
    struct fixture *x = *state;
    fl_token at = 0;
    assert_int_equal(claim(x, "x", 33, NULL), 0);
    assert_int_equal(set(x, "k", "old", "x", 33), 0);
    assert_int_equal(claim(x, "x", 34, NULL), 0);
    for (unsigned restart = 0; restart < 2; restart++) {
        assert_int_equal(set(x, "k", "late", "x", 33), FL_ESTALE);
        assert_int_equal(set(x, "new", "late", "x", 33), FL_ESTALE);
        assert_int_equal(del(x, "k", "x", 33), FL_ESTALE);
        assert_int_equal(claim(x, "x", 33, &at), FL_ESTALE);
        assert_int_equal(at, 34);
        struct store_op read = make(STORE_GET, "k", NULL, "x", 33);
        run(x, &read);
        assert_int_equal(read.result, FL_ESTALE);
        assert_int_equal(read.mark, 34);
        assert_null(read.out.data);
        expect(x, "k", NULL, 0, "old");
        expect(x, "new", NULL, 0, NULL);
        assert_int_equal(mark(x, "x"), 34);
        reopen(x, STORE_SIZE_DEFAULT, true);
    }
    assert_int_equal(set(x, "k", "newer", "x", 34), 0);
    assert_int_equal(set(x, "k", "newest", "x", 34), 0); /* a holder writes many times */
    expect(x, "k", "x", 34, "newest");
    assert_int_equal(x->store->committed.stale, 0); /* counted from the opening on */
    assert_int_equal(claim(x, "x", 1, NULL), FL_ESTALE);
    assert_int_equal(x->store->committed.stale, 1);
}

/* A read with a token is a claim: it raises the mark in the same transaction. */
TEST_WITH(test_fenced_get_claims, setup, teardown)
{
    struct fixture *x = *state;
    assert_int_equal(set(x, "k", "v", "x", 5), 0);
    expect(x, "k", "x", 6, "v");
    assert_int_equal(mark(x, "x"), 6);
    assert_int_equal(set(x, "k", "late", "x", 5), FL_ESTALE);
    expect(x, "none", "x", 7, NULL); /* also of a key that is not there */
    assert_int_equal(mark(x, "x"), 7);
    expect(x, "k", NULL, 0, "v"); /* a plain read raises nothing */
    reopen(x, STORE_SIZE_DEFAULT, true);
    assert_int_equal(mark(x, "x"), 7);
}

TEST_WITH(test_binding, setup, teardown)
{
    struct fixture *x = *state;
    assert_int_equal(set(x, "k", "v", "a", 10), 0);
    for (unsigned restart = 0; restart < 2; restart++) {
        struct store_op op = make(STORE_SET, "k", "w", "b", 99);
        run(x, &op);
        assert_int_equal(op.result, FL_EWRONGLOCK);
        assert_int_equal(op.bound.len, 1);
        assert_int_equal(op.bound.bytes[0], 'a');
        assert_int_equal(del(x, "k", "b", 99), FL_EWRONGLOCK);
        op = make(STORE_GET, "k", NULL, "b", 99);
        run(x, &op);
        assert_int_equal(op.result, FL_EWRONGLOCK);
        assert_int_equal(mark(x, "b"), 0); /* refused: nothing changed */
        assert_int_equal(mark(x, "a"), 10);
        reopen(x, STORE_SIZE_DEFAULT, true);
    }
    /* Reading a key that is not there binds nothing. */
    expect(x, "free", "b", 1, NULL);
    assert_int_equal(del(x, "free", "b", 1), 0);
    assert_int_equal(set(x, "free", "v", "c", 1), 0);
}

TEST_WITH(test_tombstone, setup, teardown)
{
    struct fixture *x = *state;
    assert_int_equal(set(x, "k", "v", "a", 10), 0);
    assert_int_equal(del(x, "k", "a", 10), 1);
    assert_int_equal(del(x, "k", "a", 10), 0);
    for (unsigned restart = 0; restart < 2; restart++) {
        expect(x, "k", NULL, 0, NULL);
        assert_int_equal(set(x, "k", "w", "b", 99), FL_EWRONGLOCK);
        assert_int_equal(set(x, "k", "w", "a", 9), FL_ESTALE);
        assert_int_equal(x->store->committed.keys, 0);
        assert_int_equal(x->store->committed.tombstones, 1);
        assert_int_equal(x->store->db.committed.marks, 1);
        reopen(x, STORE_SIZE_DEFAULT, true);
    }
    assert_int_equal(set(x, "k", "again", "a", 10), 0);
    expect(x, "k", NULL, 0, "again");
    assert_int_equal(x->store->committed.keys, 1);
    assert_int_equal(x->store->committed.tombstones, 0);
}

TEST_WITH(test_no_token, setup, teardown)
{
    struct fixture *x = *state;
    assert_int_equal(set(x, "k", "v", NULL, 0), FL_ENOTOKEN);
    assert_int_equal(del(x, "k", NULL, 0), FL_ENOTOKEN);
    assert_int_equal(set(x, "k", "v", "a", 1), 0);
    assert_int_equal(set(x, "k", "w", NULL, 0), FL_ENOTOKEN);
    assert_int_equal(del(x, "k", NULL, 0), FL_ENOTOKEN);
    expect(x, "k", NULL, 0, "v");
}

TEST_WITH(test_ranges, setup, teardown)
{
    struct fixture *x = *state;
    char *big = malloc(STORE_VALUE_MAX + 2);
    char name[STORE_KEY_MAX + 2];
    assert_non_null(big);
    memset(name, 'n', sizeof(name));
    memset(big, 'b', STORE_VALUE_MAX + 1);
    big[STORE_VALUE_MAX + 1] = '\0';
    name[STORE_KEY_MAX + 1] = '\0';
    assert_int_equal(set(x, name, "v", "a", 1), FL_EINVAL);
    name[STORE_KEY_MAX] = '\0';
    assert_int_equal(set(x, name, "v", "a", 1), 0);
    expect(x, name, NULL, 0, "v");
    assert_int_equal(set(x, "", "v", "a", 1), FL_EINVAL);
    name[FL_NAME_MAX + 1] = '\0';
    assert_int_equal(claim(x, name, 1, NULL), FL_EINVAL);
    assert_int_equal(set(x, "k", "v", name, 1), FL_EINVAL);
    name[FL_NAME_MAX] = '\0';
    assert_int_equal(set(x, "k", "v", name, 1), 0);
    assert_int_equal(claim(x, "", 1, NULL), FL_EINVAL);
    assert_int_equal(claim(x, "a", 0, NULL), FL_EINVAL);
    assert_int_equal(claim(x, "a", FL_TOKEN_MAX + 1, NULL), FL_EINVAL);
    assert_int_equal(mark(x, "a"), 1);
    assert_int_equal(claim(x, "z", FL_TOKEN_MAX, NULL), 0);
    assert_int_equal(set(x, "big", big, "a", 1), FL_EINVAL);
    big[STORE_VALUE_MAX] = '\0';
    assert_int_equal(set(x, "big", big, "a", 1), 0);
    assert_int_equal(set(x, "empty", "", "a", 1), 0);
    reopen(x, STORE_SIZE_DEFAULT, true);
    expect(x, "big", NULL, 0, big);
    expect(x, "empty", NULL, 0, "");
    free(big);
}

TEST_WITH(test_group, setup, teardown)
{
    struct fixture *x = *state;
    struct store_op ops[] = {
        make(STORE_SET, "k", "1", "a", 1),     make(STORE_GET, "k", NULL, NULL, 0),
        make(STORE_CLAIM, NULL, NULL, "a", 2), make(STORE_SET, "k", "2", "a", 1),
        make(STORE_SET, "k", "3", "a", 2),     make(STORE_GET, "k", NULL, NULL, 0),
        make(STORE_DEL, "k", NULL, "b", 9),    make(STORE_MARK, NULL, NULL, "a", 0),
    };
    run_all(x, ops, 8);
    assert_int_equal(ops[1].out.data[0], '1');
    assert_int_equal(ops[3].result, FL_ESTALE);
    assert_int_equal(ops[3].mark, 2);
    assert_int_equal(ops[4].result, 0);
    assert_int_equal(ops[5].out.data[0], '3');
    assert_int_equal(ops[6].result, FL_EWRONGLOCK);
    assert_int_equal(ops[7].mark, 2);
    assert_int_equal(x->store->committed.commits, 1);
    assert_int_equal(x->store->committed.ops, 8);
    for (size_t i = 0; i < 8; i++) {
        op_fini(&ops[i]);
    }
}

/* Writes until refused; returns how many were written. */
static unsigned fill(struct fixture *x, unsigned from)
{
    char key[16];
    char value[3001];
    memset(value, 'v', 3000);
    value[3000] = '\0';
    for (unsigned i = from; i < from + 10000; i++) {
        (void)snprintf(key, sizeof(key), "k%05u", i);
        int rc = set(x, key, value, "a", 1);
        if (rc != 0) {
            assert_int_equal(rc, FL_ELIMIT);
            return i - from;
        }
    }
    fail_msg("never full");
    return 0;
}

TEST_WITH(test_full, setup, teardown)
{
    struct fixture *x = *state;
    char key[16];
    reopen(x, STORE_SIZE_MIN, true);
    unsigned n = fill(x, 0);
    assert_true(n > 100);
    assert_int_equal(x->store->committed.keys, n);
    assert_true(x->store->committed.limit >= 1);
    /* In a group, what fits is done and what does not is refused, each with its own answer. */
    char *big = malloc(STORE_VALUE_MAX + 1);
    assert_non_null(big);
    memset(big, 'b', STORE_VALUE_MAX);
    big[STORE_VALUE_MAX] = '\0';
    struct store_op ops[] = {
        make(STORE_SET, "big", big, "a", 1),
        make(STORE_DEL, "k00000", NULL, "a", 1),
        make(STORE_GET, "k00001", NULL, NULL, 0),
        make(STORE_DEL, "k00001", NULL, "b", 1),
    };
    run_all(x, ops, 4);
    assert_int_equal(ops[0].result, FL_ELIMIT);
    assert_int_equal(ops[1].result, 0);
    assert_true(ops[1].found);
    assert_int_equal(ops[2].result, 0);
    assert_int_equal(ops[2].out.len, 3000);
    assert_int_equal(ops[3].result, FL_EWRONGLOCK);
    op_fini(&ops[2]);
    expect(x, "big", NULL, 0, NULL);
    for (unsigned i = 1; i < n / 2; i++) {
        (void)snprintf(key, sizeof(key), "k%05u", i);
        assert_int_equal(del(x, key, "a", 1), 1);
    }
    assert_true(fill(x, n) > n / 4);
    reopen(x, STORE_SIZE_MIN, true);
    expect(x, "k00000", NULL, 0, NULL);
    free(big);
}

/* Writes m values in one group; returns how many of them fitted. */
static unsigned write_group(struct fixture *x, unsigned m)
{
    static char keys[256][16];
    static struct store_op ops[256];
    char value[3001];
    unsigned fitted = 0;
    memset(value, 'w', 3000);
    value[3000] = '\0';
    assert_true(m <= 256);
    for (unsigned i = 0; i < m; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "k%05u", i);
        ops[i] = make(STORE_SET, keys[i], value, "a", 1);
    }
    run_all(x, ops, m);
    for (unsigned i = 0; i < m; i++) {
        assert_true(ops[i].result == 0 || ops[i].result == FL_ELIMIT);
        fitted += ops[i].result == 0 ? 1 : 0;
    }
    return fitted;
}

/* However full the database is, what takes no room of its own works: raising the mark of a known
 * lock, overwriting, deleting. */
TEST_WITH(test_never_stuck, setup, teardown)
{
    struct fixture *x = *state;
    bool full = false;
    for (unsigned m = 225; m <= 256; m++) {
        store_close(x->store);
        x->store = NULL;
        scratch_remove(x->scratch.data, 1);
        reopen(x, STORE_SIZE_MIN, true);
        assert_int_equal(claim(x, "other", 1, NULL), 0);
        full = write_group(x, m) < m || full;
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(claim(x, "other", 2 + i, NULL), 0);
            assert_int_equal(set(x, "k00000", "again", "a", 1), 0);
        }
        assert_int_equal(del(x, "k00001", "a", 1), 1);
    }
    assert_true(full);
}

/* Opened with a lower limit than it has grown to: nothing may grow, all else goes on. */
TEST_WITH(test_lower_limit, setup, teardown)
{
    struct fixture *x = *state;
    char key[16];
    reopen(x, 8 * STORE_SIZE_MIN, true);
    assert_int_equal(write_group(x, 250), 250);
    char *big = malloc(STORE_VALUE_MAX + 1);
    assert_non_null(big);
    memset(big, 'b', STORE_VALUE_MAX);
    big[STORE_VALUE_MAX] = '\0';
    for (unsigned i = 0; i < 5; i++) {
        (void)snprintf(key, sizeof(key), "big%u", i);
        assert_int_equal(set(x, key, big, "a", 1), 0);
    }
    reopen(x, STORE_SIZE_MIN, true);
    assert_int_equal(set(x, "new", big, "a", 1), FL_ELIMIT);
    assert_int_equal(claim(x, "a", 2, NULL), 0);
    assert_int_equal(set(x, "k00000", "again", "a", 2), 0);
    for (unsigned i = 0; i < 250; i++) {
        (void)snprintf(key, sizeof(key), "k%05u", i);
        assert_int_equal(del(x, key, "a", 2), 1);
    }
    for (unsigned i = 0; i < 5; i++) {
        (void)snprintf(key, sizeof(key), "big%u", i);
        assert_int_equal(del(x, key, "a", 2), 1);
    }
    assert_int_equal(set(x, "new", "v", "a", 2), 0);
    free(big);
}

/* --no-fencing: everything is accepted, and what was bound before stays bound for afterwards. */
TEST_WITH(test_no_fencing, setup, teardown)
{
    struct fixture *x = *state;
    assert_int_equal(set(x, "k", "v", "a", 10), 0);
    reopen(x, STORE_SIZE_DEFAULT, false);
    assert_int_equal(set(x, "k", "stale", "a", 9), 0);
    assert_int_equal(set(x, "k", "foreign", "b", 1), 0);
    assert_int_equal(set(x, "u", "unbound", NULL, 0), 0);
    assert_int_equal(claim(x, "a", 3, NULL), 0);
    assert_int_equal(mark(x, "a"), 10);
    assert_int_equal(set(x, "gone", "v", NULL, 0), 0);
    assert_int_equal(del(x, "gone", NULL, 0), 1);
    reopen(x, STORE_SIZE_DEFAULT, true);
    expect(x, "k", NULL, 0, "foreign");
    assert_int_equal(set(x, "k", "v", "b", 99), FL_EWRONGLOCK);
    assert_int_equal(set(x, "u", "now bound", "c", 1), 0);
    assert_int_equal(set(x, "u", "v", "d", 1), FL_EWRONGLOCK);
    assert_int_equal(x->store->committed.keys, 2);
    assert_int_equal(x->store->committed.tombstones, 1);
}

TEST_WITH(test_damaged, setup, teardown)
{
    struct fixture *x = *state;
    struct store *other = NULL;
    assert_int_equal(set(x, "key", "needle-needle", "a", 10), 0);
    assert_int_equal(
        store_open(x->scratch.data, STORE_SIZE_DEFAULT, true, &other, errmsg, sizeof(errmsg)),
        FL_EBUSY);
    store_close(x->store);
    x->store = NULL;
    size_t len;
    uint8_t *file = scratch_load(x->scratch.data, FLI_DB_FILE, &len);
    uint8_t *at = memmem(file, len, "needle-needle", 13);
    assert_non_null(at);
    at[6] = '+';
    scratch_store(x->scratch.data, FLI_DB_FILE, file, len);
    free(file);
    assert_int_equal(
        store_open(x->scratch.data, STORE_SIZE_DEFAULT, true, &other, errmsg, sizeof(errmsg)),
        FL_ECORRUPT);
    assert_non_null(strstr(errmsg, x->scratch.data));
}

/* ---- against a model ---- */

#define KEYS 12u
#define LOCKS 4u
#define OPS 6000u

struct model {
    bool exists[KEYS], present[KEYS];
    unsigned lock[KEYS], value[KEYS];
    fl_token mark[LOCKS];
};

struct step {
    struct store_op op;
    char key[8], lock[8], value[16];
    unsigned k, l, v;
    int want;
    bool want_found;
    unsigned want_value;
    fl_token want_mark;
};

/* The rules again, written the plainest way. */
static void model_apply(struct model *m, struct step *s)
{
    bool keyed = s->op.verb != STORE_CLAIM && s->op.verb != STORE_MARK;
    bool writes = s->op.verb == STORE_SET || s->op.verb == STORE_DEL;
    s->want = 0;
    if (s->op.verb == STORE_MARK) {
        s->want_mark = m->mark[s->l];
        return;
    }
    if (writes && !s->op.fenced) {
        s->want = FL_ENOTOKEN;
    } else if (keyed && s->op.fenced && m->exists[s->k] && m->lock[s->k] != s->l) {
        s->want = FL_EWRONGLOCK;
    } else if (s->op.fenced && s->op.token < m->mark[s->l]) {
        s->want = FL_ESTALE;
        s->want_mark = m->mark[s->l];
    }
    if (s->want != 0) {
        return;
    }
    if (s->op.fenced) {
        m->mark[s->l] = s->op.token;
    }
    s->want_found = keyed && m->present[s->k];
    s->want_value = keyed ? m->value[s->k] : 0;
    if (s->op.verb == STORE_SET) {
        m->exists[s->k] = m->present[s->k] = true;
        m->lock[s->k] = s->l;
        m->value[s->k] = s->v;
    } else if (s->op.verb == STORE_DEL) {
        m->present[s->k] = false;
    }
}

static void random_step(struct step *s, struct model *m, uint64_t *r, unsigned number)
{
    static const enum store_verb verbs[] = {STORE_CLAIM, STORE_GET, STORE_SET, STORE_DEL,
                                            STORE_MARK};
    *s = (struct step){.k = (unsigned)rng_below(r, KEYS), .v = number};
    /* Mostly the lock that suits the key, and tokens around the mark. */
    s->l = rng_below(r, 4) == 0 ? (unsigned)rng_below(r, LOCKS) : s->k % LOCKS;
    fl_token around = m->mark[s->l] + rng_below(r, 4);
    (void)snprintf(s->key, sizeof(s->key), "k%u", s->k);
    (void)snprintf(s->lock, sizeof(s->lock), "l%u", s->l);
    (void)snprintf(s->value, sizeof(s->value), "v%u", s->v);
    s->op = (struct store_op){.verb = verbs[rng_below(r, 5)],
                              .key = text(s->key),
                              .lock = text(s->lock),
                              .value = text(s->value),
                              .token = around > 1 ? around - 1 : 1,
                              .fenced = rng_below(r, 8) != 0};
    s->op.fenced = s->op.fenced || s->op.verb == STORE_CLAIM;
}

static void check_step(struct step *s)
{
    char want[16];
    assert_int_equal(s->op.result, s->want);
    if (s->want == FL_ESTALE || s->op.verb == STORE_MARK) {
        assert_int_equal(s->op.mark, s->want_mark);
    }
    if (s->want == 0 && (s->op.verb == STORE_GET || s->op.verb == STORE_DEL)) {
        assert_int_equal(s->op.found, s->want_found);
    }
    if (s->op.verb == STORE_GET && s->op.found) {
        (void)snprintf(want, sizeof(want), "v%u", s->want_value);
        assert_int_equal(s->op.out.len, strlen(want));
        assert_memory_equal(s->op.out.data, want, s->op.out.len);
    }
    op_fini(&s->op);
}

TEST_WITH(test_model, setup, teardown)
{
    struct fixture *x = *state;
    uint64_t random;
    struct model m = {0};
    static struct step steps[16];
    static struct store_op ops[16];
    unsigned seen[6] = {0};
    random = rng_seed();
    for (unsigned number = 0; number < OPS;) {
        size_t n = 1 + rng_below(&random, 16);
        for (size_t i = 0; i < n; i++) {
            random_step(&steps[i], &m, &random, number++);
            model_apply(&m, &steps[i]);
            ops[i] = steps[i].op;
        }
        run_all(x, ops, n);
        for (size_t i = 0; i < n; i++) {
            steps[i].op = ops[i];
            check_step(&steps[i]);
            seen[steps[i].want == 0               ? 0
                 : steps[i].want == FL_ESTALE     ? 1
                 : steps[i].want == FL_EWRONGLOCK ? 2
                                                  : 3]++;
        }
        if (rng_below(&random, 40) == 0) {
            reopen(x, STORE_SIZE_DEFAULT, true);
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_true(seen[i] > OPS / 100); /* each outcome was really tried */
    }
    unsigned present = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        present += m.present[i] ? 1 : 0;
    }
    assert_int_equal(x->store->committed.keys, present);
}

/* ---- a transaction that is given up ---- */

TEST_WITH(test_rolled_back, setup, teardown)
{
    struct fixture *x = *state;
    struct store_op ops[] = {make(STORE_SET, "k", "new", "a", 7),
                             make(STORE_SET, "fresh", "new", "b", 7),
                             make(STORE_DEL, "gone", NULL, "c", 7)};
    assert_int_equal(set(x, "k", "old", "a", 5), 0);
    assert_int_equal(set(x, "gone", "old", "c", 5), 0);
    assert_int_equal(store_begin(x->store), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(store_do(x->store, &ops[i]), 0);
        assert_int_equal(ops[i].result, 0);
    }
    store_rollback(x->store);
    expect(x, "k", NULL, 0, "old");
    expect(x, "gone", NULL, 0, "old");
    assert_int_equal(mark(x, "a"), 5);
    assert_int_equal(mark(x, "b"), 0);
    assert_int_equal(set(x, "fresh", "v", "d", 6), 0); /* it belongs to no lock yet */
    assert_int_equal(set(x, "k", "v", "a", 6), 0);
    reopen(x, STORE_SIZE_DEFAULT, true); /* the sum of the rows is right, too */
    expect(x, "k", NULL, 0, "v");
    expect(x, "fresh", NULL, 0, "v");
    expect(x, "gone", NULL, 0, "old");
}

/* What was used last is kept in memory, names that are too long for that are not, and names with
 * the same place take turns there: each answer is the same. */
TEST_WITH(what_is_kept_in_memory_is_what_is_stored, setup, teardown)
{
    enum { NAMES = 3 * STORE_RECENT };
    struct fixture *x = *state;
    char key[STORE_RECENT_KEY + 2];
    char lock[FLI_DB_RECENT_NAME + 2];
    for (unsigned i = 0; i < NAMES; i++) {
        (void)snprintf(key, sizeof key, "%0*u", (int)(STORE_RECENT_KEY - 1 + i % 3), i);
        (void)snprintf(lock, sizeof lock, "%0*u", (int)(FLI_DB_RECENT_NAME - 1 + i % 3), i);
        assert_int_equal(store_begin(x->store), 0);
        for (fl_token token = 2; token > 0; token--) { /* the second one is stale */
            struct store_op op = make(STORE_SET, key, token == 2 ? "v" : "late", lock, token);
            assert_int_equal(store_do(x->store, &op), 0);
            assert_int_equal(op.result, token == 2 ? 0 : FL_ESTALE);
        }
        assert_int_equal(store_commit(x->store), 0);
    }
    for (unsigned i = 0; i < NAMES; i += 7) {
        (void)snprintf(key, sizeof key, "%0*u", (int)(STORE_RECENT_KEY - 1 + i % 3), i);
        (void)snprintf(lock, sizeof lock, "%0*u", (int)(FLI_DB_RECENT_NAME - 1 + i % 3), i);
        expect(x, key, NULL, 0, "v");
        assert_int_equal(set(x, key, "late", lock, 1), FL_ESTALE);
        assert_int_equal(set(x, key, "v", "other", 9), FL_EWRONGLOCK);
    }
}

/* ---- a backup beside the writers ---- */

/* It is of one commit, whatever else is written; and what comes out of it has a floor. */
TEST_WITH(test_a_backup_is_one_commit, setup, teardown)
{
    struct fixture *x = *state;
    char path[600];
    char part[700];
    char into[600];
    struct store_facts facts;
    static char value[2000];
    char key[32];
    memset(value, 'v', sizeof value - 1);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof key, "k-%d", i);
        assert_int_equal(set(x, key, value, "lock", 100), 0);
    }
    assert_int_equal(del(x, "k-7", "lock", 100), 1);
    (void)snprintf(path, sizeof path, "%.500s.backup", x->scratch.data);
    (void)snprintf(into, sizeof into, "%.500s.new", x->scratch.data);
    struct store_op op = make(STORE_SET, "late", "late", "lock", 200);
    assert_int_equal(store_begin(x->store), 0); /* in the middle of a transaction */
    assert_int_equal(store_do(x->store, &op), 0);
    int rc = store_backup(x->scratch.data, path, &facts, errmsg, sizeof errmsg);
    if (rc != 0) {
        fail_msg("%s", errmsg);
    }
    assert_int_equal(store_commit(x->store), 0);
    assert_int_equal(facts.keys, 99);
    assert_int_equal(facts.tombstones, 1);
    assert_int_equal(facts.marks, 1);
    assert_int_equal(facts.highest_mark, 100);
    assert_int_equal(store_backup(x->scratch.data, path, &facts, errmsg, sizeof errmsg),
                     FL_EEXISTS);
    assert_int_equal(store_restore(path, into, STORE_SIZE_MIN, 99, &facts, errmsg, sizeof errmsg),
                     FL_EINVAL);
    assert_int_equal(store_restore(path, into, STORE_SIZE_MIN, 200, &facts, errmsg, sizeof errmsg),
                     0);
    (void)snprintf(part, sizeof part, "%s.restoring", into);
    assert_int_equal(access(part, F_OK), -1);
    struct fixture y = {.store = NULL};
    memcpy(y.scratch.data, into, strlen(into) + 1);
    reopen(&y, STORE_SIZE_MIN, true);
    expect(&y, "k-1", NULL, 0, value);
    expect(&y, "late", NULL, 0, NULL);
    assert_int_equal(mark(&y, "lock"), 201);
    assert_int_equal(claim(&y, "lock", 200, NULL), FL_ESTALE);
    assert_int_equal(set(&y, "k-1", "x", "lock", 201), FL_ESTALE); /* not without a claim */
    assert_int_equal(claim(&y, "lock", 201, NULL), 0);
    assert_int_equal(set(&y, "k-1", "x", "lock", 201), 0);
    store_close(y.store);
    scratch_remove(into, 1);
    assert_int_equal(unlink(path), 0);
}
