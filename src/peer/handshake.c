/* handshake.c: see handshake.h for the byte table. */
#include "peer/handshake.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

#define CRC_OFFSET 8u
#define CHECKED_OFFSET 12u
#define ZEROS_OFFSET 70u
#define ADDRESS_OFFSET 72u
#define REASON_OFFSET 336u
#define PEER_OFFSET 512u
#define START_OFFSET 776u
#define LOG_OFFSET 792u

_Static_assert(ADDRESS_OFFSET + MEMBER_ADDRESS_MAX == REASON_OFFSET, "the address fits");
_Static_assert(REASON_OFFSET + HANDSHAKE_REASON_MAX == PEER_OFFSET, "the reason fits");
_Static_assert(PEER_OFFSET + MEMBER_ADDRESS_MAX == START_OFFSET, "the peer address fits");
_Static_assert(LOG_OFFSET + 16 == HANDSHAKE_SIZE, "the log's place ends it");

static const uint8_t MAGIC[8] = {'f', 'e', 'n', 'c', 'e', 'l', 'o', 'k'};

static bool is_refusal(uint8_t verdict)
{
    return verdict != 0 && verdict != HANDSHAKE_WELCOME;
}

static bool is_zero(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (p[i] != 0) {
            return false;
        }
    }
    return true;
}

void handshake_encode(const struct handshake *h, const struct handshake_formats *formats,
                      uint8_t out[HANDSHAKE_SIZE])
{
    const struct peer_identity *from = &h->from;
    size_t address_len = strnlen(from->client_address, sizeof from->client_address - 1);
    size_t peer_len = strnlen(from->peer_address, sizeof from->peer_address - 1);
    size_t reason_len = strnlen(h->reason, sizeof h->reason - 1);
    FLI_ASSERT(h->kind >= 1 && (unsigned)h->kind <= STREAM_KINDS);
    FLI_ASSERT(is_refusal(h->verdict) == (from->node_id == 0 && from->incarnation == 0));
    memset(out, 0, HANDSHAKE_SIZE);
    memcpy(out, MAGIC, sizeof MAGIC);
    fli_put_u16(out + 12, HANDSHAKE_PROTOCOL);
    fli_put_u16(out + 14, formats->low);
    fli_put_u16(out + 16, formats->high);
    out[18] = (uint8_t)h->kind;
    out[19] = h->verdict;
    fli_put_u32(out + 20, from->members_crc);
    fli_put_u64(out + 24, from->cluster_id);
    fli_put_u64(out + 32, from->node_id);
    fli_put_u64(out + 40, from->incarnation);
    fli_put_u64(out + 48, h->target);
    fli_put_u64(out + 56, from->member_index);
    fli_put_u16(out + 64, (uint16_t)address_len);
    fli_put_u16(out + 66, (uint16_t)reason_len);
    fli_put_u16(out + 68, (uint16_t)peer_len);
    memcpy(out + PEER_OFFSET, from->peer_address, peer_len);
    memcpy(out + ADDRESS_OFFSET, from->client_address, address_len);
    memcpy(out + REASON_OFFSET, h->reason, reason_len);
    fli_put_u64(out + START_OFFSET, from->start.number);
    fli_put_u64(out + START_OFFSET + 8, from->start.nonce);
    fli_put_u64(out + LOG_OFFSET, from->term);
    fli_put_u64(out + LOG_OFFSET + 8, from->last_index);
    fli_put_u32(out + CRC_OFFSET,
                fli_crc32c(0, out + CHECKED_OFFSET, HANDSHAKE_SIZE - CHECKED_OFFSET));
}

