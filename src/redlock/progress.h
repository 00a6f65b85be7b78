/* progress.h: how far taking a lock on Redis servers has come, for programs of our own. */
#ifndef FLI_REDLOCK_PROGRESS_H
#define FLI_REDLOCK_PROGRESS_H

#include "fencelock/redlock.h"

/* What the servers have said to the present attempt of a call; it asks none. True: that attempt has
 * ended, and the next one has not begun. */
bool fli_redlock_progress(fl_client *c, fl_call call, struct fl_redlock_report *ret);

#endif
