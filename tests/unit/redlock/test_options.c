/* What fl_redlock_create() and the calls accept; nothing here needs a server. */
#include "rng.h"

#include <uv.h>

#include "fencelock/redlock.h"
#include "redlock/redlock_private.h"

static int create(const struct fl_redlock_options *o, fl_redlock **ret)
{
    char errmsg[256] = "";
    int rc = fl_redlock_create(NULL, o, ret, errmsg, sizeof errmsg);
    assert_int_equal(rc == 0, errmsg[0] == '\0');
    fl_redlock *other = NULL; /* errmsg may be NULL */
    assert_int_equal(fl_redlock_create(NULL, o, &other, NULL, 0), rc);
    fl_redlock_close(other, NULL, NULL);
    return rc;
}

static void reject(const struct fl_redlock_options *o)
{
    fl_redlock *r = NULL;
    assert_int_equal(create(o, &r), FL_EINVAL);
    assert_null(r);
}

TEST(test_servers)
{
    static const char *const bad[] = {"",
                                      ",",
                                      "a",
                                      "127.0.0.1:0",
                                      "127.0.0.1:65536",
                                      ":6379",
                                      "[]:6379",
                                      "::1:6379",
                                      "127.0.0.1:1,,127.0.0.1:2",
                                      "127.0.0.1:1,",
                                      "h h:1",
                                      "[::1:2",
                                      "127.0.0.1:1,127.0.0.1:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct fl_redlock_options o = {.servers = bad[i]};
        reject(&o);
    }
    const struct fl_redlock_options none = {0};
    reject(&none);
    static const char *const fine[] = {"127.0.0.1:1", "[::1]:1,127.0.0.1:1", "/no/such/socket"};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        const struct fl_redlock_options o = {.servers = fine[i]};
        fl_redlock *r;
        assert_int_equal(create(&o, &r), 0);
        fl_redlock_close(r, NULL, NULL);
    }
}

TEST(test_the_number_of_servers)
{
    char text[512] = "";
    for (unsigned i = 1; i <= FL_REDLOCK_SERVERS_MAX + 1; i++) {
        size_t len = strlen(text);
        (void)snprintf(text + len, sizeof text - len, "%s127.0.0.1:%u", i == 1 ? "" : ",", i);
        const struct fl_redlock_options o = {.servers = text};
        if (i > FL_REDLOCK_SERVERS_MAX) {
            reject(&o);
        } else if (i == FL_REDLOCK_SERVERS_MAX) {
            fl_redlock *r;
            assert_int_equal(create(&o, &r), 0);
            assert_int_equal(fl_redlock_servers(r), FL_REDLOCK_SERVERS_MAX);
            assert_string_equal(fl_redlock_address(r, 0), "127.0.0.1:1");
            assert_string_equal(fl_redlock_address(r, FL_REDLOCK_SERVERS_MAX), "");
            fl_redlock_close(r, NULL, NULL);
        }
    }
}

TEST(test_the_length_of_an_address)
{
    char path[400];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[107] = '\0'; /* sun_path has 108 bytes */
    struct fl_redlock_options o = {.servers = path};
    fl_redlock *r;
    assert_int_equal(create(&o, &r), 0);
    fl_redlock_close(r, NULL, NULL);
    path[107] = 'x';
    path[108] = '\0';
    reject(&o);
    path[108] = 'x';
    path[FL_REDLOCK_ADDRESS_MAX + 1] = '\0';
    reject(&o);
}

