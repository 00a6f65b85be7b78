/* outcomes.c: see outcomes.h. */
#include "machine/outcomes.h"

#include <stdlib.h>
#include <string.h>

#include "machine/state.h"

#define SHARE_KEY 5 /* the first bytes of an outcome's key: the user and the kind */

static uint64_t share_id(const uint8_t *key)
{
    return (uint64_t)key[4] << 32 | fli_get_u32(key);
}

static bool outcome_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct outcome *o = CONST_CONTAINER_OF(node, struct outcome, node);
    return fli_bytes_cmp(o->key, o->key_len, key, key_len) == 0;
}

static bool share_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    FLI_ASSERT(key_len == SHARE_KEY);
    return CONST_CONTAINER_OF(node, struct outcome_share, node)->share.id == share_id(key);
}

void machine_outcomes_init(struct outcomes *t, const uint64_t hash_seed[2])
{
    fli_map_init(&t->by_key, outcome_eq, hash_seed);
    fli_map_init(&t->by_share, share_eq, hash_seed);
    fli_shares_init(&t->shares);
    for (unsigned kind = 0; kind < OUTCOME_KINDS; kind++) {
        fli_list_init(&t->by_kind[kind]);
    }
}

static void join(struct machine *m, struct outcome *o)
{
    fli_list_push(&m->outcomes.by_kind[o->key[4]], &o->link);
    fli_list_push(&o->share->list, &o->of_share);
    m->digest += machine_digest_outcome(o);
}

static void leave(struct machine *m, struct outcome *o)
{
    m->digest -= machine_digest_outcome(o);
    fli_list_remove(&o->link);
    fli_list_remove(&o->of_share);
}

static void drop(struct machine *m, struct outcome *o)
{
    struct outcomes *t = &m->outcomes;
    struct outcome_share *share = o->share;
    leave(m, o);
    fli_map_remove(&t->by_key, &o->node);
    fli_share_give_back(&t->shares, &share->share, 1);
    if (share->share.has == 0) {
        fli_map_remove(&t->by_share, &share->node);
        free(share);
    }
    free(o);
}

static struct outcome *oldest(const struct outcomes *t, unsigned kind)
{
    struct fli_list *link = fli_list_first(&t->by_kind[kind]);
    return link == NULL ? NULL : FLI_CONTAINER_OF(link, struct outcome, link);
}

void machine_outcomes_fini(struct machine *m)
{
    struct outcomes *t = &m->outcomes;
    for (unsigned kind = 0; kind < OUTCOME_KINDS; kind++) {
        while (oldest(t, kind) != NULL) {
            drop(m, oldest(t, kind));
        }
    }
    fli_map_fini(&t->by_key);
    fli_map_fini(&t->by_share);
    fli_shares_fini(&t->shares);
}

/* The new one counts already, so that the user who floods the table pays for it. */
static void make_room(struct machine *m)
{
    struct outcomes *t = &m->outcomes;
    for (unsigned i = 0; i < 2 * OUTCOME_KINDS; i++) {
        struct outcome *o = oldest(t, i / 2);
        if (o != NULL && o->until_ms < m->clock_ms) {
            drop(m, o);
        }
    }
    if (t->by_key.len > MACHINE_OUTCOMES_MAX) {
        struct outcome_share *most =
            FLI_CONTAINER_OF(fli_shares_most(&t->shares), struct outcome_share, share);
        drop(m, FLI_CONTAINER_OF(most->list.next, struct outcome, of_share));
    }
}

static struct outcome_share *share_of(struct outcomes *t, const uint8_t *key)
{
    uint64_t hash = fli_map_hash(&t->by_share, key, SHARE_KEY);
    struct fli_map_node *n = fli_map_find_hashed(&t->by_share, hash, key, SHARE_KEY);
    if (n != NULL) {
        return FLI_CONTAINER_OF(n, struct outcome_share, node);
    }
    struct outcome_share *share = fli_xcalloc(1, sizeof *share);
    fli_share_init(&share->share, share_id(key));
    fli_list_init(&share->list);
    if (fli_map_insert(&t->by_share, &share->node, hash) != 0) {
        fli_fatal("out of memory for a user of the lock machine");
    }
    return share;
}

static struct outcome *find(struct outcomes *t, struct fli_slice key)
{
    struct fli_map_node *n = fli_map_find(&t->by_key, key.data, key.len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct outcome, node);
}

static void add(struct machine *m, struct fli_slice key, uint64_t number, uint64_t until_ms)
{
    struct outcomes *t = &m->outcomes;
    struct outcome *o = fli_xmalloc(sizeof *o + key.len);
    memcpy(o->key, key.data, key.len);
    o->key_len = key.len;
    o->share = share_of(t, key.data);
    o->number = number;
    o->until_ms = until_ms;
    if (fli_share_take(&t->shares, &o->share->share, 1) != 0 ||
        fli_map_insert(&t->by_key, &o->node, fli_map_hash(&t->by_key, key.data, key.len)) != 0) {
        fli_fatal("out of memory for a request of the lock machine");
    }
    join(m, o);
}

