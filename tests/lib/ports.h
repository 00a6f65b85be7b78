/* ports.h: reserves a port on the loopback for as long as a test lasts. Header only.
 *
 * A port that was free a moment ago is not reserved: the system may give it to the next socket that
 * asks for any port, of this process or another. So the socket that found the port stays bound,
 * without listening. A socket with SO_REUSEADDR, as our listeners have it, can bind the same port
 * and listen; for all other sockets it is taken. While no socket listens, a connection to it is
 * refused. */
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
    /* With the option set before the bind, no port is chosen that another reservation has. */
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *ret_port = ntohs(addr.sin_port);
    return fd;
}

#endif
