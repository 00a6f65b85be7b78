/* command.c: a request as a command of the machine, and the machine's result as an outcome; see
 * request.h. */
#include "frontdoor/request.h"

struct machine_command frontdoor_command(const struct frontdoor_request *q,
                                         uint8_t also[MACHINE_ALSO_SIZE])
{
    struct machine_command m = {.op = q->op, .flags = q->change, .name = q->keys[0]};
    if (q->op == MACHINE_OP_BREAK) {
        return m;
    }
    for (unsigned i = 1; i < q->n_keys; i++) {
        m.also.len = machine_also_add(also, m.also.len, q->keys[i]);
    }
    m.also.data = also;
    m.n_names = (uint8_t)q->n_keys;
    m.permits = 1;
    m.ttl_ms = q->ttl_ms;
    if (MACHINE_OP_IS_QUERY(q->op)) {
        m.label = q->value;
    } else if (q->op == MACHINE_OP_LEAVE) {
        m.owner = q->value;
        m.label = (struct fli_slice){q->latch, q->has_latch ? sizeof q->latch : 0};
        m.number = q->keep_ms;
    } else {
        m.owner = q->value;
        m.label = q->new_value;
    }
    return m;
}

struct machine_command frontdoor_fetch(struct fli_slice key, struct frontdoor_answers *answers)
{
    *answers = (struct frontdoor_answers){
        .own = FRONTDOOR_VALUE, .other = FRONTDOOR_VALUE, .absent = FRONTDOOR_ERROR_CHANGED};
    return (struct machine_command){.op = MACHINE_OP_KEY, .n_names = 1, .permits = 1, .name = key};
}

static bool outcome_of(const struct machine_result *m, enum frontdoor_outcome *ret)
{
    switch (m->code) {
    case MACHINE_GRANTED:
        *ret = FRONTDOOR_GRANTED;
        return true;
    case MACHINE_DONE:
        *ret = FRONTDOOR_OWN;
        return true;
    case MACHINE_HELD: /* with a token, the key is this value's, though not as asked for */
        *ret = m->token != 0 ? FRONTDOOR_OWN : FRONTDOOR_OTHER;
        return true;
    case MACHINE_NO:
    case MACHINE_NOTFOUND:
        *ret = FRONTDOOR_ABSENT;
        return true;
    default:
        return false;
    }
}

bool frontdoor_result_of(const struct machine_result *m, struct fli_slice payload,
                         struct fli_slice sent, struct frontdoor_result *ret)
{
    *ret = (struct frontdoor_result){
        .count = m->number,
        .token = m->token,
        .left_ms = m->deadline_ms > m->clock_ms ? m->deadline_ms - m->clock_ms : 0,
        .value = payload,
        .sent = sent,
    };
    return outcome_of(m, &ret->outcome);
}
