/* raft_guard.c: see raft_guard.h. */
#include "consensus/raft_guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "consensus/raft_guard_append.h"
#include "consensus/raft_guard_change.h"
#include "consensus/raft_guard_reject.h"
#include "consensus/raft_heap.h"
#include "consensus/raft_guard_snapshot.h"
#include "consensus/segments.h"

/* How the libuv backend's message begins when a write of entries failed (uv_writer.c of 0.22.1). */
#define WRITE_FAILED "write failed:"
#define WRITE_SHORT "short write:"

#define RESEND_MS 3000u /* no sooner is a snapshot sent again */

struct guarded_put {
    struct raft_io_snapshot_put inner;
    struct raft_io_snapshot_put *outer;
    raft_io_snapshot_put_cb cb;
    struct raft_guard *g;
    bool install;
    unsigned trailing;
    const struct raft_snapshot *snapshot; /* raft's, until its callback */
    raft_index change;                    /* its label is corrected to this one; 0: it is right */
    struct raft_configuration conf;       /* of that change */
    struct raft_snapshot corrected;
};

struct guarded_get {
    struct raft_io_snapshot_get inner;
    struct raft_io_snapshot_get *outer;
    raft_io_snapshot_get_cb cb;
    struct raft_guard *g;
};

/* From what the backend holds: inner -> raft -> outer. */
static struct raft_guard *guard_of_inner(const struct raft_io *inner)
{
    const struct raft *r = inner->data;
    struct raft_guard *g = guard_of(r->io);
    FLI_ASSERT(g->inner == inner);
    return g;
}

void guard_end(struct raft_guard *g, const char *message)
{
    if (g->failed) {
        return;
    }
    g->failed = true;
    if (g->fatal != NULL) {
        g->fatal(g->ctx, FL_EIO, message);
    }
}

void guard_fail(struct raft_guard *g, const char *what, int status)
{
    char message[RAFT_ERRMSG_BUF_SIZE + 128];
    snprintf(message, sizeof message, "cannot %s: %s%s%s", what, raft_strerror(status),
             g->inner->errmsg[0] == '\0' ? "" : ": ", g->inner->errmsg);
    guard_end(g, message);
}

/* The library repeats a write that failed with the wrong timer, which has no segment: some seconds
 * later it follows a null pointer. So it must not get there; see raft_guard.h. */
static void watch_appends(struct raft_guard *g)
{
    const char *said = g->inner->errmsg;
    if (g->failed || g->closing || fli_list_empty(&g->appending)) {
        return;
    }
    bool wrote = strncmp(said, WRITE_FAILED, strlen(WRITE_FAILED)) == 0;
    if (!wrote && strncmp(said, WRITE_SHORT, strlen(WRITE_SHORT)) != 0) {
        return;
    }
    long number = wrote ? -strtol(said + strlen(WRITE_FAILED), NULL, 10) : 0;
    char message[RAFT_ERRMSG_BUF_SIZE + 512];
    snprintf(message, sizeof message,
             "cannot write log entries to disk in %s: %s%s%s%s: see what is wrong with the disk, "
             "then start this node again; if the disk or the directory is lost, treat this node "
             "as one that lost its disk",
             g->path == NULL ? "the data directory" : g->path, said, wrote ? " (" : "",
             wrote ? strerror((int)number) : "", wrote ? ")" : "");
    guard_end(g, message);
}

/* What every function that returned to raft has in common: on failure raft reads the message. */
static int passed(struct raft_guard *g, int rv)
{
    if (rv != 0) {
        memcpy(g->outer.errmsg, g->inner->errmsg, sizeof g->outer.errmsg);
    }
    return rv;
}

/* The same for what must not fail. CANCELED is how a backend that closes says no. */
int guard_must(struct raft_guard *g, const char *what, int rv)
{
    if (rv != 0 && rv != RAFT_CANCELED) {
        guard_fail(g, what, rv);
    }
    return passed(g, rv);
}

/* The same when an error would make raft free entries twice, which it frees by itself, in the event
 * it is in: it is told that all is well, hears and says nothing more, and waits for the close. */
