/* strict.c: see strict.h.
 *
 *  questions: [ sent to the node, unanswered: `sent` of them, less the cancelled | not yet sent ]
 *
 * Answers and deadlines come in the order of the questions, so only the head of the list can get a
 * verdict. Whenever a connection ends, `sent` goes back to 0 and the next connection begins at the
 * head. A question that is cancelled leaves the list at once. If it was sent, its number is noted:
 * its answer comes all the same, and is for nobody.
 *
 * A connection is abandoned at once and never waited for; what libuv still holds of it is counted,
 * and the last of that frees everything after strict_destroy(). */
#include "store/strict.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "link/link_uv.h"
#include "net/address.h"
#include "wire/text.h"

#define PAUSE_MIN_MS 20u
#define PAUSE_MAX_MS 500u
#define ANSWER_MAX_BYTES 4096u /* an error is the longest */
#define CHECK_MAX_BYTES (FL_NAME_MAX + 96u)
#define OUT_MAX_BYTES ((size_t)STRICT_WINDOW * CHECK_MAX_BYTES)

/* Asks for the addresses of a host. */
struct resolving {
    struct strict *owner; /* NULL: abandoned */
    struct fli_link_owner *links;
    uv_getaddrinfo_t request;
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
    unsigned at;         /* the node in use, or the next to try */
    unsigned failures;   /* in a row */
    unsigned pause_ms;   /* the last pause */
    bool has_connection; /* or is being made */
    struct resolving *resolving;
    struct fli_link_owner links;
    struct fli_link_security tls;
    struct fli_link_uv conn;
    struct fli_list questions;
    size_t sent;
    uint64_t awaited;              /* the number of the question that the next answer is for */
    bool cancelled[STRICT_WINDOW]; /* of those sent; by number */
    struct fli_list *next;         /* the first that is not sent; &questions when all are */
    uint64_t give_up_at_ms;        /* when the connection is given up; 0: no answer is due */
    uint64_t retry_at_ms;          /* not to connect before; 0: at any time */
    uv_timer_t timer;
    uint64_t timer_at_ms;
    uv_idle_t at_turn_end; /* active while something waits for the end of the turn: new questions,
                              or late ones */
    struct strict_counts counts;
    bool failure_logged; /* that no node answers */
    bool stopped, destroyed;
};

static void work(struct strict *s);

/* ---- verdicts ---- */

static struct strict_question *head(const struct strict *s)
{
    struct fli_list *first = fli_list_first(&s->questions);
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct strict_question, link);
}

static void unlink_question(struct strict *s, struct strict_question *q)
{
    s->next = s->next == &q->link ? q->link.next : s->next;
    fli_list_remove(&q->link);
}

/* The next answer has come. */
static void receive(struct strict *s)
{
    FLI_ASSERT(s->sent > 0);
    s->cancelled[s->awaited++ % STRICT_WINDOW] = false;
    s->sent--;
}

static void decide(struct strict *s, enum strict_verdict verdict)
{
    struct strict_question *q = head(s);
    FLI_ASSERT(q != NULL);
    unlink_question(s, q);
    s->counts.refused += verdict == STRICT_NOTHELD;
    s->counts.unreachable += verdict == STRICT_UNKNOWN;
    s->config.verdict(s->config.ctx, q, verdict);
}

static unsigned silence_max_ms(const struct strict *s)
{
    return s->nodes_n > 1 ? s->config.timeout_ms / 2 : s->config.timeout_ms;
}

static void log_message(const struct strict *s, const char *fmt, ...) FLI_PRINTF(2, 3);
static void log_message(const struct strict *s, const char *fmt, ...)
{
    char message[FLI_LINK_ERROR_SIZE + NET_ADDRESS_MAX + 128u];
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
    if (!s->failure_logged) {
        s->failure_logged = true;
        node_name(s, name);
        log_message(s, "strict mode: the lock service does not answer (%s: %s)", name, why);
    }
    s->failures = 0;
    s->pause_ms = s->pause_ms == 0 ? PAUSE_MIN_MS : s->pause_ms * 2;
    s->pause_ms = s->pause_ms > PAUSE_MAX_MS ? PAUSE_MAX_MS : s->pause_ms;
    s->retry_at_ms = fli_clock_ms() + s->pause_ms;
}

