/* snapshot.h (private to machine): constants of the format, whose byte table is in snapshot.c. */
#ifndef MACHINE_SNAPSHOT_H
#define MACHINE_SNAPSHOT_H

#define SNAPSHOT_FORMAT 3u
#define SNAPSHOT_FORMAT_OLDEST 1u
#define SNAPSHOT_MAGIC "FLSNAP\r\n"
#define SNAPSHOT_MAGIC_SIZE 8u
#define SNAPSHOT_HEADER_SIZE 12u /* magic, format, zero */
#define SNAPSHOT_TRAILER_SIZE 4u /* checksum */

/* Smallest records of any format, to hold a count against the bytes that are left. */
#define SNAPSHOT_SESSION_MIN 27u
#define SNAPSHOT_HELD_MIN 23u
#define SNAPSHOT_IDLE_MIN 18u
#define SNAPSHOT_WAIT_MIN 31u

#endif
