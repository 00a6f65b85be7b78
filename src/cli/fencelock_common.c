/* fencelock_common.c: see fencelock_common.h. */
#include "cli/fencelock_common.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/lines.h"
#include "client/caller.h"
#include "client/nodes.h"
#include "wire/resp.h"

#define REQUEST_MAX ((size_t)64 << 10)

struct cli_style cli_style_of(const struct cli_args *a)
{
    return (struct cli_style){.json = cli_has(a, CLI_OPT_JSON),
                              .terminal = isatty(STDOUT_FILENO) == 1,
                              .colours = !cli_has(a, CLI_OPT_NO_COLOR) &&
                                         cli_wants_colours(STDOUT_FILENO)};
}

struct fl_bytes cli_name_of(const struct cli_args *a)
{
    return fl_str(a->arg[0]);
}

const char *cli_nodes_of(const struct cli_args *a)
{
    return cli_has(a, CLI_OPT_NODES) ? a->text[CLI_OPT_NODES] : "127.0.0.1:7401";
}

static const char *store_of(const struct cli_args *a)
{
    return cli_has(a, CLI_OPT_STORE) ? a->text[CLI_OPT_STORE] : "127.0.0.1:7411";
}

void cli_complain(const char *fmt, ...)
{
    char line[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    fputs("fencelock: ", stderr);
    cli_print_safe(stderr, fl_str(line));
    fputc('\n', stderr);
}

static const char *class_word(int code)
{
    switch (fl_err_class(code)) {
    case FL_CLASS_REFUSED:
        return "refused";
    case FL_CLASS_UNKNOWN:
        return "unknown";
    default:
        return "fault";
    }
}

static const char *remedy_of_denial(const char *message)
{
    if (strstr(message, "certificate required") != NULL) {
        return "Show a certificate of the client with --cert and --key.";
    }
    if (strstr(message, "NOAUTH ") != NULL) {
        return "Log in with --user, and --password-file or FENCELOCK_PASSWORD.";
    }
    return NULL;
}

const char *cli_remedy(const struct cli_args *a, int code, const char *message)
{
    if ((a->command->options & CLI_BIT(CLI_OPT_REDIS)) != 0) {
        return NULL; /* this command asks Redis servers, and the remedies are about nodes */
    }
    bool store = cli_has(a, CLI_OPT_STORE) || (a->command->options & CLI_BIT(CLI_OPT_STORE)) != 0;
    bool foreign = code == FL_EPROTO || strstr(message, "unknown command") != NULL;
    if (foreign) {
        return store ? "Name a fencelock-store with --store or FENCELOCK_STORE."
                     : "Name nodes of fencelockd with --nodes or FENCELOCK_NODES.";
    }
    switch (code) {
    case FL_ENOCONN:
        if (strstr(message, "its certificate is not accepted") != NULL) {
            return "Name the CA to trust with --cacert, and the server's name, if it is not the "
                   "host, with --sni.";
        }
        if (strstr(message, "wrong version number") != NULL) {
            return "Name a port with TLS (of --tls-port), or leave out --tls and FENCELOCK_TLS.";
        }
        return store ? "Start fencelock-store, or name it with --store or FENCELOCK_STORE."
                     : "Start fencelockd, or name the nodes with --nodes or FENCELOCK_NODES.";
    case FL_ENOLEADER:
        return "A majority of the nodes must be up and connected: see fencelock status.";
    case FL_ETIMEOUT:
    case FL_EBUSY:
        return "Try again, or give it longer with --timeout.";
    case FL_EUNCERTAIN:
        return a->command->uncertain;
    case FL_EMISMATCH:
        return "Ask in the way in which the lock is in use: see fencelock show.";
    case FL_EDENIED:
        return remedy_of_denial(message);
    case FL_ESTALE:
        if (strstr(message, "acquire the lock again") != NULL) {
            return NULL; /* the storage has said it */
        }
        return "Somebody with a newer token has been there: acquire the lock again.";
    case FL_ENOTOKEN:
        return "Name the lock with --lock and its token with --token.";
    default:
        return NULL;
    }
}

int cli_fail(const struct cli_args *a, int code, const char *message,
             void (*more)(struct fli_json *j, void *ctx), void *ctx)
{
    return cli_fail_with(a, code, message, cli_remedy(a, code, message), more, ctx);
}

int cli_fail_with(const struct cli_args *a, int code, const char *message, const char *hint,
                  void (*more)(struct fli_json *j, void *ctx), void *ctx)
{
    size_t len = strlen(message);
    bool ended = len > 0 && message[len - 1] == '.';
    cli_complain("%s%s%s", message,
                 hint == NULL ? ""
                 : ended      ? " "
                              : ". ",
                 hint == NULL ? "" : hint);
    if (cli_has(a, CLI_OPT_JSON)) {
        struct fli_json j = cli_json_begin();
        fli_json_text(&j, "error", fl_err_name(code));
        fli_json_text(&j, "class", class_word(code));
        fli_json_text(&j, "message", message);
        if (more != NULL) {
            more(&j, ctx);
        }
        cli_json_print(&j, stdout);
    }
    return (int)cli_exit_of(code);
}

int cli_tls_of(const struct cli_args *a, enum cli_option flag, struct cli_tls *ret)
{
    static const struct {
        enum cli_option option;
        const char *name;
    } files[] = {{CLI_OPT_CACERT, "--cacert"},
                 {CLI_OPT_CERT, "--cert"},
                 {CLI_OPT_KEY, "--key"},
                 {CLI_OPT_SNI, "--sni"}};
    char errmsg[320];
    *ret = (struct cli_tls){.use = NULL};
    bool any = cli_has(a, CLI_OPT_TLS) || cli_has(a, CLI_OPT_REDIS_TLS);
    for (size_t i = 0; !any && i < sizeof files / sizeof files[0]; i++) {
        if (cli_has(a, files[i].option)) {
            /* Going on without encryption is not what the user meant. */
            cli_complain("%s is given without --tls%s: add it, or leave %s out", files[i].name,
                         (a->command->options & CLI_BIT(CLI_OPT_REDIS)) != 0 ? " or --redis-tls"
                                                                             : "",
                         files[i].name);
            return CLI_EXIT_USAGE;
        }
    }
    if (!cli_has(a, flag)) {
        return 0;
    }
    ret->options = (struct fl_tls_options){.ca_file = a->text[CLI_OPT_CACERT],
                                           .cert_file = a->text[CLI_OPT_CERT],
                                           .key_file = a->text[CLI_OPT_KEY],
                                           .server_name = a->text[CLI_OPT_SNI]};
    int rc = fl_tls_check(&ret->options, errmsg, sizeof errmsg);
    if (rc != 0) {
        return cli_fail(a, rc, errmsg, NULL, NULL);
    }
    ret->use = &ret->options;
    return 0;
}

#define PASSWORD_VARIABLE "FENCELOCK_PASSWORD"

int cli_password_of(const struct cli_args *a, enum cli_option file, const char *variable,
                    char *room, size_t size)
{
    char why[512];
    const char *given = getenv(variable);
    room[0] = '\0';
    if (cli_has(a, file)) {
        if (fli_line_first(a->text[file], room, size, why, sizeof why) != 0) {
            cli_complain("--%s: %s",
                         file == CLI_OPT_PASSWORD_FILE ? "password-file" : "redis-password-file",
                         why);
            return CLI_EXIT_USAGE;
        }
    } else if (given != NULL && strlen(given) >= size) {
        cli_complain("%s has more than %zu bytes", variable, size - 1);
        return CLI_EXIT_USAGE;
    } else if (given != NULL) {
        (void)snprintf(room, size, "%s", given);
    }
    return 0;
}

int cli_login_of(const struct cli_args *a, struct cli_login *ret)
{
    *ret = (struct cli_login){.user = NULL};
    if (!cli_has(a, CLI_OPT_USER)) {
        if (cli_has(a, CLI_OPT_PASSWORD_FILE)) {
            cli_complain("--password-file is given without --user: add it");
            return CLI_EXIT_USAGE;
        }
        return 0;
    }
    bool in_url = a->password != NULL && !cli_has(a, CLI_OPT_PASSWORD_FILE);
    int code = 0;
    if (in_url) {
        (void)snprintf(ret->room, sizeof ret->room, "%s", a->password);
    } else {
        code = cli_password_of(a, CLI_OPT_PASSWORD_FILE, PASSWORD_VARIABLE, ret->room,
                               sizeof ret->room);
    }
    if (code == 0 && !in_url && !cli_has(a, CLI_OPT_PASSWORD_FILE) &&
        getenv(PASSWORD_VARIABLE) == NULL) {
        cli_complain("--user needs a password: --password-file FILE, or " PASSWORD_VARIABLE
                     " in the environment");
        code = CLI_EXIT_USAGE;
    }
    size_t len = strlen(a->text[CLI_OPT_USER]);
    if (code == 0 && (len < 1 || len > FL_USER_MAX)) {
        cli_complain("--user has 1 to %u bytes", FL_USER_MAX);
        code = CLI_EXIT_USAGE;
    }
    ret->user = a->text[CLI_OPT_USER];
    ret->password = ret->room;
    return code;
}

int cli_exchange(struct fli_link *l, const char *const *words, unsigned n, uint64_t until_ms,
                 redisReply **ret)
{
    struct fli_buf b;
    fli_buf_init(&b, REQUEST_MAX);
    int rc = fli_resp_array(&b, n);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = fli_resp_text(&b, words[i]);
    }
    if (rc == 0 && fli_link_send(l, b.data, b.len, until_ms) != 0) {
        rc = FL_ENOCONN;
    }
    fli_buf_fini(&b);
    return rc != 0 ? rc : fli_link_receive(l, until_ms, ret);
}

