/* unit.c: see unit.h. */
#include "unit.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#define TESTS_MAX 128

static struct CMUnitTest tests[TESTS_MAX];
static int lines[TESTS_MAX];
static size_t tests_n;

/* Compilers call the constructors of a file in any order: the lines say which comes first. */
void unit_add(struct CMUnitTest test, int line)
{
    if (tests_n == TESTS_MAX) {
        fprintf(stderr, "more than %d tests: raise TESTS_MAX of unit.c\n", TESTS_MAX);
        abort();
    }
    size_t at = tests_n++;
    for (; at > 0 && lines[at - 1] > line; at--) {
        lines[at] = lines[at - 1];
        tests[at] = tests[at - 1];
    }
    lines[at] = line;
    tests[at] = test;
}

/* addr2line -fe PROGRAM ADDRESS tells the lines. */
static void say_where(int signal)
{
    static const char TEXT[] = "unit: SIGTERM, as of what takes too long. It is here:\n";
    void *frames[64];
    ssize_t written = write(STDERR_FILENO, TEXT, sizeof TEXT - 1);
    (void)written;
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    _exit(128 + signal);
}

/* The first backtrace() takes memory, which a handler of signals must not. */
static void say_where_when_told_to_end(void)
{
    void *frame;
    struct sigaction action = {.sa_handler = say_where};
    (void)backtrace(&frame, 1);
    (void)sigaction(SIGTERM, &action, NULL);
}

int unit_run(int argc, char **argv, CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    if (tests_n == 0) {
        fprintf(stderr, "this program has no tests\n");
        return 2;
    }
    say_where_when_told_to_end();
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return _cmocka_run_group_tests(program_invocation_short_name, tests, tests_n, set_up,
                                   tear_down);
}
