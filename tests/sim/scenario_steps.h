/* scenario_steps.h: the scenarios, and the steps that they share (scenario.c). */
#ifndef SIM_SCENARIO_STEPS_H
#define SIM_SCENARIO_STEPS_H

#include "members.h"
#include "net_private.h"

#define SOON_MS 5000u
#define LATE_MS 30000u
/* Locks, each with this name and owner: more than the window of a snapshot. */
#define FILLERS 2600u

bool scenario_leads(const struct sim_node *n); /* somebody does */
bool scenario_is_no_member(const struct sim_node *n);
bool scenario_is_settled(const struct sim_node *n);
bool scenario_has_all(const struct sim_node *n); /* what is committed */

struct sim_node *scenario_the_leader(struct sim *s); /* waits for one */
struct sim_node *scenario_other(struct sim *s, const struct sim_node *than, unsigned which);

void scenario_cut(struct sim_node *a, struct sim_node *b, uint64_t ms); /* both ways */
void scenario_cut_off(struct sim_node *n, uint64_t ms);

int scenario_ask(struct sim_node *leader, const struct node_change *what, int *status);
void scenario_change(struct sim *s, const struct node_change *what); /* until it is done */
void scenario_leave_to_operator(struct sim_node *n);
void scenario_transferred(void *ctx, int status); /* ctx: the sim */
/* The node is told to take over, by one that has given that up. */
void scenario_take_over_late(struct sim_node *n, const struct sim_node *from);

void scenario_filler(unsigned i, uint8_t name[SIM_FILLER_LEN]); /* a lock, or its owner */

/* As node_submit(), at this node. */
int scenario_send(struct sim_node *n, const struct machine_command *c, struct node_ticket *t,
                  node_ticket_cb cb);

/* A command about a lock, of which nobody awaits the end. */
void scenario_add(struct sim_node *leader, uint8_t op, unsigned i);
/* n commands about locks with these names, until they are done. */
void scenario_add_many(struct sim *s, uint8_t op, unsigned from, unsigned n);
void scenario_churn(struct sim *s); /* until a snapshot is due, and the log begins behind it */

/* scenario_members.c */
void scenario_removed(struct sim *s);
void scenario_busy(struct sim *s);
void scenario_four(struct sim *s);
void scenario_learner(struct sim *s);
void scenario_often(struct sim *s);
void scenario_found(struct sim *s);
void scenario_founders(struct sim *s);
void scenario_deposed(struct sim *s);
void scenario_flooded(struct sim *s);
void scenario_crowded(struct sim *s);
void scenario_moved(struct sim *s);
void scenario_awaited(struct sim *s);
void scenario_forced(struct sim *s);

/* scenario_disks.c */
void scenario_older(struct sim *s);
void scenario_snapshots(struct sim *s);
void scenario_lacks(struct sim *s);
void scenario_tail(struct sim *s);
void scenario_unsynced(struct sim *s);
void scenario_torn(struct sim *s);
void scenario_cached(struct sim *s);

/* scenario_snapshots.c */
void scenario_overtaken(struct sim *s);
void scenario_beside(struct sim *s);
void scenario_differs(struct sim *s);
void scenario_unread(struct sim *s);
void scenario_doubted(struct sim *s);

#endif