fl_client *cli_client_create(const struct cli_args *a, int *ret_exit)
{
    return cli_client_create_at(a, cli_nodes_of(a), ret_exit);
}

/* rc, errmsg: how the address was parsed. 0, or the exit code after a sentence. */
static int read_settings(const struct cli_args *a, int rc, const char *what, const char *errmsg,
                         struct cli_access *ret)
{
    if (rc != 0) {
        char message[320];
        snprintf(message, sizeof message, "%s is wrong: %s", what, errmsg);
        return cli_fail(a, rc, message, NULL, NULL);
    }
    int code = cli_tls_of(a, CLI_OPT_TLS, &ret->tls);
    return code != 0 ? code : cli_login_of(a, &ret->login);
}

static int read_access(const struct cli_args *a, const char *addresses, struct cli_access *ret)
{
    char errmsg[256] = "";
    int rc = fli_nodes_parse(addresses, ret->nodes, &ret->n, errmsg, sizeof errmsg);
    return read_settings(a, rc, "the list of nodes (--nodes or FENCELOCK_NODES)", errmsg, ret);
}

int cli_access_of(const struct cli_args *a, struct cli_access *ret)
{
    return read_access(a, cli_nodes_of(a), ret);
}

struct fl_client_options cli_client_options(const struct cli_args *a, const struct cli_access *with)
{
    return (struct fl_client_options){.timeout_ms = a->number[CLI_OPT_TIMEOUT],
                                      .tls = with->tls.use,
                                      .user = with->login.user,
                                      .password = with->login.password};
}

