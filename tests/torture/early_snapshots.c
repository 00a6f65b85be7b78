/* early_snapshots.c: makes snapshots come early, without a line of that in the program that ships.
 * Preloaded (LD_PRELOAD) into fencelockd, it sits between the node and raft, and makes the numbers
 * of log entries smaller that the node asks for: those after which a snapshot is due, and those
 * that are kept behind it. So a run of seconds meets what otherwise takes 65 536 entries: snapshots
 * written, sent to a follower that is late, loaded at a start, and logs that begin behind them.
 *
 * FENCELOCK_SNAPSHOT_ENTRIES: how many (default 200, at least 20, which is more than can be in
 * flight to a follower; half of them are kept). */
#include <dlfcn.h>
#include <raft.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define DEFAULT 200UL
#define LEAST 20UL

typedef void (*setter)(struct raft *r, unsigned n);

static unsigned at_most(unsigned n, unsigned share)
{
    const char *given = getenv("FENCELOCK_SNAPSHOT_ENTRIES");
    unsigned long entries = given != NULL ? strtoul(given, NULL, 10) : DEFAULT;
    entries = (entries < LEAST ? LEAST : entries) / share;
    return n < entries ? n : (unsigned)entries;
}

static void call(const char *name, struct raft *r, unsigned n)
{
    setter real;
    void *found = dlsym(RTLD_NEXT, name);
    memcpy((void *)&real, &found, sizeof found);
    real(r, n);
}

EXPORT void raft_set_snapshot_threshold(struct raft *r, unsigned n)
{
    call("raft_set_snapshot_threshold", r, at_most(n, 1));
}

EXPORT void raft_set_snapshot_trailing(struct raft *r, unsigned n)
{
    call("raft_set_snapshot_trailing", r, at_most(n, 2));
}
