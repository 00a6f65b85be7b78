/* test_command_reply.c: what COMMAND answers has the shape of Redis 7, in both protocols, agrees
 * with the table, and is all or nothing at any ceiling. */
#include "words.h"

#include <hiredis/hiredis.h>

#include "wire/command_reply.h"

static redisReply *ask(enum fli_service service, enum fli_command_id id, const char *args)
{
    struct words w = words_of(args);
    struct fli_buf b;
    fli_buf_init(&b, 1 << 20);
    assert_int_equal(fli_command_reply(&b, 2, service, id, w.argv, w.argc), 0);
    redisReader *reader = redisReaderCreate();
    assert_non_null(reader);
    assert_int_equal(redisReaderFeed(reader, (const char *)b.data, b.len), REDIS_OK);
    void *reply = NULL;
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    void *more = NULL;
    assert_int_equal(redisReaderGetReply(reader, &more), REDIS_OK);
    assert_null(more); /* exactly one answer */
    redisReaderFree(reader);
    fli_buf_fini(&b);
    return reply;
}

/* Value of a key in a flat map; NULL: it has no such key. */
static const redisReply *find(const redisReply *map, const char *key)
{
    assert_int_equal(map->elements % 2, 0);
    for (size_t i = 0; i < map->elements; i += 2) {
        if (strcmp(map->element[i]->str, key) == 0) {
            return map->element[i + 1];
        }
    }
    return NULL;
}

/* One that must be there. The optimizer does not see that assertions end the test. */
static const redisReply *get(const redisReply *map, const char *key)
{
    const redisReply *value = find(map, key);
    if (value == NULL) {
        fail_msg("no %s", key);
        abort();
    }
    return value;
}

static void check_info(const redisReply *e)
{
    static const int types[] = {REDIS_REPLY_STRING,  REDIS_REPLY_INTEGER, REDIS_REPLY_ARRAY,
                                REDIS_REPLY_INTEGER, REDIS_REPLY_INTEGER, REDIS_REPLY_INTEGER,
                                REDIS_REPLY_ARRAY,   REDIS_REPLY_ARRAY,   REDIS_REPLY_ARRAY,
                                REDIS_REPLY_ARRAY};
    assert_int_equal(e->elements, 10);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(e->element[i]->type, types[i]);
    }
    assert_int_equal(e->element[6]->element[0]->type, REDIS_REPLY_STATUS);
    assert_int_equal(e->element[6]->element[0]->str[0], '@');
}

static size_t names_of(enum fli_service service)
{
    size_t n = 0;
    for (size_t i = 0; i < fli_commands_len; i++) {
        bool first = i == 0 || strcmp(fli_commands[i].name, fli_commands[i - 1].name) != 0 ||
                     !fli_command_served(&fli_commands[i - 1], service);
        n += first && fli_command_served(&fli_commands[i], service);
    }
    return n;
}

TEST(test_all)
{
    for (int s = FLI_SERVICE_LOCK; s <= FLI_SERVICE_STORE; s++) {
        enum fli_service service = (enum fli_service)s;
        redisReply *all = ask(service, FLI_CMD_COMMAND, "");
        redisReply *info = ask(service, FLI_CMD_COMMAND_INFO, "");
        redisReply *list = ask(service, FLI_CMD_COMMAND_LIST, "");
        redisReply *count = ask(service, FLI_CMD_COMMAND_COUNT, "");
        redisReply *docs = ask(service, FLI_CMD_COMMAND_DOCS, "");
        size_t n = names_of(service);
        assert_int_equal(all->elements, n);
        assert_int_equal(info->elements, n);
        assert_int_equal(list->elements, n);
        assert_int_equal(count->integer, n);
        assert_int_equal(docs->elements, 2 * n);
        for (size_t i = 0; i < n; i++) {
            const char *name = list->element[i]->str;
            check_info(all->element[i]);
            assert_string_equal(all->element[i]->element[0]->str, name);
            assert_string_equal(docs->element[2 * i]->str, name);
            const redisReply *doc = docs->element[2 * i + 1];
            (void)get(doc, "summary");
            (void)get(doc, "since");
            (void)get(doc, "group");
            const redisReply *subs = all->element[i]->element[9];
            for (size_t k = 0; k < subs->elements; k++) {
                check_info(subs->element[k]);
                const char *sub = subs->element[k]->element[0]->str;
                assert_int_equal(strncmp(sub, name, strlen(name)), 0);
                assert_int_equal(sub[strlen(name)], '|');
                assert_string_equal(get(doc, "subcommands")->element[2 * k]->str, sub);
            }
            assert_int_equal(find(doc, "subcommands") != NULL, subs->elements > 0);
        }
        freeReplyObject(all);
        freeReplyObject(info);
        freeReplyObject(list);
        freeReplyObject(count);
        freeReplyObject(docs);
    }
}

