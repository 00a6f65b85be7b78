/* fencelock_cmd_redlock.c: locks on Redis servers (Redlock), one call at a time.
 *
 * If nodes are named (--nodes or FENCELOCK_NODES), they issue a token once the quorum is held. */
#include <inttypes.h>
#include <string.h>

#include "cli/interrupted.h"
#include "cli/redlock_args.h"
#include "client/caller.h"

void cli_redlock_json(struct cli_out *o, const fl_client *r)
{
    const struct fl_redlock_report *report = fl_redlock_last(r);
    fli_json_u64(&o->j, "quorum", report->quorum);
    fli_json_array(&o->j, "servers");
    for (uint32_t i = 0; i < report->servers; i++) {
        const struct fl_redlock_server_report *s = &report->server[i];
        fli_json_object(&o->j, NULL);
        fli_json_bytes(&o->j, "address", fl_str(fl_client_node(r, i)));
        fli_json_text(&o->j, "status", fl_redlock_status_text(s->status));
        fli_json_bytes(&o->j, "error", fl_str(s->error));
        fli_json_u64(&o->j, "rtt_us", s->rtt_us);
        fli_json_end_object(&o->j);
    }
    fli_json_end_array(&o->j);
}

/* ---- the result ------------------------------------------------------------------------------ */

/* key: what the lock is not, "acquired" for example. */
static const char *cause_of(const char *key, const struct fl_redlock_report *report, int result)
{
    if (report->no_token) {
        return "no token";
    }
    switch (result) {
    case FL_ENOTHELD:
        return strcmp(key, "acquired") == 0 ? "contended" : "lost";
    case FL_ENOCONN:
        return "unreachable";
    case FL_ETIMEOUT:
        return "too slow";
    case FL_EDENIED:
        return "refused";
    default:
        return "none";
    }
}

static int show_failure(const struct cli_args *a, const fl_client *r, const char *key, int rc)
{
    char text[CLI_REDLOCK_ERROR_SIZE];
    const struct fl_redlock_report *report = fl_redlock_last(r);
    if (report->servers == 0) { /* the call was not even begun */
        return cli_fail(a, rc,
                        rc == FL_EINVAL ? "the name, the owner or a time is out of range"
                                        : fl_strerror(rc));
    }
    cli_redlock_explain(text, sizeof text, report, rc);
    cli_complain("%.255s: not %s: %s", a->arg[0], key, text);
    struct cli_out o = cli_answer(a, key, false, "name", cli_name_of(a), false);
    fli_json_text(&o.j, "error", fl_err_name(rc));
    fli_json_text(&o.j, "cause", cause_of(key, report, rc));
    fli_json_bytes(&o.j, "message", fl_str(text));
    cli_redlock_json(&o, r);
    cli_out_end(&o);
    return (int)cli_redlock_exit_of(rc, report);
}

/* ---- acquire --------------------------------------------------------------------------------- */

/* A signal ends it by that signal; what was set is given back before. */
static int acquire(const struct cli_args *a, fl_client *r, const struct fl_take *options,
                   const struct cli_signals *signals, int *ret_signal)
{
    fl_lock *lock;
    fli_client_stop_at(r, signals->fd);
    int rc = fl_lock_take(r, NULL, options, &lock);
    *ret_signal = cli_signals_next(signals);
    fli_client_stop_at(r, -1);
    if (*ret_signal != 0 && rc == 0 && fl_lock_release(lock) != 0) {
        cli_complain("%.255s: not given back everywhere, it ends with its TTL", a->arg[0]);
    }
    if (*ret_signal != 0) {
        return CLI_EXIT_UNKNOWN;
    }
    cli_redlock_warn_of_nodes(r, fl_redlock_last(r));
    if (rc != 0) {
        return show_failure(a, r, "acquired", rc);
    }
    const struct cli_held held = {.owner = fl_redlock_value(lock),
                                  .ttl_ms = fl_lock_ttl_ms(lock),
                                  .deadline_ms = fl_lock_deadline_ms(lock),
                                  .token = fl_lock_granted(lock)};
    cli_show_held(a, "acquired", &held, r);
    fl_lock_free(lock);
    return CLI_EXIT_DONE;
}

int cli_run_redlock_acquire(const struct cli_args *a)
{
    struct fl_take options;
    int code = CLI_EXIT_USAGE;
    if (!cli_name_is_wellformed(a->arg[0]) || !cli_redlock_take_options(a, &options)) {
        return code;
    }
    options.name = cli_name_of(a);
    options.unrenewed = true;
    fl_client *tokens;
    fl_client *r = cli_redlock_open(a, false, &tokens, &code);
    int signal = 0;
    struct cli_signals signals;
    if (r != NULL) {
        code = cli_signals_take(&signals) ? acquire(a, r, &options, &signals, &signal)
                                          : cli_fail(a, FL_ESYSTEM, "signals cannot be received");
        fl_close(r);
    }
    fl_close(tokens);
    return signal != 0 ? cli_signals_die(&signals, signal) : code;
}

/* ---- extend, release ------------------------------------------------------------------------- */

