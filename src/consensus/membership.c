/* membership.c: see membership.h. */
#include "consensus/membership_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define REFUSED_MS 3000u /* stop after this long: peers refuse this node and none accepts it */
#define REMOVED_MS 1000u /* the same, when a peer knows that this node was removed */

static void wake(struct membership *m)
{
    m->config.host.wake(m->config.host.ctx);
}

bool membership_formed(const struct membership *m)
{
    return machine_cluster_id(fsm_machine(m->config.fsm)) != 0;
}

/* ---- commands of the cluster's own ---- */

static void admin_done(struct node_ticket *t, int status, const struct machine_result *result,
                       struct fli_slice payload)
{
    struct membership *m = FLI_CONTAINER_OF(t, struct membership, admin);
    bool of_operation = m->admin_of_operation;
    FLI_ASSERT(m->admin_busy);
    m->admin_busy = false;
    m->admin_of_operation = false;
    m->members_due = true;
    if (of_operation) {
        membership_operation_done(m, status, result);
    }
    wake(m);
}

bool membership_returned(struct membership *m, struct node_ticket *t)
{
    if (t != &m->admin) {
        return false;
    }
    admin_done(t, FL_ENOLEADER, NULL, (struct fli_slice){NULL, 0});
    return true;
}

bool membership_submit(struct membership *m, const struct machine_command *c)
{
    struct fli_buf buf;
    FLI_ASSERT(!m->admin_busy);
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    int rv = machine_command_encode(c, &buf);
    if (rv == 0) {
        memset(&m->admin, 0, sizeof m->admin);
        fli_list_init(&m->admin.link);
        rv = proposer_add(m->config.proposer, &m->admin, buf.data, buf.len, admin_done);
    }
    fli_buf_fini(&buf);
    m->admin_busy = rv == 0;
    return rv == 0;
}

/* ---- forming ---- */

void membership_log_once(struct membership *m, const char *text)
{
    if (strcmp(m->last_logged, text) != 0) {
        snprintf(m->last_logged, sizeof m->last_logged, "%s", text);
        host_log(&m->config.host, 3, "%s", text);
    }
}

/* Logs the names of the members that have not done their part yet. */
static void log_waiting(struct membership *m, const bool missing[MEMBERS_MAX], const char *why)
{
    const struct configuration *c = replica_configuration(m->replica);
    char text[sizeof m->last_logged];
    bool any = false;
    size_t len = (size_t)snprintf(text, sizeof text, "the cluster is being formed: waiting for");
    for (unsigned i = 0; i < c->n && len < sizeof text; i++) {
        if (missing[i]) {
            len += (size_t)snprintf(text + len, sizeof text - len, "%s node %" PRIu64 " (%s)",
                                    any ? "," : "", c->servers[i].id, c->servers[i].address);
            any = true;
        }
    }
    if (len < sizeof text) {
        (void)snprintf(text + len, sizeof text - len, "; %s", why);
    }
    membership_log_once(m, text);
}

/* Submits JOIN for the first member that is ready for it. True when one was submitted. */
static bool join_one(struct membership *m)
{
    const struct configuration *conf = replica_configuration(m->replica);
    for (unsigned i = 0; i < conf->n; i++) {
        uint64_t id = conf->servers[i].id;
        const struct member_state *p = membership_find(m, id);
        if (p != NULL && machine_incarnation(membership_machine(m), id) == 0 &&
            p->incarnation != 0) {
            struct machine_command c = {
                .op = MACHINE_OP_JOIN, .number = id, .number2 = p->incarnation};
            host_log(&m->config.host, 3, "node %" PRIu64 " joins as %016" PRIx64, id,
                     p->incarnation);
            return membership_submit(m, &c);
        }
    }
    return false;
}

static bool is_ready(const struct membership *m, uint64_t id)
{
    uint64_t index = replica_configuration_index(m->replica);
    return id == m->config.identity->id
               ? membership_ready_index(m) >= index
               : relay_server_ready(m->config.followers, id, identity_known(m->config.identity, id),
                                    index);
}

static void form(struct membership *m)
{
    const struct configuration *conf = replica_configuration(m->replica);
    bool absent[MEMBERS_MAX] = {false};
    bool unready[MEMBERS_MAX] = {false};
    bool any_absent = false;
    bool any_unready = false;
    for (unsigned i = 0; i < conf->n; i++) {
        uint64_t id = conf->servers[i].id;
        absent[i] = machine_incarnation(membership_machine(m), id) == 0;
        unready[i] = !is_ready(m, id);
        any_absent = any_absent || absent[i];
        any_unready = any_unready || unready[i];
    }
    if (any_absent) {
        log_waiting(m, absent, "the first time all members must be up");
        return;
    }
    if (any_unready) {
        log_waiting(m, unready, "they are to say that they know all members");
        return;
    }
    struct machine_command c = {.op = MACHINE_OP_INIT, .limits = *m->config.limits};
    while (c.number == 0) {
        fli_random(&c.number, sizeof c.number);
    }
    if (membership_submit(m, &c)) {
        membership_log_once(m, "the cluster is being formed: all members are known");
    }
}

bool membership_may_change(const struct membership *m)
{
    return replica_role(m->replica) == REPLICA_LEADER &&
           replica_configuration_committed(m->replica) && replica_transferee(m->replica) == 0;
}

/* Ends an operation that this node cannot follow any longer. One whose command was never submitted
 * is surely not done, nor is one whose command stands in the proposer's line and goes back. */
