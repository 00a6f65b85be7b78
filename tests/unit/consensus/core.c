/* core.c: see core.h. */
#include "core.h"

#include "../../lib/unit.h"

struct configuration core_servers(unsigned n)
{
    struct configuration c = {0};
    for (unsigned i = 1; i <= n; i++) {
        char address[8];
        snprintf(address, sizeof address, "s%u:1", i);
        assert_int_equal(configuration_add(&c, i, i, address, CONFIGURATION_VOTER), 0);
    }
    return c;
}

/* ---- what the core asks for ---- */

static void take_entries(struct core *c, const struct raft_update *u)
{
    for (unsigned i = 0; i < u->entries.n; i++) {
        const struct raft_entry *e = &u->entries.batch[i];
        uint64_t index = u->entries.index + i;
        assert_true(index < LOG_MAX && index <= c->last + 1);
        changes_truncate(&c->edge.changes, index);
        c->terms[index] = e->term;
        if (e->type == RAFT_CHANGE) {
            struct configuration conf =
                core_servers((unsigned)(uintptr_t)((uint8_t *)e->buf.base)[1]);
            changes_add(&c->edge.changes, index, &conf);
        }
        c->last = index;
    }
    raft_free(u->entries.batch[0].batch);
}

/* As replica_send.c, which has no limit here. */
static void leave(struct core *c, uint64_t to)
{
    struct raft_edge_peer *p = raft_edge_peer(&c->edge, to);
    p->sent += p->left;
    p->left = 0;
}

void core_step(struct core *c, struct raft_event *event)
{
    struct raft_update u = {0};
    bool with_edge = c->mode == WITH_EDGE;
    const struct raft_message *m = event->type == RAFT_RECEIVE ? event->receive.message : NULL;
    if (m != NULL && m->type == RAFT_APPEND_ENTRIES && m->append_entries.n_entries > 0) {
        m->append_entries.entries[0].batch = raft_malloc(1);
    }
    event->time = c->edge.now_ms = c->now_ms;
    c->error = with_edge ? raft_edge_step(&c->edge, event, &u) : raft_step(&c->raft, event, &u);
    if (c->error != 0) {
        return;
    }
    if ((u.flags & (RAFT_UPDATE_ENTRIES)) != 0) {
        take_entries(c, &u);
    }
    for (unsigned i = 0; (u.flags & (RAFT_UPDATE_MESSAGES)) != 0 && i < u.messages.n; i++) {
        if (with_edge && u.messages.batch[i].type == RAFT_APPEND_ENTRIES) {
            leave(c, u.messages.batch[i].server_id);
        }
        assert_true(c->sent_n < SENT_MAX);
        c->sent[c->sent_n++] = u.messages.batch[i];
    }
    if ((u.flags & (RAFT_UPDATE_COMMIT_INDEX)) != 0) {
        /* As replica.c: at once, and before the core hears anything else. */
        raft_edge_tell_changes(&c->edge, raft_commit_index(&c->raft));
    }
}

static void edge_step(void *ctx, struct raft_event *event)
{
    core_step(ctx, event);
}

static uint64_t edge_term_of(void *ctx, uint64_t index)
{
    struct core *c = ctx;
    return index >= 1 && index <= c->last ? c->terms[index] : 0;
}

/* ---- events ---- */

void core_begin(struct core *c, enum mode mode)
{
    struct configuration conf = core_servers(3);
    core_begin_in(c, mode, &conf);
}

