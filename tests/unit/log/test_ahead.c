/* Entries that are not in memory are read by the device, and nobody waits. */
#include "../../lib/unit.h"
#include "rig.h"

#include <errno.h>

#define FIRST "segment-0000000001"
#define SEGMENT (UINT64_C(1) << 20)
#define LEN 1000u

static unsigned arrivals;

static void on_arrived(void *ctx)
{
    arrivals++;
}

static void open_with(struct rig *r, uint64_t segment_bytes)
{
    arrivals = 0;
    rig_init(r, 1, segment_bytes);
    r->config.cache_bytes = 1;
    r->config.arrived = on_arrived;
    rig_open(r);
}

/* All that was appended becomes durable. A read that is under way stays so. */
static void sync_all(struct rig *r)
{
    log_flush(r->log);
    while (log_durable(r->log) < log_position(r->log)) {
        bool writes = sim_device_busy(r->sim, LOG_LANE_WRITE);
        sim_device_finish(r->sim, writes ? LOG_LANE_WRITE : LOG_LANE_BACKGROUND);
    }
}

/* n entries that are on disk, and not in memory. */
static void append(struct rig *r, uint64_t term, unsigned n, size_t len)
{
    for (unsigned i = 0; i < n; i++) {
        assert_int_not_equal(rig_append(r, term, len), 0);
        if (len > 100000) {
            sync_all(r);
        }
    }
    sync_all(r);
}

static int take(struct rig *r, uint64_t index)
{
    struct log_entry e;
    unsigned n = 0;
    int rv = log_take_some(r->log, index, SIZE_MAX, &e, 1, &n);
    if (rv == 0) {
        uint8_t *data = fli_xmalloc(e.len + 1);
        assert_true(n == 1 && e.index == index && e.term == log_term_of(r->log, index));
        rig_fill(data, index, e.term, e.len);
        assert_memory_equal(e.data, data, e.len);
        free(data);
    }
    return rv;
}

static bool reads(const struct rig *r)
{
    return sim_device_busy(r->sim, LOG_LANE_READ);
}

static void finish(struct rig *r)
{
    sim_device_finish(r->sim, LOG_LANE_READ);
}

static size_t memory_bytes(struct rig *r)
{
    struct log_stats stats;
    log_get_stats(r->log, &stats);
    return stats.memory_bytes;
}

TEST(nobody_waits)
{
    struct rig r;
    struct log_entry got[64];
    unsigned n = 0;
    open_with(&r, SEGMENT);
    append(&r, 1, 60, LEN);
    uint64_t waited = sim_device_calls(r.sim, SIM_READ);
    assert_int_equal(log_take_some(r.log, 61, SIZE_MAX, got, 64, &n), FL_ENOTFOUND);
    assert_int_equal(log_take_some(r.log, 1, SIZE_MAX, got, 64, &n), FL_EBUSY);
    assert_int_equal(log_take_some(r.log, 2, SIZE_MAX, got, 64, &n), FL_EBUSY);
    assert_true(reads(&r) && arrivals == 0);
    finish(&r);
    assert_int_equal(arrivals, 1);
    assert_false(reads(&r)); /* it has brought the second as well */
    assert_int_equal(log_take_some(r.log, 1, SIZE_MAX, got, 64, &n), 0);
    assert_int_equal(n, 60);
    for (uint64_t i = 1; i <= 60; i++) {
        assert_int_equal(take(&r, i), 0);
    }
    assert_int_equal(log_take_some(r.log, 5, 10500, got, 64, &n), 0);
    assert_int_equal(n, 10);
    assert_int_equal(sim_device_calls(r.sim, SIM_READ), waited);
    assert_int_equal(sim_device_calls(r.sim, SIM_READ_IO), 1);
    rig_fini(&r);
}

TEST(what_is_in_memory_is_not_read)
{
    struct rig r;
    open_with(&r, SEGMENT);
    assert_int_not_equal(rig_append(&r, 1, LEN), 0);
    assert_int_equal(take(&r, 1), 0);
    assert_int_equal(sim_device_calls(r.sim, SIM_READ_IO), 0);
    rig_fini(&r);
}

/* A record that does not fit into what is left of a chunk begins another one, at the same place of
 * the segment. What comes behind it is not looked for in the former. */
TEST(chunks_that_overlap)
{
    struct rig r;
    open_with(&r, UINT64_C(8) << 20);
    r.log->config.cache_bytes = LOG_CACHE_DEFAULT;
    for (uint64_t i = 1; i <= 40; i++) {
        append(&r, 1, 1, i % 4 == 0 ? 600000 : LEN);
        for (uint64_t k = i < 20 ? 1 : i - 19; k <= i; k++) {
            assert_int_equal(take(&r, k), 0);
        }
    }
    assert_int_equal(sim_device_calls(r.sim, SIM_READ_IO), 0);
    rig_fini(&r);
}

