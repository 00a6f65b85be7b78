/* starts_witness.h: a file on another disk, which knows how far a data directory was (starts.h).
 *
 * For a cluster of one node, whom nobody else can tell that its directory is an older copy; and for
 * a cluster whose nodes may all be put back at once. Blocks on the disk.
 *
 * Three writes make a start: the witness learns which one is about to be made, the directory makes
 * it, the witness learns that it was made. Wherever the process is killed, the next start finds two
 * that fit. */
#ifndef CONSENSUS_STARTS_WITNESS_H
#define CONSENSUS_STARTS_WITNESS_H

#include "consensus/starts.h"

struct witness_view {
    const char *directory;       /* its path, for messages */
    const struct starts *starts; /* what it has */
    bool is_new;                 /* it was made just now */
    uint64_t term, last_index;   /* of its log */
};

enum witness_verdict {
    WITNESS_FITS,
    WITNESS_OF_ANOTHER, /* directory */
    WITNESS_IS_NEWER,   /* the directory is an older copy */
    WITNESS_IS_OLDER,   /* the directory was started without it, or the file is an older copy */
};
enum witness_verdict witness_check(const struct witness_view *view, const struct starts *witness);

/* Before a start is made. reset: the witness is made anew, whatever there is. 0: *ret is what is on
 * disk now; FL_EDENIED, FL_ECORRUPT, FL_ESYSTEM, FL_EIO: errmsg says what and what to do. */
int witness_begin(const char *path, bool reset, const struct witness_view *view, struct start next,
                  struct starts *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
/* When the directory has it. 0 or FL_EIO. */
int witness_settle(const char *path, struct starts *witness, char *errmsg,
                   size_t errmsg_size) FLI_MUST_USE;

#endif
