/* normal.c: see normal.h. A token goes into the stream as a byte for its kind, its bytes, and a
 * zero, which no token contains. */
#include "frontdoor/normal.h"

#include <string.h>

enum kind {
    KIND_NAME = 'n',
    KIND_NUMBER = '0',
    KIND_STRING = 's',
    KIND_RAW = 'r',
    KIND_SIGN = 'p'
};

#define DEPTH_MAX 200 /* of open parentheses, as in Lua */
#define WORD_MAX 12u  /* longer than every word of a command */

struct stream {
    struct fli_sha1 sha1;
    char *out; /* NULL: only the hash is needed */
    size_t size, len;
};

struct scan {
    const uint8_t *p;
    const uint8_t *end;
    struct stream *to;
    unsigned after;  /* how many tokens of `redis . call` were just read, 0 to 3 */
    unsigned depth;  /* of open parentheses */
    unsigned inside; /* depth at the arguments of redis.call; 0: not in them */
    bool first;      /* the next token is the first of those arguments */
    bool semicolon;  /* a semicolon is in front of the next token */
};

/* ---- the stream ------------------------------------------------------------------------------ */

static void print(struct stream *s, const uint8_t *data, size_t len)
{
    for (size_t i = 0; s->out != NULL && i < len && s->len + 1 < s->size; i++) {
        s->out[s->len++] = (char)data[i];
    }
}

static void begin_token(struct stream *s, enum kind kind)
{
    uint8_t byte = (uint8_t)kind;
    fli_sha1_add(&s->sha1, &byte, 1);
    print(s,
          (const uint8_t *)(kind == KIND_STRING ? "'"
                            : kind == KIND_RAW  ? "\\'"
                                                : ""),
          kind == KIND_STRING ? 1
          : kind == KIND_RAW  ? 2
                              : 0);
}

static void add_bytes(struct stream *s, const uint8_t *data, size_t len)
{
    fli_sha1_add(&s->sha1, data, len);
    print(s, data, len);
}

static void end_token(struct stream *s)
{
    uint8_t zero = 0;
    fli_sha1_add(&s->sha1, &zero, 1);
    print(s, (const uint8_t *)"\n", 1);
}

static void put(struct stream *s, enum kind kind, const uint8_t *data, size_t len)
{
    begin_token(s, kind);
    add_bytes(s, data, len);
    end_token(s);
}

/* ---- between tokens -------------------------------------------------------------------------- */

/* The level of a long bracket that opens at p ("[[" is 0, "[=[" is 1...); -1 when none does. */
static int long_level(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *q = p + 1;
    if (p == end || *p != '[') {
        return -1;
    }
    while (q < end && *q == '=') {
        q++;
    }
    return q < end && *q == '[' && q - p - 1 <= 255 ? (int)(q - p - 1) : -1;
}

/* The end of the bracket that closes one of this level; NULL when none does. *ret_text_end: where
 * that bracket begins. */
static const uint8_t *long_end(const uint8_t *p, const uint8_t *end, int level,
                               const uint8_t **ret_text_end)
{
    while (p < end) {
        const uint8_t *close = memchr(p, ']', (size_t)(end - p));
        const uint8_t *q = close == NULL ? end : close + 1;
        int n = 0;
        while (q < end && *q == '=') {
            n++;
            q++;
        }
        if (close != NULL && q < end && *q == ']' && n == level) {
            *ret_text_end = close;
            return q + 1;
        }
        p = q;
    }
    return NULL;
}

