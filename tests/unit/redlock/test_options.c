/* What fl_redlock_open() and the calls accept; nothing here needs a server. */
#include "rng.h"

#include "fencelock/redlock.h"
#include <arpa/inet.h>
#include <unistd.h>

#include "client/handle.h"
#include "redlock/redlock_private.h"

static int create(const struct fl_redlock_options *o, fl_client **ret)
{
    int rc = fl_redlock_open(o, ret);
    assert_int_equal(rc == 0, fl_client_error(NULL)[0] == '\0');
    return rc;
}

static void reject(const struct fl_redlock_options *o)
{
    fl_client *r;
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
                                      "fencelock://u:p@127.0.0.1:1",
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
        fl_client *r;
        assert_int_equal(create(&o, &r), 0);
        fl_close(r);
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
            fl_client *r;
            assert_int_equal(create(&o, &r), 0);
            assert_int_equal(fl_client_nodes(r), FL_REDLOCK_SERVERS_MAX);
            assert_string_equal(fl_client_node(r, 0), "127.0.0.1:1");
            assert_null(fl_client_node(r, FL_REDLOCK_SERVERS_MAX));
            fl_close(r);
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
    fl_client *r;
    assert_int_equal(create(&o, &r), 0);
    fl_close(r);
    path[107] = 'x';
    path[108] = '\0';
    reject(&o);
    path[108] = 'x';
    path[FL_ADDRESS_MAX + 1] = '\0';
    reject(&o);
}

TEST(test_other_options)
{
    static char big[FL_PASSWORD_MAX + 2];
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
        {.servers = "127.0.0.1:1", .user = "u"},
        {.servers = "127.0.0.1:1", .password = big},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        reject(&bad[i]);
    }
    big[FL_PASSWORD_MAX] = '\0';
    const struct fl_redlock_options fine = {.servers = "127.0.0.1:1",
                                            .password = big,
                                            .user = big,
                                            .max_ttl_ms = FL_REDLOCK_TIME_MAX_MS,
                                            .key_format = "100%%:%s:x"};
    fl_client *r;
    assert_int_equal(create(&fine, &r), 0);
    char key[FLI_REDIS_KEY_MAX];
    assert_int_equal(fli_make_key(fli_redlock_of(r), fl_str("a"), key), 8);
    assert_memory_equal(key, "100%:a:x", 8);
    fl_close(r);
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
    fl_client *r;
    assert_int_equal(create(&o, &r), 0);
    const struct fl_bytes longest = {name, FL_NAME_MAX};
    assert_int_equal(fli_make_key(fli_redlock_of(r), longest, key), FLI_REDIS_KEY_MAX - 2);
    fl_close(r);
}

static void check_values(fl_client *r)
{
    char value[FL_REDLOCK_VALUE_LEN + 1] = "";
    uint64_t deadline_ms = 0;
    memset(value, 'a', FL_REDLOCK_VALUE_LEN);
    assert_int_equal(fl_redlock_extend(r, fl_str("a"), value, 20001, &deadline_ms), FL_EINVAL);
    assert_int_equal(fl_redlock_extend(r, fl_str("a"), value, 9, &deadline_ms), FL_EINVAL);
    assert_int_equal(fl_redlock_extend(r, fl_str(""), value, 1000, &deadline_ms), FL_EINVAL);
    value[3] = '\0'; /* not what fl_redlock_value() gives */
    assert_int_equal(fl_redlock_release(r, fl_str("a"), value), FL_EINVAL);
    assert_true(fl_client_error(r)[0] != '\0');
    assert_int_equal(fl_redlock_release(NULL, fl_str("a"), value), FL_EINVAL);
}

