/* test_ballot.c: whatever a power cut leaves, term and vote are those that were last told to
 * anybody, or newer ones; whatever bit is turned around, they are right or refused. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "consensus/ballot.h"
#include "scratch.h"

struct pair {
    uint64_t term, vote;
};

/* As raft goes through them: a new term has no vote. */
static const struct pair lives[] = {{1, 0}, {2, 0}, {2, 3},  {3, 0},          {3, 1},
                                    {9, 0}, {9, 2}, {10, 0}, {1ull << 40, 0}, {1ull << 40, 3}};
#define LIVES (sizeof lives / sizeof lives[0])

static void put_own(struct ballot_files *f, uint64_t number, const struct pair *p, size_t upto)
{
    struct ballot b = {.number = number, .term = p->term, .vote = p->vote};
    uint8_t slot[BALLOT_SLOT_LEN];
    ballot_encode(&b, slot);
    memcpy(f->own + number % 2 * BALLOT_SLOT_AT, slot, upto);
    f->own_len = BALLOT_FILE_LEN;
}

/* As uv_metadata.c does; a file that was cut off is shorter. */
static void put_meta(struct ballot_files *f, uint64_t version, const struct pair *p, size_t upto)
{
    unsigned i = version % 2 == 1 ? 0 : 1;
    fli_put_u64(f->meta[i], 1);
    fli_put_u64(f->meta[i] + 8, version);
    fli_put_u64(f->meta[i] + 16, p->term);
    fli_put_u64(f->meta[i] + 24, p->vote);
    f->meta_len[i] = upto;
}

/* After n of them. */
static struct ballot_files after(size_t n)
{
    struct ballot_files f;
    memset(&f, 0, sizeof f);
    put_own(&f, 1, &lives[0], BALLOT_SLOT_LEN);
    put_own(&f, 2, &lives[0], BALLOT_SLOT_LEN);
    put_meta(&f, 1, &lives[0], BALLOT_META_LEN);
    for (size_t i = 1; i < n; i++) {
        put_own(&f, i + 2, &lives[i], BALLOT_SLOT_LEN);
        put_meta(&f, i + 1, &lives[i], BALLOT_META_LEN);
    }
    return f;
}

/* What is believed is one of two: the last that was told, or the one being written. */
static void believes(const struct ballot_files *f, size_t told, size_t newest)
{
    struct ballot b = {0};
    enum ballot_verdict verdict = ballot_judge(f, &b);
    assert_int_not_equal(verdict, BALLOT_DAMAGED);
    bool is_told = b.term == lives[told].term && b.vote == lives[told].vote;
    bool is_newest = b.term == lives[newest].term && b.vote == lives[newest].vote;
    assert_true(is_told || is_newest);
}

static void undisturbed(void **state)
{
    for (size_t n = 1; n <= LIVES; n++) {
        struct ballot_files f = after(n);
        struct ballot b;
        assert_int_equal(ballot_judge(&f, &b), BALLOT_AGREES);
        assert_int_equal(b.term, lives[n - 1].term);
        assert_int_equal(b.vote, lives[n - 1].vote);
        assert_int_equal(b.number, n + 1);
    }
}

static void the_power_goes_while_the_slot_is_written(void **state)
{
    for (size_t n = 1; n < LIVES; n++) {
        for (size_t upto = 0; upto <= BALLOT_SLOT_LEN; upto++) {
            struct ballot_files f = after(n);
            put_own(&f, n + 2, &lives[n], upto);
            believes(&f, n - 1, n);
        }
    }
}

static void the_power_goes_while_the_library_writes(void **state)
{
    for (size_t n = 1; n < LIVES; n++) {
        for (size_t upto = 0; upto <= BALLOT_META_LEN; upto++) {
            struct ballot_files f = after(n);
            put_own(&f, n + 2, &lives[n], BALLOT_SLOT_LEN);
            put_meta(&f, n + 1, &lives[n], upto);
            believes(&f, n, n);
        }
    }
}

/* Every bit of all three files, after each of the lives. */
static void no_flipped_bit_is_believed(void **state)
{
    unsigned refused = 0, harmless = 0;
    for (size_t n = 1; n <= LIVES; n++) {
        struct ballot_files f = after(n);
        uint8_t *parts[] = {f.own, f.own + BALLOT_SLOT_AT, f.meta[0], f.meta[1]};
        const size_t lens[] = {BALLOT_SLOT_LEN, BALLOT_SLOT_LEN, f.meta_len[0], f.meta_len[1]};
        for (unsigned part = 0; part < 4; part++) {
            for (size_t bit = 0; bit < 8 * lens[part]; bit++) {
                struct ballot b = {0};
                parts[part][bit / 8] ^= (uint8_t)(1u << bit % 8);
                if (ballot_judge(&f, &b) == BALLOT_DAMAGED) {
                    assert_true(part < 2);
                    refused++;
                } else {
                    assert_int_equal(b.term, lives[n - 1].term);
                    assert_int_equal(b.vote, lives[n - 1].vote);
                    harmless++;
                }
                parts[part][bit / 8] ^= (uint8_t)(1u << bit % 8);
            }
        }
    }
    assert_true(refused > 0 && harmless > 0);
}

static void what_cannot_be_judged_is_refused(void **state)
{
    struct ballot b;
    struct ballot_files f = after(3);
    memset(f.own, 0, sizeof f.own);
    assert_int_equal(ballot_judge(&f, &b), BALLOT_DAMAGED);
    f = after(3);
    f.own_len = BALLOT_FILE_LEN - 1; /* the odd slot is cut off, which is not the newest */
    assert_int_equal(ballot_judge(&f, &b), BALLOT_RENEW);
    f = after(4);
    f.own_len = BALLOT_FILE_LEN - 1;
    assert_int_equal(ballot_judge(&f, &b), BALLOT_DAMAGED);
    f = after(3);
    put_own(&f, 7, &lives[5], BALLOT_SLOT_LEN); /* two whole slots that do not follow each other */
    assert_int_equal(ballot_judge(&f, &b), BALLOT_DAMAGED);
    memset(&f, 0, sizeof f); /* nothing anywhere, in a directory that was in use */
    assert_int_equal(ballot_judge(&f, &b), BALLOT_DAMAGED);
}

