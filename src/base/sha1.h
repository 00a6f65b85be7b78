/* sha1.h: SHA-1, by which Redis names scripts (FIPS 180-4). For names only: nothing here relies on
 * its strength. Pure. */
#ifndef FLI_SHA1_H
#define FLI_SHA1_H

#include "base/base.h"

#define FLI_SHA1_SIZE 20u
#define FLI_SHA1_HEX 40u

struct fli_sha1 {
    uint32_t h[5];
    uint64_t bytes;
    uint8_t block[64];
};

void fli_sha1_init(struct fli_sha1 *s);
void fli_sha1_add(struct fli_sha1 *s, const void *data, size_t len);
void fli_sha1_end(struct fli_sha1 *s, uint8_t out[FLI_SHA1_SIZE]);

void fli_sha1_of(const void *data, size_t len, uint8_t out[FLI_SHA1_SIZE]);

/* 40 hex digits and an end; lower case. */
void fli_sha1_text(const uint8_t sha1[FLI_SHA1_SIZE], char out[FLI_SHA1_HEX + 1]);

/* Parses such a text, in either case. False when it is anything else. */
bool fli_sha1_parse(struct fli_slice text, uint8_t out[FLI_SHA1_SIZE]) FLI_MUST_USE;

#endif
