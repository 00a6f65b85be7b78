/* fencelock_cmd_redlock_run.c: `fencelock run` with the lock on Redis servers (Redlock).
 *
 * The lock is extended while the command runs. The local deadline stops the command: it counts
 * from before the first byte of the last extend that succeeded, so the command stops in time
 * when the network is silent. child.h starts and stops the command. */
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <uv.h>

#include "cli/child.h"
#include "cli/redlock_args.h"
#include "client/caller.h"

#define RELEASE_TIMEOUT_MS UINT64_C(2000)
#define CHECK_AFTER_MS UINT64_C(2000)
#define RELEASE_LOST_TIMEOUT_MS UINT64_C(500) /* one try; it will hardly succeed */

struct runner {
    const struct cli_args *args;
    struct cli_child child;
    uv_loop_t loop;
    fl_redlock *redlock;
    fl_client *tokens; /* NULL: no token is wanted */
    bool acquiring, held, lost, releasing, closed;
    bool max_hold_over; /* it is not extended any more */
    bool called_back;   /* a callback came in this turn: look at it before waiting for more */
    uint64_t acquire_id;
    uint64_t check_ms;           /* when to find out why it takes so long */
    struct fl_redlock_lock lock; /* as it was acquired */
    fl_redlock_keeper *keeper;
};

static const struct fl_redlock_lock *lock_now(const struct runner *r)
{
    return r->keeper != NULL ? fl_redlock_keep_lock(r->keeper) : &r->lock;
}

/* ---- losing it ------------------------------------------------------------------------------- */

static void lose(struct runner *r, const char *why, bool taken)
{
    if (r->lost) {
        return;
    }
    r->lost = true;
    cli_child_stop(&r->child, lock_now(r)->deadline_ms, taken);
    char text[256];
    snprintf(text, sizeof text, "the lock is lost: %s%s", why,
             r->child.lost ? "; stopping the command" : "");
    cli_child_warn(&r->child, text);
}

static uint64_t lost_at_ms(const struct runner *r)
{
    uint64_t deadline_ms = lock_now(r)->deadline_ms;
    return deadline_ms > r->child.reserve_ms ? deadline_ms - r->child.reserve_ms : 0;
}

static void lose_if_due(struct runner *r)
{
    if (r->held && !r->lost && fl_now_ms() >= lost_at_ms(r)) {
        lose(r, r->max_hold_over ? "--max-hold is over" : "it could not be extended in time",
             false);
    }
}

static void on_ended(void *ctx, enum fl_redlock_end why, const struct fl_redlock_lock *lock)
{
    struct runner *r = ctx;
    r->called_back = true;
    switch (why) {
    case FL_REDLOCK_END_LOST:
        lose(r, "too many servers no longer have it", true);
        break;
    case FL_REDLOCK_END_MAX_HOLD:
        r->max_hold_over = true; /* still held, until its deadline comes near */
        break;
    default:
        lose(r, "it could not be extended in time", false);
        break;
    }
}

static bool still_held(void *ctx)
{
    struct runner *r = ctx;
    lose_if_due(r);
    return !r->lost;
}

/* ---- the course ------------------------------------------------------------------------------ */

/* Waits for the token, and so keeps the loop from running, for as long as the quorum is valid at
 * most. No command runs yet. */
static void issue(void *ctx, struct fl_bytes name, uint64_t timeout_ms, fl_redlock_issued *issued,
                  void *issued_ctx)
{
    const struct runner *r = ctx;
    fl_token token = FL_TOKEN_NONE;
    int rc = fl_issue_token(r->tokens, name, timeout_ms, &token);
    issued(issued_ctx, rc, token);
}

static int exit_of_failure(int result, const struct fl_redlock_report *report)
{
    if (report->cause == FL_REDLOCK_CONTENDED) {
        return CLI_EXIT_RUN_NOT_ACQUIRED;
    }
    return cli_redlock_exit_of(result, report->cause) == CLI_EXIT_USAGE ? (int)CLI_EXIT_USAGE
                                                                        : (int)CLI_EXIT_RUN_FAILED;
}

