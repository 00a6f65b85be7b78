/* words.c: a client's commands as bytes on the wire, and the meaning of an answer's bytes.
 * src/client/call_request writes the commands, as in the library; or they are written on one line,
 * as people do without a library. hiredis reads the answers, and the same file classifies them. */
#include "sim.h"

#include <inttypes.h>
#include <string.h>

#include "client/call_request.h"
#include "machine/batch.h"
#include "wire/resp.h"

static struct fl_bytes bytes(struct fli_slice s)
{
    return (struct fl_bytes){s.data, s.len};
}

static enum fli_call_command command_of(uint8_t op)
{
    switch (op) {
    case MACHINE_OP_ACQUIRE:
        return FLI_CALL_ACQUIRE;
    case MACHINE_OP_RENEW:
        return FLI_CALL_RENEW;
    case MACHINE_OP_RELEASE:
        return FLI_CALL_RELEASE;
    case MACHINE_OP_CHECK:
        return FLI_CALL_CHECK;
    case MACHINE_OP_TOKEN:
        return FLI_CALL_TOKEN;
    case MACHINE_OP_BREAK:
        return FLI_CALL_BREAK;
    case MACHINE_OP_SHOW:
    case MACHINE_OP_SESSION_SHOW: /* the library has no such command; its answer has the same
                                     form */
        return FLI_CALL_SHOW;
    case MACHINE_OP_LOCKS:
        return FLI_CALL_LOCKS;
    case MACHINE_OP_SESSION_OPEN:
        return FLI_CALL_SESSION_OPEN;
    case MACHINE_OP_SESSION_RENEW:
        return FLI_CALL_SESSION_RENEW;
    default:
        FLI_ASSERT(op == MACHINE_OP_SESSION_CLOSE);
        return FLI_CALL_SESSION_CLOSE;
    }
}

bool sim_words_no_is_uncertain(uint8_t op)
{
    return fli_call_no_is_uncertain(command_of(op));
}

/* ---- requests ---- */

static int show_session(const struct machine_command *m, struct fli_buf *out)
{
    int rc = fli_resp_array(out, 3);
    rc = rc != 0 ? rc : fli_resp_text(out, "SESSION");
    rc = rc != 0 ? rc : fli_resp_text(out, "SHOW");
    return rc != 0 ? rc : fli_resp_bulk(out, m->owner.data, m->owner.len);
}

/* A client without an owner has no library either. */
static int on_one_line(const struct machine_command *m, struct fli_buf *out)
{
    int rc = fli_buf_printf(out, "acquire %.*s ttl %" PRIu64, (int)m->name.len,
                            (const char *)m->name.data, m->ttl_ms);
    if (rc == 0 && m->wait_ms > 0) {
        rc = fli_buf_printf(out, " wait %" PRIu64, m->wait_ms);
    }
    for (size_t at = 0; rc == 0 && at < m->also.len; at += 1 + (size_t)m->also.data[at]) {
        rc = fli_buf_printf(out, " also %.*s", (int)m->also.data[at],
                            (const char *)m->also.data + at + 1);
    }
    if (rc == 0 && m->permits > 1) {
        rc = fli_buf_printf(out, " permits %" PRIu32, m->permits);
    }
    if (rc == 0 && m->mode == MACHINE_MODE_SHARED) {
        rc = fli_buf_printf(out, " mode shared");
    }
    return rc != 0 ? rc : fli_buf_append(out, "\r\n", 2);
}

void sim_words_write(const struct machine_command *m, struct fli_buf *out)
{
    struct fl_bytes also[SIM_LOCKS];
    size_t also_len = 0;
    int rc = 0;
    for (size_t at = 0; at < m->also.len; at += 1 + (size_t)m->also.data[at]) {
        also[also_len++] = (struct fl_bytes){m->also.data + at + 1, m->also.data[at]};
    }
    if (m->op == MACHINE_OP_SESSION_SHOW) {
        rc = show_session(m, out);
    } else if (m->op == MACHINE_OP_ACQUIRE && m->owner.len == 0) {
        rc = on_one_line(m, out);
    } else {
        struct fli_call_request ask = {.command = command_of(m->op),
                                       .name = bytes(m->name),
                                       .owner = bytes(m->owner),
                                       .value = bytes(m->value),
                                       .also = also,
                                       .also_len = also_len,
                                       .token = m->token,
                                       .ttl_ms = m->ttl_ms,
                                       .lockdelay_ms = m->lockdelay_ms,
                                       .permits = m->permits > 1 ? m->permits : 0,
                                       .attempt = m->op == MACHINE_OP_ACQUIRE ? m->number : 0,
                                       .shared = m->mode == MACHINE_MODE_SHARED,
                                       .under_session = (m->flags & MACHINE_ACQUIRE_EXPLICIT) != 0};
        rc = fli_call_encode(&ask, m->wait_ms, out);
    }
    FLI_ASSERT(rc == 0);
}

/* ---- answers ---- */

