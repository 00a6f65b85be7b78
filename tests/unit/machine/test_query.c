/* test_query.c: SHOW, CHECK, LOCKS, SESSION SHOW and LIST: contents, pages, bounds, hostile
 * payloads. The model test compares their contents over random runs. */
#include "fixture.h"

#include "machine/page.h"

static int setup(void **state)
{
    (void)fixture_setup(state);
    ((struct fixture *)*state)->check = false;
    return 0;
}

static bool is(struct fli_slice s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

TEST_WITH(test_check, setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 500));
    struct machine_result r = fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", 1, 0));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 1);
    assert_int_equal(r.deadline_ms, 1500);
    assert_int_equal(k->payload.len, 0);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", 2, 0)).code, MACHINE_NO);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "M", 1, 0)).code, MACHINE_NO);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0));
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", 1, 0)).code, MACHINE_NO);
}

TEST_WITH(test_show, setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 500, 30, "build 7"));
    struct machine_command c = cmd_acquire_x("L", "ann");
    c.value = fixture_slice("host-3");
    fixture_run(k, c);
    fixture_tick(k, 1100);
    fixture_run(k, cmd_wait("L", "bob", 70, 500));
    fixture_run(k, cmd_open("cid", 600, 0, ""));
    fixture_run(k, cmd_wait_x("L", "cid", 500));
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "L")).code, MACHINE_DONE);
    struct machine_page p = fixture_page(k);
    struct machine_lock_view v;
    struct machine_session_view s;
    assert_false(p.more);
    assert_int_equal(p.count, 3);
    assert_int_equal(machine_page_next_lock(&p, &v), 1);
    assert_int_equal(v.state, MACHINE_LOCK_HELD);
    assert_true(v.session_explicit && is(v.name, "L") && is(v.owner, "ann"));
    assert_true(is(v.label, "build 7") && is(v.value, "host-3"));
    assert_int_equal(v.token, 1);
    assert_int_equal(v.since_ms, 1000);
    assert_int_equal(v.ttl_left_ms, 400);
    assert_int_equal(v.waiters, 2);
    assert_int_equal(machine_page_next_session(&p, &s), 1);
    assert_true(!s.session_explicit && is(s.owner, "bob") && is(s.lock, "L"));
    assert_int_equal(s.ttl_ms, 70);
    assert_int_equal(s.ttl_left_ms, 0);
    assert_int_equal(s.waits, 1);
    assert_int_equal(machine_page_next_session(&p, &s), 1);
    assert_true(s.session_explicit && is(s.owner, "cid") && s.lock.len == 0);
    assert_int_equal(s.ttl_left_ms, 600);
    assert_int_equal(machine_page_next_session(&p, &s), 0);
    assert_int_equal(machine_page_next_session(&p, &s), 0);
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "M")).code, MACHINE_NOTFOUND);
    assert_int_equal(k->payload.len, 0);
}

TEST_WITH(test_not_a_query, setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_result r;
    struct machine_command c = cmd_name(MACHINE_OP_BREAK, "L");
    assert_int_equal(machine_query(k->m, &c, 0, &r, &k->payload), FL_EINVAL);
    c = cmd_name(MACHINE_OP_LOCKS, "what");
    assert_int_equal(machine_query(k->m, &c, 0, &r, &k->payload), FL_EINVAL);
    assert_int_equal(k->payload.len, 0);
}

/* n locks called l0, l1..., token i + 1. */
static void hold(struct fixture *k, unsigned n)
{
    char name[16];
    for (unsigned i = 0; i < n;) {
        fixture_start(k);
        for (unsigned to = i + 1000; i < n && i < to; i++) {
            snprintf(name, sizeof name, "l%u", i);
            fixture_add(k, cmd_acquire(name, "o", FL_TTL_MAX_MS));
        }
        fixture_apply(k, NULL);
    }
}

struct reading {
    char cursor[32];
    unsigned locks, pages;
    uint64_t last_token;
};

/* Reads one page; true when there is another. */
static bool read_page(struct fixture *k, struct machine_command q, struct reading *r)
{
    q.name = fixture_slice(r->cursor);
    assert_int_equal(fixture_query(k, q).code, MACHINE_DONE);
    struct machine_page p = fixture_page(k);
    snprintf(r->cursor, sizeof r->cursor, "%.*s", (int)p.cursor.len, (const char *)p.cursor.data);
    struct machine_lock_view v;
    while (machine_page_next_lock(&p, &v) == 1) {
        assert_true(v.token > r->last_token);
        r->last_token = v.token;
        r->locks++;
    }
    r->pages++;
    return p.more;
}

