/* figures.c: see figures.h. */
#include "server/figures.h"

#include <inttypes.h>
#include <stdio.h>

#include "metrics/listener.h"

struct row {
    const char *name, *help;
    uint64_t value;
};

static void counters(struct metrics_text *t, const struct row *rows)
{
    for (; rows->name != NULL; rows++) {
        metrics_counter(t, rows->name, rows->help, rows->value);
    }
}

static void gauges(struct metrics_text *t, const struct row *rows)
{
    for (; rows->name != NULL; rows++) {
        metrics_gauge(t, rows->name, rows->help, rows->value);
    }
}

/* A family with one sample for each cause. */
struct cause {
    const char *text; /* NULL ends the list */
    uint64_t value;
};

static void by_label(struct metrics_text *t, const char *name, const char *type, const char *help,
                     const char *label, const struct cause *causes)
{
    metrics_family(t, name, type, help);
    for (; causes->text != NULL; causes++) {
        metrics_whole(t, &(struct metrics_label){label, causes->text}, causes->value);
    }
}

static void milli_gauge(struct metrics_text *t, const char *name, const char *help, uint64_t ms)
{
    metrics_family(t, name, "gauge", help);
    metrics_milli(t, NULL, ms);
}

/* ---- the node in its cluster ---- */

static void put_role(const struct figures *f, struct metrics_text *t)
{
    const struct node_status *s = &f->info.status;
    const struct row rows[] = {
        {"fencelock_ready", "1 when this node can serve a grant within its hold time (/readyz).",
         f->ready},
        {"fencelock_leads", "1 when this node leads.", s->role == NODE_LEADER},
        {"fencelock_has_leader", "1 when this node knows a leader.", s->leader_id != 0},
        {"fencelock_leader_node", "The id of the leader; 0 when none is known.", s->leader_id},
        {"fencelock_formed", "1 once the cluster is formed: all its members have connected.",
         f->formed},
        {"fencelock_term", "Raft's term.", s->term},
        {"fencelock_commit_index", "The last entry known to be committed.", s->commit_index},
        {"fencelock_applied_index", "The last entry applied here.", s->applied_index},
        {"fencelock_last_index", "The last entry of the log here.", s->last_index},
        {"fencelock_snapshot_index", "The entry of the newest snapshot here; 0: none.",
         s->snapshot_index},
        {NULL, NULL, 0}};
    gauges(t, rows);
    metrics_counter(t, "fencelock_heartbeats_missed_total",
                    "Heartbeats of a leader that did not come within two beats.",
                    s->heartbeats_missed);
    metrics_counter(t, "fencelock_leader_changes_total", "Times that this node saw another lead.",
                    s->leader_changes);
    metrics_family(t, "fencelock_leaderless_seconds_total", "counter",
                   "Time for which this node could reach no leader, to about a quarter second.");
    metrics_milli(t, NULL, f->leaderless_ms);
    milli_gauge(t, "fencelock_uptime_seconds", "Since this process began.",
                f->info.server_facts.uptime_ms);
}

static void put_members(const struct figures *f, struct metrics_text *t)
{
    const struct info *i = &f->info;
    char id[24];
    metrics_gauge(t, "fencelock_members", "Nodes of the cluster.", i->members_n);
    metrics_family(t, "fencelock_member_connected", "gauge",
                   "1 when the node is connected, as far as this one knows: a leader knows of all, "
                   "a follower of itself and its leader.");
    for (size_t m = 0; m < i->members_n; m++) {
        (void)snprintf(id, sizeof id, "%" PRIu64, i->members[m].id);
        metrics_whole(t, &(struct metrics_label){"member", id}, i->members[m].connected);
    }
    if (i->status.role != NODE_LEADER) {
        return;
    }
    metrics_family(t, "fencelock_member_lag_entries", "gauge",
                   "Entries that the node lacks, as its leader knows; only the leader has it.");
    for (size_t m = 0; m < i->members_n; m++) {
        const struct node_member *n = &i->members[m];
        uint64_t match = n->self ? i->status.last_index : n->match_index;
        (void)snprintf(id, sizeof id, "%" PRIu64, n->id);
        metrics_whole(t, &(struct metrics_label){"member", id},
                      i->status.last_index > match ? i->status.last_index - match : 0);
    }
}