static void abandon(struct strict *s)
{
    if (s->resolving != NULL) {
        s->resolving->owner = NULL;
        /* If it is too late, its callback comes anyway. */
        (void)uv_cancel((uv_req_t *)&s->resolving->request);
        s->resolving = NULL;
    }
    fli_link_uv_close(&s->conn);
    s->has_connection = false;
    while (s->sent > 0) {
        receive(s);
    }
    s->next = s->questions.next;
    s->give_up_at_ms = 0;
}

/* Gives up the connection; the next attempt uses the next node. */
static void fail(struct strict *s, const char *fmt, ...) FLI_PRINTF(2, 3);
static void fail(struct strict *s, const char *fmt, ...)
{
    char why[FLI_LINK_ERROR_SIZE];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    FLI_ASSERT(s->has_connection);
    abandon(s);
    /* The end of an idle connection does not count as a failure. */
    if (!fli_list_empty(&s->questions) && ++s->failures >= s->nodes_n) {
        back_off(s, why);
    }
    s->at = (s->at + 1) % s->nodes_n;
}

static void succeed(struct strict *s)
{
    s->failures = 0;
    s->pause_ms = 0;
    if (s->failure_logged) {
        s->failure_logged = false;
        log_message(s, "strict mode: the lock service answers again");
    }
}

/* ---- answers ---- */

static struct strict *strict_of(struct fli_link_uv *c)
{
    return FLI_CONTAINER_OF(c, struct strict, conn);
}

/* Says what is wrong with an answer. */
static bool report_bad_answer(struct fli_link_uv *c, const redisReply *reply)
{
    char quoted[FLI_QUOTE_SIZE] = "neither 0 nor 1";
    if (reply->type == REDIS_REPLY_ERROR) {
        struct fli_slice text = {(const uint8_t *)reply->str, reply->len};
        fli_quote(quoted, sizeof(quoted), &text);
    }
    (void)snprintf(c->link.error, sizeof(c->link.error), "it answered %.130s", quoted);
    return false;
}

static bool on_answered(struct fli_link_uv *c, const redisReply *reply)
{
    struct strict *s = strict_of(c);
    bool is_number = reply->type == REDIS_REPLY_INTEGER;
    bool is_one = is_number && reply->integer == 1;
    bool denied = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM ", 7) == 0;
    if (!is_one && !denied && !(is_number && reply->integer == 0)) {
        return report_bad_answer(c, reply);
    }
    if (s->sent == 0) {
        (void)snprintf(c->link.error, sizeof(c->link.error), "it answered what was not asked");
        return false;
    }
    uint64_t now = fli_clock_ms();
    succeed(s);
    s->give_up_at_ms = s->sent > 1 ? now + silence_max_ms(s) : 0;
    bool for_nobody = s->cancelled[s->awaited % STRICT_WINDOW];
    receive(s);
    if (for_nobody) {
        return true;
    }
    const struct strict_question *q = head(s);
    FLI_ASSERT(q != NULL && q->number + 1 == s->awaited);
    /* This process may have been stopped for long while the answer waited in the socket. */
    if (now >= q->due_ms || denied) { /* this user may not see that lock */
        decide(s, STRICT_UNKNOWN);
    } else {
        decide(s, is_one ? STRICT_HELD : STRICT_NOTHELD);
    }
    return true;
}

static void on_broken(struct fli_link_uv *c, int rc)
{
    fail(strict_of(c), "%s", c->link.error);
}

/* ---- questions ---- */

static int encode(struct fli_buf *b, const struct strict_question *q)
{
    char token[24];
    int rc = fli_buf_reserve(b, CHECK_MAX_BYTES);
    int len = snprintf(token, sizeof(token), "%llu", (unsigned long long)q->token);
    rc = rc != 0 ? rc : fli_buf_printf(b, "*3\r\n$5\r\nCHECK\r\n$%zu\r\n", q->lock.len);
    rc = rc != 0 ? rc : fli_buf_append(b, q->lock.data, q->lock.len);
    return rc != 0 ? rc : fli_buf_printf(b, "\r\n$%d\r\n%s\r\n", len, token);
}

