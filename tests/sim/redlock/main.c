/* main.c: clients take locks by Redlock; their belief to hold is compared with what the servers
 * hold.
 *
 *   sim_redlock [--seeds N] [--from N] [--seed N]
 *
 * Compared after every event, and at the last moment before each deadline of a holder that
 * believes:
 *
 *  1. a quorum of the servers hold its value, or have restarted since it asked for the lock
 *  2. no other holder believes in the same lock
 *  3. a lock that is kept has no deadline beyond the time it may be held; one that is said to be
 *     lost has none
 *
 * When a run lets servers end keys early only 3 is compared, because Redlock promises neither 1 nor
 * 2 then. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/handle.h"
#include "lab.h"
#include "redlock/quorum.h"

#define RUN_US UINT64_C(60000000)

struct use {
    struct holder *h;
    unsigned lock;
    bool believes;
    struct held {
        char value[FL_REDLOCK_VALUE_LEN + 1];
        uint64_t ttl_ms, deadline_ms;
    } held;
    uint64_t asked_us; /* true time, when the call began */
    fl_lock *kept;     /* NULL: it is not renewed */
    uint64_t keep_until_ms;
    uint64_t serial; /* numbers the times that this client believed */
};

static struct use uses[CLIENTS_MAX];
static struct {
    uint64_t acquired, refused, extended, kept, ended, lost, believed_twice;
} marks;

static const char *name_of(unsigned lock)
{
    return lock == 0 ? "a" : "b";
}

static uint64_t deadline_ms(const struct use *u)
{
    return u->kept != NULL ? u->kept->lease.deadline_ms : u->held.deadline_ms;
}

static bool believes(const struct use *u)
{
    bool lost = u->kept != NULL && u->kept->lease.state == FL_HOLD_LOST;
    return u->believes && !lost && lab_read(&u->h->clock) < deadline_ms(u) * 1000;
}

/* ---- the judge ------------------------------------------------------------------------------- */

static void check_servers(const struct use *u)
{
    unsigned n = 0;
    for (unsigned i = 0; i < lab.servers_n; i++) {
        const struct redis *r = &lab.servers[i];
        n += lab_has(r, u->lock, u->held.value) || r->up_since_us > u->asked_us;
    }
    if (2 * n <= lab.servers_n) {
        lab_fail("client %u believes in lock %s for %" PRIu64
                 " us more, and %u of %u servers hold it",
                 u->h->index, name_of(u->lock), deadline_ms(u) * 1000 - lab_read(&u->h->clock), n,
                 lab.servers_n);
    }
}

static void judge(void)
{
    for (unsigned i = 0; i < lab.holders_n; i++) {
        const struct use *u = &uses[i];
        if (!believes(u)) {
            continue;
        }
        if (u->kept != NULL && deadline_ms(u) > u->keep_until_ms) {
            lab_fail("client %u keeps lock %s for longer than it may", i, name_of(u->lock));
        }
        if (!lab.early) {
            check_servers(u);
        }
        for (unsigned k = 0; k < i; k++) {
            bool both = believes(&uses[k]) && uses[k].lock == u->lock;
            marks.believed_twice += both;
            if (both && !lab.early) {
                lab_fail("clients %u and %u believe in lock %s at once", k, i, name_of(u->lock));
            }
        }
    }
}

/* Judges each belief just before its deadline, but not after `until_us`; also while the client's
 * process is stopped. */
static void judge_last_moments(uint64_t until_us)
{
    uint64_t now_us = lab.now_us;
    for (unsigned i = 0; i < lab.holders_n; i++) {
        if (believes(&uses[i])) {
            uint64_t at_us = lab_true(&uses[i].h->clock, deadline_ms(&uses[i]) * 1000 - 20);
            lab.now_us = at_us < until_us ? at_us : until_us;
            lab.now_us = lab.now_us > now_us ? lab.now_us : now_us;
            judge();
            lab.now_us = now_us;
        }
    }
}

