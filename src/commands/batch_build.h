/* batch_build.h: a batch under construction: the commands that become one log entry, and those that
 * are answered with it.
 *
 * The commands stay in the queue (commands.h) until they are answered, and their bytes stay with
 * them: sealing writes the entry. Commands that need no entry have a place among the others.
 * Private to the proposer. */
#ifndef COMMANDS_BATCH_BUILD_H
#define COMMANDS_BATCH_BUILD_H

#include "base/buf.h"
#include "commands/commands.h"
#include "machine/batch.h"

struct batch {
    struct fli_list link;
    size_t max;             /* bytes of the entry; a multiple of 8 */
    size_t len;             /* of header and commands */
    size_t read_bytes;      /* of commands that need no entry; max at most */
    uint32_t count;         /* commands of the entry */
    uint32_t reads;         /* commands that need none */
    uint32_t cost;          /* of all, machine_command_cost_now() */
    uint32_t expiries;      /* the leader's own EXPIRE, behind the commands of the entry */
    struct fli_buf expired; /* their bytes */
    struct fli_list commands;
    uint64_t sequence;              /* in the term, once it is proposed; 0: it is no entry */
    uint64_t round;                 /* that confirms it, if it is no entry */
    uint64_t began_ns, proposed_ns; /* for metrics only; the proposer sets them */
};

void batch_init(struct batch *b, size_t max);
void batch_fini(struct batch *b); /* no command may be left */

/* Whether a command of len bytes still fits. */
bool batch_has_room(const struct batch *b, size_t len, bool reads);

/* Appends a command that was taken out of the queue. */
void batch_add(struct batch *b, struct command *c);
/* Appends an EXPIRE. 0 or FL_ENOMEM. */
int batch_expire(struct batch *b, const struct machine_command *c) FLI_MUST_USE;

/* Writes the entry, which has room for `max` bytes, and returns its padded size. Of the header,
 * count and length are filled in. May be repeated. */
size_t batch_seal(const struct batch *b, const struct machine_batch_header *header, uint8_t *entry);

/* Takes off the next command, if it has this position, and needs an entry or not; else NULL. */
struct command *batch_take(struct batch *b, uint32_t position, bool reads);
/* Takes off the next command, whichever it is; NULL: there is none. */
struct command *batch_pop(struct batch *b);

#endif
