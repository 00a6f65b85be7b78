/* replica.c: see replica.h.
 *
 * Whose memory an entry is. The core keeps terms only; entries pass through it. Those of a message
 * point into its frame, and come back in the update of the same step, which copies them to the log.
 * `batch` of each is a token that the core frees when it drops the message, and that is freed here
 * when it does not. The bytes of a configuration are the library's while they are in the core, and
 * our own (configuration.h) in frames and in the log: `sources` has the latter. */
#include "consensus/replica.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX 64u           /* messages that wait for the hard state */
#define APPLY_BYTES ((size_t)4 << 20) /* of entries applied in one go */
#define APPLY_ENTRIES 1024u
#define READ_ENTRIES 64u
#define INSTALL_NEVER_MS (24u * 3600u * 1000u) /* sending is the owner's, who knows when it failed */

/* The core's kinds of entry are the log's. */
_Static_assert(RAFT_COMMAND == 1 && RAFT_BARRIER == 2 && RAFT_CHANGE == 3, "kinds are on disk");

/* A configuration in the log, or in the snapshot behind it. */
struct change {
    uint64_t index;
    struct configuration conf;
};

struct replica {
    struct replica_config config;
    struct raft raft;
    struct raft_edge edge;
    struct log *log;
    bool failed;
    uint64_t now_ms;
    uint64_t applied;
    uint64_t stored;         /* the core was told that entries up to this are persisted */
    uint64_t told_committed; /* the core was told of committed configurations up to this */
    uint64_t snapshot_index, snapshot_term;
    uint64_t hard_state_at;  /* position of the last change of term and vote */
    uint64_t install_at;     /* position of the log's reset to a snapshot; 0: none under way */
    struct snapshot_meta installing;
    bool applying;
    struct change *changes; /* by index; the first is the one in force at the last snapshot */
    unsigned changes_n, changes_cap;
    struct raft_message held[HELD_MAX];
    unsigned held_n;
    uint64_t held_term;
    struct raft_entry entries[MESSAGE_ENTRIES_MAX]; /* of the event that is stepped */
    struct fli_slice sources[MESSAGE_ENTRIES_MAX];
    struct message_body body;
};

static void step(struct replica *r, struct raft_event *event);

/* ---- small things ---- */

static void fail(struct replica *r, int error, const char *fmt, ...) FLI_PRINTF(3, 4);
static void fail(struct replica *r, int error, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (r->failed) {
        return;
    }
    r->failed = true;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->config.fatal(r->config.ctx, error, text);
}

static void must_have(uint64_t position)
{
    if (position == 0) {
        fli_fatal("out of memory for the log");
    }
}

/* ---- configurations ---- */

static const struct change *last_change(const struct replica *r)
{
    FLI_ASSERT(r->changes_n > 0);
    return &r->changes[r->changes_n - 1];
}

static void note_change(struct replica *r, uint64_t index, const struct configuration *c)
{
    FLI_ASSERT(r->changes_n == 0 || last_change(r)->index < index);
    if (r->changes_n == r->changes_cap) {
        r->changes_cap = r->changes_cap == 0 ? 4 : 2 * r->changes_cap;
        r->changes = realloc(r->changes, r->changes_cap * sizeof *r->changes);
        if (r->changes == NULL) {
            fli_fatal("out of memory for the configuration");
        }
    }
    r->changes[r->changes_n++] = (struct change){index, *c};
}

static void forget_changes_from(struct replica *r, uint64_t index)
{
    while (r->changes_n > 0 && last_change(r)->index >= index) {
        r->changes_n--;
    }
}

/* The change in force at an index. */
static const struct change *change_at(const struct replica *r, uint64_t index)
{
    unsigned i = r->changes_n;
    while (i > 0 && r->changes[i - 1].index > index) {
        i--;
    }
    FLI_ASSERT(i > 0);
    return &r->changes[i - 1];
}

/* Those before the one in force at an index are needed no more. */
static void drop_changes_before(struct replica *r, uint64_t index)
{
    unsigned gone = (unsigned)(change_at(r, index) - r->changes);
    r->changes_n -= gone;
    memmove(r->changes, r->changes + gone, r->changes_n * sizeof *r->changes);
}

