/* strict.c: see strict.h.
 *
 *  asks: [ sent to the node, unanswered: `put` of them | not yet sent ]
 *
 * Answers and deadlines come in the order of the questions, so only the head of the list can get a
 * verdict. Whenever a connection ends, `put` goes back to 0 and the next connection begins at the
 * head.
 *
 * A connection has a struct of its own, which frees itself when libuv has released it: it is
 * abandoned at once and never waited for. */
#include "store/strict.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "net/address.h"
#include "wire/text.h"

#define PAUSE_MIN_MS 20u
#define PAUSE_MAX_MS 500u
#define LINE_MAX_BYTES 4096u /* of one answer: an error line is the longest */
#define CHECK_MAX_BYTES (FL_NAME_MAX + 96u)
#define WHY_SIZE 320u
#define STRICT_LOGIN_MAX 768u
#define OUT_MAX_BYTES ((size_t)STRICT_WINDOW * CHECK_MAX_BYTES + STRICT_LOGIN_MAX)

struct connection {
    struct strict *owner; /* NULL: abandoned */
    uv_tcp_t tcp;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write;
    bool resolving, tcp_open, connected, writing; /* `connected` includes TLS's handshake */
    bool greeted, owes_login;                     /* the login was sent; owes_login: its answer is
                                                     still to come */
    struct fli_tls *tls;                          /* NULL: without TLS */
    struct fli_buf plain, cipher;                 /* with TLS: decrypted input, output to be
                                                     sent */
    char raw[LINE_MAX_BYTES];                     /* with TLS: read from the socket */
    size_t in_len;
    char in[LINE_MAX_BYTES];
    struct fli_buf out;     /* encoded, not yet given to the kernel */
    struct fli_buf sending; /* of `write` */
};

struct node {
    char host[NET_HOST_MAX];
    uint16_t port;
};

struct strict {
    uv_loop_t *loop;
    struct strict_config config;
    struct node nodes[STRICT_NODES_MAX];
    unsigned nodes_n;
    unsigned at;       /* the node in use, or the next to try */
    unsigned failures; /* in a row */
    unsigned pause_ms; /* the last pause */
    struct connection *connection;
    struct fli_list asks;
    size_t put;
    struct fli_list *next;   /* the first that is not sent; &asks when all are */
    uint64_t patience_at_ms; /* when the connection is given up; 0: no answer is due */
    uint64_t retry_at_ms;    /* not to connect before; 0: at any time */
    uv_timer_t timer;
    uint64_t timer_at_ms;
    uv_idle_t prompt; /* active while new questions wait for the end of the turn */
    unsigned closing; /* handles still to be closed by destroy */
    struct strict_counts counts;
    bool troubled; /* that no node answers was logged */
    bool stopped;
    struct fli_tls_context *tls; /* NULL: without */
    struct fli_buf login;        /* the request; empty: without a login */
};

static void work(struct strict *s);

/* ---- connections ---- */

static void connection_free(struct connection *c)
{
    fli_buf_fini(&c->out);
    fli_buf_fini(&c->sending);
    fli_buf_fini(&c->plain);
    fli_buf_fini(&c->cipher);
    fli_tls_destroy(c->tls);
    free(c);
}

static void closed_cb(uv_handle_t *handle)
{
    connection_free(handle->data);
}

/* The owner gets no more from it. Its callbacks that are still due free it. */
static void abandon(struct connection *c)
{
    c->owner = NULL;
    if (c->tcp_open) {
        uv_close((uv_handle_t *)&c->tcp, closed_cb);
    } else if (c->resolving) {
        (void)uv_cancel((uv_req_t *)&c->resolve); /* if it is too late, its callback comes
                                                     anyway */
    } else {
        connection_free(c);
    }
}

/* ---- verdicts ---- */

static struct strict_ask *head(const struct strict *s)
{
    struct fli_list *first = fli_list_first(&s->asks);
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct strict_ask, link);
}

