/* keys.c: the one conditional operation on locks, for programs written for Redis (src/frontdoor): a
 * key exists or not, and its value names its owner. The value is the owner of an implicit session
 * of one lock. Several keys are several locks, each with its own grant, token and end.
 *
 *   state of the keys   flag of KEYS, what it does            answer; without such a flag
 *   all free            GRANT: grants each key                GRANTED; NO
 *   all the owner's     EXTEND: sets or adds to the leases    DONE; HELD, with the token
 *                       RELEASE                               DONE
 *                       RELEASE with a label: grants it to    GRANTED, or HELD: it went to a
 *                       that owner                            waiter
 *   anything else       EACH: does this for those that are    DONE; HELD, with the time until when
 *                       the owner's                           the first one is taken
 *
 * `number` of the answer is how many keys were changed; `token` is the first key's. A lock that an
 * explicit session holds, that several may hold, or that ACQUIRE took together with others, counts
 * as another owner's. So does a lock that is delayed or awaited.
 *
 * COUNT: a key that its owner may take several times and gives back as often, as Redisson's locks.
 * There is one hold with one token; its value is replaced by the count, which is `number` of the
 * answer. EXTEND with GRANT counts up, RELEASE counts down: `number` is 1 when that released the
 * key. A lock that was taken without a count is another owner's: nothing says how often it is to be
 * released.
 *
 * No owner: the keys are those of whatever owner, with the rights to them. A lock that is not held
 * as a key stays as it is: BREAK is for such locks.
 *
 * A release may be sent again, since its answer was lost or since a client takes the nodes for
 * independent servers. With a `number` its outcome is kept for so many ms (outcomes.h), under the
 * label of COUNT, which names one release, or else under the owner. */
#include "machine/state.h"

enum key_state { KEY_FREE, KEY_OWN, KEY_OTHER };

struct keys {
    const struct machine_command *c;
    bool watches; /* renews in the leader's memory, */
    bool fails;   /* which did not go */
    unsigned n, own, again, free;
    struct key {
        struct fli_slice name, owner;
        struct lock *lock; /* as find() has found it, */
        uint64_t hash;     /* by this hash */
    } of[MACHINE_KEYS_MAX];
};

static bool has(const struct keys *k, unsigned flag)
{
    return (k->c->flags & flag) != 0;
}

/* The request that holds the lock as a key of this owner; no owner: of any. */
static struct request *key_request(struct machine *m, const struct lock *lock,
                                   struct fli_slice owner)
{
    bool more = false;
    struct request *request = owner.len > 0 ? machine_lock_held_by(m, lock, false, owner)
                                            : machine_lock_oldest(m, lock, &more);
    bool fits = request != NULL && !session_is_explicit(request_session(request)) &&
                !request->is_multi && lock_permits(lock) == 1 && lock_slots(lock) == 1 &&
                !machine_request_is_over(m, request);
    return fits ? request : NULL;
}

/* *ret: the owner's request; it may be set with KEY_OTHER, when it has no count. */
static enum key_state find(struct machine *m, struct keys *k, unsigned i, struct request **ret)
{
    struct lock *lock = machine_lock_find(m, k->of[i].name, &k->of[i].hash);
    k->of[i].lock = lock;
    *ret = lock == NULL ? NULL : key_request(m, lock, k->of[i].owner);
    if (*ret != NULL) {
        return has(k, MACHINE_KEYS_COUNT) && !(*ret)->counted ? KEY_OTHER : KEY_OWN;
    }
    const struct contention *c = lock == NULL ? NULL : lock_contention(lock);
    bool awaited = c != NULL && c->queue.len > 0;
    return lock == NULL || (lock_holder(lock) == NULL && !awaited && machine_lock_admits(lock, 1))
               ? KEY_FREE
               : KEY_OTHER;
}

/* Another user's grant needs the right to break the lock, and nobody's may be named by its owner. A
 * user may always end its own grant, but prolonging it needs the right to acquire. A user without
 * that right hears nothing of the locks. Returns false when the key may not be changed. */
