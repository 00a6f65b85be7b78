/* test_keys.c: KEYS and KEY: locks as a Redis client sees them. Each outcome of each change,
 * several keys, their owners, the same locks through ACQUIRE, limits, tokens, rights. */
#include "as_user.h"

static struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

/* The keys are one letter each. Valid until the next call. */
static struct machine_command keys(unsigned flags, const char *letters, const char *owner,
                                   uint64_t ttl_ms)
{
    static uint8_t also[MACHINE_ALSO_SIZE];
    size_t len = 0;
    struct machine_command c = {.op = MACHINE_OP_KEYS,
                                .flags = (uint8_t)flags,
                                .permits = 1,
                                .n_names = 1,
                                .name = {(const uint8_t *)letters, 1},
                                .owner = text(owner),
                                .ttl_ms = ttl_ms};
    for (const char *p = letters + 1; *p != '\0'; p++) {
        len = machine_also_add(also, len, (struct fli_slice){(const uint8_t *)p, 1});
        c.n_names++;
    }
    c.also = (struct fli_slice){also, len};
    return c;
}

static struct machine_command key(const char *letters, const char *owner)
{
    struct machine_command c = keys(0, letters, "", 0);
    c.op = MACHINE_OP_KEY;
    c.label = text(owner);
    return c;
}

#define GRANT MACHINE_KEYS_GRANT
#define EXTEND MACHINE_KEYS_EXTEND
#define RELEASE MACHINE_KEYS_RELEASE
#define EACH MACHINE_KEYS_EACH
#define ADD MACHINE_KEYS_ADD
#define COUNT MACHINE_KEYS_COUNT

/* A release that is known again for a while. */
static struct machine_command again(unsigned flags, const char *letters, const char *owner)
{
    struct machine_command c = keys(flags, letters, owner, 0);
    c.number = MACHINE_RELEASED_MS;
    return c;
}

static struct machine_result run(struct fixture *k, struct machine_command c, unsigned code)
{
    struct machine_result r = fixture_run(k, c);
    assert_int_equal(r.code, code);
    machine_check(k->m);
    return r;
}

TEST_WITH(take_and_give_back, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_result r = run(k, keys(GRANT, "L", "a", 1000), MACHINE_GRANTED);
    assert_int_equal(r.token, 1);
    assert_int_equal(r.number, 1);
    assert_int_equal(r.deadline_ms, k->clock_ms + 1000);
    /* The owner that has the key already gets its token; another owner gets none. */
    assert_int_equal(run(k, keys(GRANT, "L", "a", 1000), MACHINE_HELD).token, 1);
    assert_int_equal(run(k, keys(GRANT, "L", "b", 1000), MACHINE_HELD).token, 0);
    run(k, keys(RELEASE, "L", "b", 0), MACHINE_HELD);
    r = run(k, keys(RELEASE, "L", "a", 0), MACHINE_DONE);
    assert_int_equal(r.number, 1);
    assert_int_equal(r.token, 1);
    run(k, keys(RELEASE, "L", "a", 0), MACHINE_NO);
    assert_int_equal(run(k, keys(GRANT, "L", "b", 1000), MACHINE_GRANTED).token, 2);
}

TEST_WITH(extend, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    run(k, keys(EXTEND, "L", "a", 1000), MACHINE_NO);
    assert_int_equal(run(k, keys(GRANT | EXTEND, "L", "a", 1000), MACHINE_GRANTED).token, 1);
    uint64_t begin_ms = k->clock_ms;
    fixture_tick(k, begin_ms + 400);
    struct machine_result r = run(k, keys(GRANT | EXTEND, "L", "a", 1000), MACHINE_DONE);
    assert_int_equal(r.token, 1); /* the token never changes under a holder */
    assert_int_equal(r.deadline_ms, begin_ms + 1400);
    run(k, keys(GRANT | EXTEND, "L", "b", 1000), MACHINE_HELD);
    r = run(k, keys(EXTEND, "L", "a", 10), MACHINE_DONE);
    assert_int_equal(r.deadline_ms, begin_ms + 1400); /* no lease is shortened */
    r = run(k, keys(EXTEND, "L", "a", 0), MACHINE_DONE);
    assert_int_equal(r.deadline_ms, begin_ms + 1400);
    r = run(k, keys(EXTEND | ADD, "L", "a", 500), MACHINE_DONE);
    assert_int_equal(r.deadline_ms, begin_ms + 1900);
    r = run(k, keys(EXTEND | ADD, "L", "a", FL_TTL_MAX_MS), MACHINE_DONE);
    assert_int_equal(r.deadline_ms, begin_ms + 400 + FL_TTL_MAX_MS);
}

