/* server_check.c: see server_check.h. */
#include "server/server_check.h"

#include <stdio.h>
#include <string.h>

#include "auth/aclfile.h"
#include "peer/security.h"
#include "server/frontdoor_open.h"
#include "tls/tls.h"

static int check_users(const struct config *c, char *errmsg, size_t errmsg_size)
{
    struct aclfile file;
    if (c->aclfile[0] == '\0') {
        return 0;
    }
    int rc = aclfile_read_administered(c->aclfile, c->tls_auth_clients_user != FLI_TLS_USER_OFF,
                                       &file, errmsg, errmsg_size);
    aclfile_free(&file);
    return rc;
}

static int check_aliases(const struct config *c, char *errmsg, size_t errmsg_size)
{
    struct frontdoor_context frontdoor;
    int rc = frontdoor_open(c, &frontdoor, errmsg, errmsg_size);
    if (rc == 0) {
        frontdoor_close(&frontdoor);
    }
    return rc;
}

static int check_tls(const struct config *c, char *errmsg, size_t errmsg_size)
{
    struct fli_tls_context *context = NULL;
    const struct fli_tls_config tls = {
        .server = true,
        .cert_file = c->tls_cert_file,
        .key_file = c->tls_key_file,
        .ca_file = c->tls_ca_cert_file,
        .protocols = c->tls_protocols,
        .auth = c->tls_auth_clients,
    };
    if (c->tls_port[0] == '\0') {
        return 0;
    }
    int rc = fli_tls_context_create(&tls, &context, errmsg, errmsg_size);
    if (rc == 0) {
        fli_tls_context_destroy(context);
    }
    return rc;
}

static int check_peers(const struct config *c, char *errmsg, size_t errmsg_size)
{
    struct security s;
    struct security_config sc = {.name = c->tls_cluster_name,
                                 .secret_file = c->cluster_secret_file};
    if (c->tls_cluster) {
        sc.cert_file = c->tls_cert_file;
        sc.key_file = c->tls_key_file;
        sc.ca_file = c->tls_ca_cert_file;
        sc.protocols = c->tls_protocols;
    }
    int rc = security_init(&s, &sc, c->id, errmsg, errmsg_size);
    if (rc == 0) {
        fli_tls_context_destroy(s.context);
    }
    return rc;
}

static int check_directory(const struct config *c, const struct directory_summary *summary,
                           char *errmsg, size_t errmsg_size)
{
    if (summary->is_used) {
        return fli_refuse(errmsg, errmsg_size, FL_EBUSY,
                          "data directory %s is in use by another process: stop that one, or give "
                          "this one a directory of its own",
                          c->data);
    }
    if (summary->exists && !summary->is_empty && !summary->has_identity) {
        return fli_refuse(
            errmsg, errmsg_size, FL_EDENIED,
            "data directory %s is not empty and has no identity: use an empty directory", c->data);
    }
    return summary->has_identity && summary->identity.id != c->id
               ? identity_refuse_id(c->data, &summary->identity, c->id, errmsg, errmsg_size)
               : 0;
}

int server_check(const struct config *c, struct directory_summary *ret, char *errmsg,
                 size_t errmsg_size)
{
    int rc = identity_peek(c->data, ret, errmsg, errmsg_size);
    rc = rc != 0 ? rc : check_directory(c, ret, errmsg, errmsg_size);
    rc = rc != 0 ? rc : check_users(c, errmsg, errmsg_size);
    rc = rc != 0 ? rc : check_aliases(c, errmsg, errmsg_size);
    rc = rc != 0 ? rc : check_tls(c, errmsg, errmsg_size);
    return rc != 0 ? rc : check_peers(c, errmsg, errmsg_size);
}
