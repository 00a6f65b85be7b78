/* lane.c: one call of a client: does as src/client/flow orders, in the place of the client's
 * sockets. */
#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"
#include "sim.h"

#define RETRANSMIT_MS 40u
#define RESET_PERCENT 10u /* of the connections on which somebody waits */
#define RESET_NOTICED_MS 800u
#define QUESTION (UINT64_C(1) << 63) /* in the number of a request: it is a question */

uint64_t sim_client_now(const struct sim_client *c)
{
    return sim_clock_read(c->sim, &c->clock);
}

static void client_fire(struct sim *s, struct sim_event *e)
{
    struct sim_client *c = e->client;
    if (c->paused) {
        sim_inbox_push(&c->deferred, e);
        return;
    }
    e->deliver(e);
    sim_drop(s, e);
}

struct sim_event *sim_to_client(struct sim_client *c, uint64_t ms,
                                void (*deliver)(struct sim_event *))
{
    struct sim_event *e = sim_after(c->sim, ms, client_fire);
    e->client = c;
    e->deliver = deliver;
    return e;
}

static void obey(struct sim_lane *l);

static void hang_up(struct sim_lane *l)
{
    if (l->conn_open) {
        l->conn_open = false;
        sim_server_hangup(l, 0);
    }
}

/* As the shells do: what a node says after it was given up is of no use. */
static void leave_behind(struct sim_lane *l, enum fli_flow_event event)
{
    enum fli_flow_want want = l->flow.order.want;
    bool waits_on = want == FLI_WANT_ANSWER || want == FLI_WANT_ASK || want == FLI_WANT_PROBE;
    bool silent =
        event == FLI_EVENT_SILENT || event == FLI_EVENT_DEAD || event == FLI_EVENT_LEADERLESS;
    if (!waits_on && silent) {
        hang_up(l);
    } else if (event == FLI_EVENT_SERVES) {
        l->client->sim->marks->changed_over++;
        hang_up(l);
        l->conn_open = l->asked_life != 0;
        l->conn_node = l->asked_node;
        l->conn_life = l->asked_life;
    }
    if (want != FLI_WANT_ASK) {
        l->question = 0;
    }
}

static void feed(struct sim_lane *l, enum fli_flow_event event, int code)
{
    fli_flow_feed(&l->flow, sim_client_now(l->client), event, code);
    leave_behind(l, event);
    l->order++;
    obey(l);
}

/* ---- time over ---- */

static void timer_deliver(struct sim_event *e)
{
    struct sim_lane *l = &e->client->lanes[e->b];
    if (!l->active || l->order != e->a) {
        return;
    }
    switch (l->flow.order.want) {
    case FLI_WANT_CONNECT:
        feed(l, FLI_EVENT_UNREACHABLE, 0);
        break;
    case FLI_WANT_ANSWER:
    case FLI_WANT_ASK:
        feed(l, FLI_EVENT_SILENT, 0);
        break;
    case FLI_WANT_PROBE:
        feed(l, FLI_EVENT_DEAD, 0);
        break;
    case FLI_WANT_SLEEP:
        feed(l, FLI_EVENT_WOKE, 0);
        break;
    default:
        sim_fail(l->client->sim, "no other order takes time");
    }
}

static void start_timer(struct sim_lane *l)
{
    struct sim_client *c = l->client;
    uint64_t at = sim_clock_when(c->sim, &c->clock, l->flow.order.until_ms);
    struct sim_event *e = sim_to_client(c, at - c->sim->now, timer_deliver);
    e->a = l->order;
    e->b = l->number;
}

/* ---- connecting, probing and asking ---- */

/* Of a lock that nobody takes; what matters is that there is an answer. */
static void send_question(struct sim_lane *l)
{
    struct machine_command m = {.op = MACHINE_OP_CHECK, .token = 1};
    struct fli_buf buf;
    m.name = (struct fli_slice){(const uint8_t *)"fencelock", 9};
    fli_buf_init(&buf, 512);
    int rv = machine_command_encode(&m, &buf);
    FLI_ASSERT(rv == 0);
    sim_server_request(l, l->asked_node, l->asked_life, l->question, buf.data, buf.len);
    fli_buf_fini(&buf);
}

static void reached_deliver(struct sim_event *e)
{
    struct sim_lane *l = &e->client->lanes[e->b];
    bool up = e->life != 0;
    if (!l->active || l->order != e->a) {
        return;
    }
    if (l->flow.order.want == FLI_WANT_ASK) {
        if (!up) {
            feed(l, FLI_EVENT_SERVES_NOT, 0);
            return;
        }
        l->asked_node = e->node->index;
        l->asked_life = e->life;
        send_question(l);
        feed(l, FLI_EVENT_ALIVE, 0);
        return;
    }
    if (l->flow.order.want == FLI_WANT_PROBE) {
        l->client->sim->marks->probes++;
        l->client->sim->marks->leaderless += e->c != 0;
        feed(l, !up ? FLI_EVENT_DEAD : e->c != 0 ? FLI_EVENT_LEADERLESS : FLI_EVENT_ALIVE, 0);
        return;
    }
    if (!up) {
        feed(l, FLI_EVENT_UNREACHABLE, 0);
        return;
    }
    l->conn_open = true;
    l->conn_node = e->node->index;
    l->conn_life = e->life;
    feed(l, FLI_EVENT_CONNECTED, 0);
}

