/* net_dial.c: opening streams between nodes. It replaces transport*.c; see net.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node_clock.h"
#include "members.h"
#include "wire.h"

#define SIM_UNDECIDED_MAX 4096u /* a second of a stalled disk leaves a hundred, most of them over */

int transport_create(uv_loop_t *loop, const struct transport_config *config,
                     const struct transport_callbacks *cbs, struct transport **ret, char *errmsg,
                     size_t errmsg_size)
{
    struct transport *t = fli_xcalloc(1, sizeof *t);
    t->handle.loop = loop;
    t->node = FLI_CONTAINER_OF(loop, struct sim_node, loop);
    t->self = config->self;
    t->members = config->members;
    memcpy(t->limits, config->limits, sizeof t->limits);
    t->connect_ms = config->connect_ms;
    t->unacked_ms = config->unacked_ms;
    t->cbs = *cbs;
    t->node->transport = t;
    *ret = t;
    return 0;
}

bool transport_is_at(const struct transport *t, const char *address)
{
    char host[256];
    uint16_t port;
    return address_split(address, host, &port) == 0 && port == t->node->listens;
}

void transport_log(struct transport *t, int level, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    t->cbs.log(t->cbs.ctx, level, text);
}

int transport_start(struct transport *t, char *errmsg, size_t errmsg_size)
{
    t->started = true;
    return 0;
}

void transport_destroy(struct transport *t)
{
    if (t != NULL) {
        FLI_ASSERT(t->streams == 0);
        t->node->transport = NULL;
        free(t);
    }
}

struct peer_identity *transport_self(struct transport *t)
{
    return &t->self;
}

/* Loses streams that a node has opened; 0: that nodes have which are no members any more. */
static void lose(struct transport *t, uint64_t id)
{
    struct sim_node *n = t->node;
    for (struct sim_conn *c = n->sim->conns; c != NULL; c = c->next) {
        uint64_t from = c->end[0].node->index + 1;
        bool theirs = id != 0 ? from == id : members_find(&t->members, from) == NULL;
        if (theirs && c->end[1].node == n && c->end[1].life == n->life &&
            c->end[1].stream != NULL) {
            sim_stream_lose(c->end[1].stream);
        }
    }
}

void transport_hang_up(struct transport *t, uint64_t peer_id, const char *why)
{
    lose(t, peer_id);
}

static void dial_ended(struct sim_dial *d, int status);

/* Ends calls to nodes that are no members any more. */
static void forsake(struct transport *t)
{
    struct sim_node *n = t->node;
    for (struct sim_dial *d = n->sim->dials; d != NULL; d = d->next) {
        if (d->from == n && d->life == n->life && !d->done &&
            members_find(&t->members, d->to->index + 1) == NULL) {
            dial_ended(d, FL_ENOCONN);
        }
    }
}

void transport_set_members(struct transport *t, const struct members *members)
{
    t->members = *members;
    lose(t, 0);
    forsake(t);
}

void transport_get_security(const struct transport *t, struct transport_security *ret)
{
    *ret = (struct transport_security){.trust = TRANSPORT_TRUSTS_ALL};
}

void transport_set_times(struct transport *t, unsigned connect_ms, unsigned answer_ms,
                         unsigned unacked_ms)
{
    (void)t; /* who dials here is answered, or the network says that nobody is there */
}

void transport_reload(struct transport *t)
{
}

static struct stream *stream_make(struct sim_conn *c, unsigned side)
{
    struct stream *st = fli_xcalloc(1, sizeof *st);
    struct sim_node *n = c->end[side].node;
    st->conn = c;
    st->side = side;
    st->limits = n->transport->limits[c->kind];
    st->last = &st->first;
    st->heard_ms = sim_node_ms(n);
    st->lost = c->end[side].closed; /* the end of the other side has overtaken its answer */
    frame_reader_init(&st->in, st->limits.frame_max);
    fli_buf_init(&st->out, STREAM_OUT_MAX);
    c->end[side].stream = st;
    c->users++;
    n->transport->streams++;
    return st;
}

/* Now and then those go that are over: many times as many come and go in a long run as are there at
 * a time, and each change of a node looks at all of them. */
