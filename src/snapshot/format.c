/* format.c: the bytes of a snapshot file. All numbers are little endian. The file is a chain of
 * units:
 *
 *             at  bytes
 *              0   4   CRC-32C of all that follows
 *              4   4   checksum of the unit before; of the first one "FLSN"
 *              8   4   length of the content
 *             12       content
 *
 *   header:   12   4   version of the format, 2
 *             16   8   index
 *             24   8   term
 *             32   8   index of the configuration
 *             40       configuration, as the caller encodes it
 *
 *   piece:    12       data, 1 to SNAPSHOT_PIECE bytes
 *
 *   trailer:  12   8   id of the node that made the file; the length is 0 here
 *             20   8   when it was made, ms since 1970
 *
 * Nodes with the same state at the same entry write the same bytes, but for the trailer. The
 * checksums are a chain, so no piece can be missing before the trailer. */
#include "snapshot/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static const char magic[4] = "FLSN";
static const char version_1[] = "FLKSNP"; /* with which it began */
static const char prefix[] = "snapshot-";
static const char suffix[] = ".part";
#define DIGITS 20
#define CONF_AT (SNAPSHOT_HEADER - SNAPSHOT_UNIT_HEAD)

const char snapshot_other_version[] = "its format is of another version";
const char snapshot_foreign[] = "this is not a snapshot of fencelock";
static const char impossible[] = "its header has impossible numbers";

/* Goes on behind a unit. */
static size_t pass(struct snapshot_stream *s, enum snapshot_stage stage, size_t len, uint32_t crc)
{
    s->stage = stage;
    s->chain = crc;
    s->offset += len;
    return len;
}

/* size: of the content, which is there already, as is what a trailer has in its place. */
static size_t seal(struct snapshot_stream *s, size_t size, size_t len, uint8_t *out)
{
    if (s->stage == SNAPSHOT_AT_HEADER) {
        memcpy(out + 4, magic, sizeof magic);
    } else {
        fli_put_u32(out + 4, s->chain);
    }
    fli_put_u32(out + 8, (uint32_t)size);
    uint32_t crc = fli_crc32c(0, out + 4, len - 4);
    fli_put_u32(out, crc);
    return pass(s, size == 0 ? SNAPSHOT_AT_END : SNAPSHOT_AT_PIECE, len, crc);
}

size_t snapshot_put_header(struct snapshot_stream *s, const struct snapshot_meta *meta,
                           uint8_t *out)
{
    FLI_ASSERT(s->stage == SNAPSHOT_AT_HEADER && meta->conf_len <= SNAPSHOT_CONF_MAX);
    fli_put_u32(out + 12, SNAPSHOT_VERSION);
    fli_put_u64(out + 16, meta->index);
    fli_put_u64(out + 24, meta->term);
    fli_put_u64(out + 32, meta->conf_index);
    memcpy(out + SNAPSHOT_HEADER, meta->conf, meta->conf_len);
    return seal(s, CONF_AT + meta->conf_len, SNAPSHOT_HEADER + meta->conf_len, out);
}

size_t snapshot_put_piece(struct snapshot_stream *s, size_t len, uint8_t *out)
{
    FLI_ASSERT(s->stage == SNAPSHOT_AT_PIECE && len > 0 && len <= SNAPSHOT_PIECE);
    s->size += len;
    return seal(s, len, SNAPSHOT_UNIT_HEAD + len, out);
}

size_t snapshot_put_trailer(struct snapshot_stream *s, const struct snapshot_meta *meta,
                            uint8_t *out)
{
    FLI_ASSERT(s->stage == SNAPSHOT_AT_PIECE);
    fli_put_u64(out + 12, meta->node_id);
    fli_put_u64(out + 20, meta->made_ms);
    return seal(s, 0, SNAPSHOT_TRAILER, out);
}

static size_t refuse(const char **ret_why, const char *why)
{
    *ret_why = why;
    return 0;
}

size_t snapshot_unit_len(const struct snapshot_stream *s, const uint8_t *data, size_t have,
                         const char **ret_why)
{
    FLI_ASSERT(s->stage != SNAPSHOT_AT_END);
    if (have < SNAPSHOT_UNIT_HEAD) {
        return SNAPSHOT_UNIT_HEAD;
    }
    uint32_t len = fli_get_u32(data + 8);
    if (s->stage == SNAPSHOT_AT_PIECE) {
        return len > SNAPSHOT_PIECE ? refuse(ret_why, "a piece has an impossible length")
               : len == 0           ? SNAPSHOT_TRAILER
                                    : SNAPSHOT_UNIT_HEAD + len;
    }
    if (memcmp(data + 4, magic, sizeof magic) != 0) {
        bool is_old = memcmp(data, version_1, sizeof version_1 - 1) == 0;
        return refuse(ret_why, is_old ? snapshot_other_version : snapshot_foreign);
    }
    return len < CONF_AT || len > CONF_AT + SNAPSHOT_CONF_MAX ? refuse(ret_why, impossible)
                                                              : SNAPSHOT_UNIT_HEAD + len;
}

static const char *take_header(const uint8_t *data, size_t len, struct snapshot_meta *meta)
{
    if (fli_get_u32(data + 12) != SNAPSHOT_VERSION) {
        return snapshot_other_version;
    }
    if (fli_get_u64(data + 16) > SNAPSHOT_INDEX_MAX || fli_get_u64(data + 24) > SNAPSHOT_TERM_MAX) {
        return impossible;
    }
    *meta = (struct snapshot_meta){.index = fli_get_u64(data + 16),
                                   .term = fli_get_u64(data + 24),
                                   .conf_index = fli_get_u64(data + 32),
                                   .conf_len = (uint32_t)(len - SNAPSHOT_HEADER)};
    memcpy(meta->conf, data + SNAPSHOT_HEADER, meta->conf_len);
    return NULL;
}

const char *snapshot_take_unit(struct snapshot_stream *s, const uint8_t *data, size_t len,
                               struct snapshot_meta *meta, struct fli_slice *ret_data)
{
    bool is_header = s->stage == SNAPSHOT_AT_HEADER;
    uint32_t crc = fli_get_u32(data);
    uint32_t size = fli_get_u32(data + 8);
    *ret_data = (struct fli_slice){0};
    if (crc != fli_crc32c(0, data + 4, len - 4)) {
        return is_header ? "its header has a wrong checksum" : "a piece has a wrong checksum";
    }
    if (!is_header && fli_get_u32(data + 4) != s->chain) {
        return "a piece does not follow the one before";
    }
    (void)pass(s, size == 0 ? SNAPSHOT_AT_END : SNAPSHOT_AT_PIECE, len, crc);
    if (is_header) {
        return take_header(data, len, meta);
    }
    s->size += size;
    if (size != 0) {
        *ret_data = (struct fli_slice){.data = data + SNAPSHOT_UNIT_HEAD, .len = size};
        return NULL;
    }
    meta->node_id = fli_get_u64(data + 12);
    meta->made_ms = fli_get_u64(data + 20);
    meta->size = s->size;
    meta->file_size = s->offset;
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
