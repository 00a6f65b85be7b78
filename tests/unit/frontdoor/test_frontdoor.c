/* test_frontdoor.c: scripts and their names, forms, the operator's aliases, requests and answers as
 * Redis words them. */
#include "../../lib/unit.h"

#include "frontdoor/monitor.h"
#include "frontdoor/normal.h"
#include "frontdoor/request.h"

static struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

static bool same(const char *a, const char *b)
{
    uint8_t x[FLI_SHA1_SIZE];
    uint8_t y[FLI_SHA1_SIZE];
    assert_true(frontdoor_normal(text(a), x));
    assert_true(frontdoor_normal(text(b), y));
    return memcmp(x, y, sizeof x) == 0;
}

TEST(layout_does_not_change_the_name)
{
    const char *plain = "if redis.call('get',KEYS[1])==ARGV[1] then return 1 end";
    assert_true(same(plain, "\xef\xbb\xbfif redis.call(\"get\", KEYS[1]) == ARGV[1] then\r\n"
                            "\treturn 1; -- mine\r\nend\n"));
    assert_true(same(plain, "--[[ long\n comment ]] if redis . call ( [[get]] , KEYS [ 1 ] ) == "
                            "ARGV[1] then return 1 end --"));
    assert_true(same(plain, "--[==[ ]] ]=] ]==]if redis.pcall"
                            "('get',KEYS[1])==ARGV[1] then return 1 end") == false);
    assert_true(same("redis.call('GET', k)", "redis.call('get', k)"));
    assert_true(same("redis.call('set', k, v, 'PX', n)", "redis.call('SET', k, v, 'px', n)"));
}

TEST(meaning_changes_the_name)
{
    assert_false(same("return 1", "return 2"));
    assert_false(same("return 1", "return '1'"));
    assert_false(same("return a b", "return ab"));
    assert_false(same("a b", "anb")); /* n begins a name in the stream, and 0 a number */
    assert_false(same("1 2", "102"));
    assert_false(same("x = 'a b'", "x = 'ab'"));
    assert_false(same("x = 'YES'", "x = 'yes'"));
    assert_false(same("x = 'GET'", "x = 'get'")); /* not in redis.call */
    assert_false(same("redis.call('set', k, 'ABC')", "redis.call('set', k, 'abc')"));
    assert_false(same("redis.call('set', k, f('PX'))", "redis.call('set', k, f('px'))"));
    assert_false(same("x = 'a\\n'", "x = 'a\\\\n'"));
    assert_false(same("x = '\\110'", "x = 'n'"));
    assert_false(same("a = b; (c)()", "a = b (c)()"));
    assert_false(same("a - - b", "a -- b"));
    assert_false(same("KEYS[1]", "keys[1]"));
    assert_false(same("x == y", "x = = y"));
}

TEST(what_is_no_lua)
{
    static const char *const bad[] = {"'",     "\"a\n\"", "'a\\",   "[[ a ]", "--[[ a",
                                      "a ! b", "\x01",    "[=[ ]]", "a @",    "'a"};
    uint8_t out[FLI_SHA1_SIZE];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(frontdoor_normal(text(bad[i]), out));
    }
    assert_true(frontdoor_normal(text(""), out));
    char deep[512];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    assert_false(frontdoor_normal(text(deep), out));
    deep[200] = '\0';
    assert_true(frontdoor_normal(text(deep), out));
}

TEST(printed)
{
    char out[128];
    assert_true(frontdoor_normal_print(text("redis.call('GET', KEYS[1]) -- x"), out, sizeof out));
    assert_string_equal(out, "redis\n.\ncall\n(\n'get\n,\nKEYS\n[\n1\n]\n)\n");
    assert_true(frontdoor_normal_print(text("abc"), out, 3));
    assert_string_equal(out, "ab");
}

