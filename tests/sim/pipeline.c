/* pipeline.c: connections that send many requests at once, to any node, and end. What they ask for
 * changes nothing: two requests about a lock that nobody takes, one of which is urgent
 * (commands.h).
 *
 * The requests of one connection are carried out in the order in which they came, across all
 * changes of leader. One whose client was told UNCERTAIN is left out: it may be on its way to a
 * former leader still, and that is what the word says. sending.c compares the log with this.
 *
 * And when all is well again, a node carries a long pipeline in much less time than a round trip
 * for each of its requests. */
#include <string.h>

#include "sim.h"

#define BURST_MIN 2u
#define BURST_SPREAD 14u
#define LONG_BURST 1500u /* of each LONG_EACH, one is so long */
#define LONG_EACH 6u
#define PART_MS 150u /* at most, between two parts */
#define LONG 1000u
#define TRIES 6u
#define QUERIES 300u
#define FULL_EACH 4u /* in one of so many runs there is little room for commands */
#define FULL_BYTES 16384u
#define SHOWN 3u /* times that some of them were answered */

static void told(struct sim *s, uint64_t serial, const struct machine_result *r, const void *data,
                 size_t len)
{
    s->pipeline_answers++;
}

/* Mostly pipelines, and what changes who leads and breaks streams (--relay-heavy). */
void sim_pipeline_choose(struct sim *s)
{
    static const unsigned wanted[SIM_FAULT_KINDS] = {
        [SIM_FAULT_PIPELINE] = 24, [SIM_FAULT_TRANSFER] = 10, [SIM_FAULT_CRASH] = 3,
        [SIM_FAULT_PAUSE] = 5,     [SIM_FAULT_CUT] = 4,       [SIM_FAULT_BREAK] = 6,
        [SIM_FAULT_LATE] = 6,      [SIM_FAULT_STALL] = 4,     [SIM_FAULT_STOP] = 2,
        [SIM_FAULT_LOSSY] = 2,
    };
    struct sim_options *o = &s->options;
    if (!s->orders.relay_heavy) {
        return;
    }
    for (unsigned k = 0; k < SIM_FAULT_KINDS; k++) {
        o->weight[k] = wanted[k];
    }
    o->fault_every_ms = o->fault_every_ms > 150 ? 150 : o->fault_every_ms;
    o->pending_max = s->orders.seed % FULL_EACH == 0 ? FULL_BYTES : NODE_PENDING_MAX;
}

/* Clients number their connections from 1 (server.c). */
static void told_of_lock(struct sim *s, uint64_t serial, const struct machine_result *r,
                         const void *data, size_t len)
{
    s->pipeline_answers++;
    s->pipeline_shown += len > 0 && *(const char *)data != '-';
}

static uint64_t source_of(uint64_t connection)
{
    return SIM_CLIENTS_MAX * SIM_LANES + 1 + connection;
}

static void send_deliver(struct sim_event *e)
{
    static const char *const words[] = {"BREAK zz\r\n", "RELEASE zz 9007199254740990\r\n"};
    struct sim_node *n = e->node;
    if (n->power != SIM_UP) {
        return;
    }
    for (uint64_t i = 0; i < e->b; i++) {
        const char *text = words[(e->a + i * i) % 3 % 2];
        sim_server_ask_from(n, source_of(e->a), (const uint8_t *)text, strlen(text), i, told);
        n->sim->marks->pipelined++;
    }
}

static void ask_deliver(struct sim_event *e)
{
    static const char text[] = "SHOW zz\r\n";
    struct sim_node *n = e->node;
    for (uint64_t i = 0; i < QUERIES && n->power == SIM_UP; i++) {
        sim_server_ask_from(n, source_of(e->a), (const uint8_t *)text, sizeof text - 1, i,
                            told_of_lock);
    }
}

static void send_to(struct sim_node *n, uint64_t connection, uint64_t requests, uint64_t ms)
{
    struct sim_event *e = sim_to_node(n, ms, send_deliver);
    e->a = connection;
    e->b = requests;
}

/* Some come in parts, so that what comes later finds a node that has become leader, or is none any
 * more; and some are longer than an entry of the log and what a turn moves. */
void sim_pipeline_begin(struct sim_node *n, const struct sim_fault *f)
{
    if (!sim_node_runs(n)) {
        return;
    }
    uint64_t connection = sim_oracle_connection(n->sim);
    uint64_t requests = BURST_MIN + (f->k + f->ms) % BURST_SPREAD;
    requests = f->ms % LONG_EACH == 0 ? LONG_BURST : requests;
    for (unsigned i = 0; i <= f->j; i++) {
        send_to(n, connection, requests, i * (f->ms % PART_MS));
    }
}

/* One request at a time takes four ways: there and back to the leader, and to others' disks. A
 * change of leader meanwhile costs time as well, and then it is tried again. */
static uint64_t soon_ms(const struct sim *s)
{
    return (uint64_t)LONG * 3 * (1 + s->options.delay_ms);
}

static bool carries(struct sim *s, struct sim_node *n)
{
    uint64_t before = s->pipeline_answers;
    uint64_t until = s->now + soon_ms(s);
    send_to(n, sim_oracle_connection(s), LONG, 0);
    while (s->pipeline_answers < before + LONG && s->now < until) {
        sim_step(s);
    }
    return s->pipeline_answers >= before + LONG;
}

static void wait_for_answers(struct sim *s, uint64_t all)
{
    uint64_t until = s->now + 40000;
    while (s->pipeline_answers < all) {
        sim_step(s);
        SIM_CHECK(s, s->now < until, "not all requests of a pipeline are answered");
    }
}

/* More queries than a stream has places for, so each place is used again. */
static bool shows(struct sim *s, struct sim_node *n)
{
    uint64_t before = s->pipeline_shown;
    uint64_t all = s->pipeline_answers + QUERIES;
    sim_to_node(n, 0, ask_deliver)->a = sim_oracle_connection(s);
    wait_for_answers(s, all);
    return s->pipeline_shown > before; /* some may wait for longer than they are held */
}

void sim_pipeline_ask(struct sim_node *n, unsigned requests)
{
    struct sim *s = n->sim;
    if (n->power == SIM_UP) {
        s->pipeline_asked =
            s->pipeline_asked < s->pipeline_answers ? s->pipeline_answers : s->pipeline_asked;
        s->pipeline_asked += requests;
        send_to(n, sim_oracle_connection(n->sim), requests, 0);
    }
}

void sim_pipeline_wait(struct sim *s)
{
    wait_for_answers(s, s->pipeline_asked);
}

void sim_pipeline_rest(struct sim *s)
{
    struct sim_node *n = &s->nodes[s->orders.seed % s->n];
    bool soon = false;
    for (unsigned i = 0; i < TRIES && !soon; i++) {
        uint64_t all = s->pipeline_answers + LONG;
        soon = carries(s, n);
        if (!soon) {
            wait_for_answers(s, all);
        }
    }
    SIM_CHECK(s, soon, "node %u does not carry %u requests of one connection within %llu ms",
              n->index + 1, LONG, (unsigned long long)soon_ms(s));
    unsigned shown = s->users.any ? SHOWN : 0;
    for (unsigned i = 0; i < TRIES && shown < SHOWN; i++) {
        shown += shows(s, n);
    }
    SIM_CHECK(s, shown == SHOWN, "node %u answers no queries any more", n->index + 1);
}
