/* fuzz_handshake.c: the first bytes of a peer of any kind. What is taken for a handshake must be
 * within its ranges, fit to be written to a log, and be the same bytes when it is encoded again; a
 * refusal must name nobody. A short input is filled up with zeros. It is tried as it is, and with
 * magic, checksum and perhaps the version put right, since no fuzzer guesses those. */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "peer/handshake.h"

#define CHECKED_AT 12
#define REASON_ROOM 1024

static const struct handshake_formats FORMATS = {.low = 3, .high = 5};

static void check_text(const char *text, size_t size)
{
    size_t len = strnlen(text, size);
    FLI_ASSERT(len < size);
    for (size_t i = 0; i < len; i++) {
        FLI_ASSERT(text[i] >= ' ' && text[i] <= '~');
    }
}

/* Room for more than a reason shows that a reason has room for it. */
static void check_version(const uint8_t in[HANDSHAKE_SIZE])
{
    char room[REASON_ROOM];
    char reason[HANDSHAKE_REASON_MAX];
    handshake_explain_version(in, &FORMATS, room, sizeof room);
    handshake_explain_version(in, &FORMATS, reason, sizeof reason);
    check_text(reason, sizeof reason);
    FLI_ASSERT(strcmp(room, reason) == 0);
}

static void check_identity(const struct handshake *h)
{
    static const struct peer_identity nobody;
    if (h->verdict != 0 && h->verdict != HANDSHAKE_WELCOME) {
        FLI_ASSERT(memcmp(&h->from, &nobody, sizeof nobody) == 0);
    } else {
        FLI_ASSERT(h->from.node_id != 0 && h->from.incarnation != 0);
    }
}

static void try_decode(const uint8_t in[HANDSHAKE_SIZE])
{
    static const struct handshake untouched = {.verdict = 77};
    struct handshake h = untouched;
    uint8_t out[HANDSHAKE_SIZE];
    int rc = handshake_decode(in, &FORMATS, &h);
    if (rc != 0) {
        FLI_ASSERT(rc == FL_EPROTO || rc == FL_EVERSION);
        FLI_ASSERT(memcmp(&h, &untouched, sizeof h) == 0);
        if (rc == FL_EVERSION) {
            check_version(in);
        }
        return;
    }
    FLI_ASSERT(h.kind >= 1 && (unsigned)h.kind <= STREAM_KINDS);
    FLI_ASSERT(h.verdict <= HANDSHAKE_REMOVED);
    check_identity(&h);
    check_text(h.from.client_address, sizeof h.from.client_address);
    check_text(h.reason, sizeof h.reason);
    handshake_encode(&h, &FORMATS, out);
    FLI_ASSERT(memcmp(in, out, sizeof out) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t magic[8] = {'f', 'e', 'n', 'c', 'e', 'l', 'o', 'k'};
    uint8_t in[HANDSHAKE_SIZE] = {0};
    if (size > sizeof in) {
        return 0;
    }
    if (size > 0) {
        memcpy(in, data, size);
    }
    try_decode(in);
    memcpy(in, magic, sizeof magic);
    for (unsigned i = 0; i < 2; i++) {
        fli_put_u32(in + 8, fli_crc32c(0, in + CHECKED_AT, HANDSHAKE_SIZE - CHECKED_AT));
        try_decode(in);
        fli_put_u16(in + 12, HANDSHAKE_PROTOCOL);
        fli_put_u16(in + 14, FORMATS.low);
        fli_put_u16(in + 16, FORMATS.high);
    }
    return 0;
}
