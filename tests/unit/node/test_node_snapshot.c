/* Whole nodes: what becomes of snapshots that are half-written, on a real disk. */
#include "../../lib/unit.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lib/child_pid.h"
#include "base/bytes.h"
#include "cluster.h"
#include "node/node_private.h"
#include "snapshot/format.h"
#include "../../lib/scratch.h"

/* ---- files ---- */

static unsigned parts(const struct node *n)
{
    unsigned found = 0;
    DIR *dir = opendir(n->record.dir.log_path);
    struct dirent *e;
    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL) {
        uint64_t index;
        uint64_t term;
        bool part = false;
        found += snapshot_name_parse(e->d_name, &index, &term, &part) && part;
    }
    closedir(dir);
    return found;
}

static bool no_parts(void *ctx)
{
    return parts(ctx) == 0;
}

/* What a process that wrote a snapshot leaves when it is killed. */
static void leave_part(struct node *n, uint64_t index)
{
    char name[LOG_NAME_MAX + 1];
    snapshot_name(index, 1, true, name);
    char *path = scratch_path(n->record.dir.log_path, name);
    scratch_write(path, "part", 4);
    free(path);
}

/* ---- children ---- */

static bool has_child(void *ctx)
{
    const struct node *n = ctx;
    return n->snapshots.child.pid != 0;
}

static bool has_none(void *ctx)
{
    return !has_child(ctx);
}

/* Has a snapshot written of whatever state there is. */
static void want_snapshot(struct cluster *c, struct node *n)
{
    n->snapshots.damaged = true;
    node_wake(n);
    cluster_until(c, has_child, n, "a snapshot is written");
}

static void kill_child(void)
{
    pid_t pid = child_pid(); /* 0: it is through, and was waited for */
    assert_true(pid == 0 || kill(pid, SIGKILL) == 0);
}

static unsigned ends_later; /* so often a child that is asked for is still there */

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    if (pid > 0 && ends_later > 0) {
        ends_later--;
        return 0;
    }
    return __real_waitpid(pid, status, options);
}

/* ---- a sender that sends nothing more ---- */

struct call {
    struct stream *stream;
    bool over;
};

static void dialed_cb(void *ctx, int status, const struct peer_identity *peer, struct stream *s)
{
    struct call *call = ctx;
    assert_int_equal(status, 0);
    call->stream = s;
    call->over = true;
}

static bool is_over(void *ctx)
{
    const struct call *call = ctx;
    return call->over;
}

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
}

static void lost_cb(void *ctx, const char *why)
{
}

static bool receives(void *ctx)
{
    const struct node *n = ctx;
    return snapshot_install_receives(&n->snapshots.install) != 0;
}

/* From node `from`, of an entry that is far away. The caller closes the stream. */
static struct stream *offer(struct cluster *c, struct node *from, struct node *to)
{
    struct stream_callbacks cbs = {.frame = frame_cb, .lost = lost_cb};
    struct call call = {0};
    uint8_t body[24];
    struct fli_slice part = {body, sizeof body};
    fli_put_u64(body, UINT64_C(1000000));
    fli_put_u64(body + 8, 1);
    fli_put_u64(body + 16, UINT64_C(1) << 30);
    assert_int_equal(
        transport_dial(from->peers.transport, to->config.id, STREAM_SNAPSHOT, dialed_cb, &call), 0);
    cluster_until(c, is_over, &call, "a stream is open");
    assert_true(stream_start(call.stream, &cbs));
    assert_int_equal(stream_send(call.stream, SNAPSHOT_BEGIN, &part, 1), 0);
    stream_flush(call.stream);
    cluster_until(c, receives, to, "a snapshot is received");
    return call.stream;
}

/* ---- a directory that cannot be read ---- */

static struct log_device_ops ops;
static int (*list)(struct log_device *d, fli_folder_cb *each, void *ctx);
static atomic_int lists_fail;

static int list_or_fail(struct log_device *d, fli_folder_cb *each, void *ctx)
{
    return atomic_fetch_sub(&lists_fail, 1) > 0 ? -EMFILE : list(d, each, ctx);
}

