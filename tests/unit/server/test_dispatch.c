/* test_dispatch.c: each command, each result, both protocols: golden replies. */
#include "../../lib/give_up.h"
#include "fake.h"
#include "machine/budget.h"

#define OWNER "owner-0123456789"

static void assert_slice(struct fli_slice s, const char *text)
{
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.data, text, s.len);
}

/* --- requests become commands --- */

TEST_WITH(commands_of_the_machine, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    static const struct {
        const char *ask;
        uint8_t op;
    } rows[] = {
        {"RENEW n 7 TTL 500", MACHINE_OP_RENEW},
        {"RELEASE n 7", MACHINE_OP_RELEASE},
        {"CHECK n 7", MACHINE_OP_CHECK},
        {"TOKEN n", MACHINE_OP_TOKEN},
        {"SHOW n", MACHINE_OP_SHOW},
        {"BREAK n", MACHINE_OP_BREAK},
        {"LOCKS", MACHINE_OP_LOCKS},
        {"SESSION OPEN " OWNER " TTL 900 LOCKDELAY 50 LABEL me", MACHINE_OP_SESSION_OPEN},
        {"SESSION RENEW " OWNER, MACHINE_OP_SESSION_RENEW},
        {"SESSION CLOSE " OWNER, MACHINE_OP_SESSION_CLOSE},
        {"SESSION SHOW " OWNER, MACHINE_OP_SESSION_SHOW},
        {"SESSION LIST", MACHINE_OP_SESSION_LIST},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ask(f, 2, rows[i].ask);
        const struct machine_command *c = &last_sent(f)->command;
        assert_int_equal(c->op, rows[i].op);
        if (c->op == MACHINE_OP_RENEW) {
            assert_slice(c->name, "n");
            assert_int_equal(c->token, 7);
            assert_int_equal(c->ttl_ms, 500);
        } else if (c->op == MACHINE_OP_SESSION_OPEN) {
            assert_slice(c->owner, OWNER);
            assert_slice(c->label, "me");
            assert_int_equal(c->ttl_ms, 900);
            assert_int_equal(c->lockdelay_ms, 50);
        }
        result(last_sent(f), (struct machine_result){.code = MACHINE_NO});
    }
}

TEST_WITH(acquire_becomes_a_command, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    ask(f, 2, "ACQUIRE n TTL 500 OWNER " OWNER " WAIT 300 VALUE v");
    const struct machine_command *c = &last_sent(f)->command;
    assert_int_equal(c->op, MACHINE_OP_ACQUIRE);
    assert_int_equal(c->flags, MACHINE_ACQUIRE_WAIT);
    assert_slice(c->owner, OWNER);
    assert_slice(c->value, "v");
    assert_int_equal(c->ttl_ms, 500);
    assert_int_equal(c->wait_ms, 300);
    result(last_sent(f), (struct machine_result){.code = MACHINE_HELD});
    ask(f, 2, "ACQUIRE n SESSION s");
    c = &last_sent(f)->command;
    assert_int_equal(c->flags, MACHINE_ACQUIRE_EXPLICIT);
    assert_slice(c->owner, "s");
    assert_int_equal(c->ttl_ms, 0);
    result(last_sent(f), (struct machine_result){.code = MACHINE_HELD});
    ask(f, 2, "ACQUIRE n WAIT 0");
    c = &last_sent(f)->command;
    assert_int_equal(c->flags, 0);
    assert_int_equal(c->ttl_ms, FL_TTL_DEFAULT_MS);
    result(last_sent(f), (struct machine_result){.code = MACHINE_HELD});
}

TEST_WITH(made_owners_differ, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    uint8_t seen[32][32];
    for (int i = 0; i < 32; i++) {
        ask(f, 2, "ACQUIRE n");
        struct fli_slice owner = last_sent(f)->command.owner;
        assert_int_equal(owner.len, 32);
        for (size_t k = 0; k < owner.len; k++) {
            assert_non_null(memchr("0123456789abcdef", owner.data[k], 16));
        }
        memcpy(seen[i], owner.data, 32);
        for (int j = 0; j < i; j++) {
            assert_memory_not_equal(seen[i], seen[j], 32);
        }
        result(last_sent(f), (struct machine_result){.code = MACHINE_HELD});
    }
}

/* --- results become answers --- */

struct golden {
    const char *ask;
    struct machine_result result;
    const char *resp2, *resp3; /* resp3 NULL: the same */
};

#define R(...) ((struct machine_result){__VA_ARGS__})

