/* info.c: see info.h. */
#include "server/info.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "machine/machine.h"
#include "net/connection_commands.h"

static int put(struct fli_buf *b, const char *key, uint64_t v)
{
    return fli_buf_printf(b, "%s:%" PRIu64 "\r\n", key, v);
}

static int put_text(struct fli_buf *b, const char *key, const char *v)
{
    return fli_buf_printf(b, "%s:%s\r\n", key, v == NULL ? "" : v);
}

/* Appends lines until the first that fails; a NULL key ends them. */
struct line {
    const char *key;
    uint64_t v;
};

static int put_lines(struct fli_buf *b, const char *title, const struct line *lines)
{
    int rc = title == NULL ? 0 : fli_buf_printf(b, "# %s\r\n", title);
    for (; rc == 0 && lines->key != NULL; lines++) {
        rc = put(b, lines->key, lines->v);
    }
    return rc;
}

static const char *role_name(const struct node_status *s)
{
    switch (s->role) {
    case NODE_LEADER:
        return "leader";
    case NODE_CANDIDATE:
        return "candidate";
    case NODE_FOLLOWER:
        return "follower";
    default:
        return "stopped";
    }
}

static int server_section(struct fli_buf *b, const struct info *i)
{
    const struct info_server *s = &i->server_facts;
    int rc = fli_buf_printf(b, "# Server\r\n");
    rc = rc != 0 ? rc : put_text(b, "redis_version", NET_REDIS_VERSION);
    rc = rc != 0 ? rc : put_text(b, "redis_mode", "standalone");
    rc = rc != 0 ? rc : put(b, "arch_bits", sizeof(void *) * CHAR_BIT);
    rc = rc != 0 ? rc : put_text(b, "server_name", "fencelock");
    rc = rc != 0 ? rc : put_text(b, "fencelock_version", FENCELOCK_VERSION);
    rc = rc != 0 ? rc : put_text(b, "version", FENCELOCK_VERSION);
    rc = rc != 0 ? rc : put(b, "node_id", i->status.id);
    rc = rc != 0 ? rc : put(b, "process_id", (uint64_t)getpid());
    rc = rc != 0 ? rc : put(b, "tcp_port", s->port);
    rc = rc != 0 ? rc : put_text(b, "listen_address", s->listen_address);
    rc = rc != 0 ? rc : put_text(b, "peer_address", s->peer_address);
    rc = rc != 0 ? rc : put_text(b, "data_dir", s->data_dir);
    rc = rc != 0 ? rc : put_text(b, "config_file", s->config_file);
    rc = rc != 0 ? rc : put(b, "uptime_in_seconds", s->uptime_ms / 1000);
    rc = rc != 0 ? rc : put(b, "uptime_ms", s->uptime_ms);
    return rc != 0 ? rc : put(b, "loading", 0);
}

static int clients_section(struct fli_buf *b, const struct info *i)
{
    const struct line lines[] = {{"connected_clients", i->server_facts.connections},
                                 {"maxclients", i->server_facts.connections_max},
                                 {"blocked_clients", i->counts.parked},
                                 {"commands_in_flight", i->counts.in_flight},
                                 {"connections_accepted", i->server_facts.net.accepted},
                                 {"connections_refused", i->server_facts.net.refused},
                                 {"slow_readers_cut_off", i->server_facts.net.cut_off},
                                 {"broken_connections", i->server_facts.net.broken},
                                 {"logins", i->server_facts.logins},
                                 {"login_failures", i->server_facts.login_failures},
                                 {"logins_delayed", i->server_facts.logins_delayed},
                                 {"requests_denied", i->server_facts.denied},
                                 {"audit_lines", i->server_facts.audit_lines},
                                 {"audit_lines_dropped", i->server_facts.audit_dropped},
                                 {"audit_lines_not_written", i->server_facts.audit_failures},
                                 {"pubsub_clients", i->server_facts.events.subscribers},
                                 {"pubsub_channels", i->server_facts.events.channels},
                                 {"pubsub_patterns", i->server_facts.events.patterns},
                                 {NULL, 0}};
    return put_lines(b, "Clients", lines);
}

