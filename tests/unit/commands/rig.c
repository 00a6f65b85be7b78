/* rig.c: see rig.h. */
#include "rig.h"

#include "../../lib/unit.h"

static void node_start(struct rig *r, unsigned i, const struct proposer_config *limits)
{
    struct rig_node *node = &r->nodes[i];
    struct proposer_config pc = limits == NULL ? (struct proposer_config){0} : *limits;
    node->rig = r;
    node->server = &r->g.servers[i];
    group_up(&r->g, i);
    commands_init(&node->queue, RIG_ROOM, 0);
    pc.fsm = node->server->fsm;
    pc.queue = &node->queue;
    assert_int_equal(proposer_init(&node->proposer, &pc), 0);
    node->proposer.replica = node->server->replica;
}

void rig_start(struct rig *r, unsigned n, const struct proposer_config *config)
{
    memset(r, 0, sizeof *r);
    group_init(&r->g, n);
    for (unsigned i = 0; i < n; i++) {
        node_start(r, i, config);
    }
}

void rig_stop(struct rig *r)
{
    for (unsigned i = 0; i < r->g.n; i++) {
        proposer_close(&r->nodes[i].proposer);
        proposer_fini(&r->nodes[i].proposer);
        commands_end_waiting(&r->nodes[i].queue);
        commands_fini(&r->nodes[i].queue);
        assert_int_equal(r->nodes[i].server->fatals, 0);
    }
    group_fini(&r->g);
    for (unsigned i = 0; i < r->calls_n; i++) {
        fli_buf_fini(&r->calls[i].bytes);
    }
}

void rig_turn(struct rig *r, unsigned i)
{
    struct rig_node *node = &r->nodes[i];
    bool was_open = proposer_is_open(&node->proposer);
    proposer_turn(&node->proposer, COMMANDS_ALL, r->g.now_ms + node->ahead_ms);
    node->opened += !was_open && proposer_is_open(&node->proposer);
}

void rig_step(struct rig *r)
{
    group_step(&r->g);
    for (unsigned i = 0; i < r->g.n; i++) {
        if (!r->nodes[i].asleep) {
            rig_turn(r, i);
        }
    }
}

void rig_run(struct rig *r, unsigned msecs)
{
    uint64_t end = r->g.now_ms + msecs;
    while (r->g.now_ms < end) {
        rig_step(r);
    }
}

unsigned rig_leader(struct rig *r)
{
    uint64_t end = r->g.now_ms + 30000;
    while (r->g.now_ms < end) {
        for (unsigned i = 0; i < r->g.n; i++) {
            if (proposer_is_open(&r->nodes[i].proposer)) {
                return i;
            }
        }
        rig_step(r);
    }
    fail_msg("nobody leads");
    return 0;
}

static void on_answer(struct node_ticket *t, int status, const struct machine_result *result,
                      struct fli_slice payload)
{
    struct rig_call *c = FLI_CONTAINER_OF(t, struct rig_call, ticket);
    c->answers++;
    c->status = status;
    c->payload_len = payload.len;
    if (result != NULL) {
        c->result = *result;
    }
    if (c->next != NULL) {
        c->order = ++c->again->rig->order;
        c->next->ticket.cb = on_answer;
        assert_int_equal(commands_add(&c->again->queue, &c->next->ticket, c->next->bytes.data,
                                      c->next->bytes.len, 0),
                         0);
    }
}

struct rig_call *rig_call(struct rig *r, const struct machine_command *c)
{
    assert_true(r->calls_n < RIG_CALLS_MAX);
    struct rig_call *call = &r->calls[r->calls_n++];
    fli_buf_init(&call->bytes, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_encode(c, &call->bytes), 0);
    return call;
}

struct fli_slice rig_text(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

struct rig_call *rig_acquire(struct rig *r, const char *name, const char *owner, uint64_t ttl_ms)
{
    struct machine_command c = {.op = MACHINE_OP_ACQUIRE,
                                .n_names = 1,
                                .permits = 1,
                                .name = rig_text(name),
                                .owner = rig_text(owner),
                                .ttl_ms = ttl_ms};
    return rig_call(r, &c);
}

struct rig_call *rig_release(struct rig *r, const char *name, uint64_t token)
{
    struct machine_command c = {.op = MACHINE_OP_RELEASE, .name = rig_text(name), .token = token};
    return rig_call(r, &c);
}

struct rig_call *rig_check(struct rig *r, const char *name, uint64_t token)
{
    struct machine_command c = {.op = MACHINE_OP_CHECK, .name = rig_text(name), .token = token};
    return rig_call(r, &c);
}

int rig_add(struct rig *r, unsigned i, struct rig_call *c)
{
    c->ticket.cb = on_answer;
    return commands_add(&r->nodes[i].queue, &c->ticket, c->bytes.data, c->bytes.len, 0);
}

bool rig_waits(const struct rig *r, unsigned i, const struct rig_call *c)
{
    FLI_LIST_FOREACH(pos, &r->nodes[i].queue.own)
    {
        const struct command *m = FLI_CONTAINER_OF(pos, struct command, age);
        if (m->t == &c->ticket) {
            return !m->out && c->answers == 0;
        }
    }
    return false;
}

void rig_await(struct rig *r, struct rig_call *c)
{
    uint64_t end = r->g.now_ms + 30000;
    while (c->answers == 0 && r->g.now_ms < end) {
        rig_step(r);
    }
    assert_int_equal(c->answers, 1);
}

uint64_t rig_batches(struct rig *r, unsigned i)
{
    return r->nodes[i].proposer.stats.batches;
}
