/* format.c: the bytes of a snapshot file. All numbers are little endian.
 *
 *   header:   at  bytes
 *              0   6   "FLKSNP"
 *              6   2   version of the format, 1
 *              8   4   CRC-32C of the header without these four bytes
 *             12   4   length of the configuration
 *             16   8   index
 *             24   8   term
 *             32   8   index of the configuration
 *             40       configuration, as the caller encodes it
 *
 *   piece:     0   4   CRC-32C of all that follows
 *              4   4   checksum of the unit before (header or piece)
 *              8   4   length of data: SNAPSHOT_PIECE, in the last piece 1 to that
 *             12       data
 *
 *   trailer:   0  12   as a piece, with length 0
 *             12   8   pieces
 *             20   8   bytes of data in all */
#include "snapshot/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static const char magic[6] = "FLKSNP";
static const char prefix[] = "snapshot-";
static const char suffix[] = ".part";
#define DIGITS 20

const char snapshot_other_version[] = "its format is of another version";
static const char impossible[] = "its header has impossible numbers";

static uint32_t header_crc(const uint8_t *data, size_t len)
{
    return fli_crc32c(fli_crc32c(0, data, 8), data + 12, len - 12);
}

static size_t unit_put(struct snapshot_stream *s, size_t len, uint32_t crc)
{
    s->chain = crc;
    s->offset += len;
    return len;
}

size_t snapshot_put_header(struct snapshot_stream *s, const struct snapshot_meta *meta,
                           uint8_t *out)
{
    size_t len = SNAPSHOT_HEADER + meta->conf_len;
    FLI_ASSERT(s->stage == SNAPSHOT_AT_HEADER && meta->conf_len <= SNAPSHOT_CONF_MAX);
    memcpy(out, magic, sizeof magic);
    fli_put_u16(out + 6, SNAPSHOT_VERSION);
    fli_put_u32(out + 12, meta->conf_len);
    fli_put_u64(out + 16, meta->index);
    fli_put_u64(out + 24, meta->term);
    fli_put_u64(out + 32, meta->conf_index);
    memcpy(out + SNAPSHOT_HEADER, meta->conf, meta->conf_len);
    uint32_t crc = header_crc(out, len);
    fli_put_u32(out + 8, crc);
    s->stage = SNAPSHOT_AT_PIECE;
    return unit_put(s, len, crc);
}

size_t snapshot_put_piece(struct snapshot_stream *s, size_t len, uint8_t *out)
{
    FLI_ASSERT(s->stage == SNAPSHOT_AT_PIECE && !s->short_piece);
    FLI_ASSERT(len > 0 && len <= SNAPSHOT_PIECE);
    fli_put_u32(out + 4, s->chain);
    fli_put_u32(out + 8, (uint32_t)len);
    uint32_t crc = fli_crc32c(0, out + 4, SNAPSHOT_PIECE_HEADER - 4 + len);
    fli_put_u32(out, crc);
    s->pieces++;
    s->size += len;
    s->short_piece = len < SNAPSHOT_PIECE;
    return unit_put(s, SNAPSHOT_PIECE_HEADER + len, crc);
}

size_t snapshot_put_trailer(struct snapshot_stream *s, uint8_t *out)
{
    FLI_ASSERT(s->stage == SNAPSHOT_AT_PIECE);
    fli_put_u32(out + 4, s->chain);
    fli_put_u32(out + 8, 0);
    fli_put_u64(out + 12, s->pieces);
    fli_put_u64(out + 20, s->size);
    uint32_t crc = fli_crc32c(0, out + 4, SNAPSHOT_TRAILER - 4);
    fli_put_u32(out, crc);
    s->stage = SNAPSHOT_AT_END;
    return unit_put(s, SNAPSHOT_TRAILER, crc);
}

static size_t refuse(const char **ret_why, const char *why)
{
    *ret_why = why;
    return 0;
}

