/* glob.c: see glob.h. There are two ways. The plain one backtracks only to the last star met:
 * whatever an earlier star could match differently, the last one can make up for. So there is no
 * recursion, and the cost is at most pattern times text. Where that could be much, all places of
 * the pattern at which a match may be are followed side by side, a bit for each, in one pass over
 * the text: Shift-And with bits that stay (Navarro and Raffinot, Flexible Pattern Matching in
 * Strings, chapters 2 and 4). */
#include "machine/glob.h"

#include <string.h>

#define BYTE_VALUES 256u
#define WORD_BITS 64u
#define SET_WORDS (BYTE_VALUES / WORD_BITS)
#define STATES 256u /* of a pattern of at most 255 bytes */
#define WORDS (STATES / WORD_BITS)
#define LINE_BYTES 64u        /* that are cleared in a step */
#define LARGE_SET_BYTES 5u    /* `[a-z]`: fewer are no set of half of all bytes */
#define PLAIN_STEPS_MAX 8192u /* up to there the plain way is mostly the faster one */

/* ---- sets ---- */

static void add_range(uint64_t set[SET_WORDS], uint8_t low, uint8_t high)
{
    for (unsigned w = low / WORD_BITS; w <= high / WORD_BITS; w++) {
        uint64_t from = w == low / WORD_BITS ? UINT64_MAX << (low % WORD_BITS) : UINT64_MAX;
        uint64_t to =
            w == high / WORD_BITS ? UINT64_MAX >> (WORD_BITS - 1 - high % WORD_BITS) : UINT64_MAX;
        set[w] |= from & to;
    }
}

/* A pattern, and the last `]` in it that a `\` does not make stand for itself; 0: there is none. */
struct glob {
    struct fli_slice pattern;
    size_t last_close;
};

static size_t find_last_close(struct fli_slice pattern)
{
    for (size_t i = pattern.len; i-- > 0;) {
        size_t escapes = 0;
        while (pattern.data[i] == ']' && escapes < i && pattern.data[i - 1 - escapes] == '\\') {
            escapes++;
        }
        if (pattern.data[i] == ']' && escapes % 2 == 0) {
            return i;
        }
    }
    return 0;
}

/* Whether the `[` before `i` begins a set. The first byte of a set does not close it; every other
 * `]` does that is no `\]`, since a range does not end with one. So there is no need to look for it
 * at each `[`, of which a pattern may consist. */
static bool is_set(const struct glob *g, size_t i)
{
    size_t first = i + (i < g->pattern.len && g->pattern.data[i] == '^');
    return g->last_close > first;
}

/* Reads the set that begins at `i`, behind `[`. Returns where the pattern goes on behind `]`. */
static size_t read_set(struct fli_slice pattern, size_t i, uint64_t set[SET_WORDS])
{
    bool negated = pattern.data[i] == '^';
    i += negated;
    memset(set, 0, SET_WORDS * sizeof set[0]);
    for (bool first = true; first || pattern.data[i] != ']'; first = false) {
        i += pattern.data[i] == '\\' && i + 1 < pattern.len;
        uint8_t low = pattern.data[i++];
        uint8_t high = low;
        if (i + 1 < pattern.len && pattern.data[i] == '-' && pattern.data[i + 1] != ']') {
            i++;
            i += pattern.data[i] == '\\' && i + 1 < pattern.len;
            high = pattern.data[i++];
        }
        add_range(set, low < high ? low : high, low < high ? high : low);
        FLI_ASSERT(i < pattern.len);
    }
    for (unsigned w = 0; negated && w < SET_WORDS; w++) {
        set[w] = ~set[w];
    }
    return i + 1;
}

static bool is_in(const uint64_t set[], unsigned i)
{
    return (set[i / WORD_BITS] >> (i % WORD_BITS) & 1) != 0;
}

/* ---- the plain way ---- */

/* Matches one byte against the element at *ret_next, which is not a star, and moves behind it. */
static bool match_one(const struct glob *g, size_t *ret_next, uint8_t byte, uint64_t *steps)
{
    struct fli_slice pattern = g->pattern;
    size_t i = *ret_next;
    uint8_t c = pattern.data[i++];
    if (c == '?') {
        *ret_next = i;
        return true;
    }
    if (c == '[' && is_set(g, i)) {
        uint64_t set[SET_WORDS];
        *ret_next = read_set(pattern, i, set);
        *steps += *ret_next - i;
        return is_in(set, byte);
    }
    if (c == '\\' && i < pattern.len) {
        c = pattern.data[i++];
    }
    *ret_next = i;
    return c == byte;
}

