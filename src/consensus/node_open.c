/* node_open.c: makes a node: the directory and its contents, the parts, and the loop's handles.
 *
 * Everything that can fail comes first, while nothing is on the loop. The log is recovered before a
 * peer can call. A new log gets its first entry, the configuration of the cluster. Only then does
 * the identity record that there is a log: a crash in between leaves a directory that has promised
 * nothing, and it is made anew. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "consensus/node_private.h"
#include "machine/batch.h"

#define RAFT_FRAME_MAX MESSAGE_BODY_MAX
#define RAFT_OUT_MAX ((size_t)32 << 20)
#define RELAY_FRAME_MAX ((size_t)96 << 10)
#define RELAY_OUT_MAX ((size_t)32 << 20)

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

void node_snapshot_log(void *ctx, int level, const char *message)
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
    relay_event(n->relay, event);
    if (n->cbs.event != NULL) {
        n->cbs.event(n->cbs.ctx, event);
    }
}

static void members_cb(void *ctx, const struct members *members)
{
    struct node *n = ctx;
    n->members = members;
    relay_set_members(n->relay, members);
    n->election.members = members;
    node_snapshot_review(n);
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

static void accepted_cb(void *ctx, enum stream_kind kind, const struct peer_identity *peer,
                        struct stream *stream)
{
    struct node *n = ctx;
    if (n->phase >= PHASE_CLOSE || n->failed) {
        stream_close(stream);
        return;
    }
    switch (kind) {
    case STREAM_RAFT:
        node_inbound(n, peer, stream);
        break;
    case STREAM_RELAY:
        relay_accept(n->relay, peer, stream);
        break;
    default:
        snapshot_install_accept(n->install, peer->node_id, stream);
        break;
    }
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

static int store_cb(void *ctx)
{
    struct node *n = ctx;
    return node_record_store(&n->record);
}

static void save_cb(void *ctx)
{
    struct node *n = ctx;
    node_record_save(&n->record);
}

static void log_message_cb(void *ctx, enum log_level level, const char *message)
{
    log_as(ctx, (int)level, "log", message);
}

/* ---- the log, the snapshot and the first entry ---- */

