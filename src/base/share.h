/* share.h: who has the most of something that several users or addresses share.
 *
 * Every table and queue with a ceiling that several share gives each of them a share of it: as long
 * as there is room, anybody takes it; when there is none, whoever has the most gives up first. So
 * among n sharers nobody loses anything before having more than an n-th of it, whatever the others
 * do, and nothing stands empty. The reasons are in docs/adr/0069.
 *
 * Of several with the most, the one with the smallest id gives up. The choice depends on nothing
 * else, so replicas choose alike. O(log n) each. Pure, not thread-safe. */
#ifndef FLI_SHARE_H
#define FLI_SHARE_H

#include "base/heap.h"

/* What one user or address has; embedded in the caller's record of it. */
struct fli_share {
    struct fli_heap_node node;
    uint64_t id; /* unique among those that share */
    uint64_t has;
};

struct fli_shares {
    struct fli_heap by_most; /* those that have something */
    uint64_t taken;          /* by all */
};

void fli_shares_init(struct fli_shares *s);
void fli_shares_fini(struct fli_shares *s); /* everything was given back */
void fli_share_init(struct fli_share *one, uint64_t id);

/* 0 or FL_ENOMEM; then nothing was taken. */
int fli_share_take(struct fli_shares *s, struct fli_share *one, uint64_t n) FLI_MUST_USE;
void fli_share_give_back(struct fli_shares *s, struct fli_share *one, uint64_t n);

/* Who gives up first; NULL: nobody has anything. */
struct fli_share *fli_shares_most(const struct fli_shares *s);

#endif
