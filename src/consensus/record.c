/* record.c: see record.h; the part that uses no disk. */
#include "consensus/record.h"

#include <string.h>

#include "base/bytes.h"

#define RECORD_VERSION 5u /* no release wrote an earlier version */
#define KNOWN_OFFSET 112u
#define KNOWN_SIZE 48u
#define FOUNDERS_OFFSET (KNOWN_OFFSET + KNOWN_SIZE * KNOWN_MEMBERS_MAX)
#define MEMBERS_OFFSET (FOUNDERS_OFFSET + 8 * MEMBERS_MAX)
#define MEMBERS_SIZE (MEMBERS_MAX * (MEMBER_ADDRESS_MAX + 22u))
#define CRC_OFFSET ((MEMBERS_OFFSET + MEMBERS_SIZE + 7) / 8 * 8)

_Static_assert(CRC_OFFSET + 4 == RECORD_SLOT_SIZE, "a slot is as record.h says");
_Static_assert(RECORD_SLOT_SIZE <= RECORD_SLOT_STEP, "slots do not overlap");

enum { FLAG_BOOTSTRAPPED = 1, FLAG_JOINS = 2, FLAGS = 3 };

static const uint8_t MAGIC[8] = {'f', 'e', 'n', 'c', 'e', 'n', 'o', 'd'};
/* Versions before 5 were text. */
static const uint8_t TEXT_MAGIC[8] = {'f', 'e', 'n', 'c', 'e', 'l', 'o', 'c'};

/* ---- the founders ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

void identity_found(struct identity *id, const uint64_t *incarnations)
{
    uint64_t cluster_id = mix(1, id->begun_crc);
    FLI_ASSERT(id->members.n <= MEMBERS_MAX && !id->joins);
    id->n_founders = id->members.n;
    for (unsigned i = 0; i < id->n_founders; i++) {
        id->founders[i] = incarnations[i];
        cluster_id = mix(cluster_id, incarnations[i]);
    }
    id->cluster_id = cluster_id == 0 ? 1 : cluster_id;
}

void identity_configuration(const struct identity *id, struct configuration *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->cluster_id = id->cluster_id;
    for (unsigned i = 0; i < id->n_founders; i++) {
        int rv = configuration_add(ret, id->members.list[i].id, id->founders[i],
                                   id->members.list[i].address, CONFIGURATION_VOTER);
        FLI_ASSERT(rv == 0);
    }
}

/* ---- the identity in a slot ---- */

static void put_identity(uint8_t *out, const struct identity *id)
{
    char text[MEMBERS_TEXT_MAX];
    size_t len = members_format(&id->members, text, sizeof text);
    FLI_ASSERT(id->n_founders <= MEMBERS_MAX && len < MEMBERS_SIZE);
    fli_put_u64(out + 24, id->id);
    fli_put_u64(out + 32, id->incarnation);
    fli_put_u64(out + 40, id->cluster_id);
    fli_put_u32(out + 48,
                (id->bootstrapped ? FLAG_BOOTSTRAPPED : 0u) | (id->joins ? FLAG_JOINS : 0u));
    fli_put_u32(out + 52, id->begun_crc);
    fli_put_u32(out + 108, id->n_founders);
    for (unsigned i = 0; i < id->n_founders; i++) {
        fli_put_u64(out + FOUNDERS_OFFSET + (size_t)i * 8, id->founders[i]);
    }
    memcpy(out + MEMBERS_OFFSET, text, len);
}

static bool get_members(const uint8_t *in, struct members *ret)
{
    char text[MEMBERS_SIZE + 1];
    char canonical[MEMBERS_TEXT_MAX] = {0};
    char errmsg[256];
    memcpy(text, in + MEMBERS_OFFSET, MEMBERS_SIZE);
    text[MEMBERS_SIZE] = '\0';
    if (members_parse(text, ret, errmsg, sizeof errmsg) != 0) {
        return false;
    }
    members_format(ret, canonical, sizeof canonical);
    return memcmp(canonical, text, MEMBERS_SIZE) == 0;
}

/* All or none, and each incarnation once. */
static bool founders_fit(const struct identity *id)
{
    bool fit = id->n_founders == 0 || (id->n_founders == id->members.n && id->cluster_id != 0);
    for (unsigned i = 0; i < id->n_founders; i++) {
        fit = fit && id->founders[i] != 0;
        for (unsigned k = 0; k < i; k++) {
            fit = fit && id->founders[i] != id->founders[k];
        }
    }
    return fit;
}

