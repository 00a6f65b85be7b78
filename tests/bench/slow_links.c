/* slow_links.c: all TCP connections that are redirected to it take longer, in each direction.
 *
 *   slow_links PORT MICROSECONDS
 *
 * For tests/bench/delayed, where the kernel has no netem. Prints a line when it listens. Ends by a
 * signal. What it dials has the mark MARK, so that nothing redirects it once more. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MARK 7
#define EVENTS 64
#define CHUNK 65536u

/* One direction: what is read from `from` is written to the end it leads to. */
struct end {
    int fd;
    struct end *other;
    unsigned waiting; /* chunks that shall be written to it */
    bool ended;       /* it sends no more */
};

/* All wait equally long, so the first that came is the first to go. */
struct chunk {
    struct chunk *next;
    struct end *to;
    uint64_t due_ns;
    size_t len; /* 0: the other side sends no more */
    char data[];
};

static struct {
    int epoll;
    uint64_t delay_ns;
    struct chunk *first, **last;
} relay = {.last = &relay.first};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "slow_links: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void watch(int fd, struct end *e)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = e};
    if (epoll_ctl(relay.epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        die("epoll_ctl");
    }
}

static struct end *make_end(int fd)
{
    int on = 1;
    struct end *e = calloc(1, sizeof *e);
    if (e == NULL || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        die("a connection");
    }
    e->fd = fd;
    return e;
}

static void accept_one(int listener)
{
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    int mark = MARK;
    int near = accept(listener, NULL, NULL);
    int far = socket(AF_INET, SOCK_STREAM, 0);
    if (near < 0 || far < 0 || getsockopt(near, SOL_IP, SO_ORIGINAL_DST, &to, &len) != 0 ||
        setsockopt(far, SOL_SOCKET, SO_MARK, &mark, sizeof mark) != 0) {
        die("a connection");
    }
    if (connect(far, (struct sockaddr *)&to, sizeof to) != 0) { /* nobody listens there */
        close(near);
        close(far);
        return;
    }
    struct end *a = make_end(near);
    struct end *b = make_end(far);
    a->other = b;
    b->other = a;
    watch(near, a);
    watch(far, b);
}

static void take(struct end *e)
{
    struct chunk *c = malloc(sizeof *c + CHUNK);
    if (c == NULL) {
        die("memory");
    }
    ssize_t n = read(e->fd, c->data, CHUNK);
    c->len = n > 0 ? (size_t)n : 0;
    c = realloc(c, sizeof *c + c->len);
    if (c == NULL) {
        die("memory");
    }
    c->to = e->other;
    c->to->waiting++;
    c->due_ns = now_ns() + relay.delay_ns;
    c->next = NULL;
    *relay.last = c;
    relay.last = &c->next;
    if (c->len == 0) {
        e->ended = true;
        epoll_ctl(relay.epoll, EPOLL_CTL_DEL, e->fd, NULL);
    }
}

static void free_ended(struct end *e)
{
    struct end *o = e->other;
    if (e->ended && o->ended && e->waiting + o->waiting == 0) {
        close(e->fd);
        close(o->fd);
        free(e);
        free(o);
    }
}

static void put(const struct chunk *c)
{
    size_t done = 0;
    while (done < c->len) {
        ssize_t n = write(c->to->fd, c->data + done, c->len - done);
        if (n < 0 && errno != EINTR) {
            break; /* it is gone, and reading says so */
        }
        done += n > 0 ? (size_t)n : 0;
    }
    if (c->len == 0) {
        shutdown(c->to->fd, SHUT_WR);
    }
    c->to->waiting--;
    free_ended(c->to);
}

/* Returns for how long nothing is due. */
static struct timespec put_due(void)
{
    uint64_t left = 1000000000u;
    while (relay.first != NULL) {
        struct chunk *c = relay.first;
        uint64_t now = now_ns();
        if (c->due_ns > now) {
            left = c->due_ns - now;
            break;
        }
        relay.first = c->next;
        relay.last = relay.first == NULL ? &relay.first : relay.last;
        put(c);
        free(c);
    }
    return (struct timespec){.tv_sec = (time_t)(left / 1000000000u),
                             .tv_nsec = (long)(left % 1000000000u)};
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: slow_links PORT MICROSECONDS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    relay.delay_ns = strtoull(argv[2], NULL, 10) * 1000u;
    relay.epoll = epoll_create1(EPOLL_CLOEXEC);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, SOMAXCONN) != 0) {
        die("listening");
    }
    watch(listener, NULL);
    printf("listening\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        struct timespec left = put_due();
        int n = epoll_pwait2(relay.epoll, events, EVENTS, &left, NULL);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL) {
                accept_one(listener);
            } else {
                take(events[i].data.ptr);
            }
        }
    }
}
