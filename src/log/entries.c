/* entries.c: a ring addressed by the entry's index itself, so that both ends move without copying.
 */
#include "log/entries.h"

#include <stdlib.h>
#include <string.h>

#define CAP_MIN ((size_t)64)

_Static_assert(sizeof(struct log_slot) <= 32, "what log.h says an entry costs");

void log_entries_init(struct log_entries *t, size_t cache_max)
{
    *t = (struct log_entries){.first = 1, .cached = 1, .cache_max = cache_max};
}

static void forget_data(struct log_entries *t, uint64_t index)
{
    struct log_slot *s = log_entries_slot(t, index);
    t->cache_used -= s->len + LOG_CACHE_COST;
    free(s->data);
    s->data = NULL;
}

void log_entries_reset(struct log_entries *t, uint64_t index, uint64_t term)
{
    for (uint64_t i = t->cached; i <= t->last; i++) {
        forget_data(t, i);
    }
    FLI_ASSERT(t->cache_used == 0);
    free(t->slots);
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

/* Moves the slots into a ring of another capacity. False: no memory, and the ring is unchanged. */
static bool resize(struct log_entries *t, size_t cap)
{
    struct log_slot *fresh = calloc(cap, sizeof *fresh);
    if (fresh == NULL) {
        return false;
    }
    for (uint64_t i = t->first; i <= t->last; i++) {
        fresh[i & (cap - 1)] = *log_entries_slot(t, i);
    }
    free(t->slots);
    t->slots = fresh;
    t->slots_cap = cap;
    return true;
}

static bool reserve(struct log_entries *t)
{
    size_t n = (size_t)(t->last + 1 - t->first);
    return n < t->slots_cap || resize(t, t->slots_cap == 0 ? CAP_MIN : t->slots_cap * 2);
}

int log_entries_add(struct log_entries *t, const struct log_entry *e)
{
    FLI_ASSERT(e->index == t->last + 1 && e->kind != 0);
    FLI_ASSERT(t->first > t->last || e->term >= log_entries_term(t, t->last));
    uint8_t *copy = reserve(t) ? malloc(e->len == 0 ? 1 : e->len) : NULL;
    if (copy == NULL) {
        return FL_ENOMEM;
    }
    if (e->len > 0) {
        memcpy(copy, e->data, e->len);
    }
    t->last++;
    *log_entries_slot(t, e->index) = (struct log_slot){
        .data = copy, .term = e->term, .segment = LOG_UNPLACED, .len = e->len, .kind = e->kind};
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
    t->cached = t->cached < index ? t->cached : index;
}

void log_entries_drop(struct log_entries *t, uint64_t index)
{
    FLI_ASSERT(index >= t->first && index <= t->last + 1);
    t->base_term = log_entries_term(t, index - 1);
    for (; t->cached < index; t->cached++) {
        forget_data(t, t->cached);
    }
    t->first = index;
    if (t->slots_cap > CAP_MIN && t->last + 1 - index < t->slots_cap / 4) {
        (void)resize(t, t->slots_cap / 2); /* without memory for it the larger one stays */
    }
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
    return log_entries_has(t, index) ? log_entries_slot(t, index)->term : 0;
}
