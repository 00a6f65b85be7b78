/* test_cut.c: whatever the library, or the end of the process, left of a cut: behind it there is
 * nothing after the next start, and before it everything. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "consensus/cut.h"
#include "consensus/segments.h"
#include "scratch.h"

#define SIZE (64 * 1024)
#define OLD 1000u   /* entries of the old log say their number plus this */
#define NEW 900000u /* those that the leader sent in their place */
#define ROUNDS 400u

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 32) % below;
}

struct file {
    uint8_t data[SIZE];
    size_t len;
};

static void file_begin(struct file *f)
{
    memset(f, 0, sizeof *f);
    fli_put_u64(f->data, 1);
    f->len = 8;
}

/* A batch of n entries that say what they are, from `first` on. */
static void file_add(struct file *f, uint64_t first, unsigned n)
{
    uint8_t *b = f->data + f->len;
    size_t header = 8 + 16 * (size_t)n;
    size_t at = 8 + header;
    fli_put_u64(b + 8, n);
    for (unsigned i = 0; i < n; i++) {
        size_t size = 8 * (1 + (first + i) % 5);
        fli_put_u64(b + 16 + 16 * (size_t)i, 3);
        b[24 + 16 * (size_t)i] = 1;
        fli_put_u32(b + 28 + 16 * (size_t)i, (uint32_t)size);
        fli_put_u64(b + at, first + i);
        at += size;
    }
    fli_put_u32(b, segment_crc(0, b + 8, header));
    fli_put_u32(b + 4, segment_crc(0, b + 8 + header, at - 8 - header));
    f->len += at;
    assert_true(f->len < SIZE / 2);
}

static void file_add_range(struct file *f, uint64_t first, uint64_t last)
{
    while (first <= last) {
        unsigned n = 1 + draw(4);
        n = n > last - first + 1 ? (unsigned)(last - first + 1) : n;
        file_add(f, first, n);
        first += n;
    }
}

static void store(const char *dir, const char *name, const struct file *f, size_t len)
{
    char *path = scratch_path(dir, name);
    scratch_write(path, f->data, len);
    free(path);
}

static void store_closed(const char *dir, uint64_t first, uint64_t last, const struct file *f)
{
    char name[64];
    snprintf(name, sizeof name, "%016" PRIu64 "-%016" PRIu64, first, last);
    store(dir, name, f, f->len);
}

static void store_open(const char *dir, unsigned number, const struct file *f)
{
    char name[64];
    snprintf(name, sizeof name, "open-%u", number);
    store(dir, name, f, SIZE); /* with the zeros behind */
}