/* Copies a string that must be printable, and padded with zeros; false when it is not. */
static bool take_text(const uint8_t *in, size_t len, char *out, size_t size)
{
    if (len >= size || !is_zero(in + len, size - len)) {
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

/* A dialing or welcoming node names itself; a refusing node does not. */
static bool identity_fits(const struct handshake *h)
{
    const struct peer_identity *from = &h->from;
    if (!is_refusal(h->verdict)) {
        return from->node_id != 0 && from->incarnation != 0 && from->start.number != 0;
    }
    static const struct peer_identity nobody;
    return memcmp(from, &nobody, sizeof nobody) == 0;
}

int handshake_decode(const uint8_t in[HANDSHAKE_SIZE], const struct handshake_formats *formats,
                     struct handshake *ret)
{
    struct handshake h;
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0 ||
        fli_get_u32(in + CRC_OFFSET) !=
            fli_crc32c(0, in + CHECKED_OFFSET, HANDSHAKE_SIZE - CHECKED_OFFSET)) {
        return FL_EPROTO;
    }
    if (fli_get_u16(in + 12) != HANDSHAKE_PROTOCOL || fli_get_u16(in + 14) > formats->high ||
        fli_get_u16(in + 16) < formats->low) {
        return FL_EVERSION;
    }
    memset(&h, 0, sizeof h);
    if (in[18] < 1 || in[18] > STREAM_KINDS || in[19] > HANDSHAKE_WENT_BACK ||
        !is_zero(in + ZEROS_OFFSET, ADDRESS_OFFSET - ZEROS_OFFSET)) {
        return FL_EPROTO;
    }
    h.kind = (enum stream_kind)in[18];
    h.verdict = in[19];
    h.from.members_crc = fli_get_u32(in + 20);
    h.from.version = is_refusal(h.verdict) ? 0 : fli_get_u16(in + 16);
    h.from.cluster_id = fli_get_u64(in + 24);
    h.from.node_id = fli_get_u64(in + 32);
    h.from.incarnation = fli_get_u64(in + 40);
    h.target = fli_get_u64(in + 48);
    h.from.member_index = fli_get_u64(in + 56);
    h.from.start.number = fli_get_u64(in + START_OFFSET);
    h.from.start.nonce = fli_get_u64(in + START_OFFSET + 8);
    h.from.term = fli_get_u64(in + LOG_OFFSET);
    h.from.last_index = fli_get_u64(in + LOG_OFFSET + 8);
    h.from.asks_raft = h.verdict == 0 && h.kind == STREAM_RAFT;
    if (!take_text(in + ADDRESS_OFFSET, fli_get_u16(in + 64), h.from.client_address,
                   sizeof h.from.client_address) ||
        !take_text(in + PEER_OFFSET, fli_get_u16(in + 68), h.from.peer_address,
                   sizeof h.from.peer_address) ||
        !take_text(in + REASON_OFFSET, fli_get_u16(in + 66), h.reason, sizeof h.reason) ||
        !identity_fits(&h)) {
        return FL_EPROTO;
    }
    *ret = h;
    return 0;
}

void handshake_explain_version(const uint8_t in[HANDSHAKE_SIZE],
                               const struct handshake_formats *formats, char *out, size_t size)
{
    unsigned theirs = fli_get_u16(in + 12);
    if (theirs != HANDSHAKE_PROTOCOL) {
        snprintf(out, size,
                 "it has protocol %u, and this node %u: run one version of fencelock on all nodes",
                 theirs, HANDSHAKE_PROTOCOL);
        return;
    }
    snprintf(out, size,
             "it knows versions %u to %u of log and snapshots, and this node %u to %u: upgrade by "
             "way of a version that both know",
             fli_get_u16(in + 14), fli_get_u16(in + 16), formats->low, formats->high);
}

const char *handshake_verdict_text(enum handshake_verdict verdict)
{
    static const char *const TEXTS[] = {
        [HANDSHAKE_WELCOME] = "welcome",
        [HANDSHAKE_STRANGER] =
            "it does not take this node for a member, or is not the node that was called",
        [HANDSHAKE_OTHER_CLUSTER] =
            "it belongs to another cluster: look whether the data directory is the right one",
        [HANDSHAKE_OTHER_MEMBERS] =
            "its cluster began with other members: give all nodes the same, or join with --join",
        [HANDSHAKE_OTHER_INCARNATION] =
            "it knows this node with other data: run fencelock cluster replace",
        [HANDSHAKE_OTHER_VERSION] =
            "it is of another version: run one version of fencelock on all nodes",
        [HANDSHAKE_REMOVED] = "this node was removed from the cluster",
        [HANDSHAKE_WENT_BACK] = "it knows that the data directory of this node is an older copy",
    };
    const char *text = verdict < sizeof TEXTS / sizeof TEXTS[0] ? TEXTS[verdict] : NULL;
    return text != NULL ? text : "no reason that is known here";
}
