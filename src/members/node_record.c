/* node_record.c: see node_record.h. */
#include "members/node_record.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/write.h"

#define SAVE_MS 1000u /* between two writes of progress */

#define REFUSE(code, ...) fli_refuse(errmsg, errmsg_size, code, __VA_ARGS__)

/* Takes what is known now as the copy, so that a worker that has not begun yet writes it too. */
static void take(struct node_record_file *f)
{
    f->now.sequence++; /* later changes are newer than this copy */
    f->copy = f->now;
}

static void write_copy(struct node_record_file *f)
{
    int rv = f->path != NULL ? record_write(-1, f->path, &f->copy) : record_store(f->dir, &f->copy);
    f->error = rv == 0 ? 0 : errno != 0 ? errno : EIO;
}

static int store(struct node_record_file *f)
{
    pthread_mutex_lock(&f->lock);
    take(f);
    write_copy(f);
    int error = f->error;
    f->kept = error == 0 ? f->copy : f->kept;
    pthread_mutex_unlock(&f->lock);
    errno = error;
    return error;
}

int node_record_store(struct node_record *k)
{
    int error = store(&k->own);
    k->due = k->due && error != 0;
    return error;
}

/* ---- the start ---- */

int node_record_open(struct node_record *k, const struct host *host, const char *path, uint64_t id,
                     const struct members *members, bool joins, char *errmsg, size_t errmsg_size)
{
    k->host = host;
    k->own.dir = &k->dir;
    k->dir.lock_fd = k->dir.record_fd = -1;
    (void)pthread_mutex_init(&k->own.lock, NULL); /* cannot fail */
    (void)pthread_mutex_init(&k->witness.lock, NULL);
    int rv = data_dir_open(path, &k->dir, errmsg, errmsg_size);
    return rv != 0 ? rv
                   : record_open(&k->dir, id, members, joins, &k->own.now, errmsg, errmsg_size);
}

/* Whether an existing directory may start: whether the others have not refused it, and the log
 * reaches as far as this node once wrote down. A log cannot tell by itself that its newest segments
 * are missing. Later starts are not refused for it: the files may come back. */
static int check(const struct node_record *k, char *errmsg, size_t errmsg_size)
{
    uint64_t id = k->own.now.identity.id;
    uint64_t had = k->own.now.starts.index;
    uint64_t has = log_writes(k->log);
    if (k->own.now.starts.next.number == STARTS_REFUSED) {
        return REFUSE(FL_EDENIED,
                      "the data directory %s is an older copy, the other members have said: move "
                      "it away, run fencelock cluster replace %" PRIu64
                      ", and start with an empty one",
                      k->dir.path, id);
    }
    return has >= had
               ? 0
               : REFUSE(FL_EDENIED,
                        "the log in %s is an older copy, or its newest part is missing: it had "
                        "%" PRIu64 " writes, and has %" PRIu64 " (up to entry %" PRIu64
                        "): put back the files that were taken away; if they are lost, a member is "
                        "replaced (fencelock cluster replace %" PRIu64
                        "), and a node alone begins anew with fencelockd --recover-from %s "
                        "--tokens-above N",
                        k->dir.log_path, had, has, log_last_index(k->log), id, k->dir.path);
}

/* Raises term and index of a file to what is on this disk and stays there. In a witness only
 * committed entries count, which are never truncated. */
static void note_progress(const struct node_record *k, struct node_record_file *f)
{
    struct starts *s = &f->now.starts;
    bool own = f == &k->own;
    uint64_t index = own ? log_writes(k->log) : node_record_index(k);
    uint64_t term = own ? 0 : replica_term_on_disk(k->replica);
    s->index = index > s->index ? index : s->index;
    s->term = term > s->term ? term : s->term;
}

int node_record_begin(struct node_record *k, const char *witness, bool reset, char *errmsg,
                      size_t errmsg_size)
{
    struct starts *s = &k->own.now.starts;
    const struct witness w = {.path = witness,
                              .directory = k->dir.path,
                              .record = &k->own.now,
                              .is_new = !k->own.now.identity.bootstrapped,
                              .term = log_get_hard_state(k->log).term,
                              .last_index = log_last_index(k->log),
                              .now = &k->witness.now,
                              .errmsg = errmsg,
                              .errmsg_size = errmsg_size};
    uint64_t nonce;
    fli_random(&nonce, sizeof nonce);
    struct start next = starts_next(s, nonce);
    int rv = check(k, errmsg, errmsg_size);
    rv = rv != 0 || witness == NULL ? rv : witness_begin(&w, reset, next);
    if (rv != 0) {
        return rv;
    }
    s->own = next;
    note_progress(k, &k->own);
    s->next = (struct start){.number = witness == NULL ? 0 : STARTS_RECORDED};
    k->own.now.identity.bootstrapped = true;
    if (store(&k->own) != 0) {
        return REFUSE(FL_EIO, "cannot write %s/identity: %s", k->dir.path, strerror(errno));
    }
    rv = witness == NULL ? 0 : witness_settle(&w);
    k->witness.path = witness;
    k->witness.kept = k->witness.now;
    return rv;
}