/* Each change is told as committed before the core hears of the next one. */
static void tell_committed_changes(struct replica *r)
{
    uint64_t commit = raft_commit_index(&r->raft);
    for (unsigned i = 0; i < r->changes_n && !r->failed; i++) {
        const struct change *c = &r->changes[i];
        if (c->index <= r->told_committed || c->index > commit) {
            continue;
        }
        struct raft_event event = {.type = RAFT_CONFIGURATION};
        r->told_committed = c->index;
        event.configuration.index = c->index;
        configuration_to_raft(&c->conf, &event.configuration.conf);
        step(r, &event);
    }
}

/* ---- applying ---- */

static void apply_entry(struct replica *r, const struct log_entry *e)
{
    FLI_ASSERT(e->index == r->applied + 1);
    if (e->kind == RAFT_COMMAND) {
        if (fsm_apply(r->config.fsm, e->data, e->len) != 0) {
            r->failed = true; /* it has told the owner */
            return;
        }
    }
    r->applied = e->index;
    if (e->kind == RAFT_BARRIER && r->config.barrier_applied != NULL) {
        r->config.barrier_applied(r->config.ctx, e->term);
    }
}

/* The bytes of an entry are the log's, which nothing may touch while they are applied. */
static void apply_committed(struct replica *r)
{
    struct log_entry entries[READ_ENTRIES];
    size_t bytes = 0;
    unsigned count = 0;
    if (r->applying) {
        return;
    }
    r->applying = true;
    while (!r->failed && r->install_at == 0 && r->applied < raft_commit_index(&r->raft) &&
           bytes < APPLY_BYTES && count < APPLY_ENTRIES) {
        uint64_t left = raft_commit_index(&r->raft) - r->applied;
        unsigned want = left < READ_ENTRIES ? (unsigned)left : READ_ENTRIES;
        unsigned n = 0;
        int rv = log_read_some(r->log, r->applied + 1, APPLY_BYTES, entries, want, &n);
        if (rv != 0) {
            fail(r, rv, "entry %" PRIu64 " of the log cannot be read: %s", r->applied + 1,
                 fl_strerror(rv));
            break;
        }
        for (unsigned i = 0; i < n && !r->failed; i++) {
            bytes += entries[i].len;
            apply_entry(r, &entries[i]);
        }
        count += n;
        log_read_done(r->log);
    }
    r->applying = false;
}

static bool has_to_apply(const struct replica *r)
{
    return !r->failed && r->install_at == 0 && r->applied < raft_commit_index(&r->raft);
}

/* ---- messages on their way out ---- */

/* Sends an APPEND, in several messages when one cannot hold all its entries: the next one then
 * follows the last entry of the one before. */
static void send_entries(struct replica *r, const struct raft_message *m)
{
    struct raft_message part = *m;
    struct raft_append_entries *a = &part.append_entries;
    struct log_entry entries[MESSAGE_ENTRIES_MAX];
    unsigned left = m->append_entries.n_entries;
    do {
        unsigned n = 0;
        unsigned want = left < MESSAGE_ENTRIES_MAX ? left : MESSAGE_ENTRIES_MAX;
        int rv = message_encode(&part, &r->body);
        FLI_ASSERT(rv == 0);
        if (left > 0) {
            rv = log_read_some(r->log, a->prev_log_index + 1, MESSAGE_BYTES_MAX, entries, want, &n);
            if (rv == FL_ENOTFOUND) {
                return; /* compacted: the follower will need a snapshot */
            }
            if (rv != 0) {
                fail(r, rv, "entry %" PRIu64 " of the log cannot be read: %s",
                     (uint64_t)a->prev_log_index + 1, fl_strerror(rv));
                return;
            }
        }
        unsigned sent = 0;
        while (sent < n) {
            struct fli_slice data = {entries[sent].data, entries[sent].len};
            if (!message_add_entry(&r->body, entries[sent].term, entries[sent].kind, data)) {
                break;
            }
            sent++;
        }
        r->config.send(r->config.ctx, m->server_id, &r->body);
        if (sent > 0) {
            a->prev_log_term = entries[sent - 1].term;
        }
        a->prev_log_index += sent;
        left -= sent;
        log_read_done(r->log);
    } while (left > 0);
}

static void send_now(struct replica *r, const struct raft_message *m)
{
    if (m->type == RAFT_INSTALL_SNAPSHOT) {
        r->config.snapshot_wanted(r->config.ctx, m->server_id);
    } else if (m->type == RAFT_APPEND_ENTRIES) {
        send_entries(r, m);
    } else {
        int rv = message_encode(m, &r->body);
        FLI_ASSERT(rv == 0);
        r->config.send(r->config.ctx, m->server_id, &r->body);
    }
}