static void sweep_conns(struct sim *s)
{
    if (s->conns_n < s->conns_max) {
        return;
    }
    for (struct sim_conn **at = &s->conns; *at != NULL;) {
        struct sim_conn *c = *at;
        if (c->users > 0 || !c->end[0].closed || !c->end[1].closed) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        s->conns_n--;
        sim_wire_free(c);
        free(c);
    }
    s->conns_max = 2 * s->conns_n + 32;
}

static void sweep_dials(struct sim *s)
{
    if (s->dials_n < s->dials_max) {
        return;
    }
    for (struct sim_dial **at = &s->dials; *at != NULL;) {
        struct sim_dial *d = *at;
        if (d->users > 0) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        s->dials_n--;
        if (d->conn != NULL) {
            d->conn->users--;
        }
        free(d);
    }
    s->dials_max = 2 * s->dials_n + 32;
}

static struct sim_conn *conn_make(struct sim_dial *d)
{
    struct sim *s = d->from->sim;
    sweep_conns(s);
    struct sim_conn *c = fli_xcalloc(1, sizeof *c);
    c->sim = s;
    c->kind = d->kind;
    c->unacked_ms = d->from->transport->unacked_ms;
    c->end[0].node = d->from;
    c->end[0].life = d->life;
    c->incarnation = d->asked.incarnation;
    c->start = d->asked.start;
    c->end[1].node = d->to;
    c->end[1].life = d->to->life;
    c->users = 1; /* the call */
    c->next = s->conns;
    s->conns = c;
    s->conns_n++;
    return c;
}

/* Tells the caller the end of its call. */
static void dial_ended(struct sim_dial *d, int status)
{
    d->done = true;
    if (status != 0 && d->conn != NULL) {
        sim_conn_hang_up(d->conn, 0);
    }
    d->cb(d->ctx, status, status == 0 ? &d->answer : NULL,
          status == 0 ? stream_make(d->conn, 0) : NULL);
}

static void dial_drop(struct sim_event *e)
{
    struct sim_dial *d = e->p;
    d->users--;
}

static void dial_carry(struct sim_event *e, struct sim_dial *d, void (*deliver)(struct sim_event *))
{
    e->deliver = deliver;
    e->drop = dial_drop;
    e->p = d;
    d->users++;
}

/* The call waits for the disk of this node; transport_check_again() goes on with it. */
static void leave_undecided(struct sim_dial *d, struct sim_node *n)
{
    d->undecided = n;
    d->undecided_life = n->life;
    d->users++;
    n->sim->undecided_n++;
    n->sim->marks->handshakes_waited++;
}

static void check_answer(struct sim_dial *d, struct transport *t)
{
    char reason[HANDSHAKE_REASON_MAX];
    enum handshake_verdict ours = d->verdict != HANDSHAKE_WELCOME
                                      ? HANDSHAKE_WELCOME
                                      : t->cbs.check(t->cbs.ctx, &d->answer, reason);
    if (d->verdict == HANDSHAKE_WELCOME) {
        sim_members_check_welcome(t->node, &d->answer, ours);
        sim_members_check_went_back(t->node, &d->answer, ours);
    }
    if (d->done) {
        return; /* the check has ended it */
    }
    if (ours == HANDSHAKE_UNDECIDED) {
        leave_undecided(d, t->node);
        return;
    }
    if (ours != HANDSHAKE_WELCOME) {
        dial_ended(d, FL_EDENIED);
        return;
    }
    dial_ended(d, d->verdict == HANDSHAKE_WELCOME ? 0 : FL_EDENIED);
    t->cbs.answered(t->cbs.ctx, d->to->index + 1, d->verdict, d->reason);
    if (d->verdict == HANDSHAKE_WELCOME) {
        sim_members_welcomed(t->node);
    }
}

static void answered_deliver(struct sim_event *e)
{
    struct sim_dial *d = e->p;
    struct transport *t = e->node->transport;
    if (d->done || t == NULL || t->closing) {
        return;
    }
    if (d->verdict == 0) {
        dial_ended(d, FL_ENOCONN);
        t->cbs.absent(t->cbs.ctx, d->to->index + 1);
        return;
    }
    d->answer.welcomes = true;
    check_answer(d, t);
}

static void timeout_deliver(struct sim_event *e)
{
    struct sim_dial *d = e->p;
    if (!d->done) {
        dial_ended(d, FL_ENOCONN);
    }
}

