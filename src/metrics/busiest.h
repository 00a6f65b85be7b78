/* busiest.h: finds the names with the largest weights, among more names than there is room for.
 *
 * Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements
 * in Data Streams", ICDT 2005, section 3.1), with weights instead of ones. There are as many
 * counters as fit. A name without one takes over the smallest counter, with the weight in it. So a
 * counter is never below the true weight of its name, and exceeds it by at most `over`, the weight
 * it took over. A name with more than the total divided by the number of counters always has one.
 *
 * Here: names of locks, and the milliseconds spent waiting for them. Pure; one thread. */
#ifndef METRICS_BUSIEST_H
#define METRICS_BUSIEST_H

#include "base/heap.h"
#include "base/map.h"

#define BUSIEST_COUNTERS 256u

/* The counts besides the weight are exact since the name got its counter. */
struct busiest_entry {
    struct fli_map_node by_name;
    struct fli_heap_node by_weight;
    uint64_t weight;  /* never too small */
    uint64_t over;    /* the most by which it may be too large */
    uint64_t waits;   /* waits that ended, granted or not */
    uint64_t longest; /* weight of one wait */
    uint64_t refused; /* ACQUIRE without WAIT that found the lock held */
    uint64_t order;   /* makes the order of counters total */
    uint8_t name_len;
    uint8_t name[FL_NAME_MAX];
};

struct busiest {
    struct fli_map names;
    struct fli_heap heap; /* the smallest first */
    struct busiest_entry *entries;
    unsigned used;
    uint64_t total, order;
};

void busiest_init(struct busiest *b,
                  const uint64_t hash_seed[2]); /* out of memory ends the process */
void busiest_fini(struct busiest *b);
void busiest_clear(struct busiest *b);

void busiest_waited(struct busiest *b, struct fli_slice name, uint64_t weight);
void busiest_refused(struct busiest *b, struct fli_slice name);

/* Lists the n largest, the largest first; returns their number. n <= BUSIEST_COUNTERS. */
unsigned busiest_top(const struct busiest *b, const struct busiest_entry **ret, unsigned n);

#endif
