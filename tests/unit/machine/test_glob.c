/* test_glob.c: patterns of LOCKS MATCH. */
#include "fixture.h"

#include "machine/acl.h"
#include "machine/glob.h"

static bool match(const char *pattern, const char *text)
{
    uint64_t steps = 0;
    return machine_glob_match(fixture_slice(pattern), fixture_slice(text), &steps);
}

TEST(test_table)
{
    const struct {
        const char *pattern, *text;
        bool match;
    } rows[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"*", "", true},
        {"*", "abc", true},
        {"**", "x", true},
        {"a*", "abc", true},
        {"a*", "bc", false},
        {"*c", "abc", true},
        {"*b", "abc", false},
        {"a*c", "abc", true},
        {"a*c", "ac", true},
        {"a*b*c", "aXbYc", true},
        {"a*b*c", "aXcYb", false},
        {"?", "", false},
        {"?", "x", true},
        {"??", "x", false},
        {"a?c", "abc", true},
        {"*?", "", false},
        {"*?", "x", true},
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[a-c]", "b", true},
        {"[c-a]", "b", true},
        {"[a-c]", "d", false},
        {"[^a-c]", "d", true},
        {"[^a-c]", "a", false},
        {"[]a]", "]", true},
        {"[]a]", "a", true},
        {"[a-]", "-", true},
        {"[\\]]", "]", true},
        {"[\\a-\\c]", "b", true},
        {"[abc", "[abc", true},
        {"[abc", "a", false},
        {"[", "[", true},
        {"x[", "x[", true},
        {"[]", "[]", true},
        {"x[^]", "x[^]", true},
        {"[a\\]", "[a]", true},
        {"[a\\\\]", "\\", true},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\?x", "?x", true},
        {"\\[a]", "[a]", true},
        {"\\\\", "\\", true},
        {"\\", "\\", true},
        {"a\\", "a\\", true},
        {"*[ab]?", "xxbz", true},
        {"*[ab]?", "xxzz", false},
        {"*abab", "abaabab", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (match(rows[i].pattern, rows[i].text) != rows[i].match) {
            fail_msg("pattern %s, text %s", rows[i].pattern, rows[i].text);
        }
    }
}

/* By definition, exponentially: only for `*`, `?` and letters, and short. Depth: both lengths. */
static bool naive(const char *p, const char *t)
{
    if (*p == '\0') {
        return *t == '\0';
    }
    if (*p == '*') {
        return naive(p + 1, t) || (*t != '\0' && naive(p, t + 1));
    }
    return *t != '\0' && (*p == '?' || *p == *t) && naive(p + 1, t + 1);
}

TEST(test_against_definition)
{
    uint64_t rng = rng_seed();
    for (unsigned i = 0; i < 20000; i++) {
        char pattern[9] = "";
        char text[11] = "";
        uint64_t n = rng_below(&rng, sizeof pattern);
        for (uint64_t k = 0; k < n; k++) {
            pattern[k] = "ab*?*"[rng_below(&rng, 5)];
        }
        n = rng_below(&rng, sizeof text);
        for (uint64_t k = 0; k < n; k++) {
            text[k] = "ab"[rng_below(&rng, 2)];
        }
        if (match(pattern, text) != naive(pattern, text)) {
            fail_msg("pattern %s, text %s", pattern, text);
        }
    }
}

/* What patterns are made of; the first two are the stars. */
static const char *const ELEMENTS[] = {"*",   "*",       "a",      "a",          "b",
                                       "?",   "[ab]",    "[^a]",   "[a-c]",      "[^b-]",
                                       "\\*", "[]a\\]]", "[^ -~]", "[\x01-\x90]"};
#define ELEMENTS_N (sizeof ELEMENTS / sizeof ELEMENTS[0])

/* By definition: which beginnings of the text the beginning of the pattern matches, element by
 * element. Each alone is matched in the plain way. */
