/* config.c: see config.h. One table of options; each source looks its names up there and stores the
 * text; values are read once the last source has spoken, so an error can say where a value came
 * from. */
#include "server/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* A flag needs no value on the command line. */
enum kind {
    KIND_NUMBER,
    KIND_TEXT,
    KIND_FLAG,
    KIND_YES_NO,
    KIND_LEVEL,
    KIND_CLUSTER,
    KIND_AUTH,
    KIND_FORMAT,
    KIND_CERT_USER
};

struct option {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t size; /* of the field */
    uint64_t min, max;
};

#define FIELD(f) offsetof(struct config, f), sizeof(((struct config *)0)->f)
#define NUMBER(name, f, lo, hi)                                                                    \
    {                                                                                              \
        name, KIND_NUMBER, FIELD(f), lo, hi                                                        \
    }
#define TEXT(name, f)                                                                              \
    {                                                                                              \
        name, KIND_TEXT, FIELD(f), 0, 0                                                            \
    }

static const struct option options[] = {
    NUMBER("id", id, 1, INT64_MAX),
    TEXT("data", data),
    TEXT("config", file),
    TEXT("listen", listen),
    TEXT("advertise", advertise),
    TEXT("peer", peer),
    {"cluster", KIND_CLUSTER, 0, 0, 0, 0},
    NUMBER("election-ms", election_ms, 20, 60000),
    NUMBER("heartbeat-ms", heartbeat_ms, 5, 30000),
    NUMBER("hold-ms", hold_ms, 1, 600000),
    NUMBER("drain-ms", drain_ms, 1, 600000),
    NUMBER("connections-max", connections_max, 1, 1000000),
    NUMBER("client-memory", client_memory, UINT64_C(16) << 20, UINT64_C(1) << 40),
    NUMBER("idle-first-ms", idle_first_ms, 0, 86400000),
    NUMBER("snapshot-bytes", snapshot_bytes, CONFIG_SNAPSHOT_BYTES_MIN, CONFIG_SNAPSHOT_BYTES_MAX),
    TEXT("tls-port", tls_port),
    TEXT("tls-cert-file", tls_cert_file),
    TEXT("tls-key-file", tls_key_file),
    TEXT("tls-ca-cert-file", tls_ca_cert_file),
    {"tls-auth-clients", KIND_AUTH, FIELD(tls_auth_clients), 0, 0},
    TEXT("tls-protocols", tls_protocols),
    TEXT("tls-advertise", tls_advertise),
    {"tls-auth-clients-user", KIND_CERT_USER, FIELD(tls_auth_clients_user), 0, 0},
    TEXT("aclfile", aclfile),
    TEXT("requirepass", requirepass),
    TEXT("auditlog", auditlog),
    {"tls-cluster", KIND_YES_NO, FIELD(tls_cluster), 0, 0},
    TEXT("tls-cluster-name", tls_cluster_name),
    TEXT("cluster-secret-file", cluster_secret_file),
    {"log-level", KIND_LEVEL, FIELD(log_level), 0, 0},
    {"log-format", KIND_FORMAT, FIELD(log_json), 0, 0},
    {"allow-remote", KIND_FLAG, FIELD(allow_remote), 0, 0},
    NUMBER("locks-max", limits.locks_max, 1, UINT32_MAX),
    NUMBER("sessions-max", limits.sessions_max, 1, UINT32_MAX),
    NUMBER("waits-max", limits.waits_max, 1, UINT32_MAX),
    NUMBER("lock-waits-max", limits.lock_waits_max, 1, UINT32_MAX),
    NUMBER("session-locks-max", limits.session_locks_max, 1, UINT32_MAX),
};
#define OPTIONS_LEN (sizeof options / sizeof options[0])

bool config_listens_plainly(const struct config *c)
{
    return strcmp(c->listen, "off") != 0;
}

/* A value and where it was found. */
struct given {
    char *text; /* NULL: not given */
    char where[CONFIG_PATH_MAX + 32];
};

struct reader {
    struct given given[OPTIONS_LEN];
    struct config *config;
    char *errmsg;
};

static enum config_outcome FLI_PRINTF(2, 3) wrong(struct reader *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(r->errmsg, CONFIG_ERRMSG_MAX, fmt, args);
    va_end(args);
    return CONFIG_WRONG;
}

