/* test_log.c: the log's calls one by one on the simulated disk: what becomes durable when, limits,
 * segments that come, go and are used again, and a disk that is full, fails or misplaces. */
#include <errno.h>

#include "base/bytes.h"
#include "rig.h"

#define FIRST "segment-0000000001"
#define SMALL (UINT64_C(32) << 10)

static int setup(void **state)
{
    struct rig *r = *state = malloc(sizeof *r);
    rig_init(r, 1, SMALL);
    rig_open(r);
    return 0;
}

static int teardown(void **state)
{
    rig_fini(*state);
    free(*state);
    return 0;
}

static struct log_stats stats_of(struct rig *r)
{
    struct log_stats s;
    log_get_stats(r->log, &s);
    return s;
}

static void append(struct rig *r, uint64_t term, size_t len)
{
    uint64_t position = log_position(r->log);
    assert_int_equal(rig_append(r, term, len), position + 1);
}

TEST(empty)
{
    struct rig r;
    rig_init(&r, 1, SMALL);
    for (unsigned i = 0; i < 2; i++) {
        struct log_entry e;
        rig_open(&r);
        assert_int_equal(log_first_index(r.log), 1);
        assert_int_equal(log_last_index(r.log), 0);
        assert_int_equal(log_last_term(r.log), 0);
        assert_int_equal(log_term_of(r.log, 0), 0);
        assert_int_equal(log_term_of(r.log, 1), 0);
        assert_int_equal(log_get_hard_state(r.log).term, 0);
        assert_int_equal(log_position(r.log), 0);
        assert_int_equal(log_durable(r.log), 0);
        assert_int_equal(log_durable_index(r.log), 0);
        assert_int_equal(rig_read(r.log, 1, &e), FL_ENOTFOUND);
        assert_int_equal(rig_read(r.log, 0, &e), FL_ENOTFOUND);
        log_flush(r.log);
        assert_false(sim_device_busy(r.sim, LOG_LANE_WRITE));
        assert_int_equal(stats_of(&r).age_ns, 0);
        rig_close(&r);
    }
    rig_fini(&r);
}

/* One write at a time; all that comes meanwhile rides in the next, which begins by itself. */
TEST_WITH(group_commit, setup, teardown)
{
    struct rig *r = *state;
    append(r, 1, 10);
    assert_false(sim_device_busy(r->sim, LOG_LANE_WRITE));
    log_flush(r->log);
    assert_true(sim_device_busy(r->sim, LOG_LANE_WRITE));
    for (unsigned i = 0; i < 5; i++) {
        append(r, 1, 20);
        log_flush(r->log);
    }
    append(r, 1, 30); /* not flushed, and rides along */
    assert_int_equal(log_durable(r->log), 0);
    assert_true(stats_of(r).age_ns > 0);
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_durable(r->log), 1);
    assert_int_equal(log_durable_index(r->log), 1);
    assert_int_equal(r->durable_calls, 1);
    assert_true(sim_device_busy(r->sim, LOG_LANE_WRITE));
    append(r, 1, 40); /* nobody asked for it to be written */
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_durable(r->log), 7);
    assert_false(sim_device_busy(r->sim, LOG_LANE_WRITE));
    assert_int_equal(stats_of(r).writes, 2);
    assert_int_equal(log_room(r->log), LOG_PENDING_MAX - log_record_size(40));
    log_flush(r->log);
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_durable_index(r->log), 8);
    assert_int_equal(log_room(r->log), LOG_PENDING_MAX);
}

/* raft must not be told of an entry that was cut off while it was being written. */
TEST_WITH(truncated_while_written, setup, teardown)
{
    struct rig *r = *state;
    append(r, 1, 10);
    rig_sync(r);
    append(r, 1, 20);
    append(r, 1, 30);
    log_flush(r->log);
    assert_int_not_equal(log_truncate(r->log, 2), 0);
    append(r, 2, 99);
    append(r, 2, 98);
    assert_int_equal(log_durable_index(r->log), 1);
    log_flush(r->log);
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_durable(r->log), 3);
    assert_int_equal(log_durable_index(r->log), 1);
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_durable_index(r->log), 3);
    assert_int_equal(log_term_of(r->log, 2), 2);
    assert_true(rig_entry_ok(r, 2) && rig_entry_ok(r, 3));
    /* What is durable goes back when it is cut off. */
    assert_int_not_equal(log_truncate(r->log, 3), 0);
    assert_int_equal(log_durable_index(r->log), 2);
    /* Behind the last one: nothing but a record. */
    assert_int_not_equal(log_truncate(r->log, 3), 0);
    assert_int_equal(log_last_index(r->log), 2);
    rig_sync(r);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_last_index(r->log), 2);
}

