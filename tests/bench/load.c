/* load.c: load on one service, for tests/bench/compare; see usage() for what it can do.
 *
 * All services that speak Redis' protocol are measured by the same generator (loadgen.h) with
 * the same replies parsed by hiredis, so what differs is the service. Judges nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "loadgen.h"
#include "cli/output.h"
#include "wire/resp.h"

#define NUMBER_SIZE 24u
#define NAME_SIZE 64u

static void usage(void)
{
    fputs("usage: load KIND A:P[,B:P...] [OPTION]...\n"
          "  lock       fencelock: ACQUIRE and RELEASE, each client a lock of its own\n"
          "  queue      fencelock: all clients want one lock and wait for it\n"
          "  renew      fencelock: RENEW again and again, each client of a lock of its own\n"
          "  hold       fencelock: acquires --count new locks with 32-byte names, keeps them\n"
          "  redis      one Redis: SET NX PX with INCR as a token; compare and delete\n"
          "  redlock    Redlock: SET NX PX on all servers; compare and delete on all\n"
          "  frontdoor  fencelock as Redis: SET NX PX; compare and delete\n"
          "  set        storage server: SET key value FENCE lock token\n"
          "  redis-set  Redis: SET key value\n"
          "  probe      libfencelock: a line for each grant, when asked for and when granted\n"
          "options: --clients N (1) --in-flight N (1) --seconds N (5) --warmup-ms N (500)\n"
          "         --ttl-ms N (30000) --count N (1000000)\n"
          "Prints one JSON object; durations are nanoseconds.\n",
          stderr);
}

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

/* ---- works that are not fencelock's ---------------------------------------------------------- */

struct peer {
    char prefix[32];
    char ttl[NUMBER_SIZE];
    char acquire_sha[41];
    char release_sha[41];
    unsigned quorum;
    bool plain;             /* one server: SET without a token */
    uint64_t made, granted; /* of hold */
    uint64_t count;
    bool stop;
};

static const char redis_acquire[] = "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then "
                                    "return redis.call('INCR',KEYS[2]) else return false end";
static const char redis_release[] =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) "
    "else return 0 end";

static void load_script(const struct fli_node *node, const char *script, char sha[41])
{
    uint64_t port = 0;
    (void)fli_parse_u64(node->port, strlen(node->port), UINT16_MAX, &port);
    redisContext *c = redisConnect(node->host, (int)port);
    if (c == NULL || c->err != 0) {
        die(node->text, c == NULL ? "out of memory" : c->errstr);
    }
    redisReply *r = redisCommand(c, "SCRIPT LOAD %s", script);
    if (r == NULL || r->type != REDIS_REPLY_STRING || r->len != 40) {
        die(node->text, "refuses a script");
    }
    memcpy(sha, r->str, 41);
    freeReplyObject(r);
    redisFree(c);
}

