/* test_raft_guard.c: the guard between a raft and a backend that are both only played.
 * test_raft_uv.c has it between the real ones. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "consensus/raft_guard.h"

struct rig {
    struct raft raft;
    struct raft_io inner;
    struct raft_guard guard;
    int next_rv; /* what the backend answers */
    unsigned calls;
    raft_io_tick_cb tick;
    raft_io_recv_cb recv;
    raft_io_close_cb close_cb;
    struct raft_io_append *append;
    struct raft_io_snapshot_put *put;
    struct raft_io_snapshot_get *get;
    unsigned trailing;
    struct raft_message sent, received;
    unsigned sends;
    struct raft_io_send *send; /* the last one */
    raft_io_send_cb send_cb;
    raft_time now;
    bool stands, refuses; /* raft becomes a candidate when it ticks; refuses its vote */
    /* What raft saw. */
    unsigned ticks, messages, closes, gets, losses;
    int append_status, put_status;
    /* What the node was told. */
    unsigned fatals;
    char message[512];
};

static struct rig *rig_of(struct raft_io *inner)
{
    return FLI_CONTAINER_OF(inner, struct rig, inner);
}

static int called(struct raft_io *io)
{
    struct rig *r = rig_of(io);
    r->calls++;
    return r->next_rv;
}

static int fake_init(struct raft_io *io, raft_id id, const char *address)
{
    assert_ptr_equal(io->data, &rig_of(io)->raft);
    return called(io);
}
static void fake_close(struct raft_io *io, raft_io_close_cb cb)
{
    rig_of(io)->close_cb = cb;
}
static int fake_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                      raft_io_recv_cb recv)
{
    rig_of(io)->tick = tick;
    rig_of(io)->recv = recv;
    return called(io);
}
static int fake_set_term(struct raft_io *io, raft_term term)
{
    return called(io);
}
static int fake_set_vote(struct raft_io *io, raft_id id)
{
    return called(io);
}
static int fake_truncate(struct raft_io *io, raft_index index)
{
    return called(io);
}
static int fake_send(struct raft_io *io, struct raft_io_send *req,
                     const struct raft_message *message, raft_io_send_cb cb)
{
    rig_of(io)->sent = *message;
    rig_of(io)->sends++;
    rig_of(io)->send = req;
    rig_of(io)->send_cb = cb;
    return called(io);
}
static int fake_append(struct raft_io *io, struct raft_io_append *req,
                       const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    req->cb = cb;
    rig_of(io)->append = req;
    return called(io);
}
static int fake_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                    const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    req->cb = cb;
    rig_of(io)->put = req;
    rig_of(io)->trailing = trailing;
    return called(io);
}
static int fake_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                    raft_io_snapshot_get_cb cb)
{
    req->cb = cb;
    rig_of(io)->get = req;
    return called(io);
}
static raft_time fake_time(struct raft_io *io)
{
    return rig_of(io)->now;
}
static int fake_random(struct raft_io *io, int min, int max)
{
    return min;
}

static void on_fatal(void *ctx, int error, const char *message)
{
    struct rig *r = ctx;
    assert_int_equal(error, FL_EIO);
    r->fatals++;
    snprintf(r->message, sizeof r->message, "%s", message);
}

static struct rig *rig_of_outer(struct raft_io *outer)
{
    return FLI_CONTAINER_OF((struct raft *)outer->data, struct rig, raft);
}
static struct raft_io_send lost_send;
static void raft_send_lost(struct raft_io_send *req, int status)
{
    struct rig *r = req->data;
    assert_int_not_equal(status, 0);
    r->losses++;
}
/* As raft does when its election timer has run out: it asks for votes at once. */
static void raft_tick(struct raft_io *io)
{
    struct rig *r = rig_of_outer(io);
    struct raft_message m = {.type = RAFT_REQUEST_VOTE};
    m.request_vote.pre_vote = true;
    r->ticks++;
    if (r->stands) {
        r->raft.state = RAFT_CANDIDATE;
        lost_send.data = r;
        assert_int_equal(io->send(io, &lost_send, &m, raft_send_lost), 0);
    }
}
static void raft_recv(struct raft_io *io, struct raft_message *message)
{
    struct rig *r = rig_of_outer(io);
    r->received = *message;
    r->messages++;
    if (message->type == RAFT_REQUEST_VOTE && r->stands) {
        struct raft_message m = {.type = RAFT_REQUEST_VOTE_RESULT};
        m.request_vote_result.vote_granted = r->raft.state == RAFT_CANDIDATE && !r->refuses;
        assert_int_equal(io->send(io, &lost_send, &m, raft_send_lost), 0);
    }
}
static void raft_closed(struct raft_io *io)
{
    rig_of_outer(io)->closes++;
}
static void raft_append_done(struct raft_io_append *req, int status)
{
    struct rig *r = req->data;
    r->append_status = status;
}
static void raft_put_done(struct raft_io_snapshot_put *req, int status)
{
    struct rig *r = req->data;
    r->put_status = status;
}
static void raft_get_done(struct raft_io_snapshot_get *req, struct raft_snapshot *snapshot,
                          int status)
{
    struct rig *r = req->data;
    r->gets++;
}

