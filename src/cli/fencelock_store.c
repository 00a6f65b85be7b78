/* fencelock_store.c: the sample storage server: its options and its signals.
 *
 * Exit codes: 0 stopped by SIGTERM or SIGINT; 1 could not start or had to stop; 2 usage. */
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
#include "base/lines.h"
#include "base/option_rows.h"
#include "base/standard.h"
#include "cli/daemon_files.h"
#include "cli/daemon_log.h"
#include "cli/daemon_notify.h"
#include "cli/fencelock_store_offline.h"
#include "net/address.h"
#include "store/info.h"
#include "store/server.h"
#include "tls/tls.h"

#define PROGRAM "fencelock-store"
#define EXIT_USAGE 2
#ifdef FENCELOCK_UNFENCED /* fencelock-store-unfenced: what tests break on purpose */
#define FENCING false
#else
#define FENCING true
#endif
#define ERRMSG_SIZE 512u

static const int signal_numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
#define SIGNALS (sizeof signal_numbers / sizeof signal_numbers[0])

struct options {
    const char *listen;
    const char *data;
    uint64_t size_max;
    bool protected_mode;
    const char *aclfile; /* NULL: everybody has all rights */
    enum fli_tls_user cert_users;
    enum log_severity log_level;
    enum log_style log_style;
    const char *strict; /* NULL: off */
    unsigned strict_timeout_ms;
    bool strict_tls;
    const char *strict_user, *strict_password_file; /* NULL: no login there */
    char strict_password[AUTH_PASSWORD_MAX + 1];
    const char *tls_port;
    char tls_listen[NET_ADDRESS_MAX]; /* tls_port with a host; "" for none */
    const char *tls_cert, *tls_key, *tls_ca, *tls_protocols;
    enum fli_tls_auth tls_auth;
    struct store_offline offline;
};

