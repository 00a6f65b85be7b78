/* relay.c: see relay.h. */
#include "commands/relay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "commands/relay_codec.h"
#include "machine/batch.h"
#include "peer/transport.h"

/* Of commands sent and not answered, of queries among these, and of their bytes; the rest waits in
 * the queue. No turn has more answers than these. It is more than the leader's entries in flight
 * have room for (proposer.c). Each answer to a query may have 64 KiB. */
#define QUERIES_MAX 256u
#define BYTES_MAX ((size_t)4 << 20)
#define PING_MS 500u
#define PING_WAITING_MS 100u /* between pings while commands are unanswered */
#define REDIAL_MS 100u
/* A follower pings twice a second. One that is silent for so long is not counted on, since its
 * power may have gone; it may also have been stopped, so its commands are given up later. */
#define UNHEARD_MS 3000u
#define SILENCE_MS 10000u

/* Of one end of a stream between a node and its leader, or a former one: a stream stays open until
 * everything on it is answered. */
struct relay_stream {
    struct fli_list link; /* in relay.streams */
    struct relay *relay;
    struct peer *peer;
    enum relay_end end;
    struct stream *stream;
    uint64_t number; /* of the stream: a follower's commands in the queue name it */
    uint32_t count;  /* of commands without an answer */
    bool returned;   /* one went back: all behind it do, and the stream takes no more */
    /* Of the follower's end. */
    uint64_t first; /* sequence of the oldest command that may be unanswered */
    uint64_t next;  /* sequence of the next command */
    uint32_t queries;
    size_t bytes;
    uint64_t pinged_ms;
    struct command *slots[RELAY_WINDOW];
};

static struct fli_slice slice(const void *data, size_t len)
{
    return (struct fli_slice){data, len};
}

/* The stream to that node as a leader, or from it as a follower; NULL: none. */
static struct relay_stream *stream_of(const struct relay *r, uint64_t id, enum relay_end end)
{
    const struct peer *p = peers_find(r->config.peers, id);
    return p == NULL ? NULL : p->relay[end];
}

static struct relay_stream *stream_at(struct fli_list *pos)
{
    return FLI_CONTAINER_OF(pos, struct relay_stream, link);
}

/* Something is to leave, or to be sent elsewhere. */
static void wake(const struct relay *r)
{
    r->config.peers->host->wake(r->config.peers->host->ctx);
}

/* ---- commands that were sent ---- */

static struct command **slot(struct relay_stream *o, uint64_t sequence)
{
    return &o->slots[sequence % RELAY_WINDOW];
}

static unsigned is_query(const struct command *m)
{
    return MACHINE_OP_IS_QUERY(m->data[0]) ? 1 : 0;
}

/* Takes the command that was sent as `sequence`; NULL when none is unanswered under that number. */
static struct command *take(struct relay_stream *o, uint64_t sequence)
{
    if (sequence < o->first || sequence >= o->next || *slot(o, sequence) == NULL) {
        return NULL;
    }
    struct command *m = *slot(o, sequence);
    *slot(o, sequence) = NULL;
    FLI_ASSERT(o->count > 0 && o->bytes >= m->len && o->queries >= is_query(m));
    o->count--;
    o->bytes -= m->len;
    o->queries -= is_query(m);
    while (o->first < o->next && *slot(o, o->first) == NULL) {
        o->first++;
    }
    return m;
}

static bool has_room(const struct relay_stream *o, const struct command *m)
{
    bool urgent = m->class == COMMAND_URGENT;
    uint64_t most = RELAY_WINDOW - (urgent ? 0 : COMMANDS_URGENT(RELAY_WINDOW));
    size_t bytes_most = BYTES_MAX - (urgent ? 0 : COMMANDS_URGENT(BYTES_MAX));
    return !o->returned && o->next - o->first < most && o->bytes + m->len <= bytes_most &&
           (!is_query(m) || o->queries < QUERIES_MAX);
}

bool relay_send(struct relay *r, struct command *m)
{
    struct relay_stream *o = stream_of(r, r->leader_id, RELAY_TO_LEADER);
    uint8_t head[RELAY_COMMAND_HEAD_SIZE];
    if (o == NULL || !has_room(o, m)) {
        return false;
    }
    fli_put_u64(head, o->next);
    fli_put_u64(head + 8, m->t->source);
    struct fli_slice parts[2] = {slice(head, sizeof head), slice(m->data, m->len)};
    uint64_t start = stream_appended(o->stream);
    if (stream_send(o->stream, RELAY_COMMAND, parts, 2) != 0) {
        return false;
    }
    commands_take(r->config.queue, m);
    m->start = start;
    m->sent_ns = fli_clock_ns();
    *slot(o, o->next) = m;
    o->next++;
    o->count++;
    o->bytes += m->len;
    o->queries += is_query(m);
    r->sent++;
    return true;
}

