/* link_tls.c: see link_tls.h. */
#include "link/link_tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fli_link_tls_init(struct fli_link_tls *with, const struct fl_tls_options *options, char *errmsg,
                      size_t errmsg_size)
{
    *with = (struct fli_link_tls){.context = NULL};
    if (options == NULL) {
        return 0;
    }
    const char *name = options->server_name;
    if (name != NULL && strlen(name) > FL_ADDRESS_MAX) {
        (void)snprintf(errmsg, errmsg_size, "the server's name is longer than %u bytes",
                       FL_ADDRESS_MAX);
        return FL_EINVAL;
    }
    const struct fli_tls_config config = {.cert_file = options->cert_file,
                                          .key_file = options->key_file,
                                          .ca_file = options->ca_file};
    int rc = fli_tls_context_create(&config, &with->context, errmsg, errmsg_size);
    if (rc == 0 && name != NULL) {
        memcpy(with->name, name, strlen(name) + 1);
    }
    return rc;
}

static int make_login(struct fli_link_tls *with, const char *user, const char *password)
{
    size_t user_len = user == NULL ? 0 : strlen(user);
    size_t password_len = password == NULL ? 0 : strlen(password);
    if (user == NULL) {
        return password == NULL ? 0 : FL_EINVAL;
    }
    if (password == NULL || user_len < 1 || user_len > FL_USER_MAX ||
        password_len > FL_PASSWORD_MAX) {
        return FL_EINVAL;
    }
    size_t size = user_len + password_len + 64;
    char *request = malloc(size);
    if (request == NULL) {
        return FL_ENOMEM;
    }
    int n = snprintf(request, size, "*3\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", user_len,
                     user, password_len, password);
    FLI_ASSERT(n > 0 && (size_t)n < size);
    with->login = (uint8_t *)request;
    with->login_len = (size_t)n;
    return 0;
}

int fli_link_login(struct fli_link_tls *with, const char *user, const char *password)
{
    int rc = make_login(with, user, password);
    if (rc != 0) {
        fli_link_tls_fini(with);
    }
    return rc;
}

void fli_link_tls_fini(struct fli_link_tls *with)
{
    if (with->login != NULL) {
        explicit_bzero(with->login, with->login_len);
        free(with->login);
        with->login = NULL;
    }
    fli_tls_context_destroy(with->context);
    with->context = NULL;
}

int fli_link_tls_session(struct fli_link_tls *with, const char *host, struct fli_tls **ret)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    /* Whether the old files are still good will show in the handshake. */
    if (fli_tls_context_changed(with->context) &&
        fli_tls_context_reload(with->context, errmsg, sizeof errmsg) != 0 &&
        with->on_bad_files != NULL) {
        with->on_bad_files(with->arg, errmsg);
    }
    return fli_tls_create(with->context, with->name[0] != '\0' ? with->name : host, ret);
}
