/* lab.c: see lab.h. */
#include "lab.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "../../lib/splitmix.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/timer.h"
#include "redlock/quorum.h"

#define START_US (UINT64_C(1000000) * 100000)
#define RECONNECT_MS 60u
#define BREAK_PERMILLE 3u

struct lab lab;

/* ---- randomness, clocks ---------------------------------------------------------------------- */

static uint64_t draw(void)
{
    return splitmix64(&lab.random);
}

uint64_t lab_below(uint64_t n)
{
    return draw() % n;
}

bool lab_chance(unsigned percent)
{
    return lab_below(100) < percent;
}

void lab_fail(const char *fmt, ...)
{
    va_list args;
    printf("seed %llu, at %llu ms: ", (unsigned long long)lab.seed,
           (unsigned long long)((lab.now_us - START_US) / 1000));
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\nreplay: sim_redlock --seed %llu\n", (unsigned long long)lab.seed);
    exit(1);
}

static int64_t wrong_by(const struct drift *d, uint64_t us)
{
    return (int64_t)(us / 1000000) * d->ppm + (int64_t)(us % 1000000) * d->ppm / 1000000;
}

uint64_t lab_read(const struct drift *d)
{
    return (uint64_t)((int64_t)(d->base_us + lab.now_us) + wrong_by(d, lab.now_us - START_US));
}

uint64_t lab_true(const struct drift *d, uint64_t us)
{
    uint64_t shown_us = lab_read(d);
    uint64_t left_us = us > shown_us ? us - shown_us : 0;
    return lab.now_us + (uint64_t)((int64_t)left_us - wrong_by(d, left_us));
}

/* In place of base/clock.c. */
uint64_t fli_clock_ns(void)
{
    FLI_ASSERT(lab.running != NULL);
    return lab_read(&lab.running->clock) * 1000;
}

uint64_t fli_clock_ms(void)
{
    return fli_clock_ns() / 1000000;
}

uint64_t fli_clock_wall_ms(void)
{
    return fli_clock_ms();
}

void fli_random(void *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        ((uint8_t *)data)[i] = (uint8_t)draw();
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

enum event_kind { EVENT_CALL, EVENT_ALARM, EVENT_REQUEST, EVENT_ANSWER, EVENT_BREAK };

struct event {
    struct fli_heap_node node;
    uint64_t at_us, order;
    enum event_kind kind;
    struct holder *holder;
    unsigned server;
    uint64_t connection, life; /* that it belongs to */
    uint64_t n;
    void (*fn)(struct holder *h, uint64_t n);
    size_t len;
    char bytes[];
};

static struct fli_heap events;
static uint64_t orders;

static bool sooner(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct event *x = FLI_CONTAINER_OF(a, struct event, node);
    const struct event *y = FLI_CONTAINER_OF(b, struct event, node);
    return x->at_us != y->at_us ? x->at_us < y->at_us : x->order < y->order;
}

static struct event *add(uint64_t at_us, enum event_kind kind, struct holder *h, const void *bytes,
                         size_t len)
{
    struct event *e = fli_xcalloc(1, sizeof *e + len + 1);
    e->at_us = at_us > lab.now_us ? at_us : lab.now_us;
    e->order = ++orders;
    e->kind = kind;
    e->holder = h;
    e->len = len;
    if (len > 0) {
        memcpy(e->bytes, bytes, len);
    }
    fli_heap_node_init(&e->node);
    int rc = fli_heap_insert(&events, &e->node);
    FLI_ASSERT(rc == 0);
    return e;
}

void lab_later(struct holder *h, uint64_t at_ms, void (*fn)(struct holder *h, uint64_t n),
               uint64_t n)
{
    struct event *e = add(lab_true(&h->clock, at_ms * 1000), EVENT_CALL, h, NULL, 0);
    e->fn = fn;
    e->n = n;
}

/* ---- replaces base/timer.c ------------------------------------------------------------------- */

int fli_timer_open(void)
{
    lab.running->timer_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); /* which is never readable */
    return lab.running->timer_fd;
}

/* A timer rings for who has set it last. */
void fli_timer_set(int fd, uint64_t at_ms)
{
    struct holder *h = lab.running;
    FLI_ASSERT(fd == h->timer_fd);
    h->alarm_number++;
    if (at_ms != UINT64_MAX && !h->closing) {
        add(lab_true(&h->clock, at_ms * 1000), EVENT_ALARM, h, NULL, 0)->n = h->alarm_number;
    }
}

