/* unsafe_ack.c: breaks a node on purpose, without a line of that in the program that ships.
 * Preloaded (LD_PRELOAD) into fencelockd, it says of each write of the log that it is on disk, and
 * keeps it in memory for LATE_MS. What the node acknowledges meanwhile is lost when it is killed;
 * it comes back as if it had never heard of that. An io_uring is refused, since nothing can come
 * between that and the disk. */
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define LATE_MS 400

struct late {
    struct late *next;
    struct timespec due;
    int fd;
    off_t offset;
    size_t len;
    unsigned char *data;
};

typedef ssize_t (*writer)(int fd, const struct iovec *iov, int n, off_t offset, int flags);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct late *first, **last = &first;
static int running;

static writer real(void)
{
    static writer found;
    void *symbol = found == NULL ? dlsym(RTLD_NEXT, "pwritev2") : NULL;
    if (symbol != NULL) {
        memcpy((void *)&found, &symbol, sizeof found);
    }
    return found;
}

static struct late *next_one(void)
{
    pthread_mutex_lock(&mutex);
    while (first == NULL) {
        pthread_cond_wait(&wake, &mutex);
    }
    struct late *l = first;
    first = l->next;
    last = first == NULL ? &first : last;
    pthread_mutex_unlock(&mutex);
    return l;
}

static void *write_them(void *ctx)
{
    for (;;) {
        struct late *l = next_one();
        struct iovec iov = {l->data, l->len};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &l->due, NULL) == EINTR) {
        }
        if (real()(l->fd, &iov, 1, l->offset, RWF_DSYNC) != (ssize_t)l->len) {
            abort();
        }
        close(l->fd);
        free(l->data);
        free(l);
    }
    return ctx;
}

/* A descriptor of its own, since the log may close the file meanwhile. */
static struct late *keep(int fd, const struct iovec *iov, off_t offset)
{
    struct late *l = calloc(1, sizeof *l);
    if (l == NULL || posix_memalign((void **)&l->data, 4096, iov->iov_len) != 0) {
        abort();
    }
    memcpy(l->data, iov->iov_base, iov->iov_len);
    l->len = iov->iov_len;
    l->offset = offset;
    l->fd = dup(fd);
    (void)clock_gettime(CLOCK_MONOTONIC, &l->due);
    l->due.tv_nsec += LATE_MS * 1000000L;
    l->due.tv_sec += l->due.tv_nsec / 1000000000;
    l->due.tv_nsec %= 1000000000;
    return l;
}

static ssize_t promise(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
    pthread_t thread;
    if ((flags & RWF_DSYNC) == 0 || n != 1) {
        return real()(fd, iov, n, offset, flags);
    }
    struct late *l = keep(fd, iov, offset);
    pthread_mutex_lock(&mutex);
    if (!running && pthread_create(&thread, NULL, write_them, NULL) != 0) {
        abort();
    }
    running = 1;
    *last = l;
    last = &l->next;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&mutex);
    return (ssize_t)iov->iov_len;
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
    return promise(fd, iov, n, offset, flags);
}

EXPORT ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t offset, int flags)
{
    return promise(fd, iov, n, offset, flags);
}

EXPORT int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    return -EPERM;
}
