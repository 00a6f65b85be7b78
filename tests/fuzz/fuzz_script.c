/* fuzz_script.c: any text as a script, as an operator's aliases and as the arguments of SET: never
 * two names or forms for one text, however it is set; another name when one token is another; and
 * what is recognised once is found again. That the time is in proportion is judged by linear.c. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "frontdoor/monitor.h"
#include "frontdoor/normal.h"
#include "frontdoor/request.h"

static void check_names(struct fli_slice text)
{
    uint8_t a[FLI_SHA1_SIZE];
    uint8_t b[FLI_SHA1_SIZE];
    bool ok = frontdoor_normal(text, a);
    FLI_ASSERT(frontdoor_normal(text, b) == ok && memcmp(a, b, sizeof a) == 0);
    /* A comment in front and a line end behind are no tokens. */
    static const char front[] = "-- \xff'[[\n \t";
    size_t len = sizeof front - 1 + text.len + 1;
    uint8_t *more = fli_xmalloc(len);
    memcpy(more, front, sizeof front - 1);
    if (text.len > 0) {
        memcpy(more + sizeof front - 1, text.data, text.len);
    }
    more[len - 1] = '\n';
    bool marked = text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0;
    bool again = frontdoor_normal((struct fli_slice){more, len}, b);
    FLI_ASSERT(marked || !ok || (again && memcmp(a, b, sizeof a) == 0));
    free(more);
}

/* ---- the same tokens, set otherwise ---- */

#define TOKENS_MAX 256u
#define TEXT_MAX 8192u

struct token {
    const char *p;
    size_t len;
    bool plain; /* a string without its quotes */
};

/* The tokens of a text, as it is printed for people. False: not all can be told apart there. */
static bool read_tokens(struct fli_slice text, char *room, size_t size, struct token *tokens,
                        size_t *n)
{
    *n = 0;
    if (text.len > size / 4 || !frontdoor_normal_print(text, room, size)) {
        return false;
    }
    for (char *p = room; *p != '\0'; (*n)++) {
        char *end = strchr(p, '\n');
        if (*n == TOKENS_MAX || *p == '\\') {
            return false; /* a string with line ends or backslashes */
        }
        tokens[*n] = (struct token){p, (size_t)(end - p), *p == '\''};
        p = end + 1;
    }
    return true;
}

static size_t add(char *out, size_t len, const char *p, size_t n)
{
    FLI_ASSERT(len + n < TEXT_MAX * 2);
    memcpy(out + len, p, n);
    return len + n;
}

/* In quotes that it does not contain; 0: it contains all of ours. */
static size_t add_string(char *out, size_t len, const char *p, size_t n, unsigned style)
{
    static const char *const quotes[][2] = {
        {"'", "'"}, {"\"", "\""}, {"[[", "]]"}, {"[==[", "]==]"}};
    bool contains[4] = {memchr(p, '\'', n) != NULL, memchr(p, '"', n) != NULL,
                        memchr(p, ']', n) != NULL, memchr(p, ']', n) != NULL};
    for (unsigned i = 0; i < 4; i++) {
        unsigned k = (style + i) % 4;
        if (!contains[k] && (k < 2 || n == 0 || memchr(p, '\r', n) == NULL)) {
            len = add(out, len, quotes[k][0], strlen(quotes[k][0]));
            len = add(out, len, p, n);
            return add(out, len, quotes[k][1], strlen(quotes[k][1]));
        }
    }
    return 0;
}

/* The text of these tokens, with other things between them. `odd`: that token gets one byte more.
 * 0: it cannot be written so. */
static size_t set_otherwise(const struct token *tokens, size_t n, size_t odd, unsigned style,
                            char *out)
{
    static const char *const between[] = {" ",          "\n",     " --x\n",
                                          " --[[ ' ]]", "\t\r\n", " --[=[ ]] ]=]"};
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        static char longer[TEXT_MAX];
        size_t skip = tokens[i].plain;
        size_t size = tokens[i].len - skip;
        memcpy(longer, tokens[i].p + skip, size);
        if (i == odd) {
            longer[size++] = 'x';
        }
        if (tokens[i].plain) {
            len = add_string(out, len, longer, size, style + (unsigned)i);
            if (len == 0) {
                return 0;
            }
        } else {
            len = add(out, len, longer, size);
        }
        const char *gap = between[(style + i) % 6];
        len = add(out, len, gap, strlen(gap));
    }
    return len;
}

