/* format.h: the bytes of a snapshot file, unit by unit. Pure. The byte table is at the top
 * of format.c. */
#ifndef SNAPSHOT_FORMAT_H
#define SNAPSHOT_FORMAT_H

#include "log/log.h"
#include "snapshot/file.h"

#define SNAPSHOT_VERSION 2u
#define SNAPSHOT_HEADER ((size_t)40) /* without the configuration */
#define SNAPSHOT_UNIT_HEAD ((size_t)12)
#define SNAPSHOT_TRAILER ((size_t)28)
#define SNAPSHOT_UNIT_MAX (SNAPSHOT_UNIT_HEAD + SNAPSHOT_PIECE)
/* A log goes on behind a snapshot, and must not come to the end of its numbers. */
#define SNAPSHOT_INDEX_MAX (LOG_INDEX_MAX / 2)
#define SNAPSHOT_TERM_MAX (UINT64_MAX / 2)

enum snapshot_stage { SNAPSHOT_AT_HEADER, SNAPSHOT_AT_PIECE, SNAPSHOT_AT_END };

/* The state of a writer or reader that goes through a file from its beginning. */
struct snapshot_stream {
    enum snapshot_stage stage;
    uint32_t chain;  /* checksum of the last unit */
    uint64_t offset; /* of the next unit */
    uint64_t size;   /* bytes of data so far */
};

/* Each writes one unit to `out` (SNAPSHOT_UNIT_MAX bytes) and returns its length. A piece's data
 * must be at out + SNAPSHOT_UNIT_HEAD already. */
size_t snapshot_put_header(struct snapshot_stream *s, const struct snapshot_meta *meta,
                           uint8_t *out);
size_t snapshot_put_piece(struct snapshot_stream *s, size_t len, uint8_t *out);
size_t snapshot_put_trailer(struct snapshot_stream *s, const struct snapshot_meta *meta,
                            uint8_t *out);

/* The length of the unit that begins at data, as far as `have` bytes of it tell. If that is more
 * than `have`, read so many and ask again. 0: no unit begins like that, and *ret_why says why. */
size_t snapshot_unit_len(const struct snapshot_stream *s, const uint8_t *data, size_t have,
                         const char **ret_why);

/* Takes a whole unit. NULL, or what is wrong with it. A header sets *meta, a piece *ret_data, the
 * trailer the rest of *meta; it leads to SNAPSHOT_AT_END. */
const char *snapshot_take_unit(struct snapshot_stream *s, const uint8_t *data, size_t len,
                               struct snapshot_meta *meta, struct fli_slice *ret_data);

/* The `why` for a header of another version, and for one of something else. */
extern const char snapshot_other_version[], snapshot_foreign[];

/* snapshot-<index>-<term>, with 20 digits each, and .part or not. */
void snapshot_name(uint64_t index, uint64_t term, bool part, char out[LOG_NAME_MAX + 1]);
bool snapshot_name_parse(const char *name, uint64_t *ret_index, uint64_t *ret_term, bool *ret_part);

#endif
