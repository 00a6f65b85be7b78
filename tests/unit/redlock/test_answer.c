/* What servers say and what they are sent. */
#include "rng.h"

#include <hiredis/hiredis.h>

#include "redlock/answer.h"

static redisReply *parse(const char *wire)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    assert_int_equal(redisReaderFeed(reader, wire, strlen(wire)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    redisReaderFree(reader);
    return reply;
}

TEST(test_answers_to_set)
{
    static const struct {
        const char *wire;
        enum fl_redlock_status status;
    } rows[] = {
        {"+OK\r\n", FL_REDLOCK_YES},
        {"$-1\r\n", FL_REDLOCK_HELD},
        {"$2\r\nOK\r\n", FL_REDLOCK_ERROR}, /* only the status is a yes */
        {"+OKAY\r\n", FL_REDLOCK_ERROR},
        {"+QUEUED\r\n", FL_REDLOCK_ERROR},
        {":1\r\n", FL_REDLOCK_ERROR},
        {"*0\r\n", FL_REDLOCK_ERROR},
        {"-LOADING Redis is loading the dataset in memory\r\n", FL_REDLOCK_ERROR},
        {"-READONLY You can't write against a read only replica.\r\n", FL_REDLOCK_ERROR},
        {"-MISCONF Redis is configured to save RDB snapshots\r\n", FL_REDLOCK_ERROR},
        {"-OOM command not allowed\r\n", FL_REDLOCK_ERROR},
        {"-BUSY Redis is busy running a script\r\n", FL_REDLOCK_ERROR},
        {"-NOAUTH Authentication required.\r\n", FL_REDLOCK_ERROR},
        {"-WRONGTYPE Operation against a key\r\n", FL_REDLOCK_FOREIGN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char error[FL_REDLOCK_ERROR_MAX] = "x";
        redisReply *reply = parse(rows[i].wire);
        assert_int_equal(fli_set_status(reply, error, sizeof error), rows[i].status);
        bool plain = rows[i].status == FL_REDLOCK_YES || rows[i].status == FL_REDLOCK_HELD;
        assert_int_equal(error[0] == '\0', plain);
        freeReplyObject(reply);
    }
}

TEST(test_answers_to_scripts)
{
    static const struct {
        const char *wire;
        enum fl_redlock_status status;
    } rows[] = {
        {":1\r\n", FL_REDLOCK_YES},
        {":0\r\n", FL_REDLOCK_NOTOURS},
        {":2\r\n", FL_REDLOCK_ERROR},
        {":-1\r\n", FL_REDLOCK_ERROR},
        {"+OK\r\n", FL_REDLOCK_ERROR},
        {"$-1\r\n", FL_REDLOCK_ERROR},
        {"-NOSCRIPT No matching script.\r\n", FL_REDLOCK_ERROR},
        {"-WRONGTYPE Operation against a key script: a3a2\r\n", FL_REDLOCK_FOREIGN},
        {"-ERR Error running script (call to f_a3): WRONGTYPE Operation\r\n", FL_REDLOCK_FOREIGN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char error[FL_REDLOCK_ERROR_MAX];
        redisReply *reply = parse(rows[i].wire);
        assert_int_equal(fli_script_status(reply, error, sizeof error), rows[i].status);
        freeReplyObject(reply);
    }
}

TEST(test_error_words)
{
    redisReply *reply = parse("-NOSCRIPT No matching script.\r\n");
    assert_true(fli_is_error(reply, "NOSCRIPT"));
    assert_false(fli_is_error(reply, "NOSC"));
    assert_false(fli_is_error(reply, "NOSCRIPT No matching script. "));
    freeReplyObject(reply);
    reply = parse("+NOSCRIPT\r\n");
    assert_false(fli_is_error(reply, "NOSCRIPT"));
    freeReplyObject(reply);
}

TEST(test_delete_command)
{
    static const struct {
        const char *wire;
        enum fli_delete_how how;
    } rows[] = {
        {"*2\r\n*-1\r\n*-1\r\n", FLI_DELETE_SCRIPT},
        {"*2\r\n$-1\r\n$-1\r\n", FLI_DELETE_SCRIPT},
        {"*2\r\n*1\r\n$5\r\ndelex\r\n*-1\r\n", FLI_DELETE_DELEX},
        {"*2\r\n*-1\r\n*1\r\n$7\r\ndelifeq\r\n", FLI_DELETE_DELIFEQ},
        {"*2\r\n*0\r\n*0\r\n", FLI_DELETE_SCRIPT},
        {"*1\r\n*1\r\n$5\r\ndelex\r\n", FLI_DELETE_SCRIPT},
        {"-NOPERM\r\n", FLI_DELETE_SCRIPT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        redisReply *reply = parse(rows[i].wire);
        assert_int_equal(fli_delete_how(reply), rows[i].how);
        freeReplyObject(reply);
    }
}

static void expect(struct fli_buf *b, const char *wire, size_t len)
{
    assert_int_equal(b->len, len);
    assert_memory_equal(b->data, wire, len);
    fli_buf_clear(b);
}

TEST(test_requests_are_binary_safe)
{
    struct fli_buf b;
    fli_buf_init(&b, 4096);
    const struct fli_slice key = {(const uint8_t *)"a\0\r\n%s", 6};
    assert_int_equal(fli_put_set(&b, key, "0123", 10), 0);
    static const char set[] =
        "*6\r\n$3\r\nSET\r\n$6\r\na\0\r\n%s\r\n$4\r\n0123\r\n$2\r\nNX\r\n$2\r\nPX"
        "\r\n$2\r\n10\r\n";
    expect(&b, set, sizeof set - 1);
    assert_int_equal(fli_put_release(&b, key, "0123", FLI_DELETE_DELEX), 0);
    static const char delex[] =
        "*4\r\n$5\r\nDELEX\r\n$6\r\na\0\r\n%s\r\n$4\r\nIFEQ\r\n$4\r\n0123\r\n";
    expect(&b, delex, sizeof delex - 1);
    assert_int_equal(fli_put_release(&b, key, "0123", FLI_DELETE_DELIFEQ), 0);
    static const char delifeq[] = "*3\r\n$7\r\nDELIFEQ\r\n$6\r\na\0\r\n%s\r\n$4\r\n0123\r\n";
    expect(&b, delifeq, sizeof delifeq - 1);
    fli_buf_fini(&b);
}

TEST(test_a_request_is_appended_whole_or_not_at_all)
{
    const struct fli_slice key = {(const uint8_t *)"key", 3};
    struct fli_buf b;
    fli_buf_init(&b, 4096);
    assert_int_equal(fli_put_set(&b, key, "v", 10000), 0);
    size_t whole = b.len;
    fli_buf_fini(&b);
    for (size_t max = 1; max <= whole; max++) {
        fli_buf_init(&b, max);
        int rc = fli_put_set(&b, key, "v", 10000);
        assert_int_equal(rc, max < whole ? FL_ELIMIT : 0);
        assert_int_equal(b.len, max < whole ? 0 : whole);
        fli_buf_fini(&b);
    }
}

TEST(test_facts)
{
    static const char info[] = "# Server\r\nrun_id:abc\r\nuptime_in_seconds:17\r\nrole:master\r\n"
                               "maxmemory_policy:allkeys-lru\r\naof_enabled:1\r\nnonsense\r\n:\r\n"
                               "uptime_in_secondsx:99\r\nrole:slave";
    struct fli_facts f;
    fli_facts_init(&f);
    assert_int_equal(f.uptime_s, -1);
    assert_int_equal(f.aof, -1);
    fli_facts_take_info(&f, info, sizeof info - 1);
    assert_string_equal(f.run_id, "abc");
    assert_string_equal(f.role, "slave");
    assert_string_equal(f.policy, "allkeys-lru");
    assert_int_equal(f.uptime_s, 17);
    assert_int_equal(f.aof, 1);
    fli_facts_init(&f);
    static const char bad[] = "uptime_in_seconds:-5\nuptime_in_seconds:\nuptime_in_seconds:9x\n"
                              "aof_enabled:2\n";
    fli_facts_take_info(&f, bad, sizeof bad - 1);
    assert_int_equal(f.uptime_s, -1);
    assert_int_equal(f.aof, -1);
}

TEST(test_any_bytes_are_facts)
{
    uint64_t rng = rng_seed();
    static const char *const pieces[] = {"run_id",
                                         ":",
                                         "\r\n",
                                         "\n",
                                         "role",
                                         "uptime_in_seconds",
                                         "99999999999999999999999",
                                         "\0",
                                         "aof_enabled:1"};
    for (int i = 0; i < 20000; i++) {
        char text[512];
        size_t len = 0;
        while (len < 300 && rng_below(&rng, 20) != 0) {
            const char *p = pieces[rng_below(&rng, 9)];
            size_t n = strlen(p) == 0 ? 1 : strlen(p);
            memcpy(text + len, p, n);
            len += n;
        }
        struct fli_facts f;
        fli_facts_init(&f);
        fli_facts_take_info(&f, text, len);
        assert_non_null(memchr(f.run_id, 0, sizeof f.run_id));
        assert_non_null(memchr(f.role, 0, sizeof f.role));
    }
}

TEST(test_text_is_cut_and_made_printable)
{
    char to[4];
    fli_copy_text(to, sizeof to, "abc", 3);
    assert_string_equal(to, "abc");
    fli_copy_text(to, sizeof to, "abcd", 4);
    assert_string_equal(to, "abc");
    fli_copy_text(to, sizeof to, "\x1b\n", 2);
    assert_string_equal(to, "??");
}
