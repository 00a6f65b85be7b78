/* batch_build.h: one batch on its way: bytes growing towards a log entry, and whoever waits for it.
 *
 * The bytes are one block with room for the header in front. Tickets of commands and queries are
 * kept in the order of their
 * positions. A query has the number of commands in front of it as its position; its bytes are kept
 * aside, since it is never written to the log. Private to the proposer. */
#ifndef CONSENSUS_BATCH_BUILD_H
#define CONSENSUS_BATCH_BUILD_H

#include "base/buf.h"
#include "consensus/ticket.h"

struct batch {
    struct fli_list link;
    uint8_t *data; /* NULL before the first byte, and when the log has it */
    size_t len;    /* header space and commands */
    size_t cap;
    size_t max; /* a multiple of 8 */
    uint32_t count;
    uint32_t queries_count;
    uint32_t cost;           /* of commands and queries, see machine_command_cost() */
    uint32_t passed_cost;    /* of those that did not stand in line while others did */
    struct fli_list tickets; /* of commands */
    struct fli_list queries;
    struct fli_buf query_bytes; /* one behind the other; the first query_done are answered */
    size_t query_done;
    uint64_t term, sequence, timestamp_ms; /* set when it is sealed */
    uint16_t format;                       /* likewise */
    uint64_t began_ns, proposed_ns;        /* for what is counted only; the proposer's */
};

void batch_init(struct batch *b, size_t max);
void batch_fini(struct batch *b); /* nobody may wait any more */

/* Whether a command or query of len bytes still fits. */
bool batch_has_room(const struct batch *b, size_t len, bool query);

/* Appends; takes t (NULL: nobody waits). 0 or FL_ENOMEM, then nothing has changed. */
int batch_add(struct batch *b, struct node_ticket *t, const void *command, size_t len,
              bool query) FLI_MUST_USE;

/* Gives up the bytes, when the log has them. */
void batch_drop_bytes(struct batch *b);

/* Writes the header. The batch needs memory for one even if it is empty: 0 or FL_ENOMEM. Returns
 * through ret_size the padded size. May be repeated. */
int batch_seal(struct batch *b, uint16_t flags, size_t *ret_size) FLI_MUST_USE;

/* The ticket of command `position`, taken off the list; NULL when nobody waits for it. */
struct node_ticket *batch_take_ticket(struct batch *b, uint32_t position);

/* The next query at or before `position`, taken off the list, and its bytes, valid until the batch
 * changes; NULL when there is none. */
struct node_ticket *batch_take_query(struct batch *b, uint32_t position, struct fli_slice *ret);

#endif
