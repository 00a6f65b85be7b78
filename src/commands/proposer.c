/* proposer.c: see proposer.h.
 *
 * A batch is in one of two places:
 *
 *   open       is filled from the queue when another batch can be sent; one at most
 *   proposed   an entry of the log, with commands that wait for it to be applied
 *
 * A batch that has nothing but reads is no entry: it stands among the proposed, waits for a round
 * (replica_round()), and is answered once that is confirmed and it is the first. Whatever had been
 * committed before is applied then: it was proposed in this term, and stood in front, or it was in
 * front of the barrier. When an entry behind it is applied first, that has confirmed as much. One
 * such batch waits at most; meanwhile the next one is open.
 *
 * If the replica refuses a batch, it was surely not appended: the batch stays and is tried again.
 * When leadership is lost, a batch in flight may still be applied, by any leader. Its commands are
 * uncertain, and from then on this node treats it as another node's batch. */
#include "commands/proposer_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "machine/batch.h"

#define QUERY_PAYLOAD_MAX ((size_t)1 << 20) /* far above the limit of machine_query() */
#define EXPIRE_SIZE 20u                     /* bytes of the command */

static bool leads(const struct proposer *p)
{
    return replica_role(p->replica) == REPLICA_LEADER;
}

/* The oldest batch that was proposed; NULL: none. */
static struct batch *first_batch(const struct proposer *p)
{
    struct fli_list *first = fli_list_first(&p->proposed);
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct batch, link);
}

static struct batch *batch_create(struct proposer *p)
{
    struct batch *b = malloc(sizeof *b);
    if (b != NULL) {
        batch_init(b, p->config.batch_max);
        b->began_ns = fli_clock_ns();
    }
    return b;
}

static void detach(struct proposer *p, struct batch *b)
{
    p->open = b == p->open ? NULL : p->open;
    p->reads = b == p->reads ? NULL : p->reads;
    fli_list_remove(&b->link);
}

static void free_batch(struct batch *b)
{
    batch_fini(b);
    free(b);
}

/* What is in the log is answered UNCERTAIN, and the rest is put back. */
static void give_up(struct proposer *p, struct batch *b)
{
    struct command *c;
    bool proposed = b != p->open;
    detach(p, b);
    while ((c = batch_pop(b)) != NULL) {
        if (c->reads || !proposed) {
            commands_put_back(p->config.queue, c);
        } else {
            commands_fail(p->config.queue, c, FL_EUNCERTAIN);
        }
    }
    free_batch(b);
}

static void give_up_all(struct proposer *p)
{
    struct batch *b;
    while ((b = p->open != NULL ? p->open : first_batch(p)) != NULL) {
        give_up(p, b);
    }
}

/* Leadership. */

static void lose(struct proposer *p)
{
    p->state = STATE_CLOSED;
    p->barrier_sent = false;
    p->mark_due = false;
    p->marked = false;
    give_up_all(p);
    commands_end_bound(p->config.queue);
    machine_leases_take_back(fsm_machine(p->config.fsm));
}

/* Then what other leaders have committed is applied. */
static bool barrier_applied(const struct proposer *p)
{
    return replica_barrier_term(p->replica) == p->term;
}

static void open_term(struct proposer *p, uint64_t now_ms)
{
    FLI_ASSERT(p->open == NULL);
    p->state = STATE_OPEN;
    p->sequence = 0;
    p->mark_due = true;
    p->retry_at_ms = 0;
    cluster_clock_start(&p->clock, machine_clock(fsm_machine(p->config.fsm)), now_ms);
}

static void follow_leadership(struct proposer *p, uint64_t now_ms)
{
    uint64_t term = replica_term(p->replica);
    if (p->state != STATE_CLOSED && (!leads(p) || term != p->term)) {
        lose(p);
    }
    if (p->state == STATE_CLOSED && leads(p)) {
        p->state = STATE_BARRIER;
        p->term = term;
        p->retry_at_ms = 0;
    }
    if (p->state == STATE_BARRIER && !p->barrier_sent && now_ms >= p->retry_at_ms) {
        p->barrier_sent = replica_barrier(p->replica, now_ms) == 0;
        p->retry_at_ms = p->barrier_sent ? 0 : now_ms + PROPOSER_RETRY_MS;
    }
    if (p->state == STATE_BARRIER && barrier_applied(p)) {
        open_term(p, now_ms);
    }
}

