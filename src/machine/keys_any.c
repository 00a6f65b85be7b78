/* keys_any.c: actions on keys (keys.c) of whatever owner.
 *
 *   ANY_KEYS finds              and does
 *   some that are keys          ttl_ms 0: ends them; else a lease that long, never a shorter one
 *                                                                             DONE, how many
 *   all free                                                                  NO
 *   no keys, but others' locks                                                HELD
 *
 * A lock that is not held as a key stays as it is: BREAK is for such locks. */
#include "machine/state.h"

/* Finds the request that holds the lock as a key, which a lock with shares never is. *ret_free:
 * nobody holds the lock. */
static struct request *any_request(struct machine *m, struct fli_slice name, bool *ret_free)
{
    uint64_t hash;
    const struct lock *lock = machine_lock_find(m, name, &hash);
    bool more = false;
    struct request *holder = lock == NULL ? NULL : machine_lock_oldest(m, lock, &more);
    *ret_free = holder == NULL && !more;
    if (holder == NULL) {
        return NULL;
    }
    struct fli_slice owner = machine_session_owner(request_session(holder));
    return machine_key_request(m, lock, owner) == holder ? holder : NULL;
}

/* Another user's grant needs the right to break the lock. A user may always end its own grant, but
 * prolonging it needs the right to acquire, as everywhere. Returns the missing right; 0: none. */
static unsigned missing_right(struct machine *m, const struct machine_command *c,
                              struct fli_slice name, struct request *key, uint64_t *steps)
{
    bool own = key != NULL && machine_sender_owns(m, request_session(key));
    if (own && c->ttl_ms == 0) {
        return 0;
    }
    if ((own || key == NULL) && machine_sender_may(m, ACL_ACQUIRE, name, steps)) {
        return 0;
    }
    if (machine_sender_may(m, ACL_BREAK, name, steps)) {
        return 0;
    }
    return own ? ACL_ACQUIRE : ACL_BREAK;
}

void machine_any_keys(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct fli_slice names[MACHINE_NAMES_MAX];
    unsigned n = machine_command_names(c, names);
    uint64_t steps = 0;
    bool all_free = true;
    for (unsigned i = 0; i < n; i++) {
        bool is_free = false;
        struct request *key = any_request(m, names[i], &is_free);
        unsigned missing = missing_right(m, c, names[i], key, &steps);
        if (missing != 0) {
            machine_refuse(r, missing);
            return;
        }
        all_free = all_free && is_free;
    }
    for (unsigned i = 0; i < n; i++) {
        bool is_free = false;
        struct request *key = any_request(m, names[i], &is_free);
        if (key == NULL) {
            continue;
        }
        r->number++;
        if (c->ttl_ms != 0) {
            machine_session_renew(m, request_session(key), c->ttl_ms);
        } else {
            machine_lock_end(m, key, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
        }
    }
    r->code = r->number > 0 ? MACHINE_DONE : all_free ? MACHINE_NO : MACHINE_HELD;
}
