/* config.c: see config.h. There is one table of options. Each source looks its names up there and
 * stores the text. Values are read after the last source, so that an error can name the source. */
#include "server/config_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/distance.h"

#define FIELD(f) offsetof(struct config, f), sizeof(((struct config *)0)->f)
#define NUMBER(name, f, lo, hi)                                                                    \
    {                                                                                              \
        name, KIND_NUMBER, FIELD(f), lo, hi, false                                                 \
    }
#define TEXT(name, f)                                                                              \
    {                                                                                              \
        name, KIND_TEXT, FIELD(f), 0, 0, false                                                     \
    }
#define OTHER(name, kind, f)                                                                       \
    {                                                                                              \
        name, kind, FIELD(f), 0, 0, false                                                          \
    }
#define ONCE(name, kind, f, lo, hi)                                                                \
    {                                                                                              \
        name, kind, FIELD(f), lo, hi, true                                                         \
    }

static const struct config_option options[] = {
    NUMBER("id", id, 1, INT64_MAX),
    TEXT("data", data),
    TEXT("witness", witness),
    TEXT("config", file),
    TEXT("listen", listen),
    TEXT("advertise", advertise),
    TEXT("peer", peer),
    {"cluster", KIND_CLUSTER, 0, 0, 0, 0, false},
    {"join", KIND_JOIN, 0, 0, 0, 0, false},
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
    OTHER("tls-auth-clients", KIND_AUTH, tls_auth_clients),
    TEXT("tls-protocols", tls_protocols),
    TEXT("tls-advertise", tls_advertise),
    TEXT("metrics", metrics),
    OTHER("tls-auth-clients-user", KIND_CERT_USER, tls_auth_clients_user),
    TEXT("aclfile", aclfile),
    TEXT("requirepass", requirepass),
    TEXT("auditlog", auditlog),
    TEXT("redis-face", redis_face),
    TEXT("redis-face-aliases", redis_face_aliases),
    OTHER("redis-face-shared", KIND_YES_NO, redis_face_shared),
    OTHER("redis-face-del", KIND_YES_NO, redis_face_del),
    OTHER("tls-cluster", KIND_YES_NO, tls_cluster),
    TEXT("tls-cluster-name", tls_cluster_name),
    TEXT("cluster-secret-file", cluster_secret_file),
    OTHER("log-level", KIND_LEVEL, log_level),
    OTHER("log-format", KIND_FORMAT, log_json),
    OTHER("protected-mode", KIND_YES_NO, protected_mode),
    NUMBER("locks-max", limits.locks_max, 1, UINT32_MAX),
    NUMBER("sessions-max", limits.sessions_max, 1, UINT32_MAX),
    NUMBER("waits-max", limits.waits_max, 1, UINT32_MAX),
    NUMBER("lock-waits-max", limits.lock_waits_max, 1, UINT32_MAX),
    NUMBER("session-locks-max", limits.session_locks_max, 1, UINT32_MAX),
    ONCE("witness-reset", KIND_FLAG, witness_reset, 0, 0),
    ONCE("check", KIND_FLAG, check, 0, 0),
    ONCE("json", KIND_FLAG, json, 0, 0),
    ONCE("restore", KIND_TEXT, restore, 0, 0),
    ONCE("above", KIND_NUMBER, above, 1, FL_TOKEN_MAX),
    ONCE("recover-from", KIND_TEXT, recover_from, 0, 0),
    ONCE("tokens-above", KIND_NUMBER, tokens_above, 1, FL_TOKEN_MAX),
    ONCE("step", KIND_NUMBER, step, CONFIG_STEP_MIN, FL_TOKEN_MAX),
};
#define OPTIONS_LEN (sizeof options / sizeof options[0])

_Static_assert(OPTIONS_LEN <= CONFIG_OPTIONS_MAX, "a reader has room for all of them");

bool config_listens_plainly(const struct config *c)
{
    return strcmp(c->listen, "off") != 0;
}

uint64_t config_address_share(uint64_t said, uint64_t all)
{
    return said != 0 ? said : all - all / 4;
}

enum config_outcome FLI_PRINTF(2, 3) config_wrong(struct config_reader *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(r->errmsg, CONFIG_ERRMSG_MAX, fmt, args);
    va_end(args);
    return CONFIG_WRONG;
}

static const char *nearest(const char *name, size_t *ret_distance)
{
    const char *best = "help";
    size_t least = fli_distance(name, best);
    for (size_t i = 0; i < OPTIONS_LEN; i++) {
        size_t d = fli_distance(name, options[i].name);
        if (d < least) {
            least = d;
            best = options[i].name;
        }
    }
    *ret_distance = least;
    return best;
}

static size_t find(const char *name)
{
    size_t i = 0;
    while (i < OPTIONS_LEN && strcmp(options[i].name, name) != 0) {
        i++;
    }
    return i;
}

static enum config_outcome only_once(struct config_reader *r, const char *where, const char *name)
{
    return config_wrong(r, "%s: '%s' is for one start alone: write it on the command line, as --%s",
                        where, name, name);
}

