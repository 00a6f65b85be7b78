/* fencelockd_begin.h: `fencelockd --restore` and `--recover-from`. */
#ifndef CLI_FENCELOCKD_BEGIN_H
#define CLI_FENCELOCKD_BEGIN_H

#include "server/config.h"

/* Makes the directory and says what it did, and what was lost. Returns the exit code: 0, or 2 when
 * it was refused, or 1 when the disk failed. */
int fencelockd_begin(const struct config *c);

#endif
