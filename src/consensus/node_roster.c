/* node_roster.c: who the members are: incarnations, forming the cluster, forgetting a member that
 * lost its disk, handing leadership over.
 *
 * Forming. Raft itself needs no more than a majority of empty nodes to elect a leader, and that is
 * one too few to be safe: two empty nodes out of three may be a new cluster whose third node is
 * late, or an old one of which one node never got anything and another was wiped, while the third
 * holds all that was acknowledged. So nothing is answered before the cluster is formed, once in its
 * life, by its leader, in steps that each wait for the one before:
 *
 *   1. JOIN is committed for every member, with the incarnation from its hello
 *   2. every member has all these incarnations on disk, and says so (READY)
 *   3. INIT is committed: the cluster has an id, and takes commands
 *
 * From then on a node that comes back empty is told by its incarnation, by any other member,
 * whatever that member's log holds.
 *
 * Forgetting. A majority of old voters may include the wiped node. Removing it from the
 * configuration commits by a majority of the others, each of which then holds everything before:
 * of 2m+1 old voters at least m others held each acknowledged entry (with the wiped one), and any
 * majority of the remaining 2m, which is m+1, meets those m. What is empty may then be added again,
 * first without a vote. The same holds for an even number. The incarnation is forgotten after the
 * removal, never before.
 *
 * The reconciling in roster_beat is driven by state alone (configuration, machine, hellos), so a
 * new leader goes on where the old one stopped. */
#include <stdio.h>
#include <string.h>

#include "consensus/node_private.h"

#include "base/clock.h"

static unsigned long long ull(uint64_t v)
{
    return (unsigned long long)v;
}

void roster_init(struct node *n)
{
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        p->index = i;
        p->id = n->identity.members.list[i].id;
        if (p->id == n->id) {
            p->incarnation = n->identity.incarnation;
        }
    }
}

bool roster_formed(struct node *n)
{
    return machine_cluster_id(fsm_machine(n->fsm)) != 0;
}

/* ---- what is known of incarnations ---- */

static bool all_known(const struct identity *id)
{
    for (unsigned i = 0; i < id->members.n; i++) {
        if (id->known[i] == 0) {
            return false;
        }
    }
    return true;
}

uint64_t roster_admitted_index(const struct identity *id)
{
    const struct member *self = members_find(&id->members, id->id);
    FLI_ASSERT(self != NULL);
    bool admitted = id->cluster_id != 0 && id->known[self - id->members.list] == id->incarnation;
    return admitted ? id->known_index : 0;
}

/* A member that was forgotten and has joined again as the same life, in one go, finds itself in the
 * machine as before. What it says of itself must be from after that, so each change of the
 * configuration makes the same knowledge new. */
static bool is_dated(struct node *n)
{
    raft_index change = n->raft.configuration_committed_index;
    return change > n->identity.known_index && change <= raft_last_applied(&n->raft);
}

/* Whether the machine says anything else than is known. */
static bool any_news(struct node *n)
{
    const struct identity *id = &n->identity;
    struct machine *m = fsm_machine(n->fsm);
    bool news = machine_cluster_id(m) != id->cluster_id;
    for (unsigned i = 0; i < id->members.n; i++) {
        news = news || machine_incarnation(m, id->members.list[i].id) != id->known[i];
    }
    return news || !n->known_complete || is_dated(n);
}

/* Copies what the machine says to `id`. True when anything is new. */
static bool learn(struct node *n, struct identity *id)
{
    struct machine *m = fsm_machine(n->fsm);
    uint64_t cluster_id = machine_cluster_id(m);
    bool changed = false;
    if (cluster_id != 0 && cluster_id != id->cluster_id) {
        id->cluster_id = cluster_id;
        changed = true;
    }
    for (unsigned i = 0; i < id->members.n; i++) {
        uint64_t incarnation = machine_incarnation(m, id->members.list[i].id);
        if (incarnation != id->known[i]) {
            id->known[i] = incarnation;
            changed = true;
        }
    }
    return changed;
}

/* Of a member that was forgotten whoever calls next counts. Here that may show only when it has
 * joined again, since a log is applied many entries at a time. */
static void note_forgotten(struct node *n, const struct identity *fresh)
{
    for (unsigned i = 0; i < fresh->members.n; i++) {
        struct peer *p = &n->peers[i];
        uint64_t before = n->identity.known[i];
        if (before == 0 || before == fresh->known[i] || p->id == n->id) {
            continue;
        }
        p->other_life = false;
        if (fresh->known[i] == 0 || p->incarnation == before) {
            p->incarnation = 0;
        }
    }
}

