/* test_damage.c: whatever is done to the bytes of a log, it is opened as it was, opened with its
 * last write cut off where that may be what a crash left, or refused with file and byte. */
#include "base/bytes.h"
#include "rig.h"

#define FIRST "segment-0000000001"
#define SECOND "segment-0000000002"
#define SEGMENT ((size_t)16 << 10)

/* Three writes: hard state and entries 1 and 2; entry 3 of three blocks with zeros in it; entry 4.
 */
static void small_log(struct rig *r)
{
    rig_init(r, 1, 32 << 10);
    rig_open(r);
    struct log_hard_state hs = {.term = 3, .vote = 2};
    assert_int_not_equal(log_set_hard_state(r->log, &hs), 0);
    assert_int_not_equal(rig_append(r, 1, 100), 0);
    assert_int_not_equal(rig_append(r, 3, 0), 0);
    rig_sync(r);
    assert_int_not_equal(rig_append(r, 3, 9000), 0);
    rig_sync(r);
    assert_int_not_equal(rig_append(r, 3, 700), 0);
    rig_sync(r);
    rig_close(r);
}

/* Opens a copy of the files of `from` after `change`. Returns what log_open did. */
static int try(struct rig *from, struct rig *r, void (*change)(struct rig *r, size_t i), size_t i)
{
    rig_init(r, 2, from->config.segment_bytes);
    sim_device_destroy(r->sim);
    r->sim = sim_device_clone(from->sim, 3, false);
    change(r, i);
    return rig_try_open(r);
}

static void check_whole(struct rig *r, uint64_t last)
{
    assert_int_equal(log_last_index(r->log), last);
    assert_int_equal(log_first_index(r->log), 1);
    for (uint64_t i = 1; i <= last; i++) {
        assert_true(rig_entry_ok(r, i));
    }
    assert_int_equal(log_get_hard_state(r->log).term, 3);
    assert_int_equal(log_get_hard_state(r->log).vote, 2);
}

/* It goes on, and what is written then is found again. */
static void check_goes_on(struct rig *r)
{
    uint64_t last = log_last_index(r->log);
    assert_int_not_equal(rig_append(r, 3, 5000), 0);
    rig_sync(r);
    rig_close(r);
    rig_open(r);
    check_whole(r, last + 1);
}

static void nothing(struct rig *r, size_t i)
{
}

TEST(undamaged)
{
    struct rig from;
    struct rig r;
    small_log(&from);
    assert_int_equal(try(&from, &r, nothing, 0), 0);
    check_whole(&r, 4);
    check_goes_on(&r);
    rig_fini(&r);
    rig_fini(&from);
}

static uint8_t *bytes(struct rig *r, const char *name, size_t *ret_len)
{
    uint8_t *data = sim_device_data(r->sim, name, ret_len);
    assert_non_null(data);
    return data;
}

static void flip(struct rig *r, size_t i)
{
    bytes(r, FIRST, NULL)[i / 8] ^= (uint8_t)(1 << i % 8);
}

/* A bit turned around anywhere, in what was written and in the zeros behind it. */
TEST(each_bit)
{
    struct rig from;
    size_t len = 0;
    small_log(&from);
    uint8_t *data = bytes(&from, FIRST, &len);
    assert_int_equal(len, 32 << 10);
    size_t end = len;
    while (end > 0 && data[end - 1] == 0) {
        end--;
    }
    assert_int_equal(end / LOG_BLOCK, 5); /* the empty first write, 1, 3 and 1 blocks */
    unsigned refused = 0;
    unsigned cut = 0;
    for (size_t i = 0; i < (6 * LOG_BLOCK + 1024) * 8; i += i % 8 == 3 ? 5 : 3) {
        struct rig r;
        int rv = try(&from, &r, flip, i);
        size_t at = i / 8;
        if (rv == 0) {
            /* In zeros behind the last write, but not where a header would be: as a torn write
             * leaves it. */
            assert_true(at >= 6 * LOG_BLOCK + LOG_SECTOR);
            assert_int_equal(r.said[LOG_LEVEL_WARNING], 1);
            check_whole(&r, 4);
            cut++;
        } else {
            assert_int_equal(rv, FL_ECORRUPT);
            assert_non_null(strstr(r.errmsg, "sim/" FIRST ": at byte "));
            /* It names a byte of the same write, at or before the damage. */
            const char *text = strstr(r.errmsg, "at byte ");
            size_t named = strtoul(text + 8, NULL, 10);
            assert_true(named <= at && at - named < 9000 + 2 * LOG_BLOCK);
            refused++;
        }
        rig_fini(&r);
    }
    assert_int_equal(refused, 2 * (6 * LOG_BLOCK + LOG_SECTOR));
    assert_int_equal(cut, 2 * LOG_SECTOR);
    rig_fini(&from);
}

