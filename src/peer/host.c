/* host.c: see host.h. */
#include "peer/host.h"

#include <stdarg.h>
#include <stdio.h>

void host_log(const struct host *h, int level, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (h->log == NULL) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    h->log(h->ctx, level, text);
}

void host_fail(const struct host *h, int error, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    h->fail(h->ctx, error, text);
}

static void work_cb(uv_work_t *req)
{
    struct host_work *w = FLI_CONTAINER_OF(req, struct host_work, req);
    w->work(w);
}

/* The end comes last: the node may be gone then. */
static void worked_cb(uv_work_t *req, int status)
{
    struct host_work *w = FLI_CONTAINER_OF(req, struct host_work, req);
    const struct host *h = w->host;
    w->busy = false;
    w->done(w);
    h->release(h->ctx);
}

void host_work(const struct host *h, struct host_work *w, void (*work)(struct host_work *w),
               void (*done)(struct host_work *w))
{
    FLI_ASSERT(!w->busy);
    w->host = h;
    w->work = work;
    w->done = done;
    w->busy = true;
    h->hold(h->ctx);
    int rv = uv_queue_work(h->loop, &w->req, work_cb, worked_cb);
    FLI_ASSERT(rv == 0);
}
