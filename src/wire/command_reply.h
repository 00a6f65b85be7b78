/* command_reply.h: the answers to COMMAND and its subcommands, from the table of commands, in the
 * shape of Redis 7. So redis-cli can complete and hint, and client libraries that ask at connect
 * work. */
#ifndef FLI_COMMAND_REPLY_H
#define FLI_COMMAND_REPLY_H

#include "base/buf.h"
#include "wire/commands.h"

/* Appends the answer to COMMAND, COMMAND COUNT, DOCS, INFO or LIST (`id`) for the arguments after
 * the subcommand. 0, FL_ELIMIT, FL_ENOMEM; on failure nothing is appended. */
int fli_command_reply(struct fli_buf *b, int proto, enum fli_service service,
                      enum fli_command_id id, const struct fli_slice *args,
                      unsigned n) FLI_MUST_USE;

#endif
