/* identity_peek.h: inspects a data directory; changes nothing in it and takes no lock. */
#ifndef CONSENSUS_IDENTITY_PEEK_H
#define CONSENSUS_IDENTITY_PEEK_H

#include "consensus/identity.h"

struct directory_summary {
    bool exists;  /* the directory */
    bool is_used; /* a process uses it at the moment */
    bool has_identity;
    bool is_empty;            /* it has no entries; true when it does not exist */
    struct identity identity; /* with has_identity */
};

/* 0; FL_ECORRUPT, FL_EVERSION (of the identity), FL_ESYSTEM: errmsg says what is wrong and what to
 * do. */
int identity_peek(const char *path, struct directory_summary *ret, char *errmsg,
                  size_t errmsg_size) FLI_MUST_USE;

#endif