static void decide(struct strict *s, enum strict_verdict verdict)
{
    struct strict_ask *ask = head(s);
    FLI_ASSERT(ask != NULL);
    s->next = s->next == &ask->link ? ask->link.next : s->next;
    fli_list_remove(&ask->link);
    s->put -= s->put > 0 ? 1 : 0;
    s->counts.refused += verdict == STRICT_NOTHELD;
    s->counts.unreachable += verdict == STRICT_UNKNOWN;
    s->config.verdict(s->config.ctx, ask, verdict);
}

static unsigned patience_ms(const struct strict *s)
{
    return s->nodes_n > 1 ? s->config.timeout_ms / 2 : s->config.timeout_ms;
}

static void log_message(const struct strict *s, const char *fmt, ...) FLI_PRINTF(2, 3);
static void log_message(const struct strict *s, const char *fmt, ...)
{
    char message[WHY_SIZE + NET_ADDRESS_MAX + 128u];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (s->config.log != NULL) {
        s->config.log(s->config.ctx, 3, message);
    }
}

static void node_name(const struct strict *s, char name[NET_ADDRESS_MAX])
{
    const struct node *n = &s->nodes[s->at];
    (void)net_address_join(n->host, n->port, name, NET_ADDRESS_MAX);
}

/* All nodes in a row have failed: the next attempt must wait. */
static void back_off(struct strict *s, const char *why)
{
    char name[NET_ADDRESS_MAX];
    if (!s->troubled) {
        s->troubled = true;
        node_name(s, name);
        log_message(s, "strict mode: the lock service does not answer (%s: %s)", name, why);
    }
    s->failures = 0;
    s->pause_ms = s->pause_ms == 0 ? PAUSE_MIN_MS : s->pause_ms * 2;
    s->pause_ms = s->pause_ms > PAUSE_MAX_MS ? PAUSE_MAX_MS : s->pause_ms;
    s->retry_at_ms = fli_clock_ms() + s->pause_ms;
}

/* Gives up the connection; the next attempt uses the next node. */
static void send_out(struct strict *s);
static void fail(struct strict *s, const char *fmt, ...) FLI_PRINTF(2, 3);
static void fail(struct strict *s, const char *fmt, ...)
{
    char why[WHY_SIZE];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    FLI_ASSERT(s->connection != NULL);
    abandon(s->connection);
    s->connection = NULL;
    s->put = 0;
    s->next = s->asks.next;
    s->patience_at_ms = 0;
    /* The end of an idle connection does not count as a failure. */
    if (!fli_list_empty(&s->asks) && ++s->failures >= s->nodes_n) {
        back_off(s, why);
    }
    s->at = (s->at + 1) % s->nodes_n;
}

static void succeed(struct strict *s)
{
    s->failures = 0;
    s->pause_ms = 0;
    if (s->troubled) {
        s->troubled = false;
        log_message(s, "strict mode: the lock service answers again");
    }
}

/* ---- answers ---- */

/* Takes one line without its line end. False: the connection has failed. */
static bool take_answer(struct strict *s, const char *line, size_t len)
{
    struct connection *c = s->connection;
    bool is_one = len == 2 && memcmp(line, ":1", 2) == 0;
    if (c->owes_login && len == 3 && memcmp(line, "+OK", 3) == 0) {
        c->owes_login = false;
        return true;
    }
    bool is_zero = len == 2 && memcmp(line, ":0", 2) == 0;
    static const char noperm[] = "-NOPERM ";
    bool denied = len >= sizeof noperm - 1 && memcmp(line, noperm, sizeof noperm - 1) == 0;
    if (c->owes_login || (!is_one && !is_zero && !denied)) {
        char quoted[FLI_QUOTE_SIZE];
        struct fli_slice answer = {(const uint8_t *)line, len};
        fli_quote(quoted, sizeof(quoted), &answer);
        fail(s, c->owes_login ? "it refused the login: %s" : "it answered %s", quoted);
        return false;
    }
    const struct strict_ask *ask = head(s);
    if (s->put == 0 || ask == NULL) {
        fail(s, "it answered what was not asked");
        return false;
    }
    uint64_t now = fli_clock_ms();
    succeed(s);
    s->patience_at_ms = s->put > 1 ? now + patience_ms(s) : 0;
    /* This process may have been stopped for long while the answer waited in the socket. */
    if (now >= ask->due_ms || denied) { /* this user may not see that lock */
        decide(s, STRICT_UNKNOWN);
    } else {
        decide(s, is_one ? STRICT_HELD : STRICT_NOTHELD);
    }
    return true;
}

