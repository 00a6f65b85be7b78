/* fencelock_store.c: the sample storage server: its options and its signals.
 *
 * Exit codes: 0 stopped by SIGTERM or SIGINT; 1 could not start or had to stop; 2 usage. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "auth/hash.h"
#include "base/lines.h"
#include "base/option_rows.h"
#include "cli/daemon.h"
#include "cli/fencelock_store_offline.h"
#include "net/address.h"
#include "store/info.h"
#include "store/server.h"
#include "tls/tls.h"

#ifdef FENCELOCK_UNFENCED /* fencelock-store-unfenced: what tests break on purpose */
#define FENCING false
#else
#define FENCING true
#endif
#define ERRMSG_SIZE 512u

struct options {
    struct store_server_config server; /* as the server gets it; listen may be "off" */
    struct fli_tls_config tls;
    struct fl_tls_options strict_tls; /* the same files, for the lock service */
    const char *data;
    uint64_t size_max;
    bool protected_mode, has_strict_tls;
    enum log_severity log_level;
    enum log_style log_style;
    const char *strict_password_file; /* NULL: no login there */
    char strict_password[AUTH_PASSWORD_MAX + 1];
    const char *tls_port;
    char tls_listen[NET_ADDRESS_MAX]; /* tls_port with a host; "" for none */
    struct store_offline offline;
};

struct app {
    struct daemon daemon;
    struct store *store;
    struct store_server *server;
};

/* ---- options ---- */

static int set_strict(struct fli_options *from, const struct fli_given *g)
{
    struct options *o = from->values;
    struct fli_node parsed[FL_NODES_MAX];
    char errmsg[ERRMSG_SIZE];
    uint32_t n = 0;
    o->server.strict.nodes = g->text;
    return fli_nodes_parse(g->text, false, parsed, &n, errmsg, sizeof(errmsg)) == 0
               ? 0
               : fli_options_wrong(from, "%s: %s", g->where, errmsg);
}

#define OPTION_VALUES struct options
#define OFFLINE(name, f) ONCE(name, FLI_OPTION_POINTER, offline.f, 0, 0)

static const struct fli_option rows[] = {
    POINTER("listen", server.listen),
    POINTER("data", data),
    {"size-max", FLI_OPTION_SIZE, FIELD(size_max), .min = STORE_SIZE_MIN, .max = SIZE_MAX / 4},
    {"strict", FLI_OPTION_OWN, .set = set_strict},
    NUMBER("strict-timeout", server.strict.timeout_ms, STRICT_TIMEOUT_MIN_MS,
           STRICT_TIMEOUT_MAX_MS),
    {"allow-remote", FLI_OPTION_GONE, .words = fli_instead_of_allow_remote},
    YES_NO("protected-mode", protected_mode),
    POINTER("strict-user", server.strict.user),
    POINTER("strict-password-file", strict_password_file),
    POINTER("aclfile", server.aclfile),
    WORD("tls-auth-clients-user", server.cert_users, fli_words_cert_users, 0),
    WORD("log-level", log_level, fli_words_log_level, LOG_SEVERITY_ERROR),
    WORD("log-format", log_style, fli_words_log_format, LOG_TEXT),
    POINTER("tls-port", tls_port),
    POINTER("tls-cert-file", tls.cert_file),
    POINTER("tls-key-file", tls.key_file),
    POINTER("tls-ca-cert-file", tls.ca_file),
    WORD("tls-auth-clients", tls.auth, fli_words_tls_auth, 0),
    POINTER("tls-protocols", tls.protocols),
    {"strict-tls", FLI_OPTION_FLAG, FIELD(has_strict_tls)},
    OFFLINE("backup", backup),
    OFFLINE("verify", verify),
    OFFLINE("restore", restore),
    ONCE("above", FLI_OPTION_NUMBER, offline.above, 1, FL_TOKEN_MAX - 1),
};

_Static_assert(sizeof rows / sizeof rows[0] <= FLI_OPTIONS_MAX, "they have room");

static struct options options = {
    .server = {.listen = STORE_LISTEN_DEFAULT, .strict.timeout_ms = STRICT_TIMEOUT_DEFAULT_MS},
    .tls = {.server = true, .auth = FLI_TLS_AUTH_REQUIRED},
    .data = STORE_DATA_DEFAULT,
    .size_max = STORE_SIZE_DEFAULT,
    .protected_mode = true,
    .log_level = LOG_SEVERITY_INFO};
static char option_error[1024];
static struct fli_options reader = {.table = rows,
                                    .n = sizeof rows / sizeof rows[0],
                                    .prefix = "FENCELOCK_STORE_",
                                    .empty_is_none = true,
                                    .values = &options,
                                    .errmsg = option_error,
                                    .errmsg_size = sizeof option_error};

static void read_options(int argc, char **argv)
{
    int rc = fli_options_arguments(&reader, argc - 1, (const char *const *)argv + 1);
    rc = rc == 0 ? fli_options_environment(&reader, (const char *const *)environ) : rc;
    rc = rc == 0 ? fli_options_set(&reader) : rc;
    if (rc == FLI_OPTIONS_HELP) {
        daemon_print(store_help);
    }
    if (rc == FLI_OPTIONS_VERSION) {
        daemon_print("fencelock-store " FENCELOCK_VERSION "\n");
    }
    if (rc != 0) {
        daemon_die(DAEMON_USAGE, "%s", option_error);
    }
}

