/* Requests as bytes, and what replies to them mean. */
#include "../../lib/unit.h"

#include "client/call_request.h"
#include "client/attempts.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static void expect_bytes(const struct fli_call_request *request, uint64_t wait_ms,
                         const char *expected)
{
    struct fli_buf b;
    fli_buf_init(&b, 4096);
    assert_int_equal(fli_call_encode(request, wait_ms, &b), 0);
    assert_int_equal(b.len, strlen(expected));
    assert_memory_equal(b.data, expected, b.len);
    fli_buf_fini(&b);
}

static redisReply *parse(const char *bytes)
{
    redisReader *r = redisReaderCreate();
    void *reply = NULL;
    assert_int_equal(redisReaderFeed(r, bytes, strlen(bytes)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(r, &reply), REDIS_OK);
    assert_non_null(reply);
    redisReaderFree(r);
    return reply;
}

static enum fli_call_event classify(enum fli_call_command command, const char *bytes, int *ret_code)
{
    redisReply *reply = parse(bytes);
    enum fli_call_event event = fli_call_classify(command, reply, ret_code);
    freeReplyObject(reply);
    return event;
}

static void expect(enum fli_call_command command, const char *bytes, enum fli_call_event event,
                   int code)
{
    int got;
    assert_int_equal(classify(command, bytes, &got), event);
    assert_int_equal(got, code);
}

/* ---- requests -------------------------------------------------------------------------------- */

TEST(test_attempts)
{
    struct fli_attempts a = {.above = 0};
    struct fli_call_state ended = {.order.want = FLI_WANT_NOTHING, .status = 0, .unknown = true};
    assert_int_equal(fli_attempts_next(&a, 0, 5), 1);
    assert_int_equal(fli_attempts_next(&a, 1, 5), 2);
    fli_attempts_end(&a, &ended, 2, 5); /* it knows what became of it */
    assert_int_equal(fli_attempts_next(&a, 0, 5), 1);
    ended.status = FL_EUNCERTAIN;
    fli_attempts_end(&a, &ended, 0, 5); /* not an ACQUIRE */
    assert_int_equal(fli_attempts_next(&a, 0, 5), 1);
    fli_attempts_end(&a, &ended, 3, 5);
    assert_int_equal(fli_attempts_next(&a, 0, 5), 4);
    assert_int_equal(fli_attempts_next(&a, 4, 5), 5);
    fli_attempts_end(&a, &ended, 2, 6); /* of a call beside it */
    assert_int_equal(fli_attempts_next(&a, 0, 5 + FLI_ATTEMPTS_UNCERTAIN_MS), 4);
    assert_int_equal(fli_attempts_next(&a, 0, 6 + FLI_ATTEMPTS_UNCERTAIN_MS), 1);
    a = (struct fli_attempts){.above = 0};
    struct fli_call_state given_up = {.order.want = FLI_WANT_CONNECT};
    fli_attempts_end(&a, &given_up, 1, 5); /* it is not on its way */
    assert_int_equal(fli_attempts_next(&a, 0, 5), 1);
    given_up.order.want = FLI_WANT_SEND;   /* its bytes may leave behind those of other calls */
    fli_attempts_end(&a, &given_up, 0, 5); /* not an ACQUIRE */
    assert_int_equal(fli_attempts_next(&a, 0, 5), 1);
    fli_attempts_end(&a, &given_up, 1, 5);
    assert_int_equal(fli_attempts_next(&a, 0, 5), 2);
    given_up = (struct fli_call_state){.order.want = FLI_WANT_CONNECT, .unknown = true};
    fli_attempts_end(&a, &given_up, 3, 5);
    assert_int_equal(fli_attempts_next(&a, 0, 5), 4);
    const struct fli_call_request request = {.command = FLI_CALL_ACQUIRE,
                                             .name = fl_str("n"),
                                             .owner = fl_str("0123456789abcdef"),
                                             .ttl_ms = 500,
                                             .attempt = 2};
    expect_bytes(&request, 0,
                 "*8\r\n$7\r\nACQUIRE\r\n$1\r\nn\r\n$3\r\nTTL\r\n$3\r\n500\r\n$5\r\nOWNER\r\n"
                 "$16\r\n0123456789abcdef\r\n$7\r\nATTEMPT\r\n$1\r\n2\r\n");
}

TEST(test_requests)
{
    struct fli_call_request a = {.command = FLI_CALL_ACQUIRE,
                                 .name = fl_str("n"),
                                 .owner = fl_str("0123456789abcdef"),
                                 .ttl_ms = 500};
    expect_bytes(&a, 0,
                 "*6\r\n$7\r\nACQUIRE\r\n$1\r\nn\r\n$3\r\nTTL\r\n$3\r\n500\r\n$5\r\nOWNER\r\n"
                 "$16\r\n0123456789abcdef\r\n");
    a.value = fl_str("v");
    expect_bytes(&a, 7,
                 "*10\r\n$7\r\nACQUIRE\r\n$1\r\nn\r\n$3\r\nTTL\r\n$3\r\n500\r\n$5\r\nOWNER\r\n"
                 "$16\r\n0123456789abcdef\r\n$4\r\nWAIT\r\n$1\r\n7\r\n$5\r\nVALUE\r\n$1\r\nv\r\n");
    a.value = fl_str("");
    a.shared = true;
    expect_bytes(&a, 0,
                 "*8\r\n$7\r\nACQUIRE\r\n$1\r\nn\r\n$3\r\nTTL\r\n$3\r\n500\r\n$5\r\nOWNER\r\n"
                 "$16\r\n0123456789abcdef\r\n$4\r\nMODE\r\n$6\r\nSHARED\r\n");
    a.shared = false;
    a.permits = FL_PERMITS_MAX;
    expect_bytes(&a, 0,
                 "*8\r\n$7\r\nACQUIRE\r\n$1\r\nn\r\n$3\r\nTTL\r\n$3\r\n500\r\n$5\r\nOWNER\r\n"
                 "$16\r\n0123456789abcdef\r\n$7\r\nPERMITS\r\n$7\r\n1000000\r\n");
    const struct fl_bytes also[] = {fl_str("b"), fl_str("c d")};
    a.permits = 0;
    a.also = also;
    a.also_len = 2;
    expect_bytes(&a, 0,
                 "*10\r\n$7\r\nACQUIRE\r\n$1\r\nn\r\n$3\r\nTTL\r\n$3\r\n500\r\n$5\r\nOWNER\r\n"
                 "$16\r\n0123456789abcdef\r\n$4\r\nALSO\r\n$1\r\nb\r\n$4\r\nALSO\r\n$3\r\nc d\r\n");
    a = (struct fli_call_request){
        .command = FLI_CALL_RENEW, .name = fl_str("n"), .token = FL_TOKEN_MAX};
    expect_bytes(&a, 0, "*3\r\n$5\r\nRENEW\r\n$1\r\nn\r\n$16\r\n9007199254740991\r\n");
    a.ttl_ms = 10;
    expect_bytes(
        &a, 0,
        "*5\r\n$5\r\nRENEW\r\n$1\r\nn\r\n$16\r\n9007199254740991\r\n$3\r\nTTL\r\n$2\r\n10\r\n");
    a.jeopardies = 2;
    a.lost = UINT32_MAX;
    expect_bytes(
        &a, 0,
        "*9\r\n$5\r\nRENEW\r\n$1\r\nn\r\n$16\r\n9007199254740991\r\n$3\r\nTTL\r\n$2\r\n10\r\n"
        "$8\r\nJEOPARDY\r\n$1\r\n2\r\n$4\r\nLOST\r\n$10\r\n4294967295\r\n");
    a.jeopardies = a.lost = 0;
    a.command = FLI_CALL_RELEASE;
    expect_bytes(&a, 0, "*3\r\n$7\r\nRELEASE\r\n$1\r\nn\r\n$16\r\n9007199254740991\r\n");
    a = (struct fli_call_request){.command = FLI_CALL_LOCKS};
    expect_bytes(&a, 0, "*1\r\n$5\r\nLOCKS\r\n");
    a = (struct fli_call_request){
        .command = FLI_CALL_LOCKS, .name = fl_str("a*"), .cursor = fl_str("h9"), .count = 3};
    expect_bytes(&a, 0,
                 "*7\r\n$5\r\nLOCKS\r\n$5\r\nMATCH\r\n$2\r\na*\r\n$6\r\nCURSOR\r\n$2\r\nh9\r\n"
                 "$5\r\nCOUNT\r\n$1\r\n3\r\n");
    a = (struct fli_call_request){.command = FLI_CALL_LEADER};
    expect_bytes(&a, 0, "*1\r\n$6\r\nLEADER\r\n");
}

TEST(test_how_a_lock_may_be_taken)
{
    struct fl_bytes also[FL_NAMES_MAX];
    for (size_t i = 0; i < FL_NAMES_MAX; i++) {
        also[i] = fl_str("x");
    }
    static char long_name[FL_NAME_MAX + 2];
    memset(long_name, 'n', FL_NAME_MAX + 1);
    struct fl_bytes largest[] = {{long_name, FL_NAME_MAX}};
    struct fl_bytes too_long[] = {{long_name, FL_NAME_MAX + 1}};
    struct fl_bytes empty[] = {{"", 0}};
    const struct {
        struct fl_take o;
        bool ok;
    } rows[] = {
        {{.permits = 0}, true},
        {{.mode = FL_MODE_SHARED}, true},
        {{.mode = FL_MODE_PERMITS}, false},
        {{.permits = FL_PERMITS_MAX}, true},
        {{.permits = FL_PERMITS_MAX + 1}, false},
        {{.mode = FL_MODE_SHARED, .permits = 1}, false},
        {{.also = also, .also_len = FL_NAMES_MAX - 1}, true},
        {{.also = also, .also_len = FL_NAMES_MAX}, false},
        {{.also = also, .also_len = 1, .mode = FL_MODE_SHARED}, false},
        {{.also = also, .also_len = 1, .permits = 1}, false},
        {{.also = largest, .also_len = 1}, true},
        {{.also = too_long, .also_len = 1}, false},
        {{.also = empty, .also_len = 1}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(fli_acquire_mode_ok(&rows[i].o), rows[i].ok);
    }
    /* The largest request fits. */
    struct fli_call_request a = {.command = FLI_CALL_ACQUIRE,
                                 .name = largest[0],
                                 .owner = {long_name, FL_OWNER_MAX},
                                 .value = fl_str("v"),
                                 .ttl_ms = FL_TTL_MAX_MS,
                                 .also = also,
                                 .also_len = FL_NAMES_MAX - 1};
    struct fli_buf b;
    fli_buf_init(&b, 8192);
    assert_int_equal(fli_call_encode(&a, FL_WAIT_MAX_MS, &b), 0);
    assert_memory_equal(b.data, "*40\r\n", 5);
    fli_buf_fini(&b);
}

TEST(test_store_requests)
{
    struct fli_call_request a = {.command = FLI_CALL_SET, .name = fl_str("k"), .value = fl_str("")};
    expect_bytes(&a, 0, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
    a.lock = fl_str("l");
    a.token = 7;
    expect_bytes(&a, 0,
                 "*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n$5\r\nFENCE\r\n$1\r\nl\r\n$1\r\n7\r\n");
    a.command = FLI_CALL_GET;
    expect_bytes(&a, 0, "*5\r\n$3\r\nGET\r\n$1\r\nk\r\n$5\r\nFENCE\r\n$1\r\nl\r\n$1\r\n7\r\n");
    a.command = FLI_CALL_DEL;
    expect_bytes(&a, 0, "*5\r\n$3\r\nDEL\r\n$1\r\nk\r\n$5\r\nFENCE\r\n$1\r\nl\r\n$1\r\n7\r\n");
    a.command = FLI_CALL_CLAIM;
    expect_bytes(&a, 0, "*3\r\n$5\r\nCLAIM\r\n$1\r\nl\r\n$1\r\n7\r\n");
    a.command = FLI_CALL_MARK;
    expect_bytes(&a, 0, "*2\r\n$4\r\nMARK\r\n$1\r\nl\r\n");
}

TEST(test_names_are_any_bytes)
{
    static const char expected[] = "*2\r\n$4\r\nSHOW\r\n$4\r\n\0\r\n\xff\r\n";
    struct fli_call_request a = {.command = FLI_CALL_SHOW, .name = {"\0\r\n\xff", 4}};
    struct fli_buf b;
    fli_buf_init(&b, 4096);
    assert_int_equal(fli_call_encode(&a, 0, &b), 0);
    assert_int_equal(b.len, sizeof expected - 1);
    assert_memory_equal(b.data, expected, b.len);
    fli_buf_fini(&b);
}

TEST(test_what_may_be_repeated)
{
    static const enum fli_call_command never[] = {FLI_CALL_BREAK, FLI_CALL_SET, FLI_CALL_DEL};
    static const enum fli_call_command write[] = {FLI_CALL_ACQUIRE, FLI_CALL_RENEW,
                                                  FLI_CALL_RELEASE, FLI_CALL_TOKEN, FLI_CALL_CLAIM};
    static const enum fli_call_command read[] = {FLI_CALL_CHECK, FLI_CALL_SHOW, FLI_CALL_LOCKS,
                                                 FLI_CALL_INFO,  FLI_CALL_GET,  FLI_CALL_MARK};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        assert_int_equal(fli_call_may_repeat(never[i]), FLI_REPEAT_NEVER);
    }
    for (size_t i = 0; i < sizeof write / sizeof write[0]; i++) {
        assert_int_equal(fli_call_may_repeat(write[i]), FLI_REPEAT_WRITE);
    }
    for (size_t i = 0; i < sizeof read / sizeof read[0]; i++) {
        assert_int_equal(fli_call_may_repeat(read[i]), FLI_REPEAT_READ);
    }
}

/* ---- replies --------------------------------------------------------------------------------- */

TEST(test_tokens)
{
    static const enum fli_call_command ops[] = {FLI_CALL_ACQUIRE, FLI_CALL_TOKEN, FLI_CALL_BREAK};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        expect(ops[i], ":1\r\n", FLI_EVENT_YES, 0);
        expect(ops[i], ":9007199254740991\r\n", FLI_EVENT_YES, 0);
        expect(ops[i], ":9007199254740992\r\n", FLI_EVENT_BROKEN, 0);
        expect(ops[i], ":0\r\n", ops[i] == FLI_CALL_BREAK ? FLI_EVENT_NO : FLI_EVENT_BROKEN, 0);
        expect(ops[i], ":-1\r\n", FLI_EVENT_BROKEN, 0);
        expect(ops[i], "+OK\r\n", FLI_EVENT_BROKEN, 0);
        expect(ops[i], "$1\r\n5\r\n", FLI_EVENT_BROKEN, 0);
        expect(ops[i], "*0\r\n", FLI_EVENT_BROKEN, 0);
    }
    expect(FLI_CALL_ACQUIRE, "$-1\r\n", FLI_EVENT_NO, 0);
    expect(FLI_CALL_ACQUIRE, "*-1\r\n", FLI_EVENT_NO, 0);
    expect(FLI_CALL_TOKEN, "$-1\r\n", FLI_EVENT_BROKEN, 0);
    expect(FLI_CALL_BREAK, "$-1\r\n", FLI_EVENT_BROKEN, 0);
    expect(FLI_CALL_MARK, ":0\r\n", FLI_EVENT_YES, 0);
    expect(FLI_CALL_MARK, ":-1\r\n", FLI_EVENT_BROKEN, 0);
}

TEST(test_flags)
{
    static const enum fli_call_command ops[] = {FLI_CALL_RENEW, FLI_CALL_RELEASE, FLI_CALL_CHECK,
                                                FLI_CALL_DEL};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        expect(ops[i], ":1\r\n", FLI_EVENT_YES, 0);
        expect(ops[i], ":0\r\n", FLI_EVENT_NO, 0);
        expect(ops[i], ":2\r\n", FLI_EVENT_BROKEN, 0);
        expect(ops[i], ":-1\r\n", FLI_EVENT_BROKEN, 0);
        expect(ops[i], "+OK\r\n", FLI_EVENT_BROKEN, 0);
        expect(ops[i], "$-1\r\n", FLI_EVENT_BROKEN, 0);
    }
}

