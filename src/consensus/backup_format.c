/* backup_format.c: the bytes of a backup's header, little endian:
 *
 *    at  bytes
 *     0   8   "FLBACKUP"
 *     8   2   version of the format, 1
 *    10   2   zero
 *    12   4   CRC-32C of the header without these four bytes
 *    16   8   cluster id
 *    24   8   when it was made, ms since 1970
 *    32   8   last token
 *    40   8   index
 *    48   8   term
 *    56   8   node id
 *    64   8   bytes behind the header */
#include "consensus/backup_format.h"

#include <string.h>

#include "base/fields.h"

#define CRC_AT 12u

static const char magic[8] = {'F', 'L', 'B', 'A', 'C', 'K', 'U', 'P'};

/* From byte 16 on. */
#define FIELD(name)                                                                                \
    {                                                                                              \
        FLI_U64, offsetof(struct backup_header, name)                                              \
    }
static const struct fli_field fields[] = {
    FIELD(cluster_id), FIELD(made_ms), FIELD(last_token), FIELD(index),
    FIELD(term),       FIELD(node_id), FIELD(body),
};
#define FIELDS_AT 16u
#define FIELDS (sizeof fields / sizeof fields[0])

static uint32_t header_crc(const uint8_t *data)
{
    return fli_crc32c(fli_crc32c(0, data, CRC_AT), data + CRC_AT + 4, BACKUP_HEADER - CRC_AT - 4);
}

void backup_header_encode(const struct backup_header *h, uint8_t out[BACKUP_HEADER])
{
    memset(out, 0, BACKUP_HEADER);
    memcpy(out, magic, sizeof magic);
    fli_put_u16(out + 8, BACKUP_VERSION);
    (void)fli_put_fields(out + FIELDS_AT, fields, FIELDS, h);
    fli_put_u32(out + CRC_AT, header_crc(out));
}

int backup_header_decode(const uint8_t data[BACKUP_HEADER], struct backup_header *ret,
                         const char **ret_why)
{
    if (memcmp(data, magic, sizeof magic) != 0) {
        *ret_why = "it is no backup of fencelock";
        return FL_ECORRUPT;
    }
    if (fli_get_u32(data + CRC_AT) != header_crc(data)) {
        *ret_why = "its header is damaged";
        return FL_ECORRUPT;
    }
    if (fli_get_u16(data + 8) != BACKUP_VERSION || fli_get_u16(data + 10) != 0) {
        *ret_why = "its format is of another version";
        return FL_EVERSION;
    }
    struct fli_reader r = {data + FIELDS_AT, data + BACKUP_HEADER, false};
    fli_read_fields(&r, fields, FIELDS, ret);
    if (ret->cluster_id == 0 || ret->last_token > FL_TOKEN_MAX || ret->index == 0 ||
        ret->term == 0 || ret->node_id == 0) {
        *ret_why = "its header has a number that cannot be";
        return FL_ECORRUPT;
    }
    return 0;
}
