/* fencelock_common.h: what the commands of `fencelock` share: how results and errors are shown. */
#ifndef CLI_FENCELOCK_COMMON_H
#define CLI_FENCELOCK_COMMON_H

#include "cli/fencelock_options.h"
#include "cli/output.h"
#include "fencelock/store_client.h"

/* How this run prints. */
struct cli_style {
    bool json;
    bool terminal; /* stdout is one */
    bool colours;
};
struct cli_style cli_style_of(const struct cli_args *a);

/* The name of the lock, for commands whose first argument it is. */
struct fl_bytes cli_name_of(const struct cli_args *a);

/* The nodes as given, or the default; the timeout as given, or 0. */
const char *cli_nodes_of(const struct cli_args *a);
const char *cli_store_of(const struct cli_args *a);

/* What --tls (flag; or --redis-tls) and the options that go with it say. `use` is NULL for no TLS;
 * the struct must stay where it is. 0, or an exit code and what is wrong has been said. */
struct cli_tls {
    struct fl_tls_options options;
    const struct fl_tls_options *use;
};
/* Who logs in, by --user, and its password; NULL for nobody. The exit code is 0 unless that was
 * wrong, which was said. */
struct cli_login {
    const char *user, *password;
    char room[FL_PASSWORD_MAX + 2];
};
int cli_login_of(const struct cli_args *a, struct cli_login *ret);
int cli_tls_of(const struct cli_args *a, enum cli_option flag, struct cli_tls *ret);

/* A client, or a store; on failure the error has been shown and NULL comes back, with the exit code
 * in *ret_exit. */
fl_client *cli_client_create(const struct cli_args *a, int *ret_exit);
fl_client *cli_client_create_at(const struct cli_args *a, const char *addresses, int *ret_exit);
fl_store *cli_store_create(const struct cli_args *a, int *ret_exit);
fl_store *cli_store_create_at(const struct cli_args *a, const char *address, int *ret_exit);

/* What a person can do about an error; NULL when nothing beyond its message. */
const char *cli_remedy(const struct cli_args *a, int code, const char *message);

/* What --shared, --permits and --also say about how a lock is taken; their bytes are those of a.
 * False after a sentence on stderr. */
bool cli_mode_of(const struct cli_args *a, struct fl_acquire_options *options);

/* A token that was given as an argument. 0, or the exit code after the error has been shown. */
int cli_token_of(const struct cli_args *a, const char *text, fl_token *ret);

/* Shows why a call failed, on stderr as a sentence with what to do, and on stdout as JSON when that
 * was asked for. more: further members of the JSON object, or NULL. Returns the exit code. */
int cli_fail(const struct cli_args *a, int code, const char *message,
             void (*more)(struct cli_json *j, void *ctx), void *ctx);

/* "fencelock: " and a sentence, made safe, on stderr. */
void cli_complain(const char *fmt, ...) FLI_PRINTF(1, 2);

extern const struct cli_command cli_commands[];

int cli_run_acquire(const struct cli_args *a);
int cli_run_renew(const struct cli_args *a);
int cli_run_release(const struct cli_args *a);
int cli_run_check(const struct cli_args *a);
int cli_run_token(const struct cli_args *a);
int cli_run_break(const struct cli_args *a);
int cli_run_run(const struct cli_args *a);
int cli_run_queue(const struct cli_args *a);
int cli_run_sessions(const struct cli_args *a);
int cli_run_watch(const struct cli_args *a);
int cli_run_show(const struct cli_args *a);
int cli_run_locks(const struct cli_args *a);
int cli_run_locks_by(const struct cli_args *a); /* locks --by */
int cli_run_top(const struct cli_args *a);
int cli_run_cluster(const struct cli_args *a);
int cli_run_status(const struct cli_args *a);
int cli_run_health(const struct cli_args *a);
int cli_run_backup(const struct cli_args *a);
int cli_run_bench(const struct cli_args *a);
int cli_run_redlock_acquire(const struct cli_args *a);
int cli_run_redlock_extend(const struct cli_args *a);
int cli_run_redlock_release(const struct cli_args *a);
int cli_run_redlock_run(const struct cli_args *a);
int cli_run_redlock_check(const struct cli_args *a);
int cli_run_frontdoor_check(const struct cli_args *a);
int cli_run_demo_redlock(const struct cli_args *a);
int cli_run_store_get(const struct cli_args *a);
int cli_run_store_set(const struct cli_args *a);
int cli_run_store_del(const struct cli_args *a);
int cli_run_store_claim(const struct cli_args *a);
int cli_run_store_mark(const struct cli_args *a);
int cli_run_store_backup(const struct cli_args *a);
int cli_run_guard(const struct cli_args *a);
int cli_run_guard_adopt(const struct cli_args *a);

#endif
