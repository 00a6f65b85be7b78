/* backup.c: see backup.h. All requests use one connection and ask for one piece each, so a slow
 * disk here slows down nothing at the node. */
#include "client/backup.h"

#include <time.h>

#define ASK_AGAIN_NS 20000000L /* while the node still writes the backup */

struct fetch {
    struct fli_caller *k;
    struct fli_link link;
    struct fli_ask ask;
    uint32_t node;
    uint64_t timeout_ms;
    int (*sink)(void *arg, const void *data, size_t len);
    void *arg;
};

static int begin(struct fetch *f)
{
    redisReply *reply = NULL;
    int rc = fli_caller_ask(f->k, &f->link, f->node, &f->ask, f->timeout_ms, &reply);
    if (rc != 0) {
        return rc;
    }
    bool good = reply->type == REDIS_REPLY_INTEGER;
    f->ask.count = good ? (uint64_t)reply->integer : 0;
    freeReplyObject(reply);
    return good ? 0 : fli_caller_fail(f->k, FL_EPROTO, "the node gave no number of a backup");
}

/* Takes one piece. *ret_len: its length; 0: the backup is complete. */
static int next(struct fetch *f, size_t *ret_len)
{
    const struct timespec pause = {.tv_nsec = ASK_AGAIN_NS};
    redisReply *reply = NULL;
    int rc = FL_ENOTHELD;
    while ((rc = fli_caller_ask(f->k, &f->link, f->node, &f->ask, f->timeout_ms, &reply)) ==
           FL_ENOTHELD) {
        (void)nanosleep(&pause, NULL);
    }
    if (rc != 0) {
        return rc;
    }
    if (reply->type != REDIS_REPLY_STRING) {
        rc = fli_caller_fail(f->k, FL_EPROTO, "the node gave no piece of a backup");
    } else if (reply->len > 0) {
        rc = f->sink(f->arg, reply->str, reply->len);
    }
    *ret_len = reply->len;
    f->ask.token += reply->len;
    freeReplyObject(reply);
    return rc;
}

int fli_backup(struct fli_caller *k, enum fli_ask_op op, uint32_t node, uint64_t timeout_ms,
               int (*sink)(void *arg, const void *data, size_t len), void *arg)
{
    struct fetch f = {.k = k,
                      .ask = {.op = op},
                      .node = node,
                      .timeout_ms = timeout_ms,
                      .sink = sink,
                      .arg = arg};
    size_t len = 1;
    fli_link_init(&f.link);
    int rc = begin(&f);
    while (rc == 0 && len > 0) {
        rc = next(&f, &len);
    }
    fli_link_close(&f.link);
    return rc;
}
