/* steps.h: what must hold after every step, of all nodes at once; see steps.c. */
#ifndef SIM_STEPS_H
#define SIM_STEPS_H

#include "sim.h"

/* What was read back of a node's disk, see readback.c. */
struct sim_read_back {
    uint64_t position, snapshot; /* of the log; of the newest snapshot that was decoded */
    unsigned turns, checks_due;
    unsigned removed; /* files that a start may need, since it was read */
};

static inline unsigned long long ull(uint64_t n) /* for printf */
{
    return n;
}

/* run.c */
typedef bool sim_condition(const struct sim_node *n);
/* Until it holds of that node. It fails after so long, and says what is then the matter. */
void sim_wait_for(const struct sim_node *n, sim_condition *is, uint64_t ms, const char *what);
void sim_pass(struct sim *s, uint64_t ms);
bool sim_is_down(const struct sim_node *n);

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
void sim_tables_node(struct sim_node *n);
bool sim_tables_lists_others(const struct sim_node *n); /* than members */
struct sim_read_back *sim_steps_read_back(const struct sim_node *n);
void sim_read_back_node(struct sim_node *n); /* after each of its turns */
void sim_read_back(struct sim_node *n);      /* now */
void sim_rest_exercise(struct sim *s);       /* when all is well again, see rest.c */
void sim_steps_stored(const struct sim_node *n, const struct record *r);

#endif