struct app {
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    struct daemon_log log;
    struct daemon_notify notify;
    struct store *store;
    struct store_server *server;
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

static int set_strict(struct fli_options *from, const struct fli_given *g)
{
    struct options *o = from->values;
    struct fli_node parsed[FL_NODES_MAX];
    char errmsg[ERRMSG_SIZE];
    uint32_t n = 0;
    o->strict = g->text;
    return fli_nodes_parse(g->text, parsed, &n, errmsg, sizeof(errmsg)) == 0
               ? 0
               : fli_options_wrong(from, "%s: %s", g->where, errmsg);
}

#define OPTION_VALUES struct options
#define OFFLINE(name, f) ONCE(name, FLI_OPTION_POINTER, offline.f, 0, 0)

static const struct fli_option rows[] = {
    POINTER("listen", listen),
    POINTER("data", data),
    {"size-max", FLI_OPTION_SIZE, FIELD(size_max), .min = STORE_SIZE_MIN, .max = SIZE_MAX / 4},
    {"strict", FLI_OPTION_OWN, .set = set_strict},
    NUMBER("strict-timeout", strict_timeout_ms, STRICT_TIMEOUT_MIN_MS, STRICT_TIMEOUT_MAX_MS),
    {"allow-remote", FLI_OPTION_GONE, .words = fli_instead_of_allow_remote},
    YES_NO("protected-mode", protected_mode),
    POINTER("strict-user", strict_user),
    POINTER("strict-password-file", strict_password_file),
    POINTER("aclfile", aclfile),
    WORD("tls-auth-clients-user", cert_users, fli_words_cert_users, 0),
    WORD("log-level", log_level, fli_words_log_level, LOG_SEVERITY_ERROR),
    WORD("log-format", log_style, fli_words_log_format, LOG_TEXT),
    POINTER("tls-port", tls_port),
    POINTER("tls-cert-file", tls_cert),
    POINTER("tls-key-file", tls_key),
    POINTER("tls-ca-cert-file", tls_ca),
    WORD("tls-auth-clients", tls_auth, fli_words_tls_auth, 0),
    POINTER("tls-protocols", tls_protocols),
    {"strict-tls", FLI_OPTION_FLAG, FIELD(strict_tls)},
    OFFLINE("backup", backup),
    OFFLINE("verify", verify),
    OFFLINE("restore", restore),
    ONCE("above", FLI_OPTION_NUMBER, offline.above, 1, FL_TOKEN_MAX - 1),
};

_Static_assert(sizeof rows / sizeof rows[0] <= FLI_OPTIONS_MAX, "they have room");

static struct options options = {.listen = STORE_LISTEN_DEFAULT,
                                 .data = STORE_DATA_DEFAULT,
                                 .size_max = STORE_SIZE_DEFAULT,
                                 .protected_mode = true,
                                 .log_level = LOG_SEVERITY_INFO,
                                 .strict_timeout_ms = STRICT_TIMEOUT_DEFAULT_MS,
                                 .tls_auth = FLI_TLS_AUTH_REQUIRED};
static char option_error[ERRMSG_SIZE];
static struct fli_options reader = {.table = rows,
                                    .n = sizeof rows / sizeof rows[0],
                                    .prefix = "FENCELOCK_STORE_",
                                    .empty_is_none = true,
                                    .values = &options,
                                    .errmsg = option_error,
                                    .errmsg_size = sizeof option_error};

static bool is_given(const char *name)
{
    return fli_options_given(&reader, name)->text != NULL;
}

/* Reads the first line of the file, if a user is named. */
static bool read_strict_password(struct options *o)
{
    if ((o->strict_user == NULL) != (o->strict_password_file == NULL)) {
        complain("--strict-user and --strict-password-file go together: add the other one");
        return false;
    }
    if (o->strict_user == NULL) {
        return true;
    }
    char why[512];
    if (fli_line_first(o->strict_password_file, o->strict_password, sizeof o->strict_password, why,
                       sizeof why) != 0) {
        complain("--strict-password-file: %s", why);
        return false;
    }
    if (strlen(o->strict_user) > ACL_NAME_MAX) {
        complain("--strict-user has at most %u bytes", ACL_NAME_MAX);
        return false;
    }
    return true;
}

/* A result that was not written must not look like success. */
static int printed(int code)
{
    if (fli_standard_flush()) {
        return code;
    }
    complain("cannot write the result");
    return code != EXIT_SUCCESS ? code : EXIT_FAILURE;
}

/* -1: go on; otherwise the exit code. */
static int read_options(int argc, char **argv)
{
    int rc = fli_options_arguments(&reader, argc - 1, (const char *const *)argv + 1);
    rc = rc == 0 ? fli_options_environment(&reader, (const char *const *)environ) : rc;
    rc = rc == 0 ? fli_options_set(&reader) : rc;
    switch (rc) {
    case 0:
        return -1;
    case FLI_OPTIONS_HELP:
        (void)fputs(store_help, stdout);
        return printed(EXIT_SUCCESS);
    case FLI_OPTIONS_VERSION:
        (void)puts(PROGRAM " " FENCELOCK_VERSION);
        return printed(EXIT_SUCCESS);
    default:
        complain("%s", option_error);
        return EXIT_USAGE;
    }
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

/* A port alone means the host of --listen, as in Redis. */
static bool complete_tls_port(struct options *o)
{
    char host[NET_HOST_MAX];
    uint16_t port;
    uint64_t number;
    const char *text = o->tls_port;
    FLI_ASSERT(text != NULL);
    if (!fli_parse_u64(text, strlen(text), UINT16_MAX, &number)) {
        (void)snprintf(o->tls_listen, sizeof(o->tls_listen), "%s", text);
        return strlen(text) < sizeof(o->tls_listen);
    }
    if (net_address_split(o->listen, host, &port) != 0) {
        (void)snprintf(host, sizeof(host), "127.0.0.1"); /* --listen is off */
    }
    (void)net_address_join(host, (uint16_t)number, o->tls_listen, sizeof(o->tls_listen));
    return true;
}

/* Options of a port that there is not. */
static bool check_no_port(const struct options *o)
{
    static const char *const names[] = {"tls-cert-file", "tls-key-file", "tls-ca-cert-file",
                                        "tls-auth-clients", "tls-protocols"};
    if (!listens_plainly(o)) {
        complain("--listen off leaves clients no port: add --tls-port");
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !o->strict_tls; i++) {
        if (is_given(names[i])) {
            complain("--%s has no effect without --tls-port: add it", names[i]);
            return false;
        }
    }
    return true;
}

static bool check_tls(struct options *o)
{
    if (o->strict_tls && o->strict == NULL) {
        complain("--strict-tls: there is no --strict that it could be about");
        return false;
    }
    if (o->tls_port == NULL) {
        return check_no_port(o);
    }
    if (o->tls_cert == NULL || o->tls_key == NULL) {
        complain("--tls-port needs --tls-cert-file and --tls-key-file");
        return false;
    }
    if (o->tls_auth != FLI_TLS_AUTH_NO && o->tls_ca == NULL) {
        complain("--tls-port needs --tls-ca-cert-file, which says whose clients are let in; or "
                 "--tls-auth-clients no, which lets in everybody");
        return false;
    }
    char host[NET_HOST_MAX];
    uint16_t port;
    if (!complete_tls_port(o) || net_address_split(o->tls_listen, host, &port) != 0) {
        complain("--tls-port: '%s' is neither PORT nor HOST:PORT", o->tls_port);
        return false;
    }
    return o->tls_auth == FLI_TLS_AUTH_REQUIRED || check_reach(o, "tls-port", o->tls_listen);
}

static bool check_options(struct options *o)
{
    if (o->data[0] == '\0') {
        complain("--data: the directory's name is empty; leave the option out for %s",
                 STORE_DATA_DEFAULT);
        return false;
    }
    return (!listens_plainly(o) || check_reach(o, "listen", o->listen)) && check_tls(o);
}

/* ---- running ---- */

static void fatal_cb(void *ctx, int error)
{
    struct app *a = ctx;
    daemon_log_printf(&a->log, LOG_SEVERITY_ERROR, "store",
                      "the database failed (%s); what is on disk is not known, so nothing more is "
                      "answered. Look for disk errors, then start again: what is on disk is "
                      "checked then",
                      fl_strerror(error));
    (void)fflush(NULL);
    _exit(EXIT_FAILURE); /* no answer may leave any more */
}

static void log_cb(void *ctx, int level, const char *message)
{
    struct app *a = ctx;
    daemon_log_write(&a->log, (enum log_severity)level, "store", message);
}

static void describe_cb(void *ctx, char *out, size_t size)
{
    struct app *a = ctx;
    uint64_t keys = a->store->committed.keys;
    uint64_t marks = a->store->db.committed.marks;
    (void)snprintf(out, size, "%" PRIu64 " key%s, %" PRIu64 " mark%s", keys, fli_s(keys), marks,
                   fli_s(marks));
}

static void stopped_cb(void *ctx)
{
    struct app *a = ctx;
    store_server_destroy(a->server);
    a->server = NULL;
    daemon_notify_close(&a->notify);
    for (unsigned i = 0; i < SIGNALS; i++) {
        uv_close((uv_handle_t *)&a->signals[i], NULL);
    }
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
        daemon_log_write(&a->log, LOG_SEVERITY_INFO, "daemon",
                         "SIGHUP: reading the files of TLS again");
        store_server_reload(a->server);
        return;
    }
    a->stopping = true;
    daemon_log_printf(&a->log, LOG_SEVERITY_INFO, "daemon", "%s: stopping",
                      number == SIGTERM ? "SIGTERM" : "SIGINT");
    daemon_notify_stopping(&a->notify);
    store_server_stop(a->server, stopped_cb, a);
}

static void watch_signals(struct app *a)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN); /* until it is watched for */
    for (unsigned i = 0; i < SIGNALS; i++) {
        int rc = uv_signal_init(&a->loop, &a->signals[i]);
        a->signals[i].data = a;
        if (rc != 0 || uv_signal_start(&a->signals[i], signal_cb, signal_numbers[i]) != 0) {
            fli_fatal("cannot watch for signals");
        }
    }
}

