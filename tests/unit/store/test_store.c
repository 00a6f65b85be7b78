/* The store without its network: each refusal, bindings, tombstones, groups, a full database, and
 * random operations against a naive model with restarts. */
#include "scratch.h"

#include <pthread.h>

#include "store/backup.h"
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

static void run(struct fixture *x, struct store_op *op)
{
    size_t done = 0;
    assert_int_equal(store_execute(x->store, &op, 1, &done), 0);
    assert_int_equal(done, 1);
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
        assert_int_equal(op.out_len, strlen(value));
        assert_memory_equal(op.out, value, op.out_len);
    }
    store_op_fini(&op);
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
        assert_null(read.out);
        expect(x, "k", NULL, 0, "old");
        expect(x, "new", NULL, 0, NULL);
        assert_int_equal(mark(x, "x"), 34);
        reopen(x, STORE_SIZE_DEFAULT, true);
    }
    assert_int_equal(set(x, "k", "newer", "x", 34), 0);
    assert_int_equal(set(x, "k", "newest", "x", 34), 0); /* a holder writes many times */
    expect(x, "k", "x", 34, "newest");
    struct store_counts c;
    store_get_counts(x->store, &c);
    assert_int_equal(c.stale, 0); /* counted from the opening on */
    assert_int_equal(claim(x, "x", 1, NULL), FL_ESTALE);
    store_get_counts(x->store, &c);
    assert_int_equal(c.stale, 1);
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
        assert_int_equal(op.bound_len, 1);
        assert_int_equal(op.bound[0], 'a');
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
    struct store_counts c;
    assert_int_equal(set(x, "k", "v", "a", 10), 0);
    assert_int_equal(del(x, "k", "a", 10), 1);
    assert_int_equal(del(x, "k", "a", 10), 0);
    for (unsigned restart = 0; restart < 2; restart++) {
        expect(x, "k", NULL, 0, NULL);
        assert_int_equal(set(x, "k", "w", "b", 99), FL_EWRONGLOCK);
        assert_int_equal(set(x, "k", "w", "a", 9), FL_ESTALE);
        store_get_counts(x->store, &c);
        assert_int_equal(c.keys, 0);
        assert_int_equal(c.tombstones, 1);
        assert_int_equal(c.marks, 1);
        reopen(x, STORE_SIZE_DEFAULT, true);
    }
    assert_int_equal(set(x, "k", "again", "a", 10), 0);
    expect(x, "k", NULL, 0, "again");
    store_get_counts(x->store, &c);
    assert_int_equal(c.keys, 1);
    assert_int_equal(c.tombstones, 0);
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
    struct store_op *refs[8];
    struct store_counts c;
    size_t done = 0;
    for (size_t i = 0; i < 8; i++) {
        refs[i] = &ops[i];
    }
    assert_int_equal(store_execute(x->store, refs, 8, &done), 0);
    assert_int_equal(done, 8);
    assert_int_equal(ops[1].out[0], '1');
    assert_int_equal(ops[3].result, FL_ESTALE);
    assert_int_equal(ops[3].mark, 2);
    assert_int_equal(ops[4].result, 0);
    assert_int_equal(ops[5].out[0], '3');
    assert_int_equal(ops[6].result, FL_EWRONGLOCK);
    assert_int_equal(ops[7].mark, 2);
    store_get_counts(x->store, &c);
    assert_int_equal(c.commits, 1);
    assert_int_equal(c.ops, 8);
    for (size_t i = 0; i < 8; i++) {
        store_op_fini(&ops[i]);
    }
}

