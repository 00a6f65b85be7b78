/* Durable marks: what fence.h promises, across reopening, forgetting, full databases, several
 * threads, a second process and a killed one. Damage is in test_damage.c. */
#include "scratch.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "fence/db.h"
#include "fencelock/fence.h"

#define SMALL ((size_t)256 * 1024)

static int setup(void **state)
{
    struct scratch *s = malloc(sizeof(*s));
    scratch_init(s);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    scratch_fini(*state);
    free(*state);
    return 0;
}

static fl_fence *open_marks(struct scratch *s, size_t size_max)
{
    fl_fence *f = NULL;
    assert_int_equal(fl_fence_open(s->data, size_max, &f), 0);
    assert_non_null(f);
    return f;
}

static int admit(fl_fence *f, const char *lock, fl_token token)
{
    return fl_fence_admit(f, lock, strlen(lock), token, NULL);
}

static fl_token mark_of(fl_fence *f, const char *lock)
{
    fl_token mark = UINT64_MAX;
    assert_int_equal(fl_fence_mark(f, lock, strlen(lock), &mark), 0);
    return mark;
}

TEST_WITH(test_admit_and_reopen, setup, teardown)
{
    fl_fence *f = open_marks(*state, 0);
    fl_token mark = 99;
    assert_int_equal(mark_of(f, "a"), 0);
    assert_int_equal(fl_fence_admit(f, "a", 1, 33, &mark), 0);
    assert_int_equal(mark, 33);
    assert_int_equal(admit(f, "a", 33), 0);
    assert_int_equal(admit(f, "a", 34), 0);
    assert_int_equal(fl_fence_admit(f, "a", 1, 33, &mark), FL_ESTALE);
    assert_int_equal(mark, 34);
    assert_int_equal(admit(f, "b", 1), 0);
    assert_int_equal(mark_of(f, "a"), 34);
    fl_fence_close(f);

    f = open_marks(*state, 0);
    assert_int_equal(mark_of(f, "a"), 34);
    assert_int_equal(mark_of(f, "b"), 1);
    assert_int_equal(admit(f, "a", 33), FL_ESTALE);
    assert_int_equal(admit(f, "a", 34), 0);
    fl_fence_close(f);
}

TEST_WITH(test_arguments, setup, teardown)
{
    struct scratch *s = *state;
    fl_fence *f = NULL;
    fl_token mark;
    size_t removed;
    uint8_t name[FL_NAME_MAX + 1];
    memset(name, 0xFF, sizeof(name));
    assert_int_equal(fl_fence_open(NULL, 0, &f), FL_EINVAL);
    assert_int_equal(fl_fence_open("", 0, &f), FL_EINVAL);
    assert_int_equal(fl_fence_open(s->data, 0, NULL), FL_EINVAL);
    assert_int_equal(fl_fence_open(s->data, SMALL - 1, &f), FL_EINVAL);
    assert_int_equal(fl_fence_open("/dev/null/x", 0, &f), FL_EIO);
    assert_null(f);
    f = open_marks(s, SMALL);
    assert_int_equal(fl_fence_admit(f, name, FL_NAME_MAX, 5, &mark), 0);
    assert_int_equal(fl_fence_admit(f, name, FL_NAME_MAX + 1, 5, &mark), FL_EINVAL);
    assert_int_equal(fl_fence_admit(f, name, 0, 5, &mark), FL_EINVAL);
    assert_int_equal(fl_fence_admit(f, NULL, 1, 5, &mark), FL_EINVAL);
    assert_int_equal(fl_fence_admit(f, "\0", 1, 7, &mark), 0);
    assert_int_equal(fl_fence_admit(f, "\0\0", 2, 6, &mark), 0);
    assert_int_equal(fl_fence_mark(f, "\0", 1, &mark), 0);
    assert_int_equal(mark, 7);
    assert_int_equal(admit(f, "a", 0), FL_EINVAL);
    assert_int_equal(admit(f, "a", FL_TOKEN_MAX + 1), FL_EINVAL);
    assert_int_equal(admit(f, "a", FL_TOKEN_MAX), 0);
    assert_int_equal(fl_fence_mark(f, name, FL_NAME_MAX + 1, &mark), FL_EINVAL);
    assert_int_equal(fl_fence_mark(f, "a", 1, NULL), FL_EINVAL);
    assert_int_equal(fl_fence_forget(f, FL_TOKEN_MAX + 1, 1, &removed), FL_EINVAL);
    assert_int_equal(fl_fence_forget(f, 1, 1, NULL), FL_EINVAL);
    fl_fence_close(f);
    fl_fence_close(NULL);
}

