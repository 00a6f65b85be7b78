/* test_request.c: what each command's arguments become, each range at its edges, and each error's
 * words. */
#include "words.h"

static struct fli_request good(enum fli_service service, const char *text)
{
    struct fli_request r;
    char errmsg[FLI_ERRMSG_SIZE];
    struct words w = words_of(text);
    int rc = words_parse(service, &w, &r, errmsg);
    if (rc != 0) {
        fail_msg("%s: %s", text, errmsg);
    }
    return r;
}

/* Fails with this code and message. */
static void bad(enum fli_service service, const char *text, int want_rc, const char *want)
{
    struct fli_request r;
    char errmsg[FLI_ERRMSG_SIZE];
    struct words w = words_of(text);
    assert_int_equal(words_parse(service, &w, &r, errmsg), want_rc);
    assert_string_equal(errmsg, want);
    assert_message(errmsg);
}

#define LOCK FLI_SERVICE_LOCK
#define STORE FLI_SERVICE_STORE
#define OWNER16 "0123456789abcdef"
#define ACQUIRE_USAGE                                                                              \
    ": write ACQUIRE name [TTL ms | SESSION owner] [OWNER id] [WAIT ms] [VALUE bytes] "            \
    "[ALSO name]... [MODE SHARED | PERMITS n] [ATTEMPT n]"

TEST(test_acquire)
{
    struct fli_request r = good(LOCK, "ACQUIRE a");
    assert_int_equal(r.command->id, FLI_CMD_ACQUIRE);
    assert_true(slice_is(&r.name, "a"));
    assert_int_equal(r.ttl_ms, FL_TTL_DEFAULT_MS);
    assert_null(r.owner.data);
    assert_null(r.value.data);
    assert_false(r.explicit_session);
    assert_false(r.wait);

    r = good(LOCK, "acquire a value '' wait 7 owner " OWNER16 " Ttl 5000");
    assert_int_equal(r.ttl_ms, 5000);
    assert_int_equal(r.wait_ms, 7);
    assert_true(r.wait);
    assert_true(slice_is(&r.owner, OWNER16));
    assert_true(slice_is(&r.value, ""));

    r = good(LOCK, "ACQUIRE a SESSION me WAIT 0");
    assert_true(r.explicit_session);
    assert_true(slice_is(&r.owner, "me"));
    assert_int_equal(r.ttl_ms, 0);
    assert_false(r.wait);

    r = good(LOCK, "ACQUIRE TTL TTL 10"); /* a lock may be called anything */
    assert_true(slice_is(&r.name, "TTL"));
    r = good(LOCK, "ACQUIRE a VALUE WAIT WAIT 5"); /* so may a value */
    assert_true(slice_is(&r.value, "WAIT"));
    assert_int_equal(r.wait_ms, 5);
}

TEST(test_acquire_modes)
{
    struct fli_request r = good(LOCK, "ACQUIRE a");
    assert_false(r.shared);
    assert_int_equal(r.permits, 1);
    r = good(LOCK, "ACQUIRE a MODE shared WAIT 5");
    assert_true(r.shared);
    assert_int_equal(r.permits, 1);
    r = good(LOCK, "ACQUIRE a mode Exclusive");
    assert_false(r.shared);
    r = good(LOCK, "ACQUIRE a PERMITS 1");
    assert_int_equal(r.permits, 1);
    r = good(LOCK, "ACQUIRE a PERMITS 1000000");
    assert_false(r.shared);
    assert_int_equal(r.permits, 1000000);
}

