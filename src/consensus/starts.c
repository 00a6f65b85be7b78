/* starts.c: see starts.h; the part that uses no disk. */
#include "consensus/starts.h"

#include <string.h>

#include "base/bytes.h"

#define KNOWN_OFFSET 80u
#define KNOWN_SIZE 56u
#define CRC_OFFSET (KNOWN_OFFSET + KNOWN_SIZE * KNOWN_MEMBERS_MAX)

_Static_assert(CRC_OFFSET + 4 == STARTS_SLOT_SIZE, "a slot is as starts.h says");

static const uint8_t MAGIC[8] = {'f', 'e', 'n', 'c', 'e', 's', 't', 'r'};

/* ---- a slot ---- */

static void put_start(uint8_t *out, struct start start)
{
    fli_put_u64(out, start.number);
    fli_put_u64(out + 8, start.nonce);
}

static struct start get_start(const uint8_t *in)
{
    return (struct start){.number = fli_get_u64(in), .nonce = fli_get_u64(in + 8)};
}

void starts_encode(const struct starts *s, uint8_t out[STARTS_SLOT_SIZE])
{
    FLI_ASSERT(s->n <= KNOWN_MEMBERS_MAX);
    memset(out, 0, STARTS_SLOT_SIZE);
    memcpy(out, MAGIC, sizeof MAGIC);
    fli_put_u64(out + 8, s->sequence);
    fli_put_u64(out + 16, s->incarnation);
    put_start(out + 24, s->own);
    put_start(out + 40, s->next);
    fli_put_u64(out + 56, s->term);
    fli_put_u64(out + 64, s->index);
    fli_put_u64(out + 72, s->n);
    for (unsigned i = 0; i < s->n; i++) {
        uint8_t *at = out + KNOWN_OFFSET + (size_t)i * KNOWN_SIZE;
        fli_put_u64(at, s->known[i].id);
        fli_put_u64(at + 8, s->known[i].incarnation);
        put_start(at + 16, s->known[i].start);
        fli_put_u64(at + 32, s->known[i].term);
        fli_put_u64(at + 40, s->known[i].index);
    }
    fli_put_u32(out + CRC_OFFSET, fli_crc32c(0, out, CRC_OFFSET));
}

int starts_decode(const uint8_t in[STARTS_SLOT_SIZE], struct starts *ret)
{
    uint64_t n = fli_get_u64(in + 72);
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0 || n > KNOWN_MEMBERS_MAX ||
        fli_get_u32(in + CRC_OFFSET) != fli_crc32c(0, in, CRC_OFFSET)) {
        return FL_ECORRUPT;
    }
    memset(ret, 0, sizeof *ret);
    ret->sequence = fli_get_u64(in + 8);
    ret->incarnation = fli_get_u64(in + 16);
    ret->own = get_start(in + 24);
    ret->next = get_start(in + 40);
    ret->term = fli_get_u64(in + 56);
    ret->index = fli_get_u64(in + 64);
    ret->n = (unsigned)n;
    for (unsigned i = 0; i < ret->n; i++) {
        const uint8_t *at = in + KNOWN_OFFSET + (size_t)i * KNOWN_SIZE;
        ret->known[i] = (struct starts_known){.id = fli_get_u64(at),
                                              .incarnation = fli_get_u64(at + 8),
                                              .start = get_start(at + 16),
                                              .term = fli_get_u64(at + 32),
                                              .index = fli_get_u64(at + 40)};
    }
    return 0;
}

int starts_choose(const uint8_t *file, size_t len, struct starts *ret)
{
    struct starts found[2];
    bool whole[2];
    for (unsigned i = 0; i < 2; i++) {
        size_t at = (size_t)i * STARTS_SLOT_STEP;
        whole[i] = len >= at + STARTS_SLOT_SIZE && starts_decode(file + at, &found[i]) == 0;
    }
    if (!whole[0] && !whole[1]) {
        return FL_ECORRUPT;
    }
    *ret = !whole[1] || (whole[0] && found[0].sequence >= found[1].sequence) ? found[0] : found[1];
    return 0;
}

