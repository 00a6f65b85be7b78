/* connection_commands.c: see connection_commands.h. Each answer_* appends one reply and returns
 * whether it fitted. */
#include "net/connection_commands.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "net/conn.h"

static bool is_word(struct fli_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.data, word, s.len) == 0;
}

static bool text_pair(struct fli_buf *b, const char *key, const char *value)
{
    return fli_resp_text(b, key) == 0 && fli_resp_text(b, value) == 0;
}

static bool simple(struct fli_buf *b, const char *text)
{
    return fli_resp_simple(b, text) == 0;
}

/* Copies a connection's name. False when it has characters that would break CLIENT LIST. */
static bool read_name(struct fli_slice s, char name[64])
{
    if (s.len >= 64) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '!' || s.data[i] > '~') {
            return false;
        }
    }
    memcpy(name, s.data, s.len);
    name[s.len] = '\0';
    return true;
}

static bool bad_name(struct fli_buf *b)
{
    return fli_resp_error(b, "ERR",
                          "a client name has at most 63 visible characters, without blanks") == 0;
}

static bool no_auth(struct fli_buf *b)
{
    return fli_resp_error(b, "ERR",
                          "AUTH: this version has no authentication; connect without user and "
                          "password") == 0;
}

/* --- HELLO --- */

static bool hello_fields(const struct net_commands *commands, struct net_conn *c, struct fli_buf *b)
{
    struct net_hello_field fields[NET_HELLO_FIELDS_MAX];
    unsigned n = commands->hello == NULL ? 0 : commands->hello(commands->ctx, fields);
    FLI_ASSERT(n <= NET_HELLO_FIELDS_MAX);
    int proto = c->proto;
    bool ok = fli_resp_map(b, proto, 7 + (size_t)n) == 0;
    ok = ok && text_pair(b, "server", commands->server_name);
    ok = ok && text_pair(b, "version", NET_REDIS_VERSION);
    ok = ok && fli_resp_text(b, "proto") == 0 && fli_resp_int(b, proto) == 0;
    ok = ok && fli_resp_text(b, "id") == 0 && fli_resp_u64(b, c->id) == 0;
    ok = ok && text_pair(b, "mode", "standalone");
    ok = ok && text_pair(b, "role", "master");
    ok = ok && fli_resp_text(b, "modules") == 0 && fli_resp_array(b, 0) == 0;
    for (unsigned i = 0; ok && i < n; i++) {
        ok = fli_resp_text(b, fields[i].key) == 0;
        ok = ok && (fields[i].text != NULL ? fli_resp_text(b, fields[i].text)
                                           : fli_resp_int(b, fields[i].number)) == 0;
    }
    return ok;
}

/* HELLO [protover [AUTH user password] [SETNAME name]]. Nothing changes unless all of it is right.
 */
static bool answer_hello(const struct net_commands *commands, struct net_conn *c, struct fli_buf *b,
                         const struct fli_slice *args, unsigned n)
{
    uint64_t proto = c->proto;
    char name[64];
    bool named = false;
    if (n > 0 &&
        (!fli_parse_u64(args[0].data, args[0].len, UINT32_MAX, &proto) || proto < 2 || proto > 3)) {
        return fli_resp_error(b, "NOPROTO", "HELLO: write 2 or 3 for the protocol version") == 0;
    }
    for (unsigned i = 1; i < n; i++) {
        if (is_word(args[i], "AUTH")) {
            return no_auth(b);
        }
        if (!is_word(args[i], "SETNAME") || i + 1 == n) {
            return fli_resp_error(b, "ERR",
                                  "HELLO: write HELLO [2|3] [AUTH user password] [SETNAME name]") ==
                   0;
        }
        if (!read_name(args[++i], name)) {
            return bad_name(b);
        }
        named = true;
    }
    net_conn_set_proto(c, (int)proto);
    if (named) {
        net_conn_set_name(c, name);
    }
    return hello_fields(commands, c, b);
}

/* --- CLIENT --- */

