/* text.h: pieces of error messages. What a client sent is shown quoted and escaped, so that a
 * message is one line of printable ASCII whatever was in the request. */
#ifndef FLI_TEXT_H
#define FLI_TEXT_H

#include "wire/commands.h"

#define FLI_QUOTE_SIZE 144u /* 32 bytes of four characters each, quotes, dots, terminator */
#define FLI_USAGE_SIZE 160u

/* Writes 'bytes' with everything unprintable as \xNN; what is beyond 32 bytes becomes dots. */
void fli_quote(char *out, size_t size, const struct fli_slice *bytes);

/* Writes "NAME SUB syntax". */
void fli_command_usage(char *out, size_t size, const struct fli_command *c);

#endif
