/* health_probe.c: see health_probe.h. */
#include "client/health_probe.h"

#include <stdio.h>

#include "client/ask.h"

#define ANSWERS 2u
#define OUT_MAX 256u

void fli_health_probe_init(struct fli_health_probe *q, struct fli_link *link)
{
    *q = (struct fli_health_probe){.link = link};
    fli_buf_init(&q->out, OUT_MAX);
}

void fli_health_probe_fini(struct fli_health_probe *q)
{
    fli_buf_fini(&q->out);
}

bool fli_health_probe_begin(struct fli_health_probe *q, uint32_t node,
                            const struct fli_place *place, struct fli_link_security *security)
{
    const struct fli_ask leader = {.op = FLI_ASK_LEADER};
    /* Any lock does: what counts is that an answer comes. */
    const struct fli_ask check = {.op = FLI_ASK_CHECK, .name = fl_str("fencelock"), .token = 1};
    fli_link_close(q->link);
    fli_buf_clear(&q->out);
    q->node = node;
    q->sent = 0;
    q->answers = 0;
    if (fli_ask_encode(&leader, 0, &q->out) != 0 || fli_ask_encode(&check, 0, &q->out) != 0) {
        snprintf(q->link->error, sizeof q->link->error, "out of memory");
        return false;
    }
    return fli_place_connect(place, q->link, security);
}

static bool is_good(const struct fli_health_probe *q, const redisReply *reply)
{
    int code;
    enum fli_ask_op op = q->answers == 1 ? FLI_ASK_LEADER : FLI_ASK_CHECK;
    enum fli_call_event event = fli_ask_classify(op, reply, &code);
    return event == FLI_EVENT_YES || event == FLI_EVENT_NO;
}

bool fli_health_probe_step(struct fli_health_probe *q, enum fli_call_event *ret, bool *ret_writable)
{
    struct fli_link *l = q->link;
    redisReply *reply = NULL;
    *ret = FLI_EVENT_SERVES_NOT;
    int rc = !l->ready ? fli_link_finish(l) : 0;
    rc = rc == 0 ? fli_link_push(l, q->out.data, q->out.len, &q->sent) : rc;
    *ret_writable = rc == FL_EBUSY && !l->wants_read;
    if (rc == FL_EBUSY) {
        return false;
    }
    rc = rc == 0 ? fli_link_receive(l, 0, &reply) : rc;
    if (rc == FL_ETIMEOUT) {
        return false;
    }
    if (rc == 0) {
        q->answers++;
        if (is_good(q, reply)) {
            *ret = q->answers == ANSWERS ? FLI_EVENT_SERVES : FLI_EVENT_ALIVE;
        } else {
            snprintf(l->error, sizeof l->error, "%.150s", reply->str == NULL ? "" : reply->str);
        }
        freeReplyObject(reply);
    }
    return true;
}

bool fli_health_probe_is_done(const struct fli_health_probe *q, uint32_t node)
{
    return q->link->fd >= 0 && q->node == node && q->answers == ANSWERS &&
           fli_link_is_fresh(q->link);
}
