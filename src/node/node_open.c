/* node_open.c: makes a node: the directory and its contents, the parts, and the loop's handles.
 *
 * Everything that can fail comes first, while nothing is on the loop. The log is recovered before a
 * peer can call. Only then does the record say that there is a log: a crash in between leaves a
 * directory that has promised nothing, and it is made anew. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "node/node_private.h"
#include "machine/batch.h"

#define RAFT_FRAME_MAX MESSAGE_BODY_MAX
#define RAFT_OUT_MAX ((size_t)32 << 20)
#define RELAY_FRAME_MAX ((size_t)96 << 10)
#define RELAY_OUT_MAX ((size_t)32 << 20)

/* ---- configuration ---- */

/* The configuration, with the defaults for what is 0. */
static struct node_config with_defaults(const struct node_config *given)
{
    struct node_config c = *given;
    c.heartbeat_ms = c.heartbeat_ms != 0 ? c.heartbeat_ms : NODE_HEARTBEAT_MS;
    c.election_ms = c.election_ms != 0 ? c.election_ms : NODE_ELECTION_MS;
    c.hold_ms = c.hold_ms != 0 ? c.hold_ms : NODE_HOLD_MS;
    c.pending_max = c.pending_max != 0 ? c.pending_max : NODE_PENDING_MAX;
    c.snapshot_bytes = c.snapshot_bytes != 0 ? c.snapshot_bytes : NODE_SNAPSHOT_BYTES;
    if (c.snapshot_entries == 0) { /* in proportion when snapshot_bytes is small */
        uint64_t bytes =
            c.snapshot_bytes < NODE_SNAPSHOT_BYTES ? c.snapshot_bytes : NODE_SNAPSHOT_BYTES;
        c.snapshot_entries = NODE_SNAPSHOT_ENTRIES * bytes / NODE_SNAPSHOT_BYTES + 1;
    }
    c.log_kept_entries = c.log_kept_entries != 0 ? c.log_kept_entries : NODE_LOG_KEPT_ENTRIES;
    return c;
}

static int check_config(const struct node_config *c, char *errmsg, size_t errmsg_size)
{
    if (members_find(c->members, c->id) == NULL) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "node %" PRIu64 " is not among the members of the cluster", c->id);
    }
    if (c->heartbeat_ms < 5 || c->election_ms > 60000 || c->election_ms < 3 * c->heartbeat_ms) {
        return fli_refuse(
            errmsg, errmsg_size, FL_EINVAL,
            "heartbeat %u ms and election %u ms: the heartbeat must be at least 5 ms, the election "
            "at least three heartbeats and at most 60000 ms",
            c->heartbeat_ms, c->election_ms);
    }
    if (c->pending_max < MACHINE_COMMAND_MAX) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL, "pending_max must be at least %u bytes",
                          MACHINE_COMMAND_MAX);
    }
    return 0;
}

/* raft_edge.c was written against one version of the raft library (src/consensus/RAFT.md). */
static int check_library(char *errmsg, size_t errmsg_size)
{
    int version = raft_version_number();
    if (version == RAFT_VERSION_NUMBER) {
        return 0;
    }
    return fli_refuse(
        errmsg, errmsg_size, FL_EVERSION,
        "the raft library is version %d.%d.%d, and this program was built and tested with "
        "%d.%d.%d: install that version, or rebuild once src/consensus/RAFT.md was checked "
        "against the other",
        version / 10000, version / 100 % 100, version % 100, RAFT_VERSION_MAJOR, RAFT_VERSION_MINOR,
        RAFT_VERSION_RELEASE);
}

/* ---- what the parts call back ---- */

static void log_as(const struct node *n, int level, const char *part, const char *message)
{
    if (n->cbs.log != NULL) {
        n->cbs.log(n->cbs.ctx, level, part, message);
    }
}

static void host_log_cb(void *ctx, int level, const char *message)
{
    log_as(ctx, level, "cluster", message);
}

