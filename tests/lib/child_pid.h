/* child_pid.h: the process that a test's own process has forked. */
#ifndef TEST_CHILD_PID_H
#define TEST_CHILD_PID_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* The first child of the thread that the program began with; 0: it has none. */
static inline pid_t child_pid(void)
{
    char path[64];
    char text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    bool any = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    return any ? (pid_t)strtol(text, NULL, 10) : 0;
}

#endif
