/* test_watching.c: what is counted of locks, which are followed, and when a node is ready. */
#include "../../lib/unit.h"

#include "server/lock_stats.h"
#include "server/readiness.h"

static struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

static struct machine_event event(enum machine_event_type type, const char *name, uint64_t clock_ms)
{
    return (struct machine_event){
        .type = (uint8_t)type, .name = text(name), .owner = text("owner"), .clock_ms = clock_ms};
}

TEST(a_wait_and_a_grant)
{
    struct lock_stats s;
    lock_stats_init(&s, true, (const uint64_t[2]){1, 2});
    struct machine_event e = event(MACHINE_EVENT_QUEUED, "a", 1000);
    e.wait = 7;
    lock_stats_event(&s, &e, true, 0);
    e = event(MACHINE_EVENT_GRANTED, "a", 1500);
    e.wait = 7;
    e.since_ms = 1000;
    e.token = 3;
    lock_stats_event(&s, &e, true, 40000);
    e = event(MACHINE_EVENT_EXPIRED, "a", 2500);
    e.since_ms = 1500;
    e.token = 3;
    e.reason = MACHINE_REASON_DEADLINE;
    lock_stats_event(&s, &e, true, 0);
    assert_int_equal(s.figures.grants, 1);
    assert_int_equal(s.figures.queued, 1);
    assert_int_equal(s.figures.wait.sum_us, 500000);
    assert_int_equal(s.figures.held.sum_us, 1000000);
    assert_int_equal(s.figures.hand_over.sum_us, 40);
    assert_int_equal(s.figures.ends[LOCK_EXPIRED], 1);
    const struct busiest_entry *top[1];
    assert_int_equal(busiest_top(&s.busiest, top, 1), 1);
    assert_int_equal(top[0]->weight, 500);

    struct history_event got[HISTORY_EVENTS];
    assert_int_equal(history_get(&s.history, text("a"), got), 3);
    assert_int_equal(got[0].what, HISTORY_QUEUED);
    assert_int_equal(got[1].what, HISTORY_GRANTED);
    assert_int_equal(got[1].token, 3);
    assert_int_equal(got[2].since_ms, 1500);
    lock_stats_fini(&s);
}

/* A follower counts nothing, so that the sum over the nodes is right; it knows the busiest. */
TEST(only_a_leader_counts)
{
    struct lock_stats s;
    lock_stats_init(&s, true, (const uint64_t[2]){1, 2});
    struct machine_event e = event(MACHINE_EVENT_GRANTED, "a", 1500);
    e.wait = 7;
    e.since_ms = 1000;
    lock_stats_event(&s, &e, false, 0);
    struct machine_command c = {.op = MACHINE_OP_RENEW, .name = text("a"), .token = 9};
    lock_stats_refused(&s, &c, &(struct machine_result){.clock_ms = 1}, false);
    assert_int_equal(s.figures.grants, 0);
    assert_int_equal(s.figures.refusals[REFUSED_STALE_RENEW], 0);
    assert_int_equal(s.busiest.total, 500);
    lock_stats_refused(&s, &c, &(struct machine_result){.clock_ms = 1}, true);
    assert_int_equal(s.figures.refusals[REFUSED_STALE_RENEW], 1);
    lock_stats_fini(&s);
}

