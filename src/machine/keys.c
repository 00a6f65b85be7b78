/* keys.c: locks as programs written for Redis see them (src/frontdoor): a key exists or not, and
 * its value names its owner. The value is the owner of an implicit session of one lock. Several
 * keys are several locks, each with its own grant, token and end.
 *
 *   state of the keys   flag of KEYS, what it does        answer; without such a flag
 *   all free            GRANT: grants each key            GRANTED; NO
 *   all the owner's     EXTEND, RELEASE                   DONE; HELD, with the token
 *                       SWAP: grants it to another owner  GRANTED, or HELD: it went to a waiter
 *   anything else       EACH: releases the owner's keys   DONE; HELD
 *
 * `number` of the answer is how many keys were changed; `token` is the first key's. A lock that an
 * explicit session holds, that several may hold, or that ACQUIRE took together with others, counts
 * as another owner's. So does a lock that is delayed or awaited. */
#include "machine/state.h"

struct keys {
    const struct machine_command *c;
    unsigned n;
    struct fli_slice names[MACHINE_NAMES_MAX];
};

struct request *machine_key_request(struct machine *m, const struct lock *lock,
                                    struct fli_slice owner)
{
    struct request *request = machine_lock_held_by(m, lock, false, owner);
    bool fits = request != NULL && !request->is_multi && lock_permits(lock) == 1 &&
                lock_slots(lock) == 1 && !machine_request_is_over(m, request);
    return fits ? request : NULL;
}

enum machine_key_state machine_key_find(struct machine *m, struct fli_slice name,
                                        struct fli_slice owner, struct request **ret)
{
    uint64_t hash;
    const struct lock *lock = machine_lock_find(m, name, &hash);
    *ret = NULL;
    if (lock == NULL) {
        return KEY_FREE;
    }
    *ret = machine_key_request(m, lock, owner);
    if (*ret != NULL) {
        return KEY_OWN;
    }
    const struct contention *c = lock_contention(lock);
    bool awaited = c != NULL && c->queue.len > 0;
    bool free = lock_holder(lock) == NULL && !awaited && machine_lock_admits(lock, 1);
    return free ? KEY_FREE : KEY_OTHER;
}

/* Finds the state that all keys have in common, and the request of the first key. False: a key
 * belongs to another user. */
static bool find_all_keys(struct machine *m, const struct keys *k, enum machine_key_state *ret)
{
    *ret = KEY_OTHER;
    for (unsigned i = 0; i < k->n; i++) {
        struct request *request;
        enum machine_key_state f = machine_key_find(m, k->names[i], k->c->owner, &request);
        if (request != NULL && !machine_sender_owns(m, request_session(request))) {
            return false;
        }
        *ret = i == 0 || f == *ret ? f : KEY_OTHER;
    }
    return true;
}

static enum machine_limit grant_limit(struct machine *m, const struct keys *k)
{
    uint64_t created = 0;
    for (unsigned i = 0; i < k->n; i++) {
        uint64_t hash;
        created += machine_lock_find(m, k->names[i], &hash) == NULL;
    }
    if (created > 0 && m->locks.len + created > m->limits.locks_max) {
        return MACHINE_LIMIT_LOCKS;
    }
    if (machine_sessions_len(m) + k->n > m->limits.sessions_max) {
        return MACHINE_LIMIT_SESSIONS;
    }
    return FL_TOKEN_MAX - m->last_token < k->n ? MACHINE_LIMIT_TOKENS : 0;
}

static void grant(struct machine *m, const struct keys *k, bool counted, struct machine_result *r)
{
    static const uint8_t once[HOLD_COUNT_SIZE] = {1};
    enum machine_limit limit = grant_limit(m, k);
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
        return;
    }
    struct origin origin = machine_sender_origin(m);
    struct fli_slice owner = k->c->label.len > 0 ? k->c->label : k->c->owner;
    struct fli_slice value = {once, counted ? sizeof once : 0};
    for (unsigned i = 0; i < k->n; i++) {
        uint64_t hash;
        struct lock *lock = machine_lock_find(m, k->names[i], &hash);
        lock = lock != NULL ? lock : machine_lock_create(m, k->names[i], hash);
        struct request *request =
            machine_request_create_implicit(m, lock, owner, k->c->ttl_ms, value, &origin);
        request->counted = counted;
        machine_lock_grant(m, request, 1, 0);
        if (i == 0) {
            machine_answer_granted(m, request, r);
        }
    }
    r->number = k->n;
}

static void grant_all(struct machine *m, const struct keys *k, struct machine_result *r)
{
    grant(m, k, false, r);
}

void machine_key_grant(struct machine *m, const struct machine_command *c, bool counted,
                       struct machine_result *r)
{
    const struct keys one = {.c = c, .n = 1, .names = {c->name}};
    grant(m, &one, counted, r);
}