/* Sends what it has loaded, as raft does. */
static void raft_get_done_sends(struct raft_io_snapshot_get *req, struct raft_snapshot *snapshot,
                                int status)
{
    struct rig *r = req->data;
    struct raft_io_send send = {.data = r};
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
    m.install_snapshot.last_index = snapshot->index;
    m.install_snapshot.last_term = 2;
    assert_int_equal(r->guard.outer.send(&r->guard.outer, &send, &m, NULL), 0);
}
static void raft_send_done(struct raft_io_send *req, int status)
{
    struct rig *r = req->data;
    assert_int_not_equal(status, 0);
    r->losses++;
}

static struct rig rig;

static int setup(void **state)
{
    struct rig *r = &rig;
    memset(r, 0, sizeof *r);
    r->inner = (struct raft_io){.version = 2,
                                .capacity = 7,
                                .init = fake_init,
                                .close = fake_close,
                                .start = fake_start,
                                .set_term = fake_set_term,
                                .set_vote = fake_set_vote,
                                .truncate = fake_truncate,
                                .send = fake_send,
                                .append = fake_append,
                                .snapshot_put = fake_put,
                                .snapshot_get = fake_get,
                                .time = fake_time,
                                .random = fake_random};
    raft_guard_init(&r->guard, &r->inner, on_fatal, r);
    /* As raft_init does. */
    r->raft.io = &r->guard.outer;
    r->guard.outer.data = &r->raft;
    r->now = 42;
    assert_int_equal(r->guard.outer.init(&r->guard.outer, 1, "1"), 0);
    assert_int_equal(r->guard.outer.start(&r->guard.outer, 100, raft_tick, raft_recv), 0);
    r->append_status = r->put_status = -1;
    *state = r;
    return 0;
}

/* A message that owns memory: the sanitizer tells when it leaks or is freed twice. */
static struct raft_message install_message(void)
{
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
    raft_configuration_init(&m.install_snapshot.conf);
    assert_int_equal(raft_configuration_add(&m.install_snapshot.conf, 1, "1", RAFT_VOTER), 0);
    m.install_snapshot.data.base = raft_malloc(16);
    m.install_snapshot.data.len = 16;
    return m;
}

static void free_message(struct raft_message *m)
{
    raft_configuration_close(&m->install_snapshot.conf);
    raft_free(m->install_snapshot.data.base);
}

static void holds_snapshots_off_while_one_is_written(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_snapshot_put put = {.data = r};
    struct raft_snapshot snapshot = {.index = 7};
    struct raft_message m = install_message();
    r->recv(&r->inner, &m);
    assert_int_equal(r->messages, 1);
    free_message(&m);

    for (unsigned trailing = 0; trailing < 2; trailing++) {
        unsigned before = r->messages;
        assert_int_equal(io->snapshot_put(io, trailing, &put, &snapshot, raft_put_done), 0);
        assert_int_equal(r->trailing, trailing);
        m = install_message();
        r->recv(&r->inner, &m); /* freed by the guard */
        assert_int_equal(r->messages, before);
        struct raft_message vote = {.type = RAFT_REQUEST_VOTE};
        r->recv(&r->inner, &vote);
        assert_int_equal(r->messages, before + 1);
        r->put->cb(r->put, 0);
        assert_int_equal(r->put_status, 0);
        m = install_message();
        r->recv(&r->inner, &m);
        assert_int_equal(r->messages, before + 2);
        free_message(&m);
    }
    struct raft_guard_stats stats;
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.snapshots_dropped, 2);
    assert_int_equal(stats.snapshots_installed, 1);
    assert_int_equal(stats.snapshots_put, 1);
    assert_int_equal(r->fatals, 0);
}

