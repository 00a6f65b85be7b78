/* ask.c: see ask.h. */
#include "client/ask.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/resp.h"

#define ARGS_MAX (14u + 2u * FLI_ASK_ALSO_MAX)
#define NUMBERS_MAX 4u

/* The arguments of a request, while it is written. */
struct words {
    struct fl_bytes argv[ARGS_MAX];
    unsigned argc;
    char numbers[NUMBERS_MAX][24];
    unsigned n_numbers;
};

static void add(struct words *w, struct fl_bytes b)
{
    FLI_ASSERT(w->argc < ARGS_MAX);
    w->argv[w->argc++] = b;
}

static void add_text(struct words *w, const char *text)
{
    add(w, fl_str(text));
}

static void add_number(struct words *w, uint64_t v)
{
    FLI_ASSERT(w->n_numbers < NUMBERS_MAX);
    char *at = w->numbers[w->n_numbers++];
    snprintf(at, sizeof w->numbers[0], "%llu", (unsigned long long)v);
    add_text(w, at);
}

static void add_option(struct words *w, const char *word, struct fl_bytes value)
{
    if (value.len > 0) {
        add_text(w, word);
        add(w, value);
    }
}

static void add_option_number(struct words *w, const char *word, uint64_t v)
{
    if (v > 0) {
        add_text(w, word);
        add_number(w, v);
    }
}

static void add_fence(struct words *w, const struct fli_ask *ask)
{
    if (ask->token != FL_TOKEN_NONE) {
        add_text(w, "FENCE");
        add(w, ask->lock);
        add_number(w, ask->token);
    }
}

static void add_acquire(struct words *w, const struct fli_ask *ask, uint64_t wait_ms)
{
    FLI_ASSERT(ask->owner.len >= FL_OWNER_MIN && ask->under_session == (ask->ttl_ms == 0));
    add(w, ask->name);
    add_option_number(w, "TTL", ask->ttl_ms);
    add_option(w, ask->under_session ? "SESSION" : "OWNER", ask->owner);
    add_option_number(w, "WAIT", wait_ms);
    add_option(w, "VALUE", ask->value);
    for (size_t i = 0; i < ask->also_len; i++) {
        add_option(w, "ALSO", ask->also[i]);
    }
    add_option_number(w, "PERMITS", ask->permits);
    add_option_number(w, "ATTEMPT", ask->attempt > 1 ? ask->attempt : 0);
    if (ask->shared) {
        add_text(w, "MODE");
        add_text(w, "SHARED");
    }
}

static void add_report(struct words *w, const struct fli_ask *ask)
{
    add_option_number(w, "JEOPARDY", ask->jeopardies);
    add_option_number(w, "LOST", ask->lost);
}

static void add_session(struct words *w, const struct fli_ask *ask)
{
    FLI_ASSERT(ask->owner.len >= FL_OWNER_MIN);
    switch (ask->op) {
    case FLI_ASK_SESSION_OPEN:
        FLI_ASSERT(ask->ttl_ms != 0);
        add_text(w, "OPEN");
        add(w, ask->owner);
        add_option_number(w, "TTL", ask->ttl_ms);
        add_option_number(w, "LOCKDELAY", ask->lockdelay_ms);
        add_option(w, "LABEL", ask->value);
        break;
    case FLI_ASK_SESSION_RENEW:
        add_text(w, "RENEW");
        add(w, ask->owner);
        add_report(w, ask);
        break;
    default:
        FLI_ASSERT(ask->op == FLI_ASK_SESSION_CLOSE);
        add_text(w, "CLOSE");
        add(w, ask->owner);
        break;
    }
}

static void add_words(struct words *w, const struct fli_ask *ask)
{
    add(w, ask->name);
    for (size_t i = 0; i < ask->also_len; i++) {
        add(w, ask->also[i]);
    }
}

