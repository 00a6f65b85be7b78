/* lane.c: one call of a client: does as src/client/call_state orders, in the place of the client's
 * sockets. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define RETRANSMIT_MS 40u
#define RESET_PERCENT 10u       /* of the connections on which somebody waits */
#define RESET_LOYAL_PERCENT 50u /* of a client that then dials the same node again */
#define RESET_NOTICED_MS 800u
#define HEALTH_PROBE (UINT64_C(1) << 63) /* in the number of a request: it is a health probe */

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
        l->half_closed = false;
        sim_server_hangup(l, 0);
    }
}

static bool awaits_answer(const struct sim_lane *l)
{
    enum fli_call_want want = l->call_state.order.want;
    return want == FLI_WANT_ANSWER || want == FLI_WANT_ASK_OTHER || want == FLI_WANT_PROBE;
}

/* As the shells do: what a node says after it was given up is of no use. */
static void leave_behind(struct sim_lane *l, enum fli_call_event event)
{
    enum fli_call_want want = l->call_state.order.want;
    bool waits_on = awaits_answer(l);
    bool silent =
        event == FLI_EVENT_SILENT || event == FLI_EVENT_DEAD || event == FLI_EVENT_LEADERLESS;
    if (!waits_on && silent) {
        hang_up(l);
    } else if (event == FLI_EVENT_SERVES) {
        l->client->sim->marks->changed_over++;
        hang_up(l);
        l->conn_open = l->asked_life != 0;
        l->half_closed = false;
        l->conn_node = l->asked_node;
        l->login = sim_users_login(l->client);
        l->conn_life = l->asked_life;
    }
    if (want != FLI_WANT_ASK_OTHER) {
        l->health_probe = 0;
    }
}

