/* Whole nodes: what becomes of snapshots that are half-written, on a real disk. */
#include "../../lib/unit.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#include "../../lib/child_pid.h"
#include "cluster.h"
#include "consensus/node_private.h"
#include "log/snapshot_private.h"
#include "scratch.h"

/* ---- files ---- */

static unsigned parts(const struct node *n)
{
    unsigned found = 0;
    DIR *dir = opendir(n->dir.log_path);
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
    char *path = scratch_path(n->dir.log_path, name);
    scratch_write(path, "part", 4);
    free(path);
}

/* ---- children ---- */

static bool has_child(void *ctx)
{
    const struct node *n = ctx;
    return n->child != NULL;
}

static bool has_none(void *ctx)
{
    return !has_child(ctx);
}

/* Has a snapshot written of whatever state there is. */
static void want_snapshot(struct cluster *c, struct node *n)
{
    n->snapshot_damaged = true;
    node_wake(n);
    cluster_until(c, has_child, n, "a snapshot is written");
}

static void kill_child(void)
{
    pid_t pid = child_pid(); /* 0: it is through, and was waited for */
    assert_true(pid == 0 || kill(pid, SIGKILL) == 0);
}

/* A disk on which children are killed again and again does not fill with what they have left. */
TEST_WITH(killed_children_leave_nothing, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    uint64_t failures = node_snapshot_failures(n);
    uint64_t index = 1000000;
    cluster_acquire(c, 0, "a", "owner-1");
    /* When this process stood still, the child was faster. */
    while (node_snapshot_failures(n) < failures + 2) {
        want_snapshot(c, n);
        leave_part(n, index++);
        kill_child();
        cluster_until(c, has_none, n, "the child's end is noticed");
        cluster_until(c, no_parts, n, "nothing is left of it");
    }
    want_snapshot(c, n);
    cluster_until(c, has_none, n, "a snapshot is taken");
    assert_false(n->snapshot_damaged);
    cluster_until(c, no_parts, n, "nothing is left");
}
