/* replica_open.c: starts a replica, or its core anew, with the log and the newest snapshot. */
#include <inttypes.h>
#include <stdlib.h>

#include "consensus/replica_private.h"

/* The core's time-out of a snapshot that it asked for: never, since the owner sends it, and knows
 * when that has failed. */
#define INSTALL_NEVER_MS (24u * 3600u * 1000u)

struct error {
    char *text;
    size_t size;
};

static void edge_step(void *ctx, struct raft_event *event)
{
    replica_step(ctx, event);
}

static uint64_t edge_term_of(void *ctx, uint64_t index)
{
    return replica_term_of(ctx, index);
}

void replica_set_times(struct replica *r, unsigned election_ms, unsigned heartbeat_ms)
{
    r->edge.election_ms = election_ms;
    r->edge.heartbeat_ms = heartbeat_ms;
    raft_set_election_timeout(&r->raft, election_ms);
    raft_set_heartbeat_timeout(&r->raft, heartbeat_ms);
}

/* The addresses that the core knows are never looked at. */
static int init_core(struct replica *r)
{
    const struct replica_config *c = &r->config;
    if (raft_init(&r->raft, NULL, NULL, c->incarnation, "") != 0) {
        return FL_ENOMEM;
    }
    r->raft.tracer = NULL; /* its texts cost a tenth of the time of an entry, and nobody reads
                              them */
    raft_seed(&r->raft, c->seed);
    raft_set_install_snapshot_timeout(&r->raft, INSTALL_NEVER_MS);
    raft_set_pre_vote(&r->raft, true);
    raft_set_max_inflight_entries(&r->raft,
                                  c->in_flight != 0 ? c->in_flight : REPLICA_IN_FLIGHT_DEFAULT);
    replica_set_times(r, r->edge.election_ms, r->edge.heartbeat_ms);
    return 0;
}

/* What is in the snapshot is in force and committed. */
static int use_snapshot(struct replica *r, struct error e)
{
    const struct snapshot_meta *meta = &r->snapshot;
    struct configuration conf;
    uint64_t first = log_first_index(r->log);
    uint64_t last = log_last_index(r->log);
    if (meta->index == 0) {
        return first == 1 ? 0
                          : fli_refuse(e.text, e.size, FL_ECORRUPT,
                                       "the log begins with entry %" PRIu64
                                       ", and the snapshot of what came before is missing",
                                       first);
    }
    int rv = replica_conf_of(meta, &conf);
    if (rv != 0) {
        return fli_refuse(e.text, e.size, rv, "the snapshot's configuration cannot be read: %s",
                          fl_strerror(rv));
    }
    if (first > meta->index + 1 || last < meta->index) {
        return fli_refuse(e.text, e.size, FL_ECORRUPT,
                          "the log has entries %" PRIu64 " to %" PRIu64
                          ", which does not continue the snapshot of entry %" PRIu64,
                          first, last, meta->index);
    }
    changes_add(&r->edge.changes, meta->conf_index, &conf);
    r->edge.told = meta->conf_index;
    r->applied = meta->index;
    return 0;
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
    if (index > r->snapshot.index) {
        changes_add(&r->edge.changes, index, &conf);
    }
    return 0;
}

/* The terms and kinds of all entries, and the bytes of configurations, for the core. */
static int load_entries(struct replica *r, uint64_t first, size_t n, struct raft_entry *all)
{
    int rv = all == NULL ? FL_ENOMEM : 0;
    for (size_t i = 0; i < n && rv == 0; i++) {
        all[i].term = log_term_of(r->log, first + i);
        all[i].type = (enum raft_entry_type)log_kind_of(r->log, first + i);
        if (all[i].type == RAFT_CHANGE) {
            rv = load_change(r, first + i, &all[i].buf);
        }
    }
    /* It may have been stopped before the group began, or before it was sent an entry. */
    if (rv == 0 && r->edge.changes.n == 0 && n == 0) {
        struct configuration nobody = {0};
        changes_add(&r->edge.changes, 0, &nobody);
    }
    return rv;
}

