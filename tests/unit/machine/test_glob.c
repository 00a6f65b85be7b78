/* test_glob.c: patterns of LOCKS MATCH. */
#include "fixture.h"

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
    assert_true(steps >= sizeof pattern && steps <= (p.len + 1) * (t.len + 1));
}