static const struct golden goldens[] = {
    {"ACQUIRE n", R(.code = MACHINE_GRANTED, .token = 34), ":34\r\n", NULL},
    {"ACQUIRE n", R(.code = MACHINE_GRANTED, .token = FL_TOKEN_MAX), ":9007199254740991\r\n", NULL},
    {"ACQUIRE n", R(.code = MACHINE_HELD), "$-1\r\n", "_\r\n"},
    {"ACQUIRE n WAIT 5", R(.code = MACHINE_DEADLOCK),
     "-DEADLOCK waiting for this lock would close a circle of sessions that wait for each other; "
     "release a lock this session holds and try again\r\n",
     NULL},
    {"ACQUIRE n", R(.code = MACHINE_LIMIT, .number = MACHINE_LIMIT_LOCKS),
     "-LIMIT locks-max: as many locks as allowed are held or awaited; release some\r\n", NULL},
    {"ACQUIRE n", R(.code = MACHINE_LIMIT, .number = MACHINE_LIMIT_SESSIONS),
     "-LIMIT sessions-max: as many sessions as allowed exist; close some\r\n", NULL},
    {"ACQUIRE n WAIT 5", R(.code = MACHINE_LIMIT, .number = MACHINE_LIMIT_WAITS),
     "-LIMIT waits-max: as many requests as allowed are waiting; try again later\r\n", NULL},
    {"ACQUIRE n WAIT 5", R(.code = MACHINE_LIMIT, .number = MACHINE_LIMIT_LOCK_WAITS),
     "-LIMIT lock-waits-max: as many requests as allowed wait for this lock; try again later\r\n",
     NULL},
    {"ACQUIRE n SESSION s", R(.code = MACHINE_LIMIT, .number = MACHINE_LIMIT_SESSION_LOCKS),
     "-LIMIT session-locks-max: this session holds or awaits as many locks as allowed; release "
     "some\r\n",
     NULL},
    {"TOKEN n", R(.code = MACHINE_LIMIT, .number = MACHINE_LIMIT_TOKENS),
     "-LIMIT tokens: all of them have been issued; this cluster cannot grant any more\r\n", NULL},
    {"SHOW n", R(.code = MACHINE_LIMIT, .number = MACHINE_LIMIT_HOLDERS),
     "-LIMIT holders: so many leases of this lock have just ended that it cannot be told yet who "
     "holds it; ask again in a moment\r\n",
     NULL},
    {"ACQUIRE n", R(.code = MACHINE_LIMIT, .number = 99), "-LIMIT a limit is reached\r\n", NULL},
    {"ACQUIRE n SESSION s", R(.code = MACHINE_NOSESSION),
     "-NOSESSION there is no such session: it was closed, has expired, or was never opened; open "
     "one with SESSION OPEN\r\n",
     NULL},
    {"ACQUIRE n", R(.code = MACHINE_UNSUPPORTED),
     "-ERR this version of fencelock cannot carry that out\r\n", NULL},
    {"ACQUIRE n PERMITS 2", R(.code = MACHINE_MISMATCH, .number = 3),
     "-MISMATCH the lock is in use with PERMITS 3 (1 when none are given); ask for it with the "
     "same, or when nobody holds or awaits it any more\r\n",
     NULL},
    {"ACQUIRE n MODE SHARED", R(.code = MACHINE_MISMATCH),
     "-MISMATCH this owner holds or awaits the lock in another mode or together with other locks; "
     "ask in the same way, or release it first\r\n",
     NULL},
    {"RENEW n 1", R(.code = MACHINE_DONE), ":1\r\n", NULL},
    {"RENEW n 1", R(.code = MACHINE_NO), ":0\r\n", NULL},
    {"RELEASE n 1", R(.code = MACHINE_DONE), ":1\r\n", NULL},
    {"RELEASE n 1", R(.code = MACHINE_NO), ":0\r\n", NULL},
    {"CHECK n 1", R(.code = MACHINE_DONE, .token = 1), ":1\r\n", NULL},
    {"CHECK n 1", R(.code = MACHINE_NO), ":0\r\n", NULL},
    {"BREAK n", R(.code = MACHINE_DONE, .token = 8), ":8\r\n", NULL},
    {"BREAK n", R(.code = MACHINE_NO), ":0\r\n", NULL},
    {"TOKEN n", R(.code = MACHINE_DONE, .token = 35), ":35\r\n", NULL},
    {"SHOW n", R(.code = MACHINE_NOTFOUND), "$-1\r\n", "_\r\n"},
    {"SESSION OPEN " OWNER " TTL 100", R(.code = MACHINE_DONE), "+OK\r\n", NULL},
    {"SESSION RENEW " OWNER, R(.code = MACHINE_DONE), ":1\r\n", NULL},
    {"SESSION RENEW " OWNER, R(.code = MACHINE_NOSESSION), ":0\r\n", NULL},
    {"SESSION CLOSE " OWNER, R(.code = MACHINE_DONE), ":1\r\n", NULL},
    {"SESSION CLOSE " OWNER, R(.code = MACHINE_NOSESSION), ":0\r\n", NULL},
    {"SESSION SHOW " OWNER, R(.code = MACHINE_NOTFOUND), "$-1\r\n", "_\r\n"},
};

TEST(golden_replies)
{
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        for (int proto = 2; proto <= 3; proto++) {
            const struct golden *g = &goldens[i];
            struct fake f;
            fake_start(&f);
            struct asked *a = ask(&f, proto, g->ask);
            expect_nothing(a);
            result(last_sent(&f), g->result);
            expect(a, proto == 3 && g->resp3 != NULL ? g->resp3 : g->resp2);
            fake_end(&f);
        }
    }
}

