/* turn.h: measures how one turn of a loop spends its time.
 *
 * One thread does everything: it reads clients, applies entries, sends heartbeats. So each kind of
 * work has a share of a turn, and what does not fit waits for the next turn. A turn that took long
 * anyway is counted, and logged with the part that took longest. The shares, and where they are
 * enforced:
 *
 *   handshakes   FLI_TURN_HANDSHAKES_US   net/secure.c, the last one may take longer: 1 to 2 ms
 *   accepting    counts, not time         net/conn.h: NET_ACCEPTS_TURN_MAX; peer/transport.h:
 *                                         TRANSPORT_ACCEPTS_TURN_MAX
 *   requests     FLI_TURN_REQUESTS_US     net/conn.c: reading, parsing, and what is answered at
 *                                         once, and net/secure.c: decrypting; of that a connection
 *                                         has FLI_TURN_VISIT_US and one read, then the others, by
 *                                         address (base/line.h); less after long turns. If those
 *                                         that waited use all of it, new ones have half as much
 *                                         again
 *   ends         FLI_TURN_ENDS_US         net/end.c: connections that are freed, and as much for
 *                                         clients that hang up with requests in flight
 *   events       FLI_TURN_EVENT_STEPS     server/events_publish.c: of matching and sending, for all
 *                                         that subscribers are told
 *   waits        counts, not time         server/dispatch.h: DISPATCH_TOLD_MAX requests that events
 *                                         answer, and as many BLPOPs; DISPATCH_DUE_MAX whose end
 *                                         never came; DISPATCH_CLEANUP_MAX are cleaned up at a time
 *   CLIENT LIST  counts, not time         net/client_list.h: NET_LISTED_TURN_MAX
 *   peers        FLI_TURN_PEERS_US        peer/stream.c: reading, with decrypting and all that
 *                                         the bytes cause at once; then one read of each
 *   writes       FLI_TURN_PUSHES_US       net/server.c: to connections that got events and no
 *                                         answers; the others come first, and have no limit
 *   apply        steps, not time          machine/limits.h: MACHINE_APPLY_STEPS_MAX an entry
 *   catching up  bytes, not time          consensus/replica_private.h: REPLICA_REST_BYTES, to
 *                                         followers that are behind
 *   moving       counts, not time         commands/relay_codec.h: RELAY_WINDOW commands go to a
 *                                         leader, or back from a former one; commands/commands.h:
 *                                         COMMANDS_EXPIRED_MAX end
 *   queries      cost, not time           machine/limits.h: MACHINE_LIST_COST, MACHINE_SHOW_COST of
 *                                         what an entry may cost; lists wait in a queue first,
 *                                         see server/listing.c
 *
 * Code enters and leaves a part of the work like a scope. Time outside of all scopes, without
 * the time in which the loop waited, counts as FLI_TURN_OTHER. Entering and leaving read the
 * clock, but within a scope of the same part. So a scope is for an entry, a read or a frame, not
 * for a command. No allocation, one thread. */
#ifndef FLI_TURN_H
#define FLI_TURN_H

#include <stdbool.h>

#include "base/clock.h"

#define FLI_TURN_SLOW_US 10000u /* a longer turn is counted and logged */
#define FLI_TURN_LOG_MS 5000u   /* at most one line per this time */
#define FLI_TURN_HANDSHAKES_US 3000u
#define FLI_TURN_REQUESTS_US 2000u
/* A request costs more later in the turn: its command is sent, applied and answered. So the share
 * is halved after a turn longer than this, down to the least, and grows while turns are shorter. */
#define FLI_TURN_LONG_US 2500u
#define FLI_TURN_REQUESTS_LEAST_US 250u
#define FLI_TURN_VISIT_US 250u
#define FLI_TURN_EVENT_STEPS 200000u
#define FLI_TURN_PEERS_US 2000u
#define FLI_TURN_PUSHES_US 2000u
#define FLI_TURN_ENDS_US 1000u

enum fli_turn_part {
    FLI_TURN_OTHER,
    FLI_TURN_REQUESTS,
    FLI_TURN_HANDSHAKES,
    FLI_TURN_EVENTS,
    FLI_TURN_APPLY,
    FLI_TURN_QUERIES,
    FLI_TURN_PEERS,
    FLI_TURN_SNAPSHOT,
    FLI_TURN_ANSWERS,
    FLI_TURN_WRITES,
    FLI_TURN_PARTS
};

struct fli_turn_stats {
    /* slow_cpu: slow turns in which the thread worked, rather than was kept waiting, for so long */
    uint64_t turns, slow, slow_cpu;
    uint64_t max_ns;
    uint64_t ns[FLI_TURN_PARTS];        /* since start */
    uint64_t slow_part[FLI_TURN_PARTS]; /* slow turns, by the part that took longest */
};

struct fli_turn {
    enum fli_turn_part part;
    uint64_t since_ns; /* up to then the time is counted */
    uint64_t began_ns;
    uint64_t took_ns;           /* the last whole turn */
    uint64_t cpu_ns, cpu_at_ns; /* the thread's processor time, and when it was read */
    uint64_t ns[FLI_TURN_PARTS];
    uint64_t logged_ns, unlogged; /* the last line, and the slow turns since */
    struct fli_turn_stats stats;
};

void fli_turn_init(struct fli_turn *t);

/* Ends a turn and begins the next. `idle_ns`: how long the loop waited in it. True: the turn was
 * slow, and ret_text is the line to log. */
#define FLI_TURN_TEXT_MAX 256u
bool fli_turn_end(struct fli_turn *t, uint64_t idle_ns, char ret_text[FLI_TURN_TEXT_MAX]);

/* Names of the parts, for INFO and the log. */
const char *fli_turn_part_name(enum fli_turn_part part);

/* Counts the time up to now for the part of now. */
static inline void fli_turn_count(struct fli_turn *t)
{
    uint64_t now_ns = fli_clock_ns();
    t->ns[t->part] += now_ns - t->since_ns;
    t->since_ns = now_ns;
}

static inline enum fli_turn_part fli_turn_enter(struct fli_turn *t, enum fli_turn_part part)
{
    enum fli_turn_part before = t == NULL ? FLI_TURN_OTHER : t->part;
    if (t != NULL && part != before) {
        fli_turn_count(t);
        t->part = part;
    }
    return before;
}

/* So long the part of now has waited for a disk: that is not work, and does not count. */
static inline void fli_turn_waited(struct fli_turn *t, uint64_t ns)
{
    t->began_ns += ns;
    t->since_ns += ns;
}

/* before: what fli_turn_enter() returned. */
static inline void fli_turn_leave(struct fli_turn *t, enum fli_turn_part before)
{
    (void)fli_turn_enter(t, before);
}

#endif
