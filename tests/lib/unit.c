/* unit.c: see unit.h. */
#include "unit.h"

#include <errno.h>

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

int unit_run(int argc, char **argv, CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    if (tests_n == 0) {
        fprintf(stderr, "this program has no tests\n");
        return 2;
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return _cmocka_run_group_tests(program_invocation_short_name, tests, tests_n, set_up,
                                   tear_down);
}
