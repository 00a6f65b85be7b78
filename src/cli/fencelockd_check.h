/* fencelockd_check.h: `fencelockd --check`. */
#ifndef CLI_FENCELOCKD_CHECK_H
#define CLI_FENCELOCKD_CHECK_H

#include "server/config.h"

/* Prints what would be done and where each value comes from. Returns the exit code: 0, or 2 when
 * it could not be done. */
int fencelockd_check(int argc, const char *const *argv, const char *const *env,
                     const struct config *c);

#endif
