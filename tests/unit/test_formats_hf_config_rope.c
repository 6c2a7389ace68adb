/* Rotary settings of config.json: two spellings, no contradiction taken, no unknown setting passed over. */
#include "check.h"
#include "scratch.h"

#include "formats/hf_config.h"

/* Parses a llama config of head_dim 16 and 256 positions with these keys; ' stands for ". */
static weft_status parse(weft_rope *out, scratch *s, const char *keys)
{
    char text[1024];
    weft_hf_config c = {.text = NULL};
    (void)snprintf(text, sizeof(text),
                   "{'model_type':'llama','hidden_size':32,'num_attention_heads':2,'max_position_"
                   "embeddings':256%s%s}",
                   keys[0] == '\0' ? "" : ",", keys);
    for (char *p = text; *p != '\0'; p++)
        *p = *p == '\'' ? '"' : *p;
    const weft_status st = weft_i_hf_config_parse(&c, s->alloc, "config.json", text, strlen(text));
    *out = c.config.rope;
    weft_i_hf_config_fini(&c, s->alloc);
    return st;
}

static weft_rope read_ok(scratch *s, const char *keys)
{
    weft_rope rope;
    CHECK_OK(parse(&rope, s, keys));
    return rope;
}

static void
refuses(scratch *s, weft_status code, const char *keys, const char *text, const char *more)
{
    weft_rope rope;
    const weft_status st = parse(&rope, s, keys);
    if (st == WEFT_OK)
        fail_msg("%s was accepted", keys);
    expect_failure(st, code, "config.json: ", text, more, NULL);
}

static void check_same(scratch *s, const char *old_spelling, const char *new_spelling)
{
    const weft_rope a = read_ok(s, old_spelling);
    const weft_rope b = read_ok(s, new_spelling);
    if (a.kind != b.kind || a.theta != b.theta || a.factor != b.factor ||
        a.low_freq_factor != b.low_freq_factor || a.high_freq_factor != b.high_freq_factor ||
        a.beta_fast != b.beta_fast || a.beta_slow != b.beta_slow ||
        a.attention_factor != b.attention_factor || a.is_truncated != b.is_truncated ||
        a.original_max_positions != b.original_max_positions)
        fail_msg("%s and %s differ", old_spelling, new_spelling);
}

/* A config that transformers 5 wrote says what the older one said. */
static void test_formats_hf_config_rope__both_spellings_are_one(void **state)
{
    scratch *s = *state;
    const weft_rope rope =
        read_ok(s, "'rope_parameters':{'rope_theta':500000.0,'rope_type':'default'}");
    CHECK_SAME_DOUBLE(rope.theta, 500000.0);
    assert_int_equal(rope.kind, WEFT_ROPE_DEFAULT);
    check_same(s, "'rope_theta':500000.0,'rope_scaling':null",
               "'rope_parameters':{'rope_theta':500000,'rope_type':'default'}");
    check_same(s, "'rope_theta':5e5", "'rope_parameters':{'rope_theta':5e5}");
    check_same(s, "", "'rope_parameters':{'rope_type':'default','rope_theta':10000.0}");
    check_same(s, "'rope_scaling':{'type':'linear','factor':2}",
               "'rope_parameters':{'rope_theta':10000.0,'rope_type':'linear','factor':2.0}");
    check_same(
        s, "'rope_theta':1e6,'rope_scaling':{'rope_type':'dynamic','type':'dynamic','factor':4.0}",
        "'rope_parameters':{'rope_theta':1e6,'rope_type':'dynamic','factor':4.0}");
    check_same(
        s,
        "'rope_theta':5e5,'rope_scaling':{'rope_type':'llama3','factor':8.0,'low_freq_factor':1.0,"
        "'high_freq_factor':4.0,'original_max_position_embeddings':64}",
        "'rope_parameters':{'rope_theta':5e5,'rope_type':'llama3','factor':8.0,'low_freq_factor':1."
        "0,"
        "'high_freq_factor':4.0,'original_max_position_embeddings':64}");
    check_same(s,
               "'rope_scaling':{'type':'yarn','factor':4.0},'original_max_position_embeddings':64",
               "'rope_parameters':{'rope_type':'yarn','factor':4.0,'original_max_position_"
               "embeddings':64}");
}

