/* relay.c: commands of followers' clients, on their way to the leader and back.
 *
 *   follower                                leader
 *   outlet: sequence, command      ---->    inlet: proposer_add with a ticket of the relay's
 *           slot keeps the bytes   <----    RESULT, when the ticket is answered
 *                                  <----    RETURNED: surely not done, the follower holds it
 *                                  <----    EARLY, behind the RESULT that said QUEUED
 *
 * When the stream breaks, what was never handed to the kernel and every query is held again; what
 * may have left is uncertain. When another node becomes leader the old outlet stays until it is
 * empty, since a leader that stepped down in order still answers; a dead one is noticed by its
 * silence.
 *
 * The leader trusts nothing it reads: frames are bounded by the link, commands are decoded by the
 * proposer before they are taken, and a peer that breaks the rules loses its stream. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "consensus/node_private.h"
#include "consensus/relay_codec.h"

#define SPARE_TICKETS_MAX 4096u

struct relay_ticket {
    struct node_ticket t;
    struct inlet *inlet;
    uint64_t sequence;
    struct relay_ticket *next_spare;
};

/* A wait that was queued over an inlet: its end is told ahead of the follower's own log. */
struct early {
    struct fli_map_node node;
    struct fli_list link; /* of its inlet */
    uint64_t wait;
    struct inlet *inlet;
};

static struct fli_slice slice(const void *data, size_t len)
{
    return (struct fli_slice){data, len};
}

/* ---- outlets: the follower's end ---- */

static struct held **slot(struct outlet *o, uint64_t sequence)
{
    return &o->slots[sequence % OUTLET_WINDOW];
}

/* Takes what was sent as `sequence` off the outlet; NULL when nothing is. */
static struct held *outlet_take(struct outlet *o, uint64_t sequence)
{
    if (sequence < o->first || sequence >= o->next || *slot(o, sequence) == NULL) {
        return NULL;
    }
    struct held *h = *slot(o, sequence);
    *slot(o, sequence) = NULL;
    FLI_ASSERT(o->count > 0 && o->bytes >= h->len && o->queries >= (h->query ? 1u : 0u));
    o->count--;
    o->bytes -= h->len;
    o->queries -= h->query ? 1 : 0;
    while (o->first < o->next && *slot(o, o->first) == NULL) {
        o->first++;
    }
    return h;
}

bool outlet_has_room(const struct outlet *o, const struct held *h)
{
    if (o->probe_ms != 0 && (o->count > 0 || uv_now(o->node->loop) < o->probe_ms)) {
        return false;
    }
    return o->next - o->first < OUTLET_WINDOW && o->bytes + h->len <= OUTLET_BYTES &&
           (!h->query || o->queries < OUTLET_QUERIES);
}

bool outlet_send(struct outlet *o, struct held *h)
{
    uint8_t head[8];
    FLI_ASSERT(outlet_has_room(o, h));
    fli_put_u64(head, o->next);
    struct fli_slice parts[2] = {slice(head, sizeof head), slice(h->data, h->len)};
    uint64_t start = link_appended(o->link);
    if (link_send(o->link, LINK_COMMAND, parts, 2) != 0) {
        return false;
    }
    h->start = start;
    *slot(o, o->next) = h;
    o->next++;
    o->count++;
    o->bytes += h->len;
    o->queries += h->query ? 1 : 0;
    o->node->relayed++;
    return true;
}

void outlet_close(struct outlet *o, const char *why)
{
    struct node *n = o->node;
    struct fli_list uncertain;
    struct fli_list *pos;
    uint64_t handed = link_handed(o->link);
    fli_list_init(&uncertain);
    if (o->count > 0) {
        node_log(n, 2, "the stream to node %llu is given up with %u commands unanswered: %s",
                 (unsigned long long)o->peer->id, o->count, why);
    }
    for (uint64_t s = o->first; s < o->next; s++) {
        struct held *h = outlet_take(o, s);
        if (h != NULL) {
            bool safe = h->query || h->start >= handed;
            fli_list_push(safe ? &n->returned : &uncertain, &h->link);
        }
    }
    FLI_ASSERT(o->count == 0 && o->bytes == 0 && o->queries == 0);
    FLI_ASSERT(o->peer->outlet == o);
    o->peer->outlet = NULL;
    o->peer->redial_ms = uv_now(n->loop) + NODE_BEAT_MS;
    link_close(o->link);
    free(o);
    while ((pos = fli_list_pop(&uncertain)) != NULL) {
        held_answer(n, FLI_CONTAINER_OF(pos, struct held, link), FL_EUNCERTAIN);
    }
    node_wake(n);
}

