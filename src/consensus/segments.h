/* segments.h: looks for damage in the files of the log before the raft library loads them.
 *
 * The library (0.22.1) takes a batch of entries whose checksum is wrong for the torn end of an open
 * segment, cuts it and all that follows off, and serves on without entries it had acknowledged. A
 * damaged closed segment it sets aside. Here both are told apart from what a crash can leave, and
 * the node does not start. Nothing is refused that a crash could have left:
 *
 * - A closed segment was synced whole before it got its name, so every byte of it must be right.
 * - One write is under way at a time in the whole log, and the next begins when it is on disk. So
 *   when a later open segment has entries, an earlier one is whole.
 * - One write may hold several batches, of which a power cut may keep a later one and lose an
 *   earlier one. But where a write did not arrive there are still the zeros that the file was made
 *   with, in pieces of SEGMENTS_PIECE bytes at least (a sector or a page; memory that is a disk has
 *   lines of 64). A batch that is wrong without one such piece, with a right one behind it, did
 *   arrive, and was changed later.
 *
 * Not seen: damage to the last batch of the log, which cannot be told from a torn write, damage to
 * a batch that has a piece of zeros in it, and a segment that is gone as a whole. The record of
 * term and vote is not looked at here; snapshots.h looks at snapshots.
 *
 * Limits: a file at a time is read into memory, as the library does. The search for a right batch
 * gives up after SEGMENTS_SEARCH_MAX bytes, and then says nothing. */
#ifndef CONSENSUS_SEGMENTS_H
#define CONSENSUS_SEGMENTS_H

#include <stdbool.h>

#include "base/base.h"

#define SEGMENTS_REMEDY                                                                            \
    "treat this node as one that lost its disk: move its data directory away, CLUSTER FORGET it, " \
    "start it empty (a cluster of one node has lost what was in it: docs/OPERATIONS.md, Backups)"

#define SEGMENTS_PIECE 64
#define SEGMENTS_SEARCH_MAX ((size_t)64 << 20)

enum segment_finding {
    SEGMENT_WHOLE,   /* nothing but right batches, then zeros */
    SEGMENT_TORN,    /* something behind the last right batch, as a crash may leave */
    SEGMENT_DAMAGED, /* no crash leaves this */
    SEGMENT_CUT      /* the file ends within a batch: what the library cannot load */
};

struct segment_report {
    enum segment_finding finding;
    size_t offset;    /* of the first batch that is not right */
    uint64_t entries; /* in the right ones before it */
    bool exact;       /* the last batch ends where the file ends */
};

/* The library's checksum, going on from one of the bytes before (0: none). */
uint32_t segment_crc(uint32_t crc, const uint8_t *data, size_t len);

/* The bytes of an open segment; pure. */
void segment_scan(const uint8_t *data, size_t len, struct segment_report *ret);

/* All segments in a directory of the library. FL_ECORRUPT, FL_EIO or FL_ENOMEM with a message. */
FLI_MUST_USE int segments_check(const char *path, char *errmsg, size_t errmsg_size);

/* The library (0.22.1) cuts a segment in two by writing the first part anew. When that fails, for
 * want of space above all, it goes on as if it had not: entries that were to be gone stay, and what
 * is written later stands behind them, under other numbers at the next start. Hence two functions.
 *
 * Whether there is room for another segment now: FL_EIO when not (see errno). */
FLI_MUST_USE int segments_have_room(const char *path, size_t size);

/* When a closed segment goes on across `index`, at which the log was cut: gives it a name under
 * which segments_check() refuses it, and returns true. */
FLI_MUST_USE bool segments_spoil_uncut(const char *path, uint64_t index);

#endif
