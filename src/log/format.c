/* format.c: the bytes of a segment.
 *
 * A segment is a file of zeros into which writes are put one behind the other, each at a multiple
 * of the block and padded with zeros to a multiple of it. All numbers are little endian.
 *
 *   write:  at  bytes
 *            0   6   "FLKLOG"
 *            6   2   version of the format, 2
 *            8   4   CRC-32C of the header without these four bytes
 *           12   4   block: 4096, or more where the disk asks for it
 *           16   8   log id: random, the same in all segments of a log
 *           24   8   number of the write: 1, 2, ... over all segments
 *           32   8   offset of this write in its segment
 *           40   8   size of the segment
 *           48   4   number of the segment
 *           52   4   length: header and records, without padding
 *           56   4   CRC-32C of the records
 *           60   4   all-zero sectors (of 512 bytes) among those of the write, padding included
 *           64   8   before this write: the last entry's index
 *           72   8                      and term
 *           80   8                      the hard state's term
 *           88   8                      and vote
 *           96   4                      the checksum of the last write's header
 *          100  28   0
 *          128       records
 *
 *   record:  0   4   CRC-32C of all that follows, data included, padding not
 *            4   4   0
 *            8   8   index
 *           16   8   term
 *           24   4   length of data
 *           28   2   0
 *           30   1   type: 1 entry, 2 truncation, 3 hard state, 4 reset
 *           31   1   kind of an entry, the caller's; 0 for the others
 *           32       data, padded with zeros to a multiple of 8
 *
 * A sector is written wholly or not at all, and an unwritten one is still zero. So a write was torn
 * exactly if more of its sectors are zero than its header says, or if the header's own sector is
 * zero. Any other difference is damage. docs/adr/0024 goes through the cases. */
#include "log/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fields.h"

static const char magic[6] = "FLKLOG";

/* Of a write's header, from byte 12 on. */
#define FIELD(type, name)                                                                          \
    {                                                                                              \
        FLI_##type, offsetof(struct log_write, name)                                               \
    }
static const struct fli_field header[] = {
    FIELD(U32, block),
    FIELD(U64, log_id),
    FIELD(U64, number),
    FIELD(U64, offset),
    FIELD(U64, segment_size),
    FIELD(U32, segment),
    FIELD(U32, len),
    FIELD(U32, crc),
    FIELD(U32, zero_sectors),
    FIELD(U64, before.last_index),
    FIELD(U64, before.last_term),
    FIELD(U64, before.hard.term),
    FIELD(U64, before.hard.vote),
    FIELD(U32, before.chain),
};
#define HEADER_AT 12u
#define HEADER_END 100u
#define HEADER_FIELDS (sizeof header / sizeof header[0])

_Static_assert(LOG_WRITE_HEADER <= LOG_SECTOR, "a header is in one sector");
_Static_assert(LOG_SEGMENT_MAX <= UINT32_MAX, "an offset in a segment has 32 bits");

void log_record_encode(const struct log_record *r, uint8_t *out)
{
    size_t size = log_record_size(r->len);
    fli_put_u32(out + 4, 0);
    fli_put_u64(out + 8, r->index);
    fli_put_u64(out + 16, r->term);
    fli_put_u32(out + 24, r->len);
    fli_put_u16(out + 28, 0);
    out[30] = r->type;
    out[31] = r->kind;
    if (r->len > 0) {
        memcpy(out + LOG_RECORD_HEADER, r->data, r->len);
    }
    memset(out + LOG_RECORD_HEADER + r->len, 0, size - LOG_RECORD_HEADER - r->len);
    fli_put_u32(out, fli_crc32c(0, out + 4, LOG_RECORD_HEADER - 4 + r->len));
}

void log_record_peek(const uint8_t *data, struct log_record *ret)
{
    *ret = (struct log_record){
        .crc = fli_get_u32(data),
        .index = fli_get_u64(data + 8),
        .term = fli_get_u64(data + 16),
        .len = fli_get_u32(data + 24),
        .type = data[30],
        .kind = data[31],
        .data = data + LOG_RECORD_HEADER,
    };
}

