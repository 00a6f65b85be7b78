/* order.c: see order.h. The list's sentinel must not move, so a struct order stays where it was
 * initialised. */
#include "machine/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

void machine_order_init(struct order *o, uint32_t part_max)
{
    FLI_ASSERT(part_max >= 2);
    *o = (struct order){.part_max = part_max};
    fli_list_init(&o->list);
}

void machine_order_fini(struct order *o)
{
    free(o->parts);
    o->parts = NULL;
}

/* The index of the part that holds, or would hold, `key`: the last part whose first key is not
 * above it; 0 when all are. Most lookups are for recent keys, so the end is tried first. */
static uint32_t find_part(const struct order *o, uint64_t key)
{
    FLI_ASSERT(o->parts_len > 0);
    uint32_t lo = 0;
    uint32_t hi = o->parts_len - 1;
    if (o->parts[hi].key <= key) {
        return hi;
    }
    while (lo + 1 < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (o->parts[mid].key <= key) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static void append_part(struct order *o, struct order_node *n)
{
    if (o->parts_len == o->parts_cap) {
        uint32_t cap = o->parts_cap == 0 ? 4 : o->parts_cap * 2;
        struct order_part *parts = fli_xcalloc(cap, sizeof *parts);
        if (o->parts_len > 0) {
            memcpy(parts, o->parts, o->parts_len * sizeof *parts);
        }
        free(o->parts);
        o->parts = parts;
        o->parts_cap = cap;
    }
    o->parts[o->parts_len++] = (struct order_part){.key = n->key, .first = n, .len = 1};
}

static void drop_part(struct order *o, uint32_t i)
{
    FLI_ASSERT(i < o->parts_len);
    o->parts_len--;
    memmove(&o->parts[i], &o->parts[i + 1], (o->parts_len - i) * sizeof o->parts[0]);
}

void machine_order_push(struct order *o, struct order_node *n, uint64_t key)
{
    FLI_ASSERT(o->len == 0 || machine_order_last(o)->key < key);
    n->key = key;
    fli_list_push(&o->list, &n->link);
    o->len++;
    struct order_part *last = o->parts_len == 0 ? NULL : &o->parts[o->parts_len - 1];
    if (last == NULL || last->len == o->part_max) {
        append_part(o, n);
    } else {
        last->len++;
    }
}

/* Joins part i with a neighbour when both together are at most half full. The half keeps a part
 * from being split and joined again in turns. */
static void join_parts(struct order *o, uint32_t i)
{
    uint32_t half = o->part_max / 2;
    if (i > 0 && o->parts[i - 1].len + o->parts[i].len <= half) {
        o->parts[i - 1].len += o->parts[i].len;
        drop_part(o, i);
    } else if (i + 1 < o->parts_len && o->parts[i].len + o->parts[i + 1].len <= half) {
        o->parts[i].len += o->parts[i + 1].len;
        drop_part(o, i + 1);
    }
}

void machine_order_remove(struct order *o, struct order_node *n)
{
    FLI_ASSERT(o->len > 0 && fli_list_linked(&n->link));
    uint32_t i = find_part(o, n->key);
    struct order_part *part = &o->parts[i];
    struct order_node *next = machine_order_next(o, n);
    fli_list_remove(&n->link);
    o->len--;
    part->len--;
    if (part->len == 0) {
        FLI_ASSERT(part->first == n);
        drop_part(o, i);
        return;
    }
    if (part->first == n) {
        FLI_ASSERT(next != NULL);
        part->first = next;
        part->key = next->key;
    }
    join_parts(o, i);
}

struct order_node *machine_order_seek(const struct order *o, uint64_t key)
{
    if (o->len == 0) {
        return NULL;
    }
    struct order_node *n = o->parts[find_part(o, key)].first;
    while (n != NULL && n->key <= key) {
        n = machine_order_next(o, n);
    }
    return n;
}

uint64_t machine_order_rank(const struct order *o, const struct order_node *n)
{
    uint32_t i = find_part(o, n->key);
    uint64_t rank = 1;
    for (uint32_t k = 0; k < i; k++) {
        rank += o->parts[k].len;
    }
    for (const struct order_node *p = o->parts[i].first; p != n; p = machine_order_next(o, p)) {
        FLI_ASSERT(p != NULL);
        rank++;
    }
    return rank;
}
