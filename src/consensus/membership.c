/* membership.c: see membership.h. What is known of incarnations is in membership_known.c. */
#include "consensus/membership_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define REFUSED_MS 3000u /* refused by peers and welcome nowhere for this long: stop */
#define CALL_MS 500u     /* between calls to a member that was forgotten */

static uint64_t now_ms(const struct membership *m)
{
    return host_now_ms(&m->config.host);
}

static void wake(struct membership *m)
{
    m->config.host.wake(m->config.host.ctx);
}

bool membership_formed(const struct membership *m)
{
    return machine_cluster_id(fsm_machine(m->config.fsm)) != 0;
}

bool membership_all_known(const struct membership *m)
{
    return m->known_complete;
}

/* ---- commands of the cluster's own ---- */

static void forget_finish(struct membership *m, int status)
{
    void (*cb)(void *ctx, int status) = m->forget_cb;
    void *ctx = m->forget_ctx;
    m->forget_id = 0;
    m->forget_cb = NULL;
    if (cb != NULL) {
        cb(ctx, status);
    }
}

static void admin_done(struct node_ticket *t, int status, const struct machine_result *result,
                       struct fli_slice payload)
{
    struct membership *m = FLI_CONTAINER_OF(t, struct membership, admin);
    FLI_ASSERT(m->admin_busy);
    m->admin_busy = false;
    if (m->admin_op == MACHINE_OP_FORGET && m->forget_id != 0) {
        host_log(&m->config.host, 3, "node %" PRIu64 " is forgotten", m->forget_id);
        forget_finish(m, status == 0 ? 0 : FL_EUNCERTAIN);
    }
    wake(m);
}

bool membership_returned(struct membership *m, struct node_ticket *t)
{
    if (t != &m->admin) {
        return false;
    }
    admin_done(t, FL_EUNCERTAIN, NULL, (struct fli_slice){NULL, 0});
    return true;
}

/* Submits one command. False: not now. */
static bool admin_submit(struct membership *m, const struct machine_command *c)
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
    m->admin_op = c->op;
    m->admin_busy = rv == 0;
    return rv == 0;
}

/* ---- forming ---- */

static void say_forming(struct membership *m, const char *text)
{
    if (strcmp(m->said, text) != 0) {
        snprintf(m->said, sizeof m->said, "%s", text);
        host_log(&m->config.host, 3, "%s", text);
    }
}

/* Members that have not done their part, for the log. */
static void say_waiting(struct membership *m, const char *what, const bool missing[MEMBERS_MAX])
{
    char text[sizeof m->said];
    size_t len =
        (size_t)snprintf(text, sizeof text, "the cluster is being formed: waiting for%s", what);
    for (unsigned i = 0; i < m->n && len < sizeof text; i++) {
        if (missing[i]) {
            len += (size_t)snprintf(text + len, sizeof text - len, " node %" PRIu64 " (%s)",
                                    m->peers[i].id, m->config.identity->members.list[i].address);
        }
    }
    say_forming(m, text);
}

/* JOIN for the first member that can be joined. True when one was submitted. */
static bool join_one(struct membership *m)
{
    struct machine *machine = fsm_machine(m->config.fsm);
    for (unsigned i = 0; i < m->n; i++) {
        struct member_state *p = &m->peers[i];
        if (machine_incarnation(machine, p->id) == 0 && p->incarnation != 0 &&
            p->id != m->forget_id) {
            struct machine_command c = {
                .op = MACHINE_OP_JOIN, .number = p->id, .number2 = p->incarnation};
            host_log(&m->config.host, 3, "node %" PRIu64 " joins as %016" PRIx64, p->id,
                     p->incarnation);
            return admin_submit(m, &c);
        }
    }
    return false;
}

static bool is_ready(const struct membership *m, unsigned i)
{
    uint64_t id = m->peers[i].id;
    return id == m->config.identity->id
               ? m->known_complete
               : relay_server_ready(m->config.followers, id, m->config.identity->known[i]);
}

static void form(struct membership *m)
{
    struct machine *machine = fsm_machine(m->config.fsm);
    bool absent[MEMBERS_MAX] = {false};
    bool unready[MEMBERS_MAX] = {false};
    bool any_absent = false;
    bool any_unready = false;
    for (unsigned i = 0; i < m->n; i++) {
        absent[i] = machine_incarnation(machine, m->peers[i].id) == 0;
        unready[i] = !is_ready(m, i);
        any_absent = any_absent || absent[i];
        any_unready = any_unready || unready[i];
    }
    if (any_absent) {
        say_waiting(m, " (all members must be up the first time)", absent);
        return;
    }
    if (any_unready) {
        say_waiting(m, "", unready);
        return;
    }
    struct machine_command c = {.op = MACHINE_OP_INIT, .limits = *m->config.limits};
    while (c.number == 0) {
        fli_random(&c.number, sizeof c.number);
    }
    if (admin_submit(m, &c)) {
        say_forming(m, "the cluster is being formed: all members are known");
    }
}

