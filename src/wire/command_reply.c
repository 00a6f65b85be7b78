/* command_reply.c: see command_reply.h. The shapes are those of Redis 7: ten elements for each
 * command in COMMAND and COMMAND INFO, a map for each in COMMAND DOCS. Names are in lower case; a
 * subcommand is "name|subcommand", inside its name's entry. */
#include "wire/command_reply.h"

#include <stdio.h>
#include <string.h>

#include "wire/resp.h"

#define SINCE "0.1.0"
#define FULL_NAME_MAX 48u

/* The output. The first error is kept, and nothing is appended after it. */
struct out {
    struct fli_buf *b;
    int proto;
    enum fli_service service;
    int rc;
};

#define PUT(o, call)                                                                               \
    do {                                                                                           \
        if ((o)->rc == 0) {                                                                        \
            (o)->rc = (call);                                                                      \
        }                                                                                          \
    } while (0)

static void put_array(struct out *o, size_t n)
{
    PUT(o, fli_resp_array(o->b, n));
}

static void put_map(struct out *o, size_t n)
{
    PUT(o, fli_resp_map(o->b, o->proto, n));
}

static void put_set(struct out *o, size_t n)
{
    PUT(o, fli_resp_set(o->b, o->proto, n));
}

static void put_int(struct out *o, int64_t v)
{
    PUT(o, fli_resp_int(o->b, v));
}

static void put_text(struct out *o, const char *text)
{
    PUT(o, fli_resp_text(o->b, text));
}

static void put_status(struct out *o, const char *text)
{
    PUT(o, fli_resp_simple(o->b, text));
}

static size_t count_names(enum fli_service service)
{
    size_t n = 0;
    for (size_t i = 0; i < fli_commands_len; i = fli_command_family_end(i)) {
        n += fli_command_served(&fli_commands[i], service);
    }
    return n;
}

static size_t count_subcommands(const struct out *o, size_t first)
{
    size_t n = 0;
    for (size_t i = first; i < fli_command_family_end(first); i++) {
        n += fli_commands[i].subcommand != NULL && fli_command_served(&fli_commands[i], o->service);
    }
    return n;
}

static void lower(char *out, size_t size, const char *text)
{
    size_t i = 0;
    for (; text[i] != '\0' && i + 1 < size; i++) {
        out[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + ('a' - 'A') : text[i]);
    }
    out[i] = '\0';
}

/* "session", or "session|open" for a subcommand. */
static void put_name(struct out *o, const char *name, const char *subcommand)
{
    char text[FULL_NAME_MAX];
    char low[FULL_NAME_MAX];
    snprintf(text, sizeof text, "%s%s%s", name, subcommand == NULL ? "" : "|",
             subcommand == NULL ? "" : subcommand);
    lower(low, sizeof low, text);
    put_text(o, low);
}

/* As Redis counts arguments: including the words of the name, and negative when more may follow. */
static int64_t arity(const struct fli_command *c)
{
    int64_t n = c->arity_min + (c->subcommand == NULL ? 1 : 2);
    return c->arity_max == c->arity_min ? n : -n;
}

static void put_flags(struct out *o, unsigned flags)
{
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {
        {FLI_CMD_WRITE, "write"},
        {FLI_CMD_QUERY, "readonly"},
        {FLI_CMD_ADMIN, "admin"},
        {FLI_CMD_CONNECTION, "fast"},
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        n += (flags & names[i].flag) != 0;
    }
    put_set(o, n);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if ((flags & names[i].flag) != 0) {
            put_status(o, names[i].name);
        }
    }
}

/* Whether the first argument is a key in Redis' sense. */
static bool has_key(const struct fli_command *c)
{
    static const char *const words[] = {"name", "key", "lock"};
    if ((c->flags & FLI_CMD_CONNECTION) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t len = strlen(words[i]);
        if (strncmp(c->syntax, words[i], len) == 0 &&
            (c->syntax[len] == '\0' || c->syntax[len] == ' ')) {
            return true;
        }
    }
    return false;
}

/* One entry up to its subcommands, which the caller appends. */
static void put_info_head(struct out *o, const struct fli_command *c, bool container)
{
    int64_t key = !container && has_key(c) ? 1 : 0;
    put_array(o, 10);
    put_name(o, c->name, container ? NULL : c->subcommand);
    put_int(o, container ? -2 : arity(c));
    put_flags(o, container ? 0 : c->flags);
    put_int(o, key); /* first key, last key, step */
    put_int(o, key);
    put_int(o, key);
    put_set(o, 1); /* categories */
    char category[FULL_NAME_MAX];
    snprintf(category, sizeof category, "@%s", fli_command_group(c));
    put_status(o, category);
    put_array(o, 0); /* tips */
    put_array(o, 0); /* key specifications */
}

