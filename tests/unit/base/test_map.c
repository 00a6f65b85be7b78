/* test_map.c: a million random operations against an array that says what must be there; resizing
 * in small steps that lose no item; the hash against its published definition. */
#include "../../lib/rng.h"

#include "base/map.h"

#define KEYS 20000u
#define STEPS 1000000u

struct item {
    struct fli_map_node node;
    uint32_t key;
    bool present;
    unsigned seen;
};

static bool item_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    assert_int_equal(key_len, sizeof(uint32_t));
    uint32_t k;
    memcpy(&k, key, sizeof k);
    return FLI_CONTAINER_OF(node, struct item, node)->key == k;
}

static struct item *find(struct fli_map *m, uint32_t key)
{
    struct fli_map_node *n = fli_map_find(m, &key, sizeof key);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct item, node);
}

static void insert(struct fli_map *m, struct item *i)
{
    uint64_t hash = fli_map_hash(m, &i->key, sizeof i->key);
    assert_int_equal(fli_map_insert(m, &i->node, hash), 0);
    i->present = true;
}

static void remove_item(struct fli_map *m, struct item *i)
{
    fli_map_remove(m, &i->node);
    i->present = false;
}

static struct item *make_items(size_t n)
{
    struct item *items = calloc(n, sizeof *items);
    assert_non_null(items);
    for (size_t i = 0; i < n; i++) {
        items[i].key = (uint32_t)i;
    }
    return items;
}

static void count_seen(void *ctx, struct fli_map_node *node)
{
    FLI_CONTAINER_OF(node, struct item, node)->seen++;
    ++*(size_t *)ctx;
}

/* Everything that must be there is found, once, and nothing else. */
static void check_all(struct fli_map *m, struct item *items, size_t n)
{
    size_t present = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].seen = 0;
        present += items[i].present;
        assert_ptr_equal(find(m, (uint32_t)i), items[i].present ? &items[i] : NULL);
    }
    assert_int_equal(m->len, present);
    size_t each = 0;
    fli_map_each(m, count_seen, &each);
    assert_int_equal(each, present);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(items[i].seen, items[i].present ? 1 : 0);
    }
}

static void new_map(struct fli_map *m, uint64_t *rng)
{
    uint64_t seed[2] = {rng_next(rng), rng_next(rng)};
    fli_map_init(m, item_eq, seed);
}

TEST(test_empty)
{
    uint64_t rng = 1;
    struct fli_map m;
    new_map(&m, &rng);
    assert_null(find(&m, 7));
    size_t each = 0;
    fli_map_each(&m, count_seen, &each);
    assert_int_equal(each, 0);
    fli_map_fini(&m);
    fli_map_fini(NULL);
}

TEST(test_model)
{
    uint64_t rng = rng_seed();
    struct fli_map m;
    new_map(&m, &rng);
    struct item *items = make_items(KEYS);
    /* The share of inserts swings, so that the map grows and shrinks many times. */
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step % (STEPS / 20) == 0) {
            check_all(&m, items, KEYS);
        }
        uint64_t inserts = (step / 100000) % 2 == 0 ? 75 : 20;
        struct item *i = &items[rng_below(&rng, KEYS)];
        assert_ptr_equal(find(&m, i->key), i->present ? i : NULL);
        bool insert_now = rng_below(&rng, 100) < inserts;
        if (insert_now && !i->present) {
            insert(&m, i);
        } else if (!insert_now && i->present) {
            remove_item(&m, i);
        }
    }
    check_all(&m, items, KEYS);
    fli_map_fini(&m);
    free(items);
}

/* After every single change of a growing and a shrinking map every item is there. */
TEST(test_resize_loses_nothing)
{
    enum { N = 1200 };
    uint64_t rng = 2;
    struct fli_map m;
    new_map(&m, &rng);
    struct item *items = make_items(N);
    for (size_t i = 0; i < N; i++) {
        insert(&m, &items[i]);
        check_all(&m, items, N);
    }
    for (size_t i = 0; i < N; i++) {
        remove_item(&m, &items[i]);
        check_all(&m, items, N);
    }
    fli_map_fini(&m);
    free(items);
}

/* One insert moves a few buckets, not all of them: during a resize both tables are there for a
 * while. And the load stays bounded, so chains stay short. */
