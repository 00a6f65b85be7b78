/* wire.c: what nodes say to each other on streams, against a reference that sees both ends.
 *
 *   - A node accepts one stream of a kind from another at a time.
 *   - A snapshot is sent from its first byte to its last, as it is in the sender's file. Its
 *     receiver says that it has it when it has these bytes under that name.
 *   - A relayed command says of which client it is. Each is answered once, and after it was sent;
 *     what its leader says of it is understood. A node that ends in order waits for that.
 *     One that is sent behind a command which is given back is given back too. When the sender
 *     has heard of one it sends no more on that stream.
 *   - Whoever hears that its own start is over ends.
 *   - No node says of another that it has sent nonsense: all of them are correct. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "commands/relay.h"
#include "commands/relay_codec.h"
#include "snapshot/send.h"
#include "snapshot/format.h"
#include "node_clock.h"
#include "steps.h"

#define ASKED_MAX 4096u /* more than are unanswered on a stream */

enum asked_state { ASKED_NOT, ASKED_SENT, ASKED_HEARD };

struct sim_wire {
    /* of a snapshot: the sender's file when it began */
    uint8_t *file;
    size_t file_len, sent, heard, taken;
    uint64_t index, term;
    bool begun, done;
    /* of relayed commands */
    struct asked {
        uint64_t number;
        enum asked_state state;
    } * asked; /* NULL until the first */
    uint64_t last;
    uint64_t returned; /* the first that was given back; 0: none */
    unsigned open;     /* their sender waits for so many answers */
    bool ends;         /* it has heard that one was given back */
};

static struct sim_wire *wire_of(struct sim_conn *c)
{
    if (c->wire == NULL) {
        c->wire = fli_xcalloc(1, sizeof *c->wire);
    }
    return c->wire;
}

void sim_wire_free(struct sim_conn *c)
{
    if (c->wire != NULL) {
        free(c->wire->file);
        free(c->wire->asked);
        free(c->wire);
    }
}

/* ---- streams ---- */

void sim_wire_accepted(struct sim_conn *made)
{
    const struct sim_end *of = &made->end[1];
    unsigned open = 0;
    for (const struct sim_conn *c = made->sim->conns; c != NULL; c = c->next) {
        const struct sim_end *e = &c->end[1];
        open += c->kind == made->kind && c->end[0].node == made->end[0].node &&
                e->node == of->node && e->life == of->life && e->stream != NULL &&
                !e->stream->lost && !e->stream->closed;
    }
    SIM_CHECK(made->sim, made->kind == STREAM_RAFT || open <= 1,
              "node %u keeps %u streams of kind %d from node %u", of->node->index + 1, open,
              (int)made->kind, made->end[0].node->index + 1);
}

/* ---- snapshots ---- */

static bool is_sick(const struct sim_node *n)
{
    return n->rotten || n->disk.unseen || n->disk.troubled || n->disk.error_now;
}

static void begin_snapshot(struct sim_conn *c, struct fli_slice head)
{
    struct sim *s = c->sim;
    struct sim_wire *w = wire_of(c);
    const struct sim_node *from = c->end[0].node;
    char name[LOG_NAME_MAX + 1];
    size_t len = 0;
    SIM_CHECK(s, !w->begun && head.len == 24, "node %u begins a snapshot twice", from->index + 1);
    w->begun = true;
    w->index = fli_get_u64(head.data);
    w->term = fli_get_u64(head.data + 8);
    w->file_len = (size_t)fli_get_u64(head.data + 16);
    snapshot_name(w->index, w->term, false, name);
    const uint8_t *data = sim_device_data(from->disk.device, name, &len);
    if (data == NULL) {
        return; /* a newer one has taken its place */
    }
    SIM_CHECK(s, len == w->file_len, "node %u sends %zu bytes of snapshot %llu, which has %zu",
              from->index + 1, w->file_len, ull(w->index), len);
    w->file = fli_xmalloc(len);
    memcpy(w->file, data, len);
}

