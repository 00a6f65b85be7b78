/* test_raft_uv.c: one node on raft's real disk backend, with guard, fsm and proposer: thousands of
 * entries, snapshots, truncation, and the same state after a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <raft/uv.h>
#include <uv.h>

#include "base/clock.h"
#include "consensus/proposer.h"
#include "consensus/raft_guard.h"
#include "scratch.h"

#define COMMANDS 4000u
#define OWNER "owner-of-16-bytes-a"

/* A node without peers needs a transport that does nothing. */
static int no_init(struct raft_uv_transport *t, raft_id id, const char *address)
{
    return 0;
}
static int no_listen(struct raft_uv_transport *t, raft_uv_accept_cb cb)
{
    return 0;
}
static int no_connect(struct raft_uv_transport *t, struct raft_uv_connect *req, raft_id id,
                      const char *address, raft_uv_connect_cb cb)
{
    return RAFT_NOCONNECTION;
}
static void no_close(struct raft_uv_transport *t, raft_uv_transport_close_cb cb)
{
    cb(t);
}

struct rig {
    uv_loop_t loop;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_timer_t timer;
    struct raft_uv_transport transport;
    struct raft_io io;
    struct raft_guard guard;
    struct raft raft;
    struct fsm *fsm;
    struct proposer *proposer;
    struct node_ticket tickets[COMMANDS];
    unsigned sent, answered;
    uint64_t last_token;
    bool closed;
};

static void on_fatal(void *ctx, int error, const char *message)
{
    fail_msg("fatal: %s", message);
}

static void on_returned(void *ctx, struct node_ticket *t, const void *command, size_t len)
{
    fail_msg("a cluster of one lost its leader");
}

static void on_timer(uv_timer_t *handle)
{
}

static void on_prepare(uv_prepare_t *handle)
{
    struct rig *r = handle->data;
    uint64_t wait_ms = proposer_next_turn_ms(r->proposer, fli_clock_ms());
    if (wait_ms == UINT64_MAX) {
        wait_ms = 1000;
    }
    uv_update_time(&r->loop);
    uv_timer_start(&r->timer, on_timer, wait_ms, 0);
}

static void on_answer(struct node_ticket *t, int status, const struct machine_result *result,
                      struct fli_slice payload)
{
    struct rig *r = FLI_CONTAINER_OF(t - t->sequence, struct rig, tickets[0]);
    assert_int_equal(status, 0);
    assert_int_equal(t->sequence, r->answered); /* in the order in which they were sent */
    if (result->code == MACHINE_GRANTED) {
        /* Asking again while it is held gives the old one. */
        assert_true(result->token > 0);
        r->last_token = result->token > r->last_token ? result->token : r->last_token;
    }
    r->answered++;
}

/* Acquires and releases names from a small set; a few stay held. */
static void send_one(struct rig *r)
{
    unsigned i = r->sent;
    char name[16];
    struct fli_buf b;
    struct machine_command c = {.name = {(const uint8_t *)name, 0}};
    int n = snprintf(name, sizeof name, "lock-%u", i / 2 % 100);
    c.name.len = (size_t)n;
    if (i % 2 == 0 || i % 14 == 1) {
        c.op = MACHINE_OP_ACQUIRE;
        c.n_names = 1;
        c.permits = 1;
        c.owner = (struct fli_slice){(const uint8_t *)OWNER, strlen(OWNER)};
        c.ttl_ms = FL_TTL_MAX_MS;
    } else {
        c.op = MACHINE_OP_BREAK;
    }
    fli_buf_init(&b, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_encode(&c, &b), 0);
    r->tickets[i].sequence = i;
    int rv = proposer_add(r->proposer, &r->tickets[i], b.data, b.len, on_answer);
    fli_buf_fini(&b);
    assert_int_equal(rv, 0);
    r->sent++;
}

static void on_check(uv_check_t *handle)
{
    struct rig *r = handle->data;
    /* A few at a time, so that there are many entries. */
    for (unsigned i = 0;
         i < 3 && r->sent < COMMANDS && proposer_is_open(r->proposer) && r->sent - r->answered < 12;
         i++) {
        send_one(r);
    }
    proposer_turn(r->proposer, fli_clock_ms());
}

