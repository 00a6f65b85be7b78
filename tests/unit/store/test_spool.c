/* The files of backups, which have no names: a loop that closed a large one would wait until the
 * file system has freed its blocks. Real files; two functions are wrapped, for whoever closes, and
 * for a clock that runs ahead. */
#include "scratch.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "store/spool.h"

#define VALUES 4u /* of 64 KiB: more than one piece */

struct fixture {
    struct scratch scratch;
    uv_loop_t loop;
    struct store *store;
    struct spool *spool;
    struct fli_buf out;
};

/* ---- what is wrapped ---- */

int __real_close(int fd);
int __wrap_close(int fd);
uint64_t __real_fli_clock_ms(void);
uint64_t __wrap_fli_clock_ms(void);

static pthread_t loop_thread;
static unsigned closed, closed_by_the_loop; /* files without names */
static uint64_t ahead_ms;

int __wrap_close(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0) {
        closed++;
        closed_by_the_loop += pthread_equal(pthread_self(), loop_thread) != 0;
    }
    return __real_close(fd);
}

uint64_t __wrap_fli_clock_ms(void)
{
    return __real_fli_clock_ms() + ahead_ms;
}

/* ---- the storage ---- */

static void log_cb(void *ctx, int level, const char *message)
{
}

static void fill(struct fixture *x)
{
    static uint8_t value[64 << 10];
    for (unsigned i = 0; i < VALUES; i++) {
        uint8_t key = (uint8_t)('a' + i);
        struct store_op op = {
            .verb = STORE_SET, .key = {&key, 1}, .value = {value, sizeof value}, .fenced = false};
        struct store_op *ref = &op;
        size_t done = 0;
        assert_int_equal(store_execute(x->store, &ref, 1, &done), 0);
        assert_int_equal(op.result, 0);
    }
}

static int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    char errmsg[256] = "";
    closed = closed_by_the_loop = 0;
    ahead_ms = 0;
    loop_thread = pthread_self();
    scratch_init(&x->scratch);
    int rc =
        store_open(x->scratch.data, STORE_SIZE_DEFAULT, false, &x->store, errmsg, sizeof errmsg);
    if (rc != 0) {
        fail_msg("%d %s", rc, errmsg);
    }
    fill(x);
    assert_int_equal(uv_loop_init(&x->loop), 0);
    assert_int_equal(spool_create(&x->loop, x->store, log_cb, NULL, &x->spool), 0);
    fli_buf_init(&x->out, (size_t)1 << 20);
    *state = x;
    return 0;
}

/* From whatever state it is in: the loop ends when the last file is closed. */
static int tear_down(void **state)
{
    struct fixture *x = *state;
    spool_close(x->spool);
    uv_run(&x->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&x->loop), 0);
    assert_int_equal(closed_by_the_loop, 0);
    fli_buf_fini(&x->out);
    store_close(x->store);
    scratch_fini(&x->scratch);
    free(x);
    return 0;
}

static int closes_one(void **state)
{
    int rc = tear_down(state);
    assert_int_equal(closed, 1);
    return rc;
}

static int closes_two(void **state)
{
    int rc = tear_down(state);
    assert_int_equal(closed, 2);
    return rc;
}

/* ---- a client ---- */

/* The answer, up to its end of line. */
static const char *ask(struct fixture *x, uint64_t id, uint64_t offset)
{
    static char line[256];
    struct fli_request q = {.number = id, .offset = offset};
    x->out.len = 0;
    assert_true(spool_answer(x->spool, &x->out, &q, 1 << 20));
    size_t len = x->out.len < sizeof line - 1 ? x->out.len : sizeof line - 1;
    memcpy(line, x->out.data, len);
    line[len] = '\0';
    line[strcspn(line, "\r")] = '\0';
    return line;
}

static uint64_t begin(struct fixture *x)
{
    const char *line = ask(x, 0, 0);
    if (line[0] != ':') {
        fail_msg("%s", line);
    }
    return strtoull(line + 1, NULL, 10);
}

/* Asks until the worker has written it: a piece, or why there is none. */
static const char *first_answer(struct fixture *x, uint64_t id)
{
    const char *line = ask(x, id, 0);
    while (strcmp(line, "$-1") == 0) {
        uv_run(&x->loop, UV_RUN_ONCE);
        line = ask(x, id, 0);
    }
    return line;
}

static void read_all(struct fixture *x, uint64_t id)
{
    uint64_t offset = 0;
    const char *line = first_answer(x, id);
    while (strcmp(line, "$0") != 0) {
        assert_int_equal(line[0], '$');
        offset += strtoull(line + 1, NULL, 10);
        line = ask(x, id, offset);
    }
    assert_true(offset > (uint64_t)VALUES * (64 << 10));
}

/* ---- tests ---- */

/* Another one may begin at once, while the file of the first is being closed. */
TEST_WITH(one_after_another, set_up, closes_two)
{
    struct fixture *x = *state;
    struct spool_counts counts;
    read_all(x, begin(x));
    uint64_t id = begin(x);
    assert_string_equal(ask(x, id, 0), "$-1");
    read_all(x, id);
    spool_get_counts(x->spool, &counts);
    assert_int_equal(counts.made, 2);
    assert_int_equal(counts.failed, 0);
}

TEST_WITH(one_that_is_replaced, set_up, closes_two)
{
    struct fixture *x = *state;
    struct spool_counts counts;
    uint64_t old = begin(x);
    assert_int_equal(first_answer(x, old)[0], '$');
    assert_non_null(strstr(ask(x, 0, 0), "BUSY"));
    ahead_ms += SPOOL_STALE_MS;
    read_all(x, begin(x));
    assert_non_null(strstr(ask(x, old, 0), "NOTFOUND"));
    spool_get_counts(x->spool, &counts);
    assert_int_equal(counts.made, 1);
    assert_int_equal(counts.failed, 1);
}

/* What was written in part is no use to anybody, so the worker closes it at once. */
TEST_WITH(one_that_fails, set_up, closes_two)
{
    struct fixture *x = *state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {.rlim_cur = 10000, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    uint64_t id = begin(x);
    assert_non_null(strstr(first_answer(x, id), strerror(EFBIG)));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(closed, 1);
    read_all(x, begin(x));
}

/* It ends while a backup is written, is read, or waits for the file of another one. */
TEST_WITH(closed_while_it_writes, set_up, closes_one)
{
    struct fixture *x = *state;
    (void)begin(x);
}

TEST_WITH(closed_while_it_is_read, set_up, closes_one)
{
    struct fixture *x = *state;
    assert_int_equal(first_answer(x, begin(x))[0], '$');
}

TEST_WITH(closed_while_it_closes, set_up, closes_one)
{
    struct fixture *x = *state;
    read_all(x, begin(x));
}

TEST_WITH(closed_while_one_waits, set_up, closes_one)
{
    struct fixture *x = *state;
    read_all(x, begin(x));
    (void)begin(x);
}
