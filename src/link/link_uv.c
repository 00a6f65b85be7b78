/* link_uv.c: see link_uv.h. */
#include "link/link_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fli_link_watch {
    uv_poll_t poll;
    struct fli_link_uv *c; /* NULL once closed */
    struct fli_link_owner *owner;
    int events;
};

void fli_link_uv_init(struct fli_link_uv *c, struct fli_link_owner *owner, size_t out_max)
{
    *c = (struct fli_link_uv){.owner = owner};
    fli_link_init(&c->link);
    fli_buf_init(&c->out, out_max);
}

static void on_closed(uv_handle_t *handle)
{
    struct fli_link_watch *w = handle->data;
    struct fli_link_owner *o = w->owner;
    o->enter(o);
    free(w);
    o->handles--;
    o->leave(o);
}

void fli_link_uv_close(struct fli_link_uv *c)
{
    struct fli_link_watch *w = c->watch;
    if (w != NULL) {
        c->watch = NULL;
        w->c = NULL;
        (void)uv_poll_stop(&w->poll); /* before its descriptor is closed */
        uv_close((uv_handle_t *)&w->poll, on_closed);
    }
    fli_link_close(&c->link);
    fli_buf_fini(&c->out);
}

static void end(struct fli_link_uv *c, int rc)
{
    fli_link_uv_close(c);
    c->owner->broken(c, rc);
}

/* Hands out whole answers. A callback may close the connection, and even begin another one. */
static void hand_out(struct fli_link_uv *c)
{
    const struct fli_link_watch *w = c->watch;
    while (c->watch == w) {
        redisReply *reply = NULL;
        int rc = fli_link_next(&c->link, &reply);
        if (rc == 0) {
            return;
        }
        bool good = rc > 0 && c->owner->answered(c, reply);
        freeReplyObject(reply);
        if (!good && c->watch == w) {
            end(c, rc < 0 ? rc : FL_EPROTO);
        }
    }
}

/* False: nothing more is there, or no connection any more. */
static bool read_some(struct fli_link_uv *c)
{
    const struct fli_link_watch *w = c->watch;
    int rc = fli_link_read(&c->link);
    if (rc < 0) {
        end(c, rc);
        return false;
    }
    hand_out(c);
    return rc > 0 && c->watch == w;
}

void fli_link_uv_read(struct fli_link_uv *c)
{
    bool more = c->watch != NULL && c->link.ready;
    while (more) {
        more = read_some(c);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch_for(struct fli_link_watch *w, int events)
{
    if (w->events != events) {
        w->events = events;
        (void)uv_poll_start(&w->poll, events, on_poll);
    }
}

void fli_link_uv_flush(struct fli_link_uv *c)
{
    size_t at = 0;
    if (c->watch == NULL || !c->link.ready) {
        return;
    }
    const struct fli_link_watch *w = c->watch;
    int rc = fli_link_push(&c->link, NULL, 0, &at); /* what is encrypted already */
    rc = rc == 0 ? fli_link_push(&c->link, c->out.data, c->out.len, &at) : rc;
    fli_buf_consume(&c->out, at);
    if (rc == 0 || rc == FL_EBUSY) {
        watch_for(c->watch, rc == 0 ? UV_READABLE : UV_READABLE | UV_WRITABLE);
        return;
    }
    fli_link_uv_read(c); /* what came before it broke may say why */
    if (c->watch == w) {
        end(c, rc);
    }
}

/* One step towards being able to talk. */
static void open_step(struct fli_link_uv *c)
{
    const struct fli_link_watch *w = c->watch;
    int rc = fli_link_finish(&c->link);
    if (rc == FL_EBUSY) {
        watch_for(c->watch, c->link.wants_read ? UV_READABLE : UV_WRITABLE);
    } else if (rc != 0) {
        end(c, rc);
    } else {
        c->owner->opened(c);
        if (c->watch == w) {
            hand_out(c); /* what came with the end of the handshake */
        }
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct fli_link_watch *w = poll->data;
    struct fli_link_owner *o = w->owner;
    o->enter(o); /* closes it in a child of fork(): it is the parent's */
    struct fli_link_uv *c = w->c;
    if (c == NULL) {
        o->leave(o);
        return;
    }
    if (!c->link.ready) {
        open_step(c);
    } else if (status < 0) {
        fli_link_uv_read(c); /* what came before it broke may say why */
        if (c->watch == w) {
            (void)snprintf(c->link.error, sizeof c->link.error, "%s", uv_strerror(status));
            end(c, FL_EIO);
        }
    } else if ((events & UV_READABLE) != 0) {
        (void)read_some(c);
    }
    if (c->watch == w) {
        fli_link_uv_flush(c);
    }
    o->leave(o);
}

static int watch_link(struct fli_link_uv *c)
{
    struct fli_link_watch *w = calloc(1, sizeof *w);
    if (w == NULL || uv_poll_init(c->owner->loop, &w->poll, c->link.fd) != 0) {
        (void)snprintf(c->link.error, sizeof c->link.error, "out of memory");
        free(w);
        return FL_ENOMEM;
    }
    w->poll.data = w;
    w->c = c;
    w->owner = c->owner;
    c->watch = w;
    c->owner->handles++;
    /* One packet is enough: the owner gives up long before the kernel would, and begins anew. */
    c->link.again_ms = UINT64_MAX;
    watch_for(w, UV_WRITABLE);
    return 0;
}

int fli_link_uv_begin(struct fli_link_uv *c, struct fli_link_security *security, const char *host,
                      const struct sockaddr *address, socklen_t len)
{
    FLI_ASSERT(c->watch == NULL);
    int rc = fli_link_begin(&c->link, security, host, address, len);
    rc = rc == 0 ? watch_link(c) : rc;
    if (rc != 0) {
        fli_link_uv_close(c);
    }
    return rc;
}
