/* net.c: connections between nodes. It replaces transport*.c and stream*.c; the real
 * outbound.c and frame.c run on it.
 *
 * A stream begins with the identity of each side, which the node on the other side checks, as
 * transport.h says; so a node with an empty disk is refused. Streams for the relay and for
 * snapshots are bytes in order, which may be delayed, and may break with any part of them
 * delivered. What a socket has no room for leaves once it has, as in stream.c, although its owner
 * says nothing more. Raft's messages are separate: they may be lost, late, repeated, or overtake
 * each other, as happens between successive streams. Bytes that stay unacknowledged for too long
 * end the stream for their sender. */
#include <stdlib.h>
#include <string.h>

#include "node_clock.h"
#include "wire.h"

static bool loses(struct sim *s, unsigned from, unsigned to)
{
    const struct sim_link *l = &s->links[from][to];
    return sim_permille(s, s->options.loss_permille) ||
           (l->lossy_until > s->now && sim_permille(s, l->lossy_permille));
}

/* ---- the ends of streams ---- */

static void stream_free(struct stream *st)
{
    frame_reader_fini(&st->in);
    fli_buf_fini(&st->out);
    while (st->first != NULL) {
        struct sim_frame *f = st->first;
        st->first = f->next;
        free(f);
    }
    st->conn->users--;
    free(st);
}

static void leave(struct stream *st)
{
    if (--st->depth == 0 && st->closed) {
        stream_free(st);
    }
}

static void say_owner(struct stream *st)
{
    st->depth++;
    st->cbs.lost(st->cbs.ctx, "the stream broke");
    leave(st);
}

void sim_stream_lose(struct stream *st)
{
    if (st == NULL || st->closed || st->lost) {
        return;
    }
    st->lost = true;
    if (st->started) {
        say_owner(st);
    }
}

static void lost_drop(struct sim_event *e)
{
    struct sim_conn *c = e->p;
    c->users--;
}

static void lost_deliver(struct sim_event *e)
{
    struct sim_conn *c = e->p;
    c->end[e->a].closed = true;
    sim_stream_lose(c->end[e->a].stream);
}

/* Whether there is a newer stream of the same kind between the same nodes. */
static bool is_retried(const struct sim_conn *of)
{
    for (const struct sim_conn *c = of->sim->conns; c != of && c != NULL; c = c->next) {
        if (c->kind == of->kind && c->end[0].node == of->end[0].node &&
            c->end[1].node == of->end[1].node) {
            return true;
        }
    }
    return false;
}

/* For how long something for the end `side` has still to wait. *late: since when it does. */
static uint64_t late_on(const struct sim_conn *c, unsigned side, enum sim_late kind, uint64_t *late)
{
    struct sim_node *n = c->end[side].node;
    bool lives = n->life == c->end[side].life;
    uint64_t ms = lives ? sim_late_ms(n, kind) : 0;
    if (ms != 0) {
        *late = *late == 0 ? sim_late_moment(n) : *late;
    } else if (*late != 0 && lives) {
        sim_late_came(n, kind, is_retried(c), *late);
    }
    *late = ms != 0 ? *late : 0;
    return ms;
}

/* The end of a stream takes time to arrive, like everything else. */
static void lost_fire(struct sim *s, struct sim_event *e)
{
    struct sim_conn *c = e->p;
    unsigned other = 1 - (unsigned)e->a;
    uint64_t late_ms = late_on(c, (unsigned)e->a, SIM_LATE_END, &e->c);
    if (late_ms != 0 || sim_net_blocked(s, c->end[other].node->index, e->node->index)) {
        sim_again(s, e, late_ms != 0 ? late_ms : RETRANSMIT_MS);
        return;
    }
    sim_node_fire(s, e);
}

/* Tells the end `side` that the other one is gone. */
static void say_lost(struct sim_conn *c, unsigned side)
{
    struct sim *s = c->sim;
    struct sim_end *other = &c->end[1 - side];
    uint64_t ms = 1 + (other->next_at > s->now ? other->next_at - s->now : 0);
    struct sim_event *e = sim_after(s, ms, lost_fire);
    e->node = c->end[side].node;
    e->life = c->end[side].life;
    e->deliver = lost_deliver;
    e->drop = lost_drop;
    e->p = c;
    c->users++;
    e->a = side;
}

