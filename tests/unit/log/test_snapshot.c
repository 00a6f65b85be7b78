/* test_snapshot.c: snapshot files: what is written comes back or is refused, in any cuts, over a
 * disk that is full, fails, and loses power. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "snapshot/format.h"
#include "rig.h"

#define NAME "snapshot-00000000000000000070-00000000000000000005"

static struct snapshot_meta meta_of(uint64_t index, uint32_t conf_len)
{
    struct snapshot_meta m = {.index = index,
                              .term = 5,
                              .conf_index = index - 1,
                              .conf_len = conf_len,
                              .node_id = 3,
                              .made_ms = 77};
    rig_fill(m.conf, 1, 2, conf_len);
    return m;
}

static int write_one(struct log_device *d, uint64_t index, uint32_t conf_len, size_t size,
                     size_t cut, struct snapshot_error *e)
{
    struct snapshot_meta m = meta_of(index, conf_len);
    struct snapshot_writer *w = NULL;
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    rig_fill(data, index, 9, size);
    int rv = snapshot_writer_open(d, &m, &w, e);
    bool is_open = rv == 0;
    for (size_t at = 0; rv == 0 && at < size; at += cut) {
        rv = snapshot_writer_write(w, data + at, size - at < cut ? size - at : cut);
        rv = rv == 0 && at % 3 == 0 ? snapshot_writer_sync(w) : rv;
    }
    free(data);
    return is_open ? snapshot_writer_end(w, rv) : rv;
}

/* Reads all of it; the error of the first call that fails. */
static int read_one(struct log_device *d, uint64_t index, uint32_t conf_len, size_t size,
                    struct snapshot_error *e)
{
    struct snapshot_reader *r = NULL;
    struct snapshot_meta m = meta_of(index, conf_len);
    uint8_t *data = malloc(size + 1);
    size_t got = 0;
    assert_non_null(data);
    rig_fill(data, index, 9, size);
    int rv = snapshot_reader_open(d, index, &r, e);
    if (rv == 0) {
        const struct snapshot_meta *read = snapshot_reader_meta(r);
        assert_int_equal(read->index, index);
        assert_int_equal(read->term, 5);
        assert_int_equal(read->conf_index, index - 1);
        assert_int_equal(read->conf_len, conf_len);
        assert_memory_equal(read->conf, m.conf, conf_len);
    }
    while (rv == 0) {
        struct fli_slice whole;
        struct fli_slice piece;
        rv = snapshot_reader_next(r, &whole, &piece, e);
        if (rv != 0 || whole.len == 0) {
            break;
        }
        assert_true(piece.len <= size - got);
        if (piece.len > 0) {
            assert_memory_equal(piece.data, data + got, piece.len);
        }
        got += piece.len;
    }
    assert_true(rv != 0 ||
                (got == size && snapshot_reader_meta(r)->size == size &&
                 snapshot_reader_meta(r)->node_id == 3 && snapshot_reader_meta(r)->made_ms == 77));
    if (r != NULL) {
        snapshot_reader_close(r);
    }
    free(data);
    return rv;
}

TEST(there_and_back)
{
    static const size_t sizes[] = {0,
                                   1,
                                   700,
                                   SNAPSHOT_PIECE - 1,
                                   SNAPSHOT_PIECE,
                                   SNAPSHOT_PIECE + 1,
                                   2 * SNAPSHOT_PIECE,
                                   3 * SNAPSHOT_PIECE + 777};
    static const size_t cuts[] = {1000, SNAPSHOT_PIECE, 1 << 30, 65537};
    struct snapshot_error e = {0};
    for (size_t i = 0; i < 8; i++) {
        struct sim_device *sim = sim_device_create(i);
        struct log_device *d = sim_device_base(sim);
        uint32_t conf_len = i % 2 == 0 ? 77 : SNAPSHOT_CONF_MAX;
        assert_int_equal(write_one(d, 70, conf_len, sizes[i], cuts[i % 4], &e), 0);
        assert_int_equal(sim_device_files(sim), 1);
        assert_int_equal(read_one(d, 70, conf_len, sizes[i], &e), 0);
        sim_device_crash(sim, SIM_CRASH_POWER);
        assert_int_equal(read_one(d, 70, conf_len, sizes[i], &e), 0);
        size_t len = 0;
        assert_non_null(sim_device_data(sim, NAME, &len));
        assert_true(len > conf_len + sizes[i]);
        sim_device_destroy(sim);
    }
}

