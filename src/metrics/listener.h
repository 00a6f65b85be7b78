/* listener.h: HTTP for monitoring a server: /metrics, /livez, /readyz and the page.
 *
 *   loop                                 thread of the listener (libmicrohttpd)
 *   async: sample() or state()   <----   a request comes: asks, waits LISTENER_ANSWER_MS at most
 *          copies, signals       ---->   renders the copy, sends it at the reader's pace
 *
 * The loop only counts, and needs no lock for that. For each request it copies its counters in one
 * piece, so the numbers of one scrape belong together. A loop that does not answer in time fails
 * /livez, and /metrics says so. Only one question is open at a time, so a loop that stands still
 * does not collect questions.
 *
 * Only GET and HEAD are served, and nothing here changes anything. Content with names of locks or
 * owners (the page and /api/) is served only if `names` allows it, and only to a browser that used
 * an address or the configured name. So
 * a page of another site cannot read it by DNS rebinding. */
#ifndef METRICS_LISTENER_H
#define METRICS_LISTENER_H

#include <uv.h>

#include "base/list.h"
#include "metrics/text.h"

#define LISTENER_ANSWER_MS 800u      /* below the second that probes give */
#define LISTENER_CONNECTIONS_MAX 64u /* the library accepts no more */
#define LISTENER_CUT_MAX 16u         /* of these, for those that were cut and are not yet closed */
#define LISTENER_IDLE_S 15u          /* a connection that sends nothing is closed */
#define LISTENER_TEXT_MAX ((size_t)1 << 20)

struct metrics_listener;

struct metrics_service {
    void *ctx;
    size_t sample_size;
    /* On the loop. */
    void (*sample)(void *ctx, void *ret);          /* copies the counters */
    bool (*ready)(void *ctx, struct fli_buf *out); /* writes a line for each reason */
    int (*state)(void *ctx, const char *path, struct fli_slice name,
                 struct fli_buf *out); /* JSON of /api/PATH; FL_ENOTFOUND: no such thing. May be
                                          NULL */
    /* Called on the listener's thread; sample is NULL when the loop has not answered. */
    void (*render)(void *ctx, const void *sample, struct metrics_text *t);
    const char *page; /* HTML at /; NULL: a list of what there is */
    size_t page_len;
    void (*log)(void *ctx, int level, const char *message); /* called on any thread; may be
                                                               NULL */
};

/* Binds HOST:PORT, given apart; port 0 picks one. `names` as above. 0; or FL_EINVAL, FL_ESYSTEM
 * with a sentence in errmsg. `service` is copied. */
int metrics_listener_create(uv_loop_t *loop, const char *host, uint16_t port, bool names,
                            const struct metrics_service *service, struct metrics_listener **ret,
                            char *errmsg, size_t errmsg_size) FLI_MUST_USE;
uint16_t metrics_listener_port(const struct metrics_listener *l);

/* Joins the thread, closes the handle, then calls cb, once, from the loop. Waits for no client. */
void metrics_listener_stop(struct metrics_listener *l, void (*cb)(void *ctx), void *ctx);
void metrics_listener_destroy(struct metrics_listener *l); /* after cb; NULL is fine */

/* process.c: metrics about the process, under the names that every exporter uses. Any thread. */
void metrics_process(struct metrics_text *t);
/* Size of the file system that holds path, and its free space for this user. False: unknown. */
bool metrics_disk(const char *path, uint64_t *ret_size, uint64_t *ret_free);

#endif