static enum config_outcome unknown(struct config_reader *r, const char *where, const char *name)
{
    if (strcmp(name, "allow-remote") == 0) {
        return config_wrong(
            r,
            "%s: there is no option 'allow-remote' any more; what it did is said by "
            "protected-mode no",
            where);
    }
    size_t d = 0;
    const char *near = nearest(name, &d);
    if (d <= 1 + strlen(near) / 3) {
        return config_wrong(r, "%s: there is no option '%.64s'; did you mean '%s'?", where, name,
                            near);
    }
    return config_wrong(r, "%s: there is no option '%.64s'; --help lists them", where, name);
}

/* The source that was read first wins. */
static void give(struct config_reader *r, size_t i, const char *text, size_t len, const char *where)
{
    struct config_given *g = &r->given[i];
    if (g->text != NULL) {
        return;
    }
    g->text = fli_xmalloc(len + 1);
    memcpy(g->text, text, len);
    g->text[len] = '\0';
    (void)snprintf(g->where, sizeof g->where, "%s", where);
}

/* --- command line --- */

static enum config_outcome read_argument(struct config_reader *r, int argc, const char *const *argv,
                                         int *at)
{
    const char *arg = argv[*at];
    if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) {
        return CONFIG_HELP;
    }
    if (strcmp(arg, "-V") == 0 || strcmp(arg, "--version") == 0) {
        return CONFIG_VERSION;
    }
    if (strncmp(arg, "--", 2) != 0) {
        return config_wrong(r, "'%.64s' is not an option: options begin with --; --help lists them",
                            arg);
    }
    char name[64];
    size_t len = strcspn(arg + 2, "=");
    (void)snprintf(name, sizeof name, "%.*s", (int)(len < 63 ? len : 63), arg + 2);
    size_t i = find(name);
    if (i == OPTIONS_LEN) {
        return unknown(r, "command line", name);
    }
    char where[80];
    (void)snprintf(where, sizeof where, "--%s", name);
    if (r->given[i].text != NULL) {
        return config_wrong(r, "--%s is given twice: give it once", name);
    }
    const char *value = arg + 2 + len;
    if (*value == '=') {
        value++;
    } else if (options[i].kind == KIND_FLAG) {
        value = "yes";
    } else if (++*at < argc) {
        value = argv[*at];
    } else {
        return config_wrong(r, "--%s needs a value", name);
    }
    give(r, i, value, strlen(value), where);
    return CONFIG_RUN;
}

static enum config_outcome read_command_line(struct config_reader *r, int argc,
                                             const char *const *argv)
{
    enum config_outcome outcome = CONFIG_RUN;
    for (int i = 0; outcome == CONFIG_RUN && i < argc; i++) {
        outcome = read_argument(r, argc, argv, &i);
    }
    return outcome;
}

/* --- environment --- */

/* Turns FENCELOCK_ELECTION_MS into election-ms. False when the variable is not one of ours. */
static bool variable_name(const char *entry, char name[64], const char **ret_value)
{
    static const char prefix[] = "FENCELOCK_";
    const char *equals = strchr(entry, '=');
    if (equals == NULL || strncmp(entry, prefix, sizeof prefix - 1) != 0) {
        return false;
    }
    const char *p = entry + sizeof prefix - 1;
    size_t len = (size_t)(equals - p);
    if (len == 0 || len >= 64) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        name[i] = (char)(p[i] == '_' ? '-' : tolower((unsigned char)p[i]));
    }
    name[len] = '\0';
    *ret_value = equals + 1;
    return true;
}

static enum config_outcome read_environment(struct config_reader *r, const char *const *env)
{
    for (; env != NULL && *env != NULL; env++) {
        char name[64];
        const char *value = NULL;
        if (!variable_name(*env, name, &value)) {
            continue;
        }
        char where[96];
        (void)snprintf(where, sizeof where, "%.*s in the environment", (int)(value - 1 - *env),
                       *env);
        size_t i = find(name);
        if (i < OPTIONS_LEN && options[i].once) {
            return only_once(r, where, name);
        }
        if (i < OPTIONS_LEN) {
            give(r, i, value, strlen(value), where);
            continue;
        }
        /* Clients and tests use the prefix too, so only likely misspellings are refused. */
        size_t d = 0;
        (void)nearest(name, &d);
        if (d <= 2 && strlen(name) > 4) {
            return unknown(r, where, name);
        }
    }
    return CONFIG_RUN;
}

/* --- file --- */

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }
    return p;
}

static const char *trim_blanks(const char *start, const char *end)
{
    while (end > start && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) {
        end--;
    }
    return end;
}

