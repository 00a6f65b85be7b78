/* keys_any.c: actions on keys (keys.c) of whatever owner, and a record of keys that were released a
 * moment ago.
 *
 *   ANY_KEYS finds              and does
 *   some that are keys          ttl_ms 0: ends them; else a lease that long, never a shorter one
 *                                                                             DONE, how many
 *   all free                                                                  NO
 *   no keys, but others' locks                                                HELD
 *
 * A lock that is not held as a key stays as it is: BREAK is for such locks. */
#include <stdlib.h>
#include <string.h>

#include "machine/state.h"

/* ---- ANY_KEYS -------------------------------------------------------------------------------- */

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

/* ---- keys that were just released ------------------------------------------------------------ */

/* This record is not replicated state: a replica that restarted or loaded a snapshot has forgotten
 * it, and an entry may be overwritten for want of room. So only the wording of an answer may depend
 * on it: whether a client that releases one lock at each node hears that the lock was there. */
#define RELEASED_SLOTS 65536u

struct released {
    struct {
        uint64_t hash;
        uint64_t until_ms;
    } slots[RELEASED_SLOTS];
};

static uint64_t hash_of(struct fli_slice name, struct fli_slice owner)
{
    static const uint64_t seed[2] = {1, 2};
    uint8_t both[1 + FL_NAME_MAX + FL_OWNER_MAX];
    FLI_ASSERT(name.len <= FL_NAME_MAX && owner.len <= FL_OWNER_MAX);
    both[0] = (uint8_t)name.len;
    memcpy(both + 1, name.data, name.len);
    memcpy(both + 1 + name.len, owner.data, owner.len);
    return fli_siphash(seed, both, 1 + name.len + owner.len);
}

void machine_record_release(struct machine *m, struct fli_slice name, struct fli_slice owner)
{
    uint64_t hash = hash_of(name, owner);
    if (m->released == NULL) {
        m->released = fli_xcalloc(1, sizeof *m->released);
    }
    m->released->slots[hash % RELEASED_SLOTS].hash = hash;
    m->released->slots[hash % RELEASED_SLOTS].until_ms = m->clock_ms + MACHINE_RELEASED_MS;
}

bool machine_released_find(const struct machine *m, struct fli_slice name, struct fli_slice owner)
{
    uint64_t hash = hash_of(name, owner);
    if (m->released == NULL) {
        return false;
    }
    return m->released->slots[hash % RELEASED_SLOTS].hash == hash &&
           m->clock_ms < m->released->slots[hash % RELEASED_SLOTS].until_ms;
}
