/* membership.c: see membership.h. */
#include "members/membership_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define CALL_MS 500u /* between calls to a node for its handshake */

static void wake(struct membership *m)
{
    m->config.host.wake(m->config.host.ctx);
}

bool membership_formed(const struct membership *m)
{
    return machine_cluster_id(fsm_machine(m->config.fsm)) != 0;
}

/* ---- commands of the cluster's own ---- */

int membership_enqueue(struct membership *m, const struct machine_command *c, struct node_ticket *t,
                       node_ticket_cb cb)
{
    struct fli_buf buf;
    if (!proposer_is_open(m->config.proposer)) {
        return FL_ENOLEADER;
    }
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    *t = (struct node_ticket){.cb = cb, .source = NODE_SOURCE_CLUSTER};
    int rv = machine_command_encode(c, &buf);
    rv = rv != 0 ? rv : commands_add(m->config.queue, t, buf.data, buf.len, fli_clock_ns());
    fli_buf_fini(&buf);
    wake(m);
    return rv;
}

static void own_done(struct node_ticket *t, int status, const struct machine_result *result,
                     struct fli_slice payload)
{
    struct membership *m = FLI_CONTAINER_OF(t, struct membership, own);
    FLI_ASSERT(m->own_busy);
    m->own_busy = false;
    m->members_due = true;
    wake(m);
}

bool membership_submit(struct membership *m, const struct machine_command *c)
{
    FLI_ASSERT(!m->own_busy);
    m->own_busy = membership_enqueue(m, c, &m->own, own_done) == 0;
    return m->own_busy;
}

/* ---- forming ---- */

void membership_log_once(struct membership *m, const char *fmt, ...)
{
    char text[sizeof m->last_logged];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (strcmp(m->last_logged, text) != 0) {
        memcpy(m->last_logged, text, sizeof text);
        host_log(&m->config.host, 3, "%s", text);
    }
}

uint64_t membership_cluster_id(const struct membership *m)
{
    const struct configuration *c = replica_configuration(m->replica);
    return c->n > 0 ? c->cluster_id : m->config.kept->identity.cluster_id;
}

bool membership_founds(const struct membership *m)
{
    return !m->config.identity->joins && replica_configuration(m->replica)->n == 0;
}

/* Whether each other founder has done its part; `id` is the cluster's, if it is about that. Else
 * the log names those that have not, and says why they are waited for. */
static bool all_have(struct membership *m, bool (*has)(const struct peer *p, uint64_t id),
                     uint64_t id, const char *why)
{
    const struct members *all = &m->config.identity->members;
    char text[sizeof m->last_logged];
    bool missing = false;
    size_t len = 0;
    for (unsigned i = 0; i < all->n && len < sizeof text; i++) {
        const struct peer *p = peers_find(m->config.peers, all->list[i].id);
        if (all->list[i].id != m->config.identity->id && (p == NULL || !has(p, id))) {
            len += (size_t)snprintf(text + len, sizeof text - len, "%s node %" PRIu64 " (%s)",
                                    missing ? "," : "", all->list[i].id, all->list[i].address);
            missing = true;
        }
    }
    if (missing) {
        membership_log_once(m, "the cluster is being formed: waiting for%s; %s", text, why);
    }
    return !missing;
}

/* The call was made only for its handshake, which has been checked by now. */
static void called(void *ctx, int status, const struct peer_identity *peer, struct stream *stream)
{
    struct peer *p = ctx;
    p->calling = false;
    p->call_at_ms = fli_clock_ms() + CALL_MS;
    if (status == 0) {
        stream_close(stream);
    }
}

static void call(struct membership *m, struct peer *p)
{
    if (!p->calling && fli_clock_ms() >= p->call_at_ms) {
        p->call_at_ms = fli_clock_ms() + CALL_MS;
        p->calling = transport_dial(m->config.transport, p->id, STREAM_RELAY, called, p) == 0;
    }
}

/* A member of a formed cluster founds no other one. Who is gone may come back with another
 * directory. */
static bool is_here(const struct peer *p, uint64_t id)
{
    return outbound_is_up(&p->outbound) && p->told.incarnation != 0 && p->told.member_index == 0;
}

static bool may_be_in(const struct peer *p, uint64_t id)
{
    return p->told.cluster_id == 0 || p->told.cluster_id == id;
}

