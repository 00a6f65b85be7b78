/* redlock_args.h: what the commands of `fencelock redlock` share: the servers on the command line,
 * and errors. */
#ifndef CLI_REDLOCK_ARGS_H
#define CLI_REDLOCK_ARGS_H

#include "cli/fencelock_common.h"
#include "fencelock/redlock.h"

#define CLI_REDLOCK_ERROR_SIZE 4096u

struct cli_redlock_options {
    struct fl_redlock_options options; /* points into the arguments and into `password` */
    char password[FL_REDLOCK_CREDENTIAL_MAX + 1];
};

/* Reads --redis and the options that go with it. 0, or the exit code after a sentence. */
int cli_redlock_options(const struct cli_args *a, struct cli_redlock_options *ret);

/* Makes a handle. NULL: a sentence was printed, and *ret_exit is the exit code. loop: as in
 * fl_redlock_create(). */
fl_redlock *cli_redlock_create(const struct cli_args *a, struct uv_loop_s *loop, int *ret_exit);

/* --ttl, --min-validity and --wait. False after a sentence. */
bool cli_redlock_acquire_options(const struct cli_args *a, struct fl_redlock_acquire_options *ret);

/* Writes the sentence about a failed call, with what to do about it. tokens: the client that was
 * asked for a token, or NULL. */
/* Prints which of the servers are fencelockd. Their votes are not independent of each other. */
void cli_redlock_warn_of_nodes(const fl_redlock *r, const struct fl_redlock_report *report);

void cli_redlock_explain(char *out, size_t size, const fl_redlock *r,
                         const struct fl_redlock_report *report, const fl_client *tokens,
                         int result);

/* The exit code for a failed call. */
enum cli_exit cli_redlock_exit_of(int code, enum fl_redlock_cause cause);

#endif
