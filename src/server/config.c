/* config.c: see config.h. */
#include "server/config_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/option_rows.h"
#include "node/node.h"

#define OPTION_VALUES struct config

static int set_cluster(struct fli_options *o, const struct fli_given *g)
{
    struct config *c = o->values;
    char why[512];
    return members_parse(g->text, &c->members, why, sizeof why) == 0
               ? 0
               : fli_options_wrong(o, "%.400s: %s", g->where, why);
}

static int set_join(struct fli_options *o, const struct fli_given *g)
{
    struct config *c = o->values;
    c->joins = true;
    return set_cluster(o, g);
}

static const struct fli_option options[] = {
    NUMBER("id", id, 1, INT64_MAX),
    TEXT("data", data),
    TEXT("witness", witness),
    TEXT("config", file),
    TEXT("listen", listen),
    TEXT("advertise", advertise),
    TEXT("peer", peer),
    {"cluster", FLI_OPTION_OWN, .set = set_cluster},
    {"join", FLI_OPTION_OWN, .set = set_join},
    NUMBER("election-ms", election_ms, 20, 60000),
    NUMBER("heartbeat-ms", heartbeat_ms, 5, 30000),
    NUMBER("hold-ms", hold_ms, 1, 600000),
    NUMBER("drain-ms", drain_ms, 1, 600000),
    NUMBER("connections-max", connections_max, 1, 1000000),
    NUMBER("client-memory", client_memory, UINT64_C(16) << 20, UINT64_C(1) << 40),
    NUMBER("address-connections", address_connections, 0, 1000000),
    NUMBER("address-memory", address_memory, 0, UINT64_C(1) << 40),
    NUMBER("idle-first-ms", idle_first_ms, 0, 86400000),
    NUMBER("snapshot-bytes", snapshot_bytes, CONFIG_SNAPSHOT_BYTES_MIN, CONFIG_SNAPSHOT_BYTES_MAX),
    TEXT("tls-port", tls_port),
    TEXT("tls-cert-file", tls_cert_file),
    TEXT("tls-key-file", tls_key_file),
    TEXT("tls-ca-cert-file", tls_ca_cert_file),
    WORD("tls-auth-clients", tls_auth_clients, fli_words_tls_auth, 0),
    TEXT("tls-protocols", tls_protocols),
    TEXT("tls-advertise", tls_advertise),
    TEXT("metrics", metrics),
    WORD("tls-auth-clients-user", tls_auth_clients_user, fli_words_cert_users, 0),
    TEXT("aclfile", aclfile),
    TEXT("requirepass", requirepass),
    TEXT("auditlog", auditlog),
    TEXT("front-door", front_door),
    TEXT("front-door-aliases", front_door_aliases),
    YES_NO("front-door-shared", front_door_shared),
    YES_NO("front-door-del", front_door_del),
    YES_NO("tls-cluster", tls_cluster),
    TEXT("tls-cluster-name", tls_cluster_name),
    TEXT("cluster-secret-file", cluster_secret_file),
    WORD("log-level", log_level, fli_words_log_level, 1),
    WORD("log-format", log_json, fli_words_log_format, 0),
    YES_NO("protected-mode", protected_mode),
    NUMBER("locks-max", limits.locks_max, 1, UINT32_MAX),
    NUMBER("sessions-max", limits.sessions_max, 1, UINT32_MAX),
    NUMBER("waits-max", limits.waits_max, 1, UINT32_MAX),
    NUMBER("lock-waits-max", limits.lock_waits_max, 1, UINT32_MAX),
    NUMBER("session-locks-max", limits.session_locks_max, 1, UINT32_MAX),
    {"allow-remote", FLI_OPTION_GONE, .words = fli_instead_of_allow_remote},
    ONCE("witness-reset", FLI_OPTION_FLAG, witness_reset, 0, 0),
    ONCE("check", FLI_OPTION_FLAG, check, 0, 0),
    ONCE("json", FLI_OPTION_FLAG, json, 0, 0),
    ONCE("restore", FLI_OPTION_TEXT, restore, 0, 0),
    ONCE("above", FLI_OPTION_NUMBER, above, 1, FL_TOKEN_MAX),
    ONCE("recover-from", FLI_OPTION_TEXT, recover_from, 0, 0),
    ONCE("tokens-above", FLI_OPTION_NUMBER, tokens_above, 1, FL_TOKEN_MAX),
    ONCE("reset-users", FLI_OPTION_FLAG, reset_users, 0, 0),
    ONCE("step", FLI_OPTION_NUMBER, step, CONFIG_STEP_MIN, FL_TOKEN_MAX),
};
#define OPTIONS_LEN (sizeof options / sizeof options[0])

