/* fencelock_options.h: parses the command line of `fencelock`: its commands and their options. No
 * I/O: a function reads the environment. */
#ifndef CLI_FENCELOCK_OPTIONS_H
#define CLI_FENCELOCK_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "fencelock/store_client.h"

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

    CLI_EXIT_SIGNAL = 256, /* and above: main() ends this process by the signal of that number */
};

/* The exit code for a result of the library. */
enum cli_exit cli_exit_of(int code);

/* The options: CLI_OPT_ID, name, kind, what stands for the value in help, help, and members of a
 * struct fli_option that are not zero. */
#define CLI_VARIABLE .in_environment = true /* also from FENCELOCK_NAME */
#define CLI_RANGE(lo, hi) .min = (lo), .max = (hi)
#define CLI_DAY CLI_RANGE(0, CLI_TIME_MAX_MS)
#define CLI_NUMBER CLI_RANGE(0, FL_TOKEN_MAX)

#define CLI_OPTION_ROWS(X)                                                                         \
    X(TTL, "ttl", TIME, "TIME", "the lease, unless renewed (default 10s; renew: as before)",       \
      CLI_RANGE(FL_TTL_MIN_MS, FL_TTL_MAX_MS))                                                     \
    X(WAIT, "wait", TIME, "TIME",                                                                  \
      "how long to wait (default: run a day, cluster 2m, others not at all)", CLI_DAY)             \
    X(OWNER, "owner", POINTER, "ID", "16 to 255 bytes that nobody else uses (default: random)")    \
    X(VALUE, "value", POINTER, "TEXT", "a note that `show` prints")                                \
    X(SHARED, "shared", FLAG, NULL, "take it as a reader, beside others that use --shared")        \
    X(PERMITS, "permits", NUMBER, "N", "a semaphore: up to N hold it at a time",                   \
      CLI_RANGE(1, FL_PERMITS_MAX))                                                                \
    X(ALSO, "also", POINTER, "NAME", "take this lock too, all or none; up to 15 times",            \
      .many = true)                                                                                \
    X(MAX_HOLD, "max-hold", TIME, "TIME",                                                          \
      "call the lock lost after this long (default: never; redlock: 24h)",                         \
      CLI_RANGE(1, CLI_HOLD_MAX_MS))                                                               \
    X(QUIET, "quiet", FLAG, NULL, "print errors only, nothing while waiting and renewing")         \
    X(ON_LOST, "on-lost", WORD, "kill|term|warn",                                                  \
      "stop the command by TERM then KILL (default), by TERM, or not at all",                      \
      .words = words_on_lost)                                                                      \
    X(LIVE, "live", FLAG, NULL,                                                                    \
      "only whether nodes answer, leader or not; for programs that restart nodes")                 \
    X(LEARNER, "learner", FLAG, NULL, "a copy: it gets the whole log and never votes")             \
    X(FORCE_LOSE_MAJORITY, "force-lose-majority", FLAG, NULL,                                      \
      "even if the voters that are left have no majority")                                         \
    X(OF, "of", POINTER, "INCARNATION",                                                            \
      "only this one, so that it can be run again (default: the present one)")                     \
    X(MATCH, "match", POINTER, "GLOB", "only names, or keys of Redis, that match")                 \
    X(LIMIT, "limit", NUMBER, "N", "at most so many (default 1000; top: 10; watch: no limit)",     \
      CLI_NUMBER)                                                                                  \
    X(BY, "by", WORD, "wait", "wait: the locks that were waited for most", .words = words_by)      \
    X(ONCE, "once", FLAG, NULL, "print once and end")                                              \
    X(LOCK, "lock", POINTER, "NAME", "the lock that fences the key", CLI_VARIABLE)                 \
    X(TOKEN, "token", NUMBER, "N", "the token of the grant", CLI_RANGE(1, FL_TOKEN_MAX),           \
      CLI_VARIABLE)                                                                                \
    X(DEFAULT, "default", POINTER, "TEXT",                                                         \
      "print this, and end with 0, when there is no such key")                                     \
    X(STORE, "store", POINTER, "HOST:PORT", "the storage (default 127.0.0.1:7411)", CLI_VARIABLE)  \
    X(CLAIM, "claim", POINTER, "HOST:PORT",                                                        \
      "claim at this fencelock-store with the token that was burnt")                               \
    X(NODES, "nodes", POINTER, "A:P,B:P", "the nodes (default 127.0.0.1:7401; redlock: none)",     \
      CLI_VARIABLE)                                                                                \
    X(DISCOVER, "discover", FLAG, NULL, "ask the nodes for all members, go on with these",         \
      CLI_VARIABLE)                                                                                \
    X(TLS, "tls", FLAG, NULL, "connect with TLS", CLI_VARIABLE)                                    \
    X(CACERT, "cacert", POINTER, "FILE", "the CAs to trust (default: the system's)", CLI_VARIABLE) \
    X(CERT, "cert", POINTER, "FILE", "the client's certificate, for servers that ask for one",     \
      CLI_VARIABLE)                                                                                \
    X(KEY, "key", POINTER, "FILE", "the key of --cert", CLI_VARIABLE)                              \
    X(SNI, "sni", POINTER, "HOST", "the name in the server's certificate, if not its host",        \
      CLI_VARIABLE)                                                                                \
    X(USER, "user", POINTER, "NAME", "log in as this user; password: FENCELOCK_PASSWORD",          \
      CLI_VARIABLE)                                                                                \
    X(PASSWORD_FILE, "password-file", POINTER, "FILE", "its first line is the password",           \
      CLI_VARIABLE)                                                                                \
    X(REDIS, "redis", POINTER, "A:P,B:P", "the Redis servers, the same at all clients",            \
      CLI_VARIABLE)                                                                                \
    X(REDIS_TLS, "redis-tls", FLAG, NULL, "TLS to Redis, with --cacert, --cert and --key",         \
      CLI_VARIABLE)                                                                                \
    X(REDIS_USER, "redis-user", POINTER, "NAME", "the user; password: FENCELOCK_REDIS_PASSWORD",   \
      CLI_VARIABLE)                                                                                \
    X(REDIS_PASSWORD_FILE, "redis-password-file", POINTER, "F", "its first line is the password",  \
      CLI_VARIABLE)                                                                                \
    X(REDIS_DB, "redis-db", NUMBER, "N", "the database (default 0)", CLI_RANGE(0, INT32_MAX))      \
    X(KEY_FORMAT, "key-format", POINTER, "TEXT",                                                   \
      "how a name becomes a key, with one %s (default %s)")                                        \
    X(MIN_VALIDITY, "min-validity", TIME, "TIME", "fail when less than this is left of the TTL",   \
      CLI_DAY)                                                                                     \
    X(MAX_TTL, "max-ttl", TIME, "TIME", "the longest TTL of any client (default 30s)",             \
      CLI_RANGE(FL_TTL_MIN_MS, FL_TTL_MAX_MS))                                                     \
    X(RESTARTS_ARE_SAFE, "restarts-are-safe", FLAG, NULL,                                          \
      "the servers keep their keys over a restart")                                                \
    X(BUDGET, "budget", TIME, "TIME", "how long a server may take, at most TTL/20 (default 50ms)", \
      CLI_RANGE(1, CLI_TIME_MAX_MS))                                                               \
    X(TOKENS, "tokens", POINTER, "on|off|writes",                                                  \
      "runs of this kind only; writes: no claim before the first read")                            \
    X(SEED, "seed", NUMBER, "N", "the seed of the first run (default 1)", CLI_NUMBER)              \
    X(RUNS, "runs", NUMBER, "N", "how many runs, each with its seed (default 1)", CLI_NUMBER)      \
    X(SVG, "svg", POINTER, "FILE", "draw the first run into this file")                            \
    X(DURATION, "duration", TIME, "TIME", "watch for this long (default 10s)",                     \
      CLI_RANGE(1, CLI_TIME_MAX_MS))                                                               \
    X(ALIASES, "front-door-aliases", POINTER, "FILE",                                              \
      "the forms of further scripts, as fencelockd will have them")                                \
    X(VERIFY, "verify", FLAG, NULL, "check this file and print what is in it; asks no node")       \
    X(KEEP, "keep", NUMBER, "N",                                                                   \
      "FILE is a folder: choose the name, and keep the newest N backups there",                    \
      CLI_RANGE(1, FL_TOKEN_MAX))                                                                  \
    X(REPLACE, "replace", FLAG, NULL, "put the new file in the place of one that has its name")    \
    X(TIMEOUT, "timeout", TIME, "TIME", "time limit beyond --wait (default 5s; cluster: 10s)",     \
      CLI_RANGE(1, CLI_TIME_MAX_MS), CLI_VARIABLE)                                                 \
    X(JSON, "json", FLAG, NULL, "print one JSON value")                                            \
    X(NO_COLOR, "no-color", FLAG, NULL, "no colours (also: NO_COLOR)")                             \
    X(HELP, "help", FLAG, NULL, "this text")                                                       \
    X(VERSION, "version", FLAG, NULL, "the version")

