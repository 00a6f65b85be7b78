/* node_record.c: the record of this node (record.h), and its witness. They are written on a thread
 * of libuv's pool: the loop waits for a disk only when the node starts or ends, and when it finds
 * that its directory is an older copy. What others wait for is written at once, or when the write
 * before has ended, all that came meanwhile together. What others have told of their disks is
 * written from time to time. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/write.h"
#include "consensus/node_private.h"

#define SAVE_MS 1000u /* between two writes of progress */

static int write_file(const struct node_file *f, struct record *r)
{
    return f->path != NULL ? record_write(f->path, r) : record_store(&f->node->dir, r);
}

static int store(struct node_file *f)
{
    pthread_mutex_lock(&f->lock);
    int rv = write_file(f, &f->now);
    if (rv == 0) {
        f->on_disk = f->now.sequence; /* an older one that waits for a thread is not written */
        f->kept = f->now;
    }
    pthread_mutex_unlock(&f->lock);
    return rv;
}

int node_record_store(void *ctx)
{
    struct node *n = ctx;
    int rv = store(&n->record.own);
    n->record.due = n->record.due && rv != 0;
    return rv;
}

/* ---- the start ---- */

/* Whether the log reaches as far as this node once wrote down. A log cannot tell by itself that
 * its newest segments are missing. Later starts are not refused for it: the files may come back. */
