/* server_listen.c: the ports for clients, and the addresses that clients are told. */
#include <stdio.h>
#include <string.h>

#include "server/server_private.h"

/* Nodes send each other one text: the address for plain connections, then a comma and the address
 * for TLS. Either may be missing. A client gets the address for connections like its own, since the
 * other is of no use to it. Returns NULL when there is none. */
const char *server_pick_address(const struct server *s, const char *advertised,
                                char out[MEMBER_ADDRESS_MAX])
{
    if (advertised == NULL) {
        return NULL;
    }
    const char *comma = strchr(advertised, ',');
    const char *tls = comma == NULL ? "" : comma + 1;
    int plain_len = (int)(comma == NULL ? strlen(advertised) : (size_t)(comma - advertised));
    if (s->asked_with_tls) {
        (void)snprintf(out, MEMBER_ADDRESS_MAX, "%s", tls);
    } else {
        (void)snprintf(out, MEMBER_ADDRESS_MAX, "%.*s", plain_len, advertised);
    }
    return out[0] == '\0' ? NULL : out;
}

static void two_addresses(struct server *s)
{
    const struct config *c = s->config;
    const char *plain = c->advertise[0] != '\0' ? c->advertise : s->address;
    const char *tls = c->tls_advertise[0] != '\0' ? c->tls_advertise : s->tls_address;
    int n = snprintf(s->advertised, sizeof s->advertised, "%s%s%s", plain,
                     tls[0] == '\0' ? "" : ",", tls);
    FLI_ASSERT(n > 0 && (size_t)n < sizeof s->advertised); /* config.c has checked it */
}

static int listen_with_tls(struct server *s, char *errmsg, size_t errmsg_size)
{
    const struct config *c = s->config;
    const struct fli_tls_config config = {
        .server = true,
        .cert_file = c->tls_cert_file,
        .key_file = c->tls_key_file,
        .ca_file = c->tls_ca_cert_file,
        .protocols = c->tls_protocols,
        .auth = c->tls_auth_clients,
    };
    int rc = net_server_listen_tls(s->net, c->tls_port, &config, errmsg, errmsg_size);
    if (rc == 0) {
        net_address_bound(c->tls_port, net_server_tls_port(s->net), s->tls_address);
    }
    return rc;
}

int server_listen_for_clients(struct server *s, char *errmsg, size_t errmsg_size)
{
    const struct config *c = s->config;
    int rc = 0;
    if (config_listens_plainly(c)) {
        rc = net_server_listen(s->net, c->listen, errmsg, errmsg_size);
        if (rc == 0) {
            net_address_bound(c->listen, net_server_port(s->net), s->address);
        }
    }
    if (rc == 0 && c->tls_port[0] != '\0') {
        rc = listen_with_tls(s, errmsg, errmsg_size);
    }
    if (rc == 0) {
        two_addresses(s);
    }
    return rc;
}