void roster_sync(struct node *n)
{
    raft_index applied = raft_last_applied(&n->raft);
    /* While the log is being replayed the machine is behind the file; the file is right. */
    if (n->failed || applied < n->identity.known_index || !any_news(n)) {
        return;
    }
    struct identity fresh = n->identity;
    if (learn(n, &fresh) || is_dated(n)) {
        if (n->identity.cluster_id != 0 && fresh.cluster_id != n->identity.cluster_id) {
            node_fail(n, FL_ECORRUPT, "the log is of another cluster than the data directory");
            return;
        }
        fresh.known_index = applied;
        if (identity_store(&n->dir, &fresh) != 0) {
            node_fail(n, FL_EIO, "the identity file in %s cannot be written", n->dir.path);
            return;
        }
        note_forgotten(n, &fresh);
        n->identity = fresh;
        transport_set_cluster(n->transport, fresh.cluster_id, roster_admitted_index(&fresh));
    }
    if (!n->known_complete && all_known(&n->identity)) {
        n->known_complete = true;
        relay_say_ready(n);
    }
}

/* Whether another life of a member is one that the cluster has taken in since this node last heard.
 * A node that was down while X was forgotten and came back knows X's former life, and would refuse
 * the present one also when that leads, and never hear otherwise.
 *
 * X says at which index of the log the state, as X applied it, has X's present life. What is
 * applied is committed, and all states at one index are the same. If that index is beyond the one
 * that our own knowledge is from, X's is the later word of the same log, and we would say the same
 * had we applied as much. A life that was wiped and not forgotten has applied nothing that names
 * it; one that came before what we know was forgotten at an index below ours, and can only name
 * smaller ones.
 *
 * Votes and commits need no more than that. The removal of X, which came before, was committed by a
 * majority of the others without X. Any majority of voters with X in it, old or new, has one of
 * those in it besides X, so what was acknowledged before the removal is safe whatever X's new life
 * says (see the top). Nor can it help to elect a second leader of a term that its former life has
 * voted in: it has applied its own JOIN, which is at least of the removal's term. Who was a
 * candidate in that term or an earlier one without having these entries has an older log than X and
 * does not get its vote. */
static bool admitted_since(const struct node *n, uint64_t admitted_index)
{
    return admitted_index > n->identity.known_index;
}

/* Whether a life of p counts for this node, by what it says of itself. */
static bool is_member_now(const struct node *n, const struct peer *p, uint64_t incarnation,
                          uint64_t admitted_index)
{
    return n->identity.known[p->index] == incarnation || admitted_since(n, admitted_index);
}

/* Who was forgotten, as far as this node knows, and does not say that it was taken in again: only a
 * leader may let it in, and only once it has applied all that was committed before it led. To all
 * others it may be a life that came after one which joined again, voted, acknowledged, and was
 * wiped. Before a cluster is formed nobody is known. */
static bool may_join(const struct node *n, const struct peer *p)
{
    return n->identity.known[p->index] == 0 &&
           (n->identity.cluster_id == 0 || (n->raft_live && proposer_is_open(n->proposer)));
}

/* A stream outlives what was known when it was opened: who was let in to join may turn out to be
 * another life than the one that joined. */
bool roster_stranger(void *ctx, raft_id id)
{
    const struct node *n = ctx;
    const struct peer *p = node_peer(ctx, id);
    return p != NULL && p->incarnation != 0 && n->identity.known[p->index] != 0 &&
           !is_member_now(n, p, p->incarnation, p->admitted_index);
}

