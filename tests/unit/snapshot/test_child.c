/* test_child.c: a snapshot that a child process writes: what is in it, and what comes of a
 * child that is killed, fails, or is not wanted any more. Real processes, a real directory. */
#include "../../lib/unit.h"

#include "../../lib/child_pid.h"
#include "../../lib/snapshot_bytes.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "snapshot/child.h"
#include "../../lib/scratch.h"
#include "states.h"

#define LOCKS 5000u

struct rig {
    char *dir;
    struct log_device *device;
    struct machine *machine;
    struct snapshot_child child;
    struct snapshot_meta meta;
    struct snapshot_verdict end;
};

static struct rig rig;

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

static unsigned ends_later; /* so often a child that is asked for is still there */
static unsigned asked, waited;

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    asked++;
    waited += (options & WNOHANG) == 0;
    if (pid > 0 && ends_later > 0) {
        ends_later--;
        return 0;
    }
    return __real_waitpid(pid, status, options);
}

static int set_up(void **state)
{
    struct rig *r = &rig;
    char errmsg[256];
    memset(r, 0, sizeof *r);
    asked = waited = ends_later = 0;
    r->dir = scratch_make();
    assert_int_equal(log_files_create(r->dir, LOG_ENGINE_THREAD, &r->device, errmsg, sizeof errmsg),
                     0);
    r->machine = states_make(LOCKS);
    r->meta = (struct snapshot_meta){.index = 7, .term = 3, .conf_index = 1, .conf_len = 4};
    memcpy(r->meta.conf, "conf", 4);
    *state = r;
    return 0;
}

