/* test_segments.c: damaged segments are told from torn ones; what a crash leaves is not refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "consensus/segments.h"
#include "scratch.h"

#define SIZE (64 * 1024)
#define SECTOR 512
#define BATCHES 40

struct log {
    uint8_t data[SIZE];
    size_t len; /* used */
    size_t at[BATCHES + 1];
};

static uint32_t crc_of(const uint8_t *data, size_t len)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < 8 * len; i++) {
        uint32_t top = (crc >> 31) ^ (data[i / 8] >> (7 - i % 8) & 1);
        crc = crc << 1 ^ (top != 0 ? 0x04c11db7U : 0);
    }
    return crc;
}

static void put(uint8_t *to, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(v >> 8 * i);
    }
}

/* A batch of n entries of `size` bytes, none of them zero. */
static void append(struct log *l, unsigned n, size_t size)
{
    uint8_t *b = l->data + l->len;
    size_t header = 8 + 16 * n;
    assert_true(l->len + 8 + header + n * size <= SIZE);
    put(b + 8, n, 8);
    for (unsigned i = 0; i < n; i++) {
        put(b + 16 + 16 * i, 3, 8);
        put(b + 24 + 16 * i, 1, 1);
        put(b + 28 + 16 * i, size, 4);
    }
    for (size_t i = 0; i < n * size; i++) {
        b[8 + header + i] = (uint8_t)(i % 255 + 1);
    }
    put(b, crc_of(b + 8, header), 4);
    put(b + 4, crc_of(b + 8 + header, n * size), 4);
    l->len += 8 + header + n * size;
}

static struct log *make(unsigned batches)
{
    struct log *l = calloc(1, sizeof *l);
    assert_non_null(l);
    put(l->data, 1, 8);
    l->len = 8;
    for (unsigned i = 0; i < batches; i++) {
        l->at[i] = l->len;
        append(l, 1 + i % 3, 40 + 72 * (i % 7));
    }
    l->at[batches] = l->len;
    return l;
}

static enum segment_finding scan(const struct log *l, size_t len)
{
    struct segment_report r;
    segment_scan(l->data, len, &r);
    return r.finding;
}

static void right_ones_are_whole(void **state)
{
    struct log *l = make(BATCHES);
    struct segment_report r;
    segment_scan(l->data, SIZE, &r);
    assert_int_equal(r.finding, SEGMENT_WHOLE);
    assert_int_equal(r.offset, l->len);
    assert_int_equal(r.entries, 79);
    assert_false(r.exact);
    segment_scan(l->data, l->len, &r);
    assert_int_equal(r.finding, SEGMENT_WHOLE);
    assert_true(r.exact);
    free(l);
    l = make(0);
    assert_int_equal(scan(l, SIZE), SEGMENT_WHOLE);
    put(l->data, 0, 8);
    assert_int_equal(scan(l, SIZE), SEGMENT_WHOLE);
    assert_int_equal(scan(l, 0), SEGMENT_WHOLE);
    assert_int_equal(scan(l, 7), SEGMENT_CUT);
    free(l);
}

/* Every byte but those of the last batch, and none of the last batch. */
static void a_changed_byte_is_damage(void **state)
{
    struct log *l = make(BATCHES);
    for (size_t i = 0; i < l->len; i++) {
        l->data[i] ^= (uint8_t)(1 << i % 8);
        enum segment_finding found = scan(l, SIZE);
        if (i < l->at[BATCHES - 1]) {
            assert_int_equal(found, SEGMENT_DAMAGED);
        } else {
            assert_true(found == SEGMENT_TORN || found == SEGMENT_CUT);
        }
        l->data[i] ^= (uint8_t)(1 << i % 8);
    }
    free(l);
}

/* The same numbers each time: what fails once fails always. */
static unsigned draw(unsigned below)
{
    static uint64_t state = 88172645463325252U;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 32) % below;
}

/* The last write held any number of batches, of which any sectors arrived. */
static void no_crash_is_damage(void **state)
{
    struct log *whole = make(BATCHES);
    struct log *l = make(0);
    for (unsigned i = 0; i < 20000; i++) {
        size_t durable = i % 50 == 0 ? 0 : whole->at[draw(BATCHES + 1)];
        unsigned chance = draw(20);
        memcpy(l->data, whole->data, SIZE);
        for (size_t s = 0; s < SIZE; s += SECTOR) {
            size_t from = s < durable ? durable : s;
            if (from < s + SECTOR && draw(20) < chance) {
                memset(l->data + from, 0, s + SECTOR - from);
            }
        }
        assert_int_not_equal(scan(l, SIZE), SEGMENT_DAMAGED);
    }
    /* Or its first bytes. */
    for (size_t cut = 0; cut < whole->len; cut++) {
        memcpy(l->data, whole->data, SIZE);
        memset(l->data + cut, 0, SIZE - cut);
        assert_int_not_equal(scan(l, SIZE), SEGMENT_DAMAGED);
    }
    free(whole);
    free(l);
}

static void save(const char *dir, const char *name, const struct log *l, size_t len)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(l->data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void files_are_judged_together(void **state)
{
    char *dir = scratch_make();
    char errmsg[512];
    struct log *l = make(3); /* 1 + 2 + 3 entries */
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), 0);
    save(dir, "0000000000000001-0000000000000006", l, l->len);
    save(dir, "open-2", l, SIZE);
    save(dir, "open-10", l, SIZE);
    save(dir, "snapshot-1-2-3", l, 5);
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), 0);
    /* A closed one of another number of entries, or with zeros behind them. */
    save(dir, "0000000000000007-0000000000000011", l, l->len);
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), FL_ECORRUPT);
    assert_non_null(strstr(errmsg, "0000000000000007-0000000000000011"));
    save(dir, "0000000000000007-0000000000000011", l, l->at[2]);
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), FL_ECORRUPT);
    struct log *five = make(0);
    append(five, 5, 64);
    save(dir, "0000000000000007-0000000000000011", five, five->len);
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), 0);
    save(dir, "0000000000000007-0000000000000011", five, five->len + 8);
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), FL_ECORRUPT);
    save(dir, "0000000000000007-0000000000000011", five, five->len);
    /* A torn end is one only in the last segment that has entries. */
    l->data[l->len - 1] ^= 1;
    save(dir, "open-10", l, SIZE);
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), 0);
    save(dir, "open-11", five, 0);
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), 0);
    save(dir, "open-11", five, SIZE);
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), FL_ECORRUPT);
    assert_non_null(strstr(errmsg, "open-10 at byte"));
    assert_non_null(strstr(errmsg, "CLUSTER FORGET"));
    free(five);
    free(l);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_ones_are_whole),
        cmocka_unit_test(a_changed_byte_is_damage),
        cmocka_unit_test(no_crash_is_damage),
        cmocka_unit_test(files_are_judged_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