static void put_snapshots(const struct node_status *s, struct metrics_text *t)
{
    milli_gauge(t, "fencelock_snapshot_age_seconds",
                "Since this process took, got or began with its newest snapshot.",
                s->snapshot_age_ms);
    milli_gauge(t, "fencelock_snapshot_duration_seconds", "How long the last one took to write.",
                s->snapshot_last_ms);
    metrics_gauge(t, "fencelock_snapshot_bytes", "Size of the newest one.", s->snapshot_last_bytes);
    if (s->backups.made > 0) {
        milli_gauge(t, "fencelock_backup_age_seconds",
                    "Since a backup was read from this node to its end; absent before the first.",
                    s->backups.age_ms);
    }
    const struct row rows[] = {
        {"fencelock_backups_total", "Backups read from this node to their end.", s->backups.made},
        {"fencelock_backup_failures_total",
         "Backups that could not be made, or that nobody read to their end.", s->backups.failed},
        {"fencelock_snapshots_total", "Snapshots written by this node.", s->snapshots},
        {"fencelock_snapshot_failures_total",
         "Snapshots that could not be taken, sent or received.", s->snapshot_failures},
        {"fencelock_snapshots_installed_total", "Snapshots begun with, or got from a leader.",
         s->restores},
        {NULL, NULL, 0}};
    counters(t, rows);
}

static void put_log(const struct figures *f, struct metrics_text *t)
{
    const struct node_status *s = &f->info.status;
    const struct row now[] = {
        {"fencelock_log_bytes", "Bytes of the log's files.", s->log.bytes},
        {"fencelock_log_segments", "Files of the log.", s->log.segments},
        {"fencelock_log_waits_for_room",
         "1 when the log has no segment to write to: the disk is full, or slow.",
         s->log.waiting_for_segment},
        {"fencelock_pending_commands", "Commands that have no answer yet.", s->pending_commands},
        {"fencelock_pending_bytes", "Bytes of these.", s->pending_bytes},
        {"fencelock_entries_in_flight", "Entries proposed and not applied.", s->in_flight},
        {NULL, NULL, 0}};
    const struct row ever[] = {
        {"fencelock_log_writes_total", "Synced writes of the log.", s->log.writes},
        {"fencelock_entries_proposed_total", "Entries proposed by this node as leader.",
         s->batches},
        {"fencelock_commands_proposed_total", "Commands in them.", s->commands},
        {"fencelock_queries_total", "Questions answered as leader.", s->queries},
        {"fencelock_commands_relayed_total", "Commands sent on to a leader.", s->relayed},
        {"fencelock_commands_held_total",
         "Commands that had to wait for a leader, or to be relayed.", s->held},
        {NULL, NULL, 0}};
    gauges(t, now);
    counters(t, ever);
    if (f->has_times) {
        metrics_histogram(t, "fencelock_log_sync_seconds",
                          "How long a write of the log took until it was on disk.",
                          &f->times.log_write);
        metrics_histogram(t, "fencelock_commit_seconds",
                          "From proposing an entry to applying it; counted by the leader.",
                          &f->times.commit);
        metrics_histogram(t, "fencelock_apply_seconds", "How long applying an entry took.",
                          &f->times.apply);
        metrics_histogram(t, "fencelock_relay_seconds",
                          "From sending a command to the leader to its answer.", &f->times.relay);
    }
}

/* ---- locks ---- */