/* Edit distance, for texts of at most 32 bytes; longer ones are far from everything. */
static unsigned distance(const char *a, const char *b)
{
    size_t na = strlen(a);
    size_t nb = strlen(b);
    unsigned row[33];
    if (na > 32 || nb > 32) {
        return UINT32_MAX;
    }
    for (unsigned j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (unsigned i = 1; i <= na; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= nb; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

static const char *nearest(const char *name, unsigned *ret_distance)
{
    const char *best = "help";
    unsigned least = distance(name, best);
    for (size_t i = 0; i < OPTIONS_LEN; i++) {
        unsigned d = distance(name, options[i].name);
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

static enum config_outcome unknown(struct reader *r, const char *where, const char *name)
{
    unsigned d = 0;
    const char *near = nearest(name, &d);
    if (d <= 1 + strlen(near) / 3) {
        return wrong(r, "%s: there is no option '%.64s'; did you mean '%s'?", where, name, near);
    }
    return wrong(r, "%s: there is no option '%.64s'; --help lists them", where, name);
}

/* Keeps what was said first. */
static void give(struct reader *r, size_t i, const char *text, size_t len, const char *where)
{
    struct given *g = &r->given[i];
    if (g->text != NULL) {
        return;
    }
    g->text = fli_xmalloc(len + 1);
    memcpy(g->text, text, len);
    g->text[len] = '\0';
    (void)snprintf(g->where, sizeof g->where, "%s", where);
}

/* --- command line --- */

static enum config_outcome read_argument(struct reader *r, int argc, const char *const *argv,
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
        return wrong(r, "'%.64s' is not an option: options begin with --; --help lists them", arg);
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
        return wrong(r, "--%s is given twice: give it once", name);
    }
    const char *value = arg + 2 + len;
    if (*value == '=') {
        value++;
    } else if (options[i].kind == KIND_FLAG) {
        value = "yes";
    } else if (++*at < argc) {
        value = argv[*at];
    } else {
        return wrong(r, "--%s needs a value", name);
    }
    give(r, i, value, strlen(value), where);
    return CONFIG_RUN;
}

static enum config_outcome read_command_line(struct reader *r, int argc, const char *const *argv)
{
    enum config_outcome outcome = CONFIG_RUN;
    for (int i = 0; outcome == CONFIG_RUN && i < argc; i++) {
        outcome = read_argument(r, argc, argv, &i);
    }
    return outcome;
}

/* --- environment --- */

/* FENCELOCK_ELECTION_MS to election-ms. False when it is no variable of ours. */
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

static enum config_outcome read_environment(struct reader *r, const char *const *env)
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
        if (i < OPTIONS_LEN) {
            give(r, i, value, strlen(value), where);
            continue;
        }
        /* Others use the prefix too (clients, tests), so only what looks like a slip is refused. */
        unsigned d = 0;
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

static enum config_outcome read_line(struct reader *r, const char *line, size_t len,
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
        return wrong(r, "%s: write `option = value`", where);
    }
    char name[64];
    const char *name_end = trim_blanks(start, equals);
    size_t name_len = (size_t)(name_end - start);
    (void)snprintf(name, sizeof name, "%.*s", (int)(name_len < 63 ? name_len : 63), start);
    size_t i = find(name);
    if (i == OPTIONS_LEN) {
        return unknown(r, where, name);
    }
    if (strcmp(name, "config") == 0) {
        return wrong(r, "%s: a config file cannot name another one", where);
    }
    if (seen[i]) {
        return wrong(r, "%s: '%s' is given twice: give it once", where, name);
    }
    seen[i] = true;
    const char *value = skip_blanks(equals + 1, end);
    give(r, i, value, (size_t)(end - value), where);
    return CONFIG_RUN;
}

static enum config_outcome read_lines(struct reader *r, FILE *f, const char *path)
{
    char line[CONFIG_LINE_MAX];
    char where[CONFIG_PATH_MAX + 32];
    bool seen[OPTIONS_LEN] = {false};
    for (unsigned n = 1; fgets(line, sizeof line, f) != NULL; n++) {
        (void)snprintf(where, sizeof where, "%s:%u", path, n);
        size_t len = strlen(line);
        if (len + 1 == sizeof line && line[len - 1] != '\n') {
            return wrong(r, "%.512s: the line is longer than %u bytes", where, CONFIG_LINE_MAX - 2);
        }
        len -= len > 0 && line[len - 1] == '\n';
        enum config_outcome outcome = read_line(r, line, len, where, seen);
        if (outcome != CONFIG_RUN) {
            return outcome;
        }
    }
    return ferror(f) ? wrong(r, "cannot read the config file %.512s: %s", path, strerror(errno))
                     : CONFIG_RUN;
}

static enum config_outcome read_file(struct reader *r)
{
    const struct given *g = &r->given[find("config")];
    if (g->text == NULL) {
        return CONFIG_RUN;
    }
    FILE *f = fopen(g->text, "re");
    if (f == NULL) {
        return wrong(r, "%.128s: cannot open the config file %.512s: %s", g->where, g->text,
                     strerror(errno));
    }
    enum config_outcome outcome = read_lines(r, f, g->text);
    (void)fclose(f);
    return outcome;
}

/* --- values --- */

static enum config_outcome set_number(struct reader *r, const struct option *o,
                                      const struct given *g, void *field)
{
    uint64_t v = 0;
    if (!fli_parse_u64(g->text, strlen(g->text), o->max, &v) || v < o->min) {
        return wrong(r, "%.512s: '%.64s' is not a whole number from %llu to %llu", g->where,
                     g->text, (unsigned long long)o->min, (unsigned long long)o->max);
    }
    if (o->size == sizeof(uint32_t)) {
        uint32_t small = (uint32_t)v;
        memcpy(field, &small, sizeof small);
    } else {
        FLI_ASSERT(o->size == sizeof v);
        memcpy(field, &v, sizeof v);
    }
    return CONFIG_RUN;
}

static enum config_outcome set_flag(struct reader *r, const struct given *g, void *field)
{
    static const struct {
        const char *word;
        bool v;
    } words[] = {{"yes", true}, {"no", false}, {"true", true}, {"false", false},
                 {"1", true},   {"0", false},  {"on", true},   {"off", false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(g->text, words[i].word) == 0) {
            memcpy(field, &words[i].v, sizeof(bool));
            return CONFIG_RUN;
        }
    }
    return wrong(r, "%.512s: '%.64s' is neither yes nor no", g->where, g->text);
}

static enum config_outcome set_level(struct reader *r, const struct given *g, void *field)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    for (unsigned i = 0; i < 4; i++) {
        if (strcmp(g->text, names[i]) == 0) {
            unsigned level = i + 1;
            memcpy(field, &level, sizeof level);
            return CONFIG_RUN;
        }
    }
    return wrong(r, "%.512s: '%.64s' is no level: write error, warning, info or debug", g->where,
                 g->text);
}

static enum config_outcome set_format(struct reader *r, const struct given *g, void *field)
{
    bool json = strcmp(g->text, "json") == 0;
    if (!json && strcmp(g->text, "text") != 0) {
        return wrong(r, "%.512s: '%.64s' is no format: write text or json", g->where, g->text);
    }
    memcpy(field, &json, sizeof json);
    return CONFIG_RUN;
}

static enum config_outcome set_auth(struct reader *r, const struct given *g, void *field)
{
    static const struct {
        const char *word;
        enum fli_tls_auth v;
    } words[] = {{"yes", FLI_TLS_AUTH_REQUIRED},
                 {"no", FLI_TLS_AUTH_NO},
                 {"optional", FLI_TLS_AUTH_OPTIONAL}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(g->text, words[i].word) == 0) {
            memcpy(field, &words[i].v, sizeof words[i].v);
            return CONFIG_RUN;
        }
    }
    return wrong(r, "%.512s: '%.64s' is none of yes, no and optional", g->where, g->text);
}

static enum config_outcome set_cert_user(struct reader *r, const struct given *g, void *field)
{
    bool by_cn = strcmp(g->text, "CN") == 0;
    if (!by_cn && strcmp(g->text, "off") != 0) {
        return wrong(r, "%.512s: '%.64s' is neither CN nor off", g->where, g->text);
    }
    memcpy(field, &by_cn, sizeof by_cn);
    return CONFIG_RUN;
}

static enum config_outcome set_cluster(struct reader *r, const struct given *g)
{
    char why[512];
    if (members_parse(g->text, &r->config->members, why, sizeof why) != 0) {
        return wrong(r, "%.400s: %s", g->where, why);
    }
    return CONFIG_RUN;
}

static enum config_outcome set_text(struct reader *r, const struct option *o, const struct given *g,
                                    void *field)
{
    size_t len = strlen(g->text);
    if (len == 0 || len >= o->size) {
        return wrong(r, "%.512s: %s must have 1 to %zu bytes, not %zu", g->where, o->name,
                     o->size - 1, len);
    }
    memcpy(field, g->text, len + 1);
    return CONFIG_RUN;
}

static enum config_outcome set(struct reader *r, const struct option *o, const struct given *g)
{
    void *field = (char *)r->config + o->offset;
    switch (o->kind) {
    case KIND_NUMBER:
        return set_number(r, o, g, field);
    case KIND_FLAG:
    case KIND_YES_NO:
        return set_flag(r, g, field);
    case KIND_LEVEL:
        return set_level(r, g, field);
    case KIND_CLUSTER:
        return set_cluster(r, g);
    case KIND_AUTH:
        return set_auth(r, g, field);
    case KIND_FORMAT:
        return set_format(r, g, field);
    case KIND_CERT_USER:
        return set_cert_user(r, g, field);
    default:
        return set_text(r, o, g, field);
    }
}

static bool was_given(const struct reader *r, const char *name)
{
    return r->given[find(name)].text != NULL;
}

/* --- what belongs together --- */

static enum config_outcome check_members(struct reader *r)
{
    struct config *c = r->config;
    if (!was_given(r, "cluster")) {
        c->members.n = 1;
        c->members.list[0].id = c->id;
        (void)snprintf(c->members.list[0].address, sizeof c->members.list[0].address, "%s",
                       c->peer[0] != '\0' ? c->peer : CONFIG_PEER_DEFAULT);
        return CONFIG_RUN;
    }
    if (!was_given(r, "id") && c->members.n == 1) {
        c->id = c->members.list[0].id;
    } else if (!was_given(r, "id")) {
        return wrong(r, "--id is missing: --cluster has %u nodes, say which of them this one is",
                     c->members.n);
    }
    if (members_find(&c->members, c->id) == NULL) {
        return wrong(r,
                     "--cluster has no node %llu, but --id says that this is node %llu: add it to "
                     "--cluster, or correct --id",
                     (unsigned long long)c->id, (unsigned long long)c->id);
    }
    return CONFIG_RUN;
}

static enum config_outcome check_address(struct reader *r, const char *option, const char *address,
                                         bool port_0)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    if (net_address_split(address, host, &port) != 0) {
        return wrong(r, "--%s: '%.128s' is not an address: write HOST:PORT, such as %s", option,
                     address, CONFIG_LISTEN_DEFAULT);
    }
    if (port == 0 && !port_0) {
        return wrong(r, "--%s: '%.128s' needs a port from 1 to 65535", option, address);
    }
    return CONFIG_RUN;
}

