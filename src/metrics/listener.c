/* listener.c: see listener.h.
 *
 * One request asks the loop at a time, since the listener has one thread. Its question is in `ask`,
 * under the mutex:
 *
 *   IDLE --thread--> ASKED --loop--> ANSWERED --thread--> IDLE
 *                      '--thread, in LISTENER_ANSWER_MS--> IDLE
 *
 * The loop answers with the mutex held, so the thread cannot give up in the middle of an answer. */
#include "metrics/listener.h"
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/listen.h"

#define HOST_MAX 256u
#define PATH_MAX_LEN 32u
#define BACKLOG 64

enum ask_state { ASK_IDLE, ASK_ASKED, ASK_ANSWERED };
enum ask_kind { ASK_LIVE, ASK_SAMPLE, ASK_READY, ASK_STATE };

struct ask {
    enum ask_state state;
    enum ask_kind kind;
    char path[PATH_MAX_LEN];
    uint8_t name[FL_NAME_MAX];
    size_t name_len;
    int rc;
    bool ready;
};

/* A connection that was not cut. */
struct client {
    struct fli_list link; /* open of metrics_listener */
    int fd;
};

struct metrics_listener {
    struct metrics_service service;
    char host[HOST_MAX]; /* as configured */
    uint16_t port;
    bool names; /* content with names of locks is served */
    struct MHD_Daemon *daemon;
    uv_async_t async;
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    bool closing;         /* under the mutex */
    struct ask ask;       /* under the mutex */
    void *sample;         /* under the mutex */
    struct fli_buf text;  /* written by the loop; under the mutex */
    void *copy;           /* of the sample; the thread's */
    struct fli_buf out;   /* the thread's */
    struct fli_list open; /* struct client, the oldest first; the thread's */
    unsigned open_n;      /* in it */
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
};

/* ---- the loop's side ---- */

static void answer(struct metrics_listener *l)
{
    struct ask *a = &l->ask;
    struct fli_slice name = {a->name, a->name_len};
    fli_buf_clear(&l->text);
    a->rc = 0;
    switch (a->kind) {
    case ASK_LIVE:
        break;
    case ASK_SAMPLE:
        l->service.sample(l->service.ctx, l->sample);
        break;
    case ASK_READY:
        a->ready = l->service.ready(l->service.ctx, &l->text);
        break;
    case ASK_STATE:
        a->rc = l->service.state(l->service.ctx, a->path, name, &l->text);
        break;
    }
    a->state = ASK_ANSWERED;
}

static void async_cb(uv_async_t *async)
{
    struct metrics_listener *l = async->data;
    (void)pthread_mutex_lock(&l->mutex);
    if (l->ask.state == ASK_ASKED) {
        answer(l);
        (void)pthread_cond_signal(&l->answered);
    }
    (void)pthread_mutex_unlock(&l->mutex);
}

/* ---- the thread's side ---- */

