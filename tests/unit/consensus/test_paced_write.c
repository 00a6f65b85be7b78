/* test_paced_write.c: large writes leave the same bytes and the same answers as libuv's own, and
 * the raft library's snapshots go that way. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <raft.h>
#include <raft/uv.h>
#include <uv.h>

#include "consensus/paced_write.h"
#include "scratch.h"

/* Different in every place, so that a piece that went elsewhere shows. */
static char *make_bytes(size_t len)
{
    char *p = malloc(len);
    assert_non_null(p);
    for (size_t i = 0; i < len; i++) {
        p[i] = (char)(i * 31 + i / 4096);
    }
    return p;
}

static int open_in(const char *dir, int flags)
{
    char path[512];
    snprintf(path, sizeof path, "%s/file", dir);
    int fd = open(path, flags | O_CREAT, 0600);
    assert_true(fd >= 0);
    return fd;
}

static int write_all(int fd, const uv_buf_t *bufs, unsigned n, int64_t offset)
{
    uv_fs_t req;
    return uv_fs_write(NULL, &req, fd, bufs, n, offset, NULL);
}

static void check_file(int fd, const char *want, size_t len, off_t offset)
{
    char *got = malloc(len);
    assert_non_null(got);
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(fd, got + done, len - done, offset + (off_t)done);
        assert_true(n > 0);
        done += (size_t)n;
    }
    assert_memory_equal(got, want, len);
    assert_int_equal(lseek(fd, 0, SEEK_END), offset + (off_t)len);
    free(got);
}

/* At the least size and one byte below it; in buffers that do not end where pieces do. */
static void writes_everything(void **state)
{
    char *dir = scratch_make();
    size_t len = PACED_WRITE_MIN;
    char *bytes = make_bytes(len);
    uint64_t before = paced_write_count();
    int fd = open_in(dir, O_RDWR);
    uv_buf_t bufs[] = {uv_buf_init(bytes, 5), uv_buf_init(bytes + 5, 0),
                       uv_buf_init(bytes + 5, 2000000),
                       uv_buf_init(bytes + 2000005, (unsigned)(len - 2000005))};
    assert_int_equal(write_all(fd, bufs, 4, 7), len);
    assert_int_equal(paced_write_count(), before + 1);
    check_file(fd, bytes, len, 7);
    assert_int_equal(ftruncate(fd, 0), 0);
    uv_buf_t less = uv_buf_init(bytes, (unsigned)len - 1);
    assert_int_equal(write_all(fd, &less, 1, 0), len - 1);
    assert_int_equal(paced_write_count(), before + 1);
    check_file(fd, bytes, len - 1, 0);
    close(fd);
    free(bytes);
    scratch_remove(dir);
}

static void tells_errors(void **state)
{
    char *dir = scratch_make();
    char *bytes = make_bytes(PACED_WRITE_MIN);
    uv_buf_t buf = uv_buf_init(bytes, (unsigned)PACED_WRITE_MIN);
    int fd = open_in(dir, O_RDONLY);
    assert_int_equal(write_all(fd, &buf, 1, 0), UV_EBADF);
    close(fd);
    assert_int_equal(write_all(fd, &buf, 1, 0), UV_EBADF);
    buf.len = 10;
    assert_int_equal(write_all(fd, &buf, 1, 0), UV_EBADF);
    free(bytes);
    scratch_remove(dir);
}

static int no_init(struct raft_uv_transport *t, raft_id id, const char *address)
{
    return 0;
}
static int no_listen(struct raft_uv_transport *t, raft_uv_accept_cb cb)
{
    return 0;
}
static int no_connect(struct raft_uv_transport *t, struct raft_uv_connect *req, raft_id id,
                      const char *address, raft_uv_connect_cb cb)
{
    return RAFT_NOCONNECTION;
}
static void no_close(struct raft_uv_transport *t, raft_uv_transport_close_cb cb)
{
    cb(t);
}
static void no_tick(struct raft_io *io)
{
}
static void no_recv(struct raft_io *io, struct raft_message *m)
{
}

static void on_put(struct raft_io_snapshot_put *req, int status)
{
    assert_int_equal(status, 0);
    *(bool *)req->data = true;
}

static void on_get(struct raft_io_snapshot_get *req, struct raft_snapshot *snapshot, int status)
{
    assert_int_equal(status, 0);
    *(struct raft_snapshot **)req->data = snapshot;
}

static void open_io(struct raft_io *io, uv_loop_t *loop, struct raft_uv_transport *t,
                    const struct raft_configuration *conf, const char *dir)
{
    raft_term term;
    raft_id voted_for;
    struct raft_snapshot *none;
    raft_index start;
    struct raft_entry *entries;
    size_t n;
    assert_int_equal(uv_loop_init(loop), 0);
    assert_int_equal(raft_uv_init(io, loop, dir, t), 0);
    assert_int_equal(io->init(io, 1, "1"), 0);
    assert_int_equal(io->bootstrap(io, conf), 0);
    assert_int_equal(io->load(io, &term, &voted_for, &none, &start, &entries, &n), 0);
    assert_int_equal(n, 1);
    raft_free(entries[0].batch);
    raft_free(entries);
    assert_int_equal(io->start(io, 1000, no_tick, no_recv), 0);
}

static void on_closed(struct raft_io *io)
{
    *(bool *)io->data = true;
}

/* What raft is given is what raft finds again, and it went through here. */
static void snapshots_are_paced(void **state)
{
    char *dir = scratch_make();
    uv_loop_t loop;
    struct raft_io io = {0};
    struct raft_configuration conf;
    struct raft_uv_transport t = {.version = 1,
                                  .init = no_init,
                                  .listen = no_listen,
                                  .connect = no_connect,
                                  .close = no_close};
    raft_configuration_init(&conf);
    assert_int_equal(raft_configuration_add(&conf, 1, "1", RAFT_VOTER), 0);
    open_io(&io, &loop, &t, &conf, dir);
    size_t len = PACED_WRITE_MIN + 12345;
    char *bytes = make_bytes(len);
    struct raft_buffer buf = {bytes, len};
    struct raft_snapshot snapshot = {.index = 1,
                                     .term = 1,
                                     .configuration = conf,
                                     .configuration_index = 1,
                                     .bufs = &buf,
                                     .n_bufs = 1};
    uint64_t before = paced_write_count();
    bool put = false;
    struct raft_io_snapshot_put put_req = {.data = &put};
    assert_int_equal(io.snapshot_put(&io, 10, &put_req, &snapshot, on_put), 0);
    while (!put) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(paced_write_count(), before + 1);
    struct raft_snapshot *found = NULL;
    struct raft_io_snapshot_get get_req = {.data = &found};
    assert_int_equal(io.snapshot_get(&io, &get_req, on_get), 0);
    while (found == NULL) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(found->n_bufs, 1);
    assert_int_equal(found->bufs[0].len, len);
    assert_memory_equal(found->bufs[0].base, bytes, len);
    raft_free(found->bufs[0].base);
    raft_free(found->bufs);
    raft_configuration_close(&found->configuration);
    raft_free(found);
    bool closed = false;
    io.data = &closed;
    io.close(&io, on_closed);
    while (!closed) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    raft_uv_close(&io);
    raft_configuration_close(&conf);
    free(bytes);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_everything),
        cmocka_unit_test(tells_errors),
        cmocka_unit_test(snapshots_are_paced),
    };
    paced_write_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