TEST_WITH(installed_while_written, setup, teardown)
{
    struct rig *r = *state;
    struct log_hard_state hs = {.term = 4, .vote = 1};
    assert_int_not_equal(log_set_hard_state(r->log, &hs), 0);
    append(r, 1, 20);
    append(r, 1, 30);
    log_flush(r->log);
    assert_int_not_equal(log_reset(r->log, 1000, 4), 0);
    assert_int_equal(log_last_index(r->log), 1000);
    assert_int_equal(log_first_index(r->log), 1001);
    assert_int_equal(log_term_of(r->log, 1000), 4);
    assert_int_equal(log_last_term(r->log), 4);
    append(r, 4, 77);
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_durable_index(r->log), 1000);
    rig_sync(r);
    assert_int_equal(log_durable_index(r->log), 1001);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_first_index(r->log), 1001);
    assert_int_equal(log_term_of(r->log, 1000), 4);
    assert_true(rig_entry_ok(r, 1001));
    assert_int_equal(log_get_hard_state(r->log).vote, 1);
}

/* Hard states in a row take one record; each has its position. */
TEST_WITH(hard_states, setup, teardown)
{
    struct rig *r = *state;
    for (uint64_t i = 1; i <= 1000; i++) {
        struct log_hard_state hs = {.term = i, .vote = i % 3};
        assert_int_equal(log_set_hard_state(r->log, &hs), i);
    }
    assert_int_equal(log_room(r->log), LOG_PENDING_MAX - LOG_RECORD_HEADER);
    append(r, 1000, 5);
    struct log_hard_state hs = {.term = 1001, .vote = 9};
    assert_int_equal(log_set_hard_state(r->log, &hs), 1002);
    log_flush(r->log);
    hs.vote = 8; /* the one under way is not touched */
    assert_int_equal(log_set_hard_state(r->log, &hs), 1003);
    sim_device_finish(r->sim, LOG_LANE_WRITE);
    assert_int_equal(log_durable(r->log), 1002);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_get_hard_state(r->log).term, 1001);
    assert_int_equal(log_get_hard_state(r->log).vote, 9);
}

/* --- limits --- */

TEST(largest_entry)
{
    static const uint64_t sizes[] = {LOG_SEGMENT_MIN, SMALL, UINT64_C(8) << 20};
    for (unsigned i = 0; i < 3; i++) {
        struct rig r;
        rig_init(&r, 1, sizes[i]);
        rig_open(&r);
        uint32_t max = log_entry_max(r.log);
        assert_int_equal(max, i < 2 ? sizes[i] - 160 : LOG_ENTRY_MAX);
        for (unsigned k = 0; k < 3; k++) {
            append(&r, 1, max);
            rig_sync(&r);
        }
        append(&r, 1, max - 1);
        append(&r, 1, 0);
        rig_sync(&r);
        rig_crash(&r, SIM_CRASH_POWER);
        rig_open(&r);
        for (uint64_t k = 1; k <= 5; k++) {
            assert_true(rig_entry_ok(&r, k));
        }
        rig_fini(&r);
    }
}