TEST_WITH(expiry, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    run(k, keys(GRANT, "L", "a", 1000), MACHINE_GRANTED);
    fixture_tick(k, k->clock_ms + 1001);
    run(k, keys(RELEASE, "L", "a", 0), MACHINE_NO);
    run(k, keys(EXTEND, "L", "a", 1000), MACHINE_NO);
    /* An owner that was too late and takes the key again has another token. */
    assert_int_equal(run(k, keys(GRANT | EXTEND, "L", "a", 1000), MACHINE_GRANTED).token, 2);
}

TEST_WITH(several, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_result r = run(k, keys(GRANT, "ABC", "a", 1000), MACHINE_GRANTED);
    assert_int_equal(r.number, 3);
    assert_int_equal(r.token, 1); /* of the first; the others have 2 and 3 */
    assert_int_equal(machine_last_token(k->m), 3);
    run(k, keys(GRANT, "DA", "b", 1000), MACHINE_HELD); /* all or none */
    assert_int_equal(fixture_query(k, key("D", "")).code, MACHINE_NOTFOUND);
    run(k, keys(EXTEND, "ABD", "a", 1000), MACHINE_HELD);
    assert_int_equal(run(k, keys(EXTEND, "ABC", "a", 2000), MACHINE_DONE).number, 3);
    run(k, keys(RELEASE, "AD", "a", 0), MACHINE_HELD);
    assert_int_equal(run(k, keys(RELEASE | EACH, "ADB", "a", 0), MACHINE_DONE).number, 2);
    assert_int_equal(run(k, keys(RELEASE | EACH, "AB", "b", 0), MACHINE_NO).number, 0);
    assert_int_equal(fixture_query(k, key("C", "a")).token, 3);
    assert_int_equal(run(k, keys(RELEASE, "C", "a", 0), MACHINE_DONE).number, 1);
    assert_int_equal(run(k, keys(GRANT, "abcdefghijklmnop", "a", 1000), MACHINE_GRANTED).number,
                     MACHINE_NAMES_MAX);
    assert_int_equal(run(k, keys(RELEASE, "abcdefghijklmnop", "a", 0), MACHINE_DONE).number,
                     MACHINE_NAMES_MAX);
}

TEST_WITH(swap, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command c = keys(RELEASE, "L", "a", 1000);
    c.label = text("b");
    run(k, c, MACHINE_NO);
    c.flags |= GRANT;
    assert_int_equal(run(k, c, MACHINE_GRANTED).token, 1); /* to b */
    run(k, c, MACHINE_HELD);
    c.owner = text("b");
    c.label = text("c");
    assert_int_equal(run(k, c, MACHINE_GRANTED).token, 2);
    assert_int_equal(fixture_query(k, key("L", "c")).code, MACHINE_DONE);
    assert_int_equal(fixture_query(k, key("L", "b")).code, MACHINE_HELD);
    c.owner = text("c");
    c.label = text("d");
    c.flags = RELEASE;
    c.ttl_ms = 0; /* what is left of the old lease */
    uint64_t end_ms = k->clock_ms + 1000;
    fixture_tick(k, k->clock_ms + 300);
    assert_int_equal(run(k, c, MACHINE_GRANTED).deadline_ms, end_ms);
}

TEST_WITH(queries, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    run(k, keys(GRANT, "A", "ann", 1000), MACHINE_GRANTED);
    run(k, keys(GRANT, "B", "ann", 500), MACHINE_GRANTED);
    struct machine_result r = fixture_query(k, key("A", ""));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.deadline_ms, k->clock_ms + 1000);
    assert_int_equal(k->payload.len, 3);
    assert_memory_equal(k->payload.data, "ann", 3);
    r = fixture_query(k, key("AB", "ann"));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.deadline_ms, k->clock_ms + 500); /* the earliest */
    r = fixture_query(k, key("A", "bob"));
    assert_int_equal(r.code, MACHINE_HELD);
    assert_int_equal(r.token, 0);
    assert_int_equal(k->payload.len, 0);
    assert_int_equal(fixture_query(k, key("ABC", "ann")).code, MACHINE_HELD);
    assert_int_equal(fixture_query(k, key("ABC", "")).number, 2);
    assert_int_equal(fixture_query(k, key("CD", "")).code, MACHINE_NOTFOUND);
}

