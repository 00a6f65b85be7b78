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

static void add_fence(struct words *w, const struct fli_call_request *request, uint64_t wait_ms)
{
    if (request->token != FL_TOKEN_NONE) {
        add_text(w, "FENCE");
        add(w, request->lock);
        add_number(w, request->token);
    }
}

static void add_holder(struct words *w, const struct fli_call_request *request, uint64_t wait_ms)
{
    FLI_ASSERT(request->owner.len >= FL_OWNER_MIN &&
               request->under_session == (request->ttl_ms == 0));
    add_option(w, request->under_session ? "SESSION" : "OWNER", request->owner);
    add_option_number(w, "WAIT", wait_ms);
}

static void add_more(struct words *w, const struct fli_call_request *request, uint64_t wait_ms)
{
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

static void add_piece(struct words *w, const struct fli_call_request *request, uint64_t wait_ms)
{
    if (request->count != 0) {
        add_number(w, request->count);
        add_number(w, request->token);
    }
}

static void add_words(struct words *w, const struct fli_call_request *request, uint64_t wait_ms)
{
    add(w, request->name);
    for (size_t i = 0; i < request->also_len; i++) {
        add(w, request->also[i]);
    }
}

/* What follows the words of a command: a field of the request, or something of its own. */
struct part {
    enum { END, BYTES, NUMBER, OPTION, OPTION_NUMBER, OWN } how;
    const char *word; /* of an option, which is left out when it is empty or 0 */
    size_t offset;
    enum fli_limit limit; /* of the field */
    void (*add)(struct words *w, const struct fli_call_request *request, uint64_t wait_ms);
};

#define FIELD(field, limit) offsetof(struct fli_call_request, field), FLI_LIMIT_##limit, NULL
#define ADDED(add) OWN, NULL, 0, FLI_LIMIT_NONE, add
#define NOTHING END, NULL, 0, FLI_LIMIT_NONE, NULL
#define NAME BYTES, NULL, FIELD(name, NAME)
#define KEY BYTES, NULL, FIELD(name, NONE)
#define LOCK BYTES, NULL, FIELD(lock, NAME)
#define OWNER BYTES, NULL, FIELD(owner, OWNER)
#define HOLDER OWN, NULL, offsetof(struct fli_call_request, owner), FLI_LIMIT_OWNER, add_holder
#define VALUE BYTES, NULL, FIELD(value, NONE)
#define SHOWN OPTION, "VALUE", FIELD(value, VALUE)
#define TOKEN NUMBER, NULL, FIELD(token, TOKEN)
#define TTL OPTION_NUMBER, "TTL", FIELD(ttl_ms, TTL)
#define JEOPARDIES OPTION_NUMBER, "JEOPARDY", FIELD(jeopardies, NONE)
#define LOST OPTION_NUMBER, "LOST", FIELD(lost, NONE)
#define MATCH OPTION, "MATCH", FIELD(name, MATCH)
#define CURSOR OPTION, "CURSOR", FIELD(cursor, NONE)
#define COUNT OPTION_NUMBER, "COUNT", FIELD(count, NONE)
#define LOCKDELAY OPTION_NUMBER, "LOCKDELAY", FIELD(lockdelay_ms, LOCKDELAY)
#define LABEL OPTION, "LABEL", FIELD(value, LABEL)
#define MORE ADDED(add_more)
#define FENCE ADDED(add_fence)
#define PIECE ADDED(add_piece)
#define WORDS ADDED(add_words)

/* What is no error and yet an answer. */
enum {
    ANSWER_ANY, /* who asks knows what it should be */
    ANSWER_OK,
    ANSWER_FLAG,
    ANSWER_GRANT,
    ANSWER_TOKEN,
    ANSWER_BURNT, /* 0: nobody held it */
    ANSWER_MARK,
    ANSWER_ARRAY,
    ANSWER_STRING,
    ANSWER_PIECE /* the number of a backup, or bytes of it */
};

static const struct answer {
    long long least, most; /* a number; none if most is less */
    int type;              /* or one of this type; 0: no other type */
    bool is_ok;
    enum { NOT_NO, NIL_IS_NO, ZERO_IS_NO } no;
} answers[] = {
    [ANSWER_ANY] = {0, -1, 0, false, NOT_NO},
    [ANSWER_OK] = {0, -1, 0, true, NOT_NO},
    [ANSWER_FLAG] = {1, 1, 0, false, ZERO_IS_NO},
    [ANSWER_GRANT] = {1, (long long)FL_TOKEN_MAX, 0, false, NIL_IS_NO},
    [ANSWER_TOKEN] = {1, (long long)FL_TOKEN_MAX, 0, false, NOT_NO},
    [ANSWER_BURNT] = {1, (long long)FL_TOKEN_MAX, 0, false, ZERO_IS_NO},
    [ANSWER_MARK] = {0, (long long)FL_TOKEN_MAX, 0, false, NOT_NO},
    [ANSWER_ARRAY] = {0, -1, REDIS_REPLY_ARRAY, false, NIL_IS_NO},
    [ANSWER_STRING] = {0, -1, REDIS_REPLY_STRING, false, NIL_IS_NO},
    [ANSWER_PIECE] = {1, INT64_MAX, REDIS_REPLY_STRING, false, NIL_IS_NO},
};

#define READ FLI_REPEAT_READ
#define WRITE FLI_REPEAT_WRITE
#define NEVER FLI_REPEAT_NEVER

/* What is true of some commands. */
#define LEASES 1u /* a yes begins a lease */
#define UNSURE 2u /* a "no" may be the effect of an earlier attempt whose outcome is unknown */

static const struct shape {
    const char *words[3];
    struct part parts[5];
    unsigned answer;
    enum fli_call_repeat repeat;
    unsigned flags;
} shapes[] = {
    [FLI_CALL_ACQUIRE] =
        {{"ACQUIRE"}, {{NAME}, {TTL}, {HOLDER}, {SHOWN}, {MORE}}, ANSWER_GRANT, WRITE, LEASES},
    [FLI_CALL_RENEW] =
        {{"RENEW"}, {{NAME}, {TOKEN}, {TTL}, {JEOPARDIES}, {LOST}}, ANSWER_FLAG, WRITE, LEASES},
    [FLI_CALL_RELEASE] =
        {{"RELEASE"}, {{NAME}, {TOKEN}, {JEOPARDIES}, {LOST}}, ANSWER_FLAG, WRITE, UNSURE},
    [FLI_CALL_CHECK] = {{"CHECK"}, {{NAME}, {TOKEN}}, ANSWER_FLAG, READ, 0},
    [FLI_CALL_TOKEN] = {{"TOKEN"}, {{NAME}}, ANSWER_TOKEN, WRITE, 0},
    [FLI_CALL_BREAK] = {{"BREAK"}, {{NAME}}, ANSWER_BURNT, NEVER, 0},
    [FLI_CALL_SHOW] = {{"SHOW"}, {{NAME}}, ANSWER_ARRAY, READ, 0},
    [FLI_CALL_LOCKS] = {{"LOCKS"}, {{MATCH}, {CURSOR}, {COUNT}}, ANSWER_ARRAY, READ, 0},
    [FLI_CALL_BUSIEST] = {{"LOCKS", "BY", "WAIT"}, {{COUNT}}, ANSWER_ARRAY, READ, 0},
    [FLI_CALL_SESSION_OPEN] =
        {{"SESSION", "OPEN"}, {{OWNER}, {TTL}, {LOCKDELAY}, {LABEL}}, ANSWER_OK, WRITE, LEASES},
    [FLI_CALL_SESSION_RENEW] =
        {{"SESSION", "RENEW"}, {{OWNER}, {JEOPARDIES}, {LOST}}, ANSWER_FLAG, WRITE, LEASES},
    [FLI_CALL_SESSION_CLOSE] = {{"SESSION", "CLOSE"}, {{OWNER}}, ANSWER_FLAG, WRITE, UNSURE},
    [FLI_CALL_SESSION_SHOW] = {{"SESSION", "SHOW"}, {{OWNER}}, ANSWER_ARRAY, READ, 0},
    [FLI_CALL_SESSIONS] = {{"SESSION", "LIST"}, {{CURSOR}, {COUNT}}, ANSWER_ARRAY, READ, 0},
    [FLI_CALL_LEADER] = {{"LEADER"}, {{NOTHING}}, ANSWER_ARRAY, READ, 0},
    [FLI_CALL_INFO] = {{"INFO"}, {{NOTHING}}, ANSWER_STRING, READ, 0},
    [FLI_CALL_CLAIM] = {{"CLAIM"}, {{LOCK}, {TOKEN}}, ANSWER_OK, WRITE, 0},
    [FLI_CALL_GET] = {{"GET"}, {{KEY}, {FENCE}}, ANSWER_STRING, READ, 0},
    [FLI_CALL_SET] = {{"SET"}, {{KEY}, {VALUE}, {FENCE}}, ANSWER_OK, NEVER, 0},
    [FLI_CALL_DEL] = {{"DEL"}, {{KEY}, {FENCE}}, ANSWER_FLAG, NEVER, 0},
    [FLI_CALL_MARK] = {{"MARK"}, {{LOCK}}, ANSWER_MARK, READ, 0},
    [FLI_CALL_CHANGE] = {{NULL}, {{WORDS}}, ANSWER_ANY, WRITE, 0},
    [FLI_CALL_READ] = {{NULL}, {{WORDS}}, ANSWER_ANY, READ, 0},
    [FLI_CALL_BACKUP] = {{"CLUSTER", "BACKUP"}, {{PIECE}}, ANSWER_PIECE, NEVER, 0},
};

/* What a plain "no" means. */
static const struct {
    int code;
    const char *text;
} noes[FLI_CALL_COMMANDS] = {
    [FLI_CALL_ACQUIRE] = {FL_ENOTHELD, "another owner holds the lock"},
    [FLI_CALL_RENEW] = {FL_ENOTHELD, "the lock is not held under this token"},
    [FLI_CALL_RELEASE] = {FL_ENOTHELD, "the lock is not held under this token"},
    [FLI_CALL_CHECK] = {FL_ENOTHELD, "the lock is not held under this token"},
    [FLI_CALL_BREAK] = {FL_ENOTHELD, "nobody holds the lock"},
    [FLI_CALL_SHOW] = {FL_ENOTFOUND, "the lock is free"},
    [FLI_CALL_SESSION_RENEW] = {FL_ENOSESSION, "the session has ended"},
    [FLI_CALL_SESSION_CLOSE] = {FL_ENOSESSION, "the session has ended"},
    [FLI_CALL_GET] = {FL_ENOTFOUND, "there is no such key"},
    [FLI_CALL_DEL] = {FL_ENOTFOUND, "there is no such key"},
};

static void add_part(struct words *w, const struct part *p, const struct fli_call_request *q,
                     uint64_t wait_ms)
{
    const void *field = (const char *)q + p->offset;
    switch (p->how) {
    case END:
        break;
    case BYTES:
        add(w, *(const struct fl_bytes *)field);
        break;
    case NUMBER:
        add_number(w, *(const uint64_t *)field);
        break;
    case OPTION:
        add_option(w, p->word, *(const struct fl_bytes *)field);
        break;
    case OPTION_NUMBER:
        add_option_number(w, p->word, *(const uint64_t *)field);
        break;
    case OWN:
        p->add(w, q, wait_ms);
        break;
    }
}

int fli_call_encode(const struct fli_call_request *request, uint64_t wait_ms, struct fli_buf *out)
{
    const struct shape *shape = &shapes[request->command];
    struct words w = {.argc = 0};
    for (size_t i = 0; i < 3 && shape->words[i] != NULL; i++) {
        add_text(&w, shape->words[i]);
    }
    for (size_t i = 0; i < sizeof shape->parts / sizeof shape->parts[0]; i++) {
        add_part(&w, &shape->parts[i], request, wait_ms);
    }
    int rc = fli_resp_array(out, w.argc);
    for (unsigned i = 0; rc == 0 && i < w.argc; i++) {
        rc = fli_resp_bulk(out, w.argv[i].data, w.argv[i].len);
    }
    return rc;
}

/* ---- limits ---------------------------------------------------------------------------------- */

bool fli_limit_ok(enum fli_limit limit, uint64_t value, char *errmsg, size_t errmsg_size)
{
    static const struct {
        const char *what;
        uint64_t least, most;
        const char *unit;
    } limits[] = {
        [FLI_LIMIT_NONE] = {"", 0, UINT64_MAX, ""},
        [FLI_LIMIT_NAME] = {"a lock's name has", 1, FL_NAME_MAX, "bytes"},
        [FLI_LIMIT_WORD] = {"a name or pattern has", 1, FL_NAME_MAX, "bytes"},
        [FLI_LIMIT_MATCH] = {"a pattern has", 0, FL_NAME_MAX, "bytes"},
        [FLI_LIMIT_OWNER] = {"an owner has", FL_OWNER_MIN, FL_OWNER_MAX,
                             "bytes, which nobody else uses"},
        [FLI_LIMIT_VALUE] = {"a value has", 0, FL_VALUE_MAX, "bytes"},
        [FLI_LIMIT_LABEL] = {"a label has", 0, FL_LABEL_MAX, "bytes"},
        [FLI_LIMIT_TOKEN] = {"a token is a number", 1, FL_TOKEN_MAX, ""},
        [FLI_LIMIT_TTL] = {"a TTL is", FL_TTL_MIN_MS, FL_TTL_MAX_MS, "ms"},
        [FLI_LIMIT_TIMEOUT] = {"a timeout is", 0, FL_TIMEOUT_MAX_MS, "ms"},
        [FLI_LIMIT_WAIT] = {"a wait is", 0, FL_WAIT_MAX_MS, "ms"},
        [FLI_LIMIT_LOCKDELAY] = {"a lock-delay is", 0, FL_LOCKDELAY_MAX_MS, "ms"},
    };
    unsigned long long least = limits[limit].least;
    unsigned long long most = limits[limit].most;
    if (value >= least && value <= most) {
        return true;
    }
    char from[40] = "at most";
    if (least > 0) {
        (void)snprintf(from, sizeof from, "%s%llu to", limit == FLI_LIMIT_TOKEN ? "from " : "",
                       least);
    }
    (void)snprintf(errmsg, errmsg_size, "%s %s %llu %s, not %llu", limits[limit].what, from, most,
                   limits[limit].unit, (unsigned long long)value);
    return false;
}

bool fli_call_ok(const struct fli_call_request *q, char *errmsg, size_t errmsg_size)
{
    const struct shape *shape = &shapes[q->command];
    bool good = true;
    for (size_t i = 0; good && i < sizeof shape->parts / sizeof shape->parts[0]; i++) {
        const struct part *p = &shape->parts[i];
        const void *field = (const char *)q + p->offset;
        bool is_number = p->how == NUMBER || p->how == OPTION_NUMBER;
        uint64_t value = p->limit == FLI_LIMIT_NONE ? 0
                         : is_number                ? *(const uint64_t *)field
                                                    : ((const struct fl_bytes *)field)->len;
        bool may_be_left_out = p->limit == FLI_LIMIT_OWNER || (p->how != BYTES && p->how != NUMBER);
        bool is_left_out = value == 0 && may_be_left_out;
        good = is_left_out || fli_limit_ok(p->limit, value, errmsg, errmsg_size);
        if (p->add == add_fence && q->token != FL_TOKEN_NONE) {
            good = fli_limit_ok(FLI_LIMIT_TOKEN, q->token, errmsg, errmsg_size) &&
                   fli_limit_ok(FLI_LIMIT_NAME, q->lock.len, errmsg, errmsg_size);
        }
    }
    return good;
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
    return shapes[command].repeat;
}

int fli_call_no_code(enum fli_call_command command)
{
    return noes[command].text != NULL ? noes[command].code : FL_ENOTHELD;
}

const char *fli_call_no_text(enum fli_call_command command)
{
    return noes[command].text != NULL ? noes[command].text : "";
}

bool fli_call_no_is_uncertain(enum fli_call_command command)
{
    return (shapes[command].flags & UNSURE) != 0;
}

uint64_t fli_call_lease_ms(const struct fli_call_request *request)
{
    return (shapes[request->command].flags & LEASES) != 0 ? request->ttl_ms : 0;
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

enum fli_call_event fli_call_classify(enum fli_call_command command, const redisReply *reply,
                                      int *ret_code)
{
    *ret_code = 0;
    if (reply->type == REDIS_REPLY_ERROR) {
        return classify_error(reply, ret_code);
    }
    const struct answer *a = &answers[shapes[command].answer];
    bool is_number = reply->type == REDIS_REPLY_INTEGER;
    bool in_range = is_number && reply->integer >= a->least && reply->integer <= a->most;
    if ((a->no == NIL_IS_NO && reply->type == REDIS_REPLY_NIL) ||
        (a->no == ZERO_IS_NO && is_number && reply->integer == 0)) {
        return FLI_EVENT_NO;
    }
    bool good = in_range || (a->type != 0 && reply->type == a->type) ||
                (a->is_ok && is_ok(reply)) || a == &answers[ANSWER_ANY];
    return good ? FLI_EVENT_YES : FLI_EVENT_BROKEN;
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

fl_token fli_call_stale_mark(const char *text, size_t len)
{
    return number_behind(text, len, "mark ");
}

uint64_t fli_call_late(const redisReply *reply)
{
    bool late = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "LATE ", 5) == 0;
    return late ? number_behind(reply->str, reply->len, "attempt ") : 0;
}
