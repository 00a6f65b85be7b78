/* engine_own.c: with what an engine is made, and how a child of fork() makes an inherited one its
 * own; see engine.h. */
#include <string.h>
#include <sys/epoll.h>

#include "base/process.h"
#include "base/timer.h"
#include "client/engine.h"

int fli_engine_options(struct fli_engine *e, const struct fl_client_options *options)
{
    static const struct fl_client_options defaults;
    const struct fl_client_options *o = options != NULL ? options : &defaults;
    bool owner_ok =
        o->owner.len == 0 || (o->owner.len >= FL_OWNER_MIN && o->owner.len <= FL_OWNER_MAX);
    if (o->timeout_ms > FL_TIMEOUT_MAX_MS || o->attempt_ms > FL_TIMEOUT_MAX_MS || !owner_ok) {
        return FL_EINVAL;
    }
    e->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : e->timeout_ms;
    e->attempt_ms = o->attempt_ms != 0 ? o->attempt_ms : e->attempt_ms;
    fli_owner_make(&e->owner);
    if (o->owner.len != 0) {
        memcpy(e->owner.id, o->owner.data, o->owner.len);
        e->owner.len = o->owner.len;
        e->owner_is_given = true;
    }
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    return fli_link_security_init(&e->tls, o->tls, o->user, o->password, errmsg, sizeof errmsg);
}

int fli_engine_resolve(struct fli_engine *e)
{
    unsigned known = 0;
    e->resolves = false;
    for (uint32_t i = 0; i < e->n_nodes; i++) {
        fli_place_resolve(&e->nodes[i].place, false);
        known += e->nodes[i].place.n;
    }
    return known > 0 ? 0 : FL_ENOCONN;
}

bool fli_engine_watch_timer(const struct fli_engine *e)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->timer_fd, &event) == 0;
}

bool fli_engine_is_inherited(const struct fli_engine *e)
{
    return e->process != fli_process();
}

int fli_engine_own(struct fli_engine *e)
{
    if (!fli_engine_is_inherited(e)) {
        return 0;
    }
    if (!fli_process_reopen(e->epoll_fd, epoll_create1(EPOLL_CLOEXEC)) ||
        !fli_process_reopen(e->timer_fd, fli_timer_open()) || !fli_engine_watch_timer(e)) {
        return FL_ESYSTEM;
    }
    fli_engine_drop(e);
    e->timer_ms = UINT64_MAX;
    e->attempts = (struct fli_attempts){0};
    fli_owner_make(&e->owner);
    e->owner_is_given = false;
    e->inherited = e->newest;
    e->process = fli_process();
    return e->backend != NULL ? e->backend->own(e) : 0;
}
