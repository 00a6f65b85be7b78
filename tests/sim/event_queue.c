/* event_queue.c: virtual time, randomness, and the queue of future events.
 *
 * It also replaces base/clock.c: shipping code that asks for the time or for random bytes gets
 * those of the simulated node that is running. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/splitmix.h"
#include "base/clock.h"
#include "node_clock.h"
#include "sim.h"

struct sim *sim_running;

/* ---- for shipping code ---- */

uint64_t sim_node_ms(const struct sim_node *n)
{
    return sim_clock_read(n->sim, &n->clock) + SIM_SUSPENDED_MS;
}

uint64_t fli_clock_ms(void)
{
    return sim_node_ms(sim_running->current);
}

uint64_t fli_clock_ns(void)
{
    return fli_clock_ms() * 1000000;
}

uint64_t fli_clock_wall_ms(void)
{
    return fli_clock_ms();
}

void fli_random(void *data, size_t len)
{
    uint8_t *p = data;
    for (size_t i = 0; i < len; i++) {
        p[i] = (uint8_t)(sim_draw(&sim_running->node_random) >> 32);
    }
}

/* ---- messages ---- */

static void print_time(struct sim *s, FILE *out)
{
    fprintf(out, "%8llu ms  ", (unsigned long long)s->now);
}

void sim_trace(struct sim *s, const char *fmt, ...)
{
    va_list args;
    print_time(s, stdout);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list args;
    fflush(stdout);
    fprintf(stderr, "\nseed %llu, at %llu ms: ", (unsigned long long)s->orders.seed,
            (unsigned long long)s->now);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    sim_nodes_describe(s, stderr);
    sim_clients_describe(s, stderr);
    if (s->orders.replay != NULL) {
        fprintf(stderr,
                "\nreplay: %s\n  with --trace: what led to it; with --minimize: the least part of "
                "it that still fails\n",
                s->orders.replay);
    }
    fflush(NULL);
    _Exit(1);
}

/* ---- randomness ---- */

uint64_t sim_draw(struct sim_random *r)
{
    return splitmix64(&r->state);
}

uint64_t sim_draw_below(struct sim_random *r, uint64_t n)
{
    return sim_draw(r) % n;
}

bool sim_draw_chance(struct sim_random *r, unsigned percent)
{
    return sim_draw_below(r, 100) < percent;
}

uint64_t sim_below(struct sim *s, uint64_t n)
{
    return sim_draw_below(&s->random, n);
}

bool sim_permille(struct sim *s, unsigned permille)
{
    return permille != 0 && sim_below(s, 1000) < permille;
}

void *sim_grow(void *p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) {
        return p;
    }
    size_t cap_new = need * 2 + 16;
    p = realloc(p, cap_new * size);
    FLI_ASSERT(p != NULL);
    memset((char *)p + *cap * size, 0, (cap_new - *cap) * size);
    *cap = cap_new;
    return p;
}

/* ---- names of locks ---- */

void sim_lock_name(unsigned lock, char name[3])
{
    name[0] = lock < SIM_LOCKS ? 'L' : 'R';
    name[1] = (char)('0' + lock);
    name[2] = '\0';
}

unsigned sim_lock_number(struct fli_slice name)
{
    char ours[3];
    for (unsigned lock = 0; name.len == 2 && lock < SIM_ALL_LOCKS; lock++) {
        sim_lock_name(lock, ours);
        if (memcmp(name.data, ours, 2) == 0) {
            return lock;
        }
    }
    return SIM_ALL_LOCKS;
}

/* ---- events, by time and then by the order in which they were made: a list for each of the next
 * SIM_WHEEL milliseconds, and a binary heap for what is later than that ---- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void far_push(struct sim *s, struct sim_event *e)
{
    s->far = sim_grow(s->far, &s->far_cap, s->far_n + 1, sizeof(struct sim_event *));
    size_t i = s->far_n++;
    while (i > 0 && earlier(e, s->far[(i - 1) / 2])) {
        s->far[i] = s->far[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->far[i] = e;
}

static struct sim_event *far_pop(struct sim *s)
{
    struct sim_event *top = s->far[0];
    struct sim_event *last = s->far[--s->far_n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->far_n) {
            break;
        }
        if (child + 1 < s->far_n && earlier(s->far[child + 1], s->far[child])) {
            child++;
        }
        if (!earlier(s->far[child], last)) {
            break;
        }
        s->far[i] = s->far[child];
        i = child;
    }
    if (s->far_n > 0) {
        s->far[i] = last;
    }
    return top;
}

static void near_push(struct sim *s, struct sim_event *e)
{
    size_t slot = e->at % SIM_WHEEL;
    sim_inbox_push(&s->wheel[slot], e);
    s->wheel_bits[slot / 64] |= UINT64_C(1) << slot % 64;
    s->wheel_n++;
}

static void event_push(struct sim *s, struct sim_event *e)
{
    if (e->at - s->now < SIM_WHEEL) {
        near_push(s, e);
    } else {
        far_push(s, e);
    }
}

/* The slot of the next event on the wheel, which must have one. */
static size_t next_slot(const struct sim *s)
{
    size_t from = s->now % SIM_WHEEL;
    size_t word = from / 64;
    uint64_t bits = s->wheel_bits[word] & (UINT64_MAX << from % 64);
    while (bits == 0) {
        word = (word + 1) % (SIM_WHEEL / 64);
        bits = s->wheel_bits[word];
    }
    return word * 64 + (size_t)__builtin_ctzll(bits);
}