/* ---- tests ---- */

/* What a process cannot remove, the next one removes. */
TEST_WITH(cleaning_is_tried_again, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    const struct log_device_ops *before = n->loop.device->ops;
    cluster_acquire(c, 0, "a", "owner-1");
    leave_part(n, 1);
    ops = *before;
    list = before->list;
    ops.list = list_or_fail;
    n->loop.device->ops = &ops;
    atomic_store(&lists_fail, 2);
    uint64_t made = n->snapshots.made;
    want_snapshot(c, n);
    cluster_until(c, has_none, n, "the snapshot is written");
    assert_int_equal(n->snapshots.made, made + 1);
    assert_int_equal(parts(n), 1);
    n->loop.device->ops = before;
    want_snapshot(c, n);
    cluster_until(c, no_parts, n, "what was left is removed");
}

/* A disk on which children are killed again and again does not fill with what they have left. */
TEST_WITH(killed_children_leave_nothing, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    uint64_t failures = n->snapshots.failures;
    cluster_acquire(c, 0, "a", "owner-1");
    /* When this process stood still, the child was faster. */
    while (n->snapshots.failures < failures + 2) {
        want_snapshot(c, n);
        leave_part(n, 1);
        kill_child();
        cluster_until(c, has_none, n, "the child's end is noticed");
        assert_in_range(parts(n), 0, 2);
    }
    want_snapshot(c, n);
    cluster_until(c, has_none, n, "a snapshot is taken");
    assert_false(n->snapshots.damaged);
    cluster_until(c, no_parts, n, "nothing is left");
}

/* One that has come is about to replace the state that a child would write. */
TEST_WITH(none_is_taken_while_one_is_installed, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    cluster_acquire(c, 0, "a", "owner-1");
    n->snapshots.damaged = true;
    n->snapshots.install.state = INSTALL_DECODING;
    n->snapshots.install.work.busy = true; /* the worker has it */
    node_snapshot_turn(n);
    assert_int_equal(n->snapshots.child.pid, 0);
    n->snapshots.install.work.busy = false;
    n->snapshots.install.state = INSTALL_IDLE;
    node_snapshot_turn(n);
    assert_int_not_equal(n->snapshots.child.pid, 0);
    cluster_until(c, has_none, n, "a snapshot is taken");
}

static unsigned unusable; /* lines about a newest snapshot that cannot be used */

static void count_unusable(void *ctx, int level, const char *part, const char *message)
{
    unusable += strstr(message, "the newest snapshot cannot be used") != NULL;
}

static bool is_replaced(void *ctx)
{
    return access(ctx, F_OK) != 0;
}

static bool has_failed(void *ctx)
{
    const struct snapshot_send *send = ctx;
    return send->failures != 0;
}

/* A child has removed the one before, and its end was not noticed yet: a follower that needs that
 * one gets its successor, and nobody is told of a damage. */
TEST_WITH(one_that_a_child_has_replaced, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct node *n = c->nodes[leader].node;
    char name[LOG_NAME_MAX + 1];
    cluster_acquire(c, leader, "a", "owner-1");
    while (n->snapshots.made == 0) {
        want_snapshot(c, n);
        cluster_until(c, has_none, n, "the snapshot is written");
    }
    snapshot_name(n->snapshots.meta.index, n->snapshots.meta.term, false, name);
    char *first = scratch_path(n->record.dir.log_path, name);
    n->cbs.log = count_unusable;
    unusable = 0;
    cluster_acquire(c, leader, "b", "owner-1");
    want_snapshot(c, n);
    n->snapshots.damaged = false; /* it is as one that was due */
    ends_later = UINT_MAX;
    cluster_until(c, is_replaced, first, "the next one is there");
    uint64_t id = c->nodes[cluster_other_than(c, leader)].node->config.id;
    struct snapshot_send *send = &peers_find(&n->peers, id)->send;
    node_snapshot_wanted(n, id);
    cluster_until(c, has_failed, send, "the former one is not there");
    ends_later = 0;
    cluster_until(c, has_none, n, "the child's end is noticed");
    assert_int_equal(unusable, 0);
    assert_false(n->snapshots.damaged);
    free(first);
}

