/*
 * Conversions against an oracle made of the formats' definitions in double arithmetic: a number is rounded to the nearest
 * multiple of its quantum by rint (ties to even), which shares nothing with the bit tricks under test.
 */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/convert.h"

/* Format of 1 + n_exponent + n_fraction bits. */
typedef struct small_format {
    int n_exponent, n_fraction;
} small_format;

static const small_format half = {5, 10};
static const small_format brain = {8, 7};

static int bias(small_format f)
{
    return (1 << (f.n_exponent - 1)) - 1;
}

static double decode(small_format f, uint16_t x)
{
    const int fraction = x & ((1 << f.n_fraction) - 1);
    const int exponent = (x >> f.n_fraction) & ((1 << f.n_exponent) - 1);
    const double sign = (x & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << f.n_exponent) - 1)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias(f) - f.n_fraction);
    return sign * ldexp((1 << f.n_fraction) + fraction, exponent - bias(f) - f.n_fraction);
}

static double round_to(small_format f, double x)
{
    int exponent;
    if (x == 0.0 || isnan(x) || isinf(x))
        return x;
    (void)frexp(x, &exponent); /* x = m * 2^exponent, m in [0.5, 1) */
    const int least = 1 - bias(f) - f.n_fraction;
    const int quantum = exponent - 1 - f.n_fraction > least ? exponent - 1 - f.n_fraction : least;
    const double y = ldexp(rint(ldexp(x, -quantum)), quantum);
    return fabs(y) >= ldexp(1.0, bias(f) + 1) ? copysign((double)INFINITY, x) : y;
}

static void check_rounding(small_format f, uint16_t got, double x)
{
    const double wanted = round_to(f, x);
    const double have = decode(f, got);
    if (isnan(wanted) ? !isnan(have) : !(have == wanted && signbit(have) == signbit(wanted)))
        fail_msg("%a became %a, expected %a", x, have, wanted);
}

static void test_tensor_convert__widens_every_f16_and_bf16(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= 0xffff; i++) {
        const uint16_t x = (uint16_t)i;
        const float h = weft_i_f16_to_f32(x);
        const float b = weft_i_bf16_to_f32(x);
        if (isnan(decode(half, x)))
            assert_true(isnan(h));
        else
            CHECK_SAME_DOUBLE((double)h, decode(half, x));
        if (isnan(decode(brain, x)))
            assert_true(isnan(b));
        else
            CHECK_SAME_DOUBLE((double)b, decode(brain, x));
        if (!isnan(h))
            assert_int_equal(weft_i_f32_to_f16(h), x);
        if (!isnan(b))
            assert_int_equal(weft_i_f32_to_bf16(b), x);
    }
}

/* Halfway between two neighbours, and a hair to each side. */
static void test_tensor_convert__rounds_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7f80; i++) {
        const float middle_b =
            (float)((decode(brain, (uint16_t)i) + decode(brain, (uint16_t)(i + 1))) / 2);
        const float near[] = {middle_b, nextafterf(middle_b, 0.0f), nextafterf(middle_b, INFINITY)};
        for (int j = 0; j < 3 && i < 0x7f7f; j++) {
            check_rounding(brain, weft_i_f32_to_bf16(near[j]), (double)near[j]);
            check_rounding(brain, weft_i_f32_to_bf16(-near[j]), -(double)near[j]);
        }
        if (i >= 0x7bff)
            continue;
        const float middle_h =
            (float)((decode(half, (uint16_t)i) + decode(half, (uint16_t)(i + 1))) / 2);
        const float close[] = {middle_h, nextafterf(middle_h, 0.0f),
                               nextafterf(middle_h, INFINITY)};
        for (int j = 0; j < 3; j++) {
            check_rounding(half, weft_i_f32_to_f16(close[j]), (double)close[j]);
            check_rounding(half, weft_i_f32_to_f16(-close[j]), -(double)close[j]);
        }
    }
}

static void test_tensor_convert__handles_the_edges(void **state)
{
    (void)state;
    const float edges[] = {0.0f,      -0.0f,         65504.0f,    65519.996f,  65520.0f,
                           1e30f,     0x1p-24f,      0x1p-25f,    0x1.8p-25f,  0x1p-26f,
                           0x1p-149f, 3.4028235e38f, 0x1.fep127f, 0x1.ffp127f, -INFINITY,
                           INFINITY,  NAN,           -65536.0f};
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        check_rounding(half, weft_i_f32_to_f16(edges[i]), (double)edges[i]);
        check_rounding(brain, weft_i_f32_to_bf16(edges[i]), (double)edges[i]);
    }
}

