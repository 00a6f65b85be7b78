/* place.c: see place.h. */
#include "client/place.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static void locate_socket(struct fli_place *p)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&p->address[0];
    *un = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(un->sun_path, p->node.text, strlen(p->node.text));
    p->address_len[0] = sizeof *un;
    p->n = 1;
}

void fli_place_resolve(struct fli_place *p, bool numeric_only)
{
    if (p->node.host[0] == '\0') {
        locate_socket(p);
        return;
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = numeric_only ? AI_NUMERICHOST | AI_NUMERICSERV : 0};
    struct addrinfo *list = NULL;
    p->n = 0;
    p->error = getaddrinfo(p->node.host, p->node.port, &hints, &list);
    if (p->error != 0) {
        return;
    }
    for (struct addrinfo *a = list; a != NULL && p->n < FLI_PLACE_ADDRESSES; a = a->ai_next) {
        if (a->ai_addrlen <= sizeof p->address[0]) {
            memcpy(&p->address[p->n], a->ai_addr, a->ai_addrlen);
            p->address_len[p->n++] = a->ai_addrlen;
        }
    }
    freeaddrinfo(list);
}

bool fli_place_connect(const struct fli_place *p, struct fli_link *l,
                       struct fli_link_security *security)
{
    if (p->n == 0) {
        snprintf(l->error, sizeof l->error, "cannot find the host: %s", gai_strerror(p->error));
        return false;
    }
    unsigned i = p->turn % p->n;
    bool is_socket = p->node.host[0] == '\0'; /* never encrypted */
    return fli_link_begin(l, is_socket ? NULL : security, p->node.host,
                          (const struct sockaddr *)&p->address[i], p->address_len[i]) == 0;
}
