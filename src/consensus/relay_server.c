/* relay_server.c: see relay_server.h. */
#include "consensus/relay_server.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "consensus/relay_codec.h"
#include "machine/batch.h"

/* A follower pings twice a second. One that is silent for so long is not counted on, since its
 * power may have gone; it may also have been stopped, so its commands are given up later. */
#define UNHEARD_MS 3000u
#define SILENCE_MS 10000u

/* A follower's stream. It is freed when the stream is closed and none of its tickets is out. */
struct follower {
    struct fli_list link;
    struct relay_server *server;
    uint64_t id;
    struct stream *stream; /* NULL once closed */
    uint32_t count;        /* its commands that have no answer */
    bool returns;          /* what it sends goes back, until it has heard that one did */
    uint64_t next;         /* sequence that says that it has not heard of that */
};

struct relay_ticket {
    struct node_ticket t;
    struct follower *follower;
    uint64_t sequence;
};

struct relay_server {
    struct relay_server_config config;
    struct fli_list followers; /* the newest record of a node has its `stream` and stands last */
};

static struct fli_slice slice(const void *data, size_t len)
{
    return (struct fli_slice){data, len};
}

/* ---- pushed events ---- */

/* Which follower has relayed a wait, only its leader of that time knew. So its end is pushed to all
 * of them, and those that do not have the wait ignore it. */
void relay_server_event(struct relay_server *s, const struct machine_event *e)
{
    bool ends = e->type == MACHINE_EVENT_GRANTED || e->type == MACHINE_EVENT_WAIT_ENDED;
    if (e->wait == 0 || e->index != 0 || !ends || !proposer_is_open(s->config.proposer)) {
        return;
    }
    uint8_t head[RELAY_EVENT_SIZE];
    relay_event_encode(e, head);
    struct fli_slice parts[3] = {slice(head, sizeof head), e->name, e->owner};
    FLI_LIST_FOREACH(pos, &s->followers)
    {
        const struct follower *f = FLI_CONTAINER_OF(pos, struct follower, link);
        int rv = f->stream == NULL ? 0 : stream_send(f->stream, RELAY_PUSH, parts, 3);
        (void)rv; /* whoever reads too slowly hears of it from its own log, later */
    }
}

/* ---- followers ---- */

static void maybe_free(struct follower *f)
{
    if (f->stream == NULL && f->count == 0) {
        fli_list_remove(&f->link);
        free(f);
    }
}

static void close_follower(struct follower *f, const char *why)
{
    if (f->stream == NULL) {
        return;
    }
    host_log(&f->server->config.host, f->count > 0 ? 2 : 4,
             "the stream from node %" PRIu64 " is closed: %s", f->id, why);
    stream_close(f->stream);
    f->stream = NULL;
    maybe_free(f);
}

/* The follower's record that has a stream; NULL: the follower has no stream to this node. */
static struct follower *find_follower(const struct relay_server *s, uint64_t id)
{
    FLI_LIST_FOREACH(pos, &s->followers)
    {
        struct follower *f = FLI_CONTAINER_OF(pos, struct follower, link);
        if (f->id == id && f->stream != NULL) {
            return f;
        }
    }
    return NULL;
}

/* ---- answers ---- */

static void send_result(struct follower *f, uint64_t sequence, int status,
                        const struct machine_result *result, struct fli_slice payload)
{
    uint8_t head[RELAY_RESULT_SIZE];
    if (f->stream == NULL) {
        return;
    }
    relay_result_encode(sequence, status, result, head);
    struct fli_slice parts[2] = {slice(head, sizeof head), payload};
    if (stream_send(f->stream, RELAY_RESULT, parts, status == 0 ? 2 : 1) != 0) {
        close_follower(f, "too much is waiting to be sent");
    }
}

static void send_returned(struct follower *f, uint64_t sequence)
{
    uint8_t head[8];
    if (f->stream == NULL) {
        return;
    }
    fli_put_u64(head, sequence);
    struct fli_slice part = slice(head, sizeof head);
    if (stream_send(f->stream, RELAY_RETURNED, &part, 1) != 0) {
        close_follower(f, "too much is waiting to be sent");
    }
}

/* Answers a command that came over a stream. One that is surely not done, since this node leads no
 * more, goes back. The follower's record stays until here, whatever happens to the send. */
static void answered_cb(struct node_ticket *t, int status, const struct machine_result *result,
                        struct fli_slice payload)
{
    struct relay_ticket *rt = FLI_CONTAINER_OF(t, struct relay_ticket, t);
    struct follower *f = rt->follower;
    if (status == FL_ENOLEADER) {
        f->returns = true;
        send_returned(f, rt->sequence);
    } else {
        send_result(f, rt->sequence, status, result, payload);
    }
    free(rt);
    f->count--;
    maybe_free(f);
}

/* ---- frames ---- */

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

