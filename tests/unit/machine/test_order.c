/* test_order.c: machine/order.h against an array. */
#include "fixture.h"

#include "machine/order.h"

#define ELEMENTS 4000u

struct element {
    struct order_node node;
    bool in;
};

static struct element elements[ELEMENTS];

static void compare(const struct order *o, uint64_t from, uint64_t to, uint64_t *rng)
{
    machine_order_check(o);
    uint64_t rank = 0;
    uint64_t probe = from + rng_below(rng, to - from + 2);
    const struct order_node *sought = NULL;
    for (uint64_t i = from; i < to; i++) {
        struct element *e = &elements[i];
        if (!e->in) {
            continue;
        }
        rank++;
        if (rng_below(rng, 50) == 0) {
            assert_int_equal(machine_order_rank(o, &e->node), rank);
        }
        if (sought == NULL && e->node.key > probe) {
            sought = &e->node;
        }
    }
    assert_int_equal(o->len, rank);
    assert_ptr_equal(machine_order_seek(o, probe), sought);
}

static void run(uint32_t part_max, uint64_t *rng)
{
    struct order o;
    machine_order_init(&o, part_max);
    memset(elements, 0, sizeof elements);
    uint64_t first = 0;
    uint64_t next = 0;
    uint64_t keep = 1 + rng_below(rng, 20); /* one in so many stays for long */
    while (next < ELEMENTS) {
        uint64_t dice = rng_below(rng, 100);
        if (dice < 55 || o.len == 0) {
            machine_order_push(&o, &elements[next].node, next + 1);
            elements[next].in = true;
            next++;
        } else {
            uint64_t i = first + rng_below(rng, next - first);
            if (elements[i].in && (i % keep != 0 || dice == 99)) {
                machine_order_remove(&o, &elements[i].node);
                elements[i].in = false;
            }
        }
        if (rng_below(rng, 40) == 0) {
            compare(&o, first, next, rng);
        }
    }
    /* Thin parts were joined: any two neighbours hold more than half a part together. */
    for (uint32_t i = 0; i + 2 < o.parts_len; i++) {
        assert_true(o.parts[i].len + o.parts[i + 1].len > part_max / 2);
    }
    for (uint64_t i = 0; i < next; i++) {
        if (elements[i].in) {
            machine_order_remove(&o, &elements[i].node);
        }
    }
    assert_int_equal(o.len, 0);
    assert_int_equal(o.parts_len, 0);
    assert_null(machine_order_first(&o));
    assert_null(machine_order_seek(&o, 0));
    machine_order_check(&o);
    machine_order_fini(&o);
}

TEST(test_against_array)
{
    uint64_t rng = rng_seed();
    const uint32_t part_max[] = {2, 3, 8, 128, 1024};
    for (unsigned i = 0; i < sizeof part_max / sizeof part_max[0]; i++) {
        run(part_max[i], &rng);
    }
}