TEST(too_large_entry)
{
    uint8_t record[LOG_RECORD_HEADER];
    struct log_record rec = {.type = LOG_RECORD_ENTRY, .kind = 1, .index = 1, .term = 1};
    log_record_encode(&rec, record);
    assert_true(log_record_decode(record, sizeof record, &rec));
    assert_false(log_record_decode(record, sizeof record - 1, &rec));
    uint8_t *large = calloc(1, log_record_size(LOG_ENTRY_MAX + 1));
    assert_non_null(large);
    rec.data = large + LOG_RECORD_HEADER;
    for (uint32_t over = 0; over < 2; over++) {
        uint8_t *data = calloc(1, LOG_ENTRY_MAX + 1);
        assert_non_null(data);
        struct log_record big = rec;
        big.data = data;
        big.len = LOG_ENTRY_MAX + over;
        log_record_encode(&big, large);
        assert_int_equal(log_record_decode(large, log_record_size(big.len), &big), over == 0);
        free(data);
    }
    free(large);
}

/* The last index there is; what follows it on disk is refused. */
TEST_WITH(largest_index, setup, teardown)
{
    struct rig *r = *state;
    assert_int_not_equal(log_reset(r->log, LOG_INDEX_MAX - 1, 1), 0);
    append(r, 1, 10);
    rig_sync(r);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_last_index(r->log), LOG_INDEX_MAX);
    assert_true(rig_entry_ok(r, LOG_INDEX_MAX));
    /* One more in place of it, whole in all other respects. */
    rig_close(r);
    uint8_t *data = sim_device_data(r->sim, FIRST, NULL) + LOG_BLOCK;
    size_t at = LOG_WRITE_HEADER;
    struct log_record rec;
    struct log_write w = {.log_id = fli_get_u64(data + 16),
                          .number = 2,
                          .segment = 1,
                          .segment_size = SMALL,
                          .offset = LOG_BLOCK,
                          .block = LOG_BLOCK,
                          .before.chain = fli_get_u32(data - LOG_BLOCK + 8)};
    log_record_peek(data + at, &rec);
    assert_int_equal(rec.type, LOG_RECORD_RESET);
    rec.index = LOG_INDEX_MAX + 1;
    log_record_encode(&rec, data + at);
    w.len = (uint32_t)(at + LOG_RECORD_HEADER);
    memset(data + w.len, 0, LOG_BLOCK - w.len);
    (void)log_write_seal(&w, data, LOG_BLOCK);
    assert_int_equal(rig_try_open(r), FL_ECORRUPT);
    assert_non_null(strstr(r->errmsg, "impossible length, type, index or term"));
}

/* Room for exactly LOG_PENDING_MAX; a hard state and a truncation go in nevertheless. */
TEST(pending_ceiling)
{
    struct rig r;
    size_t size = log_record_size(1 << 20);
    rig_init(&r, 1, UINT64_C(8) << 20);
    rig_open(&r);
    assert_int_equal(log_room(r.log), LOG_PENDING_MAX);
    size_t filled = 0;
    for (; filled + size <= LOG_PENDING_MAX; filled += size) {
        append(&r, 1, 1 << 20);
    }
    size_t rest = LOG_PENDING_MAX - filled;
    assert_int_equal(log_room(r.log), rest);
    assert_int_equal(rig_append(&r, 1, rest - LOG_RECORD_HEADER + 1), 0);
    assert_int_equal(log_last_index(r.log), filled / size);
    append(&r, 1, rest - LOG_RECORD_HEADER);
    assert_int_equal(log_room(r.log), 0);
    assert_int_equal(rig_append(&r, 1, 0), 0);
    struct log_hard_state hs = {.term = 4, .vote = 1};
    assert_int_not_equal(log_set_hard_state(r.log, &hs), 0);
    uint64_t last = log_last_index(r.log);
    assert_int_not_equal(log_truncate(r.log, last), 0);
    rig_sync(&r);
    assert_int_equal(log_room(r.log), LOG_PENDING_MAX);
    rig_crash(&r, SIM_CRASH_POWER);
    rig_open(&r);
    assert_int_equal(log_last_index(r.log), last - 1);
    assert_int_equal(log_get_hard_state(r.log).term, 4);
    rig_fini(&r);
}

TEST(largest_segment)
{
    struct rig r;
    rig_init(&r, 1, LOG_SEGMENT_MAX);
    rig_open(&r);
    append(&r, 1, 5);
    rig_sync(&r);
    rig_close(&r);
    rig_open(&r);
    assert_true(rig_entry_ok(&r, 1));
    rig_fini(&r);
}