static void peer_log_cb(void *ctx, int level, const char *message)
{
    log_as(ctx, level, "peer", message);
}

void node_log_snapshot(void *ctx, int level, const char *message)
{
    log_as(ctx, level, "snapshot", message);
}

static void host_fail_cb(void *ctx, int error, const char *message)
{
    struct node *n = ctx;
    if (!n->failed) {
        n->failed = true;
        n->cbs.fatal(n->cbs.ctx, error, message);
    }
}

static void event_cb(void *ctx, const struct machine_event *event)
{
    struct node *n = ctx;
    relay_event(&n->relay, event);
    if (n->cbs.event != NULL) {
        n->cbs.event(n->cbs.ctx, event);
    }
}

static enum handshake_verdict check_cb(void *ctx, const struct peer_identity *peer,
                                       char reason[HANDSHAKE_REASON_MAX])
{
    struct node *n = ctx;
    return membership_check_peer(n->membership, peer, reason);
}

static void answered_cb(void *ctx, uint64_t peer_id, enum handshake_verdict verdict,
                        const char *reason)
{
    struct node *n = ctx;
    membership_answered(n->membership, peer_id, verdict, reason);
}

static void absent_cb(void *ctx, uint64_t peer_id)
{
    struct node *n = ctx;
    election_peer_absent(&n->election, peer_id);
}

static uint64_t number_of_cb(void *ctx, uint64_t incarnation)
{
    const struct node *n = ctx;
    return membership_number_of(n->membership, incarnation);
}

static void send_cb(void *ctx, uint64_t peer_id, const struct message_body *body)
{
    struct node *n = ctx;
    if (n->failed || !membership_may_speak(n->membership)) {
        return;
    }
    /* A message that cannot be sent is dropped; Raft tolerates lost messages. */
    if (peers_send(&n->peers, peer_id, body->type, body->parts, body->n) != 0) {
        return;
    }
}

static void log_message_cb(void *ctx, enum log_level level, const char *message)
{
    log_as(ctx, (int)level, "log", message);
}

/* ---- making ---- */

/* What the steps share. */
struct opening {
    struct node *n;
    char *errmsg;
    size_t errmsg_size;
    struct snapshot_meta meta; /* of the newest snapshot; index 0: there is none */
    struct machine *machine;   /* from it */
};

static struct identity *identity_of(struct node *n)
{
    return &n->record.own.now.identity;
}

static int open_record(struct opening *o)
{
    struct node *n = o->n;
    const struct node_config *c = &n->config;
    int rv = node_record_open(&n->record, &n->host, c->data_dir, c->id, c->members, c->joins,
                              o->errmsg, o->errmsg_size);
    if (rv == 0) {
        election_init(&n->election, &n->host, &n->peers, &identity_of(n)->members, c->id,
                      c->heartbeat_ms, c->election_ms);
    }
    return rv;
}

static int open_log(struct opening *o)
{
    struct node *n = o->n;
    struct log_config config = {.cache_bytes = n->config.log_cache_bytes,
                                .segment_bytes = n->config.log_segment_bytes,
                                .must_exist = identity_of(n)->bootstrapped,
                                .ctx = n,
                                .durable = node_durable,
                                .arrived = node_arrived,
                                .failed = host_fail_cb,
                                .log = log_message_cb};
    const struct data_dir *dir = &n->record.dir;
    int rv = log_files_create(dir->log_path, LOG_ENGINE_BEST, &n->loop.device, o->errmsg,
                              o->errmsg_size);
    if (rv != 0) {
        return rv;
    }
    config.device = n->loop.device;
    rv = log_open(&config, &n->log, o->errmsg, o->errmsg_size);
    n->record.log = n->log;
    return rv == FL_ENOTFOUND
               ? identity_refuse_lost_log(dir, identity_of(n), o->errmsg, o->errmsg_size)
               : rv;
}

