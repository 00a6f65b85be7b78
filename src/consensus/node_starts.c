/* node_starts.c: the file of starts (starts.h), as the node keeps it. It is written on a thread of
 * libuv's pool, and so is the witness: the loop waits for a disk only when the node starts or ends.
 * What others wait for is written at once, or when the write before has ended, all that came
 * meanwhile together. What others have told of their disks is written from time to time. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/write.h"
#include "consensus/node_private.h"

#define SAVE_MS 1000u /* between two writes of progress: to the witness; to `starts` */

/* ---- the start ---- */

static int refuse(struct node *n, int rv, char *errmsg, size_t errmsg_size)
{
    if (rv == FL_ENOTFOUND) {
        snprintf(errmsg, errmsg_size,
                 "%s/starts is missing: put back what was taken away, or move the directory away, "
                 "run fencelock cluster replace %" PRIu64 ", and start with an empty one",
                 n->dir.path, n->id);
        return FL_EDENIED;
    }
    if (rv == FL_ECORRUPT) {
        snprintf(errmsg, errmsg_size,
                 "%s/starts is damaged: move the directory away, run fencelock cluster replace "
                 "%" PRIu64 ", and start with an empty one",
                 n->dir.path, n->id);
    } else {
        snprintf(errmsg, errmsg_size, "cannot read %s/starts: %s", n->dir.path, strerror(errno));
    }
    return rv;
}

static int store(struct node *n)
{
    struct node_starts *k = &n->starts;
    pthread_mutex_lock(&k->lock);
    int rv = starts_store(&n->dir, &k->starts);
    k->on_disk = k->starts.sequence;
    pthread_mutex_unlock(&k->lock);
    if (rv == 0) {
        k->kept = k->starts;
        k->due = false;
    }
    return rv;
}

int node_starts_store(void *ctx)
{
    return store(ctx);
}

int node_starts_new(struct node *n, char *errmsg, size_t errmsg_size)
{
    n->starts.starts = (struct starts){.incarnation = n->identity.incarnation};
    n->starts.is_new = true;
    if (store(n) != 0) {
        snprintf(errmsg, errmsg_size, "cannot write %s/starts: %s", n->dir.path, strerror(errno));
        return FL_EIO;
    }
    return 0;
}

/* Whether the log reaches as far as this node once wrote down. A log cannot tell by itself that
 * its newest segments are missing. Later starts are not refused for it: the files may come back. */
static int check_tail(const struct node *n, char *errmsg, size_t errmsg_size)
{
    uint64_t had = n->starts.starts.index;
    uint64_t has = log_writes(n->log);
    if (has >= had) {
        return 0;
    }
    snprintf(errmsg, errmsg_size,
             "the log in %s is an older copy, or its newest part is missing: it had %" PRIu64
             " writes, and has %" PRIu64 " (up to entry %" PRIu64
             "): put back the files that were taken away; if they are lost, a member is replaced "
             "(fencelock cluster replace %" PRIu64 "), and a node alone begins anew with "
             "fencelockd --recover-from %s --tokens-above N",
             n->dir.log_path, had, has, log_last_index(n->log), n->id, n->dir.path);
    return FL_EDENIED;
}

int node_starts_load(struct node *n, char *errmsg, size_t errmsg_size)
{
    struct starts *s = &n->starts.starts;
    int rv = starts_open(&n->dir, s);
    if (rv != 0) {
        return refuse(n, rv, errmsg, errmsg_size);
    }
    if (s->next.number == STARTS_REFUSED) {
        snprintf(errmsg, errmsg_size,
                 "the data directory %s is an older copy, the other members have said: move it "
                 "away, run fencelock cluster replace %" PRIu64 ", and start with an empty one",
                 n->dir.path, n->id);
        return FL_EDENIED;
    }
    if (s->incarnation != n->identity.incarnation) {
        snprintf(errmsg, errmsg_size,
                 "%s/starts is of another directory: put back the one that was there", n->dir.path);
        return FL_EDENIED;
    }
    return check_tail(n, errmsg, errmsg_size);
}

static void note_writes(const struct node *n, struct starts *s)
{
    uint64_t writes = log_writes(n->log);
    s->index = writes > s->index ? writes : s->index;
}

