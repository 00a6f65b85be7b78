/* test_configuration.c: configurations in memory and as bytes, ours and the raft library's. */
#include "../../lib/unit.h"

#include "base/bytes.h"
#include "consensus/configuration.h"

static void add(struct configuration *c, uint64_t id, const char *address,
                enum configuration_role role)
{
    assert_int_equal(configuration_add(c, id, id, address, role), 0);
}

static struct configuration sample(void)
{
    struct configuration c = {0};
    add(&c, 30, "third:3", CONFIGURATION_LEARNER);
    add(&c, 1, "f", CONFIGURATION_VOTER);
    add(&c, UINT64_MAX, "last:65535", CONFIGURATION_VOTER);
    return c;
}

/* As many servers as there may be, with the longest addresses. */
static struct configuration largest(void)
{
    struct configuration c = {0};
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        char address[MEMBER_ADDRESS_MAX];
        memset(address, 'x', sizeof address - 1);
        address[sizeof address - 1] = '\0';
        address[0] = (char)('a' + i);
        add(&c, UINT64_MAX - i, address, CONFIGURATION_VOTER);
    }
    return c;
}

/* A log that began with a restored state has none before its members have met. */
TEST(there_may_be_no_server)
{
    struct configuration none = {0};
    struct configuration back = {.n = 7};
    uint8_t bytes[CONFIGURATION_SIZE_MAX];
    size_t len = configuration_encode(&none, bytes);
    assert_int_equal(configuration_decode(bytes, len, &back), 0);
    assert_memory_equal(&back, &none, sizeof back);
}

TEST(a_server_is_an_incarnation)
{
    struct configuration c = {.cluster_id = 5};
    assert_int_equal(configuration_add(&c, 2, 77, "b:1", CONFIGURATION_VOTER), 0);
    assert_int_equal(configuration_add(&c, 1, UINT64_MAX, "a:1", CONFIGURATION_LEARNER), 0);
    assert_int_equal(configuration_server(&c, 77)->id, 2);
    assert_int_equal(configuration_server(&c, UINT64_MAX)->id, 1);
    assert_null(configuration_server(&c, 2));
    assert_null(configuration_server(&c, 0));
    struct raft_configuration core;
    configuration_to_raft(&c, &core);
    assert_int_equal(core.n, 2);
    assert_true(core.servers[0].id == UINT64_MAX && core.servers[1].id == 77);
    raft_configuration_close(&core);
}

TEST(servers_stand_in_order)
{
    struct configuration c = sample();
    assert_int_equal(c.n, 3);
    assert_int_equal(c.servers[0].id, 1);
    assert_int_equal(c.servers[1].id, 30);
    assert_true(c.servers[2].id == UINT64_MAX);
    assert_int_equal(configuration_voters(&c), 2);
    assert_string_equal(configuration_find(&c, 30)->address, "third:3");
    assert_null(configuration_find(&c, 2));
    configuration_find(&c, 30)->role = CONFIGURATION_VOTER;
    assert_null(configuration_find(&c, 31));
    assert_int_equal(configuration_voters(&c), 3);
    assert_int_equal(configuration_remove(&c, 1), 0);
    assert_int_equal(configuration_remove(&c, 1), FL_ENOTFOUND);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.servers[0].id, 30);
}

TEST(what_does_not_fit_is_refused)
{
    struct configuration c = sample();
    struct configuration before = c;
    char longest[MEMBER_ADDRESS_MAX + 1];
    memset(longest, 'x', sizeof longest);
    longest[MEMBER_ADDRESS_MAX] = '\0';
    assert_int_equal(configuration_add(&c, 0, 2, "a", CONFIGURATION_VOTER), FL_EINVAL);
    assert_int_equal(configuration_add(&c, 2, 0, "a", CONFIGURATION_VOTER), FL_EINVAL);
    assert_int_equal(configuration_add(&c, 2, 2, "", CONFIGURATION_VOTER), FL_EINVAL);
    assert_int_equal(configuration_add(&c, 30, 2, "a", CONFIGURATION_VOTER), FL_EINVAL);
    assert_int_equal(configuration_add(&c, 2, 30, "a", CONFIGURATION_VOTER), FL_EINVAL);
    assert_int_equal(configuration_add(&c, 2, 2, "third:3", CONFIGURATION_VOTER), FL_EINVAL);
    assert_int_equal(configuration_add(&c, 2, 2, longest, CONFIGURATION_VOTER), FL_EINVAL);
    assert_memory_equal(&c, &before, sizeof c);
    longest[MEMBER_ADDRESS_MAX - 1] = '\0';
    add(&c, 2, longest, CONFIGURATION_VOTER);
    c = largest();
    assert_int_equal(configuration_add(&c, 1, 1, "one more", CONFIGURATION_VOTER), FL_ELIMIT);
    assert_int_equal(c.n, MEMBERS_MAX);
}