void core_begin_in(struct core *c, enum mode mode, const struct configuration *conf)
{
    memset(c, 0, sizeof *c);
    c->mode = mode;
    c->now_ms = 1000;
    assert_int_equal(raft_init(&c->raft, NULL, NULL, 1, "s1:1"), 0);
    c->raft.tracer = NULL;
    raft_seed(&c->raft, 7);
    raft_set_election_timeout(&c->raft, ELECTION_MS);
    raft_set_heartbeat_timeout(&c->raft, HEARTBEAT_MS);
    raft_set_pre_vote(&c->raft, true);
    c->edge = (struct raft_edge){.raft = &c->raft,
                                 .ctx = c,
                                 .step = edge_step,
                                 .term_of = edge_term_of,
                                 .id = 1,
                                 .election_ms = ELECTION_MS,
                                 .heartbeat_ms = HEARTBEAT_MS,
                                 .now_ms = c->now_ms};
    struct raft_entry first = {.term = 1, .type = RAFT_CHANGE};
    struct raft_event event = {.type = RAFT_START};
    first.buf = configuration_to_raft_bytes(conf);
    event.start.term = 1;
    event.start.start_index = 1;
    event.start.entries = &first;
    event.start.n_entries = 1;
    c->terms[1] = 1;
    c->last = 1;
    c->edge.told = 1;
    changes_add(&c->edge.changes, 1, conf);
    core_step(c, &event);
    assert_int_equal(c->error, 0);
    raft_free(first.buf.base);
}

void core_end(struct core *c)
{
    raft_close(&c->raft, NULL);
    changes_fini(&c->edge.changes);
}

/* 0, the edge's refusal, or the core's error. */
int core_receive(struct core *c, uint64_t from, struct raft_message *m)
{
    static const char *const ADDRESS[] = {"s0:1", "s1:1", "s2:1", "s3:1"};
    m->server_id = from;
    m->server_address = ADDRESS[from % 4];
    c->sent_n = 0;
    if (c->mode == WITH_EDGE) {
        c->edge.now_ms = c->now_ms;
        int rv = raft_edge_receive(&c->edge, m);
        return rv != 0 ? rv : c->error;
    }
    struct raft_event event = {.type = RAFT_RECEIVE};
    event.receive.message = m;
    core_step(c, &event);
    return c->error;
}

/* Entries of a message: 'c' a command of term 1, '2' to '9' a change to so many servers. */
int core_append(struct core *c, uint64_t from, uint64_t term, uint64_t prev, const char *what,
                uint64_t commit)
{
    static uint8_t command[8];
    struct raft_entry entries[16] = {{0}}; /* the core alone reads beyond those of the message */
    struct raft_buffer bytes[16] = {{0}};
    unsigned n = (unsigned)strlen(what);
    uint64_t prev_term = prev == 0 ? 0 : prev <= c->last ? c->terms[prev] : term;
    for (unsigned i = 0; i < n; i++) {
        entries[i] = (struct raft_entry){.term = term, .type = RAFT_COMMAND};
        entries[i].buf = (struct raft_buffer){command, sizeof command};
        if (what[i] != 'c') {
            struct configuration conf = core_servers((unsigned)(what[i] - '0'));
            bytes[i] = configuration_to_raft_bytes(&conf);
            /* The library's bytes begin with a format and then have the number of servers. */
            assert_int_equal(((uint8_t *)bytes[i].base)[1], conf.n);
            entries[i].type = RAFT_CHANGE;
            entries[i].buf = bytes[i];
        }
    }
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    m.append_entries = (struct raft_append_entries){.term = term,
                                                    .prev_log_index = prev,
                                                    .prev_log_term = prev_term,
                                                    .leader_commit = commit,
                                                    .entries = entries,
                                                    .n_entries = n};
    int rv = core_receive(c, from, &m);
    for (unsigned i = 0; i < n; i++) {
        raft_free(bytes[i].base);
    }
    return rv;
}

void core_persist(struct core *c)
{
    struct raft_event event = {.type = RAFT_PERSISTED_ENTRIES};
    event.persisted_entries.index = c->last;
    c->sent_n = 0;
    core_step(c, &event);
    assert_int_equal(c->error, 0);
}