/* Reading many large values ends the group early instead of filling the memory. */
TEST_WITH(test_group_output, setup, teardown)
{
    struct fixture *x = *state;
    char *big = malloc(STORE_VALUE_MAX + 1);
    struct store_op ops[20];
    struct store_op *refs[20];
    size_t done = 0;
    assert_non_null(big);
    memset(big, 'b', STORE_VALUE_MAX);
    big[STORE_VALUE_MAX] = '\0';
    assert_int_equal(set(x, "big", big, "a", 1), 0);
    for (size_t i = 0; i < 20; i++) {
        ops[i] = make(STORE_GET, "big", NULL, NULL, 0);
        refs[i] = &ops[i];
    }
    assert_int_equal(store_execute(x->store, refs, 20, &done), 0);
    assert_int_equal(done, STORE_OUT_MAX / STORE_VALUE_MAX);
    for (size_t i = 0; i < done; i++) {
        assert_int_equal(ops[i].out_len, STORE_VALUE_MAX);
        store_op_fini(&ops[i]);
    }
    free(big);
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
    struct store_counts c;
    reopen(x, STORE_SIZE_MIN, true);
    unsigned n = fill(x, 0);
    assert_true(n > 100);
    store_get_counts(x->store, &c);
    assert_int_equal(c.keys, n);
    assert_true(c.limit >= 1);
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
    struct store_op *refs[] = {&ops[0], &ops[1], &ops[2], &ops[3]};
    size_t done = 0;
    assert_int_equal(store_execute(x->store, refs, 4, &done), 0);
    assert_int_equal(done, 4);
    assert_int_equal(ops[0].result, FL_ELIMIT);
    assert_int_equal(ops[1].result, 0);
    assert_true(ops[1].found);
    assert_int_equal(ops[2].result, 0);
    assert_int_equal(ops[2].out_len, 3000);
    assert_int_equal(ops[3].result, FL_EWRONGLOCK);
    store_op_fini(&ops[2]);
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
    struct store_op *refs[256];
    char value[3001];
    size_t done = 0;
    unsigned fitted = 0;
    memset(value, 'w', 3000);
    value[3000] = '\0';
    assert_true(m <= 256);
    for (unsigned i = 0; i < m; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "k%05u", i);
        ops[i] = make(STORE_SET, keys[i], value, "a", 1);
        refs[i] = &ops[i];
    }
    assert_int_equal(store_execute(x->store, refs, m, &done), 0);
    assert_int_equal(done, m);
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
    struct store_counts c;
    store_get_counts(x->store, &c);
    assert_int_equal(c.keys, 2);
    assert_int_equal(c.tombstones, 0);
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
    uint8_t *file = scratch_load(x->scratch.data, "data.mdb", &len);
    uint8_t *at = memmem(file, len, "needle-needle", 13);
    assert_non_null(at);
    at[6] = '+';
    scratch_store(x->scratch.data, "data.mdb", file, len);
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
    *s = (struct step){.k = (unsigned)rng_below(r, KEYS), .v = number};
    /* Mostly the lock that suits the key, and tokens around the mark. */
    s->l = rng_below(r, 4) == 0 ? (unsigned)rng_below(r, LOCKS) : s->k % LOCKS;
    fl_token around = m->mark[s->l] + rng_below(r, 4);
    (void)snprintf(s->key, sizeof(s->key), "k%u", s->k);
    (void)snprintf(s->lock, sizeof(s->lock), "l%u", s->l);
    (void)snprintf(s->value, sizeof(s->value), "v%u", s->v);
    s->op = (struct store_op){.verb = (enum store_verb)rng_below(r, 5),
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
        assert_int_equal(s->op.out_len, strlen(want));
        assert_memory_equal(s->op.out, want, s->op.out_len);
    }
    store_op_fini(&s->op);
}

