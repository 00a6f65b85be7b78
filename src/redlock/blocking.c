/* blocking.c: calls that run the private loop until their answer has come. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "redlock/blocking.h"
#include "redlock/redlock_private.h"

struct waiter {
    bool over;
    int result;
    struct fl_redlock_lock lock;
    struct fl_redlock *r;
    uint64_t id;      /* of an acquire */
    uv_poll_t stop;   /* watches stop_fd */
    bool is_watching; /* and is not closed yet */
};

static void set_error(struct fl_redlock *r, const char *fmt, ...) FLI_PRINTF(2, 3);

static void set_error(struct fl_redlock *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(r->error, sizeof r->error, fmt, args);
    va_end(args);
}

/* Writes the cause, and what each server that did not say yes had to say, as far as there is
 * room. */
static void explain(struct fl_redlock *r)
{
    const struct fl_redlock_report *report = &r->last;
    set_error(r, "%s (%u of %u, %u needed)", fl_redlock_cause_text(report->cause), report->yes,
              report->servers, report->quorum);
    for (uint32_t i = 0; i < report->servers; i++) {
        const struct fl_redlock_server_report *s = &report->server[i];
        size_t len = strlen(r->error);
        if (s->status != FL_REDLOCK_YES) {
            (void)snprintf(r->error + len, sizeof r->error - len, "; %s: %s%s%s",
                           r->servers[i].address, fl_redlock_status_text(s->status),
                           s->error[0] != '\0' ? ": " : "", s->error);
        }
    }
}

static void on_done(void *ctx, int result, const struct fl_redlock_lock *lock,
                    const struct fl_redlock_report *report)
{
    struct waiter *w = ctx;
    w->over = true;
    uv_stop(&w->r->own_loop); /* uv_run() is not to wait for anything more */
    w->result = result;
    if (lock != NULL) {
        w->lock = *lock;
    }
    w->r->last = *report;
}

/* Runs the loop once, so that it notices what happened to the connections since the last call. */
static int begin(struct fl_redlock *r)
{
    memset(&r->last, 0, sizeof r->last);
    r->error[0] = '\0';
    if (!r->is_private) {
        set_error(r,
                  "this handle lives on a loop of the caller's: use the calls that end in _start");
        return FL_EINVAL;
    }
    int rc = fli_own(r);
    if (rc != 0) {
        set_error(r,
                  "this process was forked, and has no descriptors left for an alarm of its own");
        return rc;
    }
    (void)uv_run(&r->own_loop, UV_RUN_NOWAIT);
    return 0;
}

static int finish(struct fl_redlock *r, int rc, struct waiter *w)
{
    if (rc != 0) {
        set_error(r, "%s", fl_strerror(rc));
        return rc;
    }
    while (!w->over) {
        (void)uv_run(&r->own_loop, UV_RUN_ONCE);
    }
    if (w->result != 0) {
        explain(r);
    }
    return w->result;
}

/* ---- interruption ---------------------------------------------------------------------------- */

void fli_redlock_stop_at(fl_redlock *r, int fd)
{
    r->stop_fd = fd;
}

static void on_stop(uv_poll_t *poll, int status, int events)
{
    struct waiter *w = poll->data;
    (void)uv_poll_stop(poll);
    fl_redlock_cancel(w->r, w->id);
}

static void on_stop_closed(uv_handle_t *handle)
{
    struct waiter *w = handle->data;
    w->is_watching = false;
}

static void watch_stop(struct waiter *w)
{
    w->stop.data = w;
    w->is_watching =
        w->r->stop_fd >= 0 && uv_poll_init(&w->r->own_loop, &w->stop, w->r->stop_fd) == 0;
    if (w->is_watching) {
        (void)uv_poll_start(&w->stop, UV_READABLE, on_stop);
    }
}