static int quietly(struct raft_guard *g, const char *what, int rv)
{
    (void)guard_must(g, what, rv);
    return g->failed ? 0 : rv;
}

static int guard_init(struct raft_io *io, raft_id id, const char *address)
{
    struct raft_guard *g = guard_of(io);
    g->inner->data = io->data;
    return passed(g, g->inner->init(g->inner, id, address));
}

static void guard_closed(struct raft_io *inner)
{
    struct raft_guard *g = guard_of_inner(inner);
    FLI_ASSERT(fli_list_empty(&g->appending));
    FLI_ASSERT(g->puts == 0);
    if (g->closed != NULL) {
        g->closed(&g->outer);
    }
}

static void put_free(struct guarded_put *p)
{
    raft_configuration_close(&p->conf);
    raft_free(p);
}

static void cancel_waiting(struct raft_guard *g)
{
    struct guarded_put *p = g->waiting;
    if (p == NULL) {
        return;
    }
    struct raft_io_snapshot_put *outer = p->outer;
    raft_io_snapshot_put_cb cb = p->cb;
    g->waiting = NULL;
    g->puts--;
    put_free(p);
    cb(outer, RAFT_CANCELED);
}

static void guard_close(struct raft_io *io, raft_io_close_cb cb)
{
    struct raft_guard *g = guard_of(io);
    g->closing = true;
    g->closed = cb;
    cancel_waiting(g);
    guard_cancel_appends(g);
    g->inner->close(g->inner, guard_closed);
}

static int guard_load(struct raft_io *io, raft_term *term, raft_id *voted_for,
                      struct raft_snapshot **snapshot, raft_index *start_index,
                      struct raft_entry *entries[], size_t *n_entries)
{
    struct raft_guard *g = guard_of(io);
    raft_heap_clear_stack();
    int rv = g->inner->load(g->inner, term, voted_for, snapshot, start_index, entries, n_entries);
    g->next_index = rv == 0 ? *start_index + *n_entries : 0;
    return passed(g, rv);
}

/* Whether this process did not run for so long that raft would draw conclusions from it: it may
 * have heard nothing for two heartbeats before. Never twice in a row: on a machine that is always
 * late raft gets its ticks all the same. */
static bool was_paused(struct raft_guard *g)
{
    raft_time now = g->inner->time(g->inner);
    unsigned most_ms = g->election_ms - 2 * g->heartbeat_ms;
    if (g->election_ms < 4 * g->heartbeat_ms) {
        most_ms = 2 * g->heartbeat_ms;
    }
    bool late = g->ticked_at != 0 && now - g->ticked_at > most_ms;
    g->ticked_at = now;
    g->tick_dropped = g->election_ms != 0 && late && !g->tick_dropped;
    g->stats.ticks_dropped += g->tick_dropped;
    return g->tick_dropped;
}

static void guard_tick(struct raft_io *inner)
{
    struct raft_guard *g = guard_of_inner(inner);
    watch_appends(g);
    if (!g->failed && !was_paused(g)) {
        g->tick(&g->outer);
    }
}

static raft_id leader_of(const struct raft_guard *g)
{
    raft_id id = 0;
    const char *address;
    raft_leader(g->inner->data, &id, &address);
    return id;
}

static void note_leader(struct raft_guard *g, raft_id from)
{
    if (raft_state(g->inner->data) == RAFT_FOLLOWER && leader_of(g) == from) {
        g->heard_id = from;
        g->heard_at = g->inner->time(g->inner);
    }
}

raft_time raft_guard_silence_ms(const struct raft_guard *g)
{
    if (raft_state(g->inner->data) != RAFT_FOLLOWER || g->heard_id == 0 ||
        leader_of(g) != g->heard_id) {
        return 0;
    }
    return g->inner->time(g->inner) - g->heard_at;
}

bool raft_guard_hurry(struct raft_guard *g)
{
    struct raft *r = g->inner->data;
    if (g->failed || g->closing || g->tick == NULL || raft_state(r) == RAFT_LEADER) {
        return false;
    }
    FLI_ASSERT(g->election_ms != 0);
    g->stats.hurries++;
    /* The timer runs for one or two milliseconds now, and is over by raft's clock. */
    g->skew_ms += 2;
    raft_set_election_timeout(r, 1);
    g->tick(&g->outer);
    raft_set_election_timeout(r, g->election_ms);
    return raft_state(r) == RAFT_CANDIDATE;
}