TEST_WITH(test_forget, setup, teardown)
{
    fl_fence *f = open_marks(*state, 0);
    char name[16];
    size_t removed = 99;
    for (unsigned i = 1; i <= 100; i++) {
        (void)snprintf(name, sizeof(name), "lock%u", i);
        assert_int_equal(admit(f, name, i), 0);
    }
    assert_int_equal(fl_fence_forget(f, 0, 1000, &removed), 0);
    assert_int_equal(removed, 0);
    assert_int_equal(fl_fence_forget(f, 51, 20, &removed), 0);
    assert_int_equal(removed, 20);
    /* The floor holds at once, for forgotten locks, remembered ones and unknown ones. */
    assert_int_equal(admit(f, "lock1", 50), FL_ESTALE);
    assert_int_equal(admit(f, "lock50", 50), FL_ESTALE);
    assert_int_equal(admit(f, "never", 50), FL_ESTALE);
    assert_int_equal(mark_of(f, "never"), 51);
    assert_int_equal(mark_of(f, "lock90"), 90);
    size_t total = removed;
    for (unsigned calls = 0; removed > 0; calls++) {
        assert_true(calls < 10);
        assert_int_equal(fl_fence_forget(f, 51, 20, &removed), 0);
        total += removed;
    }
    assert_int_equal(total, 50);
    assert_int_equal(fl_fence_forget(f, 10, 1000, &removed), 0); /* never goes back */
    assert_int_equal(removed, 0);
    fl_fence_close(f);

    f = open_marks(*state, 0);
    assert_int_equal(admit(f, "lock1", 50), FL_ESTALE);
    assert_int_equal(admit(f, "lock1", 51), 0);
    assert_int_equal(admit(f, "never", 51), 0);
    assert_int_equal(admit(f, "lock90", 89), FL_ESTALE);
    assert_int_equal(mark_of(f, "lock51"), 51);
    assert_int_equal(mark_of(f, "lock100"), 100);
    fl_fence_close(f);
}

/* The pass starts where the last one ended, so marks that stay cannot hide those behind them. */
TEST_WITH(test_forget_goes_round, setup, teardown)
{
    fl_fence *f = open_marks(*state, 0);
    char name[FL_NAME_MAX + 1];
    size_t removed;
    for (unsigned i = 0; i < 40; i++) {
        memset(name, 'x', FL_NAME_MAX); /* names of full length: the place must not be cut short */
        (void)snprintf(name, sizeof(name), "%02u", i);
        name[2] = 'x';
        assert_int_equal(fl_fence_admit(f, name, FL_NAME_MAX, i % 2 == 0 ? 1000 : 10 + i, NULL), 0);
    }
    size_t total = 0;
    for (fl_token floor = 1; floor <= 60; floor++) {
        assert_int_equal(fl_fence_forget(f, floor, 1, &removed), 0);
        total += removed;
    }
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(fl_fence_forget(f, 60, 1, &removed), 0);
        total += removed;
    }
    assert_int_equal(total, 20);
    fl_fence_close(f);
}

