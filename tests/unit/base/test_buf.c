/* test_buf.c: the buffer's ceiling is exact, a failure changes nothing, and random use agrees with
 * a plain array. */
#include "../../lib/rng.h"

#include "base/buf.h"

TEST(test_ceiling_is_exact)
{
    struct fli_buf b;
    fli_buf_init(&b, 100);
    uint8_t bytes[101];
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(fli_buf_append(&b, bytes, 101), FL_ELIMIT);
    assert_int_equal(b.len, 0);
    assert_int_equal(fli_buf_append(&b, bytes, 100), 0);
    assert_int_equal(b.len, 100);
    assert_true(b.cap <= 100);
    assert_int_equal(fli_buf_append(&b, bytes, 1), FL_ELIMIT);
    assert_int_equal(fli_buf_append(&b, bytes, 0), 0);
    assert_int_equal(fli_buf_append(&b, NULL, 0), 0);
    assert_int_equal(fli_buf_reserve(&b, SIZE_MAX), FL_ELIMIT);
    assert_int_equal(b.len, 100);
    fli_buf_fini(&b);
    assert_null(b.data);
    assert_int_equal(fli_buf_append(&b, bytes, 100), 0); /* Usable again, same ceiling. */
    assert_int_equal(fli_buf_append(&b, bytes, 1), FL_ELIMIT);
    fli_buf_fini(&b);
    fli_buf_fini(NULL);
}

TEST(test_no_ceiling_does_not_wrap)
{
    struct fli_buf b;
    fli_buf_init(&b, SIZE_MAX);
    assert_int_equal(fli_buf_append(&b, "abc", 3), 0);
    assert_int_equal(fli_buf_reserve(&b, SIZE_MAX), FL_ELIMIT);
    assert_int_equal(fli_buf_reserve(&b, SIZE_MAX / 4), FL_ENOMEM);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "abc", 3);
    fli_buf_fini(&b);
}

TEST(test_reserve_gives_room)
{
    struct fli_buf b;
    fli_buf_init(&b, 1 << 20);
    for (size_t n = 1; n < 5000; n = n * 3 + 1) {
        assert_int_equal(fli_buf_reserve(&b, n), 0);
        assert_true(b.cap - b.len >= n);
        memset(b.data + b.len, 'r', n);
        b.len += n;
    }
    fli_buf_fini(&b);
}

TEST(test_printf)
{
    struct fli_buf b;
    fli_buf_init(&b, 600);
    assert_int_equal(fli_buf_printf(&b, "%d-%s", 42, "x"), 0);
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.data, "42-x", 4);
    assert_int_equal(fli_buf_printf(&b, "%597d", 1), FL_ELIMIT); /* 4 + 597 = 601 */
    assert_int_equal(b.len, 4);
    assert_int_equal(fli_buf_printf(&b, "%596d", 1), 0); /* to the last byte */
    assert_int_equal(b.len, 600);
    assert_int_equal(b.data[599], '1');
    assert_int_equal(fli_buf_printf(&b, "%s", ""), 0);
    assert_int_equal(fli_buf_printf(&b, "y"), FL_ELIMIT);
    fli_buf_fini(&b);
    for (int n = 250; n < 260; n++) { /* around the size of the text that goes over the stack */
        assert_int_equal(fli_buf_printf(&b, "%*d", n, 7), 0);
        assert_int_equal(b.len, n);
        assert_int_equal(b.data[n - 1], '7');
        fli_buf_clear(&b);
    }
    fli_buf_fini(&b);
}

TEST(test_shrink)
{
    struct fli_buf b;
    fli_buf_init(&b, 1 << 20);
    assert_int_equal(fli_buf_reserve(&b, 1 << 19), 0);
    assert_int_equal(fli_buf_append(&b, "hello", 5), 0);
    fli_buf_shrink(&b);
    assert_true(b.cap < 1024);
    assert_memory_equal(b.data, "hello", 5);
    fli_buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_true(b.cap > 0);
    fli_buf_shrink(&b);
    assert_null(b.data);
    assert_int_equal(b.cap, 0);
    fli_buf_shrink(&b);
    assert_int_equal(fli_buf_append(&b, "again", 5), 0);
    fli_buf_fini(&b);
}

#define MODEL_MAX 3000u
#define MODEL_STEPS 100000

/* Random appends, consumes, clears and shrinks against an array. */
TEST(test_model)
{
    uint64_t rng = rng_seed();
    static uint8_t model[MODEL_MAX];
    static uint8_t bytes[MODEL_MAX + 1];
    size_t len = 0;
    struct fli_buf b;
    fli_buf_init(&b, MODEL_MAX);
    for (int step = 0; step < MODEL_STEPS; step++) {
        uint64_t choice = rng_below(&rng, 100);
        size_t n = (size_t)rng_below(&rng, rng_below(&rng, 10) == 0 ? MODEL_MAX + 1 : 100);
        if (choice < 60) {
            memset(bytes, (int)rng_below(&rng, 256), n);
            int rc = fli_buf_append(&b, bytes, n);
            assert_int_equal(rc, n > MODEL_MAX - len ? FL_ELIMIT : 0);
            if (rc == 0) {
                memcpy(model + len, bytes, n);
                len += n;
            }
        } else if (choice < 95) {
            n = n > len ? len : n;
            fli_buf_consume(&b, n);
            memmove(model, model + n, len - n);
            len -= n;
        } else if (choice < 98) {
            fli_buf_shrink(&b);
        } else {
            fli_buf_clear(&b);
            len = 0;
        }
        assert_int_equal(b.len, len);
        assert_true(b.cap <= MODEL_MAX);
        if (len > 0) {
            assert_memory_equal(b.data, model, len);
        }
    }
    fli_buf_fini(&b);
}
