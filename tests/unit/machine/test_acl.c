/* test_acl.c: the words of users, their rights, and their bytes. */
#include "fixture.h"

#include "machine/acl.h"

static struct fli_slice slice(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

#define SALT "00112233445566778899aabbccddeeff"
#define KEY SALT SALT
#define HASH "scrypt:14:8:1:" SALT ":" KEY
#define HASH2 "scrypt:15:8:1:" SALT ":" KEY

static struct acl_user made(const char *words)
{
    struct acl_user u;
    char why[200] = "";
    acl_user_init(&u, slice("ann"));
    int rc = acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, why, sizeof why);
    if (rc != 0) {
        fail_msg("'%s' is refused: %s", words, why);
    }
    return u;
}

static bool may(const struct acl_user *u, unsigned right, const char *name)
{
    uint64_t steps = 0;
    return acl_may(u, right, slice(name), &steps);
}

static void expect_print(const struct acl_user *u, const char *text)
{
    struct fli_buf b;
    fli_buf_init(&b, 8192);
    assert_int_equal(acl_print(u, &b), 0);
    assert_int_equal(fli_buf_append(&b, "", 1), 0);
    assert_string_equal((const char *)b.data, text);
    fli_buf_fini(&b);
}

TEST(a_new_user_may_nothing)
{
    struct acl_user u = made("");
    assert_false(u.on || u.nopass);
    assert_false(may(&u, ACL_SEE, "x") || acl_may_some(&u, ACL_ADMIN));
    expect_print(&u, "off -@all");
}

TEST(words_say_what_a_user_may)
{
    struct acl_user u = made("on ~orders:* ~audit +@acquire +@see -@see");
    assert_true(u.on);
    assert_true(may(&u, ACL_ACQUIRE, "orders:1") && may(&u, ACL_ACQUIRE, "audit"));
    assert_false(may(&u, ACL_ACQUIRE, "audit1") || may(&u, ACL_ACQUIRE, "orders"));
    assert_false(may(&u, ACL_SEE, "orders:1") || may(&u, ACL_BREAK, "orders:1"));
    expect_print(&u, "on ~orders:* ~audit +@acquire");
    u = made("on +@all ~a");
    expect_print(&u, "on ~a +@all");
    assert_true(may(&u, ACL_BREAK, "a") && acl_may_some(&u, ACL_ADMIN));
    assert_false(acl_is_open(&u));
    u = made("on +@all -@admin ~*");
    expect_print(&u, "on ~* +@see +@acquire +@token +@break");
    u = made("allkeys allcommands nopass on");
    assert_true(acl_is_open(&u));
    u = made("~a ~b allkeys resetkeys ~c +@see");
    assert_true(may(&u, ACL_SEE, "c"));
    assert_false(may(&u, ACL_SEE, "a"));
    u = made("on +@all ~* nopass (~x +@see) reset");
    expect_print(&u, "off -@all");
}

TEST(a_selector_gives_rights_to_other_names)
{
    struct acl_user u = made("on ~a* +@acquire (~b* ~c +@see +@break) (~* +@token)");
    assert_true(may(&u, ACL_ACQUIRE, "a1") && may(&u, ACL_SEE, "b1") && may(&u, ACL_BREAK, "c"));
    assert_false(may(&u, ACL_ACQUIRE, "b1") || may(&u, ACL_SEE, "a1") || may(&u, ACL_SEE, "cc"));
    assert_true(acl_may_all(&u, ACL_TOKEN) && !acl_may_all(&u, ACL_SEE));
    expect_print(&u, "on ~a* +@acquire (~b* ~c +@see +@break) (~* +@token)");
    struct acl_user again = made("on ~a* +@acquire (~b* ~c +@see +@break) (~* +@token) ~more "
                                 "resetkeys ~a*");
    assert_memory_equal(&u, &again, sizeof u);
    u = made("on ~a* +@acquire (~b* +@see) clearselectors");
    expect_print(&u, "on ~a* +@acquire");
}

TEST(patterns_have_escapes)
{
    struct acl_user u = made("~a\\*b ~[x-z]? ~\\[q ~tab\\\\ +@see");
    assert_true(may(&u, ACL_SEE, "a*b") && may(&u, ACL_SEE, "y1") && may(&u, ACL_SEE, "[q"));
    assert_true(may(&u, ACL_SEE, "tab\\"));
    assert_false(may(&u, ACL_SEE, "axb") || may(&u, ACL_SEE, "w1") || may(&u, ACL_SEE, "q"));
    expect_print(&u, "off ~a\\*b ~[x-z]? ~\\[q ~tab\\\\ +@see");
}

TEST(passwords_are_hashes)
{
    struct acl_user u = made("on nopass #" HASH " #" HASH);
    assert_int_equal(u.n_passwords, 1);
    assert_false(u.nopass);
    expect_print(&u, "on #" HASH " -@all");
    u = made("#" HASH " #" HASH2 " !" HASH);
    expect_print(&u, "off #" HASH2 " -@all");
    u = made("#" HASH " nopass");
    expect_print(&u, "off nopass -@all");
    u = made("nopass resetpass");
    expect_print(&u, "off -@all");
}