/* Skips a comment, at "--". False: a long comment that does not end. */
static bool skip_comment(struct scan *s)
{
    const uint8_t *unused;
    const uint8_t *p = s->p + 2;
    int level = long_level(p, s->end);
    if (level >= 0) {
        s->p = long_end(p + 2 + level, s->end, level, &unused);
        return s->p != NULL;
    }
    const uint8_t *line = memchr(p, '\n', (size_t)(s->end - p));
    s->p = line == NULL ? s->end : line + 1;
    return true;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool skip_blanks(struct scan *s)
{
    while (s->p < s->end) {
        if (is_blank(*s->p) || *s->p == ';') {
            s->semicolon = s->semicolon || *s->p == ';';
            s->p++;
        } else if (s->end - s->p >= 2 && s->p[0] == '-' && s->p[1] == '-') {
            if (!skip_comment(s)) {
                return false;
            }
        } else {
            return true;
        }
    }
    return true;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

/* Whether the word's case does not matter to Redis: the command, which is the first argument of
 * redis.call(), or an option of SET behind it. `out`: the word in lower case. */
static bool command_word(const uint8_t *p, size_t len, bool first, uint8_t out[WORD_MAX])
{
    static const char *const words[] = {"px", "ex", "nx", "xx"};
    if (len >= WORD_MAX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        out[i] = p[i] >= 'A' && p[i] <= 'Z' ? (uint8_t)(p[i] + ('a' - 'A')) : p[i];
    }
    for (size_t i = 0; !first && i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i]) == len && memcmp(words[i], out, len) == 0) {
            return true;
        }
    }
    return first;
}

static void put_string(struct scan *s, const uint8_t *p, size_t len)
{
    uint8_t word[WORD_MAX];
    bool folds = s->inside != 0 && s->inside == s->depth && command_word(p, len, s->first, word);
    put(s->to, KIND_STRING, folds ? word : p, len);
}

/* Reads a string, at its quote. A string with a backslash or a zero byte is kept as written, as a
 * kind of its own: its meaning is not examined. */
static bool read_string(struct scan *s)
{
    uint8_t quote = *s->p;
    const uint8_t *start = ++s->p;
    bool plain = true;
    while (s->p < s->end && *s->p != quote) {
        if (*s->p == '\n' || *s->p == '\0' || (*s->p == '\\' && s->end - s->p < 2)) {
            return false;
        }
        plain = plain && *s->p != '\\';
        s->p += *s->p == '\\' ? 2 : 1;
    }
    if (s->p >= s->end) {
        return false;
    }
    if (plain) {
        put_string(s, start, (size_t)(s->p - start));
    } else {
        put(s->to, KIND_RAW, start - 1, (size_t)(s->p - start) + 1);
    }
    s->p++;
    return true;
}

/* Reads a long string, at its bracket. Lua drops some line ends in such a string. So a string with
 * line ends is kept as written too, as KIND_RAW. */
static bool read_long(struct scan *s, int level)
{
    const uint8_t *start = s->p + 2 + level;
    const uint8_t *text_end = start;
    const uint8_t *behind = long_end(start, s->end, level, &text_end);
    if (behind == NULL || memchr(start, '\0', (size_t)(text_end - start)) != NULL) {
        return false;
    }
    size_t len = (size_t)(text_end - start);
    bool plain = memchr(start, '\n', len) == NULL && memchr(start, '\r', len) == NULL &&
                 memchr(start, '\\', len) == NULL;
    if (plain) {
        put_string(s, start, len);
    } else {
        put(s->to, KIND_RAW, s->p, (size_t)(behind - s->p));
    }
    s->p = behind;
    return true;
}

static void read_name(struct scan *s)
{
    const uint8_t *start = s->p;
    while (s->p < s->end && (is_letter(*s->p) || is_digit(*s->p))) {
        s->p++;
    }
    put(s->to, KIND_NAME, start, (size_t)(s->p - start));
}

/* Reads a number as Lua 5.1 does: digits, letters and dots, and a sign behind an exponent. */
static void read_number(struct scan *s)
{
    const uint8_t *start = s->p;
    while (s->p < s->end) {
        bool sign =
            (*s->p == '-' || *s->p == '+') && s->p > start && (s->p[-1] == 'e' || s->p[-1] == 'E');
        if (!is_digit(*s->p) && !is_letter(*s->p) && *s->p != '.' && !sign) {
            break;
        }
        s->p++;
    }
    put(s->to, KIND_NUMBER, start, (size_t)(s->p - start));
}