/* Whether to give up a leader that another node wants to replace. Not right after a pause, when its
 * heartbeats may still wait in a socket. */
static bool may_yield(struct raft_guard *g, const struct raft_message *message)
{
    raft_time silence_ms = raft_guard_silence_ms(g);
    raft_time enough_ms = g->election_ms;
    if (g->gone_id != 0 && g->heard_id == g->gone_id) {
        enough_ms = g->heartbeat_ms + g->heartbeat_ms / 2;
    }
    return g->election_ms != 0 && !g->tick_dropped && message->type == RAFT_REQUEST_VOTE &&
           message->request_vote.pre_vote && message->server_id != g->heard_id && silence_ms != 0 &&
           silence_ms >= enough_ms;
}

/* The follower becomes a candidate, since only that makes it forget its leader, but asks nobody for
 * votes: two that ask at once get each other's pre-votes, and then none of the votes. Only when it
 * must refuse, having more of the log than who asks, it asks itself. */
static void yield(struct raft_guard *g, struct raft_message *message)
{
    g->muted = true;
    g->stats.yields += raft_guard_hurry(g);
    g->muted = false;
    g->refused = false;
    g->recv(&g->outer, message);
    if (g->refused && raft_state(g->inner->data) == RAFT_CANDIDATE) {
        (void)raft_guard_hurry(g);
    }
}

/* Frees what raft would have taken over; the message itself is the backend's. */
static void drop_message(struct raft_message *message)
{
    switch (message->type) {
    case RAFT_APPEND_ENTRIES:
        if (message->append_entries.n_entries > 0) {
            raft_free(message->append_entries.entries[0].batch);
            raft_free(message->append_entries.entries);
        }
        break;
    case RAFT_INSTALL_SNAPSHOT:
        raft_configuration_close(&message->install_snapshot.conf);
        raft_free(message->install_snapshot.data.base);
        break;
    default:
        break;
    }
}

/* A follower that cannot have the snapshot yet refuses what comes behind it. */
static bool refuses_too_early(const struct raft_guard *g, const struct raft_message *message)
{
    if (message->type != RAFT_APPEND_ENTRIES_RESULT ||
        message->append_entries_result.rejected == 0) {
        return false;
    }
    return g->gets > 0 || (message->append_entries_result.rejected == g->sent_index &&
                           g->inner->time(g->inner) - g->sent_ms < RESEND_MS);
}

/* Whether a follower's answer is over. What is not of this term is raft's business. */
static bool overtaken(struct raft_guard *g, struct raft_message *message)
{
    struct raft *r = g->inner->data;
    struct raft_append_entries_result *m = &message->append_entries_result;
    raft_index match = 0;
    if (raft_state(r) != RAFT_LEADER || m->term != raft_current_term(r) ||
        raft_match_index(r, message->server_id, &match) != 0) {
        return false;
    }
    enum guard_reject verdict = guard_judge_reject(match, m);
    g->stats.rejections_dropped += verdict == GUARD_REJECT_DROP;
    g->stats.rejections_corrected += verdict == GUARD_REJECT_CORRECT;
    return verdict == GUARD_REJECT_DROP;
}

/* Whether raft must not see a message, for the reasons at the top of raft_guard.h. */
static bool unwanted(struct raft_guard *g, struct raft_message *message)
{
    if (g->failed || (g->stranger != NULL && g->stranger(g->ctx, message->server_id))) {
        return true;
    }
    if (message->type == RAFT_INSTALL_SNAPSHOT && g->puts > 0) {
        g->stats.snapshots_dropped++;
        return true;
    }
    if (refuses_too_early(g, message)) {
        g->stats.refusals_dropped++;
        return true;
    }
    if (message->type == RAFT_REQUEST_VOTE_RESULT && raft_state(g->inner->data) != RAFT_CANDIDATE) {
        g->stats.votes_dropped++;
        return true;
    }
    return message->type == RAFT_APPEND_ENTRIES_RESULT && overtaken(g, message);
}