TEST(wrong_words_change_nothing)
{
    static const char *const wrong[] = {
        "foo",
        "+see",
        "+@read",
        "-@foo",
        "+@",
        "@see",
        ">clear",
        "#abc",
        "#",
        "!" HASH,
        "#scrypt:17:8:1:" SALT ":" KEY,
        "#scrypt:9:8:1:" SALT ":" KEY,
        "#scrypt:14:9:1:" SALT ":" KEY,
        "#scrypt:14:8:0:" SALT ":" KEY,
        "#scrypt:14:8:1:" SALT ":" SALT,
        "#sha:14:8:1:" SALT ":" KEY,
        "~",
        "~* ~a",
        "~a\tb",
        "(",
        "(~a",
        "(on)",
        "(~a (~b))",
        "((~a)",
        "(~a\\) +@see)",
        "(~a)) +@see)",
        "(#" HASH ")",
        ")",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct acl_user u = made("on ~keep +@see");
        struct acl_user before = u;
        char why[200] = "";
        char words[400];
        (void)snprintf(words, sizeof words, "+@break %s", wrong[i]);
        if (acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, why, sizeof why) != FL_EINVAL) {
            fail_msg("'%s' is not refused", wrong[i]);
        }
        assert_true(strlen(why) > 10);
        assert_memory_equal(&u, &before, sizeof u);
    }
}

TEST(there_are_limits)
{
    char words[4000] = "";
    char why[200];
    struct acl_user u = made("");
    for (unsigned i = 0; i < ACL_PASSWORDS_MAX; i++) {
        (void)snprintf(words, sizeof words,
                       "#scrypt:14:8:1:%02x112233445566778899aabbccddeeff:" KEY, i);
        assert_int_equal(acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, why, sizeof why), 0);
    }
    assert_int_equal(acl_apply(&u, slice("#" HASH2), ACL_LOCK_RIGHTS, why, sizeof why), FL_ELIMIT);
    u = made("(~a) (~b) (~c) (~d) (~e) (~f) (~g)");
    assert_int_equal(u.n_rules, ACL_RULES_MAX);
    assert_int_equal(acl_apply(&u, slice("(~h)"), ACL_LOCK_RIGHTS, why, sizeof why), FL_ELIMIT);

    memset(words, 'p', sizeof words);
    words[0] = '~';
    words[1 + ACL_PATTERN_MAX] = '\0';
    u = made("");
    for (unsigned i = 0; i < 7; i++) { /* 7 of 257 bytes, 249 are left */
        words[1] = (char)('a' + i);
        assert_int_equal(acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, why, sizeof why), 0);
    }
    words[1] = 'z';
    words[1 + ACL_PATTERNS_SIZE - 7 * 257 - 2 + 1] = '\0';
    assert_int_equal(acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, why, sizeof why), FL_ELIMIT);
    words[1 + ACL_PATTERNS_SIZE - 7 * 257 - 2] = '\0';
    assert_int_equal(acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, why, sizeof why), 0);
    assert_int_equal(u.patterns_len, ACL_PATTERNS_SIZE);
    memset(words, 'p', sizeof words);
    words[0] = '~';
    words[2 + ACL_PATTERN_MAX] = '\0';
    assert_int_equal(acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, why, sizeof why), FL_EINVAL);
    memset(words, ' ', sizeof words);
    struct fli_slice blanks = {(const uint8_t *)words, ACL_TEXT_MAX};
    assert_int_equal(acl_apply(&u, blanks, ACL_LOCK_RIGHTS, why, sizeof why), 0);
    blanks.len++;
    assert_int_equal(acl_apply(&u, blanks, ACL_LOCK_RIGHTS, why, sizeof why), FL_ELIMIT);
}

TEST(names_are_visible)
{
    char name[ACL_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[ACL_NAME_MAX + 1] = '\0';
    assert_false(acl_name_ok(slice(name)));
    name[ACL_NAME_MAX] = '\0';
    assert_true(acl_name_ok(slice(name)));
    assert_true(acl_name_ok(slice("ann@host")));
    assert_false(acl_name_ok(slice("")) || acl_name_ok(slice("a b")) || acl_name_ok(slice("a\n")));
}

TEST(storage_has_rights_of_its_own)
{
    struct acl_user u;
    char why[200];
    acl_user_init(&u, slice("ann"));
    assert_int_equal(acl_apply(&u, slice("~a +@read +@claim"), ACL_STORE_RIGHTS, why, sizeof why),
                     0);
    assert_true(may(&u, ACL_CLAIM, "a") && !may(&u, ACL_WRITE, "a"));
    assert_int_equal(acl_apply(&u, slice("+@acquire"), ACL_STORE_RIGHTS, why, sizeof why),
                     FL_EINVAL);
}

TEST(bytes_give_the_same_user)
{
    struct acl_user u = made("on #" HASH " ~a* ~b +@acquire (~c +@see) (~* +@token)");
    uint8_t bytes[ACL_ENCODED_MAX];
    size_t len = acl_encode(&u, bytes);
    struct fli_reader r;
    struct acl_user back;
    fli_reader_init(&r, bytes, len);
    assert_true(acl_decode(&r, &back));
    assert_int_equal(fli_reader_left(&r), 0);
    assert_memory_equal(&u, &back, sizeof u);
    for (size_t cut = 0; cut < len; cut++) {
        fli_reader_init(&r, bytes, cut);
        assert_false(acl_decode(&r, &back));
        assert_true(r.bad);
    }
    for (size_t i = 0; i < len; i++) { /* whatever is read can be written, and is the same */
        for (unsigned v = 0; v < 256; v++) {
            uint8_t changed[ACL_ENCODED_MAX];
            uint8_t again[ACL_ENCODED_MAX];
            memcpy(changed, bytes, len);
            changed[i] = (uint8_t)v;
            fli_reader_init(&r, changed, len);
            if (acl_decode(&r, &back)) {
                size_t n = acl_encode(&back, again);
                assert_int_equal(n, len - fli_reader_left(&r));
                assert_memory_equal(again, changed, n);
            }
        }
    }
}
