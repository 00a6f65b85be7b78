/* blocking.h: for programs that are interrupted while a call blocks. */
#ifndef FLI_REDLOCK_BLOCKING_H
#define FLI_REDLOCK_BLOCKING_H

#include "fencelock/redlock.h"

/* Every later acquire that blocks is cancelled when fd is readable; -1: none is. */
void fli_redlock_stop_at(fl_redlock *r, int fd);

#endif