/* Whether its caller calls the same node for the same again, or has a stream of that kind. */
static bool is_retried(const struct sim_dial *of)
{
    for (const struct sim_dial *d = of->from->sim->dials; d != of && d != NULL; d = d->next) {
        if (d->from == of->from && d->life == of->life && d->to == of->to && d->kind == of->kind) {
            return true;
        }
    }
    return false;
}

static void answered_fire(struct sim *s, struct sim_event *e)
{
    struct sim_dial *d = e->p;
    uint64_t late_ms = d->from->life == d->life ? sim_late_ms(d->from, SIM_LATE_CALL) : 0;
    if (late_ms != 0) {
        d->late = sim_late_moment(d->from);
        sim_again(s, e, late_ms);
        return;
    }
    if (d->late != 0 && d->from->life == d->life) {
        sim_late_came(d->from, SIM_LATE_CALL, is_retried(d), d->late);
    }
    d->late = 0;
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
    dial_carry(e, d, answered_deliver);
}

/* A newer stream of the same node and kind replaces the oldest. */
static void replace_oldest(struct sim_conn *made)
{
    struct stream *oldest = NULL;
    unsigned n = 0;
    for (struct sim_conn *c = made->sim->conns; c != NULL; c = c->next) {
        const struct sim_end *end = &c->end[1];
        if (c->kind == made->kind && c->end[0].node == made->end[0].node &&
            end->node == made->end[1].node && end->life == made->end[1].life &&
            end->stream != NULL && !end->stream->lost) {
            oldest = end->stream;
            n++;
        }
    }
    if (n > TRANSPORT_ACCEPTED_MAX) {
        sim_stream_lose(oldest);
    }
}

static void check_call(struct sim_dial *d, struct transport *t)
{
    d->verdict = t->cbs.check(t->cbs.ctx, &d->asked, d->reason);
    d->answer = t->self;
    sim_members_check_verdict(t->node, &d->asked, d->verdict);
    if (d->verdict == HANDSHAKE_UNDECIDED) {
        leave_undecided(d, t->node);
        return;
    }
    if (d->verdict == HANDSHAKE_WELCOME && members_find(&t->members, d->asked.node_id) == NULL) {
        d->verdict = HANDSHAKE_STRANGER;
    }
    if (d->verdict == HANDSHAKE_WELCOME) {
        d->conn = conn_make(d);
        struct stream *st = stream_make(d->conn, 1);
        replace_oldest(d->conn);
        t->cbs.accepted(t->cbs.ctx, d->kind, &d->asked, st);
        sim_wire_accepted(d->conn);
    }
    answer(d);
}

static void called_deliver(struct sim_event *e)
{
    struct sim_dial *d = e->p;
    struct transport *t = e->node->transport;
    struct transport *from = d->from->transport;
    if (d->done || from == NULL || d->from->life != d->life || t == NULL || t->closing) {
        return;
    }
    check_call(d, t);
}

static void check_again(struct sim_dial *d, struct transport *t)
{
    bool answering = d->to == t->node;
    t->node->sim->undecided_n--;
    bool over = d->done || d->undecided_life != t->node->life || d->from->life != d->life;
    d->undecided = NULL;
    if (over || d->from->transport == NULL) {
        SIM_TRACE(t->node->sim, "node %u: a call that waited is over", t->node->index + 1);
    } else if (answering) {
        d->asked.waited = true;
        check_call(d, t);
    } else {
        d->answer.waited = true;
        check_answer(d, t);
    }
    d->users--;
}

/* A check may begin calls, which come first in the list, and end others. None is given back while
 * it is undecided, and those that are still so afterwards are left for the next time. */
void transport_check_again(struct transport *t)
{
    struct sim_dial *due[SIM_UNDECIDED_MAX];
    unsigned n = 0;
    for (struct sim_dial *d = t->node->sim->dials; d != NULL; d = d->next) {
        if (d->undecided == t->node) {
            FLI_ASSERT(n < SIM_UNDECIDED_MAX);
            due[n++] = d;
        }
    }
    while (n > 0 && !t->closing) {
        check_again(due[--n], t); /* the oldest first */
    }
}

static bool is_noted(const struct starts *kept, const struct peer_identity *peer)
{
    const struct starts_known *k = starts_find(kept, peer->incarnation);
    return k != NULL && start_is(k->start, peer->start);
}

