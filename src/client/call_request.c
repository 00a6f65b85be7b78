/* call_request.c: see call_request.h. */
#include "client/call_request.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/resp.h"

#define ARGS_MAX (14u + 2u * FLI_CALL_ALSO_MAX)
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

static void add_fence(struct words *w, const struct fli_call_request *request)
{
    if (request->token != FL_TOKEN_NONE) {
        add_text(w, "FENCE");
        add(w, request->lock);
        add_number(w, request->token);
    }
}

static void add_acquire(struct words *w, const struct fli_call_request *request, uint64_t wait_ms)
{
    FLI_ASSERT(request->owner.len >= FL_OWNER_MIN &&
               request->under_session == (request->ttl_ms == 0));
    add(w, request->name);
    add_option_number(w, "TTL", request->ttl_ms);
    add_option(w, request->under_session ? "SESSION" : "OWNER", request->owner);
    add_option_number(w, "WAIT", wait_ms);
    add_option(w, "VALUE", request->value);
    for (size_t i = 0; i < request->also_len; i++) {
        add_option(w, "ALSO", request->also[i]);
    }
    add_option_number(w, "PERMITS", request->permits);
    add_option_number(w, "ATTEMPT", request->attempt > 1 ? request->attempt : 0);
    if (request->shared) {
        add_text(w, "MODE");
        add_text(w, "SHARED");
    }
}

static void add_report(struct words *w, const struct fli_call_request *request)
{
    add_option_number(w, "JEOPARDY", request->jeopardies);
    add_option_number(w, "LOST", request->lost);
}

static void add_session(struct words *w, const struct fli_call_request *request)
{
    FLI_ASSERT(request->owner.len >= FL_OWNER_MIN);
    switch (request->command) {
    case FLI_CALL_SESSION_OPEN:
        FLI_ASSERT(request->ttl_ms != 0);
        add_text(w, "OPEN");
        add(w, request->owner);
        add_option_number(w, "TTL", request->ttl_ms);
        add_option_number(w, "LOCKDELAY", request->lockdelay_ms);
        add_option(w, "LABEL", request->value);
        break;
    case FLI_CALL_SESSION_RENEW:
        add_text(w, "RENEW");
        add(w, request->owner);
        add_report(w, request);
        break;
    default:
        FLI_ASSERT(request->command == FLI_CALL_SESSION_CLOSE ||
                   request->command == FLI_CALL_SESSION_SHOW);
        add_text(w, request->command == FLI_CALL_SESSION_CLOSE ? "CLOSE" : "SHOW");
        add(w, request->owner);
        break;
    }
}

static void add_words(struct words *w, const struct fli_call_request *request)
{
    add(w, request->name);
    for (size_t i = 0; i < request->also_len; i++) {
        add(w, request->also[i]);
    }
}

static const char *const first_words[] = {
    [FLI_CALL_ACQUIRE] = "ACQUIRE",
    [FLI_CALL_RENEW] = "RENEW",
    [FLI_CALL_RELEASE] = "RELEASE",
    [FLI_CALL_CHECK] = "CHECK",
    [FLI_CALL_TOKEN] = "TOKEN",
    [FLI_CALL_BREAK] = "BREAK",
    [FLI_CALL_SHOW] = "SHOW",
    [FLI_CALL_LOCKS] = "LOCKS",
    [FLI_CALL_BUSIEST] = "LOCKS",
    [FLI_CALL_LEADER] = "LEADER",
    [FLI_CALL_INFO] = "INFO",
    [FLI_CALL_CLAIM] = "CLAIM",
    [FLI_CALL_GET] = "GET",
    [FLI_CALL_SET] = "SET",
    [FLI_CALL_DEL] = "DEL",
    [FLI_CALL_MARK] = "MARK",
    [FLI_CALL_BACKUP] = "CLUSTER",
    [FLI_CALL_SESSION_OPEN] = "SESSION",
    [FLI_CALL_SESSION_RENEW] = "SESSION",
    [FLI_CALL_SESSION_CLOSE] = "SESSION",
    [FLI_CALL_SESSION_SHOW] = "SESSION",
    [FLI_CALL_SESSIONS] = "SESSION",
    [FLI_CALL_CHANGE] = NULL, /* its own words */
    [FLI_CALL_READ] = NULL,
};