/* Sends as many questions as the window has room for. */
static void send_questions(struct strict *s)
{
    for (; s->next != &s->questions && s->sent < STRICT_WINDOW; s->next = s->next->next) {
        struct strict_question *q = FLI_CONTAINER_OF(s->next, struct strict_question, link);
        if (encode(&s->conn.out, q) != 0) {
            fail(s, "out of memory");
            return;
        }
        q->number = s->awaited + s->sent;
        if (s->sent++ == 0) {
            s->give_up_at_ms = fli_clock_ms() + silence_max_ms(s);
        }
    }
    fli_link_uv_flush(&s->conn);
}

/* ---- has_connection ---- */

static void on_opened(struct fli_link_uv *c)
{
    strict_of(c)->give_up_at_ms = 0; /* the next is set with the first question */
}

static void on_bad_files(void *arg, const char *why)
{
    log_message(arg, "strict mode: the new files of TLS are refused: %s", why);
}

static void resolved_cb(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct resolving *r = request->data;
    struct fli_link_owner *links = r->links;
    struct strict *s = r->owner;
    if (s != NULL) {
        s->resolving = NULL;
        if (status != 0) {
            fail(s, "%s", uv_strerror(status));
        } else if (fli_link_uv_begin(&s->conn, &s->tls, s->nodes[s->at].host, found->ai_addr,
                                     found->ai_addrlen) != 0) {
            fail(s, "%s", s->conn.link.error);
        }
    }
    uv_freeaddrinfo(found);
    free(r);
    links->handles--;
    links->leave(links);
}

static int resolve(struct strict *s)
{
    const struct node *n = &s->nodes[s->at];
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[8];
    struct resolving *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return UV_ENOMEM;
    }
    r->owner = s;
    r->links = &s->links;
    r->request.data = r;
    (void)snprintf(port, sizeof(port), "%u", (unsigned)n->port);
    int rc = uv_getaddrinfo(s->loop, &r->request, resolved_cb, n->host, port, &hints);
    if (rc != 0) {
        free(r);
        return rc;
    }
    s->links.handles++;
    s->resolving = r;
    return 0;
}

static void begin_connection(struct strict *s)
{
    FLI_ASSERT(s->sent == 0);
    s->has_connection = true;
    s->next = s->questions.next;
    s->retry_at_ms = 0;
    s->give_up_at_ms = fli_clock_ms() + silence_max_ms(s);
    int rc = resolve(s);
    if (rc != 0) {
        fail(s, "%s", uv_strerror(rc));
    }
}

/* ---- time ---- */

/* The questions of one turn of the loop are sent together. */
static void turn_end_cb(uv_idle_t *idle)
{
    (void)uv_idle_stop(idle);
    work(idle->data);
}

static void work_at_turn_end(struct strict *s)
{
    if (!uv_is_active((uv_handle_t *)&s->at_turn_end)) {
        (void)uv_idle_start(&s->at_turn_end, turn_end_cb); /* has a callback */
    }
}

static void timer_cb(uv_timer_t *timer)
{
    work_at_turn_end(timer->data);
}

/* Decides what is late. Of many, a part, and the rest in the turns that follow: each verdict is an
 * answer to a client. */