TEST(damaged)
{
    struct snapshot_error e = {0};
    struct sim_device *from = sim_device_create(1);
    assert_int_equal(write_one(sim_device_base(from), 70, 50, 3000, 1000, &e), 0);
    size_t len = 0;
    assert_non_null(sim_device_data(from, NAME, &len));
    for (size_t i = 0; i < len * 8; i++) {
        struct sim_device *sim = sim_device_clone(from, 2, false);
        sim_device_data(sim, NAME, NULL)[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(read_one(sim_device_base(sim), 70, 50, 3000, &e), FL_ECORRUPT);
        assert_non_null(strstr(e.text, "sim/" NAME ": at byte "));
        sim_device_destroy(sim);
    }
    for (size_t i = 0; i < len; i++) {
        struct sim_device *sim = sim_device_clone(from, 2, false);
        sim_device_put(sim, NAME, sim_device_data(from, NAME, NULL), i);
        assert_int_equal(read_one(sim_device_base(sim), 70, 50, 3000, &e), FL_ECORRUPT);
        sim_device_destroy(sim);
    }
    sim_device_destroy(from);
}

TEST(piece_of_another)
{
    struct snapshot_error e = {0};
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    size_t size = 3 * SNAPSHOT_PIECE;
    assert_int_equal(write_one(d, 70, 0, size, size, &e), 0);
    uint8_t *data = sim_device_data(sim, NAME, NULL);
    size_t unit = SNAPSHOT_UNIT_MAX;
    memmove(data + SNAPSHOT_HEADER + unit, data + SNAPSHOT_HEADER + 2 * unit, unit);
    assert_int_equal(read_one(d, 70, 0, size, &e), FL_ECORRUPT);
    sim_device_unlink(sim, NAME);
    assert_int_equal(read_one(d, 70, 0, size, &e), FL_ENOTFOUND);
    sim_device_destroy(sim);
}

TEST(renamed_and_newer)
{
    struct snapshot_error e = {0};
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    assert_int_equal(write_one(d, 70, 0, 100, 100, &e), 0);
    assert_int_equal(
        d->ops->rename(d, NAME, "snapshot-00000000000000000071-00000000000000000005", false), 0);
    assert_int_equal(read_one(d, 71, 0, 100, &e), FL_ECORRUPT);
    assert_int_equal(write_one(d, 70, 0, 100, 100, &e), 0);
    uint8_t *data = sim_device_data(sim, NAME, NULL);
    data[12]++;
    fli_put_u32(data, fli_crc32c(0, data + 4, SNAPSHOT_HEADER - 4));
    assert_int_equal(read_one(d, 70, 0, 100, &e), FL_EVERSION);
    memcpy(data, "FLKSNP\1\0", 8); /* the first version, which was never released */
    assert_int_equal(read_one(d, 70, 0, 100, &e), FL_EVERSION);
    memcpy(data + 4, "else", 4);
    assert_int_equal(read_one(d, 70, 0, 100, &e), FL_ECORRUPT);
    assert_non_null(strstr(e.text, "not a snapshot"));
    sim_device_destroy(sim);
}

static const struct log_device_ops *ops_behind;
static int lists_missed, opens_missed; /* so many calls are made in the midst of a replacement */

static int hasty_list(struct log_device *d, fli_folder_cb *each, void *ctx)
{
    return lists_missed-- > 0 ? 0 : ops_behind->list(d, each, ctx);
}

static int hasty_open(struct log_device *d, const char *name, unsigned flags, struct log_file **ret)
{
    return opens_missed-- > 0 ? -ENOENT : ops_behind->open(d, name, flags, ret);
}

/* A worker looks for one while another one removes what a newer one has replaced: it is missing, or
 * cannot be opened, and nothing else is taken for it. */
TEST(newest_is_replaced_meanwhile)
{
    struct snapshot_error e = {0};
    struct snapshot_reader *r = NULL;
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    assert_int_equal(write_one(d, 70, 0, 100, 100, &e), 0);
    ops_behind = d->ops;
    struct log_device_ops hasty = *d->ops;
    hasty.list = hasty_list;
    hasty.open = hasty_open;
    d->ops = &hasty;
    lists_missed = 1;
    assert_int_equal(snapshot_reader_open(d, 70, &r, &e), FL_ENOTFOUND);
    lists_missed = 0;
    opens_missed = 1;
    assert_int_equal(snapshot_reader_open(d, 70, &r, &e), FL_EIO);
    d->ops = ops_behind;
    sim_device_destroy(sim);
}

TEST(directory)
{
    struct snapshot_error e = {0};
    struct snapshot_reader *r = NULL;
    struct snapshot_writer *w = NULL;
    struct snapshot_meta m = meta_of(99, 0);
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    assert_int_equal(snapshot_reader_open(d, 0, &r, &e), FL_ENOTFOUND);
    for (uint64_t i = 1; i <= 5; i++) {
        assert_int_equal(write_one(d, 10 * i, 0, 100, 100, &e), 0);
    }
    assert_int_equal(snapshot_writer_open(d, &m, &w, &e), 0);
    assert_int_equal(snapshot_writer_end(w, FL_EIO), FL_EIO);
    assert_int_equal(sim_device_files(sim), 5);
    sim_device_put(sim, "snapshot-00000000000000000098-00000000000000000005.part", "x", 1);
    sim_device_put(sim, "snapshot-00000000000000000099-00000000000000000005.part", "x", 1);
    sim_device_put(sim, "snapshot-5", "x", 1);
    assert_int_equal(snapshot_reader_open(d, 0, &r, &e), 0);
    assert_int_equal(snapshot_reader_meta(r)->index, 50);
    snapshot_reader_close(r);
    assert_int_equal(snapshot_clean(d, 98, &e), 0);
    assert_int_equal(sim_device_files(sim), 3);
    assert_null(
        sim_device_data(sim, "snapshot-00000000000000000098-00000000000000000005.part", NULL));
    assert_int_equal(snapshot_clean(d, UINT64_MAX, &e), 0);
    assert_int_equal(sim_device_files(sim), 2);
    assert_int_equal(read_one(d, 50, 0, 100, &e), 0);
    sim_device_destroy(sim);
}

static const char *coming; /* a snapshot that gets its name when the newest was chosen */

static int sync_while_one_comes(struct log_device *d)
{
    if (coming != NULL) {
        const char *name = coming;
        coming = NULL;
        assert_int_equal(ops_behind->rename(d, NAME ".part", name, true), 0);
    }
    return ops_behind->sync_dir(d);
}

/* One that comes while older ones are removed is newer than the one that is kept. */
TEST(one_comes_meanwhile)
{
    struct snapshot_error e = {0};
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    assert_int_equal(write_one(d, 50, 0, 100, 100, &e), 0);
    assert_int_equal(write_one(d, 60, 0, 100, 100, &e), 0);
    assert_int_equal(write_one(d, 70, 0, 100, 100, &e), 0);
    assert_int_equal(d->ops->rename(d, NAME, NAME ".part", false), 0);
    ops_behind = d->ops;
    struct log_device_ops ops = *d->ops;
    ops.sync_dir = sync_while_one_comes;
    d->ops = &ops;
    coming = NAME;
    assert_int_equal(snapshot_clean(d, 0, &e), 0);
    d->ops = ops_behind;
    assert_null(coming);
    assert_int_equal(sim_device_files(sim), 2);
    assert_int_equal(read_one(d, 60, 0, 100, &e), 0);
    assert_int_equal(read_one(d, 70, 0, 100, &e), 0);
    sim_device_destroy(sim);
}

/* --- receiving --- */

/* Reads what was received, as who decodes it. */
static int read_part(const struct snapshot_part *p, struct snapshot_error *e)
{
    struct snapshot_reader *r = NULL;
    struct fli_slice whole = {.len = 1};
    struct fli_slice piece;
    int rv = snapshot_part_read(p, &r, e);
    if (rv != 0) {
        return rv;
    }
    while (rv == 0 && whole.len > 0) {
        rv = snapshot_reader_next(r, &whole, &piece, e);
    }
    snapshot_reader_close(r);
    return rv;
}

/* A file of another node comes in pieces of any size. */
static int receive(struct log_device *d, uint64_t index, const uint8_t *data, size_t len,
                   uint64_t *rng, struct snapshot_error *e)
{
    struct snapshot_part p;
    int rv = snapshot_part_open(&p, d, index, 5, e);
    for (size_t at = 0; rv == 0 && at < len;) {
        size_t n = 1 + rng_below(rng, rng_below(rng, 3) == 0 ? 30 : 600000);
        n = n < len - at ? n : len - at;
        rv = snapshot_part_write(&p, data + at, n, e);
        at += n;
        assert_int_equal(p.len, at);
    }
    rv = rv == 0 ? snapshot_part_sync(&p, e) : rv;
    rv = rv == 0 ? read_part(&p, e) : rv;
    if (rv != 0) {
        snapshot_part_abort(&p);
        return rv;
    }
    return snapshot_part_finish(&p, e);
}

TEST(received)
{
    struct snapshot_error e = {0};
    uint64_t rng = rng_seed();
    struct sim_device *from = sim_device_create(1);
    size_t size = 2 * SNAPSHOT_PIECE + 5000;
    assert_int_equal(write_one(sim_device_base(from), 70, 300, size, size, &e), 0);
    size_t len = 0;
    uint8_t *data = sim_device_data(from, NAME, &len);
    for (unsigned i = 0; i < 60; i++) {
        struct sim_device *to = sim_device_create(i);
        size_t flip = i < 20 ? SIZE_MAX : i < 40 ? rng_below(&rng, 400) : rng_below(&rng, len);
        data[flip < len ? flip : 0] ^= flip < len ? 0x10 : 0;
        int rv = receive(sim_device_base(to), 70, data, len, &rng, &e);
        data[flip < len ? flip : 0] ^= flip < len ? 0x10 : 0;
        if (flip == SIZE_MAX) {
            size_t len2 = 0;
            assert_int_equal(rv, 0);
            sim_device_crash(to, SIM_CRASH_POWER);
            assert_memory_equal(sim_device_data(to, NAME, &len2), data, len);
            assert_int_equal(len, len2);
        } else {
            assert_int_equal(rv, FL_ECORRUPT);
            assert_int_equal(sim_device_files(to), 0);
        }
        sim_device_destroy(to);
    }
    sim_device_destroy(from);
}

/* What is read to be sent is verified first, in its order, and from the header on. */
TEST(sent_wrongly)
{
    enum { SIZE = 2 * SNAPSHOT_PIECE + 5000 };
    struct snapshot_error e = {0};
    struct snapshot_reader *r = NULL;
    struct fli_slice whole = {.len = 1};
    struct fli_slice piece;
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    assert_int_equal(write_one(d, 70, 0, SIZE, SIZE, &e), 0);
    size_t have = 0;
    size_t len = 0;
    const uint8_t *file = sim_device_data(sim, NAME, &len);
    assert_int_equal(snapshot_reader_open(d, 70, &r, &e), 0);
    while (whole.len > 0) {
        assert_int_equal(snapshot_reader_next(r, &whole, &piece, &e), 0);
        assert_true(whole.len <= len - have && piece.len <= whole.len);
        if (whole.len > 0) {
            assert_memory_equal(whole.data, file + have, whole.len);
        }
        have += whole.len;
    }
    assert_int_equal(have, len);
    assert_int_equal(snapshot_reader_meta(r)->file_size, len);
    assert_int_equal(snapshot_reader_meta(r)->size, SIZE);
    snapshot_reader_close(r);
    /* Of the unit with the damage not one byte is given, and all before it. */
    uint64_t unit = SNAPSHOT_UNIT_HEAD + SNAPSHOT_PIECE;
    assert_int_equal(snapshot_reader_open(d, 70, &r, &e), 0);
    sim_device_flip(sim, NAME, SNAPSHOT_HEADER + unit + 77, 5);
    int rv = 0;
    have = 0;
    while ((rv = snapshot_reader_next(r, &whole, &piece, &e)) == 0) {
        have += whole.len;
    }
    assert_int_equal(rv, FL_ECORRUPT);
    assert_int_equal(have, SNAPSHOT_HEADER + unit);
    assert_non_null(strstr(e.text, NAME ": at byte 262196: "));
    snapshot_reader_close(r);
    sim_device_destroy(sim);
}

TEST(received_wrongly)
{
    struct snapshot_error e = {0};
    uint64_t rng = rng_seed();
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    assert_int_equal(write_one(d, 70, 0, 500, 500, &e), 0);
    size_t len = 0;
    uint8_t copy[2000] = {0};
    const uint8_t *data = sim_device_data(sim, NAME, &len);
    memcpy(copy, data, len);
    /* Too short, at each length. */
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(receive(d, 70, copy, i, &rng, &e), FL_ECORRUPT);
        assert_int_equal(d->ops->sync_dir(d), 0);
    }
    /* Too long, another one. */
    assert_int_equal(receive(d, 70, copy, len + 1, &rng, &e), FL_ECORRUPT);
    assert_int_equal(receive(d, 71, copy, len, &rng, &e), FL_ECORRUPT);
    assert_non_null(strstr(e.text, "of another one"));
    assert_int_equal(sim_device_files(sim), 1);
    assert_int_equal(read_one(d, 70, 0, 500, &e), 0);
    sim_device_destroy(sim);
}