TEST(failures_of_the_node)
{
    static const struct {
        const char *ask;
        int status;
        const char *begins;
    } rows[] = {
        {"ACQUIRE n OWNER " OWNER, FL_ENOLEADER, "-NOLEADER no node leads the cluster at the mom"},
        {"ACQUIRE n OWNER " OWNER, FL_EBUSY, "-BUSY too many commands are pending"},
        {"ACQUIRE n OWNER " OWNER, FL_EUNCERTAIN,
         "-UNCERTAIN the outcome is unknown: it may or may not have been carried out; send it "
         "again"},
        {"ACQUIRE n", FL_EUNCERTAIN,
         "-UNCERTAIN the outcome is unknown: it may or may not have been carried out; without "
         "OWNER"},
        {"RELEASE n 1", FL_EUNCERTAIN, "-UNCERTAIN "},
        {"SHOW n", FL_ENOLEADER, "-NOLEADER "},
        {"SHOW n", FL_EIO, "-ERR input/output error (EIO)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask(&f, 2, rows[i].ask);
        failure(last_sent(&f), rows[i].status);
        assert_true(a->answered);
        assert_memory_equal(a->reply.data, rows[i].begins, strlen(rows[i].begins));
        fake_end(&f);
    }
}

TEST_WITH(refused_on_submit, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    f->submit_rc = FL_EBUSY;
    struct asked *a = ask(f, 2, "ACQUIRE n WAIT 100");
    assert_memory_equal(a->reply.data, "-BUSY ", 6);
    assert_true(a->answered);
    f->submit_rc = FL_ENOLEADER;
    a = ask(f, 2, "SHOW n");
    assert_memory_equal(a->reply.data, "-NOLEADER ", 10);
    f->submit_rc = 0;
    /* The first one must not have left a trace: its wait is not being asked for. */
    a = ask(f, 2, "ACQUIRE n");
    result(last_sent(f), R(.code = MACHINE_GRANTED, .token = 1));
    expect(a, ":1\r\n");
}

TEST_WITH(bad_requests, fake_setup, fake_teardown)
{
    static const char *const asks[] = {"NOPE",
                                       "ACQUIRE",
                                       "ACQUIRE n TTL 1",
                                       "RENEW n 0",
                                       "CLUSTER",
                                       "CLUSTER REMOVE x",
                                       "SESSION OPEN short TTL 100",
                                       "ACQUIRE n OWNER short",
                                       "ACQUIRE n MODE both",
                                       "ACQUIRE n ALSO n",
                                       "GET key"};
    struct fake *f = *state;
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        struct asked *a = ask(f, 2, asks[i]);
        assert_true(a->answered);
        assert_memory_equal(a->reply.data, "-ERR ", 5);
    }
    assert_int_equal(f->sent_n, 0);
    struct asked *a = ask(f, 2, "LOCKS CURSOR nonsense");
    expect(a, "-ERR CURSOR: write the cursor that the page before gave, or 0 to begin\r\n");
    assert_int_equal(f->sent_n, 0);
    ask(f, 2, "LOCKS CURSOR 0");
    result(last_sent(f), R(.code = MACHINE_NO));
    struct info_counts counts;
    dispatch_get_counts(f->d, &counts);
    assert_int_equal(counts.errors, 12);
}

TEST_WITH(connection_commands_go_to_the_network, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    expect(ask(f, 2, "PING"), "+PING\r\n");
    expect(ask(f, 2, "client id"), "+CLIENT\r\n");
    assert_int_equal(f->connection_commands, 2);
}

TEST_WITH(answers_that_do_not_fit_fail, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    f->reply_max = 3;
    struct asked *a = ask(f, 2, "ACQUIRE n");
    result(last_sent(f), R(.code = MACHINE_GRANTED, .token = 1234567));
    assert_true(a->failed && !a->answered);
}

/* --- views, from a real machine --- */

struct world {
    struct fake f;
    struct machine *m;
    uint64_t sequence, timestamp_ms;
};

static struct machine_result apply(struct world *w, const struct machine_command *c)
{
    struct fli_buf b;
    fli_buf_init(&b, MACHINE_BATCH_MAX);
    static const uint8_t zeros[MACHINE_BATCH_HEADER_SIZE + 8] = {0};
    assert_int_equal(fli_buf_append(&b, zeros, MACHINE_BATCH_HEADER_SIZE), 0);
    assert_int_equal(machine_command_encode(c, &b), 0);
    uint32_t ends = give_up_leases(w->m, w->timestamp_ms, &b, UINT32_MAX);
    struct machine_batch_header h = {.count = 1 + ends,
                                     .timestamp_ms = w->timestamp_ms,
                                     .term = 1,
                                     .sequence = ++w->sequence,
                                     .length = (uint32_t)b.len};
    assert_int_equal(fli_buf_append(&b, zeros, 8), 0);
    size_t size = machine_batch_seal(b.data, &h);
    struct machine_cursor cursor;
    struct machine_result r;
    struct machine_result more;
    assert_int_equal(machine_begin(w->m, b.data, size, &cursor), 0);
    assert_true(machine_next(w->m, &cursor, &r));
    while (machine_next(w->m, &cursor, &more)) {
    }
    fli_buf_fini(&b);
    return r;
}

