/* membership_private.h: shared by membership*.c; nobody else includes it.
 *
 *   membership.c          forming a cluster, the list of members, leadership handed over, ticks
 *   membership_callers.c  which callers are let in; which start of a node counts, and when this
 *                         node may speak
 *   membership_change.c   members that are added, removed, replaced and moved */
#ifndef MEMBERS_MEMBERSHIP_PRIVATE_H
#define MEMBERS_MEMBERSHIP_PRIVATE_H

#include "members/membership.h"

/* The request of an operator; one at a time. */
struct membership_operation {
    bool active;
    struct node_change change;
    struct node_ticket ticket; /* of its command; a MOVE has none */
    uint64_t index;            /* of a MOVE: its configuration, which must be committed */
    void (*cb)(void *ctx, int status);
    void *ctx;
};

struct membership {
    struct membership_config config;
    struct replica *replica;
    struct members members; /* this node among them */
    bool members_due;       /* the list of members must be made anew */
    uint64_t members_index; /* of the configuration that the list was made from */
    bool members_certain;   /* that one was committed */
    uint64_t started_ms;
    bool leads; /* the proposer was open in the last turn */
    uint64_t leads_since_ms;
    uint64_t asked_index;   /* of the last entry when it began to lead, or took a plan last */
    bool speaks;            /* see membership_may_speak() */
    char last_logged[512];  /* the last line about what the cluster waits for */
    struct node_ticket own; /* of the command that this node submits by itself */
    bool own_busy;          /* there is one */
    struct membership_operation operation;
    uint64_t transfer_id;
    void (*transfer_cb)(void *ctx, int status);
    void *transfer_ctx;
};

static inline struct machine *membership_machine(const struct membership *m)
{
    return fsm_machine(m->config.fsm);
}

/* What this node knows of itself, and what of it is on disk: only that is told. */
static inline struct record *membership_now(const struct membership *m)
{
    return &m->config.record->own.now;
}
static inline const struct record *membership_kept(const struct membership *m)
{
    return &m->config.record->own.kept;
}

static inline uint64_t membership_self(const struct membership *m)
{
    return membership_now(m)->identity.id;
}

static inline void membership_wake(const struct membership *m)
{
    m->config.host.wake(m->config.host.ctx);
}

/* Closes the streams of a node that is not let in any more, or whose start is over. */
static inline void membership_hang_up(struct membership *m, uint64_t id)
{
    transport_hang_up(m->config.transport, id, "it is to call again");
}

/* ---- membership.c ---- */

/* Submits one command of the cluster's own. False: not possible now. */
bool membership_submit(struct membership *m, const struct machine_command *c);
/* The same, for the one whose ticket this is. 0 or a code. */
int membership_enqueue(struct membership *m, const struct machine_command *c, struct node_ticket *t,
                       node_ticket_cb cb);
/* Logs what the cluster waits for, unless that was the last such line. */
void membership_log_once(struct membership *m, const char *fmt, ...) FLI_PRINTF(2, 3);
/* Whether the configuration may be changed now. */
bool membership_may_change(const struct membership *m);
/* Makes the list of members anew, if that is due. */
void membership_members_turn(struct membership *m);

/* ---- membership_callers.c ---- */

/* Whether somebody who is a member by that configuration of its log knows as much of the members as
 * this node knows for certain. What is not committed may never come: a node that is not moved then
 * stays where it says that it is. */
bool membership_knows_as_much(const struct membership *m, uint64_t told_index);
/* Whether somebody that was let in still may be. */
bool membership_is_let_in(const struct membership *m, const struct peer_identity *told);

/* ---- membership_change.c ---- */

void membership_plans(struct membership *m);    /* the leader's work at each tick */
void membership_versions(struct membership *m); /* likewise */
void membership_operation_turn(struct membership *m);

#endif
