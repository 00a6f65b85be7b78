/* answer.c: see answer.h. */
#include "redlock/answer.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "client/lists.h"
#include "wire/resp.h"

/* Both scripts compare the value first, so they touch no other owner's key and create none. Each
 * request carries its text: a server may have forgotten a script, and to send the request again
 * takes a second round trip, or overtakes a newer one. */
static const char release_script[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                     "return redis.call('DEL', KEYS[1])";
static const char extend_script[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                    "return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

/* ---- requests -------------------------------------------------------------------------------- */

static int put_request(struct fli_buf *b, size_t argc, const struct fli_slice *argv)
{
    size_t before = b->len;
    int rc = fli_resp_array(b, argc);
    for (size_t i = 0; i < argc && rc == 0; i++) {
        rc = fli_resp_bulk(b, argv[i].data, argv[i].len);
    }
    if (rc != 0) {
        b->len = before; /* half a request would make all that follow unreadable */
    }
    return rc;
}

static struct fli_slice word(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

#define WORDS_MAX 6u

int fli_put_words(struct fli_buf *b, size_t argc, const char *const *argv)
{
    struct fli_slice slices[WORDS_MAX];
    FLI_ASSERT(argc <= WORDS_MAX);
    for (size_t i = 0; i < argc; i++) {
        slices[i] = word(argv[i]);
    }
    return put_request(b, argc, slices);
}

int fli_put_set(struct fli_buf *b, struct fli_slice key, const char *value, uint64_t ttl_ms)
{
    char number[24];
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)ttl_ms);
    const struct fli_slice argv[] = {word("SET"), key,        word(value),
                                     word("NX"),  word("PX"), word(number)};
    return put_request(b, 6, argv);
}

int fli_put_extend(struct fli_buf *b, struct fli_slice key, const char *value, uint64_t ttl_ms)
{
    char number[24];
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)ttl_ms);
    const struct fli_slice argv[] = {word("EVAL"), word(extend_script), word("1"),
                                     key,          word(value),         word(number)};
    return put_request(b, 6, argv);
}

int fli_put_release(struct fli_buf *b, struct fli_slice key, const char *value,
                    enum fli_delete_how how)
{
    if (how == FLI_DELETE_DELEX) {
        const struct fli_slice argv[] = {word("DELEX"), key, word("IFEQ"), word(value)};
        return put_request(b, 4, argv);
    }
    if (how == FLI_DELETE_DELIFEQ) {
        const struct fli_slice argv[] = {word("DELIFEQ"), key, word(value)};
        return put_request(b, 3, argv);
    }
    const struct fli_slice argv[] = {word("EVAL"), word(release_script), word("1"), key,
                                     word(value)};
    return put_request(b, 5, argv);
}

/* ---- replies --------------------------------------------------------------------------------- */

void fli_copy_text(char *to, size_t size, const char *text, size_t len)
{
    FLI_ASSERT(size > 0);
    size_t n = len < size - 1 ? len : size - 1;
    for (size_t i = 0; i < n; i++) {
        to[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
    to[n] = '\0';
}

/* Servers before 7.0 wrap the error of a command in a script into an error of the script. */
static bool mentions(const redisReply *reply, const char *text)
{
    return memmem(reply->str, reply->len, text, strlen(text)) != NULL;
}

bool fli_is_error(const redisReply *reply, const char *what)
{
    size_t len = strlen(what);
    return reply->type == REDIS_REPLY_ERROR && reply->len >= len &&
           memcmp(reply->str, what, len) == 0 && (reply->len == len || reply->str[len] == ' ');
}

static enum fl_redlock_status not_expected(const redisReply *reply, char *error, size_t error_size)
{
    if (reply->type != REDIS_REPLY_ERROR) {
        static const char odd[] = "an answer of an unexpected type";
        fli_copy_text(error, error_size, odd, sizeof odd - 1);
        return FL_REDLOCK_ERROR;
    }
    fli_copy_text(error, error_size, reply->str, reply->len);
    return mentions(reply, "WRONGTYPE") ? FL_REDLOCK_FOREIGN : FL_REDLOCK_ERROR;
}

enum fl_redlock_status fli_set_status(const redisReply *reply, char *error, size_t error_size)
{
    error[0] = '\0';
    if (reply->type == REDIS_REPLY_STATUS && reply->len == 2 && memcmp(reply->str, "OK", 2) == 0) {
        return FL_REDLOCK_YES;
    }
    if (reply->type == REDIS_REPLY_NIL) {
        return FL_REDLOCK_HELD;
    }
    return not_expected(reply, error, error_size);
}

enum fl_redlock_status fli_script_status(const redisReply *reply, char *error, size_t error_size)
{
    error[0] = '\0';
    if (reply->type == REDIS_REPLY_INTEGER && (reply->integer == 0 || reply->integer == 1)) {
        return reply->integer == 1 ? FL_REDLOCK_YES : FL_REDLOCK_NOTOURS;
    }
    return not_expected(reply, error, error_size);
}

static bool is_known(const redisReply *reply, size_t i)
{
    return reply->element[i]->type == REDIS_REPLY_ARRAY && reply->element[i]->elements > 0;
}

enum fli_delete_how fli_delete_how(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        return FLI_DELETE_SCRIPT;
    }
    if (is_known(reply, 0)) {
        return FLI_DELETE_DELEX;
    }
    return is_known(reply, 1) ? FLI_DELETE_DELIFEQ : FLI_DELETE_SCRIPT;
}

/* ---- facts ----------------------------------------------------------------------------------- */

void fli_facts_init(struct fli_facts *f)
{
    memset(f, 0, sizeof *f);
    f->uptime_s = -1;
    f->aof = -1;
}

static void take_field(struct fli_facts *f, struct fl_bytes key, struct fl_bytes value)
{
    uint64_t number;
#define IS(text) (key.len == sizeof(text) - 1 && memcmp(key.data, text, key.len) == 0)
    f->informed = true;
    if (IS("run_id")) {
        f->is_redis = value.len > 0;
        fli_copy_text(f->run_id, sizeof f->run_id, value.data, value.len);
    } else if (IS("node_role") || IS("node_id")) {
        f->is_node = true;
    } else if (IS("role")) {
        fli_copy_text(f->role, sizeof f->role, value.data, value.len);
    } else if (IS("maxmemory_policy")) {
        fli_copy_text(f->policy, sizeof f->policy, value.data, value.len);
    } else if (IS("uptime_in_seconds") &&
               fli_parse_u64(value.data, value.len, INT64_MAX, &number)) {
        f->uptime_s = (int64_t)number;
    } else if (IS("aof_enabled") && fli_parse_u64(value.data, value.len, 1, &number)) {
        f->aof = (int)number;
    }
#undef IS
}

void fli_facts_take_info(struct fli_facts *f, const char *text, size_t len)
{
    struct fl_bytes rest = {text, len};
    struct fl_bytes key;
    struct fl_bytes value;
    while (fli_info_next(&rest, &key, &value)) {
        take_field(f, key, value);
    }
}
