/* core.h: the raft library's core as replica.c drives it, with a log of terms in place of entries
 * and a disk that is done when a test says; alone, or behind raft_edge. */
#ifndef TEST_CONSENSUS_CORE_H
#define TEST_CONSENSUS_CORE_H

#include "consensus/configuration.h"
#include "consensus/raft_edge.h"

#define ELECTION_MS 100u
#define HEARTBEAT_MS 20u
#define LOG_MAX 64u
#define SENT_MAX 64u

enum mode { CORE_ALONE, WITH_EDGE };

/* Server 1 of three: the core, what it has asked for, and the edge in front of it. */
struct core {
    enum mode mode;
    struct raft raft;
    struct raft_edge edge;
    uint64_t now_ms;
    int error; /* of raft_step() */
    uint64_t terms[LOG_MAX];
    uint64_t last;
    struct raft_message sent[SENT_MAX];
    unsigned sent_n;
};

struct configuration core_servers(unsigned n); /* voters 1 to n */

/* Server 1 of three voters, a follower of term 1, with entry 1: the configuration. */
void core_begin(struct core *c, enum mode mode);
void core_begin_in(struct core *c, enum mode mode, const struct configuration *conf);
void core_end(struct core *c);

/* Gives one event to the core, and keeps what it asks for. c->error: what it answered. */
void core_step(struct core *c, struct raft_event *event);

/* Messages. 0, the edge's refusal, or the core's error. */
int core_receive(struct core *c, uint64_t from, struct raft_message *m);
/* what: its entries, of its term. 'c' a command, '2' to '9' a change to so many servers. */
int core_append(struct core *c, uint64_t from, uint64_t term, uint64_t prev, const char *what,
                uint64_t commit);
int core_vote(struct core *c, uint64_t from, uint64_t candidate, uint64_t term, bool pre_vote);
int core_vote_result(struct core *c, uint64_t from, uint64_t term, bool granted, bool pre_vote);
int core_result(struct core *c, uint64_t from, uint64_t rejected, uint64_t last);

void core_persist(struct core *c);              /* all entries are on disk */
void core_timeout(struct core *c, uint64_t ms); /* so much later */
void core_lead(struct core *c);                 /* of the next term, with the votes of server 2 */
int core_submit(struct core *c);                /* a command; the core's error */
int core_submit_change(struct core *c, unsigned n); /* to n servers */

/* What it sent in the last event: how many of a type to one server; the only one of them. */
unsigned core_sent(const struct core *c, uint64_t to, enum raft_message_type type);
const struct raft_message *core_message(const struct core *c, uint64_t to,
                                        enum raft_message_type type);

#endif
