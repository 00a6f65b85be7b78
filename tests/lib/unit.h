/* unit.h: what every unit test starts with: cmocka with the headers it needs before it, those of
 * the C library for text and memory, and tests that are in the list of their program by being
 * written:
 *     TEST(the_map_grows)
 *     {
 *         ...
 *     }
 * TEST_WITH gives a test a set-up and a tear-down, or NULL. What they leave is in *state, which is
 * cmocka's `void **state`. The program runs its tests in the order of the file; an argument is the
 * pattern of the names to run. A program that is told to end (SIGTERM: it took too long) says where
 * it was. */
#ifndef TEST_UNIT_H
#define TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, set_up, tear_down)                                                         \
    static void name(void **state);                                                                \
    __attribute__((constructor)) static void add_##name(void)                                      \
    {                                                                                              \
        unit_add((struct CMUnitTest){#name, name, set_up, tear_down, NULL}, __LINE__);             \
    }                                                                                              \
    static void name(void **state)

void unit_add(struct CMUnitTest test, int line);
/* For programs whose main() does more than this; with the set-up of the program itself. */
int unit_run(int argc, char **argv, CMFixtureFunction set_up, CMFixtureFunction tear_down);

#endif
