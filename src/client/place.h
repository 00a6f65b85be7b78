/* place.h: where a node is: its name, and the addresses that the name resolves to. */
#ifndef FLI_CLIENT_PLACE_H
#define FLI_CLIENT_PLACE_H

#include "client/nodes.h"
#include "link/link.h"

#define FLI_PLACE_ADDRESSES 8u

struct fli_place {
    struct fli_node node;
    struct sockaddr_storage address[FLI_PLACE_ADDRESSES];
    socklen_t address_len[FLI_PLACE_ADDRESSES];
    unsigned n;    /* 0: the name is not resolved */
    unsigned turn; /* the address to try now; moved on when it does not work */
    int error;     /* of the last attempt to resolve */
};

/* Resolves the name, which may block, unless numeric_only. */
void fli_place_resolve(struct fli_place *p, bool numeric_only);

/* Begins a connection to the address whose turn it is. False: the reason is in the link's error. */
bool fli_place_connect(const struct fli_place *p, struct fli_link *l,
                       struct fli_link_security *security);

#endif