/* Each form is found by its own text, and by the text of no other form. */
TEST(forms)
{
    struct frontdoor_scripts *s;
    uint8_t name[FLI_SHA1_SIZE];
    assert_int_equal(frontdoor_scripts_create(&s), 0);
    for (size_t i = 0; i < frontdoor_forms_len; i++) {
        const struct frontdoor_form *f = &frontdoor_forms[i];
        assert_ptr_equal(frontdoor_scripts_load(s, text(f->script), name), f);
        assert_ptr_equal(frontdoor_scripts_find(s, name), f);
        assert_ptr_equal(frontdoor_form_find(text(f->name)), f);
        assert_true(f->keys_min >= 1 && f->keys_min <= f->keys_max);
        assert_true((f->word_at > 0) == (f->change_if != 0) &&
                    (f->word_at > 0) == (f->word != NULL));
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(f->name, frontdoor_forms[k].name);
            assert_false(same(f->script, frontdoor_forms[k].script));
        }
    }
    for (size_t i = 0; i < frontdoor_known_texts_len; i++) {
        assert_true(fli_sha1_parse(text(frontdoor_known_texts[i].sha1), name));
        assert_ptr_equal(frontdoor_scripts_find(s, name),
                         frontdoor_form_find(text(frontdoor_known_texts[i].form)));
    }
    assert_null(frontdoor_form_find(text("nope")));
    assert_null(frontdoor_scripts_load(s, text("return redis.call('flushall')"), name));
    assert_null(frontdoor_scripts_find(s, name));
    frontdoor_scripts_destroy(s);
}

/* No two entries of the tables have the same tokens, so the order of the tables does not matter. */
TEST(no_stream_of_tokens_is_two_forms)
{
    uint8_t names[80][FLI_SHA1_SIZE];
    size_t n = 0;
    assert_true(frontdoor_known_tokens_len + frontdoor_forms_len <= 80);
    for (size_t i = 0; i < frontdoor_known_tokens_len; i++) {
        assert_true(fli_sha1_parse(text(frontdoor_known_tokens[i].sha1), names[n++]));
    }
    for (size_t i = 0; i < frontdoor_forms_len; i++) {
        assert_true(frontdoor_normal(text(frontdoor_forms[i].script), names[n++]));
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_memory_not_equal(names[i], names[k], FLI_SHA1_SIZE);
        }
    }
}

TEST(loaded_scripts_are_bounded)
{
    struct frontdoor_scripts *s;
    uint8_t first[FLI_SHA1_SIZE];
    uint8_t name[FLI_SHA1_SIZE];
    char script[512];
    assert_int_equal(frontdoor_scripts_create(&s), 0);
    for (unsigned i = 0; i <= FRONTDOOR_LOADED_MAX; i++) {
        (void)snprintf(script, sizeof script, "%s -- %u", frontdoor_forms[0].script, i);
        assert_ptr_equal(frontdoor_scripts_load(s, text(script), i == 0 ? first : name),
                         &frontdoor_forms[0]);
        assert_ptr_equal(frontdoor_scripts_find(s, i == 0 ? first : name), &frontdoor_forms[0]);
        assert_int_equal(frontdoor_scripts_find(s, first) != NULL, i < FRONTDOOR_LOADED_MAX);
    }
    frontdoor_scripts_flush(s);
    assert_null(frontdoor_scripts_find(s, name));
    frontdoor_scripts_destroy(s);
}

#define A40 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