static void take_answers(struct strict *s)
{
    struct connection *c = s->connection;
    size_t at = 0;
    const char *end;
    while ((end = memchr(c->in + at, '\n', c->in_len - at)) != NULL) {
        size_t len = (size_t)(end - (c->in + at));
        size_t text = len > 0 && end[-1] == '\r' ? len - 1 : len;
        if (!take_answer(s, c->in + at, text)) {
            return; /* c is gone */
        }
        at += len + 1;
    }
    c->in_len -= at;
    memmove(c->in, c->in + at, c->in_len);
    if (c->in_len == sizeof(c->in)) {
        fail(s, "it answered without an end");
    }
}

static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct connection *c = handle->data;
    (void)suggested;
    if (c->tls != NULL) {
        *ret = uv_buf_init(c->raw, sizeof(c->raw));
        return;
    }
    *ret = uv_buf_init(c->in + c->in_len, (unsigned)(sizeof(c->in) - c->in_len));
}

/* Handles decrypted bytes, in as many pieces as the buffer needs. */
static void take_plain(struct strict *s)
{
    struct connection *c = s->connection;
    size_t at = 0;
    while (s->connection == c && at < c->plain.len) {
        size_t room = sizeof(c->in) - c->in_len;
        size_t left = c->plain.len - at;
        size_t n = left < room ? left : room;
        memcpy(c->in + c->in_len, c->plain.data + at, n);
        c->in_len += n;
        at += n;
        take_answers(s);
    }
    if (s->connection == c) {
        fli_buf_clear(&c->plain);
    }
}

static void decrypt(struct strict *s, const void *data, size_t len)
{
    struct connection *c = s->connection;
    int rc = fli_tls_read(c->tls, data, len, &c->plain, &c->cipher);
    if (rc != 0) {
        fail(s, "TLS: %s", fli_tls_error(c->tls));
        return;
    }
    if (!c->connected && fli_tls_state(c->tls) == FLI_TLS_OPEN) {
        c->connected = true;
        s->patience_at_ms = 0;
    }
    bool ended = fli_tls_state(c->tls) == FLI_TLS_ENDED;
    take_plain(s);
    if (s->connection != c) {
        return; /* c is gone */
    }
    if (ended) {
        fail(s, "it closed the connection");
    } else {
        send_out(s);
    }
}

static void read_cb(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    struct strict *s = c->owner;
    (void)buf;
    if (s == NULL || n == 0) {
        return;
    }
    if (n < 0) {
        fail(s, "%s", uv_strerror((int)n));
    } else if (c->tls != NULL) {
        decrypt(s, c->raw, (size_t)n);
    } else {
        c->in_len += (size_t)n;
        take_answers(s);
    }
    work(s);
}

/* ---- questions ---- */

static int encode(struct fli_buf *b, const struct strict_ask *ask)
{
    char token[24];
    int rc = fli_buf_reserve(b, CHECK_MAX_BYTES);
    int len = snprintf(token, sizeof(token), "%llu", (unsigned long long)ask->token);
    rc = rc != 0 ? rc : fli_buf_printf(b, "*3\r\n$5\r\nCHECK\r\n$%zu\r\n", ask->lock.len);
    rc = rc != 0 ? rc : fli_buf_append(b, ask->lock.data, ask->lock.len);
    return rc != 0 ? rc : fli_buf_printf(b, "\r\n$%d\r\n%s\r\n", len, token);
}

static void written_cb(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    struct strict *s = c->owner;
    c->writing = false;
    fli_buf_clear(&c->sending);
    if (s == NULL) {
        return;
    }
    if (status != 0) {
        fail(s, "%s", uv_strerror(status));
    } else {
        send_out(s); /* of a handshake, which work() does not send */
    }
    work(s);
}

