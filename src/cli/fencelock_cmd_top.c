/* fencelock_cmd_top.c: `fencelock top` and `fencelock locks --by wait`: shows the busiest locks and
 * what the nodes do, every second.
 *
 * Rates are differences of counters in the replicated state. They are taken from the node that
 * has applied most, so they do not jump when the leader changes. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/fencelock_common.h"

#define SECOND_MS 1000u
#define NODE_TIMEOUT_MS 500u
#define LOCKS_DEFAULT 10u
#define LOCKS_MAX 256u

/* ---- the busiest locks ----------------------------------------------------------------------- */

static const struct cli_column busy_columns[] = {
    {"LOCK", false}, {"WAITED", true}, {"WAITS", true}, {"LONGEST", true}, {"REFUSED", true},
};
#define BUSY_COLUMNS (sizeof busy_columns / sizeof busy_columns[0])

static void busy_table(const struct fl_lock_list *list, bool colours)
{
    struct cli_table t;
    cli_table_init(&t, busy_columns, BUSY_COLUMNS);
    for (size_t i = 0; i < list->len; i++) {
        const struct fl_lock_info *l = &list->locks[i];
        cli_table_bytes(&t, i == 0 ? CLI_BOLD : CLI_PLAIN, l->name);
        cli_table_duration(&t, CLI_PLAIN, l->waited_ms);
        cli_table_u64(&t, CLI_PLAIN, l->waits);
        cli_table_duration(&t, CLI_PLAIN, l->longest_ms);
        cli_table_u64(&t, l->refused > 0 ? CLI_YELLOW : CLI_DIM, l->refused);
    }
    cli_table_print(&t, stdout, colours);
    cli_table_fini(&t);
}

static void busy_json(struct fli_json *j, const struct fl_lock_list *list)
{
    fli_json_array(j, "busiest");
    for (size_t i = 0; list != NULL && i < list->len; i++) {
        const struct fl_lock_info *l = &list->locks[i];
        fli_json_object(j, NULL);
        fli_json_bytes(j, "name", l->name);
        fli_json_u64(j, "waited_ms", l->waited_ms);
        fli_json_u64(j, "waited_over_ms", l->waited_over_ms);
        fli_json_u64(j, "waits", l->waits);
        fli_json_u64(j, "longest_ms", l->longest_ms);
        fli_json_u64(j, "refused", l->refused);
        fli_json_end_object(j);
    }
    fli_json_end_array(j);
}

static bool limit_of(const struct cli_args *a, uint64_t *ret)
{
    *ret = cli_has(a, CLI_OPT_LIMIT) ? a->number[CLI_OPT_LIMIT] : LOCKS_DEFAULT;
    if (*ret >= 1 && *ret <= LOCKS_MAX) {
        return true;
    }
    cli_complain("--limit: %" PRIu64 " is not from 1 to %u: so many locks are counted", *ret,
                 LOCKS_MAX);
    return false;
}

int cli_run_locks_by(const struct cli_args *a)
{
    uint64_t limit = 0;
    if (strcasecmp(a->text[CLI_OPT_BY], "wait") != 0) {
        cli_complain("--by: '%s' is not known; write --by wait", a->text[CLI_OPT_BY]);
        return CLI_EXIT_USAGE;
    }
    if (cli_has(a, CLI_OPT_MATCH)) {
        cli_complain("--match: the busiest are of all locks; leave it out with --by");
        return CLI_EXIT_USAGE;
    }
    if (!limit_of(a, &limit)) {
        return CLI_EXIT_USAGE;
    }
    int code;
    fl_client *c = cli_client_create(a, &code);
    if (c == NULL) {
        return code;
    }
    struct fl_lock_list *list = NULL;
    int rc = fl_busiest(c, limit, 0, &list);
    if (rc != 0) {
        code = cli_fail(a, rc, fl_client_error(c), NULL, NULL);
        fl_client_destroy(c);
        return code;
    }
    struct cli_style style = cli_style_of(a);
    if (style.json) {
        struct fli_json j = cli_json_begin();
        busy_json(&j, list);
        cli_json_print(&j, stdout);
    } else if (list->len > 0) {
        busy_table(list, style.colours);
    } else if (style.terminal) {
        puts("nobody has waited for a lock yet");
    }
    fl_lock_list_free(list);
    fl_client_destroy(c);
    return CLI_EXIT_DONE;
}