static void outlet_result(struct outlet *o, struct fli_slice body)
{
    struct relay_answer a;
    if (relay_result_decode(body, &a) != 0) {
        outlet_close(o, "an answer that is not understood");
        return;
    }
    struct held *h = outlet_take(o, a.sequence);
    if (h == NULL) {
        outlet_close(o, "an answer to nothing that was asked");
        return;
    }
    struct node_ticket *t = h->t;
    o->probe_ms = 0;
    if (a.status != 0) {
        held_answer(o->node, h, a.status);
        return;
    }
    held_destroy(o->node, h);
    t->cb(t, 0, &a.result, a.payload);
}

static void outlet_returned(struct outlet *o, struct fli_slice body)
{
    uint64_t sequence;
    struct fli_slice rest;
    struct held *h = NULL;
    if (relay_sequence_decode(body, &sequence, &rest) == 0 && rest.len == 0) {
        h = outlet_take(o, sequence);
    }
    if (h == NULL) {
        outlet_close(o, "a command was given back that was not sent");
        return;
    }
    o->probe_ms = uv_now(o->node->loop) + NODE_PROBE_MS;
    fli_list_push(&o->node->returned, &h->link);
    node_wake(o->node);
}

static void outlet_early(struct outlet *o, struct fli_slice body)
{
    struct machine_event e;
    struct node *n = o->node;
    if (relay_event_decode(body, &e) != 0) {
        outlet_close(o, "an event that is not understood");
    } else if (n->cbs.early != NULL) {
        n->cbs.early(n->cbs.ctx, &e);
    }
}

static void outlet_frame(void *ctx, uint8_t type, struct fli_slice body)
{
    struct outlet *o = ctx;
    switch (type) {
    case LINK_RESULT:
        outlet_result(o, body);
        break;
    case LINK_RETURNED:
        outlet_returned(o, body);
        break;
    case LINK_EARLY:
        outlet_early(o, body);
        break;
    case LINK_PONG:
        break;
    default:
        outlet_close(o, "a frame of unknown type");
        break;
    }
}

static void outlet_lost(void *ctx, const char *why)
{
    outlet_close(ctx, why);
}

static struct link_callbacks link_callbacks_for(struct node *n, void *ctx)
{
    return (struct link_callbacks){.ctx = ctx, .gone_ctx = n, .gone = node_handle_gone};
}

static void outlet_say_ready(struct outlet *o)
{
    if (!o->ready_said && o->node->known_complete) {
        o->ready_said = link_send(o->link, LINK_READY, NULL, 0) == 0;
    }
}

void relay_say_ready(struct node *n)
{
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        if (n->peers[i].outlet != NULL) {
            outlet_say_ready(n->peers[i].outlet);
        }
    }
}

static void outlet_open(struct node *n, struct peer *p, uv_stream_t *stream)
{
    struct outlet *o = calloc(1, sizeof *o);
    if (o == NULL) {
        uv_close((uv_handle_t *)stream, (uv_close_cb)raft_free);
        return;
    }
    struct link_callbacks cbs = link_callbacks_for(n, o);
    cbs.frame = outlet_frame;
    cbs.lost = outlet_lost;
    o->node = n;
    o->peer = p;
    o->first = 1;
    o->next = 1;
    o->pinged_ms = uv_now(n->loop);
    n->handles++;
    if (link_create(stream, &cbs, &o->link) != 0) {
        free(o);
        return;
    }
    p->outlet = o;
    outlet_say_ready(o);
    node_wake(n);
}

static void outlet_dialed(void *ctx, int status, const struct transport_identity *peer,
                          uv_stream_t *stream)
{
    struct peer *p = ctx;
    struct node *n = FLI_CONTAINER_OF(p - p->index, struct node, peers[0]);
    p->dialing = false;
    p->redial_ms = uv_now(n->loop) + NODE_BEAT_MS;
    if (status == 0 && (n->phase >= PHASE_CLOSE || p->outlet != NULL)) {
        uv_close((uv_handle_t *)stream, (uv_close_cb)raft_free);
    } else if (status == 0) {
        FLI_ASSERT(peer->node_id == p->id);
        outlet_open(n, p, stream);
    }
    node_handle_gone(n);
}

void relay_connect(struct node *n)
{
    struct peer *p = n->role == NODE_FOLLOWER ? node_peer(n, n->leader_id) : NULL;
    if (p == NULL || p->outlet != NULL || p->dialing || n->phase >= PHASE_CLOSE ||
        uv_now(n->loop) < p->redial_ms) {
        return;
    }
    if (transport_link(n->transport, p->id, outlet_dialed, p) == 0) {
        p->dialing = true;
        n->handles++;
    }
}

