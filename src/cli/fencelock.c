/* fencelock.c: the command line tool. This file has the table of its commands; the functions behind
 * them are in fencelock_cmd_*.c. */
#include <stdlib.h>
#include <string.h>

#include "base/standard.h"
#include "cli/fencelock_common.h"
#include "client/url.h"
#include "tls/tls.h"

#define ERROR_SIZE 512u
#define B(option) CLI_BIT(CLI_OPT_##option)
#define LOGIN (B(USER) | B(PASSWORD_FILE) | B(TLS))
#define WITH_FILES (B(CACERT) | B(CERT) | B(KEY) | B(SNI))
#define NODES_AND_LOGIN (B(NODES) | B(DISCOVER) | LOGIN)
#define AT_NODES (NODES_AND_LOGIN | WITH_FILES)
#define AT_STORE (B(STORE) | LOGIN | WITH_FILES)
#define FENCED (B(LOCK) | B(TOKEN))
#define ACQUIRE (B(TTL) | B(WAIT) | B(OWNER) | B(VALUE) | B(SHARED) | B(PERMITS) | B(ALSO))
#define RUN (B(MAX_HOLD) | B(ON_LOST) | B(QUIET))
#define REDIS (B(REDIS) | B(REDIS_USER) | B(REDIS_PASSWORD_FILE))
#define AT_REDIS                                                                                   \
    (REDIS | B(REDIS_DB) | B(KEY_FORMAT) | B(MAX_TTL) | B(RESTARTS_ARE_SAFE) | B(BUDGET) |         \
     B(REDIS_TLS) | WITH_FILES)
/* Beside AT_REDIS, which has the files of TLS. */
#define REDLOCK_ACQUIRE (NODES_AND_LOGIN | B(TTL) | B(WAIT) | B(MIN_VALIDITY))
#define REPEAT_IT "Ask again: it does no harm twice."
#define NEW_TOKEN "Before writing again, acquire the lock anew and claim with its token."

