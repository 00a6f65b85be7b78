/* process.h: which process this is, for handles that a child of fork() inherits.
 *
 * A handle keeps the number of the process that made it. In a child the number is another one: so
 * the handle was inherited, and its sockets, its epoll descriptor and its locks are the parent's.
 * A process id would not do, since it is used again, and each container has its process 1.
 *
 * And how its threads begin. */
#ifndef FLI_BASE_PROCESS_H
#define FLI_BASE_PROCESS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/base.h"

/* Never 0. Larger in a child than in its parent, however it was forked. Any thread. */
uint64_t fli_process(void);

/* Whether something that was granted to `process` (0: not known) is the parent's. */
static inline bool fli_grant_is_inherited(uint64_t process)
{
    return process != 0 && process != fli_process();
}

/* Puts the descriptor `opened` (-1: it could not be opened) under the number of an inherited one,
 * which is closed here and stays as it is in the parent. False: not possible. */
bool fli_process_reopen(int fd, int opened) FLI_MUST_USE;

/* Starts a thread that gets no signals: they go to the main thread. 0 or an errno. */
int fli_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg) FLI_MUST_USE;

#endif
