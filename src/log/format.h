/* format.h: encoding a segment's bytes, and scanning them. Pure. The byte table is at the top of
 * format.c. */
#ifndef LOG_FORMAT_H
#define LOG_FORMAT_H

#include "log/entries.h"

#define LOG_FORMAT_VERSION 2u
#define LOG_WRITE_HEADER ((size_t)128)
#define LOG_RECORD_HEADER ((size_t)32)
#define LOG_RECORD_ALIGN ((size_t)8)
/* The most bytes that a write has on disk: one entry of the largest size, or several small ones. */
#define LOG_WRITE_MAX                                                                              \
    ((LOG_WRITE_HEADER + LOG_RECORD_HEADER + LOG_ENTRY_MAX + LOG_BLOCK_MAX) / LOG_BLOCK_MAX *      \
     LOG_BLOCK_MAX)

enum log_record_type {
    LOG_RECORD_ENTRY = 1,
    LOG_RECORD_TRUNCATE = 2,   /* index: the first entry that is removed; term: of the one before
                                  it */
    LOG_RECORD_HARD_STATE = 3, /* index: the vote; term: the term */
    LOG_RECORD_RESET = 4,      /* index and term of the snapshot */
};

struct log_record {
    uint32_t crc;
    uint64_t index;
    uint64_t term;
    uint32_t len;
    uint8_t type;
    uint8_t kind;
    const uint8_t *data;
};

/* What is in force after some record. */
struct log_content {
    struct log_entries entries;
    struct log_hard_state hard;
    uint32_t chain; /* checksum of the header of the last write */
};

/* The same, as the header of a write has it. */
struct log_state {
    uint64_t last_index;
    uint64_t last_term;
    struct log_hard_state hard;
    uint32_t chain;
};

struct log_write {
    uint64_t log_id;
    uint64_t number;  /* 1, 2, ... over all segments */
    uint32_t segment; /* number of the file */
    uint64_t segment_size;
    uint64_t offset;       /* in the file */
    uint32_t block;        /* the write's length on disk is a multiple of it */
    uint32_t len;          /* header and records, without padding */
    uint32_t zero_sectors; /* among those on disk, padding included */
    uint32_t crc;          /* of the records */
    struct log_state before;
};

static inline size_t log_record_size(size_t len)
{
    return LOG_RECORD_HEADER + (len + LOG_RECORD_ALIGN - 1) / LOG_RECORD_ALIGN * LOG_RECORD_ALIGN;
}
static inline size_t log_round_up(size_t n, size_t block)
{
    return (n + block - 1) / block * block;
}

/* Writes a record of log_record_size(r->len) bytes; r->crc is ignored. */
void log_record_encode(const struct log_record *r, uint8_t *out);

/* Reads the header of a record that was just encoded, without checks. */
void log_record_peek(const uint8_t *data, struct log_record *ret);

/* Decodes the record at data. False: its checksum is wrong, or it does not end within len bytes. */
bool log_record_decode(const uint8_t *data, size_t len, struct log_record *ret);

/* Whether the record may come next, and what it does then, at its place in a segment. For an entry
 * there must be room. */
bool log_record_can_follow(const struct log_content *now, const struct log_record *r);
void log_record_apply(struct log_content *now, const struct log_record *r, uint32_t segment,
                      uint64_t offset);
struct log_state log_state_of(const struct log_content *now);

/* Fills in the header of a write whose records and padding are in place, and counts its zero
 * sectors. padded: its length on disk. Returns the header's checksum. */
uint32_t log_write_seal(struct log_write *w, uint8_t *data, size_t padded);

/* Whether all bytes are zero. */
bool log_is_zero(const uint8_t *data, size_t len);

/* The state of a recovery, which goes through one segment after another. */
struct log_scan {
    struct log_content *now; /* the caller's */
    /* Known from the first write on. */
    uint64_t log_id;
    uint64_t next_number;
    uint32_t last_in; /* the segment of the last write; 0: there is none yet */
    size_t last_at;   /* where that begins, and ends */
    size_t end;
    uint32_t torn_in; /* the segment with the remains of an unfinished write; 0: there are none */
    size_t torn_at;   /* where they begin, and end */
    size_t torn_end;
    /* Where the scan is, and, after an error, the first wrong byte and the reason. */
    uint32_t segment;
    size_t at;
    char why[160];
    const uint8_t *data;
    size_t len, next;
    struct log_write write;
};

/* Applies the records of the next segment, all bytes of which are given; len is a multiple of
 * LOG_SECTOR. 0; FL_ECORRUPT, FL_EVERSION; FL_ENOMEM: for the entries. */
FLI_MUST_USE int log_scan_segment(struct log_scan *s, uint32_t segment, const uint8_t *data,
                                  size_t len);

#endif
