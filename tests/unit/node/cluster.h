/* cluster.h: several nodes in one process, on one loop, over loopback, with real disks. */
#ifndef TEST_NODE_CLUSTER_H
#define TEST_NODE_CLUSTER_H

#include <uv.h>

#include "node/node.h"

#define CLUSTER_MAX 5u
#define CLUSTER_DEADLINE_MS 240000u

/* With CLUSTER_ELECTION_MS nodes elect another leader whenever this process has stood still for so
 * long, and what a test asks for may then be UNCERTAIN. Not so with the longest time there is. */
#define CLUSTER_ELECTION_MS 1000u
#define CLUSTER_ELECTION_LONG_MS 60000u

/* A command on its way. */
struct op {
    struct node_ticket ticket;
    unsigned answers; /* must end as 1 */
    int status;
    struct machine_result result;
    uint8_t payload[2048]; /* its beginning */
    size_t payload_len;
    unsigned *outstanding; /* counted down when answered; may be NULL */
};

struct cluster;

struct cluster_node {
    struct cluster *c;
    struct node *node; /* NULL when down */
    char *dir;
    bool stopping;
    int fatal;
    char fatal_text[512];
    uint64_t grants;      /* events */
    uint64_t pushed;      /* events told ahead of the log */
    uint64_t pushed_wait; /* of the last of them */
    uint8_t pushed_type;
    uint64_t log_wait; /* of the last event with a wait that is no QUEUED */
    uint64_t leaderships;
};

struct cluster {
    uv_loop_t loop;
    unsigned n;
    struct members members;
    const char *bind_address;  /* of a node that starts; NULL: as in `members` */
    int reserved[CLUSTER_MAX]; /* sockets that keep the nodes' ports from everybody else */
    struct cluster_node nodes[CLUSTER_MAX];
    unsigned hold_ms;
    unsigned election_ms; /* 0: CLUSTER_ELECTION_MS */
    uint64_t snapshot_bytes;
    size_t pending_max;
    uint64_t log_segment_bytes;
    struct machine_limits limits;
    bool verbose;
};

void cluster_init(struct cluster *c, unsigned n);
void cluster_fini(struct cluster *c); /* stops everything, removes the directories */

/* For tests whose state is a cluster. cluster_up() starts n nodes, and calls the election of their
 * leader. It leads until it hands over or is stopped: the election time is the longest there is, so
 * that a machine that is slow does not depose it. With cluster_up_electing() others follow a leader
 * that is taken away, within seconds. cluster_form() is the rest of cluster_up() after
 * cluster_init(). */
int cluster_set_up(void **state);
int cluster_tear_down(void **state);
struct cluster *cluster_up(void **state, unsigned n);
struct cluster *cluster_up_electing(void **state, unsigned n);
void cluster_form(struct cluster *c);

/* Starts node i (0 based): 0 or node_create's error, with errmsg. */
int cluster_try_start(struct cluster *c, unsigned i, char *errmsg, size_t errmsg_size);
void cluster_start(struct cluster *c, unsigned i);
void cluster_start_all(struct cluster *c);
void cluster_stop(struct cluster *c, unsigned i, unsigned drain_ms); /* waits for it */
void cluster_stop_begin(struct cluster *c, unsigned i, unsigned drain_ms);

/* Runs the loop until condition(ctx), fails the test after CLUSTER_DEADLINE_MS. */
void cluster_until(struct cluster *c, bool (*condition)(void *ctx), void *ctx, const char *what);
void cluster_run_ms(struct cluster *c, unsigned ms); /* as long, for things that must not happen */

/* Node i calls an election now, as soon as its vote requests and their answers have a way. */
void cluster_call_election(struct cluster *c, unsigned i);
int cluster_leader(struct cluster *c); /* index of a node that leads and is up; -1 */
unsigned cluster_wait_leader(struct cluster *c);
void cluster_wait_formed(struct cluster *c);
/* All running nodes have applied the same index, and it is at least the leader's commit index. */
void cluster_wait_caught_up(struct cluster *c);
void cluster_expect_same_hash(struct cluster *c);

/* Commands. */
void op_init(struct op *op);
int op_submit(struct cluster *c, unsigned i, const struct machine_command *cmd, struct op *op);
void op_wait(struct cluster *c, struct op *op);
/* Submit and wait. */
void op_run(struct cluster *c, unsigned i, const struct machine_command *cmd, struct op *op);
/* The same, again while an election refuses it or leaves its outcome unknown. */
void op_run_at_last(struct cluster *c, unsigned i, const struct machine_command *cmd,
                    struct op *op);
/* Acquires through node i, and returns the token. Asks again, as any client may, when an election
 * has left it uncertain. */
uint64_t cluster_acquire(struct cluster *c, unsigned i, const char *name, const char *owner);
/* What CHECK says through node i. */
void cluster_check(struct cluster *c, unsigned i, const char *name, uint64_t token,
                   enum machine_code code);
unsigned cluster_other_than(const struct cluster *c, unsigned i);

/* For callbacks with a status. */
struct cluster_count {
    unsigned calls;
    int status;
};
void cluster_count_cb(void *ctx, int status);
bool cluster_counted(void *ctx);

struct machine_command cmd_acquire(const char *name, const char *owner, uint64_t ttl_ms,
                                   uint64_t wait_ms);
struct machine_command cmd_release(const char *name, uint64_t token);
struct machine_command cmd_check(const char *name, uint64_t token);
struct machine_command cmd_show(const char *name);
struct machine_command cmd_token(const char *name);

/* For cluster_until(), of three nodes: the leader lacks one of the two others. */
bool cluster_misses_one(void *ctx);

#endif