static bool listens_plainly(const struct options *o)
{
    return strcmp(o->server.listen, "off") != 0;
}

static void check_reach(const struct options *o, const char *option, const char *address)
{
    char host[NET_HOST_MAX];
    uint16_t port;
    if (net_address_split(address, host, &port) != 0) {
        daemon_die(DAEMON_USAGE, "--%s: '%s' is not HOST:PORT, such as %s or [::1]:7411", option,
                   address, STORE_LISTEN_DEFAULT);
    }
    if (o->protected_mode && o->server.aclfile == NULL && !net_host_is_loopback(host)) {
        daemon_die(DAEMON_USAGE,
                   "--%s: %s is not (only) this machine, and nothing there proves who a client "
                   "is: use a loopback address, --tls-port with --tls-auth-clients yes, --aclfile, "
                   "or --protected-mode no if the network keeps strangers out",
                   option, host);
    }
}

/* Options of a port that there is not. */
static void check_no_port(const struct options *o)
{
    static const char *const names[] = {"tls-cert-file", "tls-key-file", "tls-ca-cert-file",
                                        "tls-auth-clients", "tls-protocols"};
    if (!listens_plainly(o)) {
        daemon_die(DAEMON_USAGE, "--listen off leaves clients no port: add --tls-port");
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !o->has_strict_tls; i++) {
        if (fli_options_given(&reader, names[i])->text != NULL) {
            daemon_die(DAEMON_USAGE, "--%s has no effect without --tls-port: add it", names[i]);
        }
    }
}

static void check_tls(struct options *o)
{
    char host[NET_HOST_MAX];
    uint16_t port;
    if (o->tls.cert_file == NULL || o->tls.key_file == NULL) {
        daemon_die(DAEMON_USAGE, "--tls-port needs --tls-cert-file and --tls-key-file");
    }
    if (o->tls.auth != FLI_TLS_AUTH_NO && o->tls.ca_file == NULL) {
        daemon_die(DAEMON_USAGE, "--tls-port needs --tls-ca-cert-file, which says whose clients "
                                 "are let in; or --tls-auth-clients no, which lets in everybody");
    }
    if (!net_address_of_port(o->tls_port, o->server.listen, o->tls_listen, sizeof o->tls_listen) ||
        net_address_split(o->tls_listen, host, &port) != 0) {
        daemon_die(DAEMON_USAGE, "--tls-port: '%s' is neither PORT nor HOST:PORT", o->tls_port);
    }
    if (o->tls.auth != FLI_TLS_AUTH_REQUIRED) {
        check_reach(o, "tls-port", o->tls_listen);
    }
}

/* Reads the first line of the file, if a user is named. */
static void read_strict_password(struct options *o)
{
    char why[256];
    const char *user = o->server.strict.user;
    if ((user == NULL) != (o->strict_password_file == NULL)) {
        daemon_die(DAEMON_USAGE, "--strict-user and --strict-password-file go together: add the "
                                 "other one");
    }
    if (user != NULL && fli_line_first(o->strict_password_file, o->strict_password,
                                       sizeof o->strict_password, why, sizeof why) != 0) {
        daemon_die(DAEMON_USAGE, "--strict-password-file: %s", why);
    }
    if (user != NULL && strlen(user) > ACL_NAME_MAX) {
        daemon_die(DAEMON_USAGE, "--strict-user has at most %u bytes", ACL_NAME_MAX);
    }
}

static void check_options(struct options *o)
{
    if (o->data[0] == '\0') {
        daemon_die(DAEMON_USAGE,
                   "--data: the directory's name is empty; leave the option out for %s",
                   STORE_DATA_DEFAULT);
    }
    if (listens_plainly(o)) {
        check_reach(o, "listen", o->server.listen);
    }
    if (o->has_strict_tls && o->server.strict.nodes == NULL) {
        daemon_die(DAEMON_USAGE, "--strict-tls: there is no --strict that it could be about");
    }
    if (o->tls_port != NULL) {
        check_tls(o);
    } else {
        check_no_port(o);
    }
    read_strict_password(o);
}

/* ---- running ---- */

static void fatal_cb(void *ctx, int error)
{
    struct app *a = ctx;
    daemon_log_printf(&a->daemon.log, LOG_SEVERITY_ERROR, "store",
                      "the database failed (%s); what is on disk is not known, so nothing more is "
                      "answered. Look for disk errors, then start again: what is on disk is "
                      "checked then",
                      fl_strerror(error));
    (void)fflush(NULL);
    _exit(DAEMON_FAILED); /* no answer may leave any more */
}

static void log_cb(void *ctx, int level, const char *message)
{
    struct app *a = ctx;
    daemon_log_write(&a->daemon.log, (enum log_severity)level, "store", message);
}

