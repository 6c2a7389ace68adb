/* What is saved is what was read, byte for byte, but for the type. */
#include "check.h"
#include "golden.h"

#include "formats/hf_config.h"
#include "formats/json.h"

static void write_as(scratch *s, const char *text, weft_dtype dtype, const char *wanted)
{
    weft_hf_config c = {.text = NULL};
    weft_str out;
    CHECK_OK(weft_i_hf_config_parse(&c, s->alloc, "config.json", text, strlen(text)));
    CHECK_OK(weft_i_hf_config_write(&c, s->alloc, dtype, &out));
    assert_string_equal(out.text, wanted);
    weft_i_hf_config_fini(&c, s->alloc);
    weft_config before = c.config;
    CHECK_OK(weft_i_hf_config_parse(&c, s->alloc, "config.json", out.text, out.n_bytes));
    assert_int_equal(c.config.dtype, dtype);
    assert_true(c.config.has_dtype);
    before.dtype = dtype;
    before.has_dtype = true;
    assert_memory_equal(&before.rope, &c.config.rope, sizeof(before.rope));
    assert_int_equal(before.hidden_size, c.config.hidden_size);
    weft_i_hf_config_fini(&c, s->alloc);
    weft_i_str_fini(&out);
}

static const char llama[] =
    "{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n  \"dtype\": \"float32\",\n"
    "  \"eps\": 1e-05, \"odd\" : 1E+2,\n  \"model_type\": \"llama\",\n"
    "  \"rope_parameters\": {\n    \"rope_theta\": 10000.0, \"rope_type\": \"default\"\n  },\n"
    "  \"note\": \"a \\\"dtype\\\": \\u00e9 {\\\\\", \"list\": [[], {\"dtype\": \"x\"}],\n"
    "  \"dropout\": 0.10, \"n\": null\n}\n";

static void test_formats_hf_config_write__keeps_every_byte(void **state)
{
    write_as(*state, llama, WEFT_DTYPE_F32, llama);
}

/* The config says the type the tensors have. */
static void test_formats_hf_config_write__sets_the_type_in_its_place(void **state)
{
    char wanted[sizeof(llama) + 8];
    const char *at = strstr(llama, "\"float32\"");
    (void)snprintf(wanted, sizeof(wanted), "%.*s\"bfloat16\"%s", (int)(at - llama), llama,
                   at + strlen("\"float32\""));
    write_as(*state, llama, WEFT_DTYPE_BF16, wanted);
    write_as(*state,
             "{\"torch_dtype\":\"float16\",\"model_type\":\"gpt2\",\"architectures\":["
             "\"GPT2LMHeadModel\"]}",
             WEFT_DTYPE_F32,
             "{\"torch_dtype\":\"float32\",\"model_type\":\"gpt2\",\"architectures\":["
             "\"GPT2LMHeadModel\"]}");
    write_as(*state,
             "{\"torch_dtype\":null,\"dtype\" :\t\"half\" "
             ",\"model_type\":\"gpt2\",\"architectures\":[\"G\"]}",
             WEFT_DTYPE_BF16,
             "{\"torch_dtype\":\"bfloat16\",\"dtype\" :\t\"bfloat16\" "
             ",\"model_type\":\"gpt2\",\"architectures\":[\"G\"]}");
    /* a key written with an escape is the same key */
    write_as(*state,
             "{\"model_type\":\"gpt2\",\"architectures\":[\"G\"],\"\\u0064type\":\"float32\"}",
             WEFT_DTYPE_F16,
             "{\"model_type\":\"gpt2\",\"architectures\":[\"G\"],\"\\u0064type\":\"float16\"}");
}

