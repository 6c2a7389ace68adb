/*
 * The keys of config.json that gpt2 and llama have, with the defaults of transformers' GPT2Config and LlamaConfig, and the
 * keys that would change the maths in a way weft lacks.
 *
 * Source: transformers 5.24, models/gpt2/configuration_gpt2.py and models/llama/configuration_llama.py for names and
 * defaults; docs/formats.md has the table for users.
 *
 * Keys that neither family's model reads are left alone: they have no effect in transformers either.
 */
#include "formats/hf_config_family.h"

#include "formats/hf_config.h"

#include <inttypes.h>
#include <string.h>

typedef struct activation_name {
    const char *name;
    weft_activation kind;
} activation_name;

/* gelu_fast and gelu_accurate write the same tanh form with other constants' spellings. */
static const activation_name activations[] = {
    {"gelu_new", WEFT_ACTIVATION_GELU_TANH},
    {"gelu_pytorch_tanh", WEFT_ACTIVATION_GELU_TANH},
    {"gelu_python_tanh", WEFT_ACTIVATION_GELU_TANH},
    {"gelu_fast", WEFT_ACTIVATION_GELU_TANH},
    {"gelu_accurate", WEFT_ACTIVATION_GELU_TANH},
    {"gelu", WEFT_ACTIVATION_GELU_ERF},
    {"gelu_python", WEFT_ACTIVATION_GELU_ERF},
    {"relu", WEFT_ACTIVATION_RELU},
    {"silu", WEFT_ACTIVATION_SILU},
    {"swish", WEFT_ACTIVATION_SILU},
};

/* What makes a key harmless. */
typedef enum neutral_value {
    NEUTRAL_OFF, /* absent, null, false, 0, "", [] or {} */
    NEUTRAL_ONE  /* absent, null or 1 */
} neutral_value;

typedef struct lacking_key {
    const char *name;
    neutral_value neutral;
} lacking_key;

static const lacking_key lacking_keys[] = {
    {"quantization_config", NEUTRAL_OFF},
    {"quantization", NEUTRAL_OFF},
    {"compression_config", NEUTRAL_OFF},
    {"per_layer_config", NEUTRAL_OFF},
    {"is_encoder_decoder", NEUTRAL_OFF},
    {"add_cross_attention", NEUTRAL_OFF},
    {"pruned_heads", NEUTRAL_OFF},
    {"multi_query", NEUTRAL_OFF},
    {"alibi", NEUTRAL_OFF},
    {"use_alibi", NEUTRAL_OFF},
    {"parallel_attn", NEUTRAL_OFF},
    {"use_parallel_residual", NEUTRAL_OFF},
    {"qk_norm", NEUTRAL_OFF},
    {"use_qk_norm", NEUTRAL_OFF},
    {"qk_layernorm", NEUTRAL_OFF},
    {"clip_qkv", NEUTRAL_OFF},
    {"attn_logit_softcapping", NEUTRAL_OFF},
    {"final_logit_softcapping", NEUTRAL_OFF},
    {"attention_chunk_size", NEUTRAL_OFF},
    {"attention_multiplier", NEUTRAL_OFF},
    {"no_rope_layers", NEUTRAL_OFF},
    {"rope_interleaved", NEUTRAL_OFF},
    {"num_experts", NEUTRAL_OFF},
    {"num_local_experts", NEUTRAL_OFF},
    {"n_routed_experts", NEUTRAL_OFF},
    {"embedding_multiplier", NEUTRAL_ONE},
    {"residual_multiplier", NEUTRAL_ONE},
    {"logits_scaling", NEUTRAL_ONE},
    {"logit_scale", NEUTRAL_ONE},
};

const char *weft_i_hf_activation_name(weft_activation kind)
{
    size_t i = 0;
    while (i + 1 < WEFT_COUNT_OF(activations) && activations[i].kind != kind)
        i++;
    return activations[i].name;
}

