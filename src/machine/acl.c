/* acl.c: see acl.h. The words change a copy of the user. The copy replaces the user when every word
 * was right. */
#include "machine/acl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "machine/glob.h"

static const struct {
    const char *name;
    unsigned bit;
} rights_known[] = {
    {"see", ACL_SEE},     {"acquire", ACL_ACQUIRE}, {"token", ACL_TOKEN}, {"break", ACL_BREAK},
    {"admin", ACL_ADMIN}, {"read", ACL_READ},       {"write", ACL_WRITE}, {"claim", ACL_CLAIM},
};
#define RIGHTS_LEN (sizeof rights_known / sizeof rights_known[0])

struct parse {
    struct acl_user user;
    unsigned rights; /* rights that this service knows */
    unsigned rule;   /* the rule that the words change: 0, or a selector's */
    char *errmsg;
    size_t errmsg_size;
};

bool acl_name_ok(struct fli_slice name)
{
    if (name.len < 1 || name.len > ACL_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        if (name.data[i] < '!' || name.data[i] > '~') {
            return false;
        }
    }
    return true;
}

void acl_user_init(struct acl_user *u, struct fli_slice name)
{
    FLI_ASSERT(acl_name_ok(name));
    memset(u, 0, sizeof *u);
    u->n_rules = 1;
    u->name_len = (uint8_t)name.len;
    memcpy(u->name, name.data, name.len);
}

const char *acl_right_name(unsigned right)
{
    for (size_t i = 0; i < RIGHTS_LEN; i++) {
        if (rights_known[i].bit == right) {
            return rights_known[i].name;
        }
    }
    return "none";
}

