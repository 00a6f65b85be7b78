/* Damage to the files of a fence directory: whatever is changed, opening either refuses or serves
 * marks that are not lower than they were. It never crashes, and never opens so that later writes
 * destroy something. Once for a directory that was closed in order, where all is in one file, and
 * once for one whose process was killed, where the WAL has acknowledged commits that the file does
 * not have. */
#include "scratch.h"

#include <sqlite3.h>

#include "fence/db.h"
#include "fencelock/fence.h"

#define LOCKS 150u
#define FLIPS 1000u
#define PAGE FLI_DB_PAGE
#define WAL FLI_DB_FILE "-wal"
#define FILES 3u

static const char *const names[FILES] = {FLI_DB_FILE, WAL, "owner"};

struct file {
    uint8_t *data; /* NULL: it is not there */
    size_t len;
};

struct fixture {
    struct scratch scratch;
    struct file closed[FILES], killed[FILES], before[FILES]; /* before: the commit before, closed */
};

static size_t lock_name(char name[64], unsigned i)
{
    /* Long names make a tree of several levels out of few marks. */
    return (size_t)snprintf(name, 64, "lock-%03u-abcdefghijklmnopqrstuvwxyz-0123456789", i);
}

static fl_token token_of(unsigned i)
{
    return 1000 + i;
}

static void keep(const struct fixture *x, struct file *files)
{
    for (unsigned i = 0; i < FILES; i++) {
        char path[400];
        (void)snprintf(path, sizeof path, "%s/%s", x->scratch.data, names[i]);
        if (access(path, F_OK) == 0) {
            files[i].data = scratch_load(x->scratch.data, names[i], &files[i].len);
        }
    }
}

static void put(const struct fixture *x, const struct file *files)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s-shm", x->scratch.data, FLI_DB_FILE);
    (void)unlink(path);
    for (unsigned i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", x->scratch.data, names[i]);
        (void)unlink(path);
        if (files[i].data != NULL) {
            scratch_store(x->scratch.data, names[i], files[i].data, files[i].len);
        }
    }
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    char name[64];
    fl_fence *f;
    size_t removed;
    scratch_init(&x->scratch);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < LOCKS; i++) {
            size_t len = lock_name(name, i);
            assert_int_equal(fl_fence_admit(f, name, len, token_of(i) - 1 + round, NULL), 0);
        }
    }
    assert_int_equal(fl_fence_forget(f, 7, 10, &removed), 0);
    fl_fence_close(f);
    keep(x, x->before);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(fl_fence_admit(f, "last", 4, 4996 + i, NULL), 0);
    }
    keep(x, x->killed);
    fl_fence_close(f);
    keep(x, x->closed);
    assert_null(x->closed[1].data);
    assert_true(x->killed[1].len > 5 * PAGE);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    scratch_fini(&x->scratch);
    for (unsigned i = 0; i < FILES; i++) {
        free(x->closed[i].data);
        free(x->killed[i].data);
        free(x->before[i].data);
    }
    free(x);
    return 0;
}

static void check_marks(fl_fence *f)
{
    char name[64];
    fl_token mark;
    for (unsigned i = 0; i < LOCKS; i++) {
        size_t len = lock_name(name, i);
        assert_int_equal(fl_fence_mark(f, name, len, &mark), 0);
        assert_true(mark >= token_of(i));
    }
    assert_int_equal(fl_fence_mark(f, "last", 4, &mark), 0);
    assert_true(mark >= 5000);
    assert_int_equal(fl_fence_mark(f, "unknown", 7, &mark), 0);
    assert_true(mark >= 7); /* the floor */
}

/* Puts these files in place and opens. True when it was refused. When not, all marks must be there,
 * also after more writes and another opening. */
static bool refused(struct fixture *x, const struct file *files)
{
    fl_fence *f = NULL;
    put(x, files);
    int rc = fl_fence_open(x->scratch.data, 0, &f);
    if (rc != 0) {
        assert_true(rc == FL_ECORRUPT || rc == FL_EVERSION);
        return true;
    }
    check_marks(f);
    for (unsigned i = 0; i < 5; i++) {
        char name[64];
        size_t name_len = lock_name(name, LOCKS + i);
        assert_int_equal(fl_fence_admit(f, name, name_len, token_of(i), NULL), 0);
    }
    fl_fence_close(f);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    check_marks(f);
    fl_fence_close(f);
    return false;
}