/* `extend` and `release`. Only its holder knows how long the lock is still valid. */
int cli_run_redlock_by_owner(const struct cli_args *a)
{
    bool extends = strcmp(a->command->sub, "extend") == 0;
    const char *word = extends ? "extended" : "released";
    const char *owner = a->arg[1];
    struct fl_take options = {.ttl_ms = FL_TTL_DEFAULT_MS};
    int code = CLI_EXIT_USAGE;
    if ((extends && !cli_redlock_take_options(a, &options)) || !cli_name_is_wellformed(a->arg[0])) {
        return code;
    }
    if (strlen(owner) != FL_REDLOCK_VALUE_LEN) {
        cli_complain("'%.64s' is not an owner: it is the first word that redlock acquire printed, "
                     "of %u characters",
                     owner, FL_REDLOCK_VALUE_LEN);
        return code;
    }
    fl_client *r = cli_redlock_open(a, false, NULL, &code);
    if (r == NULL) {
        return code;
    }
    struct cli_held lock = {.owner = fl_str(owner),
                            .ttl_ms = options.ttl_ms,
                            .deadline_ms = fl_now_ms() + options.ttl_ms};
    int rc = extends
                 ? fl_redlock_extend(r, cli_name_of(a), owner, options.ttl_ms, &lock.deadline_ms)
                 : fl_redlock_release(r, cli_name_of(a), owner);
    if (rc != 0) {
        code = show_failure(a, r, word, rc);
    } else if (extends) {
        cli_show_held(a, word, &lock, r);
    } else {
        struct cli_out o = cli_answer(a, word, true, "name", cli_name_of(a), false);
        cli_text(&o, "\n");
        cli_out_end(&o);
    }
    fl_close(r);
    return code;
}

/* ---- check ----------------------------------------------------------------------------------- */

static const char *const kinds[] = {"even",    "few",     "twice",    "replica",
                                    "evicts",  "forgets", "young",    "unreachable",
                                    "refused", "unknown", "stranger", "unable"};

static void list_findings(struct cli_out *o, const fl_client *r,
                          const struct fl_redlock_check_report *found)
{
    struct cli_list l;
    cli_list_begin(&l, o, "findings");
    for (size_t i = 0; i < found->len; i++) {
        const struct fl_redlock_finding *f = &found->finding[i];
        cli_list_row(&l);
        const char *address = f->server >= 0 ? fl_client_node(r, (size_t)f->server) : "all";
        l.none = f->server < 0;
        cli_list_text(&l, "address", NULL, CLI_PLAIN, address);
        l.none = false;
        cli_list_text(&l, NULL, "SERVER", CLI_PLAIN, address);
        cli_list_bool(&l, "refuses", f->refuses);
        cli_list_text(&l, NULL, "LEVEL", f->refuses ? CLI_RED : CLI_YELLOW,
                      f->refuses ? "refused" : "warning");
        cli_list_text(&l, "kind", "FOUND", CLI_BOLD, kinds[f->kind]);
        cli_list_text(&l, "text", "WHAT IT MEANS", CLI_PLAIN, f->text);
    }
    cli_list_end(&l);
}

static const char *verdict(int rc, bool down, size_t findings)
{
    if (rc != 0) {
        return "not fit for Redlock: locks on these servers would not be locks";
    }
    if (down) {
        return "no use for now: too few servers can be reached for a lock";
    }
    return findings == 0 ? "fit for Redlock" : "usable for Redlock, with what the warnings say";
}

static int show_check(const struct cli_args *a, const fl_client *r, int rc,
                      const struct fl_redlock_check_report *found)
{
    size_t silent = 0;
    for (size_t i = 0; i < found->len; i++) {
        silent += found->finding[i].kind == FL_REDLOCK_FIND_UNREACHABLE ? 1 : 0;
    }
    /* too few servers answered to decide about a lock */
    bool down = silent > fl_client_nodes(r) - (fl_client_nodes(r) / 2 + 1);
    bool fit = rc == 0 && !down;
    struct cli_out o = cli_result(a);
    fli_json_bool(&o.j, "fit", fit);
    list_findings(&o, r, found);
    cli_paint(&o, fit ? CLI_GREEN : CLI_RED, "%s", verdict(rc, down, found->len));
    cli_text(&o, "\n");
    cli_out_end(&o);
    return rc != 0 ? CLI_EXIT_NO : down ? CLI_EXIT_UNKNOWN : CLI_EXIT_DONE;
}

int cli_run_redlock_check(const struct cli_args *a)
{
    int code;
    fl_client *r = cli_redlock_open(a, false, NULL, &code);
    if (r == NULL) {
        return code;
    }
    const struct fl_redlock_check_options options = {.timeout_ms = a->number[CLI_OPT_TIMEOUT]};
    struct fl_redlock_check_report found;
    int rc = fl_redlock_check(r, &options, &found);
    code = rc == 0 || rc == FL_EDENIED ? show_check(a, r, rc, &found)
                                       : cli_fail(a, rc, fl_strerror(rc));
    fl_close(r);
    return code;
}
