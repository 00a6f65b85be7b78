/* disk.c: how fast a disk takes what three nodes of one cluster write at once: a 4 KiB block each,
 * written around the cache and synced, as the raft library writes its log.
 *
 *     disk DIRECTORY SECONDS
 *
 * A round is three such writes to three files, given to the kernel together, and ends when all are
 * done. Nothing that keeps three synced copies on this machine can be faster. Prints one line of
 * JSON; times are nanoseconds. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "histogram.h"

#define FILES 3
#define BLOCK 4096u
#define FILE_SIZE (8u << 20) /* as the log's segments */

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "disk: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Space is taken beforehand, as the log does, so that a write changes no file's size. */
static int open_file(const char *dir, int number)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/disk-%ld-%d", dir, (long)getpid(), number);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        die(dir);
    }
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_DIRECT, 0600);
    if (fd < 0 || unlink(path) != 0) {
        die(path);
    }
    errno = posix_fallocate(fd, 0, FILE_SIZE);
    if (errno != 0 || fsync(fd) != 0) {
        die(path);
    }
    return fd;
}

static void write_round(aio_context_t aio, const int *fds, void *block, off_t at)
{
    struct iocb requests[FILES];
    struct iocb *list[FILES];
    struct io_event events[FILES];
    memset(requests, 0, sizeof requests);
    for (int i = 0; i < FILES; i++) {
        requests[i].aio_lio_opcode = IOCB_CMD_PWRITE;
        requests[i].aio_fildes = (uint32_t)fds[i];
        requests[i].aio_buf = (uint64_t)(uintptr_t)block;
        requests[i].aio_nbytes = BLOCK;
        requests[i].aio_offset = at;
        requests[i].aio_rw_flags = RWF_DSYNC;
        list[i] = &requests[i];
    }
    if (syscall(SYS_io_submit, aio, FILES, list) != FILES) {
        die("submit");
    }
    if (syscall(SYS_io_getevents, aio, FILES, FILES, events, NULL) != FILES) {
        die("wait");
    }
    for (int i = 0; i < FILES; i++) {
        if (events[i].res != BLOCK) {
            errno = EIO;
            die("write");
        }
    }
}

int main(int argc, char **argv)
{
    static struct histogram h;
    double seconds = argc == 3 ? strtod(argv[2], NULL) : 0;
    if (seconds <= 0) {
        fputs("usage: disk DIRECTORY SECONDS\n", stderr);
        return 2;
    }
    int fds[FILES];
    aio_context_t aio = 0;
    void *block = NULL;
    if (syscall(SYS_io_setup, FILES, &aio) != 0 || posix_memalign(&block, BLOCK, BLOCK) != 0) {
        die("set up");
    }
    memset(block, 'x', BLOCK);
    for (int i = 0; i < FILES; i++) {
        fds[i] = open_file(argv[1], i);
    }
    uint64_t start = fli_clock_ns();
    uint64_t end = start + (uint64_t)(seconds * 1e9);
    uint64_t now = start;
    while (now < end) {
        write_round(aio, fds, block, (off_t)(h.n * BLOCK % FILE_SIZE));
        uint64_t done = fli_clock_ns();
        histogram_add(&h, done - now);
        now = done;
    }
    printf("{\"rounds\":%" PRIu64 ",\"measured_ns\":%" PRIu64 ",\"p50\":%" PRIu64
           ",\"p99\":%" PRIu64 "}\n",
           h.n, now - start, histogram_percentile(&h, 500), histogram_percentile(&h, 990));
    return 0;
}
