/* test_frontdoor_trial.c: each row of the front door's table holds what its script says, in a lock
 * machine; a row that does not is found, and the step is named. */
#include <stdio.h>

#include "frontdoor/trial.h"
#include "unit.h"

static struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

struct asked {
    struct frontdoor_monitored m;
    struct frontdoor_context context;
    char room[2][8];
};

static void add(struct asked *a, const char *word)
{
    a->m.words[a->m.n++] = text(word);
}

static void set_up(struct asked *a, const char *command)
{
    a->m = (struct frontdoor_monitored){.n = 0};
    a->context = (struct frontdoor_context){.wall_ms = 1};
    assert_int_equal(frontdoor_scripts_create(&a->context.scripts), 0);
    add(a, command);
}

static struct frontdoor_trial try(struct asked *a)
{
    struct frontdoor_trial ret;
    assert_true(frontdoor_try(&a->context, &a->m, &ret));
    frontdoor_scripts_destroy(a->context.scripts);
    return ret;
}

/* The arguments of a form, each at its place: the value "me", any number 7777. */
static void add_arguments(struct asked *a, const struct frontdoor_form *f, const char *word)
{
    const char *argv[5] = {"7777", "7777", "7777", "7777", "7777"};
    static const char *const keys[] = {"k1", "k2", "k3"};
    unsigned n = f->keys_min > 1 || f->keys_max < 2 ? f->keys_min : 2;
    snprintf(a->room[0], sizeof a->room[0], "%u", n);
    add(a, a->room[0]);
    for (unsigned i = 0; i < n; i++) {
        add(a, keys[i]);
    }
    if (f->value_at > 0) {
        argv[f->value_at - 1] = "me";
    }
    if (f->new_value_at > 0) {
        argv[f->new_value_at - 1] = "next";
    }
    if (f->word_at > 0) {
        argv[f->word_at - 1] = word;
    }
    if (f->empty_at > 0) {
        argv[f->empty_at - 1] = "";
    }
    for (unsigned i = 0; i < (f->each ? 1 + n : f->empty_at > 0 ? f->empty_at : 5); i++) {
        add(a, f->each && i > 0 ? "me" : argv[i]);
    }
}

TEST(each_form_holds)
{
    for (size_t i = 0; i < frontdoor_forms_len; i++) {
        const struct frontdoor_form *f = &frontdoor_forms[i];
        for (unsigned with = 0; with < (f->word_at > 0 ? 2u : 1u); with++) {
            struct asked a;
            set_up(&a, "EVAL");
            add(&a, f->script);
            add_arguments(&a, f, with == 0 ? "other" : f->word);
            struct frontdoor_trial t = try(&a);
            if (!t.holds) {
                print_error("%s: %s: %s\n", f->name, t.why, t.saw);
            }
            assert_true(t.holds);
        }
    }
}

static struct frontdoor_trial try_words(const char *words)
{
    static char room[256];
    struct asked a;
    snprintf(room, sizeof room, "%s", words);
    char *word = room;
    set_up(&a, word);
    while ((word = memchr(word, ' ', strlen(word))) != NULL) {
        *word++ = '\0';
        add(&a, word);
    }
    a.m.words[0] = text(room);
    for (unsigned i = 1; i < a.m.n; i++) {
        a.m.words[i] = text((const char *)a.m.words[i].data);
    }
    return try(&a);
}

TEST(each_command_holds)
{
    static const char *const rows[] = {"SET k me NX PX 7777",
                                       "SET k me NX GET EX 7",
                                       "SET k me NX PXAT 999999",
                                       "SET k me XX PX 7777",
                                       "SET k me XX KEEPTTL",
                                       "SET k me XX GET PX 7777",
                                       "SET k me PX 7777",
                                       "SET k me",
                                       "SET k next IFEQ me PX 7777",
                                       "SET k next IFEQ me KEEPTTL",
                                       "SET k me IFEQ me PX 7777",
                                       "GET k",
                                       "EXISTS k",
                                       "EXISTS k k2",
                                       "TTL k",
                                       "PTTL k",
                                       "DELEX k IFEQ me",
                                       "DELIFEQ k me",
                                       "HEXISTS k me",
                                       "HGET k me",
                                       "LOCKTOKEN k me",
                                       "EVALSHA cf0e94b2e9ffc7e04395cf88f7583fc309985910 1 k me"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct frontdoor_trial t = try_words(rows[i]);
        if (!t.holds) {
            print_error("%s: %s: %s\n", rows[i], t.why, t.saw);
        }
        assert_true(t.holds);
    }
    assert_string_equal(
        try_words("SET k me NX PX 7777").saw,
        "a free lock: taken (+OK); another holder's: stays as it is ($-1); its own: stays as it is "
        "($-1); its own, but over: taken (+OK)");
    assert_string_equal(
        try_words("DELIFEQ k me").saw,
        "a free lock: stays free (:0); another holder's: stays as it is (:0); its own: given back "
        "(:1); its own, but over: stays free (:0)");
}