static struct fli_slice make_key(const struct machine *m, enum outcome_kind kind,
                                 struct fli_slice name, struct fli_slice what,
                                 uint8_t key[OUTCOME_KEY_MAX])
{
    fli_put_u32(key, machine_sender_origin(m).uid);
    key[4] = (uint8_t)kind;
    key[5] = (uint8_t)name.len;
    memcpy(key + 6, name.data, name.len);
    memcpy(key + 6 + name.len, what.data, what.len);
    return (struct fli_slice){key, 6 + name.len + what.len};
}

const struct outcome *machine_outcome_find(struct machine *m, enum outcome_kind kind,
                                           struct fli_slice name, struct fli_slice what)
{
    uint8_t key[OUTCOME_KEY_MAX];
    if (fli_list_empty(&m->outcomes.by_kind[kind])) {
        return NULL;
    }
    const struct outcome *o = find(&m->outcomes, make_key(m, kind, name, what, key));
    return o == NULL || o->until_ms < m->clock_ms ? NULL : o;
}

void machine_outcome_note(struct machine *m, enum outcome_kind kind, struct fli_slice name,
                          struct fli_slice what, uint64_t number, uint64_t until_ms)
{
    uint8_t bytes[OUTCOME_KEY_MAX];
    struct fli_slice key = make_key(m, kind, name, what, bytes);
    struct outcome *former = find(&m->outcomes, key);
    if (former != NULL) {
        leave(m, former);
        former->number = number;
        former->until_ms = until_ms;
        join(m, former);
        return;
    }
    add(m, key, number, until_ms);
    make_room(m);
}

bool machine_outcome_fits(const struct machine *m, unsigned kind, uint64_t number,
                          uint64_t until_ms)
{
    static const struct {
        uint64_t least, most, keep_ms;
    } kinds[OUTCOME_KINDS] = {
        [OUTCOME_ATTEMPT] = {2, MACHINE_ATTEMPT_MAX, MACHINE_ATTEMPT_KEEP_MS},
        [OUTCOME_ATTEMPT_EXPLICIT] = {2, MACHINE_ATTEMPT_MAX, MACHINE_ATTEMPT_KEEP_MS},
        [OUTCOME_LEAVE] = {0, 1, MACHINE_LEAVE_KEEP_MS},
    };
    return kind < OUTCOME_KINDS && number >= kinds[kind].least && number <= kinds[kind].most &&
           until_ms <= m->clock_ms + kinds[kind].keep_ms;
}

bool machine_outcome_load(struct machine *m, struct fli_slice key, uint64_t number,
                          uint64_t until_ms)
{
    unsigned kind = key.data[4];
    if (!machine_outcome_fits(m, kind, number, until_ms) ||
        m->outcomes.by_key.len == MACHINE_OUTCOMES_MAX || find(&m->outcomes, key) != NULL) {
        return false;
    }
    for (unsigned later = kind + 1; later < OUTCOME_KINDS; later++) {
        if (!fli_list_empty(&m->outcomes.by_kind[later])) {
            return false;
        }
    }
    add(m, key, number, until_ms);
    return true;
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* The name that stands for all names of the command, in whatever order it has them. */
static struct fli_slice smallest_name(const struct machine_command *c)
{
    struct fli_slice names[MACHINE_NAMES_MAX];
    if (c->n_names == 1) {
        return c->name;
    }
    unsigned n = machine_command_names(c, names);
    for (unsigned i = 1; i < n; i++) {
        if (fli_bytes_cmp(names[i].data, names[i].len, names[0].data, names[0].len) < 0) {
            names[0] = names[i];
        }
    }
    return names[0];
}

/* The first attempt may be carried out much later than the others: it may lie in the socket of a
 * node that was stopped. By then the client may have got its lock by the second attempt and have
 * released it, and the first one would take the lock for nobody. */
bool machine_attempt_is_late(struct machine *m, const struct machine_command *c,
                             uint64_t *ret_highest)
{
    uint64_t number = (c->flags & MACHINE_ACQUIRE_ATTEMPT) != 0 ? c->number : 1;
    bool is_explicit = (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0;
    enum outcome_kind kind = is_explicit ? OUTCOME_ATTEMPT_EXPLICIT : OUTCOME_ATTEMPT;
    struct fli_slice name = smallest_name(c);
    const struct outcome *o = machine_outcome_find(m, kind, name, c->owner);
    if (o != NULL && number < o->number) {
        *ret_highest = o->number;
        return true;
    }
    if (number > 1) {
        machine_outcome_note(m, kind, name, c->owner, number,
                             m->clock_ms + MACHINE_ATTEMPT_KEEP_MS);
    }
    return false;
}
