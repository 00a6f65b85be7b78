/* Addresses as people write them. */
#include "../../lib/unit.h"

#include "client/nodes.h"

static int parse(const char *text, struct fli_node *ret)
{
    char errmsg[128] = "";
    int rc = fli_node_parse(text, strlen(text), ret, errmsg, sizeof errmsg);
    assert_int_equal(rc == 0, errmsg[0] == '\0');
    return rc;
}

TEST(test_good_addresses)
{
    static const struct {
        const char *text, *host, *port;
    } rows[] = {
        {"127.0.0.1:7401", "127.0.0.1", "7401"}, {"host:1", "host", "1"},
        {"a-b.c:65535", "a-b.c", "65535"},       {"[::1]:7401", "::1", "7401"},
        {"[fe80::1%lo]:80", "fe80::1%lo", "80"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fli_node n;
        assert_int_equal(parse(rows[i].text, &n), 0);
        assert_string_equal(n.text, rows[i].text);
        assert_string_equal(n.host, rows[i].host);
        assert_string_equal(n.port, rows[i].port);
    }
}

TEST(test_bad_addresses)
{
    static const char *const rows[] = {"",       "host",   "host:",    ":80",   "[]:80",
                                       "::1:80", "host:0", "host:x",   "h:1x",  "host:65536",
                                       "h:+1",   "h: 1",   "ho st:80", "a:b:1", "h:-1"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fli_node n;
        assert_int_equal(parse(rows[i], &n), FL_EINVAL);
    }
}

TEST(test_longest_address)
{
    char text[FL_ADDRESS_MAX + 2];
    memset(text, 'a', sizeof text);
    struct fli_node n;
    memcpy(text + FL_ADDRESS_MAX - 2, ":1", 3);
    assert_int_equal(parse(text, &n), 0);
    memset(text, 'a', sizeof text);
    memcpy(text + FL_ADDRESS_MAX - 1, ":1", 3);
    assert_int_equal(parse(text, &n), FL_EINVAL);
}

static int parse_list(const char *text, struct fli_node *nodes, uint32_t *n)
{
    char errmsg[128] = "";
    int rc = fli_nodes_parse(text, false, nodes, n, errmsg, sizeof errmsg);
    assert_int_equal(rc == 0, errmsg[0] == '\0');
    return rc;
}

TEST(test_lists)
{
    struct fli_node nodes[FL_NODES_MAX];
    uint32_t n = 0;
    assert_int_equal(parse_list("a:1", nodes, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(parse_list("a:1,b:2,[::1]:3", nodes, &n), 0);
    assert_int_equal(n, 3);
    assert_string_equal(nodes[2].text, "[::1]:3");
    static const char *const bad[] = {"", ",", "a:1,", ",a:1", "a:1,,b:2", "a:1,a:1", "a:1, b:2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse_list(bad[i], nodes, &n), FL_EINVAL);
        assert_int_equal(n, 3); /* untouched */
    }
}

TEST(test_most_nodes)
{
    struct fli_node nodes[FL_NODES_MAX];
    uint32_t n = 0;
    char text[512] = "";
    for (unsigned i = 1; i <= FL_NODES_MAX; i++) {
        size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "%sh:%u", i == 1 ? "" : ",", i);
    }
    assert_int_equal(parse_list(text, nodes, &n), 0);
    assert_int_equal(n, FL_NODES_MAX);
    size_t len = strlen(text);
    snprintf(text + len, sizeof text - len, ",h:99");
    assert_int_equal(parse_list(text, nodes, &n), FL_EINVAL);
}
