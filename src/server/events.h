/* events.h: subscriptions to events of locks: SUBSCRIBE and PSUBSCRIBE.
 *
 * Every node serves its subscribers from the log that it applies itself, in the order of the log.
 * Pure: machine events in, RESP frames out through a sink; no sockets, no node, no clock.
 *
 *   channel                    message
 *   lock:<name>                event=granted token=17 owner=6f1d.. clock=123456 [wait=9]
 *                              event=queued | released | expired | broken | left
 *   redisson_lock__channel:{<name>}   0: the lock may be free, or look again
 *   fencelock:min_live_token   event=min_live_token token=17 clock=123456
 *   fencelock:resync           to patterns only: event=resync clock=123456
 *
 * A message is a list of `key=value` words with single blanks between them. In a value, `%` and
 * every byte that is not visible ASCII are written %XX. When a snapshot replaced the state, this
 * node does not know the events in between. Then every subscription gets `event=resync`: look again
 * with SHOW.
 *
 * The name of a channel or a pattern is a topic. It is stored once however many subscribe to it, so
 * a pattern is matched once an event. Without subscribers an event costs one branch
 * (events_wanted()). During an apply an event is only put into a queue. All sending has a share of
 * each turn of the loop (base/turn.h), which may end behind any single message. When too much
 * waits, subscribers get `resync` as well, those with costly patterns first.
 *
 * The sink must disconnect a subscriber that does not read its messages; here it is dropped. */
#ifndef SERVER_EVENTS_H
#define SERVER_EVENTS_H

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "machine/machine.h"
#include "wire/commands.h"

#define EVENTS_LOCK_PREFIX "lock:"
/* The prefix of the channels that Redisson's waiting threads listen to. The name of a lock stands
 * in braces, unless it has one itself. */
#define EVENTS_WAKE_PREFIX "redisson_lock__channel:"
#define EVENTS_MIN_LIVE_CHANNEL "fencelock:min_live_token"
#define EVENTS_RESYNC_CHANNEL "fencelock:resync"

#define EVENTS_TOPIC_MAX (FL_NAME_MAX + sizeof EVENTS_WAKE_PREFIX - 1u + 2u) /* bytes of a topic */
#define EVENTS_GLOB_MAX (FL_NAME_MAX + sizeof EVENTS_LOCK_PREFIX - 1u)       /* of a pattern */
#define EVENTS_CHANNELS_MAX 256u /* channels of one subscriber */
#define EVENTS_PATTERNS_MAX 16u  /* patterns of one subscriber */
#define EVENTS_SUBS_MAX 32768u   /* channels and patterns of all subscribers */
#define EVENTS_GLOBS_MAX 128u    /* different patterns: each is matched at each event */
/* Of these, the clients of one address. What is in use cannot be taken back, so it is a fixed part.
 * An address is one of EVENTS_ADDRESSES, by a random number of its. */
#define EVENTS_ADDRESS_MAX(max) ((max) / 4 * 3)
#define EVENTS_ADDRESSES 256u
#define EVENTS_CHEAP_PIECE_MAX 15u         /* bytes behind a star; with more it is costly */
#define EVENTS_QUEUE_MAX ((size_t)4 << 20) /* bytes of events not sent yet; beyond: resync */
#define EVENTS_QUEUE_KEEP ((size_t)64 << 10)

struct events_subscriber;

struct events_sink {
    void *ctx;
    int (*proto)(void *ctx, void *to); /* of the answers to this subscriber: 2 or 3 */
    /* Takes one whole frame. False: it takes no more, now or ever, and is dropped. Must not call
     * back. */
    bool (*push)(void *ctx, void *to, const void *frame, size_t len);
    /* Whether the subscriber may hear of this lock, at the time of sending; adds what that took.
     * NULL: each may. Subscribers of one `user` may hear of the same locks. */
    bool (*may_see)(void *ctx, void *to, struct fli_slice lock, uint64_t *steps);
    uint64_t (*user)(void *ctx, void *to);    /* with may_see */
    uint64_t (*address)(void *ctx, void *to); /* a number; NULL: then addresses have no share */
    /* The subscriber was dropped because push() returned false: its events_subscriber is gone. */
    void (*dropped)(void *ctx, void *to);
};

/* Two lanes go through the queue of events; the second is for subscribers with a costly pattern. */
enum events_lane_id { EVENTS_CHEAP, EVENTS_COSTLY, EVENTS_LANES };