/* The log that goes on behind it would come to the end of its numbers. */
TEST(an_entry_that_no_log_can_reach)
{
    struct snapshot_error e = {0};
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    assert_int_equal(write_one(d, SNAPSHOT_INDEX_MAX, 0, 500, 500, &e), 0);
    assert_int_equal(read_one(d, SNAPSHOT_INDEX_MAX, 0, 500, &e), 0);
    assert_int_equal(write_one(d, SNAPSHOT_INDEX_MAX + 1, 0, 500, 500, &e), 0);
    assert_int_equal(read_one(d, SNAPSHOT_INDEX_MAX + 1, 0, 500, &e), FL_ECORRUPT);
    assert_non_null(strstr(e.text, "impossible numbers"));
    sim_device_destroy(sim);
}

/* --- a disk with faults --- */

/* Each call that can fail does, once; nothing whole is lost and no part is left. */
TEST(failing_disk)
{
    static const enum sim_call calls[] = {SIM_OPEN,   SIM_WRITE,    SIM_SYNC,
                                          SIM_RENAME, SIM_SYNC_DIR, SIM_REMOVE};
    for (size_t c = 0; c < 6; c++) {
        for (unsigned nth = 1; nth < 12; nth++) {
            struct snapshot_error e = {0};
            struct sim_device *sim = sim_device_create(nth);
            struct log_device *d = sim_device_base(sim);
            assert_int_equal(write_one(d, 60, 0, 500, 500, &e), 0);
            sim_device_fail(sim, calls[c], nth, 1, -EIO);
            uint64_t before = sim_device_calls(sim, calls[c]);
            int rv = write_one(d, 70, 0, 3 * SNAPSHOT_PIECE, 100000, &e);
            bool failed = sim_device_calls(sim, calls[c]) >= before + nth;
            assert_int_equal(rv, failed ? FL_EIO : 0);
            assert_int_equal(e.code, rv);
            assert_true(!failed || strstr(e.text, "Input/output error") != NULL);
            sim_device_fail(sim, calls[c], 1, 0, 0);
            sim_device_crash(sim, SIM_CRASH_POWER);
            assert_int_equal(read_one(d, 60, 0, 500, &e), 0);
            if (!failed) {
                assert_int_equal(read_one(d, 70, 0, 3 * SNAPSHOT_PIECE, &e), 0);
            }
            assert_int_equal(snapshot_clean(d, UINT64_MAX, &e), 0);
            assert_true(sim_device_files(sim) <= 2);
            sim_device_destroy(sim);
        }
    }
}