TEST(test_info_of_some)
{
    redisReply *r = ask(FLI_SERVICE_LOCK, FLI_CMD_COMMAND_INFO,
                        "acquire nope SESSION session|open claim release command session|nope ''");
    assert_int_equal(r->elements, 9);
    const redisReply *acquire = r->element[0];
    check_info(acquire);
    assert_int_equal(acquire->element[1]->integer, -2);
    assert_int_equal(acquire->element[3]->integer, 1);
    assert_int_equal(acquire->element[4]->integer, 1);
    assert_int_equal(acquire->element[5]->integer, 1);
    assert_string_equal(acquire->element[2]->element[0]->str, "write");
    assert_int_equal(r->element[1]->type, REDIS_REPLY_NIL);
    assert_string_equal(r->element[2]->element[0]->str, "session");
    assert_int_equal(r->element[2]->element[1]->integer, -2);
    assert_int_equal(r->element[2]->element[9]->elements, 5);
    assert_string_equal(r->element[3]->element[0]->str, "session|open");
    assert_int_equal(r->element[3]->element[1]->integer, -5);
    assert_int_equal(r->element[4]->type, REDIS_REPLY_NIL); /* not served here */
    assert_int_equal(r->element[5]->element[1]->integer, 3);
    assert_int_equal(r->element[6]->element[1]->integer, 1);
    assert_int_equal(r->element[6]->element[3]->integer, 0);
    assert_int_equal(r->element[7]->type, REDIS_REPLY_NIL);
    assert_int_equal(r->element[8]->type, REDIS_REPLY_NIL);
    freeReplyObject(r);
}

static const char *argument(const redisReply *arguments, size_t i, const char *field)
{
    assert_true(i < arguments->elements);
    const redisReply *v = find(arguments->element[i], field);
    return v == NULL ? NULL : v->str;
}

static bool optional(const redisReply *arguments, size_t i)
{
    return find(arguments->element[i], "flags") != NULL;
}

TEST(test_docs_of_some)
{
    redisReply *r = ask(FLI_SERVICE_LOCK, FLI_CMD_COMMAND_DOCS, "acquire nope session|open INFO");
    assert_int_equal(r->elements, 6);
    const redisReply *args = get(get(r, "acquire"), "arguments");
    assert_int_equal(args->elements, 8);
    assert_string_equal(argument(args, 0, "name"), "name");
    assert_false(optional(args, 0));
    assert_string_equal(argument(args, 1, "name"), "TTL ms | SESSION owner");
    assert_true(optional(args, 1));
    assert_string_equal(argument(args, 2, "token"), "OWNER");
    assert_string_equal(argument(args, 2, "name"), "id");
    assert_string_equal(argument(args, 5, "token"), "ALSO");
    assert_string_equal(argument(args, 5, "name"), "name");
    assert_int_equal(get(args->element[5], "flags")->elements, 3);
    args = get(get(r, "session|open"), "arguments");
    assert_int_equal(args->elements, 4);
    assert_string_equal(argument(args, 1, "token"), "TTL");
    assert_false(optional(args, 1));
    args = get(get(r, "info"), "arguments");
    assert_int_equal(args->elements, 1);
    assert_string_equal(argument(args, 0, "name"), "section");
    assert_int_equal(get(args->element[0], "flags")->elements, 2);
    freeReplyObject(r);
}

/* Walks one RESP3 value; returns what is behind it. `left` counts values still to come, so that no
 * recursion is needed. */
static const uint8_t *walk(const uint8_t *p, const uint8_t *end)
{
    size_t left = 1;
    while (left > 0) {
        assert_true(p < end);
        char type = (char)*p++;
        const uint8_t *cr = memchr(p, '\r', (size_t)(end - p));
        assert_non_null(cr);
        assert_int_equal(cr[1], '\n');
        uint64_t n = 0;
        left--;
        if (strchr("*%~$", type) != NULL) {
            assert_true(fli_parse_u64(p, (size_t)(cr - p), 10000, &n));
        }
        p = cr + 2;
        switch (type) {
        case '*':
        case '~':
            left += n;
            break;
        case '%':
            left += 2 * n;
            break;
        case '$':
            p += n + 2;
            break;
        case '+':
        case ':':
        case '_':
            break;
        default:
            fail_msg("type %c", type);
        }
    }
    return p;
}

TEST(test_resp3)
{
    static const enum fli_command_id ids[] = {FLI_CMD_COMMAND, FLI_CMD_COMMAND_DOCS,
                                              FLI_CMD_COMMAND_COUNT, FLI_CMD_COMMAND_LIST,
                                              FLI_CMD_COMMAND_INFO};
    struct words w = words_of("acquire nope session client|id");
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        for (unsigned n = 0; n <= w.argc; n += w.argc) {
            struct fli_buf b;
            fli_buf_init(&b, 1 << 20);
            assert_int_equal(fli_command_reply(&b, 3, FLI_SERVICE_LOCK, ids[i], w.argv, n), 0);
            assert_ptr_equal(walk(b.data, b.data + b.len), b.data + b.len);
            fli_buf_fini(&b);
        }
    }
}

TEST(test_all_or_nothing)
{
    struct fli_buf whole;
    fli_buf_init(&whole, 1 << 20);
    struct words w = words_of("acquire session");
    assert_int_equal(
        fli_command_reply(&whole, 2, FLI_SERVICE_LOCK, FLI_CMD_COMMAND_DOCS, w.argv, w.argc), 0);
    for (size_t max = 4; max <= whole.len + 4; max += 1) {
        struct fli_buf b;
        fli_buf_init(&b, max);
        assert_int_equal(fli_buf_append(&b, "keep", 4), 0);
        int rc = fli_command_reply(&b, 2, FLI_SERVICE_LOCK, FLI_CMD_COMMAND_DOCS, w.argv, w.argc);
        assert_int_equal(rc, max == whole.len + 4 ? 0 : FL_ELIMIT);
        assert_int_equal(b.len, max == whole.len + 4 ? max : 4);
        assert_memory_equal(b.data, "keep", 4);
        fli_buf_fini(&b);
    }
    fli_buf_fini(&whole);
}
