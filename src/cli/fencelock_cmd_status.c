/* fencelock_cmd_status.c: the state of the nodes: a table for people, and an exit code for
 * programs. */
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/node_list.h"

#define NODE_TIMEOUT_MAX_MS UINT64_C(2000)
#define LAG_MAX UINT64_C(10000) /* entries; a node that lags more gets a line of its own */
#define PROBLEMS_MAX (4u * FL_NODES_MAX)
#define PROBLEM_SIZE 320u
#define NO_LEADER "none of these nodes leads. A majority must be up and connected"
#define NONE_ASKED                                                                                 \
    "none of these nodes could be asked, so nothing is known of a leader: name the nodes with "    \
    "--nodes or FENCELOCK_NODES, and log in as they demand"
#define DISK_WAITS                                                                                 \
    "waits for its disk, which is full or slow: while it leads, or a majority does so, nothing "   \
    "is granted"
#define FORMING "the cluster is being formed: the first time all its nodes must be up"
#define HEALTH_EVERY_MS 200
#define HEALTH_LOCK "fencelock-health" /* is asked about, and never taken */

static bool is_forming(const struct fl_node_status *s)
{
    return strcmp(s->cluster_state, "forming") == 0;
}

/* What is wrong, a sentence each. */
struct problems {
    char text[PROBLEMS_MAX][PROBLEM_SIZE];
    size_t n;
};

static void FLI_PRINTF(2, 3) add_problem(struct problems *p, const char *fmt, ...)
{
    va_list args;
    if (p->n < PROBLEMS_MAX) {
        va_start(args, fmt);
        vsnprintf(p->text[p->n++], PROBLEM_SIZE, fmt, args);
        va_end(args);
    }
}

static void find_node_problems(struct problems *p, const struct seen_nodes *seen,
                               const struct seen_node *node)
{
    const struct fl_node_status *s = &node->status;
    const struct seen_node *leader = seen->leader;
    if (node->error != 0) {
        bool all = leader != NULL && leader->status.cluster_nodes > 0 &&
                   leader->status.cluster_nodes_connected == leader->status.cluster_nodes;
        add_problem(p, "%s%s", node->message,
                    all ? "; every member is connected to the leader, so this address is no "
                          "member's any more: --discover asks for the members"
                        : "");
        return;
    }
    if (s->log_waits != 0) {
        add_problem(p, "%s " DISK_WAITS, node->address);
    }
    if (leader == NULL) {
        return; /* one sentence covers all of them */
    }
    if (node != leader && strcmp(s->role, "leader") == 0) {
        add_problem(p, "%s believes that it leads, but %s has been elected since", node->address,
                    leader->address);
    } else if (node != leader && s->leader_id == 0) {
        add_problem(p, "%s hears no leader", node->address);
    }
    if (seen_lag(seen, node) > LAG_MAX) {
        add_problem(p, "%s is %" PRIu64 " entries behind", node->address, seen_lag(seen, node));
    }
}

/* Of those that were asked, the one that has met most others; NULL: none forms a cluster. While
 * they meet, nobody leads. */
static const struct fl_node_status *who_forms(const struct seen_nodes *seen)
{
    const struct fl_node_status *most = NULL;
    for (size_t i = 0; i < seen->n; i++) {
        const struct fl_node_status *s = &seen->node[i].status;
        bool forms = seen->node[i].error == 0 && is_forming(s);
        if (forms && (most == NULL || s->cluster_nodes_connected > most->cluster_nodes_connected)) {
            most = s;
        }
    }
    return most;
}

/* A node that refuses to answer says nothing about the cluster. */
static const char *no_leader_text(const struct seen_nodes *seen)
{
    return seen->reached > 0 ? NO_LEADER : NONE_ASKED;
}

static void find_problems(struct problems *p, const struct seen_nodes *seen)
{
    const struct seen_node *leader = seen->leader;
    for (size_t i = 0; i < seen->n; i++) {
        find_node_problems(p, seen, &seen->node[i]);
    }
    const struct fl_node_status *s = leader == NULL ? who_forms(seen) : &leader->status;
    if (s == NULL) {
        add_problem(p, "%s", no_leader_text(seen));
        return;
    }
    /* Only the leader knows members that were not named here. */
    if (is_forming(s)) {
        add_problem(p,
                    FORMING ", and %" PRIu64 " of %" PRIu64 " are connected: start the others, "
                            "which the logs of these name",
                    s->cluster_nodes_connected, s->cluster_nodes);
    } else if (s->cluster_nodes_connected < s->cluster_nodes) {
        add_problem(p, "%" PRIu64 " of the cluster's %" PRIu64 " nodes %s connected to the leader",
                    s->cluster_nodes_connected, s->cluster_nodes,
                    s->cluster_nodes_connected == 1 ? "is" : "are");
    }
}

static void show_status(const struct cli_args *a, const struct seen_nodes *seen,
                        const struct problems *p)
{
    struct cli_out o = cli_result(a);
    fli_json_text(&o.j, "leader", seen->leader == NULL ? NULL : seen->leader->address);
    fli_json_bool(&o.j, "healthy", p->n == 0);
    fli_json_array(&o.j, "problems");
    for (size_t i = 0; i < p->n; i++) {
        fli_json_text(&o.j, NULL, p->text[i]);
    }
    fli_json_end_array(&o.j);
    list_nodes(&o, seen, false);
    cli_out_end(&o);
    fflush(stdout);
    for (size_t i = 0; i < p->n && !o.json; i++) {
        cli_complain("%s", p->text[i]);
    }
    if (seen->leader == NULL && o.json) {
        cli_complain("%s", no_leader_text(seen));
    }
}