/* Who is taken for a node can read everything and change everything. */
static enum config_outcome check_peer_reach(struct reader *r, const char *option,
                                            const char *address)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    int rc = net_address_split(address, host, &port);
    FLI_ASSERT(rc == 0);
    if (r->config->tls_cluster || r->config->cluster_secret_file[0] != '\0' ||
        net_host_is_loopback(host)) {
        return CONFIG_RUN;
    }
    return wrong(
        r,
        "--%s: the address for other nodes, %.128s, can be reached from other machines, and "
        "nothing there proves who is a node. Add --tls-cluster yes with certificates, or "
        "--cluster-secret-file FILE, the same on all nodes (openssl rand -hex 32 > FILE)",
        option, address);
}

/* An address that is to be bound is to be told to clients too, unless another one is. */
static enum config_outcome check_told(struct reader *r, const char *option, const char *address,
                                      const char *told_option, const char *told)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    if (told[0] != '\0') {
        return check_address(r, told_option, told, false);
    }
    if (net_address_split(address, host, &port) == 0 && net_host_is_any(host)) {
        return wrong(r,
                     "--%s %.128s means every address of this machine, which is no address to "
                     "tell clients: add --%s HOST:PORT",
                     option, address, told_option);
    }
    return CONFIG_RUN;
}

