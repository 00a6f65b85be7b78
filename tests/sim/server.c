/* server.c: what src/server/server.c is to a real node: it gives what clients send to the shipping
 * dispatch, the commands of that to the shipping node, and the answers back to the clients.
 *
 * The sockets are missing. Between a node and its clients there are streams: nothing is lost, much
 * is late, and all of them break when the node ends. A connection that ends is told to dispatch as
 * net does: a request is cancelled, or, when only the client's side was closed, hung up.
 *
 * Between dispatch and node each command is noted, for the oracle: what the machine said to it, and
 * under which owner the node has asked for a client that named none. */
#include "node_clock.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"
#include "server/dispatch.h"
#include "wire/resp.h"

#define RETRANSMIT_MS 40u
#define REQUEST_MAX_BYTES 8192u
#define ANSWER_MAX_BYTES (1024u * 1024u)
/* A wait is heard of for the time given to dispatch, on the node's clock; less, to be sure. */
#define HEARD_MARGIN_MS 200u

/* What a client has sent: on its way. */
struct parcel {
    struct sim_client *client;
    unsigned lane;
    uint64_t number;
    uint64_t nameless; /* an ACQUIRE without an owner: number of the owner in its place; or 0 */
    uint64_t call;     /* of which it is a sending; 0: none */
    uint64_t login;    /* on its connection */
    uint8_t op;
    size_t len;
    uint8_t bytes[];
};

/* At a node, until it is answered or cancelled. */
struct sim_request {
    struct fli_list link; /* of the node */
    struct dispatch_slot slot;
    struct sim_node *node;
    struct sim_client *client; /* NULL: a probe */
    unsigned lane;
    uint64_t number, nameless, call; /* as in the parcel */
    uint64_t sending;                /* 0: none yet */
    uint64_t login;
    uint8_t op;
    bool superseded; /* it came to a leader when there was a newer one */
    struct tap *tap; /* its command is with the node; NULL: none is */
    uint64_t owner;  /* that the node made for it; 0: none */
    bool half_closed;
    uint64_t wait; /* that it awaits; 0: none */
    bool has_result;
    struct machine_result result; /* what the machine said to it, unless it waits */
    struct fli_buf reply;
    /* of one without a lane: */
    uint64_t serial, source;
    void (*told)(struct sim *s, uint64_t serial, const struct machine_result *r, const void *data,
                 size_t len);
};

/* Between dispatch and node: one command. */
struct tap {
    struct node_ticket ticket;
    struct node_ticket *theirs;
    node_ticket_cb cb;
    struct sim_node *node;
    struct sim_request *request; /* NULL: of nobody, or nobody awaits it any more */
    uint64_t owner;              /* as in the request */
    uint64_t number;             /* of the request */
    uint64_t sending;            /* 0: a query */
    uint64_t wait;               /* of a cancel: what it ends */
    uint64_t wait_ms;
    struct sim_client *client;
    unsigned lane;
    uint8_t op;
};

/* ---- requests ---- */

static void request_free(struct sim_request *q)
{
    if (q->tap != NULL) {
        q->tap->request = NULL;
    }
    fli_list_remove(&q->link);
    fli_buf_fini(&q->reply);
    free(q);
}

static struct sim_request *request_of(struct sim_node *n, const struct parcel *p)
{
    struct sim_request *q = fli_xcalloc(1, sizeof *q);
    fli_list_push(&n->requests, &q->link);
    fli_buf_init(&q->reply, ANSWER_MAX_BYTES);
    q->node = n;
    if (p != NULL) {
        q->client = p->client;
        q->lane = p->lane;
        q->number = p->number;
        q->nameless = p->nameless;
        q->call = p->call;
        q->login = p->login;
        q->op = p->op;
    }
    return q;
}

/* ---- answers ---- */

static struct fli_buf *reply(void *request)
{
    return &((struct sim_request *)request)->reply;
}

static bool says(const struct sim_request *q, const char *word)
{
    return q->reply.len >= strlen(word) && memcmp(q->reply.data, word, strlen(word)) == 0;
}

static void count_answer(struct sim_request *q)
{
    struct sim_marks *m = q->node->sim->marks;
    bool uncertain = says(q, "-UNCERTAIN");
    m->noleader += says(q, "-NOLEADER");
    m->busy += says(q, "-BUSY");
    m->uncertain += uncertain;
    SIM_CHECK(q->node->sim, !uncertain || !MACHINE_OP_IS_QUERY(q->op),
              "a query is answered UNCERTAIN");
}