enum transport_verdict roster_judge(void *ctx, const struct transport_identity *peer,
                                    char reason[TRANSPORT_REASON_MAX])
{
    struct node *n = ctx;
    struct peer *p = node_peer(n, peer->node_id);
    FLI_ASSERT(p != NULL);
    /* A member that was forgotten a moment ago counts from its next hello on, which may be this
     * one: that it was must be known before, not at the next beat. */
    if (n->raft_live) {
        roster_sync(n);
    }
    uint64_t known = n->identity.known[p->index];
    uint64_t admitted_index = peer->cluster_id == 0 ? 0 : peer->admitted_index;
    if (!is_member_now(n, p, peer->incarnation, admitted_index) && !may_join(n, p)) {
        if (known == 0) {
            snprintf(reason, TRANSPORT_REASON_MAX,
                     "node %llu was forgotten, and its leader has not taken it in again yet",
                     ull(p->id));
            return TRANSPORT_STRANGER;
        }
        p->other_life = true;
        snprintf(reason, TRANSPORT_REASON_MAX,
                 "node %llu has lost its data: it was %016llx, now it is %016llx; run CLUSTER "
                 "FORGET %llu on the leader and start it again",
                 ull(p->id), ull(known), ull(peer->incarnation), ull(p->id));
        return TRANSPORT_OTHER_LIFE;
    }
    p->admitted_index = admitted_index;
    p->incarnation = peer->incarnation;
    p->other_life = false;
    election_peer_back(n, p);
    if (peer->client_address[0] != '\0') {
        p->client_known = true;
        memcpy(p->client_address, peer->client_address, sizeof p->client_address);
    }
    return TRANSPORT_WELCOME;
}

void roster_answered(void *ctx, uint64_t peer_id, enum transport_verdict verdict,
                     const char *reason)
{
    struct node *n = ctx;
    struct peer *p = node_peer(n, peer_id);
    if (p != NULL && (verdict == TRANSPORT_WELCOME || verdict == TRANSPORT_OTHER_LIFE)) {
        p->verdict = verdict;
        snprintf(n->refused_why, sizeof n->refused_why, "%s", reason);
    }
}

/* A wiped node is refused by everybody who knows better, and stops. One that was forgotten and has
 * come back may be refused by a member that is behind, but is welcome at the leader. */
static void check_refused(struct node *n)
{
    bool refused = false;
    bool welcome = false;
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        refused = refused || n->peers[i].verdict == TRANSPORT_OTHER_LIFE;
        welcome = welcome || n->peers[i].verdict == TRANSPORT_WELCOME;
    }
    if (!refused || welcome) {
        n->refused_since_ms = 0;
    } else if (n->refused_since_ms == 0) {
        n->refused_since_ms = uv_now(n->loop);
    } else if (uv_now(n->loop) - n->refused_since_ms >= NODE_REFUSED_MS) {
        node_fail(n, FL_EDENIED, "the other members refuse this node: %s", n->refused_why);
    }
}

/* ---- reconciling, on the leader ---- */

static void forget_finish(struct node *n, int status)
{
    void (*cb)(void *ctx, int status) = n->forget_cb;
    void *ctx = n->forget_ctx;
    n->forget_id = 0;
    n->forget_cb = NULL;
    if (cb != NULL) {
        cb(ctx, status);
    }
}

static void admin_done(struct node_ticket *t, int status, const struct machine_result *result,
                       struct fli_slice payload)
{
    struct node *n = FLI_CONTAINER_OF(t, struct node, admin);
    FLI_ASSERT(n->admin_busy);
    n->admin_busy = false;
    if (n->admin_op == MACHINE_OP_FORGET && n->forget_id != 0) {
        node_log(n, 3, "node %llu is forgotten", ull(n->forget_id));
        forget_finish(n, status == 0 ? 0 : FL_EUNCERTAIN);
    }
    node_wake(n);
}

void roster_admin_returned(struct node *n)
{
    admin_done(&n->admin, FL_EUNCERTAIN, NULL, (struct fli_slice){NULL, 0});
}

/* Submits one command of the node's own. False: not now. */
static bool admin_submit(struct node *n, const struct machine_command *c)
{
    struct fli_buf buf;
    FLI_ASSERT(!n->admin_busy);
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    int rv = machine_command_encode(c, &buf);
    if (rv == 0) {
        memset(&n->admin, 0, sizeof n->admin);
        fli_list_init(&n->admin.link);
        rv = proposer_add(n->proposer, &n->admin, buf.data, buf.len, admin_done);
    }
    fli_buf_fini(&buf);
    n->admin_op = c->op;
    n->admin_busy = rv == 0;
    return rv == 0;
}

static void say_forming(struct node *n, const char *text)
{
    if (strcmp(n->said, text) != 0) {
        snprintf(n->said, sizeof n->said, "%s", text);
        node_log(n, 3, "%s", text);
    }
}