static void zero_sectors(struct rig *r, size_t mask, size_t from, size_t sectors)
{
    uint8_t *data = bytes(r, FIRST, NULL);
    for (size_t i = 0; i < sectors; i++) {
        if ((mask >> i & 1) == 0) {
            memset(data + from + i * LOG_SECTOR, 0, LOG_SECTOR);
        }
    }
}

static void tear_last(struct rig *r, size_t mask)
{
    zero_sectors(r, mask, 5 * LOG_BLOCK, 8);
}

/* Each subset of the sectors of the last write is lost: it is there, or it is cut off. */
TEST(torn_last_write)
{
    struct rig from;
    small_log(&from);
    unsigned whole = 0;
    for (size_t mask = 0; mask < 256; mask++) {
        struct rig r;
        assert_int_equal(try(&from, &r, tear_last, mask), 0);
        bool is_whole = log_last_index(r.log) == 4;
        whole += is_whole;
        check_whole(&r, is_whole ? 4 : 3);
        /* 128 + 32 + 700 bytes are in two sectors. */
        assert_int_equal(is_whole, (mask & 3) == 3);
        assert_int_equal(r.said[LOG_LEVEL_WARNING], is_whole || (mask & 3) == 0 ? 0 : 1);
        check_goes_on(&r);
        rig_fini(&r);
    }
    assert_int_equal(whole, 64);
    rig_fini(&from);
}

/* Entry 3 of many sectors, some of them zeros when it was written; it is made the last write. */
static void without_last(struct rig *r, size_t mask)
{
    zero_sectors(r, 0, 5 * LOG_BLOCK, 8);
    zero_sectors(r, mask, 2 * LOG_BLOCK, 24);
}

TEST(torn_large_write)
{
    struct rig from;
    uint64_t rng = rng_seed();
    small_log(&from);
    const uint8_t *data = bytes(&from, FIRST, NULL) + 2 * LOG_BLOCK;
    size_t zeros = 0;
    for (size_t i = 0; i < 24; i++) {
        zeros |= (size_t)log_is_zero(data + i * LOG_SECTOR, LOG_SECTOR) << i;
    }
    assert_true(zeros != 0 && zeros != 0x00ffffff);
    for (unsigned n = 0; n < 4000; n++) {
        struct rig r;
        size_t mask = n == 0 ? 0x00ffffff : n == 1 ? 0 : rng_next(&rng) | rng_next(&rng);
        if (n % 4 == 3) {
            mask |= ~zeros; /* only zeros are lost, and nobody can tell */
        }
        assert_int_equal(try(&from, &r, without_last, mask), 0);
        bool is_whole = ((mask | zeros) & 0x00ffffff) == 0x00ffffff;
        check_whole(&r, is_whole ? 3 : 2);
        rig_fini(&r);
    }
    rig_fini(&from);
}

static void tear_last_and_put(struct rig *r, size_t at)
{
    bytes(r, FIRST, NULL)[5 * LOG_BLOCK + at] = 1;
    tear_last(r, 0xfd);
}

/* A write of which the header is there leaves nothing behind its end. */
TEST(behind_a_torn_write)
{
    struct rig from;
    struct rig r;
    small_log(&from);
    assert_int_equal(try(&from, &r, tear_last_and_put, LOG_SECTOR), 0);
    check_whole(&r, 3);
    rig_fini(&r);
    assert_int_equal(try(&from, &r, tear_last_and_put, LOG_BLOCK), FL_ECORRUPT);
    assert_non_null(strstr(r.errmsg, "at byte 20480: a part of this write is missing"));
    rig_fini(&r);
    rig_fini(&from);
}

