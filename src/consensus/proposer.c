/* proposer.c: see proposer.h.
 *
 * A batch is in one of two places:
 *
 *   open       grows or is full; one at most
 *   proposed   an entry of the log, with tickets that wait for it to be applied
 *
 * A batch that has nothing but queries is no entry: it stands among the proposed, waits for a round
 * (replica_round()), and is answered once that is confirmed and it is the first. Whatever had been
 * committed before is applied then: it was proposed in this term, and stood in front, or it was in
 * front of the barrier. When an entry behind it is applied first, that has confirmed as much. One
 * such batch waits at most; meanwhile the next one grows.
 *
 * Commands that do not fit into the open batch wait in `line`. When another batch can be sent, it
 * is filled from there. Sources take turns (backlog.h), so a client with a thousand commands delays
 * another client's one command by a batch at most.
 *
 * If the replica refuses a batch, it was surely not appended: the batch stays and is tried again.
 * When leadership is lost, a batch in flight may still be applied, by any leader. Its commands are
 * uncertain, and from then on this node treats it as another node's batch. The open batch goes back
 * at once, and the line in the turns that follow, HELD_MOVED_MAX in each; before it has gone, no
 * other term begins. */
#include "consensus/proposer_private.h"

#include <stdlib.h>

#include "base/clock.h"
#include "machine/batch.h"

#define QUERY_PAYLOAD_MAX ((size_t)1 << 20) /* far above the limit of machine_query() */
#define EXPIRE_SIZE 20u                     /* bytes of the command */

static void log_message(struct proposer *p, int level, const char *message)
{
    if (p->config.log != NULL) {
        p->config.log(p->config.ctx, level, message);
    }
}

static bool leads(const struct proposer *p)
{
    return replica_role(p->replica) == REPLICA_LEADER;
}

struct batch *proposer_first_batch(const struct proposer *p)
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

void proposer_free_batch(struct batch *b)
{
    FLI_ASSERT(!fli_list_linked(&b->link));
    batch_fini(b);
    free(b);
}

/* Returning batches and giving them up. */

static void return_command(struct proposer *p, struct node_ticket *t, struct fli_slice command)
{
    p->stats.returned++;
    p->config.returned(p->config.ctx, t, command.data, command.len);
}

static void return_queries(struct proposer *p, struct batch *b, uint32_t position)
{
    struct fli_slice command;
    struct node_ticket *t;
    while ((t = batch_take_query(b, position, &command)) != NULL) {
        return_command(p, t, command);
    }
}

/* The log never got this batch: its commands are returned, in the order in which they came. */
static void return_batch(struct proposer *p, struct batch *b)
{
    size_t at = MACHINE_BATCH_HEADER_SIZE;
    for (uint32_t i = 0; i < b->count; i++) {
        return_queries(p, b, i);
        struct fli_slice command = {b->data + at, fli_get_u16(b->data + at + 2)};
        at += command.len;
        FLI_ASSERT(at <= b->len);
        struct node_ticket *t = batch_take_ticket(b, i);
        if (t != NULL) {
            return_command(p, t, command);
        }
    }
    return_queries(p, b, b->count);
}

/* The batch is in the log: its commands are answered UNCERTAIN, its queries are returned. */
static void give_up_batch(struct proposer *p, struct batch *b)
{
    const struct fli_slice nothing = {NULL, 0};
    for (uint32_t i = 0; i < b->count; i++) {
        return_queries(p, b, i);
        struct node_ticket *t = batch_take_ticket(b, i);
        if (t != NULL) {
            p->stats.uncertain++;
            t->cb(t, FL_EUNCERTAIN, NULL, nothing);
        }
    }
    return_queries(p, b, b->count);
}

void proposer_end_in_flight(struct proposer *p, struct batch *b)
{
    fli_list_remove(&b->link);
    if (b == p->reads) {
        p->reads = NULL;
        return;
    }
    FLI_ASSERT(p->in_flight > 0);
    p->in_flight--;
    p->in_flight_commands -= b->count;
    p->in_flight_cost -= b->cost;
}

static void give_up_in_flight(struct proposer *p)
{
    struct batch *b;
    while ((b = proposer_first_batch(p)) != NULL) {
        proposer_end_in_flight(p, b);
        give_up_batch(p, b);
        proposer_free_batch(b);
    }
}