static weft_status
read_activation(const weft_reader *r, const char *key, const char *fallback, weft_activation *out)
{
    const char *name = NULL;
    WEFT_TRY(weft_i_reader_string(r, key, fallback, &name));
    for (size_t i = 0; i < WEFT_COUNT_OF(activations); i++) {
        if (strcmp(name, activations[i].name) == 0) {
            *out = activations[i].kind;
            return WEFT_OK;
        }
    }
    return weft_i_reader_reject(
        r, WEFT_STATUS_UNSUPPORTED,
        "%s = \"%.100s\": weft has gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, relu, silu "
        "and swish",
        key, name);
}

static weft_status read_dropout(const weft_reader *r, const char *key, double fallback, double *out)
{
    return weft_i_reader_real(r, key, (weft_real_range){fallback, 0.0, 0.999999}, out);
}

/* Token ids: null means none, absent means the family's own. Negative ids stand for none in published files. */
static weft_status
read_token_id(const weft_reader *r, const char *key, int64_t fallback, int64_t *out)
{
    const bool is_absent = json_object_get(r->root, key) == NULL;
    WEFT_TRY(weft_i_reader_int(
        r, key, (weft_int_range){is_absent ? fallback : -1, INT32_MIN, INT32_MAX}, out));
    if (*out < 0)
        *out = -1;
    return WEFT_OK;
}

static weft_status
check_heads(const weft_reader *r, const weft_config *c, const char *heads, const char *hidden)
{
    if (!weft_i_reader_has_failed(r) && c->hidden_size % c->n_heads != 0)
        return weft_i_reader_reject(r, WEFT_STATUS_FORMAT,
                                    "%s = %" PRId64 " is not divisible by %s = %" PRId64
                                    ", and no head_dim says how wide a head is",
                                    hidden, c->hidden_size, heads, c->n_heads);
    return WEFT_OK;
}

static weft_int_range width_range(int64_t fallback)
{
    return (weft_int_range){fallback, 1, WEFT_CONFIG_WIDTH_MAX};
}

/* transformers maps these four names both ways (attribute_map); n_ctx is their oldest spelling. */
static weft_status read_gpt2_sizes(const weft_reader *r, weft_config *c)
{
    int64_t n_ctx = 1024;
    WEFT_TRY(weft_i_reader_int(r, "vocab_size", (weft_int_range){50257, 1, WEFT_CONFIG_VOCAB_MAX},
                               &c->vocab_size));
    if (weft_i_reader_find(r, "n_positions") == NULL)
        WEFT_TRY(weft_i_reader_int(r, "n_ctx", (weft_int_range){1024, 1, WEFT_CONFIG_POSITIONS_MAX},
                                   &n_ctx));
    WEFT_TRY(weft_i_reader_int_either(r, "n_positions", "max_position_embeddings",
                                      (weft_int_range){n_ctx, 1, WEFT_CONFIG_POSITIONS_MAX},
                                      &c->max_positions));
    WEFT_TRY(
        weft_i_reader_int_either(r, "n_embd", "hidden_size", width_range(768), &c->hidden_size));
    WEFT_TRY(weft_i_reader_int_either(r, "n_layer", "num_hidden_layers",
                                      (weft_int_range){12, 1, WEFT_CONFIG_LAYERS_MAX},
                                      &c->n_layers));
    WEFT_TRY(
        weft_i_reader_int_either(r, "n_head", "num_attention_heads", width_range(12), &c->n_heads));
    WEFT_TRY(weft_i_reader_int(r, "n_inner", width_range(4 * c->hidden_size), &c->ffn_size));
    WEFT_TRY(check_heads(r, c, "n_head", "n_embd"));
    c->n_kv_heads = c->n_heads;
    c->head_dim = c->hidden_size / c->n_heads;
    return WEFT_OK;
}

