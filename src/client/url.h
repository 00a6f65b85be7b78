/* url.h: addresses as one URL, so that all that a client needs fits one setting:
 *
 *   fencelock://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/]     fencelocks://...: with TLS
 *
 * Bytes of USER and PASSWORD that mean something in a URL are written as %XX. Pure. */
#ifndef FLI_CLIENT_URL_H
#define FLI_CLIENT_URL_H

#include "fencelock/client.h"

#define FLI_URL_NODES_MAX (FL_NODES_MAX * (FL_ADDRESS_MAX + 1u))

struct fli_url {
    bool tls;
    char nodes[FLI_URL_NODES_MAX]; /* HOST:PORT,...: not looked at here */
    char user[FL_USER_MAX + 1];    /* "": none is named */
    char password[FL_PASSWORD_MAX + 1];
};

bool fli_url_is(const char *text); /* it has a scheme */

/* 0; FL_EINVAL with a sentence in errmsg that has no password in it. */
int fli_url_parse(const char *text, struct fli_url *ret, char *errmsg,
                  size_t errmsg_size) FL_MUST_USE;

/* The arguments of a create function, with the parts of a URL put in their places. `nodes` that is
 * no URL stays as it is. FL_EINVAL also when URL and options both name a user, or when the URL is
 * one without TLS and `tls` is not NULL. The result points into `room`, which holds a password:
 * fli_url_forget(). */
struct fli_url_options {
    const char *nodes;
    const struct fl_tls_options *tls;
    const char *user, *password;
};
int fli_url_apply(struct fli_url_options *o, struct fli_url *room) FL_MUST_USE;
/* The same to options of a client. */
int fli_url_client(const char **nodes, struct fl_client_options *options,
                   struct fli_url *room) FL_MUST_USE;
void fli_url_forget(struct fli_url *room);

#endif