/* One reader for all: each answer is complete, so nothing is left over for the next one. */
static redisReply *read_reply(struct sim *s, const void *data, size_t len)
{
    static redisReader *reader;
    void *reply = NULL;
    if (reader == NULL) {
        reader = redisReaderCreate();
        FLI_ASSERT(reader != NULL);
    }
    int rc = redisReaderFeed(reader, data, len);
    rc = rc == REDIS_OK ? redisReaderGetReply(reader, &reply) : rc;
    SIM_CHECK(s, rc == REDIS_OK && reply != NULL, "an answer is not RESP: %.*s", (int)len,
              (const char *)data);
    return reply;
}

/* The token that SHOW tells; 0 for none. */
static uint64_t shown_token(struct sim *s, const redisReply *map)
{
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        const redisReply *key = map->element[i];
        const redisReply *v = map->element[i + 1];
        if (key->type == REDIS_REPLY_STRING && strcmp(key->str, "token") == 0) {
            return v->type == REDIS_REPLY_INTEGER ? (uint64_t)v->integer : 0;
        }
    }
    sim_fail(s, "SHOW answers no token");
}

/* The locks that LOCKS lists: each a map, in which "name" is followed by the name. */
static unsigned listed(const redisReply *r)
{
    unsigned mask = 0;
    for (size_t i = 0; i < r->elements; i++) {
        const redisReply *e = r->element[i];
        mask |= e->elements > 0 ? listed(e) : 0;
        bool named = i > 0 && e->type == REDIS_REPLY_STRING && e->len == 2 &&
                     r->element[i - 1]->type == REDIS_REPLY_STRING &&
                     strcmp(r->element[i - 1]->str, "name") == 0;
        mask |= named ? 1u << (e->str[1] - '0') : 0;
    }
    return mask;
}

static uint8_t code_of_yes(uint8_t op)
{
    return op == MACHINE_OP_ACQUIRE ? MACHINE_GRANTED : MACHINE_DONE;
}

static uint8_t code_of_no(uint8_t op)
{
    switch (op) {
    case MACHINE_OP_ACQUIRE:
        return MACHINE_HELD;
    case MACHINE_OP_SHOW:
    case MACHINE_OP_SESSION_SHOW:
        return MACHINE_NOTFOUND;
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_SESSION_CLOSE:
        return MACHINE_NOSESSION;
    default:
        return MACHINE_NO;
    }
}

static uint8_t code_of_refusal(struct sim *s, const redisReply *reply, uint8_t op, int code)
{
    switch (code) {
    case FL_EDENIED:
        return strncmp(reply->str, "NOAUTH", 6) == 0 ? MACHINE_NOAUTH : MACHINE_NOPERM;
    case FL_EDEADLOCK:
        return MACHINE_DEADLOCK;
    case FL_ELIMIT:
        return MACHINE_LIMIT;
    case FL_ENOSESSION:
        return MACHINE_NOSESSION;
    case FL_EMISMATCH:
        return MACHINE_MISMATCH;
    default:
        sim_fail(s, "a command of kind %u is refused with %s", op, fl_err_name(code));
    }
}

static void read_result(struct sim *s, const redisReply *reply, uint8_t op, struct sim_answer *a)
{
    struct machine_result *r = &a->result;
    *r = (struct machine_result){0};
    switch (a->event) {
    case FLI_EVENT_YES:
        r->code = code_of_yes(op);
        a->listed = op == MACHINE_OP_LOCKS ? listed(reply) : 0;
        if (op == MACHINE_OP_SHOW) {
            r->token = shown_token(s, reply);
        } else if (op == MACHINE_OP_ACQUIRE || op == MACHINE_OP_TOKEN || op == MACHINE_OP_BREAK) {
            r->token = (uint64_t)reply->integer;
        }
        break;
    case FLI_EVENT_NO:
        r->code = code_of_no(op);
        break;
    case FLI_EVENT_REFUSED:
        r->code = code_of_refusal(s, reply, op, a->code);
        break;
    default:
        SIM_CHECK(s, a->event != FLI_EVENT_BROKEN,
                  "a command of kind %u has an answer that is none", op);
        return;
    }
    a->has_result = true;
}

void sim_words_read(struct sim *s, uint8_t op, const void *data, size_t len, struct sim_answer *a)
{
    redisReply *reply = read_reply(s, data, len);
    a->has_result = false;
    a->event = fli_call_classify(command_of(op), reply, &a->code);
    a->late = op == MACHINE_OP_ACQUIRE ? fli_call_late(reply) : 0;
    if (a->late != 0) {
        a->result = (struct machine_result){.code = MACHINE_LATE, .token = a->late};
        a->has_result = true;
    } else {
        read_result(s, reply, op, a);
    }
    freeReplyObject(reply);
}

bool sim_words_leaderless(struct sim *s, const void *data, size_t len)
{
    redisReply *reply = read_reply(s, data, len);
    bool leaderless = fli_call_classify_probe(reply) == FLI_EVENT_LEADERLESS;
    freeReplyObject(reply);
    return leaderless;
}
