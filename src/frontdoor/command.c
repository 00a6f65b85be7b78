/* command.c: a request as a command of the machine, and the machine's result as an outcome; see
 * request.h. */
#include "frontdoor/request.h"

#include <string.h>

#include "frontdoor/signals.h"

static uint8_t *put_short(uint8_t *to, struct fli_slice s)
{
    *to = (uint8_t)s.len;
    memcpy(to + 1, s.data, s.len);
    return to + 1 + s.len;
}

struct machine_command frontdoor_command(const struct frontdoor_request *q,
                                         uint8_t room[FRONTDOOR_ROOM])
{
    struct machine_command m = {.op = q->op, .flags = q->change, .name = q->keys[0]};
    uint8_t *end = room;
    if (q->waits) {
        return frontdoor_signal_query(q->keys[0], room);
    }
    if (q->op == MACHINE_OP_BREAK) {
        return m;
    }
    m.n_names = (uint8_t)q->n_keys;
    m.permits = 1;
    m.ttl_ms = q->ttl_ms;
    if (MACHINE_OP_IS_QUERY(q->op)) {
        m.label = q->value;
    } else {
        m.owner = q->value;
        m.label = q->has_latch ? (struct fli_slice){q->latch, sizeof q->latch} : q->new_value;
        m.number = q->keep_ms;
    }
    for (unsigned i = 1; i < q->n_keys; i++) {
        m.also.len = machine_also_add(room, m.also.len, q->keys[i]);
    }
    m.also.data = room;
    for (unsigned i = 1; i < q->answers.n_each; i++) {
        end = put_short(put_short(end, q->each_keys[i]), q->each_values[i]);
    }
    m.value = (struct fli_slice){room, (size_t)(end - room)};
    return m;
}

struct machine_command frontdoor_fetch(struct fli_slice key, struct frontdoor_answers *answers)
{
    *answers = (struct frontdoor_answers){
        .own = FRONTDOOR_VALUE, .other = FRONTDOOR_VALUE, .absent = FRONTDOOR_ERROR_CHANGED};
    return (struct machine_command){.op = MACHINE_OP_KEY, .n_names = 1, .permits = 1, .name = key};
}

bool frontdoor_fetches(const struct machine_result *m)
{
    return m->code == MACHINE_HELD && m->token == 0;
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
        .each = {m->each[0], m->each[1]},
        .left_ms = m->deadline_ms > m->clock_ms ? m->deadline_ms - m->clock_ms : 0,
        .value = payload,
        .sent = sent,
    };
    return outcome_of(m, &ret->outcome);
}
