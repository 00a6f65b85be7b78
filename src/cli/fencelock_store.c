/* fencelock_store.c: the sample storage server: its options, its signals, its last words.
 *
 * Exit codes: 0 stopped by SIGTERM or SIGINT; 1 could not start or had to stop; 2 usage. */
#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "auth/hash.h"
#include "base/bytes.h"
#include "cli/daemon_log.h"
#include "cli/daemon_notify.h"
#include "cli/fencelock_store_offline.h"
#include "net/address.h"
#include "store/service.h"
#include "store/strict.h"
#include "store/watch.h"
#include "tls/tls.h"

#define PROGRAM "fencelock-store"
#define EXIT_USAGE 2
#define ERRMSG_SIZE 512u

enum tls_text { TLS_PORT, TLS_CERT, TLS_KEY, TLS_CA, TLS_AUTH, TLS_PROTOCOLS, TLS_TEXTS };

static const int signal_numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
#define SIGNALS (sizeof signal_numbers / sizeof signal_numbers[0])

struct options {
    const char *listen;
    const char *data;
    const char *metrics; /* NULL: none */
    uint64_t size_max;
    bool protected_mode;
    const char *aclfile; /* NULL: everybody may do everything */
    enum fli_tls_user cert_users;
    bool no_fencing;
    enum log_severity log_level;
    enum log_style log_style;
    const char *strict; /* NULL: off */
    unsigned strict_timeout_ms;
    bool strict_tls;
    const char *strict_user, *strict_password_file; /* NULL: nobody logs in there */
    char strict_password[AUTH_PASSWORD_MAX + 2];
    char tls_listen[NET_ADDRESS_MAX]; /* of tls_port, completed; "" for none */
    const char *tls[TLS_TEXTS];       /* the last member: see check_tls() */
};

struct app {
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    struct daemon_log log;
    struct daemon_notify notify;
    struct store *store;
    struct service *service;
    struct store_watch *watch; /* NULL: none */
    bool stopping;
};

static void complain(const char *fmt, ...) FLI_PRINTF(1, 2);
static void complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)fputs(PROGRAM ": ", stderr);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
    va_end(args);
}

/* ---- options ---- */

/* Digits and at most one of K, M, G. */
static bool parse_size(const char *text, uint64_t *ret)
{
    size_t len = strlen(text);
    unsigned shift = 0;
    uint64_t n;
    if (len > 0) {
        switch (text[len - 1]) {
        case 'K':
        case 'k':
            shift = 10;
            break;
        case 'M':
        case 'm':
            shift = 20;
            break;
        case 'G':
        case 'g':
            shift = 30;
            break;
        default:
            break;
        }
    }
    if (!fli_parse_u64(text, shift == 0 ? len : len - 1, (uint64_t)(SIZE_MAX / 4) >> shift, &n)) {
        return false;
    }
    *ret = n << shift;
    return true;
}

static bool set_size(struct options *o, const char *name, const char *text)
{
    uint64_t size;
    if (!parse_size(text, &size) || size < STORE_SIZE_MIN) {
        complain("%s: '%s' is not a size; give a number of bytes from %zu on, such as 64M or 1G",
                 name, text, STORE_SIZE_MIN);
        return false;
    }
    o->size_max = size;
    return true;
}

static bool set_switch(bool *to, const char *name, const char *text)
{
    bool on = strcmp(text, "1") == 0 || strcmp(text, "yes") == 0;
    if (!on && strcmp(text, "0") != 0 && strcmp(text, "no") != 0) {
        complain("%s: '%s' is neither yes (1) nor no (0)", name, text);
        return false;
    }
    *to = on;
    return true;
}

static bool set_cert_user(struct options *o, const char *name, const char *text)
{
    o->cert_users = strcmp(text, "CN") == 0    ? FLI_TLS_USER_CN
                    : strcmp(text, "SAN") == 0 ? FLI_TLS_USER_SAN
                                               : FLI_TLS_USER_OFF;
    if (o->cert_users == FLI_TLS_USER_OFF && strcmp(text, "off") != 0) {
        complain("%s: '%s' is none of CN, SAN and off", name, text);
        return false;
    }
    return true;
}

