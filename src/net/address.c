/* address.c: see address.h. */
#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/bytes.h"

int net_address_split(const char *address, char host[NET_HOST_MAX], uint16_t *ret_port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL) {
        return FL_EINVAL;
    }
    uint64_t port = 0;
    if (!fli_parse_u64(colon + 1, strlen(colon + 1), UINT16_MAX, &port)) {
        return FL_EINVAL;
    }
    const char *start = address;
    size_t len = (size_t)(colon - address);
    if (len >= 2 && start[0] == '[' && start[len - 1] == ']') {
        start++;
        len -= 2;
    } else if (memchr(start, ':', len) != NULL) {
        return FL_EINVAL;
    }
    if (len == 0 || len >= NET_HOST_MAX || memchr(start, '[', len) != NULL ||
        memchr(start, ']', len) != NULL || memchr(start, ' ', len) != NULL) {
        return FL_EINVAL;
    }
    memcpy(host, start, len);
    host[len] = '\0';
    *ret_port = (uint16_t)port;
    return 0;
}

int net_address_join(const char *host, uint16_t port, char *out, size_t size)
{
    if (strchr(host, ':') != NULL) {
        return snprintf(out, size, "[%s]:%u", host, (unsigned)port);
    }
    return snprintf(out, size, "%s:%u", host, (unsigned)port);
}

bool net_host_is_any(const char *host)
{
    return strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
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
    if (net_host_is_any(host)) {
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
