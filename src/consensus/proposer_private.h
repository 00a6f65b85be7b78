/* proposer_private.h: struct proposer, and what proposer.c and proposer_answer.c share; nobody else
 * includes it. */
#ifndef CONSENSUS_PROPOSER_PRIVATE_H
#define CONSENSUS_PROPOSER_PRIVATE_H

#include "consensus/batch_build.h"
#include "consensus/clock.h"
#include "consensus/proposer.h"

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
    unsigned in_flight;  /* entries of `proposed` */
    uint64_t in_flight_commands;
    uint32_t in_flight_cost; /* of these, as the machine says */
    uint8_t *entry;          /* the bytes of the batch that is proposed; the log copies them */
    struct fli_buf payload, filled;
    struct proposer_stats stats;
};

/* The oldest batch that was proposed; NULL: none. */
struct batch *proposer_first_batch(const struct proposer *p);
void proposer_end_in_flight(struct proposer *p, struct batch *b);
void proposer_free_batch(struct batch *b);

/* proposer_answer.c */
struct fsm_observer proposer_observer(struct proposer *p);
/* Answers the batch that only reads, if nothing is in front of it and its round is confirmed. */
void proposer_answer_confirmed(struct proposer *p);

#endif