/* ---- now and then ---- */

uint64_t node_record_index(const struct node_record *k)
{
    uint64_t durable = log_durable_index(k->log);
    uint64_t committed = replica_commit_index(k->replica);
    return durable < committed ? durable : committed;
}

/* Whether a file has less, of this node or of another. It may also be that a write of it has
 * failed. */
static bool is_behind(const struct node_record *k, struct node_record_file *f)
{
    const struct starts *kept = &f->kept.starts;
    const struct starts *now = &f->now.starts;
    note_progress(k, f);
    return now->index > kept->index || now->term > kept->term || now->n != kept->n ||
           memcmp(now->known, kept->known, now->n * sizeof now->known[0]) != 0;
}

static void log_failure(const struct node_record *k, const struct node_record_file *f)
{
    if (f->path == NULL) {
        host_log(k->host, 2, "%s/identity cannot be written: %s", k->dir.path, strerror(f->error));
    } else {
        host_log(k->host, 2, "the witness %s cannot be written: %s", f->path, strerror(f->error));
    }
}

static void write_work(struct host_work *w)
{
    struct node_record_file *f = FLI_CONTAINER_OF(w, struct node_record_file, work);
    pthread_mutex_lock(&f->lock);
    write_copy(f);
    pthread_mutex_unlock(&f->lock);
}

static void note_write(const struct node_record *k, struct node_record_file *f)
{
    if (f->error == 0) {
        f->kept = f->copy;
    } else if (!f->failing) {
        log_failure(k, f);
    }
    f->failing = f->error != 0;
}

static void witness_done(struct host_work *w)
{
    struct node_record *k = FLI_CONTAINER_OF(w, struct node_record, witness.work);
    note_write(k, &k->witness);
}

/* Whoever waited is let in before the next write, if there is one. */
static void own_done(struct host_work *w)
{
    struct node_record *k = FLI_CONTAINER_OF(w, struct node_record, own.work);
    int error = k->own.error;
    if (error != 0 && k->awaited && !fli_error_passes(error) && !k->ended) {
        host_fail(k->host, FL_EIO, "the file identity in %s cannot be written", k->dir.path);
    }
    note_write(k, &k->own);
    k->due = k->due || (k->awaited && error != 0);
    if (error == 0 && !k->ended) {
        transport_check_again(k->transport);
    }
    k->host->wake(k->host->ctx);
}

static void save_own(struct node_record *k)
{
    note_progress(k, &k->own);
    k->awaited = k->due;
    k->due = false;
    take(&k->own);
    host_work(k->host, &k->own.work, write_work, own_done);
}

void node_record_save(struct node_record *k)
{
    k->due = true;
    k->host->wake(k->host->ctx);
}

/* When a write has failed, the next one does not come at once. */
void node_record_turn(struct node_record *k)
{
    if (k->due && !k->own.work.busy && !k->own.failing) {
        save_own(k);
    }
}

/* Whether it is time for a write of progress, and there is some. */
static bool moves(const struct node_record *k, struct node_record_file *f)
{
    if (fli_clock_since_ms(f->looked_ms) < SAVE_MS) {
        return false;
    }
    f->looked_ms = fli_clock_ms();
    return is_behind(k, f);
}

void node_record_tick(struct node_record *k)
{
    if (k->witness.path != NULL && !k->witness.work.busy && moves(k, &k->witness)) {
        take(&k->witness);
        host_work(k->host, &k->witness.work, write_work, witness_done);
    }
    if (!k->own.work.busy && (k->due || moves(k, &k->own))) {
        save_own(k);
    }
}

void node_record_end(struct node_record *k)
{
    k->ended = true;
    if ((is_behind(k, &k->own) || k->due) && store(&k->own) != 0) {
        log_failure(k, &k->own);
    }
    if (k->witness.path != NULL && !k->witness.work.busy && is_behind(k, &k->witness) &&
        store(&k->witness) != 0) {
        log_failure(k, &k->witness);
    }
}

void node_record_close(struct node_record *k)
{
    data_dir_close(&k->dir);
}

/* ---- telling ---- */

size_t node_record_message(const struct node_record *k, uint8_t out[STARTS_MESSAGE_MAX])
{
    const struct record *r = &k->own.kept;
    return starts_message_encode(&r->starts, r->identity.id, r->identity.incarnation,
                                 replica_term_on_disk(k->replica), node_record_index(k), out);
}