/* How the nodes identify each other. */
static int peer_security_lines(struct fli_buf *b, const struct transport_security *p)
{
    static const char *const words[] = {[TRANSPORT_TRUSTS_ALL] = "none",
                                        [TRANSPORT_TRUSTS_SECRET] = "secret",
                                        [TRANSPORT_TRUSTS_CERTIFICATES] = "certificates"};
    int rc = fli_buf_printf(b, "peer_security:%s\r\n", words[p->trust]);
    if (rc == 0 && p->trust == TRANSPORT_TRUSTS_CERTIFICATES) {
        rc = fli_buf_printf(b,
                            "peer_cert_subject:%s\r\n"
                            "peer_cert_days_left:%" PRId64 "\r\n"
                            "peer_ca_days_left:%" PRId64 "\r\n",
                            p->facts.subject, p->facts.cert_days, p->facts.ca_days);
    }
    if (rc != 0 || p->trust == TRANSPORT_TRUSTS_ALL) {
        return rc;
    }
    return fli_buf_printf(b,
                          "peer_reloads:%" PRIu64 "\r\n"
                          "peer_reloads_refused:%" PRIu64 "\r\n"
                          "peer_handshakes:%" PRIu64 "\r\n"
                          "peer_handshakes_failed:%" PRIu64 "\r\n"
                          "peer_handshakes_deferred:%" PRIu64 "\r\n",
                          p->facts.reloads, p->facts.failures, p->handshakes, p->failed,
                          p->deferred);
}

static int tls_section(struct fli_buf *b, const struct info *i)
{
    const struct info_server *s = &i->server_facts;
    int rc = net_tls_info(b, s->tls_port, &s->tls, &s->net);
    return rc != 0 ? rc : peer_security_lines(b, &s->peers);
}

static int loop_section(struct fli_buf *b, const struct info *i)
{
    return net_loop_info(b, &i->server_facts.turn);
}

/* Redis clients read here whether this is a master: every node takes writes. */
static int replication_section(struct fli_buf *b, const struct info *i)
{
    int rc = fli_buf_printf(b, "# Replication\r\n");
    rc = rc != 0 ? rc : put_text(b, "role", "master");
    return rc != 0 ? rc : put(b, "connected_slaves", 0);
}

/* A follower that has applied nothing may wait for a snapshot, or for room on its disk. */
static const char *cluster_state(const struct info *i)
{
    if (i->status.leader_id == 0) {
        return i->status.founds ? "forming" : "no leader";
    }
    bool begins =
        i->status.role == NODE_LEADER && i->machine != NULL && machine_cluster_id(i->machine) == 0;
    return begins ? "forming" : "ok";
}

static int cluster_lines(struct fli_buf *b, const struct info *i)
{
    const struct node_status *s = &i->status;
    size_t connected = 0;
    size_t voters = 0;
    for (size_t m = 0; m < i->members_n; m++) {
        connected += i->members[m].connected;
        voters += i->members[m].voter;
    }
    int rc = put_text(b, "node_role", role_name(s));
    rc = rc != 0 ? rc : put(b, "node_id", s->id);
    rc = rc != 0 ? rc : put(b, "leader_id", s->leader_id);
    rc = rc != 0 ? rc : put_text(b, "leader_address", s->leader_client_address);
    rc = rc != 0 ? rc : put_text(b, "cluster_state", cluster_state(i));
    rc = rc != 0 ? rc : put(b, "cluster_nodes", i->members_n);
    rc = rc != 0 ? rc : put(b, "cluster_voters", voters);
    rc = rc != 0 ? rc : put(b, "cluster_nodes_connected", connected);
    rc = rc != 0 ? rc : put(b, "leader_changes", s->leader_changes);
    if (rc == 0 && i->machine != NULL) {
        rc = fli_buf_printf(b, "cluster_id:%016" PRIx64 "\r\n", machine_cluster_id(i->machine));
        rc = rc != 0 ? rc : put(b, "cluster_version", machine_version(i->machine));
    }
    return rc;
}

static int cluster_section(struct fli_buf *b, const struct info *i)
{
    int rc = fli_buf_printf(b, "# Cluster\r\n");
    /* For Redis clients: this is not a Redis Cluster, whatever the section is called. */
    rc = rc != 0 ? rc : put(b, "cluster_enabled", 0);
    return rc != 0 ? rc : cluster_lines(b, i);
}

