/* record.c: see record.h; the part that uses no disk. */
#include "consensus/record.h"

#include <string.h>

#include "base/bytes.h"

#define RECORD_VERSION 5u /* no release wrote an earlier version */
#define FIELDS_OFFSET 16u
#define MEMBERS_OFFSET (112u + 48u * KNOWN_MEMBERS_MAX + 8u * MEMBERS_MAX)
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

/* ---- a slot ---- */

/* Goes through the fields of a slot in their order, and writes or reads each. */
struct walk {
    uint8_t *at;
    bool writes;
};

static void field(struct walk *w, uint64_t *v)
{
    if (w->writes) {
        fli_put_u64(w->at, *v);
    } else {
        *v = fli_get_u64(w->at);
    }
    w->at += 8;
}

static void start_field(struct walk *w, struct start *s)
{
    field(w, &s->number);
    field(w, &s->nonce);
}

/* From the sequence to the founders. `pairs`: flags and checksum, the two counts. */
static void walk(struct walk *w, struct record *r, uint64_t pairs[2])
{
    struct identity *id = &r->identity;
    struct starts *s = &r->starts;
    field(w, &r->sequence);
    field(w, &id->id);
    field(w, &id->incarnation);
    field(w, &id->cluster_id);
    field(w, &pairs[0]);
    start_field(w, &s->own);
    start_field(w, &s->next);
    field(w, &s->term);
    field(w, &s->index);
    field(w, &pairs[1]);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        field(w, &s->known[i].id);
        field(w, &s->known[i].incarnation);
        start_field(w, &s->known[i].start);
        field(w, &s->known[i].term);
        field(w, &s->known[i].index);
    }
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        field(w, &id->founders[i]);
    }
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
    for (unsigned i = 0; fit && i < id->n_founders; i++) {
        fit = id->founders[i] != 0;
        for (unsigned k = 0; k < i; k++) {
            fit = fit && id->founders[i] != id->founders[k];
        }
    }
    return fit;
}

void record_encode(const struct record *r, uint8_t out[RECORD_SLOT_SIZE])
{
    const struct identity *id = &r->identity;
    struct record copy = *r;
    char text[MEMBERS_TEXT_MAX];
    size_t len = members_format(&id->members, text, sizeof text);
    struct walk w = {.at = out + FIELDS_OFFSET, .writes = true};
    uint64_t flags = (id->bootstrapped ? FLAG_BOOTSTRAPPED : 0u) | (id->joins ? FLAG_JOINS : 0u);
    uint64_t pairs[2] = {flags | (uint64_t)id->begun_crc << 32,
                         r->starts.n | (uint64_t)id->n_founders << 32};
    FLI_ASSERT(id->n_founders <= MEMBERS_MAX && len < MEMBERS_SIZE);
    FLI_ASSERT(r->starts.n <= KNOWN_MEMBERS_MAX);
    memset(out, 0, RECORD_SLOT_SIZE);
    memcpy(out, MAGIC, sizeof MAGIC);
    fli_put_u64(out + 8, RECORD_VERSION);
    walk(&w, &copy, pairs);
    FLI_ASSERT(w.at == out + MEMBERS_OFFSET);
    memcpy(w.at, text, len);
    fli_put_u32(out + CRC_OFFSET, fli_crc32c(0, out, CRC_OFFSET));
}

int record_decode(const uint8_t in[RECORD_SLOT_SIZE], struct record *ret)
{
    uint8_t slot[RECORD_SLOT_SIZE];
    struct identity *id = &ret->identity;
    struct walk w = {.at = slot + FIELDS_OFFSET};
    uint64_t pairs[2];
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0) {
        return FL_ECORRUPT;
    }
    if (fli_get_u64(in + 8) != RECORD_VERSION) {
        return FL_EVERSION;
    }
    memset(ret, 0, sizeof *ret);
    memcpy(slot, in, sizeof slot);
    walk(&w, ret, pairs);
    uint32_t flags = (uint32_t)pairs[0];
    id->bootstrapped = (flags & FLAG_BOOTSTRAPPED) != 0;
    id->joins = (flags & FLAG_JOINS) != 0;
    id->begun_crc = (uint32_t)(pairs[0] >> 32);
    ret->starts.n = (uint32_t)pairs[1];
    id->n_founders = (uint32_t)(pairs[1] >> 32);
    return fli_get_u32(in + CRC_OFFSET) == fli_crc32c(0, in, CRC_OFFSET) && flags <= FLAGS &&
                   ret->starts.n <= KNOWN_MEMBERS_MAX && id->id != 0 && id->incarnation != 0 &&
                   get_members(in, &id->members) && founders_fit(id) &&
                   members_find(&id->members, id->id) != NULL
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
        return is_text || rv[1] == FL_EVERSION ? FL_EVERSION : rv[0];
    }
    bool first = rv[1] != 0 || (rv[0] == 0 && found[0].sequence >= found[1].sequence);
    *ret = first ? found[0] : found[1];
    return 0;
}