/* --- memory and reading --- */

TEST(reading)
{
    struct rig r;
    struct log_entry got[64];
    unsigned n = 0;
    rig_init(&r, 1, UINT64_C(1) << 20);
    r.config.cache_bytes = 3000;
    rig_open(&r);
    for (unsigned i = 0; i < 60; i++) {
        append(&r, 1, 1000);
    }
    /* All that is not durable stays in memory. */
    assert_true(stats_of(&r).memory_bytes >= 60 * 1000);
    rig_sync(&r);
    assert_true(stats_of(&r).memory_bytes <= 3000);
    assert_int_equal(log_read_some(r.log, 1, 10500, got, 64, &n), 0);
    assert_int_equal(n, 10);
    assert_int_equal(log_read_some(r.log, 1, 0, got, 64, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(log_read_some(r.log, 55, SIZE_MAX, got, 64, &n), 0);
    assert_int_equal(n, 6);
    uint64_t reads = sim_device_calls(r.sim, SIM_READ_IO);
    assert_int_equal(log_read_some(r.log, 1, SIZE_MAX, got, 64, &n), 0);
    assert_int_equal(n, 60);
    assert_true(sim_device_calls(r.sim, SIM_READ_IO) - reads <= 1);
    /* The data of one batch is valid together. */
    for (unsigned i = 0; i < n; i++) {
        uint8_t data[1000];
        rig_fill(data, i + 1, 1, sizeof data);
        assert_memory_equal(got[i].data, data, sizeof data);
    }
    assert_int_equal(log_read_some(r.log, 61, SIZE_MAX, got, 64, &n), FL_ENOTFOUND);
    /* A damaged one is found, told and not given out. */
    log_trim(r.log, NULL); /* what was read is read again the next time */
    sim_device_data(r.sim, FIRST, NULL)[LOG_BLOCK + 128 + 5 * 1032 + 500] ^= 1;
    assert_int_equal(rig_read(r.log, 6, got), FL_ECORRUPT);
    assert_non_null(strstr(r.last_said, FIRST " at byte 9384"));
    assert_int_equal(log_read_some(r.log, 1, SIZE_MAX, got, 64, &n), 0);
    assert_int_equal(n, 5);
    log_trim(r.log, NULL);                           /* what was read is read again the next time */
    sim_device_fail(r.sim, SIM_READ_IO, 1, 2, -EIO); /* with its neighbours, and alone */
    assert_int_equal(rig_read(r.log, 1, got), FL_EIO);
    assert_true(rig_entry_ok(&r, 1));
    rig_fini(&r);
}

/* --- segments --- */

TEST_WITH(recycled, setup, teardown)
{
    struct rig *r = *state;
    for (unsigned i = 0; i < 200; i++) {
        append(r, 1 + i / 10, 5000 + i);
        rig_sync(r);
        sim_device_drain(r->sim);
        log_compact(r->log, log_last_index(r->log) > 10 ? log_last_index(r->log) - 10 : 0);
        sim_device_drain(r->sim);
    }
    struct log_stats s = stats_of(r);
    assert_true(s.recycled > 20 && sim_device_calls(r->sim, SIM_BACKGROUND) >= s.recycled);
    assert_true(s.segments <= 12);
    assert_int_equal(s.bytes, s.segments * SMALL);
    assert_int_equal(sim_device_files(r->sim), s.segments);
    assert_true(log_first_index(r->log) <= 191 && log_first_index(r->log) > 100);
    assert_int_not_equal(log_term_of(r->log, log_first_index(r->log) - 1), 0);
    assert_int_equal(log_term_of(r->log, 1), 0);
    for (uint64_t i = log_first_index(r->log); i <= 200; i++) {
        assert_true(rig_entry_ok(r, i));
    }
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    for (uint64_t i = log_first_index(r->log); i <= 200; i++) {
        assert_true(rig_entry_ok(r, i));
    }
    /* All of it superfluous: one segment stays, some wait to be used again, two are ready. */
    log_compact(r->log, UINT64_MAX);
    sim_device_drain(r->sim);
    assert_true(stats_of(r).segments <= 1 + 4 + 2);
}

/* What was ready in another size is made anew. */
TEST_WITH(other_segment_size, setup, teardown)
{
    struct rig *r = *state;
    for (unsigned i = 0; i < 20; i++) {
        append(r, 1, 5000);
        rig_sync(r);
    }
    sim_device_drain(r->sim);
    rig_close(r);
    r->config.segment_bytes = 2 * SMALL;
    rig_open(r);
    for (unsigned i = 0; i < 30; i++) {
        append(r, 1, 20000);
        rig_sync(r);
        log_compact(r->log, log_last_index(r->log) - 1);
    }
    sim_device_drain(r->sim);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_last_index(r->log), 50);
    assert_true(rig_entry_ok(r, 50));
}

/* The directory moves to a disk with larger blocks, and back. */
TEST(other_block)
{
    static const size_t blocks[] = {4096, 16384, 4096, 65536};
    struct rig r;
    rig_init(&r, 1, UINT64_C(128) << 10);
    r.config.cache_bytes = 1;
    for (unsigned i = 0; i < 12; i++) {
        sim_device_base(r.sim)->block = blocks[i % 4];
        rig_open(&r);
        for (unsigned k = 0; k < 3; k++) {
            append(&r, 1, 3000 * k + 100);
            rig_sync(&r);
        }
        for (uint64_t k = 1; k <= log_last_index(r.log); k++) {
            assert_true(rig_entry_ok(&r, k));
        }
        assert_int_equal(log_last_index(r.log), 3 * (i + 1));
        rig_crash(&r, SIM_CRASH_POWER);
    }
    rig_fini(&r);
}

TEST_WITH(full_disk, setup, teardown)
{
    struct rig *r = *state;
    sim_device_capacity(r->sim, 2 * SMALL);
    for (unsigned i = 0; i < 12; i++) {
        append(r, 1, 9000);
        log_flush(r->log);
        sim_device_drain(r->sim);
    }
    struct log_stats s = stats_of(r);
    assert_true(s.waiting_for_segment && s.age_ns > 0 &&
                sim_device_calls(r->sim, SIM_BACKGROUND) >= 50);
    assert_true(log_durable_index(r->log) > 2 && log_durable_index(r->log) < 12);
    assert_int_equal(log_last_index(r->log), 12);
    assert_int_equal(r->failed_calls, 0);
    assert_non_null(strstr(r->last_said, "No space left on device"));
    /* Told with growing pauses, not each time. */
    assert_true(r->said[LOG_LEVEL_ERROR] + r->said[LOG_LEVEL_WARNING] <= 14);
    for (uint64_t i = 1; i <= 12; i++) {
        assert_true(rig_entry_ok(r, i));
    }
    /* An election in the meantime, and a truncation. */
    struct log_hard_state hs = {.term = 7, .vote = 1};
    assert_int_not_equal(log_set_hard_state(r->log, &hs), 0);
    assert_int_not_equal(log_truncate(r->log, 12), 0);
    sim_device_capacity(r->sim, UINT64_MAX);
    rig_sync(r);
    assert_false(stats_of(r).waiting_for_segment);
    assert_int_equal(log_durable_index(r->log), 11);
    assert_int_equal(r->said[LOG_LEVEL_INFO], 1);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_last_index(r->log), 11);
    assert_int_equal(log_get_hard_state(r->log).term, 7);
}