static void describe_cb(void *ctx, char *out, size_t size)
{
    struct app *a = ctx;
    uint64_t keys = a->store->committed.keys;
    uint64_t marks = a->store->db.committed.marks;
    (void)snprintf(out, size, "%" PRIu64 " key%s, %" PRIu64 " mark%s", keys, fli_s(keys), marks,
                   fli_s(marks));
}

static void reload_cb(void *ctx)
{
    struct app *a = ctx;
    store_server_reload(a->server);
}

static void stopped_cb(void *ctx)
{
    struct app *a = ctx;
    store_server_destroy(a->server);
    daemon_stopped(&a->daemon);
}

static void stop_cb(void *ctx)
{
    struct app *a = ctx;
    store_server_stop(a->server, stopped_cb, a);
}

static void announce(const struct options *o, struct app *a)
{
    struct daemon_log *log = &a->daemon.log;
    daemon_log_printf(log, LOG_SEVERITY_INFO, "store",
                      "the database is open keys=%" PRIu64 " marks=%" PRIu64 " directory=%s",
                      a->store->committed.keys, a->store->db.committed.marks, o->data);
    if (o->server.strict.nodes != NULL) {
        daemon_log_printf(log, LOG_SEVERITY_INFO, "strict",
                          "operations with a token are checked with the lock service nodes=%s",
                          o->server.strict.nodes);
    }
    if (!FENCING) {
        daemon_log_write(log, LOG_SEVERITY_WARNING, "store",
                         "tokens and locks are IGNORED. Stale writers will overwrite newer data. "
                         "For tests only");
    }
}

static void serve_until_stopped(const struct options *o, struct app *a)
{
    char plain[NET_ADDRESS_MAX];
    char tls[NET_ADDRESS_MAX];
    struct store_info info;
    store_server_get_info(a->server, &info);
    net_address_bound(o->server.listen, info.port, plain);
    net_address_bound(o->tls_listen, info.tls_port, tls);
    announce(o, a);
    daemon_run(&a->daemon, "", plain, tls);
}

/* What the server gets besides what was given. */
static void complete(struct options *o, struct app *a)
{
    struct store_server_config *c = &o->server;
    o->strict_tls = (struct fl_tls_options){
        .ca_file = o->tls.ca_file, .cert_file = o->tls.cert_file, .key_file = o->tls.key_file};
    c->listen = listens_plainly(o) ? c->listen : NULL;
    c->tls_listen = o->tls_listen[0] != '\0' ? o->tls_listen : NULL;
    c->tls = &o->tls;
    c->strict.tls = o->has_strict_tls ? &o->strict_tls : NULL;
    c->strict.password = o->strict_password;
    c->ctx = a;
    c->fatal = fatal_cb;
    c->log = log_cb;
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

static void serve(struct options *o)
{
    static struct app app = {
        .daemon = {.ctx = &app, .describe = describe_cb, .reload = reload_cb, .stop = stop_cb}};
    char errmsg[ERRMSG_SIZE] = "out of memory";
    check_options(o);
    report_lack_of_memory();
    daemon_open(&app.daemon, o->log_style, o->log_level);
    if (store_open(o->data, (size_t)o->size_max, FENCING, &app.store, errmsg, sizeof errmsg) != 0) {
        daemon_die(DAEMON_FAILED, "--data: %s%s", errmsg, fli_files_remedy(errmsg));
    }
    complete(o, &app);
    if (store_server_create(&app.daemon.loop, app.store, &o->server, &app.server, errmsg,
                            sizeof errmsg) != 0) {
        store_close(app.store);
        daemon_die(DAEMON_FAILED, "%s%s", errmsg, fli_files_remedy(errmsg));
    }
    serve_until_stopped(o, &app);
    store_close(app.store);
    (void)uv_loop_close(&app.daemon.loop);
}

/* Options that only serving uses are refused. */
static void check_offline(void)
{
    for (size_t i = 0; i < reader.n; i++) {
        const char *where = reader.given[i].where;
        bool fits = strcmp(rows[i].name, "data") == 0 || strcmp(rows[i].name, "size-max") == 0;
        if (!fits && !rows[i].once && where != NULL && where[0] == '-') {
            daemon_die(DAEMON_USAGE, "%s is for serving: leave it out; see --help", where);
        }
    }
}

int main(int argc, char **argv)
{
    if (!daemon_begin("fencelock-store")) {
        return DAEMON_FAILED;
    }
    fli_tls_keep_buffers();
    /* One thread uses SQLite, and nobody asks how much memory it has. It refuses neither. */
    (void)sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    read_options(argc, argv);
    struct store_offline *f = &options.offline;
    if (f->backup != NULL || f->verify != NULL || f->restore != NULL || f->above != 0) {
        check_offline();
        const char *where = fli_options_given(&reader, "data")->where;
        f->data = where != NULL && where[0] == '-' ? options.data : NULL; /* not of environment */
        f->size_max = (size_t)options.size_max;
        store_offline(f);
        daemon_end(DAEMON_DONE);
    }
    serve(&options);
    fli_options_fini(&reader);
    return DAEMON_DONE;
}