static const struct cli_command commands[] = {
    {"acquire", "NAME", 1, 1, AT_NODES | ACQUIRE, "Takes a lock; prints its token.",
     .ask = cli_run_acquire},
    {"renew", "NAME TOKEN", 2, 2, AT_NODES | B(TTL), "Makes the lease last its TTL from now on.",
     "Renew again: it does no harm twice.", .ask = cli_run_by_token},
    {"release", "NAME TOKEN", 2, 2, AT_NODES, "Gives the lock back.",
     "Ask with fencelock check, or release again: it does no harm twice.", .ask = cli_run_by_token},
    {"check", "NAME TOKEN", 2, 2, AT_NODES, "Says whether the token still holds the lock.",
     .ask = cli_run_by_token},
    {"token", "NAME", 1, 1, AT_NODES, "Issues a token without taking a lock.",
     "Ask again: a token that is not used harms nobody.", .ask = cli_run_token},
    {"run", "NAME [--] COMMAND...", 1, CLI_ARGS_REST, AT_NODES | ACQUIRE | RUN,
     "Runs a command while holding a lock.", .run = cli_run_run},
    {"queue", "NAME", 1, 1, AT_NODES, "Shows who waits for a lock.", .ask = cli_run_queue},
    {"watch", "[NAME|PATTERN]...", 0, CLI_ARGS_MAX, AT_NODES | B(LIMIT),
     "Shows what happens to locks, as it happens.", .ask = cli_run_watch},
    {"sessions", "", 0, 0, AT_NODES | B(LIMIT), "Lists the open sessions.",
     .ask = cli_run_sessions},
    {"show", "NAME", 1, 1, AT_NODES, "Describes a lock and its queue.", .ask = cli_run_show},
    {"locks", "", 0, 0, AT_NODES | B(MATCH) | B(LIMIT) | B(BY), "Lists locks.",
     .ask = cli_run_locks},
    {"top", "", 0, 0, AT_NODES | B(LIMIT) | B(ONCE),
     "Shows nodes, rates and the busiest locks, second by second.", .ask = cli_run_top},
    {"break", "NAME", 1, 1, AT_NODES | B(CLAIM),
     "Takes a lock from its holders; prints the token to claim with.",
     "See fencelock show before breaking it again: it may have a new holder.",
     .ask = cli_run_break},
    {"status", "", 0, 0, AT_NODES, "Describes the nodes; exit code 1: something is wrong.",
     .ask = cli_run_status},
    {"health", "", 0, 0, AT_NODES | B(WAIT) | B(LIVE),
     "Says whether nodes serve; exit code 1: not yet; 3: no answer.", .ask = cli_run_health},
    {"backup", "FILE", 1, 1, AT_NODES | B(VERIFY) | B(KEEP) | B(REPLACE),
     "Writes the state to a file; fencelockd restores it.", "Run it again: nothing was changed.",
     .run = cli_run_backup},
    {"cluster status", "", 0, 0, AT_NODES,
     "Lists the members; exit code 1: one is missing or changing.", .ask = cli_run_cluster},
    {"cluster add", "ID HOST:PORT", 2, 2, AT_NODES | B(LEARNER) | B(WAIT),
     "Makes a node that was started with --join a member.", REPEAT_IT, .ask = cli_run_cluster},
    {"cluster remove", "ID", 1, 1, AT_NODES | B(FORCE_LOSE_MAJORITY) | B(WAIT),
     "Removes a member, even the leader.", REPEAT_IT, .ask = cli_run_cluster},
    {"cluster replace", "ID [HOST:PORT]", 1, 2, AT_NODES | B(FORCE_LOSE_MAJORITY) | B(WAIT) | B(OF),
     "Puts a node with an empty data directory in a member's place.", REPEAT_IT,
     .ask = cli_run_cluster},
    {"cluster move", "ID HOST:PORT", 2, 2, AT_NODES | B(FORCE_LOSE_MAJORITY) | B(WAIT),
     "Gives a member another address for the other nodes.", REPEAT_IT, .ask = cli_run_cluster},
    {"cluster config", "[get [NAME] | set NAME VALUE]", 0, 3, AT_NODES,
     "Shows or changes settings of all nodes.", REPEAT_IT, .ask = cli_run_cluster},
    {"cluster transfer", "[ID]", 0, 1, AT_NODES, "Hands leadership to another node.", REPEAT_IT,
     .ask = cli_run_cluster},
    {"user add", "NAME RIGHT...", 2, CLI_ARGS_MAX, AT_NODES,
     "Makes a user with rights like ~jobs/* +@acquire.", "See fencelock user list.",
     .ask = cli_run_user_add},
    {"user list", "", 0, 0, AT_NODES, "Lists the users and their rights.",
     .ask = cli_run_user_list},
    {"user remove", "NAME", 1, 1, AT_NODES,
     "Deletes a user, whose connections can then do nothing more.", "See fencelock user list.",
     .ask = cli_run_user_remove},
    {"redlock acquire", "NAME", 1, 1, AT_REDIS | REDLOCK_ACQUIRE,
     "Takes a lock on Redis servers; prints owner, ms left, token.", .ask = cli_run_acquire},
    {"redlock extend", "NAME OWNER", 2, 2, AT_REDIS | B(TTL),
     "Makes the Redlock last its TTL from now on.", .ask = cli_run_redlock_by_owner},
    {"redlock release", "NAME OWNER", 2, 2, AT_REDIS, "Gives the Redlock back.",
     .ask = cli_run_redlock_by_owner},
    {"redlock run", "NAME [--] COMMAND...", 1, CLI_ARGS_REST, AT_REDIS | REDLOCK_ACQUIRE | RUN,
     "Runs a command while holding a Redlock.", .run = cli_run_run},
    {"redlock check", "", 0, 0, AT_REDIS, "Says whether the Redis servers are fit for locks.",
     .ask = cli_run_redlock_check},
    {"frontdoor check", "", 0, 0, REDIS | B(DURATION) | B(MATCH) | B(ALIASES),
     "Watches a Redis; tries which commands would be served.", .run = cli_run_frontdoor_check},
    {"demo redlock", "", 0, 0, B(TOKENS) | B(SEED) | B(RUNS) | B(SVG),
     "Breaks Redlock on real servers, without tokens and with them.", .run = cli_run_demo_redlock},
    {"store get", "KEY", 1, 1, AT_STORE | FENCED | B(DEFAULT),
     "Reads a key; with a token it claims too.", .ask_store = cli_run_store_get},
    {"store set", "KEY VALUE", 2, 2, AT_STORE | FENCED, "Writes a key.", NEW_TOKEN,
     .ask_store = cli_run_store_write},
    {"store del", "KEY", 1, 1, AT_STORE | FENCED, "Deletes a key.", NEW_TOKEN,
     .ask_store = cli_run_store_write},
    {"store claim", "", 0, 0, AT_STORE | FENCED, "Shuts out all older tokens of a lock.",
     "Claim again: it does no harm twice.", .ask_store = cli_run_store_write},
    {"store mark", "", 0, 0, AT_STORE | B(LOCK), "Prints the highest token seen for a lock.",
     .ask_store = cli_run_store_mark},
    {"guard install", "URL [TABLE=LOCK]...", 1, CLI_ARGS_MAX, 0,
     "Makes a database check tokens; rows of TABLE belong to LOCK.", .run = cli_run_guard},
    {"guard check", "URL [TABLE]...", 1, CLI_ARGS_MAX, 0,
     "Says what would let a writer get round the guard.", .run = cli_run_guard},
    {"guard attack", "URL [TABLE]...", 1, CLI_ARGS_MAX, B(SEED),
     "Attacks the guard, in a scratch database.", .run = cli_run_guard},
    {"guard adopt", "URL", 1, 1, AT_NODES,
     "After a restore or fail-over: refuses all earlier tokens.", .ask = cli_run_guard_adopt},
    {"guard uninstall", "URL", 1, 1, 0, "Removes the guard and its marks.", .run = cli_run_guard},
    {.name = NULL},
};

