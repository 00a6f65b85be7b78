/* test_busiest.c: what the sketch promises, against counters that forget nothing. */
#include "../../lib/unit.h"

#include "metrics/busiest.h"

#define NAMES 2000u

static struct fli_slice name_of(unsigned i, char out[16])
{
    int n = snprintf(out, 16, "lock-%u", i);
    return (struct fli_slice){(const uint8_t *)out, (size_t)n};
}

/* xorshift64: the same stream on every machine. */
static uint64_t next(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void check(const struct busiest *b, const uint64_t *truth, uint64_t total)
{
    const struct busiest_entry *top[BUSIEST_COUNTERS];
    bool seen[NAMES] = {false};
    unsigned n = busiest_top(b, top, BUSIEST_COUNTERS);
    assert_true(b->used < BUSIEST_COUNTERS || n == BUSIEST_COUNTERS);
    for (unsigned i = 0; i < n; i++) {
        unsigned id = 0;
        char text[FL_NAME_MAX + 1] = "";
        memcpy(text, top[i]->name, top[i]->name_len);
        assert_int_equal(sscanf(text, "lock-%u", &id), 1);
        assert_true(top[i]->weight >= truth[id]);
        assert_true(top[i]->weight - top[i]->over <= truth[id]);
        assert_true(i == 0 || top[i - 1]->weight >= top[i]->weight);
        seen[id] = true;
    }
    for (unsigned id = 0; id < NAMES; id++) {
        assert_true(seen[id] || truth[id] <= total / BUSIEST_COUNTERS);
    }
}

TEST(never_too_small_and_no_heavy_one_missed)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct busiest b;
        uint64_t truth[NAMES] = {0};
        uint64_t total = 0;
        uint64_t s = seed * UINT64_C(0x9E3779B97F4A7C15);
        busiest_init(&b, (const uint64_t[2]){seed, ~seed});
        for (unsigned i = 0; i < 20000; i++) {
            /* A few names have most of it, as in life. */
            unsigned id =
                next(&s) % 4 == 0 ? (unsigned)(next(&s) % 10) : (unsigned)(next(&s) % NAMES);
            uint64_t weight = next(&s) % 1000;
            char text[16];
            truth[id] += weight;
            total += weight;
            busiest_waited(&b, name_of(id, text), weight);
            if (i % 7 == 0) {
                busiest_refused(&b, name_of((unsigned)(next(&s) % NAMES), text));
            }
        }
        assert_int_equal(b.total, total);
        check(&b, truth, total);
        busiest_fini(&b);
    }
}

TEST(exact_while_there_is_room)
{
    struct busiest b;
    const struct busiest_entry *top[2];
    char text[16];
    busiest_init(&b, (const uint64_t[2]){1, 2});
    assert_int_equal(busiest_top(&b, top, 2), 0);
    for (unsigned i = 0; i < BUSIEST_COUNTERS; i++) {
        busiest_waited(&b, name_of(i, text), i + 1);
    }
    busiest_waited(&b, name_of(3, text), 1000);
    busiest_refused(&b, name_of(3, text));
    assert_int_equal(busiest_top(&b, top, 2), 2);
    assert_int_equal(top[0]->weight, 1004);
    assert_int_equal(top[0]->over, 0);
    assert_int_equal(top[0]->waits, 2);
    assert_int_equal(top[0]->longest, 1000);
    assert_int_equal(top[0]->refused, 1);
    assert_int_equal(top[1]->weight, BUSIEST_COUNTERS);
    busiest_waited(&b, name_of(BUSIEST_COUNTERS, text), 0); /* one more than there is room for */
    assert_int_equal(b.used, BUSIEST_COUNTERS);
    busiest_clear(&b);
    assert_int_equal(busiest_top(&b, top, 2), 0);
    busiest_fini(&b);
}

TEST(a_name_of_every_length)
{
    struct busiest b;
    uint8_t bytes[FL_NAME_MAX];
    const struct busiest_entry *top[1];
    memset(bytes, 0xfe, sizeof bytes);
    busiest_init(&b, (const uint64_t[2]){3, 4});
    for (size_t len = 1; len <= FL_NAME_MAX; len++) {
        busiest_waited(&b, (struct fli_slice){bytes, len}, len);
    }
    assert_int_equal(busiest_top(&b, top, 1), 1);
    assert_int_equal(top[0]->name_len, FL_NAME_MAX);
    busiest_fini(&b);
}