/* Proposing. */

/* The entries on their way. */
struct in_flight {
    uint64_t entries, commands, cost; /* as the machine says */
};

static struct in_flight in_flight(const struct proposer *p)
{
    struct in_flight f = {0};
    FLI_LIST_FOREACH(pos, &p->proposed)
    {
        const struct batch *b = FLI_CONTAINER_OF(pos, struct batch, link);
        if (b != p->reads) {
            f.entries++;
            f.commands += b->count;
            f.cost += b->cost;
        }
    }
    return f;
}

/* The open batch leaves, and takes its place behind the others. */
static void note_proposed(struct proposer *p)
{
    struct batch *b = p->open;
    p->open = NULL;
    fli_list_push(&p->proposed, &b->link);
}

/* While no renewal can be taken, no lease is given up. */
static bool watches_leases(const struct proposer *p)
{
    return p->marked && (p->classes & COMMANDS_OF(COMMAND_URGENT)) != 0 &&
           !machine_mark_waits(fsm_machine(p->config.fsm));
}

/* The leases that nobody has renewed end with this batch, as far as there is room. */
static void give_up_leases(struct proposer *p, struct batch *b, uint64_t timestamp_ms)
{
    struct machine_command c;
    while (b->expiries < MACHINE_EXPIRIES_MAX && watches_leases(p) &&
           batch_has_room(b, EXPIRE_SIZE, false) &&
           machine_lease_give_up(fsm_machine(p->config.fsm), timestamp_ms, &c)) {
        if (batch_expire(b, &c) != 0) {
            fli_fatal("out of memory for the end of a lease");
        }
    }
}

/* Seals the open batch and hands it to the replica. False: nothing more can be sent now. */
static bool propose(struct proposer *p, uint64_t now_ms)
{
    struct batch *b = p->open;
    const struct machine *m = fsm_machine(p->config.fsm);
    const struct machine_batch_header h = {
        .format = (uint16_t)(MACHINE_BATCH_FORMAT + machine_version(m) - 1),
        .flags = p->mark_due ? MACHINE_BATCH_TERM_MARK : 0,
        .timestamp_ms = cluster_clock_timestamp(&p->clock, machine_clock(m)),
        .term = p->term,
        .sequence = p->sequence + 1,
    };
    give_up_leases(p, b, h.timestamp_ms);
    size_t size = batch_seal(b, &h, p->entry);
    if (replica_submit(p->replica, now_ms, p->entry, size) != 0) {
        p->retry_at_ms = now_ms + PROPOSER_RETRY_MS;
        return false;
    }
    note_proposed(p);
    b->proposed_ns = fli_clock_ns();
    b->sequence = ++p->sequence;
    p->stats.batches++;
    p->stats.commands += b->count;
    p->stats.bytes += size;
    p->mark_due = false;
    p->retry_at_ms = 0;
    cluster_clock_proposed(&p->clock, h.timestamp_ms);
    return true;
}

/* Reserved in each batch, for leases that end. */
#define EXPIRE_BYTES (50 * EXPIRE_SIZE)
/* While the entries in flight cost more than one full batch, no further one is sent: it would not
 * be applied any earlier, and later commands would wait for it. */
#define IN_FLIGHT_COST_MAX MACHINE_BATCH_COST_MAX

/* Whether a command still fits. A batch is full by its bytes, or by the cost of applying it. An
 * empty one takes any command. */
static bool fits(const struct batch *b, const struct command *c)
{
    bool empty = b->count + b->reads == 0;
    size_t kept = c->reads || empty ? 0 : EXPIRE_BYTES;
    return batch_has_room(b, c->len + kept, c->reads) &&
           (empty || b->cost + c->cost <= MACHINE_BATCH_COST_MAX);
}

/* A renewal that changes nothing but the end of a lease is answered like a query. The lease does
 * not end before that. */
