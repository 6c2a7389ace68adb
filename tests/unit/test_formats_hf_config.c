/*
 * config.json of gpt2 and llama. The oracle for defaults is transformers 5.24 (GPT2Config, LlamaConfig); what cannot be
 * run must be refused by key and value.
 */
#include "check.h"
#include "scratch.h"

#include "base/ctx.h"
#include "formats/hf_config.h"

/* Texts are written with ' for ". */
static const char *quoted(const char *text)
{
    static char out[8192];
    assert_true(strlen(text) < sizeof(out));
    for (size_t i = 0; i <= strlen(text); i++)
        out[i] = text[i] == '\'' ? '"' : text[i];
    return out;
}

static weft_config parse(scratch *s, const char *text)
{
    weft_hf_config c = {.text = NULL};
    const char *json = quoted(text);
    CHECK_OK(weft_i_hf_config_parse(&c, s->alloc, "config.json", json, strlen(json)));
    assert_string_equal(c.text, json);
    assert_string_equal(c.path, "config.json");
    weft_i_hf_config_fini(&c, s->alloc);
    return c.config;
}

static void
refuses(scratch *s, weft_status code, const char *text, const char *key, const char *more)
{
    weft_hf_config c = {.text = NULL};
    const char *json = quoted(text);
    const weft_status st =
        weft_i_hf_config_parse(&c, s->alloc, "D/config.json", json, strlen(json));
    if (st == WEFT_OK)
        fail_msg("%s was accepted", text);
    expect_failure(st, code, "D/config.json: ", key, more, NULL);
    assert_null(c.text);
}

static void test_formats_hf_config__gpt2_defaults(void **state)
{
    const weft_config c = parse(*state, "{'model_type':'gpt2'}");
    assert_int_equal(c.family, WEFT_FAMILY_GPT2);
    assert_int_equal(c.vocab_size, 50257);
    assert_int_equal(c.hidden_size, 768);
    assert_int_equal(c.n_layers, 12);
    assert_int_equal(c.n_heads, 12);
    assert_int_equal(c.n_kv_heads, 12);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.ffn_size, 3072);
    assert_int_equal(c.max_positions, 1024);
    assert_int_equal(c.activation, WEFT_ACTIVATION_GELU_TANH);
    CHECK_SAME_DOUBLE(c.norm_eps, 1e-5);
    CHECK_SAME_DOUBLE(c.initializer_range, 0.02);
    assert_true(c.is_tied && c.has_attention_bias && c.has_mlp_bias && c.is_attn_scaled);
    assert_false(c.is_scaled_by_layer || c.has_dtype);
    CHECK_SAME_DOUBLE(c.embd_dropout, 0.1);
    CHECK_SAME_DOUBLE(c.resid_dropout, 0.1);
    CHECK_SAME_DOUBLE(c.attn_dropout, 0.1);
    assert_int_equal(c.bos_id, 50256);
    assert_int_equal(c.pad_id, -1);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos_ids[0], 50256);
    assert_int_equal(c.dtype, WEFT_DTYPE_F32);
}

static void test_formats_hf_config__llama_defaults(void **state)
{
    const weft_config c = parse(*state, "{'model_type':'llama'}");
    assert_int_equal(c.family, WEFT_FAMILY_LLAMA);
    assert_int_equal(c.vocab_size, 32000);
    assert_int_equal(c.hidden_size, 4096);
    assert_int_equal(c.ffn_size, 11008);
    assert_int_equal(c.n_layers, 32);
    assert_int_equal(c.n_heads, 32);
    assert_int_equal(c.n_kv_heads, 32);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.max_positions, 2048);
    assert_int_equal(c.activation, WEFT_ACTIVATION_SILU);
    CHECK_SAME_DOUBLE(c.norm_eps, 1e-6);
    CHECK_SAME_DOUBLE(c.initializer_range, 0.02);
    assert_false(c.is_tied || c.has_attention_bias || c.has_mlp_bias || c.has_dtype);
    assert_true(c.is_attn_scaled);
    CHECK_SAME_DOUBLE(c.attn_dropout + c.resid_dropout + c.embd_dropout, 0.0);
    assert_int_equal(c.rope.kind, WEFT_ROPE_DEFAULT);
    CHECK_SAME_DOUBLE(c.rope.theta, 10000.0);
    CHECK_SAME_DOUBLE(c.rope.attention_factor, 1.0);
    assert_int_equal(c.bos_id, 1);
    assert_int_equal(c.pad_id, -1);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos_ids[0], 2);
}