/* Term and vote must be on disk before anybody hears what they promise. Those that wait are lost
 * when the term changes once more, as any message may be. */
static void send_message(struct replica *r, struct raft_message *m)
{
    if (!raft_edge_send(&r->edge, m)) {
        return;
    }
    if (log_durable(r->log) >= r->hard_state_at) {
        send_now(r, m);
        return;
    }
    if (r->held_term != raft_current_term(&r->raft)) {
        r->held_n = 0;
        r->held_term = raft_current_term(&r->raft);
    }
    if (r->held_n < HELD_MAX) {
        r->held[r->held_n++] = *m;
    }
}

static void send_held(struct replica *r)
{
    if (r->held_n == 0 || log_durable(r->log) < r->hard_state_at) {
        return;
    }
    unsigned n = r->held_n;
    r->held_n = 0;
    if (r->held_term != raft_current_term(&r->raft)) {
        return;
    }
    bool leads = raft_state(&r->raft) == RAFT_LEADER;
    for (unsigned i = 0; i < n && !r->failed; i++) {
        bool of_leader = r->held[i].type == RAFT_APPEND_ENTRIES ||
                         r->held[i].type == RAFT_INSTALL_SNAPSHOT;
        if (!of_leader || leads) {
            send_now(r, &r->held[i]);
        }
    }
}

/* ---- what a step asks for ---- */

static void keep_hard_state(struct replica *r)
{
    struct log_hard_state hs = {raft_current_term(&r->raft), raft_voted_for(&r->raft)};
    r->hard_state_at = log_set_hard_state(r->log, &hs);
    must_have(r->hard_state_at);
}

/* The bytes as they go to the log. */
static struct fli_slice source_of(const struct replica *r, const struct raft_entry *e)
{
    if (e >= r->entries && e < r->entries + MESSAGE_ENTRIES_MAX) {
        return r->sources[e - r->entries];
    }
    return (struct fli_slice){e->buf.base, e->buf.len};
}

static void append_entry(struct replica *r, uint64_t index, const struct raft_entry *e)
{
    struct fli_slice data = source_of(r, e);
    struct log_entry entry = {.index = index,
                              .term = e->term,
                              .kind = (uint8_t)e->type,
                              .len = (uint32_t)data.len,
                              .data = data.data};
    if (log_append(r->log, &entry) == 0) {
        fli_fatal("out of memory for an entry of the log");
    }
    if (e->type == RAFT_CHANGE) {
        struct configuration conf;
        int rv = configuration_decode(data.data, data.len, &conf);
        FLI_ASSERT(rv == 0); /* it was decoded before the core saw it */
        note_change(r, index, &conf);
    }
}

static void keep_entries(struct replica *r, const struct raft_update *u)
{
    uint64_t index = u->entries.index;
    if (index <= log_last_index(r->log)) {
        FLI_ASSERT(index > r->applied);
        must_have(log_truncate(r->log, index));
        forget_changes_from(r, index);
        r->stored = r->stored < index ? r->stored : index - 1;
    }
    for (unsigned i = 0; i < u->entries.n; i++) {
        append_entry(r, index + i, &u->entries.batch[i]);
    }
    raft_free(u->entries.batch[0].batch);
}

static void begin_install(struct replica *r, const struct raft_update *u)
{
    FLI_ASSERT(u->snapshot.metadata.index == r->installing.index);
    r->install_at = log_reset(r->log, r->installing.index, r->installing.term);
    must_have(r->install_at);
}

static void step(struct replica *r, struct raft_event *event)
{
    struct raft_update u = {0};
    event->time = raft_edge_time(&r->edge);
    if (r->failed) {
        return;
    }
    int rv = raft_step(&r->raft, event, &u);
    if (rv != 0) {
        fail(r, FL_ESYSTEM, "the raft library failed at an event of kind %d: %s", (int)event->type,
             raft_strerror(rv));
        return;
    }
    if ((u.flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR)) != 0) {
        keep_hard_state(r);
    }
    if ((u.flags & (RAFT_UPDATE_ENTRIES)) != 0) {
        keep_entries(r, &u);
    }
    if ((u.flags & (RAFT_UPDATE_SNAPSHOT)) != 0) {
        begin_install(r, &u);
    }
    if ((u.flags & (RAFT_UPDATE_MESSAGES)) != 0) {
        for (unsigned i = 0; i < u.messages.n && !r->failed; i++) {
            send_message(r, &u.messages.batch[i]);
        }
    }
    if ((u.flags & (RAFT_UPDATE_COMMIT_INDEX)) != 0) {
        tell_committed_changes(r);
    }
}