/* Members that have not done their part, for the log. */
static void say_waiting(struct node *n, const char *what, const bool missing[MEMBERS_MAX])
{
    char text[sizeof n->said];
    size_t len =
        (size_t)snprintf(text, sizeof text, "the cluster is being formed: waiting for%s", what);
    for (unsigned i = 0; i < n->identity.members.n && len < sizeof text; i++) {
        if (missing[i]) {
            len += (size_t)snprintf(text + len, sizeof text - len, " node %llu (%s)",
                                    ull(n->peers[i].id), n->identity.members.list[i].address);
        }
    }
    say_forming(n, text);
}

/* JOIN for the first member that can be joined. True when one was submitted. */
static bool join_one(struct node *n)
{
    struct machine *m = fsm_machine(n->fsm);
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        if (machine_incarnation(m, p->id) == 0 && p->incarnation != 0 && p->id != n->forget_id) {
            struct machine_command c = {
                .op = MACHINE_OP_JOIN, .number = p->id, .number2 = p->incarnation};
            node_log(n, 3, "node %llu joins as %016llx", ull(p->id), ull(p->incarnation));
            return admin_submit(n, &c);
        }
    }
    return false;
}

static void form(struct node *n)
{
    struct machine *m = fsm_machine(n->fsm);
    bool absent[MEMBERS_MAX] = {false};
    bool unready[MEMBERS_MAX] = {false};
    bool any_absent = false;
    bool any_unready = false;
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        absent[i] = machine_incarnation(m, p->id) == 0;
        unready[i] = p->id == n->id ? !n->known_complete
                                    : p->inlet == NULL || !p->inlet->ready ||
                                          p->inlet->incarnation != n->identity.known[i];
        any_absent = any_absent || absent[i];
        any_unready = any_unready || unready[i];
    }
    if (any_absent) {
        say_waiting(n, " (all members must be up the first time)", absent);
        return;
    }
    if (any_unready) {
        say_waiting(n, "", unready);
        return;
    }
    struct machine_command c = {.op = MACHINE_OP_INIT, .limits = n->limits};
    while (c.number == 0) {
        fli_random(&c.number, sizeof c.number);
    }
    if (admin_submit(n, &c)) {
        say_forming(n, "the cluster is being formed: all members are known");
    }
}

static const struct raft_server *server_of(struct node *n, uint64_t id)
{
    for (unsigned i = 0; i < n->raft.configuration.n; i++) {
        if (n->raft.configuration.servers[i].id == id) {
            return &n->raft.configuration.servers[i];
        }
    }
    return NULL;
}

static bool may_change(struct node *n)
{
    return !n->change_busy && n->raft.configuration_uncommitted_index == 0 &&
           raft_transferee(&n->raft) == 0 && raft_state(&n->raft) == RAFT_LEADER;
}

static void change_done(struct raft_change *req, int status)
{
    struct node *n = req->data;
    n->change_busy = false;
    if (status != 0) {
        node_log(n, 2, "a change of the configuration failed: %s", raft_strerror(status));
    }
    node_wake(n);
}

/* Adds and promotes members that were forgotten and have joined again. */
static void restore_voters(struct node *n)
{
    struct machine *m = fsm_machine(n->fsm);
    for (unsigned i = 0; i < n->identity.members.n && may_change(n); i++) {
        struct peer *p = &n->peers[i];
        const struct raft_server *server = server_of(n, p->id);
        /* Who is in the configuration without a vote waits to be called, and calls nobody: a leader
         * that has not heard it must not wait for it to call. */
        bool heard = p->incarnation != 0 || server != NULL;
        /* When a FORGET was cut short behind the removal, what calls now is another life: to take
         * the former one in again would only stand in the way of the next FORGET. */
        if (p->id == n->forget_id || machine_incarnation(m, p->id) == 0 || !heard ||
            p->other_life || (server != NULL && server->role == RAFT_VOTER)) {
            continue;
        }
        int rv;
        memset(&n->change, 0, sizeof n->change);
        n->change.data = n;
        n->change_busy = true;
        if (server == NULL) {
            node_log(n, 3, "node %llu is added to the cluster", ull(p->id));
            rv = raft_add(&n->raft, &n->change, p->id, n->identity.members.list[i].address,
                          change_done);
        } else {
            node_log(n, 3, "node %llu is brought up to date, to become a voter", ull(p->id));
            rv = raft_assign(&n->raft, &n->change, p->id, RAFT_VOTER, change_done);
        }
        if (rv != 0) {
            n->change_busy = false;
            node_log(n, 2, "a change of the configuration was refused: %s", raft_strerror(rv));
            return;
        }
    }
}

