/* test_beginning.c: new clusters out of backups whose checksums are right and whose numbers are
 * not: somebody made them. */
#include "../../lib/unit.h"

#include "recovery/beginning.h"
#include "members/data_dir.h"
#include "snapshot/format.h"
#include "../../lib/scratch.h"
#include "../snapshot/states.h"

#define CLUSTER 77u

struct file {
    struct fli_buf bytes;
    struct snapshot_stream stream;
    uint8_t unit[SNAPSHOT_UNIT_MAX];
    size_t have; /* bytes of the piece that is being filled */
};

static void put(struct file *f, const void *data, size_t len)
{
    assert_int_equal(fli_buf_append(&f->bytes, data, len), 0);
}

static void put_piece(struct file *f)
{
    if (f->have > 0) {
        put(f, f->unit, snapshot_put_piece(&f->stream, f->have, f->unit));
        f->have = 0;
    }
}

static int take_bytes(void *ctx, const void *bytes, size_t len)
{
    struct file *f = ctx;
    for (size_t i = 0; i < len; i++) {
        f->unit[SNAPSHOT_UNIT_HEAD + f->have++] = ((const uint8_t *)bytes)[i];
        if (f->have == SNAPSHOT_PIECE) {
            put_piece(f);
        }
    }
    return 0;
}

/* A backup of a small state, as if it were of that entry. */
static void write_backup(const char *path, uint64_t index, uint64_t term)
{
    struct file *f = test_calloc(1, sizeof *f);
    struct machine *m = states_make_cluster(CLUSTER, 3);
    struct snapshot_meta meta = {
        .index = index, .term = term, .conf_index = 1, .node_id = 1, .made_ms = 1};
    fli_buf_init(&f->bytes, 1 << 20);
    put(f, f->unit, snapshot_put_header(&f->stream, &meta, f->unit));
    assert_int_equal(machine_snapshot_write(m, take_bytes, f), 0);
    put_piece(f);
    put(f, f->unit, snapshot_put_trailer(&f->stream, &meta, f->unit));
    scratch_write(path, f->bytes.data, f->bytes.len);
    machine_destroy(m);
    fli_buf_fini(&f->bytes);
    test_free(f);
}

static uint32_t begun; /* what the last directory says of its beginning */

/* Restores a backup of that entry into a new directory. */
static int restore(uint64_t index, uint64_t term, char errmsg[512])
{
    struct members members;
    struct beginning_result result;
    char *dir = scratch_make();
    char *backup = scratch_path(dir, "backup");
    char *data = scratch_path(dir, "data");
    assert_int_equal(members_parse("1=127.0.0.1:1", &members, errmsg, 512), 0);
    const struct beginning b = {
        .data = data, .backup = backup, .id = 1, .members = &members, .step = BEGINNING_STEP_MIN};
    write_backup(backup, index, term);
    int rv = beginning_make(&b, &result, errmsg, 512);
    assert_int_equal(scratch_exists(data), rv == 0);
    if (rv == 0) {
        char why[512];
        struct directory_summary made;
        assert_int_equal(identity_peek(data, &made, why, sizeof why), 0);
        begun = made.identity.begun_crc;
    }
    free(backup);
    free(data);
    scratch_remove(dir);
    return rv;
}

TEST(a_backup_is_restored)
{
    char errmsg[512];
    assert_int_equal(restore(1000, 7, errmsg), 0);
    assert_int_equal(restore(SNAPSHOT_INDEX_MAX - 1, SNAPSHOT_TERM_MAX - 1, errmsg), 0);
}

/* The logs of nodes that meet must begin with the same entry, not only with the same state. */
TEST(the_same_state_of_another_entry)
{
    char errmsg[512];
    assert_int_equal(restore(1000, 7, errmsg), 0);
    uint32_t first = begun;
    assert_int_equal(restore(1001, 7, errmsg), 0);
    assert_true(begun != first);
    assert_int_equal(restore(1000, 8, errmsg), 0);
    assert_true(begun != first);
    assert_int_equal(restore(1000, 7, errmsg), 0);
    assert_true(begun == first);
}

/* The log of the new cluster goes on behind it. */
TEST(an_entry_that_no_log_can_reach)
{
    static const uint64_t at[][2] = {{LOG_INDEX_MAX, 7},
                                     {UINT64_MAX, 7},
                                     {SNAPSHOT_INDEX_MAX, 7},
                                     {1000, UINT64_MAX},
                                     {1000, SNAPSHOT_TERM_MAX}};
    char errmsg[512];
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        assert_int_equal(restore(at[i][0], at[i][1], errmsg), FL_ECORRUPT);
        assert_true(strstr(errmsg, "impossible numbers") != NULL ||
                    strstr(errmsg, "no log comes so far") != NULL);
    }
}

/* What is no directory is not told as one that is not empty. */
TEST(a_file_in_the_place_of_the_directory)
{
    char errmsg[512];
    struct members members;
    struct beginning_result result;
    char *dir = scratch_make();
    char *data = scratch_path(dir, "data");
    scratch_write(data, "x", 1);
    assert_int_equal(members_parse("1=127.0.0.1:1", &members, errmsg, sizeof errmsg), 0);
    const struct beginning b = {
        .data = data, .backup = data, .id = 1, .members = &members, .step = BEGINNING_STEP_MIN};
    assert_int_equal(beginning_make(&b, &result, errmsg, sizeof errmsg), FL_ESYSTEM);
    assert_non_null(strstr(errmsg, "cannot read data directory"));
    free(data);
    scratch_remove(dir);
}
