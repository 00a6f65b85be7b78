/* bench.c: measures a cluster of ours under load: acquires and releases locks of its own without a
 * pause, and prints pairs a second and percentiles. tests/attacks/README.md says how to run it.
 *
 * SIGINT ends the run: its locks are released, and the figures so far are printed. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lines.h"
#include "base/option_rows.h"
#include "cli/output.h"
#include "loadgen.h"

#define DAY_MS UINT64_C(86400000)
#define WARMUP_MS 500u
#define ASK_TIMEOUT_MS UINT64_C(5000)

enum { DONE = 0, NOTHING = 1, USAGE = 2, FAILED = 3 }; /* exit codes */

struct settings {
    const char *nodes, *user, *password_file, *cacert, *cert, *key, *sni;
    bool tls, one_lock, spread, json;
    uint32_t clients, in_flight;
    uint64_t ttl_ms, duration_ms;
};

#define OPTION_VALUES struct settings
static const struct fli_option table[] = {
    POINTER("nodes", nodes),
    POINTER("user", user), /* its password: --password-file, or FENCELOCK_PASSWORD */
    POINTER("password-file", password_file),
    {"tls", FLI_OPTION_FLAG, FIELD(tls)},
    POINTER("cacert", cacert),
    POINTER("cert", cert),
    POINTER("key", key),
    POINTER("sni", sni),
    {"ttl", FLI_OPTION_TIME, FIELD(ttl_ms), .min = FL_TTL_MIN_MS, .max = FL_TTL_MAX_MS},
    {"duration", FLI_OPTION_TIME, FIELD(duration_ms), .min = 1, .max = DAY_MS},
    NUMBER("clients", clients, 1, LOADGEN_CLIENTS_MAX),
    NUMBER("in-flight", in_flight, 1, LOADGEN_SLOTS_MAX),
    {"one-lock", FLI_OPTION_FLAG, FIELD(one_lock)}, /* all clients queue for it */
    {"spread", FLI_OPTION_FLAG, FIELD(spread)},     /* clients on all nodes, not on the leader */
    {"json", FLI_OPTION_FLAG, FIELD(json)},
};

static const char usage[] =
    "usage: bench [--nodes A:P,B:P] [--clients N (64)] [--in-flight N (1)] [--duration TIME "
    "(10s)]\n"
    "             [--ttl TIME (30s)] [--one-lock] [--spread] [--json] [--user NAME]\n"
    "             [--password-file FILE] [--tls [--cacert FILE] [--cert FILE --key FILE]\n"
    "             [--sni HOST]]\n";

struct bench {
    struct settings with;
    struct loadgen_config config;
    struct loadgen_locks locks;
    struct loadgen_result result;
    struct histogram handoff;
    struct fli_node nodes[FL_NODES_MAX];
    struct fli_link_security security;
    struct fl_tls_options tls;
    char password[FL_PASSWORD_MAX + 1];
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    interrupted = 1;
}

static bool stopped(void *ctx)
{
    return interrupted != 0;
}

static _Noreturn void die(int code, const char *text)
{
    fprintf(stderr, "bench: %s\n", text);
    exit(code);
}

/* ---- the options ----------------------------------------------------------------------------- */

static void read_options(int argc, char **argv, struct settings *ret)
{
    static struct fli_options o; /* settings keep pointers into it */
    static char errmsg[640];
    const char *nodes = getenv("FENCELOCK_NODES");
    *ret = (struct settings){.nodes = nodes != NULL ? nodes : "127.0.0.1:7401",
                             .clients = 64,
                             .in_flight = 1,
                             .ttl_ms = 30000,
                             .duration_ms = 10000};
    o = (struct fli_options){.table = table,
                             .n = sizeof table / sizeof table[0],
                             .values = ret,
                             .errmsg = errmsg,
                             .errmsg_size = sizeof errmsg};
    int rc = fli_options_arguments(&o, argc - 1, (const char *const *)argv + 1);
    if (rc > 0) {
        fputs(usage, stdout);
        exit(DONE);
    }
    if (rc != 0 || fli_options_set(&o) != 0) {
        die(USAGE, errmsg);
    }
    if (ret->in_flight > LOADGEN_SLOTS_MAX / ret->clients) {
        die(USAGE, "--clients and --in-flight are together at most 100000 requests");
    }
}

