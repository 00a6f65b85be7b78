/* sending.c: the outcome of each request, compared with what was told about it.
 *
 * A command that is given to a node carries a number of ours into the log, in the place of its
 * client's address. So the log shows how often each sending was carried out, and with what result:
 * at most once; once, with exactly the result that was answered; never, when its client was told
 * that it was not. A call is all sendings of one request; its final result is checked as well. */
#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"
#include "members.h"

#define NUMBER_LEN 6u /* as an address of IPv4 and a port */

/* ---- calls ---- */

void sim_oracle_call(struct sim_lane *l)
{
    struct sim_oracle *o = &l->client->sim->oracle;
    o->calls_len += o->calls_len == 0 ? 2 : 1; /* 0 stands for none */
    o->calls = sim_grow(o->calls, &o->calls_cap, o->calls_len, sizeof *o->calls);
    l->record = o->calls_len - 1;
}

static struct sim_client_call *call_of(struct sim *s, uint64_t number)
{
    FLI_ASSERT(number < s->oracle.calls_len);
    return &s->oracle.calls[number];
}

/* The client knows the outcome of its request, so nothing may be granted to the owner any more.
 * Within a session, an owner makes many requests. */
static void close_owner(struct sim_lane *l)
{
    struct sim_owner *o = sim_oracle_owner(l->client->sim, l->owner_number);
    bool in_session = (l->command.flags & MACHINE_ACQUIRE_EXPLICIT) != 0;
    o->served = o->served ||
                (l->command.op == MACHINE_OP_ACQUIRE && l->command.owner.len > 0 && !in_session);
}

void sim_oracle_called(struct sim_lane *l, int status)
{
    struct sim *s = l->client->sim;
    struct sim_client_call *c = call_of(s, l->record);
    bool told_no = status == FL_ENOTHELD;
    bool unknown = status == FL_EUNCERTAIN || MACHINE_OP_IS_QUERY(l->command.op);
    c->refused = status != 0 && !unknown && (!told_no || sim_words_no_is_uncertain(l->command.op));
    SIM_CHECK(s, !c->refused || c->done == 0,
              "a call of kind %u ends with %s, and %u sendings of it were carried out",
              l->command.op, fl_err_name(status), c->done);
    s->marks->calls_refused += c->refused;
    if (!unknown) {
        close_owner(l);
    }
}

void sim_oracle_lost_again(struct sim_lane *l)
{
    call_of(l->client->sim, l->record)->done = 0;
}

/* ---- sendings ---- */

uint64_t sim_oracle_sends(struct sim *s, const struct machine_command *m, uint64_t call)
{
    struct sim_oracle *o = &s->oracle;
    o->sendings_len += o->sendings_len == 0 ? 2 : 1; /* 0 stands for none */
    o->sendings = sim_grow(o->sendings, &o->sendings_cap, o->sendings_len, sizeof *o->sendings);
    o->sendings[o->sendings_len - 1] =
        (struct sim_sending){.op = m->op, .renews = MACHINE_IS_RENEWAL(m), .call = call};
    return o->sendings_len - 1;
}

void sim_oracle_forget_sendings(struct sim *s)
{
    free(s->oracle.sendings);
    free(s->oracle.connections);
    free(s->oracle.calls);
    free(s->oracle.joined);
}

uint64_t sim_oracle_connection(struct sim *s)
{
    struct sim_oracle *o = &s->oracle;
    o->connections_len += o->connections_len == 0 ? 2 : 1; /* 0 stands for none */
    o->connections =
        sim_grow(o->connections, &o->connections_cap, o->connections_len, sizeof *o->connections);
    return o->connections_len - 1;
}

void sim_oracle_piped(struct sim *s, uint64_t sending, uint64_t connection)
{
    s->oracle.sendings[sending].connection = connection;
}

/* What comes later on a connection is carried out later. */
static void check_order(struct sim *s, const struct sim_sending *sent, uint64_t number)
{
    if (sent->connection == 0) {
        return;
    }
    uint64_t *last = &s->oracle.connections[sent->connection];
    SIM_CHECK(s, number > *last || sent->uncertain,
              "sending %llu, of kind %u, is carried out after sending %llu of the same connection",
              (unsigned long long)number, sent->op, (unsigned long long)*last);
    *last = number > *last ? number : *last;
}

void sim_oracle_mark(uint64_t sending, struct machine_command *m, uint8_t room[8])
{
    fli_put_u64(room, sending);
    m->flags |= MACHINE_COMMAND_BY;
    m->address = (struct fli_slice){room, NUMBER_LEN};
}

static uint64_t number_of(const struct machine_command *m)
{
    uint8_t room[8] = {0};
    if (m->address.len != NUMBER_LEN || MACHINE_OP_IS_QUERY(m->op)) {
        return 0;
    }
    memcpy(room, m->address.data, NUMBER_LEN);
    return fli_get_u64(room);
}

static void refuse(struct sim *s, uint64_t number)
{
    struct sim_sending *sent = &s->oracle.sendings[number];
    SIM_CHECK(s, sent->applied == 0,
              "sending %llu, of kind %u, is said not to be done and came to %u",
              (unsigned long long)number, sent->op, sent->result.code);
    s->marks->sendings_refused += !sent->refused;
    sent->refused = true;
}

/* However long a command waits at a leader, it waits for no other one. */
static void check_leads(const struct sim_node *n, int status)
{
    bool leads = n->power == SIM_UP && n->node->phase == PHASE_RUN && node_can_propose(n->node);
    SIM_CHECK(n->sim, status != FL_ENOLEADER || !leads,
              "node %u says that there is no leader, and leads", n->index + 1);
}

