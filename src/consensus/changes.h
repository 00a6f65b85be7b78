/* changes.h: the configurations in the log, by index, and the one in force at the last snapshot
 * before them. Pure; out of memory ends the process. */
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
void changes_truncate(struct changes *c, uint64_t index); /* drops those at or above index */
void changes_compact(struct changes *c, uint64_t index);  /* drops those before the one in force
                                                             at index */

const struct change *changes_last(const struct changes *c); /* there is always one */
const struct change *changes_at(const struct changes *c,
                                uint64_t index); /* the one in force there */

#endif
