/* link_security.c: see link_security.h. */
#include "link/link_security.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int make_login(struct fli_link_security *security, const char *user, const char *password,
                      char *errmsg, size_t errmsg_size)
{
    size_t user_len = user == NULL ? 0 : strlen(user);
    size_t password_len = password == NULL ? 0 : strlen(password);
    if (user == NULL && password == NULL) {
        return 0;
    }
    if (password == NULL || user_len < 1 || user_len > FL_USER_MAX ||
        password_len > FL_PASSWORD_MAX) {
        (void)snprintf(errmsg, errmsg_size,
                       "a user of 1 to %u bytes goes with a password of at most %u", FL_USER_MAX,
                       FL_PASSWORD_MAX);
        return FL_EINVAL;
    }
    size_t size = user_len + password_len + 64;
    char *request = malloc(size);
    if (request == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    int n = snprintf(request, size, "*3\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", user_len,
                     user, password_len, password);
    FLI_ASSERT(n > 0 && (size_t)n < size);
    security->login = (uint8_t *)request;
    security->login_len = (size_t)n;
    return 0;
}

static int make_context(struct fli_link_security *security, const struct fl_tls_options *options,
                        char *errmsg, size_t errmsg_size)
{
    const char *name = options->server_name;
    if (name != NULL && strlen(name) > FL_ADDRESS_MAX) {
        (void)snprintf(errmsg, errmsg_size, "TLS: the server's name is longer than %u bytes",
                       FL_ADDRESS_MAX);
        return FL_EINVAL;
    }
    const struct fli_tls_config config = {.cert_file = options->cert_file,
                                          .key_file = options->key_file,
                                          .ca_file = options->ca_file};
    char why[FLI_TLS_ERRMSG_SIZE] = "out of memory";
    int rc = fli_tls_context_create(&config, &security->context, why, sizeof why);
    (void)snprintf(errmsg, errmsg_size, "TLS: %s", why);
    if (rc == 0 && name != NULL) {
        memcpy(security->name, name, strlen(name) + 1);
    }
    return rc;
}

int fli_link_security_init(struct fli_link_security *security, const struct fl_tls_options *options,
                           const char *user, const char *password, char *errmsg, size_t errmsg_size)
{
    *security = (struct fli_link_security){.context = NULL};
    int rc = make_login(security, user, password, errmsg, errmsg_size);
    rc = rc != 0 || options == NULL ? rc : make_context(security, options, errmsg, errmsg_size);
    if (rc != 0) {
        fli_link_security_fini(security);
    }
    return rc;
}

void fli_link_security_fini(struct fli_link_security *security)
{
    if (security->login != NULL) {
        explicit_bzero(security->login, security->login_len);
        free(security->login);
        security->login = NULL;
    }
    fli_tls_context_destroy(security->context);
    security->context = NULL;
}

int fli_link_security_session(struct fli_link_security *security, const char *host,
                              struct fli_tls **ret)
{
    char line[FLI_TLS_LINE_SIZE];
    /* When new files are refused, the handshake will show whether the old ones are still good. */
    (void)fli_tls_context_renew(security->context, false, line);
    return fli_tls_create(security->context, security->name[0] != '\0' ? security->name : host,
                          ret);
}
