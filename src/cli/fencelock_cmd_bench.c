/* fencelock_cmd_bench.c: `fencelock bench`: measures a cluster of the user's under load. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/fencelock_common.h"
#include "cli/loadgen.h"

#define CLIENTS_DEFAULT 64u
#define DURATION_DEFAULT_MS UINT64_C(10000)
#define DURATION_MAX_MS UINT64_C(86400000)
#define WARMUP_MS 500u
#define TTL_DEFAULT_MS UINT64_C(30000)
#define ASK_TIMEOUT_MS UINT64_C(5000)

/* Set by SIGINT: the run ends, its locks are released, and the figures so far are printed. */
static volatile sig_atomic_t interrupted;

struct bench {
    struct loadgen_config config;
    struct loadgen_locks locks;
    struct loadgen_result result;
    struct histogram handoff;
    struct fli_node nodes[FL_NODES_MAX];
    struct fli_link_security security;
    bool tls;
    bool live; /* stderr is a terminal */
};

static void on_interrupt(int signal)
{
    interrupted = 1;
}

static bool stopped(void *ctx)
{
    return interrupted != 0;
}

static void progress(void *ctx, const struct loadgen_result *last, uint64_t elapsed_ms)
{
    const struct bench *b = ctx;
    fprintf(stderr, "\r\033[K%3" PRIu64 " s  %10.0f pairs/s  acquire p50 %.3f ms  p99 %.3f ms",
            elapsed_ms / 1000, (double)last->pairs / last->seconds,
            (double)histogram_percentile(&last->acquire, 500) / 1e6,
            (double)histogram_percentile(&last->acquire, 990) / 1e6);
    if (last->errors > 0) {
        fprintf(stderr, "  %" PRIu64 " error%s", last->errors, fli_s(last->errors));
    }
    if (b->config.measure_ms <= elapsed_ms) {
        fputc('\n', stderr);
    }
    fflush(stderr);
}

/* ---- the servers ----------------------------------------------------------------------------- */

/* Keeps only the leader's address, as clients do that find the leader. */
static int find_leader(const struct cli_args *a, struct bench *b)
{
    int code = CLI_EXIT_UNKNOWN;
    fl_client *c = cli_client_create(a, &code);
    if (c == NULL) {
        return code;
    }
    char message[512] = "none of these nodes leads; name all of them, or use --spread";
    size_t len = strlen(message);
    uint64_t term = 0;
    uint32_t found = FL_NODES_MAX;
    for (uint32_t i = 0; i < b->config.n_nodes; i++) {
        struct fl_node_status status;
        if (fl_node_ask(c, i, ASK_TIMEOUT_MS, &status) != 0) {
            len +=
                (size_t)snprintf(message + len, sizeof message - len, "; %s", fl_client_error(c));
            len = len < sizeof message ? len : sizeof message - 1;
        } else if (strcmp(status.role, "leader") == 0 &&
                   (found == FL_NODES_MAX || status.term > term)) {
            found = i;
            term = status.term;
        }
    }
    fl_client_destroy(c);
    if (found == FL_NODES_MAX) {
        return cli_fail(a, FL_ENOLEADER, message, NULL, NULL);
    }
    b->nodes[0] = b->nodes[found];
    b->config.n_nodes = 1;
    return 0;
}

/* TLS and the login of every connection. */
static int set_up_security(const struct cli_args *a, struct bench *b)
{
    struct cli_tls tls;
    struct cli_login login;
    char errmsg[256];
    int code = cli_tls_of(a, CLI_OPT_TLS, &tls);
    code = code != 0 ? code : cli_login_of(a, &login);
    if (code != 0) {
        return code;
    }
    int rc = fli_link_security_init(&b->security, tls.use, errmsg, sizeof errmsg);
    if (rc == 0 && (rc = fli_link_login(&b->security, login.user, login.password)) != 0) {
        (void)snprintf(errmsg, sizeof errmsg, "%s", fl_strerror(rc));
    }
    b->config.security = &b->security;
    b->tls = tls.use != NULL;
    return rc == 0 ? 0 : cli_fail(a, rc, errmsg, NULL, NULL);
}

