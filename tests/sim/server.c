/* server.c: a node's clients, in the place of src/server: requests come in as encoded commands and
 * go to node_submit(); answers go out; an acquire that was queued is answered when its wait ends,
 * and cancelled when its client has closed the connection.
 * Between a node and its clients there are streams: nothing is lost, much is late, and all of them
 * break when the node ends. */
#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"
#include "sim.h"

#define RETRANSMIT_MS 40u

struct request {
    struct sim_client *client;
    unsigned lane;
    uint64_t number;
    size_t len;
    uint8_t bytes[];
};

/* A command on its way through the node. */
struct job {
    struct node_ticket ticket;
    struct sim_node *node;
    struct sim_client *client; /* NULL: a cancel of our own */
    unsigned lane;
    uint64_t number;
    uint64_t wait; /* that is cancelled */
    uint8_t op;
};

static void reply(struct sim_node *n, const struct job *j, enum fli_flow_event event, int code,
                  const struct machine_result *r)
{
    struct sim_answer a = {
        .lane = j->lane, .request = j->number, .event = event, .code = code, .there = true};
    if (r != NULL) {
        a.result = *r;
        a.has_result = true;
    }
    sim_lane_say(j->client, n, &a);
}

/* ---- waits ---- */

static bool ended_before(const struct sim_node *n, uint64_t wait, uint64_t *ret_token)
{
    unsigned have = n->recent_n < SIM_RECENT_MAX ? n->recent_n : SIM_RECENT_MAX;
    for (unsigned i = 0; i < have; i++) {
        if (n->recent[i].wait == wait) {
            *ret_token = n->recent[i].token;
            return true;
        }
    }
    return false;
}

static void reply_wait(struct sim_node *n, struct sim_client *c, unsigned lane, uint64_t request,
                       uint64_t token)
{
    struct job j = {.client = c, .lane = lane, .number = request};
    struct machine_result r = {.code = token != 0 ? MACHINE_GRANTED : MACHINE_HELD, .token = token};
    reply(n, &j, token != 0 ? FLI_EVENT_YES : FLI_EVENT_NO, 0, &r);
}

static void on_answer(struct node_ticket *t, int status, const struct machine_result *result,
                      struct fli_slice payload);

/* Leaves the queue for a client that has left, unless that has asked again meanwhile. Tried once.
 * An older try of the client's may have come last all the same: then it loses its place. */
static void cancel(struct sim_node *n, const struct sim_parked *p)
{
    uint64_t wait = p->wait;
    uint64_t asking = p->asking;
    struct sim_lane *l = &p->client->lanes[p->lane];
    l->robbed = l->robbed || (asking > 1 && l->active && l->request > p->request);
    struct fli_buf buf;
    struct job *j = fli_xcalloc(1, sizeof *j);
    struct machine_command m = {.op = MACHINE_OP_CANCEL, .number = wait, .number2 = asking};
    SIM_TRACE(n->sim, "node %u cancels wait %llu, asking %llu", n->index + 1,
              (unsigned long long)wait, (unsigned long long)asking);
    fli_buf_init(&buf, 64);
    int rv = machine_command_encode(&m, &buf);
    FLI_ASSERT(rv == 0);
    j->node = n;
    j->op = m.op;
    j->wait = wait;
    rv = node_submit(n->node, &j->ticket, buf.data, buf.len, on_answer);
    fli_buf_fini(&buf);
    if (rv == 0) {
        n->tickets++;
    } else {
        free(j);
    }
}

/* Too late when the client has asked again elsewhere and waits on. */
static void on_cancelled(const struct job *j, int status, const struct machine_result *r)
{
    struct sim_marks *m = j->node->sim->marks;
    m->waits_cancelled += status == 0 && r->code == MACHINE_DONE;
    m->cancels_late += status == 0 && r->code == MACHINE_NO &&
                       machine_is_waiting(node_machine(j->node->node), j->wait);
}

