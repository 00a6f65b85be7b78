/* group.h: servers of a Raft group on simulated disks, with messages passed in memory.
 *
 * The code that ships (replica, raft_edge, message_codec, fsm, log) without sockets, files and a
 * clock. Time is a number that group_step() moves on by a millisecond; a message takes one, and so
 * does a write to disk. The same calls give the same run. */
#ifndef TEST_CONSENSUS_GROUP_H
#define TEST_CONSENSUS_GROUP_H

#include "base/list.h"
#include "consensus/replica.h"
#include "../log/sim_device.h"

#define GROUP_MAX 5u
#define GROUP_ELECTION_MS 100u
#define GROUP_HEARTBEAT_MS 20u

struct group;

/* A message on its way, as bytes. */
struct group_packet {
    struct fli_list link;
    uint64_t from, to, due_ms;
    uint8_t type;
    bool told; /* for test_traces.c */
    size_t len;
    uint8_t body[];
};

struct group_server {
    struct group *g;
    uint64_t id;
    struct sim_device *sim;
    struct log *log; /* NULL: it is down */
    struct fsm *fsm;
    struct replica *replica;
    bool asleep;      /* its loop does not turn, and it hears nothing */
    bool disk_stuck;  /* no write is finished, and nothing is read */
    bool reads_stuck; /* nothing is read */
    unsigned fatals;
    int fatal_error;
    char fatal_text[512];
    char errmsg[512];
    bool sends_snapshot[GROUP_MAX + 1]; /* what it answers for each peer */
    unsigned wanted[GROUP_MAX + 1];     /* snapshots that were asked for */
    struct snapshot_meta meta;          /* of its snapshot; index 0: none */
    struct fli_buf state;               /* the machine in it */
};

struct group {
    uint64_t now_ms, seed;
    unsigned n;
    unsigned in_flight; /* of struct replica_config */
    size_t cache_bytes; /* of struct log_config */
    bool founds;        /* a new log stays empty, for replica_begin() */
    struct group_server servers[GROUP_MAX];
    struct configuration conf;              /* of a new log */
    bool cut[GROUP_MAX + 1][GROUP_MAX + 1]; /* messages from, to are lost */
    bool held[GROUP_MAX + 1];               /* those to this one wait, in order */
    struct fli_list packets;
    unsigned packets_n;
};

/* The one of a test program, and the tear-down of its tests. */
extern struct group group;
int group_stop(void **state);

/* n voters, of which none is up. */
void group_init(struct group *g, unsigned n);
void group_fini(struct group *g);

/* Recovers its log, or begins one with the configuration. replica_create()'s answer. */
int group_try_up(struct group *g, unsigned i);
void group_up(struct group *g, unsigned i);
void group_up_all(struct group *g);
void group_crash(struct group *g, unsigned i, enum sim_crash how);

void group_step(struct group *g);
void group_run(struct group *g, unsigned ms);
void group_turn(struct group *g, unsigned i);  /* of one server, without time passing */
void group_write(struct group *g, unsigned i); /* what it has to write is on disk */
void group_isolate(struct group *g, unsigned i, bool isolated);

/* Steps until the condition holds, which must be within a minute of its time. */
#define GROUP_UNTIL(g, condition)                                                                  \
    do {                                                                                           \
        uint64_t end_ms_ = (g)->now_ms + 60000;                                                    \
        while (!(condition)) {                                                                     \
            if ((g)->now_ms > end_ms_) {                                                           \
                fail_msg("never came: %s", #condition);                                            \
            }                                                                                      \
            group_step(g);                                                                         \
        }                                                                                          \
    } while (0)

struct replica *group_replica(struct group *g, unsigned i);
int group_leader(const struct group *g); /* of the newest term, among those that are up; -1 */
unsigned group_elect(struct group *g);   /* steps until one leads and all its log is committed */
/* Commits an entry of this leader's term: from then on it may change the configuration. */
void group_begin_term(struct group *g, unsigned i);

/* Puts a message on its way. */
void group_send(struct group *g, uint64_t from, uint64_t to, const struct message_body *body);
struct group_packet *group_packet_to(struct group *g, uint64_t to,
                                     uint8_t type);                 /* first, or NULL */
unsigned group_packets(struct group *g, uint64_t to, uint8_t type); /* how many */
void group_drop(struct group *g); /* all messages that are on their way */
void group_deliver(struct group *g,
                   struct group_packet *p); /* which arrives, unless links are cut */
/* What a packet says; entries: MESSAGE_ENTRIES_MAX of them. */
struct raft_message group_read(const struct group_packet *p, struct raft_entry *entries);

/* One entry of the leader's: a batch with one command TOKEN, or with n. FL_... of
 * replica_submit(). */
int group_submit(struct group *g, unsigned i);
int group_submit_many(struct group *g, unsigned i, unsigned n);
uint64_t group_tokens(struct group *g, unsigned i); /* issued, by its machine */

/* A snapshot of the present state in memory and told to the replica. */
void group_snapshot(struct group *g, unsigned i, uint64_t keep_index);
/* Hands the snapshot of one to another: replica_install()'s answer. */
int group_install(struct group *g, unsigned from, unsigned to);
void group_expect_same(struct group *g); /* all that are up have the same state */

#endif