/* Answers are given here, and not in the midst of an event. */
static void after_event(struct replica *r)
{
    if (has_to_apply(r)) {
        apply_committed(r);
    }
}

static void edge_step(void *ctx, struct raft_event *event)
{
    step(ctx, event);
}

static uint64_t edge_term_of(void *ctx, uint64_t index)
{
    struct replica *r = ctx;
    return index == r->snapshot_index ? r->snapshot_term : log_term_of(r->log, index);
}

static bool edge_sends_snapshot(void *ctx, uint64_t peer_id)
{
    struct replica *r = ctx;
    return r->config.sends_snapshot(r->config.ctx, peer_id);
}

/* ---- events ---- */

static void set_now(struct replica *r, uint64_t now_ms)
{
    r->now_ms = now_ms > r->now_ms ? now_ms : r->now_ms;
    r->edge.now_ms = r->now_ms;
}

/* The core is given the library's bytes of each configuration. */
static int take_entries(struct replica *r, const struct raft_append_entries *m)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < m->n_entries; i++) {
        struct raft_entry *e = &r->entries[i];
        struct configuration conf;
        r->sources[i] = (struct fli_slice){e->buf.base, e->buf.len};
        bytes += e->buf.len + 64;
        if (e->type == RAFT_CHANGE && configuration_decode(e->buf.base, e->buf.len, &conf) != 0) {
            return FL_EPROTO;
        }
    }
    if (m->n_entries > 0 && bytes > log_room(r->log)) {
        return FL_EBUSY;
    }
    for (unsigned i = 0; i < m->n_entries; i++) {
        struct configuration conf;
        if (r->entries[i].type == RAFT_CHANGE) {
            int rv = configuration_decode(r->sources[i].data, r->sources[i].len, &conf);
            FLI_ASSERT(rv == 0);
            r->entries[i].buf = configuration_to_raft_bytes(&conf);
        }
    }
    return 0;
}

static void drop_entries(struct replica *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (r->entries[i].type == RAFT_CHANGE) {
            raft_free(r->entries[i].buf.base);
        }
    }
}

int replica_receive(struct replica *r, uint64_t now_ms, uint64_t from, uint8_t type,
                    struct fli_slice body)
{
    struct raft_message m;
    int rv = message_decode(type, body, r->entries, &m);
    if (rv != 0) {
        return rv;
    }
    if (r->failed) {
        return 0;
    }
    set_now(r, now_ms);
    m.server_id = from;
    /* A copy: what is in the message may change the list of configurations. */
    const struct configuration_server *server = configuration_find(&last_change(r)->conf, from);
    struct configuration_server sender = {.id = from};
    sender = server == NULL ? sender : *server;
    m.server_address = sender.address;
    unsigned n = m.type == RAFT_APPEND_ENTRIES ? m.append_entries.n_entries : 0;
    if (m.type == RAFT_APPEND_ENTRIES) {
        rv = take_entries(r, &m.append_entries);
        if (rv != 0) {
            return rv == FL_EBUSY ? 0 : rv; /* with a disk that is behind, it is a lost message */
        }
    }
    rv = raft_edge_receive(&r->edge, r->now_ms, &m);
    drop_entries(r, n);
    after_event(r);
    return rv;
}

static void tell_persisted(struct replica *r)
{
    uint64_t index = log_durable_index(r->log);
    if (r->install_at != 0 || index <= r->stored || raft_state(&r->raft) == RAFT_CANDIDATE) {
        return;
    }
    struct raft_event event = {.type = RAFT_PERSISTED_ENTRIES};
    r->stored = index;
    event.persisted_entries.index = index;
    step(r, &event);
}