/* The batch that was being filled goes back whole: it is no longer than an entry of the log. */
static void return_open(struct proposer *p)
{
    struct batch *b = p->open;
    p->open = NULL;
    p->stats.pending_bytes = p->line.bytes;
    p->stats.pending_commands = p->line.count;
    if (b != NULL) {
        return_batch(p, b);
        proposer_free_batch(b);
    }
}

/* The line goes back in turns of the loop: it may have a hundred thousand commands. */
static void return_line(struct proposer *p, uint64_t most)
{
    struct held *h;
    while (most-- > 0 && (h = held_first(&p->line)) != NULL) {
        held_take(&p->line, h);
        p->stats.pending_bytes -= h->len;
        p->stats.pending_commands--;
        if (h->t != NULL) {
            return_command(p, h->t, (struct fli_slice){h->data, h->len});
        }
        held_destroy(&p->line, h);
    }
}

/* Leadership. */

static void lose(struct proposer *p)
{
    log_message(p, 3, "leadership lost: commands that were not proposed go back");
    p->state = STATE_CLOSED;
    p->barrier_sent = false;
    p->barrier_done = false;
    p->mark_due = false;
    p->marked = false;
    give_up_in_flight(p);
    return_open(p);
    machine_leases_take_back(fsm_machine(p->config.fsm));
}

void proposer_barrier_applied(struct proposer *p, uint64_t term)
{
    /* This comes in the midst of an apply, so it is only noted; the next turn continues. */
    p->barrier_done = p->barrier_done || (p->state == STATE_BARRIER && term == p->term);
}

static void send_barrier(struct proposer *p, uint64_t now_ms)
{
    p->barrier_sent = replica_barrier(p->replica, now_ms) == 0;
    if (!p->barrier_sent) {
        p->retry_at_ms = now_ms + PROPOSER_RETRY_MS;
    }
}

static void open_term(struct proposer *p, uint64_t now_ms)
{
    FLI_ASSERT(p->open == NULL && held_first(&p->line) == NULL);
    p->state = STATE_OPEN;
    p->sequence = 0;
    p->mark_due = true;
    p->retry_at_ms = 0;
    cluster_clock_start(&p->clock, machine_clock(fsm_machine(p->config.fsm)), now_ms);
    if (p->config.opened != NULL) {
        p->config.opened(p->config.ctx, p->term);
    }
}

static void follow_leadership(struct proposer *p, uint64_t now_ms)
{
    uint64_t term = replica_term(p->replica);
    if (p->state != STATE_CLOSED && (!leads(p) || term != p->term)) {
        lose(p);
    }
    if (p->state == STATE_CLOSED) {
        return_line(p, HELD_MOVED_MAX);
    }
    if (p->state == STATE_CLOSED && leads(p) && held_first(&p->line) == NULL) {
        p->state = STATE_BARRIER;
        p->term = term;
        p->retry_at_ms = 0;
    }
    if (p->state == STATE_BARRIER && !p->barrier_sent && now_ms >= p->retry_at_ms) {
        send_barrier(p, now_ms);
    }
    if (p->state == STATE_BARRIER && p->barrier_done) {
        open_term(p, now_ms);
    }
}

/* Proposing. */

/* The open batch leaves, and takes its place behind the others. */
static void note_proposed(struct proposer *p)
{
    struct batch *b = p->open;
    uint64_t expiries = (uint64_t)b->expiries * EXPIRE_SIZE;
    uint64_t pending = b->len - MACHINE_BATCH_HEADER_SIZE - expiries + b->query_bytes.len;
    uint64_t commands = (uint64_t)b->count - b->expiries + b->queries_count;
    FLI_ASSERT(p->stats.pending_bytes >= pending);
    FLI_ASSERT(p->stats.pending_commands >= commands);
    p->stats.pending_bytes -= pending;
    p->stats.pending_commands -= commands;
    p->open = NULL;
    fli_list_push(&p->proposed, &b->link);
}

static bool watches_leases(const struct proposer *p)
{
    return p->marked && !machine_mark_waits(fsm_machine(p->config.fsm));
}

/* The leases that nobody has renewed end with this batch, as far as there is room. */
static void give_up_leases(struct proposer *p, struct batch *b)
{
    struct machine_command c;
    for (unsigned n = 0;
         n < MACHINE_EXPIRIES_MAX && watches_leases(p) && batch_has_room(b, EXPIRE_SIZE, false) &&
         machine_lease_give_up(fsm_machine(p->config.fsm), b->timestamp_ms, &c);
         n++) {
        struct fli_buf out;
        fli_buf_init(&out, EXPIRE_SIZE);
        int rv = machine_command_encode(&c, &out);
        rv = rv != 0 ? rv : batch_add(b, NULL, out.data, out.len, false);
        fli_buf_fini(&out);
        if (rv != 0) {
            fli_fatal("out of memory for the end of a lease");
        }
        b->expiries++;
    }
}

