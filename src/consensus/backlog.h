/* backlog.h: commands that wait in line. The commands of one source keep their order, and sources
 * take turns. A source whose next command renews or gives back a lock goes before sources that ask
 * for more.
 *
 * A source is a client's connection. A client that sends a thousand commands at once waits for its
 * own thousand; one that sends a single command waits for at most one command of every other
 * client. Two rings: `urgent` has the sources whose oldest command is a renewal, a release or a
 * cancel, `others` the rest. Of BACKLOG_TURN commands that are taken while both wait, one is of the
 * others, so that renewals cannot keep everybody else waiting for ever. Round robin by command,
 * after Nagle's fair queues (RFC 970, 1985); commands are small and of bounded cost, so no deficit
 * is kept.
 *
 * Everything is O(1) but backlog_push() and the last command of a source, which look it up in a
 * hash. No clock. One thread. */
#ifndef CONSENSUS_BACKLOG_H
#define CONSENSUS_BACKLOG_H

#include "base/list.h"
#include "base/map.h"
#include "consensus/ticket.h"

#define BACKLOG_TURN 4u

struct backlog_source;

/* A command whose bytes the node keeps. Made by held_create(). */
struct held {
    struct fli_list link;          /* by age, or on a list of the holder's */
    struct fli_list mine;          /* of its source */
    struct backlog_source *source; /* NULL: in no backlog */
    struct node_ticket *t;         /* NULL: nobody waits for the answer */
    uint64_t start;                /* on a relay stream: where its frame begins */
    uint64_t sent_ns;              /* likewise: when it was sent */
    uint32_t len;
    bool query;
    uint8_t data[];
};

struct backlog {
    struct fli_map sources;
    struct fli_list urgent, others; /* rings of sources */
    struct fli_list all;            /* every command, the oldest first */
    unsigned taken;                 /* since one of `others` had its turn */
};

void backlog_init(struct backlog *b);
void backlog_fini(struct backlog *b); /* it must be empty */

/* Puts a command behind those of its source, which its ticket names. 0, or FL_ENOMEM. */
int backlog_push(struct backlog *b, struct held *h) FLI_MUST_USE;

/* Whose turn it is; the same until something is put in or taken out. NULL: none waits. */
struct held *backlog_first(const struct backlog *b);

/* The same among sources that renew or give back. NULL: none of them waits. */
struct held *backlog_first_urgent(const struct backlog *b);

/* Whether it renews, or gives back. */
bool backlog_is_urgent(uint8_t op);

/* NULL: none waits. */
struct held *backlog_oldest(const struct backlog *b);

/* Takes out any command. Its source goes behind the others of its ring. */
void backlog_remove(struct backlog *b, struct held *h);

/* Whether this ticket's source has something in line. */
bool backlog_has(struct backlog *b, const struct node_ticket *t);

#endif
