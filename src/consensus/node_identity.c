/* node_identity.c: writes the identity file on a thread of libuv's pool, one write at a time
 * (membership_known.c). A member that has said that it is READY must find on its disk, after a
 * restart, that it is a member; so what depends on the file waits for it, and the loop does not.
 *
 * The file needs room. While there is none, this node goes by the members that it knew before, as
 * one that has applied less; the write is tried again until it succeeds. */
#include <errno.h>
#include <string.h>

#include "base/write.h"
#include "consensus/node_private.h"

static void save_work(uv_work_t *req)
{
    struct node_identity_save *w = req->data;
    w->error = 0;
    if (identity_store(&w->node->dir, &w->identity) != 0) {
        w->error = errno == 0 ? EIO : errno;
    }
}

static bool may_save(const struct node *n)
{
    return !n->failed && n->phase < PHASE_CLOSE;
}

/* Notes a failure that may pass, and its end. */
static void note_failure(struct node *n, int error)
{
    struct node_identity_save *w = &n->identity_save;
    if (error != 0 && !w->again) {
        host_log(&n->host, 1,
                 "the identity file in %s cannot be written: %s; this is tried again, and a change "
                 "of members waits here",
                 n->dir.path, strerror(error));
    } else if (error == 0 && w->again) {
        host_log(&n->host, 3, "the identity file in %s is written again", n->dir.path);
    }
    w->again = error != 0;
}

static void save_done(uv_work_t *req, int status)
{
    struct node_identity_save *w = req->data;
    struct node *n = w->node;
    int error = status != 0 ? EIO : w->error;
    w->busy = false;
    if (may_save(n) && fli_error_passes(error)) {
        note_failure(n, error);
    } else if (may_save(n)) {
        note_failure(n, 0);
        membership_identity_saved(n->membership, error == 0 ? 0 : FL_EIO);
        node_wake(n);
    }
    node_closed_one(n);
}

static void save(struct node *n)
{
    struct node_identity_save *w = &n->identity_save;
    w->node = n;
    w->req.data = w;
    int rv = uv_queue_work(n->loop, &w->req, save_work, save_done);
    FLI_ASSERT(rv == 0); /* it cannot fail */
    w->busy = true;
    n->open++;
}

void node_identity_save(void *ctx, const struct identity *identity)
{
    struct node *n = ctx;
    struct node_identity_save *w = &n->identity_save;
    if (n->phase >= PHASE_CLOSE) {
        return;
    }
    FLI_ASSERT(!w->busy && !w->again);
    w->identity = *identity;
    save(n);
}

void node_identity_tick(struct node *n)
{
    struct node_identity_save *w = &n->identity_save;
    if (may_save(n) && w->again && !w->busy) {
        save(n);
    }
}
