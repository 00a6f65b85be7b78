/* unread.c: clients whose machine takes nothing of what is sent to it. The kernel alone knows what
 * the other side has taken: it ends such a connection with ETIMEDOUT. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "net/conn.h"

/* libuv probes an idle connection ten times, once a second, from NET_KEEPALIVE_S on. With a limit
 * on what is unread the kernel does not count the probes: behind that limit, one that is not
 * answered is enough. */
#define KEEPALIVE_PROBES_MS 10000u
_Static_assert(NET_KEEPALIVE_S * 1000u + KEEPALIVE_PROBES_MS <= NET_UNREAD_MS,
               "an idle client survives a network that is away for a moment");

void net_unread_limit(const struct net_conn *c)
{
    unsigned ms = c->server->limits.unread_ms;
    uv_os_fd_t fd = -1;
    if (ms > 0 && uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    }
}

/* What an idle client has not answered are probes, which are no bytes. */
static bool has_unread(const struct net_conn *c)
{
    uv_os_fd_t fd = -1;
    int kept = 0; /* by the kernel, and not acknowledged */
    return net_conn_unsent(c) > 0 || (uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 &&
                                      ioctl(fd, TIOCOUTQ, &kept) == 0 && kept > 0);
}

void net_conn_failed(struct net_conn *c, int error)
{
    if (error == UV_ETIMEDOUT && !c->doomed && has_unread(c)) {
        net_conn_drop(c, "its machine takes nothing of what is sent to it");
    } else {
        net_conn_doom(c);
    }
}