static void test_formats_hf_config__reads_every_gpt2_key(void **state)
{
    const weft_config c = parse(
        *state, "{'model_type':'gpt2','vocab_size':53,'n_positions':64,'n_embd':32,'n_layer':4,'n_"
                "head':4,'n_inner':96,"
                "'activation_function':'gelu','resid_pdrop':0.25,'embd_pdrop':0,'attn_pdrop':0.5,"
                "'layer_norm_epsilon':1e-3,'initializer_range':0.5,'scale_attn_weights':false,"
                "'scale_attn_by_inverse_layer_idx':true,'reorder_and_upcast_attn':true,'tie_word_"
                "embeddings':false,"
                "'bos_token_id':null,'eos_token_id':[7,8],'pad_token_id':5,'dtype':'bfloat16','use_"
                "cache':true,"
                "'summary_type':'cls_index','task_specific_params':{'x':[1]},'n_ctx':128}");
    assert_int_equal(c.vocab_size, 53);
    assert_int_equal(c.max_positions, 64);
    assert_int_equal(c.hidden_size, 32);
    assert_int_equal(c.n_layers, 4);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.ffn_size, 96);
    assert_int_equal(c.activation, WEFT_ACTIVATION_GELU_ERF);
    CHECK_SAME_DOUBLE(c.resid_dropout, 0.25);
    CHECK_SAME_DOUBLE(c.embd_dropout, 0.0);
    CHECK_SAME_DOUBLE(c.attn_dropout, 0.5);
    CHECK_SAME_DOUBLE(c.norm_eps, 1e-3);
    CHECK_SAME_DOUBLE(c.initializer_range, 0.5);
    assert_false(c.is_attn_scaled || c.is_tied);
    assert_true(c.is_scaled_by_layer && c.has_dtype);
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.pad_id, 5);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos_ids[1], 8);
    assert_int_equal(c.dtype, WEFT_DTYPE_BF16);
}

static void test_formats_hf_config__reads_every_llama_key(void **state)
{
    const weft_config c = parse(*state, "{'model_type':'llama','vocab_size':53,'hidden_size':32,'"
                                        "intermediate_size':64,'num_hidden_layers':3,"
                                        "'num_attention_heads':4,'num_key_value_heads':2,'head_dim'"
                                        ":16,'hidden_act':'gelu_pytorch_tanh',"
                                        "'max_position_embeddings':99,'rms_norm_eps':1e-5,'"
                                        "initializer_range':0.1,'tie_word_embeddings':true,"
                                        "'attention_bias':true,'mlp_bias':true,'attention_dropout':"
                                        "0.125,'pretraining_tp':4,'bos_token_id':3,"
                                        "'eos_token_id':null,'torch_dtype':'float16','"
                                        "architectures':['LlamaForCausalLM'],'use_cache':false}");
    assert_int_equal(c.n_kv_heads, 2);
    assert_int_equal(c.head_dim, 16); /* not hidden / heads */
    assert_int_equal(c.ffn_size, 64);
    assert_int_equal(c.n_layers, 3);
    assert_int_equal(c.max_positions, 99);
    assert_int_equal(c.activation, WEFT_ACTIVATION_GELU_TANH);
    CHECK_SAME_DOUBLE(c.norm_eps, 1e-5);
    assert_true(c.is_tied && c.has_attention_bias && c.has_mlp_bias && c.has_dtype);
    CHECK_SAME_DOUBLE(c.attn_dropout, 0.125);
    assert_int_equal(c.bos_id, 3);
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(c.dtype, WEFT_DTYPE_F16);
}

/* Absent and null are not zero. */
static void test_formats_hf_config__n_inner_is_four_times_n_embd(void **state)
{
    assert_int_equal(
        parse(*state, "{'model_type':'gpt2','n_embd':48,'n_head':4,'n_ctx':7}").ffn_size, 192);
    assert_int_equal(
        parse(*state, "{'model_type':'gpt2','n_embd':48,'n_head':4,'n_inner':null}").ffn_size, 192);
    assert_int_equal(
        parse(*state, "{'model_type':'gpt2','n_embd':48,'n_head':4,'n_inner':96}").ffn_size, 96);
}