static void a_put_that_is_refused_holds_nothing_off(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_snapshot_put put = {.data = r};
    r->next_rv = RAFT_CANCELED;
    assert_int_equal(io->snapshot_put(io, 1, &put, NULL, raft_put_done), RAFT_CANCELED);
    struct raft_message m = install_message();
    r->recv(&r->inner, &m);
    assert_int_equal(r->messages, 1);
    free_message(&m);
    assert_int_equal(r->fatals, 0);
}

static void counts_what_is_written(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_append req = {.data = r};
    struct raft_guard_stats stats;
    assert_int_equal(io->append(io, &req, NULL, 3, raft_append_done), 0);
    assert_ptr_not_equal(r->append, &req);
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.entries, 0);
    r->append->cb(r->append, 0);
    assert_int_equal(r->append_status, 0);
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.appends, 1);
    assert_int_equal(stats.entries, 3);
    assert_true(stats.append_ns_sum == stats.append_ns_max);
    assert_int_equal(stats.append_waiting_ns, 0);
}

/* After a failure raft is deaf and dumb, and its disk is left alone. */
static void assert_silent(struct rig *r)
{
    struct raft_io *io = &r->guard.outer;
    struct raft_message m = install_message();
    struct raft_message entries = {.type = RAFT_APPEND_ENTRIES};
    struct raft_io_send send = {.data = r};
    struct raft_io_append append = {.data = r};
    struct raft_io_snapshot_put put = {.data = r};
    unsigned calls = r->calls;
    entries.append_entries.n_entries = 1;
    entries.append_entries.entries = raft_malloc(sizeof *entries.append_entries.entries);
    entries.append_entries.entries[0].batch = raft_malloc(8);
    r->next_rv = 0;
    r->messages = r->ticks = 0;
    r->recv(&r->inner, &m);
    r->recv(&r->inner, &entries);
    r->tick(&r->inner);
    assert_int_equal(r->messages, 0);
    assert_int_equal(r->ticks, 0);
    unsigned losses = r->losses;
    assert_int_equal(io->send(io, &send, &m, raft_send_done), 0);
    assert_int_equal(r->losses, losses + 1);
    /* An error would make raft free twice what it is writing: it is told of none. */
    assert_int_equal(io->set_term(io, 9), 0);
    assert_int_equal(io->set_vote(io, 9), 0);
    assert_int_equal(io->truncate(io, 9), 0);
    r->append_status = r->put_status = -1;
    assert_int_equal(io->append(io, &append, NULL, 1, raft_append_done), 0);
    assert_int_equal(io->snapshot_put(io, 1, &put, NULL, raft_put_done), 0);
    assert_int_equal(r->append_status, -1);
    assert_int_equal(r->put_status, -1);
    io->close(io, raft_closed);
    assert_int_equal(r->append_status, RAFT_CANCELED);
    assert_int_equal(r->put_status, RAFT_CANCELED);
    assert_int_equal(r->calls, calls);
    assert_int_equal(r->fatals, 1);
}

static void a_failed_write_of_entries_is_fatal(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_append first = {.data = r};
    struct raft_io_append second = {.data = r};
    assert_int_equal(io->append(io, &first, NULL, 1, raft_append_done), 0);
    struct raft_io_append *one = r->append;
    assert_int_equal(io->append(io, &second, NULL, 1, raft_append_done), 0);
    snprintf(r->inner.errmsg, sizeof r->inner.errmsg, "the disk is gone");
    one->cb(one, RAFT_IOERR);
    assert_int_equal(r->append_status, RAFT_IOERR);
    assert_int_equal(r->fatals, 1);
    assert_non_null(strstr(r->message, "log entries"));
    assert_non_null(strstr(r->message, "the disk is gone"));
    /* What succeeds behind a hole must not count. */
    r->append->cb(r->append, 0);
    assert_int_equal(r->append_status, RAFT_CANCELED);
    assert_silent(r);
}