TEST_WITH(test_pages, setup, fixture_teardown)
{
    struct fixture *k = *state;
    hold(k, 2500);
    struct machine_command q = {.op = MACHINE_OP_LOCKS};
    struct reading r = {.locks = 0};
    assert_true(read_page(k, q, &r));
    assert_int_equal(r.locks, MACHINE_PAGE_COUNT_DEFAULT);
    r = (struct reading){.locks = 0};
    q.number = MACHINE_PAGE_COUNT_MAX;
    assert_true(read_page(k, q, &r));
    assert_int_equal(r.locks, MACHINE_PAGE_COUNT_MAX);
    r = (struct reading){.locks = 0};
    q.number = MACHINE_PAGE_COUNT_MAX + 1; /* taken for the largest */
    assert_true(read_page(k, q, &r));
    assert_int_equal(r.locks, MACHINE_PAGE_COUNT_MAX);
    while (read_page(k, q, &r)) {
    }
    assert_int_equal(r.locks, 2500);
    assert_int_equal(r.pages, 3);
    r = (struct reading){.cursor = "0"};
    q.number = 1;
    assert_true(read_page(k, q, &r));
    assert_int_equal(r.last_token, 1);
}

/* Whatever comes and goes between the pages, what is there all the time is given exactly once. */
TEST_WITH(test_pages_while_things_change, setup, fixture_teardown)
{
    struct fixture *k = *state;
    hold(k, 3000);
    struct machine_command q = {.op = MACHINE_OP_LOCKS, .number = 10};
    struct reading r = {.locks = 0};
    char name[16];
    bool more = true;
    while (more) {
        more = read_page(k, q, &r);
        /* The very lock the cursor points at goes away, and some more. */
        for (uint64_t token = r.last_token; token < r.last_token + 3 && token <= 3000; token++) {
            snprintf(name, sizeof name, "l%u", (unsigned)(token - 1));
            fixture_run(k, cmd_held(MACHINE_OP_RELEASE, name, token, 0));
        }
        fixture_reload(k); /* another node goes on */
    }
    assert_true(r.locks >= 2000 && r.locks < 2600);
    assert_true(r.last_token > 2990);
}

TEST_WITH(test_match, setup, fixture_teardown)
{
    struct fixture *k = *state;
    hold(k, 1200);
    struct machine_command q = {
        .op = MACHINE_OP_LOCKS, .number = 1000, .value = fixture_slice("l*[13]7")};
    struct reading r = {.locks = 0};
    assert_false(read_page(k, q, &r));
    assert_int_equal(r.locks, 24);
    q.value = fixture_slice("nothing*");
    r = (struct reading){.locks = 0};
    assert_false(read_page(k, q, &r));
    assert_int_equal(r.locks, 0);
}

/* A page looks at a bounded number of locks, even if none matches. */
TEST_WITH(test_look_at_the_limit, setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command q = {.op = MACHINE_OP_LOCKS, .value = fixture_slice("x")};
    struct reading r = {.locks = 0};
    hold(k, MACHINE_PAGE_SCAN_MAX);
    assert_false(read_page(k, q, &r));
    hold(k, MACHINE_PAGE_SCAN_MAX + 1);
    r = (struct reading){.locks = 0};
    assert_true(read_page(k, q, &r));
    assert_string_equal(r.cursor, "h160000"); /* token and place among parts of a multi-lock */
    assert_false(read_page(k, q, &r));
}

/* A pattern that is slow to match makes pages short, not the machine slow. */
TEST_WITH(test_match_is_bounded, setup, fixture_teardown)
{
    struct fixture *k = *state;
    char name[FL_NAME_MAX];
    char pattern[512];
    memset(name, 'a', sizeof name);
    for (unsigned i = 0; i < 2000; i++) {
        snprintf(name, 5, "%04u", i);
        name[4] = 'a';
        struct machine_command c = cmd_acquire("x", "o", FL_TTL_MAX_MS);
        c.name = (struct fli_slice){(const uint8_t *)name, sizeof name};
        fixture_run(k, c);
    }
    for (unsigned i = 0; i < sizeof pattern; i++) {
        pattern[i] = i < 200 && i % 100 == 0 ? '*' : 'a';
    }
    pattern[sizeof pattern - 400] = 'b';
    struct machine_command q = {.op = MACHINE_OP_LOCKS};
    q.value = (struct fli_slice){(const uint8_t *)pattern, sizeof pattern};
    struct reading r = {.locks = 0};
    while (read_page(k, q, &r)) {
    }
    assert_true(r.pages > 1);
}