/* Raft takes the smaller of the leader's commit index and the message's last entry, also when that
 * is less than it had. Telling it of no commit at all makes it keep what it has. */
static void keep_commit_index(struct raft_guard *g, struct raft_append_entries *m)
{
    raft_index commit = raft_commit_index(g->inner->data);
    if (m->leader_commit > commit && m->prev_log_index + m->n_entries < commit) {
        m->leader_commit = 0;
        g->stats.commits_corrected++;
    }
}

/* The index of the last change of the configuration that is not the first entry of a message; 0
 * for none. */
static raft_index change_within(const struct raft_append_entries *m)
{
    for (unsigned i = m->n_entries; i > 1; i--) {
        if (m->entries[i - 1].type == RAFT_CHANGE) {
            return m->prev_log_index + i;
        }
    }
    return 0;
}

/* Whether raft has taken a message in that it was given: its entries are in our log. One that was
 * overtaken is refused for its term, or since our log is another where it begins. */
static bool was_taken(struct raft *r, raft_term term, raft_index last)
{
    bool follows = r->state == RAFT_FOLLOWER && raft_current_term(r) == term;
#if RAFT_VERSION_NUMBER >= 2000
    return follows && r->follower_state.match >= last;
#else
    return follows && raft_last_index(r) >= last;
#endif
}

/* What raft has just noted as the index of a change is that of the first new entry it came with. */
static void correct_change(struct raft_guard *g, raft_index index)
{
    struct raft *r = g->inner->data;
    raft_index noted = r->configuration_uncommitted_index;
    if (noted != 0 && noted < index && raft_commit_index(r) < index) {
        r->configuration_uncommitted_index = index;
        g->stats.changes_corrected++;
    }
}

static void guard_recv(struct raft_io *inner, struct raft_message *message)
{
    struct raft_guard *g = guard_of_inner(inner);
    if (unwanted(g, message)) {
        drop_message(message);
        return;
    }
    if (may_yield(g, message)) {
        yield(g, message);
        return;
    }
    bool leads = message->type == RAFT_APPEND_ENTRIES || message->type == RAFT_INSTALL_SNAPSHOT;
    raft_id from = message->server_id;
    raft_index change = 0;
    raft_index last = 0;
    raft_term term = 0;
    struct guard_former former = {0};
    if (message->type == RAFT_APPEND_ENTRIES) {
        term = message->append_entries.term;
        last = message->append_entries.prev_log_index + message->append_entries.n_entries;
        keep_commit_index(g, &message->append_entries);
        change = change_within(&message->append_entries);
        guard_find_former(g->inner->data, &message->append_entries, &former);
        if (change != 0 || former.index != 0) {
            message->append_entries.leader_commit = 0; /* the next message brings it */
        }
    }
    g->recv(&g->outer, message);
    bool taken = was_taken(g->inner->data, term, last);
    if (change != 0 && taken) {
        correct_change(g, change);
    }
    if (former.index != 0 && taken) {
        g->stats.changes_kept += guard_note_former(g->inner->data, &former);
    } else if (former.index != 0) {
        raft_configuration_close(&former.conf);
    }
    if (leads) {
        note_leader(g, from);
    }
}

static int guard_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                       raft_io_recv_cb recv)
{
    struct raft_guard *g = guard_of(io);
    g->tick = tick;
    g->recv = recv;
    return passed(g, g->inner->start(g->inner, msecs, guard_tick, guard_recv));
}

static int guard_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    struct raft_guard *g = guard_of(io);
    return passed(g, g->inner->bootstrap(g->inner, conf));
}

static int guard_recover(struct raft_io *io, const struct raft_configuration *conf)
{
    struct raft_guard *g = guard_of(io);
    return passed(g, g->inner->recover(g->inner, conf));
}

static int guard_set_term(struct raft_io *io, raft_term term)
{
    struct raft_guard *g = guard_of(io);
    if (g->failed) {
        return 0;
    }
    int rv = ballot_set_term(g->ballot, term, g->inner->errmsg, sizeof g->inner->errmsg);
    rv = rv == 0 ? g->inner->set_term(g->inner, term) : RAFT_IOERR;
    return quietly(g, "write the term to disk", rv);
}

