/* What other threads see of marks around the moment of a commit, which the linker lets this test
 * stand in: while marks are forgotten nobody reads one that is gone before the floor is there, and
 * no refusal rests on a commit that failed. */
#include "scratch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "fence/db.h"
#include "fencelock/fence.h"

#define DEADLINE_MS 20000
#define READER_MS 200 /* for a reader that should not have to wait; it need not come back */

int __real_fli_db_commit(struct fli_db *t);
int __wrap_fli_db_commit(struct fli_db *t);

static int (*on_commit)(struct fli_db *t); /* NULL: the commit as it is */

int __wrap_fli_db_commit(struct fli_db *t)
{
    return on_commit == NULL ? __real_fli_db_commit(t) : on_commit(t);
}

struct caller {
    pthread_t thread;
    fl_fence *fence;
    fl_token token; /* 0: only reads */
    fl_token mark;
    int result;
    atomic_int tid;
    atomic_bool done;
};

static void *call(void *arg)
{
    struct caller *c = arg;
    atomic_store(&c->tid, (int)syscall(SYS_gettid));
    c->result = c->token == 0 ? fl_fence_mark(c->fence, "a", 1, &c->mark)
                              : fl_fence_admit(c->fence, "a", 1, c->token, &c->mark);
    atomic_store(&c->done, true);
    return NULL;
}

static void begin(struct caller *c, fl_fence *f, fl_token token)
{
    memset(c, 0, sizeof *c);
    c->fence = f;
    c->token = token;
    assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
}

static void nap(void)
{
    struct timespec ms = {0, 1000000};
    (void)nanosleep(&ms, NULL);
}

static bool sleeps(const struct caller *c)
{
    char path[64];
    char text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&c->tid));
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        return false;
    }
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    const char *state = strrchr(text, ')');
    return state != NULL && state[1] != '\0' && state[2] == 'S';
}

static void wait_asleep(const struct caller *c)
{
    for (unsigned i = 0; i < DEADLINE_MS && !(atomic_load(&c->tid) != 0 && sleeps(c)); i++) {
        nap();
    }
}

/* ---- forgetting ---- */

static struct caller reader;
static fl_fence *fence;

static int commit_and_read(struct fli_db *t)
{
    int rc = __real_fli_db_commit(t);
    on_commit = NULL;
    begin(&reader, fence, 0);
    for (unsigned i = 0; i < READER_MS && !atomic_load(&reader.done); i++) {
        nap();
    }
    return rc;
}

TEST(test_a_mark_that_is_forgotten_is_the_floor)
{
    struct scratch s;
    fl_token mark = 0;
    size_t removed = 0;
    scratch_init(&s);
    assert_int_equal(fl_fence_open(s.data, 0, &fence), 0);
    assert_int_equal(fl_fence_admit(fence, "a", 1, 5, &mark), 0);
    on_commit = commit_and_read;
    assert_int_equal(fl_fence_forget(fence, 8, 10, &removed), 0);
    assert_int_equal(removed, 1);
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    assert_int_equal(reader.result, 0);
    assert_int_equal(reader.mark, 8);
    fl_fence_close(fence);
    scratch_fini(&s);
}

/* ---- a commit that fails ---- */

static struct caller higher, lower;

static int commit_fails(struct fli_db *t)
{
    fli_db_rollback(t);
    return FL_EIO;
}

/* The first commit lasts until both others stand in the queue, so that they share the next. */
static int commit_lasts(struct fli_db *t)
{
    begin(&higher, fence, 10);
    wait_asleep(&higher);
    begin(&lower, fence, 5);
    wait_asleep(&lower);
    on_commit = commit_fails;
    return __real_fli_db_commit(t);
}

TEST(test_no_refusal_rests_on_a_commit_that_failed)
{
    struct scratch s;
    fl_token mark = 0;
    scratch_init(&s);
    assert_int_equal(fl_fence_open(s.data, 0, &fence), 0);
    on_commit = commit_lasts;
    assert_int_equal(fl_fence_admit(fence, "other", 5, 1, &mark), 0);
    assert_int_equal(pthread_join(higher.thread, NULL), 0);
    assert_int_equal(pthread_join(lower.thread, NULL), 0);
    assert_int_equal(higher.result, FL_EIO);
    assert_int_equal(lower.result, FL_EIO);
    on_commit = NULL;
    fl_fence_close(fence);
    scratch_fini(&s);
}
