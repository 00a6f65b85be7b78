/* test_reentrant.c: KEYS and KEY with COUNT: one hold with one token however often it is
 * taken, releases that are sent again, leases, limits, snapshots; at random, against a model. */
#include "as_user.h"

static struct machine_command one(unsigned op, const char *name, const char *owner, uint64_t ttl_ms)
{
    return (struct machine_command){.op = (uint8_t)op,
                                    .permits = 1,
                                    .n_names = 1,
                                    .name = fixture_slice(name),
                                    .owner = fixture_slice(owner),
                                    .ttl_ms = ttl_ms};
}

static struct machine_command enter(const char *name, const char *owner, uint64_t ttl_ms)
{
    struct machine_command c = one(MACHINE_OP_KEYS, name, owner, ttl_ms);
    c.flags = MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND;
    return c;
}

/* With a label that is kept for a second; NULL: without one. */
static struct machine_command leave(const char *name, const char *owner, const char *label)
{
    struct machine_command c = one(MACHINE_OP_KEYS, name, owner, 1000);
    c.flags = MACHINE_KEYS_COUNT | MACHINE_KEYS_RELEASE;
    if (label != NULL) {
        c.label = fixture_slice(label);
        c.number = 1000;
    }
    return c;
}

static struct machine_result run(struct fixture *k, struct machine_command c, unsigned code)
{
    struct machine_result r = fixture_run(k, c);
    assert_int_equal(r.code, code);
    machine_check(k->m);
    return r;
}

static unsigned holds(struct fixture *k, const char *name, const char *owner)
{
    struct machine_command q = one(MACHINE_OP_KEY, name, "", 0);
    q.flags = MACHINE_KEYS_COUNT;
    q.label = fixture_slice(owner);
    struct machine_result r = fixture_query(k, q);
    return r.code == MACHINE_DONE ? r.number : 0;
}

TEST_WITH(taken_twice_is_given_back_twice, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_result r = run(k, enter("L", "ann", 1000), MACHINE_GRANTED);
    assert_int_equal(r.token, 1);
    uint64_t begin_ms = k->clock_ms;
    fixture_tick(k, begin_ms + 300);
    r = run(k, enter("L", "ann", 1000), MACHINE_DONE);
    assert_int_equal(r.token, 1); /* one hold, one token */
    assert_int_equal(r.number, 2);
    assert_int_equal(r.deadline_ms, begin_ms + 1300);
    assert_int_equal(holds(k, "L", "ann"), 2);
    assert_int_equal(holds(k, "L", "bob"), 0);
    r = run(k, enter("L", "bob", 1000), MACHINE_HELD);
    assert_int_equal(r.deadline_ms, begin_ms + 1300); /* how long it may take */
    run(k, leave("L", "bob", NULL), MACHINE_HELD);
    r = run(k, leave("L", "ann", NULL), MACHINE_DONE);
    assert_int_equal(r.number, 0);
    assert_int_equal(holds(k, "L", "ann"), 1);
    fixture_forget_events(k);
    r = run(k, leave("L", "ann", NULL), MACHINE_DONE);
    assert_int_equal(r.number, 1);
    fixture_expect_events(k, "released:release L ann token=1\n");
    run(k, leave("L", "ann", NULL), MACHINE_NO);
    assert_int_equal(run(k, enter("L", "bob", 1000), MACHINE_GRANTED).token, 2);
}

TEST_WITH(once, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command c = enter("L", "ann", 1000);
    c.flags = MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT;
    run(k, c, MACHINE_GRANTED);
    struct machine_result r = run(k, c, MACHINE_HELD);
    assert_int_equal(r.number, 1);
    assert_int_equal(r.token, 1); /* its own */
    assert_int_equal(holds(k, "L", "ann"), 1);
    assert_int_equal(run(k, leave("L", "ann", NULL), MACHINE_DONE).number, 1);
}