TEST(test_other_replies)
{
    expect(FLI_CALL_SHOW, "*0\r\n", FLI_EVENT_YES, 0);
    expect(FLI_CALL_SHOW, "*-1\r\n", FLI_EVENT_NO, 0);
    expect(FLI_CALL_SHOW, ":1\r\n", FLI_EVENT_BROKEN, 0);
    expect(FLI_CALL_GET, "$0\r\n\r\n", FLI_EVENT_YES, 0);
    expect(FLI_CALL_GET, "$-1\r\n", FLI_EVENT_NO, 0);
    expect(FLI_CALL_GET, "+x\r\n", FLI_EVENT_BROKEN, 0);
    expect(FLI_CALL_SET, "+OK\r\n", FLI_EVENT_YES, 0);
    expect(FLI_CALL_SET, "$-1\r\n", FLI_EVENT_BROKEN, 0);
    expect(FLI_CALL_CLAIM, "+OK\r\n", FLI_EVENT_YES, 0);
    expect(FLI_CALL_SESSION_OPEN, "+OK\r\n", FLI_EVENT_YES, 0);
    expect(FLI_CALL_INFO, "$1\r\nx\r\n", FLI_EVENT_YES, 0);
}

TEST(only_ok_says_that_it_is_done)
{
    static const enum fli_call_command ops[] = {FLI_CALL_SET, FLI_CALL_CLAIM,
                                                FLI_CALL_SESSION_OPEN};
    static const char *const others[] = {":0\r\n", ":1\r\n", "+QUEUED\r\n", "+\r\n", "+OKAY\r\n"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
            expect(ops[i], others[k], FLI_EVENT_BROKEN, 0);
        }
    }
}

