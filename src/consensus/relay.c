/* relay.c: see relay.h. */
#include "consensus/relay.h"

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
/* A follower pings twice a second. One that is silent for so long is not counted on, since its
 * power may have gone; it may also have been stopped, so its commands are given up later. */
#define UNHEARD_MS 3000u
#define SILENCE_MS 10000u

/* A stream to a node that leads or led. It stays open until everything on it is answered. */
struct relay_stream {
    struct relay *relay;
    struct peer *leader; /* the present one, or a former one */
    struct stream *stream;
    uint64_t first; /* sequence of the oldest command that may be unanswered */
    uint64_t next;  /* sequence of the next command */
    uint32_t count; /* number of unanswered commands */
    uint32_t queries;
    size_t bytes;
    uint64_t pinged_ms;
    bool returned; /* a command came back: the stream takes no more */
    struct command *slots[RELAY_WINDOW];
};

/* A follower's stream. */
struct relay_follower {
    struct relay *relay;
    struct peer *peer;
    struct stream *stream;
    uint64_t number; /* of the stream: its commands in the queue name it */
    uint32_t count;  /* its commands that have no answer */
    bool returns;    /* one went back, so all that come behind go back */
};

struct relay {
    struct relay_config config;
    const struct members *members;
    uint64_t leader_id; /* the leader that this node follows; 0: none */
    uint64_t sent;
    uint64_t streams; /* of followers, ever */
    unsigned open;    /* streams to leaders, and of followers */
    struct metrics_histogram times;
    bool closed;
};

static struct fli_slice slice(const void *data, size_t len)
{
    return (struct fli_slice){data, len};
}

/* The stream to that node; NULL: none. */
static struct relay_stream *stream_to(const struct relay *r, uint64_t id)
{
    const struct peer *p = peers_find(r->config.peers, id);
    return p == NULL ? NULL : p->relay;
}

