/* test_real.c: the log on a real directory, with both engines, through and past the page cache; a
 * process that is killed while it writes; a full file system. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log/device_uring.h"
#include "rig.h"

struct real {
    char dir[256];
    struct log_device *device;
    struct rig rig; /* its sim is not used */
    int held;       /* a descriptor that is closed when the log says that it waits; 0: none */
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static void make_dir(struct real *r)
{
    const char *base = getenv("TMPDIR");
    snprintf(r->dir, sizeof r->dir, "%s/fencelock-log-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(r->dir));
}

static void remove_dir(struct real *r)
{
    assert_int_equal(nftw(r->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void closed(void *ctx)
{
    struct real *r = ctx;
    r->rig.closed_calls++;
}

static void on_durable(void *ctx)
{
    struct real *r = ctx;
    r->rig.durable_calls++;
}

static void on_failed(void *ctx, int error, const char *message)
{
    fail_msg("the log failed: %d: %s", error, message);
}

static void on_say(void *ctx, enum log_level level, const char *message)
{
    struct real *r = ctx;
    r->rig.said[level]++;
    snprintf(r->rig.last_said, sizeof r->rig.last_said, "%s", message);
    if (r->held != 0 && strstr(message, "is still being written") != NULL) {
        close(r->held);
        r->held = 0;
    }
}

static void open_real(struct real *r, unsigned engine)
{
    char errmsg[512] = "";
    if (log_files_create(r->dir, engine, &r->device, errmsg, sizeof errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    r->rig.config = (struct log_config){.device = r->device,
                                        .cache_bytes = 50000,
                                        .segment_bytes = 256 << 10,
                                        .ctx = r,
                                        .durable = on_durable,
                                        .failed = on_failed,
                                        .log = on_say};
    if (log_open(&r->rig.config, &r->rig.log, errmsg, sizeof errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
}

/* Polls until the device has something to say; a disk may be slow, and 60 s are not a disk. */
static void wait_for_device(struct real *r)
{
    assert_true(log_device_wait(r->device, 60000));
}

static void sync_real(struct real *r)
{
    log_flush(r->rig.log);
    while (log_durable(r->rig.log) < log_position(r->rig.log)) {
        wait_for_device(r);
    }
}

static void close_real(struct real *r)
{
    r->rig.closed_calls = 0;
    log_close(r->rig.log, closed, r);
    while (r->rig.closed_calls == 0) {
        wait_for_device(r);
    }
    log_destroy(r->rig.log);
    log_files_destroy(r->device);
}

static void check_all(struct real *r, uint64_t first, uint64_t last)
{
    assert_int_equal(log_last_index(r->rig.log), last);
    assert_true(log_first_index(r->rig.log) <= first);
    for (uint64_t i = log_first_index(r->rig.log); i <= last; i++) {
        assert_true(rig_entry_ok(&r->rig, i));
    }
}

/* Over several segments, with a truncation, a compaction and large entries; then read again. */
static void life(struct real *r, unsigned engine)
{
    make_dir(r);
    open_real(r, engine);
    print_message("%s\n", r->device->engine);
    for (unsigned i = 0; i < 200; i++) {
        for (unsigned k = 0; k < 1 + i % 5; k++) {
            assert_int_not_equal(rig_append(&r->rig, 1 + i / 50, i % 20 == 0 ? 100000 : 50 * i), 0);
        }
        log_flush(r->rig.log);
        if (i % 3 == 0) {
            sync_real(r);
        }
    }
    assert_int_not_equal(log_truncate(r->rig.log, log_last_index(r->rig.log) - 20), 0);
    struct log_hard_state hs = {.term = 7, .vote = 2};
    assert_int_not_equal(log_set_hard_state(r->rig.log, &hs), 0);
    sync_real(r);
    log_compact(r->rig.log, log_last_index(r->rig.log) - 100);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_not_equal(rig_append(&r->rig, 9, 3000), 0);
        sync_real(r);
    }
    struct log_stats s;
    log_get_stats(r->rig.log, &s);
    assert_true(s.recycled > 0 && s.writes > 300);
    assert_true(s.write_ns_max > 0 && s.write_ns_sum >= s.write_ns_max);
    uint64_t last = log_last_index(r->rig.log);
    close_real(r);
    open_real(r, engine);
    check_all(r, last - 300, last);
    assert_int_equal(log_get_hard_state(r->rig.log).term, 7);
    assert_int_equal(log_get_hard_state(r->rig.log).vote, 2);
    assert_int_equal(r->rig.said[LOG_LEVEL_ERROR] + r->rig.said[LOG_LEVEL_WARNING], 0);
    close_real(r);
    remove_dir(r);
}

/* Opens a device with a ring, where the kernel has them. */
static void open_ring(struct real *r)
{
    char errmsg[256];
    make_dir(r);
    assert_int_equal(log_files_create(r->dir, LOG_ENGINE_BEST, &r->device, errmsg, sizeof errmsg),
                     0);
    if (strncmp(r->device->engine, "io_uring", 8) != 0) {
        print_message("%s\n", r->device->engine);
        log_files_destroy(r->device);
        remove_dir(r);
        skip();
    }
}

TEST(uring)
{
    struct real r = {.device = NULL};
    open_ring(&r);
    log_files_destroy(r.device);
    remove_dir(&r);
    life(&r, LOG_ENGINE_BEST);
}

TEST(thread)
{
    struct real r = {.device = NULL};
    life(&r, LOG_ENGINE_THREAD);
}

TEST(uring_through_the_page_cache)
{
    struct real r = {.device = NULL};
    life(&r, LOG_ENGINE_BEST | LOG_ENGINE_NO_DIRECT);
}

TEST(thread_through_the_page_cache)
{
    struct real r = {.device = NULL};
    life(&r, LOG_ENGINE_THREAD | LOG_ENGINE_NO_DIRECT);
}

TEST(engine_is_told)
{
    struct real r = {.device = NULL};
    make_dir(&r);
    open_real(&r, LOG_ENGINE_THREAD | LOG_ENGINE_NO_DIRECT);
    assert_string_equal(r.device->engine,
                        "thread: asked for; the file system has no direct writes");
    close_real(&r);
    remove_dir(&r);
}

TEST(missing_directory)
{
    struct log_device *d = NULL;
    char errmsg[256];
    assert_int_equal(
        log_files_create("/nonexistent/log", LOG_ENGINE_BEST, &d, errmsg, sizeof errmsg), FL_EIO);
    assert_non_null(strstr(errmsg, "/nonexistent/log"));
    assert_non_null(strstr(errmsg, "No such file"));
}

/* The child appends and tells the parent, after each sync, how far it is. */
static void child(struct real *r, unsigned engine, int told)
{
    open_real(r, engine);
    for (unsigned i = 0;; i++) {
        for (unsigned k = 0; k < 1 + i % 7; k++) {
            if (rig_append(&r->rig, 1 + log_last_index(r->rig.log) / 100, (i * 977) % 9000) == 0) {
                _exit(3);
            }
        }
        uint64_t last = log_last_index(r->rig.log);
        log_compact(r->rig.log, last > 300 ? last - 300 : 0);
        sync_real(r);
        last = log_durable_index(r->rig.log);
        if (write(told, &last, sizeof last) != (ssize_t)sizeof last) {
            _exit(4);
        }
    }
}

static void kill_while_writing(struct real *r, unsigned engine, uint64_t rounds)
{
    int told[2];
    uint64_t at_least = 0;
    uint64_t n = 0;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(told[0]);
        child(r, engine, told[1]);
    }
    assert_true(pid > 0);
    close(told[1]);
    while (n < rounds && read(told[0], &at_least, sizeof at_least) == (ssize_t)sizeof at_least) {
        n++;
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (read(told[0], &at_least, sizeof at_least) == (ssize_t)sizeof at_least) {
        n++;
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(n >= rounds);
    close(told[0]);
    open_real(r, engine);
    assert_true(log_last_index(r->rig.log) >= at_least);
    /* It compacts before it syncs, and may have been killed in between, up to 7 entries later. */
    check_all(r, at_least + 8 > 300 ? at_least + 8 - 300 : 1, log_last_index(r->rig.log));
    close_real(r);
}

TEST(killed)
{
    uint64_t rng = rng_seed();
    const unsigned engines[] = {LOG_ENGINE_BEST, LOG_ENGINE_THREAD,
                                LOG_ENGINE_THREAD | LOG_ENGINE_NO_DIRECT};
    for (unsigned e = 0; e < 3; e++) {
        struct real r = {.device = NULL};
        make_dir(&r);
        for (unsigned i = 0; i < 8; i++) {
            kill_while_writing(&r, engines[e], 1 + rng_below(&rng, 60));
        }
        remove_dir(&r);
    }
}

static int open_file(const struct real *r, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* The lock of a segment is kept by each request to the kernel that writes to it, which may end
 * after its process. Here another open file is what such a request has. */
TEST(opening_waits_for_a_write_of_before)
{
    const unsigned engines[] = {LOG_ENGINE_BEST, LOG_ENGINE_THREAD | LOG_ENGINE_NO_DIRECT};
    for (unsigned e = 0; e < 2; e++) {
        struct real r = {.device = NULL};
        make_dir(&r);
        open_real(&r, engines[e]);
        assert_int_not_equal(rig_append(&r.rig, 1, 4000), 0);
        sync_real(&r);
        close_real(&r);
        r.held = open_file(&r, "segment-0000000001");
        assert_true(r.held > 0);
        assert_int_equal(flock(r.held, LOCK_EX | LOCK_NB), 0);
        open_real(&r, engines[e]);
        assert_int_equal(r.rig.said[LOG_LEVEL_WARNING], 1);
        assert_int_equal(r.held, 0);
        check_all(&r, 1, 1);
        close_real(&r);
        remove_dir(&r);
    }
}

/* Whether somebody has it open to write to it. */
static bool is_written(const struct real *r, const char *name)
{
    int fd = open_file(r, name);
    assert_true(fd >= 0);
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    assert_true(!held || errno == EWOULDBLOCK);
    close(fd);
    return held;
}

/* The current segment and those that are ready, each from before it can be written to. */
TEST(segments_are_locked)
{
    struct real r = {.device = NULL};
    struct log_stats s;
    unsigned n = 2;
    make_dir(&r);
    open_real(&r, LOG_ENGINE_BEST);
    assert_true(is_written(&r, "segment-0000000001"));
    do {
        assert_int_not_equal(rig_append(&r.rig, 1, 100000), 0);
        sync_real(&r);
        log_compact(r.rig.log, log_last_index(r.rig.log));
        log_get_stats(r.rig.log, &s);
        for (; n <= r.rig.log->segments[r.rig.log->segments_len - 1].number; n++) {
            char name[LOG_NAME_MAX + 1];
            log_segment_name(n, name);
            assert_true(is_written(&r, name));
        }
    } while (s.recycled < 3);
    close_real(&r);
    open_real(&r, LOG_ENGINE_BEST);
    check_all(&r, log_last_index(r.rig.log), log_last_index(r.rig.log));
    assert_int_equal(r.rig.said[LOG_LEVEL_WARNING], 0);
    close_real(&r);
    remove_dir(&r);
}

/* A small tmpfs fills up: appends wait, and go on when there is room. */
TEST(full_file_system)
{
    struct real r = {.device = NULL};
    make_dir(&r);
    if (mount("fencelock-test", r.dir, "tmpfs", 0, "size=1m") != 0) {
        remove_dir(&r);
        print_message("cannot mount: %s\n", strerror(errno));
        skip();
    }
    char hog[300];
    snprintf(hog, sizeof hog, "%s/.hog", r.dir);
    open_real(&r, LOG_ENGINE_BEST);
    int fd = open(hog, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    static const char block[4096];
    while (write(fd, block, sizeof block) > 0) {
    }
    struct log_stats s;
    do {
        assert_int_not_equal(rig_append(&r.rig, 1, 9000), 0);
        log_flush(r.rig.log);
        log_get_stats(r.rig.log, &s);
        if (!s.waiting_for_segment || r.rig.said[LOG_LEVEL_ERROR] == 0) {
            wait_for_device(&r);
        }
    } while (!s.waiting_for_segment || r.rig.said[LOG_LEVEL_ERROR] == 0);
    assert_non_null(strstr(r.rig.last_said, "No space left"));
    assert_true(log_durable(r.rig.log) < log_position(r.rig.log));
    close(fd);
    assert_int_equal(unlink(hog), 0);
    sync_real(&r);
    uint64_t last = log_last_index(r.rig.log);
    close_real(&r);
    open_real(&r, LOG_ENGINE_BEST);
    check_all(&r, 1, last);
    close_real(&r);
    assert_int_equal(umount2(r.dir, MNT_DETACH), 0);
    remove_dir(&r);
}

static void written(struct log_io *io, int result, uint64_t took_ns)
{
    *(int *)io->ctx = result;
}

static int write_at(struct real *r, struct log_file *f, const void *data, size_t len)
{
    int result = 1;
    struct log_io io = {.file = f, .data = data, .len = len, .done = written, .ctx = &result};
    r->device->ops->start(r->device, LOG_LANE_WRITE, &io);
    while (result > 0) {
        wait_for_device(r);
    }
    return result;
}

/* A copy-on-write file system can have room for a part of a write. Then the log waits, as when
 * there is room for none of it. */
TEST(room_for_a_part_of_a_write)
{
    enum { LEN = 64 << 10 };
    struct real r = {.device = NULL};
    struct log_file *f = NULL;
    char path[300];
    char errmsg[256];
    make_dir(&r);
    if (mount("fencelock-test", r.dir, "tmpfs", 0, "size=1m") != 0) {
        remove_dir(&r);
        print_message("cannot mount: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(log_files_create(r.dir, LOG_ENGINE_BEST, &r.device, errmsg, sizeof errmsg), 0);
    print_message("%s\n", r.device->engine);
    snprintf(path, sizeof path, "%s/sparse", r.dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, LEN), 0);
    close(fd);
    snprintf(path, sizeof path, "%s/.hog", r.dir);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    static const char block[4096];
    off_t full = 0;
    while (write(fd, block, sizeof block) == sizeof block) {
        full += (off_t)sizeof block;
    }
    assert_int_equal(ftruncate(fd, full - LEN / 4), 0);
    uint8_t *data = aligned_alloc(LOG_BLOCK, LEN);
    assert_non_null(data);
    rig_fill(data, 1, 1, LEN);
    assert_int_equal(r.device->ops->open(r.device, "sparse", LOG_OPEN_WRITE, &f), 0);
    assert_int_equal(write_at(&r, f, data, LEN), -ENOSPC);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(write_at(&r, f, data, LEN), 0);
    uint8_t *back = malloc(LEN);
    assert_non_null(back);
    assert_int_equal(r.device->ops->read(r.device, f, back, LEN, 0), LEN);
    assert_memory_equal(back, data, LEN);
    free(back);
    free(data);
    close(fd);
    r.device->ops->close(r.device, f);
    log_files_destroy(r.device);
    assert_int_equal(umount2(r.dir, MNT_DETACH), 0);
    remove_dir(&r);
}

/* ---- a ring that does not do what it is told ---- */

static int rings_refuse, rings_interrupted, rings_fail; /* so many of the next writes */

int __real_log_uring_write(struct log_uring *u, int fd, const void *data, size_t len,
                           uint64_t offset);
int __wrap_log_uring_write(struct log_uring *u, int fd, const void *data, size_t len,
                           uint64_t offset);
bool __real_log_uring_reap(struct log_uring *u, int *ret_result);
bool __wrap_log_uring_reap(struct log_uring *u, int *ret_result);

int __wrap_log_uring_write(struct log_uring *u, int fd, const void *data, size_t len,
                           uint64_t offset)
{
    return rings_refuse-- > 0 ? -EBUSY : __real_log_uring_write(u, fd, data, len, offset);
}

bool __wrap_log_uring_reap(struct log_uring *u, int *ret_result)
{
    bool done = __real_log_uring_reap(u, ret_result);
    if (done && rings_interrupted-- > 0) {
        *ret_result = -EINTR;
    }
    if (done && rings_fail-- > 0) {
        *ret_result = -EIO;
    }
    return done;
}

/* What was interrupted, or not even begun, may be done by the thread. What failed is not done once
 * more: after a failed flush, a yes means nothing. */
TEST(what_a_ring_has_not_done)
{
    struct real r = {.device = NULL};
    struct log_file *f = NULL;
    open_ring(&r);
    uint8_t *data = aligned_alloc(LOG_BLOCK, LOG_BLOCK);
    uint8_t back[LOG_BLOCK];
    assert_non_null(data);
    rig_fill(data, 1, 0, LOG_BLOCK);
    assert_int_equal(r.device->ops->open(r.device, "file", LOG_OPEN_WRITE | LOG_OPEN_CREATE, &f),
                     0);
    rings_fail = 1;
    assert_int_equal(write_at(&r, f, data, LOG_BLOCK), -EIO);
    for (int i = 0; i < 4; i++) {
        rings_interrupted = i == 1;
        rings_refuse = i == 2;
        rig_fill(data, 1, (uint64_t)i, LOG_BLOCK);
        assert_int_equal(write_at(&r, f, data, LOG_BLOCK), 0);
        assert_int_equal(r.device->ops->read(r.device, f, back, LOG_BLOCK, 0), LOG_BLOCK);
        assert_memory_equal(back, data, LOG_BLOCK);
    }
    free(data);
    r.device->ops->close(r.device, f);
    assert_int_equal(r.device->ops->remove(r.device, "file"), 0);
    log_files_destroy(r.device);
    remove_dir(&r);
}

/* ---- calls that fail ---- */

static int dir_syncs_fail, removals_fail; /* so many of the next, of what is there */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_unlinkat(int dir_fd, const char *name, int flags);
int __wrap_unlinkat(int dir_fd, const char *name, int flags);

int __wrap_fsync(int fd)
{
    struct stat st;
    if (dir_syncs_fail > 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        dir_syncs_fail--;
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}

int __wrap_unlinkat(int dir_fd, const char *name, int flags)
{
    if (removals_fail > 0 && faccessat(dir_fd, name, F_OK, 0) == 0) {
        removals_fail--;
        errno = EIO;
        return -1;
    }
    return __real_unlinkat(dir_fd, name, flags);
}

static int make_ready(struct real *r, struct log_io *io)
{
    int result = 1;
    io->ctx = &result;
    io->device = r->device;
    r->device->ops->start(r->device, LOG_LANE_BACKGROUND, io);
    while (result > 0) {
        wait_for_device(r);
    }
    return result;
}

/* What an attempt has made and could not remove does not stand in the way of the next one. */
TEST(a_segment_that_stayed_after_an_error)
{
    struct real r = {.device = NULL};
    struct log_io io = {.work = log_segment_make, .size = 16 * LOG_BLOCK, .done = written};
    char errmsg[256];
    uint64_t size = 0;
    make_dir(&r);
    assert_int_equal(log_files_create(r.dir, LOG_ENGINE_BEST, &r.device, errmsg, sizeof errmsg), 0);
    snprintf(io.name, sizeof io.name, "segment-7");
    dir_syncs_fail = 2; /* once behind each attempt to give the name */
    removals_fail = 2;
    assert_int_equal(make_ready(&r, &io), -EIO);
    assert_int_equal(make_ready(&r, &io), -EIO);
    assert_int_equal(make_ready(&r, &io), 0);
    assert_int_equal(dir_syncs_fail + removals_fail, 0);
    assert_int_equal(r.device->ops->size(r.device, io.file, &size), 0);
    assert_int_equal(size, io.size);
    r.device->ops->close(r.device, io.file);

    /* Nor is anything overwritten that it did not make. */
    struct log_io other = {.work = log_segment_make, .size = LOG_BLOCK, .done = written};
    snprintf(other.name, sizeof other.name, "segment-7");
    assert_int_equal(make_ready(&r, &other), -EEXIST);
    assert_int_equal(make_ready(&r, &other), -EEXIST);
    log_files_destroy(r.device);
    remove_dir(&r);
}

/* A file that somebody has put there is not taken for a half-made segment: its name is too long. */
TEST(a_name_that_is_too_long)
{
    struct real r = {.device = NULL};
    char path[512];
    make_dir(&r);
    snprintf(path, sizeof path, "%s/segment-%0200d.part", r.dir, 1);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    open_real(&r, LOG_ENGINE_BEST);
    close_real(&r);
    assert_int_equal(access(path, F_OK), 0);
    remove_dir(&r);
}

/* Closing does not wait for what is done beside the writes. */
TEST(close_at_once)
{
    struct real r = {.device = NULL};
    make_dir(&r);
    open_real(&r, LOG_ENGINE_BEST);
    r.rig.config.segment_bytes = 0;
    while (log_position(r.rig.log) < 40) {
        assert_int_not_equal(rig_append(&r.rig, 1, 4000), 0);
        log_flush(r.rig.log);
    }
    close_real(&r);
    open_real(&r, LOG_ENGINE_BEST);
    assert_true(log_last_index(r.rig.log) <= 40);
    check_all(&r, 1, log_last_index(r.rig.log));
    close_real(&r);
    remove_dir(&r);
}