static bool has_written(const struct peer *p, uint64_t id)
{
    return p->told.incarnation != 0 && p->told.cluster_id == id;
}

/* Step 1, from which there is no way back. */
static void found(struct membership *m)
{
    struct identity fresh = *m->config.identity;
    uint64_t incarnations[MEMBERS_MAX];
    if (!all_have(m, is_here, 0, "the first time all members must be up")) {
        return;
    }
    for (unsigned i = 0; i < fresh.members.n; i++) {
        incarnations[i] = peers_find(m->config.peers, fresh.members.list[i].id)->told.incarnation;
    }
    identity_found(&fresh, incarnations);
    if (all_have(m, may_be_in, fresh.cluster_id,
                 "they began with other data: start all with empty directories")) {
        *m->config.identity = fresh;
        m->config.save(m->config.ctx);
    }
}

/* Steps 2 and 3. Once anybody has begun, all have written the founders. */
static void begin(struct membership *m)
{
    const struct identity *id = m->config.identity;
    struct configuration c;
    bool begun = false;
    for (unsigned i = 0; i < id->members.n; i++) {
        struct peer *p = peers_find(m->config.peers, id->members.list[i].id);
        begun = begun || (p != NULL && has_written(p, id->cluster_id) && p->told.member_index != 0);
        if (p != NULL && p->id != id->id && p->told.member_index == 0) {
            call(m, p); /* each hears at once what the other has written, or begun */
        }
    }
    if (!begun &&
        !all_have(m, has_written, id->cluster_id, "they are to say that they know all members")) {
        return;
    }
    identity_configuration(id, &c);
    if (replica_begin(m->replica, fli_clock_ms(), &c) == 0) {
        membership_log_once(m, "the cluster is being formed: all members are known");
        m->members_due = true;
        wake(m);
    }
}

static void form(struct membership *m)
{
    if (!identity_is_founded(m->config.identity)) {
        found(m);
    } else if (identity_is_founded(&m->config.kept->identity)) {
        begin(m);
    }
}

/* A node that has joined notes which cluster it is in. */
static void note_cluster(struct membership *m)
{
    uint64_t *noted = &m->config.identity->cluster_id;
    const struct configuration *c = replica_configuration(m->replica);
    if (c->n != 0 && *noted == 0) {
        *noted = c->cluster_id;
        m->config.save(m->config.ctx);
    } else if (c->n != 0 && *noted != c->cluster_id) {
        host_fail(&m->config.host, FL_ECORRUPT,
                  "the log is of another cluster than the data directory");
    }
}

/* The first leader's part. */
static void init(struct membership *m)
{
    struct machine_command c = {
        .op = MACHINE_OP_INIT, .number = membership_cluster_id(m), .limits = *m->config.limits};
    (void)membership_submit(m, &c);
}

bool membership_may_change(const struct membership *m)
{
    return replica_role(m->replica) == REPLICA_LEADER &&
           replica_configuration_committed(m->replica) && replica_transferee(m->replica) == 0;
}

/* ---- handing leadership over ---- */

/* Its plan may be in the log already, or be about to be put there. */
static bool is_leaving(const struct membership *m, uint64_t id)
{
    const struct membership_operation *o = &m->operation;
    bool asked = o->active && o->change.id == id && o->change.kind != NODE_CHANGE_ADD &&
                 o->change.kind != NODE_CHANGE_MOVE;
    return asked || machine_node_leaves(machine_node_find(membership_machine(m), id));
}

/* The connected voter whose log matches furthest, of those that could serve at once; 0: none. */
static uint64_t best_follower(const struct membership *m)
{
    const struct configuration *c = replica_configuration(m->replica);
    uint64_t best = 0;
    uint64_t best_match = 0;
    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id;
        if (id == m->config.identity->id || c->servers[i].role != CONFIGURATION_VOTER ||
            !relay_has_follower(m->config.relay, id) || is_leaving(m, id) ||
            !node_report_can_lead(m->config.peers, id)) {
            continue;
        }
        uint64_t match = replica_match_index(m->replica, id);
        if (best == 0 || match > best_match) {
            best = id;
            best_match = match;
        }
    }
    return best;
}

