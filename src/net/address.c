/* address.c: see address.h. */
#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/bytes.h"

int net_address_split(const char *address, char host[NET_HOST_MAX], uint16_t *ret_port)
{
    struct fli_address a;
    if (fli_address_split((struct fli_slice){(const uint8_t *)address, strlen(address)}, &a) !=
            NULL ||
        a.host.len >= NET_HOST_MAX) {
        return FL_EINVAL;
    }
    memcpy(host, a.host.data, a.host.len);
    host[a.host.len] = '\0';
    *ret_port = a.port;
    return 0;
}

int net_address_join(const char *host, uint16_t port, char *out, size_t size)
{
    if (strchr(host, ':') != NULL) {
        return snprintf(out, size, "[%s]:%u", host, (unsigned)port);
    }
    return snprintf(out, size, "%s:%u", host, (unsigned)port);
}

bool net_address_of_port(const char *text, const char *beside, char *out, size_t size)
{
    char host[NET_HOST_MAX];
    uint16_t unused;
    uint64_t port;
    size_t len = strlen(text);
    if (!fli_parse_u64(text, len, UINT16_MAX, &port)) {
        if (len < size) {
            memmove(out, text, len + 1);
        }
        return len < size;
    }
    bool has_host = net_address_split(beside, host, &unused) == 0;
    return net_address_join(has_host ? host : "127.0.0.1", (uint16_t)port, out, size) < (int)size;
}

void net_address_bound(const char *address, uint16_t port, char out[NET_ADDRESS_MAX])
{
    char host[NET_HOST_MAX];
    uint16_t wanted;
    out[0] = '\0';
    if (port != 0 && net_address_split(address, host, &wanted) == 0) {
        (void)net_address_join(host, port, out, NET_ADDRESS_MAX);
    }
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof v6);
        return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
    }
    return false;
}

bool net_host_is_loopback(const char *host)
{
    if (fli_host_is_any(host)) {
        return false;
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, NULL, &hints, &found) != 0) {
        return false;
    }
    bool all = found != NULL;
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        all = all && is_loopback(a->ai_addr);
    }
    freeaddrinfo(found);
    return all;
}