/* ---- changes of the configuration ---- */

static const struct configuration_server *server_of(const struct membership *m, uint64_t id)
{
    return configuration_find(replica_configuration(m->replica), id);
}

static bool may_change(const struct membership *m)
{
    return replica_role(m->replica) == REPLICA_LEADER &&
           replica_configuration_committed(m->replica) && replica_transferee(m->replica) == 0;
}

static bool change(struct membership *m, const struct configuration *c)
{
    int rv = replica_change(m->replica, now_ms(m), c);
    if (rv != 0) {
        host_log(&m->config.host, 2, "a change of the configuration was refused: %s",
                 fl_strerror(rv));
    }
    wake(m);
    return rv == 0;
}

static void add_learner(struct membership *m, unsigned i)
{
    struct configuration c = *replica_configuration(m->replica);
    const struct member *member = &m->config.identity->members.list[i];
    if (configuration_add(&c, member->id, member->address, CONFIGURATION_LEARNER) == 0) {
        host_log(&m->config.host, 3, "node %" PRIu64 " is added to the cluster", member->id);
        (void)change(m, &c);
    }
}

/* A learner is followed until it is close enough, and then gets its vote. */
static void promote(struct membership *m, uint64_t id)
{
    struct configuration c = *replica_configuration(m->replica);
    switch (replica_catch_up_status(m->replica, id)) {
    case CATCH_UP_FINISHED:
        if (configuration_set_role(&c, id, CONFIGURATION_VOTER) == 0 && change(m, &c)) {
            host_log(&m->config.host, 3, "node %" PRIu64 " is a voter", id);
        }
        break;
    case CATCH_UP_RUNNING:
        break;
    default:
        host_log(&m->config.host, 3, "node %" PRIu64 " is brought up to date, to become a voter",
                 id);
        if (replica_catch_up(m->replica, now_ms(m), id) != 0) {
            host_log(&m->config.host, 4, "node %" PRIu64 " cannot be followed now", id);
        }
        break;
    }
}

/* Adds and promotes members that were forgotten and have joined again. */
static void restore_voters(struct membership *m)
{
    struct machine *machine = fsm_machine(m->config.fsm);
    for (unsigned i = 0; i < m->n && may_change(m); i++) {
        struct member_state *p = &m->peers[i];
        const struct configuration_server *server = server_of(m, p->id);
        /* A learner waits to be called, and calls nobody: a leader that has not heard it must not
         * wait for it to call. */
        bool heard = p->incarnation != 0 || server != NULL;
        /* When a FORGET was cut short behind the removal, what calls now is another incarnation: to
         * take the former one in again would only stand in the way of the next FORGET. */
        if (p->id == m->forget_id || machine_incarnation(machine, p->id) == 0 || !heard ||
            p->other_incarnation || (server != NULL && server->role == CONFIGURATION_VOTER)) {
            continue;
        }
        if (server == NULL) {
            add_learner(m, i);
        } else {
            promote(m, p->id);
        }
        return; /* one at a time */
    }
}

/* The answer to it was judged: that is all it was for. */
static void called(void *ctx, int status, const struct peer_identity *peer, struct stream *stream)
{
    struct member_state *p = ctx;
    struct membership *m = p->owner;
    (void)peer;
    p->calling = false;
    p->call_at_ms = now_ms(m) + CALL_MS;
    if (status == 0) {
        stream_close(stream);
    }
}

/* A member that was forgotten shakes hands once more, and then it may come back. One that has lost
 * nothing but the sight of its leader does not know that it was forgotten: its streams to the
 * others are open, and it asks for votes on them for ever, as no member. So the leader calls it. */
static void call_forgotten(struct membership *m)
{
    for (unsigned i = 0; i < m->n; i++) {
        struct member_state *p = &m->peers[i];
        if (p->id == m->config.identity->id || p->incarnation != 0 || server_of(m, p->id) != NULL ||
            p->calling || now_ms(m) < p->call_at_ms) {
            continue;
        }
        p->call_at_ms = now_ms(m) + CALL_MS;
        p->calling = transport_dial(m->transport, p->id, STREAM_RELAY, called, p) == 0;
    }
}

/* ---- forget ---- */

/* Once the node is out of the configuration its incarnation may go. */
static void forget_step(struct membership *m)
{
    bool removed =
        server_of(m, m->forget_id) == NULL && replica_configuration_committed(m->replica);
    if (!removed) {
        return;
    }
    struct machine_command c = {.op = MACHINE_OP_FORGET, .number = m->forget_id};
    (void)admin_submit(m, &c); /* if not now, at the next beat */
}

static bool others_have_majority(const struct membership *m, uint64_t without)
{
    const struct configuration *c = replica_configuration(m->replica);
    unsigned voters = 0;
    unsigned up = 0;
    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id;
        if (id == without || c->servers[i].role != CONFIGURATION_VOTER) {
            continue;
        }
        voters++;
        up += id == m->config.identity->id || relay_server_connected(m->config.followers, id);
    }
    return up > voters / 2;
}

