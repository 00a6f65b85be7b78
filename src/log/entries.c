/* entries.c: rings addressed by the entry's index itself, so that both ends move without copying.
 */
#include "log/entries.h"

#include <stdlib.h>
#include <string.h>

#define CAP_MIN ((size_t)64)

_Static_assert(sizeof(struct log_slot) == 16, "what log.h says an entry costs");

void log_entries_init(struct log_entries *t, size_t cache_max)
{
    *t = (struct log_entries){.first = 1, .cached = 1, .cache_max = cache_max};
}

static void forget_data(struct log_entries *t, uint64_t index)
{
    uint8_t **p = &t->data[index & (t->data_cap - 1)];
    t->cache_used -= log_entries_slot(t, index)->len + LOG_CACHE_COST;
    free(*p);
    *p = NULL;
}

void log_entries_reset(struct log_entries *t, uint64_t index, uint64_t term)
{
    for (uint64_t i = t->cached; i <= t->last; i++) {
        forget_data(t, i);
    }
    FLI_ASSERT(t->cache_used == 0);
    free(t->slots);
    free(t->data);
    free(t->runs);
    size_t cache_max = t->cache_max;
    *t = (struct log_entries){.first = index + 1,
                              .last = index,
                              .cached = index + 1,
                              .base_term = term,
                              .cache_max = cache_max};
}

void log_entries_fini(struct log_entries *t)
{
    log_entries_reset(t, 0, 0);
}

/* Moves a ring with elements of `size` bytes, holding indexes from..to, into one of another
 * capacity. NULL: no memory, and the ring is unchanged. */
static void *move_ring(void *ring, size_t size, size_t old_cap, size_t cap, uint64_t from,
                       uint64_t to)
{
    uint8_t *fresh = calloc(cap, size);
    if (fresh == NULL) {
        return NULL;
    }
    for (uint64_t i = from; i <= to; i++) {
        memcpy(fresh + (size_t)(i & (cap - 1)) * size,
               (uint8_t *)ring + (size_t)(i & (old_cap - 1)) * size, size);
    }
    free(ring);
    return fresh;
}

static int reserve_slot(struct log_entries *t)
{
    size_t n = (size_t)(t->last + 1 - t->first);
    if (n < t->slots_cap) {
        return 0;
    }
    size_t cap = t->slots_cap == 0 ? CAP_MIN : t->slots_cap * 2;
    void *fresh = move_ring(t->slots, sizeof *t->slots, t->slots_cap, cap, t->first, t->last);
    if (fresh == NULL) {
        return FL_ENOMEM;
    }
    t->slots = fresh;
    t->slots_cap = cap;
    return 0;
}

static int reserve_data(struct log_entries *t)
{
    size_t n = (size_t)(t->last + 1 - t->cached);
    if (n < t->data_cap) {
        return 0;
    }
    size_t cap = t->data_cap == 0 ? CAP_MIN : t->data_cap * 2;
    void *fresh = move_ring(t->data, sizeof *t->data, t->data_cap, cap, t->cached, t->last);
    if (fresh == NULL) {
        return FL_ENOMEM;
    }
    t->data = fresh;
    t->data_cap = cap;
    return 0;
}

static int reserve_run(struct log_entries *t)
{
    if (t->runs_len < t->runs_cap) {
        return 0;
    }
    size_t cap = t->runs_cap == 0 ? 8 : t->runs_cap * 2;
    struct log_run *fresh = realloc(t->runs, cap * sizeof *fresh);
    if (fresh == NULL) {
        return FL_ENOMEM;
    }
    t->runs = fresh;
    t->runs_cap = cap;
    return 0;
}

int log_entries_add(struct log_entries *t, const struct log_entry *e)
{
    FLI_ASSERT(e->index == t->last + 1 && e->kind != 0);
    uint8_t *copy = NULL;
    if (reserve_slot(t) != 0 || reserve_data(t) != 0 || reserve_run(t) != 0 ||
        (copy = malloc(e->len == 0 ? 1 : e->len)) == NULL) {
        return FL_ENOMEM;
    }
    if (e->len > 0) {
        memcpy(copy, e->data, e->len);
    }
    if (t->runs_len == 0 || t->runs[t->runs_len - 1].term != e->term) {
        FLI_ASSERT(t->runs_len == 0 || t->runs[t->runs_len - 1].term < e->term);
        t->runs[t->runs_len++] = (struct log_run){.index = e->index, .term = e->term};
    }
    t->last++;
    *log_entries_slot(t, e->index) =
        (struct log_slot){.segment = LOG_UNPLACED, .len = e->len, .kind = e->kind};
    t->data[e->index & (t->data_cap - 1)] = copy;
    t->cache_used += e->len + LOG_CACHE_COST;
    return 0;
}

void log_entries_truncate(struct log_entries *t, uint64_t index)
{
    FLI_ASSERT(index >= t->first && index <= t->last + 1);
    for (; t->last >= index; t->last--) {
        if (t->last >= t->cached) {
            forget_data(t, t->last);
        }
    }
    if (t->cached > t->last + 1) {
        t->cached = t->last + 1;
    }
    while (t->runs_len > 0 && t->runs[t->runs_len - 1].index > t->last) {
        t->runs_len--;
    }
}

/* Frees memory when most of a ring is unused. Without memory for a smaller ring the old one
 * stays. */
static void shrink(struct log_entries *t)
{
    size_t n = (size_t)(t->last + 1 - t->first);
    if (t->slots_cap > CAP_MIN && n < t->slots_cap / 4) {
        size_t cap = t->slots_cap / 2;
        void *fresh = move_ring(t->slots, sizeof *t->slots, t->slots_cap, cap, t->first, t->last);
        if (fresh != NULL) {
            t->slots = fresh;
            t->slots_cap = cap;
        }
    }
}

void log_entries_drop(struct log_entries *t, uint64_t index)
{
    FLI_ASSERT(index >= t->first && index <= t->last + 1);
    t->base_term = log_entries_term(t, index - 1);
    for (; t->cached < index; t->cached++) {
        if (t->cached >= t->first) {
            forget_data(t, t->cached);
        }
    }
    t->first = index;
    size_t gone = 0;
    while (gone + 1 < t->runs_len && t->runs[gone + 1].index <= index) {
        gone++;
    }
    if (t->first > t->last) {
        gone = t->runs_len;
    }
    t->runs_len -= gone;
    if (gone > 0) {
        memmove(t->runs, t->runs + gone, t->runs_len * sizeof *t->runs);
    }
    shrink(t);
}

void log_entries_evict(struct log_entries *t, uint64_t durable)
{
    while (t->cache_used > t->cache_max && t->cached <= t->last && t->cached <= durable) {
        forget_data(t, t->cached++);
    }
}

uint64_t log_entries_term(const struct log_entries *t, uint64_t index)
{
    if (index + 1 == t->first) {
        return t->base_term;
    }
    if (!log_entries_has(t, index)) {
        return 0;
    }
    size_t lo = 0;
    size_t hi = t->runs_len; /* the run is in [lo, hi) */
    if (t->runs[hi - 1].index <= index) {
        return t->runs[hi - 1].term;
    }
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->runs[mid].index <= index) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return t->runs[lo].term;
}
