/* changes.h: the configurations that stand in the log, by index, and the one in force at the last
 * snapshot before them. Pure; out of memory ends the process. */
#ifndef CONSENSUS_CHANGES_H
#define CONSENSUS_CHANGES_H

#include "consensus/configuration.h"

struct change {
    uint64_t index;
    struct configuration conf;
};

struct changes {
    struct change *list; /* by index; the first is the one in force at the last snapshot */
    unsigned n, cap;
};

void changes_fini(struct changes *c);
void changes_add(struct changes *c, uint64_t index, const struct configuration *conf);
void changes_truncate(struct changes *c, uint64_t index); /* those at or above it go */
void changes_compact(struct changes *c, uint64_t index);  /* before the one in force at it */
void changes_clear(struct changes *c);

const struct change *changes_last(const struct changes *c);               /* there is one */
const struct change *changes_at(const struct changes *c, uint64_t index); /* in force there */

#endif