/* No process may be left. */
static int tear_down(void **state)
{
    struct rig *r = *state;
    machine_destroy(r->machine);
    log_files_destroy(r->device);
    scratch_remove(r->dir);
    assert_int_equal(waited, 0);
    assert_int_equal(ends_later, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    return 0;
}

static void start(struct rig *r)
{
    assert_int_equal(snapshot_child_start(&r->child, r->device, r->machine, &r->meta), 0);
    assert_true(r->child.pid > 0);
}

/* Until the child has had its last word, or none, and is gone. */
static void wait_for_end(struct rig *r)
{
    struct pollfd said = {.fd = r->child.pipe, .events = POLLIN};
    assert_int_equal(poll(&said, 1, -1), 1);
    while (!snapshot_child_ended(&r->child, &r->end)) {
        (void)sched_yield();
    }
    assert_int_equal(r->child.pid, 0);
    assert_false(snapshot_child_ended(&r->child, &r->end));
}

static void stop(struct rig *r)
{
    snapshot_child_kill(&r->child);
    wait_for_end(r);
}

static int count_file(void *ctx, const char *name)
{
    (*(unsigned *)ctx)++;
    return 0;
}

static int count_whole(void *ctx, const char *name)
{
    *(unsigned *)ctx += strstr(name, ".part") == NULL;
    return 0;
}

static unsigned files(struct rig *r)
{
    unsigned n = 0;
    assert_int_equal(r->device->ops->list(r->device, count_file, &n), 0);
    return n;
}

/* All but what a child that is killed leaves, which its owner takes away. */
static unsigned whole_snapshots(struct rig *r)
{
    unsigned n = 0;
    assert_int_equal(r->device->ops->list(r->device, count_whole, &n), 0);
    return n;
}

TEST_WITH(it_is_of_the_moment_of_the_fork, set_up, tear_down)
{
    struct rig *r = *state;
    struct fli_buf expected;
    struct fli_buf found;
    struct snapshot_reader *reader;
    struct snapshot_error error;
    struct fli_slice whole;
    struct fli_slice piece;
    fli_buf_init(&expected, SIZE_MAX / 4);
    fli_buf_init(&found, SIZE_MAX / 4);
    start(r);
    assert_int_equal(machine_snapshot_encode(r->machine, &expected), 0);
    states_add(r->machine, LOCKS, 2 * LOCKS); /* what comes later is not in it */
    wait_for_end(r);
    assert_int_equal(r->end.error, 0);
    assert_int_equal(r->end.size, expected.len);
    assert_int_equal(snapshot_reader_open(r->device, 0, &reader, &error), 0);
    assert_int_equal(snapshot_reader_meta(reader)->index, 7);
    assert_int_equal(snapshot_reader_meta(reader)->term, 3);
    assert_int_equal(snapshot_reader_meta(reader)->conf_index, 1);
    assert_memory_equal(snapshot_reader_meta(reader)->conf, "conf", 4);
    while (snapshot_reader_next(reader, &whole, &piece, &error) == 0 && whole.len > 0) {
        assert_int_equal(fli_buf_append(&found, piece.data, piece.len), 0);
    }
    snapshot_reader_close(reader);
    assert_int_equal(found.len, expected.len);
    assert_memory_equal(found.data, expected.data, expected.len);
    fli_buf_fini(&expected);
    fli_buf_fini(&found);
}

/* What earlier ones have left, and what it replaces, goes. */
TEST_WITH(older_ones_go, set_up, tear_down)
{
    struct rig *r = *state;
    char *part = scratch_path(r->dir, "snapshot-00000000000000000006-00000000000000000003.part");
    scratch_write(part, "part", 4);
    start(r);
    wait_for_end(r);
    assert_int_equal(files(r), 1);
    r->meta.index++;
    start(r);
    wait_for_end(r);
    assert_int_equal(r->end.error, 0);
    assert_string_equal(r->end.why, "");
    assert_int_equal(files(r), 1);
    free(part);
}

/* The kth call of the disk fails in the child. What is counted is shared with it. */
static const struct log_device_ops *real_ops;
static struct shared {
    unsigned calls, fails; /* the number of the call that fails */
} * shared;

static bool is_to_fail(void)
{
    return ++shared->calls == shared->fails;
}

static int failing_open(struct log_device *d, const char *name, unsigned flags,
                        struct log_file **ret)
{
    return is_to_fail() ? -EIO : real_ops->open(d, name, flags, ret);
}

static int failing_write(struct log_device *d, struct log_file *f, const void *data, size_t len,
                         uint64_t offset)
{
    return is_to_fail() ? -EIO : 0; /* the bytes do not matter, and a disk is slow */
}

static int failing_sync(struct log_device *d, struct log_file *f)
{
    return is_to_fail() ? -EIO : 0;
}

static int failing_rename(struct log_device *d, const char *from, const char *to, bool replace)
{
    return is_to_fail() ? -EIO : real_ops->rename(d, from, to, replace);
}

static int failing_sync_dir(struct log_device *d)
{
    return is_to_fail() ? -EIO : real_ops->sync_dir(d);
}

/* Also a sync in the midst of it: what that one did not write no later one writes. */
TEST_WITH(each_call_that_fails_is_told, set_up, tear_down)
{
    struct rig *r = *state;
    struct log_device_ops failing = *r->device->ops;
    real_ops = r->device->ops;
    failing.open = failing_open;
    failing.write = failing_write;
    failing.sync = failing_sync;
    failing.rename = failing_rename;
    failing.sync_dir = failing_sync_dir;
    r->device->ops = &failing;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    states_add(r->machine, LOCKS, 6 * LOCKS); /* several syncs */
    bool failed = true;
    while (failed) {
        shared->calls = 0;
        shared->fails++;
        start(r);
        wait_for_end(r);
        failed = shared->calls >= shared->fails;
        bool stays = r->end.error == 0 && r->end.why[0] != '\0'; /* an older one */
        assert_true(failed ? r->end.error == FL_EIO || stays : r->end.error == 0 && !stays);
    }
    assert_true(shared->fails > 15);
    r->device->ops = real_ops;
    assert_int_equal(munmap(shared, sizeof *shared), 0);
}

static void kill_child(void)
{
    pid_t pid = child_pid();
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
}

TEST_WITH(one_that_is_killed_is_told, set_up, tear_down)
{
    struct rig *r = *state;
    states_add(r->machine, LOCKS, 6 * LOCKS); /* dozens of syncs */
    start(r);
    kill_child();
    wait_for_end(r);
    /* When this process stood still, the child was faster. */
    for (int tries = 0; r->end.error == 0; tries++) {
        assert_int_equal(whole_snapshots(r), 1);
        assert_in_range(tries, 0, 20);
        scratch_wipe(r->dir);
        start(r);
        kill_child();
        wait_for_end(r);
    }
    assert_int_equal(r->end.error, FL_ESYSTEM);
    assert_non_null(strstr(r->end.why, "was killed"));
    assert_int_equal(whole_snapshots(r), 0);
    /* The next one takes the place of what it has left. */
    start(r);
    wait_for_end(r);
    assert_int_equal(r->end.error, 0);
    assert_int_equal(whole_snapshots(r), 1);
    assert_int_equal(files(r), 1);
}

/* A file may not become so large: the child's write fails, as on a full disk. */
static void fail_behind(struct rig *r, rlim_t bytes)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {.rlim_cur = bytes, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    start(r);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    wait_for_end(r);
    (void)signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(r->end.error, FL_EIO);
    assert_non_null(strstr(r->end.why, strerror(EFBIG)));
}

TEST_WITH(a_write_that_fails_is_told, set_up, tear_down)
{
    struct rig *r = *state;
    fail_behind(r, 100000);
    assert_int_equal(whole_snapshots(r), 0);
    assert_int_equal(files(r), 0);
}

/* What older ones take on a full disk makes room for the next attempt. */
TEST_WITH(one_that_fails_leaves_no_older_one, set_up, tear_down)
{
    struct rig *r = *state;
    char *older = scratch_path(r->dir, "snapshot-00000000000000000006-00000000000000000003");
    start(r);
    wait_for_end(r);
    scratch_write(older, "old", 3); /* it could not be removed, or the child was killed */
    assert_int_equal(whole_snapshots(r), 2);
    r->meta.index++;
    fail_behind(r, 4096);
    assert_int_equal(files(r), 1);
    assert_int_equal(access(older, F_OK), -1);
    free(older);
}

/* The directory is gone: the child says so, this process goes on. */
TEST_WITH(a_directory_that_is_gone_is_told, set_up, tear_down)
{
    struct rig *r = *state;
    char *dir = scratch_path(r->dir, "log");
    struct log_device *before = r->device;
    char errmsg[256];
    scratch_write(dir, "", 0);
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(log_files_create(dir, LOG_ENGINE_THREAD, &r->device, errmsg, sizeof errmsg),
                     0);
    assert_int_equal(rmdir(dir), 0);
    start(r);
    wait_for_end(r);
    assert_int_equal(r->end.error, FL_EIO);
    assert_true(r->end.why[0] != '\0');
    log_files_destroy(r->device);
    r->device = before;
    free(dir);
}

TEST_WITH(one_that_is_not_wanted_any_more, set_up, tear_down)
{
    struct rig *r = *state;
    start(r);
    pid_t pid = child_pid();
    assert_int_equal(pid, r->child.pid);
    stop(r);
    assert_int_equal(kill(pid, 0), -1); /* gone, and waited for */
    assert_int_equal(errno, ESRCH);
}

/* It keeps nothing open that this process closes: neither sockets nor files. */
TEST_WITH(it_keeps_no_socket, set_up, tear_down)
{
    struct rig *r = *state;
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    start(r);
    pid_t pid = child_pid();
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    close(ends[1]);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* the end: nobody else has it */
    close(ends[0]);
    wait_for_end(r);
    assert_int_equal(r->end.error, 0);
}

/* It gives back its memory after its last word, which takes as long as it takes. The loop goes on
 * meanwhile; it is told when all is over. */
TEST_WITH(one_that_is_long_in_ending, set_up, tear_down)
{
    struct rig *r = *state;
    ends_later = 3;
    start(r);
    wait_for_end(r);
    assert_int_equal(r->end.error, 0);
    assert_true(asked >= 4);
}

TEST_WITH(one_that_is_long_in_ending_and_not_wanted, set_up, tear_down)
{
    struct rig *r = *state;
    ends_later = 3;
    start(r);
    stop(r);
    assert_true(asked >= 4);
}
