/* attempt.c: refuses a late attempt: an ACQUIRE that is carried out after a later one of the same
 * request.
 *
 * A client that gets no answer sends its request again, to another node. The first attempt may be
 * carried out much later: it may lie in the socket of a node that was stopped. By then the client
 * may have got its lock by the second attempt and have released it, and the first one would take
 * the lock for nobody. So each attempt at one request (user, kind of owner, first lock, owner) has
 * a larger number than the one before. An attempt without a number is the first. An attempt with a
 * smaller number than one that has come already is answered LATE.
 *
 * The first attempt leaves no record: without a second one, none can be late. All others leave one.
 * At most MACHINE_ATTEMPTS_MAX records are kept, each for MACHINE_ATTEMPT_KEEP_MS of the cluster
 * clock unless that many newer ones push it out. Each new record drops up to two old ones, so no
 * step takes long. */
#include "machine/state.h"

#include <stdlib.h>
#include <string.h>

static bool attempt_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct attempt *a = FLI_CONTAINER_OF(node, struct attempt, node);
    return fli_bytes_cmp(a->key, a->key_len, key, key_len) == 0;
}

void machine_attempts_init(struct machine *m, const uint64_t hash_seed[2])
{
    fli_map_init(&m->attempts, attempt_eq, hash_seed);
    fli_list_init(&m->attempts_list);
}

static void drop_oldest(struct machine *m)
{
    struct attempt *a = FLI_CONTAINER_OF(m->attempts_list.next, struct attempt, link);
    m->digest -= machine_digest_attempt(a);
    fli_list_remove(&a->link);
    fli_map_remove(&m->attempts, &a->node);
    free(a);
}

void machine_attempts_fini(struct machine *m)
{
    while (m->attempts.len > 0) {
        drop_oldest(m);
    }
    fli_map_fini(&m->attempts);
}

static void make_room(struct machine *m)
{
    for (unsigned i = 0; i < 2 && m->attempts.len > 0; i++) {
        uint64_t age_ms = m->clock_ms - attempt_of(m->attempts_list.next)->at_ms;
        if (age_ms > MACHINE_ATTEMPT_KEEP_MS || m->attempts.len == MACHINE_ATTEMPTS_MAX) {
            drop_oldest(m);
        }
    }
}

static void add(struct machine *m, struct fli_slice key, uint64_t hash, uint64_t highest,
                uint64_t at_ms)
{
    struct attempt *a = malloc(sizeof *a + key.len);
    if (a == NULL || fli_map_insert(&m->attempts, &a->node, hash) != 0) {
        fli_fatal("out of memory for an attempt of the lock machine");
    }
    memcpy(a->key, key.data, key.len);
    a->key_len = key.len;
    a->highest = highest;
    a->at_ms = at_ms;
    fli_list_init(&a->link);
    fli_list_push(&m->attempts_list, &a->link);
    m->digest += machine_digest_attempt(a);
}

static struct attempt *find(struct machine *m, struct fli_slice key, uint64_t hash)
{
    struct fli_map_node *n = fli_map_find_hashed(&m->attempts, hash, key.data, key.len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct attempt, node);
}

size_t machine_retry_key(const struct machine *m, uint8_t kind, struct fli_slice name,
                         struct fli_slice owner, uint8_t key[ATTEMPT_KEY_MAX])
{
    fli_put_u32(key, machine_sender_origin(m).uid);
    key[4] = kind;
    key[5] = (uint8_t)name.len;
    memcpy(key + 6, name.data, name.len);
    memcpy(key + 6 + name.len, owner.data, owner.len);
    return 6 + name.len + owner.len;
}

static size_t make_key(const struct machine *m, const struct machine_command *c,
                       uint8_t key[ATTEMPT_KEY_MAX])
{
    return machine_retry_key(m, (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0, c->name, c->owner, key);
}

bool machine_attempt_is_late(struct machine *m, const struct machine_command *c,
                             uint64_t *ret_highest)
{
    uint64_t number = (c->flags & MACHINE_ACQUIRE_ATTEMPT) != 0 ? c->number : 1;
    if (number == 1 && m->attempts.len == 0) {
        return false;
    }
    uint8_t bytes[ATTEMPT_KEY_MAX];
    struct fli_slice key = {bytes, make_key(m, c, bytes)};
    uint64_t hash = fli_map_hash(&m->attempts, key.data, key.len);
    struct attempt *a = find(m, key, hash);
    if (a != NULL && number < a->highest) {
        *ret_highest = a->highest;
        return true;
    }
    if (a == NULL && number > 1) {
        make_room(m);
        add(m, key, hash, number, m->clock_ms);
    } else if (a != NULL) {
        m->digest -= machine_digest_attempt(a);
        a->highest = number;
        a->at_ms = m->clock_ms;
        m->digest += machine_digest_attempt(a);
        fli_list_remove(&a->link);
        fli_list_push(&m->attempts_list, &a->link);
    }
    return false;
}

bool machine_attempt_load(struct machine *m, struct fli_slice key, uint64_t highest, uint64_t at_ms)
{
    uint64_t hash = fli_map_hash(&m->attempts, key.data, key.len);
    uint64_t last_ms =
        fli_list_empty(&m->attempts_list) ? 0 : attempt_of(m->attempts_list.prev)->at_ms;
    if (highest < 2 || highest > MACHINE_ATTEMPT_MAX || at_ms < last_ms || at_ms > m->clock_ms ||
        m->attempts.len == MACHINE_ATTEMPTS_MAX || find(m, key, hash) != NULL) {
        return false;
    }
    add(m, key, hash, highest, at_ms);
    return true;
}