/* transformers maps these names both ways; n_ctx is older still. */
static void test_formats_hf_config__gpt2_takes_the_common_names(void **state)
{
    const weft_config c =
        parse(*state, "{'model_type':'gpt2','hidden_size':32,'num_hidden_layers':3,"
                      "'num_attention_heads':2,'max_position_embeddings':40}");
    assert_int_equal(c.hidden_size, 32);
    assert_int_equal(c.n_layers, 3);
    assert_int_equal(c.n_heads, 2);
    assert_int_equal(c.max_positions, 40);
    assert_int_equal(parse(*state, "{'model_type':'gpt2','n_ctx':77}").max_positions, 77);
    assert_int_equal(
        parse(*state, "{'model_type':'gpt2','n_embd':24,'hidden_size':24}").hidden_size, 24);
    refuses(*state, WEFT_STATUS_FORMAT, "{'model_type':'gpt2','n_embd':24,'hidden_size':48}",
            "n_embd = 24", "hidden_size = 48");
}

/* head_dim and others are written as null by some exports. */
static void test_formats_hf_config__null_is_absent(void **state)
{
    const weft_config c = parse(
        *state, "{'model_type':'llama','hidden_size':64,'num_attention_heads':4,"
                "'head_dim':null,'num_key_value_heads':null,'tie_word_embeddings':null,"
                "'rms_norm_eps':null,'hidden_act':null,'dtype':null,'attention_dropout':null}");
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.n_kv_heads, 4);
    assert_false(c.is_tied || c.has_dtype);
    CHECK_SAME_DOUBLE(c.norm_eps, 1e-6);
    assert_int_equal(c.activation, WEFT_ACTIVATION_SILU);
}

static void test_formats_hf_config__refuses_bad_sizes(void **state)
{
    scratch *s = *state;
    static const char *const gpt2[] = {"vocab_size", "n_positions", "n_embd",
                                       "n_layer",    "n_head",      "n_inner"};
    static const char *const llama[] = {
        "vocab_size",          "hidden_size",        "intermediate_size",
        "num_hidden_layers",   "head_dim",           "max_position_embeddings",
        "num_attention_heads", "num_key_value_heads"};
    static const char *const values[] = {
        "0", "-1", "'32'", "1.5", "32.0", "true", "[32]", "{}", "1000000000000000000"};
    char text[200], pair[100];
    for (size_t i = 0; i < 14; i++) {
        const char *key = i < 6 ? gpt2[i] : llama[i - 6];
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            (void)snprintf(text, sizeof(text), "{'model_type':'%s','%s':%s}",
                           i < 6 ? "gpt2" : "llama", key, values[v]);
            (void)snprintf(pair, sizeof(pair), "%s = %s%s", key,
                           values[v][0] == '\'' ? "\"32\"" : values[v],
                           values[v][0] == '\'' ? "" : ": must be");
            refuses(s, WEFT_STATUS_FORMAT, text, pair, "a whole number from 1 to");
        }
    }
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','vocab_size':99999999999999999999}",
            "too big integer", "JSON");
}

static void test_formats_hf_config__refuses_heads_that_do_not_divide(void **state)
{
    scratch *s = *state;
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'gpt2','n_embd':30,'n_head':4}", "n_embd = 30",
            "n_head = 4");
    refuses(s, WEFT_STATUS_FORMAT,
            "{'model_type':'llama','hidden_size':30,'num_attention_heads':4}", "hidden_size = 30",
            "num_attention_heads = 4");
    refuses(
        s, WEFT_STATUS_FORMAT,
        "{'model_type':'llama','hidden_size':32,'num_attention_heads':4,'num_key_value_heads':3}",
        "num_attention_heads = 4", "num_key_value_heads = 3");
    refuses(
        s, WEFT_STATUS_FORMAT,
        "{'model_type':'llama','hidden_size':32,'num_attention_heads':4,'num_key_value_heads':8}",
        "num_attention_heads = 4", "num_key_value_heads = 8");
    refuses(s, WEFT_STATUS_FORMAT,
            "{'model_type':'llama','hidden_size':36,'num_attention_heads':4}", "head_dim = 9",
            "even");
    refuses(s, WEFT_STATUS_FORMAT,
            "{'model_type':'llama','num_attention_heads':1048576,'head_dim':1048576}",
            "num_attention_heads = 1048576", "head_dim = 1048576");
    const weft_config c =
        parse(s, "{'model_type':'llama','hidden_size':30,'num_attention_heads':4,'head_dim':8}");
    assert_int_equal(c.head_dim, 8);
}

