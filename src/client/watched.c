/* watched.c: see watched.h. */
#include "client/watched.h"

#include <errno.h>
#include <sys/epoll.h>

void fli_watched_for(struct fli_watched *w, int epoll_fd, uint32_t events)
{
    uint32_t before = w->fd == w->link.fd ? w->events : 0;
    if (before == events) {
        return;
    }
    struct epoll_event event = {.events = events};
    int how = events == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    int rc = epoll_ctl(epoll_fd, how, w->link.fd, &event);
    if (rc != 0 && how == EPOLL_CTL_ADD && errno == EEXIST) {
        /* The link has gone back to its first descriptor. */
        rc = epoll_ctl(epoll_fd, EPOLL_CTL_MOD, w->link.fd, &event);
    }
    if (rc == 0) {
        w->events = events;
        w->fd = w->link.fd;
    }
}

void fli_watched_close(struct fli_watched *w, int epoll_fd)
{
    if (w->link.fd >= 0) {
        fli_watched_for(w, epoll_fd, 0);
        fli_link_close(&w->link);
    }
    w->events = 0;
}
