/* process.c: see process.h.
 *
 * The number is in a page that the kernel empties in a child, whatever system call made the child.
 * Kernels before 4.14 cannot do that; there a handler of fork() empties it. */
#include "base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t count; /* of the numbers given in this process and its ancestors */
static _Atomic uint64_t fallback;
static _Atomic uint64_t *number = &fallback; /* 0 in a child that has not asked yet */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void empty(void)
{
    atomic_store(number, 0);
}

static void begin(void)
{
    size_t size = sizeof *number;
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        (void)pthread_atfork(NULL, NULL, empty);
    } else if (madvise(page, size, MADV_WIPEONFORK) != 0) {
        (void)munmap(page, size);
        (void)pthread_atfork(NULL, NULL, empty);
    } else {
        number = page;
    }
}

uint64_t fli_process(void)
{
    (void)pthread_once(&once, begin);
    uint64_t now = atomic_load_explicit(number, memory_order_relaxed);
    if (FLI_LIKELY(now != 0)) {
        return now;
    }
    uint64_t fresh = atomic_fetch_add(&count, 1) + 1;
    return atomic_compare_exchange_strong(number, &now, fresh) ? fresh : now;
}

bool fli_process_reopen(int fd, int opened)
{
    bool ok = opened >= 0 && dup3(opened, fd, O_CLOEXEC) == fd;
    if (opened >= 0) {
        (void)close(opened);
    }
    return ok;
}

int fli_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