/* Answers the command submitted last by a query to, or an apply at, a real machine. */
static void serve(struct world *w)
{
    struct sent *s = last_sent(&w->f);
    if (!MACHINE_OP_IS_QUERY(s->command.op)) {
        result(s, apply(w, &s->command));
        return;
    }
    struct fli_buf payload;
    struct machine_result r;
    fli_buf_init(&payload, 1 << 20);
    assert_int_equal(machine_query(w->m, &s->command, 0, &r, &payload), 0);
    result_payload(s, r, (struct fli_slice){payload.data, payload.len});
    fli_buf_fini(&payload);
}

static int world_setup(void **state)
{
    struct world *w = *state = calloc(1, sizeof *w);
    fake_start(&w->f);
    const uint64_t seed[2] = {1, 2};
    w->m = machine_create(seed);
    w->f.machine = w->m;
    w->timestamp_ms = 5000;
    struct machine_command init = {
        .op = MACHINE_OP_INIT, .number = 77, .limits = MACHINE_LIMITS_DEFAULT};
    apply(w, &init);
    return 0;
}

static int world_teardown(void **state)
{
    struct world *w = *state;
    fake_end(&w->f);
    machine_destroy(w->m);
    free(w);
    return 0;
}

static struct asked *serve_ask(struct world *w, int proto, const char *line)
{
    struct asked *a = ask(&w->f, proto, line);
    serve(w);
    return a;
}

static void on_event(void *ctx, const struct machine_event *e)
{
    struct fake *f = ctx;
    dispatch_event(f->d, e);
}

/* Several locks: one wait, answered once, by the first of its events; the client that goes gives
 * up all of its places. */
TEST_WITH(several_locks, world_setup, world_teardown)
{
    struct world *w = *state;
    machine_set_event_cb(w->m, on_event, &w->f);
    expect(serve_ask(w, 2, "ACQUIRE a ALSO b TTL 500 OWNER " OWNER), ":1\r\n");
    expect(serve_ask(w, 2, "ACQUIRE b ALSO a TTL 500 OWNER " OWNER), ":1\r\n");
    expect(serve_ask(w, 2, "ACQUIRE c ALSO b TTL 500 OWNER waiter-123456789"), "$-1\r\n");
    struct asked *gone = serve_ask(w, 2, "ACQUIRE c ALSO b TTL 500 WAIT 9000");
    struct asked *next =
        serve_ask(w, 2, "ACQUIRE b ALSO a TTL 500 OWNER other-0123456789 WAIT 9000");
    struct asked *same =
        serve_ask(w, 2, "ACQUIRE a ALSO b TTL 500 OWNER other-0123456789 WAIT 9000");
    expect_nothing(gone);
    dispatch_cancel(w->f.d, &gone->slot);
    dispatch_turn(w->f.d);
    serve(w); /* the cancel */
    expect_nothing(next);
    expect_nothing(same);
    expect(serve_ask(w, 2, "RELEASE b 1"), ":1\r\n");
    dispatch_turn(w->f.d); /* tells of the grant */
    expect(next, ":2\r\n");
    expect(same, ":2\r\n");
    expect(serve_ask(w, 2, "CHECK a 2"), ":1\r\n");
    expect(serve_ask(w, 2, "ACQUIRE a TTL 500 OWNER other-0123456789"),
           "-MISMATCH this owner holds or awaits the lock in another mode or together with other "
           "locks; ask in the same way, or release it first\r\n");
    expect(serve_ask(w, 2, "SHOW c"), "$-1\r\n");
    struct info_counts counts;
    dispatch_get_counts(w->f.d, &counts);
    assert_int_equal(counts.parked, 0);
}

#define ORIGIN2 "$4\r\nuser\r\n$7\r\ndefault\r\n$7\r\naddress\r\n$-1\r\n"
#define ORIGIN3 "$4\r\nuser\r\n$7\r\ndefault\r\n$7\r\naddress\r\n_\r\n"

