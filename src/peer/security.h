/* security.h: tells members from strangers that reach the peer port: by certificates, or by a
 * secret of the cluster.
 *
 * Certificates: each node shows its certificate to the others. It must lead to the CA, be valid
 * now, and have NAME-node-ID, e.g. "fencelock-node-2", among its alternative names. Other
 * certificates of the same CA, such as those of clients, make no member.
 *
 * Secret: nodes prove to each other that they know the secret, without sending it (pre-shared keys
 * of TLS 1.3). The proof covers who calls whom. Any node that knows the secret can be any member.
 *
 * In both cases, all further bytes are encrypted and protected against change. */
#ifndef PEER_SECURITY_H
#define PEER_SECURITY_H

#include "peer/members.h"
#include "tls/tls.h"

#define SECURITY_NAME_MAX 64u /* of a cluster's name, NUL included */
#define SECURITY_NAME_DEFAULT "fencelock"
#define SECURITY_MEMBER_NAME_MAX (SECURITY_NAME_MAX + 32u)

/* NULL or "": not given. Used during security_init() only. */
struct security_config {
    const char *cert_file, *key_file, *ca_file; /* all, or none */
    const char *protocols;
    const char *name;        /* the prefix of members' names; not given: the default */
    const char *secret_file; /* instead of certificates */
};

struct security {
    struct fli_tls_context *context; /* NULL: every peer that reaches the port is trusted. Its owner
                                        destroys it; sessions may still live */
    uint64_t self_id;
    bool certificates;
    char name[SECURITY_NAME_MAX];
};

/* 0; FL_EINVAL with a sentence in errmsg; FL_ENOMEM. */
int security_init(struct security *s, const struct security_config *config, uint64_t self_id,
                  char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Whether a text can be a cluster's name: letters, digits, dots and dashes. */
bool security_name_is_valid(const char *name);

/* Makes the TLS session for a connection that this node opened to peer_id; 0: that another one
 * opened to this node. *ret is NULL without a context. 0, FL_ENOMEM. */
int security_session(struct security *s, uint64_t peer_id, struct fli_tls **ret) FLI_MUST_USE;

/* For a connection that another side opened, after TLS's handshake: whether the peer has proved to
 * be a node of this cluster, other than this one, as far as that shows before it says which; and
 * whether it is node peer_id. Whether that node is a member is checked elsewhere. `why` is the
 * reason for the log when it is not. */
bool security_is_member(const struct security *s, const struct fli_tls *tls, char *why,
                        size_t why_size);
bool security_is(const struct security *s, const struct fli_tls *tls, uint64_t peer_id);

#endif
