/* redlock_load.c: Redlock on several Redis servers, by our library, or by hand as a floor; for
 * tests/bench/redlock.
 *
 *     redlock_load ours|bare SERVERS CLIENTS [NODES LEADER]
 *
 * Reads lines from standard input and answers each with a line of JSON:
 *
 *     run MS          each client takes and gives back a lock of its own, over and over
 *     acquires N      N acquires one after the other, each time until the answer (ours, one client)
 *     fresh           a new handle until its first lock (ours)
 *
 * With NODES and LEADER of a fencelock cluster each lock comes with a token. "bare" is what any
 * client has to do at least: SET to all servers at once, the answers of a quorum, a script to all
 * at once, the answers of a quorum; no deadlines, no time-outs, no errors. One client of ours uses
 * the calls that block, several the loop. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include <hiredis/hiredis.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "fencelock/client.h"
#include "fencelock/redlock.h"
#include "fencelock/uv.h"

#define CLIENTS_MAX 1024u
#define SAMPLES_MAX (UINT32_C(1) << 22)
#define TTL_MS 10000
#define TEXT_MAX 512u
#define PENDING_MAX 65536u /* a power of two */
#define OUT_MAX ((size_t)4 << 20)

static _Noreturn void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "redlock_load: %s: %s\n", what, why);
    exit(1);
}

/* ---- what is measured ------------------------------------------------------------------------ */

static struct {
    uint64_t end_ns;
    uint64_t began_ns;
    uint64_t cpu_ns;
    uint32_t *us;
    uint32_t len;
    uint64_t errors;
    uint32_t running; /* clients */
} run;