/* ---- servers --------------------------------------------------------------------------------- */

bool lab_has(const struct redis *r, unsigned lock, const char *value)
{
    const struct key *k = &r->keys[lock];
    return strcmp(k->value, value) == 0 && lab_read(&r->clock) < k->expires_us;
}

static void set_expiry(struct redis *r, struct key *k, const char *ttl_ms)
{
    uint64_t ttl_us = strtoull(ttl_ms, NULL, 10) * 1000;
    ttl_us -= lab.early && lab_chance(20) ? lab_below(ttl_us) : 0;
    k->expires_us = lab_read(&r->clock) + ttl_us;
}

/* Commands as request.c writes them. Returns the answer. */
static const char *execute(struct redis *r, const redisReply *q)
{
    bool by_script = strncmp(q->element[0]->str, "EVAL", 4) == 0;
    const char *name = q->element[by_script ? 3 : 1]->str;
    const char *value = q->element[by_script ? 4 : 2]->str;
    struct key *k = &r->keys[(unsigned)(name[0] - 'a')];
    bool live = k->value[0] != '\0' && lab_read(&r->clock) < k->expires_us;
    bool ours = live && strcmp(k->value, value) == 0;
    if (!by_script) {
        FLI_ASSERT(strcmp(q->element[0]->str, "SET") == 0 && q->elements == 6);
        FLI_ASSERT(strlen(value) == FL_REDLOCK_VALUE_LEN);
        if (live) {
            return "$-1\r\n";
        }
        memcpy(k->value, value, sizeof k->value);
        set_expiry(r, k,
                   strcmp(q->element[3]->str, "PX") == 0 ? q->element[4]->str : q->element[5]->str);
        return "+OK\r\n";
    }
    if (ours && q->elements == 6) {
        set_expiry(r, k, q->element[5]->str);
    } else if (ours) {
        k->value[0] = '\0';
    }
    return ours ? ":1\r\n" : ":0\r\n";
}

static redisReply *parse(const char *bytes, size_t len)
{
    static redisReader *reader;
    void *reply = NULL;
    reader = reader == NULL ? redisReaderCreate() : reader;
    int rc = redisReaderFeed(reader, bytes, len);
    rc = rc == REDIS_OK ? redisReaderGetReply(reader, &reply) : rc;
    if (rc != REDIS_OK || reply == NULL) {
        lab_fail("what is sent is not one request: %.*s", (int)len, bytes);
    }
    return reply;
}

static uint64_t delay_us(const struct redis *r)
{
    bool slow = r->slow_until_us > lab.now_us;
    return 100 + lab_below(slow ? 150000 : 1500);
}

static uint64_t after(uint64_t *last_us, uint64_t us)
{
    uint64_t at_us = lab.now_us + us;
    *last_us = at_us > *last_us ? at_us : *last_us;
    return *last_us;
}

static void request_arrives(struct event *e)
{
    struct redis *r = &lab.servers[e->server];
    if (r->down_until_us > lab.now_us || r->life != e->life) {
        return; /* the connection is broken, and the holder will learn of it */
    }
    redisReply *q = parse(e->bytes, e->len);
    const char *answer = execute(r, q);
    freeReplyObject(q);
    uint64_t at_us = after(&e->holder->answers_us[e->server], delay_us(r));
    struct event *a = add(at_us, EVENT_ANSWER, e->holder, answer, strlen(answer));
    a->server = e->server;
    a->connection = e->connection;
}

static void restart(struct redis *r)
{
    lab.restarts++;
    r->down_until_us = lab.now_us + 1000 * lab_below(800);
    r->up_since_us = r->down_until_us;
    r->life++;
    memset(r->keys, 0, sizeof r->keys);
    for (unsigned i = 0; i < lab.holders_n; i++) {
        struct holder *h = &lab.holders[i];
        struct event *e = add(lab.now_us + delay_us(r), EVENT_BREAK, h, NULL, 0);
        e->server = r->index;
        e->connection = h->connection[r->index];
    }
}

/* ---- replaces server.c ----------------------------------------------------------------------- */

static uint64_t connections;