_Static_assert(OPTIONS_LEN <= FLI_OPTIONS_MAX, "a reader has room for all of them");

bool config_listens_plainly(const struct config *c)
{
    return strcmp(c->listen, "off") != 0;
}

uint64_t config_address_share(uint64_t given, uint64_t all)
{
    return given != 0 ? given : all - all / 4;
}

enum config_outcome config_wrong(struct config_reader *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(r->options.errmsg, CONFIG_ERRMSG_MAX, fmt, args);
    va_end(args);
    return CONFIG_WRONG;
}

bool config_was_given(const struct config_reader *r, const char *name)
{
    return fli_options_given(&r->options, name)->text != NULL;
}

static int read_lines(struct fli_options *o, FILE *f, const char *path)
{
    char line[CONFIG_LINE_MAX - 1];
    char where[CONFIG_PATH_MAX + 32];
    bool seen[OPTIONS_LEN] = {false};
    const char *why = NULL;
    size_t len = 0;
    for (unsigned n = 1;; n++) {
        (void)snprintf(where, sizeof where, "%s:%u", path, n);
        int got = fli_line_read(f, line, sizeof line, &len, &why);
        if (got <= 0) {
            return got == 0 ? 0
                            : fli_options_wrong(o,
                                                "%.512s: %s: a line has at most %u bytes, none of "
                                                "them zero",
                                                where, why, CONFIG_LINE_MAX - 2);
        }
        int rc = fli_options_line(o, line, len, where, seen);
        if (rc == 0 && seen[fli_options_given(o, "config") - o->given]) {
            rc = fli_options_wrong(o, "%.512s: a config file cannot name another one", where);
        }
        if (rc != 0) {
            return rc;
        }
    }
}

static int read_file(struct fli_options *o)
{
    const struct fli_given *g = fli_options_given(o, "config");
    if (g->text == NULL) {
        return 0;
    }
    FILE *f = fopen(g->text, "re");
    if (f == NULL) {
        return fli_options_wrong(o, "%.128s: cannot open the config file %.512s: %s", g->where,
                                 g->text, strerror(errno));
    }
    int rc = read_lines(o, f, g->text);
    (void)fclose(f);
    return rc;
}

static void set_defaults(struct config *c)
{
    *c = (struct config){.id = 1,
                         .protected_mode = true,
                         .data = CONFIG_DATA_DEFAULT,
                         .listen = CONFIG_LISTEN_DEFAULT,
                         .drain_ms = 5000,
                         .connections_max = 16384,
                         .client_memory = UINT64_C(512) << 20,
                         .snapshot_bytes = CONFIG_SNAPSHOT_BYTES_DEFAULT,
                         .tls_auth_clients = FLI_TLS_AUTH_REQUIRED,
                         .front_door = "yes",
                         .tls_cluster_name = SECURITY_NAME_DEFAULT,
                         .log_level = 3,
                         .step = CONFIG_STEP_MIN};
    c->limits = MACHINE_LIMITS_DEFAULT;
}

