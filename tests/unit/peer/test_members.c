/* Parsing of --cluster and of addresses. */
#include "../../lib/unit.h"

#include "peer/members.h"

struct row {
    const char *text;
    const char *canonical; /* NULL: refused */
    const char *says;      /* part of the message when refused */
};

static const struct row ROWS[] = {
    {"1=a:1", "1=a:1", NULL},
    {"1=127.0.0.1:7001,2=127.0.0.1:7002", "1=127.0.0.1:7001,2=127.0.0.1:7002", NULL},
    {"2=b:2,1=a:1", "1=a:1,2=b:2", NULL},
    {" 1=a:1 , 3=c:3,\t2=b:2 ", "1=a:1,2=b:2,3=c:3", NULL},
    {"9223372036854775807=a:1", "9223372036854775807=a:1", NULL},
    {"1=[::1]:65535", "1=[::1]:65535", NULL},
    {"1=[fe80::1%eth0]:1", "1=[fe80::1%eth0]:1", NULL},
    {"1=node-1.example_x.org:7000", "1=node-1.example_x.org:7000", NULL},
    {"", NULL, "ID=HOST:PORT"},
    {",", NULL, "ID=HOST:PORT"},
    {"1=a:1,", NULL, "ID=HOST:PORT"},
    {"a:1", NULL, "'a:1' is not of the form ID=HOST:PORT"},
    {"0=a:1", NULL, "from 1 up"},
    {"-1=a:1", NULL, "from 1 up"},
    {"x=a:1", NULL, "from 1 up"},
    {"=a:1", NULL, "from 1 up"},
    {"9223372036854775808=a:1", NULL, "from 1 up"},
    {"1=a", NULL, "'a' is not HOST:PORT"},
    {"1=", NULL, "is not HOST:PORT"},
    {"1=a:", NULL, "is not HOST:PORT"},
    {"1=:1", NULL, "is not HOST:PORT"},
    {"1=a:0", NULL, "is not HOST:PORT"},
    {"1=a:65536", NULL, "is not HOST:PORT"},
    {"1=a:1x", NULL, "is not HOST:PORT"},
    {"1=a:+1", NULL, "is not HOST:PORT"},
    {"1=a b:1", NULL, "is not HOST:PORT"},
    {"1=::1:1", NULL, "[ADDRESS]:PORT for IPv6"},
    {"1=[::1:1", NULL, "is not HOST:PORT"},
    {"1=[]:1", NULL, "is not HOST:PORT"},
    {"1=[::1]1", NULL, "is not HOST:PORT"},
    {"1=a:1,1=b:1", NULL, "id 1 appears twice"},
    {"1=a:1,2=a:1", NULL, "members 1 and 2 have the same address a:1"},
};

TEST(test_table)
{
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct members m;
        char text[MEMBERS_TEXT_MAX];
        char errmsg[256] = "";
        int rv = members_parse(ROWS[i].text, &m, errmsg, sizeof errmsg);
        if (ROWS[i].canonical != NULL) {
            assert_int_equal(rv, 0);
            assert_int_equal(members_format(&m, text, sizeof text), strlen(ROWS[i].canonical));
            assert_string_equal(text, ROWS[i].canonical);
            continue;
        }
        assert_int_equal(rv, FL_EINVAL);
        if (strstr(errmsg, ROWS[i].says) == NULL) {
            fail_msg("'%s': message is '%s'", ROWS[i].text, errmsg);
        }
    }
}

static void many(char *out, size_t size, unsigned n)
{
    size_t len = 0;
    for (unsigned i = 1; i <= n; i++) {
        len += (size_t)snprintf(out + len, size - len, "%s%u=h:%u", i == 1 ? "" : ",", i, i);
    }
}

TEST(test_count)
{
    struct members m;
    char text[512];
    char errmsg[256];
    many(text, sizeof text, MEMBERS_MAX);
    assert_int_equal(members_parse(text, &m, errmsg, sizeof errmsg), 0);
    assert_int_equal(m.n, MEMBERS_MAX);
    assert_non_null(members_find(&m, MEMBERS_MAX));
    assert_null(members_find(&m, MEMBERS_MAX + 1));
    many(text, sizeof text, MEMBERS_MAX + 1);
    assert_int_equal(members_parse(text, &m, errmsg, sizeof errmsg), FL_EINVAL);
    assert_non_null(strstr(errmsg, "more than 9"));
}

/* The longest host passes and comes back whole; one byte more is refused. */
TEST(test_longest)
{
    for (size_t len = 255; len <= 256; len++) {
        char text[300];
        char host[256];
        char errmsg[256];
        uint16_t port = 0;
        struct members m;
        memset(text, 0, sizeof text);
        text[0] = '1';
        text[1] = '=';
        memset(text + 2, 'x', len);
        memcpy(text + 2 + len, ":65535", sizeof ":65535");
        int rv = members_parse(text, &m, errmsg, sizeof errmsg);
        if (len == 256) {
            assert_int_equal(rv, FL_EINVAL);
            continue;
        }
        assert_int_equal(rv, 0);
        assert_string_equal(m.list[0].address, text + 2);
        assert_int_equal(address_split(m.list[0].address, host, &port), 0);
        assert_int_equal(strlen(host), 255);
        assert_int_equal(port, 65535);
    }
}

TEST(test_split)
{
    char host[256];
    uint16_t port = 0;
    assert_int_equal(address_split("[fe80::1%eth0]:80", host, &port), 0);
    assert_string_equal(host, "fe80::1%eth0");
    assert_int_equal(port, 80);
    assert_int_equal(address_split("10.0.0.1:7001", host, &port), 0);
    assert_string_equal(host, "10.0.0.1");
    assert_int_equal(port, 7001);
}

/* As snprintf: the length is the whole one, what fits is terminated. */
TEST(test_format_truncates)
{
    struct members m;
    char errmsg[256];
    char small[8];
    assert_int_equal(members_parse("1=abc:1,2=def:2", &m, errmsg, sizeof errmsg), 0);
    assert_int_equal(members_format(&m, small, sizeof small), 15);
    assert_string_equal(small, "1=abc:1");
    assert_int_equal(members_format(&m, NULL, 0), 15);
}
