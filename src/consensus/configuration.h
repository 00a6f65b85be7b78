/* configuration.h: the configuration of the Raft group: its servers and their roles. Pure.
 *
 * A server is a data directory: its id in the Raft group is the incarnation, a random number that
 * was made with the directory and is never used again. The number of the node and its address are
 * labels. So a disk that was lost is not in the configuration, whatever its node is called.
 *
 * The bytes stand in log entries, in snapshots and in messages:
 *
 *   offset size   little endian
 *   0      1      format, CONFIGURATION_FORMAT
 *   1      1      number of servers, up to MEMBERS_MAX; 0: the log has no configuration yet
 *   2      8      id of the cluster
 *   10     ...    for each server, by id: 8 id (the node's number), 8 incarnation, 1 role,
 *                 2 length of the address, the address
 *
 * The raft library has an encoding of its own, whose decoder trusts the lengths that it reads. So
 * the library only decodes bytes that this file encoded in memory, from a configuration that was
 * checked. */
#ifndef CONSENSUS_CONFIGURATION_H
#define CONSENSUS_CONFIGURATION_H

#include <raft.h>

#include "peer/members.h"

#define CONFIGURATION_FORMAT 2u
#define CONFIGURATION_SIZE_MAX (10u + MEMBERS_MAX * (19u + MEMBER_ADDRESS_MAX))

/* Values are written to disk and must not change. */
enum configuration_role { CONFIGURATION_VOTER = 1, CONFIGURATION_LEARNER = 2 };

struct configuration_server {
    uint64_t id;          /* the node's number */
    uint64_t incarnation; /* the server in the Raft group */
    enum configuration_role role;
    char address[MEMBER_ADDRESS_MAX];
};

struct configuration {
    unsigned n;
    uint64_t cluster_id;                              /* the same in all of a log */
    struct configuration_server servers[MEMBERS_MAX]; /* sorted by id */
};

/* The server of the node with this number; NULL when there is none. Its role may be changed. */
struct configuration_server *configuration_find(const struct configuration *c, uint64_t id);
/* The server that is this incarnation; likewise. */
const struct configuration_server *configuration_server(const struct configuration *c,
                                                        uint64_t incarnation);

/* 0; FL_EINVAL: the id or the incarnation is 0, the address is empty or too long, or one of the
 * three is in use; FL_ELIMIT: there are MEMBERS_MAX servers already. */
int configuration_add(struct configuration *c, uint64_t id, uint64_t incarnation,
                      const char *address, enum configuration_role role) FLI_MUST_USE;
int configuration_remove(struct configuration *c, uint64_t id) FLI_MUST_USE; /* 0, FL_ENOTFOUND */
/* 0, FL_ENOTFOUND; FL_EINVAL: another server has the address, or it is too long, or empty. */
int configuration_set_address(struct configuration *c, uint64_t id,
                              const char *address) FLI_MUST_USE;
unsigned configuration_voters(const struct configuration *c);

/* Returns the length. */
size_t configuration_encode(const struct configuration *c, uint8_t out[CONFIGURATION_SIZE_MAX]);
/* 0; FL_ECORRUPT: bytes that configuration_encode() never makes; FL_EVERSION: another format. */
int configuration_decode(const void *bytes, size_t len, struct configuration *ret) FLI_MUST_USE;

/* For the raft library: its struct, and its bytes. The result is allocated with raft_malloc() and
 * given to the library, or freed with raft_configuration_close() and raft_free(). Out of memory
 * ends the process. */
void configuration_to_raft(const struct configuration *c, struct raft_configuration *ret);
struct raft_buffer configuration_to_raft_bytes(const struct configuration *c);

/* The configurations in a log, by index; the first is the one in force at the last snapshot before
 * them. All zeros at first. Out of memory ends the process. */
struct changes {
    struct change {
        uint64_t index;
        struct configuration conf;
    } * list;
    unsigned n, cap;
};

void changes_fini(struct changes *c);
void changes_add(struct changes *c, uint64_t index, const struct configuration *conf);
/* Drops those at or above the index; and those before the one in force at the index. */
void changes_truncate(struct changes *c, uint64_t index);
void changes_compact(struct changes *c, uint64_t index);
const struct change *changes_last(const struct changes *c); /* there is always one */
/* The one in force at the index; NULL: it is not known. */
const struct change *changes_at(const struct changes *c, uint64_t index);

#endif