/* A node writes one snapshot after another and removes the older ones, whatever has failed. Any one
 * call fails, and then the power goes: the newest that was taken is there, or a newer one. */
static bool lives_with_failure(uint64_t kth, uint64_t seed)
{
    struct snapshot_error e = {0};
    struct sim_device *sim = sim_device_create(seed);
    struct log_device *d = sim_device_base(sim);
    struct snapshot_reader *r = NULL;
    uint64_t taken = 60;
    assert_int_equal(write_one(d, 60, 0, 500, 500, &e), 0);
    sim_device_tick(sim, kth, -EIO);
    for (uint64_t index = 70; index <= 80; index += 10) {
        if (write_one(d, index, 0, SNAPSHOT_PIECE + 1, 100000, &e) == 0) {
            taken = index;
        }
        (void)!snapshot_clean(d, 0, &e);
    }
    bool failed = sim_device_ticked(sim);
    sim_device_crash(sim, SIM_CRASH_POWER);
    assert_int_equal(snapshot_reader_open(d, 0, &r, &e), 0);
    uint64_t newest = snapshot_reader_meta(r)->index;
    snapshot_reader_close(r);
    assert_true(newest >= taken);
    assert_int_equal(read_one(d, newest, 0, newest == 60 ? 500 : SNAPSHOT_PIECE + 1, &e), 0);
    sim_device_destroy(sim);
    return failed;
}