/* Only what is damaged costs a directory: a right or a descriptor may be lacking, and an error of
 * the disk may pass. */
static const char *snapshot_advice(int error, const char *why)
{
    if (error == FL_ECORRUPT) {
        return "; move the data directory out of the way, run fencelock cluster replace for this "
               "node, and start again with an empty directory";
    }
    return strstr(why, strerror(EIO)) != NULL
               ? "; start it again, and if that fails too, see what the kernel says of the disk "
                 "(dmesg)"
               : "";
}

/* Loads the newest snapshot, if there is one. Older ones are removed when it was read. */
static int load_snapshot(struct opening *o)
{
    struct log_device *device = o->n->loop.device;
    struct snapshot_error error = {0};
    int rv = snapshot_load(device, &o->meta, &o->machine, &error);
    if (rv == 0 || rv == FL_ENOTFOUND) {
        rv = snapshot_clean(device, UINT64_MAX, &error);
    }
    if (rv == 0) {
        return 0;
    }
    machine_destroy(o->machine);
    return fli_refuse(o->errmsg, o->errmsg_size, rv, "the snapshot in %s cannot be read: %s%s",
                      o->n->record.dir.log_path, error.text, snapshot_advice(rv, error.text));
}

/* A received snapshot may be newer than the log: the node stopped before it began a new log behind
 * it. Every entry in that log is in the snapshot, or was never committed. */
static int join_log_and_snapshot(struct log *l, const struct snapshot_meta *meta)
{
    bool continues = log_last_index(l) >= meta->index && log_first_index(l) <= meta->index + 1 &&
                     log_term_of(l, meta->index) == meta->term;
    if (continues || log_first_index(l) > meta->index + 1) {
        return 0; /* the replica refuses the latter */
    }
    return log_reset(l, meta->index, meta->term) == 0 ? FL_ENOMEM : 0;
}

static int make_fsm(struct opening *o)
{
    struct node *n = o->n;
    struct fsm_config config = {.host = n->host,
                                .event = event_cb,
                                .event_ctx = n,
                                .restored = n->cbs.restored,
                                .refused = n->cbs.refused,
                                .ctx = n->cbs.ctx};
    int rv = fsm_create(&config, o->machine, &n->fsm);
    return rv == 0 && o->meta.index != 0 ? join_log_and_snapshot(n->log, &o->meta) : rv;
}

static void fill_self(struct node *n, struct peer_identity *self)
{
    const char *client_address = n->config.client_address;
    *self = (struct peer_identity){.node_id = n->config.id,
                                   .incarnation = identity_of(n)->incarnation,
                                   .cluster_id = identity_of(n)->cluster_id,
                                   .version = (uint16_t)machine_version_max(),
                                   .members_crc = identity_of(n)->begun_crc,
                                   .term = log_get_hard_state(n->log).term,
                                   .last_index = log_last_index(n->log)};
    if (client_address != NULL) {
        snprintf(self->client_address, sizeof self->client_address, "%s", client_address);
    }
}

static int make_transport(struct opening *o)
{
    struct node *n = o->n;
    const struct node_config *c = &n->config;
    struct transport_callbacks cbs = {.ctx = n,
                                      .check = check_cb,
                                      .accepted = node_accepted,
                                      .answered = answered_cb,
                                      .absent = absent_cb,
                                      .log = peer_log_cb};
    const struct members *members = &identity_of(n)->members;
    char text[MEMBERS_TEXT_MAX];
    size_t len = members_format(members, text, sizeof text);
    struct transport_config config = {
        .bind_address =
            c->peer_address != NULL ? c->peer_address : members_find(c->members, c->id)->address,
        .members = *members,
        /* It does not depend on the state that the node began with. */
        .members_crc = fli_crc32c(0, text, len),
        .formats = {.low = 1, .high = (uint16_t)machine_version_max()},
        .connect_ms = c->election_ms / 2,
        .answer_ms = c->election_ms,
        .unacked_ms = NODE_UNACKED_MS(c->election_ms),
        .security = c->security,
        .limits = {[STREAM_RAFT] = {RAFT_FRAME_MAX, RAFT_OUT_MAX},
                   [STREAM_RELAY] = {RELAY_FRAME_MAX, RELAY_OUT_MAX},
                   [STREAM_SNAPSHOT] = {SNAPSHOT_FRAME_MAX, 4 * SNAPSHOT_WINDOW}},
    };
    fill_self(n, &config.self);
    int rv = transport_create(n->host.loop, &config, &cbs, &n->peers.transport, o->errmsg,
                              o->errmsg_size);
    n->peers.host = &n->host;
    n->peers.self_id = c->id;
    n->record.transport = n->peers.transport;
    return rv;
}