static void on_acquired(void *ctx, int result, const struct fl_redlock_lock *lock,
                        const struct fl_redlock_report *report)
{
    struct runner *r = ctx;
    r->called_back = true;
    r->acquiring = false;
    cli_redlock_warn_of_nodes(r->redlock, report);
    if (result != 0) {
        char text[CLI_REDLOCK_ERROR_SIZE];
        cli_redlock_explain(text, sizeof text, r->redlock, report, r->tokens, result);
        r->child.exit_code = exit_of_failure(result, report);
        if (report->cause != FL_REDLOCK_CANCELLED) {
            cli_complain("%.255s: not acquired: %s", r->args->arg[0], text);
        }
        return;
    }
    r->lock = *lock;
    r->held = true;
    if (r->child.died_of != 0) {
        return;
    }
    uint64_t max_hold_ms = cli_has(r->args, CLI_OPT_MAX_HOLD) ? r->args->number[CLI_OPT_MAX_HOLD]
                                                              : FL_REDLOCK_TIME_MAX_MS;
    if (fl_redlock_keep_start(r->redlock, fl_str(r->args->arg[0]), lock, max_hold_ms, on_ended, r,
                              &r->keeper) != 0) {
        cli_child_warn(&r->child, "the lock cannot be kept: out of memory");
        return;
    }
    if (fl_now_ms() >= lost_at_ms(r)) {
        cli_child_warn(&r->child, "lost before the command could be started");
        r->child.exit_code = CLI_EXIT_RUN_LOST;
        return;
    }
    cli_child_start(&r->child, lock->token, lock_now(r)->deadline_ms);
}

static void on_released(void *ctx, int result, const struct fl_redlock_lock *lock,
                        const struct fl_redlock_report *report)
{
    struct runner *r = ctx;
    r->called_back = true;
    r->releasing = false;
    if (result != 0 && result != FL_ENOTHELD && !r->closed) {
        cli_child_warn(&r->child, "not given back everywhere, it ends with its TTL");
    }
}

static void on_closed(void *ctx)
{
    struct runner *r = ctx;
    r->closed = true;
}

/* One turn: waits until something happens, at most until until_ms, and reacts to it. */
static void turn(struct runner *r, uint64_t until_ms)
{
    r->called_back = false;
    (void)uv_run(&r->loop, UV_RUN_NOWAIT); /* starts what was begun since the last turn */
    uint64_t next_ms = until_ms;
    if (r->held && !r->lost && lost_at_ms(r) < next_ms) {
        next_ms = lost_at_ms(r);
    }
    cli_child_wake_at(&r->child, next_ms);
    struct pollfd p[] = {{.fd = uv_backend_fd(&r->loop), .events = POLLIN},
                         {.fd = r->child.signals.fd, .events = POLLIN},
                         {.fd = r->child.timer_fd, .events = POLLIN}};
    (void)poll(p, 3, r->called_back ? 0 : uv_backend_timeout(&r->loop));
    cli_child_before(&r->child);
    (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    lose_if_due(r);
    cli_child_after(&r->child);
}

static void release(struct runner *r)
{
    struct fl_redlock_lock lock = *lock_now(r);
    fl_redlock_keep_stop(r->keeper);
    r->keeper = NULL;
    r->held = false;
    uint64_t until_ms = fl_now_ms() + (r->lost ? RELEASE_LOST_TIMEOUT_MS : RELEASE_TIMEOUT_MS);
    r->releasing =
        fl_redlock_release_start(r->redlock, fl_str(r->args->arg[0]), &lock, on_released, r) == 0;
    while (r->releasing && fl_now_ms() < until_ms) {
        turn(r, until_ms);
    }
}

/* A wrong address must not look like a lock that others hold. */
static void on_checked(void *ctx, int result, const struct fl_redlock_check_report *found)
{
    struct runner *r = ctx;
    char text[400] = "waiting, but too few servers are of use: ";
    size_t len = strlen(text);
    uint32_t bad = 0; /* servers, a bit each */
    for (size_t i = 0; i < found->len; i++) {
        const struct fl_redlock_finding *f = &found->finding[i];
        bool useless = f->refuses || f->kind == FL_REDLOCK_FIND_UNREACHABLE ||
                       f->kind == FL_REDLOCK_FIND_YOUNG;
        if (f->server < 0 || !useless) {
            continue;
        }
        if (len < sizeof text) {
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%s: %s", bad == 0 ? "" : "; ",
                                    fl_redlock_address(r->redlock, (size_t)f->server), f->text);
        }
        bad |= UINT32_C(1) << (unsigned)f->server;
    }
    size_t n = fl_redlock_servers(r->redlock);
    if (r->acquiring && r->child.died_of == 0 && n - (size_t)__builtin_popcount(bad) < n / 2 + 1) {
        cli_child_inform(&r->child, text);
    }
}

