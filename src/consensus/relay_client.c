/* relay_client.c: see relay_client.h. */
#include "consensus/relay_client.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "consensus/relay_codec.h"
#include "machine/batch.h"

/* Of commands sent and not answered, of queries among these, and of their bytes; the rest waits in
 * the queue. No turn has more answers than these. It is more than the leader's entries in flight
 * have room for (proposer.c). Each answer to a query may have 64 KiB. */
#define QUERIES_MAX 256u
#define BYTES_MAX ((size_t)4 << 20)
#define PING_MS 500u
#define PING_WAITING_MS 100u /* between pings while commands are unanswered */
#define REDIAL_MS 100u
#define PROBE_MS 5u /* between attempts with a leader that is not ready */

/* A stream to a node that leads or led. It stays open until everything on it is answered. */
struct relay_stream {
    struct relay_client *client;
    struct peer *leader; /* the present one, or a former one */
    struct stream *stream;
    uint64_t first; /* sequence of the oldest command that may be unanswered */
    uint64_t next;  /* sequence of the next command */
    uint32_t count; /* number of unanswered commands */
    uint32_t queries;
    size_t bytes;
    uint64_t pinged_ms;
    uint64_t probe_ms; /* not 0: the leader returned a command. Then it gets one command at a time,
                          from this time on, until it answers one */
    struct command *slots[RELAY_WINDOW];
};

struct relay_client {
    struct relay_client_config config;
    uint64_t leader_id; /* the leader that this node follows; 0: none */
    uint64_t relayed;
    struct metrics_histogram times;
    bool closed;
};

static struct fli_slice slice(const void *data, size_t len)
{
    return (struct fli_slice){data, len};
}

/* The stream to that node; NULL: none. */
static struct relay_stream *stream_to(const struct relay_client *c, uint64_t id)
{
    const struct peer *p = peers_find(c->config.peers, id);
    return p == NULL ? NULL : p->relay;
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
    if (o->probe_ms != 0 && (o->count > 0 || fli_clock_ms() < o->probe_ms)) {
        return false;
    }
    bool urgent = m->class == COMMAND_URGENT;
    uint64_t most = RELAY_WINDOW - (urgent ? 0 : COMMANDS_URGENT(RELAY_WINDOW));
    size_t bytes_most = BYTES_MAX - (urgent ? 0 : COMMANDS_URGENT(BYTES_MAX));
    return o->next - o->first < most && o->bytes + m->len <= bytes_most &&
           (!is_query(m) || o->queries < QUERIES_MAX);
}

bool relay_client_send(struct relay_client *c, struct command *m)
{
    struct relay_stream *o = stream_to(c, c->leader_id);
    uint8_t head[RELAY_COMMAND_HEAD_SIZE];
    if (o == NULL || !has_room(o, m)) {
        return false;
    }
    o->next +=
        o->probe_ms != 0; /* the leader learns that this one is sent again (relay_server.c) */
    fli_put_u64(head, o->next);
    fli_put_u64(head + 8, m->t->source);
    struct fli_slice parts[2] = {slice(head, sizeof head), slice(m->data, m->len)};
    uint64_t start = stream_appended(o->stream);
    if (stream_send(o->stream, RELAY_COMMAND, parts, 2) != 0) {
        return false;
    }
    commands_take(c->config.queue, m);
    m->start = start;
    m->sent_ns = fli_clock_ns();
    *slot(o, o->next) = m;
    o->next++;
    o->count++;
    o->bytes += m->len;
    o->queries += is_query(m);
    c->relayed++;
    return true;
}

/* Ends the stream. Of the commands that are unanswered, those that can have had no effect are put
 * back, and the others are answered UNCERTAIN. */
