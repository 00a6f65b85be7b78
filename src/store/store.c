/* store.c: see store.h.
 *
 * record.c has the bytes of records. A restore sets a floor, once (restore.h). From then on no
 * token below it is accepted. A lock whose own mark is below the floor must be claimed before
 * anything is written under it, since its holder may have read data that the restore undid. */
#include "store/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "fence/mark.h"
#include "store/record.h"

#define KIND "store"

struct store {
    struct fli_env *env;
    bool fencing;
    fl_token floor; /* FL_TOKEN_NONE: none was set */
    struct store_counts counts;
    pthread_mutex_t lock; /* guards the two below */
    pthread_cond_t ended;
    bool reading;  /* store_reader_begin() */
    bool must_end; /* the reader must end, so that its pages become free */
};

/* A group being executed, with the counts that hold once it is committed. */
struct group {
    struct store *store;
    struct fli_txn txn;
    struct store_counts counts;
    size_t out; /* bytes of values read */
};

struct key_bytes {
    uint8_t raw[1 + STORE_KEY_MAX];
    size_t len;
};

static struct fli_slice key_init(struct key_bytes *k, struct fli_slice key)
{
    FLI_ASSERT(key.len >= 1);
    FLI_ASSERT(key.len <= STORE_KEY_MAX);
    k->raw[0] = STORE_KEY_PREFIX;
    memcpy(k->raw + 1, key.data, key.len);
    k->len = 1 + key.len;
    return (struct fli_slice){k->raw, k->len};
}

/* ---- opening ---- */

static int visit(void *ctx, struct fli_slice key, struct fli_slice head)
{
    struct store *s = ctx;
    enum store_record_kind kind;
    fl_token mark = FL_TOKEN_NONE;
    int rc = store_record_check(key, head, &kind, &mark);
    if (rc != 0) {
        return rc;
    }
    s->counts.marks += kind == STORE_RECORD_MARK;
    s->counts.keys += kind == STORE_RECORD_KEY;
    s->counts.tombstones += kind == STORE_RECORD_DELETED;
    s->floor = kind == STORE_RECORD_FLOOR ? mark : s->floor;
    return 0;
}

