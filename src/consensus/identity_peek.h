/* identity_peek.h: inspects a data directory; changes nothing in it and takes no lock. */
#ifndef CONSENSUS_IDENTITY_PEEK_H
#define CONSENSUS_IDENTITY_PEEK_H

#include "consensus/data_dir.h"

struct directory_summary {
    bool exists;  /* the directory does */
    bool is_used; /* a process uses it at the moment */
    bool has_identity;
    bool is_empty;            /* no entries; true when the directory does not exist */
    struct identity identity; /* valid when has_identity */
};

/* Returns 0, FL_ECORRUPT or FL_EVERSION for the identity, or FL_ESYSTEM; errmsg says what is wrong
 * and what to do. */
int identity_peek(const char *path, struct directory_summary *ret, char *errmsg,
                  size_t errmsg_size) FLI_MUST_USE;

#endif