struct events_sending;

/* A value of min_live_token, and the cluster clock when it was so. */
struct events_mark {
    bool known;
    uint64_t token, clock_ms;
};

struct events_lane {
    uint64_t at;                    /* the current event, as a place in the queue */
    struct events_sending *sending; /* that event, and how far it was sent */
    struct fli_list missed;  /* subscriptions that are still to be told `resync`, before all else */
    uint64_t missed_ms;      /* the cluster clock when they missed something */
    struct events_mark mark; /* what subscriptions are told now: as it was at `at` or before */
    struct events_mark next; /* follows it when `at` has come to next_at */
    uint64_t next_at;        /* a place in the queue */
    struct fli_list untold, told; /* subscriptions that receive min_live_token */
};

struct events_counts {
    uint64_t subscribers, channels, patterns; /* now; they count subscriptions, not topics */
    uint64_t messages;                        /* sent, since start */
    uint64_t dropped;                         /* subscribers that did not read, since start */
    uint64_t resyncs;                         /* since start */
    uint64_t steps;                           /* of matching and sending, since start */
};

struct events {
    struct events_sink sink;
    struct fli_map channels; /* topics that are channels, by name */
    struct fli_map subs;     /* by subscriber and topic */
    struct fli_list globs;   /* topics that are patterns, oldest first */
    struct fli_list doomed;  /* subscribers to drop when no list is being walked */
    unsigned globs_n;
    unsigned subs_n;
    struct {
        unsigned subs, globs; /* of patterns those whose oldest subscription is its own */
    } of_address[EVENTS_ADDRESSES];
    unsigned wake_subs; /* subscriptions to Redisson's channels */
    unsigned costly_subscribers;
    struct events_mark newest; /* not known while nobody subscribes */
    uint64_t rights;           /* another number when users may see other locks than before */
    struct fli_buf queue;
    uint64_t begin, end; /* places of its first byte, and of the next event */
    struct events_lane lanes[EVENTS_LANES];
    struct events_counts counts;
};

void events_init(struct events *e, const struct events_sink *sink, const uint64_t seed[2]);
void events_fini(struct events *e); /* no subscriber may be left */

enum events_outcome {
    EVENTS_REFUSED = 1, /* `out` holds an error: the answer; nothing was changed */
    EVENTS_CONFIRMED,   /* `out` holds one confirmation for each channel or pattern (push frames in
                         RESP3) */
    EVENTS_FAILED,      /* `out` was too small for the answer; close the connection */
};

/* SUBSCRIBE, PSUBSCRIBE, UNSUBSCRIBE, PUNSUBSCRIBE of connection `to`. `*at` is the connection's
 * subscriber, NULL while it has no subscription; this call makes and frees it. All or nothing. */
enum events_outcome events_command(struct events *e, struct events_subscriber **at, void *to,
                                   enum fli_command_id id, int proto, const struct fli_slice *args,
                                   unsigned n, struct fli_buf *out) FLI_MUST_USE;

/* Removes all subscriptions (after RESET, or when the connection is gone). NULL is fine. */
void events_drop(struct events *e, struct events_subscriber *s);

/* Whether a subscriber in RESP2 may send this: other answers could be taken for messages. */
bool events_may_send(enum fli_command_id id);

static inline bool events_wanted(const struct events *e)
{
    return e->subs_n > 0;
}

/* Copies one event of the local log, which is sent later. */
void events_feed(struct events *e, const struct machine_event *event);
/* Each turn of the loop, before events_publish(): min_live_token is to be sent when it has moved,
 * behind the events that wait now, and to those that have just subscribed to it. */
void events_min_live(struct events *e, uint64_t min_live_token, uint64_t clock_ms);
/* The same, with may_see: another number when its answers may be others. */
void events_rights(struct events *e, uint64_t rights);
/* Sends what waits, with this many steps, and at most what the last message took in each lane
 * above that. True: some is left, call again. Each turn. */
bool events_publish(struct events *e, uint64_t steps_max);
size_t events_memory_of(const struct events_subscriber *s); /* NULL: 0. A topic counts fully for
                                                               each subscriber */
size_t events_queued_bytes(const struct events *e);         /* memory */
/* Called when a snapshot replaced the state. */
void events_resync(struct events *e, uint64_t clock_ms);

void events_get_counts(const struct events *e, struct events_counts *ret);

#endif