static int raft_section(struct fli_buf *b, const struct info *i)
{
    const struct node_status *s = &i->status;
    const struct line lines[] = {{"term", s->term},
                                 {"commit_index", s->commit_index},
                                 {"applied_index", s->applied_index},
                                 {"last_index", s->last_index},
                                 {"snapshot_index", s->snapshot_index},
                                 {"snapshots", s->snapshots},
                                 {"snapshot_last_ms", s->snapshot_last_ms},
                                 {"snapshot_last_bytes", s->snapshot_last_bytes},
                                 {"snapshot_failures", s->snapshot_failures},
                                 {"snapshots_installed", s->restores},
                                 {"backups", s->backups.made},
                                 {"backup_failures", s->backups.failed},
                                 {"batches_proposed", s->batches},
                                 {"commands_proposed", s->commands},
                                 {"queries_answered", s->queries},
                                 {"bytes_proposed", s->bytes_proposed},
                                 {"pending_commands", s->pending_commands},
                                 {"pending_bytes", s->pending_bytes},
                                 {"entries_in_flight", s->in_flight},
                                 {"relayed", s->relayed},
                                 {"held", s->held},
                                 {"uncertain_in_node", s->uncertain},
                                 {"starts", s->starts},
                                 {"election_ms", s->election_ms},
                                 {"heartbeat_ms", s->heartbeat_ms},
                                 {"heartbeats_missed", s->heartbeats_missed},
                                 {"leader_silence_ms_max", s->silence_ms_max},
                                 {"hold_ms", s->hold_ms},
                                 {NULL, 0}};
    int rc = put_lines(b, "Raft", lines);
    return rc != 0 || !s->has_witness ? rc : put(b, "witness_index", s->witness_index);
}

static int log_section(struct fli_buf *b, const struct info *i)
{
    const struct node_status *s = &i->status;
    uint64_t writes = s->log.writes == 0 ? 1 : s->log.writes;
    const struct line lines[] = {{"log_writes", s->log.writes},
                                 {"log_writes_on_loop", s->log.writes_here},
                                 {"log_write_avg_us", s->log.write_ns_sum / writes / 1000},
                                 {"log_write_max_us", s->log.write_ns_max / 1000},
                                 {"log_segments", s->log.segments},
                                 {"log_bytes", s->log.bytes},
                                 {"log_segments_recycled", s->log.recycled},
                                 {"log_waits_for_segment", s->log.waiting_for_segment},
                                 {NULL, 0}};
    int rc = put_lines(b, "Log", lines);
    return rc != 0 ? rc : put_text(b, "log_engine", s->log.engine == NULL ? "" : s->log.engine);
}

static int locks_section(struct fli_buf *b, const struct info *i)
{
    if (i->machine == NULL) {
        return fli_buf_printf(b, "# Locks\r\n");
    }
    struct machine_counts c;
    machine_get_counts(i->machine, &c);
    const struct machine_limits *l = machine_get_limits(i->machine);
    const struct line lines[] = {{"cluster_clock", i->status.clock_ms},
                                 {"last_token", machine_last_token(i->machine)},
                                 {"min_live_token", machine_min_live_token(i->machine)},
                                 {"locks_held", c.locks_held},
                                 {"locks", c.locks},
                                 {"sessions", c.sessions},
                                 {"sessions_explicit", c.sessions_explicit},
                                 {"waits", c.waits},
                                 {"grants", c.grants},
                                 {"releases", c.releases},
                                 {"expiries", c.expiries},
                                 {"breaks", c.breaks},
                                 {"tokens_issued", c.tokens},
                                 {"waits_ended", c.waits_ended},
                                 {"work_left", c.work},
                                 {"deadlocks_refused", c.deadlocks},
                                 {"limits_reached", c.limits},
                                 {"locks_max", l->locks_max},
                                 {"sessions_max", l->sessions_max},
                                 {"waits_max", l->waits_max},
                                 {"lock_waits_max", l->lock_waits_max},
                                 {"session_locks_max", l->session_locks_max},
                                 {NULL, 0}};
    return put_lines(b, "Locks", lines);
}

static int state_section(struct fli_buf *b, const struct info *i)
{
    if (i->machine == NULL) {
        return 0;
    }
    return fli_buf_printf(b,
                          "# State\r\n"
                          "state_hash:%016" PRIx64 "\r\n"
                          "state_hash_index:%" PRIu64 "\r\n",
                          machine_hash(i->machine), i->status.applied_index);
}

