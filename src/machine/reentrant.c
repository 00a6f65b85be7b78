/* reentrant.c: locks that one owner may take several times and must release as often, like
 * Redisson's (src/frontdoor). There is one hold with one token; its value is replaced by the count
 * of how often it was taken.
 *
 *   REENTER finds   and does
 *   a free lock     grants it, taken once                              GRANTED
 *   its own         counts up, prolongs the lease; ONCE: nothing       DONE, number: the count
 *   another's       nothing; deadline: until when it is held           HELD
 *
 *   LEAVE finds     and does
 *   its own         counts down, prolongs the lease; the last one      DONE, number: 1 when it was
 *                   releases it                                        released, else 0
 *   anything else   nothing                                            NO or HELD
 *
 * A user may always give back, but a lease is prolonged only for a user who may acquire the lock.
 *
 * A lock that was taken without a count (ACQUIRE, KEYS) counts as another owner's here, even when
 * the owner is the same: nothing says how often it is to be released.
 *
 * A client that got no answer may send LEAVE again, and it must not count twice. So a LEAVE may
 * have a label. The label is remembered with the answer for the time that the command gives (at
 * most MACHINE_LEAVE_KEEP_MS); the same label gets the same answer (outcomes.h). */
#include "machine/state.h"

/* Whether this LEAVE was answered before; r then holds that answer. */
static bool answered(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    const struct outcome *o =
        c->label.len == 0 ? NULL : machine_outcome_find(m, OUTCOME_LEAVE, c->name, c->label);
    if (o != NULL) {
        r->code = MACHINE_DONE;
        r->number = (uint32_t)o->number; /* 0 or 1 */
    }
    return o != NULL;
}

static void set_count(struct machine *m, struct request *request, uint32_t n)
{
    m->digest -= machine_digest_grant(request);
    machine_request_set_count(request, n);
    m->digest += machine_digest_grant(request);
}

static void answer_own(const struct machine *m, struct request *request, struct machine_result *r)
{
    r->code = MACHINE_DONE;
    r->number = machine_request_count(request);
    r->token = request_token(request);
    r->deadline_ms = machine_timer_deadline(m, &request_session(request)->lease);
}

/* Until when the lock stays taken: the end of the oldest holder's lease, or of a delay. When that
 * lease is over and not yet taken away, the client is to ask again soon. */
static uint64_t held_until(struct machine *m, struct fli_slice name)
{
    uint64_t hash;
    struct lock *lock = machine_lock_find(m, name, &hash);
    bool more = false;
    struct request *holder = lock == NULL ? NULL : machine_lock_oldest(m, lock, &more);
    const struct contention *c = lock == NULL ? NULL : lock_contention(lock);
    if (holder != NULL) {
        return machine_timer_deadline(m, &request_session(holder)->lease);
    }
    return c != NULL && c->is_delayed ? c->delay.at_ms : m->clock_ms + FL_TTL_MIN_MS;
}

void machine_reenter(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct request *request;
    if (!machine_clear_own(m, c)) {
        machine_answer_limit(m, r, MACHINE_LIMIT_WAITS);
        return;
    }
    enum machine_key_state found = machine_key_find(m, c->name, c->owner, &request);
    if (request != NULL && !machine_sender_owns(m, request_session(request))) {
        machine_refuse(r, 0);
    } else if (found == KEY_FREE) {
        machine_key_grant(m, c, true, r);
    } else if (found == KEY_OTHER || !request->counted) {
        r->code = MACHINE_HELD;
        r->deadline_ms = held_until(m, c->name);
    } else if ((c->flags & MACHINE_REENTER_ONCE) != 0) {
        answer_own(m, request, r);
    } else if (machine_request_count(request) == MACHINE_HOLD_COUNT_MAX) {
        machine_answer_limit(m, r, MACHINE_LIMIT_SESSION_LOCKS);
    } else {
        set_count(m, request, machine_request_count(request) + 1);
        machine_session_renew(m, request_session(request), c->ttl_ms);
        answer_own(m, request, r);
    }
}

static void leave(struct machine *m, const struct machine_command *c, struct request *request,
                  struct machine_result *r)
{
    uint32_t count = machine_request_count(request);
    uint64_t steps = 0;
    r->code = MACHINE_DONE;
    r->token = request_token(request);
    r->number = count == 1;
    if (count == 1) {
        machine_lock_end(m, request, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
    } else {
        set_count(m, request, count - 1);
        r->deadline_ms = machine_sender_may(m, ACL_ACQUIRE, c->name, &steps)
                             ? machine_session_renew(m, request_session(request), c->ttl_ms)
                             : machine_timer_deadline(m, &request_session(request)->lease);
    }
    if (c->label.len > 0) {
        machine_outcome_note(m, OUTCOME_LEAVE, c->name, c->label, count == 1,
                             m->clock_ms + c->number);
    }
}

void machine_leave(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct request *request;
    if (answered(m, c, r)) {
        return;
    }
    if (!machine_clear_own(m, c)) {
        machine_answer_limit(m, r, MACHINE_LIMIT_WAITS);
        return;
    }
    enum machine_key_state found = machine_key_find(m, c->name, c->owner, &request);
    if (request != NULL && !machine_sender_owns(m, request_session(request))) {
        machine_refuse(r, 0);
    } else if (request == NULL || !request->counted) {
        r->code = found == KEY_FREE ? MACHINE_NO : MACHINE_HELD;
    } else {
        leave(m, c, request, r);
    }
}

int machine_holds(struct machine *m, const struct machine_command *q, struct machine_result *r,
                  struct fli_buf *payload)
{
    struct request *request;
    int rc = machine_key(m, q, r, payload);
    if (rc != 0 || r->code != MACHINE_DONE) {
        return rc;
    }
    enum machine_key_state found = machine_key_find(m, q->name, q->label, &request);
    FLI_ASSERT(found == KEY_OWN);
    if (!request->counted) {
        *r = (struct machine_result){.code = MACHINE_HELD, .number = 1, .clock_ms = r->clock_ms};
        return 0;
    }
    r->number = machine_request_count(request);
    return 0;
}