static bool set_strict_timeout(struct options *o, const char *name, const char *text)
{
    uint64_t ms;
    if (!fli_parse_u64(text, strlen(text), STRICT_TIMEOUT_MAX_MS, &ms) ||
        ms < STRICT_TIMEOUT_MIN_MS) {
        complain("%s: '%s' is not a time; give milliseconds from %u to %u", name, text,
                 STRICT_TIMEOUT_MIN_MS, STRICT_TIMEOUT_MAX_MS);
        return false;
    }
    o->strict_timeout_ms = (unsigned)ms;
    return true;
}

static bool set_strict(struct options *o, const char *name, const char *text)
{
    char errmsg[ERRMSG_SIZE];
    if (strict_check_nodes(text, errmsg, sizeof(errmsg)) != 0) {
        complain("%s: %s", name, errmsg);
        return false;
    }
    o->strict = text;
    return true;
}

static bool set_log_level(struct options *o, const char *name, const char *text)
{
    if (!log_severity_of(text, &o->log_level)) {
        complain("%s: '%s' is no level: write error, warning, info or debug", name, text);
        return false;
    }
    return true;
}

static bool set_log_style(struct options *o, const char *name, const char *text)
{
    if (!log_style_of(text, &o->log_style)) {
        complain("%s: '%s' is no format: write text or json", name, text);
        return false;
    }
    return true;
}

static bool say_what_replaced_it(struct options *o, const char *name, const char *text)
{
    (void)o;
    (void)text;
    complain("there is no %s any more; what it did is said by %s", name,
             name[0] == '-' ? "--protected-mode no" : "FENCELOCK_STORE_PROTECTED_MODE=no");
    return false;
}

enum kind {
    KIND_TEXT,          /* an empty variable is none */
    KIND_TEXT_OR_EMPTY, /* an empty one is a value */
    KIND_CHECKED,
    KIND_CHECKED_TEXT, /* as KIND_TEXT */
    KIND_YES_NO,
    KIND_FLAG, /* yes or no in the environment */
    KIND_GONE,
};

/* Each is --NAME on the command line and FENCELOCK_STORE_NAME in the environment. */
static const struct row {
    const char *name;
    enum kind kind;
    size_t at;                                                          /* in struct options */
    bool (*set)(struct options *o, const char *name, const char *text); /* of what is checked */
} rows[] = {
    {"listen", KIND_TEXT_OR_EMPTY, offsetof(struct options, listen), NULL},
    {"data", KIND_TEXT_OR_EMPTY, offsetof(struct options, data), NULL},
    {"metrics", KIND_TEXT, offsetof(struct options, metrics), NULL},
    {"size-max", KIND_CHECKED, 0, set_size},
    {"strict", KIND_CHECKED_TEXT, 0, set_strict},
    {"strict-timeout", KIND_CHECKED, 0, set_strict_timeout},
    {"allow-remote", KIND_GONE, 0, say_what_replaced_it},
    {"protected-mode", KIND_YES_NO, offsetof(struct options, protected_mode), NULL},
    {"strict-user", KIND_TEXT, offsetof(struct options, strict_user), NULL},
    {"strict-password-file", KIND_TEXT, offsetof(struct options, strict_password_file), NULL},
    {"aclfile", KIND_TEXT, offsetof(struct options, aclfile), NULL},
    {"tls-auth-clients-user", KIND_CHECKED, 0, set_cert_user},
    {"log-level", KIND_CHECKED, 0, set_log_level},
    {"log-format", KIND_CHECKED, 0, set_log_style},
    {"tls-port", KIND_TEXT_OR_EMPTY, offsetof(struct options, tls[TLS_PORT]), NULL},
    {"tls-cert-file", KIND_TEXT_OR_EMPTY, offsetof(struct options, tls[TLS_CERT]), NULL},
    {"tls-key-file", KIND_TEXT_OR_EMPTY, offsetof(struct options, tls[TLS_KEY]), NULL},
    {"tls-ca-cert-file", KIND_TEXT_OR_EMPTY, offsetof(struct options, tls[TLS_CA]), NULL},
    {"tls-auth-clients", KIND_TEXT_OR_EMPTY, offsetof(struct options, tls[TLS_AUTH]), NULL},
    {"tls-protocols", KIND_TEXT_OR_EMPTY, offsetof(struct options, tls[TLS_PROTOCOLS]), NULL},
    {"strict-tls", KIND_FLAG, offsetof(struct options, strict_tls), NULL},
    {"no-fencing", KIND_FLAG, offsetof(struct options, no_fencing), NULL},
};
#define ROWS (sizeof rows / sizeof rows[0])
#define FIRST_ROW 256 /* getopt's values from here on are rows */

