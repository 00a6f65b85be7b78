/* loadgen.c: see loadgen.h. */
#include "loadgen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../lib/link_wait.h"
#include "wire/resp.h"

#define REQUEST_MAX 4096u
#define EVENTS_MAX 256
#define OUT_MAX ((size_t)1 << 20)
#define SILENCE_MAX_MS UINT64_C(10000) /* of connecting, and with a server that does not read */
#define TICK_MS 100
#define NS_PER_MS UINT64_C(1000000)
#define FILES_RESERVED 32u
#define NUMBER_SIZE 24u

struct conn {
    struct fli_link link;
    struct fli_buf out;
    struct client *client;
    unsigned *waiting; /* a ring: the slots whose answers come next, in order */
    unsigned first, n;
};

struct client {
    struct conn *conns; /* one for each server it talks to */
    struct loadgen_slot *slots;
};

struct loadgen {
    const struct loadgen_config *c;
    struct loadgen_result *ret;
    struct client *clients;
    struct conn *conns;
    struct loadgen_slot *slots;
    unsigned *rings;
    unsigned fan;
    unsigned busy; /* slots with a request in flight */
    int epoll;
    uint64_t start_ns, count_ns, end_ns;
    struct fli_buf out;
    int error;
    char *errmsg;
    size_t errmsg_size;
};

static void FLI_PRINTF(3, 4) fail(struct loadgen *g, int error, const char *fmt, ...)
{
    if (g->error != 0) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(g->errmsg, g->errmsg_size, fmt, args);
    va_end(args);
    g->error = error;
}

/* ---- requests -------------------------------------------------------------------------------- */

int loadgen_put(struct fli_buf *out, unsigned argc, const char *const *argv)
{
    int rc = fli_resp_array(out, argc);
    for (unsigned i = 0; i < argc && rc == 0; i++) {
        rc = fli_resp_text(out, argv[i]);
    }
    return rc;
}

static void broke(struct loadgen *g, const struct conn *c)
{
    fail(g, FL_ENOCONN, "a connection broke: %s", c->link.error);
}

static void flush(struct loadgen *g, struct conn *c)
{
    if (c->out.len > 0 &&
        link_send(&c->link, c->out.data, c->out.len, fli_clock_ms() + SILENCE_MAX_MS) != 0) {
        broke(g, c);
    }
    fli_buf_clear(&c->out);
}

static void issue(struct loadgen *g, struct client *cl, struct loadgen_slot *s)
{
    fli_buf_clear(&g->out);
    s->missing = g->fan;
    s->yes = 0;
    s->failed = false;
    s->sent_ns = fli_clock_ns();
    int rc = g->c->work->ask(g->c->work->ctx, s, &g->out);
    FLI_ASSERT(rc == 0);
    g->busy++;
    for (unsigned i = 0; i < g->fan; i++) {
        struct conn *c = &cl->conns[i];
        FLI_ASSERT(c->n < g->c->in_flight);
        unsigned at = c->first + c->n++;
        at -= at >= g->c->in_flight ? g->c->in_flight : 0;
        c->waiting[at] = (unsigned)(s - cl->slots);
        rc = fli_buf_append(&c->out, g->out.data, g->out.len);
        if (rc != 0) {
            fail(g, rc, "too much to be sent at once");
        }
    }
}

static void count(struct loadgen_result *r, enum loadgen_outcome o, uint64_t ns)
{
    switch (o) {
    case LOADGEN_ACQUIRED:
        histogram_add(&r->acquire, ns);
        break;
    case LOADGEN_RELEASED:
        histogram_add(&r->release, ns);
        r->pairs++;
        break;
    case LOADGEN_REFUSED:
        r->refused++;
        break;
    case LOADGEN_FAILED:
        r->errors++;
        break;
    }
}

/* The slot has all its answers: counts it, and sends the next request unless the time is over. */
static void finish(struct loadgen *g, struct client *cl, struct loadgen_slot *s)
{
    uint64_t now = fli_clock_ns();
    bool counts = now >= g->count_ns && now < g->end_ns;
    enum loadgen_outcome o = g->c->work->outcome(g->c->work->ctx, s, now, counts);
    s->holds = o == LOADGEN_ACQUIRED;
    g->busy--;
    g->ret->all_pairs += o == LOADGEN_RELEASED;
    if (counts) {
        count(g->ret, o, now - s->sent_ns);
    }
    if (now < g->end_ns || s->holds) {
        issue(g, cl, s);
    }
}