static void remove_closed(const char *dir, uint64_t first, uint64_t last)
{
    char name[64];
    snprintf(name, sizeof name, "%016" PRIu64 "-%016" PRIu64, first, last);
    char *path = scratch_path(dir, name);
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* ---- as the library reads it ---- */

struct entries {
    uint64_t said[1024];
    size_t n;
};

static void read_entries(const uint8_t *data, size_t len, struct entries *ret)
{
    size_t at = 8;
    while (at + 16 <= len && fli_get_u64(data + at + 8) != 0) {
        uint64_t n = fli_get_u64(data + at + 8);
        size_t entry = at + 16 + 16 * (size_t)n;
        for (uint64_t i = 0; i < n; i++) {
            assert_true(ret->n < 1024);
            ret->said[ret->n++] = fli_get_u64(data + entry);
            entry += fli_get_u32(data + at + 16 + 16 * (size_t)i + 12);
        }
        at = entry;
    }
}

/* Closed segments must follow one another. Returns the number of the first entry. */
static uint64_t load(const char *dir, uint64_t start, struct entries *ret)
{
    static uint8_t data[SIZE + 1];
    char errmsg[512];
    struct segment_file *files;
    size_t n;
    ret->n = 0;
    assert_int_equal(segments_check(dir, errmsg, sizeof errmsg), 0);
    assert_int_equal(segments_list(dir, &files, &n, errmsg, sizeof errmsg), 0);
    for (size_t i = 0; i < n; i++) {
        char *path = scratch_path(dir, files[i].name);
        size_t len = scratch_read(path, (char *)data, sizeof data);
        free(path);
        if (!files[i].open) {
            start = i == 0 ? files[i].first : start;
            assert_int_equal(files[i].first, start + ret->n);
        }
        read_entries(data, len, ret);
    }
    free(files);
    return start;
}

/* ---- a log, and what may be left of a cut of it ---- */

struct layout {
    char *dir;
    uint64_t first, last; /* of the whole log */
    uint64_t cut;
    uint64_t closed_last; /* entries behind are in an open segment */
    unsigned next_open;
    struct {
        uint64_t first, last;
    } closed[8];
    unsigned n_closed;
};

static void add_closed(struct layout *l, uint64_t first, uint64_t last)
{
    struct file f;
    file_begin(&f);
    file_add_range(&f, OLD + first, OLD + last);
    store_closed(l->dir, first, last, &f);
    l->closed[l->n_closed].first = first;
    l->closed[l->n_closed++].last = last;
}

static void make_layout(struct layout *l)
{
    memset(l, 0, sizeof *l);
    l->dir = scratch_make();
    l->first = 1 + draw(3) * 7;
    uint64_t next = l->first;
    for (unsigned n = 1 + draw(4); n > 0; n--) {
        uint64_t last = next + draw(12);
        add_closed(l, next, last);
        next = last + 1;
    }
    l->closed_last = next - 1;
    l->next_open = 4;
    struct file f;
    file_begin(&f);
    unsigned open = draw(9);
    if (open > 0) {
        file_add_range(&f, OLD + next, OLD + next + open - 1);
        store_open(l->dir, l->next_open++, &f);
    }
    l->last = next + open - 1;
    l->cut = l->first + 1 + draw((unsigned)(l->last - l->first + 1));
}

/* The library closes the open segment before it cuts. */
static void close_open(struct layout *l)
{
    if (l->last == l->closed_last) {
        return;
    }
    char *path = scratch_path(l->dir, "open-4");
    assert_int_equal(unlink(path), 0);
    free(path);
    add_closed(l, l->closed_last + 1, l->last);
}

/* Its steps, of which only the first `steps` are done: a shorter file, one by one the longer ones
 * removed. torn: the shorter file is half there. */
static void cut_as_library(struct layout *l, unsigned steps, bool torn)
{
    unsigned i = 0;
    while (i < l->n_closed && l->closed[i].last < l->cut) {
        i++;
    }
    if (steps == 0 || i == l->n_closed) {
        return;
    }
    if (l->closed[i].first < l->cut) {
        struct file f;
        file_begin(&f);
        file_add_range(&f, OLD + l->closed[i].first, OLD + l->cut - 1);
        f.len = torn && steps == 1 ? draw((unsigned)f.len) : f.len;
        store_closed(l->dir, l->closed[i].first, l->cut - 1, &f);
    }
    for (unsigned s = 1; s < steps && i < l->n_closed; s++, i++) {
        remove_closed(l->dir, l->closed[i].first, l->closed[i].last);
    }
}

static void write_behind(struct layout *l)
{
    struct file f;
    file_begin(&f);
    file_add_range(&f, NEW + l->cut, NEW + l->cut + draw(6));
    store_open(l->dir, l->next_open++, &f);
}

static void expect_cut(const struct layout *l)
{
    static struct entries found;
    uint64_t first = load(l->dir, l->first, &found);
    char *path = scratch_path(l->dir, CUT_FILE);
    assert_false(scratch_exists(path));
    free(path);
    assert_int_equal(found.n, l->cut - l->first);
    assert_true(found.n == 0 || first == l->first);
    for (size_t i = 0; i < found.n; i++) {
        assert_int_equal(found.said[i], OLD + first + i);
    }
}

static void one_round(void)
{
    char errmsg[512];
    struct layout l;
    uint64_t index = 0;
    make_layout(&l);
    assert_int_equal(cut_begin(l.dir, l.cut, errmsg, sizeof errmsg), 0);
    unsigned steps = draw(8);
    bool closed = draw(4) != 0;
    if (closed) {
        close_open(&l);
        cut_as_library(&l, steps, draw(2) != 0);
    }
    if (draw(2) != 0) {
        write_behind(&l);
    }
    assert_int_equal(cut_finish(l.dir, &index, errmsg, sizeof errmsg), 0);
    assert_int_equal(index, l.cut);
    expect_cut(&l);
    assert_int_equal(cut_finish(l.dir, &index, errmsg, sizeof errmsg), 0);
    assert_int_equal(index, 0);
    expect_cut(&l);
    scratch_remove(l.dir);
}

static void whatever_is_left_is_cut(void **state)
{
    const char *given = getenv("FENCELOCK_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 88172645463325252U;
    for (unsigned i = 0; i < ROUNDS; i++) {
        random_state = seed + i * 0x9e3779b97f4a7c15U;
        random_state = random_state == 0 ? 1 : random_state;
        one_round();
    }
}

/* ---- looking ---- */

static void what_is_left_is_seen(void **state)
{
    unsigned seen = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char errmsg[512];
        struct layout l;
        random_state = 1 + i * 0x9e3779b97f4a7c15U;
        make_layout(&l);
        close_open(&l);
        unsigned steps = draw(8);
        cut_as_library(&l, steps, false);
        uint64_t left = 0;
        unsigned at = 0;
        while (at < l.n_closed && l.closed[at].last < l.cut) {
            at++;
        }
        left = at + (steps > 0 ? steps - 1 : 0) < l.n_closed ? 1 : 0;
        write_behind(&l);
        assert_int_equal(cut_look(l.dir, l.cut, errmsg, sizeof errmsg), left ? FL_ECORRUPT : 0);
        seen += left != 0;
        write_behind(&l);
        assert_int_equal(cut_look(l.dir, l.cut, errmsg, sizeof errmsg), FL_ECORRUPT);
        scratch_remove(l.dir);
    }
    assert_in_range(seen, ROUNDS / 10, ROUNDS - ROUNDS / 10);
}

static void segments_that_are_ready_are_nothing(void **state)
{
    char errmsg[512];
    struct file f = {.len = 0};
    char *dir = scratch_make();
    store(dir, "open-7", &f, SIZE);
    store(dir, "open-8", &f, 0);
    assert_int_equal(cut_look(dir, 1, errmsg, sizeof errmsg), 0);
    scratch_remove(dir);
}

/* ---- intentions ---- */

static void none_changes_nothing(void **state)
{
    static struct entries found;
    char errmsg[512];
    struct layout l;
    uint64_t index = 1;
    random_state = 5;
    make_layout(&l);
    assert_int_equal(cut_begin(l.dir, l.cut, errmsg, sizeof errmsg), 0);
    assert_int_equal(cut_forget(l.dir, errmsg, sizeof errmsg), 0);
    assert_int_equal(cut_forget(l.dir, errmsg, sizeof errmsg), 0);
    assert_int_equal(cut_finish(l.dir, &index, errmsg, sizeof errmsg), 0);
    assert_int_equal(index, 0);
    load(l.dir, l.first, &found);
    assert_int_equal(found.n, l.last - l.first + 1);
    scratch_remove(l.dir);
}

/* The same path as with an index of its own bits, each of them turned around. */
static void a_damaged_one_is_refused(void **state)
{
    char errmsg[512];
    uint8_t bytes[16];
    uint64_t index;
    char *dir = scratch_make();
    char *path = scratch_path(dir, CUT_FILE);
    assert_int_equal(cut_begin(dir, 77, errmsg, sizeof errmsg), 0);
    size_t len = scratch_read(path, (char *)bytes, sizeof bytes);
    assert_int_equal(len, 12);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        scratch_write(path, bytes, len);
        assert_int_equal(cut_finish(dir, &index, errmsg, sizeof errmsg), FL_ECORRUPT);
        assert_non_null(strstr(errmsg, CUT_FILE));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t n = 0; n <= 16; n++) {
        scratch_write(path, bytes, n);
        assert_int_equal(cut_finish(dir, &index, errmsg, sizeof errmsg), FL_ECORRUPT);
    }
    free(path);
    scratch_remove(dir);
}