static void check_piece(struct sim_conn *c, struct fli_slice head, struct fli_slice piece)
{
    struct sim *s = c->sim;
    struct sim_wire *w = wire_of(c);
    unsigned from = c->end[0].node->index + 1;
    SIM_CHECK(s, w->begun && !w->done && fli_get_u64(head.data) == w->sent,
              "node %u sends byte %llu of a snapshot, and byte %zu is the next", from,
              ull(fli_get_u64(head.data)), w->sent);
    SIM_CHECK(s, piece.len > 0 && piece.len <= w->file_len - w->sent,
              "node %u sends more than its snapshot has", from);
    SIM_CHECK(s, w->file == NULL || memcmp(w->file + w->sent, piece.data, piece.len) == 0,
              "node %u sends other bytes than snapshot %llu has", from, ull(w->index));
    w->sent += piece.len;
    SIM_CHECK(s, w->sent <= w->taken + SNAPSHOT_WINDOW + SNAPSHOT_SEND_PIECE,
              "node %u sends more of a snapshot than the other side has asked for", from);
}

static void check_taken(struct sim_conn *c, struct fli_slice body)
{
    struct sim_wire *w = wire_of(c);
    uint64_t taken = fli_get_u64(body.data);
    SIM_CHECK(c->sim, taken <= w->heard && taken >= w->taken,
              "node %u says that it has %llu bytes of a snapshot, and has heard %zu",
              c->end[1].node->index + 1, ull(taken), w->heard);
    w->taken = (size_t)taken;
}

/* What it has is what was sent. A device that fails spoils it; so may the own snapshot of the
 * receiver at the same index, which may be another file. */
static void check_done(struct sim_conn *c, struct fli_slice code)
{
    struct sim *s = c->sim;
    struct sim_wire *w = wire_of(c);
    const struct sim_node *to = c->end[1].node;
    char name[LOG_NAME_MAX + 1];
    size_t len = 0;
    int error = -(int)fli_get_u32(code.data);
    bool sick = is_sick(to) || is_sick(c->end[0].node);
    SIM_CHECK(s, sick || (error != FL_EPROTO && error != FL_ECORRUPT),
              "node %u refuses a snapshot of node %u: %s", to->index + 1, c->end[0].node->index + 1,
              fl_err_name(error));
    if (error != 0) {
        return;
    }
    w->done = true;
    SIM_CHECK(s, w->heard == w->file_len, "node %u has a snapshot after %zu of %zu bytes",
              to->index + 1, w->heard, w->file_len);
    snapshot_name(w->index, w->term, false, name);
    const uint8_t *data = sim_device_data(to->disk.device, name, &len);
    SIM_CHECK(s,
              sick || w->file == NULL || data == NULL ||
                  (len == w->file_len && memcmp(data, w->file, len) == 0),
              "node %u has got another snapshot than node %u has sent", to->index + 1,
              c->end[0].node->index + 1);
    SIM_CHECK(s, replica_snapshot_index(to->node->replica) >= w->index,
              "node %u says that it has a snapshot, and has not installed it", to->index + 1);
}

static void snapshot_sent(struct sim_conn *c, uint8_t type, const struct fli_slice *parts,
                          unsigned n)
{
    if (type == SNAPSHOT_BEGIN) {
        c->end[0].node->opens[c->end[1].node->index].life = 0; /* it is open */
        begin_snapshot(c, parts[0]);
    } else if (type == SNAPSHOT_DATA && n == 2) {
        check_piece(c, parts[0], parts[1]);
    } else if (type == SNAPSHOT_TAKEN) {
        check_taken(c, parts[0]);
    } else if (type == SNAPSHOT_DONE) {
        check_done(c, parts[0]);
    }
}

/* ---- relayed commands ---- */

static struct asked *asked_as(struct sim_wire *w, uint64_t number)
{
    struct asked *a = w->asked == NULL ? NULL : &w->asked[number % ASKED_MAX];
    return a == NULL || a->number != number ? NULL : a;
}

