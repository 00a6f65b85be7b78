/* net.c: what goes between nodes. Stands in for transport.c, transport_dial.c and link.c.
 *
 * Streams begin with a hello of each side, which the other side's node judges, as transport.h says;
 * so a node with an empty disk is turned away. A relay stream is bytes in order, which may be held
 * up, and may break with any part of them delivered. Raft's messages are single: they may be lost,
 * late, twice, or overtake each other, as between one stream and the next. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "sim.h"

#define RETRANSMIT_MS 40u
#define RAFT_REDIAL_MS 100u

struct sim_end {
    struct sim_node *node;
    uint64_t life;
    struct stream *stream; /* until it has a link */
    struct link *link;
    bool linked, closed;
    uint64_t next_at;        /* bytes sent later arrive later */
    uint64_t sent, received; /* chunks of this end's sending */
};

/* One relay stream. Lives until the run ends. */
struct sim_conn {
    struct sim_conn *next;
    struct sim *sim;
    struct sim_end end[2]; /* 0 called, 1 was called */
};

/* What the node knows as a stream until it makes a link of it. */
struct stream {
    uv_tcp_t tcp;
    struct sim_conn *conn;
    unsigned side;
};

enum dial_kind { DIAL_RAFT, DIAL_RELAY };

/* A call. Lives until the run ends. */
struct sim_dial {
    struct sim_dial *next;
    enum dial_kind kind;
    struct sim_node *from, *to;
    uint64_t life;
    bool done;
    transport_link_cb cb;
    void *ctx;
    enum transport_verdict verdict;
    char reason[TRANSPORT_REASON_MAX];
    struct transport_identity answer;
    struct sim_conn *conn;
    uint64_t to_life;
};

struct transport {
    struct sim_node *node;
    struct transport_identity self;
    struct transport_callbacks cbs;
};

struct link {
    struct sim_conn *conn;
    unsigned side;
    struct link_callbacks cbs;
    struct stream *stream;
    struct fli_buf out, in;
    uint64_t appended, handed, heard_ms;
    bool closed, lost;
};

/* ---- links between places ---- */

static bool loses(struct sim *s, unsigned from, unsigned to)
{
    const struct sim_link *l = &s->links[from][to];
    return sim_permille(s, s->options.loss_permille) ||
           (l->lossy_until > s->now && sim_permille(s, l->lossy_permille));
}

/* ---- closing streams ---- */

static void lost_deliver(struct sim_event *e)
{
    struct sim_conn *c = e->p;
    struct link *l = c->end[e->a].link;
    if (l != NULL && !l->closed && !l->lost) {
        l->lost = true;
        l->cbs.lost(l->cbs.ctx, "the stream broke");
    }
}