static void test_formats_hf_config_write__adds_what_is_missing(void **state)
{
    write_as(
        *state, "{\n  \"model_type\": \"gpt2\"\n}\n", WEFT_DTYPE_F32,
        "{\n  \"model_type\": \"gpt2\",\n  \"architectures\": [\n    \"GPT2LMHeadModel\"\n  ],\n"
        "  \"dtype\": \"float32\"\n}\n");
    write_as(*state, " {\"architectures\":[\"LlamaForCausalLM\"],\"rms_norm_eps\":1e-5} ",
             WEFT_DTYPE_BF16,
             " {\"architectures\":[\"LlamaForCausalLM\"],\"rms_norm_eps\":1e-5,\n  \"dtype\": "
             "\"bfloat16\",\n"
             "  \"model_type\": \"llama\"} ");
}

static void test_formats_hf_config_write__refuses_other_types(void **state)
{
    scratch *s = *state;
    weft_hf_config c = {.text = NULL};
    weft_str out;
    CHECK_OK(weft_i_hf_config_parse(&c, s->alloc, "config.json", llama, sizeof(llama) - 1));
    CHECK_FAILS(weft_i_hf_config_write(&c, s->alloc, WEFT_DTYPE_I64, &out), WEFT_STATUS_ARG, "I64");
    weft_i_hf_config_fini(&c, s->alloc);
}

/* null says nothing, so the key is filled in rather than written twice. */
static void test_formats_hf_config_write__replaces_null_names(void **state)
{
    write_as(*state, "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":null}",
             WEFT_DTYPE_F32,
             "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\n  \"dtype\": "
             "\"float32\"}");
    write_as(*state, "{\"architectures\": null, \"model_type\": \"gpt2\"}", WEFT_DTYPE_F32,
             "{\"architectures\": [\n    \"GPT2LMHeadModel\"\n  ], \"model_type\": \"gpt2\",\n  "
             "\"dtype\": \"float32\"}");
}

/* Models that transformers wrote (tests/golden): both spellings give one config, and saving gives the file that was read. */
static void test_formats_hf_config_write__saves_published_configs_unchanged(void **state)
{
#define NAME(model) #model,
    static const char *const models[] = {GOLDEN_MODELS(NAME)};
    static const char *const files[] = {"model/config.json", "config.hub-style.json"};
    scratch *s = *state;
    weft_hf_config c[2];
    weft_str out;
    char path[WEFT_PATH_MAX];
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        for (int j = 0; j < 2; j++) {
            (void)snprintf(path, sizeof(path), WEFT_SOURCE_DIR "/tests/golden/%s/%s", models[i],
                           files[j]);
            CHECK_OK(weft_i_hf_config_read(&c[j], s->alloc, path));
            CHECK_OK(weft_i_hf_config_write(&c[j], s->alloc, c[j].config.dtype, &out));
            assert_string_equal(out.text, c[j].text);
            weft_i_str_fini(&out);
            weft_i_hf_config_fini(&c[j], s->alloc);
        }
        const weft_config *a = &c[0].config, *b = &c[1].config;
        assert_int_equal(a->rope.kind, b->rope.kind);
        CHECK_SAME_DOUBLE(a->rope.theta, b->rope.theta);
        CHECK_SAME_DOUBLE(a->rope.factor, b->rope.factor);
        CHECK_SAME_DOUBLE(a->rope.attention_factor, b->rope.attention_factor);
        assert_int_equal(a->rope.original_max_positions, b->rope.original_max_positions);
        assert_int_equal(a->hidden_size, b->hidden_size);
        assert_int_equal(a->head_dim, b->head_dim);
        assert_int_equal(a->is_tied, b->is_tied);
        assert_int_equal(a->dtype, b->dtype);
    }
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_hf_config_write__keeps_every_byte),
        WITH_SCRATCH(test_formats_hf_config_write__sets_the_type_in_its_place),
        WITH_SCRATCH(test_formats_hf_config_write__adds_what_is_missing),
        WITH_SCRATCH(test_formats_hf_config_write__refuses_other_types),
        WITH_SCRATCH(test_formats_hf_config_write__replaces_null_names),
        WITH_SCRATCH(test_formats_hf_config_write__saves_published_configs_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