static struct relay_follower *follower(const struct relay *r, uint64_t id)
{
    const struct peer *p = peers_find(r->config.peers, id);
    return p == NULL ? NULL : p->follower;
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
    struct relay_stream *o = stream_to(r, r->leader_id);
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

/* Ends the stream. Of the commands that are unanswered, those that can have had no effect are put
 * back, and the others are answered UNCERTAIN. */
static void give_up(struct relay_stream *o, const char *why)
{
    struct peer *leader = o->leader;
    struct relay *r = o->relay;
    uint64_t handed = stream_handed(o->stream);
    if (o->count > 0) {
        host_log(&r->config.host, 2,
                 "the stream to node %" PRIu64
                 " is given up while %u of its commands had no answer: %s",
                 leader->id, o->count, why);
    }
    leader->relay = NULL;
    r->open--;
    leader->redial_ms = fli_clock_ms() + REDIAL_MS;
    stream_close(o->stream);
    for (uint64_t s = o->first; s < o->next; s++) {
        struct command *m = take(o, s);
        if (m != NULL && (is_query(m) || m->start >= handed)) {
            commands_put_back(r->config.queue, m);
        } else if (m != NULL) {
            commands_fail(r->config.queue, m, FL_EUNCERTAIN);
        }
    }
    FLI_ASSERT(o->count == 0 && o->bytes == 0 && o->queries == 0);
    free(o);
    r->config.host.wake(r->config.host.ctx);
}

/* ---- the leader's answers ---- */

static void on_result(struct relay_stream *o, struct fli_slice body)
{
    struct relay *r = o->relay;
    const struct peer *leader = o->leader;
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
    o = leader->relay; /* a callback may have ended the stream */
    if (o != NULL && o->returned && o->count == 0) {
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

static void on_answer(struct relay_stream *o, uint8_t type, struct fli_slice body)
{
    switch (type) {
    case RELAY_RESULT:
        on_result(o, body);
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

static void answer_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct relay_stream *o = ctx;
    struct fli_turn *turn = o->relay->config.host.turn;
    enum fli_turn_part part = fli_turn_enter(turn, FLI_TURN_ANSWERS);
    on_answer(o, type, body);
    fli_turn_leave(turn, part);
}

static void leader_lost_cb(void *ctx, const char *why)
{
    give_up(ctx, why);
}

/* ---- streams to leaders ---- */

/* The number of a stream's first command: random, so that answers that were recorded on another
 * stream have numbers that are unknown here, and never reach this stream's clients. */
static uint64_t first_sequence(void)
{
    uint64_t number;
    fli_random(&number, sizeof number);
    return number >> 8; /* far from the end of the numbers */
}

static void open_stream(struct relay *r, struct peer *leader, struct stream *stream)
{
    struct relay_stream *o = calloc(1, sizeof *o);
    if (o == NULL) {
        stream_close(stream);
        return;
    }
    struct stream_callbacks cbs = {.ctx = o, .frame = answer_cb, .lost = leader_lost_cb};
    o->relay = r;
    o->leader = leader;
    o->stream = stream;
    o->first = first_sequence();
    o->next = o->first;
    o->pinged_ms = fli_clock_ms();
    leader->relay = o;
    r->open++;
    if (stream_start(stream, &cbs)) {
        r->config.host.wake(r->config.host.ctx);
    }
}

static void dialed_cb(void *ctx, int status, const struct peer_identity *peer,
                      struct stream *stream)
{
    struct peer *leader = ctx;
    struct relay *r = leader->relay_dials;
    leader->relay_dials = NULL;
    leader->redial_ms = fli_clock_ms() + REDIAL_MS;
    if (status == 0 && r->closed) {
        stream_close(stream);
    } else if (status == 0) {
        FLI_ASSERT(peer->node_id == leader->id);
        open_stream(r, leader, stream);
    }
}

/* A leader without a place waits until dials to former members have ended; the next tick looks
 * again. */
static void connect_leader(struct relay *r)
{
    struct peer *leader = peers_find(r->config.peers, r->leader_id);
    if (leader == NULL || leader->relay != NULL || leader->relay_dials != NULL || r->closed ||
        fli_clock_ms() < leader->redial_ms) {
        return;
    }
    int rv = transport_dial(r->config.transport, leader->id, STREAM_RELAY, dialed_cb, leader);
    leader->relay_dials = rv == 0 ? r : NULL;
}

static void tick_stream(struct relay_stream *o)
{
    struct relay *r = o->relay;
    bool leads = r->leader_id == o->leader->id;
    uint64_t silent_ms = fli_clock_since_ms(stream_heard_ms(o->stream));
    if (!leads && o->count == 0) {
        give_up(o, "not needed any more");
        return;
    }
    /* A leader answers a ping at once, so a leader that is silent for this long is not running. A
     * replaced leader gets less time: its silence is why it was replaced. */
    uint64_t silence_max_ms =
        leads ? PING_MS + 2 * (uint64_t)r->config.election_ms : r->config.election_ms;
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
        for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
            struct relay_stream *o = r->config.peers->list[i].relay;
            if (o != NULL && o->count > 0) {
                tick_stream(o);
            }
        }
    }
    connect_leader(r);
}

/* ---- streams of followers ---- */

static void close_follower(struct relay_follower *f, const char *why)
{
    host_log(&f->relay->config.host, f->count > 0 ? 2 : 4,
             "the stream from node %" PRIu64 " is closed: %s", f->peer->id, why);
    stream_close(f->stream);
    f->peer->follower = NULL;
    f->relay->open--;
    free(f);
}

static void send_result(struct relay_follower *f, uint64_t sequence, int status,
                        const struct machine_result *result, struct fli_slice payload)
{
    uint8_t head[RELAY_RESULT_SIZE];
    f->returns = f->returns || status == FL_ENOLEADER;
    relay_result_encode(sequence, status, result, head);
    struct fli_slice parts[2] = {slice(head, sizeof head), payload};
    if (stream_send(f->stream, RELAY_RESULT, parts, status == 0 ? 2 : 1) != 0) {
        close_follower(f, "too much is waiting to be sent");
    }
}

/* A command of another node has ended. One that is surely not done, since this node leads no more,
 * goes back. Nobody hears of it when the stream that brought it is closed. */
static void answered(void *ctx, const struct command_way *way, int status,
                     const struct machine_result *result, struct fli_slice payload)
{
    struct relay_follower *f = follower(ctx, way->via);
    if (f != NULL && f->number == way->stream) {
        f->count--;
        send_result(f, way->number, status, result, payload);
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

static void on_command(struct relay_follower *f, struct fli_slice body)
{
    struct relay *r = f->relay;
    uint64_t sequence, source;
    struct fli_slice command;
    if (relay_command_decode(body, &sequence, &source, &command) != 0 || command.len == 0 ||
        command.len > MACHINE_COMMAND_LARGEST || !may_be_relayed(command.data[0]) ||
        f->count >= RELAY_WINDOW) {
        close_follower(f, "a command that no follower relays");
        return;
    }
    /* The follower puts those that go back in order, so they go back with all that came behind. */
    const struct command_way way = {f->peer->id, source, f->number, sequence};
    bool leads = !f->returns && proposer_leads(r->config.proposer);
    int rv =
        leads ? commands_add_relayed(r->config.queue, &way, command, fli_clock_ns()) : FL_ENOLEADER;
    if (rv == 0) {
        f->count++;
    } else {
        send_result(f, sequence, rv, NULL, slice(NULL, 0));
    }
}

static void command_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct relay_follower *f = ctx;
    struct fli_turn *turn = f->relay->config.host.turn;
    enum fli_turn_part part = fli_turn_enter(turn, FLI_TURN_PEERS);
    if (type == RELAY_COMMAND) {
        on_command(f, body);
    } else if (type != RELAY_PING) {
        close_follower(f, "a frame of unknown type");
    } else if (stream_send(f->stream, RELAY_PONG, NULL, 0) != 0) {
        close_follower(f, "too much is waiting to be sent");
    }
    fli_turn_leave(turn, part);
}

static void follower_lost_cb(void *ctx, const char *why)
{
    close_follower(ctx, why);
}

/* Each follower has one stream to the leader. A second one means that the follower has given up the
 * first. */
void relay_accept(struct relay *r, const struct peer_identity *peer, struct stream *stream)
{
    struct peer *p = peers_find(r->config.peers, peer->node_id);
    bool known = p != NULL && r->members != NULL && members_find(r->members, p->id) != NULL;
    struct relay_follower *f = known ? calloc(1, sizeof *f) : NULL;
    if (f == NULL) {
        stream_close(stream);
        return;
    }
    if (p->follower != NULL) {
        close_follower(p->follower, "the node called again");
    }
    struct stream_callbacks cbs = {.ctx = f, .frame = command_cb, .lost = follower_lost_cb};
    *f = (struct relay_follower){.relay = r, .peer = p, .stream = stream, .number = ++r->streams};
    p->follower = f;
    r->open++;
    (void)stream_start(stream, &cbs);
}

bool relay_has_follower(const struct relay *r, uint64_t id)
{
    const struct relay_follower *f = follower(r, id);
    return f != NULL && fli_clock_since_ms(stream_heard_ms(f->stream)) <= UNHEARD_MS;
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
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct relay_follower *f = r->config.peers->list[i].follower;
        int rv = f == NULL ? 0 : stream_send(f->stream, RELAY_PUSH, &part, 1);
        (void)rv; /* whoever reads too slowly hears of it from its own log, later */
    }
}

/* ---- all streams ---- */

void relay_set_election_ms(struct relay *r, unsigned election_ms)
{
    r->config.election_ms = election_ms;
}

static void tick_follower(struct relay_follower *f)
{
    if (fli_clock_since_ms(stream_heard_ms(f->stream)) > SILENCE_MS) {
        close_follower(f, "silence");
    }
}

void relay_tick(struct relay *r)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *p = &r->config.peers->list[i];
        if (p->relay != NULL) {
            tick_stream(p->relay);
        }
        if (p->follower != NULL) {
            tick_follower(p->follower);
        }
    }
    connect_leader(r);
}

