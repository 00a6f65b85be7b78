/* test_resp_write.c: the exact bytes of each kind of answer in both protocols, read by hiredis as
 * well, and nothing half written at any ceiling. */
#include "../../lib/rng.h"

#include <hiredis/hiredis.h>

#include "wire/resp.h"

enum kind {
    SIMPLE,
    ERROR_TEXT,
    INT,
    INT_MIN_,
    INT_MAX_,
    U64,
    BULK,
    BULK_EMPTY,
    TEXT,
    VERBATIM,
    NIL,
    NIL_ARRAY,
    YES,
    NO,
    ARRAY,
    ARRAY_EMPTY,
    MAP,
    SET,
    PUSH,
    KINDS
};

static int put(struct fli_buf *b, int proto, enum kind kind)
{
    switch (kind) {
    case SIMPLE:
        return fli_resp_simple(b, "all\r\nwell\x01");
    case ERROR_TEXT:
        return fli_resp_error(b, "ERR", "no %s\r\n-in %d\t\x7f", "luck", 7);
    case INT:
        return fli_resp_int(b, -42);
    case INT_MIN_:
        return fli_resp_int(b, INT64_MIN);
    case INT_MAX_:
        return fli_resp_int(b, INT64_MAX);
    case U64:
        return fli_resp_u64(b, 0);
    case BULK:
        return fli_resp_bulk(b, "a\0\r\nb", 5);
    case BULK_EMPTY:
        return fli_resp_bulk(b, NULL, 0);
    case TEXT:
        return fli_resp_text(b, "hello, world");
    case VERBATIM:
        return fli_resp_verbatim(b, proto, "a:1\r\n", 5);
    case NIL:
        return fli_resp_null(b, proto);
    case NIL_ARRAY:
        return fli_resp_null_array(b, proto);
    case YES:
        return fli_resp_bool(b, proto, true);
    case NO:
        return fli_resp_bool(b, proto, false);
    case ARRAY:
        return fli_resp_array(b, 12);
    case ARRAY_EMPTY:
        return fli_resp_array(b, 0);
    case MAP:
        return fli_resp_map(b, proto, 3);
    case SET:
        return fli_resp_set(b, proto, 3);
    case PUSH:
        return fli_resp_push(b, proto, 3);
    default:
        fail();
        return FL_EINVAL;
    }
}

static const struct {
    const char *resp2;
    const char *resp3; /* NULL: the same */
    size_t len;        /* 0: strlen */
} wants[KINDS] = {
    [SIMPLE] = {"+all  well?\r\n", NULL, 0},
    [ERROR_TEXT] = {"-ERR no luck  -in 7??\r\n", NULL, 0},
    [INT] = {":-42\r\n", NULL, 0},
    [INT_MIN_] = {":-9223372036854775808\r\n", NULL, 0},
    [INT_MAX_] = {":9223372036854775807\r\n", NULL, 0},
    [U64] = {":0\r\n", NULL, 0},
    [BULK] = {"$5\r\na\0\r\nb\r\n", NULL, 11},
    [BULK_EMPTY] = {"$0\r\n\r\n", NULL, 0},
    [TEXT] = {"$12\r\nhello, world\r\n", NULL, 0},
    [VERBATIM] = {"$5\r\na:1\r\n\r\n", "=9\r\ntxt:a:1\r\n\r\n", 0},
    [NIL] = {"$-1\r\n", "_\r\n", 0},
    [NIL_ARRAY] = {"*-1\r\n", "_\r\n", 0},
    [YES] = {":1\r\n", "#t\r\n", 0},
    [NO] = {":0\r\n", "#f\r\n", 0},
    [ARRAY] = {"*12\r\n", NULL, 0},
    [ARRAY_EMPTY] = {"*0\r\n", NULL, 0},
    [MAP] = {"*6\r\n", "%3\r\n", 0},
    [SET] = {"*3\r\n", "~3\r\n", 0},
    [PUSH] = {"*3\r\n", ">3\r\n", 0},
};