static enum config_outcome read_all(struct config_reader *r, int argc, const char *const *argv,
                                    const char *const *env)
{
    struct fli_options *o = &r->options;
    int rc = fli_options_arguments(o, argc, argv);
    rc = rc == 0 ? fli_options_environment(o, env) : rc;
    rc = rc == 0 ? read_file(o) : rc;
    rc = rc == 0 ? fli_options_set(o) : rc;
    switch (rc) {
    case 0:
        return config_check(r);
    case FLI_OPTIONS_HELP:
        return CONFIG_HELP;
    case FLI_OPTIONS_VERSION:
        return CONFIG_VERSION;
    default:
        return CONFIG_WRONG;
    }
}

static struct config_reader *open_reader(struct config *c, char errmsg[CONFIG_ERRMSG_MAX])
{
    struct config_reader *r = fli_xcalloc(1, sizeof *r);
    r->config = c;
    r->options = (struct fli_options){.table = options,
                                      .n = OPTIONS_LEN,
                                      .prefix = "FENCELOCK_",
                                      .values = c,
                                      .errmsg = errmsg,
                                      .errmsg_size = CONFIG_ERRMSG_MAX};
    errmsg[0] = '\0';
    set_defaults(c);
    return r;
}

static void close_reader(struct config_reader *r)
{
    fli_options_fini(&r->options);
    free(r);
}

enum config_outcome config_read(int argc, const char *const *argv, const char *const *env,
                                struct config *ret, char errmsg[CONFIG_ERRMSG_MAX])
{
    struct config_reader *r = open_reader(ret, errmsg);
    enum config_outcome outcome = read_all(r, argc, argv, env);
    close_reader(r);
    return outcome;
}

/* What is used in place of an option that was not given, where its own field does not say it. */
static void put_in_force(const struct config *c, const char *name, char *text, size_t size)
{
    const struct member *self = members_find(&c->members, c->id);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"election-ms", NODE_ELECTION_MS},
                   {"heartbeat-ms", NODE_HEARTBEAT_MS},
                   {"hold-ms", NODE_HOLD_MS},
                   {"address-connections", config_address_share(0, c->connections_max)},
                   {"address-memory", config_address_share(0, c->client_memory)}};
    const struct {
        const char *name, *value;
    } texts[] = {{"peer", self != NULL ? self->address : ""},
                 {"advertise", config_listens_plainly(c) ? c->listen : ""},
                 {"tls-advertise", c->tls_port},
                 {"tls-protocols", "TLSv1.2 TLSv1.3"}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            (void)snprintf(text, size, "%" PRIu64, numbers[i].value);
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(name, texts[i].name) == 0) {
            (void)snprintf(text, size, "%s", texts[i].value);
        }
    }
}

static void list_value(const struct config_reader *r, const struct fli_option *row,
                       config_value_cb cb, void *ctx)
{
    const struct fli_given *g = fli_options_given(&r->options, row->name);
    char text[CONFIG_PATH_MAX + MEMBERS_TEXT_MAX];
    if (g->text != NULL) {
        bool secret = strcmp(row->name, "requirepass") == 0;
        cb(ctx, row->name, secret ? "(not shown)" : g->text, g->where);
        return;
    }
    fli_option_text(&r->options, row, text, sizeof text);
    if (row->set == set_cluster) {
        members_format(&r->config->members, text, sizeof text);
    }
    put_in_force(r->config, row->name, text, sizeof text);
    cb(ctx, row->name, text, "default");
}

enum config_outcome config_list(int argc, const char *const *argv, const char *const *env,
                                config_value_cb cb, void *ctx)
{
    char errmsg[CONFIG_ERRMSG_MAX];
    struct config *c = fli_xcalloc(1, sizeof *c);
    struct config_reader *r = open_reader(c, errmsg);
    enum config_outcome outcome = read_all(r, argc, argv, env);
    for (size_t i = 0; outcome == CONFIG_RUN && i < OPTIONS_LEN; i++) {
        if (!options[i].once && options[i].kind != FLI_OPTION_GONE) {
            list_value(r, &options[i], cb, ctx);
        }
    }
    close_reader(r);
    free(c);
    return outcome;
}