static void park(struct sim_node *n, const struct job *j, uint64_t wait, uint64_t asking)
{
    uint64_t token;
    struct sim_parked *free_one = NULL;
    SIM_TRACE(n->sim, "node %u has client %u in wait %llu, asking %llu", n->index + 1,
              j->client->index, (unsigned long long)wait, (unsigned long long)asking);
    if (ended_before(n, wait, &token)) {
        reply_wait(n, j->client, j->lane, j->number, token);
        return;
    }
    if (j->number <= n->hung_up[j->client->index][j->lane]) {
        /* As src/server/undo.c does: of several askings this need not be the one that counts. */
        if (asking == 1) {
            cancel(n, &(struct sim_parked){wait, asking, j->number, j->client, j->lane});
        }
        return;
    }
    for (unsigned i = 0; i < SIM_PARKED_MAX; i++) {
        struct sim_parked *p = &n->parked[i];
        if (p->client == j->client && p->lane == j->lane) {
            free_one = p; /* an older request of a client that has given it up */
            break;
        }
        if (p->client == NULL && free_one == NULL) {
            free_one = p;
        }
    }
    FLI_ASSERT(free_one != NULL);
    *free_one = (struct sim_parked){
        .wait = wait, .asking = asking, .request = j->number, .client = j->client, .lane = j->lane};
}

void sim_server_event(struct sim_node *n, const struct machine_event *e)
{
    if (e->wait == 0 || (e->type != MACHINE_EVENT_GRANTED && e->type != MACHINE_EVENT_WAIT_ENDED)) {
        return;
    }
    uint64_t token = e->type == MACHINE_EVENT_GRANTED ? e->token : 0;
    n->recent[n->recent_n % SIM_RECENT_MAX].wait = e->wait;
    n->recent[n->recent_n % SIM_RECENT_MAX].token = token;
    n->recent_n++;
    for (unsigned i = 0; i < SIM_PARKED_MAX; i++) {
        struct sim_parked *p = &n->parked[i];
        if (p->client != NULL && p->wait == e->wait) {
            struct sim_client *c = p->client;
            p->client = NULL;
            reply_wait(n, c, p->lane, p->request, token);
        }
    }
}

/* A snapshot has jumped over what would have ended waits: whoever asked asks again. */
void sim_server_restored(struct sim_node *n)
{
    if (n->node == NULL) {
        return;
    }
    for (unsigned i = 0; i < SIM_PARKED_MAX; i++) {
        struct sim_parked *p = &n->parked[i];
        if (p->client != NULL && !machine_is_waiting(node_machine(n->node), p->wait)) {
            struct job j = {.client = p->client, .lane = p->lane, .number = p->request};
            p->client = NULL;
            reply(n, &j, FLI_EVENT_UNCERTAIN, 0, NULL);
        }
    }
}

void sim_server_ended(struct sim_node *n)
{
    memset(n->parked, 0, sizeof n->parked);
    memset(n->hung_up, 0, sizeof n->hung_up);
    n->recent_n = 0;
    sim_lanes_reset(n);
}

/* ---- answers ---- */

static int code_of(const struct machine_result *r)
{
    switch (r->code) {
    case MACHINE_DEADLOCK:
        return FL_EDEADLOCK;
    case MACHINE_LIMIT:
        return FL_ELIMIT;
    case MACHINE_NOSESSION:
        return FL_ENOSESSION;
    case MACHINE_MISMATCH:
        return FL_EMISMATCH;
    default:
        return FL_EINVAL;
    }
}

static void reply_result(struct sim_node *n, const struct job *j, const struct machine_result *r)
{
    switch (r->code) {
    case MACHINE_DONE:
    case MACHINE_GRANTED:
        reply(n, j, FLI_EVENT_YES, 0, r);
        return;
    case MACHINE_QUEUED:
        n->sim->marks->queued++;
        park(n, j, r->wait, r->token);
        return;
    case MACHINE_NO:
    case MACHINE_HELD:
    case MACHINE_NOTFOUND:
        reply(n, j, FLI_EVENT_NO, 0, r);
        return;
    case MACHINE_DEADLOCK:
    case MACHINE_LIMIT:
    case MACHINE_NOSESSION:
    case MACHINE_MISMATCH:
        reply(n, j, FLI_EVENT_REFUSED, code_of(r), r);
        return;
    default:
        sim_fail(n->sim, "node %u answers a command of kind %u with %u", n->index + 1, j->op,
                 r->code);
    }
}