TEST(test_acquire_several)
{
    struct fli_request r = good(LOCK, "ACQUIRE a");
    assert_int_equal(r.n_also, 0);
    r = good(LOCK, "ACQUIRE a ALSO b WAIT 5 also ALSO MODE EXCLUSIVE");
    assert_int_equal(r.n_also, 2);
    assert_true(slice_is(&r.name, "a"));
    assert_true(slice_is(&r.also[0], "b"));
    assert_true(slice_is(&r.also[1], "ALSO")); /* a lock may be called anything */
    assert_int_equal(r.wait_ms, 5);
    r = good(LOCK, "ACQUIRE a ALSO 1 ALSO 2 ALSO 3 ALSO 4 ALSO 5 ALSO 6 ALSO 7 ALSO 8 ALSO 9 "
                   "ALSO 10 ALSO 11 ALSO 12 ALSO 13 ALSO 14 ALSO 15");
    assert_int_equal(r.n_also, FLI_ALSO_MAX);
    assert_true(slice_is(&r.also[14], "15"));
    bad(LOCK,
        "ACQUIRE a ALSO 1 ALSO 2 ALSO 3 ALSO 4 ALSO 5 ALSO 6 ALSO 7 ALSO 8 ALSO 9 "
        "ALSO 10 ALSO 11 ALSO 12 ALSO 13 ALSO 14 ALSO 15 ALSO 16",
        FL_EINVAL, "ALSO of ACQUIRE is given more than 15 times: ask for fewer locks");
}

TEST(test_acquire_errors)
{
    bad(LOCK, "ACQUIRE a SESSION s TTL 50", FL_EINVAL,
        "SESSION and TTL of ACQUIRE exclude each other (a session has a TTL of its "
        "own)" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a OWNER " OWNER16 " SESSION s", FL_EINVAL,
        "SESSION and OWNER of ACQUIRE exclude each other (the session names the "
        "owner)" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a TTL 50 ttl 50", FL_EINVAL, "TTL of ACQUIRE is given twice: give it once");
    bad(LOCK, "ACQUIRE a TTL", FL_EINVAL, "TTL of ACQUIRE needs a value" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a b", FL_EINVAL, "ACQUIRE has no option 'b'" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a TT 5", FL_EINVAL, "ACQUIRE has no option 'TT'" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a TTLS 5", FL_EINVAL, "ACQUIRE has no option 'TTLS'" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a ''", FL_EINVAL, "ACQUIRE has no option ''" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a ALSO", FL_EINVAL, "ALSO of ACQUIRE needs a value" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a ALSO ''", FL_EINVAL, "ALSO of ACQUIRE must be 1 to 255 bytes long, not 0");
    bad(LOCK, "ACQUIRE a ALSO a", FL_EINVAL,
        "ALSO of ACQUIRE names the lock 'a' a second time: name each lock once");
    bad(LOCK, "ACQUIRE a ALSO b ALSO c ALSO b", FL_EINVAL,
        "ALSO of ACQUIRE names the lock 'b' a second time: name each lock once");
    bad(LOCK, "ACQUIRE a ALSO b MODE SHARED", FL_EINVAL,
        "ALSO and MODE SHARED of ACQUIRE exclude each other (several locks are taken "
        "alone)" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a PERMITS 2 ALSO b", FL_EINVAL,
        "ALSO and PERMITS of ACQUIRE exclude each other (several locks are taken "
        "alone)" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a MODE both", FL_EINVAL,
        "MODE of ACQUIRE is EXCLUSIVE or SHARED" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a MODE SHAREDX", FL_EINVAL,
        "MODE of ACQUIRE is EXCLUSIVE or SHARED" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a PERMITS 2 MODE SHARED", FL_EINVAL,
        "PERMITS and MODE of ACQUIRE exclude each other (a semaphore has no mode)" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a PERMITS 1 MODE EXCLUSIVE", FL_EINVAL,
        "PERMITS and MODE of ACQUIRE exclude each other (a semaphore has no mode)" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a ALSO b PERMITS 1", FL_EINVAL,
        "ALSO and PERMITS of ACQUIRE exclude each other (several locks are taken "
        "alone)" ACQUIRE_USAGE);
    bad(LOCK, "ACQUIRE a PERMITS 0", FL_EINVAL,
        "PERMITS of ACQUIRE must be a whole number from 1 to 1000000 (holders at a time), not '0'");
    bad(LOCK, "ACQUIRE a PERMITS 1000001", FL_EINVAL,
        "PERMITS of ACQUIRE must be a whole number from 1 to 1000000 (holders at a time), not "
        "'1000001'");
    bad(LOCK, "ACQUIRE ''", FL_EINVAL, "name of ACQUIRE must be 1 to 255 bytes long, not 0");
    bad(LOCK, "ACQUIRE a TTL 1s", FL_EINVAL,
        "TTL of ACQUIRE must be a whole number from 10 to 86400000 (milliseconds), not '1s'");
    bad(LOCK, "ACQUIRE a WAIT -1", FL_EINVAL,
        "WAIT of ACQUIRE must be a whole number from 0 to 86400000 (milliseconds), not '-1'");
    bad(LOCK, "ACQUIRE a OWNER me", FL_EINVAL,
        "OWNER of ACQUIRE must be 16 to 255 bytes long, not 2");
}

/* Accepted from min to max, refused one below and one above. `form` has one %s for the number. */
static void number_range(enum fli_service service, const char *form, uint64_t min, uint64_t max)
{
    char text[200];
    char number[32];
    char errmsg[FLI_ERRMSG_SIZE];
    struct fli_request r;
    const uint64_t tries[] = {min, max, min == 0 ? 0 : min - 1, max == UINT64_MAX ? max : max + 1};
    for (size_t i = 0; i < 4; i++) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)tries[i]);
        const char *mark = strchr(form, '#');
        snprintf(text, sizeof text, "%.*s%s%s", (int)(mark - form), form, number, mark + 1);
        struct words w = words_of(text);
        bool inside = tries[i] >= min && tries[i] <= max;
        int rc = words_parse(service, &w, &r, errmsg);
        if ((rc == 0) != inside) {
            fail_msg("%s: %d %s", text, rc, errmsg);
        }
    }
}