void sim_conn_hang_up(struct sim_conn *c, unsigned side)
{
    if (!c->end[side].closed) {
        c->end[side].closed = true;
        say_lost(c, 1 - side);
    }
}

/* Bytes of `side` were not acknowledged for too long. Its own system gives the stream up, and the
 * other side learns of it when it can. */
static void give_up(struct sim_conn *c, unsigned side)
{
    struct sim *s = c->sim;
    if (c->end[side].closed) {
        return;
    }
    s->marks->streams_given_up++;
    sim_conn_hang_up(c, side);
    struct sim_event *e = sim_after(s, 0, sim_node_fire);
    e->node = c->end[side].node;
    e->life = c->end[side].life;
    e->deliver = lost_deliver;
    e->drop = lost_drop;
    e->p = c;
    c->users++;
    e->a = side;
}

void sim_net_reset(struct sim_node *n)
{
    for (struct sim_conn *c = n->sim->conns; c != NULL; c = c->next) {
        for (unsigned side = 0; side < 2; side++) {
            struct sim_end *end = &c->end[side];
            if (end->node == n && end->life == n->life) {
                sim_conn_hang_up(c, side);
            }
        }
    }
}

void sim_net_break(struct sim *s, unsigned i, unsigned j)
{
    for (struct sim_conn *c = s->conns; c != NULL; c = c->next) {
        unsigned a = c->end[0].node->index;
        unsigned b = c->end[1].node->index;
        if (((a == i && b == j) || (a == j && b == i)) && !c->end[0].closed && !c->end[1].closed) {
            c->end[0].closed = true;
            c->end[1].closed = true;
            say_lost(c, 0);
            say_lost(c, 1);
            s->marks->streams_broken++;
        }
    }
}

/* ---- messages of Raft ---- */

static struct sim_conn *conn_of(const struct sim_event *e)
{
    return (struct sim_conn *)(uintptr_t)e->c;
}

/* Bytes on their way to the end `to`. */
static void carry(struct sim_event *e, struct sim_conn *c, unsigned to)
{
    e->node = c->end[to].node;
    e->life = c->end[to].life;
    e->a = to;
    e->c = (uintptr_t)c;
    c->users++;
}

static void message_drop(struct sim_event *e)
{
    conn_of(e)->users--;
    free(e->p);
}

static void message_deliver(struct sim_event *e)
{
    struct sim_conn *c = conn_of(e);
    struct stream *st = c->end[e->a].stream;
    const struct sim_frame *f = e->p;
    if (st == NULL || st->closed || st->lost || !st->started) {
        return;
    }
    st->heard_ms = sim_node_ms(e->node);
    st->depth++;
    st->cbs.frame(st->cbs.ctx, f->type, (struct fli_slice){f->bytes, f->len});
    sim_wire_took(e->node, c->end[1 - e->a].node->index + 1, f->type,
                  (struct fli_slice){f->bytes, f->len});
    leave(st);
}

static void message_fire(struct sim *s, struct sim_event *e)
{
    struct sim_conn *c = conn_of(e);
    const struct sim_end *to = &c->end[e->a];
    unsigned from = c->end[1 - e->a].node->index;
    if (to->closed || e->node->life != e->life || e->node->power == SIM_DOWN) {
        sim_drop(s, e);
        return;
    }
    const struct sim_link *l = &s->links[from][e->node->index];
    if (l->rounds_at != 0 && ((const struct sim_frame *)e->p)->type == MESSAGE_ROUND_RESULT) {
        if (l->rounds_at > s->now) {
            sim_again(s, e, 1);
        } else {
            sim_node_fire(s, e);
        }
        return;
    }
    if (sim_net_blocked(s, from, e->node->index)) {
        /* A stream that is cut keeps its bytes back; some of them until the cut is over. */
        e->b += RETRANSMIT_MS;
        if (e->b > c->unacked_ms) {
            give_up(c, 1 - (unsigned)e->a);
        }
        if (sim_below(s, 2) == 0 && e->b < 100 * RETRANSMIT_MS) {
            sim_again(s, e, RETRANSMIT_MS);
        } else {
            s->marks->messages_lost++;
            sim_drop(s, e);
        }
        return;
    }
    sim_node_fire(s, e);
}