TEST_WITH(a_release_that_is_sent_again, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    run(k, enter("L", "ann", 60000), MACHINE_GRANTED);
    run(k, enter("L", "ann", 60000), MACHINE_DONE);
    assert_int_equal(run(k, leave("L", "ann", "one"), MACHINE_DONE).number, 0);
    assert_int_equal(run(k, leave("L", "ann", "one"), MACHINE_DONE).number, 0);
    assert_int_equal(holds(k, "L", "ann"), 1);
    fixture_reload(k);
    assert_int_equal(run(k, leave("L", "ann", "one"), MACHINE_DONE).number, 0);
    assert_int_equal(run(k, leave("L", "ann", "two"), MACHINE_DONE).number, 1);
    run(k, enter("L", "bob", 60000), MACHINE_GRANTED);
    /* The repeated LEAVE gets its first answer, although bob has the lock now. */
    assert_int_equal(run(k, leave("L", "ann", "two"), MACHINE_DONE).number, 1);
    run(k, leave("M", "ann", "two"), MACHINE_NO); /* of another lock */
    assert_int_equal(holds(k, "L", "bob"), 1);
    fixture_tick(k, k->clock_ms + 1000);
    assert_int_equal(run(k, leave("L", "ann", "two"), MACHINE_DONE).number, 1);
    fixture_tick(k, k->clock_ms + 1);
    run(k, leave("L", "ann", "two"), MACHINE_HELD); /* forgotten */
    assert_int_equal(run(k, leave("L", "bob", "two"), MACHINE_DONE).number, 1);
}

TEST_WITH(expiry_takes_all, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    run(k, enter("L", "ann", 1000), MACHINE_GRANTED);
    run(k, enter("L", "ann", 1000), MACHINE_DONE);
    fixture_tick(k, k->clock_ms + 1001);
    assert_int_equal(holds(k, "L", "ann"), 0);
    run(k, leave("L", "ann", NULL), MACHINE_NO);
    struct machine_result r = run(k, enter("L", "ann", 1000), MACHINE_GRANTED);
    assert_int_equal(r.token, 2);
    assert_int_equal(holds(k, "L", "ann"), 1);
    assert_int_equal(run(k, leave("L", "ann", NULL), MACHINE_DONE).number, 1);
}

/* What KEYS and ACQUIRE do with it, and COUNT with theirs. */
TEST_WITH(beside_others, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command c = one(MACHINE_OP_KEYS, "L", "ann", 1000);
    run(k, enter("L", "ann", 1000), MACHINE_GRANTED);
    c.flags = MACHINE_KEYS_EXTEND;
    c.ttl_ms = 2000;
    assert_int_equal(run(k, c, MACHINE_DONE).deadline_ms, k->clock_ms + 2000);
    assert_int_equal(run(k, cmd_acquire("L", "ann", 1000), MACHINE_GRANTED).token, 1);
    assert_int_equal(holds(k, "L", "ann"), 1);
    run(k, cmd_acquire("L", "bob", 1000), MACHINE_HELD);
    run(k, cmd_wait("L", "bob", 1000, 5000), MACHINE_QUEUED);
    assert_int_equal(run(k, leave("L", "ann", NULL), MACHINE_DONE).number, 1); /* to bob */
    run(k, enter("L", "bob", 1000), MACHINE_HELD); /* it was not counted */
    run(k, leave("L", "bob", NULL), MACHINE_HELD);
    assert_int_equal(holds(k, "L", "bob"), 0);
    run(k, cmd_held(MACHINE_OP_RELEASE, "L", 2, 0), MACHINE_DONE);
    run(k, enter("L", "ann", 1000), MACHINE_GRANTED);
    run(k, enter("L", "ann", 1000), MACHINE_DONE);
    run(k, cmd_held(MACHINE_OP_RELEASE, "L", 3, 0), MACHINE_DONE); /* all of it */
    run(k, leave("L", "ann", NULL), MACHINE_NO);
    run(k, enter("L", "ann", 1000), MACHINE_GRANTED);
    run(k, cmd_name(MACHINE_OP_BREAK, "L"), MACHINE_DONE);
    run(k, leave("L", "ann", NULL), MACHINE_NO);
}