/* Seals the open batch and hands it to the replica. False: nothing more can be sent now. */
static bool propose(struct proposer *p, uint64_t now_ms)
{
    struct batch *b = p->open;
    size_t size;
    b->term = p->term;
    b->sequence = p->sequence + 1;
    b->timestamp_ms = cluster_clock_timestamp(&p->clock, machine_clock(fsm_machine(p->config.fsm)));
    b->format = (uint16_t)(MACHINE_BATCH_FORMAT + machine_version(fsm_machine(p->config.fsm)) - 1);
    give_up_leases(p, b);
    if (batch_seal(b, p->mark_due ? MACHINE_BATCH_TERM_MARK : 0, &size) != 0) {
        p->retry_at_ms = now_ms + PROPOSER_RETRY_MS;
        return false;
    }
    if (replica_submit(p->replica, now_ms, b->data, size) != 0) {
        p->retry_at_ms = now_ms + PROPOSER_RETRY_MS;
        return false;
    }
    note_proposed(p);
    b->proposed_ns = fli_clock_ns();
    p->stats.batches++;
    p->stats.commands += b->count - b->expiries;
    p->stats.bytes += size;
    batch_drop_bytes(b);
    p->in_flight++;
    p->in_flight_commands += b->count;
    p->in_flight_cost += b->cost;
    p->sequence++;
    p->mark_due = false;
    p->retry_at_ms = 0;
    cluster_clock_proposed(&p->clock, b->timestamp_ms);
    return true;
}

/* A part of each batch is reserved for urgent commands, which renew or release: they enter
 * the open batch although others have filled it. And while the entries in flight cost more than one
 * full batch, no further one is sent: it would not be applied any earlier, and later commands would
 * wait for it. */
#define URGENT_COST (MACHINE_BATCH_COST_MAX / 10)
#define URGENT_BYTES 512u
#define EXPIRE_BYTES (50 * EXPIRE_SIZE) /* likewise reserved, for leases that end */
#define IN_FLIGHT_COST_MAX MACHINE_BATCH_COST_MAX

/* A command on its way into a batch. */
struct item {
    struct node_ticket *t;
    const uint8_t *data;
    size_t len;
    uint32_t cost;
    bool reads; /* needs no entry: a query, or a renewal (machine_renew()) */
    bool urgent;
};

/* Whether a command still fits. A batch is full by its bytes, or by the cost of applying it. An
 * empty one takes any command. */
static bool fits(const struct batch *b, const struct item *i)
{
    bool empty = b->count + b->queries_count == 0;
    uint32_t most = MACHINE_BATCH_COST_MAX - (i->urgent ? 0 : URGENT_COST);
    size_t kept = i->reads || empty ? 0 : EXPIRE_BYTES + (i->urgent ? 0 : URGENT_BYTES);
    return batch_has_room(b, i->len + kept, i->reads) && (empty || b->cost + i->cost <= most);
}

static int put(struct batch *b, const struct item *i)
{
    int rv = batch_add(b, i->t, i->data, i->len, i->reads);
    b->cost += rv == 0 ? i->cost : 0;
    return rv;
}

/* A renewal that changes nothing but the end of a lease is answered like a query. */
static bool needs_no_entry(const struct proposer *p, const struct node_ticket *t,
                           const struct machine_command *c)
{
    return MACHINE_OP_IS_QUERY(c->op) || (MACHINE_IS_RENEWAL(c) && t != NULL && !t->needs_entry &&
                                          machine_renew(fsm_machine(p->config.fsm), c, 0, NULL));
}

static struct item item_of(const struct proposer *p, struct node_ticket *t, const void *command,
                           size_t len, const struct machine_command *decoded)
{
    return (struct item){.t = t,
                         .data = command,
                         .len = len,
                         .cost = machine_command_cost_now(fsm_machine(p->config.fsm), decoded),
                         .reads = needs_no_entry(p, t, decoded),
                         .urgent = backlog_is_urgent(t, decoded->op)};
}

