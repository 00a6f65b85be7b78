/* test_slab.c: random records of all sizes against an array that says what each must hold; memory
 * that is given back; and the edges of sizes, chunks and regions. The slabs themselves are tested
 * under AddressSanitizer as well, where programs would get memory from malloc. */
#include "../../lib/rng.h"

#include "base/slab.h"

#define RECORDS 20000u
#define STEPS 400000u

struct record {
    uint8_t *p; /* NULL: there is none */
    size_t size;
    uint8_t fill;
};

static void new_slab(struct fli_slab *s)
{
    fli_slab_init(s);
    s->use_malloc = false;
}

static void take(struct fli_slab *s, struct record *r, size_t size, uint8_t fill)
{
    r->p = fli_slab_alloc(s, size);
    assert_int_equal((uintptr_t)r->p % 8, 0);
    r->size = size;
    r->fill = fill;
    memset(r->p, fill, size);
}

/* Nobody else has written to it. */
static void give(struct fli_slab *s, struct record *r)
{
    for (size_t i = 0; i < r->size; i++) {
        assert_int_equal(r->p[i], r->fill);
    }
    fli_slab_free(s, r->p, r->size);
    r->p = NULL;
}

static size_t some_size(uint64_t *rng)
{
    /* Mostly a few sizes, as in use; sometimes any, and some that are too large for a slab. */
    return rng_below(rng, 4) != 0 ? 56 + 8 * rng_below(rng, 5)
                                  : rng_below(rng, FLI_SLAB_SIZE_MAX + 64);
}

TEST(test_model)
{
    uint64_t rng = rng_seed();
    struct fli_slab s;
    new_slab(&s);
    struct record *all = calloc(RECORDS, sizeof *all);
    assert_non_null(all);
    uint64_t out = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        struct record *r = &all[rng_below(&rng, RECORDS)];
        /* The share of those taken swings, so that chunks and regions come and go. */
        bool takes = rng_below(&rng, 100) < ((step / 50000) % 2 == 0 ? 80u : 15u);
        if (takes && r->p == NULL) {
            take(&s, r, some_size(&rng), (uint8_t)rng_next(&rng));
            out++;
        } else if (!takes && r->p != NULL) {
            give(&s, r);
            out--;
        }
        assert_int_equal(s.used, out);
    }
    for (uint32_t i = 0; i < RECORDS; i++) {
        if (all[i].p != NULL) {
            give(&s, &all[i]);
        }
    }
    assert_int_equal(s.used, 0);
    assert_true(s.regions <= 1);
    fli_slab_fini(&s);
    fli_slab_fini(NULL);
    free(all);
}

/* A size rounds up to 8, 512 is in a slab and 513 is not, and 0 is a record as well. */
TEST(test_sizes)
{
    struct fli_slab s;
    new_slab(&s);
    struct record r[4] = {{.p = NULL}};
    take(&s, &r[0], 0, 1);
    take(&s, &r[1], 1, 2);
    take(&s, &r[2], FLI_SLAB_SIZE_MAX, 3);
    assert_int_equal(s.regions, 1);
    assert_ptr_equal(r[1].p, r[0].p + 8);
    take(&s, &r[3], FLI_SLAB_SIZE_MAX + 1, 4);
    for (size_t i = 0; i < 4; i++) {
        give(&s, &r[i]);
    }
    fli_slab_free(&s, NULL, 8);
    fli_slab_fini(&s);
}

/* What was given back is used before anything new, and filling a region to its last record takes no
 * other one; one more does. */
TEST(test_reuse_and_regions)
{
    enum { SIZE = 512, MORE = 4100 };
    struct fli_slab s;
    new_slab(&s);
    struct record *all = calloc(MORE, sizeof *all);
    assert_non_null(all);
    size_t n = 0;
    while (s.regions <= 1) {
        assert_true(n < MORE);
        take(&s, &all[n], SIZE, (uint8_t)n);
        n++;
    }
    /* 127 in a chunk, and as many in the first, whose two heads still leave room for them. */
    assert_int_equal(n, 32 * 127 + 1);
    uint8_t *was = all[5].p;
    give(&s, &all[5]);
    take(&s, &all[5], SIZE, 7);
    assert_ptr_equal(all[5].p, was);
    assert_int_equal(s.regions, 2);
    for (size_t i = 0; i < n; i++) {
        give(&s, &all[i]);
    }
    assert_int_equal(s.regions, 1);
    fli_slab_fini(&s);
    assert_int_equal(s.regions, 0);
    free(all);
}

/* Many regions, the later ones with huge pages, and nearly all of them given back. */
TEST(test_gives_back)
{
    enum { N = 200000, SIZE = 88 };
    struct fli_slab s;
    new_slab(&s);
    struct record *all = calloc(N, sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < N; i++) {
        take(&s, &all[i], SIZE, (uint8_t)i);
    }
    size_t whole = (size_t)N * SIZE / FLI_REGION_SIZE + 1;
    assert_true(s.regions >= whole && s.regions <= whole + 1);
    for (size_t i = 0; i < N; i++) {
        if (i != N / 2) {
            give(&s, &all[i]);
        }
    }
    assert_true(s.regions <= 2);
    give(&s, &all[N / 2]);
    assert_int_equal(s.regions, 1);
    fli_slab_fini(&s);
    free(all);
}

/* One record at the edge of a chunk that comes and goes takes nothing from the kernel each time. */
TEST(test_edge)
{
    enum { SIZE = 64 };
    struct fli_slab s;
    new_slab(&s);
    struct record all[2048] = {{.p = NULL}};
    size_t n = 0;
    for (; n < 1024; n++) {
        take(&s, &all[n], SIZE, (uint8_t)n);
    }
    for (size_t i = 0; i < 1000; i++) {
        take(&s, &all[n], SIZE, (uint8_t)i);
        give(&s, &all[n]);
        assert_int_equal(s.regions, 1);
    }
    while (n > 0) {
        give(&s, &all[--n]);
    }
    fli_slab_fini(&s);
}
