/* rig.h: servers of a group (group.h) with a queue and a proposer each. Time is the group's, plus
 * what a test adds. */
#ifndef TEST_COMMANDS_RIG_H
#define TEST_COMMANDS_RIG_H

#include "commands/proposer.h"
#include "../consensus/group.h"

#define RIG_NODES_MAX 3u
#define RIG_CALLS_MAX 640u

/* One command or query and what became of it. */
struct rig_call {
    struct node_ticket ticket;
    struct fli_buf bytes;
    unsigned answers;
    int status;
    struct machine_result result;
    size_t payload_len;
    unsigned order;         /* of the answer */
    struct rig_node *again; /* from the callback: add `next` here */
    struct rig_call *next;
};

struct rig_node {
    struct rig *rig;
    struct group_server *server;
    struct commands queue;
    struct proposer proposer;
    uint64_t ahead_ms; /* of the group's time */
    bool asleep;       /* the proposer does not turn */
    unsigned opened;   /* so often */
};

struct rig {
    struct group g;
    struct rig_node nodes[RIG_NODES_MAX];
    struct rig_call calls[RIG_CALLS_MAX];
    unsigned calls_n;
    unsigned order;
};

#define RIG_ROOM ((size_t)16 << 20) /* of a queue */

/* Starts n nodes; config gives limits only and may be NULL. */
void rig_start(struct rig *r, unsigned n, const struct proposer_config *config);
void rig_stop(struct rig *r);
void rig_step(struct rig *r);                /* one millisecond, then a turn of every node */
void rig_turn(struct rig *r, unsigned i);    /* a turn of one node */
void rig_run(struct rig *r, unsigned msecs); /* steps for so long */
unsigned rig_leader(struct rig *r);          /* steps until one is open; its number */

struct rig_call *rig_call(struct rig *r, const struct machine_command *c);
struct rig_call *rig_acquire(struct rig *r, const char *name, const char *owner, uint64_t ttl_ms);
struct rig_call *rig_release(struct rig *r, const char *name, uint64_t token);
struct rig_call *rig_check(struct rig *r, const char *name, uint64_t token);
int rig_add(struct rig *r, unsigned i, struct rig_call *c);
/* Whether it has no answer, and nobody has taken it out of the queue. */
bool rig_waits(const struct rig *r, unsigned i, const struct rig_call *c);
void rig_await(struct rig *r, struct rig_call *c); /* steps until it is answered */
uint64_t rig_batches(struct rig *r, unsigned i);

struct fli_slice rig_text(const char *text);

#endif
