/* progress.h: how far taking a lock on Redis servers has come, for programs of our own. */
#ifndef FLI_REDLOCK_PROGRESS_H
#define FLI_REDLOCK_PROGRESS_H

#include "fencelock/redlock.h"

/* Writes what is wrong with the servers, as far as the present attempt of an acquire knows; it asks
 * none. "": enough are of use. True: the attempt has ended, and the next one has not begun. */
bool fli_redlock_progress(fl_client *c, fl_call call, char text[FL_REDLOCK_TEXT_MAX]);

#endif
