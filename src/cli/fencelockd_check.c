/* fencelockd_check.c: see fencelockd_check.h. */
#include "cli/fencelockd_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/output.h"
#include "server/server_check.h"

#define SENTENCE_MAX 1024u

static struct fl_bytes bytes_of(const char *text)
{
    return (struct fl_bytes){(const uint8_t *)text, strlen(text)};
}

static void on_value(void *ctx, const char *name, const char *value, const char *where)
{
    struct cli_list *l = ctx;
    bool given = strcmp(where, "default") != 0;
    cli_list_row(l);
    cli_list_text(l, "option", "OPTION", CLI_PLAIN, name);
    cli_list_text(l, "value", NULL, CLI_PLAIN, value);
    cli_list_text(l, NULL, "VALUE", given ? CLI_BOLD : CLI_PLAIN,
                  value[0] == '\0' ? "none" : value);
    cli_list_text(l, "from", "FROM", given ? CLI_PLAIN : CLI_DIM, where);
}

static const char *state_of(const struct directory_summary *summary)
{
    if (summary->is_used) {
        return "used";
    }
    if (summary->has_identity) {
        return summary->identity.cluster_id != 0 ? "member" : "begun";
    }
    return summary->is_empty ? "new" : "foreign";
}

static void describe_directory(const struct config *c, const struct directory_summary *summary,
                               char out[SENTENCE_MAX])
{
    if (!summary->has_identity) {
        (void)snprintf(out, SENTENCE_MAX, "data in %.400s, which %s", c->data,
                       summary->exists ? "is empty" : "does not exist yet");
    } else if (summary->identity.cluster_id == 0) {
        (void)snprintf(out, SENTENCE_MAX,
                       "data in %.400s, of node %" PRIu64 " in a cluster that is not formed yet",
                       c->data, summary->identity.id);
    } else {
        (void)snprintf(out, SENTENCE_MAX, "data in %.400s, of node %" PRIu64 " in cluster %" PRIu64,
                       c->data, summary->identity.id, summary->identity.cluster_id);
    }
}

static void print_json(int argc, const char *const *argv, const char *const *env,
                       const struct config *c, const struct directory_summary *summary,
                       const char *errmsg)
{
    struct fli_json j = cli_json_begin();
    struct cli_list l;
    fli_json_bool(&j, "ok", errmsg[0] == '\0');
    if (errmsg[0] != '\0') {
        fli_json_bytes(&j, "error", bytes_of(errmsg));
    }
    fli_json_u64(&j, "node", c->id);
    fli_json_u64(&j, "members", c->members.n);
    fli_json_object(&j, "data");
    fli_json_bytes(&j, "path", bytes_of(c->data));
    fli_json_text(&j, "state", state_of(summary));
    if (summary->has_identity) {
        fli_json_u64(&j, "node", summary->identity.id);
        fli_json_u64(&j, "cluster", summary->identity.cluster_id);
    }
    fli_json_end_object(&j);
    cli_list_begin(&l, &j, "options");
    enum config_outcome o = config_list(argc, argv, env, on_value, &l);
    FLI_ASSERT(o == CONFIG_RUN || errmsg[0] != '\0');
    cli_list_end(&l, stdout, false);
    cli_json_print(&j, stdout);
}

static void print_table(int argc, const char *const *argv, const char *const *env,
                        const struct config *c, const struct directory_summary *summary, bool works)
{
    char directory[SENTENCE_MAX];
    struct cli_list l;
    bool colours = cli_wants_colours(STDOUT_FILENO);
    cli_list_begin(&l, NULL, NULL);
    if (config_list(argc, argv, env, on_value, &l) == CONFIG_RUN) {
        cli_list_end(&l, stdout, colours);
    }
    cli_list_free(&l);
    if (works) {
        describe_directory(c, summary, directory);
        (void)printf("\n%sok%s: would run node %" PRIu64 " of %u, clients at %s%s%s%s, %s\n",
                     cli_colour_on(CLI_GREEN, colours), cli_colour_off(CLI_GREEN, colours), c->id,
                     c->members.n, config_listens_plainly(c) ? c->listen : "",
                     config_listens_plainly(c) && c->tls_port[0] != '\0' ? " and " : "",
                     c->tls_port, c->tls_port[0] != '\0' ? " (TLS)" : "", directory);
    }
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
    if (c->json) {
        print_json(argc, argv, env, c, &summary, errmsg);
    } else {
        print_table(argc, argv, env, c, &summary, rc == 0);
    }
    (void)fflush(stdout);
    if (rc != 0) {
        (void)fprintf(stderr, "fencelockd: %s\n", errmsg);
    }
    return rc == 0 ? 0 : 2;
}
