/* SHOW, LOCKS and INFO as structs, from whole, partial, strange and random replies. */
#include "../../lib/unit.h"

#include "client/lists.h"

static redisReply *parse(const char *bytes)
{
    redisReader *r = redisReaderCreate();
    void *reply = NULL;
    assert_int_equal(redisReaderFeed(r, bytes, strlen(bytes)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(r, &reply), REDIS_OK);
    assert_non_null(reply);
    redisReaderFree(r);
    return reply;
}

static void expect_text(struct fl_bytes b, const char *text)
{
    assert_int_equal(b.len, strlen(text));
    assert_memory_equal(b.data, text, b.len);
}

TEST(test_show)
{
    struct fl_lock_list *list;
    redisReply *r = parse("*18\r\n+name\r\n$1\r\nx\r\n$5\r\nstate\r\n$4\r\nheld\r\n"
                          "$5\r\nowner\r\n$3\r\nabc\r\n$5\r\ntoken\r\n:33\r\n"
                          "$6\r\nage_ms\r\n:1500\r\n$11\r\nttl_left_ms\r\n:8500\r\n"
                          "$7\r\nwaiters\r\n:9\r\n$3\r\nnew\r\n*1\r\n:1\r\n"
                          "$5\r\nqueue\r\n*2\r\n*2\r\n$5\r\nowner\r\n$1\r\np\r\n"
                          "*2\r\n$5\r\nowner\r\n$1\r\nq\r\n");
    assert_int_equal(fli_list_read(FLI_LIST_ONE, r, &list), 0);
    assert_int_equal(list->len, 1);
    const struct fl_lock_info *l = list->locks[0];
    expect_text(l->name, "x");
    expect_text(l->owner, "abc");
    expect_text(l->value, "");
    assert_int_equal(l->state, FL_LOCK_HELD);
    assert_int_equal(l->token, 33);
    assert_int_equal(l->age_ms, 1500);
    assert_int_equal(l->ttl_left_ms, 8500);
    assert_int_equal(l->waiters, 9);
    assert_int_equal(l->queue_len, 2);
    expect_text(l->queue[0]->owner, "p");
    expect_text(l->queue[1]->owner, "q");
    fl_lock_list_free(list);
}

TEST(test_show_of_several_holders)
{
    struct fl_lock_list *list;
    redisReply *r = parse("*12\r\n+name\r\n$1\r\nx\r\n+state\r\n+held\r\n+mode\r\n$6\r\nshared\r\n"
                          "+permits\r\n:1\r\n+holders\r\n:2\r\n+held_by\r\n*2\r\n"
                          "*4\r\n+token\r\n:7\r\n+owner\r\n$1\r\na\r\n"
                          "*6\r\n+token\r\n:9\r\n+owner\r\n$1\r\nb\r\n+ttl_left_ms\r\n:50\r\n");
    assert_int_equal(fli_list_read(FLI_LIST_ONE, r, &list), 0);
    const struct fl_lock_info *l = list->locks[0];
    assert_int_equal(l->mode, FL_MODE_SHARED);
    assert_int_equal(l->permits, 1);
    assert_int_equal(l->holders, 2);
    assert_int_equal(l->held_by_len, 2);
    assert_int_equal(l->held_by[0]->token, 7);
    expect_text(l->held_by[1]->owner, "b");
    assert_int_equal(l->held_by[1]->ttl_left_ms, 50);
    fl_lock_list_free(list);
}

TEST(test_missing_fields_are_empty)
{
    struct fl_lock_list *list;
    assert_int_equal(fli_list_read(FLI_LIST_ONE, parse("*0\r\n"), &list), 0);
    assert_int_equal(list->locks[0]->name.len, 0);
    assert_int_equal(list->locks[0]->state, FL_LOCK_OTHER);
    assert_int_equal(list->locks[0]->queue_len, 0);
    fl_lock_list_free(list);
    /* Known names with values of unexpected types. */
    assert_int_equal(fli_list_read(FLI_LIST_ONE,
                                   parse("*6\r\n+token\r\n+x\r\n+name\r\n:1\r\n:1\r\n:2\r\n"),
                                   &list),
                     0);
    assert_int_equal(list->locks[0]->token, 0);
    assert_int_equal(list->locks[0]->name.len, 0);
    fl_lock_list_free(list);
}

TEST(test_broken_shows)
{
    static const char *const rows[] = {"*1\r\n+name\r\n", "*2\r\n+queue\r\n*1\r\n:1\r\n",
                                       "*2\r\n+held_by\r\n*1\r\n:1\r\n",
                                       "*2\r\n+held_by\r\n*1\r\n*1\r\n:1\r\n"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fl_lock_list *list = NULL;
        assert_int_equal(fli_list_read(FLI_LIST_ONE, parse(rows[i]), &list), FL_EPROTO);
        assert_null(list);
    }
}

TEST(test_pages)
{
    struct fl_lock_list *list;
    assert_int_equal(fli_list_read(FLI_LIST_LOCKS, parse("*2\r\n$0\r\n\r\n*0\r\n"), &list), 0);
    assert_int_equal(list->len, 0);
    assert_int_equal(list->cursor.len, 0);
    fl_lock_list_free(list);
    const char *two = "*2\r\n$2\r\nh7\r\n*2\r\n*4\r\n+name\r\n$1\r\na\r\n+state\r\n+queued\r\n"
                      "*4\r\n+name\r\n$1\r\nb\r\n+state\r\n+delayed\r\n";
    assert_int_equal(fli_list_read(FLI_LIST_LOCKS, parse(two), &list), 0);
    assert_int_equal(list->len, 2);
    expect_text(list->cursor, "h7");
    expect_text(list->locks[1]->name, "b");
    assert_int_equal(list->locks[0]->state, FL_LOCK_QUEUED);
    assert_int_equal(list->locks[1]->state, FL_LOCK_DELAYED);
    fl_lock_list_free(list);
}

TEST(test_broken_pages)
{
    static const char *const rows[] = {"*0\r\n",
                                       "*2\r\n:1\r\n*0\r\n",
                                       "*2\r\n$0\r\n\r\n:1\r\n",
                                       "*3\r\n$0\r\n\r\n*0\r\n:1\r\n",
                                       "*2\r\n$0\r\n\r\n*1\r\n:1\r\n",
                                       "*2\r\n$0\r\n\r\n*2\r\n*0\r\n*1\r\n:1\r\n"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fl_lock_list *list = NULL;
        assert_int_equal(fli_list_read(FLI_LIST_LOCKS, parse(rows[i]), &list), FL_EPROTO);
        assert_null(list);
    }
}

TEST(test_info)
{
    static const char text[] =
        "# Node\r\nrole:master\r\nnode_role:leader\r\nterm:7\nversion:0.1.0\r\n"
        "last_token:9007199254740991\r\ncommit_index:x\r\nnonsense\r\n"
        "leader_address:[::1]:80\r\n:\r\n\r\nuptime_ms:3000\r\n"
        "applied_index:12";
    struct fl_node_status s;
    fli_status_of_info(text, sizeof text - 1, &s, sizeof s);
    assert_string_equal(s.role, "leader");
    assert_string_equal(s.version, "0.1.0");
    assert_string_equal(s.leader, "[::1]:80");
    assert_int_equal(s.term, 7);
    assert_int_equal(s.last_token, FL_TOKEN_MAX);
    assert_int_equal(s.commit_index, 0);
    assert_int_equal(s.applied_index, 12);
    assert_int_equal(s.uptime_ms, 3000);
    fli_status_of_info("", 0, &s, sizeof s);
    assert_string_equal(s.role, "");
    char longer[200];
    memset(longer, 'r', sizeof longer);
    memcpy(longer, "node_role:", 10);
    fli_status_of_info(longer, sizeof longer, &s, sizeof s);
    assert_int_equal(strlen(s.role), sizeof s.role - 1);
}

static size_t dice(uint64_t *s, size_t n)
{
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(*s >> 33) % n;
}

/* Damaged replies give an error or a list, and never more than that. */
TEST(test_random_damage)
{
    static const char good[] =
        "*2\r\n$2\r\nh7\r\n*2\r\n*6\r\n+name\r\n$1\r\na\r\n+state\r\n+queued\r\n+queue\r\n*2\r\n"
        "*2\r\n+owner\r\n$1\r\nz\r\n$1\r\ny\r\n*4\r\n+name\r\n$1\r\nb\r\n+state\r\n+held\r\n";
    const char *given = getenv("FENCELOCK_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 7;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < 100000; i++) {
        char bytes[sizeof good];
        memcpy(bytes, good, sizeof good);
        for (unsigned k = 0; k < 1 + i % 3; k++) {
            static const char alphabet[] = "*:$+-0123456789\r\nx";
            bytes[dice(&seed, sizeof good - 1)] = alphabet[dice(&seed, sizeof alphabet - 1)];
        }
        redisReader *r = redisReaderCreate();
        void *reply = NULL;
        redisReaderFeed(r, bytes, sizeof good - 1);
        if (redisReaderGetReply(r, &reply) == REDIS_OK && reply != NULL) {
            struct fl_lock_list *list = NULL;
            int rc = i % 2 == 0 ? fli_list_read(FLI_LIST_LOCKS, reply, &list)
                                : fli_list_read(FLI_LIST_ONE, reply, &list);
            assert_int_equal(rc == 0, list != NULL);
            fl_lock_list_free(list);
        }
        redisReaderFree(r);
    }
}