static void put_info(struct out *o, size_t first)
{
    const struct fli_command *c = &fli_commands[first];
    size_t subs = count_subcommands(o, first);
    put_info_head(o, c, c->subcommand != NULL);
    put_array(o, subs);
    for (size_t i = first; subs > 0 && i < fli_command_family_end(first); i++) {
        const struct fli_command *sub = &fli_commands[i];
        if (sub->subcommand != NULL && fli_command_served(sub, o->service)) {
            put_info_head(o, sub, false);
            put_array(o, 0);
        }
    }
}

/* Reads the next element of a syntax: up to a blank outside of brackets. *text moves behind it. */
static bool next_element(const char **text, struct fli_slice *ret)
{
    const char *p = *text;
    while (*p == ' ') {
        p++;
    }
    const char *start = p;
    for (int depth = 0; *p != '\0' && (*p != ' ' || depth > 0); p++) {
        depth += (*p == '[') - (*p == ']');
    }
    *ret = (struct fli_slice){(const uint8_t *)start, (size_t)(p - start)};
    *text = p;
    return p > start;
}

static bool is_upper_word(const struct fli_slice *s)
{
    for (size_t i = 0; i < s->len; i++) {
        if (s->data[i] < 'A' || s->data[i] > 'Z') {
            return false;
        }
    }
    return s->len > 0;
}

struct argument {
    struct fli_slice name;
    struct fli_slice token; /* the option word in front, if a single name follows it */
    bool optional;
    bool multiple;
    bool multiple_token; /* the word in front is repeated as well */
};

/* Reads the next argument of a syntax. Alternatives and nested options stay one argument whose name
 * is their text, since that is what people want to see. */
static bool next_argument(const char **text, struct argument *ret)
{
    struct argument a = {.optional = false};
    if (!next_element(text, &a.name)) {
        return false;
    }
    if (is_upper_word(&a.name) && **text != '\0') { /* a required option, such as FENCE */
        a.token = a.name;
        (void)next_element(text, &a.name);
    } else if (a.name.data[0] == '[') {
        a.optional = true;
        if (a.name.data[a.name.len - 1] == '.') {
            a.multiple = true;
            a.multiple_token = true;
            a.name.len -= 3;
        }
        a.name.data++;
        a.name.len -= 2;
        const uint8_t *blank = memchr(a.name.data, ' ', a.name.len);
        struct fli_slice word = a.name;
        struct fli_slice rest = {0};
        if (blank != NULL) {
            word.len = (size_t)(blank - a.name.data);
            rest = (struct fli_slice){blank + 1, a.name.len - word.len - 1};
        }
        if (rest.len == 3 && memcmp(rest.data, "...", 3) == 0) {
            a.multiple = true;
            a.name = word;
        } else if (is_upper_word(&word) && blank == NULL) {
            a.token = word; /* it has no value: its name is the word itself */
        } else if (is_upper_word(&word) && memchr(rest.data, ' ', rest.len) == NULL) {
            a.token = word;
            a.name = rest;
        }
    }
    *ret = a;
    return true;
}

static void put_argument(struct out *o, const struct argument *a)
{
    size_t flags =
        (a->optional ? 1u : 0u) + (a->multiple ? 1u : 0u) + (a->multiple_token ? 1u : 0u);
    put_map(o, (size_t)2 + (a->token.len > 0 ? 1 : 0) + (flags > 0 ? 1 : 0));
    put_text(o, "name");
    PUT(o, fli_resp_bulk(o->b, a->name.data, a->name.len));
    put_text(o, "type");
    put_text(o, "string");
    if (a->token.len > 0) {
        put_text(o, "token");
        PUT(o, fli_resp_bulk(o->b, a->token.data, a->token.len));
    }
    if (flags > 0) {
        put_text(o, "flags");
        put_set(o, flags);
        if (a->optional) {
            put_status(o, "optional");
        }
        if (a->multiple) {
            put_status(o, "multiple");
        }
        if (a->multiple_token) {
            put_status(o, "multiple_token");
        }
    }
}

static void put_arguments(struct out *o, const char *syntax)
{
    struct argument a;
    size_t n = 0;
    for (const char *p = syntax; next_argument(&p, &a);) {
        n++;
    }
    put_text(o, "arguments");
    put_array(o, n);
    for (const char *p = syntax; next_argument(&p, &a);) {
        put_argument(o, &a);
    }
}

/* Writes name and map of one entry; the caller appends `more` fields to the map. */
static void put_docs_head(struct out *o, const struct fli_command *c, bool container, size_t more)
{
    bool arguments = !container && c->syntax[0] != '\0';
    put_name(o, c->name, container ? NULL : c->subcommand);
    put_map(o, (arguments ? 4u : 3u) + more);
    put_text(o, "summary");
    put_text(o, container ? "A family of commands; see its subcommands." : c->help);
    put_text(o, "since");
    put_text(o, SINCE);
    put_text(o, "group");
    put_text(o, fli_command_group(c));
    if (arguments) {
        put_arguments(o, c->syntax);
    }
}