static void answer_outside(struct sim_request *q)
{
    count_answer(q);
    q->told(q->node->sim, q->serial, q->has_result ? &q->result : NULL, q->reply.data,
            q->reply.len);
    request_free(q);
}

static void answer(void *request)
{
    struct sim_request *q = request;
    if (q->told != NULL) {
        answer_outside(q);
        return;
    }
    if (q->client == NULL) {
        return; /* who asked looks at it */
    }
    count_answer(q);
    q->node->sim->marks->superseded_answered += q->superseded;
    SIM_CHECK(q->node->sim, q->owner == 0 || !q->half_closed || q->wait == 0 || !says(q, ":"),
              "a client that has closed its side is granted what it could never ask for again");
    if (q->owner != 0) {
        sim_oracle_over(q->node, q->owner, says(q, "+") || says(q, ":") || says(q, "-UNCERTAIN"));
    }
    struct sim_answer a = {.lane = q->lane,
                           .request = q->number,
                           .op = q->op,
                           .owner = q->owner,
                           .sending = q->sending,
                           .result = q->result,
                           .has_result = q->has_result};
    sim_lane_say(q->client, q->node, &a, q->reply.data, q->reply.len);
    request_free(q);
}

static void failed(void *request)
{
    struct sim_request *q = request;
    sim_fail(q->node->sim, "an answer to a command of kind %u does not fit", q->op);
}

/* ---- between dispatch and node ---- */

/* A wait is to be cancelled for a client that has left. It may have asked again meanwhile, and an
 * older try of the client's may have come last all the same: then it loses its place. */
static void note_cancel(struct sim_node *n, uint64_t wait, uint64_t times_asked)
{
    struct sim *s = n->sim;
    SIM_TRACE(s, "node %u cancels wait %llu, asking %llu", n->index + 1, (unsigned long long)wait,
              (unsigned long long)times_asked);
    for (unsigned i = 0; i < s->clients_n * SIM_LANES; i++) {
        struct sim_lane *l = &s->clients[i / SIM_LANES].lanes[i % SIM_LANES];
        for (unsigned k = 0; k < SIM_WAITS_SEEN_MAX; k++) {
            bool it = l->waits_seen[k].wait == wait && l->waits_seen[k].times_asked == times_asked;
            l->robbed = l->robbed || (it && times_asked > 1 && l->active &&
                                      l->request > l->waits_seen[k].request);
        }
    }
}

static void note_queued(struct tap *t, const struct machine_result *r)
{
    struct sim_node *n = t->node;
    struct sim *s = n->sim;
    s->marks->queued++;
    if (t->client == NULL) {
        return;
    }
    struct sim_lane *l = &t->client->lanes[t->lane];
    SIM_TRACE(s, "node %u has client %u in wait %llu, asking %llu", n->index + 1, t->client->index,
              (unsigned long long)r->wait, (unsigned long long)r->token);
    if (t->request == NULL && r->token > 1) {
        return; /* a try that was given up, and that must not cost the next one its place */
    }
    l->waits_seen[l->waits_seen_n % SIM_WAITS_SEEN_MAX].wait = r->wait;
    l->waits_seen[l->waits_seen_n % SIM_WAITS_SEEN_MAX].times_asked = r->token;
    l->waits_seen[l->waits_seen_n % SIM_WAITS_SEEN_MAX].request = t->number;
    l->waits_seen_n++;
    if (t->owner != 0) {
        sim_oracle_owner(s, t->owner)->heard_until =
            s->now + t->wait_ms + s->options.slack_ms - HEARD_MARGIN_MS;
    }
}

/* Too late when the client has asked again elsewhere and waits on. */
static void note_cancelled(const struct tap *t, int status, const struct machine_result *r)
{
    struct sim_marks *m = t->node->sim->marks;
    m->waits_cancelled += status == 0 && r->code == MACHINE_DONE;
    m->cancels_late += status == 0 && r->code == MACHINE_NO &&
                       machine_is_waiting(node_machine(t->node->node), t->wait);
}