/* Entries from before the cut were acknowledged: a log that lacks them must not be served from. */
static void a_log_that_ends_before_is_refused(void **state)
{
    char errmsg[512];
    struct layout l;
    uint64_t index;
    random_state = 9;
    make_layout(&l);
    assert_int_equal(cut_begin(l.dir, l.last + 2, errmsg, sizeof errmsg), 0);
    assert_int_equal(cut_finish(l.dir, &index, errmsg, sizeof errmsg), FL_ECORRUPT);
    assert_int_equal(cut_begin(l.dir, l.last + 1, errmsg, sizeof errmsg), 0);
    assert_int_equal(cut_finish(l.dir, &index, errmsg, sizeof errmsg), 0);
    scratch_remove(l.dir);
}

/* A snapshot of the leader has replaced the log, and a segment from before could not be closed. */
static void behind_a_snapshot(void **state)
{
    static struct entries found;
    char errmsg[512];
    struct layout l;
    uint64_t index;
    random_state = 11;
    make_layout(&l);
    scratch_wipe(l.dir);
    struct file f;
    file_begin(&f);
    file_add_range(&f, OLD + 60, OLD + 80);
    store_open(l.dir, 4, &f);
    store(l.dir, "snapshot-3-100-1234", &f, f.len);
    store(l.dir, "snapshot-3-100-1234.meta", &f, f.len);
    assert_int_equal(cut_begin(l.dir, 101, errmsg, sizeof errmsg), 0);
    assert_int_equal(cut_look(l.dir, 101, errmsg, sizeof errmsg), 0);
    struct file more;
    file_begin(&more);
    file_add_range(&more, NEW + 101, NEW + 105);
    store_open(l.dir, 5, &more);
    assert_int_equal(cut_look(l.dir, 101, errmsg, sizeof errmsg), FL_ECORRUPT);
    assert_int_equal(cut_finish(l.dir, &index, errmsg, sizeof errmsg), 0);
    assert_int_equal(index, 101);
    load(l.dir, 101, &found);
    assert_int_equal(found.n, 0);
    scratch_remove(l.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_left_is_cut),
        cmocka_unit_test(what_is_left_is_seen),
        cmocka_unit_test(segments_that_are_ready_are_nothing),
        cmocka_unit_test(none_changes_nothing),
        cmocka_unit_test(a_damaged_one_is_refused),
        cmocka_unit_test(a_log_that_ends_before_is_refused),
        cmocka_unit_test(behind_a_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
