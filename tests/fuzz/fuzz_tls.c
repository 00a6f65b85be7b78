/* fuzz_tls.c: what a peer says before and instead of a handshake, to a server and to a client, and
 * what stands in certificate files.
 *
 * The first byte chooses: who listens, and in pieces of which size it hears the rest; or that the
 * rest is a file. A session must come to an end within its bounds, say why when it fails, and give
 * no plaintext that was not authenticated. The certificate is made once, in a directory that goes
 * with the process. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "certs.h"
#include "tls/tls.h"

#define BUF_MAX ((size_t)1 << 20)

static char dir[64];
static char crt[96], key[96], ca[96], input[96];
static struct fli_tls_context *server, *client;

static void tidy(void)
{
    fli_tls_context_destroy(server);
    fli_tls_context_destroy(client);
    certs_remove(dir);
}

static void set_up(void)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    (void)certs_dir(dir);
    certs_make(dir, "ca", &(struct cert){.cn = "ca", .ca = true});
    certs_make(dir, "s", &(struct cert){.cn = "s", .san = "DNS:s", .issuer = "ca"});
    (void)snprintf(crt, sizeof crt, "%s/s.crt", dir);
    (void)snprintf(key, sizeof key, "%s/s.key", dir);
    (void)snprintf(ca, sizeof ca, "%s/ca.crt", dir);
    (void)snprintf(input, sizeof input, "%s/input", dir);
    const struct fli_tls_config s = {.server = true,
                                     .cert_file = crt,
                                     .key_file = key,
                                     .ca_file = ca,
                                     .auth = FLI_TLS_AUTH_REQUIRED};
    const struct fli_tls_config c = {.ca_file = ca};
    FLI_ASSERT(fli_tls_context_create(&s, &server, errmsg, sizeof errmsg) == 0);
    FLI_ASSERT(fli_tls_context_create(&c, &client, errmsg, sizeof errmsg) == 0);
    (void)atexit(tidy);
}

static void hear(struct fli_tls_context *context, const uint8_t *data, size_t size, size_t step)
{
    struct fli_tls *t = NULL;
    struct fli_buf plain;
    struct fli_buf out;
    fli_buf_init(&plain, BUF_MAX);
    fli_buf_init(&out, BUF_MAX);
    FLI_ASSERT(fli_tls_create(context, context == client ? "s" : NULL, &t) == 0);
    int rc = fli_tls_read(t, NULL, 0, &plain, &out);
    FLI_ASSERT(rc == 0);
    for (size_t at = 0; rc == 0 && at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        rc = fli_tls_read(t, data + at, n, &plain, &out);
        FLI_ASSERT(rc == 0 || rc == FL_EPROTO);
    }
    FLI_ASSERT(plain.len == 0); /* nobody guesses a handshake */
    FLI_ASSERT((rc != 0) == (fli_tls_state(t) == FLI_TLS_FAILED));
    FLI_ASSERT(rc == 0 || fli_tls_error(t)[0] != '\0');
    fli_tls_destroy(t);
    fli_buf_fini(&plain);
    fli_buf_fini(&out);
}

/* As certificate, as key and as CA. */
static void load(const uint8_t *data, size_t size)
{
    certs_write(dir, "input", data, size);
    for (unsigned i = 0; i < 3; i++) {
        char errmsg[FLI_TLS_ERRMSG_SIZE] = "";
        struct fli_tls_context *c = NULL;
        const struct fli_tls_config config = {.server = true,
                                              .cert_file = i == 0 ? input : crt,
                                              .key_file = i == 1 ? input : key,
                                              .ca_file = i == 2 ? input : ca,
                                              .auth = FLI_TLS_AUTH_REQUIRED};
        int rc = fli_tls_context_create(&config, &c, errmsg, sizeof errmsg);
        FLI_ASSERT(rc == 0 || (rc == FL_EINVAL && errmsg[0] != '\0'));
        fli_tls_context_destroy(c);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (server == NULL) {
        set_up();
    }
    if (size < 2 || size > FLI_TLS_HANDSHAKE_MAX) {
        return 0;
    }
    static const size_t steps[] = {1, 5, 64, SIZE_MAX / 2};
    size_t step = steps[data[0] >> 2 & 3];
    switch (data[0] & 3) {
    case 0:
    case 1:
        hear((data[0] & 1) != 0 ? client : server, data + 1, size - 1, step);
        break;
    default:
        load(data + 1, size - 1);
        break;
    }
    return 0;
}
