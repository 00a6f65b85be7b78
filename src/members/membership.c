/* membership.c: forming a cluster, the list of members, leadership handed over, ticks: see
 * membership.h. */
#include "members/membership_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define CALL_MS 500u /* between calls to a node for its handshake */

bool membership_formed(const struct membership *m)
{
    return machine_cluster_id(membership_machine(m)) != 0;
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
    membership_wake(m);
    return rv;
}

static void own_done(struct node_ticket *t, int status, const struct machine_result *result,
                     struct fli_slice payload)
{
    struct membership *m = FLI_CONTAINER_OF(t, struct membership, own);
    FLI_ASSERT(m->own_busy);
    m->own_busy = false;
    m->members_due = true;
    membership_wake(m);
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

static uint64_t cluster_id_of(const struct membership *m)
{
    const struct configuration *c = replica_configuration(m->replica);
    return c->n > 0 ? c->cluster_id : membership_kept(m)->identity.cluster_id;
}

bool membership_founds(const struct membership *m)
{
    return !membership_now(m)->identity.joins && replica_configuration(m->replica)->n == 0;
}

/* Whether each other founder has done its part; `id` is the cluster's, if it is about that. Else
 * the log names those that have not, and says why they are waited for. */
static bool all_have(struct membership *m, bool (*has)(const struct peer *p, uint64_t id),
                     uint64_t id, const char *why)
{
    const struct identity *self = &membership_now(m)->identity;
    char text[sizeof m->last_logged];
    size_t len = 0;
    for (unsigned i = 0; i < self->members.n && len < sizeof text; i++) {
        const struct member *other = &self->members.list[i];
        const struct peer *p = peers_find(m->config.peers, other->id);
        if (other->id != self->id && (p == NULL || !has(p, id))) {
            len += (size_t)snprintf(text + len, sizeof text - len, "%s node %" PRIu64 " (%s)",
                                    len > 0 ? "," : "", other->id, other->address);
        }
    }
    if (len > 0) {
        membership_log_once(m, "the cluster is being formed: waiting for%s; %s", text, why);
    }
    return len == 0;
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
    struct identity fresh = membership_now(m)->identity;
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
        membership_now(m)->identity = fresh;
        node_record_save(m->config.record);
    }
}

/* A stream begins with the handshakes of both. No messages are lost with the one before: there are
 * none yet. */
static void call_anew(struct membership *m, struct peer *p)
{
    if (outbound_is_up(&p->outbound) && fli_clock_ms() >= p->call_at_ms) {
        p->call_at_ms = fli_clock_ms() + CALL_MS;
        outbound_close(&p->outbound);
        outbound_open(&p->outbound, m->config.peers->host, m->config.transport, p->id);
    }
}