/* Nobody waits for what is on disk. */
void sim_net_check_waits(const struct sim_node *n)
{
    const struct node_record_file *k = &n->node->record.own;
    if (n->sim->undecided_n == 0 || n->transport == NULL) {
        return;
    }
    for (const struct sim_dial *d = n->sim->dials; d != NULL; d = d->next) {
        bool answering = d->to == n;
        bool waits = d->undecided == n && d->undecided_life == n->life && !d->done &&
                     d->from->life == d->life;
        bool noted = is_noted(&k->kept.starts, answering ? &d->asked : &d->answer) &&
                     (answering || k->kept.starts.next.number == k->now.starts.next.number);
        SIM_CHECK(n->sim, !waits || !noted, "node %u lets a call wait for what is on its disk",
                  n->index + 1);
    }
}

/* What a node says of itself is as old as its way is long: on other streams it says newer things
 * meanwhile. */
static void write_handshake(struct sim_dial *d)
{
    if (d->from->transport != NULL && d->from->life == d->life) {
        d->asked = d->from->transport->self;
        d->asked.asks_raft = d->kind == STREAM_RAFT;
    }
}

static void called_fire(struct sim *s, struct sim_event *e)
{
    struct sim_dial *d = e->p;
    if (sim_net_blocked(s, d->from->index, d->to->index)) {
        write_handshake(d); /* there is no connection yet */
        sim_again(s, e, RETRANSMIT_MS);
        return;
    }
    if (d->to->power == SIM_DOWN || d->to->transport == NULL || !d->to->transport->started ||
        d->port != d->to->listens) {
        s->marks->calls_elsewhere += d->port != d->to->listens;
        answer(d);
        sim_drop(s, e);
        return;
    }
    e->life = d->to->life;
    sim_node_fire(s, e);
}

int transport_dial(struct transport *t, uint64_t peer_id, enum stream_kind kind,
                   transport_dial_cb cb, void *ctx)
{
    struct sim_node *from = t->node;
    struct sim *s = from->sim;
    struct sim_node *to = &s->nodes[peer_id - 1];
    const struct member *member = members_find(&t->members, peer_id);
    char host[256];
    uint16_t port;
    if (member == NULL || address_split(member->address, host, &port) != 0) {
        return FL_EINVAL;
    }
    if (!t->started || t->closing) {
        return FL_ENOCONN;
    }
    sweep_dials(s);
    struct sim_dial *d = fli_xcalloc(1, sizeof *d);
    *d = (struct sim_dial){.kind = kind,
                           .from = from,
                           .to = to,
                           .port = port,
                           .life = from->life,
                           .cb = cb,
                           .ctx = ctx,
                           .next = s->dials};
    s->dials = d;
    s->dials_n++;
    write_handshake(d);
    struct sim_event *e = sim_after(s, sim_net_delay(s, from->index, to->index), called_fire);
    e->node = to;
    dial_carry(e, d, called_deliver);
    dial_carry(sim_to_node(from, t->connect_ms, timeout_deliver), d, timeout_deliver);
    return 0;
}

static void closed(uv_handle_t *h)
{
    struct transport *t = (struct transport *)(void *)h;
    t->close_cb(t->close_ctx);
}

void sim_transport_maybe_closed(struct transport *t)
{
    if (t->closing && t->streams == 0 && !t->ending) {
        t->ending = true;
        uv_close((uv_handle_t *)&t->handle, closed);
    }
}

static void streams_may_end(uv_handle_t *h)
{
    sim_transport_maybe_closed((struct transport *)(void *)h);
}

void transport_close(struct transport *t, void (*cb)(void *ctx), void *ctx)
{
    const struct members nobody = {.n = 0};
    t->closing = true;
    t->close_cb = cb;
    t->close_ctx = ctx;
    transport_set_members(t, &nobody);
    uv_close((uv_handle_t *)&t->handle, streams_may_end);
}

void sim_net_fini(struct sim *s)
{
    while (s->conns != NULL) {
        struct sim_conn *c = s->conns;
        s->conns = c->next;
        sim_wire_free(c);
        free(c);
    }
    while (s->dials != NULL) {
        struct sim_dial *d = s->dials;
        s->dials = d->next;
        free(d);
    }
}
