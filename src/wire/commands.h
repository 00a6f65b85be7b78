/* commands.h: the one table of commands. Parsing, arity checks, COMMAND, help texts,
 * docs/COMMANDS.md and the fuzzers' seeds all come from it.
 *
 * A row: id, name, subcommand or NULL, arity_min and arity_max (arguments after name and
 * subcommand), flags, syntax (the arguments as people read them), reply (the answer), help (one
 * sentence). commands.c has the rows, sorted by name, then subcommand. A name may have one row for
 * each service, that of fencelockd first. */
#ifndef FLI_COMMANDS_H
#define FLI_COMMANDS_H

#include <stdbool.h>

#include "base/base.h"

enum fli_service { FLI_SERVICE_LOCK = 1, FLI_SERVICE_STORE = 2 };

enum fli_command_flags {
    FLI_CMD_LOCK = 1,        /* served by fencelockd; equals FLI_SERVICE_LOCK */
    FLI_CMD_STORE = 2,       /* served by fencelock-store; equals FLI_SERVICE_STORE */
    FLI_CMD_LOCAL = 4,       /* answered at once by the node that gets it */
    FLI_CMD_QUERY = 8,       /* reads replicated state (linearizable) or the database */
    FLI_CMD_WRITE = 16,      /* changes replicated state or the database */
    FLI_CMD_ADMIN = 32,      /* for operators */
    FLI_CMD_CONNECTION = 64, /* about the connection: HELLO, CLIENT, QUIT... */
    FLI_CMD_FRONTDOOR = 128, /* requests of Redis clients about locks; src/frontdoor reads the
                                arguments */
};

enum fli_command_id {
    FLI_CMD_NONE = 0,
    /* both services */
    FLI_CMD_PING,
    FLI_CMD_ECHO,
    FLI_CMD_HELLO,
    FLI_CMD_AUTH,
    FLI_CMD_SELECT,
    FLI_CMD_QUIT,
    FLI_CMD_RESET,
    FLI_CMD_INFO,
    FLI_CMD_COMMAND,
    FLI_CMD_COMMAND_COUNT,
    FLI_CMD_COMMAND_DOCS,
    FLI_CMD_COMMAND_INFO,
    FLI_CMD_COMMAND_LIST,
    FLI_CMD_CLIENT_ID,
    FLI_CMD_CLIENT_GETNAME,
    FLI_CMD_CLIENT_SETNAME,
    FLI_CMD_CLIENT_SETINFO,
    FLI_CMD_CLIENT_TRACKING,
    FLI_CMD_CLIENT_INFO,
    FLI_CMD_CLIENT_LIST,
    /* lock service */
    FLI_CMD_ACQUIRE,
    FLI_CMD_RENEW,
    FLI_CMD_RELEASE,
    FLI_CMD_CHECK,
    FLI_CMD_TOKEN,
    FLI_CMD_SHOW,
    FLI_CMD_LOCKS,
    FLI_CMD_BREAK,
    FLI_CMD_SESSION_OPEN,
    FLI_CMD_SESSION_RENEW,
    FLI_CMD_SESSION_CLOSE,
    FLI_CMD_SESSION_SHOW,
    FLI_CMD_SESSION_LIST,
    FLI_CMD_LEADER,
    FLI_CMD_CLUSTER_MEMBERS,
    FLI_CMD_CLUSTER_INFO,
    FLI_CMD_CLUSTER_TRANSFER,
    FLI_CMD_CLUSTER_BACKUP,
    FLI_CMD_CLUSTER_CONFIG,
    FLI_CMD_CLUSTER_ADD,
    FLI_CMD_CLUSTER_REMOVE,
    FLI_CMD_CLUSTER_REPLACE,
    FLI_CMD_CLUSTER_MOVE,
    FLI_CMD_SUBSCRIBE,
    FLI_CMD_PSUBSCRIBE,
    FLI_CMD_UNSUBSCRIBE,
    FLI_CMD_PUNSUBSCRIBE,
    FLI_CMD_ACL_CAT,
    FLI_CMD_ACL_DELUSER,
    FLI_CMD_ACL_GETUSER,
    FLI_CMD_ACL_LIST,
    FLI_CMD_ACL_LOAD,
    FLI_CMD_ACL_SAVE,
    FLI_CMD_ACL_SETUSER,
    FLI_CMD_ACL_USERS,
    FLI_CMD_ACL_WHOAMI,
    /* lock service, as Redis */
    FLI_CMD_KEY_SET,
    FLI_CMD_KEY_GET,
    FLI_CMD_EXISTS,
    FLI_CMD_TTL,
    FLI_CMD_PTTL,
    FLI_CMD_DELEX,
    FLI_CMD_DELIFEQ,
    FLI_CMD_EVAL,
    FLI_CMD_EVALSHA,
    FLI_CMD_SCRIPT_LOAD,
    FLI_CMD_SCRIPT_EXISTS,
    FLI_CMD_SCRIPT_FLUSH,
    FLI_CMD_LOCKTOKEN,
    FLI_CMD_KEY_DEL,
    FLI_CMD_UNLINK,
    FLI_CMD_PEXPIRE,
    FLI_CMD_SENTINEL,
    FLI_CMD_BLPOP,
    FLI_CMD_HEXISTS,
    FLI_CMD_HGET,
    /* store */
    FLI_CMD_CLAIM,
    FLI_CMD_GET,
    FLI_CMD_SET,
    FLI_CMD_DEL,
    FLI_CMD_MARK,
    FLI_CMD_ID_MAX = FLI_CMD_MARK,
};