/* Ends the stream. Of the commands that were sent on it and are unanswered, those that can have had
 * no effect are put back, and the others are answered UNCERTAIN. */
static void give_up(void *ctx, const char *why)
{
    struct relay_stream *o = ctx;
    struct relay *r = o->relay;
    struct peer *peer = o->peer;
    bool sends = o->end == RELAY_TO_LEADER;
    uint64_t handed = stream_handed(o->stream);
    host_log(r->config.peers->host, o->count > 0 ? 2 : 4,
             "the stream %s node %" PRIu64 " ends while %u of its commands have no answer: %s",
             sends ? "to" : "from", peer->id, o->count, why);
    peer->relay[o->end] = NULL;
    peer->redial_ms = sends ? fli_clock_ms() + REDIAL_MS : peer->redial_ms;
    fli_list_remove(&o->link);
    stream_close(o->stream);
    for (uint64_t s = o->first; s < o->next; s++) {
        struct command *m = take(o, s);
        if (m != NULL && (is_query(m) || m->start >= handed)) {
            commands_put_back(r->config.queue, m);
        } else if (m != NULL) {
            commands_fail(r->config.queue, m, FL_EUNCERTAIN);
        }
    }
    FLI_ASSERT(!sends || (o->count == 0 && o->bytes == 0 && o->queries == 0));
    free(o);
    wake(r);
}

/* ---- the leader's answers ---- */

static void on_result(struct relay_stream *o, struct fli_slice body)
{
    struct relay *r = o->relay;
    struct relay_answer a;
    if (relay_result_decode(body, &a) != 0) {
        give_up(o, "an answer that is not understood");
        return;
    }
    struct command *m = take(o, a.sequence);
    if (m == NULL) {
        give_up(o, "an answer to nothing that was asked");
        return;
    }
    if (a.status == FL_ENOLEADER) {
        o->returned = true;
        commands_put_back(r->config.queue, m);
    } else {
        metrics_observe_ns(&r->times, fli_clock_ns() - m->sent_ns);
        commands_end(r->config.queue, m, a.status, a.status == 0 ? &a.result : NULL, a.payload);
    }
    if (o->returned && o->count == 0) {
        give_up(o, "its node leads no more");
    }
}

static void on_push(struct relay_stream *o, struct fli_slice body)
{
    const struct relay_config *config = &o->relay->config;
    struct machine_event e;
    if (relay_event_decode(body, &e) != 0) {
        give_up(o, "an event that is not understood");
    } else if (config->push != NULL) {
        config->push(config->ctx, &e);
    }
}

/* ---- the follower's commands ---- */

static void send_result(struct relay_stream *o, uint64_t sequence, int status,
                        const struct machine_result *result, struct fli_slice payload)
{
    uint8_t head[RELAY_RESULT_SIZE];
    o->returned = o->returned || status == FL_ENOLEADER;
    relay_result_encode(sequence, status, result, head);
    struct fli_slice parts[2] = {slice(head, sizeof head), payload};
    if (stream_send(o->stream, RELAY_RESULT, parts, status == 0 ? 2 : 1) != 0) {
        give_up(o, "too much is waiting to be sent");
    }
}

/* A command of another node has ended. One that is surely not done, since this node leads no more,
 * goes back. Nobody hears of it when the stream that brought it is closed. */
static void answered(void *ctx, const struct command_way *way, int status,
                     const struct machine_result *result, struct fli_slice payload)
{
    struct relay_stream *o = stream_of(ctx, way->via, RELAY_OF_FOLLOWER);
    if (o != NULL && o->number == way->stream) {
        o->count--;
        send_result(o, way->number, status, result, payload);
    }
}

/* The commands that a client may send. Only the leader makes commands of the cluster itself
 * (members, limits, raising the token counter); they are refused when they come over a stream. */
static bool may_be_relayed(uint8_t op)
{
    switch (op) {
    case MACHINE_OP_ACQUIRE:
    case MACHINE_OP_CANCEL:
    case MACHINE_OP_RENEW:
    case MACHINE_OP_RELEASE:
    case MACHINE_OP_BREAK:
    case MACHINE_OP_TOKEN:
    case MACHINE_OP_KEYS:
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_SESSION_CLOSE:
    case MACHINE_OP_USER_SET:
    case MACHINE_OP_USER_DELETE:
    case MACHINE_OP_USERS_LOAD:
    case MACHINE_OP_USERS_SEAL:
    case MACHINE_OP_LIMIT_SET:
    case MACHINE_OP_SETTING_SET:
        return true;
    default:
        return MACHINE_OP_IS_QUERY(op);
    }
}

