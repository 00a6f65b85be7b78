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

struct cli_out cli_result(const struct cli_args *a)
{
    return cli_out_begin(stdout, cli_has(a, CLI_OPT_JSON), cli_has(a, CLI_OPT_NO_COLOR));
}

struct cli_out cli_answer(const struct cli_args *a, const char *word, bool yes, const char *key,
                          struct fl_bytes thing, bool for_people)
{
    struct cli_out o = cli_result(a);
    fli_json_bool(&o.j, word, yes);
    fli_json_bytes(&o.j, key, thing);
    if (yes && (o.terminal || !for_people)) {
        cli_text_safe(&o, thing);
        cli_text(&o, ": ");
        cli_paint(&o, CLI_GREEN, "%s", word);
    }
    return o;
}

struct fl_bytes cli_name_of(const struct cli_args *a)
{
    return fl_str(a->arg[0]);
}

const char *cli_nodes_of(const struct cli_args *a)
{
    return cli_has(a, CLI_OPT_NODES) ? a->text[CLI_OPT_NODES] : "127.0.0.1:7401";
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

/* The first that fits says what a person can do; has: in the message. */
struct remedy {
    int code; /* 0: any */
    const char *has;
    const char *text; /* NULL: the message says all there is */
    const char *of_store;
};

static const struct remedy remedies[] = {
    {FL_EPROTO, "", .text = "Name nodes of fencelockd with --nodes or FENCELOCK_NODES.",
     .of_store = "Name a fencelock-store with --store or FENCELOCK_STORE."},
    {0, "unknown command", .text = "Name nodes of fencelockd with --nodes or FENCELOCK_NODES.",
     .of_store = "Name a fencelock-store with --store or FENCELOCK_STORE."},
    {FL_ENOCONN, "its certificate is not accepted",
     .text =
         "Name the CA to trust with --cacert, and the server's name, if it is not the host, with "
         "--sni."},
    {FL_ENOCONN, "wrong version number",
     .text = "Name a port with TLS (of --tls-port), or leave out --tls and FENCELOCK_TLS."},
    {FL_ENOCONN, "", .text = "Start fencelockd, or name the nodes with --nodes or FENCELOCK_NODES.",
     .of_store = "Start fencelock-store, or name it with --store or FENCELOCK_STORE."},
    {FL_ENOLEADER, "",
     .text = "A majority of the nodes must be up and connected: see fencelock status."},
    {FL_ETIMEOUT, "", .text = "Try again, or give it longer with --timeout."},
    {FL_EBUSY, "", .text = "Try again, or give it longer with --timeout."},
    {FL_EMISMATCH, "", .text = "Ask in the way in which the lock is in use: see fencelock show."},
    {FL_EDENIED, "certificate required",
     .text = "Show a certificate of the client with --cert and --key."},
    {FL_EDENIED, "NOAUTH ",
     .text = "Log in with --user, and --password-file or FENCELOCK_PASSWORD."},
    {FL_ESTALE, "acquire the lock again", .text = NULL}, /* the storage has said it */
    {FL_ESTALE, "", .text = "Somebody with a newer token has been there: acquire the lock again."},
    {FL_ENOTOKEN, "", .text = "Name the lock with --lock and its token with --token."},
};

const char *cli_remedy(const struct cli_args *a, int code, const char *message)
{
    uint64_t taken = a->command->options;
    if ((taken & CLI_BIT(CLI_OPT_REDIS)) != 0) {
        return NULL; /* this command asks Redis servers, and the remedies are about nodes */
    }
    if (code == FL_EUNCERTAIN && strstr(message, "unknown command") == NULL) {
        return a->command->uncertain;
    }
    bool store = ((a->given | taken) & CLI_BIT(CLI_OPT_STORE)) != 0;
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++) {
        const struct remedy *r = &remedies[i];
        if ((r->code == code || r->code == 0) && strstr(message, r->has) != NULL) {
            return store && r->of_store != NULL ? r->of_store : r->text;
        }
    }
    return NULL;
}

int cli_exit_for(const struct cli_args *a, int code)
{
    enum cli_exit exit = cli_exit_of(code);
    if (a->command->args_max != CLI_ARGS_REST || exit == CLI_EXIT_USAGE) {
        return (int)exit;
    }
    return exit == CLI_EXIT_NO ? (int)CLI_EXIT_RUN_NOT_ACQUIRED : (int)CLI_EXIT_RUN_FAILED;
}

int cli_fail(const struct cli_args *a, int code, const char *message)
{
    return cli_fail_with(a, code, message, cli_remedy(a, code, message));
}

int cli_fail_with(const struct cli_args *a, int code, const char *message, const char *hint)
{
    struct cli_out o = cli_failure(a, code, message, hint);
    cli_out_end(&o);
    return cli_exit_for(a, code);
}