TEST(memory_is_bounded)
{
    const size_t max = (size_t)4 << 20;
    struct rig r;
    open_with(&r, UINT64_C(8) << 20);
    append(&r, 1, 60, 600000);
    r.log->config.cache_bytes = max;
    for (uint64_t i = 1; i <= 60; i++) {
        for (int rv; (rv = take(&r, i)) != 0;) {
            assert_true(rv == FL_EBUSY && reads(&r));
            assert_true(memory_bytes(&r) <= max + LOG_CHUNK_BYTES);
            finish(&r);
        }
    }
    assert_true(memory_bytes(&r) > max / 2);
    assert_int_equal(take(&r, 60), 0);
    append(&r, 1, 1, LEN); /* it stays, since it was used last */
    assert_true(memory_bytes(&r) <= max);
    assert_int_equal(take(&r, 60), 0);
    r.log->config.cache_bytes = 1;
    append(&r, 1, 1, LEN);
    assert_int_equal(memory_bytes(&r), 0);
    assert_int_equal(take(&r, 60), FL_EBUSY);
    rig_fini(&r);
}

/* An entry that is larger than all that may be kept is read as well. */
TEST(the_largest_entry)
{
    struct rig r;
    open_with(&r, UINT64_C(8) << 20);
    append(&r, 1, 3, LOG_ENTRY_MAX);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(take(&r, i), FL_EBUSY);
        finish(&r);
        assert_int_equal(take(&r, i), 0);
    }
    rig_fini(&r);
}

TEST(those_that_wait_are_read_in_turn)
{
    struct rig r;
    open_with(&r, SEGMENT);
    append(&r, 1, 12, 600000);
    for (uint64_t i = 1; i <= 9; i += 4) {
        assert_int_equal(take(&r, i), FL_EBUSY);
        assert_int_equal(take(&r, i), FL_EBUSY);
    }
    for (unsigned k = 1; k <= 3; k++) {
        assert_true(reads(&r));
        finish(&r);
        assert_int_equal(arrivals, k);
        assert_int_equal(take(&r, 4 * k - 3), 0);
    }
    assert_false(reads(&r));
    rig_fini(&r);
}

/* The batch ends at the first that is not in memory, which is read meanwhile. */
TEST(what_comes_next_is_read_meanwhile)
{
    struct rig r;
    struct log_entry got[64];
    unsigned n = 0;
    open_with(&r, SEGMENT);
    append(&r, 1, 6, 600000);
    assert_int_equal(take(&r, 1), FL_EBUSY);
    finish(&r);
    assert_int_equal(log_take_some(r.log, 1, SIZE_MAX, got, 64, &n), 0);
    assert_int_equal(n, 1);
    assert_true(reads(&r));
    finish(&r);
    assert_int_equal(take(&r, 2), 0);
    rig_fini(&r);
}

/* What was in the place of the entry when it was read is not what was put there since. */
TEST(a_read_beside_a_write)
{
    struct rig r;
    open_with(&r, SEGMENT);
    append(&r, 1, 1, LEN);
    assert_int_equal(take(&r, 1), FL_EBUSY);
    append(&r, 1, 1, LEN);
    finish(&r);
    assert_int_equal(take(&r, 1), 0);
    assert_int_equal(take(&r, 2), FL_EBUSY);
    finish(&r);
    assert_int_equal(take(&r, 2), 0);
    /* It begins while a write is under way. */
    assert_int_not_equal(rig_append(&r, 1, LEN), 0);
    log_flush(r.log);
    log_trim(r.log, NULL);
    assert_int_equal(take(&r, 1), FL_EBUSY);
    finish(&r);
    sync_all(&r);
    assert_int_equal(take(&r, 3), FL_EBUSY);
    finish(&r);
    assert_int_equal(take(&r, 3), 0);
    assert_int_equal(r.said[LOG_LEVEL_ERROR], 0);
    rig_fini(&r);
}

