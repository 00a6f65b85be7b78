/* node_list.c: see node_list.h. */
#include "cli/node_list.h"

#include <inttypes.h>
#include <string.h>

void see_nodes(fl_client *c, uint64_t timeout_ms, struct seen_nodes *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->n = fl_client_nodes(c);
    for (size_t i = 0; i < ret->n; i++) {
        struct seen_node *node = &ret->node[i];
        const struct fl_node_status *s = &node->status;
        node->address = fl_client_node(c, i);
        node->error = fl_node_ask(c, i, timeout_ms, &node->status, sizeof node->status);
        if (node->error != 0) {
            snprintf(node->message, sizeof node->message, "%s", fl_client_error(c));
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

static void add_log(struct cli_list *l, const struct seen_node *node, bool work)
{
    const struct fl_node_status *s = &node->status;
    bool waits = s->log_waits != 0;
    char size[48];
    char sync[48];
    (void)snprintf(size, sizeof size, "%" PRIu64 " MiB", s->log_bytes >> 20);
    (void)snprintf(sync, sizeof sync, "%" PRIu64 " us", s->log_write_avg_us);
    cli_list_number(l, "log_bytes", work ? "LOG" : NULL, CLI_PLAIN, s->log_bytes, size);
    cli_list_number(l, "log_write_avg_us", work ? "SYNC" : NULL, CLI_PLAIN, s->log_write_avg_us,
                    sync);
    cli_list_bool(l, "log_waits", work ? "DISK" : NULL, waits ? CLI_RED : CLI_PLAIN, waits,
                  waits ? "full or slow" : "ok");
}

static void add_node(struct cli_list *l, const struct seen_nodes *seen,
                     const struct seen_node *node, bool work)
{
    const struct fl_node_status *s = &node->status;
    uint64_t lag = seen_lag(seen, node);
    cli_list_row(l);
    cli_list_text(l, "address", "NODE", CLI_PLAIN, node->address);
    cli_list_bool(l, "reachable", NULL, CLI_PLAIN, node->error == 0, "");
    if (node->error != 0 && l->out->json) {
        cli_list_text(l, "error", NULL, CLI_PLAIN, fl_err_name(node->error));
        cli_list_text(l, "message", NULL, CLI_PLAIN, node->message);
        return;
    }
    l->none = node->error != 0; /* a node that cannot be reached has dashes */
    cli_list_u64(l, "id", "ID", CLI_PLAIN, s->node_id);
    l->none = false;
    cli_list_text(l, "role", "ROLE",
                  node->error != 0       ? CLI_RED
                  : node == seen->leader ? CLI_GREEN
                                         : CLI_PLAIN,
                  node->error != 0 ? "unreachable" : s->role);
    l->none = node->error != 0;
    cli_list_u64(l, "term", "TERM", CLI_PLAIN, s->term);
    cli_list_u64(l, "commit_index", work ? NULL : "COMMIT", CLI_PLAIN, s->commit_index);
    cli_list_u64(l, "applied_index", work ? NULL : "APPLIED", CLI_PLAIN, s->applied_index);
    cli_list_u64(l, "lag", "LAG", lag > 0 ? CLI_YELLOW : CLI_PLAIN, lag);
    cli_list_u64(l, "last_token", work ? NULL : "LAST TOKEN", CLI_BOLD, s->last_token);
    cli_list_u64(l, "locks_held", NULL, CLI_PLAIN, s->locks_held);
    cli_list_u64(l, "clients", "CLIENTS", CLI_PLAIN, s->clients);
    add_log(l, node, work);
    cli_list_ms(l, "uptime_ms", "UPTIME", CLI_PLAIN, s->uptime_ms);
    cli_list_text(l, "version", work ? NULL : "VERSION", CLI_PLAIN, s->version);
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
