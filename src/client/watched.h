/* watched.h: a connection, and the events for which an epoll descriptor watches it. */
#ifndef FLI_CLIENT_WATCHED_H
#define FLI_CLIENT_WATCHED_H

#include "link/link.h"

struct fli_watched {
    struct fli_link link;
    uint32_t events; /* 0: not in the epoll set */
    int fd;          /* the descriptor in the epoll set */
};

/* Watches for these events: EPOLLIN, EPOLLOUT; 0 for none. Call it again when the link may have
 * another descriptor. Out of memory, nothing is watched, and the call ends by its deadline. */
void fli_watched_for(struct fli_watched *w, int epoll_fd, uint32_t events);
void fli_watched_close(struct fli_watched *w, int epoll_fd);

#endif