static void finish_install(struct replica *r)
{
    if (r->install_at == 0 || log_durable(r->log) < r->install_at) {
        return;
    }
    struct configuration conf;
    struct raft_event event = {.type = RAFT_PERSISTED_SNAPSHOT};
    struct raft_snapshot_metadata *meta = &event.persisted_snapshot.metadata;
    int rv = configuration_decode(r->installing.conf, r->installing.conf_len, &conf);
    FLI_ASSERT(rv == 0); /* replica_install() has looked */
    r->install_at = 0;
    r->stored = r->installing.index;
    meta->index = r->installing.index;
    meta->term = r->installing.term;
    meta->configuration_index = r->installing.conf_index;
    configuration_to_raft(&conf, &meta->configuration);
    event.persisted_snapshot.last = true;
    step(r, &event);
}

void replica_durable(struct replica *r, uint64_t now_ms)
{
    set_now(r, now_ms);
    if (r->failed) {
        return;
    }
    send_held(r);
    finish_install(r);
    tell_persisted(r);
    after_event(r);
}

void replica_turn(struct replica *r, uint64_t now_ms, bool paused)
{
    set_now(r, now_ms);
    raft_edge_set_paused(&r->edge, paused);
    if (!r->failed && !paused && r->now_ms >= raft_edge_timeout_ms(&r->edge)) {
        raft_edge_timeout(&r->edge, r->now_ms);
    }
    if (!r->failed) {
        tell_persisted(r);
    }
    after_event(r);
}

uint64_t replica_next_ms(const struct replica *r, uint64_t now_ms)
{
    if (r->failed) {
        return UINT64_MAX;
    }
    uint64_t at_ms = raft_edge_timeout_ms(&r->edge);
    return has_to_apply(r) || at_ms <= now_ms ? 0 : at_ms - now_ms;
}

/* ---- what a leader does ---- */

static int submit(struct replica *r, uint64_t now_ms, enum raft_entry_type type,
                  struct fli_slice data, struct raft_buffer for_core)
{
    set_now(r, now_ms);
    if (r->failed || replica_role(r) != REPLICA_LEADER || raft_transferee(&r->raft) != 0) {
        return FL_ENOLEADER;
    }
    void *batch = data.len + 64 > log_room(r->log) ? NULL : raft_malloc(1);
    if (batch == NULL) {
        return FL_EBUSY;
    }
    r->entries[0] = (struct raft_entry){
        .term = raft_current_term(&r->raft), .type = type, .buf = for_core, .batch = batch};
    r->sources[0] = data;
    struct raft_event event = {.type = RAFT_SUBMIT};
    event.submit.entries = r->entries;
    event.submit.n = 1;
    step(r, &event);
    return 0;
}

int replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len)
{
    struct fli_slice bytes = {data, len};
    struct raft_buffer buf = {(void *)(uintptr_t)data, len};
    FLI_ASSERT(len > 0 && len <= MESSAGE_ENTRY_MAX);
    return submit(r, now_ms, RAFT_COMMAND, bytes, buf);
}

int replica_barrier(struct replica *r, uint64_t now_ms)
{
    static const uint8_t nothing[8] = {0};
    struct fli_slice bytes = {nothing, sizeof nothing};
    struct raft_buffer buf = {(void *)(uintptr_t)nothing, sizeof nothing};
    return submit(r, now_ms, RAFT_BARRIER, bytes, buf);
}

int replica_change(struct replica *r, uint64_t now_ms, const struct configuration *c)
{
    uint8_t bytes[CONFIGURATION_SIZE_MAX];
    size_t len = configuration_encode(c, bytes);
    if (!replica_configuration_committed(r)) {
        return FL_EBUSY;
    }
    const struct configuration *now = replica_configuration(r);
    for (unsigned i = 0; i < now->n; i++) { /* the core refuses while one catches up */
        if (replica_catch_up_status(r, now->servers[i].id) == CATCH_UP_RUNNING) {
            return FL_EBUSY;
        }
    }
    struct raft_buffer for_core = configuration_to_raft_bytes(c);
    int rv = submit(r, now_ms, RAFT_CHANGE, (struct fli_slice){bytes, len}, for_core);
    raft_free(for_core.base);
    return rv;
}

int replica_catch_up(struct replica *r, uint64_t now_ms, uint64_t id)
{
    set_now(r, now_ms);
    if (r->failed || replica_role(r) != REPLICA_LEADER) {
        return FL_ENOLEADER;
    }
    if (configuration_find(replica_configuration(r), id) == NULL || id == r->config.id) {
        return FL_ENOTFOUND;
    }
    if (replica_catch_up_status(r, id) == CATCH_UP_RUNNING) {
        return FL_EBUSY;
    }
    struct raft_event event = {.type = RAFT_CATCH_UP};
    event.catch_up.server_id = id;
    step(r, &event);
    return 0;
}