static void note_result(struct tap *t, int status, const struct machine_result *r)
{
    struct sim_node *n = t->node;
    struct sim_request *q = t->request;
    bool queued = status == 0 && r->code == MACHINE_QUEUED;
    if (t->sending != 0) {
        sim_oracle_result(n->sim, t->sending, status, r);
    }
    if (t->op == MACHINE_OP_CANCEL) {
        note_cancelled(t, status, r);
    } else if (t->op == MACHINE_OP_RELEASE && q == NULL && t->client == NULL) {
        n->sim->marks->grants_undone += status == 0 && r->code == MACHINE_DONE;
    }
    if (queued) {
        note_queued(t, r);
    }
    /* Nobody can take back what nobody knows. */
    if (t->owner != 0 && status == FL_EUNCERTAIN) {
        sim_oracle_owner(n->sim, t->owner)->excused = true;
    }
    if (q != NULL) {
        q->tap = NULL;
        q->wait = queued ? r->wait : 0;
        q->has_result = status == 0 && !queued;
        if (q->has_result) {
            q->result = *r;
        }
    }
}

/* Whether this node has heard of the end of a wait before it heard of its beginning. */
static bool has_ended(const struct sim_node *n, uint64_t wait)
{
    unsigned have = n->ended_n < SIM_ENDED_MAX ? n->ended_n : SIM_ENDED_MAX;
    for (unsigned i = 0; i < have; i++) {
        if (n->ended[i] == wait) {
            return true;
        }
    }
    return false;
}

/* Whom an event answers is answered in the turn after it. */
static void check_answered(struct sim_node *n)
{
    if (!n->heard) {
        return;
    }
    n->heard = false;
    FLI_LIST_FOREACH(pos, &n->requests)
    {
        const struct sim_request *q = FLI_CONTAINER_OF(pos, struct sim_request, link);
        SIM_CHECK(n->sim, q->wait == 0 || !has_ended(n, q->wait),
                  "node %u has heard of the end of wait %llu and does not answer client %u",
                  n->index + 1, (unsigned long long)q->wait, q->client->index);
    }
}

static void on_result(struct node_ticket *ticket, int status, const struct machine_result *result,
                      struct fli_slice payload)
{
    struct tap *t = FLI_CONTAINER_OF(ticket, struct tap, ticket);
    struct sim_node *n = t->node;
    SIM_CHECK(n->sim, n->tickets > 0, "node %u answers more often than it was asked", n->index + 1);
    n->tickets--;
    SIM_CHECK(n->sim,
              status == 0 || status == FL_ENOLEADER || status == FL_EBUSY ||
                  status == FL_EUNCERTAIN,
              "node %u answers %s", n->index + 1, fl_err_name(status));
    if (!n->ghost) {
        note_result(t, status, result);
    } else if (t->request != NULL) {
        t->request->tap = NULL;
    }
    struct node_ticket *theirs = t->theirs;
    node_ticket_cb cb = t->cb;
    free(t);
    cb(theirs, status, result, payload);
    n->heard |= !n->ghost && status == 0 && result->code == MACHINE_QUEUED;
}

static void note_command(struct tap *t, const struct machine_command *m)
{
    struct sim_request *q = t->request;
    t->op = m->op;
    if (m->op == MACHINE_OP_CANCEL) {
        t->wait = m->number;
        note_cancel(t->node, m->number, m->number2);
    }
    if (q == NULL || m->op != MACHINE_OP_ACQUIRE) {
        return;
    }
    t->wait_ms = m->wait_ms;
    if (q->nameless != 0) {
        q->owner = sim_oracle_made_owner(t->node, q->nameless, m->owner);
        t->owner = q->owner;
    }
}

static uint64_t source(void *ctx, void *request)
{
    const struct sim_request *r = request;
    const struct sim_node *n = ctx;
    return r->client == NULL ? r->source
                             : 1 + (uint64_t)(r->client - n->sim->clients) * SIM_LANES + r->lane;
}

/* The connection of pipeline.c that a request is of; 0: none. */
static uint64_t piped(const struct sim_request *q)
{
    return q->source == 0 ? 0 : q->source - SIM_CLIENTS_MAX * SIM_LANES - 1;
}

/* A query is not in the log, and is nobody's sending. */
static void number_it(struct tap *t, struct machine_command *m, uint8_t room[8])
{
    struct sim_request *q = t->request;
    if (MACHINE_OP_IS_QUERY(m->op)) {
        return;
    }
    t->sending = sim_oracle_sends(t->node->sim, m, q == NULL ? 0 : q->call);
    sim_oracle_mark(t->sending, m, room);
    if (q != NULL) {
        SIM_CHECK(q->node->sim, q->sending == 0, "a request of kind %u becomes two commands",
                  q->op);
        q->sending = t->sending;
        sim_oracle_piped(t->node->sim, t->sending, piped(q));
    }
}