static struct timespec answer_deadline(void)
{
    struct timespec t;
    uint64_t ns = uv_hrtime() + (uint64_t)LISTENER_ANSWER_MS * 1000000; /* CLOCK_MONOTONIC */
    t.tv_sec = (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* Asks the loop. False: it has not answered in time. True: ret is its answer, l->copy the sample,
 * and l->out the text. */
static bool ask_loop(struct metrics_listener *l, const struct ask *question, struct ask *ret)
{
    struct timespec deadline = answer_deadline();
    int rc = 0;
    fli_buf_clear(&l->out);
    (void)pthread_mutex_lock(&l->mutex);
    l->ask = *question;
    l->ask.state = ASK_ASKED;
    (void)uv_async_send(&l->async);
    while (l->ask.state == ASK_ASKED && !l->closing && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&l->answered, &l->mutex, &deadline);
    }
    bool done = l->ask.state == ASK_ANSWERED;
    if (done) {
        *ret = l->ask;
        if (l->ask.kind == ASK_SAMPLE) {
            memcpy(l->copy, l->sample, l->service.sample_size);
        }
        if (ret->rc == 0) {
            ret->rc = fli_buf_append(&l->out, l->text.data, l->text.len);
        }
    }
    l->ask.state = ASK_IDLE;
    (void)pthread_mutex_unlock(&l->mutex);
    return done;
}

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type,
                             const void *data, size_t len)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
    if (r == NULL) {
        return MHD_NO;
    }
    (void)MHD_add_response_header(r, "Content-Type", type);
    (void)MHD_add_response_header(r, "Cache-Control", "no-store");
    (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(r, "X-Frame-Options", "DENY");
    (void)MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    (void)MHD_add_response_header(r, "Content-Security-Policy",
                                  "default-src 'none'; script-src 'unsafe-inline'; style-src "
                                  "'unsafe-inline'; connect-src 'self'; img-src data:; "
                                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void)MHD_add_response_header(r, "Allow", "GET, HEAD");
    }
    enum MHD_Result queued = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result reply_text(struct MHD_Connection *c, unsigned status, const char *text)
{
    return reply(c, status, "text/plain; charset=utf-8", text, strlen(text));
}

#define LOOP_SILENT "the event loop has not answered within 800 ms\n"
_Static_assert(LISTENER_ANSWER_MS == 800, "what LOOP_SILENT says");

static enum MHD_Result serve_live(struct metrics_listener *l, struct MHD_Connection *c)
{
    struct ask got;
    return ask_loop(l, &(struct ask){.kind = ASK_LIVE}, &got) ? reply_text(c, 200, "ok\n")
                                                              : reply_text(c, 503, LOOP_SILENT);
}

static enum MHD_Result serve_ready(struct metrics_listener *l, struct MHD_Connection *c)
{
    struct ask got;
    if (!ask_loop(l, &(struct ask){.kind = ASK_READY}, &got)) {
        return reply_text(c, 503, LOOP_SILENT);
    }
    unsigned status = got.ready ? 200 : 503;
    /* `?verbose` has no value. */
    if (MHD_lookup_connection_value_n(c, MHD_GET_ARGUMENT_KIND, "verbose", 7, NULL, NULL) ==
        MHD_NO) {
        return reply_text(c, status, got.ready ? "ok\n" : "not ready; /readyz?verbose says why\n");
    }
    return reply(c, status, "text/plain; charset=utf-8", l->out.data, l->out.len);
}

static enum MHD_Result serve_metrics(struct metrics_listener *l, struct MHD_Connection *c)
{
    struct ask got;
    struct metrics_text t;
    bool answered = ask_loop(l, &(struct ask){.kind = ASK_SAMPLE}, &got);
    fli_buf_clear(&l->out);
    metrics_text_init(&t, &l->out);
    metrics_gauge(&t, "fencelock_loop_responding",
                  "1 when the event loop has answered this scrape in time; else what it counts is "
                  "missing here.",
                  answered);
    l->service.render(l->service.ctx, answered ? l->copy : NULL, &t);
    metrics_process(&t);
    return t.rc == 0 ? reply(c, 200, METRICS_CONTENT_TYPE, l->out.data, l->out.len)
                     : reply_text(c, 500, "out of memory\n");
}

static enum MHD_Result serve_state(struct metrics_listener *l, struct MHD_Connection *c,
                                   const char *path)
{
    struct ask question = {.kind = ASK_STATE};
    struct ask got;
    const char *name = NULL;
    size_t len = 0;
    if (MHD_lookup_connection_value_n(c, MHD_GET_ARGUMENT_KIND, "name", 4, &name, &len) ==
            MHD_YES &&
        name != NULL) {
        if (len > FL_NAME_MAX) {
            return reply_text(c, 400, "name: a lock's name has at most 255 bytes\n");
        }
        memcpy(question.name, name, len);
        question.name_len = len;
    }
    (void)snprintf(question.path, sizeof question.path, "%s", path);
    if (!ask_loop(l, &question, &got)) {
        return reply_text(c, 503, LOOP_SILENT);
    }
    if (got.rc == FL_ENOTFOUND) {
        return reply_text(c, 404, "there is no such thing here\n");
    }
    return got.rc != 0 ? reply_text(c, 500, "too much to tell\n")
                       : reply(c, 200, "application/json", l->out.data, l->out.len);
}

