/* connection_commands.c: see connection_commands.h. Each answer_*() appends one reply and returns
 * whether it fitted. */
#include "net/connection_commands.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/no_users.h"
#include "net/client_list.h"
#include "net/conn.h"
#include "wire/command_reply.h"

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
    return fli_resp_error(b, FLI_NO_USERS_WORD,
                          FLI_NO_USERS "; connect without user and password") == 0;
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
 * False: it is wrong and was answered; *ret_fits then says whether the answer fitted. */
static bool read_hello(const struct net_conn *c, struct fli_buf *b, const struct fli_slice *args,
                       unsigned n, struct net_auth *ret, bool *ret_fits)
{
    uint64_t proto = c->proto;
    *ret = (struct net_auth){.is_hello = true};
    if (n > 0 &&
        (!fli_parse_u64(args[0].data, args[0].len, UINT32_MAX, &proto) || proto < 2 || proto > 3)) {
        *ret_fits =
            fli_resp_error(b, "NOPROTO", "HELLO: write 2 or 3 for the protocol version") == 0;
        return false;
    }
    ret->proto = (int)proto;
    for (unsigned i = 1; i < n; i++) {
        if (is_word(args[i], "AUTH") && i + 2 < n) {
            ret->user = args[i + 1];
            ret->password = args[i + 2];
            i += 2;
            continue;
        }
        if (!is_word(args[i], "SETNAME") || i + 1 == n) {
            *ret_fits = fli_resp_error(b, "ERR",
                                       "HELLO: write HELLO [2|3] [AUTH user password] "
                                       "[SETNAME name]") == 0;
            return false;
        }
        if (!read_name(args[++i], ret->name)) {
            *ret_fits = bad_name(b);
            return false;
        }
        ret->named = true;
    }
    return true;
}

static bool finish_hello(const struct net_commands *commands, struct net_conn *c, struct fli_buf *b,
                         const struct net_auth *hello)
{
    net_conn_set_proto(c, hello->proto);
    if (hello->named) {
        net_conn_set_name(c, hello->name);
    }
    return hello_fields(commands, c, b);
}

void net_hello_finish(const struct net_commands *commands, struct net_request *r,
                      const struct net_auth *auth)
{
    if (finish_hello(commands, r->conn, net_reply(r), auth)) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

static bool answer_hello(const struct net_commands *commands, struct net_conn *c, struct fli_buf *b,
                         const struct fli_slice *args, unsigned n)
{
    struct net_auth hello;
    bool fits = true;
    if (!read_hello(c, b, args, n, &hello, &fits)) {
        return fits;
    }
    if (hello.user.data == NULL && commands->is_known != NULL &&
        !commands->is_known(commands->users_ctx, c)) {
        return fli_resp_error(b, "NOAUTH",
                              "Authentication required: log in first, or with HELLO 2|3 AUTH user "
                              "password") == 0;
    }
    return hello.user.data != NULL ? no_auth(b) : finish_hello(commands, c, b, &hello);
}

/* True: the service has taken the request. */
static bool begin_auth(const struct net_commands *commands, struct net_request *r,
                       enum fli_command_id id, const struct fli_slice *args, unsigned n)
{
    struct net_auth auth = {.is_hello = false};
    struct fli_buf unused;
    bool fits = true;
    if (commands->auth == NULL) {
        return false;
    }
    if (id == FLI_CMD_AUTH) {
        auth.user = n == 2 ? args[0] : (struct fli_slice){(const uint8_t *)"default", 7};
        auth.password = args[n - 1];
    } else {
        fli_buf_init(&unused, 1024);
        bool ok = id == FLI_CMD_HELLO && read_hello(r->conn, &unused, args, n, &auth, &fits);
        fli_buf_fini(&unused);
        if (!ok || auth.user.data == NULL) {
            return false; /* answer_hello() answers errors, and HELLO without AUTH */
        }
    }
    commands->auth(commands->users_ctx, r, &auth);
    return true;
}

/* --- CLIENT --- */

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
    /* Accepted and ignored: clients send it unasked, and some complain when it is refused. */
    if (is_word(attribute, "LIB-NAME") || is_word(attribute, "LIB-VER")) {
        return simple(b, "OK");
    }
    return fli_resp_error(b, "ERR", "CLIENT SETINFO: write LIB-NAME or LIB-VER") == 0;
}

/* A cache of the client stays empty with OPTIN, so it needs none of the invalidations that this
 * server never sends. In all other modes it would keep what it read for ever. */
static bool answer_client_tracking(struct fli_buf *b, const struct fli_slice *args, unsigned n)
{
    if ((n == 1 && is_word(args[0], "OFF")) ||
        (n == 2 && is_word(args[0], "ON") && is_word(args[1], "OPTIN"))) {
        return simple(b, "OK");
    }
    return fli_resp_error(b, "ERR",
                          "CLIENT TRACKING: write ON OPTIN or OFF; no invalidations are sent, so "
                          "nothing can be cached") == 0;
}

/* --- RESET, SELECT, and the table of all commands --- */

static bool answer_reset(struct net_conn *c, struct fli_buf *b)
{
    const struct net_callbacks *cbs = &c->server->cbs;
    net_conn_set_login(c, 0);
    if (c->secure != NULL && cbs->shaken != NULL) {
        cbs->shaken(cbs->ctx, c); /* back to the user of its certificate, as that is now */
    }
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
    case FLI_CMD_COMMAND_COUNT:
    case FLI_CMD_COMMAND_DOCS:
    case FLI_CMD_COMMAND_INFO:
    case FLI_CMD_COMMAND_LIST:
        ok = fli_command_reply(b, c->proto, commands->service, id, args, n) == 0;
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
    case FLI_CMD_CLIENT_TRACKING:
        ok = answer_client_tracking(b, args, n);
        break;
    case FLI_CMD_CLIENT_INFO:
        ok = net_client_info(commands, c, b);
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
    if ((command->id == FLI_CMD_AUTH || command->id == FLI_CMD_HELLO) &&
        begin_auth(commands, r, command->id, args, n)) {
        return true;
    }
    if (command->id == FLI_CMD_CLIENT_LIST) {
        net_client_list(commands, r);
        return true;
    }
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