static void give_up_operation(struct membership *m)
{
    bool in_line = m->admin_of_operation && proposer_hands_back(m->config.proposer);
    m->admin_of_operation = false;
    membership_operation_end(m, in_line || !m->operation.submitted ? FL_ENOLEADER : FL_EUNCERTAIN);
}

/* What was in flight is answered by now. */
void membership_deposed(struct membership *m)
{
    give_up_operation(m);
}

/* ---- handing leadership over ---- */

/* Its plan may be in the log already, or be about to be put there. */
static bool is_leaving(const struct membership *m, uint64_t id)
{
    struct machine_node node;
    const struct membership_operation *o = &m->operation;
    bool asked = o->active && o->change.id == id && o->change.kind != NODE_CHANGE_ADD &&
                 o->change.kind != NODE_CHANGE_MOVE;
    return asked || (machine_node_find(membership_machine(m), id, &node) &&
                     (node.plan == MACHINE_PLAN_REMOVE || node.plan == MACHINE_PLAN_REPLACE));
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
            !relay_server_connected(m->config.followers, id) || is_leaving(m, id) ||
            !m->config.can_lead(m->config.ctx, id)) {
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

/* Whether a member has welcomed this node, or its own disk says that it is one; and the newest
 * state by which that is so. */
static bool is_welcome(const struct membership *m, uint64_t *ret_index)
{
    *ret_index = membership_admitted_index(m->config.identity);
    bool welcome = *ret_index != 0;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct member_state *p = &m->peers[i];
        if (p->verdict == HANDSHAKE_WELCOME) {
            welcome = true;
            *ret_index = p->verdict_index > *ret_index ? p->verdict_index : *ret_index;
        }
    }
    return welcome;
}

/* A wiped or removed node stops when a member refuses it, and none has welcomed it that knew as
 * much of the log. So a welcome of a member that is gone since does not count against the refusal
 * of one that knows more; nor does the refusal of a member that is behind count against the welcome
 * of a leader that cannot be reached just now, or against what this node itself knows. */
static void check_refused(struct membership *m)
{
    uint64_t index;
    bool welcome = is_welcome(m, &index);
    bool refused = false;
    bool removed = false;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct member_state *p = &m->peers[i];
        bool newer = !welcome || p->verdict_index > index;
        refused = refused || (newer && p->verdict == HANDSHAKE_OTHER_INCARNATION);
        removed = removed || (newer && p->verdict == HANDSHAKE_REMOVED);
    }
    if (!refused && !removed) {
        m->refused_since_ms = 0;
    } else if (m->refused_since_ms == 0) {
        m->refused_since_ms = fli_clock_ms();
    } else if (fli_clock_since_ms(m->refused_since_ms) >= (removed ? REMOVED_MS : REFUSED_MS)) {
        host_fail(&m->config.host, FL_EDENIED, "the other members refuse this node: %s",
                  m->refused_why);
    }
}

/* The leader's work for its members, at each tick. */
static void lead(struct membership *m)
{
    const struct identity *id = m->config.identity;
    uint64_t own = machine_incarnation(membership_machine(m), id->id);
    if (own != 0 && own != id->incarnation) {
        host_fail(&m->config.host, FL_EDENIED,
                  "this node is known as %016" PRIx64 ", but its data directory says %016" PRIx64
                  ": it was replaced, and the directory is of no more use",
                  own, id->incarnation);
        return;
    }
    if (m->admin_busy || m->transfer_id != 0) {
        return;
    }
    if (membership_formed(m)) {
        membership_plans(m);
        if (!m->admin_busy) {
            membership_versions(m);
        }
    } else if (!join_one(m)) {
        form(m);
    }
}

void membership_tick(struct membership *m, bool running)
{
    m->members_due = true;
    membership_sync(m);
    m->config.ready(m->config.ctx, membership_ready_index(m));
    check_refused(m);
    transfer_turn(m);
    membership_operation_turn(m);
    if (running && proposer_is_open(m->config.proposer)) {
        lead(m);
    }
}

static void note_leadership(struct membership *m)
{
    bool leads = proposer_is_open(m->config.proposer);
    if (leads && !m->leads) {
        m->leads_since_ms = fli_clock_ms();
    }
    m->leads = leads;
}

void membership_turn(struct membership *m, bool running)
{
    note_leadership(m);
    transport_set_progress(m->transport, replica_term(m->replica), replica_last_index(m->replica));
    membership_sync(m);
    membership_members_turn(m);
    transfer_turn(m);
    membership_operation_turn(m);
    bool forming = !membership_formed(m) || m->config.identity->cluster_id == 0;
    if (forming && running && proposer_is_open(m->config.proposer)) {
        lead(m);
    }
}

void membership_close(struct membership *m)
{
    give_up_operation(m);
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
    m->begun_crc = config->identity->begun_crc;
    m->members = config->identity->members;
    for (unsigned i = 0; i < m->members.n; i++) {
        struct member_state *p = membership_place(m, m->members.list[i].id);
        if (p->id == config->identity->id) {
            p->incarnation = config->identity->incarnation;
        }
    }
    *ret = m;
    return 0;
}

void membership_destroy(struct membership *m)
{
    free(m);
}

void membership_set_transport(struct membership *m, struct transport *t)
{
    m->transport = t;
}

void membership_set_replica(struct membership *m, struct replica *r)
{
    m->replica = r;
    membership_report_admitted(m);
}