static void test_formats_hf_config_rope__both_spellings_at_once_must_agree(void **state)
{
    scratch *s = *state;
    check_same(s, "'rope_theta':5e5",
               "'rope_theta':5e5,'rope_parameters':{'rope_theta':500000.0,'rope_type':'default'}");
    check_same(s, "'rope_scaling':{'type':'linear','factor':2}",
               "'rope_scaling':{'type':'linear','factor':2},"
               "'rope_parameters':{'rope_theta':10000.0,'rope_type':'linear','factor':2.0}");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_theta':10000.0,'rope_parameters':{'rope_theta':500000.0}",
            "rope_theta = 10000.0 and rope_parameters.rope_theta = 500000.0", "contradict");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'rope_theta':1,'type':'default'},'rope_parameters':{'rope_theta':2,"
            "'rope_type':'default'}",
            "rope_scaling.rope_theta = 1 and rope_parameters.rope_theta = 2", "contradict");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'type':'linear','factor':2},'rope_parameters':{'rope_type':'default','"
            "rope_theta':1e4}",
            "rope_scaling.rope_type = \"linear\" and rope_parameters.rope_type = \"default\"",
            "contradict");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'type':'linear','factor':2},'rope_parameters':{'rope_type':'linear','"
            "factor':4}",
            "rope_scaling.factor = 2 and rope_parameters.factor = 4", "contradict");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'type':'yarn','factor':2,'mscale':1},'rope_parameters':{'rope_type':'"
            "yarn','factor':2}",
            "rope_scaling.mscale = 1 and rope_parameters.mscale = nothing", "contradict");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'type':'linear','rope_type':'dynamic','factor':2}",
            "type = \"linear\" and rope_type = \"dynamic\"", "contradict");
}

static void test_formats_hf_config_rope__unknown_settings_are_named(void **state)
{
    scratch *s = *state;
    static const char *const kinds[] = {"longrope", "su", "mrope", "proportional", "Llama3", "ntk"};
    char text[100], named[100];
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        (void)snprintf(text, sizeof(text), "'rope_parameters':{'rope_type':'%s'}", kinds[i]);
        (void)snprintf(named, sizeof(named), "rope_parameters.rope_type = \"%s\"", kinds[i]);
        refuses(s, WEFT_STATUS_UNSUPPORTED, text, named,
                "default, linear, dynamic, llama3 and yarn");
    }
    refuses(s, WEFT_STATUS_UNSUPPORTED,
            "'rope_parameters':{'rope_type':'linear','factor':2,'fctor':3}",
            "rope_parameters.fctor = 3", "no rotary setting");
    refuses(s, WEFT_STATUS_UNSUPPORTED, "'rope_parameters':{'full_attention':{'rope_theta':1e6}}",
            "rope_parameters.full_attention", "no rotary setting");
    refuses(s, WEFT_STATUS_UNSUPPORTED, "'partial_rotary_factor':0.5",
            "partial_rotary_factor = 0.5", "weft");
    refuses(s, WEFT_STATUS_UNSUPPORTED,
            "'rope_parameters':{'partial_rotary_factor':0.25,'rope_type':'default'}",
            "rope_parameters.partial_rotary_factor = 0.25", "weft");
    (void)read_ok(s, "'partial_rotary_factor':1.0,'rope_parameters':{'partial_rotary_factor':1}");
    (void)read_ok(s, "'rope_scaling':{'type':'yarn','factor':16.0,'finetuned':true}");
    (void)read_ok(
        s, "'rope_parameters':{'rope_type':'default','original_max_position_embeddings':64}");
}

static void test_formats_hf_config_rope__missing_settings_are_named(void **state)
{
    scratch *s = *state;
    refuses(s, WEFT_STATUS_FORMAT, "'rope_scaling':{'type':'linear'}",
            "rope_scaling.factor is missing", "linear");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_parameters':{'rope_type':'dynamic'}",
            "rope_parameters.factor is missing", "dynamic");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_parameters':{'rope_type':'yarn'}",
            "rope_parameters.factor is missing", "yarn");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_parameters':{'rope_type':'llama3','factor':8,'high_freq_factor':4}",
            "rope_parameters.low_freq_factor is missing", "llama3");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_parameters':{'rope_type':'llama3','factor':8,'low_freq_factor':4}",
            "rope_parameters.high_freq_factor is missing", "llama3");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_scaling':{'factor':2.0}", "rope_scaling.factor is given",
            "rope_type");
}

