/* fencelock_cmd_top.c: `fencelock top` and `fencelock locks --by wait`: shows the busiest locks and
 * what the nodes do, every second.
 *
 * Rates are differences of counters in the replicated state. They are taken from the node that
 * has applied most, so they do not jump when the leader changes. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/fencelock_common.h"
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

static uint64_t limit_of(const struct cli_args *a)
{
    uint64_t limit = cli_number(a, CLI_OPT_LIMIT, LOCKS_DEFAULT);
    if (limit < 1 || limit > LOCKS_MAX) {
        cli_usage("--limit: %" PRIu64 " is not from 1 to %u: so many locks are counted", limit,
                  LOCKS_MAX);
    }
    return limit;
}

int cli_run_locks_by(const struct cli_args *a, fl_client *c)
{
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_BUSIEST, .count = limit_of(a)};
    if (cli_has(a, CLI_OPT_MATCH)) {
        cli_usage("--match: the busiest are of all locks; leave it out with --by");
    }
    (void)cli_call(a, c, &ask, 0, &r);
    struct cli_out o = cli_result(a);
    list_busy(&o, r.locks);
    if (r.locks->len == 0 && o.terminal) {
        cli_text(&o, "nobody has waited for a lock yet\n");
    }
    cli_out_end(&o);
    fl_lock_list_free(r.locks);
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
    struct fl_result r;
    const struct fl_ask ask = {
        .what = FL_ASK_BUSIEST, .count = limit, .timeout_ms = NODE_TIMEOUT_MS};
    see_nodes(c, NODE_TIMEOUT_MS, &ret->seen);
    ret->at_ms = fli_clock_ms();
    ret->busy = ret->seen.reached > 0 && fl_ask(c, &ask, &r) == 0 ? r.locks : NULL;
}

static const struct {
    const char *title, *key;
    size_t counter; /* in a struct fl_node_status */
} rates[] = {{"grants", "grants_per_1000_s", offsetof(struct fl_node_status, grants)},
             {"expired", "expiries_per_1000_s", offsetof(struct fl_node_status, expiries)},
             {"broken", "breaks_per_1000_s", offsetof(struct fl_node_status, breaks)}};

/* How much of it was done a second, in thousandths, by what whichever node had applied most had
 * counted each time. */
static uint64_t rate(const struct sample *now, const struct sample *before, size_t counter)
{
    uint64_t n;
    uint64_t b;
    uint64_t ms = now->at_ms - before->at_ms;
    if (now->seen.first == NULL || before->seen.first == NULL) {
        return 0;
    }
    memcpy(&n, (const char *)&now->seen.first->status + counter, sizeof n);
    memcpy(&b, (const char *)&before->seen.first->status + counter, sizeof b);
    return n > b && ms > 0 ? (n - b) * 1000000 / ms : 0;
}

static void put_counts(struct fli_json *j, const struct seen_nodes *seen)
{
    if (seen->leader == NULL) {
        fli_json_null(j, "leader_id");
    } else {
        fli_json_u64(j, "leader_id", seen->leader->status.node_id);
    }
    if (seen->first != NULL) {
        const struct fl_node_status *s = &seen->first->status;
        fli_json_u64(j, "locks_held", s->locks_held);
        fli_json_u64(j, "waits", s->waits);
        fli_json_u64(j, "last_token", s->last_token);
        fli_json_u64(j, "grants", s->grants);
    }
}

static void put_head(struct cli_out *o, const struct sample *now, const struct sample *before)
{
    const struct seen_nodes *seen = &now->seen;
    put_counts(&o->j, seen);
    if (seen->leader != NULL) {
        cli_text(o, "node %" PRIu64 " leads", seen->leader->status.node_id);
    } else {
        cli_paint(o, CLI_RED, "%s", seen->first != NULL ? "no leader" : "no node can be reached");
    }
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        uint64_t r = rate(now, before, rates[i].counter);
        fli_json_u64(&o->j, rates[i].key, r);
        if (seen->first != NULL) {
            cli_text(o, "   %s %" PRIu64 ".%" PRIu64 "/s", rates[i].title, r / 1000, r / 100 % 10);
        }
    }
    if (seen->first != NULL) {
        const struct fl_node_status *s = &seen->first->status;
        cli_text(o, "\nheld %" PRIu64 "   waiting %" PRIu64 "   last token %" PRIu64, s->locks_held,
                 s->waits, s->last_token);
    }
    cli_text(o, "\n\n");
}

static void show(const struct cli_args *a, const struct sample *now, const struct sample *before,
                 bool redraw)
{
    struct cli_out o = cli_result(a);
    if (redraw) {
        cli_text(&o, "\033[H\033[J");
    }
    put_head(&o, now, before);
    list_nodes(&o, &now->seen, true);
    if (now->busy != NULL && now->busy->len > 0) {
        cli_text(&o, "\n");
    }
    list_busy(&o, now->busy);
    if (!redraw) {
        cli_text(&o, "\n");
    }
    cli_out_end(&o);
}

/* Waits for a second. False: `q`, the end of the input, or a signal. */
static bool wait_second(const struct cli_keyboard *k)
{
    uint64_t until_ms = fl_now_ms() + SECOND_MS;
    char key = '\0';
    int n;
    while ((n = cli_keyboard_wait(k, until_ms)) > 0) {
        if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') {
            return false;
        }
    }
    return n == 0;
}

int cli_run_top(const struct cli_args *a, fl_client *c)
{
    static struct sample samples[2];
    struct sample *now = &samples[0];
    uint64_t limit = limit_of(a);
    const struct cli_out o = cli_result(a);
    bool once = cli_has(a, CLI_OPT_ONCE);
    bool redraw = o.terminal && !once && !o.json;
    bool go_on = true;
    struct cli_keyboard keyboard = {.is_open = false};
    if (redraw) { /* keys are taken one by one, and not shown */
        (void)cli_keyboard_open(&keyboard, ICANON | ECHO, TCSANOW);
    }
    take_sample(c, limit, now);
    while (go_on && wait_second(&keyboard)) {
        const struct sample *before = now;
        fl_lock_list_free(before->busy);
        now = &samples[before == &samples[0]];
        take_sample(c, limit, now);
        show(a, now, before, redraw);
        go_on = !once && fflush(stdout) == 0;
    }
    fl_lock_list_free(now->busy);
    bool leads = now->seen.leader != NULL;
    if (!leads && !o.terminal) {
        cli_complain("none of these nodes leads. A majority must be up and connected");
    }
    int signal = cli_keyboard_close(&keyboard);
    return signal != 0 ? CLI_EXIT_SIGNAL + signal : leads ? CLI_EXIT_DONE : CLI_EXIT_UNKNOWN;
}