static void take(struct loadgen *g, struct conn *c, const redisReply *reply)
{
    FLI_ASSERT(g->c->in_flight > 0);
    if (c->n == 0) {
        fail(g, FL_EPROTO, "an answer came to no question");
        return;
    }
    struct loadgen_slot *s = &c->client->slots[c->waiting[c->first]];
    c->first = c->first + 1 == g->c->in_flight ? 0 : c->first + 1;
    c->n--;
    if (reply->type == REDIS_REPLY_ERROR) {
        s->failed = true;
        if (g->ret->first_error[0] == '\0') {
            (void)snprintf(g->ret->first_error, sizeof g->ret->first_error, "%s", reply->str);
        }
    }
    g->c->work->answer(g->c->work->ctx, s, reply);
    FLI_ASSERT(s->missing > 0);
    if (--s->missing == 0) {
        finish(g, c->client, s);
    }
}

static void readable(struct loadgen *g, struct conn *c)
{
    redisReply *reply;
    int rc = fli_link_read(&c->link);
    while (rc >= 0 && g->error == 0 && (rc = fli_link_next(&c->link, &reply)) > 0) {
        take(g, c, reply);
        freeReplyObject(reply);
    }
    if (rc < 0) {
        broke(g, c);
    }
    for (unsigned i = 0; i < g->fan && g->error == 0; i++) {
        flush(g, &c->client->conns[i]);
    }
}

/* ---- making and ending ----------------------------------------------------------------------- */

static void connect_one(struct loadgen *g, struct conn *c, const struct fli_node *node)
{
    if (link_open(&c->link, g->c->security, node, fli_clock_ms() + SILENCE_MAX_MS) != 0) {
        fail(g, FL_ENOCONN, "%s: %s", node->text, c->link.error);
        return;
    }
    struct epoll_event ev = {.events = EPOLLIN, .data = {.ptr = c}};
    if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, c->link.fd, &ev) != 0) {
        fail(g, FL_ESYSTEM, "epoll: %s", strerror(errno));
    }
}

static bool fits(struct loadgen *g)
{
    const struct loadgen_config *c = g->c;
    if (c->clients == 0 || c->clients > LOADGEN_CLIENTS_MAX || c->in_flight == 0 ||
        c->in_flight > LOADGEN_SLOTS_MAX / c->clients) {
        fail(g, FL_ELIMIT, "at most %u clients, and %u requests in flight of all together",
             LOADGEN_CLIENTS_MAX, LOADGEN_SLOTS_MAX);
        return false;
    }
    struct rlimit files;
    rlim_t wanted = (rlim_t)c->clients * g->fan + FILES_RESERVED;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < wanted) {
        files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
        (void)setrlimit(RLIMIT_NOFILE, &files);
        if (files.rlim_cur < wanted) {
            fail(g, FL_ELIMIT, "so many clients need %llu files; the limit is %llu (ulimit -n)",
                 (unsigned long long)wanted, (unsigned long long)files.rlim_cur);
            return false;
        }
    }
    return true;
}

static void make(struct loadgen *g)
{
    const struct loadgen_config *c = g->c;
    unsigned n_conns = c->clients * g->fan;
    g->clients = fli_xcalloc(c->clients, sizeof *g->clients);
    g->conns = fli_xcalloc(n_conns, sizeof *g->conns);
    g->slots = fli_xcalloc((size_t)c->clients * c->in_flight, sizeof *g->slots);
    g->rings = fli_xcalloc((size_t)n_conns * c->in_flight, sizeof *g->rings);
    for (unsigned i = 0; i < c->clients * c->in_flight; i++) {
        g->slots[i].number = i;
    }
    for (unsigned i = 0; i < c->clients; i++) {
        g->clients[i].conns = &g->conns[i * g->fan];
        g->clients[i].slots = &g->slots[i * c->in_flight];
    }
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < n_conns; i++) {
        fli_link_init(&g->conns[i].link);
        fli_buf_init(&g->conns[i].out, OUT_MAX);
    }
    for (unsigned i = 0; i < n_conns && g->error == 0; i++) {
        g->conns[i].client = &g->clients[i / g->fan];
        g->conns[i].waiting = &g->rings[(size_t)i * c->in_flight];
        connect_one(g, &g->conns[i], &c->nodes[i % c->n_nodes]);
    }
}

static void destroy(struct loadgen *g)
{
    for (unsigned i = 0; g->conns != NULL && i < g->c->clients * g->fan; i++) {
        fli_link_close(&g->conns[i].link);
        fli_buf_fini(&g->conns[i].out);
    }
    if (g->epoll >= 0) {
        close(g->epoll);
    }
    free(g->rings);
    free(g->slots);
    free(g->conns);
    free(g->clients);
    fli_buf_fini(&g->out);
}

/* ---- running --------------------------------------------------------------------------------- */

