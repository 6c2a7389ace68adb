/* Philox against the known answers of its authors, and the distributions against moments and the C library. */
#include "check.h"

#include "base/compiler.h"
#include "base/rng.h"

#include <math.h>

/* Random123-1.14, tests/kat_vectors, lines "philox4x32 10". */
static void test_base_rng__philox_gives_the_known_answers(void **state)
{
    (void)state;
    static const struct {
        weft_rng_block counter;
        weft_rng_key key;
        weft_rng_block answer;
    } known[] = {
        {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {{0xffffffff, 0xffffffff}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xa4093822, 0x299f31d0}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(known); i++) {
        const weft_rng_block got = weft_i_rng_philox(known[i].key, known[i].counter);
        for (int w = 0; w < 4; w++)
            assert_int_equal(got.word[w], known[i].answer.word[w]);
    }
}

static void test_base_rng__keys_differ_by_seed_and_by_name(void **state)
{
    (void)state;
    static const char *const name[] = {"", "a", "b", "ab", "ba", "init/model.norm.weight", "data"};
    uint64_t seen[64 * WEFT_COUNT_OF(name)];
    size_t n = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        for (size_t i = 0; i < WEFT_COUNT_OF(name); i++) {
            const weft_rng_key key = weft_i_rng_key(seed, name[i]);
            const uint64_t both = ((uint64_t)key.word[1] << 32) | key.word[0];
            for (size_t j = 0; j < n; j++)
                assert_true(seen[j] != both);
            seen[n++] = both;
        }
    }
    const weft_rng_key again = weft_i_rng_key(3, "ab");
    const weft_rng_key same = weft_i_rng_key(3, "ab");
    assert_memory_equal(&again, &same, sizeof(same));
}

/* The documented rule, with the C library's functions: bits of counter index / 2, cosine for even, sine for odd. */
static void test_base_rng__normal_follows_box_muller(void **state)
{
    (void)state;
    const weft_rng_key key = weft_i_rng_key(7, "normal");
    for (uint64_t i = 0; i < 20000; i++) {
        const uint64_t index = i < 10000 ? i : i * UINT64_C(0x9E3779B97F4A7C1);
        const uint64_t pair = index / 2;
        const weft_rng_block b = weft_i_rng_philox(
            key, (weft_rng_block){{(uint32_t)pair, (uint32_t)(pair >> 32), 0, 0}});
        const uint64_t w0 = ((uint64_t)b.word[1] << 32) | b.word[0];
        const uint64_t w1 = ((uint64_t)b.word[3] << 32) | b.word[2];
        const double u1 = ldexp((double)(w0 >> 11) + 1.0, -53);
        const double angle = 2.0 * acos(-1.0) * ldexp((double)(w1 >> 11), -53);
        const double expected = sqrt(-2.0 * log(u1)) * (index % 2 == 0 ? cos(angle) : sin(angle));
        CHECK_NEAR(weft_i_rng_normal(key, index), expected, 1e-14);
    }
}

static void test_base_rng__normals_are_the_same_bits_from_any_start(void **state)
{
    (void)state;
    const weft_rng_key key = weft_i_rng_key(1, "fill");
    double out[40];
    for (uint64_t first = 0; first < 5; first++) {
        for (int64_t n = 0; n < 34; n++) {
            out[n] = -77.0;
            weft_i_rng_normals(key, first, n, out);
            for (int64_t i = 0; i < n; i++)
                CHECK_SAME_DOUBLE(out[i], weft_i_rng_normal(key, first + (uint64_t)i));
            CHECK_SAME_DOUBLE(out[n], -77.0);
        }
    }
}

/* Bounds of six standard errors of each moment. */
static void test_base_rng__normal_has_the_moments_of_a_normal(void **state)
{
    (void)state;
    const int n = 200000;
    const weft_rng_key key = weft_i_rng_key(42, "moments");
    double m1 = 0.0, m2 = 0.0, m3 = 0.0, m4 = 0.0, lag = 0.0, last = 0.0;
    for (int i = 0; i < n; i++) {
        const double x = weft_i_rng_normal(key, (uint64_t)i);
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
        lag += x * last;
        last = x;
    }
    const double root = sqrt((double)n);
    CHECK_NEAR(m1 / n, 0.0, 6.0 / root);
    CHECK_NEAR(m2 / n, 1.0, 6.0 * sqrt(2.0) / root);
    CHECK_NEAR(m3 / n, 0.0, 6.0 * sqrt(15.0) / root);
    CHECK_NEAR(m4 / n, 3.0, 6.0 * sqrt(96.0) / root);
    CHECK_NEAR(lag / n, 0.0, 6.0 / root);
}

static void test_base_rng__uniform_fills_the_unit_interval(void **state)
{
    (void)state;
    enum { N = 100000, CELLS = 20 };
    int cell[CELLS] = {0};
    const weft_rng_key key = weft_i_rng_key(5, "uniform");
    for (int i = 0; i < N; i++) {
        const double x = weft_i_rng_uniform(key, (uint64_t)i);
        assert_true(x >= 0.0 && x < 1.0);
        cell[(int)(x * CELLS)]++;
    }
    double chi2 = 0.0;
    for (int i = 0; i < CELLS; i++) {
        const double d = cell[i] - (double)N / CELLS;
        chi2 += d * d / ((double)N / CELLS);
    }
    assert_true(chi2 < 19.0 + 6.0 * sqrt(38.0)); /* mean 19, variance 38 */
}

static void test_base_rng__below_is_the_high_word_of_the_product(void **state)
{
    (void)state;
    __extension__ typedef unsigned __int128 wide;
    const weft_rng_key key = weft_i_rng_key(9, "below");
    static const uint64_t n[] = {
        1, 2, 3, 10, 1000003, UINT64_C(1) << 32, UINT64_MAX, UINT64_C(0x123456789ABCDEF)};
    for (size_t k = 0; k < WEFT_COUNT_OF(n); k++) {
        for (uint64_t i = 0; i < 1000; i++) {
            const weft_rng_block b =
                weft_i_rng_philox(key, (weft_rng_block){{(uint32_t)(i / 2), 0, 0, 0}});
            const uint64_t low = i % 2 == 0 ? b.word[0] : b.word[2];
            const uint64_t high = i % 2 == 0 ? b.word[1] : b.word[3];
            const uint64_t expected = (uint64_t)(((wide)((high << 32) | low) * n[k]) >> 64);
            assert_int_equal(weft_i_rng_below(key, i, n[k]), expected);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_rng__philox_gives_the_known_answers),
        cmocka_unit_test(test_base_rng__keys_differ_by_seed_and_by_name),
        cmocka_unit_test(test_base_rng__normal_follows_box_muller),
        cmocka_unit_test(test_base_rng__normals_are_the_same_bits_from_any_start),
        cmocka_unit_test(test_base_rng__normal_has_the_moments_of_a_normal),
        cmocka_unit_test(test_base_rng__uniform_fills_the_unit_interval),
        cmocka_unit_test(test_base_rng__below_is_the_high_word_of_the_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