static void give_up(struct relay_stream *o, const char *why)
{
    struct peer *leader = o->leader;
    struct relay_client *c = o->client;
    uint64_t handed = stream_handed(o->stream);
    if (o->count > 0) {
        host_log(&c->config.host, 2,
                 "the stream to node %" PRIu64
                 " is given up while %u of its commands had no answer: %s",
                 leader->id, o->count, why);
    }
    leader->relay = NULL;
    leader->redial_ms = fli_clock_ms() + REDIAL_MS;
    stream_close(o->stream);
    for (uint64_t s = o->first; s < o->next; s++) {
        struct command *m = take(o, s);
        if (m != NULL && (is_query(m) || m->start >= handed)) {
            commands_put_back(c->config.queue, m);
        } else if (m != NULL) {
            commands_fail(c->config.queue, m, FL_EUNCERTAIN);
        }
    }
    FLI_ASSERT(o->count == 0 && o->bytes == 0 && o->queries == 0);
    free(o);
    c->config.host.wake(c->config.host.ctx);
}

/* ---- answers ---- */

static void on_result(struct relay_stream *o, struct fli_slice body)
{
    struct relay_client *c = o->client;
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
    o->probe_ms = 0;
    metrics_observe_ns(&c->times, fli_clock_ns() - m->sent_ns);
    commands_end(c->config.queue, m, a.status, a.status == 0 ? &a.result : NULL, a.payload);
}

static void on_returned(struct relay_stream *o, struct fli_slice body)
{
    struct relay_client *c = o->client;
    uint64_t sequence;
    struct fli_slice rest;
    struct command *m = NULL;
    if (relay_sequence_decode(body, &sequence, &rest) == 0 && rest.len == 0) {
        m = take(o, sequence);
    }
    if (m == NULL) {
        give_up(o, "a command was given back that was not sent");
        return;
    }
    o->probe_ms = fli_clock_ms() + PROBE_MS;
    commands_put_back(c->config.queue, m);
    c->config.host.wake(c->config.host.ctx);
}

static void on_push(struct relay_stream *o, struct fli_slice body)
{
    const struct relay_client_config *config = &o->client->config;
    struct machine_event e;
    if (relay_event_decode(body, &e) != 0) {
        give_up(o, "an event that is not understood");
    } else if (config->push != NULL) {
        config->push(config->ctx, &e);
    }
}

static void on_frame(struct relay_stream *o, uint8_t type, struct fli_slice body)
{
    switch (type) {
    case RELAY_RESULT:
        on_result(o, body);
        break;
    case RELAY_RETURNED:
        on_returned(o, body);
        break;
    case RELAY_PUSH:
        on_push(o, body);
        break;
    case RELAY_PONG:
        break;
    default:
        give_up(o, "a frame of unknown type");
        break;
    }
}

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct relay_stream *o = ctx;
    struct fli_turn *turn = o->client->config.host.turn;
    enum fli_turn_part part = fli_turn_enter(turn, FLI_TURN_ANSWERS);
    on_frame(o, type, body);
    fli_turn_leave(turn, part);
}

static void lost_cb(void *ctx, enum channel_end how, const char *why)
{
    give_up(ctx, why);
}

/* ---- streams ---- */

/* The number of a stream's first command: random, so that answers that were recorded on another
 * stream have numbers that are unknown here, and never reach this stream's clients. */
static uint64_t first_sequence(void)
{
    uint64_t number;
    fli_random(&number, sizeof number);
    return number >> 8; /* far from the end of the numbers */
}

static void open_stream(struct relay_client *c, struct peer *leader, struct stream *stream)
{
    struct relay_stream *o = calloc(1, sizeof *o);
    if (o == NULL) {
        stream_close(stream);
        return;
    }
    struct stream_callbacks cbs = {.ctx = o, .frame = frame_cb, .lost = lost_cb};
    o->client = c;
    o->leader = leader;
    o->stream = stream;
    o->first = first_sequence();
    o->next = o->first;
    o->pinged_ms = fli_clock_ms();
    leader->relay = o;
    if (stream_start(stream, &cbs)) {
        c->config.host.wake(c->config.host.ctx);
    }
}

static void dialed_cb(void *ctx, int status, const struct peer_identity *peer,
                      struct stream *stream)
{
    struct peer *leader = ctx;
    struct relay_client *c = leader->relay_dials;
    leader->relay_dials = NULL;
    leader->redial_ms = fli_clock_ms() + REDIAL_MS;
    if (status == 0 && c->closed) {
        stream_close(stream);
    } else if (status == 0) {
        FLI_ASSERT(peer->node_id == leader->id);
        open_stream(c, leader, stream);
    }
}

