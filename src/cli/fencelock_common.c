/* fencelock_common.c: see fencelock_common.h. */
#include "cli/fencelock_common.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/lines.h"
#include "base/standard.h"
#include "client/caller.h"

#define SETTLE_MS UINT64_C(2000)
#define BEHIND_MAX_MS UINT64_C(600000)

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

static void FLI_PRINTF(1, 0) complain(const char *fmt, va_list args)
{
    char line[2048];
    vsnprintf(line, sizeof line, fmt, args);
    fputs("fencelock: ", stderr);
    cli_print_safe(stderr, fl_str(line));
    fputc('\n', stderr);
}

void cli_complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    complain(fmt, args);
    va_end(args);
}

/* ---- the end --------------------------------------------------------------------------------- */

void cli_end(int code)
{
    /* a result that was not written must not look like success */
    if (!fli_standard_flush()) {
        cli_complain("cannot write the result");
        code = CLI_EXIT_UNKNOWN;
    }
    exit(code < CLI_EXIT_SIGNAL ? code : cli_signals_die(code - CLI_EXIT_SIGNAL));
}

void cli_usage(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    complain(fmt, args);
    va_end(args);
    cli_end(CLI_EXIT_USAGE);
}

void cli_die(const struct cli_args *a, int code, const char *message)
{
    cli_end(cli_fail(a, code, message));
}

void cli_need(const struct cli_args *a, const fl_client *c, int rc)
{
    if (rc != 0) {
        cli_die(a, rc, fl_client_error(c));
    }
}

bool cli_call(const struct cli_args *a, fl_client *c, const struct fl_ask *ask, int no,
              struct fl_result *ret)
{
    int rc = fl_ask(c, ask, ret);
    cli_need(a, c, rc == no ? 0 : rc);
    return rc == 0;
}

/* ---- errors ---------------------------------------------------------------------------------- */

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

/* redis: at Redis servers. */
static void read_tls(const struct cli_args *a, bool redis, struct cli_access *ret)
{
    static const enum cli_option files[] = {CLI_OPT_CACERT, CLI_OPT_CERT, CLI_OPT_KEY, CLI_OPT_SNI};
    static const char *const names[] = {"cacert", "cert", "key", "sni"};
    bool any = cli_has(a, CLI_OPT_TLS) || cli_has(a, CLI_OPT_REDIS_TLS);
    for (size_t i = 0; !any && i < sizeof files / sizeof files[0]; i++) {
        if (cli_has(a, files[i])) {
            /* Going on without encryption is not what the user meant. */
            cli_usage("--%s is given without --tls%s: add it, or leave --%s out", names[i],
                      cli_is_of_redis(a) ? " or --redis-tls" : "", names[i]);
        }
    }
    ret->files = (struct fl_tls_options){.ca_file = a->text[CLI_OPT_CACERT],
                                         .cert_file = a->text[CLI_OPT_CERT],
                                         .key_file = a->text[CLI_OPT_KEY],
                                         .server_name = a->text[CLI_OPT_SNI]};
    ret->tls = cli_has(a, redis ? CLI_OPT_REDIS_TLS : CLI_OPT_TLS) ? &ret->files : NULL;
}

/* The password is the first line of a file, or in a URL, or in the environment. NULL: there is
 * none. */
static const char *read_password(const struct cli_args *a, bool redis,
                                 char room[FL_PASSWORD_MAX + 1])
{
    const char *file = a->text[redis ? CLI_OPT_REDIS_PASSWORD_FILE : CLI_OPT_PASSWORD_FILE];
    const char *variable = redis ? "FENCELOCK_REDIS_PASSWORD" : "FENCELOCK_PASSWORD";
    const char *given = !redis && a->password != NULL ? a->password : getenv(variable);
    char why[512];
    if (file != NULL && fli_line_first(file, room, FL_PASSWORD_MAX + 1, why, sizeof why) != 0) {
        cli_usage("--%spassword-file: %s", redis ? "redis-" : "", why);
    }
    if (file == NULL && (given == NULL || (redis && given[0] == '\0'))) {
        return NULL;
    }
    if (file == NULL && snprintf(room, FL_PASSWORD_MAX + 1, "%s", given) > (int)FL_PASSWORD_MAX) {
        cli_usage("%s has more than %u bytes", variable, FL_PASSWORD_MAX);
    }
    return room;
}