static void put_lock_times(const struct lock_figures *l, struct metrics_text *t)
{
    metrics_histogram(t, "fencelock_lock_wait_seconds",
                      "How long waits lasted that were granted, on the cluster clock; counted by "
                      "the leader.",
                      &l->wait);
    metrics_histogram(t, "fencelock_lock_held_seconds",
                      "How long locks had been held when they were given back or lost, on the "
                      "cluster clock; counted by the leader.",
                      &l->held);
    metrics_histogram(
        t, "fencelock_lock_hand_over_seconds",
        "From the arrival of the request that frees a lock at the leader to the grant to its "
        "waiter; counted by the leader.",
        &l->hand_over);
}

static void put_lock_counts(const struct lock_figures *l, struct metrics_text *t)
{
    metrics_counter(t, "fencelock_grants_total", "Locks granted; counted by the leader.",
                    l->grants);
    by_label(t, "fencelock_grants_ended_total", "counter", "Grants that ended, by how.", "cause",
             (const struct cause[]){{"released", l->ends[LOCK_RELEASED]},
                                    {"session closed", l->ends[LOCK_CLOSED]},
                                    {"expired", l->ends[LOCK_EXPIRED]},
                                    {"broken", l->ends[LOCK_BROKEN]},
                                    {NULL, 0}});
    metrics_counter(t, "fencelock_waits_begun_total", "Requests that were queued.", l->queued);
    by_label(t, "fencelock_waits_ended_total", "counter", "Waits that ended without a grant.",
             "cause",
             (const struct cause[]){{"deadline", l->wait_ends[MACHINE_REASON_DEADLINE]},
                                    {"cancelled", l->wait_ends[MACHINE_REASON_CANCEL]},
                                    {"session closed", l->wait_ends[MACHINE_REASON_CLOSE]},
                                    {"session expired", l->wait_ends[MACHINE_REASON_SESSION]},
                                    {"right lost", l->wait_ends[MACHINE_REASON_DENIED]},
                                    {NULL, 0}});
    by_label(t, "fencelock_refused_total", "counter",
             "Requests that changed nothing: a lock that another holds, or a stale token.",
             "reason",
             (const struct cause[]){{"held", l->refusals[REFUSED_HELD]},
                                    {"stale renew", l->refusals[REFUSED_STALE_RENEW]},
                                    {"stale release", l->refusals[REFUSED_STALE_RELEASE]},
                                    {NULL, 0}});
}

static void put_state(const struct figures *f, struct metrics_text *t)
{
    const struct machine_counts *c = &f->counts;
    const struct machine_limits *l = &f->limits;
    const struct row now[] = {
        {"fencelock_locks", "Locks that are held, awaited or delayed.", c->locks},
        {"fencelock_locks_held", "Locks that are held, once for each holder.", c->locks_held},
        {"fencelock_sessions", "Sessions, those included that an ACQUIRE made.", c->sessions},
        {"fencelock_waits", "Places in queues.", c->waits},
        {"fencelock_work_left", "Ends of sessions and grants that go on in later entries.",
         c->work},
        {"fencelock_locks_max", "Limit of the cluster.", l->locks_max},
        {"fencelock_sessions_max", "Limit of the cluster.", l->sessions_max},
        {"fencelock_waits_max", "Limit of the cluster.", l->waits_max},
        {"fencelock_last_token", "The largest token issued.", f->last_token},
        {"fencelock_min_live_token", "The smallest token still held, or the next one.",
         f->min_live_token},
        {NULL, NULL, 0}};
    const struct row ever[] = {
        {"fencelock_deadlocks_refused_total",
         "Waits refused because they would close a cycle; state, so the same on every node.",
         c->deadlocks},
        {"fencelock_limits_reached_total",
         "Commands answered LIMIT; state, so the same on every node.", c->limits},
        {NULL, NULL, 0}};
    gauges(t, now);
    counters(t, ever);
    milli_gauge(t, "fencelock_cluster_clock_seconds", "The cluster clock, as applied here.",
                f->clock_ms);
}

/* ---- clients ---- */