weft_status weft_i_config_gpt2(const weft_reader *r, weft_config *c)
{
    WEFT_TRY(read_gpt2_sizes(r, c));
    WEFT_TRY(read_activation(r, "activation_function", "gelu_new", &c->activation));
    WEFT_TRY(weft_i_reader_real(r, "layer_norm_epsilon", (weft_real_range){1e-5, 0.0, 1.0},
                                &c->norm_eps));
    WEFT_TRY(weft_i_reader_real(r, "initializer_range", (weft_real_range){0.02, 0.0, 1.0},
                                &c->initializer_range));
    WEFT_TRY(weft_i_reader_bool(r, "tie_word_embeddings", true, &c->is_tied));
    WEFT_TRY(weft_i_reader_bool(r, "scale_attn_weights", true, &c->is_attn_scaled));
    WEFT_TRY(
        weft_i_reader_bool(r, "scale_attn_by_inverse_layer_idx", false, &c->is_scaled_by_layer));
    WEFT_TRY(read_dropout(r, "embd_pdrop", 0.1, &c->embd_dropout));
    WEFT_TRY(read_dropout(r, "resid_pdrop", 0.1, &c->resid_dropout));
    WEFT_TRY(read_dropout(r, "attn_pdrop", 0.1, &c->attn_dropout));
    WEFT_TRY(read_token_id(r, "bos_token_id", 50256, &c->bos_id));
    WEFT_TRY(read_token_id(r, "pad_token_id", -1, &c->pad_id));
    c->has_attention_bias = true;
    c->has_mlp_bias = true;
    return WEFT_OK;
}

static weft_status read_llama_heads(const weft_reader *r, weft_config *c)
{
    const weft_int_range heads = width_range(32);
    WEFT_TRY(weft_i_reader_int(r, "num_attention_heads", heads, &c->n_heads));
    WEFT_TRY(weft_i_reader_int(r, "num_key_value_heads", width_range(c->n_heads), &c->n_kv_heads));
    WEFT_TRY(weft_i_reader_int(r, "head_dim", width_range(0), &c->head_dim));
    if (c->head_dim == 0) {
        WEFT_TRY(check_heads(r, c, "num_attention_heads", "hidden_size"));
        c->head_dim = WEFT_MAX(c->hidden_size / c->n_heads, 1);
    }
    if (weft_i_reader_has_failed(r))
        return WEFT_OK;
    if (c->n_heads % c->n_kv_heads != 0)
        WEFT_TRY(weft_i_reader_reject(r, WEFT_STATUS_FORMAT,
                                      "num_attention_heads = %" PRId64
                                      " is not divisible by num_key_value_heads = "
                                      "%" PRId64,
                                      c->n_heads, c->n_kv_heads));
    if (c->head_dim % 2 != 0)
        WEFT_TRY(weft_i_reader_reject(r, WEFT_STATUS_FORMAT,
                                      "head_dim = %" PRId64
                                      ": rotary positions turn pairs, so it must be even",
                                      c->head_dim));
    if (c->n_heads > WEFT_CONFIG_WIDTH_MAX / c->head_dim)
        WEFT_TRY(weft_i_reader_reject(r, WEFT_STATUS_FORMAT,
                                      "num_attention_heads = %" PRId64 " times head_dim = %" PRId64
                                      " must be at most %" PRId64,
                                      c->n_heads, c->head_dim, WEFT_CONFIG_WIDTH_MAX));
    return WEFT_OK;
}