int store_open(const char *dir, size_t size_max, bool fencing, struct store **ret, char *errmsg,
               size_t errmsg_size)
{
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->fencing = fencing;
    pthread_mutex_init(&s->lock, NULL); /* neither can fail */
    pthread_cond_init(&s->ended, NULL);
    int rc = fli_env_open(dir, KIND, size_max, visit, s, &s->env, errmsg, errmsg_size);
    if (rc != 0) {
        free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (s != NULL) {
        fli_env_close(s->env);
        pthread_cond_destroy(&s->ended);
        pthread_mutex_destroy(&s->lock);
        free(s);
    }
}

/* ---- a reader beside the groups ---- */

void store_reader_begin(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    FLI_ASSERT(!s->reading);
    s->reading = true;
    s->must_end = false;
    pthread_mutex_unlock(&s->lock);
}

bool store_reader_must_end(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    bool must = s->must_end;
    pthread_mutex_unlock(&s->lock);
    return must;
}

void store_reader_end(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    s->reading = false;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
}

/* Makes the reader end, if a group found no free page, and waits for it. True: some pages may be
 * free now. */
static bool end_reader(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    bool was = s->env->no_page_free && s->reading;
    s->must_end = was;
    while (was && s->reading) {
        pthread_cond_wait(&s->ended, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return was;
}

/* ---- one operation ---- */

static int get_entry(struct group *g, struct fli_slice key, struct store_entry *ret)
{
    struct key_bytes raw;
    struct fli_slice record;
    int rc = fli_txn_get(&g->txn, key_init(&raw, key), &record);
    if (rc == FL_ENOTFOUND) {
        *ret = (struct store_entry){0};
        return 0;
    }
    return rc != 0 ? rc : store_entry_decode(record, ret);
}

/* A key without a record, or one that was written without fencing, belongs to no lock yet. */
static int check_binding(struct store_op *op, const struct store_entry *e)
{
    if (e->lock.len == 0 ||
        fli_bytes_cmp(e->lock.data, e->lock.len, op->lock.data, op->lock.len) == 0) {
        return 0;
    }
    memcpy(op->bound, e->lock.data, e->lock.len);
    op->bound_len = e->lock.len;
    return FL_EWRONGLOCK;
}

static int raise_mark(struct group *g, struct store_op *op)
{
    bool is_new = false;
    int rc = fli_mark_raise(&g->txn, op->lock, g->store->floor, op->token, &op->mark, &is_new);
    g->counts.marks += rc == 0 && is_new ? 1 : 0;
    return rc;
}

/* Whether the lock was claimed since the floor was set: a claim, or a read with a token, sees the
 * present data. */
static int check_claimed(struct group *g, struct store_op *op)
{
    fl_token mark = FL_TOKEN_NONE;
    int rc = op->token < g->store->floor || g->store->floor == FL_TOKEN_NONE
                 ? 0
                 : fli_mark_get(&g->txn, op->lock, &mark);
    if (rc == 0 && op->token >= g->store->floor && mark < g->store->floor) {
        op->mark = g->store->floor;
        op->unclaimed = true;
        rc = FL_ESTALE;
    }
    return rc;
}

/* Whether the operation may touch its key; if so, raises the mark. Slices that were read from the
 * database before are invalid afterwards. */
static int admit(struct group *g, struct store_op *op)
{
    struct store_entry e;
    int rc = get_entry(g, op->key, &e);
    if (rc == 0) {
        rc = check_binding(op, &e);
    }
    if (rc == 0 && op->verb != STORE_GET) {
        rc = check_claimed(g, op);
    }
    return rc != 0 ? rc : raise_mark(g, op);
}

static int do_claim(struct group *g, struct store_op *op)
{
    return g->store->fencing ? raise_mark(g, op) : 0;
}

static int do_mark(struct group *g, struct store_op *op)
{
    int rc = fli_mark_get(&g->txn, op->lock, &op->mark);
    op->mark = fli_fence_effective(op->mark, g->store->floor);
    return rc;
}

static int do_get(struct group *g, struct store_op *op)
{
    struct store_entry e;
    int rc = g->store->fencing && op->fenced ? admit(g, op) : 0;
    if (rc == 0) {
        rc = get_entry(g, op->key, &e);
    }
    if (rc != 0 || !e.present) {
        return rc;
    }
    op->bound_len = e.lock.len;
    if (e.lock.len > 0) {
        memcpy(op->bound, e.lock.data, e.lock.len);
    }
    op->out = malloc(e.value.len + 1);
    if (op->out == NULL) {
        return FL_ENOMEM;
    }
    if (e.value.len > 0) {
        memcpy(op->out, e.value.data, e.value.len);
    }
    op->out_len = e.value.len;
    op->found = true;
    g->out += e.value.len;
    return 0;
}

/* Writes the key's record, present or deleted. Without fencing, an existing binding is kept and
 * none is made. */
static int put_entry(struct group *g, struct store_op *op, const struct store_entry *old,
                     bool present)
{
    struct key_bytes raw;
    uint8_t lock[FL_NAME_MAX];
    struct fli_slice bound = g->store->fencing ? op->lock : old->lock;
    if (bound.len > 0) { /* the slice may point into the database, which is about to change */
        memcpy(lock, bound.data, bound.len);
    }
    uint8_t head[2] = {present ? STORE_STATE_PRESENT : STORE_STATE_DELETED, (uint8_t)bound.len};
    struct fli_slice parts[3] = {{head, sizeof(head)}, {lock, bound.len}, op->value};
    struct fli_slice key = key_init(&raw, op->key);
    return fli_txn_put(&g->txn, key, parts, present ? 3 : 2);
}

static int do_set(struct group *g, struct store_op *op)
{
    struct store_entry old;
    int rc = g->store->fencing ? admit(g, op) : 0;
    if (rc == 0) {
        rc = get_entry(g, op->key, &old);
    }
    if (rc != 0) {
        return rc;
    }
    bool was_present = old.present;
    bool was_deleted = !old.present && old.lock.len > 0;
    rc = put_entry(g, op, &old, true);
    if (rc == 0) {
        g->counts.keys += was_present ? 0 : 1;
        g->counts.tombstones -= was_deleted ? 1 : 0;
    }
    return rc;
}

static int do_del(struct group *g, struct store_op *op)
{
    struct store_entry old;
    struct key_bytes raw;
    int rc = g->store->fencing ? admit(g, op) : 0;
    if (rc == 0) {
        rc = get_entry(g, op->key, &old);
    }
    if (rc != 0 || !old.present) {
        return rc;
    }
    bool bound = g->store->fencing || old.lock.len > 0;
    rc = bound ? put_entry(g, op, &old, false) : fli_txn_del(&g->txn, key_init(&raw, op->key));
    if (rc == 0) {
        op->found = true;
        g->counts.keys--;
        g->counts.tombstones += bound ? 1 : 0;
    }
    return rc;
}

static bool in_range(const struct store_op *op)
{
    bool has_key = op->verb == STORE_GET || op->verb == STORE_SET || op->verb == STORE_DEL;
    bool has_lock = !has_key || op->fenced;
    bool has_token = op->verb == STORE_CLAIM || (has_key && op->fenced);
    return (!has_key || (op->key.len >= 1 && op->key.len <= STORE_KEY_MAX)) &&
           (!has_lock || (op->lock.len >= 1 && op->lock.len <= FL_NAME_MAX)) &&
           (!has_token || fli_fence_token_valid(op->token)) && op->value.len <= STORE_VALUE_MAX;
}

static void reset_results(struct store_op *op)
{
    store_op_fini(op);
    op->result = 0;
    op->mark = FL_TOKEN_NONE;
    op->found = false;
    op->unclaimed = false;
    op->bound_len = 0;
}

static int execute_one(struct group *g, struct store_op *op)
{
    reset_results(op);
    if (!in_range(op)) {
        return FL_EINVAL;
    }
    bool writes = op->verb == STORE_SET || op->verb == STORE_DEL;
    if (writes && g->store->fencing && !op->fenced) {
        return FL_ENOTOKEN;
    }
    switch (op->verb) {
    case STORE_CLAIM:
        return do_claim(g, op);
    case STORE_GET:
        return do_get(g, op);
    case STORE_SET:
        return do_set(g, op);
    case STORE_DEL:
        return do_del(g, op);
    case STORE_MARK:
        return do_mark(g, op);
    }
    return FL_EINVAL;
}

/* ---- groups ---- */

static bool is_refusal(int rc)
{
    return rc == FL_ESTALE || rc == FL_EWRONGLOCK || rc == FL_ENOTOKEN || rc == FL_EINVAL;
}

static void count(struct store_counts *c, const struct store_op *op, bool committed)
{
    c->ops++;
    c->ops_written += committed && op->result == 0 ? 1 : 0;
    c->stale += op->result == FL_ESTALE ? 1 : 0;
    c->wronglock += op->result == FL_EWRONGLOCK ? 1 : 0;
    c->notoken += op->result == FL_ENOTOKEN ? 1 : 0;
    c->limit += op->result == FL_ELIMIT ? 1 : 0;
}

/* Executes all of them or, on a failure, none. The mark in a STALE answer may have been raised by
 * an operation just before it in the group. That mark is true only after the commit, so refusals
 * wait for the commit too. */
static int execute_together(struct store *s, struct store_op *const *ops, size_t n, size_t out_max,
                            size_t *ret_done)
{
    struct group g = {.store = s, .counts = s->counts};
    int rc = fli_txn_begin(s->env, &g.txn);
    if (rc != 0) {
        return rc;
    }
    size_t done = 0;
    while (done < n && (done == 0 || g.out < out_max)) {
        struct store_op *op = ops[done++];
        op->result = execute_one(&g, op);
        if (op->result != 0 && !is_refusal(op->result)) {
            rc = op->result;
            fli_txn_abort(&g.txn);
            return rc;
        }
    }
    bool changed = g.txn.dirty;
    rc = fli_txn_commit(&g.txn);
    if (rc != 0) {
        return rc;
    }
    s->counts = g.counts;
    s->counts.commits += changed ? 1 : 0;
    for (size_t i = 0; i < done; i++) {
        bool wrote = ops[i]->verb != STORE_MARK && (ops[i]->verb != STORE_GET || ops[i]->fenced);
        count(&s->counts, ops[i], changed && wrote);
    }
    *ret_done = done;
    return 0;
}

static bool is_lack(int rc)
{
    return rc == FL_ELIMIT || rc == FL_ENOMEM;
}

static bool is_fatal(int rc)
{
    return !is_lack(rc);
}

/* Executes one operation alone, when space or memory is short. */
static int execute_alone(struct store *s, struct store_op *op)
{
    size_t done;
    int rc = execute_together(s, &op, 1, STORE_OUT_MAX, &done);
    if (rc == 0) {
        return 0;
    }
    if (is_fatal(rc)) {
        return rc;
    }
    reset_results(op);
    op->result = rc;
    count(&s->counts, op, false);
    return 0;
}

/* Executes a group that failed in parts: after a failure half as many operations, after a success
 * twice as many. So an operation that does not fit costs the others a commit for each halving, and
 * not one for each of them. */
static int execute_parts(struct store *s, struct store_op *const *ops, size_t n, size_t *ret_done)
{
    size_t out = 0;
    size_t done = 0;
    size_t part = n / 2;
    while (done < n && out < STORE_OUT_MAX) {
        size_t now = 1;
        part = part < n - done ? part : n - done;
        int rc = part <= 1 ? execute_alone(s, ops[done])
                           : execute_together(s, ops + done, part, STORE_OUT_MAX - out, &now);
        if (rc != 0 && is_fatal(rc)) {
            return rc;
        }
        if (rc != 0) {
            part /= 2;
            continue;
        }
        bool fitted = part > 1 || !is_lack(ops[done]->result);
        for (size_t end = done + now; done < end; done++) {
            out += ops[done]->out_len;
        }
        part = fitted ? 2 * (part > 0 ? part : 1) : 1;
    }
    *ret_done = done;
    return 0;
}

int store_execute(struct store *s, struct store_op *const *ops, size_t n, size_t *ret_done)
{
    FLI_ASSERT(n > 0);
    int rc = execute_together(s, ops, n, STORE_OUT_MAX, ret_done);
    if (rc == FL_ELIMIT && end_reader(s)) {
        rc = execute_together(s, ops, n, STORE_OUT_MAX, ret_done);
    }
    if (rc == 0 || is_fatal(rc)) {
        return rc;
    }
    return execute_parts(s, ops, n, ret_done);
}

void store_op_fini(struct store_op *op)
{
    free(op->out);
    op->out = NULL;
    op->out_len = 0;
}

void store_get_counts(const struct store *s, struct store_counts *ret)
{
    *ret = s->counts;
}

uint64_t store_bytes(const struct store *s)
{
    return fli_env_bytes(s->env);
}

uint64_t store_file_bytes(const struct store *s)
{
    return fli_env_file_bytes(s->env);
}

uint64_t store_size_max(const struct store *s)
{
    return s->env->size_max;
}

struct fli_env *store_env(struct store *s)
{
    return s->env;
}

bool store_fencing(const struct store *s)
{
    return s->fencing;
}