TEST(each_call_fails_once)
{
    uint64_t kth = 0;
    bool failed = true;
    while (failed) {
        kth++;
        for (uint64_t seed = 0; seed < 8; seed++) {
            failed = lives_with_failure(kth, seed);
        }
    }
    assert_true(kth > 30);
}

TEST(full_disk)
{
    struct snapshot_error e = {0};
    struct sim_device *sim = sim_device_create(1);
    struct log_device *d = sim_device_base(sim);
    sim_device_capacity(sim, 3 * SNAPSHOT_PIECE);
    assert_int_equal(write_one(d, 70, 0, 3 * SNAPSHOT_PIECE, 100000, &e), FL_EIO);
    assert_non_null(strstr(e.text, "No space left on device"));
    assert_int_equal(sim_device_files(sim), 0);
    sim_device_capacity(sim, 4 * SNAPSHOT_PIECE);
    assert_int_equal(write_one(d, 70, 0, 3 * SNAPSHOT_PIECE, 100000, &e), 0);
    sim_device_destroy(sim);
}

/* A power cut at any moment leaves the old ones, and the new one whole or not at all. */
TEST(power_cuts)
{
    uint64_t rng = rng_seed();
    for (unsigned i = 0; i < 400; i++) {
        struct snapshot_error e = {0};
        struct sim_device *sim = sim_device_create(rng_next(&rng));
        struct log_device *d = sim_device_base(sim);
        assert_int_equal(write_one(d, 60, 0, 500, 500, &e), 0);
        static const enum sim_call calls[] = {SIM_WRITE, SIM_SYNC, SIM_RENAME, SIM_SYNC_DIR};
        /* From some call on the disk does nothing any more, and then the power goes. */
        enum sim_call from = calls[rng_below(&rng, 4)];
        unsigned nth = 1 + (unsigned)rng_below(&rng, from == SIM_WRITE ? 5 : 1);
        for (size_t c = 0; c < 4; c++) {
            if (calls[c] >= from) {
                sim_device_fail(sim, calls[c], calls[c] == from ? nth : 1, 1000, -EIO);
            }
        }
        sim_device_fail(sim, SIM_REMOVE, 1, 1000, -EIO);
        (void)!write_one(d, 70, 0, 2 * SNAPSHOT_PIECE, 100000, &e);
        sim_device_crash(sim, SIM_CRASH_POWER);
        assert_int_equal(read_one(d, 60, 0, 500, &e), 0);
        int rv = read_one(d, 70, 0, 2 * SNAPSHOT_PIECE, &e);
        assert_true(rv == 0 || rv == FL_ENOTFOUND);
        sim_device_destroy(sim);
    }
}

