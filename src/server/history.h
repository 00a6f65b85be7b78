/* history.h: the latest events of a lock, for the page: who waited, was granted, lost it, was
 * refused.
 *
 * Not every lock is followed. Following begins when a session queues for the lock, is refused, or
 * loses it by expiry or break, or when a person opens it on the page. The lock that has been quiet
 * for longest makes room. A lock without such trouble costs one lookup in a map. Pure; one
 * thread. */
#ifndef SERVER_HISTORY_H
#define SERVER_HISTORY_H

#include "base/list.h"
#include "base/map.h"
#include "machine/machine.h"

#define HISTORY_LOCKS 64u
#define HISTORY_EVENTS 100u
#define HISTORY_OWNER_MAX 96u /* bytes of an owner that are kept */

enum history_what {
    HISTORY_GRANTED = 1,
    HISTORY_QUEUED,
    HISTORY_RELEASED,
    HISTORY_EXPIRED,
    HISTORY_BROKEN,
    HISTORY_LEFT,          /* left the queue without a grant */
    HISTORY_REFUSED,       /* ACQUIRE of a held lock */
    HISTORY_STALE_RENEW,   /* the token holds nothing */
    HISTORY_STALE_RELEASE, /* likewise */
};

struct history_event {
    uint64_t clock_ms, since_ms, token, wait;
    uint8_t what;   /* enum history_what */
    uint8_t reason; /* enum machine_reason */
    uint8_t owner_len;
    uint8_t owner[HISTORY_OWNER_MAX];
};

struct history_lock;

struct history {
    struct fli_map names;
    struct fli_list recent; /* of history_lock, the one to make room first */
    unsigned n;
    bool on; /* false: nothing is recorded */
};

void history_init(struct history *h, bool on, const uint64_t hash_seed[2]);
void history_fini(struct history *h);
void history_clear(struct history *h); /* a snapshot replaced the state: events are missing */

void history_event(struct history *h, const struct machine_event *e);
void history_refused(struct history *h, const struct machine_command *c,
                     const struct machine_result *r);

/* Follows the lock from now on. */
void history_follow(struct history *h, struct fli_slice name);
/* Copies the events, oldest first; returns their number. 0 also when the lock is not followed. */
unsigned history_get(struct history *h, struct fli_slice name,
                     struct history_event ret[HISTORY_EVENTS]);

const char *history_what_name(uint8_t what);

#endif