/* ---- top ------------------------------------------------------------------------------------- */

struct sample {
    struct fl_node_status nodes[FL_NODES_MAX];
    bool there[FL_NODES_MAX];
    size_t n, reached;
    const struct fl_node_status *first; /* the node that has applied most; NULL: none was reached */
    const struct fl_node_status *leader;
    uint64_t at_ms;
    struct fl_lock_list *busy; /* NULL: no node sent it */
};

static void take_sample(fl_client *c, uint64_t limit, struct sample *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->n = fl_client_nodes(c);
    for (size_t i = 0; i < ret->n; i++) {
        const struct fl_node_status *s = &ret->nodes[i];
        ret->there[i] = fl_node_ask(c, i, NODE_TIMEOUT_MS, &ret->nodes[i]) == 0;
        if (!ret->there[i]) {
            continue;
        }
        ret->reached++;
        if (ret->first == NULL || s->applied_index > ret->first->applied_index) {
            ret->first = s;
        }
        /* A replaced leader that does not know it yet has the lower term. */
        bool leads = strcmp(s->role, "leader") == 0;
        if (leads && (ret->leader == NULL || s->term > ret->leader->term)) {
            ret->leader = s;
        }
    }
    ret->at_ms = fli_clock_ms();
    if (ret->reached > 0 && fl_busiest(c, limit, NODE_TIMEOUT_MS, &ret->busy) != 0) {
        ret->busy = NULL;
    }
}

/* Per second, in thousandths. */
static uint64_t rate(uint64_t now, uint64_t before, uint64_t ms)
{
    return now > before && ms > 0 ? (now - before) * 1000000 / ms : 0;
}

struct rates {
    uint64_t grants, expiries, breaks;
};

static struct rates rates_of(const struct sample *now, const struct sample *before)
{
    struct rates r = {0};
    if (now->first != NULL && before->first != NULL) {
        uint64_t ms = now->at_ms - before->at_ms;
        r.grants = rate(now->first->grants, before->first->grants, ms);
        r.expiries = rate(now->first->expiries, before->first->expiries, ms);
        r.breaks = rate(now->first->breaks, before->first->breaks, ms);
    }
    return r;
}

static uint64_t lag_of(const struct sample *l, const struct fl_node_status *s)
{
    uint64_t furthest = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->there[i] && l->nodes[i].commit_index > furthest) {
            furthest = l->nodes[i].commit_index;
        }
    }
    return furthest > s->applied_index ? furthest - s->applied_index : 0;
}

static const struct cli_column node_columns[] = {
    {"NODE", false},   {"ID", true},  {"ROLE", false}, {"TERM", true},  {"LAG", true},
    {"CLIENTS", true}, {"LOG", true}, {"SYNC", true},  {"DISK", false}, {"UPTIME", true},
};
#define NODE_COLUMNS (sizeof node_columns / sizeof node_columns[0])

