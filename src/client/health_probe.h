/* health_probe.h: asks one node, on a connection of its own and in steps that do not wait, whether
 * it serves: LEADER, which it answers by itself, so that it is known to be there; and CHECK, which
 * needs a leader and a majority, changes nothing, and is kept by a node that has no leader yet. */
#ifndef FLI_CLIENT_HEALTH_PROBE_H
#define FLI_CLIENT_HEALTH_PROBE_H

#include "base/buf.h"
#include "client/call_state.h"
#include "client/place.h"

struct fli_health_probe {
    struct fli_link *link; /* the caller's; closed whenever no probe is under way */
    uint32_t node;         /* who is asked; meaningless when the link is closed */
    struct fli_buf out;
    size_t sent;
    unsigned answers;
};

void fli_health_probe_init(struct fli_health_probe *q, struct fli_link *link);
void fli_health_probe_fini(struct fli_health_probe *q);

/* Closes the link if it is open, and begins anew. False: SERVES_NOT, why is in link->error. */
bool fli_health_probe_begin(struct fli_health_probe *q, uint32_t node,
                            const struct fli_place *place, struct fli_link_tls *with);

/* Goes on as far as it goes. True: *ret is ALIVE, SERVES or SERVES_NOT. False: call again when the
 * descriptor is readable, or with *ret_writable, writable. */
bool fli_health_probe_step(struct fli_health_probe *q, enum fli_call_event *ret,
                           bool *ret_writable);

/* Whether the link is to that node, with nothing outstanding on it. */
bool fli_health_probe_is_done(const struct fli_health_probe *q, uint32_t node);

#endif