int fli_server_init(struct fli_server *s, struct fli_redlock *redlock, uint32_t index)
{
    s->r = redlock;
    s->index = index;
    s->state = FLI_SERVER_DOWN;
    s->status = FL_REDLOCK_DOWN;
    fli_list_init(&s->pending);
    fli_list_init(&s->deferred);
    return fli_server_begin(s);
}

static void set_due(struct fli_server *s, uint64_t at_ms)
{
    fli_due_set(&s->r->engine->dues, &s->due, at_ms);
    fli_engine_wake_for(s->r->engine, at_ms);
}

static void answer_pending(struct fli_server *s)
{
    struct fli_list *node;
    while ((node = fli_list_pop(&s->pending)) != NULL) {
        struct fli_redis_request *q = FLI_CONTAINER_OF(node, struct fli_redis_request, node);
        q->answered(q, s, NULL);
    }
}

static void go_down(struct fli_server *s)
{
    s->state = FLI_SERVER_DOWN;
    s->status = FL_REDLOCK_DOWN;
    set_due(s, fli_clock_ms() + RECONNECT_MS);
    lab.running->connection[s->index] = 0;
    answer_pending(s);
    fli_server_changed(s);
}

void fli_server_leave(struct fli_server *s)
{
    s->state = FLI_SERVER_CLOSED;
    answer_pending(s);
}

void fli_server_abandon(struct fli_server *s)
{
}

static void on_due(struct fli_due *d, uint64_t now_ms)
{
    struct fli_server *s = FLI_CONTAINER_OF(d, struct fli_server, due);
    const struct redis *r = &lab.servers[s->index];
    if (s->state != FLI_SERVER_DOWN) {
        return;
    }
    s->settled = true;
    if (r->down_until_us > lab.now_us) {
        set_due(s, now_ms + RECONNECT_MS);
        fli_server_changed(s);
        return;
    }
    uint64_t uptime_us = lab.now_us - r->up_since_us;
    s->counts_from_ms = fli_counts_from_ms(now_ms, uptime_us / 1000000, s->r->max_ttl_ms);
    (void)snprintf(s->facts.run_id, sizeof s->facts.run_id, "%040u", s->index);
    s->state = FLI_SERVER_READY;
    s->status = FL_REDLOCK_YES;
    lab.running->connection[s->index] = ++connections;
    lab.running->life[s->index] = r->life;
    fli_server_changed(s);
}

int fli_server_begin(struct fli_server *s)
{
    int rc = fli_due_add(&s->r->engine->dues, &s->due, on_due);
    FLI_ASSERT(rc == 0);
    set_due(s, fli_clock_ms());
    return 0;
}

uint64_t fli_server_silent_ms(const struct fli_server *s, uint64_t now_ns)
{
    if (fli_list_empty(&s->pending)) {
        return 0;
    }
    const struct fli_redis_request *q =
        FLI_CONTAINER_OF(s->pending.next, struct fli_redis_request, node);
    return (now_ns - q->sent_ns) / 1000000;
}

int fli_server_put(struct fli_server *s, struct fli_redis_request *q, const struct fli_buf *bytes,
                   uint64_t now_ns)
{
    struct holder *h = lab.running;
    const struct redis *r = &lab.servers[s->index];
    q->sent_ns = now_ns;
    fli_list_init(&q->node);
    fli_list_push(&s->pending, &q->node);
    lab.requests++;
    uint64_t at_us = after(&h->arrives_us[s->index], delay_us(r));
    struct event *e = add(at_us, EVENT_REQUEST, h, bytes->data, bytes->len);
    e->server = s->index;
    e->connection = h->connection[s->index];
    e->life = h->life[s->index];
    if (lab_below(1000) < BREAK_PERMILLE) {
        lab.breaks++;
        struct event *b = add(lab.now_us + lab_below(3000), EVENT_BREAK, h, NULL, 0);
        b->server = s->index;
        b->connection = h->connection[s->index];
    }
    return 0;
}

void fli_server_distrust(struct fli_server *s)
{
    lab_fail("the answer of server %u makes no sense to the handle", s->index);
}

/* ---- events to come -------------------------------------------------------------------------- */