TEST_WITH(shown, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    run(k, enter("L", "ann", 1000), MACHINE_GRANTED);
    for (unsigned i = 2; i <= 12; i++) {
        run(k, enter("L", "ann", 1000), MACHINE_DONE);
    }
    fixture_reload(k);
    assert_int_equal(holds(k, "L", "ann"), 12);
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "L")).code, MACHINE_DONE);
    struct machine_page page = fixture_page(k);
    struct machine_lock_view view;
    assert_int_equal(machine_page_next_lock(&page, &view), 1);
    assert_int_equal(view.value.len, 2);
    assert_memory_equal(view.value.data, "12", 2);
}

TEST_WITH(limits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    k->check = false;
    assert_int_equal(fixture_run(k, enter("L", "ann", 1000)).code, MACHINE_GRANTED);
    for (unsigned i = 2; i <= MACHINE_HOLD_COUNT_MAX; i++) {
        fixture_start(k);
        fixture_add(k, enter("L", "ann", 1000));
        fixture_apply(k, NULL);
    }
    assert_int_equal(holds(k, "L", "ann"), MACHINE_HOLD_COUNT_MAX);
    assert_int_equal(fixture_run(k, enter("L", "ann", 1000)).code, MACHINE_LIMIT);
    assert_int_equal(fixture_run(k, leave("L", "ann", NULL)).number, 0);
    assert_int_equal(run(k, enter("L", "ann", 1000), MACHINE_DONE).number, MACHINE_HOLD_COUNT_MAX);
    fixture_run(k, cmd_name(MACHINE_OP_BREAK, "L"));
    char label[16];
    for (unsigned i = 0; i <= MACHINE_OUTCOMES_MAX; i++) {
        (void)snprintf(label, sizeof label, "%u", i);
        fixture_start(k);
        fixture_add(k, enter("L", "ann", 1000));
        fixture_add(k, leave("L", "ann", label));
        fixture_apply(k, NULL);
    }
    machine_check(k->m);
    run(k, leave("L", "ann", "0"), MACHINE_NO); /* one too many came after it */
    assert_int_equal(run(k, leave("L", "ann", "1"), MACHINE_DONE).number, 1);
    fixture_reload(k);
    assert_int_equal(run(k, leave("L", "ann", label), MACHINE_DONE).number, 1);
}

/* A user who releases its own lock again and again makes the machine forget its own releases. */
TEST_WITH(a_flood_of_another_user, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char label[16];
    set(k, "evil", "on nopass ~M +@acquire");
    uint64_t evil = login(k, "evil");
    run(k, enter("L", "ann", 60000), MACHINE_GRANTED);
    run(k, enter("L", "ann", 60000), MACHINE_DONE);
    assert_int_equal(run(k, leave("L", "ann", "once"), MACHINE_DONE).number, 0);
    k->check = false;
    for (unsigned i = 0; i <= MACHINE_OUTCOMES_MAX; i++) {
        (void)snprintf(label, sizeof label, "%u", i);
        fixture_start(k);
        fixture_add(k, by(enter("M", "eve", 60000), evil));
        fixture_add(k, by(leave("M", "eve", label), evil));
        fixture_apply(k, NULL);
    }
    fixture_reload(k);
    assert_int_equal(run(k, leave("L", "ann", "once"), MACHINE_DONE).number, 0);
    assert_int_equal(holds(k, "L", "ann"), 1);
    machine_check(k->m);
}

TEST(wrong_commands)
{
    struct machine_command c = enter("L", "ann", 1000);
    assert_int_equal(machine_command_check(&c), 0);
    c.permits = 2;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c = enter("L", "ann", FL_TTL_MAX_MS + 1);
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c = leave("L", "ann", "label");
    assert_int_equal(machine_command_check(&c), 0);
    c.number = MACHINE_LEAVE_KEEP_MS;
    assert_int_equal(machine_command_check(&c), 0);
    c.number++;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c.number = 0;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c = leave("L", "ann", NULL);
    c.number = 1;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c = one(MACHINE_OP_KEY, "L", "", 0);
    c.flags = MACHINE_KEYS_COUNT;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
}

