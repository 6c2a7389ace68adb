/* Shapes: counts that cannot wrap, comparison, text. */
#include "check.h"

#include "tensor/shape.h"

#define BIG ((int64_t)1 << 40)

static int64_t count(weft_shape s)
{
    int64_t n = -7;
    CHECK_OK(weft_i_shape_count(&s, &n));
    return n;
}

static void test_tensor_shape__counts_elements(void **state)
{
    (void)state;
    assert_int_equal(count((weft_shape){.n_dims = 0}), 1);
    assert_int_equal(count(weft_i_shape_1d(0)), 0);
    assert_int_equal(count(weft_i_shape_2d(3, 7)), 21);
    assert_int_equal(count((weft_shape){3, {0, BIG, BIG}}), 0);
    assert_int_equal(count((weft_shape){2, {BIG, (1 << 23) - 1}}), BIG * ((1 << 23) - 1));
}

static void test_tensor_shape__refuses_what_cannot_be_counted(void **state)
{
    (void)state;
    int64_t n = -7;
    const weft_shape wide = {3, {BIG, BIG, 0}};
    const weft_shape over = {2, {BIG, 1 << 23}};
    const weft_shape negative = {2, {4, -1}};
    CHECK_FAILS(weft_i_shape_count(&wide, &n), WEFT_STATUS_FORMAT,
                "[1099511627776, 1099511627776, 0]");
    CHECK_FAILS(weft_i_shape_count(&over, &n), WEFT_STATUS_FORMAT, "more elements");
    CHECK_FAILS(weft_i_shape_count(&negative, &n), WEFT_STATUS_FORMAT, "[4, -1] has a negative");
    assert_int_equal(n, -7);
}

static void test_tensor_shape__compares(void **state)
{
    (void)state;
    const weft_shape a = weft_i_shape_2d(2, 3);
    const weft_shape b = weft_i_shape_2d(3, 2);
    const weft_shape c = {3, {2, 3, 1}};
    const weft_shape d = {2, {2, 3, 99}}; /* what is behind n_dims does not count */
    assert_true(weft_i_shape_equal(&a, &d));
    assert_false(weft_i_shape_equal(&a, &b));
    assert_false(weft_i_shape_equal(&a, &c));
}

static void test_tensor_shape__prints(void **state)
{
    (void)state;
    char text[64];
    char small[6];
    const weft_shape s = {3, {2, 24, 256}};
    const weft_shape scalar = {.n_dims = 0};
    assert_string_equal(weft_i_shape_text(&s, text, sizeof(text)), "[2, 24, 256]");
    assert_string_equal(weft_i_shape_text(&scalar, text, sizeof(text)), "[]");
    assert_string_equal(weft_i_shape_text(&s, small, sizeof(small)), "[2, 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_shape__counts_elements),
        cmocka_unit_test(test_tensor_shape__refuses_what_cannot_be_counted),
        cmocka_unit_test(test_tensor_shape__compares),
        cmocka_unit_test(test_tensor_shape__prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