/* Reads one whole command into *ret. */
static int read_item(struct proposer *p, struct node_ticket *t, const void *command, size_t len,
                     struct item *ret)
{
    struct machine_command decoded;
    size_t size;
    if (machine_command_decode(command, len, &decoded, &size) != 0 || size != len) {
        return FL_EINVAL;
    }
    if (machine_fill_in(fsm_machine(p->config.fsm), &decoded, p->clock.value_ms)) {
        fli_buf_clear(&p->filled);
        int rv = machine_command_encode(&decoded, &p->filled);
        if (rv != 0) {
            return rv;
        }
        command = p->filled.data;
        FLI_ASSERT(p->filled.len == len);
    }
    *ret = item_of(p, t, command, len, &decoded);
    return ret->reads && t == NULL ? FL_EINVAL : 0;
}

/* Moves commands from the line into the open batch, while there is room. False: out of memory. */
static bool fill_with(struct proposer *p, struct held *(*first)(const struct held_queue *q))
{
    struct held *h;
    while ((h = first(&p->line)) != NULL) {
        struct machine_command c;
        (void)machine_command_redecode(h->data, h->len, &c); /* proposer_add() has checked it */
        struct item i = item_of(p, h->t, h->data, h->len, &c);
        if (!fits(p->open, &i)) {
            return true;
        }
        if (put(p->open, &i) != 0) {
            return false;
        }
        held_take(&p->line, h);
        held_destroy(&p->line, h);
    }
    return true;
}

/* Opens a batch if there is none, and moves as many commands from the line into it as it has room
 * for. False: out of memory. */
static bool fill(struct proposer *p)
{
    if (p->open == NULL) {
        p->open = batch_create(p);
    }
    return p->open != NULL && fill_with(p, held_first) && fill_with(p, held_first_urgent);
}

/* The deadline on the cluster clock at which an empty batch must be sent; UINT64_MAX for none. */
static uint64_t timer_deadline(const struct proposer *p)
{
    const struct machine *m = fsm_machine(p->config.fsm);
    uint64_t deadline_ms = machine_next_deadline(m);
    if (deadline_ms == UINT64_MAX) {
        return UINT64_MAX;
    }
    if (p->in_flight > 0 && p->clock.proposed_ms >= deadline_ms) {
        return UINT64_MAX; /* a batch in flight will apply it */
    }
    uint64_t clock_ms = machine_clock(m);
    if (machine_has_work(m)) {
        return p->in_flight > 0 ? UINT64_MAX : clock_ms; /* a batch in flight will do some of the
                                                            work */
    }
    return deadline_ms;
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
    return p->in_flight < p->config.in_flight_max && p->in_flight_cost <= IN_FLIGHT_COST_MAX;
}

static bool is_pulse_due(const struct proposer *p)
{
    return pulse_deadline(p) <= p->clock.value_ms;
}

/* Whether the open batch needs no entry. */
static bool only_reads(const struct proposer *p)
{
    const struct batch *b = p->open;
    return b != NULL && b->count == 0 && b->queries_count > 0 && !p->mark_due && !is_pulse_due(p);
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
    uint64_t waiting = p->line.count + (p->open != NULL ? p->open->count : 0);
    return p->in_flight == 0 || waiting >= p->in_flight_commands;
}

