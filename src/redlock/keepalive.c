/* keepalive.c: extends a lock again and again in the background; the policy is in quorum.h.
 *
 * A keeper belongs to its user until fl_redlock_keep_stop(), also after it has ended. It is
 * freed there; or, while an extend or a callback of the user's is under way, when that has
 * returned. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "redlock/keep_thread.h"
#include "redlock/quorum.h"
#include "redlock/redlock_private.h"

struct fl_redlock_keeper {
    struct fli_list node;
    struct fli_due due;
    struct fli_note note;
    struct fl_redlock *r;
    struct fli_renewal renewal;
    struct fl_redlock_lock lock;
    bool extending;
    bool callback_queued; /* the user's callback is queued */
    bool ended;
    bool stopped;
    enum fl_redlock_end why;
    fl_redlock_ended *fn;
    void *ctx;
    void (*moved)(void *ctx, const struct fl_redlock_lock *lock); /* NULL: nobody is told */
    void *moved_ctx;
    struct fli_kept *kept; /* of a handle whose calls block; NULL: what is above is in use */
    size_t name_len;
    char name[FL_NAME_MAX];
};

static void free_if_over(struct fl_redlock_keeper *k)
{
    if (k->stopped && !k->extending && !k->callback_queued) {
        free(k);
    }
}

static void call_ended(struct fli_note *note)
{
    struct fl_redlock_keeper *k = FLI_CONTAINER_OF(note, struct fl_redlock_keeper, note);
    if (!k->stopped) {
        k->fn(k->ctx, k->why, &k->lock);
    }
    k->callback_queued = false;
    free_if_over(k);
}

static void end(struct fl_redlock_keeper *k, enum fl_redlock_end why)
{
    k->ended = true;
    k->why = why;
    k->callback_queued = true;
    fli_note_add(k->r, &k->note);
}

static void on_extended(void *ctx, int result, const struct fl_redlock_lock *lock,
                        const struct fl_redlock_report *report);

static void step(struct fl_redlock_keeper *k, uint64_t now_ms)
{
    uint64_t wake_ms;
    uint64_t ttl_ms;
    struct fl_bytes name = {k->name, k->name_len};
    switch (fli_renewal_next(&k->renewal, now_ms, &wake_ms, &ttl_ms)) {
    case FLI_RENEWAL_WAIT:
        fli_redlock_due(k->r, &k->due, wake_ms);
        break;
    case FLI_RENEWAL_EXTEND:
        k->extending = true;
        if (fl_redlock_extend_start(k->r, name, &k->lock, ttl_ms, on_extended, k) != 0) {
            k->extending = false;
            fli_renewal_extended(&k->renewal, now_ms, k->lock.deadline_ms, false);
            fli_redlock_due(k->r, &k->due, k->renewal.try_ms);
        }
        break;
    case FLI_RENEWAL_ENDING:
        end(k, FL_REDLOCK_END_MAX_HOLD);
        break;
    case FLI_RENEWAL_EXPIRED:
        end(k, FL_REDLOCK_END_EXPIRED);
        break;
    }
}

static void on_extended(void *ctx, int result, const struct fl_redlock_lock *lock,
                        const struct fl_redlock_report *report)
{
    struct fl_redlock_keeper *k = ctx;
    k->extending = false;
    if (k->stopped || k->ended) {
        free_if_over(k);
        return;
    }
    uint64_t now_ms = fli_clock_ms();
    uint64_t ttl_ms = k->lock.ttl_ms;
    k->lock = *lock;
    k->lock.ttl_ms = ttl_ms; /* extends shortly before the end of max_hold have shorter TTLs */
    fli_enter(k->r);
    if (report->cause == FL_REDLOCK_LOST) {
        end(k, FL_REDLOCK_END_LOST);
    } else {
        fli_renewal_extended(&k->renewal, now_ms, lock->deadline_ms, result == 0);
        k->lock.deadline_ms = k->renewal.deadline_ms;
        if (k->moved != NULL) {
            k->moved(k->moved_ctx, &k->lock);
        }
        step(k, now_ms);
    }
    fli_leave_call(k->r);
}

static void on_due(struct fli_due *d, uint64_t now_ms)
{
    step(FLI_CONTAINER_OF(d, struct fl_redlock_keeper, due), now_ms);
}

void fli_keeper_watch(fl_redlock_keeper *k,
                      void (*moved)(void *ctx, const struct fl_redlock_lock *lock), void *ctx)
{
    k->moved = moved;
    k->moved_ctx = ctx;
    moved(ctx, &k->lock);
}

