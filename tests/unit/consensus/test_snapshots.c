/* test_snapshots.c: a newest snapshot that is not as it was written is refused, and so is its
 * record; what a crash leaves is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "consensus/segments.h"
#include "consensus/snapshots.h"
#include "scratch.h"

#define STATE (3 * 65536 + 100)
#define RECORD 120

static uint8_t state_bytes[STATE];
static uint8_t record_bytes[RECORD];
static char errmsg[1024];

static void fill(size_t len)
{
    for (size_t i = 0; i + 4 < len; i++) {
        state_bytes[i] = (uint8_t)(i % 251);
    }
    fli_put_u32(state_bytes + len - 4, fli_crc32c(0, state_bytes, len - 4));
    memset(record_bytes, 7, sizeof record_bytes);
    fli_put_u64(record_bytes, 1);
    fli_put_u64(record_bytes + 16, 3);
    fli_put_u64(record_bytes + 24, RECORD - 32);
    fli_put_u64(record_bytes + 8, segment_crc(0, record_bytes + 16, RECORD - 16));
}

static void save(const char *dir, const char *name, const void *data, size_t len)
{
    char *path = scratch_path(dir, name);
    scratch_write(path, data, len);
    free(path);
}

static int check(const char *dir)
{
    errmsg[0] = '\0';
    return snapshots_check(dir, errmsg, sizeof errmsg);
}

static void none_and_whole_ones_are_right(void **state)
{
    static const size_t sizes[] = {4, 5, 100, 65536, 65540, 65541, STATE};
    char *dir = scratch_make();
    assert_int_equal(check(dir), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        fill(sizes[i]);
        save(dir, "snapshot-2-100-7", state_bytes, sizes[i]);
        save(dir, "snapshot-2-100-7.meta", record_bytes, RECORD);
        assert_int_equal(check(dir), 0);
        state_bytes[sizes[i] - 1] ^= 1;
        save(dir, "snapshot-2-100-7", state_bytes, sizes[i]);
        assert_int_equal(check(dir), FL_ECORRUPT);
    }
    scratch_remove(dir);
}

static void a_changed_bit_is_refused_by_name(void **state)
{
    char *dir = scratch_make();
    const size_t len = 1000;
    fill(len);
    save(dir, "snapshot-2-100-7.meta", record_bytes, RECORD);
    for (size_t i = 0; i < 8 * len; i += 7) {
        state_bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        save(dir, "snapshot-2-100-7", state_bytes, len);
        assert_int_equal(check(dir), FL_ECORRUPT);
        assert_non_null(strstr(errmsg, "/snapshot-2-100-7: "));
        state_bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    save(dir, "snapshot-2-100-7", state_bytes, len);
    for (size_t i = 0; i < 8 * RECORD; i++) {
        record_bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        save(dir, "snapshot-2-100-7.meta", record_bytes, RECORD);
        /* The checksum is half a word; the library does not look at the other half either. */
        assert_int_equal(check(dir), i / 32 == 3 ? 0 : FL_ECORRUPT);
        assert_true(i / 32 == 3 || strstr(errmsg, "/snapshot-2-100-7.meta: ") != NULL);
        assert_true(i / 32 == 3 || strstr(errmsg, "CLUSTER FORGET") != NULL);
        record_bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    for (size_t n = 0; n < RECORD; n++) {
        save(dir, "snapshot-2-100-7.meta", record_bytes, n);
        assert_int_equal(check(dir), FL_ECORRUPT);
    }
    scratch_remove(dir);
}

static void the_newest_one_counts(void **state)
{
    char *dir = scratch_make();
    fill(500);
    save(dir, "snapshot-2-100-7", state_bytes, 500);
    save(dir, "snapshot-2-100-7.meta", record_bytes, RECORD);
    save(dir, "snapshot-1-900-9", "wrong", 5);
    save(dir, "snapshot-1-900-9.meta", "wrong", 5);
    save(dir, "snapshot-2-99-9", "wrong", 5);
    save(dir, "snapshot-2-99-9.meta", "wrong", 5);
    save(dir, "snapshot-2-100-6", "wrong", 5);
    save(dir, "snapshot-2-100-6.meta", "wrong", 5);
    assert_int_equal(check(dir), 0);
    save(dir, "snapshot-10-1-1", "wrong", 5);
    assert_int_equal(check(dir), 0); /* no record: a crash came between the two */
    save(dir, "snapshot-10-1-1.meta", "wrong", 5);
    assert_int_equal(check(dir), FL_ECORRUPT);
    save(dir, "snapshot-10-1-1", "", 0);
    assert_int_equal(check(dir), 0); /* not written yet */
    save(dir, "snapshot-10-2-1.meta", "wrong", 5);
    save(dir, "snapshot-10-2-1.metal", "wrong", 5);
    save(dir, "tmp-snapshot-10-2-1", "wrong", 5);
    assert_int_equal(check(dir), 0);
    scratch_remove(dir);
    assert_int_equal(snapshots_check("/nowhere/at/all", errmsg, sizeof errmsg), FL_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_and_whole_ones_are_right),
        cmocka_unit_test(a_changed_bit_is_refused_by_name),
        cmocka_unit_test(the_newest_one_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
