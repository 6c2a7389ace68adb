/* Defaults that depend on other options, and the checks that need more than one. */
#include "check.h"

#include "train/settings.h"

static const weft_config gpt2 = {
    .family = WEFT_FAMILY_GPT2, .max_positions = 1024, .embd_dropout = 0.1};

static weft_train_options defaults(void)
{
    weft_train_options o;
    weft_train_options_init(&o);
    return o;
}

static void test_train_settings__defaults(void **state)
{
    (void)state;
    weft_train_settings s;
    weft_train_options o = defaults();
    weft_config c = gpt2;
    CHECK_OK(weft_i_train_settings_make(&s, &o, &c));
    assert_int_equal(s.seq_length, 256);
    assert_int_equal(s.micro_batch, 8);
    assert_int_equal(s.global_batch, 8);
    assert_int_equal(s.recompute, WEFT_RECOMPUTE_NONE);
    assert_false(s.is_evaluating);
    CHECK_SAME_DOUBLE(s.embd_dropout, 0.1);
    c.max_positions = 64;
    o.layout.global_batch_size = 5; /* fewer than the default micro-batch */
    o.dropout = 0.25;
    CHECK_OK(weft_i_train_settings_make(&s, &o, &c));
    assert_int_equal(s.seq_length, 64);
    assert_int_equal(s.micro_batch, 5);
    CHECK_SAME_DOUBLE(s.attn_dropout, 0.25);
    o.layout.micro_batch_size = 3; /* does not divide: the last one is smaller */
    CHECK_OK(weft_i_train_settings_make(&s, &o, &c));
    assert_int_equal(s.micro_batch, 3);
    assert_int_equal(s.global_batch, 5);
}

static void test_train_settings__types(void **state)
{
    (void)state;
    weft_train_settings s;
    weft_train_options o = defaults();
    CHECK_OK(weft_i_train_settings_make(&s, &o, &gpt2));
    assert_int_equal(weft_i_train_settings_save_dtype(&s, WEFT_DTYPE_BF16), WEFT_DTYPE_BF16);
    o.save_dtype = "fp32";
    CHECK_OK(weft_i_train_settings_make(&s, &o, &gpt2));
    assert_int_equal(weft_i_train_settings_save_dtype(&s, WEFT_DTYPE_BF16), WEFT_DTYPE_F32);
    o.save_dtype = "fp8";
    CHECK_FAILS(weft_i_train_settings_make(&s, &o, &gpt2), WEFT_STATUS_ARG, "fp8");
}

static void test_train_settings__refusals(void **state)
{
    (void)state;
    weft_train_settings s;
    weft_train_options o = defaults();
    o.layout.micro_batch_size = 9;
    o.layout.global_batch_size = 8;
    CHECK_FAILS(weft_i_train_settings_make(&s, &o, &gpt2), WEFT_STATUS_ARG,
                "micro_batch_size 9 is greater than global_batch_size 8");
    o = defaults();
    o.layout.global_batch_size = INT64_C(1) << 30;
    CHECK_FAILS(weft_i_train_settings_make(&s, &o, &gpt2), WEFT_STATUS_ARG, "2^31 tokens");
    o = defaults();
    o.layout.recompute = "some";
    CHECK_FAILS(weft_i_train_settings_make(&s, &o, &gpt2), WEFT_STATUS_ARG, "some");
    o = defaults();
    o.eval_interval = 5;
    o.eval_fraction = 1.0;
    CHECK_FAILS(weft_i_train_settings_make(&s, &o, &gpt2), WEFT_STATUS_ARG, "eval_fraction 1");
    o = defaults();
    o.dropout = 1.0;
    CHECK_FAILS(weft_i_train_settings_make(&s, &o, &gpt2), WEFT_STATUS_ARG, "dropout 1");
    o = defaults();
    o.min_lr = 1.0;
    CHECK_FAILS(weft_i_train_settings_make(&s, &o, &gpt2), WEFT_STATUS_ARG, "min_lr 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_settings__defaults),
        cmocka_unit_test(test_train_settings__types),
        cmocka_unit_test(test_train_settings__refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
