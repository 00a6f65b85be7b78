/* client.c: simulated clients. Each has one operation outstanding, sends it to any node that takes
 * it (a leader that is not one any more included), sends it again when it came back, and after an
 * unknown outcome mostly asks again with the same owner. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

static struct sim_client *client_of(struct node_ticket *t)
{
    return FLI_CONTAINER_OF(t, struct sim_client, ticket);
}

static void rest(struct sim_client *c)
{
    c->state = SIM_OP_IDLE;
    c->next_at_ms = sim_now(c->sim) + sim_below(c->sim, 60);
}

static void forget(struct sim_client *c)
{
    c->held_token = 0;
}

static void took(struct sim_client *c, uint64_t token)
{
    c->held_token = token;
    c->held_owner = c->owner;
    c->held_lock = c->lock;
}

/* Encodes the operation; it begins now. */
static void start(struct sim_client *c, struct machine_command *m)
{
    struct sim *s = c->sim;
    char name[8];
    char owner[32];
    struct fli_buf buf;
    snprintf(name, sizeof name, "L%u", c->lock);
    snprintf(owner, sizeof owner, "%020llu", (unsigned long long)c->owner);
    c->op = m->op;
    switch (m->op) {
    case MACHINE_OP_ACQUIRE:
        m->n_names = 1;
        m->permits = 1;
        m->owner = (struct fli_slice){(const uint8_t *)owner, strlen(owner)};
        m->name = (struct fli_slice){(const uint8_t *)name, 2};
        break;
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_SESSION_CLOSE:
        m->owner = (struct fli_slice){(const uint8_t *)owner, strlen(owner)};
        break;
    default:
        m->name = (struct fli_slice){(const uint8_t *)name, 2};
        break;
    }
    fli_buf_init(&buf, sizeof c->bytes);
    int rv = machine_command_encode(m, &buf);
    FLI_ASSERT(rv == 0);
    memcpy(c->bytes, buf.data, buf.len);
    c->bytes_len = buf.len;
    fli_buf_fini(&buf);
    c->start_seq = s->oracle.seq++;
    c->start_ms = sim_now(s);
    c->token_floor = s->oracle.token_max;
    c->state = SIM_OP_UNSENT;
}

static void start_acquire(struct sim_client *c)
{
    struct sim *s = c->sim;
    struct machine_command m = {.op = MACHINE_OP_ACQUIRE};
    c->lock = (unsigned)sim_below(s, SIM_LOCKS);
    c->explicit_session = c->session != 0 && sim_chance(s, 70);
    if (c->explicit_session) {
        c->owner = c->session;
        m.flags |= MACHINE_ACQUIRE_EXPLICIT;
    } else {
        c->owner = sim_oracle_new_owner(s);
        m.ttl_ms = 100 + sim_below(s, 1500);
    }
    if (sim_chance(s, 60)) {
        m.flags |= MACHINE_ACQUIRE_WAIT;
        m.wait_ms = 50 + sim_below(s, 2000);
    }
    start(c, &m);
}

static void start_session(struct sim_client *c)
{
    struct sim *s = c->sim;
    struct machine_command m = {.op = MACHINE_OP_SESSION_OPEN};
    c->session = sim_oracle_new_owner(s);
    c->owner = c->session;
    m.ttl_ms = 200 + sim_below(s, 1500);
    m.lockdelay_ms = sim_chance(s, 50) ? 0 : sim_below(s, 200);
    start(c, &m);
}

/* About the token it holds, or about any token there ever was. */
static void start_about_token(struct sim_client *c, uint8_t op)
{
    struct sim *s = c->sim;
    struct machine_command m = {.op = op};
    c->token = c->held_token;
    c->lock = c->held_lock;
    c->owner = c->held_owner;
    if (c->token == 0 || sim_chance(s, 20)) {
        if (s->oracle.token_max == 0) {
            return;
        }
        c->token = 1 + sim_below(s, s->oracle.token_max);
        c->lock = sim_oracle_token(s, c->token)->lock;
    }
    m.token = c->token;
    start(c, &m);
}

static void start_session_op(struct sim_client *c, uint8_t op)
{
    struct machine_command m = {.op = op};
    c->owner = c->session;
    if (op == MACHINE_OP_SESSION_CLOSE) {
        c->session = 0;
    }
    start(c, &m);
}

static void start_on_lock(struct sim_client *c, uint8_t op)
{
    struct machine_command m = {.op = op};
    c->lock = (unsigned)sim_below(c->sim, SIM_LOCKS);
    start(c, &m);
}

static void start_something(struct sim_client *c)
{
    struct sim *s = c->sim;
    uint64_t dice = sim_below(s, 100);
    if (dice < 5) {
        start_on_lock(c, MACHINE_OP_TOKEN);
    } else if (dice < 7) {
        start_on_lock(c, MACHINE_OP_BREAK);
    } else if (dice < 14) {
        start_on_lock(c, MACHINE_OP_SHOW);
    } else if (dice < 28) {
        start_about_token(c, MACHINE_OP_CHECK);
    } else if (c->session == 0 && dice < 34) {
        start_session(c);
    } else if (c->session != 0 && dice < 44) {
        start_session_op(c, MACHINE_OP_SESSION_RENEW);
    } else if (c->session != 0 && dice < 48) {
        start_session_op(c, MACHINE_OP_SESSION_CLOSE);
    } else if (c->held_token == 0 || dice < 55 || (c->session != 0 && dice < 68)) {
        start_acquire(c);
    } else if (dice < 75) {
        start_about_token(c, MACHINE_OP_RENEW);
    } else {
        start_about_token(c, MACHINE_OP_RELEASE);
    }
}

