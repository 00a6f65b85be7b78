/* members.h: what must hold of members, and runs with many changes of them; see members_look.c. */
#ifndef SIM_MEMBERS_H
#define SIM_MEMBERS_H

#include "steps.h"

void sim_members_choose(struct sim *s); /* with --members-heavy */
void sim_members_check_starts(const struct membership *m, const struct starts *before);
void sim_members_check_verdict(struct sim_node *by, const struct peer_identity *peer,
                               enum handshake_verdict verdict);
void sim_members_check_welcome(struct sim_node *by, const struct peer_identity *peer,
                               enum handshake_verdict verdict);
/* Somebody was looked at, by its call or its answer. */
void sim_members_check_went_back(const struct sim_node *by, const struct peer_identity *peer,
                                 enum handshake_verdict verdict);
void sim_members_check_end(const struct sim_node *n, const char *why); /* it ends by itself */
/* Whether there is, or was, a node of that incarnation. */
bool sim_members_is_known(const struct sim *s, uint64_t incarnation);
void sim_members_node(struct sim_node *n);
void sim_members_welcomed(const struct sim_node *n);
void sim_members_note_answer(struct sim *s, int status);
/* Somebody is added to the configuration. */
void sim_members_check_added(const struct sim_node *by, const struct configuration_server *added);
void sim_members_look(const struct sim_node *by);
/* operations.c: what operators are told */
void sim_operations_init(void);
void sim_operations_fini(void);
void sim_operations_rest(const struct sim *s); /* nobody waits for an answer any more */
void sim_operations_submitted(const struct sim_node *by, const struct machine_command *c);
void sim_operations_joins(const struct sim_node *by, uint64_t id, uint64_t incarnation);
void sim_operations_applied(const struct sim *s, const struct machine_command *c,
                            const struct machine_result *r);
void sim_members_mistake(struct sim *s);

#endif
