/* promises.h: what nodes promise to each other, and what is counted of it; see promises.c. */
#ifndef SIM_PROMISES_H
#define SIM_PROMISES_H

#include "consensus/message_codec.h"
#include "steps.h"

void sim_promises_init(struct sim *s);
void sim_promises_fini(struct sim *s);
void sim_promises_said(const struct sim_node *n, uint64_t to, uint8_t type,
                       const struct raft_message *m);
void sim_promises_told(const struct sim_node *n, uint64_t term, uint64_t index); /* of its disk */
void sim_promises_started(const struct sim_node *n);
/* What it has promised is in this log, which it would be started with. */
void sim_promises_kept(const struct sim_node *n, const struct log *l, uint64_t last,
                       const char *how);
void sim_promises_node(const struct sim_node *n); /* after each of its turns */

#endif
