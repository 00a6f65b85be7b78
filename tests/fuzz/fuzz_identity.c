/* fuzz_identity.c: an identity file of any bytes. What is taken for one must be one that a node can
 * have, and mean the same when it is written again. The input is tried as it is, and with a right
 * last line behind it, since no fuzzer guesses the checksum. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "consensus/identity.h"

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

static void check_same(const struct identity *a, const struct identity *b)
{
    FLI_ASSERT(a->id == b->id && a->incarnation == b->incarnation);
    FLI_ASSERT(a->cluster_id == b->cluster_id && a->bootstrapped == b->bootstrapped);
    FLI_ASSERT(a->members.n == b->members.n);
    for (unsigned i = 0; i < a->members.n; i++) {
        FLI_ASSERT(a->members.list[i].id == b->members.list[i].id);
        FLI_ASSERT(strcmp(a->members.list[i].address, b->members.list[i].address) == 0);
    }
    FLI_ASSERT(a->n_founders == b->n_founders);
    FLI_ASSERT(a->n_founders == 0 || a->n_founders == a->members.n);
    FLI_ASSERT(a->joins == b->joins && a->begun_crc == b->begun_crc);
    for (unsigned i = 0; i < a->n_founders; i++) {
        FLI_ASSERT(a->founders[i].id == b->founders[i].id);
        FLI_ASSERT(a->founders[i].incarnation == b->founders[i].incarnation);
    }
}

static void try_parse(const char *text, size_t len)
{
    struct identity id;
    struct identity again;
    char out[IDENTITY_TEXT_MAX];
    int rc = identity_parse(text, len, &id);
    if (rc != 0) {
        FLI_ASSERT(rc == FL_ECORRUPT || rc == FL_EVERSION);
        return;
    }
    FLI_ASSERT(id.id != 0 && id.incarnation != 0);
    FLI_ASSERT(memchr(text, '\0', len) == NULL);
    check_members(&id.members);
    FLI_ASSERT(members_find(&id.members, id.id) != NULL);
    size_t out_len = identity_format(&id, out);
    FLI_ASSERT(identity_parse(out, out_len, &again) == 0);
    check_same(&id, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char last[16];
    if (size == 0) {
        return 0;
    }
    try_parse((const char *)data, size);
    int n = snprintf(last, sizeof last, "crc %08x\n", fli_crc32c(0, data, size));
    char *text = malloc(size + (size_t)n);
    FLI_ASSERT(text != NULL);
    memcpy(text, data, size);
    memcpy(text + size, last, (size_t)n);
    try_parse(text, size + (size_t)n);
    free(text);
    return 0;
}