static uint64_t left_ms(const struct machine *m, struct request *request)
{
    uint64_t deadline_ms = machine_timer_deadline(m, &request_session(request)->lease);
    return deadline_ms > m->clock_ms ? deadline_ms - m->clock_ms : 0;
}

static uint64_t in_range(uint64_t ttl_ms)
{
    ttl_ms = ttl_ms < FL_TTL_MIN_MS ? FL_TTL_MIN_MS : ttl_ms;
    return ttl_ms > FL_TTL_MAX_MS ? FL_TTL_MAX_MS : ttl_ms;
}

static void answer_own(struct machine *m, struct request *request, struct machine_result *r)
{
    r->code = MACHINE_DONE;
    r->token = request_token(request);
    r->deadline_ms = machine_timer_deadline(m, &request_session(request)->lease);
}

static void extend_all(struct machine *m, const struct keys *k, struct machine_result *r)
{
    const struct machine_command *c = k->c;
    for (unsigned i = k->n; i-- > 0;) {
        struct request *request;
        enum machine_key_state f = machine_key_find(m, k->names[i], c->owner, &request);
        FLI_ASSERT(f == KEY_OWN);
        bool add = (c->flags & MACHINE_KEYS_ADD) != 0;
        if (c->ttl_ms != 0) {
            machine_session_renew(m, request_session(request),
                                  add ? in_range(left_ms(m, request) + c->ttl_ms) : c->ttl_ms);
        }
        answer_own(m, request, r); /* the first key is the last to be answered */
    }
    r->number = k->n;
}