/* What a snapshot makes superfluous may be all the room that there is. The first segment of a large
 * size is smaller, and its room alone too little. None goes before the one in front of it has gone
 * for good, also when a sync fails: no crash leaves a gap. */
TEST(full_disk_with_superfluous_segments)
{
    static const uint64_t sizes[] = {SMALL, 2 * LOG_FIRST_BYTES};
    for (unsigned i = 0; i < 120; i++) {
        struct rig r;
        unsigned steps = i / 6 % 5;
        uint64_t size = sizes[i % 2];
        rig_init(&r, i, size);
        rig_open(&r);
        sim_device_capacity(r.sim, stats_of(&r).bytes + 4 * size);
        while (!stats_of(&r).waiting_for_segment) {
            append(&r, 1, 9000);
            log_flush(r.log);
            sim_device_drain(r.sim);
        }
        sim_device_fail(r.sim, SIM_SYNC_DIR, 1, i % 3, -EIO);
        log_compact(r.log, log_durable_index(r.log));
        if (steps == 0) {
            rig_sync(&r);
        }
        for (; steps > 0; steps--) {
            (void)sim_device_step(r.sim);
        }
        rig_crash(&r, SIM_CRASH_POWER);
        rig_open(&r);
        assert_true(rig_entry_ok(&r, log_last_index(r.log)));
        rig_fini(&r);
    }
}