static void put_docs(struct out *o, size_t first)
{
    const struct fli_command *c = &fli_commands[first];
    size_t subs = count_subcommands(o, first);
    put_docs_head(o, c, c->subcommand != NULL, subs > 0);
    if (subs == 0) {
        return;
    }
    put_text(o, "subcommands");
    put_map(o, subs);
    for (size_t i = first; i < fli_command_family_end(first); i++) {
        const struct fli_command *sub = &fli_commands[i];
        if (sub->subcommand != NULL && fli_command_served(sub, o->service)) {
            put_docs_head(o, sub, false, 0);
        }
    }
}

/* The row for "name" or "name|subcommand"; fli_commands_len when there is none. *ret_sub: whether a
 * subcommand was asked for. */
static size_t find_row(const struct out *o, const struct fli_slice *asked, bool *ret_sub)
{
    char text[FULL_NAME_MAX];
    if (asked->len == 0 || asked->len >= sizeof text ||
        memchr(asked->data, '\0', asked->len) != NULL) {
        return fli_commands_len;
    }
    memcpy(text, asked->data, asked->len);
    text[asked->len] = '\0';
    char *bar = strchr(text, '|');
    if (bar != NULL) {
        *bar = '\0';
    }
    *ret_sub = bar != NULL;
    size_t at = fli_commands_len;
    if (bar != NULL) {
        const struct fli_command *c = fli_command_find(o->service, text, bar + 1);
        at = c == NULL ? at : (size_t)(c - fli_commands);
    } else {
        at = fli_command_family(o->service, text);
    }
    bool served = at < fli_commands_len && fli_command_served(&fli_commands[at], o->service);
    return served ? at : fli_commands_len;
}

static void reply_all(struct out *o)
{
    put_array(o, count_names(o->service));
    for (size_t i = 0; i < fli_commands_len; i = fli_command_family_end(i)) {
        if (fli_command_served(&fli_commands[i], o->service)) {
            put_info(o, i);
        }
    }
}

static void reply_info(struct out *o, const struct fli_slice *args, unsigned n)
{
    put_array(o, n);
    for (unsigned i = 0; i < n; i++) {
        bool sub = false;
        size_t at = find_row(o, &args[i], &sub);
        if (at == fli_commands_len) {
            PUT(o, fli_resp_null_array(o->b, o->proto));
        } else if (sub) {
            put_info_head(o, &fli_commands[at], false);
            put_array(o, 0);
        } else {
            put_info(o, at);
        }
    }
}

static void reply_docs(struct out *o, const struct fli_slice *args, unsigned n)
{
    if (n == 0) {
        put_map(o, count_names(o->service));
        for (size_t i = 0; i < fli_commands_len; i = fli_command_family_end(i)) {
            if (fli_command_served(&fli_commands[i], o->service)) {
                put_docs(o, i);
            }
        }
        return;
    }
    bool sub = false;
    size_t known = 0;
    for (unsigned i = 0; i < n; i++) {
        known += find_row(o, &args[i], &sub) < fli_commands_len;
    }
    put_map(o, known);
    for (unsigned i = 0; i < n; i++) {
        size_t at = find_row(o, &args[i], &sub);
        if (at < fli_commands_len && sub) {
            put_docs_head(o, &fli_commands[at], false, 0);
        } else if (at < fli_commands_len) {
            put_docs(o, at);
        }
    }
}

static void reply_list(struct out *o)
{
    put_array(o, count_names(o->service));
    for (size_t i = 0; i < fli_commands_len; i = fli_command_family_end(i)) {
        if (fli_command_served(&fli_commands[i], o->service)) {
            put_name(o, fli_commands[i].name, NULL);
        }
    }
}

int fli_command_reply(struct fli_buf *b, int proto, enum fli_service service,
                      enum fli_command_id id, const struct fli_slice *args, unsigned n)
{
    struct out o = {b, proto, service, 0};
    size_t len = b->len;
    if (id == FLI_CMD_COMMAND_COUNT) {
        put_int(&o, (int64_t)count_names(service));
    } else if (id == FLI_CMD_COMMAND_DOCS) {
        reply_docs(&o, args, n);
    } else if (id == FLI_CMD_COMMAND_LIST) {
        reply_list(&o);
    } else if (id == FLI_CMD_COMMAND_INFO && n > 0) {
        reply_info(&o, args, n);
    } else {
        FLI_ASSERT(id == FLI_CMD_COMMAND || id == FLI_CMD_COMMAND_INFO);
        reply_all(&o);
    }
    if (o.rc != 0) {
        b->len = len;
    }
    return o.rc;
}