TEST(aliases)
{
    static const struct {
        const char *file, *says;
    } rows[] = {
        {"", NULL},
        {"# nothing\n\n  \t\r\n", NULL},
        {A40 " = release # as ours\r\n", NULL},
        {A40 "=extend", NULL},
        {A40 " = extend#1", "line 1: there is no such form"},
        {"\n" A40 " release", "line 2: write `sha1 = form`"},
        {"aa = release", "line 1: write the SHA-1 of a script"},
        {A40 " = relase", "line 1: there is no such form; there are: release, "},
        {A40 " = release\n" A40 " = extend", "line 2: this script has a form already"},
        {"4e92fdc63815b3a0a2dd1c1df3694de73607c88d = extend", "line 1: this script has a form"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char errmsg[256] = "";
        struct frontdoor_scripts *s;
        uint8_t name[FLI_SHA1_SIZE];
        assert_int_equal(frontdoor_scripts_create(&s), 0);
        int rc = frontdoor_scripts_alias(s, text(rows[i].file), errmsg, sizeof errmsg);
        assert_int_equal(rc, rows[i].says == NULL ? 0 : FL_EINVAL);
        assert_true(rows[i].says == NULL || strstr(errmsg, rows[i].says) == errmsg);
        assert_true(fli_sha1_parse(text(A40), name));
        assert_true((frontdoor_scripts_find(s, name) != NULL) ==
                    (strstr(rows[i].file, A40 " = release ") != NULL || i == 3 || i == 8));
        frontdoor_scripts_destroy(s);
    }
}

TEST(too_many_aliases)
{
    struct frontdoor_scripts *s;
    char errmsg[256];
    assert_int_equal(frontdoor_scripts_create(&s), 0);
    for (unsigned i = 0; i <= FRONTDOOR_ALIASES_MAX; i++) {
        char line[80];
        (void)snprintf(line, sizeof line, "%040x = release\n", i);
        assert_int_equal(frontdoor_scripts_alias(s, text(line), errmsg, sizeof errmsg),
                         i < FRONTDOOR_ALIASES_MAX ? 0 : FL_EINVAL);
    }
    assert_string_equal(errmsg, "line 1: there are more than 256 aliases");
    frontdoor_scripts_destroy(s);
}

/* ---- requests -------------------------------------------------------------------------------- */

struct asked {
    int rc;
    struct frontdoor_request r;
    char errmsg[FRONTDOOR_ERRMSG_SIZE];
};

#define T1 "4e92fdc63815b3a0a2dd1c1df3694de73607c88d"

/* The options --front-door-shared and --front-door-del. */
static bool shared, del;

static struct asked ask(enum fli_command_id id, const char *line)
{
    static char copy[8192];
    struct asked a = {.rc = 0};
    struct fli_slice args[64];
    unsigned n = 0;
    struct frontdoor_scripts *s;
    assert_int_equal(frontdoor_scripts_create(&s), 0);
    struct frontdoor_context c = {.scripts = s, .shared = shared, .del = del, .wall_ms = 1000000};
    (void)snprintf(copy, sizeof copy, "%s", line);
    for (char *save = NULL, *word = strtok_r(copy, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save)) {
        args[n++] = strcmp(word, "''") == 0 ? text("") : text(word);
    }
    a.rc = frontdoor_request_parse(&c, id, args, n, &a.r, a.errmsg);
    frontdoor_scripts_destroy(s);
    return a;
}

TEST(set)
{
    static const struct {
        const char *line;
        uint8_t change;
        uint64_t ttl_ms;
    } good[] = {
        {"k v NX PX 500", MACHINE_KEYS_GRANT, 500},
        {"k v px 500 nx", MACHINE_KEYS_GRANT, 500},
        {"k v EX 5 NX", MACHINE_KEYS_GRANT, 5000},
        {"k v PXAT 1000500 NX", MACHINE_KEYS_GRANT, 500},
        {"k v NX EXAT 1005", MACHINE_KEYS_GRANT, 5000},
        {"k v NX", MACHINE_KEYS_GRANT, FL_TTL_MAX_MS},
        {"k v NX PX 1", MACHINE_KEYS_GRANT, FL_TTL_MIN_MS},
        {"k v NX PX 10", MACHINE_KEYS_GRANT, 10},
        {"k v NX PX 86400000", MACHINE_KEYS_GRANT, FL_TTL_MAX_MS},
        {"k v NX PX 86400001", MACHINE_KEYS_GRANT, FL_TTL_MAX_MS},
        {"k v NX PX 31557600000000", MACHINE_KEYS_GRANT, FL_TTL_MAX_MS},
        {"k v NX EX 9223372036854775807", MACHINE_KEYS_GRANT, FL_TTL_MAX_MS},
        {"k v XX PX 500", MACHINE_KEYS_EXTEND, 500},
        {"k v XX KEEPTTL", MACHINE_KEYS_EXTEND, 0},
        {"k v XX", MACHINE_KEYS_EXTEND, FL_TTL_MAX_MS},
        {"k v PX 500", MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND, 500},
        {"k v", MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND, FL_TTL_MAX_MS},
        {"k v IFEQ v PX 500", MACHINE_KEYS_EXTEND, 500},
        {"k v IFEQ w PX 500", MACHINE_KEYS_RELEASE, 500},
        {"k v IFEQ w KEEPTTL", MACHINE_KEYS_RELEASE, 0},
        {"k v NX KEEPTTL", MACHINE_KEYS_GRANT, FL_TTL_MAX_MS},
        {"k v NX GET", MACHINE_KEYS_GRANT, FL_TTL_MAX_MS},
        {"k v get XX PX 500", MACHINE_KEYS_EXTEND, 500},
        {"k v GET", MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND, FL_TTL_MAX_MS},
    };
    static const char *const bad[] = {
        "k v NX PX 0",
        "k v NX PX -5",
        "k v NX PX five",
        "k v NX PX",
        "k v NX XX",
        "k v PX 5 EX 5",
        "k v PX 5 KEEPTTL",
        "k v NX IFEQ w",
        "k v NX NY",
        "k v KEEPTTL",
        "k v IFEQ w GET",
        "k v IFEQ",
        "k v NX PXAT 999",
        "k v FENCE lock 7",
        "'' v NX PX 500",
        "k '' NX PX 500",
        "k v NX PX 99999999999999999999",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct asked a = ask(FLI_CMD_KEY_SET, good[i].line);
        assert_int_equal(a.rc, 0);
        assert_int_equal(a.r.change, good[i].change);
        assert_int_equal(a.r.ttl_ms, good[i].ttl_ms);
        assert_int_equal(a.r.n_keys, 1);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct asked a = ask(FLI_CMD_KEY_SET, bad[i]);
        assert_int_equal(a.rc, FL_EINVAL);
        assert_true(strlen(a.errmsg) > 10);
    }
    assert_string_equal(ask(FLI_CMD_KEY_SET, "k v NX PX 0").errmsg,
                        "invalid expire time in 'set' command");
}

static void answers_are(const struct asked *a, unsigned granted, unsigned own, unsigned other,
                        unsigned absent)
{
    assert_int_equal(a->rc, 0);
    assert_int_equal(a->r.answers.granted, granted);
    assert_int_equal(a->r.answers.own, own);
    assert_int_equal(a->r.answers.other, other);
    assert_int_equal(a->r.answers.absent, absent);
}

TEST(set_and_get)
{
    struct asked a = ask(FLI_CMD_KEY_SET, "k v NX GET");
    answers_are(&a, FRONTDOOR_NIL, FRONTDOOR_SENT, FRONTDOOR_VALUE, FRONTDOOR_NEVER);
    assert_true(a.r.fetches);
    a = ask(FLI_CMD_KEY_SET, "k v XX GET");
    answers_are(&a, FRONTDOOR_NEVER, FRONTDOOR_SENT, FRONTDOOR_ERROR_HELD, FRONTDOOR_NIL);
    assert_false(a.r.fetches);
    a = ask(FLI_CMD_KEY_SET, "k v GET");
    answers_are(&a, FRONTDOOR_NIL, FRONTDOOR_SENT, FRONTDOOR_ERROR_HELD, FRONTDOOR_NEVER);
}

/* --front-door-shared: a change that one node has made counts as made at the others. */
TEST(one_of_several)
{
    shared = true;
    struct asked a = ask(FLI_CMD_KEY_SET, "k v NX PX 500");
    assert_int_equal(a.r.change, MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND);
    answers_are(&a, FRONTDOOR_OK, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NEVER);
    a = ask(FLI_CMD_KEY_SET, "k v NX GET PX 500");
    answers_are(&a, FRONTDOOR_NIL, FRONTDOOR_NIL, FRONTDOOR_VALUE, FRONTDOOR_NEVER);
    assert_int_equal(ask(FLI_CMD_KEY_SET, "k v XX PX 500").r.change, MACHINE_KEYS_EXTEND);
    assert_int_equal(ask(FLI_CMD_KEY_SET, "k v IFEQ w PX 500").r.change, MACHINE_KEYS_RELEASE);
    assert_int_equal(ask(FLI_CMD_KEY_SET, "k v IFEQ w PX 500").r.keep_ms, 0);
    a = ask(FLI_CMD_EVALSHA, T1 " 1 k v");
    assert_true(a.r.change == MACHINE_KEYS_RELEASE && a.r.keep_ms == MACHINE_RELEASED_MS);
    a = ask(FLI_CMD_DELIFEQ, "k v");
    assert_true(a.r.change == MACHINE_KEYS_RELEASE && a.r.keep_ms == MACHINE_RELEASED_MS);
    assert_int_equal(ask(FLI_CMD_KEY_GET, "k").r.change, 0);
    shared = false;
}

#define ANY_RELEASE (MACHINE_KEYS_RELEASE | MACHINE_KEYS_EACH)

TEST(keys_of_any_owner)
{
    static const char *const bad[] = {"k", "k soon", "k 500 NX", "k 500 XX XX", "k 500 GT"};
    del = true;
    for (unsigned i = 0; i < 2; i++) {
        struct asked a = ask(i == 0 ? FLI_CMD_KEY_DEL : FLI_CMD_UNLINK, "k l");
        assert_true(a.rc == 0 && a.r.change == ANY_RELEASE && a.r.value.len == 0 &&
                    a.r.n_keys == 2 && a.r.ttl_ms == 0);
    }
    struct asked a = ask(FLI_CMD_PEXPIRE, "k 500 xx");
    assert_true(a.rc == 0 && a.r.change == (MACHINE_KEYS_EXTEND | MACHINE_KEYS_EACH) &&
                a.r.ttl_ms == 500);
    a = ask(FLI_CMD_PEXPIRE, "k -5"); /* its time is over */
    assert_true(a.rc == 0 && a.r.change == ANY_RELEASE && a.r.ttl_ms == 0);
    for (size_t i = 1; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ask(FLI_CMD_PEXPIRE, bad[i]).rc, FL_EINVAL);
    }
    assert_int_equal(ask(FLI_CMD_DELEX, "k").rc, FL_EINVAL); /* still has to say whose */
    del = false;
}

