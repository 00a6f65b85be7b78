/* command_reply.h: what COMMAND and its subcommands answer, from the table, in the shape that
 * Redis 7 gives it, so that redis-cli completes and hints, and client libraries that ask at connect
 * are content. */
#ifndef FLI_COMMAND_REPLY_H
#define FLI_COMMAND_REPLY_H

#include "base/buf.h"
#include "wire/commands.h"

/* Appends the answer to COMMAND, COMMAND COUNT, DOCS, INFO or LIST (`id`) for the arguments after
 * the subcommand. 0, FL_ELIMIT, FL_ENOMEM; on failure what was appended is taken back. */
int fli_command_reply(struct fli_buf *b, int proto, enum fli_service service,
                      enum fli_command_id id, const struct fli_slice *args,
                      unsigned n) FLI_MUST_USE;

#endif