static int client_line(struct net_conn *c, struct fli_buf *text)
{
    struct net_conn_info info;
    net_conn_info(c, &info);
    return fli_buf_printf(text,
                          "id=%llu addr=%s name=%s age=%llu idle=%llu flags=N db=0 in-flight=%u "
                          "omem=%zu requests=%llu user=default resp=%d\n",
                          (unsigned long long)info.id, info.peer, info.name,
                          (unsigned long long)(info.age_ms / 1000),
                          (unsigned long long)(info.idle_ms / 1000), info.in_flight,
                          info.output_bytes, (unsigned long long)info.requests, info.proto);
}

static void list_one(void *ctx, struct net_conn *c)
{
    /* What does not fit is left out: the list may not be larger than an answer may be. */
    (void)!client_line(c, ctx);
}

static bool answer_client_lines(struct net_conn *c, struct fli_buf *b, bool all)
{
    struct net_server *s = c->server;
    struct fli_buf text;
    fli_buf_init(&text, s->limits.output_max / 2);
    bool ok = true;
    if (all) {
        net_each_conn(s, list_one, &text);
    } else {
        ok = client_line(c, &text) == 0;
    }
    ok = ok && fli_resp_verbatim(b, c->proto, text.data, text.len) == 0;
    fli_buf_fini(&text);
    return ok;
}

static bool answer_client_setname(struct net_conn *c, struct fli_buf *b, struct fli_slice arg)
{
    char name[64];
    if (!read_name(arg, name)) {
        return bad_name(b);
    }
    net_conn_set_name(c, name);
    return simple(b, "OK");
}

static bool answer_client_setinfo(struct fli_buf *b, struct fli_slice attribute)
{
    /* Accepted and not kept: clients send it unasked and some complain when it is refused. */
    if (is_word(attribute, "LIB-NAME") || is_word(attribute, "LIB-VER")) {
        return simple(b, "OK");
    }
    return fli_resp_error(b, "ERR", "CLIENT SETINFO: write LIB-NAME or LIB-VER") == 0;
}

/* --- COMMAND --- */

static unsigned service_flag(enum fli_service service)
{
    return service == FLI_SERVICE_LOCK ? FLI_CMD_LOCK : FLI_CMD_STORE;
}

static bool served(const struct fli_command *row, enum fli_service service)
{
    return (row->flags & service_flag(service)) != 0;
}

/* Rows with one name follow each other; the first served one stands for the name. */
static const struct fli_command *next_name(enum fli_service service, const struct fli_command *at)
{
    const struct fli_command *end = fli_commands + fli_commands_len;
    const char *name = at == NULL ? "" : at->name;
    for (const struct fli_command *row = at == NULL ? fli_commands : at + 1; row < end; row++) {
        if (served(row, service) && strcmp(row->name, name) != 0) {
            return row;
        }
    }
    return NULL;
}

static size_t count_names(enum fli_service service)
{
    size_t n = 0;
    for (const struct fli_command *row = next_name(service, NULL); row != NULL;
         row = next_name(service, row)) {
        n++;
    }
    return n;
}

static const struct fli_command *find_name(enum fli_service service, struct fli_slice name)
{
    const struct fli_command *row = next_name(service, NULL);
    while (row != NULL && !is_word(name, row->name)) {
        row = next_name(service, row);
    }
    return row;
}

static void lower(const char *name, const char *subcommand, char out[64])
{
    (void)snprintf(out, 64, "%s%s%s", name, subcommand == NULL ? "" : "|",
                   subcommand == NULL ? "" : subcommand);
    for (char *p = out; *p != '\0'; p++) {
        *p = (char)tolower((unsigned char)*p);
    }
}

static size_t count_subcommands(enum fli_service service, const struct fli_command *first)
{
    const struct fli_command *end = fli_commands + fli_commands_len;
    size_t n = 0;
    for (const struct fli_command *row = first; row < end; row++) {
        if (served(row, service) && row->subcommand != NULL &&
            strcmp(row->name, first->name) == 0) {
            n++;
        }
    }
    return n;
}

/* As Redis counts: the name included; negative for "at least". */
static int redis_arity(enum fli_service service, const struct fli_command *row)
{
    if (count_subcommands(service, row) > 0) {
        return row->subcommand == NULL ? -1 : -2;
    }
    return row->arity_min == row->arity_max ? row->arity_min + 1 : -(row->arity_min + 1);
}