struct start starts_next(const struct starts *s, uint64_t nonce)
{
    bool resumed = s->own.number != 0 && s->next.number != STARTS_RECORDED;
    return resumed ? s->own : (struct start){.number = s->own.number + 1, .nonce = nonce};
}

/* ---- what is known ---- */

static struct starts_known *place_of(struct starts *s, uint64_t id)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->known[i].id == id) {
            return &s->known[i];
        }
    }
    return NULL;
}

const struct starts_known *starts_find(const struct starts *s, uint64_t id, uint64_t incarnation)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->known[i].id == id && s->known[i].incarnation == incarnation) {
            return &s->known[i];
        }
    }
    return NULL;
}

bool starts_record(struct starts *s, uint64_t id, uint64_t incarnation, struct start start)
{
    struct starts_known *k = place_of(s, id);
    if (start.number == 0 || (k == NULL && s->n == KNOWN_MEMBERS_MAX)) {
        return false;
    }
    if (k == NULL) {
        k = &s->known[s->n++];
        k->incarnation = 0;
    }
    if (k->incarnation != incarnation) {
        *k = (struct starts_known){.id = id, .incarnation = incarnation, .start = start};
        return true;
    }
    bool news = start.number > k->start.number;
    k->start = news ? start : k->start;
    return news;
}

bool starts_record_progress(struct starts *s, uint64_t id, uint64_t incarnation, uint64_t term,
                            uint64_t index)
{
    struct starts_known *k = place_of(s, id);
    if (k == NULL || k->incarnation != incarnation || (term <= k->term && index <= k->index)) {
        return false;
    }
    k->term = term > k->term ? term : k->term;
    k->index = index > k->index ? index : k->index;
    return true;
}

void starts_make_room(struct starts *s, const struct members *members)
{
    unsigned kept = 0;
    for (unsigned i = 0; s->n == KNOWN_MEMBERS_MAX && i < KNOWN_MEMBERS_MAX; i++) {
        if (members_find(members, s->known[i].id) != NULL) {
            s->known[kept++] = s->known[i];
        }
    }
    s->n = s->n == KNOWN_MEMBERS_MAX ? kept : s->n;
}

/* ---- telling ---- */

static uint8_t *put_known(uint8_t *at, uint64_t id, uint64_t incarnation, struct start start)
{
    fli_put_u64(at, id);
    fli_put_u64(at + 8, incarnation);
    put_start(at + 16, start);
    return at + 32;
}

size_t starts_message_encode(const struct starts *s, uint64_t own_id, uint64_t term, uint64_t index,
                             uint8_t out[STARTS_MESSAGE_MAX])
{
    uint8_t *at = out + 24;
    fli_put_u64(out, term);
    fli_put_u64(out + 8, index);
    fli_put_u64(out + 16, s->n + 1);
    at = put_known(at, own_id, s->incarnation, s->own);
    for (unsigned i = 0; i < s->n; i++) {
        at = put_known(at, s->known[i].id, s->known[i].incarnation, s->known[i].start);
    }
    return (size_t)(at - out);
}

int starts_message_decode(struct fli_slice body, struct starts_message *ret)
{
    uint64_t n = body.len < 24 ? 0 : fli_get_u64(body.data + 16);
    if (n < 1 || n > KNOWN_MEMBERS_MAX + 1 || body.len != 24 + n * 32) {
        return FL_EPROTO;
    }
    memset(ret, 0, sizeof *ret);
    ret->term = fli_get_u64(body.data);
    ret->index = fli_get_u64(body.data + 8);
    ret->n = (unsigned)n;
    for (unsigned i = 0; i < ret->n; i++) {
        const uint8_t *at = body.data + 24 + (size_t)i * 32;
        ret->list[i] = (struct starts_known){
            .id = fli_get_u64(at), .incarnation = fli_get_u64(at + 8), .start = get_start(at + 16)};
        if (ret->list[i].id == 0 || ret->list[i].incarnation == 0 ||
            ret->list[i].start.number == 0) {
            return FL_EPROTO;
        }
    }
    return 0;
}