static int open_log(struct node *n, char *errmsg, size_t errmsg_size)
{
    struct log_config config = {.cache_bytes = n->config.log_cache_bytes,
                                .segment_bytes = n->config.log_segment_bytes,
                                .must_exist = n->record.own.now.identity.bootstrapped,
                                .ctx = n,
                                .durable = node_durable,
                                .arrived = node_arrived,
                                .failed = host_fail_cb,
                                .log = log_message_cb};
    int rv = log_files_create(n->dir.log_path, LOG_ENGINE_BEST, &n->device, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    config.device = n->device;
    rv = log_open(&config, &n->log, errmsg, errmsg_size);
    n->record.log = n->log;
    return rv == FL_ENOTFOUND
               ? identity_refuse_lost_log(&n->dir, &n->record.own.now.identity, errmsg, errmsg_size)
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

/* Loads the newest snapshot; *ret_machine stays NULL when there is none. Older ones are removed
 * when it was read. */
static int load_snapshot(struct node *n, struct snapshot_meta *ret_meta,
                         struct machine **ret_machine, char *errmsg, size_t errmsg_size)
{
    struct snapshot_reader *reader;
    struct snapshot_error error = {0};
    int rv = snapshot_reader_open(n->device, 0, &reader, &error);
    rv = rv != 0 ? rv : snapshot_decode(reader, n->hash_seed, ret_meta, ret_machine, &error);
    if (rv == 0 || rv == FL_ENOTFOUND) {
        rv = snapshot_clean(n->device, UINT64_MAX, &error);
    }
    if (rv != 0) {
        machine_destroy(*ret_machine);
        *ret_machine = NULL;
        snprintf(errmsg, errmsg_size, "the snapshot in %s cannot be read: %s%s", n->dir.log_path,
                 error.text, snapshot_advice(rv, error.text));
    }
    return rv;
}

/* A received snapshot may be newer than the log: the node stopped before it began a new log behind
 * it. Every entry in that log is in the snapshot, or was never committed. */
static int join_log_and_snapshot(struct node *n, const struct snapshot_meta *meta)
{
    bool continues = log_last_index(n->log) >= meta->index &&
                     log_first_index(n->log) <= meta->index + 1 &&
                     log_term_of(n->log, meta->index) == meta->term;
    if (continues || log_first_index(n->log) > meta->index + 1) {
        return 0; /* the replica refuses the latter */
    }
    return log_reset(n->log, meta->index, meta->term) == 0 ? FL_ENOMEM : 0;
}

/* A node alone is all that its cluster begins with. */
static int append_first_entry(struct node *n)
{
    struct configuration c;
    uint8_t bytes[CONFIGURATION_SIZE_MAX];
    struct log_hard_state hs = {.term = 1};
    struct log_entry entry = {.index = 1, .term = 1, .kind = RAFT_CHANGE, .data = bytes};
    identity_found(&n->record.own.now.identity, &n->record.own.now.identity.incarnation);
    identity_configuration(&n->record.own.now.identity, &c);
    entry.len = (uint32_t)configuration_encode(&c, bytes);
    bool appended = log_set_hard_state(n->log, &hs) != 0 && log_append(n->log, &entry) != 0;
    return appended ? log_write_out(n->log) : FL_ENOMEM;
}

static int bootstrap(struct node *n, char *errmsg, size_t errmsg_size)
{
    const struct identity *id = &n->record.own.now.identity;
    if (id->bootstrapped) {
        return node_record_check(&n->record, errmsg, errmsg_size);
    }
    n->record.is_new = true;
    if (!id->joins && id->members.n == 1 && append_first_entry(n) != 0) {
        snprintf(errmsg, errmsg_size, "cannot write the first entry of the log in %s",
                 n->dir.log_path);
        return FL_EIO;
    }
    return 0;
}

static int open_replica(struct node *n, const struct snapshot_meta *meta, char *errmsg,
                        size_t errmsg_size)
{
    unsigned seed;
    fli_random(&seed, sizeof seed);
    struct replica_config config = {
        .id = n->id,
        .incarnation = n->record.own.now.identity.incarnation,
        .address = members_find(&n->record.own.now.identity.members, n->id)->address,
        /* A node may be stopped before the cluster is formed, or before it is sent an entry. */
        .may_be_empty =
            n->record.own.now.identity.joins || n->record.own.now.identity.members.n > 1,
        .log = n->log,
        .fsm = n->fsm,
        .snapshot = meta->index == 0 ? NULL : meta,
        .election_ms = n->election_ms,
        .heartbeat_ms = n->heartbeat_ms,
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
        snprintf(errmsg, errmsg_size, "%s: %s", n->dir.log_path, why);
        return rv;
    }
    proposer_set_replica(n->proposer, n->replica);
    membership_set_replica(n->membership, n->replica);
    n->election.replica = n->replica;
    n->record.replica = n->replica;
    return 0;
}

/* *ret_meta is of the newest snapshot; it stays as it is when there is none. */
static int open_state(struct node *n, struct snapshot_meta *ret_meta, char *errmsg,
                      size_t errmsg_size)
{
    struct machine *machine = NULL;
    struct fsm_config config = {.host = n->host,
                                .event = event_cb,
                                .event_ctx = n,
                                .restored = n->cbs.restored,
                                .refused = n->cbs.refused,
                                .ctx = n->cbs.ctx};
    int rv = open_log(n, errmsg, errmsg_size);
    rv = rv != 0 ? rv : load_snapshot(n, ret_meta, &machine, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    n->snapshot_last_bytes = ret_meta->size;
    n->snapshot_at_ms = fli_clock_ms();
    rv = fsm_create(&config, machine, &n->fsm);
    if (rv == 0 && ret_meta->index != 0) {
        rv = join_log_and_snapshot(n, ret_meta);
    }
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "%s", fl_strerror(rv));
        return rv;
    }
    rv = bootstrap(n, errmsg, errmsg_size);
    return rv != 0 ? rv
                   : node_record_begin(&n->record, n->config.witness, n->config.witness_reset,
                                       errmsg, errmsg_size);
}

/* ---- parts ---- */

/* A checksum of the configured members; it does not depend on the state that the node began
 * with. */
static uint32_t members_crc(const struct node *n)
{
    char text[MEMBERS_TEXT_MAX];
    size_t len = members_format(&n->record.own.now.identity.members, text, sizeof text);
    return fli_crc32c(0, text, len);
}

static void fill_self(const struct node *n, struct peer_identity *self)
{
    memset(self, 0, sizeof *self);
    self->node_id = n->id;
    self->incarnation = n->record.own.now.identity.incarnation;
    self->cluster_id = n->record.own.now.identity.cluster_id;
    self->version = (uint16_t)machine_version_max();
    self->members_crc = n->record.own.now.identity.begun_crc;
    self->start = n->record.own.now.starts.own;
    self->term = log_get_hard_state(n->log).term;
    self->last_index = log_last_index(n->log);
    snprintf(self->peer_address, sizeof self->peer_address, "%s",
             members_find(&n->record.own.now.identity.members, n->id)->address);
    if (n->config.client_address != NULL) {
        snprintf(self->client_address, sizeof self->client_address, "%s", n->config.client_address);
    }
}

static int make_transport(struct node *n, char *errmsg, size_t errmsg_size)
{
    struct transport_callbacks cbs = {.ctx = n,
                                      .check = check_cb,
                                      .accepted = accepted_cb,
                                      .answered = answered_cb,
                                      .absent = absent_cb,
                                      .log = peer_log_cb};
    struct transport_config config = {
        .bind_address = n->config.peer_address,
        .members = n->record.own.now.identity.members,
        .members_crc = members_crc(n),
        .formats = {.low = 1, .high = (uint16_t)machine_version_max()},
        .connect_ms = n->election_ms / 2,
        .answer_ms = n->election_ms,
        .unacked_ms = NODE_UNACKED_MS(n->election_ms),
        .security = n->config.security,
    };
    config.limits[STREAM_RAFT] = (struct stream_limits){RAFT_FRAME_MAX, RAFT_OUT_MAX};
    config.limits[STREAM_RELAY] = (struct stream_limits){RELAY_FRAME_MAX, RELAY_OUT_MAX};
    config.limits[STREAM_SNAPSHOT] =
        (struct stream_limits){SNAPSHOT_FRAME_MAX, 4 * SNAPSHOT_WINDOW};
    fill_self(n, &config.self);
    if (config.bind_address == NULL) {
        config.bind_address = members_find(n->config.members, n->id)->address;
    }
    return transport_create(n->loop, &config, &cbs, &n->transport, errmsg, errmsg_size);
}

static int make_relay(struct node *n)
{
    struct relay_config config = {.host = n->host,
                                  .transport = n->transport,
                                  .peers = &n->peers,
                                  .election_ms = n->election_ms,
                                  .queue = &n->commands,
                                  .proposer = n->proposer,
                                  .ctx = n->cbs.ctx,
                                  .push = n->cbs.push};
    return relay_create(&config, &n->relay);
}

static int make_membership(struct node *n)
{
    struct membership_config mc = {.host = n->host,
                                   .dir = &n->dir,
                                   .identity = &n->record.own.now.identity,
                                   .limits = &n->config.limits,
                                   .peers = &n->peers,
                                   .transport = n->transport,
                                   .fsm = n->fsm,
                                   .queue = &n->commands,
                                   .proposer = n->proposer,
                                   .relay = n->relay,
                                   .election = &n->election,
                                   .starts = &n->record.own.now.starts,
                                   .kept = &n->record.own.kept,
                                   .ask_ms = n->election_ms,
                                   .ctx = n,
                                   .store = store_cb,
                                   .save = save_cb,
                                   .members = members_cb};
    int rv = membership_create(&mc, &n->membership);
    if (rv == 0 && n->config.client_address != NULL) {
        membership_set_client_address(n->membership, n->id, n->config.client_address);
    }
    return rv;
}

/* Makes everything that can fail without leaving a handle on the loop. */
static int make_parts(struct node *n, char *errmsg, size_t errmsg_size)
{
    struct snapshot_meta meta = {0};
    struct proposer_config pc = {.queue = &n->commands, .turn = n->host.turn};
    int rv = open_state(n, &meta, errmsg, errmsg_size);
    rv = rv != 0 ? rv : make_transport(n, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    n->peers.host = &n->host;
    n->peers.transport = n->transport;
    n->record.transport = n->transport;
    n->peers.self_id = n->id;
    pc.fsm = n->fsm;
    pc.batch_max = log_entry_max(n->log);
    pc.batch_max = pc.batch_max < PROPOSER_BATCH_DEFAULT ? pc.batch_max : PROPOSER_BATCH_DEFAULT;
    rv = proposer_create(&pc, &n->proposer);
    rv = rv != 0 ? rv : make_relay(n);
    rv = rv != 0 ? rv : make_membership(n);
    rv = rv != 0 ? rv : node_snapshot_make(n);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "%s", fl_strerror(rv));
        return rv;
    }
    rv = open_replica(n, &meta, errmsg, errmsg_size);
    rv = rv != 0 ? rv : node_check_members(n, errmsg, errmsg_size);
    if (rv == 0) {
        membership_start(n->membership);
    }
    return rv;
}

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
        snprintf(errmsg, errmsg_size, "node %" PRIu64 " is not among the members of the cluster",
                 c->id);
        return FL_EINVAL;
    }
    if (c->heartbeat_ms < 5 || c->election_ms > 60000 || c->election_ms < 3 * c->heartbeat_ms) {
        snprintf(errmsg, errmsg_size,
                 "heartbeat %u ms and election %u ms: the heartbeat must be at least 5 ms, the "
                 "election at least three heartbeats and at most 60000 ms",
                 c->heartbeat_ms, c->election_ms);
        return FL_EINVAL;
    }
    if (c->pending_max < MACHINE_COMMAND_MAX) {
        snprintf(errmsg, errmsg_size, "pending_max must be at least %u bytes", MACHINE_COMMAND_MAX);
        return FL_EINVAL;
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
    snprintf(errmsg, errmsg_size,
             "the raft library is version %d.%d.%d, and this program was built and tested with "
             "%d.%d.%d: install that version, or rebuild once src/consensus/RAFT.md was checked "
             "against the other",
             version / 10000, version / 100 % 100, version % 100, RAFT_VERSION_MAJOR,
             RAFT_VERSION_MINOR, RAFT_VERSION_RELEASE);
    return FL_EVERSION;
}