/* Redis servers may have a password for all, without a user. */
static void read_login(const struct cli_args *a, bool redis, struct cli_access *ret)
{
    const char *word = redis ? "redis-" : "";
    ret->user = a->text[redis ? CLI_OPT_REDIS_USER : CLI_OPT_USER];
    if (ret->user == NULL && !redis) {
        if (cli_has(a, CLI_OPT_PASSWORD_FILE)) {
            cli_usage("--password-file is given without --user: add it");
        }
        return;
    }
    ret->password = read_password(a, redis, ret->room);
    if (ret->user != NULL && ret->password == NULL) {
        cli_usage("--%suser needs a password: --%spassword-file FILE, or FENCELOCK_%sPASSWORD in "
                  "the environment",
                  word, word, redis ? "REDIS_" : "");
    }
    if (!redis && (ret->user[0] == '\0' || strlen(ret->user) > FL_USER_MAX)) {
        cli_usage("--user has 1 to %u bytes", FL_USER_MAX);
    }
}

static void read_access(const struct cli_args *a, bool redis, struct cli_access *ret)
{
    *ret = (struct cli_access){.tls = NULL};
    read_tls(a, redis, ret);
    read_login(a, redis, ret);
}

/* How to get in at nodes or at a storage. It is read once: the file with the password may be a
 * pipe, or gone when a change is in the log and another client is made to see it done. */
static const struct cli_access *access_of(const struct cli_args *a)
{
    static struct cli_access with;
    static bool is_read;
    if (!is_read) {
        read_access(a, false, &with);
        is_read = true;
    }
    return &with;
}

void cli_redis_access(const struct cli_args *a, struct cli_access *ret)
{
    if (!cli_has(a, CLI_OPT_REDIS)) {
        cli_usage("which Redis servers? Name them with --redis HOST:PORT,HOST:PORT,... or "
                  "FENCELOCK_REDIS");
    }
    read_access(a, true, ret);
}

/* what: the options that cannot be used, for that reason. */
static _Noreturn void not_opened(const struct cli_args *a, const char *what, int rc,
                                 const char *why)
{
    char message[640];
    snprintf(message, sizeof message, "%s cannot be used as given: %s", what, why);
    cli_die(a, rc, rc == FL_EINVAL || rc == FL_ENOCONN ? message : why);
}

/* ---- clients --------------------------------------------------------------------------------- */

const struct fl_client_options cli_for_changes = {.attempt_ms = 3000};

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

int cli_client_try(const struct cli_args *a, const char *addresses,
                   const struct fl_client_options *more, fl_client **ret)
{
    const struct cli_access *with = access_of(a);
    struct fl_client_options options =
        more != NULL ? *more : (struct fl_client_options){.user = NULL};
    options.timeout_ms = a->number[CLI_OPT_TIMEOUT];
    options.tls = with->tls;
    options.user = with->user;
    options.password = with->password;
    int rc = fl_open(addresses, &options, ret);
    if (rc == 0 && isatty(STDERR_FILENO) == 1) {
        fli_client_on_trouble(*ret, on_trouble, &trouble_said);
    }
    return rc;
}

fl_client *cli_client_create(const struct cli_args *a, const struct fl_client_options *more)
{
    fl_client *c = NULL;
    int rc = cli_client_try(a, cli_nodes_of(a), more, &c);
    if (rc != 0) {
        not_opened(a, "--nodes or FENCELOCK_NODES, or an option of TLS,", rc,
                   fl_client_error(NULL));
    }
    return c;
}