TEST(test_errors)
{
    static const struct {
        const char *bytes;
        enum fli_call_event event;
        int code;
    } rows[] = {
        {"-NOLEADER x\r\n", FLI_EVENT_NOLEADER, 0},
        {"-BUSY x\r\n", FLI_EVENT_BUSY, 0},
        {"-UNCERTAIN x\r\n", FLI_EVENT_UNCERTAIN, 0},
        {"-UNCERTAIN\r\n", FLI_EVENT_UNCERTAIN, 0},
        {"-ERR x\r\n", FLI_EVENT_REFUSED, FL_EINVAL},
        {"-LIMIT x\r\n", FLI_EVENT_REFUSED, FL_ELIMIT},
        {"-DEADLOCK x\r\n", FLI_EVENT_REFUSED, FL_EDEADLOCK},
        {"-MISMATCH x\r\n", FLI_EVENT_REFUSED, FL_EMISMATCH},
        {"-NOSESSION x\r\n", FLI_EVENT_REFUSED, FL_ENOSESSION},
        {"-STALE x\r\n", FLI_EVENT_REFUSED, FL_ESTALE},
        {"-WRONGLOCK x\r\n", FLI_EVENT_REFUSED, FL_EWRONGLOCK},
        {"-NOTHELD x\r\n", FLI_EVENT_REFUSED, FL_EDENIED},
        {"-UNCHECKED x\r\n", FLI_EVENT_NOLEADER, 0},
        {"-NOTOKEN x\r\n", FLI_EVENT_REFUSED, FL_ENOTOKEN},
        {"-NOAUTH x\r\n", FLI_EVENT_REFUSED, FL_EDENIED},
        {"-NEWWORD x\r\n", FLI_EVENT_REFUSED, FL_EPROTO},
        {"-UNCERTAINLY x\r\n", FLI_EVENT_REFUSED, FL_EPROTO}, /* whole words only */
        {"-\r\n", FLI_EVENT_REFUSED, FL_EPROTO},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int command = FLI_CALL_ACQUIRE; command <= FLI_CALL_MARK; command++) {
            expect((enum fli_call_command)command, rows[i].bytes, rows[i].event, rows[i].code);
        }
    }
}