/* A node that stops while a child writes ends when that has ended, which may take a while. */
TEST_WITH(a_stop_in_the_midst, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    cluster_acquire(c, 0, "a", "owner-1");
    want_snapshot(c, c->nodes[0].node);
    pid_t pid = c->nodes[0].node->snapshots.child.pid;
    ends_later = 20;
    cluster_stop(c, 0, 0);
    assert_int_equal(ends_later, 0);
    assert_int_equal(kill(pid, 0), -1);
    cluster_start(c, 0);
    cluster_wait_leader(c);
}

static bool one_part(void *ctx)
{
    return parts(ctx) == 1;
}

/* A snapshot that does not come on does not keep the node from taking its own, and its log from
 * being compacted. Its file stays, and what a child has left goes. */
TEST_WITH(one_that_does_not_come_on, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_wait_caught_up(c);
    struct node *n = c->nodes[cluster_other_than(c, leader)].node;
    struct stream *stream = offer(c, c->nodes[leader].node, n);
    uint64_t snapshots = n->snapshots.made;
    leave_part(n, 1000000); /* as soon as the first bytes have come */
    for (unsigned i = 0; i < 2; i++) {
        leave_part(n, 1);
        want_snapshot(c, n);
        cluster_until(c, has_none, n, "a snapshot is taken");
        cluster_until(c, one_part, n, "what was left is removed");
    }
    assert_int_equal(n->snapshots.made, snapshots + 2);
    assert_true(receives(n));
    stream_close(stream);
}

/* ---- a start that cannot read it ---- */

static int reads_fail; /* so many of the next, of snapshots; with 64-bit offsets it has this name */

ssize_t __real_pread64(int fd, void *data, size_t len, off_t offset);
ssize_t __wrap_pread64(int fd, void *data, size_t len, off_t offset);

ssize_t __wrap_pread64(int fd, void *data, size_t len, off_t offset)
{
    char link[64];
    char path[512] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (reads_fail > 0 && readlink(link, path, sizeof path - 1) > 0 &&
        strstr(path, "/snapshot-") != NULL) {
        reads_fail--;
        errno = EIO;
        return -1;
    }
    return __real_pread64(fd, data, len, offset);
}

/* An error of the disk may pass, and is no reason to give up a directory. */
TEST_WITH(an_error_that_passes_costs_no_directory, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    char errmsg[1024];
    uint64_t token = cluster_acquire(c, 0, "a", "owner-1");
    while (n->snapshots.made == 0) {
        want_snapshot(c, n);
        cluster_until(c, has_none, n, "the snapshot is written");
    }
    cluster_stop(c, 0, 0);
    reads_fail = 1;
    assert_int_equal(cluster_try_start(c, 0, errmsg, sizeof errmsg), FL_EIO);
    assert_non_null(strstr(errmsg, strerror(EIO)));
    assert_non_null(strstr(errmsg, "start it again"));
    assert_null(strstr(errmsg, "out of the way"));
    assert_null(strstr(errmsg, "replace"));
    cluster_start(c, 0);
    cluster_wait_leader(c);
    cluster_check(c, 0, "a", token, MACHINE_DONE);
}

/* A client whose backup no process can write is told so at once, and the next one is let in. */
TEST_WITH(a_backup_without_a_process, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    struct rlimit before;
    uint64_t id;
    size_t len;
    char data[16];
    const char *why = "";
    cluster_acquire(c, 0, "a", "owner-1");
    assert_int_equal(node_backup_begin(n, &id), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    node_snapshot_turn(n);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(node_backup_read(n, id, 0, data, sizeof data, &len, &why), FL_EIO);
    assert_non_null(strstr(why, "no process"));
    assert_int_equal(node_backup_begin(n, &id), 0);
}
