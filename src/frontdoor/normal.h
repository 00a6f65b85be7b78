/* normal.h: names a script by its content and not by its layout: the SHA-1 of its Lua tokens, in
 * their order. Comments, blanks, line ends, semicolons, the kind of quotes, and the case of Redis'
 * command words inside redis.call() make no difference; everything else does.
 *
 * Two texts with the same name mean the same to Lua. Nothing is executed, and nothing but the
 * tokens is interpreted. Takes time in proportion to the text. Pure. */
#ifndef FRONTDOOR_NORMAL_H
#define FRONTDOOR_NORMAL_H

#include "base/sha1.h"

/* False when this cannot read the text as Lua: a string or comment without end, or a character that
 * Lua does not have. */
bool frontdoor_normal(struct fli_slice text, uint8_t out[FLI_SHA1_SIZE]) FLI_MUST_USE;

/* Writes the tokens as text, one per line, for people and tests: at most `size` bytes,
 * terminated. */
bool frontdoor_normal_print(struct fli_slice text, char *out, size_t size) FLI_MUST_USE;

#endif