static void read_password(const struct settings *with, char password[FL_PASSWORD_MAX + 1])
{
    char why[256];
    const char *given = getenv("FENCELOCK_PASSWORD");
    if (with->password_file != NULL) {
        if (fli_line_first(with->password_file, password, FL_PASSWORD_MAX + 1, why, sizeof why) !=
            0) {
            die(USAGE, why);
        }
    } else {
        (void)snprintf(password, FL_PASSWORD_MAX + 1, "%s", given != NULL ? given : "");
    }
}

/* ---- the servers ----------------------------------------------------------------------------- */

/* Keeps only the leader's address, as clients do that find the leader. */
static void find_leader(struct bench *b)
{
    const struct fl_client_options options = {.tls = b->with.tls ? &b->tls : NULL,
                                              .user = b->with.user,
                                              .password =
                                                  b->with.user != NULL ? b->password : NULL};
    char message[512] = "none of these nodes leads; name all of them, or use --spread";
    size_t len = strlen(message);
    uint64_t term = 0;
    uint32_t found = FL_NODES_MAX;
    fl_client *c = NULL;
    int rc = fl_open(b->with.nodes, &options, &c);
    if (rc != 0) {
        die(FAILED, fl_strerror(rc));
    }
    for (uint32_t i = 0; i < b->config.n_nodes; i++) {
        struct fl_node_status status;
        if (fl_node_ask(c, i, ASK_TIMEOUT_MS, &status, sizeof status) != 0) {
            len +=
                (size_t)snprintf(message + len, sizeof message - len, "; %s", fl_client_error(c));
            len = len < sizeof message ? len : sizeof message - 1;
        } else if (strcmp(status.role, "leader") == 0 &&
                   (found == FL_NODES_MAX || status.term > term)) {
            found = i;
            term = status.term;
        }
    }
    fl_close(c);
    if (found == FL_NODES_MAX) {
        die(FAILED, message);
    }
    b->nodes[0] = b->nodes[found];
    b->config.n_nodes = 1;
}

static void set_up_security(struct bench *b)
{
    const struct settings *with = &b->with;
    char errmsg[256];
    b->tls = (struct fl_tls_options){.ca_file = with->cacert,
                                     .cert_file = with->cert,
                                     .key_file = with->key,
                                     .server_name = with->sni};
    read_password(with, b->password);
    errmsg[0] = '\0';
    int rc = fli_link_security_init(&b->security, with->tls ? &b->tls : NULL, with->user,
                                    with->user != NULL ? b->password : NULL, errmsg, sizeof errmsg);
    if (rc != 0) {
        die(USAGE, errmsg[0] != '\0' ? errmsg : fl_strerror(rc));
    }
    b->config.security = &b->security;
}

static void set_up(struct bench *b)
{
    char errmsg[256];
    uint32_t run = 0;
    struct loadgen_config *c = &b->config;
    fli_random(&run, sizeof run);
    if (fli_nodes_parse(b->with.nodes, false, b->nodes, &c->n_nodes, errmsg, sizeof errmsg) != 0) {
        die(USAGE, errmsg);
    }
    set_up_security(b);
    c->nodes = b->nodes;
    c->clients = b->with.clients;
    c->in_flight = b->with.in_flight;
    c->measure_ms = b->with.duration_ms;
    c->warmup_ms = WARMUP_MS;
    c->stopped = stopped;
    b->locks.ttl_ms = b->with.ttl_ms;
    snprintf(b->locks.prefix, sizeof b->locks.prefix, "fencelock-bench-%08" PRIx32, run);
    if (b->with.one_lock) {
        b->locks.name = b->locks.prefix;
        b->locks.wait_ms = 60000;
        b->locks.handoff = &b->handoff;
    }
    if (!b->with.spread) {
        find_leader(b);
    }
}

/* ---- the results ----------------------------------------------------------------------------- */

static const struct {
    const char *name, *title;
    unsigned per_mille;
} percentiles[] = {{"p50", "P50", 500},
                   {"p90", "P90", 900},
                   {"p99", "P99", 990},
                   {"p999", "P99.9", 999},
                   {"max", "MAX", 1000}};
#define PERCENTILES (sizeof percentiles / sizeof percentiles[0])