void core_timeout(struct core *c, uint64_t ms)
{
    struct raft_event event = {.type = RAFT_TIMEOUT};
    c->now_ms += ms;
    c->sent_n = 0;
    if (c->mode == WITH_EDGE) {
        c->edge.now_ms = c->now_ms;
        raft_edge_timeout(&c->edge);
    } else {
        core_step(c, &event);
    }
    assert_int_equal(c->error, 0);
}

int core_vote_result(struct core *c, uint64_t from, uint64_t term, bool granted, bool pre_vote)
{
    struct raft_message m = {.type = RAFT_REQUEST_VOTE_RESULT};
    m.request_vote_result.version = 2;
    m.request_vote_result.term = term;
    m.request_vote_result.vote_granted = granted;
    m.request_vote_result.pre_vote = pre_vote;
    return core_receive(c, from, &m);
}

int core_vote(struct core *c, uint64_t from, uint64_t candidate, uint64_t term, bool pre_vote)
{
    struct raft_message m = {.type = RAFT_REQUEST_VOTE};
    m.request_vote.version = 2;
    m.request_vote.term = term;
    m.request_vote.candidate_id = candidate;
    m.request_vote.last_log_index = c->last;
    m.request_vote.last_log_term = c->terms[c->last];
    m.request_vote.pre_vote = pre_vote;
    return core_receive(c, from, &m);
}

int core_result(struct core *c, uint64_t from, uint64_t rejected, uint64_t last)
{
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES_RESULT};
    m.append_entries_result.version = 2;
    m.append_entries_result.term = raft_current_term(&c->raft);
    m.append_entries_result.rejected = rejected;
    m.append_entries_result.last_log_index = last;
    return core_receive(c, from, &m);
}

void core_lead(struct core *c)
{
    core_timeout(c, 2 * ELECTION_MS);
    assert_int_equal(raft_state(&c->raft), RAFT_CANDIDATE);
    uint64_t term = raft_current_term(&c->raft) + 1;
    assert_int_equal(core_vote_result(c, 2, term, true, true), 0);
    assert_int_equal(core_vote_result(c, 2, term, true, false), 0);
    assert_int_equal(raft_state(&c->raft), RAFT_LEADER);
    assert_int_equal(raft_current_term(&c->raft), term);
    if (c->last > 1) {
        core_persist(c);
    }
}

static int submit(struct core *c, enum raft_entry_type type, struct raft_buffer buf)
{
    struct raft_entry entry = {
        .term = raft_current_term(&c->raft), .type = type, .buf = buf, .batch = raft_malloc(1)};
    struct raft_event event = {.type = RAFT_SUBMIT};
    event.submit.entries = &entry;
    event.submit.n = 1;
    c->sent_n = 0;
    core_step(c, &event);
    if (c->error != 0) {
        raft_free(entry.batch);
    }
    return c->error;
}

int core_submit(struct core *c)
{
    static uint8_t command[8];
    return submit(c, RAFT_COMMAND, (struct raft_buffer){command, sizeof command});
}

int core_submit_change(struct core *c, unsigned n)
{
    struct configuration conf = core_servers(n);
    struct raft_buffer bytes = configuration_to_raft_bytes(&conf);
    int rv = submit(c, RAFT_CHANGE, bytes);
    raft_free(bytes.base);
    return rv;
}

/* How many messages of this type are sent to it, in the last event. */
unsigned core_sent(const struct core *c, uint64_t to, enum raft_message_type type)
{
    unsigned n = 0;
    for (unsigned i = 0; i < c->sent_n; i++) {
        n += c->sent[i].server_id == to && c->sent[i].type == type;
    }
    return n;
}

/* The only one. */
const struct raft_message *core_message(const struct core *c, uint64_t to,
                                        enum raft_message_type type)
{
    assert_int_equal(core_sent(c, to, type), 1);
    unsigned i = 0;
    while (c->sent[i].server_id != to || c->sent[i].type != type) {
        i++;
    }
    return &c->sent[i];
}