/* The answer to it was judged: that is all it was for. */
static void knocked(void *ctx, int status, const struct transport_identity *peer,
                    uv_stream_t *stream)
{
    struct peer *p = ctx;
    struct node *n = FLI_CONTAINER_OF(p - p->index, struct node, peers[0]);
    (void)peer;
    p->dialing = false;
    p->redial_ms = uv_now(n->loop) + NODE_KNOCK_MS;
    if (status == 0) {
        uv_close((uv_handle_t *)stream, (uv_close_cb)raft_free);
    }
    node_handle_gone(n);
}

/* A member that was forgotten says hello once more, and then it may come back. One that has lost
 * nothing but the sight of its leader does not know that it was forgotten: its streams to the
 * others are open, and it asks for votes on them for ever, as no member. So the leader calls it. */
static void knock(struct node *n)
{
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        if (p->id == n->id || p->incarnation != 0 || server_of(n, p->id) != NULL || p->dialing ||
            uv_now(n->loop) < p->redial_ms) {
            continue;
        }
        p->redial_ms = uv_now(n->loop) + NODE_KNOCK_MS;
        if (transport_link(n->transport, p->id, knocked, p) == 0) {
            p->dialing = true;
            n->handles++;
        }
    }
}

static void forget_step(struct node *n);

void roster_beat(struct node *n)
{
    roster_sync(n);
    check_refused(n);
    if (n->failed || n->phase != PHASE_RUN || !proposer_is_open(n->proposer)) {
        return;
    }
    uint64_t own = machine_incarnation(fsm_machine(n->fsm), n->id);
    if (own != 0 && own != n->identity.incarnation) {
        node_fail(n, FL_EDENIED,
                  "this node is known as %016llx, but its data directory says %016llx: it was "
                  "replaced; run CLUSTER FORGET %llu on a healthy node and start it again",
                  ull(own), ull(n->identity.incarnation), ull(n->id));
        return;
    }
    if (n->admin_busy) {
        return;
    }
    if (n->forget_id != 0) {
        forget_step(n);
    } else if (!join_one(n)) {
        if (roster_formed(n)) {
            knock(n);
            restore_voters(n);
        } else {
            form(n);
        }
    }
}

/* ---- forget ---- */

static void forget_removed(struct raft_change *req, int status)
{
    struct node *n = req->data;
    change_done(req, status);
    if (status != 0 && n->forget_id != 0) {
        forget_finish(n, FL_EUNCERTAIN);
    }
}

/* The node is out of the configuration: its incarnation may go. */
static void forget_step(struct node *n)
{
    if (n->change_busy || n->raft.configuration_uncommitted_index != 0 ||
        server_of(n, n->forget_id) != NULL) {
        return;
    }
    struct machine_command c = {.op = MACHINE_OP_FORGET, .number = n->forget_id};
    (void)admin_submit(n, &c); /* if not now, at the next beat */
}

static bool others_have_majority(struct node *n, uint64_t without)
{
    unsigned voters = 0;
    unsigned up = 0;
    for (unsigned i = 0; i < n->raft.configuration.n; i++) {
        const struct raft_server *server = &n->raft.configuration.servers[i];
        if (server->id == without || server->role != RAFT_VOTER) {
            continue;
        }
        struct peer *p = node_peer(n, server->id);
        voters++;
        up += server->id == n->id || (p != NULL && p->inlet != NULL) ? 1 : 0;
    }
    return up > voters / 2;
}

int node_forget(struct node *n, uint64_t id, void (*cb)(void *ctx, int status), void *ctx)
{
    if (id == n->id) {
        return FL_EINVAL;
    }
    struct peer *p = node_peer(n, id);
    if (p == NULL) {
        return FL_ENOTFOUND;
    }
    if (n->phase != PHASE_RUN || n->failed || !proposer_is_open(n->proposer)) {
        return FL_ENOLEADER;
    }
    if (p->inlet != NULL || n->forget_id != 0 || !may_change(n)) {
        return FL_EBUSY;
    }
    if (!others_have_majority(n, id)) {
        return FL_EDENIED;
    }
    if (server_of(n, id) != NULL) {
        memset(&n->change, 0, sizeof n->change);
        n->change.data = n;
        n->change_busy = true;
        int rv = raft_remove(&n->raft, &n->change, id, forget_removed);
        if (rv != 0) {
            n->change_busy = false;
            node_log(n, 2, "node %llu cannot be removed: %s", ull(id), raft_strerror(rv));
            return rv == RAFT_NOTLEADER ? FL_ENOLEADER : FL_EBUSY;
        }
        node_log(n, 3, "node %llu is being removed from the cluster", ull(id));
    }
    n->forget_id = id;
    n->forget_cb = cb;
    n->forget_ctx = ctx;
    return 0;
}

