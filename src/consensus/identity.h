/* identity.h: the data directory of a node, and the node's identity.
 *
 *   DIR/lock       held with flock by the running process; its pid is inside
 *   DIR/identity   text, see identity.c; replaced whole, never written in place
 *   DIR/log/       the log and its snapshots, see src/log
 *
 * The identity says which node and cluster the directory belongs to, and holds the incarnation: a
 * random number made together with the directory. That is the server in the Raft group; the node's
 * id is a label of it (configuration.h). A node that comes back with an empty disk is another
 * server, which has no vote to give. */
#ifndef CONSENSUS_IDENTITY_H
#define CONSENSUS_IDENTITY_H

#include <stdbool.h>

#include "consensus/configuration.h"
#include "peer/members.h"

#define DATA_DIR_PATH_MAX 512u

struct data_dir {
    int lock_fd;
    int starts_fd; /* of DIR/starts, for writing (starts_dir.c): when it is to be written, the
                      machine may have no descriptor left; -1: not opened yet */
    char path[DATA_DIR_PATH_MAX];
    char log_path[DATA_DIR_PATH_MAX + 8];
};

/* A node that forms the cluster, and its incarnation. */
struct identity_founder {
    uint64_t id, incarnation;
};

struct identity {
    uint64_t id;
    uint64_t incarnation;
    uint64_t cluster_id; /* 0: not known yet */
    bool bootstrapped;   /* the log was made: from now on it must exist */
    /* Those that form the cluster with this node, itself included; 0: not all are known yet, or
     * the node joins. Once written they stay (membership.h, forming). */
    struct identity_founder founders[MEMBERS_MAX];
    unsigned n_founders;
    /* The directory was made to join an existing cluster. It has no first entry of its own, and has
     * promised nothing until it is a member. */
    bool joins;
    uint32_t begun_crc; /* of the members and the state that the cluster began with; 0: not told
                           yet */
    /* The members that it began with: the configured cluster, or some nodes of it and this one.
     * Later only the log says who is a member. */
    struct members members;
};

/* Makes the directory if need be and locks it. 0, FL_EINVAL (path), FL_EBUSY (another process uses
 * it; when that one was killed, its child has five seconds to end), FL_ESYSTEM; errmsg says what is
 * wrong and what to do. May block so long. */
int data_dir_open(const char *path, struct data_dir *ret, char *errmsg,
                  size_t errmsg_size) FLI_MUST_USE;
void data_dir_close(struct data_dir *d);

/* Returns when no child of a killed process has a copy of the lock of the directory, or after five
 * seconds. The ports of that process are free then, or a moment later (FLI_LISTEN_WAIT_MS). To be
 * called before listening. */
void data_dir_await_child(const char *path);

/* Reads the identity, or makes one when the directory is pristine, and makes DIR/log. `joins`
 * applies to one that is made. 0; FL_EDENIED: a part is missing, or it belongs to another id or
 * cluster (once a cluster is formed, the caller checks that by its log); FL_ECORRUPT; FL_EVERSION;
 * FL_ESYSTEM. */
int identity_open(const struct data_dir *d, uint64_t id, const struct members *members, bool joins,
                  struct identity *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Sets the founders: incarnations[i] is that of members.list[i]. They determine the cluster's
 * id. */
void identity_found(struct identity *id, const uint64_t *incarnations);
/* The first configuration of the log, by the founders. */
void identity_configuration(const struct identity *id, struct configuration *ret);

/* Returns FL_EDENIED, with a sentence that the directory belongs to another cluster. */
int identity_refuse_members(const struct data_dir *d, const struct members *found,
                            const struct members *given, char *errmsg,
                            size_t errmsg_size) FLI_MUST_USE;

/* Returns FL_EDENIED, with a sentence that the log of a node that has made promises is missing, and
 * what to do. */
int identity_refuse_lost_log(const struct data_dir *d, const struct identity *id, char *errmsg,
                             size_t errmsg_size) FLI_MUST_USE;

/* Replaces the file: written beside, synced, renamed, directory synced. 0 or FL_EIO with errno. */
int identity_store(const struct data_dir *d, const struct identity *id) FLI_MUST_USE;

/* The text form, for identity_open() and tests. */
#define IDENTITY_TEXT_MAX 8192u
size_t identity_format(const struct identity *id, char out[IDENTITY_TEXT_MAX]);
int identity_parse(const char *text, size_t len, struct identity *ret) FLI_MUST_USE;

#endif
