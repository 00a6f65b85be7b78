/* fencelockd_check.h: `fencelockd --check`. */
#ifndef CLI_FENCELOCKD_CHECK_H
#define CLI_FENCELOCKD_CHECK_H

#include "server/config.h"

/* Prints what a start would do, and where each value comes from. Returns the exit code: 0, or 2: a
 * start would fail. */
int fencelockd_check(int argc, const char *const *argv, const char *const *env,
                     const struct config *c);

#endif
