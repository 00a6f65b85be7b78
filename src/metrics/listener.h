/* listener.h: HTTP for whoever watches a server: /metrics, /livez, /readyz and the page.
 *
 *   loop                                 thread of the listener (libmicrohttpd)
 *   async: sample() or state()   <----   a request comes: asks, waits LISTENER_ANSWER_MS at most
 *          copies, signals       ---->   renders the copy, sends it at the reader's pace
 *
 * The loop only counts; nothing is locked for that. Once a request it copies its counters in one
 * piece, so what a scrape reads belongs together. A loop that does not answer in time fails /livez,
 * and /metrics says so; it is asked once at a time, so a loop that stands still is not asked more
 * and more.
 *
 * Only GET and HEAD, and nothing that is served here changes anything. What names locks or owners
 * (the page and /api/) is served only where `names` says so, and only to a browser that was led
 * here by an address or by the configured name: a page of a stranger cannot have a name of its own
 * point here. */
#ifndef METRICS_LISTENER_H
#define METRICS_LISTENER_H

#include <uv.h>

#include "metrics/text.h"

#define LISTENER_ANSWER_MS 800u      /* below the second that probes give */
#define LISTENER_CONNECTIONS_MAX 64u /* more are closed at once */
#define LISTENER_IDLE_S 15u          /* a connection that says nothing is closed */
#define LISTENER_TEXT_MAX ((size_t)1 << 20)

struct metrics_listener;

struct metrics_service {
    void *ctx;
    size_t sample_size;
    /* On the loop. */
    void (*sample)(void *ctx, void *ret);          /* copies what is counted */
    bool (*ready)(void *ctx, struct fli_buf *out); /* and says why, a line a reason */
    int (*state)(void *ctx, const char *path, struct fli_slice name,
                 struct fli_buf *out); /* JSON of /api/PATH; FL_ENOTFOUND: no such thing. May be
                                          NULL */
    /* On the listener's thread; sample is NULL when the loop has not answered. */
    void (*render)(void *ctx, const void *sample, struct metrics_text *t);
    const char *page; /* HTML at /; NULL: a list of what there is */
    size_t page_len;
    void (*log)(void *ctx, int level, const char *message); /* any thread's; may be NULL */
};

/* Binds HOST:PORT, port 0 picks one. `host` and `port` are apart already. `names` as above. 0; or
 * FL_EINVAL, FL_ESYSTEM with a sentence in errmsg. `service` is copied. */
int metrics_listener_create(uv_loop_t *loop, const char *host, uint16_t port, bool names,
                            const struct metrics_service *service, struct metrics_listener **ret,
                            char *errmsg, size_t errmsg_size) FLI_MUST_USE;
uint16_t metrics_listener_port(const struct metrics_listener *l);

/* Joins the thread, closes the handle, then cb, once, from the loop. Waits for no reader. */
void metrics_listener_stop(struct metrics_listener *l, void (*cb)(void *ctx), void *ctx);
void metrics_listener_destroy(struct metrics_listener *l); /* after cb; NULL is fine */

/* process.c: families about the process, with the names that every exporter uses. Any thread. */
void metrics_process(struct metrics_text *t);
/* Bytes of the file system that holds path: size, and free for this user. False: not known. */
bool metrics_disk(const char *path, uint64_t *ret_size, uint64_t *ret_free);

#endif
