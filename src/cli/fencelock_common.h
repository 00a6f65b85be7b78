/* fencelock_common.h: what the commands of `fencelock` share: their settings, and how they print
 * results and errors. */
#ifndef CLI_FENCELOCK_COMMON_H
#define CLI_FENCELOCK_COMMON_H

#include "cli/fencelock_options.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "fencelock/redlock.h"
#include "fencelock/store_client.h"
#include "link/link.h"

/* The result, on stdout, as --json and --no-color say. */
struct cli_out cli_result(const struct cli_args *a);

/* The same, begun with what became of a thing: {word: yes, key: thing}; in text `thing: word`, if
 * it is yes. for_people: only on a terminal. */
struct cli_out cli_answer(const struct cli_args *a, const char *word, bool yes, const char *key,
                          struct fl_bytes thing, bool for_people);

/* The name of the lock: the first argument. */
struct fl_bytes cli_name_of(const struct cli_args *a);

/* The addresses of the nodes as given, or the default; the timeout as given, or 0. */
const char *cli_nodes_of(const struct cli_args *a);

/* How to get in at nodes, at a storage, or at Redis servers. The struct must stay where it is. */
struct cli_access {
    struct fl_tls_options files;
    const struct fl_tls_options *tls; /* NULL: without */
    const char *user, *password;      /* NULL: no login */
    char room[FL_PASSWORD_MAX + 1];
};

/* Reads --redis-tls, --redis-user, and what goes with them. Ends the process when no server is
 * named. */
void cli_redis_access(const struct cli_args *a, struct cli_access *ret);

/* Whether its lock is one on Redis servers. */
static inline bool cli_is_of_redis(const struct cli_args *a)
{
    return (a->command->options & CLI_BIT(CLI_OPT_REDIS)) != 0;
}

struct redisReply;

/* Each makes a client, or a store, or ends the process after a sentence. more: options that the
 * command line does not have; NULL: none. */
fl_client *cli_client_create(const struct cli_args *a, const struct fl_client_options *more);
/* A change is answered when the log has it. */
extern const struct fl_client_options cli_for_changes;
/* One of Redis servers. *ret_tokens: the client that issues tokens, or NULL; to be closed after the
 * other one. */
fl_client *cli_redlock_open(const struct cli_args *a, bool own_loop, fl_client **ret_tokens);
/* option: CLI_OPT_STORE or another one that names a storage. */
fl_store *cli_store_create(const struct cli_args *a, enum cli_option option);
/* A client of other nodes. The result of fl_open(). */
int cli_client_try(const struct cli_args *a, const char *addresses,
                   const struct fl_client_options *more, fl_client **ret);

/* Prints what the node says of the lock in the first argument; NULL: it is free. Returns the exit
 * code of `show`. */
int cli_with_lock(const struct cli_args *a, fl_client *c,
                  int (*show)(const struct cli_args *a, const struct fl_lock_info *l));

/* Prints that a lock on Redis servers is not what the word says, and why. Returns the exit code. */
int cli_redlock_failed(const struct cli_args *a, const fl_client *r,
                       const struct fl_redlock_report *report, const char *word, int rc);
/* Members for what each server had to say of the last call. */
void cli_redlock_json(struct cli_out *o, const fl_client *r,
                      const struct fl_redlock_report *report);
/* Prints which of the servers are fencelockd. Their votes are not independent of each other. */
void cli_redlock_warn_of_nodes(const fl_client *r, const struct fl_redlock_report *report);

/* A lock that this command has taken or made longer. */
struct cli_held {
    struct fl_bytes owner;
    uint64_t ttl_ms, deadline_ms;
    fl_token token;
};
void cli_show_held(const struct cli_args *a, const fl_client *c, const char *word,
                   const struct cli_held *held);

/* What a person can do about an error; NULL: its message says all there is. */
const char *cli_remedy(const struct cli_args *a, int code, const char *message);

/* Reads the name of the lock, and all options that say how to take it. The result points into a.
 * Ends the process when one is wrong: the library refuses the same, but could not say which. */
struct fl_take cli_take_of(const struct cli_args *a);

/* Reads a token from an argument, or ends the process. */
fl_token cli_token_of(const struct cli_args *a, const char *text);

/* Prints why a call failed: on stderr a sentence with what to do; on stdout JSON, if that was asked
 * for. Returns the exit code. */
int cli_fail(const struct cli_args *a, int code, const char *message);

/* What this ends this command with: `run` has codes of its own, beside its command's. */
int cli_exit_for(const struct cli_args *a, enum cli_exit exit);

/* The same with another hint than cli_remedy(); NULL: none. */
int cli_fail_with(const struct cli_args *a, int code, const char *message, const char *hint);

/* The same, for a caller that puts more members into the object before it ends it. */
struct cli_out cli_failure(const struct cli_args *a, int code, const char *message,
                           const char *hint);

/* Prints "fencelock: " and a sentence on stderr, with unprintable bytes replaced. */
void cli_complain(const char *fmt, ...) FLI_PRINTF(1, 2);

/* Ends the process, when all that was printed is written. CLI_EXIT_SIGNAL and above: by that
 * signal. A command that holds nothing and owes nobody an answer ends so where an error is found:
 * by wrong usage, after a sentence; or as cli_fail() says, which cli_need() does unless rc is 0. */
_Noreturn void cli_end(int code);
_Noreturn void cli_usage(const char *fmt, ...) FLI_PRINTF(1, 2);
_Noreturn void cli_die(const struct cli_args *a, int code, const char *message);
void cli_need(const struct cli_args *a, const fl_client *c, int rc);
/* Asks the nodes. False: the answer is `no`, a code; 0: there is no such answer. Any other result
 * ends the process. */
bool cli_call(const struct cli_args *a, fl_client *c, const struct fl_ask *ask, int no,
              struct fl_result *ret);

/* --discover: names the members that the nodes know in place of --nodes. */
void cli_discover(struct cli_args *a);

/* Sends a change that may be made twice, or a question, to the leader. The answer is no error, for
 * freeReplyObject(). *ret_uncertain (may be NULL): whether an earlier attempt, without an answer,
 * may have made the change already. */
struct redisReply *cli_ask_cluster(const struct cli_args *a, fl_client *c, const char *const *words,
                                   unsigned n, bool changes, bool *ret_uncertain);

/* An acquire was interrupted on its way, and may be carried out by a node that has not answered:
 * then nobody would hold the lock until its TTL is over. Sees to it that it is free, for two
 * seconds or until another signal comes; and then, with a sentence, goes on in the background for
 * as long as that TTL. last: fli_client_last_attempt() of the handle that has sent it; 0: nothing
 * was sent, and nothing is done. */
void cli_settle(const struct cli_args *a, const struct cli_signals *s,
                const struct fl_take *options, uint64_t last);

/* The functions of the commands (fencelock.c). */
cli_ask cli_run_acquire, cli_run_by_token, cli_run_token, cli_run_break;
cli_ask cli_run_queue, cli_run_sessions, cli_run_watch, cli_run_show, cli_run_locks,
    cli_run_locks_by; /* locks --by */
cli_ask cli_run_top, cli_run_status, cli_run_health, cli_run_guard_adopt;
cli_run cli_run_run, cli_run_backup, cli_run_frontdoor_check;
cli_ask cli_run_cluster, cli_run_user_add, cli_run_user_list, cli_run_user_remove;
cli_ask cli_run_redlock_by_owner, cli_run_redlock_check;
cli_ask_store cli_run_store_get, cli_run_store_write, cli_run_store_mark;
cli_run cli_run_guard, cli_run_demo_redlock;

#endif
