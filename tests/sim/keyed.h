/* keyed.h: locks as keys with values, through the front door; see keyed.c. */
#ifndef SIM_KEYED_H
#define SIM_KEYED_H

#include "base/base.h"

struct sim;
struct frontdoor_context;
struct machine_command;
struct machine_event;
struct machine_result;
struct sim_keyed;

/* Some seeds have no such clients: NULL then. */
struct sim_keyed *sim_keyed_init(struct sim *s, uint64_t random, struct frontdoor_context *f);
void sim_keyed_fini(struct sim_keyed *k); /* NULL is fine for all of them */
void sim_keyed_start(struct sim_keyed *k);
bool sim_keyed_done(const struct sim_keyed *k);

/* The oracle. */
bool sim_keyed_is_of(struct fli_slice name);
void sim_keyed_event(struct sim_keyed *k, const struct machine_event *e);
void sim_keyed_applied(struct sim_keyed *k, const struct machine_command *c,
                       const struct machine_result *r);
void sim_keyed_end(const struct sim_keyed *k);

/* reenter.c: the clients of this run; NULL: none. */
struct sim_keyed *sim_keyed_of(const struct sim *s);

#endif