/* On the thread that keeps. */
static void on_kept_ended(void *ctx, enum fl_redlock_end why, const struct fl_redlock_lock *lock)
{
    struct fl_redlock_keeper *k = ctx;
    k->ended = true;
    k->fn(k->ctx, why, lock);
}

static int keep_on_thread(struct fl_redlock_keeper *k, uint64_t max_hold_ms)
{
    fl_redlock *r = k->r;
    const struct fl_bytes name = {k->name, k->name_len};
    if (r->keep_thread != NULL && !fli_keep_thread_is_ours(r->keep_thread)) {
        r->keep_thread = NULL; /* the parent's: a child of fork() has no copy of the thread */
    }
    int rc = r->keep_thread != NULL ? 0 : fli_keep_thread_start(r->options, &r->keep_thread);
    return rc != 0 ? rc
                   : fli_kept_start(r->keep_thread, name, &k->lock, max_hold_ms, on_kept_ended, k,
                                    &k->kept);
}

int fl_redlock_keep_start(fl_redlock *r, struct fl_bytes name, const struct fl_redlock_lock *lock,
                          uint64_t max_hold_ms, fl_redlock_ended *ended, void *ctx,
                          fl_redlock_keeper **ret)
{
    if (r->closing || fli_check_name(name) != 0 || ended == NULL || max_hold_ms == 0 ||
        max_hold_ms > FL_REDLOCK_TIME_MAX_MS || lock->ttl_ms < FL_TTL_MIN_MS ||
        lock->ttl_ms > r->owner.max_ttl_ms) {
        return FL_EINVAL;
    }
    if (fli_grant_is_inherited(lock->process)) {
        return FL_ENOTHELD;
    }
    struct fl_redlock_keeper *k = calloc(1, sizeof *k);
    if (k == NULL) {
        return FL_ENOMEM;
    }
    k->r = r;
    k->lock = *lock;
    k->fn = ended;
    k->ctx = ctx;
    k->name_len = name.len;
    memcpy(k->name, name.data, name.len);
    k->due.fire = on_due;
    k->note.deliver = call_ended;
    fli_heap_node_init(&k->due.node);
    int rc = fli_own(r);
    if (rc != 0) {
        free(k);
        return rc;
    }
    if (r->is_private) {
        rc = keep_on_thread(k, max_hold_ms);
        if (rc != 0) {
            free(k);
            return rc;
        }
        fli_list_push(&r->keepers, &k->node);
        *ret = k;
        return 0;
    }
    fli_list_push(&r->keepers, &k->node);
    uint64_t now_ms = fli_clock_ms();
    fli_renewal_init(&k->renewal, now_ms, lock->ttl_ms, lock->deadline_ms, max_hold_ms);
    k->lock.deadline_ms = k->renewal.deadline_ms;
    fli_enter(r);
    step(k, now_ms);
    fli_leave_call(r);
    *ret = k;
    return 0;
}

const struct fl_redlock_lock *fl_redlock_keep_lock(const fl_redlock_keeper *k)
{
    return &k->lock;
}

void fl_redlock_keep_copy(fl_redlock_keeper *k, struct fl_redlock_lock *ret)
{
    if (k->kept != NULL) {
        fli_kept_copy(k->kept, ret);
    } else {
        *ret = k->lock;
    }
}

void fl_redlock_keep_stop(fl_redlock_keeper *k)
{
    if (k == NULL) {
        return;
    }
    if (k->kept != NULL) {
        fli_kept_stop(k->kept);
        k->kept = NULL;
        fli_list_remove(&k->node);
        k->stopped = true;
        free_if_over(k);
        return;
    }
    (void)!fli_own(k->r); /* it ends what there is in any case */
    k->stopped = true;
    fli_redlock_not_due(k->r, &k->due);
    fli_list_remove(&k->node);
    free_if_over(k);
}

void fli_keepers_close(struct fl_redlock *r)
{
    FLI_LIST_FOREACH(node, &r->keepers)
    {
        struct fl_redlock_keeper *k = FLI_CONTAINER_OF(node, struct fl_redlock_keeper, node);
        fli_redlock_not_due(r, &k->due);
        if (k->kept != NULL) {
            fli_kept_forget_thread(k->kept);
        }
        if (!k->ended) {
            end(k, FL_REDLOCK_END_CLOSED);
        }
    }
}
