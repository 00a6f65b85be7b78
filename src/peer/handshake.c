/* handshake.c: see handshake.h. */
#include "peer/handshake.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

/* Numbers are little endian; zeros follow each text. */
struct layout {
    uint8_t magic[8];        /* "fencelok" */
    uint8_t crc[4];          /* CRC-32C of the bytes behind it */
    uint8_t protocol[2];     /* HANDSHAKE_PROTOCOL; what follows is read only when it is the same */
    uint8_t low[2];          /* the lowest version of log and snapshots that the sender can read */
    uint8_t high[2];         /* the highest one that it knows */
    uint8_t kind;            /* of stream, enum stream_kind */
    uint8_t verdict;         /* 0 from the dialer, enum handshake_verdict in the answer */
    uint8_t members_crc[4];  /* of the members that the cluster began with; 0: not known */
    uint8_t cluster_id[8];   /* 0 when not known yet */
    uint8_t node_id[8];      /* the sender's */
    uint8_t incarnation[8];  /* the sender's: the server that it is in the Raft group */
    uint8_t target[8];       /* node id of the one that is meant */
    uint8_t member_index[8]; /* as in struct peer_identity */
    uint8_t client_len[2], reason_len[2], peer_len[2];
    uint8_t guesses, zero;
    uint8_t client_address[MEMBER_ADDRESS_MAX];
    uint8_t reason[HANDSHAKE_REASON_MAX];
    uint8_t peer_address[MEMBER_ADDRESS_MAX]; /* where others reach the sender */
    uint8_t start_number[8], start_nonce[8];  /* of the sender's start */
    uint8_t term[8], last_index[8];           /* of the last entry that its log has */
};

_Static_assert(sizeof(struct layout) == HANDSHAKE_SIZE, "no byte lies between the fields");

#define CHECKED_OFFSET offsetof(struct layout, protocol)

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
    struct layout *l = (struct layout *)out;
    const struct peer_identity *from = &h->from;
    size_t address_len = strnlen(from->client_address, sizeof from->client_address - 1);
    size_t peer_len = strnlen(from->peer_address, sizeof from->peer_address - 1);
    size_t reason_len = strnlen(h->reason, sizeof h->reason - 1);
    FLI_ASSERT(h->kind >= 1 && (unsigned)h->kind <= STREAM_KINDS);
    FLI_ASSERT(is_refusal(h->verdict) == (from->node_id == 0 && from->incarnation == 0));
    memset(out, 0, HANDSHAKE_SIZE);
    memcpy(l->magic, MAGIC, sizeof MAGIC);
    fli_put_u16(l->protocol, HANDSHAKE_PROTOCOL);
    fli_put_u16(l->low, formats->low);
    fli_put_u16(l->high, formats->high);
    l->kind = (uint8_t)h->kind;
    l->verdict = h->verdict;
    fli_put_u32(l->members_crc, from->members_crc);
    fli_put_u64(l->cluster_id, from->cluster_id);
    fli_put_u64(l->node_id, from->node_id);
    fli_put_u64(l->incarnation, from->incarnation);
    fli_put_u64(l->target, h->target);
    fli_put_u64(l->member_index, from->member_index);
    fli_put_u16(l->client_len, (uint16_t)address_len);
    fli_put_u16(l->reason_len, (uint16_t)reason_len);
    fli_put_u16(l->peer_len, (uint16_t)peer_len);
    l->guesses = from->guesses;
    memcpy(l->peer_address, from->peer_address, peer_len);
    memcpy(l->client_address, from->client_address, address_len);
    memcpy(l->reason, h->reason, reason_len);
    fli_put_u64(l->start_number, from->start.number);
    fli_put_u64(l->start_nonce, from->start.nonce);
    fli_put_u64(l->term, from->term);
    fli_put_u64(l->last_index, from->last_index);
    fli_put_u32(l->crc, fli_crc32c(0, out + CHECKED_OFFSET, HANDSHAKE_SIZE - CHECKED_OFFSET));
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
    return is_zero((const uint8_t *)from, sizeof *from);
}

int handshake_decode(const uint8_t in[HANDSHAKE_SIZE], const struct handshake_formats *formats,
                     struct handshake *ret)
{
    const struct layout *l = (const struct layout *)in;
    struct handshake h;
    if (memcmp(l->magic, MAGIC, sizeof MAGIC) != 0 ||
        fli_get_u32(l->crc) !=
            fli_crc32c(0, in + CHECKED_OFFSET, HANDSHAKE_SIZE - CHECKED_OFFSET)) {
        return FL_EPROTO;
    }
    if (fli_get_u16(l->protocol) != HANDSHAKE_PROTOCOL || fli_get_u16(l->low) > formats->high ||
        fli_get_u16(l->high) < formats->low) {
        return FL_EVERSION;
    }
    memset(&h, 0, sizeof h);
    if (l->kind < 1 || l->kind > STREAM_KINDS || l->verdict > HANDSHAKE_WENT_BACK ||
        l->guesses > 1 || l->zero != 0) {
        return FL_EPROTO;
    }
    h.kind = (enum stream_kind)l->kind;
    h.verdict = l->verdict;
    h.from.members_crc = fli_get_u32(l->members_crc);
    h.from.version = is_refusal(h.verdict) ? 0 : fli_get_u16(l->high);
    h.from.cluster_id = fli_get_u64(l->cluster_id);
    h.from.node_id = fli_get_u64(l->node_id);
    h.from.incarnation = fli_get_u64(l->incarnation);
    h.target = fli_get_u64(l->target);
    h.from.member_index = fli_get_u64(l->member_index);
    h.from.start.number = fli_get_u64(l->start_number);
    h.from.start.nonce = fli_get_u64(l->start_nonce);
    h.from.guesses = l->guesses == 1;
    h.from.term = fli_get_u64(l->term);
    h.from.last_index = fli_get_u64(l->last_index);
    h.from.asks_raft = h.verdict == 0 && h.kind == STREAM_RAFT;
    if (!take_text(l->client_address, fli_get_u16(l->client_len), h.from.client_address,
                   sizeof h.from.client_address) ||
        !take_text(l->peer_address, fli_get_u16(l->peer_len), h.from.peer_address,
                   sizeof h.from.peer_address) ||
        !take_text(l->reason, fli_get_u16(l->reason_len), h.reason, sizeof h.reason) ||
        !identity_fits(&h)) {
        return FL_EPROTO;
    }
    *ret = h;
    return 0;
}

void handshake_explain_version(const uint8_t in[HANDSHAKE_SIZE],
                               const struct handshake_formats *formats, char *out, size_t size)
{
    const struct layout *l = (const struct layout *)in;
    unsigned theirs = fli_get_u16(l->protocol);
    if (theirs != HANDSHAKE_PROTOCOL) {
        snprintf(out, size,
                 "it has protocol %u, and this node %u: run one version of fencelock on all nodes",
                 theirs, HANDSHAKE_PROTOCOL);
        return;
    }
    snprintf(out, size,
             "it knows versions %u to %u of log and snapshots, and this node %u to %u: upgrade by "
             "way of a version that both know",
             fli_get_u16(l->low), fli_get_u16(l->high), formats->low, formats->high);
}

const char *handshake_verdict_text(enum handshake_verdict verdict)
{
    return verdict == HANDSHAKE_OTHER_CLUSTER
               ? "it belongs to another cluster: look whether the data directory is the right one"
           : verdict == HANDSHAKE_OTHER_MEMBERS ? "its cluster began with other members: give all "
                                                  "nodes the same, or join with --join"
                                                : "it tells no reason";
}
