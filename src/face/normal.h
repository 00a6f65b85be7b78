/* normal.h: the name of a script by what it says and not by how it is set: the SHA-1 of its stream
 * of tokens. Comments, blanks, line ends, semicolons, the kind of quotes, and the case of the words
 * of Redis commands inside redis.call() make no difference; everything else does.
 *
 * Two texts with one name mean the same to Lua. Nothing is executed, and nothing is understood
 * beyond the tokens. Takes time in proportion to the text. Pure. */
#ifndef FACE_NORMAL_H
#define FACE_NORMAL_H

#include "face/sha1.h"

/* False when the text is no Lua that this reads: a string or comment without end, a character that
 * Lua does not have. */
bool face_normal(struct fli_slice text, uint8_t out[FACE_SHA1_SIZE]) FLI_MUST_USE;

/* The same as text, a token a line, for people and tests: at most `size` bytes with their end. */
bool face_normal_print(struct fli_slice text, char *out, size_t size) FLI_MUST_USE;

#endif
