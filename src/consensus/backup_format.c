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

#include "base/bytes.h"

#define CRC_AT 12u

static const char magic[8] = {'F', 'L', 'B', 'A', 'C', 'K', 'U', 'P'};

static uint32_t header_crc(const uint8_t *data)
{
    return fli_crc32c(fli_crc32c(0, data, CRC_AT), data + CRC_AT + 4, BACKUP_HEADER - CRC_AT - 4);
}

void backup_header_encode(const struct backup_header *h, uint8_t out[BACKUP_HEADER])
{
    memset(out, 0, BACKUP_HEADER);
    memcpy(out, magic, sizeof magic);
    fli_put_u16(out + 8, BACKUP_VERSION);
    fli_put_u64(out + 16, h->cluster_id);
    fli_put_u64(out + 24, h->made_ms);
    fli_put_u64(out + 32, h->last_token);
    fli_put_u64(out + 40, h->index);
    fli_put_u64(out + 48, h->term);
    fli_put_u64(out + 56, h->node_id);
    fli_put_u64(out + 64, h->body);
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
    *ret = (struct backup_header){.cluster_id = fli_get_u64(data + 16),
                                  .made_ms = fli_get_u64(data + 24),
                                  .last_token = fli_get_u64(data + 32),
                                  .index = fli_get_u64(data + 40),
                                  .term = fli_get_u64(data + 48),
                                  .node_id = fli_get_u64(data + 56),
                                  .body = fli_get_u64(data + 64)};
    if (ret->cluster_id == 0 || ret->last_token > FL_TOKEN_MAX || ret->index == 0 ||
        ret->term == 0 || ret->node_id == 0) {
        *ret_why = "its header has a number that cannot be";
        return FL_ECORRUPT;
    }
    return 0;
}