static void rig_open(struct rig *r, const char *dir, bool bootstrap)
{
    memset(r, 0, sizeof *r);
    uv_loop_init(&r->loop);
    uv_prepare_init(&r->loop, &r->prepare);
    uv_check_init(&r->loop, &r->check);
    uv_timer_init(&r->loop, &r->timer);
    r->prepare.data = r->check.data = r;
    r->transport = (struct raft_uv_transport){.version = 1,
                                              .init = no_init,
                                              .listen = no_listen,
                                              .connect = no_connect,
                                              .close = no_close};
    struct fsm_config fc = {.fatal = on_fatal, .ctx = r};
    assert_int_equal(fsm_create(&fc, &r->fsm), 0);
    assert_int_equal(raft_uv_init(&r->io, &r->loop, dir, &r->transport), 0);
    raft_uv_set_segment_size(&r->io, (size_t)1 << 18);
    raft_guard_init(&r->guard, &r->io, on_fatal, r);
    assert_int_equal(raft_init(&r->raft, &r->guard.outer, fsm_raft(r->fsm), 1, "1"), 0);
    raft_set_snapshot_threshold(&r->raft, 200);
    raft_set_snapshot_trailing(&r->raft, 50);
    raft_set_capacity_threshold(&r->raft, 0);
    if (bootstrap) {
        struct raft_configuration conf;
        raft_configuration_init(&conf);
        assert_int_equal(raft_configuration_add(&conf, 1, "1", RAFT_VOTER), 0);
        assert_int_equal(raft_bootstrap(&r->raft, &conf), 0);
        raft_configuration_close(&conf);
    }
    assert_int_equal(raft_start(&r->raft), 0);
    struct proposer_config pc = {.raft = &r->raft,
                                 .fsm = r->fsm,
                                 .in_flight_max = 2,
                                 .ctx = r,
                                 .returned = on_returned,
                                 .fatal = on_fatal};
    assert_int_equal(proposer_create(&pc, &r->proposer), 0);
    uv_prepare_start(&r->prepare, on_prepare);
    uv_check_start(&r->check, on_check);
}

static void on_raft_closed(struct raft *raft)
{
    struct rig *r = FLI_CONTAINER_OF(raft, struct rig, raft);
    r->closed = true;
}

static void rig_close(struct rig *r)
{
    proposer_close(r->proposer);
    uv_close((uv_handle_t *)&r->prepare, NULL);
    uv_close((uv_handle_t *)&r->check, NULL);
    uv_close((uv_handle_t *)&r->timer, NULL);
    raft_close(&r->raft, on_raft_closed);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_true(r->closed);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    raft_uv_close(&r->io);
    proposer_destroy(r->proposer);
    fsm_destroy(r->fsm);
}

static bool deadline_over(uint64_t start_ms)
{
    return fli_clock_ms() - start_ms > 120000;
}

static void keeps_its_state_on_disk(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    char *dir = scratch_make();
    rig_open(r, dir, true);
    r->last_token = 0;
    uint64_t start_ms = fli_clock_ms();
    while (r->answered < COMMANDS) {
        uv_run(&r->loop, UV_RUN_ONCE);
        assert_false(deadline_over(start_ms));
    }
    struct raft_guard_stats stats;
    struct fsm_stats fs;
    raft_guard_get_stats(&r->guard, &stats);
    fsm_get_stats(r->fsm, &fs);
    assert_true(stats.entries >= COMMANDS / 12);
    assert_true(stats.snapshots_put >= 2);
    assert_int_equal(stats.snapshots_installed, 0);
    assert_true(stats.append_ns_max > 0);
    assert_true(fs.entries >= COMMANDS / 12);
    uint64_t hash = machine_hash(fsm_machine(r->fsm));
    uint64_t token = machine_last_token(fsm_machine(r->fsm));
    assert_true(token >= r->last_token);
    rig_close(r);

    rig_open(r, dir, false);
    r->sent = r->answered = COMMANDS; /* nothing new */
    struct proposer_stats ps;
    start_ms = fli_clock_ms();
    do {
        uv_run(&r->loop, UV_RUN_ONCE);
        proposer_get_stats(r->proposer, &ps);
        assert_false(deadline_over(start_ms));
    } while (ps.batches == 0);
    fsm_get_stats(r->fsm, &fs);
    assert_int_equal(fs.restores, 1);
    /* The log behind the snapshot is applied, the mark of the new term is not yet. */
    assert_true(machine_hash(fsm_machine(r->fsm)) == hash);
    assert_int_equal(machine_last_token(fsm_machine(r->fsm)), token);
    machine_check(fsm_machine(r->fsm));
    rig_close(r);
    scratch_remove(dir);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_its_state_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
