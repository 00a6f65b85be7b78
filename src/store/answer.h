/* answer.h: the result of an operation, as RESP. */
#ifndef STORE_ANSWER_H
#define STORE_ANSWER_H

#include "base/buf.h"
#include "store/store.h"

/* may_know: whether the client may learn which lock a key belongs to. False: the answer did not
 * fit. */
bool store_answer(struct fli_buf *b, int proto, const struct store *store,
                  const struct store_op *op, bool may_know) FLI_MUST_USE;

/* The transaction of the operation was given up: FL_ELIMIT, FL_ENOMEM, or FL_EBUSY. */
bool store_answer_undone(struct fli_buf *b, int rc) FLI_MUST_USE;

/* Why an operation was not done in strict mode: its lock is not held, or nobody said so in time. */
bool store_answer_verdict(struct fli_buf *b, const struct store_op *op, bool not_held,
                          unsigned timeout_ms) FLI_MUST_USE;

#endif