static void check_name(const char *name)
{
    size_t len = strlen(name);
    if (len < 1 || len > FL_NAME_MAX) {
        cli_usage("a lock's name has 1 to %u bytes, not %zu", FL_NAME_MAX, len);
    }
}

fl_client *cli_redlock_open(const struct cli_args *a, bool own_loop, fl_client **ret_tokens)
{
    struct cli_access with;
    if (a->n_args > 0) {
        check_name(a->arg[0]); /* wrong usage, wherever the servers are */
    }
    cli_redis_access(a, &with);
    *ret_tokens = cli_has(a, CLI_OPT_NODES) ? cli_client_create(a, NULL) : NULL;
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
    int rc = fl_redlock_open(&options, &r);
    if (rc != 0) {
        not_opened(a, "--redis or FENCELOCK_REDIS", rc, fl_client_error(NULL));
    }
    return r;
}

fl_store *cli_store_create(const struct cli_args *a, enum cli_option option)
{
    const char *address = cli_has(a, option) ? a->text[option] : "127.0.0.1:7411";
    const struct cli_access *with = access_of(a);
    const struct fl_client_options options = {.timeout_ms = a->number[CLI_OPT_TIMEOUT],
                                              .tls = with->tls,
                                              .user = with->user,
                                              .password = with->password};
    fl_store *s = NULL;
    int rc = fl_store_open(address, &options, &s);
    if (rc != 0) {
        not_opened(a, "the storage's address", rc, fl_store_error(NULL));
    }
    if (isatty(STDERR_FILENO) == 1) {
        fli_store_on_trouble(s, on_trouble, &trouble_said);
    }
    return s;
}

int cli_with_lock(const struct cli_args *a, fl_client *c,
                  int (*show)(const struct cli_args *a, const struct fl_lock_info *l))
{
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_SHOW, .name = cli_name_of(a)};
    bool found = cli_call(a, c, &ask, FL_ENOTFOUND, &r);
    int code = show(a, found ? r.locks->locks[0] : NULL);
    fl_lock_list_free(r.locks);
    return code;
}

/* ---- a lock that is to be taken -------------------------------------------------------------- */

/* A command that is run has to be stopped in time. */
static void check_times(const struct cli_args *a, const struct fl_take *o)
{
    bool redis = cli_is_of_redis(a);
    bool runs = a->command->args_max == CLI_ARGS_REST;
    uint64_t least_ms = runs ? CLI_RUN_TTL_MIN_MS : FL_TTL_MIN_MS;
    uint64_t most_ms =
        !redis ? FL_TTL_MAX_MS : cli_number(a, CLI_OPT_MAX_TTL, FL_REDLOCK_MAX_TTL_DEFAULT_MS);
    char most[CLI_DURATION_SIZE];
    cli_format_duration(most, most_ms);
    if (o->ttl_ms < least_ms || o->ttl_ms > most_ms) {
        cli_usage("--ttl is %" PRIu64 " ms to %s%s%s", least_ms,
                  most_ms == FL_TTL_MAX_MS ? "24 h" : most,
                  runs ? ": a command cannot be stopped faster" : "",
                  redis ? "; longer ones need --max-ttl, the same at all clients" : "");
    }
    if (o->min_validity_ms >= o->ttl_ms) {
        cli_usage("--min-validity must be shorter than --ttl");
    }
    if (redis && o->max_hold_ms > FL_REDLOCK_TIME_MAX_MS) {
        cli_usage("--max-hold of redlock is at most 24h");
    }
}

static void check_texts(const struct cli_args *a, const struct fl_take *o)
{
    bool shared = cli_has(a, CLI_OPT_SHARED);
    bool semaphore = cli_has(a, CLI_OPT_PERMITS);
    if (cli_has(a, CLI_OPT_OWNER) && (o->owner.len < FL_OWNER_MIN || o->owner.len > FL_OWNER_MAX)) {
        cli_usage("--owner has %u to %u bytes, not %zu: choose one that nobody else uses",
                  FL_OWNER_MIN, FL_OWNER_MAX, o->owner.len);
    }
    if (o->value.len > FL_VALUE_MAX) {
        cli_usage("--value has at most %u bytes, not %zu", FL_VALUE_MAX, o->value.len);
    }
    if (shared && semaphore) {
        cli_usage("--shared and --permits exclude each other");
    }
    if (a->n_also > 0 && (shared || semaphore)) {
        cli_usage("--also excludes --shared and --permits");
    }
}