static void outlet_beat(struct outlet *o, uint64_t now_ms)
{
    struct node *n = o->node;
    bool leads = n->role == NODE_FOLLOWER && n->leader_id == o->peer->id;
    uint64_t silent_ms = now_ms - link_heard_ms(o->link);
    if (!leads && o->count == 0) {
        outlet_close(o, "not needed any more");
        return;
    }
    /* A ping is answered at once, so a leader that says nothing for this long does not turn. One
     * that was replaced is given less time, as it was replaced for its silence. */
    uint64_t patience_ms = leads ? NODE_PING_MS + 2 * (uint64_t)n->election_ms : n->election_ms;
    if (silent_ms > patience_ms) {
        outlet_close(o, "silence");
        return;
    }
    if (now_ms - o->pinged_ms >= (o->count > 0 ? NODE_BEAT_MS : NODE_PING_MS)) {
        o->pinged_ms = now_ms;
        if (link_send(o->link, LINK_PING, NULL, 0) != 0) {
            outlet_close(o, "too much is waiting to be sent");
            return;
        }
    }
    outlet_say_ready(o);
}

/* ---- early events ---- */

static bool early_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct early *e = FLI_CONTAINER_OF(node, struct early, node);
    FLI_ASSERT(key_len == sizeof e->wait);
    return memcmp(&e->wait, key, sizeof e->wait) == 0;
}

static void early_drop(struct node *n, struct early *e)
{
    fli_map_remove(&n->earlies, &e->node);
    fli_list_remove(&e->link);
    free(e);
}

static struct early *early_find(struct node *n, uint64_t wait)
{
    struct fli_map_node *node = fli_map_find(&n->earlies, &wait, sizeof wait);
    return node == NULL ? NULL : FLI_CONTAINER_OF(node, struct early, node);
}

/* Without memory for it nothing is lost but time: the follower's own log tells it as well. */
static void early_note(struct inlet *in, uint64_t wait)
{
    struct node *n = in->node;
    struct early *e = early_find(n, wait);
    if (e != NULL) {
        fli_list_remove(&e->link);
    } else {
        e = calloc(1, sizeof *e);
        if (e == NULL) {
            return;
        }
        e->wait = wait;
        fli_list_init(&e->link);
        if (fli_map_insert(&n->earlies, &e->node, fli_map_hash(&n->earlies, &wait, sizeof wait)) !=
            0) {
            free(e);
            return;
        }
    }
    e->inlet = in;
    fli_list_push(&in->waits, &e->link);
}

static void inlet_close(struct inlet *in, const char *why);

static void early_send(struct inlet *in, const struct machine_event *e)
{
    uint8_t head[RELAY_EVENT_SIZE];
    relay_event_encode(e, head);
    struct fli_slice parts[3] = {slice(head, sizeof head), e->name, e->owner};
    if (link_send(in->link, LINK_EARLY, parts, 3) != 0) {
        inlet_close(in, "too much is waiting to be sent");
    }
}

/* Who relayed a wait that is older than our term its leader knew, and we do not: all are told, and
 * those who do not have it pass over it. Without this they would hear of each grant at the next
 * heartbeat only, and a queue that outlived its leader would move a heartbeat at a time. */
static void early_send_all(struct node *n, const struct machine_event *e)
{
    FLI_LIST_FOREACH_SAFE(pos, next, &n->inlets)
    {
        struct inlet *in = FLI_CONTAINER_OF(pos, struct inlet, node_link);
        if (in->link != NULL) {
            early_send(in, e);
        }
    }
}

static void note_queued(struct node *n, uint64_t wait)
{
    n->wait_seen = wait;
    if (wait <= n->wait_before) { /* so all before it are older, whatever was known */
        n->wait_before = wait - 1;
    }
}

void relay_event(struct node *n, const struct machine_event *e)
{
    if (e->type == MACHINE_EVENT_QUEUED) {
        note_queued(n, e->wait);
    }
    if (e->wait == 0 || (e->type != MACHINE_EVENT_GRANTED && e->type != MACHINE_EVENT_WAIT_ENDED)) {
        return;
    }
    struct early *early = early_find(n, e->wait);
    if (early != NULL) {
        struct inlet *in = early->inlet;
        early_drop(n, early);
        early_send(in, e);
    } else if (e->wait <= n->wait_before && proposer_is_open(n->proposer)) {
        early_send_all(n, e);
    }
}

void relay_opened(struct node *n)
{
    n->wait_before = n->wait_seen;
}