static void message_post(struct sim_conn *c, unsigned side, const struct sim_frame *f)
{
    struct sim *s = c->sim;
    struct sim_end *from = &c->end[side];
    struct sim_end *to = &c->end[1 - side];
    uint64_t at = s->now + sim_net_delay(s, from->node->index, to->node->index);
    struct sim_frame *copy = fli_xmalloc(sizeof *copy + f->len);
    memcpy(copy, f, sizeof *f + f->len);
    struct sim_event *e = sim_after(s, at - s->now, message_fire);
    carry(e, c, 1 - side);
    e->deliver = message_deliver;
    e->drop = message_drop;
    e->p = copy;
    from->next_at = at > from->next_at ? at : from->next_at;
}

/* Sabotage: the leader is told that a follower has the entries just sent to it. It is told so for
 * enough followers that it always has a majority. */
static void forge_result(struct sim_conn *c, const struct sim_frame *f)
{
    struct sim *s = c->sim;
    struct sim_node *leader = c->end[0].node;
    struct sim_node *spoken_for = c->end[1].node;
    unsigned distance = (spoken_for->index + s->n - leader->index) % s->n;
    struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    struct raft_message m;
    struct message_body body;
    if (s->clients_n == 0 || distance > s->n / 2 ||
        message_decode(f->type, (struct fli_slice){f->bytes, f->len}, entries, &m) != 0 ||
        m.type != RAFT_APPEND_ENTRIES || m.append_entries.n_entries == 0) {
        return;
    }
    struct raft_message forged = {.type = RAFT_APPEND_ENTRIES_RESULT};
    forged.append_entries_result = (struct raft_append_entries_result){
        .version = 1,
        .term = m.append_entries.term,
        .last_log_index = m.append_entries.prev_log_index + m.append_entries.n_entries};
    int rv = message_encode(&forged, &body);
    FLI_ASSERT(rv == 0);
    /* It takes the same way as the follower's own messages. */
    for (struct sim_conn *back = s->conns; back != NULL; back = back->next) {
        if (back->kind != STREAM_RAFT || back->end[0].node != spoken_for ||
            back->end[1].node != leader || back->end[1].closed) {
            continue;
        }
        struct sim_frame *answer = fli_xcalloc(1, sizeof *answer + 256);
        answer->type = body.type;
        for (unsigned i = 0; i < body.n; i++) {
            FLI_ASSERT(answer->len + body.parts[i].len <= 256);
            memcpy(answer->bytes + answer->len, body.parts[i].data, body.parts[i].len);
            answer->len += body.parts[i].len;
        }
        struct sim_event *e = sim_after(s, 0, sim_node_fire);
        carry(e, back, 1);
        e->life = leader->life;
        e->deliver = message_deliver;
        e->drop = message_drop;
        e->p = answer;
        return;
    }
}

static void flush_message(struct stream *st, const struct sim_frame *f)
{
    struct sim_conn *c = st->conn;
    struct sim *s = c->sim;
    unsigned from = c->end[st->side].node->index;
    unsigned to = c->end[1 - st->side].node->index;
    if (s->orders.sabotage == SIM_SABOTAGE_UNSAFE_ACK) {
        forge_result(c, f);
    }
    if (loses(s, from, to)) {
        s->marks->messages_lost++;
        return;
    }
    message_post(c, st->side, f);
    if (sim_permille(s, s->options.twice_permille)) {
        s->marks->messages_twice++;
        message_post(c, st->side, f);
    }
}

static void flush_messages(struct stream *st)
{
    while (st->first != NULL) {
        struct sim_frame *f = st->first;
        st->first = f->next;
        st->handed += FRAME_HEADER_SIZE + f->len;
        flush_message(st, f);
        free(f);
    }
    st->last = &st->first;
}

