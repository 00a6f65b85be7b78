/* signals.h: BLPOP as python-redis-lock uses it, to wait on the key lock-signal:X until the lock
 * lock:X may be free. There is no list: the wait ends when the lock is not held, when the end of
 * its hold is seen in the local log, or at its timeout. Pure.
 *
 *   asked --(the lock is free, or its hold ends meanwhile)--------------------> answered
 *     `------(it is held)--> parked --(its end, the timeout)--> woken, over --> answered
 *
 * An event comes from inside apply and only moves waits on. Those that are woken, or whose time is
 * over, are taken with frontdoor_signals_due(). All waiters of one lock are woken, since this node
 * does not know which of them are still there. Each then requests the lock as usual. Only this node
 * knows of such a wait: it has no place in the lock's queue. */
#ifndef FRONTDOOR_SIGNALS_H
#define FRONTDOOR_SIGNALS_H

#include "base/list.h"
#include "base/map.h"
#include "machine/machine.h"

/* ASKED and PARKED are found by the name of their lock; FIRED are in `fired`, so that no event
 * passes them again; WOKEN and OVER are in `ended`. */
enum frontdoor_signal {
    SIGNAL_NONE,
    SIGNAL_ASKED,
    SIGNAL_FIRED,
    SIGNAL_PARKED,
    SIGNAL_WOKEN,
    SIGNAL_OVER
};
/* One client may not have all places, which others need as well, for as long as a day. */
#define SIGNALS_MAX 4096u
#define SIGNALS_ADDRESS_MAX (SIGNALS_MAX / 4 * 3)
#define SIGNALS_CONNECTION_MAX 64u /* requests of its connection, of whatever kind */
#define SIGNALS_ADDRESSES 1024u    /* addresses are counted by their numbers */

/* A lock that BLPOPs wait for. Its name is that of its first waiter; there is always one. */
struct signal_name {
    struct fli_map_node node;
    struct fli_list waiters; /* frontdoor_waiter.link */
    struct fli_list spare;
};

struct frontdoor_signals {
    struct fli_map names;    /* struct signal_name */
    struct fli_list waiting; /* those that are ASKED or PARKED */
    struct fli_list fired;
    struct fli_list ended; /* those that are to be answered */
    struct fli_list spare; /* names for reuse */
    size_t n;
    unsigned of_address[SIGNALS_ADDRESSES];
    uint64_t seed[2];
    uint64_t next_ms; /* no wait times out before */
};

/* One BLPOP. The caller sets the first three, and keeps the name. */
struct frontdoor_waiter {
    struct fli_slice name; /* of the signal and of the lock, without what they begin with */
    uint64_t address;      /* of the client, as a number */
    uint64_t until_ms;
    uint8_t signal; /* enum frontdoor_signal */
    struct fli_list link, waiting;
    struct signal_name *awaited; /* NULL unless it is ASKED or PARKED */
};

void frontdoor_signals_init(struct frontdoor_signals *s, const uint64_t seed[2]);
void frontdoor_signals_fini(struct frontdoor_signals *s); /* nothing may wait */
/* `in_flight`: the requests of the client's connection that have no answer, with this one. */
bool frontdoor_signals_full(const struct frontdoor_signals *s, uint64_t address,
                            unsigned in_flight);

/* Begins a wait, before its query is sent, so that no end of a hold is missed from here on. */
void frontdoor_signal_enter(struct frontdoor_signals *s, struct frontdoor_waiter *w);
/* Its query is answered, or fails: NULL. `stays`: whether it may wait. PARKED: it waits; WOKEN,
 * OVER: this is the end of the wait; NONE: the result says nothing about the lock. */
enum frontdoor_signal frontdoor_signal_asked(struct frontdoor_signals *s,
                                             struct frontdoor_waiter *w,
                                             const struct machine_result *result, bool stays);
/* Whether no query is under way. */
bool frontdoor_signal_ends(const struct frontdoor_waiter *w);
void frontdoor_signal_leave(struct frontdoor_signals *s, struct frontdoor_waiter *w);

void frontdoor_signals_event(struct frontdoor_signals *s, const struct machine_event *event);
void frontdoor_signals_wake_all(struct frontdoor_signals *s);
/* The next one that is woken, or whose time is over; NULL: none. It has not left. */
struct frontdoor_waiter *frontdoor_signals_due(struct frontdoor_signals *s, uint64_t now_ms);
uint64_t frontdoor_signals_next_ms(const struct frontdoor_signals *s); /* UINT64_MAX: never */

/* Reads the arguments of a BLPOP. *ret: the name of its waiter, and for how long to wait. Returns
 * NULL, or the text of the error. */
const char *frontdoor_signal_parse(const struct fli_slice *args, unsigned n,
                                   struct fli_slice *ret_name, uint64_t *ret_wait_ms);
struct machine_command frontdoor_signal_query(struct fli_slice name, uint8_t room[FL_NAME_MAX]);
/* Appends the answer: the key and 1, or nil when the time is over. */
int frontdoor_signal_reply(struct fli_buf *out, int proto, struct fli_slice name,
                           bool woken) FLI_MUST_USE;

#endif