static void test_formats_hf_config__refuses_wrong_types(void **state)
{
    scratch *s = *state;
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':3}", "model_type = 3", "a string");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'gpt2','layer_norm_epsilon':'1e-5'}",
            "layer_norm_epsilon = \"1e-5\"", "a number");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','rms_norm_eps':-1e-5}",
            "rms_norm_eps = -1", "from 0 to 1");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'gpt2','resid_pdrop':1.0}", "resid_pdrop = 1.0",
            "from 0");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'gpt2','attn_pdrop':-0.1}", "attn_pdrop = -0.1",
            "from 0");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','tie_word_embeddings':1}",
            "tie_word_embeddings = 1", "true or false");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','attention_bias':'false'}",
            "attention_bias = \"false\"", "true or false");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','hidden_act':[1]}", "hidden_act = [1]",
            "a string");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','bos_token_id':'x'}",
            "bos_token_id = \"x\"", "number");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','eos_token_id':1.5}",
            "eos_token_id = 1.5", "token id");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','eos_token_id':[1,'2']}",
            "eos_token_id = [1, \"2\"]", "list");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','eos_token_id':99999999999}",
            "eos_token_id = 99999999999", "token id");
    refuses(s, WEFT_STATUS_UNSUPPORTED, "{'model_type':'llama','eos_token_id':[1,2,3,4,5,6,7,8,9]}",
            "eos_token_id", "up to 8");
    refuses(s, WEFT_STATUS_FORMAT, "{'model_type':'llama','vocab_size':5,'vocab_size':6}",
            "a key twice", "vocab_size");
}

static void test_formats_hf_config__names_other_families(void **state)
{
    scratch *s = *state;
    static const char *const families[] = {"mistral",  "qwen2", "qwen3", "mixtral",
                                           "gpt_neox", "GPT2",  ""};
    char text[100], named[100];
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        (void)snprintf(text, sizeof(text), "{'model_type':'%s','vocab_size':-1}", families[i]);
        (void)snprintf(named, sizeof(named), "model_type = \"%s\"", families[i]);
        refuses(s, WEFT_STATUS_UNSUPPORTED, text, named, "gpt2 and llama");
    }
    refuses(s, WEFT_STATUS_FORMAT, "{'vocab_size':5}", "no model_type", "gpt2");
    refuses(s, WEFT_STATUS_UNSUPPORTED, "{'architectures':['MambaForCausalLM']}",
            "MambaForCausalLM", "llama");
    assert_int_equal(parse(s, "{'architectures':['GPT2LMHeadModel']}").family, WEFT_FAMILY_GPT2);
    assert_int_equal(parse(s, "{'architectures':['LlamaForCausalLM'],'model_type':null}").family,
                     WEFT_FAMILY_LLAMA);
}

static void test_formats_hf_config__a_family_has_one_name(void **state)
{
    static const weft_family families[] = {WEFT_FAMILY_GPT2, WEFT_FAMILY_LLAMA};
    for (size_t i = 0; i < WEFT_COUNT_OF(families); i++) {
        char text[96];
        (void)snprintf(text, sizeof(text), "{'model_type':'%s'}", weft_family_name(families[i]));
        assert_int_equal(parse(*state, text).family, families[i]);
    }
    assert_string_equal(weft_family_name((weft_family)99), "unknown");
}