static void check_otherwise(struct fli_slice text, struct frontdoor_scripts *s)
{
    static char room[TEXT_MAX];
    static char other[TEXT_MAX * 2];
    static struct token tokens[TOKENS_MAX];
    uint8_t a[FLI_SHA1_SIZE];
    uint8_t b[FLI_SHA1_SIZE];
    uint8_t sha1[FLI_SHA1_SIZE];
    size_t n;
    if (text.len > TEXT_MAX / 8 || !frontdoor_normal(text, a) ||
        !read_tokens(text, room, sizeof room, tokens, &n) || n == 0) {
        return;
    }
    unsigned style = text.data[0];
    size_t len = set_otherwise(tokens, n, n, style, other);
    if (len == 0) {
        return;
    }
    struct fli_slice again = {(const uint8_t *)other, len};
    FLI_ASSERT(frontdoor_normal(again, b) && memcmp(a, b, sizeof a) == 0);
    const struct frontdoor_form *f = frontdoor_scripts_load(s, text, sha1);
    FLI_ASSERT(frontdoor_scripts_load(s, again, sha1) == f);
    /* One token that is another. A sign with a byte behind it is two tokens, or more. */
    len = set_otherwise(tokens, n, style % n, style, other);
    again.len = len;
    FLI_ASSERT(len == 0 || !frontdoor_normal(again, b) || memcmp(a, b, sizeof a) != 0);
}

/* As what stands behind our own text of a form: how many keys, and words. */
static void check_form(struct fli_slice text, struct frontdoor_scripts *s)
{
    struct frontdoor_context c = {.scripts = s, .wall_ms = 1};
    struct fli_slice args[2 + 2 * MACHINE_KEYS_MAX] = {{NULL, 0}};
    struct frontdoor_request q;
    char errmsg[FRONTDOOR_ERRMSG_SIZE];
    unsigned n = 1;
    if (text.len == 0) {
        return;
    }
    const struct frontdoor_form *f = &frontdoor_forms[text.data[0] % frontdoor_forms_len];
    args[0] = (struct fli_slice){(const uint8_t *)f->script, strlen(f->script)};
    for (size_t i = 1, at = 1; i <= text.len && n < sizeof args / sizeof args[0]; i++) {
        if (i == text.len || text.data[i] == ' ') {
            args[n++] = (struct fli_slice){text.data + at, i - at};
            at = i + 1;
        }
    }
    if (n < 2 || frontdoor_request_parse(&c, FLI_CMD_EVAL, args, n, &q, errmsg) != 0) {
        return;
    }
    unsigned n_each = q.answers.n_each;
    FLI_ASSERT(q.n_keys >= 1 && q.n_keys <= MACHINE_NAMES_MAX && n_each <= MACHINE_KEYS_MAX);
    FLI_ASSERT(q.ttl_ms == 0 || (q.ttl_ms >= FL_TTL_MIN_MS && q.ttl_ms <= FL_TTL_MAX_MS));
    FLI_ASSERT(q.has_latch == (q.keep_ms != 0) && q.keep_ms <= MACHINE_LEAVE_KEEP_MS);
    for (unsigned i = 0; i < n_each; i++) {
        FLI_ASSERT(q.each_keys[i].len >= 1 && q.each_values[i].len >= 1);
        FLI_ASSERT(&q.each_values[i] < &args[n]);
    }
}

/* As a line of MONITOR. */
static void check_line(struct fli_slice line, struct frontdoor_scripts *s)
{
    struct frontdoor_context c = {.scripts = s, .wall_ms = 1};
    struct frontdoor_monitored m;
    struct frontdoor_verdict v;
    uint8_t *room = fli_xmalloc(line.len + 1);
    if (frontdoor_monitor_read(line, room, &m)) {
        FLI_ASSERT(m.n > 0);
        (void)frontdoor_monitor_key(&m);
        frontdoor_monitor_check(&c, &m, &v);
        FLI_ASSERT(strlen(v.what) > 0 && v.served == (v.why[0] == '\0'));
    }
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fli_slice text = {data, size};
    struct frontdoor_scripts *s;
    uint8_t sha1[FLI_SHA1_SIZE];
    char errmsg[FRONTDOOR_ERRMSG_SIZE];
    check_names(text);
    FLI_ASSERT(frontdoor_scripts_create(&s) == 0);
    const struct frontdoor_form *f = frontdoor_scripts_load(s, text, sha1);
    FLI_ASSERT(frontdoor_scripts_find(s, sha1) == f);
    check_otherwise(text, s);
    int rc = frontdoor_scripts_alias(s, text, errmsg, sizeof errmsg);
    FLI_ASSERT(rc == 0 || rc == FL_EINVAL);
    /* SET with the words of the text behind key and value. */
    struct frontdoor_context c = {.scripts = s, .wall_ms = 1};
    struct fli_slice args[16] = {{data, size}, {data, size}};
    unsigned n = 2;
    for (size_t i = 0, at = 0; i <= size && n < 16; i++) {
        if (i == size || data[i] == ' ') {
            args[n++] = (struct fli_slice){data + at, i - at};
            at = i + 1;
        }
    }
    struct frontdoor_request q;
    rc = frontdoor_request_parse(&c, FLI_CMD_KEY_SET, args, n, &q, errmsg);
    FLI_ASSERT(rc == FL_EINVAL || (rc == 0 && (q.ttl_ms == 0 || (q.ttl_ms >= FL_TTL_MIN_MS &&
                                                                 q.ttl_ms <= FL_TTL_MAX_MS))));
    check_line(text, s);
    check_form(text, s);
    frontdoor_scripts_destroy(s);
    return 0;
}
