/* fencelock_options.h: parses the command line of `fencelock`: its commands and their options. No
 * I/O: a function reads the environment. */
#ifndef CLI_FENCELOCK_OPTIONS_H
#define CLI_FENCELOCK_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "fencelock/client.h"

/* Exit codes; also in --help. */
enum cli_exit {
    CLI_EXIT_DONE = 0,
    CLI_EXIT_NO = 1, /* the service or the storage said no: held by another, not held, stale... */
    CLI_EXIT_USAGE = 2,   /* the request is wrong */
    CLI_EXIT_UNKNOWN = 3, /* no node could be reached, or the outcome is unknown */
    CLI_EXIT_MISSING = 4, /* `store get`: there is no such key */

    /* `run` otherwise ends as its command does. These are next to those of timeout(1). */
    CLI_EXIT_RUN_NOT_STOPPED = 122, /* the lock was lost, and the command could not be stopped */
    CLI_EXIT_RUN_LOST = 123,        /* the lock was lost, and the command was stopped */
    /* another owner held the lock, or a limit or a deadlock prevented it */
    CLI_EXIT_RUN_NOT_ACQUIRED = 124,
    CLI_EXIT_RUN_FAILED = 125,    /* no node could be reached, or the outcome is unknown */
    CLI_EXIT_RUN_CANNOT = 126,    /* the command cannot be executed */
    CLI_EXIT_RUN_NOT_FOUND = 127, /* there is no such command */
};

/* The exit code for a result of the library. */
enum cli_exit cli_exit_of(int code);

enum cli_option {
    CLI_OPT_TTL,
    CLI_OPT_WAIT,
    CLI_OPT_OWNER,
    CLI_OPT_VALUE,
    CLI_OPT_SHARED,
    CLI_OPT_PERMITS,
    CLI_OPT_ALSO,
    CLI_OPT_MAX_HOLD,
    CLI_OPT_QUIET,
    CLI_OPT_ON_LOST,
    CLI_OPT_LIVE,
    CLI_OPT_LEARNER,
    CLI_OPT_FORCE_LOSE_MAJORITY,
    CLI_OPT_OF,
    CLI_OPT_MATCH,
    CLI_OPT_LIMIT,
    CLI_OPT_BY,
    CLI_OPT_ONCE,
    CLI_OPT_LOCK,
    CLI_OPT_TOKEN,
    CLI_OPT_DEFAULT,
    CLI_OPT_STORE,
    CLI_OPT_CLAIM,
    CLI_OPT_NODES,
    CLI_OPT_DISCOVER,
    CLI_OPT_TLS,
    CLI_OPT_CACERT,
    CLI_OPT_CERT,
    CLI_OPT_KEY,
    CLI_OPT_SNI,
    CLI_OPT_USER,
    CLI_OPT_PASSWORD_FILE,
    CLI_OPT_REDIS,
    CLI_OPT_REDIS_TLS,
    CLI_OPT_REDIS_USER,
    CLI_OPT_REDIS_PASSWORD_FILE,
    CLI_OPT_REDIS_DB,
    CLI_OPT_KEY_FORMAT,
    CLI_OPT_MIN_VALIDITY,
    CLI_OPT_MAX_TTL,
    CLI_OPT_RESTARTS_ARE_SAFE,
    CLI_OPT_BUDGET,
    CLI_OPT_TOKENS,
    CLI_OPT_SEED,
    CLI_OPT_RUNS,
    CLI_OPT_SVG,
    CLI_OPT_DURATION,
    CLI_OPT_ALIASES,
    CLI_OPT_VERIFY,
    CLI_OPT_KEEP,
    CLI_OPT_REPLACE,
    CLI_OPT_TIMEOUT,
    CLI_OPT_JSON,
    CLI_OPT_NO_COLOR,
    CLI_OPT_HELP,
    CLI_OPT_VERSION,
    CLI_OPTIONS,
};

_Static_assert(CLI_OPTIONS <= 64, "CLI_BIT() has 64 of them");
#define CLI_BIT(option) (UINT64_C(1) << (option))
/* a time below this without a unit was probably meant in seconds */
#define CLI_SHORT_MS UINT64_C(100)
#define CLI_TIME_MAX_MS UINT64_C(86400000) /* of a wait and a timeout */
#define CLI_RUN_TTL_MIN_MS UINT64_C(500)
#define CLI_ARGS_MAX 16u
#define CLI_ARGS_REST 0xffu /* args_max: everything after the first argument is a command line */

struct cli_args;

struct cli_command {
    const char *name;
    const char *sub;       /* second word, or NULL */
    const char *arguments; /* as the help shows them */
    unsigned args_min, args_max;
    /* CLI_BIT()s of options besides those that every command takes */
    uint64_t options;
    const char *help;      /* one sentence */
    const char *uncertain; /* what to do when the outcome is unknown */
    /* One of these; both return an enum cli_exit. ask gets a client of the nodes. */
    int (*run)(const struct cli_args *a);
    int (*ask)(const struct cli_args *a, fl_client *c);
};

/* The parsed command line. */
struct cli_args {
    const struct cli_command *command; /* NULL: help or version of the program */
    const char *arg[CLI_ARGS_MAX];
    unsigned n_args;
    const char *const *rest;      /* with CLI_ARGS_REST: ends with NULL */
    uint64_t given;               /* CLI_BIT()s, from the environment as well */
    uint64_t number[CLI_OPTIONS]; /* of numbers, durations and tokens */
    const char *text[CLI_OPTIONS];
    struct fl_bytes also[FL_NAMES_MAX - 1]; /* --also, which may be given again and again */
    unsigned n_also;
    const char *password; /* of a URL; NULL: none */
    char warning[192];    /* a sentence to print before anything is done; "" for none */
};

static inline bool cli_has(const struct cli_args *a, enum cli_option option)
{
    return (a->given & CLI_BIT(option)) != 0;
}

/* --timeout, or the default that its help names for all commands but `cluster`. */
static inline uint64_t cli_timeout_ms(const struct cli_args *a)
{
    return cli_has(a, CLI_OPT_TIMEOUT) ? a->number[CLI_OPT_TIMEOUT] : FL_TIMEOUT_DEFAULT_MS;
}

/* Parses argv[1..argc) by a table that ends with a row without a name. getenv reads
 * FENCELOCK_NODES and what else the options' table names. 0; FL_EINVAL and a sentence in errmsg
 * that says what to write instead. */
int cli_parse(const struct cli_command *commands, int argc, const char *const *argv,
              const char *(*getenv_fn)(const char *name), struct cli_args *ret, char *errmsg,
              size_t errmsg_size) FL_MUST_USE;

/* Prints help for one command, or (NULL) the list of all. */
void cli_print_help(const struct cli_command *commands, const struct cli_command *command, FILE *f);

#endif