/* A leader without a place waits until dials to former members have ended; the next tick looks
 * again. */
static void connect_leader(struct relay_client *c)
{
    struct peer *leader = peers_find(c->config.peers, c->leader_id);
    if (leader == NULL || leader->relay != NULL || leader->relay_dials != NULL || c->closed ||
        fli_clock_ms() < leader->redial_ms) {
        return;
    }
    int rv = transport_dial(c->config.transport, leader->id, STREAM_RELAY, dialed_cb, leader);
    leader->relay_dials = rv == 0 ? c : NULL;
}

static void tick_stream(struct relay_stream *o)
{
    struct relay_client *c = o->client;
    bool leads = c->leader_id == o->leader->id;
    uint64_t silent_ms = fli_clock_since_ms(stream_heard_ms(o->stream));
    if (!leads && o->count == 0) {
        give_up(o, "not needed any more");
        return;
    }
    /* A leader answers a ping at once, so a leader that is silent for this long is not running. A
     * replaced leader gets less time: its silence is why it was replaced. */
    uint64_t silence_max_ms =
        leads ? PING_MS + 2 * (uint64_t)c->config.election_ms : c->config.election_ms;
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

void relay_client_follow(struct relay_client *c, uint64_t leader_id)
{
    if (c->leader_id != leader_id) {
        c->leader_id = leader_id;
        for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
            struct relay_stream *o = c->config.peers->list[i].relay;
            if (o != NULL && o->count > 0) {
                tick_stream(o);
            }
        }
    }
    connect_leader(c);
}

uint64_t relay_client_next_ms(const struct relay_client *c)
{
    const struct relay_stream *o = stream_to(c, c->leader_id);
    uint64_t now_ms = fli_clock_ms();
    if (o == NULL || o->probe_ms == 0 || o->count > 0) {
        return UINT64_MAX;
    }
    if (o->probe_ms > now_ms) {
        return o->probe_ms - now_ms;
    }
    return commands_waiting(c->config.queue) > 0 ? 1 : UINT64_MAX; /* the turn had looked before */
}

void relay_client_set_election_ms(struct relay_client *c, unsigned election_ms)
{
    c->config.election_ms = election_ms;
}

void relay_client_tick(struct relay_client *c)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (c->config.peers->list[i].relay != NULL) {
            tick_stream(c->config.peers->list[i].relay);
        }
    }
    connect_leader(c);
}

void relay_client_flush(struct relay_client *c)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (c->config.peers->list[i].relay != NULL) {
            stream_flush(c->config.peers->list[i].relay->stream);
        }
    }
}

bool relay_client_quiet(const struct relay_client *c)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct relay_stream *o = c->config.peers->list[i].relay;
        if (o != NULL && o->count > 0) {
            return false;
        }
    }
    return true;
}

bool relay_client_connected(const struct relay_client *c, uint64_t peer_id)
{
    return stream_to(c, peer_id) != NULL;
}

const struct metrics_histogram *relay_client_times(const struct relay_client *c)
{
    return &c->times;
}

uint64_t relay_client_relayed(const struct relay_client *c)
{
    return c->relayed;
}

void relay_client_close(struct relay_client *c, const char *why)
{
    c->closed = true;
    relay_client_flush(c);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (c->config.peers->list[i].relay != NULL) {
            give_up(c->config.peers->list[i].relay, why);
        }
    }
}

void relay_client_set_members(struct relay_client *c, const struct members *members)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct peer *p = &c->config.peers->list[i];
        if (p->relay != NULL && members_find(members, p->id) == NULL) {
            give_up(p->relay, "the node is a member no more");
        }
    }
}

int relay_client_create(const struct relay_client_config *config, struct relay_client **ret)
{
    struct relay_client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return FL_ENOMEM;
    }
    c->config = *config;
    metrics_histogram_init(&c->times, METRICS_RANGE_FAST);
    *ret = c;
    return 0;
}

void relay_client_destroy(struct relay_client *c)
{
    for (unsigned i = 0; c != NULL && i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *p = &c->config.peers->list[i];
        FLI_ASSERT(p->relay == NULL && p->relay_dials == NULL);
    }
    free(c);
}
