/* fencelock_cmd_watch.c: `fencelock watch`: shows the events of locks until it is ended.
 *
 * Every node sends the events of the log that it applies. When the node goes away, hangs, or is
 * cut off from the others (it knows no leader twice in a row), the next node is asked. A line
 * then says that events may have been missed: otherwise a gap would look like silence. */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "cli/subscription.h"

#define ASK_MS UINT64_C(1000) /* who leads */
#define QUIET_MS UINT64_C(2000)
#define PAUSE_MIN_MS UINT64_C(100)
#define PAUSE_MAX_MS UINT64_C(2000)
#define LEADERLESS_MAX 2u

struct watcher {
    const struct cli_args *args;
    struct cli_style style;
    fl_client *client; /* asks a node who leads, on other connections */
    struct subscription events;
    unsigned leaderless;
    bool heard;      /* an event of a lock has come, at some time */
    bool is_foreign; /* it is no node of ours */
    uint64_t left;   /* so many events are still to be shown */
    size_t name_width;
};

/* ---- showing --------------------------------------------------------------------------------- */

static void on_event(void *ctx, const struct watch_event *e)
{
    struct watcher *w = ctx;
    static struct watch_event event; /* large */
    w->heard = true;
    if (w->left == 0) {
        return;
    }
    event = *e;
    event.wall_ms = fli_clock_wall_ms();
    if (w->style.json) {
        watch_event_print_json(&event, stdout);
    } else if (w->style.terminal) {
        watch_event_print(&event, stdout, w->style.colours, &w->name_width);
    } else {
        watch_event_print_plain(&event, stdout);
    }
    fflush(stdout);
    w->left -= watch_event_is_gap(&event) ? 0 : 1;
    w->events.holds = w->left == 0;
}

static void show_gap(const struct watcher *w)
{
    const char *node = subscription_node(&w->events);
    if (w->style.json) {
        struct fli_json j = cli_json_begin();
        fli_json_text(&j, "event", "gap");
        fli_json_text(&j, "node", node);
        cli_json_print(&j, stdout);
    } else if (w->style.terminal) {
        printf("%sevents may have been missed: now from %s; see fencelock show%s\n",
               cli_colour_on(CLI_RED, w->style.colours), node,
               cli_colour_off(CLI_RED, w->style.colours));
    } else {
        printf("event=gap node=%s\n", node);
    }
    fflush(stdout);
}

/* ---- listening ------------------------------------------------------------------------------- */

/* No event has come for a while: does the node know a leader? */
static void probe(struct watcher *w)
{
    struct fl_node_status status;
    int rc = fl_node_ask(w->client, w->events.at, ASK_MS, &status, sizeof status);
    if (rc == FL_EPROTO && !w->heard) {
        w->is_foreign = true; /* a Redis accepts subscriptions too, and would never send an event */
        subscription_fail(&w->events, rc, "it takes subscriptions, but is not a fencelockd");
        return;
    }
    w->leaderless = rc == 0 && status.leader[0] == '\0' ? w->leaderless + 1 : 0;
    if (w->leaderless >= LEADERLESS_MAX) {
        subscription_fail(&w->events, FL_ENOLEADER, "it knows no leader");
    }
}

static void wait_for_news(const struct watcher *w)
{
    struct pollfd p = subscription_poll(&w->events);
    uint64_t now_ms = fl_now_ms();
    uint64_t next_ms = subscription_next_ms(&w->events);
    uint64_t left_ms = next_ms > now_ms ? next_ms - now_ms : 0;
    (void)poll(&p, 1, left_ms < QUIET_MS ? (int)left_ms : (int)QUIET_MS);
}

static int watch(struct watcher *w)
{
    const struct cli_args *a = w->args;
    uint64_t give_up_ms = fl_now_ms() + cli_timeout_ms(a); /* once it has listened, never */
    bool listened = false;
    while (w->left > 0 && ferror(stdout) == 0) {
        bool listens = w->events.step == SUBSCRIPTION_LISTENS;
        enum subscription_news news = subscription_process(&w->events);
        if (news == SUBSCRIPTION_QUIET) {
            probe(w);
        }
        bool failed = w->events.step == SUBSCRIPTION_RESTS && news != SUBSCRIPTION_NOTHING;
        /* FL_EDENIED: the user was deleted, or has another password */
        if (failed && (w->is_foreign || (!listens && w->events.code == FL_EDENIED) ||
                       (!listened && fl_now_ms() >= give_up_ms))) {
            return cli_fail(a, w->events.code, w->events.error, NULL, NULL);
        }
        if (failed && listens) {
            cli_complain("%s; looking for another node", w->events.error);
            w->leaderless = 0;
        }
        if (news == SUBSCRIPTION_BEGUN) {
            if (listened) {
                show_gap(w);
            }
            listened = true;
        }
        if (w->left > 0 && ferror(stdout) == 0) {
            wait_for_news(w);
        }
    }
    return CLI_EXIT_DONE;
}

int cli_run_watch(const struct cli_args *a, fl_client *c)
{
    static const char *const all[] = {"*"};
    struct watcher w = {.args = a,
                        .style = cli_style_of(a),
                        .client = c,
                        .left = cli_has(a, CLI_OPT_LIMIT) ? a->number[CLI_OPT_LIMIT] : UINT64_MAX};
    struct cli_access with;
    for (unsigned i = 0; i < a->n_args; i++) {
        size_t len = strlen(a->arg[i]);
        if (len < 1 || len > FL_NAME_MAX) {
            cli_complain("a name or pattern has 1 to %u bytes, not %zu", FL_NAME_MAX, len);
            return CLI_EXIT_USAGE;
        }
    }
    w.events = (struct subscription){.on_event = on_event,
                                     .ctx = &w,
                                     .pause_ms = PAUSE_MIN_MS,
                                     .pause_max_ms = PAUSE_MAX_MS,
                                     .quiet_ms = QUIET_MS,
                                     .patterns = true,
                                     .resolves_again = true};
    int code = cli_access_of(a, &with);
    code = code != 0 ? code
                     : subscription_begin(&w.events, a, &with, a->n_args > 0 ? a->arg : all,
                                          a->n_args > 0 ? a->n_args : 1);
    code = code != 0 ? code : watch(&w);
    subscription_end(&w.events);
    return code;
}