static int memory_parts(struct fli_buf *b, const struct info *i)
{
    const struct node_status *s = &i->status;
    const struct line lines[] = {{"events_memory", i->server_facts.events_memory},
                                 {"pending_memory", s->pending_bytes},
                                 {"pending_memory_limit", s->pending_limit},
                                 {"log_memory", s->log.memory_bytes},
                                 {NULL, 0}};
    int rc = net_memory_info(b, &i->server_facts.memory);
    return rc != 0 ? rc : put_lines(b, NULL, lines);
}

static int memory_section(struct fli_buf *b, const struct info *i)
{
    unsigned long long size = 0;
    unsigned long long resident = 0;
    bool known = false;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL) {
        known = fscanf(f, "%llu %llu", &size, &resident) == 2;
        (void)fclose(f);
    }
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int rc = fli_buf_printf(b, "# Memory\r\n");
    if (known) { /* without /proc they are left out, since 0 would be wrong */
        rc = rc != 0 ? rc : put(b, "used_memory_rss", resident * page);
        rc = rc != 0 ? rc : put(b, "used_memory_virtual", size * page);
    }
    return rc != 0 ? rc : memory_parts(b, i);
}

static int stats_section(struct fli_buf *b, const struct info *i)
{
    const struct info_counts *c = &i->counts;
    const struct line lines[] = {{"total_connections_received", i->server_facts.net.accepted},
                                 {"total_commands_processed", i->server_facts.net.requests},
                                 {"total_net_input_bytes", i->server_facts.net.bytes_in},
                                 {"total_net_output_bytes", i->server_facts.net.bytes_out},
                                 {"reads_paused", i->server_facts.net.paused},
                                 {"lock_commands", c->commands},
                                 {"request_errors", c->errors},
                                 {"answered_noleader", c->noleader},
                                 {"answered_busy", c->busy},
                                 {"answered_uncertain", c->uncertain},
                                 {"leases_in_jeopardy_told", c->jeopardies},
                                 {"leases_lost_told", c->lost},
                                 {"waits_unheard_of", c->timeouts},
                                 {"orphaned_commands", c->orphans},
                                 {"undone_commands", c->cleaned_up},
                                 {"events_sent", i->server_facts.events.messages},
                                 {"slow_subscribers_cut_off", i->server_facts.events.dropped},
                                 {"event_resyncs", i->server_facts.events.resyncs},
                                 {NULL, 0}};
    return put_lines(b, "Stats", lines);
}

typedef int section_fn(struct fli_buf *b, const struct info *i);

static bool is_word(struct fli_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.data, word, s.len) == 0;
}

static bool asked_for(const struct fli_slice *sections, unsigned n, const char *name)
{
    for (unsigned k = 0; k < n; k++) {
        if (is_word(sections[k], name)) {
            return true;
        }
    }
    return false;
}

int info_write(struct fli_buf *b, const struct info *i, const struct fli_slice *sections,
               unsigned n)
{
    static const struct {
        const char *name;
        section_fn *write;
    } all[] = {{"server", server_section},
               {"clients", clients_section},
               {"tls", tls_section},
               {"memory", memory_section},
               {"stats", stats_section},
               {"loop", loop_section},
               {"replication", replication_section},
               {"cluster", cluster_section},
               {"raft", raft_section},
               {"log", log_section},
               {"locks", locks_section},
               {"state", state_section}};
    bool everything = n == 0 || asked_for(sections, n, "all") ||
                      asked_for(sections, n, "default") || asked_for(sections, n, "everything");
    bool first = true;
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < sizeof all / sizeof all[0]; k++) {
        if (everything || asked_for(sections, n, all[k].name)) {
            rc = first ? 0 : fli_buf_append(b, "\r\n", 2);
            rc = rc != 0 ? rc : all[k].write(b, i);
            first = false;
        }
    }
    return rc;
}

int info_write_cluster(struct fli_buf *b, const struct info *i)
{
    int rc = cluster_lines(b, i);
    rc = rc != 0 ? rc : put(b, "term", i->status.term);
    rc = rc != 0 ? rc : put(b, "commit_index", i->status.commit_index);
    return rc != 0 ? rc : put(b, "applied_index", i->status.applied_index);
}
