/* redlock_args.c: see redlock_args.h. */
#include "cli/redlock_args.h"

#include <string.h>

#define PASSWORD_VARIABLE "FENCELOCK_REDIS_PASSWORD"

static int take_password(const struct cli_args *a, struct cli_redlock_options *o)
{
    int code = cli_password_of(a, CLI_OPT_REDIS_PASSWORD_FILE, PASSWORD_VARIABLE, o->password,
                               sizeof o->password);
    if (code == 0 && o->password[0] != '\0') {
        o->options.password = o->password;
    }
    if (code == 0 && cli_has(a, CLI_OPT_REDIS_USER) && o->options.password == NULL) {
        cli_complain("--redis-user needs a password: put it into " PASSWORD_VARIABLE
                     ", or into a file and name that with --redis-password-file");
        code = CLI_EXIT_USAGE;
    }
    return code;
}

uint64_t cli_redlock_max_ttl_ms(const struct cli_args *a)
{
    return cli_has(a, CLI_OPT_MAX_TTL) ? a->number[CLI_OPT_MAX_TTL] : FL_REDLOCK_MAX_TTL_DEFAULT_MS;
}

int cli_redlock_options(const struct cli_args *a, struct cli_redlock_options *ret)
{
    memset(ret, 0, sizeof *ret);
    if (!cli_has(a, CLI_OPT_REDIS)) {
        cli_complain("which Redis servers? Name them with --redis HOST:PORT,HOST:PORT,... or "
                     "FENCELOCK_REDIS");
        return CLI_EXIT_USAGE;
    }
    ret->options = (struct fl_redlock_options){
        .servers = a->text[CLI_OPT_REDIS],
        .user = a->text[CLI_OPT_REDIS_USER],
        .database = (uint32_t)a->number[CLI_OPT_REDIS_DB],
        .key_format = a->text[CLI_OPT_KEY_FORMAT],
        .max_ttl_ms = a->number[CLI_OPT_MAX_TTL],
        .budget_ms = a->number[CLI_OPT_BUDGET],
        .restarts_are_safe = cli_has(a, CLI_OPT_RESTARTS_ARE_SAFE),
    };
    return take_password(a, ret);
}

fl_client *cli_redlock_open(const struct cli_args *a, bool own_loop, fl_client **ret_tokens,
                            int *ret_exit)
{
    struct cli_redlock_options o;
    if (ret_tokens != NULL) {
        *ret_tokens = NULL;
    }
    *ret_exit = cli_redlock_options(a, &o);
    if (*ret_exit != 0) {
        return NULL;
    }
    char errmsg[512];
    struct cli_tls tls;
    *ret_exit = cli_tls_of(a, CLI_OPT_REDIS_TLS, &tls);
    if (*ret_exit != 0) {
        return NULL;
    }
    if (ret_tokens != NULL && cli_has(a, CLI_OPT_NODES) &&
        (*ret_tokens = cli_client_create(a, ret_exit)) == NULL) {
        return NULL;
    }
    o.options.tls = tls.use;
    o.options.tokens = ret_tokens != NULL ? *ret_tokens : NULL;
    o.options.own_loop = own_loop;
    fl_client *r;
    int rc = fl_redlock_open(&o.options, &r, errmsg, sizeof errmsg);
    if (rc != 0) {
        char message[640];
        snprintf(message, sizeof message, "--redis or FENCELOCK_REDIS cannot be used as given: %s",
                 rc == FL_EINVAL || rc == FL_ENOCONN ? errmsg : fl_strerror(rc));
        *ret_exit = cli_fail(a, rc, message);
        return NULL;
    }
    return r;
}

bool cli_redlock_take_options(const struct cli_args *a, struct fl_take *ret)
{
    uint64_t ttl_ms = cli_has(a, CLI_OPT_TTL) ? a->number[CLI_OPT_TTL] : FL_TTL_DEFAULT_MS;
    uint64_t most_ms = cli_redlock_max_ttl_ms(a);
    char most[CLI_DURATION_SIZE];
    cli_format_duration(most, most_ms);
    if (ttl_ms < FL_TTL_MIN_MS || ttl_ms > most_ms) {
        cli_complain("--ttl is %llu ms to %s; longer ones need --max-ttl, the same at all clients",
                     (unsigned long long)FL_TTL_MIN_MS, most);
        return false;
    }
    if (a->number[CLI_OPT_MIN_VALIDITY] >= ttl_ms) {
        cli_complain("--min-validity must be shorter than --ttl");
        return false;
    }
    *ret = (struct fl_take){.ttl_ms = ttl_ms,
                            .min_validity_ms = a->number[CLI_OPT_MIN_VALIDITY],
                            .wait_ms = a->number[CLI_OPT_WAIT]};
    return true;
}

/* What to do about it. */
static const char *remedy(const struct fl_redlock_report *report, int result)
{
    if (report->no_token) {
        return result == FL_ENOCONN || result == FL_ENOLEADER || result == FL_ETIMEOUT
                   ? "A majority of the nodes in --nodes must be up: see fencelock status"
                   : NULL; /* the servers answer, and have said why they refuse */
    }
    if (result == FL_ENOCONN) {
        return "Start the servers, or name others with --redis or FENCELOCK_REDIS";
    }
    if (result == FL_ETIMEOUT) {
        return "Try again with --wait, or with a longer --budget (50ms) and --ttl: each server may "
               "take the budget, or a twentieth of the TTL when that is less";
    }
    for (uint32_t i = 0; i < report->servers && result == FL_EDENIED; i++) {
        if (report->server[i].status == FL_REDLOCK_YOUNG) {
            return "Wait until the servers have been up for --max-ttl (30 s), or say "
                   "--restarts-are-safe when they keep their keys";
        }
    }
    return result == FL_EDENIED ? "See fencelock redlock check" : NULL;
}

void cli_redlock_warn_of_nodes(const fl_client *r, const struct fl_redlock_report *report)
{
    for (uint32_t i = 0; i < report->servers; i++) {
        if (report->server[i].is_node) {
            cli_complain("%.255s is fencelockd and no independent Redis server: all nodes of a "
                         "cluster are one, so lock with fencelock acquire or run (--nodes) instead",
                         fl_client_node(r, i));
        }
    }
}

void cli_redlock_explain(char *out, size_t size, const struct fl_redlock_report *report, int result)
{
    const char *what = remedy(report, result);
    snprintf(out, size, "%s%s%s", report->text, what != NULL ? ". " : "", what != NULL ? what : "");
}

enum cli_exit cli_redlock_exit_of(int code, const struct fl_redlock_report *report)
{
    /* A refusal by servers or nodes is an outage: to a script it must not look like contention. */
    return code == FL_EDENIED || report->no_token ? CLI_EXIT_UNKNOWN : cli_exit_of(code);
}