static bool get_identity(const uint8_t *in, struct identity *ret)
{
    uint32_t flags = fli_get_u32(in + 48);
    ret->id = fli_get_u64(in + 24);
    ret->incarnation = fli_get_u64(in + 32);
    ret->cluster_id = fli_get_u64(in + 40);
    ret->bootstrapped = (flags & FLAG_BOOTSTRAPPED) != 0;
    ret->joins = (flags & FLAG_JOINS) != 0;
    ret->begun_crc = fli_get_u32(in + 52);
    ret->n_founders = fli_get_u32(in + 108);
    if (flags > FLAGS || ret->n_founders > MEMBERS_MAX || !get_members(in, &ret->members)) {
        return false;
    }
    for (unsigned i = 0; i < ret->n_founders; i++) {
        ret->founders[i] = fli_get_u64(in + FOUNDERS_OFFSET + (size_t)i * 8);
    }
    return ret->id != 0 && ret->incarnation != 0 && founders_fit(ret) &&
           members_find(&ret->members, ret->id) != NULL;
}

/* ---- the starts in a slot ---- */

static void put_start(uint8_t *out, struct start start)
{
    fli_put_u64(out, start.number);
    fli_put_u64(out + 8, start.nonce);
}

static struct start get_start(const uint8_t *in)
{
    return (struct start){.number = fli_get_u64(in), .nonce = fli_get_u64(in + 8)};
}

static void put_starts(uint8_t *out, const struct starts *s)
{
    FLI_ASSERT(s->n <= KNOWN_MEMBERS_MAX);
    put_start(out + 56, s->own);
    put_start(out + 72, s->next);
    fli_put_u64(out + 88, s->term);
    fli_put_u64(out + 96, s->index);
    fli_put_u32(out + 104, s->n);
    for (unsigned i = 0; i < s->n; i++) {
        uint8_t *at = out + KNOWN_OFFSET + (size_t)i * KNOWN_SIZE;
        fli_put_u64(at, s->known[i].id);
        fli_put_u64(at + 8, s->known[i].incarnation);
        put_start(at + 16, s->known[i].start);
        fli_put_u64(at + 32, s->known[i].term);
        fli_put_u64(at + 40, s->known[i].index);
    }
}

static bool get_starts(const uint8_t *in, struct starts *ret)
{
    ret->own = get_start(in + 56);
    ret->next = get_start(in + 72);
    ret->term = fli_get_u64(in + 88);
    ret->index = fli_get_u64(in + 96);
    ret->n = fli_get_u32(in + 104);
    if (ret->n > KNOWN_MEMBERS_MAX) {
        return false;
    }
    for (unsigned i = 0; i < ret->n; i++) {
        const uint8_t *at = in + KNOWN_OFFSET + (size_t)i * KNOWN_SIZE;
        ret->known[i] = (struct starts_known){.id = fli_get_u64(at),
                                              .incarnation = fli_get_u64(at + 8),
                                              .start = get_start(at + 16),
                                              .term = fli_get_u64(at + 32),
                                              .index = fli_get_u64(at + 40)};
    }
    return true;
}

/* ---- a slot ---- */

void record_encode(const struct record *r, uint8_t out[RECORD_SLOT_SIZE])
{
    memset(out, 0, RECORD_SLOT_SIZE);
    memcpy(out, MAGIC, sizeof MAGIC);
    fli_put_u64(out + 8, RECORD_VERSION);
    fli_put_u64(out + 16, r->sequence);
    put_identity(out, &r->identity);
    put_starts(out, &r->starts);
    fli_put_u32(out + CRC_OFFSET, fli_crc32c(0, out, CRC_OFFSET));
}

int record_decode(const uint8_t in[RECORD_SLOT_SIZE], struct record *ret)
{
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0) {
        return FL_ECORRUPT;
    }
    if (fli_get_u64(in + 8) != RECORD_VERSION) {
        return FL_EVERSION;
    }
    memset(ret, 0, sizeof *ret);
    ret->sequence = fli_get_u64(in + 16);
    return fli_get_u32(in + CRC_OFFSET) == fli_crc32c(0, in, CRC_OFFSET) &&
                   get_identity(in, &ret->identity) && get_starts(in, &ret->starts)
               ? 0
               : FL_ECORRUPT;
}

int record_choose(const uint8_t *file, size_t len, struct record *ret)
{
    struct record found[2];
    int rv[2];
    for (unsigned i = 0; i < 2; i++) {
        size_t at = (size_t)i * RECORD_SLOT_STEP;
        rv[i] = len < at + RECORD_SLOT_SIZE ? FL_ECORRUPT : record_decode(file + at, &found[i]);
    }
    if (rv[0] != 0 && rv[1] != 0) {
        bool is_text = len > sizeof TEXT_MAGIC && memcmp(file, TEXT_MAGIC, sizeof TEXT_MAGIC) == 0;
        return is_text ? FL_EVERSION : rv[0];
    }
    bool first = rv[1] != 0 || (rv[0] == 0 && found[0].sequence >= found[1].sequence);
    *ret = first ? found[0] : found[1];
    return 0;
}
