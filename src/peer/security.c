/* security.c: see security.h. */
#include "peer/security.h"

#include <stdio.h>
#include <string.h>

#define PSK_CONTEXT_MAX (2 * SECURITY_MEMBER_NAME_MAX + 4)

static bool given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

bool security_name_is_valid(const char *name)
{
    size_t len = strlen(name);
    bool valid = len > 0 && len < SECURITY_NAME_MAX && name[0] != '.' && name[0] != '-';
    for (size_t i = 0; valid && i < len; i++) {
        char c = name[i];
        valid = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                c == '.' || c == '-';
    }
    return valid;
}

static void member_name(const struct security *s, uint64_t id, char out[SECURITY_MEMBER_NAME_MAX])
{
    (void)snprintf(out, SECURITY_MEMBER_NAME_MAX, "%s-node-%llu", s->name, (unsigned long long)id);
}

/* Names both ends, so that an end cannot be shown its own messages: the context that the calling
 * node proves with the pre-shared key. */
static void psk_context_of(const struct security *s, uint64_t from, uint64_t to,
                           char out[PSK_CONTEXT_MAX])
{
    (void)snprintf(out, PSK_CONTEXT_MAX, "%s-node-%llu to %s-node-%llu", s->name,
                   (unsigned long long)from, s->name, (unsigned long long)to);
}

int security_init(struct security *s, const struct security_config *config, uint64_t self_id,
                  char *errmsg, size_t errmsg_size)
{
    const char *name = given(config->name) ? config->name : SECURITY_NAME_DEFAULT;
    char own_name[SECURITY_MEMBER_NAME_MAX];
    FLI_ASSERT(security_name_is_valid(name));
    *s = (struct security){.self_id = self_id, .certificates = given(config->cert_file)};
    if (!s->certificates && !given(config->secret_file)) {
        return 0;
    }
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    member_name(s, self_id, own_name);
    const struct fli_tls_config tls = {
        .both = true,
        .cert_file = config->cert_file,
        .key_file = config->key_file,
        .ca_file = config->ca_file,
        .protocols = s->certificates ? config->protocols : NULL,
        .secret_file = config->secret_file,
        .own_name = own_name,
    };
    return fli_tls_context_create(&tls, &s->context, errmsg, errmsg_size);
}

int security_session(struct security *s, uint64_t peer_id, struct fli_tls **ret)
{
    char name[SECURITY_MEMBER_NAME_MAX];
    char psk_context[PSK_CONTEXT_MAX];
    bool calls = peer_id != 0;
    *ret = NULL;
    if (s->context == NULL) {
        return 0;
    }
    member_name(s, peer_id, name);
    psk_context_of(s, s->self_id, peer_id, psk_context);
    return fli_tls_create_end(s->context, calls, calls ? name : NULL, calls ? psk_context : NULL,
                              ret);
}

bool security_is(const struct security *s, const struct fli_tls *tls, uint64_t peer_id)
{
    char name[SECURITY_MEMBER_NAME_MAX];
    char psk_context[PSK_CONTEXT_MAX];
    if (s->context == NULL) {
        return true;
    }
    if (s->certificates) {
        member_name(s, peer_id, name);
        return fli_tls_peer_bears(tls, name);
    }
    const char *sent = fli_tls_peer_psk_context(tls);
    psk_context_of(s, peer_id, s->self_id, psk_context);
    return sent != NULL && strcmp(sent, psk_context) == 0;
}

bool security_is_member(const struct security *s, const struct fli_tls *tls, char *why,
                        size_t why_size)
{
    char stem[SECURITY_MEMBER_NAME_MAX];
    char cn[FLI_TLS_NAME_MAX];
    (void)snprintf(stem, sizeof stem, "%s-node-", s->name);
    if (!s->certificates || fli_tls_peer_bears_other(tls, stem, s->self_id)) {
        return true;
    }
    (void)snprintf(why, why_size,
                   "its certificate (CN %.128s) bears no name of another member, such as %s2, "
                   "among its alternative names",
                   fli_tls_peer_name(tls, cn) ? cn : "unknown", stem);
    return false;
}