/* A lock taken through ACQUIRE excludes KEYS, and the other way round. */
TEST_WITH(beside_acquire, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    assert_int_equal(fixture_run(k, cmd_acquire("L", "ann", 1000)).code, MACHINE_GRANTED);
    run(k, keys(GRANT, "L", "bob", 1000), MACHINE_HELD);
    assert_int_equal(fixture_query(k, key("L", "")).code, MACHINE_DONE);
    /* A plain ACQUIRE makes the same kind of lease, so KEYS with its owner may release it. */
    run(k, keys(RELEASE, "L", "ann", 0), MACHINE_DONE);
    run(k, keys(GRANT, "L", "bob", 1000), MACHINE_GRANTED);
    assert_int_equal(fixture_run(k, cmd_wait("L", "ann", 1000, 5000)).code, MACHINE_QUEUED);
    fixture_forget_events(k);
    run(k, keys(RELEASE, "L", "bob", 0), MACHINE_DONE); /* grants the waiter */
    assert_int_equal(fixture_query(k, key("L", "ann")).code, MACHINE_DONE);
    /* A waiter is granted before a new value of the holder. */
    assert_int_equal(fixture_run(k, cmd_wait("L", "eve", 1000, 5000)).code, MACHINE_QUEUED);
    struct machine_command c = keys(RELEASE, "L", "ann", 1000);
    c.label = text("bob");
    run(k, c, MACHINE_HELD);
    assert_int_equal(fixture_query(k, key("L", "eve")).code, MACHINE_DONE);
}

/* A client that takes the nodes of one cluster for independent servers releases at each of them. */
TEST_WITH(released_at_each_node, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    run(k, keys(GRANT, "KL", "a", 60000), MACHINE_GRANTED);
    assert_int_equal(run(k, again(RELEASE, "KL", "a"), MACHINE_DONE).number, 2);
    fixture_reload(k); /* a node that starts from a snapshot answers alike */
    struct machine_result r = run(k, again(RELEASE, "KL", "a"), MACHINE_DONE);
    assert_int_equal(r.number, 2);
    run(k, keys(RELEASE, "KL", "a", 0), MACHINE_NO); /* without a number the answer is exact */
    run(k, keys(GRANT, "N", "a", 60000), MACHINE_GRANTED);
    run(k, keys(RELEASE, "N", "a", 0), MACHINE_DONE); /* and is not remembered */
    run(k, again(RELEASE, "N", "a"), MACHINE_NO);
    run(k, again(RELEASE, "KL", "b"), MACHINE_NO);
    run(k, again(RELEASE, "KM", "a"), MACHINE_NO); /* a never had M */
    assert_int_equal(run(k, again(RELEASE | EACH, "KM", "a"), MACHINE_DONE).number, 1);
    /* It releases no other owner's key, and the former owner may take its key again. */
    run(k, keys(GRANT, "L", "b", 60000), MACHINE_GRANTED);
    run(k, again(RELEASE, "L", "a"), MACHINE_DONE);
    run(k, keys(GRANT, "L", "a", 1000), MACHINE_HELD);
    run(k, again(RELEASE, "L", "b"), MACHINE_DONE);
    run(k, keys(GRANT, "L", "a", 1000), MACHINE_GRANTED);
    assert_int_equal(run(k, again(RELEASE | EACH, "KL", "a"), MACHINE_DONE).number, 2);
    fixture_tick(k, k->clock_ms + MACHINE_RELEASED_MS);
    run(k, again(RELEASE, "L", "a"), MACHINE_DONE);
    fixture_tick(k, k->clock_ms + 1);
    run(k, again(RELEASE, "L", "a"), MACHINE_NO);
    /* A lease that expired was released by nobody. */
    run(k, keys(GRANT, "L", "a", 1000), MACHINE_GRANTED);
    fixture_tick(k, k->clock_ms + 1001);
    run(k, again(RELEASE, "L", "a"), MACHINE_NO);
}