static int guard_set_vote(struct raft_io *io, raft_id server_id)
{
    struct raft_guard *g = guard_of(io);
    if (g->failed) {
        return 0;
    }
    int rv = ballot_set_vote(g->ballot, server_id, g->inner->errmsg, sizeof g->inner->errmsg);
    rv = rv == 0 ? g->inner->set_vote(g->inner, server_id) : RAFT_IOERR;
    return quietly(g, "write the vote to disk", rv);
}

/* Who asks for a pre-vote in a term that is over is told so. */
static void correct_refusal(struct raft_guard *g, struct raft_request_vote_result *m)
{
    raft_term term = raft_current_term(g->inner->data);
    if (m->pre_vote && !m->vote_granted && m->term < term) {
        m->term = term;
        g->stats.refusals_corrected++;
    }
}

/* A message that cannot be sent is a message lost, which Raft bears. An error instead would reach
 * raft in the middle of an event, after entries were appended or freed, where it does not bear it.
 * Raft's callback only releases the request, so it may come before this returns. */
static int guard_send(struct raft_io *io, struct raft_io_send *req,
                      const struct raft_message *message, raft_io_send_cb cb)
{
    struct raft_guard *g = guard_of(io);
    int rv = RAFT_NOCONNECTION;
    if (message->type == RAFT_REQUEST_VOTE && g->muted) {
        cb(req, rv);
        return 0;
    }
    if (message->type == RAFT_REQUEST_VOTE_RESULT) {
        g->refused = !message->request_vote_result.vote_granted;
    }
    bool stranger = g->stranger != NULL && g->stranger(g->ctx, message->server_id);
    if (!g->failed && !g->closing && !stranger) {
        struct raft_message m = *message; /* the backend copies what it keeps */
        if (m.type == RAFT_INSTALL_SNAPSHOT && m.install_snapshot.last_index == g->loaded_index &&
            m.install_snapshot.last_term != g->loaded_term) {
            m.install_snapshot.last_term = g->loaded_term;
            g->stats.snapshots_corrected++;
        }
        if (m.type == RAFT_INSTALL_SNAPSHOT) {
            g->sent_index = m.install_snapshot.last_index;
            g->sent_ms = g->inner->time(g->inner);
        }
        if (m.type == RAFT_REQUEST_VOTE_RESULT) {
            correct_refusal(g, &m.request_vote_result);
        }
        rv = g->inner->send(g->inner, req, &m, cb);
        if (m.type == RAFT_APPEND_ENTRIES) {
            guard_append_delayed(g);
        }
    }
    if (rv != 0) {
        g->stats.sends_failed++;
        cb(req, rv);
    }
    return 0;
}

static int guard_truncate(struct raft_io *io, raft_index index)
{
    struct raft_guard *g = guard_of(io);
    guard_append_delayed(g); /* what is truncated may be among them */
    /* Raft truncates before it appends, whether there is something to cut or not. */
    if (g->failed || (index < g->next_index && !guard_cut(g, index))) {
        return 0;
    }
    return quietly(g, "truncate the log on disk", g->inner->truncate(g->inner, index));
}

static void put_cb(struct raft_io_snapshot_put *inner, int status)
{
    struct guarded_put *p = FLI_CONTAINER_OF(inner, struct guarded_put, inner);
    struct raft_guard *g = p->g;
    struct raft_io_snapshot_put *outer = p->outer;
    raft_io_snapshot_put_cb cb = p->cb;
    if (status == 0) {
        g->stats.snapshots_installed += p->install;
        g->stats.snapshots_put += !p->install;
        if (p->install && !g->failed) {
            (void)guard_cut(g, p->snapshot->index + 1);
        }
    } else if (status != RAFT_CANCELED) {
        guard_fail(g, "write a snapshot to disk", status);
    }
    put_free(p);
    FLI_ASSERT(g->puts > 0);
    g->puts--;
    cb(outer, g->failed && status == 0 ? RAFT_CANCELED : status);
}

/* Raft applies all that is committed, and may take a snapshot of that before it has noted that the
 * last change in it is committed, too. */
