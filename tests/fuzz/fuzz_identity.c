/* fuzz_identity.c: a record of a node of any bytes. What is taken for one must be one that a node
 * can have, and mean the same when it is written again. The input is tried as it is, and as a slot
 * with a right checksum behind it, since no fuzzer guesses that. */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "members/data_dir.h"

static void check_members(const struct members *m)
{
    char host[256];
    uint16_t port;
    FLI_ASSERT(m->n >= 1 && m->n <= MEMBERS_MAX);
    for (unsigned i = 0; i < m->n; i++) {
        FLI_ASSERT(m->list[i].id != 0 && (i == 0 || m->list[i - 1].id < m->list[i].id));
        FLI_ASSERT(address_split(m->list[i].address, host, &port) == 0);
    }
}

static void check(const struct record *r)
{
    struct record again;
    uint8_t slot[RECORD_SLOT_SIZE];
    const struct identity *id = &r->identity;
    FLI_ASSERT(id->id != 0 && id->incarnation != 0);
    check_members(&id->members);
    FLI_ASSERT(members_find(&id->members, id->id) != NULL);
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        FLI_ASSERT((id->founders[i] != 0) == (identity_is_founded(id) && i < id->members.n));
    }
    FLI_ASSERT(r->starts.n <= KNOWN_MEMBERS_MAX);
    record_encode(r, slot);
    FLI_ASSERT(record_decode(slot, &again) == 0);
    FLI_ASSERT(memcmp(r, &again, sizeof again) == 0);
}

/* A zero ends the text of the members: nothing but zeros is behind it (record.h). */
static void check_text(const uint8_t *slot)
{
    const uint8_t *end = memchr(slot + 946, 0, 2574);
    for (const uint8_t *at = end; at != NULL && at < slot + 946 + 2574; at++) {
        FLI_ASSERT(*at == 0);
    }
}

static void try_file(const uint8_t *file, size_t len)
{
    struct record r;
    int rc = record_choose(file, len, &r);
    FLI_ASSERT(rc == 0 || rc == FL_ECORRUPT || rc == FL_EVERSION);
    if (rc == 0) {
        check(&r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t crc_at = RECORD_SLOT_SIZE - 4;
    uint8_t slot[RECORD_SLOT_SIZE] = {0};
    struct record r;
    try_file(data, size);
    memcpy(slot, data, size < crc_at ? size : crc_at);
    fli_put_u32(slot + crc_at, fli_crc32c(0, slot, crc_at));
    if (record_decode(slot, &r) == 0) {
        check_text(slot);
    }
    try_file(slot, sizeof slot);
    return 0;
}