TEST(quiet_locks_are_not_followed)
{
    struct history h;
    struct history_event got[HISTORY_EVENTS];
    history_init(&h, true, (const uint64_t[2]){1, 2});
    struct machine_event e = event(MACHINE_EVENT_GRANTED, "a", 1);
    history_event(&h, &e);
    assert_int_equal(history_get(&h, text("a"), got), 0);
    history_follow(&h, text("a"));
    history_event(&h, &e);
    assert_int_equal(history_get(&h, text("a"), got), 1);
    for (uint64_t i = 0; i < HISTORY_EVENTS; i++) { /* one more than there is room for */
        e.clock_ms = 2 + i;
        history_event(&h, &e);
    }
    assert_int_equal(history_get(&h, text("a"), got), HISTORY_EVENTS);
    assert_int_equal(got[0].clock_ms, 2);
    assert_int_equal(got[HISTORY_EVENTS - 1].clock_ms, 1 + HISTORY_EVENTS);
    /* As many others as there is room for push it out, and no more. */
    for (unsigned i = 0; i < HISTORY_LOCKS; i++) {
        char name[16];
        assert_int_equal(history_get(&h, text("a"), got), HISTORY_EVENTS);
        (void)snprintf(name, sizeof name, "b%u", i);
        e = event(MACHINE_EVENT_QUEUED, name, 5);
        history_event(&h, &e);
    }
    assert_int_equal(history_get(&h, text("a"), got), 0);
    assert_int_equal(h.n, HISTORY_LOCKS);
    history_clear(&h);
    assert_int_equal(history_get(&h, text("b1"), got), 0);
    history_fini(&h);
}

TEST(without_a_listener_nothing_is_kept)
{
    struct history h;
    struct history_event got[HISTORY_EVENTS];
    history_init(&h, false, (const uint64_t[2]){1, 2});
    struct machine_event e = event(MACHINE_EVENT_QUEUED, "a", 1);
    history_event(&h, &e);
    history_follow(&h, text("a"));
    assert_int_equal(history_get(&h, text("a"), got), 0);
    history_fini(&h);
}

struct scene {
    struct readiness r;
    struct node_status status;
    struct node_member members[3];
    struct readiness_facts facts;
    char said[2048];
};

static void scene_init(struct scene *s)
{
    memset(s, 0, sizeof *s);
    s->status = (struct node_status){.id = 2, .leader_id = 1, .role = NODE_FOLLOWER, .term = 4};
    for (unsigned i = 0; i < 3; i++) {
        s->members[i] = (struct node_member){.id = i + 1, .connected = i < 2, .self = i == 1};
    }
    s->facts = (struct readiness_facts){.now_ms = 1000,
                                        .hold_ms = 300,
                                        .formed = true,
                                        .status = &s->status,
                                        .members = s->members,
                                        .members_n = 3};
}

static bool look(struct scene *s)
{
    struct fli_buf b;
    fli_buf_init(&b, sizeof s->said - 1);
    bool ready = readiness_check(&s->r, &s->facts, &b);
    memset(s->said, 0, sizeof s->said);
    memcpy(s->said, b.data, b.len);
    fli_buf_fini(&b);
    assert_int_equal(ready, strstr(s->said, "[-]") == NULL);
    return ready;
}

TEST(ready_until_the_hold_time_is_over)
{
    struct scene s;
    scene_init(&s);
    assert_true(look(&s));
    assert_non_null(strstr(s.said, "[+] leader: node 1, term 4\n"));
    s.status.leader_id = 0;
    assert_true(look(&s));
    s.facts.now_ms += 300;
    assert_true(look(&s));
    s.facts.now_ms += 1;
    assert_false(look(&s));
    assert_non_null(strstr(s.said, "[-] leader: none known for 301 ms"));
    s.status.leader_id = 1;
    assert_true(look(&s));
    s.members[0].connected = false; /* it leads, but cannot be reached */
    assert_true(look(&s));
    s.facts.now_ms += 301;
    assert_false(look(&s));
    assert_non_null(strstr(s.said, "[-] leader: node 1 has not been reached for 301 ms"));
}

TEST(what_else_makes_it_unready)
{
    struct scene s;
    scene_init(&s);
    s.facts.formed = false;
    assert_false(look(&s));
    assert_non_null(strstr(s.said, "[-] cluster: nothing of its state is here yet"));
    s.status.founds = true;
    assert_false(look(&s));
    assert_non_null(strstr(s.said, "[-] cluster: not formed yet"));
    scene_init(&s);
    s.facts.stopping = true;
    assert_false(look(&s));
    scene_init(&s);
    s.status.log.waiting_for_segment = true; /* the others go on without a follower's disk */
    assert_true(look(&s));
    s.status.role = NODE_LEADER;
    s.status.leader_id = 2;
    assert_false(look(&s));
    assert_non_null(strstr(s.said, "[-] disk: "));
}