/* name: the option's or the variable's, for complaints. */
static bool take(struct options *o, const struct row *row, const char *name, const char *text)
{
    switch (row->kind) {
    case KIND_TEXT:
    case KIND_TEXT_OR_EMPTY:
        memcpy((char *)o + row->at, &text, sizeof text);
        return true;
    case KIND_YES_NO:
    case KIND_FLAG:
        return set_switch((bool *)((char *)o + row->at), name, text);
    default:
        return row->set(o, name, text);
    }
}

static bool read_environment(struct options *o)
{
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        char name[64];
        int len = snprintf(name, sizeof name, "FENCELOCK_STORE_%s", row->name);
        for (int at = 0; at < len; at++) {
            name[at] = (char)(name[at] == '-' ? '_' : toupper((unsigned char)name[at]));
        }
        const char *v = getenv(name);
        bool none_if_empty = row->kind == KIND_TEXT || row->kind == KIND_CHECKED_TEXT;
        if (v != NULL && !(v[0] == '\0' && none_if_empty) && !take(o, row, name, v)) {
            return false;
        }
    }
    return true;
}

/* With a user, the first line of the file. */
static bool read_strict_password(struct options *o)
{
    if ((o->strict_user == NULL) != (o->strict_password_file == NULL)) {
        complain("--strict-user and --strict-password-file go together: add the other one");
        return false;
    }
    if (o->strict_user == NULL) {
        return true;
    }
    FILE *f = fopen(o->strict_password_file, "re");
    bool ok = f != NULL && fgets(o->strict_password, sizeof o->strict_password, f) != NULL;
    if (f != NULL) {
        (void)fclose(f);
    }
    size_t len = ok ? strcspn(o->strict_password, "\r\n") : 0;
    o->strict_password[len] = '\0';
    if (len == 0 || len > AUTH_PASSWORD_MAX || strlen(o->strict_user) > ACL_NAME_MAX) {
        complain(
            "--strict-password-file: %.256s is to begin with a line that is a password of 1 to "
            "%u bytes, and --strict-user has at most %u",
            o->strict_password_file, AUTH_PASSWORD_MAX, ACL_NAME_MAX);
        return false;
    }
    return true;
}

/* -1: go on; otherwise the exit code. */
static int read_arguments(struct options *o, int argc, char **argv)
{
    struct option table[ROWS + 3] = {{"help", no_argument, NULL, 'h'},
                                     {"version", no_argument, NULL, 'v'}};
    for (size_t i = 0; i < ROWS; i++) {
        enum kind kind = rows[i].kind;
        table[i + 2] = (struct option){.name = rows[i].name,
                                       .has_arg = kind == KIND_FLAG   ? no_argument
                                                  : kind == KIND_GONE ? optional_argument
                                                                      : required_argument,
                                       .val = FIRST_ROW + (int)i};
    }
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "+:", table, NULL)) != -1) {
        char name[64];
        if (c >= FIRST_ROW) {
            const struct row *row = &rows[c - FIRST_ROW];
            (void)snprintf(name, sizeof name, "--%s", row->name);
            if (!take(o, row, name, row->kind == KIND_FLAG ? "yes" : optarg)) {
                return EXIT_USAGE;
            }
            continue;
        }
        switch (c) {
        case 'h':
            (void)fputs(store_help, stdout);
            return EXIT_SUCCESS;
        case 'v':
            (void)puts(PROGRAM " " FL_VERSION);
            return EXIT_SUCCESS;
        case ':':
            complain("%s needs a value; see --help", argv[optind - 1]);
            return EXIT_USAGE;
        default:
            complain("unknown option %s; see --help", argv[optind - 1]);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        complain("unexpected argument '%s'; options begin with --, see --help", argv[optind]);
        return EXIT_USAGE;
    }
    return -1;
}

static bool listens_plainly(const struct options *o)
{
    return strcmp(o->listen, "off") != 0;
}

static bool check_reach(const struct options *o, const char *option, const char *address)
{
    char host[NET_HOST_MAX];
    uint16_t port;
    if (net_address_split(address, host, &port) != 0) {
        complain("--%s: '%s' is not HOST:PORT, such as %s or [::1]:7411", option, address,
                 STORE_LISTEN_DEFAULT);
        return false;
    }
    if (o->protected_mode && o->aclfile == NULL && !net_host_is_loopback(host)) {
        complain("--%s: %s is not (only) this machine, and nothing there proves who a client is: "
                 "use a loopback address, --tls-port with --tls-auth-clients yes, --aclfile, or "
                 "--protected-mode no if the network keeps strangers out",
                 option, host);
        return false;
    }
    return true;
}

