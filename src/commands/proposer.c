/* proposer.c: see proposer.h.
 *
 * The batches stand in a ring, and each is in one of two places:
 *
 *   proposed   an entry of the log, with commands that wait for it to be applied; in their order
 *   open       behind these: one, which is filled from the queue when another one can be sent
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
#include "commands/proposer.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define QUERY_PAYLOAD_MAX ((size_t)1 << 20) /* far above the limit of machine_query() */
#define EXPIRE_SIZE 20u                     /* bytes of the command */
/* Reserved in each batch, for leases that end. */
#define EXPIRE_BYTES (50 * EXPIRE_SIZE)
/* While the entries in flight cost more than one full batch, no further one is sent: it would not
 * be applied any earlier, and later commands would wait for it. */
#define IN_FLIGHT_COST_MAX MACHINE_BATCH_COST_MAX

static struct machine *machine(const struct proposer *p)
{
    return fsm_machine(p->config.fsm);
}

static bool leads(const struct proposer *p)
{
    return replica_role(p->replica) == REPLICA_LEADER;
}

/* ---- batches ---- */

/* One that only reads may stand among the entries in flight, and one is open. */
static unsigned ring_size(const struct proposer *p)
{
    return p->config.in_flight_max + 2;
}

/* The batch at this place, counted from the oldest that was proposed. */
static struct batch *batch_at(const struct proposer *p, unsigned place)
{
    unsigned at = p->first + place;
    return &p->batches[at < ring_size(p) ? at : at - ring_size(p)];
}

static struct batch *open_batch(const struct proposer *p)
{
    return batch_at(p, p->proposed);
}

static bool is_empty(const struct batch *b)
{
    return b->count + b->reads == 0;
}

static void clear(struct batch *b)
{
    *b = (struct batch){.len = MACHINE_BATCH_HEADER_SIZE};
    fli_list_init(&b->commands);
}

static struct command *first_command(const struct batch *b)
{
    struct fli_list *first = fli_list_first(&b->commands);
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct command, at_batch);
}

_Static_assert(MACHINE_BATCH_COST_MAX + MACHINE_EXPIRIES_MAX < MACHINE_BATCH_COMMANDS_MAX,
               "a batch is full by its cost before it has too many commands: none costs nothing");

/* Whether so many bytes still fit into its entry. */
static bool has_room(const struct proposer *p, const struct batch *b, size_t len)
{
    return len <= p->config.batch_max - b->len - p->expired.len;
}

/* Whether a command still fits. A batch is full by its bytes, or by the cost of applying it. An
 * empty one takes any command. */
static bool fits(const struct proposer *p, const struct batch *b, const struct command *c)
{
    bool costs = !is_empty(b) && b->cost + c->cost > MACHINE_BATCH_COST_MAX;
    bool room = c->reads ? c->len <= p->config.batch_max - b->read_bytes
                         : has_room(p, b, c->len + (is_empty(b) ? 0 : EXPIRE_BYTES));
    return room && !costs;
}

/* What is in the log is answered UNCERTAIN, and the rest is put back. */
static void give_up(struct proposer *p, struct batch *b, bool proposed)
{
    struct command *c;
    while ((c = first_command(b)) != NULL) {
        fli_list_remove(&c->at_batch);
        if (c->reads || !proposed) {
            commands_put_back(p->config.queue, c);
        } else {
            commands_fail(p->config.queue, c, FL_EUNCERTAIN);
        }
    }
    clear(b);
}

/* The entries on their way. */
struct in_flight {
    unsigned entries;
    uint64_t commands, cost; /* as the machine says */
    uint64_t timestamp_ms;   /* of the last one */
    bool reads;              /* a batch of nothing else is among them */
};

static struct in_flight in_flight(const struct proposer *p)
{
    struct in_flight f = {0};
    for (unsigned i = 0; i < p->proposed; i++) {
        const struct batch *b = batch_at(p, i);
        if (b->sequence == 0) {
            f.reads = true;
        } else {
            f.entries++;
            f.commands += b->count;
            f.cost += b->cost;
            f.timestamp_ms = b->timestamp_ms;
        }
    }
    return f;
}

/* ---- leadership ---- */

static void lose(struct proposer *p)
{
    p->state = PROPOSER_CLOSED;
    p->marked = false;
    for (unsigned i = 0; i <= p->proposed; i++) {
        give_up(p, batch_at(p, i), i < p->proposed);
    }
    p->proposed = 0;
    fli_buf_clear(&p->expired);
    commands_end_bound(p->config.queue);
    machine_leases_take_back(machine(p));
}