static bool read_sign(struct scan *s)
{
    static const char *const signs[] = {"...", "..", "==", "~=", "<=", ">=", "+", "-", "*",
                                        "/",   "%",  "^",  "#",  "<",  ">",  "=", "(", ")",
                                        "{",   "}",  "[",  "]",  ":",  ",",  "."};
    size_t left = (size_t)(s->end - s->p);
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        size_t len = strlen(signs[i]);
        if (len <= left && memcmp(s->p, signs[i], len) == 0) {
            put(s->to, KIND_SIGN, s->p, len);
            s->p += len;
            return true;
        }
    }
    return false;
}

static bool read_token(struct scan *s)
{
    uint8_t c = *s->p;
    int level = long_level(s->p, s->end);
    if (c == '"' || c == '\'') {
        return read_string(s);
    }
    if (level >= 0) {
        return read_long(s, level);
    }
    if (is_letter(c)) {
        read_name(s);
        return true;
    }
    if (is_digit(c) || (c == '.' && s->end - s->p >= 2 && is_digit(s->p[1]))) {
        read_number(s);
        return true;
    }
    return read_sign(s);
}

static bool is_token(const uint8_t *p, const uint8_t *end, const char *text)
{
    size_t len = strlen(text);
    return (size_t)(end - p) == len && memcmp(p, text, len) == 0;
}

/* Tracks whether the scan is among the arguments of redis.call() or redis.pcall(). False: nested
 * too deep. */
static bool track_calls(struct scan *s, const uint8_t *p)
{
    unsigned after = s->after;
    s->after = 0;
    s->first = false;
    if (is_token(p, s->p, "redis") && after != 2) {
        s->after = 1;
    } else if (after == 1 && is_token(p, s->p, ".")) {
        s->after = 2;
    } else if (after == 2 && (is_token(p, s->p, "call") || is_token(p, s->p, "pcall"))) {
        s->after = 3;
    } else if (is_token(p, s->p, "(")) {
        s->depth++;
        s->inside = after == 3 ? s->depth : s->inside;
        s->first = after == 3;
    } else if (is_token(p, s->p, ")") && s->depth > 0) {
        s->inside = s->inside == s->depth ? 0 : s->inside;
        s->depth--;
    }
    return s->depth <= DEPTH_MAX;
}

static bool scan_all(struct fli_slice text, struct stream *to)
{
    static const uint8_t byte_order_mark[3] = {0xef, 0xbb, 0xbf};
    struct scan s = {.p = text.data, .end = text.data + text.len, .to = to};
    if (text.len == 0) {
        return true;
    }
    if (text.len >= sizeof byte_order_mark &&
        memcmp(s.p, byte_order_mark, sizeof byte_order_mark) == 0) {
        s.p += sizeof byte_order_mark;
    }
    while (skip_blanks(&s)) {
        const uint8_t *start = s.p;
        if (s.p == s.end) {
            return true;
        }
        if (s.semicolon && *s.p == '(') { /* otherwise it would be a call of the expression
                                             before */
            put(to, KIND_SIGN, (const uint8_t *)";", 1);
        }
        s.semicolon = false;
        if (!read_token(&s) || !track_calls(&s, start)) {
            return false;
        }
        FLI_ASSERT(s.p > start && s.p <= s.end);
    }
    return false;
}

bool frontdoor_normal(struct fli_slice text, uint8_t out[FLI_SHA1_SIZE])
{
    struct stream s = {.out = NULL};
    fli_sha1_init(&s.sha1);
    bool ok = scan_all(text, &s);
    fli_sha1_end(&s.sha1, out);
    return ok;
}

bool frontdoor_normal_print(struct fli_slice text, char *out, size_t size)
{
    FLI_ASSERT(size > 0);
    struct stream s = {.out = out, .size = size};
    fli_sha1_init(&s.sha1);
    bool ok = scan_all(text, &s);
    out[s.len] = '\0';
    return ok;
}
