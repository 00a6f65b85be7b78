/* fencelock_cmd_demo.c: `fencelock demo redlock`: what Redlock loses under real faults without
 * tokens, and does not lose with them. The parts are described in demo.h. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/demo.h"

#define RUNS_MAX 100000u
#define ROWS_MAX 3u /* runs whose rounds are shown one by one */

struct demo {
    const struct cli_args *args;
    struct cli_style style;
    struct cli_json json;
    struct demo_lab lab;
    uint64_t seed, runs;
    bool done;
    bool wanted[DEMO_MODES];
    struct demo_totals totals[DEMO_MODES];
    struct demo_result *first[DEMO_MODES]; /* for the picture */
};

static void on_signal(int signal)
{
    demo_interrupted = signal;
}

/* Tried before the runs, which may take an hour. Leaves what is in the file as it is. */
static bool is_writable(const char *path)
{
    FILE *f = path != NULL ? fopen(path, "ae") : NULL;
    if (path != NULL && f == NULL) {
        cli_complain("--svg: cannot write %.200s: %s", path, strerror(errno));
        return false;
    }
    return f == NULL || fclose(f) == 0;
}

static bool take_arguments(struct demo *d)
{
    const struct cli_args *a = d->args;
    bool known = !cli_has(a, CLI_OPT_TOKENS);
    d->wanted[DEMO_OFF] = d->wanted[DEMO_ON] = known;
    for (unsigned i = 0; i < DEMO_MODES && !known; i++) {
        d->wanted[i] = strcmp(a->text[CLI_OPT_TOKENS], demo_mode_word((enum demo_mode)i)) == 0;
        known = d->wanted[i];
    }
    if (!known) {
        cli_complain("--tokens is on, off or writes, not '%.32s'; without it both on and off are "
                     "shown",
                     a->text[CLI_OPT_TOKENS]);
        return false;
    }
    d->seed = cli_has(a, CLI_OPT_SEED) ? a->number[CLI_OPT_SEED] : 1;
    d->runs = cli_has(a, CLI_OPT_RUNS) ? a->number[CLI_OPT_RUNS] : 1;
    if (d->runs < 1 || d->runs > RUNS_MAX) {
        cli_complain("--runs is 1 to %u", RUNS_MAX);
        return false;
    }
    return is_writable(a->text[CLI_OPT_SVG]);
}

/* ---- progress -------------------------------------------------------------------------------- */

static void progress(const struct demo *d, uint64_t done)
{
    uint64_t every = d->runs >= 100 ? d->runs / 20 : 0;
    const struct demo_totals *t = d->totals;
    if (isatty(STDERR_FILENO) == 1) {
        fprintf(stderr,
                "\r\033[Kfencelock: %" PRIu64 " of %" PRIu64 " runs; lost without tokens: "
                "%" PRIu64 ", with: %" PRIu64,
                done, d->runs, t[DEMO_OFF].lost + t[DEMO_WRITES].lost, t[DEMO_ON].lost);
        if (done == d->runs) {
            fputs("\r\033[K", stderr);
        }
    } else if (every > 0 && (done % every == 0 || done == d->runs)) {
        fprintf(stderr,
                "fencelock: %" PRIu64 " of %" PRIu64 " runs; lost without tokens: %" PRIu64
                ", with: %" PRIu64 "\n",
                done, d->runs, t[DEMO_OFF].lost + t[DEMO_WRITES].lost, t[DEMO_ON].lost);
    }
}

