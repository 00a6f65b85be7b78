/* ticket.h: a ticket, by which a caller waits for the outcome of a command. */
#ifndef COMMANDS_TICKET_H
#define COMMANDS_TICKET_H

#include "machine/machine.h"

struct node_ticket;

/* The source of all that a node cleans up after clients that are gone. Others go before it. */
#define NODE_SOURCE_CLEANUP UINT64_MAX
/* The source of the commands that a leader makes for the cluster itself. */
#define NODE_SOURCE_CLUSTER (UINT64_MAX - 1)

typedef void (*node_ticket_cb)(struct node_ticket *t, int status,
                               const struct machine_result *result, struct fli_slice payload);

/* Embedded in the caller's record of the command. The memory must stay until the callback. */
struct node_ticket {
    node_ticket_cb cb;
    /* The sender, set by the caller: commands of one source keep their order, and sources take
     * turns (commands.h). */
    uint64_t source;
};

#endif