static const char *const op_words[] = {
    [FLI_ASK_ACQUIRE] = "ACQUIRE",
    [FLI_ASK_RENEW] = "RENEW",
    [FLI_ASK_RELEASE] = "RELEASE",
    [FLI_ASK_CHECK] = "CHECK",
    [FLI_ASK_TOKEN] = "TOKEN",
    [FLI_ASK_BREAK] = "BREAK",
    [FLI_ASK_SHOW] = "SHOW",
    [FLI_ASK_LOCKS] = "LOCKS",
    [FLI_ASK_BUSIEST] = "LOCKS",
    [FLI_ASK_LEADER] = "LEADER",
    [FLI_ASK_INFO] = "INFO",
    [FLI_ASK_CLAIM] = "CLAIM",
    [FLI_ASK_GET] = "GET",
    [FLI_ASK_SET] = "SET",
    [FLI_ASK_DEL] = "DEL",
    [FLI_ASK_MARK] = "MARK",
    [FLI_ASK_BACKUP] = "CLUSTER",
    [FLI_ASK_SESSION_OPEN] = "SESSION",
    [FLI_ASK_SESSION_RENEW] = "SESSION",
    [FLI_ASK_SESSION_CLOSE] = "SESSION",
    [FLI_ASK_SESSIONS] = "SESSION",
    [FLI_ASK_CHANGE] = NULL, /* its own words */
    [FLI_ASK_READ] = NULL,
};

static void add_arguments(struct words *w, const struct fli_ask *ask, uint64_t wait_ms)
{
    switch (ask->op) {
    case FLI_ASK_ACQUIRE:
        add_acquire(w, ask, wait_ms);
        break;
    case FLI_ASK_RENEW:
    case FLI_ASK_RELEASE:
    case FLI_ASK_CHECK:
        add(w, ask->name);
        add_number(w, ask->token);
        add_option_number(w, "TTL", ask->op == FLI_ASK_RENEW ? ask->ttl_ms : 0);
        add_report(w, ask);
        break;
    case FLI_ASK_TOKEN:
    case FLI_ASK_BREAK:
    case FLI_ASK_SHOW:
        add(w, ask->name);
        break;
    case FLI_ASK_LOCKS:
        add_option(w, "MATCH", ask->name);
        add_option(w, "CURSOR", ask->cursor);
        add_option_number(w, "COUNT", ask->count);
        break;
    case FLI_ASK_BUSIEST:
        add_text(w, "BY");
        add_text(w, "WAIT");
        add_option_number(w, "COUNT", ask->count);
        break;
    case FLI_ASK_SESSION_OPEN:
    case FLI_ASK_SESSION_RENEW:
    case FLI_ASK_SESSION_CLOSE:
        add_session(w, ask);
        break;
    case FLI_ASK_SESSIONS:
        add_text(w, "LIST");
        add_option(w, "CURSOR", ask->cursor);
        add_option_number(w, "COUNT", ask->count);
        break;
    case FLI_ASK_CLAIM:
        add(w, ask->lock);
        add_number(w, ask->token);
        break;
    case FLI_ASK_MARK:
        add(w, ask->lock);
        break;
    case FLI_ASK_GET:
    case FLI_ASK_DEL:
        add(w, ask->name);
        add_fence(w, ask);
        break;
    case FLI_ASK_SET:
        add(w, ask->name);
        add(w, ask->value);
        add_fence(w, ask);
        break;
    case FLI_ASK_BACKUP:
        add_text(w, "BACKUP");
        if (ask->count != 0) {
            add_number(w, ask->count);
            add_number(w, ask->token);
        }
        break;
    case FLI_ASK_CHANGE:
    case FLI_ASK_READ:
        add_words(w, ask);
        break;
    case FLI_ASK_LEADER:
    case FLI_ASK_INFO:
        break;
    }
}

int fli_ask_encode(const struct fli_ask *ask, uint64_t wait_ms, struct fli_buf *out)
{
    struct words w = {.argc = 0};
    if (op_words[ask->op] != NULL) {
        add_text(&w, op_words[ask->op]);
    }
    add_arguments(&w, ask, wait_ms);
    int rc = fli_resp_array(out, w.argc);
    for (unsigned i = 0; rc == 0 && i < w.argc; i++) {
        rc = fli_resp_bulk(out, w.argv[i].data, w.argv[i].len);
    }
    return rc;
}

bool fli_acquire_mode_ok(const struct fl_take *o)
{
    bool plain = o->mode == FL_MODE_EXCLUSIVE;
    bool names_ok = o->also_len < FL_NAMES_MAX;
    for (size_t i = 0; names_ok && i < o->also_len; i++) {
        names_ok = o->also[i].len >= 1 && o->also[i].len <= FL_NAME_MAX;
    }
    return names_ok && (plain || o->mode == FL_MODE_SHARED) && o->permits <= FL_PERMITS_MAX &&
           (plain || o->permits == 0) && (o->also_len == 0 || (plain && o->permits == 0));
}