static uint64_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s ^ (*s >> 29);
}

/* From F64 too there is one rounding: through float first, 1 + 2^-8 + 2^-40 would become 1 instead of 1 + 2^-7. */
static void test_tensor_convert__narrows_f64_with_one_rounding(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int i = 0; i < 200000; i++) {
        const int exponent = (int)(next_random(&seed) % 320) - 170;
        double x = ldexp(1.0 + (double)(next_random(&seed) % 2048) / 2048.0, exponent);
        x += (i % 3 - 1) * ldexp(x, -(int)(next_random(&seed) % 50));
        uint16_t h, b;
        float f;
        CHECK_OK(weft_i_convert(&h, WEFT_DTYPE_F16, &x, WEFT_DTYPE_F64, 1));
        CHECK_OK(weft_i_convert(&b, WEFT_DTYPE_BF16, &x, WEFT_DTYPE_F64, 1));
        CHECK_OK(weft_i_convert(&f, WEFT_DTYPE_F32, &x, WEFT_DTYPE_F64, 1));
        check_rounding(half, h, x);
        check_rounding(brain, b, x);
        CHECK_SAME_DOUBLE((double)f, (double)(float)x);
    }
    const double trap = 1.0 + 0x1p-8 + 0x1p-40;
    uint16_t b;
    CHECK_OK(weft_i_convert(&b, WEFT_DTYPE_BF16, &trap, WEFT_DTYPE_F64, 1));
    CHECK_SAME_DOUBLE(decode(brain, b), 1.0 + 0x1p-7);
}

/* Every pair of types on unaligned arrays, element by element against the single conversions. */
static void test_tensor_convert__converts_unaligned_arrays(void **state)
{
    (void)state;
    enum { N = 37 };
    static const weft_dtype types[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16, WEFT_DTYPE_F16,
                                       WEFT_DTYPE_F64};
    unsigned char src[8 * N + 1], dst[4 * N + 2];
    double values[N];
    for (int i = 0; i < N; i++)
        values[i] = ldexp((double)(i - 18), i % 7 - 3); /* exact in every type */
    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < N; i++) {
            const float f = (float)values[i];
            const uint16_t b = weft_i_f32_to_bf16(f), h = weft_i_f32_to_f16(f);
            const void *from[] = {&f, &b, &h, &values[i]};
            memcpy(src + 1 + (size_t)i * weft_dtype_bytes(types[s]), from[s],
                   weft_dtype_bytes(types[s]));
        }
        for (int d = 0; d < 3; d++) {
            const size_t size = weft_dtype_bytes(types[d]);
            memset(dst, 0xee, sizeof(dst));
            CHECK_OK(weft_i_convert(dst + 1, types[d], src + 1, types[s], N));
            for (int i = 0; i < N; i++) {
                uint16_t x;
                float f;
                memcpy(&x, dst + 1 + (size_t)i * size, sizeof(x));
                memcpy(&f, dst + 1 + (size_t)i * size, size == 4 ? sizeof(f) : 0);
                CHECK_SAME_DOUBLE(d == 0 ? (double)f : decode(d == 1 ? brain : half, x), values[i]);
            }
            assert_int_equal(dst[1 + N * size], 0xee);
        }
    }
}

static void test_tensor_convert__refuses_integers(void **state)
{
    (void)state;
    float f = 1.0f;
    int64_t n = 1;
    CHECK_FAILS(weft_i_convert(&f, WEFT_DTYPE_F32, &n, WEFT_DTYPE_I64, 1), WEFT_STATUS_UNSUPPORTED,
                "I64 to F32");
    CHECK_FAILS(weft_i_convert(&n, WEFT_DTYPE_F64, &f, WEFT_DTYPE_F32, 1), WEFT_STATUS_UNSUPPORTED,
                "F32 to F64");
    CHECK_OK(weft_i_convert(&f, WEFT_DTYPE_F32, NULL, WEFT_DTYPE_BF16, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_convert__widens_every_f16_and_bf16),
        cmocka_unit_test(test_tensor_convert__rounds_ties_to_even),
        cmocka_unit_test(test_tensor_convert__handles_the_edges),
        cmocka_unit_test(test_tensor_convert__narrows_f64_with_one_rounding),
        cmocka_unit_test(test_tensor_convert__converts_unaligned_arrays),
        cmocka_unit_test(test_tensor_convert__refuses_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