static bool parse_auth(const char *text, enum fli_tls_auth *ret)
{
    if (text == NULL || strcmp(text, "yes") == 0) {
        *ret = FLI_TLS_AUTH_REQUIRED;
    } else if (strcmp(text, "no") == 0) {
        *ret = FLI_TLS_AUTH_NO;
    } else if (strcmp(text, "optional") == 0) {
        *ret = FLI_TLS_AUTH_OPTIONAL;
    } else {
        complain("--tls-auth-clients: '%s' is none of yes, no and optional", text);
        return false;
    }
    return true;
}

/* A port alone belongs to the host of --listen, as in Redis. */
static bool complete_tls_port(struct options *o)
{
    char host[NET_HOST_MAX];
    uint16_t port;
    uint64_t number;
    const char *text = o->tls[TLS_PORT];
    FLI_ASSERT(text != NULL);
    if (!fli_parse_u64(text, strlen(text), UINT16_MAX, &number)) {
        (void)snprintf(o->tls_listen, sizeof(o->tls_listen), "%s", text);
        return strlen(text) < sizeof(o->tls_listen);
    }
    if (net_address_split(o->listen, host, &port) != 0) {
        (void)snprintf(host, sizeof(host), "127.0.0.1"); /* listen is off */
    }
    (void)net_address_join(host, (uint16_t)number, o->tls_listen, sizeof(o->tls_listen));
    return true;
}

static bool check_tls(struct options *o)
{
    enum fli_tls_auth auth;
    if (o->strict_tls && o->strict == NULL) {
        complain("--strict-tls: there is no --strict that it could be about");
        return false;
    }
    if (o->tls[TLS_PORT] == NULL && !listens_plainly(o)) {
        complain("--listen off leaves clients no port: add --tls-port");
        return false;
    }
    for (size_t i = 0; i < ROWS && o->tls[TLS_PORT] == NULL && !o->strict_tls; i++) {
        const char *given = NULL;
        if (rows[i].at >= offsetof(struct options, tls)) {
            memcpy(&given, (const char *)o + rows[i].at, sizeof given);
        }
        if (given != NULL) {
            complain("--%s has no effect without --tls-port: add it", rows[i].name);
            return false;
        }
    }
    if (o->tls[TLS_PORT] == NULL) {
        return true;
    }
    if (o->tls[TLS_CERT] == NULL || o->tls[TLS_KEY] == NULL) {
        complain("--tls-port needs --tls-cert-file and --tls-key-file");
        return false;
    }
    if (!parse_auth(o->tls[TLS_AUTH], &auth)) {
        return false;
    }
    if (auth != FLI_TLS_AUTH_NO && o->tls[TLS_CA] == NULL) {
        complain("--tls-port needs --tls-ca-cert-file, which says whose clients are let in; or "
                 "--tls-auth-clients no, which lets in everybody");
        return false;
    }
    char host[NET_HOST_MAX];
    uint16_t port;
    if (!complete_tls_port(o) || net_address_split(o->tls_listen, host, &port) != 0) {
        complain("--tls-port: '%s' is neither PORT nor HOST:PORT", o->tls[TLS_PORT]);
        return false;
    }
    return auth == FLI_TLS_AUTH_REQUIRED || check_reach(o, "tls-port", o->tls_listen);
}

static bool check_options(struct options *o)
{
    if (o->data[0] == '\0') {
        complain("--data: the directory's name is empty; leave the option out for %s",
                 STORE_DATA_DEFAULT);
        return false;
    }
    if (o->strict != NULL && o->no_fencing) {
        complain(
            "--strict: it checks tokens, and --no-fencing ignores them; leave one of them out");
        return false;
    }
    return (!listens_plainly(o) || check_reach(o, "listen", o->listen)) && check_tls(o);
}

/* ---- running ---- */

static void fatal_cb(void *ctx, int error, const char *message)
{
    struct app *a = ctx;
    daemon_log_say(&a->log, LOG_SAY_ERROR, "store",
                   "%s (%s). Look for disk errors, then start again: what is on disk is checked "
                   "then",
                   message, fl_err_name(error));
    (void)fflush(NULL);
    _exit(EXIT_FAILURE); /* no answer may leave any more */
}

