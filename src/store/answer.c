/* answer.c: see answer.h. */
#include "store/answer.h"

#include "wire/resp.h"
#include "wire/text.h"

static bool answer_done(struct fli_buf *b, int proto, const struct store_op *op)
{
    switch (op->verb) {
    case STORE_GET:
        return (op->found ? fli_resp_bulk(b, op->out.data, op->out.len)
                          : fli_resp_null(b, proto)) == 0;
    case STORE_DEL:
        return fli_resp_int(b, op->found ? 1 : 0) == 0;
    case STORE_MARK:
        return fli_resp_u64(b, op->mark) == 0;
    case STORE_CLAIM:
    case STORE_SET:
        break;
    }
    return fli_resp_simple(b, "OK") == 0;
}

static bool answer_wronglock(struct fli_buf *b, const struct store_op *op, bool may_know)
{
    char key[FLI_QUOTE_SIZE];
    char bound[FLI_QUOTE_SIZE];
    char lock[FLI_QUOTE_SIZE];
    struct fli_slice bound_slice = {op->bound.bytes, op->bound.len};
    fli_quote(key, sizeof(key), &op->key);
    fli_quote(bound, sizeof(bound), &bound_slice);
    fli_quote(lock, sizeof(lock), &op->lock);
    if (!may_know) {
        return fli_resp_error(b, "WRONGLOCK",
                              "key %s belongs to another lock than %s, which this user may not "
                              "read; use the lock that wrote it first",
                              key, lock) == 0;
    }
    return fli_resp_error(b, "WRONGLOCK",
                          "key %s belongs to lock %s and not to lock %s; use the lock that wrote "
                          "it first",
                          key, bound, lock) == 0;
}

/* STALE token SENT is below the mark MARK of lock NAME; ... : programs may rely on this order. */
static bool answer_stale(struct fli_buf *b, const struct store_op *op)
{
    char lock[FLI_QUOTE_SIZE];
    fli_quote(lock, sizeof(lock), &op->lock);
    if (op->unclaimed) {
        return fli_resp_error(b, "STALE",
                              "token %llu of lock %s has not been claimed since this storage was "
                              "restored from a backup, so nothing was done: CLAIM, and read again",
                              (unsigned long long)op->token, lock) == 0;
    }
    return fli_resp_error(b, "STALE",
                          "token %llu is below the mark %llu of lock %s; a newer holder has been "
                          "here, so nothing was done: acquire the lock again",
                          (unsigned long long)op->token, (unsigned long long)op->mark, lock) == 0;
}

static bool answer_refused(struct fli_buf *b, const struct store *store, const struct store_op *op,
                           bool may_know)
{
    char key[FLI_QUOTE_SIZE];
    switch (op->result) {
    case FL_ESTALE:
        return answer_stale(b, op);
    case FL_EWRONGLOCK:
        return answer_wronglock(b, op, may_know);
    case FL_ENOTOKEN:
        fli_quote(key, sizeof(key), &op->key);
        return fli_resp_error(b, "NOTOKEN",
                              "to write key %s, name the lock it belongs to and the token you hold "
                              "it with: add FENCE lock token",
                              key) == 0;
    case FL_ELIMIT:
        return fli_resp_error(b, "LIMIT",
                              "the database (at most %llu bytes, --size-max) or its disk is full; "
                              "nothing was done: delete something or give it more room",
                              (unsigned long long)store->db.pages_max * FLI_DB_PAGE) == 0;
    default:
        return fli_resp_error(b, "ERR", "an argument is out of range") == 0;
    }
}

bool store_answer(struct fli_buf *b, int proto, const struct store *store,
                  const struct store_op *op, bool may_know)
{
    return op->result == 0 ? answer_done(b, proto, op) : answer_refused(b, store, op, may_know);
}

bool store_answer_undone(struct fli_buf *b, int rc)
{
    switch (rc) {
    case FL_ELIMIT:
        return fli_resp_error(b, "LIMIT",
                              "the disk of the database is full; nothing was done: give it more "
                              "room") == 0;
    case FL_ENOMEM:
        return fli_resp_error(b, "LIMIT", "out of memory; nothing was done: try again later") == 0;
    default:
        return fli_resp_error(b, "BUSY",
                              "another program writes to the database; nothing was done: try "
                              "again") == 0;
    }
}

bool store_answer_verdict(struct fli_buf *b, const struct store_op *op, bool not_held,
                          unsigned timeout_ms)
{
    char lock[FLI_QUOTE_SIZE];
    unsigned long long token = (unsigned long long)op->token;
    fli_quote(lock, sizeof(lock), &op->lock);
    if (not_held) {
        return fli_resp_error(b, "NOTHELD",
                              "token %llu no longer holds lock %s; its lease has ended or it never "
                              "had one, so nothing was done: acquire the lock again",
                              token, lock) == 0;
    }
    return fli_resp_error(b, "UNCHECKED",
                          "token %llu of lock %s: the lock service did not say within the last %u "
                          "ms that it is held, so nothing was done: try again",
                          token, lock, timeout_ms) == 0;
}
