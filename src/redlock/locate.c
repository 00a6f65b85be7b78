/* locate.c: finds the socket address behind a server's address in text; see server.h. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/address.h"
#include "redlock/server.h"

static int complain(char *errmsg, size_t size, const char *text, const char *why)
{
    (void)snprintf(errmsg, size, "\"%s\": %s", text, why);
    return FL_EINVAL;
}

static int locate_unix(struct fli_server *s, char *errmsg, size_t errmsg_size)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&s->where;
    size_t len = strlen(s->address);
    if (len >= sizeof un->sun_path) {
        return complain(errmsg, errmsg_size, s->address, "the path of a socket is too long");
    }
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, s->address, len + 1);
    s->where_len = sizeof *un;
    return 0;
}

/* Splits HOST:PORT or [IPV6]:PORT. */
static bool split(const char *text, char *host, size_t host_size, const char **ret_port)
{
    struct fli_address a;
    if (fli_address_split((struct fli_slice){(const uint8_t *)text, strlen(text)}, &a) != NULL ||
        a.port == 0 || a.host.len >= host_size) {
        return false;
    }
    memcpy(host, a.host.data, a.host.len);
    host[a.host.len] = '\0';
    *ret_port = strrchr(text, ':') + 1;
    return true;
}

int fli_server_locate(struct fli_server *s, const char *text, size_t len, char *errmsg,
                      size_t errmsg_size)
{
    char host[FL_REDLOCK_ADDRESS_MAX + 1];
    const char *port;
    if (len > FL_REDLOCK_ADDRESS_MAX) {
        return complain(errmsg, errmsg_size, "...", "an address is too long");
    }
    memcpy(s->address, text, len);
    s->address[len] = '\0';
    if (s->address[0] == '/') {
        return locate_unix(s, errmsg, errmsg_size);
    }
    if (!split(s->address, host, sizeof host, &port)) {
        return complain(errmsg, errmsg_size, s->address,
                        "a server is HOST:PORT, [IPV6]:PORT or /path/of/a/socket");
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0) {
        (void)complain(errmsg, errmsg_size, s->address, gai_strerror(rc));
        return FL_ENOCONN;
    }
    memcpy(s->host, host, sizeof s->host);
    FLI_ASSERT(found->ai_addrlen <= sizeof s->where);
    memcpy(&s->where, found->ai_addr, found->ai_addrlen);
    s->where_len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}