/* A user who releases keys again and again makes nobody else's releases unknown. */
TEST_WITH(a_flood_of_releases, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[16];
    set(k, "evil", "on nopass ~M +@acquire");
    uint64_t evil = login(k, "evil");
    run(k, keys(GRANT, "ABCDEFGH", "ann", 60000), MACHINE_GRANTED);
    run(k, again(RELEASE, "ABCDEFGH", "ann"), MACHINE_DONE);
    k->check = false;
    for (unsigned i = 0; i < 4 * MACHINE_OUTCOMES_MAX; i++) {
        (void)snprintf(owner, sizeof owner, "%u", i);
        fixture_start(k);
        fixture_add(k, by(keys(GRANT, "M", owner, 60000), evil));
        fixture_add(k, by(again(RELEASE, "M", owner), evil));
        fixture_apply(k, NULL);
    }
    machine_check(k->m);
    assert_int_equal(machine_last_token(k->m), 8 + 4 * MACHINE_OUTCOMES_MAX);
    run(k, again(RELEASE, "ABCDEFGH", "ann"), MACHINE_DONE);
}

static struct machine_command any(const char *letters, uint64_t ttl_ms)
{
    return keys(EACH | (ttl_ms > 0 ? EXTEND : RELEASE), letters, "", ttl_ms);
}

TEST_WITH(keys_of_any_owner, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    run(k, any("L", 0), MACHINE_NO);
    run(k, any("L", 1000), MACHINE_NO);
    run(k, keys(GRANT, "K", "a", 1000), MACHINE_GRANTED);
    run(k, keys(GRANT, "L", "b", 1000), MACHINE_GRANTED);
    uint64_t begin_ms = k->clock_ms;
    assert_int_equal(run(k, any("KLM", 2000), MACHINE_DONE).number, 2);
    assert_int_equal(run(k, keys(EXTEND, "K", "a", 0), MACHINE_DONE).deadline_ms, begin_ms + 2000);
    run(k, any("K", 10), MACHINE_DONE);
    assert_int_equal(run(k, keys(EXTEND, "K", "a", 0), MACHINE_DONE).deadline_ms, begin_ms + 2000);
    assert_int_equal(run(k, any("KLM", 0), MACHINE_DONE).number, 2);
    run(k, keys(RELEASE, "K", "a", 0), MACHINE_NO);
    assert_int_equal(run(k, keys(GRANT, "L", "c", 1000), MACHINE_GRANTED).token, 3);
    /* A lock that is not held as a key stays. */
    run(k,
        (struct machine_command){
            .op = MACHINE_OP_SESSION_OPEN, .owner = text("s"), .ttl_ms = 60000},
        MACHINE_DONE);
    run(k,
        (struct machine_command){.op = MACHINE_OP_ACQUIRE,
                                 .flags = MACHINE_ACQUIRE_EXPLICIT,
                                 .n_names = 1,
                                 .permits = 1,
                                 .name = text("S"),
                                 .owner = text("s")},
        MACHINE_GRANTED);
    run(k, any("S", 0), MACHINE_HELD);
    assert_int_equal(run(k, any("SL", 0), MACHINE_DONE).number, 1);
    run(k, keys(GRANT, "S", "a", 1000), MACHINE_HELD);
}

/* The first key, and up to 119 more with an owner each. Valid until the next call. */
static struct machine_command each(const char *const *pairs, unsigned n)
{
    static uint8_t bytes[MACHINE_COMMAND_LARGEST];
    struct machine_command c = keys(EXTEND | EACH, pairs[0], pairs[1], 5000);
    uint8_t *p = bytes;
    for (unsigned i = 2; i < 2 * n; i++) {
        *p++ = (uint8_t)strlen(pairs[i]);
        memcpy(p, pairs[i], strlen(pairs[i]));
        p += strlen(pairs[i]);
    }
    c.value = (struct fli_slice){bytes, (size_t)(p - bytes)};
    return c;
}