static char big_value[FL_VALUE_MAX];

/* Holds the lock whose name and owner are `i` in 255 digits. */
static void hold_big(struct fixture *k, unsigned i, size_t value_len)
{
    char name[FL_NAME_MAX + 1];
    snprintf(name, sizeof name, "%0*u", (int)FL_NAME_MAX, i);
    struct machine_command c = cmd_acquire(name, name, FL_TTL_MAX_MS);
    c.value = (struct fli_slice){(const uint8_t *)big_value, value_len};
    assert_int_equal(fixture_run(k, c).code, MACHINE_GRANTED);
}

/* 64 KiB hold fewer than a thousand of the largest records; none is lost or cut. */
TEST_WITH(test_page_size, setup, fixture_teardown)
{
    struct fixture *k = *state;
    for (unsigned i = 0; i < 200; i++) {
        hold_big(k, i, sizeof big_value);
    }
    struct machine_command q = {.op = MACHINE_OP_LOCKS, .number = 1000};
    struct reading r = {.locks = 0};
    while (read_page(k, q, &r)) {
        assert_true(k->payload.len > MACHINE_PAGE_SIZE_MAX - 2000);
    }
    assert_int_equal(r.locks, 200);
    assert_int_equal(r.pages, 5);
}

/* A page filled to its last byte, and one byte more. */
TEST_WITH(test_page_size_at_the_limit, setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command q = {.op = MACHINE_OP_LOCKS, .number = 1000};
    struct reading r = {.locks = 0};
    const size_t less = 600; /* leaves room for one more record that is not the largest */
    for (unsigned i = 0; i < 41; i++) {
        hold_big(k, i, sizeof big_value - (i == 0 ? less : 0));
    }
    assert_false(read_page(k, q, &r));
    /* Page header 12, room for the longest cursor 21, then the records. */
    size_t record = (k->payload.len + less - 12) / 41;
    size_t room = MACHINE_PAGE_SIZE_MAX - (k->payload.len + 21);
    assert_true(room > record - sizeof big_value && room < record);
    size_t value_len = room - (record - sizeof big_value);
    hold_big(k, 41, value_len);
    assert_false(read_page(k, q, &(struct reading){.locks = 0}));
    assert_int_equal(k->payload.len, MACHINE_PAGE_SIZE_MAX - 21);
    struct machine_command c = cmd_held(MACHINE_OP_RELEASE, "x", 42, 0);
    char name[FL_NAME_MAX + 1];
    snprintf(name, sizeof name, "%0*u", (int)FL_NAME_MAX, 41u);
    c.name = fixture_slice(name);
    assert_int_equal(fixture_run(k, c).code, MACHINE_DONE);
    hold_big(k, 41, value_len + 1);
    r = (struct reading){.locks = 0};
    assert_true(read_page(k, q, &r));
    assert_int_equal(r.locks, 41);
    assert_false(read_page(k, q, &r));
    assert_int_equal(r.locks, 42);
}

TEST_WITH(test_show_long_queue, setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[16];
    fixture_run(k, cmd_acquire("L", "o", FL_TTL_MAX_MS));
    for (unsigned i = 0; i < 2000; i++) {
        snprintf(owner, sizeof owner, "w%u", i);
        fixture_run(k, cmd_wait("L", owner, 500, 50000));
    }
    fixture_query(k, cmd_name(MACHINE_OP_SHOW, "L"));
    struct machine_page p = fixture_page(k);
    struct machine_lock_view v;
    assert_true(p.more);
    assert_int_equal(p.count, MACHINE_PAGE_COUNT_MAX);
    assert_int_equal(machine_page_next_lock(&p, &v), 1);
    assert_int_equal(v.waiters, 2000);
}