void relay_restored(struct node *n)
{
    n->wait_seen = UINT64_MAX;
}

void relay_forget_waits(struct node *n)
{
    FLI_LIST_FOREACH(pos, &n->inlets)
    {
        struct inlet *in = FLI_CONTAINER_OF(pos, struct inlet, node_link);
        struct fli_list *w;
        while ((w = fli_list_first(&in->waits)) != NULL) {
            early_drop(n, FLI_CONTAINER_OF(w, struct early, link));
        }
    }
    FLI_ASSERT(n->earlies.len == 0);
}

/* ---- inlets: the leader's end ---- */

static void inlet_maybe_free(struct inlet *in)
{
    if (in->link == NULL && in->count == 0) {
        fli_list_remove(&in->node_link);
        free(in);
    }
}

static void inlet_close(struct inlet *in, const char *why)
{
    struct node *n = in->node;
    struct fli_list *w;
    if (in->link == NULL) {
        return;
    }
    node_log(n, in->count > 0 ? 2 : 4, "the stream from node %llu is closed: %s",
             (unsigned long long)in->peer->id, why);
    while ((w = fli_list_first(&in->waits)) != NULL) {
        early_drop(n, FLI_CONTAINER_OF(w, struct early, link));
    }
    link_close(in->link);
    in->link = NULL;
    if (in->peer->inlet == in) {
        in->peer->inlet = NULL;
    }
    inlet_maybe_free(in);
}

static struct relay_ticket *ticket_get(struct node *n, struct inlet *in, uint64_t sequence)
{
    struct relay_ticket *rt = n->spare_tickets;
    if (rt != NULL) {
        n->spare_tickets = rt->next_spare;
        n->spare_count--;
    } else {
        rt = malloc(sizeof *rt);
        if (rt == NULL) {
            return NULL;
        }
    }
    memset(rt, 0, sizeof *rt);
    fli_list_init(&rt->t.link);
    rt->inlet = in;
    rt->sequence = sequence;
    in->count++;
    return rt;
}

static void ticket_put(struct node *n, struct relay_ticket *rt)
{
    FLI_ASSERT(rt->inlet->count > 0);
    rt->inlet->count--;
    if (n->spare_count >= SPARE_TICKETS_MAX) {
        free(rt);
        return;
    }
    rt->next_spare = n->spare_tickets;
    n->spare_tickets = rt;
    n->spare_count++;
}

static void inlet_reply(struct inlet *in, uint64_t sequence, int status,
                        const struct machine_result *result, struct fli_slice payload)
{
    uint8_t head[RELAY_RESULT_SIZE];
    if (in->link == NULL) {
        return;
    }
    FLI_ASSERT(payload.len + sizeof head < LINK_FRAME_MAX);
    relay_result_encode(sequence, status, result, head);
    struct fli_slice parts[2] = {slice(head, sizeof head), payload};
    if (link_send(in->link, LINK_RESULT, parts, status == 0 ? 2 : 1) != 0) {
        inlet_close(in, "too much is waiting to be sent");
        return;
    }
    if (status == 0 && result->code == MACHINE_QUEUED && in->node->role == NODE_LEADER) {
        early_note(in, result->wait);
    }
}

static void inlet_return(struct inlet *in, uint64_t sequence)
{
    uint8_t head[8];
    if (in->link == NULL) {
        return;
    }
    fli_put_u64(head, sequence);
    struct fli_slice part = slice(head, sizeof head);
    if (link_send(in->link, LINK_RETURNED, &part, 1) != 0) {
        inlet_close(in, "too much is waiting to be sent");
    }
}

/* The proposer's answer to a command that came over an inlet. */
static void relay_answered(struct node_ticket *t, int status, const struct machine_result *result,
                           struct fli_slice payload)
{
    struct relay_ticket *rt = FLI_CONTAINER_OF(t, struct relay_ticket, t);
    struct inlet *in = rt->inlet;
    inlet_reply(in, rt->sequence, status, result, payload);
    ticket_put(in->node, rt);
    inlet_maybe_free(in);
}

bool relay_owns(const struct node_ticket *t)
{
    return t->cb == relay_answered;
}

void relay_return(struct node *n, struct node_ticket *t)
{
    struct relay_ticket *rt = FLI_CONTAINER_OF(t, struct relay_ticket, t);
    struct inlet *in = rt->inlet;
    FLI_ASSERT(in->node == n);
    inlet_return(in, rt->sequence);
    ticket_put(n, rt);
    inlet_maybe_free(in);
}