static void answer_reach(struct sim_event *e, uint64_t life, bool leaderless)
{
    struct sim_node *n = e->node;
    struct sim *s = n->sim;
    struct sim_event *back =
        sim_to_client(e->client, sim_net_delay(s, n->index, n->index), reached_deliver);
    back->node = n;
    back->a = e->a;
    back->b = e->b;
    back->life = life;
    back->c = leaderless;
}

static void ping_deliver(struct sim_event *e)
{
    const struct node *node = e->node->node;
    answer_reach(e, e->life, node->role == NODE_FOLLOWER && node->leader_id == 0);
}

/* The kernel accepts a connection also while the process is stopped; a PING needs the process. */
static void reach_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = e->node;
    if (sim_net_blocked(s, n->index, n->index)) {
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    if (e->c != 0 && sim_node_runs(n)) {
        e->life = n->life;
        sim_node_fire(s, e);
        return;
    }
    answer_reach(e, sim_node_runs(n) ? n->life : 0, false);
    sim_drop(s, e);
}

static void reach(struct sim_lane *l, uint32_t node, bool ping)
{
    struct sim *s = l->client->sim;
    struct sim_node *n = &s->nodes[node];
    struct sim_event *e = sim_after(s, sim_net_delay(s, n->index, n->index), reach_fire);
    e->node = n;
    e->client = l->client;
    e->deliver = ping_deliver;
    e->a = l->order;
    e->b = l->number;
    e->c = ping;
}

/* ---- sending ---- */

static void encode(struct sim_lane *l, struct fli_buf *buf)
{
    struct machine_command m = l->command;
    uint64_t now_ms = sim_client_now(l->client);
    if (l->flow.order.request == FLI_REQUEST_CONFIRM) {
        m = (struct machine_command){.op = MACHINE_OP_RENEW,
                                     .name = l->command.name,
                                     .token = l->token,
                                     .ttl_ms = l->command.ttl_ms};
    } else if ((m.flags & MACHINE_ACQUIRE_WAIT) != 0) {
        m.wait_ms = fli_flow_wait_left(&l->flow, now_ms);
        if (m.wait_ms == 0) {
            m.flags &= (uint8_t)~MACHINE_ACQUIRE_WAIT;
        }
    }
    l->wait_ms = m.wait_ms;
    int rv = machine_command_encode(&m, buf);
    FLI_ASSERT(rv == 0);
}

static void send_request(struct sim_lane *l)
{
    struct sim *s = l->client->sim;
    struct fli_buf buf;
    fli_buf_init(&buf, 2048);
    encode(l, &buf);
    l->request++;
    l->answer.there = false;
    l->start_seq = s->oracle.seq++;
    l->start_at = s->now;
    l->start_stamp = s->oracle.last_stamp_ms;
    if (l->first_at == 0) {
        l->first_at = s->now;
    }
    sim_server_request(l, l->conn_node, l->conn_life, l->request, buf.data, buf.len);
    fli_buf_fini(&buf);
}

/* ---- answers ---- */

static void take_answer(struct sim_lane *l)
{
    struct sim_answer a = l->answer;
    l->answer.there = false;
    if (a.has_result) {
        l->result = a.result;
        sim_oracle_answer(l, &a.result);
        if (a.event == FLI_EVENT_YES && a.result.token != 0 &&
            l->flow.order.request == FLI_REQUEST_MAIN) {
            l->token = a.result.token;
        }
    }
    feed(l, a.event, a.code);
}

static void say_deliver(struct sim_event *e)
{
    const struct sim_answer *a = e->p;
    struct sim_lane *l = &e->client->lanes[a->lane];
    if ((a->request & QUESTION) != 0) {
        if (l->active && l->flow.order.want == FLI_WANT_ASK && a->request == l->question) {
            feed(l, a->has_result ? FLI_EVENT_SERVES : FLI_EVENT_SERVES_NOT, 0);
        }
        return;
    }
    if (!l->active || a->request != l->request || !l->conn_open) {
        return;
    }
    l->answer = *a;
    if (l->flow.order.want == FLI_WANT_ANSWER || l->flow.order.want == FLI_WANT_ASK) {
        take_answer(l);
    }
}

static void say_drop(struct sim_event *e)
{
    free(e->p);
}