int membership_forget(struct membership *m, uint64_t id, void (*cb)(void *ctx, int status),
                      void *ctx)
{
    if (id == m->config.identity->id) {
        return FL_EINVAL;
    }
    if (membership_find(m, id) == NULL) {
        return FL_ENOTFOUND;
    }
    if (!proposer_is_open(m->config.proposer)) {
        return FL_ENOLEADER;
    }
    if (relay_server_connected(m->config.followers, id) || m->forget_id != 0 || !may_change(m)) {
        return FL_EBUSY;
    }
    if (!others_have_majority(m, id)) {
        return FL_EDENIED;
    }
    struct configuration c = *replica_configuration(m->replica);
    if (configuration_remove(&c, id) == 0) {
        int rv = c.n == 0 ? FL_EDENIED : replica_change(m->replica, now_ms(m), &c);
        if (rv != 0) {
            host_log(&m->config.host, 2, "node %" PRIu64 " cannot be removed: %s", id,
                     fl_strerror(rv));
            return rv;
        }
        host_log(&m->config.host, 3, "node %" PRIu64 " is being removed from the cluster", id);
        wake(m);
    }
    m->forget_id = id;
    m->forget_cb = cb;
    m->forget_ctx = ctx;
    return 0;
}

void membership_deposed(struct membership *m)
{
    if (m->forget_id != 0) {
        forget_finish(m, FL_EUNCERTAIN);
    }
}

/* ---- handing leadership over ---- */

/* The connected voter that has most of the log; 0 for none. */
static uint64_t best_follower(const struct membership *m)
{
    uint64_t best = 0;
    uint64_t best_match = 0;
    for (unsigned i = 0; i < m->n; i++) {
        uint64_t id = m->peers[i].id;
        const struct configuration_server *server = server_of(m, id);
        if (id == m->config.identity->id || !relay_server_connected(m->config.followers, id) ||
            server == NULL || server->role != CONFIGURATION_VOTER) {
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
    id = id == 0 ? best_follower(m) : id;
    int rv = id == 0 ? FL_ENOTFOUND : replica_transfer(m->replica, now_ms(m), id);
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

/* Over when somebody else leads, or when the core has given it up. A leader that has stepped down
 * waits for a moment to hear who leads now. */
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

/* ---- beats ---- */

/* A wiped node is refused by everybody who knows better, and stops. One that was forgotten and has
 * come back may be refused by a member that is behind, but is welcome at the leader. */
static void check_refused(struct membership *m)
{
    bool refused = false;
    bool welcome = false;
    for (unsigned i = 0; i < m->n; i++) {
        refused = refused || m->peers[i].verdict == HANDSHAKE_OTHER_INCARNATION;
        welcome = welcome || m->peers[i].verdict == HANDSHAKE_WELCOME;
    }
    if (!refused || welcome) {
        m->refused_since_ms = 0;
    } else if (m->refused_since_ms == 0) {
        m->refused_since_ms = now_ms(m);
    } else if (now_ms(m) - m->refused_since_ms >= REFUSED_MS) {
        host_fail(&m->config.host, FL_EDENIED, "the other members refuse this node: %s",
                  m->refused_why);
    }
}

/* What a leader does for its members. */
static void lead(struct membership *m)
{
    const struct identity *id = m->config.identity;
    uint64_t own = machine_incarnation(fsm_machine(m->config.fsm), id->id);
    if (own != 0 && own != id->incarnation) {
        host_fail(&m->config.host, FL_EDENIED,
                  "this node is known as %016" PRIx64 ", but its data directory says %016" PRIx64
                  ": it was replaced; run CLUSTER FORGET %" PRIu64
                  " on a healthy node and start it again",
                  own, id->incarnation, id->id);
        return;
    }
    if (m->admin_busy) {
        return;
    }
    if (m->forget_id != 0) {
        forget_step(m);
    } else if (!join_one(m)) {
        if (membership_formed(m)) {
            call_forgotten(m);
            restore_voters(m);
        } else {
            form(m);
        }
    }
}

void membership_beat(struct membership *m, bool running)
{
    membership_sync(m);
    check_refused(m);
    transfer_turn(m);
    if (running && proposer_is_open(m->config.proposer)) {
        lead(m);
    }
}

void membership_turn(struct membership *m, bool running)
{
    membership_sync(m);
    transfer_turn(m);
    bool forming = !membership_formed(m) || m->config.identity->cluster_id == 0;
    if (forming && running && proposer_is_open(m->config.proposer)) {
        lead(m);
    }
}

void membership_close(struct membership *m)
{
    if (m->forget_id != 0) {
        forget_finish(m, FL_EUNCERTAIN);
    }
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
    m->n = config->identity->members.n;
    for (unsigned i = 0; i < m->n; i++) {
        struct member_state *p = &m->peers[i];
        p->owner = m;
        p->id = config->identity->members.list[i].id;
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
}
