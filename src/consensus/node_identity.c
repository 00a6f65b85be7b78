/* node_identity.c: writes the identity file on a thread of libuv's pool, one write at a time
 * (membership_known.c). A member that has said that it is READY must find on its disk, after a
 * restart, that it is a member; so what depends on the file waits for it, and the loop does not. */
#include "consensus/node_private.h"

static void save_work(uv_work_t *req)
{
    struct node_identity_save *w = req->data;
    w->error = identity_store(&w->node->dir, &w->identity);
}

static void save_done(uv_work_t *req, int status)
{
    struct node_identity_save *w = req->data;
    struct node *n = w->node;
    w->busy = false;
    if (!n->failed && n->phase < PHASE_CLOSE) {
        membership_identity_saved(n->membership, status != 0 ? FL_EIO : w->error);
        node_wake(n);
    }
    node_closed_one(n);
}

void node_identity_save(void *ctx, const struct identity *identity)
{
    struct node *n = ctx;
    struct node_identity_save *w = &n->identity_save;
    if (n->phase >= PHASE_CLOSE) {
        return;
    }
    FLI_ASSERT(!w->busy);
    w->node = n;
    w->identity = *identity;
    w->req.data = w;
    int rv = uv_queue_work(n->loop, &w->req, save_work, save_done);
    FLI_ASSERT(rv == 0); /* it cannot fail */
    w->busy = true;
    n->open++;
}
