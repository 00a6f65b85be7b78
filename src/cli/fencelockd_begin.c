/* fencelockd_begin.c: see fencelockd.h. */
#include "cli/fencelockd.h"

#include <inttypes.h>
#include <time.h>

#include "base/clock.h"
#include "cli/daemon.h"
#include "cli/output.h"
#include "recovery/beginning.h"

#define SENTENCE_MAX 1024u

/* Says for how many tokens a second the step is enough: a busier cluster needs a larger step. */
static void say_rate(struct cli_list *f, const struct config *c, uint64_t made_ms)
{
    uint64_t now_ms = fli_clock_wall_ms();
    uint64_t age_s = made_ms < now_ms ? (now_ms - made_ms) / 1000 : 0;
    char age[CLI_DURATION_SIZE];
    uint64_t rate = c->step / (age_s == 0 ? 1 : age_s);
    cli_format_duration(age, age_s * 1000);
    cli_list_say(f, "age", "%s: the step covers %" PRIu64 " token%s a second since then", age, rate,
                 fli_s(rate));
}

static void report(const struct config *c, const struct beginning_result *r)
{
    struct cli_list f;
    struct cli_out o = cli_out_begin(stdout, c->json, false);
    cli_list_one(&f, &o, 12);
    fli_json_bool(&o.j, "ok", true);
    fli_json_bytes(&o.j, "data", fl_str(c->data));
    fli_json_u64(&o.j, "node", c->id);
    fli_json_u64(&o.j, "members", c->members.n);
    fli_json_u64(&o.j, "old_cluster_id", r->old_cluster_id);
    fli_json_u64(&o.j, "old_index", r->index);
    fli_json_u64(&o.j, "old_last_token", r->old_token);
    fli_json_u64(&o.j, "last_token", r->new_token);
    fli_json_u64(&o.j, "ended_holds", r->ended_holds);
    fli_json_u64(&o.j, "ended_waits", r->ended_waits);
    fli_json_bool(&o.j, "users_reset", c->reset_users);
    cli_list_say(&f, "data", "%s, node %" PRIu64 " of %u", c->data, c->id, c->members.n);
    cli_list_say(&f, "from", "cluster %016" PRIx64 ", up to entry %" PRIu64 ", token %" PRIu64,
                 r->old_cluster_id, r->index, r->old_token);
    if (r->made_ms != 0) {
        say_rate(&f, c, r->made_ms);
    }
    cli_list_say(&f, "tokens", "begin with %" PRIu64, r->new_token + 1);
    cli_list_say(&f, "ended", "%" PRIu64 " hold%s, %" PRIu64 " wait%s", r->ended_holds,
                 fli_s(r->ended_holds), r->ended_waits, fli_s(r->ended_waits));
    cli_list_say(&f, r->lost_after != 0 ? "lost" : NULL,
                 "whatever the cluster did after entry %" PRIu64
                 " of this node's log: grants, releases, users, limits. Tokens that it issued "
                 "then must be below %" PRIu64,
                 r->lost_after, r->new_token + 1);
    const char *next = c->members.n == 1 ? "start it"
                       : r->lost_after != 0
                           ? "make the directory of every other member from the "
                             "same directory (copy it) with the same numbers, "
                             "then start them all"
                           : "make the directory of every other member from the "
                             "same file with the same numbers, then start them all";
    cli_list_say(&f, "next",
                 "%s. Nodes of the old cluster, and its directories, must not be started again: "
                 "clients could reach both.",
                 next);
    cli_out_end(&o);
}

void fencelockd_begin(const struct config *c)
{
    char errmsg[SENTENCE_MAX] = "";
    struct beginning_result result;
    bool recovers = c->recover_from[0] != '\0';
    const struct beginning b = {.data = c->data,
                                .backup = recovers ? NULL : c->restore,
                                .old_data = recovers ? c->recover_from : NULL,
                                .id = c->id,
                                .members = &c->members,
                                .above = recovers ? c->tokens_above : c->above,
                                .step = c->step,
                                .reset_users = c->reset_users};
    int rc = beginning_make(&b, &result, errmsg, sizeof errmsg);
    if (rc != 0) {
        daemon_die(rc == FL_EIO || rc == FL_ENOMEM || rc == FL_ESYSTEM ? DAEMON_FAILED
                                                                       : DAEMON_USAGE,
                   "%s", errmsg);
    }
    if (c->reset_users) {
        daemon_complain("WARNING: the new cluster has NO users of the old one, and all passwords "
                        "and rights are gone. At its first start it takes users from --aclfile or "
                        "--requirepass; without them every client may do everything");
    }
    report(c, &result);
}
