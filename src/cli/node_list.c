/* node_list.c: see node_list.h. */
#include "cli/node_list.h"

#include <inttypes.h>
#include <string.h>

void see_node(fl_client *c, size_t i, uint64_t timeout_ms, struct seen_node *ret)
{
    ret->address = fl_client_node(c, i);
    ret->error = fl_node_ask(c, i, timeout_ms, &ret->status, sizeof ret->status);
    if (ret->error != 0) {
        snprintf(ret->message, sizeof ret->message, "%s", fl_client_error(c));
    }
}

void see_nodes(fl_client *c, uint64_t timeout_ms, struct seen_nodes *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->n = fl_client_nodes(c);
    for (size_t i = 0; i < ret->n; i++) {
        struct seen_node *node = &ret->node[i];
        const struct fl_node_status *s = &node->status;
        see_node(c, i, timeout_ms, node);
        if (node->error != 0) {
            continue;
        }
        ret->reached++;
        ret->commit = s->commit_index > ret->commit ? s->commit_index : ret->commit;
        if (ret->first == NULL || s->applied_index > ret->first->status.applied_index) {
            ret->first = node;
        }
        /* A replaced leader that does not know it yet has the lower term. */
        if (strcmp(s->role, "leader") == 0 &&
            (ret->leader == NULL || s->term > ret->leader->status.term)) {
            ret->leader = node;
        }
    }
}

uint64_t seen_lag(const struct seen_nodes *seen, const struct seen_node *node)
{
    uint64_t applied = node->status.applied_index;
    return seen->commit > applied ? seen->commit - applied : 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Of a node that cannot be reached the table has a dash; text NULL: the number itself. */
static void add_number(struct cli_list *l, const char *key, const char *title,
                       enum cli_colour colour, const struct seen_node *node, uint64_t v,
                       const char *text)
{
    if (node->error != 0) {
        cli_list_none(l, NULL, title, true);
    } else if (text != NULL) {
        cli_list_number(l, key, title, colour, v, text);
    } else {
        cli_list_u64(l, key, title, colour, v);
    }
}

static void add_text(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                     const struct seen_node *node, const char *v)
{
    if (node->error != 0) {
        cli_list_none(l, NULL, title, false);
    } else {
        cli_list_text(l, key, title, colour, v);
    }
}

static void add_log(struct cli_list *l, const struct seen_node *node, bool work)
{
    const struct fl_node_status *s = &node->status;
    bool waits = s->log_waits != 0;
    char size[48];
    char sync[48];
    (void)snprintf(size, sizeof size, "%" PRIu64 " MiB", s->log_bytes >> 20);
    (void)snprintf(sync, sizeof sync, "%" PRIu64 " us", s->log_write_avg_us);
    add_number(l, "log_bytes", work ? "LOG" : NULL, CLI_PLAIN, node, s->log_bytes, size);
    add_number(l, "log_write_avg_us", work ? "SYNC" : NULL, CLI_PLAIN, node, s->log_write_avg_us,
               sync);
    cli_list_bool(l, "log_waits", waits);
    add_text(l, NULL, work ? "DISK" : NULL, waits ? CLI_RED : CLI_PLAIN, node,
             waits ? "full or slow" : "ok");
}

static void add_node(struct cli_list *l, const struct seen_nodes *seen,
                     const struct seen_node *node, bool work)
{
    const struct fl_node_status *s = &node->status;
    uint64_t lag = seen_lag(seen, node);
    char uptime[CLI_DURATION_SIZE];
    cli_list_row(l);
    cli_list_text(l, "address", "NODE", CLI_PLAIN, node->address);
    cli_list_bool(l, "reachable", node->error == 0);
    if (node->error != 0 && l->out->json) {
        cli_list_text(l, "error", NULL, CLI_PLAIN, fl_err_name(node->error));
        cli_list_text(l, "message", NULL, CLI_PLAIN, node->message);
        return;
    }
    add_number(l, "id", "ID", CLI_PLAIN, node, s->node_id, NULL);
    cli_list_text(l, "role", "ROLE",
                  node->error != 0       ? CLI_RED
                  : node == seen->leader ? CLI_GREEN
                                         : CLI_PLAIN,
                  node->error != 0 ? "unreachable" : s->role);
    add_number(l, "term", "TERM", CLI_PLAIN, node, s->term, NULL);
    add_number(l, "commit_index", work ? NULL : "COMMIT", CLI_PLAIN, node, s->commit_index, NULL);
    add_number(l, "applied_index", work ? NULL : "APPLIED", CLI_PLAIN, node, s->applied_index,
               NULL);
    add_number(l, "lag", "LAG", lag > 0 ? CLI_YELLOW : CLI_PLAIN, node, lag, NULL);
    add_number(l, "last_token", work ? NULL : "LAST TOKEN", CLI_BOLD, node, s->last_token, NULL);
    add_number(l, "locks_held", NULL, CLI_PLAIN, node, s->locks_held, NULL);
    add_number(l, "clients", "CLIENTS", CLI_PLAIN, node, s->clients, NULL);
    add_log(l, node, work);
    cli_format_duration(uptime, s->uptime_ms);
    add_number(l, "uptime_ms", "UPTIME", CLI_PLAIN, node, s->uptime_ms, uptime);
    add_text(l, "version", work ? NULL : "VERSION", CLI_PLAIN, node, s->version);
}

void list_nodes(struct cli_out *o, const struct seen_nodes *seen, bool work)
{
    struct cli_list l;
    cli_list_begin(&l, o, "nodes");
    for (size_t i = 0; i < seen->n; i++) {
        add_node(&l, seen, &seen->node[i], work);
    }
    cli_list_end(&l);
}
