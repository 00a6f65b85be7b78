/* fsm.h: applies committed entries to the machine, and tells an observer.
 *
 * Each applied entry goes to the machine command by command. When the observer recognises the batch
 * as its own (same term and sequence), it is called between the commands, to answer tickets and
 * queries. An entry that cannot be applied (corrupt, unknown version) is fatal: the node halts
 * rather than diverge, and applies no entry after it. The fsm owns the machine. One thread. */
#ifndef CONSENSUS_FSM_H
#define CONSENSUS_FSM_H

#include "machine/machine.h"
#include "metrics/histogram.h"
#include "peer/host.h"

/* Called around every batch that is applied on this node. */
struct fsm_observer {
    void *ctx;
    /* The clock has moved and what was due has expired; no command is applied yet. True: the batch
     * is the observer's own, and the other calls follow. */
    bool (*batch_begin)(void *ctx, const struct machine_batch_header *h);
    /* Called after command `index` of the batch and before the next one. */
    void (*command_done)(void *ctx, uint32_t index, const struct machine_result *result);
    void (*batch_end)(void *ctx);
};

struct fsm_config {
    struct host host; /* fails at most once */
    machine_event_cb event;
    void *event_ctx;
    void (*restored)(void *ctx); /* a snapshot replaced the machine; may be NULL */
    /* A client's command was applied and changed nothing: ACQUIRE of a held lock, RENEW or RELEASE
     * with a token that holds nothing. May be NULL. */
    void (*refused)(void *ctx, const struct machine_command *c, const struct machine_result *r);
    void *ctx;
};

struct fsm {
    struct fsm_config config;
    struct fsm_observer observer;         /* the proposer's; all zeros: there is none */
    struct machine *machine;              /* another one after a snapshot has come */
    uint64_t entries, bytes;              /* batches applied since start, and what they add up to */
    uint64_t restores;                    /* times that a snapshot replaced the machine */
    struct metrics_histogram apply_times; /* of each entry */
    int broken; /* the error of which the host has heard: nothing is applied any more */
};

/* Owns `machine` from now on; NULL: an empty one. 0 or FL_ENOMEM. */
int fsm_create(const struct fsm_config *config, struct machine *machine,
               struct fsm **ret) FLI_MUST_USE;
void fsm_destroy(struct fsm *f); /* NULL is fine */

/* Applies one entry. Returns 0, or the error of which the host has heard, also for each later
 * entry. */
int fsm_apply(struct fsm *f, const void *entry, size_t len) FLI_MUST_USE;

/* Replaces the machine by another one. The caller destroys the old one, which is returned. */
FLI_MUST_USE struct machine *fsm_replace(struct fsm *f, struct machine *fresh);

/* The machine makes no event of a refused request, so `refused` hears of it; also of a renewal that
 * needed no entry. */
void fsm_report(struct fsm *f, const struct machine_command *c, const struct machine_result *r);

static inline struct machine *fsm_machine(const struct fsm *f)
{
    return f->machine;
}

#endif