TEST_WITH(show_a_lock, world_setup, world_teardown)
{
    struct world *w = *state;
    expect(serve_ask(w, 2, "ACQUIRE n TTL 500 OWNER " OWNER " VALUE v"), ":1\r\n");
    struct asked *waiter = serve_ask(w, 2, "ACQUIRE n TTL 500 OWNER waiter-123456789 WAIT 9000");
    expect_nothing(waiter);
    w->timestamp_ms += 100;
    expect(serve_ask(w, 2, "TOKEN x"), ":2\r\n");
    expect(
        serve_ask(w, 2, "SHOW n"),
        "*40\r\n$4\r\nname\r\n$1\r\nn\r\n$5\r\nstate\r\n$4\r\nheld\r\n$5\r\ntoken\r\n:1\r\n"
        "$5\r\nowner\r\n$16\r\nowner-0123456789\r\n$7\r\nsession\r\n:0\r\n$5\r\nlabel\r\n$0\r\n\r\n"
        "$5\r\nvalue\r\n$1\r\nv\r\n$8\r\nsince_ms\r\n:5000\r\n$6\r\nage_ms\r\n:100\r\n"
        "$11\r\nttl_left_ms\r\n:400\r\n$8\r\nrenewals\r\n:0\r\n$8\r\ntogether\r\n:1\r\n" ORIGIN2
        "$7\r\nwaiters\r\n:1\r\n$"
        "4\r\nmode\r\n$9\r\nexclusive\r\n"
        "$7\r\npermits\r\n:1\r\n$7\r\nholders\r\n:1\r\n$7\r\nheld_by\r\n*1\r\n"
        "*24\r\n$5\r\ntoken\r\n:1\r\n$5\r\nowner\r\n$16\r\nowner-0123456789\r\n$7\r\nsession\r\n:"
        "0\r\n"
        "$5\r\nlabel\r\n$0\r\n\r\n$5\r\nvalue\r\n$1\r\nv\r\n$8\r\nsince_ms\r\n:5000\r\n$6\r\nage_"
        "ms\r\n:100\r\n"
        "$11\r\nttl_left_ms\r\n:400\r\n$8\r\nrenewals\r\n:0\r\n$8\r\ntogether\r\n:1\r\n" ORIGIN2
        "$5\r\nqueue\r\n*1\r\n"
        "*12\r\n$5\r\nowner\r\n$16\r\nwaiter-123456789\r\n$5\r\nlabel\r\n$0\r\n\r\n"
        "$7\r\nsession\r\n:0\r\n$8\r\ntogether\r\n:1\r\n" ORIGIN2);
    expect(
        serve_ask(w, 3, "SHOW n"),
        "%20\r\n$4\r\nname\r\n$1\r\nn\r\n$5\r\nstate\r\n$4\r\nheld\r\n$5\r\ntoken\r\n:1\r\n"
        "$5\r\nowner\r\n$16\r\nowner-0123456789\r\n$7\r\nsession\r\n#f\r\n$5\r\nlabel\r\n$0\r\n\r\n"
        "$5\r\nvalue\r\n$1\r\nv\r\n$8\r\nsince_ms\r\n:5000\r\n$6\r\nage_ms\r\n:100\r\n"
        "$11\r\nttl_left_ms\r\n:400\r\n$8\r\nrenewals\r\n:0\r\n$8\r\ntogether\r\n:1\r\n" ORIGIN3
        "$7\r\nwaiters\r\n:1\r\n$"
        "4\r\nmode\r\n$9\r\nexclusive\r\n"
        "$7\r\npermits\r\n:1\r\n$7\r\nholders\r\n:1\r\n$7\r\nheld_by\r\n*1\r\n"
        "%12\r\n$5\r\ntoken\r\n:1\r\n$5\r\nowner\r\n$16\r\nowner-0123456789\r\n$7\r\nsession\r\n#"
        "f\r\n"
        "$5\r\nlabel\r\n$0\r\n\r\n$5\r\nvalue\r\n$1\r\nv\r\n$8\r\nsince_ms\r\n:5000\r\n$6\r\nage_"
        "ms\r\n:100\r\n"
        "$11\r\nttl_left_ms\r\n:400\r\n$8\r\nrenewals\r\n:0\r\n$8\r\ntogether\r\n:1\r\n" ORIGIN3
        "$5\r\nqueue\r\n*1\r\n"
        "%6\r\n$5\r\nowner\r\n$16\r\nwaiter-123456789\r\n$5\r\nlabel\r\n$0\r\n\r\n"
        "$7\r\nsession\r\n#f\r\n$8\r\ntogether\r\n:1\r\n" ORIGIN3);
    expect(serve_ask(w, 2, "SHOW other"), "$-1\r\n");
    dispatch_cancel(w->f.d, &waiter->slot);
    dispatch_turn(w->f.d);
    serve(w); /* the cancel */
}

TEST_WITH(list_locks, world_setup, world_teardown)
{
    struct world *w = *state;
    expect(serve_ask(w, 2, "LOCKS"), "*2\r\n$0\r\n\r\n*0\r\n");
    serve_ask(w, 2, "ACQUIRE a TTL 500 OWNER " OWNER);
    serve_ask(w, 2, "ACQUIRE b TTL 500 OWNER " OWNER);
    struct asked *page = serve_ask(w, 3, "LOCKS COUNT 1");
    assert_true(page->answered);
    char cursor[64] = "";
    assert_int_equal(fli_buf_append(&page->reply, "", 1), 0);
    assert_int_equal(
        sscanf((const char *)page->reply.data, "*2\r\n$%*u\r\n%63[^\r]\r\n*1\r\n%%18", cursor), 1);
    assert_non_null(strstr((const char *)page->reply.data, "$4\r\nname\r\n$1\r\na\r\n"));
    char line[128];
    (void)snprintf(line, sizeof line, "LOCKS COUNT 5 CURSOR %s", cursor);
    page = serve_ask(w, 2, line);
    assert_int_equal(fli_buf_append(&page->reply, "", 1), 0);
    assert_memory_equal(page->reply.data, "*2\r\n$0\r\n\r\n*1\r\n*36\r\n", 19);
    assert_non_null(strstr((const char *)page->reply.data, "$4\r\nname\r\n$1\r\nb\r\n"));
}

