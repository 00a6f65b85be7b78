/* url.h: addresses, user and password in one URL, so that all that a client needs fits one setting:
 *
 *   fencelock://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/]     fencelocks://...: with TLS
 *
 * Bytes of USER and PASSWORD that have a meaning in a URL are written as %XX. Pure. */
#ifndef FLI_CLIENT_URL_H
#define FLI_CLIENT_URL_H

#include "fencelock/client.h"

#define FLI_URL_NODES_MAX (FL_NODES_MAX * (FL_ADDRESS_MAX + 1u))

struct fli_url {
    bool tls;
    char nodes[FLI_URL_NODES_MAX]; /* HOST:PORT,...: not parsed here */
    char user[FL_USER_MAX + 1];    /* "": the URL names none */
    char password[FL_PASSWORD_MAX + 1];
};

bool fli_url_is(const char *text); /* whether it begins with one of the two schemes */

/* 0; FL_EINVAL with a sentence in errmsg that does not quote the password. */
int fli_url_parse(const char *text, struct fli_url *ret, char *errmsg,
                  size_t errmsg_size) FL_MUST_USE;

/* Puts the parts of a URL into the arguments of fl_open(). `nodes` that is no URL stays as it is.
 * FL_EINVAL, with a sentence, also when both the URL and the options name a user, or when the URL
 * is without TLS and `tls` is not NULL. The result points into `room`, which has a password in it:
 * fli_url_forget() when done. */
int fli_url_client(const char **nodes, struct fl_client_options *options, struct fli_url *room,
                   char *errmsg, size_t errmsg_size) FL_MUST_USE;
void fli_url_forget(struct fli_url *room);

#endif