static enum MHD_Result serve_page(const struct metrics_listener *l, struct MHD_Connection *c)
{
    if (l->service.page == NULL || !l->names) {
        return reply_text(c, 200, "/metrics\n/livez\n/readyz\n/readyz?verbose\n");
    }
    return reply(c, 200, "text/html; charset=utf-8", l->service.page, l->service.page_len);
}

/* Whether the Host of a request is an address, localhost, or the name that was configured. */
static bool host_is_ours(const struct metrics_listener *l, struct MHD_Connection *c)
{
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    if (host == NULL) {
        return true; /* HTTP/1.0, which no browser speaks */
    }
    if (host[0] == '[') {
        return true;
    }
    size_t len = strcspn(host, ":");
    if (len > 0 && strspn(host, "0123456789.") == len) {
        return true;
    }
    return (len == 9 && strncasecmp(host, "localhost", 9) == 0) ||
           (len == strlen(l->host) && strncasecmp(host, l->host, len) == 0);
}

static enum MHD_Result serve(struct metrics_listener *l, struct MHD_Connection *c, const char *path)
{
    if (strcmp(path, "/metrics") == 0) {
        return serve_metrics(l, c);
    }
    if (strcmp(path, "/livez") == 0) {
        return serve_live(l, c);
    }
    if (strcmp(path, "/readyz") == 0) {
        return serve_ready(l, c);
    }
    bool api = strncmp(path, "/api/", 5) == 0 && l->service.state != NULL && l->names;
    if (!api && strcmp(path, "/") != 0) {
        return reply_text(c, 404, "here are /metrics, /livez and /readyz\n");
    }
    if (!host_is_ours(l, c)) {
        return reply_text(c, 403, "use the address of this listener, not another name for it\n");
    }
    return api ? serve_state(l, c, path + 5) : serve_page(l, c);
}

static enum MHD_Result request_cb(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_len, void **state)
{
    static char seen;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        *upload_len = 0;
        return reply_text(c, MHD_HTTP_METHOD_NOT_ALLOWED,
                          "only GET: nothing can be changed here\n");
    }
    if (*state == NULL) { /* the headers are read; a body, which is ignored, comes next */
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_len > 0) {
        *upload_len = 0;
        return MHD_YES;
    }
    return serve(cls, c, url);
}

/* ---- connections, on the thread ---- */

/* The oldest connection makes room. So clients that connect and ask nothing, or send a byte now and
 * then, take the places of one another, and not that of a probe. The library sees the end of one
 * that was cut, and closes it. */
static void make_room(struct metrics_listener *l)
{
    if (l->open_n > LISTENER_CONNECTIONS_MAX - LISTENER_CUT_MAX) {
        struct fli_list *oldest = fli_list_pop(&l->open);
        FLI_ASSERT(oldest != NULL);
        (void)shutdown(FLI_CONTAINER_OF(oldest, struct client, link)->fd, SHUT_RDWR);
        l->open_n--;
    }
}

static void connection_cb(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct metrics_listener *l = cls;
    struct client *client = *context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        client = fli_xcalloc(1, sizeof *client);
        client->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        fli_list_init(&client->link);
        fli_list_push(&l->open, &client->link);
        l->open_n++;
        *context = client;
        make_room(l);
        return;
    }
    if (fli_list_linked(&client->link)) {
        fli_list_remove(&client->link);
        l->open_n--;
    }
    free(client);
    *context = NULL;
}

/* ---- start and end ---- */