size_t snapshot_unit_len(const struct snapshot_stream *s, const uint8_t *data, size_t have,
                         const char **ret_why)
{
    if (s->stage == SNAPSHOT_AT_END) {
        return refuse(ret_why, "there are bytes behind its end");
    }
    if (s->stage == SNAPSHOT_AT_HEADER) {
        if (have < SNAPSHOT_HEADER) {
            return SNAPSHOT_HEADER;
        }
        if (memcmp(data, magic, sizeof magic) != 0) {
            return refuse(ret_why, "this is not a snapshot of fencelock");
        }
        uint32_t conf_len = fli_get_u32(data + 12);
        return conf_len > SNAPSHOT_CONF_MAX ? refuse(ret_why, impossible)
                                            : SNAPSHOT_HEADER + conf_len;
    }
    if (have < SNAPSHOT_PIECE_HEADER) {
        return SNAPSHOT_PIECE_HEADER;
    }
    uint32_t len = fli_get_u32(data + 8);
    if (len > SNAPSHOT_PIECE) {
        return refuse(ret_why, "a piece has an impossible length");
    }
    return len == 0 ? SNAPSHOT_TRAILER : SNAPSHOT_PIECE_HEADER + len;
}

static const char *take_header(struct snapshot_stream *s, const uint8_t *data, size_t len,
                               struct snapshot_meta *meta)
{
    uint32_t crc = fli_get_u32(data + 8);
    if (crc != header_crc(data, len)) {
        return "its header has a wrong checksum";
    }
    if (fli_get_u16(data + 6) != SNAPSHOT_VERSION) {
        return snapshot_other_version;
    }
    if (fli_get_u64(data + 16) > SNAPSHOT_INDEX_MAX || fli_get_u64(data + 24) > SNAPSHOT_TERM_MAX) {
        return impossible;
    }
    *meta = (struct snapshot_meta){.index = fli_get_u64(data + 16),
                                   .term = fli_get_u64(data + 24),
                                   .conf_index = fli_get_u64(data + 32),
                                   .conf_len = fli_get_u32(data + 12)};
    memcpy(meta->conf, data + SNAPSHOT_HEADER, meta->conf_len);
    s->stage = SNAPSHOT_AT_PIECE;
    (void)unit_put(s, len, crc);
    return NULL;
}

const char *snapshot_take_unit(struct snapshot_stream *s, const uint8_t *data, size_t len,
                               struct snapshot_meta *meta, struct fli_slice *ret_data)
{
    FLI_ASSERT(s->stage != SNAPSHOT_AT_END);
    *ret_data = (struct fli_slice){0};
    if (s->stage == SNAPSHOT_AT_HEADER) {
        return take_header(s, data, len, meta);
    }
    uint32_t crc = fli_get_u32(data);
    if (crc != fli_crc32c(0, data + 4, len - 4)) {
        return "a piece has a wrong checksum";
    }
    if (fli_get_u32(data + 4) != s->chain) {
        return "a piece does not follow the one before";
    }
    uint32_t size = fli_get_u32(data + 8);
    if (size == 0) {
        if (fli_get_u64(data + 12) != s->pieces || fli_get_u64(data + 20) != s->size) {
            return "its end does not fit the pieces before it";
        }
        meta->size = s->size;
        s->stage = SNAPSHOT_AT_END;
    } else {
        if (s->short_piece) {
            return "there is a piece behind the last one";
        }
        s->pieces++;
        s->size += size;
        s->short_piece = size < SNAPSHOT_PIECE;
        *ret_data = (struct fli_slice){.data = data + SNAPSHOT_PIECE_HEADER, .len = size};
    }
    (void)unit_put(s, len, crc);
    return NULL;
}

void snapshot_name(uint64_t index, uint64_t term, bool part, char out[LOG_NAME_MAX + 1])
{
    snprintf(out, LOG_NAME_MAX + 1, "%s%0*" PRIu64 "-%0*" PRIu64 "%s", prefix, DIGITS, index,
             DIGITS, term, part ? suffix : "");
}

bool snapshot_name_parse(const char *name, uint64_t *ret_index, uint64_t *ret_term, bool *ret_part)
{
    const char *p = name + sizeof prefix - 1;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || strlen(p) < 2 * DIGITS + 1 ||
        p[DIGITS] != '-') {
        return false;
    }
    const char *end = p + 2 * DIGITS + 1;
    bool part = strcmp(end, suffix) == 0;
    if ((!part && *end != '\0') || !fli_parse_u64(p, DIGITS, UINT64_MAX, ret_index) ||
        !fli_parse_u64(p + DIGITS + 1, DIGITS, UINT64_MAX, ret_term)) {
        return false;
    }
    *ret_part = part;
    return true;
}
