/* daemon_files.c: see daemon_files.h. */
#include "cli/daemon_files.h"

#include <sys/resource.h>

void daemon_raise_open_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}
