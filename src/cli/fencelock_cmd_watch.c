/* fencelock_cmd_watch.c: `fencelock watch`: shows the events of locks until it is ended.
 *
 * When another node is listened to, a line says that events may have been missed: otherwise a gap
 * would look like silence. */
#include <string.h>

#include "base/clock.h"
#include "cli/watch_event.h"
#include "cli/fencelock_common.h"

#define CHECK_MS UINT64_C(2000) /* whether it is still of use to anybody */

struct watcher {
    const struct cli_args *args;
    fl_watch *events;
    uint64_t give_up_ms; /* once it has listened, never */
    bool listened, listens;
    uint64_t left; /* so many events are still to be shown */
    size_t name_width;
};

/* ---- showing --------------------------------------------------------------------------------- */

static void show(struct watcher *w, const struct fl_event *e)
{
    struct cli_out o = cli_result(w->args);
    watch_event_print(e, fli_clock_wall_ms(), &o, &w->name_width);
    cli_out_end(&o);
    fflush(stdout);
    w->left -= e->kind == FL_EVENT_MISSED ? 0 : 1;
}

static void show_gap(const struct watcher *w, const char *node)
{
    struct cli_out o = cli_result(w->args);
    fli_json_text(&o.j, "event", "gap");
    fli_json_text(&o.j, "node", node);
    if (o.terminal) {
        cli_paint(&o, CLI_RED, "events may have been missed: now from %s; see fencelock show",
                  node);
        cli_text(&o, "\n");
    } else {
        cli_text(&o, "event=gap node=%s\n", node);
    }
    cli_out_end(&o);
    fflush(stdout);
}

/* ---- listening ------------------------------------------------------------------------------- */

/* FL_EDENIED before anything was heard is this user's password or rights, and FL_EPROTO an address
 * that is not of a node. */
static void interrupted(struct watcher *w, const struct fl_event *e)
{
    bool is_wrong = e->status == FL_EDENIED ? !w->listens : e->status == FL_EPROTO && !w->listened;
    if (is_wrong || (!w->listened && fl_now_ms() >= w->give_up_ms)) {
        cli_die(w->args, e->status, e->text);
    }
    if (w->listens) {
        cli_complain("%s; looking for another node", e->text);
    }
    w->listens = false;
}

static void take(struct watcher *w, const struct fl_event *e)
{
    if (e->kind == FL_EVENT_INTERRUPTED) {
        interrupted(w, e);
    } else if (e->kind != FL_EVENT_LISTENS) {
        show(w, e);
    } else {
        if (w->listened) {
            show_gap(w, e->node);
        }
        w->listened = w->listens = true;
    }
}

static void begin(struct watcher *w, fl_client *c)
{
    const struct cli_args *a = w->args;
    struct fl_bytes patterns[CLI_ARGS_MAX];
    struct fl_bytes names[CLI_ARGS_MAX];
    struct fl_watch_options o = {.names = names, .patterns = patterns};
    for (unsigned i = 0; i < a->n_args; i++) {
        struct fl_bytes word = fl_str(a->arg[i]);
        if (word.len < 1 || word.len > FL_NAME_MAX) {
            cli_usage("a name or pattern has 1 to %u bytes, not %zu", FL_NAME_MAX, word.len);
        }
        if (strpbrk(a->arg[i], "*?[") != NULL) {
            patterns[o.patterns_len++] = word;
        } else {
            names[o.names_len++] = word;
        }
    }
    cli_need(a, c, fl_watch_open(c, a->n_args > 0 ? NULL : "*", &o, &w->events));
}

int cli_run_watch(const struct cli_args *a, fl_client *c)
{
    struct watcher w = {.args = a,
                        .give_up_ms = fl_now_ms() + cli_timeout_ms(a),
                        .left = cli_number(a, CLI_OPT_LIMIT, UINT64_MAX)};
    begin(&w, c);
    while (w.left > 0 && ferror(stdout) == 0) {
        const struct fl_event *e;
        int rc = fl_watch_next(w.events, CHECK_MS, &e);
        if (rc == 0) {
            take(&w, e);
        } else if (rc != FL_ETIMEOUT) {
            cli_die(a, rc, fl_strerror(rc));
        }
    }
    fl_watch_close(w.events);
    return CLI_EXIT_DONE;
}