TEST(bytes_come_back)
{
    struct configuration all[2] = {sample(), largest()};
    for (unsigned i = 0; i < 2; i++) {
        uint8_t bytes[CONFIGURATION_SIZE_MAX];
        struct configuration back;
        size_t len = configuration_encode(&all[i], bytes);
        memset(&back, 0xff, sizeof back);
        assert_int_equal(configuration_decode(bytes, len, &back), 0);
        assert_memory_equal(&back, &all[i], sizeof back);
    }
}

/* Any cut, any byte behind the end. Each from memory of just that size. */
TEST(no_part_is_taken_for_the_whole)
{
    struct configuration c = sample();
    struct configuration back = {.n = 7};
    uint8_t bytes[CONFIGURATION_SIZE_MAX] = {0};
    size_t len = configuration_encode(&c, bytes);
    for (size_t cut = 0; cut <= len + 1; cut++) {
        uint8_t *exact = malloc(cut + (cut == 0));
        assert_non_null(exact);
        memcpy(exact, bytes, cut);
        assert_int_equal(configuration_decode(exact, cut, &back), cut == len ? 0 : FL_ECORRUPT);
        free(exact);
    }
}

/* One field of the first server, or of the head, is set to a value. */
TEST(fields_have_ranges)
{
    static const struct {
        size_t at;
        uint8_t value;
        int error;
    } ROWS[] = {
        {0, 1, FL_EVERSION},
        {0, 3, FL_EVERSION},
        {1, 0, FL_ECORRUPT},
        {1, MEMBERS_MAX + 1, FL_ECORRUPT},
        {10, 0, FL_ECORRUPT},
        {10, 30, FL_ECORRUPT}, /* an id of 0; one that stands twice */
        {10, 31, FL_ECORRUPT},
        {26, 0, FL_ECORRUPT}, /* ids that fall; a role of 0 */
        {18, 0, FL_ECORRUPT},
        {18, 30, FL_ECORRUPT}, /* an incarnation of 0; one that stands twice */
        {26, 3, FL_ECORRUPT},
        {27, 0, FL_ECORRUPT}, /* a role of 3; an address of no bytes */
        {27, 255, FL_ECORRUPT},
        {28, 255, FL_ECORRUPT},
        {29, 0, FL_ECORRUPT},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct configuration c = sample();
        struct configuration back = {.n = 7};
        uint8_t bytes[CONFIGURATION_SIZE_MAX];
        size_t len = configuration_encode(&c, bytes);
        bytes[ROWS[i].at] = ROWS[i].value;
        int rv = configuration_decode(bytes, len, &back);
        if (rv != ROWS[i].error) {
            fail_msg("byte %zu set to %u: %d", ROWS[i].at, ROWS[i].value, rv);
        }
        assert_int_equal(back.n, 7);
    }
}

/* The same address twice, which no one server has wrong. */
TEST(addresses_differ)
{
    struct configuration c = {0};
    uint8_t bytes[CONFIGURATION_SIZE_MAX];
    add(&c, 1, "a:1", CONFIGURATION_VOTER);
    add(&c, 2, "b:1", CONFIGURATION_VOTER);
    size_t len = configuration_encode(&c, bytes);
    bytes[len - 3] = 'a';
    assert_int_equal(configuration_decode(bytes, len, &c), FL_ECORRUPT);
}

TEST(the_library_reads_its_bytes)
{
    struct configuration all[2] = {sample(), largest()};
    for (unsigned i = 0; i < 2; i++) {
        struct raft_buffer bytes = configuration_to_raft_bytes(&all[i]);
        struct raft_configuration conf;
        assert_int_equal(raft_configuration_decode(&bytes, &conf), 0);
        assert_int_equal(conf.n, all[i].n);
        for (unsigned k = 0; k < conf.n; k++) {
            const struct configuration_server *s = &all[i].servers[k];
            assert_true(conf.servers[k].id == s->id);
            assert_string_equal(conf.servers[k].address, s->address);
            assert_int_equal(conf.servers[k].role,
                             s->role == CONFIGURATION_VOTER ? RAFT_VOTER : RAFT_STANDBY);
        }
        raft_configuration_close(&conf);
        raft_free(bytes.base);
    }
}