TEST_WITH(test_sessions, setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[16];
    for (unsigned i = 0; i < 250; i++) {
        snprintf(owner, sizeof owner, "s%u", i);
        fixture_run(k, cmd_open(owner, 5000, 7, "x"));
    }
    fixture_run(k, cmd_acquire("L", "implicit", 500)); /* is not listed */
    char cursor[32] = "";
    unsigned n = 0;
    for (bool more = true; more;) {
        struct machine_command q = cmd_owner(MACHINE_OP_SESSION_LIST, cursor);
        assert_int_equal(fixture_query(k, q).code, MACHINE_DONE);
        struct machine_page p = fixture_page(k);
        more = p.more;
        snprintf(cursor, sizeof cursor, "%.*s", (int)p.cursor.len, (const char *)p.cursor.data);
        struct machine_session_view v;
        while (machine_page_next_session(&p, &v) == 1) {
            snprintf(owner, sizeof owner, "s%u", n++);
            assert_true(is(v.owner, owner) && is(v.label, "x"));
            assert_int_equal(v.lockdelay_ms, 7);
        }
    }
    assert_int_equal(n, 250);
    assert_int_equal(fixture_query(k, cmd_owner(MACHINE_OP_SESSION_SHOW, "s3")).code, MACHINE_DONE);
    assert_int_equal(fixture_query(k, cmd_owner(MACHINE_OP_SESSION_SHOW, "implicit")).code,
                     MACHINE_NOTFOUND);
}

/* No room in the caller's buffer: an error, and nothing half written. */
TEST_WITH(test_payload_ceiling, setup, fixture_teardown)
{
    struct fixture *k = *state;
    hold(k, 100);
    struct machine_command q = {.op = MACHINE_OP_LOCKS};
    struct machine_result r;
    struct fli_buf tight;
    for (size_t max = 0; max < 3000; max += 99) {
        fli_buf_init(&tight, max + 3);
        assert_int_equal(fli_buf_append(&tight, "abc", 3), 0);
        assert_int_equal(machine_query(k->m, &q, 0, &r, &tight), FL_ELIMIT);
        assert_int_equal(tight.len, 3);
        fli_buf_fini(&tight);
    }
    /* Behind what is there already. */
    fli_buf_init(&tight, SIZE_MAX);
    assert_int_equal(fli_buf_append(&tight, "abc", 3), 0);
    assert_int_equal(machine_query(k->m, &q, 0, &r, &tight), 0);
    struct machine_page p;
    assert_int_equal(machine_page_open(tight.data + 3, tight.len - 3, &p), 0);
    assert_int_equal(p.count, 100);
    fli_buf_fini(&tight);
}

/* Reads whatever it is to the end, as locks and as sessions; returns the number of records. */
static unsigned read_anything(const uint8_t *data, size_t len, bool sessions_first)
{
    struct machine_page p;
    if (machine_page_open(data, len, &p) != 0) {
        return 0;
    }
    unsigned n = 0;
    for (unsigned tries = 0; tries < 5000; tries++) {
        struct machine_lock_view v;
        struct machine_session_view s;
        int rc = (tries % 2 == 0) == sessions_first ? machine_page_next_session(&p, &s)
                                                    : machine_page_next_lock(&p, &v);
        assert_true(rc == 0 || rc == 1 || rc == FL_ECORRUPT);
        if (rc != 1) {
            assert_int_equal(machine_page_next_lock(&p, &v), rc); /* the end stays the end */
            break;
        }
        n++;
    }
    return n;
}

TEST_WITH(test_damaged_payloads, setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint64_t rng = rng_seed();
    hold(k, 5);
    fixture_run(k, cmd_open("ann", 5000, 0, "label"));
    fixture_run(k, cmd_wait_x("l1", "ann", 5000));
    fixture_run(k, cmd_wait("l1", "bob", 500, 5000));
    const struct machine_command queries[] = {
        cmd_name(MACHINE_OP_SHOW, "l1"),
        {.op = MACHINE_OP_LOCKS, .number = 3},
        {.op = MACHINE_OP_SESSION_LIST},
    };
    for (unsigned i = 0; i < 3; i++) {
        fixture_query(k, queries[i]);
        size_t len = k->payload.len;
        for (size_t cut = 0; cut <= len; cut++) {
            uint8_t *p = malloc(cut + 1);
            memcpy(p, k->payload.data, cut);
            read_anything(p, cut, cut % 2 == 0);
            free(p);
        }
        for (unsigned n = 0; n < 20000; n++) {
            uint8_t *p = malloc(len);
            memcpy(p, k->payload.data, len);
            for (uint64_t flips = 1 + rng_below(&rng, 4); flips > 0; flips--) {
                p[rng_below(&rng, len)] ^= (uint8_t)(1u << rng_below(&rng, 8));
            }
            read_anything(p, len, n % 2 == 0);
            free(p);
        }
    }
}
