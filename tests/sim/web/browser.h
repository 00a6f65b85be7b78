/* browser.h: what the C library for WebAssembly lacks. Included before each file that is compiled
 * for the browser; the simulation has no files, so nothing of this is ever called. */
#ifndef SIM_WEB_BROWSER_H
#define SIM_WEB_BROWSER_H

#include <errno.h>

#define RENAME_NOREPLACE 1

static inline int renameat2(int from_dir, const char *from, int to_dir, const char *to,
                            unsigned how)
{
    (void)from_dir, (void)from, (void)to_dir, (void)to, (void)how;
    errno = ENOSYS;
    return -1;
}

#endif