static int set_up(const struct cli_args *a, struct bench *b)
{
    char errmsg[256];
    char message[320];
    uint32_t run = 0;
    fli_random(&run, sizeof run);
    struct loadgen_config *c = &b->config;
    int rc = set_up_security(a, b);
    if (rc != 0) {
        return rc;
    }
    rc = fli_nodes_parse(cli_nodes_of(a), b->nodes, &c->n_nodes, errmsg, sizeof errmsg);
    if (rc != 0) {
        snprintf(message, sizeof message, "the nodes are wrong: %s", errmsg);
        return cli_fail(a, rc, message, NULL, NULL);
    }
    uint64_t clients = cli_has(a, CLI_OPT_CLIENTS) ? a->number[CLI_OPT_CLIENTS] : CLIENTS_DEFAULT;
    uint64_t in_flight = cli_has(a, CLI_OPT_IN_FLIGHT) ? a->number[CLI_OPT_IN_FLIGHT] : 1;
    c->measure_ms =
        cli_has(a, CLI_OPT_DURATION) ? a->number[CLI_OPT_DURATION] : DURATION_DEFAULT_MS;
    b->locks.ttl_ms = cli_has(a, CLI_OPT_TTL) ? a->number[CLI_OPT_TTL] : TTL_DEFAULT_MS;
    if (clients == 0 || clients > LOADGEN_CLIENTS_MAX || in_flight == 0 ||
        in_flight > LOADGEN_SLOTS_MAX / clients || c->measure_ms == 0 ||
        c->measure_ms > DURATION_MAX_MS) {
        snprintf(message, sizeof message,
                 "--clients is 1 to %u, with --in-flight together at most %u, and --duration at "
                 "most 24h",
                 LOADGEN_CLIENTS_MAX, LOADGEN_SLOTS_MAX);
        return cli_fail(a, FL_EINVAL, message, NULL, NULL);
    }
    c->nodes = b->nodes;
    c->clients = (unsigned)clients;
    c->in_flight = (unsigned)in_flight;
    c->warmup_ms = WARMUP_MS;
    c->stopped = stopped;
    b->live = isatty(STDERR_FILENO) == 1;
    if (b->live) {
        c->progress = progress;
        c->ctx = b;
    }
    snprintf(b->locks.prefix, sizeof b->locks.prefix, "fencelock-bench-%08" PRIx32, run);
    if (cli_has(a, CLI_OPT_ONE_LOCK)) {
        b->locks.name = b->locks.prefix;
        b->locks.wait_ms = FL_WAIT_MAX_MS < 60000 ? FL_WAIT_MAX_MS : 60000;
        b->locks.handoff = &b->handoff;
    }
    return cli_has(a, CLI_OPT_SPREAD) ? 0 : find_leader(a, b);
}