TEST(truncated_meanwhile)
{
    struct rig r;
    open_with(&r, SEGMENT);
    append(&r, 1, 10, LEN);
    assert_int_equal(take(&r, 5), FL_EBUSY);
    assert_int_not_equal(log_truncate(r.log, 3), 0);
    assert_int_equal(take(&r, 5), FL_ENOTFOUND);
    append(&r, 2, 8, LEN);
    finish(&r);
    for (uint64_t i = 1; i <= 10; i++) {
        if (take(&r, i) == FL_EBUSY) {
            finish(&r);
        }
        assert_int_equal(take(&r, i), 0);
    }
    assert_int_not_equal(log_reset(r.log, 100, 3), 0);
    assert_int_equal(take(&r, 5), FL_ENOTFOUND);
    sync_all(&r);
    append(&r, 3, 1, LEN);
    assert_int_equal(take(&r, 101), FL_EBUSY);
    finish(&r);
    assert_int_equal(take(&r, 101), 0);
    assert_int_equal(r.said[LOG_LEVEL_ERROR], 0);
    rig_fini(&r);
}

/* The segment goes while it is read: whatever the read brought is no damage. */
TEST(compacted_meanwhile)
{
    for (unsigned i = 0; i < 2; i++) {
        struct rig r;
        open_with(&r, LOG_SEGMENT_MIN);
        append(&r, 1, 40, LEN);
        assert_int_equal(take(&r, 1), FL_EBUSY);
        if (i == 1) { /* it was read before, and the device has not said so */
            sim_device_fail(r.sim, SIM_READ_IO, 1, 1, -EIO);
        }
        log_compact(r.log, 39);
        while (sim_device_busy(r.sim, LOG_LANE_BACKGROUND)) {
            sim_device_finish(r.sim, LOG_LANE_BACKGROUND);
        }
        append(&r, 1, 40, LEN);
        while (log_first_index(r.log) == 1) {
            append(&r, 1, 10, LEN);
        }
        assert_int_equal(arrivals, 0);
        finish(&r);
        assert_int_equal(arrivals, 1);
        assert_int_equal(take(&r, 1), FL_ENOTFOUND);
        assert_int_equal(r.said[LOG_LEVEL_ERROR], 0);
        rig_fini(&r);
    }
}

TEST(damage)
{
    struct rig r;
    size_t at = LOG_BLOCK + 128 + 5 * 1032 + 500;
    open_with(&r, SEGMENT);
    append(&r, 1, 60, LEN);
    sim_device_data(r.sim, FIRST, NULL)[at] ^= 1;
    assert_int_equal(take(&r, 6), FL_EBUSY);
    finish(&r);
    assert_int_equal(take(&r, 2), FL_EBUSY); /* it lies in front of what was read */
    finish(&r);
    assert_int_equal(take(&r, 2), 0);
    assert_int_equal(r.said[LOG_LEVEL_ERROR], 0);
    assert_int_equal(take(&r, 6), FL_ECORRUPT);
    assert_non_null(strstr(r.last_said, FIRST " at byte 9384"));
    assert_int_equal(take(&r, 7), 0);
    rig_fini(&r);
}

/* A sector that cannot be read is an error of who needs it, and of nobody else. */
TEST(a_bad_sector)
{
    struct rig r;
    open_with(&r, SEGMENT);
    append(&r, 1, 60, LEN);
    sim_device_bad_sector(r.sim, FIRST, LOG_BLOCK + 128 + 30 * 1032 + 500);
    assert_int_equal(take(&r, 1), FL_EBUSY);
    finish(&r);
    assert_true(reads(&r) && arrivals == 0);
    finish(&r);
    assert_int_equal(arrivals, 1);
    assert_int_equal(take(&r, 1), 0);
    assert_int_equal(take(&r, 31), FL_EBUSY);
    finish(&r);
    finish(&r);
    assert_int_equal(r.said[LOG_LEVEL_ERROR], 0);
    assert_int_equal(take(&r, 31), FL_EIO);
    assert_non_null(strstr(r.last_said, strerror(EIO)));
    assert_int_equal(take(&r, 31), FL_EBUSY); /* it is tried again */
    rig_fini(&r);
}

TEST(a_file_that_is_gone)
{
    struct rig r;
    open_with(&r, SEGMENT);
    append(&r, 1, 60, LEN);
    sim_device_unlink(r.sim, FIRST);
    assert_int_equal(take(&r, 1), FL_EBUSY);
    finish(&r);
    finish(&r);
    assert_int_equal(take(&r, 1), FL_EIO);
    assert_non_null(strstr(r.last_said, strerror(ENOENT)));
    rig_fini(&r);
}

TEST(closed_meanwhile)
{
    struct rig r;
    open_with(&r, SEGMENT);
    append(&r, 1, 10, LEN);
    assert_int_equal(take(&r, 1), FL_EBUSY);
    rig_close(&r);
    assert_int_equal(arrivals, 0);
    rig_open(&r);
    assert_int_equal(take(&r, 1), FL_EBUSY);
    rig_crash(&r, SIM_CRASH_POWER);
    assert_int_equal(arrivals, 0);
    rig_fini(&r);
}