static void propose_all(struct proposer *p, uint64_t now_ms)
{
    if (now_ms < p->retry_at_ms) {
        return;
    }
    while (may_propose(p)) {
        if (p->open == NULL && held_first(&p->line) == NULL) {
            bool pulse = is_pulse_due(p);
            if (!pulse && !p->mark_due) {
                return;
            }
            p->stats.pulses += pulse;
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
        return proposer_hands_back(p) ? 0 : UINT64_MAX;
    }
    if (p->state == STATE_BARRIER) {
        if (p->barrier_done) {
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
    if (!waits && (p->open != NULL || held_first(&p->line) != NULL || p->mark_due)) {
        work_ms = 0;
    }
    uint64_t retry_ms = time_until(p->retry_at_ms, now_ms);
    if (work_ms < retry_ms) {
        work_ms = retry_ms;
    }
    return work_ms < tick_ms ? work_ms : tick_ms;
}

/* Functions of proposer.h. */

void proposer_turn(struct proposer *p, uint64_t now_ms)
{
    if (p->state == STATE_ENDED) {
        return;
    }
    follow_leadership(p, now_ms);
    if (p->state == STATE_OPEN) {
        cluster_clock_tick(&p->clock, now_ms);
        proposer_answer_confirmed(p);
    }
    if (p->state == STATE_OPEN) {
        propose_all(p, now_ms);
        proposer_answer_confirmed(p); /* the only voter has confirmed it itself */
    }
}

int proposer_create(const struct proposer_config *config, struct proposer **ret)
{
    FLI_ASSERT(config->fsm != NULL);
    FLI_ASSERT(config->returned != NULL);
    struct proposer *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return FL_ENOMEM;
    }
    p->config = *config;
    metrics_histogram_init(&p->commit_times, METRICS_RANGE_FAST);
    struct proposer_config *c = &p->config;
    c->in_flight_max = c->in_flight_max == 0 ? PROPOSER_IN_FLIGHT_DEFAULT : c->in_flight_max;
    c->batch_max = c->batch_max == 0 ? PROPOSER_BATCH_DEFAULT : c->batch_max;
    c->pending_max = c->pending_max == 0 ? PROPOSER_PENDING_DEFAULT : c->pending_max;
    if (c->batch_max > MACHINE_BATCH_MAX) {
        c->batch_max = MACHINE_BATCH_MAX;
    }
    if (c->batch_max < MACHINE_BATCH_HEADER_SIZE + MACHINE_COMMAND_MAX + EXPIRE_BYTES) {
        c->batch_max = MACHINE_BATCH_HEADER_SIZE + MACHINE_COMMAND_MAX + EXPIRE_BYTES;
    }
    c->batch_max -= c->batch_max % 8;
    held_init(&p->line, c->pending_max);
    fli_list_init(&p->proposed);
    fli_buf_init(&p->payload, QUERY_PAYLOAD_MAX);
    fli_buf_init(&p->filled, MACHINE_COMMAND_LARGEST);
    struct fsm_observer observer = proposer_observer(p);
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
    held_fini(&p->line);
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

bool proposer_hands_back(const struct proposer *p)
{
    return p->state == STATE_CLOSED && held_first(&p->line) != NULL;
}

/* Puts a command into the open batch; or into the line, if that is not empty or the batch is full.
 * An urgent command goes ahead of the line while the reserved part of the batch has room for it. */
static int take(struct proposer *p, const struct item *i)
{
    bool alone = held_first(&p->line) == NULL;
    if (alone || (i->urgent && i->t != NULL && !held_has(&p->line, i->t))) {
        if (p->open == NULL) {
            p->open = batch_create(p);
        }
        if (p->open == NULL) {
            return FL_ENOMEM;
        }
        if (fits(p->open, i) && (alone || p->open->passed_cost + i->cost <= URGENT_COST)) {
            p->open->passed_cost += alone ? 0 : i->cost;
            return put(p->open, i);
        }
    }
    return held_add(&p->line, i->t, i->data, i->len);
}

static bool has_room(const struct proposer *p, const struct item *i)
{
    uint64_t room = p->config.pending_max - p->stats.pending_bytes;
    uint64_t kept = i->urgent ? 0 : BACKLOG_URGENT(p->config.pending_max);
    return room >= kept && i->len <= room - kept;
}

int proposer_add(struct proposer *p, struct node_ticket *t, const void *command, size_t len,
                 node_ticket_cb cb)
{
    if (p->state != STATE_OPEN) {
        return FL_ENOLEADER;
    }
    if (len > p->config.batch_max - MACHINE_BATCH_HEADER_SIZE) {
        return FL_ELIMIT; /* only with small segments, or the one command that may be large */
    }
    /* One malformed command would stop every replica, so each is decoded before it enters a
     * batch. */
    struct item i;
    int rv = read_item(p, t, command, len, &i);
    if (rv != 0) {
        return rv;
    }
    rv = has_room(p, &i) ? take(p, &i) : FL_EBUSY;
    if (rv != 0) {
        return rv;
    }
    if (t != NULL) {
        t->cb = cb;
    }
    p->stats.pending_bytes += len;
    p->stats.pending_commands++;
    return 0;
}

void proposer_close(struct proposer *p)
{
    p->state = STATE_ENDED;
    p->applying = NULL;
    give_up_in_flight(p);
    return_open(p);
    return_line(p, UINT64_MAX);
}

void proposer_get_stats(const struct proposer *p, struct proposer_stats *ret)
{
    *ret = p->stats;
    ret->in_flight = p->in_flight;
}

const struct metrics_histogram *proposer_commit_times(const struct proposer *p)
{
    return &p->commit_times;
}

uint64_t proposer_applying_since_ns(const struct proposer *p)
{
    return p->applying == NULL ? 0 : p->applying->began_ns;
}