enum replica_catch_up replica_catch_up_status(const struct replica *r, uint64_t id)
{
    int status = RAFT_CATCH_UP_NONE;
    if (raft_catch_up(&r->raft, id, &status) != 0) {
        return CATCH_UP_NONE;
    }
    switch (status) {
    case RAFT_CATCH_UP_RUNNING:
        return CATCH_UP_RUNNING;
    case RAFT_CATCH_UP_ABORTED:
        return CATCH_UP_ABORTED;
    case RAFT_CATCH_UP_FINISHED:
        return CATCH_UP_FINISHED;
    default:
        return CATCH_UP_NONE;
    }
}

int replica_transfer(struct replica *r, uint64_t now_ms, uint64_t id)
{
    set_now(r, now_ms);
    if (r->failed || replica_role(r) != REPLICA_LEADER) {
        return FL_ENOLEADER;
    }
    const struct configuration_server *server = configuration_find(replica_configuration(r), id);
    if (server == NULL || server->role != CONFIGURATION_VOTER || id == r->config.id) {
        return FL_ENOTFOUND;
    }
    if (raft_transferee(&r->raft) != 0) {
        return FL_EBUSY;
    }
    struct raft_event event = {.type = RAFT_TRANSFER};
    event.transfer.server_id = id;
    step(r, &event);
    return 0;
}

uint64_t replica_transferee(const struct replica *r)
{
    return raft_transferee(&r->raft);
}

/* ---- elections out of turn ---- */

bool replica_hurry(struct replica *r, uint64_t now_ms)
{
    set_now(r, now_ms);
    return !r->failed && raft_edge_hurry(&r->edge, r->now_ms);
}

void replica_set_gone(struct replica *r, uint64_t id)
{
    raft_edge_set_gone(&r->edge, id);
}

uint64_t replica_silence_ms(const struct replica *r, uint64_t now_ms)
{
    return raft_edge_silence_ms(&r->edge, now_ms);
}

/* ---- snapshots ---- */

int replica_snapshot_meta(const struct replica *r, struct snapshot_meta *ret)
{
    bool on_disk = r->install_at == 0 && r->applied <= log_durable_index(r->log);
    if (!on_disk || r->applied <= r->snapshot_index) {
        return FL_EBUSY;
    }
    const struct change *c = change_at(r, r->applied);
    _Static_assert(CONFIGURATION_SIZE_MAX <= SNAPSHOT_CONF_MAX, "a configuration fits a snapshot");
    memset(ret, 0, sizeof *ret);
    ret->index = r->applied;
    ret->term = log_term_of(r->log, r->applied);
    ret->conf_index = c->index;
    ret->conf_len = (uint32_t)configuration_encode(&c->conf, ret->conf);
    FLI_ASSERT(ret->term != 0);
    return 0;
}

void replica_snapshot_taken(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                            uint64_t keep_index)
{
    struct configuration conf;
    set_now(r, now_ms);
    if (r->failed || meta->index <= r->snapshot_index) {
        return; /* one of a leader came in between */
    }
    int rv = configuration_decode(meta->conf, meta->conf_len, &conf);
    FLI_ASSERT(rv == 0 && keep_index <= meta->index);
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    event.snapshot.metadata.index = meta->index;
    event.snapshot.metadata.term = meta->term;
    event.snapshot.metadata.configuration_index = meta->conf_index;
    configuration_to_raft(&conf, &event.snapshot.metadata.configuration);
    event.snapshot.trailing = (unsigned)(meta->index - keep_index);
    r->snapshot_index = meta->index;
    r->snapshot_term = meta->term;
    step(r, &event);
    log_compact(r->log, keep_index);
    drop_changes_before(r, meta->index);
}

/* Whatever leader is known now has all that is committed, so the snapshot is as good as its own. */
static void offer_snapshot(struct replica *r, const struct snapshot_meta *meta,
                           const struct configuration *conf)
{
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
    const char *address;
    raft_leader(&r->raft, &m.server_id, &address);
    m.server_address = address;
    m.install_snapshot.term = raft_current_term(&r->raft);
    m.install_snapshot.last_index = meta->index;
    m.install_snapshot.last_term = meta->term;
    m.install_snapshot.conf_index = meta->conf_index;
    configuration_to_raft(conf, &m.install_snapshot.conf);
    r->installing = *meta;
    int rv = raft_edge_receive(&r->edge, r->now_ms, &m);
    FLI_ASSERT(rv == 0); /* it is from our leader, of our term */
    if (r->install_at != 0) {
        raft_configuration_close(&m.install_snapshot.conf); /* else the core has freed it */
    }
}

