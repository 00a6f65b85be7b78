/* fuzz_segments.c: a segment of the log of any bytes. What the scan says must be so, and the head
 * of k entries is a closed segment of exactly these.
 *
 * The first byte of an input says what is put right before, since no fuzzer guesses it: the word of
 * the format (bit 0) and the checksums of so many batches (the other bits). The second is k. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "consensus/segments.h"

#define WORD 8
#define ENTRY 16
#define ENTRIES_MAX 64u /* of a batch whose checksums are put right */

/* The batch at data, when it is all there; returns its size, 0 for none. */
static size_t mend_batch(uint8_t *data, size_t len)
{
    if (len < 2 * WORD) {
        return 0;
    }
    uint64_t n = fli_get_u64(data + WORD);
    if (n == 0 || n > ENTRIES_MAX || len - 2 * WORD < ENTRY * (size_t)n) {
        return 0;
    }
    uint64_t size = 0;
    for (uint64_t i = 0; i < n; i++) {
        size += fli_get_u32(data + 2 * WORD + ENTRY * i + 12);
    }
    size_t header = WORD + ENTRY * (size_t)n;
    fli_put_u32(data, segment_crc(0, data + WORD, header));
    if (size > len - WORD - header) {
        return 0;
    }
    fli_put_u32(data + 4, segment_crc(0, data + WORD + header, (size_t)size));
    return WORD + header + (size_t)size;
}

static void mend(uint8_t *data, size_t len, uint8_t how)
{
    if (how % 2 == 1 && len >= WORD) {
        fli_put_u64(data, 1);
    }
    size_t at = WORD;
    for (unsigned batches = how / 2; batches > 0 && at < len; batches--) {
        size_t size = mend_batch(data + at, len - at);
        at = size == 0 ? len : at + size;
    }
}

static bool zeros(const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return true;
}

static void check_report(const struct segment_report *r, const uint8_t *data, size_t len)
{
    FLI_ASSERT(r->finding >= SEGMENT_WHOLE && r->finding <= SEGMENT_CUT);
    FLI_ASSERT(r->offset <= len);
    FLI_ASSERT(r->entries == 0 || r->offset >= 3 * WORD + ENTRY);
    FLI_ASSERT(!r->exact || (r->finding == SEGMENT_WHOLE && r->offset == len));
    FLI_ASSERT(r->finding != SEGMENT_WHOLE || zeros(data + r->offset, len - r->offset));
}

/* The head of the first n, as a segment and with the zeros of an open one behind it. */
static void check_head(const struct fli_buf *head, uint64_t n)
{
    static const uint8_t room[100];
    struct segment_report r;
    struct fli_buf open;
    segment_scan(head->data, head->len, &r);
    FLI_ASSERT(r.finding == SEGMENT_WHOLE && r.exact && r.entries == n);
    fli_buf_init(&open, SIZE_MAX);
    FLI_ASSERT(fli_buf_append(&open, head->data, head->len) == 0);
    FLI_ASSERT(fli_buf_append(&open, room, sizeof room) == 0);
    segment_scan(open.data, open.len, &r);
    FLI_ASSERT(r.finding == SEGMENT_WHOLE && !r.exact && r.entries == n);
    FLI_ASSERT(r.offset == head->len);
    fli_buf_fini(&open);
}

static void check_heads(const uint8_t *data, size_t len, const struct segment_report *r, uint64_t k)
{
    struct fli_buf head;
    struct fli_buf again;
    struct fli_buf all;
    fli_buf_init(&head, SIZE_MAX);
    fli_buf_init(&again, SIZE_MAX);
    fli_buf_init(&all, SIZE_MAX);
    FLI_ASSERT(segment_head(data, len, r->entries + 1, &head) == FL_ECORRUPT);
    fli_buf_clear(&head);
    if (r->entries > 0) {
        k = 1 + k % r->entries;
        FLI_ASSERT(segment_head(data, len, k, &head) == 0);
        check_head(&head, k);
        FLI_ASSERT(segment_head(data, len, r->entries, &all) == 0);
        FLI_ASSERT(fli_bytes_cmp(all.data, all.len, data, r->offset) == 0);
        FLI_ASSERT(segment_head(head.data, head.len, k, &again) == 0);
        FLI_ASSERT(fli_bytes_cmp(again.data, again.len, head.data, head.len) == 0);
    }
    fli_buf_fini(&head);
    fli_buf_fini(&again);
    fli_buf_fini(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    struct segment_report r;
    size_t len = size - 2;
    uint8_t *copy = malloc(len == 0 ? 1 : len);
    FLI_ASSERT(copy != NULL);
    memcpy(copy, data + 2, len);
    mend(copy, len, data[0]);
    segment_scan(copy, len, &r);
    check_report(&r, copy, len);
    check_heads(copy, len, &r, data[1]);
    free(copy);
    return 0;
}
