/* cut.h: the end of the log on disk is cut off for sure, or this node stops.
 *
 * A follower cuts off entries that its leader does not have, and writes the leader's in their
 * place. The raft library (0.22.1) cuts in the background, needs a new file for it, and when that
 * cannot be made (the disk is full) it notes so in a variable that nothing reads. The new entries
 * are then written behind the ones that should be gone; entries on disk have no numbers, so after
 * the next start all of them have other numbers than on the other nodes, and this replica is
 * another. A process that ends while it cuts can also leave two files for the same entries, which
 * the library does not load.
 *
 * So the intention is written down first (cut_begin). When the first entries behind the cut are on
 * disk, and before raft hears of it, the files are looked at (cut_look) and the intention is
 * forgotten. A start that finds one cuts by itself before the library reads the log (cut_finish):
 * whatever is on disk from that index on was never acknowledged.
 *
 * The same after a leader's snapshot has replaced the log, where a file that cannot be closed would
 * be left over.
 *
 * All in the library's directory, whose path this is given. Blocks for a few writes; cuts are rare.
 * One thread. */
#ifndef CONSENSUS_CUT_H
#define CONSENSUS_CUT_H

#include <stddef.h>

#include "base/base.h"

#define CUT_FILE "cut" /* a name that the library passes over */

/* Errors of all: FL_EIO, FL_ECORRUPT, FL_ENOMEM, with a message that names the file. */

/* Whatever has this index or a larger one does not count any more. Replaces an earlier one. */
FLI_MUST_USE int cut_begin(const char *path, uint64_t index, char *errmsg, size_t errmsg_size);

/* Of entries from the index on, only those in one segment may be there, which is still open.
 * FL_ECORRUPT: more are. */
FLI_MUST_USE int cut_look(const char *path, uint64_t index, char *errmsg, size_t errmsg_size);

FLI_MUST_USE int cut_forget(const char *path, char *errmsg, size_t errmsg_size);

/* Before the library loads the log. *ret_index: where it was cut; 0: there was nothing to do. */
FLI_MUST_USE int cut_finish(const char *path, uint64_t *ret_index, char *errmsg,
                            size_t errmsg_size);

#endif
