/* test_ticks.c: each call of the device fails, one after another, whatever a log does. What the log
 * had told as durable is there when it is opened again, and it can be opened. */
#include <errno.h>

#include "rig.h"

#define TERMS 5u /* entries of one term */

struct told {
    uint64_t durable; /* the highest entry that was durable and not truncated since */
    uint64_t term;    /* of the durable hard state */
    uint64_t compacted;
};

static void note(struct rig *r, struct told *t, uint64_t term, uint64_t position)
{
    t->durable = log_durable_index(r->log);
    if (position != 0 && log_durable(r->log) >= position) {
        t->term = term;
    }
}

/* Until all is durable, or the log has failed. */
static bool settle(struct rig *r)
{
    log_flush(r->log);
    for (unsigned i = 0; r->failed_calls == 0 && log_durable(r->log) < log_position(r->log); i++) {
        assert_true(i < 10000 && sim_device_step(r->sim));
    }
    return r->failed_calls == 0;
}

/* Entries, hard states, truncations, reads and compaction, over several segments. */
static void use(struct rig *r, struct told *t)
{
    for (unsigned round = 0; round < 12; round++) {
        uint64_t term = log_last_term(r->log) + 1;
        uint64_t position = log_set_hard_state(r->log, &(struct log_hard_state){term, 1});
        for (unsigned i = 0; i < TERMS; i++) {
            (void)rig_append(r, term, 1500);
        }
        if (!settle(r)) {
            return;
        }
        note(r, t, term, position);
        if (round % 3 == 2) {
            (void)!log_truncate(r->log, log_last_index(r->log));
            t->durable = log_durable_index(r->log);
        }
        (void)rig_entry_ok(r, log_first_index(r->log));
        if (round % 4 == 3) {
            t->compacted = t->durable - TERMS;
            log_compact(r->log, t->compacted);
        }
        while (sim_device_busy(r->sim, LOG_LANE_BACKGROUND) && r->failed_calls == 0) {
            sim_device_finish(r->sim, LOG_LANE_BACKGROUND);
        }
    }
}

static void check(struct rig *r, const struct told *t)
{
    rig_open(r);
    assert_true(log_last_index(r->log) >= t->durable);
    assert_true(log_first_index(r->log) <= t->compacted + 1);
    assert_true(log_get_hard_state(r->log).term >= t->term);
    for (uint64_t i = log_first_index(r->log); i <= t->durable; i++) {
        assert_true(rig_entry_ok(r, i));
    }
}

static bool lives_with_failure(uint64_t kth, int error, uint64_t seed, enum sim_crash how)
{
    struct rig r;
    struct told t = {0};
    rig_init(&r, seed, LOG_SEGMENT_MIN);
    rig_open(&r);
    use(&r, &t);
    (void)rig_append(&r, log_last_term(r.log), 9000);
    log_flush(r.log);
    rig_crash(&r, SIM_CRASH_POWER); /* which may tear that write */
    sim_device_tick(r.sim, kth, error);
    int rv = rig_try_open(&r);
    bool failed = sim_device_ticked(r.sim);
    if (rv != 0) {
        assert_true(failed);
        assert_true(strstr(r.errmsg, strerror(-error)) != NULL || rv == FL_ENOMEM);
        rig_open(&r); /* what has failed once is no reason to refuse the next start */
    }
    use(&r, &t);
    failed = failed || sim_device_ticked(r.sim);
    rig_crash(&r, how);
    check(&r, &t);
    rig_fini(&r);
    return failed;
}

static void try_each(int error)
{
    uint64_t kth = 1;
    bool failed = true;
    while (failed) {
        (void)lives_with_failure(kth, error, kth, SIM_CRASH_PROCESS);
        for (uint64_t seed = 0; seed < 8; seed++) {
            failed = lives_with_failure(kth, error, seed, SIM_CRASH_POWER) && failed;
        }
        kth++;
    }
    assert_true(kth > 60);
}

TEST(each_call_fails_with_an_error)
{
    try_each(-EIO);
}

TEST(each_call_fails_for_want_of_memory)
{
    try_each(-ENOMEM);
}

TEST(each_call_fails_for_want_of_room)
{
    try_each(-ENOSPC);
}

/* A file that cannot be looked at is not a file that is not there: neither the newest segments nor
 * all of them are made anew over the old ones. */
TEST(files_that_cannot_be_looked_at)
{
    struct rig r;
    struct told t = {0};
    rig_init(&r, 1, LOG_SEGMENT_MIN);
    rig_open(&r);
    use(&r, &t);
    rig_close(&r);
    uint64_t asked = sim_device_calls(r.sim, SIM_SIZE);
    rig_open(&r);
    rig_close(&r);
    asked = sim_device_calls(r.sim, SIM_SIZE) - asked;
    assert_true(asked > 4);
    for (unsigned first = 1; first <= asked; first++) {
        sim_device_fail(r.sim, SIM_SIZE, first, 100, -ENOMEM);
        assert_int_equal(rig_try_open(&r), FL_ENOMEM);
        sim_device_fail(r.sim, SIM_SIZE, 1, 0, 0);
    }
    check(&r, &t);
    rig_fini(&r);
}