int node_starts_begin(struct node *n, const char *witness, bool reset, char *errmsg,
                      size_t errmsg_size)
{
    struct node_starts *k = &n->starts;
    uint64_t nonce;
    fli_random(&nonce, sizeof nonce);
    struct start next = starts_next(&k->starts, nonce);
    k->witness_path = witness;
    if (witness != NULL) {
        const struct witness_view view = {.directory = n->dir.path,
                                          .starts = &k->starts,
                                          .is_new = k->is_new,
                                          .term = log_get_hard_state(n->log).term,
                                          .last_index = log_last_index(n->log)};
        int rv = witness_begin(witness, reset, &view, next, &k->witness, errmsg, errmsg_size);
        if (rv != 0) {
            return rv;
        }
    }
    k->starts.own = next;
    note_writes(n, &k->starts);
    k->starts.next = (struct start){.number = witness == NULL ? 0 : STARTS_RECORDED};
    if (store(n) != 0) {
        snprintf(errmsg, errmsg_size, "cannot write %s/starts: %s", n->dir.path, strerror(errno));
        return FL_EIO;
    }
    int rv = witness == NULL ? 0 : witness_settle(witness, &k->witness, errmsg, errmsg_size);
    k->witness_kept = k->witness;
    return rv;
}

/* ---- now and then ---- */

uint64_t node_starts_index(const struct node *n)
{
    uint64_t durable = log_durable_index(n->log);
    uint64_t committed = replica_commit_index(n->replica);
    return durable < committed ? durable : committed;
}

static bool may_save(const struct node *n)
{
    return !n->failed && n->phase < PHASE_CLOSE;
}

static void note_failure(struct node *n, int error, const char *witness)
{
    struct node_starts *k = &n->starts;
    if (error != 0 && !k->failure_logged) {
        host_log(&n->host, 2, "what is known of starts cannot be written%s%s: %s",
                 witness != NULL ? " to the witness " : "", witness != NULL ? witness : "",
                 strerror(error));
    }
    k->failure_logged = error != 0;
}

static void save_work(uv_work_t *req)
{
    struct node_starts_save *w = req->data;
    struct node_starts *k = &w->node->starts;
    w->error = 0;
    pthread_mutex_lock(&k->lock);
    if (w->starts.sequence > k->on_disk && starts_store(&w->node->dir, &w->starts) != 0) {
        w->error = errno == 0 ? EIO : errno;
    }
    pthread_mutex_unlock(&k->lock);
}

static void save_done(uv_work_t *req, int status);

/* Raises term and index to what is on this disk and stays there: only committed entries are never
 * truncated. For the witness. */
static void note_progress(const struct node *n, struct starts *s)
{
    uint64_t index = node_starts_index(n);
    uint64_t term = replica_term_on_disk(n->replica);
    s->index = index > s->index ? index : s->index;
    s->term = term > s->term ? term : s->term;
}

/* Whether a file has less, of this node or of another. It may also be that a write of it has
 * failed. */
static bool is_behind(const struct starts *kept, const struct starts *now)
{
    bool behind = now->index > kept->index || now->term > kept->term;
    for (unsigned i = 0; i < now->n && !behind; i++) {
        const struct starts_known *is = &now->known[i];
        const struct starts_known *k = starts_find(kept, is->id, is->incarnation);
        behind = k == NULL || is->index > k->index || is->term > k->term;
    }
    return behind;
}

static void save(struct node *n)
{
    struct node_starts *k = &n->starts;
    struct node_starts_save *w = &k->save;
    FLI_ASSERT(!w->busy);
    note_writes(n, &k->starts);
    k->starts.sequence++; /* later changes are newer than this copy */
    w->node = n;
    w->awaited = k->due || k->again;
    w->starts = k->starts;
    w->req.data = w;
    if (uv_queue_work(n->loop, &w->req, save_work, save_done) == 0) {
        w->busy = true;
        k->due = k->again = false;
        n->open++;
    }
}

/* A write that the end of the node has overtaken has written less than is kept. */
static void note_kept(struct node_starts *k)
{
    if (k->save.starts.sequence > k->kept.sequence) {
        k->kept = k->save.starts;
    }
}