static enum config_outcome check_plain(struct reader *r)
{
    struct config *c = r->config;
    if (!config_listens_plainly(c)) {
        return c->advertise[0] == '\0'
                   ? CONFIG_RUN
                   : wrong(r, "--advertise has no meaning with --listen off: use --tls-advertise");
    }
    enum config_outcome o = check_address(r, "listen", c->listen, true);
    return o != CONFIG_RUN ? o : check_told(r, "listen", c->listen, "advertise", c->advertise);
}

/* A port alone belongs to the host of --listen, as in Redis. */
static void complete_tls_port(struct config *c)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    uint64_t number = 0;
    if (fli_parse_u64(c->tls_port, strlen(c->tls_port), UINT16_MAX, &number)) {
        if (net_address_split(c->listen, host, &port) != 0) {
            (void)snprintf(host, sizeof host, "127.0.0.1"); /* listen is off */
        }
        (void)net_address_join(host, (uint16_t)number, c->tls_port, sizeof c->tls_port);
    }
}

static enum config_outcome check_tls_files(struct reader *r)
{
    static const char *const files[] = {"tls-cert-file", "tls-key-file", "tls-ca-cert-file"};
    const struct config *c = r->config;
    const char *user = c->tls_cluster ? "tls-cluster" : "tls-port";
    for (size_t i = 0; i < 3; i++) {
        if (c->tls_port[0] == '\0' && !c->tls_cluster && was_given(r, files[i])) {
            return wrong(r, "--%s has no effect without --tls-port or --tls-cluster yes: add one",
                         files[i]);
        }
    }
    if (c->tls_port[0] == '\0' && !c->tls_cluster) {
        return CONFIG_RUN;
    }
    for (size_t i = 0; i < 2; i++) {
        if (!was_given(r, files[i])) {
            return wrong(r, "--%s needs --%s", user, files[i]);
        }
    }
    if (c->tls_cluster && c->tls_ca_cert_file[0] == '\0') {
        return wrong(r,
                     "--tls-cluster needs --tls-ca-cert-file, which says whose nodes are let in");
    }
    return CONFIG_RUN;
}