/* Then what other leaders have committed is applied. */
static bool barrier_applied(const struct proposer *p)
{
    return replica_barrier_term(p->replica) == p->term;
}

static void open_term(struct proposer *p, uint64_t now_ms)
{
    p->state = PROPOSER_OPEN;
    p->sequence = 0;
    p->retry_at_ms = 0;
    cluster_clock_start(&p->clock, machine_clock(machine(p)), now_ms);
}

static void follow_leadership(struct proposer *p, uint64_t now_ms)
{
    uint64_t term = replica_term(p->replica);
    if (proposer_leads(p) && (!leads(p) || term != p->term)) {
        lose(p);
    }
    if (p->state == PROPOSER_CLOSED && leads(p)) {
        p->state = PROPOSER_BARRIER_DUE;
        p->term = term;
        p->retry_at_ms = 0;
    }
    if (p->state == PROPOSER_BARRIER_DUE && now_ms >= p->retry_at_ms) {
        bool sent = replica_barrier(p->replica, now_ms) == 0;
        p->state = sent ? PROPOSER_BARRIER : PROPOSER_BARRIER_DUE;
        p->retry_at_ms = now_ms + PROPOSER_RETRY_MS;
    }
    if (p->state == PROPOSER_BARRIER && barrier_applied(p)) {
        open_term(p, now_ms);
    }
}

/* ---- proposing ---- */

/* While no renewal can be taken, no lease is given up. */
static bool watches_leases(const struct proposer *p)
{
    return p->marked && (p->classes & COMMANDS_OF(COMMAND_URGENT)) != 0 &&
           !machine_mark_waits(machine(p));
}

/* The leases that nobody has renewed end with this batch, as far as there is room. */
static void give_up_leases(struct proposer *p, struct batch *b)
{
    struct machine_command c;
    while (b->expiries < MACHINE_EXPIRIES_MAX && watches_leases(p) && has_room(p, b, EXPIRE_SIZE) &&
           machine_lease_give_up(machine(p), b->timestamp_ms, &c)) {
        if (machine_command_encode(&c, &p->expired) != 0) {
            fli_fatal("out of memory for the end of a lease");
        }
        b->expiries++;
    }
}

/* Writes the entry of the open batch and hands it to the replica. False: nothing more can be sent
 * now; all of this is done again. */
static bool propose(struct proposer *p, uint64_t now_ms)
{
    struct batch *b = open_batch(p);
    uint64_t machine_ms = machine_clock(machine(p));
    uint8_t *at = p->entry + MACHINE_BATCH_HEADER_SIZE;
    p->clock.value_ms = p->clock.value_ms > machine_ms ? p->clock.value_ms : machine_ms;
    b->timestamp_ms = p->clock.value_ms;
    give_up_leases(p, b);
    FLI_LIST_FOREACH(pos, &b->commands)
    {
        const struct command *c = FLI_CONTAINER_OF(pos, struct command, at_batch);
        if (!c->reads) {
            memcpy(at, c->data, c->len);
            at += c->len;
        }
    }
    FLI_ASSERT(at == p->entry + b->len);
    if (b->expiries > 0) {
        memcpy(at, p->expired.data, p->expired.len);
    }
    const struct machine_batch_header h = {
        .format = (uint16_t)(MACHINE_BATCH_FORMAT + machine_version(machine(p)) - 1),
        .flags = p->sequence == 0 ? MACHINE_BATCH_TERM_MARK : 0,
        .timestamp_ms = b->timestamp_ms,
        .term = p->term,
        .sequence = p->sequence + 1,
        .count = b->count + b->expiries,
        .length = (uint32_t)(b->len + p->expired.len),
    };
    size_t size = machine_batch_seal(p->entry, &h);
    if (replica_submit(p->replica, now_ms, p->entry, size) != 0) {
        p->retry_at_ms = now_ms + PROPOSER_RETRY_MS;
        return false;
    }
    p->proposed++;
    fli_buf_clear(&p->expired);
    b->proposed_ns = fli_clock_ns();
    b->began_ns = is_empty(b) ? b->proposed_ns : b->began_ns;
    b->sequence = ++p->sequence;
    p->stats.batches++;
    p->stats.commands += b->count;
    p->stats.bytes += size;
    return true;
}

/* A renewal that changes nothing but the end of a lease is answered like a query. The lease does
 * not end before that. */