static int not_created(const struct cli_args *a, int rc)
{
    return cli_fail(a, rc, rc == FL_EINVAL ? "--timeout is at most 24h" : fl_strerror(rc), NULL,
                    NULL);
}

static bool trouble_said;

/* A person at a terminal is told after two seconds why nothing happens. */
static void on_trouble(void *arg, uint64_t without_ms, const char *text)
{
    bool *said = arg;
    if (!*said && text[0] != '\0' && without_ms >= FLI_SILENCE_MS) {
        *said = true;
        cli_complain("waiting: %s", text);
    }
}

fl_client *cli_client_create_at(const struct cli_args *a, const char *addresses, int *ret_exit)
{
    return cli_client_create_for(a, addresses, 0, ret_exit);
}

fl_client *cli_client_create_for(const struct cli_args *a, const char *addresses,
                                 uint64_t attempt_ms, int *ret_exit)
{
    struct cli_access with;
    *ret_exit = read_access(a, addresses, &with);
    if (*ret_exit != 0) {
        return NULL;
    }
    struct fl_client_options options = cli_client_options(a, &with);
    options.attempt_ms = attempt_ms;
    fl_client *c = NULL;
    int rc = fl_open(addresses, &options, &c);
    *ret_exit = rc == 0 ? 0 : not_created(a, rc);
    if (rc == 0 && isatty(STDERR_FILENO) == 1) {
        fli_client_on_trouble(c, on_trouble, &trouble_said);
    }
    return rc == 0 ? c : NULL;
}

fl_store *cli_store_create(const struct cli_args *a, int *ret_exit)
{
    return cli_store_create_at(a, store_of(a), ret_exit);
}

