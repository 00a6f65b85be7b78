/* backlog.h: commands that wait in line. The commands of one source keep their order, and sources
 * take turns. A source whose next command renews or releases a lock goes before sources whose next
 * command asks for more.
 *
 * A source is a client's connection. A client that sends a thousand commands at once waits for its
 * own thousand. One that sends a single command waits for at most one command of every other
 * client. There are three rings: `urgent` has the sources whose oldest command is a renewal or a
 * release; `last` has what nodes clean up after clients that are gone (NODE_SOURCE_CLEANUP);
 * `others` has the rest. While both wait, one of every BACKLOG_TURN commands comes from `others`,
 * so renewals cannot delay the rest for ever; and one of every BACKLOG_TURN_LAST comes from `last`.
 * Round robin by command, after Nagle's fair queues (RFC 970, 1985); commands are small and of
 * bounded cost, so no deficit is kept.
 *
 * Commands that were taken out and come back stand in front of the others of their source, in the
 * order in which they came first, although they may come back one at a time, and more than once. So
 * a source keeps its order over a change of leader, and its turn is worth no more and no less than
 * before.
 *
 * Everything is O(1), but for two things: the source is looked up in a hash; and commands that did
 * not come in the order of their deadlines stand in a heap by these, O(log n): those that came
 * back, and those that came when commands were to be held for a shorter time. No clock. One
 * thread. */
#ifndef CONSENSUS_BACKLOG_H
#define CONSENSUS_BACKLOG_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "consensus/ticket.h"

#define BACKLOG_TURN 4u
#define BACKLOG_TURN_LAST 8u

struct backlog_source;

/* A command whose bytes the node keeps. held_add() makes it. */
struct held {
    struct fli_list link;          /* in a backlog, by age; or of those that are to be answered */
    struct fli_list at_source;     /* among the commands of its source */
    struct fli_heap_node at_due;   /* by its deadline, in place of `link` */
    uint64_t due_ms;               /* that of its ticket */
    uint64_t number;               /* of two with one deadline, the first has the lower one */
    struct backlog_source *source; /* NULL: in no backlog */
    struct node_ticket *t;         /* NULL: no callback expects the answer */
    uint64_t start;                /* on a relay stream: the offset where its frame begins */
    uint64_t sent_ns;              /* likewise: when it was sent */
    uint32_t len;
    bool query;
    uint8_t data[];
};

struct backlog {
    struct fli_map sources;
    struct fli_list urgent, others, last; /* rings of sources */
    struct fli_list fresh;                /* commands that came in the order of their deadlines */
    struct fli_heap back;                 /* all others, by deadline */
    uint64_t number;                      /* of the last that came into the heap */
    unsigned taken;                       /* commands taken since `others` had a turn */
    unsigned taken_last;                  /* likewise since `last` had one */
};

void backlog_init(struct backlog *b);
void backlog_fini(struct backlog *b); /* must be empty */

/* Puts a command behind the others of its source, which its ticket names. 0, or FL_ENOMEM. */
int backlog_push(struct backlog *b, struct held *h) FLI_MUST_USE;

/* Puts back a command that was removed: in front of its source's others, but for those of them that
 * came back before and had come first. 0, or FL_ENOMEM. */
int backlog_return(struct backlog *b, struct held *h) FLI_MUST_USE;

/* The command whose turn it is; it stays the same until one is added or removed. NULL: none
 * waits. */
struct held *backlog_first(const struct backlog *b);

/* Puts the source of a command whose turn it is behind the other sources of its ring. */
void backlog_pass(struct backlog *b, const struct held *h);

/* The same among the sources in `urgent`. NULL: none of them waits. */
struct held *backlog_first_urgent(const struct backlog *b);

/* Whether the command renews or releases, for a client; and the part of all room that is for those
 * alone. */
bool backlog_is_urgent(const struct node_ticket *t, uint8_t op);
#define BACKLOG_URGENT(max) ((max) / 16)

/* The command whose deadline comes first; NULL: none waits. */
struct held *backlog_first_due(const struct backlog *b);

/* Removes any command. Its source goes behind the other sources of its ring. */
void backlog_remove(struct backlog *b, struct held *h);

/* Whether this ticket's source has a command in line. */
bool backlog_has(struct backlog *b, const struct node_ticket *t);

#endif
