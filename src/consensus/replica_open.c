/* replica_open.c: starts a replica with the contents of the log and the newest snapshot. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "consensus/replica_private.h"

/* The core's time-out of a snapshot that it asked for: never, since the owner sends it, and knows
 * when that has failed. */
#define INSTALL_NEVER_MS (24u * 3600u * 1000u)

static void edge_step(void *ctx, struct raft_event *event)
{
    replica_step(ctx, event);
}

static uint64_t edge_term_of(void *ctx, uint64_t index)
{
    return replica_term_of(ctx, index);
}

static int load_change(struct replica *r, uint64_t index, struct raft_buffer *ret)
{
    struct log_entry e;
    struct configuration conf;
    unsigned n = 0;
    int rv = log_read_some(r->log, index, 0, &e, 1, &n);
    rv = rv != 0 ? rv : configuration_decode(e.data, e.len, &conf);
    if (rv != 0) {
        return rv;
    }
    *ret = configuration_to_raft_bytes(&conf);
    if (index > r->snapshot_index) {
        changes_add(&r->edge.changes, index, &conf);
    }
    return 0;
}

/* The terms and kinds of all entries, and the bytes of configurations, for the core. */
static int load_entries(struct replica *r, uint64_t first, size_t n, struct raft_entry *all)
{
    int rv = 0;
    for (size_t i = 0; i < n && rv == 0; i++) {
        all[i].term = log_term_of(r->log, first + i);
        all[i].type = (enum raft_entry_type)log_kind_of(r->log, first + i);
        if (all[i].type == RAFT_CHANGE) {
            rv = load_change(r, first + i, &all[i].buf);
        }
    }
    return rv;
}

static bool is_only_voter(const struct replica *r)
{
    const struct configuration *c = &r->edge.changes.list[r->edge.changes.n - 1].conf;
    const struct configuration_server *self = configuration_server(c, r->config.incarnation);
    return self != NULL && self->role == CONFIGURATION_VOTER && configuration_voters(c) == 1;
}

/* The core lets the only voter lead at once, in the term that it is started with. Learners may have
 * entries of that term that were sent and never written here. New entries in their places need
 * another term, and it must be on disk before anything leaves: see replica_send(). */
static void begin_term(struct replica *r, struct log_hard_state *hs)
{
    hs->term++;
    hs->vote = r->config.incarnation;
    replica_set_hard_state(r, hs);
}

static int start_core(struct replica *r, struct raft_entry *all, size_t n)
{
    struct log_hard_state hs = log_get_hard_state(r->log);
    if (is_only_voter(r)) {
        begin_term(r, &hs);
    }
    struct raft_snapshot_metadata meta = {0};
    struct raft_event event = {.type = RAFT_START};
    const struct snapshot_meta *snapshot = r->config.snapshot;
    event.start.term = hs.term;
    event.start.voted_for = hs.vote;
    event.start.start_index = log_first_index(r->log);
    event.start.entries = all;
    event.start.n_entries = (unsigned)n;
    if (snapshot != NULL) {
        replica_label(snapshot, &meta);
        event.start.metadata = &meta;
    }
    replica_step(r, &event);
    return r->failed ? FL_ESYSTEM : 0;
}

static int load(struct replica *r, char *errmsg, size_t errmsg_size)
{
    uint64_t first = log_first_index(r->log);
    size_t n = (size_t)(log_last_index(r->log) + 1 - first);
    struct raft_entry *all = calloc(n + 1, sizeof *all);
    int rv = all == NULL ? FL_ENOMEM : load_entries(r, first, n, all);
    if (rv == 0 && r->edge.changes.n == 0 && n == 0 && r->config.may_be_empty) {
        struct configuration nobody = {0};
        changes_add(&r->edge.changes, 0, &nobody);
    }
    if (rv == 0 && r->edge.changes.n == 0) {
        rv = FL_ECORRUPT;
        snprintf(errmsg, errmsg_size, "the log has no configuration of the group");
    } else if (rv != 0) {
        snprintf(errmsg, errmsg_size, "the log cannot be loaded: %s", fl_strerror(rv));
    } else {
        rv = start_core(r, all, n);
        if (rv != 0) {
            snprintf(errmsg, errmsg_size, "the raft library does not start");
        }
    }
    if (rv == FL_ESYSTEM) {
        return rv; /* the core has freed them */
    }
    for (size_t i = 0; all != NULL && i < n; i++) {
        if (all[i].type == RAFT_CHANGE) {
            raft_free(all[i].buf.base);
        }
    }
    free(all);
    return rv;
}

