/* rig.c: see rig.h. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void on_returned(void *ctx, struct node_ticket *t, const void *command, size_t len)
{
    struct rig_node *node = ctx;
    struct rig_call *c = FLI_CONTAINER_OF(t, struct rig_call, ticket);
    assert_int_equal(len, c->bytes.len);
    assert_memory_equal(command, c->bytes.data, len);
    c->returns++;
    c->order = ++node->rig->order;
}

static void on_opened(void *ctx, uint64_t term)
{
    struct rig_node *node = ctx;
    node->opened++;
    node->opened_term = term;
    assert_true(proposer_is_open(node->proposer));
}

static void on_fatal(void *ctx, int error, const char *message)
{
    struct rig_node *node = ctx;
    assert_non_null(message);
    assert_true(fl_err_class(error) == FL_CLASS_FAULT);
    node->fatals++;
}

static void no_trace(struct raft_tracer *t, int type, const void *info)
{
}

static struct raft_tracer silent = {.version = 2, .emit = no_trace};

static void node_start(struct rig *r, unsigned i, const struct proposer_config *limits)
{
    struct rig_node *node = &r->nodes[i];
    struct fsm_config fsm = {.fatal = on_fatal, .ctx = node};
    struct proposer_config pc = limits == NULL ? (struct proposer_config){0} : *limits;
    node->rig = r;
    assert_int_equal(fsm_create(&fsm, &node->fsm), 0);
    assert_int_equal(raft_fixture_grow(&r->fixture, fsm_raft(node->fsm)), 0);
    node->raft = raft_fixture_get(&r->fixture, i);
    node->raft->tracer = &silent;
    pc.raft = node->raft;
    pc.fsm = node->fsm;
    pc.ctx = node;
    pc.returned = on_returned;
    pc.opened = on_opened;
    pc.fatal = on_fatal;
    assert_int_equal(proposer_create(&pc, &node->proposer), 0);
}

void rig_start(struct rig *r, unsigned n, const struct proposer_config *config)
{
    struct raft_configuration conf;
    memset(r, 0, sizeof *r);
    r->n = n;
    assert_int_equal(raft_fixture_init(&r->fixture), 0);
    r->fixture.leader_id = 0;
    for (unsigned i = 0; i < n; i++) {
        node_start(r, i, config);
    }
    assert_int_equal(raft_fixture_configuration(&r->fixture, n, &conf), 0);
    assert_int_equal(raft_fixture_bootstrap(&r->fixture, &conf), 0);
    raft_configuration_close(&conf);
    assert_int_equal(raft_fixture_start(&r->fixture), 0);
}

void rig_stop(struct rig *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        proposer_close(r->nodes[i].proposer);
    }
    raft_fixture_close(&r->fixture);
    for (unsigned i = 0; i < r->n; i++) {
        proposer_destroy(r->nodes[i].proposer);
        fsm_destroy(r->nodes[i].fsm);
    }
    for (unsigned i = 0; i < r->calls_n; i++) {
        fli_buf_fini(&r->calls[i].bytes);
    }
}

void rig_turn(struct rig *r, unsigned i)
{
    struct rig_node *node = &r->nodes[i];
    proposer_turn(node->proposer, r->fixture.time + node->ahead_ms);
}

void rig_step(struct rig *r)
{
    raft_fixture_step(&r->fixture);
    for (unsigned i = 0; i < r->n; i++) {
        if (!r->nodes[i].asleep) {
            rig_turn(r, i);
        }
    }
}

void rig_run(struct rig *r, unsigned msecs)
{
    raft_time end = r->fixture.time + msecs;
    while (r->fixture.time < end) {
        rig_step(r);
    }
}

unsigned rig_leader(struct rig *r)
{
    raft_time end = r->fixture.time + 30000;
    while (r->fixture.time < end) {
        for (unsigned i = 0; i < r->n; i++) {
            if (proposer_is_open(r->nodes[i].proposer)) {
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
        assert_int_equal(proposer_add(c->again->proposer, &c->next->ticket, c->next->bytes.data,
                                      c->next->bytes.len, on_answer),
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
    return proposer_add(r->nodes[i].proposer, &c->ticket, c->bytes.data, c->bytes.len, on_answer);
}

void rig_await(struct rig *r, struct rig_call *c)
{
    raft_time end = r->fixture.time + 30000;
    while (c->answers == 0 && r->fixture.time < end) {
        rig_step(r);
    }
    assert_int_equal(c->answers, 1);
}

uint64_t rig_batches(struct rig *r, unsigned i)
{
    struct proposer_stats stats;
    proposer_get_stats(r->nodes[i].proposer, &stats);
    return stats.batches;
}