/* The end of a stream travels like everything else. */
static void lost_fire(struct sim *s, struct sim_event *e)
{
    struct sim_conn *c = e->p;
    unsigned other = 1 - (unsigned)e->a;
    if (sim_net_blocked(s, c->end[other].node->index, e->node->index)) {
        sim_again(s, e, RETRANSMIT_MS);
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
    e->p = c;
    e->a = side;
}

static void hang_up(struct sim_conn *c, unsigned side)
{
    if (!c->end[side].closed) {
        c->end[side].closed = true;
        say_lost(c, 1 - side);
    }
}

static void dial_ended(struct sim_dial *d, bool welcome);

void sim_net_close(struct sim_node *n)
{
    for (struct sim_dial *d = n->sim->dials; d != NULL; d = d->next) {
        if (d->from == n && d->life == n->life && !d->done && d->kind == DIAL_RELAY) {
            dial_ended(d, false);
        }
    }
}

/* A stream is closed that nobody has made a link of. */
void sim_net_closing(struct sim *s, const uv_handle_t *h)
{
    for (struct sim_conn *c = s->conns; c != NULL; c = c->next) {
        for (unsigned side = 0; side < 2; side++) {
            struct sim_end *end = &c->end[side];
            if (end->stream != NULL && (const uv_handle_t *)&end->stream->tcp == h) {
                end->stream = NULL;
                hang_up(c, side);
            }
        }
    }
}

/* ---- raft's streams ---- */

static void hung_up_deliver(struct sim_event *e)
{
    struct sim_node *n = e->node;
    struct sim_peer_conn *p = &n->raft_conn[e->a];
    struct transport *t = n->transport;
    if (p->open && p->life == e->b && t != NULL) {
        p->open = false;
        t->cbs.hung_up(t->cbs.ctx, e->a + 1);
    }
}

static void hung_up_fire(struct sim *s, struct sim_event *e)
{
    if (sim_net_blocked(s, (unsigned)e->a, e->node->index)) {
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    sim_node_fire(s, e);
}

/* The stream that `n` writes raft's messages to has lost its other end. */
static void raft_stream_ends(struct sim_node *n, unsigned peer)
{
    struct sim *s = n->sim;
    if (!n->raft_conn[peer].open || n->power == SIM_DOWN) {
        return;
    }
    struct sim_event *e = sim_after(s, sim_net_delay(s, peer, n->index), hung_up_fire);
    e->node = n;
    e->life = n->life;
    e->deliver = hung_up_deliver;
    e->a = peer;
    e->b = n->raft_conn[peer].life;
}

void sim_net_reset(struct sim_node *n)
{
    struct sim *s = n->sim;
    for (struct sim_conn *c = s->conns; c != NULL; c = c->next) {
        for (unsigned side = 0; side < 2; side++) {
            struct sim_end *end = &c->end[side];
            if (end->node == n && end->life == n->life) {
                hang_up(c, side);
            }
        }
    }
    for (unsigned i = 0; i < s->n; i++) {
        raft_stream_ends(&s->nodes[i], n->index);
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
    raft_stream_ends(&s->nodes[i], j);
    raft_stream_ends(&s->nodes[j], i);
}

/* ---- link.h ---- */

static void stream_freed(uv_handle_t *h)
{
    struct stream *st = (struct stream *)(void *)h;
    struct link *l = st->tcp.data;
    void (*gone)(void *) = l->cbs.gone;
    void *gone_ctx = l->cbs.gone_ctx;
    raft_free(st);
    fli_buf_fini(&l->in);
    fli_buf_fini(&l->out);
    l->conn->end[l->side].link = NULL;
    free(l);
    gone(gone_ctx);
}

int link_create(uv_stream_t *stream, const struct link_callbacks *cbs, struct link **ret)
{
    struct stream *st = (struct stream *)(void *)stream;
    struct link *l = fli_xcalloc(1, sizeof *l);
    struct sim_end *end = &st->conn->end[st->side];
    l->conn = st->conn;
    l->side = st->side;
    l->cbs = *cbs;
    l->stream = st;
    l->heard_ms = end->node->loop_ms;
    fli_buf_init(&l->out, LINK_OUT_MAX);
    fli_buf_init(&l->in, LINK_OUT_MAX);
    st->tcp.data = l;
    end->stream = NULL;
    end->link = l;
    end->linked = true;
    *ret = l;
    return 0;
}

int link_send(struct link *l, uint8_t type, const struct fli_slice *parts, unsigned n)
{
    uint8_t head[5];
    size_t len = 1;
    for (unsigned i = 0; i < n; i++) {
        len += parts[i].len;
    }
    FLI_ASSERT(len <= LINK_FRAME_MAX);
    if (l->out.len + len + 4 > LINK_OUT_MAX) {
        return FL_ELIMIT;
    }
    fli_put_u32(head, (uint32_t)len);
    head[4] = type;
    int rv = fli_buf_append(&l->out, head, sizeof head);
    for (unsigned i = 0; i < n && rv == 0; i++) {
        rv = fli_buf_append(&l->out, parts[i].data, parts[i].len);
    }
    FLI_ASSERT(rv == 0);
    l->appended += len + 4;
    return 0;
}

static void take_frames(struct link *l)
{
    size_t at = 0;
    while (!l->closed && !l->lost && l->in.len - at >= 5) {
        uint32_t len = fli_get_u32(l->in.data + at);
        if (l->in.len - at - 4 < len) {
            break;
        }
        struct fli_slice body = {l->in.data + at + 5, len - 1};
        uint8_t type = l->in.data[at + 4];
        at += len + 4;
        l->cbs.frame(l->cbs.ctx, type, body);
    }
    memmove(l->in.data, l->in.data + at, l->in.len - at);
    l->in.len -= at;
}

static void chunk_deliver(struct sim_event *e)
{
    struct fli_buf *b = e->p;
    struct link *l = ((struct sim_conn *)(uintptr_t)e->c)->end[e->a].link;
    if (l == NULL || l->closed || l->lost) {
        return;
    }
    l->heard_ms = e->node->loop_ms;
    int rv = fli_buf_append(&l->in, b->data, b->len);
    FLI_ASSERT(rv == 0);
    take_frames(l);
}

static void chunk_drop(struct sim_event *e)
{
    fli_buf_fini(e->p);
    free(e->p);
}

/* In order: a chunk whose predecessor is held up waits for it; and what was sent right behind an
 * answer to a call, until the caller has read that. */
static void chunk_fire(struct sim *s, struct sim_event *e)
{
    struct sim_conn *c = (struct sim_conn *)(uintptr_t)e->c;
    struct sim_end *sender = &c->end[1 - e->a];
    if (c->end[e->a].closed || e->node->life != e->life) {
        sim_drop(s, e);
        return;
    }
    bool early = sender->received != e->b || !c->end[e->a].linked;
    if (early || sim_net_blocked(s, sender->node->index, e->node->index)) {
        sim_again(s, e, early ? 1 : RETRANSMIT_MS);
        return;
    }
    sender->received++;
    sim_node_fire(s, e);
}

void link_flush(struct link *l)
{
    struct sim_end *end = &l->conn->end[l->side];
    struct sim *s = l->conn->sim;
    struct sim_end *peer = &l->conn->end[1 - l->side];
    size_t len = l->out.len;
    if (len == 0 || l->closed || l->lost || end->closed || end->node->ghost) {
        return;
    }
    /* The socket's buffer may be full, also in the middle of a frame. */
    if (sim_permille(s, 20)) {
        len = 1 + sim_below(s, len);
    }
    struct fli_buf *b = fli_xcalloc(1, sizeof *b);
    fli_buf_init(b, LINK_OUT_MAX);
    int rv = fli_buf_append(b, l->out.data, len);
    FLI_ASSERT(rv == 0);
    memmove(l->out.data, l->out.data + len, l->out.len - len);
    l->out.len -= len;
    l->handed += len;
    uint64_t at = s->now + sim_net_delay(s, end->node->index, peer->node->index);
    if (loses(s, end->node->index, peer->node->index)) {
        at += RETRANSMIT_MS;
    }
    end->next_at = at > end->next_at ? at : end->next_at;
    struct sim_event *e = sim_after(s, end->next_at - s->now, chunk_fire);
    e->node = peer->node;
    e->life = peer->life;
    e->deliver = chunk_deliver;
    e->drop = chunk_drop;
    e->p = b;
    e->a = 1 - l->side;
    e->b = end->sent++;
    e->c = (uintptr_t)l->conn;
}

uint64_t link_appended(const struct link *l)
{
    return l->appended;
}

uint64_t link_handed(const struct link *l)
{
    return l->handed;
}

bool link_idle(const struct link *l)
{
    return l->out.len == 0;
}

uint64_t link_heard_ms(const struct link *l)
{
    return l->heard_ms;
}

void link_close(struct link *l)
{
    if (l == NULL || l->closed) {
        return;
    }
    struct sim_end *end = &l->conn->end[l->side];
    l->closed = true;
    if (!end->closed) {
        end->closed = true;
        if (!end->node->ghost) {
            say_lost(l->conn, 1 - l->side);
        }
    }
    uv_close((uv_handle_t *)&l->stream->tcp, stream_freed);
}

/* ---- transport.h ---- */

int transport_create(uv_loop_t *loop, const char *bind_address, const struct members *members,
                     const struct transport_identity *self, const struct transport_callbacks *cbs,
                     struct transport **ret, char *errmsg, size_t errmsg_size)
{
    struct transport *t = fli_xcalloc(1, sizeof *t);
    (void)bind_address;
    (void)members;
    (void)errmsg;
    (void)errmsg_size;
    t->node = FLI_CONTAINER_OF(loop, struct sim_node, loop);
    t->self = *self;
    t->cbs = *cbs;
    t->node->transport = t;
    *ret = t;
    return 0;
}

void transport_destroy(struct transport *t)
{
    if (t != NULL) {
        t->node->transport = NULL;
        free(t);
    }
}

struct raft_uv_transport *transport_raft(struct transport *t)
{
    (void)t;
    return NULL;
}

void transport_set_cluster(struct transport *t, uint64_t cluster_id, uint64_t admitted_index)
{
    t->self.cluster_id = cluster_id;
    t->self.admitted_index = admitted_index;
}

static struct stream *stream_make(struct sim_conn *c, unsigned side)
{
    struct stream *st = raft_calloc(1, sizeof *st);
    FLI_ASSERT(st != NULL);
    st->conn = c;
    st->side = side;
    st->tcp.loop = &c->end[side].node->loop;
    c->end[side].stream = st;
    return st;
}

static struct sim_conn *conn_make(struct sim_dial *d)
{
    struct sim *s = d->from->sim;
    struct sim_conn *c = fli_xcalloc(1, sizeof *c);
    c->sim = s;
    c->end[0].node = d->from;
    c->end[0].life = d->life;
    c->end[1].node = d->to;
    c->end[1].life = d->to->life;
    c->next = s->conns;
    s->conns = c;
    return c;
}

/* The caller hears the end of its call: an answer, or none in time. */
static void dial_ended(struct sim_dial *d, bool welcome)
{
    struct sim_node *n = d->from;
    d->done = true;
    if (!welcome && d->conn != NULL) {
        hang_up(d->conn, 0);
    }
    if (d->kind == DIAL_RAFT) {
        struct sim_peer_conn *p = &n->raft_conn[d->to->index];
        p->dialing = false;
        p->open = welcome && d->to->life == d->to_life && d->to->power != SIM_DOWN;
        p->life = d->to_life;
        p->retry_at = n->sim->now + RAFT_REDIAL_MS;
    } else if (welcome) {
        d->cb(d->ctx, 0, &d->answer, (uv_stream_t *)(void *)stream_make(d->conn, 0));
    } else {
        d->cb(d->ctx, FL_ENOCONN, NULL, NULL);
    }
}

static void answered_deliver(struct sim_event *e)
{
    struct sim_dial *d = e->p;
    struct transport *t = e->node->transport;
    char reason[TRANSPORT_REASON_MAX];
    if (d->done) {
        return;
    }
    if (d->verdict == 0) {
        t->cbs.absent(t->cbs.ctx, d->to->index + 1);
        dial_ended(d, false);
        return;
    }
    t->cbs.answered(t->cbs.ctx, d->to->index + 1, d->verdict, d->reason);
    dial_ended(d, d->verdict == TRANSPORT_WELCOME &&
                      t->cbs.judge(t->cbs.ctx, &d->answer, reason) == TRANSPORT_WELCOME);
}

static void timeout_deliver(struct sim_event *e)
{
    struct sim_dial *d = e->p;
    if (!d->done) {
        dial_ended(d, false);
    }
}

static void answered_fire(struct sim *s, struct sim_event *e)
{
    struct sim_dial *d = e->p;
    if (sim_net_blocked(s, d->to->index, d->from->index)) {
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    sim_node_fire(s, e);
}

static void answer(struct sim_dial *d)
{
    struct sim *s = d->from->sim;
    uint64_t ms = sim_net_delay(s, d->to->index, d->from->index);
    struct sim_event *e = sim_after(s, ms, answered_fire);
    e->node = d->from;
    e->life = d->life;
    e->deliver = answered_deliver;
    e->p = d;
}

static void called_deliver(struct sim_event *e)
{
    struct sim_dial *d = e->p;
    struct transport *t = e->node->transport;
    struct transport *from = d->from->transport;
    if (d->done || from == NULL || d->from->life != d->life || e->node->node == NULL ||
        e->node->node->phase >= PHASE_CLOSE) {
        return;
    }
    struct transport_identity self = from->self;
    d->verdict = t->cbs.judge(t->cbs.ctx, &self, d->reason);
    d->answer = t->self;
    d->to_life = e->node->life;
    if (d->verdict == TRANSPORT_WELCOME && d->kind == DIAL_RELAY) {
        d->conn = conn_make(d);
        t->cbs.link(t->cbs.ctx, &self, (uv_stream_t *)(void *)stream_make(d->conn, 1));
    }
    answer(d);
}

static void called_fire(struct sim *s, struct sim_event *e)
{
    struct sim_dial *d = e->p;
    if (sim_net_blocked(s, d->from->index, d->to->index)) {
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    if (d->to->power == SIM_DOWN || d->to->node == NULL) {
        answer(d);
        sim_drop(s, e);
        return;
    }
    e->life = d->to->life;
    sim_node_fire(s, e);
}

static void dial(struct sim_node *from, struct sim_node *to, enum dial_kind kind,
                 transport_link_cb cb, void *ctx)
{
    struct sim *s = from->sim;
    struct sim_dial *d = fli_xcalloc(1, sizeof *d);
    *d = (struct sim_dial){.kind = kind,
                           .from = from,
                           .to = to,
                           .life = from->life,
                           .cb = cb,
                           .ctx = ctx,
                           .next = s->dials};
    s->dials = d;
    struct sim_event *e = sim_after(s, sim_net_delay(s, from->index, to->index), called_fire);
    e->node = to;
    e->deliver = called_deliver;
    e->p = d;
    e = sim_to_node(from, TRANSPORT_CONNECT_MS, timeout_deliver);
    e->p = d;
}

int transport_link(struct transport *t, uint64_t peer_id, transport_link_cb cb, void *ctx)
{
    dial(t->node, &t->node->sim->nodes[peer_id - 1], DIAL_RELAY, cb, ctx);
    return 0;
}

/* ---- raft's messages ---- */

/* Entries in one block, as raft expects it of what it receives. */
static void copy_entries(struct raft_append_entries *m)
{
    const struct raft_entry *from = m->entries;
    size_t bytes = 0;
    size_t at = 0;
    if (m->n_entries == 0) {
        m->entries = NULL;
        return;
    }
    for (unsigned i = 0; i < m->n_entries; i++) {
        bytes += from[i].buf.len;
    }
    uint8_t *batch = raft_malloc(bytes);
    m->entries = raft_calloc(m->n_entries, sizeof *m->entries);
    FLI_ASSERT(batch != NULL && m->entries != NULL);
    for (unsigned i = 0; i < m->n_entries; i++) {
        m->entries[i] = from[i];
        m->entries[i].batch = batch;
        m->entries[i].buf.base = batch + at;
        memcpy(batch + at, from[i].buf.base, from[i].buf.len);
        at += from[i].buf.len;
    }
}

static struct raft_message *message_copy(const struct raft_message *m)
{
    struct raft_message *copy = fli_xmalloc(sizeof *copy);
    *copy = *m;
    if (m->type == RAFT_APPEND_ENTRIES) {
        copy_entries(&copy->append_entries);
    } else if (m->type == RAFT_INSTALL_SNAPSHOT) {
        struct raft_install_snapshot *is = &copy->install_snapshot;
        const struct raft_configuration *conf = &m->install_snapshot.conf;
        raft_configuration_init(&is->conf);
        for (unsigned i = 0; i < conf->n; i++) {
            int rv = raft_configuration_add(&is->conf, conf->servers[i].id,
                                            conf->servers[i].address, conf->servers[i].role);
            FLI_ASSERT(rv == 0);
        }
        is->data.base = raft_malloc(is->data.len);
        FLI_ASSERT(is->data.base != NULL);
        memcpy(is->data.base, m->install_snapshot.data.base, is->data.len);
    }
    return copy;
}

static void message_free(struct raft_message *m, bool contents)
{
    if (contents && m->type == RAFT_APPEND_ENTRIES && m->append_entries.n_entries > 0) {
        raft_free(m->append_entries.entries[0].batch);
        raft_free(m->append_entries.entries);
    }
    if (contents && m->type == RAFT_INSTALL_SNAPSHOT) {
        raft_configuration_close(&m->install_snapshot.conf);
        raft_free(m->install_snapshot.data.base);
    }
    free(m);
}

static void message_drop(struct sim_event *e)
{
    if (e->p != NULL) {
        message_free(e->p, true);
    }
}

static void message_deliver(struct sim_event *e)
{
    struct sim_node *n = e->node;
    struct raft_message *m = e->p;
    struct sim_node *from = &n->sim->nodes[e->a];
    if (!n->node->raft_live) {
        return;
    }
    e->p = NULL;
    m->server_id = from->index + 1;
    m->server_address = n->sim->members.list[from->index].address;
    n->recv(&n->node->io, m);
    message_free(m, false);
}

static void message_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *from = &s->nodes[e->a];
    if (e->node->life != e->life || e->node->power == SIM_DOWN) {
        from->raft_conn[e->node->index].open = false;
        sim_drop(s, e);
        return;
    }
    if (sim_net_blocked(s, from->index, e->node->index)) {
        /* A stream that is cut holds its bytes back; some of them until the cut is over. */
        if (sim_below(s, 2) == 0 && e->b < 100) {
            e->b++;
            sim_again(s, e, RETRANSMIT_MS);
        } else {
            s->marks->messages_lost++;
            sim_drop(s, e);
        }
        return;
    }
    sim_node_fire(s, e);
}

static void message_post(struct sim_node *from, struct sim_node *to, const struct raft_message *m)
{
    struct sim *s = from->sim;
    uint64_t ms = sim_net_delay(s, from->index, to->index);
    struct sim_event *e = sim_after(s, ms, message_fire);
    e->node = to;
    e->life = from->raft_conn[to->index].life;
    e->deliver = message_deliver;
    e->drop = message_drop;
    e->p = message_copy(m);
    e->a = from->index;
}

/* Sabotage: the leader is told that a follower has what was just sent to it; so many are spoken for
 * that it always has a majority. */
static bool spoken_for(struct sim_node *from, const struct sim_node *to)
{
    struct sim *s = from->sim;
    unsigned distance = (to->index + s->n - from->index) % s->n;
    return s->clients_n > 0 && distance <= s->n / 2;
}

static void forge_result(struct sim_node *from, struct sim_node *to, const struct raft_message *m)
{
    const struct raft_append_entries *ae = &m->append_entries;
    struct raft_message forged = {.type = RAFT_APPEND_ENTRIES_RESULT};
    forged.append_entries_result = (struct raft_append_entries_result){
        .version = 1, .term = ae->term, .last_log_index = ae->prev_log_index + ae->n_entries};
    struct sim_event *e = sim_after(from->sim, 0, sim_node_fire);
    e->node = from;
    e->life = from->life;
    e->deliver = message_deliver;
    e->drop = message_drop;
    e->p = message_copy(&forged);
    e->a = to->index;
}

void sim_net_send(struct sim_node *from, const struct raft_message *m)
{
    struct sim *s = from->sim;
    struct sim_node *to = &s->nodes[m->server_id - 1];
    struct sim_peer_conn *p = &from->raft_conn[to->index];
    if (!p->open) {
        if (!p->dialing && s->now >= p->retry_at) {
            p->dialing = true;
            dial(from, to, DIAL_RAFT, NULL, NULL);
        }
        return;
    }
    if (s->orders.sabotage == SIM_SABOTAGE_UNSAFE_ACK && m->type == RAFT_APPEND_ENTRIES &&
        m->append_entries.n_entries > 0 && spoken_for(from, to)) {
        forge_result(from, to, m);
    }
    if (loses(s, from->index, to->index)) {
        s->marks->messages_lost++;
        return;
    }
    message_post(from, to, m);
    if (sim_permille(s, s->options.twice_permille)) {
        s->marks->messages_twice++;
        message_post(from, to, m);
    }
}

void sim_net_fini(struct sim *s)
{
    while (s->conns != NULL) {
        struct sim_conn *c = s->conns;
        s->conns = c->next;
        free(c);
    }
    while (s->dials != NULL) {
        struct sim_dial *d = s->dials;
        s->dials = d->next;
        free(d);
    }
}
