/* fencelock_cmd_hold.c: the commands that acquire, renew, check, release and break a lock, and the
 * one that issues a token. */
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/fencelock_common.h"
#include "client/caller.h"

#define TROUBLE_FIRST_MS UINT64_C(2000)
#define TROUBLE_EVERY_MS UINT64_C(5000)

/* Prints a yes or no. text: why not. */
static int print_yes_or_no(const struct cli_args *a, const char *word, bool yes, const char *text,
                           fl_token token)
{
    struct cli_out o = cli_answer(a, word, yes, "name", cli_name_of(a), false);
    cli_json_token(&o, "token", token);
    cli_text(&o, yes ? "\n" : "");
    cli_out_end(&o);
    if (!yes) {
        cli_complain("%s: %s", a->arg[0], text);
    }
    return yes ? CLI_EXIT_DONE : CLI_EXIT_NO;
}

/* ---- acquire --------------------------------------------------------------------------------- */

void cli_show_held(const struct cli_args *a, const fl_client *c, const char *word,
                   const struct cli_held *held)
{
    bool redis = cli_is_of_redis(a);
    struct cli_out o = cli_answer(a, word, true, "name", cli_name_of(a), true);
    char valid[CLI_DURATION_SIZE];
    uint64_t now_ms = fl_now_ms();
    uint64_t valid_ms = held->deadline_ms > now_ms ? held->deadline_ms - now_ms : 0;
    cli_json_token(&o, "token", held->token);
    fli_json_bytes(&o.j, "owner", held->owner);
    fli_json_u64(&o.j, "ttl_ms", held->ttl_ms);
    fli_json_u64(&o.j, "valid_ms", valid_ms);
    if (redis) {
        cli_redlock_json(&o, c, fl_redlock_last(c));
    }
    if (o.terminal && held->token != FL_TOKEN_NONE) {
        cli_text(&o, ", token ");
        cli_paint(&o, CLI_BOLD, "%" PRIu64, held->token);
    }
    if (o.terminal) {
        cli_format_duration(valid, valid_ms);
        cli_text(&o, ", valid for %s, owner ", valid);
        cli_text_safe(&o, held->owner);
    } else if (redis) {
        cli_text_safe(&o, held->owner);
        cli_text(&o, " %" PRIu64 "%s", valid_ms, held->token != FL_TOKEN_NONE ? " " : "");
    }
    if (!o.terminal && held->token != FL_TOKEN_NONE) {
        cli_text(&o, "%" PRIu64, held->token);
    }
    cli_text(&o, "\n");
    cli_out_end(&o);
}

static int not_acquired(const struct cli_args *a, const fl_client *c, int code,
                        struct fl_bytes owner)
{
    char text[2048];
    const char *why = fl_client_error(c);
    if (cli_is_of_redis(a)) {
        return cli_redlock_failed(a, c, fl_redlock_last(c), "acquired", code);
    }
    if (code == FL_ENOTHELD) {
        snprintf(text, sizeof text, "not acquired: %s", why);
        return print_yes_or_no(a, "acquired", false, text, FL_TOKEN_NONE);
    }
    if (code != FL_EUNCERTAIN) {
        return cli_fail(a, code, why);
    }
    /* A retry needs the owner, which may be a random one: print it. */
    snprintf(text, sizeof text, "%s. Acquire again with --owner %.*s: it cannot be granted twice",
             why, (int)owner.len, (const char *)owner.data);
    struct cli_out o = cli_failure(a, code, text, cli_remedy(a, code, text));
    fli_json_bytes(&o.j, "owner", owner);
    cli_out_end(&o);
    return (int)cli_exit_of(code);
}

/* What was printed about the nodes while no answer came. */
struct trouble {
    const char *name;
    char printed[1024]; /* "": nothing yet, or a node is usable again */
    uint64_t printed_ms;
};

/* A wrong address must not look like a long queue. And a stderr that nobody reads must not delay
 * the lock. */
static void on_trouble(void *arg, uint64_t without_ms, const char *text)
{
    struct trouble *t = arg;
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    uint64_t now_ms = fl_now_ms();
    if ((text[0] != '\0' && without_ms < TROUBLE_FIRST_MS) || strcmp(text, t->printed) == 0 ||
        now_ms - t->printed_ms < TROUBLE_EVERY_MS || poll(&p, 1, 0) != 1 ||
        (p.revents & POLLOUT) == 0) {
        return;
    }
    cli_complain("%s: waiting%s%s", t->name, text[0] != '\0' ? ", but " : " for the lock",
                 text[0] != '\0' ? text : ": a node answers again");
    snprintf(t->printed, sizeof t->printed, "%s", text);
    t->printed_ms = now_ms;
}

/* After a signal nobody is left holding the lock; but an owner that was named may have held it
 * before, and can ask again. What was set on Redis servers is given back already, unless all of it
 * was. */
static void give_back(const struct cli_args *a, fl_client *c, const struct fl_take *options,
                      const struct cli_signals *signals, fl_lock *lock)
{
    uint64_t last = fli_client_last_attempt(c);
    if (cli_is_of_redis(a)) {
        if (lock != NULL && fl_lock_release(lock) != 0) {
            cli_complain("%.255s: not given back everywhere, it ends with its TTL", a->arg[0]);
        }
        return;
    }
    if (!cli_has(a, CLI_OPT_OWNER)) {
        cli_settle(a, signals, options, lock != NULL && last == 0 ? 1 : last);
    }
    fl_lock_free(lock);
}