/* Puts a command into the queue. 0, or why not. */
static int take(struct follower *f, uint64_t sequence, uint64_t source, struct fli_slice command)
{
    struct relay_ticket *rt = malloc(sizeof *rt);
    if (rt == NULL) {
        return FL_ENOMEM;
    }
    *rt = (struct relay_ticket){.t = {.cb = answered_cb, .via = f->id, .source = source},
                                .follower = f,
                                .sequence = sequence};
    int rv =
        commands_add(f->server->config.queue, &rt->t, command.data, command.len, fli_clock_ns());
    if (rv != 0) {
        free(rt);
        return rv;
    }
    f->count++;
    return 0;
}

static void on_command(struct follower *f, struct fli_slice body)
{
    struct relay_server *s = f->server;
    uint64_t sequence, source;
    struct fli_slice command;
    if (relay_command_decode(body, &sequence, &source, &command) != 0 || command.len == 0 ||
        command.len > MACHINE_COMMAND_LARGEST || !may_be_relayed(command.data[0]) ||
        f->count >= RELAY_WINDOW) {
        close_follower(f, "a command that no follower relays");
        return;
    }
    /* What was sent behind one that went back goes back too: until the follower has heard of that,
     * and leaves a number out. It puts them in order, and sends none while others have no answer,
     * so one that goes back first overtakes none of its own client. */
    f->returns = f->returns && sequence == f->next;
    f->next = sequence + 1;
    bool leads = !f->returns && proposer_is_open(s->config.proposer);
    int rv = leads ? take(f, sequence, source, command) : FL_ENOLEADER;
    if (rv == FL_ENOLEADER) {
        f->returns = true;
        send_returned(f, sequence);
    } else if (rv != 0) {
        send_result(f, sequence, rv, NULL, slice(NULL, 0));
    }
}

static void on_frame(struct follower *f, uint8_t type, struct fli_slice body)
{
    switch (type) {
    case RELAY_COMMAND:
        on_command(f, body);
        break;
    case RELAY_PING:
        if (stream_send(f->stream, RELAY_PONG, NULL, 0) != 0) {
            close_follower(f, "too much is waiting to be sent");
        }
        break;
    default:
        close_follower(f, "a frame of unknown type");
        break;
    }
}

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct follower *f = ctx;
    struct fli_turn *turn = f->server->config.host.turn;
    enum fli_turn_part part = fli_turn_enter(turn, FLI_TURN_PEERS);
    on_frame(f, type, body);
    fli_turn_leave(turn, part);
}

static void lost_cb(void *ctx, enum channel_end how, const char *why)
{
    close_follower(ctx, why);
}

void relay_server_accept(struct relay_server *s, const struct peer_identity *peer,
                         struct stream *stream)
{
    struct follower *f = calloc(1, sizeof *f);
    if (f == NULL) {
        stream_close(stream);
        return;
    }
    struct stream_callbacks cbs = {.ctx = f, .frame = frame_cb, .lost = lost_cb};
    f->server = s;
    f->id = peer->node_id;
    f->stream = stream;
    fli_list_init(&f->link);
    /* Each follower has one stream to the leader. A second one means that the follower has given up
     * the first. */
    struct follower *before = find_follower(s, peer->node_id);
    if (before != NULL) {
        close_follower(before, "the node called again");
    }
    fli_list_push(&s->followers, &f->link);
    (void)stream_start(stream, &cbs);
}

bool relay_server_connected(const struct relay_server *s, uint64_t peer_id)
{
    const struct follower *f = find_follower(s, peer_id);
    return f != NULL && fli_clock_since_ms(stream_heard_ms(f->stream)) <= UNHEARD_MS;
}

/* ---- the rest ---- */

void relay_server_tick(struct relay_server *s)
{
    FLI_LIST_FOREACH_SAFE(pos, next, &s->followers)
    {
        struct follower *f = FLI_CONTAINER_OF(pos, struct follower, link);
        if (f->stream != NULL && fli_clock_since_ms(stream_heard_ms(f->stream)) > SILENCE_MS) {
            close_follower(f, "silence");
        }
    }
}

void relay_server_flush(struct relay_server *s)
{
    FLI_LIST_FOREACH_SAFE(pos, next, &s->followers)
    {
        struct follower *f = FLI_CONTAINER_OF(pos, struct follower, link);
        if (f->stream != NULL) {
            stream_flush(f->stream);
        }
    }
}

bool relay_server_quiet(const struct relay_server *s)
{
    FLI_LIST_FOREACH(pos, &s->followers)
    {
        struct follower *f = FLI_CONTAINER_OF(pos, struct follower, link);
        if (f->count > 0 || (f->stream != NULL && !stream_idle(f->stream))) {
            return false;
        }
    }
    return true;
}

void relay_server_close(struct relay_server *s, const char *why)
{
    relay_server_flush(s);
    FLI_LIST_FOREACH_SAFE(pos, next, &s->followers)
    {
        close_follower(FLI_CONTAINER_OF(pos, struct follower, link), why);
    }
}

int relay_server_create(const struct relay_server_config *config, struct relay_server **ret)
{
    struct relay_server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->config = *config;
    fli_list_init(&s->followers);
    *ret = s;
    return 0;
}

void relay_server_destroy(struct relay_server *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(fli_list_empty(&s->followers));
    free(s);
}