static bool may_change(const struct machine *m, const struct keys *k, unsigned i,
                       struct request *request, uint64_t *steps, struct machine_result *r)
{
    struct fli_slice name = k->of[i].name;
    bool mine = request != NULL && machine_sender_owns(m, request_session(request));
    bool any = k->of[i].owner.len == 0;
    if (request != NULL && !mine && !any) {
        machine_refuse(r, 0);
        return false;
    }
    if ((mine && has(k, MACHINE_KEYS_RELEASE)) ||
        ((mine || request == NULL) && machine_sender_may(m, ACL_ACQUIRE, name, steps)) ||
        (any && machine_sender_may(m, ACL_BREAK, name, steps))) {
        return true;
    }
    machine_refuse(r, mine || !any ? ACL_ACQUIRE : ACL_BREAK);
    return false;
}

/* Whether the key was released a moment ago, so that it is not the owner's any more. */
static bool was_released(struct machine *m, const struct keys *k, unsigned i)
{
    return has(k, MACHINE_KEYS_RELEASE) && k->c->number > 0 && k->c->label.len == 0 &&
           machine_outcome_find(m, OUTCOME_LEAVE, k->of[i].name, k->of[i].owner) != NULL;
}

static bool inspect_all(struct machine *m, struct keys *k, struct machine_result *r)
{
    uint64_t steps = 0;
    for (unsigned i = 0; i < k->n; i++) {
        struct request *request;
        enum key_state state = find(m, k, i, &request);
        if (!may_change(m, k, i, request, &steps, r)) {
            return false;
        }
        k->own += state == KEY_OWN;
        k->free += state == KEY_FREE;
        k->again += state != KEY_OWN && was_released(m, k, i);
    }
    return true;
}

/* ---- changes --------------------------------------------------------------------------------- */

static enum machine_limit grant_limit(struct machine *m, const struct keys *k)
{
    uint64_t created = 0;
    for (unsigned i = 0; i < k->n; i++) {
        created += k->of[i].lock == NULL;
    }
    if (created > 0 && m->locks.len + created > m->limits.locks_max) {
        return MACHINE_LIMIT_LOCKS;
    }
    if (machine_sessions_len(m) + k->n > m->limits.sessions_max) {
        return MACHINE_LIMIT_SESSIONS;
    }
    return FL_TOKEN_MAX - m->last_token < k->n ? MACHINE_LIMIT_TOKENS : 0;
}

static void grant_all(struct machine *m, const struct keys *k, uint64_t ttl_ms,
                      struct machine_result *r)
{
    static const uint8_t once[HOLD_COUNT_SIZE] = {1};
    enum machine_limit limit = grant_limit(m, k);
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
        return;
    }
    struct origin origin = machine_sender_origin(m);
    struct fli_slice owner = k->c->label.len > 0 ? k->c->label : k->c->owner;
    struct fli_slice value = {once, has(k, MACHINE_KEYS_COUNT) ? sizeof once : 0};
    for (unsigned i = 0; i < k->n; i++) {
        const struct key *key = &k->of[i];
        struct lock *lock =
            key->lock != NULL ? key->lock : machine_lock_create(m, key->name, key->hash);
        struct request *request =
            machine_request_create_implicit(m, lock, owner, ttl_ms, value, &origin);
        request->counted = has(k, MACHINE_KEYS_COUNT);
        machine_lock_grant(m, request, 1, 0);
        if (i == 0) {
            machine_answer_granted(m, request, r);
        }
    }
    r->number = k->n;
}

/* By the log, or longer: as the leader knew it when it proposed the command. */
static uint64_t left_ms(const struct machine *m, const struct keys *k, struct request *request)
{
    uint64_t deadline_ms = machine_timer_deadline(m, &request_session(request)->lease);
    uint64_t left_ms = deadline_ms > m->clock_ms ? deadline_ms - m->clock_ms : 0;
    return left_ms > k->c->number ? left_ms : k->c->number;
}

