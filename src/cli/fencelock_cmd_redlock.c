/* fencelock_cmd_redlock.c: locks on Redis servers (Redlock), one call at a time.
 *
 * If nodes are named (--nodes or FENCELOCK_NODES), they issue a token once the quorum is held. */
#include <string.h>

#include "cli/fencelock_common.h"

void cli_redlock_json(struct cli_out *o, const fl_client *r, const struct fl_redlock_report *report)
{
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

int cli_redlock_failed(const struct cli_args *a, const fl_client *r,
                       const struct fl_redlock_report *report, const char *word, int rc)
{
    char text[FL_REDLOCK_TEXT_MAX + 256];
    if (report->servers == 0) { /* the call was not even begun */
        return cli_fail(a, rc,
                        rc == FL_EINVAL ? "the name, the owner or a time is out of range"
                                        : fl_strerror(rc));
    }
    const char *what = remedy(report, rc);
    snprintf(text, sizeof text, "%s%s%s", report->text, what != NULL ? ". " : "",
             what != NULL ? what : "");
    cli_complain("%.255s: not %s: %s", a->arg[0], word, text);
    struct cli_out o = cli_answer(a, word, false, "name", cli_name_of(a), false);
    fli_json_text(&o.j, "error", fl_err_name(rc));
    fli_json_text(&o.j, "cause", cause_of(word, report, rc));
    fli_json_bytes(&o.j, "message", fl_str(text));
    cli_redlock_json(&o, r, report);
    cli_out_end(&o);
    /* A refusal by servers or nodes is an outage: to a script it must not look like contention. */
    bool outage = rc == FL_EDENIED || report->no_token;
    return cli_exit_for(a, outage ? CLI_EXIT_UNKNOWN : cli_exit_of(rc));
}

/* ---- extend, release ------------------------------------------------------------------------- */

/* `extend` and `release`. Only its holder knows how long the lock is still valid. */
int cli_run_redlock_by_owner(const struct cli_args *a, fl_client *r)
{
    bool extends = strcmp(cli_verb(a), "extend") == 0;
    const char *word = extends ? "extended" : "released";
    const char *owner = a->arg[1];
    uint64_t ttl_ms = extends ? cli_take_of(a).ttl_ms : 0;
    if (strlen(owner) != FL_REDLOCK_VALUE_LEN) {
        cli_usage("'%.64s' is not an owner: it is the first word that redlock acquire printed, "
                  "of %u characters",
                  owner, FL_REDLOCK_VALUE_LEN);
    }
    struct cli_held lock = {
        .owner = fl_str(owner), .ttl_ms = ttl_ms, .deadline_ms = fl_now_ms() + ttl_ms};
    int rc = extends ? fl_redlock_extend(r, cli_name_of(a), owner, ttl_ms, &lock.deadline_ms)
                     : fl_redlock_release(r, cli_name_of(a), owner);
    if (rc != 0) {
        return cli_redlock_failed(a, r, fl_redlock_last(r), word, rc);
    }
    if (extends) {
        cli_show_held(a, r, word, &lock);
        return CLI_EXIT_DONE;
    }
    struct cli_out o = cli_answer(a, word, true, "name", cli_name_of(a), false);
    cli_text(&o, "\n");
    cli_out_end(&o);
    return CLI_EXIT_DONE;
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
        cli_list_bool(&l, "refuses", "LEVEL", f->refuses ? CLI_RED : CLI_YELLOW, f->refuses,
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

int cli_run_redlock_check(const struct cli_args *a, fl_client *r)
{
    const struct fl_redlock_check_options options = {.timeout_ms = a->number[CLI_OPT_TIMEOUT]};
    struct fl_redlock_check_report found;
    int rc = fl_redlock_check(r, &options, &found);
    return rc == 0 || rc == FL_EDENIED ? show_check(a, r, rc, &found)
                                       : cli_fail(a, rc, fl_strerror(rc));
}