static void test_formats_hf_config__refuses_what_weft_lacks(void **state)
{
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"'activation_function':'gelu_10'", "activation_function = \"gelu_10\""},
        {"'activation_function':'tanh'", "activation_function = \"tanh\""},
        {"'add_cross_attention':true", "add_cross_attention = true"},
        {"'is_encoder_decoder':true", "is_encoder_decoder = true"},
        {"'pruned_heads':{'0':[1]}", "pruned_heads = {\"0\": [1]}"},
        {"'quantization_config':{'bits':4}", "quantization_config = {\"bits\": 4}"},
        {"'per_layer_config':{'0':{'n_inner':8}}", "per_layer_config"},
        {"'attn_logit_softcapping':50.0", "attn_logit_softcapping = 50.0"},
        {"'sliding_window':8", "sliding_window = 8"},
        {"'layer_types':['full_attention','sliding_attention']", "layer_types"},
        {"'num_local_experts':8", "num_local_experts = 8"},
        {"'embedding_multiplier':12.0", "embedding_multiplier = 12.0"},
        {"'dtype':'float64'", "dtype = \"float64\""},
        {"'torch_dtype':'float8_e4m3fn'", "torch_dtype = \"float8_e4m3fn\""},
    };
    char text[200];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(text, sizeof(text), "{'model_type':'gpt2',%s}", cases[i].text);
        refuses(*state, WEFT_STATUS_UNSUPPORTED, text, cases[i].named, "weft");
    }
    refuses(*state, WEFT_STATUS_UNSUPPORTED, "{'model_type':'llama','hidden_act':'relu2'}",
            "hidden_act = \"relu2\"",
            "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, relu, silu and swish");
}

/* A window of zero or null is no window; and other keys at values that change nothing. */
static void test_formats_hf_config__accepts_harmless_values(void **state)
{
    static const char *const texts[] = {
        "'sliding_window':null",
        "'sliding_window':0",
        "'sliding_window':-1",
        "'sliding_window':2048",
        "'sliding_window':4,'use_sliding_window':false",
        "'layer_types':['full_attention','full_attention']",
        "'quantization_config':null",
        "'add_cross_attention':false,'is_encoder_decoder':false",
        "'pruned_heads':{},'num_experts':0,'embedding_multiplier':1,'logit_scale':1.0",
        "'pretraining_tp':2,'use_cache':false,'chunk_size_feed_forward':4",
        "'eos_token_id':-1,'pad_token_id':-1",
        "'something_nobody_knows':{'a':[1,2]}"};
    char text[200];
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        (void)snprintf(text, sizeof(text), "{'model_type':'llama',%s}", texts[i]);
        (void)parse(*state, text);
    }
    assert_int_equal(parse(*state, "{'model_type':'llama','eos_token_id':-1}").n_eos, 0);
}

/* transformers 5 writes dtype, older versions torch_dtype. */
static void test_formats_hf_config__reads_both_names_of_the_type(void **state)
{
    scratch *s = *state;
    assert_int_equal(parse(s, "{'model_type':'llama','dtype':'bfloat16'}").dtype, WEFT_DTYPE_BF16);
    assert_int_equal(parse(s, "{'model_type':'llama','torch_dtype':'bfloat16'}").dtype,
                     WEFT_DTYPE_BF16);
    assert_int_equal(
        parse(s, "{'model_type':'llama','torch_dtype':'bfloat16','dtype':'float32'}").dtype,
        WEFT_DTYPE_F32); /* as in transformers */
    assert_int_equal(parse(s, "{'model_type':'llama','torch_dtype':'half','dtype':null}").dtype,
                     WEFT_DTYPE_F16);
    assert_false(parse(s, "{'model_type':'llama'}").has_dtype);
}