/* Whoever waited is let in before the next write, if there is one. */
static void save_done(uv_work_t *req, int status)
{
    struct node_starts_save *w = req->data;
    struct node *n = w->node;
    int error = status != 0 ? ECANCELED : w->error;
    w->busy = false;
    if (error == 0) {
        note_kept(&n->starts);
    }
    bool passes = fli_error_passes(error);
    n->starts.again = w->awaited && passes;
    if (may_save(n) && error != 0 && w->awaited && !passes) {
        host_fail(&n->host, FL_EIO, "the file starts in %s cannot be written", n->dir.path);
    } else {
        note_failure(n, error, NULL);
    }
    if (may_save(n) && error == 0) {
        transport_check_again(n->transport);
    }
    node_wake(n);
    node_closed_one(n);
}

void node_starts_save(void *ctx)
{
    struct node *n = ctx;
    n->starts.due = true;
    node_wake(n);
}

/* After all that this turn has read. */
void node_starts_turn(struct node *n)
{
    if (may_save(n) && n->starts.due && !n->starts.save.busy) {
        save(n);
    }
}

static void witness_work(uv_work_t *req)
{
    struct node_witness_save *w = req->data;
    w->error = starts_write(w->node->starts.witness_path, &w->witness) != 0 ? errno : 0;
}

static void witness_done(uv_work_t *req, int status)
{
    struct node_witness_save *w = req->data;
    struct node_starts *k = &w->node->starts;
    int error = status != 0 ? ECANCELED : w->error;
    w->busy = false;
    k->witness.sequence = w->witness.sequence;
    if (error == 0) {
        k->witness_kept = w->witness;
    }
    note_failure(w->node, error, k->witness_path);
    node_closed_one(w->node);
}

static void save_witness(struct node *n)
{
    struct node_witness_save *w = &n->starts.save_witness;
    w->node = n;
    w->witness = n->starts.witness;
    w->req.data = w;
    if (uv_queue_work(n->loop, &w->req, witness_work, witness_done) == 0) {
        w->busy = true;
        n->open++;
    }
}

static bool is_due(uint64_t *at_ms, uint64_t now_ms, unsigned every_ms)
{
    bool due = now_ms - *at_ms >= every_ms;
    *at_ms = due ? now_ms : *at_ms;
    return due;
}

static bool witness_moves(struct node *n)
{
    struct node_starts *k = &n->starts;
    if (k->witness_path == NULL) {
        return false;
    }
    note_progress(n, &k->witness);
    return is_behind(&k->witness_kept, &k->witness);
}

/* Of this node or of the others. */
static bool starts_move(struct node *n)
{
    struct node_starts *k = &n->starts;
    note_writes(n, &k->starts);
    return is_behind(&k->kept, &k->starts);
}

void node_starts_tick(struct node *n)
{
    struct node_starts *k = &n->starts;
    uint64_t now_ms = fli_clock_ms();
    if (!may_save(n)) {
        return;
    }
    if (!k->save_witness.busy && is_due(&k->witness_ms, now_ms, SAVE_MS) && witness_moves(n)) {
        save_witness(n);
    }
    if (!k->save.busy &&
        (k->due || k->again || (is_due(&k->saved_ms, now_ms, SAVE_MS) && starts_move(n)))) {
        save(n);
    }
}

/* At an orderly end, the latest progress of the others is worth a write. */
void node_starts_end(struct node *n)
{
    struct node_starts *k = &n->starts;
    if (n->failed || n->membership == NULL || n->replica == NULL) {
        return;
    }
    if ((starts_move(n) || k->due) && store(n) != 0) {
        host_log(&n->host, 2, "%s/starts cannot be written: %s", n->dir.path, strerror(errno));
    }
    if (!k->save_witness.busy && witness_moves(n) &&
        starts_write(k->witness_path, &k->witness) != 0) {
        host_log(&n->host, 2, "the witness %s cannot be written: %s", k->witness_path,
                 strerror(errno));
    }
}

/* ---- telling ---- */

size_t node_starts_message(struct node *n, uint8_t out[STARTS_MESSAGE_MAX])
{
    return starts_message_encode(&n->starts.kept, n->id, replica_term_on_disk(n->replica),
                                 node_starts_index(n), out);
}