static bool needs_no_entry(const struct proposer *p, const struct command *c,
                           const struct machine_command *decoded)
{
    return MACHINE_OP_IS_QUERY(decoded->op) ||
           (MACHINE_IS_RENEWAL(decoded) && !c->needs_entry &&
            machine_renew(fsm_machine(p->config.fsm), decoded, p->clock.value_ms, NULL));
}

/* Reads one whole command, and fills in what only the leader knows. One malformed command would
 * stop every replica, and it may have come from another node. */
static int read_command(struct proposer *p, struct command *c)
{
    struct machine_command decoded;
    size_t size;
    if (machine_command_decode(c->data, c->len, &decoded, &size) != 0 || size != c->len) {
        return FL_EINVAL;
    }
    if (c->len > p->config.batch_max - MACHINE_BATCH_HEADER_SIZE) {
        return FL_ELIMIT; /* only with small segments, or the one command that may be large */
    }
    if (machine_fill_in(fsm_machine(p->config.fsm), &decoded, p->clock.value_ms)) {
        fli_buf_clear(&p->filled);
        int rv = machine_command_encode(&decoded, &p->filled);
        if (rv != 0) {
            return rv;
        }
        FLI_ASSERT(p->filled.len == c->len);
        memcpy(c->data, p->filled.data, c->len);
    }
    c->cost = machine_command_cost_now(fsm_machine(p->config.fsm), &decoded);
    c->reads = needs_no_entry(p, c, &decoded);
    return 0;
}

/* Takes as many commands out of the queue as the open batch has room for. When there is none for
 * the next one of a class, there may be for one of another class. False: out of memory. */
static bool fill(struct proposer *p)
{
    struct command *c;
    unsigned classes = p->classes;
    p->open = p->open != NULL ? p->open : batch_create(p);
    while (p->open != NULL && (c = commands_first(p->config.queue, classes)) != NULL) {
        int rv = read_command(p, c);
        if (rv == FL_EINVAL || rv == FL_ELIMIT) {
            commands_fail(p->config.queue, c, rv);
        } else if (rv == 0 && !fits(p->open, c)) {
            classes &= ~COMMANDS_OF(c->class);
        } else if (rv == 0) {
            commands_take(p->config.queue, c);
            batch_add(p->open, c);
        } else {
            return false;
        }
    }
    return p->open != NULL;
}

/* The deadline on the cluster clock at which an empty batch must be sent; UINT64_MAX for none. */
static uint64_t timer_deadline(const struct proposer *p)
{
    const struct machine *m = fsm_machine(p->config.fsm);
    uint64_t deadline_ms = machine_next_deadline(m);
    if (deadline_ms == UINT64_MAX) {
        return UINT64_MAX;
    }
    bool works = machine_has_work(m);
    if (in_flight(p).entries > 0 && (works || p->clock.proposed_ms >= deadline_ms)) {
        return UINT64_MAX; /* a batch in flight will do it, or some of the work */
    }
    return works ? machine_clock(m) : deadline_ms;
}

static uint64_t pulse_deadline(const struct proposer *p)
{
    uint64_t timer_ms = timer_deadline(p);
    uint64_t lease_ms = watches_leases(p)
                            ? machine_next_lease(fsm_machine(p->config.fsm), p->clock.value_ms)
                            : UINT64_MAX;
    return timer_ms < lease_ms ? timer_ms : lease_ms;
}

static bool may_propose(const struct proposer *p)
{
    const struct in_flight f = in_flight(p);
    return f.entries < p->config.in_flight_max && f.cost <= IN_FLIGHT_COST_MAX;
}

static bool is_pulse_due(const struct proposer *p)
{
    return pulse_deadline(p) <= p->clock.value_ms;
}

static bool has_waiting(const struct proposer *p)
{
    return commands_first(p->config.queue, p->classes) != NULL;
}

/* Whether the open batch needs no entry. */
static bool only_reads(const struct proposer *p)
{
    const struct batch *b = p->open;
    return b != NULL && b->count + b->expiries == 0 && b->reads > 0 && !p->mark_due &&
           !is_pulse_due(p);
}