/* The disposition of SIGPIPE is changed only when the process has left it at its default. */
static void ignore_sigpipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        (void)signal(SIGPIPE, SIG_IGN);
    }
}

/* ---- the loop ---- */

static void init_handles(struct node *n)
{
    int rv = uv_check_init(n->loop, &n->check);
    rv = rv != 0 ? rv : uv_prepare_init(n->loop, &n->prepare);
    rv = rv != 0 ? rv : uv_timer_init(n->loop, &n->timer);
    rv = rv != 0 ? rv : uv_timer_init(n->loop, &n->tick);
    rv = rv != 0 ? rv : uv_idle_init(n->loop, &n->idle);
    for (unsigned i = 0; i < LOG_DEVICE_FDS; i++) {
        int fd = log_device_fd(n->device, i);
        if (fd >= 0) {
            uv_poll_t *poll = &n->disk[n->disk_handles++];
            rv = rv != 0 ? rv : uv_poll_init(n->loop, poll, fd);
            poll->data = n;
        }
    }
    FLI_ASSERT(rv == 0); /* they cannot fail */
    n->check.data = n;
    n->prepare.data = n;
    n->timer.data = n;
    n->tick.data = n;
    n->idle.data = n;
    n->open = 5 + n->disk_handles;
}

static int start(struct node *n, char *errmsg, size_t errmsg_size)
{
    init_handles(n);
    int rv = transport_start(n->transport, errmsg, errmsg_size);
    if (rv == 0) {
        node_turn_start(n);
        return 0;
    }
    node_close(n);
    while (n->phase != PHASE_CLOSED) {
        uv_run(n->loop, UV_RUN_ONCE);
    }
    node_destroy(n);
    return rv;
}

