/* test_listen.c: a port that another socket has is waited for, and no other error is. */
#include "../../lib/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/listen.h"

#define LONG_MS 600000u /* no busy machine outlasts it */

/* Calls of bind() are counted. Before number `free_at` of them, `holder` is closed. */
static unsigned binds;
static unsigned free_at;
static int holder = -1;

int __real_bind(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t len);

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t len)
{
    if (++binds == free_at) {
        (void)close(holder);
    }
    return __real_bind(fd, address, len);
}

static void any_port(struct sockaddr_in *ret)
{
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Opens a port of its own as `holder`, which `free_at_bind` closes. */
static void hold(struct sockaddr_in *ret, unsigned free_at_bind)
{
    socklen_t len = sizeof *ret;
    any_port(ret);
    free_at = 0;
    holder = fli_listen((const struct sockaddr *)ret, sizeof *ret, 8, 0);
    assert_true(holder >= 0);
    assert_int_equal(getsockname(holder, (struct sockaddr *)ret, &len), 0);
    binds = 0;
    free_at = free_at_bind;
}

TEST(a_port_is_waited_for)
{
    struct sockaddr_in a;
    hold(&a, 3);
    int fd = fli_listen((const struct sockaddr *)&a, sizeof a, 8, LONG_MS);
    assert_true(fd >= 0);
    assert_int_equal(binds, 3);
    (void)close(fd);
}

TEST(a_port_is_waited_for_before_the_next_address_is_tried)
{
    struct sockaddr_in a;
    struct sockaddr_in other;
    struct sockaddr_in got;
    socklen_t len = sizeof got;
    hold(&a, 2);
    any_port(&other);
    struct addrinfo second = {.ai_addr = (struct sockaddr *)&other, .ai_addrlen = sizeof other};
    struct addrinfo first = {
        .ai_addr = (struct sockaddr *)&a, .ai_addrlen = sizeof a, .ai_next = &second};
    uint64_t start_ms = fli_clock_ms();
    int fd = fli_listen_first(&first, 8);
    assert_true(fd >= 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&got, &len), 0);
    /* A process that stands still for so long rightly takes the next one. */
    assert_true(got.sin_port == a.sin_port || fli_clock_ms() - start_ms >= FLI_LISTEN_WAIT_MS);
    (void)close(fd);
}

TEST(waiting_ends)
{
    struct sockaddr_in a;
    hold(&a, 0);
    uint64_t start_ms = fli_clock_ms();
    assert_int_equal(fli_listen((const struct sockaddr *)&a, sizeof a, 8, 30), -1);
    assert_int_equal(errno, EADDRINUSE);
    assert_true(fli_clock_ms() - start_ms >= 30);
    binds = 0;
    assert_int_equal(fli_listen((const struct sockaddr *)&a, sizeof a, 8, 0), -1);
    assert_int_equal(errno, EADDRINUSE);
    assert_int_equal(binds, 1);
    (void)close(holder);
}

TEST(other_errors_are_told_at_once)
{
    struct sockaddr_in a;
    any_port(&a);
    a.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, an address for documents */
    binds = 0;
    free_at = 0;
    assert_int_equal(fli_listen((const struct sockaddr *)&a, sizeof a, 8, LONG_MS), -1);
    assert_int_equal(errno, EADDRNOTAVAIL);
    assert_int_equal(binds, 1);
    assert_int_equal(fli_listen_first(NULL, 8), -1);
    assert_int_equal(errno, EADDRNOTAVAIL);
}

TEST(remedies_of_listening)
{
    assert_non_null(strstr(fli_listen_remedy(strerror(EACCES)), "CAP_NET_BIND_SERVICE"));
    assert_non_null(strstr(fli_listen_remedy("permission denied"), "above 1023"));
    assert_non_null(strstr(fli_listen_remedy(strerror(EADDRINUSE)), "another process"));
    assert_non_null(strstr(fli_listen_remedy(strerror(EADDRNOTAVAIL)), "no such address"));
    assert_non_null(strstr(fli_listen_remedy("address not available"), "no such address"));
    assert_string_equal(fli_listen_remedy(strerror(EIO)), "");
}
