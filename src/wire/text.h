/* text.h: pieces of error messages. Bytes from a client are quoted and escaped, so that a message
 * is one line of printable ASCII whatever the request was. */
#ifndef FLI_TEXT_H
#define FLI_TEXT_H

#include "wire/commands.h"

#define FLI_QUOTE_SIZE 144u /* 32 bytes of four characters each, quotes, dots, terminator */
#define FLI_USAGE_SIZE 160u

/* Writes `bytes` with unprintable ones as \xNN; bytes beyond the first 32 become dots. */
void fli_quote(char *out, size_t size, const struct fli_slice *bytes);

/* Writes "NAME SUB syntax". */
void fli_command_usage(char *out, size_t size, const struct fli_command *c);

#endif
