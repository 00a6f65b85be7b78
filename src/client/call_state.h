/* call_state.h: what a call does next: which node to ask, when to ask again, when to give up, and
 * what the outcome means. Pure: no sockets, no clock, no randomness of its own; time and what
 * happened come in, the next order comes out. The blocking shell obeys it with poll(); a shell on
 * an event loop obeys the same orders with callbacks.
 *
 *             +------------------- sleep <----------------------+
 *             v                                                 | a round of failures, or BUSY
 *          connect ---unreachable---> (next node) --------------+
 *             | connected                  ^                    |
 *             v                            | unsent             |
 *           send --------------------------+                    |
 *             | sent                       | no leader; or unknown and may be repeated
 *             v                            |
 *          answer -------------------------+
 *             |  ^ silent, queued    | yes, but the grant is old: confirm it by a renewal
 *             |  +---- probe         +--> send (second request) --> answer
 *             |  ^ silent, due       |
 *             |  +---- ask ----------+ another node serves: connect to that one
 *             v
 *           done: yes, no, refused; or time is over; or unknown and must not be repeated
 *
 * A connect may be refused as well, by a wrong password, which no other node will take either.
 *
 * The shell does as `order` says and reports by fli_call_state_feed() exactly one event for each
 * order. Time over (order.until_ms) is an event too: UNREACHABLE, UNSENT, SILENT, DEAD, WOKE. A
 * shell that has a connection to order.node already reports CONNECTED at once. Whenever it orders a
 * connect, any connection to another node that was used before is of no more use to this call.
 *
 * Asking. A node that was stopped, or whose host is gone, closes nothing: all there is to notice is
 * that its answer is late. A late answer alone is no reason to send the request again, or a busy
 * cluster would get more to do for being busy. So when it is a little late another node is asked a
 * question that only a leader with a majority can answer, and that follows what it is asked behind;
 * a node without a leader keeps it until there is one. When that is answered first, the way through
 * the other node is known to work, and this one not: the request is repeated there at once. */
#ifndef FLI_CLIENT_CALL_STATE_H
#define FLI_CLIENT_CALL_STATE_H

#include <stdbool.h>

#include "base/base.h"

#define FLI_CALL_NOBODY UINT32_MAX

enum fli_call_repeat {
    FLI_REPEAT_READ,  /* changes nothing: repeat; never uncertain */
    FLI_REPEAT_WRITE, /* doing it twice is the same as once: repeat */
    FLI_REPEAT_NEVER, /* after an unknown outcome, stop */
};

enum fli_call_want {
    FLI_WANT_CONNECT, /* to order.node */
    FLI_WANT_SEND,    /* order.request */
    FLI_WANT_ANSWER,  /* to what was sent last */
    FLI_WANT_PROBE,   /* does order.node say, on a connection of its own, who leads? The one that
                         awaits its answer stays open. */
    FLI_WANT_ASK,     /* the answer to what was sent last; meanwhile order.other is asked, on a
                         connection of its own, whether it serves. The same order with the same
                         `other` again: the probe goes on. */
    FLI_WANT_SLEEP,   /* until order.until_ms */
    FLI_WANT_NOTHING, /* finished: `status` */
};

enum fli_call_request { FLI_REQUEST_MAIN, FLI_REQUEST_CONFIRM };

struct fli_call_order {
    enum fli_call_want want;
    enum fli_call_request request;
    uint32_t node;
    uint32_t other; /* ASK; never `node` */
    uint64_t until_ms;
};