/* Of the ready ones that a start removes, the power may take any removal back. */
TEST(surplus_leaves_no_gap)
{
    for (unsigned seed = 0; seed < 30; seed++) {
        struct rig r;
        rig_init(&r, seed, LOG_SEGMENT_MIN);
        rig_open(&r);
        (void)rig_append(&r, 1, LOG_SEGMENT_MIN / 2);
        rig_sync(&r);
        sim_device_drain(r.sim);
        assert_non_null(sim_device_data(r.sim, "segment-0000000003", NULL));
        rig_close(&r);
        r.config.segment_bytes = 2 * LOG_SEGMENT_MIN;
        sim_device_fail(r.sim, SIM_SYNC_DIR, 1 + seed % 3, 1, -EIO);
        assert_int_equal(rig_try_open(&r), FL_EIO);
        sim_device_crash(r.sim, SIM_CRASH_POWER);
        rig_open(&r);
        assert_true(rig_entry_ok(&r, 1));
        rig_fini(&r);
    }
}

/* Whoever knows that there is a log does not get a new one. */
TEST(a_log_that_must_exist)
{
    struct rig r;
    rig_init(&r, 1, LOG_SEGMENT_MIN);
    r.config.must_exist = true;
    assert_int_equal(rig_try_open(&r), FL_ENOTFOUND);
    assert_int_equal(sim_device_files(r.sim), 0);
    r.config.must_exist = false;
    rig_open(&r);
    rig_close(&r);
    r.config.must_exist = true;
    rig_open(&r);
    rig_fini(&r);
}

/* A segment that the log does not know of is never replaced by a new one. */
TEST(a_name_that_is_taken)
{
    struct rig r;
    rig_init(&r, 1, LOG_SEGMENT_MIN);
    rig_open(&r);
    sim_device_put(r.sim, "segment-0000000002", "another", 7);
    for (unsigned i = 0; i < 40; i++) {
        (void)rig_append(&r, 1, 1500);
    }
    log_flush(r.log);
    sim_device_drain(r.sim);
    assert_true(log_durable(r.log) < log_position(r.log));
    assert_non_null(strstr(r.last_said, "segment-0000000002: File exists"));
    assert_memory_equal(sim_device_data(r.sim, "segment-0000000002", NULL), "another", 7);
    sim_device_unlink(r.sim, "segment-0000000002");
    rig_sync(&r);
    rig_fini(&r);
}

/* Whoever wrote the number down elsewhere sees that the newest part of a log is missing, whatever
 * was in it: a vote, an entry that is not committed, a truncation, an installed snapshot. */
TEST(writes_are_counted_for_good)
{
    struct rig it;
    struct rig *r = &it;
    rig_init(r, 1, UINT64_C(32) << 10);
    rig_open(r);
    struct log_hard_state hs = {.term = 1, .vote = 2};
    uint64_t before = log_writes(r->log);
    assert_int_not_equal(rig_append(r, 1, 20), 0);
    assert_int_equal(log_writes(r->log), before); /* it is not on disk yet */
    log_flush(r->log);
    assert_int_equal(log_writes(r->log), before);
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_writes(r->log), before + 1);
    assert_int_not_equal(log_set_hard_state(r->log, &hs), 0);
    rig_sync(r);
    assert_int_equal(log_writes(r->log), before + 2);
    assert_int_not_equal(log_truncate(r->log, 1), 0);
    rig_sync(r);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_writes(r->log), before + 3);
    assert_int_not_equal(log_reset(r->log, 1000, 4), 0);
    rig_sync(r);
    assert_int_not_equal(rig_append(r, 4, 20), 0);
    log_flush(r->log); /* and is lost */
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_true(log_writes(r->log) >= before + 4);
    rig_fini(r);
}

static bool append_here(struct rig *r)
{
    assert_int_not_equal(rig_append(r, 1, 20), 0);
    bool done = log_flush_here(r->log);
    assert_true(!done || log_durable(r->log) == log_position(r->log));
    return done;
}

/* The caller waits for a write, but not beside another one, nor for a second after one that took
 * more than a millisecond. */
TEST(a_write_that_the_caller_waits_for)
{
    struct rig it;
    struct rig *r = &it;
    rig_init(r, 1, UINT64_C(32) << 10);
    rig_open(r);
    rig_sync(r);
    uint64_t *now_ns = sim_device_clock(r->sim);
    assert_true(append_here(r));
    assert_false(log_flush_here(r->log)); /* there is nothing to write */

    assert_int_not_equal(rig_append(r, 1, 20), 0);
    log_flush(r->log);
    assert_false(append_here(r));
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_true(sim_device_busy(r->sim, LOG_LANE_WRITE)); /* the next has begun by itself */
    *now_ns += 2000000;
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_durable(r->log), log_position(r->log));

    assert_false(append_here(r));
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    *now_ns += 990000000;
    assert_false(append_here(r));
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    *now_ns += 20000000;
    assert_true(append_here(r));
    uint64_t last = log_last_index(r->log);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_last_index(r->log), last);
    rig_fini(r);
}