/* The same with other bytes for one of the files. */
static bool refused_with(struct fixture *x, const struct file *good, unsigned which, uint8_t *data,
                         size_t len)
{
    struct file files[FILES];
    memcpy(files, good, FILES * sizeof *good);
    files[which] = (struct file){data, len};
    return refused(x, files);
}

TEST_WITH(test_undamaged, setup, teardown)
{
    struct fixture *x = *state;
    assert_false(refused(x, x->closed));
    assert_false(refused(x, x->killed));
}

/* A refused opening has changed nothing: with the one damaged file put right, all is there. */
static void mended(struct fixture *x, unsigned which, const struct file *good)
{
    fl_fence *f = NULL;
    scratch_store(x->scratch.data, names[which], good->data, good->len);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    check_marks(f);
    fl_fence_close(f);
}

static void flip(struct fixture *x, const struct file *good, unsigned which, unsigned flips)
{
    uint64_t random = rng_seed();
    unsigned refusals = 0;
    uint8_t *data = good[which].data;
    for (unsigned i = 0; i < flips; i++) {
        size_t at = rng_below(&random, good[which].len);
        if (i % 3 == 0) { /* headers and offsets of pages, where the structure is */
            at = at / PAGE * PAGE + rng_below(&random, 170);
            at = at < good[which].len ? at : 0;
        }
        uint8_t bit = (uint8_t)(1u << rng_below(&random, 8));
        data[at] ^= bit;
        bool refusal = refused_with(x, good, which, data, good[which].len);
        data[at] ^= bit;
        if (refusal) {
            mended(x, which, &good[which]);
        }
        refusals += refusal;
    }
    printf("%u of %u flips in %s refused, the others harmless\n", refusals, flips, names[which]);
    assert_true(refusals > flips / 20);
}

TEST_WITH(test_flipped_bits, setup, teardown)
{
    struct fixture *x = *state;
    flip(x, x->closed, 0, FLIPS);
    flip(x, x->closed, 2, 100);
}

/* Also in a WAL that has acknowledged commits: it must not be taken for one with a torn end. */
TEST_WITH(test_flipped_wal, setup, teardown)
{
    struct fixture *x = *state;
    flip(x, x->killed, 1, FLIPS / 2);
    flip(x, x->killed, 0, FLIPS / 4);
}

/* Every bit of the head of the file. */
TEST_WITH(test_flipped_meta, setup, teardown)
{
    struct fixture *x = *state;
    uint8_t *data = x->closed[0].data;
    for (size_t at = 0; at < 112; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            data[at] ^= (uint8_t)(1u << bit);
            (void)refused_with(x, x->closed, 0, data, x->closed[0].len);
            data[at] ^= (uint8_t)(1u << bit);
        }
    }
}

TEST_WITH(test_random_bytes, setup, teardown)
{
    struct fixture *x = *state;
    uint64_t random = rng_seed();
    size_t size = x->closed[0].len;
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    for (unsigned i = 0; i < FLIPS / 5; i++) {
        memcpy(copy, x->closed[0].data, size);
        size_t at = rng_below(&random, size);
        size_t len = 1 + rng_below(&random, 64);
        for (size_t j = at; j < at + len && j < size; j++) {
            copy[j] = (uint8_t)rng_below(&random, 256);
        }
        (void)refused_with(x, x->closed, 0, copy, size);
    }
    free(copy);
}

TEST_WITH(test_cut_short, setup, teardown)
{
    struct fixture *x = *state;
    const struct file *db = &x->closed[0];
    for (size_t len = 0; len < db->len; len += len < 2 * PAGE ? 61 : PAGE / 2) {
        assert_true(refused_with(x, x->closed, 0, db->data, len));
    }
    const struct file *wal = &x->killed[1];
    for (size_t len = 0; len < wal->len; len += 509) {
        assert_true(refused_with(x, x->killed, 1, wal->data, len));
    }
    for (unsigned i = 0; i < 2; i++) { /* a file is not there */
        assert_true(refused_with(x, x->killed, i, NULL, 0));
    }
}