struct fli_command {
    enum fli_command_id id;
    const char *name;       /* upper case */
    const char *subcommand; /* upper case or NULL */
    int arity_min;
    int arity_max; /* -1: up to FLI_RESP_ARGS_MAX */
    unsigned flags;
    const char *syntax;
    const char *reply;
    const char *help;
};

extern const struct fli_command fli_commands[];
extern const size_t fli_commands_len;

/* The name of a command, without a subcommand; "" for none. */
const char *fli_command_name(enum fli_command_id id);

/* Bytes of an errmsg that holds every message of this layer whole. */
#define FLI_ERRMSG_SIZE 512u

/* Finds the row for a request, ignoring case. `argv` holds argc >= 1 slices. On success *ret_args
 * is the number of slices in the name (1, or 2 with a subcommand). 0; FL_ENOTFOUND (unknown command
 * or subcommand); FL_EINVAL (known, wrong number of arguments). errmsg gets the text of the error
 * reply without its first word. It names the command and the remedy (the syntax, or the nearest
 * known command), in printable ASCII whatever the request was. */
int fli_command_lookup(enum fli_service service, const struct fli_slice *argv, unsigned argc,
                       const struct fli_command **ret, unsigned *ret_args, char *errmsg,
                       size_t errmsg_size) FLI_MUST_USE;

/* The row of a name and subcommand (NULL for none) that this service serves; NULL when there is
 * none. Ignores case. */
const struct fli_command *fli_command_find(enum fli_service service, const char *name,
                                           const char *subcommand);

/* The index of the first row of a name that this service serves, ignoring case; else
 * fli_commands_len. */
size_t fli_command_family(enum fli_service service, const char *name);

/* The index behind the last row of a family: the rows with one name that the same service serves.
 * `first` is its first row. A name that differs between the services is two families. */
size_t fli_command_family_end(size_t first);

/* The subject of the command: "lock", "redis", "session", "pubsub", "users", "cluster", "storage",
 * "server" or "connection". */
const char *fli_command_group(const struct fli_command *c);

/* Whether a service serves the command. */
static inline bool fli_command_served(const struct fli_command *c, enum fli_service service)
{
    return (c->flags & (unsigned)service) != 0;
}

#endif