/* The same for the number of bytes of an argument. */
static void length_range(enum fli_service service, const char *form, size_t min, size_t max)
{
    static uint8_t bytes[5000];
    memset(bytes, 0xfe, sizeof bytes);
    const size_t tries[] = {min, max, min == 0 ? 0 : min - 1, max + 1};
    for (size_t i = 0; i < 4; i++) {
        struct words w = words_of(form);
        for (unsigned k = 0; k < w.argc; k++) {
            if (slice_is(&w.argv[k], "#")) {
                w.argv[k] = (struct fli_slice){bytes, tries[i]};
            }
        }
        char errmsg[FLI_ERRMSG_SIZE];
        struct fli_request r;
        bool inside = tries[i] >= min && tries[i] <= max;
        int rc = words_parse(service, &w, &r, errmsg);
        if ((rc == 0) != inside) {
            fail_msg("%s with %zu bytes: %d %s", form, tries[i], rc, errmsg);
        }
        if (rc != 0) {
            assert_message(errmsg);
        }
    }
}

TEST(test_number_ranges)
{
    number_range(LOCK, "ACQUIRE a TTL #", FL_TTL_MIN_MS, FL_TTL_MAX_MS);
    number_range(LOCK, "ACQUIRE a WAIT #", 0, FL_WAIT_MAX_MS);
    number_range(LOCK, "RENEW a # TTL 50", 1, FL_TOKEN_MAX);
    number_range(LOCK, "RENEW a 5 TTL #", FL_TTL_MIN_MS, FL_TTL_MAX_MS);
    number_range(LOCK, "RELEASE a #", 1, FL_TOKEN_MAX);
    number_range(LOCK, "CHECK a #", 1, FL_TOKEN_MAX);
    number_range(LOCK, "SESSION OPEN " OWNER16 " TTL #", FL_TTL_MIN_MS, FL_TTL_MAX_MS);
    number_range(LOCK, "SESSION OPEN " OWNER16 " TTL 500 LOCKDELAY #", 0, FL_LOCKDELAY_MAX_MS);
    number_range(LOCK, "LOCKS COUNT #", 1, FLI_COUNT_MAX);
    number_range(LOCK, "SESSION LIST COUNT #", 1, FLI_COUNT_MAX);
    number_range(LOCK, "CLUSTER TRANSFER #", 1, FLI_NODE_ID_MAX);
    number_range(LOCK, "CLUSTER REMOVE #", 1, FLI_NODE_ID_MAX);
    number_range(LOCK, "SELECT #", 0, 0);
    number_range(LOCK, "HELLO #", 2, 3);
    number_range(STORE, "CLAIM l #", 1, FL_TOKEN_MAX);
    number_range(STORE, "GET k FENCE l #", 1, FL_TOKEN_MAX);
    number_range(STORE, "SET k v FENCE l #", 1, FL_TOKEN_MAX);
    number_range(STORE, "DEL k FENCE l #", 1, FL_TOKEN_MAX);
}