static void test_formats_hf_config_rope__wrong_values_are_named(void **state)
{
    scratch *s = *state;
    refuses(s, WEFT_STATUS_FORMAT, "'rope_theta':'10000'", "rope_theta = \"10000\"", "a number");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_theta':0", "rope_theta = 0", "from 1 to");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_theta':-5", "rope_theta = -5", "from 1 to");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_scaling':'linear'", "rope_scaling = \"linear\"",
            "an object or null");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_scaling':{'type':'linear','factor':0}",
            "rope_scaling.factor = 0", "from");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_scaling':{'type':'linear','factor':'2'}",
            "rope_scaling.factor = \"2\"", "a number");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_scaling':{'type':7}", "rope_scaling.type = 7",
            "a string");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'type':'llama3','factor':8,'low_freq_factor':4,'high_freq_factor':4}",
            "high_freq_factor = 4", "low_freq_factor = 4");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'type':'yarn','factor':8,'original_max_position_embeddings':64.5}",
            "original_max_position_embeddings = 64.5", "whole number");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'type':'yarn','factor':8,'beta_fast':1,'beta_slow':2}",
            "beta_fast = 1", "beta_slow = 2");
    refuses(s, WEFT_STATUS_FORMAT,
            "'rope_scaling':{'type':'yarn','factor':8,'attention_factor':-1.0}",
            "attention_factor = -1.0", "from");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_scaling':{'type':'yarn','factor':8,'truncate':'no'}",
            "truncate = \"no\"", "true or false");
    refuses(s, WEFT_STATUS_FORMAT, "'rope_theta':1,'rope_scaling':{'type':'yarn','factor':8}",
            "rope_theta = 1", "yarn");
    refuses(s, WEFT_STATUS_FORMAT, "'head_dim':2,'rope_scaling':{'type':'dynamic','factor':8}",
            "head_dim = 2", "dynamic");
}

/* 0.1 ln(factor) + 1, a quotient of two mscales, or the number given. */
static void test_formats_hf_config_rope__yarn_attention_factor(void **state)
{
    scratch *s = *state;
    CHECK_NEAR(read_ok(s, "'rope_scaling':{'type':'yarn','factor':1}").attention_factor, 1.0, 0);
    CHECK_NEAR(read_ok(s, "'rope_scaling':{'type':'yarn','factor':2}").attention_factor, 1.069315,
               5e-7);
    CHECK_NEAR(read_ok(s, "'rope_scaling':{'type':'yarn','factor':4}").attention_factor, 1.138629,
               5e-7);
    CHECK_NEAR(read_ok(s, "'rope_scaling':{'type':'yarn','factor':16}").attention_factor, 1.277259,
               5e-7);
    CHECK_NEAR(read_ok(s, "'rope_scaling':{'type':'yarn','factor':40}").attention_factor, 1.368888,
               5e-7);
    CHECK_NEAR(
        read_ok(s, "'rope_scaling':{'type':'yarn','factor':16,'mscale':1,'mscale_all_dim':1}")
            .attention_factor,
        1.0, 0);
    CHECK_NEAR(read_ok(s, "'rope_scaling':{'type':'yarn','factor':4,'attention_factor':1.0}")
                   .attention_factor,
               1.0, 0);
    CHECK_NEAR(
        read_ok(s, "'rope_scaling':{'type':'yarn','factor':4,'mscale':0.7}").attention_factor,
        1.138629, 5e-7);
}

static void test_formats_hf_config_rope__original_length(void **state)
{
    scratch *s = *state;
#define LLAMA3 "'rope_scaling':{'type':'llama3','factor':8,'low_freq_factor':1,'high_freq_factor':4"
    assert_int_equal(read_ok(s, LLAMA3 "}").original_max_positions, 256);
    assert_int_equal(
        read_ok(s, LLAMA3 ",'original_max_position_embeddings':64}").original_max_positions, 64);
    assert_int_equal(
        read_ok(s, LLAMA3
                ",'original_max_position_embeddings':64},'original_max_position_embeddings':32")
            .original_max_positions,
        32); /* as in transformers */
    assert_int_equal(
        read_ok(
            s, "'rope_scaling':{'type':'dynamic','factor':2,'original_max_position_embeddings':64}")
            .original_max_positions,
        256);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_hf_config_rope__both_spellings_are_one),
        WITH_SCRATCH(test_formats_hf_config_rope__both_spellings_at_once_must_agree),
        WITH_SCRATCH(test_formats_hf_config_rope__unknown_settings_are_named),
        WITH_SCRATCH(test_formats_hf_config_rope__missing_settings_are_named),
        WITH_SCRATCH(test_formats_hf_config_rope__wrong_values_are_named),
        WITH_SCRATCH(test_formats_hf_config_rope__yarn_attention_factor),
        WITH_SCRATCH(test_formats_hf_config_rope__original_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
