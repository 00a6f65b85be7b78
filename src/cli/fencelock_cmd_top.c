/* fencelock_cmd_top.c: `fencelock top` and `fencelock locks --by wait`: shows the busiest locks and
 * what the nodes do, every second.
 *
 * Rates are differences of counters in the replicated state. They are taken from the node that
 * has applied most, so they do not jump when the leader changes. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/interrupted.h"
#include "cli/node_list.h"

#define SECOND_MS 1000u
#define NODE_TIMEOUT_MS 500u
#define LOCKS_DEFAULT 10u
#define LOCKS_MAX 256u

/* ---- the busiest locks ----------------------------------------------------------------------- */

static void list_busy(struct cli_out *o, const struct fl_lock_list *list)
{
    struct cli_list l;
    cli_list_begin(&l, o, "busiest");
    for (size_t i = 0; list != NULL && i < list->len; i++) {
        const struct fl_lock_info *k = list->locks[i];
        cli_list_row(&l);
        cli_list_bytes(&l, "name", "LOCK", i == 0 ? CLI_BOLD : CLI_PLAIN, k->name);
        cli_list_ms(&l, "waited_ms", "WAITED", CLI_PLAIN, k->waited_ms);
        cli_list_u64(&l, "waited_over_ms", NULL, CLI_PLAIN, k->waited_over_ms);
        cli_list_u64(&l, "waits", "WAITS", CLI_PLAIN, k->waits);
        cli_list_ms(&l, "longest_ms", "LONGEST", CLI_PLAIN, k->longest_ms);
        cli_list_u64(&l, "refused", "REFUSED", k->refused > 0 ? CLI_YELLOW : CLI_DIM, k->refused);
    }
    cli_list_end(&l);
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

int cli_run_locks_by(const struct cli_args *a, fl_client *c)
{
    uint64_t limit = 0;
    if (cli_has(a, CLI_OPT_MATCH)) {
        cli_complain("--match: the busiest are of all locks; leave it out with --by");
        return CLI_EXIT_USAGE;
    }
    if (!limit_of(a, &limit)) {
        return CLI_EXIT_USAGE;
    }
    struct fl_lock_list *list = NULL;
    int rc = fl_busiest(c, limit, 0, &list);
    if (rc != 0) {
        return cli_fail(a, rc, fl_client_error(c));
    }
    struct cli_out o = cli_result(a);
    list_busy(&o, list);
    if (list->len == 0 && o.terminal) {
        cli_text(&o, "nobody has waited for a lock yet\n");
    }
    cli_out_end(&o);
    fl_lock_list_free(list);
    return CLI_EXIT_DONE;
}

/* ---- top ------------------------------------------------------------------------------------- */

struct sample {
    struct seen_nodes seen;
    uint64_t at_ms;
    struct fl_lock_list *busy; /* NULL: no node sent it */
};

static void take_sample(fl_client *c, uint64_t limit, struct sample *ret)
{
    ret->busy = NULL;
    see_nodes(c, NODE_TIMEOUT_MS, &ret->seen);
    ret->at_ms = fli_clock_ms();
    if (ret->seen.reached > 0 && fl_busiest(c, limit, NODE_TIMEOUT_MS, &ret->busy) != 0) {
        ret->busy = NULL;
    }
}

/* How much of it was done a second, in thousandths. */
struct rates {
    uint64_t grants, expiries, breaks;
};

static uint64_t rate(uint64_t now, uint64_t before, uint64_t ms)
{
    return now > before && ms > 0 ? (now - before) * 1000000 / ms : 0;
}

/* By what whichever node had applied most had counted each time. */
static struct rates rates_of(const struct sample *now, const struct sample *before)
{
    struct rates r = {0};
    if (now->seen.first != NULL && before->seen.first != NULL) {
        const struct fl_node_status *n = &now->seen.first->status;
        const struct fl_node_status *b = &before->seen.first->status;
        uint64_t ms = now->at_ms - before->at_ms;
        r.grants = rate(n->grants, b->grants, ms);
        r.expiries = rate(n->expiries, b->expiries, ms);
        r.breaks = rate(n->breaks, b->breaks, ms);
    }
    return r;
}

static void headline(const struct cli_out *o, const struct sample *l, const struct rates *r)
{
    if (l->seen.first == NULL) {
        cli_paint(o, CLI_RED, "no node can be reached");
        cli_text(o, "\n\n");
        return;
    }
    const struct fl_node_status *s = &l->seen.first->status;
    if (l->seen.leader == NULL) {
        cli_paint(o, CLI_RED, "no leader");
    } else {
        cli_text(o, "node %" PRIu64 " leads", l->seen.leader->status.node_id);
    }
    cli_text(o,
             "   grants %" PRIu64 ".%" PRIu64 "/s   expired %" PRIu64 ".%" PRIu64
             "/s   broken %" PRIu64 ".%" PRIu64 "/s\n",
             r->grants / 1000, r->grants / 100 % 10, r->expiries / 1000, r->expiries / 100 % 10,
             r->breaks / 1000, r->breaks / 100 % 10);
    cli_text(o, "held %" PRIu64 "   waiting %" PRIu64 "   last token %" PRIu64 "\n\n",
             s->locks_held, s->waits, s->last_token);
}

static void json_sample(struct fli_json *j, const struct sample *l, const struct rates *r)
{
    if (l->seen.leader == NULL) {
        fli_json_null(j, "leader_id");
    } else {
        fli_json_u64(j, "leader_id", l->seen.leader->status.node_id);
    }
    if (l->seen.first != NULL) {
        const struct fl_node_status *s = &l->seen.first->status;
        fli_json_u64(j, "locks_held", s->locks_held);
        fli_json_u64(j, "waits", s->waits);
        fli_json_u64(j, "last_token", s->last_token);
        fli_json_u64(j, "grants", s->grants);
    }
    fli_json_u64(j, "grants_per_1000_s", r->grants);
    fli_json_u64(j, "expiries_per_1000_s", r->expiries);
    fli_json_u64(j, "breaks_per_1000_s", r->breaks);
}

static void show(const struct cli_args *a, const struct sample *l, const struct rates *r,
                 bool redraw)
{
    struct cli_out o = cli_result(a);
    if (redraw) {
        cli_text(&o, "\033[H\033[J");
    }
    headline(&o, l, r);
    json_sample(&o.j, l, r);
    list_nodes(&o, &l->seen, true);
    if (l->busy != NULL && l->busy->len > 0) {
        cli_text(&o, "\n");
    }
    list_busy(&o, l->busy);
    if (!redraw) {
        cli_text(&o, "\n");
    }
    cli_out_end(&o);
}

/* ---- the keyboard ---- */

struct keyboard {
    bool is_open;
    struct termios before;
    struct cli_signals signals;
};

/* Takes keys one by one, without showing them, if there is a keyboard. */
static void open_keyboard(struct keyboard *k)
{
    if (isatty(STDIN_FILENO) != 1 || tcgetattr(STDIN_FILENO, &k->before) != 0 ||
        !cli_signals_take(&k->signals)) {
        return;
    }
    struct termios keys = k->before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    k->is_open = true;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &keys);
}