static void feed(struct sim_lane *l, enum fli_call_event event, int code)
{
    fli_call_state_feed(&l->call_state, sim_client_now(l->client), event, code);
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
    switch (l->call_state.order.want) {
    case FLI_WANT_CONNECT:
        feed(l, FLI_EVENT_UNREACHABLE, 0);
        break;
    case FLI_WANT_ANSWER:
    case FLI_WANT_ASK_OTHER:
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
    uint64_t at = sim_clock_when(c->sim, &c->clock, l->call_state.order.until_ms);
    struct sim_event *e = sim_to_client(c, at - c->sim->now, timer_deliver);
    e->a = l->order;
    e->b = l->number;
}

/* ---- connecting, probing and asking ---- */

/* Of a lock that nobody takes; what matters is that there is an answer. */
static void send_health_probe(struct sim_lane *l)
{
    struct machine_command m = {.op = MACHINE_OP_CHECK, .token = 1};
    m.name = (struct fli_slice){(const uint8_t *)"fencelock", 9};
    uint64_t login = sim_users_login(l->client);
    sim_server_request(l, l->asked_node, l->asked_life, l->health_probe, login, &m);
}

static void reached_deliver(struct sim_event *e)
{
    struct sim_lane *l = &e->client->lanes[e->b];
    bool up = e->life != 0;
    if (!l->active || l->order != e->a) {
        return;
    }
    if (l->call_state.order.want == FLI_WANT_ASK_OTHER) {
        if (!up) {
            feed(l, FLI_EVENT_SERVES_NOT, 0);
            return;
        }
        l->asked_node = e->node->index;
        l->asked_life = e->life;
        send_health_probe(l);
        feed(l, FLI_EVENT_ALIVE, 0);
        return;
    }
    if (l->call_state.order.want == FLI_WANT_PROBE) {
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
    l->half_closed = false;
    l->conn_node = e->node->index;
    l->conn_life = e->life;
    l->login = sim_users_login(l->client);
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
    answer_reach(e, e->life, sim_server_leaderless(e->node));
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

static struct machine_command command_of(struct sim_lane *l)
{
    struct machine_command m = l->command;
    uint64_t now_ms = sim_client_now(l->client);
    if (l->call_state.order.request == FLI_REQUEST_CONFIRM) {
        m = (struct machine_command){.op = MACHINE_OP_RENEW,
                                     .name = l->command.name,
                                     .token = l->token,
                                     .ttl_ms = l->command.ttl_ms};
    } else if ((m.flags & MACHINE_ACQUIRE_WAIT) != 0) {
        m.wait_ms = fli_call_state_wait_left(&l->call_state, now_ms);
        if (m.wait_ms == 0) {
            m.flags &= (uint8_t)~MACHINE_ACQUIRE_WAIT;
        }
    }
    if (m.op == MACHINE_OP_ACQUIRE && m.owner.len > 0) {
        l->attempt = fli_attempts_next(&l->client->sendings, l->attempt, now_ms);
        m.number = l->attempt;
    }
    l->wait_ms = m.wait_ms;
    return m;
}

static void send_request(struct sim_lane *l)
{
    struct sim *s = l->client->sim;
    struct machine_command m = command_of(l);
    l->request++;
    l->answer.there = false;
    l->start_seq = s->oracle.seq++;
    l->start_at = s->now;
    l->start_timestamp = s->oracle.last_timestamp_ms;
    if (l->first_at == 0) {
        l->first_at = s->now;
    }
    sim_server_request(l, l->conn_node, l->conn_life, l->request, l->login, &m);
    if (l->half_close) {
        l->half_closed = true;
        sim_server_half_close(l);
    }
}

/* ---- answers ---- */

static void take_answer(struct sim_lane *l)
{
    struct sim_answer a = l->answer;
    l->answer.there = false;
    if (a.owner != 0) {
        l->owner_number = a.owner;
    }
    if (l->half_closed) {
        hang_up(l); /* nothing more can be sent on it */
    }
    sim_oracle_told(l, &a);
    l->client->sim->marks->late += a.late != 0;
    l->attempt = a.late > l->attempt ? a.late : l->attempt;
    if (a.has_result && a.late == 0) {
        l->result = a.result;
        sim_oracle_answer(l, &a.result);
        sim_rights_listed(l, a.listed);
        if (a.result.code == MACHINE_NOAUTH) {
            hang_up(l); /* to log in anew */
        }
        if (a.event == FLI_EVENT_YES && a.result.token != 0 &&
            l->call_state.order.request == FLI_REQUEST_MAIN) {
            l->token = a.result.token;
        }
    }
    if (a.event == FLI_EVENT_NO && l->call_state.order.request == FLI_REQUEST_CONFIRM) {
        sim_oracle_lost_again(l);
    }
    feed(l, a.event, a.code);
}

/* An answer on its way. */
struct said {
    struct sim_answer a;
    size_t len;
    uint8_t bytes[];
};

/* What the machine said has come to the client as it was. What a client is not told, of the end of
 * a lease for example, the oracle hears all the same. */
static void compare(struct sim *s, const struct said *said, struct sim_answer *a)
{
    const struct machine_result *r = &said->a.result;
    if (!said->a.has_result || !a->has_result) {
        SIM_CHECK(s, !said->a.has_result, "a result is answered by none: %.*s", (int)said->len,
                  (const char *)said->bytes);
        return;
    }
    bool has_token =
        r->code == MACHINE_GRANTED || r->code == MACHINE_LATE ||
        (r->code == MACHINE_DONE && (a->op == MACHINE_OP_TOKEN || a->op == MACHINE_OP_BREAK));
    bool same = a->result.code == r->code ||
                (a->result.code == MACHINE_NOSESSION && r->code == MACHINE_NOTFOUND);
    SIM_CHECK(s, same && (!has_token || a->result.token == r->token),
              "the machine says %u, token %llu, and it is answered by %.*s", r->code,
              (unsigned long long)r->token, (int)said->len, (const char *)said->bytes);
    uint64_t token = a->result.token;
    a->result = *r;
    a->result.token = token;
}

static struct sim_answer answer_of(struct sim *s, const struct said *said)
{
    struct sim_answer a = said->a;
    sim_words_read(s, a.op, said->bytes, said->len, &a);
    compare(s, said, &a);
    a.there = true;
    return a;
}

static void say_deliver(struct sim_event *e)
{
    const struct said *said = e->p;
    const struct sim_answer *a = &said->a;
    struct sim_lane *l = &e->client->lanes[a->lane];
    if ((a->request & HEALTH_PROBE) != 0) {
        if (l->active && l->call_state.order.want == FLI_WANT_ASK_OTHER &&
            a->request == l->health_probe) {
            bool serves = answer_of(e->client->sim, said).has_result;
            feed(l, serves ? FLI_EVENT_SERVES : FLI_EVENT_SERVES_NOT, 0);
        }
        return;
    }
    if (!l->active || a->request != l->request || !l->conn_open) {
        return;
    }
    l->answer = answer_of(e->client->sim, said);
    if (awaits_answer(l)) {
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

void sim_lane_say(struct sim_client *c, struct sim_node *from, const struct sim_answer *a,
                  const void *data, size_t len)
{
    struct sim *s = c->sim;
    if (from->ghost) {
        return; /* its power is gone since a moment of this turn */
    }
    struct said *copy = fli_xmalloc(sizeof *copy + len);
    copy->a = *a;
    copy->len = len;
    memcpy(copy->bytes, data, len);
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
    l->half_closed = false;
    l->answer.there = false;
    if (l->active && awaits_answer(l)) {
        feed(l, FLI_EVENT_LOST, 0);
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
    bool loyal = l->call_state.config.nodes == 1;
    if (l->wait_ms > 0 && sim_draw_chance(r, loyal ? RESET_LOYAL_PERCENT : RESET_PERCENT)) {
        struct sim_event *e = sim_to_client(l->client, sim_draw_below(r, l->wait_ms), cut_deliver);
        e->a = l->request;
        e->b = l->number;
    }
}

static void reset_deliver(struct sim_event *e)
{
    for (unsigned i = 0; i < SIM_LANES; i++) {
        struct sim_lane *l = &e->client->lanes[i];
        if (l->active && l->call_state.order.want == FLI_WANT_ASK_OTHER &&
            l->asked_life == e->life && l->asked_node == e->node->index) {
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

/* "No" to a command about a session says that there is none. */
static int status_of(const struct sim_lane *l)
{
    bool of_session =
        l->command.op == MACHINE_OP_SESSION_RENEW || l->command.op == MACHINE_OP_SESSION_CLOSE;
    return of_session && l->call_state.status == FL_ENOTHELD ? FL_ENOSESSION : l->call_state.status;
}

static void finish(struct sim_lane *l)
{
    fli_attempts_end(&l->client->sendings, &l->call_state, l->attempt, sim_client_now(l->client));
    l->active = false;
    if (l->half_closed) {
        hang_up(l);
    }
    l->client->sim->marks->operations++;
    sim_oracle_called(l, l->call_state.status);
    l->done(l->client, l, status_of(l));
}

void sim_lane_leave(struct sim_lane *l)
{
    hang_up(l);
    l->order++;
    l->active = false;
    l->answer.there = false;
    l->client->sim->marks->operations++;
    l->client->sim->marks->left_by_hand++;
    l->done(l->client, l, FL_EUNCERTAIN);
}

/* The same order again only tells a new time: the probe goes on. */
static void ask(struct sim_lane *l)
{
    uint32_t other = l->call_state.order.other;
    start_timer(l);
    if (l->answer.there) {
        take_answer(l);
    } else if (l->health_probe == 0 || l->asked_node != other) {
        l->health_probe = HEALTH_PROBE | l->order;
        l->asked_node = other;
        l->asked_life = 0;
        reach(l, other, true);
    }
}

static void obey(struct sim_lane *l)
{
    for (;;) {
        const struct fli_call_order *o = &l->call_state.order;
        uint64_t now_ms = sim_client_now(l->client);
        switch (o->want) {
        case FLI_WANT_CONNECT:
            if (!l->conn_open || l->half_closed || l->conn_node != o->node) {
                hang_up(l);
                reach(l, o->node, false);
                start_timer(l);
                return;
            }
            fli_call_state_feed(&l->call_state, now_ms, FLI_EVENT_CONNECTED, 0);
            break;
        case FLI_WANT_SEND:
            if (!l->conn_open || l->half_closed) {
                fli_call_state_feed(&l->call_state, now_ms, FLI_EVENT_UNSENT, 0);
                break;
            }
            send_request(l);
            may_be_cut(l);
            fli_call_state_feed(&l->call_state, now_ms, FLI_EVENT_SENT, 0);
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
        case FLI_WANT_ASK_OTHER:
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

void sim_lane_start(struct sim_lane *l, const struct fli_call_config *config)
{
    struct sim *s = l->client->sim;
    FLI_ASSERT(!l->active);
    l->active = true;
    l->call++;
    l->robbed = false;
    sim_oracle_call(l);
    l->order++;
    l->answer.there = false;
    l->first_at = 0;
    l->token_floor = s->oracle.token_max;
    fli_call_state_init(&l->call_state, config);
    obey(l);
}