static void log_cb(void *ctx, int level, const char *part, const char *message)
{
    struct app *a = ctx;
    daemon_log_write(&a->log, (enum log_severity)level, part, message);
}

static void describe_cb(void *ctx, char *out, size_t size)
{
    struct app *a = ctx;
    struct store_counts c;
    store_get_counts(a->store, &c);
    (void)snprintf(out, size, "%" PRIu64 " keys, %" PRIu64 " marks", c.keys, c.marks);
}

static void stopped_cb(void *ctx)
{
    struct app *a = ctx;
    service_destroy(a->service);
    a->service = NULL;
    daemon_notify_close(&a->notify);
    for (unsigned i = 0; i < SIGNALS; i++) {
        uv_close((uv_handle_t *)&a->signals[i], NULL);
    }
}

/* Before there are signals to watch for. */
static void gave_up_cb(void *ctx)
{
    struct app *a = ctx;
    service_destroy(a->service);
    a->service = NULL;
}

static void watch_stopped_cb(void *ctx)
{
    struct app *a = ctx;
    store_watch_destroy(a->watch);
    a->watch = NULL;
    service_stop(a->service, stopped_cb, a);
}

static void signal_cb(uv_signal_t *handle, int number)
{
    struct app *a = handle->data;
    if (number == SIGUSR1) {
        daemon_log_toggle(&a->log);
        return;
    }
    if (a->stopping) {
        return;
    }
    if (number == SIGHUP) {
        daemon_log_write(&a->log, LOG_SAY_INFO, "daemon", "SIGHUP: reading the files of TLS again");
        service_reload(a->service);
        return;
    }
    a->stopping = true;
    daemon_log_say(&a->log, LOG_SAY_INFO, "daemon", "%s: stopping",
                   number == SIGTERM ? "SIGTERM" : "SIGINT");
    daemon_notify_stopping(&a->notify);
    if (a->watch != NULL) {
        store_watch_stop(a->watch, watch_stopped_cb, a);
    } else {
        service_stop(a->service, stopped_cb, a);
    }
}

static void watch_signals(struct app *a)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN); /* until it is watched for */
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error like a full disk */
    for (unsigned i = 0; i < SIGNALS; i++) {
        int rc = uv_signal_init(&a->loop, &a->signals[i]);
        a->signals[i].data = a;
        if (rc != 0 || uv_signal_start(&a->signals[i], signal_cb, signal_numbers[i]) != 0) {
            fli_fatal("cannot watch for signals");
        }
    }
}

/* Nothing when there is no such listener. */
static void bound_address(const char *wanted, uint16_t bound, char out[NET_ADDRESS_MAX])
{
    char host[NET_HOST_MAX];
    uint16_t port;
    if (bound != 0 && net_address_split(wanted, host, &port) == 0) {
        (void)net_address_join(host, bound, out, NET_ADDRESS_MAX);
    }
}

static void announce(const struct options *o, struct app *a)
{
    char plain[NET_ADDRESS_MAX] = "";
    char tls[NET_ADDRESS_MAX] = "";
    struct store_counts c;
    bound_address(o->listen, service_port(a->service), plain);
    bound_address(o->tls_listen, service_tls_port(a->service), tls);
    store_get_counts(a->store, &c);
    daemon_log_say(&a->log, LOG_SAY_INFO, "store",
                   "the database is open keys=%" PRIu64 " marks=%" PRIu64 " directory=%s", c.keys,
                   c.marks, o->data);
    if (o->strict != NULL) {
        daemon_log_say(&a->log, LOG_SAY_INFO, "strict",
                       "operations with a token are checked with the lock service nodes=%s",
                       o->strict);
    }
    if (a->watch != NULL) {
        char address[NET_ADDRESS_MAX] = "";
        bound_address(o->metrics, store_watch_port(a->watch), address);
        complain("metrics at http://%s/metrics", address);
    }
    if (o->no_fencing) {
        daemon_log_write(&a->log, LOG_SAY_WARNING, "store",
                         "--no-fencing: tokens and locks are IGNORED. Stale writers will "
                         "overwrite newer data. For demonstrations only");
    }
    (void)printf("ready: listening on %s%s%s%s\n", plain,
                 plain[0] != '\0' && tls[0] != '\0' ? " and " : "", tls,
                 tls[0] != '\0' ? " (TLS)" : "");
    (void)fflush(stdout);
}

