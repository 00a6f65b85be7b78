/* beginning.h: makes the directory of a node of a new cluster that inherits from an old one. The
 * state comes from a backup, or from what is left of a cluster that lost its majority. Offline;
 * blocks on the disk.
 *
 * The new cluster has the users (unless they are reset), limits, counts and clock of the old one.
 * Every session, hold and wait has ended. The counter of tokens begins `step` above the old
 * counter, or above `above`, whichever is larger. So tokens that the old cluster issued after the
 * backup are smaller, if the step is large enough (docs/operations/restore.md says how large).
 *
 * Each member's directory is made from the same file with the same numbers, so the state has the
 * same bytes. The identity records their checksum among what the cluster began with. Until the
 * cluster is formed, nodes that began with different states refuse each other (transport.h), so
 * states never mix. Forming gives the cluster a new id and needs all members, as always, so no node
 * of the old cluster can be part of it. */
#ifndef RECOVERY_BEGINNING_H
#define RECOVERY_BEGINNING_H

#include "peer/members.h"

#define BEGINNING_STEP_MIN UINT64_C(1000000000)

struct beginning {
    const char *data; /* the new directory: empty, or absent */
    /* Where the state comes from: a backup; else, with everything in its log, committed or not, a
     * data directory that no process uses. */
    const char *backup, *old_data;
    uint64_t id;
    const struct members *members;
    fl_token above; /* 0: no token above the state's is known */
    uint64_t step;  /* at least BEGINNING_STEP_MIN */
    bool reset_users;
};

struct beginning_result {
    uint64_t old_cluster_id;
    uint64_t index, term; /* the end of the old state */
    uint64_t made_ms;     /* of a backup: its time; else 0 */
    uint64_t lost_after;  /* of a directory: later entries may be missing; else 0 */
    fl_token old_token, new_token;
    uint64_t ended_holds, ended_waits;
};

/* Makes the directory. 0; FL_EDENIED: it is not empty; FL_EBUSY; FL_ECORRUPT, FL_EVERSION;
 * FL_ELIMIT: too few tokens would be left; FL_EINVAL, FL_EIO, FL_ESYSTEM, FL_ENOMEM; errmsg says
 * what is wrong and what to do. An old directory stays unchanged, except that a torn end of its log
 * is cut off, as at a start. */
int beginning_make(const struct beginning *b, struct beginning_result *ret, char *errmsg,
                   size_t errmsg_size) FLI_MUST_USE;

#endif