static void send_out(struct strict *s)
{
    struct connection *c = s->connection;
    if (c->tls != NULL && c->connected && c->out.len > 0 && !c->writing) {
        if (fli_tls_write(c->tls, c->out.data, c->out.len, &c->cipher) != 0) {
            fail(s, "TLS: %s", fli_tls_error(c->tls));
            return;
        }
        fli_buf_clear(&c->out);
    }
    struct fli_buf *from = c->tls != NULL ? &c->cipher : &c->out;
    if (c->writing || from->len == 0) {
        return;
    }
    struct fli_buf swap = c->sending;
    c->sending = *from;
    *from = swap;
    uv_buf_t buf = uv_buf_init((char *)c->sending.data, (unsigned)c->sending.len);
    c->write.data = c;
    int rc = uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, written_cb);
    c->writing = rc == 0;
    if (rc != 0) {
        fail(s, "%s", uv_strerror(rc));
    }
}

/* Sends as many questions as the window has room for. */
static void put_questions(struct strict *s)
{
    struct connection *c = s->connection;
    if (!c->greeted && s->login.len > 0 && s->next != &s->asks) {
        if (fli_buf_append(&c->out, s->login.data, s->login.len) != 0) {
            fail(s, "out of memory");
            return;
        }
        c->owes_login = true;
    }
    c->greeted = true;
    for (; s->next != &s->asks && s->put < STRICT_WINDOW; s->next = s->next->next) {
        if (encode(&c->out, FLI_CONTAINER_OF(s->next, struct strict_ask, link)) != 0) {
            fail(s, "out of memory");
            return;
        }
        if (s->put++ == 0) {
            s->patience_at_ms = fli_clock_ms() + patience_ms(s);
        }
    }
    send_out(s);
}

/* ---- connecting ---- */

static void connected_cb(uv_connect_t *connect, int status)
{
    struct connection *c = connect->data;
    struct strict *s = c->owner;
    if (s == NULL) {
        return;
    }
    int rc = status != 0 ? status : uv_read_start((uv_stream_t *)&c->tcp, alloc_cb, read_cb);
    if (rc != 0) {
        fail(s, "%s", uv_strerror(rc));
    } else if (c->tls != NULL) {
        (void)uv_tcp_nodelay(&c->tcp, 1);
        decrypt(s, NULL, 0); /* the first message of TLS */
    } else {
        c->connected = true;
        s->patience_at_ms = 0;
        (void)uv_tcp_nodelay(&c->tcp, 1);
    }
    work(s);
}

static void resolved_cb(uv_getaddrinfo_t *resolve, int status, struct addrinfo *found)
{
    struct connection *c = resolve->data;
    struct strict *s = c->owner;
    c->resolving = false;
    if (s == NULL) {
        uv_freeaddrinfo(found);
        connection_free(c);
        return;
    }
    int rc = status;
    if (rc == 0) {
        rc = uv_tcp_init(s->loop, &c->tcp);
        c->tcp_open = rc == 0;
        c->tcp.data = c;
    }
    c->connect.data = c;
    rc = rc != 0 ? rc : uv_tcp_connect(&c->connect, &c->tcp, found->ai_addr, connected_cb);
    uv_freeaddrinfo(found);
    if (rc != 0) {
        fail(s, "%s", uv_strerror(rc));
        work(s);
    }
}

/* Renewed certificates are used from the next connection on. */
static bool begin_tls(struct strict *s, struct connection *c)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    if (s->tls == NULL) {
        return true;
    }
    if (fli_tls_context_changed(s->tls) &&
        fli_tls_context_reload(s->tls, errmsg, sizeof(errmsg)) != 0) {
        log_message(s, "strict mode: files of TLS are not taken into use: %s", errmsg);
    }
    fli_buf_init(&c->plain, FLI_TLS_PLAIN_MAX(sizeof(c->raw)));
    fli_buf_init(&c->cipher, FLI_TLS_CIPHER_MAX(OUT_MAX_BYTES) + FLI_TLS_SHAKE_MAX);
    return fli_tls_create(s->tls, s->nodes[s->at].host, &c->tls) == 0;
}

