/* fencelockd_begin.h: `fencelockd --restore` and `--recover-from`. */
#ifndef CLI_FENCELOCKD_BEGIN_H
#define CLI_FENCELOCKD_BEGIN_H

#include "server/config.h"

/* Makes the data directory, and prints what it did and what was lost. Returns the exit code: 0; 2:
 * refused; 1: the disk failed. */
int fencelockd_begin(const struct config *c);

#endif