enum cli_option {
#define CLI_OPTION_ID(id, ...) CLI_OPT_##id,
    CLI_OPTION_ROWS(CLI_OPTION_ID)
#undef CLI_OPTION_ID
        CLI_OPTIONS,
};

_Static_assert(CLI_OPTIONS <= 64, "CLI_BIT() has 64 of them");
#define CLI_BIT(option) (UINT64_C(1) << (option))
/* a time below this without a unit was probably meant in seconds */
#define CLI_SHORT_MS UINT64_C(100)
#define CLI_TIME_MAX_MS UINT64_C(86400000)         /* of a wait and a timeout */
#define CLI_HOLD_MAX_MS UINT64_C(3600000000000000) /* a million hours */
#define CLI_RUN_TTL_MIN_MS UINT64_C(500)
#define CLI_ARGS_MAX 16u
#define CLI_ARGS_REST 0xffu /* args_max: everything after the first argument is a command line */

struct cli_args;
/* They return an enum cli_exit. Two get a client of the nodes, or of the storage. */
typedef int cli_run(const struct cli_args *a);
typedef int cli_ask(const struct cli_args *a, fl_client *c);
typedef int cli_ask_store(const struct cli_args *a, fl_store *s);

struct cli_command {
    const char *name;      /* one word, or two with a blank between */
    const char *arguments; /* as the help shows them */
    unsigned args_min, args_max;
    /* CLI_BIT()s of options besides those that every command takes */
    uint64_t options;
    const char *help;      /* one sentence */
    const char *uncertain; /* what to do when the outcome is unknown */
    cli_run *run;          /* one of these */
    cli_ask *ask;
    cli_ask_store *ask_store;
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

/* The last word of the command's name. */
const char *cli_verb(const struct cli_args *a);

/* The number that was given, or the other one. */
static inline uint64_t cli_number(const struct cli_args *a, enum cli_option option, uint64_t other)
{
    return cli_has(a, option) ? a->number[option] : other;
}

/* --timeout, or the default that its help names for all commands but `cluster`. */
static inline uint64_t cli_timeout_ms(const struct cli_args *a)
{
    return cli_number(a, CLI_OPT_TIMEOUT, FL_TIMEOUT_DEFAULT_MS);
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
