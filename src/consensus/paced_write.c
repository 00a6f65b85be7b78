/* paced_write.c: see paced_write.h. Runs in libuv's threads. */
#include "consensus/paced_write.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/base.h"
#include "base/clock.h"

#define PAUSE_MIN_MS 1u
#define PAUSE_MAX_MS 50u

typedef int write_fn(uv_loop_t *loop, uv_fs_t *req, uv_file file, const uv_buf_t bufs[],
                     unsigned int nbufs, int64_t offset, uv_fs_cb cb);

static _Atomic uint64_t count;

uint64_t paced_write_count(void)
{
    return atomic_load(&count);
}

static int write_all(int fd, const char *p, size_t len, int64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : UV_EIO;
        }
        p += n;
        len -= (size_t)n;
        offset += n;
    }
    return 0;
}

static int write_piece(int fd, const char *p, size_t len, int64_t offset)
{
    uint64_t start_ns = fli_clock_ns();
    int rv = write_all(fd, p, len, offset);
    if (rv == 0 && fdatasync(fd) != 0) {
        rv = -errno;
    }
    uint64_t took_ms = (fli_clock_ns() - start_ns) / 1000000;
    if (rv == 0) {
        uv_sleep(took_ms < PAUSE_MIN_MS   ? PAUSE_MIN_MS
                 : took_ms > PAUSE_MAX_MS ? PAUSE_MAX_MS
                                          : (unsigned)took_ms);
    }
    return rv;
}

static int write_paced(int fd, const uv_buf_t bufs[], unsigned nbufs, int64_t offset)
{
    atomic_fetch_add(&count, 1);
    for (unsigned i = 0; i < nbufs; i++) {
        for (size_t done = 0; done < bufs[i].len;) {
            size_t left = bufs[i].len - done;
            size_t len = left < PACED_WRITE_PIECE ? left : PACED_WRITE_PIECE;
            int rv = write_piece(fd, bufs[i].base + done, len, offset);
            if (rv != 0) {
                return rv;
            }
            done += len;
            offset += (int64_t)len;
        }
    }
    return 0;
}

static write_fn *real_write(void)
{
    static _Atomic(write_fn *) known;
    write_fn *fn = atomic_load(&known);
    if (fn == NULL) {
        void *found = dlsym(RTLD_NEXT, "uv_fs_write");
        if (found == NULL) {
            fli_fatal("libuv has no uv_fs_write");
        }
        memcpy(&fn, &found, sizeof fn); /* C has no conversion to the address of a function */
        atomic_store(&known, fn);
    }
    return fn;
}

void paced_write_init(void)
{
    (void)real_write();
}

int uv_fs_write(uv_loop_t *loop, uv_fs_t *req, uv_file file, const uv_buf_t bufs[],
                unsigned int nbufs, int64_t offset, uv_fs_cb cb)
{
    uint64_t size = 0;
    for (unsigned i = 0; i < nbufs; i++) {
        size += bufs[i].len;
    }
    if (cb != NULL || offset < 0 || size < PACED_WRITE_MIN || size > INT32_MAX) {
        return real_write()(loop, req, file, bufs, nbufs, offset, cb);
    }
    int rv = write_paced(file, bufs, nbufs, offset);
    return rv != 0 ? rv : (int)size;
}