static void a_cancelled_write_is_not_fatal(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_append req = {.data = r};
    struct raft_io_snapshot_put put = {.data = r};
    assert_int_equal(io->append(io, &req, NULL, 1, raft_append_done), 0);
    r->append->cb(r->append, RAFT_CANCELED);
    assert_int_equal(r->append_status, RAFT_CANCELED);
    assert_int_equal(io->snapshot_put(io, 1, &put, NULL, raft_put_done), 0);
    r->put->cb(r->put, RAFT_CANCELED);
    assert_int_equal(r->put_status, RAFT_CANCELED);
    assert_int_equal(r->fatals, 0);
}

static void a_failed_snapshot_is_fatal(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_snapshot_put put = {.data = r};
    assert_int_equal(io->snapshot_put(io, 1, &put, NULL, raft_put_done), 0);
    r->put->cb(r->put, RAFT_IOERR);
    assert_int_equal(r->put_status, RAFT_IOERR);
    assert_int_equal(r->fatals, 1);
    assert_silent(r);
}

static void refused_writes_are_fatal(void **state)
{
    struct raft_io_append append;
    struct raft_io_snapshot_put put;
    for (unsigned i = 0; i < 5; i++) {
        setup(state);
        struct rig *r = *state;
        struct raft_io *io = &r->guard.outer;
        append.data = put.data = r;
        r->next_rv = RAFT_IOERR;
        int rv = i == 0   ? io->set_term(io, 2)
                 : i == 1 ? io->set_vote(io, 2)
                 : i == 2 ? io->append(io, &append, NULL, 1, raft_append_done)
                 : i == 3 ? io->snapshot_put(io, 1, &put, NULL, raft_put_done)
                          : io->truncate(io, 2);
        assert_int_equal(rv, i == 2 || i == 3 ? RAFT_IOERR : 0);
        assert_int_equal(r->fatals, 1);
        assert_silent(r);
    }
}

static void a_snapshot_that_cannot_be_read_is_fatal_and_not_told(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_snapshot_get get = {.data = r};
    struct raft_snapshot loaded = {.index = 9, .term = 3};
    assert_int_equal(io->snapshot_get(io, &get, raft_get_done), 0);
    r->get->cb(r->get, &loaded, 0);
    assert_int_equal(r->gets, 1);
    assert_int_equal(io->snapshot_get(io, &get, raft_get_done), 0);
    r->get->cb(r->get, NULL, RAFT_IOERR);
    assert_int_equal(r->gets, 1);
    assert_int_equal(r->fatals, 1);
    assert_silent(r);
}

static void a_snapshot_goes_out_with_its_own_term(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_snapshot_get get = {.data = r};
    struct raft_snapshot loaded = {.index = 36, .term = 3};
    struct raft_guard_stats stats;
    assert_int_equal(io->snapshot_get(io, &get, raft_get_done_sends), 0);
    r->get->cb(r->get, &loaded, 0);
    assert_int_equal(r->sent.type, RAFT_INSTALL_SNAPSHOT);
    assert_int_equal(r->sent.install_snapshot.last_index, 36);
    assert_int_equal(r->sent.install_snapshot.last_term, 3);
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.snapshots_corrected, 1);
    /* One that was right is left alone. */
    loaded.term = 2;
    assert_int_equal(io->snapshot_get(io, &get, raft_get_done_sends), 0);
    r->get->cb(r->get, &loaded, 0);
    assert_int_equal(r->sent.install_snapshot.last_term, 2);
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.snapshots_corrected, 1);
}

static void late_votes_are_dropped(void **state)
{
    struct rig *r = *state;
    struct raft_message m = {.type = RAFT_REQUEST_VOTE_RESULT};
    const unsigned short states[] = {RAFT_FOLLOWER, RAFT_LEADER};
    struct raft_guard_stats stats;
    for (unsigned i = 0; i < 2; i++) {
        r->raft.state = states[i];
        r->recv(&r->inner, &m);
        assert_int_equal(r->messages, 0);
    }
    r->raft.state = RAFT_CANDIDATE;
    r->recv(&r->inner, &m);
    assert_int_equal(r->messages, 1);
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.votes_dropped, 2);
}