static void inlet_command(struct inlet *in, struct fli_slice body)
{
    struct node *n = in->node;
    uint64_t sequence;
    struct fli_slice command;
    if (relay_sequence_decode(body, &sequence, &command) != 0 || command.len == 0 ||
        command.len > MACHINE_COMMAND_MAX) {
        inlet_close(in, "a command of impossible size");
        return;
    }
    if (!node_can_propose(n)) {
        inlet_return(in, sequence);
        return;
    }
    struct relay_ticket *rt = ticket_get(n, in, sequence);
    if (rt == NULL) {
        inlet_reply(in, sequence, FL_ENOMEM, NULL, slice(NULL, 0));
        return;
    }
    int rv = proposer_add(n->proposer, &rt->t, command.data, command.len, relay_answered);
    if (rv == 0) {
        return;
    }
    ticket_put(n, rt);
    if (rv == FL_ENOLEADER) {
        inlet_return(in, sequence);
    } else {
        inlet_reply(in, sequence, rv, NULL, slice(NULL, 0));
    }
}

static void inlet_frame(void *ctx, uint8_t type, struct fli_slice body)
{
    struct inlet *in = ctx;
    switch (type) {
    case LINK_COMMAND:
        inlet_command(in, body);
        break;
    case LINK_READY:
        in->ready = true;
        break;
    case LINK_PING:
        if (link_send(in->link, LINK_PONG, NULL, 0) != 0) {
            inlet_close(in, "too much is waiting to be sent");
        }
        break;
    default:
        inlet_close(in, "a frame of unknown type");
        break;
    }
}

static void inlet_lost(void *ctx, const char *why)
{
    inlet_close(ctx, why);
}

void relay_inlet(struct node *n, const struct transport_identity *peer, uv_stream_t *stream)
{
    struct peer *p = node_peer(n, peer->node_id);
    struct inlet *in = p == NULL || n->phase >= PHASE_CLOSE ? NULL : calloc(1, sizeof *in);
    if (in == NULL) {
        uv_close((uv_handle_t *)stream, (uv_close_cb)raft_free);
        return;
    }
    struct link_callbacks cbs = link_callbacks_for(n, in);
    cbs.frame = inlet_frame;
    cbs.lost = inlet_lost;
    in->node = n;
    in->peer = p;
    in->incarnation = peer->incarnation;
    fli_list_init(&in->node_link);
    fli_list_init(&in->waits);
    n->handles++;
    if (link_create(stream, &cbs, &in->link) != 0) {
        free(in);
        return;
    }
    /* A node has one outlet to us: a second one means that it has given the first one up. */
    if (p->inlet != NULL) {
        inlet_close(p->inlet, "the node called again");
    }
    p->inlet = in;
    fli_list_push(&n->inlets, &in->node_link);
}

/* ---- both ---- */

void relay_init(struct node *n, const uint64_t seed[2])
{
    fli_map_init(&n->earlies, early_eq, seed);
}

void relay_beat(struct node *n)
{
    uint64_t now_ms = uv_now(n->loop);
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        if (p->outlet != NULL) {
            outlet_beat(p->outlet, now_ms);
        }
        if (p->inlet != NULL && now_ms - link_heard_ms(p->inlet->link) > NODE_INLET_SILENCE_MS) {
            inlet_close(p->inlet, "silence");
        }
    }
    relay_connect(n);
}

void relay_replaced(struct node *n)
{
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct outlet *o = n->peers[i].outlet;
        if (o != NULL && o->count > 0) {
            outlet_beat(o, uv_now(n->loop));
        }
    }
}

void relay_flush(struct node *n)
{
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        if (p->outlet != NULL) {
            link_flush(p->outlet->link);
        }
        if (p->inlet != NULL) {
            link_flush(p->inlet->link);
        }
    }
}

bool relay_quiet(struct node *n)
{
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        if (p->outlet != NULL && p->outlet->count > 0) {
            return false;
        }
        if (p->inlet != NULL && (p->inlet->count > 0 || !link_idle(p->inlet->link))) {
            return false;
        }
    }
    return true;
}

void relay_close(struct node *n)
{
    relay_flush(n);
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        if (p->outlet != NULL) {
            outlet_close(p->outlet, "this node stops");
        }
        if (p->inlet != NULL) {
            inlet_close(p->inlet, "this node stops");
        }
    }
}

void relay_fini(struct node *n)
{
    FLI_ASSERT(fli_list_empty(&n->inlets) && n->earlies.len == 0);
    while (n->spare_tickets != NULL) {
        struct relay_ticket *rt = n->spare_tickets;
        n->spare_tickets = rt->next_spare;
        free(rt);
    }
    fli_map_fini(&n->earlies);
}