/* On the line that progress() overwrites; "" clears it. */
static void say_on_terminal(const char *text)
{
    if (isatty(STDERR_FILENO) == 1) {
        fprintf(stderr, "\r\033[K%s%s", text[0] != '\0' ? "fencelock: " : "", text);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int run_once(struct demo *d, const struct demo_plan *plan, enum demo_mode mode)
{
    struct demo_result *r = malloc(sizeof *r);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    int rc = demo_run(&d->lab, plan, mode, r);
    if (rc != 0) {
        free(r);
        return rc;
    }
    demo_totals_add(&d->totals[mode], r);
    if (d->style.json) {
        demo_json_run(&d->json, r);
    } else if (d->runs <= ROWS_MAX) {
        say_on_terminal("");
        demo_show_run(r, d->style.colours);
    } else if (r->lost > 0 ? mode == DEMO_ON : mode == DEMO_OFF) {
        /* Not what is promised: it must not go under among the others. */
        demo_show_run(r, d->style.colours);
    }
    if (d->first[mode] == NULL) {
        d->first[mode] = r;
    } else {
        free(r);
    }
    return 0;
}

static int run_all(struct demo *d)
{
    bool clock = d->lab.faketime[0] != '\0';
    for (uint64_t i = 0; i < d->runs; i++) {
        struct demo_plan plan;
        demo_plan_make(&plan, d->seed + i, clock);
        for (unsigned mode = 0; mode < DEMO_MODES; mode++) {
            int rc = d->wanted[mode] ? run_once(d, &plan, (enum demo_mode)mode) : 0;
            if (rc != 0) {
                return rc;
            }
        }
        progress(d, i + 1);
    }
    return 0;
}

static bool is_as_promised(const struct demo *d)
{
    const struct demo_totals *t = d->totals;
    const struct demo_totals *off = &t[DEMO_OFF];
    const struct demo_totals *on = &t[DEMO_ON];
    bool loses = off->runs_lost == off->runs && off->runs_two == off->runs;
    bool keeps = on->lost == 0 && on->unknown == 0 && on->runs_two == on->runs;
    /* Whether a run loses depends on which write comes first in its rounds. */
    return loses && keeps && (!d->wanted[DEMO_WRITES] || t[DEMO_WRITES].runs_two > 0);
}

static const char *verdict(const struct demo *d, bool promised)
{
    if (!promised) {
        return "This is not what is promised.";
    }
    if (d->wanted[DEMO_WRITES]) {
        return "Tokens on writes alone: updates are lost where the late write comes between the "
               "read\nand the write of the next holder, since nothing newer has been seen.";
    }
    if (!d->wanted[DEMO_ON]) {
        return "Every run lost updates that had been acknowledged.";
    }
    return d->wanted[DEMO_OFF]
               ? "Without tokens every run lost updates that had been acknowledged; with them none."
               : "No update that was acknowledged was lost.";
}

static void show_end(struct demo *d)
{
    bool promised = is_as_promised(d) && d->done;
    if (!d->style.json && !d->done) {
        return;
    }
    if (d->style.json) {
        cli_json_end_array(&d->json);
        for (unsigned i = 0; i < DEMO_MODES; i++) {
            if (d->wanted[i]) {
                demo_json_totals(&d->json, demo_mode_word((enum demo_mode)i), &d->totals[i]);
            }
        }
        cli_json_bool(&d->json, "clock", d->lab.faketime[0] != '\0');
        cli_json_bool(&d->json, "as_promised", promised);
        return;
    }
    demo_show_totals(d->totals, d->wanted, d->style.colours);
    printf("%s%s%s\n", cli_colour_on(promised ? CLI_GREEN : CLI_RED, d->style.colours),
           verdict(d, promised), cli_colour_off(promised ? CLI_GREEN : CLI_RED, d->style.colours));
}

static int finish(struct demo *d, int rc)
{
    if (rc != 0) {
        say_on_terminal("");
        const char *why = demo_interrupted != 0     ? "interrupted"
                          : d->lab.error[0] != '\0' ? d->lab.error
                                                    : fl_strerror(rc);
        cli_complain("the demonstration could not go on: %s", why);
        return CLI_EXIT_UNKNOWN;
    }
    const char *path = d->args->text[CLI_OPT_SVG];
    const struct demo_result *left = NULL;
    const struct demo_result *right = NULL;
    for (unsigned i = 0; i < DEMO_MODES; i++) {
        if (d->first[i] != NULL) {
            *(left == NULL ? &left : &right) = d->first[i];
        }
    }
    if (path != NULL && !demo_draw(left, right, path)) {
        cli_complain("--svg: cannot write %.200s: %s", path, strerror(errno));
        return CLI_EXIT_UNKNOWN;
    }
    return is_as_promised(d) ? CLI_EXIT_DONE : CLI_EXIT_NO;
}

static void handle_signals(void)
{
    const struct sigaction end = {.sa_handler = on_signal};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGINT, &end, NULL);
    (void)sigaction(SIGTERM, &end, NULL);
    (void)sigaction(SIGHUP, &end, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
}

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        size_t len = strcspn(path, ":");
        char there[512];
        snprintf(there, sizeof there, "%.*s/%s", (int)len, path, program);
        if (access(there, X_OK) == 0) {
            return true;
        }
        path += len + (path[len] == ':' ? 1 : 0);
    }
    return false;
}

int cli_run_demo_redlock(const struct cli_args *a)
{
    struct demo *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return CLI_EXIT_UNKNOWN;
    }
    d->args = a;
    d->style = cli_style_of(a);
    if (!take_arguments(d)) {
        free(d);
        return CLI_EXIT_USAGE;
    }
    if (!in_path("redis-server")) {
        cli_complain("the demonstration needs redis-server, which is not in the PATH: "
                     "apt-get install redis-server");
        free(d);
        return CLI_EXIT_UNKNOWN;
    }
    handle_signals();
    if (d->style.json) {
        cli_json_init(&d->json, stdout);
        cli_json_object(&d->json, NULL);
        cli_json_array(&d->json, "runs");
    }
    say_on_terminal("starting five Redis servers, three nodes and two storages");
    int rc = demo_lab_open(&d->lab);
    say_on_terminal("");
    if (rc == 0 && d->lab.faketime[0] == '\0') {
        cli_complain("libfaketime is missing, or Redis does not run under it, so no clock jumps "
                     "here (the other faults happen): "
                     "apt-get install faketime, or deploy/setup --tests");
    }
    if (rc == 0) {
        rc = run_all(d);
    }
    d->done = rc == 0;
    show_end(d);
    if (d->style.json) {
        cli_json_end_object(&d->json);
        cli_json_finish(&d->json);
    }
    demo_lab_close(&d->lab);
    int code = finish(d, rc);
    for (unsigned i = 0; i < DEMO_MODES; i++) {
        free(d->first[i]);
    }
    free(d);
    return code;
}