static void the_commit_index_never_goes_back(void **state)
{
    struct rig *r = *state;
    /* prev, entries, leader's commit, what raft is told; 74 is committed here. */
    static const unsigned rows[][4] = {
        {72, 0, 77, 0},  {72, 1, 77, 0},  {72, 2, 77, 77}, {74, 0, 77, 77},
        {72, 0, 74, 74}, {72, 0, 70, 70}, {80, 3, 77, 77},
    };
    struct raft_guard_stats stats;
    struct raft_entry entries[3] = {
        {.type = RAFT_COMMAND}, {.type = RAFT_COMMAND}, {.type = RAFT_BARRIER}};
    r->raft.commit_index = 74;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
        m.append_entries.prev_log_index = rows[i][0];
        m.append_entries.entries = entries;
        m.append_entries.n_entries = rows[i][1];
        m.append_entries.leader_commit = rows[i][2];
        r->recv(&r->inner, &m);
        assert_int_equal(r->received.append_entries.leader_commit, rows[i][3]);
        assert_int_equal(r->received.append_entries.n_entries, rows[i][1]);
    }
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.commits_corrected, 2);
}

/* A change that comes behind other entries: nothing may be committed along with it, since raft
 * notes its index wrongly for the moment. */
static void a_change_behind_others_is_not_committed_at_once(void **state)
{
    struct rig *r = *state;
    struct raft_entry entries[3] = {
        {.type = RAFT_COMMAND}, {.type = RAFT_CHANGE}, {.type = RAFT_COMMAND}};
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    m.append_entries.prev_log_index = 80;
    m.append_entries.entries = entries;
    m.append_entries.n_entries = 3;
    m.append_entries.leader_commit = 83;
    r->raft.commit_index = 80;
    r->recv(&r->inner, &m);
    assert_int_equal(r->received.append_entries.leader_commit, 0);
    /* The first one is noted as it should be. */
    m.append_entries.entries = entries + 1;
    m.append_entries.n_entries = 2;
    m.append_entries.leader_commit = 83;
    r->recv(&r->inner, &m);
    assert_int_equal(r->received.append_entries.leader_commit, 83);
}

/* The backend always draws min, as two nodes whose backends were seeded alike would. */
static void random_numbers_are_its_own(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    unsigned seen[3] = {0};
    for (unsigned i = 0; i < 300; i++) {
        int number = io->random(io, -1, 2);
        assert_in_range(number + 1, 0, 2);
        seen[number + 1]++;
    }
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[2] > 0);
    assert_int_equal(io->random(io, 7, 8), 7);
    assert_int_not_equal(io->random(io, 0, INT_MAX), io->random(io, 0, INT_MAX));
}

/* ---- elections ---- */

static void tick_at(struct rig *r, raft_time now, unsigned ticks)
{
    r->now = now;
    r->tick(&r->inner);
    assert_int_equal(r->ticks, ticks);
}

static void a_tick_after_a_pause_is_left_out(void **state)
{
    struct rig *r = *state;
    struct raft_guard_stats stats;
    tick_at(r, 1000, 1);
    tick_at(r, 9000, 2); /* no patience was set */
    raft_guard_set_patience(&r->guard, 400, 50);
    tick_at(r, 9300, 3);
    tick_at(r, 9601, 3);
    tick_at(r, 9651, 4);
    /* Not on a machine that is always late. */
    tick_at(r, 10651, 4);
    tick_at(r, 11651, 5);
    tick_at(r, 12651, 5);
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.ticks_dropped, 3);
    raft_guard_set_patience(&r->guard, 150, 50); /* the shortest for these heartbeats */
    tick_at(r, 12751, 6);
    tick_at(r, 12852, 6);
}

static void a_timer_is_made_to_run_out(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    raft_guard_set_patience(&r->guard, 400, 50);
    raft_set_election_timeout(&r->raft, 400);
    r->raft.state = RAFT_LEADER;
    assert_false(raft_guard_hurry(&r->guard));
    assert_int_equal(r->ticks, 0);
    r->raft.state = RAFT_FOLLOWER;
    assert_int_equal(io->time(io), 42);
    assert_false(raft_guard_hurry(&r->guard)); /* it has no vote */
    r->stands = true;
    assert_true(raft_guard_hurry(&r->guard));
    assert_int_equal(r->ticks, 2);
    assert_int_equal(r->sends, 1);
    /* What a millisecond of election time is at most, each time; and that time was given back. */
    assert_int_equal(io->time(io), 42 + 2 * 2);
    assert_int_equal(r->raft.election_timeout, 400);
    assert_in_range(r->raft.candidate_state.randomized_election_timeout, 400, 800);
}