bool __real_relay_send(struct relay *c, struct command *m);
bool __wrap_relay_send(struct relay *c, struct command *m);

static const struct node_ticket *sending; /* NULL: none is being given to a stream */

bool __wrap_relay_send(struct relay *c, struct command *m)
{
    sending = m->t;
    bool sent = __real_relay_send(c, m);
    sending = NULL;
    return sent;
}

static void command_sent(struct sim_conn *c, struct fli_slice head)
{
    struct sim *s = c->sim;
    struct sim_wire *w = wire_of(c);
    uint64_t number = fli_get_u64(head.data);
    unsigned from = c->end[0].node->index + 1;
    bool first = w->asked == NULL;
    SIM_CHECK(s, sending == NULL || fli_get_u64(head.data + 8) == sending->source,
              "node %u relays a command of client %llu as one of client %llu", from,
              ull(sending == NULL ? 0 : sending->source), ull(fli_get_u64(head.data + 8)));
    if (first) {
        w->asked = fli_xcalloc(ASKED_MAX, sizeof *w->asked);
    }
    SIM_CHECK(s, first || number > w->last, "node %u relays command %llu behind %llu", from,
              ull(number), ull(w->last));
    SIM_CHECK(s, !w->ends, "node %u relays a command behind one that came back", from);
    w->last = number;
    w->open++;
    w->asked[number % ASKED_MAX] = (struct asked){number, ASKED_SENT};
}

static bool is_returned(struct fli_slice head)
{
    return -(int)fli_get_u32(head.data + 8) == FL_ENOLEADER;
}

static void command_answered(struct sim_conn *c, struct fli_slice head)
{
    struct sim *s = c->sim;
    struct sim_wire *w = wire_of(c);
    uint64_t number = fli_get_u64(head.data);
    struct asked *a = asked_as(w, number);
    unsigned by = c->end[1].node->index + 1;
    SIM_CHECK(s, a != NULL && a->state == ASKED_HEARD,
              "node %u answers command %llu, which it has not got or has answered", by,
              ull(number));
    a->state = ASKED_NOT;
    if (is_returned(head)) {
        w->returned = w->returned != 0 && w->returned < number ? w->returned : number;
        return;
    }
    bool done = fli_get_u32(head.data + 8) == 0;
    SIM_CHECK(s, !done || w->returned == 0 || number < w->returned,
              "node %u carries out command %llu, and has given back %llu before it", by,
              ull(number), ull(w->returned));
}

static void check_understood(const struct sim_conn *c, struct fli_slice body)
{
    struct relay_answer a;
    int said = -(int)fli_get_u32(body.data + 8);
    int rv = relay_result_decode(body, &a);
    SIM_CHECK(c->sim, rv == 0 && a.status == said,
              "node %u is told %s by its leader, and takes it for %s", c->end[0].node->index + 1,
              fl_err_name(said), fl_err_name(rv != 0 ? rv : a.status));
}

static void relay_heard(struct sim_conn *c, unsigned side, uint8_t type, struct fli_slice body)
{
    struct sim_wire *w = wire_of(c);
    if (type == RELAY_COMMAND && side == 1) {
        struct asked *a = asked_as(w, fli_get_u64(body.data));
        FLI_ASSERT(a != NULL && a->state == ASKED_SENT);
        a->state = ASKED_HEARD;
    } else if (type == RELAY_RESULT) {
        FLI_ASSERT(w->open > 0);
        check_understood(c, body);
        w->open--;
        w->ends = w->ends || is_returned(body);
    }
}

/* Answers that are on their way are waited for, unless their leader is silent, or a member no
 * more. */
