/* batch_build.h: a batch under construction: bytes that become a log entry, and the commands whose
 * answers come with it.
 *
 * The bytes are one block with room for the header in front. The commands stay in the queue
 * (commands.h) until they are answered. Those that need no entry have a place among the others, and
 * no bytes in the block. Private to the proposer. */
#ifndef CONSENSUS_BATCH_BUILD_H
#define CONSENSUS_BATCH_BUILD_H

#include "consensus/commands.h"

struct batch {
    struct fli_list link;
    uint8_t *data; /* NULL before the first byte, and once the log owns it */
    size_t len;    /* header space and commands */
    size_t cap;
    size_t max;        /* a multiple of 8 */
    size_t read_bytes; /* of commands that need no entry; max at most */
    uint32_t count;    /* commands of the entry */
    uint32_t reads;    /* commands that need none */
    uint32_t expiries; /* of `count`, the leader's own EXPIRE */
    uint32_t cost;     /* of all, machine_command_cost_now() */
    struct fli_list commands;
    uint64_t term, sequence, timestamp_ms; /* set when it is sealed */
    uint16_t format;                       /* set when it is sealed */
    uint64_t round;                        /* that confirms it, if it is no entry */
    uint64_t began_ns, proposed_ns;        /* for metrics only; the proposer sets them */
};

void batch_init(struct batch *b, size_t max);
void batch_fini(struct batch *b); /* no command may be left */

/* Whether a command of len bytes still fits. */
bool batch_has_room(const struct batch *b, size_t len, bool reads);

/* Appends the bytes of a command. 0 or FL_ENOMEM, then nothing has changed. */
int batch_append(struct batch *b, const void *command, size_t len) FLI_MUST_USE;
/* Appends a command that was taken out of the queue. Likewise. */
int batch_add(struct batch *b, struct command *c, bool reads) FLI_MUST_USE;

/* Gives up the bytes, because the log owns them now. */
void batch_drop_bytes(struct batch *b);

/* Writes the header. Even an empty batch needs memory for it: 0 or FL_ENOMEM. *ret_size is the
 * padded size. May be repeated. */
int batch_seal(struct batch *b, uint16_t flags, size_t *ret_size) FLI_MUST_USE;

/* Takes off the next command, if it has this position, and needs an entry or not; else NULL. */
struct command *batch_take(struct batch *b, uint32_t position, bool reads);
/* Takes off the next command, whichever it is; NULL: there is none. */
struct command *batch_pop(struct batch *b);

#endif
