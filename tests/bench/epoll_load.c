/* epoll_load.c: pairs of acquire and release on one server, measured a second way: hiredis parses,
 * one epoll loop reads and writes, and nothing is shared with loadgen.h. Two generators that
 * disagree show what part of a figure is the client's. Judges nothing.
 *
 *   epoll_load lock|renew|redis A:P CLIENTS IN_FLIGHT SECONDS
 *
 * With `renew` each lane holds its lock and renews it, and two renewals count as a pair.
 * Prints one JSON object, with the keys of tests/bench/load and `client_cpu_s`. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"

#define WARMUP_NS UINT64_C(500000000)
#define SAMPLES_MAX ((size_t)8 << 20)
#define EVENTS 256

static const char redis_acquire[] = "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then "
                                    "return redis.call('INCR',KEYS[2]) else return false end";
static const char redis_release[] =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";

/* One lock of one client; a client with several in flight has as many, answered in order. */
struct lane {
    unsigned number;
    bool releasing;
    uint64_t asked_ns;
    long long token;
};

struct client {
    redisContext *c;
    struct lane *lanes;
    unsigned next; /* lane whose answer comes next */
    char *out;
    size_t out_len, out_cap;
};

struct run {
    bool redis, renews;
    unsigned clients_n, in_flight;
    struct client *clients;
    char acquire_sha[41], release_sha[41];
    uint64_t begin_ns, end_ns, pairs, all;
    uint32_t *samples; /* of acquires, in units of 100 ns */
    size_t samples_n;
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "epoll_load: %s: %s\n", what, why);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void append(struct client *k, const char *text, int len)
{
    if (k->out_len + (size_t)len > k->out_cap) {
        k->out_cap = 2 * (k->out_len + (size_t)len);
        k->out = realloc(k->out, k->out_cap);
        if (k->out == NULL) {
            die("memory", "none left");
        }
    }
    memcpy(k->out + k->out_len, text, (size_t)len);
    k->out_len += (size_t)len;
}

static void ask(struct run *r, struct client *k, struct lane *l)
{
    char *text;
    char name[48];
    char token[32];
    int len;
    /* An earlier run may have left its locks held. */
    snprintf(name, sizeof name, "epoll-%ld-%u", (long)getpid(), l->number);
    snprintf(token, sizeof token, "%lld", l->token);
    l->asked_ns = now_ns();
    if (r->redis && l->releasing) {
        len = redisFormatCommand(&text, "EVALSHA %s 1 %s %s", r->release_sha, name, name);
    } else if (r->redis) {
        len = redisFormatCommand(&text, "EVALSHA %s 2 %s epoll-token %s 30000", r->acquire_sha,
                                 name, name);
    } else if (r->renews && l->token != 0) {
        len = redisFormatCommand(&text, "RENEW %s %s", name, token);
    } else if (l->releasing) {
        len = redisFormatCommand(&text, "RELEASE %s %s", name, token);
    } else {
        len = redisFormatCommand(&text, "ACQUIRE %s TTL 30000 OWNER owner-of-%s-0123456789", name,
                                 name);
    }
    if (len < 0) {
        die("request", "cannot be formatted");
    }
    append(k, text, len);
    redisFreeCommand(text);
}

static void answered(struct run *r, struct client *k, const redisReply *reply)
{
    struct lane *l = &k->lanes[k->next];
    uint64_t now = now_ns();
    k->next = (k->next + 1) % r->in_flight;
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer <= 0) {
        die("answer", reply->type == REDIS_REPLY_ERROR ? reply->str : "not a grant or a release");
    }
    bool counts = now >= r->begin_ns;
    if (!l->releasing) {
        l->token = r->renews && l->token != 0 ? l->token : reply->integer;
        if (counts && r->samples_n < SAMPLES_MAX) {
            r->samples[r->samples_n++] = (uint32_t)((now - l->asked_ns) / 100);
        }
    } else {
        r->all++;
        r->pairs += counts;
    }
    l->releasing = !l->releasing;
    ask(r, k, l);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void write_out(struct client *k)
{
    size_t done = 0;
    while (done < k->out_len) {
        ssize_t n = write(k->c->fd, k->out + done, k->out_len - done);
        if (n < 0 && errno != EINTR) {
            die("write", strerror(errno));
        }
        done += n > 0 ? (size_t)n : 0;
    }
    k->out_len = 0;
}

static void read_answers(struct run *r, struct client *k)
{
    static char in[65536];
    ssize_t n = read(k->c->fd, in, sizeof in);
    if (n <= 0) {
        die("read", n == 0 ? "the server has hung up" : strerror(errno));
    }
    if (redisReaderFeed(k->c->reader, in, (size_t)n) != REDIS_OK) {
        die("answer", k->c->reader->errstr);
    }
    void *reply = NULL;
    while (redisReaderGetReply(k->c->reader, &reply) == REDIS_OK && reply != NULL) {
        answered(r, k, reply);
        freeReplyObject(reply);
        reply = NULL;
    }
    write_out(k);
}

