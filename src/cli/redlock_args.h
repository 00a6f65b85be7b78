/* redlock_args.h: what the commands of `fencelock redlock` share: the servers on the command line,
 * and errors. */
#ifndef CLI_REDLOCK_ARGS_H
#define CLI_REDLOCK_ARGS_H

#include "cli/fencelock_common.h"
#include "fencelock/redlock.h"

#define CLI_REDLOCK_ERROR_SIZE (FL_REDLOCK_TEXT_MAX + 256u)

struct cli_redlock_options {
    struct fl_redlock_options options; /* points into the arguments and into `password` */
    char password[FL_PASSWORD_MAX + 1];
};

/* Reads --redis and the options that go with it. 0, or the exit code after a sentence. */
int cli_redlock_options(const struct cli_args *a, struct cli_redlock_options *ret);

/* Opens a client. NULL: a sentence was printed, and *ret_exit is the exit code. ret_tokens (may be
 * NULL): the client that issues tokens, or NULL; to be closed after this one, also on failure. */
fl_client *cli_redlock_open(const struct cli_args *a, bool own_loop, fl_client **ret_tokens,
                            int *ret_exit);

uint64_t cli_redlock_max_ttl_ms(const struct cli_args *a);

/* --ttl, --min-validity and --wait. False after a sentence. */
bool cli_redlock_take_options(const struct cli_args *a, struct fl_take *ret);

/* Members for what each server had to say of the last call. */
void cli_redlock_json(struct cli_out *o, const fl_client *r);

/* Prints which of the servers are fencelockd. Their votes are not independent of each other. */
void cli_redlock_warn_of_nodes(const fl_client *r, const struct fl_redlock_report *report);

/* Writes the sentence about a failed call, with what to do about it. */
void cli_redlock_explain(char *out, size_t size, const struct fl_redlock_report *report,
                         int result);

/* The exit code for a failed call. */
enum cli_exit cli_redlock_exit_of(int code, const struct fl_redlock_report *report);

#endif
