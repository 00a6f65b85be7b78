/* lease.c: see lease.h. */
#include "client/lease.h"

#include "base/splitmix.h"
#include "client/call_state.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* When the request was sent whose lease ends at lease_until_ms. */
static uint64_t sent_of(const struct fli_lease *h, uint64_t lease_until_ms)
{
    uint64_t believed_ms = fli_lease_until(0, h->config.ttl_ms);
    FLI_ASSERT(lease_until_ms >= believed_ms);
    return lease_until_ms - believed_ms;
}

/* When the renewal of a lease is due that was asked for at sent_ms. The moments are multiples of a
 * step, so that one packet carries the renewals of many leases, and one timer wakes for them. */
static uint64_t renewal_ms(struct fli_lease *h, uint64_t sent_ms)
{
    uint64_t latest_ms = sent_ms + h->config.ttl_ms / 3;
    if (h->config.seed == 0) {
        return latest_ms;
    }
    uint64_t step_ms = h->config.ttl_ms / 128 + 1;
    uint64_t sooner_ms = fli_splitmix(&h->config.seed) % (h->config.ttl_ms / 6 + 2 - step_ms);
    return latest_ms - sooner_ms - (latest_ms - sooner_ms) % step_ms;
}

static void begin_lease(struct fli_lease *h, uint64_t lease_until_ms)
{
    uint64_t sent_ms = sent_of(h, lease_until_ms);
    h->config.lease_until_ms = lease_until_ms;
    h->deadline_ms = least(less(lease_until_ms, h->config.reserve_ms), h->end_ms);
    h->jeopardy_ms = sent_ms + h->config.ttl_ms / 2;
    h->renew_ms = renewal_ms(h, sent_ms);
}

void fli_lease_init(struct fli_lease *h, const struct fli_lease_config *config)
{
    FLI_ASSERT(config->ttl_ms >= FL_TTL_MIN_MS && config->ttl_ms <= FL_TTL_MAX_MS);
    FLI_ASSERT(config->reserve_ms <= config->ttl_ms / 2);
    *h = (struct fli_lease){.state = FL_HOLD_SAFE, .config = *config, .end_ms = FLI_LEASE_NEVER};
    if (config->max_hold_ms != 0) {
        h->end_ms = sent_of(h, config->lease_until_ms) + config->max_hold_ms;
    }
    begin_lease(h, config->lease_until_ms);
}

void fli_lease_end(struct fli_lease *h, enum fl_lost_reason reason)
{
    FLI_ASSERT(reason != FL_LOST_NOT);
    if (h->state != FL_HOLD_LOST) {
        h->state = FL_HOLD_LOST;
        h->reason = reason;
    }
}

/* The end of max_hold comes before the end of the lease: a renewal would gain nothing, and a failed
 * one is no jeopardy. */
static bool is_last_lease(const struct fli_lease *h)
{
    return h->deadline_ms >= h->end_ms;
}

enum fl_hold_state fli_lease_state(struct fli_lease *h, uint64_t now_ms)
{
    if (h->state == FL_HOLD_LOST) {
        return h->state;
    }
    if (now_ms >= h->deadline_ms) {
        fli_lease_end(h, h->deadline_ms == h->end_ms ? FL_LOST_MAX_HOLD : FL_LOST_DEADLINE);
    } else if (now_ms >= h->jeopardy_ms && !is_last_lease(h)) {
        h->state = FL_HOLD_JEOPARDY;
    }
    return h->state;
}

uint64_t fli_lease_next_ms(const struct fli_lease *h)
{
    if (h->state == FL_HOLD_LOST) {
        return FLI_LEASE_NEVER;
    }
    uint64_t next_ms = h->deadline_ms;
    if (is_last_lease(h)) {
        return next_ms;
    }
    if (h->state == FL_HOLD_SAFE) {
        next_ms = least(next_ms, h->jeopardy_ms);
    }
    return h->renewing ? next_ms : least(next_ms, h->renew_ms);
}

bool fli_lease_wants_renewal(const struct fli_lease *h, uint64_t now_ms)
{
    return h->state != FL_HOLD_LOST && !h->renewing && !is_last_lease(h) && now_ms >= h->renew_ms &&
           now_ms < h->deadline_ms;
}

void fli_lease_renewal_began(struct fli_lease *h)
{
    FLI_ASSERT(h->state != FL_HOLD_LOST && !h->renewing);
    h->renewing = true;
}

void fli_lease_renewal_ended(struct fli_lease *h, uint64_t now_ms, int status,
                             uint64_t lease_until_ms)
{
    FLI_ASSERT(h->renewing);
    h->renewing = false;
    /* A deadline that has passed is final, even if nobody has asked for the state since. */
    if (fli_lease_state(h, now_ms) == FL_HOLD_LOST) {
        return;
    }
    if (status == FL_ENOTHELD || status == FL_ENOSESSION) {
        fli_lease_end(h, FL_LOST_TAKEN);
        return;
    }
    if (status != 0) {
        h->state = FL_HOLD_JEOPARDY;
        h->renew_ms = now_ms + h->config.ttl_ms / 20 + 1;
        return;
    }
    if (lease_until_ms > h->config.lease_until_ms) {
        begin_lease(h, lease_until_ms);
    }
    h->state = FL_HOLD_SAFE;
    (void)fli_lease_state(h, now_ms);
}

uint64_t fli_lease_remaining_ms(const struct fli_lease *h, uint64_t now_ms)
{
    return h->state == FL_HOLD_LOST ? 0 : less(h->deadline_ms, now_ms);
}
