/* entries.c: a ring addressed by the entry's index itself, so that both ends move without copying.
 */
#include "log/entries.h"

#include <stdlib.h>

#define CAP_MIN ((size_t)64)

_Static_assert(sizeof(struct log_slot) <= 24, "what log.h says an entry costs");

void log_entries_reset(struct log_entries *t, uint64_t index, uint64_t term)
{
    free(t->slots);
    *t = (struct log_entries){.first = index + 1, .last = index, .base_term = term};
}

/* Moves the slots into a ring of another capacity. */
static int resize(struct log_entries *t, size_t cap)
{
    struct log_slot *fresh = calloc(cap, sizeof *fresh);
    if (fresh == NULL) {
        return FL_ENOMEM;
    }
    for (uint64_t i = t->first; i <= t->last; i++) {
        fresh[i & (cap - 1)] = *log_entries_slot(t, i);
    }
    free(t->slots);
    t->slots = fresh;
    t->slots_cap = cap;
    return 0;
}

int log_entries_reserve(struct log_entries *t)
{
    size_t n = (size_t)(t->last + 1 - t->first);
    return n < t->slots_cap ? 0 : resize(t, t->slots_cap == 0 ? CAP_MIN : t->slots_cap * 2);
}

void log_entries_add(struct log_entries *t, uint64_t term, uint32_t len, uint8_t kind,
                     uint32_t segment, uint64_t offset)
{
    FLI_ASSERT(kind != 0 && term >= log_entries_term(t, t->last));
    FLI_ASSERT(t->last + 1 - t->first < t->slots_cap);
    t->last++;
    t->slots[t->last & (t->slots_cap - 1)] = (struct log_slot){
        .term = term, .segment = segment, .offset = (uint32_t)offset, .len = len, .kind = kind};
}

void log_entries_truncate(struct log_entries *t, uint64_t index)
{
    FLI_ASSERT(index >= t->first && index <= t->last + 1);
    t->last = index - 1;
}

void log_entries_drop(struct log_entries *t, uint64_t index)
{
    FLI_ASSERT(index >= t->first && index <= t->last + 1);
    t->base_term = log_entries_term(t, index - 1);
    t->first = index;
    if (t->slots_cap > CAP_MIN && t->last + 1 - index < t->slots_cap / 4) {
        (void)!resize(t, t->slots_cap / 2); /* without memory for it the larger one stays */
    }
}

uint64_t log_entries_term(const struct log_entries *t, uint64_t index)
{
    if (index + 1 == t->first) {
        return t->base_term;
    }
    return log_entries_has(t, index) ? log_entries_slot(t, index)->term : 0;
}