static bool by_elements(const unsigned *elements, unsigned n, const char *text)
{
    bool at[FL_NAME_MAX + 1] = {true};
    size_t len = strlen(text);
    for (unsigned e = 0; e < n; e++) {
        bool next[FL_NAME_MAX + 1] = {false};
        bool is_star = elements[e] < 2;
        for (size_t t = 0; t <= len; t++) {
            char byte[2] = {t > 0 ? text[t - 1] : '\0', '\0'};
            next[t] = is_star ? at[t] || (t > 0 && next[t - 1])
                              : t > 0 && at[t - 1] && match(ELEMENTS[elements[e]], byte);
        }
        memcpy(at, next, sizeof at);
    }
    return at[len];
}

/* Long ones are matched in the other way, and cost no more than is promised. */
TEST(test_long_patterns)
{
    uint64_t rng = rng_seed();
    unsigned matched = 0;
    unsigned costly = 0;
    for (unsigned i = 0; i < 4000; i++) {
        char pattern[ACL_PATTERN_MAX + 1] = "";
        char text[FL_NAME_MAX + 1] = "";
        unsigned elements[ACL_PATTERN_MAX];
        unsigned n = 0;
        uint64_t most = rng_below(&rng, ELEMENTS_N) + 1; /* so that some have few kinds */
        size_t len = 0;
        for (size_t end = rng_below(&rng, sizeof pattern); n < sizeof elements / sizeof elements[0];
             n++) {
            elements[n] = (unsigned)rng_below(&rng, most);
            size_t more = strlen(ELEMENTS[elements[n]]);
            if (len + more > end) {
                break;
            }
            memcpy(pattern + len, ELEMENTS[elements[n]], more + 1);
            len += more;
        }
        size_t text_len = rng_below(&rng, sizeof text);
        for (size_t t = 0; t < text_len; t++) {
            text[t] = "aaab*]-\x80"[rng_below(&rng, i % 2 == 0 ? 8 : 4)];
        }
        uint64_t steps = 0;
        struct fli_slice p = {(const uint8_t *)pattern, len};
        struct fli_slice t = {(const uint8_t *)text, text_len};
        bool found = machine_glob_match(p, t, &steps);
        assert_true(steps <= machine_glob_steps_max(p, text_len));
        assert_true(machine_glob_steps_max(p, text_len) <= 8192);
        if (found != by_elements(elements, n, text)) {
            fail_msg("pattern %s, text %s", pattern, text);
        }
        matched += found;
        costly += (len + 1) * (text_len + 1) > 16384;
    }
    printf("%u matched, %u long\n", matched, costly);
    assert_true(matched > 400 && costly > 400);
}

/* The pattern that makes backtracking matchers explode. */
TEST(test_cost_is_bounded)
{
    char pattern[FL_VALUE_MAX];
    char text[FL_NAME_MAX];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof pattern; i++) {
        pattern[i] = i % 2 == 0 ? '*' : 'a';
    }
    pattern[sizeof pattern - 1] = 'b';
    uint64_t steps = 0;
    struct fli_slice p = {(const uint8_t *)pattern, sizeof pattern};
    struct fli_slice t = {(const uint8_t *)text, sizeof text};
    assert_false(machine_glob_match(p, t, &steps));
    assert_true(steps > 0 && steps <= (p.len + 1) * (t.len + 1));
    steps = 0;
    pattern[0] = '*';
    memset(pattern + 1, '[', sizeof pattern - 1); /* sets that are never closed */
    assert_false(machine_glob_match(p, t, &steps));
    assert_true(steps > 0 && steps <= machine_glob_steps_max(p, t.len));
    memset(text, '[', sizeof text); /* each of which stands for itself, and matches */
    for (p.len = 100; p.len <= sizeof pattern; p.len += 100) {
        steps = 0;
        pattern[p.len - 1] = 'b';
        assert_false(machine_glob_match(p, t, &steps));
        assert_true(steps > 0 && steps <= machine_glob_steps_max(p, t.len));
        pattern[p.len - 1] = '[';
    }
}
