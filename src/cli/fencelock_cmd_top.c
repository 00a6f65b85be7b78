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
#include "cli/node_list.h"

#define SECOND_MS 1000u
#define NODE_TIMEOUT_MS 500u
#define LOCKS_DEFAULT 10u
#define LOCKS_MAX 256u

/* ---- the busiest locks ----------------------------------------------------------------------- */

static void list_busy(struct fli_json *json, const struct fl_lock_list *list, bool colours)
{
    struct cli_list l;
    cli_list_begin(&l, json, "busiest");
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
    cli_list_end(&l, stdout, colours);
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
    struct fl_lock_list *list = NULL;
    int rc = fl_busiest(c, limit, 0, &list);
    if (rc != 0) {
        return cli_fail(a, rc, fl_client_error(c), NULL, NULL);
    }
    struct cli_style style = cli_style_of(a);
    if (style.json) {
        struct fli_json j = cli_json_begin();
        list_busy(&j, list, false);
        cli_json_print(&j, stdout);
    } else if (list->len > 0 || !style.terminal) {
        list_busy(NULL, list, style.colours);
    } else {
        puts("nobody has waited for a lock yet");
    }
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

/* Per second, in thousandths. */
static uint64_t rate(uint64_t now, uint64_t before, uint64_t ms)
{
    return now > before && ms > 0 ? (now - before) * 1000000 / ms : 0;
}

struct rates {
    uint64_t grants, expiries, breaks;
};

/* What was counted before, by whichever node had applied most. */
struct counted {
    bool known;
    uint64_t grants, expiries, breaks, at_ms;
};

static struct counted count(const struct sample *l)
{
    const struct seen_node *first = l->seen.first;
    return first == NULL ? (struct counted){.known = false}
                         : (struct counted){.known = true,
                                            .grants = first->status.grants,
                                            .expiries = first->status.expiries,
                                            .breaks = first->status.breaks,
                                            .at_ms = l->at_ms};
}

static struct rates rates_of(const struct counted *now, const struct counted *before)
{
    struct rates r = {0};
    if (now->known && before->known) {
        uint64_t ms = now->at_ms - before->at_ms;
        r.grants = rate(now->grants, before->grants, ms);
        r.expiries = rate(now->expiries, before->expiries, ms);
        r.breaks = rate(now->breaks, before->breaks, ms);
    }
    return r;
}

static void headline(const struct sample *l, const struct rates *r, struct cli_style style)
{
    const char *on = cli_colour_on(CLI_RED, style.colours);
    const char *off = cli_colour_off(CLI_RED, style.colours);
    if (l->seen.first == NULL) {
        printf("%sno node can be reached%s\n\n", on, off);
        return;
    }
    const struct fl_node_status *s = &l->seen.first->status;
    if (l->seen.leader == NULL) {
        printf("%sno leader%s", on, off);
    } else {
        printf("node %" PRIu64 " leads", l->seen.leader->status.node_id);
    }
    printf("   grants %" PRIu64 ".%" PRIu64 "/s   expired %" PRIu64 ".%" PRIu64
           "/s   broken %" PRIu64 ".%" PRIu64 "/s\n",
           r->grants / 1000, r->grants / 100 % 10, r->expiries / 1000, r->expiries / 100 % 10,
           r->breaks / 1000, r->breaks / 100 % 10);
    printf("held %" PRIu64 "   waiting %" PRIu64 "   last token %" PRIu64 "\n\n", s->locks_held,
           s->waits, s->last_token);
}

static void show_text(const struct cli_args *a, const struct sample *l, const struct rates *r,
                      bool redraw)
{
    struct cli_style style = cli_style_of(a);
    if (redraw) {
        fputs("\033[H\033[J", stdout);
    }
    headline(l, r, style);
    list_nodes(a, NULL, &l->seen, true);
    if (l->busy != NULL && l->busy->len > 0) {
        putchar('\n');
        list_busy(NULL, l->busy, style.colours);
    }
    if (!redraw) {
        putchar('\n');
    }
}

static void show_json(const struct cli_args *a, const struct sample *l, const struct rates *r)
{
    struct fli_json j = cli_json_begin();
    if (l->seen.leader == NULL) {
        fli_json_null(&j, "leader_id");
    } else {
        fli_json_u64(&j, "leader_id", l->seen.leader->status.node_id);
    }
    if (l->seen.first != NULL) {
        const struct fl_node_status *s = &l->seen.first->status;
        fli_json_u64(&j, "locks_held", s->locks_held);
        fli_json_u64(&j, "waits", s->waits);
        fli_json_u64(&j, "last_token", s->last_token);
        fli_json_u64(&j, "grants", s->grants);
    }
    fli_json_u64(&j, "grants_per_1000_s", r->grants);
    fli_json_u64(&j, "expiries_per_1000_s", r->expiries);
    fli_json_u64(&j, "breaks_per_1000_s", r->breaks);
    list_nodes(a, &j, &l->seen, true);
    list_busy(&j, l->busy, false);
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

int cli_run_top(const struct cli_args *a, fl_client *c)
{
    static struct sample now;
    uint64_t limit = 0;
    if (!limit_of(a, &limit)) {
        return CLI_EXIT_USAGE;
    }
    struct cli_style style = cli_style_of(a);
    bool once = cli_has(a, CLI_OPT_ONCE);
    bool redraw = style.terminal && !once && !style.json;
    bool go_on = true;
    struct termios terminal;
    bool keyboard = redraw && open_keyboard(&terminal);
    take_sample(c, limit, &now);
    while (go_on && wait_second(keyboard)) {
        struct counted before = count(&now);
        fl_lock_list_free(now.busy);
        take_sample(c, limit, &now);
        struct counted after = count(&now);
        struct rates r = rates_of(&after, &before);
        if (style.json) {
            show_json(a, &now, &r);
        } else {
            show_text(a, &now, &r, redraw);
        }
        go_on = !once && fflush(stdout) == 0;
    }
    close_keyboard(keyboard, &terminal);
    fl_lock_list_free(now.busy);
    if (now.seen.leader == NULL && !style.terminal) {
        cli_complain("none of these nodes leads. A majority must be up and connected");
    }
    return now.seen.leader != NULL ? CLI_EXIT_DONE : CLI_EXIT_UNKNOWN;
}