static void begin_connection(struct strict *s)
{
    const struct node *n = &s->nodes[s->at];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[8];
    struct connection *c = calloc(1, sizeof(*c));
    if (c == NULL || !begin_tls(s, c)) {
        free(c);
        back_off(s, "out of memory");
        return;
    }
    fli_buf_init(&c->out, OUT_MAX_BYTES);
    fli_buf_init(&c->sending, OUT_MAX_BYTES);
    c->owner = s;
    c->resolve.data = c;
    s->connection = c;
    s->put = 0;
    s->next = s->asks.next;
    s->retry_at_ms = 0;
    s->patience_at_ms = fli_clock_ms() + patience_ms(s);
    (void)snprintf(port, sizeof(port), "%u", (unsigned)n->port);
    int rc = uv_getaddrinfo(s->loop, &c->resolve, resolved_cb, n->host, port, &hints);
    c->resolving = rc == 0;
    if (rc != 0) {
        fail(s, "%s", uv_strerror(rc));
    }
}

/* ---- time ---- */

static void timer_cb(uv_timer_t *timer)
{
    work(timer->data);
}

/* The questions of one turn of the loop are sent together. */
static void prompt_cb(uv_idle_t *prompt)
{
    (void)uv_idle_stop(prompt);
    work(prompt->data);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return b == 0 || (a != 0 && a < b) ? a : b;
}

static void set_timer(struct strict *s, uint64_t now)
{
    const struct strict_ask *first = head(s);
    if (first == NULL && s->connection == NULL) {
        (void)uv_timer_stop(&s->timer);
        return;
    }
    uint64_t at = first == NULL ? 0 : first->due_ms;
    at = sooner(at, s->patience_at_ms);
    if (first != NULL && s->connection == NULL) {
        at = sooner(at, s->retry_at_ms == 0 ? now : s->retry_at_ms);
    }
    if (at == 0) {
        (void)uv_timer_stop(&s->timer);
    } else if (!uv_is_active((uv_handle_t *)&s->timer) || at < s->timer_at_ms) {
        s->timer_at_ms = at;
        uv_update_time(s->loop);
        (void)uv_timer_start(&s->timer, timer_cb, at > now ? at - now : 0, 0); /* has a callback */
    } /* else the timer fires too early, and is set again then */
}

/* Does everything that is due, whatever the event was. */
static void work(struct strict *s)
{
    const struct strict_ask *first;
    uint64_t now = fli_clock_ms();
    if (s->stopped) {
        return;
    }
    if (s->connection != NULL && s->patience_at_ms != 0 && now >= s->patience_at_ms) {
        fail(s, "no answer within %u ms", patience_ms(s));
    }
    while ((first = head(s)) != NULL && now >= first->due_ms) {
        /* an answer that is still to come would be taken for that of the next question */
        if (s->put > 0) {
            fail(s, "no answer within %u ms", s->config.timeout_ms);
        }
        decide(s, STRICT_UNKNOWN);
    }
    /* The loop terminates: when every node has failed there is a pause. */
    while (s->connection == NULL && head(s) != NULL && now >= s->retry_at_ms) {
        begin_connection(s);
    }
    if (s->connection != NULL && s->connection->connected) {
        put_questions(s);
    }
    set_timer(s, now);
}

/* ---- life ---- */

static int parse_nodes(const char *text, struct node *nodes, unsigned *ret_n, char *errmsg,
                       size_t errmsg_size)
{
    unsigned n = 0;
    for (const char *at = text;; at++) {
        char address[NET_ADDRESS_MAX];
        size_t len = strcspn(at, ",");
        if (n == STRICT_NODES_MAX) {
            (void)snprintf(errmsg, errmsg_size, "more than %u nodes", STRICT_NODES_MAX);
            return FL_EINVAL;
        }
        bool fits = len < sizeof(address);
        memcpy(address, at, fits ? len : 0);
        address[fits ? len : 0] = '\0';
        if (net_address_split(address, nodes[n].host, &nodes[n].port) != 0 || nodes[n].port == 0) {
            (void)snprintf(errmsg, errmsg_size,
                           "'%.*s' is not HOST:PORT; give the nodes of the lock service as "
                           "127.0.0.1:7401,127.0.0.1:7402",
                           (int)(len > 80 ? 80 : len), at);
            return FL_EINVAL;
        }
        n++;
        at += len;
        if (*at == '\0') {
            *ret_n = n;
            return 0;
        }
    }
}