static bool needs_no_entry(const struct proposer *p, const struct machine_command *decoded)
{
    return MACHINE_OP_IS_QUERY(decoded->op) ||
           (MACHINE_IS_RENEWAL(decoded) &&
            machine_renew(machine(p), decoded, p->clock.value_ms, NULL));
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
    if (machine_fill_in(machine(p), &decoded, p->clock.value_ms)) {
        fli_buf_clear(&p->filled);
        int rv = machine_command_encode(&decoded, &p->filled);
        if (rv != 0) {
            return rv;
        }
        FLI_ASSERT(p->filled.len == c->len);
        memcpy(c->data, p->filled.data, c->len);
    }
    c->cost = machine_command_cost_now(machine(p), &decoded);
    c->reads = needs_no_entry(p, &decoded);
    return 0;
}

/* Takes as many commands out of the queue as the open batch has room for. When there is none for
 * the next one of a class, there may be for one of another class. False: out of memory. */
static bool fill(struct proposer *p)
{
    struct batch *b = open_batch(p);
    struct command *c;
    unsigned classes = p->classes;
    while ((c = commands_first(p->config.queue, classes)) != NULL) {
        int rv = read_command(p, c);
        if (rv == FL_EINVAL || rv == FL_ELIMIT) {
            commands_fail(p->config.queue, c, rv);
        } else if (rv != 0) {
            return false;
        } else if (!fits(p, b, c)) {
            classes &= ~COMMANDS_OF(c->class);
        } else {
            commands_take(p->config.queue, c);
            b->began_ns = is_empty(b) ? c->came_ns : b->began_ns;
            c->position = b->count;
            *(c->reads ? &b->reads : &b->count) += 1;
            *(c->reads ? &b->read_bytes : &b->len) += c->len;
            b->cost += c->cost;
            fli_list_push(&b->commands, &c->at_batch);
        }
    }
    return true;
}

/* The deadline on the cluster clock at which an empty batch must be sent; UINT64_MAX for none. */
static uint64_t timer_deadline(const struct proposer *p)
{
    uint64_t deadline_ms = machine_next_deadline(machine(p));
    if (deadline_ms == UINT64_MAX) {
        return UINT64_MAX;
    }
    bool works = machine_has_work(machine(p));
    const struct in_flight f = in_flight(p);
    if (f.entries > 0 && (works || f.timestamp_ms >= deadline_ms)) {
        return UINT64_MAX; /* a batch in flight will do it, or some of the work */
    }
    return works ? machine_clock(machine(p)) : deadline_ms;
}

static uint64_t pulse_deadline(const struct proposer *p)
{
    uint64_t timer_ms = timer_deadline(p);
    uint64_t lease_ms =
        watches_leases(p) ? machine_next_lease(machine(p), p->clock.value_ms) : UINT64_MAX;
    return timer_ms < lease_ms ? timer_ms : lease_ms;
}

static bool is_pulse_due(const struct proposer *p)
{
    return pulse_deadline(p) <= p->clock.value_ms;
}

static bool may_propose(const struct proposer *p)
{
    const struct in_flight f = in_flight(p);
    return f.entries < p->config.in_flight_max && f.cost <= IN_FLIGHT_COST_MAX;
}

/* Whether commands, an end of a lease that was refused, or the mark of the term, are to leave. */
static bool has_work(const struct proposer *p)
{
    const struct batch *b = open_batch(p);
    return !is_empty(b) || b->expiries > 0 || p->sequence == 0 ||
           commands_first(p->config.queue, p->classes) != NULL;
}

/* Whether the open batch needs no entry. */
static bool only_reads(const struct proposer *p)
{
    const struct batch *b = open_batch(p);
    return b->count + b->expiries == 0 && b->reads > 0 && p->sequence != 0 && !is_pulse_due(p);
}

/* The batch is answered from the state, without an entry. False: it has to wait for the
 * one before it. */
static bool begin_round(struct proposer *p, uint64_t now_ms)
{
    if (in_flight(p).reads) {
        return false;
    }
    open_batch(p)->round = replica_round(p->replica, now_ms);
    p->proposed++;
    return true;
}

/* Behind entries on their way another one is proposed when as many commands wait as are on their
 * way. Fewer would be written and sent sooner, at the price of a whole entry, and batches that fell
 * apart would stay small: each brings back as few clients as it had. */
static bool is_worth_an_entry(const struct proposer *p)
{
    uint64_t waiting = commands_waiting(p->config.queue) + open_batch(p)->count;
    const struct in_flight f = in_flight(p);
    return f.entries == 0 || waiting >= f.commands;
}

/* ---- answers, from within the apply, and of what needs no entry ---- */

/* Takes the next command off the batch that is applied, if it has this position, and needs an entry
 * or not; else NULL. */
