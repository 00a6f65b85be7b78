/* fuzz_hello.c: the first bytes of a peer of any kind. What is taken for a hello must be within its
 * ranges, fit to be written to a log, and mean the same when it is encoded again. A short input is
 * filled up with zeros. It is tried as it is, and with magic, checksum and perhaps the version put
 * right, since no fuzzer guesses those. */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "consensus/hello.h"

#define CHECKED_AT 12
#define REASON_ROOM 1024

static void check_text(const char *text, size_t size)
{
    size_t len = strnlen(text, size);
    FLI_ASSERT(len < size);
    for (size_t i = 0; i < len; i++) {
        FLI_ASSERT(text[i] >= ' ' && text[i] <= '~');
    }
}

static void check_same(const struct hello *a, const struct hello *b)
{
    FLI_ASSERT(a->kind == b->kind && a->verdict == b->verdict && a->target == b->target);
    FLI_ASSERT(a->from.cluster_id == b->from.cluster_id);
    FLI_ASSERT(a->from.node_id == b->from.node_id);
    FLI_ASSERT(a->from.incarnation == b->from.incarnation);
    FLI_ASSERT(a->from.members_crc == b->from.members_crc);
    FLI_ASSERT(a->from.admitted_index == b->from.admitted_index);
    FLI_ASSERT(strcmp(a->from.client_address, b->from.client_address) == 0);
    FLI_ASSERT(strcmp(a->reason, b->reason) == 0);
}

/* Room for more than a reason shows that a reason has room for it. */
static void check_version(const uint8_t in[HELLO_SIZE])
{
    char room[REASON_ROOM];
    char reason[TRANSPORT_REASON_MAX];
    FLI_ASSERT(fli_get_u16(in + CHECKED_AT) != hello_version());
    hello_explain_version(in, room, sizeof room);
    hello_explain_version(in, reason, sizeof reason);
    check_text(reason, sizeof reason);
    FLI_ASSERT(strcmp(room, reason) == 0);
}

static void try_decode(const uint8_t in[HELLO_SIZE])
{
    static const struct hello untouched = {.kind = 77};
    struct hello h = untouched;
    struct hello again;
    uint8_t out[HELLO_SIZE];
    int rc = hello_decode(in, &h);
    if (rc != 0) {
        FLI_ASSERT(rc == FL_EPROTO || rc == FL_EVERSION);
        check_same(&h, &untouched);
        if (rc == FL_EVERSION) {
            check_version(in);
        }
        return;
    }
    FLI_ASSERT(h.kind == HELLO_RAFT || h.kind == HELLO_LINK);
    FLI_ASSERT(h.verdict <= TRANSPORT_OTHER_VERSION);
    FLI_ASSERT(h.from.node_id != 0 && h.from.incarnation != 0);
    check_text(h.from.client_address, sizeof h.from.client_address);
    check_text(h.reason, sizeof h.reason);
    hello_encode(&h, out);
    FLI_ASSERT(hello_decode(out, &again) == 0);
    check_same(&h, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t magic[8] = {'f', 'e', 'n', 'c', 'e', 'l', 'o', 'k'};
    uint8_t in[HELLO_SIZE] = {0};
    if (size > sizeof in) {
        return 0;
    }
    if (size > 0) {
        memcpy(in, data, size);
    }
    try_decode(in);
    memcpy(in, magic, sizeof magic);
    for (unsigned i = 0; i < 2; i++) {
        fli_put_u32(in + 8, fli_crc32c(0, in + CHECKED_AT, HELLO_SIZE - CHECKED_AT));
        try_decode(in);
        fli_put_u16(in + CHECKED_AT, hello_version());
    }
    return 0;
}
