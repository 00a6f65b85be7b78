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
#include "lab.h"
#include "redlock/quorum.h"

#define RUN_US UINT64_C(60000000)

struct use {
    struct holder *h;
    unsigned lock;
    bool believes;
    struct fl_redlock_lock held;
    uint64_t asked_us; /* true time, when the call began */
    fl_redlock_keeper *keeper;
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
    return u->keeper != NULL ? fl_redlock_keep_lock(u->keeper)->deadline_ms : u->held.deadline_ms;
}

static bool believes(const struct use *u)
{
    return u->believes && lab_read(&u->h->clock) < deadline_ms(u) * 1000;
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
        if (u->keeper != NULL && deadline_ms(u) > u->keep_until_ms) {
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

static void release(struct use *u)
{
    if (u->keeper != NULL) {
        u->held = *fl_redlock_keep_lock(u->keeper);
        fl_redlock_keep_stop(u->keeper);
        u->keeper = NULL;
    }
    u->believes = false;
    if (lab_chance(80)) {
        int rc = fl_redlock_release_start(u->h->handle, name_bytes(u), &u->held, NULL, NULL);
        FLI_ASSERT(rc == 0);
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

static void ended(void *ctx, enum fl_redlock_end why, const struct fl_redlock_lock *lock)
{
    struct use *u = ctx;
    marks.ended += why == FL_REDLOCK_END_MAX_HOLD;
    marks.lost += why == FL_REDLOCK_END_LOST;
    if (u->believes) {
        release(u);
    }
}

static void extended(void *ctx, int result, const struct fl_redlock_lock *lock,
                     const struct fl_redlock_report *report)
{
    struct use *u = ctx;
    marks.extended += result == 0;
    if (report->cause == FL_REDLOCK_LOST && lock->deadline_ms != 0) {
        lab_fail("client %u is told that lock %s is lost, and to believe in it", u->h->index,
                 name_of(u->lock));
    }
    if (u->believes && strcmp(u->held.value, lock->value) == 0) {
        u->held = *lock;
    }
}

static void extend(struct holder *h, uint64_t n)
{
    struct use *u = h->use;
    if (!believes(u) || u->serial != n) {
        return;
    }
    uint64_t ttl_ms = 200 + lab_below(MAX_TTL_MS - 200);
    int rc = fl_redlock_extend_start(h->handle, name_bytes(u), &u->held, ttl_ms, extended, u);
    FLI_ASSERT(rc == 0);
    /* Servers may take the shorter TTL long before this process hears of it. */
    uint64_t fresh_ms = fli_deadline_ms(fli_clock_ms(), ttl_ms);
    u->held.deadline_ms = fresh_ms < u->held.deadline_ms ? fresh_ms : u->held.deadline_ms;
}

static void keep(struct use *u)
{
    uint64_t most_ms = 1 + lab_below(3 * MAX_TTL_MS);
    int rc =
        fl_redlock_keep_start(u->h->handle, name_bytes(u), &u->held, most_ms, ended, u, &u->keeper);
    FLI_ASSERT(rc == 0);
    u->keep_until_ms = fli_clock_ms() + most_ms;
    marks.kept++;
}

static void acquired(void *ctx, int result, const struct fl_redlock_lock *lock,
                     const struct fl_redlock_report *report)
{
    struct use *u = ctx;
    if (result != 0) {
        marks.refused++;
        rest(u);
        return;
    }
    marks.acquired++;
    u->held = *lock;
    u->believes = true;
    u->serial++;
    uint64_t now_ms = fli_clock_ms();
    lab_later(u->h, now_ms + lab_below(2 * MAX_TTL_MS), finish, u->serial);
    if (lab_chance(40)) {
        keep(u);
    } else if (lab_chance(50)) {
        lab_later(u->h, now_ms + lab_below(lock->ttl_ms), extend, u->serial);
    }
}

static void begin(struct holder *h, uint64_t n)
{
    struct use *u = h->use;
    struct fl_redlock_acquire_options o = {.ttl_ms = 200 + lab_below(MAX_TTL_MS - 200)};
    o.wait_ms = lab_chance(50) ? lab_below(2000) : 0;
    u->lock = (unsigned)lab_below(lab.locks_n);
    u->asked_us = lab.now_us;
    int rc = fl_redlock_acquire_start(h->handle, name_bytes(u), &o, acquired, u, NULL);
    FLI_ASSERT(rc == 0);
}

static void start(struct holder *h)
{
    static const char *const servers[] = {"", "1", "", "1,2,3", "1,2,3,4", "1,2,3,4,5"};
    struct fl_redlock_options o = {.servers = servers[lab.servers_n],
                                   .max_ttl_ms = MAX_TTL_MS,
                                   .budget_ms = 20 + lab_below(130)};
    char errmsg[128];
    static uv_loop_t loop; /* never run: lab.c does what it would */
    lab.running = h;
    uses[h->index] = (struct use){.h = h};
    h->use = &uses[h->index];
    if (fl_redlock_create(&loop, &o, &h->handle, errmsg, sizeof errmsg) != 0) {
        lab_fail("%s", errmsg);
    }
    begin(h, 0);
    lab.running = NULL;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void run(uint64_t seed)
{
    lab_init(seed);
    for (unsigned i = 0; i < lab.holders_n; i++) {
        start(&lab.holders[i]);
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
        fl_redlock_keep_stop(uses[i].keeper);
        fl_redlock_close(h->handle, NULL, NULL);
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