static void put_clients(const struct info *i, struct metrics_text *t)
{
    const struct row now[] = {
        {"fencelock_connections", "Clients that are connected.", i->server_facts.connections},
        {"fencelock_connections_max", "Clients that may be.", i->server_facts.connections_max},
        {"fencelock_commands_in_flight", "Requests that wait for an answer of the cluster.",
         i->counts.in_flight},
        {"fencelock_clients_waiting", "Requests that wait in a queue for a lock.",
         i->counts.parked},
        {"fencelock_subscribers", "Connections that are told events.",
         i->server_facts.events.subscribers},
        {NULL, NULL, 0}};
    const struct row ever[] = {
        {"fencelock_connections_accepted_total", "Connections, the refused ones included.",
         i->server_facts.net.accepted},
        {"fencelock_connections_refused_total", "Connections over the limit.",
         i->server_facts.net.refused},
        {"fencelock_slow_readers_total", "Clients cut off because they did not read their answers.",
         i->server_facts.net.cut_off},
        {"fencelock_requests_total", "Requests of all kinds.", i->server_facts.net.requests},
        {"fencelock_request_errors_total", "Requests refused for what they said.",
         i->counts.errors},
        {"fencelock_received_bytes_total", "From clients.", i->server_facts.net.bytes_in},
        {"fencelock_sent_bytes_total", "To clients.", i->server_facts.net.bytes_out},
        {"fencelock_events_sent_total", "Events told to subscribers.",
         i->server_facts.events.messages},
        {"fencelock_client_jeopardies_total",
         "Leases that clients told could not be renewed for half their TTL.", i->counts.jeopardies},
        {"fencelock_client_leases_lost_total",
         "Leases that clients told they had given up as lost.", i->counts.lost},
        {NULL, NULL, 0}};
    gauges(t, now);
    counters(t, ever);
    by_label(t, "fencelock_unserved_total", "counter",
             "Requests that got no result, by the answer.", "answer",
             (const struct cause[]){{"noleader", i->counts.noleader},
                                    {"busy", i->counts.busy},
                                    {"uncertain", i->counts.uncertain},
                                    {NULL, 0}});
}

/* ---- the loop and memory ---- */

static void put_turns(const struct fli_turn_stats *s, struct metrics_text *t)
{
    metrics_counter(t, "fencelock_turns_total", "Turns of the event loop.", s->turns);
    metrics_family(t, "fencelock_slow_turns_total", "counter",
                   "Turns above 10 ms, by the part of the work that took most.");
    for (unsigned i = 0; i < FLI_TURN_PARTS; i++) {
        const char *name = fli_turn_part_name((enum fli_turn_part)i);
        metrics_whole(t, &(struct metrics_label){"part", name}, s->slow_part[i]);
    }
    metrics_family(t, "fencelock_turn_seconds_total", "counter",
                   "Time of the event loop, by part of the work; waiting is in none.");
    for (unsigned i = 0; i < FLI_TURN_PARTS; i++) {
        const char *name = fli_turn_part_name((enum fli_turn_part)i);
        metrics_milli(t, &(struct metrics_label){"part", name}, s->ns[i] / 1000000);
    }
    milli_gauge(t, "fencelock_turn_max_seconds", "The longest turn since start.",
                s->max_ns / 1000000);
}

static void put_memory(const struct info *i, struct metrics_text *t)
{
    by_label(t, "fencelock_memory_bytes", "gauge",
             "Memory by what it is for, as far as it is accounted for.", "purpose",
             (const struct cause[]){{"clients", i->server_facts.memory.clients},
                                    {"pooled", i->server_facts.memory.pooled},
                                    {"events", i->server_facts.events_memory},
                                    {"log", i->status.log.memory_bytes},
                                    {NULL, 0}});
}

static uint64_t seconds_of_days(int64_t days)
{
    return days <= 0 ? 0 : (uint64_t)days * 86400;
}

static void put_certificate(struct metrics_text *t, const char *which, bool known, int64_t days)
{
    if (known) {
        metrics_whole(t, &(struct metrics_label){"certificate", which}, seconds_of_days(days));
    }
}