TEST(test_other_options)
{
    static char big[FL_REDLOCK_CREDENTIAL_MAX + 2];
    memset(big, 'p', sizeof big - 1);
    const struct fl_tls_options no_files = {.ca_file = "/no/such/file"};
    const struct fl_redlock_options bad[] = {
        {.servers = "127.0.0.1:1", .tls = &no_files},
        {.servers = "127.0.0.1:1", .key_format = ""},
        {.servers = "127.0.0.1:1", .key_format = "lock"},
        {.servers = "127.0.0.1:1", .key_format = "%s%s"},
        {.servers = "127.0.0.1:1", .key_format = "%d%s"},
        {.servers = "127.0.0.1:1", .key_format = "%s%"},
        {.servers = "127.0.0.1:1", .key_format = "%%s"},
        {.servers = "127.0.0.1:1", .max_ttl_ms = FL_TTL_MIN_MS - 1},
        {.servers = "127.0.0.1:1", .max_ttl_ms = FL_REDLOCK_TIME_MAX_MS + 1},
        {.servers = "127.0.0.1:1", .budget_ms = FL_REDLOCK_TIME_MAX_MS + 1},
        {.servers = "127.0.0.1:1", .retry_cap_ms = FL_REDLOCK_TIME_MAX_MS + 1},
        {.servers = "127.0.0.1:1", .login = {.username = "u"}},
        {.servers = "127.0.0.1:1", .login = {.password = big}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        reject(&bad[i]);
    }
    big[FL_REDLOCK_CREDENTIAL_MAX] = '\0';
    const struct fl_redlock_options fine = {.servers = "127.0.0.1:1",
                                            .login = {.password = big, .username = big},
                                            .max_ttl_ms = FL_REDLOCK_TIME_MAX_MS,
                                            .key_format = "100%%:%s:x"};
    fl_redlock *r;
    assert_int_equal(create(&fine, &r), 0);
    char key[FLI_REDIS_KEY_MAX];
    assert_int_equal(fli_make_key(r, fl_str("a"), key), 8);
    assert_memory_equal(key, "100%:a:x", 8);
    fl_redlock_close(r, NULL, NULL);
}

TEST(test_the_longest_key)
{
    char format[FL_REDLOCK_KEY_FORMAT_MAX + 2];
    char name[FL_NAME_MAX + 1];
    char key[FLI_REDIS_KEY_MAX];
    memset(format, 'f', sizeof format);
    memset(name, 'n', sizeof name);
    memcpy(format, "%s", 2);
    format[FL_REDLOCK_KEY_FORMAT_MAX + 1] = '\0';
    const struct fl_redlock_options o = {.servers = "127.0.0.1:1", .key_format = format};
    reject(&o);
    format[FL_REDLOCK_KEY_FORMAT_MAX] = '\0';
    fl_redlock *r;
    assert_int_equal(create(&o, &r), 0);
    const struct fl_bytes longest = {name, FL_NAME_MAX};
    assert_int_equal(fli_make_key(r, longest, key), FLI_REDIS_KEY_MAX - 2);
    fl_redlock_close(r, NULL, NULL);
}

static void done(void *ctx, int result, const struct fl_redlock_lock *lock,
                 const struct fl_redlock_report *report)
{
    *(int *)ctx = result;
}

TEST(test_arguments_of_calls)
{
    const struct fl_redlock_options o = {.servers = "127.0.0.1:1", .max_ttl_ms = 20000};
    fl_redlock *r;
    assert_int_equal(create(&o, &r), 0);
    char name[FL_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    struct fl_redlock_lock lock = {.ttl_ms = 1000};
    memset(lock.value, 'a', FL_REDLOCK_VALUE_LEN);
    int result = 0;
    const struct fl_bytes names[] = {{name, 0}, {name, FL_NAME_MAX + 1}, {NULL, 1}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fl_redlock_acquire(r, names[i], NULL, &lock), FL_EINVAL);
        assert_int_equal(fl_redlock_extend(r, names[i], 0, &lock), FL_EINVAL);
        assert_int_equal(fl_redlock_release(r, names[i], &lock), FL_EINVAL);
        assert_true(fl_redlock_error(r)[0] != '\0');
    }
    const struct fl_redlock_acquire_options bad[] = {
        {.ttl_ms = FL_TTL_MIN_MS - 1},
        {.ttl_ms = 20001},
        {.ttl_ms = 1000, .min_validity_ms = 1000},
        {.wait_ms = FL_REDLOCK_TIME_MAX_MS + 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fl_redlock_acquire(r, fl_str("a"), &bad[i], &lock), FL_EINVAL);
    }
    assert_int_equal(fl_redlock_extend(r, fl_str("a"), 20001, &lock), FL_EINVAL);
    assert_int_equal(fl_redlock_extend(r, fl_str("a"), 9, &lock), FL_EINVAL);
    lock.value[3] = '\0'; /* not what acquire gives */
    assert_int_equal(fl_redlock_release(r, fl_str("a"), &lock), FL_EINVAL);
    assert_int_equal(fl_redlock_acquire_start(r, fl_str("a"), NULL, NULL, NULL, NULL), FL_EINVAL);
    /* The longest name, and a server that is not there. */
    const struct fl_bytes longest = {name, FL_NAME_MAX};
    assert_int_equal(fl_redlock_acquire(r, longest, NULL, &lock), FL_ENOCONN);
    assert_int_equal(fl_redlock_last(r)->cause, FL_REDLOCK_UNREACHABLE);
    assert_int_equal(fl_redlock_last(r)->attempts, 1);
    (void)done;
    (void)result;
    fl_redlock_close(r, NULL, NULL);
    fl_redlock_close(NULL, NULL, NULL);
}

static void count_closed(void *ctx)
{
    ++*(int *)ctx;
}

TEST(test_on_a_loop_of_the_callers)
{
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    const struct fl_redlock_options o = {.servers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"};
    fl_redlock *r;
    int closed = 0;
    int results[3] = {1, 1, 1};
    struct fl_redlock_lock lock;
    assert_int_equal(fl_redlock_create(&loop, &o, &r, NULL, 0), 0);
    assert_int_equal(fl_redlock_acquire(r, fl_str("a"), NULL, &lock), FL_EINVAL); /* blocks */
    for (int i = 0; i < 3; i++) {
        const struct fl_redlock_acquire_options wait = {.wait_ms = i == 0 ? 0 : 60000};
        assert_int_equal(fl_redlock_acquire_start(r, fl_str("a"), &wait, done, &results[i], NULL),
                         0);
        assert_int_equal(results[i], 1); /* never from inside the call */
    }
    while (results[0] == 1) {
        assert_int_equal(uv_run(&loop, UV_RUN_ONCE), 1);
    }
    assert_int_equal(results[0], FL_ENOCONN);
    fl_redlock_close(r, count_closed, &closed);
    fl_redlock_close(r, count_closed, &closed); /* the second time is ignored */
    assert_int_equal(closed, 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(closed, 1);
    assert_int_equal(results[1], FL_ENOTHELD);
    assert_int_equal(results[2], FL_ENOTHELD);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* Of this process: whether a timer is set that goes on while the machine is suspended. */
static bool has_timer_that_never_stands_still(void)
{
    bool found = false;
    for (int fd = 0; fd < 64 && !found; fd++) {
        char path[64];
        char line[128];
        bool is_boottime = false;
        (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        FILE *f = fopen(path, "re");
        while (f != NULL && fgets(line, sizeof line, f) != NULL) {
            is_boottime |= strcmp(line, "clockid: 7\n") == 0; /* CLOCK_BOOTTIME */
            found |= is_boottime && strncmp(line, "it_value: (", 11) == 0 &&
                     strcmp(line, "it_value: (0, 0)\n") != 0;
        }
        if (f != NULL) {
            (void)fclose(f);
        }
    }
    return found;
}

/* Nobody can suspend the machine in a test. */
TEST(test_it_wakes_by_the_clock_of_deadlines)
{
    uv_loop_t loop;
    fl_redlock *r;
    const struct fl_redlock_options o = {.servers = "127.0.0.1:1", .connect_ms = 60000};
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_false(has_timer_that_never_stands_still());
    assert_int_equal(fl_redlock_create(&loop, &o, &r, NULL, 0), 0);
    assert_true(has_timer_that_never_stands_still());
    fl_redlock_close(r, NULL, NULL);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_false(has_timer_that_never_stands_still());
    assert_int_equal(uv_loop_close(&loop), 0);
}

TEST(test_texts)
{
    for (int i = 0; i <= FL_REDLOCK_CANCELLED; i++) {
        assert_string_not_equal(fl_redlock_cause_text((enum fl_redlock_cause)i), "?");
    }
    for (int i = 0; i <= FL_REDLOCK_TWICE; i++) {
        assert_string_not_equal(fl_redlock_status_text((enum fl_redlock_status)i), "?");
    }
}