static bool match_plainly(const struct glob *g, struct fli_slice text, uint64_t *steps)
{
    struct fli_slice pattern = g->pattern;
    size_t p = 0;
    size_t t = 0;
    bool star = false;
    size_t star_p = 0; /* behind the last star */
    size_t star_t = 0; /* where the text continues behind the bytes matched by that star */
    while (t < text.len) {
        ++*steps;
        if (p < pattern.len && pattern.data[p] == '*') {
            star = true;
            star_p = ++p;
            star_t = t;
        } else if (p < pattern.len && match_one(g, &p, text.data[t], steps)) {
            t++;
        } else if (star) {
            p = star_p;
            t = ++star_t;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.data[p] == '*') {
        p++;
        ++*steps;
    }
    return p == pattern.len;
}

/* ---- all places side by side ---- */

/* In state i, i elements have matched; stars are none. A byte that element i matches moves it to
 * state i + 1. */
struct automaton {
    uint64_t stays[WORDS];               /* states with a star: any byte leaves them as they are */
    uint64_t any[WORDS];                 /* elements that match all bytes but those in `except` */
    uint64_t except[BYTE_VALUES][WORDS]; /* by the byte */
    uint64_t only[BYTE_VALUES][WORDS];   /* elements that match this byte */
    unsigned n;
};

static void add_to(uint64_t set[WORDS], unsigned i)
{
    set[i / WORD_BITS] |= UINT64_C(1) << (i % WORD_BITS);
}

/* Sums of two, four and eight bits side by side, then of all eight: Warren, Hacker's Delight,
 * section 5-1. */
static unsigned bits_in(uint64_t w)
{
    w -= w >> 1 & UINT64_C(0x5555555555555555);
    w = (w & UINT64_C(0x3333333333333333)) + (w >> 2 & UINT64_C(0x3333333333333333));
    w = (w + (w >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(w * UINT64_C(0x0101010101010101) >> 56);
}

static unsigned size_of(const uint64_t set[SET_WORDS])
{
    unsigned n = 0;
    for (unsigned w = 0; w < SET_WORDS; w++) {
        n += bits_in(set[w]);
    }
    return n;
}

/* Of a large set those are noted that are not in it. */
static void add_set(struct automaton *a, const uint64_t set[SET_WORDS], uint64_t *steps)
{
    bool large = size_of(set) > BYTE_VALUES / 2;
    uint64_t(*noted)[WORDS] = large ? a->except : a->only;
    if (large) {
        add_to(a->any, a->n);
    }
    for (unsigned w = 0; w < SET_WORDS; w++) {
        for (uint64_t left = large ? ~set[w] : set[w]; left != 0; left &= left - 1) {
            ++*steps;
            add_to(noted[w * WORD_BITS + (unsigned)__builtin_ctzll(left)], a->n);
        }
    }
}

/* The element at `i`, which is not a star. Returns where the pattern goes on. */
static size_t add_element(struct automaton *a, const struct glob *g, size_t i, uint64_t *steps)
{
    struct fli_slice pattern = g->pattern;
    uint8_t c = pattern.data[i++];
    if (c == '[' && is_set(g, i)) {
        uint64_t set[SET_WORDS];
        i = read_set(pattern, i, set);
        add_set(a, set, steps);
        return i;
    }
    if (c == '?') {
        add_to(a->any, a->n);
        return i;
    }
    if (c == '\\' && i < pattern.len) {
        c = pattern.data[i++];
    }
    add_to(a->only[c], a->n);
    return i;
}

static void compile(struct automaton *a, const struct glob *g, uint64_t *steps)
{
    struct fli_slice pattern = g->pattern;
    memset(a, 0, sizeof *a);
    *steps += sizeof *a / LINE_BYTES + pattern.len;
    for (size_t i = 0; i < pattern.len;) {
        if (pattern.data[i] == '*') {
            add_to(a->stays, a->n);
            i++;
        } else {
            i = add_element(a, g, i, steps);
            a->n++;
        }
    }
    FLI_ASSERT(a->n < STATES);
}

static bool run(const struct automaton *a, struct fli_slice text, uint64_t *steps)
{
    uint64_t in[WORDS] = {1}; /* the states in which it may be */
    unsigned words = a->n / WORD_BITS + 1;
    for (size_t t = 0; t < text.len; t++) {
        const uint64_t *only = a->only[text.data[t]];
        const uint64_t *except = a->except[text.data[t]];
        uint64_t carry = 0;
        uint64_t some = 0;
        for (unsigned w = 0; w < words; w++) {
            uint64_t moves = in[w] & (only[w] | (a->any[w] & ~except[w]));
            in[w] = (in[w] & a->stays[w]) | moves << 1 | carry;
            carry = moves >> (WORD_BITS - 1);
            some |= in[w];
        }
        *steps += words;
        if (some == 0) {
            return false;
        }
    }
    return is_in(in, a->n);
}

/* ---- which of the two ---- */

#define SIDE_BY_SIDE_STEPS_MAX(pattern_len, text_len)                                              \
    (sizeof(struct automaton) / LINE_BYTES + (pattern_len) +                                       \
     (pattern_len) / LARGE_SET_BYTES * (BYTE_VALUES / 2) + WORDS * (text_len))
_Static_assert(SIDE_BY_SIDE_STEPS_MAX(STATES - 1, FL_NAME_MAX) <= PLAIN_STEPS_MAX,
               "what glob.h says of names");

static size_t plain_steps_max(struct fli_slice pattern, size_t text_len)
{
    const uint8_t *star = pattern.len == 0 ? NULL : memchr(pattern.data, '*', pattern.len);
    size_t behind = star == NULL ? 0 : pattern.len - (size_t)(star - pattern.data);
    return pattern.len + 1 + behind * text_len;
}

static bool is_plain(struct fli_slice pattern, size_t text_len)
{
    return pattern.len >= STATES || plain_steps_max(pattern, text_len) <= PLAIN_STEPS_MAX;
}

size_t machine_glob_steps_max(struct fli_slice pattern, size_t text_len)
{
    if (is_plain(pattern, text_len)) {
        return plain_steps_max(pattern, text_len);
    }
    return SIDE_BY_SIDE_STEPS_MAX(pattern.len, text_len);
}

bool machine_glob_match(struct fli_slice pattern, struct fli_slice text, uint64_t *steps)
{
    struct automaton a;
    struct glob g = {.pattern = pattern, .last_close = find_last_close(pattern)};
    if (is_plain(pattern, text.len)) {
        return match_plainly(&g, text, steps);
    }
    compile(&a, &g, steps);
    return run(&a, text, steps);
}
