/* scripts.c: see scripts.h. */
#include "scripts.h"

#include <stdarg.h>
#include <stdio.h>

#include "wire/resp.h"

#define ANSWER_MS 700u /* an answer is awaited for so long, and something more */
#define MORE_MS 800u

void sim_scripter_init(struct sim_scripter *p, const struct sim_scripter *how, struct sim *s,
                       unsigned index, uint64_t random)
{
    *p = *how;
    p->sim = s;
    p->index = index;
    p->serial = index;
    p->random.state = random;
}

uint64_t sim_scripter_below(struct sim_scripter *p, uint64_t n)
{
    return sim_draw_below(&p->random, n);
}

void sim_put_word(struct fli_buf *b, const char *format, ...)
{
    char text[48];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int rc = fli_resp_bulk(b, (const uint8_t *)text, (size_t)len);
    FLI_ASSERT(rc == 0);
}

static void late_fire(struct sim *s, struct sim_event *e)
{
    struct sim_scripter *p = e->p;
    bool it = p->waiting && p->serial == e->a;
    sim_drop(s, e);
    if (it) {
        p->told(s, p->serial, NULL, NULL, 0);
    }
}

static void send_deliver(struct sim_event *e)
{
    struct sim_scripter *p = e->p;
    struct fli_buf b;
    if (!p->waiting || p->serial != e->a || e->node->power != SIM_UP) {
        return;
    }
    fli_buf_init(&b, 4096);
    p->write(p, e->node, &b);
    sim_server_ask(e->node, b.data, b.len, p->serial, p->told);
    fli_buf_fini(&b);
}

static void send_fire(struct sim *s, struct sim_event *e)
{
    if (e->node->power == SIM_UP) {
        sim_node_fire(s, e);
    } else {
        sim_drop(s, e);
    }
}

/* Serials of one client are told apart from those of others by their rest. */
void sim_scripter_ask(struct sim_scripter *p)
{
    struct sim *s = p->sim;
    struct sim_node *n = &s->nodes[sim_scripter_below(p, s->n)];
    p->serial += SIM_SCRIPTERS;
    p->waiting = true;
    p->asked_at = s->now;
    p->tries++;
    struct sim_event *e = sim_after(s, ANSWER_MS + sim_scripter_below(p, MORE_MS), late_fire);
    e->p = p;
    e->a = p->serial;
    e = sim_after(s, 1 + sim_scripter_below(p, 10), send_fire);
    e->node = n;
    e->life = n->life;
    e->deliver = send_deliver;
    e->p = p;
    e->a = p->serial;
}

static void act_fire(struct sim *s, struct sim_event *e)
{
    struct sim_scripter *p = e->p;
    sim_drop(s, e);
    p->act(p);
}

void sim_scripter_rest(struct sim_scripter *p)
{
    uint64_t ms = 1 + sim_scripter_below(p, p->sim->options.think_ms + 20);
    sim_after(p->sim, ms, act_fire)->p = p;
}

bool sim_scripter_hears(struct sim_scripter *p, uint64_t serial, const struct machine_result *r,
                        const void *data, size_t len)
{
    if (!p->waiting || p->serial != serial) {
        return false;
    }
    p->waiting = false;
    SIM_CHECK(p->sim, r != NULL || len == 0 || *(const char *)data == '-',
              "%.*s is answered, and nobody said it", (int)len, (const char *)data);
    return true;
}

bool sim_scripter_is_idle(const struct sim_scripter *p)
{
    return !p->waiting && p->sim->now >= p->asked_at + 2 * (ANSWER_MS + MORE_MS);
}