/* ---- files ---- */

static struct data_dir make_dir(char *path)
{
    struct data_dir d = {.lock_fd = -1};
    char *raft = scratch_path(path, "raft");
    assert_int_equal(mkdir(raft, 0700), 0);
    snprintf(d.path, sizeof d.path, "%s", path);
    snprintf(d.raft_path, sizeof d.raft_path, "%s", raft);
    free(raft);
    return d;
}

static void write_meta(const struct data_dir *d, uint64_t version, const struct pair *p)
{
    struct ballot_files f;
    char *path = scratch_path(d->raft_path, version % 2 == 1 ? "metadata1" : "metadata2");
    put_meta(&f, version, p, BALLOT_META_LEN);
    scratch_write(path, f.meta[version % 2 == 1 ? 0 : 1], BALLOT_META_LEN);
    free(path);
}

static void opened(const struct data_dir *d, struct ballot *b, bool corrected, uint64_t term,
                   uint64_t vote)
{
    char errmsg[1024];
    bool did = !corrected;
    assert_int_equal(ballot_open(d, b, &did, errmsg, sizeof errmsg), 0);
    assert_int_equal(did, corrected);
    assert_int_equal(b->term, term);
    assert_int_equal(b->vote, vote);
}

static void files_are_kept_and_corrected(void **state)
{
    char errmsg[1024];
    char *path = scratch_make();
    struct data_dir d = make_dir(path);
    struct ballot b;
    write_meta(&d, 1, &(struct pair){5, 2});
    opened(&d, &b, false, 5, 2); /* of an older version: no file */
    assert_int_equal(ballot_set_term(&b, 6, errmsg, sizeof errmsg), 0);
    write_meta(&d, 2, &(struct pair){6, 0});
    assert_int_equal(ballot_set_vote(&b, 3, errmsg, sizeof errmsg), 0);
    ballot_close(&b);
    opened(&d, &b, true, 6, 3); /* the library had not written the vote */
    ballot_close(&b);
    char *second = scratch_path(d.raft_path, "metadata2");
    assert_false(scratch_exists(second));
    opened(&d, &b, false, 6, 3);
    ballot_close(&b);
    write_meta(&d, 2, &(struct pair){4, 3}); /* taken back by damage */
    opened(&d, &b, true, 6, 3);
    ballot_close(&b);
    char *own = scratch_path(d.path, "ballot");
    scratch_write(own, "FLBALLOT", 8);
    bool did;
    assert_int_equal(ballot_open(&d, &b, &did, errmsg, sizeof errmsg), FL_ECORRUPT);
    assert_non_null(strstr(errmsg, own));
    assert_int_equal(ballot_forget(&d, errmsg, sizeof errmsg), 0);
    assert_false(scratch_exists(own));
    assert_int_equal(ballot_forget(&d, errmsg, sizeof errmsg), 0);
    free(own);
    free(second);
    scratch_remove(path);
}

static void a_slot_that_is_not_whole_is_written_again(void **state)
{
    char *path = scratch_make();
    struct data_dir d = make_dir(path);
    struct ballot b;
    char bytes[BALLOT_FILE_LEN + 1];
    write_meta(&d, 1, &(struct pair){5, 2});
    opened(&d, &b, false, 5, 2);
    ballot_close(&b);
    char *own = scratch_path(d.path, "ballot");
    assert_int_equal(scratch_read(own, bytes, sizeof bytes), BALLOT_FILE_LEN);
    bytes[20] ^= 1;
    scratch_write(own, bytes, BALLOT_FILE_LEN);
    opened(&d, &b, false, 5, 2);
    ballot_close(&b);
    struct ballot_files f = {.own_len = scratch_read(own, bytes, sizeof bytes)};
    memcpy(f.own, bytes, BALLOT_FILE_LEN);
    put_meta(&f, 1, &(struct pair){5, 2}, BALLOT_META_LEN);
    assert_int_equal(ballot_judge(&f, &b), BALLOT_AGREES);
    free(own);
    scratch_remove(path);
}

static void a_write_that_fails_is_told(void **state)
{
    char errmsg[1024] = "";
    struct ballot b = {.fd = open("/dev/full", O_WRONLY), .number = 4, .term = 7, .vote = 1};
    if (b.fd < 0) {
        skip();
    }
    assert_int_equal(ballot_set_term(&b, 8, errmsg, sizeof errmsg), FL_EIO);
    assert_non_null(strstr(errmsg, "ballot"));
    assert_int_equal(b.term, 7);
    ballot_close(&b);
    assert_int_equal(ballot_set_term(&b, 8, errmsg, sizeof errmsg), 0);
    assert_int_equal(ballot_set_vote(NULL, 8, errmsg, sizeof errmsg), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed),
        cmocka_unit_test(the_power_goes_while_the_slot_is_written),
        cmocka_unit_test(the_power_goes_while_the_library_writes),
        cmocka_unit_test(no_flipped_bit_is_believed),
        cmocka_unit_test(what_cannot_be_judged_is_refused),
        cmocka_unit_test(files_are_kept_and_corrected),
        cmocka_unit_test(a_slot_that_is_not_whole_is_written_again),
        cmocka_unit_test(a_write_that_fails_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
