/* map.c: see map.h.
 *
 * Buckets are chains of nodes, newest first. When there is more than one element per bucket, a
 * table of twice the size is added. Each later insert or remove moves a few buckets over; lookups
 * search both tables. A table of n buckets is empty after at most n / MOVE_BUCKETS changes, and the
 * next growth is due n inserts later at the earliest, so there are never more than two tables.
 * Shrinking works alike: it begins at one element in eight buckets and aims at one in two. New
 * tables come from calloc, which for large ones means fresh pages that need no clearing. */
#include "base/map.h"

#include <stdlib.h>

#include "base/bytes.h"

#define BUCKETS_MIN 16u
#define MOVE_BUCKETS 4u /* buckets with elements moved by one change */
#define MOVE_EMPTY 32u  /* buckets looked at by one change */

static bool moving(const struct fli_map *m)
{
    return m->table[1].buckets != NULL;
}

void fli_map_init(struct fli_map *m, fli_map_eq eq, const uint64_t seed[2])
{
    FLI_ASSERT(eq != NULL);
    *m = (struct fli_map){.eq = eq, .seed = {seed[0], seed[1]}};
}

void fli_map_fini(struct fli_map *m)
{
    if (m == NULL) {
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        free(m->table[i].buckets);
        m->table[i] = (struct fli_map_table){NULL, 0};
    }
    m->len = 0;
    m->moved = 0;
}

uint64_t fli_map_hash(const struct fli_map *m, const void *key, size_t key_len)
{
    return fli_siphash(m->seed, key, key_len);
}

static bool table_create(size_t buckets, struct fli_map_table *ret)
{
    FLI_ASSERT((buckets & (buckets - 1)) == 0);
    struct fli_map_node **p = calloc(buckets, sizeof(struct fli_map_node *));
    if (p == NULL) {
        return false;
    }
    *ret = (struct fli_map_table){p, buckets - 1};
    return true;
}

static void move_bucket(struct fli_map *m)
{
    struct fli_map_node *n = m->table[0].buckets[m->moved];
    m->table[0].buckets[m->moved] = NULL;
    m->moved++;
    while (n != NULL) {
        struct fli_map_node *next = n->next;
        struct fli_map_node **slot = &m->table[1].buckets[n->hash & m->table[1].mask];
        n->next = *slot;
        *slot = n;
        n = next;
    }
}

static void move_some(struct fli_map *m)
{
    unsigned left = MOVE_BUCKETS;
    for (unsigned i = 0; i < MOVE_EMPTY && left > 0 && m->moved <= m->table[0].mask; i++) {
        left -= m->table[0].buckets[m->moved] != NULL;
        move_bucket(m);
    }
    if (m->moved > m->table[0].mask) {
        free(m->table[0].buckets);
        m->table[0] = m->table[1];
        m->table[1] = (struct fli_map_table){NULL, 0};
        m->moved = 0;
    }
}

/* Starts a move to a table of another size when the load requires it. A lack of memory costs speed,
 * not correctness, and the next change tries again. */
static void consider_resize(struct fli_map *m)
{
    size_t buckets = m->table[0].mask + 1;
    size_t wanted = buckets;
    if (m->len >= buckets) {
        wanted = buckets * 2;
    } else if (buckets > BUCKETS_MIN && m->len < buckets / 8) {
        wanted = buckets / 4 > BUCKETS_MIN ? buckets / 4 : BUCKETS_MIN;
    }
    if (wanted == buckets || wanted > UINT32_MAX ||
        wanted > SIZE_MAX / sizeof(struct fli_map_node *)) {
        return;
    }
    if (table_create(wanted, &m->table[1])) {
        m->moved = 0;
    }
}

static void step(struct fli_map *m)
{
    if (FLI_UNLIKELY(moving(m))) {
        move_some(m);
    } else {
        consider_resize(m);
    }
}

/* The beginning of a hash's chain. The old table has only buckets that were not moved yet. */
static struct fli_map_node **chain(struct fli_map *m, uint64_t hash)
{
    size_t i = (size_t)hash & m->table[0].mask;
    if (FLI_UNLIKELY(moving(m)) && i < m->moved) {
        return &m->table[1].buckets[hash & m->table[1].mask];
    }
    return &m->table[0].buckets[i];
}

struct fli_map_node *fli_map_find_hashed(struct fli_map *m, uint64_t hash, const void *key,
                                         size_t key_len)
{
    if (m->len == 0) {
        return NULL;
    }
    for (struct fli_map_node *n = *chain(m, hash); n != NULL; n = n->next) {
        if (n->hash == (uint32_t)hash && m->eq(n, key, key_len)) {
            return n;
        }
    }
    return NULL;
}

struct fli_map_node *fli_map_find(struct fli_map *m, const void *key, size_t key_len)
{
    return m->len == 0 ? NULL : fli_map_find_hashed(m, fli_map_hash(m, key, key_len), key, key_len);
}

int fli_map_insert(struct fli_map *m, struct fli_map_node *node, uint64_t hash)
{
    if (FLI_UNLIKELY(m->table[0].buckets == NULL)) {
        FLI_ASSERT(m->len == 0);
        if (!table_create(BUCKETS_MIN, &m->table[0])) {
            return FL_ENOMEM;
        }
    }
    step(m);
    struct fli_map_node **slot = chain(m, hash);
    node->hash = (uint32_t)hash;
    node->next = *slot;
    *slot = node;
    m->len++;
    return 0;
}

void fli_map_remove(struct fli_map *m, struct fli_map_node *node)
{
    FLI_ASSERT(m->len > 0);
    struct fli_map_node **slot = chain(m, node->hash);
    while (*slot != node) {
        FLI_ASSERT(*slot != NULL);
        slot = &(*slot)->next;
    }
    *slot = node->next;
    node->next = NULL;
    m->len--;
    if (m->len == 0 && (moving(m) || m->table[0].mask + 1 > BUCKETS_MIN)) {
        fli_map_fini(m); /* nothing to move: an empty map frees everything at once */
        return;
    }
    step(m);
}

void fli_map_each(struct fli_map *m, void (*fn)(void *ctx, struct fli_map_node *node), void *ctx)
{
    for (unsigned t = 0; t < 2; t++) {
        if (m->table[t].buckets == NULL) {
            continue;
        }
        for (size_t i = 0; i <= m->table[t].mask; i++) {
            struct fli_map_node *next;
            for (struct fli_map_node *n = m->table[t].buckets[i]; n != NULL; n = next) {
                next = n->next; /* fn may free its element, when the map is dropped next */
                fn(ctx, n);
            }
        }
    }
}