static void on_command(struct relay_stream *o, struct fli_slice body)
{
    struct relay *r = o->relay;
    uint64_t sequence, source;
    struct fli_slice command;
    if (relay_command_decode(body, &sequence, &source, &command) != 0 || command.len == 0 ||
        command.len > MACHINE_COMMAND_LARGEST || !may_be_relayed(command.data[0]) ||
        o->count >= RELAY_WINDOW) {
        give_up(o, "a command that no follower relays");
        return;
    }
    /* The follower puts those that go back in order, so they go back with all that came behind. */
    const struct command_way way = {o->peer->id, source, o->number, sequence};
    bool leads = !o->returned && proposer_leads(r->config.proposer);
    int rv =
        leads ? commands_add_relayed(r->config.queue, &way, command, fli_clock_ns()) : FL_ENOLEADER;
    if (rv == 0) {
        o->count++;
    } else {
        send_result(o, sequence, rv, NULL, slice(NULL, 0));
    }
}

/* ---- streams ---- */

static void on_frame(void *ctx, uint8_t type, struct fli_slice body)
{
    struct relay_stream *o = ctx;
    bool leads = o->end == RELAY_OF_FOLLOWER;
    struct fli_turn *turn = o->relay->config.peers->host->turn;
    enum fli_turn_part part = fli_turn_enter(turn, leads ? FLI_TURN_PEERS : FLI_TURN_ANSWERS);
    if (type == RELAY_COMMAND && leads) {
        on_command(o, body);
    } else if (type == RELAY_RESULT && !leads) {
        on_result(o, body);
    } else if (type == RELAY_PUSH && !leads) {
        on_push(o, body);
    } else if (type != (leads ? RELAY_PING : RELAY_PONG)) {
        give_up(o, "a frame of unknown type");
    } else if (leads && stream_send(o->stream, RELAY_PONG, NULL, 0) != 0) {
        give_up(o, "too much is waiting to be sent");
    }
    fli_turn_leave(turn, part);
}

/* The number of a stream's first command: random, so that answers that were recorded on another
 * stream have numbers that are unknown here, and never reach this stream's clients. */
static uint64_t first_sequence(void)
{
    uint64_t number;
    fli_random(&number, sizeof number);
    return number >> 8; /* far from the end of the numbers */
}

/* A node has one stream to its leader. A second one means that it has given up the first. */
static void open_stream(struct relay *r, struct peer *peer, enum relay_end end,
                        struct stream *stream)
{
    struct relay_stream *o = calloc(1, sizeof *o);
    if (o == NULL) {
        stream_close(stream);
        return;
    }
    if (peer->relay[end] != NULL) {
        give_up(peer->relay[end], "the node called again");
    }
    struct stream_callbacks cbs = {.ctx = o, .frame = on_frame, .lost = give_up};
    o->relay = r;
    o->peer = peer;
    o->end = end;
    o->stream = stream;
    o->number = ++r->opened;
    o->first = first_sequence();
    o->next = o->first;
    o->pinged_ms = fli_clock_ms();
    peer->relay[end] = o;
    fli_list_push(&r->streams, &o->link);
    if (stream_start(stream, &cbs)) {
        wake(r);
    }
}

static void dialed_cb(void *ctx, int status, const struct peer_identity *peer,
                      struct stream *stream)
{
    struct peer *leader = ctx;
    struct relay *r = leader->relay_dials;
    leader->relay_dials = NULL;
    leader->redial_ms = fli_clock_ms() + REDIAL_MS;
    if (status == 0 && r->leader_id == leader->id) {
        open_stream(r, leader, RELAY_TO_LEADER, stream);
    } else if (status == 0) {
        stream_close(stream);
    }
}

/* A leader without a place waits until dials to former members have ended; the next tick looks
 * again. */
static void connect_leader(struct relay *r)
{
    struct peer *leader = peers_find(r->config.peers, r->leader_id);
    if (leader == NULL || leader->relay[RELAY_TO_LEADER] != NULL || leader->relay_dials != NULL ||
        fli_clock_ms() < leader->redial_ms) {
        return;
    }
    int rv =
        transport_dial(r->config.peers->transport, leader->id, STREAM_RELAY, dialed_cb, leader);
    leader->relay_dials = rv == 0 ? r : NULL;
}

