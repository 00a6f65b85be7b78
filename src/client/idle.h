/* idle.h: connections without an outstanding answer, kept for the next call. */
#ifndef FLI_CLIENT_IDLE_H
#define FLI_CLIENT_IDLE_H

#include "link/link.h"

#define FLI_IDLE_MAX 4u

/* All zero: none. */
struct fli_idle {
    struct {
        struct fli_link link;
        uint32_t node;
    } kept[FLI_IDLE_MAX];
    unsigned n;
};

/* Moves a fresh connection to this node into *to, which must be closed. False: there is none. */
bool fli_idle_take(struct fli_idle *idle, uint32_t node, struct fli_link *to);
void fli_idle_keep(struct fli_idle *idle, uint32_t node, struct fli_link *link); /* n < MAX */
void fli_idle_drop(struct fli_idle *idle, uint32_t node);
void fli_idle_drop_all(struct fli_idle *idle);

#endif