static void put_in_second(struct rig *r, size_t at)
{
    bytes(r, SECOND, NULL)[at] = 1;
}

/* One without its header reaches no further than the largest write. */
TEST(as_far_as_a_write_reaches)
{
    struct rig from;
    struct rig r;
    rig_init(&from, 1, LOG_SEGMENT_DEFAULT);
    rig_open(&from);
    assert_int_not_equal(rig_append(&from, 3, 20000), 0);
    rig_sync(&from);
    sim_device_drain(from.sim);
    rig_close(&from);
    assert_int_equal(try(&from, &r, put_in_second, LOG_WRITE_MAX - 1), 0);
    assert_int_equal(log_last_index(r.log), 1);
    rig_fini(&r);
    assert_int_equal(try(&from, &r, put_in_second, LOG_WRITE_MAX), FL_ECORRUPT);
    rig_fini(&r);
    rig_fini(&from);
}

static void tear_middle(struct rig *r, size_t mask)
{
    zero_sectors(r, mask, 2 * LOG_BLOCK, 24);
}

/* A large write with such holes, and a whole write behind it: damage. */
TEST(hole_in_the_middle)
{
    struct rig from;
    small_log(&from);
    for (size_t i = 0; i < 20; i++) {
        struct rig r;
        int rv = try(&from, &r, tear_middle, ~((size_t)1 << i));
        if (rv == 0) {
            check_whole(&r, 4);
        } else {
            assert_int_equal(rv, FL_ECORRUPT);
            assert_non_null(strstr(r.errmsg, "at byte 8192: "));
        }
        rig_fini(&r);
    }
    struct rig r;
    assert_int_equal(try(&from, &r, tear_middle, 0), FL_ECORRUPT);
    assert_non_null(strstr(r.errmsg, "at byte 8192: write 3 of the log should be here"));
    assert_non_null(strstr(r.errmsg, "write 4 is at byte 20480"));
    rig_fini(&r);
    rig_fini(&from);
}

static void cut_file(struct rig *r, size_t len)
{
    size_t old = 0;
    uint8_t *data = bytes(r, FIRST, &old);
    uint8_t *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, data, len < old ? len : old);
    sim_device_put(r->sim, FIRST, copy, len);
    free(copy);
}

TEST(each_length)
{
    struct rig from;
    size_t full = 0;
    small_log(&from);
    (void)bytes(&from, FIRST, &full);
    for (size_t len = 0; len < full; len += len % LOG_SECTOR == 0 ? 1 : 97) {
        struct rig r;
        assert_int_equal(try(&from, &r, cut_file, len), FL_ECORRUPT);
        assert_non_null(strstr(r.errmsg, FIRST));
        rig_fini(&r);
    }
    rig_fini(&from);
}

/* --- whole writes that are not where they should be --- */

static void move(struct rig *r, size_t from, size_t to, size_t len)
{
    uint8_t *data = bytes(r, FIRST, NULL);
    memmove(data + to, data + from, len);
}

static void last_is_misplaced(struct rig *r, size_t to)
{
    move(r, 5 * LOG_BLOCK, to, LOG_BLOCK);
    memset(bytes(r, FIRST, NULL) + 5 * LOG_BLOCK, 0, LOG_BLOCK);
}

TEST(misplaced)
{
    struct rig from;
    small_log(&from);
    for (size_t to = 0; to < 8 * LOG_BLOCK; to += LOG_BLOCK) {
        struct rig r;
        if (to == 5 * LOG_BLOCK) {
            continue;
        }
        assert_int_equal(try(&from, &r, last_is_misplaced, to), FL_ECORRUPT);
        rig_fini(&r);
    }
    rig_fini(&from);
}

static void repeat_last(struct rig *r, size_t i)
{
    move(r, 5 * LOG_BLOCK, 6 * LOG_BLOCK, LOG_BLOCK);
}

static void repeat_older(struct rig *r, size_t i)
{
    move(r, LOG_BLOCK, 6 * LOG_BLOCK, LOG_BLOCK);
}

