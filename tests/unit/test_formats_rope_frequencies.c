/*
 * Inverse frequencies against transformers in float64 (tests/data/rope_oracle.json, made by make_rope_oracle.py beside it),
 * through the whole way from config.json; and against values worked out by hand.
 */
#include "check.h"
#include "scratch.h"

#include <math.h>
#include <stdlib.h>

#include "formats/hf_config.h"
#include "formats/json.h"

#define ORACLE WEFT_SOURCE_DIR "/tests/data/rope_oracle.json"
#define HEAD_DIM_MAX 256

static weft_config parse(scratch *s, const char *text, size_t n_bytes)
{
    weft_hf_config c = {.text = NULL};
    CHECK_OK(weft_i_hf_config_parse(&c, s->alloc, "config.json", text, n_bytes));
    weft_i_hf_config_fini(&c, s->alloc);
    return c.config;
}

static void check_case(scratch *s, const json_t *one)
{
    double have[HEAD_DIM_MAX / 2];
    const char *name = json_string_value(json_object_get(one, "name"));
    char *text = json_dumps(json_object_get(one, "config"), 0);
    const weft_config c = parse(s, text, strlen(text));
    const json_t *wanted = json_object_get(one, "inv_freq");
    const int64_t n_positions = json_integer_value(json_object_get(one, "n_positions"));
    free(text);
    assert_int_equal(json_array_size(wanted), c.head_dim / 2);
    weft_i_rope_frequencies(&c.rope, c.head_dim, c.max_positions, n_positions, have);
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        const double w = json_number_value(json_array_get(wanted, i));
        if (!(fabs(have[i] - w) <= 1e-13 * w))
            fail_msg("%s: frequency %zu is %.17g, transformers has %.17g", name, i, have[i], w);
    }
    const double factor = json_number_value(json_object_get(one, "attention_factor"));
    if (!(fabs(c.rope.attention_factor - factor) <= 1e-15 * factor))
        fail_msg("%s: attention factor %.17g, transformers has %.17g", name,
                 c.rope.attention_factor, factor);
}

static void test_formats_rope_frequencies__agree_with_transformers(void **state)
{
    json_t *root = json_load_file(ORACLE, 0, NULL);
    size_t i;
    json_t *one;
    assert_non_null(root);
    const json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 50);
    for (i = 0; i < json_array_size(cases); i++) {
        one = json_array_get(cases, i);
        check_case(*state, one);
    }
    json_decref(root);
}

static void check_values(const weft_rope *rope, int64_t head_dim, const double *wanted)
{
    double have[HEAD_DIM_MAX / 2];
    weft_i_rope_frequencies(rope, head_dim, 512, 512, have);
    for (int64_t i = 0; i < head_dim / 2; i++)
        CHECK_NEAR(have[i] / wanted[i], 1.0, 5e-8);
}

/* Which pairs of Llama 3.2 1B are kept, blended and divided. */
static void test_formats_rope_frequencies__llama3_keeps_blends_and_divides(void **state)
{
    (void)state;
    static const double tiny[] = {1,       0.2443846,     0.013042256, 0.0039528471,
                                  0.00125, 0.00039528471, 0.000125,    3.9528471e-05};
    weft_rope rope = {.kind = WEFT_ROPE_LLAMA3,
                      .theta = 1e4,
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_max_positions = 64};
    check_values(&rope, 16, tiny);
    const weft_rope plain = {.kind = WEFT_ROPE_DEFAULT, .theta = 5e5};
    double base[64], have[64];
    rope.theta = 5e5;
    rope.factor = 32;
    rope.original_max_positions = 8192;
    weft_i_rope_frequencies(&plain, 64, 131072, 1, base);
    weft_i_rope_frequencies(&rope, 64, 131072, 1, have);
    for (int i = 0; i < 15; i++)
        CHECK_SAME_DOUBLE(have[i], base[i]);
    CHECK_NEAR(have[15], 0.00129055, 5e-9);
    CHECK_NEAR(have[16], 0.00042956, 5e-9);
    CHECK_NEAR(have[17], 0.0000970829, 5e-11);
    for (int i = 18; i < 32; i++)
        CHECK_SAME_DOUBLE(have[i], base[i] / 32);
    rope.factor = 8;
    weft_i_rope_frequencies(&plain, 128, 131072, 1, base);
    weft_i_rope_frequencies(&rope, 128, 131072, 1, have);
    for (int i = 0; i < 64; i++) {
        const bool is_kept = have[i] == base[i], is_divided = have[i] == base[i] / 8;
        assert_int_equal(is_kept, i <= 28);
        assert_int_equal(is_divided, i >= 35);
    }
}

static void test_formats_rope_frequencies__yarn_ramps(void **state)
{
    (void)state;
    static const double tiny[] = {1,      0.23717082,    0.05,    0.0079056942,
                                  0.0025, 0.00079056942, 0.00025, 7.9056942e-05};
    const weft_rope rope = {.kind = WEFT_ROPE_YARN,
                            .theta = 1e4,
                            .factor = 4,
                            .beta_fast = 32,
                            .beta_slow = 1,
                            .is_truncated = true,
                            .original_max_positions = 64};
    check_values(&rope, 16, tiny);
}

/* Position 10 under factor 2 turns as far as position 5 without. */
static void test_formats_rope_frequencies__linear_halves_positions(void **state)
{
    (void)state;
    const weft_rope plain = {.kind = WEFT_ROPE_DEFAULT, .theta = 1e4};
    const weft_rope linear = {.kind = WEFT_ROPE_LINEAR, .theta = 1e4, .factor = 2};
    double a[8], b[8];
    weft_i_rope_frequencies(&plain, 16, 64, 64, a);
    weft_i_rope_frequencies(&linear, 16, 64, 64, b);
    for (int i = 0; i < 8; i++)
        CHECK_SAME_DOUBLE(10 * b[i], 5 * a[i]);
}

/* Up to the model's own length dynamic scaling does nothing. */
static void test_formats_rope_frequencies__dynamic_starts_behind_the_length(void **state)
{
    (void)state;
    const weft_rope plain = {.kind = WEFT_ROPE_DEFAULT, .theta = 1e4};
    const weft_rope dynamic = {.kind = WEFT_ROPE_DYNAMIC, .theta = 1e4, .factor = 2};
    double a[8], b[8];
    weft_i_rope_frequencies(&plain, 16, 64, 64, a);
    for (int64_t n = 0; n <= 64; n += 32) {
        weft_i_rope_frequencies(&dynamic, 16, 64, n, b);
        assert_memory_equal(a, b, sizeof(a));
    }
    weft_i_rope_frequencies(&dynamic, 16, 64, 65, b);
    CHECK_SAME_DOUBLE(b[0], 1.0);
    assert_true(b[7] < a[7]);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_rope_frequencies__agree_with_transformers),
        WITH_SCRATCH(test_formats_rope_frequencies__llama3_keeps_blends_and_divides),
        WITH_SCRATCH(test_formats_rope_frequencies__yarn_ramps),
        WITH_SCRATCH(test_formats_rope_frequencies__linear_halves_positions),
        WITH_SCRATCH(test_formats_rope_frequencies__dynamic_starts_behind_the_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