static uint64_t in_range(uint64_t ttl_ms)
{
    ttl_ms = ttl_ms < FL_TTL_MIN_MS ? FL_TTL_MIN_MS : ttl_ms;
    return ttl_ms > FL_TTL_MAX_MS ? FL_TTL_MAX_MS : ttl_ms;
}

static void renew(struct machine *m, struct keys *k, struct request *request)
{
    uint64_t ttl_ms = k->c->ttl_ms;
    struct session *s = request_session(request);
    if (k->watches) {
        k->fails = !machine_lease_watch(m, s, m->query_ms + ttl_ms) || k->fails;
    } else if (ttl_ms != 0) {
        ttl_ms = has(k, MACHINE_KEYS_ADD) ? in_range(left_ms(m, k, request) + ttl_ms) : ttl_ms;
        machine_session_renew(m, s, ttl_ms);
    }
}

static void set_count(struct machine *m, struct request *request, uint32_t n)
{
    m->digest -= machine_digest_grant(request);
    machine_request_set_count(request, n);
    m->digest += machine_digest_grant(request);
}

/* Counts down, or releases the key; returns how many were released. A lease is prolonged only for a
 * user who may acquire the lock. */
static unsigned release(struct machine *m, struct keys *k, unsigned i, struct request *request)
{
    uint32_t count = has(k, MACHINE_KEYS_COUNT) ? machine_request_count(request) : 1;
    uint64_t steps = 0;
    struct fli_slice what = k->c->label.len > 0 ? k->c->label : k->of[i].owner;
    if (count == 1) {
        machine_lock_end(m, request, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
    } else {
        set_count(m, request, count - 1);
        if (machine_sender_may(m, ACL_ACQUIRE, k->of[i].name, &steps)) {
            renew(m, k, request);
        }
    }
    if (k->c->number > 0) {
        machine_outcome_note(m, OUTCOME_LEAVE, k->of[i].name, what, count == 1,
                             m->clock_ms + k->c->number);
    }
    return count == 1;
}

static void answer_own(const struct machine *m, struct request *request, struct machine_result *r)
{
    r->token = request_token(request);
    r->deadline_ms = machine_lease_until(m, request_session(request));
}

/* A lock with waiters goes to its first waiter, not to the new owner. */
static void hand_over(struct machine *m, struct keys *k, struct request *request,
                      struct machine_result *r)
{
    uint64_t ttl_ms = k->c->ttl_ms != 0 ? k->c->ttl_ms : in_range(left_ms(m, k, request));
    machine_lock_end(m, request, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
    if (find(m, k, 0, &request) == KEY_FREE) {
        grant_all(m, k, ttl_ms, r);
    } else {
        r->code = MACHINE_HELD;
    }
}

/* Changes the keys that are the owner's. The first of them is the last, and so the one that the
 * answer is about. */
static void change_own(struct machine *m, struct keys *k, struct machine_result *r)
{
    r->code = MACHINE_DONE;
    r->number = k->again;
    for (unsigned i = k->n; i-- > 0;) {
        struct request *request;
        if (find(m, k, i, &request) != KEY_OWN) {
            continue;
        }
        r->each[i / 64] |= UINT64_C(1) << i % 64;
        answer_own(m, request, r);
        if (has(k, MACHINE_KEYS_RELEASE)) {
            bool last = !has(k, MACHINE_KEYS_COUNT) || machine_request_count(request) == 1;
            r->number += release(m, k, i, request);
            r->deadline_ms = last ? 0 : machine_lease_until(m, request_session(request));
        } else {
            renew(m, k, request);
            answer_own(m, request, r);
            r->number++;
        }
    }
}

static void change_counted(struct machine *m, struct keys *k, struct machine_result *r)
{
    struct request *request;
    (void)find(m, k, 0, &request);
    uint32_t count = machine_request_count(request);
    if (has(k, MACHINE_KEYS_EXTEND) && count == MACHINE_HOLD_COUNT_MAX) {
        machine_answer_limit(m, r, MACHINE_LIMIT_SESSION_LOCKS);
        return;
    }
    if (has(k, MACHINE_KEYS_EXTEND)) {
        set_count(m, request, ++count);
    }
    change_own(m, k, r);
    r->number = has(k, MACHINE_KEYS_RELEASE) ? r->number : count;
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
        return machine_lease_until(m, request_session(holder));
    }
    return c != NULL && c->is_delayed ? c->delay.at_ms : m->clock_ms + FL_TTL_MIN_MS;
}

/* Nothing was changed, since the keys are not in a state for which the command has a flag. */
static void answer_unchanged(struct machine *m, struct keys *k, struct machine_result *r)
{
    struct request *request;
    r->code = k->free == k->n ? MACHINE_NO : MACHINE_HELD;
    if (k->own == k->n) {
        (void)find(m, k, 0, &request);
        answer_own(m, request, r);
        r->number = machine_request_count(request);
    } else if (k->free < k->n) {
        r->deadline_ms = held_until(m, k->of[0].name);
    }
}

/* Whether this release was answered before; r then holds that answer. */
static bool answered(struct machine *m, const struct keys *k, struct machine_result *r)
{
    bool counts = has(k, MACHINE_KEYS_COUNT) && k->c->number > 0;
    const struct outcome *o =
        counts ? machine_outcome_find(m, OUTCOME_LEAVE, k->c->name, k->c->label) : NULL;
    if (o != NULL) {
        r->code = MACHINE_DONE;
        r->number = (uint32_t)o->number; /* 0 or 1 */
    }
    return o != NULL;
}

/* The command's names, each with its owner. */
static void list_keys(const struct machine_command *c, struct keys *k)
{
    struct fli_slice names[MACHINE_NAMES_MAX];
    struct fli_reader pairs;
    k->c = c;
    k->watches = k->fails = false;
    k->own = k->again = k->free = 0;
    k->n = machine_command_names(c, names);
    for (unsigned i = 0; i < k->n; i++) {
        k->of[i].name = names[i];
        k->of[i].owner = MACHINE_OP_IS_QUERY(c->op) ? c->label : c->owner;
    }
    fli_reader_init(&pairs, c->value.data, c->value.len);
    while (fli_reader_left(&pairs) > 0) {
        struct key *key = &k->of[k->n++];
        key->name = fli_read_bytes(&pairs, fli_read_u8(&pairs));
        key->owner = fli_read_bytes(&pairs, fli_read_u8(&pairs));
    }
}

void machine_keys(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct keys k;
    struct request *request;
    list_keys(c, &k);
    if (answered(m, &k, r)) {
        return;
    }
    if (c->owner.len > 0 && !machine_clear_own(m, c)) {
        machine_answer_limit(m, r, MACHINE_LIMIT_WAITS);
        return;
    }
    if (!inspect_all(m, &k, r)) {
        return;
    }
    bool all = k.own + k.again == k.n || (has(&k, MACHINE_KEYS_EACH) && k.own + k.again > 0);
    if (!all && k.free == k.n && has(&k, MACHINE_KEYS_GRANT)) {
        grant_all(m, &k, c->ttl_ms, r);
    } else if (!all || !has(&k, MACHINE_KEYS_EXTEND | MACHINE_KEYS_RELEASE)) {
        answer_unchanged(m, &k, r);
    } else if (has(&k, MACHINE_KEYS_COUNT)) {
        change_counted(m, &k, r);
    } else if (has(&k, MACHINE_KEYS_RELEASE) && c->label.len > 0) {
        (void)find(m, &k, 0, &request);
        hand_over(m, &k, request, r);
    } else {
        change_own(m, &k, r);
    }
}

/* Whether all keys are the owner's, and the leader watches their leases, which have this ttl. Then
 * they are renewed, as change_own() does it. */
bool machine_keys_watch(struct machine *m, const struct machine_command *c,
                        struct machine_result *r)
{
    struct keys k;
    struct machine_result unused = {.code = 0};
    list_keys(c, &k);
    if (c->ttl_ms == 0 || !inspect_all(m, &k, &unused) || k.own < k.n) {
        return false;
    }
    for (unsigned i = 0; i < k.n; i++) {
        struct request *request;
        (void)find(m, &k, i, &request);
        const struct timer *lease = &request_session(request)->lease;
        if (lease->ttl_ms != c->ttl_ms || lease->place != LEASE_WATCHED) {
            return false;
        }
    }
    k.watches = true;
    change_own(m, &k, r);
    return !k.fails;
}

bool machine_fill_in(struct machine *m, struct machine_command *c, uint64_t now_ms)
{
    struct keys k;
    struct request *request;
    if (!MACHINE_KEYS_NEED_LEFT(c)) {
        return false;
    }
    list_keys(c, &k);
    (void)find(m, &k, 0, &request);
    uint64_t until_ms = request == NULL ? 0 : machine_lease_until(m, request_session(request));
    now_ms = now_ms > m->clock_ms ? now_ms : m->clock_ms;
    uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    c->number = left_ms < FL_TTL_MAX_MS ? left_ms : FL_TTL_MAX_MS;
    return true;
}

/* ---- KEY ------------------------------------------------------------------------------------- */

/* Inspects one key. *ret_request: the request that holds it, the oldest one if several do; NULL
 * when nobody holds it, or the oldest one is over: then the key is taken, as ACQUIRE finds it,
 * until all of them are gone. False: the user may not know. */
static bool inspect_key(struct machine *m, const struct keys *k, unsigned i, enum key_state *ret,
                        struct request **ret_request)
{
    struct fli_slice name = k->of[i].name;
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
    } else if (request != NULL && k->c->label.len > 0 &&
               key_request(m, lock, k->c->label) == request) {
        *ret = KEY_OWN;
    }
    if (mine || machine_sender_may(m, ACL_SEE, name, &steps)) {
        return true;
    }
    /* Who may acquire hears whether an owner has the key, but nothing of another user's grant: to
     * know the owner is no login. */
    return k->c->label.len > 0 && *ret != KEY_OWN &&
           machine_sender_may(m, ACL_ACQUIRE, name, &steps);
}