/* Steps 2 and 3. Once anybody has begun, all have written the founders. */
static void begin(struct membership *m)
{
    const struct identity *id = &membership_now(m)->identity;
    struct configuration c;
    bool begun = false;
    for (unsigned i = 0; i < id->members.n; i++) {
        struct peer *p = peers_find(m->config.peers, id->members.list[i].id);
        begun = begun || (p != NULL && has_written(p, id->cluster_id) && p->told.member_index != 0);
        if (p != NULL && p->id != id->id && p->told.member_index == 0) {
            call_anew(m, p); /* each hears at once what the other has written, or begun */
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
        membership_wake(m);
    }
}

static void form(struct membership *m)
{
    if (!identity_is_founded(&membership_now(m)->identity)) {
        found(m);
    } else if (identity_is_founded(&membership_kept(m)->identity)) {
        begin(m);
    }
}

/* A node that has joined notes which cluster it is in. */
static void note_cluster(struct membership *m)
{
    uint64_t *noted = &membership_now(m)->identity.cluster_id;
    const struct configuration *c = replica_configuration(m->replica);
    if (c->n != 0 && *noted == 0) {
        *noted = c->cluster_id;
        node_record_save(m->config.record);
    } else if (c->n != 0 && *noted != c->cluster_id) {
        host_fail(&m->config.host, FL_ECORRUPT,
                  "the log is of another cluster than the data directory");
    }
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
        if (id == membership_self(m) || c->servers[i].role != CONFIGURATION_VOTER ||
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
    if (replica_role(m->replica) != REPLICA_LEADER) {
        return FL_ENOLEADER;
    }
    if (m->transfer_id != 0 || replica_transferee(m->replica) != 0) {
        return FL_EBUSY;
    }
    if (id == membership_self(m)) {
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
    membership_wake(m);
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
    membership_wake(m);
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
    bool over = leads ? replica_transferee(m->replica) == 0 : leader != 0;
    if (m->transfer_id != 0 && over) {
        transfer_finish(m, !leads && leader == m->transfer_id ? 0 : FL_ETIMEOUT);
    }
}

/* ---- the nodes that this node talks to, with their addresses ----
 *
 * The list is built again whenever one of its sources has changed. The sources are: the newest
 * configuration in the log; the members given at the start, as long as the log has none; on the
 * leader, the nodes that are to be added; and nodes that called, were let in, and have the
 * configuration that is committed here, or a later one: they know best where they are. The list is
 * stored nowhere. */

/* Only the leader calls a node that is to be added. */
static void put_expected(const struct membership *m, struct members *ret)
{
    unsigned n;
    const struct machine_node *nodes = machine_nodes(membership_machine(m), &n);
    for (unsigned i = 0; i < n && proposer_is_open(m->config.proposer); i++) {
        if (nodes[i].plan == MACHINE_PLAN_ADD && members_find(ret, nodes[i].id) == NULL) {
            (void)members_put(ret, nodes[i].id, nodes[i].address);
        }
    }
}

/* 0: it is no address. */
static uint16_t port_of(const char *address)
{
    char host[256];
    uint16_t port;
    return address_split(address, host, &port) == 0 ? port : 0;
}

/* Where they are, by their own word. A guess is as their log has it: it counts when that is newer
 * than this one, which may be empty, or when this one has nothing. */
static void put_told(const struct membership *m, struct members *ret)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *p = &m->config.peers->list[i];
        bool newer = p->told.member_index > replica_configuration_index(m->replica);
        if (p->id != 0 && membership_knows_as_much(m, p->told.member_index) &&
            port_of(p->told.peer_address) != 0 &&
            (!p->told.guesses || newer || members_find(ret, p->id) == NULL)) {
            (void)members_put(ret, p->id, p->told.peer_address);
        }
    }
}

/* The newest of the addresses at which its log, or its beginning, has this node, and where it
 * listens. NULL: of none. */
static const char *listens_at(const struct membership *m, const char *begun)
{
    const struct changes *c = replica_changes(m->replica);
    for (unsigned i = c->n; i > 0; i--) {
        const struct configuration_server *self =
            configuration_server(&c->list[i - 1].conf, membership_now(m)->identity.incarnation);
        if (self != NULL && transport_is_at(m->config.transport, self->address)) {
            return self->address;
        }
    }
    return transport_is_at(m->config.transport, begun) ? begun : NULL;
}

/* A node is at an address at which it listens. One that is being moved is at its address of before
 * until it is started again there, and tells that one; also when it has been started at the old one
 * once more. One that knows no such address is behind a forwarded one, or was moved and its log
 * does not know it: what it tells is a guess. */
static void put_self(struct membership *m, struct members *ret)
{
    const struct identity *id = &membership_now(m)->identity;
    const struct configuration_server *self =
        configuration_server(replica_configuration(m->replica), id->incarnation);
    const char *begun = members_find(&id->members, id->id)->address;
    const char *newest = self != NULL ? self->address : begun;
    struct peer_identity *told = transport_self(m->config.transport);
    bool unknown = told->guesses || told->peer_address[0] == '\0';
    if (unknown || transport_is_at(m->config.transport, newest)) {
        const char *is = listens_at(m, begun);
        told->guesses = is == NULL;
        (void)snprintf(told->peer_address, sizeof told->peer_address, "%s",
                       told->guesses ? newest : is);
    }
    (void)members_put(ret, id->id, told->peer_address);
}

static struct members make_members(struct membership *m)
{
    const struct configuration *c = replica_configuration(m->replica);
    struct members ret = {0};
    for (unsigned i = 0; i < c->n; i++) {
        (void)members_put(&ret, c->servers[i].id, c->servers[i].address);
    }
    if (c->n == 0) {
        ret = membership_now(m)->identity.members;
    }
    put_expected(m, &ret);
    put_told(m, &ret);
    put_self(m, &ret);
    return ret;
}

/* Whoever may not stay is hung up on, and hears why when it calls again. */
static void drop_strangers(struct membership *m)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct peer *p = &m->config.peers->list[i];
        bool stays = p->id == 0 || p->told.incarnation == 0 || p->id == membership_self(m) ||
                     membership_is_let_in(m, &p->told);
        if (!stays) {
            p->told.incarnation = p->told.cluster_id = p->told.member_index = 0;
            membership_hang_up(m, p->id);
        }
    }
}