static enum config_outcome check_tls_cluster(struct reader *r)
{
    const struct config *c = r->config;
    if (!c->tls_cluster && was_given(r, "tls-cluster-name")) {
        return wrong(r, "--tls-cluster-name has no effect without --tls-cluster yes: add it");
    }
    if (c->tls_cluster && c->cluster_secret_file[0] != '\0') {
        return wrong(r, "--cluster-secret-file and --tls-cluster yes: nodes know each other by one "
                        "or the other, leave one out");
    }
    if (!security_name_is_valid(c->tls_cluster_name)) {
        return wrong(r,
                     "--tls-cluster-name: '%.64s' is no name: write letters, digits, dots and "
                     "dashes",
                     c->tls_cluster_name);
    }
    return CONFIG_RUN;
}

static enum config_outcome check_tls_port(struct reader *r)
{
    struct config *c = r->config;
    if (c->tls_auth_clients != FLI_TLS_AUTH_NO && c->tls_ca_cert_file[0] == '\0') {
        return wrong(r, "--tls-port needs --tls-ca-cert-file, which says whose clients are let in; "
                        "or --tls-auth-clients no, which lets in everybody");
    }
    complete_tls_port(c);
    enum config_outcome o = check_address(r, "tls-port", c->tls_port, true);
    if (o == CONFIG_RUN && strlen(c->tls_port) + strlen(c->listen) + strlen(c->advertise) +
                                   strlen(c->tls_advertise) + 16 >
                               MEMBER_ADDRESS_MAX) {
        return wrong(r, "the addresses that clients are told are too long together");
    }
    return o != CONFIG_RUN
               ? o
               : check_told(r, "tls-port", c->tls_port, "tls-advertise", c->tls_advertise);
}

