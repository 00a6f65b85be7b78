/* busiest.c: see busiest.h. */
#include "metrics/busiest.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(FL_NAME_MAX <= UINT8_MAX, "a name's length fits a byte");

static bool name_eq(const struct fli_map_node *node, const void *key, size_t len)
{
    const struct busiest_entry *e =
        (const struct busiest_entry *)(const void *)((const char *)node -
                                                     offsetof(struct busiest_entry, by_name));
    return e->name_len == len && memcmp(e->name, key, len) == 0;
}

static const struct busiest_entry *entry_of(const struct fli_heap_node *n)
{
    return (const struct busiest_entry *)(const void *)((const char *)n -
                                                        offsetof(struct busiest_entry, by_weight));
}

/* Of equal weights, the one that was changed longest ago counts as lighter. */
static bool lighter(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct busiest_entry *x = entry_of(a);
    const struct busiest_entry *y = entry_of(b);
    return x->weight != y->weight ? x->weight < y->weight : x->order < y->order;
}

void busiest_init(struct busiest *b, const uint64_t hash_seed[2])
{
    memset(b, 0, sizeof *b);
    fli_map_init(&b->names, name_eq, hash_seed);
    fli_heap_init(&b->heap, lighter);
    b->entries = fli_xcalloc(BUSIEST_COUNTERS, sizeof *b->entries);
}

void busiest_clear(struct busiest *b)
{
    for (unsigned i = 0; i < b->used; i++) {
        fli_map_remove(&b->names, &b->entries[i].by_name);
        fli_heap_remove(&b->heap, &b->entries[i].by_weight);
    }
    b->used = 0;
    b->total = 0;
}

void busiest_fini(struct busiest *b)
{
    busiest_clear(b);
    fli_map_fini(&b->names);
    fli_heap_fini(&b->heap);
    free(b->entries);
}

static void name_entry(struct busiest *b, struct busiest_entry *e, struct fli_slice name)
{
    FLI_ASSERT(name.len > 0 && name.len <= FL_NAME_MAX);
    memcpy(e->name, name.data, name.len);
    e->name_len = (uint8_t)name.len;
    if (fli_map_insert(&b->names, &e->by_name, fli_map_hash(&b->names, name.data, name.len)) != 0) {
        fli_fatal("out of memory for the busiest locks");
    }
}

static struct busiest_entry *find(struct busiest *b, struct fli_slice name)
{
    struct fli_map_node *n = fli_map_find(&b->names, name.data, name.len);
    if (n != NULL) {
        return FLI_CONTAINER_OF(n, struct busiest_entry, by_name);
    }
    struct busiest_entry *e;
    if (b->used < BUSIEST_COUNTERS) {
        e = &b->entries[b->used++];
        memset(e, 0, sizeof *e);
        fli_heap_node_init(&e->by_weight);
        name_entry(b, e, name);
        if (fli_heap_insert(&b->heap, &e->by_weight) != 0) {
            fli_fatal("out of memory for the busiest locks");
        }
        return e;
    }
    e = FLI_CONTAINER_OF(fli_heap_min(&b->heap), struct busiest_entry, by_weight);
    fli_map_remove(&b->names, &e->by_name);
    e->over = e->weight;
    e->waits = e->longest = e->refused = 0;
    name_entry(b, e, name);
    return e;
}

void busiest_waited(struct busiest *b, struct fli_slice name, uint64_t weight)
{
    struct busiest_entry *e = find(b, name);
    e->weight += weight;
    e->waits++;
    e->longest = weight > e->longest ? weight : e->longest;
    e->order = ++b->order;
    b->total += weight;
    fli_heap_update(&b->heap, &e->by_weight);
}

void busiest_refused(struct busiest *b, struct fli_slice name)
{
    struct busiest_entry *e = find(b, name);
    e->refused++;
    e->order = ++b->order;
    fli_heap_update(&b->heap, &e->by_weight);
}

static int heavier_first(const void *a, const void *b)
{
    const struct busiest_entry *x = *(const struct busiest_entry *const *)a;
    const struct busiest_entry *y = *(const struct busiest_entry *const *)b;
    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    if (x->refused != y->refused) {
        return x->refused > y->refused ? -1 : 1;
    }
    size_t len = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->name, y->name, len);
    return order != 0 ? order : (int)x->name_len - (int)y->name_len;
}

unsigned busiest_top(const struct busiest *b, const struct busiest_entry **ret, unsigned n)
{
    const struct busiest_entry *all[BUSIEST_COUNTERS];
    FLI_ASSERT(n <= BUSIEST_COUNTERS);
    for (unsigned i = 0; i < b->used; i++) {
        all[i] = &b->entries[i];
    }
    qsort(all, b->used, sizeof all[0], heavier_first);
    n = n < b->used ? n : b->used;
    memcpy(ret, all, n * sizeof all[0]);
    return n;
}