static bool find_label(struct raft_guard *g, struct guarded_put *p)
{
    const struct raft *r = g->inner->data;
    raft_index noted = r->configuration_uncommitted_index;
    if (p->install || noted == 0 || noted > p->snapshot->index) {
        return true;
    }
    p->change = noted;
    g->stats.labels_corrected++;
    return guard_copy_configuration(&r->configuration, &p->conf);
}

static int put_inner(struct raft_guard *g, struct guarded_put *p)
{
    const struct raft_snapshot *snapshot = p->snapshot;
    if (p->change != 0) {
        p->corrected = *snapshot;
        p->corrected.configuration = p->conf;
        p->corrected.configuration_index = p->change;
        snapshot = &p->corrected;
    }
    return g->inner->snapshot_put(g->inner, p->trailing, &p->inner, snapshot, put_cb);
}

static int guard_snapshot_put(struct raft_io *io, unsigned trailing,
                              struct raft_io_snapshot_put *req,
                              const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct raft_guard *g = guard_of(io);
    if (g->failed && g->waiting != NULL) {
        return RAFT_IOERR;
    }
    struct guarded_put *p = raft_malloc(sizeof *p);
    if (p == NULL) {
        return guard_must(g, "write a snapshot to disk", RAFT_NOMEM);
    }
    /* No trailing entries is how raft says that the snapshot replaces the log. */
    *p = (struct guarded_put){.outer = req,
                              .cb = cb,
                              .g = g,
                              .install = trailing == 0,
                              .trailing = trailing,
                              .snapshot = snapshot};
    if (p->install) {
        g->next_index = snapshot->index + 1;
    }
    if (!find_label(g, p)) {
        raft_free(p);
        return guard_must(g, "write a snapshot to disk", RAFT_NOMEM);
    }
    g->puts++;
    if (g->failed) {
        g->put_held = false;
        g->waiting = p;
        return 0;
    }
    if (g->put_held) {
        FLI_ASSERT(!p->install && g->waiting == NULL);
        g->put_held = false;
        g->waiting = p;
        return 0;
    }
    int rv = put_inner(g, p);
    if (rv != 0) {
        g->puts--;
        put_free(p);
    }
    return guard_must(g, "write a snapshot to disk", rv);
}

void raft_guard_hold_put(struct raft_guard *g)
{
    FLI_ASSERT(!g->put_held && g->waiting == NULL);
    g->put_held = true;
}

void raft_guard_put_ready(struct raft_guard *g)
{
    struct guarded_put *p = g->waiting;
    FLI_ASSERT(p != NULL && !g->closing);
    if (g->failed) {
        return; /* it waits for the close */
    }
    g->waiting = NULL;
    int rv = put_inner(g, p);
    if (rv != 0) {
        g->waiting = p;
        guard_fail(g, "write a snapshot to disk", rv);
    }
}

/* It would stop the follower that is sent it, and that one could not tell whose disk it was. */
static void refuse_damaged(struct raft_guard *g, const struct raft_snapshot *snapshot)
{
    char message[512 + RAFT_ERRMSG_BUF_SIZE];
    snprintf(
        message, sizeof message,
        "a snapshot is damaged: %s/snapshot-%llu-%llu: not as it was written; " SEGMENTS_REMEDY,
        g->path == NULL ? "" : g->path, snapshot->term, snapshot->index);
    g->failed = true;
    if (g->fatal != NULL) {
        g->fatal(g->ctx, FL_ECORRUPT, message);
    }
}

static void get_cb(struct raft_io_snapshot_get *inner, struct raft_snapshot *snapshot, int status)
{
    struct guarded_get *s = FLI_CONTAINER_OF(inner, struct guarded_get, inner);
    struct raft_guard *g = s->g;
    struct raft_io_snapshot_get *outer = s->outer;
    raft_io_snapshot_get_cb cb = s->cb;
    raft_free(s);
    g->gets--;
    if (status != 0) {
        guard_fail(g, "read the snapshot for a follower", status);
        return;
    }
    if (!g->failed && !raft_guard_is_whole(snapshot)) {
        refuse_damaged(g, snapshot);
        raft_guard_free_snapshot(snapshot);
        return;
    }
    /* Raft sends it from within this call. */
    g->loaded_index = snapshot->index;
    g->loaded_term = snapshot->term;
    cb(outer, snapshot, status);
    g->loaded_index = 0;
}

