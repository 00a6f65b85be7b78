/* address.h: "HOST:PORT" and "[V6]:PORT" as people write them, and whether an address is on this
 * machine only. */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <stdbool.h>

#include "base/base.h"

#define NET_HOST_MAX 256u                   /* host and NUL */
#define NET_ADDRESS_MAX (NET_HOST_MAX + 8u) /* host, brackets, colon, port, NUL */

/* 0 or FL_EINVAL. Port 0 is accepted: it asks for any free port. An IPv6 address needs brackets,
 * since its own colons would make the port ambiguous. */
int net_address_split(const char *address, char host[NET_HOST_MAX],
                      uint16_t *ret_port) FLI_MUST_USE;

/* Joins them, with brackets when the host has a colon. Returns the length, as snprintf() does. */
int net_address_join(const char *host, uint16_t port, char *out, size_t size);

/* The address of a TLS port: a port alone is that port on the host of `beside`, as in Redis, or on
 * 127.0.0.1 when that is none. False: it is too long. May be written in place. */
bool net_address_of_port(const char *text, const char *beside, char *out, size_t size);

/* The address with the port that was picked. "": it has none, or port is 0. */
void net_address_bound(const char *address, uint16_t port, char out[NET_ADDRESS_MAX]);

/* Whether everything the host resolves to is a loopback address. False when it does not resolve. */
bool net_host_is_loopback(const char *host);

#endif
