/* changes.c: see changes.h. */
#include "consensus/changes.h"

#include <stdlib.h>
#include <string.h>

void changes_fini(struct changes *c)
{
    free(c->list);
    *c = (struct changes){0};
}

const struct change *changes_last(const struct changes *c)
{
    FLI_ASSERT(c->n > 0);
    return &c->list[c->n - 1];
}

void changes_add(struct changes *c, uint64_t index, const struct configuration *conf)
{
    FLI_ASSERT(c->n == 0 || changes_last(c)->index < index);
    if (c->n == c->cap) {
        c->cap = c->cap == 0 ? 4 : 2 * c->cap;
        c->list = realloc(c->list, c->cap * sizeof *c->list);
        if (c->list == NULL) {
            fli_fatal("out of memory for the configuration");
        }
    }
    c->list[c->n++] = (struct change){index, *conf};
}

void changes_truncate(struct changes *c, uint64_t index)
{
    while (c->n > 0 && changes_last(c)->index >= index) {
        c->n--;
    }
}

const struct change *changes_at(const struct changes *c, uint64_t index)
{
    unsigned i = c->n;
    while (i > 0 && c->list[i - 1].index > index) {
        i--;
    }
    FLI_ASSERT(i > 0);
    return &c->list[i - 1];
}

void changes_compact(struct changes *c, uint64_t index)
{
    unsigned gone = (unsigned)(changes_at(c, index) - c->list);
    c->n -= gone;
    memmove(c->list, c->list + gone, c->n * sizeof *c->list);
}