int strict_check_nodes(const char *nodes, char *errmsg, size_t errmsg_size)
{
    struct node parsed[STRICT_NODES_MAX];
    unsigned n;
    return parse_nodes(nodes, parsed, &n, errmsg, errmsg_size);
}

static int make_login(struct strict *s, const struct strict_config *config)
{
    return fli_buf_printf(&s->login, "*3\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                          strlen(config->user), config->user, strlen(config->password),
                          config->password);
}

int strict_create(uv_loop_t *loop, const struct strict_config *config, struct strict **ret,
                  char *errmsg, size_t errmsg_size)
{
    if (config->timeout_ms < STRICT_TIMEOUT_MIN_MS || config->timeout_ms > STRICT_TIMEOUT_MAX_MS) {
        (void)snprintf(errmsg, errmsg_size, "the time for an answer is out of range");
        return FL_EINVAL;
    }
    struct strict *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    int rc = parse_nodes(config->nodes, s->nodes, &s->nodes_n, errmsg, errmsg_size);
    if (rc == 0 && config->tls != NULL) {
        rc = fli_tls_context_create(config->tls, &s->tls, errmsg, errmsg_size);
    }
    fli_buf_init(&s->login, STRICT_LOGIN_MAX);
    if (rc == 0 && config->user != NULL && make_login(s, config) != 0) {
        (void)snprintf(errmsg, errmsg_size, "the user's name or password is too long");
        fli_buf_fini(&s->login);
        fli_tls_context_destroy(s->tls);
        rc = FL_EINVAL;
    }
    if (rc != 0) {
        free(s);
        return rc;
    }
    s->loop = loop;
    s->config = *config;
    s->config.nodes = NULL; /* the caller's string */
    s->config.tls = NULL;
    s->config.user = NULL;
    s->config.password = NULL;
    fli_list_init(&s->asks);
    s->next = &s->asks;
    (void)uv_timer_init(loop, &s->timer); /* cannot fail */
    (void)uv_idle_init(loop, &s->prompt);
    s->timer.data = s;
    s->prompt.data = s;
    *ret = s;
    return 0;
}

void strict_ask(struct strict *s, struct strict_ask *ask)
{
    FLI_ASSERT(!s->stopped);
    FLI_ASSERT(ask->lock.len > 0 && ask->lock.len <= FL_NAME_MAX);
    s->counts.checks++;
    ask->due_ms = fli_clock_ms() + s->config.timeout_ms;
    fli_list_push(&s->asks, &ask->link);
    if (s->next == &s->asks) {
        s->next = &ask->link;
    }
    if (!uv_is_active((uv_handle_t *)&s->prompt)) {
        (void)uv_idle_start(&s->prompt, prompt_cb); /* has a callback */
    }
}

void strict_stop(struct strict *s)
{
    s->stopped = true;
    if (s->connection != NULL) {
        abandon(s->connection);
        s->connection = NULL;
    }
    s->put = 0;
    (void)uv_timer_stop(&s->timer);
    (void)uv_idle_stop(&s->prompt);
    while (head(s) != NULL) {
        decide(s, STRICT_UNKNOWN);
    }
}

static void handle_closed_cb(uv_handle_t *handle)
{
    struct strict *s = handle->data;
    if (--s->closing == 0) {
        fli_tls_context_destroy(s->tls);
        if (s->login.len > 0) {
            explicit_bzero(s->login.data, s->login.len);
        }
        fli_buf_fini(&s->login);
        free(s);
    }
}

void strict_destroy(struct strict *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(fli_list_empty(&s->asks));
    strict_stop(s);
    s->closing = 2;
    uv_close((uv_handle_t *)&s->timer, handle_closed_cb);
    uv_close((uv_handle_t *)&s->prompt, handle_closed_cb); /* the last one frees */
}

unsigned strict_timeout_ms(const struct strict *s)
{
    return s->config.timeout_ms;
}

struct strict_counts strict_get_counts(const struct strict *s)
{
    return s->counts;
}