/* Of a lock that is shown, who holds it. */
static void read_show(struct sim_node *n, struct machine_result *r, struct fli_slice payload)
{
    struct machine_page page;
    struct machine_lock_view view;
    SIM_CHECK(n->sim, machine_page_open(payload.data, payload.len, &page) == 0,
              "SHOW answers a page that cannot be read");
    SIM_CHECK(n->sim, machine_page_next_lock(&page, &view) == 1, "SHOW answers no lock");
    r->token = view.state == MACHINE_LOCK_HELD ? view.token : 0;
}

/* Only what changes something may end so: a question can always be asked again. */
static void unknown_outcome(struct sim_node *n, const struct job *j)
{
    SIM_CHECK(n->sim, !MACHINE_OP_IS_QUERY(j->op), "a query is answered UNCERTAIN");
    n->sim->marks->uncertain++;
    reply(n, j, FLI_EVENT_UNCERTAIN, 0, NULL);
}

static void on_answer(struct node_ticket *t, int status, const struct machine_result *result,
                      struct fli_slice payload)
{
    struct job *j = FLI_CONTAINER_OF(t, struct job, ticket);
    struct sim_node *n = j->node;
    struct sim *s = n->sim;
    SIM_CHECK(s, n->tickets > 0, "node %u answers more often than it was asked", n->index + 1);
    n->tickets--;
    if (n->ghost || j->client == NULL) {
        if (!n->ghost) {
            on_cancelled(j, status, result);
        }
        free(j);
        return;
    }
    switch (status) {
    case 0: {
        struct machine_result r = *result;
        if (j->op == MACHINE_OP_SHOW && r.code == MACHINE_DONE) {
            read_show(n, &r, payload);
        }
        reply_result(n, j, &r);
        break;
    }
    case FL_ENOLEADER:
        s->marks->noleader++;
        reply(n, j, FLI_EVENT_NOLEADER, 0, NULL);
        break;
    case FL_EBUSY:
        s->marks->busy++;
        reply(n, j, FLI_EVENT_BUSY, 0, NULL);
        break;
    case FL_EUNCERTAIN:
        unknown_outcome(n, j);
        break;
    default:
        sim_fail(s, "node %u answers %s", n->index + 1, fl_err_name(status));
    }
    free(j);
}

/* ---- requests ---- */

static void request_deliver(struct sim_event *e)
{
    struct sim_node *n = e->node;
    const struct request *q = e->p;
    struct job *j = fli_xcalloc(1, sizeof *j);
    j->node = n;
    j->client = q->client;
    j->lane = q->lane;
    j->number = q->number;
    j->op = q->bytes[0];
    int rv = node_submit(n->node, &j->ticket, q->bytes, q->len, on_answer);
    if (rv == 0) {
        n->tickets++;
        return;
    }
    SIM_CHECK(n->sim, rv == FL_EBUSY || rv == FL_ENOLEADER, "a command is refused with %s",
              fl_err_name(rv));
    n->sim->marks->busy += rv == FL_EBUSY;
    reply(n, j, rv == FL_EBUSY ? FLI_EVENT_BUSY : FLI_EVENT_NOLEADER, 0, NULL);
    free(j);
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

static void hangup_deliver(struct sim_event *e)
{
    struct sim_node *n = e->node;
    unsigned lane = (unsigned)e->a;
    uint64_t *hung_up = &n->hung_up[e->client->index][lane];
    *hung_up = *hung_up > e->b ? *hung_up : e->b;
    for (unsigned i = 0; i < SIM_PARKED_MAX; i++) {
        struct sim_parked *p = &n->parked[i];
        if (p->client == e->client && p->lane == lane && p->request <= e->b) {
            struct sim_parked left = *p;
            p->client = NULL;
            cancel(n, &left);
        }
    }
}

void sim_server_hangup(struct sim_lane *l, uint64_t ms)
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
}

void sim_server_request(struct sim_lane *l, uint32_t node, uint64_t life, uint64_t number,
                        const uint8_t *bytes, size_t len)
{
    struct sim *s = l->client->sim;
    struct sim_node *n = &s->nodes[node];
    struct request *q = fli_xmalloc(sizeof *q + len);
    q->client = l->client;
    q->lane = l->number;
    q->number = number;
    q->len = len;
    memcpy(q->bytes, bytes, len);
    struct sim_event *e = sim_after(s, sim_net_delay(s, n->index, n->index), request_fire);
    e->node = n;
    e->life = life;
    e->deliver = request_deliver;
    e->drop = request_drop;
    e->p = q;
}
