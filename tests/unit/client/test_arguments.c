/* test_arguments.c: arguments of the public calls that are refused before anything is sent. */
#include "../../lib/unit.h"

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
    struct fl_lock_list *locks;
    struct fl_session_list *sessions;
    struct fl_node_status status;
    const struct fl_bytes none = {"", 0};
    assert_int_equal(fl_client_create("127.0.0.1:1", NULL, &c), 0);
    const int codes[] = {
        fl_show(c, fl_str("x"), TOO_LONG_MS, &locks),
        fl_locks(c, none, none, 1, UINT64_MAX, &locks),
        fl_busiest(c, 1, TOO_LONG_MS, &locks),
        fl_sessions(c, none, 1, TOO_LONG_MS, &sessions),
        fl_node_ask(c, 0, UINT64_MAX, &status),
        fl_backup(c, 0, TOO_LONG_MS, never, NULL),
    };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        assert_int_equal(codes[i], FL_EINVAL);
    }
    assert_non_null(strstr(fl_client_error(c), TOO_LONG_TEXT));
    fl_client_destroy(c);
}

TEST(a_timeout_of_a_storage_that_is_too_long)
{
    fl_store *s;
    fl_token mark;
    assert_int_equal(fl_store_create("127.0.0.1:1", 0, &s), 0);
    assert_int_equal(fl_store_mark(s, fl_str("x"), TOO_LONG_MS, &mark), FL_EINVAL);
    assert_int_equal(fl_store_backup(s, TOO_LONG_MS, never, NULL), FL_EINVAL);
    assert_non_null(strstr(fl_store_error(s), TOO_LONG_TEXT));
    fl_store_destroy(s);
}