void membership_members_turn(struct membership *m)
{
    struct peer_identity *self = transport_self(m->config.transport);
    uint64_t index = replica_configuration_index(m->replica);
    bool certain = replica_configuration_committed(m->replica);
    /* With the index goes its term: by both a leader judges whether it knows all. */
    self->term = replica_term(m->replica);
    self->last_index = replica_last_index(m->replica);
    self->cluster_id = cluster_id_of(m);
    self->member_index = replica_member_index(m->replica);
    self->members_crc = membership_now(m)->identity.begun_crc;
    if (!m->members_due && index == m->members_index && certain == m->members_certain) {
        return;
    }
    m->members_due = false;
    m->members_index = index;
    m->members_certain = certain;
    drop_strangers(m);
    struct members fresh = make_members(m);
    bool same = members_equal(&fresh, &m->members);
    m->members = fresh;
    if (!same) {
        transport_set_members(m->config.transport, &m->members);
        relay_leave_strangers(m->config.relay);
    }
    /* Also for a member that there was no room for while a worker read for a former one. */
    peers_set_members(m->config.peers, &m->members);
}

uint64_t membership_number_of(const struct membership *m, uint64_t incarnation)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (m->config.peers->list[i].told.incarnation == incarnation) {
            return m->config.peers->list[i].id;
        }
    }
    return 0;
}

const char *membership_client_address(const struct membership *m, uint64_t id)
{
    const struct peer *p = peers_find(m->config.peers, id);
    return p == NULL || p->told.client_address[0] == '\0' ? NULL : p->told.client_address;
}

/* ---- ticks ---- */

/* This node's own log says that it was removed. */
static void check_removed(struct membership *m)
{
    uint64_t index;
    uint64_t own = replica_member_index(m->replica);
    const struct configuration *c = replica_committed_configuration(m->replica, &index);
    if (c != NULL && own != 0 && own < index &&
        configuration_server(c, membership_now(m)->identity.incarnation) == NULL) {
        host_fail(&m->config.host, FL_EDENIED,
                  "this node was removed from the cluster: its data directory is of no more use");
    }
}

/* The leader's work for its members, at each tick: one command at a time, and none behind an
 * operator's, which may change what it would be about. The first leader begins with INIT. */
static void lead(struct membership *m)
{
    bool planned = m->operation.active && m->operation.index == 0;
    const struct machine_command init = {
        .op = MACHINE_OP_INIT, .number = cluster_id_of(m), .limits = *m->config.limits};
    if (m->own_busy || planned || m->transfer_id != 0) {
        return;
    }
    if (!membership_formed(m)) {
        (void)membership_submit(m, &init);
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
    m->replica = config->replica;
    m->started_ms = fli_clock_ms();
    m->members_due = true;
    config->election->members = &m->members;
    peers_place(config->peers, membership_self(m))->told = *transport_self(config->transport);
    membership_members_turn(m);
    *ret = m;
    return 0;
}

void membership_destroy(struct membership *m)
{
    free(m);
}