static int run(const struct options *o, struct app *a)
{
    char errmsg[ERRMSG_SIZE] = "out of memory";
    daemon_log_init(&a->log, o->log_style, o->log_level);
    daemon_notify_open(&a->notify);
    if (store_open(o->data, (size_t)o->size_max, !o->no_fencing, &a->store, errmsg,
                   sizeof(errmsg)) != 0) {
        complain("--data: %s", errmsg);
        return EXIT_FAILURE;
    }
    struct fli_tls_config tls = {.server = true,
                                 .cert_file = o->tls[TLS_CERT],
                                 .key_file = o->tls[TLS_KEY],
                                 .ca_file = o->tls[TLS_CA],
                                 .protocols = o->tls[TLS_PROTOCOLS]};
    struct fli_tls_config strict_tls = tls;
    strict_tls.server = false;
    if (!parse_auth(o->tls[TLS_AUTH], &tls.auth)) {
        return EXIT_USAGE;
    }
    struct service_config config = {.listen = listens_plainly(o) ? o->listen : NULL,
                                    .tls_listen = o->tls_listen[0] != '\0' ? o->tls_listen : NULL,
                                    .tls = &tls,
                                    .strict_tls = o->strict_tls ? &strict_tls : NULL,
                                    .aclfile = o->aclfile,
                                    .cert_users = o->cert_users,
                                    .strict = o->strict,
                                    .strict_timeout_ms = o->strict_timeout_ms,
                                    .strict_user = o->strict_user,
                                    .strict_password = o->strict_password,
                                    .ctx = a,
                                    .fatal = fatal_cb,
                                    .log = log_cb};
    if (service_create(&a->loop, a->store, &config, &a->service, errmsg, sizeof(errmsg)) != 0) {
        complain("%s", errmsg);
        store_close(a->store);
        return EXIT_FAILURE;
    }
    if (o->metrics != NULL && store_watch_create(&a->loop, o->metrics, o->data, a->service,
                                                 &a->watch, errmsg, sizeof(errmsg)) != 0) {
        complain("%s", errmsg);
        service_stop(a->service, gave_up_cb, a);
        (void)uv_run(&a->loop, UV_RUN_DEFAULT);
        store_close(a->store);
        return EXIT_FAILURE;
    }
    watch_signals(a);
    announce(o, a);
    daemon_notify_ready(&a->notify, &a->loop, describe_cb, a);
    (void)uv_run(&a->loop, UV_RUN_DEFAULT);
    store_close(a->store);
    daemon_log_write(&a->log, LOG_SAY_INFO, "daemon", "stopped");
    return EXIT_SUCCESS;
}

static void *grow(void *p, size_t size)
{
    void *grown = realloc(p, size);
    if (grown == NULL && size != 0) {
        fli_fatal("out of memory for libuv (%zu bytes)", size);
    }
    return grown;
}

/* libuv aborts without a word when it has no memory for what it watches. */
static void have_memory_or_say_so(void)
{
    int rv = uv_replace_allocator(fli_xmalloc, grow, fli_xcalloc, free);
    FLI_ASSERT(rv == 0);
}

int main(int argc, char **argv)
{
    static struct app app;
    if (store_offline_is_asked(argc, argv)) {
        return store_offline(argc, argv);
    }
    struct options o = {.listen = STORE_LISTEN_DEFAULT,
                        .data = STORE_DATA_DEFAULT,
                        .size_max = STORE_SIZE_DEFAULT,
                        .protected_mode = true,
                        .log_level = LOG_SAY_INFO,
                        .strict_timeout_ms = STRICT_TIMEOUT_DEFAULT_MS};
    fli_tls_keep_buffers();
    int code = read_environment(&o) ? read_arguments(&o, argc, argv) : EXIT_USAGE;
    if (code >= 0) {
        return code;
    }
    if (!check_options(&o) || !read_strict_password(&o)) {
        return EXIT_USAGE;
    }
    have_memory_or_say_so();
    if (uv_loop_init(&app.loop) != 0) {
        complain("cannot start the event loop");
        return EXIT_FAILURE;
    }
    code = run(&o, &app);
    (void)uv_run(&app.loop, UV_RUN_DEFAULT); /* handles that were closed on a failed start */
    (void)uv_loop_close(&app.loop);
    return code;
}