static int use_given_snapshot(struct replica *r, char *errmsg, size_t errmsg_size)
{
    const struct snapshot_meta *meta = r->config.snapshot;
    struct configuration conf;
    if (meta == NULL && log_first_index(r->log) > 1) {
        snprintf(errmsg, errmsg_size,
                 "the log begins with entry %" PRIu64
                 ", and the snapshot of what came before is missing",
                 log_first_index(r->log));
        return FL_ECORRUPT;
    }
    if (meta == NULL) {
        return 0;
    }
    int rv = replica_conf_of(meta, &conf);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "the snapshot's configuration cannot be read: %s",
                 fl_strerror(rv));
        return rv;
    }
    if (log_first_index(r->log) > meta->index + 1 || log_last_index(r->log) < meta->index) {
        snprintf(errmsg, errmsg_size,
                 "the log has entries %" PRIu64 " to %" PRIu64
                 ", which does not continue the snapshot of entry %" PRIu64,
                 log_first_index(r->log), log_last_index(r->log), meta->index);
        return FL_ECORRUPT;
    }
    changes_add(&r->edge.changes, meta->conf_index, &conf);
    r->snapshot_index = meta->index;
    r->snapshot_term = meta->term;
    r->applied = meta->index;
    r->edge.told = meta->conf_index;
    return 0;
}

void replica_set_times(struct replica *r, unsigned election_ms, unsigned heartbeat_ms)
{
    r->edge.election_ms = election_ms;
    r->edge.heartbeat_ms = heartbeat_ms;
    raft_set_election_timeout(&r->raft, election_ms);
    raft_set_heartbeat_timeout(&r->raft, heartbeat_ms);
}

static void init_core(struct replica *r, uint64_t now_ms)
{
    const struct replica_config *c = &r->config;
    r->raft.tracer = NULL; /* its texts cost a tenth of the time of an entry, and nobody reads
                              them */
    raft_seed(&r->raft, c->seed);
    raft_set_install_snapshot_timeout(&r->raft, INSTALL_NEVER_MS);
    raft_set_pre_vote(&r->raft, true);
    raft_set_max_inflight_entries(&r->raft,
                                  c->in_flight != 0 ? c->in_flight : REPLICA_IN_FLIGHT_DEFAULT);
    r->edge = (struct raft_edge){.raft = &r->raft,
                                 .ctx = r,
                                 .step = edge_step,
                                 .term_of = edge_term_of,
                                 .id = c->incarnation,
                                 .now_ms = now_ms};
    replica_set_times(r, c->election_ms, c->heartbeat_ms);
}

int replica_create(const struct replica_config *config, uint64_t now_ms, struct replica **ret,
                   char *errmsg, size_t errmsg_size)
{
    struct replica *r = calloc(1, sizeof *r);
    if (r == NULL || raft_init(&r->raft, NULL, NULL, config->incarnation, config->address) != 0) {
        free(r);
        snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    r->config = *config;
    r->log = config->log;
    init_core(r, now_ms);
    int rv = use_given_snapshot(r, errmsg, errmsg_size);
    rv = rv != 0 ? rv : load(r, errmsg, errmsg_size);
    if (rv != 0) {
        replica_destroy(r);
        return rv;
    }
    *ret = r;
    return 0;
}

void replica_destroy(struct replica *r)
{
    if (r == NULL) {
        return;
    }
    raft_close(&r->raft, NULL);
    changes_fini(&r->edge.changes);
    free(r);
}
