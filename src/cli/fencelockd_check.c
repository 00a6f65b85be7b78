/* fencelockd_check.c: see fencelockd.h. */
#include "cli/fencelockd.h"

#include <inttypes.h>
#include <string.h>

#include "cli/daemon.h"
#include "cli/output.h"
#include "server/server_check.h"

#define SENTENCE_MAX 1024u

static void on_value(void *ctx, const char *name, const char *value, const char *where)
{
    struct cli_list *l = ctx;
    bool given = strcmp(where, "default") != 0;
    cli_list_row(l);
    cli_list_text(l, "option", "OPTION", CLI_PLAIN, name);
    cli_list_shown(l, "value", "VALUE", given ? CLI_BOLD : CLI_PLAIN, fl_str(value),
                   fl_str(value[0] == '\0' ? "none" : value));
    cli_list_text(l, "from", "FROM", given ? CLI_PLAIN : CLI_DIM, where);
}

static const char *state_of(const struct directory_summary *summary)
{
    return summary->is_used                    ? "used"
           : !summary->has_identity            ? (summary->is_empty ? "new" : "foreign")
           : summary->identity.cluster_id != 0 ? "member"
                                               : "begun";
}

static void text_of_directory(const struct cli_out *o, const struct config *c,
                              const struct directory_summary *summary)
{
    cli_text(o, "data in %.400s, ", c->data);
    if (!summary->has_identity) {
        cli_text(o, "which %s\n", summary->exists ? "is empty" : "does not exist yet");
    } else if (summary->identity.cluster_id == 0) {
        cli_text(o, "of node %" PRIu64 " in a cluster that is not formed yet\n",
                 summary->identity.id);
    } else {
        cli_text(o, "of node %" PRIu64 " in cluster %" PRIu64 "\n", summary->identity.id,
                 summary->identity.cluster_id);
    }
}

/* errmsg: "", or why it would not start. */
static void report(int argc, const char *const *argv, const char *const *env,
                   const struct config *c, const struct directory_summary *summary,
                   const char *errmsg)
{
    struct cli_list l;
    bool works = errmsg[0] == '\0';
    struct cli_out o = cli_out_begin(stdout, c->json, false);
    fli_json_bool(&o.j, "ok", works);
    if (!works) {
        fli_json_bytes(&o.j, "error", fl_str(errmsg));
    }
    fli_json_u64(&o.j, "node", c->id);
    fli_json_u64(&o.j, "members", c->members.n);
    fli_json_object(&o.j, "data");
    fli_json_bytes(&o.j, "path", fl_str(c->data));
    fli_json_text(&o.j, "state", state_of(summary));
    if (summary->has_identity) {
        fli_json_u64(&o.j, "node", summary->identity.id);
        fli_json_u64(&o.j, "cluster", summary->identity.cluster_id);
    }
    fli_json_end_object(&o.j);
    cli_list_begin(&l, &o, "options");
    enum config_outcome outcome = config_list(argc, argv, env, on_value, &l);
    FLI_ASSERT(outcome == CONFIG_RUN || !works);
    cli_list_end(&l);
    if (works) {
        cli_text(&o, "\n");
        cli_paint(&o, CLI_GREEN, "ok");
        cli_text(&o, ": would run node %" PRIu64 " of %u, clients at %s%s%s%s, ", c->id,
                 c->members.n, config_listens_plainly(c) ? c->listen : "",
                 config_listens_plainly(c) && c->tls_port[0] != '\0' ? " and " : "", c->tls_port,
                 c->tls_port[0] != '\0' ? " (TLS)" : "");
        text_of_directory(&o, c, summary);
    }
    cli_out_end(&o);
}

int fencelockd_check(int argc, const char *const *argv, const char *const *env,
                     const struct config *c)
{
    char errmsg[SENTENCE_MAX] = "";
    struct directory_summary summary;
    int rc = server_check(c, &summary, errmsg, sizeof errmsg);
    if (rc == 0) {
        errmsg[0] = '\0';
    }
    report(argc, argv, env, c, &summary, errmsg);
    (void)fflush(stdout);
    if (rc != 0) {
        daemon_complain("%s", errmsg);
    }
    return rc == 0 ? 0 : 2;
}