static void say_fire(struct sim *s, struct sim_event *e)
{
    if (sim_net_blocked(s, e->node->index, e->node->index)) {
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    client_fire(s, e);
}

void sim_lane_say(struct sim_client *c, struct sim_node *from, const struct sim_answer *a)
{
    struct sim *s = c->sim;
    struct sim_answer *copy = fli_xmalloc(sizeof *copy);
    *copy = *a;
    struct sim_event *e = sim_after(s, sim_net_delay(s, from->index, from->index), say_fire);
    e->client = c;
    e->node = from;
    e->deliver = say_deliver;
    e->drop = say_drop;
    e->p = copy;
}

/* What the client hears when its connection has ended, whoever did it. */
static void lost(struct sim_lane *l)
{
    l->conn_open = false;
    l->answer.there = false;
    enum fli_flow_want want = l->flow.order.want;
    if (l->active && (want == FLI_WANT_ANSWER || want == FLI_WANT_ASK)) {
        feed(l, FLI_EVENT_LOST, 0);
    } else if (l->active && want == FLI_WANT_PROBE) {
        l->answer = (struct sim_answer){.there = true, .event = FLI_EVENT_LOST};
    }
}

/* Somebody between the two has ended the connection; the node notices later, when the client may
 * have asked again elsewhere long since. */
static void cut_deliver(struct sim_event *e)
{
    struct sim_lane *l = &e->client->lanes[e->b];
    struct sim *s = l->client->sim;
    if (!l->active || !l->conn_open || l->request != e->a || s->healed) {
        return;
    }
    s->marks->resets++;
    sim_server_hangup(l, sim_draw_below(&e->client->random, RESET_NOTICED_MS));
    lost(l);
}

static void may_be_cut(struct sim_lane *l)
{
    struct sim_random *r = &l->client->random;
    if (l->wait_ms > 0 && sim_draw_chance(r, RESET_PERCENT)) {
        struct sim_event *e = sim_to_client(l->client, sim_draw_below(r, l->wait_ms), cut_deliver);
        e->a = l->request;
        e->b = l->number;
    }
}

static void reset_deliver(struct sim_event *e)
{
    for (unsigned i = 0; i < SIM_LANES; i++) {
        struct sim_lane *l = &e->client->lanes[i];
        if (l->active && l->flow.order.want == FLI_WANT_ASK && l->asked_life == e->life &&
            l->asked_node == e->node->index) {
            feed(l, FLI_EVENT_SERVES_NOT, 0);
        }
        if (!l->conn_open || l->conn_node != e->node->index || l->conn_life != e->life) {
            continue;
        }
        lost(l);
    }
}

void sim_lanes_reset(struct sim_node *n)
{
    struct sim *s = n->sim;
    for (unsigned i = 0; i < s->clients_n; i++) {
        uint64_t ms = 1 + sim_net_delay(s, n->index, n->index);
        struct sim_event *e = sim_after(s, ms, say_fire);
        e->client = &s->clients[i];
        e->node = n;
        e->life = n->life;
        e->deliver = reset_deliver;
    }
}

/* ---- orders ---- */

static void finish(struct sim_lane *l)
{
    l->active = false;
    l->client->sim->marks->operations++;
    l->done(l->client, l, l->flow.status);
}

/* The same order again only tells a new time: the question stands. */
static void ask(struct sim_lane *l)
{
    uint32_t other = l->flow.order.other;
    start_timer(l);
    if (l->answer.there) {
        take_answer(l);
    } else if (l->question == 0 || l->asked_node != other) {
        l->question = QUESTION | l->order;
        l->asked_node = other;
        l->asked_life = 0;
        reach(l, other, true);
    }
}

static void obey(struct sim_lane *l)
{
    for (;;) {
        const struct fli_flow_order *o = &l->flow.order;
        uint64_t now_ms = sim_client_now(l->client);
        switch (o->want) {
        case FLI_WANT_CONNECT:
            if (!l->conn_open || l->conn_node != o->node) {
                hang_up(l);
                reach(l, o->node, false);
                start_timer(l);
                return;
            }
            fli_flow_feed(&l->flow, now_ms, FLI_EVENT_CONNECTED, 0);
            break;
        case FLI_WANT_SEND:
            if (!l->conn_open) {
                fli_flow_feed(&l->flow, now_ms, FLI_EVENT_UNSENT, 0);
                break;
            }
            send_request(l);
            may_be_cut(l);
            fli_flow_feed(&l->flow, now_ms, FLI_EVENT_SENT, 0);
            break;
        case FLI_WANT_ANSWER:
            start_timer(l);
            if (l->answer.there) {
                take_answer(l);
            }
            return;
        case FLI_WANT_PROBE:
            reach(l, o->node, true);
            start_timer(l);
            return;
        case FLI_WANT_ASK:
            ask(l);
            return;
        case FLI_WANT_SLEEP:
            start_timer(l);
            return;
        case FLI_WANT_NOTHING:
            finish(l);
            return;
        }
        l->order++;
    }
}

void sim_lane_start(struct sim_lane *l, const struct fli_flow_config *config)
{
    struct sim *s = l->client->sim;
    FLI_ASSERT(!l->active);
    l->active = true;
    l->robbed = false;
    l->order++;
    l->answer.there = false;
    l->first_at = 0;
    l->token_floor = s->oracle.token_max;
    fli_flow_init(&l->flow, config);
    obey(l);
}