TEST(test_resize_is_incremental)
{
    enum { N = 100000 };
    uint64_t rng = 3;
    struct fli_map m;
    new_map(&m, &rng);
    struct item *items = make_items(N);
    size_t moving = 0;
    size_t moved = 0;
    for (size_t i = 0; i < N; i++) {
        insert(&m, &items[i]);
        bool now = m.table[1].buckets != NULL;
        moving += now;
        if (now && m.moved > moved) {
            assert_true(m.moved - moved <= 32);
        }
        moved = now ? m.moved : 0;
        assert_true(m.len <= 2 * (m.table[0].mask + 1));
    }
    assert_true(moving > N / 10);
    size_t buckets_full = m.table[0].mask + 1;
    for (size_t i = 0; i < N - 10; i++) {
        remove_item(&m, &items[i]);
    }
    assert_true(m.table[0].mask + 1 < buckets_full / 4); /* memory comes back */
    for (size_t i = N - 10; i < N; i++) {
        assert_ptr_equal(find(&m, (uint32_t)i), &items[i]);
        remove_item(&m, &items[i]);
    }
    assert_null(m.table[1].buckets);
    assert_true(m.table[0].buckets == NULL || m.table[0].mask + 1 <= 16);
    fli_map_fini(&m);
    free(items);
}

/* All hashes equal: slow, but right. */
TEST(test_collisions)
{
    enum { N = 300 };
    uint64_t rng = 4;
    struct fli_map m;
    new_map(&m, &rng);
    struct item *items = make_items(N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(fli_map_insert(&m, &items[i].node, 42), 0);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_ptr_equal(fli_map_find_hashed(&m, 42, &i, sizeof i), &items[i].node);
        assert_null(fli_map_find_hashed(&m, 43, &i, sizeof i));
    }
    for (uint32_t i = 0; i < N; i += 2) {
        fli_map_remove(&m, &items[i].node);
    }
    for (uint32_t i = 0; i < N; i++) {
        struct fli_map_node *want = i % 2 == 0 ? NULL : &items[i].node;
        assert_ptr_equal(fli_map_find_hashed(&m, 42, &i, sizeof i), want);
    }
    fli_map_fini(&m);
    free(items);
}

/* A second, naive SipHash with any number of rounds. With 2 and 4 it is checked against the vectors
 * of the paper's reference; then it is the reference for 1 and 3 rounds. */
struct sip {
    uint64_t v[4];
};

static uint64_t rotated(uint64_t x, int n)
{
    return (x << n) | (x >> (64 - n));
}

static void naive_rounds(struct sip *s, int n)
{
    while (n-- > 0) {
        uint64_t *v = s->v;
        v[0] += v[1], v[1] = rotated(v[1], 13), v[1] ^= v[0], v[0] = rotated(v[0], 32);
        v[2] += v[3], v[3] = rotated(v[3], 16), v[3] ^= v[2];
        v[0] += v[3], v[3] = rotated(v[3], 21), v[3] ^= v[0];
        v[2] += v[1], v[1] = rotated(v[1], 17), v[1] ^= v[2], v[2] = rotated(v[2], 32);
    }
}

static uint64_t naive_siphash(const uint64_t key[2], const uint8_t *data, size_t len, int c, int d)
{
    struct sip s = {{key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)}};
    for (size_t at = 0; at <= len; at += 8) {
        uint64_t word = 0;
        for (size_t i = 0; i < 8 && at + i < len; i++) {
            word |= (uint64_t)data[at + i] << (8 * i);
        }
        if (at + 8 > len) {
            word |= (uint64_t)len << 56;
        }
        s.v[3] ^= word;
        naive_rounds(&s, c);
        s.v[0] ^= word;
    }
    s.v[2] ^= 0xff;
    naive_rounds(&s, d);
    return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

TEST(test_siphash)
{
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)i;
    }
    const uint64_t key[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    /* Appendix A of the paper: 15 bytes under this key. Then the first and second of the vectors
     * that come with its reference code. */
    assert_true(naive_siphash(key, bytes, 15, 2, 4) == UINT64_C(0xa129ca6149be45e5));
    assert_true(naive_siphash(key, bytes, 0, 2, 4) == UINT64_C(0x726fdb47dd0e0e31));
    assert_true(naive_siphash(key, bytes, 1, 2, 4) == UINT64_C(0x74f839c593dc67fd));
    for (size_t len = 0; len <= sizeof bytes; len++) {
        assert_true(fli_siphash(key, bytes, len) == naive_siphash(key, bytes, len, 1, 3));
    }
}
