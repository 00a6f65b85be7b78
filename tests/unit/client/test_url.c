/* test_url.c: addresses as URLs: what is read, what is refused, and that no password is told. */
#include "../../lib/unit.h"

#include "client/url.h"
#include "fencelock/store_client.h"

static void reads(const char *text, bool tls, const char *nodes, const char *user,
                  const char *password)
{
    struct fli_url u;
    char errmsg[256] = "";
    assert_true(fli_url_is(text));
    assert_int_equal(fli_url_parse(text, &u, errmsg, sizeof errmsg), 0);
    assert_int_equal(u.tls, tls);
    assert_string_equal(u.nodes, nodes);
    assert_string_equal(u.user, user);
    assert_string_equal(u.password, password);
}

TEST(test_read)
{
    reads("fencelock://a:1", false, "a:1", "", "");
    reads("fencelocks://a:1,[::1]:2/", true, "a:1,[::1]:2", "", "");
    reads("fencelocks://ann:secret@a:1", true, "a:1", "ann", "secret");
    reads("fencelock://a%3Ab:%40%2f%25%C3%a4@a:1,b:2", false, "a:1,b:2", "a:b", "@/%\xc3\xa4");
    reads("fencelock://ann:s:e@c@a:1", false, "a:1", "ann", "s:e@c"); /* the last @ counts */
    assert_false(fli_url_is("127.0.0.1:7401,[::1]:7401"));
}

TEST(test_refused)
{
    static const char *const wrong[] = {"redis://a:1",
                                        "fencelockx://a:1",
                                        "://a:1",
                                        "fencelock://",
                                        "fencelock:///",
                                        "fencelock://ann@a:1",
                                        "fencelock://:secret@a",
                                        "fencelock://ann:@a:1",
                                        "fencelock://ann:secret%@a:1",
                                        "fencelock://a%:secret@a",
                                        "fencelock://ann:secret%4@a:1",
                                        "fencelock://ann:secret%zz@a:1",
                                        "fencelock://ann:secret%00@a:1",
                                        "fencelock://ann:secret@"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct fli_url u;
        char errmsg[256] = "";
        assert_int_equal(fli_url_parse(wrong[i], &u, errmsg, sizeof errmsg), FL_EINVAL);
        assert_non_null(strstr(errmsg, "fencelock://HOST:PORT"));
        assert_null(strstr(errmsg, "secret"));
    }
}

/* At the longest, and one byte more. */
TEST(test_limits)
{
    for (unsigned more = 0; more < 2; more++) {
        char text[FL_USER_MAX + FL_PASSWORD_MAX + 64];
        char user[FL_USER_MAX + 2] = "";
        char password[FL_PASSWORD_MAX + 2] = "";
        struct fli_url u;
        char errmsg[256];
        memset(user, 'u', FL_USER_MAX + more);
        memset(password, 'p', FL_PASSWORD_MAX);
        snprintf(text, sizeof text, "fencelock://%s:%s@a:1", user, password);
        assert_int_equal(fli_url_parse(text, &u, errmsg, sizeof errmsg), more ? FL_EINVAL : 0);
        memset(password, 'p', FL_PASSWORD_MAX + more);
        user[FL_USER_MAX] = '\0';
        snprintf(text, sizeof text, "fencelock://%s:%s@a:1", user, password);
        assert_int_equal(fli_url_parse(text, &u, errmsg, sizeof errmsg), more ? FL_EINVAL : 0);
    }
    static char text[FLI_URL_NODES_MAX + 32] = "fencelock://";
    size_t scheme = strlen(text);
    struct fli_url u;
    char errmsg[256];
    memset(text + scheme, 'a', FLI_URL_NODES_MAX - 1);
    assert_int_equal(fli_url_parse(text, &u, errmsg, sizeof errmsg), 0);
    text[scheme + FLI_URL_NODES_MAX - 1] = 'a';
    assert_int_equal(fli_url_parse(text, &u, errmsg, sizeof errmsg), FL_EINVAL);
}

TEST(test_create)
{
    static const struct fl_tls_options tls;
    const struct fl_client_options user = {.user = "ann", .password = "x"};
    const struct fl_client_options secure = {.tls = &tls};
    fl_client *c = NULL;
    fl_store *s = NULL;
    assert_int_equal(fl_open("fencelock://ann:x@127.0.0.1:1,127.0.0.1:2", NULL, &c), 0);
    fl_close(c);
    assert_int_equal(fl_open("fencelock://127.0.0.1:1", &user, &c), 0);
    fl_close(c);
    assert_int_equal(fl_open("fencelocks://127.0.0.1:1", NULL, &c), 0);
    fl_close(c);
    assert_int_equal(fl_open("fencelock://ann:x@127.0.0.1:1", &user, &c), FL_EINVAL);
    assert_int_equal(fl_open("fencelock://127.0.0.1:1", &secure, &c), FL_EINVAL);
    assert_int_equal(fl_open("fencelock://127.0.0.1", NULL, &c), FL_EINVAL);
    assert_int_equal(fl_store_open("fencelock://ann:x@127.0.0.1:1", NULL, &s), 0);
    fl_store_close(s);
    assert_int_equal(fl_store_open("fencelock://ann:x@127.0.0.1:1", &user, &s), FL_EINVAL);
}