static bool command_entry(enum fli_service service, const struct fli_command *row, int proto,
                          struct fli_buf *b)
{
    static const struct {
        unsigned flag;
        const char *text;
    } words[] = {{FLI_CMD_WRITE, "write"},
                 {FLI_CMD_QUERY, "readonly"},
                 {FLI_CMD_ADMIN, "admin"},
                 {FLI_CMD_LOCAL, "fast"}};
    char name[64];
    lower(row->name, NULL, name);
    size_t n = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        n += (row->flags & words[i].flag) != 0;
    }
    bool ok = fli_resp_array(b, 6) == 0 && fli_resp_text(b, name) == 0;
    ok = ok && fli_resp_int(b, redis_arity(service, row)) == 0;
    ok = ok && fli_resp_set(b, proto, n) == 0;
    for (size_t i = 0; ok && i < sizeof words / sizeof words[0]; i++) {
        ok = (row->flags & words[i].flag) == 0 || fli_resp_simple(b, words[i].text) == 0;
    }
    for (int i = 0; ok && i < 3; i++) { /* first key, last key, step: none, this is no key space */
        ok = fli_resp_int(b, 0) == 0;
    }
    return ok;
}

static bool answer_command(enum fli_service service, int proto, struct fli_buf *b,
                           const struct fli_slice *names, unsigned n)
{
    bool ok = true;
    if (n == 0) {
        ok = fli_resp_array(b, count_names(service)) == 0;
        for (const struct fli_command *row = next_name(service, NULL); ok && row != NULL;
             row = next_name(service, row)) {
            ok = command_entry(service, row, proto, b);
        }
        return ok;
    }
    ok = fli_resp_array(b, n) == 0;
    for (unsigned i = 0; ok && i < n; i++) {
        const struct fli_command *row = find_name(service, names[i]);
        ok = row == NULL ? fli_resp_null_array(b, proto) == 0
                         : command_entry(service, row, proto, b);
    }
    return ok;
}

static bool answer_command_list(enum fli_service service, struct fli_buf *b)
{
    bool ok = fli_resp_array(b, count_names(service)) == 0;
    for (const struct fli_command *row = next_name(service, NULL); ok && row != NULL;
         row = next_name(service, row)) {
        char name[64];
        lower(row->name, NULL, name);
        ok = fli_resp_text(b, name) == 0;
    }
    return ok;
}

static bool docs_pairs(const struct fli_command *row, int proto, struct fli_buf *b, size_t more)
{
    bool ok = fli_resp_map(b, proto, 5 + more) == 0;
    ok = ok && text_pair(b, "summary", row->help);
    ok = ok && text_pair(b, "since", FL_VERSION);
    ok =
        ok && text_pair(b, "group", (row->flags & FLI_CMD_CONNECTION) != 0 ? "connection" : "lock");
    ok = ok && text_pair(b, "syntax", row->syntax);
    return ok && text_pair(b, "reply", row->reply);
}

static bool docs_entry(enum fli_service service, const struct fli_command *first, int proto,
                       struct fli_buf *b)
{
    char name[64];
    lower(first->name, NULL, name);
    size_t n = count_subcommands(service, first);
    bool ok = fli_resp_text(b, name) == 0 && docs_pairs(first, proto, b, n > 0);
    if (n == 0) {
        return ok;
    }
    ok = ok && fli_resp_text(b, "subcommands") == 0 && fli_resp_map(b, proto, n) == 0;
    const struct fli_command *end = fli_commands + fli_commands_len;
    for (const struct fli_command *row = first; ok && row < end; row++) {
        if (served(row, service) && row->subcommand != NULL &&
            strcmp(row->name, first->name) == 0) {
            lower(row->name, row->subcommand, name);
            ok = fli_resp_text(b, name) == 0 && docs_pairs(row, proto, b, 0);
        }
    }
    return ok;
}