/* Waits for a second. False: `q`, the end of the input, or a signal. */
static bool wait_second(const struct keyboard *k)
{
    struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                         {.fd = k->signals.fd, .events = POLLIN}};
    uint64_t until_ms = fl_now_ms() + SECOND_MS;
    for (uint64_t now_ms = fl_now_ms(); now_ms < until_ms; now_ms = fl_now_ms()) {
        char key = '\0';
        if (poll(p, k->is_open ? 2 : 0, (int)(until_ms - now_ms)) > 0 &&
            (p[1].revents != 0 || read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q')) {
            return false;
        }
    }
    return true;
}

/* A signal has its effect when the terminal is as it was. */
static int close_keyboard(struct keyboard *k, int code)
{
    int signal = k->is_open ? cli_signals_next(&k->signals) : 0;
    if (k->is_open) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &k->before);
        cli_signals_give_back(&k->signals);
    }
    return signal != 0 ? cli_signals_die(&k->signals, signal) : code;
}

int cli_run_top(const struct cli_args *a, fl_client *c)
{
    static struct sample samples[2];
    struct sample *now = &samples[0];
    uint64_t limit = 0;
    if (!limit_of(a, &limit)) {
        return CLI_EXIT_USAGE;
    }
    const struct cli_out o = cli_result(a);
    bool once = cli_has(a, CLI_OPT_ONCE);
    bool redraw = o.terminal && !once && !o.json;
    bool go_on = true;
    struct keyboard keyboard = {.is_open = false};
    if (redraw) {
        open_keyboard(&keyboard);
    }
    take_sample(c, limit, now);
    while (go_on && wait_second(&keyboard)) {
        const struct sample *before = now;
        fl_lock_list_free(before->busy);
        now = &samples[before == &samples[0]];
        take_sample(c, limit, now);
        struct rates rates = rates_of(now, before);
        show(a, now, &rates, redraw);
        go_on = !once && fflush(stdout) == 0;
    }
    fl_lock_list_free(now->busy);
    bool leads = now->seen.leader != NULL;
    if (!leads && !o.terminal) {
        cli_complain("none of these nodes leads. A majority must be up and connected");
    }
    return close_keyboard(&keyboard, leads ? CLI_EXIT_DONE : CLI_EXIT_UNKNOWN);
}