struct fl_take cli_take_of(const struct cli_args *a)
{
    bool runs = a->command->args_max == CLI_ARGS_REST;
    uint64_t wait_ms = runs ? FL_WAIT_MAX_MS : 0;
    uint64_t hold_ms = runs && cli_is_of_redis(a) ? FL_REDLOCK_TIME_MAX_MS : 0;
    const struct fl_take take = {
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
    check_name(a->arg[0]);
    for (unsigned i = 0; i < a->n_also; i++) {
        check_name(a->also[i].data);
    }
    check_times(a, &take);
    check_texts(a, &take);
    return take;
}

fl_token cli_token_of(const struct cli_args *a, const char *text)
{
    uint64_t v;
    if (!fli_parse_u64(text, strlen(text), FL_TOKEN_MAX, &v) || v == 0) {
        char message[256];
        snprintf(message, sizeof message, "'%.64s' is not a token: it is a number from 1 to %llu",
                 text, (unsigned long long)FL_TOKEN_MAX);
        cli_die(a, FL_EINVAL, message);
    }
    return v;
}

/* ---- an acquire without an answer ------------------------------------------------------------ */

/* stop: ends it when that becomes readable; -1. */
static int settle(const struct cli_args *a, const struct fl_take *options, uint64_t last, int stop,
                  uint64_t timeout_ms)
{
    fl_client *c = NULL;
    if (cli_client_try(a, cli_nodes_of(a), NULL, &c) != 0) {
        return FL_EUNCERTAIN;
    }
    fli_client_on_trouble(c, NULL, NULL);
    fli_client_begin_above(c, last);
    fli_client_stop_at(c, stop);
    int rc = fl_settle(c, a->arg[0], options, timeout_ms);
    fl_close(c);
    return rc;
}

/* Whoever waits for this process to end, or for the end of what it prints, does not wait for the
 * rest. */
static void leave_everybody(const struct cli_signals *s)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)sigprocmask(SIG_SETMASK, &s->before, NULL); /* whoever wants it to end may end it */
    (void)setsid();
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null >= 0; fd++) {
        (void)dup2(null, fd);
    }
    if (chdir("/") != 0) {
        return; /* it only keeps a file system busy */
    }
}

void cli_settle(const struct cli_args *a, const struct cli_signals *s,
                const struct fl_take *options, uint64_t last)
{
    if (last == 0 || settle(a, options, last, s->fd, SETTLE_MS) == 0) {
        return;
    }
    uint64_t ttl_ms = options->ttl_ms != 0 ? options->ttl_ms : FL_TTL_DEFAULT_MS;
    uint64_t more_ms = ttl_ms < BEHIND_MAX_MS ? ttl_ms : BEHIND_MAX_MS;
    char text[CLI_DURATION_SIZE];
    cli_format_duration(text, ttl_ms);
    char who_gives_it_back[96] = "See fencelock show";
    pid_t behind = getpid() == 1 ? -1 : fork(); /* with process 1, all processes end */
    if (behind == 0) {
        leave_everybody(s);
        _exit(settle(a, options, last, -1, more_ms) == 0 ? 0 : 1);
    }
    if (behind > 0) {
        (void)snprintf(who_gives_it_back, sizeof who_gives_it_back,
                       "Process %d gives it back in the background when one answers", (int)behind);
    }
    cli_complain("%.64s: no node has said whether it still takes the lock: it may be held by "
                 "nobody for %s. %s",
                 a->arg[0], text, who_gives_it_back);
}