static enum config_outcome check_tls(struct reader *r)
{
    static const char *const needs[] = {"tls-auth-clients", "tls-advertise",
                                        "tls-auth-clients-user"};
    const struct config *c = r->config;
    enum config_outcome o = check_tls_files(r);
    o = o != CONFIG_RUN ? o : check_tls_cluster(r);
    if (o != CONFIG_RUN) {
        return o;
    }
    if (c->tls_port[0] != '\0') {
        return check_tls_port(r);
    }
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        if (was_given(r, needs[i])) {
            return wrong(r, "--%s has no effect without --tls-port: add it", needs[i]);
        }
    }
    if (!c->tls_cluster && was_given(r, "tls-protocols")) {
        return wrong(r,
                     "--tls-protocols has no effect without --tls-port or --tls-cluster yes: add "
                     "one");
    }
    return config_listens_plainly(c)
               ? CONFIG_RUN
               : wrong(r, "--listen off leaves clients no port: add --tls-port");
}

static enum config_outcome check_addresses(struct reader *r)
{
    struct config *c = r->config;
    enum config_outcome o = check_plain(r);
    o = o != CONFIG_RUN ? o : check_tls(r);
    if (o == CONFIG_RUN && c->peer[0] != '\0') {
        o = check_address(r, "peer", c->peer, false);
    }
    if (o == CONFIG_RUN && c->peer[0] != '\0') {
        o = check_peer_reach(r, "peer", c->peer);
    }
    return o != CONFIG_RUN
               ? o
               : check_peer_reach(r, "cluster", members_find(&c->members, c->id)->address);
}

static enum config_outcome check_users(struct reader *r)
{
    const struct config *c = r->config;
    if (c->aclfile[0] != '\0' && c->requirepass[0] != '\0') {
        return wrong(r, "--aclfile and --requirepass exclude each other: write the line `user "
                        "default on >PASSWORD ~* +@all` into the file");
    }
    for (const char *p = c->requirepass; *p != '\0'; p++) {
        if (*p <= ' ' || *p == 0x7f) {
            return wrong(r, "--requirepass: a password that begins with the cluster has no blanks; "
                            "set it later with ACL SETUSER");
        }
    }
    return CONFIG_RUN;
}

static enum config_outcome check_times(struct reader *r)
{
    const struct config *c = r->config;
    if (c->election_ms != 0 && c->heartbeat_ms != 0 && c->election_ms < 3 * c->heartbeat_ms) {
        return wrong(
            r,
            "--heartbeat-ms %u is too slow for --election-ms %u: at least three heartbeats "
            "must fit into the election time",
            c->heartbeat_ms, c->election_ms);
    }
    return CONFIG_RUN;
}

static void set_defaults(struct config *c)
{
    *c = (struct config){.id = 1,
                         .data = CONFIG_DATA_DEFAULT,
                         .listen = CONFIG_LISTEN_DEFAULT,
                         .drain_ms = 5000,
                         .connections_max = 16384,
                         .client_memory = UINT64_C(512) << 20,
                         .snapshot_bytes = CONFIG_SNAPSHOT_BYTES_DEFAULT,
                         .tls_auth_clients = FLI_TLS_AUTH_REQUIRED,
                         .tls_cluster_name = SECURITY_NAME_DEFAULT,
                         .log_level = 3};
    c->limits = MACHINE_LIMITS_DEFAULT;
}

static enum config_outcome read_all(struct reader *r, int argc, const char *const *argv,
                                    const char *const *env)
{
    enum config_outcome o = read_command_line(r, argc, argv);
    o = o != CONFIG_RUN ? o : read_environment(r, env);
    o = o != CONFIG_RUN ? o : read_file(r);
    for (size_t i = 0; o == CONFIG_RUN && i < OPTIONS_LEN; i++) {
        o = r->given[i].text == NULL ? CONFIG_RUN : set(r, &options[i], &r->given[i]);
    }
    o = o != CONFIG_RUN ? o : check_members(r);
    o = o != CONFIG_RUN ? o : check_addresses(r);
    o = o != CONFIG_RUN ? o : check_users(r);
    return o != CONFIG_RUN ? o : check_times(r);
}

enum config_outcome config_read(int argc, const char *const *argv, const char *const *env,
                                struct config *ret, char errmsg[CONFIG_ERRMSG_MAX])
{
    struct reader *r = fli_xcalloc(1, sizeof *r);
    r->config = ret;
    r->errmsg = errmsg;
    errmsg[0] = '\0';
    set_defaults(ret);
    enum config_outcome outcome = read_all(r, argc, argv, env);
    for (size_t i = 0; i < OPTIONS_LEN; i++) {
        free(r->given[i].text);
    }
    free(r);
    return outcome;
}
