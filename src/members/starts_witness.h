/* starts_witness.h: a file on another disk, which records the newest start of a data directory, and
 * up to which term and entry its log went (record.h).
 *
 * It is for a cluster of one node, where no other node can tell that the directory is an older
 * copy; and for a cluster whose nodes may all be put back at once. Blocks on the disk.
 *
 * A start takes three writes: the witness records the start about to be made, the directory records
 * the start, the witness records that it was made. Wherever the process is killed, the next start
 * finds two files that fit each other. */
#ifndef MEMBERS_STARTS_WITNESS_H
#define MEMBERS_STARTS_WITNESS_H

#include "members/record.h"

struct witness_view {
    const char *directory;       /* its path, for messages */
    const struct record *record; /* from the directory */
    bool is_new;                 /* the directory was just made */
    uint64_t term, last_index;   /* of its log */
};

/* Runs before a start is made. reset: the witness is written anew, whatever it says. 0: *ret is
 * what is on disk now; FL_EDENIED, FL_ECORRUPT, FL_ESYSTEM, FL_EIO: errmsg says what is wrong and
 * what to do. */
int witness_begin(const char *path, bool reset, const struct witness_view *view, struct start next,
                  struct record *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
/* Runs when the directory has recorded the start. 0 or FL_EIO. */
int witness_settle(const char *path, struct record *witness, char *errmsg,
                   size_t errmsg_size) FLI_MUST_USE;

#endif