TEST(test_arguments_of_calls)
{
    const struct fl_redlock_options o = {.servers = "127.0.0.1:1", .max_ttl_ms = 20000};
    const struct fl_take plain = {.unrenewed = true};
    fl_client *r;
    fl_lock *lock;
    struct fl_result said;
    const struct fl_ask show = {.what = FL_ASK_SHOW, .name = fl_str("a")};
    assert_int_equal(create(&o, &r), 0);
    char name[FL_NAME_MAX + 2] = "";
    memset(name, 'n', FL_NAME_MAX + 1);
    assert_int_equal(fl_lock_take(r, "", &plain, &lock), FL_EINVAL);
    assert_int_equal(fl_lock_take(r, name, &plain, &lock), FL_EINVAL);
    assert_true(fl_client_error(r)[0] != '\0');
    const struct fl_bytes also = {"b", 1};
    const struct fl_take bad[] = {
        {.ttl_ms = FL_TTL_MIN_MS - 1},
        {.ttl_ms = 20001},
        {.ttl_ms = 1000, .min_validity_ms = 1000},
        {.wait_ms = FL_WAIT_MAX_MS + 1},
        {.owner = {name, FL_OWNER_MIN}},
        {.value = {"v", 1}},
        {.mode = FL_MODE_SHARED},
        {.permits = 2},
        {.also = &also, .also_len = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fl_lock_take(r, "a", &bad[i], &lock), FL_EINVAL);
        assert_true(fl_client_error(r)[0] != '\0');
    }
    check_values(r);
    assert_int_equal(fl_lock_take_start(r, "a", NULL, NULL, NULL, NULL), FL_EINVAL);
    assert_int_equal(fl_session_open(r, NULL, &lock), FL_EINVAL);
    assert_int_equal(fl_ask(r, &show, &said), FL_EINVAL);
    fl_watch *watch;
    assert_int_equal(fl_watch_open(r, "*", NULL, &watch), FL_EINVAL);
    assert_null(watch);
    assert_true(fl_client_error(r)[0] != '\0');
    const struct fl_redlock_options twice = {.servers = "127.0.0.1:2", .tokens = r};
    reject(&twice);
    assert_non_null(strstr(fl_client_error(NULL), "tokens"));
    /* The longest name, and a server that is not there. */
    name[FL_NAME_MAX] = '\0';
    assert_int_equal(fl_lock_take(r, name, &plain, &lock), FL_ENOCONN);
    assert_int_equal(fl_redlock_last(r)->attempts, 1);
    assert_non_null(strstr(fl_client_error(r), "127.0.0.1:1"));
    fl_close(r);
}

TEST(test_a_client_of_a_cluster_is_none_of_redis_servers)
{
    fl_client *c;
    uint64_t deadline_ms = 0;
    static struct fl_redlock_check_report found;
    const struct fl_take needless = {.min_validity_ms = 1};
    fl_lock *lock;
    assert_int_equal(fl_open("127.0.0.1:1", NULL, &c), 0);
    assert_int_equal(fl_redlock_extend(c, fl_str("a"), "v", 1000, &deadline_ms), FL_EINVAL);
    assert_int_equal(fl_redlock_release(c, fl_str("a"), "v"), FL_EINVAL);
    assert_int_equal(fl_redlock_check(c, NULL, &found), FL_EINVAL);
    assert_int_equal(fl_lock_take(c, "a", &needless, &lock), FL_EINVAL);
    fl_close(c);
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
    char address[64];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* it says nothing to a login */
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    const struct fl_redlock_options o = {
        .servers = address, .connect_ms = FL_REDLOCK_TIME_MAX_MS, .own_loop = true};
    fl_client *r;
    assert_false(has_timer_that_never_stands_still());
    assert_int_equal(fl_redlock_open(&o, &r), 0);
    fl_process(r);
    assert_true(has_timer_that_never_stands_still());
    fl_close(r);
    assert_false(has_timer_that_never_stands_still());
    (void)close(fd);
}

TEST(test_texts)
{
    for (int i = 0; i <= FL_REDLOCK_TWICE; i++) {
        assert_string_not_equal(fl_redlock_status_text((enum fl_redlock_status)i), "?");
    }
    assert_string_equal(fl_redlock_status_text((enum fl_redlock_status)(FL_REDLOCK_TWICE + 1)),
                        "?");
}