/* A signal ends it by that signal. */
static int acquire(const struct cli_args *a, fl_client *c, const struct fl_take *options)
{
    struct cli_signals signals;
    fl_lock *lock = NULL;
    if (!cli_signals_take(&signals)) {
        cli_die(a, FL_ESYSTEM, "signals cannot be received");
    }
    fli_client_stop_at(c, signals.fd);
    int rc = fl_lock_take(c, a->arg[0], options, &lock);
    int signal = cli_signals_next(&signals);
    fli_client_stop_at(c, -1);
    if (signal != 0) {
        give_back(a, c, options, &signals, lock);
        return CLI_EXIT_SIGNAL + signal;
    }
    if (cli_is_of_redis(a)) {
        cli_redlock_warn_of_nodes(c, fl_redlock_last(c));
    }
    if (rc != 0) {
        return not_acquired(a, c, rc, options->owner);
    }
    const struct cli_held held = {.owner = fl_redlock_value(lock),
                                  .ttl_ms = fl_lock_ttl_ms(lock),
                                  .deadline_ms = fl_lock_deadline_ms(lock),
                                  .token = fl_lock_granted(lock)};
    cli_show_held(a, c, "acquired", &held);
    fl_lock_free(lock);
    return CLI_EXIT_DONE;
}

/* `acquire`, and that of `redlock`. */
int cli_run_acquire(const struct cli_args *a, fl_client *c)
{
    struct fl_take options = cli_take_of(a);
    struct trouble trouble = {.name = a->arg[0]};
    if (!cli_is_of_redis(a)) {
        options.owner = options.owner.len > 0 ? options.owner : fl_client_owner(c);
        fli_client_on_trouble(c, on_trouble, &trouble);
        fli_client_resolve(c); /* while a signal still ends this process at once */
    }
    int code = acquire(a, c, &options);
    fli_client_on_trouble(c, NULL, NULL);
    return code;
}

/* ---- renew, release, check, break, token ----------------------------------------------------- */

/* `renew`, `release` and `check`. */
int cli_run_by_token(const struct cli_args *a, fl_client *c)
{
    struct fl_result r;
    bool renews = strcmp(cli_verb(a), "renew") == 0;
    bool releases = strcmp(cli_verb(a), "release") == 0;
    const char *word = renews ? "renewed" : releases ? "released" : "held";
    const struct fl_ask ask = {.what = renews     ? FL_ASK_RENEW
                                       : releases ? FL_ASK_RELEASE
                                                  : FL_ASK_CHECK,
                               .name = cli_name_of(a),
                               .token = cli_token_of(a, a->arg[1]),
                               .ttl_ms = a->number[CLI_OPT_TTL]};
    bool yes = cli_call(a, c, &ask, FL_ENOTHELD, &r);
    return print_yes_or_no(a, word, yes, fl_client_error(c), ask.token);
}

static void show_break(const struct cli_args *a, fl_token burnt, fl_token mark)
{
    struct cli_out o = cli_answer(a, "broken", true, "name", cli_name_of(a), false);
    cli_json_token(&o, "token", burnt);
    cli_json_token(&o, "mark", mark);
    if (mark != FL_TOKEN_NONE) {
        cli_text(&o, "; the storage refuses its old holders from here on (mark %" PRIu64 ")\n",
                 mark);
    } else if (burnt != FL_TOKEN_NONE) {
        cli_text(&o,
                 "; its old holders can write until the storage is claimed with token %" PRIu64
                 " or a later one\n",
                 burnt);
    } else {
        cli_text(&o, "; the node is of an older version and does not tell the token to claim "
                     "with\n");
    }
    cli_out_end(&o);
}

/* The lock is broken, and the storage is still to be told, by a claim with the burnt token. If its
 * mark is newer, the broken holders are fenced already. An error must not hide the token. */
static int claim_and_show(const struct cli_args *a, fl_store *s, fl_token burnt)
{
    fl_token mark = s != NULL ? burnt : FL_TOKEN_NONE;
    int rc = mark != FL_TOKEN_NONE ? fl_store_claim(s, cli_name_of(a), burnt, 0, &mark) : 0;
    if (rc != 0 && rc != FL_ESTALE) {
        cli_complain("the lock is broken, but its old holders are not shut out: %s. Claim with "
                     "fencelock store claim --store %s --lock NAME --token %" PRIu64,
                     fl_store_error(s), a->text[CLI_OPT_CLAIM], burnt);
        show_break(a, burnt, FL_TOKEN_NONE);
        return (int)cli_exit_of(rc);
    }
    show_break(a, burnt, mark);
    return s != NULL && mark == FL_TOKEN_NONE ? CLI_EXIT_UNKNOWN : CLI_EXIT_DONE;
}

int cli_run_break(const struct cli_args *a, fl_client *c)
{
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_BREAK, .name = cli_name_of(a)};
    /* a bad address is an error before anything is broken */
    fl_store *s = cli_has(a, CLI_OPT_CLAIM) ? cli_store_create(a, CLI_OPT_CLAIM) : NULL;
    int code = cli_call(a, c, &ask, FL_ENOTHELD, &r)
                   ? claim_and_show(a, s, r.token)
                   : print_yes_or_no(a, "broken", false, fl_client_error(c), FL_TOKEN_NONE);
    fl_store_close(s);
    return code;
}

int cli_run_token(const struct cli_args *a, fl_client *c)
{
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_TOKEN, .name = cli_name_of(a)};
    (void)cli_call(a, c, &ask, 0, &r);
    struct cli_out o = cli_result(a);
    fli_json_bytes(&o.j, "name", cli_name_of(a));
    fli_json_u64(&o.j, "token", r.token);
    cli_text(&o, "%" PRIu64 "\n", r.token);
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}
