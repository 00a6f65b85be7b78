/* listen.c: see listen.h. */
#include "base/listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define AGAIN_NS 10000000 /* between two tries */

static int listen_once(const struct sockaddr *address, socklen_t len, int backlog)
{
    const int on = 1;
    const int off = 0;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd, address, len) == 0 && listen(fd, backlog) == 0) {
        return fd;
    }
    int saved = errno;
    (void)close(fd);
    errno = saved;
    return -1;
}

int fli_listen(const struct sockaddr *address, socklen_t len, int backlog, uint64_t wait_ms)
{
    const struct timespec pause = {.tv_nsec = AGAIN_NS};
    uint64_t start_ms = fli_clock_ms();
    for (;;) {
        int fd = listen_once(address, len, backlog);
        if (fd >= 0 || errno != EADDRINUSE || fli_clock_ms() - start_ms >= wait_ms) {
            return fd;
        }
        (void)nanosleep(&pause, NULL);
    }
}

int fli_listen_first(const struct addrinfo *all, int backlog)
{
    errno = EADDRNOTAVAIL;
    for (const struct addrinfo *a = all; a != NULL; a = a->ai_next) {
        int fd = fli_listen(a->ai_addr, a->ai_addrlen, backlog, FLI_LISTEN_WAIT_MS);
        if (fd >= 0) {
            return fd;
        }
    }
    return -1;
}

uint16_t fli_listen_port(int fd)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    int rv = getsockname(fd, (struct sockaddr *)&bound, &len);
    FLI_ASSERT(rv == 0);
    return ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                             : ((struct sockaddr_in *)&bound)->sin_port);
}

const char *fli_listen_remedy(const char *message)
{
    static const struct {
        const char *words, *remedy; /* without the first letter, which libuv writes small */
    } rows[] = {
        {"ddress already in use", "; another process has it, choose another port"},
        {"annot assign requested address",
         "; this machine has no such address: name one of its own, or 0.0.0.0 for all"},
        {"ddress not available",
         "; this machine has no such address: name one of its own, or 0.0.0.0 for all"},
        {"ermission denied",
         "; a port below 1024 needs root or the capability CAP_NET_BIND_SERVICE "
         "(AmbientCapabilities= of systemd): choose a port above 1023, or give it that"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strstr(message, rows[i].words) != NULL) {
            return rows[i].remedy;
        }
    }
    return "";
}