TEST(test_length_ranges)
{
    static const char *const names[] = {"ACQUIRE #", "RENEW # 1", "RELEASE # 1", "CHECK # 1",
                                        "TOKEN #",   "SHOW #",    "BREAK #",     "LOCKS MATCH #"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        length_range(LOCK, names[i], 1, FL_NAME_MAX);
    }
    static const char *const locks[] = {"CLAIM # 1", "MARK #", "GET k FENCE # 1",
                                        "SET k v FENCE # 1", "DEL k FENCE # 1"};
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        length_range(STORE, locks[i], 1, FL_NAME_MAX);
    }
    length_range(STORE, "GET #", 1, FLI_KEY_MAX);
    length_range(STORE, "SET # v FENCE l 1", 1, FLI_KEY_MAX);
    length_range(STORE, "DEL # FENCE l 1", 1, FLI_KEY_MAX);
    length_range(LOCK, "ACQUIRE a OWNER #", FL_OWNER_MIN, FL_OWNER_MAX);
    length_range(LOCK, "ACQUIRE a SESSION #", 1, FL_OWNER_MAX);
    length_range(LOCK, "ACQUIRE a VALUE #", 0, FL_VALUE_MAX);
    length_range(LOCK, "SESSION OPEN # TTL 500", FL_OWNER_MIN, FL_OWNER_MAX);
    length_range(LOCK, "SESSION OPEN " OWNER16 " TTL 500 LABEL #", 0, FL_LABEL_MAX);
    length_range(LOCK, "SESSION RENEW #", 1, FL_OWNER_MAX);
    length_range(LOCK, "SESSION CLOSE #", 1, FL_OWNER_MAX);
    length_range(LOCK, "SESSION SHOW #", 1, FL_OWNER_MAX);
    length_range(LOCK, "LOCKS CURSOR #", 0, FLI_CURSOR_MAX);
    length_range(LOCK, "SESSION LIST CURSOR #", 0, FLI_CURSOR_MAX);
    length_range(LOCK, "CLIENT SETINFO # x", 1, FL_LABEL_MAX);
    length_range(LOCK, "CLIENT SETINFO x #", 0, FL_LABEL_MAX);
    length_range(LOCK, "CLIENT TRACKING #", 1, FL_LABEL_MAX);
}

TEST(test_other_lock_commands)
{
    struct fli_request r = good(LOCK, "RENEW a 7");
    assert_int_equal(r.token, 7);
    assert_int_equal(r.ttl_ms, 0);
    r = good(LOCK, "RENEW a 7 ttl 60");
    assert_int_equal(r.ttl_ms, 60);
    r = good(LOCK, "RELEASE a 9007199254740991");
    assert_int_equal(r.token, FL_TOKEN_MAX);
    r = good(LOCK, "LOCKS");
    assert_int_equal(r.number, FLI_COUNT_DEFAULT);
    assert_null(r.pattern.data);
    assert_null(r.cursor.data);
    r = good(LOCK, "LOCKS COUNT 5 CURSOR x MATCH a*");
    assert_int_equal(r.number, 5);
    assert_true(slice_is(&r.pattern, "a*"));
    assert_true(slice_is(&r.cursor, "x"));
    r = good(LOCK, "SESSION OPEN " OWNER16 " LABEL web LOCKDELAY 5 TTL 500");
    assert_true(slice_is(&r.owner, OWNER16));
    assert_true(slice_is(&r.label, "web"));
    assert_int_equal(r.lockdelay_ms, 5);
    assert_int_equal(r.ttl_ms, 500);
    r = good(LOCK, "session list cursor ''");
    assert_true(slice_is(&r.cursor, ""));
    assert_int_equal(r.number, FLI_COUNT_DEFAULT);
    assert_int_equal(good(LOCK, "CLUSTER TRANSFER").number, 0);
    assert_int_equal(good(LOCK, "CLUSTER TRANSFER 3").number, 3);
    r = good(LOCK, "CLUSTER REPLACE 3 of 00000000000000ff force");
    assert_true(r.value.data == NULL && r.force && r.incarnation == 255);
    r = good(LOCK, "CLUSTER REPLACE 3 h:1 OF ffffffffffffffff");
    assert_true(slice_is(&r.value, "h:1") && !r.force && r.incarnation == UINT64_MAX);
    assert_int_equal(good(LOCK, "CLUSTER REPLACE 3 OF 0000000000000001").incarnation, 1);
    bad(LOCK, "CLUSTER REPLACE 3 OF 0000000000000000", FL_EINVAL,
        "OF of CLUSTER REPLACE is an incarnation, as CLUSTER MEMBERS shows it, and none is 0: "
        "write "
        "CLUSTER REPLACE id [host:port] [OF incarnation] [FORCE]");
    bad(LOCK, "CLUSTER REPLACE 3 OF 00000000000000fg", FL_EINVAL,
        "OF of CLUSTER REPLACE is an incarnation, as CLUSTER MEMBERS shows it: 16 digits of 0 to 9 "
        "and a to f: write CLUSTER REPLACE id [host:port] [OF incarnation] [FORCE]");
    bad(LOCK, "SESSION OPEN " OWNER16 " LABEL x LABEL y", FL_EINVAL,
        "LABEL of SESSION OPEN is given twice: give it once");
    bad(LOCK, "SESSION OPEN " OWNER16 " LABEL x", FL_EINVAL,
        "SESSION OPEN needs a TTL: write SESSION OPEN owner TTL ms [LOCKDELAY ms] [LABEL text]");
}