bool log_record_decode(const uint8_t *data, size_t len, struct log_record *ret)
{
    struct log_record r;
    if (len < LOG_RECORD_HEADER) {
        return false;
    }
    log_record_peek(data, &r);
    if (r.len > LOG_ENTRY_MAX || log_record_size(r.len) > len ||
        fli_crc32c(0, data + 4, LOG_RECORD_HEADER - 4 + r.len) != r.crc) {
        return false;
    }
    *ret = r;
    return true;
}

bool log_is_zero(const uint8_t *data, size_t len)
{
    /* Compares the bytes with themselves shifted by one: memcmp() is the fastest loop there is. */
    return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

static uint32_t zero_sectors(const uint8_t *data, size_t len)
{
    uint32_t n = 0;
    for (size_t at = 0; at < len; at += LOG_SECTOR) {
        n += log_is_zero(data + at, LOG_SECTOR);
    }
    return n;
}

static uint32_t records_crc(const struct log_write *w, const uint8_t *data)
{
    return fli_crc32c(0, data + LOG_WRITE_HEADER, w->len - LOG_WRITE_HEADER);
}

static uint32_t header_crc(const uint8_t *data)
{
    return fli_crc32c(fli_crc32c(0, data, 8), data + 12, LOG_WRITE_HEADER - 12);
}

uint32_t log_write_seal(struct log_write *w, uint8_t *data, size_t padded)
{
    FLI_ASSERT(w->len >= LOG_WRITE_HEADER && w->len <= padded && padded <= LOG_WRITE_MAX);
    FLI_ASSERT(padded % LOG_SECTOR == 0 && w->offset + padded <= w->segment_size);
    memset(data, 0, LOG_WRITE_HEADER);
    memcpy(data, magic, sizeof magic); /* set first, so that this sector does not count as zero */
    w->zero_sectors = zero_sectors(data, padded);
    w->crc = records_crc(w, data);
    fli_put_u16(data + 6, LOG_FORMAT_VERSION);
    uint8_t *end = fli_put_fields(data + HEADER_AT, header, HEADER_FIELDS, w);
    FLI_ASSERT(end == data + HEADER_END);
    uint32_t crc = header_crc(data);
    fli_put_u32(data + 8, crc);
    return crc;
}

/* Whether a header with a right checksum is here, of any version. */
static bool header_at(const uint8_t *data)
{
    return memcmp(data, magic, sizeof magic) == 0 && fli_get_u32(data + 8) == header_crc(data);
}

static void header_decode(const uint8_t *data, struct log_write *w)
{
    struct fli_reader r = {data + HEADER_AT, data + HEADER_END, false};
    fli_read_fields(&r, header, HEADER_FIELDS, w);
}

/* --- what a record does --- */

bool log_record_can_follow(const struct log_content *now, const struct log_record *r)
{
    const struct log_entries *t = &now->entries;
    uint64_t last_term = log_entries_term(t, t->last);
    switch (r->type) {
    case LOG_RECORD_ENTRY:
        return r->index == t->last + 1 && r->term >= last_term && r->term != 0 && r->kind != 0 &&
               r->index <= LOG_INDEX_MAX;
    case LOG_RECORD_TRUNCATE:
        return r->index != 0 && r->index <= t->last + 1 && r->term <= last_term &&
               (r->index < t->first || log_entries_term(t, r->index - 1) == r->term);
    case LOG_RECORD_RESET:
        return r->index <= LOG_INDEX_MAX;
    default:
        return r->type == LOG_RECORD_HARD_STATE;
    }
}

void log_record_apply(struct log_content *now, const struct log_record *r, uint32_t segment,
                      uint64_t offset)
{
    struct log_entries *t = &now->entries;
    switch (r->type) {
    case LOG_RECORD_ENTRY:
        log_entries_add(t, r->term, r->len, r->kind, segment, offset);
        break;
    case LOG_RECORD_TRUNCATE:
        if (r->index < t->first) {
            log_entries_reset(t, r->index - 1, r->term);
        } else {
            log_entries_truncate(t, r->index);
        }
        break;
    case LOG_RECORD_RESET:
        log_entries_reset(t, r->index, r->term);
        break;
    default:
        now->hard = (struct log_hard_state){.term = r->term, .vote = r->index};
        break;
    }
}

struct log_state log_state_of(const struct log_content *now)
{
    uint64_t last = now->entries.last;
    return (struct log_state){last, log_entries_term(&now->entries, last), now->hard, now->chain};
}

/* --- going through a segment --- */

/* What is found, beside errors. */
enum {
    CLEAN = 0, /* behind `at` there are only zeros */
    WHOLE = 1, /* at `at` was a write, and its records are applied */
    TORN = 2   /* from `at` to `next` are the remains of an unfinished write */
};

static int damaged(struct log_scan *s, size_t at, const char *why)
{
    s->at = at;
    snprintf(s->why, sizeof s->why, "%s", why);
    return FL_ECORRUPT;
}

/* The end of the last sector at or behind `from` that is not zero; `from` when all are. */
static size_t content_end(const struct log_scan *s, size_t from)
{
    size_t end = s->len;
    while (end > from && log_is_zero(s->data + end - LOG_SECTOR, LOG_SECTOR)) {
        end -= LOG_SECTOR;
    }
    return end;
}

/* The remains of a write of at most `most` bytes, up to `next`, unless a whole header of this log
 * begins at a block's boundary at or behind `from`: its write was begun after this one was done. */
static int torn(struct log_scan *s, size_t from, size_t most)
{
    for (size_t p = from; p + LOG_WRITE_HEADER <= s->len; p += LOG_BLOCK) {
        const uint8_t *later = s->data + p;
        if (header_at(later) && (s->last_in == 0 || fli_get_u64(later + 16) == s->log_id)) {
            snprintf(s->why, sizeof s->why,
                     "write %" PRIu64 " of the log should be here and whole, and write %" PRIu64
                     " is at byte %zu",
                     s->next_number, fli_get_u64(later + 24), p);
            return FL_ECORRUPT;
        }
    }
    s->next = content_end(s, s->at);
    return s->last_in == 0 || s->next - s->at > most
               ? damaged(s, s->at, "a part of this write is missing")
               : TORN;
}

/* NULL when a header with a right checksum belongs at this place; else the reason. */
static const char *header_wrong(const struct log_scan *s)
{
    const struct log_write *w = &s->write;
    if (s->last_in != 0 && w->log_id != s->log_id) {
        return "this write belongs to another log";
    }
    if (w->segment != s->segment || w->offset != s->at) {
        return "this write belongs to another place";
    }
    if (w->segment_size != s->len) {
        return "the segment has not the length that it had";
    }
    if (w->block < LOG_BLOCK || w->block > LOG_BLOCK_MAX || (w->block & (w->block - 1)) != 0 ||
        w->len < LOG_WRITE_HEADER || w->len > LOG_WRITE_MAX ||
        w->before.last_index > LOG_INDEX_MAX || log_round_up(w->len, w->block) > s->len - s->at ||
        w->number == 0) {
        return "the header of a write has impossible numbers";
    }
    if (s->last_in == 0) {
        return NULL;
    }
    if (w->number != s->next_number) {
        return w->number > s->next_number ? "writes are missing before this one"
                                          : "an older write is where a newer one should be";
    }
    struct log_state is = log_state_of(s->now);
    const struct log_state *b = &w->before;
    bool follows = b->last_index == is.last_index && b->last_term == is.last_term &&
                   b->hard.term == is.hard.term && b->hard.vote == is.hard.vote &&
                   b->chain == is.chain;
    return follows ? NULL : "this write does not follow the one before";
}

/* Applies the records of a write whose sectors are all there. */
static int scan_records(struct log_scan *s)
{
    size_t p = s->at + LOG_WRITE_HEADER;
    size_t end = s->at + s->write.len;
    struct log_record r;
    if (records_crc(&s->write, s->data + s->at) != s->write.crc) {
        return damaged(s, s->at, "the records of this write have a wrong checksum");
    }
    for (; p < end; p += log_record_size(r.len)) {
        if (!log_record_decode(s->data + p, end - p, &r) || !log_record_can_follow(s->now, &r)) {
            return damaged(s, p, "a record has an impossible length, type, index or term");
        }
        if (r.type == LOG_RECORD_ENTRY && log_entries_reserve(&s->now->entries) != 0) {
            return FL_ENOMEM;
        }
        log_record_apply(s->now, &r, s->segment, p);
    }
    return log_is_zero(s->data + end, s->next - end) ? WHOLE
                                                     : damaged(s, end, "padding is not zero");
}

static int scan_header(struct log_scan *s)
{
    const uint8_t *data = s->data + s->at;
    if (!header_at(data)) {
        return damaged(s, s->at, "the header of a write is damaged");
    }
    unsigned version = fli_get_u16(data + 6);
    if (version != LOG_FORMAT_VERSION) {
        snprintf(s->why, sizeof s->why, "its format is version %u, and this program knows %u",
                 version, LOG_FORMAT_VERSION);
        return FL_EVERSION;
    }
    header_decode(data, &s->write);
    const char *wrong = header_wrong(s);
    return wrong == NULL ? WHOLE : damaged(s, s->at, wrong);
}

/* Looks at the next write of the segment, and applies its records. */
static int scan_next(struct log_scan *s)
{
    s->at = s->next;
    if (s->at == s->len) {
        return CLEAN;
    }
    if (log_is_zero(s->data + s->at, LOG_SECTOR)) { /* nothing was written, or not the header */
        return content_end(s, s->at) == s->at ? CLEAN : torn(s, s->at, LOG_WRITE_MAX);
    }
    int found = scan_header(s);
    if (found != WHOLE) {
        return found;
    }
    const struct log_write *w = &s->write;
    s->next = s->at + log_round_up(w->len, w->block);
    if (zero_sectors(s->data + s->at, s->next - s->at) > w->zero_sectors) {
        return torn(s, s->at + LOG_BLOCK, s->next - s->at);
    }
    if (s->last_in == 0) {
        s->log_id = w->log_id;
        s->next_number = w->number;
        s->now->hard = w->before.hard;
        log_entries_reset(&s->now->entries, w->before.last_index, w->before.last_term);
    }
    s->now->chain = fli_get_u32(s->data + s->at + 8);
    s->next_number++;
    s->last_in = s->segment;
    s->last_at = s->at;
    s->end = s->next;
    return scan_records(s);
}

int log_scan_segment(struct log_scan *s, uint32_t segment, const uint8_t *data, size_t len)
{
    uint32_t last_in = s->last_in;
    s->segment = segment;
    s->data = data;
    s->len = len;
    s->next = 0;
    int found = scan_next(s);
    if (found != CLEAN && s->torn_in != 0) {
        s->segment = s->torn_in;
        return damaged(s, s->torn_at, "this write is not whole, and there are newer ones");
    }
    if (found != CLEAN && last_in != 0 && segment > last_in + 1) {
        s->segment = last_in + 1;
        return damaged(s, 0, "this segment is empty, and a newer one is not");
    }
    while (found == WHOLE) {
        found = scan_next(s);
    }
    if (found < 0) {
        return found;
    }
    if (found == TORN) {
        s->torn_in = segment;
        s->torn_at = s->at;
        s->torn_end = s->next;
    }
    return s->last_in != 0 ? 0 : damaged(s, 0, "the first write of the log is missing");
}