enum fli_call_event {
    FLI_EVENT_CONNECTED,
    FLI_EVENT_UNREACHABLE,
    FLI_EVENT_SENT,
    FLI_EVENT_UNSENT, /* lost before the last byte had left: surely not done */
    FLI_EVENT_YES,
    FLI_EVENT_NO,
    FLI_EVENT_REFUSED, /* a final refusal; code */
    FLI_EVENT_NOLEADER,
    FLI_EVENT_BUSY,
    FLI_EVENT_UNCERTAIN,
    FLI_EVENT_LOST,       /* the connection, before the whole answer had come */
    FLI_EVENT_SILENT,     /* no answer by until_ms */
    FLI_EVENT_BROKEN,     /* what came is no answer to this */
    FLI_EVENT_ALIVE,      /* to an ask: order.other is there, and has the question */
    FLI_EVENT_SERVES,     /* order.other has answered it, and order.node has still not answered */
    FLI_EVENT_SERVES_NOT, /* order.other cannot be reached, or refuses */
    FLI_EVENT_LEADERLESS, /* alive, and knows nobody who leads */
    FLI_EVENT_DEAD,
    FLI_EVENT_WOKE,
};

struct fli_call_config {
    enum fli_call_repeat repeat;
    bool no_is_doubtful; /* RELEASE: a "no" after an unknown try may be that try's own doing */
    uint32_t nodes;      /* 1..; node numbers below this are walked in a circle */
    uint32_t start;      /* asked first; may be `nodes` itself: the learned leader that is not in
                            the list */
    uint64_t now_ms;
    uint64_t deadline_ms; /* of the whole call */
    uint64_t attempt_ms;  /* for connecting, and for an answer, in the first round */
    uint64_t ask_ms;      /* an answer that is so late makes another node be asked; 0: never */
    uint64_t wait_ms;     /* 0: an answer is due at once; else the server may hold it so long */
    uint64_t ttl_ms;      /* of the lease that a yes begins; 0: none */
    bool confirm;         /* a yes that came late may be renewed (ACQUIRE) */
    uint64_t seed;        /* of the jitter */
};

struct fli_call_state {
    struct fli_call_order order;
    int status;              /* when finished: 0, FL_ENOTHELD for no, or a code */
    uint64_t lease_until_ms; /* status 0 and ttl_ms != 0: when to stop believing */
    bool unknown;            /* some try may have been done without our knowing */
    bool answered;           /* the last try was, at once and not after a wait, in took_ms */
    uint64_t took_ms;
    /* private */
    struct fli_call_config config;
    uint64_t wait_end_ms;
    uint64_t sent_ms;   /* before the request that was sent last */
    uint64_t answer_ms; /* when the answer is overdue and no probe helps */
    uint64_t attempt_ms;
    uint64_t ask_ms;
    uint64_t ask_at_ms;
    uint64_t rng;
    uint32_t hint;
    uint32_t silent;   /* said nothing when it should have; in this round */
    bool stayed;       /* with a node that had said UNCERTAIN; in this round */
    uint32_t failures; /* in this round */
    uint32_t rounds;
    uint32_t asked;      /* others, since the last time all of them were */
    uint32_t leaderless; /* probes in a row that found no leader */
    unsigned troubles;   /* set of kinds, for the final code */
};

void fli_call_state_init(struct fli_call_state *f, const struct fli_call_config *config);

/* Reports the outcome of the order. code: with REFUSED only. */
void fli_call_state_feed(struct fli_call_state *f, uint64_t now_ms, enum fli_call_event event,
                         int code);

/* The leader became known meanwhile: if another try is needed, it goes there. */
void fli_call_state_hint(struct fli_call_state *f, uint32_t node);

/* What is left of the wait, for encoding a request at this moment. */
uint64_t fli_call_state_wait_left(const struct fli_call_state *f, uint64_t now_ms);

/* How long answers usually take: moves an eighth of the way to each new one. Zero to begin with. */
struct fli_pace {
    uint64_t eighths_ms;
};

/* Takes in how long the answer of an ended call took. */
void fli_pace_learn(struct fli_pace *p, const struct fli_call_state *f);

/* For fli_call_config.ask_ms. */
uint64_t fli_pace_ask_ms(const struct fli_pace *p);

/* When a lease that was asked for at sent_ms must no longer be believed; the one place that knows
 * the margin. */
uint64_t fli_lease_until(uint64_t sent_ms, uint64_t ttl_ms);

#endif
