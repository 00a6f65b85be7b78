/* watched.h: a connection and what an epoll descriptor watches it for. */
#ifndef FLI_CLIENT_WATCHED_H
#define FLI_CLIENT_WATCHED_H

#include "link/link.h"

struct fli_watched {
    struct fli_link link;
    uint32_t events; /* 0: not in the epoll set */
    int fd;          /* that is in it */
};

/* EPOLLIN, EPOLLOUT; 0: for nothing. To be called again when the link may have taken another
 * descriptor. Out of memory: nothing is watched, and time will tell. */
void fli_watched_for(struct fli_watched *w, int epoll_fd, uint32_t events);
void fli_watched_close(struct fli_watched *w, int epoll_fd);

#endif
