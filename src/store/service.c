/* service.c: the rule at work. Each operation reads what is stored, is judged by it, and only then
 * writes; so one that is refused has changed nothing.
 *
 *   the mark of a lock: the highest token that was accepted for it
 *   a token below the mark comes from a holder that has been replaced:      refused
 *   a token equal to the mark is the same holder again:                     goes on
 *   a token above the mark is a new holder: the mark rises, and from here
 *   on everything that the former holder still sends is refused:            goes on
 *
 * All of this runs inside one transaction of the database, together with other operations, and
 * nobody is answered before that transaction is on disk (server.c). A refusal is op->result; what
 * the functions return is an error of the database. store.h says what binds a key to a lock, and
 * what a floor is. */
#include "base/bytes.h"
#include "store/store.h"

static bool has_key(const struct store_op *op)
{
    return op->verb == STORE_GET || op->verb == STORE_SET || op->verb == STORE_DEL;
}

static bool has_token(const struct store_op *op)
{
    return op->verb == STORE_CLAIM || (has_key(op) && op->fenced);
}

static bool is_write(const struct store_op *op)
{
    return op->verb == STORE_SET || op->verb == STORE_DEL;
}

/* Whether the token may act on its lock: 0, or why not. */
static int judge(const struct store *s, struct store_op *op, const struct store_entry *e)
{
    fl_token floor = s->db.now.floor;
    if (!has_token(op)) {
        return is_write(op) ? FL_ENOTOKEN : 0;
    }
    if (e->lock.len > 0 && /* a key belongs to the lock that wrote it first */
        fli_bytes_cmp(e->lock.bytes, e->lock.len, op->lock.data, op->lock.len) != 0) {
        op->bound = e->lock;
        return FL_EWRONGLOCK;
    }
    int rc = fl_fence_judge(op->mark, op->token, &op->mark); /* 0 or FL_ESTALE */
    if (rc == 0 && is_write(op) && e->mark < floor) {
        /* After a restore, a holder that has not claimed has not read what is stored now. */
        op->mark = floor;
        op->unclaimed = true;
        rc = FL_ESTALE;
    }
    return rc;
}

/* A token that was found good is the mark from now on. A read raises it too: it is a claim. A new
 * holder makes it before it writes; otherwise a late write of the former holder could come between
 * its read and its write. */
static int raise_mark(struct store *s, const struct store_op *op, fl_token stored)
{
    return op->token > stored ? fli_db_put_mark(&s->db, op->lock, stored, op->token) : 0;
}

/* What the operation is for, once it may be done. */
static int act(struct store *s, struct store_op *op, const struct store_entry *e)
{
    /* Without fencing a key stays bound as it was, whatever lock is named. */
    const struct fli_slice lock =
        s->fencing ? op->lock : (struct fli_slice){e->lock.bytes, e->lock.len};
    op->found = e->present;
    if (op->verb == STORE_SET) {
        return store_put_entry(s, op->key, e, lock, &op->value);
    }
    if (op->verb == STORE_DEL && e->present) {
        return store_put_entry(s, op->key, e, lock, NULL); /* it stays bound */
    }
    if (op->verb == STORE_GET && e->present) {
        op->bound = e->lock;
        return store_get_value(s, op->key, &op->out);
    }
    return 0;
}

static int run(struct store *s, struct store_op *op)
{
    struct store_entry e = {.exists = false};
    int rc = has_key(op) ? store_get_entry(s, op->key, op->lock, &e)
                         : fli_db_get_mark(&s->db, op->lock, &e.mark);
    if (rc != 0) {
        return rc;
    }
    op->mark = fli_fence_effective(e.mark, s->db.now.floor);
    op->result = s->fencing ? judge(s, op, &e) : 0;
    if (op->result == 0 && op->verb == STORE_SET && !store_has_room(s, op->key, &e, &op->value)) {
        op->result = FL_ELIMIT;
    }
    if (op->result != 0) {
        return 0;
    }
    if (has_token(op) && s->fencing) {
        rc = raise_mark(s, op, e.mark);
    }
    return rc != 0 ? rc : act(s, op, &e);
}

static bool is_in_range(const struct store_op *op)
{
    bool has_lock = !has_key(op) || op->fenced;
    return (!has_key(op) || (op->key.len >= 1 && op->key.len <= STORE_KEY_MAX)) &&
           (!has_lock || (op->lock.len >= 1 && op->lock.len <= FL_NAME_MAX)) &&
           (!has_token(op) || fli_fence_token_valid(op->token)) && op->value.len <= STORE_VALUE_MAX;
}

static void count(struct store_counts *c, const struct store_op *op)
{
    c->ops++;
    c->ops_written += op->result == 0 && (is_write(op) || has_token(op));
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
