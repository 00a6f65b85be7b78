/* server.c: see server.h. */
#include "redlock/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "redlock/quorum.h"

#define BACKOFF_MIN_MS UINT64_C(50)
#define BACKOFF_MAX_MS UINT64_C(2000)
#define STEADY_MS UINT64_C(1000) /* a connection that worked so long is opened again at once */
#define READ_BYTES 16384u

/* A file descriptor and its watcher, which outlives the connection until libuv lets go of it. */
struct fli_socket {
    uv_poll_t poll;
    struct fli_server *server; /* NULL once dropped */
    struct fli_server_owner *owner;
    int fd;
    int watched; /* events */
    bool connected;
};

static uint64_t random_below(uint64_t n)
{
    uint64_t r;
    fli_random(&r, sizeof r);
    return r % n;
}

/* ---- closing --------------------------------------------------------------------------------- */

static void on_socket_closed(uv_handle_t *handle)
{
    struct fli_socket *socket = handle->data;
    struct fli_server_owner *owner = socket->owner;
    owner->enter(owner);
    free(socket);
    owner->handles--;
    owner->leave(owner);
}

static void close_socket(struct fli_server *s)
{
    struct fli_socket *socket = s->socket;
    s->socket = NULL;
    if (socket != NULL) {
        socket->server = NULL;
        (void)uv_poll_stop(&socket->poll);
        uv_close((uv_handle_t *)&socket->poll, on_socket_closed);
        (void)close(socket->fd);
    }
}

static void answer_all(struct fli_server *s)
{
    struct fli_list gone;
    fli_list_init(&gone);
    fli_list_splice(&gone, &s->pending);
    s->pending_len = 0;
    struct fli_list *node;
    while ((node = fli_list_pop(&gone)) != NULL) {
        struct fli_redis_request *q = FLI_CONTAINER_OF(node, struct fli_redis_request, node);
        q->answered(q, s, NULL);
    }
}

/* Ends the connection. error: why, unless a more telling one is there already. */
static void drop(struct fli_server *s, enum fl_redlock_status status, const char *error)
{
    bool was_ready = s->state == FLI_SERVER_READY;
    if (!s->doomed) {
        s->status = status;
        fli_copy_text(s->error, sizeof s->error, error, strlen(error));
    }
    s->doomed = false;
    s->state = FLI_SERVER_DOWN;
    s->settled = true;
    close_socket(s);
    redisReaderFree(s->reader);
    s->reader = NULL;
    fli_buf_fini(&s->out);
    fli_tls_destroy(s->tls);
    s->tls = NULL;
    fli_buf_fini(&s->plain);
    fli_buf_fini(&s->cipher);
    uint64_t now_ms = fli_clock_ms();
    if (was_ready && now_ms - s->opened_ms >= STEADY_MS) {
        s->failures = 0;
        s->retry_ms = now_ms;
    } else {
        uint64_t shift = s->failures < 10 ? s->failures : 10;
        uint64_t pause_ms = BACKOFF_MIN_MS << shift;
        pause_ms = pause_ms < BACKOFF_MAX_MS ? pause_ms : BACKOFF_MAX_MS;
        s->retry_ms = now_ms + pause_ms / 2 + random_below(pause_ms / 2 + 1);
        s->failures++;
    }
    answer_all(s);
    s->owner->down(s->owner, s);
}

/* From inside an answer: the connection goes when the answers at hand are through. */
static void doom(struct fli_server *s, enum fl_redlock_status status, const char *error, size_t len)
{
    if (!s->doomed) {
        s->doomed = true;
        s->status = status;
        fli_copy_text(s->error, sizeof s->error, error, len);
    }
}

void fli_server_distrust(struct fli_server *s)
{
    static const char text[] = "an answer of an unexpected type";
    doom(s, FL_REDLOCK_ERROR, text, sizeof text - 1);
}

void fli_server_init(struct fli_server *s, struct fli_server_owner *owner, uint32_t index)
{
    s->owner = owner;
    s->index = index;
    s->state = FLI_SERVER_DOWN;
    s->status = FL_REDLOCK_DOWN;
    fli_list_init(&s->pending);
    fli_list_init(&s->owed);
    fli_buf_init(&s->out, FLI_SERVER_OUT_MAX);
    fli_buf_init(&s->plain, FLI_TLS_PLAIN_MAX(READ_BYTES));
    fli_buf_init(&s->cipher, FLI_TLS_CIPHER_MAX(FLI_SERVER_OUT_MAX) + FLI_TLS_SHAKE_MAX);
    fli_facts_init(&s->facts);
}