static void decide_late(struct strict *s, uint64_t now)
{
    const struct strict_question *first;
    unsigned n = 0;
    while ((first = head(s)) != NULL && now >= first->due_ms) {
        if (n++ == STRICT_LATE_MAX) {
            work_at_turn_end(s);
            return;
        }
        /* an answer that is still to come would be taken for that of the next question */
        if (s->sent > 0) {
            fail(s, "no answer within %u ms", s->config.timeout_ms);
        }
        decide(s, STRICT_UNKNOWN);
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return b == 0 || (a != 0 && a < b) ? a : b;
}

static void set_timer(struct strict *s, uint64_t now)
{
    const struct strict_question *first = head(s);
    if (first == NULL && !s->has_connection) {
        (void)uv_timer_stop(&s->timer);
        return;
    }
    uint64_t at = first == NULL ? 0 : first->due_ms;
    at = sooner(at, s->give_up_at_ms);
    if (first != NULL && !s->has_connection) {
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
    uint64_t now = fli_clock_ms();
    if (s->stopped) {
        return;
    }
    if (s->has_connection && s->give_up_at_ms != 0 && now >= s->give_up_at_ms) {
        fail(s, "no answer within %u ms", silence_max_ms(s));
    }
    if (!uv_is_active((uv_handle_t *)&s->at_turn_end)) {
        decide_late(s, now);
    }
    /* The loop terminates: when every node has failed there is a pause. */
    while (!s->has_connection && head(s) != NULL && now >= s->retry_at_ms) {
        begin_connection(s);
    }
    if (s->conn.link.ready) {
        send_questions(s);
    }
    set_timer(s, now);
}

/* ---- start and end ---- */

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

static void on_enter(struct fli_link_owner *o)
{
}

static void on_leave(struct fli_link_owner *o)
{
    struct strict *s = FLI_CONTAINER_OF(o, struct strict, links);
    work(s);
    if (s->destroyed && o->handles == 0) {
        fli_link_security_fini(&s->tls);
        free(s);
    }
}

static int set_up_tls(struct strict *s, const struct strict_config *config, char *errmsg,
                      size_t errmsg_size)
{
    int rc = 0;
    if (config->tls != NULL) {
        rc = fli_tls_context_create(config->tls, &s->tls.context, errmsg, errmsg_size);
    }
    if (rc == 0 && config->user != NULL &&
        (rc = fli_link_login(&s->tls, config->user, config->password)) != 0) {
        (void)snprintf(errmsg, errmsg_size, "the user's name or password is too long");
    }
    s->tls.on_bad_files = on_bad_files;
    s->tls.arg = s;
    return rc;
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
    rc = rc == 0 ? set_up_tls(s, config, errmsg, errmsg_size) : rc;
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
    s->links = (struct fli_link_owner){.loop = loop,
                                       .handles = 2,
                                       .enter = on_enter,
                                       .leave = on_leave,
                                       .opened = on_opened,
                                       .answered = on_answered,
                                       .broken = on_broken};
    fli_link_uv_init(&s->conn, &s->links, OUT_MAX_BYTES);
    s->conn.link.bytes_max = ANSWER_MAX_BYTES;
    fli_list_init(&s->questions);
    s->next = &s->questions;
    s->awaited = 1;
    (void)uv_timer_init(loop, &s->timer); /* cannot fail */
    (void)uv_idle_init(loop, &s->at_turn_end);
    s->timer.data = s;
    s->at_turn_end.data = s;
    *ret = s;
    return 0;
}

void strict_ask(struct strict *s, struct strict_question *q)
{
    FLI_ASSERT(!s->stopped);
    FLI_ASSERT(q->lock.len > 0 && q->lock.len <= FL_NAME_MAX);
    s->counts.checks++;
    q->due_ms = fli_clock_ms() + s->config.timeout_ms;
    q->number = 0;
    fli_list_push(&s->questions, &q->link);
    if (s->next == &s->questions) {
        s->next = &q->link;
    }
    work_at_turn_end(s);
}

void strict_cancel(struct strict *s, struct strict_question *q)
{
    unlink_question(s, q);
    if (q->number >= s->awaited) { /* of an earlier connection, it is less */
        s->cancelled[q->number % STRICT_WINDOW] = true;
    }
}

void strict_stop(struct strict *s)
{
    s->stopped = true;
    abandon(s);
    (void)uv_timer_stop(&s->timer);
    (void)uv_idle_stop(&s->at_turn_end);
    while (head(s) != NULL) {
        decide(s, STRICT_UNKNOWN);
    }
}

static void handle_closed_cb(uv_handle_t *handle)
{
    struct strict *s = handle->data;
    s->links.handles--;
    on_leave(&s->links);
}

void strict_destroy(struct strict *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(fli_list_empty(&s->questions));
    strict_stop(s);
    s->destroyed = true;
    uv_close((uv_handle_t *)&s->timer, handle_closed_cb);
    uv_close((uv_handle_t *)&s->at_turn_end, handle_closed_cb);
}

unsigned strict_timeout_ms(const struct strict *s)
{
    return s->config.timeout_ms;
}

struct strict_counts strict_get_counts(const struct strict *s)
{
    return s->counts;
}
