/* test_base.c: error codes and their texts, the clock and randomness, and that assertions and fatal
 * errors really stop the process, with a message. */
#include "../../lib/rng.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"

TEST(test_errors)
{
    static const struct {
        int code;
        const char *name;
        enum fl_err_class class;
    } rows[] = {
#define ROW(name, code, class, text) {FL_##name, #name, FL_CLASS_##class},
        FL_ERR_MAP(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(fl_err_name(rows[i].code), rows[i].name);
        assert_int_equal(fl_err_class(rows[i].code), rows[i].class);
        assert_true(strlen(fl_strerror(rows[i].code)) > 3);
        assert_string_not_equal(fl_strerror(rows[i].code), "unknown error");
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(rows[i].code, rows[j].code);
            assert_string_not_equal(fl_strerror(rows[i].code), fl_strerror(rows[j].code));
        }
    }
    assert_int_equal(fl_err_class(FL_EUNCERTAIN), FL_CLASS_UNKNOWN);
    assert_int_equal(fl_err_class(FL_ESTALE), FL_CLASS_REFUSED);
    assert_int_equal(fl_err_class(FL_ECORRUPT), FL_CLASS_FAULT);
    assert_int_equal(fl_err_class(0), FL_CLASS_OK);
    assert_string_equal(fl_err_name(0), "OK");
    assert_int_equal(fl_err_class(-5), FL_CLASS_FAULT);
    assert_int_equal(fl_err_class(1), FL_CLASS_FAULT);
    assert_string_equal(fl_err_name(-5), "?");
    assert_string_equal(fl_strerror(-5), "unknown error");
}

static void fail_assertion(void)
{
    int one = 1;
    FLI_ASSERT(one == 2);
}

static void fail_fatally(void)
{
    fli_fatal("disk %d is gone", 7);
}

static void fail_with_a_long_message(void)
{
    static char text[5000];
    memset(text, 'm', sizeof text - 1);
    fli_fatal("%s", text);
}

static void fail_to_allocate(void)
{
    /* More than any address space holds; volatile, so that no compiler knows. */
    volatile size_t huge = (size_t)PTRDIFF_MAX / 2;
    free(fli_xmalloc(huge));
}

static void fail_to_allocate_zeroed(void)
{
    volatile size_t huge = SIZE_MAX / 8;
    free(fli_xcalloc(huge, 16)); /* The product wraps. */
}

/* Runs fn in a child and expects it to die of SIGABRT after saying `want` on standard error. */
static void assert_dies(void (*fn)(void), const char *want)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(fds[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(fds[1]);
    char text[8192];
    size_t len = 0;
    ssize_t n;
    while ((n = read(fds[0], text + len, sizeof text - 1 - len)) > 0) {
        len += (size_t)n;
    }
    text[len] = '\0';
    close(fds[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, want));
    assert_int_equal(text[len - 1], '\n');
}

TEST(test_deaths)
{
    assert_dies(fail_assertion, "assertion failed: one == 2 (");
    assert_dies(fail_fatally, "fencelock: fatal: disk 7 is gone\n");
    assert_dies(fail_with_a_long_message, "fatal: mmmmmm");
}

TEST(test_out_of_memory)
{
    assert_dies(fail_to_allocate, "out of memory");
    assert_dies(fail_to_allocate_zeroed, "out of memory");
}

TEST(test_allocation)
{
    void *p = fli_xmalloc(0);
    assert_non_null(p);
    free(p);
    uint8_t *z = fli_xcalloc(10, 10);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(z[i], 0);
    }
    free(z);
    p = fli_xcalloc(0, 10);
    assert_non_null(p);
    free(p);
}

TEST(test_clock)
{
    uint64_t last = fli_clock_ns();
    assert_true(last > 0);
    for (int i = 0; i < 10000; i++) {
        uint64_t now = fli_clock_ns();
        assert_true(now >= last);
        last = now;
    }
    uint64_t ms = fli_clock_ms(); /* the same clock, in other units */
    assert_true(ms >= last / 1000000);
    assert_true(fli_clock_ns() / 1000000 >= ms);
}

TEST(test_random)
{
    uint8_t bytes[1000] = {0};
    fli_random(bytes, 0);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 0);
    }
    fli_random(bytes, 999);
    assert_int_equal(bytes[999], 0); /* no more than asked for */
    size_t zeros = 0;
    for (size_t i = 0; i < 999; i++) {
        zeros += bytes[i] == 0;
    }
    assert_true(zeros < 100); /* about 4 are expected; 100 would be a broken generator */
}
