/* reentrant.c: locks that one owner may take several times and must release as often, like
 * Redisson's (src/face). There is one hold with one token; its value is replaced by the count of
 * how often it was taken.
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
 * most MACHINE_LEAVE_KEEP_MS); the same label gets the same answer. At most MACHINE_LEAVES_MAX
 * labels are kept. Each new one drops up to two of the oldest, so no step takes long. */
#include "machine/state.h"

#include <stdlib.h>
#include <string.h>

/* ---- remembered answers of LEAVE ------------------------------------------------------------- */

static bool leave_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct leave *l = FLI_CONTAINER_OF(node, struct leave, node);
    return fli_bytes_cmp(l->key, l->key_len, key, key_len) == 0;
}

void machine_leaves_init(struct machine *m, const uint64_t hash_seed[2])
{
    fli_map_init(&m->leaves.by_key, leave_eq, hash_seed);
    fli_list_init(&m->leaves.list);
}

static void forget(struct machine *m, struct leave *l)
{
    m->digest -= machine_digest_leave(l);
    fli_list_remove(&l->link);
    fli_map_remove(&m->leaves.by_key, &l->node);
    free(l);
}

static struct leave *oldest(struct machine *m)
{
    return FLI_CONTAINER_OF(m->leaves.list.next, struct leave, link);
}

void machine_leaves_fini(struct machine *m)
{
    while (m->leaves.by_key.len > 0) {
        forget(m, oldest(m));
    }
    fli_map_fini(&m->leaves.by_key);
}

static struct leave *find(struct machine *m, struct fli_slice key, uint64_t hash)
{
    struct fli_map_node *n = fli_map_find_hashed(&m->leaves.by_key, hash, key.data, key.len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct leave, node);
}

static void add(struct machine *m, struct fli_slice key, uint64_t hash, bool released,
                uint64_t until_ms)
{
    struct leave *l = malloc(sizeof *l + key.len);
    if (l == NULL || fli_map_insert(&m->leaves.by_key, &l->node, hash) != 0) {
        fli_fatal("out of memory for a release of the lock machine");
    }
    memcpy(l->key, key.data, key.len);
    l->key_len = key.len;
    l->released = released;
    l->until_ms = until_ms;
    fli_list_init(&l->link);
    fli_list_push(&m->leaves.list, &l->link);
    m->digest += machine_digest_leave(l);
}

static size_t make_key(const struct machine *m, const struct machine_command *c,
                       uint8_t key[ATTEMPT_KEY_MAX])
{
    return machine_retry_key(m, LEAVE_KEY_KIND, c->name, c->label, key);
}

/* Whether this LEAVE was answered before; r then holds that answer. */
static bool answered(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    uint8_t bytes[ATTEMPT_KEY_MAX];
    if (c->label.len == 0 || m->leaves.by_key.len == 0) {
        return false;
    }
    struct fli_slice key = {bytes, make_key(m, c, bytes)};
    struct leave *l = find(m, key, fli_map_hash(&m->leaves.by_key, key.data, key.len));
    if (l == NULL || l->until_ms < m->clock_ms) {
        return false;
    }
    r->code = MACHINE_DONE;
    r->number = l->released;
    return true;
}

static void remember(struct machine *m, const struct machine_command *c, bool released)
{
    uint8_t bytes[ATTEMPT_KEY_MAX];
    if (c->label.len == 0) {
        return;
    }
    struct fli_slice key = {bytes, make_key(m, c, bytes)};
    uint64_t hash = fli_map_hash(&m->leaves.by_key, key.data, key.len);
    struct leave *former = find(m, key, hash);
    if (former != NULL) { /* its time to be remembered is over */
        forget(m, former);
    }
    for (unsigned i = 0; i < 2 && m->leaves.by_key.len > 0; i++) {
        struct leave *l = oldest(m);
        if (l->until_ms < m->clock_ms || m->leaves.by_key.len == MACHINE_LEAVES_MAX) {
            forget(m, l);
        }
    }
    add(m, key, hash, released, m->clock_ms + c->number);
}

bool machine_leave_load(struct machine *m, struct fli_slice key, uint64_t released,
                        uint64_t until_ms)
{
    uint64_t hash = fli_map_hash(&m->leaves.by_key, key.data, key.len);
    if (released > 1 || until_ms > m->clock_ms + MACHINE_LEAVE_KEEP_MS ||
        m->leaves.by_key.len == MACHINE_LEAVES_MAX || find(m, key, hash) != NULL) {
        return false;
    }
    add(m, key, hash, released == 1, until_ms);
    return true;
}

/* ---- counting -------------------------------------------------------------------------------- */

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
    remember(m, c, count == 1);
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