void sim_wire_closing(const struct stream *st)
{
    const struct sim_conn *c = st->conn;
    const struct sim_node *n = c->end[st->side].node;
    bool drains = n->power == SIM_STOPPING && sim_node_ms(n) - n->stopping_ms < SIM_DRAIN_MS / 2;
    bool over = st->lost || n->ghost || n->cut || (n->power != SIM_UP && !drains) ||
                n->failed != 0 || n->transport->closing;
    if (c->kind != STREAM_RELAY || st->side != 0 || c->wire == NULL || over) {
        return;
    }
    uint64_t silent_ms = sim_node_ms(n) - st->heard_ms;
    SIM_CHECK(n->sim,
              c->wire->open == 0 || silent_ms >= n->sim->options.election_ms ||
                  st->out.len > st->limits.out_max / 2 ||
                  members_find(&n->transport->members, c->end[1].node->index + 1) == NULL,
              "node %u closes a stream with %u commands that have no answer, heard %llu ms ago",
              n->index + 1, c->wire->open, ull(silent_ms));
}

/* ---- starts ---- */

static void check_hung_up(const struct sim_node *n, const struct starts_known *told)
{
    for (const struct sim_conn *c = n->sim->conns; c != NULL; c = c->next) {
        const struct sim_end *e = &c->end[1];
        bool open = e->node == n && e->life == n->life && e->stream != NULL && !e->stream->lost &&
                    !e->stream->closed && c->kind != STREAM_SNAPSHOT;
        SIM_CHECK(n->sim,
                  !open || c->end[0].node->index + 1 != told->id ||
                      c->incarnation != told->incarnation || c->start.number >= told->start.number,
                  "node %u hears that start %llu of node %llu is over, and keeps its stream",
                  n->index + 1, ull(c->start.number), ull(told->id));
    }
}

/* Called when the node has taken a message of Raft's stream. */
void sim_wire_took(struct sim_node *n, unsigned from, uint8_t type, struct fli_slice body)
{
    struct starts_message told;
    if (type != STARTS_MESSAGE_TYPE || n->failed != 0 || n->node->phase >= PHASE_CLOSE ||
        n->sim->orders.sabotage == SIM_SABOTAGE_OLDER_COPIES ||
        starts_message_decode(body, &told) != 0) {
        return;
    }
    for (unsigned i = 0; i < told.n; i++) {
        const struct starts_known *k = &told.list[i];
        if (k->id == n->node->config.id &&
            k->incarnation == n->node->record.own.now.identity.incarnation) {
            SIM_CHECK(n->sim, !start_is_past(n->node->record.own.now.starts.own, k->start),
                      "node %u hears that its start is over, and goes on", n->index + 1);
        } else if (configuration_server(replica_configuration(n->node->replica), k->incarnation) !=
                   NULL) {
            check_hung_up(n, k);
        }
    }
}

/* ---- all of them ---- */

void sim_wire_sent(const struct stream *st, uint8_t type, const struct fli_slice *parts, unsigned n)
{
    struct sim_conn *c = st->conn;
    const struct sim_node *by = c->end[st->side].node;
    if (by->ghost || by->cut) {
        return;
    }
    if (c->kind == STREAM_SNAPSHOT) {
        snapshot_sent(c, type, parts, n);
    } else if (c->kind == STREAM_RELAY && type == RELAY_COMMAND) {
        command_sent(c, parts[0]);
    } else if (c->kind == STREAM_RELAY && type == RELAY_RESULT) {
        command_answered(c, parts[0]);
    }
}

void sim_wire_heard(const struct stream *st, uint8_t type, struct fli_slice body)
{
    struct sim_conn *c = st->conn;
    if (c->kind == STREAM_SNAPSHOT && type == SNAPSHOT_DATA) {
        wire_of(c)->heard += body.len - 8;
    } else if (c->kind == STREAM_RELAY) {
        relay_heard(c, st->side, type, body);
    }
}

void sim_wire_said(struct sim_node *n, const char *text)
{
    static const char *const accusations[] = {
        "that no correct node sends", "is not understood",     "that is not understood",
        "nothing that was asked",     "of unknown type",       "does not follow the one",
        "that no follower",           "is not its to send on",
    };
    for (size_t i = 0; i < sizeof accusations / sizeof accusations[0]; i++) {
        SIM_CHECK(n->sim, strstr(text, accusations[i]) == NULL, "node %u says: %s", n->index + 1,
                  text);
    }
}