/* ---- bytes in order ---- */

static bool show(void *ctx, uint8_t type, struct fli_slice body)
{
    struct stream *st = ctx;
    sim_wire_heard(st, type, body);
    st->cbs.frame(st->cbs.ctx, type, body);
    return !st->closed && !st->lost;
}

static void chunk_deliver(struct sim_event *e)
{
    struct fli_buf *b = e->p;
    struct stream *st = conn_of(e)->end[e->a].stream;
    if (st == NULL || st->closed || st->lost) {
        return;
    }
    st->heard_ms = sim_node_ms(e->node);
    st->depth++;
    const char *why = frame_reader_feed(&st->in, b->data, b->len, show, st);
    SIM_CHECK(e->node->sim, why == NULL, "node %u cannot read a stream: %s", e->node->index + 1,
              why);
    leave(st);
}

static void chunk_drop(struct sim_event *e)
{
    conn_of(e)->users--;
    fli_buf_fini(e->p);
    free(e->p);
}

/* Delivers in order: a chunk waits for a delayed predecessor. Bytes sent right behind the answer to
 * a call wait until the caller has read that answer. */
static void chunk_fire(struct sim *s, struct sim_event *e)
{
    struct sim_conn *c = conn_of(e);
    struct sim_end *to = &c->end[e->a];
    struct sim_end *sender = &c->end[1 - e->a];
    if (to->closed || e->node->life != e->life) {
        sim_drop(s, e);
        return;
    }
    bool early = sender->received != e->b || to->stream == NULL || !to->stream->started;
    bool blocked = sim_net_blocked(s, sender->node->index, e->node->index);
    uint64_t late_ms = early || blocked ? 0 : late_on(c, (unsigned)e->a, SIM_LATE_BYTES, &to->late);
    if (late_ms != 0) {
        sim_again(s, e, late_ms);
        return;
    }
    if (early || blocked) {
        if (blocked && sender->blocked_since == 0) {
            sender->blocked_since = s->now;
        } else if (blocked && s->now - sender->blocked_since > c->unacked_ms) {
            give_up(c, 1 - (unsigned)e->a);
        }
        sim_again(s, e, early ? 1 : RETRANSMIT_MS);
        return;
    }
    sender->blocked_since = 0;
    sender->received++;
    sim_node_fire(s, e);
}

static void conn_drop(struct sim_event *e)
{
    conn_of(e)->users--;
}

static void drained_deliver(struct sim_event *e)
{
    struct stream *st = conn_of(e)->end[e->a].stream;
    if (st != NULL && !st->closed && !st->lost) {
        uint64_t before = st->handed;
        st->draining = false;
        stream_flush(st);
        e->node->sim->marks->rests_sent += st->handed > before;
    }
}

/* There is room again when the other side has told of what it got. */
static void drain(struct stream *st)
{
    struct sim_end *end = &st->conn->end[st->side];
    struct sim *s = st->conn->sim;
    unsigned other = st->conn->end[1 - st->side].node->index;
    uint64_t ms = end->next_at - s->now + sim_net_delay(s, other, end->node->index);
    struct sim_event *e = sim_after(s, ms, sim_node_fire);
    carry(e, st->conn, st->side);
    e->deliver = drained_deliver;
    e->drop = conn_drop;
    st->draining = true;
}

static void flush_bytes(struct stream *st)
{
    struct sim_end *end = &st->conn->end[st->side];
    struct sim_end *peer = &st->conn->end[1 - st->side];
    struct sim *s = st->conn->sim;
    size_t len = st->out.len;
    if (len == 0 || st->draining) {
        return;
    }
    /* The socket's buffer may be full, even in the middle of a frame. */
    if (sim_permille(s, 20)) {
        len = 1 + sim_below(s, len);
    }
    struct fli_buf *b = fli_xcalloc(1, sizeof *b);
    fli_buf_init(b, STREAM_OUT_MAX);
    int rv = fli_buf_append(b, st->out.data, len);
    FLI_ASSERT(rv == 0);
    fli_buf_consume(&st->out, len);
    st->handed += len;
    uint64_t at = s->now + sim_net_delay(s, end->node->index, peer->node->index);
    if (loses(s, end->node->index, peer->node->index)) {
        at += RETRANSMIT_MS;
    }
    end->next_at = at > end->next_at ? at : end->next_at;
    struct sim_event *e = sim_after(s, end->next_at - s->now, chunk_fire);
    carry(e, st->conn, 1 - st->side);
    e->deliver = chunk_deliver;
    e->drop = chunk_drop;
    e->p = b;
    e->b = end->sent++;
    if (st->out.len > 0) {
        drain(st);
    }
}