static void answered_acquire(struct sim_client *c, const struct machine_result *r)
{
    uint64_t token;
    switch (r->code) {
    case MACHINE_GRANTED:
        took(c, r->token);
        break;
    case MACHINE_QUEUED:
        /* The end of the wait may have been applied somewhere before this answer came. */
        if (sim_oracle_wait(c->sim, r->wait, &token)) {
            if (token != 0) {
                took(c, token);
            }
            break;
        }
        c->wait = r->wait;
        c->state = SIM_OP_WAITING;
        return;
    case MACHINE_NOSESSION:
        c->session = 0;
        break;
    default:
        SIM_CHECK(c->sim, r->code == MACHINE_HELD || r->code == MACHINE_DEADLOCK,
                  "ACQUIRE answers %u", r->code);
        break;
    }
    rest(c);
}

static void unknown_outcome(struct sim_client *c)
{
    c->sim->marks->uncertain++;
    SIM_CHECK(c->sim, !MACHINE_OP_IS_QUERY(c->op), "a query is answered UNCERTAIN");
    bool again = c->op != MACHINE_OP_TOKEN && sim_chance(c->sim, 70);
    if (again) {
        c->state = SIM_OP_UNSENT;
        return;
    }
    forget(c);
    rest(c);
}

static void on_answer(struct node_ticket *t, int status, const struct machine_result *result,
                      struct fli_slice payload)
{
    struct sim_client *c = client_of(t);
    SIM_CHECK(c->sim, c->state == SIM_OP_SENT, "client %u is answered and asked nothing", c->index);
    if (status == FL_EUNCERTAIN) {
        unknown_outcome(c);
        return;
    }
    SIM_CHECK(c->sim, status == 0, "client %u is answered %s", c->index, fl_err_name(status));
    sim_oracle_answer(c, result, payload);
    switch (c->op) {
    case MACHINE_OP_ACQUIRE:
        answered_acquire(c, result);
        return;
    case MACHINE_OP_RELEASE:
        if (c->token == c->held_token) {
            forget(c);
        }
        break;
    case MACHINE_OP_RENEW:
        if (result->code != MACHINE_DONE && c->token == c->held_token) {
            forget(c);
        }
        break;
    case MACHINE_OP_SESSION_RENEW:
        if (result->code == MACHINE_NOSESSION) {
            c->session = 0;
        }
        break;
    default:
        break;
    }
    rest(c);
}

void sim_client_returned(struct sim *s, struct node_ticket *t, const void *command, size_t len)
{
    struct sim_client *c = client_of(t);
    s->marks->returned++;
    SIM_CHECK(s, c->state == SIM_OP_SENT, "client %u gets back what it did not send", c->index);
    SIM_CHECK(s, len == c->bytes_len && memcmp(command, c->bytes, len) == 0,
              "client %u gets back something else than it sent", c->index);
    c->state = SIM_OP_UNSENT;
}

void sim_client_wait_ended(struct sim *s, uint64_t wait, uint64_t token)
{
    for (unsigned i = 0; i < s->clients_n; i++) {
        struct sim_client *c = &s->clients[i];
        if (c->state == SIM_OP_WAITING && c->wait == wait) {
            if (token != 0) {
                SIM_CHECK(s, sim_oracle_token(s, token)->owner == c->owner,
                          "a wait is granted to another owner");
                took(c, token);
            }
            rest(c);
        }
    }
}

static void submit(struct sim_client *c)
{
    struct sim *s = c->sim;
    unsigned first = (unsigned)sim_below(s, s->n);
    for (unsigned k = 0; k < s->n; k++) {
        unsigned i = (first + k) % s->n;
        struct sim_node *node = &s->nodes[i];
        if (!sim_node_alive(s, i) || !proposer_is_open(node->proposer)) {
            continue;
        }
        c->state = SIM_OP_SENT;
        int rv = proposer_add(node->proposer, &c->ticket, c->bytes, c->bytes_len, on_answer);
        if (rv == 0) {
            return;
        }
        SIM_CHECK(s, rv == FL_EBUSY, "a command is refused with %s", fl_err_name(rv));
        s->marks->busy++;
        c->state = SIM_OP_UNSENT;
        return;
    }
}

void sim_clients_start(struct sim *s)
{
    sim_oracle_new_owner(s); /* 0 stands for none */
    for (unsigned i = 0; i < s->clients_n; i++) {
        s->clients[i] = (struct sim_client){.sim = s, .index = i};
        fli_list_init(&s->clients[i].ticket.link);
    }
}

void sim_clients_step(struct sim *s)
{
    for (unsigned i = 0; i < s->clients_n; i++) {
        struct sim_client *c = &s->clients[i];
        if (c->state == SIM_OP_IDLE && !s->quiet && sim_now(s) >= c->next_at_ms) {
            start_something(c);
        }
        if (c->state == SIM_OP_UNSENT && sim_chance(s, 80)) {
            submit(c);
        }
    }
}

bool sim_clients_done(struct sim *s)
{
    for (unsigned i = 0; i < s->clients_n; i++) {
        if (s->clients[i].state != SIM_OP_IDLE) {
            return false;
        }
    }
    return true;
}

void sim_clients_describe(struct sim *s)
{
    static const char *const states[] = {"idle", "unsent", "sent", "waiting"};
    for (unsigned i = 0; i < s->clients_n; i++) {
        struct sim_client *c = &s->clients[i];
        fprintf(stderr, "  client %u: %s, op %u, lock %u, token %llu, since %llu ms\n", i,
                states[c->state], c->op, c->lock, (unsigned long long)c->token,
                (unsigned long long)c->start_ms);
    }
}
