/* Durable marks on a simulated disk, whose power goes, or whose calls fail, at each point of an
 * opening, of commits, of a checkpoint and of a close, one after the other. What was acknowledged
 * is there afterwards, nothing is there that was not asked for, and the file can be opened. */
#include "scratch.h"

#include "fence/db.h"
#include "sim_disk.h"

#define LOCKS 3u
#define COMMITS 6u

struct told {
    fl_token asked[LOCKS], acked[LOCKS], floor_asked, floor_acked;
};

static char errmsg[256];

static int open_db(const struct scratch *s, struct fli_db *db)
{
    struct fli_db_options options = {
        .kind = "marks", .schema = "", .size_max = 4 * FLI_DB_SIZE_MIN};
    return fli_db_open(s->data, &options, db, errmsg, sizeof errmsg);
}

static struct fli_slice name_of(unsigned lock, char text[8])
{
    (void)snprintf(text, 8, "lock%u", lock);
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

static int raise(struct fli_db *db, unsigned lock, fl_token token)
{
    char text[8];
    fl_token stored = 0;
    struct fli_slice name = name_of(lock, text);
    int rc = fli_db_get_mark(db, name, &stored);
    return rc != 0 || stored >= token ? rc : fli_db_put_mark(db, name, stored, token);
}

/* Some commits of several marks each, the last one with a floor. Stops at the first failure of an
 * unknown outcome. */
static int write_some(struct fli_db *db, struct told *t)
{
    int worst = 0;
    for (unsigned i = 0; i < COMMITS; i++) {
        unsigned locks = LOCKS - i % 2;
        bool with_floor = i == COMMITS - 1;
        int rc = fli_db_begin(db);
        if (rc != 0) {
            return rc;
        }
        for (unsigned lock = 0; lock < locks; lock++) {
            t->asked[lock] += 1 + lock;
            rc = rc != 0 ? rc : raise(db, lock, t->asked[lock]);
        }
        t->floor_asked += with_floor ? 2 : 0;
        rc = rc == 0 && with_floor ? fli_db_raise_floor(db, t->floor_asked) : rc;
        if (rc != 0) {
            fli_db_rollback(db);
        } else if ((rc = fli_db_commit(db)) == 0) {
            memcpy(t->acked, t->asked, locks * sizeof t->acked[0]);
            t->floor_acked = with_floor ? t->floor_asked : t->floor_acked;
        }
        db->wal_pages = i == 2 ? FLI_DB_WAL_PAGES : db->wal_pages;
        int later = fli_db_checkpoint(db);
        worst = rc != 0 ? rc : later != 0 ? later : worst;
        if (db->broken != 0) {
            return db->broken;
        }
    }
    return worst;
}

static void check(struct fli_db *db, const struct told *t, const char *what, unsigned number)
{
    char text[8];
    for (unsigned lock = 0; lock < LOCKS; lock++) {
        fl_token mark = 0;
        assert_int_equal(fli_db_read_mark(db, name_of(lock, text), &mark), 0);
        if (mark < t->acked[lock] || (mark > t->asked[lock] && mark > t->floor_asked)) {
            fail_msg("%s at call %u: lock %u has mark %u, acknowledged %u, asked %u", what, number,
                     lock, (unsigned)mark, (unsigned)t->acked[lock], (unsigned)t->asked[lock]);
        }
    }
    assert_true(db->now.floor >= t->floor_acked && db->now.floor <= t->floor_asked);
}

/* A first life in peace, if `old`; then one with the fault at call `number`. */
static bool one(enum sim_fault fault, unsigned number, bool old, const char *what)
{
    struct scratch s;
    struct fli_db db;
    struct told t = {{0}, {0}, 0, 0};
    scratch_init(&s);
    sim_disk_clear();
    if (old) {
        assert_int_equal(open_db(&s, &db), 0);
        assert_int_equal(write_some(&db, &t), 0);
        fli_db_close(&db);
    }
    sim_disk_fail(fault, number);
    int rc = open_db(&s, &db);
    if (rc == 0) {
        rc = write_some(&db, &t);
        fli_db_close(&db);
    }
    bool failed = sim_disk_failed();
    if (!failed) {
        assert_int_equal(rc, 0);
    }
    sim_disk_restore_power(); /* whatever the fault was: it may also be cut afterwards */
    rc = open_db(&s, &db);
    if (rc != 0) {
        fail_msg("%s at call %u: %s", what, number, errmsg);
    }
    check(&db, &t, what, number);
    assert_int_equal(write_some(&db, &t), 0);
    check(&db, &t, what, number);
    fli_db_close(&db);
    scratch_fini(&s);
    return failed;
}

static void at_each(enum sim_fault fault, const char *what)
{
    for (unsigned old = 0; old < 2; old++) {
        unsigned number = 1;
        for (unsigned round = 0; round < 3; round++) { /* other sectors are lost each time */
            for (number = 1; one(fault, number, old != 0, what); number++) {
            }
        }
        printf("%s: %u calls%s\n", what, number - 1, old != 0 ? " of a second life" : "");
        assert_true(number > 20 || fault == SIM_SYNC_ERROR);
    }
}

static int setup(void **state)
{
    sim_disk_install(rng_seed());
    return 0;
}

static int teardown(void **state)
{
    sim_disk_clear();
    return 0;
}

TEST_WITH(test_power_cuts, setup, teardown)
{
    at_each(SIM_POWER, "a power cut");
}

TEST_WITH(test_failed_writes, setup, teardown)
{
    at_each(SIM_WRITE_ERROR, "a failed write");
}

TEST_WITH(test_full_disk, setup, teardown)
{
    at_each(SIM_NO_ROOM, "a full disk");
}

TEST_WITH(test_failed_syncs, setup, teardown)
{
    at_each(SIM_SYNC_ERROR, "a failed sync");
}

/* A lack of room at a commit is no failure: nothing changed, and the next one works. */
TEST_WITH(test_full_disk_is_a_refusal, setup, teardown)
{
    struct scratch s;
    struct fli_db db;
    struct told t = {{0}, {0}, 0, 0};
    scratch_init(&s);
    sim_disk_clear();
    assert_int_equal(open_db(&s, &db), 0);
    assert_int_equal(write_some(&db, &t), 0);
    for (unsigned number = 1; number < 4; number++) {
        fl_token mark = 0;
        char text[8];
        fl_token before = db.committed.sum;
        sim_disk_fail(SIM_NO_ROOM, number);
        assert_int_equal(fli_db_begin(&db), 0);
        assert_int_equal(raise(&db, 0, 1000 + number), 0);
        assert_int_equal(fli_db_commit(&db), FL_ELIMIT);
        assert_true(sim_disk_failed());
        assert_int_equal(db.committed.sum, before);
        assert_int_equal(fli_db_read_mark(&db, name_of(0, text), &mark), 0);
        assert_true(mark < 1000);
        assert_int_equal(fli_db_begin(&db), 0);
        assert_int_equal(fli_db_commit(&db), 0);
    }
    fli_db_close(&db);
    scratch_fini(&s);
}
