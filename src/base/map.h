/* map.h: intrusive hash map keyed by bytes, with incremental resizing.
 *
 * The node is embedded in the caller's struct and caches its hash. The map never allocates per
 * element, and no operation moves more than a few buckets, so a million elements cause no pause.
 * The caller's function compares keys, since only the caller knows where a key is. SipHash-1-3
 * (Aumasson and Bernstein 2012, reduced rounds) under a random key for each map defends against
 * flooding with chosen names. So the order of iteration differs between processes, and code whose
 * result must be the same everywhere must not iterate. Not thread-safe. */
#ifndef FLI_MAP_H
#define FLI_MAP_H

#include <stdbool.h>

#include "base/base.h"

struct fli_map_node {
    struct fli_map_node *next;
    uint32_t hash;  /* its lower half, which is enough for 2^32 buckets */
    uint8_t own[4]; /* for the caller, in bytes that padding would waste */
};

/* Whether the element that embeds `node` has this key. */
typedef bool (*fli_map_eq)(const struct fli_map_node *node, const void *key, size_t key_len);

struct fli_map_table {
    struct fli_map_node **buckets;
    size_t mask; /* number of buckets - 1; buckets is NULL when unused */
};

struct fli_map {
    struct fli_map_table table[2]; /* while moving, [0] empties into [1] */
    size_t moved;                  /* next bucket of table[0] to move */
    size_t len;
    uint64_t seed[2];
    fli_map_eq eq;
};

/* Never allocates. seed: 16 random bytes as two words. */
void fli_map_init(struct fli_map *m, fli_map_eq eq, const uint64_t seed[2]);
void fli_map_fini(struct fli_map *m); /* frees the tables, not the elements */

uint64_t fli_map_hash(const struct fli_map *m, const void *key, size_t key_len);

/* NULL when absent. */
struct fli_map_node *fli_map_find(struct fli_map *m, const void *key, size_t key_len);
struct fli_map_node *fli_map_find_hashed(struct fli_map *m, uint64_t hash, const void *key,
                                         size_t key_len);

/* Adds a node whose key, with the given hash, must not be in the map. 0 or FL_ENOMEM (for the first
 * table only; a failed resize is tried again later and never fails an insert). */
int fli_map_insert(struct fli_map *m, struct fli_map_node *node, uint64_t hash) FLI_MUST_USE;

/* Removes a node that is in the map. */
void fli_map_remove(struct fli_map *m, struct fli_map_node *node);

/* Calls fn for every element, in no particular order; fn must not change the map. */
void fli_map_each(struct fli_map *m, void (*fn)(void *ctx, struct fli_map_node *node), void *ctx);

uint64_t fli_siphash(const uint64_t seed[2], const void *data, size_t len);

#endif
