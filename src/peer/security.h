/* security.h: who is a member, when the peer port is reached by others than members: by certificate
 * or by a secret of the cluster.
 *
 * By certificate: each node shows one to each other, which must lead to the CA, be valid now, and
 * bear NAME-node-ID among its alternative names: "fencelock-node-2". Other certificates of the same
 * CA, those of clients above all, are of no member.
 *
 * By secret: nodes prove to each other that they know it, without sending it (pre-shared keys of
 * TLS 1.3). The proof covers who calls whom. Any node that knows the secret can be any member.
 *
 * In both cases what follows is encrypted and cannot be changed on the way. */
#ifndef PEER_SECURITY_H
#define PEER_SECURITY_H

#include "peer/members.h"
#include "tls/tls.h"

#define SECURITY_NAME_MAX 64u /* of a cluster's name, NUL included */
#define SECURITY_NAME_DEFAULT "fencelock"
#define SECURITY_MEMBER_NAME_MAX (SECURITY_NAME_MAX + 32u)

/* NULL or "": not given. Used during security_create only. */
struct security_config {
    const char *cert_file, *key_file, *ca_file; /* all, or none */
    const char *protocols;
    const char *name;        /* what members' names begin with; not given: the default */
    const char *secret_file; /* instead of certificates */
};

struct security;

/* *ret is NULL when neither is given. 0; FL_EINVAL with a sentence in errmsg; FL_ENOMEM. */
int security_create(const struct security_config *config, uint64_t self_id, struct security **ret,
                    char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void security_destroy(struct security *s); /* NULL is fine; sessions may still live */

/* Whether a text can be a cluster's name: letters, digits, dots and dashes. */
bool security_name_is_valid(const char *name);

/* For a connection that this node has opened to peer_id, or that somebody has opened to this node.
 * 0, FL_ENOMEM. */
int security_call(struct security *s, uint64_t peer_id, struct fli_tls **ret) FLI_MUST_USE;
int security_answer(struct security *s, struct fli_tls **ret) FLI_MUST_USE;

/* Of one that has opened a connection to this node, once hands are shaken: whether it is any other
 * node of this cluster by what it has proved, and which. Who is a member is for others to judge.
 * `why` says for the log why it is not. */
bool security_is_member(const struct security *s, const struct fli_tls *tls, char *why,
                        size_t why_size);
bool security_is(const struct security *s, const struct fli_tls *tls, uint64_t peer_id);

bool security_has_certificates(const struct security *s);
bool security_files_changed(const struct security *s);
/* Reads the files again; as fli_tls_context_reload. */
int security_reload(struct security *s, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void security_facts(const struct security *s, struct fli_tls_facts *ret);

#endif
