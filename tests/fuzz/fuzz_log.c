/* fuzz_log.c: segments of any bytes. Opening never crashes; what it accepts can be read, written to
 * and opened again as it was; what it refuses it leaves alone.
 *
 *   1   what is put right before: headers (bit 0), records (1), their order (2); a second segment
 *       (3) has the second half of the input
 *   3   in the end: a place (2) and what is turned around there (1)
 *       the rest: from the beginning of the first segment on, zeros behind it */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "../unit/log/sim_device.h"
#include "base/bytes.h"
#include "log/format.h"
#include "log/log.h"

#define SEGMENT LOG_SEGMENT_MIN
#define INPUT_MAX ((size_t)2 * SEGMENT)

struct mender {
    unsigned how;
    uint64_t number;
    struct log_state state;
};

static void ignore(void *ctx)
{
}

static void ignore_failure(void *ctx, int error, const char *message)
{
    FLI_ASSERT(false); /* the simulated disk does not fail */
}

static void follow(struct mender *m, uint8_t *r)
{
    uint8_t type = r[30];
    struct log_state *s = &m->state;
    if (type == LOG_RECORD_ENTRY) {
        fli_put_u64(r + 8, s->last_index + 1);
        fli_put_u64(r + 16, s->last_term + (fli_get_u64(r + 16) & 3) + (s->last_term == 0));
        r[31] |= 1;
    } else {
        fli_put_u32(r + 24, 0);
        r[31] = 0;
    }
    if (type == LOG_RECORD_TRUNCATE) {
        fli_put_u64(r + 8, 1 + fli_get_u64(r + 8) % ((s->last_index & LOG_INDEX_MAX) + 1));
        fli_put_u64(r + 16, 1);
    }
}

static void step(struct mender *m, const uint8_t *r)
{
    struct log_state *s = &m->state;
    uint64_t index = fli_get_u64(r + 8);
    uint64_t term = fli_get_u64(r + 16);
    switch (r[30]) {
    case LOG_RECORD_ENTRY:
    case LOG_RECORD_RESET:
        s->last_index = index;
        s->last_term = term;
        break;
    case LOG_RECORD_TRUNCATE:
        s->last_index = index - 1;
        s->last_term = term;
        break;
    case LOG_RECORD_HARD_STATE:
        s->hard = (struct log_hard_state){.term = term, .vote = index};
        break;
    default:
        break;
    }
}

/* Records from p to end. */
static void mend_records(struct mender *m, uint8_t *p, uint8_t *end, uint8_t **ret_end)
{
    while ((size_t)(end - p) >= LOG_RECORD_HEADER && p[30] != 0) {
        p[30] = (uint8_t)(1 + p[30] % 5);
        fli_put_u32(p + 24, fli_get_u32(p + 24) % 2048);
        if ((m->how & 4) != 0) {
            follow(m, p);
        }
        size_t size = log_record_size(fli_get_u32(p + 24));
        if (size > (size_t)(end - p)) {
            break;
        }
        fli_put_u32(p + 4, 0);
        fli_put_u16(p + 28, 0);
        memset(p + LOG_RECORD_HEADER + fli_get_u32(p + 24), 0,
               size - LOG_RECORD_HEADER - fli_get_u32(p + 24));
        fli_put_u32(p, fli_crc32c(0, p + 4, LOG_RECORD_HEADER - 4 + fli_get_u32(p + 24)));
        step(m, p);
        p += size;
    }
    *ret_end = p;
}

static void mend_segment(struct mender *m, uint32_t segment, uint8_t *data)
{
    for (size_t at = 0; at < SEGMENT && !log_is_zero(data + at, LOG_SECTOR);) {
        uint8_t *end = data + at + LOG_WRITE_HEADER;
        struct log_write w = {.log_id = 77,
                              .number = m->number++,
                              .segment = segment,
                              .segment_size = SEGMENT,
                              .offset = at,
                              .block = LOG_BLOCK,
                              .before = m->state};
        if ((m->how & 2) != 0) {
            mend_records(m, end, data + SEGMENT, &end);
        }
        w.len = (uint32_t)(end - (data + at));
        size_t padded = log_round_up(w.len, LOG_BLOCK);
        memset(end, 0, padded - w.len);
        m->state.chain = log_write_seal(&w, data + at, padded);
        at += padded;
    }
}

