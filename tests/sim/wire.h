/* wire.h: what nodes say to each other on streams, against a reference; see wire.c. */
#ifndef SIM_WIRE_H
#define SIM_WIRE_H

#include "net_private.h"

void sim_wire_accepted(struct sim_conn *c);
void sim_wire_sent(const struct stream *st, uint8_t type, const struct fli_slice *parts,
                   unsigned n);
void sim_wire_heard(const struct stream *st, uint8_t type, struct fli_slice body);
void sim_wire_closing(const struct stream *st); /* its owner closes it */
void sim_wire_took(struct sim_node *n, unsigned from, uint8_t type, struct fli_slice body);
void sim_wire_free(struct sim_conn *c);
/* A node has said this to its log. */
void sim_wire_said(struct sim_node *n, const char *text);

#endif