/* Adds one more key to the answer, which has the token of the first key and the earliest
 * deadline. */
static void add_key(struct machine *m, unsigned i, struct request *request,
                    struct machine_result *r)
{
    uint64_t deadline_ms = request == NULL ? 0 : machine_lease_until(m, request_session(request));
    r->number++;
    r->token = i == 0 && request != NULL ? request_token(request) : r->token;
    r->deadline_ms = r->number == 1 || deadline_ms < r->deadline_ms ? deadline_ms : r->deadline_ms;
}

/* A query about one owner reveals of other owners only that they exist. */
static void answer_key(const struct keys *k, struct request *request, struct machine_result *r)
{
    bool counts = has(k, MACHINE_KEYS_COUNT);
    r->code = MACHINE_DONE;
    if (r->number == 0) {
        r->code = MACHINE_NOTFOUND;
    } else if (k->c->label.len > 0 && (k->own < k->n || (counts && !request->counted))) {
        r->code = MACHINE_HELD;
        r->token = 0;
        r->deadline_ms = 0;
    } else if (counts) {
        r->number = machine_request_count(request);
    }
}

int machine_key(struct machine *m, const struct machine_command *q, struct machine_result *r,
                struct fli_buf *payload)
{
    struct keys k;
    struct request *request = NULL;
    list_keys(q, &k);
    for (unsigned i = 0; i < k.n; i++) {
        enum key_state state;
        if (!inspect_key(m, &k, i, &state, &request)) {
            *r = (struct machine_result){.clock_ms = r->clock_ms};
            machine_refuse(r, ACL_SEE);
            return 0;
        }
        k.own += state == KEY_OWN;
        if (state != KEY_FREE) {
            add_key(m, i, request, r);
        }
    }
    answer_key(&k, request, r);
    if (k.n > 1 || request == NULL || q->label.len > 0) {
        return 0;
    }
    struct fli_slice owner = machine_session_owner(request_session(request));
    return fli_buf_append(payload, owner.data, owner.len);
}
