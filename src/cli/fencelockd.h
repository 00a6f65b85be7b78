/* fencelockd.h: what fencelockd can do besides serving. */
#ifndef CLI_FENCELOCKD_H
#define CLI_FENCELOCKD_H

#include "server/config.h"

/* --check: prints what a start would do, and where each value comes from. Returns the exit code: 0,
 * or 2: a start would fail. */
int fencelockd_check(int argc, const char *const *argv, const char *const *env,
                     const struct config *c);

/* --restore and --recover-from: makes the data directory, and prints what it did and what was lost.
 * Or ends the process: with 2 when it is refused, with 1 when the disk failed. */
void fencelockd_begin(const struct config *c);

#endif
