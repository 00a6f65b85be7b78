/* reply.c: answers as Redis gives them, see request.h. */
#include <inttypes.h>
#include <stdio.h>

#include "frontdoor/request.h"
#include "wire/resp.h"

static enum frontdoor_answer answer_of(const struct frontdoor_answers *a,
                                       enum frontdoor_outcome outcome)
{
    switch (outcome) {
    case FRONTDOOR_GRANTED:
        return (enum frontdoor_answer)a->granted;
    case FRONTDOOR_OWN:
        return (enum frontdoor_answer)a->own;
    case FRONTDOOR_OTHER:
        return (enum frontdoor_answer)a->other;
    default:
        return (enum frontdoor_answer)a->absent;
    }
}

static int integer(struct fli_buf *out, uint64_t v)
{
    return fli_resp_u64(out, v <= INT64_MAX ? v : INT64_MAX);
}

/* A taken key without a value: its lock is delayed or awaited, or of several holders the oldest has
 * just lost it. An empty string would be false in most languages, and nil would say that the key is
 * free. */
static int value_of(struct fli_buf *out, const struct frontdoor_result *r)
{
    return r->value.len > 0 ? fli_resp_bulk(out, r->value.data, r->value.len)
                            : fli_resp_text(out, FRONTDOOR_VALUE_TAKEN);
}

static int value_and_pttl(struct fli_buf *out, int proto, const struct frontdoor_result *r,
                          bool there)
{
    int rc = fli_resp_array(out, 2);
    rc = rc != 0 ? rc : there ? value_of(out, r) : fli_resp_null(out, proto);
    return rc != 0 ? rc : there ? integer(out, r->left_ms) : fli_resp_int(out, -2);
}

static int value_and_minus_1(struct fli_buf *out, uint64_t v, bool token)
{
    int rc = fli_resp_array(out, 2);
    rc = rc != 0 ? rc : token ? fli_resp_int(out, -1) : integer(out, v);
    return rc != 0 ? rc : token ? integer(out, v) : fli_resp_int(out, -1);
}

static int as_text(struct fli_buf *out, uint64_t v)
{
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%" PRIu64, v);
    return fli_resp_text(out, digits);
}

static int each(struct fli_buf *out, unsigned n, const struct frontdoor_result *r)
{
    int rc = fli_resp_array(out, n);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = fli_resp_int(out, (int64_t)(r->each[i / 64] >> i % 64 & 1));
    }
    return rc;
}

int frontdoor_reply(struct fli_buf *out, int proto, const struct frontdoor_answers *answers,
                    const struct frontdoor_result *r)
{
    switch (answer_of(answers, r->outcome)) {
    case FRONTDOOR_OK:
        return fli_resp_simple(out, "OK");
    case FRONTDOOR_NIL:
        return fli_resp_null(out, proto);
    case FRONTDOOR_INT_0:
        return fli_resp_int(out, 0);
    case FRONTDOOR_INT_1:
        return fli_resp_int(out, 1);
    case FRONTDOOR_INT_2:
        return fli_resp_int(out, 2);
    case FRONTDOOR_INT_MINUS_1:
        return fli_resp_int(out, -1);
    case FRONTDOOR_INT_MINUS_2:
        return fli_resp_int(out, -2);
    case FRONTDOOR_INT_MINUS_3:
        return fli_resp_int(out, -3);
    case FRONTDOOR_COUNT:
        return integer(out, r->count);
    case FRONTDOOR_ERROR_WORD:
        return fli_resp_error(out, "ERROR", "another value has the key");
    case FRONTDOOR_ERROR_HELD:
        return fli_resp_error(out, "ERR",
                              "another value has the key, and a lock is not taken away by SET; "
                              "write NX to ask for it");
    case FRONTDOOR_ERROR_NOT_KEY:
        return fli_resp_error(out, "ERR",
                              "the lock is held, but not as a key: by a session, by several, or "
                              "with others; an operator writes BREAK");
    case FRONTDOOR_ERROR_CHANGED:
        return fli_resp_error(out, "BUSY",
                              "the key was given back while its value was asked for; nothing was "
                              "done, so ask again");
    case FRONTDOOR_SENT:
        return fli_resp_bulk(out, r->sent.data, r->sent.len);
    case FRONTDOOR_VALUE:
        return value_of(out, r);
    case FRONTDOOR_PTTL:
        return integer(out, r->left_ms);
    case FRONTDOOR_TTL:
        return integer(out, (r->left_ms + 500) / 1000);
    case FRONTDOOR_VALUE_PTTL:
        return value_and_pttl(out, proto, r, true);
    case FRONTDOOR_NIL_PTTL:
        return value_and_pttl(out, proto, r, false);
    case FRONTDOOR_TOKEN:
        return integer(out, r->token);
    case FRONTDOOR_COUNT_TEXT:
        return as_text(out, r->count);
    case FRONTDOOR_MINUS_1_TOKEN:
        return value_and_minus_1(out, r->token, true);
    case FRONTDOOR_PTTL_MINUS_1:
        return value_and_minus_1(out, r->left_ms, false);
    case FRONTDOOR_ERROR_REENTERS:
        return fli_resp_error(out, "NON_REENTRANT_REACQUIRE", "the value has the key already");
    case FRONTDOOR_EACH:
        return each(out, answers->n_each, r);
    default:
        return fli_resp_error(out, "ERR", "the leader's answer fits no outcome of this command");
    }
}
