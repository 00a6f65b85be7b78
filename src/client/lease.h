/* lease.h: what the holder of a lease may believe, and when to renew it. Pure: time and results of
 * renewals come in; the state, and what is due when, come out. Locks and sessions are held the same
 * way.
 *
 *      sent      ttl/6 to ttl/3       ttl/2                 deadline        the server's expiry
 *       |----- safe ----|---- safe ----|----- jeopardy -------|  lost  . . . . . .|
 *                       renewal due    none has come through   reserve + margin
 *
 * Times count from before the request was sent, on a clock that runs during suspension. So the
 * server's lease ends later than the client's, whatever the network did with request and answer.
 * Only an operator's BREAK can take the lock sooner without the client's knowing; its token fences
 * the client.
 *
 * A lost lease stays lost: no later answer brings the lock back. */
#ifndef FLI_CLIENT_LEASE_H
#define FLI_CLIENT_LEASE_H

#include <stdbool.h>

#include "base/base.h"
#include "fencelock/client.h"

#define FLI_LEASE_NEVER UINT64_MAX

struct fli_lease_config {
    uint64_t ttl_ms;
    uint64_t lease_until_ms; /* of the grant, by fli_lease_until() */
    uint64_t reserve_ms;     /* the lease counts as lost so long before lease_until_ms */
    /* the lease counts as lost so long after the grant was asked for; 0: no such limit */
    uint64_t max_hold_ms;
    /* Renewals are due at random moments of the second sixth of the TTL, so that those of thousands
     * of leases that began together do not go all together; 0: after a third of it. */
    uint64_t seed;
};

struct fli_lease {
    enum fl_hold_state state; /* as of the last call with a time */
    enum fl_lost_reason reason;
    bool renewing;        /* a renewal is on its way */
    uint64_t deadline_ms; /* the lease is lost then, unless a renewal succeeds before */
    /* private */
    struct fli_lease_config config;
    uint64_t end_ms; /* of max_hold, or NEVER */
    uint64_t jeopardy_ms;
    uint64_t renew_ms;
};

void fli_lease_init(struct fli_lease *h, const struct fli_lease_config *config);

/* Moves on to this time and returns the state. A time before an earlier one changes nothing. */
enum fl_hold_state fli_lease_state(struct fli_lease *h, uint64_t now_ms);

/* The time of the next change of state or renewal, if nothing else happens before. NEVER: the lease
 * is lost. */
uint64_t fli_lease_next_ms(const struct fli_lease *h);

/* Whether to send a renewal now. The caller reports when it has sent one, and how that ended: 0 and
 * the end of the new lease, or a code. FL_ENOTHELD and FL_ENOSESSION mean that the lock is lost;
 * after any other code the renewal is tried again soon. */
bool fli_lease_wants_renewal(const struct fli_lease *h, uint64_t now_ms);
void fli_lease_renewal_began(struct fli_lease *h);
void fli_lease_renewal_ended(struct fli_lease *h, uint64_t now_ms, int status,
                             uint64_t lease_until_ms);

/* The holder gives the lease up: released, closed. */
void fli_lease_end(struct fli_lease *h, enum fl_lost_reason reason);

/* How much longer the holder may believe in the lease; 0 when it is lost. */
uint64_t fli_lease_remaining_ms(const struct fli_lease *h, uint64_t now_ms);

#endif