static int submit(void *ctx, struct node_ticket *theirs, const void *command, size_t len,
                  node_ticket_cb cb)
{
    struct sim_node *n = ctx;
    struct machine_command m;
    struct fli_buf numbered;
    uint8_t room[8];
    size_t size = 0;
    if (n->ghost || n->node == NULL) {
        return FL_ENOLEADER;
    }
    struct tap *t = fli_xcalloc(1, sizeof *t);
    t->theirs = theirs;
    t->cb = cb;
    t->node = n;
    t->request = n->asking;
    if (t->request != NULL) {
        t->client = t->request->client;
        t->lane = t->request->lane;
        t->number = t->request->number;
    }
    t->ticket.source = theirs->source;
    int rv = machine_command_decode(command, len, &m, &size);
    SIM_CHECK(n->sim, rv == 0 && size == len, "dispatch makes a command that cannot be read");
    note_command(t, &m);
    number_it(t, &m, room);
    fli_buf_init(&numbered, MACHINE_COMMAND_MAX);
    rv = machine_command_encode(&m, &numbered);
    FLI_ASSERT(rv == 0);
    rv = node_submit(n->node, &t->ticket, numbered.data, numbered.len, on_result);
    fli_buf_fini(&numbered);
    if (rv != 0) {
        SIM_CHECK(n->sim, rv == FL_EBUSY || rv == FL_ENOLEADER, "a command is refused with %s",
                  fl_err_name(rv));
        free(t);
        return rv;
    }
    n->tickets++;
    if (t->request != NULL) {
        t->request->tap = t;
    }
    return 0;
}

static void status(void *ctx, struct node_status *ret)
{
    struct sim_node *n = ctx;
    node_get_status(n->node, ret);
}

static size_t members(void *ctx, struct node_member *ret, size_t max)
{
    struct sim_node *n = ctx;
    return node_members(n->node, ret, max);
}

static int transfer(void *ctx, uint64_t id, void (*cb)(void *ctx, int status), void *cb_ctx)
{
    struct sim_node *n = ctx;
    return node_transfer(n->node, id, cb, cb_ctx);
}

static int change(void *ctx, const struct node_change *wanted, void (*cb)(void *ctx, int status),
                  void *cb_ctx)
{
    struct sim_node *n = ctx;
    return node_change(n->node, wanted, cb, cb_ctx);
}

static struct machine *machine(void *ctx)
{
    struct sim_node *n = ctx;
    return n->node == NULL ? NULL : node_machine(n->node);
}

static uint64_t now_ms(void *ctx)
{
    return sim_node_ms(ctx);
}

static void connection(void *ctx, void *request, const struct fli_command *command,
                       const struct fli_slice *args, unsigned n)
{
    struct sim_node *node = ctx;
    sim_fail(node->sim, "no client sends %s", command->name);
}

/* ---- who asks ---- */

static bool gate(void *ctx, void *request, const struct fli_command *command)
{
    return true;
}

static void who(void *ctx, void *request, struct machine_command *m)
{
    const struct sim_request *q = request;
    m->user = q->login;
    m->flags |= q->login == 0 ? 0 : MACHINE_COMMAND_BY;
}

/* ---- what comes ---- */

static void dispatch_bytes(struct sim_request *q, const uint8_t *data, size_t len)
{
    static struct fli_resp_parser parser;
    static const struct fli_resp_limits limits = {REQUEST_MAX_BYTES, REQUEST_MAX_BYTES};
    struct sim_node *n = q->node;
    fli_resp_parser_init(&parser, limits);
    enum fli_resp_status st = fli_resp_next(&parser, data, len);
    SIM_CHECK(n->sim, st == FLI_RESP_REQUEST, "a request is not RESP: %.*s", (int)len,
              (const char *)data);
    n->asking = q->client == NULL && q->told == NULL ? NULL : q;
    dispatch_request(n->dispatch, q, &q->slot, 2, parser.argv, parser.argc);
    n->asking = NULL;
    SIM_CHECK(n->sim, fli_resp_consume(&parser) == len, "a request does not end where it should");
}