/* One command for many keys of many owners: all of it is done, or nothing. */
TEST_WITH(an_owner_for_each_key, fixture_setup, fixture_teardown)
{
    static const char *const pairs[] = {"A", "ann", "B", "bob", "C", "ann", "A", "ann", "D", "eve"};
    struct fixture *k = *state;
    run(k, keys(GRANT, "A", "ann", 1000), MACHINE_GRANTED);
    run(k, keys(GRANT, "B", "bob", 1000), MACHINE_GRANTED);
    run(k, keys(GRANT, "C", "bob", 1000), MACHINE_GRANTED);
    struct machine_result r = run(k, each(pairs, 5), MACHINE_DONE);
    assert_int_equal(r.each[0], 1u | 2u | 8u); /* C is another's, and D is free */
    assert_int_equal(r.each[1], 0);
    assert_int_equal(r.deadline_ms, k->clock_ms + 5000);
    assert_int_equal(fixture_query(k, key("B", "bob")).deadline_ms, k->clock_ms + 5000);
    assert_int_equal(fixture_query(k, key("C", "bob")).deadline_ms, k->clock_ms + 1000);
    assert_int_equal(run(k, each(pairs + 4, 1), MACHINE_HELD).each[0], 0);
    run(k, each(pairs + 8, 1), MACHINE_NO);
    /* A user without the right to one of them prolongs none. */
    set(k, "sue", "on nopass ~[EF] +@acquire");
    uint64_t sue = login(k, "sue");
    static const char *const mixed[] = {"E", "sue", "B", "sue"};
    assert_int_equal(fixture_run(k, by(keys(GRANT, "E", "sue", 1000), sue)).code, MACHINE_GRANTED);
    assert_int_equal(fixture_run(k, by(each(mixed, 2), sue)).code, MACHINE_NOPERM);
    assert_int_equal(fixture_query(k, key("E", "sue")).deadline_ms, k->clock_ms + 1000);
}

TEST_WITH(as_many_keys_as_there_may_be, fixture_setup, fixture_teardown)
{
    static char names[MACHINE_KEYS_MAX + 1][8];
    const char *pairs[2 * (MACHINE_KEYS_MAX + 1)];
    struct fixture *k = *state;
    for (unsigned i = 0; i <= MACHINE_KEYS_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i], "%c%u", 'a' + (char)(i % 26), i);
        pairs[2 * i] = pairs[2 * i + 1] = names[i];
    }
    pairs[0] = "a";
    run(k, keys(GRANT, "a", "a0", 1000), MACHINE_GRANTED);
    struct machine_command last = keys(GRANT, "x", names[MACHINE_KEYS_MAX - 1], 1000);
    last.name = last.owner;
    run(k, last, MACHINE_GRANTED);
    struct machine_command c = each(pairs, MACHINE_KEYS_MAX + 1);
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c = each(pairs, MACHINE_KEYS_MAX);
    assert_int_equal(machine_command_cost(&c), MACHINE_KEYS_COST);
    struct machine_result r = run(k, c, MACHINE_DONE);
    assert_int_equal(r.number, 2);
    assert_int_equal(r.each[0], 1);
    assert_int_equal(r.each[1], UINT64_C(1) << (MACHINE_KEYS_MAX - 1 - 64));
    c.value.len--;
    assert_int_equal(machine_command_check(&c), FL_EINVAL); /* half a key */
    c = each(pairs, 2);
    c.flags = RELEASE | EACH;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
}

TEST_WITH(limits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command l = {.op = MACHINE_OP_LIMITS, .limits = MACHINE_LIMITS_DEFAULT};
    l.limits.locks_max = 2;
    l.limits.sessions_max = 3;
    run(k, l, MACHINE_DONE);
    struct machine_result r = run(k, keys(GRANT, "ABC", "a", 1000), MACHINE_LIMIT);
    assert_int_equal(r.number, MACHINE_LIMIT_LOCKS);
    assert_int_equal(machine_last_token(k->m), 0);
    run(k, keys(GRANT, "AB", "a", 1000), MACHINE_GRANTED);
    run(k, keys(RELEASE, "AB", "a", 0), MACHINE_DONE);
    l.limits.locks_max = 9;
    l.limits.sessions_max = 1;
    run(k, l, MACHINE_DONE);
    r = run(k, keys(GRANT, "AB", "a", 1000), MACHINE_LIMIT);
    assert_int_equal(r.number, MACHINE_LIMIT_SESSIONS);
    run(k, keys(GRANT, "A", "a", 1000), MACHINE_GRANTED);
}

