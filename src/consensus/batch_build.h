/* batch_build.h: a batch under construction: bytes that become a log entry, and the tickets that
 * wait for its answers.
 *
 * The bytes are one block with room for the header in front. Tickets of commands and of queries are
 * kept in the order of their positions. The position of a query is the number of commands in front
 * of it. The bytes of queries are kept apart, since they are never written to the log. Private to
 * the proposer. */
#ifndef CONSENSUS_BATCH_BUILD_H
#define CONSENSUS_BATCH_BUILD_H

#include "base/buf.h"
#include "consensus/ticket.h"

struct batch {
    struct fli_list link;
    uint8_t *data; /* NULL before the first byte, and once the log owns it */
    size_t len;    /* header space and commands */
    size_t cap;
    size_t max; /* a multiple of 8 */
    uint32_t count;
    uint32_t queries_count;
    uint32_t expiries;       /* of the commands, the leader's own EXPIRE */
    uint32_t cost;           /* of commands and queries, machine_command_cost_now() */
    uint32_t passed_cost;    /* of those that did not stand in line while others did */
    struct fli_list tickets; /* of commands */
    struct fli_list queries;
    struct fli_buf query_bytes; /* one behind the other; the first query_done were answered */
    size_t query_done;
    uint64_t term, sequence, timestamp_ms; /* set when it is sealed */
    uint16_t format;                       /* set when it is sealed */
    uint64_t round;                        /* that confirms it, if it is no entry */
    uint64_t began_ns, proposed_ns;        /* for metrics only; the proposer sets them */
};

void batch_init(struct batch *b, size_t max);
void batch_fini(struct batch *b); /* no ticket may be waiting */

/* Whether a command or query of len bytes still fits. */
bool batch_has_room(const struct batch *b, size_t len, bool query);

/* Appends a command or query and takes over t (NULL: no ticket). 0 or FL_ENOMEM, then nothing has
 * changed. */
int batch_add(struct batch *b, struct node_ticket *t, const void *command, size_t len,
              bool query) FLI_MUST_USE;

/* Gives up the bytes, because the log owns them now. */
void batch_drop_bytes(struct batch *b);

/* Writes the header. Even an empty batch needs memory for it: 0 or FL_ENOMEM. *ret_size is the
 * padded size. May be repeated. */
int batch_seal(struct batch *b, uint16_t flags, size_t *ret_size) FLI_MUST_USE;

/* Takes off the ticket of command `position`; NULL when it has none. */
struct node_ticket *batch_take_ticket(struct batch *b, uint32_t position);

/* Takes off the next query at or before `position`, and its bytes, which are valid until the batch
 * changes; NULL when there is none. */
struct node_ticket *batch_take_query(struct batch *b, uint32_t position, struct fli_slice *ret);

#endif
