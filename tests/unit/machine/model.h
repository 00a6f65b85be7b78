/* model.h: the lock machine a second time, as plainly as possible: arrays, scans, eager time,
 * one-letter names and owners. Shares no code with the machine, only the structs that commands,
 * results and counts travel in. Where the two differ, one of them is wrong. */
#ifndef TEST_MACHINE_MODEL_H
#define TEST_MACHINE_MODEL_H

#include <stdbool.h>

#include "machine/machine.h"

#define MODEL_NAMES 5u  /* locks are called 'a'... */
#define MODEL_OWNERS 6u /* owners 'u'... */
#define MODEL_SESSIONS_MAX (MODEL_OWNERS + MODEL_OWNERS * MODEL_NAMES)
#define MODEL_WAITS_MAX (2 * MODEL_OWNERS * MODEL_NAMES)
#define MODEL_EVENTS_MAX 256u

struct model_session {
    bool exists;
    bool is_explicit;
    bool leased;
    char owner;
    char name; /* of the lock, implicit only; else 0 */
    char label;
    uint64_t ttl_ms, deadline_ms, lockdelay_ms, serial;
};

struct model_lock {
    bool held, delayed, idle; /* idle: neither held nor free */
    unsigned session;         /* index of the holder */
    uint64_t token, since_ms, until_ms, idle_serial;
    char value;
};

struct model_wait {
    bool exists;
    char name;
    unsigned session;
    uint64_t id, asking, deadline_ms;
    char value;
};

struct model_event {
    uint8_t type, reason;
    bool is_explicit;
    char name, owner;
    uint64_t token, wait, deadline_ms;
};

struct model {
    struct model_session sessions[MODEL_SESSIONS_MAX];
    struct model_lock locks[MODEL_NAMES];
    struct model_wait waits[MODEL_WAITS_MAX]; /* in no order */
    struct machine_limits limits;
    struct machine_counts counts; /* the ones for ever */
    uint64_t clock_ms, last_token, serial, cluster_id;
    struct {
        uint64_t id, incarnation;
    } nodes[16];
    unsigned n_nodes;
    struct model_event events[MODEL_EVENTS_MAX];
    unsigned n_events;
};

void model_init(struct model *m);
void model_begin(struct model *m, uint64_t stamp_ms, bool term_mark);
struct machine_result model_apply(struct model *m, const struct machine_command *c);
struct machine_counts model_counts(const struct model *m);

/* The queue of a lock as indexes of waits, first one first; returns how many. */
unsigned model_queue(const struct model *m, char name, unsigned queue[MODEL_WAITS_MAX]);

#endif
