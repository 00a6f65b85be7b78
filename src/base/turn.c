/* turn.c: see turn.h. Reading the processor's time costs a system call, so it is read once a
 * millisecond; the processor time of a slow turn is known with that precision. */
#include "base/turn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CPU_EVERY_NS UINT64_C(1000000)
#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

static const char *const names[FLI_TURN_PARTS] = {
    [FLI_TURN_OTHER] = "other",           [FLI_TURN_REQUESTS] = "requests",
    [FLI_TURN_HANDSHAKES] = "handshakes", [FLI_TURN_EVENTS] = "events",
    [FLI_TURN_APPLY] = "apply",           [FLI_TURN_QUERIES] = "queries",
    [FLI_TURN_PEERS] = "peers",           [FLI_TURN_SNAPSHOT] = "snapshot",
    [FLI_TURN_ANSWERS] = "answers",       [FLI_TURN_WRITES] = "writes",
};

const char *fli_turn_part_name(enum fli_turn_part part)
{
    FLI_ASSERT(part < FLI_TURN_PARTS);
    return names[part];
}

void fli_turn_init(struct fli_turn *t)
{
    memset(t, 0, sizeof *t);
    t->since_ns = t->began_ns = t->cpu_at_ns = fli_clock_ns();
    t->cpu_ns = fli_clock_cpu_ns();
}

static enum fli_turn_part largest(const struct fli_turn *t)
{
    enum fli_turn_part most = FLI_TURN_OTHER;
    for (unsigned i = 1; i < FLI_TURN_PARTS; i++) {
        most = t->ns[i] > t->ns[most] ? (enum fli_turn_part)i : most;
    }
    return most;
}

static bool note_slow(struct fli_turn *t, uint64_t now_ns, uint64_t took_ns,
                      char ret_text[FLI_TURN_TEXT_MAX])
{
    enum fli_turn_part most = largest(t);
    uint64_t cpu_ns = fli_clock_cpu_ns() - t->cpu_ns;
    cpu_ns = cpu_ns < took_ns ? cpu_ns : took_ns; /* counting began a little before the turn */
    t->stats.slow++;
    t->stats.slow_cpu += cpu_ns > FLI_TURN_SLOW_US * US;
    t->stats.slow_part[most]++;
    t->unlogged++;
    if (t->logged_ns != 0 && now_ns - t->logged_ns < FLI_TURN_LOG_MS * MS) {
        return false;
    }
    (void)snprintf(ret_text, FLI_TURN_TEXT_MAX,
                   "a turn of the loop took %" PRIu64 " ms, %" PRIu64
                   " ms of them on the processor; most of it, %" PRIu64
                   " ms, went to '%s' (slow turns since the last line: %" PRIu64 ")",
                   took_ns / MS, cpu_ns / MS, t->ns[most] / MS, names[most], t->unlogged);
    t->logged_ns = now_ns;
    t->unlogged = 0;
    return true;
}

bool fli_turn_end(struct fli_turn *t, uint64_t idle_ns, char ret_text[FLI_TURN_TEXT_MAX])
{
    fli_turn_count(t);
    uint64_t now_ns = t->since_ns;
    uint64_t all_ns = now_ns - t->began_ns;
    uint64_t took_ns = all_ns > idle_ns ? all_ns - idle_ns : 0;
    /* The clocks are not read at the same moment. */
    t->ns[FLI_TURN_OTHER] -= idle_ns < t->ns[FLI_TURN_OTHER] ? idle_ns : t->ns[FLI_TURN_OTHER];
    t->took_ns = took_ns;
    t->stats.turns++;
    t->stats.max_ns = took_ns > t->stats.max_ns ? took_ns : t->stats.max_ns;
    bool logs = took_ns > FLI_TURN_SLOW_US * US && note_slow(t, now_ns, took_ns, ret_text);
    for (unsigned i = 0; i < FLI_TURN_PARTS; i++) {
        t->stats.ns[i] += t->ns[i];
        t->ns[i] = 0;
    }
    if (now_ns - t->cpu_at_ns > CPU_EVERY_NS) {
        t->cpu_ns = fli_clock_cpu_ns();
        t->cpu_at_ns = now_ns;
    }
    t->began_ns = now_ns;
    return logs;
}
