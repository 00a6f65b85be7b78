/* standard.c: see standard.h. */
#include "base/standard.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

bool fli_standard_keep(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", mode) != fd) {
            return false;
        }
    }
    return true;
}

bool fli_standard_flush(void)
{
    return fflush(stdout) == 0 && ferror(stdout) == 0;
}
