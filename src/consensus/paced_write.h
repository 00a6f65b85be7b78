/* paced_write.h: large files are written to disk in pieces, with pauses.
 *
 * The raft library writes a snapshot with one call and syncs it with the next, so the kernel sends
 * a hundred megabytes to the disk at once, and the syncs of the log, which are what clients wait
 * for, stand in line behind them: 50 to 110 ms on the machine of adr/0020. Written in pieces of a
 * megabyte, each synced, with a pause as long as the piece took, they take twice the time and
 * nobody waits.
 *
 * The library has no place where that could be said. It writes through uv_fs_write(), so this file
 * defines that function: a symbol of the program comes before that of a shared library. Calls that
 * are not large, or have a callback, go to libuv's own. Where the dynamic linker does not work like
 * that (all linked statically), nothing is paced and nothing else is different. */
#ifndef CONSENSUS_PACED_WRITE_H
#define CONSENSUS_PACED_WRITE_H

#include <stdint.h>

#define PACED_WRITE_MIN ((uint64_t)4 << 20)   /* bytes of one call from which on it is paced */
#define PACED_WRITE_PIECE ((uint64_t)1 << 20) /* bytes between two pauses */

/* Finds libuv's own function; without it the process ends. To be called before anything is written:
 * it is also what makes the linker take this file in. */
void paced_write_init(void);

/* How many calls were paced since the process began. From any thread. */
uint64_t paced_write_count(void);

#endif