TEST_WITH(test_model, setup, teardown)
{
    struct fixture *x = *state;
    uint64_t random;
    struct model m = {0};
    static struct step steps[16];
    struct store_op *refs[16];
    unsigned seen[6] = {0};
    random = rng_seed();
    for (unsigned number = 0; number < OPS;) {
        size_t n = 1 + rng_below(&random, 16);
        size_t done = 0;
        for (size_t i = 0; i < n; i++) {
            random_step(&steps[i], &m, &random, number++);
            model_apply(&m, &steps[i]);
            refs[i] = &steps[i].op;
        }
        assert_int_equal(store_execute(x->store, refs, n, &done), 0);
        assert_int_equal(done, n);
        for (size_t i = 0; i < n; i++) {
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
    struct store_counts c;
    unsigned present = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        present += m.present[i] ? 1 : 0;
    }
    store_get_counts(x->store, &c);
    assert_int_equal(c.keys, present);
}

/* ---- a backup beside the writers ---- */

struct taking {
    struct fixture *x;
    fl_token token; /* of the writes between two pieces */
    size_t bytes;
    int result;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reading; /* the reader has its commit */
    FILE *file;
};

static int keep_piece(void *ctx, const void *data, size_t len)
{
    struct taking *t = ctx;
    t->bytes += len;
    return fwrite(data, 1, len, t->file) == len ? 0 : FL_EIO;
}

/* Writes to a key that comes late, and makes new ones, between two pieces. */
static int keep_and_write(void *ctx, const void *data, size_t len)
{
    struct taking *t = ctx;
    char key[32];
    for (int i = 0; i < 20; i++) {
        t->token++;
        (void)snprintf(key, sizeof key, "z-%d", (int)t->token);
        assert_int_equal(set(t->x, "last", "after", "lock", t->token), 0);
        assert_int_equal(set(t->x, key, "after", "lock", t->token), 0);
    }
    return keep_piece(ctx, data, len);
}

static int count_late(void *ctx, struct fli_slice key, struct fli_slice value)
{
    unsigned *late = ctx;
    static const char after[] = "after";
    *late += value.len >= 5 && memcmp(value.data + value.len - 5, after, 5) == 0;
    return 0;
}

/* What is written meanwhile is not in it: neither keys nor marks. */
TEST_WITH(test_a_backup_is_one_commit, setup, teardown)
{
    struct fixture *x = *state;
    char key[32];
    char path[600];
    static char value[2000];
    memset(value, 'v', sizeof value - 1);
    for (int i = 0; i < 500; i++) {
        (void)snprintf(key, sizeof key, "k-%d", i);
        assert_int_equal(set(x, key, value, "lock", 100), 0);
    }
    assert_int_equal(set(x, "last", "before", "lock", 100), 0);
    (void)snprintf(path, sizeof path, "%.500s.backup", x->scratch.data);
    struct taking t = {.x = x, .token = 1000, .file = fopen(path, "we")};
    assert_non_null(t.file);
    assert_int_equal(store_backup_write(x->store, keep_and_write, &t), 0);
    assert_int_equal(fclose(t.file), 0);
    assert_true(t.bytes > 900000 && t.token > 1000 + 10 * 20);
    struct store_backup_facts facts;
    unsigned late = 0;
    int rc = store_backup_read(path, count_late, &late, &facts, errmsg, sizeof errmsg);
    if (rc != 0) {
        fail_msg("%s", errmsg);
    }
    assert_int_equal(late, 0);
    assert_int_equal(facts.keys, 501);
    assert_int_equal(facts.highest_mark, 100);
    assert_int_equal(facts.bytes, t.bytes);
    expect(x, "last", "lock", t.token, "after");
    assert_int_equal(unlink(path), 0);
}

/* A disk that is as slow as the reader can be: it looks whether it has to give way, and waits. */
static int crawl(void *ctx, const void *data, size_t len)
{
    struct taking *t = ctx;
    t->bytes += len;
    pthread_mutex_lock(&t->lock);
    t->reading = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    while (!store_reader_must_end(t->x->store)) {
        (void)sched_yield();
    }
    return 0;
}

static void *take(void *ctx)
{
    struct taking *t = ctx;
    t->result = store_backup_write(t->x->store, crawl, t);
    return NULL;
}

/* A reader keeps every page that it may still need, so a small database has soon none left: then
 * the writes come first. None is refused, and the backup says that it ended. */
TEST_WITH(test_a_backup_gives_way_to_writers, setup, teardown)
{
    struct fixture *x = *state;
    static char value[4000];
    char key[32];
    fl_token token = 100;
    struct taking t = {.x = x};
    pthread_t thread;
    memset(value, 'v', sizeof value - 1);
    reopen(x, STORE_SIZE_MIN, true);
    for (int i = 0; i < 40; i++) {
        (void)snprintf(key, sizeof key, "k-%d", i);
        assert_int_equal(set(x, key, value, "lock", token), 0);
    }
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.changed, NULL);
    assert_int_equal(pthread_create(&thread, NULL, take, &t), 0);
    pthread_mutex_lock(&t.lock);
    while (!t.reading) {
        pthread_cond_wait(&t.changed, &t.lock);
    }
    pthread_mutex_unlock(&t.lock);
    for (int i = 0; i < 2000; i++) { /* the file would have to have 8 MB */
        (void)snprintf(key, sizeof key, "k-%d", i % 40);
        assert_int_equal(set(x, key, value, "lock", ++token), 0);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(t.result, FL_EBUSY);
    struct store_counts counts;
    store_get_counts(x->store, &counts);
    assert_int_equal(counts.limit, 0);
    pthread_cond_destroy(&t.changed);
    pthread_mutex_destroy(&t.lock);
}