static void json_histogram(struct fli_json *j, const char *key, const struct histogram *h)
{
    fli_json_object(j, key);
    fli_json_u64(j, "count", h->n);
    for (size_t i = 0; i < PERCENTILES; i++) {
        fli_json_u64(j, percentiles[i].name, histogram_percentile(h, percentiles[i].per_mille));
    }
    fli_json_end_object(j);
}

static void print_json(const struct bench *b)
{
    const struct loadgen_result *r = &b->result;
    struct cli_out o = cli_out_begin(stdout, true, false);
    fli_json_array(&o.j, "nodes");
    for (uint32_t i = 0; i < b->config.n_nodes; i++) {
        fli_json_text(&o.j, NULL, b->nodes[i].text);
    }
    fli_json_end_array(&o.j);
    fli_json_u64(&o.j, "clients", b->config.clients);
    fli_json_u64(&o.j, "in_flight", b->config.in_flight);
    fli_json_bool(&o.j, "tls", b->with.tls);
    fli_json_u64(&o.j, "measured_ms", (uint64_t)(r->seconds * 1000));
    fli_json_u64(&o.j, "pairs", r->pairs);
    fli_json_u64(&o.j, "pairs_per_s",
                 r->seconds > 0 ? (uint64_t)((double)r->pairs / r->seconds) : 0);
    fli_json_u64(&o.j, "refused", r->refused);
    fli_json_u64(&o.j, "errors", r->errors);
    json_histogram(&o.j, "acquire_ns", &r->acquire);
    json_histogram(&o.j, "release_ns", &r->release);
    if (b->locks.handoff != NULL) {
        json_histogram(&o.j, "handoff_ns", &b->handoff);
    }
    cli_out_end(&o);
}

static void add_row(struct cli_list *l, const char *name, const struct histogram *h)
{
    char text[32];
    cli_list_row(l);
    cli_list_text(l, NULL, "MS", CLI_BOLD, name);
    cli_list_u64(l, NULL, "COUNT", CLI_PLAIN, h->n);
    for (size_t i = 0; i < PERCENTILES; i++) {
        uint64_t ns = histogram_percentile(h, percentiles[i].per_mille);
        snprintf(text, sizeof text, "%.3f", (double)ns / 1e6);
        cli_list_number(l, NULL, percentiles[i].title, CLI_PLAIN, ns, text);
    }
}

static void print_text(const struct bench *b)
{
    const struct loadgen_result *r = &b->result;
    struct cli_list t;
    printf("%.0f pairs/s (acquire and release): %u client%s, %u in flight%s, %.1f s, at %s%s%s\n",
           r->seconds > 0 ? (double)r->pairs / r->seconds : 0, b->config.clients,
           fli_s(b->config.clients), b->config.in_flight, b->config.clients == 1 ? "" : " each",
           r->seconds, b->nodes[0].text, b->config.n_nodes > 1 ? " and the others" : "",
           b->with.tls ? ", with TLS" : "");
    struct cli_out o = cli_out_begin(stdout, false, true);
    cli_list_begin(&t, &o, "rows");
    add_row(&t, "acquire", &r->acquire);
    add_row(&t, "release", &r->release);
    if (b->locks.handoff != NULL) {
        add_row(&t, "hand-off", &b->handoff);
    }
    cli_list_end(&t);
}

int main(int argc, char **argv)
{
    static struct bench b; /* its histograms are large */
    char errmsg[256];
    read_options(argc, argv, &b.with);
    set_up(&b);
    struct sigaction stop = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &stop, NULL);
    struct loadgen_work work = loadgen_locks_work(&b.locks);
    b.config.work = &work;
    if (loadgen_run(&b.config, &b.result, errmsg, sizeof errmsg) != 0) {
        die(FAILED, errmsg);
    }
    fli_link_security_fini(&b.security);
    if (b.with.json) {
        print_json(&b);
    } else {
        print_text(&b);
    }
    if (b.result.errors > 0) {
        fprintf(stderr, "bench: %" PRIu64 " request%s answered by an error; the first: %s\n",
                b.result.errors, b.result.errors == 1 ? " was" : "s were", b.result.first_error);
        return FAILED;
    }
    if (b.result.pairs == 0 && b.result.seconds > 0) { /* it was not ended before it measured */
        fputs("bench: nothing was granted in this time: see fencelock status\n", stderr);
        return NOTHING;
    }
    return DONE;
}