TEST_WITH(test_two_openers, setup, teardown)
{
    struct scratch *s = *state;
    fl_fence *f = open_marks(s, 0);
    fl_fence *second = NULL;
    assert_int_equal(fl_fence_open(s->data, 0, &second), FL_EBUSY);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(fl_fence_open(s->data, 0, &second) == FL_EBUSY ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_null(second);
    assert_int_equal(admit(f, "a", 2), 0);
    fl_fence_close(f);
    f = open_marks(s, 0);
    assert_int_equal(mark_of(f, "a"), 2);
    fl_fence_close(f);
}

/* Fills the database until a new lock is refused. Returns how many fit. */
static unsigned fill(fl_fence *f, unsigned from)
{
    char name[FL_NAME_MAX + 1];
    for (unsigned i = from; i < from + 100000; i++) {
        int n = snprintf(name, sizeof(name), "%0200u", i);
        int rc = fl_fence_admit(f, name, (size_t)n, 100 + i, NULL);
        if (rc != 0) {
            assert_int_equal(rc, FL_ELIMIT);
            return i - from;
        }
    }
    fail_msg("the database never filled");
    return 0;
}

static void check_filled(fl_fence *f, unsigned from, unsigned count)
{
    char name[FL_NAME_MAX + 1];
    for (unsigned i = from; i < from + count; i++) {
        fl_token mark = 0;
        int n = snprintf(name, sizeof(name), "%0200u", i);
        assert_int_equal(fl_fence_mark(f, name, (size_t)n, &mark), 0);
        assert_int_equal(mark, 100 + i);
    }
}

TEST_WITH(test_full_database, setup, teardown)
{
    fl_fence *f = open_marks(*state, SMALL);
    size_t removed;
    unsigned count = fill(f, 0);
    assert_true(count > 100);
    check_filled(f, 0, count);
    fl_fence_close(f);
    f = open_marks(*state, SMALL);
    check_filled(f, 0, count);
    char name[FL_NAME_MAX + 1];
    int n = snprintf(name, sizeof(name), "%0200u", 0u);
    assert_int_equal(fl_fence_admit(f, name, (size_t)n, 99, NULL), FL_ESTALE);

    /* Forgetting works although there is no room, and makes room. */
    assert_int_equal(fl_fence_forget(f, 100 + count / 2, 100000, &removed), 0);
    assert_int_equal(removed, count / 2);
    assert_true(fill(f, count) > count / 4);
    fl_fence_close(f);
    f = open_marks(*state, SMALL);
    check_filled(f, count / 2, count - count / 2);
    fl_fence_close(f);
}

/* Forgets every other mark of a full database, far apart. */
TEST_WITH(test_forget_far_apart, setup, teardown)
{
    struct scratch *s = *state;
    struct fli_db db;
    struct fli_db_options options = {.kind = "marks", .schema = "", .size_max = 16 * SMALL};
    char errmsg[256];
    char name[FL_NAME_MAX + 1];
    fl_token mark;
    unsigned count = 0;
    int rc = 0;
    size_t removed;
    assert_int_equal(fli_db_open(s->data, &options, &db, errmsg, sizeof(errmsg)), 0);
    while (rc == 0) { /* the quick way: many marks in a commit */
        unsigned i = 0;
        assert_int_equal(fli_db_begin(&db), 0);
        for (; i < 500 && rc == 0; i++) {
            size_t len = (size_t)snprintf(name, sizeof(name), "%0200u", count + i);
            struct fli_slice lock = {(const uint8_t *)name, len};
            rc = fli_db_put_mark(&db, lock, FL_TOKEN_NONE, i % 2 == 0 ? 5 : 1000);
        }
        assert_int_equal(fli_db_commit(&db), 0);
        count += rc == 0 ? i : i - 1;
    }
    assert_int_equal(rc, FL_ELIMIT);
    assert_true(count > 5000);
    fli_db_close(&db);
    fl_fence *f = open_marks(s, 16 * SMALL);
    assert_int_equal(fl_fence_forget(f, 6, 100, &removed), 0);
    assert_int_equal(removed, 100);
    assert_int_equal(fl_fence_forget(f, 6, 100000, &removed), 0);
    assert_int_equal(removed, (count + 1) / 2 - 100);
    for (unsigned i = 0; i < count; i += 71) {
        size_t len = (size_t)snprintf(name, sizeof(name), "%0200u", i);
        assert_int_equal(fl_fence_mark(f, name, len, &mark), 0);
        assert_int_equal(mark, i % 500 % 2 == 0 ? 6 : 1000);
    }
    fl_fence_close(f);
}

/* The system refuses to let the file grow, half-way through a write. */
TEST_WITH(test_file_size_limit, setup, teardown)
{
    fl_fence *f = open_marks(*state, 0);
    unsigned count = 0;
    char name[FL_NAME_MAX + 1];
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    struct rlimit tight = {.rlim_cur = 400 * 1000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    /* A refusal may be that of a long WAL, which is copied then and begins anew. */
    for (unsigned more = fill(f, 0); more > 0; more = fill(f, count)) {
        count += more;
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(count > 300);
    check_filled(f, 0, count);
    int n = snprintf(name, sizeof(name), "%0200u", count);
    assert_int_equal(fl_fence_admit(f, name, (size_t)n, 100 + count, NULL), 0);
    fl_fence_close(f);
    f = open_marks(*state, 0);
    check_filled(f, 0, count + 1);
    fl_fence_close(f);
}

#define THREADS 8
#define LOCKS 4
#define PER_THREAD 60

struct worker {
    fl_fence *fence;
    fl_token seen[LOCKS];
    unsigned number;
    unsigned stale;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    for (unsigned i = 0; i < PER_THREAD; i++) {
        char name[2] = {(char)('a' + (i + w->number) % LOCKS), 0};
        fl_token token = 1 + i * THREADS + w->number;
        fl_token mark = 0;
        int rc = fl_fence_admit(w->fence, name, 1, token, &mark);
        if ((rc != 0 && rc != FL_ESTALE) || (rc == 0 && mark != token) ||
            (rc == FL_ESTALE && mark <= token)) {
            return w;
        }
        w->stale += rc == FL_ESTALE ? 1 : 0;
        fl_token *seen = &w->seen[(i + w->number) % LOCKS];
        if (mark < *seen || fl_fence_mark(w->fence, name, 1, &mark) != 0 || mark < *seen) {
            return w; /* the mark became smaller */
        }
        *seen = mark;
    }
    return NULL;
}

/* Beside the writers one thread keeps raising the floor, below everything they use. */
static void *forget_work(void *arg)
{
    for (fl_token floor = 1; floor < 50; floor++) {
        size_t removed;
        if (fl_fence_forget(arg, floor, 2, &removed) != 0) {
            return arg;
        }
    }
    return NULL;
}

TEST_WITH(test_threads, setup, teardown)
{
    fl_fence *f = open_marks(*state, 0);
    struct worker workers[THREADS] = {0};
    pthread_t threads[THREADS];
    pthread_t forgetter;
    void *bad = NULL;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].fence = f;
        workers[i].number = i;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    assert_int_equal(pthread_create(&forgetter, NULL, forget_work, f), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    assert_int_equal(pthread_join(forgetter, &bad), 0);
    assert_null(bad);
    fl_token want[LOCKS] = {0};
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned l = 0; l < LOCKS; l++) {
            want[l] = workers[i].seen[l] > want[l] ? workers[i].seen[l] : want[l];
        }
    }
    fl_fence_close(f);
    f = open_marks(*state, 0);
    for (unsigned l = 0; l < LOCKS; l++) {
        char name[2] = {(char)('a' + l), 0};
        assert_int_equal(mark_of(f, name), want[l]);
    }
    fl_fence_close(f);
}

/* A child admits ever larger tokens and reports each through a pipe after it was admitted, until it
 * is killed. */
static void admit_until_killed(const char *data, int out, fl_token from)
{
    fl_fence *f;
    if (fl_fence_open(data, 0, &f) != 0) {
        _exit(1);
    }
    for (fl_token t = from;; t++) {
        if (admit(f, "lock", t) != 0 || write(out, &t, sizeof(t)) != sizeof(t)) {
            _exit(1);
        }
    }
}

TEST_WITH(test_killed, setup, teardown)
{
    struct scratch *s = *state;
    uint64_t random = rng_seed();
    fl_token acked = 0;
    for (unsigned round = 0; round < 40; round++) {
        int fds[2];
        fl_token got;
        assert_int_equal(pipe(fds), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)close(fds[0]);
            admit_until_killed(s->data, fds[1], acked + 1);
        }
        (void)close(fds[1]);
        for (uint64_t n = rng_below(&random, 20); n > 0; n--) {
            assert_int_equal(read(fds[0], &got, sizeof(got)), sizeof(got));
            acked = got;
        }
        (void)usleep((useconds_t)rng_below(&random, 1500)); /* where in a commit it is hit */
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        while (read(fds[0], &got, sizeof(got)) == sizeof(got)) {
            acked = got;
        }
        (void)close(fds[0]);
        fl_fence *f = open_marks(s, 0);
        fl_token mark = mark_of(f, "lock");
        assert_true(mark >= acked);
        assert_true(mark <= acked + 1);
        fl_fence_close(f);
    }
    assert_true(acked > 0);
}

/* Killed at any point of the creation, the next opening succeeds. */
TEST_WITH(test_killed_while_creating, setup, teardown)
{
    struct scratch *s = *state;
    uint64_t random = rng_seed();
    for (unsigned round = 0; round < 60; round++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            fl_fence *f;
            _exit(fl_fence_open(s->data, 0, &f) == 0 ? 0 : 1);
        }
        (void)usleep((useconds_t)rng_below(&random, 3000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        fl_fence *f = open_marks(s, 0);
        assert_int_equal(admit(f, "a", round + 1), 0);
        fl_fence_close(f);
        if (round % 2 == 0) {
            scratch_remove(s->data, 2);
        }
    }
}
