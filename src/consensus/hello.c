/* hello.c: see hello.h for the byte table. */
#include "consensus/hello.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "machine/batch.h"
#include "machine/snapshot.h"

#define ADDRESS_OFFSET 56u
#define REASON_OFFSET 320u
#define ADMITTED_OFFSET 504u

_Static_assert(ADDRESS_OFFSET + MEMBER_ADDRESS_MAX <= REASON_OFFSET, "the address fits");
_Static_assert(REASON_OFFSET + TRANSPORT_REASON_MAX <= ADMITTED_OFFSET, "the reason fits");
_Static_assert(ADMITTED_OFFSET + 8 == HELLO_SIZE, "the index is the last");

_Static_assert(HELLO_PROTOCOL < 16 && MACHINE_BATCH_FORMAT < 16 && SNAPSHOT_FORMAT < 256,
               "the version has room for each");

static const char MAGIC[8] = {'f', 'e', 'n', 'c', 'e', 'l', 'o', 'k'};

uint16_t hello_version(void)
{
    return (uint16_t)(SNAPSHOT_FORMAT << 8 | MACHINE_BATCH_FORMAT << 4 | HELLO_PROTOCOL);
}

void hello_explain_version(const uint8_t in[HELLO_SIZE], char *out, size_t size)
{
    unsigned theirs = fli_get_u16(in + 12), ours = hello_version();
    snprintf(out, size,
             "it has protocol %u, log format %u, snapshot format %u, and this node %u, %u, %u: run "
             "one version of fencelock on all nodes",
             theirs & 15, theirs >> 4 & 15, theirs >> 8, ours & 15, ours >> 4 & 15, ours >> 8);
}

void hello_encode(const struct hello *h, uint8_t out[HELLO_SIZE])
{
    size_t address_len = strnlen(h->from.client_address, sizeof h->from.client_address - 1);
    size_t reason_len = strnlen(h->reason, sizeof h->reason - 1);
    FLI_ASSERT(h->kind == HELLO_RAFT || h->kind == HELLO_LINK);
    FLI_ASSERT(h->from.node_id != 0 && h->from.incarnation != 0);
    memset(out, 0, HELLO_SIZE);
    memcpy(out, MAGIC, sizeof MAGIC);
    fli_put_u16(out + 12, hello_version());
    out[14] = h->kind;
    out[15] = h->verdict;
    fli_put_u64(out + 16, h->from.cluster_id);
    fli_put_u64(out + 24, h->from.node_id);
    fli_put_u64(out + 32, h->from.incarnation);
    fli_put_u64(out + 40, h->target);
    fli_put_u32(out + 48, h->from.members_crc);
    fli_put_u16(out + 52, (uint16_t)address_len);
    fli_put_u16(out + 54, (uint16_t)reason_len);
    memcpy(out + ADDRESS_OFFSET, h->from.client_address, address_len);
    memcpy(out + REASON_OFFSET, h->reason, reason_len);
    fli_put_u64(out + ADMITTED_OFFSET, h->from.admitted_index);
    fli_put_u32(out + 8, fli_crc32c(0, out + 12, HELLO_SIZE - 12));
}

/* Copies a string that must be printable; false when it is not, or too long. */
static bool take_text(const uint8_t *in, size_t len, char *out, size_t size)
{
    if (len >= size) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (in[i] < 0x20 || in[i] > 0x7e) {
            return false;
        }
        out[i] = (char)in[i];
    }
    out[len] = '\0';
    return true;
}

int hello_decode(const uint8_t in[HELLO_SIZE], struct hello *ret)
{
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0 ||
        fli_get_u32(in + 8) != fli_crc32c(0, in + 12, HELLO_SIZE - 12)) {
        return FL_EPROTO;
    }
    if (fli_get_u16(in + 12) != hello_version()) {
        return FL_EVERSION;
    }
    struct hello h;
    memset(&h, 0, sizeof h);
    h.kind = in[14];
    h.verdict = in[15];
    h.from.cluster_id = fli_get_u64(in + 16);
    h.from.node_id = fli_get_u64(in + 24);
    h.from.incarnation = fli_get_u64(in + 32);
    h.target = fli_get_u64(in + 40);
    h.from.members_crc = fli_get_u32(in + 48);
    h.from.admitted_index = fli_get_u64(in + ADMITTED_OFFSET);
    if ((h.kind != HELLO_RAFT && h.kind != HELLO_LINK) || h.verdict > TRANSPORT_OTHER_VERSION ||
        h.from.node_id == 0 || h.from.incarnation == 0) {
        return FL_EPROTO;
    }
    if (!take_text(in + ADDRESS_OFFSET, fli_get_u16(in + 52), h.from.client_address,
                   sizeof h.from.client_address) ||
        !take_text(in + REASON_OFFSET, fli_get_u16(in + 54), h.reason, sizeof h.reason)) {
        return FL_EPROTO;
    }
    *ret = h;
    return 0;
}