static void answer_arrives(struct holder *h, struct event *e)
{
    struct fli_server *s = &fli_redlock_of(h->handle)->servers[e->server];
    if (h->connection[e->server] != e->connection || fli_list_empty(&s->pending)) {
        return;
    }
    struct fli_redis_request *q = FLI_CONTAINER_OF(s->pending.next, struct fli_redis_request, node);
    fli_list_remove(&q->node);
    redisReply *reply = parse(e->bytes, e->len);
    q->answered(q, s, reply);
    fl_process(h->handle);
    freeReplyObject(reply);
}

static void connection_breaks(struct holder *h, struct event *e)
{
    struct fli_server *s = &fli_redlock_of(h->handle)->servers[e->server];
    if (h->connection[e->server] != e->connection || e->connection == 0) {
        return;
    }
    go_down(s);
    fl_process(h->handle);
}

static void happen(struct event *e)
{
    struct holder *h = e->holder;
    lab.running = h;
    switch (e->kind) {
    case EVENT_REQUEST:
        request_arrives(e);
        break;
    case EVENT_CALL:
        e->fn(h, e->n);
        break;
    case EVENT_ALARM:
        if (e->n == h->alarm_number) {
            fl_process(h->handle);
        }
        break;
    case EVENT_ANSWER:
        answer_arrives(h, e);
        break;
    case EVENT_BREAK:
        connection_breaks(h, e);
        break;
    }
    lab.running = NULL;
}

static void cause_faults(void)
{
    struct redis *r = &lab.servers[lab_below(lab.servers_n)];
    struct holder *h = &lab.holders[lab_below(lab.holders_n)];
    uint64_t dice = lab_below(20000);
    if (dice < 2 && r->down_until_us <= lab.now_us) {
        restart(r);
    } else if (dice < 40) {
        lab.slow++;
        r->slow_until_us = lab.now_us + 1000 * lab_below(3000);
    } else if (dice < 50 && h->stopped_until_us <= lab.now_us) {
        lab.stops++;
        h->stopped_until_us = lab.now_us + 1000 * lab_below(MAX_TTL_MS);
    }
}

bool lab_step(uint64_t until_us)
{
    struct fli_heap_node *first = fli_heap_min(&events);
    if (first == NULL || FLI_CONTAINER_OF(first, struct event, node)->at_us > until_us) {
        return false;
    }
    struct event *e = FLI_CONTAINER_OF(first, struct event, node);
    fli_heap_remove(&events, first);
    lab.now_us = e->at_us;
    lab.events++;
    if (e->kind != EVENT_REQUEST && e->holder->stopped_until_us > lab.now_us) {
        e->at_us = e->holder->stopped_until_us; /* in their order: `order` stays */
        fli_heap_node_init(&e->node);
        int rc = fli_heap_insert(&events, &e->node);
        FLI_ASSERT(rc == 0);
        return true;
    }
    happen(e);
    free(e);
    cause_faults();
    return true;
}

uint64_t lab_next_us(void)
{
    struct fli_heap_node *first = fli_heap_min(&events);
    return first == NULL ? lab.now_us : FLI_CONTAINER_OF(first, struct event, node)->at_us;
}

void lab_free(void)
{
    struct fli_heap_node *first;
    while ((first = fli_heap_min(&events)) != NULL) {
        fli_heap_remove(&events, first);
        free(FLI_CONTAINER_OF(first, struct event, node));
    }
    fli_heap_fini(&events);
}

static void set_clock(struct drift *d)
{
    d->base_us = 1000 * lab_below(1000000);
    d->ppm = (int64_t)lab_below(8001) - 4000;
}

void lab_init(uint64_t seed)
{
    static const unsigned sizes[] = {1, 3, 3, 4, 5};
    lab = (struct lab){.seed = seed, .random = seed * UINT64_C(0xd1342543de82ef95) + 1};
    lab.now_us = START_US;
    lab.servers_n = sizes[lab_below(5)];
    lab.holders_n = 2 + (unsigned)lab_below(CLIENTS_MAX - 1);
    lab.locks_n = 1 + (unsigned)lab_below(LOCKS_MAX);
    lab.early = lab_chance(15);
    fli_heap_init(&events, sooner);
    for (unsigned i = 0; i < lab.servers_n; i++) {
        lab.servers[i].index = i;
        set_clock(&lab.servers[i].clock);
    }
    for (unsigned i = 0; i < lab.holders_n; i++) {
        lab.holders[i].index = i;
        set_clock(&lab.holders[i].clock);
    }
}