/* Of these one request at most is open: a client has one call at a time on a lane. */
static void left(struct sim_node *n, const struct sim_client *c, unsigned lane, uint64_t upto,
                 bool half)
{
    FLI_LIST_FOREACH_SAFE(pos, tmp, &n->requests)
    {
        struct sim_request *q = FLI_CONTAINER_OF(pos, struct sim_request, link);
        if (q->client != c || q->lane != lane || q->number > upto) {
            continue;
        }
        if (half) {
            q->half_closed = true;
            dispatch_hangup(n->dispatch, &q->slot);
            n->sim->marks->half_closed++;
            continue;
        }
        if (q->owner != 0) {
            sim_oracle_over(n, q->owner, false);
        }
        dispatch_cancel(n->dispatch, &q->slot);
        request_free(q);
    }
}

/* It believes to lead, and another leads a later term. */
static bool is_superseded(const struct sim_node *n)
{
    const struct replica *r = n->node->replica;
    for (unsigned i = 0; i < n->sim->n && replica_role(r) == REPLICA_LEADER; i++) {
        const struct sim_node *o = &n->sim->nodes[i];
        if (o->power == SIM_UP && o->node != NULL &&
            replica_role(o->node->replica) == REPLICA_LEADER &&
            replica_term(o->node->replica) > replica_term(r)) {
            return true;
        }
    }
    return false;
}

static void request_deliver(struct sim_event *e)
{
    struct sim_node *n = e->node;
    const struct parcel *p = e->p;
    if (n->power != SIM_UP) {
        return; /* net reads no more; the client hears when the connection ends */
    }
    uint64_t gone = n->hung_up[p->client->index][p->lane];
    uint64_t half = n->half_closed[p->client->index][p->lane];
    struct sim_request *q = request_of(n, p);
    q->superseded = is_superseded(n);
    n->sim->marks->superseded_asked += q->superseded;
    dispatch_bytes(q, p->bytes, p->len);
    if (p->number <= half) {
        left(n, p->client, p->lane, half, true);
    }
    if (p->number <= gone) {
        left(n, p->client, p->lane, gone, false);
    }
}

static void request_drop(struct sim_event *e)
{
    free(e->p);
}