static void load(struct run *r, double seconds)
{
    struct epoll_event events[EVENTS];
    int ep = epoll_create1(EPOLL_CLOEXEC);
    r->begin_ns = now_ns() + WARMUP_NS;
    r->end_ns = r->begin_ns + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < r->clients_n; i++) {
        struct client *k = &r->clients[i];
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = k};
        if (epoll_ctl(ep, EPOLL_CTL_ADD, k->c->fd, &e) != 0) {
            die("epoll", strerror(errno));
        }
        for (unsigned l = 0; l < r->in_flight; l++) {
            ask(r, k, &k->lanes[l]);
        }
        write_out(k);
    }
    while (now_ns() < r->end_ns) {
        int n = epoll_wait(ep, events, EVENTS, 1000);
        for (int i = 0; i < n; i++) {
            read_answers(r, events[i].data.ptr);
        }
    }
    close(ep);
}

/* ---- set-up and result ----------------------------------------------------------------------- */

static void script(redisContext *c, const char *text, char sha[41])
{
    redisReply *reply = redisCommand(c, "SCRIPT LOAD %s", text);
    if (reply == NULL || reply->type != REDIS_REPLY_STRING || reply->len != 40) {
        die("SCRIPT LOAD", reply == NULL ? c->errstr : "no digest came");
    }
    memcpy(sha, reply->str, 41);
    freeReplyObject(reply);
}

static void connect_all(struct run *r, const char *address)
{
    const char *colon = strrchr(address, ':');
    char host[256];
    uint64_t port = 0;
    if (colon == NULL || (size_t)(colon - address) >= sizeof host ||
        !fli_parse_u64(colon + 1, strlen(colon + 1), 65535, &port)) {
        die("address", "HOST:PORT is wanted");
    }
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    for (unsigned i = 0; i < r->clients_n; i++) {
        struct client *k = &r->clients[i];
        k->c = redisConnect(host, (int)port);
        if (k->c == NULL || k->c->err != 0) {
            die("connect", k->c == NULL ? "out of memory" : k->c->errstr);
        }
        k->lanes = calloc(r->in_flight, sizeof *k->lanes);
        for (unsigned l = 0; k->lanes != NULL && l < r->in_flight; l++) {
            k->lanes[l].number = i * r->in_flight + l;
        }
        if (k->lanes == NULL) {
            die("memory", "none left");
        }
    }
    if (r->redis) {
        script(r->clients[0].c, redis_acquire, r->acquire_sha);
        script(r->clients[0].c, redis_release, r->release_sha);
    }
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void print(struct run *r)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double cpu_s = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                   (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    qsort(r->samples, r->samples_n, sizeof *r->samples, by_size);
    size_t n = r->samples_n;
    uint64_t p50 = n == 0 ? 0 : (uint64_t)r->samples[n / 2] * 100;
    uint64_t p99 = n == 0 ? 0 : (uint64_t)r->samples[n - 1 - n / 100] * 100;
    printf("{\"all_pairs\":%" PRIu64 ",\"pairs\":%" PRIu64 ",\"measured_ns\":%" PRIu64
           ",\"errors\":0,\"acquire\":{\"p50\":%" PRIu64 ",\"p99\":%" PRIu64
           "},\"client_cpu_s\":%.3f}\n",
           r->all, r->pairs, r->end_ns - r->begin_ns, p50, p99, cpu_s);
}

int main(int argc, char **argv)
{
    struct run r = {0};
    r.redis = argc == 6 && strcmp(argv[1], "redis") == 0;
    r.renews = argc == 6 && strcmp(argv[1], "renew") == 0;
    if (argc != 6 || (!r.redis && !r.renews && strcmp(argv[1], "lock") != 0)) {
        fputs("usage: epoll_load lock|renew|redis A:P CLIENTS IN_FLIGHT SECONDS\n", stderr);
        return 2;
    }
    r.clients_n = (unsigned)strtoul(argv[3], NULL, 10);
    r.in_flight = (unsigned)strtoul(argv[4], NULL, 10);
    double seconds = strtod(argv[5], NULL);
    if (r.clients_n < 1 || r.clients_n > 4096 || r.in_flight < 1 || r.in_flight > 4096 ||
        !(seconds > 0 && seconds <= 600)) {
        die("arguments", "1 to 4096 clients, 1 to 4096 in flight, up to 600 seconds");
    }
    r.clients = calloc(r.clients_n, sizeof *r.clients);
    r.samples = malloc(SAMPLES_MAX * sizeof *r.samples);
    if (r.clients == NULL || r.samples == NULL) {
        die("memory", "none left");
    }
    connect_all(&r, argv[2]);
    load(&r, seconds);
    print(&r);
    return 0;
}
