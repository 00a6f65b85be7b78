/* ports.h: a port of our own on the loopback, for as long as a test lasts. Header only.
 *
 * A port that was free a moment ago is not kept by anybody: the system may give it to the next
 * socket that asks for any, of this process or another. So the socket that found it stays, bound
 * and not listening. Who sets SO_REUSEADDR, as our listeners do, can bind the port beside it and
 * listen; to all others it is taken; and while nobody listens a call to it is refused. */
#ifndef TEST_LIB_PORTS_H
#define TEST_LIB_PORTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* Returns the socket; close it when the port is not needed any more. */
__attribute__((unused)) static int port_reserve(uint16_t *ret_port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    /* Set before the bind, no port is chosen that another reservation has. */
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *ret_port = ntohs(addr.sin_port);
    return fd;
}

#endif