/* A script, and a row of the table that says something else of it. */
static struct frontdoor_trial try_planted(const char *form, const struct frontdoor_form *row)
{
    uint8_t sha1[FLI_SHA1_SIZE];
    struct asked a;
    char script[512];
    const struct frontdoor_form *f = frontdoor_form_find(text(form));
    assert_non_null(f);
    /* Another text with the same words: the table does not know it. */
    snprintf(script, sizeof script, "%s local unused = 0", f->script);
    set_up(&a, "EVAL");
    fli_sha1_of(script, strlen(script), sha1);
    assert_true(frontdoor_scripts_add_alias(a.context.scripts, sha1, row));
    add(&a, script);
    add_arguments(&a, f, "yes");
    return try(&a);
}

TEST(a_wrong_row_is_found)
{
    struct frontdoor_form row;
#define PLANT(form, change, said)                                                                  \
    do {                                                                                           \
        row = *frontdoor_form_find(text(form));                                                    \
        change;                                                                                    \
        struct frontdoor_trial t = try_planted(form, &row);                                        \
        assert_string_equal(t.why, said);                                                          \
        assert_false(t.holds);                                                                     \
    } while (0)
    PLANT("release", (row.change = MACHINE_KEYS_RELEASE | MACHINE_KEYS_EACH, row.value_at = 0),
          "another holder's: it is changed");
    PLANT("release", (row.change = MACHINE_KEYS_EXTEND, row.ttl_at = 2),
          "its own: it is not given back");
    PLANT("release", row.answers.other = row.answers.own,
          "its own: the answer is the same as for another holder's lock");
    PLANT("release", row.answers.own = FRONTDOOR_NEVER, "its own: there is no answer to it");
    PLANT("extend", row.change = MACHINE_KEYS_RELEASE,
          "its own: it is given back, though nothing in the request does that");
    PLANT("extend", row.change = MACHINE_KEYS_EXTEND | MACHINE_KEYS_GRANT,
          "a free lock: it is taken, though nothing in the request takes a lock");
    PLANT("extend", (row.change = 0, row.ttl_at = 0), "its own: its lease is not prolonged");
    PLANT("pttl-if-own", (row.change = MACHINE_KEYS_EXTEND, row.ttl_at = 2),
          "its own: it changes, though nothing in the request does that");
    PLANT("set-if-own-or-absent", row.answers.other = row.answers.granted,
          "a free lock: the answer is the same as for another holder's lock");
    PLANT("replace",
          (row.new_value_at = 0, row.change = MACHINE_KEYS_RELEASE,
           row.answers.absent = FRONTDOOR_NIL),
          "its own: it is given back, though nothing in the request does that");
    PLANT("enter", row.change &= (uint8_t)~MACHINE_KEYS_COUNT, "a free lock: it is not counted");
    PLANT("leave", row.change &= (uint8_t)~MACHINE_KEYS_COUNT,
          "its own, taken twice: it is not given back once, of two times");
}

/* The words of a text of some library, which the table knows as this form. */
TEST(other_words_for_the_same)
{
    static const struct {
        const char *form, *script;
    } rows[] = {
        {"obtain-all", "if redis.call('MSETNX', KEYS[1], ARGV[1]) == 1 then "
                       "redis.call('PEXPIREAT', KEYS[1], ARGV[3]) return {ok = 'OK'} end"},
        {"release", "return redis.call('getrange', KEYS[1], 0, 1) and redis.call('unlink', k)"},
        {"leave-silently", "redis.call('hget', KEYS[1], ARGV[2]) redis.call('hincrby', 'k', 'f', "
                           "-1) redis.call('hdel', KEYS[1], ARGV[2])"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t sha1[FLI_SHA1_SIZE];
        struct asked a;
        const struct frontdoor_form *f = frontdoor_form_find(text(rows[i].form));
        set_up(&a, "EVAL");
        fli_sha1_of(rows[i].script, strlen(rows[i].script), sha1);
        assert_true(frontdoor_scripts_add_alias(a.context.scripts, sha1, f));
        add(&a, rows[i].script);
        add_arguments(&a, f, "yes");
        assert_string_equal(try(&a).why, "");
    }
}

/* Commands that are not served, and those about no lock. */
TEST(nothing_to_try)
{
    static const char *const rows[] = {"PING", "DEL", "NONSENSE", "SCRIPT"};
    struct frontdoor_trial t;
    struct asked a;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up(&a, rows[i]);
        if (i == 1) {
            add(&a, "k");
        } else if (i == 3) {
            add(&a, "FLUSH");
        }
        assert_false(frontdoor_try(&a.context, &a.m, &t));
        frontdoor_scripts_destroy(a.context.scripts);
    }
}
