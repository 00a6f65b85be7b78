/* seen.c: see seen.h. */
#include "machine/seen.h"

#include <stdlib.h>
#include <string.h>

#include "machine/state.h"

static bool seen_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct seen *s = CONST_CONTAINER_OF(node, struct seen, node);
    return fli_bytes_cmp(s->key, s->key_len, key, key_len) == 0;
}

/* Users are found by the first bytes of their requests' keys. */
static bool user_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    FLI_ASSERT(key_len == 4);
    return CONST_CONTAINER_OF(node, struct seen_user, node)->share.id == fli_get_u32(key);
}

void machine_seen_init(struct seen_table *t, const uint64_t hash_seed[2], uint32_t max,
                       uint32_t keep_ms)
{
    fli_map_init(&t->by_key, seen_eq, hash_seed);
    fli_map_init(&t->users, user_eq, hash_seed);
    fli_list_init(&t->list);
    fli_shares_init(&t->shares);
    t->max = max;
    t->keep_ms = keep_ms;
}

static struct seen *oldest(const struct fli_list *list)
{
    return FLI_CONTAINER_OF(list->next, struct seen, link);
}

void machine_seen_fini(struct machine *m, struct seen_table *t)
{
    while (t->by_key.len > 0) {
        machine_seen_drop(m, t, oldest(&t->list));
    }
    fli_map_fini(&t->by_key);
    fli_map_fini(&t->users);
    fli_shares_fini(&t->shares);
}

size_t machine_seen_key(const struct machine *m, enum seen_kind kind, struct fli_slice name,
                        struct fli_slice owner, uint8_t key[SEEN_KEY_MAX])
{
    fli_put_u32(key, machine_sender_origin(m).uid);
    key[4] = (uint8_t)kind;
    key[5] = (uint8_t)name.len;
    memcpy(key + 6, name.data, name.len);
    memcpy(key + 6 + name.len, owner.data, owner.len);
    return 6 + name.len + owner.len;
}

struct seen *machine_seen_find(struct seen_table *t, struct fli_slice key)
{
    struct fli_map_node *n = fli_map_find(&t->by_key, key.data, key.len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct seen, node);
}

static struct seen_user *user_of(struct seen_table *t, const uint8_t *key)
{
    uint64_t hash = fli_map_hash(&t->users, key, 4);
    struct fli_map_node *n = fli_map_find_hashed(&t->users, hash, key, 4);
    if (n != NULL) {
        return FLI_CONTAINER_OF(n, struct seen_user, node);
    }
    struct seen_user *u = fli_xcalloc(1, sizeof *u);
    fli_share_init(&u->share, fli_get_u32(key));
    fli_list_init(&u->list);
    if (fli_map_insert(&t->users, &u->node, hash) != 0) {
        fli_fatal("out of memory for a user of the lock machine");
    }
    return u;
}

static void join(struct machine *m, struct seen_table *t, struct seen *s)
{
    fli_list_push(&t->list, &s->link);
    fli_list_push(&s->user->list, &s->of_user);
    m->digest += machine_digest_seen(s);
}

static void leave(struct machine *m, struct seen *s)
{
    m->digest -= machine_digest_seen(s);
    fli_list_remove(&s->link);
    fli_list_remove(&s->of_user);
}

void machine_seen_drop(struct machine *m, struct seen_table *t, struct seen *s)
{
    struct seen_user *u = s->user;
    leave(m, s);
    fli_map_remove(&t->by_key, &s->node);
    fli_share_give_back(&t->shares, &u->share, 1);
    if (u->share.has == 0) {
        fli_map_remove(&t->users, &u->node);
        free(u);
    }
    free(s);
}

/* The new request counts already, so that whoever floods the table pays for it. */
static void make_room(struct machine *m, struct seen_table *t)
{
    for (unsigned i = 0; i < 2; i++) {
        struct seen *s = oldest(&t->list);
        if (s->at_ms + t->keep_ms < m->clock_ms) {
            machine_seen_drop(m, t, s);
        }
    }
    if (t->by_key.len > t->max) {
        struct seen_user *most =
            FLI_CONTAINER_OF(fli_shares_most(&t->shares), struct seen_user, share);
        machine_seen_drop(m, t, FLI_CONTAINER_OF(most->list.next, struct seen, of_user));
    }
}

void machine_seen_load(struct machine *m, struct seen_table *t, struct fli_slice key,
                       uint64_t number, uint64_t at_ms)
{
    struct seen *s = malloc(sizeof *s + key.len);
    struct seen_user *u = user_of(t, key.data);
    if (s == NULL || fli_share_take(&t->shares, &u->share, 1) != 0 ||
        fli_map_insert(&t->by_key, &s->node, fli_map_hash(&t->by_key, key.data, key.len)) != 0) {
        fli_fatal("out of memory for a request of the lock machine");
    }
    memcpy(s->key, key.data, key.len);
    s->key_len = key.len;
    s->user = u;
    s->number = number;
    s->at_ms = at_ms;
    join(m, t, s);
}

void machine_seen_add(struct machine *m, struct seen_table *t, struct fli_slice key,
                      uint64_t number, uint64_t at_ms)
{
    machine_seen_load(m, t, key, number, at_ms);
    make_room(m, t);
}

void machine_seen_renew(struct machine *m, struct seen_table *t, struct seen *s, uint64_t number,
                        uint64_t at_ms)
{
    leave(m, s);
    s->number = number;
    s->at_ms = at_ms;
    join(m, t, s);
}