static const char *environment(const char *name)
{
    return getenv(name);
}

/* A URL as an address sets the user and TLS, as options do. */
static void take_url(struct cli_args *a, enum cli_option o, const char *name, const char *variable)
{
    static struct fli_url room[2]; /* options keep pointers into it */
    struct fli_url *u = &room[o == CLI_OPT_STORE];
    char errmsg[ERROR_SIZE];
    const char *text = a->text[o];
    if (!cli_has(a, o) || !fli_url_is(text)) {
        return;
    }
    if (fli_url_parse(text, u, errmsg, sizeof errmsg) != 0) {
        cli_usage("%s: %s", name, errmsg);
    }
    bool names_user = u->user[0] != '\0';
    if (!u->tls && cli_has(a, CLI_OPT_TLS)) {
        cli_usage("%s is a URL without TLS: write fencelocks://, or leave --tls out", name);
    }
    if (names_user && text != getenv(variable)) {
        cli_usage("%s has a password, which everybody on this machine could read: put the URL into "
                  "%s in the environment",
                  name, variable);
    }
    if (names_user && cli_has(a, CLI_OPT_USER)) {
        cli_usage("%s names a user, and so does --user (FENCELOCK_USER): leave one out", name);
    }
    a->text[o] = u->nodes;
    a->given |= (u->tls ? B(TLS) : 0) | (names_user ? B(USER) : 0);
    a->text[CLI_OPT_USER] = names_user ? u->user : a->text[CLI_OPT_USER];
    a->password = names_user ? u->password : a->password;
}

/* Redlocks have no default of nodes, which could be asked for the others. */
static bool discovers(const struct cli_args *a)
{
    bool has_default = !cli_is_of_redis(a);
    return cli_has(a, CLI_OPT_DISCOVER) && (has_default || cli_has(a, CLI_OPT_NODES));
}

static int run(const struct cli_args *a)
{
    const struct cli_command *k = a->command;
    bool changes = strchr(k->name, ' ') != NULL;
    fl_client *tokens = NULL;
    fl_client *c = k->ask == NULL       ? NULL
                   : cli_is_of_redis(a) ? cli_redlock_open(a, false, &tokens)
                                        : cli_client_create(a, changes ? &cli_for_changes : NULL);
    fl_store *s = k->ask_store != NULL ? cli_store_create(a, CLI_OPT_STORE) : NULL;
    int code = k->run != NULL ? k->run(a) : k->ask != NULL ? k->ask(a, c) : k->ask_store(a, s);
    fl_close(c);
    fl_close(tokens);
    fl_store_close(s);
    return code;
}

int main(int argc, char **argv)
{
    if (!fli_standard_keep()) {
        return CLI_EXIT_UNKNOWN;
    }
    fli_tls_keep_buffers();
    static char help[] = "--help";
    if (argc > 1 && strcmp(argv[1], "help") == 0) {
        argv[1] = help; /* as git and others have it: help COMMAND */
    }
    char errmsg[ERROR_SIZE];
    static struct cli_args args;
    int rc = cli_parse(commands, argc, (const char *const *)argv, environment, &args, errmsg,
                       sizeof errmsg);
    if (rc != 0) {
        cli_usage("%s", errmsg);
    }
    take_url(&args, CLI_OPT_NODES, "--nodes", "FENCELOCK_NODES");
    take_url(&args, CLI_OPT_STORE, "--store", "FENCELOCK_STORE");
    if (cli_has(&args, CLI_OPT_CLAIM) && fli_url_is(args.text[CLI_OPT_CLAIM])) {
        cli_usage("--claim is HOST:PORT, and no URL"); /* everybody could read its password */
    }
    if (args.warning[0] != '\0') {
        cli_complain("%s", args.warning);
    }
    if (cli_has(&args, CLI_OPT_HELP)) {
        cli_print_help(commands, args.command, stdout);
        cli_end(CLI_EXIT_DONE);
    }
    if (cli_has(&args, CLI_OPT_VERSION)) {
        puts("fencelock " FENCELOCK_VERSION);
        cli_end(CLI_EXIT_DONE);
    }
    if (discovers(&args)) {
        cli_discover(&args);
    }
    cli_end(run(&args));
}
