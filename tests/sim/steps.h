/* steps.h: what must hold after every step, of all nodes at once; see steps.c. */
#ifndef SIM_STEPS_H
#define SIM_STEPS_H

#include "sim.h"

void sim_steps_init(struct sim *s);
void sim_steps_fini(struct sim *s);
void sim_steps_node(struct sim_node *n);
/* Of the entry that was committed there; 0: none that is known. */
uint64_t sim_steps_term(const struct sim *s, uint64_t index);
void sim_steps_plans(const struct sim_node *by);
void sim_steps_told(const struct sim_node *n, const struct starts_message *told);
void sim_steps_let_in(const struct sim_node *by, const struct peer_identity *peer);
/* How many voters are connected to the leader, and how many there are, without one node. */
unsigned sim_steps_connected(const struct sim_node *leader, const struct configuration *c,
                             uint64_t without, unsigned *ret_voters);
void sim_steps_stored(const struct sim_node *n, const struct starts *s);

#endif
