/* request.h: a parsed request: the typed arguments of each command, checked for range, ready to be
 * mapped to the machine or the store. Pure. Slices point into the argv they were parsed from. */
#ifndef FLI_REQUEST_H
#define FLI_REQUEST_H

#include <stdbool.h>

#include "wire/commands.h"

struct fli_request {
    const struct fli_command *command;
    struct fli_slice name;  /* lock; store: key of GET/SET/DEL */
    struct fli_slice lock;  /* store: the lock of FENCE, CLAIM, MARK */
    struct fli_slice owner; /* OWNER, SESSION, SESSION subcommands; empty when absent */
    struct fli_slice label;
    struct fli_slice value;
    struct fli_slice pattern; /* LOCKS MATCH; empty when absent */
    struct fli_slice cursor;
    uint64_t token;
    uint64_t ttl_ms; /* 0 when absent (and no default applies) */
    uint64_t wait_ms;
    uint64_t lockdelay_ms;
    uint64_t number;       /* COUNT, node id, HELLO version... */
    bool explicit_session; /* ACQUIRE SESSION */
    bool wait;             /* ACQUIRE WAIT with more than 0 */
    bool fenced;           /* store: FENCE given */
};

/* Parses the arguments after lookup. 0; FL_EINVAL with the text of the error reply after its word:
 * what happened, in which argument, what to write instead. Options come in any order and any case;
 * an option given twice is an error. Option words that are reserved for later versions (ALSO, MODE,
 * PERMITS) are refused by name. */
int fli_request_parse(const struct fli_command *command, const struct fli_slice *args, unsigned n,
                      struct fli_request *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
