/* reenter.h: locks that one owner takes several times, through the front door; see reenter.c. */
#ifndef SIM_REENTER_H
#define SIM_REENTER_H

#include "base/base.h"

struct sim;
struct sim_node;
struct frontdoor_context;
struct machine_command;
struct machine_event;
struct machine_result;
struct sim_reenter;

void sim_reenter_init(struct sim *s); /* some seeds have no such clients; s->reenter is NULL then */
void sim_reenter_fini(struct sim *s);
void sim_reenter_start(struct sim *s);
bool sim_reenter_done(const struct sim *s); /* nobody has anything outstanding */
const struct frontdoor_context *sim_reenter_frontdoor(const struct sim *s);

/* The oracle. */
bool sim_reenter_is_of(struct fli_slice name); /* the name of one of their locks */
void sim_reenter_event(struct sim *s, const struct machine_event *e);
void sim_reenter_applied(struct sim *s, const struct machine_command *c,
                         const struct machine_result *r);
void sim_reenter_end(struct sim *s);

#endif