static void turn(struct loadgen *g)
{
    struct epoll_event ready[EVENTS_MAX];
    int n = epoll_wait(g->epoll, ready, EVENTS_MAX, TICK_MS);
    for (int i = 0; i < n && g->error == 0; i++) {
        readable(g, ready[i].data.ptr);
    }
}

static void run(struct loadgen *g)
{
    const struct loadgen_config *c = g->c;
    g->start_ns = fli_clock_ns();
    g->count_ns = g->start_ns + c->warmup_ms * NS_PER_MS;
    g->end_ns = g->count_ns + c->measure_ms * NS_PER_MS;
    for (unsigned i = 0; i < c->clients && g->error == 0; i++) {
        for (unsigned k = 0; k < c->in_flight; k++) {
            issue(g, &g->clients[i], &g->clients[i].slots[k]);
        }
        for (unsigned k = 0; k < g->fan && g->error == 0; k++) {
            flush(g, &g->clients[i].conns[k]);
        }
    }
    uint64_t now = fli_clock_ns();
    while (g->error == 0 && now < g->end_ns) {
        turn(g);
        now = fli_clock_ns();
        if (c->stopped != NULL && c->stopped(c->ctx)) {
            g->end_ns = now;
        }
    }
    g->ret->seconds = now > g->count_ns ? (double)(now - g->count_ns) / 1e9 : 0;
    uint64_t give_up_ns = now + LOADGEN_DRAIN_MS * NS_PER_MS;
    while (g->error == 0 && g->busy > 0 && fli_clock_ns() < give_up_ns) {
        turn(g);
    }
}

int loadgen_run(const struct loadgen_config *config, struct loadgen_result *ret, char *errmsg,
                size_t errmsg_size)
{
    FLI_ASSERT(config->n_nodes > 0);
    memset(ret, 0, sizeof *ret);
    struct loadgen g = {.c = config,
                        .ret = ret,
                        .fan = config->work->fans ? config->n_nodes : 1,
                        .epoll = -1,
                        .errmsg = errmsg,
                        .errmsg_size = errmsg_size};
    fli_buf_init(&g.out, REQUEST_MAX);
    if (fits(&g)) {
        make(&g);
        if (g.error == 0) {
            run(&g);
        }
    }
    destroy(&g);
    return g.error;
}

/* ---- the work of fencelock ------------------------------------------------------------------- */

static int locks_ask(void *ctx, struct loadgen_slot *s, struct fli_buf *out)
{
    struct loadgen_locks *l = ctx;
    char name[96];
    char owner[96];
    char number[NUMBER_SIZE];
    char wait[NUMBER_SIZE];
    (void)snprintf(name, sizeof name, "%s:%u", l->prefix, s->number);
    const char *lock = l->name != NULL ? l->name : name;
    if (s->holds) {
        (void)snprintf(number, sizeof number, "%" PRIu64, s->token);
        l->release_sent_ns = s->sent_ns;
        return loadgen_put(out, 3, (const char *[]){"RELEASE", lock, number});
    }
    (void)snprintf(owner, sizeof owner, "%s-owner-%08u", l->prefix, s->number);
    (void)snprintf(number, sizeof number, "%" PRIu64, l->ttl_ms);
    (void)snprintf(wait, sizeof wait, "%" PRIu64, l->wait_ms);
    return loadgen_put(
        out, l->wait_ms == 0 ? 6 : 8,
        (const char *[]){"ACQUIRE", lock, "TTL", number, "OWNER", owner, "WAIT", wait});
}

static void locks_answer(void *ctx, struct loadgen_slot *s, const redisReply *reply)
{
    s->yes = reply->type == REDIS_REPLY_INTEGER;
    if (s->yes != 0 && !s->holds) {
        s->token = (uint64_t)reply->integer;
    }
}

static enum loadgen_outcome locks_outcome(void *ctx, struct loadgen_slot *s, uint64_t now_ns,
                                          bool counts)
{
    struct loadgen_locks *l = ctx;
    if (s->failed) {
        return LOADGEN_FAILED;
    }
    if (s->holds) {
        return LOADGEN_RELEASED;
    }
    if (s->yes == 0) {
        return LOADGEN_REFUSED;
    }
    if (l->handoff != NULL && l->release_sent_ns != 0 && counts) {
        histogram_add(l->handoff, now_ns - l->release_sent_ns);
    }
    l->release_sent_ns = 0;
    return LOADGEN_ACQUIRED;
}

struct loadgen_work loadgen_locks_work(struct loadgen_locks *l)
{
    return (struct loadgen_work){
        .ctx = l, .ask = locks_ask, .answer = locks_answer, .outcome = locks_outcome};
}