void roster_deposed(struct node *n)
{
    /* While the change is raft's, its callback comes and says so. */
    if (n->forget_id != 0 && !n->change_busy) {
        forget_finish(n, FL_EUNCERTAIN);
    }
}

/* ---- handing leadership over ---- */

static void transfer_done(struct raft_transfer *req)
{
    struct node *n = req->data;
    raft_id leader = 0;
    const char *address;
    if (n->raft_live) {
        raft_leader(&n->raft, &leader, &address);
    }
    n->transfer_busy = false;
    void (*cb)(void *ctx, int status) = n->transfer_cb;
    n->transfer_cb = NULL;
    node_wake(n);
    if (cb != NULL) {
        cb(n->transfer_ctx, leader == n->transfer_id ? 0 : FL_ETIMEOUT);
    }
}

/* The connected voter that has most of the log; 0 for none. */
static uint64_t best_follower(struct node *n)
{
    uint64_t best = 0;
    raft_index best_match = 0;
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        struct peer *p = &n->peers[i];
        const struct raft_server *server = server_of(n, p->id);
        raft_index match = 0;
        if (p->id == n->id || p->inlet == NULL || server == NULL || server->role != RAFT_VOTER ||
            raft_match_index(&n->raft, p->id, &match) != 0) {
            continue;
        }
        if (best == 0 || match > best_match) {
            best = p->id;
            best_match = match;
        }
    }
    return best;
}

int roster_transfer(struct node *n, uint64_t id, void (*cb)(void *ctx, int status), void *ctx)
{
    if (!n->raft_live || n->failed || raft_state(&n->raft) != RAFT_LEADER) {
        return FL_ENOLEADER;
    }
    if (n->transfer_busy || raft_transferee(&n->raft) != 0) {
        return FL_EBUSY;
    }
    const struct raft_server *server;
    id = id == 0 ? best_follower(n) : id;
    server = id == 0 || id == n->id ? NULL : server_of(n, id);
    if (server == NULL || server->role != RAFT_VOTER) {
        return FL_ENOTFOUND;
    }
    memset(&n->transfer, 0, sizeof n->transfer);
    n->transfer.data = n;
    n->transfer_busy = true;
    n->transfer_id = id;
    n->transfer_cb = cb;
    n->transfer_ctx = ctx;
    int rv = raft_transfer(&n->raft, &n->transfer, id, transfer_done);
    if (rv != 0) {
        n->transfer_busy = false;
        n->transfer_cb = NULL;
        return rv == RAFT_NOTLEADER ? FL_ENOLEADER : FL_ENOTFOUND;
    }
    node_log(n, 3, "leadership is handed to node %llu", ull(id));
    return 0;
}

int node_transfer(struct node *n, uint64_t id, void (*cb)(void *ctx, int status), void *ctx)
{
    FLI_ASSERT(cb != NULL);
    return n->phase == PHASE_RUN ? roster_transfer(n, id, cb, ctx) : FL_ENOLEADER;
}

void roster_close(struct node *n)
{
    if (n->forget_id != 0) {
        forget_finish(n, FL_EUNCERTAIN);
    }
}

/* ---- for CLUSTER and INFO ---- */

size_t node_members(struct node *n, struct node_member *ret, size_t max)
{
    size_t count = n->identity.members.n < max ? n->identity.members.n : max;
    bool leads = n->raft_live && raft_state(&n->raft) == RAFT_LEADER;
    for (size_t i = 0; i < count; i++) {
        struct peer *p = &n->peers[i];
        const struct raft_server *server = n->raft_live ? server_of(n, p->id) : NULL;
        raft_index match = 0;
        if (leads) {
            (void)raft_match_index(&n->raft, p->id, &match);
        }
        ret[i] = (struct node_member){
            .id = p->id,
            .peer_address = n->identity.members.list[i].address,
            .client_address = p->client_known ? p->client_address : NULL,
            .voter = server != NULL && server->role == RAFT_VOTER,
            .leader = p->id == n->leader_id,
            .self = p->id == n->id,
            .connected = p->id == n->id || p->inlet != NULL || p->outlet != NULL,
            .match_index = match,
        };
    }
    return count;
}