/* --- for real --- */

static int nothing(struct log_io *io)
{
    return 0;
}

static void ended(struct log_io *io, int result, uint64_t took_ns)
{
    *(int *)io->ctx = result;
}

/* A thread that begins takes a lock of the sanitizer's memory. fork() copies it, and then the child
 * waits for it for ever. A thread that has done something is beyond that. */
static void wait_until_the_thread_runs(struct log_device *d)
{
    int result = 1;
    struct log_io io = {.work = nothing, .done = ended, .ctx = &result};
    d->ops->start(d, LOG_LANE_BACKGROUND, &io);
    while (result > 0) {
        assert_true(log_device_wait(d, 60000));
    }
    assert_int_equal(result, 0);
}

TEST(in_a_child)
{
    char dir[256];
    char errmsg[256];
    const char *base = getenv("TMPDIR");
    struct log_device *d = NULL;
    struct snapshot_error e = {0};
    snprintf(dir, sizeof dir, "%s/fencelock-snapshot-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(log_files_create(dir, LOG_ENGINE_BEST, &d, errmsg, sizeof errmsg), 0);
    wait_until_the_thread_runs(d);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(write_one(d, 70, 99, 5 << 20, 4000, &e) == 0 ? 0 : 1);
    }
    int status = 0;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(read_one(d, 70, 99, 5 << 20, &e), 0);
    assert_int_equal(d->ops->remove(d, NAME), 0);
    log_files_destroy(d);
    assert_int_equal(rmdir(dir), 0);
}

TEST(names)
{
    uint64_t index = 0;
    uint64_t term = 0;
    bool part = false;
    char name[LOG_NAME_MAX + 1];
    snapshot_name(UINT64_MAX, UINT64_MAX, true, name);
    assert_true(snapshot_name_parse(name, &index, &term, &part));
    assert_true(index == UINT64_MAX && term == UINT64_MAX && part);
    assert_true(snapshot_name_parse(NAME, &index, &term, &part));
    assert_true(index == 70 && term == 5 && !part);
    assert_false(snapshot_name_parse("snapshot-", &index, &term, &part));
    assert_false(snapshot_name_parse(NAME ".par", &index, &term, &part));
    assert_false(snapshot_name_parse(NAME "0", &index, &term, &part));
    assert_false(snapshot_name_parse("snapshot-18446744073709551616-00000000000000000005", &index,
                                     &term, &part));
}