/* A disk that says it wrote a page and did not. */
TEST_WITH(test_lost_page_writes, setup, teardown)
{
    struct fixture *x = *state;
    const struct file *after = &x->closed[0];
    const struct file *before = &x->before[0];
    uint8_t *copy = malloc(after->len);
    assert_non_null(copy);
    size_t common = after->len < before->len ? after->len : before->len;
    unsigned changed = 0;
    for (size_t page = 1; page < common / PAGE; page++) {
        if (memcmp(after->data + page * PAGE, before->data + page * PAGE, PAGE) == 0) {
            continue;
        }
        memcpy(copy, after->data, after->len);
        memcpy(copy + page * PAGE, before->data + page * PAGE, PAGE);
        assert_true(refused_with(x, x->closed, 0, copy, after->len));
        changed++;
    }
    assert_true(changed >= 2);
    free(copy);
    /* All of them: the file is, to the last bit, an older one, and `owner` knows better. */
    assert_true(refused_with(x, x->closed, 0, before->data, before->len));
}

static void run_sql(const struct fixture *x, const char *text)
{
    char path[400];
    sqlite3 *sql;
    (void)snprintf(path, sizeof path, "%s/%s", x->scratch.data, FLI_DB_FILE);
    assert_int_equal(sqlite3_open(path, &sql), SQLITE_OK);
    assert_int_equal(sqlite3_exec(sql, text, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(sql), SQLITE_OK);
}

/* Another program has written: whatever it was, the file is not what we left. */
TEST_WITH(test_tampered, setup, teardown)
{
    static const char *const texts[] = {
        "UPDATE fence_mark SET mark = mark + 1 WHERE lock = 'last'",
        "INSERT INTO fence_mark VALUES ('more', 8)",
        "UPDATE fence_origin SET floor = 8",
        "DROP TRIGGER fence_mark_stays; DELETE FROM fence_mark WHERE lock = 'last'",
        "DROP TRIGGER fence_mark_stays",
        "CREATE TABLE more (a)",
        "UPDATE fence_total SET number = 1",
        "UPDATE fence_total SET sum = 0",
        "PRAGMA user_version = 3",
        "PRAGMA application_id = 1",
        "DROP TRIGGER fence_mark_rises; UPDATE fence_mark SET mark = 1 WHERE lock = 'last'",
    };
    struct fixture *x = *state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fl_fence *f = NULL;
        put(x, x->closed);
        run_sql(x, texts[i]);
        assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_ECORRUPT);
    }
}

/* What a reader does, and what changes no row, is harmless. */
TEST_WITH(test_read_by_others, setup, teardown)
{
    static const char *const texts[] = {"SELECT * FROM fence_mark", "VACUUM",
                                        "PRAGMA journal_mode = DELETE"};
    struct fixture *x = *state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fl_fence *f = NULL;
        put(x, x->closed);
        run_sql(x, texts[i]);
        assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
        check_marks(f);
        fl_fence_close(f);
    }
}

/* One that writes while it is open is noticed by the next that raises a mark. */
TEST_WITH(test_tampered_meanwhile, setup, teardown)
{
    struct fixture *x = *state;
    fl_fence *f = NULL;
    put(x, x->closed);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), 0);
    run_sql(x, "SELECT * FROM fence_mark");
    assert_int_equal(fl_fence_admit(f, "a", 1, 10, NULL), 0);
    run_sql(x, "UPDATE fence_mark SET mark = 5001 WHERE lock = 'last'");
    assert_int_equal(fl_fence_admit(f, "a", 1, 11, NULL), FL_ECORRUPT);
    assert_int_equal(fl_fence_admit(f, "a", 1, 10, NULL),
                     FL_ECORRUPT); /* until it is opened again */
    fl_fence_close(f);
    assert_int_equal(fl_fence_open(x->scratch.data, 0, &f), FL_ECORRUPT);
}

/* Nothing of the format before this one is read, and nothing of it is changed. */
TEST(test_older_format)
{
    struct scratch s;
    struct fli_db db;
    struct fli_db_options options = {.kind = "marks", .schema = "", .size_max = FLI_DB_SIZE_MIN};
    char errmsg[256] = "";
    scratch_init(&s);
    assert_int_equal(mkdir(s.data, 0700), 0);
    scratch_store(s.data, "owner", "fencelock marks 1\n", 18);
    scratch_store(s.data, "data.mdb", "x", 1);
    assert_int_equal(fli_db_open(s.data, &options, &db, errmsg, sizeof errmsg), FL_EVERSION);
    assert_non_null(strstr(errmsg, "older format"));
    scratch_store(s.data, "owner", "", 0);
    assert_int_equal(fli_db_open(s.data, &options, &db, errmsg, sizeof errmsg), FL_EVERSION);
    scratch_fini(&s);
}
