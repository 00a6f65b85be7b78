/* data_dir.h: the data directory of a node.
 *
 *   DIR/lock       held with flock by the running process; its pid is inside
 *   DIR/identity   what the node must know of itself, see record.h
 *   DIR/log/       the log and its snapshots, see src/log */
#ifndef MEMBERS_DATA_DIR_H
#define MEMBERS_DATA_DIR_H

#include <stdbool.h>

#include "members/record.h"

#define DATA_DIR_PATH_MAX 512u

struct data_dir {
    int lock_fd;
    int record_fd; /* of DIR/identity, for writing: when it is to be written, the machine may have
                      no descriptor left; -1: not opened yet */
    char path[DATA_DIR_PATH_MAX];
    char log_path[DATA_DIR_PATH_MAX + 8];
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

/* Reads the record, or makes one when the directory is pristine, and makes DIR/log. `joins`
 * applies to one that is made. 0; FL_EDENIED: a part is missing, or it belongs to another id or
 * cluster (once a cluster is formed, the caller checks that by its log); FL_ECORRUPT; FL_EVERSION;
 * FL_ESYSTEM. */
int record_open(struct data_dir *d, uint64_t id, const struct members *members, bool joins,
                struct record *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Begins the record of a new node of these members. */
void record_begin(struct record *r, uint64_t id, const struct members *members);

/* Return FL_EDENIED, with a sentence that the directory belongs to another node, or cluster. */
int identity_refuse_id(const char *path, const struct identity *found, uint64_t id, char *errmsg,
                       size_t errmsg_size) FLI_MUST_USE;
int identity_refuse_members(const struct data_dir *d, const struct members *found,
                            const struct members *given, char *errmsg,
                            size_t errmsg_size) FLI_MUST_USE;

/* Returns FL_EDENIED, with a sentence that the log of a node that has made promises is missing, and
 * what to do. */
int identity_refuse_lost_log(const struct data_dir *d, const struct identity *id, char *errmsg,
                             size_t errmsg_size) FLI_MUST_USE;

struct directory_summary {
    bool exists;  /* the directory does */
    bool is_used; /* a process uses it at the moment */
    bool has_identity;
    bool is_empty;            /* no entries; true when the directory does not exist */
    struct identity identity; /* valid when has_identity */
};

/* Looks at a data directory; changes nothing in it and takes no lock. 0; FL_ECORRUPT or FL_EVERSION
 * for the identity; FL_ESYSTEM; errmsg says what is wrong and what to do. */
int identity_peek(const char *path, struct directory_summary *ret, char *errmsg,
                  size_t errmsg_size) FLI_MUST_USE;

/* Writes the record, as record_write() does. */
int record_store(const struct data_dir *d, struct record *r) FLI_MUST_USE;

#endif