static bool is_only_voter(const struct replica *r)
{
    const struct configuration *c = replica_configuration(r);
    const struct configuration_server *self = configuration_server(c, r->config.incarnation);
    return self != NULL && self->role == CONFIGURATION_VOTER && configuration_voters(c) == 1;
}

/* On success, the entries stay the caller's. */
static int start_core(struct replica *r, struct raft_entry *all, size_t n)
{
    struct log_hard_state hs = log_get_hard_state(r->log);
    /* The core lets the only voter lead at once, in the term that it is started with. Learners may
     * have entries of that term that were sent and never written here. New entries in their places
     * need another term, and it must be on disk before anything leaves: see replica_send(). */
    if (is_only_voter(r)) {
        hs = (struct log_hard_state){hs.term + 1, r->config.incarnation};
        replica_set_hard_state(r, hs.term, hs.vote);
    }
    struct raft_snapshot_metadata meta = {0};
    struct raft_event event = {.type = RAFT_START};
    event.start.term = hs.term;
    event.start.voted_for = hs.vote;
    event.start.start_index = log_first_index(r->log);
    event.start.entries = all;
    event.start.n_entries = (unsigned)n;
    if (r->snapshot.index != 0) {
        replica_label(&r->snapshot, &meta);
        event.start.metadata = &meta;
    }
    replica_step(r, &event);
    return r->failed ? FL_ESYSTEM : 0;
}

static int load(struct replica *r, struct error e)
{
    uint64_t first = log_first_index(r->log);
    size_t n = (size_t)(log_last_index(r->log) + 1 - first);
    struct raft_entry *all = calloc(n + 1, sizeof *all);
    int rv = load_entries(r, first, n, all);
    if (rv != 0) {
        rv = fli_refuse(e.text, e.size, rv, "the log cannot be loaded: %s", fl_strerror(rv));
    } else if (r->edge.changes.n == 0) {
        rv = fli_refuse(e.text, e.size, FL_ECORRUPT, "the log has no configuration of the group");
    } else if (start_core(r, all, n) != 0) {
        /* The core has freed the entries. */
        return fli_refuse(e.text, e.size, FL_ESYSTEM, "the raft library does not start");
    }
    for (size_t i = 0; all != NULL && i < n; i++) {
        raft_free(all[i].buf.base);
    }
    free(all);
    return rv;
}

static int start(struct replica *r, struct error e)
{
    int rv = init_core(r);
    if (rv != 0) {
        return fli_refuse(e.text, e.size, rv, "out of memory");
    }
    rv = use_snapshot(r, e);
    return rv != 0 ? rv : load(r, e);
}

void replica_restart(struct replica *r, uint64_t position)
{
    char text[200];
    raft_close(&r->raft, NULL);
    changes_truncate(&r->edge.changes, 0);
    r->promised_at = position;
    int rv = start(r, (struct error){text, sizeof text});
    if (rv != 0) {
        replica_fail(r, rv, "Raft does not start anew: %s", text);
    }
}

int replica_create(const struct replica_config *config, uint64_t now_ms, struct replica **ret,
                   char *errmsg, size_t errmsg_size)
{
    struct replica *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return fli_refuse(errmsg, errmsg_size, FL_ENOMEM, "out of memory");
    }
    r->config = *config;
    r->log = config->log;
    r->edge = (struct raft_edge){.raft = &r->raft,
                                 .ctx = r,
                                 .step = edge_step,
                                 .term_of = edge_term_of,
                                 .id = config->incarnation,
                                 .election_ms = config->election_ms,
                                 .heartbeat_ms = config->heartbeat_ms,
                                 .now_ms = now_ms};
    if (config->snapshot != NULL) {
        r->snapshot = *config->snapshot;
    }
    int rv = start(r, (struct error){errmsg, errmsg_size});
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
