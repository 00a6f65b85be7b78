/* backup_format.h: the header of a backup. A whole snapshot in the format of src/log follows it
 * (snapshot/format.h). Pure. The byte table is at the top of backup_format.c. */
#ifndef CONSENSUS_BACKUP_FORMAT_H
#define CONSENSUS_BACKUP_FORMAT_H

#include "base/base.h"

#define BACKUP_VERSION 1u
#define BACKUP_HEADER ((size_t)72)

struct backup_header {
    uint64_t cluster_id;
    uint64_t made_ms; /* wall clock of the node, since 1970: for people */
    uint64_t last_token;
    uint64_t index, term; /* of the last entry in the state */
    uint64_t node_id;     /* the node that made it */
    uint64_t body;        /* bytes behind the header */
};

void backup_header_encode(const struct backup_header *h, uint8_t out[BACKUP_HEADER]);

/* 0; FL_ECORRUPT, FL_EVERSION; *ret_why says what is wrong. */
int backup_header_decode(const uint8_t data[BACKUP_HEADER], struct backup_header *ret,
                         const char **ret_why) FLI_MUST_USE;

#endif