static void put_certificates(const struct info_server *s, struct metrics_text *t)
{
    const struct fli_tls_facts *own = &s->tls;
    const struct fli_tls_facts *peer = &s->peers.facts;
    bool clients = s->tls_port != 0;
    bool peers = s->peers.trust == TRANSPORT_TRUSTS_CERTIFICATES;
    if (!clients && !peers) {
        return;
    }
    metrics_family(t, "fencelock_certificate_left_seconds", "gauge",
                   "Until the certificate expires, in whole days; 0 when it has. Those of clients' "
                   "connections, and (peer) those between nodes.");
    put_certificate(t, "own", clients && own->has_cert, own->cert_days);
    put_certificate(t, "ca", clients && own->has_ca, own->ca_days);
    put_certificate(t, "peer", peers && peer->has_cert, peer->cert_days);
    put_certificate(t, "peer ca", peers && peer->has_ca, peer->ca_days);
}

static void put_tls(const struct info *i, struct metrics_text *t)
{
    const struct info_server *s = &i->server_facts;
    put_certificates(s, t);
    if (s->tls_port == 0) {
        return;
    }
    const struct row rows[] = {
        {"fencelock_tls_handshakes_total", "Handshakes with clients.", s->net.tls_handshakes},
        {"fencelock_tls_failures_total", "Handshakes that failed.", s->net.tls_failed},
        {"fencelock_certificate_reload_failures_total", "New files that were refused.",
         s->tls.failures},
        {NULL, NULL, 0}};
    counters(t, rows);
}

static void put_users(const struct info_server *s, struct metrics_text *t)
{
    const struct row rows[] = {
        {"fencelock_logins_total", "Logins.", s->logins},
        {"fencelock_login_failures_total", "Wrong users or passwords.", s->login_failures},
        {"fencelock_logins_delayed_total", "Logins held up after failures of their address.",
         s->logins_delayed},
        {"fencelock_denied_total", "Requests refused for want of a login or a right.", s->denied},
        {"fencelock_audit_lines_total", "Lines of the audit log.", s->audit_lines},
        {"fencelock_audit_lines_lost_total",
         "Lines of the audit log that found no room, or could not be written.",
         s->audit_dropped + s->audit_failures},
        {NULL, NULL, 0}};
    counters(t, rows);
}

static void put_build(uint64_t node_id, struct metrics_text *t)
{
    char id[24];
    (void)snprintf(id, sizeof id, "%" PRIu64, node_id);
    metrics_family(t, "fencelock_node_info", "gauge",
                   "Always 1; its labels name the node and its version.");
    metrics_info(t, (const struct metrics_label[]){{"node", id}, {"version", FENCELOCK_VERSION}},
                 2);
}

static void put_disk(const char *data_dir, struct metrics_text *t)
{
    uint64_t size = 0;
    uint64_t free_bytes = 0;
    if (metrics_disk(data_dir, &size, &free_bytes)) {
        metrics_gauge(t, "fencelock_disk_bytes", "Size of the file system of --data.", size);
        metrics_gauge(t, "fencelock_disk_free_bytes", "Free bytes of that file system.",
                      free_bytes);
    }
}

void figures_render(const struct figures *f, uint64_t node_id, const char *data_dir,
                    struct metrics_text *t)
{
    put_build(node_id, t);
    put_disk(data_dir, t);
    if (f == NULL) {
        return;
    }
    put_role(f, t);
    put_members(f, t);
    put_snapshots(&f->info.status, t);
    put_log(f, t);
    put_lock_counts(&f->locks, t);
    put_lock_times(&f->locks, t);
    if (f->has_machine) {
        put_state(f, t);
    }
    put_clients(&f->info, t);
    put_turns(&f->info.server_facts.turn, t);
    put_memory(&f->info, t);
    put_tls(&f->info, t);
    put_users(&f->info.server_facts, t);
}
