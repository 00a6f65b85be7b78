/* fuzz_ballot.c: records of term and vote of any bytes. Whatever they say, what is believed stands
 * in one of them, and what the node then writes is believed again and needs no second repair.
 *
 *   1   which slots get a right magic and checksum (bits 0 and 1); which of the library's files are
 *       there (bits 2 and 3), and which are too long or too short (4 and 5: by one byte, 6: more)
 *   1   how much of the own file there is: 0 nothing, 1 all, 2 the first slot, else so many bytes
 *   72  the two slots, 66 the library's two files; an input that is too short goes on with zeros */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "consensus/ballot.h"

#define INPUT_SIZE (2 + 2 * BALLOT_SLOT_LEN + 2 * (BALLOT_META_LEN + 1))
#define CHECKED 32

static void fill(const uint8_t in[INPUT_SIZE], struct ballot_files *f)
{
    const uint8_t *p = in + 2;
    memset(f, 0, sizeof *f);
    for (unsigned i = 0; i < 2; i++, p += BALLOT_SLOT_LEN) {
        uint8_t *slot = f->own + i * BALLOT_SLOT_AT;
        memcpy(slot, p, BALLOT_SLOT_LEN);
        if ((in[0] >> i & 1) != 0) {
            memcpy(slot, "FLBALLOT", 8);
            fli_put_u32(slot + CHECKED, fli_crc32c(0, slot, CHECKED));
        }
    }
    for (unsigned i = 0; i < 2; i++, p += BALLOT_META_LEN + 1) {
        size_t odd = (in[0] >> 4 & 1) - (size_t)(in[0] >> 5 & 1) - (size_t)(in[0] >> 6 & 1) * 8;
        memcpy(f->meta[i], p, sizeof f->meta[i]);
        f->meta_len[i] = (in[0] >> (2 + i) & 1) != 0 ? BALLOT_META_LEN + odd : 0;
    }
    const size_t some[3] = {0, BALLOT_FILE_LEN, BALLOT_SLOT_AT};
    f->own_len = in[1] < 3 ? some[in[1]] : in[1];
}

static bool says(const uint8_t *words, const struct ballot *b)
{
    return fli_get_u64(words) == b->term && fli_get_u64(words + 8) == b->vote;
}

/* As the node does it: both slots anew, or the library's files. */
static void repair(struct ballot_files *f, enum ballot_verdict verdict, struct ballot *b)
{
    if (verdict == BALLOT_RENEW) {
        for (unsigned i = 0; i < 2; i++) {
            b->number++;
            ballot_encode(b, f->own + b->number % 2 * BALLOT_SLOT_AT);
        }
        f->own_len = BALLOT_FILE_LEN;
    } else if (verdict == BALLOT_CORRECT) {
        fli_put_u64(f->meta[0], 1);
        fli_put_u64(f->meta[0] + 8, 1);
        fli_put_u64(f->meta[0] + 16, b->term);
        fli_put_u64(f->meta[0] + 24, b->vote);
        f->meta_len[0] = BALLOT_META_LEN;
        f->meta_len[1] = 0;
    }
}

/* The next vote goes to the other slot; with the library still behind, it is what counts. */
static void check_next(struct ballot_files *f, const struct ballot *b)
{
    struct ballot found;
    struct ballot next = {.fd = -1, .number = b->number + 1, .term = b->term + 1, .vote = 3};
    ballot_encode(&next, f->own + next.number % 2 * BALLOT_SLOT_AT);
    FLI_ASSERT(ballot_judge(f, &found) == BALLOT_CORRECT);
    FLI_ASSERT(found.number == next.number && found.term == next.term && found.vote == next.vote);
    /* Torn: the other one is what the library has. */
    f->own[next.number % 2 * BALLOT_SLOT_AT + CHECKED] ^= 1;
    FLI_ASSERT(ballot_judge(f, &found) == BALLOT_RENEW);
    FLI_ASSERT(found.number == b->number && found.term == b->term && found.vote == b->vote);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t in[INPUT_SIZE] = {0};
    struct ballot_files f;
    struct ballot b = {.fd = 77, .number = 78};
    struct ballot found;
    if (size > sizeof in) {
        return 0;
    }
    if (size > 0) {
        memcpy(in, data, size);
    }
    fill(in, &f);
    enum ballot_verdict verdict = ballot_judge(&f, &b);
    if (verdict == BALLOT_DAMAGED) {
        FLI_ASSERT(b.fd == 77 && b.number == 78);
        return 0;
    }
    FLI_ASSERT(b.fd == -1);
    FLI_ASSERT(says(f.own + 16, &b) || says(f.own + BALLOT_SLOT_AT + 16, &b) ||
               says(f.meta[0] + 16, &b) || says(f.meta[1] + 16, &b));
    if (b.number > UINT64_MAX - 4) {
        return 0; /* nobody votes that often */
    }
    repair(&f, verdict, &b);
    FLI_ASSERT(ballot_judge(&f, &found) == BALLOT_AGREES);
    FLI_ASSERT(found.number == b.number && found.term == b.term && found.vote == b.vote);
    check_next(&f, &b);
    return 0;
}
