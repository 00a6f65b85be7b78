/* commands.h: the queue of commands. Each command that a node has taken stands in it, from when it
 * came until it has its answer, in one block of memory.
 *
 * Whoever can serve takes commands out for a while: the proposer while this node leads, the relay
 * while another node does, nobody during an election. One that was taken out and surely not done is
 * put back, and has the place of before: it never left the lists. A source has commands out at one
 * taker at a time: while a former leader may still give some back, the later ones of that source
 * wait, or they would overtake them. Only a read that was put back may see what a later
 * command of its source has done, if that was taken out too.
 *
 * Commands of one source keep their order, and sources take turns. A source is a client's
 * connection. A client that sends a thousand commands at once waits for its own thousand. One that
 * sends a single command waits for at most one command of every other client. A source is in the
 * class of its next command:
 *
 *   CLUSTER   the leader's own commands, about members and versions: first of all; two at most
 *   URGENT    renews or releases
 *   OTHER     asks for more; these and queries take turns as if they were one class
 *   QUERY     reads
 *   CLEANUP   what nodes clean up after clients that are gone
 *
 * Urgent ones go first. While others wait, one of four commands is theirs, and one of eight is of
 * CLEANUP, so nobody waits for ever. Round robin by command, after Nagle's fair queues (RFC 970,
 * 1985); commands are small and of bounded cost, so no deficit is kept.
 *
 * Room is bounded in bytes, wherever the command stands. The last quarter is for sources that have
 * nothing here, so no source can fill it alone. Of that, and of the relay's window, a part is for
 * urgent ones alone (COMMANDS_URGENT).
 *
 * A command of this node's clients may wait for another leader, for hold_ms. One that another node
 * has relayed, or of the class CLUSTER, is bound to this leader: it ends with FL_ENOLEADER when
 * this node leads no more, or has not begun its term within hold_ms.
 *
 * Everything is O(1), but that the source is looked up in a hash when a command comes. No clock.
 * One thread. */
#ifndef COMMANDS_COMMANDS_H
#define COMMANDS_COMMANDS_H

#include "base/list.h"
#include "base/map.h"
#include "commands/ticket.h"

#define COMMANDS_EXPIRED_MAX 4096u /* so many end in a turn of the loop */
#define COMMANDS_URGENT(max) ((max) / 8)

enum command_class {
    COMMAND_CLUSTER,
    COMMAND_URGENT,
    COMMAND_OTHER,
    COMMAND_QUERY,
    COMMAND_CLEANUP,
    COMMAND_CLASSES
};

/* Sets of classes. */
#define COMMANDS_OF(class) (1u << (class))
#define COMMANDS_ALL (COMMANDS_OF(COMMAND_CLASSES) - 1)

struct command_source;

/* How a command has come: by which node and of which of its sources; and over which of its streams,
 * and with which number there. via 0: of this node, over no stream. */
struct command_way {
    uint64_t via, source, stream, number;
};

struct command {
    struct fli_list age;       /* in `own` or `bound`, by when they came */
    struct fli_list at_source; /* likewise, of its source */
    struct fli_list at_batch;  /* of the batch that has it, in proposer.c */
    struct command_source *source;
    struct node_ticket *t; /* NULL: of another node */
    struct command_way way;
    uint64_t number; /* of commands, in the order in which they came */
    uint64_t came_ns;
    uint64_t start;    /* on a relay stream: the offset where its frame begins */
    uint64_t sent_ns;  /* likewise: when it was sent */
    uint32_t position; /* in a batch: the number of commands of the entry in front of it */
    uint32_t cost;     /* in a batch: as the machine says */
    uint32_t len;
    uint8_t class;
    bool out;   /* somebody has taken it out */
    bool reads; /* in a batch: it needs no entry: a query, or a renewal (machine_renew()) */
    uint8_t data[];
};

struct commands {
    struct fli_map sources;
    struct fli_list rings[COMMAND_CLASSES]; /* of sources that have one waiting */
    struct fli_list own, bound;
    size_t bytes_max, bytes;
    uint64_t hold_ms;   /* how long one of `own` waits for a leader */
    uint64_t count;     /* commands without an answer */
    uint64_t out;       /* of these, taken out */
    uint64_t number;    /* of the last one that came */
    uint64_t taker;     /* who takes commands out now: the node that leads; 0: none */
    uint64_t joined;    /* sources that joined a ring, ever */
    uint64_t taken;     /* commands that were taken out, ever */
    uint64_t waited;    /* commands that came while this node did not lead, ever */
    uint64_t uncertain; /* answered FL_EUNCERTAIN, ever */
    bool closed;        /* the node ends: takes no more */
    void *ctx;
    /* A command of another node has ended. */
    void (*answer)(void *ctx, const struct command_way *way, int status,
                   const struct machine_result *result, struct fli_slice payload);
};

void commands_init(struct commands *q, size_t bytes_max, uint64_t hold_ms);
void commands_fini(struct commands *q); /* must be empty */

/* Takes a command: t->cb comes later, once. The bytes are copied. 0; FL_EBUSY: no room;
 * FL_ENOLEADER: the node ends; FL_ENOMEM. */
int commands_add(struct commands *q, struct node_ticket *t, const void *command, size_t len,
                 uint64_t now_ns) FLI_MUST_USE;
/* Likewise one of another node's source: `answer` comes later, once. */
int commands_add_relayed(struct commands *q, const struct command_way *way,
                         struct fli_slice command, uint64_t now_ns) FLI_MUST_USE;

static inline uint64_t commands_waiting(const struct commands *q)
{
    return q->count - q->out;
}

/* The waiting command whose turn it is, of these classes; it stays the same until one comes or is
 * taken out. NULL: none waits. */
struct command *commands_first(struct commands *q, unsigned classes);
/* Takes out a command that commands_first() returned. */
void commands_take(struct commands *q, struct command *c);
/* Puts one back that was taken out, and was surely not done. */
void commands_put_back(struct commands *q, struct command *c);

/* Ends a command, taken out or not, and calls back. */
void commands_end(struct commands *q, struct command *c, int status,
                  const struct machine_result *result, struct fli_slice payload);
void commands_fail(struct commands *q, struct command *c, int status); /* without a result */

/* Nobody serves: those of `own` end that have waited for hold_ms, COMMANDS_EXPIRED_MAX at most.
 * True: there may be more. */
bool commands_expire(struct commands *q, uint64_t now_ns);
/* A leader has not begun its term, and so has taken none out: if one of `bound` has waited for
 * hold_ms, all of them end with FL_ENOLEADER. A part of them might overtake the rest. */
void commands_expire_bound(struct commands *q, uint64_t now_ns);
/* Ends those that wait and are bound, or all that wait, with FL_ENOLEADER; none that a callback
 * adds meanwhile. */
void commands_end_bound(struct commands *q);
void commands_end_waiting(struct commands *q);

#endif