TEST_WITH(sessions, world_setup, world_teardown)
{
    struct world *w = *state;
    expect(serve_ask(w, 2, "SESSION OPEN " OWNER " TTL 700 LOCKDELAY 30 LABEL me"), "+OK\r\n");
    expect(serve_ask(w, 2, "ACQUIRE a SESSION " OWNER), ":1\r\n");
    static const char *const session =
        "$5\r\nowner\r\n$16\r\nowner-0123456789\r\n$5\r\nlabel\r\n$2\r\nme\r\n$6\r\nttl_ms\r\n:"
        "700\r\n"
        "$11\r\nttl_left_ms\r\n:700\r\n$12\r\nlockdelay_ms\r\n:30\r\n$5\r\nlocks\r\n:1\r\n"
        "$5\r\nwaits\r\n:0\r\n";
    char want[512];
    (void)snprintf(want, sizeof want, "*18\r\n%s" ORIGIN2, session);
    expect(serve_ask(w, 2, "SESSION SHOW " OWNER), want);
    (void)snprintf(want, sizeof want, "%%9\r\n%s" ORIGIN3, session);
    expect(serve_ask(w, 3, "SESSION SHOW " OWNER), want);
    (void)snprintf(want, sizeof want, "*2\r\n$0\r\n\r\n*1\r\n%%9\r\n%s" ORIGIN3, session);
    expect(serve_ask(w, 3, "SESSION LIST"), want);
    expect(serve_ask(w, 2, "SESSION CLOSE " OWNER), ":1\r\n");
    expect(serve_ask(w, 2, "SESSION CLOSE " OWNER), ":0\r\n");
}

static void wait_for_a(struct world *w)
{
    struct machine_command wait = {.op = MACHINE_OP_ACQUIRE,
                                   .flags = MACHINE_ACQUIRE_WAIT,
                                   .n_names = 1,
                                   .permits = 1,
                                   .name = {(const uint8_t *)"a", 1},
                                   .owner = {(const uint8_t *)"waiter-123456789", 16},
                                   .ttl_ms = 500,
                                   .wait_ms = 900};
    assert_int_equal(apply(w, &wait).code, MACHINE_QUEUED);
}

/* One of two readers has lost the lock and is not taken away yet, and a writer waits: the answer
 * has the other reader, and the queue. */
TEST_WITH(show_between_two_ends, world_setup, world_teardown)
{
    struct world *w = *state;
    expect(serve_ask(w, 2, "ACQUIRE before TTL 100 OWNER " OWNER), ":1\r\n");
    expect(serve_ask(w, 2, "ACQUIRE a MODE SHARED TTL 200 OWNER reader-123456789"), ":2\r\n");
    expect(serve_ask(w, 2, "ACQUIRE a MODE SHARED TTL 900 OWNER reader-another-1"), ":3\r\n");
    wait_for_a(w);
    machine_set_budget(w->m, &(struct budget){.due = 1});
    w->timestamp_ms += 300;
    expect(serve_ask(w, 2, "TOKEN x"), ":4\r\n");
    assert_true(machine_has_work(w->m));
    static const char shown[] = "*40\r\n$4\r\nname\r\n$1\r\na\r\n$5\r\nstate\r\n$4\r\nheld\r\n"
                                "$5\r\ntoken\r\n:3\r\n$5\r\nowner\r\n$16\r\nreader-another-1\r\n";
    const struct fli_buf *reply = &serve_ask(w, 2, "SHOW a")->reply;
    assert_in_range(reply->len, sizeof shown, 4096);
    assert_memory_equal(reply->data, shown, sizeof shown - 1);
    static const char one_holder[] = "held_by\r\n*1\r\n";
    static const char one_waiter[] = "queue\r\n*1\r\n";
    assert_non_null(memmem(reply->data, reply->len, one_holder, sizeof one_holder - 1));
    assert_non_null(memmem(reply->data, reply->len, one_waiter, sizeof one_waiter - 1));
}