void fli_server_close(struct fli_server *s)
{
    if (s->socket != NULL) {
        drop(s, FL_REDLOCK_DOWN, "closed");
    }
    s->state = FLI_SERVER_CLOSED;
    free(s->username);
    free(s->password);
    s->username = NULL;
    s->password = NULL;
}

/* ---- logging in ------------------------------------------------------------------------------ */

enum step {
    STEP_AUTH,
    STEP_SELECT,
    STEP_SERVER,
    STEP_REPLICATION,
    STEP_COMMANDS,
    STEP_SCRIPT,
};

struct login_request {
    struct fli_redis_request base;
    enum step step;
};

/* The log-in is answered: what is known of the server, and whether it counts. */
static void logged_in(struct fli_server *s)
{
    uint64_t now_ms = fli_clock_ms();
    bool replica = s->facts.role[0] != '\0' && strcmp(s->facts.role, "master") != 0;
    uint64_t uptime_s = s->facts.uptime_s < 0 || s->was_replica ? 0 : (uint64_t)s->facts.uptime_s;
    s->was_replica = replica;
    s->counts_from_ms = s->owner->restarts_are_safe
                            ? 0
                            : fli_counts_from_ms(now_ms, uptime_s, s->owner->max_ttl_ms);
    s->facts.heard = true;
    s->settled = true;
    if (replica) {
        /* Asked again after the pause, since it may become a master. */
        doom(s, FL_REDLOCK_REPLICA, "it is a replica", 15);
        return;
    }
    s->state = FLI_SERVER_READY;
    s->status = FL_REDLOCK_YES;
    s->error[0] = '\0';
    s->owner->ready(s->owner, s);
}

static void take_login(struct fli_server *s, enum step step, const redisReply *reply)
{
    bool failed = reply->type == REDIS_REPLY_ERROR;
    switch (step) {
    case STEP_AUTH:
    case STEP_SELECT:
        if (failed) {
            doom(s, FL_REDLOCK_ERROR, reply->str, reply->len);
        }
        break;
    case STEP_SERVER:
    case STEP_REPLICATION:
        if (reply->type == REDIS_REPLY_STRING) {
            fli_facts_take_info(&s->facts, reply->str, reply->len);
        } else if (fli_is_error(reply, "NOAUTH")) {
            doom(s, FL_REDLOCK_ERROR, reply->str, reply->len);
        }
        break;
    case STEP_COMMANDS:
        s->delete_how = fli_delete_how(reply);
        break;
    case STEP_SCRIPT:
        break; /* When it is not permitted, the text is sent each time. */
    }
}

static void on_login_answer(struct fli_redis_request *q, struct fli_server *s,
                            const redisReply *reply)
{
    struct login_request *login = FLI_CONTAINER_OF(q, struct login_request, base);
    enum step step = login->step;
    free(login);
    if (reply == NULL || s->doomed) {
        return;
    }
    take_login(s, step, reply);
    FLI_ASSERT(s->login_left > 0);
    s->login_left--;
    if (s->login_left == 0 && !s->doomed) {
        logged_in(s);
    }
}

static void enqueue(struct fli_server *s, struct fli_redis_request *q, uint64_t now_ns)
{
    q->sent_ns = now_ns;
    fli_list_push(&s->pending, &q->node);
    s->pending_len++;
}

static int ask(struct fli_server *s, enum step step, size_t argc, const char *const *argv)
{
    struct login_request *login = calloc(1, sizeof *login);
    if (login == NULL) {
        return FL_ENOMEM;
    }
    int rc = fli_put_words(&s->out, argc, argv);
    if (rc != 0) {
        free(login);
        return rc;
    }
    login->base.answered = on_login_answer;
    login->step = step;
    s->login_left++;
    enqueue(s, &login->base, fli_clock_ns());
    return 0;
}