/* The node's result for this sending. */
void sim_oracle_result(struct sim *s, uint64_t number, int status, const struct machine_result *r)
{
    struct sim_sending *sent = &s->oracle.sendings[number];
    sent->uncertain = sent->uncertain || status == FL_EUNCERTAIN;
    check_leads(s->current, status);
    if (status == FL_ENOLEADER || status == FL_EBUSY) {
        refuse(s, number);
    }
    if (status != 0) {
        return;
    }
    if (sent->applied == 0 && sent->renews) {
        s->marks->renewed_in_memory += r->code == MACHINE_DONE;
        return; /* by its leader alone: oracle.c judges what it is told */
    }
    SIM_CHECK(s, sent->applied == 1,
              "sending %llu, of kind %u, is answered and was carried out %u times",
              (unsigned long long)number, sent->op, sent->applied);
    /* The leader knows of renewals that no entry has, and may have heard of more since. */
    SIM_CHECK(s,
              sent->result.code == r->code && sent->result.token == r->token &&
                  sent->result.wait == r->wait && sent->result.deadline_ms <= r->deadline_ms,
              "sending %llu, of kind %u, came to %u, token %llu, and is answered %u, token %llu",
              (unsigned long long)number, sent->op, sent->result.code,
              (unsigned long long)sent->result.token, r->code, (unsigned long long)r->token);
}

/* The client has read this answer. A refusal by the machine is a result like others; so is LATE. */
void sim_oracle_told(struct sim_lane *l, const struct sim_answer *a)
{
    bool refused = a->event == FLI_EVENT_NOLEADER || a->event == FLI_EVENT_BUSY;
    if (a->sending != 0 && refused && a->late == 0) {
        refuse(l->client->sim, a->sending);
    }
}

/* ---- the log ---- */

static void count_done(struct sim *s, const struct sim_sending *sent, uint64_t number)
{
    bool done = sent->result.code == MACHINE_GRANTED || sent->result.code == MACHINE_DONE;
    if (sent->call == 0 || !done) {
        return;
    }
    struct sim_client_call *c = call_of(s, sent->call);
    c->done++;
    SIM_CHECK(s, !c->refused, "sending %llu, of kind %u, is carried out after its call was refused",
              (unsigned long long)number, sent->op);
    bool once = sent->op == MACHINE_OP_BREAK || sent->op == MACHINE_OP_TOKEN;
    SIM_CHECK(s, !once || c->done == 1, "one call of kind %u is carried out %u times", sent->op,
              c->done);
}

/* A cluster is formed: no node that comes back with an empty disk can form another one with
 * anybody. */
static void check_formed(struct sim *s)
{
    for (unsigned i = 0; i < s->n * s->n; i++) {
        const struct sim_disk *d = &s->nodes[i / s->n].disk;
        const struct sim_disk *of = &s->nodes[i % s->n].disk;
        SIM_CHECK(s,
                  d->record.identity.members.n == s->n &&
                      d->record.identity.founders[i % s->n] == of->record.identity.incarnation,
                  "a cluster is formed, and node %u has not written down who node %u is",
                  i / s->n + 1, i % s->n + 1);
    }
}

static void applied(struct sim *s, const struct machine_command *m, const struct machine_result *r)
{
    if (m->op == MACHINE_OP_INIT && r->code == MACHINE_DONE) {
        check_formed(s);
    }
    uint64_t number = number_of(m);
    if (number == 0) {
        return;
    }
    FLI_ASSERT(number < s->oracle.sendings_len);
    struct sim_sending *sent = &s->oracle.sendings[number];
    SIM_CHECK(s, ++sent->applied == 1, "sending %llu, of kind %u, is carried out a second time",
              (unsigned long long)number, sent->op);
    SIM_CHECK(s, !sent->refused,
              "sending %llu, of kind %u, is carried out after it was said not to be done",
              (unsigned long long)number, sent->op);
    sent->result = *r;
    /* A node that led before knows of renewals in its own term, which its successor need not know:
     * whoever leads now has given those leases their full TTL by its own clock. */
    uint64_t term = s->oracle.last_seal.term;
    bool by_leader =
        term < s->oracle.leaders_cap && s->oracle.leaders[term] == s->current->index + 1;
    sent->result.deadline_ms = by_leader ? r->deadline_ms : 0;
    check_order(s, sent, number);
    count_done(s, sent, number);
}

bool __real_machine_next(struct machine *m, struct machine_cursor *cur, struct machine_result *ret);
bool __wrap_machine_next(struct machine *m, struct machine_cursor *cur, struct machine_result *ret);

/* Each command of an entry that is applied for the first time anywhere. */
bool __wrap_machine_next(struct machine *m, struct machine_cursor *cur, struct machine_result *ret)
{
    struct sim_node *n = sim_running->current;
    struct machine_cursor before = *cur;
    struct machine_command c;
    size_t size = 0;
    bool first = cur->left > 0 && n->applying != 0 && n->first;
    if (first) {
        int rv = machine_command_decode(before.p, (size_t)(before.end - before.p), &c, &size);
        SIM_CHECK(n->sim, rv == 0, "a command in the log that cannot be read");
        sim_rights_begin(n->sim, &c, number_of(&c));
    }
    bool any = __real_machine_next(m, cur, ret);
    if (first) {
        sim_rights_end(n->sim, &c, ret);
        applied(n->sim, &c, ret);
        sim_operations_applied(n->sim, &c, ret);
        sim_reenter_applied(n->sim, &c, ret);
    }
    return any;
}