static enum config_outcome read_line(struct config_reader *r, const char *line, size_t len,
                                     const char *where, bool *seen)
{
    const char *start = skip_blanks(line, line + len);
    const char *hash = memchr(start, '#', (size_t)(line + len - start));
    const char *end = trim_blanks(start, hash != NULL ? hash : line + len);
    if (start == end) {
        return CONFIG_RUN;
    }
    const char *equals = memchr(start, '=', (size_t)(end - start));
    if (equals == NULL) {
        return config_wrong(r, "%s: write `option = value`", where);
    }
    char name[64];
    const char *name_end = trim_blanks(start, equals);
    size_t name_len = (size_t)(name_end - start);
    (void)snprintf(name, sizeof name, "%.*s", (int)(name_len < 63 ? name_len : 63), start);
    size_t i = find(name);
    if (i == OPTIONS_LEN) {
        return unknown(r, where, name);
    }
    if (options[i].once) {
        return only_once(r, where, name);
    }
    if (strcmp(name, "config") == 0) {
        return config_wrong(r, "%s: a config file cannot name another one", where);
    }
    if (seen[i]) {
        return config_wrong(r, "%s: '%s' is given twice: give it once", where, name);
    }
    seen[i] = true;
    const char *value = skip_blanks(equals + 1, end);
    give(r, i, value, (size_t)(end - value), where);
    return CONFIG_RUN;
}

static enum config_outcome read_lines(struct config_reader *r, FILE *f, const char *path)
{
    char line[CONFIG_LINE_MAX];
    char where[CONFIG_PATH_MAX + 32];
    bool seen[OPTIONS_LEN] = {false};
    for (unsigned n = 1; fgets(line, sizeof line, f) != NULL; n++) {
        (void)snprintf(where, sizeof where, "%s:%u", path, n);
        size_t len = strlen(line);
        if (len + 1 == sizeof line && line[len - 1] != '\n') {
            return config_wrong(r, "%.512s: the line is longer than %u bytes", where,
                                CONFIG_LINE_MAX - 2);
        }
        len -= len > 0 && line[len - 1] == '\n';
        enum config_outcome outcome = read_line(r, line, len, where, seen);
        if (outcome != CONFIG_RUN) {
            return outcome;
        }
    }
    return ferror(f)
               ? config_wrong(r, "cannot read the config file %.512s: %s", path, strerror(errno))
               : CONFIG_RUN;
}

static enum config_outcome read_file(struct config_reader *r)
{
    const struct config_given *g = &r->given[find("config")];
    if (g->text == NULL) {
        return CONFIG_RUN;
    }
    FILE *f = fopen(g->text, "re");
    if (f == NULL) {
        return config_wrong(r, "%.128s: cannot open the config file %.512s: %s", g->where, g->text,
                            strerror(errno));
    }
    enum config_outcome outcome = read_lines(r, f, g->text);
    (void)fclose(f);
    return outcome;
}

bool config_was_given(const struct config_reader *r, const char *name)
{
    return r->given[find(name)].text != NULL;
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
                         .redis_face = "yes",
                         .tls_cluster_name = SECURITY_NAME_DEFAULT,
                         .log_level = 3,
                         .step = CONFIG_STEP_MIN};
    c->limits = MACHINE_LIMITS_DEFAULT;
}

static enum config_outcome read_all(struct config_reader *r, int argc, const char *const *argv,
                                    const char *const *env)
{
    enum config_outcome o = read_command_line(r, argc, argv);
    o = o != CONFIG_RUN ? o : read_environment(r, env);
    o = o != CONFIG_RUN ? o : read_file(r);
    for (size_t i = 0; o == CONFIG_RUN && i < OPTIONS_LEN; i++) {
        o = r->given[i].text == NULL ? CONFIG_RUN : config_set(r, &options[i], &r->given[i]);
    }
    return o != CONFIG_RUN ? o : config_check(r);
}

static enum config_outcome read_config(struct config_reader *r, int argc, const char *const *argv,
                                       const char *const *env)
{
    r->errmsg[0] = '\0';
    set_defaults(r->config);
    enum config_outcome outcome = read_all(r, argc, argv, env);
    for (size_t i = 0; i < OPTIONS_LEN; i++) {
        if (outcome == CONFIG_RUN && r->tell != NULL && !options[i].once) {
            config_tell(r, &options[i], &r->given[i]);
        }
        free(r->given[i].text);
    }
    return outcome;
}

enum config_outcome config_read(int argc, const char *const *argv, const char *const *env,
                                struct config *ret, char errmsg[CONFIG_ERRMSG_MAX])
{
    struct config_reader *r = fli_xcalloc(1, sizeof *r);
    r->config = ret;
    r->errmsg = errmsg;
    enum config_outcome outcome = read_config(r, argc, argv, env);
    free(r);
    return outcome;
}

enum config_outcome config_list(int argc, const char *const *argv, const char *const *env,
                                config_value_cb cb, void *ctx)
{
    char errmsg[CONFIG_ERRMSG_MAX];
    struct config_reader *r = fli_xcalloc(1, sizeof *r);
    r->config = fli_xcalloc(1, sizeof *r->config);
    r->errmsg = errmsg;
    r->tell = cb;
    r->tell_ctx = ctx;
    enum config_outcome outcome = read_config(r, argc, argv, env);
    free(r->config);
    free(r);
    return outcome;
}