static fl_token mark_in(const char *text)
{
    return fli_call_stale_mark(text, strlen(text));
}

TEST(test_stale_mark)
{
    assert_int_equal(mark_in("STALE token 33 is below the mark 34 of lock mark 99"), 34);
    assert_int_equal(mark_in("STALE mark 9007199254740991"), FL_TOKEN_MAX);
    assert_int_equal(mark_in("STALE mark 9007199254740992"), FL_TOKEN_NONE);
    assert_int_equal(mark_in("STALE mark x mark 5"), 5);
    assert_int_equal(mark_in("STALE mark "), FL_TOKEN_NONE);
    assert_int_equal(mark_in("STALE 5 7"), FL_TOKEN_NONE);
    assert_int_equal(mark_in(""), FL_TOKEN_NONE);
}

/* Each state in which a call can be given up. */
TEST(test_a_cancelled_call_is_uncertain_once_it_was_sent)
{
    static const struct {
        enum fli_call_want want;
        bool sent;
    } rows[] = {{FLI_WANT_CONNECT, false}, {FLI_WANT_SEND, true},      {FLI_WANT_ANSWER, true},
                {FLI_WANT_PROBE, true},    {FLI_WANT_ASK_OTHER, true}, {FLI_WANT_SLEEP, false},
                {FLI_WANT_NOTHING, false}};
    assert_int_equal(sizeof rows / sizeof rows[0], FLI_WANT_NOTHING + 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int unknown = 0; unknown < 2; unknown++) {
            struct fli_attempts a = {.above = 0};
            const struct fli_call_state given_up = {
                .order.want = rows[i].want, .status = FL_EUNCERTAIN, .unknown = unknown == 1};
            fli_attempts_end(&a, &given_up, 3, 5);
            assert_int_equal(fli_attempts_last(&a, 5), rows[i].sent || unknown == 1 ? 3 : 0);
        }
    }
}

