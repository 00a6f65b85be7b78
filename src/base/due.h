/* due.h: what is to be done at a time: the next one of thousands is found at once.
 *
 * What is in the set always has room there, so a time can be changed without memory. Of two with
 * one time, the one that was set first is first. Not thread-safe. */
#ifndef FLI_DUE_H
#define FLI_DUE_H

#include "base/heap.h"

#define FLI_DUE_NEVER UINT64_MAX

struct fli_due {
    struct fli_heap_node node;
    uint64_t at_ms;
    uint64_t seq; /* makes the order total */
    void (*fire)(struct fli_due *d, uint64_t now_ms);
};

struct fli_dues {
    struct fli_heap heap;
    uint64_t seq;
    uint64_t floor_ms; /* no time that is set now is before it */
};

void fli_dues_init(struct fli_dues *s);
void fli_dues_fini(struct fli_dues *s); /* forgets what is in it */

/* fire() is called at its time, once each time that one is set. 0 or FL_ENOMEM; it is never due. */
int fli_due_add(struct fli_dues *s, struct fli_due *d,
                void (*fire)(struct fli_due *d, uint64_t now_ms)) FLI_MUST_USE;
void fli_due_set(struct fli_dues *s, struct fli_due *d, uint64_t at_ms);
void fli_due_remove(struct fli_dues *s, struct fli_due *d); /* also when it was not added */

uint64_t fli_dues_next(const struct fli_dues *s); /* FLI_DUE_NEVER: nothing is */

/* NULL: none is due. */
struct fli_due *fli_dues_first(const struct fli_dues *s, uint64_t now_ms);

/* Fires what is due by now, each one once: what fire() sets anew is due a millisecond later. */
void fli_dues_run(struct fli_dues *s, uint64_t now_ms);

#endif
