/* test_list.c: order, removal in any place, splicing, and removal while walking. */
#include "../../lib/rng.h"

#include "base/list.h"

struct item {
    int value;
    struct fli_list link;
};

static int value_of(const struct fli_list *l)
{
    return FLI_CONTAINER_OF(l, struct item, link)->value;
}

/* The list holds exactly these, read in both directions. */
static void assert_order(const struct fli_list *list, const int *values, size_t n)
{
    size_t i = 0;
    FLI_LIST_FOREACH(pos, (list))
    {
        assert_true(i < n);
        assert_int_equal(value_of(pos), values[i]);
        i++;
    }
    assert_int_equal(i, n);
    for (const struct fli_list *pos = list->prev; pos != list; pos = pos->prev) {
        assert_int_equal(value_of(pos), values[--i]);
    }
    assert_int_equal(i, 0);
    assert_int_equal(fli_list_empty(list), n == 0);
}

static void fill(struct fli_list *list, struct item *items, int from, size_t n)
{
    fli_list_init(list);
    for (size_t i = 0; i < n; i++) {
        items[i].value = from + (int)i;
        fli_list_init(&items[i].link);
        assert_false(fli_list_linked(&items[i].link));
        fli_list_push(list, &items[i].link);
        assert_true(fli_list_linked(&items[i].link));
    }
}

TEST(test_order)
{
    struct fli_list list;
    struct item items[4];
    fill(&list, items, 1, 4);
    assert_order(&list, (int[]){1, 2, 3, 4}, 4);
    fli_list_remove(&items[1].link);
    assert_false(fli_list_linked(&items[1].link));
    fli_list_remove(&items[1].link); /* Removing twice is harmless. */
    assert_order(&list, (int[]){1, 3, 4}, 3);
    fli_list_insert_before(&items[0].link, &items[1].link);
    assert_order(&list, (int[]){2, 1, 3, 4}, 4);
    assert_int_equal(value_of(fli_list_first(&list)), 2);
    static const int order[] = {2, 1, 3, 4};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(value_of(fli_list_pop(&list)), order[i]);
    }
    assert_null(fli_list_pop(&list));
    assert_null(fli_list_first(&list));
    assert_order(&list, NULL, 0);
}

TEST(test_splice)
{
    struct fli_list a;
    struct fli_list b;
    struct item in_a[2];
    struct item in_b[3];
    fill(&a, in_a, 1, 2);
    fill(&b, in_b, 3, 3);
    fli_list_splice(&a, &b);
    assert_order(&a, (int[]){1, 2, 3, 4, 5}, 5);
    assert_order(&b, NULL, 0);
    fli_list_splice(&a, &b);
    assert_order(&a, (int[]){1, 2, 3, 4, 5}, 5);
    fli_list_splice(&b, &a);
    assert_order(&b, (int[]){1, 2, 3, 4, 5}, 5);
    assert_order(&a, NULL, 0);
}

TEST(test_removal_while_walking)
{
    struct fli_list list;
    struct item items[6];
    fill(&list, items, 1, 6);
    FLI_LIST_FOREACH_SAFE(pos, tmp, &list)
    {
        if (value_of(pos) % 2 == 1) {
            fli_list_remove(pos);
        }
    }
    assert_order(&list, (int[]){2, 4, 6}, 3);
}