static uint64_t node_timeout_ms(const struct cli_args *a)
{
    uint64_t given_ms = a->number[CLI_OPT_TIMEOUT];
    return given_ms == 0 || given_ms > NODE_TIMEOUT_MAX_MS ? NODE_TIMEOUT_MAX_MS : given_ms;
}

int cli_run_status(const struct cli_args *a, fl_client *c)
{
    static struct seen_nodes seen;
    static struct problems problems;
    see_nodes(c, node_timeout_ms(a), &seen);
    find_problems(&problems, &seen);
    show_status(a, &seen, &problems);
    return seen.leader == NULL ? CLI_EXIT_UNKNOWN : problems.n > 0 ? CLI_EXIT_NO : CLI_EXIT_DONE;
}

/* ---- health ---------------------------------------------------------------------------------- */

/* The outcome of one request to a node. */
struct probe {
    struct seen_node node;
    bool live, serves;
    char message[PROBLEM_SIZE];
};

/* Finds out whether the cluster serves by sending this node a request that goes through the log. */
static void probe_health(const struct cli_args *a, struct probe *p, uint64_t timeout_ms)
{
    int code;
    fl_client *c = cli_client_create_for(a, p->node.address, 0, &code);
    if (c == NULL) {
        snprintf(p->message, sizeof p->message, "no memory to ask it");
        return;
    }
    int rc = fl_check(c, fl_str(HEALTH_LOCK), 1, timeout_ms);
    p->serves = rc == 0 || rc == FL_ENOTHELD;
    if (!p->serves) {
        snprintf(p->message, sizeof p->message, "%s", fl_client_error(c));
    }
    fl_close(c);
}

static void probe_node(const struct cli_args *a, fl_client *c, size_t i, struct probe *p)
{
    uint64_t timeout_ms = node_timeout_ms(a);
    memset(p, 0, sizeof *p);
    see_node(c, i, timeout_ms, &p->node);
    const struct fl_node_status *s = &p->node.status;
    p->live = p->node.error == 0;
    if (!p->live) {
        snprintf(p->message, sizeof p->message, "%s", p->node.message);
    } else if (cli_has(a, CLI_OPT_LIVE)) {
        p->serves = true;
    } else if (is_forming(s)) {
        snprintf(p->message, sizeof p->message, FORMING);
    } else if (s->leader_id == 0) {
        snprintf(p->message, sizeof p->message, "it is up and hears no leader");
    } else {
        probe_health(a, p, timeout_ms);
    }
}

/* A node that waits for its disk may be why another one does not serve. */
static void add_disk(struct probe *probes, size_t n)
{
    const char *full = NULL;
    for (size_t i = 0; i < n && full == NULL; i++) {
        full =
            probes[i].live && probes[i].node.status.log_waits != 0 ? probes[i].node.address : NULL;
    }
    for (size_t i = 0; i < n && full != NULL; i++) {
        size_t len = strlen(probes[i].message);
        if (probes[i].live && !probes[i].serves) {
            snprintf(probes[i].message + len, sizeof probes[i].message - len, "; %s " DISK_WAITS,
                     full);
        }
    }
}

/* The worst exit code of all nodes: CLI_EXIT_UNKNOWN when one cannot be reached. */
static int probe_nodes(const struct cli_args *a, fl_client *c, struct probe *probes, size_t n)
{
    int code = CLI_EXIT_DONE;
    for (size_t i = 0; i < n; i++) {
        probe_node(a, c, i, &probes[i]);
        int one = !probes[i].live    ? CLI_EXIT_UNKNOWN
                  : probes[i].serves ? CLI_EXIT_DONE
                                     : CLI_EXIT_NO;
        code = one > code ? one : code;
    }
    add_disk(probes, n);
    return code;
}

static void show_health(const struct cli_args *a, const struct probe *probes, size_t n,
                        bool healthy)
{
    struct cli_out o = cli_result(a);
    int width = 0;
    for (size_t i = 0; i < n; i++) {
        int len = (int)strlen(probes[i].node.address);
        width = len > width ? len : width;
    }
    fli_json_bool(&o.j, "healthy", healthy);
    fli_json_array(&o.j, "nodes");
    for (size_t i = 0; i < n; i++) {
        const struct probe *p = &probes[i];
        fli_json_object(&o.j, NULL);
        fli_json_text(&o.j, "address", p->node.address);
        fli_json_bool(&o.j, "live", p->live);
        fli_json_bool(&o.j, "serves", p->serves);
        fli_json_text(&o.j, "role", p->node.status.role);
        fli_json_text(&o.j, "message", p->message);
        fli_json_end_object(&o.j);
        cli_text(&o, "%-*s  ", width, p->node.address);
        cli_paint(&o,
                  p->serves ? CLI_GREEN
                  : p->live ? CLI_YELLOW
                            : CLI_RED,
                  "%-11s",
                  p->serves ? "healthy"
                  : p->live ? "not serving"
                            : "unreachable");
        cli_text(&o, "  ");
        cli_text_safe(&o, fl_str(p->serves ? p->node.status.role : p->message));
        cli_text(&o, "\n");
    }
    fli_json_end_array(&o.j);
    cli_out_end(&o);
}

int cli_run_health(const struct cli_args *a, fl_client *c)
{
    static struct probe probes[FL_NODES_MAX];
    size_t n = fl_client_nodes(c);
    uint64_t until_ms = fl_now_ms() + (cli_has(a, CLI_OPT_WAIT) ? a->number[CLI_OPT_WAIT] : 0);
    int code = probe_nodes(a, c, probes, n);
    while (code != CLI_EXIT_DONE && fl_now_ms() < until_ms) {
        (void)poll(NULL, 0, HEALTH_EVERY_MS);
        code = probe_nodes(a, c, probes, n);
    }
    show_health(a, probes, n, code == CLI_EXIT_DONE);
    return code;
}