int membership_transfer(struct membership *m, uint64_t id, void (*cb)(void *ctx, int status),
                        void *ctx)
{
    if (m->replica == NULL || replica_role(m->replica) != REPLICA_LEADER) {
        return FL_ENOLEADER;
    }
    if (m->transfer_id != 0 || replica_transferee(m->replica) != 0) {
        return FL_EBUSY;
    }
    if (id == m->config.identity->id) {
        if (cb != NULL) {
            cb(ctx, 0);
        }
        return 0;
    }
    id = id == 0 ? best_follower(m) : id;
    int rv = id == 0 ? FL_ENOTFOUND : replica_transfer(m->replica, fli_clock_ms(), id);
    if (rv != 0) {
        return rv;
    }
    m->transfer_id = id;
    m->transfer_cb = cb;
    m->transfer_ctx = ctx;
    host_log(&m->config.host, 3, "leadership is handed to node %" PRIu64, id);
    wake(m);
    return 0;
}

bool membership_transferring(const struct membership *m)
{
    return m->transfer_id != 0;
}

static void transfer_finish(struct membership *m, int status)
{
    void (*cb)(void *ctx, int status) = m->transfer_cb;
    m->transfer_id = 0;
    m->transfer_cb = NULL;
    wake(m);
    if (cb != NULL) {
        cb(m->transfer_ctx, status);
    }
}

/* Handing over ends when another node leads, or when the Raft library gives up. A leader that has
 * stepped down waits a moment to hear who leads now. */
static void transfer_turn(struct membership *m)
{
    uint64_t leader = replica_leader(m->replica);
    bool leads = replica_role(m->replica) == REPLICA_LEADER;
    if (m->transfer_id == 0) {
        return;
    }
    if (leads && replica_transferee(m->replica) == 0) {
        transfer_finish(m, FL_ETIMEOUT);
    } else if (!leads && leader != 0) {
        transfer_finish(m, leader == m->transfer_id ? 0 : FL_ETIMEOUT);
    }
}

/* ---- ticks ---- */

/* This node's own log says that it was removed. */
static void check_removed(struct membership *m)
{
    uint64_t index;
    uint64_t own = replica_member_index(m->replica);
    const struct configuration *c = replica_committed_configuration(m->replica, &index);
    if (c != NULL && own != 0 && own < index &&
        configuration_server(c, m->config.identity->incarnation) == NULL) {
        host_fail(&m->config.host, FL_EDENIED,
                  "this node was removed from the cluster: its data directory is of no more use");
    }
}

/* The leader's work for its members, at each tick: one command at a time, and none behind an
 * operator's, which may change what it would be about. */
static void lead(struct membership *m)
{
    bool planned = m->operation.active && m->operation.index == 0;
    if (m->own_busy || planned || m->transfer_id != 0) {
        return;
    }
    if (!membership_formed(m)) {
        init(m);
        return;
    }
    membership_plans(m);
    if (!m->own_busy) {
        membership_versions(m);
    }
}

void membership_tick(struct membership *m, bool running)
{
    m->members_due = true;
    note_cluster(m);
    if (running && proposer_is_open(m->config.proposer)) {
        lead(m);
    }
}

static void note_leadership(struct membership *m)
{
    bool leads = proposer_is_open(m->config.proposer);
    if (leads && !m->leads) {
        m->leads_since_ms = fli_clock_ms();
        m->asked_index = replica_last_index(m->replica);
    }
    m->leads = leads;
}

void membership_turn(struct membership *m, bool running)
{
    note_leadership(m);
    check_removed(m);
    membership_members_turn(m);
    transfer_turn(m);
    membership_operation_turn(m);
    if (running && membership_founds(m)) {
        form(m);
    } else if (running && !membership_formed(m) && proposer_is_open(m->config.proposer)) {
        lead(m);
    }
}

void membership_close(struct membership *m)
{
    membership_deposed(m);
    if (m->transfer_id != 0) {
        transfer_finish(m, FL_ETIMEOUT);
    }
}

/* ---- making ---- */

int membership_create(const struct membership_config *config, struct membership **ret)
{
    struct membership *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return FL_ENOMEM;
    }
    m->config = *config;
    m->members = config->identity->members;
    peers_set_members(config->peers, &m->members);
    peers_find(config->peers, config->identity->id)->told.incarnation =
        config->identity->incarnation;
    *ret = m;
    return 0;
}

void membership_destroy(struct membership *m)
{
    free(m);
}

void membership_set_replica(struct membership *m, struct replica *r)
{
    m->replica = r;
}
