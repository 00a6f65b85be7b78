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
#define PROBLEM_SIZE SEEN_MESSAGE_SIZE
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

/* Finds out whether the cluster serves by sending this node a request that goes through the log. */
static bool probe(const struct cli_args *a, struct seen_node *node)
{
    fl_client *c = NULL;
    if (cli_client_try(a, node->address, NULL, &c) != 0) {
        snprintf(node->message, sizeof node->message, "no memory to ask it");
        return false;
    }
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_CHECK,
                               .name = fl_str(HEALTH_LOCK),
                               .token = 1,
                               .timeout_ms = node_timeout_ms(a)};
    int rc = fl_ask(c, &ask, &r);
    bool serves = rc == 0 || rc == FL_ENOTHELD;
    if (!serves) {
        snprintf(node->message, sizeof node->message, "%s", fl_client_error(c));
    }
    fl_close(c);
    return serves;
}

static bool is_serving(const struct cli_args *a, struct seen_node *node)
{
    bool forms = is_forming(&node->status);
    if (node->error != 0 || cli_has(a, CLI_OPT_LIVE)) {
        return node->error == 0;
    }
    if (forms || node->status.leader_id == 0) {
        snprintf(node->message, sizeof node->message, "%s",
                 forms ? FORMING : "it is up and hears no leader");
        return false;
    }
    return probe(a, node);
}

/* A node that waits for its disk may be why another one does not serve. */
static void add_disk(struct seen_nodes *seen)
{
    const char *full = NULL;
    for (size_t i = 0; i < seen->n && full == NULL; i++) {
        const struct seen_node *node = &seen->node[i];
        full = node->error == 0 && node->status.log_waits != 0 ? node->address : NULL;
    }
    for (size_t i = 0; i < seen->n && full != NULL; i++) {
        struct seen_node *node = &seen->node[i];
        size_t len = strlen(node->message);
        if (node->error == 0 && !node->serves) {
            snprintf(node->message + len, sizeof node->message - len, "; %s " DISK_WAITS, full);
        }
    }
}

/* The worst exit code of all nodes: CLI_EXIT_UNKNOWN when one cannot be reached. */
static int probe_nodes(const struct cli_args *a, fl_client *c, struct seen_nodes *seen)
{
    int code = CLI_EXIT_DONE;
    see_nodes(c, node_timeout_ms(a), seen);
    for (size_t i = 0; i < seen->n; i++) {
        struct seen_node *node = &seen->node[i];
        node->serves = is_serving(a, node);
        int one = node->error != 0 ? CLI_EXIT_UNKNOWN : node->serves ? CLI_EXIT_DONE : CLI_EXIT_NO;
        code = one > code ? one : code;
    }
    add_disk(seen);
    return code;
}

static void show_health(const struct cli_args *a, const struct seen_nodes *seen, bool healthy)
{
    struct cli_list l;
    struct cli_out o = cli_result(a);
    fli_json_bool(&o.j, "healthy", healthy);
    cli_list_begin(&l, &o, "nodes");
    for (size_t i = 0; i < seen->n; i++) {
        const struct seen_node *node = &seen->node[i];
        bool live = node->error == 0;
        cli_list_row(&l);
        cli_list_text(&l, "address", "", CLI_PLAIN, node->address);
        cli_list_bool(&l, "live", NULL, CLI_PLAIN, live, "");
        cli_list_bool(&l, "serves", "",
                      node->serves ? CLI_GREEN
                      : live       ? CLI_YELLOW
                                   : CLI_RED,
                      node->serves,
                      node->serves ? "healthy"
                      : live       ? "not serving"
                                   : "unreachable");
        cli_list_text(&l, "role", NULL, CLI_PLAIN, node->status.role);
        cli_list_text(&l, "message", NULL, CLI_PLAIN, node->message);
        cli_list_text(&l, NULL, "", CLI_PLAIN, node->serves ? node->status.role : node->message);
    }
    cli_list_end(&l);
    cli_out_end(&o);
}

int cli_run_health(const struct cli_args *a, fl_client *c)
{
    static struct seen_nodes seen;
    uint64_t until_ms = fl_now_ms() + cli_number(a, CLI_OPT_WAIT, 0);
    int code = probe_nodes(a, c, &seen);
    while (code != CLI_EXIT_DONE && fl_now_ms() < until_ms) {
        (void)poll(NULL, 0, HEALTH_EVERY_MS);
        code = probe_nodes(a, c, &seen);
    }
    show_health(a, &seen, code == CLI_EXIT_DONE);
    return code;
}