/* A follower that heard node 2, its leader, at 1000. */
static void follow(struct rig *r)
{
    struct raft_message heartbeat = {.type = RAFT_APPEND_ENTRIES, .server_id = 2};
    raft_guard_set_patience(&r->guard, 400, 50);
    raft_set_election_timeout(&r->raft, 400);
    r->raft.state = RAFT_FOLLOWER;
    r->raft.follower_state.current_leader.id = 2;
    r->stands = true;
    r->now = 1000;
    r->recv(&r->inner, &heartbeat);
    assert_int_equal(raft_guard_silence_ms(&r->guard), 0);
}

static struct raft_message vote_request(raft_id from, bool pre_vote)
{
    struct raft_message m = {.type = RAFT_REQUEST_VOTE, .server_id = from};
    m.request_vote.pre_vote = pre_vote;
    return m;
}

static void a_silent_leader_is_given_up_for_a_candidate(void **state)
{
    struct rig *r = *state;
    struct raft_message m = vote_request(3, true);
    struct raft_guard_stats stats;
    follow(r);
    r->now = 1399;
    assert_int_equal(raft_guard_silence_ms(&r->guard), 399);
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.state, RAFT_FOLLOWER);
    assert_false(r->sent.request_vote_result.vote_granted);
    r->now = 1400;
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.state, RAFT_CANDIDATE);
    assert_int_equal(r->received.type, RAFT_REQUEST_VOTE);
    /* It asks for nothing itself. */
    assert_int_equal(r->ticks, 1);
    assert_int_equal(r->losses, 1);
    assert_int_equal(r->sends, 2);
    assert_int_equal(r->sent.type, RAFT_REQUEST_VOTE_RESULT);
    assert_true(r->sent.request_vote_result.vote_granted);
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.yields, 1);
}

static void a_leader_is_not_given_up_after_a_pause(void **state)
{
    struct rig *r = *state;
    struct raft_message m = vote_request(3, true);
    follow(r);
    r->stands = false;
    tick_at(r, 1050, 1);
    tick_at(r, 9000, 1);
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.state, RAFT_FOLLOWER);
    tick_at(r, 9050, 2);
    r->stands = true;
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.state, RAFT_CANDIDATE);
}

static void who_must_refuse_stands_himself(void **state)
{
    struct rig *r = *state;
    struct raft_message m = vote_request(3, true);
    follow(r);
    r->refuses = true;
    r->now = 1400;
    r->recv(&r->inner, &m);
    assert_int_equal(r->ticks, 2);
    assert_int_equal(r->losses, 1);
    assert_int_equal(r->sends, 2);
    assert_int_equal(r->sent.type, RAFT_REQUEST_VOTE);
}

static void a_leader_that_is_gone_is_given_up_sooner(void **state)
{
    struct rig *r = *state;
    struct raft_message m = vote_request(3, true);
    follow(r);
    raft_guard_set_gone(&r->guard, 4);
    r->now = 1399;
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.state, RAFT_FOLLOWER);
    raft_guard_set_gone(&r->guard, 2);
    r->now = 1074;
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.state, RAFT_FOLLOWER);
    r->now = 1075;
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.state, RAFT_CANDIDATE);
}

static void a_leader_is_given_up_for_nothing_else(void **state)
{
    struct rig *r = *state;
    struct raft_message vote = vote_request(3, false);
    struct raft_message of_the_leader = vote_request(2, true);
    struct raft_message heartbeat = {.type = RAFT_APPEND_ENTRIES, .server_id = 3};
    struct raft_message pre_vote = vote_request(3, true);
    follow(r);
    r->now = 9000;
    r->recv(&r->inner, &vote);
    r->recv(&r->inner, &of_the_leader);
    r->recv(&r->inner, &heartbeat); /* of a leader that was */
    assert_int_equal(raft_guard_silence_ms(&r->guard), 8000);
    assert_int_equal(r->ticks, 0);
    /* A leader that was not heard yet. */
    r->raft.follower_state.current_leader.id = 5;
    assert_int_equal(raft_guard_silence_ms(&r->guard), 0);
    r->recv(&r->inner, &pre_vote);
    r->raft.state = RAFT_LEADER;
    r->recv(&r->inner, &pre_vote);
    assert_int_equal(r->ticks, 0);
    assert_int_equal(r->messages, 6);
}