static uint64_t cpu_ns(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * UINT64_C(1000000000) +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static void take_sample(uint64_t since_ns)
{
    if (run.len < SAMPLES_MAX) {
        run.us[run.len++] = (uint32_t)((fli_clock_ns() - since_ns) / 1000);
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void begin_run(uint64_t ms)
{
    run.began_ns = fli_clock_ns();
    run.end_ns = run.began_ns + ms * UINT64_C(1000000);
    run.cpu_ns = cpu_ns();
    run.len = 0;
    run.errors = 0;
}

static void print_run(void)
{
    uint64_t ns = fli_clock_ns() - run.began_ns;
    uint64_t cpu = cpu_ns() - run.cpu_ns;
    uint32_t n = run.len;
    qsort(run.us, n, sizeof *run.us, compare);
    (void)printf("{\"pairs\": %u, \"errors\": %" PRIu64 ", \"seconds\": %.6f, \"cpu_s\": %.6f, "
                 "\"p50_us\": %u, \"p99_us\": %u, \"max_us\": %u}\n",
                 n, run.errors, (double)ns / 1e9, (double)cpu / 1e9, n == 0 ? 0 : run.us[n / 2],
                 n == 0 ? 0 : run.us[n - 1 - n / 100], n == 0 ? 0 : run.us[n - 1]);
    (void)fflush(stdout);
}

/* ---- one connection of the bare program, and of the source of tokens ------------------------- */

struct waiting {
    void (*answered)(void *ctx, const redisReply *reply, uint64_t serial);
    void *ctx;
    uint64_t serial;
};

struct conn {
    redisContext *c;
    uv_poll_t poll;
    int watched;
    char *out;
    size_t out_len;
    struct waiting pending[PENDING_MAX];
    uint32_t head;
    uint32_t tail;
};

static uv_loop_t *loop;
static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct conn *c, int events)
{
    if (c->watched != events) {
        c->watched = events;
        (void)uv_poll_start(&c->poll, events, on_poll);
    }
}

static void flush(struct conn *c)
{
    size_t sent = 0;
    while (sent < c->out_len) {
        ssize_t n = write(c->c->fd, c->out + sent, c->out_len - sent);
        if (n < 0) {
            break;
        }
        sent += (size_t)n;
    }
    c->out_len -= sent;
    memmove(c->out, c->out + sent, c->out_len);
    watch(c, c->out_len > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

static struct conn *open_conn(const char *address, size_t len)
{
    char text[64];
    struct conn *c = calloc(1, sizeof *c);
    const char *colon = memrchr(address, ':', len);
    uint64_t port = 0;
    if (c == NULL || colon == NULL || (size_t)(colon - address) >= sizeof text ||
        !fli_parse_u64(colon + 1, len - (size_t)(colon + 1 - address), UINT16_MAX, &port)) {
        die(address, "not HOST:PORT");
    }
    memcpy(text, address, (size_t)(colon - address));
    text[colon - address] = '\0';
    c->c = redisConnect(text, (int)port);
    c->out = malloc(OUT_MAX);
    if (c->c == NULL || c->c->err != 0 || c->out == NULL) {
        die(address, "no connection");
    }
    return c;
}

static void go_async(struct conn *c)
{
    int flags = 1;
    if (ioctl(c->c->fd, FIONBIO, &flags) != 0 || uv_poll_init(loop, &c->poll, c->c->fd) != 0) {
        die("poll", "impossible");
    }
    c->poll.data = c;
    watch(c, UV_READABLE);
}

static void put(struct conn *c, const char *text, size_t len, struct waiting w)
{
    if (c->out_len + len > OUT_MAX || c->head - c->tail == PENDING_MAX) {
        die("put", "too much at once");
    }
    memcpy(c->out + c->out_len, text, len);
    c->out_len += len;
    c->pending[c->head++ % PENDING_MAX] = w;
}

/* ---- the bare program ------------------------------------------------------------------------ */

static struct conn *conns[FL_REDLOCK_SERVERS_MAX];
static uint32_t n_conns;
static struct conn *leader; /* NULL: no tokens */
static char sha1[41];

struct client {
    char name[32];
    uint64_t serial; /* of the step */
    enum { STEP_SET, STEP_TOKEN, STEP_RELEASE } step;
    uint32_t yes;
    uint64_t began_ns;
    uint64_t value;
};

static struct client clients[CLIENTS_MAX];
static uint32_t n_clients;

static void on_bare(void *ctx, const redisReply *reply, uint64_t serial);

static void to_all(struct client *c, const char *text, int len)
{
    c->serial++;
    c->yes = 0;
    for (uint32_t i = 0; i < n_conns; i++) {
        put(conns[i], text, (size_t)len, (struct waiting){on_bare, c, c->serial});
    }
}

static void bare_start(struct client *c)
{
    char text[TEXT_MAX];
    c->began_ns = fli_clock_ns();
    c->step = STEP_SET;
    c->value++;
    int len = snprintf(text, sizeof text,
                       "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$40\r\n%040" PRIx64
                       "\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n%05d\r\n",
                       strlen(c->name), c->name, c->value, TTL_MS);
    to_all(c, text, len);
}

static void bare_release(struct client *c)
{
    char text[TEXT_MAX];
    c->step = STEP_RELEASE;
    int len = snprintf(text, sizeof text,
                       "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$%zu\r\n%s\r\n"
                       "$40\r\n%040" PRIx64 "\r\n",
                       sha1, strlen(c->name), c->name, c->value);
    to_all(c, text, len);
}

static void bare_token(struct client *c)
{
    char text[TEXT_MAX];
    c->step = STEP_TOKEN;
    c->serial++;
    int len = snprintf(text, sizeof text, "*2\r\n$5\r\nTOKEN\r\n$%zu\r\n%s\r\n", strlen(c->name),
                       c->name);
    put(leader, text, (size_t)len, (struct waiting){on_bare, c, c->serial});
}

static void bare_done(struct client *c)
{
    take_sample(c->began_ns);
    if (fli_clock_ns() < run.end_ns) {
        bare_start(c);
    } else if (--run.running == 0) {
        uv_stop(loop);
    }
}

static void on_bare(void *ctx, const redisReply *reply, uint64_t serial)
{
    struct client *c = ctx;
    if (serial != c->serial) {
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR || reply->type == REDIS_REPLY_NIL) {
        run.errors++;
    }
    if (c->step == STEP_TOKEN) {
        bare_release(c);
        return;
    }
    if (++c->yes < n_conns / 2 + 1) {
        return;
    }
    if (c->step == STEP_RELEASE) {
        bare_done(c);
    } else if (leader != NULL) {
        bare_token(c);
    } else {
        bare_release(c);
    }
}

static void flush_all(void)
{
    for (uint32_t i = 0; i < n_conns; i++) {
        if (conns[i]->out_len > 0) {
            flush(conns[i]);
        }
    }
    if (leader != NULL && leader->out_len > 0) {
        flush(leader);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    static char bytes[65536];
    struct conn *c = poll->data;
    if (status != 0) {
        die("poll", uv_strerror(status));
    }
    ssize_t n = (events & UV_READABLE) != 0 ? read(c->c->fd, bytes, sizeof bytes) : 0;
    if (n == 0 && (events & UV_READABLE) != 0) {
        die("read", "the connection is closed");
    }
    if (n > 0) {
        (void)redisReaderFeed(c->c->reader, bytes, (size_t)n);
    }
    void *reply = NULL;
    while (redisReaderGetReply(c->c->reader, &reply) == REDIS_OK && reply != NULL) {
        struct waiting w = c->pending[c->tail++ % PENDING_MAX];
        w.answered(w.ctx, reply, w.serial);
        freeReplyObject(reply);
    }
    flush_all();
}

static void open_bare(const char *servers)
{
    static const char script[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                 "return redis.call('DEL', KEYS[1])";
    for (const char *p = servers; *p != '\0';) {
        size_t len = strcspn(p, ",");
        struct conn *c = open_conn(p, len);
        redisReply *reply = redisCommand(c->c, "SCRIPT LOAD %s", script);
        if (reply == NULL || reply->type != REDIS_REPLY_STRING || reply->len != sizeof sha1 - 1) {
            die(p, "the script cannot be loaded");
        }
        memcpy(sha1, reply->str, sizeof sha1);
        freeReplyObject(reply);
        go_async(c);
        conns[n_conns++] = c;
        p += len + (p[len] == ',');
    }
}

static void run_bare(uint64_t ms)
{
    begin_run(ms);
    run.running = n_clients;
    for (uint32_t i = 0; i < n_clients; i++) {
        bare_start(&clients[i]);
    }
    flush_all();
    (void)uv_run(loop, UV_RUN_DEFAULT);
    print_run();
}

/* ---- ours ------------------------------------------------------------------------------------ */

static fl_client *redlock;
static struct fl_uv redlock_on_loop, tokens_on_loop;
static fl_client *client_of_cluster;
static struct fl_redlock_options options;
static const struct fl_take how = {.ttl_ms = TTL_MS, .unrenewed = true};

static void ours_start(struct client *c);

static void on_released(void *ctx, const struct fl_result *result)
{
    struct client *c = ctx;
    run.errors += result->status != 0;
    take_sample(c->began_ns);
    if (fli_clock_ns() < run.end_ns) {
        ours_start(c);
    } else if (--run.running == 0) {
        uv_stop(loop);
    }
}

static void on_acquired(void *ctx, const struct fl_result *result)
{
    struct client *c = ctx;
    if (result->status != 0) {
        run.errors++;
        ours_start(c);
    } else if (fl_lock_release_start(result->lock, 0, on_released, c) != 0) {
        die("release", "impossible");
    }
}

static void ours_start(struct client *c)
{
    c->began_ns = fli_clock_ns();
    if (fl_lock_take_start(redlock, c->name, &how, on_acquired, c, NULL) != 0) {
        die("acquire", "impossible");
    }
}

/* False: it was not taken. */
static bool take_blocking(fl_lock **ret)
{
    return fl_lock_take(redlock, clients[0].name, &how, ret) == 0;
}

static void run_ours(uint64_t ms)
{
    begin_run(ms);
    if (n_clients > 1) {
        run.running = n_clients;
        for (uint32_t i = 0; i < n_clients; i++) {
            ours_start(&clients[i]);
        }
        (void)uv_run(loop, UV_RUN_DEFAULT);
    } else {
        while (fli_clock_ns() < run.end_ns) {
            fl_lock *lock;
            uint64_t began_ns = fli_clock_ns();
            run.errors += !take_blocking(&lock) || fl_lock_release(lock) != 0;
            take_sample(began_ns);
        }
    }
    print_run();
}

/* Only the acquires are timed. */
static void run_acquires(uint64_t n)
{
    begin_run(0);
    for (uint64_t i = 0; i < n; i++) {
        fl_lock *lock;
        uint64_t began_ns = fli_clock_ns();
        bool held = take_blocking(&lock);
        take_sample(began_ns);
        run.errors += !held || fl_lock_release(lock) != 0;
    }
    print_run();
}

static void run_fresh(void)
{
    fl_lock *lock;
    begin_run(0);
    fl_close(redlock);
    if (fl_redlock_open(&options, &redlock) != 0) {
        die("open", "impossible");
    }
    bool held = take_blocking(&lock);
    take_sample(run.began_ns);
    run.errors += !held || fl_lock_release(lock) != 0;
    print_run();
}

static void open_ours(const char *servers, const char *nodes)
{
    const struct fl_client_options on_loop = {.own_loop = n_clients > 1};
    options.servers = servers;
    options.restarts_are_safe = true;
    options.hung_ms = 60000;
    options.own_loop = on_loop.own_loop;
    if (nodes != NULL && fl_open(nodes, &on_loop, &client_of_cluster) != 0) {
        die(nodes, "cannot be used");
    }
    options.tokens = client_of_cluster;
    if (fl_redlock_open(&options, &redlock) != 0) {
        die(servers, "cannot be used");
    }
    if (on_loop.own_loop && fl_uv_start(&redlock_on_loop, loop, redlock) != 0) {
        die("loop", "impossible");
    }
    if (on_loop.own_loop && nodes != NULL &&
        fl_uv_start(&tokens_on_loop, loop, client_of_cluster) != 0) {
        die("loop", "impossible");
    }
}

int main(int argc, char **argv)
{
    char line[64];
    uint64_t n = 0;
    if (argc != 4 && argc != 6) {
        die("usage", "redlock_load ours|bare SERVERS CLIENTS [NODES LEADER]");
    }
    bool bare = strcmp(argv[1], "bare") == 0;
    if (!fli_parse_u64(argv[3], strlen(argv[3]), CLIENTS_MAX, &n) || n < 1) {
        die(argv[3], "not a number of clients");
    }
    n_clients = (uint32_t)n;
    loop = uv_default_loop();
    run.us = malloc(SAMPLES_MAX * sizeof *run.us);
    if (run.us == NULL) {
        die("malloc", "out of memory");
    }
    for (uint32_t i = 0; i < n_clients; i++) {
        (void)snprintf(clients[i].name, sizeof clients[i].name, "%s%u", bare ? "bare" : "ours", i);
    }
    if (argc == 6) {
        leader = open_conn(argv[5], strlen(argv[5]));
        go_async(leader);
    }
    if (bare) {
        open_bare(argv[2]);
    } else {
        open_ours(argv[2], argc == 6 ? argv[4] : NULL);
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *number = strchr(line, ' ');
        uint64_t value = number == NULL ? 0 : strtoull(number + 1, NULL, 10);
        if (strncmp(line, "run ", 4) == 0) {
            bare ? run_bare(value) : run_ours(value);
        } else if (strncmp(line, "acquires ", 9) == 0) {
            run_acquires(value);
        } else {
            run_fresh();
        }
    }
    return 0;
}
