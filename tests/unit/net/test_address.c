/* test_address.c: addresses as people write them. */
#include "../../lib/unit.h"

#include "base/address.h"
#include "net/address.h"

TEST(splits_and_joins)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
    } good[] = {{"127.0.0.1:7401", "127.0.0.1", 7401},
                {"localhost:0", "localhost", 0},
                {"[::1]:65535", "::1", 65535},
                {"a.b-c.example:1", "a.b-c.example", 1}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char host[NET_HOST_MAX];
        char text[NET_ADDRESS_MAX];
        uint16_t port = 1;
        assert_int_equal(net_address_split(good[i].text, host, &port), 0);
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
        (void)net_address_join(host, port, text, sizeof text);
        assert_string_equal(text, good[i].text);
    }
}

TEST(refuses)
{
    static const char *const bad[] = {"",        "host",    ":1",    "host:",  "host:65536",
                                      "host:-1", "host: 1", "::1:1", "[::1]",  "[]:1",
                                      "[x:1",    "x]:1",    "a b:1", "host:1x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char host[NET_HOST_MAX];
        uint16_t port = 77;
        if (net_address_split(bad[i], host, &port) != FL_EINVAL) {
            fail_msg("'%s' was accepted", bad[i]);
        }
        assert_int_equal(port, 77);
    }
}

TEST(longest_host)
{
    char text[NET_HOST_MAX + 8];
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    memset(text, 'h', sizeof text);
    memcpy(text + 255, ":9", 3);
    assert_int_equal(net_address_split(text, host, &port), 0);
    assert_int_equal(strlen(host), 255);
    memset(text, 'h', sizeof text);
    memcpy(text + 256, ":9", 3);
    assert_int_equal(net_address_split(text, host, &port), FL_EINVAL);
}

TEST(a_port_alone)
{
    char out[32] = "7412";
    assert_true(net_address_of_port(out, "10.0.0.1:7411", out, sizeof out));
    assert_string_equal(out, "10.0.0.1:7412");
    assert_true(net_address_of_port("1", "[::1]:7411", out, sizeof out));
    assert_string_equal(out, "[::1]:1");
    assert_true(net_address_of_port("1", "off", out, sizeof out));
    assert_string_equal(out, "127.0.0.1:1");
    assert_true(net_address_of_port("h:1", "10.0.0.1:7411", out, sizeof out));
    assert_string_equal(out, "h:1");
    assert_true(net_address_of_port("1", "off", out, sizeof "127.0.0.1:1"));
    assert_false(net_address_of_port("1", "off", out, sizeof "127.0.0.1:1" - 1));
    assert_true(net_address_of_port("h:1", "off", out, 4));
    assert_false(net_address_of_port("h:1", "off", out, 3));
}

TEST(knows_loopback)
{
    assert_true(net_host_is_loopback("127.0.0.1"));
    assert_true(net_host_is_loopback("127.9.9.9"));
    assert_true(net_host_is_loopback("::1"));
    assert_true(net_host_is_loopback("::ffff:127.0.0.1"));
    assert_true(net_host_is_loopback("localhost"));
    assert_false(net_host_is_loopback("0.0.0.0"));
    assert_false(net_host_is_loopback("::"));
    assert_false(net_host_is_loopback("*"));
    assert_false(net_host_is_loopback("10.0.0.1"));
    assert_false(net_host_is_loopback("fe80::1"));
    assert_false(net_host_is_loopback("::ffff:10.0.0.1"));
    assert_false(net_host_is_loopback("no such host"));
    assert_true(fli_host_is_any("0.0.0.0") && fli_host_is_any("::") && fli_host_is_any("*"));
}