/* A payload may come from another node: whatever it is, the answer is one whole reply. */
TEST_WITH(spoilt_payloads, world_setup, world_teardown)
{
    struct world *w = *state;
    fli_buf_fini(&serve_ask(w, 2, "ACQUIRE a TTL 500 OWNER " OWNER)->reply);
    wait_for_a(w);
    struct machine_command q = {.op = MACHINE_OP_SHOW, .name = {(const uint8_t *)"a", 1}};
    struct fli_buf payload;
    struct machine_result r;
    fli_buf_init(&payload, 1 << 20);
    assert_int_equal(machine_query(w->m, &q, 0, &r, &payload), 0);
    for (size_t cut = 0; cut < payload.len; cut++) {
        w->f.asked_n = w->f.sent_n = 0; /* the rows are used again and again */
        memset(&w->f.asked[0], 0, sizeof w->f.asked[0]);
        struct asked *a = ask(&w->f, 2, "SHOW a");
        result_payload(last_sent(&w->f), r, (struct fli_slice){payload.data, cut});
        expect(a, "-ERR the leader's answer could not be read; nothing was changed\r\n");
        fli_buf_fini(&a->reply);
    }
    fli_buf_fini(&payload);
}

/* --- the cluster --- */

TEST_WITH(leader_and_nodes, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    expect(ask(f, 2, "LEADER"), "$-1\r\n");
    expect(ask(f, 3, "LEADER"), "_\r\n");
    f->status.leader_id = 2;
    expect(ask(f, 3, "LEADER"), "*2\r\n:2\r\n_\r\n");
    f->status.leader_client_address = "127.0.0.1:7402";
    expect(ask(f, 2, "LEADER"), "*2\r\n:2\r\n$14\r\n127.0.0.1:7402\r\n");
    f->members_n = 1;
    f->members[0] = (struct node_member){.id = 2,
                                         .peer_address = "h:1",
                                         .leader = true,
                                         .voter = true,
                                         .connected = true,
                                         .match_index = 9,
                                         .starts = 7,
                                         .kept_index = 8,
                                         .incarnation = 0xdeadbeef};
    expect(ask(f, 2, "CLUSTER MEMBERS"),
           "*1\r\n*26\r\n$2\r\nid\r\n:2\r\n$4\r\nrole\r\n$6\r\nleader\r\n$12\r\npeer_address\r\n"
           "$3\r\nh:1\r\n$14\r\nclient_address\r\n$-1\r\n$4\r\nself\r\n:0\r\n$5\r\nvoter\r\n:1\r\n"
           "$9\r\nconnected\r\n:1\r\n$11\r\nmatch_index\r\n:9\r\n"
           "$5\r\nstate\r\n$5\r\nvoter\r\n$7\r\nversion\r\n:0\r\n"
           "$6\r\nstarts\r\n:7\r\n$10\r\nkept_index\r\n:8\r\n"
           "$11\r\nincarnation\r\n$16\r\n00000000deadbeef\r\n");
}

TEST(changes_of_members)
{
    static const struct {
        const char *ask;
        int code;
        const char *begins;
    } rows[] = {
        {"CLUSTER TRANSFER", 0, "+OK"},
        {"CLUSTER TRANSFER 2", 0, "+OK"},
        {"CLUSTER TRANSFER", FL_ENOLEADER,
         "-NOLEADER this node does not lead; send it to the leader, node 3 at h:3"},
        {"CLUSTER TRANSFER 9", FL_ENOTFOUND, "-ERR there is no such node"},
        {"CLUSTER TRANSFER", FL_EBUSY, "-BUSY leadership is being handed over"},
        {"CLUSTER TRANSFER", FL_ETIMEOUT, "-UNCERTAIN leadership was not taken over in time"},
        {"CLUSTER ADD 4 h:4", 0, "+OK"},
        {"CLUSTER ADD 4 h:4 learner", 0, "+OK"},
        {"CLUSTER ADD 4 h:4", FL_ENOLEADER, "-NOLEADER this node does not lead"},
        {"CLUSTER ADD 4 h", FL_EINVAL, "-ERR the address is not HOST:PORT"},
        {"CLUSTER ADD 3 h:4", FL_EMISMATCH, "-ERR there is a node 3, or another one"},
        {"CLUSTER ADD 4 h:4", FL_ELIMIT, "-LIMIT a cluster has at most 9 members"},
        {"CLUSTER ADD 4 h:4", FL_EBUSY, "-BUSY another change of the cluster is in progress"},
        {"CLUSTER REMOVE 4", 0, "+OK"},
        {"CLUSTER REMOVE 4 FORCE", 0, "+OK"},
        {"CLUSTER REMOVE 4", FL_ENOTFOUND, "-ERR node 4 is not a member"},
        {"CLUSTER REMOVE 4", FL_EDENIED, "-ERR without node 4 no majority"},
        {"CLUSTER REMOVE 4", FL_EUNCERTAIN, "-UNCERTAIN "},
        {"CLUSTER REPLACE 4", 0, "+OK"},
        {"CLUSTER REPLACE 4 force", 0, "+OK"},
        {"CLUSTER REPLACE 4 h:5 force", 0, "+OK"},
        {"CLUSTER REPLACE 4 of 0123456789abcdef", 0, "+OK"},
        {"CLUSTER REPLACE 4 h:5 FORCE OF 0123456789abcdef", 0, "+OK"},
        {"CLUSTER REPLACE 4 OF 0123456789abcdef", FL_EEXISTS, "-ERR node 4 is another incarnation"},
        {"CLUSTER REPLACE 4", FL_EBUSY, "-BUSY node 4 is connected"},
        {"CLUSTER MOVE 4 h:5", 0, "+OK"},
        {"CLUSTER MOVE 4 h:5", FL_EMISMATCH, "-ERR another node has this address"},
        {"CLUSTER MOVE 4 h:5", FL_EEXISTS, "-ERR node 4 has not joined yet"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int later = 0; later <= 1; later++) {
            struct fake f;
            fake_start(&f);
            f.status.leader_id = 3;
            f.status.leader_client_address = "h:3";
            f.change_rc = later ? 0 : rows[i].code;
            struct asked *a = ask(&f, 2, rows[i].ask);
            if (later || rows[i].code == 0) {
                expect_nothing(a);
                f.change_cb(f.change_ctx, rows[i].code);
            }
            assert_true(a->answered);
            assert_memory_equal(a->reply.data, rows[i].begins, strlen(rows[i].begins));
            fake_end(&f);
        }
    }
    struct fake f; /* the client leaves before the answer */
    fake_start(&f);
    struct asked *a = ask(&f, 2, "CLUSTER TRANSFER");
    dispatch_cancel(f.d, &a->slot);
    f.change_cb(f.change_ctx, 0);
    expect_nothing(a);
    fake_end(&f);
}

