/* Parameter counts of published models, to the unit. */
#include "scratch.h"

#include "weft/inspect.h"

static weft_param_counts count(weft_config c)
{
    weft_param_counts n;
    expect_ok(weft_config_count(&n, &c));
    int64_t sum = 0;
    for (int k = 0; k < WEFT_PARAM_KIND_COUNT; k++)
        sum += n.by_kind[k];
    assert_true(sum == n.total);
    return n;
}

static weft_config gpt2(int64_t layers, int64_t width)
{
    return (weft_config){.family = WEFT_FAMILY_GPT2,
                         .vocab_size = 50257,
                         .hidden_size = width,
                         .n_layers = layers,
                         .n_heads = width / 64,
                         .n_kv_heads = width / 64,
                         .head_dim = 64,
                         .ffn_size = 4 * width,
                         .max_positions = 1024,
                         .is_tied = true};
}

static weft_config
llama(int64_t layers, int64_t width, int64_t ffn, int64_t heads, int64_t kv, int64_t vocab)
{
    return (weft_config){.family = WEFT_FAMILY_LLAMA,
                         .vocab_size = vocab,
                         .hidden_size = width,
                         .n_layers = layers,
                         .n_heads = heads,
                         .n_kv_heads = kv,
                         .head_dim = width / heads,
                         .ffn_size = ffn,
                         .max_positions = 8192};
}

static void test_train_param_counts__published_models(void **state)
{
    (void)state;
    assert_int_equal(count(gpt2(12, 768)).total, 124439808);
    assert_int_equal(count(gpt2(48, 1600)).total, 1557611200);
    assert_true(count(llama(32, 4096, 11008, 32, 32, 32000)).total == INT64_C(6738415616));
    assert_true(count(llama(32, 4096, 14336, 32, 8, 128256)).total == INT64_C(8030261248));
    assert_true(count(llama(80, 8192, 28672, 64, 8, 128256)).total == INT64_C(70553706496));
    assert_true(count(llama(126, 16384, 53248, 128, 8, 128256)).total == INT64_C(405853388800));
}

static void test_train_param_counts__kinds_and_largest_layer(void **state)
{
    (void)state;
    const weft_param_counts n = count(gpt2(12, 768));
    assert_int_equal(n.by_kind[WEFT_PARAM_EMBEDDING], 50257 * 768 + 1024 * 768);
    assert_int_equal(n.by_kind[WEFT_PARAM_ATTENTION], 12 * (768 * 2304 + 2304 + 768 * 768 + 768));
    assert_int_equal(n.by_kind[WEFT_PARAM_MLP], 12 * (2 * 768 * 3072 + 3072 + 768));
    assert_int_equal(n.by_kind[WEFT_PARAM_NORM], 12 * 4 * 768 + 2 * 768);
    assert_int_equal(n.by_kind[WEFT_PARAM_HEAD], 0);
    assert_string_equal(n.largest_name, "embedding");
    const weft_param_counts big = count(llama(126, 16384, 53248, 128, 8, 128256));
    assert_string_equal(big.largest_name, "block");
    assert_true(big.largest == big.block);
    const weft_param_counts small = count(llama(2, 32, 48, 4, 2, 256));
    assert_int_equal(small.total, 31904);
    assert_string_equal(small.largest_name, "head"); /* with the last norm */
    assert_int_equal(small.largest, 256 * 32 + 32);
}

static void test_train_param_counts__biases(void **state)
{
    (void)state;
    weft_config c = llama(2, 32, 48, 4, 2, 256);
    c.has_attention_bias = true;
    assert_int_equal(count(c).total, 31904 + 2 * (32 + 16 + 16 + 32));
    c.has_mlp_bias = true;
    assert_int_equal(count(c).total, 31904 + 2 * (32 + 16 + 16 + 32) + 2 * (48 + 48 + 32));
    c.is_tied = true;
    assert_int_equal(count(c).total, 31904 + 2 * 96 + 2 * 128 - 256 * 32);
}

static void test_train_param_counts__sizes_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    weft_param_counts n;
    weft_config c = llama(1 << 30, (int64_t)1 << 30, (int64_t)1 << 30, 1, 1, 1);
    expect_failure(weft_config_count(&n, &c), WEFT_STATUS_ARG, "64 bits", NULL);
    c = llama(1, INT64_MAX, 1, 1, 1, 1);
    expect_failure(weft_config_count(&n, &c), WEFT_STATUS_ARG, "too large", NULL);
    c = llama(-1, 32, 48, 4, 2, 256);
    expect_failure(weft_config_count(&n, &c), WEFT_STATUS_ARG, "negative", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_param_counts__published_models),
        cmocka_unit_test(test_train_param_counts__kinds_and_largest_layer),
        cmocka_unit_test(test_train_param_counts__biases),
        cmocka_unit_test(test_train_param_counts__sizes_beyond_64_bits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
