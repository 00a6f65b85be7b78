/* url.c: see url.h. */
#include "client/url.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static const char plain_scheme[] = "fencelock://";
static const char tls_scheme[] = "fencelocks://";

bool fli_url_is(const char *text)
{
    return strstr(text, "://") != NULL;
}

static int wrong(char *errmsg, size_t errmsg_size, const char *why)
{
    snprintf(errmsg, errmsg_size,
             "%s: write fencelock://HOST:PORT, or fencelocks://USER:PASSWORD@HOST:PORT,HOST:PORT",
             why);
    return FL_EINVAL;
}

/* Decodes len bytes into room, which ends with a zero byte. False: a % without two hex digits, a
 * zero byte, no byte at all, or too many. */
static bool decode(const char *text, size_t len, char *room, size_t room_size)
{
    char decoded[FLI_URL_NODES_MAX];
    size_t n;
    bool good = len <= sizeof decoded && fli_percent_decode(text, len, decoded, &n) && n > 0 &&
                n < room_size && memchr(decoded, '\0', n) == NULL;
    if (good) {
        memcpy(room, decoded, n);
        room[n] = '\0';
    }
    explicit_bzero(decoded, sizeof decoded);
    return good;
}

static int read_user(const char *text, size_t len, struct fli_url *u, char *errmsg,
                     size_t errmsg_size)
{
    const char *colon = memchr(text, ':', len);
    size_t user_len = colon == NULL ? len : (size_t)(colon - text);
    if (colon == NULL) {
        return wrong(errmsg, errmsg_size, "the URL names a user without a password");
    }
    if (!decode(text, user_len, u->user, sizeof u->user) ||
        !decode(colon + 1, len - user_len - 1, u->password, sizeof u->password)) {
        return wrong(errmsg, errmsg_size,
                     "the user or the password of the URL is empty, too long, or has a % without "
                     "two hex digits behind it");
    }
    return 0;
}

int fli_url_parse(const char *text, struct fli_url *ret, char *errmsg, size_t errmsg_size)
{
    memset(ret, 0, sizeof *ret);
    ret->tls = strncmp(text, tls_scheme, sizeof tls_scheme - 1) == 0;
    if (!ret->tls && strncmp(text, plain_scheme, sizeof plain_scheme - 1) != 0) {
        return wrong(errmsg, errmsg_size, "the URL is of another kind");
    }
    const char *rest = text + (ret->tls ? sizeof tls_scheme : sizeof plain_scheme) - 1;
    const char *at = strrchr(rest, '@');
    int rc = at == NULL ? 0 : read_user(rest, (size_t)(at - rest), ret, errmsg, errmsg_size);
    const char *nodes = at == NULL ? rest : at + 1;
    size_t len = strlen(nodes);
    len -= len > 0 && nodes[len - 1] == '/' ? 1 : 0;
    if (rc == 0 && (len == 0 || len >= sizeof ret->nodes)) {
        rc = wrong(errmsg, errmsg_size, "the URL names no node, or too many");
    }
    if (rc != 0) {
        fli_url_forget(ret);
        return rc;
    }
    memcpy(ret->nodes, nodes, len); /* the rest stays zero */
    return 0;
}

int fli_url_client(const char **nodes, struct fl_client_options *o, struct fli_url *room,
                   char *errmsg, size_t errmsg_size)
{
    static const struct fl_tls_options with_tls; /* checks servers by the system's CAs */
    if (!fli_url_is(*nodes)) {
        return 0;
    }
    int rc = fli_url_parse(*nodes, room, errmsg, errmsg_size);
    if (rc == 0 && room->user[0] != '\0' && o->user != NULL) {
        rc = wrong(errmsg, errmsg_size, "the URL names a user, and so do the options");
    } else if (rc == 0 && !room->tls && o->tls != NULL) {
        rc = wrong(errmsg, errmsg_size, "the URL is without TLS, and the options are for TLS");
    }
    if (rc != 0) {
        fli_url_forget(room);
        return rc;
    }
    *nodes = room->nodes;
    o->tls = room->tls && o->tls == NULL ? &with_tls : o->tls;
    if (room->user[0] != '\0') {
        o->user = room->user;
        o->password = room->password;
    }
    return 0;
}

void fli_url_forget(struct fli_url *room)
{
    explicit_bzero(room, sizeof *room);
}
