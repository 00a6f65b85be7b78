/* call_state.h: what a call does next: which node to ask, when to ask again, when to give up, and
 * what the outcome means. Pure: no sockets, no clock, no randomness of its own; time and events
 * come in, the next order comes out. engine.h carries the orders out.
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
 * A connect may be refused as well: no other node will take a wrong password either.
 *
 * The engine carries out `order` and reports exactly one event for it with fli_call_state_feed().
 * The end of order.until_ms is an event too: UNREACHABLE, UNSENT, SILENT, DEAD, WOKE. An engine
 * that is already connected to order.node reports CONNECTED at once. After an order to connect, the
 * call has no more use for its connection to another node.
 *
 * Health probes. A node that was stopped, or whose host is gone, closes no connection: its
 * answer is late, and that is all. A late answer alone is no reason to send the request again: a
 * busy cluster would get more to do because it is busy. So a health probe goes to another node:
 * a query that only a leader with a majority can answer, and that a node without a leader holds
 * until there is one. If the probe is answered first, the way through the other node works and
 * the way through this one does not: the request is sent there at once. */
#ifndef FLI_CLIENT_CALL_STATE_H
#define FLI_CLIENT_CALL_STATE_H

#include <stdbool.h>

#include "base/base.h"

#define FLI_CALL_NOBODY UINT32_MAX

enum fli_call_repeat {
    FLI_REPEAT_READ,  /* changes nothing: repeat; never uncertain */
    FLI_REPEAT_WRITE, /* doing it twice has the effect of once: repeat */
    FLI_REPEAT_NEVER, /* after an unknown outcome, stop */
};

enum fli_call_want {
    FLI_WANT_CONNECT, /* to order.node */
    FLI_WANT_SEND,    /* order.request */
    FLI_WANT_ANSWER,  /* to what was sent last */
    /* goes on waiting for the answer; meanwhile asks order.node on a second connection who leads */
    FLI_WANT_PROBE,
    /* goes on waiting for the answer; meanwhile a health probe asks order.other on a connection of
     * its own. The same order with the same `other` again: the probe goes on. */
    FLI_WANT_ASK_OTHER,
    FLI_WANT_SLEEP,   /* until order.until_ms */
    FLI_WANT_NOTHING, /* finished: `status` */
};

enum fli_call_which { FLI_REQUEST_MAIN, FLI_REQUEST_CONFIRM };

struct fli_call_order {
    enum fli_call_want want;
    enum fli_call_which request;
    uint32_t node;
    uint32_t other; /* of ASK_OTHER; never `node` */
    uint64_t until_ms;
};

enum fli_call_event {
    FLI_EVENT_NONE, /* is never reported */
    FLI_EVENT_CONNECTED,
    FLI_EVENT_UNREACHABLE,
    FLI_EVENT_SENT,
    FLI_EVENT_UNSENT, /* the connection broke before the last byte had left: surely not done */
    FLI_EVENT_YES,
    FLI_EVENT_NO,
    FLI_EVENT_REFUSED, /* refused for good, with a code */
    FLI_EVENT_NOLEADER,
    FLI_EVENT_BUSY,
    FLI_EVENT_UNCERTAIN,
    FLI_EVENT_LOST,   /* the connection broke before the whole answer had come */
    FLI_EVENT_SILENT, /* no answer by until_ms */
    FLI_EVENT_BROKEN, /* the bytes that came are no answer to this request */
    /* health probe: order.other is there, and has not answered the query yet */
    FLI_EVENT_ALIVE,
    /* health probe: order.other has answered it, and order.node still has not */
    FLI_EVENT_SERVES,
    FLI_EVENT_SERVES_NOT, /* health probe: order.other cannot be reached, or refuses */
    FLI_EVENT_LEADERLESS, /* the node is there, and knows no leader */
    FLI_EVENT_DEAD,
    FLI_EVENT_WOKE,
};

struct fli_call_config {
    enum fli_call_repeat repeat;
    /* RELEASE: a "no" after an attempt of unknown outcome may be the effect of that attempt */
    bool no_is_uncertain;
    uint32_t nodes; /* at least 1; the call goes through these nodes in a circle */
    /* the first node to ask; `nodes` itself stands for a leader that is not in the list */
    uint32_t start;
    uint64_t now_ms;
    uint64_t deadline_ms; /* of the whole call */
    uint64_t attempt_ms;  /* for connecting, and for an answer, in the first round */
    uint64_t ask_ms;      /* an answer that is late by so much starts a health probe; 0: never */
    uint64_t wait_ms;     /* how long the server may hold the answer back; 0: it answers at once */
    uint64_t ttl_ms;      /* of the lease that begins with a yes; 0: none does */
    bool confirm;         /* a yes that came late is renewed at once (ACQUIRE) */
    bool once;            /* one attempt, at `start` and no other node */
    bool insists;         /* a refusal that may be of the node alone ends nothing: asked again */
    uint64_t seed;        /* of the jitter */
};

struct fli_call_state {
    struct fli_call_order order;
    int status; /* when finished: 0, FL_ENOTHELD for no, or a code */
    /* status 0 and ttl_ms != 0: from then on the lease must not be believed in */
    uint64_t lease_until_ms;
    bool unknown;  /* some attempt may have been done without an answer */
    bool answered; /* the last attempt was answered, not after a wait, in took_ms */
    uint64_t took_ms;
    /* private */
    struct fli_call_config config;
    uint64_t wait_end_ms;
    uint64_t sent_ms;   /* before the request that was sent last */
    uint64_t answer_ms; /* the answer is overdue then, whatever probes say */
    uint64_t attempt_ms;
    uint64_t ask_ms;
    uint64_t ask_at_ms;
    uint64_t rng;
    uint32_t hint;
    uint32_t silent;   /* the node that gave no answer, in this round */
    bool stayed;       /* asked a node again after its UNCERTAIN, in this round */
    uint32_t failures; /* in this round */
    uint32_t rounds;
    uint32_t asked;      /* other nodes, since the last time that all of them were asked */
    uint32_t leaderless; /* probes in a row that found no leader */
    unsigned troubles;   /* set of kinds, for the final code */
};

void fli_call_state_init(struct fli_call_state *f, const struct fli_call_config *config);

/* Reports the outcome of the order. code: only with REFUSED. */
void fli_call_state_feed(struct fli_call_state *f, uint64_t now_ms, enum fli_call_event event,
                         int code);

/* The leader has become known: if another attempt is needed, it goes there. */
void fli_call_state_hint(struct fli_call_state *f, uint32_t node);

/* Whether its request may have been done, or may still be on its way. */
bool fli_call_state_is_out(const struct fli_call_state *f);

/* How much of the wait is left, for a request that is encoded now. */
uint64_t fli_call_state_wait_left(const struct fli_call_state *f, uint64_t now_ms);

/* How long answers usually take: each new one moves it an eighth of the way. Begins as zero. */
struct fli_pace {
    uint64_t eighths_ms;
};

/* Learns from the time that the answer of a finished call took. */
void fli_pace_learn(struct fli_pace *p, const struct fli_call_state *f);

/* The value for fli_call_config.ask_ms. */
uint64_t fli_pace_ask_ms(const struct fli_pace *p);

/* From when on a lease must not be believed in that was asked for at sent_ms. The margin is known
 * here alone. */
uint64_t fli_lease_until(uint64_t sent_ms, uint64_t ttl_ms);

#endif