static void check_if_due(struct runner *r)
{
    static const struct fl_redlock_check_options options;
    if (fl_now_ms() >= r->check_ms) {
        r->check_ms = CLI_NEVER_MS;
        /* without memory for the check, nothing is printed */
        (void)!fl_redlock_check_start(r->redlock, &options, on_checked, r);
    }
}

static void wait_run_and_release(struct runner *r)
{
    r->check_ms = fl_now_ms() + CHECK_AFTER_MS;
    while (r->acquiring && r->child.died_of == 0) {
        turn(r, r->check_ms);
        check_if_due(r);
    }
    if (r->acquiring) {
        fl_redlock_cancel(r->redlock, r->acquire_id);
        while (r->acquiring) {
            turn(r, CLI_NEVER_MS);
        }
    }
    while (r->child.pid != 0) {
        turn(r, CLI_NEVER_MS);
    }
    if (r->held) {
        release(r);
    }
}

static int start_acquire(struct runner *r)
{
    struct fl_redlock_acquire_options options;
    if (!cli_redlock_acquire_options(r->args, &options)) {
        return FL_EINVAL;
    }
    if (!cli_has(r->args, CLI_OPT_WAIT)) {
        options.wait_ms = FL_REDLOCK_TIME_MAX_MS;
    }
    int rc = fl_redlock_acquire_fenced_start(r->redlock, fl_str(r->args->arg[0]), &options,
                                             r->tokens != NULL ? issue : NULL, r, on_acquired, r,
                                             &r->acquire_id);
    r->acquiring = rc == 0;
    if (rc != 0) {
        cli_complain("%.255s: %s", r->args->arg[0], fl_strerror(rc));
    }
    return rc;
}

static int run_with_loop(struct runner *r)
{
    int code;
    if (cli_has(r->args, CLI_OPT_NODES) &&
        (r->tokens = cli_client_create(r->args, &code)) == NULL) {
        return code;
    }
    r->redlock = cli_redlock_create(r->args, &r->loop, &code);
    if (r->redlock == NULL) {
        fl_close(r->tokens);
        return code;
    }
    if (r->tokens != NULL) {
        fli_client_resolve(r->tokens); /* while a signal still ends this process at once */
    }
    int rc = cli_child_take_over_signals(&r->child) ? 0 : FL_ESYSTEM;
    if (rc == 0 && r->tokens != NULL) {
        fli_client_stop_at(r->tokens, r->child.signals.fd);
    }
    rc = rc == 0 ? start_acquire(r) : rc;
    if (rc == 0) {
        wait_run_and_release(r);
    } else if (rc == FL_EINVAL) {
        r->child.exit_code = CLI_EXIT_USAGE;
    }
    fl_redlock_keep_stop(r->keeper);
    fl_redlock_close(r->redlock, on_closed, r);
    while (!r->closed) {
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    fl_close(r->tokens);
    return -1;
}

int cli_run_redlock_run(const struct cli_args *a)
{
    struct runner r = {.args = a, .child = {.still_held = still_held, .ctx = &r}};
    uint64_t most_ms =
        cli_has(a, CLI_OPT_MAX_TTL) ? a->number[CLI_OPT_MAX_TTL] : FL_REDLOCK_MAX_TTL_DEFAULT_MS;
    if (!cli_child_init(&r.child, a, FL_REDLOCK_TTL_DEFAULT_MS, most_ms) ||
        !cli_name_is_wellformed(a->arg[0])) {
        return CLI_EXIT_USAGE;
    }
    if (a->number[CLI_OPT_MAX_HOLD] > FL_REDLOCK_TIME_MAX_MS) {
        cli_complain("--max-hold of redlock is at most 24h");
        return CLI_EXIT_USAGE;
    }
    if (uv_loop_init(&r.loop) != 0) {
        cli_complain("no event loop to be had");
        return CLI_EXIT_RUN_FAILED;
    }
    int code = run_with_loop(&r);
    (void)uv_run(&r.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&r.loop);
    /* if a signal ended us, cli_child_fini() ends us by it */
    return code >= 0 ? code : cli_child_fini(&r.child);
}
