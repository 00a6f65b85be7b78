/* shim_calls.c: what the shim does to calls that are not about files: sockets, clocks, memory, and
 * whatever makes something that there may be no more of. See shim.c. */
#include <signal.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"
#include "shim_stack.h"

_Noreturn void shim_die(void)
{
    (void)kill(getpid(), SIGKILL);
    for (;;) {
        (void)pause(); /* this thread must not get on until then */
    }
}

int shim_fails(enum kind kind)
{
    if (shim_slots == NULL) {
        return 0;
    }
    _Atomic int64_t *k = &shim_slots[SLOT_KINDS + 4 * (int)kind];
    int64_t call = atomic_fetch_add(&k[0], 1) + 1;
    if (call != atomic_load(&k[1])) {
        return 0;
    }
    atomic_fetch_add(&k[3], 1);
    if (atomic_load(&k[2]) == KILLED_BEFORE) {
        shim_die();
    }
    shim_stack_put();
    return (int)atomic_load(&k[2]);
}

/* ---- threads, processes, and what else there may be no more of ---- */

EXPORT int pthread_create(pthread_t *restrict ret, const pthread_attr_t *restrict attr,
                          void *(*main)(void *), void *restrict ctx)
{
    REAL(int, "pthread_create", pthread_t *restrict, const pthread_attr_t *restrict,
         void *(*)(void *), void *restrict);
    int error = shim_fails(KIND_MAKE);
    return error != 0 ? error : real(ret, attr, main, ctx);
}

/* No thread is in the middle of the journal when it is copied. */
EXPORT pid_t fork(void)
{
    REAL(pid_t, "fork", void);
    int error = shim_fails(KIND_FORK);
    if (error != 0) {
        return shim_refuse(error);
    }
    pthread_mutex_lock(&shim_undo_lock);
    pid_t pid = real();
    pthread_mutex_unlock(&shim_undo_lock);
    return pid;
}

EXPORT int pipe2(int ends[2], int flags)
{
    int error = shim_fails(KIND_MAKE);
    return error != 0 ? shim_refuse(error) : (int)syscall(SYS_pipe2, ends, flags);
}

EXPORT int eventfd(unsigned count, int flags)
{
    int error = shim_fails(KIND_MAKE);
    return error != 0 ? shim_refuse(error) : (int)syscall(SYS_eventfd2, count, flags);
}

/* A child that closes all it does not know keeps the journal. */
static long close_range_but_journal(long (*real)(long number, ...), unsigned first, unsigned last,
                                    long flags)
{
    unsigned kept = (unsigned)shim_undo_fd;
    if (shim_undo_fd < 0 || kept < first || kept > last) {
        return real(SYS_close_range, first, last, flags);
    }
    long rc = first < kept ? real(SYS_close_range, first, kept - 1, flags) : 0;
    return rc == 0 && kept < last ? real(SYS_close_range, kept + 1, last, flags) : rc;
}

EXPORT long syscall(long number, ...)
{
    REAL(long, "syscall", long, ...);
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(args, long);
    }
    va_end(args);
    if (number == SYS_close_range) {
        return close_range_but_journal(real, (unsigned)a[0], (unsigned)a[1], a[2]);
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

/* ---- sockets ---- */

EXPORT int accept4(int fd, struct sockaddr *restrict addr, socklen_t *restrict len, int flags)
{
    int error = shim_fails(KIND_ACCEPT);
    if (error != 0) {
        return shim_refuse(error);
    }
    int got = (int)syscall(SYS_accept4, fd, addr, len, flags);
    shim_forget(got);
    return got;
}

EXPORT int accept(int fd, struct sockaddr *restrict addr, socklen_t *restrict len)
{
    return accept4(fd, addr, len, 0);
}

/* ---- clocks ---- */

static int64_t shifted(clockid_t id, int64_t ns)
{
    switch (id) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return ns + shim_slot(SLOT_WALL_NS);
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME: {
        int at = SLOT_PACES + 3 * (int)(shim_slot(SLOT_PACE) & 1);
        return ns + shim_slot(at + 2) + (ns - shim_slot(at + 1)) / 1000000 * shim_slot(at);
    }
    default:
        return ns;
    }
}

EXPORT int clock_gettime(clockid_t id, struct timespec *t)
{
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int rc = real(id, t);
    if (rc == 0 && shim_slots != NULL) {
        int64_t ns = shifted(id, (int64_t)t->tv_sec * 1000000000 + t->tv_nsec);
        t->tv_sec = ns / 1000000000;
        t->tv_nsec = ns % 1000000000;
    }
    return rc;
}

/* Of libc's two older clocks; the names in C are others, since the lint bans those. */
EXPORT int wall_us(struct timeval *tv, void *zone) __asm__("gettimeofday");
EXPORT int wall_us(struct timeval *tv, void *zone)
{
    struct timespec t;
    int rc = clock_gettime(CLOCK_REALTIME, &t);
    if (rc == 0 && tv != NULL) {
        tv->tv_sec = t.tv_sec;
        tv->tv_usec = t.tv_nsec / 1000;
    }
    return rc;
}

EXPORT time_t wall_s(time_t *ret) __asm__("time");
EXPORT time_t wall_s(time_t *ret)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (ret != NULL) {
        *ret = t.tv_sec;
    }
    return t.tv_sec;
}

/* ---- memory ---- */

#ifndef SHIM_WITHOUT_MEMORY
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static bool no_memory(void)
{
    if (shim_fails(KIND_ALLOC) == 0) {
        return false;
    }
    errno = ENOMEM;
    return true;
}

EXPORT void *malloc(size_t size)
{
    return no_memory() ? NULL : __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
    return no_memory() ? NULL : __libc_calloc(n, size);
}

EXPORT void *realloc(void *old, size_t size)
{
    return no_memory() ? NULL : __libc_realloc(old, size);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return no_memory() ? NULL : __libc_memalign(alignment, size);
}

EXPORT int posix_memalign(void **ret, size_t alignment, size_t size)
{
    void *p = no_memory() ? NULL : __libc_memalign(alignment, size);
    if (p == NULL) {
        return ENOMEM;
    }
    *ret = p;
    return 0;
}
#endif