/* Once the port is bound: a directory that has not begun may begin with another one. */
static int begin(struct opening *o)
{
    struct node *n = o->n;
    const struct node_config *c = &n->config;
    int rv = node_record_begin(&n->record, c->witness, c->witness_reset, o->errmsg, o->errmsg_size);
    transport_self(n->peers.transport)->start = n->record.own.now.starts.own;
    return rv;
}

static int make_takers(struct opening *o)
{
    struct node *n = o->n;
    size_t entry_max = log_entry_max(n->log);
    const struct proposer_config pc = {
        .fsm = n->fsm,
        .queue = &n->commands,
        .batch_max = entry_max < PROPOSER_BATCH_DEFAULT ? entry_max : PROPOSER_BATCH_DEFAULT,
        .turn = n->host.turn};
    const struct relay_config rc = {.peers = &n->peers,
                                    .election = &n->election,
                                    .queue = &n->commands,
                                    .proposer = &n->proposer,
                                    .ctx = n->cbs.ctx,
                                    .push = n->cbs.push};
    relay_init(&n->relay, &rc);
    return proposer_init(&n->proposer, &pc);
}

static int make_snapshots(struct opening *o)
{
    node_snapshot_make(o->n, &o->meta);
    return 0;
}

static int make_replica(struct opening *o)
{
    struct node *n = o->n;
    const struct identity *id = identity_of(n);
    unsigned seed;
    fli_random(&seed, sizeof seed);
    struct replica_config config = {
        .id = id->id,
        .incarnation = id->incarnation,
        .log = n->log,
        .fsm = n->fsm,
        .snapshot = o->meta.index == 0 ? NULL : &o->meta,
        .election_ms = n->config.election_ms,
        .heartbeat_ms = n->config.heartbeat_ms,
        .in_flight = n->config.log_kept_entries / 2,
        .seed = seed,
        .ctx = n,
        .number_of = number_of_cb,
        .send = send_cb,
        .snapshot_wanted = node_snapshot_wanted,
        .sends_snapshot = node_sends_snapshot,
        .fatal = host_fail_cb,
    };
    char why[400];
    int rv = replica_create(&config, fli_clock_ms(), &n->replica, why, sizeof why);
    if (rv != 0) {
        return fli_refuse(o->errmsg, o->errmsg_size, rv, "%s: %s", n->record.dir.log_path, why);
    }
    n->record.replica = n->election.replica = n->proposer.replica = n->replica;
    return 0;
}

static int make_membership(struct opening *o)
{
    struct node *n = o->n;
    struct membership_config config = {.host = n->host,
                                       .replica = n->replica,
                                       .record = &n->record,
                                       .limits = &n->config.limits,
                                       .peers = &n->peers,
                                       .transport = n->peers.transport,
                                       .fsm = n->fsm,
                                       .queue = &n->commands,
                                       .proposer = &n->proposer,
                                       .relay = &n->relay,
                                       .election = &n->election};
    return membership_create(&config, &n->membership);
}

