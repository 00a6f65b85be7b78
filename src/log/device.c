/* device.c: see device.h. */
#include "log/device.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

bool log_device_wait(struct log_device *d, int timeout_ms)
{
    struct pollfd fds[LOG_DEVICE_FDS];
    bool any = false;
    for (unsigned i = 0; i < LOG_DEVICE_FDS; i++) {
        fds[i] = (struct pollfd){.fd = d->fds[i], .events = POLLIN};
        any = any || fds[i].fd >= 0;
    }
    int n = 1;
    if (any) {
        do {
            n = poll(fds, LOG_DEVICE_FDS, timeout_ms);
        } while (n < 0 && errno == EINTR);
    }
    log_device_poll(d);
    return n > 0;
}

struct search {
    bool (*unwanted)(void *ctx, const char *name);
    void *ctx;
    char *name; /* one that was found */
};

/* A longer name is none of ours. */
static int on_name(void *ctx, const char *name)
{
    struct search *s = ctx;
    if (strlen(name) <= LOG_NAME_MAX && s->unwanted(s->ctx, name)) {
        memcpy(s->name, name, strlen(name) + 1);
    }
    return 0;
}

/* A directory must not change while it is listed, and there is hardly ever more than one. */
int log_device_remove(struct log_device *d, bool (*unwanted)(void *ctx, const char *name),
                      void *ctx, char name[LOG_NAME_MAX + 1])
{
    struct search s = {.unwanted = unwanted, .ctx = ctx, .name = name};
    int rv = 0;
    do {
        name[0] = '\0';
        rv = d->ops->list(d, on_name, &s);
        if (rv != 0) {
            name[0] = '\0';
        } else if (name[0] != '\0') {
            rv = d->ops->remove(d, name);
            rv = rv == -ENOENT ? 0 : rv;
        }
    } while (rv == 0 && name[0] != '\0');
    return rv;
}
