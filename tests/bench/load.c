/* load.c: a closed loop of acquire and release pairs against running servers, for measuring.
 *
 *     load HOST:PORT CLIENTS SECONDS [TTL_MS]
 *
 * Each client has its own connection and its own lock and never has more than one request in
 * flight, so what is measured is what a writer sees. Prints pairs per second and percentiles of the
 * acquire in microseconds. Not a test: it judges nothing. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "consensus/members.h"

#define CLIENTS_MAX 4096u
#define SAMPLES_MAX 4000000u

struct client {
    int fd;
    unsigned id;
    bool releasing;
    unsigned long long token;
    uint64_t sent_ns;
    char in[256];
    size_t in_len;
};

struct load {
    struct client *clients;
    unsigned n;
    int epoll;
    const char *ttl;
    uint32_t *samples_us;
    size_t n_samples;
    uint64_t pairs;
    uint64_t errors;
};

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int dial(const char *address)
{
    char host[256];
    char port[8];
    uint16_t number;
    if (address_split(address, host, &number) != 0) {
        fprintf(stderr, "load: '%s' is not HOST:PORT\n", address);
        exit(2);
    }
    snprintf(port, sizeof port, "%u", (unsigned)number);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        die("resolve");
    }
    int fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        die("connect");
    }
    freeaddrinfo(found);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void send_next(struct load *l, struct client *c)
{
    char out[256];
    char name[32];
    char token[32];
    int name_len = snprintf(name, sizeof name, "load:%u", c->id);
    int len;
    if (c->releasing) {
        int token_len = snprintf(token, sizeof token, "%llu", c->token);
        len = snprintf(out, sizeof out, "*3\r\n$7\r\nRELEASE\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n",
                       name_len, name, token_len, token);
    } else {
        len = snprintf(out, sizeof out,
                       "*6\r\n$7\r\nACQUIRE\r\n$%d\r\n%s\r\n$3\r\nTTL\r\n$%zu\r\n%s\r\n"
                       "$5\r\nOWNER\r\n$24\r\nload-client-%012u\r\n",
                       name_len, name, strlen(l->ttl), l->ttl, c->id);
    }
    c->sent_ns = fli_clock_ns();
    if (write(c->fd, out, (size_t)len) != len) {
        die("write");
    }
}

static void answered(struct load *l, struct client *c)
{
    if (c->in[0] != ':') {
        if (l->errors++ == 0) {
            fprintf(stderr, "load: first error: %.*s\n", (int)c->in_len - 2, c->in);
        }
        c->releasing = true; /* so that it acquires next */
    } else if (c->releasing) {
        l->pairs++;
    } else {
        c->token = strtoull(c->in + 1, NULL, 10);
        if (l->n_samples < SAMPLES_MAX) {
            l->samples_us[l->n_samples++] = (uint32_t)((fli_clock_ns() - c->sent_ns) / 1000);
        }
    }
    c->releasing = !c->releasing;
    c->in_len = 0;
    send_next(l, c);
}

static void readable(struct load *l, struct client *c)
{
    ssize_t n = read(c->fd, c->in + c->in_len, sizeof c->in - c->in_len);
    if (n <= 0) {
        die("read");
    }
    c->in_len += (size_t)n;
    if (c->in_len >= 2 && c->in[c->in_len - 1] == '\n') {
        answered(l, c);
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t percentile(const struct load *l, unsigned per_mille)
{
    return l->n_samples == 0 ? 0 : l->samples_us[(l->n_samples - 1) * per_mille / 1000];
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: load HOST:PORT CLIENTS SECONDS [TTL_MS]\n");
        return 2;
    }
    struct load l = {.n = (unsigned)strtoul(argv[2], NULL, 10),
                     .ttl = argc > 4 ? argv[4] : "30000"};
    uint64_t duration_ns = strtoull(argv[3], NULL, 10) * UINT64_C(1000000000);
    if (l.n == 0 || l.n > CLIENTS_MAX) {
        fprintf(stderr, "load: CLIENTS is 1 to %u\n", CLIENTS_MAX);
        return 2;
    }
    l.clients = fli_xcalloc(l.n, sizeof *l.clients);
    l.samples_us = fli_xmalloc(SAMPLES_MAX * sizeof *l.samples_us);
    l.epoll = epoll_create1(0);
    for (unsigned i = 0; i < l.n; i++) {
        struct client *c = &l.clients[i];
        *c = (struct client){.fd = dial(argv[1]), .id = i};
        struct epoll_event ev = {.events = EPOLLIN, .data = {.ptr = c}};
        if (epoll_ctl(l.epoll, EPOLL_CTL_ADD, c->fd, &ev) != 0) {
            die("epoll");
        }
    }
    uint64_t start = fli_clock_ns();
    for (unsigned i = 0; i < l.n; i++) {
        send_next(&l, &l.clients[i]);
    }
    uint64_t now = start;
    while (now - start < duration_ns) {
        struct epoll_event ready[256];
        int n = epoll_wait(l.epoll, ready, 256, 1000);
        for (int i = 0; i < n; i++) {
            readable(&l, ready[i].data.ptr);
        }
        now = fli_clock_ns();
    }
    qsort(l.samples_us, l.n_samples, sizeof *l.samples_us, by_value);
    double seconds = (double)(now - start) / 1e9;
    printf("clients %u  pairs/s %.0f  acquire us p50 %u  p90 %u  p99 %u  max %u  errors %llu\n",
           l.n, (double)l.pairs / seconds, percentile(&l, 500), percentile(&l, 900),
           percentile(&l, 990), percentile(&l, 1000), (unsigned long long)l.errors);
    return l.errors == 0 ? 0 : 1;
}