/* ---- at random ------------------------------------------------------------------------------- */

#define OWNERS 3
#define LABELS 4

struct model {
    unsigned owner; /* 0: free */
    unsigned count;
    uint64_t end_ms;
    fl_token token, last_token;
    struct {
        bool there;
        unsigned released;
        uint64_t until_ms;
    } answered[LABELS];
};

static unsigned model_enter(struct model *o, unsigned owner, uint64_t now_ms, uint64_t ttl_ms)
{
    if (o->owner != 0 && o->owner != owner) {
        return MACHINE_HELD;
    }
    bool is_new = o->owner == 0;
    o->token = is_new ? ++o->last_token : o->token;
    o->count = is_new ? 1 : o->count + 1;
    o->owner = owner;
    o->end_ms = is_new || now_ms + ttl_ms > o->end_ms ? now_ms + ttl_ms : o->end_ms;
    return is_new ? MACHINE_GRANTED : MACHINE_DONE;
}

static unsigned model_leave(struct model *o, unsigned owner, unsigned label, uint64_t now_ms,
                            unsigned *ret)
{
    if (o->answered[label].there && o->answered[label].until_ms >= now_ms) {
        *ret = o->answered[label].released;
        return MACHINE_DONE;
    }
    if (o->owner != owner) {
        return o->owner == 0 ? MACHINE_NO : MACHINE_HELD;
    }
    *ret = --o->count == 0;
    o->owner = *ret ? 0 : o->owner;
    o->end_ms = o->end_ms < now_ms + 1000 ? now_ms + 1000 : o->end_ms;
    o->answered[label].there = true;
    o->answered[label].released = *ret;
    o->answered[label].until_ms = now_ms + 1000;
    return MACHINE_DONE;
}

TEST_WITH(as_the_model, fixture_setup, fixture_teardown)
{
    static const char *const owners[] = {"", "ann", "bob", "cyd"};
    static const char *const labels[] = {"p", "q", "r", "s"};
    struct fixture *k = *state;
    uint64_t rng = rng_seed();
    struct model o = {.owner = 0};
    for (uint64_t turn = 0; turn < fixture_rounds(4000); turn++) {
        unsigned owner = 1 + (unsigned)rng_below(&rng, OWNERS);
        unsigned label = (unsigned)rng_below(&rng, LABELS);
        unsigned number = 0;
        if (rng_below(&rng, 3) == 0) {
            fixture_tick(k, k->clock_ms + rng_below(&rng, 400));
            o.owner = o.end_ms < k->clock_ms ? 0 : o.owner;
        }
        if (rng_below(&rng, 50) == 0) {
            uint64_t hash = machine_hash(k->m);
            fixture_reload(k);
            assert_true(machine_hash(k->m) == hash);
        }
        if (rng_below(&rng, 2) == 0) {
            uint64_t ttl_ms = FL_TTL_MIN_MS + rng_below(&rng, 1500);
            unsigned want = model_enter(&o, owner, k->clock_ms, ttl_ms);
            struct machine_result r = run(k, enter("L", owners[owner], ttl_ms), want);
            assert_true(want == MACHINE_HELD || (r.token == o.token && r.number == o.count));
            assert_int_equal(r.deadline_ms, o.end_ms);
        } else {
            unsigned want = model_leave(&o, owner, label, k->clock_ms, &number);
            struct machine_result r = run(k, leave("L", owners[owner], labels[label]), want);
            assert_int_equal(r.number, number);
        }
        for (unsigned i = 1; i <= OWNERS; i++) {
            assert_int_equal(holds(k, "L", owners[i]), o.owner == i ? o.count : 0);
        }
        assert_int_equal(machine_last_token(k->m), o.last_token);
    }
}