static int check_tail(const struct node *n, char *errmsg, size_t errmsg_size)
{
    uint64_t had = n->record.own.now.starts.index;
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

int node_record_check(const struct node *n, char *errmsg, size_t errmsg_size)
{
    if (n->record.own.now.starts.next.number == STARTS_REFUSED) {
        snprintf(errmsg, errmsg_size,
                 "the data directory %s is an older copy, the other members have said: move it "
                 "away, run fencelock cluster replace %" PRIu64 ", and start with an empty one",
                 n->dir.path, n->id);
        return FL_EDENIED;
    }
    return check_tail(n, errmsg, errmsg_size);
}

static void note_writes(const struct node *n, struct starts *s)
{
    uint64_t writes = log_writes(n->log);
    s->index = writes > s->index ? writes : s->index;
}

/* Without a witness there is nothing to do. */
static int begin_witness(struct node *n, bool reset, struct start next, char *errmsg,
                         size_t errmsg_size)
{
    struct node_record *k = &n->record;
    const struct witness_view view = {.directory = n->dir.path,
                                      .record = &k->own.now,
                                      .is_new = k->is_new,
                                      .term = log_get_hard_state(n->log).term,
                                      .last_index = log_last_index(n->log)};
    return k->witness.path == NULL ? 0
                                   : witness_begin(k->witness.path, reset, &view, next,
                                                   &k->witness.now, errmsg, errmsg_size);
}

int node_record_begin(struct node *n, const char *witness, bool reset, char *errmsg,
                      size_t errmsg_size)
{
    struct node_record *k = &n->record;
    struct starts *s = &k->own.now.starts;
    uint64_t nonce;
    fli_random(&nonce, sizeof nonce);
    struct start next = starts_next(s, nonce);
    k->witness.path = witness;
    int rv = begin_witness(n, reset, next, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    s->own = next;
    note_writes(n, s);
    s->next = (struct start){.number = witness == NULL ? 0 : STARTS_RECORDED};
    k->own.now.identity.bootstrapped = true;
    if (store(&k->own) != 0) {
        snprintf(errmsg, errmsg_size, "cannot write %s/identity: %s", n->dir.path, strerror(errno));
        return FL_EIO;
    }
    rv = witness == NULL ? 0 : witness_settle(witness, &k->witness.now, errmsg, errmsg_size);
    k->witness.kept = k->witness.now;
    return rv;
}

/* ---- now and then ---- */

uint64_t node_record_index(const struct node *n)
{
    uint64_t durable = log_durable_index(n->log);
    uint64_t committed = replica_commit_index(n->replica);
    return durable < committed ? durable : committed;
}

static bool may_save(const struct node *n)
{
    return !n->failed && n->phase < PHASE_CLOSE;
}

static void note_failure(struct node_file *f, int error)
{
    if (error != 0 && !f->failure_logged) {
        host_log(&f->node->host, 2, "what is known of starts cannot be written%s%s: %s",
                 f->path != NULL ? " to the witness " : "", f->path != NULL ? f->path : "",
                 strerror(error));
    }
    f->failure_logged = error != 0;
}

/* Raises term and index to what is on this disk and stays there: only committed entries are never
 * truncated. For the witness. */
static void note_progress(const struct node *n, struct starts *s)
{
    uint64_t index = node_record_index(n);
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

static bool moves(struct node_file *f)
{
    struct node *n = f->node;
    if (f == &n->record.own) {
        note_writes(n, &f->now.starts);
    } else if (f->path != NULL) {
        note_progress(n, &f->now.starts);
    }
    return is_behind(&f->kept.starts, &f->now.starts);
}

static void save_work(uv_work_t *req)
{
    struct node_file *f = req->data;
    f->error = 0;
    pthread_mutex_lock(&f->lock);
    if (f->copy.sequence > f->on_disk && write_file(f, &f->copy) != 0) {
        f->error = errno == 0 ? EIO : errno;
    }
    pthread_mutex_unlock(&f->lock);
}

/* Whoever waited is let in before the next write, if there is one. */
static void own_saved(struct node *n, int error)
{
    struct node_record *k = &n->record;
    bool passes = fli_error_passes(error);
    k->again = k->awaited && passes;
    if (may_save(n) && error != 0 && k->awaited && !passes) {
        host_fail(&n->host, FL_EIO, "the file identity in %s cannot be written", n->dir.path);
    } else {
        note_failure(&k->own, error);
    }
    if (may_save(n) && error == 0) {
        transport_check_again(n->transport);
    }
    node_wake(n);
}

/* A write that the end of the node has overtaken has written less than is kept. */
static void save_done(uv_work_t *req, int status)
{
    struct node_file *f = req->data;
    struct node *n = f->node;
    int error = status != 0 ? ECANCELED : f->error;
    f->busy = false;
    if (error == 0 && f->copy.sequence > f->kept.sequence) {
        f->kept = f->copy;
    }
    if (f == &n->record.own) {
        own_saved(n, error);
    } else {
        note_failure(f, error);
    }
    node_closed_one(n);
}

static void save(struct node_file *f)
{
    FLI_ASSERT(!f->busy);
    f->now.sequence++; /* later changes are newer than this copy */
    f->copy = f->now;
    f->req.data = f;
    f->busy = uv_queue_work(f->node->loop, &f->req, save_work, save_done) == 0;
    f->node->open += f->busy ? 1 : 0;
}

static void save_own(struct node *n)
{
    struct node_record *k = &n->record;
    note_writes(n, &k->own.now.starts);
    k->awaited = k->due || k->again;
    save(&k->own);
    if (k->own.busy) {
        k->due = k->again = false;
    }
}

void node_record_save(void *ctx)
{
    struct node *n = ctx;
    n->record.due = true;
    node_wake(n);
}

/* After all that this turn has read. */
void node_record_turn(struct node *n)
{
    if (may_save(n) && n->record.due && !n->record.own.busy) {
        save_own(n);
    }
}

static bool is_due(struct node_file *f, uint64_t now_ms)
{
    bool due = now_ms - f->saved_ms >= SAVE_MS;
    f->saved_ms = due ? now_ms : f->saved_ms;
    return due;
}

void node_record_tick(struct node *n)
{
    struct node_record *k = &n->record;
    uint64_t now_ms = fli_clock_ms();
    if (!may_save(n)) {
        return;
    }
    if (!k->witness.busy && is_due(&k->witness, now_ms) && moves(&k->witness)) {
        save(&k->witness);
    }
    if (!k->own.busy && (k->due || k->again || (is_due(&k->own, now_ms) && moves(&k->own)))) {
        save_own(n);
    }
}

/* At an orderly end, the latest progress of the others is worth a write. */
void node_record_end(struct node *n)
{
    struct node_record *k = &n->record;
    if (n->failed || n->membership == NULL || n->replica == NULL) {
        return;
    }
    if ((moves(&k->own) || k->due) && store(&k->own) != 0) {
        host_log(&n->host, 2, "%s/identity cannot be written: %s", n->dir.path, strerror(errno));
    }
    if (!k->witness.busy && moves(&k->witness) && store(&k->witness) != 0) {
        host_log(&n->host, 2, "the witness %s cannot be written: %s", k->witness.path,
                 strerror(errno));
    }
}

/* ---- telling ---- */

size_t node_record_message(struct node *n, uint8_t out[STARTS_MESSAGE_MAX])
{
    return starts_message_encode(&n->record.own.kept.starts, n->id,
                                 n->record.own.kept.identity.incarnation,
                                 replica_term_on_disk(n->replica), node_record_index(n), out);
}