static int redis_ask(void *ctx, struct loadgen_slot *s, struct fli_buf *out)
{
    struct peer *p = ctx;
    char name[NAME_SIZE];
    char owner[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s:%u", p->prefix, s->number);
    (void)snprintf(owner, sizeof owner, "%s-owner-%08u", p->prefix, s->number);
    if (s->holds) {
        return loadgen_put(out, 5, (const char *[]){"EVALSHA", p->release_sha, "1", name, owner});
    }
    if (p->quorum > 1 || p->plain) {
        return loadgen_put(out, 6, (const char *[]){"SET", name, owner, "NX", "PX", p->ttl});
    }
    return loadgen_put(
        out, 7, (const char *[]){"EVALSHA", p->acquire_sha, "2", name, "token", owner, p->ttl});
}

static void redis_answer(void *ctx, struct loadgen_slot *s, const redisReply *reply)
{
    s->yes += reply->type == REDIS_REPLY_STATUS ||
              (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0);
}

static enum loadgen_outcome redis_outcome(void *ctx, struct loadgen_slot *s, uint64_t now_ns,
                                          bool counts)
{
    struct peer *p = ctx;
    if (s->failed) {
        return LOADGEN_FAILED;
    }
    if (s->holds) {
        return LOADGEN_RELEASED;
    }
    return s->yes >= p->quorum ? LOADGEN_ACQUIRED : LOADGEN_REFUSED;
}

/* Another value each time: a storage need not write one that it has already. */
static int set_ask(void *ctx, struct loadgen_slot *s, struct fli_buf *out)
{
    struct peer *p = ctx;
    char key[NAME_SIZE];
    char lock[NAME_SIZE];
    char value[NAME_SIZE];
    (void)snprintf(value, sizeof value, "%032" PRIu64, p->made++);
    (void)snprintf(key, sizeof key, "%s:key:%u", p->prefix, s->number);
    (void)snprintf(lock, sizeof lock, "%s:lock:%u", p->prefix, s->number);
    return loadgen_put(out, p->quorum == 0 ? 6 : 3,
                       (const char *[]){"SET", key, value, "FENCE", lock, "1"});
}

static enum loadgen_outcome set_outcome(void *ctx, struct loadgen_slot *s, uint64_t now_ns,
                                        bool counts)
{
    return s->failed ? LOADGEN_FAILED : LOADGEN_RELEASED;
}

static int renew_ask(void *ctx, struct loadgen_slot *s, struct fli_buf *out)
{
    struct peer *p = ctx;
    char name[NAME_SIZE];
    char token[NUMBER_SIZE];
    (void)snprintf(name, sizeof name, "%s:lock:%08u", p->prefix, s->number);
    (void)snprintf(token, sizeof token, "%" PRIu64, s->token);
    if (s->token != 0) {
        return loadgen_put(out, 3, (const char *[]){"RENEW", name, token});
    }
    return loadgen_put(out, 6, (const char *[]){"ACQUIRE", name, "TTL", p->ttl, "OWNER", name});
}

static void renew_answer(void *ctx, struct loadgen_slot *s, const redisReply *reply)
{
    s->yes = reply->type == REDIS_REPLY_INTEGER && reply->integer > 0;
    if (s->token == 0 && s->yes != 0) {
        s->token = (uint64_t)reply->integer;
    }
}

/* A renewal counts as a release without an acquire; one that finds no lock is an error. */
static enum loadgen_outcome renew_outcome(void *ctx, struct loadgen_slot *s, uint64_t now_ns,
                                          bool counts)
{
    return s->failed || s->yes == 0 ? LOADGEN_FAILED : LOADGEN_RELEASED;
}

static int hold_ask(void *ctx, struct loadgen_slot *s, struct fli_buf *out)
{
    struct peer *p = ctx;
    char name[NAME_SIZE];
    char owner[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s-%022" PRIu64, p->prefix, p->made);
    (void)snprintf(owner, sizeof owner, "owner-%026" PRIu64, p->made++);
    return loadgen_put(out, 6, (const char *[]){"ACQUIRE", name, "TTL", p->ttl, "OWNER", owner});
}

static enum loadgen_outcome hold_outcome(void *ctx, struct loadgen_slot *s, uint64_t now_ns,
                                         bool counts)
{
    struct peer *p = ctx;
    if (s->failed || s->yes == 0) {
        return LOADGEN_FAILED;
    }
    p->stop = ++p->granted >= p->count;
    return LOADGEN_RELEASED;
}

static bool stopped(void *ctx)
{
    const struct peer *p = ctx;
    return p->stop;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void put_percentiles(struct fli_json *j, const char *key, const struct histogram *h)
{
    fli_json_object(j, key);
    fli_json_u64(j, "n", h->n);
    fli_json_u64(j, "p50", histogram_percentile(h, 500));
    fli_json_u64(j, "p90", histogram_percentile(h, 900));
    fli_json_u64(j, "p99", histogram_percentile(h, 990));
    fli_json_u64(j, "p999", histogram_percentile(h, 999));
    fli_json_u64(j, "max", h->max_ns);
    fli_json_end_object(j);
}

static void print_result(const struct loadgen_result *r, const struct histogram *handoff)
{
    struct cli_out o = cli_out_begin(stdout, true, false);
    fli_json_u64(&o.j, "pairs", r->pairs);
    fli_json_u64(&o.j, "all_pairs", r->all_pairs);
    fli_json_u64(&o.j, "refused", r->refused);
    fli_json_u64(&o.j, "errors", r->errors);
    fli_json_u64(&o.j, "measured_ns", (uint64_t)(r->seconds * 1e9));
    put_percentiles(&o.j, "acquire", &r->acquire);
    put_percentiles(&o.j, "release", &r->release);
    if (handoff->n > 0) {
        put_percentiles(&o.j, "handoff", handoff);
    }
    if (r->first_error[0] != '\0') {
        fli_json_text(&o.j, "first_error", r->first_error);
    }
    cli_out_end(&o);
}

/* ---- the probe ------------------------------------------------------------------------------- */

/* Acquires and releases one new lock after the other until it is killed, and says when. */
static int probe(const char *addresses, uint64_t ttl_ms)
{
    fl_client *c = NULL;
    /* Everything but the end of patience as a user has it who sets nothing. */
    struct fl_client_options options = {.timeout_ms = 60000};
    if (fl_open(addresses, &options, &c) != 0) {
        die(addresses, "not the addresses of nodes");
    }
    uint64_t run = 0;
    fli_random(&run, sizeof run);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint64_t i = 0;; i++) {
        char name[NAME_SIZE];
        fl_lock *lock;
        struct fl_take a = {.ttl_ms = ttl_ms, .unrenewed = true};
        (void)snprintf(name, sizeof name, "probe:%" PRIx64 ":%" PRIu64, run, i);
        uint64_t sent = fli_clock_ns();
        if (fl_lock_take(c, name, &a, &lock) != 0) {
            continue;
        }
        if (printf("%" PRIu64 " %" PRIu64 "\n", sent, fli_clock_ns()) < 0) {
            return 1;
        }
        (void)fl_lock_release(lock); /* its lease ends some time */
    }
}

/* ---- main ------------------------------------------------------------------------------------ */

struct options {
    uint64_t clients, in_flight, seconds, warmup_ms, ttl_ms, count;
};

static void read_options(int argc, char **argv, struct options *o)
{
    const struct {
        const char *name;
        uint64_t *to;
    } known[] = {{"--clients", &o->clients}, {"--in-flight", &o->in_flight},
                 {"--seconds", &o->seconds}, {"--warmup-ms", &o->warmup_ms},
                 {"--ttl-ms", &o->ttl_ms},   {"--count", &o->count}};
    for (int i = 3; i < argc; i += 2) {
        size_t k = 0;
        while (k < sizeof known / sizeof known[0] && strcmp(known[k].name, argv[i]) != 0) {
            k++;
        }
        if (k == sizeof known / sizeof known[0] || i + 1 == argc ||
            !fli_parse_u64(argv[i + 1], strlen(argv[i + 1]), UINT32_MAX, known[k].to)) {
            usage();
            exit(2);
        }
    }
}

static struct loadgen_work redis_work(struct peer *p, const char *kind,
                                      const struct fli_node *nodes, uint32_t n)
{
    bool redlock = strcmp(kind, "redlock") == 0;
    p->quorum = redlock ? n / 2 + 1 : 1;
    p->plain = strcmp(kind, "frontdoor") == 0;
    for (uint32_t i = 0; i < (redlock ? n : 1); i++) {
        if (!p->plain) {
            load_script(&nodes[i], redis_acquire, p->acquire_sha);
        }
        load_script(&nodes[i], redis_release, p->release_sha);
    }
    return (struct loadgen_work){.ctx = p,
                                 .fans = redlock,
                                 .ask = redis_ask,
                                 .answer = redis_answer,
                                 .outcome = redis_outcome};
}

static struct loadgen_work choose(const char *kind, struct peer *p, struct loadgen_locks *l,
                                  struct histogram *handoff, const struct fli_node *nodes,
                                  uint32_t n)
{
    if (strcmp(kind, "queue") == 0) {
        l->name = "bench:hot";
        l->wait_ms = 60000;
        l->handoff = handoff;
    }
    if (strcmp(kind, "lock") == 0 || strcmp(kind, "queue") == 0) {
        return loadgen_locks_work(l);
    }
    if (strcmp(kind, "redis") == 0 || strcmp(kind, "redlock") == 0 ||
        strcmp(kind, "frontdoor") == 0) {
        return redis_work(p, kind, nodes, n);
    }
    p->quorum = strcmp(kind, "redis-set") == 0;
    if (strcmp(kind, "set") == 0 || strcmp(kind, "redis-set") == 0) {
        return (struct loadgen_work){
            .ctx = p, .ask = set_ask, .answer = redis_answer, .outcome = set_outcome};
    }
    if (strcmp(kind, "renew") == 0) {
        return (struct loadgen_work){
            .ctx = p, .ask = renew_ask, .answer = renew_answer, .outcome = renew_outcome};
    }
    if (strcmp(kind, "hold") == 0) {
        return (struct loadgen_work){
            .ctx = p, .ask = hold_ask, .answer = redis_answer, .outcome = hold_outcome};
    }
    usage();
    exit(2);
}

int main(int argc, char **argv)
{
    static struct loadgen_result result;
    static struct histogram handoff;
    struct options o = {.clients = 1,
                        .in_flight = 1,
                        .seconds = 5,
                        .warmup_ms = 500,
                        .ttl_ms = 30000,
                        .count = 1000000};
    struct fli_node nodes[FL_NODES_MAX];
    uint32_t n = 0;
    char errmsg[256];
    if (argc < 3) {
        usage();
        return 2;
    }
    read_options(argc, argv, &o);
    if (fli_nodes_parse(argv[2], false, nodes, &n, errmsg, sizeof errmsg) != 0) {
        die(argv[2], errmsg);
    }
    if (strcmp(argv[1], "probe") == 0) {
        return probe(argv[2], o.ttl_ms);
    }
    uint32_t run = 0;
    fli_random(&run, sizeof run);
    struct peer p = {.count = o.count};
    struct loadgen_locks l = {.ttl_ms = o.ttl_ms};
    (void)snprintf(p.prefix, sizeof p.prefix, "b%08" PRIx32, run);
    (void)snprintf(p.ttl, sizeof p.ttl, "%" PRIu64, o.ttl_ms);
    (void)snprintf(l.prefix, sizeof l.prefix, "bench-%08" PRIx32, run);
    struct loadgen_work work = choose(argv[1], &p, &l, &handoff, nodes, n);
    struct loadgen_config c = {.nodes = nodes,
                               .n_nodes = n,
                               .clients = (unsigned)o.clients,
                               .in_flight = (unsigned)o.in_flight,
                               .warmup_ms = o.warmup_ms,
                               .measure_ms = o.seconds * 1000,
                               .work = &work,
                               .stopped = stopped,
                               .ctx = &p};
    int rc = loadgen_run(&c, &result, errmsg, sizeof errmsg);
    if (rc != 0) {
        die(argv[1], errmsg);
    }
    print_result(&result, &handoff);
    return result.errors == 0 ? 0 : 1;
}
