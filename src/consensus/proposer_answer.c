/* proposer_answer.c: answers: from within the apply, and of what needs no entry. See
 * proposer.c. */
#include "base/clock.h"
#include "consensus/proposer_private.h"
#include "machine/batch.h"

/* When the lease has changed meanwhile, or is on its way out, the renewal goes behind that, with an
 * entry. */
static void answer_renewal(struct proposer *p, struct command *c,
                           const struct machine_command *renewal)
{
    struct machine_result result;
    if (machine_renew(fsm_machine(p->config.fsm), renewal, p->clock.value_ms, &result)) {
        p->stats.renewals++;
        fsm_report(p->config.fsm, renewal, &result);
        commands_end(p->config.queue, c, 0, &result, (struct fli_slice){NULL, 0});
    } else {
        c->needs_entry = true;
        commands_put_back(p->config.queue, c);
    }
}

static void answer_query(struct proposer *p, struct command *c)
{
    struct machine_command query;
    struct machine_result result;
    (void)machine_command_redecode(c->data, c->len, &query);
    if (MACHINE_IS_RENEWAL(&query)) {
        answer_renewal(p, c, &query);
        return;
    }
    enum fli_turn_part part = fli_turn_enter(p->config.turn, FLI_TURN_QUERIES);
    fli_buf_clear(&p->payload);
    int rv =
        machine_query(fsm_machine(p->config.fsm), &query, p->clock.value_ms, &result, &p->payload);
    p->stats.queries++;
    if (rv != 0) {
        commands_fail(p->config.queue, c, FL_EBUSY);
    } else {
        commands_end(p->config.queue, c, 0, &result,
                     (struct fli_slice){p->payload.data, p->payload.len});
    }
    fli_turn_leave(p->config.turn, part);
}

static void answer_queries(struct proposer *p, uint32_t position)
{
    struct command *c;
    while (p->applying != NULL && (c = batch_take(p->applying, position, true)) != NULL) {
        answer_query(p, c);
    }
}

static void batch_end(void *ctx)
{
    struct proposer *p = ctx;
    struct batch *b = p->applying;
    if (b == NULL) {
        return;
    }
    p->applying = NULL;
    p->marked = p->marked || (b->term == p->term && b->sequence == 1);
    FLI_ASSERT(fli_list_empty(&b->commands));
    proposer_end_in_flight(p, b);
    proposer_free_batch(b);
}

static void answer_reads(struct proposer *p)
{
    FLI_ASSERT(p->applying == NULL && p->reads != NULL);
    p->applying = p->reads;
    answer_queries(p, 0);
    batch_end(p);
}

void proposer_answer_confirmed(struct proposer *p)
{
    const struct batch *b = p->reads;
    if (b != NULL && b == proposer_first_batch(p) &&
        replica_round_confirmed(p->replica) >= b->round) {
        answer_reads(p);
    }
}

/* The batch with this header, if it is one of this node's; and whether the one that only reads
 * stands in front of it. */
static struct batch *find_proposed(const struct proposer *p, const struct machine_batch_header *h,
                                   bool *ret_behind_reads)
{
    *ret_behind_reads = false;
    FLI_LIST_FOREACH(pos, &p->proposed)
    {
        struct batch *b = FLI_CONTAINER_OF(pos, struct batch, link);
        if (b->term == h->term && b->sequence == h->sequence) {
            FLI_ASSERT(b->count + b->expiries == h->count);
            return b;
        }
        *ret_behind_reads = *ret_behind_reads || b == p->reads;
    }
    return NULL;
}

static bool batch_begin(void *ctx, const struct machine_batch_header *h)
{
    struct proposer *p = ctx;
    bool behind_reads;
    FLI_ASSERT(p->applying == NULL);
    struct batch *b = find_proposed(p, h, &behind_reads);
    if (b == NULL) {
        return false;
    }
    if (behind_reads) {
        answer_reads(p);
    }
    if (p->state == STATE_ENDED) {
        return false; /* closed by a callback */
    }
    p->applying = b;
    metrics_observe_ns(&p->commit_times, fli_clock_ns() - b->proposed_ns);
    answer_queries(p, 0);
    return true;
}

static void command_done(void *ctx, uint32_t index, const struct machine_result *result)
{
    struct proposer *p = ctx;
    if (p->applying == NULL) {
        return; /* closed by a callback */
    }
    struct command *c = batch_take(p->applying, index, false);
    if (c != NULL) {
        commands_end(p->config.queue, c, 0, result, (struct fli_slice){NULL, 0});
    }
    answer_queries(p, index + 1);
}

struct fsm_observer proposer_observer(struct proposer *p)
{
    return (struct fsm_observer){p, batch_begin, command_done, batch_end};
}