static void a_nudge_means_nothing(void **state)
{
    struct rig *r = *state;
    raft_guard_nudge(&r->guard, 3, "three");
    assert_int_equal(r->sent.type, RAFT_APPEND_ENTRIES_RESULT);
    assert_int_equal(r->sent.append_entries_result.term, 0);
    assert_int_equal(r->sent.server_id, 3);
    assert_string_equal(r->sent.server_address, "three");
    r->send_cb(r->send, RAFT_IOERR);
    r->next_rv = RAFT_NOMEM;
    raft_guard_nudge(&r->guard, 3, "three");
    unsigned calls = r->calls;
    r->guard.outer.close(&r->guard.outer, raft_closed);
    raft_guard_nudge(&r->guard, 3, "three");
    assert_false(raft_guard_hurry(&r->guard));
    assert_int_equal(r->calls, calls);
}

static void passes_the_rest_through(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_send send = {.data = r};
    struct raft_message m = {.type = RAFT_REQUEST_VOTE};
    assert_int_equal(io->time(io), 42);
    assert_int_equal(io->capacity, 7);
    r->inner.capacity = 9;
    assert_int_equal(io->time(io), 42);
    assert_int_equal(io->capacity, 9);
    r->tick(&r->inner);
    assert_int_equal(r->ticks, 1);
    assert_int_equal(io->send(io, &send, &m, NULL), 0);
    assert_int_equal(r->losses, 0);
    /* What cannot be sent is lost, and no more. */
    r->next_rv = RAFT_NOMEM;
    assert_int_equal(io->send(io, &send, &m, raft_send_done), 0);
    assert_int_equal(r->losses, 1);
    assert_int_equal(r->fatals, 0);

    io->close(io, raft_closed);
    unsigned calls = r->calls;
    r->next_rv = 0;
    assert_int_equal(io->send(io, &send, &m, raft_send_done), 0);
    assert_int_equal(r->losses, 2);
    assert_int_equal(r->calls, calls);
    r->close_cb(&r->inner);
    assert_int_equal(r->closes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(holds_snapshots_off_while_one_is_written, setup),
        cmocka_unit_test_setup(a_put_that_is_refused_holds_nothing_off, setup),
        cmocka_unit_test_setup(counts_what_is_written, setup),
        cmocka_unit_test_setup(a_failed_write_of_entries_is_fatal, setup),
        cmocka_unit_test_setup(a_cancelled_write_is_not_fatal, setup),
        cmocka_unit_test_setup(a_failed_snapshot_is_fatal, setup),
        cmocka_unit_test_setup(refused_writes_are_fatal, setup),
        cmocka_unit_test_setup(a_snapshot_that_cannot_be_read_is_fatal_and_not_told, setup),
        cmocka_unit_test_setup(a_snapshot_goes_out_with_its_own_term, setup),
        cmocka_unit_test_setup(late_votes_are_dropped, setup),
        cmocka_unit_test_setup(the_commit_index_never_goes_back, setup),
        cmocka_unit_test_setup(a_change_behind_others_is_not_committed_at_once, setup),
        cmocka_unit_test_setup(random_numbers_are_its_own, setup),
        cmocka_unit_test_setup(a_tick_after_a_pause_is_left_out, setup),
        cmocka_unit_test_setup(a_timer_is_made_to_run_out, setup),
        cmocka_unit_test_setup(a_silent_leader_is_given_up_for_a_candidate, setup),
        cmocka_unit_test_setup(a_leader_is_not_given_up_after_a_pause, setup),
        cmocka_unit_test_setup(who_must_refuse_stands_himself, setup),
        cmocka_unit_test_setup(a_leader_that_is_gone_is_given_up_sooner, setup),
        cmocka_unit_test_setup(a_leader_is_given_up_for_nothing_else, setup),
        cmocka_unit_test_setup(a_nudge_means_nothing, setup),
        cmocka_unit_test_setup(passes_the_rest_through, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