/* ---- the results ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned per_mille;
} percentiles[] = {{"p50", 500}, {"p90", 900}, {"p99", 990}, {"p999", 999}, {"max", 1000}};
#define PERCENTILES (sizeof percentiles / sizeof percentiles[0])

static void json_histogram(struct cli_json *j, const char *key, const struct histogram *h)
{
    cli_json_object(j, key);
    cli_json_u64(j, "count", h->n);
    for (size_t i = 0; i < PERCENTILES; i++) {
        cli_json_u64(j, percentiles[i].name, histogram_percentile(h, percentiles[i].per_mille));
    }
    cli_json_end_object(j);
}

static void print_json(const struct bench *b)
{
    const struct loadgen_result *r = &b->result;
    struct cli_json j = cli_json_begin(stdout);
    cli_json_array(&j, "nodes");
    for (uint32_t i = 0; i < b->config.n_nodes; i++) {
        cli_json_text(&j, NULL, b->nodes[i].text);
    }
    cli_json_end_array(&j);
    cli_json_u64(&j, "clients", b->config.clients);
    cli_json_u64(&j, "in_flight", b->config.in_flight);
    cli_json_bool(&j, "tls", b->tls);
    cli_json_u64(&j, "measured_ms", (uint64_t)(r->seconds * 1000));
    cli_json_u64(&j, "pairs", r->pairs);
    cli_json_u64(&j, "pairs_per_s", r->seconds > 0 ? (uint64_t)((double)r->pairs / r->seconds) : 0);
    cli_json_u64(&j, "refused", r->refused);
    cli_json_u64(&j, "errors", r->errors);
    json_histogram(&j, "acquire_ns", &r->acquire);
    json_histogram(&j, "release_ns", &r->release);
    if (b->locks.handoff != NULL) {
        json_histogram(&j, "handoff_ns", &b->handoff);
    }
    cli_json_finish(&j);
}

static const struct cli_column columns[] = {
    {"MS", false}, {"COUNT", true}, {"P50", true}, {"P90", true},
    {"P99", true}, {"P99.9", true}, {"MAX", true},
};

static void add_row(struct cli_table *t, const char *name, const struct histogram *h)
{
    char text[32];
    cli_table_text(t, CLI_BOLD, name);
    cli_table_u64(t, CLI_PLAIN, h->n);
    for (size_t i = 0; i < PERCENTILES; i++) {
        snprintf(text, sizeof text, "%.3f",
                 (double)histogram_percentile(h, percentiles[i].per_mille) / 1e6);
        cli_table_text(t, CLI_PLAIN, text);
    }
}

static void print_text(const struct cli_args *a, const struct bench *b)
{
    const struct loadgen_result *r = &b->result;
    struct cli_table t;
    printf("%.0f pairs/s (acquire and release): %u client%s, %u in flight%s, %.1f s, at %s%s%s\n",
           r->seconds > 0 ? (double)r->pairs / r->seconds : 0, b->config.clients,
           fli_s(b->config.clients), b->config.in_flight, b->config.clients == 1 ? "" : " each",
           r->seconds, b->nodes[0].text, b->config.n_nodes > 1 ? " and the others" : "",
           b->tls ? ", with TLS" : "");
    cli_table_init(&t, columns, sizeof columns / sizeof columns[0]);
    add_row(&t, "acquire", &r->acquire);
    add_row(&t, "release", &r->release);
    if (b->locks.handoff != NULL) {
        add_row(&t, "hand-off", &b->handoff);
    }
    cli_table_print(&t, stdout, cli_style_of(a).colours);
    cli_table_fini(&t);
}

int cli_run_bench(const struct cli_args *a)
{
    static struct bench b; /* its histograms are large */
    char errmsg[256];
    int code = set_up(a, &b);
    if (code != 0) {
        return code;
    }
    struct sigaction stop = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &stop, NULL);
    struct loadgen_work work = loadgen_locks_work(&b.locks);
    b.config.work = &work;
    int rc = loadgen_run(&b.config, &b.result, errmsg, sizeof errmsg);
    fli_link_security_fini(&b.security);
    if (b.live) {
        fputs("\r\033[K", stderr);
    }
    if (rc != 0) {
        return cli_fail(a, rc, errmsg, NULL, NULL);
    }
    if (cli_has(a, CLI_OPT_JSON)) {
        print_json(&b);
    } else {
        print_text(a, &b);
    }
    if (b.result.errors > 0) {
        cli_complain("%" PRIu64 " request%s answered by an error; the first: %s", b.result.errors,
                     b.result.errors == 1 ? " was" : "s were", b.result.first_error);
        return CLI_EXIT_UNKNOWN;
    }
    if (b.result.pairs == 0 && b.result.seconds > 0) { /* it was not ended before it measured */
        cli_complain("nothing was granted in this time: see fencelock status");
        return CLI_EXIT_NO;
    }
    return CLI_EXIT_DONE;
}
