/* sha1.h: SHA-1, by which Redis names scripts (FIPS 180-4). For names only: nothing here relies on
 * its strength. Pure. */
#ifndef FRONTDOOR_SHA1_H
#define FRONTDOOR_SHA1_H

#include "base/base.h"

#define FRONTDOOR_SHA1_SIZE 20u
#define FRONTDOOR_SHA1_HEX 40u

struct frontdoor_sha1 {
    uint32_t h[5];
    uint64_t bytes;
    uint8_t block[64];
};

void frontdoor_sha1_init(struct frontdoor_sha1 *s);
void frontdoor_sha1_add(struct frontdoor_sha1 *s, const void *data, size_t len);
void frontdoor_sha1_end(struct frontdoor_sha1 *s, uint8_t out[FRONTDOOR_SHA1_SIZE]);

void frontdoor_sha1_of(const void *data, size_t len, uint8_t out[FRONTDOOR_SHA1_SIZE]);

/* 40 hex digits and an end; lower case. */
void frontdoor_sha1_text(const uint8_t sha1[FRONTDOOR_SHA1_SIZE], char out[FRONTDOOR_SHA1_HEX + 1]);

/* Parses such a text, in either case. False when it is anything else. */
bool frontdoor_sha1_parse(struct fli_slice text, uint8_t out[FRONTDOOR_SHA1_SIZE]) FLI_MUST_USE;

#endif