/* ---- stream.h ---- */

bool stream_start(struct stream *st, const struct stream_callbacks *cbs)
{
    FLI_ASSERT(!st->started);
    st->cbs = *cbs;
    st->started = true;
    if (st->lost) {
        say_owner(st);
        return false;
    }
    return true;
}

static int append_message(struct stream *st, uint8_t type, const struct fli_slice *parts,
                          unsigned n, size_t len)
{
    struct sim_frame *f = fli_xmalloc(sizeof *f + len);
    size_t at = 0;
    f->next = NULL;
    f->type = type;
    f->len = len;
    for (unsigned i = 0; i < n; i++) {
        memcpy(f->bytes + at, parts[i].data, parts[i].len);
        at += parts[i].len;
    }
    *st->last = f;
    st->last = &f->next;
    st->appended += FRAME_HEADER_SIZE + len;
    return 0;
}

int stream_send(struct stream *st, uint8_t type, const struct fli_slice *parts, unsigned n)
{
    uint8_t head[FRAME_HEADER_SIZE];
    size_t len = 0;
    FLI_ASSERT(!st->closed && n <= STREAM_PARTS_MAX);
    for (unsigned i = 0; i < n; i++) {
        len += parts[i].len;
    }
    if (len > st->limits.frame_max) {
        return FL_EINVAL;
    }
    if (st->lost) {
        return FL_ENOCONN;
    }
    if (st->conn->kind == STREAM_RAFT) {
        return append_message(st, type, parts, n, len);
    }
    if (st->out.len + len + sizeof head > st->limits.out_max) {
        return FL_ELIMIT;
    }
    frame_header_encode(type, parts, n, head);
    int rv = fli_buf_append(&st->out, head, sizeof head);
    for (unsigned i = 0; i < n && rv == 0; i++) {
        rv = fli_buf_append(&st->out, parts[i].data, parts[i].len);
    }
    FLI_ASSERT(rv == 0);
    st->appended += len + sizeof head;
    sim_wire_sent(st, type, parts, n);
    return 0;
}

void stream_flush(struct stream *st)
{
    if (st->appended == st->handed) {
        return;
    }
    struct sim_end *end = &st->conn->end[st->side];
    sim_point(end->node);
    if (st->closed || st->lost || end->closed || end->node->ghost) {
        return;
    }
    if (st->conn->kind == STREAM_RAFT) {
        flush_messages(st);
    } else {
        flush_bytes(st);
    }
}

uint64_t stream_appended(const struct stream *st)
{
    return st->appended;
}

uint64_t stream_handed(const struct stream *st)
{
    return st->handed;
}

size_t stream_unsent(const struct stream *st)
{
    return (size_t)(st->appended - st->handed);
}

uint64_t stream_heard_ms(const struct stream *st)
{
    return st->heard_ms;
}

void stream_close(struct stream *st)
{
    if (st == NULL || st->closed) {
        return;
    }
    struct sim_end *end = &st->conn->end[st->side];
    struct transport *t = end->node->transport;
    sim_wire_closing(st);
    st->closed = true;
    end->stream = NULL;
    if (end->node->ghost) {
        end->closed = true;
    } else {
        sim_conn_hang_up(st->conn, st->side);
    }
    if (st->depth == 0) {
        stream_free(st);
    }
    FLI_ASSERT(t->streams > 0);
    t->streams--;
    sim_transport_maybe_closed(t);
}
