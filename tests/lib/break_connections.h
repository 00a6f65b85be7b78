/* break_connections.h: shuts down every TCP connection of a loop, as a network would. */
#ifndef TESTS_BREAK_CONNECTIONS_H
#define TESTS_BREAK_CONNECTIONS_H

#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <uv.h>

static inline void break_connection(uv_handle_t *handle, void *arg)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    uv_os_fd_t fd;
    if ((handle->type == UV_TCP || handle->type == UV_POLL) && !uv_is_closing(handle) &&
        uv_fileno(handle, &fd) == 0 && getpeername(fd, (struct sockaddr *)&peer, &len) == 0) {
        if (shutdown(fd, SHUT_RDWR) != 0) {
            abort();
        }
        (*(unsigned *)arg)++;
    }
}

/* Returns their number. */
static inline unsigned break_connections(uv_loop_t *loop)
{
    unsigned broken = 0;
    uv_walk(loop, break_connection, &broken);
    return broken;
}

#endif