/* Closing while the disk is full and the next attempt is a pause away. */
TEST_WITH(closed_while_full, setup, teardown)
{
    struct rig *r = *state;
    sim_device_capacity(r->sim, 2 * SMALL);
    for (unsigned i = 0; i < 12; i++) {
        append(r, 1, 9000);
        log_flush(r->log);
        sim_device_drain(r->sim);
    }
    uint64_t durable = log_durable_index(r->log);
    rig_close(r);
    rig_open(r);
    assert_int_equal(log_last_index(r->log), durable);
}

/* --- a disk that fails --- */

TEST(failed_write)
{
    static const int errors[] = {-EIO, -EROFS, -EAGAIN};
    for (unsigned i = 0; i < 3; i++) {
        struct rig r;
        rig_init(&r, i, SMALL);
        rig_open(&r);
        append(&r, 1, 100);
        rig_sync(&r);
        sim_device_fail(r.sim, SIM_LOG_WRITE, 1, 1, errors[i]);
        append(&r, 1, 100);
        log_flush(r.log);
        append(&r, 1, 100);
        log_flush(r.log);
        sim_device_finish(r.sim, LOG_LANE_WRITE);
        assert_int_equal(r.failed_calls, 1);
        assert_non_null(strstr(r.failure, "sim/" FIRST " at byte 8192: "));
        assert_non_null(strstr(r.failure, strerror(-errors[i])));
        /* Nothing becomes durable any more, and it still answers. */
        append(&r, 1, 100);
        log_flush(r.log);
        sim_device_drain(r.sim);
        assert_int_equal(log_durable(r.log), 1);
        assert_int_equal(log_durable_index(r.log), 1);
        assert_int_equal(r.failed_calls, 1);
        assert_true(rig_entry_ok(&r, 4));
        rig_crash(&r, SIM_CRASH_POWER);
        rig_open(&r);
        /* It may have got there nevertheless; what came later never was begun. */
        assert_in_range(log_last_index(r.log), 1, 2);
        rig_fini(&r);
    }
}

/* A disk that is full at a write, though the segment is there: it waits as for a segment. */
TEST(full_at_a_write)
{
    static const int errors[] = {-ENOSPC, -EDQUOT};
    for (unsigned i = 0; i < 2; i++) {
        struct rig r;
        rig_init(&r, 1, SMALL);
        rig_open(&r);
        sim_device_fail(r.sim, SIM_LOG_WRITE, 1, 9, errors[i]);
        append(&r, 1, 100);
        log_flush(r.log);
        for (unsigned k = 0; k < 9; k++) {
            sim_device_finish(r.sim, LOG_LANE_WRITE);
            assert_true(stats_of(&r).waiting_for_segment && stats_of(&r).age_ns > 0);
            append(&r, 1, 100);
            log_flush(r.log);
        }
        assert_int_equal(r.said[LOG_LEVEL_ERROR], 4); /* of 1, 2, 4 and 8 */
        assert_non_null(strstr(r.last_said, strerror(-errors[i])));
        assert_int_equal(log_durable(r.log), 0);
        rig_sync(&r);
        assert_int_equal(log_durable_index(r.log), 10);
        assert_false(stats_of(&r).waiting_for_segment);
        assert_int_equal(r.said[LOG_LEVEL_INFO], 1);
        assert_int_equal(r.failed_calls, 0);
        /* Closed while it waits. */
        sim_device_fail(r.sim, SIM_LOG_WRITE, 1, 2, errors[i]);
        append(&r, 1, 100);
        log_flush(r.log);
        sim_device_finish(r.sim, LOG_LANE_WRITE);
        rig_close(&r);
        rig_open(&r);
        assert_int_equal(log_last_index(r.log), 10);
        rig_fini(&r);
    }
}