/* Whether the configured members can be the node's cluster: at least one must have the address that
 * it has in the log, or had when the directory was begun. Others may have changed since. With
 * --join that is another one than this node, which a cluster of one would have too. */
static int check_members(struct opening *o)
{
    struct node *n = o->n;
    const struct node_config *c = &n->config;
    const struct members *begun = &identity_of(n)->members;
    const struct configuration *conf = replica_configuration(n->replica);
    uint64_t except = c->joins ? c->id : 0;
    struct members now = {0};
    for (unsigned i = 0; i < conf->n; i++) {
        (void)members_put(&now, conf->servers[i].id, conf->servers[i].address);
    }
    if (identity_of(n)->cluster_id == 0 || members_equal(c->members, &now) ||
        members_equal(c->members, begun)) {
        return 0;
    }
    if (!members_overlap(c->members, &now, except) && !members_overlap(c->members, begun, except)) {
        return identity_refuse_members(&n->record.dir, conf->n == 0 ? begun : &now, c->members,
                                       o->errmsg, o->errmsg_size);
    }
    if (!c->joins) { /* it names some of the members only */
        host_log(&n->host, 3,
                 "the log says who is a member, and --cluster says otherwise: it is only the way "
                 "to begin");
    }
    return 0;
}

/* Everything that can fail without leaving a handle on the loop, in this order. */
static int (*const steps[])(struct opening *o) = {
    open_record, open_log,       load_snapshot, make_fsm,        make_transport, begin,
    make_takers, make_snapshots, make_replica,  make_membership, check_members};

static int make_parts(struct opening *o)
{
    int rv = 0;
    *o->errmsg = '\0';
    for (unsigned i = 0; i < sizeof steps / sizeof steps[0] && rv == 0; i++) {
        rv = steps[i](o);
    }
    if (rv != 0 && *o->errmsg == '\0') {
        snprintf(o->errmsg, o->errmsg_size, "%s", fl_strerror(rv));
    }
    return rv;
}

static void drop(struct node *n)
{
    if (n->log != NULL) {
        log_end(n->log);
        n->log = NULL;
    }
    node_free(n);
    n->phase = PHASE_CLOSED;
    node_destroy(n);
}

static int start(struct opening *o)
{
    struct node *n = o->n;
    node_loop_init(n);
    int rv = transport_start(n->peers.transport, o->errmsg, o->errmsg_size);
    if (rv == 0) {
        node_loop_start(n);
        return 0;
    }
    node_close(n);
    while (n->phase != PHASE_CLOSED) {
        uv_run(n->host.loop, UV_RUN_ONCE);
    }
    node_destroy(n);
    return rv;
}

int node_create(uv_loop_t *loop, const struct node_config *given, const struct node_callbacks *cbs,
                struct node **ret, char *errmsg, size_t errmsg_size)
{
    const struct node_config config = with_defaults(given);
    struct opening o = {.errmsg = errmsg, .errmsg_size = errmsg_size};
    FLI_ASSERT(cbs->fatal != NULL);
    int rv = check_config(&config, errmsg, errmsg_size);
    rv = rv != 0 ? rv : check_library(errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    struct node *n = o.n = calloc(1, sizeof *n);
    if (n == NULL) {
        return fli_refuse(errmsg, errmsg_size, FL_ENOMEM, "out of memory");
    }
    n->config = config;
    n->cbs = *cbs;
    n->host = (struct host){.loop = loop,
                            .ctx = n,
                            .log = host_log_cb,
                            .fail = host_fail_cb,
                            .turn = config.turn,
                            .wake = node_wake,
                            .hold = node_hold,
                            .release = node_release};
    commands_init(&n->commands, config.pending_max, config.hold_ms);
    uv_update_time(loop);
    rv = make_parts(&o);
    if (rv != 0) {
        drop(n);
        return rv;
    }
    rv = start(&o);
    if (rv == 0) {
        *ret = n;
    }
    return rv;
}
