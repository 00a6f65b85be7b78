/* test_arguments.c: arguments of the public calls that are refused before anything is sent. */
#include "../../lib/unit.h"

#include <limits.h>
#include <stddef.h>

#include "client/lists.h"
#include "fencelock/store_client.h"

#define TOO_LONG_MS (FL_TIMEOUT_MAX_MS + 1)
#define TOO_LONG_TEXT "a timeout is at most"

static int never(void *arg, const void *data, size_t len)
{
    fail();
    return 0;
}

/* Such a time added to the clock's would be over already. */
TEST(a_timeout_that_is_too_long)
{
    fl_client *c;
    struct fl_result r;
    struct fl_node_status status;
    assert_int_equal(fl_open("127.0.0.1:1", NULL, &c), 0);
    for (int what = 0; what <= FL_ASK_SESSIONS; what++) {
        const struct fl_ask ask = {.what = (enum fl_asked)what,
                                   .name = fl_str("x"),
                                   .token = 1,
                                   .timeout_ms = what % 2 == 0 ? TOO_LONG_MS : UINT64_MAX};
        assert_int_equal(fl_ask(c, &ask, &r), FL_EINVAL);
        assert_non_null(strstr(fl_client_error(c), TOO_LONG_TEXT));
    }
    assert_int_equal(fl_node_ask(c, 0, UINT64_MAX, &status, sizeof status), FL_EINVAL);
    assert_int_equal(fl_backup(c, 0, TOO_LONG_MS, never, NULL), FL_EINVAL);
    assert_non_null(strstr(fl_client_error(c), TOO_LONG_TEXT));
    fl_close(c);
}

/* A program goes on after fl_open() has failed: every call says so. */
TEST(no_client)
{
    fl_client *c = (fl_client *)(uintptr_t)1;
    fl_lock *lock;
    struct fl_result r;
    const struct fl_ask check = {.what = FL_ASK_CHECK, .name = fl_str("x"), .token = 1};
    assert_int_equal(fl_open("nonsense", NULL, &c), FL_EINVAL);
    assert_null(c);
    assert_int_equal(fl_lock_take(c, "x", NULL, &lock), FL_EINVAL);
    assert_non_null(strstr(fl_client_error(c), "not opened"));
    assert_int_equal(fl_ask(c, &check, &r), FL_EINVAL);
    assert_int_equal(fl_backup(c, 0, 0, never, NULL), FL_EINVAL);
    fl_close(c);
}

/* What a newer header names is not asked for. */
TEST(kinds_that_are_not_known)
{
    fl_client *c;
    struct fl_result r;
    const struct fl_member_change member = {.id = 1};
    assert_int_equal(fl_open("127.0.0.1:1", NULL, &c), 0);
    for (int more = 0; more < 2; more++) {
        int past = more == 0 ? 1 : INT_MAX / 2;
        const struct fl_ask ask = {.what = (enum fl_asked)(FL_ASK_SESSIONS + past),
                                   .name = fl_str("x")};
        assert_int_equal(fl_ask(c, &ask, &r), FL_EINVAL);
        assert_int_equal(fl_ask_start(c, &ask, NULL, NULL, NULL), FL_EINVAL);
        assert_int_equal(
            fl_member_change(c, (enum fl_change)(FL_CHANGE_TRANSFER + past), &member, 10),
            FL_EINVAL);
        assert_non_null(strstr(fl_client_error(c), "does not know"));
    }
    fl_close(c);
}

/* What a newer header names is not passed over. */
TEST(options_that_are_not_known)
{
    fl_client *c;
    fl_lock *lock;
    struct fl_client_options options = {.reserved = {0, 0, 1}};
    struct fl_take how = {.reserved = {[5] = 1}};
    struct fl_take session = {.reserved = {1}};
    assert_int_equal(fl_open("127.0.0.1:1", &options, &c), FL_EINVAL);
    assert_int_equal(fl_open("127.0.0.1:1", NULL, &c), 0);
    assert_int_equal(fl_lock_take(c, "x", &how, &lock), FL_EINVAL);
    assert_non_null(strstr(fl_client_error(c), "does not know"));
    assert_int_equal(fl_session_open(c, &session, &lock), FL_EINVAL);
    fl_close(c);
}

/* A program that was compiled before has a smaller struct, and a later one a larger. */
TEST(a_status_of_another_size)
{
    struct {
        struct fl_node_status status;
        uint64_t more;
    } later = {.more = 7};
    struct fl_node_status status = {.breaks = 7};
    static const char text[] = "node_role:leader\r\nbreaks:5\r\n";
    fli_status_of_info(text, strlen(text), &status, offsetof(struct fl_node_status, breaks));
    assert_string_equal(status.role, "leader");
    assert_int_equal(status.breaks, 7);
    fli_status_of_info(text, strlen(text), &later.status, sizeof later);
    assert_int_equal(later.status.breaks, 5);
    assert_int_equal(later.more, 0);
}

TEST(the_version)
{
    assert_string_equal(fl_version(), FENCELOCK_VERSION);
}

TEST(a_timeout_of_a_storage_that_is_too_long)
{
    fl_store *s;
    fl_token mark;
    assert_int_equal(fl_store_open("127.0.0.1:1", NULL, &s), 0);
    assert_int_equal(fl_store_mark(s, fl_str("x"), TOO_LONG_MS, &mark), FL_EINVAL);
    assert_non_null(strstr(fl_store_error(s), TOO_LONG_TEXT));
    fl_store_close(s);
}