static void release_own(struct machine *m, const struct keys *k, struct machine_result *r)
{
    r->code = MACHINE_DONE;
    for (unsigned i = 0; i < k->n; i++) {
        struct request *request;
        if (machine_key_find(m, k->names[i], k->c->owner, &request) == KEY_OWN) {
            r->token = r->number == 0 ? request_token(request) : r->token;
            r->number++;
            machine_lock_end(m, request, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
            if ((k->c->flags & MACHINE_KEYS_AGAIN) != 0) {
                machine_outcome_note(m, OUTCOME_RELEASE, k->names[i], k->c->owner, 0,
                                     m->clock_ms + MACHINE_RELEASED_MS);
            }
        }
    }
}

/* How many keys the owner has released a moment ago, so that they are not the owner's any more. */
static unsigned count_released(struct machine *m, const struct keys *k)
{
    unsigned n = 0;
    for (unsigned i = 0; i < k->n && (k->c->flags & MACHINE_KEYS_AGAIN) != 0; i++) {
        struct request *request;
        n += machine_key_find(m, k->names[i], k->c->owner, &request) != KEY_OWN &&
             machine_outcome_find(m, OUTCOME_RELEASE, k->names[i], k->c->owner) != NULL;
    }
    return n;
}

/* A lock with waiters goes to its first waiter, not to the new owner. */
static void swap(struct machine *m, const struct keys *k, struct machine_result *r)
{
    struct request *request;
    struct machine_command c = *k->c;
    struct keys one = {.c = &c, .n = 1, .names = {k->names[0]}};
    enum machine_key_state f = machine_key_find(m, k->names[0], c.owner, &request);
    FLI_ASSERT(f == KEY_OWN);
    c.ttl_ms = c.ttl_ms != 0 ? c.ttl_ms : in_range(left_ms(m, request));
    machine_lock_end(m, request, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
    if (machine_key_find(m, k->names[0], c.label, &request) == KEY_FREE) {
        grant_all(m, &one, r);
    } else {
        r->code = MACHINE_HELD;
    }
}

static void change_own(struct machine *m, const struct keys *k, struct machine_result *r)
{
    unsigned flags = k->c->flags;
    if ((flags & MACHINE_KEYS_EXTEND) != 0) {
        extend_all(m, k, r);
    } else if ((flags & MACHINE_KEYS_RELEASE) != 0) {
        release_own(m, k, r);
    } else if ((flags & MACHINE_KEYS_SWAP) != 0) {
        swap(m, k, r);
    } else {
        struct request *own;
        (void)machine_key_find(m, k->names[0], k->c->owner, &own);
        answer_own(m, own, r);
        r->code = MACHINE_HELD;
    }
}

/* Handles keys that are not all the owner's. */
static void release_some(struct machine *m, const struct keys *k, enum machine_key_state found,
                         struct machine_result *r)
{
    unsigned again = count_released(m, k);
    if ((k->c->flags & MACHINE_KEYS_EACH) != 0) {
        release_own(m, k, r);
        r->number += again;
    } else if (again == k->n) {
        r->code = MACHINE_DONE;
        r->number = again;
    } else {
        r->code = found == KEY_FREE ? MACHINE_NO : MACHINE_HELD;
    }
}

static bool may_acquire_all(const struct machine *m, const struct keys *k)
{
    uint64_t steps = 0;
    for (unsigned i = 0; i < k->n; i++) {
        if (!machine_sender_may(m, ACL_ACQUIRE, k->names[i], &steps)) {
            return false;
        }
    }
    return true;
}

void machine_keys(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct keys k = {.c = c};
    enum machine_key_state found;
    if (c->op == MACHINE_OP_ANY_KEYS) {
        machine_any_keys(m, c, r);
        return;
    }
    k.n = machine_command_names(c, k.names);
    if (!machine_clear_own(m, c)) {
        machine_answer_limit(m, r, MACHINE_LIMIT_WAITS);
        return;
    }
    if (!find_all_keys(m, &k, &found)) {
        machine_refuse(r, 0);
        return;
    }
    if (found == KEY_OWN) {
        change_own(m, &k, r);
        return;
    }
    if (!may_acquire_all(m, &k)) { /* a user without the right hears nothing of the locks */
        machine_refuse(r, ACL_ACQUIRE);
    } else if (found == KEY_FREE && (c->flags & MACHINE_KEYS_GRANT) != 0) {
        grant_all(m, &k, r);
    } else {
        release_some(m, &k, found, r);
    }
}

/* ---- KEY ------------------------------------------------------------------------------------- */

/* Inspects one key. *ret_request: the request that holds it, the oldest one if several do; NULL
 * when nobody holds it, or the oldest one is over: then the key is taken, as ACQUIRE finds it,
 * until all of them are gone. False: the user may not know. */
static bool inspect_key(struct machine *m, const struct machine_command *q, struct fli_slice name,
                        enum machine_key_state *ret, struct request **ret_request)
{
    uint64_t hash;
    uint64_t steps = 0;
    struct lock *lock = machine_lock_find(m, name, &hash);
    bool more = false;
    struct request *request = lock == NULL ? NULL : machine_lock_oldest(m, lock, &more);
    bool mine = request != NULL && machine_sender_owns(m, request_session(request));
    const struct contention *c = lock == NULL ? NULL : lock_contention(lock);
    *ret_request = request;
    *ret = KEY_OTHER;
    bool taken = more || (c != NULL && (c->queue.len > 0 || c->is_delayed));
    if (lock == NULL || (request == NULL && !taken)) {
        *ret = KEY_FREE;
    } else if (request != NULL && q->label.len > 0 &&
               machine_key_request(m, lock, q->label) == request) {
        *ret = KEY_OWN;
    }
    if (mine || machine_sender_may(m, ACL_SEE, name, &steps)) {
        return true;
    }
    /* Who may acquire hears whether an owner has the key, but nothing of another user's grant: to
     * know the owner is no login. */
    return q->label.len > 0 && *ret != KEY_OWN && machine_sender_may(m, ACL_ACQUIRE, name, &steps);
}

/* Adds one more key to the answer, which has the token of the first key and the earliest
 * deadline. */
static void add_key(struct machine *m, unsigned i, struct request *request,
                    struct machine_result *r)
{
    uint64_t deadline_ms =
        request == NULL ? 0 : machine_timer_deadline(m, &request_session(request)->lease);
    r->number++;
    r->token = i == 0 && request != NULL ? request_token(request) : r->token;
    r->deadline_ms = r->number == 1 || deadline_ms < r->deadline_ms ? deadline_ms : r->deadline_ms;
}

/* A query about one owner reveals of other owners only that they exist. */
static void answer_key(const struct machine_command *q, unsigned n, unsigned own,
                       struct machine_result *r)
{
    bool asks = q->label.len > 0;
    r->code = MACHINE_DONE;
    if (r->number == 0) {
        r->code = MACHINE_NOTFOUND;
    } else if (asks && own < n) {
        r->code = MACHINE_HELD;
        r->token = 0;
        r->deadline_ms = 0;
    }
}

/* NOTFOUND: all are free. DONE: all belong to the owner that the query names, or it names none.
 * HELD: some belong to others. `number`: how many are not free. If the query has one key and no
 * owner, the payload is the value of the key: its owner. */
int machine_key(struct machine *m, const struct machine_command *q, struct machine_result *r,
                struct fli_buf *payload)
{
    struct fli_slice names[MACHINE_NAMES_MAX];
    unsigned n = machine_command_names(q, names);
    unsigned own = 0;
    struct request *request = NULL;
    for (unsigned i = 0; i < n; i++) {
        enum machine_key_state f;
        if (!inspect_key(m, q, names[i], &f, &request)) {
            *r = (struct machine_result){.clock_ms = r->clock_ms};
            machine_refuse(r, ACL_SEE);
            return 0;
        }
        own += f == KEY_OWN;
        if (f != KEY_FREE) {
            add_key(m, i, request, r);
        }
    }
    answer_key(q, n, own, r);
    if (n > 1 || request == NULL || q->label.len > 0) {
        return 0;
    }
    struct fli_slice owner = machine_session_owner(request_session(request));
    return fli_buf_append(payload, owner.data, owner.len);
}