TEST(repeated)
{
    struct rig from;
    struct rig r;
    small_log(&from);
    assert_int_equal(try(&from, &r, repeat_last, 0), FL_ECORRUPT);
    assert_non_null(strstr(r.errmsg, "belongs to another place"));
    rig_fini(&r);
    assert_int_equal(try(&from, &r, repeat_older, 0), FL_ECORRUPT);
    rig_fini(&r);
    rig_fini(&from);
}

/* Two logs with one past, of which each then has two writes of the same numbers, places and terms.
 * A write of one does not continue the other: the one before it has other entries. */
TEST(of_another_course)
{
    struct rig from;
    struct rig courses[2];
    small_log(&from);
    for (size_t i = 0; i < 2; i++) {
        struct rig *r = &courses[i];
        assert_int_equal(try(&from, r, nothing, 0), 0);
        for (size_t len = 100; len <= 200; len += 100) {
            assert_int_not_equal(rig_append(r, 3, len + i), 0);
            rig_sync(r);
        }
        rig_close(r);
    }
    memcpy(bytes(&courses[1], FIRST, NULL) + 7 * LOG_BLOCK,
           bytes(&courses[0], FIRST, NULL) + 7 * LOG_BLOCK, LOG_BLOCK);
    assert_int_equal(rig_try_open(&courses[1]), FL_ECORRUPT);
    assert_non_null(strstr(courses[1].errmsg, "at byte 28672: this write does not follow"));
    rig_fini(&courses[0]);
    rig_fini(&courses[1]);
    rig_fini(&from);
}

/* --- several segments --- */

/* Entries of 3000 bytes, so three segments of 16 KiB with three writes each, two ready behind. */
static void long_log(struct rig *r)
{
    rig_init(r, 1, SEGMENT);
    rig_open(r);
    struct log_hard_state hs = {.term = 3, .vote = 2};
    assert_int_not_equal(log_set_hard_state(r->log, &hs), 0);
    for (unsigned i = 0; i < 9; i++) {
        assert_int_not_equal(rig_append(r, 3, 3000), 0);
        rig_sync(r);
    }
    sim_device_drain(r->sim);
    rig_close(r);
    assert_int_equal(sim_device_files(r->sim), 5);
}

static void segment_name(size_t i, char name[LOG_NAME_MAX + 1])
{
    snprintf(name, LOG_NAME_MAX + 1, "segment-%010zu", i);
}

static void lose_segment(struct rig *r, size_t i)
{
    char name[LOG_NAME_MAX + 1];
    segment_name(i, name);
    sim_device_unlink(r->sim, name);
}

static void empty_segment(struct rig *r, size_t i)
{
    char name[LOG_NAME_MAX + 1];
    size_t len = 0;
    segment_name(i, name);
    uint8_t *data = bytes(r, name, &len);
    memset(data, 0, len);
}

static void swap_segments(struct rig *r, size_t i)
{
    uint8_t copy[SEGMENT];
    memcpy(copy, bytes(r, FIRST, NULL), SEGMENT);
    memcpy(bytes(r, FIRST, NULL), bytes(r, SECOND, NULL), SEGMENT);
    memcpy(bytes(r, SECOND, NULL), copy, SEGMENT);
}

TEST(segments)
{
    struct rig from;
    struct rig r;
    long_log(&from);
    assert_int_equal(try(&from, &r, nothing, 0), 0);
    check_whole(&r, 9);
    rig_fini(&r);
    /* A missing one in the middle, also a ready one; the oldest is the caller's to miss. */
    for (size_t i = 2; i <= 4; i++) {
        assert_int_equal(try(&from, &r, lose_segment, i), FL_ECORRUPT);
        assert_non_null(strstr(r.errmsg, "missing"));
        rig_fini(&r);
    }
    assert_int_equal(try(&from, &r, lose_segment, 1), 0);
    assert_int_equal(log_first_index(r.log), 4);
    assert_int_equal(log_last_index(r.log), 9);
    assert_int_equal(log_term_of(r.log, 3), 3);
    assert_int_equal(log_get_hard_state(r.log).vote, 2);
    rig_fini(&r);
    for (size_t i = 1; i <= 2; i++) {
        assert_int_equal(try(&from, &r, empty_segment, i), FL_ECORRUPT);
        rig_fini(&r);
    }
    assert_int_equal(try(&from, &r, swap_segments, 0), FL_ECORRUPT);
    assert_non_null(strstr(r.errmsg, "another place"));
    rig_fini(&r);
    rig_fini(&from);
}