static bool answer_command_docs(enum fli_service service, int proto, struct fli_buf *b,
                                const struct fli_slice *names, unsigned n)
{
    bool ok = true;
    if (n == 0) {
        ok = fli_resp_map(b, proto, count_names(service)) == 0;
        for (const struct fli_command *row = next_name(service, NULL); ok && row != NULL;
             row = next_name(service, row)) {
            ok = docs_entry(service, row, proto, b);
        }
        return ok;
    }
    size_t known = 0;
    for (unsigned i = 0; i < n; i++) {
        known += find_name(service, names[i]) != NULL;
    }
    ok = fli_resp_map(b, proto, known) == 0;
    for (unsigned i = 0; ok && i < n; i++) {
        const struct fli_command *row = find_name(service, names[i]);
        ok = row == NULL || docs_entry(service, row, proto, b);
    }
    return ok;
}

/* --- all of them --- */

static bool answer_reset(struct net_conn *c, struct fli_buf *b)
{
    net_conn_set_proto(c, 2);
    net_conn_set_name(c, "");
    return simple(b, "RESET");
}

static bool answer_select(struct fli_buf *b, struct fli_slice arg)
{
    if (is_word(arg, "0")) {
        return simple(b, "OK");
    }
    return fli_resp_error(b, "ERR", "SELECT: there is only database 0") == 0;
}

/* Whether `id` is answered here; then *ret_ok says whether the reply fitted. */
static bool answer(const struct net_commands *commands, struct net_conn *c, struct fli_buf *b,
                   enum fli_command_id id, const struct fli_slice *args, unsigned n, bool *ret_ok)
{
    enum fli_service service = commands->service;
    bool ok = false;
    switch (id) {
    case FLI_CMD_PING:
        ok = n == 0 ? simple(b, "PONG") : fli_resp_bulk(b, args[0].data, args[0].len) == 0;
        break;
    case FLI_CMD_ECHO:
        ok = fli_resp_bulk(b, args[0].data, args[0].len) == 0;
        break;
    case FLI_CMD_HELLO:
        ok = answer_hello(commands, c, b, args, n);
        break;
    case FLI_CMD_AUTH:
        ok = no_auth(b);
        break;
    case FLI_CMD_SELECT:
        ok = answer_select(b, args[0]);
        break;
    case FLI_CMD_QUIT:
        ok = simple(b, "OK");
        net_conn_close_after_answers(c);
        break;
    case FLI_CMD_RESET:
        ok = answer_reset(c, b);
        break;
    case FLI_CMD_COMMAND:
        ok = answer_command(service, c->proto, b, NULL, 0);
        break;
    case FLI_CMD_COMMAND_INFO:
        ok = answer_command(service, c->proto, b, args, n);
        break;
    case FLI_CMD_COMMAND_COUNT:
        ok = fli_resp_u64(b, count_names(service)) == 0;
        break;
    case FLI_CMD_COMMAND_LIST:
        ok = answer_command_list(service, b);
        break;
    case FLI_CMD_COMMAND_DOCS:
        ok = answer_command_docs(service, c->proto, b, args, n);
        break;
    case FLI_CMD_CLIENT_ID:
        ok = fli_resp_u64(b, c->id) == 0;
        break;
    case FLI_CMD_CLIENT_GETNAME:
        ok = (c->name[0] == '\0' ? fli_resp_null(b, c->proto) : fli_resp_text(b, c->name)) == 0;
        break;
    case FLI_CMD_CLIENT_SETNAME:
        ok = answer_client_setname(c, b, args[0]);
        break;
    case FLI_CMD_CLIENT_SETINFO:
        ok = answer_client_setinfo(b, args[0]);
        break;
    case FLI_CMD_CLIENT_INFO:
        ok = answer_client_lines(c, b, false);
        break;
    case FLI_CMD_CLIENT_LIST:
        ok = answer_client_lines(c, b, true);
        break;
    default:
        return false;
    }
    *ret_ok = ok;
    return true;
}

bool net_connection_command(const struct net_commands *commands, struct net_request *r,
                            const struct fli_command *command, const struct fli_slice *args,
                            unsigned n)
{
    FLI_ASSERT((int)n >= command->arity_min);
    bool ok = false;
    if (!answer(commands, r->conn, net_reply(r), command->id, args, n, &ok)) {
        return false;
    }
    if (ok) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
    return true;
}
