/* record.h: all that a node must know of itself, in one file: DIR/identity.
 *
 * The identity says which node and cluster the directory belongs to, and holds the incarnation: a
 * random number made together with the directory. That is the server in the Raft group; the node's
 * id is a label of it (configuration.h). A node that comes back with an empty disk is another
 * server, which has no vote to give. Beside it are the starts (starts.h).
 *
 * The file is small and is written in place, so that a full disk prevents no start. It has two
 * slots with the same content, written and synced one after the other. If one of them is damaged,
 * the other one holds what was last told, or what was not told to anybody yet.
 *
 *   offset size  of a slot, little endian; slots begin at 0 and 4096
 *   0      8     "fencenod"
 *   8      8     version of the format, 6
 *   16     8     sequence: one more with each write
 *   24     24    id of the node, its incarnation, the cluster's id or 0
 *   48     2     1 or 0, a byte each: bootstrapped, joins
 *   50     4     checksum of the members and the state that the cluster began with (beginning.h)
 *   54     16    its start: number, nonce
 *   70     16    of a witness: the start that is about to be made; else STARTS_REFUSED,
 *                STARTS_RECORDED, or zeros
 *   86     16    of a witness: term and index that were on the disk; else 0, and the number of the
 *                last write of this node's log: one that ends earlier has lost its newest part
 *   102    4     how many others are known
 *   106    48    of each of the others: id, incarnation, number, nonce, term, index
 *   874    8     incarnation of each founder, in the order of the members; or zeros
 *   946    2574  the members that the directory began with, canonical text; zeros behind
 *   3520   4     CRC-32C of all before
 *
 * A witness is the same file on another disk (starts.h). */
#ifndef MEMBERS_RECORD_H
#define MEMBERS_RECORD_H

#include <stdbool.h>

#include "consensus/configuration.h"
#include "members/starts.h"
#include "peer/members.h"

struct identity {
    uint64_t id;
    uint64_t incarnation;
    uint64_t cluster_id; /* 0: not known yet */
    bool bootstrapped;   /* the log was made: from now on it must exist */
    /* The directory was made to join an existing cluster. It has no first entry of its own, and has
     * promised nothing until it is a member. */
    bool joins;
    uint32_t begun_crc; /* of the members and the state that the cluster began with; 0: not told
                           yet */
    /* The members that it began with: the configured cluster, or some nodes of it and this one.
     * Later only the log says who is a member. */
    struct members members;
    /* The incarnations of those that form the cluster with this node, as in `members`, its own
     * included; zeros: not all are known yet, or the node joins. Once written they stay
     * (membership.h, forming). */
    uint64_t founders[MEMBERS_MAX];
};

struct record {
    uint64_t sequence;
    struct identity identity;
    struct starts starts;
};

#define RECORD_SLOT_SIZE 3524u
#define RECORD_SLOT_STEP 4096u
#define RECORD_FILE_SIZE ((size_t)2 * RECORD_SLOT_STEP)

static inline bool identity_is_founded(const struct identity *id)
{
    return id->founders[0] != 0;
}
/* Sets the founders: incarnations[i] is that of members.list[i]. They determine the cluster's
 * id. */
void identity_found(struct identity *id, const uint64_t *incarnations);
/* The first configuration of the log, by the founders. */
void identity_configuration(const struct identity *id, struct configuration *ret);

void record_encode(const struct record *r, uint8_t out[RECORD_SLOT_SIZE]);
/* 0, FL_ECORRUPT or FL_EVERSION. */
int record_decode(const uint8_t in[RECORD_SLOT_SIZE], struct record *ret) FLI_MUST_USE;

/* Chooses the newer one of the undamaged slots. The file has `len` bytes. FL_ECORRUPT: both are
 * damaged. FL_EVERSION: another version of fencelock has written it. */
int record_choose(const uint8_t *file, size_t len, struct record *ret) FLI_MUST_USE;

/* ---- the file ---- */

/* Changes nothing, and what is read is durable: its writer may have been killed before it was. 0;
 * FL_ENOTFOUND; FL_ECORRUPT; FL_EVERSION; FL_ESYSTEM with errno. */
int record_read(const char *path, struct record *ret) FLI_MUST_USE;
/* Raises the sequence, writes both slots and syncs each. fd: of the file, open for writing; -1: the
 * path is opened, or the file made if it is absent. 0 or FL_EIO with errno. Any thread, but one at
 * a time for a file. */
int record_write(int fd, const char *path, struct record *r) FLI_MUST_USE;

#endif