/* A write that was acknowledged and lies elsewhere: found at the next start. */
TEST(misplaced_write)
{
    for (unsigned i = 0; i < 12; i++) {
        struct rig r;
        rig_init(&r, 1, SMALL);
        rig_open(&r);
        for (unsigned k = 0; k < 10; k++) {
            append(&r, 1, 5000);
            rig_sync(&r);
            sim_device_drain(r.sim);
        }
        char name[LOG_NAME_MAX + 1];
        snprintf(name, sizeof name, "segment-%010u", 1 + i % 4);
        sim_device_misplace(r.sim, name, i / 4 * 2 * LOG_BLOCK);
        append(&r, 1, 5000);
        rig_sync(&r);
        if (i % 2 == 0) {
            append(&r, 1, 100);
            rig_sync(&r);
        }
        rig_close(&r);
        assert_int_equal(rig_try_open(&r), FL_ECORRUPT);
        assert_non_null(strstr(r.errmsg, "sim/segment-"));
        rig_fini(&r);
    }
}

/* Each call that opening makes fails once: an error, and the next attempt works. */
TEST(failing_open)
{
    static const enum sim_call calls[] = {SIM_LIST, SIM_OPEN,   SIM_LOCK,   SIM_READ,    SIM_WRITE,
                                          SIM_SYNC, SIM_RENAME, SIM_REMOVE, SIM_SYNC_DIR};
    unsigned failures = 0;
    for (unsigned c = 0; c < 9; c++) {
        for (unsigned nth = 1; nth < 10; nth++) {
            for (unsigned fresh = 0; fresh < 2; fresh++) {
                struct rig r;
                rig_init(&r, nth, SMALL);
                if (!fresh) {
                    rig_open(&r);
                    for (unsigned k = 0; k < 10; k++) {
                        append(&r, 1, 5000);
                        rig_sync(&r);
                    }
                    append(&r, 1, 3000);
                    log_flush(r.log);
                    static const uint8_t torn = 0x0e;
                    sim_device_tear(r.sim, &torn);
                    rig_crash(&r, SIM_CRASH_PROCESS);
                    sim_device_put(r.sim, "segment-0000000077.part", "x", 1);
                }
                uint64_t before = sim_device_calls(r.sim, calls[c]);
                sim_device_fail(r.sim, calls[c], nth, 1, -EIO);
                int rv = rig_try_open(&r);
                bool failed = sim_device_calls(r.sim, calls[c]) >= before + nth;
                assert_int_equal(rv, failed ? FL_EIO : 0);
                if (failed) {
                    failures++;
                    assert_non_null(strstr(r.errmsg, "sim"));
                    rig_open(&r);
                }
                assert_int_equal(log_last_index(r.log), fresh ? 0 : 10);
                append(&r, 2, 50);
                rig_sync(&r);
                rig_crash(&r, SIM_CRASH_POWER);
                rig_open(&r);
                assert_int_equal(log_last_index(r.log), fresh ? 1 : 11);
                rig_fini(&r);
            }
        }
    }
    assert_true(failures > 20);
}

/* A write of a process that has ended is under way, and the disk does not finish it: it is waited
 * for, with a line, and then nothing is read. */
TEST_WITH(opening_waits_for_a_write_of_before, setup, teardown)
{
    struct rig *r = *state;
    append(r, 1, 3000);
    rig_sync(r);
    rig_close(r);
    sim_device_fail(r->sim, SIM_LOCK, 1, 2, -EWOULDBLOCK);
    uint64_t reads = sim_device_calls(r->sim, SIM_READ_IO);
    assert_int_equal(rig_try_open(r), FL_EIO);
    assert_non_null(strstr(r->errmsg, "sim/" FIRST " is still being written"));
    assert_int_equal(sim_device_calls(r->sim, SIM_READ_IO), reads);
    assert_int_equal(r->said[LOG_LEVEL_WARNING], 1);
    sim_device_fail(r->sim, SIM_LOCK, 1, 1, -EWOULDBLOCK);
    rig_open(r);
    assert_int_equal(r->said[LOG_LEVEL_WARNING], 2);
    assert_true(rig_entry_ok(r, 1));
}

