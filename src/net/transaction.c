/* transaction.c: MULTI, as Redis answers a transaction whose commands it refuses: none is executed,
 * and EXEC says so. Were only MULTI refused, a client that sends all of it at once would be told of
 * an error, and its commands would be done. MULTI itself is answered OK: clients that wait for its
 * answer go on to EXEC or DISCARD then, and leave no transaction open in a pool. */
#include <string.h>
#include <strings.h>

#include "net/conn.h"

#define INSTEAD                                                                                    \
    "there are no transactions here; send the commands without MULTI (redis-py: "                  \
    "pipeline(transaction=False))"

static bool is_word(struct fli_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.data, word, s.len) == 0;
}

static void answer(struct net_request *r, const char *word, const char *text)
{
    struct fli_buf *b = net_reply(r);
    if ((word == NULL ? fli_resp_simple(b, text) : fli_resp_error(b, word, "%s", text)) == 0) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

bool net_transaction(struct net_request *r, const struct fli_slice *argv)
{
    struct net_conn *c = r->conn;
    bool inside = c->transaction;
    if (is_word(argv[0], "QUIT") || is_word(argv[0], "RESET")) {
        c->transaction = false;
        return false;
    }
    if (is_word(argv[0], "MULTI")) {
        c->transaction = true;
        answer(r, inside ? "ERR" : NULL, inside ? "MULTI calls can not be nested" : "OK");
    } else if (is_word(argv[0], "EXEC")) {
        c->transaction = false;
        answer(r, inside ? "EXECABORT" : "ERR",
               inside ? "Transaction discarded, and nothing of it was done: " INSTEAD
                      : "EXEC without MULTI");
    } else if (is_word(argv[0], "DISCARD")) {
        c->transaction = false;
        answer(r, inside ? NULL : "ERR", inside ? "OK" : "DISCARD without MULTI");
    } else if (inside) {
        answer(r, "ERR", "not done, since it is in a transaction: " INSTEAD);
    } else {
        return false;
    }
    return true;
}