struct cli_out cli_failure(const struct cli_args *a, int code, const char *message,
                           const char *hint)
{
    static const char *const classes[] = {"", "refused", "unknown", "fault"};
    size_t len = strlen(message);
    bool ended = len > 0 && message[len - 1] == '.';
    cli_complain("%s%s%s", message,
                 hint == NULL ? ""
                 : ended      ? " "
                              : ". ",
                 hint == NULL ? "" : hint);
    struct cli_out o = cli_result(a);
    fli_json_text(&o.j, "error", fl_err_name(code));
    fli_json_text(&o.j, "class", classes[fl_err_class(code)]);
    fli_json_text(&o.j, "message", message);
    return o;
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
        return cli_fail(a, rc, errmsg);
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

fl_client *cli_client_create(const struct cli_args *a, int *ret_exit)
{
    return cli_client_create_for(a, cli_nodes_of(a), 0, ret_exit);
}

/* 0, or the exit code after a sentence. */
static int read_access(const struct cli_args *a, const char *addresses, bool is_store,
                       struct cli_access *ret)
{
    struct fli_node nodes[FL_NODES_MAX];
    uint32_t unused;
    char errmsg[256] = "";
    char message[320];
    int rc = is_store ? fli_node_parse(addresses, strlen(addresses), nodes, errmsg, sizeof errmsg)
                      : fli_nodes_parse(addresses, nodes, &unused, errmsg, sizeof errmsg);
    if (rc != 0) {
        snprintf(message, sizeof message, "%s is wrong: %s",
                 is_store ? "the storage's address"
                          : "the list of nodes (--nodes or FENCELOCK_NODES)",
                 errmsg);
        return cli_fail(a, rc, message);
    }
    int code = cli_tls_of(a, CLI_OPT_TLS, &ret->tls);
    return code != 0 ? code : cli_login_of(a, &ret->login);
}

int cli_access_of(const struct cli_args *a, struct cli_access *ret)
{
    return read_access(a, cli_nodes_of(a), false, ret);
}

struct fl_client_options cli_client_options(const struct cli_args *a, const struct cli_access *with)
{
    return (struct fl_client_options){.timeout_ms = a->number[CLI_OPT_TIMEOUT],
                                      .tls = with->tls.use,
                                      .user = with->login.user,
                                      .password = with->login.password};
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

fl_client *cli_client_create_for(const struct cli_args *a, const char *addresses,
                                 uint64_t attempt_ms, int *ret_exit)
{
    struct cli_access with;
    *ret_exit = read_access(a, addresses, false, &with);
    if (*ret_exit != 0) {
        return NULL;
    }
    struct fl_client_options options = cli_client_options(a, &with);
    options.attempt_ms = attempt_ms;
    fl_client *c = NULL;
    int rc = fl_open(addresses, &options, &c);
    *ret_exit = rc == 0 ? 0 : cli_fail(a, rc, fl_strerror(rc));
    if (rc == 0 && isatty(STDERR_FILENO) == 1) {
        fli_client_on_trouble(c, on_trouble, &trouble_said);
    }
    return rc == 0 ? c : NULL;
}

fl_store *cli_store_create(const struct cli_args *a, enum cli_option option, int *ret_exit)
{
    const char *address = cli_has(a, option) ? a->text[option] : "127.0.0.1:7411";
    struct cli_access with;
    *ret_exit = read_access(a, address, true, &with);
    if (*ret_exit != 0) {
        return NULL;
    }
    const struct fl_store_options options = {.timeout_ms = a->number[CLI_OPT_TIMEOUT],
                                             .tls = with.tls.use,
                                             .user = with.login.user,
                                             .password = with.login.password};
    fl_store *s = NULL;
    int rc = fl_store_create_with(address, &options, &s);
    *ret_exit = rc == 0 ? 0 : cli_fail(a, rc, fl_strerror(rc));
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
    int code = rc != 0 && rc != FL_ENOTFOUND ? cli_fail(a, rc, fl_client_error(c))
                                             : show(a, rc == 0 ? list->locks[0] : NULL);
    fl_lock_list_free(list);
    return code;
}

bool cli_mode_of(const struct cli_args *a, struct fl_take *options)
{
    bool shared = cli_has(a, CLI_OPT_SHARED);
    bool semaphore = cli_has(a, CLI_OPT_PERMITS);
    if (shared && semaphore) {
        cli_complain("--shared and --permits exclude each other");
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
    options->permits = a->number[CLI_OPT_PERMITS];
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
        return cli_fail(a, FL_EINVAL, message);
    }
    *ret = v;
    return 0;
}
