/* listen.h: opening the sockets that a process listens with. */
#ifndef FLI_LISTEN_H
#define FLI_LISTEN_H

#include <netdb.h>
#include <sys/socket.h>

#include "base/base.h"

/* How long a start waits for a port. The ports of a process that was killed are free only when the
 * last process with a copy of them has ended, which may be a moment after its other files. */
#define FLI_LISTEN_WAIT_MS 1000u

/* Listens on the address. A port that another socket has is tried again for `wait_ms` milliseconds;
 * the call blocks meanwhile. The socket, non-blocking and closed on exec, which the caller owns; or
 * -1: errno says why, EADDRINUSE also after waiting. Any thread. */
int fli_listen(const struct sockaddr *address, socklen_t len, int backlog,
               uint64_t wait_ms) FLI_MUST_USE;

/* The same on the first of the addresses that works, waiting FLI_LISTEN_WAIT_MS for each. */
int fli_listen_first(const struct addrinfo *all, int backlog) FLI_MUST_USE;

/* The port of a socket of IP that is bound. */
uint16_t fli_listen_port(int fd);

/* What to do about a port that cannot be opened, by the words with which the system, or libuv,
 * tells why. "" when there is nothing to add. */
const char *fli_listen_remedy(const char *message);

#endif
