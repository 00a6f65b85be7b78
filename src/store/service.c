/* service.c: the rule at work. Each operation is checked before it writes anything: a refused one
 * has changed nothing. All of this runs inside one transaction of the database, together with other
 * operations, and nobody is answered before that transaction is on disk (server.c).
 *
 *   the mark of a lock: the highest token that was accepted for it
 *   a token below the mark comes from a holder that has been replaced:      refused
 *   a token equal to the mark is the same holder again:                     goes on
 *   a token above the mark is a new holder: the mark rises, and from here
 *   on everything that the former holder still sends is refused:            goes on
 *
 * store.h says what binds a key to a lock, and what a floor is. */
#include "base/bytes.h"
#include "store/store.h"

/* Whether this token may act on its lock, whose own mark is `stored`; 0 when it has none. */
static void compare(struct store *s, struct store_op *op, fl_token stored)
{
    op->mark = fli_fence_effective(stored, s->db.now.floor);
    op->result = fl_fence_judge(op->mark, op->token, &op->mark); /* 0 or FL_ESTALE */
}

/* After a restore, a holder that has not claimed has not read what is stored now. */
static void check_claimed(struct store *s, struct store_op *op, fl_token stored)
{
    if (stored < s->db.now.floor) {
        op->mark = s->db.now.floor;
        op->unclaimed = true;
        op->result = FL_ESTALE;
    }
}

/* A key belongs to the lock that wrote it first. */
static void check_binding(struct store_op *op, const struct store_entry *e)
{
    if (e->lock.len > 0 &&
        fli_bytes_cmp(e->lock.bytes, e->lock.len, op->lock.data, op->lock.len) != 0) {
        op->bound = e->lock;
        op->result = FL_EWRONGLOCK;
    }
}

/* The mark rises to a token that was found good. */
static int raise_mark(struct store *s, const struct store_op *op, fl_token stored)
{
    return op->token > stored ? fli_db_put_mark(&s->db, op->lock, stored, op->token) : 0;
}

static int do_claim(struct store *s, struct store_op *op)
{
    fl_token stored = FL_TOKEN_NONE;
    int rc = s->fencing ? fli_db_get_mark(&s->db, op->lock, &stored) : 0;
    if (rc != 0 || !s->fencing) {
        return rc;
    }
    compare(s, op, stored);
    return op->result == 0 ? raise_mark(s, op, stored) : 0;
}

static int do_mark(struct store *s, struct store_op *op)
{
    fl_token stored = FL_TOKEN_NONE;
    int rc = fli_db_get_mark(&s->db, op->lock, &stored);
    op->mark = fli_fence_effective(stored, s->db.now.floor);
    return rc;
}

/* Reads what is stored, and checks the operation by it. On 0 with op->result 0 it may go on. */
static int admit(struct store *s, struct store_op *op, struct store_entry *e)
{
    bool writes = op->verb != STORE_GET;
    int rc = store_get_entry(s, op->key, op->lock, e);
    if (rc != 0 || !s->fencing || (!writes && !op->fenced)) {
        return rc;
    }
    if (!op->fenced) {
        op->result = FL_ENOTOKEN;
        return 0;
    }
    check_binding(op, e);
    if (op->result == 0) {
        compare(s, op, e->mark);
    }
    if (op->result == 0 && writes) {
        check_claimed(s, op, e->mark);
    }
    return 0;
}

/* A read with a token is a claim. A new holder makes it before it writes; otherwise a late write of
 * the former holder could come between its read and its write. */
static int do_get(struct store *s, struct store_op *op)
{
    struct store_entry e;
    int rc = admit(s, op, &e);
    if (rc == 0 && op->result == 0 && op->fenced && s->fencing) {
        rc = raise_mark(s, op, e.mark);
    }
    if (rc != 0 || op->result != 0 || !e.present) {
        return rc;
    }
    op->found = true;
    op->bound = e.lock;
    rc = store_get_value(s, op->key);
    op->out = (struct fli_slice){s->value.data, s->value.len};
    return rc;
}

/* SET and DEL. The mark and the entry change together, or neither does. */
static int do_write(struct store *s, struct store_op *op)
{
    struct store_entry e;
    const struct fli_slice *value = op->verb == STORE_SET ? &op->value : NULL;
    int rc = admit(s, op, &e);
    if (rc == 0 && op->result == 0 && value != NULL && !store_has_room(s, op->key, &e, value)) {
        op->result = FL_ELIMIT;
    }
    if (rc == 0 && op->result == 0 && s->fencing) {
        rc = raise_mark(s, op, e.mark);
    }
    if (rc != 0 || op->result != 0 || (value == NULL && !e.present)) {
        return rc;
    }
    op->found = e.present;
    struct fli_slice lock = s->fencing ? op->lock : (struct fli_slice){e.lock.bytes, e.lock.len};
    return store_put_entry(s, op->key, &e, lock, value);
}

static bool is_in_range(const struct store_op *op)
{
    bool has_key = op->verb == STORE_GET || op->verb == STORE_SET || op->verb == STORE_DEL;
    bool has_lock = !has_key || op->fenced;
    bool has_token = op->verb == STORE_CLAIM || (has_key && op->fenced);
    return (!has_key || (op->key.len >= 1 && op->key.len <= STORE_KEY_MAX)) &&
           (!has_lock || (op->lock.len >= 1 && op->lock.len <= FL_NAME_MAX)) &&
           (!has_token || fli_fence_token_valid(op->token)) && op->value.len <= STORE_VALUE_MAX;
}

static int run(struct store *s, struct store_op *op)
{
    switch (op->verb) {
    case STORE_CLAIM:
        return do_claim(s, op);
    case STORE_GET:
        return do_get(s, op);
    case STORE_MARK:
        return do_mark(s, op);
    case STORE_SET:
    case STORE_DEL:
        break;
    }
    return do_write(s, op);
}

static void count(struct store_counts *c, const struct store_op *op)
{
    bool wrote = op->verb != STORE_MARK && (op->verb != STORE_GET || op->fenced);
    c->ops++;
    c->ops_written += op->result == 0 && wrote;
    c->stale += op->result == FL_ESTALE;
    c->wronglock += op->result == FL_EWRONGLOCK;
    c->notoken += op->result == FL_ENOTOKEN;
    c->limit += op->result == FL_ELIMIT;
}

int store_do(struct store *s, struct store_op *op)
{
    op->result = is_in_range(op) ? 0 : FL_EINVAL;
    op->mark = FL_TOKEN_NONE;
    op->found = op->unclaimed = false;
    op->bound.len = 0;
    op->out = (struct fli_slice){NULL, 0};
    int rc = op->result != 0 ? 0 : run(s, op);
    if (rc == FL_ELIMIT && fli_db_is_open(&s->db)) { /* it found no room, and nothing was undone */
        op->result = rc;
        rc = 0;
    }
    count(&s->now, op);
    return rc;
}
