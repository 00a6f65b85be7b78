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

#include "base/buf.h"

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

#define SEGMENT_NAME_SIZE 64

struct segment_file {
    char name[SEGMENT_NAME_SIZE];
    bool open;
    uint64_t first, last; /* of an open one: its number, twice */
    struct segment_report report;
};

/* Whether a file of this name is a segment; the report is not looked for. */
bool segment_name_parse(const char *name, struct segment_file *ret);

/* The library's checksum, going on from one of the bytes before (0: none). */
uint32_t segment_crc(uint32_t crc, const uint8_t *data, size_t len);

/* The bytes of an open segment; pure. */
void segment_scan(const uint8_t *data, size_t len, struct segment_report *ret);

/* Appends to `out` a closed segment of the first n entries of the one in data, FL_ECORRUPT
 * when it has not as many right ones, FL_ENOMEM, FL_ELIMIT. */
FLI_MUST_USE int segment_head(const uint8_t *data, size_t len, uint64_t n, struct fli_buf *out);

/* A whole file; *ret is the caller's to free. FL_EIO with errno, FL_ENOMEM. */
FLI_MUST_USE int segment_read(int dir, const char *name, uint8_t **ret, size_t *ret_len);

/* All segments in a directory, closed ones first, each kind in its order; *ret is the caller's to
 * free, also after a failure. FL_EIO or FL_ENOMEM with a message. */
FLI_MUST_USE int segments_list(const char *path, struct segment_file **ret, size_t *ret_n,
                               char *errmsg, size_t errmsg_size);

/* All segments in a directory of the library. FL_ECORRUPT, FL_EIO or FL_ENOMEM with a message. */
FLI_MUST_USE int segments_check(const char *path, char *errmsg, size_t errmsg_size);

#endif
