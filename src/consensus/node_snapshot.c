/* node_snapshot.c: snapshots of a large state are encoded by a child process (image.h), and raft
 * waits for it without knowing: it is told of a snapshot whose bytes come later, and the guard
 * keeps the write until they are there. A small state is encoded at once, and so is a large one
 * when there is no child to be had.
 *
 * A child that ends without a result ends this process as well: raft knows no snapshot that fails,
 * and the state has moved on. */
#include "consensus/node_private.h"
#include "consensus/paced_write.h"

static void image_done(void *ctx, int error)
{
    struct node *n = ctx;
    if (error != 0) {
        node_fail(n, error,
                  "the process that encodes a snapshot was killed, or had not enough memory");
        return;
    }
    fsm_image_ready(n->fsm, image_bytes(n->image));
    raft_guard_put_ready(&n->guard);
}

static bool image_begin(void *ctx, const struct machine *m)
{
    struct node *n = ctx;
    struct machine_counts c;
    struct image_callbacks cbs = {.ctx = n, .done = image_done, .gone = node_handle_gone};
    FLI_ASSERT(n->image == NULL);
    machine_get_counts(m, &c);
    uint64_t records = c.locks_held + c.locks + c.sessions + c.waits;
    if (records < n->image_records || n->phase >= PHASE_CLOSE) {
        return false;
    }
    if (image_create(n->loop, m, records, &cbs, &n->image) != 0) {
        node_log(n, 2, "no process to encode a snapshot: this one does, and stands still for it");
        return false;
    }
    n->handles++;
    raft_guard_hold_put(&n->guard);
    return true;
}

static void image_end(void *ctx)
{
    struct node *n = ctx;
    image_destroy(n->image);
    n->image = NULL;
}

struct fsm_imager snapshot_imager(struct node *n)
{
    paced_write_init();
    return (struct fsm_imager){.ctx = n, .begin = image_begin, .end = image_end};
}