static struct command *take(struct proposer *p, uint32_t position, bool reads)
{
    struct command *c = first_command(p->applying);
    FLI_ASSERT(c == NULL || c->position >= position);
    if (c == NULL || c->position != position || c->reads != reads) {
        return NULL;
    }
    fli_list_remove(&c->at_batch);
    return c;
}

/* When the lease has changed meanwhile, or is on its way out, the renewal is taken up again behind
 * that. */
static void answer_renewal(struct proposer *p, struct command *c,
                           const struct machine_command *renewal)
{
    struct machine_result result;
    if (machine_renew(machine(p), renewal, p->clock.value_ms, &result)) {
        fsm_report(p->config.fsm, renewal, &result);
        commands_end(p->config.queue, c, 0, &result, (struct fli_slice){NULL, 0});
    } else {
        commands_put_back(p->config.queue, c);
    }
}

static void answer_query(struct proposer *p, struct command *c, const struct machine_command *query)
{
    struct machine_result result;
    enum fli_turn_part part = fli_turn_enter(p->config.turn, FLI_TURN_QUERIES);
    fli_buf_clear(&p->payload);
    int rv = machine_query(machine(p), query, p->clock.value_ms, &result, &p->payload);
    p->stats.queries++;
    if (rv != 0) {
        commands_fail(p->config.queue, c, FL_EBUSY);
    } else {
        commands_end(p->config.queue, c, 0, &result,
                     (struct fli_slice){p->payload.data, p->payload.len});
    }
    fli_turn_leave(p->config.turn, part);
}

static void answer_reads(struct proposer *p, uint32_t position)
{
    struct command *c;
    while ((c = take(p, position, true)) != NULL) {
        struct machine_command read;
        (void)machine_command_redecode(c->data, c->len, &read);
        if (MACHINE_IS_RENEWAL(&read)) {
            answer_renewal(p, c, &read);
        } else {
            answer_query(p, c, &read);
        }
    }
}

static void begin_applying(struct proposer *p)
{
    FLI_ASSERT(p->applying == NULL && p->proposed > 0);
    p->applying = batch_at(p, 0);
    answer_reads(p, 0);
}

static void batch_end(void *ctx)
{
    struct proposer *p = ctx;
    struct batch *b = batch_at(p, 0);
    FLI_ASSERT(p->applying == b && fli_list_empty(&b->commands));
    p->applying = NULL;
    p->marked = p->marked || b->sequence == 1;
    clear(b);
    p->first = p->first + 1 == ring_size(p) ? 0 : p->first + 1;
    p->proposed--;
}

/* Whether the oldest batch is one that only reads. */
static bool reads_first(const struct proposer *p)
{
    return p->proposed > 0 && batch_at(p, 0)->sequence == 0;
}

/* Answers the batch that only reads, if nothing is in front of it and its round is confirmed. */
static void answer_confirmed(struct proposer *p)
{
    const struct batch *b = batch_at(p, 0);
    if (reads_first(p) && replica_round_confirmed(p->replica) >= b->round) {
        begin_applying(p);
        batch_end(p);
    }
}

/* Whether a batch with this header is the oldest entry of this node's. */
static bool batch_begin(void *ctx, const struct machine_batch_header *h)
{
    struct proposer *p = ctx;
    unsigned place = reads_first(p) ? 1 : 0;
    const struct batch *b = batch_at(p, place);
    if (place >= p->proposed || h->term != p->term || h->sequence != b->sequence) {
        return false;
    }
    FLI_ASSERT(b->count + b->expiries == h->count);
    if (place == 1) {
        begin_applying(p);
        batch_end(p);
    }
    metrics_observe_ns(&p->commit_times, fli_clock_ns() - b->proposed_ns);
    begin_applying(p);
    return true;
}

static void command_done(void *ctx, uint32_t index, const struct machine_result *result)
{
    struct proposer *p = ctx;
    struct command *c = take(p, index, false);
    if (c != NULL) {
        commands_end(p->config.queue, c, 0, result, (struct fli_slice){NULL, 0});
    }
    if (p->applying->reads > 0) {
        answer_reads(p, index + 1);
    }
}

/* ---- turns ---- */

static uint64_t time_until(uint64_t at_ms, uint64_t now_ms)
{
    return at_ms <= now_ms ? 0 : at_ms - now_ms;
}

/* Until an open term has something to propose, or its clock a tick. */
static uint64_t next_work_ms(const struct proposer *p, uint64_t now_ms)
{
    uint64_t tick_ms = cluster_clock_wait(&p->clock, UINT64_MAX, now_ms);
    if (!may_propose(p) || (!only_reads(p) && !is_worth_an_entry(p))) {
        return tick_ms; /* the loop turns when a batch is applied */
    }
    bool waits = in_flight(p).reads && only_reads(p); /* for a round */
    uint64_t work_ms =
        !waits && has_work(p) ? 0 : cluster_clock_wait(&p->clock, pulse_deadline(p), now_ms);
    uint64_t retry_ms = time_until(p->retry_at_ms, now_ms);
    work_ms = work_ms < retry_ms ? retry_ms : work_ms;
    return work_ms < tick_ms ? work_ms : tick_ms;
}