static int ask_auth(struct fli_server *s)
{
    const char *const named[] = {"AUTH", s->username, s->password};
    const char *const plain[] = {"AUTH", s->password};
    if (s->password == NULL) {
        return 0;
    }
    return s->username != NULL ? ask(s, STEP_AUTH, 3, named) : ask(s, STEP_AUTH, 2, plain);
}

static int ask_select(struct fli_server *s)
{
    char number[12];
    (void)snprintf(number, sizeof number, "%u", s->database);
    const char *const select[] = {"SELECT", number};
    return s->database == 0 ? 0 : ask(s, STEP_SELECT, 2, select);
}

/* Everything at once: the log-in costs one round trip. */
static int start_login(struct fli_server *s)
{
    static const char *const server[] = {"INFO", "server"};
    static const char *const replication[] = {"INFO", "replication"};
    static const char *const commands[] = {"COMMAND", "INFO", "delex", "delifeq"};
    static const char *const release[] = {"SCRIPT", "LOAD", fli_release_script};
    static const char *const extend[] = {"SCRIPT", "LOAD", fli_extend_script};
    s->login_left = 0;
    s->delete_how = FLI_DELETE_SCRIPT;
    fli_facts_init(&s->facts);
    int rc = ask_auth(s);
    rc = rc != 0 ? rc : ask_select(s);
    rc = rc != 0 ? rc : ask(s, STEP_SERVER, 2, server);
    rc = rc != 0 ? rc : ask(s, STEP_REPLICATION, 2, replication);
    rc = rc != 0 ? rc : ask(s, STEP_COMMANDS, 4, commands);
    rc = rc != 0 ? rc : ask(s, STEP_SCRIPT, 3, release);
    return rc != 0 ? rc : ask(s, STEP_SCRIPT, 3, extend);
}

