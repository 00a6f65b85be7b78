/* test_forged.c: sends one server random messages that no correct server sends, in every state that
 * they bring it to. It may refuse them, believe them, or fail: it must not end the process, and its
 * log must be one that it can start from. One printed seed replays the run. */
#include "../../lib/unit.h"

#include "../../lib/rng.h"
#include "group.h"

#define ROUNDS 400u
#define MESSAGES 300u
#define BODY_ROOM 65536u

static uint64_t seed;
static struct message_body body;

static uint64_t below(uint64_t n)
{
    return rng_below(&seed, n);
}

/* A number near the server's own, where most cases differ; now and then an extreme one. */
static uint64_t number_near(uint64_t n)
{
    static const uint64_t EXTREMES[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 32};
    if (below(40) == 0) {
        return EXTREMES[below(5)];
    }
    uint64_t back = below(4);
    return (n > back ? n - back : 0) + below(3);
}

static void add_entries(uint64_t term, uint64_t prev_term, uint8_t *data)
{
    unsigned n = (unsigned)below(5);
    uint64_t now = prev_term;
    for (unsigned i = 0; i < n; i++) {
        struct configuration c = group.conf;
        struct fli_slice bytes = {data, 8};
        uint8_t kind = RAFT_BARRIER;
        now = below(2) == 0 ? term : now;
        if (below(5) == 0) {
            uint8_t *conf = data + 16 + i * CONFIGURATION_SIZE_MAX;
            (void)!configuration_remove(&c, 1 + below(4));
            struct configuration_server *learner = configuration_find(&c, 1 + below(4));
            if (learner != NULL) {
                learner->role = CONFIGURATION_LEARNER;
            }
            bytes = (struct fli_slice){conf, configuration_encode(&c, conf)};
            bytes.len -= below(20) == 0;
            kind = RAFT_CHANGE;
        } else if (below(30) == 0) {
            kind = RAFT_COMMAND; /* and no batch */
        }
        (void)!message_add_entry(&body, now, kind, bytes);
    }
}

static void make_message(struct replica *r, uint64_t from, uint8_t *data)
{
    struct raft_message m = {0};
    uint64_t term = number_near(replica_term(r));
    uint64_t last = number_near(replica_last_index(r));
    uint64_t last_term = number_near(replica_term(r) > 1 ? replica_term(r) - 1 : 1);
    /* A candidate gets its votes often, so that it leads. */
    unsigned kind = replica_role(r) == REPLICA_CANDIDATE && below(2) == 0 ? 1 : (unsigned)below(8);
    switch (kind) {
    case 0:
        m.type = RAFT_REQUEST_VOTE;
        m.request_vote = (struct raft_request_vote){.term = term,
                                                    .candidate_id = below(9) == 0 ? 3 : from,
                                                    .last_log_index = last,
                                                    .last_log_term = last_term,
                                                    .disrupt_leader = below(3) == 0,
                                                    .pre_vote = below(2) == 0};
        break;
    case 1:
        m.type = RAFT_REQUEST_VOTE_RESULT;
        m.request_vote_result.term = term;
        m.request_vote_result.vote_granted = below(3) != 0;
        m.request_vote_result.pre_vote = below(2) == 0;
        break;
    case 2:
    case 3:
        m.type = RAFT_APPEND_ENTRIES_RESULT;
        m.append_entries_result.term = term;
        m.append_entries_result.rejected = below(2) == 0 ? 0 : number_near(replica_last_index(r));
        m.append_entries_result.last_log_index = last;
        break;
    case 4:
        m.type = RAFT_TIMEOUT_NOW;
        m.timeout_now.term = term;
        m.timeout_now.last_log_index = last;
        m.timeout_now.last_log_term = last_term;
        break;
    default:
        m.type = RAFT_APPEND_ENTRIES;
        m.append_entries.term = term;
        m.append_entries.prev_log_index = last;
        m.append_entries.prev_log_term = last == 0 ? 0 : last_term;
        m.append_entries.leader_commit = number_near(replica_commit_index(r));
        break;
    }
    assert_int_equal(message_encode(&m, &body), 0);
    if (m.type == RAFT_APPEND_ENTRIES) {
        add_entries(term, last_term, data);
    }
}

static void forge(struct group *g, uint8_t *room)
{
    struct replica *r = g->servers[0].replica;
    static uint8_t data[16 + 5 * CONFIGURATION_SIZE_MAX];
    uint64_t from = 2 + below(3); /* 4 is nobody */
    size_t len = 0;
    make_message(r, from, data);
    for (unsigned i = 0; i < body.n; i++) {
        assert_true(len + body.parts[i].len <= BODY_ROOM);
        memcpy(room + len, body.parts[i].data, body.parts[i].len);
        len += body.parts[i].len;
    }
    if (below(50) == 0) {
        room[below(len)] ^= (uint8_t)(1u << below(8));
    }
    uint8_t *exact = fli_xmalloc(len);
    memcpy(exact, room, len);
    int rv = replica_receive(r, g->now_ms, from, body.type, (struct fli_slice){exact, len});
    assert_true(rv == 0 || rv == FL_EPROTO);
    free(exact);
}

static void something_else(struct group *g)
{
    struct replica *r = g->servers[0].replica;
    struct configuration c = g->conf;
    if (replica_configuration(r)->n == 0) {
        assert_int_equal(replica_begin(r, g->now_ms, &c), 0);
        return;
    }
    switch (below(9)) {
    case 0:
        (void)replica_campaign(r, g->now_ms);
        break;
    case 1:
        (void)!group_submit(g, 0);
        break;
    case 2:
        (void)!configuration_remove(&c, 2 + below(2));
        (void)!replica_change(r, g->now_ms, &c);
        break;
    case 3:
        (void)!replica_transfer(r, g->now_ms, 2 + below(2));
        break;
    case 4:
        (void)replica_has_caught_up(r, g->now_ms, 2 + below(2));
        break;
    case 5:
        g->servers[0].sends_snapshot[2] = below(2) == 0;
        break;
    case 6: {
        struct snapshot_meta meta;
        if (g->servers[0].fatals == 0 && replica_snapshot_meta(r, false, &meta) == 0) {
            group_snapshot(g, 0, meta.index - below(3 < meta.index ? 3 : meta.index));
        }
        break;
    }
    default:
        group_run(g, 1 + (unsigned)below(30));
        break;
    }
}

TEST(forged_messages_end_nothing)
{
    seed = rng_seed();
    uint8_t *room = fli_xmalloc(BODY_ROOM);
    unsigned fatals = 0;
    unsigned led = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct group *g = &group;
        group_init(g, 3);
        g->seed = round;
        g->founds = round % 2 == 1;
        group_up(g, 0);
        struct group_server *s = &g->servers[0];
        for (unsigned i = 0; i < MESSAGES && s->fatals == 0; i++) {
            forge(g, room);
            led += replica_role(s->replica) == REPLICA_LEADER;
            g->servers[0].disk_stuck = below(10) == 0;
            if (below(4) == 0) {
                something_else(g);
            }
            group_drop(g);
        }
        fatals += s->fatals;
        /* What it has on disk is a log. */
        s->disk_stuck = false;
        group_crash(g, 0, below(2) == 0 ? SIM_CRASH_POWER : SIM_CRASH_PROCESS);
        s->fatals = 0;
        group_up(g, 0);
        group_run(g, 5);
        group_fini(g);
    }
    free(room);
    print_message("%u rounds gave up, %u messages met a leader\n", fatals, led);
    assert_true(led > 100);
    assert_true(fatals < ROUNDS);
}