static void request_fire(struct sim *s, struct sim_event *e)
{
    if (sim_net_blocked(s, e->node->index, e->node->index)) {
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    sim_node_fire(s, e);
}

void sim_server_request(struct sim_lane *l, uint32_t node, uint64_t life, uint64_t number,
                        uint64_t login, const struct machine_command *m)
{
    struct sim *s = l->client->sim;
    struct sim_node *n = &s->nodes[node];
    struct fli_buf b;
    fli_buf_init(&b, REQUEST_MAX_BYTES);
    sim_words_write(m, &b);
    struct parcel *p = fli_xmalloc(sizeof *p + b.len);
    p->client = l->client;
    p->lane = l->number;
    p->number = number;
    p->op = m->op;
    p->login = login;
    p->nameless = m->op == MACHINE_OP_ACQUIRE && m->owner.len == 0 ? l->owner_number : 0;
    p->call = m->op == l->command.op ? l->record : 0; /* not a question, not a confirmation */
    p->len = b.len;
    memcpy(p->bytes, b.data, b.len);
    fli_buf_fini(&b);
    struct sim_event *e = sim_after(s, sim_net_delay(s, n->index, n->index), request_fire);
    e->node = n;
    e->life = life;
    e->deliver = request_deliver;
    e->drop = request_drop;
    e->p = p;
}

/* The end of a connection may overtake the last that was sent on it, so it is remembered. */
static void hangup_deliver(struct sim_event *e)
{
    struct sim_node *n = e->node;
    unsigned lane = (unsigned)e->a;
    bool half = e->c != 0;
    uint64_t *upto =
        half ? &n->half_closed[e->client->index][lane] : &n->hung_up[e->client->index][lane];
    *upto = *upto > e->b ? *upto : e->b;
    if (n->power != SIM_DOWN && n->dispatch != NULL) {
        left(n, e->client, lane, e->b, half);
    }
}

static void send_end(struct sim_lane *l, uint64_t ms, bool half)
{
    struct sim *s = l->client->sim;
    struct sim_node *n = &s->nodes[l->conn_node];
    struct sim_event *e = sim_after(s, ms + sim_net_delay(s, n->index, n->index), request_fire);
    e->node = n;
    e->client = l->client;
    e->life = l->conn_life;
    e->deliver = hangup_deliver;
    e->a = l->number;
    e->b = l->request;
    e->c = half;
}

void sim_server_hangup(struct sim_lane *l, uint64_t ms)
{
    send_end(l, ms, false);
}

void sim_server_half_close(struct sim_lane *l)
{
    send_end(l, 0, true);
}

void sim_server_ask(struct sim_node *n, const uint8_t *data, size_t len, uint64_t serial,
                    void (*told)(struct sim *s, uint64_t serial, const struct machine_result *r,
                                 const void *data, size_t len))
{
    sim_server_ask_from(n, 0, data, len, serial, told);
}

void sim_server_ask_from(struct sim_node *n, uint64_t source_number, const uint8_t *data,
                         size_t len, uint64_t serial,
                         void (*told)(struct sim *s, uint64_t serial,
                                      const struct machine_result *r, const void *data, size_t len))
{
    struct sim_request *q = request_of(n, NULL);
    q->source = source_number;
    q->serial = serial;
    q->told = told;
    dispatch_bytes(q, data, len);
}

bool sim_server_leaderless(struct sim_node *n)
{
    static const uint8_t leader[] = "LEADER\r\n";
    struct sim_request *q = request_of(n, NULL);
    dispatch_bytes(q, leader, sizeof leader - 1);
    bool leaderless = sim_words_leaderless(n->sim, q->reply.data, q->reply.len);
    request_free(q);
    return leaderless;
}

/* ---- from the node ---- */

void sim_server_event(struct sim_node *n, const struct machine_event *e)
{
    dispatch_event(n->dispatch, e);
    bool ends = e->type == MACHINE_EVENT_GRANTED || e->type == MACHINE_EVENT_WAIT_ENDED;
    if (ends && e->wait != 0 && e->index == 0) {
        n->ended[n->ended_n++ % SIM_ENDED_MAX] = e->wait;
        n->heard = true;
    }
}

/* What a snapshot has jumped over nobody here will hear of. */
void sim_server_restored(struct sim_node *n)
{
    n->unheard_owner = n->sim->oracle.owners_len;
    dispatch_restored(n->dispatch);
}

/* ---- time and life ---- */

void sim_server_turn(struct sim_node *n)
{
    if (dispatch_next_turn_ms(n->dispatch) <= sim_node_ms(n)) {
        dispatch_turn(n->dispatch);
    }
    check_answered(n);
}

uint64_t sim_server_next_ms(const struct sim_node *n)
{
    uint64_t next_ms = n->dispatch == NULL ? SIM_NEVER : dispatch_next_turn_ms(n->dispatch);
    return next_ms == SIM_NEVER          ? SIM_NEVER
           : next_ms <= SIM_SUSPENDED_MS ? 0
                                         : next_ms - SIM_SUSPENDED_MS;
}

void sim_server_start(struct sim_node *n)
{
    struct dispatch_config config = {
        .sink = {.reply = reply, .answer = answer, .failed = failed},
        .node = {.ctx = n,
                 .submit = submit,
                 .status = status,
                 .members = members,
                 .transfer = transfer,
                 .change = change,
                 .machine = machine},
        .ctx = n,
        .now_ms = now_ms,
        .connection = connection,
        .source = source,
        .users_ctx = n,
        .gate = gate,
        .set_sender = who,
        .users = connection,
        .frontdoor = sim_reenter_frontdoor(n->sim),
        .slack_ms = n->sim->options.slack_ms,
        .calls_max = n->sim->options.calls_max,
    };
    fli_list_init(&n->requests);
    int rv = dispatch_create(&config, &n->dispatch);
    FLI_ASSERT(rv == 0);
}

void sim_server_stopping(struct sim_node *n)
{
    dispatch_stop(n->dispatch);
}

/* The process ends: nothing of it is answered any more. The node gives its tickets back after this,
 * and what dispatch makes of them goes nowhere. */
void sim_server_ended(struct sim_node *n)
{
    struct fli_list *link = NULL;
    while ((link = fli_list_first(&n->requests)) != NULL) {
        struct sim_request *q = FLI_CONTAINER_OF(link, struct sim_request, link);
        dispatch_cancel(n->dispatch, &q->slot);
        request_free(q);
    }
    dispatch_stop(n->dispatch);
    memset(n->hung_up, 0, sizeof n->hung_up);
    memset(n->half_closed, 0, sizeof n->half_closed);
    n->unheard_owner = 0;
    n->ended_n = 0;
    n->heard = false;
    sim_lanes_reset(n);
}

void sim_server_destroy(struct sim_node *n)
{
    dispatch_destroy(n->dispatch);
    n->dispatch = NULL;
}