TEST(wrong_commands)
{
    struct machine_command bad[] = {
        keys(0, "A", "a", 1000),  /* nothing to do */
        keys(GRANT, "A", "a", 0), /* no TTL */
        keys(GRANT, "A", "a", FL_TTL_MAX_MS + 1),
        keys(GRANT, "A", "", 1000),
        keys(EXTEND | RELEASE, "A", "a", 1000),
        keys(RELEASE | ADD, "A", "a", 1000),
        keys(RELEASE | EACH | GRANT, "A", "a", 1000),
        keys(RELEASE | GRANT, "A", "a", 1000), /* to whom? */
        keys(RELEASE, "AB", "a", 1000),        /* to a new owner, below */
        keys(RELEASE, "A", "", 0),
        keys(COUNT, "A", "a", 1000),
        keys(COUNT | EXTEND, "A", "a", 1000),
        keys(COUNT | GRANT, "AB", "a", 1000),
        again(RELEASE | EACH, "A", ""),
        again(COUNT | RELEASE, "A", "a"), /* no label says which release it is */
        keys(GRANT, "AA", "a", 1000),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (bad[i].flags == RELEASE && bad[i].n_names == 2) {
            bad[i].label = text("b");
        }
        assert_int_equal(machine_command_check(&bad[i]), FL_EINVAL);
    }
    struct machine_command good = keys(GRANT, "A", "a", FL_TTL_MAX_MS);
    assert_int_equal(machine_command_check(&good), 0);
    good.ttl_ms = FL_TTL_MIN_MS;
    assert_int_equal(machine_command_check(&good), 0);
    good.permits = 2;
    assert_int_equal(machine_command_check(&good), FL_EINVAL);
}

/* ---- at random, against a model -------------------------------------------------------------- */

#define LETTERS 5u
#define OWNERS 4u

/* What each key has: an owner (0: none), a token, and when its lease is over. */
struct model {
    unsigned owner[LETTERS];
    uint64_t token[LETTERS], end_ms[LETTERS];
    uint64_t last_token;
};

static const char *const owner_names[OWNERS + 1] = {"", "ann", "bob", "eve", "kim"};

static void model_expire(struct model *o, uint64_t now_ms)
{
    for (unsigned i = 0; i < LETTERS; i++) {
        o->owner[i] = o->end_ms[i] < now_ms ? 0 : o->owner[i];
    }
}

static void model_take(struct model *o, unsigned i, unsigned owner, uint64_t end_ms)
{
    o->owner[i] = owner;
    o->token[i] = ++o->last_token;
    o->end_ms[i] = end_ms;
}

/* The code that the machine must answer; what it does is done to the model. */
static unsigned model_run(struct model *o, const struct machine_command *c, unsigned owner,
                          uint64_t now_ms, unsigned *ret_n)
{
    unsigned free = 0;
    unsigned own = 0;
    *ret_n = 0;
    struct fli_slice names[MACHINE_NAMES_MAX];
    unsigned n = machine_command_names(c, names);
    for (unsigned k = 0; k < n; k++) {
        unsigned i = (unsigned)(names[k].data[0] - 'A');
        free += o->owner[i] == 0;
        own += o->owner[i] == owner;
    }
    bool grants = free == n && (c->flags & GRANT) != 0;
    bool changes = own == n || (own > 0 && (c->flags & EACH) != 0);
    bool extends = changes && (c->flags & EXTEND) != 0;
    bool gives = changes && (c->flags & RELEASE) != 0;
    for (unsigned k = 0; k < n && (grants || extends || gives); k++) {
        unsigned i = (unsigned)(names[k].data[0] - 'A');
        uint64_t end_ms = now_ms + c->ttl_ms;
        if (grants) {
            model_take(o, i, owner, end_ms);
        } else if (o->owner[i] != owner) {
            continue;
        } else if (extends) {
            o->end_ms[i] = end_ms > o->end_ms[i] ? end_ms : o->end_ms[i];
        } else {
            o->owner[i] = 0;
        }
        ++*ret_n;
    }
    return grants                  ? MACHINE_GRANTED
           : extends || gives      ? MACHINE_DONE
           : free == n && own == 0 ? MACHINE_NO
                                   : MACHINE_HELD;
}