/* A call that calls back outlives the caller's texts, a cursor as well as a name. */
TEST(test_a_copy_needs_none_of_the_texts_of_the_original)
{
    char texts[6][8] = {"name", "lock", "owner", "value", "cursor", "also"};
    const struct fl_bytes also = fl_str(texts[5]);
    const struct fli_call_request original = {.name = fl_str(texts[0]),
                                              .lock = fl_str(texts[1]),
                                              .owner = fl_str(texts[2]),
                                              .value = fl_str(texts[3]),
                                              .cursor = fl_str(texts[4]),
                                              .also = &also,
                                              .also_len = 1};
    struct fli_call_request copy;
    struct fl_bytes copied[1];
    char room[64];
    assert_in_range(fli_call_request_size(&original), 1, sizeof room);
    fli_call_request_copy(&copy, &original, copied, room);
    memset(texts, 'x', sizeof texts);
    assert_memory_equal(copy.name.data, "name", copy.name.len);
    assert_memory_equal(copy.lock.data, "lock", copy.lock.len);
    assert_memory_equal(copy.owner.data, "owner", copy.owner.len);
    assert_memory_equal(copy.value.data, "value", copy.value.len);
    assert_memory_equal(copy.cursor.data, "cursor", copy.cursor.len);
    assert_memory_equal(copy.also[0].data, "also", copy.also[0].len);
}