weft_status weft_i_config_llama(const weft_reader *r, weft_config *c)
{
    WEFT_TRY(weft_i_reader_int(r, "vocab_size", (weft_int_range){32000, 1, WEFT_CONFIG_VOCAB_MAX},
                               &c->vocab_size));
    WEFT_TRY(weft_i_reader_int(r, "hidden_size", width_range(4096), &c->hidden_size));
    WEFT_TRY(weft_i_reader_int(r, "intermediate_size", width_range(11008), &c->ffn_size));
    WEFT_TRY(weft_i_reader_int(r, "num_hidden_layers",
                               (weft_int_range){32, 1, WEFT_CONFIG_LAYERS_MAX}, &c->n_layers));
    WEFT_TRY(weft_i_reader_int(r, "max_position_embeddings",
                               (weft_int_range){2048, 1, WEFT_CONFIG_POSITIONS_MAX},
                               &c->max_positions));
    WEFT_TRY(read_llama_heads(r, c));
    WEFT_TRY(read_activation(r, "hidden_act", "silu", &c->activation));
    WEFT_TRY(
        weft_i_reader_real(r, "rms_norm_eps", (weft_real_range){1e-6, 0.0, 1.0}, &c->norm_eps));
    WEFT_TRY(weft_i_reader_real(r, "initializer_range", (weft_real_range){0.02, 0.0, 1.0},
                                &c->initializer_range));
    WEFT_TRY(weft_i_reader_bool(r, "tie_word_embeddings", false, &c->is_tied));
    WEFT_TRY(weft_i_reader_bool(r, "attention_bias", false, &c->has_attention_bias));
    WEFT_TRY(weft_i_reader_bool(r, "mlp_bias", false, &c->has_mlp_bias));
    WEFT_TRY(read_dropout(r, "attention_dropout", 0.0, &c->attn_dropout));
    WEFT_TRY(read_token_id(r, "bos_token_id", 1, &c->bos_id));
    WEFT_TRY(read_token_id(r, "pad_token_id", -1, &c->pad_id));
    c->is_attn_scaled = true;
    return weft_i_config_rope(r, c);
}

static bool is_neutral(const json_t *value, neutral_value neutral)
{
    if (neutral == NEUTRAL_ONE)
        return json_is_number(value) && json_number_value(value) == 1.0;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return json_object_size(value) == 0;
    case JSON_ARRAY:
        return json_array_size(value) == 0;
    case JSON_STRING:
        return json_string_length(value) == 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(value) == 0.0;
    case JSON_TRUE:
        return false;
    case JSON_FALSE:
    case JSON_NULL:
        break;
    }
    return true;
}

static weft_status refuse_key(const weft_reader *r, const char *key, const json_t *value)
{
    char text[160];
    return weft_i_reader_reject(r, WEFT_STATUS_UNSUPPORTED, "%s = %s: weft does not have this", key,
                                weft_i_json_text(value, text, sizeof(text)));
}

/* A window at least as long as the longest sequence hides nothing; zero, negative or null is no window. */
static weft_status refuse_window(const weft_reader *r, const weft_config *c)
{
    const json_t *window = weft_i_reader_find(r, "sliding_window");
    bool is_used = true;
    WEFT_TRY(weft_i_reader_bool(r, "use_sliding_window", true, &is_used));
    if (window == NULL || !is_used)
        return WEFT_OK;
    if (json_is_integer(window) &&
        (json_integer_value(window) <= 0 || json_integer_value(window) >= c->max_positions))
        return WEFT_OK;
    return refuse_key(r, "sliding_window", window);
}

static weft_status refuse_layer_types(const weft_reader *r)
{
    const json_t *types = weft_i_reader_find(r, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type == NULL || (strcmp(type, "full_attention") != 0 && strcmp(type, "attention") != 0))
            return refuse_key(r, "layer_types", types);
    }
    return WEFT_OK;
}

weft_status weft_i_config_refuse(const weft_reader *r, const weft_config *c)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(lacking_keys); i++) {
        const json_t *value = weft_i_reader_find(r, lacking_keys[i].name);
        if (value != NULL && !is_neutral(value, lacking_keys[i].neutral))
            WEFT_TRY(refuse_key(r, lacking_keys[i].name, value));
    }
    WEFT_TRY(refuse_window(r, c));
    return refuse_layer_types(r);
}