/* "" if there is no such listener. */
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
    struct store_info info;
    store_server_get_info(a->server, &info);
    bound_address(o->listen, info.port, plain);
    bound_address(o->tls_listen, info.tls_port, tls);
    daemon_log_printf(&a->log, LOG_SEVERITY_INFO, "store",
                      "the database is open keys=%" PRIu64 " marks=%" PRIu64 " directory=%s",
                      a->store->committed.keys, a->store->db.committed.marks, o->data);
    if (o->strict != NULL) {
        daemon_log_printf(&a->log, LOG_SEVERITY_INFO, "strict",
                          "operations with a token are checked with the lock service nodes=%s",
                          o->strict);
    }
    if (!FENCING) {
        daemon_log_write(&a->log, LOG_SEVERITY_WARNING, "store",
                         "tokens and locks are IGNORED. Stale writers will overwrite newer data. "
                         "For tests only");
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
    daemon_raise_open_files();
    if (store_open(o->data, (size_t)o->size_max, FENCING, &a->store, errmsg, sizeof(errmsg)) != 0) {
        complain("--data: %s%s", errmsg, fli_files_remedy(errmsg));
        return EXIT_FAILURE;
    }
    struct fli_tls_config tls = {.server = true,
                                 .cert_file = o->tls_cert,
                                 .key_file = o->tls_key,
                                 .ca_file = o->tls_ca,
                                 .protocols = o->tls_protocols,
                                 .auth = o->tls_auth};
    const struct fl_tls_options strict_tls = {
        .ca_file = o->tls_ca, .cert_file = o->tls_cert, .key_file = o->tls_key};
    struct store_server_config config = {.listen = listens_plainly(o) ? o->listen : NULL,
                                         .tls_listen =
                                             o->tls_listen[0] != '\0' ? o->tls_listen : NULL,
                                         .tls = &tls,
                                         .aclfile = o->aclfile,
                                         .cert_users = o->cert_users,
                                         .strict = {.nodes = o->strict,
                                                    .tls = o->strict_tls ? &strict_tls : NULL,
                                                    .user = o->strict_user,
                                                    .password = o->strict_password,
                                                    .timeout_ms = o->strict_timeout_ms},
                                         .ctx = a,
                                         .fatal = fatal_cb,
                                         .log = log_cb};
    if (store_server_create(&a->loop, a->store, &config, &a->server, errmsg, sizeof(errmsg)) != 0) {
        complain("%s%s", errmsg, fli_files_remedy(errmsg));
        store_close(a->store);
        return EXIT_FAILURE;
    }
    watch_signals(a);
    announce(o, a);
    daemon_notify_ready(&a->notify, &a->loop, describe_cb, a);
    (void)uv_run(&a->loop, UV_RUN_DEFAULT);
    store_close(a->store);
    daemon_log_write(&a->log, LOG_SEVERITY_INFO, "daemon", "stopped");
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

/* Without memory for its watchers libuv aborts and says nothing; this says it. */
static void report_lack_of_memory(void)
{
    int rv = uv_replace_allocator(fli_xmalloc, grow, fli_xcalloc, free);
    FLI_ASSERT(rv == 0);
}

static int serve(struct options *o)
{
    static struct app app;
    if (!check_options(o) || !read_strict_password(o)) {
        return EXIT_USAGE;
    }
    report_lack_of_memory();
    int rc = uv_loop_init(&app.loop);
    if (rc != 0) {
        complain("cannot start the event loop: %s%s", uv_strerror(rc),
                 fli_files_remedy(uv_strerror(rc)));
        return EXIT_FAILURE;
    }
    int code = run(o, &app);
    (void)uv_run(&app.loop, UV_RUN_DEFAULT); /* closes the handles of a failed start */
    (void)uv_loop_close(&app.loop);
    return code;
}

/* Options that only serving uses are refused. */
static bool check_offline(void)
{
    static const char *const fits[] = {"data", "size-max"};
    for (size_t i = 0; i < reader.n; i++) {
        const char *where = reader.given[i].where;
        bool ok = rows[i].once || where == NULL || where[0] != '-' ||
                  strcmp(rows[i].name, fits[0]) == 0 || strcmp(rows[i].name, fits[1]) == 0;
        if (!ok) {
            complain("%s is for serving: leave it out; see --help", where);
            return false;
        }
    }
    return true;
}

static int serve_or_not(struct options *o)
{
    struct store_offline *f = &o->offline;
    if (f->backup == NULL && f->verify == NULL && f->restore == NULL && f->above == 0) {
        return serve(o);
    }
    if (!check_offline()) {
        return EXIT_USAGE;
    }
    const char *where = fli_options_given(&reader, "data")->where;
    f->data = where != NULL && where[0] == '-' ? o->data : NULL; /* not of the environment */
    f->size_max = (size_t)o->size_max;
    return printed(store_offline(f));
}

int main(int argc, char **argv)
{
    if (!fli_standard_keep()) {
        return EXIT_FAILURE;
    }
    /* beyond the limit on file sizes, writes fail as on a full disk */
    (void)signal(SIGXFSZ, SIG_IGN);
    fli_tls_keep_buffers();
    /* One thread uses SQLite, and nobody asks how much memory it has. It refuses neither. */
    (void)sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    int code = read_options(argc, argv);
    code = code < 0 ? serve_or_not(&options) : code;
    fli_options_fini(&reader);
    return code;
}