fl_store *cli_store_create_at(const struct cli_args *a, const char *address, int *ret_exit)
{
    struct fli_node node;
    char errmsg[256];
    struct cli_access with;
    int rc = fli_node_parse(address, strlen(address), &node, errmsg, sizeof errmsg);
    *ret_exit = read_settings(a, rc, "the storage's address", errmsg, &with);
    if (*ret_exit != 0) {
        return NULL;
    }
    const struct fl_store_options options = {.timeout_ms = a->number[CLI_OPT_TIMEOUT],
                                             .tls = with.tls.use,
                                             .user = with.login.user,
                                             .password = with.login.password};
    fl_store *s = NULL;
    rc = fl_store_create_with(address, &options, &s);
    *ret_exit = rc == 0 ? 0 : not_created(a, rc);
    if (rc == 0 && isatty(STDERR_FILENO) == 1) {
        fli_store_on_trouble(s, on_trouble, &trouble_said);
    }
    return rc == 0 ? s : NULL;
}

int cli_with_lock(const struct cli_args *a, fl_client *c,
                  int (*show)(const struct cli_args *a, const struct fl_lock_info *l))
{
    struct fl_lock_list *list = NULL;
    int rc = fl_show(c, cli_name_of(a), 0, &list);
    int code = rc != 0 && rc != FL_ENOTFOUND ? cli_fail(a, rc, fl_client_error(c), NULL, NULL)
                                             : show(a, rc == 0 ? list->locks[0] : NULL);
    fl_lock_list_free(list);
    return code;
}

bool cli_mode_of(const struct cli_args *a, struct fl_take *options)
{
    bool shared = cli_has(a, CLI_OPT_SHARED);
    bool semaphore = cli_has(a, CLI_OPT_PERMITS);
    uint64_t permits = a->number[CLI_OPT_PERMITS];
    if (shared && semaphore) {
        cli_complain("--shared and --permits exclude each other");
        return false;
    }
    if (semaphore && (permits < 1 || permits > FL_PERMITS_MAX)) {
        cli_complain("--permits is 1 to %u", FL_PERMITS_MAX);
        return false;
    }
    if (a->n_also > 0 && (shared || semaphore)) {
        cli_complain("--also excludes --shared and --permits");
        return false;
    }
    for (unsigned i = 0; i < a->n_also; i++) {
        if (!cli_name_is_wellformed(a->also[i].data)) {
            return false;
        }
    }
    options->also = a->also;
    options->also_len = a->n_also;
    options->mode = shared ? FL_MODE_SHARED : FL_MODE_EXCLUSIVE;
    options->permits = semaphore ? permits : 0;
    return true;
}

bool cli_name_is_wellformed(const char *name)
{
    size_t len = strlen(name);
    if (len < 1 || len > FL_NAME_MAX) {
        cli_complain("a lock's name has 1 to %u bytes, not %zu", FL_NAME_MAX, len);
        return false;
    }
    return true;
}

bool cli_lock_is_wellformed(const struct cli_args *a)
{
    size_t owner_len = cli_has(a, CLI_OPT_OWNER) ? strlen(a->text[CLI_OPT_OWNER]) : FL_OWNER_MIN;
    size_t value_len = cli_has(a, CLI_OPT_VALUE) ? strlen(a->text[CLI_OPT_VALUE]) : 0;
    if (!cli_name_is_wellformed(a->arg[0])) {
        return false;
    }
    if (owner_len < FL_OWNER_MIN || owner_len > FL_OWNER_MAX) {
        cli_complain("--owner has %u to %u bytes, not %zu: choose one that nobody else uses",
                     FL_OWNER_MIN, FL_OWNER_MAX, owner_len);
    } else if (value_len > FL_VALUE_MAX) {
        cli_complain("--value has at most %u bytes, not %zu", FL_VALUE_MAX, value_len);
    } else {
        return true;
    }
    return false;
}

int cli_token_of(const struct cli_args *a, const char *text, fl_token *ret)
{
    uint64_t v;
    if (!fli_parse_u64(text, strlen(text), FL_TOKEN_MAX, &v) || v == 0) {
        char message[256];
        snprintf(message, sizeof message, "'%.64s' is not a token: it is a number from 1 to %llu",
                 text, (unsigned long long)FL_TOKEN_MAX);
        return cli_fail(a, FL_EINVAL, message, NULL, NULL);
    }
    *ret = v;
    return 0;
}