static int guard_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                              raft_io_snapshot_get_cb cb)
{
    struct raft_guard *g = guard_of(io);
    struct guarded_get *s = raft_malloc(sizeof *s);
    if (s == NULL) {
        return RAFT_NOMEM;
    }
    *s = (struct guarded_get){.outer = req, .cb = cb, .g = g};
    g->gets++;
    int rv = g->inner->snapshot_get(g->inner, &s->inner, get_cb);
    if (rv != 0) {
        g->gets--;
        raft_free(s);
    }
    return passed(g, rv);
}

static raft_time guard_time(struct raft_io *io)
{
    struct raft_guard *g = guard_of(io);
    g->outer.capacity = g->inner->capacity;
    return g->inner->time(g->inner) + g->skew_ms;
}

/* At least min and below max, as the backend's is. */
static int guard_random(struct raft_io *io, int min, int max)
{
    FLI_ASSERT(min < max);
    uint64_t number;
    fli_random(&number, sizeof number);
    return (int)(min + (int64_t)(number % (uint64_t)((int64_t)max - min)));
}

void raft_guard_init(struct raft_guard *g, struct raft_io *inner,
                     void (*fatal)(void *ctx, int error, const char *message), void *ctx)
{
    FLI_ASSERT(inner->version > 0);
    *g = (struct raft_guard){.inner = inner, .fatal = fatal, .ctx = ctx};
    fli_list_init(&g->appending);
    fli_list_init(&g->held);
    fli_list_init(&g->delayed);
    g->outer = (struct raft_io){
        .version = inner->version,
        .capacity = inner->capacity,
        .init = guard_init,
        .close = guard_close,
        .load = guard_load,
        .start = guard_start,
        .bootstrap = guard_bootstrap,
        .recover = guard_recover,
        .set_term = guard_set_term,
        .set_vote = guard_set_vote,
        .send = guard_send,
        .append = guard_append,
        .truncate = guard_truncate,
        .snapshot_put = guard_snapshot_put,
        .snapshot_get = guard_snapshot_get,
        .time = guard_time,
        .random = guard_random,
    };
}

void raft_guard_attach(struct raft_guard *g, struct raft *r)
{
    FLI_ASSERT(r->io == g->inner);
    FLI_ASSERT(g->inner->data == r);
    g->outer.data = r;
    r->io = &g->outer;
}

void raft_guard_set_patience(struct raft_guard *g, unsigned election_ms, unsigned heartbeat_ms)
{
    FLI_ASSERT(election_ms > heartbeat_ms && heartbeat_ms > 0);
    g->election_ms = election_ms;
    g->heartbeat_ms = heartbeat_ms;
}

void raft_guard_set_path(struct raft_guard *g, const char *path)
{
    g->path = path;
}

void raft_guard_set_stranger(struct raft_guard *g, bool (*stranger)(void *ctx, raft_id id))
{
    g->stranger = stranger;
}

void raft_guard_set_gone(struct raft_guard *g, raft_id id)
{
    g->gone_id = id;
}

static void nudge_cb(struct raft_io_send *req, int status)
{
    raft_free(req);
}

void raft_guard_nudge(struct raft_guard *g, raft_id id, const char *address)
{
    /* An answer of term 0 is older than any term, and nobody but a leader reads it. */
    struct raft_message m = {
        .type = RAFT_APPEND_ENTRIES_RESULT, .server_id = id, .server_address = address};
    struct raft_io_send *req = g->failed || g->closing ? NULL : raft_malloc(sizeof *req);
    if (req != NULL && g->inner->send(g->inner, req, &m, nudge_cb) != 0) {
        raft_free(req);
    }
}

void raft_guard_get_stats(const struct raft_guard *g, struct raft_guard_stats *ret)
{
    *ret = g->stats;
    ret->append_waiting_ns = guard_append_waiting_ns(g);
}
