/* fencelock_common.c: see fencelock_common.h. */
#include "cli/fencelock_common.h"

#include <errno.h>
#include <inttypes.h>
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

int cli_complain(const char *fmt, ...)
{
    char line[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    fputs("fencelock: ", stderr);
    cli_print_safe(stderr, fl_str(line));
    fputc('\n', stderr);
    return CLI_EXIT_USAGE;
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
    if (cli_is_of_redis(a)) {
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

int cli_exit_for(const struct cli_args *a, enum cli_exit exit)
{
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
    return cli_exit_for(a, cli_exit_of(code));
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

/* ---- how to get in --------------------------------------------------------------------------- */

/* Each of these returns 0, or an exit code after a sentence. redis: at Redis servers. */
static int read_tls(const struct cli_args *a, bool redis, struct cli_access *ret)
{
    static const enum cli_option files[] = {CLI_OPT_CACERT, CLI_OPT_CERT, CLI_OPT_KEY, CLI_OPT_SNI};
    static const char *const names[] = {"cacert", "cert", "key", "sni"};
    char errmsg[320];
    bool any = cli_has(a, CLI_OPT_TLS) || cli_has(a, CLI_OPT_REDIS_TLS);
    for (size_t i = 0; !any && i < sizeof files / sizeof files[0]; i++) {
        if (cli_has(a, files[i])) {
            /* Going on without encryption is not what the user meant. */
            return cli_complain("--%s is given without --tls%s: add it, or leave --%s out",
                                names[i], cli_is_of_redis(a) ? " or --redis-tls" : "", names[i]);
        }
    }
    ret->files = (struct fl_tls_options){.ca_file = a->text[CLI_OPT_CACERT],
                                         .cert_file = a->text[CLI_OPT_CERT],
                                         .key_file = a->text[CLI_OPT_KEY],
                                         .server_name = a->text[CLI_OPT_SNI]};
    ret->tls = cli_has(a, redis ? CLI_OPT_REDIS_TLS : CLI_OPT_TLS) ? &ret->files : NULL;
    int rc = ret->tls != NULL ? fl_tls_check(ret->tls, errmsg, sizeof errmsg) : 0;
    return rc != 0 ? cli_fail(a, rc, errmsg) : 0;
}

/* The password is the first line of a file, or in a URL, or in the environment. */
static int read_password(const struct cli_args *a, bool redis, struct cli_access *ret)
{
    const char *file = a->text[redis ? CLI_OPT_REDIS_PASSWORD_FILE : CLI_OPT_PASSWORD_FILE];
    const char *variable = redis ? "FENCELOCK_REDIS_PASSWORD" : "FENCELOCK_PASSWORD";
    const char *given = !redis && a->password != NULL ? a->password : getenv(variable);
    char why[512];
    if (file != NULL && fli_line_first(file, ret->room, sizeof ret->room, why, sizeof why) != 0) {
        return cli_complain("--%spassword-file: %s", redis ? "redis-" : "", why);
    }
    if (file == NULL && (given == NULL || (redis && given[0] == '\0'))) {
        return 0;
    }
    if (file == NULL &&
        snprintf(ret->room, sizeof ret->room, "%s", given) >= (int)sizeof ret->room) {
        return cli_complain("%s has more than %zu bytes", variable, sizeof ret->room - 1);
    }
    ret->password = ret->room;
    return 0;
}

/* Redis servers may have a password for all, without a user. */
static int read_login(const struct cli_args *a, bool redis, struct cli_access *ret)
{
    const char *word = redis ? "redis-" : "";
    ret->user = a->text[redis ? CLI_OPT_REDIS_USER : CLI_OPT_USER];
    if (ret->user == NULL && !redis) {
        return !cli_has(a, CLI_OPT_PASSWORD_FILE)
                   ? 0
                   : cli_complain("--password-file is given without --user: add it");
    }
    int code = read_password(a, redis, ret);
    if (code != 0 || ret->user == NULL) {
        return code;
    }
    if (ret->password == NULL) {
        return cli_complain("--%suser needs a password: --%spassword-file FILE, or "
                            "FENCELOCK_%sPASSWORD in the environment",
                            word, word, redis ? "REDIS_" : "");
    }
    bool fits = redis || (ret->user[0] != '\0' && strlen(ret->user) <= FL_USER_MAX);
    return fits ? 0 : cli_complain("--user has 1 to %u bytes", FL_USER_MAX);
}

static int read_access(const struct cli_args *a, bool redis, struct cli_access *ret)
{
    *ret = (struct cli_access){.tls = NULL};
    int code = read_tls(a, redis, ret);
    return code != 0 ? code : read_login(a, redis, ret);
}

int cli_redis_access(const struct cli_args *a, struct cli_access *ret)
{
    if (!cli_has(a, CLI_OPT_REDIS)) {
        return cli_complain("which Redis servers? Name them with --redis HOST:PORT,HOST:PORT,... "
                            "or FENCELOCK_REDIS");
    }
    return read_access(a, true, ret);
}

static int check_addresses(const struct cli_args *a, const char *addresses, bool is_store)
{
    struct fli_node nodes[FL_NODES_MAX];
    uint32_t unused;
    char errmsg[256] = "";
    char message[320];
    int rc = is_store ? fli_node_parse(addresses, strlen(addresses), nodes, errmsg, sizeof errmsg)
                      : fli_nodes_parse(addresses, nodes, &unused, errmsg, sizeof errmsg);
    if (rc == 0) {
        return 0;
    }
    snprintf(message, sizeof message, "%s is wrong: %s",
             is_store ? "the storage's address" : "the list of nodes (--nodes or FENCELOCK_NODES)",
             errmsg);
    return cli_fail(a, rc, message);
}

/* ---- clients --------------------------------------------------------------------------------- */

const struct fl_client_options cli_for_changes = {.attempt_ms = 3000};

fl_client *cli_client_create(const struct cli_args *a, int *ret_exit)
{
    return cli_client_create_for(a, cli_nodes_of(a), NULL, ret_exit);
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
                                 const struct fl_client_options *more, int *ret_exit)
{
    struct cli_access with;
    *ret_exit = check_addresses(a, addresses, false);
    *ret_exit = *ret_exit != 0 ? *ret_exit : read_access(a, false, &with);
    if (*ret_exit != 0) {
        return NULL;
    }
    struct fl_client_options options =
        more != NULL ? *more : (struct fl_client_options){.user = NULL};
    options.timeout_ms = a->number[CLI_OPT_TIMEOUT];
    options.tls = with.tls;
    options.user = with.user;
    options.password = with.password;
    fl_client *c = NULL;
    int rc = fl_open(addresses, &options, &c);
    if (rc != 0) {
        *ret_exit = cli_fail(
            a, rc, rc == FL_ENOCONN ? "none of the nodes' hosts can be found" : fl_strerror(rc));
        return NULL;
    }
    if (isatty(STDERR_FILENO) == 1) {
        fli_client_on_trouble(c, on_trouble, &trouble_said);
    }
    return c;
}

static bool is_name(const char *name)
{
    size_t len = strlen(name);
    if (len < 1 || len > FL_NAME_MAX) {
        cli_complain("a lock's name has 1 to %u bytes, not %zu", FL_NAME_MAX, len);
        return false;
    }
    return true;
}

fl_client *cli_redlock_open(const struct cli_args *a, bool own_loop, fl_client **ret_tokens,
                            int *ret_exit)
{
    struct cli_access with;
    *ret_tokens = NULL;
    bool named = a->n_args == 0 || is_name(a->arg[0]); /* wrong usage, wherever the servers are */
    *ret_exit = named ? cli_redis_access(a, &with) : CLI_EXIT_USAGE;
    if (*ret_exit == 0 && cli_has(a, CLI_OPT_NODES)) {
        *ret_tokens = cli_client_create(a, ret_exit);
    }
    if (*ret_exit != 0) {
        return NULL;
    }
    const struct fl_redlock_options options = {
        .servers = a->text[CLI_OPT_REDIS],
        .user = with.user,
        .password = with.password,
        .tls = with.tls,
        .tokens = *ret_tokens,
        .own_loop = own_loop,
        .database = (uint32_t)a->number[CLI_OPT_REDIS_DB],
        .key_format = a->text[CLI_OPT_KEY_FORMAT],
        .max_ttl_ms = a->number[CLI_OPT_MAX_TTL],
        .budget_ms = a->number[CLI_OPT_BUDGET],
        .restarts_are_safe = cli_has(a, CLI_OPT_RESTARTS_ARE_SAFE),
    };
    fl_client *r = NULL;
    char errmsg[512];
    char message[640];
    int rc = fl_redlock_open(&options, &r, errmsg, sizeof errmsg);
    if (rc != 0) {
        snprintf(message, sizeof message, "--redis or FENCELOCK_REDIS cannot be used as given: %s",
                 rc == FL_EINVAL || rc == FL_ENOCONN ? errmsg : fl_strerror(rc));
        *ret_exit = cli_fail(a, rc, message);
    }
    return r;
}

fl_store *cli_store_create(const struct cli_args *a, enum cli_option option, int *ret_exit)
{
    const char *address = cli_has(a, option) ? a->text[option] : "127.0.0.1:7411";
    struct cli_access with;
    *ret_exit = check_addresses(a, address, true);
    *ret_exit = *ret_exit != 0 ? *ret_exit : read_access(a, false, &with);
    if (*ret_exit != 0) {
        return NULL;
    }
    const struct fl_store_options options = {.timeout_ms = a->number[CLI_OPT_TIMEOUT],
                                             .tls = with.tls,
                                             .user = with.user,
                                             .password = with.password};
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
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_SHOW, .name = cli_name_of(a)};
    int rc = fl_ask(c, &ask, &r);
    int code = rc != 0 && rc != FL_ENOTFOUND ? cli_fail(a, rc, fl_client_error(c))
                                             : show(a, rc == 0 ? r.locks->locks[0] : NULL);
    fl_lock_list_free(r.locks);
    return code;
}

/* ---- a lock that is to be taken -------------------------------------------------------------- */

/* A command that is run has to be stopped in time. */
static bool check_times(const struct cli_args *a, const struct fl_take *o)
{
    bool redis = cli_is_of_redis(a);
    bool runs = a->command->args_max == CLI_ARGS_REST;
    uint64_t least_ms = runs ? CLI_RUN_TTL_MIN_MS : FL_TTL_MIN_MS;
    uint64_t most_ms =
        !redis ? FL_TTL_MAX_MS : cli_number(a, CLI_OPT_MAX_TTL, FL_REDLOCK_MAX_TTL_DEFAULT_MS);
    char most[CLI_DURATION_SIZE];
    cli_format_duration(most, most_ms);
    if (o->ttl_ms < least_ms || o->ttl_ms > most_ms) {
        cli_complain("--ttl is %" PRIu64 " ms to %s%s%s", least_ms,
                     most_ms == FL_TTL_MAX_MS ? "24 h" : most,
                     runs ? ": a command cannot be stopped faster" : "",
                     redis ? "; longer ones need --max-ttl, the same at all clients" : "");
    } else if (o->min_validity_ms >= o->ttl_ms) {
        cli_complain("--min-validity must be shorter than --ttl");
    } else if (redis && o->max_hold_ms > FL_REDLOCK_TIME_MAX_MS) {
        cli_complain("--max-hold of redlock is at most 24h");
    } else {
        return true;
    }
    return false;
}

static bool check_texts(const struct cli_args *a, const struct fl_take *o)
{
    bool owns = cli_has(a, CLI_OPT_OWNER);
    bool semaphore = cli_has(a, CLI_OPT_PERMITS);
    if (owns && (o->owner.len < FL_OWNER_MIN || o->owner.len > FL_OWNER_MAX)) {
        cli_complain("--owner has %u to %u bytes, not %zu: choose one that nobody else uses",
                     FL_OWNER_MIN, FL_OWNER_MAX, o->owner.len);
    } else if (o->value.len > FL_VALUE_MAX) {
        cli_complain("--value has at most %u bytes, not %zu", FL_VALUE_MAX, o->value.len);
    } else if (cli_has(a, CLI_OPT_SHARED) && semaphore) {
        cli_complain("--shared and --permits exclude each other");
    } else if (a->n_also > 0 && (cli_has(a, CLI_OPT_SHARED) || semaphore)) {
        cli_complain("--also excludes --shared and --permits");
    } else {
        return true;
    }
    return false;
}

bool cli_take_of(const struct cli_args *a, struct fl_take *ret)
{
    bool runs = a->command->args_max == CLI_ARGS_REST;
    uint64_t wait_ms = runs ? FL_WAIT_MAX_MS : 0;
    uint64_t hold_ms = runs && cli_is_of_redis(a) ? FL_REDLOCK_TIME_MAX_MS : 0;
    *ret = (struct fl_take){
        .ttl_ms = cli_number(a, CLI_OPT_TTL, FL_TTL_DEFAULT_MS),
        .wait_ms = cli_number(a, CLI_OPT_WAIT, wait_ms),
        .max_hold_ms = cli_number(a, CLI_OPT_MAX_HOLD, hold_ms),
        .min_validity_ms = a->number[CLI_OPT_MIN_VALIDITY],
        .owner = fl_str(a->text[CLI_OPT_OWNER]),
        .value = fl_str(a->text[CLI_OPT_VALUE]),
        .also = a->also,
        .also_len = a->n_also,
        .mode = cli_has(a, CLI_OPT_SHARED) ? FL_MODE_SHARED : FL_MODE_EXCLUSIVE,
        .permits = a->number[CLI_OPT_PERMITS],
        .unrenewed = !runs,
    };
    bool well = is_name(a->arg[0]);
    for (unsigned i = 0; well && i < a->n_also; i++) {
        well = is_name(a->also[i].data);
    }
    return well && check_times(a, ret) && check_texts(a, ret);
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
