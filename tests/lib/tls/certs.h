/* certs.h: certificates for tests, made when needed: DIR/NAME.crt and DIR/NAME.key. */
#ifndef TESTS_CERTS_H
#define TESTS_CERTS_H

#include <stdbool.h>
#include <stddef.h>

struct cert {
    const char *cn;
    const char *san;    /* "DNS:a,IP:127.0.0.1", or NULL */
    const char *issuer; /* NAME of the CA; NULL: signs itself */
    bool ca;
    int begins_days, ends_days; /* from now; 0 and 0: from yesterday for ten days */
};

/* Ends the process on failure. */
void certs_make(const char *dir, const char *name, const struct cert *cert);

/* Makes a new directory for temporary files; certs_remove() deletes it with all its files. */
const char *certs_dir(char path[64]);
void certs_remove(const char *dir);

/* Writes DIR/NAME with these bytes, or with the bytes of other files in a row. */
void certs_write(const char *dir, const char *name, const void *data, size_t len);
void certs_join(const char *dir, const char *name, const char *first, const char *second);

#endif