static int open_socket(const char *host, uint16_t port, char *errmsg, size_t errmsg_size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *all = NULL;
    char text[8];
    (void)snprintf(text, sizeof text, "%u", (unsigned)port);
    int rc = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, text, &hints, &all);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "--metrics: '%s' is no host of this machine: %s", host,
                       gai_strerror(rc));
        return -1;
    }
    int fd = fli_listen_first(all, BACKLOG);
    rc = errno;
    freeaddrinfo(all);
    if (fd < 0) {
        (void)snprintf(errmsg, errmsg_size, "--metrics: cannot listen on %s port %u: %s%s", host,
                       (unsigned)port, strerror(rc), fli_listen_remedy(strerror(rc)));
    }
    return fd;
}

static struct MHD_Daemon *start_thread(struct metrics_listener *l, int fd)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all); /* signals go to the main thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, l->port, NULL, NULL, request_cb, l,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, LISTENER_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, LISTENER_IDLE_S, MHD_OPTION_NOTIFY_CONNECTION, connection_cb,
        l, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(16 * 1024), MHD_OPTION_END);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return d;
}

static void init_waiting(struct metrics_listener *l)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    rc = rc != 0 ? rc : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = rc != 0 ? rc : pthread_cond_init(&l->answered, &attr);
    rc = rc != 0 ? rc : pthread_mutex_init(&l->mutex, NULL);
    FLI_ASSERT(rc == 0);
    (void)pthread_condattr_destroy(&attr);
}

int metrics_listener_create(uv_loop_t *loop, const char *host, uint16_t port, bool names,
                            const struct metrics_service *service, struct metrics_listener **ret,
                            char *errmsg, size_t errmsg_size)
{
    int fd = open_socket(host, port, errmsg, errmsg_size);
    if (fd < 0) {
        return FL_ESYSTEM;
    }
    struct metrics_listener *l = fli_xcalloc(1, sizeof *l);
    fli_list_init(&l->open);
    l->service = *service;
    l->names = names;
    l->port = fli_listen_port(fd);
    (void)snprintf(l->host, sizeof l->host, "%s", host);
    l->sample = fli_xcalloc(1, service->sample_size);
    l->copy = fli_xcalloc(1, service->sample_size);
    fli_buf_init(&l->text, LISTENER_TEXT_MAX);
    fli_buf_init(&l->out, LISTENER_TEXT_MAX);
    init_waiting(l);
    int rc = uv_async_init(loop, &l->async, async_cb);
    FLI_ASSERT(rc == 0); /* the loop has its pipe already, or there is no loop */
    l->async.data = l;
    l->daemon = start_thread(l, fd);
    if (l->daemon == NULL) {
        (void)snprintf(errmsg, errmsg_size, "--metrics: cannot start the thread of its listener");
        return FL_ESYSTEM; /* the handle ends with the process, as others of a failed start do */
    }
    *ret = l;
    return 0;
}

uint16_t metrics_listener_port(const struct metrics_listener *l)
{
    return l->port;
}

static void closed_cb(uv_handle_t *handle)
{
    struct metrics_listener *l = handle->data;
    l->stop_cb(l->stop_ctx);
}

void metrics_listener_stop(struct metrics_listener *l, void (*cb)(void *ctx), void *ctx)
{
    FLI_ASSERT(l->daemon != NULL);
    l->stop_cb = cb;
    l->stop_ctx = ctx;
    (void)pthread_mutex_lock(&l->mutex);
    l->closing = true;
    (void)pthread_cond_signal(&l->answered);
    (void)pthread_mutex_unlock(&l->mutex);
    MHD_stop_daemon(l->daemon);
    l->daemon = NULL;
    uv_close((uv_handle_t *)&l->async, closed_cb);
}

void metrics_listener_destroy(struct metrics_listener *l)
{
    if (l == NULL) {
        return;
    }
    FLI_ASSERT(l->daemon == NULL);
    (void)pthread_cond_destroy(&l->answered);
    (void)pthread_mutex_destroy(&l->mutex);
    fli_buf_fini(&l->text);
    fli_buf_fini(&l->out);
    free(l->sample);
    free(l->copy);
    free(l);
}
