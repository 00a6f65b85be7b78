/* beginning.h: the directory of a node of a new cluster that inherits from an old one: out of a
 * backup, or out of what a cluster that lost its majority has left. Offline; blocks on the disk.
 *
 * The new cluster has users, limits, counts and clock of the old one. Every session, hold and wait
 * has ended. The counter of tokens begins `step` above the old one's and above `above`, whichever
 * is more: tokens that the old one issued after the backup are below it, when the step is large
 * enough (docs/OPERATIONS.md says how large).
 *
 * Each member's directory is made from the same file with the same numbers; the state is the same
 * bytes then, and its checksum goes into what the identity says the cluster began with. Until the
 * cluster is formed, nodes that began with different states refuse each other (transport.h), so
 * states never mix. Forming it gives a new cluster id and needs all members, as ever, so no node of
 * the old one can be part of it. */
#ifndef CONSENSUS_BEGINNING_H
#define CONSENSUS_BEGINNING_H

#include "log/snapshot_file.h"
#include "machine/machine.h"
#include "peer/members.h"

#define BEGINNING_STEP_MIN UINT64_C(1000000000)

struct beginning {
    const char *data; /* the new directory: empty, or not there */
    uint64_t id;
    const struct members *members;
    fl_token above; /* 0: nothing is known beyond the state */
    uint64_t step;  /* at least BEGINNING_STEP_MIN */
};

struct beginning_result {
    uint64_t old_cluster_id;
    uint64_t index, term; /* up to which the old state goes */
    uint64_t made_ms;     /* of a backup: when; else 0 */
    uint64_t lost_after;  /* of a directory: what comes after this entry may not be there; else 0 */
    fl_token old_token, new_token;
    uint64_t ended_holds, ended_waits;
};

/* Out of a backup. 0; FL_EDENIED: the directory is not empty; FL_EBUSY; FL_ECORRUPT, FL_EVERSION;
 * FL_ELIMIT: too few tokens would be left; FL_EINVAL, FL_EIO, FL_ESYSTEM, FL_ENOMEM; errmsg says
 * what and what to do. */
int beginning_restore(const struct beginning *b, const char *backup, struct beginning_result *ret,
                      char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Out of a data directory that no process has: everything in it, committed or not. The same
 * errors. It stays as it is, but for what a start would do to a torn end of its log. */
int beginning_recover(const struct beginning *b, const char *old_data, struct beginning_result *ret,
                      char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* The common part: the old state, at an index and term, into the new directory. */
int beginning_make(const struct beginning *b, const struct machine *old, uint64_t index,
                   uint64_t term, struct beginning_result *ret, char *errmsg,
                   size_t errmsg_size) FLI_MUST_USE;

/* Whether the directory may be used: before anything else is done. */
int beginning_check(const struct beginning *b, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