static void tick_to_leader(struct relay_stream *o)
{
    struct relay *r = o->relay;
    bool leads = r->leader_id == o->peer->id;
    uint64_t silent_ms = fli_clock_since_ms(stream_heard_ms(o->stream));
    if (!leads && o->count == 0) {
        give_up(o, "not needed any more");
        return;
    }
    /* A leader answers a ping at once, so a leader that is silent for this long is not running. A
     * replaced leader gets less time: its silence is why it was replaced. */
    uint64_t election_ms = r->config.election->election_ms;
    uint64_t silence_max_ms = leads ? PING_MS + 2 * election_ms : election_ms;
    if (silent_ms > silence_max_ms) {
        give_up(o, "silence");
        return;
    }
    if (fli_clock_since_ms(o->pinged_ms) >= (o->count > 0 ? PING_WAITING_MS : PING_MS)) {
        o->pinged_ms = fli_clock_ms();
        if (stream_send(o->stream, RELAY_PING, NULL, 0) != 0) {
            give_up(o, "too much is waiting to be sent");
        }
    }
}

void relay_follow(struct relay *r, uint64_t leader_id)
{
    if (r->leader_id != leader_id) {
        r->leader_id = leader_id;
        FLI_LIST_FOREACH_SAFE(pos, next, &r->streams)
        {
            struct relay_stream *o = stream_at(pos);
            if (o->end == RELAY_TO_LEADER && o->count > 0) {
                tick_to_leader(o);
            }
        }
    }
    connect_leader(r);
}

void relay_accept(struct relay *r, const struct peer_identity *peer, struct stream *stream)
{
    struct peer *p = peers_find(r->config.peers, peer->node_id);
    if (p != NULL && members_find(r->config.election->members, p->id) != NULL) {
        open_stream(r, p, RELAY_OF_FOLLOWER, stream);
    } else {
        stream_close(stream);
    }
}

bool relay_has_follower(const struct relay *r, uint64_t id)
{
    const struct relay_stream *o = stream_of(r, id, RELAY_OF_FOLLOWER);
    return o != NULL && fli_clock_since_ms(stream_heard_ms(o->stream)) <= UNHEARD_MS;
}

bool relay_has_leader(const struct relay *r, uint64_t id)
{
    return stream_of(r, id, RELAY_TO_LEADER) != NULL;
}

/* Which follower has relayed a wait, only its leader of that time knew. So its end is pushed to all
 * of them, and those that do not have the wait ignore it. */
void relay_event(struct relay *r, const struct machine_event *e)
{
    bool ends = e->type == MACHINE_EVENT_GRANTED || e->type == MACHINE_EVENT_WAIT_ENDED;
    if (e->wait == 0 || e->index != 0 || !ends || !proposer_is_open(r->config.proposer)) {
        return;
    }
    uint8_t body[RELAY_EVENT_SIZE];
    const struct fli_slice part = slice(body, relay_event_encode(e, body));
    FLI_LIST_FOREACH(pos, &r->streams)
    {
        const struct relay_stream *o = stream_at(pos);
        int rv = o->end == RELAY_OF_FOLLOWER ? stream_send(o->stream, RELAY_PUSH, &part, 1) : 0;
        (void)rv; /* whoever reads too slowly hears of it from its own log, later */
    }
}

static void tick_streams(struct relay *r)
{
    FLI_LIST_FOREACH_SAFE(pos, next, &r->streams)
    {
        struct relay_stream *o = stream_at(pos);
        if (o->end == RELAY_TO_LEADER) {
            tick_to_leader(o);
        } else if (fli_clock_since_ms(stream_heard_ms(o->stream)) > SILENCE_MS) {
            give_up(o, "silence");
        }
    }
}

void relay_tick(struct relay *r, bool paused)
{
    if (!paused) {
        tick_streams(r);
    }
    connect_leader(r);
}

void relay_flush(struct relay *r)
{
    FLI_LIST_FOREACH_SAFE(pos, next, &r->streams)
    {
        stream_flush(stream_at(pos)->stream);
    }
}

bool relay_quiet(const struct relay *r)
{
    FLI_LIST_FOREACH(pos, &r->streams)
    {
        const struct relay_stream *o = stream_at(pos);
        if (o->count > 0 || (o->end == RELAY_OF_FOLLOWER && stream_unsent(o->stream) > 0)) {
            return false;
        }
    }
    return true;
}

static void end_streams(struct relay *r, bool all, const char *why)
{
    FLI_LIST_FOREACH_SAFE(pos, next, &r->streams)
    {
        struct relay_stream *o = stream_at(pos);
        if (all || members_find(r->config.election->members, o->peer->id) == NULL) {
            give_up(o, why);
        }
    }
}

void relay_leave_strangers(struct relay *r)
{
    end_streams(r, false, "the node is a member no more");
}

void relay_close(struct relay *r, const char *why)
{
    r->leader_id = 0;
    relay_flush(r);
    end_streams(r, true, why);
}

void relay_init(struct relay *r, const struct relay_config *config)
{
    *r = (struct relay){.config = *config};
    r->config.queue->ctx = r;
    r->config.queue->answer = answered;
    fli_list_init(&r->streams);
    metrics_histogram_init(&r->times, METRICS_RANGE_FAST);
}