/* Everything that is in force, as one number. */
static uint32_t sum_of(struct log *l)
{
    struct log_hard_state hs = log_get_hard_state(l);
    uint64_t words[4] = {hs.term, hs.vote, log_first_index(l), log_last_index(l)};
    uint32_t sum = fli_crc32c(0, words, sizeof words);
    for (uint64_t i = log_first_index(l); i <= log_last_index(l); i++) {
        struct log_entry e;
        unsigned n = 0;
        int rv = log_read_some(l, i, 0, &e, 1, &n);
        FLI_ASSERT(rv == 0 && e.index == i && e.term == log_term_of(l, i) && e.term != 0);
        sum = fli_crc32c(sum, e.data, e.len);
    }
    return sum;
}

static struct log *open_log(struct sim_device *sim)
{
    char errmsg[512] = "";
    struct log *l = NULL;
    struct log_config config = {.device = sim_device_base(sim),
                                .cache_bytes = 1,
                                .segment_bytes = SEGMENT,
                                .durable = ignore,
                                .failed = ignore_failure};
    int rv = log_open(&config, &l, errmsg, sizeof errmsg);
    FLI_ASSERT((rv == 0) == (l != NULL) && (rv == 0) == (errmsg[0] == '\0'));
    FLI_ASSERT(rv == 0 || rv == FL_ECORRUPT || rv == FL_EVERSION);
    return l;
}

static void close_log(struct sim_device *sim, struct log *l)
{
    log_close(l, ignore, NULL);
    sim_device_drain(sim);
    log_destroy(l);
}

static uint32_t disk_sum(struct sim_device *sim)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < sim_device_files(sim); i++) {
        size_t len = 0;
        const uint8_t *data = sim_device_data(sim, sim_device_name(sim, i), &len);
        sum = fli_crc32c(sum, data, len);
    }
    return sum;
}

static void check(struct sim_device *sim)
{
    uint32_t disk = disk_sum(sim);
    struct log *l = open_log(sim);
    if (l == NULL) {
        FLI_ASSERT(disk_sum(sim) == disk);
        return;
    }
    uint32_t sum = sum_of(l);
    uint64_t last = log_last_index(l);
    close_log(sim, l);
    l = open_log(sim);
    FLI_ASSERT(l != NULL && sum_of(l) == sum);
    struct log_entry e = {.index = last + 1,
                          .term = log_last_term(l),
                          .kind = 1,
                          .len = 3,
                          .data = (const uint8_t *)"new"};
    e.term = e.term == 0 ? 1 : e.term;
    if (last < LOG_INDEX_MAX) {
        FLI_ASSERT(log_append(l, &e) == 1);
        log_flush(l);
        sim_device_drain(sim);
        FLI_ASSERT(log_durable(l) == 1 && log_durable_index(l) == last + 1);
        sum = sum_of(l);
    }
    close_log(sim, l);
    l = open_log(sim);
    FLI_ASSERT(l != NULL && sum_of(l) == sum);
    close_log(sim, l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || size - 4 > INPUT_MAX) {
        return 0;
    }
    uint8_t *bytes = calloc(1, INPUT_MAX);
    FLI_ASSERT(bytes != NULL);
    struct mender m = {.how = data[0], .number = 1};
    bool two = (m.how & 8) != 0;
    size_t len = size - 4;
    size_t half = two ? len / 2 : len;
    if (half > SEGMENT || len - half > SEGMENT) {
        free(bytes);
        return 0;
    }
    memcpy(bytes, data + 1, half);
    memcpy(bytes + SEGMENT, data + 1 + half, len - half);
    if ((m.how & 1) != 0) {
        mend_segment(&m, 1, bytes);
        if (two) {
            mend_segment(&m, 2, bytes + SEGMENT);
        }
    }
    bytes[fli_get_u16(data + size - 3) % INPUT_MAX] ^= data[size - 1];
    struct sim_device *sim = sim_device_create(1);
    sim_device_put(sim, "segment-0000000001", bytes, SEGMENT);
    if (two) {
        sim_device_put(sim, "segment-0000000002", bytes + SEGMENT, SEGMENT);
    }
    check(sim);
    sim_device_destroy(sim);
    free(bytes);
    return 0;
}