TEST(lengths)
{
    char line[700];
    char word[300];
    memset(word, 'x', sizeof word);
    for (size_t len = FL_NAME_MAX; len <= FL_NAME_MAX + 1; len++) {
        (void)snprintf(line, sizeof line, "%.*s v NX", (int)len, word);
        assert_int_equal(ask(FLI_CMD_KEY_SET, line).rc, len <= FL_NAME_MAX ? 0 : FL_EINVAL);
        (void)snprintf(line, sizeof line, "k %.*s NX", (int)len, word);
        assert_int_equal(ask(FLI_CMD_KEY_SET, line).rc, len <= FL_OWNER_MAX ? 0 : FL_EINVAL);
    }
    assert_int_equal(ask(FLI_CMD_EXISTS, "1 2 3 4 5 6 7 8 9 a b c d e f g").rc, 0);
    assert_int_equal(ask(FLI_CMD_EXISTS, "1 2 3 4 5 6 7 8 9 a b c d e f g h").rc, FL_EINVAL);
    assert_int_equal(ask(FLI_CMD_EXISTS, "1 2 1").rc, FL_EINVAL);
}

#define T2 "ceb2b2062e40c51a2b3963fd078bc71f11bdc65c"
#define T14 "a4e8783852e6b949f9ef3a97212805108459a890"
#define T9 "90da91872223f85eb1376a17e3c4df21ace8c54b"
#define T10 "fed16109024d968d9496e4140fe1355bac05ebff"
#define T19 "6ecaa08b5be852b9cfeb602b7097fac117801aa5"
#define T21 "96da70f7716f27d278a5218544df37fd8b0a5e4c"