static struct node *make_node(uv_loop_t *loop, const struct node_config *c,
                              const struct node_callbacks *cbs)
{
    struct node *n = calloc(1, sizeof *n);
    if (n == NULL) {
        return NULL;
    }
    n->loop = loop;
    n->cbs = *cbs;
    n->host = (struct host){.loop = loop,
                            .ctx = n,
                            .log = host_log_cb,
                            .fail = host_fail_cb,
                            .turn = c->turn,
                            .wake = node_wake,
                            .hold = node_hold,
                            .release = node_closed_one};
    n->config = *c;
    n->id = c->id;
    n->heartbeat_ms = c->heartbeat_ms;
    n->election_ms = c->election_ms;
    n->hold_ms = c->hold_ms;
    commands_init(&n->commands, c->pending_max, c->hold_ms);
    n->dir.lock_fd = n->dir.record_fd = -1;
    fli_random(n->hash_seed, sizeof n->hash_seed);
    return n;
}

static void drop(struct node *n)
{
    if (n->proposer != NULL) {
        proposer_close(n->proposer);
    }
    if (n->log != NULL) {
        log_end(n->log);
        n->log = NULL;
    }
    node_free_parts(n);
    commands_fini(&n->commands);
    free(n);
}

int node_create(uv_loop_t *loop, const struct node_config *given, const struct node_callbacks *cbs,
                struct node **ret, char *errmsg, size_t errmsg_size)
{
    const struct node_config config = with_defaults(given);
    FLI_ASSERT(cbs->fatal != NULL);
    int rv = check_config(&config, errmsg, errmsg_size);
    rv = rv != 0 ? rv : check_library(errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    struct node *n = make_node(loop, &config, cbs);
    if (n == NULL) {
        snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    ignore_sigpipe();
    uv_update_time(loop);
    rv = data_dir_open(config.data_dir, &n->dir, errmsg, errmsg_size);
    if (rv == 0) {
        rv = node_record_open(&n->record, &n->host, &n->dir, n->id, config.members, config.joins,
                              errmsg, errmsg_size);
    }
    if (rv == 0) {
        election_init(&n->election, &n->host, &n->peers, &n->record.own.now.identity.members, n->id,
                      n->heartbeat_ms, n->election_ms);
        rv = make_parts(n, errmsg, errmsg_size);
    }
    if (rv != 0) {
        drop(n);
        return rv;
    }
    rv = start(n, errmsg, errmsg_size);
    if (rv == 0) {
        *ret = n;
    }
    return rv;
}