static void add_arguments(struct words *w, const struct fli_call_request *request, uint64_t wait_ms)
{
    switch (request->command) {
    case FLI_CALL_ACQUIRE:
        add_acquire(w, request, wait_ms);
        break;
    case FLI_CALL_RENEW:
    case FLI_CALL_RELEASE:
    case FLI_CALL_CHECK:
        add(w, request->name);
        add_number(w, request->token);
        add_option_number(w, "TTL", request->command == FLI_CALL_RENEW ? request->ttl_ms : 0);
        add_report(w, request);
        break;
    case FLI_CALL_TOKEN:
    case FLI_CALL_BREAK:
    case FLI_CALL_SHOW:
        add(w, request->name);
        break;
    case FLI_CALL_LOCKS:
        add_option(w, "MATCH", request->name);
        add_option(w, "CURSOR", request->cursor);
        add_option_number(w, "COUNT", request->count);
        break;
    case FLI_CALL_BUSIEST:
        add_text(w, "BY");
        add_text(w, "WAIT");
        add_option_number(w, "COUNT", request->count);
        break;
    case FLI_CALL_SESSION_OPEN:
    case FLI_CALL_SESSION_RENEW:
    case FLI_CALL_SESSION_CLOSE:
    case FLI_CALL_SESSION_SHOW:
        add_session(w, request);
        break;
    case FLI_CALL_SESSIONS:
        add_text(w, "LIST");
        add_option(w, "CURSOR", request->cursor);
        add_option_number(w, "COUNT", request->count);
        break;
    case FLI_CALL_CLAIM:
        add(w, request->lock);
        add_number(w, request->token);
        break;
    case FLI_CALL_MARK:
        add(w, request->lock);
        break;
    case FLI_CALL_GET:
    case FLI_CALL_DEL:
        add(w, request->name);
        add_fence(w, request);
        break;
    case FLI_CALL_SET:
        add(w, request->name);
        add(w, request->value);
        add_fence(w, request);
        break;
    case FLI_CALL_BACKUP:
        add_text(w, "BACKUP");
        if (request->count != 0) {
            add_number(w, request->count);
            add_number(w, request->token);
        }
        break;
    case FLI_CALL_CHANGE:
    case FLI_CALL_READ:
        add_words(w, request);
        break;
    case FLI_CALL_LEADER:
    case FLI_CALL_INFO:
        break;
    }
}

int fli_call_encode(const struct fli_call_request *request, uint64_t wait_ms, struct fli_buf *out)
{
    struct words w = {.argc = 0};
    if (first_words[request->command] != NULL) {
        add_text(&w, first_words[request->command]);
    }
    add_arguments(&w, request, wait_ms);
    int rc = fli_resp_array(out, w.argc);
    for (unsigned i = 0; rc == 0 && i < w.argc; i++) {
        rc = fli_resp_bulk(out, w.argv[i].data, w.argv[i].len);
    }
    return rc;
}

size_t fli_call_request_size(const struct fli_call_request *q)
{
    size_t size = q->name.len + q->lock.len + q->owner.len + q->value.len + q->cursor.len;
    for (size_t i = 0; i < q->also_len; i++) {
        size += q->also[i].len;
    }
    return size;
}

static struct fl_bytes copy_bytes(char **at, struct fl_bytes b)
{
    struct fl_bytes copy = {*at, b.len};
    if (b.len > 0) {
        memcpy(*at, b.data, b.len);
        *at += b.len;
    }
    return copy;
}

