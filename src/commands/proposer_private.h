/* proposer_private.h: struct proposer; nobody else includes it, but tests. */
#ifndef COMMANDS_PROPOSER_PRIVATE_H
#define COMMANDS_PROPOSER_PRIVATE_H

#include "commands/batch_build.h"
#include "commands/clock.h"
#include "commands/proposer.h"

enum proposer_state { STATE_CLOSED, STATE_BARRIER, STATE_OPEN, STATE_ENDED };

struct proposer {
    struct proposer_config config;
    struct replica *replica;
    enum proposer_state state;
    bool barrier_sent; /* in this term; for STATE_BARRIER */
    bool mark_due;     /* the first batch of the term is still to be proposed */
    bool marked;       /* it was applied: leases have the deadlines of this term */
    uint64_t term;     /* of leadership; STATE_BARRIER and STATE_OPEN */
    uint64_t sequence; /* of the last batch proposed in the term */
    uint64_t retry_at_ms;
    struct cluster_clock clock;
    unsigned classes;   /* of commands that may be proposed */
    struct batch *open; /* is filled, or was not taken by the log; NULL: none */
    struct fli_list proposed;
    struct batch *applying; /* a batch of `proposed`; NULL unless one is being applied */
    struct metrics_histogram commit_times;
    struct batch *reads; /* one of `proposed` that is no entry; NULL: none */
    uint8_t *entry;      /* the bytes of the batch that is proposed; the log copies them */
    struct fli_buf payload, filled;
    struct proposer_stats stats;
};

#endif