/* The batch is answered from the state, without an entry. False: it has to wait for the
 * one before it. */
static bool begin_round(struct proposer *p, uint64_t now_ms)
{
    if (p->reads != NULL) {
        return false;
    }
    p->reads = p->open;
    p->reads->round = replica_round(p->replica, now_ms);
    note_proposed(p);
    return true;
}

/* Behind entries on their way another one is proposed when as many commands wait as are on their
 * way. Fewer would be written and sent sooner, at the price of a whole entry, and batches that fell
 * apart would stay small: each brings back as few clients as it had. */
static bool is_worth_an_entry(const struct proposer *p)
{
    uint64_t waiting = commands_waiting(p->config.queue) + (p->open != NULL ? p->open->count : 0);
    const struct in_flight f = in_flight(p);
    return f.entries == 0 || waiting >= f.commands;
}

static void propose_all(struct proposer *p, uint64_t now_ms)
{
    if (now_ms < p->retry_at_ms) {
        return;
    }
    while (may_propose(p)) {
        if (p->open == NULL && !has_waiting(p) && !is_pulse_due(p) && !p->mark_due) {
            return;
        }
        if (!fill(p)) {
            p->retry_at_ms = now_ms + PROPOSER_RETRY_MS;
            return;
        }
        bool reads = only_reads(p);
        if (!reads && !is_worth_an_entry(p)) {
            return;
        }
        if (!(reads ? begin_round(p, now_ms) : propose(p, now_ms))) {
            return;
        }
    }
}

/* Answers, from within the apply, and of what needs no entry. */

/* When the lease has changed meanwhile, or is on its way out, the renewal goes behind that, with an
 * entry. */
