/* test_heap.c: the heap against sorting, and random inserts, removals and changes against a search
 * through everything. */
#include "../../lib/rng.h"

#include "base/heap.h"

struct item {
    uint64_t key;
    size_t id; /* breaks ties, so that the order is total */
    struct fli_heap_node node;
};

static bool item_less(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct item *x = FLI_CONTAINER_OF(a, struct item, node);
    const struct item *y = FLI_CONTAINER_OF(b, struct item, node);
    return x->key != y->key ? x->key < y->key : x->id < y->id;
}

static int item_order(const void *a, const void *b)
{
    const struct item *const *x = a;
    const struct item *const *y = b;
    return item_less(&(*x)->node, &(*y)->node) ? -1 : 1;
}

static struct item *make_items(uint64_t *rng, size_t n, uint64_t keys)
{
    struct item *items = calloc(n, sizeof *items);
    assert_non_null(items);
    for (size_t i = 0; i < n; i++) {
        items[i].key = rng_below(rng, keys);
        items[i].id = i;
        fli_heap_node_init(&items[i].node);
    }
    return items;
}

static void check_shape(const struct fli_heap *h)
{
    for (size_t i = 0; i < h->len; i++) {
        assert_int_equal(h->slots[i]->pos, i);
        if (i > 0) {
            assert_false(item_less(h->slots[i], h->slots[(i - 1) / 4]));
        }
    }
}

TEST(test_against_sort)
{
    uint64_t rng = rng_seed();
    for (size_t n = 0; n < 400; n = n < 30 ? n + 1 : n * 2) {
        struct item *items = make_items(&rng, n + 1, 50);
        struct item **sorted = calloc(n + 1, sizeof *sorted);
        assert_non_null(sorted);
        struct fli_heap h;
        fli_heap_init(&h, item_less);
        assert_null(fli_heap_min(&h));
        for (size_t i = 0; i < n; i++) {
            sorted[i] = &items[i];
            assert_int_equal(fli_heap_insert(&h, &items[i].node), 0);
            check_shape(&h);
        }
        qsort(sorted, n, sizeof *sorted, item_order);
        for (size_t i = 0; i < n; i++) {
            assert_ptr_equal(fli_heap_min(&h), &sorted[i]->node);
            fli_heap_remove(&h, &sorted[i]->node);
            assert_true(sorted[i]->node.pos == FLI_HEAP_NONE);
            check_shape(&h);
        }
        assert_int_equal(h.len, 0);
        fli_heap_fini(&h);
        free(sorted);
        free(items);
    }
    fli_heap_fini(NULL);
}

static struct fli_heap_node *naive_min(struct item *items, size_t n)
{
    struct fli_heap_node *min = NULL;
    for (size_t i = 0; i < n; i++) {
        struct fli_heap_node *node = &items[i].node;
        if (node->pos != FLI_HEAP_NONE && (min == NULL || item_less(node, min))) {
            min = node;
        }
    }
    return min;
}

TEST(test_model)
{
    enum { N = 300, STEPS = 30000 };
    uint64_t rng = rng_seed();
    struct item *items = make_items(&rng, N, 100);
    struct fli_heap h;
    fli_heap_init(&h, item_less);
    for (int step = 0; step < STEPS; step++) {
        struct item *i = &items[rng_below(&rng, N)];
        bool in = i->node.pos != FLI_HEAP_NONE;
        if (!in) {
            assert_int_equal(fli_heap_insert(&h, &i->node), 0);
        } else if (rng_below(&rng, 3) == 0) {
            fli_heap_remove(&h, &i->node);
        } else {
            i->key = rng_below(&rng, 100);
            fli_heap_update(&h, &i->node);
        }
        assert_ptr_equal(fli_heap_min(&h), naive_min(items, N));
        if (step % 100 == 0) {
            check_shape(&h);
        }
    }
    fli_heap_fini(&h);
    free(items);
}

/* A large heap that empties gives its memory back on the way. */
TEST(test_memory_comes_back)
{
    enum { N = 50000 };
    uint64_t rng = 5;
    struct item *items = make_items(&rng, N, UINT64_MAX);
    struct fli_heap h;
    fli_heap_init(&h, item_less);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(fli_heap_insert(&h, &items[i].node), 0);
    }
    assert_true(h.cap >= N);
    uint64_t last = 0;
    while (h.len > 0) {
        struct item *i = FLI_CONTAINER_OF(fli_heap_min(&h), struct item, node);
        assert_true(i->key >= last);
        last = i->key;
        fli_heap_remove(&h, &i->node);
    }
    assert_true(h.cap <= 16);
    fli_heap_fini(&h);
    free(items);
}
