/* Exact sums, against integers of 128 bits, against themselves in other orders and cuts, and at the edges of double. */
#include "check.h"

#include "base/compiler.h"
#include "base/rng.h"
#include "base/sum.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

__extension__ typedef __int128 wide;

static float random_float(weft_rng_key key, uint64_t index)
{
    float x;
    uint32_t bits = (uint32_t)weft_i_rng_below(key, index, UINT64_C(1) << 32);
    if ((bits & 0x7F800000U) == 0x7F800000U)
        bits &= ~0x40000000U; /* every finite exponent, the subnormals too */
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static double random_double(weft_rng_key key, uint64_t index)
{
    double x;
    uint64_t bits = weft_i_rng_below(key, index, UINT64_MAX);
    if (((bits >> 52) & 0x7FF) >= 0x7F0)
        bits &= ~(UINT64_C(1) << 62); /* a few hundred of the greatest would overflow */
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static double sum_of(const double *x, int n)
{
    weft_sum s;
    weft_i_sum_init(&s);
    for (int i = 0; i < n; i++)
        weft_i_sum_add(&s, x[i]);
    return weft_i_sum_value(&s);
}

#define SUM_OF(...)                                                                                \
    sum_of((const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static void test_base_sum__gives_single_numbers_back(void **state)
{
    (void)state;
    static const double x[] = {1.0,       -1.0,       0.1,
                               DBL_MAX,   -DBL_MAX,   DBL_MIN,
                               0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp-1023,
                               0x1.8p1000};
    for (size_t i = 0; i < WEFT_COUNT_OF(x); i++)
        CHECK_SAME_DOUBLE(sum_of(&x[i], 1), x[i]);
    CHECK_SAME_DOUBLE(sum_of(NULL, 0), 0.0);
    CHECK_SAME_DOUBLE(SUM_OF(-0.0), 0.0);
    const weft_rng_key key = weft_i_rng_key(1, "single");
    for (uint64_t i = 0; i < 100000; i++) {
        const double y = random_double(key, i);
        CHECK_SAME_DOUBLE(sum_of(&y, 1), y);
    }
}

/* Pairs whose exact sum the hardware rounds correctly: it must be the same. */
static void test_base_sum__rounds_pairs_as_the_processor_does(void **state)
{
    (void)state;
    const weft_rng_key key = weft_i_rng_key(2, "pairs");
    for (uint64_t i = 0; i < 200000; i++) {
        double pair[2] = {random_double(key, 3 * i), random_double(key, 3 * i + 1)};
        /* Of near exponents, so that the rounding is of every kind. */
        (void)frexp(pair[1], &(int){0});
        int e0, e1;
        (void)frexp(pair[0], &e0);
        (void)frexp(pair[1], &e1);
        pair[1] = ldexp(pair[1], e0 - e1 - (int)weft_i_rng_below(key, 3 * i + 2, 120));
        const double hardware = pair[0] + pair[1];
        CHECK_SAME_DOUBLE(sum_of(pair, 2), hardware);
    }
}

static void test_base_sum__rounds_to_nearest_even(void **state)
{
    (void)state;
    CHECK_SAME_DOUBLE(SUM_OF(1.0, 0x1p-53), 1.0);                          /* a tie, to even */
    CHECK_SAME_DOUBLE(SUM_OF(1.0, 0x1p-53, 0x1p-1074), 1.0 + DBL_EPSILON); /* just above the tie */
    CHECK_SAME_DOUBLE(SUM_OF(1.0, 0x1p-53, -0x1p-1074), 1.0);              /* just below */
    CHECK_SAME_DOUBLE(SUM_OF(1.0 + DBL_EPSILON, 0x1p-53), 1.0 + 2.0 * DBL_EPSILON);
    CHECK_SAME_DOUBLE(SUM_OF(-1.0, -0x1p-53, -0x1p-1074), -1.0 - DBL_EPSILON);
    CHECK_SAME_DOUBLE(SUM_OF(0x1.fffffffffffffp0, 0x1p-53), 2.0); /* carries into the next power */
    CHECK_SAME_DOUBLE(SUM_OF(DBL_MIN, -0x1p-1074), 0x1.ffffffffffffep-1023);
}

static void test_base_sum__overflows_to_infinity_and_comes_back(void **state)
{
    (void)state;
    CHECK_SAME_DOUBLE(SUM_OF(DBL_MAX, DBL_MAX), (double)INFINITY);
    CHECK_SAME_DOUBLE(SUM_OF(-DBL_MAX, -DBL_MAX), -(double)INFINITY);
    CHECK_SAME_DOUBLE(SUM_OF(DBL_MAX, 0x1p969), DBL_MAX);          /* under half a unit */
    CHECK_SAME_DOUBLE(SUM_OF(DBL_MAX, 0x1p970), (double)INFINITY); /* half a unit: a tie, to even */
    CHECK_SAME_DOUBLE(SUM_OF(DBL_MAX, DBL_MAX, -DBL_MAX), DBL_MAX);
    weft_sum s;
    weft_i_sum_init(&s);
    for (int i = 0; i < 100000; i++)
        weft_i_sum_add(&s, DBL_MAX);
    for (int i = 0; i < 99999; i++)
        weft_i_sum_add(&s, -DBL_MAX);
    CHECK_SAME_DOUBLE(weft_i_sum_value(&s), DBL_MAX);
}

static void test_base_sum__survives_catastrophic_cancellation(void **state)
{
    (void)state;
    CHECK_SAME_DOUBLE(SUM_OF(1e308, 1.0, -1e308), 1.0);
    CHECK_SAME_DOUBLE(SUM_OF(1e300, 1e-300, -1e300, 0x1p-1074, -1e-300), 0x1p-1074);
    const weft_rng_key key = weft_i_rng_key(3, "cancel");
    weft_sum s;
    weft_i_sum_init(&s);
    for (uint64_t i = 0; i < 20000; i++)
        weft_i_sum_add(&s, random_double(key, i));
    weft_i_sum_add(&s, 3.0);
    for (uint64_t i = 20000; i-- > 0;)
        weft_i_sum_add(&s, -random_double(key, i));
    CHECK_SAME_DOUBLE(weft_i_sum_value(&s), 3.0);
}

static void test_base_sum__agrees_with_wide_integers(void **state)
{
    (void)state;
    const weft_rng_key key = weft_i_rng_key(4, "wide");
    for (uint64_t run = 0; run < 200; run++) {
        weft_sum s;
        weft_i_sum_init(&s);
        wide exact = 0;
        for (uint64_t i = 0; i < 500; i++) {
            const int shift = (int)weft_i_rng_below(key, run * 2000 + 2 * i, 60);
            const int64_t m =
                (int64_t)weft_i_rng_below(key, run * 2000 + 2 * i + 1, UINT64_C(1) << 53) -
                (INT64_C(1) << 52);
            weft_i_sum_add(&s, ldexp((double)m, shift - 70));
            exact += m * ((wide)1 << shift);
        }
        CHECK_SAME_DOUBLE(weft_i_sum_value(&s),
                          ldexp((double)exact, -70)); /* gcc and clang round it correctly */
    }
}

static void test_base_sum__is_the_same_bits_in_any_order_and_grouping(void **state)
{
    (void)state;
    enum { N = 3000 };
    static double x[N];
    const weft_rng_key key = weft_i_rng_key(5, "order");
    for (int i = 0; i < N; i++)
        x[i] = random_double(key, (uint64_t)i);
    weft_sum forward;
    weft_i_sum_init(&forward);
    for (int i = 0; i < N; i++)
        weft_i_sum_add(&forward, x[i]);
    weft_i_sum_normalise(&forward);
    for (uint64_t run = 0; run < 50; run++) {
        for (int i = N - 1; i > 0; i--) {
            const int j = (int)weft_i_rng_below(key, N + run * N + (uint64_t)i, (uint64_t)i + 1);
            const double swapped = x[i];
            x[i] = x[j];
            x[j] = swapped;
        }
        weft_sum part[7], all;
        weft_i_sum_init(&all);
        for (int p = 0; p < 7; p++)
            weft_i_sum_init(&part[p]);
        for (int i = 0; i < N; i++)
            weft_i_sum_add(&part[weft_i_rng_below(key, (uint64_t)i + run, 7)], x[i]);
        for (int p = 0; p < 7; p++) {
            if (run % 2 == 0)
                weft_i_sum_normalise(&part[p]);
            weft_i_sum_merge(&all, &part[p]);
        }
        weft_i_sum_normalise(&all);
        assert_memory_equal(&all, &forward, sizeof(all));
        CHECK_SAME_DOUBLE(weft_i_sum_value(&all), weft_i_sum_value(&forward));
    }
}

/* The fast tables against one exact double after the other, at every length class and mixture of exponents. */
static void check_floats(const float *x, int64_t n)
{
    weft_sum fast, slow, fast_squares, slow_squares;
    weft_i_sum_init(&fast);
    weft_i_sum_init(&slow);
    weft_i_sum_init(&fast_squares);
    weft_i_sum_init(&slow_squares);
    weft_i_sum_add_floats(&fast, x, n);
    weft_i_sum_add_squares(&fast_squares, x, n);
    for (int64_t i = 0; i < n; i++) {
        weft_i_sum_add(&slow, (double)x[i]);
        weft_i_sum_add(&slow_squares, (double)x[i] * (double)x[i]);
    }
    weft_i_sum_normalise(&fast);
    weft_i_sum_normalise(&slow);
    weft_i_sum_normalise(&fast_squares);
    weft_i_sum_normalise(&slow_squares);
    assert_memory_equal(&fast, &slow, sizeof(fast));
    assert_memory_equal(&fast_squares, &slow_squares, sizeof(fast));
}

static void test_base_sum__adds_floats_and_squares_exactly(void **state)
{
    (void)state;
    static float x[100003];
    static const int64_t n[] = {0, 1, 511, 512, 513, 32767, 32768, 32769, 100003};
    const weft_rng_key key = weft_i_rng_key(6, "floats");
    for (int kind = 0; kind < 4; kind++) {
        for (uint64_t i = 0; i < WEFT_COUNT_OF(x); i++) {
            if (kind == 0)
                x[i] = random_float(key, i);
            else if (kind == 1)
                x[i] = (float)weft_i_rng_normal(key, i);
            else if (kind == 2)
                x[i] = i % 2 == 0 ? 0x1.fffffep-1F
                                  : -0x1.fffffep-1F; /* the greatest integer, one table cell */
            else
                x[i] = i % 3 == 0 ? 0x1p-149F : -0.0F;
        }
        for (size_t k = 0; k < WEFT_COUNT_OF(n); k++)
            check_floats(x, n[k]);
    }
    for (uint64_t i = 0; i < WEFT_COUNT_OF(x); i++)
        x[i] = FLT_MAX;
    check_floats(x, WEFT_COUNT_OF(x));
}

static void test_base_sum__is_nan_after_what_is_not_finite(void **state)
{
    (void)state;
    static float x[2000];
    for (size_t i = 0; i < WEFT_COUNT_OF(x); i++)
        x[i] = 1.0F;
    const float bad[] = {(float)INFINITY, -(float)INFINITY, (float)NAN};
    static const int64_t length[] = {100, 2000};
    for (size_t b = 0; b < WEFT_COUNT_OF(bad); b++) {
        for (size_t k = 0; k < WEFT_COUNT_OF(length); k++) {
            x[50] = bad[b];
            x[60] = -bad[b];
            weft_sum s, t, u;
            weft_i_sum_init(&s);
            weft_i_sum_init(&t);
            weft_i_sum_init(&u);
            weft_i_sum_add_squares(&s, x, length[k]);
            weft_i_sum_add_floats(&t, x, length[k]);
            weft_i_sum_add(&u, (double)bad[b]);
            assert_int_equal(s.n_nonfinite, 2);
            assert_int_equal(t.n_nonfinite, 2);
            assert_true(isnan(weft_i_sum_value(&s)) && isnan(weft_i_sum_value(&t)) &&
                        isnan(weft_i_sum_value(&u)));
            weft_sum merged;
            weft_i_sum_init(&merged);
            weft_i_sum_merge(&merged, &s);
            assert_true(isnan(weft_i_sum_value(&merged)));
        }
    }
}

/* Bins near their limit: carries must be passed on before anything overflows. */
static void test_base_sum__passes_carries_in_time(void **state)
{
    (void)state;
    weft_sum s;
    weft_i_sum_init(&s);
    weft_i_sum_add(&s, 0x1.fffffffffffffp52);
    int64_t n = 1;
    for (int i = 0; i < 40; i++) { /* doubling: 2^40 numbers */
        const weft_sum copy = s;
        weft_i_sum_merge(&s, &copy);
        n *= 2;
    }
    CHECK_SAME_DOUBLE(weft_i_sum_value(&s), 0x1.fffffffffffffp52 * (double)n);
    s.n_pending = (INT64_C(1) << 30) - 1;
    for (int i = 0; i < 5; i++)
        weft_i_sum_add(&s, -1.0);
    weft_i_sum_add(&s, 5.0);
    assert_true(s.n_pending < 100);
    CHECK_SAME_DOUBLE(weft_i_sum_value(&s), 0x1.fffffffffffffp52 * (double)n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_sum__gives_single_numbers_back),
        cmocka_unit_test(test_base_sum__rounds_pairs_as_the_processor_does),
        cmocka_unit_test(test_base_sum__rounds_to_nearest_even),
        cmocka_unit_test(test_base_sum__overflows_to_infinity_and_comes_back),
        cmocka_unit_test(test_base_sum__survives_catastrophic_cancellation),
        cmocka_unit_test(test_base_sum__agrees_with_wide_integers),
        cmocka_unit_test(test_base_sum__is_the_same_bits_in_any_order_and_grouping),
        cmocka_unit_test(test_base_sum__adds_floats_and_squares_exactly),
        cmocka_unit_test(test_base_sum__is_nan_after_what_is_not_finite),
        cmocka_unit_test(test_base_sum__passes_carries_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