static void answer_renewal(struct proposer *p, struct command *c,
                           const struct machine_command *renewal)
{
    struct machine_result result;
    if (machine_renew(fsm_machine(p->config.fsm), renewal, p->clock.value_ms, &result)) {
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
    p->marked = p->marked || b->sequence == 1;
    detach(p, b);
    free_batch(b);
}

static void answer_reads(struct proposer *p)
{
    FLI_ASSERT(p->applying == NULL && p->reads != NULL);
    p->applying = p->reads;
    answer_queries(p, 0);
    batch_end(p);
}

/* Answers the batch that only reads, if nothing is in front of it and its round is confirmed. */
static void answer_confirmed(struct proposer *p)
{
    const struct batch *b = p->reads;
    if (b != NULL && b == first_batch(p) && replica_round_confirmed(p->replica) >= b->round) {
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
        if (h->term == p->term && b->sequence == h->sequence) {
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

/* Turns. */

static uint64_t time_until(uint64_t at_ms, uint64_t now_ms)
{
    return at_ms <= now_ms ? 0 : at_ms - now_ms;
}

uint64_t proposer_next_turn_ms(const struct proposer *p, uint64_t now_ms)
{
    if (p->state == STATE_ENDED) {
        return UINT64_MAX;
    }
    bool noticed = p->state != STATE_CLOSED;
    if (noticed != leads(p) || (noticed && replica_term(p->replica) != p->term)) {
        return 0;
    }
    if (p->state == STATE_CLOSED) {
        return UINT64_MAX;
    }
    if (p->state == STATE_BARRIER) {
        if (barrier_applied(p)) {
            return 0;
        }
        return p->barrier_sent ? UINT64_MAX : time_until(p->retry_at_ms, now_ms);
    }
    uint64_t tick_ms = cluster_clock_wait(&p->clock, UINT64_MAX, now_ms);
    if (!may_propose(p) || (!only_reads(p) && !is_worth_an_entry(p))) {
        return tick_ms; /* the loop turns when a batch is applied */
    }
    uint64_t work_ms = cluster_clock_wait(&p->clock, pulse_deadline(p), now_ms);
    bool waits = p->reads != NULL && only_reads(p); /* for a round */
    if (!waits && (p->open != NULL || has_waiting(p) || p->mark_due)) {
        work_ms = 0;
    }
    uint64_t retry_ms = time_until(p->retry_at_ms, now_ms);
    if (work_ms < retry_ms) {
        work_ms = retry_ms;
    }
    return work_ms < tick_ms ? work_ms : tick_ms;
}

/* Functions of proposer.h. */

void proposer_turn(struct proposer *p, unsigned classes, uint64_t now_ms)
{
    if (p->state == STATE_ENDED) {
        return;
    }
    p->classes = classes;
    follow_leadership(p, now_ms);
    if (p->state == STATE_OPEN) {
        cluster_clock_tick(&p->clock, now_ms);
        answer_confirmed(p);
    }
    if (p->state == STATE_OPEN) {
        propose_all(p, now_ms);
        answer_confirmed(p); /* the only voter has confirmed it itself */
    }
}

int proposer_create(const struct proposer_config *config, struct proposer **ret)
{
    FLI_ASSERT(config->fsm != NULL);
    FLI_ASSERT(config->queue != NULL);
    struct proposer *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return FL_ENOMEM;
    }
    p->config = *config;
    metrics_histogram_init(&p->commit_times, METRICS_RANGE_FAST);
    struct proposer_config *c = &p->config;
    c->in_flight_max = c->in_flight_max == 0 ? PROPOSER_IN_FLIGHT_DEFAULT : c->in_flight_max;
    c->batch_max = c->batch_max == 0 ? PROPOSER_BATCH_DEFAULT : c->batch_max;
    if (c->batch_max > MACHINE_BATCH_MAX) {
        c->batch_max = MACHINE_BATCH_MAX;
    }
    if (c->batch_max < MACHINE_BATCH_HEADER_SIZE + MACHINE_COMMAND_MAX + EXPIRE_BYTES) {
        c->batch_max = MACHINE_BATCH_HEADER_SIZE + MACHINE_COMMAND_MAX + EXPIRE_BYTES;
    }
    c->batch_max -= c->batch_max % 8;
    p->entry = malloc(c->batch_max);
    if (p->entry == NULL) {
        free(p);
        return FL_ENOMEM;
    }
    fli_list_init(&p->proposed);
    fli_buf_init(&p->payload, QUERY_PAYLOAD_MAX);
    fli_buf_init(&p->filled, MACHINE_COMMAND_LARGEST);
    const struct fsm_observer observer = {p, batch_begin, command_done, batch_end};
    fsm_set_observer(c->fsm, &observer);
    *ret = p;
    return 0;
}

void proposer_set_replica(struct proposer *p, struct replica *r)
{
    p->replica = r;
}

void proposer_destroy(struct proposer *p)
{
    if (p == NULL) {
        return;
    }
    FLI_ASSERT(p->applying == NULL);
    FLI_ASSERT(p->open == NULL);
    FLI_ASSERT(fli_list_empty(&p->proposed));
    fsm_set_observer(p->config.fsm, NULL);
    fli_buf_fini(&p->payload);
    fli_buf_fini(&p->filled);
    free(p->entry);
    free(p);
}

uint64_t proposer_clock_ms(const struct proposer *p)
{
    uint64_t machine_ms = machine_clock(fsm_machine(p->config.fsm));
    bool leads = p->state == STATE_OPEN && p->clock.value_ms > machine_ms;
    return leads ? p->clock.value_ms : machine_ms;
}

bool proposer_is_open(const struct proposer *p)
{
    return p->state == STATE_OPEN;
}

bool proposer_leads(const struct proposer *p)
{
    return p->state == STATE_OPEN || p->state == STATE_BARRIER;
}

void proposer_close(struct proposer *p)
{
    p->state = STATE_ENDED;
    p->applying = NULL;
    give_up_all(p);
}

void proposer_get_stats(const struct proposer *p, struct proposer_stats *ret)
{
    *ret = p->stats;
    ret->in_flight = in_flight(p).entries;
}

const struct metrics_histogram *proposer_commit_times(const struct proposer *p)
{
    return &p->commit_times;
}

uint64_t proposer_applying_since_ns(const struct proposer *p)
{
    return p->applying == NULL ? 0 : p->applying->began_ns;
}