void relay_flush(struct relay *r)
{
    unsigned left = r->open; /* this is done twice in each turn of the loop */
    for (unsigned i = 0; left > 0 && i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *p = &r->config.peers->list[i];
        if (p->relay != NULL) {
            left--;
            stream_flush(p->relay->stream);
        }
        if (p->follower != NULL) {
            left--;
            stream_flush(p->follower->stream);
        }
    }
}

bool relay_quiet(const struct relay *r)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct relay_stream *o = r->config.peers->list[i].relay;
        const struct relay_follower *f = r->config.peers->list[i].follower;
        if ((o != NULL && o->count > 0) ||
            (f != NULL && (f->count > 0 || !stream_idle(f->stream)))) {
            return false;
        }
    }
    return true;
}

/* Ends the streams to and from nodes that are not among these members; NULL: all. */
static void end_streams(struct relay *r, const struct members *members, const char *why)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *p = &r->config.peers->list[i];
        bool stays = members != NULL && members_find(members, p->id) != NULL;
        if (p->relay != NULL && !stays) {
            give_up(p->relay, why);
        }
        if (p->follower != NULL && !stays) {
            close_follower(p->follower, why);
        }
    }
}

void relay_set_members(struct relay *r, const struct members *members)
{
    r->members = members;
    end_streams(r, members, "the node is a member no more");
}

void relay_close(struct relay *r, const char *why)
{
    r->closed = true;
    relay_flush(r);
    end_streams(r, NULL, why);
}

bool relay_has_leader(const struct relay *r, uint64_t id)
{
    return stream_to(r, id) != NULL;
}

const struct metrics_histogram *relay_times(const struct relay *r)
{
    return &r->times;
}

uint64_t relay_sent(const struct relay *r)
{
    return r->sent;
}

int relay_create(const struct relay_config *config, struct relay **ret)
{
    struct relay *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    r->config = *config;
    r->config.queue->ctx = r;
    r->config.queue->answer = answered;
    metrics_histogram_init(&r->times, METRICS_RANGE_FAST);
    *ret = r;
    return 0;
}

void relay_destroy(struct relay *r)
{
    for (unsigned i = 0; r != NULL && i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *p = &r->config.peers->list[i];
        FLI_ASSERT(p->relay == NULL && p->relay_dials == NULL && p->follower == NULL);
    }
    free(r);
}