TEST(test_bytes)
{
    for (int proto = 2; proto <= 3; proto++) {
        for (int kind = 0; kind < KINDS; kind++) {
            const char *want = wants[kind].resp2;
            if (proto == 3 && wants[kind].resp3 != NULL) {
                want = wants[kind].resp3;
            }
            size_t len = wants[kind].len > 0 ? wants[kind].len : strlen(want);
            struct fli_buf b;
            fli_buf_init(&b, 1000);
            assert_int_equal(put(&b, proto, (enum kind)kind), 0);
            assert_int_equal(b.len, len);
            assert_memory_equal(b.data, want, len);
            fli_buf_fini(&b);
            for (size_t max = 0; max <= len; max++) { /* all or nothing */
                fli_buf_init(&b, max);
                int rc = put(&b, proto, (enum kind)kind);
                assert_int_equal(rc, max == len ? 0 : FL_ELIMIT);
                assert_int_equal(b.len, max == len ? len : 0);
                fli_buf_fini(&b);
            }
        }
    }
}

TEST(test_long_error_is_cut)
{
    static char text[5000];
    memset(text, 'e', sizeof text - 1);
    struct fli_buf b;
    fli_buf_init(&b, 1 << 20);
    assert_int_equal(fli_resp_error(&b, "ERR", "%s", text), 0);
    assert_int_equal(b.len, 5 + 1023 + 2);
    assert_memory_equal(b.data + b.len - 3, "e\r\n", 3);
    fli_buf_clear(&b);
    text[1023] = '\0';
    assert_int_equal(fli_resp_error(&b, "ERR", "%s", text), 0);
    assert_int_equal(b.len, 5 + 1023 + 2);
    fli_buf_fini(&b);
}

TEST(test_numbers)
{
    uint64_t rng = rng_seed();
    struct fli_buf b;
    fli_buf_init(&b, 1000);
    for (int i = 0; i < 20000; i++) {
        int64_t v = (int64_t)(rng_next(&rng) >> rng_below(&rng, 64));
        v = rng_below(&rng, 2) == 0 ? v : -v;
        char want[40];
        int n = snprintf(want, sizeof want, ":%lld\r\n", (long long)v);
        fli_buf_clear(&b);
        assert_int_equal(v < 0 ? fli_resp_int(&b, v) : fli_resp_u64(&b, (uint64_t)v), 0);
        assert_int_equal(b.len, n);
        assert_memory_equal(b.data, want, (size_t)n);
    }
    fli_buf_fini(&b);
}

static void assert_reply(redisReader *reader, int type)
{
    void *reply = NULL;
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    assert_int_equal(((redisReply *)reply)->type, type);
    freeReplyObject(reply);
}

/* hiredis decodes the answers to the values that were written. */
TEST(test_hiredis_agrees)
{
    struct fli_buf b;
    fli_buf_init(&b, 1000);
    assert_int_equal(fli_resp_array(&b, 4), 0);
    assert_int_equal(fli_resp_u64(&b, 33), 0);
    assert_int_equal(fli_resp_bulk(&b, "x\0y", 3), 0);
    assert_int_equal(fli_resp_null(&b, 2), 0);
    assert_int_equal(fli_resp_map(&b, 2, 1), 0);
    assert_int_equal(fli_resp_text(&b, "k"), 0);
    assert_int_equal(fli_resp_bool(&b, 2, true), 0);
    assert_int_equal(fli_resp_simple(&b, "OK"), 0);
    assert_int_equal(fli_resp_error(&b, "STALE", "token %d", 1), 0);
    assert_int_equal(fli_resp_null_array(&b, 2), 0);
    redisReader *reader = redisReaderCreate();
    assert_non_null(reader);
    assert_int_equal(redisReaderFeed(reader, (const char *)b.data, b.len), REDIS_OK);
    void *got = NULL;
    assert_int_equal(redisReaderGetReply(reader, &got), REDIS_OK);
    redisReply *array = got;
    assert_int_equal(array->elements, 4);
    assert_int_equal(array->element[0]->integer, 33);
    assert_int_equal(array->element[1]->len, 3);
    assert_memory_equal(array->element[1]->str, "x\0y", 3);
    assert_int_equal(array->element[2]->type, REDIS_REPLY_NIL);
    assert_int_equal(array->element[3]->elements, 2);
    assert_int_equal(array->element[3]->element[1]->integer, 1);
    freeReplyObject(got);
    assert_reply(reader, REDIS_REPLY_STATUS);
    assert_reply(reader, REDIS_REPLY_ERROR);
    assert_reply(reader, REDIS_REPLY_NIL);
    redisReaderFree(reader);
    fli_buf_fini(&b);
}