int replica_install(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                    struct machine *fresh, struct machine **ret_old)
{
    struct configuration conf;
    set_now(r, now_ms);
    if (r->failed || meta->index <= r->applied || meta->term == 0 ||
        configuration_decode(meta->conf, meta->conf_len, &conf) != 0) {
        return FL_EINVAL;
    }
    if (r->install_at != 0 || replica_role(r) != REPLICA_FOLLOWER || replica_leader(r) == 0 ||
        meta->term > replica_term(r)) {
        return FL_EBUSY;
    }
    offer_snapshot(r, meta, &conf);
    if (r->install_at == 0) {
        return FL_EINVAL; /* the log has all of it */
    }
    *ret_old = fsm_replace(r->config.fsm, fresh);
    r->applied = meta->index;
    r->stored = meta->index;
    r->told_committed = meta->index;
    r->snapshot_index = meta->index;
    r->snapshot_term = meta->term;
    r->changes_n = 0;
    note_change(r, meta->conf_index, &conf);
    return 0;
}

/* ---- state ---- */

static struct raft *core(const struct replica *r)
{
    return (struct raft *)(uintptr_t)&r->raft; /* its readers take no const */
}

enum replica_role replica_role(const struct replica *r)
{
    switch (raft_state(core(r))) {
    case RAFT_LEADER:
        return REPLICA_LEADER;
    case RAFT_CANDIDATE:
        return REPLICA_CANDIDATE;
    default:
        return REPLICA_FOLLOWER;
    }
}

uint64_t replica_term(const struct replica *r)
{
    return raft_current_term(&r->raft);
}

uint64_t replica_leader(const struct replica *r)
{
    raft_id id = 0;
    const char *address;
    raft_leader(core(r), &id, &address);
    return id;
}

uint64_t replica_commit_index(const struct replica *r)
{
    return raft_commit_index(&r->raft);
}

uint64_t replica_applied_index(const struct replica *r)
{
    return r->applied;
}

uint64_t replica_last_index(const struct replica *r)
{
    return raft_last_index(core(r));
}

uint64_t replica_snapshot_index(const struct replica *r)
{
    return r->snapshot_index;
}

uint64_t replica_match_index(const struct replica *r, uint64_t id)
{
    raft_index match = 0;
    return raft_match_index(&r->raft, id, &match) == 0 ? match : 0;
}

const struct configuration *replica_configuration(const struct replica *r)
{
    return &last_change(r)->conf;
}

uint64_t replica_configuration_index(const struct replica *r)
{
    return last_change(r)->index;
}

bool replica_configuration_committed(const struct replica *r)
{
    return last_change(r)->index <= raft_commit_index(&r->raft);
}

void replica_get_edge_stats(const struct replica *r, struct raft_edge_stats *ret)
{
    *ret = r->edge.stats;
}

/* ---- making ---- */

static int note_entry(struct replica *r, const struct log_entry *e, struct raft_entry *ret)
{
    struct configuration conf;
    *ret = (struct raft_entry){.term = e->term, .type = (enum raft_entry_type)e->kind};
    if (e->kind != RAFT_CHANGE) {
        return 0;
    }
    int rv = configuration_decode(e->data, e->len, &conf);
    if (rv != 0) {
        return rv;
    }
    ret->buf = configuration_to_raft_bytes(&conf);
    if (e->index > r->snapshot_index) {
        note_change(r, e->index, &conf);
    }
    return 0;
}

/* The core wants terms and kinds of all entries, and the bytes of configurations. */
static int load_entries(struct replica *r, uint64_t first, size_t n, struct raft_entry *all)
{
    struct log_entry some[READ_ENTRIES];
    size_t done = 0;
    int rv = 0;
    while (done < n && rv == 0) {
        unsigned got = 0;
        unsigned want = n - done < READ_ENTRIES ? (unsigned)(n - done) : READ_ENTRIES;
        rv = log_read_some(r->log, first + done, APPLY_BYTES, some, want, &got);
        for (unsigned i = 0; i < got && rv == 0; i++) {
            rv = note_entry(r, &some[i], &all[done++]);
        }
        log_read_done(r->log);
    }
    return rv;
}