/* As far as the kernel takes it. 0, or an errno. */
static int send_out(const struct fli_socket *socket, struct fli_buf *b)
{
    while (b->len > 0) {
        ssize_t n = send(socket->fd, b->data, b->len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0) {
            fli_buf_consume(b, (size_t)n);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* hiredis would allocate for as many elements as a server announces. */
static void *make_array(const redisReadTask *task, fli_array_len n)
{
    struct fli_server *s = task->privdata;
    if (n < 0 || (uint64_t)n > FLI_SERVER_ARRAY_MAX) {
        return NULL;
    }
    return s->make_array(task, n);
}

static redisReader *create_reader(struct fli_server *s)
{
    redisReader *reader = redisReaderCreate();
    if (reader != NULL) {
        s->functions = *reader->fn;
        s->make_array = s->functions.createArray;
        s->functions.createArray = make_array;
        reader->fn = &s->functions;
        reader->privdata = s;
    }
    return reader;
}

/* Hands out whole answers. False: the connection has to go, and why is known. */
static bool hand_out(struct fli_server *s)
{
    while (!s->doomed) {
        void *reply = NULL;
        if (redisReaderGetReply(s->reader, &reply) != REDIS_OK) {
            doom(s, FL_REDLOCK_ERROR, s->reader->errstr, strlen(s->reader->errstr));
            break;
        }
        if (reply == NULL) {
            break;
        }
        struct fli_list *node = fli_list_pop(&s->pending);
        if (node == NULL) {
            const redisReply *text = reply;
            bool is_text = text->type == REDIS_REPLY_ERROR;
            static const char odd[] = "it says something unasked";
            doom(s, FL_REDLOCK_ERROR, is_text ? text->str : odd,
                 is_text ? text->len : sizeof odd - 1);
        } else {
            s->pending_len--;
            struct fli_redis_request *q = FLI_CONTAINER_OF(node, struct fli_redis_request, node);
            q->answered(q, s, reply);
        }
        freeReplyObject(reply);
    }
    if (s->reader->len - s->reader->pos > FLI_SERVER_REPLY_MAX) {
        static const char large[] = "an answer is too large";
        doom(s, FL_REDLOCK_ERROR, large, sizeof large - 1);
    }
    return !s->doomed;
}

/* The bytes of a connection with TLS. False: no connection any more. */
static bool decrypt(struct fli_server *s, const void *bytes, size_t len)
{
    bool was_open = fli_tls_state(s->tls) != FLI_TLS_SHAKING;
    if (fli_tls_read(s->tls, bytes, len, &s->plain, &s->cipher) != 0) {
        char error[FL_REDLOCK_ERROR_MAX];
        (void)snprintf(error, sizeof error, "TLS: %.80s", fli_tls_error(s->tls));
        send_out(s->socket, &s->cipher); /* its last word, as far as it goes */
        drop(s, FL_REDLOCK_ERROR, error);
        return false;
    }
    if (!was_open && fli_tls_state(s->tls) != FLI_TLS_SHAKING && start_login(s) != 0) {
        drop(s, FL_REDLOCK_DOWN, "out of memory");
        return false;
    }
    bool fed = redisReaderFeed(s->reader, (const char *)s->plain.data, s->plain.len) == REDIS_OK;
    fli_buf_clear(&s->plain);
    if (!fed || !hand_out(s)) {
        drop(s, FL_REDLOCK_ERROR, "out of memory");
        return false;
    }
    if (fli_tls_state(s->tls) == FLI_TLS_ENDED) {
        drop(s, FL_REDLOCK_DOWN, "it closed the connection");
        return false;
    }
    return true;
}

/* False: nothing more is there, or no connection any more. */
static bool read_some(struct fli_server *s)
{
    char bytes[READ_BYTES];
    ssize_t n = recv(s->socket->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (n <= 0) {
        drop(s, FL_REDLOCK_DOWN, n == 0 ? "it closed the connection" : strerror(errno));
        return false;
    }
    if (s->tls != NULL) {
        return decrypt(s, bytes, (size_t)n) && (size_t)n == sizeof bytes;
    }
    if (redisReaderFeed(s->reader, bytes, (size_t)n) != REDIS_OK || !hand_out(s)) {
        drop(s, FL_REDLOCK_ERROR, "out of memory");
        return false;
    }
    return (size_t)n == sizeof bytes;
}

void fli_server_read(struct fli_server *s)
{
    bool more = s->socket != NULL && s->socket->connected;
    while (more) {
        more = read_some(s);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct fli_socket *socket, int events)
{
    if (socket->watched != events) {
        socket->watched = events;
        (void)uv_poll_start(&socket->poll, events, on_poll);
    }
}

void fli_server_flush(struct fli_server *s)
{
    struct fli_socket *socket = s->socket;
    if (socket == NULL || !socket->connected) {
        return;
    }
    if (s->tls != NULL && s->out.len > 0 && fli_tls_state(s->tls) == FLI_TLS_OPEN) {
        if (fli_tls_write(s->tls, s->out.data, s->out.len, &s->cipher) != 0) {
            drop(s, FL_REDLOCK_DOWN, fli_tls_error(s->tls));
            return;
        }
        fli_buf_clear(&s->out);
    }
    struct fli_buf *from = s->tls != NULL ? &s->cipher : &s->out;
    int error = send_out(socket, from);
    if (error != 0) {
        drop(s, FL_REDLOCK_DOWN, strerror(error));
        return;
    }
    watch(socket, from->len > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

struct fli_buf *fli_server_out(struct fli_server *s)
{
    FLI_ASSERT(s->state == FLI_SERVER_READY);
    return s->doomed || s->pending_len >= FLI_SERVER_PENDING_MAX ? NULL : &s->out;
}

void fli_server_put(struct fli_server *s, struct fli_redis_request *q, uint64_t now_ns)
{
    enqueue(s, q, now_ns);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Files that have changed are read first; when they are bad the old ones stay. */
static void begin_tls(struct fli_server *s)
{
    struct fli_server_owner *o = s->owner;
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    if (fli_tls_context_changed(o->tls)) {
        int rc = fli_tls_context_reload(o->tls, errmsg, sizeof errmsg);
        (void)rc;
    }
    if (fli_tls_create(o->tls, o->tls_name[0] != '\0' ? o->tls_name : s->host, &s->tls) != 0) {
        drop(s, FL_REDLOCK_DOWN, "out of memory");
        return;
    }
    if (fli_tls_read(s->tls, NULL, 0, &s->plain, &s->cipher) != 0) {
        drop(s, FL_REDLOCK_DOWN, fli_tls_error(s->tls));
    }
}

static void connected(struct fli_server *s)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(s->socket->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) {
        error = errno;
    }
    if (error != 0) {
        drop(s, FL_REDLOCK_DOWN, strerror(error));
        return;
    }
    s->socket->connected = true;
    if (s->owner->tls != NULL && s->host[0] != '\0') {
        begin_tls(s);
    } else if (start_login(s) != 0) {
        drop(s, FL_REDLOCK_DOWN, "out of memory");
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct fli_socket *socket = poll->data;
    struct fli_server *s = socket->server;
    struct fli_server_owner *owner = socket->owner;
    if (s == NULL) {
        return;
    }
    owner->enter(owner);
    if (!socket->connected) {
        connected(s);
    } else if (status < 0) {
        /* What came before it broke may say why. */
        while (s->socket == socket && read_some(s)) {
        }
        if (s->socket == socket) {
            drop(s, FL_REDLOCK_DOWN, uv_strerror(status));
        }
    } else if ((events & UV_READABLE) != 0) {
        (void)read_some(s);
    }
    owner->leave(owner); /* flushes */
}

static int open_socket(struct fli_server *s)
{
    int one = 1;
    int fd = socket(s->where.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (s->where.ss_family != AF_UNIX) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    const struct sockaddr *where = (const struct sockaddr *)&s->where;
    if (connect(fd, where, s->where_len) != 0 && errno != EINPROGRESS) {
        int why = errno;
        (void)close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

static int watch_socket(struct fli_server *s, int fd)
{
    struct fli_socket *socket = calloc(1, sizeof *socket);
    if (socket == NULL) {
        return FL_ENOMEM;
    }
    if (uv_poll_init(s->owner->loop, &socket->poll, fd) != 0) {
        free(socket);
        return FL_ESYSTEM;
    }
    socket->poll.data = socket;
    socket->server = s;
    socket->owner = s->owner;
    socket->fd = fd;
    s->socket = socket;
    s->owner->handles++;
    watch(socket, UV_WRITABLE);
    return 0;
}

static void start(struct fli_server *s, uint64_t now_ms)
{
    s->state = FLI_SERVER_OPENING;
    s->opened_ms = now_ms;
    s->reader = create_reader(s);
    if (s->reader == NULL) {
        drop(s, FL_REDLOCK_DOWN, "out of memory");
        return;
    }
    int fd = open_socket(s);
    if (fd < 0) {
        drop(s, FL_REDLOCK_DOWN, strerror(errno));
    } else if (watch_socket(s, fd) != 0) {
        (void)close(fd);
        drop(s, FL_REDLOCK_DOWN, "out of memory");
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t fli_server_silent_ms(const struct fli_server *s, uint64_t now_ns)
{
    const struct fli_list *first = fli_list_first(&s->pending);
    if (first == NULL) {
        return 0;
    }
    uint64_t sent_ns = FLI_CONTAINER_OF(first, struct fli_redis_request, node)->sent_ns;
    return now_ns > sent_ns ? (now_ns - sent_ns) / UINT64_C(1000000) : 0;
}

uint64_t fli_server_due_ms(const struct fli_server *s)
{
    const struct fli_list *first = fli_list_first(&s->pending);
    switch (s->state) {
    case FLI_SERVER_DOWN:
        return s->retry_ms;
    case FLI_SERVER_OPENING:
        return s->opened_ms + s->owner->connect_ms;
    case FLI_SERVER_READY:
        if (first != NULL) {
            uint64_t ns = FLI_CONTAINER_OF(first, struct fli_redis_request, node)->sent_ns;
            return ns / UINT64_C(1000000) + s->owner->hung_ms + 1;
        }
        break;
    case FLI_SERVER_CLOSED:
        break;
    }
    return UINT64_MAX;
}

void fli_server_tick(struct fli_server *s, uint64_t now_ms)
{
    if (now_ms < fli_server_due_ms(s)) {
        return;
    }
    if (s->state == FLI_SERVER_DOWN) {
        start(s, now_ms);
    } else if (s->state == FLI_SERVER_OPENING) {
        drop(s, FL_REDLOCK_DOWN,
             s->socket->connected ? "no answer to the log-in" : "no connection in time");
    } else {
        drop(s, FL_REDLOCK_SILENT, "no answer for too long");
    }
}