static void node_row(struct cli_table *t, const struct sample *l, const char *address, size_t i)
{
    const struct fl_node_status *s = &l->nodes[i];
    char text[48];
    cli_table_text(t, CLI_PLAIN, address);
    if (!l->there[i]) {
        cli_table_text(t, CLI_DIM, "-");
        cli_table_text(t, CLI_RED, "unreachable");
        for (size_t k = 3; k < NODE_COLUMNS; k++) {
            cli_table_text(t, CLI_DIM, "-");
        }
        return;
    }
    uint64_t lag = lag_of(l, s);
    cli_table_u64(t, CLI_PLAIN, s->node_id);
    cli_table_text(t, s == l->leader ? CLI_GREEN : CLI_PLAIN, s->role);
    cli_table_u64(t, CLI_PLAIN, s->term);
    cli_table_u64(t, lag > 0 ? CLI_YELLOW : CLI_PLAIN, lag);
    cli_table_u64(t, CLI_PLAIN, s->clients);
    (void)snprintf(text, sizeof text, "%" PRIu64 " MiB", s->log_bytes >> 20);
    cli_table_text(t, CLI_PLAIN, text);
    (void)snprintf(text, sizeof text, "%" PRIu64 " us", s->log_write_avg_us);
    cli_table_text(t, CLI_PLAIN, text);
    cli_table_text(t, s->log_waits ? CLI_RED : CLI_PLAIN, s->log_waits ? "full or slow" : "ok");
    cli_table_duration(t, CLI_PLAIN, s->uptime_ms);
}

static void headline(const struct sample *l, const struct rates *r, struct cli_style style)
{
    const struct fl_node_status *s = l->first;
    if (s == NULL) {
        printf("%sno node can be reached%s\n\n", cli_colour_on(CLI_RED, style.colours),
               cli_colour_off(CLI_RED, style.colours));
        return;
    }
    if (l->leader == NULL) {
        printf("%sno leader%s", cli_colour_on(CLI_RED, style.colours),
               cli_colour_off(CLI_RED, style.colours));
    } else {
        printf("node %" PRIu64 " leads", l->leader->node_id);
    }
    printf("   grants %" PRIu64 ".%" PRIu64 "/s   expired %" PRIu64 ".%" PRIu64
           "/s   broken %" PRIu64 ".%" PRIu64 "/s\n",
           r->grants / 1000, r->grants / 100 % 10, r->expiries / 1000, r->expiries / 100 % 10,
           r->breaks / 1000, r->breaks / 100 % 10);
    printf("held %" PRIu64 "   waiting %" PRIu64 "   last token %" PRIu64 "\n\n", s->locks_held,
           s->waits, s->last_token);
}

static void show_text(fl_client *c, const struct sample *l, const struct rates *r,
                      struct cli_style style, bool redraw)
{
    struct cli_table t;
    if (redraw) {
        fputs("\033[H\033[J", stdout);
    }
    headline(l, r, style);
    cli_table_init(&t, node_columns, NODE_COLUMNS);
    for (size_t i = 0; i < l->n; i++) {
        node_row(&t, l, fl_client_node(c, i), i);
    }
    cli_table_print(&t, stdout, style.colours);
    cli_table_fini(&t);
    if (l->busy != NULL && l->busy->len > 0) {
        putchar('\n');
        busy_table(l->busy, style.colours);
    }
    if (!redraw) {
        putchar('\n');
    }
}

static void node_json(struct fli_json *j, const struct sample *l, const char *address, size_t i)
{
    const struct fl_node_status *s = &l->nodes[i];
    fli_json_object(j, NULL);
    fli_json_text(j, "address", address);
    fli_json_bool(j, "reachable", l->there[i]);
    if (l->there[i]) {
        fli_json_u64(j, "id", s->node_id);
        fli_json_text(j, "role", s->role);
        fli_json_u64(j, "term", s->term);
        fli_json_u64(j, "lag", lag_of(l, s));
        fli_json_u64(j, "clients", s->clients);
        fli_json_u64(j, "log_bytes", s->log_bytes);
        fli_json_u64(j, "log_write_avg_us", s->log_write_avg_us);
        fli_json_bool(j, "log_waits", s->log_waits != 0);
        fli_json_u64(j, "uptime_ms", s->uptime_ms);
    }
    fli_json_end_object(j);
}