void fli_call_request_copy(struct fli_call_request *to, const struct fli_call_request *from,
                           struct fl_bytes *also, char *room)
{
    FLI_ASSERT(from->also_len <= FLI_CALL_ALSO_MAX);
    *to = *from;
    to->name = copy_bytes(&room, from->name);
    to->lock = copy_bytes(&room, from->lock);
    to->owner = copy_bytes(&room, from->owner);
    to->value = copy_bytes(&room, from->value);
    to->cursor = copy_bytes(&room, from->cursor);
    for (size_t i = 0; i < from->also_len; i++) {
        also[i] = copy_bytes(&room, from->also[i]);
    }
    to->also = also;
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

enum fli_call_repeat fli_call_may_repeat(enum fli_call_command command)
{
    switch (command) {
    case FLI_CALL_ACQUIRE:
    case FLI_CALL_RENEW:
    case FLI_CALL_RELEASE:
    case FLI_CALL_TOKEN:
    case FLI_CALL_SESSION_OPEN:
    case FLI_CALL_SESSION_RENEW:
    case FLI_CALL_SESSION_CLOSE:
    case FLI_CALL_CLAIM:
    case FLI_CALL_CHANGE:
        return FLI_REPEAT_WRITE;
    case FLI_CALL_BREAK:
    case FLI_CALL_BACKUP:
    case FLI_CALL_SET:
    case FLI_CALL_DEL:
        return FLI_REPEAT_NEVER;
    default:
        return FLI_REPEAT_READ;
    }
}

bool fli_call_no_is_uncertain(enum fli_call_command command)
{
    return command == FLI_CALL_RELEASE || command == FLI_CALL_SESSION_CLOSE;
}

uint64_t fli_call_lease_ms(const struct fli_call_request *request)
{
    switch (request->command) {
    case FLI_CALL_ACQUIRE:
    case FLI_CALL_RENEW:
    case FLI_CALL_SESSION_OPEN:
    case FLI_CALL_SESSION_RENEW:
        return request->ttl_ms;
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

enum fli_call_event fli_call_classify(enum fli_call_command command, const redisReply *reply,
                                      int *ret_code)
{
    *ret_code = 0;
    if (reply->type == REDIS_REPLY_ERROR) {
        return classify_error(reply, ret_code);
    }
    switch (command) {
    case FLI_CALL_ACQUIRE:
        return reply->type == REDIS_REPLY_NIL ? FLI_EVENT_NO : classify_token(reply, 1);
    case FLI_CALL_TOKEN:
        return classify_token(reply, 1);
    case FLI_CALL_BREAK:
        return is_zero(reply) ? FLI_EVENT_NO : classify_token(reply, 1);
    case FLI_CALL_MARK:
        return classify_token(reply, 0);
    case FLI_CALL_RENEW:
    case FLI_CALL_RELEASE:
    case FLI_CALL_CHECK:
    case FLI_CALL_DEL:
    case FLI_CALL_SESSION_RENEW:
    case FLI_CALL_SESSION_CLOSE:
        return classify_flag(reply);
    case FLI_CALL_SHOW:
    case FLI_CALL_SESSION_SHOW:
    case FLI_CALL_LOCKS:
    case FLI_CALL_BUSIEST:
    case FLI_CALL_SESSIONS:
    case FLI_CALL_LEADER:
        return classify_type(reply, REDIS_REPLY_ARRAY);
    case FLI_CALL_BACKUP:
        if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0) {
            return FLI_EVENT_YES;
        }
        return classify_type(reply, REDIS_REPLY_STRING);
    case FLI_CALL_CHANGE:
    case FLI_CALL_READ: /* who asks knows what it should be */
        return FLI_EVENT_YES;
    case FLI_CALL_INFO:
    case FLI_CALL_GET:
        return classify_type(reply, REDIS_REPLY_STRING);
    default:
        FLI_ASSERT(command == FLI_CALL_CLAIM || command == FLI_CALL_SET ||
                   command == FLI_CALL_SESSION_OPEN);
        return is_ok(reply) ? FLI_EVENT_YES : FLI_EVENT_BROKEN;
    }
}

int fli_call_classify_welcome(const redisReply *reply)
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

enum fli_call_event fli_call_classify_probe(const redisReply *reply)
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

uint64_t fli_call_session_locks(const redisReply *reply)
{
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *key = reply->element[i];
        const redisReply *value = reply->element[i + 1];
        bool is_locks = key->type == REDIS_REPLY_STRING && key->len == strlen("locks") &&
                        memcmp(key->str, "locks", key->len) == 0;
        if (is_locks && value->type == REDIS_REPLY_INTEGER && value->integer >= 0) {
            return (uint64_t)value->integer;
        }
    }
    return UINT64_MAX;
}

fl_token fli_call_stale_mark(const char *text, size_t len)
{
    return number_behind(text, len, "mark ");
}

uint64_t fli_call_late(const redisReply *reply)
{
    bool late = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "LATE ", 5) == 0;
    return late ? number_behind(reply->str, reply->len, "attempt ") : 0;
}