/* What only the process had seen is made stable before it is built on: after a kill and a start, a
 * power cut takes nothing back. */
TEST_WITH(stable_after_open, setup, teardown)
{
    static const uint8_t all[2] = {0xff, 0xff};
    struct rig *r = *state;
    append(r, 1, 3000);
    log_flush(r->log);
    sim_device_tear(r->sim, all);
    rig_crash(r, SIM_CRASH_PROCESS);
    rig_open(r);
    assert_int_equal(log_durable_index(r->log), 1);
    append(r, 1, 3000);
    rig_sync(r);
    rig_crash(r, SIM_CRASH_POWER);
    rig_open(r);
    assert_int_equal(log_last_index(r->log), 2);
    assert_true(rig_entry_ok(r, 1) && rig_entry_ok(r, 2));
}

/* A write fails, and its bytes stay in the cache, of which the system believes that they are on
 * disk: the next process reads them, and must write them again before it builds on them. */
TEST(failed_write_that_is_read_back)
{
    for (unsigned more = 0; more < 3; more++) {
        struct rig r;
        rig_init(&r, more, SMALL);
        rig_open(&r);
        append(&r, 1, 3000);
        rig_sync(&r);
        append(&r, 1, 6000);
        log_flush(r.log);
        sim_device_fail_in_cache(r.sim);
        sim_device_finish(r.sim, LOG_LANE_WRITE);
        assert_int_equal(r.failed_calls, 1);
        for (unsigned i = 0; i < 2; i++) {
            rig_crash(&r, SIM_CRASH_PROCESS);
            rig_open(&r);
            assert_int_equal(log_durable_index(r.log), 2);
        }
        for (unsigned i = 0; i < more; i++) {
            append(&r, 1, 9000);
            rig_sync(&r);
        }
        rig_crash(&r, SIM_CRASH_POWER);
        rig_open(&r);
        assert_int_equal(log_last_index(r.log), 2 + more);
        for (uint64_t i = 1; i <= 2 + more; i++) {
            assert_true(rig_entry_ok(&r, i));
        }
        rig_fini(&r);
    }
}

/* A segment that was being made ready when the process was killed is used after the start; then the
 * power goes. Its name must have been made stable before. */
TEST(stable_names_after_open)
{
    for (unsigned seed = 0; seed < 60; seed++) {
        struct rig r;
        rig_init(&r, seed, LOG_SEGMENT_MIN);
        rig_open(&r);
        append(&r, 1, 3000);
        log_flush(r.log);
        sim_device_finish(r.sim, LOG_LANE_WRITE);
        assert_true(sim_device_busy(r.sim, LOG_LANE_BACKGROUND));
        rig_crash(&r, SIM_CRASH_PROCESS);
        rig_open(&r);
        while (log_durable(r.log) == log_position(r.log) && log_position(r.log) < 5) {
            append(&r, 1, 3000);
            log_flush(r.log);
            if (sim_device_busy(r.sim, LOG_LANE_WRITE)) {
                sim_device_finish(r.sim, LOG_LANE_WRITE);
            }
        }
        uint64_t durable = log_durable_index(r.log);
        rig_crash(&r, SIM_CRASH_POWER);
        rig_open(&r);
        assert_true(log_last_index(r.log) >= durable);
        rig_fini(&r);
    }
}

/* Closing ends the write under way and drops what was not flushed. */
TEST_WITH(closing, setup, teardown)
{
    struct rig *r = *state;
    append(r, 1, 100);
    log_flush(r->log);
    append(r, 1, 200);
    unsigned before = r->durable_calls;
    rig_close(r);
    assert_int_equal(r->durable_calls, before);
    rig_open(r);
    assert_int_equal(log_last_index(r->log), 1);
    append(r, 1, 100);
    log_flush(r->log);
    sim_device_fail(r->sim, SIM_LOG_WRITE, 1, 1, -EIO);
    rig_close(r);
    assert_int_equal(r->failed_calls, 0);
}