TEST(test_connection_commands)
{
    assert_null(good(LOCK, "PING").value.data);
    struct fli_request r = good(STORE, "PING ''");
    assert_true(slice_is(&r.value, ""));
    r = good(LOCK, "ECHO hi");
    assert_true(slice_is(&r.value, "hi"));
    assert_int_equal(good(LOCK, "HELLO").number, 0);
    r = good(LOCK, "hello 3 auth default '' setname go");
    assert_int_equal(r.number, 3);
    assert_true(slice_is(&r.owner, "default"));
    assert_true(slice_is(&r.value, ""));
    assert_true(slice_is(&r.label, "go"));
    r = good(LOCK, "AUTH secret");
    assert_null(r.owner.data);
    assert_true(slice_is(&r.value, "secret"));
    r = good(LOCK, "AUTH me secret");
    assert_true(slice_is(&r.owner, "me"));
    assert_true(slice_is(&r.value, "secret"));
    r = good(LOCK, "INFO replication server");
    assert_true(slice_is(&r.pattern, "replication"));
    assert_null(good(LOCK, "INFO").pattern.data);
    r = good(LOCK, "CLIENT SETNAME worker-1");
    assert_true(slice_is(&r.label, "worker-1"));
    r = good(LOCK, "client SETINFO LIB-NAME redis-py");
    assert_true(slice_is(&r.label, "LIB-NAME"));
    assert_true(slice_is(&r.value, "redis-py"));
    (void)good(LOCK, "QUIT now please");
    (void)good(LOCK, "COMMAND DOCS acquire release");
    (void)good(LOCK, "COMMAND INFO");

    bad(LOCK, "HELLO 4", FL_EVERSION, "unsupported protocol version: write HELLO 2 or HELLO 3");
    bad(LOCK, "HELLO 0", FL_EVERSION, "unsupported protocol version: write HELLO 2 or HELLO 3");
    bad(LOCK, "HELLO three", FL_EINVAL,
        "protover of HELLO must be a whole number from 0 to 9223372036854775807 (the RESP "
        "version), "
        "not 'three'");
    bad(LOCK, "HELLO 3 AUTH me", FL_EINVAL,
        "AUTH of HELLO needs two values: write HELLO [protover [AUTH user password] [SETNAME "
        "name]]");
    bad(LOCK, "SELECT 1", FL_EINVAL,
        "index of SELECT must be 0 (there is only database 0), not '1'");
    bad(LOCK, "CLIENT SETNAME a\tb", FL_EINVAL,
        "a client's name cannot contain spaces, newlines or special characters: use printable "
        "ASCII");
    bad(LOCK, "HELLO 2 SETNAME \x7f", FL_EINVAL,
        "a client's name cannot contain spaces, newlines or special characters: use printable "
        "ASCII");
    assert_string_equal(fli_request_error_word(FL_EVERSION), "NOPROTO");
    assert_string_equal(fli_request_error_word(FL_EINVAL), "ERR");
    assert_string_equal(fli_request_error_word(FL_ENOTFOUND), "ERR");
}