static void compare_with(struct fixture *k, const struct model *o)
{
    for (unsigned i = 0; i < LETTERS; i++) {
        const char name[2] = {(char)('A' + i), '\0'};
        for (unsigned w = 1; w <= OWNERS; w++) {
            struct machine_result r = fixture_query(k, key(name, owner_names[w]));
            unsigned want = o->owner[i] == 0   ? MACHINE_NOTFOUND
                            : o->owner[i] == w ? MACHINE_DONE
                                               : MACHINE_HELD;
            assert_int_equal(r.code, want);
            if (want == MACHINE_DONE) {
                assert_int_equal(r.token, o->token[i]);
                assert_int_equal(r.deadline_ms, o->end_ms[i]);
            }
        }
    }
}

static void letters_of(uint64_t *rng, char out[LETTERS + 1])
{
    unsigned n = 0;
    uint64_t chosen = 1 + rng_below(rng, (1u << LETTERS) - 1);
    for (unsigned i = 0; i < LETTERS; i++) {
        if ((chosen >> i & 1) != 0) {
            out[n++] = (char)('A' + i);
        }
    }
    out[n] = '\0';
}

TEST_WITH(as_the_model, fixture_setup, fixture_teardown)
{
    static const unsigned changes[] = {GRANT,   EXTEND,         GRANT | EXTEND,
                                       RELEASE, RELEASE | EACH, EXTEND | EACH};
    struct fixture *k = *state;
    uint64_t rng = rng_seed();
    struct model o = {.last_token = 0};
    for (uint64_t turn = 0; turn < fixture_rounds(4000); turn++) {
        char letters[LETTERS + 1];
        unsigned done = 0;
        unsigned owner = 1 + (unsigned)rng_below(&rng, OWNERS);
        letters_of(&rng, letters);
        if (rng_below(&rng, 3) == 0) {
            fixture_tick(k, k->clock_ms + rng_below(&rng, 60));
            model_expire(&o, k->clock_ms);
        }
        if (rng_below(&rng, 50) == 0) {
            fixture_reload(k);
        }
        struct machine_command c =
            keys(changes[rng_below(&rng, sizeof changes / sizeof changes[0])], letters,
                 owner_names[owner], FL_TTL_MIN_MS + rng_below(&rng, 200));
        unsigned want = model_run(&o, &c, owner, k->clock_ms, &done);
        struct machine_result r = run(k, c, want);
        assert_int_equal(r.number, done);
        assert_int_equal(machine_last_token(k->m), o.last_token);
        compare_with(k, &o);
    }
}

/* With other commands that take locks: the state is always sound, is the same after a snapshot, and
 * each grant has a token of its own. */
TEST_WITH(among_others, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint64_t rng = rng_seed();
    for (uint64_t turn = 0; turn < fixture_rounds(3000); turn++) {
        char letters[LETTERS + 1];
        char one[2] = {(char)('A' + rng_below(&rng, LETTERS)), '\0'};
        const char *owner = owner_names[1 + rng_below(&rng, OWNERS)];
        letters_of(&rng, letters);
        fl_token before = machine_last_token(k->m);
        struct machine_result r = {.code = 0};
        switch (rng_below(&rng, 8)) {
        case 0:
            r = fixture_run(k, cmd_acquire(one, owner, 10 + rng_below(&rng, 200)));
            break;
        case 1:
            r = fixture_run(k, cmd_wait(one, owner, 10 + rng_below(&rng, 200), 100));
            break;
        case 2:
            r = fixture_run(k,
                            cmd_held(MACHINE_OP_RELEASE, one, 1 + rng_below(&rng, before + 1), 0));
            break;
        case 3:
            fixture_tick(k, k->clock_ms + rng_below(&rng, 40));
            break;
        case 4: {
            struct machine_command c = keys(RELEASE | (unsigned)rng_below(&rng, 2), one, owner, 50);
            c.label = text("new");
            r = fixture_run(k, c);
            break;
        }
        case 5:
            r = fixture_run(k, keys(RELEASE | EACH, letters, owner, 0));
            break;
        default:
            r = fixture_run(k, keys(GRANT | EXTEND, letters, owner, 10 + rng_below(&rng, 200)));
            break;
        }
        assert_true(machine_last_token(k->m) >= before);
        assert_true(r.code != MACHINE_GRANTED || r.token > 0);
        machine_check(k->m);
        uint64_t hash = machine_hash(k->m);
        if (rng_below(&rng, 40) == 0) {
            fixture_reload(k);
            assert_true(machine_hash(k->m) == hash);
        }
    }
}
