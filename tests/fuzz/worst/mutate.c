/* mutate.c: how the search gets from one case to the next. See worst.h. */
#include <string.h>

#include "../../lib/splitmix.h"
#include "worst.h"

uint64_t worst_random(uint64_t *state)
{
    return splitmix64(state);
}

uint64_t worst_below(uint64_t *state, uint64_t n)
{
    return worst_random(state) % n;
}

/* Small numbers are likely, and so are those that others use already. */
static uint16_t number(const struct worst_case *c, uint64_t *random)
{
    if (c->n > 0 && worst_below(random, 2) == 0) {
        const struct worst_gene *g = &c->gene[worst_below(random, c->n)];
        uint64_t by = worst_below(random, 3);
        return (uint16_t)((worst_below(random, 2) == 0 ? g->name : g->owner) + by - 1);
    }
    return (uint16_t)worst_below(random, UINT64_C(1) << (1 + worst_below(random, 16)));
}

static uint16_t times(uint64_t *random)
{
    uint64_t n = worst_below(random, UINT64_C(1) << (1 + worst_below(random, 13)));
    return (uint16_t)(n == 0 ? 1 : n);
}

static struct worst_gene any_gene(const struct worst_case *c, uint64_t *random)
{
    return (struct worst_gene){.kind = (uint8_t)worst_below(random, WORST_KINDS),
                               .name = number(c, random),
                               .owner = number(c, random),
                               .how = (uint16_t)worst_below(random, UINT64_C(1) << 16),
                               .times = times(random)};
}

static void insert(struct worst_case *c, unsigned at, struct worst_gene g)
{
    if (c->n == WORST_GENES_MAX) {
        return;
    }
    memmove(&c->gene[at + 1], &c->gene[at], (c->n - at) * sizeof g);
    c->gene[at] = g;
    c->n++;
}

static void drop(struct worst_case *c, unsigned at)
{
    c->n--;
    memmove(&c->gene[at], &c->gene[at + 1], (c->n - at) * sizeof c->gene[0]);
}

static void alter(struct worst_case *c, struct worst_gene *g, uint64_t *random)
{
    switch (worst_below(random, 6)) {
    case 0:
        g->name = number(c, random);
        break;
    case 1:
        g->owner = number(c, random);
        break;
    case 2:
        g->how ^= (uint16_t)(1u << worst_below(random, 16));
        break;
    case 3:
        g->times = times(random);
        break;
    case 4:
        g->times = (uint16_t)(worst_below(random, 2) == 0 ? g->times * 2u : g->times / 2u);
        break;
    default:
        g->times = (uint16_t)(g->times + worst_below(random, 64) - 32u);
        break;
    }
    g->times = g->times > WORST_TIMES_MAX ? (uint16_t)WORST_TIMES_MAX : g->times;
}

static void splice(struct worst_case *c, const struct worst_case *other, uint64_t *random)
{
    if (other->n == 0) {
        return;
    }
    unsigned from = (unsigned)worst_below(random, other->n);
    unsigned len = 1 + (unsigned)worst_below(random, other->n - from);
    unsigned at = (unsigned)worst_below(random, c->n + 1u);
    for (unsigned i = 0; i < len; i++) {
        insert(c, at + i < c->n ? at + i : c->n, other->gene[from + i]);
    }
}

static void change(struct worst_case *c, const struct worst_case *other, uint64_t *random)
{
    unsigned at = c->n == 0 ? 0 : (unsigned)worst_below(random, c->n);
    switch (c->n == 0 ? 0 : worst_below(random, 12)) {
    case 0:
    case 1:
        insert(c, at, any_gene(c, random));
        break;
    case 2:
        drop(c, at);
        break;
    case 3:
        insert(c, at, c->gene[at]);
        break;
    case 4: {
        unsigned to = (unsigned)worst_below(random, c->n);
        struct worst_gene g = c->gene[at];
        c->gene[at] = c->gene[to];
        c->gene[to] = g;
        break;
    }
    case 5:
        splice(c, other, random);
        break;
    default:
        alter(c, &c->gene[at], random);
        break;
    }
}

void worst_mutate(struct worst_case *c, const struct worst_case *other, uint64_t *random)
{
    unsigned n = 1 + (unsigned)worst_below(random, 5);
    for (unsigned i = 0; i < n; i++) {
        change(c, other, random);
    }
}