TEST_WITH(info_has_what_others_look_for, world_setup, world_teardown)
{
    struct world *w = *state;
    w->f.status = (struct node_status){.id = 1,
                                       .leader_id = 1,
                                       .role = NODE_LEADER,
                                       .term = 4,
                                       .commit_index = 17,
                                       .applied_index = 16,
                                       .clock_ms = 5000,
                                       .leader_client_address = "h:1"};
    serve_ask(w, 2, "ACQUIRE a TTL 500 OWNER " OWNER);
    static const char *const lines[] = {"redis_version:7.0.15\r\n",
                                        "fencelock_version:" FENCELOCK_VERSION "\r\n",
                                        "loading:0\r\n",
                                        "role:master\r\n",
                                        "node_role:leader\r\n",
                                        "node_id:1\r\n",
                                        "leader_id:1\r\n",
                                        "leader_address:h:1\r\n",
                                        "term:4\r\n",
                                        "commit_index:17\r\n",
                                        "applied_index:16\r\n",
                                        "cluster_clock:5000\r\n",
                                        "last_token:1\r\n",
                                        "min_live_token:1\r\n",
                                        "locks_held:1\r\n",
                                        "connected_clients:5\r\n",
                                        "used_memory_rss:",
                                        "state_hash:",
                                        "state_hash_index:16\r\n",
                                        "locks_max:2000000\r\n"};
    struct asked *a = ask(&w->f, 2, "INFO");
    assert_true(a->answered);
    assert_int_equal(fli_buf_append(&a->reply, "", 1), 0);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (strstr((const char *)a->reply.data, lines[i]) == NULL) {
            fail_msg("INFO lacks %s", lines[i]);
        }
    }
    a = ask(&w->f, 2, "INFO replication");
    expect(a, "$48\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n");
    a = ask(&w->f, 3, "INFO REPLICATION nosuch");
    expect(a, "=52\r\ntxt:# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n");
    a = ask(&w->f, 2, "INFO nosuch");
    expect(a, "$0\r\n\r\n");
    a = ask(&w->f, 2, "CLUSTER INFO");
    assert_non_null(memmem(a->reply.data, a->reply.len, "cluster_id:000000000000004d", 27));
    w->f.machine = NULL; /* a node that is not there yet */
    a = ask(&w->f, 2, "INFO");
    assert_true(a->answered);
}

static void expect_cluster_state(struct world *w, struct node_status status, const char *word)
{
    char line[64];
    w->f.status = status;
    struct asked *a = ask(&w->f, 2, "INFO cluster");
    snprintf(line, sizeof line, "\r\ncluster_state:%s\r\n", word);
    assert_non_null(memmem(a->reply.data, a->reply.len, line, strlen(line)));
}

/* A node that has applied nothing may be one of a cluster that is years old: it waits for its
 * place, for a snapshot, or for room. */
TEST_WITH(who_has_nothing_yet_forms_no_cluster, world_setup, world_teardown)
{
    struct world *w = *state;
    const uint64_t seed[2] = {1, 2};
    struct machine *empty = machine_create(seed);
    w->f.machine = empty;
    expect_cluster_state(w, (struct node_status){.id = 1, .founds = true}, "forming");
    expect_cluster_state(w, (struct node_status){.id = 1}, "no leader");
    expect_cluster_state(w, (struct node_status){.id = 1, .leader_id = 1, .role = NODE_LEADER},
                         "forming");
    expect_cluster_state(w, (struct node_status){.id = 1, .leader_id = 2, .role = NODE_FOLLOWER},
                         "ok");
    w->f.machine = w->m;
    machine_destroy(empty);
}
