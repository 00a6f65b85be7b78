/* snapshot.h (private to machine): constants of the format, whose byte table is in snapshot.c. */
#ifndef MACHINE_SNAPSHOT_H
#define MACHINE_SNAPSHOT_H

#include "base/fields.h"

#define SNAPSHOT_FORMAT 10u /* the only one that is read; no release wrote another */
#define SNAPSHOT_MAGIC "FLSNAP\r\n"
#define SNAPSHOT_MAGIC_SIZE 8u
#define SNAPSHOT_HEADER_SIZE 12u /* magic, format, zero */
#define SNAPSHOT_TRAILER_SIZE 4u /* checksum */

/* The head, behind the header: these fields of the machine, the numbers of records, its version. */
#define SNAPSHOT_HEAD_SIZE 222u
#define SNAPSHOT_HEAD_FIELDS 26u
extern const struct fli_field snapshot_head[SNAPSHOT_HEAD_FIELDS];
extern const struct fli_field snapshot_version;

/* The sections, in their order. The head says how many records each of the others has. */
enum snapshot_section {
    PART_HEAD,
    PART_NODES,
    PART_USERS,
    PART_SESSIONS,
    PART_HELD,
    PART_IDLE,
    PART_WORK,
    PART_WAITS,
    PART_OUTCOMES,
    PART_END
};

#define SNAPSHOT_ENDING 2u /* a session that is ending, in place of whether it is explicit */

#define SNAPSHOT_COUNTED 0x8000u /* in the length of the value of a hold: it is a count */

/* A record is not longer: sixteen names, owner, value and the numbers. */
#define SNAPSHOT_RECORD_MAX 8192u

#endif
