/* demo_proxy.c: a process between the writers and a storage. It has a port for each writer, so
 * that it knows whose write it holds back, and tells when it has one. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/demo.h"

#define PAIRS_MAX 64u
#define HELD_MAX 4096u

struct pair {
    int client, server; /* -1: free */
    unsigned slot;
    size_t held;
    char buffer[HELD_MAX];
};

struct proxy {
    int listener[DEMO_WRITERS_MAX];
    bool hold[DEMO_WRITERS_MAX];
    struct sockaddr_in backend;
    struct pair pair[PAIRS_MAX];
};

static bool address_of(const char *text, struct sockaddr_in *ret)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (colon == NULL || !fli_parse_u64(colon + 1, strlen(colon + 1), 65535, &port)) {
        return false;
    }
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    ret->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return true;
}

static bool send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static void drop(struct pair *p)
{
    close(p->client);
    close(p->server);
    *p = (struct pair){.client = -1, .server = -1};
}

static void welcome(struct proxy *x, unsigned slot)
{
    int client = accept4(x->listener[slot], NULL, NULL, SOCK_CLOEXEC);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (unsigned i = 0; i < PAIRS_MAX && client >= 0 && server >= 0; i++) {
        if (x->pair[i].client >= 0) {
            continue;
        }
        if (connect(server, (struct sockaddr *)&x->backend, sizeof x->backend) != 0) {
            break;
        }
        x->pair[i].client = client;
        x->pair[i].server = server;
        x->pair[i].slot = slot;
        x->pair[i].held = 0;
        return;
    }
    if (client >= 0) {
        close(client);
    }
    if (server >= 0) {
        close(server);
    }
}

static void pass_up(struct proxy *x, struct pair *p)
{
    ssize_t n = recv(p->client, p->buffer + p->held, HELD_MAX - p->held, 0);
    if (n <= 0) {
        drop(p);
        return;
    }
    if (!x->hold[p->slot]) {
        if (!send_all(p->server, p->buffer, (size_t)n)) {
            drop(p);
        }
        return;
    }
    /* Said once of each write, however many pieces it comes in. */
    const char line[] = {'h', (char)('0' + p->slot), '\0'};
    bool first = p->held == 0;
    p->held += (size_t)n;
    if (first) {
        (void)demo_write_line(STDOUT_FILENO, line);
    }
}

static void pass_down(struct pair *p)
{
    char data[HELD_MAX];
    ssize_t n = recv(p->server, data, sizeof data, 0);
    if (n <= 0 || !send_all(p->client, data, (size_t)n)) {
        drop(p);
    }
}

static void let_go(struct proxy *x, unsigned slot)
{
    for (unsigned i = 0; i < PAIRS_MAX; i++) {
        struct pair *p = &x->pair[i];
        if (p->client < 0 || p->slot != slot || p->held == 0) {
            continue;
        }
        bool sent = send_all(p->server, p->buffer, p->held);
        p->held = 0;
        if (!sent) {
            drop(p);
        }
    }
}

/* False: nobody is there any more to tell us anything. */
static bool obey(struct proxy *x)
{
    char line[8];
    if (!demo_read_line(STDIN_FILENO, line, sizeof line)) {
        return false;
    }
    unsigned slot = (unsigned)(line[1] - '0');
    if (slot < DEMO_WRITERS_MAX) {
        x->hold[slot] = line[0] == 'h';
        if (!x->hold[slot]) {
            let_go(x, slot);
        }
    }
    return demo_write_line(STDOUT_FILENO, "ok");
}

static void serve(struct proxy *x)
{
    for (;;) {
        struct pollfd p[1 + DEMO_WRITERS_MAX + 2 * PAIRS_MAX];
        memset(p, 0, sizeof p);
        p[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
        for (unsigned i = 0; i < DEMO_WRITERS_MAX; i++) {
            p[1 + i] = (struct pollfd){.fd = x->listener[i], .events = POLLIN};
        }
        struct pollfd *pairs = p + 1 + DEMO_WRITERS_MAX;
        for (unsigned i = 0; i < PAIRS_MAX; i++) {
            bool full = x->pair[i].held == HELD_MAX;
            pairs[2 * i] = (struct pollfd){.fd = full ? -1 : x->pair[i].client, .events = POLLIN};
            pairs[2 * i + 1] = (struct pollfd){.fd = x->pair[i].server, .events = POLLIN};
        }
        if (poll(p, sizeof p / sizeof p[0], -1) < 0) {
            continue;
        }
        if (p[0].revents != 0 && !obey(x)) {
            return;
        }
        for (unsigned i = 0; i < PAIRS_MAX; i++) {
            if (pairs[2 * i].revents != 0) {
                pass_up(x, &x->pair[i]);
            }
            if (pairs[2 * i + 1].revents != 0 && x->pair[i].server >= 0) {
                pass_down(&x->pair[i]);
            }
        }
        for (unsigned i = 0; i < DEMO_WRITERS_MAX; i++) {
            if (p[1 + i].revents != 0) {
                welcome(x, i);
            }
        }
    }
}

static bool listen_on(struct proxy *x, unsigned slot, char out[DEMO_ADDRESS_SIZE])
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    x->listener[slot] = fd;
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) != 0) {
        return false;
    }
    snprintf(out, DEMO_ADDRESS_SIZE, "127.0.0.1:%u", (unsigned)ntohs(a.sin_port));
    return true;
}

static int start(struct demo_lab *lab, unsigned which, struct proxy *x)
{
    struct demo_proxy *proxy = &lab->proxy[which];
    int down[2] = {-1, -1};
    int up[2] = {-1, -1};
    bool ready = address_of(lab->store_address[which], &x->backend);
    for (unsigned i = 0; i < DEMO_WRITERS_MAX && ready; i++) {
        ready = listen_on(x, i, proxy->address[i]);
    }
    if (!ready || pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) {
        return demo_lab_fail(lab, "no sockets or pipes to be had for the proxy");
    }
    proxy->pid = demo_fork(lab, NULL);
    if (proxy->pid == 0) {
        (void)dup2(down[0], STDIN_FILENO);
        (void)dup2(up[1], STDOUT_FILENO);
        close(down[1]);
        serve(x);
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    for (unsigned i = 0; i < DEMO_WRITERS_MAX; i++) {
        close(x->listener[i]);
    }
    proxy->to = down[1];
    proxy->from = up[0];
    return proxy->pid > 0 ? 0 : demo_lab_fail(lab, "no process to be had for the proxy");
}

int demo_proxy_start(struct demo_lab *lab, unsigned which)
{
    struct proxy *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return FL_ENOMEM;
    }
    for (unsigned i = 0; i < PAIRS_MAX; i++) {
        x->pair[i].client = x->pair[i].server = -1;
    }
    int rc = start(lab, which, x);
    free(x);
    return rc;
}
