/* ticket.h: a ticket, by which a caller waits for the outcome of a command. */
#ifndef CONSENSUS_TICKET_H
#define CONSENSUS_TICKET_H

#include "base/list.h"
#include "machine/machine.h"

struct node_ticket;

/* The source of all that a node cleans up after clients that are gone. Others go before it. */
#define NODE_SOURCE_CLEANUP UINT64_MAX

typedef void (*node_ticket_cb)(struct node_ticket *t, int status,
                               const struct machine_result *result, struct fli_slice payload);

/* Embedded in the caller's record of the command. The memory must stay until the callback. All
 * fields but the source belong to src/consensus. */
struct node_ticket {
    struct fli_list link;
    node_ticket_cb cb;
    /* The sender, set by the caller: commands of one source keep their order, and sources take
     * turns (backlog.h). `via` is the node that relayed the command, 0 for this one. */
    uint64_t via, source;
    uint64_t number; /* that the node gave it when it came; later ones are higher */
    uint64_t sequence;
    uint64_t deadline_ms; /* until when the command may wait for a leader */
    bool needs_entry;     /* of a renewal */
    uint32_t position;
    uint32_t size;
};

#endif