static void unwatch_stop(struct waiter *w)
{
    if (w->is_watching) {
        uv_close((uv_handle_t *)&w->stop, on_stop_closed);
    }
    while (w->is_watching) {
        (void)uv_run(&w->r->own_loop, UV_RUN_NOWAIT);
    }
}

const char *fl_redlock_error(const fl_redlock *r)
{
    return r->error;
}

const struct fl_redlock_report *fl_redlock_last(const fl_redlock *r)
{
    return &r->last;
}

struct blocking_issue {
    fl_redlock_issue *fn;
    void *ctx;
};

static void issue_now(void *ctx, struct fl_bytes name, uint64_t timeout_ms,
                      fl_redlock_issued *issued, void *issued_ctx)
{
    const struct blocking_issue *b = ctx;
    fl_token token = FL_TOKEN_NONE;
    int rc = b->fn(b->ctx, name, timeout_ms, &token);
    issued(issued_ctx, rc, token);
}

static int acquire(fl_redlock *r, struct fl_bytes name,
                   const struct fl_redlock_acquire_options *options, struct blocking_issue *issue,
                   struct fl_redlock_lock *ret)
{
    struct waiter w = {.r = r};
    int rc = begin(r);
    if (rc != 0) {
        return rc;
    }
    rc = fl_redlock_acquire_fenced_start(r, name, options, issue != NULL ? issue_now : NULL, issue,
                                         on_done, &w, &w.id);
    if (rc == 0) {
        watch_stop(&w);
    }
    rc = finish(r, rc, &w);
    unwatch_stop(&w);
    if (rc == 0) {
        *ret = w.lock;
    }
    return rc;
}

int fl_redlock_acquire(fl_redlock *r, struct fl_bytes name,
                       const struct fl_redlock_acquire_options *options,
                       struct fl_redlock_lock *ret)
{
    return acquire(r, name, options, NULL, ret);
}

int fl_redlock_acquire_fenced(fl_redlock *r, struct fl_bytes name,
                              const struct fl_redlock_acquire_options *options,
                              fl_redlock_issue *issue, void *issue_ctx, struct fl_redlock_lock *ret)
{
    struct blocking_issue b = {issue, issue_ctx};
    return acquire(r, name, options, &b, ret);
}

int fl_redlock_extend(fl_redlock *r, struct fl_bytes name, uint64_t ttl_ms,
                      struct fl_redlock_lock *lock)
{
    struct waiter w = {.r = r, .lock = *lock};
    int rc = begin(r);
    if (rc != 0) {
        return rc;
    }
    rc = fl_redlock_extend_start(r, name, lock, ttl_ms, on_done, &w);
    rc = finish(r, rc, &w);
    *lock = w.lock;
    return rc;
}

int fl_redlock_release(fl_redlock *r, struct fl_bytes name, const struct fl_redlock_lock *lock)
{
    struct waiter w = {.r = r};
    int rc = begin(r);
    if (rc != 0) {
        return rc;
    }
    rc = fl_redlock_release_start(r, name, lock, on_done, &w);
    return finish(r, rc, &w);
}

struct check_waiter {
    bool over;
    struct fl_redlock *r;
    int result;
    struct fl_redlock_check_report *ret;
};

static void on_checked(void *ctx, int result, const struct fl_redlock_check_report *found)
{
    struct check_waiter *w = ctx;
    w->over = true;
    uv_stop(&w->r->own_loop);
    w->result = result;
    *w->ret = *found;
}

int fl_redlock_check(fl_redlock *r, const struct fl_redlock_check_options *options,
                     struct fl_redlock_check_report *ret)
{
    struct check_waiter w = {.r = r, .ret = ret};
    int rc = begin(r);
    if (rc == 0) {
        rc = fl_redlock_check_start(r, options, on_checked, &w);
    }
    if (rc != 0) {
        return rc;
    }
    while (!w.over) {
        (void)uv_run(&r->own_loop, UV_RUN_ONCE);
    }
    if (w.result != 0) {
        set_error(r, "the servers are not fit for Redlock");
    }
    return w.result;
}