uint64_t proposer_next_turn_ms(const struct proposer *p, uint64_t now_ms)
{
    if (proposer_leads(p) != leads(p) || (leads(p) && replica_term(p->replica) != p->term)) {
        return 0;
    }
    switch (p->state) {
    case PROPOSER_CLOSED:
        return UINT64_MAX;
    case PROPOSER_BARRIER_DUE:
        return time_until(p->retry_at_ms, now_ms);
    case PROPOSER_BARRIER:
        return barrier_applied(p) ? 0 : UINT64_MAX;
    default:
        return next_work_ms(p, now_ms);
    }
}

void proposer_turn(struct proposer *p, unsigned classes, uint64_t now_ms)
{
    p->classes = classes;
    follow_leadership(p, now_ms);
    if (p->state != PROPOSER_OPEN) {
        return;
    }
    cluster_clock_tick(&p->clock, now_ms);
    answer_confirmed(p);
    bool goes_on = true;
    while (goes_on && now_ms >= p->retry_at_ms && may_propose(p) &&
           (has_work(p) || is_pulse_due(p))) {
        if (!fill(p)) {
            p->retry_at_ms = now_ms + PROPOSER_RETRY_MS;
        } else if (only_reads(p)) {
            goes_on = begin_round(p, now_ms);
        } else {
            goes_on = is_worth_an_entry(p) && propose(p, now_ms);
        }
    }
    answer_confirmed(p); /* the only voter has confirmed it itself */
}

/* ---- functions of proposer.h ---- */

static size_t batch_max(size_t wanted)
{
    const size_t least = MACHINE_BATCH_HEADER_SIZE + MACHINE_COMMAND_MAX + EXPIRE_BYTES;
    wanted = wanted == 0 ? PROPOSER_BATCH_DEFAULT : wanted;
    wanted = wanted > MACHINE_BATCH_MAX ? MACHINE_BATCH_MAX : wanted;
    wanted = wanted < least ? least : wanted;
    return wanted - wanted % 8; /* so the padding has room */
}

int proposer_init(struct proposer *p, const struct proposer_config *config)
{
    *p = (struct proposer){.config = *config};
    struct proposer_config *c = &p->config;
    c->in_flight_max = c->in_flight_max == 0 ? PROPOSER_IN_FLIGHT_DEFAULT : c->in_flight_max;
    c->batch_max = batch_max(c->batch_max);
    metrics_histogram_init(&p->commit_times, METRICS_RANGE_FAST);
    fli_buf_init(&p->expired, c->batch_max);
    fli_buf_init(&p->payload, QUERY_PAYLOAD_MAX);
    fli_buf_init(&p->filled, MACHINE_COMMAND_LARGEST);
    p->entry = malloc(c->batch_max);
    p->batches = calloc(ring_size(p), sizeof *p->batches);
    if (p->entry == NULL || p->batches == NULL) {
        return FL_ENOMEM;
    }
    for (unsigned i = 0; i < ring_size(p); i++) {
        clear(&p->batches[i]);
    }
    c->fsm->observer = (struct fsm_observer){p, batch_begin, command_done, batch_end};
    return 0;
}

void proposer_fini(struct proposer *p)
{
    FLI_ASSERT(p->applying == NULL && p->proposed == 0);
    if (p->batches != NULL) {
        FLI_ASSERT(is_empty(open_batch(p)));
        p->config.fsm->observer = (struct fsm_observer){0};
    }
    fli_buf_fini(&p->expired);
    fli_buf_fini(&p->payload);
    fli_buf_fini(&p->filled);
    free(p->batches);
    free(p->entry);
}

void proposer_close(struct proposer *p)
{
    lose(p);
}

uint64_t proposer_clock_ms(const struct proposer *p)
{
    uint64_t machine_ms = machine_clock(machine(p));
    bool runs = p->state == PROPOSER_OPEN && p->clock.value_ms > machine_ms;
    return runs ? p->clock.value_ms : machine_ms;
}

unsigned proposer_in_flight(const struct proposer *p)
{
    return in_flight(p).entries;
}

uint64_t proposer_applying_since_ns(const struct proposer *p)
{
    return p->applying == NULL ? 0 : p->applying->began_ns;
}