enum fli_call_repeat fli_ask_repeat(enum fli_ask_op op)
{
    switch (op) {
    case FLI_ASK_ACQUIRE:
    case FLI_ASK_RENEW:
    case FLI_ASK_RELEASE:
    case FLI_ASK_TOKEN:
    case FLI_ASK_SESSION_OPEN:
    case FLI_ASK_SESSION_RENEW:
    case FLI_ASK_SESSION_CLOSE:
    case FLI_ASK_CLAIM:
    case FLI_ASK_CHANGE:
        return FLI_REPEAT_WRITE;
    case FLI_ASK_BREAK:
    case FLI_ASK_BACKUP:
    case FLI_ASK_SET:
    case FLI_ASK_DEL:
        return FLI_REPEAT_NEVER;
    default:
        return FLI_REPEAT_READ;
    }
}

bool fli_ask_no_is_uncertain(enum fli_ask_op op)
{
    return op == FLI_ASK_RELEASE || op == FLI_ASK_SESSION_CLOSE;
}

uint64_t fli_ask_lease_ms(const struct fli_ask *ask)
{
    switch (ask->op) {
    case FLI_ASK_ACQUIRE:
    case FLI_ASK_RENEW:
    case FLI_ASK_SESSION_OPEN:
    case FLI_ASK_SESSION_RENEW:
        return ask->ttl_ms;
    default:
        return 0;
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    enum fli_call_event event;
    int code;
} error_words[] = {
    {"NOLEADER", FLI_EVENT_NOLEADER, 0},
    {"BUSY", FLI_EVENT_BUSY, 0},
    {"UNCERTAIN", FLI_EVENT_UNCERTAIN, 0},
    {"LATE", FLI_EVENT_BUSY, 0}, /* nothing was done; the next attempt has a larger number */
    {"ERR", FLI_EVENT_REFUSED, FL_EINVAL},
    {"LIMIT", FLI_EVENT_REFUSED, FL_ELIMIT},
    {"DEADLOCK", FLI_EVENT_REFUSED, FL_EDEADLOCK},
    {"NOSESSION", FLI_EVENT_REFUSED, FL_ENOSESSION},
    {"STALE", FLI_EVENT_REFUSED, FL_ESTALE},
    /* not FL_ENOTHELD, which is the plain "no" of a call */
    {"NOTHELD", FLI_EVENT_REFUSED, FL_EDENIED},
    {"UNCHECKED", FLI_EVENT_NOLEADER, 0}, /* the storage did not hear from the lock service */
    {"WRONGLOCK", FLI_EVENT_REFUSED, FL_EWRONGLOCK},
    {"NOTOKEN", FLI_EVENT_REFUSED, FL_ENOTOKEN},
    {"NOTFOUND", FLI_EVENT_REFUSED, FL_ENOTFOUND},
    {"EXISTS", FLI_EVENT_REFUSED, FL_EEXISTS},
    {"MISMATCH", FLI_EVENT_REFUSED, FL_EMISMATCH},
    {"DENIED", FLI_EVENT_REFUSED, FL_EDENIED},
    {"NOAUTH", FLI_EVENT_REFUSED, FL_EDENIED},
    {"NOPERM", FLI_EVENT_REFUSED, FL_EDENIED},
    {"WRONGPASS", FLI_EVENT_REFUSED, FL_EDENIED},
};

/* An error whose first word this version does not know still means: surely refused. Only its text
 * can say what to do. */
static enum fli_call_event classify_error(const redisReply *reply, int *ret_code)
{
    size_t len = 0;
    while (len < reply->len && reply->str[len] != ' ') {
        len++;
    }
    for (size_t i = 0; i < sizeof error_words / sizeof error_words[0]; i++) {
        const char *word = error_words[i].word;
        if (strlen(word) == len && memcmp(word, reply->str, len) == 0) {
            *ret_code = error_words[i].code;
            return error_words[i].event;
        }
    }
    *ret_code = FL_EPROTO;
    return FLI_EVENT_REFUSED;
}

/* Not any status or number: what something else answers, such as QUEUED, is no "done". */
static bool is_ok(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STATUS && reply->len == 2 && memcmp(reply->str, "OK", 2) == 0;
}

static enum fli_call_event classify_flag(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0 || reply->integer > 1) {
        return FLI_EVENT_BROKEN;
    }
    return reply->integer == 1 ? FLI_EVENT_YES : FLI_EVENT_NO;
}