TEST(test_client_name_length)
{
    char name[80];
    char text[100];
    for (size_t len = FLI_CLIENT_NAME_MAX; len <= FLI_CLIENT_NAME_MAX + 1; len++) {
        memset(name, 'n', len);
        name[len] = '\0';
        snprintf(text, sizeof text, "CLIENT SETNAME %s", name);
        struct words w = words_of(text);
        struct fli_request r;
        char errmsg[FLI_ERRMSG_SIZE];
        int rc = words_parse(LOCK, &w, &r, errmsg);
        assert_int_equal(rc, len <= FLI_CLIENT_NAME_MAX ? 0 : FL_EINVAL);
    }
}

TEST(test_store_commands)
{
    struct fli_request r = good(STORE, "SET k v FENCE l 5");
    assert_true(slice_is(&r.name, "k"));
    assert_true(slice_is(&r.value, "v"));
    assert_true(slice_is(&r.lock, "l"));
    assert_int_equal(r.token, 5);
    assert_true(r.fenced);
    r = good(STORE, "SET k ''");
    assert_false(r.fenced);
    assert_true(slice_is(&r.value, ""));
    assert_false(good(STORE, "GET k").fenced);
    assert_true(good(STORE, "GET k fence l 5").fenced);
    assert_false(good(STORE, "DEL k").fenced);
    r = good(STORE, "CLAIM l 9");
    assert_true(slice_is(&r.lock, "l"));
    assert_int_equal(r.token, 9);
    r = good(STORE, "MARK l");
    assert_true(slice_is(&r.lock, "l"));
    bad(STORE, "SET k v EX 5", FL_EINVAL,
        "SET has no option 'EX': write SET key value FENCE lock token");
    bad(STORE, "SET k v FENCE l", FL_EINVAL,
        "FENCE of SET needs two values: write SET key value FENCE lock token");
    bad(STORE, "GET k FENCE l 0", FL_EINVAL,
        "token of GET must be a whole number from 1 to 9007199254740991 (a fencing token), not "
        "'0'");
    bad(STORE, "DEL a b c d", FL_EINVAL, "DEL has no option 'b': write DEL key FENCE lock token");
}

/* Every command with random words: no crash, a whole message or a result within its ranges. */
TEST(test_random_arguments)
{
    static const char *const likely[] = {"TTL",   "SESSION", "OWNER", "WAIT",      "VALUE", "MATCH",
                                         "COUNT", "CURSOR",  "FENCE", "LOCKDELAY", "LABEL", "AUTH",
                                         "5",     "100",     "a",     OWNER16,     "",      "ALSO"};
    uint64_t rng = rng_seed();
    for (int i = 0; i < 50000; i++) {
        const struct fli_command *c = &fli_commands[rng_below(&rng, fli_commands_len)];
        struct fli_slice args[8];
        unsigned n = (unsigned)rng_below(&rng, 9);
        for (unsigned k = 0; k < n; k++) {
            const char *word = likely[rng_below(&rng, sizeof likely / sizeof likely[0])];
            args[k] = (struct fli_slice){(const uint8_t *)word, strlen(word)};
        }
        struct fli_request r;
        char errmsg[FLI_ERRMSG_SIZE] = "";
        int rc = fli_request_parse(c, args, n, &r, errmsg, sizeof errmsg);
        if (rc != 0) {
            assert_true(rc == FL_EINVAL || rc == FL_EVERSION);
            assert_message(errmsg);
            continue;
        }
        assert_ptr_equal(r.command, c);
        assert_true(r.ttl_ms == 0 || (r.ttl_ms >= FL_TTL_MIN_MS && r.ttl_ms <= FL_TTL_MAX_MS));
        assert_true(r.token <= FL_TOKEN_MAX);
        assert_true(r.explicit_session ? r.ttl_ms == 0 : true);
        if (c->id == FLI_CMD_ACQUIRE) {
            assert_true(r.explicit_session || r.ttl_ms > 0);
            assert_true(r.name.len >= 1);
        }
    }
}