/* ---- holders --------------------------------------------------------------------------------- */

static void begin(struct holder *h, uint64_t n);

static void rest(struct use *u)
{
    u->believes = false;
    lab_later(u->h, fli_clock_ms() + 1 + lab_below(400), begin, 0);
}

static struct fl_bytes name_bytes(const struct use *u)
{
    return (struct fl_bytes){name_of(u->lock), 1};
}

static void on_ended(struct fl_call *call)
{
}

/* Extends or releases by the value. */
static void start(struct use *u, enum fli_call_command command, uint64_t ttl_ms,
                  void (*ended)(struct fl_call *call))
{
    const struct fli_call_request request = {.command = command,
                                             .name = name_bytes(u),
                                             .owner = fl_str(u->held.value),
                                             .ttl_ms = ttl_ms};
    const struct fli_call_times times = {.deadline_ms = fli_clock_ms()};
    const struct fl_call *call =
        fli_engine_start(&u->h->handle->engine, &request, &times, ended, u);
    FLI_ASSERT(call != NULL);
}

static void release(struct use *u)
{
    fl_lock *kept = u->kept;
    bool releases = lab_chance(80);
    u->kept = NULL;
    u->believes = false;
    if (kept != NULL && releases) {
        int rc = fl_lock_release_start(kept, 0, NULL, NULL);
        FLI_ASSERT(rc == 0);
    } else if (kept != NULL) {
        fl_lock_free(kept);
    } else if (releases) {
        start(u, FLI_CALL_RELEASE, 0, on_ended);
    }
    rest(u);
}

static void finish(struct holder *h, uint64_t n)
{
    struct use *u = h->use;
    if (u->believes && u->serial == n) {
        release(u);
    }
}

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    struct use *u = arg;
    if (state != FL_HOLD_LOST) {
        return;
    }
    marks.ended += lock->lease.reason == FL_LOST_MAX_HOLD;
    marks.lost += lock->lease.reason == FL_LOST_TAKEN;
    if (u->believes && u->kept == lock) {
        release(u);
    }
}

static void extended(struct fl_call *call)
{
    struct use *u = call->arg;
    int status = call->call_state.status;
    uint64_t until_ms = call->call_state.lease_until_ms;
    marks.extended += status == 0;
    if (!u->believes || strcmp(u->held.value, call->report->value) != 0) {
        return;
    }
    bool sooner = until_ms != 0 && until_ms < u->held.deadline_ms;
    if (status == 0 || sooner) {
        u->held.deadline_ms = until_ms;
    }
    if (status == FL_ENOTHELD) {
        u->held.deadline_ms = 0;
    }
}

static void extend(struct holder *h, uint64_t n)
{
    struct use *u = h->use;
    if (!believes(u) || u->serial != n) {
        return;
    }
    uint64_t ttl_ms = 200 + lab_below(MAX_TTL_MS - 200);
    start(u, FLI_CALL_RENEW, ttl_ms, extended);
    /* Servers may take the shorter TTL long before this process hears of it. */
    uint64_t fresh_ms = fli_deadline_ms(fli_clock_ms(), ttl_ms);
    u->held.deadline_ms = fresh_ms < u->held.deadline_ms ? fresh_ms : u->held.deadline_ms;
}

static void acquired(void *arg, const struct fl_result *result)
{
    struct use *u = arg;
    fl_lock *lock = result->lock;
    if (result->status != 0) {
        marks.refused++;
        rest(u);
        return;
    }
    marks.acquired++;
    u->held = (struct held){.ttl_ms = lock->ttl_ms, .deadline_ms = lock->lease.deadline_ms};
    memcpy(u->held.value, fl_redlock_value(lock).data, FL_REDLOCK_VALUE_LEN);
    u->believes = true;
    u->serial++;
    uint64_t now_ms = fli_clock_ms();
    lab_later(u->h, now_ms + lab_below(2 * MAX_TTL_MS), finish, u->serial);
    if (lock->is_renewed) {
        u->kept = lock;
        u->keep_until_ms = now_ms + lock->max_hold_ms; /* which counts from the attempt */
        marks.kept++;
        return;
    }
    fl_lock_free(lock);
    if (lab_chance(50)) {
        lab_later(u->h, now_ms + lab_below(u->held.ttl_ms), extend, u->serial);
    }
}