static int start_core(struct replica *r, struct raft_entry *all, size_t n)
{
    struct log_hard_state hs = log_get_hard_state(r->log);
    struct raft_snapshot_metadata meta = {0};
    struct raft_event event = {.type = RAFT_START};
    const struct snapshot_meta *snapshot = r->config.snapshot;
    event.start.term = hs.term;
    event.start.voted_for = hs.vote;
    event.start.start_index = log_first_index(r->log);
    event.start.entries = all;
    event.start.n_entries = (unsigned)n;
    if (snapshot != NULL) {
        meta.index = snapshot->index;
        meta.term = snapshot->term;
        meta.configuration_index = snapshot->conf_index;
        configuration_to_raft(&r->changes[0].conf, &meta.configuration);
        event.start.metadata = &meta;
    }
    r->stored = log_last_index(r->log);
    step(r, &event);
    return r->failed ? FL_ESYSTEM : 0;
}

static int load(struct replica *r, char *errmsg, size_t errmsg_size)
{
    uint64_t first = log_first_index(r->log);
    size_t n = (size_t)(log_last_index(r->log) + 1 - first);
    struct raft_entry *all = calloc(n + 1, sizeof *all);
    int rv = all == NULL ? FL_ENOMEM : load_entries(r, first, n, all);
    if (rv == 0 && r->changes_n == 0) {
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
    for (size_t i = 0; all != NULL && i < n && rv != FL_ESYSTEM; i++) { /* then it has freed them */
        if (all[i].type == RAFT_CHANGE) {
            raft_free(all[i].buf.base);
        }
    }
    if (rv != FL_ESYSTEM) {
        free(all);
    }
    return rv;
}

static int take_snapshot_of_config(struct replica *r, char *errmsg, size_t errmsg_size)
{
    const struct snapshot_meta *meta = r->config.snapshot;
    struct configuration conf;
    if (meta == NULL) {
        return 0;
    }
    int rv = configuration_decode(meta->conf, meta->conf_len, &conf);
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
    note_change(r, meta->conf_index, &conf);
    r->snapshot_index = meta->index;
    r->snapshot_term = meta->term;
    r->applied = meta->index;
    r->told_committed = meta->conf_index;
    return 0;
}

static void init_edge(struct replica *r)
{
    r->edge = (struct raft_edge){.raft = &r->raft,
                                 .ctx = r,
                                 .step = edge_step,
                                 .term_of = edge_term_of,
                                 .sends_snapshot = edge_sends_snapshot,
                                 .id = r->config.id,
                                 .election_ms = r->config.election_ms,
                                 .heartbeat_ms = r->config.heartbeat_ms,
                                 .now_ms = r->now_ms};
}

static int init_core(struct replica *r)
{
    if (raft_init(&r->raft, NULL, NULL, r->config.id, r->config.address) != 0) {
        return FL_ENOMEM;
    }
    r->raft.tracer = NULL; /* its texts cost a tenth of an entry, and nobody reads them */
    raft_seed(&r->raft, r->config.seed);
    raft_set_election_timeout(&r->raft, r->config.election_ms);
    raft_set_heartbeat_timeout(&r->raft, r->config.heartbeat_ms);
    raft_set_install_snapshot_timeout(&r->raft, INSTALL_NEVER_MS);
    raft_set_pre_vote(&r->raft, true);
    raft_set_max_inflight_entries(&r->raft, r->config.in_flight);
    return 0;
}

int replica_create(const struct replica_config *config, uint64_t now_ms, struct replica **ret,
                   char *errmsg, size_t errmsg_size)
{
    struct replica *r = calloc(1, sizeof *r);
    if (r == NULL) {
        snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    r->config = *config;
    r->log = config->log;
    r->now_ms = now_ms;
    int rv = take_snapshot_of_config(r, errmsg, errmsg_size);
    if (rv == 0) {
        rv = init_core(r);
        if (rv != 0) {
            snprintf(errmsg, errmsg_size, "out of memory");
        }
    }
    if (rv != 0) {
        free(r->changes);
        free(r);
        return rv;
    }
    init_edge(r);
    rv = load(r, errmsg, errmsg_size);
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
    free(r->changes);
    free(r);
}