static void test_formats_hf_config__reads_a_folder(void **state)
{
    scratch *s = *state;
    weft_hf_config c = {.text = NULL};
    weft_config public_config;
    const weft_ctx ctx_value = {.alloc = s->alloc};
    weft_ctx ctx = ctx_value;
    expect_failure(weft_i_hf_config_read(&c, s->alloc, s->dir), WEFT_STATUS_IO, s->dir,
                   "config.json", NULL);
    const char *text = quoted("{'model_type':'llama','eos_token_id':5}");
    scratch_file(s, "config.json", text, strlen(text));
    CHECK_OK(weft_i_hf_config_read(&c, s->alloc, s->dir));
    assert_int_equal(c.config.eos_ids[0], 5);
    assert_string_equal(c.path, scratch_path(s, "config.json"));
    weft_i_hf_config_fini(&c, s->alloc);
    const char *generation = quoted("{'eos_token_id':[7,9],'bos_token_id':1}");
    scratch_file(s, "generation_config.json", generation, strlen(generation));
    CHECK_OK(weft_config_read(&public_config, &ctx, s->dir));
    assert_int_equal(public_config.n_eos, 2);
    assert_int_equal(public_config.eos_ids[1], 9);
    CHECK_OK(weft_config_read(&public_config, &ctx, scratch_path(s, "config.json")));
    assert_int_equal(public_config.n_eos, 1); /* a file alone has no neighbours */
    scratch_file(s, "generation_config.json", "{\"bos_token_id\":1}", 18);
    CHECK_OK(weft_config_read(&public_config, &ctx, s->dir));
    assert_int_equal(public_config.eos_ids[0], 5);
    scratch_file(s, "generation_config.json", "{\"eos_token_id\":\"x\"}", 20);
    expect_failure(weft_config_read(&public_config, &ctx, s->dir), WEFT_STATUS_FORMAT,
                   "generation_config.json", "eos_token_id = \"x\"", NULL);
    scratch_file(s, "config.json", "{", 1);
    expect_failure(weft_config_read(&public_config, &ctx, s->dir), WEFT_STATUS_FORMAT,
                   "/config.json", "JSON", NULL);
}

static void test_formats_hf_config__lists_every_reason(void **state)
{
    scratch *s = *state;
    weft_str out;
    const char *text =
        quoted("{'model_type':'llama','hidden_act':'mish','vocab_size':-1,'sliding_window':8,"
               "'rope_scaling':{'type':'su','factor':2},'quantization_config':{'a':1},'num_hidden_"
               "layers':0}");
    scratch_file(s, "config.json", text, strlen(text));
    CHECK_OK(weft_i_hf_config_unsupported(s->dir, s->alloc, &out));
    static const char *const wanted[] = {"vocab_size = -1",
                                         "num_hidden_layers = 0",
                                         "hidden_act = \"mish\"",
                                         "rope_scaling.rope_type = \"su\"",
                                         "quantization_config = {\"a\": 1}",
                                         "sliding_window = 8"};
    size_t n_lines = 0;
    for (const char *c = out.text; *c != '\0'; c++)
        n_lines += *c == '\n';
    assert_int_equal(n_lines, sizeof(wanted) / sizeof(wanted[0]));
    for (size_t i = 0; i < n_lines; i++)
        assert_non_null(strstr(out.text, wanted[i]));
    weft_i_str_fini(&out);
    scratch_file(s, "config.json", "{\"model_type\":\"gpt2\"}", 21);
    CHECK_OK(weft_i_hf_config_unsupported(s->dir, s->alloc, &out));
    assert_int_equal(out.n_bytes, 0);
    weft_i_str_fini(&out);
    scratch_file(s, "config.json", "nonsense", 8);
    assert_int_equal(weft_i_hf_config_unsupported(s->dir, s->alloc, &out), WEFT_STATUS_FORMAT);
    weft_i_str_fini(&out);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_hf_config__gpt2_defaults),
        WITH_SCRATCH(test_formats_hf_config__llama_defaults),
        WITH_SCRATCH(test_formats_hf_config__reads_every_gpt2_key),
        WITH_SCRATCH(test_formats_hf_config__reads_every_llama_key),
        WITH_SCRATCH(test_formats_hf_config__n_inner_is_four_times_n_embd),
        WITH_SCRATCH(test_formats_hf_config__gpt2_takes_the_common_names),
        WITH_SCRATCH(test_formats_hf_config__null_is_absent),
        WITH_SCRATCH(test_formats_hf_config__refuses_bad_sizes),
        WITH_SCRATCH(test_formats_hf_config__refuses_heads_that_do_not_divide),
        WITH_SCRATCH(test_formats_hf_config__refuses_wrong_types),
        WITH_SCRATCH(test_formats_hf_config__names_other_families),
        WITH_SCRATCH(test_formats_hf_config__a_family_has_one_name),
        WITH_SCRATCH(test_formats_hf_config__refuses_what_weft_lacks),
        WITH_SCRATCH(test_formats_hf_config__accepts_harmless_values),
        WITH_SCRATCH(test_formats_hf_config__reads_both_names_of_the_type),
        WITH_SCRATCH(test_formats_hf_config__reads_a_folder),
        WITH_SCRATCH(test_formats_hf_config__lists_every_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