static void show_json(fl_client *c, const struct sample *l, const struct rates *r)
{
    struct fli_json j = cli_json_begin();
    if (l->leader == NULL) {
        fli_json_null(&j, "leader_id");
    } else {
        fli_json_u64(&j, "leader_id", l->leader->node_id);
    }
    if (l->first != NULL) {
        fli_json_u64(&j, "locks_held", l->first->locks_held);
        fli_json_u64(&j, "waits", l->first->waits);
        fli_json_u64(&j, "last_token", l->first->last_token);
        fli_json_u64(&j, "grants", l->first->grants);
    }
    fli_json_u64(&j, "grants_per_1000_s", r->grants);
    fli_json_u64(&j, "expiries_per_1000_s", r->expiries);
    fli_json_u64(&j, "breaks_per_1000_s", r->breaks);
    fli_json_array(&j, "nodes");
    for (size_t i = 0; i < l->n; i++) {
        node_json(&j, l, fl_client_node(c, i), i);
    }
    fli_json_end_array(&j);
    busy_json(&j, l->busy);
    cli_json_print(&j, stdout);
}

/* ---- the keyboard ---- */

static volatile sig_atomic_t stopped_by;

static void on_signal(int number)
{
    stopped_by = number;
}

/* Takes keys one by one, without showing them. False: there is no keyboard. */
static bool open_keyboard(struct termios *before)
{
    if (isatty(STDIN_FILENO) != 1 || tcgetattr(STDIN_FILENO, before) != 0) {
        return false;
    }
    struct termios keys = *before;
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        struct sigaction former;
        (void)sigaction(ending[i], NULL, &former);
        if (former.sa_handler != SIG_IGN) {
            (void)sigaction(ending[i], &stop, NULL);
        }
    }
    return tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
}

/* Waits for a second. False: `q`, the end of the input, or a signal. */
static bool wait_second(bool keyboard)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t until_ms = fl_now_ms() + SECOND_MS;
    for (uint64_t now_ms = fl_now_ms(); now_ms < until_ms && stopped_by == 0;
         now_ms = fl_now_ms()) {
        char key = '\0';
        if (poll(&p, keyboard ? 1 : 0, (int)(until_ms - now_ms)) > 0 &&
            (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q')) {
            return false;
        }
    }
    return stopped_by == 0;
}

static void close_keyboard(bool keyboard, const struct termios *before)
{
    if (keyboard) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, before);
    }
    if (stopped_by != 0) {
        (void)raise(stopped_by);
    }
}

int cli_run_top(const struct cli_args *a)
{
    static struct sample before;
    static struct sample now;
    uint64_t limit = 0;
    int code;
    if (!limit_of(a, &limit)) {
        return CLI_EXIT_USAGE;
    }
    fl_client *c = cli_client_create(a, &code);
    if (c == NULL) {
        return code;
    }
    struct cli_style style = cli_style_of(a);
    bool once = cli_has(a, CLI_OPT_ONCE);
    bool redraw = style.terminal && !once && !style.json;
    struct termios terminal;
    bool keyboard = redraw && open_keyboard(&terminal);
    take_sample(c, limit, &before);
    while (wait_second(keyboard)) {
        fl_lock_list_free(before.busy); /* only the counters are needed again */
        before.busy = NULL;
        take_sample(c, limit, &now);
        struct rates r = rates_of(&now, &before);
        if (style.json) {
            show_json(c, &now, &r);
        } else {
            show_text(c, &now, &r, style, redraw);
        }
        before = now;
        /* its pointers are into `now`, which the next round overwrites */
        before.first = now.first == NULL ? NULL : &before.nodes[now.first - now.nodes];
        before.leader = now.leader == NULL ? NULL : &before.nodes[now.leader - now.nodes];
        if (once || fflush(stdout) != 0) {
            break;
        }
    }
    close_keyboard(keyboard, &terminal);
    fl_lock_list_free(before.busy);
    code = before.leader != NULL ? CLI_EXIT_DONE : CLI_EXIT_UNKNOWN;
    if (before.leader == NULL && !style.terminal) {
        cli_complain("none of these nodes leads. A majority must be up and connected");
    }
    fl_client_destroy(c);
    return code;
}