/* Events that have come near are moved to the wheel before any new one can be added. */
void sim_move_on(struct sim *s, uint64_t at)
{
    FLI_ASSERT(at >= s->now);
    s->now = at;
    while (s->far_n > 0 && s->far[0]->at - s->now < SIM_WHEEL) {
        near_push(s, far_pop(s));
    }
}

/* Moves time on to the event. */
static struct sim_event *event_pop(struct sim *s)
{
    struct sim_event *e;
    if (s->wheel_n == 0) {
        e = far_pop(s);
    } else {
        size_t slot = next_slot(s);
        e = sim_inbox_pop(&s->wheel[slot]);
        s->wheel_n--;
        if (s->wheel[slot].first == NULL) {
            s->wheel_bits[slot / 64] &= ~(UINT64_C(1) << slot % 64);
        }
    }
    sim_move_on(s, e->at);
    return e;
}

struct sim_event *sim_after(struct sim *s, uint64_t ms,
                            void (*fire)(struct sim *s, struct sim_event *e))
{
    struct sim_event *e = s->spare;
    if (e != NULL) {
        s->spare = e->next;
    } else {
        e = fli_xmalloc(sizeof *e);
    }
    *e = (struct sim_event){.at = s->now + ms, .seq = s->seq++, .fire = fire};
    event_push(s, e);
    return e;
}

void sim_again(struct sim *s, struct sim_event *e, uint64_t ms)
{
    e->at = s->now + ms;
    e->seq = s->seq++;
    event_push(s, e);
}

void sim_drop(struct sim *s, struct sim_event *e)
{
    if (e->drop != NULL) {
        e->drop(e);
    }
    e->next = s->spare;
    s->spare = e;
}

uint64_t sim_next_at(const struct sim *s)
{
    if (s->wheel_n == 0) {
        return s->far_n == 0 ? SIM_NEVER : s->far[0]->at;
    }
    return s->wheel[next_slot(s)].first->at;
}

bool sim_step(struct sim *s)
{
    if (s->wheel_n == 0 && s->far_n == 0) {
        return false;
    }
    struct sim_event *e = event_pop(s);
    s->marks->events++;
    e->fire(s, e);
    return true;
}

void sim_inbox_push(struct sim_inbox *b, struct sim_event *e)
{
    e->next = NULL;
    if (b->first == NULL) {
        b->first = e;
    } else {
        b->last->next = e;
    }
    b->last = e;
}

struct sim_event *sim_inbox_pop(struct sim_inbox *b)
{
    struct sim_event *e = b->first;
    if (e != NULL) {
        b->first = e->next;
    }
    return e;
}

/* ---- clocks ---- */

static uint64_t read_us(uint64_t at, const struct sim_clock *c)
{
    int64_t passed_us = (int64_t)(at - c->base) * 1000;
    return c->local_us + (uint64_t)(passed_us + passed_us / 1000 * c->ppm / 1000);
}

uint64_t sim_clock_read(const struct sim *s, const struct sim_clock *c)
{
    return read_us(s->now, c) / 1000;
}

/* The first true time at which the clock shows local_ms; now, if it shows that already. */
uint64_t sim_clock_when(const struct sim *s, const struct sim_clock *c, uint64_t local_ms)
{
    uint64_t now_us = read_us(s->now, c);
    if (local_ms > SIM_NEVER / 2000) {
        return SIM_NEVER;
    }
    if (local_ms * 1000 <= now_us) {
        return s->now;
    }
    uint64_t wait_us = local_ms * 1000 - now_us;
    uint64_t wait_ms = (wait_us + 999) / 1000;
    wait_ms = (uint64_t)((int64_t)wait_ms - (int64_t)wait_ms * c->ppm / 1000000);
    while (read_us(s->now + wait_ms, c) < local_ms * 1000) {
        wait_ms++;
    }
    return s->now + wait_ms;
}

void sim_clock_set(struct sim *s, struct sim_clock *c, uint64_t local_ms, int64_t ppm)
{
    *c = (struct sim_clock){.base = s->now, .local_us = local_ms * 1000, .ppm = ppm};
}

/* ---- life ---- */

void sim_event_queue_init(struct sim *s)
{
    sim_running = s;
    s->now = 1000;
}

static void drop_inbox(struct sim *s, struct sim_inbox *b)
{
    struct sim_event *e;
    while ((e = sim_inbox_pop(b)) != NULL) {
        sim_drop(s, e);
    }
}

void sim_event_queue_fini(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        drop_inbox(s, &s->nodes[i].inbox);
        drop_inbox(s, &s->nodes[i].deferred);
    }
    for (unsigned i = 0; i < s->clients_n; i++) {
        drop_inbox(s, &s->clients[i].deferred);
    }
    drop_inbox(s, &s->store.deferred);
    while (s->wheel_n > 0 || s->far_n > 0) {
        sim_drop(s, event_pop(s));
    }
    while (s->spare != NULL) {
        struct sim_event *e = s->spare;
        s->spare = e->next;
        free(e);
    }
    free(s->far);
    s->far = NULL;
    sim_running = NULL;
}

/* ---- links between places ---- */

bool sim_net_blocked(struct sim *s, unsigned from, unsigned to)
{
    return s->links[from][to].cut_until > s->now;
}

uint64_t sim_net_delay(struct sim *s, unsigned from, unsigned to)
{
    const struct sim_options *o = &s->options;
    const struct sim_link *l = &s->links[from][to];
    uint64_t ms = o->delay_ms + sim_below(s, o->delay_spread_ms + 1);
    if (sim_permille(s, o->spike_permille)) {
        ms += sim_below(s, 500);
    }
    if (l->slow_until > s->now) {
        ms += sim_below(s, l->slow_ms + 1);
    }
    return ms;
}