TEST(scripts)
{
    struct asked a = ask(FLI_CMD_EVALSHA, T1 " 1 k v");
    assert_int_equal(a.rc, 0);
    assert_int_equal(a.r.change, MACHINE_KEYS_RELEASE);
    assert_int_equal(ask(FLI_CMD_EVALSHA, T2 " 1 k v 500 yes").r.change,
                     MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND);
    assert_int_equal(ask(FLI_CMD_EVALSHA, T2 " 1 k v 500 no").r.change, MACHINE_KEYS_EXTEND);
    assert_int_equal(ask(FLI_CMD_EVALSHA, T14 " 1 k v 500 0").r.change,
                     MACHINE_KEYS_EXTEND | MACHINE_KEYS_ADD);
    assert_int_equal(ask(FLI_CMD_EVALSHA, T14 " 1 k v 500 1").r.change, MACHINE_KEYS_EXTEND);
    a = ask(FLI_CMD_EVALSHA, T10 " 2 k signal v 5");
    assert_int_equal(a.r.n_keys, 1);
    assert_int_equal(a.r.ttl_ms, 5000);
    assert_int_equal(ask(FLI_CMD_EVALSHA, T9 " 1 k v 5").rc, FL_EINVAL);
    assert_int_equal(ask(FLI_CMD_EVALSHA, T19 " 1 k v w 500").r.change,
                     MACHINE_KEYS_RELEASE | MACHINE_KEYS_GRANT);
    a = ask(FLI_CMD_EVALSHA, T19 " 1 k v v 500");
    assert_int_equal(a.r.change, MACHINE_KEYS_EXTEND | MACHINE_KEYS_GRANT);
    assert_int_equal(a.r.new_value.len, 0);
    assert_int_equal(ask(FLI_CMD_EVALSHA, T21 " 3 a b c v 500").r.n_keys, 3);
    static const struct {
        const char *line, *says;
    } bad[] = {
        {T1 " -1 k v", "Number of keys can't be negative"},
        {T1 " x k v", "value is not an integer or out of range"},
        {T1 " 3 k v", "Number of keys can't be greater than number of args"},
        {T1 " 0 k v", "this script (release) takes 1 key, not 0"},
        {T1 " 1 k", "this script (release) takes 1 arguments behind its keys, not 0"},
        {T1 " 1 k ''", "a value says whose the lock is: 1 to 255 bytes, not 0"},
        {T14 " 1 k v 0 1", "invalid expire time in 'pexpire' command"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        a = ask(FLI_CMD_EVALSHA, bad[i].line);
        assert_int_equal(a.rc, FL_EINVAL);
        assert_string_equal(a.errmsg, bad[i].says);
    }
    a = ask(FLI_CMD_EVALSHA, A40 " 1 k v");
    assert_int_equal(a.rc, FL_ENOTFOUND);
    assert_string_equal(frontdoor_error_word(a.rc), "NOSCRIPT");
    assert_string_equal(a.errmsg, "No matching script. Please use EVAL.");
    a = ask(FLI_CMD_EVAL, "return 0");
    assert_int_equal(a.rc, FL_EINVAL); /* numkeys is 0 */
    a = ask(FLI_CMD_EVAL, "return 1 k");
    assert_true(strstr(a.errmsg, "script 63143b6f8007b98c53ca2149822777b3566f9241 is none") !=
                NULL);
}

TEST(unguarded)
{
    assert_int_equal(ask(FLI_CMD_KEY_DEL, "k").rc, FL_EINVAL);
    assert_int_equal(ask(FLI_CMD_UNLINK, "k").rc, FL_EINVAL);
    assert_int_equal(ask(FLI_CMD_PEXPIRE, "k 500").rc, FL_EINVAL);
    assert_int_equal(ask(FLI_CMD_DELEX, "k").rc, FL_EINVAL);
    assert_int_equal(ask(FLI_CMD_DELEX, "k IFNE v").rc, FL_EINVAL);
    assert_int_equal(ask(FLI_CMD_DELEX, "k ifeq v").r.change, MACHINE_KEYS_RELEASE);
    assert_int_equal(ask(FLI_CMD_DELIFEQ, "k v").r.change, MACHINE_KEYS_RELEASE);
    assert_int_equal(ask(FLI_CMD_LOCKTOKEN, "k v").r.answers.own, FRONTDOOR_TOKEN);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void check_reply_with(const char *value, enum frontdoor_answer answer, const char *resp2,
                             const char *resp3)
{
    struct frontdoor_answers answers = {.own = (uint8_t)answer};
    struct frontdoor_result r = {
        .outcome = FRONTDOOR_OWN, .count = 3, .left_ms = 1500, .token = 34, .value = text(value)};
    for (int proto = 2; proto <= 3; proto++) {
        struct fli_buf b;
        fli_buf_init(&b, 4096);
        assert_int_equal(frontdoor_reply(&b, proto, &answers, &r), 0);
        const char *want = proto == 3 && resp3 != NULL ? resp3 : resp2;
        assert_int_equal(b.len, strlen(want));
        assert_memory_equal(b.data, want, b.len);
        fli_buf_fini(&b);
    }
}

static void check_reply(enum frontdoor_answer answer, const char *resp2, const char *resp3)
{
    check_reply_with("me", answer, resp2, resp3);
}

/* A key that is taken has a value in any case: neither nil nor an empty string. */
TEST(replies_without_an_owner)
{
    check_reply_with("", FRONTDOOR_VALUE, "$7\r\n(taken)\r\n", NULL);
    check_reply_with("", FRONTDOOR_VALUE_PTTL, "*2\r\n$7\r\n(taken)\r\n:1500\r\n", NULL);
    check_reply_with("", FRONTDOOR_NIL, "$-1\r\n", "_\r\n");
    check_reply_with("", FRONTDOOR_NIL_PTTL, "*2\r\n$-1\r\n:-2\r\n", "*2\r\n_\r\n:-2\r\n");
}

TEST(replies)
{
    check_reply(FRONTDOOR_OK, "+OK\r\n", NULL);
    check_reply(FRONTDOOR_NIL, "$-1\r\n", "_\r\n");
    check_reply(FRONTDOOR_INT_0, ":0\r\n", NULL);
    check_reply(FRONTDOOR_INT_1, ":1\r\n", NULL);
    check_reply(FRONTDOOR_INT_2, ":2\r\n", NULL);
    check_reply(FRONTDOOR_INT_MINUS_1, ":-1\r\n", NULL);
    check_reply(FRONTDOOR_INT_MINUS_2, ":-2\r\n", NULL);
    check_reply(FRONTDOOR_INT_MINUS_3, ":-3\r\n", NULL);
    check_reply(FRONTDOOR_COUNT, ":3\r\n", NULL);
    check_reply(FRONTDOOR_VALUE, "$2\r\nme\r\n", NULL);
    check_reply(FRONTDOOR_PTTL, ":1500\r\n", NULL);
    check_reply(FRONTDOOR_TTL, ":2\r\n", NULL);
    check_reply(FRONTDOOR_VALUE_PTTL, "*2\r\n$2\r\nme\r\n:1500\r\n", NULL);
    check_reply(FRONTDOOR_NIL_PTTL, "*2\r\n$-1\r\n:-2\r\n", "*2\r\n_\r\n:-2\r\n");
    check_reply(FRONTDOOR_TOKEN, ":34\r\n", NULL);
    check_reply(FRONTDOOR_ERROR_WORD, "-ERROR another value has the key\r\n", NULL);
}

/* ---- MONITOR --------------------------------------------------------------------------------- */

TEST(monitor_lines)
{
    uint8_t room[256];
    struct frontdoor_monitored m;
    assert_true(frontdoor_monitor_read(
        text("1339518083.107412 [0 127.0.0.1:60866] \"set\" \"a\\\"b\" \"\\x00\\xff\\n\\\\\" \"\""),
        room, &m));
    assert_int_equal(m.n, 4);
    assert_false(m.script);
    assert_int_equal(m.words[1].len, 3);
    assert_memory_equal(m.words[1].data, "a\"b", 3);
    assert_int_equal(m.words[2].len, 4);
    assert_memory_equal(m.words[2].data, "\0\xff\n\\", 4);
    assert_int_equal(m.words[3].len, 0);
    assert_true(frontdoor_monitor_read(text("1.1 [0 lua] \"get\" \"k\""), room, &m));
    assert_true(m.script);
    static const char *const bad[] = {"",
                                      "OK",
                                      "1 [0 x]",
                                      "1 [0 x] set",
                                      "1 [0 x] \"",
                                      "1 [0 x] \"a",
                                      "1 [0 x] \"a\\\"",
                                      "1 [0 x] \"\\q\"",
                                      "1 [0 x] \"\\x0\"",
                                      "1 [0 x] \"a\"b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(frontdoor_monitor_read(text(bad[i]), room, &m));
    }
}

TEST(monitor_verdicts)
{
    static const struct {
        const char *line, *what, *why, *key;
        bool served;
    } rows[] = {
        {"\"SET\" \"k\" \"v\" \"nx\" \"px\" \"500\"", "SET", "", "k", true},
        {"\"SET\" \"k\" \"v\" \"GET\" \"NX\"", "SET", "", "k", true},
        {"\"SET\" \"k\" \"v\" \"IFNE\" \"w\"", "SET", "syntax error", "k", false},
        {"\"ping\"", "PING", "", "", true},
        {"\"client\" \"setinfo\" \"lib-name\" \"x\"", "CLIENT SETINFO", "", "", true},
        {"\"evalsha\" \"" T1 "\" \"1\" \"k\" \"v\"", "script release", "", "k", true},
        {"\"evalsha\" \"" A40 "\" \"1\" \"k\" \"v\"", "script " A40, "its text was not", "k",
         false},
        {"\"eval\" \"return 1\" \"1\" \"k\"", "script e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
         "script e0e1", "k", false},
        {"\"del\" \"k\"", "DEL", "DEL does not say", "k", false},
        {"\"hset\" \"k\" \"f\" \"v\"", "HSET", "unknown command", "k", false},
        {"\"script\" \"load\" \"return 1\"", "SCRIPT LOAD", "script e0e1", "", false},
    };
    struct frontdoor_scripts *s;
    assert_int_equal(frontdoor_scripts_create(&s), 0);
    struct frontdoor_context c = {.scripts = s, .wall_ms = 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[512];
        uint8_t room[512];
        struct frontdoor_monitored m;
        struct frontdoor_verdict v;
        (void)snprintf(line, sizeof line, "1.1 [0 127.0.0.1:1] %s", rows[i].line);
        assert_true(frontdoor_monitor_read(text(line), room, &m));
        frontdoor_monitor_check(&c, &m, &v);
        assert_string_equal(v.what, rows[i].what);
        assert_int_equal(v.served, rows[i].served);
        assert_true(strncmp(v.why, rows[i].why, strlen(rows[i].why)) == 0);
        assert_true(v.served == (v.why[0] == '\0'));
        struct fli_slice key = frontdoor_monitor_key(&m);
        assert_int_equal(key.len, strlen(rows[i].key));
    }
    frontdoor_scripts_destroy(s);
}