static void begin(struct holder *h, uint64_t n)
{
    struct use *u = h->use;
    struct fl_take o = {
        .ttl_ms = 200 + lab_below(MAX_TTL_MS - 200), .on_change = on_change, .arg = u};
    u->lock = (unsigned)lab_below(lab.locks_n);
    o.name = name_bytes(u);
    o.wait_ms = lab_chance(50) ? lab_below(2000) : 0;
    o.unrenewed = lab_chance(60);
    o.max_hold_ms = o.unrenewed ? 0 : 2000 + lab_below(3 * MAX_TTL_MS);
    u->asked_us = lab.now_us;
    int rc = fl_lock_take_start(h->handle, NULL, &o, acquired, u, NULL);
    FLI_ASSERT(rc == 0);
}

static void open_client(struct holder *h)
{
    static const char *const servers[] = {"",         "/1",          "",
                                          "/1,/2,/3", "/1,/2,/3,/4", "/1,/2,/3,/4,/5"};
    struct fl_redlock_options o = {.servers = servers[lab.servers_n],
                                   .max_ttl_ms = MAX_TTL_MS,
                                   .budget_ms = 20 + lab_below(130),
                                   .own_loop = true};
    lab.running = h;
    uses[h->index] = (struct use){.h = h};
    h->use = &uses[h->index];
    if (fl_redlock_open(&o, &h->handle) != 0) {
        lab_fail("%s", fl_client_error(NULL));
    }
    begin(h, 0);
    lab.running = NULL;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void run(uint64_t seed)
{
    lab_init(seed);
    for (unsigned i = 0; i < lab.holders_n; i++) {
        open_client(&lab.holders[i]);
    }
    uint64_t end_us = lab.now_us + RUN_US;
    while (lab_step(end_us)) {
        judge();
        judge_last_moments(lab_next_us());
    }
    for (unsigned i = 0; i < lab.holders_n; i++) {
        struct holder *h = &lab.holders[i];
        lab.running = h;
        uses[i].believes = false;
        h->closing = true;
        fl_lock_free(uses[i].kept);
        h->handle->engine.timeout_ms = 0; /* time stands still, so no release is waited for */
        fl_close(h->handle);
    }
    lab.running = NULL;
    lab_free();
}

static uint64_t number(const char *text)
{
    return strtoull(text, NULL, 10);
}

int main(int argc, char **argv)
{
    uint64_t from = 1;
    uint64_t seeds = 20;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seeds") == 0) {
            seeds = number(argv[i + 1]);
        } else if (strcmp(argv[i], "--from") == 0) {
            from = number(argv[i + 1]);
        } else if (strcmp(argv[i], "--seed") == 0) {
            from = number(argv[i + 1]);
            seeds = 1;
        } else {
            fprintf(stderr, "sim_redlock: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    uint64_t restarts = 0;
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        run(seed);
        restarts += lab.restarts;
    }
    printf("%" PRIu64 " seeds from %" PRIu64 ": %" PRIu64 " acquired, %" PRIu64 " refused, %" PRIu64
           " extended, %" PRIu64 " kept, %" PRIu64 " to the end, %" PRIu64 " lost, %" PRIu64
           " restarts\n",
           seeds, from, marks.acquired, marks.refused, marks.extended, marks.kept, marks.ended,
           marks.lost, restarts);
    bool reached = marks.acquired > 0 && marks.refused > 0 && marks.extended > 0 &&
                   marks.ended > 0 && marks.lost > 0 && restarts > 0;
    if (seeds >= 20 && !reached) {
        puts("something was never reached: this does not test what it says");
        return 1;
    }
    return 0;
}