static bool is_text(struct fli_slice s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

unsigned acl_right_of(struct fli_slice name)
{
    for (size_t i = 0; i < RIGHTS_LEN; i++) {
        if (is_text(name, rights_known[i].name)) {
            return rights_known[i].bit;
        }
    }
    return 0;
}

/* ---- hashes ---------------------------------------------------------------------------------- */

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_parse(struct fli_slice text, uint8_t *out, size_t len)
{
    if (text.len != 2 * len) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(text.data[2 * i]);
        int low = hex_digit(text.data[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* Returns the text before the next colon, or all of it; *rest becomes what follows the colon. */
static struct fli_slice before_colon(struct fli_slice *rest)
{
    const uint8_t *colon = rest->len == 0 ? NULL : memchr(rest->data, ':', rest->len);
    struct fli_slice part = *rest;
    if (colon == NULL) {
        *rest = (struct fli_slice){rest->data + rest->len, 0};
        return part;
    }
    part.len = (size_t)(colon - rest->data);
    rest->data += part.len + 1;
    rest->len -= part.len + 1;
    return part;
}

bool acl_hash_parse(struct fli_slice text, struct acl_hash *ret)
{
    struct fli_slice rest = text;
    uint64_t cost[3];
    if (text.len == 0 || !is_text(before_colon(&rest), "scrypt")) {
        return false;
    }
    for (unsigned i = 0; i < 3; i++) {
        struct fli_slice part = before_colon(&rest);
        if (!fli_parse_u64(part.data, part.len, 24, &cost[i]) || cost[i] < 1) {
            return false;
        }
    }
    /* scrypt needs 128 * r * 2^N bytes of memory: at most 64 MiB here. */
    if (cost[0] < 10 || cost[0] > 16 || cost[1] > 8 || cost[2] > 4) {
        return false;
    }
    struct fli_slice salt = before_colon(&rest);
    ret->log2_n = (uint8_t)cost[0];
    ret->r = (uint8_t)cost[1];
    ret->p = (uint8_t)cost[2];
    return hex_parse(salt, ret->salt, ACL_SALT_SIZE) && hex_parse(rest, ret->key, ACL_KEY_SIZE);
}

static int print_hex(const uint8_t *bytes, size_t len, struct fli_buf *out)
{
    char text[2 * ACL_KEY_SIZE];
    FLI_ASSERT(2 * len <= sizeof text);
    for (size_t i = 0; i < len; i++) {
        text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    return fli_buf_append(out, text, 2 * len);
}

int acl_print_hash(const struct acl_hash *h, struct fli_buf *out)
{
    int rc = fli_buf_printf(out, "scrypt:%u:%u:%u:", h->log2_n, h->r, h->p);
    rc = rc != 0 ? rc : print_hex(h->salt, ACL_SALT_SIZE, out);
    rc = rc != 0 ? rc : fli_buf_append(out, ":", 1);
    return rc != 0 ? rc : print_hex(h->key, ACL_KEY_SIZE, out);
}

static bool hash_equal(const struct acl_hash *a, const struct acl_hash *b)
{
    return a->log2_n == b->log2_n && a->r == b->r && a->p == b->p &&
           memcmp(a->salt, b->salt, ACL_SALT_SIZE) == 0 &&
           memcmp(a->key, b->key, ACL_KEY_SIZE) == 0;
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* Returns the pattern at *at and moves *at behind it. */
static struct fli_slice pattern_at(const struct acl_user *u, size_t *at, unsigned *ret_rule)
{
    const uint8_t *p = u->patterns + *at;
    FLI_ASSERT(*at + 2 <= u->patterns_len && *at + 2 + p[1] <= u->patterns_len);
    *ret_rule = p[0];
    *at += 2u + p[1];
    return (struct fli_slice){p + 2, p[1]};
}

/* Patterns are sorted by rule, so those of one rule are one run. Returns where that run begins. */
static size_t run_of(const struct acl_user *u, unsigned rule, size_t *ret_end)
{
    size_t at = 0;
    size_t begin = 0;
    unsigned rule_of = 0;
    while (at < u->patterns_len) {
        size_t next = at;
        (void)pattern_at(u, &next, &rule_of);
        if (rule_of > rule) {
            break;
        }
        begin = rule_of < rule ? next : begin;
        at = next;
    }
    *ret_end = at;
    return begin;
}

static void drop_patterns(struct acl_user *u, unsigned rule)
{
    size_t end = 0;
    size_t begin = run_of(u, rule, &end);
    memmove(u->patterns + begin, u->patterns + end, u->patterns_len - end);
    u->patterns_len = (uint16_t)(u->patterns_len - (end - begin));
    memset(u->patterns + u->patterns_len, 0, end - begin);
}

static bool add_pattern(struct acl_user *u, unsigned rule, struct fli_slice pattern)
{
    size_t end = 0; /* of the rule's patterns: the new one goes there */
    unsigned rule_of = 0;
    for (size_t at = 0; at < u->patterns_len && rule_of <= rule;) {
        struct fli_slice known = pattern_at(u, &at, &rule_of);
        if (rule_of == rule && known.len == pattern.len &&
            memcmp(known.data, pattern.data, pattern.len) == 0) {
            return true;
        }
        end = rule_of <= rule ? at : end;
    }
    if (u->patterns_len + 2 + pattern.len > ACL_PATTERNS_SIZE) {
        return false;
    }
    memmove(u->patterns + end + 2 + pattern.len, u->patterns + end, u->patterns_len - end);
    u->patterns[end] = (uint8_t)rule;
    u->patterns[end + 1] = (uint8_t)pattern.len;
    memcpy(u->patterns + end + 2, pattern.data, pattern.len);
    u->patterns_len = (uint16_t)(u->patterns_len + 2 + pattern.len);
    return true;
}

/* ---- words ----------------------------------------------------------------------------------- */

static int FLI_PRINTF(3, 4) wrong(struct parse *p, struct fli_slice word, const char *fmt, ...)
{
    char why[160];
    int shown = word.len > 60 ? 60 : (int)word.len;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    (void)snprintf(p->errmsg, p->errmsg_size, "'%.*s': %s", shown, (const char *)word.data, why);
    return FL_EINVAL;
}

static int too_many(struct parse *p, const char *what)
{
    (void)snprintf(p->errmsg, p->errmsg_size, "%s", what);
    return FL_ELIMIT;
}

bool acl_next_word(struct fli_slice *rest, struct fli_slice *ret)
{
    while (rest->len > 0 && rest->data[0] == ' ') {
        rest->data++;
        rest->len--;
    }
    size_t n = 0;
    while (n < rest->len && rest->data[n] != ' ') {
        n++;
    }
    *ret = (struct fli_slice){rest->data, n};
    rest->data += n;
    rest->len -= n;
    return n > 0;
}

static int take_hash(struct parse *p, struct fli_slice word)
{
    struct acl_user *u = &p->user;
    struct acl_hash h;
    if (!acl_hash_parse((struct fli_slice){word.data + 1, word.len - 1}, &h)) {
        return wrong(p, (struct fli_slice){word.data, 1},
                     "what follows is not a hash of this service (scrypt:N:R:P:SALT:KEY); write "
                     ">PASSWORD and it is made");
    }
    unsigned i = 0;
    while (i < u->n_passwords && !hash_equal(&u->passwords[i], &h)) {
        i++;
    }
    if (word.data[0] == '!') {
        if (i == u->n_passwords) {
            return wrong(p, (struct fli_slice){word.data, 1}, "the user has no such password");
        }
        u->n_passwords--;
        memmove(&u->passwords[i], &u->passwords[i + 1],
                (u->n_passwords - i) * sizeof u->passwords[0]);
        memset(&u->passwords[u->n_passwords], 0, sizeof u->passwords[0]);
        return 0;
    }
    if (i < u->n_passwords) {
        return 0;
    }
    if (i == ACL_PASSWORDS_MAX) {
        return too_many(p, "a user has at most 8 passwords: take one away with !HASH");
    }
    u->passwords[u->n_passwords++] = h;
    u->nopass = false;
    return 0;
}

static int take_pattern(struct parse *p, struct fli_slice word)
{
    struct acl_rule *rule = &p->user.rules[p->rule];
    struct fli_slice pattern = {word.data + 1, word.len - 1};
    if (pattern.len < 1 || pattern.len > ACL_PATTERN_MAX) {
        return wrong(p, word, "a pattern has 1 to 255 bytes");
    }
    for (size_t i = 0; i < pattern.len; i++) {
        if (pattern.data[i] < ' ' || pattern.data[i] == 0x7f) {
            return wrong(p, (struct fli_slice){word.data, 1},
                         "a pattern has no control characters: write ? for them");
        }
    }
    if (p->rule != 0 && pattern.data[pattern.len - 1] == ')') {
        return wrong(p, word, "a pattern in a selector does not end with ): write ? for it");
    }
    if (is_text(pattern, "*")) {
        rule->all_names = true;
        drop_patterns(&p->user, p->rule);
        return 0;
    }
    if (rule->all_names) {
        return wrong(p, word, "all names are allowed already: write resetkeys before it");
    }
    if (!add_pattern(&p->user, p->rule, pattern)) {
        return too_many(p, "the patterns of a user have at most 2048 bytes: use fewer");
    }
    return 0;
}

static void list_rights(unsigned rights, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < RIGHTS_LEN; i++) {
        if ((rights & rights_known[i].bit) != 0) {
            int n = snprintf(out + len, size - len, "@%s ", rights_known[i].name);
            len += n > 0 && (size_t)n < size - len ? (size_t)n : 0;
        }
    }
}

static int take_right(struct parse *p, struct fli_slice word)
{
    struct acl_rule *rule = &p->user.rules[p->rule];
    struct fli_slice name = {word.data + 2, word.len > 2 ? word.len - 2 : 0};
    bool is_category = word.len > 2 && word.data[1] == '@';
    unsigned bits = !is_category           ? 0
                    : is_text(name, "all") ? ACL_ALL_RIGHTS
                                           : acl_right_of(name) & p->rights;
    if (bits == 0) {
        char known[80];
        list_rights(p->rights, known, sizeof known);
        return wrong(p, word, "there is no such right: write one of %s@all", known);
    }
    if (word.data[0] == '+') {
        rule->rights = (uint8_t)(rule->rights | bits);
    } else {
        /* +@all minus one right leaves the other rights that this service knows. */
        unsigned had = rule->rights == ACL_ALL_RIGHTS ? p->rights : rule->rights;
        rule->rights = (uint8_t)(had & ~bits);
    }
    return 0;
}

static void reset_names(struct acl_user *u, unsigned rule)
{
    u->rules[rule].all_names = false;
    drop_patterns(u, rule);
}

static void reset_passwords(struct acl_user *u)
{
    memset(u->passwords, 0, sizeof u->passwords);
    u->n_passwords = 0;
}

static void clear_selectors(struct acl_user *u)
{
    size_t end = 0;
    for (unsigned i = 1; i < u->n_rules; i++) {
        drop_patterns(u, i);
    }
    (void)run_of(u, 0, &end);
    FLI_ASSERT(end == u->patterns_len);
    memset(&u->rules[1], 0, sizeof u->rules - sizeof u->rules[0]);
    u->n_rules = 1;
}

/* Takes a word that may also stand in a selector. FL_ENOTFOUND: it is no such word. */
static int take_rule_word(struct parse *p, struct fli_slice word)
{
    struct acl_rule *rule = &p->user.rules[p->rule];
    if (word.data[0] == '~') {
        return take_pattern(p, word);
    }
    if (word.data[0] == '+' || word.data[0] == '-') {
        return take_right(p, word);
    }
    if (is_text(word, "allkeys")) {
        rule->all_names = true;
        drop_patterns(&p->user, p->rule);
    } else if (is_text(word, "resetkeys")) {
        reset_names(&p->user, p->rule);
    } else if (is_text(word, "allcommands")) {
        rule->rights = ACL_ALL_RIGHTS;
    } else if (is_text(word, "nocommands")) {
        rule->rights = 0;
    } else {
        return FL_ENOTFOUND;
    }
    return 0;
}

static int take_user_word(struct parse *p, struct fli_slice word)
{
    struct acl_user *u = &p->user;
    if (word.data[0] == '#' || word.data[0] == '!') {
        return take_hash(p, word);
    }
    if (is_text(word, "on") || is_text(word, "off")) {
        u->on = word.len == 2;
    } else if (is_text(word, "nopass")) {
        reset_passwords(u);
        u->nopass = true;
    } else if (is_text(word, "resetpass")) {
        reset_passwords(u);
        u->nopass = false;
    } else if (is_text(word, "clearselectors")) {
        clear_selectors(u);
    } else if (is_text(word, "reset")) {
        struct fli_slice name = {u->name, u->name_len};
        uint8_t copy[ACL_NAME_MAX];
        memcpy(copy, name.data, name.len);
        acl_user_init(u, (struct fli_slice){copy, name.len});
    } else {
        return wrong(p, word,
                     "this word is not known: write on off nopass resetpass >PASSWORD ~PATTERN "
                     "allkeys resetkeys +@RIGHT -@RIGHT (SELECTOR) or reset");
    }
    return 0;
}

static int open_selector(struct parse *p)
{
    if (p->user.n_rules == ACL_RULES_MAX) {
        return too_many(p, "a user has at most 7 selectors: use fewer");
    }
    p->rule = p->user.n_rules++;
    p->user.rules[p->rule] = (struct acl_rule){0};
    return 0;
}

/* Takes one word, which may begin or end a selector. */
static int take_word(struct parse *p, struct fli_slice word)
{
    struct fli_slice all = word;
    bool closes = false;
    int rc = 0;
    if (word.data[0] == '(') {
        if (p->rule != 0) {
            return wrong(p, all, "a selector has no selectors");
        }
        rc = open_selector(p);
        word.data++;
        word.len--;
    }
    if (rc == 0 && p->rule != 0 && word.len > 0 && word.data[word.len - 1] == ')') {
        closes = true;
        word.len--;
    }
    if (rc == 0 && word.len > 0) {
        rc = take_rule_word(p, word);
        if (rc == FL_ENOTFOUND) {
            rc = p->rule == 0 ? take_user_word(p, word)
                              : wrong(p, all, "a selector has only ~PATTERN +@RIGHT -@RIGHT");
        }
    }
    p->rule = closes ? 0 : p->rule;
    return rc;
}

int acl_apply(struct acl_user *u, struct fli_slice words, unsigned rights, char *errmsg,
              size_t errmsg_size)
{
    struct parse p = {.user = *u, .rights = rights, .errmsg = errmsg, .errmsg_size = errmsg_size};
    struct fli_slice rest = words;
    struct fli_slice word;
    if (words.len > ACL_TEXT_MAX) {
        return too_many(&p, "the words have at most 3500 bytes: use more than one command");
    }
    while (acl_next_word(&rest, &word)) {
        int rc = take_word(&p, word);
        if (rc != 0) {
            return rc;
        }
    }
    if (p.rule != 0) {
        return wrong(&p, (struct fli_slice){(const uint8_t *)"(", 1}, "the selector has no end");
    }
    *u = p.user;
    return 0;
}

/* ---- rights ---------------------------------------------------------------------------------- */

bool acl_may(const struct acl_user *u, unsigned right, struct fli_slice name, uint64_t *steps)
{
    unsigned rule_of = 0;
    if (acl_may_all(u, right)) {
        return true;
    }
    for (size_t at = 0; at < u->patterns_len;) {
        struct fli_slice pattern = pattern_at(u, &at, &rule_of);
        if ((u->rules[rule_of].rights & right) != 0 && machine_glob_match(pattern, name, steps)) {
            return true;
        }
    }
    return false;
}

size_t acl_steps_max(const struct acl_user *u, size_t name_len)
{
    size_t steps = 0;
    unsigned rule_of = 0;
    for (size_t at = 0; at < u->patterns_len;) {
        steps += machine_glob_steps_max(pattern_at(u, &at, &rule_of), name_len);
    }
    return steps;
}

bool acl_may_some(const struct acl_user *u, unsigned right)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < u->n_rules; i++) {
        bits |= u->rules[i].rights;
    }
    return (bits & right) != 0;
}

bool acl_is_administrator(const struct acl_user *u, bool certified)
{
    return u->on && acl_may_some(u, ACL_ADMIN) && (u->nopass || u->n_passwords > 0 || certified);
}

bool acl_may_all(const struct acl_user *u, unsigned right)
{
    for (unsigned i = 0; i < u->n_rules; i++) {
        if ((u->rules[i].rights & right) != 0 && u->rules[i].all_names) {
            return true;
        }
    }
    return false;
}

bool acl_is_open(const struct acl_user *u)
{
    return u->on && u->nopass && u->rules[0].rights == ACL_ALL_RIGHTS && u->rules[0].all_names;
}

/* ---- printing -------------------------------------------------------------------------------- */

static int put_word(struct fli_buf *out, size_t start, const char *head, struct fli_slice tail)
{
    int rc = out->len == start ? 0 : fli_buf_append(out, " ", 1);
    rc = rc != 0 ? rc : fli_buf_append(out, head, strlen(head));
    return rc != 0 || tail.len == 0 ? rc : fli_buf_append(out, tail.data, tail.len);
}

static const struct fli_slice nothing = {NULL, 0};

int acl_print_names(const struct acl_user *u, unsigned rule, struct fli_buf *out)
{
    size_t start = out->len;
    unsigned rule_of = 0;
    int rc = u->rules[rule].all_names ? put_word(out, start, "~*", nothing) : 0;
    for (size_t at = 0; at < u->patterns_len && rc == 0;) {
        struct fli_slice pattern = pattern_at(u, &at, &rule_of);
        rc = rule_of == rule ? put_word(out, start, "~", pattern) : 0;
    }
    return rc;
}

int acl_print_rights(const struct acl_user *u, unsigned rule, struct fli_buf *out)
{
    size_t start = out->len;
    uint8_t rights = u->rules[rule].rights;
    if (rights == 0 || rights == ACL_ALL_RIGHTS) {
        return put_word(out, start, rights == 0 ? "-@all" : "+@all", nothing);
    }
    int rc = 0;
    for (size_t i = 0; i < RIGHTS_LEN && rc == 0; i++) {
        const char *name = rights_known[i].name;
        struct fli_slice tail = {(const uint8_t *)name, strlen(name)};
        rc = (rights & rights_known[i].bit) != 0 ? put_word(out, start, "+@", tail) : 0;
    }
    return rc;
}

static int print_rule(const struct acl_user *u, unsigned rule, struct fli_buf *out)
{
    size_t start = out->len;
    int rc = acl_print_names(u, rule, out);
    rc = rc != 0 || out->len == start ? rc : fli_buf_append(out, " ", 1);
    return rc != 0 ? rc : acl_print_rights(u, rule, out);
}

int acl_print(const struct acl_user *u, struct fli_buf *out)
{
    size_t start = out->len;
    int rc = put_word(out, start, u->on ? "on" : "off", nothing);
    rc = rc != 0 || !u->nopass ? rc : put_word(out, start, "nopass", nothing);
    for (unsigned i = 0; i < u->n_passwords && rc == 0; i++) {
        rc = put_word(out, start, "#", nothing);
        rc = rc != 0 ? rc : acl_print_hash(&u->passwords[i], out);
    }
    rc = rc != 0 ? rc : fli_buf_append(out, " ", 1);
    rc = rc != 0 ? rc : print_rule(u, 0, out);
    for (unsigned i = 1; i < u->n_rules && rc == 0; i++) {
        rc = put_word(out, start, "(", nothing);
        rc = rc != 0 ? rc : print_rule(u, i, out);
        rc = rc != 0 ? rc : fli_buf_append(out, ")", 1);
    }
    return rc;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t len)
{
    memcpy(p, bytes, len);
    return p + len;
}

size_t acl_encode(const struct acl_user *u, uint8_t out[ACL_ENCODED_MAX])
{
    uint8_t *p = out;
    *p++ = (uint8_t)((u->on ? 1 : 0) | (u->nopass ? 2 : 0));
    *p++ = u->name_len;
    p = put_bytes(p, u->name, u->name_len);
    *p++ = u->n_passwords;
    for (unsigned i = 0; i < u->n_passwords; i++) {
        const struct acl_hash *h = &u->passwords[i];
        *p++ = h->log2_n;
        *p++ = h->r;
        *p++ = h->p;
        p = put_bytes(p, h->salt, ACL_SALT_SIZE);
        p = put_bytes(p, h->key, ACL_KEY_SIZE);
    }
    *p++ = u->n_rules;
    for (unsigned i = 0; i < u->n_rules; i++) {
        *p++ = u->rules[i].rights;
        *p++ = u->rules[i].all_names;
    }
    fli_put_u16(p, u->patterns_len);
    p = put_bytes(p + 2, u->patterns, u->patterns_len);
    FLI_ASSERT((size_t)(p - out) <= ACL_ENCODED_MAX);
    return (size_t)(p - out);
}

static bool read_passwords(struct fli_reader *r, struct acl_user *u)
{
    u->n_passwords = fli_read_u8(r);
    if (r->bad || u->n_passwords > ACL_PASSWORDS_MAX) {
        return false;
    }
    for (unsigned i = 0; i < u->n_passwords; i++) {
        struct acl_hash *h = &u->passwords[i];
        h->log2_n = fli_read_u8(r);
        h->r = fli_read_u8(r);
        h->p = fli_read_u8(r);
        struct fli_slice salt = fli_read_bytes(r, ACL_SALT_SIZE);
        struct fli_slice key = fli_read_bytes(r, ACL_KEY_SIZE);
        if (r->bad || h->log2_n < 10 || h->log2_n > 16 || h->r < 1 || h->r > 8 || h->p < 1 ||
            h->p > 4) {
            return false;
        }
        memcpy(h->salt, salt.data, ACL_SALT_SIZE);
        memcpy(h->key, key.data, ACL_KEY_SIZE);
    }
    return true;
}

static bool read_rules(struct fli_reader *r, struct acl_user *u)
{
    u->n_rules = fli_read_u8(r);
    if (r->bad || u->n_rules < 1 || u->n_rules > ACL_RULES_MAX) {
        return false;
    }
    for (unsigned i = 0; i < u->n_rules; i++) {
        u->rules[i].rights = fli_read_u8(r);
        unsigned all = fli_read_u8(r);
        u->rules[i].all_names = all == 1;
        if (r->bad || all > 1) {
            return false;
        }
    }
    return true;
}

/* Whether the patterns are complete, are sorted by rule, and belong to rules that do not cover all
 * names. */
static bool read_patterns(struct fli_reader *r, struct acl_user *u)
{
    size_t len = fli_read_u16(r);
    struct fli_slice all = fli_read_bytes(r, len);
    if (r->bad || len > ACL_PATTERNS_SIZE) {
        return false;
    }
    unsigned last = 0;
    for (size_t at = 0; at < len;) {
        if (len - at < 3 || all.data[at + 1] == 0 || len - at - 2 < all.data[at + 1] ||
            all.data[at] < last || all.data[at] >= u->n_rules || u->rules[all.data[at]].all_names) {
            return false;
        }
        last = all.data[at];
        at += 2u + all.data[at + 1];
    }
    u->patterns_len = (uint16_t)len;
    if (len > 0) {
        memcpy(u->patterns, all.data, len);
    }
    return true;
}

bool acl_decode(struct fli_reader *r, struct acl_user *ret)
{
    unsigned flags = fli_read_u8(r);
    struct fli_slice name = fli_read_bytes(r, fli_read_u8(r));
    if (r->bad || flags > 3 || !acl_name_ok(name)) {
        return false;
    }
    acl_user_init(ret, name);
    ret->on = (flags & 1) != 0;
    ret->nopass = (flags & 2) != 0;
    return read_passwords(r, ret) && !(ret->nopass && ret->n_passwords > 0) && read_rules(r, ret) &&
           read_patterns(r, ret);
}
