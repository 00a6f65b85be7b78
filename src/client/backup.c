/* backup.c: fetches a backup from one node. Each request asks for one piece, so a slow disk here
 * slows down nothing at the node. */
#include "client/handle.h"

#include <time.h>

#include "base/clock.h"

#define ASK_AGAIN_NS 20000000L /* while the node still writes the backup */

struct fetch {
    fl_client *c;
    struct fli_call_plan plan;
    uint64_t timeout_ms;
    int (*sink)(void *arg, const void *data, size_t len);
    void *arg;
};

static int begin(struct fetch *f)
{
    struct fli_outcome o;
    int rc = fli_run(f->c, &f->plan, &o);
    bool good = rc == 0 && o.reply->type == REDIS_REPLY_INTEGER;
    f->plan.request.count = good ? (uint64_t)o.reply->integer : 0;
    freeReplyObject(o.reply);
    return rc != 0 || good ? rc : fli_fail(f->c, FL_EPROTO, "the node gave no number of a backup");
}

/* Asks for the next piece until it is there. To write the snapshot, before the first one, may take
 * a node any time; to read a piece of it may not. */
static int ask_for_piece(struct fetch *f, redisReply **ret)
{
    const struct timespec pause = {.tv_nsec = ASK_AGAIN_NS};
    uint64_t until_ms = f->plan.request.token == 0 ? UINT64_MAX : fli_clock_ms() + f->timeout_ms;
    struct fli_outcome o;
    int rc;
    while ((rc = fli_run(f->c, &f->plan, &o)) == FL_ENOTHELD) {
        freeReplyObject(o.reply);
        o.reply = NULL;
        if (fli_clock_ms() >= until_ms) {
            rc = fli_fail(f->c, FL_ETIMEOUT,
                          "the node gave no more of the backup in time: its disk is slow "
                          "or hangs; try another node, or a longer timeout");
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    *ret = o.reply;
    return rc;
}

/* Takes one piece. *ret_len: its length; 0: the backup is complete. */
static int next(struct fetch *f, size_t *ret_len)
{
    redisReply *reply;
    int rc = ask_for_piece(f, &reply);
    if (rc == 0 && reply->type != REDIS_REPLY_STRING) {
        rc = fli_fail(f->c, FL_EPROTO, "the node gave no piece of a backup");
    } else if (rc == 0) {
        rc = reply->len > 0 ? f->sink(f->arg, reply->str, reply->len) : 0;
        *ret_len = reply->len;
        f->plan.request.token += reply->len;
    }
    freeReplyObject(reply);
    return rc;
}

int fl_backup(fl_client *c, size_t node, uint64_t timeout_ms,
              int (*sink)(void *arg, const void *data, size_t len), void *arg)
{
    struct fetch f = {.c = c,
                      .plan = fli_at_node(FLI_CALL_BACKUP, node, timeout_ms),
                      .timeout_ms =
                          timeout_ms != 0 || c == NULL ? timeout_ms : c->engine.timeout_ms,
                      .sink = sink,
                      .arg = arg};
    size_t len = 1;
    int rc = begin(&f);
    while (rc == 0 && len > 0) {
        rc = next(&f, &len);
    }
    return rc;
}