static void tear_end_of_first(struct rig *r, size_t i)
{
    memset(bytes(r, FIRST, NULL) + 3 * LOG_BLOCK, 0, LOG_SECTOR << i);
}

static void put_in_ready(struct rig *r, size_t i)
{
    char name[LOG_NAME_MAX + 1];
    segment_name(i / SEGMENT, name);
    bytes(r, name, NULL)[i % SEGMENT] = 1;
}

TEST(torn_before_a_segment)
{
    struct rig from;
    struct rig r;
    long_log(&from);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(try(&from, &r, tear_end_of_first, i), FL_ECORRUPT);
        assert_non_null(strstr(r.errmsg, i < 3 ? FIRST : SECOND));
        rig_fini(&r);
    }
    /* In the first ready segment it may be a torn write, in the second it may not. */
    assert_int_equal(try(&from, &r, put_in_ready, 4 * SEGMENT + 600), 0);
    assert_int_equal(r.said[LOG_LEVEL_WARNING], 1);
    check_whole(&r, 9);
    check_goes_on(&r);
    rig_fini(&r);
    assert_int_equal(try(&from, &r, put_in_ready, 5 * SEGMENT + 600), FL_ECORRUPT);
    rig_fini(&r);
    rig_fini(&from);
}

/* --- the disk --- */

static void bad_sector(struct rig *r, size_t at)
{
    sim_device_bad_sector(r->sim, FIRST, at);
}

TEST(unreadable)
{
    struct rig from;
    struct rig r;
    small_log(&from);
    assert_int_equal(try(&from, &r, bad_sector, 9000), FL_EIO);
    assert_non_null(strstr(r.errmsg, FIRST ": at byte 8192: Input/output error"));
    rig_fini(&r);
    rig_fini(&from);
}

/* --- other files, other versions --- */

static void add_file(struct rig *r, size_t i)
{
    static const char *const names[] = {"segment-0000000001.bak",
                                        "lost+found",
                                        ".hidden",
                                        "snapshot-00000000000000000009-00000000000000000001",
                                        "segment-0000000005.part",
                                        "segment-1",
                                        "segment-0000000000"};
    sim_device_put(r->sim, names[i], "x", 1);
}

TEST(other_files)
{
    struct rig from;
    struct rig r;
    small_log(&from);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(try(&from, &r, add_file, i), 0);
        assert_int_equal(r.said[LOG_LEVEL_WARNING], i == 0 || i >= 5);
        check_whole(&r, 4);
        rig_fini(&r);
    }
    assert_int_equal(try(&from, &r, add_file, 4), 0);
    for (unsigned i = 0; i < 8; i++) { /* it goes when that segment is made */
        assert_int_not_equal(rig_append(&r, 3, 9000), 0);
        rig_sync(&r);
        sim_device_drain(r.sim);
    }
    assert_null(sim_device_data(r.sim, "segment-0000000005.part", NULL));
    assert_non_null(sim_device_data(r.sim, "segment-0000000005", NULL));
    rig_fini(&r);
    rig_fini(&from);
}

static void other_version_by(struct rig *r, size_t i)
{
    uint8_t *data = bytes(r, FIRST, NULL);
    fli_put_u16(data + 6, (uint16_t)(LOG_FORMAT_VERSION + i));
    uint32_t crc = fli_crc32c(fli_crc32c(0, data, 8), data + 12, LOG_WRITE_HEADER - 12);
    fli_put_u32(data + 8, crc);
}

TEST(other_version)
{
    struct rig from;
    struct rig r;
    small_log(&from);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(try(&from, &r, other_version_by, i == 0 ? 1 : SIZE_MAX), FL_EVERSION);
        assert_non_null(strstr(r.errmsg, i == 0 ? "version 3" : "version 1"));
        rig_fini(&r);
    }
    rig_fini(&from);
}
