/* health_probe.h: finds out whether one node serves, on a connection of its own and without ever
 * waiting. It sends LEADER, which the node answers by itself, so that it is known to be there. And
 * it sends CHECK, which needs a leader and a majority and changes nothing; a node that has no
 * leader yet holds it. */
#ifndef FLI_CLIENT_HEALTH_PROBE_H
#define FLI_CLIENT_HEALTH_PROBE_H

#include "base/buf.h"
#include "client/call_state.h"
#include "client/place.h"

struct fli_health_probe {
    struct fli_link *link; /* the caller's; closed while no probe is under way */
    uint32_t node;         /* the node that is asked; means nothing when the link is closed */
    struct fli_buf out;
    size_t sent;
    unsigned answers;
};

void fli_health_probe_init(struct fli_health_probe *q, struct fli_link *link);
void fli_health_probe_fini(struct fli_health_probe *q);

/* Closes the link if it is open, and begins a new probe. False: SERVES_NOT, with the reason in
 * link->error. */
bool fli_health_probe_begin(struct fli_health_probe *q, uint32_t node,
                            const struct fli_place *place, struct fli_link_security *security);

/* Goes on without waiting. True: *ret is ALIVE, SERVES or SERVES_NOT. False: call again when the
 * descriptor is readable, or, with *ret_writable, writable. */
bool fli_health_probe_step(struct fli_health_probe *q, enum fli_call_event *ret,
                           bool *ret_writable);

/* Whether the link is connected to that node, with no answer outstanding. */
bool fli_health_probe_is_done(const struct fli_health_probe *q, uint32_t node);

#endif
