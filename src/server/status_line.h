/* status_line.h: the state of a node in one line, for people. */
#ifndef SERVER_STATUS_LINE_H
#define SERVER_STATUS_LINE_H

#include "node/node.h"

/* "node 1 leads, 3 of 3 nodes connected, term 5, 12 clients". n: NULL when it is stopping. */
void status_line(struct node *n, uint64_t id, size_t clients, char *out, size_t size);

#endif
