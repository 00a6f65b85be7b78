/* demo_plan.c: what a seed makes happen. No I/O. */
#include "cli/demo.h"

const char *demo_fault_text(enum demo_fault fault)
{
    switch (fault) {
    case DEMO_PAUSE:
        return "a writer is stopped past its TTL";
    case DEMO_RESTART:
        return "a Redis restarts without its keys";
    case DEMO_CLOCK:
        return "the clock of a Redis jumps";
    default:
        return "a write is held back on its way";
    }
}

const char *demo_fault_word(enum demo_fault fault)
{
    static const char *const words[] = {"pause", "restart", "clock", "delay"};
    FLI_ASSERT(fault < DEMO_FAULTS);
    return words[fault];
}

/* SplitMix64 (Steele, Lea, Flood 2014): the same numbers everywhere from one seed. */
static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static void choose_servers(struct demo_round *r, uint64_t *state)
{
    unsigned at[DEMO_REDIS] = {0, 1, 2, 3, 4};
    /* The clock that can be made to jump is that of the first one. */
    unsigned from = r->fault == DEMO_CLOCK ? 1 : 0;
    for (unsigned i = from; i < 3; i++) {
        unsigned j = i + (unsigned)draw(state, DEMO_REDIS - i);
        unsigned swap = at[i];
        at[i] = at[j];
        at[j] = swap;
    }
    r->loses = at[0];
    r->away[0] = at[1];
    r->away[1] = at[2];
}

void demo_plan_make(struct demo_plan *p, uint64_t seed, bool clock)
{
    uint64_t state = seed;
    enum demo_fault faults[DEMO_FAULTS] = {DEMO_PAUSE, DEMO_RESTART, DEMO_DELAY, DEMO_CLOCK};
    unsigned known = clock ? DEMO_FAULTS : DEMO_FAULTS - 1;
    *p = (struct demo_plan){.seed = seed};
    p->writers = 3 + (unsigned)draw(&state, DEMO_WRITERS_MAX - 2);
    p->rounds = 2 + (unsigned)draw(&state, known - 1);
    for (unsigned i = 0; i < p->rounds; i++) {
        struct demo_round *r = &p->round[i];
        unsigned j = i + (unsigned)draw(&state, known - i);
        r->fault = faults[j];
        faults[j] = faults[i];
        r->adds = (unsigned)draw(&state, 2);
        r->first = (unsigned)draw(&state, p->writers);
        r->next = (r->first + 1 + (unsigned)draw(&state, p->writers - 1)) % p->writers;
        r->late_write_first = draw(&state, 2) == 0;
        choose_servers(r, &state);
    }
}