static bool is_zero(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_INTEGER && reply->integer == 0;
}

static enum fli_call_event classify_token(const redisReply *reply, long long least)
{
    bool good = reply->type == REDIS_REPLY_INTEGER && reply->integer >= least &&
                reply->integer <= (long long)FL_TOKEN_MAX;
    return good ? FLI_EVENT_YES : FLI_EVENT_BROKEN;
}

static enum fli_call_event classify_type(const redisReply *reply, int type)
{
    if (reply->type == REDIS_REPLY_NIL) {
        return FLI_EVENT_NO;
    }
    return reply->type == type ? FLI_EVENT_YES : FLI_EVENT_BROKEN;
}

enum fli_call_event fli_ask_classify(enum fli_ask_op op, const redisReply *reply, int *ret_code)
{
    *ret_code = 0;
    if (reply->type == REDIS_REPLY_ERROR) {
        return classify_error(reply, ret_code);
    }
    switch (op) {
    case FLI_ASK_ACQUIRE:
        return reply->type == REDIS_REPLY_NIL ? FLI_EVENT_NO : classify_token(reply, 1);
    case FLI_ASK_TOKEN:
        return classify_token(reply, 1);
    case FLI_ASK_BREAK:
        return is_zero(reply) ? FLI_EVENT_NO : classify_token(reply, 1);
    case FLI_ASK_MARK:
        return classify_token(reply, 0);
    case FLI_ASK_RENEW:
    case FLI_ASK_RELEASE:
    case FLI_ASK_CHECK:
    case FLI_ASK_DEL:
    case FLI_ASK_SESSION_RENEW:
    case FLI_ASK_SESSION_CLOSE:
        return classify_flag(reply);
    case FLI_ASK_SHOW:
    case FLI_ASK_LOCKS:
    case FLI_ASK_BUSIEST:
    case FLI_ASK_SESSIONS:
    case FLI_ASK_LEADER:
        return classify_type(reply, REDIS_REPLY_ARRAY);
    case FLI_ASK_BACKUP:
        if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0) {
            return FLI_EVENT_YES;
        }
        return classify_type(reply, REDIS_REPLY_STRING);
    case FLI_ASK_CHANGE:
    case FLI_ASK_READ: /* who asks knows what it should be */
        return FLI_EVENT_YES;
    case FLI_ASK_INFO:
    case FLI_ASK_GET:
        return classify_type(reply, REDIS_REPLY_STRING);
    default:
        FLI_ASSERT(op == FLI_ASK_CLAIM || op == FLI_ASK_SET || op == FLI_ASK_SESSION_OPEN);
        return is_ok(reply) ? FLI_EVENT_YES : FLI_EVENT_BROKEN;
    }
}

int fli_ask_classify_welcome(const redisReply *reply)
{
    static const char denied[] = "DENIED ";
    int code = 0;
    if (reply->type != REDIS_REPLY_ERROR || classify_error(reply, &code) != FLI_EVENT_REFUSED) {
        return 0;
    }
    if (code == FL_EDENIED) { /* NOAUTH and the like concern one request, not the connection */
        return strncmp(reply->str, denied, sizeof denied - 1) == 0 ? code : 0;
    }
    return code == FL_ELIMIT ? code : 0;
}

enum fli_call_event fli_ask_classify_probe(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_NIL ? FLI_EVENT_LEADERLESS : FLI_EVENT_ALIVE;
}

/* The number after the first such word that a number follows; 0: there is none. */
static uint64_t number_behind(const char *text, size_t len, const char *word)
{
    const size_t word_len = strlen(word);
    for (size_t i = 0; i + word_len < len; i++) {
        if (memcmp(text + i, word, word_len) != 0) {
            continue;
        }
        size_t from = i + word_len;
        size_t to = from;
        while (to < len && text[to] >= '0' && text[to] <= '9') {
            to++;
        }
        uint64_t mark;
        if (fli_parse_u64(text + from, to - from, FL_TOKEN_MAX, &mark)) {
            return mark;
        }
    }
    return 0;
}

fl_token fli_ask_stale_mark(const char *text, size_t len)
{
    return number_behind(text, len, "mark ");
}

uint64_t fli_ask_late(const redisReply *reply)
{
    bool late = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "LATE ", 5) == 0;
    return late ? number_behind(reply->str, reply->len, "attempt ") : 0;
}
